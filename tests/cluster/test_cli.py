"""`interlock cluster`: what it shows of real nodes, and what it has them do."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.cli import main
from interlock.hub.client import Client
from tests.cluster.nodes import (
    NodeCluster,
    Presence,
    eventually,
    node_cluster,
    two_data_centres,
)

Run = Callable[..., "Done"]


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(nodes: NodeCluster, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, url: str = nodes.url) -> Done:
        capsys.readouterr()
        code = main(["cluster", *words, "--url", url])
        told = capsys.readouterr()
        return Done(code, told.out, told.err)

    return run


def test_status_is_a_picture(nodes: NodeCluster, run: Run) -> None:
    primary = nodes.primary()
    done = run("status")
    assert done.code == 0
    head, who, _, columns, *rows = done.out.splitlines()
    assert head == f"cluster presence at {nodes.url}"
    assert re.match(
        rf"main: {primary} is the primary for .+, since \d{{4}}-.+, under token \d+; "
        r"writes are answered when the primary has them",
        who,
    )
    assert columns.split() == [
        *("node", "dc", "role", "address", "change", "behind", "lag", "rows", "up"),
    ]
    assert [row.split()[:4] for row in rows[:3]] == [
        [name, "main", "primary" if name == primary else "replica", nodes.nodes[name].address]
        for name in ("a1", "a2", "a3")
    ]


def test_status_says_who_does_not_answer(nodes: NodeCluster, run: Run) -> None:
    replica = nodes.replicas()[0]
    nodes.nodes[replica].kill()
    done = run("status")
    assert done.code == 1
    assert re.search(rf"^{replica} +main +NO ANSWER", done.out, re.MULTILINE)
    assert f"{replica}: {nodes.nodes[replica].address} does not answer" in done.out
    told = {one["id"]: one for one in run("status", "--json").records}
    assert "does not answer" in told[replica]["error"]
    assert told[nodes.primary()]["rules"].startswith("app_id: U32, unread: U32, token: str[8]; ")


def test_nodes_are_listed(nodes: NodeCluster, run: Run) -> None:
    done = run("nodes")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == ["node", "a1", "a2", "a3"]
    told = run("nodes", "--json").records
    assert {one["address"] for one in told} == {node.address for node in nodes.nodes.values()}
    assert run("nodes", url=f"{nodes.url}-none").out == "no nodes of cluster 'presence-none'\n"
    assert run("status", url=f"{nodes.url}-none").code == 1


def test_failover_has_another_be_the_primary(nodes: NodeCluster, run: Run) -> None:
    before = nodes.primary()
    done = run("failover")
    assert done.code == 0
    found = re.match(
        rf"(a\d) is the primary under token \d+, after {before}; it took .* s", done.out
    )
    assert found is not None
    assert found[1] != before
    eventually(lambda: nodes.primary() == found[1])
    wanted = next(name for name in nodes.replicas() if name != before)
    told = run("failover", wanted, "--json").records
    assert [(one["before"], one["primary"]) for one in told] == [(found[1], wanted)]
    eventually(lambda: nodes.primary() == wanted)
    refused = run("failover", wanted)
    assert (refused.code, refused.out) == (1, "")
    assert f"{wanted} is the primary" in refused.err
    refused = run("failover", "a9")
    assert refused.code == 1
    assert "cluster 'presence' has no node 'a9'; there are a1, a2, a3" in refused.err


def test_a_drained_node_is_no_primary_and_says_so(nodes: NodeCluster, run: Run) -> None:
    before = nodes.primary()
    done = run("drain", before)
    assert done.code == 0
    assert done.out.startswith(f"{before} is drained; the primary is ")
    told = {one["id"]: one for one in run("nodes", "--json").records}
    assert told[before]["draining"]
    assert nodes.primary() != before
    assert re.search(rf"^{before} .* replica, draining", run("status").out, re.MULTILINE)
    # It is so until it is started anew.
    nodes.nodes[before].kill()
    nodes.heal()
    eventually(lambda: not any(one["draining"] for one in run("nodes", "--json").records))


def test_a_replica_takes_a_snapshot(nodes: NodeCluster, run: Run) -> None:
    with interlock.connect(nodes.url) as client:
        client.table("presence", Presence)["k"] = Presence(app_id=1)
    done = run("resync", nodes.replicas()[0])
    assert done.code == 0, done.err
    assert "has taken a snapshot" in done.out
    refused = run("resync", nodes.primary())
    assert refused.code == 1
    assert "it is the primary" in refused.err


def test_equal_nodes_are_told_to_be_equal(nodes: NodeCluster, run: Run) -> None:
    with interlock.connect(nodes.url) as client:
        table = client.table("presence", Presence)
        table.update({str(n): Presence(app_id=n) for n in range(300)})
        table.incr("7", "unread")
        del table["8"]
    done = run("diff", "a1", "a2")
    assert done.code == 0, done.out + done.err
    assert done.out.startswith("a1 and a2 are equal: ")
    other = nodes.nodes["a3"].address
    assert run("diff", "a1", other, "--json").records == []


def test_who_writes_meanwhile_is_no_difference(nodes: NodeCluster, run: Run) -> None:
    import threading

    ends = threading.Event()
    with interlock.connect(nodes.url) as client:
        table = client.table("presence", Presence)
        table["hot"] = Presence(app_id=1)

        def write() -> None:
            while not ends.is_set():
                table.incr("hot", "unread")
                table["hot2"] = Presence(app_id=1)
                table.pop("hot2", None)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            done = run("diff", "a1", "a2")
        finally:
            ends.set()
            writer.join()
        assert done.code == 0, done.out


def test_what_differs_is_named(nodes: NodeCluster, run: Run) -> None:
    # A replica that hangs lacks what comes then; its lag is what differs.
    with interlock.connect(nodes.url) as client:
        table = client.table("presence", Presence)
        table.update({"x": Presence(app_id=1, token="t"), "gone": Presence(app_id=1)})
        assert run("diff", "a1", "a2").code == 0
    with other_cluster(nodes) as address:
        done = run("diff", "a1", address, "--settle", "0.1", "--limit", "1000")
        assert done.code == 1
        lines = done.out.splitlines()
        assert "x: app_id is 1 at a1, 2 at " + address in lines
        assert 'x: token is "t" at a1, "" at ' + address in lines
        assert "gone: only at a1" in lines
        assert f"there: only at {address}" in lines
        assert re.match(rf"\d+ rows of [\d,]+ differ between a1 and {address}", lines[-1])
        told = run("diff", "a1", address, "--settle", "0.1", "--json", "--limit", "1000")
        assert told.code == 1
        differs = {one["key"]: one["differs"] for one in told.records}
        assert differs["x"] == {"app_id": [1, 2], "token": ["t", ""]}
        assert differs["there"] == {"app_id": [None, 3], "unread": [None, 0], "token": [None, ""]}
        short = run("diff", "a1", address, "--settle", "0.1", "--limit", "1").out.splitlines()
        assert len([line for line in short if " only at " in line or " is " in line]) <= 3


def other_cluster(nodes: NodeCluster) -> Any:
    """The address of a node that shares nothing with these, and has a few rows."""
    import tempfile
    from contextlib import contextmanager

    @contextmanager
    def opened() -> Iterator[str]:
        with (
            tempfile.TemporaryDirectory() as folder,
            node_cluster(Path(folder), "b1") as other,
            interlock.connect(other.url) as client,
        ):
            table = client.table("presence", Presence)
            table.update({"x": Presence(app_id=2), "there": Presence(app_id=3)})
            yield other.nodes["b1"].address

    return opened()


def test_data_centres_are_seen_and_compared(run: Run, tmp_path: Path) -> None:
    with (
        two_data_centres(tmp_path) as (east, west),
        interlock.connect(east.url) as here,
        interlock.connect(west.url) as there,
    ):
        table, other = here.table("presence", Presence), there.table("presence", Presence)
        table["k"] = Presence(app_id=1)
        eventually(lambda: "k" in other)
        table.incr("k", "unread", 2)
        other.incr("k", "unread", 3)
        eventually(lambda: table["k"].unread == other["k"].unread == 5)
        eventually(lambda: "east <- west" in run("status", url=east.url).out)
        done = run("status", url=east.url)
        assert done.code == 0
        assert re.search(r"^east <- west +ok +\d+ ms +\S+ ms ago", done.out, re.MULTILINE), done.out
        address = west.nodes["w1"].address
        done = run("diff", "e1", address, url=east.url)
        assert (done.code, done.out) == (0, f"e1 and {address} are equal: 1 key\n")


def test_what_cannot_be_done_is_told_in_a_line(nodes: NodeCluster, run: Run) -> None:
    for words, url, code, why in (
        (["status"], "redis://127.0.0.1:1", 2, "names no cluster"),
        (["status"], "interlock+cluster://127.0.0.1:1", 2, "names no cluster"),
        (["status"], "nonsense", 2, "connect(): url is 'nonsense'"),
        (["status"], "interlock+cluster://127.0.0.1:1/c?timeout=0.2", 1, "did not answer"),
        (["resync", "a9"], nodes.url, 1, "has no node 'a9'; there are a1, a2, a3"),
        (["drain", "a9"], f"{nodes.url}-none", 1, "no node of cluster"),
        (["diff", "a1", "127.0.0.1:1"], nodes.url, 1, "127.0.0.1:1 does not answer"),
        (["diff", "a1", nodes.engine_url[8:]], nodes.url, 1, "something else than a node"),
    ):
        done = run(*words, url=url)
        assert (done.code, done.out) == (code, ""), words
        assert why in done.err
        assert done.err.count("\n") == 1


def test_a_cluster_that_nobody_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    assert main(["cluster", "status"]) == 2
    assert "no cluster is named; --url or INTERLOCK_URL" in capsys.readouterr().err


def test_a_node_that_hangs_is_told_as_that(nodes: NodeCluster, run: Run) -> None:
    replica = nodes.replicas()[0]
    process = nodes.nodes[replica].process
    process.send_signal(signal.SIGSTOP)
    try:
        done = run("status", url=f"{nodes.url}?timeout=0.5")
    finally:
        process.send_signal(signal.SIGCONT)
    assert done.code == 1
    assert f"{replica}: " in done.out
    with Client(nodes.nodes[replica].address, timeout=20) as client:
        assert client.call("PING") == "PONG"
