"""The stacks of running workers' handlers: each worker answers on a Unix socket, in JSON."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interlock.worker.reports.runtime_folder import runtime_folder

__all__ = ["Answering", "ask_all"]


class Answering:
    """The socket of one worker; a context manager."""

    def __init__(self, tell: Callable[[], dict[str, Any]]) -> None:
        self._tell = tell
        self._path = _folder() / f"{os.getpid()}.sock"
        self._listener: socket.socket | None = None

    def __enter__(self) -> Answering:
        # A dead process with the same number may have left its socket.
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._listener.bind(str(self._path))
        os.chmod(self._path, 0o600)
        self._listener.listen(4)
        threading.Thread(target=self._run, name="interlock-stacks", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._listener is not None:
            self._path.unlink(missing_ok=True)
            self._listener.close()

    def _run(self) -> None:
        assert self._listener is not None
        while True:
            try:
                asking, _ = self._listener.accept()
            except OSError:
                return
            with asking, contextlib.suppress(OSError):
                asking.settimeout(LONGEST_ANSWER)
                asking.sendall(json.dumps(self._tell(), default=str).encode())


def ask_all(process: int | None = None) -> list[dict[str, Any]]:
    """Return the answer of each worker of this user, or of the one with this process id, by process
    id."""
    found = []
    for path in sorted(_folder().glob("*.sock"), key=lambda path: path.stem.zfill(10)):
        if process is not None and path.stem != str(process):
            continue
        answer = _ask(path)
        if answer is not None:
            found.append(answer)
    return found


def _ask(path: Path) -> dict[str, Any] | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(LONGEST_ANSWER)
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            # Left by a killed worker.
            path.unlink(missing_ok=True)
            return None
        except OSError:
            return None
        parts = []
        try:
            while part := asking.recv(65536):
                parts.append(part)
            answer: dict[str, Any] = json.loads(b"".join(parts))
        except (OSError, ValueError) as error:
            return {"process": int(path.stem), "error": f"does not answer: {error}", "handlers": []}
        return answer


def _folder() -> Path:
    folder = runtime_folder() / "workers"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


LONGEST_ANSWER = 10.0
