"""The output of `interlock worker`: its log, its begin and its end; as text or JSON."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from typing import Any

from interlock.explanation import PrintableFormatter


def set_up(given: argparse.Namespace) -> None:
    """Set up a log on standard error, unless the app has set up one of its own.

    Notice is info without the lines of handled messages, of which there may be many thousands a
    second: they are told to whom asks for info.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(Lines() if is_json(given) else PrintableFormatter(FORMAT))
    level = LOG_LEVELS[given.log_level]
    logging.basicConfig(level=level, handlers=[handler])
    if given.log_level in ("debug", "info"):
        from interlock.watch import tell_handled

        tell_handled(logging.INFO)
        log = logging.getLogger("interlock.queue")
        if not log.isEnabledFor(logging.INFO):
            # The log is the app's own, and set to less.
            log.setLevel(logging.INFO)


def is_json(given: argparse.Namespace) -> bool:
    """Return whether lines are written as JSON."""
    return bool(given.json) or given.log_format == "json"


def say(given: argparse.Namespace, text: str, *, data: bool = False, **facts: Any) -> None:
    """Say something of the worker as a whole, with ``data`` on standard output.

    ``facts`` go with it in JSON.
    """
    if is_json(given):
        line = as_json(time.time(), "info", LOGGER, text, facts)
    else:
        line = f"interlock worker: {text}"
    print(line, file=sys.stdout if data else sys.stderr, flush=True)


class Lines(logging.Formatter):
    """A record as one line of JSON, with all that it carries."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; see ``logging.Formatter``."""
        facts = {name: value for name, value in vars(record).items() if name not in STANDARD}
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            facts["exception"] = record.exc_text
        return as_json(
            record.created, record.levelname.lower(), record.name, record.getMessage(), facts
        )


def as_json(at: float, level: str, logger: str, message: str, facts: dict[str, Any]) -> str:
    """Return one line of JSON.

    What a program logs of its own may hold anything, and is then written as text.
    """
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    when = f"{whole}.{int(at % 1 * 1000):03}Z"
    head = {"time": when, "level": level, "logger": logger, "message": message}
    return json.dumps({**head, **facts, **head}, default=str)


LOG_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""The levels that can be asked for, and what each is to Python's log."""
LOGGER = "interlock.worker"
FORMAT = "%(asctime)s %(levelname)s %(message)s"
STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime"}
