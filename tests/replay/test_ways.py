"""Every way of running a trace: what keeps order keeps it, what does not is found out."""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from itertools import pairwise

import pytest

from interlock.replay.measure import Outcome, measure
from interlock.replay.trace import Message, Trace
from interlock.replay.watch import Watch, serial_digest
from interlock.replay.ways import OURS, PEERS, Pool, way
from interlock.replay.ways.base import Job, run_threads
from interlock.replay.workload import Workload, WorkloadError, parse
from tests.replay.traces import random_trace

ALL = (*OURS, *PEERS)
IN_ORDER = [(name, pool) for name in (*OURS, "serial", "rendezvous") for pool in way(name).pools]
IN_ORDER_HERE = [(name, pool) for name, pool in IN_ORDER if pool != "process"]


def ran(
    name: str, trace: Trace, work: Workload, *, pool: Pool = "thread", workers: int = 4
) -> Outcome:
    return measure(way(name), trace, work, workers=workers, pool=pool)


def calling(function: Callable[[Message], object]) -> Workload:
    return Workload("a test's", function)


def test_each_way_says_its_name_and_where_its_handlers_run() -> None:
    assert [way(name).name for name in ALL] == list(ALL)
    assert [way(name).pools[0] for name in OURS] == ["thread", "thread", "asyncio"]


@pytest.mark.parametrize(("name", "pool"), IN_ORDER)
def test_a_way_that_keeps_order_is_found_to_have_kept_it(name: str, pool: Pool) -> None:
    trace = random_trace(1)
    outcome = ran(name, trace, parse("sleep:10us"), pool=pool)
    assert (outcome.verdict.violations, outcome.verdict.repeated) == (0, 0)
    assert outcome.digest == serial_digest(trace.messages)
    assert outcome.failures == ()


@pytest.mark.parametrize(("name", "pool"), IN_ORDER)
def test_the_record_of_a_run_is_complete_and_consistent(name: str, pool: Pool) -> None:
    trace = random_trace(2)
    outcome = ran(name, trace, parse("sleep:10us"), pool=pool)
    run = outcome.run
    assert [(r.index, r.id, r.keys, r.shared) for r in run.records] == [
        (at, m.id, m.keys, m.shared) for at, m in enumerate(trace.messages)
    ]
    assert all(0 <= r.put_time < r.start <= r.end <= run.seconds for r in run.records)
    assert all(0 <= r.worker < run.workers for r in run.records)
    assert all(before.put_time <= after.put_time for before, after in pairwise(run.records))
    assert run.seconds == max(r.end for r in run.records) >= run.limit_seconds > 0
    for record in run.records:
        if record.waited_for is not None:
            behind = run.records[record.waited_for]
            assert record.put_time < behind.end <= record.start


@pytest.mark.parametrize(("name", "pool"), IN_ORDER_HERE)
def test_a_worker_handles_one_message_at_a_time(name: str, pool: Pool) -> None:
    run = ran(name, random_trace(3), parse("sleep:10us"), pool=pool).run
    for worker in range(run.workers):
        own = sorted((r.start, r.end) for r in run.records if r.worker == worker)
        assert all(before[1] <= after[0] for before, after in pairwise(own))


@pytest.mark.parametrize(("name", "pool"), IN_ORDER)
def test_a_handler_that_raises_is_counted_and_blocks_no_message(name: str, pool: Pool) -> None:
    trace = Trace("t", [Message(str(at), ("k",)) for at in range(5)])
    outcome = ran(name, trace, parse("tests.replay.handlers:fail_on_2_and_exit_on_3"), pool=pool)
    assert outcome.failures == (("2", "ValueError: not this one"), ("3", "SystemExit: 3"))
    assert outcome.verdict.violations == 0


@pytest.mark.parametrize(("name", "pool"), [(n, p) for n in ALL for p in way(n).pools])
def test_a_trace_of_no_messages_ends_at_once(name: str, pool: Pool) -> None:
    outcome = ran(name, Trace("t"), parse("hash"), pool=pool, workers=2)
    assert (outcome.verdict.messages, outcome.run.seconds, outcome.run.limit_seconds) == (0, 0, 0)


@pytest.mark.parametrize("name", [name for name in ALL if "process" in way(name).pools])
def test_work_that_cannot_reach_the_processes_is_refused_before_one_starts(name: str) -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(WorkloadError, match="cannot go to another process"):
        ran(name, random_trace(4, 20), calling(lambda message: None), pool="process", workers=2)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("name", [name for name in ALL if "process" in way(name).pools])
def test_a_process_that_dies_breaks_the_run_and_does_not_hang(name: str) -> None:
    with pytest.raises(BrokenProcessPool):
        ran(name, random_trace(4, 20), parse("tests.replay.handlers:die"), pool="process")


def test_a_pool_that_a_way_does_not_support_is_refused() -> None:
    with pytest.raises(ValueError, match="pool 'asyncio'; allowed for hash: thread, process"):
        ran("hash", Trace("t"), parse("hash"), pool="asyncio")


@pytest.mark.parametrize(
    ("name", "pool"),
    [("queue", "thread"), ("queue", "process"), ("queue", "asyncio"), ("executor", "thread"),
     ("taskgroup", "asyncio"), ("serial", "thread")],
)  # fmt: skip
def test_a_coroutine_function_runs_wherever_handlers_run(name: str, pool: Pool) -> None:
    work = parse("tests.replay.handlers:pause")
    assert ran(name, random_trace(5, 20), work, pool=pool, workers=2).failures == ()


@pytest.mark.parametrize("name", ["queue", "executor", "hash", "registry", "rendezvous", "per-key"])
def test_as_many_messages_as_workers_are_handled_at_the_same_time(name: str) -> None:
    # Each handler waits for all: with fewer at a time none would ever end.
    barrier = threading.Barrier(3)
    keys = ["a", "g", "b"]  # hashed to three lanes of three
    trace = Trace("t", [Message(key, (key,)) for key in keys])
    outcome = ran(name, trace, calling(lambda message: barrier.wait()), workers=3)
    assert outcome.failures == ()


@pytest.mark.parametrize(
    ("name", "threads", "lanes"),
    [
        ("queue", 8, 3), ("executor", 8, 3), ("serial", 1, 1), ("hash", 8, 8),
        ("rendezvous", 9, 8), ("registry", 8, 3), ("per-key", 10, 2),
    ],
)  # fmt: skip
def test_each_way_says_how_many_threads_and_lanes_it_uses(
    name: str, threads: int, lanes: int
) -> None:
    messages = [Message("1", ("a",), ("b",)), Message("2", ("c",)), Message("3")]
    shape = way(name).shape(messages, 8, "thread")
    assert (shape.threads, shape.lanes, shape.processes) == (threads, lanes, 0)


def test_the_loop_is_one_thread_and_a_pool_names_its_processes() -> None:
    messages = [Message("1", ("a",))]
    assert way("taskgroup").shape(messages, 8, "asyncio").threads == 1
    assert way("queue").shape(messages, 8, "process").processes == 8
    assert way("serial").shape(messages, 8, "process").processes == 1


def test_hashing_the_first_key_overlaps_messages_of_several_keys_and_it_is_counted() -> None:
    together = threading.Barrier(2)
    trace = Trace("t", [Message("1", ("a", "b")), Message("2", ("b",))])
    outcome = ran("hash", trace, calling(lambda message: together.wait()), workers=3)
    assert (outcome.verdict.overlap, outcome.failures) == (1, ())
    assert outcome.digest != serial_digest(trace.messages)


def test_a_queue_per_key_keeps_order_where_messages_have_one_key() -> None:
    keys = [str(number % 7) for number in range(200)]
    trace = Trace("t", [Message(str(at), (key,)) for at, key in enumerate(keys)])
    for pool in way("per-key").pools:
        outcome = ran("per-key", trace, parse("sleep:10us"), pool=pool)
        assert (outcome.verdict.violations, outcome.failures) == (0, ())
        assert outcome.digest == serial_digest(trace.messages)


def test_a_queue_per_key_overlaps_messages_of_several_keys_and_it_is_counted() -> None:
    together = threading.Barrier(2)
    trace = Trace("t", [Message("1", ("a", "b")), Message("2", ("b",))])
    outcome = ran("per-key", trace, calling(lambda message: together.wait()), workers=3)
    assert (outcome.verdict.overlap, outcome.failures) == (1, ())


def test_a_queue_per_key_shares_queues_beyond_a_number_of_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("interlock.replay.ways.queue_per_key.MOST", 3)
    trace = Trace("t", [Message(str(at), (f"key {at % 10}",)) for at in range(100)])
    outcome = ran("per-key", trace, parse("sleep:10us"))
    assert (outcome.verdict.violations, outcome.shape.threads, outcome.shape.lanes) == (0, 3, 3)


def test_scanning_a_registry_overtakes_messages_and_it_is_counted() -> None:
    last = threading.Event()

    def handle(message: Message) -> None:
        if message.id == "1":
            last.wait()
        if message.id == "3":
            last.set()

    messages = [Message("1", ("a",)), Message("2", ("a", "b")), Message("3", ("b",))]
    outcome = ran("registry", Trace("t", messages), calling(handle), workers=2)
    assert (outcome.verdict.order, outcome.verdict.overlap) == (1, 0)
    assert [found.id for found in outcome.verdict.examples] == [2]


def test_a_rendezvous_blocks_messages_behind_a_sleeping_thread() -> None:
    """{a, b} waits for {a}; {f} shares only the thread of b, and has to wait all the same."""
    order: list[str] = []
    first = threading.Event()

    def handle(message: Message) -> None:
        if message.id == "other":
            first.set()
        if message.id == "a":
            first.wait()
        order.append(message.id)

    messages = [
        Message("a", ("a",)),
        Message("ab", ("a", "b")),
        Message("behind b", ("f",)),
        Message("other", ("g",)),
    ]
    outcome = ran("rendezvous", Trace("t", messages), calling(handle), workers=3)
    assert order.index("ab") < order.index("behind b")
    assert outcome.verdict.violations == 0


@pytest.mark.parametrize("name", ["queue", "executor"])
def test_interlock_blocks_only_conflicting_messages(name: str) -> None:
    """As above, but {f} is handled while {a} still runs: if it were not, this would hang."""
    passed = threading.Event()

    def handle(message: Message) -> None:
        if message.id == "behind b":
            passed.set()
        if message.id == "a":
            passed.wait()

    messages = [Message("a", ("a",)), Message("ab", ("a", "b")), Message("behind b", ("f",))]
    assert ran(name, Trace("t", messages), calling(handle), workers=3).verdict.violations == 0


def dropped() -> None:
    """Ctrl-C as it ends where it comes during a destructor: printed, and forgotten."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_ctrl_c_dropped_by_the_interpreter_ends_threads_that_never_return() -> None:
    stopped = threading.Event()

    def loop() -> None:
        stopped.wait()

    with pytest.raises(KeyboardInterrupt):
        run_threads([loop], dropped, stopped.set)
    assert stopped.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_ctrl_c_dropped_by_the_interpreter_ends_handlers_that_never_return() -> None:
    trace, over = random_trace(1), threading.Event()

    def messages() -> Iterator[Message]:
        yield trace.messages[0]
        dropped()

    watch = Watch(trace.messages, calling(lambda message: over.wait() and None))
    job = Job(messages(), 2, watch, "thread", None)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        way("executor").run(job)
    over.set()
