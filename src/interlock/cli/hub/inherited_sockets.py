"""The sockets that a service manager opened for the hub, if it may serve them."""

from __future__ import annotations

import ipaddress
import os

from interlock.hub.config.configuration import GUARDED, Configuration, is_guarded
from interlock.runtime import systemd


def sockets(checked: Configuration) -> list[int]:
    """Return the descriptors of the inherited sockets.

    Without such a manager there are none. Raises systemd.NotUsable for a socket that the hub cannot
    serve, and for one that other machines can reach if the configuration does not allow that.
    """
    found = systemd.handed(os.environ)
    for socket in found:
        host = systemd.reach(socket.descriptor)
        loopback = not host or ipaddress.ip_address(host).is_loopback
        if not (loopback or checked["unprotected"] or is_guarded(checked.values)):
            raise systemd.NotUsable(
                f"socket {socket.name!r} (descriptor {socket.descriptor}), which was handed over, "
                f"listens on {host}; allowed: {GUARDED}"
            )
    return [socket.descriptor for socket in found]
