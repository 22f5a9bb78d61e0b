"""`interlock hub backup`: copies made while a hub runs, and hubs that are started on them."""

from __future__ import annotations

import json
import os
import resource
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import interlock
from interlock import Empty, connect
from interlock.cli import main
from interlock.client.faces.client import Client
from interlock.hub import backup
from interlock.hub.client import Client as Wire
from interlock.hub.resp import ReplyError
from interlock.testing import ManualClock
from tests.hub.queues.test_journal_disk import LARGE, Place, client_of, drained
from tests.hub.servers import HubProcess, hub_process, needs_hub, redis_server

KEYS = 5


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    needs_hub()
    yield Place(tmp_path)
    # Each segment has 64 MiB.
    for path in tmp_path.glob("*/segment-*"):
        path.unlink()


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command: its exit code, and what it wrote to both."""

    def run(*words: str | Path) -> tuple[int, str, str]:
        code = main(["hub", "backup", *map(str, words)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def restored(folder: Path) -> interlock.Hub:
    return interlock.Hub(port=0, workers=1, queues={"journal": str(folder), "durability": "none"})


def asked(hub: interlock.Hub) -> Client:
    return connect(f"interlock://127.0.0.1:{hub.port}?timeout=20")


class Load:
    """Threads that put as often as they are allowed, and settle; what was acknowledged is known."""

    def __init__(self, hub: HubProcess) -> None:
        self._hub = hub
        self._ends = False
        self._allowed = threading.Semaphore(0)
        self.put: list[list[int]] = [[] for _ in range(KEYS)]
        """By key, the numbers whose put returned."""
        self.settling: set[tuple[int, int]] = set()
        """The messages for which an ack is asked, noted before the call."""
        self.settled: set[tuple[int, int]] = set()
        """The messages whose ack was answered."""
        self._threads = [threading.Thread(target=self._puts, args=(key,)) for key in range(KEYS)]
        self._threads.append(threading.Thread(target=self._settles))

    def allow(self, puts: int) -> None:
        """This number of further puts."""
        self._allowed.release(puts)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self.allow(KEYS + 1)
        for thread in self._threads:
            thread.join()

    def _client(self) -> Client:
        return connect(f"interlock://127.0.0.1:{self._hub.port}?timeout=20")

    def _puts(self, key: int) -> None:
        with self._client() as client:
            queue = client.queue("q", bytes)
            number = 0
            while self._allowed.acquire() and not self._ends:
                queue.put(b"%d %d" % (key, number), keys=key)
                self.put[key].append(number)
                number += 1

    def _settles(self) -> None:
        with self._client() as client:
            queue = client.queue("q", bytes)
            while not self._ends:
                try:
                    lease = queue.get(timeout=0.1)
                except Empty:
                    continue
                key, number = map(int, lease.payload.split())
                self.settling.add((key, number))
                lease.ack()
                self.settled.add((key, number))


@pytest.mark.parametrize("by", ["hub", "folder"])
def test_a_copy_under_load_has_all_that_was_acknowledged_and_keeps_the_contract(
    place: Place, said: Callable[..., tuple[int, str, str]], by: str
) -> None:
    copies = []
    with hub_process(*place.flags()) as hub, Load(hub) as load:
        source = f"127.0.0.1:{hub.port}" if by == "hub" else str(place.journal)
        for number in range(3):
            load.allow(200)
            while sum(map(len, load.put)) < 200 * (number + 1) - 100:
                pass
            put, settled = [len(numbers) for numbers in load.put], set(load.settled)
            destination = place.journal.with_name(f"copy-{number}")
            code, out, err = said(source, destination, "--json")
            assert (code, err) == (0, "")
            told = json.loads(out)
            assert told["files"][0] == "closed"
            assert told["to"] == str(destination)
            copies.append((destination, put, settled, set(load.settling)))
    for destination, put, settled, settling in copies:
        found: dict[int, list[int]] = defaultdict(list)
        for payload in left(destination):
            key, at = map(int, payload.split())
            found[key].append(at)
        for key, known in enumerate(put):
            mine = found[key]
            # In order, each once, and nothing left out in between.
            assert not mine or mine == list(range(mine[0], mine[-1] + 1))
            acknowledged = {at for at in range(known) if (key, at) not in settling}
            assert acknowledged <= set(mine)
            assert not settled & {(key, at) for at in mine}


def left(folder: Path) -> list[bytes]:
    """The payloads in a hub started on a copy. Leased messages come when their leases expire."""
    hub = restored(folder)
    clock = hub._clock = ManualClock(time.time() + 3600)
    with hub, asked(hub) as client:
        queue = client.queue("q", bytes)
        found = drained(queue)
        clock.advance(3600)
        found += drained(queue)
        assert queue.stats().unsettled == 0
        return found


def test_a_hub_on_a_copy_goes_on_with_leases_ids_and_options(
    place: Place, said: Callable[..., tuple[int, str, str]]
) -> None:
    copy = place.journal.with_name("copy")
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        queue = client.queue("q", bytes, maxsize=7)
        for number in range(3):
            queue.put(b"%d" % number, keys="a")
        lease = queue.get(block=False)
        assert said(f"127.0.0.1:{hub.port}", copy)[0] == 0
        # Later messages are in no copy.
        queue.put(b"later", keys="b")
        with restored(copy) as again, asked(again) as other:
            copied = other.queue("q", bytes)
            assert (copied.stats().unsettled, copied.stats().leased) == (3, 1)
            assert copied.stats().puts == 3
            copied.put(b"other", keys="c")
            mine = copied.get(block=False)
            assert (mine.payload, mine.token > lease.token) == (b"other", True)
            assert mine.id > lease.id
            mine.ack()
        lease.ack()
        assert queue.stats().unsettled == 3


def test_a_copy_is_made_of_a_folder_that_no_hub_has_open(
    place: Place, said: Callable[..., tuple[int, str, str]]
) -> None:
    copy, second = place.journal.with_name("copy"), place.journal.with_name("second")
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        client.queue("q", bytes).put(b"one")
        hub.process.kill()
        hub.process.wait()
    code, out, err = said(place.journal, copy)
    assert (code, err) == (0, "")
    assert "in 2 files, up to record 2: " in out
    # And of a copy.
    second.mkdir()
    assert said(copy, second)[0] == 0
    with restored(second) as hub2, asked(hub2) as client:
        assert drained(client.queue("q", bytes)) == [b"one"]
    assert os.stat(copy).st_mode & 0o77 == 0
    assert all(path.stat().st_mode & 0o77 == 0 for path in copy.iterdir())
    # Most of a segment is zeroes, and they take no room.
    assert sum(path.stat().st_blocks * 512 for path in copy.iterdir()) < 1 << 20


def test_the_variable_says_where_the_hub_is_so_that_no_password_is_an_argument(
    place: Place, said: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        client.queue("q", bytes).put(b"one")
        monkeypatch.setenv("INTERLOCK_URL", f"redis://default:secret@127.0.0.1:{hub.port}")
        code, out, err = said(place.journal.with_name("copy"), "--json")
        assert (code, err) == (0, "")
        assert f"127.0.0.1:{hub.port}" in json.loads(out)["from"]
        assert "secret" not in out


def test_an_incomplete_copy_is_refused_by_a_hub(place: Place) -> None:
    copy = place.journal.with_name("copy")

    class Killed(Exception):
        pass

    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        queue = client.queue("q", bytes)
        for _ in range(3):
            queue.put(LARGE, keys="a")
        with Wire(f"127.0.0.1:{hub.port}") as wire:
            source = backup.Asked(wire)

            def told(done: int, all: int) -> None:
                # The files left if it were killed here, which removes nothing.
                if done > 1_000_000:
                    for path in copy.iterdir():
                        os.link(path, kept / path.name)
                    raise Killed

            kept = place.journal.with_name("kept")
            kept.mkdir()
            with pytest.raises(Killed):
                backup.write(source, copy, told)
            assert not copy.exists()
    with pytest.raises(
        OSError, match=r"is damaged.* cannot be replayed, although all of them were"
    ):
        restored(kept).start()


def test_a_destination_that_is_not_empty_is_refused_and_left_alone(
    place: Place, said: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter").write_text("to a friend")
    code, _, err = said("127.0.0.1:1", full)
    assert (code, err) == (
        2,
        f"interlock: {full} is not empty: a copy needs a folder of its own\n",
    )
    code, _, err = said("127.0.0.1:1", full / "letter")
    assert (code, "exists, and is not a folder" in err) == (2, True)
    assert (full / "letter").read_text() == "to a friend"


def test_what_cannot_be_copied_is_named_and_leaves_nothing(
    place: Place, said: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    code, _, err = said("127.0.0.1:1", copy)
    assert code == 1 and "cannot connect" in err
    code, _, err = said(tmp_path / "nothing" / "here", copy)
    assert code == 2 and "there is no folder" in err
    empty = tmp_path / "empty"
    empty.mkdir()
    code, _, err = said(empty, copy)
    assert code == 1 and "has no files of a journal" in err
    with interlock.Hub(port=0, workers=1) as hub:
        code, _, err = said(f"127.0.0.1:{hub.port}", copy)
        assert code == 1 and "the hub has no journal" in err
    with redis_server(empty) as (host, port):
        code, _, err = said(f"{host}:{port}", copy)
        assert code == 1 and "the server has no command BACKUP" in err
    with hub_process(*place.flags()) as process, client_of(process) as client:
        for number in range(20):
            client.queue("q", bytes).put(b"payload %d." % number)
        process.process.kill()
        process.process.wait()
    (segment,) = place.journal.glob("segment-*")
    content = bytearray(segment.read_bytes())
    content[content.index(b"payload 3.")] ^= 1
    segment.write_bytes(content)
    code, _, err = said(place.journal, copy)
    assert code == 1 and f"{segment} is damaged: record 5 cannot be read" in err
    assert not copy.exists()


def test_a_full_disk_is_named_as_its_own_and_leaves_nothing(
    place: Place, said: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    with hub_process(*place.flags()) as hub, client_of(hub) as client:
        client.queue("q", bytes).put(LARGE)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        try:
            code, _, err = said(f"127.0.0.1:{hub.port}", copy)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert code == 1 and err.startswith(f"interlock: {copy}"), err
        assert "File too large" in err
        assert not copy.exists()


def test_only_who_may_do_everything_reads_a_journal(place: Place) -> None:
    user = ("[[user]]", 'name = "default"', 'topics = ["*"]', 'commands = ["@all", "-@admin"]')
    flags = place.flags(*user)
    with hub_process(*flags) as hub, Wire(f"127.0.0.1:{hub.port}") as wire:
        for words in (("BEGIN",), ("READ", 0, 0, 9), ("END",)):
            with pytest.raises(ReplyError, match="NOPERM") as error:
                wire.call("BACKUP", *words)
            assert error.value.code == "NOPERM"


def test_the_command_is_exact(place: Place) -> None:
    with hub_process(*place.flags()) as hub, Wire(f"127.0.0.1:{hub.port}") as wire:
        with pytest.raises(ReplyError, match="no backup was begun by this connection"):
            wire.call("BACKUP", "READ", 0, 0, 9)
        begun = wire.call("BACKUP", "BEGIN")
        assert isinstance(begun, list)
        last, *files = begun
        assert last == 0
        assert [name for name, _, _ in files] == [b"closed", b"segment-00000000000000000001"]
        assert wire.call("BACKUP", "READ", 1, 0, 8) == b"ILJOURNL"
        assert wire.call("BACKUP", "READ", 1, files[1][1], 8) == b""
        for wrong in ((2, 0, 1), (-1, 0, 1), (0, 65, 1), (0, 0, "x"), (0, 0, -1)):
            with pytest.raises(ReplyError, match="not an integer or out of range"):
                wire.call("BACKUP", "READ", *wrong)
        assert wire.call("BACKUP", "END") == "OK"
        with pytest.raises(ReplyError, match="no backup was begun"):
            wire.call("BACKUP", "READ", 0, 0, 9)
        wire.call("BACKUP", "BEGIN")
        wire.call("RESET")
        with pytest.raises(ReplyError, match="no backup was begun"):
            wire.call("BACKUP", "READ", 0, 0, 9)
