"""Wrong usage, servers that are not there, and what a terminal sees."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from interlock import cli
from interlock.cli import main, parser
from interlock.cli.flags import Flag
from interlock.cli.queue import GROUPS
from interlock.cli.queue.subcommand import SHARED
from interlock.cli.queue.views.watch_all import fitted
from interlock.client.faces.queue import RemoteQueue
from tests.cli.conftest import Command
from tests.cli.terminal import terminal
from tests.hub.servers import refusing

WORDS = """
list stats watch hot peek limits explain roots revoke retry skip bury cancel discard pause resume
seal reopen configure dead-letters requeue barrier purge drop export import install check
"""
NAMES = tuple(WORDS.split())
IDS = {"revoke", "retry", "skip", "bury", "cancel", "discard"}


def words_of(name: str) -> list[str]:
    """The least that a subcommand takes."""
    more = {"explain": ["1"], "requeue": ["1"], "import": ["--file", os.devnull]}
    return [name, *([] if name in ("list", "install", "check") else ["orders"]),
            *(["1"] if name in IDS else more.get(name, []))]  # fmt: skip


def test_the_list_of_subcommands_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser("queue").parse_args(["queue", "--help"])
    found = re.findall(r"^    ([a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert tuple(found) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_subcommand_has_help_and_takes_the_shared_flags(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["queue", name, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "Exit codes: 0 done, 1 refused" in out
    for flag in SHARED:
        assert flag.name in out


def test_every_flag_has_a_line_of_help() -> None:
    flags = [value for group in GROUPS for value in vars(group).values() if isinstance(value, Flag)]
    assert len(flags) > 15
    assert all(len(flag.help) > 15 for flag in flags)


@pytest.mark.parametrize("name", NAMES)
def test_a_command_without_an_engine_exits_with_2(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    assert main(["queue", *words_of(name)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "no engine is named; set --url or INTERLOCK_URL" in err


def test_the_environment_names_the_engine(
    url: str,
    queue: RemoteQueue[bytes],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue.put(b"a")
    monkeypatch.setenv("INTERLOCK_URL", url)
    assert main(["queue", "stats", queue.name]) == 0
    assert queue.name in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["peek", "orders", "x"], "'x'; allowed: a message's id, a whole number"),
        (["peek", "orders", "--state", "dead"], "invalid choice: 'dead'"),
        (["peek", "orders", "--limit", "0"], "allowed: a whole number from 1"),
        (["revoke", "orders"], "the following arguments are required: ID"),
        (["revoke", "orders", "1", "--then", "drop"], "invalid choice: 'drop'"),
        (["explain", "orders"], "give either the ID of a message or --key KEY"),
        (["explain", "orders", "1", "--key", "k"], "give either the ID of a message or --key KEY"),
        (["explain", "orders", "1", "--limit", "2000"], "--limit 2000; allowed: 1 to 1000"),
        (["requeue", "orders"], "give either IDs, --all or --key KEY"),
        (["requeue", "orders", "1", "--all"], "give either IDs, --all or --key KEY"),
        (["watch", "orders", "--every", "0"], "allowed: seconds above 0"),
        (["stats", "or{de}rs"], "QUEUE is 'or{de}rs': allowed: 1 to 512 bytes, without braces"),
        (["stats", ""], "QUEUE is '': allowed: 1 to 512 bytes"),
        (["stats", "q" * 513], "allowed: 1 to 512 bytes"),
        (["mend", "orders"], "invalid choice: 'mend'"),
        (["lst"], "did you mean 'list'?"),
        (["peek", "orders", "--state", "helt"], "did you mean 'held'?"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_allowed(
    cli: Command, words: list[str], complaint: str
) -> None:
    said = cli(*words)
    assert (said.code, said.out) == (2, "")
    assert complaint in said.err


@pytest.mark.parametrize("url", ["redis", "hub"], indirect=True)
def test_host_and_port_without_a_scheme_address_a_hub(
    url: str, queue: RemoteQueue[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    queue.put(b"a")
    assert main(["queue", "stats", queue.name, "--url", url.partition("://")[2]]) == 0


def test_an_empty_memory_engine_explains_that_it_belongs_to_the_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["queue", "list", "--url", "memory://"]) == 0
    assert "no queues; memory:// has only the queues of this process" in capsys.readouterr().out
    assert main(["queue", "stats", "orders", "--url", "memory://"]) == 1
    assert "there are none; memory:// has" in capsys.readouterr().err


def test_an_invalid_url_exits_with_2_and_hides_the_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["queue", "list", "--url", "amqp://me:secret@host"]) == 2
    err = capsys.readouterr().err
    assert "amqp" in err
    assert "secret" not in err


def test_an_unreachable_server_exits_with_1_and_advice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with refusing() as port:
        url = f"redis://me:secret@127.0.0.1:{port}?timeout=0.2"
        assert main(["queue", "list", "--url", url]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "is it running there?" in err
    assert "secret" not in err


@pytest.mark.parametrize(
    "name", sorted({*NAMES} - {"list", "import", "install", "configure", "check"})
)
def test_a_missing_queue_exits_with_1_and_existing_ones_are_named(
    cli: Command, queue: RemoteQueue[bytes], name: str
) -> None:
    queue.put(b"a")
    words = words_of(name)
    words[1] = f"{queue.name}x"
    said = cli(*words)
    assert (said.code, said.out) == (1, "")
    assert f"no queue '{queue.name}x' on this server; there are: " in said.err


# -- On a terminal --------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["redis", "hub"], indirect=True)
@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("n", 1, 1), ("", 1, 1)])
def test_on_a_terminal_a_destructive_command_asks_first(
    url: str, queue: RemoteQueue[bytes], answer: str, code: int, left: int
) -> None:
    queue.put(b"a")
    with terminal("purge", queue.name, "--url", url) as opened:
        opened.until(f"cancel 1 message of {queue.name}? [y/N] ")
        opened.type(f"{answer}\n")
        assert opened.rest() == code
        assert ("nothing was done" in opened.shown) is bool(left)
    assert queue.stats().unsettled == left


@pytest.mark.parametrize("url", ["redis", "hub"], indirect=True)
def test_watch_redraws_one_screen(url: str, queue: RemoteQueue[bytes]) -> None:
    queue.put_many([b"a", b"b", b"c"], keys="hot")
    lease = queue.get()
    with terminal("watch", queue.name, "--every", "0.05", "--url", url) as opened:
        opened.until("\x1b[H\x1b[2J")
        opened.until("hot key")
        opened.until("waits longest: message")
        # The name of a consumer is long, and shortened: what else is in the row stays whole.
        found = queue.explain(lease.id)
        assert found.nodes[0].consumer
        start = re.escape(found.nodes[0].consumer[:8])
        assert re.search(rf"{lease.id}  leased  {start}\S*  [\d.]+ m?s", opened.shown)
        lease.ack()
        opened.until("acks 0.0 /s")
        opened.process.send_signal(2)
        assert opened.rest() == 130
        assert "Traceback" not in opened.shown


def test_a_screen_of_watch_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    lines = fitted("\n".join(["x" * 100] * 30)).splitlines()
    assert (len(lines), {len(line) for line in lines}) == (9, {40})
    assert fitted("a\n\nb") == "a\n\nb"


def test_watch_without_a_terminal_prints_a_line_each_time(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put_many([b"a", b"b"], keys="hot")
    said = cli("watch", queue.name, "--every", "0.01", "--count", 2)
    first, second = said.out.splitlines()
    assert "unsettled 2, waiting 1, ready 1, hottest hot 2, oldest " in first
    assert "puts 0.0/s" in second
    assert "\x1b" not in said.out


def test_watch_of_all_queues_has_a_line_for_each(cli: Command, queue: RemoteQueue[bytes]) -> None:
    other = queue._client.queue(f"{queue.name}-other", bytes)
    other.put(b"x")
    queue.put_many([b"a", b"b"], keys="hot")
    said = cli("watch", "--every", "0.01", "--count", 2).out
    assert "\x1b" not in said
    looks = said.split("queue ")[1:]
    assert len(looks) == 2
    rows = {line.split()[0]: line.split()[1:] for line in looks[1].splitlines()[1:]}
    assert rows[queue.name][:2] == ["2", "1"] and "0.0" in rows[queue.name], "depth, ready, rates"
    assert looks[1].index(f"{queue.name} ") < looks[1].index(other.name), "the most first"
    told = {one["queue"]: one["counts"] for one in cli("watch", "--count", 1, "--json").lines}
    assert (told[queue.name]["unsettled"], told[other.name]["unsettled"]) == (2, 1)
    other.drop(force=True)


def test_watch_as_json_prints_an_object_each_time(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put_many([b"a", b"b"], keys="hot")
    lease = queue.get()
    first, second = cli("watch", queue.name, "--every", "0.01", "--count", 2, "--json").lines
    assert first["rates"] == {}
    assert second["rates"]["puts"] == 0
    assert first["counts"]["unsettled"] == 2
    assert first["hot"] == [{"key": "hot", "depth": 2, "front": lease.id}]
    assert [one["id"] for one in first["leases"]] == [lease.id]
    assert first["oldest_waiting"]["id"] > lease.id
    lease.ack()


@pytest.mark.parametrize("words", [["queue"], []])
def test_a_command_without_a_subcommand_lists_the_subcommands(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "COMMAND" in err and "exit" in err and "queue" in err


@pytest.mark.parametrize("url", ["hub"], indirect=True)
@pytest.mark.parametrize("words", [["hot"], ["peek"], ["explain", "--key"], ["peek", "--json"]])
def test_an_ascii_only_output_shows_keys_escaped(
    url: str, queue: RemoteQueue[bytes], words: list[str]
) -> None:
    queue.put("漢".encode(), keys="ключ")
    command = [*words[:1], queue.name, *words[1:], *(["ключ"] if "--key" in words else [])]
    done = subprocess.run(
        [sys.executable, "-m", "interlock", "queue", *command, "--url", url],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    if words[0] != "explain":
        assert b"\\u043a" in done.stdout
    if "--json" in words:
        assert json.loads(done.stdout)["keys"] == ["ключ"]


def test_a_long_key_is_shortened_in_a_table_and_complete_elsewhere(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"a", keys="k" * 500)
    assert max(map(len, cli("hot", queue.name).out.splitlines())) < 120
    assert "k" * 500 in cli("peek", queue.name).out
    assert cli("hot", queue.name, "--json").json["key"] == "k" * 500


def test_explain_reports_a_missing_message_or_key(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"a", keys="k")
    said = cli("explain", queue.name, 1)
    assert (said.code, said.out) == (1, "")
    assert f"message 1 is not in {queue.name}: settled, or never put" in said.err
    assert (
        f"nothing on key 'z' is waiting in {queue.name}"
        in cli("explain", queue.name, "--key", "z").err
    )
    queue.get().ack()
    assert cli("peek", queue.name).out == "no messages\n"


@pytest.mark.parametrize("url", ["redis", "hub"], indirect=True)
def test_a_single_server_addressed_as_a_cluster_lists_its_queues(
    url: str, queue: RemoteQueue[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    queue.put(b"a")
    address = url.partition("://")[2]
    assert main(["queue", "list", "--url", f"redis+cluster://{address}"]) == 0
    assert queue.name in capsys.readouterr().out


def test_a_cluster_where_no_node_answers_is_an_error_and_not_an_empty_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with refusing() as port:
        assert main(["queue", "list", "--url", f"redis+cluster://127.0.0.1:{port}"]) == 1
    assert "is it running there?" in capsys.readouterr().err


def test_ctrl_c_while_the_command_is_loaded_ends_it_as_any(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", interrupted)
    assert cli.main(["queue", "show", "a"]) == 130
    assert capsys.readouterr().err == "interlock: interrupted\n"
