"""A thread that reports the hub's state to the service manager while its workers are alive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from interlock.hub.serve.journal_faults import Trouble
from interlock.runtime.systemd import Notifier


class Heartbeat:
    """Signs of life for a watchdog, and a status line. It does nothing without a manager.

    `pulse` sends each worker a beat and returns for each whether it has answered the previous one;
    the manager gets a sign of life only if all have. A hung worker is therefore found within one
    and a half times the manager's timeout.
    """

    def __init__(
        self,
        notifier: Notifier,
        pulse: Callable[[], Sequence[bool]],
        info: Callable[[], Mapping[str, object]],
    ) -> None:
        self._notifier = notifier
        self._pulse = pulse
        self._info = info
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def interval(self) -> float:
        """Seconds between two beats: half the manager's timeout."""
        if self._notifier.watchdog is None:
            return WITHOUT_WATCHDOG
        return min(self._notifier.watchdog / 2, WITHOUT_WATCHDOG)

    def beat(self) -> bool:
        """Beat once, and return whether all workers had answered the previous beat."""
        answered = self._pulse()
        alive = bool(answered) and all(answered)
        if alive:
            if self._notifier.watchdog is not None:
                self._notifier.alive()
            self._notifier.status(status(self._info()))
        else:
            hanging = [str(worker) for worker, well in enumerate(answered) if not well]
            self._notifier.status(f"no answer from worker {', '.join(hanging)}")
        return alive

    def __enter__(self) -> Self:
        if self._notifier:
            self._thread = threading.Thread(target=self._run, name="hub-heartbeat", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the beats. Call it before the workers end, because then they stop answering."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self.beat()
            if self._ended.wait(self.interval):
                return


def status(info: Mapping[str, object]) -> str:
    """Return a line for people."""
    clients, topics = info.get("connected_clients", 0), info.get("pubsub_channels", 0)
    published = info.get("messages_published", 0)
    text = f"{clients} connections, {topics} topics, {published} messages published"
    trouble = Trouble.of(info)
    return f"{trouble}; {text}" if trouble else text


WITHOUT_WATCHDOG = 30.0
