"""``Worker``: runs the handlers for the messages of an app's queues, until it is stopped."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from interlock import _core
from interlock.client.requests.result_wait import Taker
from interlock.errors import InterlockError, WorkerBroken
from interlock.failure import text_of
from interlock.message import Kind
from interlock.retry import Seconds, seconds
from interlock.worker.loop.owner import Owner
from interlock.worker.loop.state import Phase
from interlock.worker.message.execution import Execution, details
from interlock.worker.message.meter import Meter, Reading
from interlock.worker.message.source import Source
from interlock.worker.message.tasks import Tasks
from interlock.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from interlock.worker.reports.audit import Audit

__all__ = ["Figures", "Worker"]

_log = logging.getLogger("interlock.worker")

FIRST_WARNING = 10.0
"""Seconds after which a stop without a timeout names the handlers that still run."""
MOST_NAMED = 10
LONGEST_FLUSH = 10.0
"""Seconds for which settlements are attempted at shutdown."""
SHORTEST_FLUSH = 1.0
"""The same after a deadline."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts of a worker since it was made."""

    handed: int
    """Messages that were leased, without those returned before a handler began."""
    handled: int
    """Handlers that returned."""
    failed: int
    """Attempts that failed: the handler raised, was stopped or died. Most of them are retried."""
    lost: int
    """Settlements that came too late: the lease had expired or was revoked."""
    running: int
    """Messages that are held now."""
    violations: int
    """Findings of the auditor; 0 if it is off."""


class Beside(Protocol):
    """A component that runs for as long as a worker does."""

    def start(self) -> None:
        """Start the component."""

    def stop(self) -> None:
        """Begin nothing further."""

    def join(self, timeout: float) -> None:
        """Wait up to ``timeout`` until the work that has begun is done; after ``stop``."""


class BesideRelay(Beside, Protocol):
    """The relay of an outbox."""

    @property
    def activity(self) -> str:
        """Words for its position and the reason why it waits; empty unless it relays."""

    @property
    def hangs(self) -> bool:
        """It is active, and does nothing."""


class Worker:
    """Handles the messages of an app's queues; made by ``App.worker``.

    As a context manager it starts on entry; on exit it finishes the handlers that have begun.
    """

    def __init__(
        self,
        tasks: Tasks,
        open_queue: Callable[..., Any],
        settings: WorkerSettings,
        url: str,
        beside: Sequence[Beside] = (),
        relay: BesideRelay | None = None,
    ) -> None:
        self.settings = settings
        self._relay = relay
        self._beside = beside
        self._audit: Audit | None = None
        self._open_queue = open_queue
        self._url = url
        self.url = re.sub(r"(//[^/@]*?):[^/]*@", r"\1:***@", url)
        """The engine's URL, without a password."""
        self._owner = Owner(settings, tasks, self._broke)
        self._meter: Meter | None = None
        self._taker: Taker | None = None
        self.broken: BaseException | None = None
        """The reason why it no longer handles messages; None: it does."""
        self._starts = False
        self._start_error: BaseException | None = None
        self._began = threading.Event()
        """``start`` is done, or has raised."""
        self._stops = False
        self.on_broken: Callable[[], object] = lambda: None
        """Called once it has."""
        self.on_drain: Callable[[], object] = self.quiesce
        """Called when a request from anywhere asks the worker to take no further messages and to
        end."""

    def start(self) -> Self:
        """Begin to take messages; return when the program's startup code is done.

        Raises:
            RuntimeError: it was started before, or the system cannot start a thread.
            Exception: what ``on_worker_start``, ``on_process_start`` or the lifespan raises; then
                it takes no messages.
        """
        if self._starts:
            raise RuntimeError("start(): the worker was started before; create another")
        child: Any = sys.modules.get("interlock.worker.pools.process_child")
        if child is not None and child.importing:
            raise RuntimeError(
                "start(): the program starts a worker whenever it is imported, and this process of "
                "a pool only imports it; put the start under if __name__ == '__main__':"
            )
        self._starts = True
        try:
            self._start()
        except BaseException as error:
            self._start_error = error
            raise
        finally:
            self._began.set()
            if self._stops or self.broken is not None:
                self._let_go()
        return self

    def _start(self) -> None:
        if self.settings.audit:
            from interlock.worker.reports.audit import Audit

            self._owner.state.audit = self._audit = Audit(f"{socket.gethostname()}:{os.getpid()}")
        if self.settings.record is not None:
            from interlock.worker.reports.recorder import Recorder

            name = f"{socket.gethostname()}:{os.getpid()}"
            self._owner.state.audit = Recorder(self.settings.record, self._audit, name)
        kinds: tuple[Kind, ...] = ("any", "unkeyed") if self.settings.unkeyed else ("any",)
        sources = [self._source(name, kind) for name in self.settings.queues for kind in kinds]
        for source in sources:
            source.meter = self._meter
        engine = sources[0].queue._handle.engine
        self._taker = Taker(engine, self.settings.queues, self.settings.concurrency)
        try:
            self._owner.start(sources)
        except BaseException as error:
            self._taker.close()
            self.broken = error
            raise
        for each in self._beside:
            each.start()

    def measure(self) -> Self:
        """Start counting what ``reading`` returns; calling it once is enough."""
        if self._meter is None:
            self._meter = Meter(self.settings.queues)
            for source in self._owner.state.sources:
                source.meter = self._meter
        return self

    def reading(self) -> Reading:
        """Return the figures by queue and task since ``measure``; does not ask the owner."""
        told = Reading([], [], []) if self._meter is None else self._meter.read()
        told.counters.extend(self._counters())
        told.gauges.extend(self._gauges())
        return told

    @property
    def relay(self) -> str:
        """Words for its relay of an outbox; empty unless that is the active one of all workers."""
        return "" if self._relay is None else self._relay.activity

    def answers(self, timeout: float) -> bool:
        """Return whether it responds within ``timeout``, rather than hangs."""
        relay = self._relay
        return self._owner.answers(timeout) and (relay is None or not relay.hangs)

    def _source(self, name: str, kind: Kind) -> Source:
        # A separate handle each, because each may wait in a call.
        length = self.settings.lease
        queue = self._open_queue(name, lease=length)
        audit = self._audit
        if audit is not None and kind == "any":
            from interlock.worker.reports.audit_journal import AuditJournal

            audit.follow(name, queue, AuditJournal.of(self._url, name))
        runs = self._owner.state.tasks.takes_runs(name)
        return Source(name, queue, kind, length, self._owner, runs)

    def wait_until_ready(self, timeout: Seconds | None = None) -> bool:
        """Wait until the engine has answered for each queue and, with a pool of processes, one of
        them is ready. False: that took longer than ``timeout``, or the worker was stopped.

        Raises:
            WorkerBroken: it no longer handles messages, or its start has failed.
            RuntimeError: it was not started.
        """
        left = None if timeout is None else seconds(timeout, "wait_until_ready(): timeout")
        until = None if left is None else time.monotonic() + left
        if not self._starts:
            raise RuntimeError("wait_until_ready(): the worker was not started; call start()")
        ready = self._until(self._began, until) and all(
            self._until(source.connected, until) for source in self._owner.state.sources
        )
        self._check_broken()
        return ready and not self._stops

    @staticmethod
    def _until(event: threading.Event, until: float | None) -> bool:
        return event.wait(None if until is None else max(0.0, until - time.monotonic()))

    def _check_broken(self) -> None:
        error = self.broken or self._start_error
        if error is not None:
            told = str(error) if isinstance(error, InterlockError) else text_of(error)
            raise WorkerBroken(f"the worker is broken: {told}") from error

    @property
    def waits_for(self) -> str:
        """Return what is missing for readiness: the engine, or the processes of its pool."""
        return self.url if self._owner.state.pool.is_up else "the processes of its pool"

    def stop(self, timeout: Seconds | None = None) -> bool:
        """Take no further messages, let running handlers finish, return messages that have not
        begun.

        After ``timeout`` seconds, by default never, it also returns the messages whose handlers
        still run: they are redelivered at the same attempt. Their threads cannot be ended and keep
        running. An unreachable engine is waited for until then, or for one second more; by default
        for 10 seconds. Without a timeout, a warning names the handlers that still run after 10 s,
        then after 20, 40 and so on: one that waits for a message that only this worker handles
        never ends.

        Returns:
            True if every held message was settled by its handler.
        """
        left = None if timeout is None else seconds(timeout, "stop(): timeout")
        began = time.monotonic()
        self.quiesce()
        if left is None:
            pause = FIRST_WARNING
            while not self.wait(pause):
                self._warn_of_running(time.monotonic() - began)
                pause = time.monotonic() - began
            return self.hand_back()
        whole = self.wait(left)
        left -= time.monotonic() - began
        return self._hand_back(min(max(left, SHORTEST_FLUSH), LONGEST_FLUSH)) and whole

    def _warn_of_running(self, waited: float) -> None:
        now = time.monotonic()
        running = [
            f"{one.held.task} (message {one.held.id} in queue {one.held.queue!r}, "
            f"for {now - one.started:.3g} s)"
            for one in list(self._owner.state.executions.values())
            if one.started is not None
        ]
        more = f" and {len(running) - MOST_NAMED} more" if len(running) > MOST_NAMED else ""
        _log.warning(
            "stop() has waited %.3g s for running handlers: %s%s",
            waited, ", ".join(running[:MOST_NAMED]) or "(none)", more,
        )  # fmt: skip

    def quiesce(self) -> None:
        """Take no further messages; running handlers continue."""
        self._stops = True
        self._let_go()
        for each in self._beside:
            each.stop()
        self._owner.stop()

    def hand_back(self) -> bool:
        """End: messages whose handlers still run are returned, and pending settlements are sent.
        True: no handler was running, and the engine received every settlement."""
        return self._hand_back(LONGEST_FLUSH)

    def _hand_back(self, patience: float) -> bool:
        for each in self._beside:
            each.stop()
            each.join(patience)
        if self._owner.state.phase is Phase.NEW:
            self._owner.state.pool.close()
            return True
        self._owner.end(patience)
        self._owner.ended.wait()
        if self._taker is not None:
            self._taker.close()
        return self._owner.whole

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` until no message is held; after ``quiesce``."""
        return self._owner.state.phase is Phase.NEW or self._owner.idle.wait(timeout)

    def holding(self) -> list[Execution]:
        """Return the messages that are held now. Not answered while the owner hangs."""
        return self._owner.ask()

    def stacks(self) -> list[dict[str, Any]]:
        """Return the stacks of the handlers that run now, one entry each, the longest first."""
        now = time.monotonic()
        found = []
        for one in list(self._owner.state.executions.values()):
            if one.started is None:
                continue
            entry = details(one.held)
            entry["seconds"] = round(now - one.started, 3)
            entry["lost"] = one.over or one.held.lost
            entry["stack"] = self._owner.state.pool.stack(one)
            found.append(entry)
        return sorted(found, key=lambda entry: -float(entry["seconds"]))

    def figures(self) -> Figures:
        """Return the counts so far."""
        state = self._owner.state
        tallies = [one for each in state.sources for one in (each.tally, each.batch_tally)]
        run = None if state.runner is None else state.runner.run
        return Figures(
            handed=sum(tally.leased for tally in tallies),
            handled=sum(tally.handled for tally in tallies),
            failed=sum(tally.failed for tally in tallies),
            lost=sum(tally.lost for tally in tallies),
            running=len(state.executions) + (0 if run is None else len(run.waiting)),
            violations=state.audit.violations if state.audit else 0,
        )

    def _counters(self) -> list[list[Any]]:
        state = self._owner.state
        renewers = {id(one): one for one in (each.renewer for each in state.sources)}
        return [
            ["violations", [], state.audit.violations if state.audit else 0],
            ["renewal_failures", [], sum(one.failures for one in renewers.values())],
        ]

    def _gauges(self) -> list[list[Any]]:
        state = self._owner.state
        running = dict.fromkeys(self.settings.queues, 0)
        for one in list(state.executions.values()):
            if one.started is not None and one.ended is None:
                running[one.source.name] += 1
        if state.runner is not None and state.runner.run is not None:
            running[state.sources[0].name] += 1
        there = {source.name for source in state.sources if source.is_connected}
        found: list[list[Any]] = [["running", [name], count] for name, count in running.items()]
        found += [["connected", [name], int(name in there)] for name in self.settings.queues]
        return [
            *found,
            ["concurrency", [], self.settings.concurrency],
            ["processes", [], 1],
            ["info", [_core.__version__, self.settings.pool], 1],
            ["relays", [], int(bool(self.relay))],
        ]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        """Stop it. Raises WorkerBroken if it is broken and the block raises nothing."""
        self.stop()
        if kind is None:
            self._check_broken()

    def __repr__(self) -> str:
        names = ", ".join(self.settings.queues)
        return f"<{type(self).__name__} of {names}, {self.settings.concurrency} handlers>"

    def _broke(self, error: BaseException) -> None:
        if self.broken is None:
            self.broken = error
            self._let_go()
            self.on_broken()

    def _let_go(self) -> None:
        """End all waits for what will not happen."""
        for source in self._owner.state.sources:
            source.connected.set()
