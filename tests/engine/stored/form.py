"""A queue with something of everything: how it is made, written down, and asked."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import redis

from tests.engine.calls import LONG, message
from tests.engine.timed import TimedQueue

FOLDER = Path(__file__).parent
Command = list[str]
"""Each argument in base64: they are any bytes."""


def made(queue: TimedQueue) -> None:
    """Fills it by calls of the wire."""
    queue.call("configure", "MAXSIZE", 500, "ATTEMPTS", 2, "THEN", "hold", "FIRST", 1000)
    queue.call("put", "p", 1, 0, *message("plain"), *message("keyed", ["a"]))
    queue.put(message("behind", ["a", "b"]), message("reads", [], ["b"]), message("\x00" * 3000))
    queue.put(message("later", ["c"], delay=50_000_000), message("first", priority=9))
    queue.put(message("once", ["d"], dedup="d1", result=900_000_000))
    queue.put(message("long" * 800, ["e"]), message("last", barrier=1), message("after", ["z"]))
    one, two = (queue.lease(1, 40_000_000).messages[0] for _ in range(2))
    queue.settle(one.reject("no good"))
    queue.settle(two.nack(30_000_000, "not yet"))
    queue.call("lease", "w", 7, 0, 2, 90_000_000, "keyed")
    done = queue.lease(1, kind="unkeyed").messages[0]
    queue.settle(["DONE", done.token, done.id, "result"])
    queue.call("pause", "z")
    queue.at(5)


def answers(queue: TimedQueue) -> list[list[str]]:
    """Reads all state of the queue, then uses it further, and returns the answers."""
    told = [queue.call("stats"), queue.call("configure"), sorted(queue.call("scan", 0, 1000))]
    told += [queue.call("dead_letters", 10, ""), queue.call("paused", 0)]
    # Calls that are sent again.
    told.append(queue.call("put", "p", 1, 0, *message("plain"), *message("keyed", ["a"])))
    told.append(queue.call("lease", "w", 7, 0, 2, 90_000_000, "keyed"))
    told.append(queue.call("put", "p", 2, 0, *message("once", ["d"], dedup="d1")))
    token, *_ = leased = queue.call("lease", "w", 7, 0, 2, 90_000_000, "keyed")
    told.append(queue.call("settle", "w", 8, "ACK", token, leased[4]))
    queue.at(60_000_000)
    told.append(queue.call("lease", "w", 9, 0, 100, LONG, "any"))
    queue.at(100_000_000)
    told += [queue.call("lease", "w", 10, 0, 100, LONG, "any"), queue.call("stats")]
    return told


def written(connection: redis.Redis) -> list[Command]:
    """The commands that make all keys of a server again."""
    found: Any = connection
    commands: list[list[bytes]] = []
    for key in sorted(found.keys()):
        kind = found.type(key)
        parts: list[bytes]
        if kind == b"hash":
            parts = [part for pair in sorted(found.hgetall(key).items()) for part in pair]
            commands.append([b"HSET", key, *parts])
        elif kind == b"list":
            commands.append([b"RPUSH", key, *found.lrange(key, 0, -1)])
        elif kind == b"zset":
            scored = found.zrange(key, 0, -1, withscores=True)
            parts = [part for name, score in scored for part in (b"%d" % score, name)]
            commands.append([b"ZADD", key, *parts])
        elif kind == b"set":
            commands.append([b"SADD", key, *sorted(found.smembers(key))])
        else:
            commands.append([b"SET", key, found.get(key)])
    return [[base64.b64encode(part).decode() for part in command] for command in commands]


def text_of(commands: list[Command], told: list[list[str]]) -> str:
    """The file: a line for each command and for each answer."""
    lines = [json.dumps({"command": command}) for command in commands]
    lines += [json.dumps({"answer": answer}) for answer in told]
    return "\n".join(lines) + "\n"


def read(path: Path) -> tuple[list[list[bytes]], list[list[str]]]:
    """Commands and answers of a file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    commands = [
        [base64.b64decode(part) for part in line["command"]] for line in lines if "command" in line
    ]
    return commands, [line["answer"] for line in lines if "answer" in line]
