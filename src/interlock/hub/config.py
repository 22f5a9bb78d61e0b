"""How a hub is to run: raw values with their origin first, then one checked object that stays.

A value is taken from the first that has one: a flag or argument, the environment, the file, the
default. All faults are told at once, each with its key, its value, where it came from and what is
allowed.
"""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from interlock.hub.settings import BY_KEY, SETTINGS, Wrong


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
    """A checked configuration: every key has a value that it may have."""

    values: Mapping[str, Any]
    """By key, as the file has them: `limits.pubsub.soft`."""

    origins: Mapping[str, str] = field(compare=False)
    """Where each value came from."""

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def for_server(self) -> dict[str, Any]:
        """What the native server is given."""
        plain = {
            key: value
            for key, value in self.values.items()
            if "." not in key and key not in NOT_FOR_SERVER
        }
        limits = {
            name: [self[f"limits.{name}.{part}"] for part in ("soft", "soft_seconds", "hard")]
            for name in CLASSES
        }
        return {**plain, **limits}

    def text(self) -> str:
        """The configuration as a file that would give it, each value with its origin."""
        lines = []
        table = ""
        for setting in SETTINGS:
            head, _, name = setting.key.rpartition(".")
            if head != table:
                lines += ["", f"[{head}]"]
                table = head
            given = f"{name} = {toml(self[setting.key])}"
            lines.append(f"{given:<32} # {self.origins[setting.key]}: {setting.help}")
        return "\n".join(lines) + "\n"


def read(
    file: str | PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    given: Mapping[str, Raw] | None = None,
) -> Configuration:
    """The configuration of a file, the environment and what was `given` by flags or arguments.

    Raises ConfigError with all faults, and OSError where the file cannot be read.
    """
    raw: dict[str, Raw] = {}
    if file is not None:
        raw.update(from_file(Path(file)))
    for key, setting in BY_KEY.items():
        if environment is not None and setting.variable in environment:
            text = environment[setting.variable]
            raw[key] = Raw(setting.parse(text), f"environment {setting.variable}")
    raw.update(given or {})
    return checked(raw)


def from_file(path: Path) -> dict[str, Raw]:
    """The values of a TOML file, by dotted key."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError((f"{path} is no TOML: {error}",)) from None
    return {key: Raw(value, f"file {path}") for key, value in flat(tree)}


def from_arguments(arguments: Mapping[str, object]) -> dict[str, Raw]:
    """The values of a program: `limits={"pubsub": {"hard": 0}}` or `{"limits.pubsub.hard": 0}`."""
    return {key: Raw(value, "argument") for key, value in flat(arguments)}


def flat(tree: Mapping[str, object], head: str = "") -> Iterator[tuple[str, object]]:
    """Tables within tables as dotted keys. An unknown table stays whole: its name is the fault."""
    for name, value in tree.items():
        key = f"{head}{name}"
        if isinstance(value, Mapping) and any(known.startswith(f"{key}.") for known in BY_KEY):
            yield from flat(value, f"{key}.")
        else:
            yield key, value


def checked(raw: Mapping[str, Raw]) -> Configuration:
    """The configuration of raw values and defaults; raises ConfigError with all that is wrong."""
    faults = [unknown(key, found) for key, found in raw.items() if key not in BY_KEY]
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        found = raw.get(setting.key, Raw(setting.default, DEFAULT))
        try:
            values[setting.key] = setting.check(found.value)
        except Wrong:
            faults.append(fault(setting.key, found, setting.allowed))
    origins = {key: raw[key].origin if key in raw else DEFAULT for key in BY_KEY}
    if len(values) == len(SETTINGS):
        faults += together(values, origins)
    if faults:
        raise ConfigError(tuple(faults))
    return Configuration(MappingProxyType(values), MappingProxyType(origins))


def together(values: Mapping[str, Any], origins: Mapping[str, str]) -> Iterator[str]:
    """Faults of values that are right alone and wrong together."""

    def wrong(key: str, allowed: str) -> str:
        return fault(key, Raw(values[key], origins[key]), allowed)

    if not values["host"] and not values["unix"]:
        yield wrong("host", 'an IP address, or "" where unix is set')
    if values["host"] and not values["unprotected"]:
        host = ipaddress.ip_address(values["host"])
        if not host.is_loopback:
            yield wrong("host", "a loopback address, or any with unprotected = true")
    http = ipaddress.ip_address(values["http.host"])
    if values["http.port"] >= 0 and not http.is_loopback and not values["unprotected"]:
        yield wrong("http.host", "a loopback address, or any with unprotected = true")
    for name in CLASSES:
        soft, hard = values[f"limits.{name}.soft"], values[f"limits.{name}.hard"]
        if hard and soft > hard:
            yield wrong(f"limits.{name}.soft", f"at most limits.{name}.hard, which is {hard}")


def fault(key: str, found: Raw, allowed: str) -> str:
    """One line about a wrong value."""
    shown = repr(found.value)
    if len(shown) > LONGEST_SHOWN:
        shown = shown[:LONGEST_SHOWN] + "..."
    return f"{key} is {shown} ({found.origin}); allowed: {allowed}"


def unknown(key: str, found: Raw) -> str:
    """One line about a key that there is not."""
    near = get_close_matches(key, BY_KEY, n=1)
    hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(BY_KEY)}"
    return f"{key} is no key of the configuration ({found.origin}); {hint}"


def toml(value: bool | int | float | str) -> str:
    """A value as TOML writes it."""
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
CLASSES = ("normal", "pubsub")
# Python's own: the first is a check of this module, the second an argument of stop().
NOT_FOR_SERVER = frozenset({"unprotected", "drain"})
ESCAPES = {'"': '\\"', "\\": "\\\\"}
LONGEST_SHOWN = 80
