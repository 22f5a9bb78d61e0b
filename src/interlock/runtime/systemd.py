"""Messages between a service and systemd, and the sockets it passes. Needs no systemd library.

The protocol is sd_notify(3) and sd_listen_fds(3): datagrams to the socket that NOTIFY_SOCKET names,
and listening sockets from descriptor 3 on. The variables are removed from the environment, because
they are not meant for the children of this process.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping
from dataclasses import dataclass

Environment = MutableMapping[str, str]


class Notifier:
    """The connection to the service manager. Without one, every method does nothing."""

    def __init__(self, address: str = "", watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        """Seconds that the manager waits for a sign of life; None if it does not."""
        self._address = address

    @classmethod
    def of(cls, environment: Environment) -> Notifier:
        """Return the one that the environment names, and remove its variables."""
        address = environment.pop("NOTIFY_SOCKET", "")
        period = environment.pop("WATCHDOG_USEC", "")
        process = environment.pop("WATCHDOG_PID", "")
        # Set for the service's main process; its children see it too.
        wanted = address and period.isdecimal() and process in ("", str(os.getpid()))
        return cls(address, int(period) / 1e6 if wanted and int(period) else None)

    def __bool__(self) -> bool:
        return bool(self._address)

    def ready(self, status: str = "") -> None:
        """Report that the service serves; also that a reload has ended."""
        self.send("READY=1", f"MAINPID={os.getpid()}", *_status(status))

    def reloading(self) -> None:
        """Report that the service is reading its configuration again.

        `ready` ends it, whether the new configuration was accepted or not.
        """
        # This time lets the manager match READY with this reload rather than an earlier one.
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.send("RELOADING=1", f"MONOTONIC_USEC={now}")

    def stopping(self, status: str = "") -> None:
        """Report that the service is stopping, and ends when its answers are sent."""
        self.send("STOPPING=1", *_status(status))

    def status(self, text: str) -> None:
        """Set the line for `systemctl status`."""
        self.send(*_status(text))

    def alive(self) -> None:
        """Send a sign of life for the watchdog."""
        self.send("WATCHDOG=1")

    def send(self, *lines: str) -> bool:
        """Send one datagram, and return whether it was sent.

        A missing manager does not end the service.
        """
        if not self._address:
            return False
        # The name of a socket without a file begins with a zero.
        name = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end:
                end.settimeout(LONGEST_SEND)
                end.sendto("\n".join(lines).encode(), name)
        except OSError:
            return False
        return True


@dataclass(frozen=True)
class Handed:
    """A listening socket that was opened for this process."""

    descriptor: int
    name: str
    """As FileDescriptorName= of the socket's unit has it; `unknown` if it is not set."""


class NotUsable(Exception):
    """A socket passed by the manager cannot be served; the text says which, and why."""


def handed(environment: Environment) -> list[Handed]:
    """Return the sockets for this process, and remove them from the environment.

    Raises NotUsable if one is not a listening stream socket, or is missing.
    """
    process = environment.pop("LISTEN_PID", "")
    count = environment.pop("LISTEN_FDS", "")
    names = environment.pop("LISTEN_FDNAMES", "")
    environment.pop("LISTEN_PIDFDID", None)
    if process != str(os.getpid()):
        return []  # they belong to a parent process
    if not count.isdecimal():
        raise NotUsable(f"LISTEN_FDS is {count!r}; allowed: a whole number")
    known = names.split(":") if names else []
    found = []
    for place, descriptor in enumerate(range(FIRST, FIRST + int(count))):
        name = known[place] if place < len(known) else "unknown"
        _check(descriptor, name)
        os.set_inheritable(descriptor, False)
        found.append(Handed(descriptor, name))
    return found


def reach(descriptor: int) -> str:
    """Return the IP address that a TCP listener is bound to; empty for a unix socket."""
    with socket.socket(fileno=os.dup(descriptor)) as listener:
        if listener.family not in (socket.AF_INET, socket.AF_INET6):
            return ""
        return str(listener.getsockname()[0])


def _check(descriptor: int, name: str) -> None:
    which = f"socket {name!r} (descriptor {descriptor}), which was handed over,"
    try:
        with socket.socket(fileno=os.dup(descriptor)) as found:
            listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if found.type != socket.SOCK_STREAM or not listens:
                raise NotUsable(f"{which} is not a listening stream socket; "
                                "use ListenStream= with Accept=no")  # fmt: skip
    except OSError as error:
        raise NotUsable(f"{which} is not a socket: {error.strerror}") from None


def _status(text: str) -> tuple[str, ...]:
    # A line break would begin another variable.
    return (f"STATUS={' '.join(text.split())}",) if text else ()


FIRST = 3
LONGEST_SEND = 5.0
