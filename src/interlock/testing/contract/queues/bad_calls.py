"""Bad calls raise an exception that names the argument, the value's type and the allowed values;
and the queue is unchanged."""

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from interlock import Rate, Retry, RetryAfter
from interlock.testing.contract.faces import QueueFace
from interlock.testing.contract.registry import BAD_CALL, clause
from interlock.testing.contract.trial import Trial, raises

_KEY_TYPES = ("str", "bytes", "int")


async def _refused(
    q: QueueFace, kind: type[Exception], words: tuple[str, ...], call: Coroutine[Any, Any, Any]
) -> None:
    """Check that the call raises, that its text has `words`, and that the queue is unchanged."""
    before = await q.stats()
    with raises(kind, *words):
        await call
    assert await q.stats() == before


@clause(BAD_CALL)
async def a_key_of_a_wrong_type_is_a_type_error(t: Trial) -> None:
    q = t.queue()
    for wrong, name in ((1.5, "float"), (True, "bool"), (object(), "object")):
        words = (name, *_KEY_TYPES)
        for argument in ("keys", "shared"):
            for value in (wrong, [wrong], ["a", wrong]):
                await _refused(q, TypeError, (argument, *words), q.put(**{argument: value}))
    await q.put("a", keys="a")
    assert (await q.one()).payload == "a"


@clause(BAD_CALL)
async def the_place_of_a_wrong_key_is_named(t: Trial) -> None:
    q = t.queue()
    await _refused(q, TypeError, ("keys[1]", "float"), q.put(keys=["a", 1.5]))
    await _refused(q, TypeError, ("shared[0]", "NoneType"), q.put(shared=[None]))
    await _refused(q, TypeError, ("keys[0]", "tuple"), q.put(keys=[("a", "b")]))


@clause(BAD_CALL)
async def a_tuple_that_mixes_str_and_int_is_told_how_to_write_it(t: Trial) -> None:
    q = t.queue()
    for argument in ("keys", "shared"):
        await _refused(q, TypeError, (argument, 'f"room:{id}"'), q.put(**{argument: ("room", 7)}))
    await _refused(q, TypeError, ("keys",), q.put(keys=(7, "room")))


@clause(BAD_CALL)
async def an_empty_key_and_a_lone_surrogate_are_value_errors(t: Trial) -> None:
    q = t.queue()
    for wrong in ("", b"", "\ud800", "a\udfff"):
        for argument in ("keys", "shared"):
            await _refused(q, ValueError, (argument,), q.put(**{argument: wrong}))
            await _refused(q, ValueError, (argument,), q.put(**{argument: ["a", wrong]}))


@clause(BAD_CALL)
async def a_key_over_a_kilobyte_is_a_value_error(t: Trial) -> None:
    q = t.queue()
    for wrong in (b"x" * 1_025, "x" * 1_025, "é" * 513, 10**1_024):
        await _refused(q, ValueError, ("keys", "1024"), q.put(keys=wrong))
    await q.put(keys=b"x" * 1_024)
    await q.put(keys="é" * 512)
    assert len(await q.ready()) == 2


@clause(BAD_CALL)
async def more_than_4096_keys_are_a_value_error(t: Trial) -> None:
    q = t.queue()
    await _refused(q, ValueError, ("keys", "4096"), q.put(keys=range(4_097)))
    await _refused(q, ValueError, ("4096",), q.put(keys=range(2_049), shared=range(5_000, 7_048)))
    await q.put("all", keys=range(4_096))
    assert (await q.one()).payload == "all"


@clause(BAD_CALL)
async def a_priority_is_an_int_from_minus_100_to_100(t: Trial) -> None:
    q = t.queue()
    for wrong in (101, -101, 10**30):
        await _refused(q, ValueError, ("priority", "-100", "100"), q.put(priority=wrong))
    for wrong_type, name in (("high", "str"), (1.5, "float"), (True, "bool")):
        await _refused(q, TypeError, ("priority", name, "int"), q.put(priority=wrong_type))


@clause(BAD_CALL)
async def a_delay_is_seconds_from_zero_up(t: Trial) -> None:
    q = t.queue()
    for wrong in (-1, -0.001, timedelta(seconds=-1), float("nan"), float("-inf")):
        await _refused(q, ValueError, ("delay",), q.put(delay=wrong))
    for wrong_type, name in (("5", "str"), (b"5", "bytes"), ([5], "list")):
        await _refused(q, TypeError, ("delay", name, "timedelta"), q.put(delay=wrong_type))


@clause(BAD_CALL)
async def a_dedup_is_a_str(t: Trial) -> None:
    q = t.queue()
    for wrong, name in ((7, "int"), (b"x", "bytes"), (["x"], "list")):
        await _refused(q, TypeError, ("dedup", name, "str"), q.put(dedup=wrong))


@clause(BAD_CALL)
async def a_coalescing_name_is_a_key(t: Trial) -> None:
    q = t.queue()
    for wrong, name in ((1.5, "float"), (True, "bool"), (["a"], "list"), (("a",), "tuple")):
        words = ("coalesce", name, "a key (str, int or bytes)")
        await _refused(q, TypeError, words, q.put(coalesce=wrong))
        await _refused(q, TypeError, words, q.put_many([1], coalesce=wrong))
        await _refused(q, TypeError, words, q.put_many([1], coalesce=lambda _, one=wrong: one))
    for wrong_value in ("", b"", "x" * 1_025, "\ud800"):
        await _refused(q, ValueError, ("coalesce",), q.put(coalesce=wrong_value))
    await _refused(q, ValueError, ("4096",), q.put(coalesce="a", keys=range(4_096)))


@clause(BAD_CALL)
async def a_coalescing_put_has_no_dedup_and_no_barrier(t: Trial) -> None:
    q = t.queue()
    text = "coalesce with dedup; a message has one of them"
    await _refused(q, ValueError, (text,), q.put(coalesce="a", dedup="x"))
    many = q.put_many([1], coalesce="a", dedup=lambda _: "x")
    await _refused(q, ValueError, (text,), many)
    await _refused(q, ValueError, ("coalesce with barrier",), q.put(coalesce="a", barrier=True))


@clause(BAD_CALL)
async def a_debounce_has_a_name_and_a_longest_time(t: Trial) -> None:
    q = t.queue()
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, "debounce without coalesce", {"debounce": 1, "longest": 2}),
        (ValueError, "debounce without longest", {"coalesce": "a", "debounce": 1}),
        (ValueError, "longest without debounce", {"coalesce": "a", "longest": 1}),
        (
            ValueError,
            "debounce with delay",
            {"coalesce": "a", "debounce": 1, "longest": 2, "delay": 1},
        ),
        (
            ValueError,
            "longest is 1; allowed: debounce (5) or more",
            {"coalesce": "a", "debounce": 5, "longest": 1},
        ),
        (ValueError, "debounce is 0", {"coalesce": "a", "debounce": 0, "longest": 1}),
        (ValueError, "debounce is -1", {"coalesce": "a", "debounce": -1, "longest": 1}),
        (TypeError, "debounce is str", {"coalesce": "a", "debounce": "1", "longest": 1}),
        (TypeError, "longest is str", {"coalesce": "a", "debounce": 1, "longest": "1"}),
    ]
    for kind, text, options in wrong:
        await _refused(q, kind, (text,), q.put(**options))
        await _refused(q, kind, (text,), q.put_many([1], **options))
    none = q.put_many([1, 2], coalesce=lambda n: "a" if n == 1 else None, debounce=1, longest=2)
    await _refused(q, ValueError, ("debounce without coalesce",), none)


@clause(BAD_CALL)
async def a_timeout_is_seconds_from_zero_up(t: Trial) -> None:
    q = t.queue()
    await _refused(q, ValueError, ("timeout",), q.put(timeout=-1))
    await _refused(q, ValueError, ("timeout",), q.get(timeout=-1))
    await _refused(q, TypeError, ("timeout", "str"), q.put(timeout="1"))
    await _refused(q, TypeError, ("timeout", "str"), q.get(timeout="1"))


@clause(BAD_CALL)
async def a_kind_is_any_keyed_or_unkeyed(t: Trial) -> None:
    q = t.queue()
    await q.put(keys="a")
    allowed = ("kind", "any", "keyed", "unkeyed")
    await _refused(q, ValueError, allowed, q.get(kind="shared"))
    await _refused(q, ValueError, allowed, q.get_nowait(kind=""))
    await _refused(q, ValueError, allowed, q.get_many(3, kind="KEYED"))
    await _refused(q, TypeError, ("kind", "int"), q.get(kind=1))
    await q.one()


@clause(BAD_CALL)
async def a_limit_is_an_int_from_one_up(t: Trial) -> None:
    q = t.queue()
    id = await q.put()
    await _refused(q, ValueError, ("limit",), q.get_many(0))
    await _refused(q, ValueError, ("limit",), q.get_many(-1))
    await _refused(q, TypeError, ("limit", "str"), q.get_many("3"))  # type: ignore[arg-type]
    await _refused(q, ValueError, ("limit",), q.explain(id, limit=0))
    await _refused(q, TypeError, ("limit", "float"), q.explain(id, limit=1.5))
    await _refused(q, ValueError, ("limit",), q.dead_letters(-1))
    await q.one()


@clause(BAD_CALL)
async def an_id_is_an_int(t: Trial) -> None:
    q = t.queue()
    await q.put(keys="a")
    wrong: list[tuple[Any, str]] = [("1", "str"), (1.5, "float"), ([1], "list")]
    for call in (
        QueueFace.cancel,
        QueueFace.revoke,
        QueueFace.retry,
        QueueFace.skip,
        QueueFace.bury,
        QueueFace.discard,
        QueueFace.requeue,
        QueueFace.explain,
    ):
        for id, name in wrong:
            await _refused(q, TypeError, ("id", name, "int"), call(q, id))
    await q.one()


@clause(BAD_CALL)
async def an_id_nobody_can_have_is_unknown(t: Trial) -> None:
    q = t.queue()
    await q.put(keys="a")
    for id in (0, -1, 2**70):
        for call in (
            QueueFace.cancel,
            QueueFace.revoke,
            QueueFace.retry,
            QueueFace.skip,
            QueueFace.bury,
            QueueFace.discard,
        ):
            assert not await call(q, id)
        await _refused(q, KeyError, (str(id),), q.explain(id))
        await _refused(q, KeyError, (str(id),), q.requeue(id))


@clause(BAD_CALL)
async def an_id_nobody_has_is_no_letter(t: Trial) -> None:
    q = t.queue()
    alive = await q.put(keys="a")
    for id in (alive, 10**9):
        await _refused(q, KeyError, (str(id),), q.requeue(id))


@clause(BAD_CALL)
async def a_revoked_message_is_retried_held_buried_or_skipped(t: Trial) -> None:
    q = t.queue()
    id = await q.put(keys="a")
    lease = await q.one()
    await _refused(
        q, ValueError, ("then", "retry", "hold", "dead", "skip"), q.revoke(id, then="drop")
    )
    assert not lease.lost


@clause(BAD_CALL)
async def explain_takes_an_id_or_a_key(t: Trial) -> None:
    q = t.queue()
    id = await q.put(keys="a")
    await _refused(q, TypeError, ("id", "key"), q.explain())
    await _refused(q, TypeError, ("id", "key"), q.explain(id, key="a"))
    await _refused(q, TypeError, ("key", "float", *_KEY_TYPES), q.explain(key=1.5))


@clause(BAD_CALL)
async def pause_and_dead_letters_take_a_key(t: Trial) -> None:
    q = t.queue()
    for wrong, name in ((1.5, "float"), (True, "bool"), (["a"], "list")):
        words = ("key", name, *_KEY_TYPES)
        await _refused(q, TypeError, words, q.pause(wrong))
        await _refused(q, TypeError, words, q.resume(wrong))
        await _refused(q, TypeError, words, q.dead_letters(key=wrong))
    await _refused(q, ValueError, ("key",), q.pause(""))
    await q.put(keys="a")
    await q.one()


@clause(BAD_CALL)
async def a_settling_with_a_wrong_time_leaves_the_lease(t: Trial) -> None:
    q = t.queue()
    await q.put(keys="a")
    lease = await q.one()
    await _refused(q, ValueError, ("delay",), lease.nack(delay=-1))
    await _refused(q, TypeError, ("delay", "str"), lease.nack(delay="1"))  # type: ignore[arg-type]
    await _refused(q, ValueError, ("seconds",), lease.extend(-1))
    await _refused(q, TypeError, ("seconds", "str"), lease.extend("1"))  # type: ignore[arg-type]
    await _refused(q, TypeError, ("reason", "int"), lease.reject(7))  # type: ignore[arg-type]
    await _refused(q, TypeError, ("error", "int"), lease.nack(error=7))  # type: ignore[arg-type]
    assert not lease.lost
    await lease.ack()


@clause(BAD_CALL)
async def a_wrong_option_is_refused_when_the_queue_is_made(t: Trial) -> None:
    wrong: list[tuple[type[Exception], dict[str, Any], tuple[str, ...]]] = [
        (TypeError, {"max_size": 5}, ("max_size",)),
        (TypeError, {"maxsize": "5"}, ("maxsize", "str", "int")),
        (TypeError, {"maxsize": 1.5}, ("maxsize", "float", "int")),
        (TypeError, {"maxbytes": "1MB"}, ("maxbytes", "str", "int")),
        (ValueError, {"maxbytes": -1}, ("maxbytes",)),
        (TypeError, {"sizeof": 7}, ("sizeof", "int")),
        (TypeError, {"keys": "a"}, ("keys", "str")),
        (TypeError, {"shared": 7}, ("shared", "int")),
        (TypeError, {"retry": 5}, ("retry", "int", "Retry")),
        (ValueError, {"lease": 0}, ("lease",)),
        (ValueError, {"lease": -1}, ("lease",)),
        (TypeError, {"lease": "30"}, ("lease", "str")),
        (ValueError, {"maxdead": -1}, ("maxdead",)),
        (TypeError, {"maxdead": "5"}, ("maxdead", "str", "int")),
        (ValueError, {"dedup_window": -1}, ("dedup_window",)),
        (TypeError, {"dedup_window": "5"}, ("dedup_window", "str")),
    ]
    for kind, options, words in wrong:
        with raises(kind, *words):
            t.queue(**options)


@clause(BAD_CALL)
async def a_wrong_retry_policy_is_refused_when_it_is_made(t: Trial) -> None:
    wrong: list[tuple[type[Exception], dict[str, Any], tuple[str, ...]]] = [
        (ValueError, {"attempts": 0}, ("attempts",)),
        (TypeError, {"attempts": 1.5}, ("attempts", "float", "int")),
        (ValueError, {"first": -1}, ("first",)),
        (TypeError, {"first": "1"}, ("first", "str")),
        (ValueError, {"longest": -1}, ("longest",)),
        (ValueError, {"factor": -1}, ("factor",)),
        (TypeError, {"factor": "2"}, ("factor", "str")),
        (ValueError, {"then": "bury"}, ("then", "dead", "hold")),
    ]
    for kind, options, words in wrong:
        with raises(kind, *words):
            Retry(**options)


@clause(BAD_CALL)
async def a_callable_that_raises_reaches_the_caller(t: Trial) -> None:
    def keys(payload: Any) -> Any:
        return payload["key"]

    def sizeof(payload: Any) -> Any:
        return payload["size"]

    q = t.queue(keys=keys, sizeof=sizeof, maxbytes=100)
    await _refused(q, KeyError, ("size",), q.put({"key": "a"}))
    await _refused(q, KeyError, ("key",), q.put({"size": 1}))
    await _refused(q, KeyError, ("key",), q.put_many([{"key": "a", "size": 1}, {"size": 1}]))
    await q.put({"key": "a", "size": 1})
    await q.one()


@clause(BAD_CALL)
async def what_a_callable_gives_is_checked_like_an_argument(t: Trial) -> None:
    q = t.queue(keys=lambda payload: payload, sizeof=lambda payload: payload, maxbytes=100)
    await _refused(q, TypeError, ("keys", "float", *_KEY_TYPES), q.put(1.5))
    q = t.queue(sizeof=lambda payload: payload, maxbytes=100)
    await _refused(q, TypeError, ("sizeof", "str", "int"), q.put("5"))
    await _refused(q, ValueError, ("sizeof",), q.put(-5))


@clause(BAD_CALL)
async def a_payload_without_a_size_is_refused_where_bytes_are_bounded(t: Trial) -> None:
    q = t.queue(maxbytes=100)
    await _refused(q, TypeError, ("payload", "dict", "sizeof"), q.put({}))


@clause(BAD_CALL)
async def an_unknown_option_of_a_call_is_named(t: Trial) -> None:
    q = t.queue()
    await _refused(q, TypeError, ("key",), q.put(key="a"))
    await _refused(q, TypeError, ("barier",), q.put(barier=True))
    await _refused(q, TypeError, ("kinds",), q.get(kinds="any"))


@clause(BAD_CALL, faces=("sync",))
async def task_done_says_what_to_call_instead(t: Trial) -> None:
    q = t.queue()
    try:
        q.raw.task_done()
    except Exception as error:
        assert "ack" in str(error)
    else:
        raise AssertionError("task_done() did nothing, in silence")


@clause(BAD_CALL)
async def a_listing_and_a_purge_say_what_is_allowed(t: Trial) -> None:
    q = t.queue()
    await _refused(q, ValueError, ("limit", "0"), q.messages(0))
    await _refused(q, TypeError, ("limit", "str", "int"), q.messages("1"))
    await _refused(q, ValueError, ("state", "dead", "held"), q.messages(state="dead"))
    await _refused(q, TypeError, ("state", "int", "str"), q.messages(state=1))
    await _refused(q, TypeError, ("key", "float"), q.messages(key=1.5))
    await _refused(q, TypeError, ("after", "str", "int"), q.messages(after="1"))
    await _refused(q, ValueError, ("what", "all", "dead"), q.purge("all"))
    await _refused(q, TypeError, ("what", "int", "str"), q.purge(1))
    for what in ("pending", "dead"):
        await _refused(q, TypeError, ("purge(): key", "float"), q.purge(what, key=1.5))
        await _refused(q, ValueError, ("purge(): key", "empty"), q.purge(what, key=""))


@clause(BAD_CALL)
async def bytes_are_bounded_above_four_gibibytes(t: Trial) -> None:
    q = t.queue(maxbytes=5 << 30)
    await q.put(b"payload")
    assert (await q.stats()).bytes > 0
    assert not await q.full()


@clause(BAD_CALL)
async def a_wrong_limit_name_is_refused_with_the_reason(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    for wrong in (5, b"bank", [b"bank"], ["bank", None]):
        await _refused(q, TypeError, ("limit", "str"), q.put(limit=wrong))
    for unusable in ("", ["bank", ""], "a\x1fb", "\ud800", [str(n) for n in range(9)], "x" * 1_025):
        await _refused(q, ValueError, ("limit",), q.put(limit=unusable))


@clause(BAD_CALL)
async def a_wrong_rate_is_refused_with_the_reason(t: Trial) -> None:
    for wrong in (("10",), (1.5,), (True,), (1, "s"), (1, None), (1, 1, 2.0)):
        with raises(TypeError, "Rate()"):
            Rate(*wrong)
    beyond = ((0,), (-1,), (1, 0), (1, -1), (1, float("nan")), (2, 1e-6), (1, 1, 0), (1, 1e9, 2))
    for unusable in beyond:
        with raises(ValueError, "Rate()"):
            Rate(*unusable)
    for name in ("", "a\x1fb", "\ud800", "x" * 1_025):
        with raises(ValueError, "RetryAfter(): limit"):
            RetryAfter(1, limit=name)
    with raises(TypeError, "RetryAfter(): limit"):
        RetryAfter(1, limit=5)  # type: ignore[arg-type]


@clause(BAD_CALL)
async def a_wrong_group_is_refused_with_the_reason(t: Trial) -> None:
    q = t.queue()
    for wrong, kind in ((7, TypeError), (b"a", TypeError), (["a"], TypeError), ("", ValueError)):
        with raises(kind, "put(): group"):
            await q.put("refused", group=wrong)
        with raises(kind, "put_many(): group"):
            await q.put_many(["refused"], group=wrong)
    for beyond in ("a\x1fb", "x" * 1_025, "\ud800"):
        with raises(ValueError, "put(): group"):
            await q.put("refused", group=beyond)
    await q.put("x", group="x" * 1_024)
    assert await q.payloads() == ["x"]


@clause(BAD_CALL)
async def wrong_weights_are_refused_with_the_reason(t: Trial) -> None:
    q = t.queue(weights={"a": 2})
    await q.put_many(["a"] * 3, group="a")
    await q.put("b", group="b")
    for wrong, kind in (
        (["a"], TypeError),
        ({"a": "4"}, TypeError),
        ({"a": True}, TypeError),
        ({7: 1}, TypeError),
        ({"a": 0}, ValueError),
        ({"a": 1_001}, ValueError),
        ({"": 1}, ValueError),
        ({"a\x1fb": 1}, ValueError),
    ):
        with raises(kind, "weights"):
            t.queue(weights=wrong)
        with raises(kind, "weights"):
            await q.configure(weights=wrong)
    assert await q.payloads() == ["a", "a", "b", "a"]


@clause(BAD_CALL)
async def wrong_limits_are_refused_with_the_reason(t: Trial) -> None:
    q = t.queue(limits={"bank": 1})
    await q.put_many(range(2), limit="bank")
    for wrong, kind in (
        (["bank"], TypeError),
        ({"bank": "4"}, TypeError),
        ({"bank": True}, TypeError),
        ({7: 1}, TypeError),
        ({"bank": 0}, ValueError),
        ({"bank": -1}, ValueError),
        ({"": 1}, ValueError),
        ({"a\x1fb": 1}, ValueError),
        ({"\ud800": 1}, ValueError),
        ({"bank": (10, 1)}, TypeError),
    ):
        with raises(kind, "limits"):
            t.queue(limits=wrong)
        with raises(kind, "limits"):
            await q.configure(limits=wrong)
    assert await q.payloads() == [0]
