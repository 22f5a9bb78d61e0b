"""The log of `interlock hub`: standard error or a file, which can be moved away and reopened.

A hub inside a program logs to the logger `interlock.hub` and leaves handlers to the program.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from typing import TextIO

from interlock.explanation import JsonFormatter, PrintableFormatter
from interlock.hub.config.configuration import ConfigError, Configuration, Raw, fault

logger = logging.getLogger("interlock.hub")

FORMAT = "%(asctime)s %(levelname)s %(message)s"


class Log(logging.Handler):
    """Lines of the logger `interlock.hub`. A line that cannot be written is counted, and standard
    error reports once that the log is incomplete; the hub keeps running."""

    def __init__(self, path: str = "") -> None:
        super().__init__()
        self.path = path
        self.lost = 0
        self._stream: TextIO | None = None
        self._opening = threading.RLock()
        self._loggers: tuple[logging.Logger, ...] = (logger,)
        self.setFormatter(PrintableFormatter(FORMAT))

    @classmethod
    def set_up(cls, config: Configuration, *others: logging.Logger) -> Log:
        """Set up the log of a hub in its own process, and return it.

        Args:
            config: its format, file and level.
            others: loggers whose lines it has, too.

        Raises OSError if the file cannot be written.
        """
        log = cls()
        log._loggers += others
        log.write_as(config["log.format"])
        log.open(config["log.file"])
        for one in log._loggers:
            one.addHandler(log)
            one.propagate = False
            one.setLevel(config["log.level"].upper())
        # An operator's changes, whatever the level of the rest.
        audit = logging.getLogger("interlock.audit")
        audit.addHandler(log)
        audit.setLevel(logging.INFO)
        return log

    def take_down(self) -> None:
        """Undo `set_up`, for a process that continues without a hub."""
        for one in self._loggers:
            one.removeHandler(self)
            one.setLevel(logging.NOTSET)
            one.propagate = True
        logging.getLogger("interlock.audit").removeHandler(self)
        self.close()

    def apply(self, config: Configuration) -> None:
        """Follow another configuration. Raises ConfigError if the file cannot be written."""
        wanted = config["log.file"]
        if wanted != self.path:
            try:
                self.open(wanted)
            except OSError as error:
                found = Raw(wanted, config.origins["log.file"])
                allowed = f"a file that can be written ({error.strerror})"
                raise ConfigError((fault("log.file", found, allowed),)) from None
        self.write_as(config["log.format"])
        for one in self._loggers:
            one.setLevel(config["log.level"].upper())

    def write_as(self, form: str) -> None:
        """Write lines from now on as `text` or `json`."""
        self.setFormatter(JsonFormatter() if form == "json" else PrintableFormatter(FORMAT))

    def reopen(self) -> None:
        """Reopen the file, after it was moved away.

        If that fails, keep the open file and report the error.
        """
        try:
            self.open()
        except OSError as error:
            logger.error("the log cannot be reopened, and the old file is kept open: %s", error)

    def open(self, path: str | None = None) -> None:
        """Open the file, or reopen it after it was moved away; `path` is another file.

        Raises OSError, and keeps the file that was open then.
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
        # If that fails too, the error cannot be reported anywhere.
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
    # Unwritable lines were counted when writing failed.
    with contextlib.suppress(OSError):
        stream.close()
