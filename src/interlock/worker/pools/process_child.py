"""The code that runs in a process of the pool; see ``process_pool``."""

from __future__ import annotations

import collections
import contextlib
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
from multiprocessing.connection import Connection
from typing import Any

from interlock.client.requests import result_wait
from interlock.client.requests.result_wait import ResultWait
from interlock.errors import WouldDeadlock
from interlock.failure import text_of
from interlock.retry import Retry
from interlock.runtime.frames import frame_of, stack_text
from interlock.worker.message.execution import ACKED, TaskLease, judge
from interlock.worker.message.scope import LONGEST_LEAVE, HeldScope, Scope
from interlock.worker.message.tasks import SetupRefused
from interlock.worker.pools.pool import DONE
from interlock.worker.pools.progress import Progress
from interlock.worker.pools.thread_pool import Runner

__all__ = ["main"]

importing = False
"""The program is being imported and must not start another worker meanwhile."""


def main(settings: str) -> None:
    """Import the app, then handle the messages it receives until it is ordered to end or the worker
    is gone."""
    descriptor, memory, path, level = json.loads(settings)
    sys.path[:] = path
    pipe = Connection(descriptor)
    os.register_at_fork(after_in_child=functools.partial(_forked, pipe))
    # Ctrl-C reaches the whole group, systemd's TERM the whole service; the worker decides when its
    # processes end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _Link(pipe, Progress(memory), level).serve()


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
        self._received = 0
        """Messages that it was sent so far: each has the number that was next."""
        self._unreported = 0
        """Handled messages that the worker finds in the shared memory when it looks."""
        self._reported = 0.0
        """The time.monotonic() of the last report of such."""
        self._sending = threading.Lock()
        self._work: collections.deque[tuple[int, tuple[Any, ...]]] = collections.deque()
        """The messages that have not begun."""
        self._wakes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Announces messages; False: to end."""
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
                number, (*fields, leased_at, received, deadline) = message
                if deadline <= time.monotonic():
                    # This process was frozen, for instance. The worker knows whether it has renewed
                    # the lease meanwhile.
                    self._return_all(1)
                    continue
                self._progress.begin(number)
                lease = TaskLease(*fields)
                lease._leased_at, lease._received = leased_at, received
                lease._is_lost = functools.partial(self._is_lost, lease.token)
                try:
                    invocation = tasks.prepare(lease)
                except Exception as error:
                    # The worker has this task: the module has changed since the worker started.
                    self.send("done", judge(Retry(), lease, error))
                    continue
                timed = invocation.timeout is not None
                if timed:
                    # The worker watches it from now on.
                    self._report()
                outcome = self._runners.handled(invocation, lease)
                ends = held is not None and held.ended.is_set()
                if ends:
                    # A task that a handler left behind ended the loop and everything made on it.
                    self._return_all()
                if outcome is ACKED:
                    ended = self._progress.end(number)
                    self._unreported += 1
                    if timed or ended - self._reported > LONGEST_UNREPORTED:
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
                self._work.extend(enumerate(value, self._received))
                self._received += len(value)
                self._wakes.put(True)
            elif what == "recall":
                self._return_all()
            elif what == "lost":
                self._lost = value
            elif what == "stack":
                self.send("stack", self._stack())
            elif what == "looked":
                number, said = value
                if (answer := self._looks.get(number)) is not None:
                    answer.put(said)
            else:
                self._wakes.put(False)
                return

    def _next(self) -> tuple[int, tuple[Any, ...]] | None:
        while True:
            try:
                return self._work.popleft()
            except IndexError:
                self._report()
                if not self._wakes.get():
                    return None

    def _return_all(self, count: int = 0) -> None:
        """Return the messages that have not begun, and this many that were about to."""
        with contextlib.suppress(IndexError):
            while True:
                # From the end: the other thread may begin the first one meanwhile, and the worker
                # takes back the last ones.
                self._work.pop()
                count += 1
        if count:
            self.send("returned", count)

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

    def _is_lost(self, token: int, id: int) -> bool:
        return self._lost == (id, token)

    def _stack(self) -> str:
        if self._runners is not None and (task := self._runners.task) is not None:
            from interlock.aio import stack_of

            return stack_of(task)
        frame = frame_of(self._main)
        return stack_text(frame) if frame else ""


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
