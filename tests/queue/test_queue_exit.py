"""Objects left when the interpreter tears down its modules still come to a quiet end."""

import pytest

from tests.support import python

# The first call of its kind in the process: PyO3 asks about the interpreter but once.
CALLS = {
    "put": "q.put(1)",
    "put in full": "q.put(1, priority=3)",
    "a put with a wrong argument": "q.put(1, key=3)",
    "get": "q.put(0), q.get()",
    "get of an empty queue": "q.get(False)",
    "a lease settled twice": "q.put(0), ack_twice(q.get())",
    "a coroutine never awaited": "face.put(1)",
    "a coroutine that is sent into": "face.get().send(None)",
    "a coroutine with an error": "face.get().send(7)",
    "a coroutine closed by a throw": "face.get().throw(ZeroDivisionError)",
    "a coroutine's name": "face.get().__qualname__",
}

PROGRAM = """
import sys
from interlock import KeyedQueue

def ack_twice(lease):
    lease.ack(), lease.ack()

class Last:
    def __init__(self):
        self.q = KeyedQueue()
        self.face = self.q.aio
    def __del__(self, print=print, ack_twice=ack_twice):
        q, face = self.q, self.face
        try:
            {call}
        except BaseException as error:
            print("raised")
        print("the end")

# Goes with the modules.
sys.modules["last"] = Last()
"""


@pytest.mark.parametrize("call", CALLS)
def test_a_destructor_may_use_the_queue_at_interpreter_exit(call: str) -> None:
    ended = python(PROGRAM.format(call=CALLS[call]))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("the end\n"), (ended.stdout, ended.stderr)
    assert "panicked" not in ended.stderr


@pytest.mark.parametrize("left", ["q.aio.put(1)", "q.aio.get()", "(q.put(0), q.get())"])
def test_queues_and_leases_held_by_a_module_do_not_crash_interpreter_exit(left: str) -> None:
    program = f"from interlock import KeyedQueue\nq = KeyedQueue(); left = {left}"
    ended = python(program)
    assert ended.returncode == 0, ended.stderr
    assert "panicked" not in ended.stderr
