"""A publisher and a subscriber who must be served whatever others do to the hub."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from interlock.hub.client import Client, Published

LIMIT_SECONDS = 60.0
TOPIC = "\x01witness"
BURST = 5


class Witness:
    """Publishes in bursts and receives, in a thread of its own, until it is stopped.

    It fails where a message is lost, doubled or out of order. It reports the number of its rounds:
    that others are served is seen by rounds, not by time.
    """

    def __init__(self, address: str) -> None:
        self._subscriber = Client(address, timeout=LIMIT_SECONDS, name="witness")
        self._publisher = Client(address, timeout=LIMIT_SECONDS, name="witness")
        self._subscriber.subscribe(TOPIC)
        self._changed = threading.Condition()
        self._stop = False
        self._error: BaseException | None = None
        self.rounds = 0
        self._thread = threading.Thread(target=self._run, name="witness")
        self._thread.start()

    def progress(self, rounds: int = 10) -> None:
        """Wait until it has made this number of further rounds."""
        with self._changed:
            wanted = self.rounds + rounds
            while self.rounds < wanted and self._error is None:
                assert self._changed.wait(LIMIT_SECONDS), "the witness is served no more"
        self._raise()

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop:
                numbers = [str(number + ahead).encode() for ahead in range(BURST)]
                answers = self._publisher.pipeline([("PUBLISH", TOPIC, one) for one in numbers])
                # More, where a broken request has subscribed to all topics.
                assert all(isinstance(count, int) and count >= 1 for count in answers), answers
                for one in numbers:
                    found = self._subscriber.message(LIMIT_SECONDS)
                    assert found == Published(TOPIC.encode(), one), (found, one)
                number += BURST
                with self._changed:
                    self.rounds += 1
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise AssertionError(f"the witness was not served: {self._error!r}") from self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._stop = True
        self._thread.join()
        self._subscriber.close()
        self._publisher.close()
        if kind is None:
            self._raise()
