"""An argument means the same by whatever door it comes in, and whatever it is."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from interlock import KeyedExecutor, KeyedQueue, KeyedTaskGroup, connect
from interlock.client.faces.client import Client
from interlock.client.requests.queue_handle import Handle
from interlock.client.wire import messages as wire
from tests.queue.hostile import ALLOWED, UNSAID, VALUES, Hostile, Said, asked

Put = Callable[[Any, str, Any], object]
ALL = tuple(ALLOWED)
KEYS = ("keys", "shared")
BATCH = ("keys", "shared", "priority", "delay", "quiet")
PLAIN: dict[str, Any] = {
    "keys": None,
    "shared": None,
    "priority": 0,
    "delay": 0,
    "dedup": None,
    "barrier": False,
    "quiet": False,
}


def run(call: Callable[[], Any]) -> object:
    """Runs a coroutine of what finds room."""

    async def main() -> object:
        return await call()

    return asyncio.run(main())


def recorded(**options: Any) -> KeyedQueue[Any]:
    queue: KeyedQueue[Any] = KeyedQueue(**options)
    queue.record()
    return queue


def always(value: Any, _: object) -> Any:
    return value


def spelt(name: str) -> str:
    """The name as no caller's code has it: another object."""
    return "".join(list(name))


# Those of one queue in this process: by which call an argument comes to it, and which it takes.
DOORS: dict[str, tuple[Put, tuple[str, ...]]] = {
    "put": (lambda q, name, value: q.put("m", **{name: value}), ALL),
    "put, payload by name": (lambda q, name, value: q.put(payload="m", **{name: value}), ALL),
    "put, all named": (lambda q, name, value: q.put("m", True, None, **PLAIN | {name: value}), ALL),
    "put, name not interned": (lambda q, name, value: q.put("m", **{spelt(name): value}), ALL),
    "put, one more named": (
        lambda q, name, value: q.put("m", timeout=5, **{name: value}),
        ALL,
    ),
    "put in full": (lambda q, name, value: q._put("m", **{name: value}), ALL),
    "put_nowait": (lambda q, name, value: q.put_nowait("m", **{name: value}), ALL),
    "put_many": (lambda q, name, value: q.put_many(["m"], **{name: value}), BATCH),
    "put_many, a callable": (
        lambda q, name, value: q.put_many(["m"], **{name: lambda _: value}),
        ("keys", "shared", "dedup"),
    ),
    "put_many, listed": (
        lambda q, name, value: q.put_many(["m"], **{f"each_{name}": [value]}),
        KEYS,
    ),
    "aio.put": (lambda q, name, value: run(lambda: q.aio.put("m", **{name: value})), ALL),
    "aio.put, all named": (
        lambda q, name, value: run(lambda: q.aio.put("m", **PLAIN | {name: value})),
        ALL,
    ),
    "aio.put_nowait": (lambda q, name, value: q.aio.put_nowait("m", **{name: value}), ALL),
    "aio.put_many": (
        lambda q, name, value: run(lambda: q.aio.put_many(["m"], **{name: value})),
        BATCH,
    ),
}


def cases(arguments: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return ((argument, value) for argument in arguments for value in VALUES)


def expected(argument: str, value: str) -> dict[str, Any] | None:
    """The message that is put; None: it is refused."""
    if value not in ALLOWED[argument]:
        return None
    return UNSAID | ({argument: ALLOWED[argument][value]} if argument in UNSAID else {})


def check(answers: list[tuple[str, str, Said]]) -> None:
    """Each is as the table has it, and who is refused reads which argument it was."""
    wrong = []
    for argument, value, said in answers:
        what = expected(argument, value)
        in_words = said.refused in (TypeError, ValueError) and argument in said.words
        if said.put != what or not (what or in_words or said.refused is Hostile):
            wrong.append((argument, value, said))
    assert answers and not wrong


@pytest.mark.parametrize("door", DOORS)
def test_an_argument_of_a_put_is_accepted_or_refused_with_a_clear_error(door: str) -> None:
    put, arguments = DOORS[door]
    answers = []
    for argument, value in cases(arguments):
        queue = recorded()
        answers.append((argument, value, asked(queue, put, queue, argument, VALUES[value]())))
    check(answers)


@pytest.mark.parametrize("door", set(DOORS) - {"put in full"})
def test_the_fast_path_of_put_answers_as_the_ordinary_method(door: str) -> None:
    put, arguments = DOORS[door]
    wrong = []
    for argument, value in cases(arguments):
        answers = []
        for way in (put, DOORS["put in full"][0]):
            for options in ({}, {"maxbytes": 100, "sizeof": lambda _: 0}):
                queue = recorded(**options)
                answers.append(asked(queue, way, queue, argument, VALUES[value]()))
        if any(answer != answers[0] for answer in answers):
            wrong.append((argument, value, answers))
    assert not wrong


@pytest.mark.parametrize("argument", KEYS)
def test_the_result_of_a_queue_s_callable_is_validated_like_an_argument(argument: str) -> None:
    answers = []
    # One that gives None has forgotten its return.
    for value in set(VALUES) - {"None"}:
        given = VALUES[value]()
        queue = recorded(**{argument: partial(always, given)})
        answers.append((argument, value, asked(queue, queue.put, "m")))
    check(answers)


@pytest.mark.parametrize("argument", KEYS)
def test_keys_of_a_group_s_tasks_are_validated_as_those_of_put(argument: str) -> None:
    async def one(value: str) -> None:
        async def nothing() -> None: ...

        given = {argument: VALUES[value]()}
        async with KeyedTaskGroup() as group:
            group.queue.record()
            said = asked(group.queue, lambda: group.create_task(nothing(), **given))
            answers.append((argument, value, said))

    async def all_of_them() -> None:
        for value in VALUES:
            await one(value)

    answers: list[tuple[str, str, Said]] = []
    asyncio.run(all_of_them())
    check(answers)


def by_submit(executor: KeyedExecutor, name: str, value: Any) -> object:
    assert name == "keys"
    return executor.submit_keyed(value, int)


def by_map(executor: KeyedExecutor, name: str, value: Any) -> object:
    named: dict[str, Any] = {"keys": lambda _: (), name: lambda _: value}
    return list(executor.map_keyed(int, [1], **named))


def by_view(executor: KeyedExecutor, name: str, value: Any) -> object:
    return executor.keyed(**{name: value}).submit(int)


@pytest.mark.parametrize(
    ("submit", "arguments"),
    [(by_submit, ("keys",)), (by_map, KEYS), (by_view, ("shared", "priority", "quiet"))],
)
def test_keys_of_an_executor_s_calls_are_validated_as_those_of_put(
    submit: Callable[[KeyedExecutor, str, Any], object], arguments: tuple[str, ...]
) -> None:
    answers = []
    for argument, value in cases(arguments):
        with KeyedExecutor(1) as executor:
            executor.queue.record()
            said = asked(executor.queue, submit, executor, argument, VALUES[value]())
            answers.append((argument, value, said))
    check(answers)


# -- On an engine ---------------------------------------------------------------------------------

REMOTE: dict[str, tuple[Put, tuple[str, ...]]] = {
    "put": (lambda c, name, value: c.queue("q").put("m", **{name: value}), ALL),
    "put_known": (lambda c, name, value: c.queue("q").put_known("m", **{name: value}), ALL),
    "put_nowait": (lambda c, name, value: c.queue("q").put_nowait("m", **{name: value}), ALL),
    "put_many": (lambda c, name, value: c.queue("q").put_many(["m"], **{name: value}), BATCH),
    "put_many, a callable": (
        lambda c, name, value: c.queue("q").put_many(["m"], **{name: lambda _: value}),
        ("keys", "shared", "dedup"),
    ),
    "put_many, listed": (
        lambda c, name, value: c.queue("q").put_many(["m"], **{f"each_{name}": [value]}),
        KEYS,
    ),
    "aio.put": (
        lambda c, name, value: run(lambda: c.queue("q").aio.put("m", **{name: value})),
        ALL,
    ),
    "aio.put_known": (
        lambda c, name, value: run(lambda: c.queue("q").aio.put_known("m", **{name: value})),
        ALL,
    ),
    "aio.put_nowait": (
        lambda c, name, value: run(lambda: c.queue("q").aio.put_nowait("m", **{name: value})),
        ALL,
    ),
    "aio.put_many": (
        lambda c, name, value: run(lambda: c.queue("q").aio.put_many(["m"], **{name: value})),
        BATCH,
    ),
}


class _Sent(Exception):
    """Thrown where a message would be sent."""


@pytest.mark.parametrize("door", REMOTE)
def test_an_argument_of_a_put_means_the_same_on_an_engine(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, arguments = REMOTE[door]
    written = Handle._written

    def caught(self: Handle, *named: Any) -> wire.Message:
        raise _Sent(written(self, *named))

    monkeypatch.setattr(Handle, "_written", caught)

    def send(client: Client, argument: str, value: Any) -> Said:
        try:
            put(client, argument, value)
        except _Sent as sent:
            return Said(_read(sent.args[0]))
        raise AssertionError("nothing was sent")

    answers = []
    with connect("memory://") as client:
        for argument, value in cases(arguments):
            said = asked(None, send, client, argument, VALUES[value]())
            if said.put is not None and argument == "delay":
                # On the wire no time is longer than thirty years.
                said.put["delay"] = said.put["delay"] if said.put["delay"] < 10**15 else 2**64 - 1
            answers.append((argument, value, said))
    check(answers)


def _read(sent: wire.Message) -> dict[str, Any]:
    options = dict(zip(sent.options[::2], sent.options[1::2], strict=True))
    dedup = options.get("DEDUP")
    assert dedup is None or isinstance(dedup, bytes)
    return {
        "keys": frozenset(sent.keys),
        "shared": frozenset(sent.shared),
        "priority": options.get("PRIORITY", 0),
        "delay": options.get("DELAY", 0),
        "dedup": None if dedup is None else dedup.decode(),
        "barrier": bool(options.get("BARRIER", False)),
    }
