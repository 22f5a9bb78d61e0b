"""Threads that are started without a lock, and the end of the interpreter."""

from tests.support import python

LATE = """
import _thread, atexit, os, sys, time, types
from interlock import KeyedQueue
from interlock.runtime import threads

def late(function, arguments):
    def run():
        time.sleep(0.3)  # as on a machine that is too busy to run it
        print("begins", flush=True)
        function(*arguments)
    return _thread.start_new_thread(run, ())

threads._thread = types.SimpleNamespace(start_new_thread=late)
threads.LONGEST = 90
queue = KeyedQueue()
"""


def test_a_program_that_ends_at_once_waits_until_the_watcher_has_begun() -> None:
    done = python(LATE + "queue.put(1)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "begins\n", "")


def test_a_thread_that_is_started_while_the_interpreter_ends_is_waited_for() -> None:
    # Registered first, it is called last.
    early = "import atexit\natexit.register(lambda: (queue.put(1), print('put')))\n"
    done = python(early + LATE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "begins\nput\n", "")


def test_the_child_of_a_fork_does_not_wait_for_a_thread_of_its_parent() -> None:
    fork = """
queue.put(1)
if os.fork():
    code = os.waitstatus_to_exitcode(os.wait()[1])
    print("child", code, flush=True)
"""
    done = python(LATE + fork)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "child 0\nbegins\n" or done.stdout == "begins\nchild 0\n"


def test_no_thread_is_started_once_the_interpreter_is_at_its_end() -> None:
    program = """
import sys
from interlock.runtime.threads import start_thread

class Last:
    def __del__(self, start=start_thread, is_ending=sys.is_finalizing):
        assert is_ending()
        try:
            start(print, "runs")
        except RuntimeError as error:
            print(error)

last = Last()
"""
    done = python(program)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "the interpreter is ending: no thread can be started\n"
