"""TLS for the client: a socket with the interface of a plain one."""

from __future__ import annotations

import socket
import ssl


class Socket(ssl.SSLSocket):
    """Raises the same error as other sockets if no data has arrived."""

    def recv(self, size: int = 1024, flags: int = 0) -> bytes:
        """Receive. Raises BlockingIOError if a non-blocking socket has no whole record yet."""
        try:
            return super().recv(size, flags)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None


def wrapped(connection: socket.socket, host: str, ca: str) -> socket.socket:
    """Return the connection with TLS.

    Raises ssl.SSLError, an OSError, if the server's certificate is not for `host` or not signed by
    the authority in the file `ca` (empty: one that this machine trusts).
    """
    context = ssl.create_default_context(cafile=ca or None)
    context.sslsocket_class = Socket
    return context.wrap_socket(connection, server_hostname=host)
