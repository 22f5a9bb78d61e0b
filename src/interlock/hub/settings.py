"""The settings of a hub: each key once, with its default, its check and its line of help.

The file's grammar, `--print-config`, the reference page and the messages of errors come from here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass

from interlock.hub import store_lanes, stores, tables, users
from interlock.hub.checks import (
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
from interlock.hub.invalid_value import InvalidValue
from interlock.hub.listed import Entry


@dataclass(frozen=True)
class Setting:
    """One key of the configuration."""

    key: str
    """As it stands in the file; a dot parts a table from its key."""

    default: bool | int | float | str | tuple[Entry, ...]
    check: Callable[[object], object]
    """Gives the value, made canonical; raises InvalidValue."""

    allowed: str
    """The text behind `allowed:` in an error."""

    help: str
    """One line."""

    live: bool = False
    """It can change while the hub runs."""

    protected: bool = False
    """It cannot be set by CONFIG SET, only where the configuration comes from: whoever reaches a
    hub must not choose which files it reads and writes, or whom it lets in."""

    redis: str = ""
    """The name that CONFIG GET and SET of Redis have for the same thing."""

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "INTERLOCK_HUB_" + self.key.upper().replace(".", "_")

    def parse(self, text: str) -> object:
        """Return the value of a text as the file would give it.

        The text is from a flag, the environment or CONFIG SET, where all is text.
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
# The server keeps places within a request as 32-bit numbers.
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
        'the address to listen on; "" for no TCP',
        redis="bind",
    ),
    Setting(
        "port", 6399, whole(0, 65535), "a whole number from 0 to 65535",
        "the TCP port; 0 takes a free one",
        redis="port",
    ),
    Setting(
        "unix", "", path, f"a path of at most {LONGEST_UNIX_PATH} bytes",
        "the path of a unix socket to listen on as well",
        redis="unixsocket",
    ),
    Setting(
        "unix_mode", "", mode, 'octal digits such as "660", or ""',
        'who may connect to it, as the permissions of a file; "" leaves that to the umask',
        redis="unixsocketperm",
    ),
    Setting(
        "unprotected", False, truth, "true, false",
        "listen where other machines reach the hub, though it asks for no password or certificate",
    ),
    Setting(
        "workers", 0, whole(0, 64), "a whole number from 0 to 64",
        "how many threads serve connections; 0 takes one for each core, at most 4",
    ),
    Setting(
        "ignore_case_topics", False, truth, "true, false",
        "topics and patterns, those of users and stores too, are put into lower case (ASCII)",
    ),
    Setting(
        "maxclients", 10000, whole(1, 1000000), "a whole number from 1 to 1000000",
        "how many connections may be open; one more is refused with an error",
        live=True, redis="maxclients",
    ),
    Setting(
        "max_per_address", 0, whole(0, 1000000), "a whole number from 0 (no limit) to 1000000",
        "how many of them may come from one IP address",
        live=True,
    ),
    Setting(
        "query_limit", 64 << 20, whole(1024, LONGEST), f"{BYTES}, from 1024 to {LONGEST}",
        "bytes that a client may have sent of commands not yet complete; a client of queues sends "
        "up to 54 MiB in one",
        live=True, redis="client-query-buffer-limit",
    ),
    Setting(
        "frame_limit", 512 << 20, whole(1024, LONGEST), f"{BYTES}, from 1024 to {LONGEST}",
        "bytes of the longest argument of a command",
        live=True, redis="proto-max-bulk-len",
    ),
    Setting(
        "idle_timeout", 0, whole(0, YEAR), WHOLE_SECONDS,
        "close a client that subscribes to nothing and was silent for this many seconds; 0 never",
        live=True, redis="timeout",
    ),
    Setting(
        "login_timeout", 60, whole(0, YEAR), WHOLE_SECONDS,
        "close a client that has not logged in for this many seconds; 0 never",
        live=True,
    ),
    Setting(
        "drain", 5.0, seconds, SECONDS,
        "how long a stopping hub waits for its clients to read what they are owed",
        live=True,
    ),
    Setting(
        "http.host", "127.0.0.1", some_address, "an IP address",
        "the address of HTTP for watching: /metrics, /health, /ready",
    ),
    Setting(
        "http.port", -1, whole(-1, 65535), "a whole number from -1 to 65535",
        "its port; 0 takes a free one, -1 turns HTTP off",
    ),
    Setting(
        "limits.normal.soft", 0, whole(0, MOST_BYTES), OR_NONE,
        "bytes owed to a client without subscriptions that end it when owed for soft_seconds",
        live=True,
    ),
    Setting(
        "limits.normal.soft_seconds", 0, whole(0, YEAR), WHOLE_SECONDS,
        "how long they may be owed",
        live=True,
    ),
    Setting(
        "limits.normal.hard", 256 << 20, whole(0, MOST_BYTES), OR_NONE,
        "bytes owed to it that end it at once",
        live=True,
    ),
    Setting(
        "limits.pubsub.soft", 8 << 20, whole(0, MOST_BYTES), OR_NONE,
        "bytes owed to a subscriber that end it when owed for soft_seconds",
        live=True,
    ),
    Setting(
        "limits.pubsub.soft_seconds", 60, whole(0, YEAR), WHOLE_SECONDS,
        "how long they may be owed",
        live=True,
    ),
    Setting(
        "limits.pubsub.hard", 32 << 20, whole(0, MOST_BYTES), OR_NONE,
        "bytes owed to it that end it at once",
        live=True,
    ),
    Setting(
        "limits.pubsub.subscriptions", 64 << 20, whole(0, MOST_BYTES), OR_NONE,
        "bytes that the subscriptions of one client may take; more are refused with an error",
        live=True,
    ),
    Setting(
        "limits.clients", 2 << 30, whole(0, MOST_BYTES), OR_NONE,
        "bytes that all clients together may make the hub keep; beyond, those with most are closed",
        live=True, redis="maxmemory-clients",
    ),
    Setting(
        "logins.waiting", 32, whole(1, 1024), "a whole number from 1 to 1024",
        "passwords of one name at one address that may wait for a look; one more is to try again",
        live=True,
    ),
    Setting(
        "logins.failures", 10, whole(0, 1_000_000), "a whole number from 0 (never) to 1000000",
        "wrong passwords within a minute from which on an address's logins come last and slowly",
        live=True,
    ),
    Setting(
        "slow_log.threshold", 10_000, whole(-1, YEAR * 1_000_000),
        "a whole number of microseconds, from 0; -1 for no slow log",
        "keep a command in the slow log that took at least this many microseconds; -1 keeps none",
        live=True, redis="slowlog-log-slower-than",
    ),
    Setting(
        "slow_log.length", 128, whole(0, 1_000_000), "a whole number from 0 to 1000000",
        "how many commands the slow log keeps, the newest of them",
        live=True, redis="slowlog-max-len",
    ),
    Setting(
        "queues.memory", 0, whole(0, MOST_BYTES), OR_NONE,
        "bytes of all keyed queues together; at the limit puts are refused, the rest continues",
        live=True, redis="maxmemory",
    ),
    Setting(
        "queues.journal", "", file, "the path of a folder",
        'the folder of the journal that makes queues durable; "" for none',
        protected=True,
    ),
    Setting(
        "queues.durability", "always", one_of("always", "everysec", "none"),
        "always, everysec, none",
        "what a queue that declares nothing is where there is a journal: on disk before an answer, "
        "within a second, or not stored",
    ),
    Setting(
        "queues.repair", False, truth, "true, false",
        "set aside what of the journal cannot be read, and start without it",
        protected=True,
    ),
    Setting(
        "tls.cert", "", file, "the path of a file",
        "a PEM file with the certificate and those up to its authority; the port then speaks TLS",
        live=True, protected=True,
    ),
    Setting(
        "tls.key", "", file, "the path of a file",
        "a PEM file with the certificate's key",
        live=True, protected=True,
    ),
    Setting(
        "tls.client_ca", "", file, "the path of a file",
        "a PEM file with authorities; clients must show a certificate that one of them signed",
        live=True, protected=True,
    ),
    Setting(
        "tls.port", -1, whole(-1, 65535), "a whole number from 0 to 65535; -1 for none",
        "a port for TLS beside the plain one; -1: there is one port, and it speaks TLS",
        redis="tls-port",
    ),
    Setting(
        "log.level", "info", one_of("info", "warning", "error"), "info, warning, error",
        "which lines `interlock hub` logs",
        live=True, redis="loglevel",
    ),
    Setting(
        "log.file", "", file, "the path of a file",
        'where it logs to, opened anew by USR1; "" for standard error',
        live=True, protected=True, redis="logfile",
    ),
    Setting(
        "log.format", "text", one_of("text", "json"), "text, json",
        "how each line of the log is written",
        live=True,
    ),
    Setting(
        "log.repeats", 10, whole(0, 1_000_000), "a whole number from 0 (no limit) to 1000000",
        "lines of one kind logged in ten seconds; the rest is counted in one line",
        live=True,
    ),
    Setting(
        "user", (), users.USERS.checked, "a list of [[user]] tables",
        "who may connect, and do what; without any, everybody may do everything",
        live=True, protected=True,
    ),
    Setting(
        "table", (), tables.TABLES.checked, "a list of [[table]] tables",
        "the state tables that are served, each by its name",
        live=True, protected=True,
    ),
    Setting(
        "store", (), _stores, "a list of [[store]] tables",
        "where messages are kept or passed on, each store those of its topics",
        live=True, protected=True,
    ),
)  # fmt: skip

BY_KEY = {setting.key: setting for setting in SETTINGS}

BY_REDIS_NAME = {setting.redis: setting for setting in SETTINGS if setting.redis}
