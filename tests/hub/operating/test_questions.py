"""`interlock hub info|topics|clients`, asked of a hub and of Redis."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess

import pytest

from interlock import Hub
from interlock.cli import main
from interlock.cli.hub import info as hub_info
from interlock.cli.hub.connection import FLAGS
from interlock.cli.tables import fitted, printable, table
from interlock.hub import introspection
from interlock.hub.client import Client
from interlock.hub.serve.figures import FIGURES, MetricKind
from tests.hub.servers import INTERLOCK, refusing

FLAG_NAMES = [flag.name for flag in (*FLAGS, hub_info.WATCH)]


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The output, for people or machines, of a command that ends well."""
    assert main(["hub", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def address(port: int) -> str:
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize("name", FLAG_NAMES)
def test_every_flag_is_used_by_a_test(name: str) -> None:
    with open(__file__, encoding="utf-8") as source:
        assert f'"{name}"' in source.read()


def test_info_shows_figures_by_section(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with Client(address(port)):
        lines = asked(capsys, "info", "--url", address(port)).splitlines()
    shown = {line.split()[0]: line.split()[-1] for line in lines if line.startswith("  ")}
    assert shown["process"].isdecimal()
    assert shown["open"] == "2"
    sections = [line for line in lines if line and not line.startswith(" ")]
    assert sections[:2] == ["server", "connections"]
    assert len(sections) == len(set(sections))


def test_info_of_a_hub_shows_every_figure_that_has_a_label(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    text = asked(capsys, "info", "--url", hub.url)
    for figure in FIGURES:
        if figure.section:
            assert re.search(rf"^  {re.escape(figure.label)}  +\S", text, re.MULTILINE), figure


def test_info_as_json_has_the_names_of_info(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(asked(capsys, "info", "--url", hub.url, "--json"))
    assert found.keys() == hub.info().keys()
    assert found["connected_clients"] == 1
    assert found["role"] == "master"


def test_watch_asks_again_and_shows_rates_until_it_is_interrupted(hub: Hub) -> None:
    command = [str(INTERLOCK), "hub", "info", "--url", hub.url, "--watch", "0.01", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(20) == 130
    assert first["rates"] == {}
    counters = {figure.name for figure in FIGURES if figure.kind is MetricKind.COUNTER}
    assert second["rates"].keys() == counters
    # At least the INFO before it.
    assert second["rates"]["total_commands_processed"] > 0


def test_a_rate_is_what_was_added_in_a_second_and_never_below_nothing() -> None:
    before = {"messages_published": 10, "messages_delivered": 9, "connected_clients": 1}
    now = {"messages_published": 20, "messages_delivered": 1, "connected_clients": 5}
    assert dict(hub_info.changes(before, now, 2.0)) == {
        "messages_published": 5.0,
        "messages_delivered": 0.0,
    }
    assert "published  20  (5.0/s)" in hub_info.summary(now, {"messages_published": 5.0})


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90061, "1 d 1 h")],
)
def test_a_time_is_shown_by_its_largest_parts(seconds: int, shown: str) -> None:
    assert hub_info.duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_bytes_are_shown_in_units(count: int, shown: str) -> None:
    assert hub_info.size(count) == shown


def test_topics_are_counted_and_the_largest_stands_first(
    port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(address(port)) as one, Client(address(port)) as other:
        one.subscribe("a", "b", "c\n")
        other.subscribe("b")
        other.psubscribe("x*")
        assert asked(capsys, "topics", "--url", address(port)).splitlines() == [
            "topic  subscribers",
            "b                2",
            "a                1",
            "c\\n              1",
            "",
            "topics: 3, patterns: 1",
        ]
        found = json.loads(asked(capsys, "topics", "[ab]", "--url", address(port), "--json"))
    assert found == {"topics": {"b": 2, "a": 1}, "patterns": 1}


def test_more_topics_than_one_question_takes_are_all_counted(port: int) -> None:
    names = [f"t{number}" for number in range(introspection.BATCH * 2 + 1)]
    with Client(address(port)) as subscriber, Client(address(port)) as client:
        subscriber.subscribe(*names)
        found = introspection.topics(client)
    assert found.receivers == {name.encode(): 1 for name in names}


def test_clients_are_listed_with_what_they_are(
    port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(address(port), name="one") as one:
        one.subscribe("a", "b")
        one.psubscribe("c*")
        one.call("PING")
        head, *rows = asked(capsys, "clients", "--url", address(port)).splitlines()
        assert head.split() == ["id", "address", "name", "library", "user", "age", "idle",
                                "topics", "owed", "command"]  # fmt: skip
        assert len(rows) == 2
        found = json.loads(asked(capsys, "clients", "--url", address(port), "--json"))
    (shown,) = [row for row in found if row["name"] == "one"]
    assert (shown["topics"], shown["user"], shown["owed"]) == (3, "default", 0)
    assert shown["command"] == "ping"
    assert "interlock-cli" in {row["name"] for row in found}


def test_a_line_of_client_list_is_read_whatever_it_lacks() -> None:
    found = introspection.connection(
        "id=3 addr=/a b/s:0 name= age=5 idle=1 sub=1 psub=2 ssub=3 omem=9 cmd=client|list "
        "user=ann lib-name=redis-py lib-ver=5.0"
    )
    assert found == introspection.Connection(
        3, "/a b/s:0", "", "redis-py 5.0", "ann", 5, 1, 6, 9, "client|list"
    )
    assert introspection.connection("id=4") == introspection.Connection(
        4, "", "", "", "", 0, 0, 0, 0, ""
    )


@pytest.mark.parametrize("word", ["info", "topics", "clients"])
def test_who_cannot_be_reached_is_named_without_a_password(
    word: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusing() as port:
        monkeypatch.setenv("INTERLOCK_URL", f"redis://ann:secret@127.0.0.1:{port}")
        assert main(["hub", word]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == (
        f"interlock: cannot connect to 127.0.0.1:{port}: Connection refused"
    )
    assert "`interlock hub` starts one" in err
    assert "secret" not in err


def test_wrong_usage_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hub", "info", "--url", "http://x"]) == 2
    assert "allowed: HOST:PORT" in capsys.readouterr().err
    assert main(["hub", "info", "--url", "x", "--ca", "y"]) == 2
    assert "--ca is for a rediss:// URL" in capsys.readouterr().err
    for words in (["nothing"], ["info", "--watch", "0"]):
        with pytest.raises(SystemExit) as ended:
            main(["hub", *words])
        assert ended.value.code == 2


def test_a_table_aligns_numbers_right_and_may_be_empty() -> None:
    assert table(("a", "b"), [("x", 1), ("yy", 1000)]) == "a       b\nx       1\nyy  1,000"
    assert table(("a", "b"), []) == "a  b"
    assert printable("a\x1b[2J\n\u00e9") == "a\\x1b[2J\\n\u00e9"
    assert printable("a\u202eb\n\ud800", "\n") == "a\\u202eb\n\\ud800"


def test_long_texts_push_no_column_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("n" * 150 + "-eu", 7, "k" * 40), ("short", 1_000, "key")]
    assert "n" * 150 in table(("queue", "ready", "key"), rows)
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "60")
    head, first, second = table(("queue", "ready", "key"), rows).splitlines()
    assert max(len(head), len(first), len(second)) <= 60
    assert "…" in first and "-eu" in first and "k" * 10 in first
    assert second.split() == ["short", "1,000", "key"]
    assert fitted([150, 5, 150], [False, True, False], 50) == [20, 5, 21]
    assert fitted([16, 90], [False, True], 20) == [16, 90]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
