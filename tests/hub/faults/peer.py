"""A publisher or a subscriber as a process of its own, to be stopped, paused and killed.

    python -m tests.hub.faults.peer publish ADDRESS NUMBER
    python -m tests.hub.faults.peer subscribe ADDRESS RECORD MODE

A publisher says `ready`, and for each line with a number publishes that many in one batch, and
prints its total.

A subscriber says `ready`, and appends to RECORD eight bytes for each message and each count of
missed ones, at the end of each read, so that nothing of it is lost when it is killed. MODE is
`drop` or `close`. Given a line with a number, it ends once it has received or missed that many; it
ends also when it is disconnected.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import sys
from pathlib import Path

from interlock.hub.client import Client, connect
from interlock.hub.resp import command
from interlock.hub.url import parse

TOPIC = "load"
LENGTH = 1000
MISSED = 1 << 63
# A small buffer in the kernel: what it does not take is owed by the hub.
RECEIVED = 64 << 10


def publish(address: str, number: int) -> None:
    published = 0
    with Client(address, timeout=300) as client:
        print("ready", flush=True)
        for line in sys.stdin:
            counts = range(published, published + int(line))
            replies = client.pipeline(
                [("PUBLISH", TOPIC, payload(number, count)) for count in counts]
            )
            published += sum(isinstance(reply, int) for reply in replies)
            print(published, flush=True)


def payload(number: int, count: int) -> bytes:
    return (b"%04d:%010d:" % (number, count)).ljust(LENGTH, b"x")


def subscribe(address: str, record: str, mode: str) -> None:
    connection = connect(parse(address), 30)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)
    connection.sendall(command("HELLO", 3))
    connection.sendall(command("CLIENT", "SLOW", mode))
    connection.sendall(command("SUBSCRIBE", TOPIC))
    confirmed = b">3\r\n$9\r\nsubscribe\r\n$4\r\nload\r\n:1\r\n"
    heard = b""
    while confirmed not in heard:
        heard += connection.recv(1 << 16)
    print("ready", flush=True)
    file = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    received = missed = 0
    target: int | None = None
    rest = heard.partition(confirmed)[2]
    connection.settimeout(None)
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        ended = False
        while not ended and (target is None or received + missed < target):
            for key, _ in selector.select():
                if key.fd == sys.stdin.fileno():
                    target = int(sys.stdin.readline())
                    selector.unregister(sys.stdin)
                    continue
                try:
                    data = connection.recv(1 << 18)
                except ConnectionResetError:
                    data = b""
                ended = not data
                found, told, rest = taken(rest + data)
                os.write(file, b"".join(one.to_bytes(8, "big") for one in found))
                received += len(found) - told
                missed += sum(one - MISSED for one in found if one >= MISSED)
    print(json.dumps({"received": received, "missed": missed, "ended": ended}), flush=True)


HEAD = b">3\r\n$7\r\nmessage\r\n$4\r\nload\r\n$%d\r\n" % LENGTH
FRAME = len(HEAD) + LENGTH + 2
TOLD = re.compile(rb">3\r\n\$6\r\nmissed\r\n\$0\r\n\r\n:(\d+)\r\n")


def taken(data: bytes) -> tuple[list[int], int, bytes]:
    """The complete records in it, the number of those that report missed messages, and the rest.

    All frames of messages have one length, which is what makes this quick enough.
    """
    found, told, at = [], 0, 0
    while at < len(data):
        if data.startswith(HEAD, at):
            if len(data) - at < FRAME:
                break
            text = data[at + len(HEAD) : at + len(HEAD) + 15]
            found.append(int(text[:4]) << 40 | int(text[5:15]))
            at += FRAME
        elif match := TOLD.match(data, at):
            found.append(MISSED + int(match[1]))
            told += 1
            at = match.end()
        elif len(data) - at >= FRAME:
            raise AssertionError(f"neither a message nor a count: {data[at : at + 100]!r}")
        else:
            break
    return found, told, data[at:]


def recorded(path: Path) -> list[int]:
    """The numbers that a subscriber noted, as far as they were written whole."""
    data = path.read_bytes() if path.exists() else b""
    return [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data) - 7, 8)]


if __name__ == "__main__":
    if sys.argv[1] == "publish":
        publish(sys.argv[2], int(sys.argv[3]))
    else:
        subscribe(*sys.argv[2:5])
