"""Forks, Ctrl-C, and the end of the interpreter. Each test is a program of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.support import PATIENCE, environment, python

HEADER = """
import asyncio, os, signal, sys, threading, time, warnings
from interlock import *
from tests.support import blocked, until
warnings.simplefilter("ignore", DeprecationWarning)
"""

FORK = """
def in_child(check):
    # Runs check in a fork; the parent continues when it has ended successfully.
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        ended, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, f"the child ended with {status}"
        return
    code = 1
    try:
        signal.alarm(20)
        check()
        code = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
"""


def run(program: str, *, expected: int = 0) -> str:
    done = python(HEADER + FORK + textwrap.dedent(program))
    assert done.returncode == expected, done.stderr
    return done.stdout + done.stderr


def test_a_fork_while_a_getter_waits_leaves_both_processes_working() -> None:
    run("""
        q = KeyedQueue(5)
        q.put("leased", keys="a")
        lease = q.get()
        q.put("behind", keys="a")
        getter = blocked(q, q.get)

        def child():
            assert (q.qsize(), q.stats().unsettled, q._parked()) == (0, 0, 0)
            q.join()
            try:
                q.get(timeout=0.01)
            except Empty:
                pass
            try:
                lease.ack()
            except LeaseLost:
                pass
            assert not q.cancel(lease.id) and q.maxsize == 5
            assert q.put("own", keys="a") > 2
            with q.get() as payload:
                assert payload == "own"
            woken = blocked(q, q.get)
            q.put("woke")
            woken.result().ack()
            q.join()

        in_child(child)
        lease.ack()
        lease = getter.result()
        assert lease.payload == "behind"
        lease.ack()
    """)


@pytest.mark.parametrize("wait", ["get", "get_many", "put", "join", "result"])
def test_a_signal_handler_may_fork_while_a_call_waits(wait: str) -> None:
    # The result of the child's call is sent through a pipe; what waits on is ended by the parent.
    out = run(FORKS_IN_A_SIGNAL.replace("WAIT", wait))
    told = {
        "get": "parent: parent's, child: waits",
        "get_many": "parent: parent's, child: waits",
        "put": "parent: 1, child: 1",
        "join": "parent: 0, child: 0",
        "result": "parent: True, child: BrokenExecutor",
    }
    assert told[wait] in out, out


FORKS_IN_A_SIGNAL = """
q = KeyedQueue(1)
reads, writes = os.pipe()
pids = []

def forks(*_):
    if "WAIT" in ("get", "get_many"):
        q.put("parent's")
    pids.append(os.fork())
    if pids[-1] == 0:
        # The child's own call would find it, were the queue still the parent's.
        os.write(writes, b".")

def act():
    if "WAIT" != "result":
        until(q._parked)
    os.kill(os.getpid(), signal.SIGUSR1)
    until(lambda: pids)
    assert os.read(reads, 1) == b"."
    if "WAIT" in ("put", "join"):
        held.ack()
    elif "WAIT" == "result":
        gate.set()

signal.signal(signal.SIGUSR1, forks)
gate = threading.Event()
if "WAIT" in ("put", "join"):
    q.put("held")
    held = q.get()
elif "WAIT" == "result":
    executor = KeyedExecutor(1)
    future = executor.submit(gate.wait, 20)
thread = threading.Thread(target=act)
thread.start()
try:
    if "WAIT" == "get":
        got = q.get().payload
    elif "WAIT" == "get_many":
        got = q.get_many(5)[0].payload
    elif "WAIT" == "put":
        q.put("waited")
        got = q.stats().unsettled
    elif "WAIT" == "join":
        q.join()
        got = q.stats().unsettled
    else:
        got = future.result()
except BaseException as error:
    got = type(error).__name__
if pids[-1] == 0:
    os.write(writes, str(got).encode())
    os._exit(0)
thread.join()
if "WAIT" in ("get", "get_many"):
    # Whatever it was to find wrongly it has found when it looks again, four times a second.
    os.set_blocking(reads, False)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(pids[-1], signal.SIGKILL)
os.waitpid(pids[-1], 0)
os.close(writes)
print(f"parent: {got}, child: {os.read(reads, 99).decode() or 'waits'}")
sys.stdout.flush()
os._exit(0)
"""


def test_a_handler_may_fork() -> None:
    run("""
        q = KeyedQueue()
        q.put("handled")

        def child():
            try:
                with lease:
                    pass
            except LeaseLost:
                pass
            else:
                raise AssertionError("the lease is the parent's")
            assert lease.lost

        lease = q.get()
        with lease:
            in_child(child)
        assert q.stats().acks == 1
    """)


def test_a_fork_deletes_nothing_that_the_parent_needs() -> None:
    run("""
        import tempfile
        q = KeyedQueue()
        file = tempfile.NamedTemporaryFile()
        name = file.name
        q.put(file)
        del file

        def child():
            assert q.qsize() == 0
            q.put("own")
            q.get().ack()

        in_child(child)
        assert os.path.exists(name)
        with q.get() as file:
            file.write(b"still there")
    """)


def test_a_child_forked_beside_consumers_puts_and_joins_works() -> None:
    run("""
        q = KeyedQueue(1)
        handled = []
        consumer = q.consume(handled.append, threads=3, timeout=60)
        q.put("first")
        q.join()
        until(lambda: q._parked() == 3)

        def child():
            assert consumer.stop(5)
            own = []
            with q.consume(own.append, threads=2):
                q.put_many(["a"])
                q.put("b")
                q.join()
            assert sorted(own) == ["a", "b"]

        in_child(child)
        q.put("second")
        q.join()
        assert handled == ["first", "second"]
        assert consumer.stop(5)
    """)


def test_a_child_forked_from_an_asyncio_program_works() -> None:
    run("""
        q = KeyedQueue()

        async def parent():
            getter = asyncio.create_task(q.aio.get())
            while not q._parked():
                await asyncio.sleep(0)
            in_child(child)
            q.put("for the parent")
            await (await getter).ack()

        def child():
            # The parent's loop goes nowhere in here; a thread has a loop of its own.
            thread = threading.Thread(target=lambda: asyncio.run(own()))
            thread.start()
            thread.join()
            assert q.stats().acks == 1

        async def own():
            async with asyncio.timeout(5):
                getter = asyncio.create_task(q.aio.get())
                await asyncio.sleep(0)
                await q.aio.put("own")
                await (await getter).ack()
                await q.aio.join()

        asyncio.run(parent())
    """)


def test_children_forked_while_threads_use_the_queue_work() -> None:
    run("""
        q = KeyedQueue(100, warn_depth=0, warn_lane_depth=0)
        stop = threading.Event()

        def put():
            n = 0
            while not stop.is_set():
                n += 1
                q.put(n, keys=n % 7)

        threads = [threading.Thread(target=put, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        consumer = q.consume(lambda payload: None, threads=2)

        def child():
            for n in range(50):
                q.put(n, keys="a")
                q.get().ack()
            assert q.empty()

        for _ in range(40):
            in_child(child)
        stop.set()
        for thread in threads:
            thread.join()
        q.join()
        consumer.stop()
    """)


def test_a_child_of_a_forked_child_works() -> None:
    run("""
        q = KeyedQueue()
        q.put("one")

        def child():
            assert q.empty()
            q.put("two")
            in_child(grandchild)
            assert q.qsize() == 1

        def grandchild():
            assert q.empty()

        in_child(child)
        assert q.qsize() == 1
    """)


WAITS = {
    "get": "q.get()",
    "get with a timeout": "q.get(timeout=1000)",
    "get_many": "q.get_many(5)",
    "put": "full.put(2)",
    "put_many": "full.put_many([2])",
    "join": "full.join()",
    "get in a loop": "asyncio.run(q.aio.get())",
    "put in a loop": "asyncio.run(aput())",
    "consume in a loop": "asyncio.run(q.aio.consume(print))",
    "a consumer": "q.consume(print).join()",
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_a_wait(wait: str) -> None:
    program = f"""
q = KeyedQueue()
full = KeyedQueue(1)
full.put(1)

async def aput():
    await full.aio.put(2)

def tell():
    until(lambda: q._parked() + full._parked())
    print("asleep", flush=True)

# The caller of the tests may have set it to be ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=tell, daemon=True).start()
try:
    {WAITS[wait]}
except KeyboardInterrupt:
    {"pass" if wait == "a consumer" else "assert q._parked() + full._parked() == 0"}
    q.put("usable")
    assert full.qsize() == 1
    sys.exit(7)
sys.exit(8)
"""
    command = [sys.executable, "-c", HEADER + program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "asleep\n"
        # The interpreter's own waits (select, a thread's join) may miss a signal that comes just
        # before they sleep, so that a user presses the keys again; ours must not need that.
        foreign = wait.endswith("in a loop") or wait == "a consumer"
        for _ in range(20 if foreign else 1):
            os.kill(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1 if foreign else PATIENCE)
                break
        else:
            process.kill()
        assert process.returncode == 7, process.stderr.read()


EXITS = {
    "blocked in get": "blocked(q, q.get)",
    "blocked in put": "full.put(1); blocked(full, lambda: full.put(2))",
    "blocked in join": "full.put(1); blocked(full, full.join)",
    "a consumer": "q.consume(print, threads=4); until(lambda: q._parked() == 4)",
    "a consumer with a timeout": "q.consume(print, timeout=60); until(lambda: q._parked() == 1)",
    "a handler": "q.consume(lambda p: time.sleep(1000)); q.put(1); until(q.empty)",
    "a lease": "q.put(1); lease = q.get(); warnings.simplefilter('ignore')",
    "messages": "q.put_many(range(10), keys=str); q.put(q); q.put(1, delay=5)",
    "an iterator": "q.put(iter([q]))",
}


@pytest.mark.parametrize("left", EXITS)
def test_the_interpreter_exits_cleanly_with_unsettled_messages(left: str) -> None:
    assert "Traceback" not in run(f"""
        q = KeyedQueue()
        full = KeyedQueue(1)
        {EXITS[left]}
    """)


BUSY = """
import sys, threading, time
from interlock import KeyedQueue, Empty
q = KeyedQueue(300, keys=lambda p: str(sum(range(p % 7))), warn_depth=0, warn_lane_depth=0)

def put():
    for n in range(10**9):
        q.put(n)

def handle():
    while True:
        with q.get():
            pass

def poll():
    while True:
        try:
            q.get(timeout=0.0003).ack()
        except Empty:
            pass

for work in (put, handle, poll) * 3:
    threading.Thread(target=work, daemon=True).start()
while q.stats().acks < 500:
    time.sleep(0)
"""


@pytest.mark.watchdog(300)
def test_daemon_threads_using_the_queue_do_not_crash_interpreter_exit() -> None:
    # CPython ends them where they ask for the GIL, which is where a thread wakes in the queue.
    for _ in range(25):
        done = python(BUSY)
        assert done.returncode == 0, done.stderr


def test_atexit_functions_may_use_the_queue() -> None:
    text = run("""
        import atexit
        q = KeyedQueue()
        consumer = q.consume(lambda payload: print("handled", payload), threads=2)

        @atexit.register
        def flush():
            q.put("at the end")
            q.join(20)
    """)
    assert "handled at the end" in text
