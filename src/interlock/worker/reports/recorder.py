"""Records the messages that a worker handles, as a trace that ``interlock replay`` reads.

A line is written when a handler has ended: the message, and the times of its put, its lease and its
end, all by the engine's clock, so that recordings of several machines fit together. (The put time
is the message's id, the lease time its token. The offset of this machine's monotonic clock is taken
from the message that arrived fastest.) Several workers may append to one file: each write consists
of whole lines.

A share of the messages is chosen by their keys, the same in each worker: a recorded message is
recorded together with everything it waits for on that key.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from typing import Any

import msgspec

from interlock.worker.message.execution import TaskLease
from interlock.worker.reports.audit import Audit
from interlock.worker.settings import Recording

__all__ = ["Recorder"]

_log = logging.getLogger("interlock.worker")


class Recorder:
    """The recorder of one worker; it passes events on to the auditor if there is one."""

    def __init__(self, recording: Recording, audit: Audit | None, worker: str) -> None:
        """Open the file, creating it if it does not exist. Raises OSError."""
        self._recording, self._audit, self._worker = recording, audit, worker
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file: int | None = os.open(recording.file, flags, 0o600)
        self._lock = threading.Lock()
        self._begun: dict[tuple[str, int, int], float] = {}
        self._lines = bytearray()
        self._written = time.monotonic()
        self._most = int(recording.sample * 2**64)
        self._offset: float | None = None
        """Offset in seconds from the engine's clock to the monotonic one."""

    @property
    def violations(self) -> int:
        """See ``Audit``."""
        return self._audit.violations if self._audit else 0

    def begun(self, held: TaskLease) -> None:
        """See ``Audit``."""
        if self._audit is not None:
            self._audit.begun(held)
        if self._file is not None and self._is_chosen(held):
            self._begun[held.queue, held.id, held.token] = time.monotonic()

    def ended(self, held: TaskLease) -> None:
        """See ``Audit``."""
        began = self._begun.pop((held.queue, held.id, held.token), None)
        if began is not None:
            now = time.monotonic()
            try:
                line = self._line(held, began, now)
            except Exception:
                # The message is handled and settled all the same.
                _log.exception("a message could not be recorded; the worker continues")
            else:
                self._add(line, now)
        if self._audit is not None:
            self._audit.ended(held)

    def withdrawn(self, held: TaskLease) -> None:
        """See ``Audit``."""
        self._begun.pop((held.queue, held.id, held.token), None)
        if self._audit is not None:
            self._audit.withdrawn(held)

    def close(self) -> None:
        """Write the remaining lines, and close the file."""
        with self._lock:
            self._write()
            self._end()
        if self._audit is not None:
            self._audit.close()

    def _is_chosen(self, held: TaskLease) -> bool:
        if self._recording.sample == 1.0:
            return True
        keys = held.keys | held.shared or {b"%d" % held.id}
        return any(
            int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") < self._most
            for key in keys
        )

    def _started(self, leased: float, began: float) -> float:
        """Return the engine's time at which a handler began."""
        behind = began - leased
        if self._offset is None or not 0 <= behind - self._offset < SET_ANEW:
            # Faster than all before it; or the engine's clock was set.
            self._offset = behind
        return began - self._offset

    def _line(self, held: TaskLease, began: float, now: float) -> bytes:
        leased, took = held.token / 1e6, now - began
        started = self._started(leased, began)
        found: dict[str, Any] = {
            "id": f"{held.queue}/{held.id}",
            "time": held.id / 1e6,
            "keys": [_key(key) for key in sorted(held.keys)],
            "shared": [_key(key) for key in sorted(held.shared)],
            "place": held.sequence,
            "attempt": held.attempt,
            "took": round(took, 6),
            "leased": leased,
            "started": round(started, 6),
            "ended": round(started + took, 6),
            "queue": held.queue,
            "task": held.task,
            "worker": self._worker,
        }
        if self._recording.payloads:
            found["payload"] = _arguments(held.payload)
        return _encode(found) + b"\n"

    def _add(self, line: bytes, now: float) -> None:
        with self._lock:
            self._lines += line
            if len(self._lines) >= MUCH or now - self._written >= LONGEST:
                self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        lines, self._lines = self._lines, bytearray()
        if self._file is None or not lines:
            return
        recording = self._recording
        try:
            full = os.fstat(self._file).st_size + len(lines) > recording.limit
            written = 0 if full else os.write(self._file, lines)
            if written == len(lines):
                return
            if written:
                self._cut(written - lines.rfind(b"\n", 0, written) - 1)
            why = f"it would be larger than {recording.limit} bytes" if full else "the disk is full"
        except OSError as error:
            why = str(error)
        _log.warning("recording to %s has ended: %s", recording.file, why)
        self._end()

    def _cut(self, rest: int) -> None:
        """Remove the beginning of a line that did not fit, unless another worker has appended after
        it.

        Otherwise the file would be unreadable.
        """
        assert self._file is not None
        end = os.lseek(self._file, 0, os.SEEK_CUR)
        if os.fstat(self._file).st_size == end:
            os.ftruncate(self._file, end - rest)

    def _end(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._begun.clear()


def _key(key: bytes) -> str:
    text = key.decode(errors="backslashreplace")
    if len(text.encode()) > LONGEST_KEY:
        return hashlib.blake2b(key, digest_size=16).hexdigest()
    return text


def _arguments(payload: bytes) -> Any:
    """Return the printable part of a call; None if the message is not a call."""
    try:
        found = msgspec.msgpack.decode(payload)
        _encode(found)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError, ValueError):
        return None
    return {name: found.get(name) for name in ("args", "kwargs")} if type(found) is dict else None


MUCH = 32 * 1024
"""Buffered bytes at which lines are written."""
LONGEST = 1.0
"""Seconds after which buffered lines are written, with the next message."""
SET_ANEW = 60.0
"""Seconds; if a message begins later than this after its lease, the clock was set."""
LONGEST_KEY = 1024
_encode = msgspec.json.Encoder().encode
