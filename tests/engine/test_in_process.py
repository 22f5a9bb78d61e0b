"""The engine in the process, as Python calls it: arguments, refusals, and who waits."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import signal
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from interlock._core import Engine, EngineError, ManualClock

KEY = b"il:{q}"
MINUTE = 60_000_000


def lease(consumer: str, call: int, wait: int = MINUTE) -> tuple[str | int, ...]:
    return consumer, call, wait, 1, MINUTE, "any"


def put(engine: Engine, payload: str | bytes) -> None:
    engine.call("il1_put", KEY, ["", 0, 0, payload, 0, 0, 0])


def test_arguments_are_bytes_str_or_int_and_answers_are_bytes() -> None:
    engine = Engine(ManualClock(1_000))
    every = bytes(range(256))
    told = engine.call("il1_put", KEY, ["me", 1, b"0", every, 1, 1, "0", "größe", every[::-1]])
    assert told == [b"1000000000", b"0"]
    got = engine.call("il1_lease", KEY, lease("me", 2))
    assert got[4:] == [told[0], b"", b"1", every, b"1", b"1", "größe".encode(), every[::-1]]
    assert engine.call("il1_queues", None, ()) == [b"q"]
    assert engine.call("il1_version", None, [])[0] == b"1"


@pytest.mark.parametrize(
    ("value", "name"),
    [(1.5, "float"), (None, "NoneType"), (True, "bool"), (bytearray(), "bytearray")],
)
def test_an_argument_of_another_type_is_named(value: object, name: str) -> None:
    with pytest.raises(TypeError, match=rf"args\[1\] is {name}; allowed: bytes, str, int"):
        Engine().call("il1_settle", KEY, ["me", value])  # type: ignore[list-item]


def test_a_refusal_has_the_text_of_the_wire() -> None:
    engine = Engine()
    with pytest.raises(EngineError, match=r"^BADARG il1_lease: call is missing$"):
        engine.call("il1_lease", KEY, ["me"])
    with pytest.raises(EngineError, match=r"^BADARG il1_stats: takes one key"):
        engine.call("il1_stats", b"q", [])
    with pytest.raises(EngineError, match=r"^BADARG il1_version: takes no key"):
        engine.call("il1_version", KEY, [])
    with pytest.raises(EngineError, match=r"^ERR Function not found"):
        engine.call("il1_pop", KEY, [])


def test_puts_are_refused_at_the_bound_of_memory() -> None:
    engine = Engine(memory=100_000)
    put(engine, "p" * 60_000)
    with pytest.raises(EngineError, match=r"^OOM "):
        put(engine, "p" * 60_000)
    assert engine.call("il1_lease", KEY, lease("me", 0))[3] == b"1"


def test_threads_that_wait_are_answered_by_the_calls_of_others() -> None:
    engine = Engine()
    got: list[bytes] = []

    def get(n: int) -> None:
        got.append(engine.call("il1_lease", KEY, lease(f"c{n}", 1))[7])

    threads = [threading.Thread(target=get, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for n in range(8):
        put(engine, str(n))
    for thread in threads:
        thread.join()
    assert sorted(got) == [b"%d" % n for n in range(8)]


def test_a_wait_ends_at_its_timeout_or_when_a_message_falls_due() -> None:
    engine = Engine()
    assert engine.call("il1_lease", KEY, lease("me", 1, wait=1_000))[3] == b"0"
    engine.call("il1_put", KEY, ["", 0, 0, "late", 0, 0, 1, "DELAY", 1_000])
    assert engine.call("il1_lease", KEY, lease("me", 2))[7] == b"late"


def test_an_earlier_due_time_wakes_a_sleeping_thread() -> None:
    engine = Engine()
    got: list[list[bytes]] = []
    thread = threading.Thread(
        target=lambda: got.append(engine.call("il1_lease", KEY, lease("me", 1)))
    )
    thread.start()
    engine.call("il1_put", KEY, ["", 0, 0, "late", 0, 0, 1, "DELAY", 1_000])
    thread.join()
    assert got[0][7] == b"late"


@contextmanager
def alarm_raises() -> Iterator[None]:
    def handler(number: int, frame: FrameType | None) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_ends_a_wait_and_the_call_may_be_sent_again() -> None:
    engine = Engine()
    with pytest.raises(InterruptedError), alarm_raises():
        engine.call("il1_lease", KEY, lease("me", 1))
    put(engine, "one")
    assert engine.call("il1_lease", KEY, lease("me", 1))[7] == b"one"


def test_a_parked_call_is_answered_once_by_its_waker() -> None:
    clock = ManualClock(1_000)
    engine = Engine(clock)
    woken: list[int] = []
    tickets = [engine.start("il1_lease", KEY, lease(f"c{n}", 1), woken.append) for n in range(3)]
    first, second, third = tickets
    assert isinstance(first, int)
    assert isinstance(second, int)
    assert isinstance(third, int)
    with pytest.raises(LookupError, match=f"ticket {first} is not answered"):
        engine.take(first)
    engine.forget(second)
    put(engine, "one")
    assert woken == [first]
    assert engine.take(first)[7] == b"one"
    with pytest.raises(LookupError):
        engine.take(first)
    clock.advance(dt.timedelta(microseconds=MINUTE - 1))
    assert woken == [first]
    clock.advance(dt.timedelta(microseconds=1))
    assert woken == [first, third]
    # The lease of the first has run out as well: its message is redelivered, alone, without
    # counting an attempt.
    again = engine.take(third)
    assert (again[2], again[6], again[7]) == (b"alone", b"1", b"one")
    with pytest.raises(LookupError):
        engine.take(third)
    told = engine.start("il1_stats", KEY, [], woken.append)
    assert isinstance(told, list)


def test_a_parked_put_that_is_refused_raises_when_its_reply_is_taken() -> None:
    clock = ManualClock()
    engine = Engine(clock)
    engine.call("il1_configure", KEY, ["MAXSIZE", 1])
    put(engine, "one")
    woken: list[int] = []
    engine.start("il1_put", KEY, ["me", 1, 1_000, "two", 0, 0, 0], woken.append)
    clock.advance(1)
    with pytest.raises(
        EngineError, match=r"^FULL il1_put: 1 messages are unsettled; MAXSIZE is 1$"
    ):
        engine.take(woken[0])


def test_an_event_loop_and_a_timekeeping_thread_can_both_wait() -> None:
    engine = Engine()
    keeper = threading.Thread(target=engine.keep_time, daemon=True)
    keeper.start()

    async def get(call: int, wait: int) -> list[bytes]:
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        given = lease("me", call, wait)
        told = engine.start(
            "il1_lease", KEY, given, lambda _: loop.call_soon_threadsafe(answered.set)
        )
        if isinstance(told, list):
            return told
        await answered.wait()
        return engine.take(told)

    async def main() -> None:
        assert (await get(1, 1_000))[3] == b"0"
        waiting = asyncio.create_task(get(2, MINUTE))
        await asyncio.sleep(0)
        await asyncio.to_thread(put, engine, "one")
        assert (await waiting)[7] == b"one"

    asyncio.run(main())
    engine.close()
    keeper.join()


def test_an_exception_of_a_waker_is_reported_and_the_call_completes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(ManualClock())
    said: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda told: said.append(str(told.exc_value)))

    def waker(ticket: int) -> None:
        raise ValueError("no")

    ticket = engine.start("il1_lease", KEY, lease("me", 1), waker)
    assert isinstance(ticket, int)
    put(engine, "one")
    assert said == ["no"]
    assert engine.take(ticket)[7] == b"one"


def test_an_engine_referenced_by_its_waker_is_garbage_collected() -> None:
    def parked() -> weakref.ref[Engine]:
        engine = Engine(ManualClock())
        engine.start("il1_lease", KEY, lease("me", 1), engine.take)
        return weakref.ref(engine)

    gone = parked()
    gc.collect()
    assert gone() is None
