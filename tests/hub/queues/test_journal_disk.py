"""A hub with a journal, as a process: beside another one, and on a disk that is damaged or full."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock import Empty, EngineUnavailable, InterlockError, connect
from interlock.client.faces.client import Client
from interlock.client.faces.queue import RemoteQueue
from tests.hub.servers import HubProcess, hub_process, needs_hub

MIB = 1 << 20
LARGEST = 36 * MIB
"""Size limit of a file: more than half of a segment is then in use, and the next one cannot be
created."""
LARGE = b"x" * 1_000_000


class Place:
    """A folder with a journal, and the configuration of a hub that has it."""

    def __init__(self, folder: Path) -> None:
        self.journal = folder / "journal"
        self.config = folder / "hub.toml"

    def flags(self, *lines: str) -> tuple[str, ...]:
        text = "\n".join(["port = 0", "[queues]", f'journal = "{self.journal}"', *lines])
        self.config.write_text(text)
        return "--config", str(self.config)

    def refused(self, *lines: str) -> str:
        """Starts a hub that is to be refused, and returns the line that it says."""
        command = [sys.executable, "-m", "interlock", "hub", *self.flags(*lines)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        (said,) = done.stderr.splitlines()
        return said

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.journal.iterdir()}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    needs_hub()
    yield Place(tmp_path)
    # Each segment has 64 MiB.
    for path in (tmp_path / "journal").glob("*"):
        path.unlink()


def client_of(hub: HubProcess) -> Client:
    return connect(f"interlock://127.0.0.1:{hub.port}?timeout=1")


def drained(queue: RemoteQueue[bytes], patience: float = 0) -> list[bytes]:
    """All that is there, in order, and settled; the first one may be this many seconds late."""
    found: list[bytes] = []
    while True:
        try:
            lease = queue.get(timeout=0 if found else patience)
        except Empty:
            return found
        found.append(lease.payload)
        lease.ack()


def killed(hub: HubProcess) -> str:
    """Kills the hub, and returns what it had said until then, beside the ready line."""
    hub.process.kill()
    return hub.process.communicate()[1]


def test_a_second_hub_is_refused_the_folder_and_the_first_goes_on(place: Place) -> None:
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        queue = client.queue("q", bytes)
        queue.put(b"one", keys="a")
        said = place.refused()
        assert said.startswith("interlock: journal ")
        assert "is open in another process" in said and str(place.journal) in said
        queue.put(b"two", keys="a")
        killed(hub)
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        assert drained(client.queue("q", bytes)) == [b"one", b"two"]


def test_a_damaged_journal_is_refused_until_it_is_to_be_set_aside(place: Place) -> None:
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        queue = client.queue("q", bytes)
        for number in range(20):
            queue.put(b"payload %d." % number, keys="a")
        killed(hub)
    (segment,) = place.journal.glob("segment-*")
    data = bytearray(segment.read_bytes())
    data[data.index(b"payload 7.")] ^= 0x20
    segment.write_bytes(data)
    before = place.files()
    said = place.refused()
    assert said.startswith(f"interlock: journal {place.journal}: {segment} is damaged at byte ")
    assert "complete ones follow" in said and "sets unreadable parts aside" in said
    assert place.files() == before
    with hub_process(*place.flags("repair = true")) as hub, client_of(hub) as client:
        queue = client.queue("q", bytes)
        assert queue.stats().unsettled == 7
        queue.put(b"later", keys="a")
        said = killed(hub)
        assert "aside" in said and segment.name in said
    assert any(".aside" in name for name in place.files())
    # Files set aside are not asked about again.
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        whole = [b"payload %d." % number for number in range(7)]
        assert drained(client.queue("q", bytes)) == [*whole, b"later"]


def refusal(
    queue: RemoteQueue[bytes], payload: bytes, dedup: str | None = None
) -> InterlockError | None:
    """The error that answers a put; None where it is taken."""
    try:
        queue.put(payload, block=False, keys="a", dedup=dedup)
    except InterlockError as error:
        return error
    return None


def filled(queue: RemoteQueue[bytes], payload: bytes) -> tuple[int, InterlockError]:
    """Puts until one is refused: how many were taken, and what was said."""
    for number in range(10_000):
        if said := refusal(queue, payload):
            return number, said
    raise AssertionError("there is room")


def test_without_room_for_the_next_segment_puts_are_refused_and_the_queue_drains(
    place: Place,
) -> None:
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        queue = client.queue("q", bytes)
        # Files may not grow so large; the one in use has its size.
        pid = hub.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (LARGEST, before[1]))
        for _ in range(34):
            queue.put(LARGE, keys="a")
        # As soon as it looks for the next one.
        number, said = filled(queue, b"small")
        assert "MISCONF il1_put: the journal's disk is nearly full: " in str(said)
        assert "spare.new" in str(said)
        lease = queue.get(block=False)
        lease.nack(0)
        lease = queue.get(block=False)
        lease.extend(60)
        lease.ack()
        for _ in range(30):
            queue.get(block=False).ack()
        with pytest.raises(InterlockError, match="MISCONF"):
            queue.put(b"small", keys="a")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        while refused := refusal(queue, b"again", dedup="again"):
            assert "nearly full" in str(refused)
        log = killed(hub)
        assert "nearly full" in log, log
        assert "journal: it accepts records again" in log, log
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        expected = [LARGE] * 3 + [b"small"] * number + [b"again"]
        assert drained(client.queue("q", bytes)) == expected


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """With room for one segment, and not for two."""
    needs_hub()
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100m", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no right to mount a small disk: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_fills_up_faster_than_the_hub_looks_leaves_room_to_settle(
    small_disk: Path,
) -> None:
    place = Place(small_disk)
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        queue = client.queue("q", bytes, lease=20)
        answered, said = filled(queue, LARGE)
        assert answered > 30
        assert "MISCONF il1_put: the journal's disk is nearly full: " in str(said)
        assert queue.stats().unsettled == answered
        for _ in range(10):
            lease = queue.get(block=False)
            lease.extend(60)
            lease.ack()
        killed(hub)
    # There is no space for a whole segment, so it starts with a shorter one, and drains.
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        queue = client.queue("q", bytes, lease=20)
        for _ in range(10):
            queue.get(block=False).ack()
        assert queue.stats().unsettled == answered - 20
        more = ["mount", "-o", "remount,size=300m", str(small_disk)]
        subprocess.run(more, check=True)
        while refusal(queue, b"again", dedup="again"):
            pass
        killed(hub)
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        found = drained(client.queue("q", bytes))
        assert found == [LARGE] * (answered - 20) + [b"again"]


def test_a_folder_that_is_removed_under_a_hub_is_noticed_and_what_is_in_memory_can_be_read(
    place: Place,
) -> None:
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        queue = client.queue("q", bytes)
        queue.put(b"first", keys="a")
        shutil.rmtree(place.journal)
        while not (said := refusal(queue, b"second")):
            pass
        assert "MISCONF il1_put: the journal failed: " in str(said)
        assert str(place.journal) in str(said) and "removed or moved" in str(said)
        assert queue.stats().unsettled > 1
        assert "removed or moved" in killed(hub)


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(small_disk: Path) -> None:
    place = Place(small_disk)
    place.journal.mkdir()
    flags = place.flags()
    command = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(command, check=True)
    start = [sys.executable, "-m", "interlock", "hub", *flags]
    done = subprocess.run(start, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert f"lock {place.journal}/lock: Read-only file system" in said
    assert "requires write permission in its folder" in said


def test_a_journal_of_a_later_version_is_left_alone_and_named(place: Place) -> None:
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        client.queue("q", bytes).put(b"first", keys="a")
        killed(hub)
    (segment,) = place.journal.glob("segment-*")
    data = bytearray(segment.read_bytes())
    data[8] = 2
    segment.write_bytes(data)
    before = place.files()
    said = place.refused()
    assert str(segment) in said
    assert "its version is 2; allowed: 1; start the version that wrote it" in said
    assert place.files() == before


def test_after_a_failed_write_nothing_is_taken_until_it_is_started_again(place: Place) -> None:
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        queue = client.queue("q", bytes)
        queue.put(b"first", keys="a")
        pid = hub.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (100, before[1]))
        refused = refusal(queue, b"second")
        assert isinstance(refused, EngineUnavailable)
        assert refused.unknown, "it was made, and nobody knows whether it was written"
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        assert "MISCONF il1_put: the journal failed: writing " in str(refusal(queue, b"third"))
        with pytest.raises(InterlockError, match="MISCONF il1_lease: the journal failed"):
            queue.get(block=False)
        assert queue.stats().unsettled >= 1, "it can be read"
        killed(hub)
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        queue = client.queue("q", bytes)
        assert drained(queue)[:1] == [b"first"]
        queue.put(b"fourth")
        assert drained(queue) == [b"fourth"]
