"""Rights to read and write tables, and reports about them."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest

import interlock
from interlock import SharedTable
from interlock.cli import main
from interlock.hub import passwords
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from tests.hub.servers import needs_hub
from tests.hub.tables.tables import Presence, entry, new_name

HASH = passwords.hashed("secret")


@pytest.fixture(scope="module")
def names() -> Iterator[list[str]]:
    chosen = [f"open-{new_name()}", f"closed-{new_name()}"]
    yield chosen
    for name in chosen:
        SharedTable.remove(name)


@pytest.fixture(scope="module")
def hub(names: list[str]) -> Iterator[interlock.Hub]:
    needs_hub()
    users = [
        {"name": "app", "passwords": [HASH], "tables": ["open-*"]},
        {
            "name": "reader",
            "passwords": [HASH],
            "tables": ["*"],
            "commands": ["@table", "-@write", "hello"],
        },
        {"name": "nobody", "passwords": [HASH], "topics": ["*"]},
        {"name": "root", "passwords": [HASH], "topics": ["*"], "commands": ["@all"]},
    ]
    http = {"port": 0}
    with interlock.Hub(
        port=0, table=[entry(name) for name in names], user=users, http=http
    ) as running:
        yield running


def client(hub: interlock.Hub, user: str) -> Client:
    return Client(f"redis://{user}:secret@{hub.addresses[0]}", timeout=20)


REFUSED = (
    *("HGET {}:k unread", "HSET {}:k unread 1", "HINCRBY {}:k unread 1", "HGETALL {}:k"),
    *("DEL {own}:k {}:k", "EXISTS {own}:k {}:k", "EXPIRE {}:k 1", "TTL {}:k", "TYPE {}:k"),
    *("TABLE INFO {}", "TABLE COUNT {} 0", "TABLE SCAN {} 0", "TABLE MGET {} k", "TABLE POP {}:k"),
    "TABLE BARRIER {}",
    *("TABLE SET {}:k ANY DEFAULT unread 1", "TABLE MSET {} 1 unread k 1", "TABLE IDLE {}:k"),
    *("TABLE PATCH {}:k unread 1", "TABLE INCR {}:k unread 1", "TABLE CAS {}:k unread 1 1"),
    *("TOUCH {own}:k {}:k", "HSCAN {}:k 0", "PERSIST {}:k", "UNLINK {}:k", "HDEL {}:k unread"),
)


def test_tables_beyond_its_patterns_are_refused_and_not_told_of(
    hub: interlock.Hub, names: list[str]
) -> None:
    own, other = names
    local = SharedTable.attach(other, Presence)
    local.clear()
    SharedTable.attach(own, Presence).clear()
    local["k"] = before = Presence(app_id=1)
    with client(hub, "app") as app:
        app.call("HSET", f"{own}:k", "unread", "1")
        for call in REFUSED:
            words = call.format(other, own=own).split()
            with pytest.raises(
                ReplyError, match="NOPERM this user has no permissions to access one of the keys"
            ):
                app.call(*words)
            allowed = [word.replace(other, own) for word in words]
            app.call(*allowed)
        app.call("HSET", f"{own}:k", "unread", "1")
        # As one that there is not, and the same answer for both.
        with pytest.raises(
            ReplyError, match="NOPERM this user has no permissions to access one of the keys"
        ):
            app.call("HGET", "none:k", "unread")
        assert app.call("TABLE", "LIST") == [own.encode()]
        assert app.call("SCAN", "0") == [b"0", [f"{own}:k".encode()]]
        assert app.call("DBSIZE") == 1
    assert dict(local) == {"k": before}
    with client(hub, "nobody") as nobody:
        assert nobody.call("SCAN", "0") == [b"0", []]
        assert nobody.call("DBSIZE") == 0


def test_without_the_class_write_rows_are_only_read(hub: interlock.Hub, names: list[str]) -> None:
    key = f"{names[0]}:r"
    with client(hub, "reader") as reader:
        for call in ("HSET {}:r unread 1", "DEL {}:r", "EXPIRE {}:r 1", "TABLE POP {}:r",
                     "HINCRBY {}:r unread 1", "TABLE MSET {} 1 unread r 1"):  # fmt: skip
            with pytest.raises(ReplyError, match="NOPERM"):
                reader.call(*call.format(names[0]).split())
        assert reader.call("HGET", key, "unread") is None
        assert reader.call("EXISTS", key) == 0
        with pytest.raises(ReplyError, match="NOPERM"):
            reader.call("PUBLISH", "a", "b")


def test_rights_are_told_as_rules_and_by_check(hub: interlock.Hub) -> None:
    with client(hub, "root") as root:
        lines = root.call("ACL", "LIST")
        assert isinstance(lines, list)
        (rules,) = (line for line in lines if line.startswith(b"user app "))
        assert b" ~open-*:* " in rules
        assert root.call("ACL", "DRYRUN", "app", "HGET", "open-x:k", "a") == "OK"
        refused = root.call("ACL", "DRYRUN", "app", "HGET", "x:k", "a")
        assert isinstance(refused, bytes)
        assert b"x:k" in refused


def test_check_tells_rights_to_tables(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "hub.toml"
    path.write_text(f'[[user]]\nname = "a"\npasswords = ["{HASH}"]\ntables = ["open-*", "b"]\n')
    assert main(["hub", "--check", "--config", str(path)]) == 0
    told = capsys.readouterr().out
    assert "user a may publish to nothing; subscribe to nothing; queues none; " in told
    assert "tables open-*, b; commands @pubsub @queue @table " in told


def test_metrics_have_each_table_as_a_label(hub: interlock.Hub, names: list[str]) -> None:
    table = SharedTable.attach(names[1], Presence)
    table.clear()
    table.update({number: Presence(app_id=number) for number in range(7)})
    found = SharedTable.attach(names[1]).stats()
    with client(hub, "reader") as reader:
        reader.call("EXISTS", f"{names[1]}:1", f"{names[1]}:2")
    with urllib.request.urlopen(f"http://{hub.http_address}/metrics", timeout=20) as answer:
        text = answer.read().decode()

    def value(figure: str) -> float:
        label = re.escape(f'{{table="{names[1]}"}}')
        (one,) = re.findall(rf"^interlock_hub_table_{figure}{label} (\S+)$", text, re.MULTILINE)
        return float(one)

    assert value("rows") == 7
    assert (value("slots"), value("capacity")) == (found.slots, 1000)
    assert value("bytes") == found.bytes
    assert value("commands_total") >= 2
    for figure in ("moves", "overwritten", "overwritten_expired", "retries", "recovered"):
        assert value(f"{figure}_total") == getattr(found, figure)
    assert text.count("# TYPE interlock_hub_table_rows gauge") == 1
    assert hub.tables()[names[1]]["rows"] == 7


def test_interlock_hub_info_shows_each_table(
    hub: interlock.Hub, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"redis://root:secret@{hub.addresses[0]}"
    assert main(["hub", "info", "--url", url]) == 0
    told = capsys.readouterr().out
    assert re.search(rf"^table {names[0]}\n  rows +\d+\n  slots +1,\d+\n", told, re.MULTILINE)
