"""The server that was asked for, and its functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from interlock.engine.library import Library
from interlock.engine.operating import Word
from interlock.errors import Full, InterlockError, ShutDown
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError


class Server:
    """One connection."""

    def __init__(self, url: str) -> None:
        self.shown = url
        self._client = Client(url.replace("interlock://", "redis://"), name="interlock-cli")
        try:
            reply = self._command("FCALL", "il1_version", 0)
        except InterlockError as error:
            if "Function not found" not in str(error):
                raise
            self._command("FUNCTION", "LOAD", "REPLACE", Library().text)
            reply = self._command("FCALL", "il1_version", 0)
        self._features = {part.decode() for part in reply[2:]}

    def call(self, function: str, queue: str, *arguments: Word) -> Sequence[bytes]:
        """Calls a function on a queue."""
        reply = self._command("FCALL", f"il1_{function}", 1, f"il:{{{queue}}}", *arguments)
        return list(reply)

    def queues(self) -> Iterable[bytes]:
        """The names of all queues."""
        if "queues" in self._features:
            return list(self._command("FCALL", "il1_queues", 0))
        return self._scanned()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._client.close()

    def _command(self, *words: Word) -> Any:
        try:
            return self._client.call(*words)
        except ReplyError as error:
            kind = {"FULL": Full, "SEALED": ShutDown}.get(error.code, InterlockError)
            raise kind(str(error)) from None

    def _scanned(self) -> Iterator[bytes]:
        cursor: bytes = b"0"
        while True:
            cursor, keys = self._command("SCAN", cursor, "MATCH", "il:{*}:c", "COUNT", 512)
            for key in keys:
                name = key.removeprefix(b"il:{").removesuffix(b"}:c")
                if b"{" not in name and b"}" not in name:
                    yield name
            if cursor == b"0":
                return
