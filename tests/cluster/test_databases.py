"""Databases behind nodes: real nodes, engines and databases that end in the middle."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.node.test_node import Nodes, client, has, increased
from tests.cluster.node.test_operating import figure, status
from tests.cluster.nodes import NodeProcess, eventually
from tests.hub.servers import needs_hub
from tests.worker.process.postgresql import Server, postgresql


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    needs_hub()
    with ExitStack() as stack:
        yield Nodes(stack, tmp_path)


@pytest.fixture(scope="module")
def postgresql_url() -> Iterator[str]:
    with postgresql("-c", "fsync=off", "-c", "synchronous_commit=off") as url:
        yield url


def asked(url: str, sql: str) -> list[tuple[Any, ...]]:
    if url.startswith("sqlite://"):
        with closing(sqlite3.connect(url.removeprefix("sqlite://"), isolation_level=None)) as one:
            return one.execute(sql).fetchall()
    import psycopg

    with psycopg.connect(url, autocommit=True) as other:
        done = other.execute(sql.encode())
        return list(done.fetchall()) if done.description else []


def rows(url: str) -> dict[str, int]:
    sql = "SELECT interlock_key, unread FROM presence WHERE interlock_alive"
    return {bytes(key).decode(): value for key, value in asked(url, sql)}


def mark(url: str) -> dict[str, int]:
    ((text,),) = asked(url, "SELECT mark FROM presence_mark")
    found: dict[str, int] = json.loads(text)
    return found


def written(url: str, wanted: dict[str, int], *running: NodeProcess) -> None:
    eventually(lambda: rows(url) == wanted, lambda: f"{rows(url)} {[one.log for one in running]}")


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if getattr(request, "param", "sqlite") == "sqlite":
        yield f"sqlite://{tmp_path}/rows.db"
        return
    found = request.getfixturevalue("postgresql_url")
    for table in ("presence", "presence_mark", "presence_layouts"):
        asked(found, f"DROP TABLE IF EXISTS {table}")
    yield found


both = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)


@both
def test_a_database_is_complete_after_its_node_is_killed(nodes: Nodes, url: str) -> None:
    a = nodes.start("a", "--database", url)
    for number in range(1, 3):
        for key in "abc":
            increased(a, key)
        a.kill()
        a = nodes.start("a", "--database", url)
        written(url, dict.fromkeys("abc", number), a)
        assert mark(url)["epoch"] == 0, "it continued where it was"
    with client(a) as one:
        assert one.delete("presence:b") == 1
    written(url, {"a": 2, "c": 2}, a)


@both
def test_an_emptied_engine_is_restored_from_a_database(nodes: Nodes, url: str) -> None:
    a = nodes.start("a", "--database", url)
    wanted = {f"k{number}": number for number in range(300)}
    with client(a) as one, one.pipeline(transaction=False) as many:
        for key, value in wanted.items():
            many.hincrby(f"presence:{key}", "unread", value)
        many.hset("presence:gone", "unread", 1)
        many.delete("presence:gone")
        many.execute()
    written(url, wanted, a)
    a.kill()
    nodes.lose_all()
    # Another machine: it has neither the files nor the table of the first.
    b = nodes.start("b", "--database", url)
    assert increased(b, "k7") == 8
    with nodes.table("b") as table:
        assert len(table) == 300
    written(url, wanted | {"k7": 8}, b)
    # It is an ordinary part of the log: a node without a database has it too.
    eventually(partial(has, nodes.start("c"), "k299", 299))


def test_a_database_that_missed_a_loss_converges_with_the_nodes(nodes: Nodes, url: str) -> None:
    a, b = nodes.start("a", "--database", url), nodes.start("b")
    for _ in range(20):
        increased(a, "n")
    written(url, {"n": 20}, a)
    a.kill()
    nodes.lose_all()
    # The others put back the lost entries, and continue.
    eventually(partial(has, b, "n", 20), lambda: b.log)
    for _ in range(5):
        increased(b, "n")
    increased(b, "m")
    a = nodes.start("a", "--database", url)
    written(url, {"n": 25, "m": 1}, a, b)
    assert mark(url)["epoch"] > 0
    assert increased(a, "n") == 26
    written(url, {"n": 26, "m": 1}, a, b)


def test_rows_only_a_database_has_are_added_to_a_log_with_rows(nodes: Nodes, url: str) -> None:
    a = nodes.start("a", "--database", url)
    increased(a, "n", 3)
    increased(a, "m", 1)
    written(url, {"n": 3, "m": 1}, a)
    a.kill()
    nodes.lose_all()
    b = nodes.start("b")
    increased(b, "n", 10)
    increased(b, "o", 5)
    c = nodes.start("c", "--database", url)
    for node in (b, c):
        for key, value in {"n": 13, "m": 1, "o": 5}.items():
            eventually(partial(has, node, key, value), lambda: b.log + c.log)
    written(url, {"n": 13, "m": 1, "o": 5}, b, c)


def test_a_database_of_another_history_is_refused_unless_requested(
    nodes: Nodes, tmp_path: Path
) -> None:
    url = f"sqlite://{tmp_path}/old.db"
    a = nodes.start("a", "--database", url)
    increased(a, "n", 3)
    written(url, {"n": 3}, a)
    a.kill()
    nodes.lose_all()
    old = mark(url) | {"time": 1}
    asked(url, f"UPDATE presence_mark SET mark = '{json.dumps(old)}'")
    b = nodes.start("b")
    increased(b, "m")
    c = nodes.start("c", "--database", url)
    assert c.process.wait(60) == 1
    c.says("rows that were deleted since would come back")
    c.says("--from-database")
    assert rows(url) == {"n": 3}
    d = nodes.start("d", "--database", url, "--from-database")
    eventually(partial(has, d, "n", 3), lambda: d.log)
    written(url, {"n": 3, "m": 1}, d)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_one_of_two_nodes_continues_a_database_when_the_other_ends(nodes: Nodes, url: str) -> None:
    a, b = (nodes.start(name, "--database", url) for name in "ab")
    for _ in range(30):
        increased(a, "n")
        increased(b, "m")
    written(url, {"n": 30, "m": 30}, a, b)
    a.kill()
    for _ in range(30):
        increased(b, "m")
    written(url, {"n": 30, "m": 60}, b)
    assert mark(url)["epoch"] == 0


def test_a_failing_database_sets_a_metric_until_it_recovers(nodes: Nodes, url: str) -> None:
    a = nodes.start("a", "--database", url)
    increased(a, "n")
    written(url, {"n": 1}, a)
    failing = partial(figure, a, "interlock_node_database_failing")
    asked(url, "ALTER TABLE presence RENAME TO elsewhere")
    increased(a, "n")
    eventually(lambda: failing() == 1, lambda: a.log)
    assert figure(a, "interlock_node_database_waiting_rows") == 1
    assert figure(a, "interlock_node_database_lag_seconds") > 0
    asked(url, "ALTER TABLE elsewhere RENAME TO presence")
    written(url, {"n": 2}, a)
    eventually(lambda: failing() == 0, lambda: a.log)


def test_nodes_start_and_work_while_their_database_is_away(nodes: Nodes) -> None:
    with Server("-c", "fsync=off") as server:
        flags = ("--database", server.url)
        a = nodes.start("a", *flags)
        increased(a, "n")
        written(server.url, {"n": 1}, a)
        server.kill()
        increased(a, "n")
        a.says("cannot write to the database, rows are waiting")
        a.kill()
        # The log has the rows: only who finds it empty must wait for the database.
        a = nodes.start("a", *flags)
        assert increased(a, "n") == 3
        a.says("Connection refused")
        assert "start it; the node continues by itself" in status(a)["database"]["error"]
        a.kill()
        nodes.lose_all()
        b = nodes.start("b", *flags)
        b.says("Connection refused")
        assert status(b)["state"] == "joining"
        server.start()
        assert increased(b, "n") == 2, "what the database had not received is lost with all else"
        written(server.url, {"n": 2}, b)
        assert status(b)["database"]["written"] == 1, "what came from there is not written back"


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_database_that_refuses_the_node_is_an_error_with_advice(nodes: Nodes, url: str) -> None:
    a = nodes.start("a", "--database", url)
    increased(a, "n")
    written(url, {"n": 1}, a)
    asked(url, "DROP ROLE IF EXISTS reader")
    asked(url, "CREATE ROLE reader LOGIN")
    for wrong, words in {
        url.replace("//bank@", "//reader@"): "the user needs CREATE on the schema, or SELECT",
        url.replace("/postgres", "/elsewhere"): "does not exist; create it, or correct --database",
        "sqlite:///proc/rows.db": "its folder must exist",
    }.items():
        b = NodeProcess("b", nodes.url, nodes.folder, "--database", wrong)
        nodes.stack.callback(b.close)
        assert b.process.wait(60) == 1
        b.says(words)
    asked(url, "ALTER ROLE reader SUPERUSER")
    asked(url, "ALTER ROLE reader SET default_transaction_read_only = on")
    a.kill()
    b = nodes.start("b", "--database", url.replace("//bank@", "//reader@"))
    increased(b, "m")
    b.says("it is read-only: name the primary")
