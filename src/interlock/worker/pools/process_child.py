"""The code that runs in a process of the pool; see ``process_pool``."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import functools
import json
import logging
import logging.handlers
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from interlock.client.requests import result_wait
from interlock.client.requests.result_wait import ResultWait
from interlock.client.wire import messages as wire
from interlock.errors import WouldDeadlock
from interlock.failure import text_of
from interlock.message import _current
from interlock.retry import Retry
from interlock.runtime import forks
from interlock.runtime.frames import frame_of, stack_text
from interlock.worker.message.execution import ACKED, Outcome, RunProgress, TaskLease, judge
from interlock.worker.message.scope import LONGEST_LEAVE, HeldScope, Scope
from interlock.worker.message.tasks import PlainCall, SetupRefused, Tasks, head
from interlock.worker.pools.pool import DONE
from interlock.worker.pools.progress import Progress
from interlock.worker.pools.thread_pool import Runner

__all__ = ["main"]

importing = False
"""The program is being imported and must not start another worker meanwhile."""


def main(settings: str) -> None:
    """Import the app, then handle the messages it receives until it is ordered to end or the worker
    is gone."""
    descriptor, shared, path, level = json.loads(settings)
    sys.path[:] = path
    pipe = Connection(descriptor)
    os.register_at_fork(after_in_child=functools.partial(_forked, pipe))
    # Ctrl-C reaches the whole group, systemd's TERM the whole service; the worker decides when its
    # processes end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _Link(pipe, Progress(shared), level).serve()


def _forked(pipe: Connection) -> None:
    """Close this child's copy of the connection, after a handler has forked it.

    The child logs to stderr. While it held the connection, the worker would not notice the end of
    this process either.
    """
    logging.getLogger().handlers[:] = [logging.StreamHandler()]
    pipe.close()


class _Link:
    """The connection to the worker."""

    def __init__(self, pipe: Connection, progress: Progress, level: int) -> None:
        self._pipe = pipe
        self._progress = progress
        self._unreported = 0
        """Handled messages that the worker finds in the shared memory when it looks."""
        self._reported = 0.0
        """The time.monotonic() of the last report of such."""
        self._timed = False
        """The last message has a timeout."""
        self._sending = threading.Lock()
        self._work: collections.deque[_Message] = collections.deque()
        """The messages that have not begun, and those that the worker has taken back."""
        self._wakes = threading.Event()
        """There may be messages, or it is to end."""
        self._ends = False
        self._main = threading.get_ident()
        self._runners: Runner | None = None
        self._looks: dict[int, queue.SimpleQueue[str]] = {}
        """The worker's answer to each wait for a result, by the number of the wait."""
        self._lost: tuple[int, int] | None = None
        """Id and token of the lease that the worker last reported lost."""
        root = logging.getLogger()
        root.handlers[:] = [_Records(self)]
        root.setLevel(level)

    def serve(self) -> None:
        """Handle on this thread; another thread reads, so that questions are answered meanwhile."""
        global importing
        importing = True
        try:
            app: Any = pickle.loads(self._pipe.recv_bytes()).app()
            importing = False
            result_wait.relay = self
            tasks = app._as_tasks()
            self._runners = Runner()
            held = self._entered(tasks.scope(False, True))
        except SetupRefused as error:
            self.send("refused", str(error))
            sys.exit(1)
        except BaseException as error:
            self.send("failed", text_of(error))
            raise
        threading.Thread(target=self._read, daemon=True).start()
        self.send("ready", None)
        with contextlib.closing(self._runners):
            while (message := self._next()) is not None:
                now = time.monotonic()
                if message.batch.deadline <= now:
                    # This process was frozen, for instance. The worker knows whether it has renewed
                    # the lease meanwhile.
                    self._return_all([message.number])
                    continue
                self._progress.begin(message.number, now)
                outcome = message.told(self._handled(tasks, message, now))
                ends = held is not None and held.ended.is_set()
                if ends:
                    # A task that a handler left behind ended the loop and everything made on it.
                    self._return_all()
                if outcome is ACKED:
                    ended = self._progress.end(message.number)
                    self._unreported += 1
                    if self._timed or ended - self._reported > LONGEST_UNREPORTED:
                        self._report()
                else:
                    self._unreported = 0
                    self.send("done", outcome)
                if ends:
                    break
            self._report()
            if held is not None:
                self._runners.leave(held, LONGEST_LEAVE)
        app.close()

    def _handled(self, tasks: Tasks, message: _Message, now: float) -> Outcome:
        """Handle one message; never raises."""
        self._timed = False
        parts, call = message.parts, None
        if parts is not None:
            # As little work as possible: the worker has looked that it is a plain call.
            payload = parts[wire.PAYLOAD]
            call = tasks.plain.get(head(payload))
            if call is not None and not call.is_async:
                try:
                    arguments = call.decode(payload[call.arguments :])
                except Exception:
                    # The general path reports what is wrong with them.
                    pass
                else:
                    return self._called(call, arguments, message, now)
        lease = message.lease()
        try:
            invocation = tasks.prepare(lease)
        except Exception as error:
            # The worker has this task: the module has changed since the worker started.
            return judge(Retry(), lease, error)
        if parts is not None and call is None:
            tasks.learn(invocation, lease.payload)
        if lease.run is not None:
            lease.run.tell = functools.partial(self._progress.report, message.number)
        if invocation.timeout is not None:
            # The worker watches it from now on.
            self._timed = True
            self._report()
        assert self._runners is not None
        return self._runners.handled(invocation, lease)

    def _called(
        self, call: PlainCall, arguments: tuple[Any, ...], message: _Message, now: float
    ) -> Outcome:
        message.task = call.task
        token, began = _current.set((message, 0)), forks.count
        try:
            contextvars.copy_context().run(call.function, *arguments)
        except BaseException as error:
            forks.end_if_forked(began, error)
            lease = message.lease()
            lease._began = now
            return judge(call.retry, lease, error)
        finally:
            _current.reset(token)
        if forks.count != began:
            forks.end_if_forked(began)
        return ACKED

    def _entered(self, scope: Scope | None) -> HeldScope | None:
        if scope is None:
            return None
        assert self._runners is not None
        held = HeldScope(scope)
        self._runners.enter(held)
        return held

    def send(self, what: str, value: Any) -> None:
        """Send to the worker; without a worker there is nothing to handle."""
        self._send(pickle.dumps((what, value)))

    def _send(self, data: bytes) -> None:
        try:
            with self._sending:
                self._pipe.send_bytes(data)
        except OSError:
            os._exit(1)

    def _report(self) -> None:
        """Have the worker look for handled messages, if there are any."""
        if self._unreported:
            self._unreported, self._reported = 0, time.monotonic()
            self._send(DONE)

    def _read(self) -> None:
        while True:
            try:
                what, value = pickle.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                # The worker is gone, and its messages no longer belong to this process.
                os._exit(1)
            if what == "handle":
                for *shared, messages in value:
                    batch = _Batch(self, *shared)
                    self._work.extend(_Message(batch, *message) for message in messages)
                self._wakes.set()
            elif what == "lost":
                self._lost = value
            elif what == "stack":
                self.send("stack", self._stack())
            elif what == "looked":
                number, said = value
                if (answer := self._looks.get(number)) is not None:
                    answer.put(said)
            else:
                self._ends = True
                self._wakes.set()
                return

    def _next(self) -> _Message | None:
        """Wait for a message; None: to end."""
        work = self._work
        while not self._ends:
            sent = len(work)
            number = self._progress.take()
            if number is None:
                # Each is sent after its number, so the worker has taken these back.
                for _ in range(sent):
                    work.popleft()
                self._report()
                self._wait()
                continue
            while not self._ends:
                while work:
                    message = work.popleft()
                    if message.number == number:
                        return message
                self._wait()
        return None

    def _wait(self) -> None:
        self._wakes.wait()
        self._wakes.clear()

    def _return_all(self, numbers: Iterable[int] = ()) -> None:
        """Return the messages that have not begun, and those with these numbers, which were about
        to."""
        found = [*numbers, *self._progress.rest()]
        if found:
            self.send("returned", found)

    def began(self, wait: ResultWait) -> None:
        """See ``Relay``."""
        self._looks[wait.number] = queue.SimpleQueue()
        self.send("waits", (wait.number, wait.engine, wait.queue, wait.id, wait.own))

    def ended(self, wait: ResultWait) -> None:
        """See ``Relay``."""
        self._looks.pop(wait.number, None)
        self.send("waited", wait.number)

    def look(self, wait: ResultWait) -> None:
        """See ``Relay``."""
        self.send("look", wait.number)
        if said := self._looks[wait.number].get():
            raise WouldDeadlock(said)

    def is_lost(self, token: int, id: int) -> bool:
        """Return whether the worker has reported that this lease is lost."""
        return self._lost == (id, token)

    def _stack(self) -> str:
        if self._runners is not None and (task := self._runners.task) is not None:
            from interlock.aio import stack_of

            return stack_of(task)
        frame = frame_of(self._main)
        return stack_text(frame) if frame else ""


class _Batch:
    """Messages that were leased together, as far as this process was sent them."""

    __slots__ = ("_leased_at", "_link", "_queue", "_received", "_token", "deadline")

    def __init__(
        self,
        link: _Link,
        queue: str,
        token: int,
        leased_at: int,
        received: float,
        deadline: float,
    ) -> None:
        self._link, self._queue, self._token = link, queue, token
        self._leased_at, self._received = leased_at, received
        self.deadline = deadline
        """The time.monotonic() until which none of them may begin."""

    def lease(self, fields: Sequence[Any]) -> TaskLease:
        """Return the lease of a message with these fields."""
        id, sequence, attempt, keys, shared, payload, riders = fields
        token = self._token
        lease = TaskLease(
            self._queue, id, sequence, attempt, token, keys, shared, payload, "",
            functools.partial(self._link.is_lost, token), self._leased_at,
        )  # fmt: skip
        lease._received = self._received
        if riders:
            lease.run = RunProgress([self.lease((*rider, ())) for rider in riders])
        return lease


class _Message:
    """A message that the worker has sent. Its lease is made on request."""

    __slots__ = ("_fields", "_lease", "batch", "number", "parts", "task")

    def __init__(self, batch: _Batch, number: int, fields: Sequence[Any]) -> None:
        self.batch, self.number, self._fields = batch, number, fields
        self.parts: Sequence[bytes] | None = fields if type(fields) is list else None
        """A plain call, as the engine sent it."""
        self.task = ""
        self._lease: TaskLease | None = None

    def lease(self, _: int = 0) -> TaskLease:
        """Return the lease as its handler sees it; the same object each time."""
        if self._lease is None:
            fields = self._fields
            if self.parts is not None:
                one = wire.handed(self.parts, 0)
                fields = (one.id, one.sequence, one.attempt, one.keys, one.shared, one.payload, ())
            self._lease = self.batch.lease(fields)
            self._lease.task = self.task
        return self._lease

    def told(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the progress of its run, if there is one."""
        run = None if self._lease is None else self._lease.run
        return outcome if run is None else dataclasses.replace(outcome, run=run.told())


class _Records(logging.handlers.QueueHandler):
    """Sends log records to the worker, in whose log they appear."""

    def __init__(self, link: _Link) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self._link = link

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send one."""
        # `extra` may hold any object; objects that cannot be sent are sent as text.
        found = {}
        for name, value in vars(record).items():
            try:
                pickle.dumps(value)
                found[name] = value
            except BaseException:
                found[name] = _text(value)
        self._link.send("log", found)


LONGEST_UNREPORTED = 0.005
"""Seconds after which handled messages are reported although others follow."""


def _text(value: object) -> str:
    """Return a text for any object, even one that raises when it is examined."""
    try:
        return repr(value)
    except BaseException:
        return f"({type(value).__name__})"
