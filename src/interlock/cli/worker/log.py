"""The output of `interlock worker`: its log, its start and its end; as text or JSON."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from typing import Any

from interlock.explanation import JsonFormatter, PrintableFormatter, json_line


def set_up(given: argparse.Namespace) -> None:
    """Set up a log on standard error, unless the app has set up its own.

    Notice is info without the lines of handled messages, which may number many thousands a second:
    level info logs them.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if is_json(given) else PrintableFormatter(FORMAT))
    level = LOG_LEVELS[given.log_level]
    logging.basicConfig(level=level, handlers=[handler])
    if given.log_level in ("debug", "info"):
        from interlock.watch import tell_handled

        tell_handled(logging.INFO)
        log = logging.getLogger("interlock.queue")
        if not log.isEnabledFor(logging.INFO):
            # The log is the app's own, at a lower level.
            log.setLevel(logging.INFO)


def is_json(given: argparse.Namespace) -> bool:
    """Return whether lines are written as JSON."""
    return bool(given.json) or given.log_format == "json"


def say(given: argparse.Namespace, text: str, *, data: bool = False, **facts: Any) -> None:
    """Report an event of the whole worker, with ``data`` on standard output.

    In JSON, ``facts`` are added to it.
    """
    if is_json(given):
        line = json_line(time.time(), "info", LOGGER, text, facts)
    else:
        line = f"interlock worker: {text}"
    print(line, file=sys.stdout if data else sys.stderr, flush=True)


LOG_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""The levels to choose from, with their Python levels."""
LOGGER = "interlock.worker"
FORMAT = "%(asctime)s %(levelname)s %(message)s"
