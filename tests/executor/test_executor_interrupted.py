"""Signals in the middle of whatever the main thread does with an executor, Ctrl-C above all."""

from __future__ import annotations

import dis
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from interlock import KeyedExecutor, KeyedQueue, connect
from tests.executor.executors import LONG, Gate, script, started
from tests.executor.test_executor_process import FORKS, needs_fork, until_asleep
from tests.support import until

# -- While a submit starts a thread ---------------------------------------------------------------

OURS = ("interlock/executor.py", "local/executor_threads.py", "local/executor_pool.py")

LOOKS = ("CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD")
"""The instructions at whose end Python looks for signals."""

by_instructions = pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="from 3.12 on not every instruction of a frame that is already running can be traced; "
    "between lines no signal comes",
)


def ctrl_c() -> None:
    raise KeyboardInterrupt


def interrupted(
    call: Callable[[], object],
    at: int,
    handler: Callable[[], object] = ctrl_c,
    files: tuple[str, ...] = OURS,
) -> bool:
    """Calls, and runs a signal handler at the ``at``-th point where Python looks for signals.

    That is behind each call, at a function's begin, and where a loop turns. False: there is no such
    point.
    """
    seen = 0
    last: dict[FrameType, str] = {}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        code = frame.f_code
        start = code is threading.Thread.start.__code__
        if not start and (
            not code.co_filename.endswith(files) or code.co_name == "_start_processes"
        ):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            before = last.get(frame, "")
            last[frame] = dis.opname[code.co_code[frame.f_lasti]]
            if before in LOOKS:
                seen += 1
                if seen == at:
                    handler()
        return trace

    def called() -> Iterator[None]:
        # A signal at the end of an `except` leaves its exception there as the one that is handled,
        # and all later ones would name it as their context. A generator keeps its own.
        call()
        yield

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        next(called())
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return seen >= at


@pytest.fixture(scope="module")
def pool() -> Iterator[futures.Executor]:
    with futures.ThreadPoolExecutor(4) as pool:
        yield pool


@by_instructions
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("pooled", [False, True])
def test_an_interrupted_submit_does_not_change_the_number_of_workers(
    workers: int, pooled: bool, pool: futures.Executor
) -> None:
    at = 0
    going_on = True
    while going_on:
        at += 1
        executor = KeyedExecutor(workers, pool=pool if pooled else None)
        gate = Gate()

        def submit(executor: KeyedExecutor = executor, gate: Gate = gate) -> None:
            executor.submit_keyed("a", gate)

        going_on = interrupted(submit, at)
        rest = [executor.submit(gate) for _ in range(workers + 3)]
        until(partial(leased, executor, workers))
        if not pooled:
            assert len(alive(executor)) == workers, f"interrupted at {at}"
        gate.open.set()
        for call in rest:
            call.result(LONG)
        executor.shutdown()
        until(partial(none_alive, executor))
    assert at > 10


@by_instructions
@pytest.mark.parametrize("pooled", [False, True])
def test_a_call_whose_submit_was_interrupted_does_not_block_shutdown(
    pooled: bool, pool: futures.Executor
) -> None:
    at = 0
    going_on = True
    while going_on:
        at += 1
        executor = KeyedExecutor(1, pool=pool if pooled else None)

        def submit(executor: KeyedExecutor = executor) -> None:
            executor.submit_keyed("a", int)

        going_on = interrupted(submit, at)
        executor.shutdown()
        assert executor.queue.stats().unsettled == 0
    assert at > 10


def interrupted_start(call: Callable[[], object]) -> None:
    """Calls what starts a thread, and interrupts that; it must raise KeyboardInterrupt."""

    # The starter waits for the thread; between its wait and the lock that it had given up, Ctrl-C
    # makes `with` release a lock that nobody holds, which is a RuntimeError.
    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is threading.Condition._acquire_restore.__code__:  # type: ignore[attr-defined]
            sys.settrace(None)
            raise KeyboardInterrupt
        return None

    traced, interval = sys.gettrace(), sys.getswitchinterval()
    # So that it does wait: the thread does not run before.
    sys.setswitchinterval(LONG)
    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        sys.settrace(traced)
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("before", [0, 1])
def test_ctrl_c_while_a_thread_starts_is_raised_and_the_thread_works(before: int) -> None:
    executor = KeyedExecutor(3)
    gate = Gate()
    running = [executor.submit(gate) for _ in range(before)]

    interrupted_start(partial(executor.submit, int))
    until(partial(alive_are, executor, before + 1))
    gate.open.set()
    assert executor.submit(int).result(LONG) == 0
    assert [call.result(LONG) for call in running] == [None] * before
    executor.shutdown()


def test_ctrl_c_while_the_pool_thread_starts_is_raised_and_the_thread_works(
    pool: futures.Executor,
) -> None:
    executor = KeyedExecutor(1, pool=pool)
    interrupted_start(partial(executor.submit, int))
    assert executor.submit(int).result(LONG) == 0
    executor.shutdown()


@pytest.mark.parametrize("engine", [False, True])
def test_ctrl_c_while_a_consumer_thread_starts_is_raised_and_its_threads_end(engine: bool) -> None:
    with connect("memory://") as client:
        queue: Any = client.queue("interrupted") if engine else KeyedQueue(name="interrupted")
        interrupted_start(partial(queue.consume, int, threads=2))
        until(lambda: not [one for one in threading.enumerate() if "interrupted-" in one.name])


def test_a_call_whose_submit_was_interrupted_does_not_block_interpreter_exit() -> None:
    done = script("""
        from interlock import Future, KeyedExecutor
        executor = KeyedExecutor(1)
        # All that a submit does before Ctrl-C comes: nobody is there to run the call.
        call = executor.queue._submit(Future, "a", None, None, False, None, print, ("done",), {})
    """)
    if sys.version_info[:2] == (3, 12) and not done.stdout:
        # That interpreter starts no thread at its end: the call is cancelled, and logged.
        assert done.returncode == 0 and "cancelled" in done.stderr
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@by_instructions
@pytest.mark.parametrize("pooled", [False, True])
def test_a_submit_in_a_signal_handler_during_a_submit_starts_no_extra_thread(
    pooled: bool, pool: futures.Executor
) -> None:
    at = 0
    going_on = True
    while going_on:
        at += 1
        executor = KeyedExecutor(1, pool=pool if pooled else None)
        gate = Gate()

        def submit(executor: KeyedExecutor = executor, gate: Gate = gate) -> None:
            executor.submit(gate)

        going_on = interrupted(submit, at, submit)
        until(partial(leased, executor, 1))
        assert len(alive(executor)) == 1, f"interrupted at {at}"
        gate.open.set()
        executor.shutdown()
        until(partial(none_alive, executor))
    assert at > 10


def alive(executor: KeyedExecutor) -> list[threading.Thread]:
    name = executor.queue.name + "_"
    return [one for one in threading.enumerate() if one.is_alive() and one.name.startswith(name)]


def alive_are(executor: KeyedExecutor, count: int) -> bool:
    return len(alive(executor)) == count


def none_alive(executor: KeyedExecutor) -> bool:
    return not alive(executor)


def leased(executor: KeyedExecutor, count: int) -> bool:
    return executor.queue.stats().leased == count


# -- While calls run in processes -----------------------------------------------------------------

IN_PROCESS = (
    FORKS
    + """
import multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
from interlock import KeyedExecutor, KeyedQueue, connect

def call():
    print("running", flush=True)
    with open(sys.argv[1]) as fifo:
        return fifo.read()

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
    try:
        with pool, KeyedExecutor(1, pool=pool) as executor:
            running = executor.submit_keyed("a", call)
            behind = executor.submit_keyed("a", abs, -1)
            executor.shutdown()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(type(running.exception()).__name__, type(behind.exception()).__name__, flush=True)
"""
)


@needs_fork
@pytest.mark.parametrize("to", ["the process", "the group"])
def test_ctrl_c_ends_a_shutdown_that_waits_for_a_pool_of_processes(to: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = started(IN_PROCESS, arguments=[str(fifo)], start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        until_asleep(process.pid)
        if to == "the group":
            # As a terminal does.
            os.killpg(process.pid, signal.SIGINT)
        else:
            os.kill(process.pid, signal.SIGINT)
            # The pool's own end waits for the call that runs, as it would without us.
            fifo.write_text("done")
        # Both pipes end only when no process is left that could write.
        out, err = process.communicate(timeout=LONG)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    said = out.split()
    assert (process.returncode, said[0]) == (0, "interrupted")
    assert said[1] == ("KeyboardInterrupt" if to == "the group" else "NoneType")
    # Made before the pool was shut down, or refused by it; but not left waiting.
    assert said[2] in ("NoneType", "RuntimeError")
    assert err == ""
