"""A bad call gets an error that names what was wrong, and the queue is as before."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from tests.engine.calls import LONG, Argument, Queue, message

PUT: tuple[Argument, ...] = ("c", 0, 0)
LEASE: tuple[Argument, ...] = ("c", 0, 0, 1, LONG, "any")
SETTLE: tuple[Argument, ...] = ("c", 0)
MANY = [f"key {n}" for n in range(1_025)]
HUGE = 10**15 + 1

BAD: list[tuple[str, tuple[Argument, ...], str]] = [
    # Too few and too many arguments.
    ("put", (), "BADARG il1_put: consumer is missing"),
    ("put", ("c",), "BADARG il1_put: call is missing"),
    ("put", PUT, "BADARG il1_put: messages[1].payload is missing"),
    ("put", (*PUT, "p"), "BADARG il1_put: messages[1].exclusive is missing"),
    ("put", (*PUT, "p", 1, 0), "BADARG il1_put: messages[1].options is missing"),
    ("put", (*PUT, "p", 2, 0, 0, "a"), "BADARG il1_put: messages[1].exclusive[2] is missing"),
    ("put", (*PUT, "p", 0, 1, 0), "BADARG il1_put: messages[1].shared[1] is missing"),
    ("put", (*PUT, "p", 0, 0, 1), "BADARG il1_put: messages[1].options is missing"),
    ("put", (*PUT, *message("p"), "q"), "BADARG il1_put: messages[2].exclusive is missing"),
    ("put", (*PUT, "p", 0, 0, 1, "DELAY"), "BADARG il1_put: messages[1].DELAY is missing"),
    ("lease", ("c", 0, 0, 1), "BADARG il1_lease: duration is missing"),
    ("lease", (*LEASE, "x", "y"), "BADARG il1_lease: 2 arguments too many"),
    ("settle", SETTLE, "BADARG il1_settle: settlements are missing"),
    ("settle", (*SETTLE, "ACK", 5), "BADARG il1_settle: settlements[1].id is missing"),
    ("settle", (*SETTLE, "NACK", 5, 6, 0), "BADARG il1_settle: settlements[1].error is missing"),
    ("next", (*LEASE, "REJECT", 5, 6), "BADARG il1_next: settlements[1].reason is missing"),
    ("extend", (5,), "BADARG il1_extend: duration is missing"),
    ("stats", ("x",), "BADARG il1_stats: 1 arguments too many"),
    ("peek", (), "BADARG il1_peek: id is missing"),
    ("dead_letters", (), "BADARG il1_dead_letters: count is missing"),
    # Values that are not numbers, or out of range.
    ("put", ("c", "x"), "BADARG il1_put: call is 'x'; a whole number from 0 to 9007199254740991"),
    ("put", ("", 1, 0, *message("p")), "BADARG il1_put: consumer is empty, which only call 0 may"),
    ("put", ("c", -1), "BADARG il1_put: call is '-1'"),
    ("put", (*PUT, "p", "one", 0, 0), "BADARG il1_put: messages[1].exclusive is 'one'"),
    ("put", (*PUT, "p", "1.5", 0, 0), "BADARG il1_put: messages[1].exclusive is '1.5'"),
    ("put", (*PUT, "p", "0x1", 0, 0), "BADARG il1_put: messages[1].exclusive is '0x1'"),
    ("put", (*PUT, "p", "\n", 0, 0), "BADARG il1_put: messages[1].exclusive is '?'"),
    (
        "put",
        (*PUT, *message("p", priority=101)),
        "BADARG il1_put: messages[1].PRIORITY is '101'; a whole number from -100 to 100",
    ),
    ("put", (*PUT, *message("p", delay=-1)), "BADARG il1_put: messages[1].DELAY is '-1'"),
    ("put", (*PUT, *message("p", delay=HUGE)), "BADARG il1_put: messages[1].DELAY is"),
    ("put", (*PUT, *message("p", window="x")), "BADARG il1_put: messages[1].WINDOW is 'x'"),
    ("put", (*PUT, *message("p", attempts=-1)), "BADARG il1_put: messages[1].ATTEMPTS is '-1'"),
    ("lease", ("c", 0, 0, 0, LONG, "any"), "BADARG il1_lease: count is '0'"),
    ("lease", ("c", 0, 0, 1_025, LONG, "any"), "BADARG il1_lease: count is '1025'"),
    ("lease", ("c", 0, 0, 1, 0, "any"), "BADARG il1_lease: duration is '0'"),
    ("lease", ("c", 0, 0, 1, HUGE, "any"), "BADARG il1_lease: duration is"),
    (
        "lease",
        ("c", 0, 0, 1, LONG, "all"),
        "BADARG il1_lease: kind is not any, keyed, unkeyed, any+ or keyed+",
    ),
    ("settle", (*SETTLE, "ack", 5, 6), "BADARG il1_settle: settlements[1] is not ACK, DONE, NACK"),
    (
        "settle",
        (*SETTLE, "ACK", "05", 6),
        "BADARG il1_settle: settlements[1].token is not a num",
    ),
    ("settle", (*SETTLE, "ACK", 5, "x"), "BADARG il1_settle: settlements[1].id is not a number"),
    ("settle", (*SETTLE, "NACK", 5, 6, -1, ""), "BADARG il1_settle: settlements[1].delay is '-1'"),
    ("extend", ("x", 1), "BADARG il1_extend: token is not a number that this queue gives"),
    ("extend", (5, 0), "BADARG il1_extend: duration is '0'"),
    ("peek", ("-1",), "BADARG il1_peek: id is not a number"),
    ("dead_letters", (0,), "BADARG il1_dead_letters: count is '0'"),
    # Values that are too long, or too many.
    ("put", (*PUT, *message("p", MANY)), "BADARG il1_put: messages[1].exclusive is '1025'"),
    (
        "put",
        (*PUT, *message("p", MANY[:600], MANY[600:])),
        "BADARG il1_put: messages[1] has 1025 keys; at most 1024",
    ),
    (
        "put",
        (*PUT, *[part for _ in range(5) for part in message("p", MANY[:1_024])]),
        "TOOBIG il1_put: more than 4096 keys, all messages together",
    ),
    (
        "put",
        (*PUT, *[part for _ in range(1_025) for part in message("p")]),
        "TOOBIG il1_put: more than 1024 messages",
    ),
    (
        "settle",
        (*SETTLE, *[part for _ in range(1_025) for part in ("ACK", 5, 6)]),
        "TOOBIG il1_settle: more than 1024 settlements",
    ),
    (
        "put",
        (*PUT, *message("p" * 1_048_577)),
        "BADARG il1_put: messages[1].payload has 1048577 bytes; at most 1048576",
    ),
    (
        "put",
        (*PUT, *message("p", ["a", "k" * 1_025])),
        "BADARG il1_put: messages[1].exclusive[2] has 1025 bytes; at most 1024",
    ),
    ("put", (*PUT, *message("p", [], [""])), "BADARG il1_put: messages[1].shared[1] is empty"),
    ("put", (*PUT, *message("p", dedup="")), "BADARG il1_put: messages[1].DEDUP is empty"),
    ("put", (*PUT, *message("p", dedup="d" * 1_025)), "BADARG il1_put: messages[1].DEDUP has"),
    ("put", ("c" * 1_025, 0, 0, *message("p")), "BADARG il1_put: consumer has 1025 bytes"),
    ("settle", (*SETTLE, "REJECT", 5, 6, "r" * 4_097), "BADARG il1_settle: settlements[1].reason"),
    ("settle", (*SETTLE, "DEFER", 5, 6), "BADARG il1_settle: settlements[1].delay is missing"),
    ("settle", (*SETTLE, "DEFER", 5, 6, -1), "BADARG il1_settle: settlements[1].delay is '-1'"),
    ("forget", ("x",), "BADARG il1_forget: id"),
    ("events", ("", 1_025, 1), "BADARG il1_events: count is '1025'"),
    ("events", ("", 1, 60_000_001), "BADARG il1_events: duration is '60000001'"),
    ("events", ("x", 1, 1), "BADARG il1_events: after is 'x'"),
    ("announce", ("", 1, ""), "BADARG il1_announce: worker is empty"),
    ("announce", ("w" * 513, 1, ""), "BADARG il1_announce: worker has 513 bytes; at most 512"),
    ("announce", ("w", 1, "t" * 65_537), "BADARG il1_announce: text has 65537 bytes"),
    ("ask", ("w", "t" * 4_097), "BADARG il1_ask: text has 4097 bytes; at most 4096"),
    ("workers", ("", 0), "BADARG il1_workers: count is '0'"),
    ("settle", (*SETTLE, "EXHAUST", 5, 6), "BADARG il1_settle: settlements[1].error is missing"),
    (
        "put",
        (*PUT, *message("p", ["a"], barrier=1)),
        "BADARG il1_put: messages[1].BARRIER is 1",
    ),
    ("put", (*PUT, *message("p", barrier=2)), "BADARG il1_put: messages[1].BARRIER is '2'"),
    (
        "put",
        (*PUT, *message("p", then="x")),
        "BADARG il1_put: messages[1].THEN is not dead",
    ),
    ("put", (*PUT, *message("p", factor=999)), "BADARG il1_put: messages[1].FACTOR is '999'"),
    (
        "put",
        (*PUT, "p", 0, 0, 2, "DELAY", 1, "DELAY", 1),
        "BADARG il1_put: messages[1].options name DELAY twice",
    ),
    # Arguments of the other functions.
    ("put", ("c", 0, -1, *message("p")), "BADARG il1_put: wait is '-1'"),
    ("settle", (*SETTLE, "DONE", 5, 6), "BADARG il1_settle: settlements[1].result is missing"),
    (
        "configure",
        ("SIZE", 1),
        "BADARG il1_configure: options[1] is not CHANGE, REPLACE, MAXSIZE,",
    ),
    ("configure", ("MAXSIZE",), "BADARG il1_configure: MAXSIZE is missing"),
    ("configure", ("MAXSIZE", -1), "BADARG il1_configure: MAXSIZE is '-1'; a whole number from 0"),
    (
        "configure",
        ("FIRST", 1, "FIRST", 1),
        "BADARG il1_configure: options[2] is FIRST, named",
    ),
    ("configure", ("DURABILITY", "x"), "BADARG il1_configure: DURABILITY is not always, everysec"),
    (
        "configure",
        ("DURABILITY", "always"),
        "NOTSUPPORTED il1_configure: DURABILITY is 'always'; here it is the server's",
    ),
    ("result", (5,), "BADARG il1_result: wait is missing"),
    ("join", (), "BADARG il1_join: wait is missing"),
    ("join", (0, "x"), "BADARG il1_join: id is not a number that this queue gives"),
    ("join", (0, 5, 6), "BADARG il1_join: 1 arguments too many"),
    ("cancel", (), "BADARG il1_cancel: id is missing"),
    ("cancel", (5, 6), "BADARG il1_cancel: 1 arguments too many"),
    ("revoke", (5, "kill"), "BADARG il1_revoke: then is not retry, hold, dead or skip"),
    ("revoke", (5, "retry", "x"), "BADARG il1_revoke: token is not a number that this queue gives"),
    ("retry", ("x",), "BADARG il1_retry: id is not a number that this queue gives"),
    ("purge", ("all",), "BADARG il1_purge: what is not pending or dead"),
    ("purge", ("told",), "BADARG il1_purge: what is not pending or dead"),
    ("drop", ("force",), "BADARG il1_drop: force is not FORCE"),
    ("drop", ("FORCE", "x"), "BADARG il1_drop: 1 arguments too many"),
    ("restore", (5,), "BADARG il1_restore: messages[1].mark is missing"),
    ("restore", (0, "m"), "BADARG il1_restore: window is '0'"),
    (
        "restore",
        (5, "m", "leased", 1, 0, "", "p", 0, 0, 0),
        "BADARG il1_restore: messages[1].state is not waiting, delayed, backing_off, held, "
        "parked or dead",
    ),
    (
        "restore",
        (5, "m", "held", 1, 0, "", "p", 0, 0, 1, "DEDUP", "m"),
        "BADARG il1_restore: messages[1].DEDUP is a mark",
    ),
    (
        "restore",
        (5, "m", "held", 1, 0, "", "p", 0, 0, 1, "DELAY", 1),
        "BADARG il1_restore: messages[1].DELAY is given by state and time",
    ),
    ("scan", (0, 5, "all"), "BADARG il1_scan: what is not dead"),
    ("paused", ("x",), "BADARG il1_paused: cursor is not a cursor that this queue gives"),
    ("pause", ("a", ""), "BADARG il1_pause: keys[2] is empty"),
    ("resume", ("k" * 1_025,), "BADARG il1_resume: keys[1] has 1025 bytes; at most 1024"),
    ("pause", tuple(MANY), "TOOBIG il1_pause: more than 1024 keys"),
    ("seal", (1,), "BADARG il1_seal: 1 arguments too many"),
    ("scan", ("x", 5), "BADARG il1_scan: cursor is not a cursor that this queue gives"),
    ("scan", (0, 1_025), "BADARG il1_scan: count is '1025'"),
    ("hot", (), "BADARG il1_hot: cursor is missing"),
    ("limits", (), "BADARG il1_limits: count is missing"),
    ("limits", (1_025,), "BADARG il1_limits: count is '1025'; a whole number from 1 to 1024"),
    ("limits", (5, "x"), "BADARG il1_limits: 1 arguments too many"),
    ("dead_letters", (5,), "BADARG il1_dead_letters: after is missing"),
    ("dead_letters", (5, "x"), "BADARG il1_dead_letters: after is not a number"),
    ("dead_letters", (5, "", ""), "BADARG il1_dead_letters: key is empty"),
    ("explain", ("name", 5, 5), "BADARG il1_explain: what is not id or key"),
    ("explain", ("id", 5, 0), "BADARG il1_explain: limit is '0'; a whole number from 1 to 1000"),
    ("explain", ("key", "", 5), "BADARG il1_explain: key is empty"),
    # Functions and options unknown to this library.
    ("put", (*PUT, *message("p", color=1)), "BADARG il1_put: messages[1].options holds a name"),
    # The second of two is wrong: nothing of the first is done.
    (
        "put",
        (*PUT, *message("p", ["a"]), *message("p", [""])),
        "BADARG il1_put: messages[2].exclusive[1] is empty",
    ),
]


@pytest.mark.parametrize(
    ("name", "arguments", "words"), BAD, ids=[f"{b[0]}-{b[2][:70]}" for b in BAD]
)
def test_a_bad_call_names_what_was_wrong_and_changes_nothing(
    queue: Queue, name: str, arguments: tuple[Argument, ...], words: str
) -> None:
    queue.put(message("one", ["a"]), message("two", ["a"]), message("three"))
    queue.lease(1)
    before = contents(queue)
    with pytest.raises(ResponseError) as told:
        queue.call(name, *arguments)
    assert str(told.value).startswith(words)
    assert contents(queue) == before


def contents(queue: Queue) -> dict[str, Any]:
    """All that the server has of it; a hash dumped twice may be in another order."""
    connection: Any = queue.connection
    names = [part for part in sorted(queue.parts()) if not part.startswith("c.")]
    found = {part: connection.dump(f"{queue.key}:{part}") for part in names if part != "c"}
    return found | {"c": connection.hgetall(f"{queue.key}:c")}


@pytest.mark.parametrize(
    "keys",
    [[], ["il:{a}", "il:{b}"], ["a"], ["il:a"], ["il:{}"], ["il:{a{}"]],
)
def test_a_function_requires_exactly_the_key_of_its_queue(
    connection: redis.Redis, keys: list[str]
) -> None:
    words = "BADARG il1_stats: takes one key, il:{name}"
    with pytest.raises(ResponseError, match=words):
        connection.fcall("il1_stats", len(keys), *keys)


def test_a_settlement_with_a_foreign_token_reports_a_lost_lease(queue: Queue) -> None:
    first, second = queue.put(message("one", ["a"]), message("two", ["b"]))
    one = queue.lease(1).messages[0]
    two = queue.lease(1).messages[0]
    assert (one.id, two.id) == (first, second)
    before = contents(queue)
    assert (
        queue.settle(
            ["ACK", 7, one.id],
            ["ACK", two.token, one.id],
            ["NACK", one.token, two.id, 0, ""],
            ["RELEASE", one.token, 12345],
            ["REJECT", int(two.token) + 1, two.id, ""],
        )
        == ["LEASELOST"] * 5
    )
    assert queue.call("extend", int(two.token) + 1, LONG) == ["LEASELOST"]
    assert contents(queue) == before


def test_any_bytes_may_be_payload_key_and_dedup_string(queue: Queue) -> None:
    every = bytes(range(256))
    queue.put(message(every, [every], [every[::-1]], dedup=every))
    got = queue.lease().messages[0]
    assert got.payload.encode("utf-8", "surrogateescape") == every
    assert got.exclusive[0].encode("utf-8", "surrogateescape") == every
    assert queue.put(message("again", dedup=every)) == [got.id]


def test_values_at_their_limits_are_accepted(queue: Queue) -> None:
    queue.put(*[message("p" * 1_048_576, MANY[256 * n : 256 * (n + 1)]) for n in range(4)])
    queue.put(message("all", MANY[:1_024], priority=-100), message("key", ["k" * 1_024]))
    # A lease ends behind the message with which its payloads reach 1 MiB.
    for held in ([256], [256], [256], [256], [1, 1_024]):
        got = queue.lease().messages
        assert [len(one.exclusive) for one in got] == held
        queue.ack_all(got)


def test_a_name_has_at_most_512_bytes(connection: redis.Redis) -> None:
    assert Queue(connection, "n" * 512).stats()["unsettled"] == 0
    with pytest.raises(ResponseError, match="il1_stats: the name has 513 bytes; at most 512"):
        Queue(connection, "n" * 513).stats()


def test_the_error_about_an_exceeded_limit_names_the_limit(queue: Queue) -> None:
    queue.call("configure", "MAXSIZE", 2, "MAXBYTES", 10)
    refused: list[tuple[str, list[Argument]]] = [
        ("TOOBIG il1_put: 3 messages; MAXSIZE is 2", [*message("a"), *message("b"), *message("c")]),
        ("TOOBIG il1_put: 11 bytes; MAXBYTES is 10", message("p" * 11)),
    ]
    for words, arguments in refused:
        with pytest.raises(ResponseError, match=words):
            queue.call("put", *PUT, *arguments)
    queue.put(message("p" * 6))
    with pytest.raises(ResponseError, match="FULL il1_put: 6 bytes are unsettled; MAXBYTES is 10"):
        queue.put(message("p" * 5))
    queue.put(message("p"))
    with pytest.raises(ResponseError, match="FULL il1_put: 2 messages are unsettled; MAXSIZE is 2"):
        queue.put(message(""))
    with pytest.raises(
        ResponseError,
        match="OPTIONSMISMATCH il1_configure: MAXSIZE is '3'; the queue was declared with '2'",
    ):
        queue.call("configure", "MAXSIZE", 3, "MAXBYTES", 10)
    assert queue.call("configure", "REPLACE", "MAXSIZE", 3)[:4] == ["MAXSIZE", "3", "MAXBYTES", "0"]
    queue.put(message("three"))
    queue.call("seal")
    words = "SEALED il1_put: the queue accepts no messages until il1_reopen"
    with pytest.raises(ResponseError, match=words):
        queue.put(message("four"))
    assert queue.stats()["unsettled"] == 3
