"""`interlock.Hub` in a program: start, stop, what it tells, and what it leaves behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.hub.client import Client
from tests.hub.servers import needs_hub


@pytest.fixture(autouse=True)
def _where_there_are_hubs() -> None:
    needs_hub()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_a_hub_on_a_free_port_is_one_line() -> None:
    with interlock.Hub(port=0) as hub, Client(hub.url) as client:
        assert client.call("PING") == "PONG"
        assert hub.addresses == [f"127.0.0.1:{hub.port}"]
        assert hub.url == f"redis://127.0.0.1:{hub.port}"
        assert repr(hub) == f"<Hub 127.0.0.1:{hub.port}>"


def test_a_hub_may_listen_on_a_unix_socket_only(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with interlock.Hub(host="", unix=str(path)) as hub:
        assert (hub.port, hub.url) == (0, f"unix://{path}")
        with Client(hub.url) as client:
            assert client.call("PING") == "PONG"
    assert not path.exists()


def test_a_hub_listens_on_ipv6() -> None:
    try:
        hub = interlock.Hub(host="::1", port=0)
        hub.start()
    except OSError as error:
        pytest.skip(f"no IPv6 on loopback: {error}")
    with Client(hub.url) as client:
        assert client.call("PING") == "PONG"
    hub.stop()


def test_a_stopped_hub_starts_again_and_a_running_one_does_not() -> None:
    hub = interlock.Hub(port=0)
    for name in ("addresses", "url", "port"):
        with pytest.raises(RuntimeError, match="is not running"):
            getattr(hub, name)
    assert hub.stop() == 0
    for _ in range(2):
        with hub:
            with pytest.raises(RuntimeError, match="running already"):
                hub.start()
            assert hub.info()
        assert repr(hub) == "<Hub stopped>"
        with pytest.raises(RuntimeError, match="is not running"):
            hub.info()
    with pytest.raises(ValueError, match="timeout is -1"):
        hub.stop(-1)


def test_a_port_that_is_taken_is_an_os_error_that_names_it() -> None:
    with interlock.Hub(port=0) as hub:
        second = interlock.Hub(port=hub.port)
        with pytest.raises(OSError, match=rf"127\.0\.0\.1:{hub.port}"):
            second.start()
        assert repr(second) == "<Hub stopped>"


def test_the_counters_count() -> None:
    with interlock.Hub(port=0) as hub, Client(hub.url) as one, Client(hub.url) as other:
        one.subscribe("a")
        before = hub.info()
        for _ in range(10):
            other.publish("a", "x")
        for _ in range(10):
            assert one.message(5) is not None
        after = hub.info()
        assert after["connected_clients"] == 2
        assert after["pubsub_channels"] == 1
        assert after["total_commands_processed"] - before["total_commands_processed"] == 10


def test_a_stopped_hub_leaves_no_descriptors_or_threads() -> None:
    with interlock.Hub(port=0):
        pass
    before = (descriptors(), threads())
    for _ in range(20):
        with interlock.Hub(port=0, workers=3) as hub, Client(hub.url) as client:
            client.subscribe("a")
    # A thread that has ended is still counted for a moment; the watchdog ends this.
    while descriptors() > before[0] or threads() > before[1]:
        pass


def test_a_hub_that_is_dropped_stops() -> None:
    before = (descriptors(), threads())
    hub = interlock.Hub(port=0)
    hub.start()
    assert threads() > before[1]
    del hub
    gc.collect()
    while descriptors() > before[0] or threads() > before[1]:
        pass


def test_connections_that_come_and_go_leave_nothing_in_the_hub() -> None:
    with interlock.Hub(port=0, workers=2) as hub, Client(hub.url) as stays:
        for _ in range(50):
            with Client(hub.url) as client:
                client.subscribe("a", "b")
                client.psubscribe("c*")
        # A connection that was closed is gone once its worker has seen the end of it; what asks
        # before that is answered before it too, so ask until it is so, up to the watchdog.
        while hub.info()["connected_clients"] != 1:
            stays.call("PING")
        assert stays.call("PUBSUB", "CHANNELS") == []
        assert stays.call("PUBSUB", "NUMPAT") == 0
        assert stays.publish("a", "x") == 0


def test_a_hub_does_not_need_the_gil_to_serve() -> None:
    """A client in this process waits without the GIL, and so must the caller that stops the hub."""
    with interlock.Hub(port=0) as hub:
        done = threading.Event()

        def talk() -> None:
            with Client(hub.url) as client:
                for _ in range(200):
                    client.call("PING")
            done.set()

        thread = threading.Thread(target=talk)
        thread.start()
        while not done.is_set():
            pass
        thread.join()


FORKED = """
import os, sys
import interlock
from interlock.hub.client import Client

hub = interlock.Hub(port=0)
hub.start()
child = os.fork()
if child == 0:
    assert hub.stop() == 0
    try:
        hub.info()
    except RuntimeError as error:
        assert "a fork of it" in str(error)
        {end}
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
with Client(hub.url) as client:
    assert client.call("PING") == "PONG"
hub.stop()
"""


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(0)",
        "sys.exit(0)",
    ],
)
def test_a_fork_of_the_process_leaves_the_hub_to_its_parent(end: str) -> None:
    program = FORKED.format(end=end)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("mode", "found"), [("600", 0o600), ("0660", 0o660), ("777", 0o777)])
def test_a_unix_socket_has_the_permissions_that_it_is_given(
    tmp_path: Path, mode: str, found: int
) -> None:
    path = tmp_path / "hub.sock"
    given: dict[str, Any] = {"host": "", "unix": str(path), "unix_mode": mode}
    with interlock.Hub(**given) as hub, Client(hub.url) as client:
        assert path.stat().st_mode & 0o777 == found
        assert client.call("PING") == "PONG"
    assert not path.exists()
