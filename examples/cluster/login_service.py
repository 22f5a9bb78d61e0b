"""The login service: it writes who is online, through whichever node is near.

python login_service.py --cluster interlock+cluster://127.0.0.1:6379/online
"""

from __future__ import annotations

import argparse
import time
from http import HTTPStatus

import web
from interlock import RemoteTable, connect
from users import SESSION, TABLE, Presence


class Logins:
    """Calls of apps."""

    def __init__(self, table: RemoteTable[Presence]) -> None:
        self._table = table

    def login(self, words: web.Words) -> HTTPStatus:
        """Have a user be online; who is already keeps the count."""
        user, device = words["user"], words.get("device", "browser")
        session = float(words.get("session", SESSION))
        now = int(time.time())
        row = Presence(device=device, last_seen=now)
        if not self._table.set(user, row, ttl=session, only="absent"):
            self._table.patch(user, device=device, background=False, last_seen=now)
            self._table.expire(user, session)
        return HTTPStatus.OK

    def renew(self, words: web.Words) -> HTTPStatus:
        """Say that the app is there; 404: log in again."""
        session = float(words.get("session", SESSION))
        is_there = self._table.expire(words["user"], session)
        return HTTPStatus.OK if is_there else HTTPStatus.NOT_FOUND

    def ground(self, words: web.Words) -> HTTPStatus:
        """Say whether the app is in the background."""
        background = words.get("background") == "1"
        found = self._table.patch(words["user"], background=background)
        return HTTPStatus.OK if found else HTTPStatus.NOT_FOUND

    def logout(self, words: web.Words) -> HTTPStatus:
        """Have a user be gone."""
        self._table.pop(words["user"], None)
        return HTTPStatus.OK


def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    with connect(given.cluster) as client:
        logins = Logins(client.table(TABLE, Presence))
        calls = {
            "/login": logins.login,
            "/renew": logins.renew,
            "/ground": logins.ground,
            "/logout": logins.logout,
        }
        web.serve(given.port, calls)


if __name__ == "__main__":
    main()
