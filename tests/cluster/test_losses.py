"""Nodes that begin anew and engines that lose entries, in turn: each write counts once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.node.test_node import Nodes, client, has, increased
from tests.cluster.nodes import eventually
from tests.hub.servers import needs_hub


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    needs_hub()
    with ExitStack() as stack:
        yield Nodes(stack, tmp_path)


def status_of_others(asked: Any) -> bytes:
    return json.dumps(json.loads(asked.execute_command("NODE", "STATUS"))["nodes"]).encode()


def test_increments_count_once_while_nodes_reload_their_log_and_end(nodes: Nodes) -> None:
    a, b = nodes.start_both()
    increased(b, "n", 0)
    with client(a) as one:
        eventually(lambda: b'"serving"' in status_of_others(one))
        for number in range(1, 61):
            pipe = one.pipeline(transaction=False)
            pipe.hincrby("presence:n", "unread", 1)
            if number % 20 == 0:
                # In the middle of a write that is not answered yet.
                pipe.execute_command("NODE", "RESYNC")
            assert pipe.execute()[0] == number
    a.kill()
    assert increased(b, "n") == 61
    a = nodes.start("a")
    for node in (a, b):
        eventually(partial(has, node, "n", 61), lambda: a.log + b.log)


def test_two_consecutive_losses_with_absent_nodes_lose_no_write(
    nodes: Nodes,
) -> None:
    a, b = nodes.start_both()
    for _ in range(20):
        increased(a, "n")
        increased(b, "n")
    b.kill()
    for _ in range(10):
        increased(a, "n")
    nodes.lose_all()
    assert increased(a, "m") == 1
    eventually(partial(has, a, "n", 50), lambda: a.log)
    a.kill()
    # The other has neither what was written since, nor what was put back.
    nodes.lose_all()
    b = nodes.start("b")
    increased(b, "m")
    a = nodes.start("a")
    for node in (a, b):
        eventually(partial(has, node, "n", 50), lambda: a.log + b.log)
        eventually(partial(has, node, "m", 2), lambda: a.log + b.log)
