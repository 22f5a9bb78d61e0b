"""``Worker``: leases for handlers that are idle, has them run, settles, and ends in order."""

from __future__ import annotations

import functools
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from interlock.errors import PayloadError
from interlock.message import Kind
from interlock.retry import Retry, Seconds, seconds
from interlock.worker.feeder import Feeder
from interlock.worker.handle import RELEASED, Outcome, failure, judge
from interlock.worker.journal import Journal
from interlock.worker.keeper import Aside, Keeper
from interlock.worker.pace import Pace
from interlock.worker.running import Pool, Running
from interlock.worker.slots import Slots
from interlock.worker.threads import SinglePool, ThreadPool
from interlock.worker.work import NotHere, TaskLease, Tasks, details

if TYPE_CHECKING:
    from interlock.worker.audit import Audit

__all__ = ["Figures", "Settings", "Worker"]

_log = logging.getLogger("interlock.worker")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a worker. Raises TypeError and ValueError where they are not allowed."""

    queues: tuple[str, ...] = ("default",)
    concurrency: int = 16
    pool: str = "thread"
    audit: bool = False
    unkeyed: int = 0
    """Handlers that take only messages without keys."""
    lease: float = 30.0
    """Seconds after which the leases of a worker that was killed run out."""
    reference: str = ""
    """The place where the processes of a pool find the app, as ``module:name``."""

    def __post_init__(self) -> None:
        if not self.queues or not all(isinstance(name, str) and name for name in self.queues):
            raise ValueError(f"worker(): queues is {self.queues!r}; allowed: one or more names")
        if len(set(self.queues)) < len(self.queues):
            raise ValueError(f"worker(): queues names one twice: {', '.join(self.queues)}")
        if not isinstance(self.concurrency, int) or isinstance(self.concurrency, bool):
            kind = type(self.concurrency).__name__
            raise TypeError(f"worker(): threads is {kind}; allowed: int")
        if not 1 <= self.concurrency <= MOST_HANDLERS:
            raise ValueError(
                f"worker(): threads is {self.concurrency}; allowed: 1 to {MOST_HANDLERS}"
            )
        if not isinstance(self.unkeyed, int) or isinstance(self.unkeyed, bool):
            raise TypeError(f"worker(): unkeyed is {type(self.unkeyed).__name__}; allowed: int")
        if not 0 <= self.unkeyed < self.concurrency:
            raise ValueError(
                f"worker(): unkeyed is {self.unkeyed} of {self.concurrency} handlers; allowed: 0 "
                f"to {self.concurrency - 1}, for messages with keys need one too"
            )
        if self.pool not in POOLS:
            raise ValueError(f"worker(): pool is {self.pool!r}; allowed: {', '.join(POOLS)}")


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts of what a worker has done since it was made."""

    handed: int
    """Messages that were leased."""
    handled: int
    """Handlers that returned."""
    failed: int
    """Handlers that raised."""
    lost: int
    """Settlements that came too late: the lease had run out or was revoked."""
    running: int
    """Messages that are held now."""
    violations: int
    """Findings of the auditor; 0 where it is off."""


class Worker:
    """Handles the messages of an app's queues; made by ``App.worker``.

    As a context manager it runs from its beginning to its end, where it finishes what it has begun.
    """

    def __init__(
        self, tasks: Tasks, open_queue: Callable[..., Any], settings: Settings, url: str
    ) -> None:
        self.settings = settings
        self._tasks = tasks
        self._open_queue = open_queue
        self._url = url
        self.url = re.sub(r"(//[^/@]*?):[^/]*@", r"\1:***@", url)
        """The engine, without a password."""
        self._slots = Slots(settings.concurrency - settings.unkeyed, len(settings.queues))
        self._reserved = Slots(settings.unkeyed, len(settings.queues), self._slots.lock)
        """Places for messages without keys alone."""
        self._running: dict[int, Running] = {}
        self._empty = threading.Condition(self._slots.lock)
        self._pool = _pool(settings)
        self._slots.free = self._reserved.free = self._there = 0
        self._moved(self._pool.places)
        self._pace = Pace(settings.concurrency, self._paced)
        alone = len(settings.queues) == 1 and not settings.unkeyed
        self._lends = alone and isinstance(self._pool, ThreadPool)
        """The thread that leases may run handlers, and lease ahead, while they are quick."""
        self._keeper = Keeper(
            self.holding, self._give_back, self._revoke, self._put_back, self._pool.tell_lost,
            self._relieve, self._pace,
        )  # fmt: skip
        self._feeders: list[Feeder] = []
        self._audit: Audit | None = None
        self._handled = self._failed = 0
        self._stopped = False
        self.broken: BaseException | None = None
        """The reason why it ended by itself; None: it has not."""
        self.on_broken: Callable[[], object] = lambda: None
        """Called once it has."""

    def start(self) -> Self:
        """Begins to take messages; returns at once."""
        if self._feeders:
            raise RuntimeError("start(): the worker was started before; make another")
        if self.settings.audit:
            from interlock.worker.audit import Audit

            self._audit = Audit(f"{socket.gethostname()}:{os.getpid()}")
        self._pool.emptied, self._pool.moved = self._emptied, self._moved
        self._pool.broke = self._pool_broke
        self._pool.start(self._done)
        self._keeper.start()
        for name in self.settings.queues:
            self._feed(name, self._slots, "any")
            if self.settings.unkeyed:
                self._feed(name, self._reserved, "unkeyed")
        for feeder in self._feeders:
            feeder.start()
        return self

    def _feed(self, name: str, slots: Slots, kind: Kind) -> None:
        # A handle of its own, for each may wait in a call.
        length = self.settings.lease
        queue = self._open_queue(name, lease=length)
        feeder = Feeder(name, queue, slots, self._dispatch, self._broke, length, kind)
        feeder.full = self._keeper.full
        feeder.work, feeder.leave = self._pool.work, self._pool.leave
        if self._lends:
            feeder.pace = self._pace
        if self._audit is not None and kind == "any":
            self._audit.follow(name, queue, Journal.of(self._url, name))
        self._feeders.append(feeder)

    def wait_until_ready(self, timeout: Seconds | None = None) -> bool:
        """Waits until the engine has answered for each queue, and the pool, where that is of
        processes, has one that is ready. False: not within ``timeout``, or it is broken."""
        left = None if timeout is None else seconds(timeout, "wait_until_ready(): timeout")
        until = None if left is None else time.monotonic() + left
        ready = all(
            feeder.connected.wait(None if until is None else max(0.0, until - time.monotonic()))
            for feeder in self._feeders
        )
        return ready and self.broken is None

    @property
    def waits_for(self) -> str:
        """The engine or the processes of its pool, without which it is not ready."""
        return self.url if self._pool.is_up else "the processes of its pool"

    def stop(self, timeout: Seconds | None = None) -> bool:
        """Takes no more, lets handlers that run finish, hands back what has not begun.

        After ``timeout`` seconds, by default never, it hands back what still runs as well: those
        messages come again, their attempt one higher. Their threads cannot be ended and go on.

        Returns:
            True if everything it held was settled as its handlers said.
        """
        self.quiesce()
        whole = self._wait(None if timeout is None else seconds(timeout, "stop(): timeout"))
        return self.hand_back() and whole

    def quiesce(self) -> None:
        """Takes no more; what has begun goes on."""
        with self._slots.lock:
            self._stopped = True
            running = list(self._running.values())
        for feeder in self._feeders:
            feeder.stop()
        for each in running:
            if each.started is None:
                self._give_back(each)
        for aside in self._keeper.all_aside():
            self._put_back(aside)

    def hand_back(self) -> bool:
        """Ends: what still runs goes back as failed, and what was to be settled is. True: nothing
        ran any more, and the engine was told all of it."""
        left = [running for running in self.holding() if self._take(running)]
        for running in left:
            error = "the worker was stopped while its handler ran"
            _log.error(
                "message %d in queue %r goes back: %s", running.held.id, running.held.queue,
                error, extra=details(running.held),
            )  # fmt: skip
            outcome = failure(running.invocation.retry, running.held, error, 0.0)
            running.feeder.settle(running.lease, running.held, outcome)
            running.feeder.relieve(running.at)
        self._keeper.stop()
        unsaid = [feeder for feeder in self._feeders if not feeder.flush(LONGEST_FLUSH)]
        self._pool.close()
        if self._audit is not None:
            self._audit.close()
        return not (unsaid or left)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until nothing is held any more, for so many seconds; after ``quiesce``."""
        return self._wait(timeout)

    def holding(self) -> list[Running]:
        """The messages that are held now."""
        with self._slots.lock:
            return list(self._running.values())

    def stacks(self) -> list[dict[str, Any]]:
        """The stacks of the handlers that run now, one entry each, the longest first."""
        now = time.monotonic()
        found = []
        for running in self.holding():
            if running.started is None:
                continue
            entry = details(running.held)
            entry["seconds"] = round(now - running.started, 3)
            entry["lost"] = running.over or running.held.lost
            entry["stack"] = self._pool.stack(running)
            found.append(entry)
        return sorted(found, key=lambda entry: -float(entry["seconds"]))

    def figures(self) -> Figures:
        """The counts of what was done so far."""
        return Figures(
            handed=sum(feeder.handed for feeder in self._feeders),
            handled=self._handled,
            failed=self._failed,
            lost=sum(feeder.lost for feeder in self._feeders),
            running=len(self._running),
            violations=self._audit.violations if self._audit else 0,
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        names = ", ".join(self.settings.queues)
        return f"<{type(self).__name__} of {names}, {self.settings.concurrency} handlers>"

    # -- From lease to settlement -----------------------------------------------------------------

    def _dispatch(self, feeder: Feeder, leases: Sequence[Any], refuse: bool) -> int:
        """Gives leased messages to the pool. Answers how many take no place in it."""
        batch = []
        now = time.monotonic()
        for lease in leases:
            if self._stopped or refuse:
                self._refused(feeder, lease)
                continue
            running = self._prepared(feeder, lease, now)
            if running is not None:
                batch.append(running)
        with self._slots.lock:
            # Under the lock: nothing is added any more once the worker was told to stop.
            late, batch = (batch, []) if self._stopped else ([], batch)
            for running in batch:
                self._running[id(running)] = running
        for running in late:
            if self._audit is not None:
                self._audit.withdrawn(running.held)
            feeder.settle(running.lease, running.held, RELEASED)
        if self._pace.quick and any(running.invocation.is_async for running in batch):
            # Those are for the loop that a thread of the pool keeps.
            with self._slots.lock:
                self._pace.slow()
        if batch:
            self._keeper.wake()
            self._pool.offer(batch)
        return len(leases) - len(batch)

    def _refused(self, feeder: Feeder, lease: Any) -> None:
        """Leased while the worker was told to stop, or was frozen: nobody begins it."""
        feeder.settle(lease, self._held(feeder, lease), RELEASED)

    def _held(self, feeder: Feeder, lease: Any) -> TaskLease:
        return TaskLease(
            feeder.name, lease.id, lease.sequence, lease.attempt, lease.token, lease.keys,
            lease.shared, lease.payload,
        )  # fmt: skip

    def _prepared(self, feeder: Feeder, lease: Any, now: float) -> Running | None:
        held = self._held(feeder, lease)
        try:
            invocation = self._tasks.prepare(held)
        except NotHere as unknown:
            nap = self._keeper.set_aside(lease, held, feeder)
            _log.warning(
                "message %d in queue %r %s; it goes back in %g s, its attempt unchanged",
                held.id, held.queue, unknown, nap, extra=details(held),
            )  # fmt: skip
            if self._stopped:
                # Nobody puts back any more what was set aside since.
                for aside in self._keeper.all_aside():
                    self._put_back(aside)
            return None
        except PayloadError as error:
            feeder.settle(lease, held, judge(Retry(), held, error))
            return None
        running = Running(lease, held, invocation, feeder, now)
        # Not by `running`: a circle of objects for each message is dear to collect.
        held._is_lost = functools.partial(getattr, lease, "lost")
        if self._audit is not None:
            self._audit.begun(held)
        return running

    def _done(self, running: Running, outcome: Outcome) -> None:
        """A handler has ended: called by the pool, on the thread of the handler."""
        try:
            if self._audit is not None:
                self._audit.ended(running.held)
        except Exception:
            # Its file's disk may be full; the message is settled all the same.
            _log.exception("the auditor failed; it goes on")
        try:
            if self._take(running):
                # Else with those that have not begun yet: `_emptied` sees to it. Who leases itself
                # takes it along.
                ring = running.at != running.feeder.taker and self._pool.is_empty
                if outcome.how == "ack" and running.lease.is_logged:
                    began = running.started or running.offered
                    running.lease.log_handled(time.monotonic() - began, running.held.task)
                running.feeder.settle(running.lease, running.held, outcome, ring)
            else:
                _log.warning(
                    "the handler of message %d in queue %r ended after its lease was revoked",
                    running.held.id, running.held.queue, extra=details(running.held),
                )  # fmt: skip
        finally:
            self._free(running, outcome)

    def _take(self, running: Running) -> bool:
        """Whoever settles a message takes it first: it is settled once."""
        with self._slots.lock:
            return running.settles()

    def _free(self, running: Running, outcome: Outcome = RELEASED) -> None:
        with self._slots.lock:
            if outcome.how == "ack":
                self._handled += 1
            elif outcome.how != "release":
                self._failed += 1
            if self._running.pop(id(running), None) is None:
                return
            running.feeder.slots.give(1)
            if self._lends and running.started is not None:
                if running.invocation.is_async:
                    self._pace.slow()
                else:
                    self._pace.ended(time.monotonic() - running.started)
            if running.at != running.feeder.taker and self._pool.is_empty:
                running.feeder.ring()
            if self._stopped and not self._running:
                self._empty.notify_all()

    def _paced(self, quick: bool) -> None:
        # With the lock held.
        self._slots.widen(self._pace.ahead if quick else 0)
        assert isinstance(self._pool, ThreadPool)
        self._pool.lend(quick)

    def _relieve(self, running: Running) -> None:
        """It keeps the thread that leases: another does now, and the pool handles the rest."""
        if running.feeder.relieve(running.at):
            with self._slots.lock:
                self._pace.slow(held_up=True)

    def _emptied(self) -> None:
        for feeder in self._feeders:
            feeder.ring_to_settle()

    def _give_back(self, running: Running) -> None:
        """No handler has begun it: the same place, the same attempt."""
        if not self._pool.withdraw(running):
            return
        if self._take(running):
            if self._audit is not None:
                self._audit.withdrawn(running.held)
            running.feeder.settle(running.lease, running.held, RELEASED)
        self._free(running)

    def _revoke(self, running: Running, limit: float) -> None:
        """Its time is up: the lease ends, by its own token, and the handler is on its own."""
        if not self._take(running):
            return
        stack = self._pool.stack(running)
        _log.error(
            "message %d was handled for more than %.3g s; its lease is revoked. "
            "The handler stands at\n%s",
            running.held.id, limit, stack, extra=details(running.held),
        )  # fmt: skip
        if self._audit is not None:
            self._audit.ended(running.held)
        error = f"handled for more than {limit:.3g} s"
        outcome = failure(running.invocation.retry, running.held, error)
        running.feeder.settle(running.lease, running.held, outcome)
        self._pool.stop(running)

    def _put_back(self, aside: Aside) -> None:
        aside.feeder.settle(aside.lease, aside.held, RELEASED)
        aside.feeder.ring()

    def _wait(self, timeout: float | None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        with self._slots.lock:
            while self._running:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._empty.wait(left)
        return True

    def _moved(self, count: int) -> None:
        """So many places have come, or are gone: those for the unkeyed come first and go last."""
        with self._slots.lock:
            before = min(self._there, self._reserved.size)
            self._there += count
            reserved = min(self._there, self._reserved.size) - before
            self._reserved.give(reserved)
            self._slots.give(count - reserved)

    def _pool_broke(self, error: BaseException) -> None:
        _log.error("no message can be handled any more: %s", error)
        self._broke(error)

    def _broke(self, error: BaseException) -> None:
        if self.broken is None:
            self.broken = error
            for feeder in self._feeders:
                # Nobody waits any longer for what will not be.
                feeder.connected.set()
            self.on_broken()


def _pool(settings: Settings) -> Pool:
    if settings.pool == "asyncio":
        from interlock.worker.loop import LoopPool

        return LoopPool(settings.concurrency)
    if settings.pool == "process":
        from interlock.worker.processes import ProcessPool

        return ProcessPool(settings.concurrency, settings.reference)
    return SinglePool() if settings.concurrency == 1 else ThreadPool(settings.concurrency)


POOLS = ("thread", "asyncio", "process")
MOST_HANDLERS = 10_000
LONGEST_FLUSH = 10.0
