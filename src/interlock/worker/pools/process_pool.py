"""A pool of processes: each imports the app and handles one message at a time. While handlers are
brief, a process is sent a few at once.

A process talks over a socket pair: it receives messages and questions, and sends outcomes, log
records and stacks. Plain calls it receives as the engine sent them. It is started anew, not forked,
so it has no thread or lock of this process.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import logging
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any

from interlock.client.faces import handler_time
from interlock.client.requests.result_wait import ResultWait
from interlock.errors import InterlockError, WouldDeadlock
from interlock.failure import text_of
from interlock.worker.message.execution import (
    ACKED,
    RELEASED,
    Execution,
    Outcome,
    TaskLease,
    details,
    stopped,
)
from interlock.worker.message.plain_execution import PlainExecution
from interlock.worker.message.scope import LONGEST_LEAVE, Scope, ScopeThread
from interlock.worker.message.tasks import Tasks
from interlock.worker.pools.pool import DONE, PoolEvents
from interlock.worker.pools.progress import SLOTS, Progress

__all__ = ["ProcessPool"]

_log = logging.getLogger("interlock.worker")


class ProcessPool:
    """Handlers in a number of processes."""

    def __init__(self, size: int, reference: str, events: PoolEvents, tasks: Tasks) -> None:
        self._size = size
        self._reference = reference
        self._tasks = tasks
        self.setup = b""
        """Configuration of each process; see ``Tasks.process_setup``."""
        self._begun = False
        self.lock = threading.Lock()
        self._waiting: collections.deque[Execution] = collections.deque()
        self._children: list[_Child] = []
        self.closing = threading.Event()
        """No further process is started."""
        self._failures = 0
        """Failed starts in a row."""
        self._events = events
        self._scope: ScopeThread | None = None

    @property
    def places(self) -> int:
        """See ``Pool``: 0 until a process is ready."""
        return 0

    def start(self, scope: Scope | None = None) -> None:
        """See ``Pool``. Each process enters its own scope; this one is the worker's."""
        self.setup = self._tasks.process_setup(self._reference)
        self._begun = True
        if scope is not None:
            self._scope = ScopeThread(scope)
        self._children = [_Child(self, n) for n in range(self._size)]

    def offer(self, batch: Sequence[Execution]) -> None:
        """See ``Pool``."""
        with self.lock:
            self._waiting.extend(batch)
            self._give_all()

    @property
    def is_up(self) -> bool:
        """See ``Pool``."""
        return any(child.ready for child in self._children)

    def withdraw(self, execution: Execution) -> bool:
        """See ``Pool``."""
        with self.lock:
            if execution in self._waiting:
                self._waiting.remove(execution)
                return execution.claim()
            for child in self._children:
                if execution in child.sent and execution is not child.busy:
                    self._waiting.extendleft(reversed(child.rest()))
            found = execution in self._waiting
            if found:
                self._waiting.remove(execution)
            self._give_all()
        return found and execution.claim()

    @property
    def only_compute(self) -> bool:
        """See ``Pool``: it has no threads to choose from."""
        return False

    def look(self) -> None:
        """See ``Pool``: take messages back from behind a slow one if another process is idle."""
        for child in self._children:
            self.advance(child)
        with self.lock:
            if not any(child.ready and not child.sent for child in self._children):
                return
            for child in self._children:
                if len(child.sent) > 1 and child.is_slow:
                    self._waiting.extendleft(reversed(child.rest()))
            self._give_all()

    def stack(self, execution: Execution) -> str:
        """See ``Pool``."""
        found: str = execution.at.stack(execution) if isinstance(execution.at, _Child) else ""
        return found or "(its process does not answer)\n"

    def stop(self, execution: Execution) -> None:
        """Kill the process that handles the message; another takes its place."""
        if isinstance(execution.at, _Child):
            execution.at.kill(execution)

    def tell_lost(self, execution: Execution) -> None:
        """See ``Pool``."""
        if isinstance(execution.at, _Child):
            execution.at.tell_lost(execution)

    def close(self) -> None:
        """See ``Pool``."""
        self.closing.set()
        if self._begun:
            self._begun = False
            self._tasks.processes_end()
        for child in self._children:
            child.close()
        if self._scope is not None:
            self._scope.close(LONGEST_LEAVE)

    def _give(self, child: _Child) -> None:
        """Give a process that is ready its share of the waiting messages; the caller holds the
        lock."""
        if self.closing.is_set() or self._events.stops:
            return
        have = len(child.sent)
        # Each gets as many as the others. One that has few left gets more before it waits for them.
        whole = len(self._waiting) + sum(len(one.sent) for one in self._children)
        share = min(-(-whole // self._size) - have, child.room)
        if have and share < FEWEST_MORE:
            return
        some: list[Execution] = []
        left = MOST_BYTES
        while self._waiting and len(some) < share:
            execution = self._waiting[0]
            if have:
                left -= execution.size
                if left < 0:
                    break
            self._waiting.popleft()
            if execution.expired:
                self.ended(execution, RELEASED)
            else:
                some.append(execution)
        if some:
            child.handle(some)

    def _give_all(self) -> None:
        """Give the waiting messages to processes that are idle, then to those that have few left;
        the caller holds the lock."""
        for child in self._children:
            if child.ready and not child.sent:
                self._give(child)
        for child in self._children:
            if child.ready and child.sent and child.room:
                self._give(child)

    def idle(self, child: _Child) -> None:
        """Note that a new process can take messages."""
        with self.lock:
            child.ready = True
            self._failures = 0
            self._give(child)
        self.moved(1)

    def advance(self, child: _Child) -> None:
        """Pass on the messages whose handlers have returned in a process, according to its shared
        memory."""
        ended: list[tuple[Execution, Outcome]] = []
        with self.lock:
            while child.sent:
                execution = child.sent[0]
                began, over = child.progress.times(execution.number)
                if began:
                    execution.started = began
                if not over:
                    child.look_at_run(execution)
                    break
                child.sent.popleft()
                execution.end(over)
                ended.append((execution, ACKED))
            if ended:
                self._go_on(child)
        if ended:
            self._events.handlers_ended(ended)

    def next(self, child: _Child) -> Execution:
        """Return the message that a process has finished; it continues with the next."""
        with self.lock:
            execution = child.sent.popleft()
            execution.end()
            self._go_on(child)
        return execution

    def _go_on(self, child: _Child) -> None:
        """Note that a process begins its next message; the caller holds the lock."""
        if child.sent and child.sent[0].at is not child:
            child.sent[0].begin(child)
        if child.ready and child.room:
            self._give(child)

    def returned(self, child: _Child, numbers: Iterable[int]) -> None:
        """Note that a process has taken these messages and does not begin them."""
        with self.lock:
            self._waiting.extendleft(reversed(child.without(numbers)))
            if child.sent and child.sent[0].at is not child:
                child.sent[0].begin(child)
            self._give_all()

    def ended(self, execution: Execution, outcome: Outcome) -> None:
        """Pass on the outcome of a message."""
        self._events.handlers_ended(((execution, outcome),))

    def moved(self, count: int) -> None:
        """Note that processes were added, or removed."""
        self._events.places_moved(count)

    def failed(self, why: str) -> None:
        """Note that a process ended before it was ready. If all do, the pool can handle nothing,
        and the worker would lease and return messages forever."""
        _log.error("a process of the pool ended before it was ready: %s", why)
        with self.lock:
            self._failures += 1
            up = any(child.ready for child in self._children)
            if up or self._failures != max(self._size, FEWEST_FAILURES):
                return
        error = f"the processes of the pool do not start, {self._failures} in a row: {why}"
        self._events.pool_broke(ProcessesFailed(error))

    def refused(self, why: str) -> None:
        """Note that a process lacks what the program added to the app. Every new process would, so
        none is started. A pool that is up continues: the module has changed since."""
        with self.lock:
            if self.closing.is_set() or any(child.ready for child in self._children):
                return
            self.closing.set()
        self._events.pool_broke(ProcessesFailed(why))


class _Child:
    """One place of the pool: a process, and its replacement when it dies."""

    def __init__(self, pool: ProcessPool, number: int) -> None:
        self._pool = pool
        self.ready = False
        self.sent: collections.deque[Execution] = collections.deque()
        """The messages that the process has, in the order in which it handles them."""
        self.progress: Progress
        """Their times, by their numbers."""
        self._numbered = 0
        """The number of the next message that it is sent."""
        self._failures = 0
        self._why = ""
        """The reason that the process gave for not starting."""
        self._killed_for: Execution | None = None
        self._told_lost: Execution | None = None
        self._waits: dict[int, ResultWait] = {}
        """The waits of its handler for results, by their numbers in the process."""
        self._stack: collections.deque[str] = collections.deque()
        self._stack_bell = threading.Semaphore(0)
        self._sending = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"interlock-process-{number}", daemon=True
        )
        self._thread.start()

    @property
    def busy(self) -> Execution | None:
        """Return the message that is being handled."""
        return self.sent[0] if self.sent else None

    @property
    def room(self) -> int:
        """Return the number of messages that it may be sent: 0 unless it has few left, and none
        of them is slow."""
        sent = self.sent
        if not sent:
            return MOST_SENT
        if len(sent) > FEW_LEFT or self.is_slow:
            return 0
        return min(MOST_SENT, SLOTS - (self._numbered - sent[0].number))

    @property
    def is_slow(self) -> bool:
        """Return whether the message that it handles holds up those behind it."""
        started = self.sent[0].started
        return started is not None and started < time.monotonic() - handler_time.LATE

    def handle(self, some: Sequence[Execution]) -> None:
        """Send messages to the process; the reading thread notices if it is dead."""
        for number, one in enumerate(some, self._numbered):
            one.number = number
        self.progress.send(self._numbered, len(some))
        self._numbered += len(some)
        idle = not self.sent
        self.sent.extend(some)
        if idle:
            some[0].begin(self)
        self._send(("handle", [_shared(some) for _, some in itertools.groupby(some, _batch)]))

    def rest(self) -> list[Execution]:
        """Take back the messages that the process has not begun; the caller holds the lock."""
        return self.without(self.progress.rest())

    def without(self, numbers: Iterable[int]) -> list[Execution]:
        """Return the messages with these numbers, which the process does not begin; it no longer
        has them. The caller holds the lock."""
        gone = frozenset(numbers)
        back = [one for one in self.sent if one.number in gone]
        if back:
            # Replaced at once, because others look at the first one without the lock.
            self.sent = collections.deque(one for one in self.sent if one.number not in gone)
        for execution in back:
            execution.unbegun()
        return back

    def stack(self, execution: Execution) -> str:
        """Ask where its handler is; empty if the process does not answer."""
        self._pool.advance(self)
        if self.busy is not execution:
            return ""
        while self._stack_bell.acquire(blocking=False):
            self._stack.popleft()
        self._send(("stack", None))
        return self._stack.popleft() if self._stack_bell.acquire(timeout=2.0) else ""

    def tell_lost(self, execution: Execution) -> None:
        """Notify it once, if it still handles this message."""
        self._pool.advance(self)
        if self.busy is execution and self._told_lost is not execution:
            self._told_lost = execution
            self._send(("lost", (execution.held.id, execution.held.token)))

    def kill(self, execution: Execution) -> None:
        """End the process, if it still handles this message."""
        self._pool.advance(self)
        if self.busy is execution and self._process is not None:
            self._killed_for = execution
            self._process.kill()

    def look_at_run(self, execution: Execution) -> None:
        """Note what its handler has reported of a run, in case it never ends."""
        run = None if type(execution) is PlainExecution else execution.held.run
        if run is not None and (done := self.progress.reported(execution.number)):
            run.done = run.reported = done

    def close(self) -> None:
        """End the process."""
        with self._sending, contextlib.suppress(OSError):
            if self._pipe is not None and self.busy is None:
                self._pipe.send_bytes(pickle.dumps(("end", None)))
        if self.busy is not None and self._process is not None:
            self._process.kill()
        self._thread.join(5.0)

    def _send(self, message: tuple[str, Any]) -> None:
        with self._sending, contextlib.suppress(OSError):
            assert self._pipe is not None
            self._pipe.send_bytes(pickle.dumps(message))

    def _run(self) -> None:
        while not self._pool.closing.is_set():
            began = time.monotonic()
            try:
                self._start()
            except Exception as error:
                # The system may be unable to start another process.
                self._pool.failed(text_of(error))
                killed = None
            else:
                try:
                    self._read()
                finally:
                    self._buried()
                self._killed_for, killed = None, self._killed_for
            # Pause before restarting a process that fails to start.
            short = time.monotonic() - began < 1.0
            self._failures = self._failures + 1 if short and killed is None else 0
            if self._failures:
                self._pool.closing.wait(min(0.1 * 2**self._failures, 5.0))

    def _start(self) -> None:
        self._why = ""
        self.progress, self._numbered = Progress(), 0
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as failing, theirs:
            failing.callback(self.progress.close)
            failing.callback(ours.close)
            shared = self.progress.descriptors
            settings = json.dumps([theirs.fileno(), shared, sys.path, _level()])
            flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-c", PROGRAM, settings],
                pass_fds=[theirs.fileno(), *shared],
                stdin=subprocess.DEVNULL,
            )
            failing.pop_all()
        with self._sending:
            self._pipe = Connection(ours.detach())
            with contextlib.suppress(OSError):
                # Not as an argument, which others can read: the URL may contain a password.
                self._pipe.send_bytes(self._pool.setup)

    def _read(self) -> None:
        assert self._pipe is not None
        while True:
            try:
                data = self._pipe.recv_bytes()
            except (EOFError, OSError):
                return
            self._pool.advance(self)
            if data == DONE:
                continue
            what, value = pickle.loads(data)
            if what == "ready":
                self._failures = 0
                self._pool.idle(self)
            elif what == "failed":
                self._why = value
            elif what == "refused":
                self._why = value
                self._pool.refused(value)
            elif what == "done":
                self._pool.ended(self._pool.next(self), value)
            elif what == "returned":
                self._pool.returned(self, value)
            elif what == "log":
                record = logging.makeLogRecord(value)
                logging.getLogger(record.name).handle(record)
            elif what == "waits":
                self._note_wait(*value)
            elif what == "waited":
                if (wait := self._waits.pop(value, None)) is not None:
                    wait.__exit__()
            elif what == "look":
                self._send(("looked", (value, self._look(value))))
            elif what == "stack":
                self._stack.append(value)
                self._stack_bell.release()

    def _note_wait(
        self, number: int, engine: str, queue: str, id: int, own: tuple[str, int]
    ) -> None:
        """Note that its handler waits for a result; see ``result_wait``."""
        execution = self.busy
        if execution is None:
            return
        ours = execution.source.queue._handle.engine
        # Results of another engine are not followed.
        if ours.memory is None and ours.target.shown == engine:
            self._waits[number] = ResultWait(ours, queue, id, own).__enter__()

    def _look(self, number: int) -> str:
        """Return why its handler's wait would never end; empty if it may end."""
        execution, wait = self.busy, self._waits.get(number)
        if execution is None or wait is None:
            return ""
        try:
            execution.source.queue._run(None, wait.look)
        except WouldDeadlock as error:
            return str(error)
        except InterlockError:
            # The handler's own wait reports what is wrong with the engine.
            pass
        return ""

    def _buried(self) -> None:
        """Note that the process is gone: the message it handled fails immediately."""
        while self._waits:
            self._waits.popitem()[1].__exit__()
        assert self._process is not None
        code = self._process.wait()
        with self._sending:
            if self._pipe is not None:
                self._pipe.close()
        with self._pool.lock:
            went, self.ready = self.ready, False
        self._pool.advance(self)
        with self._pool.lock:
            begun = bool(self.sent and self.progress.times(self.sent[0].number)[0])
            execution = self.sent.popleft() if begun else None
            if execution is not None:
                execution.end()
        self._pool.returned(self, [one.number for one in self.sent])
        with self._pool.lock:
            self.progress.close()
        if went:
            self._pool.moved(-1)
        elif not self._pool.closing.is_set():
            self._pool.failed(self._why or f"it {_end(code)}")
        if execution is None:
            return
        if self._killed_for not in (None, execution):
            # The message that exceeded its timeout ended just before the process was killed.
            outcome = Outcome("defer", delay=0.0, expected="released")
            self._pool.ended(execution, outcome)
            return
        if self._killed_for is None:
            _log.log(
                logging.ERROR,
                "the process that handled message %d in queue %r %s, attempt %d",
                execution.held.id, execution.held.queue, _end(code), execution.held.attempt,
                extra=details(execution.held),
            )  # fmt: skip
        error = f"the process that handled it {_end(code)}"
        self._pool.ended(execution, stopped(execution.retry, execution.held, error))


_batch = attrgetter("batch")


def _shared(some: Iterable[Execution]) -> tuple[Any, ...]:
    """Return messages of one batch as a process receives them: what they share, and each of them,
    with the engine's own text of a plain call."""
    found: list[Any] = []
    for one in some:
        if type(one) is PlainExecution:
            found.append((one.number, one.batch.parts(one.place)))
        else:
            held = one.held
            riders = () if held.run is None else tuple(map(_fields, held.run.riders))
            found.append((one.number, (*_fields(held), riders)))
    batch = one.batch
    source, grant = one.source, batch.grant
    return source.name, batch.token, batch.leased_at, batch.received, grant.deadline, found


def _fields(held: TaskLease) -> tuple[Any, ...]:
    return held.id, held.sequence, held.attempt, held.keys, held.shared, held.payload


class ProcessesFailed(InterlockError):
    """The processes of a pool cannot start; the text is that of the last one."""


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _level() -> int:
    """Return the level from which records are sent back."""
    return logging.getLogger().getEffectiveLevel()


MOST_SENT = 32
"""Messages that a process is sent at once."""
FEW_LEFT = 16
"""Messages left in a process when it is sent more."""
MOST_BYTES = 16_384
"""Bytes of payloads that a process is sent at once while it has other messages: it may not read
while its handler holds the GIL, and the worker must not wait for that."""
FEWEST_MORE = 4
"""Messages that a process is sent at once while it has others, at least: each send costs as much as
several messages."""
FEWEST_FAILURES = 3
"""Failed starts in a row, with no process up, after which a small pool is given up."""

PROGRAM = "import sys; from interlock.worker.pools.process_child import main; main(sys.argv[1])"
