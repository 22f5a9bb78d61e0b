"""Clients of other languages, each a program that reads requests and prints answers line by line.

In goes a verb and its words, parted by blanks:

    version ping id name info unknown    what the client and the server say; a command nobody knows
    publish CHANNEL DATA                 spublish: to a shard channel
    pipeline CHANNEL COUNT               publishes 0, 1, ... in one pipeline
    subscribe CHANNEL ...                psubscribe, ssubscribe; unsubscribe and its like

Out come, parted by tabs, `= REPLY` or `! TYPE MESSAGE` for each verb, in order, and among them:

    connected                        once, first
    message PATTERN CHANNEL DATA     what was received; by a channel, with PATTERN empty
    again                            after a loss, all that was subscribed to is so again
    trouble TEXT                     an error that belongs to no verb
"""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.hub.protocol.foreign_builds import JVM_OPTIONS, SOURCES, node

LIMIT_SECONDS = 20.0
Message = tuple[str, str, str]


@dataclass(frozen=True)
class Library:
    """A library for clients: what its program is, and what it calls an error of the server."""

    name: str
    language: str
    manifest: str
    error: str
    command: Callable[[Path], list[Path | str]]
    shards: bool = True
    # The protocols in which it asks for notices of a move to another server. Redis 7.0 does not
    # know that either: it is refused, and continues without.
    asks_for_maintenance: tuple[str, ...] = ()

    def pins(self) -> str:
        """The file that says which version is built with."""
        return (SOURCES / self.language / self.manifest).read_text()


def java(folder: Path, classes: str, *words: str) -> list[Path | str]:
    """A program of Java; the first word is its class."""
    return ["java", *JVM_OPTIONS, "-cp", f"{folder / classes}:{folder / 'libraries'}/*", *words]


LIBRARIES = (
    Library("ioredis", "node", "package.json", "SimpleError",
            lambda at: [node(), at / "ioredis.js"]),
    Library("node-redis", "node", "package.json", "SimpleError",
            lambda at: [node(), at / "node_redis.js"]),
    Library("go-redis", "go", "go.mod", "redis.Error", lambda at: [at / "program"],
            asks_for_maintenance=("RESP3",)),
    # Its client for one server knows no shard channels.
    Library("jedis", "java", "pom.xml", "JedisDataException",
            lambda at: java(at, "classes", "Main", "jedis"), shards=False),
    Library("lettuce", "java", "pom.xml", "RedisCommandExecutionException",
            lambda at: java(at, "classes", "Main", "lettuce"),
            asks_for_maintenance=("RESP3", "RESP2")),
)  # fmt: skip


class ErrorReply(Exception):
    """The error that the library raised; `kind` is its type there."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Foreign:
    """A running program. Its standard error is in the report of the test."""

    def __init__(self, words: list[Path | str]) -> None:
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._replies: queue.Queue[list[str] | None] = queue.Queue()
        self._messages: queue.Queue[list[str] | None] = queue.Queue()
        self._signs: queue.Queue[list[str] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        queues = {"=": self._replies, "!": self._replies, "message": self._messages}
        for line in self.process.stdout:
            words = line.removesuffix("\n").split("\t")
            queues.get(words[0], self._signs).put(words)
        # Waiting readers learn that nothing follows.
        for each in (self._replies, self._messages, self._signs):
            each.put(None)

    def send(self, *words: object) -> None:
        """Tell a verb without waiting for what comes of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")

    def reply(self) -> str:
        """The answer to the first verb that was not answered yet."""
        mark, *words = self._next(self._replies, "reply")
        if mark == "!":
            raise ErrorReply(words[0], words[1])
        return words[0]

    def ask(self, *words: object) -> str:
        self.send(*words)
        return self.reply()

    def message(self) -> Message:
        _, pattern, channel, data = self._next(self._messages, "message")
        return pattern, channel, data

    def messages(self, count: int) -> list[Message]:
        return [self.message() for _ in range(count)]

    def nothing_left(self) -> bool:
        """Return whether all that it has printed so far was looked at."""
        return self._messages.empty() and self._signs.empty()

    def wait_for(self, sign: str) -> None:
        """Read signs until this one; troubles on the way are what a loss brings."""
        # For all of them: one that cannot connect has a trouble to tell with each attempt.
        end = time.monotonic() + LIMIT_SECONDS
        while (words := self._next(self._signs, sign, end - time.monotonic()))[0] != sign:
            assert words[0] == "trouble", words

    def _next(
        self, source: queue.Queue[list[str] | None], what: str, limit: float = LIMIT_SECONDS
    ) -> list[str]:
        try:
            found = source.get(timeout=max(limit, 0))
        except queue.Empty:
            raise AssertionError(f"no {what} came in {LIMIT_SECONDS:g} s") from None
        assert found is not None, f"the program ended before a {what} came"
        return found

    def close(self) -> int:
        """End it as its own user would: its input is at an end, it closes, and answers its code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(LIMIT_SECONDS)

    def end(self) -> None:
        """Whatever happened to it, it is gone."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            # Unread input does not matter.
            with suppress(BrokenPipeError):
                stream.close()


@contextmanager
def connected(library: Library, built: Path, port: int, protocol: str) -> Iterator[Foreign]:
    """A program whose client is connected; `protocol` is 2, or `default`: the library's choice."""
    program = Foreign([*library.command(built), str(port), protocol, NAME])
    try:
        program.wait_for("connected")
        yield program
    finally:
        program.end()


NAME = "a-client"
