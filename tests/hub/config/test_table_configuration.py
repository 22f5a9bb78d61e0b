"""`[[table]]`: its grammar, and tables at the start, on a reload and at the end."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import SharedTable
from interlock.cli import main
from interlock.hub.client import Client
from interlock.hub.config import table_lists as listed
from interlock.hub.config.configuration import ConfigError, from_arguments, read, toml
from interlock.hub.config.invalid_value import InvalidValue
from interlock.hub.resp import ReplyError
from interlock.table.schema import Schema
from tests.hub.servers import hub_process, needs_hub
from tests.hub.tables.tables import COLUMNS, Presence, entry, new_name
from tests.support import until


@pytest.fixture
def names() -> Iterator[list[str]]:
    chosen = [new_name() for _ in range(2)]
    yield chosen
    for name in chosen:
        SharedTable.remove(name)


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"columns": COLUMNS}, r"table\[0\]\.name is 'missing'"),
    ({"name": "a"}, r"table\[0\]\.columns is 'missing' .*; allowed: a text such as `unread: U32"),
    ({"name": "a:b"}, r"table\[0\]\.name is 'a:b'"),
    ({"name": ""}, r"table\[0\]\.name is ''"),
    ({"name": ".a"}, r"table\[0\]\.name"),
    ({"name": "a/b"}, r"table\[0\]\.name"),
    ({"name": "ü" * 101}, r"table\[0\]\.name"),
    ({"name": "\ud800"}, r"table\[0\]\.name"),
    ({"name": "a", "columns": "unread"}, r"table\[0\]\.columns is 'unread' .*NAME: TYPE"),
    ({"name": "a", "columns": "a: U8, a: U8"}, r"table\[0\]\.columns .*two columns are called 'a'"),
    ({"name": "a", "columns": int}, r"table\[0\]\.columns is <class 'int'>"),
    ({"name": "a", "columns": 3}, r"table\[0\]\.columns is 3"),
    ({"name": "a", "columns": COLUMNS, "capacity": 0}, r"table\[0\]\.capacity is 0"),
    ({"name": "a", "columns": COLUMNS, "capacity": True}, r"table\[0\]\.capacity is True"),
    ({"name": "a", "columns": COLUMNS, "key_size": 1025}, r"table\[0\]\.key_size is 1025"),
    ({"name": "a", "columns": COLUMNS, "ttl": -1}, r"table\[0\]\.ttl is -1"),
    ({"name": "a", "columns": COLUMNS, "on_full": "wait"}, r"on_full is 'wait'.*evict, raise"),
    ({"name": "a", "columns": COLUMNS, "mode": 600}, r"table\[0\]\.mode is 600"),
    ({"name": "a", "columns": COLUMNS, "mode": "٣٣٣"}, r"table\[0\]\.mode"),
    ({"name": "a", "columns": COLUMNS, "path": "\0"}, r"table\[0\]\.path"),
    (
        {"name": "a", "columns": COLUMNS, "size": 1},
        r"\.size is 'an unknown key'.*capacity",
    ),
)


@pytest.mark.parametrize(("table", "told"), WRONG)
def test_a_wrong_table_is_told_with_its_place(table: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read(given=from_arguments({"table": [table]}))


def test_two_tables_have_two_names() -> None:
    with pytest.raises(ConfigError, match=r"table\[1\]\.name is 'a'.*no other table has"):
        read(given=from_arguments({"table": [entry("a"), entry("a")]}))


def test_what_is_printed_gives_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "hub.toml"
    path.write_text(
        f'[[table]]\nname = "pre\\"s"\ncolumns = "{COLUMNS}"\nttl = 60\n'
        f'[[table]]\nname = "b"\ncolumns = "a:U8"\npath = "x/y"\nmode = "660"\n'
        f'[[user]]\nname = "default"\ntopics = ["a"]\ntables = ["b*"]\n'
    )
    first = read(path)
    assert [table.name for table in first["table"]] == ['pre"s', "b"]
    assert first["table"][1].columns == "a: U8"
    path.write_text(first.text())
    assert read(path).values == first.values


def test_lists_in_entries_of_lists_are_read_and_printed() -> None:
    """Stores have children, each an entry of its own."""

    class Child(dict[str, object]):
        @property
        def name(self) -> str:
            return str(self["name"])

        def table(self) -> dict[str, object]:
            return {key: one.table() if isinstance(one, Child) else one
                    if not isinstance(one, tuple) else [inner.table() for inner in one]
                    for key, one in self.items()}  # fmt: skip

    def made(values: Any, _given: frozenset[str]) -> Child:
        return Child(values)

    def text(value: object) -> object:
        if not isinstance(value, str):
            raise InvalidValue
        return value

    key = listed.Key("name", text, "a text", "its name", required=True)
    inner = listed.ListOf("child", (key,), made, Child)
    children = listed.Key("child", inner.checked, "a list of entries", "its children", ())
    outer = listed.ListOf("store", (key, children), made, Child)
    given = [{"name": "a", "child": [{"name": "b"}, {"name": "c"}]}, {"name": "d"}]
    (first, second) = outer.checked(given)
    assert [child.name for child in first["child"]] == ["b", "c"]  # type: ignore[attr-defined]
    assert second == {"name": "d", "child": ()}
    printed = "\n".join(listed.lines("store", [first], "here", toml))
    assert printed.split("\n") == [
        *("", "[[store]]  # here", 'name = "a"'),
        *("", "[[store.child]]", 'name = "b"', "", "[[store.child]]", 'name = "c"'),
    ]
    for wrong, place in (
        ({"name": "a", "child": [{"name": 5}]}, "[0].child[0].name"),
        ({"name": "a", "child": [{"name": "x"}, {"name": "x"}]}, "[0].child[1].name"),
        ({"name": "a", "child": "x"}, "[0].child"),
    ):
        with pytest.raises(InvalidValue) as refused:
            outer.checked([wrong])
        assert refused.value.place == place


def test_check_names_the_tables_and_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: list[str]
) -> None:
    path = tmp_path / "hub.toml"
    path.write_text(f'[[table]]\nname = "{names[0]}"\ncolumns = "a: U8"\n')
    assert main(["hub", "--check", "--config", str(path)]) == 0
    told = capsys.readouterr().out
    assert f"table {names[0]} in shared memory: a: U8; capacity 100000\n" in told
    with pytest.raises(FileNotFoundError):
        SharedTable.attach(names[0])


def test_a_hub_makes_tables_and_leaves_them_behind(names: list[str], tmp_path: Path) -> None:
    needs_hub()
    path = tmp_path / "rows"
    tables = [
        {"name": names[0], "columns": Presence, "capacity": 500, "ttl": 60, "on_full": "raise"},
        {"name": "file", "columns": "a: U8", "capacity": 10, "path": str(path), "mode": "660"},
    ]
    with interlock.Hub(port=0, table=tables) as hub, Client(hub.url) as client:
        client.call("HSET", f"{names[0]}:k", "unread", "5")
        client.call("HSET", "file:k", "a", "6")
    found = SharedTable.attach(names[0], Presence)
    assert (found["k"].unread, found.capacity, found.on_full) == (5, 500, "raise")
    assert found.default_ttl == 60
    assert path.stat().st_mode & 0o777 == 0o660
    with interlock.Hub(port=0, table=tables) as hub, Client(hub.url) as client:
        assert client.call("HGET", f"{names[0]}:k", "unread") == b"5"
        assert client.call("HGET", "file:k", "a") == b"6", "it is in the file"


def test_a_table_that_is_there_is_attached_and_what_differs_is_logged(
    names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    needs_hub()
    made = SharedTable.open(names[0], Schema.parse(COLUMNS).row(), capacity=2000, ttl=5)
    made["k"] = made.row(**{name: type_() for name, type_ in zip(
        Schema.parse(COLUMNS).names,
        (int, bool, int, int, int, float, float, str, bytes), strict=True)})  # fmt: skip
    with (
        caplog.at_level(logging.WARNING, "interlock.hub"),
        interlock.Hub(port=0, table=[entry(names[0])]) as hub,
        Client(hub.url) as client,
    ):
        assert client.call("HINCRBY", f"{names[0]}:k", "unread", "2") == 2
    assert made.get_column("k", "unread") == 2
    assert f"table {names[0]} exists" in caplog.text
    assert "capacity 2000, on_full 'evict', ttl 5.0" in caplog.text


def test_a_table_with_other_columns_is_not_served_and_stays_as_it_is(
    names: list[str], tmp_path: Path
) -> None:
    needs_hub()
    made = SharedTable.open(names[0], Presence, capacity=10)
    made["k"] = Presence(app_id=5)
    hub = interlock.Hub(port=0, table=[entry(names[1]), {"name": names[0], "columns": "a: U8"}])
    with pytest.raises(ConfigError) as refused:
        hub.start()
    (fault,) = refused.value.faults
    assert re.match(rf"table\[1\] {names[0]} \(argument\): .* has another schema: ", fault)
    assert "expected: key[32], a: U8 found: key[32], app_id: U32" in fault
    assert made["k"].app_id == 5
    assert repr(hub) == "<Hub stopped>"
    noise = tmp_path / "noise"
    noise.write_bytes(bytes(range(256)) * 32)
    noise.chmod(0o600)
    other = {"name": "x", "columns": "a: U8", "path": str(noise)}
    with pytest.raises(ConfigError, match=r"table\[0\] x .*is not a table"):
        interlock.Hub(port=0, table=[other]).start()
    too_large = {"name": "x", "columns": "a: U8", "path": str(tmp_path / "n"), "capacity": 2**40}
    with pytest.raises(ConfigError, match=r"table\[0\] x .*beyond any machine"):
        interlock.Hub(port=0, table=[too_large]).start()


def test_hup_opens_what_was_added_and_closes_what_was_taken_away(
    names: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "hub.toml"

    def listed_as(**columns: str) -> str:
        entries = (
            f'[[table]]\nname = "{names[int(index[1:])]}"\ncolumns = "{text}"\ncapacity = 100\n'
            for index, text in columns.items()
        )
        return "".join(entries)

    path.write_text(listed_as(_0="a: U8"))
    with hub_process("--port", "0", "--workers", "2", "--config", str(path)) as hub:
        assert hub.process.stderr is not None
        with Client(hub.addresses[0]) as client:

            def reloaded(text: str, wanted: str) -> None:
                path.write_text(text)
                hub.process.send_signal(signal.SIGHUP)
                assert hub.process.stderr is not None
                for line in hub.process.stderr:
                    if wanted in line:
                        return
                raise AssertionError(wanted)

            client.call("HSET", f"{names[0]}:k", "a", "5")
            with pytest.raises(ReplyError, match="NOTABLE"):
                client.call("HGET", f"{names[1]}:k", "a")
            reloaded(listed_as(_0="a: U8", _1="b: U8"), "reconfigured: table")
            client.call("HSET", f"{names[1]}:k", "b", "6")
            assert client.call("HGET", f"{names[0]}:k", "a") == b"5"
            reloaded(listed_as(_0="a: U16", _1="b: U8") + "[log]\nlevel = 'x'\n", "log.level")
            reloaded(
                "maxclients = 77\n" + listed_as(_0="a: U16", _1="b: U8"),
                f"refused: table[0] {names[0]} (file {path}): ",
            )
            assert client.call("HINCRBY", f"{names[0]}:k", "a", "1") == 6
            limit = client.call("CONFIG", "GET", "maxclients")
            assert limit in ({b"maxclients": b"10000"}, [b"maxclients", b"10000"])
            reloaded(listed_as(_1="b: U8"), "reconfigured: table")
            with pytest.raises(ReplyError, match="NOTABLE"):
                client.call("HGET", f"{names[0]}:k", "a")
            assert client.call("HGET", f"{names[1]}:k", "b") == b"6"
            assert client.call("TABLE", "LIST") == [names[1].encode()]
            # It was closed, and not deleted.
            assert SharedTable.attach(names[0]).get_column("k", "a") == 6
            # Each worker takes its turn: a connection comes to it behind the configuration.
            for _ in range(2):
                with Client(hub.addresses[0]) as other:
                    other.call("PING")
            mapped = Path(f"/proc/{hub.process.pid}/maps").read_text().split()
            numbers = [str(SharedTable.attach(name).path.stat().st_ino) for name in names]
            assert [number in mapped for number in numbers] == [False, True]


def test_a_wrong_start_names_the_table(names: list[str], tmp_path: Path) -> None:
    SharedTable.open(names[0], Presence, capacity=10)
    path = tmp_path / "hub.toml"
    path.write_text(f'[[table]]\nname = "{names[0]}"\ncolumns = "a: U8"\n')
    with (
        pytest.raises(AssertionError, match=f"interlock: table\\[0\\] {names[0]}"),
        hub_process("--port", "0", "--config", str(path)),
    ):
        pass


def test_a_table_that_was_removed_is_told_and_made_anew_by_hup(
    names: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "hub.toml"
    path.write_text(f'[[table]]\nname = "{names[0]}"\ncolumns = "a: U8"\ncapacity = 100\n')
    with (
        hub_process("--port", "0", "--workers", "1", "--config", str(path)) as hub,
        Client(hub.addresses[0]) as client,
    ):

        def removed() -> object:
            told = client.call("TABLE", "INFO", names[0])
            if isinstance(told, list):
                told = dict(zip(told[::2], told[1::2], strict=True))
            assert isinstance(told, dict)
            return told[b"removed"]

        client.call("HSET", f"{names[0]}:k", "a", "5")
        SharedTable.attach(names[0]).resize(5000)
        assert removed() == 0
        assert SharedTable.remove(names[0])
        assert removed() == 1
        # It continues with it, like every program that has it open.
        assert client.call("HINCRBY", f"{names[0]}:k", "a", "1") == 6
        hub.process.send_signal(signal.SIGHUP)
        until(lambda: removed() == 0)
        assert client.call("HGET", f"{names[0]}:k", "a") is None
        client.call("HSET", f"{names[0]}:k", "a", "7")
        assert SharedTable.attach(names[0]).get_column("k", "a") == 7
