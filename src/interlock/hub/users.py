"""Users of a hub and their rights, as `[[user]]` tables declare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interlock import _core
from interlock.hub import passwords
from interlock.hub.invalid_value import InvalidValue

DEFAULT = "default"
# What a publisher or subscriber, a producer or consumer needs: nothing that empties a queue or
# stops others' work.
ORDINARY = (
    *("@pubsub", "@queue", "@connection", "acl|whoami"),
    *("-@operate", "-@admin", "-@dangerous"),
)


@dataclass(frozen=True)
class User:
    """A user that may connect, and what it may do."""

    name: str
    passwords: tuple[str, ...]
    """Hashes, any of which lets it in; none, only of `default`: everybody is this user."""

    commands: tuple[str, ...]
    """Rules, the last one that fits decides: `@class`, `name`, and with `-` what is taken away."""

    publish: tuple[str, ...]
    """Patterns of the topics that it may publish to."""

    subscribe: tuple[str, ...]
    """Patterns of the topics that it may subscribe to."""

    queues: tuple[str, ...]
    """Patterns of the queues whose functions it may call."""

    queues_memory: int = 0
    """Bytes that those queues may take together before it can put no more; 0: no bound."""

    @property
    def is_open(self) -> bool:
        """It needs no password."""
        return not self.passwords

    def knows(self, password: bytes) -> bool:
        """Return whether it is one of the user's passwords."""
        # All of them, so that the time does not tell which.
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
        str, bool, list[str] | None, list[bytes], list[bytes], list[bytes], list[str], int, int
    ]:
        """Return the fields that the native server takes."""
        publish, subscribe, queues = (
            [pattern.encode() for pattern in patterns]
            for patterns in (self.publish, self.subscribe, self.queues)
        )
        rules = [rule if rule.startswith("-") else f"+{rule}" for rule in self.commands]
        known, memory = len(self.passwords), self.queues_memory
        allowed = self.allowed()
        return (
            self.name, self.is_open, allowed, publish, subscribe, queues, rules, known, memory
        )  # fmt: skip

    def table(self) -> dict[str, object]:
        """Return the user as a `[[user]]` table that would give it."""
        found: dict[str, object] = {"name": self.name}
        if self.passwords:
            found["passwords"] = list(self.passwords)
        found["commands"] = list(self.commands)
        for key in ("publish", "subscribe", "queues"):
            found[key] = list(getattr(self, key))
        if self.queues_memory:
            found["queues_memory"] = self.queues_memory
        return found

    def describe(self) -> str:
        """Return a line for people: what is open to it."""
        commands = " ".join(self.commands)

        def named(patterns: Sequence[str], none: str = "nothing") -> str:
            return ", ".join(patterns) if patterns else none

        return (
            f"may publish to {named(self.publish)}; subscribe to {named(self.subscribe)}; "
            f"queues {named(self.queues, 'none')}"
            f"{f' of {self.queues_memory} bytes' if self.queues_memory else ''}; "
            f"commands {commands}"
        )


EVERYBODY = User(DEFAULT, (), ("@all",), ("*",), ("*",), ("*",))
"""The user that there is when none is named: whoever connects may do all."""


def ask_password(users: Sequence[User]) -> bool:
    """Return whether nobody is let in without a password."""
    return not any(user.is_open for user in users)


def checked(value: object) -> tuple[User, ...]:
    """Return the users of a list of tables.

    Raises InvalidValue, which names the table and the key.
    """
    if isinstance(value, tuple) and all(isinstance(user, User) for user in value):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(one, Mapping) for one in value):
        raise InvalidValue("", value, "a list of [[user]] tables")
    users: list[User] = []
    for index, table in enumerate(value):
        user = one(f"[{index}]", table)
        if any(user.name == other.name for other in users):
            raise InvalidValue(f"[{index}].name", user.name, "a name that no other user has")
        users.append(user)
    return tuple(users)


def one(place: str, table: Mapping[str, object]) -> User:
    """Return the user of one table."""
    for key in table:
        if key not in KEYS:
            raise InvalidValue(f"{place}.{key}", "a key that there is not", ", ".join(KEYS))
    name = table.get("name")
    if not isinstance(name, str) or not name or not name.isprintable() or " " in name:
        raise InvalidValue(f"{place}.name", name, "a text without spaces")
    hashes = words(place, table, "passwords", ())
    for number, known in enumerate(hashes):
        try:
            passwords.parsed(known)
        except ValueError:
            # Not shown: it may be the password itself.
            raise InvalidValue(f"{place}.passwords[{number}]", "no hash", HASH) from None
    if not hashes and name != DEFAULT:
        raise InvalidValue(f"{place}.passwords", "missing", f"a list of hashes; {HASH}")
    rules = words(place, table, "commands", ORDINARY)
    for rule in rules:
        if not meant(rule.removeprefix("-")):
            names = f"command names and {', '.join(classes())}"
            allowed = f"{names}, each with a - before it to take it away"
            raise InvalidValue(f"{place}.commands", rule, allowed)
    topics = words(place, table, "topics", ())
    publish = words(place, table, "publish", topics)
    subscribe = words(place, table, "subscribe", topics)
    queues = words(place, table, "queues", ())
    if not any(key in table for key in ("topics", "publish", "subscribe", "queues")):
        allowed = 'a list of patterns, ["*"] for all topics; or queues'
        raise InvalidValue(f"{place}.topics", "missing", allowed)
    memory = table.get("queues_memory", 0)
    if isinstance(memory, bool) or not isinstance(memory, int) or not 0 <= memory <= MOST_BYTES:
        allowed = f"a whole number of bytes, from 0 (no limit) to {MOST_BYTES}"
        raise InvalidValue(f"{place}.queues_memory", memory, allowed)
    return User(name, hashes, rules, publish, subscribe, queues, memory)


def words(
    place: str, table: Mapping[str, object], key: str, default: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the list of texts that a table has under a key."""
    value = table.get(key, default)
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise InvalidValue(f"{place}.{key}", value, "a list of texts")
    return tuple(value)


def meant(rule: str) -> set[str]:
    """Return the commands that a rule without its sign names; none if there is no such thing."""
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


KEYS = (
    *("name", "passwords", "commands", "topics", "publish", "subscribe", "queues"),
    "queues_memory",
)
MOST_BYTES = 2**40
HASH = "what `interlock hub --hash-password` prints"
