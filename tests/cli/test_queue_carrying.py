"""`interlock queue export` and `import`: what is carried, and that it is carried once."""

from __future__ import annotations

import json
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from interlock.client.faces.queue import RemoteQueue
from interlock.errors import ShutDown
from interlock.retry import Retry
from tests.cli.conftest import Command, Said, moved


def handled(queue: RemoteQueue[bytes]) -> list[tuple[bytes, int]]:
    """Payload and attempt of all that is ready, in the order in which it is leased."""
    found = []
    while leases := queue.get_many(1, block=False) if queue.stats().ready else []:
        for lease in leases:
            found.append((lease.payload, lease.attempt))
            lease.ack()
    return found


def test_an_import_keeps_order_keys_and_options(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    queue.put(b"first", keys=["a", b"\xff"], shared="s")
    queue.put(b"\x00\xff", keys="a", priority=7, dedup="once")
    queue.put(b"later", keys="a", delay=600)
    queue.put(b"alone", barrier=True)
    queue.put(b"last", keys="b", result_ttl=60, retry=Retry(attempts=9, first=2, then="hold"))
    moved(cli, queue, file)
    assert cli("import", other.name, "--file", file).code == 0
    there = cli("peek", queue.name, "--json").lines
    here = cli("peek", other.name, "--json").lines
    same = ("keys", "shared", "payload", "priority", "barrier", "attempt")
    for name in same:
        assert [one[name] for one in here] == [one[name] for one in there], name
    assert here[-1]["state"] == "delayed"
    assert 590 < here[-1]["due_in"] <= 600
    # A second transfer gives the same result.
    again = moved(cli, other, file)
    (last,) = [line for line in again if line.get("payload") == "last"]
    options = last["options"]
    assert (options["attempts"], options["first"], options["then"]) == ("9", "2000000", "hold")
    assert options["result"] == "60000000"
    (once,) = [line for line in again if line.get("options", {}).get("dedup") == "once"]
    assert once["payload"] == {"base64": "AP8="}


def test_an_import_of_a_thousand_messages_keeps_their_order(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    payloads = [b"%d" % number for number in range(1000)]
    queue.put_many(payloads, keys=lambda payload: [payload[-1:], b"all"])
    lines = moved(cli, queue, file)
    assert lines[-1] == {"end": True, "messages": 1000, "dead": 0}
    told = cli("import", other.name, "--file", file, "--json").json
    assert told == {"queue": other.name, "messages": 1000, "known": 0, "dead": 0}
    assert [payload for payload, _ in handled(other)] == payloads


def test_a_repeated_import_creates_no_duplicates(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    queue.put_many([b"a", b"b", b"c"], keys="k")
    queue.put(b"dead", keys="d")
    for lease in queue.get_many(10):
        if lease.payload == b"dead":
            lease.reject("bad")
        else:
            lease.release()
    lines = moved(cli, queue, file)
    # It broke off in the middle.
    half = file.with_name("half")
    broken = [*lines[:3], {"end": True, "messages": 1, "dead": 1}]
    half.write_text("\n".join(map(json.dumps, broken)))
    assert cli("import", other.name, "--file", half).code == 0
    told = cli("import", other.name, "--file", file, "--json").json
    assert (told["messages"], told["known"]) == (2, 2)
    for _ in range(2):
        assert cli("import", other.name, "--file", file, "--json").json["messages"] == 0
    assert (other.stats().unsettled, other.stats().dead) == (3, 1)
    assert [payload for payload, _ in handled(other)] == [b"a", b"b", b"c"]


def test_dead_letters_are_imported_as_dead_letters(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    for number in range(3):
        queue.put(b"%d" % number, keys="same", priority=number)
        queue.get().reject(f"bad {number}")
    moved(cli, queue, file)
    assert cli("import", other.name, "--file", file, "--json").json["dead"] == 3
    letters = cli("dead-letters", other.name, "--json").lines
    assert [(one["payload"], one["error"], one["keys"]) for one in letters] == [
        (str(number), f"bad {number}", ["same"])
        for number in (2, 1, 0)  # The newest first.
    ]
    assert other.stats().unsettled == 0


def test_dead_letters_keep_the_order_in_which_they_died(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    for number in range(30):
        queue.put(b"%d" % number, keys=f"k{number % 7}", priority=number % 5)
        queue.get().reject("bad")
    moved(cli, queue, file)
    assert cli("import", other.name, "--file", file).code == 0
    letters = cli("dead-letters", other.name, "--limit", 100, "--json").lines
    # The newest first.
    assert [letter["payload"] for letter in letters] == [str(29 - number) for number in range(30)]


def test_a_queue_in_use_is_refused_unless_a_copy_is_wanted(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"a")
    said = cli("export", queue.name)
    assert (said.code, said.out) == (1, "")
    assert "is not sealed and not paused" in said.err
    queue.seal()
    assert "is not paused" in cli("export", queue.name).err
    assert cli("export", queue.name, "--live").lines[-1]["messages"] == 1
    queue.pause()
    assert cli("export", queue.name).code == 0
    queue.resume()
    # A key that is paused is not the queue.
    assert queue.reopen()
    queue.put(b"b", keys="k")
    queue.pause("k")
    queue.seal()
    assert "is not paused" in cli("export", queue.name).err
    both = cli("export", queue.name, "--live", "--move")
    assert both.code == 2


def test_leased_messages_are_not_exported_and_reported(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    queue.put_many([b"a", b"b"], keys="k")
    lease = queue.get()
    queue.seal()
    queue.pause()
    said = cli("export", queue.name)
    assert (said.code, said.lines[0]["left_out"], said.lines[-1]["messages"]) == (1, 1, 1)
    assert "1 message leased, not exported" in said.err
    late = cli("export", queue.name, "--drain", "0.05")
    assert (late.code, late.out) == (1, "")
    assert "1 still leased after 0.05 s, and nothing was written" in late.err
    file.write_text(said.out)
    assert "1 leased messages were not exported" in cli("import", other.name, "--file", file).err
    lease.ack()


def test_move_waits_until_nothing_is_leased(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put_many([b"a", b"b"], keys="k")
    lease = queue.get()
    said: list[Said] = []
    thread = threading.Thread(target=lambda: said.append(cli("export", queue.name, "--move")))
    thread.start()
    with suppress(ShutDown):
        while True:
            queue.put(b"c", dedup="c")
    lease.ack()
    thread.join(30)
    assert said[0].code == 0
    assert [line.get("payload") for line in said[0].lines[1:-1]] in (["b"], ["b", "c"])


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (lambda lines: lines[:-1], "it was cut off after line 3"),
        (lambda lines: [*lines[:1], *lines[2:]], "lines are missing or were added"),
        (lambda lines: lines[1:], "line 1: no first line of an export"),
        (lambda lines: [{**lines[0], "format": 9}, *lines[1:]], "format is 9"),
        (lambda lines: [*lines[:1], {**lines[1], "keys": [7]}, *lines[2:]], "line 2: 7; allowed"),
        (
            lambda lines: [*lines[:1], {"id": 1}, *lines[2:]],
            "line 2: ",
        ),
    ],
)
def test_a_damaged_file_exits_with_2_and_puts_nothing(
    cli: Command,
    queue: RemoteQueue[bytes],
    other: RemoteQueue[bytes],
    file: Path,
    break_it: Any,
    complaint: str,
) -> None:
    queue.put_many([b"a", b"b"])
    lines = moved(cli, queue, file)
    file.write_text("\n".join(json.dumps(line) for line in break_it(lines)))
    said = cli("import", other.name, "--file", file)
    assert said.code == 2
    assert complaint in said.err
    assert other.stats().puts == 0


def test_a_missing_file_exits_with_2(cli: Command, tmp_path: Path) -> None:
    said = cli("import", f"q{uuid.uuid4().hex}", "--file", tmp_path / "missing")
    assert said.code == 2
    assert "missing: No such file or directory" in said.err
