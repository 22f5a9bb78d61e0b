"""Messages whose payloads are the leases of others, in chains that no stack is deep enough for."""

import pytest

from tests.support import python

CHAINS = {
    "a lease never settled": "q.put(p); p = q.get()",
    "a lease of asyncio never settled": "q.put(p); p = q.aio.get_nowait()",
    "a lease that was settled": "q.put(p); p = q.get(); p.ack()",
    "a batch never settled": "q.put(p); p = q.get_many(1)",
    "a batch that was settled": "q.put(p); p = q.get_many(1); q.ack_many(p)",
    "a coroutine never awaited": "p = q.aio.put(p)",
    "a queue of its own": "q = KeyedQueue(); q.put(p); p = q.get()",
    "a lease in a tuple": "q.put((p, [p])); p = q.get(); p.ack()",
    "a with that was not left": "q.put(0); p = q.get(); p.__enter__()",
}
PROGRAM = """
import gc, logging, threading, warnings
from interlock import KeyedQueue
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
q = KeyedQueue()
p = None
for _ in range({length}):
    {link}
{end}
print("the end")
"""
ENDS = {
    "with its last holder": "del p; del q; gc.collect()",
    "with the interpreter": "",
    "on a thread with a small stack": """
threading.stack_size(256 * 1024)
held = [p]
def end(): held.clear(); gc.collect()
del p, q
thread = threading.Thread(target=end); thread.start(); thread.join()
""",
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("link", CHAINS)
def test_a_chain_of_nested_payloads_is_released_without_overflowing_the_stack(
    link: str, end: str
) -> None:
    # Queues are made and looked after one by one.
    length = 20_000 if "KeyedQueue" in CHAINS[link] else 100_000
    program = PROGRAM.format(link=CHAINS[link], end=ENDS[end], length=length)
    ended = python(program)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("the end\n"), (ended.stdout, ended.stderr)


def test_leases_released_by_a_long_chain_are_nacked_and_not_lost() -> None:
    ended = python("""
import logging, warnings
from interlock import KeyedQueue, Retry
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
other = KeyedQueue(retry=Retry(attempts=None, first=0))
for n in range(1000): other.put(n)
q = KeyedQueue()
p = None
for _ in range(1000):
    q.put((p, other.get())); p = q.get(); p.ack()
del p
print(other.qsize(), q.unfinished_tasks)
assert [other.get_nowait().attempt for _ in range(1)] == [2]
""")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "1000 0\n"
