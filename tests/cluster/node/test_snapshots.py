"""Logs that are trimmed, and nodes that lack what was cut off: over real engines, as processes."""

from __future__ import annotations

import json
import select
import shutil
import signal
import socket
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from interlock.cluster.pacing import PACE
from interlock.cluster.snapshots import INCOMING
from interlock.hub.passwords import hashed
from tests.cluster.node.test_node import Nodes, client, has, increased, nodes
from tests.cluster.nodes import NodeProcess, eventually

__all__ = ["nodes"]
STREAM = "il:log:{presence.main}"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after ten entries; the oldest of three is enough."""
    monkeypatch.setenv(PACE, "10,0")


def place(id: str) -> tuple[int, ...]:
    return tuple(map(int, id.split("-")))


def first(nodes: Nodes) -> tuple[int, ...]:
    """The place at which the log begins."""
    with Redis(port=nodes.port) as engine:
        found: Any = engine.xrange(STREAM, count=1)
        return place(found[0][0].decode())


def status(node: NodeProcess) -> dict[str, Any]:
    with client(node) as asked:
        found: dict[str, Any] = json.loads(asked.execute_command("NODE", "STATUS"))
        return found


def trims(nodes: Nodes, node: NodeProcess, *others: NodeProcess) -> int:
    """Write until the log begins later than before; return the counter."""
    before, value = first(nodes), 0

    def is_cut() -> bool:
        nonlocal value
        for _ in range(12):
            value = increased(node, "n")
        return first(nodes) != before

    eventually(is_cut, lambda: "".join(one.log for one in (node, *others)))
    return value


@pytest.mark.share(2)
def test_a_node_that_lacks_trimmed_entries_takes_a_snapshot_and_is_equal(nodes: Nodes) -> None:
    a, b = nodes.start_both()
    increased(b, "n")
    trims(nodes, a, b)
    # A node that is new.
    c = nodes.start("c")
    value = increased(a, "n", 0)
    eventually(partial(has, c, "n", value), lambda: c.log)
    c.says("node c copies a snapshot from node")
    # One that was stopped: the engine answers its next read with what is behind the cut.
    # Its figures follow its answers.
    eventually(lambda: status(c)["log_id"], lambda: c.log)
    at = place(status(c)["log_id"])
    c.process.send_signal(signal.SIGSTOP)
    while first(nodes) <= at:
        value = trims(nodes, a, b)
    c.process.send_signal(signal.SIGCONT)
    eventually(partial(has, c, "n", value), lambda: c.log)
    assert c.log.count("node c copies a snapshot from node") == 2
    # A node whose folder is gone, with the rows that readers of its machine have.
    b.kill()
    shutil.rmtree(b.data)
    b = nodes.start("b")
    eventually(partial(has, b, "n", value), lambda: b.log)
    b.says("node b copies a snapshot from node")
    with nodes.table("a") as one, nodes.table("b") as other, nodes.table("c") as third:
        eventually(lambda: one["n"] == other["n"] == third["n"])


@pytest.mark.share(2)
def test_a_log_is_not_trimmed_beyond_an_absent_node_and_a_lost_folder_waits_for_it(
    nodes: Nodes,
) -> None:
    a, b = nodes.start_both()
    increased(b, "n")
    trims(nodes, a, b)
    at = place(status(a)["log_id"])
    a.process.send_signal(signal.SIGSTOP)
    for _ in range(60):
        value = increased(b, "n")
    # Its own checkpoints have gone on; the log has all that the other one lacks.
    eventually(lambda: status(b)["checkpoint"] >= status(b)["position"] - 20)
    assert first(nodes) <= at
    # The other one is started again: it has its own checkpoints.
    b.kill()
    b = nodes.start("b")
    eventually(partial(has, b, "n", value), lambda: b.log)
    # Without its folder it lacks what only the one that is away has.
    b.kill()
    shutil.rmtree(b.data)
    b = nodes.start("b")

    def trouble() -> str:
        return "; ".join(one["text"] for one in status(b)["trouble"])

    eventually(lambda: "no other announced node can give one" in trouble(), trouble)
    assert f"delete the stream {STREAM} on the engine" in trouble()
    assert status(b)["state"] == "stuck"
    a.process.send_signal(signal.SIGCONT)
    for node in (a, b):
        eventually(partial(has, node, "n", value), lambda: a.log + b.log)
    eventually(lambda: not trouble(), trouble)


def test_a_wrong_password_between_nodes_is_logged(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = nodes.folder / "hub.toml"
    config.write_text(
        f'[[user]]\nname = "peer"\npasswords = ["{hashed("right")}"]\n'
        'commands = ["node", "@connection"]\ntables = ["presence"]\n'
    )
    flags = ("--config", str(config), "--peer-user", "peer")
    monkeypatch.setenv("INTERLOCK_PEER_PASSWORD", "right")
    a = nodes.start("a")
    value = trims(nodes, a)
    a.close()
    a = nodes.start("a", *flags)
    monkeypatch.setenv("INTERLOCK_PEER_PASSWORD", "wrong")
    b = nodes.start("b", "--peer-user", "peer")
    text = "cannot get a snapshot of a: its hub refuses the login"
    eventually(lambda: text in b.log, lambda: a.log + b.log)
    assert any(text in one["text"] for one in status(b)["trouble"])
    b.close()
    monkeypatch.setenv("INTERLOCK_PEER_PASSWORD", "right")
    b = nodes.start("b", "--peer-user", "peer")
    eventually(partial(has, b, "n", value), lambda: a.log + b.log)


class Cut:
    """A connection to a hub that is cut in the middle of an answer, this number of times."""

    def __init__(self, times: int) -> None:
        self.cut = 0
        self._times = times
        self.to = ""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        # One connection at a time: that of the node that takes a snapshot.
        with suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                host, port = self.to.rsplit(":", 1)
                with near, socket.create_connection((host, int(port))) as far:
                    self._pass(near, far)

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        while True:
            for one in select.select([near, far], [], [])[0]:
                data = one.recv(65536)
                if one is far and self.cut < self._times and len(data) > 3000:
                    self.cut += 1
                    near.sendall(data[:3000])
                    return
                if not data:
                    return
                (far if one is near else near).sendall(data)


def test_a_snapshot_whose_source_dies_is_restarted_from_another(nodes: Nodes) -> None:
    way = Cut(2)
    a = nodes.start("a", "--advertise", f"127.0.0.1:{way.port}")
    way.to = a.address
    with client(a) as asked:
        many = asked.pipeline(transaction=False)
        for number in range(300):
            many.hset(f"presence:{number}", "app_id", number)
        many.execute()
    trims(nodes, a)
    b = nodes.start("b")
    eventually(partial(has, b, "n", increased(a, "n", 0)), lambda: a.log + b.log)
    b.says("cannot get a snapshot of a: ")
    assert way.cut == 2
    assert not (Path(b.data) / INCOMING).exists()
    way.close()
