"""The thread that renews a client's leases, and gives back those that were dropped."""

from __future__ import annotations

import _thread
import logging
import queue as _queue
import threading
from typing import Any

from interlock.engine.call import Engine
from interlock.engine.renewal import LeaseRenewer
from interlock.engine.session import Session, run
from interlock.errors import EngineUnavailable

_log = logging.getLogger("interlock.queue")
_LONGEST = 3600.0
_AGAIN = 0.5
"""Seconds after which an engine that was not there is tried again."""


class LeaseThread:
    """A renewer, and the daemon thread that runs it; started when there is something to do.

    It knows nothing of the client, so that a client that is forgotten ends it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._bell: _queue.SimpleQueue[None] = _queue.SimpleQueue()
        self._started: dict[str, object] = {}
        self._stopped = False
        self._settling = threading.Lock()
        self.renewer = LeaseRenewer(self.ring)

    def settle_abandoned(self, session: Session[Any]) -> None:
        """Gives back what was dropped, or waits until somebody else has."""
        with self._settling:
            run(self.renewer.settle_abandoned(session), session)

    def ring(self) -> None:
        """Has the thread look; takes no lock, for destructors call it too."""
        me = object()
        if self._started.setdefault("thread", me) is me:
            try:
                # Not threading.Thread, whose start takes locks.
                _thread.start_new_thread(self._renew_leases, ())
            except RuntimeError:
                # The interpreter is ending, or there is no room for a thread.
                self._started.pop("thread", None)
        self._bell.put(None)

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped = True
        self._bell.put(None)

    def _renew_leases(self) -> None:
        threading.current_thread().name = "interlock-leases"
        session: Session[Any] = Session(self._engine.consumer(), self._engine.link)
        while not self._stopped:
            left = self._look(session)
            try:
                self._bell.get(timeout=None if left is None else min(left, _LONGEST))
            except _queue.Empty:
                continue
            while not self._bell.empty():
                self._bell.get()
        session.close()

    def _look(self, session: Session[Any]) -> float | None:
        # A function of its own, so that no name holds a lease while the thread sleeps.
        try:
            self.settle_abandoned(session)
            return run(self.renewer.tick(session), session)
        except EngineUnavailable as error:
            _log.warning("%s", error)
        except Exception:
            _log.exception("leases could not be renewed")
        return _AGAIN
