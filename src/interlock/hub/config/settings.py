"""The settings of a hub: each key once, with its default, its check and its line of help.

The file's grammar, `--print-config`, the reference page and the error messages are made from it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass

from interlock.hub.config import store_lanes, stores, tables, users
from interlock.hub.config.checks import (
    LONGEST_UNIX_PATH,
    YEAR,
    address,
    file,
    mode,
    one_of,
    path,
    seconds,
    some_address,
    truth,
    whole,
)
from interlock.hub.config.invalid_value import InvalidValue
from interlock.hub.config.table_lists import Entry


@dataclass(frozen=True)
class Setting:
    """One key of the configuration."""

    key: str
    """Name in the file; a dot separates a table from its key."""

    default: bool | int | float | str | tuple[Entry, ...]
    check: Callable[[object], object]
    """Returns the value in canonical form; raises InvalidValue."""

    allowed: str
    """The text behind `allowed:` in an error."""

    help: str
    """One line."""

    live: bool = False
    """True if it can change while the hub runs."""

    protected: bool = False
    """True if CONFIG SET cannot set it, only the configuration's sources: a client of a hub must
    not choose which files it reads and writes, or whom it admits."""

    redis: str = ""
    """Name of the same setting in CONFIG GET and SET of Redis."""

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "INTERLOCK_HUB_" + self.key.upper().replace(".", "_")

    def parse(self, text: str) -> object:
        """Return the value of a text as the file would give it.

        The text is from a flag, the environment or CONFIG SET, where all values are text.
        """
        if isinstance(self.default, str):
            return text
        if isinstance(self.default, bool):
            truths = {"true": True, "false": False, "yes": True, "no": False}
            return truths.get(text.lower(), text)
        if isinstance(self.default, tuple):
            try:
                return tomllib.loads(f"{self.key} = {text}")[self.key]
            except (ValueError, RecursionError):
                return text
        for number in (int, float):
            try:
                return number(text)
            except ValueError:
                continue
        return text


MOST_BYTES = 2**40
# The server keeps offsets within a request as 32-bit numbers.
LONGEST = 2**31
BYTES = "a whole number of bytes"
OR_NONE = f"{BYTES}, from 0 (no limit) to {MOST_BYTES}"
SECONDS = f"a number of seconds from 0 to {YEAR}"
WHOLE_SECONDS = f"a whole {SECONDS.removeprefix('a ')}"


def _stores(value: object) -> tuple[stores.Store, ...]:
    found = store_lanes.checked(value)
    if len(found) > MOST_STORES:
        raise InvalidValue("", value, f"a list of up to {MOST_STORES} [[store]] tables")
    return found


MOST_STORES = 64

SETTINGS = (
    Setting(
        "host", "127.0.0.1", address, 'an IP address, or "" for no TCP at all',
        'address to listen on; "" for no TCP',
        redis="bind",
    ),
    Setting(
        "port", 6399, whole(0, 65535), "a whole number from 0 to 65535",
        "TCP port; 0 chooses a free one",
        redis="port",
    ),
    Setting(
        "unix", "", path, f"a path of at most {LONGEST_UNIX_PATH} bytes",
        "path of an additional unix socket to listen on",
        redis="unixsocket",
    ),
    Setting(
        "unix_mode", "", mode, 'octal digits such as "660", or ""',
        'file permissions of the socket, for who may connect; "" uses the umask',
        redis="unixsocketperm",
    ),
    Setting(
        "unprotected", False, truth, "true, false",
        "listen where other machines can connect, without requiring a password or certificate",
    ),
    Setting(
        "workers", 0, whole(0, 64), "a whole number from 0 to 64",
        "number of threads that serve connections; 0: one per core, at most 4",
    ),
    Setting(
        "ignore_case_topics", False, truth, "true, false",
        "convert topics and patterns, also those of users and stores, to lower case (ASCII)",
    ),
    Setting(
        "maxclients", 10000, whole(1, 1000000), "a whole number from 1 to 1000000",
        "maximum number of open connections; more are refused with an error",
        live=True, redis="maxclients",
    ),
    Setting(
        "max_per_address", 0, whole(0, 1000000), "a whole number from 0 (no limit) to 1000000",
        "maximum number of open connections from one IP address",
        live=True,
    ),
    Setting(
        "query_limit", 64 << 20, whole(1024, LONGEST), f"{BYTES}, from 1024 to {LONGEST}",
        "maximum bytes of a client's incomplete commands; a queue client sends up to 54 MiB in one "
        "command",
        live=True, redis="client-query-buffer-limit",
    ),
    Setting(
        "frame_limit", 512 << 20, whole(1024, LONGEST), f"{BYTES}, from 1024 to {LONGEST}",
        "maximum bytes of one argument of a command",
        live=True, redis="proto-max-bulk-len",
    ),
    Setting(
        "idle_timeout", 0, whole(0, YEAR), WHOLE_SECONDS,
        "close a client without subscriptions after this many silent seconds; 0: never",
        live=True, redis="timeout",
    ),
    Setting(
        "login_timeout", 60, whole(0, YEAR), WHOLE_SECONDS,
        "close a client that has not logged in after this many seconds; 0: never",
        live=True,
    ),
    Setting(
        "drain", 5.0, seconds, SECONDS,
        "seconds that a stopping hub waits for clients to read their pending output",
        live=True,
    ),
    Setting(
        "http.host", "127.0.0.1", some_address, "an IP address",
        "address of HTTP for monitoring: /metrics, /health, /ready",
    ),
    Setting(
        "http.port", -1, whole(-1, 65535), "a whole number from -1 to 65535",
        "port of HTTP for monitoring; 0 chooses a free one, -1 turns it off",
    ),
    Setting(
        "limits.normal.soft", 0, whole(0, MOST_BYTES), OR_NONE,
        "pending output in bytes that closes a client without subscriptions after soft_seconds",
        live=True,
    ),
    Setting(
        "limits.normal.soft_seconds", 0, whole(0, YEAR), WHOLE_SECONDS,
        "seconds that the pending output may stay above the soft limit",
        live=True,
    ),
    Setting(
        "limits.normal.hard", 256 << 20, whole(0, MOST_BYTES), OR_NONE,
        "pending output in bytes that closes such a client immediately",
        live=True,
    ),
    Setting(
        "limits.pubsub.soft", 8 << 20, whole(0, MOST_BYTES), OR_NONE,
        "pending output in bytes that closes a subscriber after soft_seconds",
        live=True,
    ),
    Setting(
        "limits.pubsub.soft_seconds", 60, whole(0, YEAR), WHOLE_SECONDS,
        "seconds that the pending output may stay above the soft limit",
        live=True,
    ),
    Setting(
        "limits.pubsub.hard", 32 << 20, whole(0, MOST_BYTES), OR_NONE,
        "pending output in bytes that closes a subscriber immediately",
        live=True,
    ),
    Setting(
        "limits.pubsub.subscriptions", 64 << 20, whole(0, MOST_BYTES), OR_NONE,
        "maximum bytes of one client's subscriptions; more are refused with an error",
        live=True,
    ),
    Setting(
        "limits.clients", 2 << 30, whole(0, MOST_BYTES), OR_NONE,
        "maximum memory of all clients together; beyond it, the clients with the most are closed",
        live=True, redis="maxmemory-clients",
    ),
    Setting(
        "logins.waiting", 32, whole(1, 1024), "a whole number from 1 to 1024",
        "maximum number of waiting logins per name and address; further ones must try again",
        live=True,
    ),
    Setting(
        "logins.failures", 10, whole(0, 1_000_000), "a whole number from 0 (never) to 1000000",
        "wrong passwords per minute after which the logins of an address are slow and last",
        live=True,
    ),
    Setting(
        "slow_log.threshold", 10_000, whole(-1, YEAR * 1_000_000),
        "a whole number of microseconds, from 0; -1 for no slow log",
        "record commands in the slow log that took at least this many microseconds; -1: none",
        live=True, redis="slowlog-log-slower-than",
    ),
    Setting(
        "slow_log.length", 128, whole(0, 1_000_000), "a whole number from 0 to 1000000",
        "number of commands in the slow log, the newest ones",
        live=True, redis="slowlog-max-len",
    ),
    Setting(
        "queues.memory", 0, whole(0, MOST_BYTES), OR_NONE,
        "maximum memory of all keyed queues together; at the limit, only puts are refused",
        live=True, redis="maxmemory",
    ),
    Setting(
        "queues.journal", "", file, "the path of a folder",
        'folder of the journal that makes queues durable; "" for none',
        protected=True,
    ),
    Setting(
        "queues.durability", "always", one_of("always", "everysec", "none"),
        "always, everysec, none",
        "default durability of queues with a journal: on disk before an answer, within a second, "
        "or not stored",
    ),
    Setting(
        "queues.repair", False, truth, "true, false",
        "set aside unreadable parts of the journal, and start without them",
        protected=True,
    ),
    Setting(
        "tls.cert", "", file, "the path of a file",
        "PEM file with the certificate and its chain up to the authority; the port then speaks TLS",
        live=True, protected=True,
    ),
    Setting(
        "tls.key", "", file, "the path of a file",
        "PEM file with the certificate's key",
        live=True, protected=True,
    ),
    Setting(
        "tls.client_ca", "", file, "the path of a file",
        "PEM file with authorities; clients must show a certificate signed by one of them",
        live=True, protected=True,
    ),
    Setting(
        "tls.port", -1, whole(-1, 65535), "a whole number from 0 to 65535; -1 for none",
        "additional port for TLS; -1: none, and with a certificate the plain port speaks TLS",
        redis="tls-port",
    ),
    Setting(
        "log.level", "info", one_of("info", "warning", "error"), "info, warning, error",
        "lowest level of lines that `interlock hub` logs",
        live=True, redis="loglevel",
    ),
    Setting(
        "log.file", "", file, "the path of a file",
        'log file, reopened on USR1; "" for standard error',
        live=True, protected=True, redis="logfile",
    ),
    Setting(
        "log.format", "text", one_of("text", "json"), "text, json",
        "format of the log lines",
        live=True,
    ),
    Setting(
        "log.repeats", 10, whole(0, 1_000_000), "a whole number from 0 (no limit) to 1000000",
        "maximum lines of one kind per ten seconds; the rest is counted in one line",
        live=True,
    ),
    Setting(
        "user", (), users.USERS.checked, "a list of [[user]] tables",
        "users and their rights; without any, everyone may do everything",
        live=True, protected=True,
    ),
    Setting(
        "table", (), tables.TABLES.checked, "a list of [[table]] tables",
        "state tables to serve, by name",
        live=True, protected=True,
    ),
    Setting(
        "store", (), _stores, "a list of [[store]] tables",
        "stores, which keep or pass on the messages of their topics",
        live=True, protected=True,
    ),
)  # fmt: skip

BY_KEY = {setting.key: setting for setting in SETTINGS}

BY_REDIS_NAME = {setting.redis: setting for setting in SETTINGS if setting.redis}
