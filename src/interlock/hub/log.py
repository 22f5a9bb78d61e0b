"""The log of `interlock hub`: standard error or a file that can be moved away and opened anew.

A hub inside a program logs to the logger `interlock.hub` and leaves the rest to the program.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from typing import TextIO

from interlock.explanation import JsonFormatter, PrintableFormatter
from interlock.hub.config import ConfigError, Configuration, Raw, fault

logger = logging.getLogger("interlock.hub")

FORMAT = "%(asctime)s %(levelname)s %(message)s"


class Log(logging.Handler):
    """Lines of the logger `interlock.hub`. A line that cannot be written is counted, and standard
    error is told once that the log is not whole; the hub goes on."""

    def __init__(self, path: str = "") -> None:
        super().__init__()
        self.path = path
        self.lost = 0
        self._stream: TextIO | None = None
        self._opening = threading.RLock()
        self.setFormatter(PrintableFormatter(FORMAT))

    @classmethod
    def set_up(cls, config: Configuration) -> Log:
        """Set up the log of a hub that is a process of its own, and return it.

        Raises OSError where the file cannot be written.
        """
        log = cls()
        log.write_as(config["log.format"])
        log.open(config["log.file"])
        logger.addHandler(log)
        logger.propagate = False
        logger.setLevel(config["log.level"].upper())
        # An operator's changes, whatever the level of the rest.
        audit = logging.getLogger("interlock.audit")
        audit.addHandler(log)
        audit.setLevel(logging.INFO)
        return log

    def apply(self, config: Configuration) -> None:
        """Follow another configuration. Raises ConfigError where the file cannot be written."""
        wanted = config["log.file"]
        if wanted != self.path:
            try:
                self.open(wanted)
            except OSError as error:
                found = Raw(wanted, config.origins["log.file"])
                allowed = f"a file that can be written ({error.strerror})"
                raise ConfigError((fault("log.file", found, allowed),)) from None
        self.write_as(config["log.format"])
        logger.setLevel(config["log.level"].upper())

    def write_as(self, form: str) -> None:
        """Write lines from now on as `text` or `json`."""
        self.setFormatter(JsonFormatter() if form == "json" else PrintableFormatter(FORMAT))

    def reopen(self) -> None:
        """Open the file anew, after somebody has moved it away.

        If it cannot be, go on as before and say so.
        """
        try:
            self.open()
        except OSError as error:
            logger.error("the log cannot be reopened, and continues as before: %s", error)

    def open(self, path: str | None = None) -> None:
        """Open it, or open it anew after somebody moved the file away; `path` is another file.

        Raises OSError, and goes on with what was open then.
        """
        wanted = self.path if path is None else path
        stream = open(wanted, "a", buffering=1, encoding="utf-8") if wanted else None  # noqa: SIM115
        with self._opening:
            before, self._stream, self.path = self._stream, stream, wanted
            if before is not None:
                _close(before)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            with self._opening:
                stream = self._stream or sys.stderr
                if stream is None:  # a program without standard streams
                    return
                stream.write(self.format(record) + "\n")
                stream.flush()
                if self.lost:
                    lost, self.lost = self.lost, 0
                    stream.write(f"{lost} lines before this one could not be written\n")
        except (OSError, ValueError) as error:
            self.lost += 1
            if self.lost == 1 and self.path:
                self._complain(error)

    def _complain(self, error: Exception) -> None:
        # If that fails too, there is nobody left to tell.
        with contextlib.suppress(OSError):
            print(f"interlock hub: cannot log to {self.path}: {error}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close the file."""
        with self._opening:
            if self._stream is not None:
                _close(self._stream)
                self._stream = None
        super().close()


def _close(stream: TextIO) -> None:
    # What could not be written was counted when it could not.
    with contextlib.suppress(OSError):
        stream.close()
