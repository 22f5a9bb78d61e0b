"""A small HTTP server for pages that are quick to make: a bounded number of threads, GET and HEAD.

A slow client delays no other: beyond the bound the oldest connection is closed for the newest.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from interlock.hub.url import shown


@dataclass(frozen=True)
class Page:
    """A response."""

    body: str
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


Pages = Callable[[str, str], Page | None]
"""Function that returns the page at a path (with a leading slash) and a query, or None."""


class HttpServer:
    """Listens once created, answers from `start` on, until `close`."""

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        """Listen. Raises OSError, which names the address, if it cannot."""
        self._pages = pages
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            reason = f"cannot listen on http {shown(host, port)}: {error.strerror}"
            raise OSError(error.errno, reason) from None
        self.address = shown(*self._listener.getsockname()[:2])
        """`host:port`, with the actual port if 0 was requested."""
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._free = threading.Semaphore(MOST_CONNECTIONS)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Answer, on threads of its own."""
        self._thread = threading.Thread(target=self._accept, name="hub-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections, and end the threads."""
        self._closed.set()
        if self._thread is not None:
            # Ends the waiting accept; closing alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._thread = None
            for _ in range(MOST_CONNECTIONS):
                self._take_place()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                # Out of descriptors: the waiting connection would be retried immediately.
                self._closed.wait(PAUSE)
                continue
            self._take_place()
            with self._lock:
                self._open[connection] = None
            answer = threading.Thread(target=self._answer, args=(connection,), daemon=True)
            try:
                answer.start()
            except RuntimeError:  # the process cannot start more threads
                self._end(connection)

    def _take_place(self) -> None:
        """Have one connection less than the maximum."""
        if self._free.acquire(blocking=False):
            return
        with self._lock:
            oldest = next(iter(self._open), None)
            if oldest is not None:
                # Its thread stops waiting, and ends. It closes the socket itself, so that the
                # descriptor is never another connection's.
                del self._open[oldest]
                _shut(oldest)
        self._free.acquire()

    def _answer(self, connection: socket.socket) -> None:
        try:
            Handler(connection, self._pages)
        except OSError:
            pass  # it has closed, or was too slow
        finally:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.pop(connection, None)
            connection.close()
        self._free.release()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # before it, responses had no status line
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"
    timeout = 5.0
    wbufsize = 1 << 16  # head and body in one packet

    def __init__(self, connection: socket.socket, pages: Pages) -> None:
        self._pages = pages
        super().__init__(connection, ("", 0), None)  # type: ignore[arg-type]  # it is not looked at

    def do_GET(self) -> None:  # noqa: D102
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            # Left unread, it would be taken for the next request.
            self.close_connection = True
        path, _, query = self.path.partition("?")
        page = self._pages(path, query)
        if page is None:
            page = Page(f"there is no {self.path!r}\n", status=HTTPStatus.NOT_FOUND)
        body = page.body.encode()
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self.close_connection = True
        self.send_response(HTTPStatus.METHOD_NOT_ALLOWED)
        self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def version_string(self) -> str:
        """Return the value of the header Server."""
        return "interlock"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests that come every few seconds are not news."""


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # the client was quicker
        connection.shutdown(socket.SHUT_RDWR)


MOST_CONNECTIONS = 16
BACKLOG = 64
PAUSE = 0.05
