"""Nodes as operators, load balancers and `interlock+cluster://` clients see them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from redis import ConnectionError, Redis, ResponseError

import interlock
from interlock.cli import main
from interlock.client.rows.announcements import Announcement, announce, withdraw
from tests.cluster.nodes import NodeCluster, NodeProcess, Presence, eventually, node_cluster
from tests.hub.servers import INTERLOCK


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with node_cluster(tmp_path_factory.mktemp("log"), "a", "b") as made:
        yield made


@pytest.fixture
def nodes(two: NodeCluster) -> NodeCluster:
    """Two nodes that are well; tests may end or drain them."""
    for one in two.announced():
        if one.draining:
            two.nodes[one.id].kill()
    two.heal()
    # One that was killed may still be missed by the other.
    eventually(lambda: not any(status(node)["trouble"] for node in two.nodes.values()))
    return two


def client(node: NodeProcess) -> Any:
    host, port = node.address.rsplit(":", 1)
    return Redis(host, int(port), socket_timeout=20, decode_responses=True)


def status(node: NodeProcess) -> dict[str, Any]:
    with client(node) as asked:
        found: dict[str, Any] = json.loads(asked.execute_command("NODE", "STATUS"))
        return found


def page(node: NodeProcess, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{node.http}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def figure(node: NodeProcess, name: str) -> float:
    """Return a figure of its metrics."""
    lines = page(node, "/metrics")[1].splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def run(
    capsys: pytest.CaptureFixture[str], nodes: NodeCluster, *words: str
) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["cluster", *words, "--url", nodes.url])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_status_shows_position_lag_and_a_checksum_that_is_equal_on_equal_nodes(
    nodes: NodeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with client(nodes.nodes["a"]) as asked:
        asked.hset("presence:alice", "app_id", 7)

    def is_equal() -> bool:
        a, b = (status(nodes.nodes[name]) for name in "ab")
        if a["position"] != b["position"]:
            return False
        assert a["rows_checksum"] == b["rows_checksum"]
        assert a["log_checksum"] == b["log_checksum"]
        return bool(a["rows"])

    eventually(is_equal)
    found = status(nodes.nodes["a"])
    assert (found["state"], found["serves"], found["draining"]) == ("serving", True, False)
    assert (found["trouble"], found["waiting"], found["merged_rows"]) == ([], 0, 0)
    assert found["lag_s"] == 0 and found["lag_entries"] == 0 and found["position"] > 1
    assert found["rules"].startswith("app_id: U32, unread: U32, token: str[8]; ")
    eventually(lambda: [one["id"] for one in status(nodes.nodes["a"])["nodes"]] == ["b"])
    code, out, _ = run(capsys, nodes, "status")
    assert code == 0, out
    head, who, _, columns, *rows = out.splitlines()
    assert head == f"cluster presence at {nodes.url}"
    assert who == "main: 2 of 2 nodes take reads and writes"
    assert columns.split() == [
        *("node", "dc", "state", "address", "position", "behind", "lag", "rows", "checksum", "up"),
    ]
    assert [row.split()[:4] for row in rows] == [
        [name, "main", "serving", nodes.nodes[name].address] for name in ("a", "b")
    ]
    code, out, _ = run(capsys, nodes, "status", "--json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["a", "b"]
    code, out, _ = run(capsys, nodes, "nodes")
    assert [line.split()[2] for line in out.splitlines()] == ["role", "serving", "serving"]


def test_nodes_are_compared_by_the_checksums_of_one_position(
    nodes: NodeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with client(nodes.nodes["b"]) as asked:
        for number in range(50):
            asked.hincrby(f"presence:k{number % 7}", "unread", 1)
    code, out, err = run(capsys, nodes, "diff", "a", "b")
    assert code == 0, out + err
    assert re.match(r"a and b are equal: [\d,]+ rows at position \d+\n", out), out


def test_asking_for_a_primary_is_refused(
    nodes: NodeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "every node takes writes; there is no primary to move. To take a node out: interlock "
    said += "cluster drain ID"
    code, out, err = run(capsys, nodes, "failover", "a")
    assert (code, out, err) == (2, "", f"interlock: {said}\n")
    with client(nodes.nodes["a"]) as asked:
        with pytest.raises(ResponseError, match=re.escape(said)):
            asked.execute_command("NODE", "FAILOVER", "b")
        with pytest.raises(ResponseError, match="unknown subcommand 'OFFER'"):
            asked.execute_command("NODE", "OFFER", "1")
        assert any("RESYNC" in line for line in asked.execute_command("NODE", "HELP"))
    for path in ("/primary", "/replica?max_lag=9"):
        assert page(nodes.nodes["a"], path) == (
            410, "every node takes reads and writes; use /ready?max_lag=MS\n"
        )  # fmt: skip
    told = refused("--lease", "1")
    assert told == "--lease: nodes have no lease; --timeout limits how long a write may take"
    assert "allowed: a whole number" in refused("--ack", "all")
    assert "allowed: 2 s or more" in refused("--max-staleness", "1")


def refused(*flags: str) -> str:
    done = subprocess.run(
        [INTERLOCK, "node", "--table", f"p={Path(__file__).parents[1] / 'nodes.py'}:Presence",
         "--cluster", "redis://127.0.0.1:1", "--port", "0", *flags],
        capture_output=True, text=True, timeout=60,
        env={"PATH": "/usr/bin", "STATE_DIRECTORY": os.environ["STATE_DIRECTORY"],
             "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    return done.stderr.removeprefix("interlock: ").rstrip()


def test_health_checks_and_metrics_show_the_state_of_a_node(nodes: NodeCluster) -> None:
    a = nodes.nodes["a"]
    eventually(lambda: page(a, "/ready?max_lag=1")[0] == 200)
    assert page(a, "/ready")[0] == 200
    code, text = page(a, "/ready?max_lag=soon")
    assert (code, text) == (
        400, "/ready: max_lag is 'soon'; allowed: max_lag=MS, a number of milliseconds\n"
    )  # fmt: skip
    told = json.loads(page(a, "/health")[1])["node"]
    assert (told["id"], told["role"], told["lag_ms"], told["trouble"]) == ("a", "serving", 0, [])
    _, text = page(a, "/metrics")
    figures = dict(
        line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("interlock_node_")
    )
    assert figures["interlock_node_serves"] == "1"
    assert int(figures["interlock_node_position"]) > 1
    assert figures["interlock_node_checksum_mismatch"] == "0"
    assert figures['interlock_node_trouble{kind="engine"}'] == "0"
    assert int(figures["interlock_node_appended_bytes_total"]) > 0
    assert "# TYPE interlock_node_went_back_total counter" in text


def test_a_drained_node_takes_no_writes_and_clients_leave_it(
    nodes: NodeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with interlock.connect(f"{nodes.url}?timeout=30") as connected:
        table = connected.table("presence", Presence)
        table["drained"] = Presence(app_id=0)
        code, out, err = run(capsys, nodes, "drain", "a")
        assert (code, out) == (0, "a is drained; b takes reads and writes\n"), err
        assert page(nodes.nodes["a"], "/ready") == (503, "draining\n")
        with (
            client(nodes.nodes["a"]) as asked,
            pytest.raises(ResponseError, match="the node drains: ask another; it was not done"),
        ):
            asked.hincrby("presence:drained", "unread", 1)
        for number in range(1, 21):
            assert table.incr("drained", "unread") == number
        code, out, _ = run(capsys, nodes, "status")
        assert code == 0 and re.search(r"^a +main +serving, draining ", out, re.MULTILINE), out


def test_a_node_reloads_its_log_unless_it_is_the_last(
    nodes: NodeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with client(nodes.nodes["a"]) as asked:
        asked.hset("presence:anew", "app_id", 5)
    eventually(lambda: [one["role"] for one in status(nodes.nodes["b"])["nodes"]] == ["serving"])
    before = status(nodes.nodes["b"])
    code, out, err = run(capsys, nodes, "resync", "b")
    assert code == 0, err
    # The log has lost nothing.
    after = status(nodes.nodes["b"])
    assert (after["resyncs"], after["went_back"]) == (before["resyncs"] + 1, before["went_back"])
    assert re.match(r"b has read its log again: [\d,]+ rows? in [\d.]+ s\n", out), out
    assert run(capsys, nodes, "diff", "a", "b")[0] == 0
    nodes.nodes["a"].kill()
    eventually(lambda: status(nodes.nodes["b"])["nodes"] == [])
    code, out, err = run(capsys, nodes, "resync", "b")
    assert code == 1 and "no other node serves: rows that only this one has would be lost" in err


def test_a_node_that_does_not_answer_is_named(
    nodes: NodeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.nodes["a"].kill()
    code, out, _ = run(capsys, nodes, "status")
    assert code == 1
    assert re.search(r"^a +main +NO ANSWER", out, re.MULTILINE), out
    assert f"a: {nodes.nodes['a'].address} does not answer" in out


@pytest.mark.share(2)
def test_status_shows_the_nodes_while_their_engine_is_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen_by(who: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / who))

    with node_cluster(tmp_path, "a", "b") as made:
        a, b = made.nodes["a"], made.nodes["b"]
        made.url += "?timeout=1.5"
        eventually(lambda: all(len(status(one)["nodes"]) == 1 for one in (a, b)))
        seen_by("one who has looked before")
        assert run(capsys, made, "status")[0] == 0
        with Redis.from_url(made.engine_url) as engine, suppress(ConnectionError):
            engine.shutdown(nosave=True)

        def is_without(node: NodeProcess) -> bool:
            return "engine" in [one["kind"] for one in status(node)["trouble"]]

        eventually(lambda: is_without(a) and is_without(b))

        def is_shown(*flags: str) -> None:
            code, out, err = run(capsys, made, "status", *flags)
            assert code == 1
            assert "did not answer about the nodes" in err and "shown is what nodes say" in err
            for one in (a, b):
                assert re.search(rf"^{one.name} +main +serving +{one.address} ", out, re.MULTILINE)
                assert re.search(rf"^{one.name}: .*Connection refused", out, re.MULTILINE), out
            assert "main: 0 of 2 nodes take reads and writes" in out
            code, out, err = run(capsys, made, "status", *flags, "--json")
            assert (code, [json.loads(line)["id"] for line in out.splitlines()]) == (1, ["a", "b"])

        is_shown()
        seen_by("somebody else")
        code, out, err = run(capsys, made, "status")
        assert (code, out) == (1, "") and err.endswith("a node says: --node HOST:PORT\n"), err
        # One node names the other. One that does not answer is shown as that.
        is_shown("--node", b.address)
        b.kill()
        code, out, _ = run(capsys, made, "status", "--node", a.address)
        assert code == 1 and re.search(r"^b +main +NO ANSWER", out, re.MULTILINE), out
        code, out, _ = run(capsys, made, "status", "--node", b.address)
        assert code == 1 and re.search(rf"^- +- +NO ANSWER +{b.address}", out, re.MULTILINE), out


def test_clients_continue_at_another_node_when_theirs_is_killed(nodes: NodeCluster) -> None:
    with interlock.connect(f"{nodes.url}?timeout=30") as connected:
        table = connected.table("presence", Presence)
        table["k"] = Presence(app_id=0)
        for number in range(60):
            table.patch("k", app_id=number)
            assert table["k"].app_id == number
            if number in (20, 40):
                home = table._rows._members._home  # type: ignore[attr-defined]
                victim = next(one for one in nodes.nodes.values() if one.address == home)
                victim.kill()
            if number == 30:
                nodes.heal()


def test_a_node_reports_its_error_as_long_as_it_lasts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with node_cluster(tmp_path, "a", flags=("--max-staleness", "2")) as made:
        node = made.nodes["a"]
        with client(node) as asked, Redis.from_url(made.engine_url) as engine:
            asked.hset("presence:x", "app_id", 1)

            def is_stale() -> bool:
                with suppress(ResponseError):
                    assert asked.hget("presence:x", "app_id") == "1"
                    return False
                return True

            eventually(lambda: not is_stale())
            engine.config_set("maxmemory-policy", "allkeys-lru")
            engine.client_kill_filter(_type="normal", skipme=True)

            def says(text: str) -> bool:
                return any(text in one["text"] for one in status(node)["trouble"])

            eventually(lambda: says("maxmemory-policy"), lambda: str(status(node)))
            eventually(lambda: page(node, "/ready")[0] == 503)

            eventually(is_stale)
            _, out, _ = run(capsys, made, "status")
            assert "a: " in out and "maxmemory-policy" in out
            assert node.log.count("maxmemory-policy") == 1, node.log
            engine.config_set("maxmemory-policy", "noeviction")
            eventually(lambda: not status(node)["trouble"], lambda: str(status(node)))
            eventually(lambda: page(node, "/ready?max_lag=2000")[0] == 200)
            eventually(lambda: not is_stale())


def test_different_rows_at_the_same_position_raise_an_alarm(
    nodes: NodeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    # As a node would say that has other rows.
    a = nodes.nodes["a"]
    eventually(lambda: page(a, "/metrics")[1].count("interlock_node_checksum_mismatch 0"))
    found = status(a)
    wrong = Announcement(
        id="wrong", dc="main", role="serving", address="127.0.0.1:1", table="presence",
        position=found["position"], rows_checksum="f" * 32,
    )  # fmt: skip
    # Another history is not an alarm immediately: the engine has lost entries, and a node is to go
    # back.
    forked = structs.replace(wrong, id="forked", log_checksum="f" * 16)
    for one in (forked, wrong):
        announce(nodes.engine, "presence", one, 30_000)
    try:
        text = f"node wrong has different rows at the same position {found['position']}"
        eventually(lambda: text in [one["text"] for one in status(a)["trouble"]])
        assert "interlock_node_checksum_mismatch 1\n" in page(a, "/metrics")[1]
        code, out, _ = run(capsys, nodes, "status")
        assert code == 1
        assert (
            f"ALARM: a and wrong have different rows at the same position {found['position']}"
            in out
        )
        a.says("node a has different rows from node wrong at the same position")
    finally:
        for one in (forked, wrong):
            withdraw(nodes.engine, "presence", one.id)
    # A node that is gone is no longer reported as wrong.
    eventually(lambda: not any(status(node)["trouble"] for node in nodes.nodes.values()))
