"""Nodes whose log is on each of the engines, as processes."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, RedisError

from interlock import SharedTable
from interlock.cluster.pacing import PACE
from interlock.cluster.streams import open_log
from interlock.cluster.streams.protocol import log_name
from tests.cluster.nodes import NodeProcess, Presence
from tests.cluster.streams.engines.nats import Nats, with_nats
from tests.cluster.streams.engines.rabbitmq import Rabbitmq
from tests.cluster.streams.engines.redis import Redis as EngineRedis
from tests.cluster.streams.engines.server import Engine, eventually
from tests.hub.servers import needs_hub, redis_server

Start = Callable[..., NodeProcess]


@pytest.fixture
def dc() -> str:
    """A log of its own for each test: the engine is that of them all."""
    return uuid.uuid4().hex[:20]


@pytest.fixture
def start(engine: Engine, dc: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a node by its name; its cluster is announced in a Redis beside the engine."""
    needs_hub()
    with ExitStack() as stack:
        _, port = stack.enter_context(redis_server(tmp_path))

        def begin(name: str, *more: str) -> NodeProcess:
            flags = ("--stream", engine.url, "--dc", dc, *more)
            url = f"redis://127.0.0.1:{port}"
            made = NodeProcess(name, url, tmp_path, *flags)
            stack.callback(made.close)
            made.wait()
            return made

        yield begin


def client(node: NodeProcess) -> Any:
    host, port = node.address.rsplit(":", 1)
    return Redis(host, int(port), socket_timeout=20, decode_responses=True)


def raised(node: NodeProcess, key: str, by: int = 1) -> int:
    """Raise a counter, again while it is answered that it was not done."""
    found: list[int] = []

    def is_done() -> bool:
        try:
            with client(node) as asked:
                found.append(asked.hincrby(f"presence:{key}", "unread", by))
        except RedisError as error:
            if "it was not done" not in str(error):
                raise
        return bool(found)

    eventually(is_done, node.log)
    return found[0]


def places(node: NodeProcess) -> tuple[int, str, str]:
    """Return the position, the checksum of the log up to it, and that of the rows."""
    with client(node) as asked:
        found = json.loads(asked.execute_command("NODE", "STATUS"))
    return found["position"], found["log_checksum"], found["rows_checksum"]


def rows(folder: Path, name: str) -> dict[str, Presence]:
    with SharedTable.open(folder / name, Presence, capacity=10_000) as table:
        return {str(key): row for key, row in table.items()}


@pytest.mark.share(2)
@pytest.mark.watchdog(180)
def test_nodes_converge_after_any_is_killed_or_the_engine_restarts(
    engine: Engine, start: Start, tmp_path: Path
) -> None:
    a, b = start("a"), start("b")
    for n in range(20):
        assert raised(a, "ann") == 2 * n + 1
        assert raised(b, "ann") == 2 * n + 2
        raised(a, f"a{n}")
        raised(b, f"b{n}")
    with client(a) as one, client(b) as other:
        # Many at once.
        with one.pipeline(transaction=False) as many:
            for n in range(2000):
                many.hincrby(f"presence:p{n % 50}", "unread", 1)
            assert len(many.execute()) == 2000
        assert other.execute_command("TABLE", "BARRIER", "presence") == "OK"
        assert other.hget("presence:p7", "unread") == "40"
    a.kill()
    assert raised(b, "ann") == 41
    a = start("a")
    assert raised(a, "ann") == 42
    engine.stop()
    engine.start()
    # An answer may be lost with the engine, and then it is unknown whether it counts.
    for node in (a, b):
        eventually(partial(_answers, node), node.log)
    last = max(raised(a, "ann", 0), raised(b, "ann", 0))
    assert raised(a, "ann") == last + 1
    assert raised(b, "ann") == last + 2
    # A node's status may be that of a moment before its last answer.
    for node in (a, b):
        with client(node) as asked:
            assert asked.execute_command("TABLE", "BARRIER", "presence") == "OK"
    eventually(lambda: places(a) == places(b))
    assert rows(tmp_path, "a") == rows(tmp_path, "b")
    found = rows(tmp_path, "a")
    assert len(found) == 1 + 40 + 50
    assert found["ann"].unread == last + 2
    for node in (a, b):
        assert "goes back" not in node.log


def _answers(node: NodeProcess) -> bool:
    try:
        raised(node, "ann", 0)
    except RedisError:
        return False
    return True


def test_a_node_whose_log_may_be_evicted_reports_it_and_continues_once_fixed(
    engine: Engine, start: Start, dc: str
) -> None:
    if not isinstance(engine, Nats):
        pytest.skip("test_logs has each engine: one is enough to see that nodes hand it on")
    name = log_name("presence", dc)
    stream = {"name": f"il-log-{name}", "subjects": [f"il.log.{name}"]}
    with_nats(engine, lambda js: js.add_stream(**stream, max_msgs=100))
    a = start("a")
    eventually(lambda: "its max_msgs is 100, so NATS drops entries" in a.log, a.log)
    with_nats(engine, lambda js: js.update_stream(**stream, max_msgs=-1))
    assert raised(a, "ann") == 1


class Log:
    """The log of the test's table, as it is on the engine."""

    def __init__(self, engine: Engine, dc: str) -> None:
        self.engine = engine
        self.stream = open_log(engine.url, "presence", dc)

    def first(self) -> tuple[int, ...]:
        ends = self.stream.ends()
        assert ends is not None
        return place(ends[0].id)


@pytest.fixture
def log(engine: Engine, dc: str) -> Iterator[Log]:
    if isinstance(engine, EngineRedis):
        pytest.skip("test_snapshots has this engine")
    made = Log(engine, dc)
    yield made
    made.stream.close()


def place(id: str) -> tuple[int, ...]:
    found = tuple(map(int, id.split("-")))
    # Where an engine has one number, a node's has nothing before it.
    return found[1:] if found[0] == 0 else found


def status(node: NodeProcess) -> dict[str, Any]:
    with client(node) as asked:
        found: dict[str, Any] = json.loads(asked.execute_command("NODE", "STATUS"))
        return found


def trims(log: Log, beyond: tuple[int, ...], *nodes: NodeProcess) -> int:
    """Write until the log begins behind a place; return the counter."""
    value = 0

    def is_cut() -> bool:
        nonlocal value
        for _ in range(15):
            value = raised(nodes[0], "n")
        if isinstance(log.engine, Rabbitmq):
            # A segment that is full is dropped: what a write takes in the log is not much.
            with client(nodes[0]) as asked:
                for _ in range(40):
                    asked.execute_command("DEL", *(f"presence:none{n}" for n in range(400)))
        return log.first() > beyond

    eventually(is_cut, lambda: "".join(one.log for one in nodes))
    return value


def has(node: NodeProcess, key: str, value: int) -> bool:
    with client(node) as asked:
        try:
            return bool(asked.hget(f"presence:{key}", "unread") == str(value))
        except RedisError:
            return False


@pytest.mark.share(2)
@pytest.mark.watchdog(180)
def test_a_node_that_lacks_trimmed_entries_takes_a_snapshot(
    engine: Engine, start: Start, log: Log, dc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A checkpoint after ten entries.
    monkeypatch.setenv(PACE, "10,0")
    a, b = start("a"), start("b")
    for n in range(1, 61):
        assert raised(b, "n") == n
    c = start("c")
    eventually(partial(has, c, "n", 60), lambda: c.log)
    begin = log.first()
    if isinstance(engine, Rabbitmq):
        # No node can: the broker does, as an operator has it.
        assert "RabbitMQ cannot trim a stream at a position" in status(a)["untrimmed"]
        engine.policy("il.log.*", {"max-length-bytes": 250_000})
    else:
        assert status(a)["untrimmed"] == ""
    *_, number = place(status(c)["log_id"])
    # A broker may have sent it some entries before they are read.
    beyond = (number + 700,) if isinstance(engine, Rabbitmq) else (number,)
    assert beyond > begin
    c.freeze()
    try:
        value = trims(log, beyond, a, b)
    finally:
        c.thaw()
    eventually(partial(has, c, "n", value), lambda: c.log)
    eventually(lambda: places(c) == places(a), lambda: f"{places(c)} {places(a)} {c.log}")
    c.says("node c copies a snapshot from node")
    # A node that is new, and one whose folder is gone.
    b.kill()
    shutil.rmtree(b.data)
    b, d = start("b"), start("d")
    for node in (b, d):
        eventually(partial(has, node, "n", value), lambda: b.log + d.log)
        node.says("copies a snapshot from node")
    assert raised(d, "n") == value + 1
    for node in (a, b, c, d):
        eventually(partial(has, node, "n", value + 1))
        assert [one["kind"] for one in status(node)["trouble"]] == []


@pytest.mark.share(2)
@pytest.mark.watchdog(180)
def test_a_log_trimmed_by_somebody_else_is_reported_and_not_read_further(
    engine: Engine, start: Start, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(engine, Rabbitmq):
        pytest.skip("nobody but a policy can, as above")
    monkeypatch.setenv(PACE, "1000000,0")
    a = start("a")
    for n in range(1, 21):
        assert raised(a, "n") == n
    a.freeze()
    b = start("b")
    for n in range(21, 41):
        assert raised(b, "n") == n
    ends = log.stream.ends()
    assert ends is not None
    last = f"{ends[1].id}."
    assert log.stream.trim([last]) > 0
    a.thaw()
    # Nobody has a checkpoint but b, who makes one when it is asked.
    eventually(lambda: "a copies a snapshot from node b" in a.log, lambda: a.log + b.log)
    eventually(partial(has, a, "n", 40), lambda: a.log + b.log)
    for node in (a, b):
        node.kill()
        shutil.rmtree(node.data)
    a = start("a")
    eventually(lambda: "does not serve" in a.log, lambda: a.log)
    assert status(a)["state"] == "stuck"
    assert "the log begins after the node's checkpoints" in str(status(a)["trouble"])
    with client(a) as asked, pytest.raises(RedisError):
        asked.hincrby("presence:n", "unread", 1)


@pytest.mark.watchdog(180)
def test_a_write_larger_than_an_entry_is_refused_and_many_writes_are_split(
    engine: Engine, start: Start
) -> None:
    a, b = start("a"), start("b")
    found = status(a)
    most = found["largest_entry"]
    assert most >= 1_000_000 and found["largest_entry_setting"]
    with client(a) as asked, asked.pipeline(transaction=False) as many:
        # None of the rows is there: a write of which the log has all the same.
        keys = [f"presence:{'x' * 200}{n}" for n in range(2500)]
        for _ in range(6):
            many.execute_command("DEL", *keys)
        many.hincrby("presence:n", "unread", 1)
        many.execute_command("HSET", "presence:n", "token", b"x" * most)
        many.hincrby("presence:n", "unread", 1)
        *_, first, refused, second = many.execute(raise_on_error=False)
    assert (first, second) == (1, 2), (first, second)
    assert f"{found['largest_entry_setting']}: it was not done" in str(refused)
    eventually(partial(has, b, "n", 2), lambda: a.log + b.log)
    assert status(a)["trouble"] == []
