"""Signals of a process that runs a hub: reload, reopen the log, stop."""

from __future__ import annotations

import logging
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

from interlock.hub.config import configuration as config

if TYPE_CHECKING:
    from interlock.hub.serve.log import Log
    from interlock.hub.serve.server import Hub
    from interlock.runtime.systemd import Notifier

logger = logging.getLogger("interlock.hub")


def block(undo: ExitStack) -> None:
    """Block the signals that `follow` waits for, until `undo` is closed.

    To be called before the first thread starts, so that all threads leave signals to this one.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    undo.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)


def follow(hub: Hub, log: Log, notifier: Notifier) -> None:
    """Reload on HUP and reopen files on USR1, until INT or TERM."""
    while (number := signal.sigwait(AWAITED)) in RETURNING:
        if number == signal.SIGUSR1:
            log.reopen()
            hub.rotate()
            continue
        notifier.reloading()
        _reload(hub)
        notifier.ready()


def end_at_next(hub: Hub) -> None:
    """Let a second INT or TERM end the process immediately, while the hub drains."""
    # The command SHUTDOWN has no effect any more, and does not count as a second signal.
    hub.on_shutdown = lambda: None
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def _reload(hub: Hub) -> None:
    """Read the configuration again; an invalid one changes nothing."""
    try:
        hub.reload()
    except config.ConfigError as error:
        for fault in error.faults:
            logger.error("the configuration is refused: %s", fault)
    except OSError as error:
        logger.error("the configuration cannot be read: %s", error)


STOPPING = (signal.SIGINT, signal.SIGTERM)
RETURNING = (signal.SIGHUP, signal.SIGUSR1)
AWAITED = (*STOPPING, *RETURNING)
