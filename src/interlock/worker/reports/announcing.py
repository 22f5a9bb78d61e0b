"""Announces a worker to the engine periodically, and carries out requests that arrive that way.

The requests may come from any machine that reaches the engine. A dedicated thread announces the
worker at the first of its queues; the engine forgets an announcement after 10 seconds. The worker
does not depend on it: if the engine refuses the announcement or has no room for it, the worker logs
that once and continues.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from interlock.errors import EngineUnavailable, InterlockError, ShutDown
from interlock.worker.message.tasks import NotHere
from interlock.worker.reports.announcement import MOST_OF_ANSWER, Description, stacks_answer

if TYPE_CHECKING:
    from interlock.worker.worker import Worker

__all__ = ["Announcing"]

_log = logging.getLogger("interlock.worker")


class Announcing:
    """Runs as long as its worker does; see ``interlock.worker.worker.Beside``."""

    def __init__(
        self,
        worker: Worker,
        open_queue: Callable[[str], Any],
        app: str,
        schedules: Sequence[str] = (),
    ) -> None:
        """Prepare; nothing is announced before ``start``.

        Args:
            open_queue: opens a handle of a queue for this object's use alone.
            app: the name of the app, as ``module:name``; empty if it has none.
            schedules: the names of the entries of its timetable.
        """
        self._worker = worker
        self._open_queue = open_queue
        self._app = app
        self._schedules = schedules
        self._bell = threading.Event()
        self._state = "running"
        self._ending = False
        self._answers: dict[str, tuple[float, Any]] = {}
        """Answers by the number of their request: the time at which each was ready, and the
        answer."""
        self._asked_at = float("-inf")
        self._refused = False
        self._thread: threading.Thread | None = None
        self._id = ""

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="interlock-announcing", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Announce that the worker no longer takes messages."""
        self._state = "draining"
        self._bell.set()

    def join(self, timeout: float) -> None:
        """Remove the announcement, within ``timeout`` but at most one: it is not worth a longer
        wait."""
        self._ending = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join(min(timeout, LONGEST_END))

    # -- The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        from interlock import __version__

        try:
            queue = self._open_queue(self._worker.settings.queues[0])
        except InterlockError:
            # The app is closed already.
            return
        self._id = _named(queue)
        description = Description(self._worker, self._id, self._app, __version__, self._schedules)
        try:
            self._announce_all(queue, description)
        finally:
            _taken.discard(self._id)
            with contextlib.suppress(InterlockError):
                queue.close()

    def _announce_all(self, queue: Any, description: Description) -> None:
        reached, failures = False, 0
        while not self._ending:
            pause = PERIOD
            try:
                asked = queue._announce(self._id, TTL, description.text(self._state, self._told()))
                reached, failures, self._refused = True, 0, False
                for number, text in asked:
                    self._asked_at = time.monotonic()
                    self._take(str(number), text)
                if time.monotonic() - self._asked_at < CURIOUS:
                    pause = QUICK_PERIOD
            except EngineUnavailable as error:
                reached = False
                failures += 1
                # If the engine is unreachable, the threads that lease report it. Otherwise only
                # this call fails: an older library lacks the function.
                if failures > PATIENCE and self._leases(queue.name):
                    pause = REFUSED_PERIOD
                    self._log_refusal(queue, error)
            except ShutDown:
                return
            except Exception as error:
                reached, pause = False, REFUSED_PERIOD
                self._log_refusal(queue, error)
            self._bell.wait(pause)
            self._bell.clear()
        if reached:
            with contextlib.suppress(InterlockError):
                queue._announce(self._id, 0, "{}")

    def _leases(self, queue: str) -> bool:
        """Return whether the engine answers the lease calls."""
        sources = self._worker._owner.state.sources
        return all(source.is_connected for source in sources if source.name == queue)

    def _log_refusal(self, queue: Any, error: Exception) -> None:
        if self._refused or self._ending:
            return
        self._refused = True
        known = isinstance(error, InterlockError)
        _log.warning(
            "queue %r: this worker cannot announce itself, so `interlock worker list` does not "
            "show it: %s",
            queue.name, error, exc_info=None if known else error, extra={"queue": queue.name},
        )  # fmt: skip

    # -- Requests ---------------------------------------------------------------------------------

    def _told(self) -> dict[str, Any]:
        """Return the answers that are still announced, the latest ones that fit."""
        now, room, found = time.monotonic(), MOST_OF_ANSWERS, {}
        for number, (at, answer) in reversed(list(self._answers.items())):
            room -= len(json.dumps(answer))
            if now - at > KEPT or room < 0:
                del self._answers[number]
            else:
                found[number] = answer
        return found

    def _take(self, number: str, text: str) -> None:
        work: dict[str, Callable[[str, Any], None]] = {
            "stacks": self._tell_stacks,
            "drain": self._drain,
            "keys": self._tell_keys,
        }
        try:
            asked = json.loads(text)
            do = work[asked["ask"]]
        except (ValueError, TypeError, KeyError, RecursionError):
            allowed = ", ".join(work)
            self._answer(number, {"error": f"{text[:100]!r} is unknown; allowed: {allowed}"})
            return
        # On its own thread: a process pool, or the program's key function, may be slow.
        threading.Thread(
            target=do, args=(number, asked), name="interlock-asked", daemon=True
        ).start()

    def _tell_keys(self, number: str, asked: Any) -> None:
        """Answer with the keys and the names that this app derives for a call; keys are in
        base64."""
        try:
            payload = base64.b64decode(asked["payload"], validate=True)
            found = self._worker._owner.state.tasks.keys_of(payload)
            both = (found.exclusive, found.shared)
            keys, shared = ([base64.b64encode(key).decode() for key in some] for some in both)
            answer: dict[str, Any] = {"keys": keys, "shared": shared}
            if found.names is not None:
                answer |= found.names.as_json()
            if len(json.dumps(answer)) > MOST_OF_ANSWER:
                answer = {"error": f"its {len(keys) + len(shared)} keys do not fit in an answer"}
        except NotHere as error:
            answer = {"error": f"the message {error}"}
        except BaseException as error:  # the program's own code
            answer = {"error": f"{type(error).__name__}: {error}"[:2_000]}
        self._answer(number, answer)

    def _tell_stacks(self, number: str, _: object = None) -> None:
        try:
            answer = stacks_answer(self._worker.stacks())
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        self._answer(number, answer)

    def _drain(self, number: str, _: object = None) -> None:
        self._answer(number, {"state": "draining"})
        _log.info("this worker was asked to drain, and takes no more messages")
        self._worker.on_drain()

    def _answer(self, number: str, answer: Any) -> None:
        self._answers[number] = time.monotonic(), answer
        self._bell.set()


def _named(queue: Any) -> str:
    """Return a name for a worker: the one under which the engine knows its client's leases, so that
    the two can be matched. Further workers of the same client get a name with that prefix."""
    base: str = queue._client._engine._name
    name, number = base, 1
    with _taking:
        while name in _taken:
            number += 1
            name = f"{base}/worker-{number}"
        _taken.add(name)
    return name


_taking = threading.Lock()
_taken: set[str] = set()
TTL = 10.0
"""Seconds after its last announcement at which the engine forgets a worker."""
PERIOD = 2.0
QUICK_PERIOD = 1.0
"""Announcement interval while requests are arriving."""
CURIOUS = 15.0
"""Seconds after a request during which another one is likely."""
PATIENCE = 3
"""Failed calls in a row, while other calls reach the engine, before the worker reports the refusal
and announces less often."""
REFUSED_PERIOD = 60.0
LONGEST_END = 1.0
KEPT = 30.0
"""Seconds for which an answer is announced."""
MOST_OF_ANSWERS = 40_000
"""Size limit in bytes."""
