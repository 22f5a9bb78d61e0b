"""Several worker processes under one, for ``interlock worker --processes``.

Each worker is the same program started anew; its environment tells it that it is one of several. It
has its own session, so that Ctrl-C reaches only the supervisor, which notifies the workers. The
supervisor uses a socket pair, not TERM, because a service manager sends TERM to all processes
itself, and a second TERM would mean "hurry". Over the same pair a worker reports that it is ready
and, on request, its counts. When the pair closes, the worker knows that the supervisor has died.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from interlock.worker.message.meter import Reading
from interlock.worker.process.mailbox import Mailbox
from interlock.worker.reports.summed_figures import Gathering

__all__ = ["Supervisor", "tell_supervisor"]

_log = logging.getLogger("interlock.worker")

VARIABLE = "INTERLOCK_WORKER_SUPERVISOR"
"""Number of the descriptor over which a worker talks to its supervisor."""
MEASURED = "INTERLOCK_WORKER_MEASURED"
"""Set for workers that are to count what the supervisor asks for."""


class Supervisor:
    """Keeps a number of workers running."""

    def __init__(self, command: Sequence[str], count: int, measured: bool = False) -> None:
        """``measured``: the workers count what ``reading`` returns."""
        self._command = list(command)
        self._measured = measured
        self._gathering = Gathering()
        self._answered = threading.Condition()
        self._asked: set[int] = set()
        """Places whose process was asked for its counts and has not answered yet."""
        self._restarts = 0
        self._count = count
        self._events: Mailbox[tuple[str, int]] = Mailbox()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._links: dict[int, socket.socket] = {}
        self._began: dict[int, float] = {}
        self._ready: set[int] = set()
        self._unready_ends: dict[int, int] = {}
        """By place, the number of processes in a row that ended before they were ready."""
        self._stopping = False

    def stop_at(self, *signals: int) -> None:
        """Stop at the first of these signals, hurry at the next. Called by the main thread."""
        self._events.tell_of(signals, ("signal", 0))

    @property
    def is_ready(self) -> bool:
        """Return whether all are ready, and no stop was requested."""
        return len(self._ready) == self._count and not self._stopping

    @property
    def running(self) -> int:
        """Return the number of running processes."""
        return len(self._running)

    def reading(self, timeout: float) -> Reading:
        """Ask all workers for their counts, and return the sum; for a worker that does not answer
        within ``timeout``, its last counts are used."""
        with self._answered:
            # A worker that has not answered yet is not asked again: the pipe keeps room for the
            # stop.
            asked = {place for place in list(self._links) if place not in self._asked}
            for place in list(asked):
                try:
                    self._links[place].send(MEASURE)
                except OSError:
                    asked.discard(place)
            self._asked |= asked
            self._answered.wait_for(lambda: not asked & self._asked, timeout)
        told = self._gathering.sum()
        told.counters.append(["restarts", [], self._restarts])
        told.gauges.append(["ready", [], len(self._ready)])
        return told

    def run(self, ready: Callable[[], None], stopping: Callable[[], None]) -> int:
        """Run until a stop is requested and all have ended. Return the worst of their exit codes; 2
        immediately if a worker cannot even be started, and 1 if one place has ended repeatedly
        before it was ever ready."""
        for place in range(self._count):
            self._start(place)
        worst, told = 0, False
        while self._running or not self._stopping:
            what, value = self._events.get()
            if what == "signal":
                self._tell_all(HURRY if self._stopping else STOP)
                if not self._stopping:
                    self._stopping = True
                    stopping()
            elif what == "start" and not self._stopping:
                self._start(value)
            elif what == "ready":
                self._ready.add(value)
                self._unready_ends[value] = 0
                if len(self._ready) == self._count and not told:
                    told = True
                    ready()
            elif what == "ended":
                code = self._running.pop(value).wait()
                if code == WRONG_USAGE and not told:
                    self._stopping = True
                    self._tell_all(STOP)
                    worst = WRONG_USAGE
                elif self._stopping:
                    worst = max(worst, 0 if code == 0 else 1)
                elif not told and self._is_hopeless(value):
                    _log.error(
                        "worker %d ended with %d, %d times before it was ready; it is not "
                        "restarted",
                        value + 1, code, MOST_UNREADY_ENDS,
                    )  # fmt: skip
                    self._stopping = True
                    self._tell_all(STOP)
                    worst = 1
                else:
                    self._again(value, code)
        return worst

    def _is_hopeless(self, place: int) -> bool:
        if place not in self._ready:
            self._unready_ends[place] = self._unready_ends.get(place, 0) + 1
        return self._unready_ends.get(place, 0) >= MOST_UNREADY_ENDS

    def _tell_all(self, word: bytes) -> None:
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.send(word)

    def _again(self, place: int, code: int) -> None:
        self._restarts += 1
        short = time.monotonic() - self._began[place] < 1.0
        if code:
            _log.error("worker %d ended with %d; starting another", place + 1, code)
        else:
            # Another machine asked it to drain, as `interlock worker drain` does.
            _log.info("worker %d has drained; starting another", place + 1)
        self._ready.discard(place)
        timer = threading.Timer(1.0 if short else 0.0, self._events.put, (("start", place),))
        timer.daemon = True
        timer.start()

    def _start(self, place: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {**os.environ, VARIABLE: str(theirs.fileno())}
            if self._measured:
                environment[MEASURED] = "1"
            process = subprocess.Popen(
                self._command,
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._running[place] = process
        self._links[place] = ours
        self._began[place] = time.monotonic()
        threading.Thread(target=self._follow, args=(place, process, ours), daemon=True).start()

    def _follow(self, place: int, process: subprocess.Popen[bytes], ours: socket.socket) -> None:
        with ours, ours.makefile("rb") as lines, contextlib.suppress(OSError):
            for line in lines:
                if line == READY:
                    self._events.put(("ready", place))
                else:
                    self._gathering.said(place, Reading(*json.loads(line)))
                    self._told(place)
        self._gathering.ended(place)
        self._told(place)
        process.wait()
        self._events.put(("ended", place))

    def _told(self, place: int) -> None:
        with self._answered:
            self._asked.discard(place)
            self._answered.notify_all()


def tell_supervisor(
    told: Callable[[str], object], reading: Callable[[], Reading]
) -> Callable[[], None]:
    """Return, in a worker, the function that reports that it is ready. Without a supervisor that
    function does nothing.

    ``told`` is called, on a thread, when the worker is to stop (``"stop"``), or to stop immediately
    (``"hurry"``). The death of the supervisor counts as the first. ``reading`` is called there when
    the supervisor asks for the counts.
    """
    text = os.environ.pop(VARIABLE, "")
    if not text.isdecimal():
        return lambda: None
    link = socket.socket(fileno=int(text))
    os.set_inheritable(int(text), False)
    sending = threading.Lock()

    def say(line: bytes) -> None:
        with sending, contextlib.suppress(OSError):
            link.sendall(line)

    def follow() -> None:
        with contextlib.suppress(OSError):
            while word := link.recv(1):
                if word == MEASURE:
                    say(json.dumps(reading()).encode() + b"\n")
                else:
                    told("hurry" if word == HURRY else "stop")
        told("stop")

    threading.Thread(target=follow, name="interlock-supervised", daemon=True).start()

    return lambda: say(READY)


WRONG_USAGE = 2
MOST_UNREADY_ENDS = 3
STOP, HURRY, MEASURE = b"s", b"h", b"m"
READY = b"ready\n"
