"""Commands that change messages, and that open and close a queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.client.admin.operator import Operator
from interlock.client.faces.queue import RemoteQueue
from interlock.client.wire.records import Names, Stored
from interlock.errors import LeaseLost, ShutDown
from interlock.retry import Retry
from tests.cli.conftest import Command, Said

HOLD = Retry(attempts=1, then="hold")


def held(queue: RemoteQueue[bytes]) -> int:
    id = queue.put(b"poison", keys="k", retry=HOLD)
    queue.get().nack(error="no such account")
    return id


def test_revoke_ends_a_lease(cli: Command, queue: RemoteQueue[bytes]) -> None:
    id = queue.put(b"a", keys="k")
    lease = queue.get()
    assert cli("revoke", queue.name, id, "--yes").out == f"{id}  lease revoked\n"
    with pytest.raises(LeaseLost):
        lease.ack()
    assert queue.stats().revoked == 1


@pytest.mark.parametrize(("then", "count"), [("dead", "dead"), ("hold", "held")])
def test_revoke_then_decides_how_the_message_continues(
    cli: Command, queue: RemoteQueue[bytes], then: str, count: str
) -> None:
    id = queue.put(b"a", keys="k")
    lease = queue.get()
    assert cli("revoke", queue.name, id, "--then", then, "--yes").code == 0
    assert getattr(queue.stats(), count) == 1
    lease.stop_renewing()
    with pytest.raises(LeaseLost):
        lease.ack()


@pytest.mark.parametrize(
    ("word", "count"), [("retry", "ready"), ("skip", "skipped"), ("bury", "dead")]
)
def test_a_held_message_is_retried_skipped_or_buried(
    cli: Command, queue: RemoteQueue[bytes], word: str, count: str
) -> None:
    id = held(queue)
    yes = () if word == "retry" else ("--yes",)
    assert cli(word, queue.name, id, *yes, "--json").json == {"id": id, "changed": True}
    assert getattr(queue.stats(), count) == 1
    said = cli(word, queue.name, id, *yes)
    assert said.code == 1
    assert f"message {id} is neither held nor backing off" in said.err


def test_cancel_takes_several_ids_and_reports_missing_ones(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    first, second = queue.put(b"a"), queue.put(b"b")
    said = cli("cancel", queue.name, first, 17, second, "--yes")
    assert said.out == f"{first}  cancelled\n{second}  cancelled\n"
    assert (said.code, queue.stats().cancelled) == (1, 2)
    assert "message 17 is leased, or not found" in said.err


@pytest.mark.parametrize("word", ["revoke", "skip", "bury", "cancel", "purge"])
def test_a_destructive_command_requires_a_terminal_or_yes(
    cli: Command, queue: RemoteQueue[bytes], word: str
) -> None:
    id = queue.put(b"a")
    said = cli(word, queue.name, *(() if word == "purge" else (id,)))
    assert (said.code, said.out) == (2, "")
    assert "confirm with --yes" in said.err
    assert queue.stats().unsettled == 1


def test_pause_and_resume_a_queue_and_keys(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"a", keys="k")
    assert cli("pause", queue.name).out == f"{queue.name}  paused\n"
    assert cli("pause", queue.name, "--json").json["changed"] is False
    assert queue.stats().ready == 0
    assert cli("resume", queue.name).out == f"{queue.name}  resumed\n"
    said = cli("pause", queue.name, "--key", "k", "--key", "other")
    assert said.out == "key k  paused\nkey other  paused\n"
    assert queue.stats().ready == 0
    assert cli("resume", queue.name, "--key", "k", "--json").json["changed"] is True
    assert queue.stats().ready == 1
    assert cli("resume", queue.name).out == f"{queue.name}  was not paused\n"


def test_seal_and_reopen(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"a")
    assert "sealed" in cli("seal", queue.name).out
    with pytest.raises(ShutDown):
        queue.put(b"b")
    assert cli("seal", queue.name, "--json").json["changed"] is False
    assert cli("reopen", queue.name, "--json").json["changed"] is True
    assert cli("reopen", queue.name).out == f"{queue.name}  it was not sealed\n"
    queue.put(b"b")


@pytest.mark.parametrize("word", ["pause", "seal"])
def test_a_missing_queue_is_paused_or_sealed_only_on_request(
    cli: Command, queue: RemoteQueue[bytes], word: str
) -> None:
    queue.put(b"a")
    other = f"{queue.name}x"
    said = cli(word, other)
    assert said.code == 1
    assert f"no queue {other!r} on this server; there are: " in said.err
    assert cli(word, other, "--new").code == 0
    assert other in cli("list").out


def test_purge_drops_messages_that_are_not_leased(cli: Command, queue: RemoteQueue[bytes]) -> None:
    for number in range(5):
        queue.put(b"%d" % number)
    lease = queue.get()
    said = cli("purge", queue.name, "--yes")
    assert said.out == f"{queue.name}  4 messages cancelled; 1 leased, not cancelled\n"
    lease.reject("bad")
    told = cli("purge", queue.name, "--dead", "--yes", "--json").json
    assert told == {"queue": queue.name, "purged": 1, "leased": 0}
    assert (queue.stats().unsettled, queue.stats().dead) == (0, 0)


def test_purge_of_a_key_leaves_the_others(cli: Command, queue: RemoteQueue[bytes]) -> None:
    for key in "aabab":
        queue.put(b"x", keys=key)
    leased = queue.get()
    said = cli("purge", queue.name, "--key", "a", "--yes")
    assert said.out == (f"{queue.name}  2 messages with key a cancelled; 1 leased, not cancelled\n")
    for _ in range(2):
        queue.get().reject("bad")
    queue.put(b"x", keys="c")
    queue.get().reject("bad")
    told = cli("purge", queue.name, "--dead", "--key", "b", "--yes", "--json").json
    assert told == {"queue": queue.name, "purged": 2, "leased": 0}
    assert (queue.stats().unsettled, queue.stats().dead) == (1, 1)
    leased.ack()


def test_drop_refuses_a_queue_with_unsettled_messages_and_counts_them(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put_many([b"a", b"b"])
    lease = queue.get()
    lease.stop_renewing()
    said = cli("drop", queue.name, "--yes")
    assert (said.code, said.out) == (1, "")
    assert f"{queue.name} holds 2 unsettled messages, 1 leased" in said.err
    unsure = cli("drop", queue.name, "--force")
    assert (unsure.code, unsure.out) == (2, "")
    assert f"drop {queue.name}, with 2 messages? confirm with --yes" in unsure.err
    assert queue.stats().unsettled == 2
    said = cli("drop", queue.name, "--force", "--yes")
    assert said.out == (
        f"{queue.name}  dropped, with 2 messages, 1 leased, 0 dead letters and 0 results\n"
    )
    assert f"no queue {queue.name!r}" in cli("drop", queue.name).err
    assert queue.name not in cli("list").out
    with pytest.raises(LeaseLost):
        lease.ack()


def test_drop_asks_before_dead_letters_are_lost(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"a")
    queue.get().reject("bad")
    said = cli("drop", queue.name)
    assert (said.code, said.out) == (2, "")
    assert f"drop {queue.name}, with 1 dead letter?" in said.err
    told = cli("drop", queue.name, "--yes", "--json").json
    assert told["dropped"] is True
    assert told["dead"] == 1


def test_an_empty_queue_is_dropped_unasked(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"a")
    queue.get().ack()
    assert cli("drop", queue.name).code == 0
    assert queue.name not in cli("list").out


def test_dead_letters_page_by_page(cli: Command, queue: RemoteQueue[bytes]) -> None:
    ids = []
    for number in range(5):
        ids.append(queue.put(b"%d" % number, keys=["k", "even" if number % 2 == 0 else "odd"]))
        queue.get().reject(f"bad {number}")
    first = cli("dead-letters", queue.name, "--limit", 3)
    assert [line.split()[0] for line in first.out.splitlines()[::4]][:3] == list(
        map(str, ids[:1:-1])
    )
    assert "bad 4" in first.out
    assert f"--after {ids[2]}" in first.out.splitlines()[-1]
    rest = cli("dead-letters", queue.name, "--after", ids[2], "--json").lines
    assert [letter["id"] for letter in rest] == ids[1::-1]
    odd = cli("dead-letters", queue.name, "--key", "odd", "--json").lines
    assert [letter["id"] for letter in odd] == [ids[3], ids[1]]
    assert (odd[0]["error"], odd[0]["attempts"], odd[0]["payload"]) == ("bad 3", 1, "3")
    (group,) = cli("dead-letters", queue.name, "--by-error", "--json").lines
    assert (group["error"], group["count"], group["newest"]) == ("bad N", 5, ids[4])
    assert "bad N" in cli("dead-letters", queue.name, "--by-error").out


def test_requeue_takes_ids_a_key_or_all(cli: Command, queue: RemoteQueue[bytes]) -> None:
    ids = []
    for number in range(4):
        ids.append(queue.put(b"%d" % number, keys=f"k{number % 2}"))
        queue.get().reject("bad")
    new = cli("requeue", queue.name, ids[0], "--json").json
    assert new["new"] > ids[3]
    said = cli("requeue", queue.name, ids[0])
    assert said.code == 1
    assert f"no dead letter {ids[0]} in" in said.err
    refused = cli("requeue", queue.name, "--all")
    assert (refused.code, queue.stats().dead) == (2, 3)
    assert f"requeue 3 dead letters of {queue.name}?" in refused.err
    assert cli("requeue", queue.name, "--key", "k1", "--yes").out.endswith(
        "2 dead letters requeued\n"
    )
    assert cli("requeue", queue.name, "--all", "--yes").code == 0
    assert (queue.stats().dead, queue.stats().unsettled) == (0, 4)


def test_an_edited_call_is_requeued_with_the_keys_of_its_task(
    cli: Command, queue: RemoteQueue[bytes], operator: Operator
) -> None:
    def dead() -> int:
        id = queue.put(ship("old"), keys="order:1", shared="day:2026-01-01")
        queue.get().reject("bad")
        return id

    def ship(customer: str, id: int = 1) -> bytes:
        order = {"id": id, "customer": customer}
        body = {"v": 1, "task": "ship", "args": [order, "2026-01-01"]}
        return msgspec.msgpack.encode(body)

    id, args = dead(), '[{"id": 2, "customer": "new"}, "2026-01-02"]'
    unknown = cli("requeue", queue.name, id, "--args", args, "--yes")
    assert unknown.code == 2 and "no worker of queue" in unknown.err and "--app" in unknown.err
    app = ("--app", "tests.cli.sent_tasks:app")
    unsure = cli("requeue", queue.name, id, "--args", args, *app)
    assert unsure.code == 2 and "with keys order:2, day:2026-01-02 (shared)?" in unsure.err
    assert "old keys: order:1, day:2026-01-01 (shared)\n" in unsure.out
    said = cli("requeue", queue.name, id, "--args", args, *app, "--yes", "--json").json
    assert (said["keys"], said["shared"]) == (["order:2"], ["day:2026-01-02"])
    put = operator.peek(queue.name, said["new"])
    assert put is not None and (put.keys, put.shared) == ((b"order:2",), (b"day:2026-01-02",))
    assert msgspec.msgpack.decode(put.payload)["args"][0]["customer"] == "new"


def test_an_edited_call_takes_the_limits_the_group_and_the_run_of_its_task(
    cli: Command, queue: RemoteQueue[bytes], operator: Operator
) -> None:
    def requeued(*words: str) -> tuple[Said, Stored]:
        bill = {"v": 1, "task": "shop.bill", "args": [{"tenant": "a", "cents": 1}]}
        id = queue.put(
            msgspec.msgpack.encode(bill), keys="tenant:a", limit="bank:a", group="a", run=9
        )
        queue.get().reject("bad")
        said = cli("requeue", queue.name, id, *words, "--yes")
        (put,) = operator.messages(queue.name)
        operator.change("cancel", queue.name, put.id)
        return said, put

    args = ("--args", '[{"tenant": "b", "cents": 1}]')
    said, put = requeued(*args, "--app", "tests.cli.sent_tasks:app")
    assert "old names: limits bank:a, group a, run 9:\n" in said.out
    assert "new names: limits bank:b, group b, run 5:shop.bill\n" in said.out
    assert put.names == Names(("bank:b",), "b", "5:shop.bill")
    # Stated keys say nothing of names, which stay unless they are stated too.
    said, put = requeued(*args, "--new-key", "tenant:b")
    assert put.names == Names(("bank:a",), "a", "9:") and "names" not in said.out
    said, put = requeued("--new-limit", "two", "--new-limit", "one", "--new-group", "", "--json")
    assert (put.keys, put.names) == ((b"tenant:a",), Names(("one", "two"), None, "9:"))
    assert (said.json["limit"], said.json["group"], said.json["run"]) == (
        ["one", "two"],
        None,
        "9:",
    )
    said, put = requeued("--new-limit", "")
    assert put.names == Names((), "a", "9:")


def test_editing_a_message_of_no_task_requires_its_keys(
    cli: Command, queue: RemoteQueue[bytes], operator: Operator
) -> None:
    def edited(*words: str, **options: Any) -> Said:
        id = queue.put(b"old", **options)
        queue.get().reject("bad")
        return cli("requeue", queue.name, id, *words, "--yes")

    assert "state them by --new-key" in edited("--payload", "new").err
    assert edited("--payload", "new", "--no-keys", "--new-key", "k").code == 2
    assert edited("--args", "[", "--no-keys").code == 2
    both = ("--new-key", "k", "--new-key", "l", "--new-shared", "k", "--new-shared", "s")
    said = edited("--payload", "new", *both, keys="old")
    assert "old keys: old\nnew keys: k, l, k (shared), s (shared) (stated)\n" in said.out
    (put,) = operator.messages(queue.name)
    assert (put.payload, put.keys, put.shared) == (b"new", (b"k", b"l"), (b"s",))
    operator.change("cancel", queue.name, put.id)
    assert edited("--no-keys", keys="old").code == 0
    (put,) = operator.messages(queue.name)
    assert (put.payload, put.keys) == (b"old", ())
    operator.change("cancel", queue.name, put.id)
    assert "a barrier, which takes no keys" in edited("--new-key", "k", barrier=True).err


def test_a_purge_and_an_import_leave_one_line_each_in_the_audit_log(
    cli: Command, queue: RemoteQueue[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put_many([b""] * 1000, keys="a")
    queue.put_many([b""] * 5)
    exported = tmp_path / "exported"
    exported.write_text(cli("export", queue.name, "--move").out)
    file = tmp_path / "audit.jsonl"
    monkeypatch.setenv("INTERLOCK_AUDIT_LOG", str(file))
    cli("purge", queue.name, "--yes")
    assert cli("import", queue.name, "--file", exported).err == ""
    cli("configure", queue.name, "--maxsize", "7")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["action"], line["what"], line["result"]) for line in lines] == [
        ("purge", "pending", "1005 cancelled"),
        ("import", f"{queue.name}, 1,005 messages", "1005 put, 0 known already"),
        ("configure", "MAXSIZE 7", "changed"),
    ]


def test_changes_by_a_command_are_appended_to_the_audit_log(
    cli: Command, queue: RemoteQueue[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "audit.jsonl"
    monkeypatch.setenv("INTERLOCK_AUDIT_LOG", str(file))
    id = held(queue)
    cli("skip", queue.name, id, "--yes")
    cli("pause", queue.name, "--key", "k")
    cli("seal", queue.name)
    cli("purge", queue.name, "--yes")
    cli("drop", queue.name, "--yes")
    cli("show", queue.name)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    told = [(line["action"], line["what"], line["result"]) for line in lines]
    assert told[:3] == [
        ("skip", f"message {id}", "changed"), ("pause", "keys k", "changed"),
        ("seal", "", "changed"),
    ]  # fmt: skip
    assert [one[0] for one in told[3:]] == ["purge", "drop"]
    assert told[4][2] == "dropped with 0 messages and 0 dead letters"
    assert all(line["who"] == "default" and "@" in line["from"] for line in lines)
    monkeypatch.setenv("INTERLOCK_AUDIT_LOG", str(tmp_path))
    said = cli("reopen", queue.name)
    assert said.code == 2 and "INTERLOCK_AUDIT_LOG names" in said.err
