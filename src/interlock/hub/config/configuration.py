"""Configuration of a hub: raw values with their origin first, then one checked object.

A value comes from the first source that has one: a flag or argument, the environment, the file, the
default. All faults are reported together, each with its key, its value, its origin and the allowed
values.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from interlock import _core
from interlock.hub import url
from interlock.hub.config import buffer_limits, store_lanes, tables
from interlock.hub.config import table_lists as listed
from interlock.hub.config.invalid_value import InvalidValue
from interlock.hub.config.settings import BY_KEY, SETTINGS, Setting
from interlock.hub.config.users import EVERYBODY, User, ask_password


class ConfigError(ValueError):
    """The configuration cannot be used. `faults` has a line for each reason."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.faults,)


@dataclass(frozen=True)
class Raw:
    """A value as it was given."""

    value: object
    origin: str


@dataclass(frozen=True)
class Configuration:
    """A checked configuration: every key has an allowed value."""

    values: Mapping[str, Any]
    """Values by key, as in the file: `limits.pubsub.soft`."""

    origins: Mapping[str, str] = field(compare=False)
    """The origin of each value, by key."""

    source: Source | None = field(default=None, compare=False, repr=False)
    """Source it was read from; None if it cannot be read again."""

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def for_server(self) -> dict[str, Any]:
        """Return the native server's settings. Raises ConfigError if a file of `tls` cannot be
        read."""
        plain = {key: self[key] for key in FOR_SERVER}
        limits = {
            name: [self[f"limits.{name}.{part}"] for part in ("soft", "soft_seconds", "hard")]
            for name in CLASSES
        }
        threshold = self["slow_log.threshold"]
        port = self["tls.port"]
        mode = self["unix_mode"]
        return {
            **plain,
            "unix_mode": int(mode, 8) if mode else None,
            **limits,
            "slow_log": (None if threshold < 0 else threshold, self["slow_log.length"]),
            "subscriptions": self["limits.pubsub.subscriptions"],
            "clients_memory": self["limits.clients"],
            "queues_memory": self["queues.memory"],
            "log_repeats": self["log.repeats"],
            "journal": self["queues.journal"] or None,
            "durability": self["queues.durability"],
            "repair": self["queues.repair"],
            "users": [self._cased(user).for_server() for user in self.users()],
            "tls": self._certificates(),
            "port_speaks_tls": bool(self["tls.cert"]) and port < 0,
            "tls_port": port if port >= 0 else None,
            "stores": self._stores(),
            "shown": list(self.shown()),
        }

    def users(self) -> tuple[User, ...]:
        """Return the declared users.

        Without any, everybody is one user with all rights.
        """
        found: tuple[User, ...] = self["user"]
        return found or (EVERYBODY,)

    def opened(
        self,
        before: Configuration | None = None,
        open_before: _core.HubTables | None = None,
        keepers: Mapping[str, _core.TableKeeper] | None = None,
    ) -> _core.HubTables:
        """Open the tables; those that another configuration has open stay open.

        `keepers`: processes that write to tables instead of the hub, by table name.

        Raises ConfigError if a table cannot be served, or a keeper's table is not declared.
        """
        self.check_keepers(keepers or {})
        known: tuple[tables.ServedTable, ...] = before["table"] if before is not None else ()
        try:
            return tables.opened(self["table"], known, open_before, keepers)
        except tables.NotServed as wrong:
            place, origin = f"table[{wrong.index}]", self.origins["table"]
            raise ConfigError((f"{place} {wrong.table.name} ({origin}): {wrong}",)) from None

    def check_keepers(self, keepers: Iterable[str]) -> None:
        """Raise ConfigError if a kept table is not declared."""
        declared = [table.name for table in self["table"]]
        faults = tuple(
            f"keepers: {name!r} is not a table of the hub; declared: "
            f"{', '.join(map(repr, declared)) or 'none'}"
            for name in keepers
            if name not in declared
        )
        if faults:
            raise ConfigError(faults)

    def shown(self) -> Iterator[tuple[str, str]]:
        """Yield the entries of CONFIG GET: each key, and its Redis name where that differs."""
        for setting in SETTINGS:
            value = self[setting.key]
            if isinstance(value, tuple):
                text = " ".join(entry.name for entry in value)
            elif isinstance(value, bool):
                text = "yes" if value else "no"
            else:
                text = str(value)
            yield setting.key, text
            if setting.redis not in {"", setting.key}:
                yield setting.redis, text
        limits = {setting.key: self[setting.key] for setting in SETTINGS}
        yield buffer_limits.NAME, buffer_limits.shown(limits)

    def renewed(self, raw: Mapping[str, Raw] | None = None) -> tuple[Configuration, list[str]]:
        """Return the configuration as its sources have it now, and the keys that need a restart.

        With `raw` the result is the current configuration with these values instead of its own. The
        keys are those that would have to change and cannot while a hub runs.

        Raises ConfigError, also if the unchanged and the changed values conflict, and OSError if
        the file cannot be read.
        """
        if raw is None:
            new = self.source.read() if self.source is not None else self
        else:
            kept = {key: Raw(self[key], self.origins[key]) for key in BY_KEY}
            new = replace(checked({**kept, **raw}), source=self.source)
        # A port's protocol was fixed when it was bound: TLS is neither added nor removed.
        bound = set(TLS_FILES) if bool(new["tls.cert"]) != bool(self["tls.cert"]) else set()
        fixed = [
            s.key for s in SETTINGS if (not s.live or s.key in bound) and new[s.key] != self[s.key]
        ]
        values = {**new.values, **{key: self[key] for key in fixed}}
        origins = {**new.origins, **{key: self.origins[key] for key in fixed}}
        # The old address with the new users may admit clients that neither configuration admits.
        if faults := tuple(together(values, origins)):
            raise ConfigError(faults)
        return replace(
            new, values=MappingProxyType(values), origins=MappingProxyType(origins)
        ), fixed

    def spools(self) -> list[tuple[str, str]]:
        """Return the name of each store that has a spool, with the spool's folder."""
        return list(store_lanes.spools(self._stores()))

    def _spool_root(self) -> Path | None:
        return store_lanes.spool_root(self["queues.journal"], os.environ)

    def _cased(self, user: User) -> User:
        if not self["ignore_case_topics"]:
            return user
        return replace(user, publish=lower(user.publish), subscribe=lower(user.subscribe))

    def _stores(self) -> list[dict[str, Any]]:
        stores = self["store"]
        if self["ignore_case_topics"]:
            stores = [
                replace(store, topics=lower(store.topics), exclude=lower(store.exclude))
                for store in stores
            ]
        try:
            return store_lanes.for_server(stores, self._spool_root())
        except InvalidValue as wrong:
            found = Raw(wrong.value, self.origins["store"])
            raise ConfigError((fault(f"store{wrong.place}", found, wrong.allowed),)) from None

    def _certificates(self) -> tuple[bytes, bytes, bytes | None] | None:
        if not self["tls.cert"]:
            return None
        texts: list[bytes | None] = []
        for key in TLS_FILES:
            try:
                texts.append(Path(self[key]).read_bytes() if self[key] else None)
            except OSError as error:
                found = Raw(self[key], self.origins[key])
                reason = f"a file that can be read ({error.strerror})"
                raise ConfigError((fault(key, found, reason),)) from None
        certificate, key_text, authorities = texts
        assert certificate is not None
        assert key_text is not None
        return certificate, key_text, authorities

    def text(self) -> str:
        """Return the configuration as a file with the same meaning, each value with its origin."""
        lines = []
        table = ""
        for setting in SETTINGS:
            if isinstance(setting.default, tuple):
                continue
            head, _, name = setting.key.rpartition(".")
            if head != table:
                lines += ["", f"[{head}]"]
                table = head
            given = f"{name} = {toml(self[setting.key])}"
            lines.append(f"{given:<32} # {self.origins[setting.key]}: {setting.help}")
        for setting in SETTINGS:
            if isinstance(setting.default, tuple):
                entries, origin = self[setting.key], self.origins[setting.key]
                lines += listed.lines(setting.key, entries, origin, toml)
        return "\n".join(lines) + "\n"


def contents(given: Mapping[str, Any]) -> dict[str, bytes]:
    """Return digests of the files that settings name, by those settings.

    `given` are the native server's settings, with the files' contents.
    """
    texts: dict[str, Any] = dict(zip(TLS_FILES, given["tls"] or (), strict=False))
    for store in store_lanes.nodes(given["stores"]):
        for key in ("ca", "cert", "key", "password"):
            texts[f"store {store['name']}: {key}"] = store.get(key)
    found: dict[str, bytes] = {}
    for key, text in texts.items():
        if text is not None:
            found[key] = hashlib.sha256(text.encode() if isinstance(text, str) else text).digest()
    return found


@dataclass(frozen=True)
class Source:
    """The sources that a configuration is read from, and can be read from again."""

    file: str | PathLike[str] | None
    environment: Mapping[str, str] | None
    given: Mapping[str, Raw]

    def read(self) -> Configuration:
        """Read the configuration as it is now. Raises as `config.read`."""
        return read(self.file, environment=self.environment, given=self.given)


def read(
    file: str | PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    given: Mapping[str, Raw] | None = None,
) -> Configuration:
    """Read the configuration of a file, the environment and what was `given`.

    `given` are the values of flags or arguments.

    Raises ConfigError with all faults, and OSError if the file cannot be read.
    """
    raw: dict[str, Raw] = {}
    if file is not None:
        raw.update(from_file(Path(file)))
    for key, setting in BY_KEY.items():
        if environment is not None and setting.variable in environment:
            text = environment[setting.variable]
            raw[key] = Raw(setting.parse(text), f"environment {setting.variable}")
    raw.update(given or {})
    return replace(checked(raw), source=Source(file, environment, dict(given or {})))


def from_file(path: Path) -> dict[str, Raw]:
    """Return the values of a TOML file, by dotted key."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        # A TOMLDecodeError, a UnicodeDecodeError, or a number with more digits than Python reads.
        raise ConfigError((f"{path} is not TOML: {error}",)) from None
    except RecursionError:
        raise ConfigError((f"{path} is nested too deeply; allowed: {DEEPEST} levels",)) from None
    return {key: Raw(value, f"file {path}") for key, value in flat(tree)}


def from_arguments(arguments: Mapping[str, object]) -> dict[str, Raw]:
    """Return the values that a program passes.

    They are `limits={"pubsub": {"hard": 0}}` or `{"limits.pubsub.hard": 0}`.
    """
    return {key: Raw(value, "argument") for key, value in flat(arguments)}


def flat(tree: Mapping[str, object], head: str = "") -> Iterator[tuple[str, object]]:
    """Yield tables within tables as dotted keys.

    An unknown table is kept whole: its name is the fault.
    """
    for name, value in tree.items():
        key = f"{head}{name}"
        if isinstance(value, Mapping) and any(known.startswith(f"{key}.") for known in BY_KEY):
            yield from flat(value, f"{key}.")
        else:
            yield key, value


def checked(raw: Mapping[str, Raw]) -> Configuration:
    """Return the configuration of raw values and defaults.

    Raises ConfigError with all faults.
    """
    # First: the code below reads each value.
    if deep := [key for key, found in raw.items() if is_deeper(found.value, DEEPEST)]:
        raise ConfigError(
            tuple(
                f"{key[:LONGEST_SHOWN]} is nested too deeply ({raw[key].origin}); "
                f"allowed: {DEEPEST} levels"
                for key in deep
            )
        )
    faults = [unknown(key, found) for key, found in raw.items() if key not in BY_KEY]
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        found = raw.get(setting.key, Raw(setting.default, DEFAULT))
        try:
            values[setting.key] = setting.check(found.value)
        except InvalidValue as wrong:
            faults.append(faulty(setting, found, wrong))
    origins = {key: raw[key].origin if key in raw else DEFAULT for key in BY_KEY}
    if len(values) == len(SETTINGS):
        faults += together(values, origins)
    if faults:
        raise ConfigError(tuple(faults))
    return Configuration(MappingProxyType(values), MappingProxyType(origins))


def is_deeper(value: object, levels: int) -> bool:
    """Return whether a value nests lists or tables deeper than this."""
    level = [value]
    for _ in range(levels + 1):
        inner: list[object] = []
        for one in level:
            if isinstance(one, Mapping):
                inner += one.values()
            elif isinstance(one, list | tuple):
                inner += one
        if not inner:
            return False
        level = inner
    return True


def together(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[str]:
    """Yield the faults of values that are valid alone and wrong together."""

    def wrong(key: str, allowed: str) -> str:
        return fault(key, Raw(values[key], origins[key]), allowed)

    if not values["host"] and not values["unix"]:
        yield wrong("host", 'an IP address, or "" where unix is set')
    if values["host"] and not values["unprotected"]:
        host = ipaddress.ip_address(values["host"])
        if not host.is_loopback and not is_guarded(values):
            yield wrong("host", GUARDED)
    for key in ("tls.key", "tls.client_ca"):
        if values[key] and not values["tls.cert"]:
            yield wrong(key, '"" without tls.cert')
    if values["tls.cert"] and not values["tls.key"]:
        yield wrong("tls.key", "the path of a file, together with tls.cert")
    if values["tls.port"] >= 0 and not values["tls.cert"]:
        yield wrong("tls.port", "-1 without tls.cert")
    if values["tls.cert"] and not values["host"]:
        yield wrong("tls.cert", '"" where host is "": there is no TCP port to speak it at')
    if values["tls.port"] > 0 and values["tls.port"] == values["port"]:
        yield wrong("tls.port", f"another port than port, which is {values['port']}")
    http = ipaddress.ip_address(values["http.host"])
    if values["http.port"] >= 0 and not http.is_loopback and not values["unprotected"]:
        yield wrong("http.host", "a loopback address, or any with unprotected = true")
    for index, store in enumerate(values["store"]):
        if is_itself(store.upstream, values):
            # It would forward its own messages to itself for ever.
            shown = Raw(store.upstream, origins["store"])
            yield fault(f"store[{index}].upstream", shown, "another server than this hub")
    for name in CLASSES:
        soft, hard = values[f"limits.{name}.soft"], values[f"limits.{name}.hard"]
        if hard and soft > hard:
            yield wrong(f"limits.{name}.soft", f"at most limits.{name}.hard, which is {hard}")


def lower(globs: tuple[str, ...] | None) -> Any:
    """Return globs as they are where topics ignore case: ASCII case, as in the hub."""
    return globs and tuple(glob.encode().lower().decode() for glob in globs)


def is_guarded(values: Mapping[str, Any]) -> bool:
    """Return whether a client that reaches the hub's address must still authenticate."""
    users = values["user"] or (EVERYBODY,)
    asks_certificate = values["tls.client_ca"] and values["tls.port"] < 0
    return ask_password(users) or bool(asks_certificate)


def is_itself(upstream: str, values: Mapping[str, Any]) -> bool:
    """Return whether an address is plainly the hub's own."""
    if not upstream:
        return False
    place = url.parse(upstream)
    if place.path:
        return bool(place.path == values["unix"])
    if not values["host"] or place.port not in (values["port"], values["tls.port"]):
        return False
    try:
        there = ipaddress.ip_address(place.host)
    except ValueError:
        return place.host == "localhost"
    return there.is_loopback or there == ipaddress.ip_address(values["host"])


def faulty(setting: Setting, found: Raw, wrong: InvalidValue) -> str:
    """Return one line about a setting's refusal."""
    if wrong.allowed:
        return fault(f"{setting.key}{wrong.place}", Raw(wrong.value, found.origin), wrong.allowed)
    return fault(setting.key, found, setting.allowed)


def fault(key: str, found: Raw, allowed: str) -> str:
    """Return one line about a wrong value."""
    shown = repr(found.value)
    if len(shown) > LONGEST_SHOWN:
        shown = shown[:LONGEST_SHOWN] + "..."
    return f"{key} is {shown} ({found.origin}); allowed: {allowed}"


def unknown(key: str, found: Raw) -> str:
    """Return one line about an unknown key."""
    near = get_close_matches(key, BY_KEY, n=1)
    hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(BY_KEY)}"
    return f"{key} is not a key of the configuration ({found.origin}); {hint}"


def toml(value: object) -> str:
    """Return a value as TOML writes it: a truth, a number, a text, or a list of them."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(one) for one in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = (ESCAPES.get(char) or char for char in value)
        return '"' + "".join(
            char if char.isprintable() or len(char) > 1 else f"\\u{ord(char):04X}"
            for char in escaped
        ) + '"'  # fmt: skip
    return repr(value)


DEFAULT = "default"
DEEPEST = 16
"""Maximum levels of lists and tables within a value. No setting has more than four."""
CLASSES = ("normal", "pubsub")
TLS_FILES = ("tls.cert", "tls.key", "tls.client_ca")
# Keys that the native server has under the same name.
FOR_SERVER = (
    *("host", "port", "unix", "workers", "maxclients", "max_per_address", "query_limit"),
    *("frame_limit", "idle_timeout", "login_timeout", "ignore_case_topics"),
)
GUARDED = (
    "a loopback address; any other with users of whom each has a password, or with tls.client_ca, "
    "or with unprotected = true"
)
ESCAPES = {'"': '\\"', "\\": "\\\\"}
LONGEST_SHOWN = 80
