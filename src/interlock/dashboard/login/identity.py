"""Identities: the user, by a cookie or a token, and that user's access to the engine."""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from interlock.client import url as urls
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.connection.call import Engine
from interlock.client.faces.client import Client
from interlock.dashboard.facts import ask, facts
from interlock.dashboard.login.sessions import INTERVAL, Brake, Session, Sessions
from interlock.dashboard.polling.engine_access import Access
from interlock.dashboard.refusal import Refusal, is_stranger
from interlock.dashboard.settings import Settings
from interlock.errors import EngineUnavailable, InterlockError

TRIES = 2
"""Concurrent login attempts on the engine."""
LONGEST = 1_024
"""Bytes of a user's name, a password, a token."""


@dataclass(slots=True)
class Identity:
    """The user of a request."""

    access: Access
    id: str
    """The cookie's id; empty for a client that sends a token with each request, as no page can."""
    session: Session | None = None
    is_new: bool = False
    """True if the cookie must be set."""


class Identities:
    """All users with access."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._target = urls.parse(settings.url)
        self.sessions = Sessions()
        self._brake = Brake()
        self._tries = asyncio.Semaphore(TRIES)
        self._shared: Access | None = None
        if settings.login != "user":
            self._shared = Access(Client(Engine(self._target)), self._target.user or None)

    def of(self, cookie: str, headers: Mapping[str, str], address: str) -> Identity:
        """Return the user of a request; raise Refusal if a login is needed."""
        settings = self._settings
        if settings.login == "none":
            assert self._shared is not None
            known = 16 <= len(cookie) <= 64 and cookie.isascii()
            return Identity(self._shared, cookie if known else new_id(), None, not known)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if settings.login == "token" and scheme.lower() == "bearer":
            self._check_token(token.strip(), address)
            assert self._shared is not None
            return Identity(self._shared, "")
        session = self.sessions.find(cookie) if cookie else None
        if session is None:
            raise Refusal(401, "log in first")
        return Identity(session.access, cookie, session)

    async def log_in(self, given: Mapping[str, Any], address: str) -> str:
        """Return the cookie of a new session; raise Refusal for a failed login."""
        settings = self._settings
        if settings.login == "none":
            return new_id()
        if settings.login == "token":
            assert self._shared is not None
            self._check_token(_text(given, "token"), address)
            return self.sessions.begin(self._shared, self._shared.user, own=False)
        user, password = _text(given, "user"), _text(given, "password")
        if wait := self._brake.holds(address):
            raise _too_many(wait)
        # Noted first and taken back on success: otherwise many could be tried at the same time.
        self._brake.failed(address)
        try:
            async with self._tries:
                access = await self._known(user, password)
        except Refusal as refusal:
            if refusal.status != 401:
                self._brake.right(address)
            raise
        except BaseException:
            # The engine has not refused it: it may be unreachable.
            self._brake.right(address)
            raise
        self._brake.right(address)
        return self.sessions.begin(access, user, own=True)

    def _check_token(self, token: str, address: str) -> None:
        """Refuse a wrong token; the right one is accepted however many wrong ones came before it.

        A token is too long to be guessed, and everybody behind a proxy has one address.
        """
        # The same length for all, so that the time reveals nothing.
        theirs, ours = (hmac.digest(KEY, one.encode(), "sha256") for one in
                        (token, self._settings.token))  # fmt: skip
        if not hmac.compare_digest(theirs, ours):
            if self._brake.failed(address):
                raise _too_many(INTERVAL)
            raise Refusal(401, "wrong token")

    async def _known(self, user: str, password: str) -> Access:
        """Return the access of a user of the engine; raise Refusal if the engine refuses it."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(None, self._tried, user, password)
        if found is None:
            raise Refusal(401, "the engine does not know this user with this password")
        try:
            if await loop.run_in_executor(None, self._is_open, user, found):
                raise Refusal(
                    403,
                    f"user {user!r} needs no password on the engine, so everyone who reaches "
                    "this page could log in; give that user a password",
                )
        except BaseException:
            found.close()
            raise
        return Access(found, user)

    def _is_open(self, user: str, known: Client) -> bool:
        """Return whether the engine accepts any password of a user."""
        # On a hub at most the default user is like that, and a hub logs each failed login.
        if user != "default" and facts(Operator(Server(known)))["kind"] == "hub":
            return False
        wrong = self._tried(user, secrets.token_hex(16))
        if wrong is not None:
            wrong.close()
        return wrong is not None

    def _tried(self, user: str, password: str) -> Client | None:
        """Return a client that acts as a user; None if the engine refuses the login."""
        client = Client(Engine(replace(self._target, user=user, password=password)))
        try:
            ask(Operator(Server(client)), "PING")
        except EngineUnavailable as error:
            client.close()
            if is_stranger(error):
                return None
            raise
        except InterlockError as error:
            # Another refusal: the user is known, and has few rights.
            if is_stranger(error):
                client.close()
                return None
        return client

    def close(self) -> None:
        """End all sessions, and close all connections."""
        self.sessions.close()
        if self._shared is not None:
            self._shared.close()


def new_id() -> str:
    """Return a secret for a cookie."""
    return secrets.token_urlsafe(32)


def _too_many(wait: float) -> Refusal:
    return Refusal(429, f"too many logins failed; try again in {math.ceil(wait)} s")


def _text(given: Mapping[str, Any], name: str) -> str:
    found = given.get(name)
    if not isinstance(found, str) or not 1 <= len(found.encode(errors="replace")) <= LONGEST:
        raise Refusal(400, f"{name} is missing; allowed: text of 1 to {LONGEST} bytes")
    return found


KEY = secrets.token_bytes(32)
