"""A hub with a journal: what its queues are after it was killed, and when it does not start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import interlock
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from tests.engine.calls import message
from tests.hub.queues.test_queues import fcall, lease, payload, put, stat
from tests.hub.servers import HubProcess, hub_process, needs_hub


@pytest.fixture(autouse=True)
def _hub_can_be() -> None:
    needs_hub()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def asked(hub: interlock.Hub | HubProcess) -> Client:
    return Client(f"127.0.0.1:{hub.port}", timeout=20)


@pytest.fixture
def started(journal: Path) -> Iterator[Callable[[], interlock.Hub]]:
    running: list[interlock.Hub] = []

    def start(**more: object) -> interlock.Hub:
        hub = interlock.Hub(port=0, workers=1, queues={"journal": str(journal), **more})
        hub.start()
        running.append(hub)
        return hub

    yield start
    for hub in running:
        hub.stop()


def test_what_was_answered_is_there_after_a_kill(journal: Path) -> None:
    with hub_process("--port", "0", "--journal", str(journal)) as hub, asked(hub) as client:
        first = put(client, "first", "a")
        put(client, "second", "a")
        held = lease(client, "me")
        fcall(client, "settle", "me", 2, "ACK", held[0].decode(), held[4].decode())
        out = lease(client, "me", call=3)
        hub.process.kill()
        hub.process.wait()
    with hub_process("--port", "0", "--journal", str(journal)) as again, asked(again) as client:
        assert (stat(client, "unsettled"), stat(client, "leased")) == (1, 1)
        # The previous holder still has it.
        settle = ("settle", "me", 4, "ACK", out[0].decode(), out[4].decode())
        assert fcall(client, *settle) == [b"ACKED"]
        third = put(client, "third", "a")
        assert int(third) > int(out[4]) > int(first)
        assert int(lease(client, "you")[0]) > int(out[0])


def test_a_hub_that_is_killed_in_the_middle_of_a_sweep_continues_it(journal: Path) -> None:
    flags = ("--port", "0", "--journal", str(journal))

    def put_some(client: Client, first: int, count: int) -> None:
        some = [message(str(n), ["a"]) for n in range(first, first + count)]
        fcall(client, "put", "", 0, 0, *map(str, (part for one in some for part in one)))

    with hub_process(*flags) as hub, asked(hub) as client:
        fcall(client, "configure", "BEHIND", "park", "MAXSIZE", 30_000)
        fcall(client, "put", "", 0, 0, *map(str, message("stuck", ["a"], attempts=1, then="hold")))
        leased = lease(client, "", call=0)
        token, id = leased[0].decode(), leased[4].decode()
        for first in range(0, 2_100, 700):
            put_some(client, first, 700)
        assert fcall(client, "settle", "", 0, "NACK", token, id, 0, "e") == [b"HELD"]
        hub.process.kill()
        hub.process.wait()
    count = 2_100
    with hub_process(*flags) as again, asked(again) as client:
        for _ in range(3):
            # Each call moves what it may, as the hub does by itself.
            assert lease(client, "", call=0)[0] == b""
        assert stat(client, "parked") == count
        fcall(client, "skip", id)
        put_some(client, count, 1)
        for n in range(9):
            leased = lease(client, "", call=0)
            assert payload(leased) == str(n).encode()
            fcall(client, "settle", "", 0, "ACK", leased[0].decode(), leased[4].decode())
        assert stat(client, "unsettled") == count + 1 - 9


def test_a_turn_goes_on_after_a_kill_in_the_middle_of_it(journal: Path) -> None:
    def take(client: Client, count: int) -> list[bytes]:
        replies = [fcall(client, "lease", "", 0, 0, 1, 10**9, "any") for _ in range(count)]
        return [reply[7] for reply in replies]

    with hub_process("--port", "0", "--journal", str(journal)) as hub, asked(hub) as client:
        fcall(client, "configure", "WEIGHTS", "a=5")
        for group in "ab":
            for _ in range(7):
                fcall(client, "put", "", 0, 0, group, 0, 0, 1, "GROUP", group)
        assert take(client, 3) == [b"a"] * 3
        hub.process.kill()
        hub.process.wait()
    with hub_process("--port", "0", "--journal", str(journal)) as again, asked(again) as client:
        assert take(client, 5) == [b"a", b"a", b"b", b"a", b"a"]


def test_a_stop_and_a_start_lose_nothing(started: Callable[[], interlock.Hub]) -> None:
    hub = started()
    with asked(hub) as client:
        for number in range(50):
            put(client, str(number), f"key {number % 3}")
    hub.stop()
    hub = started()
    with asked(hub) as client:
        assert stat(client, "unsettled") == 50
        assert payload(lease(client, "me")) == b"0"


def test_a_queue_says_for_itself_how_durable_it_is(
    started: Callable[..., interlock.Hub],
) -> None:
    hub = started(durability="none")
    with asked(hub) as client:
        fcall(client, "configure", "DURABILITY", "always", queue="kept")
        fcall(client, "put", "", 0, 0, "x", 0, 0, 0, queue="kept")
        put(client, "y")
    hub.stop()
    with asked(started(durability="none")) as client:
        assert client.call("FCALL", "il1_queues", 0) == [b"kept"]
        options = fcall(client, "configure", queue="kept")
        assert options[options.index(b"DURABILITY") + 1] == b"always"


def test_without_a_journal_durability_is_refused_and_says_what_to_do() -> None:
    refused = pytest.raises(ReplyError, match="NOTSUPPORTED il1_configure")
    with interlock.Hub(port=0, workers=1) as hub, asked(hub) as client, refused:
        fcall(client, "configure", "DURABILITY", "always")


def test_two_hubs_do_not_share_a_journal(
    started: Callable[[], interlock.Hub], journal: Path
) -> None:
    started()
    with pytest.raises(OSError, match="open in another process"):
        interlock.Hub(port=0, queues={"journal": str(journal)}).start()


def test_damage_is_refused_and_named_until_it_is_to_be_set_aside(
    started: Callable[..., interlock.Hub], journal: Path
) -> None:
    hub = started()
    with asked(hub) as client:
        ids = [put(client, f"payload {number}") for number in range(20)]
    hub.stop()
    (segment,) = [path for path in journal.iterdir() if path.stat().st_size > 1 << 20]
    content = bytearray(segment.read_bytes())
    at = content.index(b"payload 3")
    content[at] ^= 1
    segment.write_bytes(content)
    with pytest.raises(OSError, match=segment.name):
        started()
    with asked(started(repair=True)) as client:
        assert stat(client, "unsettled") == 3
        assert int(put(client, "more")) > int(ids[0])
