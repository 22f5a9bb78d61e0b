"""`interlock node`, one and several of them, over real engines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, ResponseError

from interlock import SharedTable
from tests.cluster.nodes import NodeCluster, NodeProcess, Presence, eventually, node_cluster
from tests.hub.manager import manager
from tests.hub.servers import INTERLOCK, redis_server


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeCluster]:
    with node_cluster(tmp_path) as made:
        yield made


def client(node: NodeProcess, **options: Any) -> Any:
    host, port = node.address.rsplit(":", 1)
    return Redis(host, int(port), socket_timeout=20, decode_responses=True, **options)


def status(node: NodeProcess) -> dict[str, Any]:
    with client(node) as asked:
        found: dict[str, Any] = json.loads(asked.execute_command("NODE", "STATUS"))
        return found


def test_any_node_takes_any_command_and_shows_what_it_took(nodes: NodeCluster) -> None:
    nodes.start("a", "b")
    for number, name in enumerate(("a", "b", "a", "b")):
        with client(nodes.nodes[name]) as asked:
            assert asked.hincrby("presence:alice", "unread", 5) == 5 * (number + 1)
            # What a node answered for, it shows.
            assert asked.hget("presence:alice", "unread") == str(5 * (number + 1))
    for name in ("a", "b"):
        with client(nodes.nodes[name]) as asked:
            eventually(lambda: asked.hget("presence:alice", "unread") == "20")


def test_the_table_is_there_for_processes_of_the_machine(
    nodes: NodeCluster, tmp_path: Path
) -> None:
    nodes.start("a")
    with client(nodes.nodes["a"]) as asked:
        asked.hset("presence:alice", mapping={"app_id": 7, "token": "t"})
    place = tmp_path / "a"
    with SharedTable.attach(place, Presence) as table:
        assert table["alice"] == Presence(app_id=7, unread=0, token="t")


def test_a_primary_that_hands_over_loses_nobody(nodes: NodeCluster) -> None:
    nodes.start("a", "b")
    done = 0
    for _ in range(3):
        primary = nodes.nodes[nodes.primary()]
        other = next(node for node in nodes.nodes.values() if node is not primary)
        with client(primary) as asked, client(other) as told:
            # It knows of the other a second after that was announced.
            eventually(lambda: status(primary)["nodes"])  # noqa: B023
            assert asked.execute_command("NODE", "FAILOVER") in ("OK", b"OK")
            # Not refused, and not repeated: it waits for the next primary.
            assert told.hincrby("presence:n", "unread", 1) == done + 1
            assert asked.hincrby("presence:n", "unread", 1) == done + 2
        done += 2
        nodes.settled("a", "b")
        eventually(lambda: nodes.primary() == other.name)  # noqa: B023


def test_who_lacks_changes_takes_a_snapshot(nodes: NodeCluster) -> None:
    nodes.start("a", flags=("--keep", "10"))
    with client(nodes.nodes["a"]) as asked, asked.pipeline(transaction=False) as pipe:
        for number in range(2_000):
            pipe.hset(f"presence:k{number}", "app_id", number)
        pipe.delete("presence:k7")
        pipe.execute()
    # An engine trims by whole blocks of its own; here all but the last entry are gone.
    with Redis.from_url(nodes.engine_url) as engine:
        engine.xtrim("il:stream:{presence}", maxlen=1, approximate=False)
    nodes.start("b", flags=("--keep", "10"))
    assert status(nodes.nodes["b"])["resyncs"] == 1
    with client(nodes.nodes["b"]) as asked:
        assert asked.hget("presence:k1999", "app_id") == "1999"
        assert not asked.exists("presence:k7")
        assert asked.hincrby("presence:k5", "unread", 2) == 2


def test_rows_beyond_the_capacity_are_refused(nodes: NodeCluster) -> None:
    nodes.start("a", flags=("--capacity", "20"))
    with client(nodes.nodes["a"]) as asked:
        for number in range(20):
            asked.hset(f"presence:k{number}", "app_id", 1)
        with pytest.raises(ResponseError, match="TABLEFULL"):
            asked.hset("presence:more", "app_id", 1)
        # Of those that are there, anything is changed.
        assert asked.hincrby("presence:k0", "unread", 1) == 1
        assert not asked.exists("presence:more")


def test_a_node_of_other_columns_or_another_data_centre_ends(
    nodes: NodeCluster, tmp_path: Path
) -> None:
    nodes.start("a")
    other = tmp_path / "other.py"
    other.write_text("from interlock import Row, U8\nclass Presence(Row):\n    app_id: U8\n")
    for flags, said in (
        (("--table", f"presence={other}:Presence"), "app_id: U8"),
        (("--table", f"presence={_row(tmp_path)}:Presence", "--dc", "west"), "data centre main"),
    ):  # fmt: skip
        ended = subprocess.run(
            [INTERLOCK, "node", *flags, "--cluster", nodes.engine_url, "--name", "b",
             "--port", "0", "--path", tmp_path / "b.table"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert ended.returncode == 1, ended.stderr
        assert said in ended.stderr
        (tmp_path / "b.table").unlink()


def test_reads_are_refused_where_the_primary_is_not_heard_of(nodes: NodeCluster) -> None:
    nodes.start("a", "b", flags=("--max-staleness", "1.5"))
    with client(nodes.nodes["a"]) as asked:
        asked.hset("presence:x", "app_id", 1)
        with Redis.from_url(nodes.engine_url) as engine:
            engine.client_pause(6_000)

            def is_refused() -> bool:
                try:
                    asked.hget("presence:x", "app_id")
                except ResponseError as error:
                    return bool(str(error).startswith("STALE"))
                return False

            eventually(is_refused)
            engine.client_unpause()

        def is_back() -> bool:
            try:
                return bool(asked.hget("presence:x", "app_id") == "1")
            except ResponseError:
                return False

        eventually(is_back)


def test_an_acknowledged_write_is_at_so_many_replicas(nodes: NodeCluster) -> None:
    nodes.start("a", "b", "c", flags=("--ack", "2"))
    primary = nodes.nodes[nodes.primary()]
    others = [node for node in nodes.nodes.values() if node is not primary]
    with client(primary) as asked:
        for number in range(1, 30):
            assert asked.hincrby("presence:x", "unread", 1) == number
            for node in others:
                with client(node) as read:
                    assert read.hget("presence:x", "unread") == str(number)
    with client(others[0]) as asked:
        assert asked.hincrby("presence:x", "unread", 1) == 30
    others[0].kill()
    with client(primary) as asked, pytest.raises(ResponseError, match="NOACK"):
        asked.hincrby("presence:x", "unread", 1)


def test_rows_come_back_from_the_database(tmp_path: Path) -> None:
    with ExitStack() as stack:
        _, port = stack.enter_context(redis_server(tmp_path))
        url = f"redis://127.0.0.1:{port}"
        flags = ("--data", str(tmp_path / "data"))
        node = NodeProcess("a", url, tmp_path, *flags)
        stack.callback(node.close)
        node.wait()
        with client(node) as asked:
            eventually(lambda: status(node)["role"] == "primary")
            asked.hset("presence:x", mapping={"app_id": 3, "unread": 5})
            asked.hset("presence:y", "app_id", 4)
            asked.delete("presence:y")
            eventually(lambda: status(node)["database"]["waiting"] == 0)
        node.kill()
        with Redis.from_url(url) as engine:
            engine.flushall()
        again = NodeProcess("a", url, tmp_path, *flags)
        stack.callback(again.close)
        again.wait()
        with client(again) as asked:
            eventually(lambda: status(again)["role"] == "primary")
            eventually(lambda: _read(asked) == {"app_id": "3", "unread": "5", "token": ""})
            assert not asked.exists("presence:y")
            assert asked.hincrby("presence:x", "unread", 1) == 6


def _read(asked: Any) -> Any:
    try:
        return asked.hgetall("presence:x")
    except ResponseError:
        return None


def test_rows_of_an_earlier_life_are_cleared(nodes: NodeCluster) -> None:
    nodes.start("a", "b")
    with client(nodes.nodes["b"]) as asked:
        asked.hset("presence:gone", "app_id", 1)
        asked.hset("presence:kept", "app_id", 1)
    nodes.nodes["a"].kill()
    with client(nodes.nodes["b"]) as asked:
        eventually(lambda: status(nodes.nodes["b"])["role"] == "primary")
        asked.delete("presence:gone")
    nodes.heal()
    with client(nodes.nodes["a"]) as asked:
        assert not asked.exists("presence:gone")
        assert asked.exists("presence:kept")


def _row(folder: Path) -> Path:
    path = folder / "row.py"
    path.write_text("from interlock import Row, U32\nclass Presence(Row):\n    app_id: U32\n")
    return path


def test_wrong_flags_are_told(tmp_path: Path) -> None:
    row = f"presence={_row(tmp_path)}:Presence"
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name")
    for flags, said in (
        (("--table", row, "--cluster", "redis://h", "--link", "west"), "DC=URL"),
        (("--table", row, "--cluster", "redis://h", "--ack", "some"), "allowed: 0"),
        (("--table", row, "--cluster", "http://h"), "allowed: memory"),
        (("--table", "presence", "--cluster", "redis://h"), "NAME=FILE.py:CLASS"),
        (("--table", f"p={broken}:P", "--cluster", "redis://h"), "cannot be imported"),
        (("--table", "p=nowhere.py:P", "--cluster", "redis://h"), "there is no file"),
        (("--table", row, "--cluster", "redis://h", "--dc", "west", "--link", "west=redis://h"),
         "own data centre"),
        (("--table", row, "--cluster", "redis://h", "--max-staleness", "0.1"), "heard every"),
    ):  # fmt: skip
        ended = subprocess.run(
            [INTERLOCK, "node", *flags], capture_output=True, text=True, timeout=60, cwd=tmp_path
        )
        assert ended.returncode == 2, (flags, ended.stderr)
        assert said in ended.stderr, (flags, ended.stderr)


def test_a_node_says_to_its_service_manager_when_it_is_ready_alive_and_stopping(
    nodes: NodeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "notify")
    with manager(address) as systemd:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        nodes.start("a")
        said = systemd.said()
        node = nodes.nodes["a"]
        assert (said["READY"], said["MAINPID"]) == ("1", str(node.process.pid))
        assert said["STATUS"] == f"ready on {node.address}"
        for _ in range(2):
            systemd.until("WATCHDOG")
        node.process.terminate()
        systemd.until("STOPPING")
        assert node.process.wait(30) == 0


def test_rows_of_a_database_reach_a_primary_that_began_without_them(
    nodes: NodeCluster, tmp_path: Path
) -> None:
    # Each has a database of its own, that of the primary alone has rows.
    flags = {name: ("--data", str(tmp_path / f"data-{name}")) for name in ("a", "b")}
    nodes.start("a", flags=flags["a"])
    nodes.start("b", flags=flags["b"])
    with client(nodes.nodes["a"]) as asked:
        asked.hset("presence:alice", mapping={"app_id": 7, "unread": 3})
        asked.hset("presence:bob", mapping={"app_id": 8})
    eventually(lambda: status(nodes.nodes["a"])["database"]["written"] >= 2)
    eventually(lambda: status(nodes.nodes["a"])["database"]["waiting"] == 0)
    for name in ("a", "b"):
        nodes.nodes[name].kill()
    with Redis.from_url(nodes.engine_url) as engine:
        engine.flushall()
    nodes.start("b", flags=flags["b"])
    with client(nodes.nodes["b"]) as asked:
        assert asked.hincrby("presence:alice", "unread", 10) == 10
        nodes.start("a", flags=flags["a"])
        eventually(lambda: asked.hmget("presence:alice", "app_id", "unread") == ["7", "13"])
        assert asked.hget("presence:bob", "app_id") == "8"
