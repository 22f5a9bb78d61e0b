"""The use of redis-py by both faces: how a connection is made, and what its errors mean.

Only its connections are used, which send and parse. Its clients would repeat calls on their own,
without call numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interlock.client.request import Argument, Broken, Refused
from interlock.client.transport import resolver
from interlock.client.url import Target

if TYPE_CHECKING:
    from redis.exceptions import RedisError


def make(module: Any, target: Target, address: str, timeout: float) -> Any:
    """Return a connection of `module` that is not connected yet.

    `module` is redis.connection or its asyncio half.
    """
    from redis.backoff import NoBackoff

    retry = _retry(module)(NoBackoff(), 0)
    options: dict[str, Any] = {
        "username": target.user or None,
        "password": target.password,
        # As text, for the reason of `spelt`.
        "db": target.db and str(target.db),
        "protocol": 2,
        "retry": retry,
        "socket_timeout": None,
        "socket_connect_timeout": timeout,
    }
    if address.startswith("unix:"):
        connection = module.UnixDomainSocketConnection(path=address[5:], **options)
    else:
        host, _, port = address.rpartition(":")
        options |= {"host": host.strip("[]"), "port": int(port), "socket_keepalive": True}
        if target.tls:
            options |= {"ssl_ca_certs": target.ca or None}
        connection = resolver.connection(module, target.tls)(**options)
    # It would send its name to the server, at one round trip each; the options differ by version.
    for name in ("driver_info", "lib_name", "lib_version"):
        if hasattr(connection, name):
            setattr(connection, name, None)
    return connection


def spelt(command: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Return a command with its numbers as text, for hiredis to pack.

    hiredis formats a number with ``PyObject_Str``, which runs pending signal handlers. If one
    raises, as Ctrl-C does, there is no text, and hiredis crashes the process by reading it.
    """
    return tuple([b"%d" % one if one.__class__ is int else one for one in command])


def refusal(error: RedisError) -> Refused | None:
    """Return the error reply of the server, with the code that redis-py removes.

    None: the error is not a reply.
    """
    from redis import exceptions

    codes: dict[type, str] = {
        exceptions.AskError: "ASK",
        exceptions.MovedError: "MOVED",
        exceptions.TryAgainError: "TRYAGAIN",
        exceptions.ClusterDownError: "CLUSTERDOWN",
        exceptions.ClusterCrossSlotError: "CROSSSLOT",
        exceptions.MasterDownError: "MASTERDOWN",
        exceptions.BusyLoadingError: "LOADING",
        exceptions.ReadOnlyError: "READONLY",
        exceptions.NoPermissionError: "NOPERM",
        exceptions.OutOfMemoryError: "OOM",
        exceptions.AuthenticationError: "WRONGPASS",
    }
    for kind in type(error).__mro__:
        if kind in codes:
            text = str(error)
            # redis-py 7 and later says which code it removed; AuthenticationError stands for two.
            code = getattr(error, "status_code", None) or codes[kind]
            if code == "ERR":
                return Refused(text)
            return Refused(text if text.startswith(code) else f"{code} {text}")
    if isinstance(error, exceptions.ResponseError):
        return Refused(str(error))
    # Also a reply, which redis-py turns into an error of the connection.
    return Refused(str(error)) if "max number of clients" in str(error) else None


def broken(error: BaseException, sent: bool) -> Broken:
    """Return Broken for any other error, with the fault of the connection."""
    if isinstance(error, AttributeError):
        return Broken("the connection was closed", sent)
    if isinstance(error, UNREADABLE):
        return Broken("its answer is not a reply of a server", sent)
    return Broken(str(error) or type(error).__name__, sent)


PAUSE = 0.05
"""Seconds for which a refused wait sleeps nevertheless: the next call reports the fault, but not at
full speed."""
UNREADABLE = (AttributeError, ValueError, IndexError)
"""Exceptions of redis-py for a connection that another thread closed meanwhile, and for malformed
bytes: ``-MOVED`` without a slot, ``*x``."""


def _retry(module: Any) -> Any:
    if module.__name__.startswith("redis.asyncio"):
        from redis.asyncio.retry import Retry

        return Retry
    from redis.retry import Retry as SyncRetry

    return SyncRetry
