"""Batches of quick handlers under what may befall them: slow handlers, stops, losses, outages."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import redis

import interlock
from interlock import Reject, RetryAfter, current_lease
from interlock.app import App, Handling
from interlock.client.faces import consumer, handler_time
from interlock.retry import Retry
from interlock.worker.reports.audit import Audit
from tests.hub.servers import redis_server
from tests.worker.workers import Workers, wait_for

ENGINES = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)
THREADS = pytest.mark.parametrize("threads", [1, 4])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any handler is quick but one that waits: what is tested is not how fast the machine is."""
    monkeypatch.setattr(handler_time, "QUICK", 1.0)
    monkeypatch.setattr(handler_time, "LONGEST_BATCH", 100.0)
    monkeypatch.setattr(handler_time, "LATE", 0.3)
    monkeypatch.setattr(handler_time, "LONGEST_RUN", 60.0)


def queue_of(app: App) -> Any:
    return app._queue("default")


def in_batch() -> bool:
    return threading.current_thread().name == "interlock-batches-default"


@ENGINES
@THREADS
def test_a_handler_may_end_in_any_way_in_the_middle_of_a_batch(app: App, threads: int) -> None:
    seen: Counter[str] = Counter()
    batched: set[str] = set()

    @app.task(keys="{n}", retry=Retry(3, first=0))
    def task(n: int) -> None:
        what = ("reject", "retry", "raise", "exit", "interrupt", "fine")[n % 6]
        seen[what] += 1
        if in_batch():
            batched.add(what)
        if what == "reject":
            raise Reject("too large")
        if current_lease().attempt == 1:
            if what == "retry":
                raise RetryAfter(0)
            if what == "raise":
                raise LookupError(n)
            if what == "exit":
                raise SystemExit(3)
            if what == "interrupt":
                raise KeyboardInterrupt

    for n in range(600):
        task.send(n)
    with app.worker(threads=threads) as worker:
        queue_of(app).join(60)
        assert worker.broken is None
    assert seen == {"reject": 100, "fine": 100, **dict.fromkeys(batched - {"reject", "fine"}, 200)}
    assert len(batched) == 6
    letters = queue_of(app).dead_letters(1000)
    assert [letter.error for letter in letters] == ["too large"] * 100
    figures = worker.figures()
    assert (figures.handled, figures.failed, figures.lost, figures.violations) == (500, 500, 0, 0)


@ENGINES
def test_tasks_with_results_timeouts_or_leases_run_in_a_batch_as_elsewhere(app: App) -> None:
    seen: list[tuple[str, int]] = []

    @app.task(keys="{n}", result_ttl=60)
    def kept(n: int) -> int:
        seen.append(("kept", n))
        return 2 * n

    @app.task(keys="{n}", timeout=60)
    def timed(n: int) -> None:
        seen.append(("timed", n))

    @app.task(keys="{n}")
    def named(n: int, *, word: str) -> None:
        seen.append((word, n))

    @app.task(keys="{n}")
    async def awaited(n: int) -> None:
        seen.append(("awaited", n))

    jobs = [kept.send(n) for n in range(300)]
    for n in range(300):
        timed.send(n)
        named.send(n, word="named")
    for n in range(30):
        awaited.send(n)
    with app.worker(threads=1) as worker:
        queue_of(app).join(60)
        assert [job.result(30) for job in jobs] == [2 * n for n in range(300)]
    assert Counter(what for what, _ in seen) == {
        "kept": 300, "timed": 300, "named": 300, "awaited": 30,
    }  # fmt: skip
    assert (worker.figures().handled, worker.figures().violations) == (930, 0)


@ENGINES
def test_hooks_added_while_batches_run_are_called(app: App) -> None:
    hooked: list[int] = []
    some = threading.Event()

    @app.task(keys="{n}")
    def task(n: int) -> None:
        if n == 400:
            some.set()

    with app.worker(threads=2):
        for n in range(401):
            task.send(n)
        assert some.wait(60)

        @app.before_handle
        def hook(handling: Handling) -> None:
            hooked.append(handling.args[0])

        queue_of(app).join(60)
        for n in range(1000, 1400):
            task.send(n)
        queue_of(app).join(60)
    assert set(range(1000, 1400)) <= set(hooked)


@ENGINES
def test_a_handler_in_a_batch_has_its_own_lease_even_after_it_ends(app: App) -> None:
    leases: dict[int, Any] = {}
    asked: dict[int, int] = {}
    threads: list[threading.Thread] = []
    once = threading.Event()

    @app.task(keys="account:{n}", shared="rates")
    def task(n: int) -> None:
        lease = current_lease()
        assert lease is current_lease()
        leases[n] = lease
        if n % 50 == 0:
            import contextvars

            context = contextvars.copy_context()

            def later() -> None:
                once.wait(30)
                asked[n] = current_lease().id

            threads.append(threading.Thread(target=context.run, args=(later,)))
            threads[-1].start()

    jobs = {n: task.send(n) for n in range(400)}
    with app.worker(threads=1):
        queue_of(app).join(60)
    once.set()
    for thread in threads:
        thread.join(30)
    for n, lease in leases.items():
        assert (lease.id, lease.task, lease.attempt) == (jobs[n].id, "task", 1)
        assert lease.keys == {f"account:{n}".encode()} and lease.shared == {b"rates"}
    assert asked == {n: jobs[n].id for n in range(0, 400, 50)}
    with pytest.raises(LookupError):
        current_lease()


@ENGINES
def test_a_handler_of_a_batch_that_runs_too_long_loses_its_lease(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    gate, lost, attempts = threading.Event(), [], []
    names: list[str] = []

    @app.task
    def plain(n: int) -> None: ...

    @app.task(keys="k", timeout=0.5, retry=Retry(first=0))
    def hangs() -> None:
        lease = current_lease()
        attempts.append(lease.attempt)
        if lease.attempt == 1:
            names.append(threading.current_thread().name)
            gate.wait(30)
            lost.append(lease.lost)

    for n in range(300):
        plain.send(n)
    hangs.send()
    with app.worker(threads=2) as worker:
        queue_of(app).join(60)
        assert attempts == [1, 2] and names == ["interlock-batches-default"]
        gate.set()
        wait_for(lambda: worker.figures().running == 0, "the handler did not end")
    assert lost == [True]
    assert "gate.wait(30)" in caplog.text
    assert "ended after its lease was revoked" in caplog.text


@ENGINES
@THREADS
def test_a_worker_stopped_during_a_batch_lets_its_handler_finish(app: App, threads: int) -> None:
    gate, stuck = threading.Event(), threading.Event()
    seen: list[int] = []

    @app.task(keys="{n}")
    def task(n: int) -> None:
        seen.append(n)
        if n == 700:
            stuck.set()
            gate.wait(30)

    for n in range(1500):
        task.send(n)
    worker = app.worker(threads=threads).start()
    assert stuck.wait(60)
    worker.quiesce()
    queue = queue_of(app)
    wait_for(lambda: queue.stats().leased == 1, "what has not begun did not go back")
    assert queue.stats().acks >= len(seen) - 1 - threads
    gate.set()
    assert worker.stop(30)
    stats = queue.stats()
    assert (stats.leased, stats.acks, stats.retries) == (0, len(seen), 0)
    with app.worker(threads=threads):
        queue.join(60)
    assert sorted(seen) == list(range(1500))


@ENGINES
def test_messages_of_a_batch_unfinished_at_the_stop_deadline_are_returned(app: App) -> None:
    gate, stuck = threading.Event(), threading.Event()
    seen: list[tuple[int, int]] = []

    @app.task(keys="{n}", retry=Retry(first=0))
    def task(n: int) -> None:
        attempt = current_lease().attempt
        seen.append((n, attempt))
        if n == 300 and not stuck.is_set():
            stuck.set()
            gate.wait(30)

    for n in range(400):
        task.send(n)
    worker = app.worker(threads=1).start()
    assert stuck.wait(60)
    assert worker.stop(0) is False
    stats = queue_of(app).stats()
    # It comes back after a pause, and no attempt is counted; what had not begun is ready.
    assert (stats.leased, stats.retries, stats.backing_off) == (0, 0, 1)
    assert stats.ready == stats.unsettled - 1 == 400 - stats.acks - 1
    gate.set()
    with app.worker(threads=1):
        queue_of(app).join(60)
    assert Counter(seen) == {**dict.fromkeys(((n, 1) for n in range(400)), 1), (300, 1): 2}


@ENGINES
def test_a_lost_lease_of_a_batch_is_logged_and_the_rest_is_settled(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    queue = queue_of(app)
    ids: dict[int, int] = {}
    attempts: Counter[int] = Counter()

    @app.task(keys="{n}", retry=Retry(first=0))
    def task(n: int) -> None:
        attempts[n] += 1
        if n == 250 and attempts[n] == 1:
            lease = current_lease()
            with interlock.connect(app._url_in_use()) as other:
                assert other.queue("default", bytes).revoke(lease.id)

    for n in range(400):
        ids[n] = task.send(n).id
    with app.worker(threads=1) as worker:
        queue.join(60)
        wait_for(lambda: worker.figures().lost == 1, "it was not told")
    assert attempts == {**dict.fromkeys(range(400), 1), 250: 2}
    assert f"the lease of message {ids[250]} in queue 'default' was lost" in caplog.text
    assert queue.stats().acks == 400


@pytest.mark.watchdog(180)
def test_batches_survive_an_engine_outage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = App(send_timeout=1, audit=True)
    seen: Counter[int] = Counter()
    half, gate = threading.Event(), threading.Event()

    @app.task(keys="{n}", retry=Retry(first=0))
    def task(n: int) -> None:
        seen[n] += 1
        if n == 1000:
            half.set()
            gate.wait(30)

    stored = ("--appendonly", "yes", "--appendfsync", "always")
    with redis_server(tmp_path, *stored) as (_, port):
        app.url = f"redis://127.0.0.1:{port}?timeout=1"
        for n in range(2000):
            task.send(n)
        worker = app.worker(threads=4).start()
        assert half.wait(60)
    gate.set()
    wait_for(lambda: "trying again in" in caplog.text, "it was not missed")
    with redis_server(tmp_path, *stored, wanted=port):
        queue_of(app).join(120)
        assert worker.stop(30) is True
        assert queue_of(app).stats().acks == 2000
    # Messages leased when it went are settled with their own lease: nothing is handled twice.
    assert seen == dict.fromkeys(range(2000), 1)
    assert worker.figures().violations == 0 and worker.broken is None
    app.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.share(2)
def test_a_worker_process_killed_during_batches_loses_no_message(
    workers: Workers, url: str, number: int
) -> None:
    from tests.worker.apps import shop

    shop.app.close()
    shop.app.url = url
    queue = shop.app._queue("default")
    first = workers.start("--lease", "1").ready()
    for n in range(3000):
        shop.add.send(n)
    wait_for(lambda: queue.stats().acks > 200, "nothing is handled")
    first.signal(number)
    code = first.ended()
    second = workers.start("--lease", "1").ready()
    queue.join(60)
    assert second.stopped() == 0, second.output
    assert queue.stats().acks == 3000
    if number == signal.SIGTERM:
        assert code == 0, first.output
        assert queue.stats().retries == 0, "it was settled, or went back"
    shop.app.close()


@ENGINES
def test_consume_returns_messages_leased_behind_a_slow_one(url: str) -> None:
    gate, stuck = threading.Event(), threading.Event()
    seen: list[int] = []

    def handler(n: int) -> None:
        seen.append(n)
        if n == 600:
            stuck.set()
            gate.wait(30)

    with interlock.connect(url) as client:
        queue = client.queue("numbers", int)
        for start in range(0, 1200, 600):
            some = range(start, start + 600)
            queue.put_many(some, each_keys=[str(n) for n in some])
        with queue.consume(handler) as consumer:
            assert stuck.wait(60)
            wait_for(lambda: queue.stats().leased == 1, "the rest of its batch was kept")
            assert queue.stats().acks == len(seen) - 1 == 600
            gate.set()
            queue.join(60)
            assert consumer.stop(30)
        assert seen == list(range(1200)) and queue.stats().retries == 0


@ENGINES
def test_consume_stopped_during_a_batch_finishes_one_message_and_returns_the_rest(
    url: str,
) -> None:
    gate, stuck = threading.Event(), threading.Event()
    seen: list[int] = []

    def handler(n: int) -> None:
        seen.append(n)
        if n == 300:
            stuck.set()
            gate.wait(30)

    with interlock.connect(url) as client:
        queue = client.queue("numbers", int)
        queue.put_many(range(1000), each_keys=[str(n) for n in range(1000)])
        consumer = queue.consume(handler)
        assert stuck.wait(60)
        assert consumer.stop(0) is False
        gate.set()
        assert consumer.join(30)
        stats = queue.stats()
        assert (stats.acks, stats.leased, stats.retries) == (301, 0, 0)
        assert len(seen) == 301


def test_consume_survives_a_broken_connection_during_batches(url: str) -> None:
    seen: Counter[int] = Counter()
    with interlock.connect(url) as client:
        queue = client.queue("numbers", int, retry=Retry(first=0), lease=0.5)
        for start in range(0, 3000, 1000):
            some = range(start, start + 1000)
            queue.put_many(some, each_keys=[str(n) for n in some])
        port = int(url.rpartition(":")[2].partition("/")[0])

        def handler(n: int) -> None:
            seen[n] += 1
            if n % 500 == 250:
                with redis.Redis(port=port) as server:
                    server.client_kill_filter(_type="normal", skipme=True)

        with queue.consume(handler):
            queue.join(60)
    assert set(seen) == set(range(3000))


@ENGINES
@THREADS
def test_one_undecodable_message_of_a_batch_fails_alone(app: App, threads: int) -> None:
    """It is nested deeper than the stack, in the middle of a batch; before, and as the first."""
    seen: Counter[int] = Counter()

    @app.task(keys="{n}")
    def task(n: int) -> None:
        seen[n] += 1

    name = msgspec.msgpack.encode(task.name)
    deep = b"\x83\xa1v\x01\xa4task" + name + b"\xa4args\x91" + b"\x91" * 3000 + b"\xc0"
    queue_of(app).put(deep)
    for n in range(300):
        task.send(n)
        if n in (150, 290):
            queue_of(app).put(deep)
    with app.worker(threads=threads) as worker:
        queue_of(app).join(60)
        assert worker.broken is None
    assert seen == dict.fromkeys(range(300), 1)
    assert len(queue_of(app).dead_letters(10)) == 3


@ENGINES
@THREADS
def test_an_audit_that_cannot_write_does_not_prevent_settlements(
    app: App, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: Counter[int] = Counter()

    @app.task(keys="{n}")
    def task(n: int) -> None:
        seen[n] += 1

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Audit, "_write", full)
    for n in range(300):
        task.send(n)
    with app.worker(threads=threads) as worker:
        queue_of(app).join(60)
        assert worker.broken is None
    assert seen == dict.fromkeys(range(300), 1)


@THREADS
def test_coroutines_of_a_batch_have_separate_contexts(app: App, threads: int) -> None:
    tenant: ContextVar[int | None] = ContextVar("tenant", default=None)
    found: list[int | None] = []

    @app.task(keys="{n}")
    async def task(n: int) -> None:
        found.append(tenant.get())
        tenant.set(n)

    for n in range(30):
        task.send(n)
    with app.worker(threads=threads):
        queue_of(app).join(60)
    assert found == [None] * 30


def test_a_stopped_consumer_returns_a_batch_leased_too_late(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process does that was frozen while it waited for the answer."""
    times = iter([0.0, 1000.0])
    late = threading.Event()

    def monotonic() -> float:
        found = next(times, None)
        if found is None:
            late.set()
            return time.monotonic()
        return found

    seen: list[int] = []
    with interlock.connect(engine) as client:
        queue = client.queue("late", type=int, lease=5)
        queue.put(1)
        monkeypatch.setattr(consumer, "time", SimpleNamespace(monotonic=monotonic))
        with queue.consume(seen.append) as handling:
            queue.join(60)
            assert handling.stop(60)
        stats = queue.stats()
    assert late.is_set() and seen == [1]
    assert (stats.leases, stats.acks) == (2, 1)
