"""The options of a batch's messages: each callable is called, each iterator read, once."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlock import KeyedQueue, connect
from interlock.client.faces.client import Client

Batch = Callable[..., list[int]]


def of_asyncio(queue: Any) -> Batch:
    def put_many(*items: Any, **options: Any) -> list[int]:
        async def put() -> list[int]:
            ids: list[int] = await queue.aio.put_many(*items, **options)
            return ids

        return asyncio.run(put())

    return put_many


@pytest.fixture
def client() -> Iterator[Client]:
    with connect("memory://") as client:
        yield client


FACES = ("threads", "asyncio", "engine", "engine, asyncio")


@pytest.fixture(params=FACES)
def make(request: pytest.FixtureRequest, client: Client) -> Callable[..., tuple[Any, Batch]]:
    """Makes a queue, and gives its put_many."""

    def queue(**options: Any) -> tuple[Any, Batch]:
        engine = "engine" in request.param
        made: Any = client.queue("batches", **options) if engine else KeyedQueue(**options)
        return made, of_asyncio(made) if "asyncio" in request.param else made.put_many

    return queue


class Once:
    """A callable that raises when it is called first, and counts."""

    def __init__(self, error: BaseException, value: Any) -> None:
        self.calls = 0
        self._error, self._value = error, value

    def __call__(self, _: object) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise self._error
        return self._value


def keys_of(queue: Any, count: int) -> list[set[bytes]]:
    leases = queue.get_many(count, block=False)
    keys = [set(lease.keys) for lease in leases]
    for lease in leases:
        lease.release()
    return keys


@pytest.mark.parametrize("error", [LookupError("once"), KeyboardInterrupt()])
@pytest.mark.parametrize("argument", ["keys", "shared"])
@pytest.mark.parametrize("of", ["call", "queue"])
def test_an_exception_of_a_key_callable_reaches_the_caller(
    make: Callable[..., tuple[Any, Batch]], argument: str, of: str, error: BaseException
) -> None:
    once = Once(error, "a")
    options = {argument: once}
    queue, put_many = make(**(options if of == "queue" else {}))
    with pytest.raises(type(error)):
        put_many(["m", "n"], **(options if of == "call" else {}))
    assert (once.calls, queue.stats().unsettled) == (1, 0)
    put_many(["m", "n"], **(options if of == "call" else {}))
    assert once.calls == 3


@pytest.mark.parametrize("error", [LookupError("once"), KeyboardInterrupt()])
def test_an_exception_of_sizeof_reaches_the_caller(error: BaseException) -> None:
    for put in (
        lambda q: q.put("m"),
        lambda q: q.put_many(["m"]),
        lambda q: of_asyncio(q)(["m"]),
        lambda q: q.put_many(["m"], each_keys=["a"]),
    ):
        once = Once(error, 1)
        queue = KeyedQueue[str](maxbytes=10, sizeof=once)
        with pytest.raises(type(error)):
            put(queue)
        assert (once.calls, queue.stats().unsettled) == (1, 0)


def test_an_iterator_of_keys_is_read_once(make: Callable[..., tuple[Any, Batch]]) -> None:
    queue, put_many = make()
    wrong = iter(["a", None, "b"])
    with pytest.raises(TypeError, match=r"keys\[1\] is NoneType"):
        put_many(["m", "n"], keys=wrong)
    assert list(wrong) == ["b"] and queue.stats().unsettled == 0
    put_many(["m", "n"], keys=iter(["a", "b"]))
    queue.cancel(put_many(["o"], keys=lambda _: iter(["a", "c"]))[0])
    (lease,) = queue.get_many(3, block=False)
    assert set(lease.keys) == {b"a", b"b"}
    lease.ack()
    assert keys_of(queue, 3) == [{b"a", b"b"}]


def test_each_message_has_the_keys_that_are_listed_for_it(
    make: Callable[..., tuple[Any, Batch]],
) -> None:
    queue, put_many = make(keys=lambda payload: payload)
    each: list[Any] = ["a", 7, b"c", ("d", "e"), iter(["f", 8]), (), None]
    put_many("ABCDEFG", each_keys=each)
    leases = queue.get_many(9, block=False)
    assert [set(lease.keys) for lease in leases] == [
        *({b"a"}, {b"7"}, {b"c"}, {b"d", b"e"}),
        *({b"f", b"8"}, set(), {b"G"}),
    ]
    queue.ack_many(leases)
    put_many(["r", "s"], each_shared=iter(["x", "x"]), keys=lambda payload: payload)
    put_many(iter("tu"), each_keys=(key for key in ("y", None)), shared="x", priority=3)
    leases = queue.get_many(99, block=False)
    assert [(set(lease.keys), set(lease.shared)) for lease in leases] == [
        *(({b"y"}, {b"x"}), ({b"u"}, {b"x"})),
        *(({b"r"}, {b"x"}), ({b"s"}, {b"x"})),
    ]
    queue.ack_many(leases)


@pytest.mark.parametrize("name", ["keys", "shared"])
def test_a_list_of_keys_must_have_one_entry_per_item(
    make: Callable[..., tuple[Any, Batch]], name: str
) -> None:
    each = f"each_{name}"
    queue, put_many = make()
    for few, count in (((), 0), ([None], 1), (iter("a"), 1), ({"a": 1}, 1)):
        with pytest.raises(ValueError, match=rf"{each} gives {count}; allowed: 2, as many as ite"):
            put_many(["m", "n"], **{each: few})
    for many in ("abc", itertools.repeat("a")):
        with pytest.raises(ValueError, match=rf"{each} gives more than 2"):
            put_many(["m", "n"], **{each: iter(many)})
    for wrong in ("ab", b"ab", bytearray(b"ab"), memoryview(b"ab"), 7, len, object()):
        with pytest.raises(TypeError, match=rf"{each} is {type(wrong).__name__}; allowed"):
            put_many(["m", "n"], **{each: wrong})
    with pytest.raises(TypeError, match=f"{name} and {each} are both given"):
        put_many(["m", "n"], **{each: "ab", name: "a"})
    with pytest.raises(TypeError, match=rf"{each}\[1\]\[1\] is float"):
        put_many(["m", "n"], **{each: ["a", ("a", 1.5)]})
    with pytest.raises(TypeError, match=rf"{each}\[1\] is float"):
        put_many(["m", "n"], **{each: ["a", 1.5]})
    assert queue.stats().unsettled == 0
    assert put_many([], **{each: []}) == []


def test_a_list_changed_by_a_callback_is_read_as_it_was() -> None:
    """A key is borrowed from where it lies, and must be there when the queue takes it."""

    class Own:
        def __iter__(self) -> Iterator[str]:
            each[:] = [None] * len(each)
            items.clear()
            return iter(["own" * 7])

    each: list[Any] = ["first" * 9, Own(), "last" * 9]
    items: list[Any] = [object(), object(), object()]
    queue = KeyedQueue[Any]()
    queue.put_many(items, each_keys=each)
    assert keys_of(queue, 9) == [{b"first" * 9}, {b"own" * 7}, {b"last" * 9}]


def test_an_argument_that_is_not_a_batch_is_refused_with_a_clear_error() -> None:
    queue = KeyedQueue[Any]()
    for wrong in (7, None, object()):
        with pytest.raises(TypeError, match=f"items is {type(wrong).__name__}; allowed"):
            queue.put_many(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dedup is str; allowed: a callable of the payload"):
        queue.put_many([1], dedup="a")  # type: ignore[arg-type]


def test_more_keys_than_a_message_may_have_are_counted_together(
    make: Callable[..., tuple[Any, Batch]],
) -> None:
    queue, put_many = make()
    half = [f"{number}" for number in range(2_049)]
    with pytest.raises(ValueError, match="keys and shared name 4098 keys; allowed: 4096"):
        put_many(["m"], each_keys=[half], each_shared=[[f"s{key}" for key in half]])
    assert queue.stats().unsettled == 0
