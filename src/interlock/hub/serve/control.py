"""The server's work in Python: lines of the log, passwords, changes of the configuration.

A thread sleeps on a descriptor of the server's. It never waits in native code, so that the
interpreter can end it on exit; and the server's threads never wait for it: only the client that
made the request does.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interlock import audit
from interlock.hub import passwords
from interlock.hub.config import buffer_limits
from interlock.hub.config.configuration import ConfigError, Raw
from interlock.hub.config.settings import BY_KEY, BY_REDIS_NAME
from interlock.hub.serve.logins import Asker, Login, Logins, Round, origin_of

if TYPE_CHECKING:
    from interlock import _core
    from interlock.hub.config.users import User
    from interlock.hub.serve.server import Hub

logger = logging.getLogger("interlock.hub")


class Controller:
    """Handles a server's events as long as a hub runs."""

    def __init__(self, hub: Hub, server: _core.HubServer) -> None:
        # Weak, so that a hub without references ends.
        self._weak = weakref.ref(hub)
        self._server = server
        # No executor: on exit the interpreter waits for an executor's threads and all their work.
        self._logins = Logins(waiting=1, failures=0)
        self._arrived = threading.Condition()
        self._looks_on = True
        self._ends = False
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        # A daemon: a program that drops its hub must be able to end.
        self._thread = threading.Thread(target=self._run, name="hub-control", daemon=True)
        self._looks = threading.Thread(target=self._look, name="hub-logins", daemon=True)

    def start(self) -> None:
        """Start."""
        self._thread.start()
        self._looks.start()

    def stop(self) -> None:
        """End, once all events are logged. Once, and not before the server has stopped."""
        os.eventfd_write(self._stop, 1)
        # The first never ends without the second, so either may be the caller.
        for thread in (self._thread, self._looks):
            if threading.current_thread() is thread:
                break
            thread.join()

    def _run(self) -> None:
        # Not select, which supports no descriptor from 1024 on; a hub has many.
        poll = select.poll()
        poll.register(self._server.fileno(), select.POLLIN)
        poll.register(self._stop, select.POLLIN)
        ends, patience = False, None
        while not ends:
            ends = any(descriptor == self._stop for descriptor, _ in poll.poll(patience))
            events, lost, owes = self._server.events(last=ends)
            for event in events:
                self._take(event)
            if lost:
                logger.warning("%d log lines were dropped: there were too many events", lost)
            # The number of lines left out is logged when their time is over, even if nothing more
            # happens.
            patience = COLLECTED if owes else None
        # Not waited for: it may be the thread that ends the hub, if it held the last reference.
        with self._arrived:
            self._looks_on = False
            self._arrived.notify()
        os.close(self._stop)

    @property
    def _hub(self) -> Hub:
        hub = self._weak()
        if hub is None:
            raise ReferenceError("the hub has ended")
        return hub

    def _take(self, event: tuple[Any, ...]) -> None:
        try:
            if event[0] == "log":
                logger.log(LEVELS[event[1]], "%s", event[2])
            elif event[0] == "audit":
                audit.told(*event[1:])
            elif event[0] == "broken":
                logger.critical("%s", event[1])
                if self._hub.on_broken is not None:
                    self._hub.on_broken()
            elif event[0] == "password":
                self._ask(event[1], *event[2])
            elif event[0] == "set":
                self._answer(event[1], self._set(event[2]))
            elif event[0] == "reload":
                self._answer(event[1], self._reload())
            elif event[0] == "shutdown":
                self._answer(event[1], self._shut_down())
        except Exception:
            # Whatever the error, the next event must be handled.
            logger.exception("an event of the hub could not be handled")
            if event[0] not in {"log", "audit", "broken"}:
                self._answer(event[1], "ERR the hub could not do it; its log says why")

    def _answer(self, asker: Asker, error: str | None) -> None:
        self._server.answer(asker, error)

    def _ask(self, asker: Asker, host: str, name: bytes, password: bytes) -> None:
        config = self._hub.config
        with self._arrived:
            self._logins.waiting = config["logins.waiting"]
            self._logins.failures = config["logins.failures"]
            if not (known := self._users_named(name)):
                # Keep nothing large for an unknown name.
                name, password = _digest(name), _digest(password)
            login = Login([asker], origin_of(host), name, password, bool(known))
            if self._logins.is_full(login):
                self._logins.forget(login.origin, self._waits)
            refused = self._logins.add(login)
            self._arrived.notify()
        self._tell(refused, COME_AGAIN)

    def _tell(self, logins: Sequence[Login], error: str | None) -> None:
        for login in logins:
            for asker in login.askers:
                self._answer(asker, error)

    def _waits(self, login: Login) -> bool:
        return any(self._server.waits(asker) for asker in login.askers)

    def _look(self) -> None:
        while (found := self._next()) is not None:
            # No password is checked: a client that comes and goes would hold up all others.
            self._log_in(found.only(self._waits))

    def _next(self) -> Round | None:
        with self._arrived:
            while self._looks_on:
                found = self._logins.next()
                if isinstance(found, Round):
                    return found
                self._arrived.wait(found)
        return None

    def _log_in(self, found: Round) -> None:
        wrong = list(found.unknown)
        for login in found.known:
            if not self._is_right(login.name, login.password):
                wrong.append(login)
                continue
            with self._arrived:
                same = self._logins.looked([login], right=True)
            self._tell([login, *same], None)
        for _ in range(found.looks - len(found.known)):
            self._is_right(b"", b"")
        with self._arrived:
            same = self._logins.looked(wrong, right=False, looks=found.looks)
        self._tell([*wrong, *same], "WRONGPASS")

    def _is_right(self, name: bytes, password: bytes) -> bool:
        try:
            return self._looked_at(name, password)
        except Exception:
            logger.exception("a password could not be checked")
            return False

    def _users_named(self, name: bytes) -> list[User]:
        users = self._hub.config.users()
        return [user for user in users if user.name.encode() == name and not user.is_open]

    def _looked_at(self, name: bytes, password: bytes) -> bool:
        users, found = self._hub.config.users(), self._users_named(name)
        right = found[0].knows(password) if found else False
        # The same number of checks for every name, or the time would reveal which names exist.
        looked = len(found[0].passwords) if found else 0
        for _ in range(max(len(user.passwords) for user in users) - looked):
            passwords.matches(password, passwords.nobody())
        return right

    def _set(self, pairs: Sequence[tuple[bytes, bytes]]) -> str | None:
        raw: dict[str, Raw] = {}
        names: set[str] = set()
        for given, value in pairs:
            name, text = given.decode(errors="replace"), value.decode(errors="replace")
            failed = f"ERR CONFIG SET failed (possibly related to argument '{name}') - "
            name = name.lower()
            if name == buffer_limits.NAME:
                try:
                    limits = buffer_limits.parse(text)
                except ValueError as error:
                    return f"{failed}{error}"
                found = {key: Raw(number, "CONFIG SET") for key, number in limits.items()}
            else:
                setting = BY_KEY.get(name) or BY_REDIS_NAME.get(name)
                if setting is None:
                    return f"ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                if not setting.live:
                    return f"{failed}can't set immutable config"
                if setting.protected:
                    return f"{failed}can't set protected config"
                found = {setting.key: Raw(setting.parse(text), "CONFIG SET")}
            # By the keys too, because some of them have two names.
            if name in names or raw.keys() & found.keys():
                return f"{failed}duplicate parameter"
            names.add(name)
            raw |= found
        try:
            self._hub.set(raw)
        except ConfigError as error:
            return f"ERR CONFIG SET failed - {'; '.join(error.faults)}"
        return None

    def _reload(self) -> str | None:
        try:
            self._hub.reload()
        except ConfigError as error:
            return f"ERR the configuration is refused: {'; '.join(error.faults)}"
        except OSError as error:
            return f"ERR the configuration cannot be read: {error}"
        return None

    def _shut_down(self) -> str | None:
        if self._hub.on_shutdown is None:
            return "ERR this hub is part of a program, and only the program can stop it"
        # Once: a second order is not a second signal, which would cut a drain short.
        if not self._ends:
            logger.info("a client asked for a shutdown")
            self._hub.on_shutdown()
            self._ends = True
        return None


def _digest(text: bytes) -> bytes:
    # Imported here, for the reason in `passwords`.
    import hashlib

    return hashlib.blake2b(text, digest_size=16, key=KEY).digest()


KEY = os.urandom(16)
LEVELS = {"info": logging.INFO, "warning": logging.WARNING}
COME_AGAIN = "TRYAGAIN too many logins are waiting; try again"
# Milliseconds after which left-out lines are reported.
COLLECTED = 1000
