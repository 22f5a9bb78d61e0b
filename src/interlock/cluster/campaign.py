"""The thread that stands for the primary's lease, and says when it is held and when it is gone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from interlock.cluster.machine import Machine
from interlock.engine.client import Client
from interlock.errors import InterlockError

logger = logging.getLogger("interlock.cluster")
LOOK = 0.02
"""Seconds between two looks at whether the lease is held still."""
PAUSE = 0.2


class Campaign:
    """Stands for the lease whenever the node may."""

    def __init__(
        self,
        client: Client,
        name: str,
        machine: Machine,
        lock: threading.RLock,
        lease: float,
        may: Callable[[], bool],
        address: Callable[[], str],
        identity: str,
    ) -> None:
        self.error = ""
        self._leader = client.leader(name, ttl=lease, identity=identity)
        self._machine = machine
        self._lock = lock
        self._may = may
        self._address = address
        self._resigns = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-campaign", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Give the lease back, and end."""
        self._ends.set()
        self._resigns.set()
        self._thread.join()

    def resign(self) -> None:
        """Give the lease back, if it is held."""
        self._resigns.set()

    def _run(self) -> None:
        while not self._ends.is_set():
            if not self._may():
                self._ends.wait(LOOK)
                continue
            try:
                self._stand()
                self.error = ""
            except TimeoutError:
                continue
            except (InterlockError, OSError) as error:
                if not self.error:
                    logger.warning("nobody can be elected just now: %s", error)
                self.error = str(error)
                self._ends.wait(PAUSE)

    def _stand(self) -> None:
        with self._leader.campaign(timeout=1.0) as term:
            self._resigns.clear()
            with self._lock:
                if self._ends.is_set() or not self._may():
                    return
                self._machine.elected(term.token, self._address())
            try:
                while term.is_held and not self._resigns.wait(LOOK):
                    pass
            finally:
                with self._lock:
                    why = "it handed over" if term.is_held else "the lease was lost"
                    self._machine.lost(why)
