"""`interlock cluster`: what it shows of real nodes, and what it has them do."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable
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


def test_cluster_status_lists_nodes(nodes: NodeCluster, run: Run) -> None:
    done = run("nodes")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == ["node", "a1", "a2", "a3"]
    told = run("nodes", "--json").records
    assert {one["address"] for one in told} == {node.address for node in nodes.nodes.values()}
    assert run("nodes", url=f"{nodes.url}-none").out == "no nodes of cluster 'presence-none'\n"
    assert run("status", url=f"{nodes.url}-none").code == 1


def test_rows_written_during_a_diff_are_not_reported(nodes: NodeCluster, run: Run) -> None:
    ends = threading.Event()
    with interlock.connect(nodes.url) as client:
        table = client.table("presence", Presence)
        table["hot"] = Presence(app_id=1)

        def write() -> None:
            while not ends.wait(0.02):
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


def test_cluster_status_shows_data_centres_and_links(run: Run, tmp_path: Path) -> None:
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
        row = r"^east -> west +e1 +ok +\d+ ms +\d+ ms ago +\d+ +\d+"
        eventually(lambda: re.search(row, run("status", url=east.url).out, re.MULTILINE))
        assert run("status", url=east.url).code == 0
        done = run("diff", "e1", west.nodes["w1"].address, url=east.url)
        assert (done.code, done.out) == (0, f"e1 and {west.nodes['w1'].address} are equal: 1 key\n")


def test_cluster_status_shows_the_database(run: Run, tmp_path: Path) -> None:
    flags = ("--database", f"sqlite://{tmp_path}/rows.sqlite")
    with node_cluster(tmp_path, "d1", flags=flags) as nodes:
        with interlock.connect(nodes.url) as client:
            client.table("presence", Presence)["k"] = Presence(app_id=1)
        row = rf"^d1 +sqlite://{tmp_path}/rows.sqlite +0 ms +0 +1"
        eventually(lambda: re.search(row, run("status", url=nodes.url).out, re.MULTILINE))


def test_an_error_of_a_cluster_command_is_one_line(nodes: NodeCluster, run: Run) -> None:
    for words, url, code, why in (
        (["status"], "redis://127.0.0.1:1", 2, "names no cluster"),
        (["status"], "interlock+cluster://127.0.0.1:1", 2, "names no cluster"),
        (["status"], "nonsense", 2, "connect(): url is 'nonsense'"),
        (["status"], "interlock+cluster://127.0.0.1:1/c?timeout=0.2", 1, "did not answer"),
        (["resync", "a9"], nodes.url, 1, "has no node 'a9'; it has a1, a2, a3"),
        (["drain", "a9"], f"{nodes.url}-none", 1, "no node of cluster"),
        (["diff", "a1", "127.0.0.1:1"], nodes.url, 1, "127.0.0.1:1 does not answer"),
        (["diff", "a1", nodes.engine_url[8:]], nodes.url, 1, "that is not a node"),
    ):
        done = run(*words, url=url)
        assert (done.code, done.out) == (code, ""), words
        assert why in done.err
        assert done.err.count("\n") == 1


def test_a_cluster_command_without_a_cluster_name_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    assert main(["cluster", "status"]) == 2
    assert "no cluster is named; set --url or INTERLOCK_URL" in capsys.readouterr().err


def test_a_node_that_hangs_is_reported_as_not_answering(nodes: NodeCluster, run: Run) -> None:
    hung = "a2"
    process = nodes.nodes[hung].process
    process.send_signal(signal.SIGSTOP)
    try:
        done = run("status", url=f"{nodes.url}?timeout=2")
    finally:
        process.send_signal(signal.SIGCONT)
    assert done.code == 1
    assert f"{hung}: " in done.out
    with Client(nodes.nodes[hung].address, timeout=20) as client:
        assert client.call("PING") == "PONG"
