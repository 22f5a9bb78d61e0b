"""A hub's journal after a stop: missing parts are detected, time continues, it has one owner."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import interlock
from interlock import Empty, connect
from interlock.client.faces.client import Client
from interlock.client.faces.queue import RemoteQueue
from interlock.hub.client import Client as Wire
from interlock.testing import ManualClock
from tests.hub.queues.test_journal_disk import Place, drained
from tests.hub.queues.test_queues import fcall
from tests.hub.servers import hub_process, needs_hub

STORED = Path(__file__).parents[1] / "stored"
NOON = 1_700_000_000
Start = Callable[..., interlock.Hub]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    needs_hub()
    yield Place(tmp_path)
    for path in tmp_path.glob("*/segment-*"):
        path.unlink()


@pytest.fixture
def started(place: Place) -> Iterator[Start]:
    """Starts a hub in this process, with a clock that stands at `at`, if that is given."""
    running: list[interlock.Hub] = []

    def start(
        at: float | None = None, folder: Path = place.journal, **more: object
    ) -> interlock.Hub:
        hub = interlock.Hub(port=0, workers=1, queues={"journal": str(folder), **more})
        hub._clock = None if at is None else ManualClock(at)
        hub.start()
        running.append(hub)
        return hub

    yield start
    for hub in running:
        hub.stop()


def asked(hub: interlock.Hub) -> Client:
    return connect(f"interlock://127.0.0.1:{hub.port}?timeout=5")


def clock_of(hub: interlock.Hub) -> ManualClock:
    clock = hub._clock
    assert clock is not None
    return clock


def test_a_file_cut_after_a_clean_stop_is_refused_with_what_is_missing(
    place: Place, started: Start
) -> None:
    hub = started()
    with asked(hub) as client:
        queue = client.queue("q", bytes)
        for number in range(1000):
            queue.put(b"payload %d." % number, keys="a")
    hub.stop()
    (segment,) = place.journal.glob("segment-*")
    content = segment.read_bytes()
    made, cut = len(content), content.index(b"payload 498.")
    for padded in (False, True):
        # A tool that copies files may restore its length.
        segment.write_bytes(content[:cut] + bytes(made - cut if padded else 0))
        before = place.files()
        said = place.refused()
        assert str(segment) in said
        # The queue's name is a record, and so are the journal's own marks.
        gone = re.search(r"Records from (\d+) to (\d+) cannot be replayed, ", said)
        assert gone is not None, said
        first, last = map(int, gone.groups())
        assert 500 <= first < 600 and last - first >= 501, said
        assert "although all of them were present when it was stopped" in said
        assert "sets unreadable parts aside" in said and "queues.repair = true" in said
        if not padded:
            assert f"it was created with {made} bytes and has {cut}: it was truncated" in said
        assert place.files() == before
    hub = started(repair=True)
    with asked(hub) as client:
        assert client.queue("q", bytes).stats().unsettled == 498
        client.queue("q", bytes).put(b"more", keys="a")
    hub.stop()
    with asked(started()) as client:
        assert client.queue("q", bytes).stats().unsettled == 499


def test_a_journal_whose_files_are_gone_is_not_taken_for_a_new_one(
    place: Place, started: Start
) -> None:
    hub = started()
    with asked(hub) as client:
        client.queue("q", bytes).put(b"first")
    hub.stop()
    for path in place.journal.glob("segment-*"):
        path.unlink()
    said = place.refused()
    assert re.search(r"segments are missing\. Records from 1 to \d cannot be replayed", said), said


def crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_a_journal_of_unknown_rules_is_refused_even_with_repair(
    place: Place, started: Start
) -> None:
    hub = started()
    with asked(hub) as client:
        client.queue("q", bytes).put(b"later")
    hub.stop()
    (segment,) = place.journal.glob("segment-*")
    content = segment.read_bytes()
    assert content[52:56] == bytes((1, 0, 0, 0)), "the version of the rules is in the head"
    head = content[:52] + bytes((99, 0, 0, 0)) + content[56:60]
    segment.write_bytes(head + crc32c(head).to_bytes(4, "little") + content[64:])
    before = place.files()
    for lines in ((), ("repair = true",)):
        said = place.refused(*lines)
        assert f"{segment} was written by version 99 of the rules; allowed: 1" in said
        assert "; start the version of Interlock that wrote it, or a later one" in said
        assert place.files() == before
    segment.write_bytes(content)
    with asked(started()) as client:
        assert payload(client.queue("q", bytes)) == b"later"


def test_a_removed_lock_file_still_keeps_a_second_hub_out(place: Place) -> None:
    with hub_process(*place.flags()) as hub, connect(f"interlock://127.0.0.1:{hub.port}") as client:
        queue = client.queue("q", bytes)
        queue.put(b"one", keys="a")
        (place.journal / "lock").unlink()
        said = place.refused()
        assert "is open in another process, which holds the folder" in said
        assert str(place.journal) in said
        queue.put(b"two", keys="a")
        assert drained(queue) == [b"one", b"two"]


def payload(queue: RemoteQueue[bytes]) -> bytes:
    """Id of the next one, which is settled."""
    lease = queue.get(block=False)
    lease.ack()
    return lease.payload


def copied(place: Place) -> Path:
    """Copies the journal as a kill of the hub would leave it."""
    return shutil.copytree(place.journal, place.journal.with_name("killed"))


@pytest.mark.parametrize("killed", [False, True])
def test_with_a_clock_that_was_set_back_leases_and_delays_go_on_at_once(
    place: Place, started: Start, killed: bool
) -> None:
    hub = started(at=NOON)
    with asked(hub) as client, Wire(hub.url) as wire:
        queue = client.queue("q", bytes)
        queue.put(b"held", keys="a")
        # Held by a consumer that vanished.
        token, _, _, _, held, *_ = fcall(wire, "lease", "me", 1, 0, 1, 30_000_000, "any")
        queue.put(b"late", keys="b", delay=60)
        clock_of(hub).advance(20)
        queue.put(b"last", keys="c")
        folder = copied(place) if killed else place.journal
    hub.stop()
    hub = started(at=NOON - 600, folder=folder)
    assert hub.info()["journal_clock_ahead_seconds"] == 620
    with asked(hub) as client:
        queue = client.queue("q", bytes)
        last = queue.get(block=False)
        assert (last.payload, last.id > int(held)) == (b"last", True)
        last.ack()
        clock_of(hub).advance(9)
        assert queue.stats().leased == 1
        with pytest.raises(Empty):
            queue.get(block=False)
        clock_of(hub).advance(2)
        # The first lease to run out counts no attempt: it is ready at once.
        again = queue.get(block=False)
        assert (again.payload, again.attempt) == (b"held", 1)
        assert again.token > int(token)
        assert queue.stats().leases_expired == 1
        again.nack()
        with pytest.raises(Empty):
            queue.get(block=False)
        # Failed messages are retried after a pause, as always.
        clock_of(hub).advance(10)
        again = queue.get(block=False)
        assert (again.payload, again.attempt) == (b"held", 2)
        again.ack()
        clock_of(hub).advance(30)
        assert payload(queue) == b"late"


def test_a_clock_that_went_on_is_followed(started: Start) -> None:
    hub = started(at=NOON)
    with asked(hub) as client:
        client.queue("q", bytes).put(b"late", delay=60)
    hub.stop()
    hub = started(at=NOON + 61)
    assert hub.info()["journal_clock_ahead_seconds"] == 0
    with asked(hub) as client:
        assert payload(client.queue("q", bytes)) == b"late"


def test_the_time_that_passed_before_a_stop_is_known_though_nobody_called(
    place: Place, started: Start
) -> None:
    hub = started(at=NOON)
    with asked(hub) as client:
        client.queue("q", bytes).put(b"late", delay=60)
        clock_of(hub).advance(59)
    hub.stop()
    hub = started(at=NOON)
    with asked(hub) as client:
        queue = client.queue("q", bytes)
        with pytest.raises(Empty):
            queue.get(block=False)
        clock_of(hub).advance(2)
        assert payload(queue) == b"late"


def test_a_journal_of_a_version_that_left_no_mark_goes_on(place: Place, started: Start) -> None:
    with tarfile.open(STORED / "journal-1.tar.xz") as archive:
        # As an attribute: the argument came with Python 3.11.4.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(place.journal.parent)
    hub = started(at=1)
    with asked(hub) as client:
        queue = client.queue("orders", bytes)
        expected = [b"order %d" % number for number in range(5, 20)]
        assert drained(queue) == expected
        # Its time is that of its last record, and not a second after 1970.
        clock_of(hub).advance(3600)
        assert payload(queue) == b"late"
    hub.stop()
    with asked(started(at=1)) as client:
        assert client.queue("orders", bytes).stats().unsettled == 0
