"""`interlock cluster diff`: rows that differ are listed with the values of both nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import ResponseError

from tests.cluster.node.test_operating import client, run
from tests.cluster.nodes import NodeCluster, NodeProcess, node_cluster


def differ(
    capsys: pytest.CaptureFixture[str], nodes: NodeCluster, *words: str
) -> tuple[int, str, str]:
    return run(capsys, nodes, "diff", *words)


def emptied(node: NodeProcess) -> None:
    """Delete what another test has left."""
    with client(node) as asked:
        keys = list(asked.scan_iter("presence:*", count=1000))
        if keys:
            asked.delete(*keys)


def fill(node: NodeProcess, keys: int) -> None:
    with client(node) as asked:
        pipe = asked.pipeline(transaction=False)
        for number in range(keys):
            pipe.hset(f"presence:k{number:05}", "app_id", number)
        pipe.execute()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with node_cluster(tmp_path_factory.mktemp("ours"), "a") as made:
        yield made


def test_only_rows_that_differ_lastingly_are_listed(
    ours: NodeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with node_cluster(tmp_path, "b", flags=("--dc", "west")) as theirs:
        a, b = ours.nodes["a"], theirs.nodes["b"]
        emptied(a)
        # More than a page.
        for node in (a, b):
            fill(node, 2100)
        with client(a) as one, client(b) as other:
            one.hset("presence:k00007", "token", "x")
            other.hset("presence:k00008", mapping={"app_id": 9, "unread": 2})
            one.hset("presence:only", "app_id", 1)
            code, out, err = differ(capsys, ours, "a", b.address, "--settle", "0.1")
            assert (code, err) == (1, "")
            assert out.splitlines() == [
                f"k00007: token is 'x' at a, '' at {b.address}".replace("'", '"'),
                f"k00008: app_id is 8 at a, 9 at {b.address}",
                f"k00008: unread is 0 at a, 2 at {b.address}",
                "only: only at a",
                f"3 rows of 2,101 differ between a and {b.address}; 2,098 rows with the same "
                "values and different stamps",
            ]
            code, out, _ = differ(
                capsys, ours, "a", b.address, "--settle", "0.1", "--json", "--limit", "2"
            )
            assert [json.loads(line) for line in out.splitlines()] == [
                {"key": "k00007", "differs": {"token": ["x", ""]}},
                {"key": "k00008", "differs": {"app_id": [8, 9], "unread": [0, 2]}},
            ]
            for cursor, said in (("x", "there is no scan"), ("0 x", "wrong arguments")):
                words = [*cursor.split(), "10"][:2]
                with pytest.raises(ResponseError, match=said):
                    one.execute_command("NODE", "SCAN", *words)


def test_nodes_of_two_logs_are_compared_by_their_rows(
    ours: NodeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with node_cluster(tmp_path, "a") as theirs:
        a = ours.nodes["a"]
        emptied(a)
        with client(a) as one, client(theirs.nodes["a"]) as other:
            # One that the other test has too: what is deleted is compared as well.
            one.hset("presence:k00001", "app_id", 1)
            other.hset("presence:k00001", "app_id", 2)
        place = theirs.nodes["a"].address
        code, out, _ = differ(capsys, ours, "a", place, "--settle", "0.1")
        assert code == 1
        assert f"k00001: app_id is 1 at a, 2 at {place}\n1 row of " in out
