"""The grammar of lists of tables in the configuration: `[[user]]`, `[[table]]`.

The keys of an entry are declared one by one, as settings are. A key may itself be a list of
entries: its check is then the other list's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from interlock.hub.config.invalid_value import InvalidValue


class Entry(Protocol):
    """One entry of a list, checked."""

    @property
    def name(self) -> str:
        """Identifies it among the others of its list."""

    def table(self) -> dict[str, object]:
        """Return the entry as a table with the same meaning; a list of entries as tables."""


E = TypeVar("E", bound=Entry)


@dataclass(frozen=True)
class Key:
    """One key of an entry."""

    name: str
    check: Callable[[object], object]
    """Returns the value in canonical form; raises InvalidValue."""

    allowed: str
    """The text behind `allowed:` in an error."""

    help: str
    """One line."""

    default: object = None
    """Value if the key is not given; not checked."""

    required: bool = False
    """True if an entry must have the key, which then has no default."""


@dataclass(frozen=True)
class ListOf(Generic[E]):
    """The entries of one kind."""

    name: str
    """Name in brackets."""

    keys: tuple[Key, ...]
    make: Callable[[Mapping[str, Any], frozenset[str]], E]
    """Makes an entry from its values by key, and the keys that were given; raises InvalidValue, its
    place a key with a dot before it, for values that are valid alone and wrong together."""

    kind: type[E]

    def checked(self, value: object) -> tuple[E, ...]:
        """Return the entries of a list of tables.

        Raises InvalidValue, which names the entry and the key.
        """
        if isinstance(value, tuple) and all(isinstance(one, self.kind) for one in value):
            return value
        if not isinstance(value, list | tuple) or not all(
            isinstance(one, Mapping) for one in value
        ):
            raise InvalidValue("", value, f"a list of [[{self.name}]] tables")
        found: list[E] = []
        for index, table in enumerate(value):
            try:
                entry = self._entry(table)
                if any(entry.name == other.name for other in found):
                    raise InvalidValue(".name", entry.name, f"a name that no other {self.name} has")
            except InvalidValue as wrong:
                place = f"[{index}]{wrong.place}"
                raise InvalidValue(place, wrong.value, wrong.allowed) from None
            found.append(entry)
        return tuple(found)

    def _entry(self, table: Mapping[str, object]) -> E:
        known = {key.name: key for key in self.keys}
        for name in table:
            if name not in known:
                raise InvalidValue(f".{name}", "an unknown key", ", ".join(known))
        values: dict[str, object] = {}
        for key in self.keys:
            if key.name not in table:
                if key.required:
                    raise InvalidValue(f".{key.name}", "missing", key.allowed)
                values[key.name] = key.default
                continue
            try:
                values[key.name] = key.check(table[key.name])
            except InvalidValue as wrong:
                place = f".{key.name}{wrong.place}"
                if wrong.allowed:
                    raise InvalidValue(place, wrong.value, wrong.allowed) from None
                raise InvalidValue(place, table[key.name], key.allowed) from None
        return self.make(values, frozenset(table))


def lines(
    name: str, entries: Sequence[Entry], origin: str, toml: Callable[[object], str]
) -> Iterator[str]:
    """Yield the lines of a file that would give the entries, each below its origin."""
    for entry in entries:
        yield from _tables(name, entry.table(), f"  # {origin}", toml)


def _tables(
    name: str, table: Mapping[str, object], note: str, toml: Callable[[object], str]
) -> Iterator[str]:
    yield from ("", f"[[{name}]]{note}")
    inner: list[tuple[str, Mapping[str, object]]] = []
    for key, value in table.items():
        if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            inner += [(f"{name}.{key}", one) for one in value]
        else:
            yield f"{key} = {toml(value)}"
    # Behind the keys: lines after an inner head belong to that head.
    for head, one in inner:
        yield from _tables(head, one, "", toml)


def words(value: object) -> tuple[str, ...]:
    """Return `value`, which must be a list of texts, as a tuple."""
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise InvalidValue
    return tuple(value)


WORDS = "a list of texts"
