"""Executors and their process: its end, Ctrl-C, forks. Each test runs interpreters of its own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.executor.executors import LONG, script, started

needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
# These tests are about what 3.12 and later warn of.
FORKS = "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n"


def ran(text: str) -> list[str]:
    """Runs a script, and returns the words it printed; it must end well and say nothing else."""
    done = script(text)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


# -- The end of the interpreter -------------------------------------------------------------------


def test_submitted_calls_finish_before_interpreter_exit() -> None:
    out = ran("""
        import threading
        from interlock import KeyedExecutor
        executor, ready = KeyedExecutor(2), threading.Event()
        executor.submit_keyed("a", ready.wait)
        for n in range(50):
            executor.submit_keyed("a", print, n)
        threading.Timer(0, ready.set).start()
    """)
    assert out == [str(n) for n in range(50)]


def test_calls_of_a_collected_executor_finish_before_interpreter_exit() -> None:
    out = ran("""
        import threading
        from interlock import KeyedExecutor
        ready = threading.Event()
        def work():
            executor = KeyedExecutor(2)
            executor.submit_keyed("a", ready.wait)
            for n in range(20):
                executor.submit_keyed("a", print, n)
        work()
        threading.Timer(0, ready.set).start()
    """)
    assert out == [str(n) for n in range(20)]


def test_calls_for_a_pool_finish_before_interpreter_exit() -> None:
    out = ran("""
        import threading
        from concurrent.futures import ThreadPoolExecutor
        from interlock import KeyedExecutor
        executor = KeyedExecutor(1, pool=ThreadPoolExecutor(1))
        ready = threading.Event()
        executor.submit_keyed("a", ready.wait)
        for n in range(20):
            executor.submit_keyed("a", print, n)
        threading.Timer(0, ready.set).start()
    """)
    assert out == [str(n) for n in range(20)]


@pytest.mark.parametrize("context", ["spawn", "fork"])
def test_calls_for_a_process_pool_finish_before_interpreter_exit(context: str) -> None:
    # The pool's own module, and its own end, come after ours.
    out = ran(f"""
        import interlock
        import multiprocessing, math
        from concurrent.futures import ProcessPoolExecutor
        if __name__ == "__main__":
            pool = ProcessPoolExecutor(1, multiprocessing.get_context({context!r}))
            executor = interlock.KeyedExecutor(1, pool=pool)
            for n in range(20):
                executor.submit_keyed("a", abs, -n).add_done_callback(
                    lambda call: print(call.result())
                )
    """)
    assert out == [str(n) for n in range(20)]


def test_a_submit_during_interpreter_exit_is_refused() -> None:
    out = ran("""
        from interlock import KeyedExecutor
        executor = KeyedExecutor(1)
        def call():
            # Until the main thread comes to its end.
            while True:
                try:
                    executor.submit(int).cancel()
                except RuntimeError as error:
                    return print(type(error).__name__)
        executor.submit_keyed("a", call)
    """)
    assert out == ["RuntimeError"]


def test_interpreter_exit_does_not_wait_for_held_or_paused_calls() -> None:
    done = script("""
        from interlock import KeyedExecutor, Retry
        executor = KeyedExecutor(1, retry=Retry(attempts=1, then="hold"), thread_name_prefix="ex")
        held = executor.submit_keyed("a", divmod, 1, 0)
        behind = executor.submit_keyed("a", print, "never")
        executor.queue.pause("b")
        paused = executor.submit_keyed("b", print, "never")
        executor.submit(int).result()
        paused.add_done_callback(lambda _: print(held.cancelled(), behind.cancelled()))
    """)
    assert (done.returncode, done.stdout.split()) == (0, ["True", "True"])
    assert "3 calls of 'ex' are held or paused" in done.stderr


def test_interpreter_exit_does_not_wait_for_a_revoked_call() -> None:
    out = ran("""
        import threading
        from interlock import KeyedExecutor
        executor, running = KeyedExecutor(1), threading.Event()
        def hang():
            running.set()
            threading.Event().wait()
        call = executor.submit_keyed("a", hang)
        running.wait()
        executor.queue.revoke(call.id, then="skip")
        print(executor.submit_keyed("a", str, "free").result())
    """)
    assert out == ["free"]


def test_submits_from_atexit_are_refused_and_results_can_be_read() -> None:
    out = ran("""
        import atexit
        from interlock import KeyedExecutor
        executor = KeyedExecutor(1)
        call = executor.submit(str, "done")
        def late():
            try:
                executor.submit(int)
            except RuntimeError:
                print("refused")
            print(call.result())
        atexit.register(late)
    """)
    assert out == ["refused", "done"]


# -- Ctrl-C ---------------------------------------------------------------------------------------

INTERRUPTED = """
    import threading
    from interlock import KeyedExecutor
    executor, end = KeyedExecutor(1), threading.Event()
    def call():
        end.wait()
        return "done"
    future = executor.submit_keyed("a", call)
    try:
        print("waiting")
        {wait}
    except KeyboardInterrupt:
        print("interrupted")
    end.set()
    print(future.result())
"""


@pytest.mark.parametrize(
    "wait",
    [
        "future.result()",
        "future.exception(timeout=1000)",
        "executor.shutdown()",
        "executor.queue.join()",
        "list(executor.map(int, [1]))",
    ],
)
def test_ctrl_c_ends_a_wait_and_nothing_else(wait: str) -> None:
    process = started(INTERRUPTED.format(wait=wait))
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        until_asleep(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, "interrupted\ndone\n", "")


def until_asleep(pid: int) -> None:
    """Returns when the main thread of the process sleeps, where the system tells."""
    state = Path(f"/proc/{pid}/task/{pid}/stat")
    if sys.platform == "linux":
        while state.read_text().rpartition(")")[2].split()[0] != "S":
            os.sched_yield()


def test_a_signal_handler_may_submit() -> None:
    out = ran("""
        import signal, threading
        from interlock import KeyedExecutor
        executor = KeyedExecutor(8)
        made = []
        def handler(*_):
            made.append(executor.submit_keyed("b", int))
        signal.signal(signal.SIGUSR1, handler)
        main, stop = threading.main_thread().ident, threading.Event()
        def shoot():
            while not stop.is_set():
                signal.pthread_kill(main, signal.SIGUSR1)
        thread = threading.Thread(target=shoot)
        thread.start()
        for n in range(300):
            executor.submit_keyed("a", int).result()
        stop.set()
        thread.join()
        print(len(made) > 0, all(future.result() == 0 for future in made))
    """)
    assert out == ["True", "True"]


# -- Forks ----------------------------------------------------------------------------------------

FORK = (
    FORKS
    + """
import os, sys, threading, traceback
from concurrent import futures
from interlock import KeyedExecutor

def in_child(test):
    '''Runs it in a child; True if that ended well.'''
    child = os.fork()
    if child == 0:
        try:
            test()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
)


@needs_fork
def test_a_forked_child_has_its_own_threads_and_an_empty_queue() -> None:
    out = ran(
        FORK
        + """
gate, running = threading.Event(), threading.Event()
executor = KeyedExecutor(2)
def call():
    running.set()
    gate.wait()
    return "parent"
first = executor.submit_keyed("a", call)
behind = executor.submit_keyed("a", str, "behind")
running.wait()

def child():
    assert executor.queue.stats().unsettled == 0
    assert executor.submit_keyed("a", os.getpid).result(10) == os.getpid()
    assert sorted(executor.map(abs, range(-50, 0))) == list(range(1, 51))
    executor.shutdown()
assert in_child(child)
gate.set()
print(first.result(), behind.result())
"""
    )
    assert out == ["parent", "behind"]


@needs_fork
def test_a_forked_child_that_waits_for_the_parent_s_result_gets_an_error() -> None:
    out = ran(
        FORK
        + """
gate, running = threading.Event(), threading.Event()
executor = KeyedExecutor(1)
done = executor.submit(str, "done")
done.result()
def call():
    running.set()
    gate.wait()
future = executor.submit_keyed("a", call)
behind = executor.submit_keyed("a", int)
running.wait()

def child():
    for pending in (future, behind):
        for ask in (
            pending.result,
            pending.exception,
            lambda: futures.wait([pending]),
            lambda: list(futures.as_completed([pending])),
        ):
            try:
                ask()
            except futures.BrokenExecutor as error:
                assert "forked" in str(error)
            else:
                raise AssertionError("waited for the parent")
        # Ids begin again in the child: it must not be another's message that is cancelled.
        own = [executor.submit_keyed("b", int) for _ in range(5)]
        assert not pending.cancel()
        assert [one.result(10) for one in own] == [0] * 5
    assert done.result() == "done" and futures.wait([done]).done == {done}
assert in_child(child)
gate.set()
print(behind.result())
"""
    )
    assert out == ["0"]


@needs_fork
def test_a_fork_while_other_threads_read_results_leaves_no_lock_held() -> None:
    out = ran(
        FORK
        + """
executor = KeyedExecutor(4)
stop = threading.Event()
def ask():
    while not stop.is_set():
        calls = [executor.submit_keyed(str(n % 3), int) for n in range(20)]
        futures.wait(calls)
        list(futures.as_completed(calls))
threads = [threading.Thread(target=ask) for _ in range(3)]
for thread in threads:
    thread.start()

def child():
    calls = [executor.submit_keyed("a", int) for _ in range(20)]
    assert futures.wait(calls, 10).not_done == set()
    repr(calls)
print(all(in_child(child) for _ in range(20)))
stop.set()
for thread in threads:
    thread.join()
"""
    )
    assert out == ["True"]


@needs_fork
def test_a_child_forked_in_a_handler_does_not_settle_the_message() -> None:
    out = ran(
        FORK
        + """
pids = os.pipe()
executor = KeyedExecutor(1)
gate = threading.Event()
def call():
    gate.wait()
    child = os.fork()
    if child == 0:
        # Handlers in the child write here.
        os.set_inheritable(pids[1], True)
        return None
    return child
first = executor.submit_keyed("a", call)
rest = [executor.submit_keyed("a", os.write, pids[1], b".") for _ in range(10)]
gate.set()
child = first.result()
print(sum(one.result() for one in rest))
os.waitpid(child, 0)
os.close(pids[1])
print(len(os.read(pids[0], 100)))
"""
    )
    assert out == ["10", "10"]


@needs_fork
@pytest.mark.parametrize("kind", ["ThreadPoolExecutor(1)", "ProcessPoolExecutor(1)"])
def test_a_pool_of_the_parent_is_refused_in_the_child(kind: str) -> None:
    out = ran(
        FORK
        + f"""
if __name__ == "__main__":
    pool = futures.{kind}
    executor = KeyedExecutor(1, pool=pool)
    print(executor.submit_keyed("a", abs, -1).result())

    def child():
        try:
            executor.submit_keyed("a", int)
        except futures.BrokenExecutor as error:
            assert "forked" in str(error)
        else:
            raise AssertionError("handed on to a pool that is not there")
        with KeyedExecutor(1, pool=futures.ThreadPoolExecutor(1)) as own:
            assert own.submit_keyed("a", abs, -5).result(10) == 5
    print(in_child(child))
    print(executor.submit_keyed("a", abs, -2).result())
    executor.shutdown()
    pool.shutdown()
"""
    )
    assert out == ["1", "True", "2"]


USES = {
    "executor": """
        with KeyedExecutor(1) as own:
            assert own.submit_keyed("a", abs, -5).result() == 5
    """,
    "pool": """
        with KeyedExecutor(1, pool=futures.ThreadPoolExecutor(1)) as own:
            assert own.submit_keyed("a", abs, -5).result() == 5
    """,
    "queue": """
        queue = KeyedQueue(1, lease=9.5)
        queue.put("one", keys="a")
        lease = queue.get()
        lease.ack()
        for fails in (lease.ack, queue.get_nowait, lambda: KeyedQueue(lease="soon")):
            try:
                fails()
            except (InterlockError, TypeError):
                pass
    """,
}


@needs_fork
@pytest.mark.parametrize("use", USES)
def test_a_child_forked_during_the_first_submit_does_not_hang(use: str) -> None:
    # The other thread gives up the GIL at whatever it makes at its first use; this one forks then.
    out = ran(
        FORK
        + f"""
import signal
from interlock import InterlockError, KeyedQueue
def use():{USES[use]}
thread = threading.Thread(target=use)
thread.start()
children = []
while thread.is_alive() and len(children) < 20:
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        use()
        os._exit(0)
    children.append(child)
thread.join()
print({{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}} - {{0}})
"""
    )
    assert out == ["set()"]


@needs_fork
def test_a_synchronous_pool_works_in_a_forked_child() -> None:
    out = ran(
        FORK
        + """
class AtOnce(futures.Executor):
    def submit(self, fn, /, *args, **kwargs):
        future = futures.Future()
        future.set_result(fn(*args, **kwargs))
        return future
executor = KeyedExecutor(1, pool=AtOnce())
print(executor.submit_keyed("a", abs, -1).result())
def child():
    assert executor.submit_keyed("a", abs, -5).result(10) == 5
print(in_child(child))
"""
    )
    assert out == ["1", "True"]


@needs_fork
def test_a_multiprocessing_child_exits() -> None:
    out = ran(
        FORKS
        + """
import multiprocessing, threading
from interlock import KeyedExecutor
executor, gate = KeyedExecutor(1), threading.Event()
executor.submit_keyed("a", gate.wait)
def child():
    print(executor.submit_keyed("a", str, "child").result(), flush=True)
    executor.submit_keyed("a", print, "at its end", flush=True)
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
gate.set()
print(process.exitcode)
"""
    )
    assert out == ["child", "at", "its", "end", "0"]
