"""Several worker processes under one, for ``interlock worker --processes``.

Each is the same program anew, which knows by its environment that it is one of several. It is in a
session of its own, so that Ctrl-C reaches this process alone, which tells them. It does so by a
socket pair, and not by TERM, which a service manager sends to all of them itself: twice told is not
told to hurry. By the same pair a worker says that it is ready and, when asked, what it has counted;
by its end it learns that this process has died.
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

from interlock.worker.gathering import Gathering
from interlock.worker.mailbox import Mailbox
from interlock.worker.meter import Reading

__all__ = ["Supervisor", "tell_supervisor"]

_log = logging.getLogger("interlock.worker")

VARIABLE = "INTERLOCK_WORKER_SUPERVISOR"
"""The number of the descriptor by which a worker speaks to its supervisor."""
MEASURED = "INTERLOCK_WORKER_MEASURED"
"""Set for workers that are to count what they are asked for."""


class Supervisor:
    """Keeps so many workers running."""

    def __init__(self, command: Sequence[str], count: int, measured: bool = False) -> None:
        """``measured``: they count what ``reading`` tells."""
        self._command = list(command)
        self._measured = measured
        self._gathering = Gathering()
        self._answered = threading.Condition()
        self._asked: set[int] = set()
        """Places whose process has not told what it has counted, though it was asked."""
        self._restarts = 0
        self._count = count
        self._events: Mailbox[tuple[str, int]] = Mailbox()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._links: dict[int, socket.socket] = {}
        self._began: dict[int, float] = {}
        self._ready: set[int] = set()
        self._unready_ends: dict[int, int] = {}
        """By place, how many have ended in a row before they were ready."""
        self._stopping = False

    def stop_at(self, *signals: int) -> None:
        """Stop at the first of these signals, hurry at the next. Of the main thread."""
        self._events.tell_of(signals, ("signal", 0))

    @property
    def is_ready(self) -> bool:
        """Return whether all are ready, and nobody has said to stop."""
        return len(self._ready) == self._count and not self._stopping

    @property
    def running(self) -> int:
        """Return how many processes run."""
        return len(self._running)

    def reading(self, timeout: float) -> Reading:
        """Ask all what they have counted, and return the sum; of who does not answer within so
        many seconds, what it said last."""
        with self._answered:
            # Who has not answered yet is asked no more: room is kept for the word to stop.
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
        """Until it is told to stop and all have ended. Answers the worst of their exit codes; 2 at
        once if one cannot even begin, and 1 if one place has ended again and again before it was
        ever ready."""
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
                        "worker %d ended with %d, %d times before it was ready; it is given up",
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
            _log.error("worker %d ended with %d; another is started", place + 1, code)
        else:
            # Asked from elsewhere to drain, as by `interlock worker drain`.
            _log.info("worker %d has drained; another is started", place + 1)
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
    """In a worker: gives what says that it is ready. Without a supervisor that does nothing.

    ``told`` is called, on a thread, when the worker is to stop (``"stop"``), or to stop at once
    (``"hurry"``). A supervisor that has died has said the first. ``reading`` is called there when
    the supervisor asks for it.
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
