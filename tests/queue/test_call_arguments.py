"""Wrong arguments of a call that does not put are refused in words, in process and on an engine."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlock import KeyedQueue, Retry, connect
from tests.queue.hostile import VALUES, Hostile, Number

# By each call, its other arguments and the one that is given what it is not: of these, or one of
# these words, or the meaning of None.
NUMBER = {"7", "enum", "10**400", "10**5000"}
ID = NUMBER | {"0", "-7", "-10**400"}
CALLS: dict[str, tuple[dict[str, Any], str, set[str]]] = {
    "get_many": ({"block": False}, "limit", NUMBER),
    "messages": ({}, "limit", NUMBER),
    "messages, after": ({}, "after", ID | {"None"}),
    "dead_letters": ({}, "limit", NUMBER),
    "hot_keys": ({}, "n", NUMBER),
    "limits": ({}, "n", NUMBER),
    "cancel": ({}, "id", ID),
    "revoke": ({}, "id", ID),
    "revoke, then": ({"id": 1}, "then", set()),
    "retry": ({}, "id", ID),
    "skip": ({}, "id", ID),
    "bury": ({}, "id", ID),
    "discard": ({}, "id", ID),
    "ack_many": ({}, "leases", {"()", "[]", "str empty", "bytes empty"}),
    "purge": ({}, "what", set()),
}


def in_process() -> Iterator[Any]:
    yield KeyedQueue()


def on_an_engine() -> Iterator[Any]:
    with connect("memory://") as client:
        yield client.queue(uuid.uuid4().hex)


@pytest.fixture(params=[in_process, on_an_engine])
def queue(request: pytest.FixtureRequest) -> Iterator[Any]:
    made: Callable[[], Iterator[Any]] = request.param
    yield from made()


@pytest.mark.parametrize("called", CALLS)
def test_an_argument_is_accepted_or_refused_with_a_clear_error(queue: Any, called: str) -> None:
    given, argument, allowed = CALLS[called]
    call = getattr(queue, called.partition(",")[0])
    queue.put("m", keys="a", delay=100)
    before = queue.stats()
    wrong: list[tuple[str, object]] = []
    for value, make in VALUES.items():
        if value == "None" and called == "revoke, then":
            continue  # in process it is not given
        try:
            call(**given, **{argument: make()})
        except Hostile:
            continue
        except Exception as error:
            in_words = type(error) in (TypeError, ValueError) and argument in str(error)
            nothing_there = called == "get_many" and value in allowed
            if not ((in_words and value not in allowed) or nothing_there):
                wrong.append((value, error))
        else:
            if value not in allowed:
                wrong.append((value, "taken"))
    assert not wrong
    assert queue.stats() == before


def test_an_id_of_an_int_subclass_is_accepted(queue: Any) -> None:
    class Named(int):
        def __repr__(self) -> str:
            raise Hostile("__repr__")

        __str__ = __repr__

    first = Named(queue.put(1))
    assert [one.id for one in queue.messages(Number.THREE, after=Named(first - 1))] == [first]
    batch = queue.get_many(Number.THREE, block=False)
    assert len(batch) == 1 and queue.revoke(first, "hold")
    assert queue.retry(first) and queue.cancel(first)
    # The next call is not affected by the refusal.
    queue.put(2)
    with queue.get(timeout=5) as payload:
        assert payload == 2


def test_a_batch_with_an_item_that_is_not_a_lease_settles_nothing(queue: Any) -> None:
    queue.put_many([1, 2])
    first, second = queue.get_many(2)
    with pytest.raises(TypeError, match=r"ack_many\(\): leases\[1\] is str"):
        queue.ack_many([first, "lease", second])
    assert queue.stats().leased == 2
    queue.ack_many([first, second])
    assert queue.stats().unsettled == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"factor": 10**400}, "factor"),
        ({"factor": float("nan")}, "factor"),
        ({"attempts": 2.0}, "attempts is float"),
        ({"attempts": True}, "attempts is bool"),
    ],
)
def test_a_retry_policy_names_what_is_wrong(options: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        Retry(**options)


def test_a_name_with_a_lone_surrogate_is_refused_with_a_clear_error() -> None:
    with pytest.raises(ValueError, match="name"):
        KeyedQueue(name="\ud800")
    with connect("memory://") as client, pytest.raises(ValueError, match=r"name is .*surrogate"):
        client.queue("\ud800")


def test_explaining_a_dead_letter_reads_no_other_dead_letters() -> None:
    looked = []

    class Letter(KeyedQueue[int]):
        def _dead_letters(self, *asked: Any) -> Any:
            looked.append(asked)
            return super()._dead_letters(*asked)

    queue = Letter(retry=Retry(1))
    ids = queue.put_many(range(3))
    for lease in queue.get_many(3):
        lease.nack(error="broken")
    with pytest.raises(KeyError, match=r"dead letter .*\(broken\)"):
        queue.explain(ids[1])
    assert not looked
