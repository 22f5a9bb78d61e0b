"""Readers of store files: what exists comes once and in order, what is missing is reported.

`crates/interlock-stores/tests/stores/missing.rs` has every way and every place; here are a hub and
the command line.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock import Hub
from interlock.cli import main
from interlock.hub.client import Client
from tests.hub.servers import needs_hub

COUNT = 40


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def hub(out: Path) -> Iterator[Hub]:
    """A hub with a store of many small files."""
    needs_hub()
    with Hub(port=0, store=[store(out)]) as hub:
        yield hub


def store(out: Path, *, compress: bool = False) -> dict[str, object]:
    return {"name": "files", "path": f"{out}/[topic].log", "ack": "disk",
            "rotate": "1KB", "compress": compress}  # fmt: skip


def call(client: Client, *words: str | bytes | int) -> Any:
    return client.call(*words)


def fill(client: Client, first: int, count: int) -> None:
    for _ in client.pipeline(
        [("PUBLISH", "t", f"{number} {'x' * 90}") for number in range(first, first + count)]
    ):
        pass


def middle(out: Path) -> Path:
    files = sorted(out.glob("t-*.log"))
    assert len(files) >= 3
    return files[1]


def index(path: Path) -> Path:
    return path.with_name(path.name + ".idx")


def remove(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_name(path.name + ".1"))


def remove_both(path: Path) -> None:
    path.unlink()
    index(path).unlink()


def remove_index(path: Path) -> None:
    index(path).unlink()


def truncate_index(path: Path) -> None:
    os.truncate(index(path), index(path).stat().st_size - 5 * 64)


def empty_index(path: Path) -> None:
    os.truncate(index(path), 0)


def corrupt_index(path: Path) -> None:
    content = bytearray(index(path).read_bytes())
    content[-4 * 64 + 20] ^= 1
    index(path).write_bytes(content)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def corrupt(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(b"?" + content[1:])


WAYS = (remove, rename, remove_both, remove_index, truncate_index, empty_index, corrupt_index,
        truncate, corrupt)  # fmt: skip


def parts(entries: list[tuple[bytes, list[bytes]]]) -> tuple[list[int], int]:
    """Return the numbers that were read, and how many messages are reported missing."""
    read, missing = [], 0
    ids = []
    for id_, fields in entries:
        ids.append(tuple(int(part) for part in id_.split(b"-")))
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        if b"payload" in named:
            read.append(int(named[b"payload"].split()[0]))
        else:
            missing += int(named[b"missing"])
            assert named[b"why"]
    assert ids in (sorted(ids), sorted(ids, reverse=True))
    return read, missing


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_all_ways_of_reading_report_the_same_missing_messages(
    hub: Hub, out: Path, way: Callable[[Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    with Client(hub.url) as client:
        fill(client, 0, COUNT)
        way(middle(out))
        read, missing = parts(call(client, "XRANGE", "t", "-", "+"))
        assert missing > 0 and read == sorted(set(read))
        assert len(read) + missing == COUNT
        back, missing_back = parts(call(client, "XREVRANGE", "t", "+", "-"))
        assert (back[::-1], missing_back) == (read, missing)
        found = call(client, "XREAD", "STREAMS", "t", "0-0")
        assert parts(found[b"t"]) == (read, missing)
        # A reader that takes them one by one continues after the missing ones.
        at, one_by_one = b"0-0", []
        while found := call(client, "XREAD", "COUNT", 1, "STREAMS", "t", at):
            one_by_one += found[b"t"]
            at = one_by_one[-1][0]
        assert parts(one_by_one) == (read, missing)
        in_place = way in (corrupt, corrupt_index)
        assert call(client, "XLEN", "t") == len(read) + (missing if in_place else 0)
        # Later messages reach a waiting reader.
        fill(client, COUNT, 1)
        assert parts(call(client, "XREAD", "STREAMS", "t", at)[b"t"]) == ([COUNT], 0)
    capfd.readouterr()
    assert main(["store", "cat", str(out), "t"]) == 1
    told = capfd.readouterr()
    assert [int(line.split()[0]) for line in told.out.splitlines()] == [*read, COUNT]
    assert f"{missing} message" in told.err and "missing at" in told.err
    assert main(["store", "verify", str(out)]) == 1


def test_an_index_that_lost_its_end_is_reported(out: Path) -> None:
    needs_hub()
    with Hub(port=0, store=[store(out)]) as hub, Client(hub.url) as client:
        fill(client, 0, 5)
    assert main(["store", "cat", str(out)]) == 0
    truncate_index(out / "t.log")
    assert main(["store", "cat", str(out)]) == 1
    assert main(["store", "verify", str(out)]) == 1
    remove_index(out / "t.log")
    assert main(["store", "cat", str(out)]) == 1
    assert main(["store", "verify", str(out)]) == 1


@contextmanager
def tailing(out: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "interlock", "store", "tail", str(out), "--lines", "1000000"]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield tail
    finally:
        if tail.poll() is None:
            tail.kill()
            tail.communicate()


class Interrupting(io.StringIO):
    """Is written to at the moment of a Ctrl-C."""

    def write(self, text: str) -> int:
        if not self.getvalue():
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def test_ctrl_c_does_not_cut_short_what_a_tail_reports(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_hub()
    with Hub(port=0, store=[store(out)]) as hub, Client(hub.url) as client:
        fill(client, 0, 5)
    truncate_index(out / "t.log")
    said = Interrupting()
    monkeypatch.setattr(sys, "stderr", said)
    assert main(["store", "tail", str(out)]) == 1
    assert "t.log" in said.getvalue()


@pytest.mark.parametrize("compress", [False, True])
def test_a_stalled_tail_prints_each_message_once(out: Path, *, compress: bool) -> None:
    needs_hub()
    out.mkdir()
    with (
        Hub(port=0, store=[store(out, compress=compress)]) as hub,
        Client(hub.url) as client,
        tailing(out) as tail,
    ):
        assert tail.stdout is not None
        fill(client, 0, 1)
        lines = [tail.stdout.readline()]
        for round_ in range(6):
            tail.send_signal(signal.SIGSTOP)
            fill(client, 1 + round_ * COUNT, COUNT)
            tail.send_signal(signal.SIGCONT)
            # In the midst of what it has to read.
            lines += [tail.stdout.readline() for _ in range(COUNT // 2)]
        lines += [tail.stdout.readline() for _ in range(1 + 6 * COUNT - len(lines))]
        assert [int(line.split()[0]) for line in lines] == list(range(1 + 6 * COUNT))
        # All is gone and begun anew: a reader continues with what remains, and reports it.
        tail.send_signal(signal.SIGSTOP)
        while out.exists():  # the store compresses and renames files in it meanwhile
            shutil.rmtree(out, ignore_errors=True)
        hub.set({"store": []})
        hub.set({"store": [store(out)]})
        fill(client, 1000, 3)
        tail.send_signal(signal.SIGCONT)
        found = [tail.stdout.readline() for _ in range(3)]
        assert [int(line.split()[0]) for line in found] == [1000, 1001, 1002]
        tail.send_signal(signal.SIGINT)
        told = tail.communicate()[1].decode()
        assert tail.returncode == 1 and "missing" in told, told


def test_cat_and_verify_beside_a_store_that_rotates(
    out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    needs_hub()
    with Hub(port=0, store=[store(out, compress=True)]) as hub, Client(hub.url) as client:
        fill(client, 0, COUNT)
        script = (
            "import sys, time\n"
            "from interlock.hub.client import Client\n"
            "with Client(sys.argv[1]) as client:\n"
            f"    for number in range({COUNT}, 100_000):\n"
            "        client.call('PUBLISH', 't', f'{number} ' + 'x' * 90)\n"
        )
        publisher = subprocess.Popen([sys.executable, "-c", script, hub.url])
        try:
            seen = 0
            for _ in range(12):
                capfd.readouterr()
                code = main(["store", "cat", str(out), "t", "--json"])
                told = capfd.readouterr()
                numbers = [int(json.loads(line)["payload"].split()[0])
                           for line in told.out.splitlines()]  # fmt: skip
                assert (code, told.err) == (0, "")
                assert numbers == list(range(len(numbers)))
                assert len(numbers) >= seen
                seen = len(numbers)
                assert main(["store", "verify", str(out)]) == 0, capfd.readouterr()
                while call(client, "XLEN", "t") < seen + COUNT:
                    assert publisher.poll() is None
                    time.sleep(0.01)
        finally:
            publisher.kill()
            publisher.wait()
