"""Users of a hub and their rights, declared as `[[user]]` tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interlock import _core
from interlock.hub import passwords
from interlock.hub.config.checks import whole
from interlock.hub.config.invalid_value import InvalidValue
from interlock.hub.config.table_lists import WORDS, Key, ListOf, words

DEFAULT = "default"
# Commands for publishers, subscribers, producers and consumers: none of them empties a queue or
# stops others' work.
ORDINARY = (
    *("@pubsub", "@queue", "@table", "@stream", "@connection", "acl|whoami"),
    *("-@operate", "-@admin", "-@dangerous"),
)


@dataclass(frozen=True)
class User:
    """A user that may connect, with its rights."""

    name: str
    passwords: tuple[str, ...]
    """Hashes, any of which admits it; none only for `default`: everybody is this user."""

    commands: tuple[str, ...]
    """Rules, the last match decides: `@class`, `name`, and with `-` what is taken away."""

    publish: tuple[str, ...]
    """Patterns of the topics that it may publish to."""

    subscribe: tuple[str, ...]
    """Patterns of the topics that it may subscribe to."""

    queues: tuple[str, ...]
    """Patterns of the queues whose functions it may call."""

    tables: tuple[str, ...] = ()
    """Patterns of the tables whose rows it may read and write."""

    queues_memory: int = 0
    """Maximum bytes of those queues together, beyond which its puts are refused; 0: unlimited."""

    @property
    def is_open(self) -> bool:
        """True if it needs no password."""
        return not self.passwords

    def knows(self, password: bytes) -> bool:
        """Return whether it is one of the user's passwords."""
        # All of them, so that the time does not reveal which.
        found = [passwords.matches(password, known) for known in self.passwords]
        return any(found)

    def allowed(self) -> list[str] | None:
        """Return the commands it may call by name; None for all."""
        if self.commands == ("@all",):
            return None
        allowed: set[str] = set()
        for rule in self.commands:
            named = meant(rule.removeprefix("-"))
            allowed = allowed - named if rule.startswith("-") else allowed | named
        return sorted(allowed)

    def for_server(
        self,
    ) -> tuple[
        str,
        bool,
        list[str] | None,
        list[bytes],
        list[bytes],
        list[bytes],
        list[bytes],
        list[str],
        int,
        int,
    ]:
        """Return the fields that the native server takes."""
        publish, subscribe, queues, tables = (
            [pattern.encode() for pattern in patterns]
            for patterns in (self.publish, self.subscribe, self.queues, self.tables)
        )
        rules = [rule if rule.startswith("-") else f"+{rule}" for rule in self.commands]
        known, memory = len(self.passwords), self.queues_memory
        allowed = self.allowed()
        return (
            *(self.name, self.is_open, allowed, publish, subscribe, queues, tables),
            *(rules, known, memory),
        )

    def table(self) -> dict[str, object]:
        """Return the user as a `[[user]]` table with the same meaning."""
        found: dict[str, object] = {"name": self.name}
        if self.passwords:
            found["passwords"] = list(self.passwords)
        found["commands"] = list(self.commands)
        for key in ("publish", "subscribe", "queues"):
            found[key] = list(getattr(self, key))
        if self.tables:
            found["tables"] = list(self.tables)
        if self.queues_memory:
            found["queues_memory"] = self.queues_memory
        return found

    def describe(self) -> str:
        """Return a line for people: the user's rights."""
        commands = " ".join(self.commands)

        def named(patterns: Sequence[str], none: str = "nothing") -> str:
            return ", ".join(patterns) if patterns else none

        return (
            f"may publish to {named(self.publish)}; subscribe to {named(self.subscribe)}; "
            f"queues {named(self.queues, 'none')}"
            f"{f' of {self.queues_memory} bytes' if self.queues_memory else ''}; "
            f"tables {named(self.tables, 'none')}; "
            f"commands {commands}"
        )


EVERYBODY = User(DEFAULT, (), ("@all",), ("*",), ("*",), ("*",), ("*",))
"""The only user if none is declared: any client may do everything."""


def ask_password(users: Sequence[User]) -> bool:
    """Return whether every login needs a password."""
    return not any(user.is_open for user in users)


def _name(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or " " in value:
        raise InvalidValue
    return value


def _hashes(value: object) -> tuple[str, ...]:
    hashes = words(value)
    for number, known in enumerate(hashes):
        try:
            passwords.parsed(known)
        except ValueError:
            # Not shown: it may be the password itself.
            raise InvalidValue(f"[{number}]", "no hash", HASH) from None
    return hashes


def _rules(value: object) -> tuple[str, ...]:
    rules = words(value)
    for rule in rules:
        if not meant(rule.removeprefix("-")):
            names = f"command names and {', '.join(classes())}"
            raise InvalidValue("", rule, f"{names}, each with a - in front to remove it")
    return rules


def _made(values: Mapping[str, Any], given: frozenset[str]) -> User:
    """Return the user of checked values."""
    name = values["name"]
    if not values["passwords"] and name != DEFAULT:
        raise InvalidValue(".passwords", "missing", f"a list of hashes; {HASH}")
    if not given & {"topics", "publish", "subscribe", "queues", "tables"}:
        allowed = 'a list of patterns, ["*"] for all topics; or queues or tables'
        raise InvalidValue(".topics", "missing", allowed)
    publish, subscribe = (
        values[key] if key in given else values["topics"] for key in ("publish", "subscribe")
    )
    return User(
        name,
        values["passwords"],
        values["commands"],
        publish,
        subscribe,
        values["queues"],
        values["tables"],
        values["queues_memory"],
    )


def meant(rule: str) -> set[str]:
    """Return the commands that a rule without its sign names; empty for an unknown name."""
    declared = _core.HubServer.commands()
    if rule == "@all":
        return {name for name, _ in declared}
    if rule.startswith("@"):
        return {name for name, categories in declared if rule in categories}
    return {name for name, _ in declared if name == rule or name.startswith(f"{rule}|")}


def classes() -> list[str]:
    """Return the classes of commands."""
    found = {category for _, categories in _core.HubServer.commands() for category in categories}
    return ["@all", *sorted(found)]


MOST_BYTES = 2**40
HASH = "what `interlock hub --hash-password` prints"

USERS = ListOf(
    "user",
    (
        Key("name", _name, "a text without spaces", "name of the user", required=True),
        Key("passwords", _hashes, WORDS, "hashes of its passwords", ()),
        Key("commands", _rules, WORDS, "rules; the last matching one decides", ORDINARY),
        Key("topics", words, WORDS, "patterns of topics, to publish and subscribe to", ()),
        Key("publish", words, WORDS, "patterns of topics to publish to; default: topics", ()),
        Key("subscribe", words, WORDS, "patterns of topics to subscribe to; default: topics", ()),
        Key("queues", words, WORDS, "patterns of queues", ()),
        Key("tables", words, WORDS, "patterns of state tables", ()),
        Key(
            "queues_memory",
            whole(0, MOST_BYTES),
            f"a whole number of bytes, from 0 (no limit) to {MOST_BYTES}",
            "maximum memory of those queues together; 0: no limit",
            0,
        ),
    ),
    _made,
    User,
)
