"""Programs whose threads gevent has replaced."""

import subprocess
import sys

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import gevent
from interlock import KeyedExecutor, KeyedQueue, connect

for name, make in [
    ("KeyedQueue", KeyedQueue),
    ("KeyedExecutor", KeyedExecutor),
    ("memory://", lambda: connect("memory://").queue("q").put(1)),
]:
    try:
        make()
    except RuntimeError as error:
        assert str(error).startswith(f"{name} cannot be used where gevent has replaced"), error
    else:
        raise AssertionError(f"{name} was not refused")

# A client on sockets waits as a greenlet: another one puts what it waits for.
with connect("URL") as client:
    queue = client.queue("green")
    gevent.spawn(lambda: queue.put("late", keys="k"))
    with queue.get(timeout=20) as payload:
        assert payload == "late"
"""


def test_under_gevent_native_waits_are_refused_and_clients_work(
    hub_url: str,
) -> None:
    program = PROGRAM.replace("URL", hub_url)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
