"""Log lines that a queue writes unasked, and the wording of explanations."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from interlock import KeyedExecutor, KeyedQueue, Retry, watch
from interlock.testing import ManualClock
from tests.support import blocked, collect, python, until

AT_ONCE = Retry(attempts=None, first=0)


class Log(logging.Handler):
    """Keeps the log lines of the queues named orders; a queue of another test may be said too."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.said = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        if vars(record)["queue"] == "orders":
            with self.said:
                self.records.append(record)
                self.said.notify_all()

    def texts(self, level: int | None = None) -> list[str]:
        some = [r for r in self.records if level is None or r.levelno == level]
        return [record.getMessage() for record in some]

    def take(self) -> list[str]:
        texts = self.texts()
        self.records.clear()
        return texts


@pytest.fixture
def log() -> Iterator[Log]:
    handler = Log()
    logger = logging.getLogger("interlock.queue")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(before)
    logger.removeHandler(handler)


def quiet(clock: ManualClock | None = None, **options: Any) -> KeyedQueue[Any]:
    """A queue that watches for nothing but what the test asks for."""
    off = {"slow_wait": 0, "warn_depth": 0, "warn_lane_depth": 0, "name": "orders"}
    return KeyedQueue[Any](clock=clock or ManualClock(), **{**off, **options})


def test_a_depth_is_logged_once_and_again_after_doubling(log: Log) -> None:
    q = quiet(warn_depth=10)
    depths = []
    for n in range(1, 90):
        q.put(n)
        depths += [(n, text) for text in log.take()]
    assert depths == [
        (10, "queue 'orders' holds 10 messages"),
        (20, "queue 'orders' holds 20 messages"),
        (40, "queue 'orders' holds 40 messages"),
        (80, "queue 'orders' holds 80 messages"),
    ]


def test_a_depth_is_logged_again_after_the_queue_was_shallow(log: Log) -> None:
    clock = ManualClock()
    q = quiet(warn_depth=10, clock=clock)
    q.put_many(range(15))
    assert len(log.texts(logging.WARNING)) == 1
    for _ in range(6):
        q.get().ack()
    q.put_many(range(5))
    assert len(log.texts(logging.WARNING)) == 1, "it swings about the depth"
    for _ in range(12):
        q.get().ack()
    q.put_many(range(10))
    assert len(log.texts(logging.WARNING)) == 1, "once a second"
    for _ in range(8):
        q.get().ack()
    clock.advance(1)
    q.put_many(range(10))
    assert len(log.texts(logging.WARNING)) == 2
    q.put_many(range(12))
    assert len(log.texts(logging.WARNING)) == 3, "twice as deep is said at once"


def test_a_depth_warning_names_the_key_that_serialises_everything(log: Log) -> None:
    q = quiet(warn_depth=10)
    q.put("cold", keys="b")
    for n in range(9):
        q.put(n, keys=["hot", f"other {n}"])
    first, second = log.texts(logging.WARNING)
    assert "holds 10 messages" in first
    assert "one after the other" in second and "key hot" in second
    assert vars(log.records[1])["keys"] == ["hot"]
    mixed = quiet(warn_depth=10)
    log.take()
    for n in range(10):
        mixed.put(n, keys=f"key {n % 2}")
    assert len(log.take()) == 1


def test_readers_of_a_key_are_not_reported_as_serialised(log: Log) -> None:
    readers = quiet(warn_depth=10)
    for n in range(10):
        readers.put(n, keys=f"own {n}", shared="ledger")
    assert log.take() == ["queue 'orders' holds 10 messages"]
    few_writers = quiet(warn_depth=10)
    for n in range(10):
        if n % 5:
            few_writers.put(n, shared="ledger")
        else:
            few_writers.put(n, keys="ledger")
    assert log.take() == ["queue 'orders' holds 10 messages"]


def test_a_serialising_key_is_found_besides_a_key_that_all_only_read(log: Log) -> None:
    for write, read in (("a", "b"), ("b", "a")):
        q = quiet(warn_depth=10)
        for n in range(10):
            q.put(n, keys=write, shared=read)
        assert f"share the key {write}, so they are handled one after the other" in log.take()[1]


def test_a_deep_lane_is_logged(log: Log) -> None:
    q = quiet(warn_lane_depth=5)
    said = []
    for n in range(1, 25):
        q.put(n, keys=["room 7", n])
        said += [(n, text) for text in log.take()]
    assert said == [
        (depth, f"queue 'orders': {depth} messages have the key room 7") for depth in (5, 10, 20)
    ]


def test_the_defaults_are_a_thousand_messages_and_a_hundred_on_a_key(log: Log) -> None:
    q = KeyedQueue[int](name="orders")
    q.put_many(range(99), keys="a")
    q.put_many(range(900), keys=lambda n: f"key {n}")
    assert log.texts(logging.WARNING) == []
    q.put(0, keys="a")
    assert len(log.texts(logging.WARNING)) == 2


def test_zero_disables_each_warning(log: Log) -> None:
    clock = ManualClock()
    q = quiet(clock)
    q.put_many(range(5000), keys="a")
    lease = q.get()
    clock.advance(10_000)
    lease.nack()
    assert log.texts(logging.WARNING) == log.texts(logging.ERROR) == []


def test_a_message_that_waits_too_long_is_logged_with_its_blocker(log: Log) -> None:
    clock = ManualClock()
    q = quiet(clock, slow_wait=60)
    q.put("first", keys=["a", "b"])
    lease = q.get()
    q.put("second", keys=["b", "c"])
    q.put("third", keys="c")
    clock.advance(59)
    assert log.take() == []
    clock.advance(1)
    slow_lease, slow_wait = log.texts(logging.ERROR)
    thread = threading.current_thread().name
    assert "message 1 has been handled for 60.0 s" in slow_lease
    assert "message 2 has waited 60.0 s (and 1 more have waited too long)" in slow_wait
    assert slow_wait.splitlines()[1:] == [
        "message 2 waiting, age 60.0 s",
        f"└─ key b, 1 ahead: message 1 leased, by {thread}, for 60.0 s, age 60.0 s",
    ]
    record = log.records[1]
    assert (vars(record)["queue"], vars(record)["id"]) == ("orders", 2)
    log.take()
    clock.advance(60)
    assert log.take() == [], "each is said once"
    lease.ack()


def test_a_message_that_is_redelivered_soon_is_not_logged(log: Log) -> None:
    clock = ManualClock()
    q = quiet(clock, slow_wait=60)
    for n in range(100):
        q.put(n, keys="a")
        clock.advance(1)
        q.get().ack()
    assert log.texts(logging.ERROR) == []


def test_a_delayed_message_s_wait_counts_from_its_due_time(log: Log) -> None:
    clock = ManualClock()
    q = quiet(clock, slow_wait=60)
    q.put("delayed", keys="a", delay=1000)
    clock.advance(1000)
    clock.advance(59)
    assert log.texts(logging.ERROR) == []
    clock.advance(2)
    assert len(log.texts(logging.ERROR)) == 1


def test_a_failed_attempt_is_logged_with_its_outcome(log: Log) -> None:
    q = quiet(retry=Retry(attempts=2, first=5, jitter=False), warn_depth=1000)
    q.put("poison")
    q.get().nack(error=ValueError("cannot"))
    (record,) = log.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "queue 'orders': attempt 1 of message 1 failed (ValueError: cannot); retrying in 5 s"
    )
    log.take()
    q.retry(1)
    q.get().nack()
    (record,) = log.records
    assert record.levelno == logging.ERROR
    assert "message 1 is a dead letter after attempt 2 (no reason given)" in record.getMessage()


def test_a_held_message_is_logged_with_the_operator_s_commands(log: Log) -> None:
    q = quiet(retry=Retry(attempts=1, then="hold"), warn_depth=1000)
    q.put("poison")
    q.get().nack(error="cannot")
    (text,) = log.texts(logging.ERROR)
    assert "retry(1), skip(1) or bury(1)" in text


def test_each_handled_message_is_logged_at_debug_level(log: Log) -> None:
    clock = ManualClock()
    q = quiet(clock, warn_depth=1000)
    q.put("payload", keys=["a", "b"], shared="c")
    clock.advance(0.25)
    lease = q.get()
    clock.advance(0.5)
    lease.ack()
    (record,) = log.records
    assert record.levelno == logging.DEBUG
    assert record.getMessage() == (
        "queue 'orders': message 1 [a, b, c] waited 250.0 ms, handled 500.0 ms, attempt 1"
    )
    assert vars(record)["keys"] == ["a", "b", "c"]


def test_a_key_in_a_log_record_is_text_with_other_bytes_escaped(log: Log) -> None:
    q = quiet(warn_lane_depth=1)
    q.put("payload", keys=["møbel", b"\xff\x00", 7])
    assert sorted(vars(record)["keys"][0] for record in log.records) == ["7", "\\xff\0", "møbel"]


def test_a_quiet_message_is_not_logged(log: Log) -> None:
    q = quiet(warn_depth=1000)
    q.put("seen")
    q.put("unseen", quiet=True)
    q.put_many(["unseen", "unseen"], quiet=True)
    for lease in q.get_many(10):
        lease.ack()
    assert len(log.texts(logging.DEBUG)) == 1


def test_debug_logging_may_be_switched_on_and_off_later(log: Log) -> None:
    clock = ManualClock()
    q = quiet(clock, warn_depth=1000)
    logger = logging.getLogger("interlock.queue")

    def handled() -> int:
        clock.advance(2)
        q.put("payload")
        q.get().ack()
        return len(log.take())

    logger.setLevel(logging.INFO)
    handled()
    assert handled() == 0
    logger.setLevel(logging.DEBUG)
    assert handled() == 1
    logger.setLevel(logging.INFO)
    assert handled() == 0


def test_asyncio_calls_log_slow_waits_too(log: Log) -> None:
    q = quiet(warn_depth=1000)

    async def main() -> None:
        await q.aio.put("payload", keys="a")
        async with await q.aio.get():
            pass

    asyncio.run(main())
    assert len(log.texts(logging.DEBUG)) == 1


def test_an_executor_logs_slow_waits_too(log: Log) -> None:
    with KeyedExecutor(1, thread_name_prefix="orders") as executor:
        executor.submit_keyed("a", int)
    (text,) = log.texts(logging.DEBUG)
    assert "message 1 [a] waited" in text


def test_the_watcher_thread_logs_slow_waits_of_an_idle_queue(log: Log) -> None:
    q = KeyedQueue[str](slow_wait=0.01, name="orders")
    q.put("hangs", keys="a")
    lease = q.get()
    getter = blocked(q, q.get)
    q.put("behind", keys="a")
    # Nobody calls from here on.
    with log.said:
        assert log.said.wait_for(lambda: len(log.texts(logging.ERROR)) >= 2, 20)
    texts = " ".join(log.texts(logging.ERROR))
    assert "message 1 has been handled for" in texts
    assert "message 2 has waited" in texts
    lease.ack()
    getter.result().ack()


def test_a_queue_is_watched_in_time_while_the_watcher_sleeps_for_another(log: Log) -> None:
    patient, q = KeyedQueue[str](slow_wait=1000), KeyedQueue[str](slow_wait=0.01, name="orders")
    patient.put("rests")
    until(lambda: patient._number in watch._scheduled)
    q.put("waits")
    with log.said:
        assert log.said.wait_for(lambda: log.texts(logging.ERROR), 20)
    assert "message 1 has waited" in log.texts(logging.ERROR)[0]


def test_the_watcher_checks_only_queues_that_are_due(log: Log) -> None:
    looks: Counter[int] = Counter()

    class Seen(KeyedQueue[int]):
        def _look(self) -> float | None:
            looks[self._number] += 1
            return super()._look()

    patient = [Seen(slow_wait=1000) for _ in range(50)]
    for q in patient:
        q.put(1)
    until(lambda: all(q._number in watch._scheduled for q in patient))
    hasty = Seen(slow_wait=0.01, name="orders")
    hasty.put(1)
    until(lambda: looks[hasty._number] >= 3)
    assert [looks[q._number] for q in patient] == [1] * 50


def test_the_watcher_drops_freed_queues() -> None:
    before = len(watch._scheduled)
    queues = [KeyedQueue[int](slow_wait=1000) for _ in range(50)]
    for q in queues:
        q.put(1)
    until(lambda: all(q._number in watch._scheduled for q in queues))
    queues.clear()
    del q
    collect()
    assert len(watch._scheduled) <= before


def test_the_watcher_is_one_thread_and_keeps_no_queue_alive() -> None:
    done = python("""
import gc, threading, weakref
from interlock import KeyedQueue
assert threading.active_count() == 1
queues = [KeyedQueue(slow_wait=0.001) for _ in range(20)]
assert threading.active_count() == 1
for q in queues:
    q.put(1)
    q.get().ack()
references = [weakref.ref(q) for q in queues]
from tests.support import until
until(lambda: "interlock-watch" in [t.name for t in threading.enumerate()])
assert threading.active_count() == 2
del q, queues
def gone():
    gc.collect()
    return not any(reference() for reference in references)
until(gone)
""")
    assert done.returncode == 0, done.stderr


def test_the_watcher_is_restarted_in_a_forked_child() -> None:
    done = python("""
import logging, os, threading, warnings
from interlock import KeyedQueue
from tests.support import until
warnings.simplefilter("ignore")
logging.getLogger("interlock").setLevel(logging.CRITICAL)
q = KeyedQueue(slow_wait=0.001)
q.put(1)
running = lambda: "interlock-watch" in [t.name for t in threading.enumerate()]
until(running)
pid = os.fork()
if pid == 0:
    assert not running()
    q.put(2)
    until(running)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""")
    assert done.returncode == 0, done.stderr


def test_an_explanation_is_a_tree_that_shows_each_message_once() -> None:
    clock = ManualClock()
    q = quiet(clock, lease=90)
    q.put("1", keys=["a", "b"])
    lease = q.get()
    q.put("2", keys=["a", "c"])
    q.put("3", keys=["b", "c"])
    q.put("4", barrier=True)
    q.put("5", keys="c")
    clock.advance(30)
    thread = threading.current_thread().name
    assert str(q.explain(3)).splitlines() == [
        "message 3 waiting, age 30.0 s",
        f"├─ key b, 1 ahead: message 1 leased, by {thread}, for 30.0 s, lease left 60.0 s, "
        "age 30.0 s",
        "└─ key c, 1 ahead: message 2 waiting, age 30.0 s",
        "   └─ key a, 1 ahead: message 1 (above)",
    ]
    assert str(q.explain(5)).splitlines() == [
        "message 5 waiting, age 30.0 s",
        "├─ barrier, 1 ahead: message 4 waiting, age 30.0 s",
        f"│  ├─ barrier, 3 ahead: message 1 leased, by {thread}, for 30.0 s, lease left 60.0 s, "
        "age 30.0 s",
        "│  ├─ barrier, 3 ahead: message 2 waiting, age 30.0 s",
        "│  │  └─ key a, 1 ahead: message 1 (above)",
        "│  └─ barrier, 3 ahead: message 3 waiting, age 30.0 s",
        "│     ├─ key b, 1 ahead: message 1 (above)",
        "│     └─ key c, 1 ahead: message 2 (above)",
        "└─ key c, 2 ahead: message 2 (above)",
    ]
    lease.ack()


def test_an_explanation_names_pauses_and_where_it_was_cut() -> None:
    q = quiet()
    q.put("1", keys="a")
    q.pause("a")
    for _ in range(5):
        q.put("next", keys="a")
    text = str(q.explain(6))
    assert "message 1 waiting, paused: a, age" in text
    q.pause()
    assert "paused: the queue" in str(q.explain(1))
    cut = q.explain(6, limit=1)
    assert cut.truncated and str(cut).endswith("ask with a higher limit for more")
    by_key = q.explain(key="a")
    assert [node.id for node in by_key.nodes] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(KeyError, match="no unsettled message has"):
        q.explain(key="b")
    with pytest.raises(KeyError, match="message 77"):
        q.explain(77)


def test_an_explanation_names_the_handling_thread() -> None:
    q = quiet()
    q.put("payload", keys="a")
    go_on = threading.Event()
    with q.consume(lambda payload: go_on.wait(20)):
        until(lambda: q.stats().leased)
        (node,) = q.explain(1).nodes
        assert node.consumer == "orders-<lambda>-0"
        go_on.set()


HOLD = Retry(attempts=1, then="hold")


def test_parked_messages_are_logged_with_their_key_and_again_after_doubling(log: Log) -> None:
    clock = ManualClock()
    q = quiet(clock=clock, warn_depth=1000, behind="park", retry=HOLD)
    stuck = q.put("stuck", keys="a")
    lease = q.get()
    q.put("behind", keys=["a", "b"])
    lease.nack()
    on = f"on the key a for %.1f s, behind message {stuck}"
    assert log.take()[1:] == ["queue 'orders': 1 message parked; " + on % 0]
    clock.advance(2)
    q.put("second", keys="a")
    q.put("third", keys="a")
    assert log.take() == ["queue 'orders': 2 messages parked; " + on % 2]
    q.skip(stuck)
    clock.advance(2)
    q.pause("a")
    assert log.take() == [
        "queue 'orders': 3 messages parked; on the key a for 0.0 s, which is paused"
    ]


def test_messages_that_go_with_a_held_one_are_logged_in_one_line(log: Log) -> None:
    q = quiet(warn_depth=1000, behind="bury", retry=HOLD)
    stuck = q.put("stuck", keys="a")
    lease = q.get()
    q.put_many(range(3), keys="a")
    q.put_many(range(2), keys="a", behind="cancel")
    lease.nack()
    (line,) = (record for record in log.records if hasattr(record, "buried"))
    assert line.levelno == logging.WARNING
    assert line.getMessage() == (
        f"queue 'orders': behind message {stuck} on the key a, 3 became dead letters and 2 were "
        "cancelled"
    )
