"""Writes that other machines are to have before their clients are answered, at real nodes."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import ResponseError

import interlock
from interlock.errors import EngineUnavailable
from tests.cluster.node.test_node import Nodes, client, increased
from tests.cluster.node.test_operating import figure, status
from tests.cluster.nodes import NodeProcess, Presence, eventually
from tests.hub.servers import needs_hub

ACK = ("--ack", "1", "--timeout", "0.5")
IN_TIME = "NOACK it was done, and 0 of 1 other machines have acknowledged it in time"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    needs_hub()
    with ExitStack() as stack:
        yield Nodes(stack, tmp_path)


def on(nodes: Nodes, name: str, *flags: str, machine: str = "") -> NodeProcess:
    """Start a node as if it were on a machine of its own."""
    return nodes.start(name, "--machine", machine or f"m-{name}", *flags)


def asked_for(node: NodeProcess, key: str) -> Any:
    with client(node) as asked:
        return asked.hincrby(f"presence:{key}", "unread", 1)


def acked(node: NodeProcess, key: str) -> None:
    """Write until another machine has acknowledged it: it may have just begun."""

    def is_acked() -> bool:
        try:
            return bool(asked_for(node, key))
        except ResponseError as error:
            if "NOACK" not in str(error) and "it was not done" not in str(error):
                raise
            return False

    eventually(is_acked, lambda: node.log)


def test_a_write_that_no_other_machine_confirms_is_applied_but_times_out(
    nodes: Nodes,
) -> None:
    a = on(nodes, "a", *ACK)
    url = f"interlock+cluster://127.0.0.1:{nodes.port}/presence?timeout=20"
    table = nodes.stack.enter_context(interlock.connect(url)).table("presence", Presence)
    # A numbered one is not sent again.
    with pytest.raises(EngineUnavailable, match=IN_TIME):
        table["n"] = Presence(app_id=1)
    with pytest.raises(EngineUnavailable, match=IN_TIME):
        table.incr("n", "unread")
    assert table["n"].unread == 1
    of_its_machine = on(nodes, "b", machine="m-a")
    increased(of_its_machine, "x", 0)
    # A node of the same machine counts for nothing.
    with pytest.raises(ResponseError, match=IN_TIME):
        asked_for(a, "x")
    eventually(lambda: "--ack 1 needs serving nodes on as many other machines" in a.log)
    assert [one["kind"] for one in status(a)["trouble"]] == ["ack"]
    c = on(nodes, "c")
    acked(a, "y")
    # The answer to a repeated one waits as the first did.
    assert table.incr("n", "unread") == 2
    eventually(lambda: status(a)["trouble"] == [])
    with client(a) as asked:
        barrier = ("TABLE", "BARRIER", "presence", "ACKS")
        assert asked.execute_command(*barrier, "1") == "OK"
        with pytest.raises(ResponseError, match="NOACK it was done, and 1 of 2 other"):
            asked.execute_command(*barrier, "2")
        with pytest.raises(ResponseError, match="allowed: TABLE BARRIER NAME"):
            asked.execute_command(*barrier, "many")
    c.freeze()
    before = figure(a, "interlock_node_noack_replies_total")
    with pytest.raises(ResponseError, match=IN_TIME):
        asked_for(a, "z")
    # It is not undone, and what does not wait is answered meanwhile.
    with client(of_its_machine) as asked:
        assert asked.hget("presence:z", "unread") == "1"
        assert asked.hincrby("presence:z", "unread", 1) == 2
    assert figure(a, "interlock_node_noack_replies_total") == before + 1
    c.thaw()
    acked(a, "z")
    c.kill()
    with pytest.raises(ResponseError, match=IN_TIME):
        asked_for(a, "z")


def test_an_acknowledged_write_survives_the_loss_of_its_machine_and_of_the_log(
    nodes: Nodes,
) -> None:
    a, b = on(nodes, "a", *ACK), on(nodes, "b")
    acked(a, "x")
    with client(a) as asked:
        last = max(asked.hincrby("presence:x", "unread", 1) for _ in range(50))
    a.kill()
    shutil.rmtree(a.data)
    nodes.lose_all()
    eventually(lambda: increased(b, "x", 0) == last, lambda: b.log)


@pytest.mark.share(2)
def test_hundreds_of_connections_wait_and_are_answered_when_the_node_ends(nodes: Nodes) -> None:
    a, b = on(nodes, "a", "--ack", "1", "--timeout", "60"), on(nodes, "b")
    acked(a, "x")
    b.freeze()
    with ExitStack() as stack:
        waiting = [stack.enter_context(client(a)) for _ in range(300)]
        for asked in waiting:
            asked.waits = asked.connection_pool.get_connection()
            stack.callback(asked.waits.disconnect)
            asked.waits.send_command("HINCRBY", "presence:y", "unread", "1")
        eventually(lambda: status(a)["waiting_for_acks"] == 300)
        # Half of them leave.
        for asked in waiting[:150]:
            asked.waits.disconnect()
        b.thaw()
        found = sorted(int(asked.waits.read_response()) for asked in waiting[150:])
        assert len(set(found)) == 150 and found[-1] <= 300
        eventually(lambda: status(a)["waiting_for_acks"] == 0)
        b.freeze()
        for asked in waiting[150:]:
            asked.waits.send_command("HINCRBY", "presence:y", "unread", "1")
        eventually(lambda: status(a)["waiting_for_acks"] == 150)
        a.process.send_signal(signal.SIGTERM)
        for asked in waiting[150:]:
            with pytest.raises(ResponseError, match="NOACK it was done, and the node ends before"):
                asked.waits.read_response()
    assert a.process.wait(30) == 0
    b.thaw()
    assert increased(b, "y", 0) == 450


def test_two_nodes_with_the_same_name_are_reported(nodes: Nodes) -> None:
    a = on(nodes, "a")
    folder = nodes.folder / "other"
    folder.mkdir()
    twin = NodeProcess("a", nodes.url, folder, "--machine", "m-other")
    nodes.stack.callback(twin.close)
    twin.wait()
    for one, other in ((a, twin), (twin, a)):
        told = f"another node has its name, at {other.address}"
        eventually(lambda one=one, told=told: told in one.log)  # type: ignore[misc]
    threads = [threading.Thread(target=increased, args=(node, "x")) for node in (a, twin) * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert increased(a, "x", 0) == 10
    twin.kill()
    eventually(lambda: status(a)["trouble"] == [])
