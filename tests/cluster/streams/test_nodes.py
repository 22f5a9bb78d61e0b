"""Nodes whose log is on each of the engines, as processes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, RedisError

from interlock import SharedTable
from interlock.cluster.streams.protocol import log_name
from tests.cluster.nodes import NodeProcess, Presence
from tests.cluster.streams.engines import Engine, Nats, eventually
from tests.cluster.streams.test_logs import with_nats
from tests.hub.servers import needs_hub, redis_server

Start = Callable[[str], NodeProcess]


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

        def begin(name: str) -> NodeProcess:
            flags = ("--stream", engine.url, "--dc", dc)
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


@pytest.mark.watchdog(180)
def test_nodes_on_any_engine_are_equal_whichever_is_killed_and_when_the_engine_restarts(
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


def test_a_node_whose_log_may_be_dropped_says_so_and_goes_on_when_that_is_changed(
    engine: Engine, start: Start, dc: str
) -> None:
    if not isinstance(engine, Nats):
        pytest.skip("test_logs has each engine: one is enough to see that nodes hand it on")
    name = log_name("presence", dc)
    stream = {"name": f"il-log-{name}", "subjects": [f"il.log.{name}"]}
    with_nats(engine, lambda js: js.add_stream(**stream, max_msgs=100))
    a = start("a")
    eventually(lambda: "its max_msgs is 100, so that NATS drops entries" in a.log, a.log)
    with_nats(engine, lambda js: js.update_stream(**stream, max_msgs=-1))
    assert raised(a, "ann") == 1
