"""A node that is gone for good holds the trimming of its log, until it is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from interlock.cli import main
from interlock.cluster.pacing import PACE
from tests.cluster.node.test_node import Nodes, has, increased
from tests.cluster.node.test_operating import status
from tests.cluster.nodes import eventually
from tests.cluster.test_acks import on
from tests.hub.servers import needs_hub

STREAM = "il:log:{presence.main}"


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    needs_hub()
    monkeypatch.setenv(PACE, "4,0")
    with ExitStack() as stack:
        yield Nodes(stack, tmp_path)


def length(nodes: Nodes) -> int:
    with Redis(port=nodes.port) as engine:
        return int(engine.xlen(STREAM))


@pytest.mark.share(2)
def test_a_log_is_not_trimmed_for_an_absent_node_until_it_is_forgotten(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"interlock+cluster://127.0.0.1:{nodes.port}/presence"

    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["cluster", *words, "--url", url])
        told = capsys.readouterr()
        return code, told.out + told.err

    a, b = on(nodes, "a"), on(nodes, "b")
    for node in (a, b):
        increased(node, "n", 0)

    def both_keep() -> bool:
        increased(a, "n")
        kept = {one["id"]: one["checkpoint"] for one in status(a)["keepers"]}
        return None not in kept.values() and len(kept) == 2

    eventually(both_keep, lambda: a.log + b.log)
    for name, why in (("b", "is announced at"), ("c", "knows no node 'c'; it knows a, b")):
        code, told = run("forget", name)
        assert code == 1 and why in told, told
    # One that ends takes its announcement back; of one that is killed it expires.
    b.process.terminate()
    assert b.process.wait(30) == 0
    eventually(lambda: status(a)["nodes"] == [])
    assert status(a)["awaited"] == ["b"]
    # Perhaps already as trouble, if the log has grown enough meanwhile.
    assert "a checkpoint of b, not announced" in run("status")[1]
    while not any(one["kind"] == "growth" for one in status(a)["trouble"]):
        for _ in range(5):
            increased(a, "n")
    grown = length(nodes)
    assert grown > 40
    assert "start it, or if it is gone for good: interlock cluster forget b" in run("status")[1]
    assert "this is node a: ask another one to forget it" in run("forget", "a")[1]
    assert run("forget", "b") == (0, "b is forgotten: the log is trimmed without it\n")

    def is_trimmed() -> bool:
        increased(a, "n")
        return length(nodes) < grown / 2

    eventually(is_trimmed, lambda: a.log)
    assert (status(a)["awaited"], status(a)["trouble"]) == ([], [])
    # It comes back: what it lacks is cut off, so it takes a snapshot, and counts again.
    value = increased(a, "n", 0)
    b = on(nodes, "b")
    eventually(partial(has, b, "n", value), lambda: b.log)
    b.says("node b copies a snapshot from node a")
    eventually(lambda: {one["id"] for one in status(a)["keepers"]} == {"a", "b"})
    # A node reads a log whose beginning is trimmed from its own oldest checkpoint on.
    b_before = b.log.count("copies a snapshot from node a")
    assert run("resync", "b")[0] == 0, b.log
    eventually(partial(has, b, "n", value), lambda: b.log)
    assert b.log.count("copies a snapshot from node a") == b_before
