"""`interlock queue list`, `stats`, `hot` and `peek`."""

from __future__ import annotations

import json
import uuid

import msgspec
import pytest
from redis import Redis

from interlock import Client, connect
from interlock.cli import main
from interlock.client.admin.operator import Operator
from interlock.client.faces.queue import RemoteQueue
from tests.cli.conftest import Command


def test_list_prints_the_counts_of_each_queue(cli: Command, queue: RemoteQueue[bytes]) -> None:
    for payload in (b"a", b"b", b"c"):
        queue.put(payload, keys="k")
    lease = queue.get()
    (row,) = [row for row in cli("list", "--json").lines if row["queue"] == queue.name]
    assert (row["unsettled"], row["leased"], row["waiting"], row["ready"]) == (3, 1, 2, 0)
    (line,) = [line for line in cli("list").out.splitlines() if queue.name in line]
    assert line.split() == [queue.name, "3", "0", "1", "0", "0"]
    queue.seal()
    queue.pause()
    (line,) = [line for line in cli("list").out.splitlines() if queue.name in line]
    assert line.endswith("1 pause, sealed")
    lease.ack()


def test_list_and_stats_show_which_queue_is_full(cli: Command, client: Client) -> None:
    queue = client.queue(f"narrow{uuid.uuid4().hex}", bytes, maxsize=2, maxbytes=5)
    queue.put(b"1")
    assert cli("stats", queue.name, "--json").json["full"] == 0
    queue.put(b"2345")
    (line,) = [line for line in cli("list").out.splitlines() if queue.name in line]
    assert line.endswith("full")
    assert cli("stats", queue.name).out.startswith(f"{queue.name}: full\n")
    queue.get().ack()
    assert cli("stats", queue.name).out.startswith(f"{queue.name}\n")


def test_stats_prints_every_count_of_the_engine(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"a", keys="k")
    queue.get().ack()
    told = cli("stats", queue.name, "--json").json
    assert (told["queue"], told["puts"], told["acks"], told["unsettled"]) == (queue.name, 1, 1, 0)
    said = cli("stats", queue.name)
    assert said.code == 0
    shown = {line.rpartition("  ")[0].strip() or line for line in said.out.splitlines()}
    words = said.out.replace("_", " ")
    assert shown
    for name in told.keys() - {"queue", "paused", "sealed", "full"}:
        assert name.replace("_", " ") in words


def test_hot_puts_the_deepest_key_first(cli: Command, queue: RemoteQueue[bytes]) -> None:
    for keys in (["a", "b"], ["b"], ["b", "c"]):
        queue.put(b"", keys=keys)
    assert cli("hot", queue.name, "--json").lines == [
        {"key": "b", "depth": 3},
        {"key": "a", "depth": 1},
        {"key": "c", "depth": 1},
    ]
    said = cli("hot", queue.name, "--limit", 1)
    assert said.out.splitlines()[1].split() == ["3", "b", "#" * 40]
    assert said.out.endswith("3 keys with messages\n")


def test_peek_shows_the_first_in_their_order(cli: Command, queue: RemoteQueue[bytes]) -> None:
    ids = [queue.put(b"%d" % number, keys="k", priority=number) for number in range(12)]
    found = cli("peek", queue.name, "--json").lines
    assert [message["id"] for message in found] == ids[:10]
    assert [message["priority"] for message in found] == list(range(10))
    assert [message["state"] for message in found] == ["ready", *["waiting"] * 9]
    last = cli("peek", queue.name, ids[11], "--json").json
    assert (last["id"], last["payload"], last["keys"]) == (ids[11], "11", ["k"])


def test_peek_decodes_payloads(cli: Command, queue: RemoteQueue[bytes]) -> None:
    payloads = {
        b'{"amount": 5}': ("json", {"amount": 5}),
        msgspec.msgpack.encode({"amount": 5, "raw": b"\xff"}): (
            "msgpack",
            {"amount": 5, "raw": {"base64": "/w=="}},
        ),
        b"seven teapots": ("text", None),
        b"\xff\xfe\x00": ("bytes", None),
    }
    for payload in payloads:
        queue.put(payload)
    told = cli("peek", queue.name, "--json").lines
    assert [(one["format"], one.get("value")) for one in told] == list(payloads.values())
    out = cli("peek", queue.name).out
    assert '{"amount": 5}' in out
    assert "seven teapots" in out
    assert "0xfffe00" in out


def test_peek_filters_by_state_and_key(cli: Command, queue: RemoteQueue[bytes]) -> None:
    leased = queue.put(b"a", keys="k")
    waiting = queue.put(b"b", shared="k")
    delayed = queue.put(b"c", keys="other", delay=600)
    lease = queue.get()
    for state, id in (("leased", leased), ("waiting", waiting), ("delayed", delayed)):
        assert cli("peek", queue.name, "--state", state, "--json").json["id"] == id
    assert [one["id"] for one in cli("peek", queue.name, "--key", "k", "--json").lines] == [
        leased,
        waiting,
    ]
    later = [queue.put(b"d", keys=["k", "l"], delay=delay) for delay in (900, 700)]
    for after, ids in ((None, [leased, waiting, *later[::-1]]), (waiting, later[::-1])):
        paged = [] if after is None else ["--after", after]
        for limit in (1, len(ids)):
            found = cli("peek", queue.name, "--key", "k", "--json", "--limit", limit, *paged).lines
            assert [one["id"] for one in found] == ids[:limit]
    told = cli("peek", queue.name, leased, "--json").json
    assert told["consumer"]
    assert told["held_for"] >= 0
    assert 0 < told["lease_left"] <= 30
    assert f"{leased}  leased, by " in cli("peek", queue.name, leased).out
    lease.ack()


def test_peek_shows_how_often_a_message_was_replaced(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"plain")
    id = queue.put(b"1", coalesce="price")
    for payload, times in ((b"2", "1 time"), (b"3", "2 times")):
        queue.put(payload, coalesce="price")
        assert f"{id}  ready, replaced {times}, age " in cli("peek", queue.name, id).out
    plain, named = cli("peek", queue.name, "--json").lines
    assert (plain["coalesce"], plain["replaced"]) == (None, 0)
    assert (named["coalesce"], named["replaced"], named["payload"]) == ("price", 2, "3")
    assert cli("stats", queue.name, "--json").json["coalesced"] == 2


def test_peek_prints_the_last_failure(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"a", keys="k")
    queue.get().nack(600, error="no such account")
    told = cli("peek", queue.name, "--json").json
    assert (told["state"], told["attempt"], told["error"]) == ("backing_off", 2, "no such account")
    assert 0 < told["due_in"] <= 600
    assert "failed: no such account" in cli("peek", queue.name).out


def test_peek_of_one_message_prints_all_failures_with_tracebacks(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    id = queue.put(b"a")
    queue.get().nack(0, error='no route\n  File "a.py", line 3, in send')
    queue.get().nack(600, error="no such account")
    told = cli("peek", queue.name, id).out
    assert told.index("attempt 2 failed") < told.index("attempt 1 failed")
    assert ": no route\n" in told and '  File "a.py", line 3, in send' in told
    # Of many, a line each.
    assert "no route" not in cli("peek", queue.name).out
    newest, oldest = cli("peek", queue.name, id, "--json").json["failures"]
    assert (newest["attempt"], newest["error"], newest["traceback"]) == (2, "no such account", "")
    assert (oldest["attempt"], oldest["error"]) == (1, "no route")
    assert "line 3" in oldest["traceback"] and oldest["time"] < newest["time"]


def test_peek_prints_the_page_after_a_message(cli: Command, queue: RemoteQueue[bytes]) -> None:
    ids = [queue.put(b"%d" % n, keys=f"k{n % 2}") for n in range(5)]
    late = queue.put(b"late", delay=600)

    def page(*words: object) -> list[int]:
        lines = cli("peek", queue.name, *words, "--json").out.splitlines()
        return [json.loads(line)["id"] for line in lines]

    assert page("--limit", 2) == ids[:2]
    assert page("--after", ids[1]) == [*ids[2:], late]
    assert page("--after", ids[1], "--key", "k0") == [ids[2], ids[4]]
    assert page("--after", late) == []
    queue.cancel(ids[2])
    assert page("--after", ids[2], "--limit", 1) == ids[3:4]


def test_discard_drops_dead_letters(cli: Command, queue: RemoteQueue[bytes]) -> None:
    id = queue.put(b"a")
    queue.get().reject("bad")
    assert cli("discard", queue.name, id).code == 2
    said = cli("discard", queue.name, id, "--yes")
    assert (said.code, said.out.strip()) == (0, f"{id}  discarded")
    said = cli("discard", queue.name, id, "--yes")
    assert said.code == 1 and f"message {id} is not a dead letter" in said.err
    assert queue.dead_letters() == []


def test_a_missing_message_or_queue_exits_with_1_and_is_named(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"a")
    said = cli("peek", queue.name, 17)
    assert (said.code, said.out.strip()) == (1, "")
    assert f"message 17 is not in {queue.name}" in said.err


def test_control_characters_in_a_payload_are_escaped(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"\x1b[2J", keys=b"\x1b[2J")
    for word in ("peek", "hot"):
        assert "\x1b" not in cli(word, queue.name).out
    for words in (("pause",), ("resume",), ("purge", "--yes")):
        said = cli(*words, queue.name, "--key", "\x1b[2J")
        assert (said.code, "\\x1b[2J" in said.out, "\x1b" in said.out) == (0, True, False), words


def test_a_foreign_redis_key_that_resembles_a_queue_hides_no_queue(
    redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with connect(redis_url) as client, Redis.from_url(redis_url) as server:
        client.queue("beside-a-stranger").put(1)
        server.set("il:{stranger}:c", "a string")
        try:
            assert main(["queue", "list", "--json", "--url", redis_url]) == 1
            out, err = capsys.readouterr()
            assert '"beside-a-stranger"' in out
            assert "stranger" not in out.replace("beside-a-stranger", "")
            assert "refuses il1_stats of queue 'stranger'" in err
        finally:
            server.delete("il:{stranger}:c")


def test_peek_of_a_key_reads_only_messages_of_that_key(
    cli: Command, queue: RemoteQueue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those behind `b` too, so that messages without the key are reported too.
    ids = [queue.put(b"x", keys=["a", "b"]) for _ in range(30)]
    behind = queue.put(b"x", keys="b")
    queue.put(b"x", keys="c")
    monkeypatch.setattr(Operator, "messages", None)

    def peeked(*words: object) -> list[int]:
        return [one["id"] for one in cli("peek", queue.name, *words, "--json").lines]

    assert peeked("--key", "a", "--limit", 7) == ids[:7]
    assert peeked("--key", "a", "--limit", 7, "--after", ids[19]) == ids[20:27]
    assert peeked("--key", "a", "--limit", 40) == ids
    assert peeked("--key", "b", "--limit", 40) == [*ids, behind]
    assert peeked("--key", "a", "--state", "waiting", "--limit", 3) == ids[1:4]
    assert peeked("--key", "nobody") == []


def test_peek_reads_the_first_messages_alone_unless_one_was_delayed(
    cli: Command, queue: RemoteQueue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [queue.put(b"x", keys=f"{n % 3}") for n in range(30)]
    later = queue.put(b"x", delay=1000)

    def peeked(*words: object) -> list[int]:
        return [one["id"] for one in cli("peek", queue.name, *words, "--json").lines]

    with monkeypatch.context() as patched:
        patched.setattr(Operator, "messages", None)
        assert peeked("--limit", 7) == ids[:7]
        assert peeked("--limit", 40) == [*ids, later]
        assert peeked("--state", "waiting", "--limit", 3) == ids[3:6]
        assert peeked("--state", "delayed") == [later]
    assert peeked("--limit", 7, "--after", ids[5]) == ids[6:13]
    early = queue.put(b"x", keys="0", delay=1000)
    last = queue.put(b"x", keys="3")
    # A message that is delayed is shown behind all others.
    assert peeked("--limit", 33) == [*ids, last, later, early]
    assert peeked("--limit", 32) == [*ids, last, later]


def test_peek_of_a_key_finds_delayed_messages_too(cli: Command, queue: RemoteQueue[bytes]) -> None:
    late = queue.put(b"x", keys="a", delay=1000)
    now = queue.put(b"x", keys="a")
    found = cli("peek", queue.name, "--key", "a", "--json").lines
    assert [one["id"] for one in found] == [now, late]
