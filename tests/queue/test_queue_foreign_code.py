"""Code of the user's that a call runs: keys, payloads, callables, signal handlers that call back.

None hangs, none leaves the queue other than the calls made it.
"""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from interlock import Empty, Full, KeyedQueue, LeaseLost, Retry
from tests.support import blocked, collect, until

AT_ONCE = Retry(attempts=None, first=0)


class Talks:
    """A payload whose destructor calls back."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call

    def __del__(self) -> None:
        self.call()


def settled(q: KeyedQueue[Any]) -> None:
    stats = q.stats()
    assert (stats.unsettled, stats.leased) == (0, 0)


def test_a_payload_destructor_may_put() -> None:
    q = KeyedQueue[Any]()
    q.put(Talks(lambda: q.put("from the destructor", keys="a")), keys="a")
    q.get().ack()
    collect()
    with q.get_nowait() as payload:
        assert payload == "from the destructor"
    settled(q)


def test_a_payload_destructor_may_get_and_ack() -> None:
    q = KeyedQueue[Any]()
    taken: list[Any] = []

    def take() -> None:
        lease = q.get_nowait()
        taken.append(lease.payload)
        lease.ack()

    q.put(Talks(take), keys="a")
    q.put("behind", keys="a")
    q.get().ack()
    collect()
    assert taken == ["behind"]
    settled(q)


@pytest.mark.parametrize("end", ["cancel", "skip", "shutdown", "revoke", "ack_many", "refused"])
def test_a_destructor_may_call_back_however_its_message_ends(end: str) -> None:
    q = KeyedQueue[Any](1, retry=Retry(attempts=1, then="hold"))
    seen: list[Any] = []

    def talk() -> None:
        seen.append((q.qsize(), q.stats().puts, str(q.hot_keys())))
        q.pause("a")
        q.resume("a")

    if end == "refused":
        q.put("there")
        with pytest.raises(Full):
            q.put_nowait(Talks(talk))
    elif end == "cancel":
        assert q.cancel(q.put(Talks(talk), keys="a"))
    elif end == "shutdown":
        q.put(Talks(talk), keys="a")
        q.shutdown(immediate=True)
    else:
        id = q.put(Talks(talk), keys="a")
        lease = q.get()
        if end == "skip":
            lease.nack()
            assert q.skip(id)
        elif end == "revoke":
            assert q.revoke(id, then="skip")
        else:
            q.ack_many([lease])
        del lease
    collect()
    assert len(seen) == 1


def test_a_destructor_runs_in_a_get_that_waits_and_wakes_it() -> None:
    q = KeyedQueue[Any]()
    getter = blocked(q, q.get)
    talks: list[Any] = [Talks(lambda: q.put("woke"))]
    talks.clear()
    lease = getter.result()
    assert lease.payload == "woke"
    lease.ack()


def test_destructors_that_each_put_the_next_payload_all_run() -> None:
    q = KeyedQueue[Any]()
    left = 500

    def again() -> None:
        nonlocal left
        left -= 1
        if left:
            q.put(Talks(again), keys="a")

    q.put(Talks(again), keys="a")
    for _ in range(500):
        q.get(timeout=30).ack()
    assert left == 0
    settled(q)


class Loud(str):
    """A key that calls back wherever Python could ask it for text."""

    __slots__ = ("call",)
    call: Callable[[], object]

    def __str__(self) -> str:
        self.call()
        return "changed"

    __repr__ = __str__

    def __hash__(self) -> int:
        self.call()
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        self.call()
        return super().__eq__(other)

    def encode(self, *args: Any) -> bytes:
        self.call()
        return b"changed"


class LoudInt(int):
    call: Callable[[], object]

    def __str__(self) -> str:
        self.call()
        return "changed"

    __repr__ = __str__

    def __index__(self) -> int:
        self.call()
        return 8


def test_a_key_whose_str_uses_the_queue_is_accepted() -> None:
    q = KeyedQueue[str]()
    text, number = Loud("room"), LoudInt(10**30)
    text.call = number.call = lambda: q.put("from the key")
    q.put("payload", keys=[text, number])
    lease = q.get()
    assert lease.payload == "payload"
    assert lease.keys == {b"room", str(10**30).encode()}
    assert q.pause(text) and q.resume("room")
    lease.ack()
    drained = []
    while not q.empty():
        with q.get() as payload:
            drained.append(payload)
    assert set(drained) <= {"from the key"}


def test_a_wrong_key_whose_repr_uses_the_queue_is_refused() -> None:
    q = KeyedQueue[str]()

    class Wrong:
        def __repr__(self) -> str:
            q.put("from repr")
            raise RuntimeError("no text")

    with pytest.raises(TypeError, match=r"keys\[1\] is Wrong"):
        q.put("payload", keys=["a", Wrong()])  # type: ignore[list-item]
    with pytest.raises((TypeError, RuntimeError)):
        q.put("payload", keys=("a", Wrong()))  # type: ignore[arg-type]
    while not q.empty():
        with q.get() as payload:
            assert payload == "from repr"


def test_an_iterator_of_keys_may_use_the_queue() -> None:
    q = KeyedQueue[str]()

    def keys() -> Iterator[str]:
        yield "a"
        q.put("inner", keys="a")
        with q.get() as payload:
            assert payload == "inner"
        q.put("before", keys="b")
        yield "b"

    q.put("outer", keys=keys())
    first = q.get()
    assert first.payload == "before"
    with pytest.raises(Empty):
        q.get_nowait()
    first.ack()
    second = q.get()
    assert second.payload == "outer"
    assert second.keys == {b"a", b"b"}
    second.ack()


def test_an_iterator_of_keys_that_raises_puts_nothing() -> None:
    q = KeyedQueue[str]()

    def keys() -> Iterator[str]:
        yield "a"
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        q.put("payload", keys=keys())
    assert q.stats().puts == 0


def test_an_endless_iterator_of_keys_is_refused() -> None:
    q = KeyedQueue[str]()

    def keys() -> Iterator[int]:
        n = 0
        while True:
            yield n
            n += 1

    with pytest.raises(ValueError, match="4096"):
        q.put("payload", keys=keys())
    assert q.stats().puts == 0


def test_callables_of_the_payload_may_use_the_queue() -> None:
    order: list[Any] = []

    def keys(payload: Any) -> str:
        order.append(("keys", payload))
        if payload == "outer":
            q.put("inner")
        return "a"

    q = KeyedQueue[Any](keys=keys, sizeof=lambda payload: q.qsize() + 1, maxbytes=100)
    q.put("outer")
    handled = []
    for _ in range(2):
        with q.get() as payload:
            handled.append(payload)
    assert handled == ["inner", "outer"]


def test_a_log_handler_may_use_the_queue() -> None:
    q = KeyedQueue[Any](warn_depth=2, warn_lane_depth=2, name="logged")
    logged: list[str] = []

    class Back(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage())
            if len(logged) < 50:
                q.put("from the log", keys="log")
                q.get_nowait().ack()

    handler = Back()
    logger = logging.getLogger("interlock.queue")
    logger.addHandler(handler)
    try:
        for n in range(8):
            q.put(n, keys="a")
    finally:
        logger.removeHandler(handler)
    assert any("logged" in text for text in logged)


def test_a_log_handler_that_raises_fails_no_call(capsys: pytest.CaptureFixture[str]) -> None:
    q = KeyedQueue[int](warn_depth=1)

    def filter(record: logging.LogRecord) -> bool:
        raise RuntimeError("a filter that raises")

    logger = logging.getLogger("interlock.queue")
    logger.addFilter(filter)
    try:
        assert q.put(1) == 1
        lease = q.get()
        lease.nack(delay=0)
        q.get().ack()
    finally:
        logger.removeFilter(filter)
    settled(q)
    assert "RuntimeError: a filter that raises" in capsys.readouterr().err


def test_ctrl_c_while_a_get_is_logged_loses_no_message() -> None:
    q = KeyedQueue[str](retry=AT_ONCE, lease=0.001, slow_wait=0)
    q.put("payload", keys="a")
    first = q.get()
    # That it ran out is noted here, and said by the next call.
    until(lambda: first.lost)

    def interrupt(record: logging.LogRecord) -> bool:
        raise KeyboardInterrupt

    logger = logging.getLogger("interlock.queue")
    logger.addFilter(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            q.get()
    finally:
        logger.removeFilter(interrupt)
    assert q.stats().releases == 1
    again = q.get_nowait()
    assert (again.payload, again.attempt) == ("payload", 1)
    with suppress(LeaseLost):
        again.ack()


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], object]], None]]:
    before = signal.getsignal(signal.SIGUSR1)

    def install(call: Callable[[], object]) -> None:
        def handler(number: int, frame: FrameType | None) -> None:
            call()

        signal.signal(signal.SIGUSR1, handler)

    yield install
    signal.signal(signal.SIGUSR1, before)


def when_asleep(q: KeyedQueue[Any]) -> threading.Thread:
    """Sends the signal to the main thread when that sleeps in the queue."""
    main = threading.main_thread().ident
    assert main is not None and threading.current_thread() is threading.main_thread()

    def send() -> None:
        until(q._parked)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


Install = Callable[[Callable[[], object]], None]


def test_a_put_from_a_signal_handler_wakes_the_get_that_it_interrupted(on_signal: Install) -> None:
    q = KeyedQueue[str]()
    on_signal(lambda: q.put("from the handler", keys="a"))
    thread = when_asleep(q)
    lease = q.get(timeout=20)
    thread.join()
    assert lease.payload == "from the handler"
    lease.ack()


def test_a_signal_handler_may_get_while_a_get_sleeps(on_signal: Install) -> None:
    q, other = KeyedQueue[str](), KeyedQueue[str]()
    other.put("other")
    seen: list[str] = []

    def handler() -> None:
        with other.get() as payload:
            seen.append(payload)
        with pytest.raises(Empty):
            # Sleeps inside of the sleep that it interrupted, on the same queue.
            q.get(timeout=0.001)
        q.put("for the outer")

    on_signal(handler)
    thread = when_asleep(q)
    with q.get(timeout=20) as payload:
        assert payload == "for the outer"
    thread.join()
    assert seen == ["other"]


def test_a_signal_handler_that_raises_ends_the_wait_and_loses_nothing(on_signal: Install) -> None:
    q = KeyedQueue[str](1)

    class Alarm(Exception):
        pass

    def handler() -> None:
        raise Alarm

    on_signal(handler)
    for wait in (q.get, lambda: q.put("second"), q.join):
        thread = when_asleep(q)
        with pytest.raises(Alarm):
            wait()
        thread.join()
        if q.empty():
            q.put("first")
    assert q._parked() == 0
    with q.get_nowait() as payload:
        assert payload == "first"
    settled(q)


def test_puts_from_many_signals_all_arrive(on_signal: Install) -> None:
    q = KeyedQueue[int]()
    numbers = iter(range(10**9))
    on_signal(lambda: q.put(next(numbers), keys="a"))
    handled = []
    for n in range(200):
        signal.raise_signal(signal.SIGUSR1)
        if n % 3 == 0:
            with q.get() as payload:
                handled.append(payload)
    while not q.empty():
        with q.get() as payload:
            handled.append(payload)
    assert handled == list(range(200))
