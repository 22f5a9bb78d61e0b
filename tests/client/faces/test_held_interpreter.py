"""Leases outlast a handler that holds the GIL, or the event loop.

A native thread renews them; an engine in memory those that would have run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

import interlock
from interlock import LeaseLost, Retry, _core, connect, current_lease
from interlock.client.faces.client import Client
from interlock.client.requests.lease_renewal import SHORTEST
from tests.client.connection.nodes import cluster
from tests.hub.protocol.certificates import Authority
from tests.hub.servers import hub_process, needs_hub, redis_server
from tests.worker.workers import ROOT

LEASE = 1.0
"""Seconds; renewed natively when half of it is over."""
HELD = 2.5
"""Seconds for which the interpreter is held: without a renewal every lease is over by then."""

PASSWORDS = ("--requirepass", "secret", "--databases", "4")


def hold_the_gil(seconds: float) -> None:
    # A function of C, called without giving up the GIL.
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def threads() -> int:
    """Native threads of this process that renew leases."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        # It may end in between.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += (task / "comm").read_text() == "interlock-renew\n"
    return found


@pytest.fixture
def urls(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An engine of each kind, and each way to reach one."""
    authority = Authority(tmp_path)
    signed = authority.sign("localhost")
    needs_hub()
    tls: Any = {"port": 0, "cert": str(signed.cert), "key": str(signed.key)}
    socket = tmp_path / "redis.sock"
    folders = [tmp_path / name for name in ("plain", "password", "nodes")]
    for folder in folders:
        folder.mkdir()
    with ExitStack() as stack:
        hub = stack.enter_context(hub_process("--port", "0"))
        secure = stack.enter_context(interlock.Hub(port=0, workers=1, tls=tls))
        plain = redis_server(folders[0], "--unixsocket", str(socket))
        _, port = stack.enter_context(plain)
        _, closed = stack.enter_context(redis_server(folders[1], *PASSWORDS))
        first, *_ = stack.enter_context(cluster(folders[2]))
        yield {
            "memory": "memory://",
            "hub": f"interlock://{hub.addresses[0]}",
            "TLS": f"rediss://localhost:{secure.tls_port}?ca={authority.cert}",
            "redis": f"redis://127.0.0.1:{port}",
            "unix": f"unix://{socket}",
            "password": f"redis://default:secret@127.0.0.1:{closed}/2",
            "cluster": f"redis+cluster://127.0.0.1:{first}",
        }


def test_a_handler_that_holds_the_gil_keeps_its_leases_on_every_engine(
    urls: dict[str, str],
) -> None:
    with ExitStack() as stack:
        leases = {}
        for kind, url in urls.items():
            client = stack.enter_context(connect(url))
            # Its own: one server is reached in two ways.
            queue = client.queue(uuid.uuid4().hex, int, lease=LEASE)
            queue.put_many([1, 2], keys="a")
            leases[kind] = queue, queue.get()
        hold_the_gil(HELD)
        found: dict[str, object] = {}
        for kind, (queue, lease) in leases.items():
            # Due work is applied first: a lease that was over would be lost.
            try:
                lease.ack()
                found[kind] = queue.stats().acks
            except LeaseLost:
                found[kind] = "lost"
    assert found == dict.fromkeys(urls, 1)


@pytest.fixture(params=["redis", "hub"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


def test_a_handler_that_blocks_the_loop_keeps_its_lease(url: str) -> None:
    async def main() -> None:
        async with connect(url) as client:
            queue = client.queue(uuid.uuid4().hex, int, lease=LEASE)
            await queue.put(1)
            async with await queue.get():
                time.sleep(HELD)
            assert (await queue.stats()).acks == 1

    # Clients of other tests in this process may still have theirs.
    others = threads()
    asyncio.run(main())
    while threads() > others:
        time.sleep(0.01)


def test_beyond_its_timeout_a_handler_that_holds_the_gil_has_no_lease(url: str) -> None:
    attempts = []

    def handle(_: int) -> None:
        attempts.append(current_lease().attempt)
        if len(attempts) == 1:
            hold_the_gil(HELD + LEASE)

    with connect(url) as client:
        retry = Retry(attempts=None, first=0)
        queue = client.queue(uuid.uuid4().hex, int, lease=LEASE, retry=retry)
        queue.put(1)
        with queue.consume(handle, timeout=LEASE * 1.2):
            while queue.stats().acks == 0:
                time.sleep(0.01)
        # Its lease ran out, and for the first time: no attempt is counted.
        assert (attempts, queue.stats().leases_expired) == ([1, 1], 1)


def close_a_loop(url: str) -> None:
    """Close a loop without a word to its tasks, with a lease held, and wait until no thread
    renews it."""

    client, loop = connect(url), asyncio.new_event_loop()

    async def main() -> tuple[object, ...]:
        queue = client.queue(uuid.uuid4().hex, int, lease=LEASE).aio
        await queue.put(1)
        return client, await queue.get()

    held = loop.run_until_complete(main())
    while not threads():
        time.sleep(0.01)
    loop.close()
    while threads():
        time.sleep(0.01)
    # Neither collected before, which would end the thread as well.
    assert held


def test_a_loop_that_is_closed_with_its_lease_held_renews_nothing(url: str) -> None:
    # In a process of its own: such a loop leaves its connections open.
    program = f"from {__name__} import close_a_loop; close_a_loop({url!r})"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=30)


def test_a_lease_extended_by_a_moment_is_not_renewed_all_the_time(client: Client) -> None:
    queue = client.queue(uuid.uuid4().hex, int, lease=LEASE)
    queue.put(1)
    lease = queue.get()
    lease.extend(0.001)
    assert lease._grant.seconds == SHORTEST
    # It may have run out before the first renewal.
    with contextlib.suppress(LeaseLost):
        lease.ack()


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    with connect(redis_url) as found:
        yield found


def renewals(port: int, password: str | None = None) -> _core.LeaseRenewals:
    return _core.LeaseRenewals(
        "il1_extend",
        user=None,
        password=password,
        database=0,
        tls=False,
        ca=None,
        timeout=5.0,
    )


@pytest.mark.parametrize("end", ["let go", "bound", "stopped", "dropped"])
def test_leases_that_are_settled_expired_or_stopped_are_not_renewed(
    client: Client, engine_port: int, end: str
) -> None:
    queue = client.queue(uuid.uuid4().hex, int, lease=LEASE, retry=Retry(first=0))
    queue.put(1)
    lease = queue.get()
    lease.stop_renewing()
    native = renewals(engine_port)
    key, address, now = queue._handle.key, f"127.0.0.1:{engine_port}", time.monotonic()
    native.hold(1, address, key, lease.token, LEASE, now + LEASE, math.inf)
    if end == "let go":
        native.let_go(1)
    elif end == "bound":
        native.bound(1, now)
    elif end == "stopped":
        native.stop()
    else:
        del native
    again = queue.get(timeout=30)
    # It ran out, and for the first time: no attempt is counted.
    assert (again.attempt, queue.stats().leases_expired) == (1, 1)
    again.ack()


def test_a_natively_renewed_lease_lasts_until_the_handler_s_timeout(
    client: Client, engine_port: int
) -> None:
    queue = client.queue(uuid.uuid4().hex, int, lease=LEASE, retry=Retry(first=0))
    queue.put(1)
    lease = queue.get()
    lease.stop_renewing()
    native = renewals(engine_port)
    key, address, now = queue._handle.key, f"127.0.0.1:{engine_port}", time.monotonic()
    native.hold(1, address, key, lease.token, LEASE, now + LEASE, math.inf)
    while native.renewed < 3:
        time.sleep(0.01)
    assert queue.stats().leased == 1
    native.bound(1, time.monotonic() + LEASE)
    again = queue.get(timeout=30)
    # It ran out, and for the first time: no attempt is counted.
    assert (again.attempt, queue.stats().leases_expired) == (1, 1)
    again.ack()
    assert native.errors() == []


def test_a_renewal_that_fails_is_reported(engine_port: int) -> None:
    native = renewals(engine_port, password="wrong")
    now = time.monotonic()
    native.hold(1, f"127.0.0.1:{engine_port}", "il:{none}", 1, LEASE, now + LEASE, math.inf)
    while not (errors := native.errors()):
        time.sleep(0.01)
    assert f"127.0.0.1:{engine_port}" in errors[0]
    # With a token that holds nothing: it is forgotten without a word.
    other = renewals(engine_port)
    other.hold(1, f"127.0.0.1:{engine_port}", "il:{none}", 1, 0.2, now + math.inf, math.inf)
    assert other.renewed == 0 and other.errors() == []


@pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks:DeprecationWarning")
def test_a_forked_child_renews_no_lease_and_its_parent_continues(client: Client) -> None:
    queue = client.queue(uuid.uuid4().hex, int, lease=LEASE)
    queue.put(1)
    with queue.get():
        child = os.fork()
        if child == 0:
            # Alone: the thread is the parent's. Its messages are not touched at its end.
            os._exit(threads())
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        hold_the_gil(HELD)
    assert queue.stats().acks == 1


def test_a_closed_client_has_no_thread(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as server:
        # Clients of other tests in this process may still have theirs.
        before, others = len(server.client_list()), threads()
        with connect(redis_url) as client:
            queue = client.queue(uuid.uuid4().hex, int, lease=LEASE)
            queue.put(1)
            with queue.get():
                while threads() <= others:
                    time.sleep(0.01)
        while threads() > others or len(server.client_list()) > before:
            time.sleep(0.01)


def held(client: Client, lease: float = LEASE) -> tuple[Any, Any]:
    """Return a queue and a lease of its message that nothing renews."""
    queue = client.queue(uuid.uuid4().hex, int, lease=lease, retry=Retry(first=0))
    queue.put(1)
    found = queue.get()
    found.stop_renewing()
    return queue, found


def listening(stack: ExitStack) -> tuple[socket.socket, str]:
    """Return a socket on which nobody answers unless the test does, and its address."""
    found = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    found.settimeout(30)
    return found, f"127.0.0.1:{found.getsockname()[1]}"


def test_a_lease_is_renewed_on_the_node_the_queue_moved_to(
    client: Client, engine_port: int
) -> None:
    queue, lease = held(client)
    native, now = renewals(engine_port), time.monotonic()
    with ExitStack() as stack:
        _, gone = listening(stack)
    for address in (gone, f"127.0.0.1:{engine_port}"):
        native.hold(1, address, queue._handle.key, lease.token, LEASE, now + LEASE, math.inf)
    while native.renewed == 0 and queue.stats().leased:
        time.sleep(0.01)
    assert native.renewed == 1
    lease.ack()


def test_silent_servers_do_not_delay_renewals_on_others(client: Client, engine_port: int) -> None:
    longer = 3 * LEASE
    queue, lease = held(client, longer)
    native = renewals(engine_port)
    with ExitStack() as stack:
        addresses = [listening(stack)[1] for _ in range(3)]
        addresses.insert(1, f"127.0.0.1:{engine_port}")
        now = time.monotonic()
        for key, address in enumerate(addresses):
            name = queue._handle.key
            native.hold(key, address, name, lease.token, longer, now + longer, math.inf)
        while native.renewed == 0 and queue.stats().leased:
            time.sleep(0.01)
        assert native.renewed == 1
        native.stop()
    lease.ack()


def test_a_renewal_after_a_slow_login_ends_at_the_handler_s_timeout() -> None:
    native = renewals(0, password="secret")
    with ExitStack() as stack:
        server, address = listening(stack)
        now = time.monotonic()
        # It is due now, and there is time for a login.
        native.hold(1, address, "il:{q}", 1, 100.0, now + 10.0, now + 10.5)
        connection = stack.enter_context(server.accept()[0])
        connection.settimeout(30)
        assert b"AUTH" in connection.recv(1000)
        while time.monotonic() < now + 1.0:
            time.sleep(0.01)
        left = now + 10.5 - time.monotonic()
        connection.sendall(b"+OK\r\n")
        asked = connection.recv(1000)
        assert b"FCALL" in asked
        assert int(asked.split()[-1]) <= left * 1e6
        native.stop()


def test_the_handler_s_timeout_survives_entering_its_lease_again(client: Client) -> None:
    queue, lease = held(client)
    grant, now = lease._grant, time.monotonic()
    grant.renew = True
    grant.bound(lease.id, now + 2 * LEASE)
    grant.renewer.leave(grant.key)
    grant.extended(LEASE, now)
    # From here on it is renewed natively alone.
    grant.renew = False
    queue.get(timeout=30).ack()
    assert queue.stats().leases_expired == 1


def test_a_lease_stopped_by_another_thread_during_a_renewal_expires(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, lease = held(client)
    grant, nodes = lease._grant, lease._grant.handle.engine.nodes
    known = nodes.known

    def stopped(key: str) -> str:
        grant.stop_renewing()
        address: str = known(key)
        return address

    grant.renew = True
    with monkeypatch.context() as patched:
        # At this moment of it.
        patched.setattr(nodes, "known", stopped)
        grant.extended(LEASE, time.monotonic())
    queue.get(timeout=30).ack()
    assert queue.stats().leases_expired == 1


def test_leases_of_an_ended_loop_expire_even_if_the_client_was_not_closed(url: str) -> None:
    name = uuid.uuid4().hex
    kept: list[Any] = []

    async def main() -> None:
        queue = mine.aio.queue(name, int, lease=LEASE, retry=Retry(first=0))
        await queue.put(1)
        kept.append(await queue.get())

    with connect(url) as mine, connect(url) as other:
        asyncio.run(main())
        queue = other.queue(name, int, lease=LEASE)
        queue.get(timeout=30).ack()
        assert queue.stats().leases_expired == 1
    # It was held until here, and could not be given back.
    kept.clear()


def test_a_client_that_another_thread_closes_renews_nothing_in_its_loops(url: str) -> None:
    name = uuid.uuid4().hex
    kept: list[Any] = []
    leased, over = threading.Event(), threading.Event()

    async def main() -> None:
        queue = mine.aio.queue(name, int, lease=LEASE, retry=Retry(first=0))
        await queue.put(1)
        kept.append(await queue.get())
        leased.set()
        while not over.is_set():
            await asyncio.sleep(0.01)

    with connect(url) as mine, connect(url) as other:
        thread = threading.Thread(target=asyncio.run, args=(main(),))
        thread.start()
        assert leased.wait(30)
        mine.close()
        queue = other.queue(name, int, lease=LEASE)
        try:
            queue.get(timeout=30).ack()
        finally:
            over.set()
            thread.join()
        assert queue.stats().leases_expired == 1
    kept.clear()
