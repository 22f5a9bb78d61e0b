"""A table that is resized while it is in use: nothing is lost, and programs that have it open
follow."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.cli import main
from interlock.errors import RowBusy, TableFull
from interlock.table.kinds import U64
from interlock.table.row import Row
from interlock.table.stats import Resized
from interlock.table.table import SharedTable

SPAWN = multiprocessing.get_context("spawn")
WRITERS = 4
COUNTED = 8


class Count(Row):
    count: U64 = 0


@pytest.fixture
def name() -> Iterator[str]:
    chosen = f"resize-{uuid.uuid4().hex}"
    yield chosen
    SharedTable.remove(chosen)


def opened(name: str, *, capacity: int = 500, patience: float = 20) -> SharedTable[Count]:
    return SharedTable.open(
        name, Count, capacity=capacity, on_full="raise", patience=patience, writers=64
    )


def test_a_resize_keeps_rows_and_open_handles_follow(name: str) -> None:
    table, other = opened(name), opened(name)
    table.set_many({number: Count(count=number) for number in range(300)})
    table.expire(7, 1e-9)
    while 7 in table:
        pass
    assert table.resize(5000) == Resized(moved=299, expired=1, dropped=0)
    for each in (table, other, opened(name)):
        assert (each.capacity, len(each), each["299"]) == (5000, 299, Count(count=299))
    other["new"] = Count(count=1)
    assert table.incr("new", "count") == 2
    assert dict(table) == dict(other)


def test_shrinking_below_the_number_of_rows_is_refused_unless_rows_may_be_dropped(
    name: str,
) -> None:
    table = opened(name, capacity=2000)
    table.set_many({number: Count(count=number) for number in range(2000)})
    with pytest.raises(TableFull, match="2000 rows, more than fit a capacity of 100"):
        table.resize(100)
    assert (table.capacity, len(table)) == (2000, 2000)
    done = table.resize(100, drop=True)
    assert done.moved + done.dropped == 2000
    assert 100 <= done.moved == len(table) < 500


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"capacity": 0}, ValueError),
        ({"capacity": -1}, ValueError),
        ({"capacity": 2**40 + 1}, ValueError),
        ({"capacity": True}, TypeError),
        ({"capacity": 10.0}, TypeError),
        ({"capacity": None}, TypeError),
        ({"capacity": 10, "drop": 1}, TypeError),
        ({"capacity": 2**33}, OSError),
    ],
)
def test_an_invalid_capacity_is_refused(name: str, given: dict[str, Any], error: type) -> None:
    table = opened(name)
    table["a"] = Count(count=1)
    with pytest.raises(error):
        table.resize(**given)
    assert dict(table) == {"a": Count(count=1)} and table.capacity == 500


def test_a_removed_table_cannot_be_resized(name: str) -> None:
    table = opened(name)
    table["a"] = Count(count=1)
    SharedTable.remove(name)
    with pytest.raises(FileNotFoundError):
        table.resize(1000)
    assert table["a"] == Count(count=1)
    assert not list(Path("/dev/shm").glob(f".interlock.{name}.*"))


def test_an_iteration_that_meets_a_resize_yields_every_row_once(name: str) -> None:
    table = opened(name)
    table.set_many({number: Count(count=number) for number in range(400)})
    rows = iter(table.scan(batch=50))
    met = [next(rows) for _ in range(120)]
    table.resize(3000)
    met += rows
    assert sorted(row.count for _, row in met) == list(range(400))


def test_a_forked_child_and_threads_follow(name: str) -> None:
    table = opened(name)
    table["a"] = Count(count=0)
    go, gone = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(go, 1)
        right = table.capacity == 4000 and table.incr("a", "count") == 1
        os._exit(0 if right else 1)
    table.resize(4000)
    os.write(gone, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(go)
    os.close(gone)
    seen: list[int] = []
    threads = [
        threading.Thread(target=lambda: seen.append(table.incr("a", "count"))) for _ in range(4)
    ]
    table.resize(300)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [2, 3, 4, 5]


def count_on(name: str, ready: Any, stop: Any, told: Any) -> None:
    table, done = opened(name), [0] * COUNTED
    ready.release()
    while not stop.is_set():
        for number in range(COUNTED):
            table.incr(number, "count")
            done[number] += 1
    told.put(done)


def resize_on(name: str, ready: Any) -> None:
    table = opened(name)
    ready.release()
    while True:
        table.resize(random.randrange(400, 3000))


class Work:
    """Processes that count, and what they have counted in the end."""

    def __init__(self, name: str, writers: int = WRITERS) -> None:
        self.stop, self.told, self.name = SPAWN.Event(), SPAWN.Queue(), name
        ready = SPAWN.Semaphore(0)
        given = (name, ready, self.stop, self.told)
        self.processes = [
            SPAWN.Process(target=count_on, args=given, daemon=True) for _ in range(WRITERS)
        ]
        for process in self.processes:
            process.start()
        for _ in self.processes:
            ready.acquire()

    def sums(self) -> list[int]:
        self.stop.set()
        told = [self.told.get(timeout=60) for _ in self.processes]
        for process in self.processes:
            process.join()
        return [sum(numbers) for numbers in zip(*told, strict=True)]


def test_no_increment_of_four_processes_is_lost_during_resizes(name: str) -> None:
    table = opened(name)
    table.set_many({number: Count() for number in range(300)})
    work = Work(name)
    for capacity in (5000, 400, 20_000, 300, 1000):
        before = table["0"].count
        table.resize(capacity)
        while table["0"].count < before + 100:
            pass
    sums = work.sums()
    assert [table[number].count for number in range(COUNTED)] == sums
    assert len(table) == 300


def test_killing_a_resize_at_any_moment_loses_no_row(name: str) -> None:
    table = opened(name)
    table.set_many({number: Count() for number in range(300)})
    work = Work(name, writers=1)
    for _ in range(2):
        ready = SPAWN.Semaphore(0)
        resizer = SPAWN.Process(target=resize_on, args=(name, ready), daemon=True)
        resizer.start()
        ready.acquire()
        before = table["0"].count
        while table["0"].count < before + random.randrange(60):
            pass
        resizer.kill()
        resizer.join()
        assert len(table) == 300
    sums = work.sums()
    assert [table[number].count for number in range(COUNTED)] == sums
    assert len(opened(name)) == 300
    assert not list(Path("/dev/shm").glob(f".interlock.{name}.*"))


def test_while_a_resize_is_frozen_readers_work_and_writers_raise_row_busy(name: str) -> None:
    table = opened(name, patience=0.01)
    table.set_many({number: Count(count=7) for number in range(300)})
    ready = SPAWN.Semaphore(0)
    resizer = SPAWN.Process(target=resize_on, args=(name, ready), daemon=True)
    resizer.start()
    ready.acquire()
    pid = resizer.pid
    assert pid is not None
    refused = False
    # Until it is stopped while it has something frozen.
    while not refused:
        for _ in range(random.randrange(5000)):
            assert table[0] == Count(count=7)
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        assert all(table[number] == Count(count=7) for number in range(300))
        try:
            for number in range(300):
                table.set_column(number, "count", 7)
        except RowBusy as busy:
            refused = str(pid) in str(busy)
        assert all(table[number] == Count(count=7) for number in range(300))
        os.kill(pid, signal.SIGCONT)
    resizer.kill()
    resizer.join()
    table.set_column(0, "count", 8)
    assert table.resize(700).moved == 300


def test_the_resize_command_resizes_and_reports(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = opened(name)
    table.set_many({number: Count() for number in range(300)})
    assert main(["table", "resize", name, "--capacity", "2000"]) == 0
    assert capsys.readouterr().out == (
        f"{name}  capacity 2,000  300 rows moved, 0 expired, 0 dropped\n"
    )
    assert main(["table", "resize", name, "--capacity", "10"]) == 1
    assert "300 rows, more than fit a capacity of 10" in capsys.readouterr().err
    assert main(["table", "resize", name, "--capacity", "10", "--drop", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["table"] == name and told["capacity"] == 10
    assert told["moved"] + told["dropped"] == 300 and told["moved"] == len(table)
    with pytest.raises(SystemExit, match="2"):
        main(["table", "resize", name])
