"""The push service: it reads the table of its machine's node in memory, many times a second.

Its writes go through the cluster, like all writes.

python push_service.py --cluster interlock+cluster://127.0.0.1:6379/online --table a1.table
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import web
from interlock import RemoteTable, SharedTable, connect
from users import TABLE, Presence

PAGE = Path(__file__).with_name("page.html")
LOOK = 0.1
"""Seconds between two looks at who is online, for each page that is open."""
SILENCE = 2.0
"""Seconds between two messages to a page, which show whether it is still open."""


class Pushes:
    """Calls and pages of apps."""

    def __init__(
        self, here: SharedTable[Presence], cluster: RemoteTable[Presence], login: str
    ) -> None:
        self._here = here
        self._cluster = cluster
        self._login = login

    def message(self, words: web.Words) -> HTTPStatus:
        """Count a message for a user who is online. A real service would send it as well."""
        to = words["user"]
        if to not in self._here:  # a look into memory
            return HTTPStatus.NOT_FOUND
        try:
            self._cluster.incr(to, "unread")
        except KeyError:  # gone since
            return HTTPStatus.NOT_FOUND
        return HTTPStatus.OK

    def read(self, words: web.Words) -> HTTPStatus:
        """Have nothing be unread; what is counted meanwhile stays."""
        user = words["user"]
        while (row := self._cluster.get(user)) is not None:
            if self._cluster.compare_and_set(user, "unread", row.unread, 0):
                return HTTPStatus.OK
        return HTTPStatus.NOT_FOUND

    def page(self, handler: BaseHTTPRequestHandler) -> None:
        """Give the page."""
        text = PAGE.read_text(encoding="utf-8").replace("{{LOGIN}}", self._login)
        body = text.encode()
        handler.send_response(HTTPStatus.OK)
        handler.send_header("Content-Type", "text/html; charset=utf-8")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def online(self, handler: BaseHTTPRequestHandler) -> None:
        """Tell who is online, and again whenever that is another, for as long as one listens."""
        handler.send_response(HTTPStatus.OK)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        try:
            follow(self._looked, partial(told, handler))
        except OSError:
            handler.close_connection = True

    def _looked(self) -> list[dict[str, object]]:
        return [
            {
                "user": str(user),
                "device": row.device,
                "background": row.background,
                "unread": row.unread,
            }
            for user, row in sorted(self._here.items(), key=lambda item: str(item[0]))
        ]


def follow(look: Callable[[], object], tell: Callable[[object], None]) -> None:
    """Tell what is seen whenever it has changed."""
    before: object = None
    quiet = 0.0
    while True:
        seen = look()
        if seen != before or quiet >= SILENCE:
            tell(seen)
            before, quiet = seen, 0.0
        time.sleep(LOOK)
        quiet += LOOK


def told(handler: BaseHTTPRequestHandler, seen: object) -> None:
    handler.wfile.write(f"data: {json.dumps(seen)}\n\n".encode())
    handler.wfile.flush()


def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--table", required=True, help="the file of the node's table")
    parser.add_argument("--login", default="", help="HOST:PORT of the login service")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    here = SharedTable.attach(Path(given.table), Presence)
    with connect(given.cluster) as client:
        pushes = Pushes(here, client.table(TABLE, Presence), given.login)
        calls = {"/message": pushes.message, "/read": pushes.read}
        web.serve(given.port, calls, {"/": pushes.page, "/online": pushes.online})


if __name__ == "__main__":
    main()
