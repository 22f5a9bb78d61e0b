"""``Client.table``: the methods of ``SharedTable``, on a hub, in memory, and refused by a Redis."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import interlock
from interlock import Row, SharedTable, Size
from interlock.client.rows.announcements import Announcement, announce
from interlock.errors import (
    EngineUnavailable,
    InterlockError,
    NotATable,
    SchemaMismatch,
    ShutDown,
    TableFull,
)
from interlock.hub import passwords
from interlock.table.kinds import U8, U32
from tests import seeds
from tests.hub.servers import needs_hub, refusing
from tests.hub.tables.tables import COLUMNS, Presence, entry, new_name


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    chosen = new_name()
    yield chosen
    SharedTable.remove(chosen)


@pytest.fixture(scope="module")
def hub(name: str) -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=2, table=[entry(name)]) as running:
        yield running


@pytest.fixture(params=["shared", "memory", "hub", "cluster"])
def table(request: pytest.FixtureRequest, name: str) -> Iterator[Any]:
    if request.param == "shared":
        own = f"{name}-own"
        with SharedTable.open(own, Presence, capacity=1000) as opened:
            yield opened
        SharedTable.remove(own)
        return
    hub: Any = request.getfixturevalue("hub") if request.param != "memory" else None
    url = "memory://" if hub is None else f"interlock://127.0.0.1:{hub.port}"
    if request.param == "cluster":
        url = announced(name, f"127.0.0.1:{hub.port}", request.getfixturevalue("redis_port"))
    with interlock.connect(url) as client:
        found = client.table(name, Presence, capacity=1000)
        found.clear()
        yield found


def announced(name: str, address: str, engine_port: int) -> str:
    """The URL of a cluster with one node."""
    with interlock.connect(f"redis://127.0.0.1:{engine_port}") as engine:
        node = Announcement(id="a1", dc="east", role="serving", address=address, table=name)
        announce(engine, name, node, 3_600_000)
    return f"interlock+cluster://127.0.0.1:{engine_port}"


ONE = Presence(app_id=666, background=True, unread=3, token="t", raw=b"\0\xff", score=-0.5)
TWO = Presence(app_id=1)


def test_it_is_a_mapping(table: Any) -> None:
    assert isinstance(table, MutableMapping)
    table["a"] = ONE
    table[7] = TWO
    assert (table["a"], table[b"7"], table.get("none"), table.get("none", 5)) == (ONE, TWO, None, 5)
    assert ("a" in table, "none" in table, len(table), bool(table)) == (True, False, 2, True)
    assert sorted(table) == sorted(table.keys()) == ["7", "a"]
    assert dict(table.items()) == {"a": ONE, "7": TWO}
    assert sorted(row.app_id for row in table.values()) == [1, 666]
    assert table == {"a": ONE, "7": TWO}
    assert table.setdefault("a", TWO) == ONE
    assert table.setdefault("b", TWO) == TWO
    table.update({"c": ONE}, d=TWO)
    assert table.pop("c") == ONE
    assert table.pop("c", None) is None
    with pytest.raises(KeyError, match="c"):
        table.pop("c")
    with pytest.raises(KeyError):
        del table["none"]
    with pytest.raises(KeyError):
        table["none"]
    with pytest.raises(TypeError):
        table.setdefault("none")
    del table["d"]
    key, row = table.popitem()
    assert key not in table
    assert row in (ONE, TWO)
    table.clear()
    assert (len(table), list(table)) == (0, [])
    table[b"\xff:"] = ONE
    assert list(table) == [b"\xff:"]


def test_columns_are_changed_one_by_one_and_at_once(table: Any) -> None:
    table["k"] = ONE
    assert table.incr("k", "unread") == 4
    assert table.incr("k", "unread", -4) == 0
    assert table.incr("k", "score", 0.25) == -0.25
    assert table.incr("k", "small", 1000, overflow="saturate") == 127
    assert table.incr("k", "unread", -1, overflow="wrap") == 2**32 - 1
    for wrong in (10**40, 1):
        with pytest.raises(OverflowError):
            table.incr("k", "unread", wrong)
    assert table.get_column("k", "token") == "t"
    assert table.get_column("none", "token", "x") == "x"
    table.set_column("k", "token", "u")
    assert table.compare_and_set("k", "token", "u", "v") is True
    assert table.compare_and_set("k", "token", "u", "w") is False
    assert table.compare_and_set("k", "background", True, False) is True
    assert table.patch("k", unread=1, token="x", raw=b"\r\n") is True
    assert (table.patch("none", unread=1), table.patch("k")) == (False, True)
    row = table["k"]
    assert (row.unread, row.token, row.raw, row.background) == (1, "x", b"\r\n", False)
    missing: tuple[Callable[[], object], ...] = (
        lambda: table.incr("none", "unread"),
        lambda: table.get_column("none", "token"),
        lambda: table.set_column("none", "token", "x"),
        lambda: table.compare_and_set("none", "token", "x", "x"),
        lambda: table.ttl("none"),
        lambda: table.idle("none"),
    )
    for call in missing:
        with pytest.raises(KeyError, match="none"):
            call()


def test_rows_expire(table: Any) -> None:
    table["k"] = ONE
    assert (table.ttl("k"), table.persist("k"), table.expire("none", 5)) == (None, False, False)
    assert table.expire("k", 100) is True
    assert 90 < table.ttl("k") <= 100.001
    assert (table.persist("k"), table.touch("k"), table.touch("none")) == (True, True, False)
    assert 0 <= table.idle("k") < 60
    assert table.set("k", TWO, ttl=50, only="present") is True
    assert 40 < table.ttl("k") <= 50.001
    assert table.set("k", ONE, only="absent") is False
    assert table.set("n", ONE, only="present") is False
    assert table["k"] == TWO
    assert table.expire("k", 0) is True
    assert "k" not in table


def test_many_rows_at_once(table: Any) -> None:
    rows = {str(number): Presence(app_id=number, token=f"t{number}") for number in range(900)}
    table.set_many(rows)
    assert table.get_many([*rows, "none"]) == [*rows.values(), None]
    assert table.get_many([]) == []
    assert dict(table.scan()) == dict(table.scan(batch=7)) == rows
    table.set_many({})


WRONG: tuple[Callable[[Any], object], ...] = (
    lambda table: table.set("k", Row()),
    lambda table: table.set("k", None),
    lambda table: table.set("k", ONE, ttl=-1),
    lambda table: table.set("k", ONE, ttl="x"),
    lambda table: table.set("k", ONE, ttl=float("nan")),
    lambda table: table.set("k", ONE, only="maybe"),
    lambda table: table.set("", ONE),
    lambda table: table.set(None, ONE),
    lambda table: table.set(1.5, ONE),
    lambda table: table.set("\ud800", ONE),
    lambda table: table.set("k" * 33, ONE),
    lambda table: table["k" * 33],
    lambda table: table.set("k", Presence(app_id=-1)),
    lambda table: table.set("k", Presence(app_id=2**32)),
    lambda table: table.set("k", Presence(app_id=10**5000)),
    lambda table: table.set("k", Presence(app_id=True)),
    lambda table: table.set("k", Presence(app_id=0, small=-129)),
    lambda table: table.set("k", Presence(app_id=0, narrow=1e300)),
    lambda table: table.set("k", Presence(app_id=0, score="1")),  # type: ignore[arg-type]
    lambda table: table.set("k", Presence(app_id=0, background=1)),  # type: ignore[arg-type]
    lambda table: table.set("k", Presence(app_id=0, token="123456789")),
    lambda table: table.set("k", Presence(app_id=0, token="\ud800")),
    lambda table: table.set("k", Presence(app_id=0, token=b"x")),  # type: ignore[arg-type]
    lambda table: table.set("k", Presence(app_id=0, raw="x")),  # type: ignore[arg-type]
    lambda table: table.set_many({"k": ONE, "l": Presence(app_id=-1)}),
    lambda table: table.set_many({"k": None}),
    lambda table: table.set_column("a", "none", 1),
    lambda table: table.set_column("a", "unread", "x"),
    lambda table: table.patch("a", none=1),
    lambda table: table.patch("a", unread=5, small=1000),
    lambda table: table.get_column("a", "none"),
    lambda table: table.incr("a", "token"),
    lambda table: table.incr("a", "background"),
    lambda table: table.incr("a", "unread", 1.5),
    lambda table: table.incr("a", "unread", "1"),
    lambda table: table.incr("a", "unread", True),
    lambda table: table.incr("a", "unread", 1, overflow="no"),
    lambda table: table.compare_and_set("a", "unread", "x", 1),
    lambda table: table.compare_and_set("a", "unread", 1, 2**33),
    lambda table: table.expire("a", -1),
    lambda table: table.get_many(5),
    lambda table: table.get_many(["a", None]),
    lambda table: next(table.scan(batch=0)),
    lambda table: next(table.scan(batch="x")),
)


@pytest.mark.parametrize("call", WRONG)
def test_what_is_wrong_is_refused_and_changes_nothing(
    table: Any, call: Callable[[Any], object]
) -> None:
    table["a"] = TWO
    with pytest.raises((TypeError, ValueError)):
        call(table)
    assert dict(table) == {"a": TWO}


def test_random_calls_do_as_a_dict_does(table: Any) -> None:
    chance = random.Random(seeds.seed())
    model: dict[str, Presence] = {}
    for _ in range(400):
        key = str(chance.randrange(6))
        row = Presence(
            app_id=chance.getrandbits(32), background=chance.random() < 0.5,
            small=chance.randrange(-128, 128), large=chance.getrandbits(64),
            score=chance.uniform(-1e300, 1e300), token=chr(chance.randrange(1, 0xD800)),
            raw=chance.randbytes(chance.randrange(5)),
        )  # fmt: skip
        match chance.randrange(10):
            case 0 | 1:
                table[key] = model[key] = row
            case 2:
                assert table.pop(key, None) == model.pop(key, None)
            case 3:
                assert table.setdefault(key, row) == model.setdefault(key, row)
            case 4:
                done = table.patch(key, token=row.token, score=row.score)
                assert done == (key in model)
                if done:
                    had = model[key]
                    model[key] = Presence(**{
                        **{name: getattr(had, name) for name in had.__struct_fields__},
                        "token": row.token, "score": row.score})  # fmt: skip
            case 5:
                assert table.get(key) == model.get(key)
            case 6 | 7:
                column = chance.choice(("unread", "small", "large"))
                by = chance.choice((1, -1)) * chance.getrandbits(chance.choice((3, 32, 64, 200)))
                overflow = chance.choice(("raise", "wrap", "saturate"))
                if key not in model:
                    with pytest.raises(KeyError):
                        table.incr(key, column, by, overflow=overflow)
                    continue
                total = summed(getattr(model[key], column), by, *RANGES[column], overflow)
                if total is None:
                    with pytest.raises(OverflowError):
                        table.incr(key, column, by)
                    continue
                assert table.incr(key, column, by, overflow=overflow) == total
                model[key] = msgspec.structs.replace(model[key], **{column: total})
            case 8 if model:
                popped, had = table.popitem()
                assert model.pop(popped) == had
            case 9:
                some = {str(number): row for number in chance.sample(range(6), 3)}
                table.set_many(some)
                model |= some
                assert table.get_many(range(6)) == [model.get(str(key)) for key in range(6)]
    assert dict(table) == model


RANGES = {"unread": (0, 2**32 - 1), "small": (-128, 127), "large": (0, 2**64 - 1)}


def summed(before: int, by: int, least: int, most: int, overflow: str) -> int | None:
    """Return what a column is when it was raised; None: that is refused."""
    total = before + by
    if least <= total <= most:
        return total
    if overflow == "wrap":
        return (total - least) % (most - least + 1) + least
    return min(max(total, least), most) if overflow == "saturate" else None


def test_asyncio(name: str, hub: interlock.Hub) -> None:
    async def use(url: str) -> None:
        async with interlock.connect(url).aio as client:
            table = client.table(name, Presence, capacity=100)
            await table.clear()
            assert await table.set("a", ONE) is True
            assert await asyncio.gather(*(table.incr("a", "unread") for _ in range(20)))
            assert await table.get_column("a", "unread") == 23
            assert await table.contains("a")
            await table.set_many({"b": TWO, 7: TWO})
            assert await table.get_many(["b", "none"]) == [TWO, None]
            assert await table.count() == 3
            assert sorted([key async for key, _ in table.scan(batch=2)]) == ["7", "a", "b"]
            assert await table.get_column("a", "token") == "t"
            await table.set_column("a", "token", "u")
            assert await table.compare_and_set("a", "token", "u", "v")
            assert await table.patch("a", unread=1)
            assert await table.expire("a", 50)
            left = await table.ttl("a")
            assert left is not None
            assert left > 40
            assert await table.persist("a")
            assert await table.touch("a")
            assert await table.idle("a") >= 0
            assert await table.setdefault("a", TWO) != TWO
            assert await table.pop("a") is not None
            with pytest.raises(KeyError):
                await table.pop("a")
            assert await table.delete("b") is True
            assert await table.delete("b") is False
            assert repr(table).startswith(f"<AsyncRemoteTable {name!r} of ")

    asyncio.run(use("memory://"))
    asyncio.run(use(f"interlock://127.0.0.1:{hub.port}"))


def test_a_client_and_a_process_of_the_machine_share_the_rows(
    name: str, hub: interlock.Hub
) -> None:
    local = SharedTable.attach(name, Presence)
    local.clear()
    with interlock.connect(f"interlock://127.0.0.1:{hub.port}") as client:
        remote = client.table(name, Presence)
        local["a"] = ONE
        assert remote["a"] == ONE
        remote.incr("a", "unread")
        assert local["a"].unread == 4
        assert asyncio.run(remote.aio.get("a")) == local["a"]
        client.close()
        with pytest.raises(ShutDown):
            remote["a"]


def test_other_columns_and_an_unknown_table_are_refused(name: str, hub: interlock.Hub) -> None:
    class Other(Row):
        app_id: U8

    with interlock.connect(f"interlock://127.0.0.1:{hub.port}") as client:
        with pytest.raises(SchemaMismatch, match="expected: app_id: U8\n  found:    app_id: U32"):
            client.table(name, Other).get("a")
        with pytest.raises(NotATable, match=r"does not serve table 'none'; \[\[table\]\]"):
            client.table("none", Other).get("a")
    with interlock.connect("memory://") as client:
        client.table("a", Presence, capacity=10)
        with pytest.raises(SchemaMismatch, match="expected: app_id: U8\n"):
            client.table("a", Other)


def test_a_hub_that_serves_other_columns_since_is_found_out(tmp_path: Path) -> None:
    needs_hub()

    class Before(Row):
        a: U32
        b: Annotated[str, Size(4)]

    def served(number: int, columns: object) -> dict[str, object]:
        return {"name": "t", "columns": columns, "path": str(tmp_path / f"t{number}")}

    with (
        interlock.Hub(port=0, table=[served(1, Before)]) as hub,
        interlock.connect(f"interlock://127.0.0.1:{hub.port}") as client,
    ):
        table = client.table("t", Before)
        table["k"] = Before(a=1, b="x")
        # Only a reload changes what users may not.
        hub.set({"table": [served(2, "a: U32, c: U8")]})
        with pytest.raises(SchemaMismatch, match="found:    a: U32, c: U8"):
            table["k"] = Before(a=1, b="x")


def test_clients_of_one_name_in_memory_share_their_tables() -> None:
    class Same(Row):
        app_id: U32

    class Alike(Row):
        app_id: U32

    engine = f"memory://{new_name()}"
    with interlock.connect(engine) as one, interlock.connect(engine) as two:
        first, second = one.table("t", Same), two.table("t", Alike)
        first["a"] = Same(app_id=5)
        assert second["a"] == Alike(app_id=5)
        second["b"] = Alike(app_id=6)
        assert list(first.values()) in ([Same(app_id=5), Same(app_id=6)],
                                        [Same(app_id=6), Same(app_id=5)])  # fmt: skip
        with interlock.connect("memory://") as other:
            assert len(other.table("t", Same)) == 0
    assert not list(Path("/dev/shm").glob(f"interlock.memory-{os.getpid()}-*"))


def test_a_redis_refuses_and_says_why(redis_port: int) -> None:
    with interlock.connect(f"redis://127.0.0.1:{redis_port}") as client:
        table = client.table("t", Presence)
        with pytest.raises(
            ValueError, match=r"has no state tables: it is not a hub\. Redis has no"
        ):
            table["a"] = ONE
    with (
        interlock.connect("redis+cluster://127.0.0.1:1,127.0.0.1:2") as client,
        pytest.raises(ValueError, match="Redis has no columns and no types"),
    ):
        client.table("t", Presence)


@pytest.mark.parametrize("wrong", [None, 5, "", "a:b", "a b", "a/b", ".a", "x" * 201, "\ud800"])
def test_an_invalid_table_name_is_refused(wrong: Any) -> None:
    with (
        interlock.connect("memory://") as client,
        pytest.raises((TypeError, ValueError), match=r"table\(\): name is"),
    ):
        client.table(wrong, Presence)
    with interlock.connect("memory://") as client, pytest.raises(TypeError):
        client.table("t", dict)  # type: ignore[type-var]


def test_a_full_table_and_a_lost_hub_are_told(tmp_path: Path) -> None:
    needs_hub()
    full = entry("t", capacity=1, on_full="raise", path=str(tmp_path / "t"))
    with interlock.connect("memory://") as client:
        table = client.table("t", Presence, capacity=1, on_full="raise")
        with pytest.raises(TableFull):
            table.update(dict.fromkeys(range(1000), TWO))
    with (
        refusing() as port,
        interlock.connect(f"interlock://127.0.0.1:{port}?timeout=0.2") as gone,
        pytest.raises(EngineUnavailable, match="did not answer about table 't'"),
    ):
        gone.table("t", Presence).get("a")
    with (
        interlock.Hub(port=0, table=[full]) as hub,
        interlock.connect(f"interlock://127.0.0.1:{hub.port}") as client,
    ):
        table = client.table("t", Presence)
        with pytest.raises(TableFull):
            table.update(dict.fromkeys(range(1000), TWO))
        with pytest.raises(TableFull):
            table.set_many(dict.fromkeys(range(1000), TWO))


def test_a_sum_whose_answer_was_lost_is_not_asked_for_again() -> None:
    sums = 0

    def serve(listener: socket.socket) -> None:
        nonlocal sums
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while True:
                    asked = connection.recv(1 << 16)
                    if b"INFO" in asked:
                        columns = f"${len(COLUMNS)}\r\n{COLUMNS}\r\n"
                        connection.sendall(b"*2\r\n$7\r\ncolumns\r\n" + columns.encode())
                        continue
                    sums += b"INCR" in asked
                    break

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        url = f"interlock://127.0.0.1:{listener.getsockname()[1]}?timeout=2"
        try:
            with interlock.connect(url) as client, pytest.raises(EngineUnavailable) as lost:
                client.table("t", Presence).incr("k", "unread")
        finally:
            # To close it alone would not wake who accepts.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert lost.value.unknown
    assert sums == 1


def test_rights_are_told(tmp_path: Path) -> None:
    needs_hub()
    user = {"name": "app", "passwords": [passwords.hashed("x")], "tables": ["a*"]}
    table = entry("b", path=str(tmp_path / "t"))
    with (
        interlock.Hub(port=0, table=[table], user=[user]) as hub,
        interlock.connect(f"interlock://app:x@127.0.0.1:{hub.port}") as client,
        pytest.raises(InterlockError, match="NOPERM"),
    ):
        client.table("b", Presence).get("k")


@pytest.mark.parametrize("by", [2**63, 2**64 - 1, 2**64 + 5, 2**100 + 5, -(2**200) + 5])
def test_a_sum_is_made_however_large_what_is_added(table: Any, by: int) -> None:
    table["k"] = Presence(app_id=0, large=0, unread=2)
    if by < 2**64:
        if by > 0:
            assert table.incr("k", "large", by) == by
    else:
        with pytest.raises(OverflowError):
            table.incr("k", "large", by)
    assert table.incr("k", "unread", by, overflow="wrap") == (2 + by) % 2**32
    highest = 2**32 - 1 if by > 0 else 0
    assert table.incr("k", "unread", by, overflow="saturate") == highest


def test_odd_arguments_are_answered_alike(table: Any) -> None:
    table["k"] = ONE
    with pytest.raises(ValueError, match="beyond any float"):
        table.set_column("k", "score", 10**400)
    with pytest.raises(OverflowError, match="beyond any float"):
        table.incr("k", "score", 10**400)
    for keys in ("ab", b"ab"):
        with pytest.raises(TypeError, match="keys is"):
            table.get_many(keys)
    for ttl in (float("inf"), 1e300):
        assert table.expire("k", ttl)
        left = table.ttl("k")
        assert left is None or left > 1e9
    assert table["k"] == ONE
    assert table.expire("k", 0) and "k" not in table
