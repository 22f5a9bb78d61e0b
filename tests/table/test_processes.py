"""Forks in the midst of writes, process pools, signals in a call that waits, a process's end."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from interlock import U32, Row, RowBusy, SharedTable


class Count(Row):
    count: U32 = 0


@pytest.fixture
def name() -> Iterator[str]:
    chosen = f"processes-{uuid.uuid4().hex}"
    yield chosen
    SharedTable.remove(chosen)


@pytest.fixture
def table(name: str) -> SharedTable[Count]:
    return SharedTable.open(name, Count, capacity=1000, writers=64, patience=60)


def use(table: SharedTable[Count], own: str) -> None:
    """Do a bit of everything, and see that it was done."""
    table[own] = Count()
    for _ in range(100):
        table.incr("all", "count")
        table.incr(own, "count")
    assert table.pop(own).count == 100
    assert dict(table.items())["all"].count >= 100
    assert len(table.to_numpy()) >= 1 and table.stats().rows >= 1
    with SharedTable.attach(table.path, Count) as other:
        other.set_many({f"{own}:{number}": Count() for number in range(10)})


@pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning")
def test_a_child_forked_while_threads_write_uses_the_table(table: SharedTable[Count]) -> None:
    table["all"] = Count()
    ended = threading.Event()

    def write(number: int) -> None:
        while not ended.is_set():
            # Threads come and go, so that numbers are taken and given back too.
            thread = threading.Thread(target=use, args=(table, f"thread:{number}"))
            thread.start()
            thread.join()

    writing = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in writing:
        thread.start()
    try:
        children = []
        for number in range(20):
            if not (child := os.fork()):
                code = 1
                try:
                    use(table, f"child:{number}")
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 20
    finally:
        ended.set()
        for thread in writing:
            thread.join()
    assert all(f"child:{number}:9" in table for number in range(20))
    assert table.stats().held == 0


POOLS = """
import concurrent.futures, multiprocessing, sys
from interlock import SharedTable
from interlock.table.kinds import U32
from interlock.table.row import Row

class Count(Row):
    count: U32 = 0

def work(table, number):
    return table.incr("all", "count", number)

if __name__ == "__main__":
    table = SharedTable.open(sys.argv[1], Count, capacity=100)
    table["all"] = Count()
    total = 0
    for method in ("spawn", "forkserver", "fork"):
        context = multiprocessing.get_context(method)
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            sums = list(pool.map(work, [table] * 9, range(1, 10)))
        total += 45
        assert table["all"].count == max(sums) == total, sums
"""


def run(program: str, *words: str, cwd: Any = None) -> None:
    """Run a program that has to end well, and to say nothing."""
    command = [sys.executable, "-W", "error", "-X", "dev", *words]
    ended = subprocess.run(command, input=program, capture_output=True, text=True, cwd=cwd)
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "")


def test_a_table_can_be_passed_to_process_pools_of_each_kind_without_warnings(
    name: str, tmp_path: Any
) -> None:
    (tmp_path / "pools.py").write_text(POOLS)
    run("", "pools.py", name, cwd=tmp_path)
    assert (os.stat(f"/dev/shm/interlock.{name}").st_mode & 0o777) == 0o600  # still there


AT_THE_END = """
import atexit, sys, threading
from interlock import SharedTable

table = SharedTable.attach(sys.argv[1])

class Last:
    def __del__(self, table=table):
        table.incr("all", "count")

def raise_it():
    while True:
        table.incr("all", "count")
        list(table.items())

atexit.register(lambda: table.incr("all", "count"))
last = Last()
last.itself = last
iterating = iter(table.items())
next(iterating)
for _ in range(3):
    threading.Thread(target=raise_it, daemon=True).start()
"""


def test_a_table_can_be_used_until_process_exit(table: SharedTable[Count], name: str) -> None:
    table["all"] = Count()
    for _ in range(5):
        run(AT_THE_END, "-", name)
    assert table["all"].count > 10
    table.incr("all", "count")
    assert table.stats().held == 0


def _write_and_stay(table: SharedTable[Count], stay: Any) -> None:
    table["held"] = Count()
    stay.send(None)
    stay.recv()


@pytest.fixture
def held(name: str) -> Iterator[str]:
    """A row that is held by a live process that does not continue."""
    table = SharedTable.open(name, Count, capacity=1000)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_write_and_stay, args=(table, theirs))
    process.start()
    ours.recv()
    with table.path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        # The first to write has number 1. The key is the fifth word of its slot, the state is the
        # first: bits 5 to 16 are the owner, 1 to 4 why it holds the slot (1: one word is changed).
        at = memory.find(b"held\0\0\0\0") - 4 * 8
        state = int.from_bytes(memory[at : at + 8], "little")
        assert state & 0x1FFFF == 1
        memory[at : at + 8] = (state | 1 << 5 | 1 << 1).to_bytes(8, "little")
    yield name
    ours.send(None)
    process.join()
    assert process.exitcode == 0


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("patience", [3600, float("inf")])
def test_a_signal_ends_a_call_that_waits_for_a_row(held: str, patience: float) -> None:
    table = SharedTable.attach(held, Count, patience=patience)
    ticks = 0

    def tick(_number: int, _frame: FrameType | None) -> None:
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            raise Interrupted

    before = signal.signal(signal.SIGALRM, tick)
    try:
        for call in (
            lambda: table.incr("held", "count"),
            lambda: table.pop("held"),
            lambda: table.set_many({"free": Count(), "held": Count(count=5)}),
            lambda: table.clear(),
        ):
            ticks = 0
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            with pytest.raises(Interrupted):
                call()
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    # Nobody waits to read.
    assert table["held"] == Count()
    assert table.get_column("held", "count") == 0 and "held" in table


def test_a_writer_raises_row_busy_when_its_patience_ends(held: str) -> None:
    for patience in (0, 0.12):
        table = SharedTable.attach(held, Count, patience=patience)
        with pytest.raises(RowBusy, match=r"by process \d+, which is alive but makes no progress"):
            table.set_column("held", "count", 1)
        assert issubclass(RowBusy, TimeoutError)
    table["free"] = Count()
    assert table.incr("free", "count") == 1


def test_an_ended_thread_does_not_count_as_a_writer(table: SharedTable[Count]) -> None:
    for number in range(200):  # three times as many as may write at once
        thread = threading.Thread(target=table.set, args=(number, Count()))
        thread.start()
        thread.join()
    assert len(table) == 200
    # The last of them may still be ending: it gives its number back after join() has returned.
    while table.stats().writers > 1:
        pass


EXECUTES = """
import os, sys
from interlock import SharedTable
from tests.table.test_processes import Count
name, kind = sys.argv[1:]
table = SharedTable.open(name, Count, capacity=1000, writers=2, keeper=kind == "keeper")
table["child"] = Count()
os.execvp("sh", ["sh", "-c", "echo executed; exec cat"])
"""


@pytest.mark.parametrize("kind", ["writer", "keeper"])
def test_a_process_that_executes_another_program_no_longer_counts_as_a_writer(
    name: str, kind: str
) -> None:
    root = Path(__file__).parents[2]
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            process = subprocess.Popen(
                [sys.executable, "-c", EXECUTES, name, kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=root,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"executed\n"
        table = SharedTable.open(name, Count, capacity=1000, writers=2, keeper=kind == "keeper")
        table["own"] = Count()
        assert sorted(table) == ["child", "own"]
