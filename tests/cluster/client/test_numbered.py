"""Writes of `interlock+cluster://` at nodes: done once, none behind its successors.

`python -m tests.cluster.client.test_numbered SECONDS KIND ...` makes faults of these kinds for that
many seconds: kill, stop, cut, lose.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, ResponseError

import interlock
from interlock.client.faces.table import RemoteTable
from interlock.client.request import Ask, Refused
from interlock.client.requests.lease_renewal import LeaseRenewer
from interlock.client.rows.announcements import Announcement, announce
from interlock.client.rows.cluster_rows import course_of
from interlock.client.rows.numbered_writes import Numbers, Write
from interlock.client.session import Session
from interlock.errors import EngineUnavailable
from tests.cluster.node.test_node import Nodes, client, increased
from tests.cluster.nodes import NodeProcess, Presence, eventually
from tests.hub.servers import needs_hub

HOUR = 3_600_000


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    needs_hub()
    with ExitStack() as stack:
        yield Nodes(stack, tmp_path)


def tell(nodes: Nodes, *known: NodeProcess) -> None:
    """Announce nodes as data centres by themselves too, so that a client may name its home."""
    with interlock.connect(f"redis://127.0.0.1:{nodes.port}") as engine:
        for node in known:
            # Beside what it says itself, each second.
            said: dict[str, Any] = {"id": f"home-{node.name}", "dc": node.name, "role": "serving"}
            said |= {"address": node.address, "table": "presence"}
            announce(engine, "presence", Announcement(**said), HOUR)


def url(nodes: Nodes, home: str, timeout: float = 10, more: str = "") -> str:
    return f"interlock+cluster://127.0.0.1:{nodes.port}?dc={home}&timeout={timeout}{more}"


@contextmanager
def table(nodes: Nodes, home: str, timeout: float = 10, more: str = "") -> Iterator[Any]:
    with interlock.connect(url(nodes, home, timeout, more)) as connected:
        yield connected.table("presence", Presence)


def pair(nodes: Nodes) -> tuple[NodeProcess, NodeProcess]:
    """Two nodes that take writes, with rows `n` and `r`."""
    a, b = nodes.start_both()
    for node in (a, b):
        for key in ("n", "r"):
            increased(node, key, 0)
    tell(nodes, a, b)
    return a, b


def stop(node: NodeProcess) -> None:
    node.process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{node.process.pid}/stat")
    eventually(lambda: stat.read_text().rpartition(") ")[2].startswith("T"))


def go_on(node: NodeProcess) -> None:
    node.process.send_signal(signal.SIGCONT)


def behind(node: NodeProcess, key: str, column: str) -> int:
    """A column as a node shows it once it has read all that was answered before."""
    with client(node) as asked:
        assert asked.execute_command("TABLE", "BARRIER", "presence") == "OK"
        return int(asked.hget(f"presence:{key}", column))


class Engine:
    """The engine as one node reaches it; while `held` is set, nothing that it says arrives."""

    def __init__(self, stack: ExitStack, port: int) -> None:
        self.held = threading.Event()
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._opened: list[socket.socket] = []
        stack.callback(self.close)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in (self._server, *self._opened):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                comes, _ = self._server.accept()
                goes = socket.create_connection(("127.0.0.1", self._port))
                self._opened += [comes, goes]
                for way in ((comes, goes, False), (goes, comes, True)):
                    threading.Thread(target=self._pass, args=way, daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                while answers and self.held.is_set():
                    time.sleep(0.005)
                to.sendall(data)


def test_a_write_is_not_sent_again_in_another_data_centre(nodes: Nodes) -> None:
    # Two data centres may announce themselves in one engine, but their logs know their own numbers.
    east, west = nodes.start("e", "--dc", "east"), nodes.start("w", "--dc", "west")
    increased(west, "n")
    with table(nodes, "east", timeout=4) as rows:
        rows["n"] = Presence(app_id=1)
        stop(east)
        with pytest.raises(EngineUnavailable, match="of the data centre where it was sent") as lost:
            rows.incr("n", "unread")
        assert lost.value.unknown
    assert behind(west, "n", "unread") == 1


def test_a_write_whose_node_dies_before_its_reply_is_applied_once(nodes: Nodes) -> None:
    engine = Engine(nodes.stack, nodes.port)
    b = nodes.start("b")
    real, nodes.port = nodes.port, engine.port
    a = nodes.start("a")
    nodes.port = real
    increased(a, "n", 0)
    increased(b, "n", 0)
    tell(nodes, a, b)
    answers: list[Any] = []
    with table(nodes, "a", 20) as found, Redis("127.0.0.1", nodes.port) as log:
        assert found.incr("n", "unread") == 1
        for number in range(2, 4):
            length = log.xlen("il:log:{presence.main}")
            engine.held.set()
            asks = threading.Thread(target=lambda: answers.append(found.incr("n", "unread")))
            asks.start()
            eventually(partial(is_longer, log, length))
            # It is in the log, and the node cannot know it.
            a.kill()
            engine.held.clear()
            asks.join()
            assert answers[-1] == number
            assert behind(b, "n", "unread") == number
            nodes.port = engine.port
            a = nodes.start("a")
            nodes.port = real
            increased(a, "n", 0)
            tell(nodes, a)
            members = found._rows._members
            eventually(partial(came_home, found, members, a))


def is_longer(log: Any, length: int) -> bool:
    return bool(log.xlen("il:log:{presence.main}") > length)


def came_home(found: RemoteTable[Presence], members: Any, node: NodeProcess) -> bool:
    members._choose_at = members._look_at = 0.0
    found.get("n")
    return bool(members._home == node.address)


def test_a_stopped_node_applies_no_late_write(nodes: Nodes) -> None:
    a, b = pair(nodes)
    with table(nodes, "a") as found:
        found.patch("r", app_id=1)
        assert found.incr("n", "unread") == 1
        stop(a)
        found.patch("r", app_id=2)
        found.patch("r", app_id=3)
        assert found.incr("n", "unread") == 2
        go_on(a)
        # It now executes what it was sent.
        increased(a, "r", 0)
    for node in (a, b):
        assert behind(node, "r", "app_id") == 3
        assert behind(node, "n", "unread") == 2


def test_an_abandoned_write_is_not_applied_after_a_later_one(nodes: Nodes) -> None:
    a, b = pair(nodes)

    async def main() -> None:
        async with interlock.connect(url(nodes, "a", 20)) as connected:
            found = connected.table("presence", Presence)
            assert await found.patch("r", app_id=1)
            stop(a)
            # Each of them on a connection of its own.
            calls = [asyncio.ensure_future(found.patch("r", app_id=n)) for n in range(2, 5)]
            await asyncio.wait(calls, timeout=0.3)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            assert all(call.cancelled() for call in calls), calls
            assert await found.patch("r", app_id=9)
            # The others were ended: at most they were done before.
            with client(b) as asked:
                asked.execute_command("TABLE", "BARRIER", "presence")
            go_on(a)

    asyncio.run(main())
    increased(a, "r", 0)
    for node in (a, b):
        assert behind(node, "r", "app_id") == 9


def test_without_nodes_a_write_is_first_unknown_and_then_not_applied(nodes: Nodes) -> None:
    a, b = pair(nodes)
    with table(nodes, "a", 2) as found:
        found.patch("r", app_id=1)
        stop(a)
        stop(b)
        with pytest.raises(EngineUnavailable) as told:
            found.patch("r", app_id=2)
        assert told.value.unknown
        go_on(b)
        found.patch("r", app_id=3)
        go_on(a)
        increased(a, "r", 0)
        assert behind(a, "r", "app_id") == behind(b, "r", "app_id") == 3


def test_a_write_refused_by_a_draining_node_is_done_at_another(
    nodes: Nodes,
) -> None:
    a, b = pair(nodes)
    with table(nodes, "a", 10) as found:
        assert found.incr("n", "unread") == 1
        stop(a)
        a.process.send_signal(signal.SIGTERM)
        go_on(a)
        for number in range(2, 200):
            assert found.incr("n", "unread") == number
        assert a.process.wait(30) == 0
    assert behind(b, "n", "unread") == 199


def test_a_linearizable_read_sees_writes_answered_by_another_node(nodes: Nodes) -> None:
    pair(nodes)
    with table(nodes, "a") as one, table(nodes, "b", more="&linearizable=1") as other:
        for number in range(1, 101):
            assert one.incr("n", "unread") == number
            assert other["n"].unread == number


def test_a_write_past_its_deadline_keeps_its_number_so_that_of_its_copies_one_is_done() -> None:
    numbers, here = Numbers("presence"), frozenset({"east"})
    session: Session[Any] = Session(b"app/1", lambda address: None, LeaseRenewer(lambda: None))
    asked = numbers.look(session, "node", 1)
    assert isinstance(ask := next(asked), Ask) and ask.command == ("TABLE", "TIME", "presence")
    with pytest.raises(StopIteration):
        asked.send(1_000)
    write = Write(numbers, ("HINCRBY", "presence:n", "unread", 1))
    sent = write.words(session, "node", here, 10)
    assert write.words(session, "node", here, 5) == sent
    write.postpone()
    later = write.words(session, "node", here, 20)
    assert (*sent[:4], *sent[5:]) == (*later[:4], *later[5:])
    assert int(later[4]) > int(sent[4])
    # No copy of it is done once a later number is.
    write.ended()
    assert write.words(session, "node", here, 10)[3] == 2
    assert [course_of(Refused(f"{code} text")) for code in ("PAST", "LATE")] == ["later", "anew"]


def test_writes_in_flight_on_a_connection_are_sent_again_in_their_order(nodes: Nodes) -> None:
    a, b = pair(nodes)
    with client(a) as asked:
        deadline = asked.execute_command("TABLE", "TIME", "presence") + 20_000
    lines = [
        ("TABLE", "CLIENT", "app/1", number, deadline, "HINCRBY", "presence:n", "unread", 1)
        for number in range(1, 1001)
    ]
    # The connection is lost in their middle: nobody knows which of them are done.
    host, port = a.address.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as lost:
        words = [[str(word).encode() for word in line] for line in lines]
        packed = b"".join(
            b"*%d\r\n" % len(line) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in line)
            for line in words
        )
        lost.sendall(packed[: len(packed) * 3 // 5])
        lost.recv(64)
    with client(b) as asked:
        pipe = asked.pipeline(transaction=False)
        for line in lines:
            pipe.execute_command(*line)
        said = pipe.execute(raise_on_error=False)
    kept = [one for one in said if not isinstance(one, ResponseError)]
    # Replies of long-finished writes are not kept.
    assert all(str(one).startswith("NOREPLY ") for one in said if isinstance(one, ResponseError))
    assert kept == sorted(kept) and kept[-1] == 1000
    assert behind(a, "n", "unread") == 1000


def test_writes_known_only_to_a_killed_node_are_restored_behind_later_writes_of_their_client(
    nodes: Nodes,
) -> None:
    a, b = pair(nodes)
    with table(nodes, "a", 20) as found:
        assert found.incr("n", "unread") == 1
        behind(b, "n", "unread")
        with Redis("127.0.0.1", nodes.port) as engine:
            engine.save()
        stop(b)
        for number in range(2, 102):
            assert found.incr("n", "unread") == number
        a.kill()
        nodes.lose_all()
        go_on(b)
        for _ in range(1500):
            found.incr("n", "unread")
        a = nodes.start("a")
        eventually(lambda: increased(a, "n", 0) == 1601, lambda: a.log + b.log)
        assert found.incr("n", "unread") == 1602


# -- Faults in any order ---------------------------------------------------------------------------


class Life:
    """The work of one client: on a counter that all raise, and on a row of its own."""

    def __init__(self, nodes: Nodes, number: int, ends: threading.Event, home: str) -> None:
        self.done = self.unknown = self.refused = 0
        self.sums: list[int] = []
        self.key = f"r{number}"
        self.acknowledged = self.last = 0
        self.faults: list[str] = []
        self._nodes, self._ends, self._home = nodes, ends, home
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with table(self._nodes, self._home, 4) as found:
            while not self._ends.is_set():
                try:
                    self._step(found)
                except EngineUnavailable:
                    self.refused += 1
                except BaseException as error:
                    self.faults.append(repr(error))
                    return

    def _step(self, found: RemoteTable[Presence]) -> None:
        try:
            self.sums.append(found.incr("n", "unread"))
            self.done += 1
        except EngineUnavailable as error:
            self.unknown += error.unknown
            self.refused += not error.unknown
        self.last += 1
        try:
            found.set(self.key, Presence(app_id=self.last))
            self.acknowledged = self.last
        except EngineUnavailable as error:
            self.refused += not error.unknown
            self.unknown += 0
        row = found.get(self.key)
        if self.acknowledged and (row is None or row.app_id < self.acknowledged):
            self.faults.append(f"{self.key}: {row} behind {self.acknowledged}")


@contextmanager
def seen_to_rise(nodes: Nodes, node: str, lives: list[Life], faults: list[str]) -> Iterator[None]:
    """Look at the rows of clients in the memory that a node shares: none goes back."""
    ends = threading.Event()
    keys = [life.key for life in lives]

    def watch() -> None:
        last = dict.fromkeys(keys, 0)
        with nodes.table(node) as shared:
            while not ends.wait(0.001):
                for key, row in zip(keys, shared.get_many(keys), strict=True):
                    value = 0 if row is None else row.app_id
                    if value < last[key]:
                        faults.append(f"{key} at {node}: {last[key]}, then {value}")
                    last[key] = value

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def survive(folder: Path, seconds: float, seed: int, kinds: list[str]) -> str:
    """Have clients write while nodes are killed and stopped; return what was done.

    Where the engine loses its tail, answers that were given may be of another history.
    """
    lossy = "lose" in kinds
    chance = random.Random(seed)
    ends, counts = threading.Event(), dict[str, int]()
    with ExitStack() as stack:
        nodes = Nodes(stack, folder)
        found = {name: nodes.start(name) for name in "ab"}
        increased(found["a"], "n", 0)
        increased(found["b"], "n", 0)
        tell(nodes, *found.values())
        lives = [Life(nodes, number, ends, "ab"[number % 2]) for number in range(4)]
        for life in lives:
            life.thread.start()
        until = time.monotonic() + seconds
        faults: list[str] = []
        for name in found:
            stack.enter_context(seen_to_rise(nodes, name, lives, faults))
        try:
            while time.monotonic() < until:
                ends.wait(chance.uniform(0.1, 0.6))
                name = chance.choice("ab")
                what = chance.choice(kinds)
                counts[what] = counts.get(what, 0) + 1
                if what == "lose":
                    with Redis("127.0.0.1", nodes.port) as engine:
                        engine.save()
                    ends.wait(chance.uniform(0, 0.3))
                    nodes.lose_all()
                    tell(nodes, *found.values())
                elif what == "kill":
                    found[name].kill()
                    found[name] = nodes.start(name)
                    tell(nodes, found[name])
                elif what == "stop":
                    stop(found[name])
                    ends.wait(chance.choice([0.2, 1.5, 4.5][: 2 + (seconds > 10)]))
                    go_on(found[name])
                else:
                    with client(found[name]) as asked:
                        asked.client_kill_filter(_type="normal", skipme=True)
        finally:
            ends.set()
            for life in lives:
                life.thread.join()
        done = sum(life.done for life in lives)
        unknown = sum(life.unknown for life in lives)
        refused = sum(life.refused for life in lives)
        sums = [one for life in lives for one in life.sums]
        said = f"seed {seed}: {counts}; {done} done, {unknown} unknown, {refused} refused"

        shown: list[int] = []

        def are_even() -> bool:
            with suppress(ResponseError):
                shown[:] = [behind(node, "n", "unread") for node in found.values()]
                return shown[0] == shown[1] and done <= shown[0] <= done + unknown
            return False

        eventually(
            are_even, lambda: f"{said}; {shown}\n" + "".join(node.log for node in found.values())
        )
        faults += [fault for life in lives for fault in life.faults]
        if not lossy:
            assert not faults, (said, faults)
            assert len(set(sums)) == len(sums), said
            # A client's own sums rise, whichever node did them.
            assert all(life.sums == sorted(life.sums) for life in lives), said
        for life in lives:
            for node in found.values():
                value = behind(node, life.key, "app_id")
                assert life.acknowledged <= value <= life.last, (said, life.key, value)
        return said


def test_counters_and_rows_are_exact_whatever_happens_to_nodes(tmp_path: Path) -> None:
    needs_hub()
    print(survive(tmp_path, 4, random.randrange(1 << 30), ["kill", "stop", "stop", "cut"]))


if __name__ == "__main__":
    length, given = float(sys.argv[1]), sys.argv[2:]
    began = time.monotonic()
    while (left := began + length - time.monotonic()) > 0:
        with tempfile.TemporaryDirectory() as made:
            print(survive(Path(made), min(left, 20), random.randrange(1 << 30), given), flush=True)
