"""The part of a service manager for a hub: a socket for its words, and listeners handed over."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.hub.servers import INTERLOCK

# The process id must be in its environment before it becomes the hub.
HAND_OVER = """
import os, sys
handed, names, *command = sys.argv[1:]
for place, descriptor in enumerate(map(int, filter(None, handed.split(",")))):
    os.dup2(descriptor, 3 + place)
count = len(list(filter(None, handed.split(","))))
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(count), LISTEN_FDNAMES=names)
os.execv(command[0], command)
"""


class Manager:
    """The receiving end of sd_notify(3)."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(30)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.address = address

    def said(self) -> dict[str, str]:
        """The variables of the next datagram."""
        lines = self._socket.recv(1 << 16).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def until(self, name: str) -> dict[str, str]:
        """The next datagram that has this variable."""
        while name not in (said := self.said()):
            pass
        return said

    def close(self) -> None:
        self._socket.close()


@contextmanager
def manager(address: str) -> Iterator[Manager]:
    found = Manager(address)
    try:
        yield found
    finally:
        found.close()


def handed_over(
    listeners: Sequence[socket.socket], *flags: str, names: str = "", environment: dict[str, str]
) -> subprocess.Popen[str]:
    """`interlock hub` as a process that finds these sockets from descriptor 3 on."""
    # Far from 3, so that none is overwritten before it is moved.
    copies = [os.dup(listener.fileno()) for listener in listeners]
    raised = []
    try:
        for copy in copies:
            raised.append(raise_above(copy, 100))
        command = [sys.executable, "-c", HAND_OVER, ",".join(map(str, raised)), names]
        return subprocess.Popen(
            [*command, str(INTERLOCK), "hub", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=raised,
            env={**os.environ, **environment},
        )
    finally:
        for descriptor in (*copies, *raised):
            os.close(descriptor)


def raise_above(descriptor: int, least: int) -> int:
    """A copy of a descriptor with a number of at least `least`."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
