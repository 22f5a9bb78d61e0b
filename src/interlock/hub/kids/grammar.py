"""The grammar of a configuration of kids: settings, each ended by `;`, and blocks in braces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from interlock.hub.config.store_lanes import DEEPEST


class KidsError(ValueError):
    """The text is not a configuration of kids. Names the line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")


@dataclass(frozen=True)
class Setting:
    """A key and its values: `nlimit pubsub 32MB 16MB 10min;`."""

    key: str
    values: tuple[str, ...]
    line: int


@dataclass
class Block:
    """Settings within braces, or those of the whole file."""

    line: int
    kind: str = ""
    """The kind of a store: file, network and so on."""

    role: str = ""
    """The part of a store in a buffer: primary, secondary, or nothing."""

    settings: list[Setting] = field(default_factory=list)
    log: list[Setting] = field(default_factory=list)
    listen: list[Setting] = field(default_factory=list)
    stores: list[Block] = field(default_factory=list)

    def get(self, key: str) -> str:
        """Return the first value of a key; empty if it is missing. The last key counts."""
        return last(self.settings, key)


def last(settings: list[Setting], key: str) -> str:
    """Return the first value of the last setting of a key; empty if it is missing."""
    found = [setting.values[0] for setting in settings if setting.key == key]
    return found[-1] if found else ""


def parsed(text: str) -> Block:
    """Return the whole file. Raises KidsError."""
    tokens = _Tokens(text)
    whole = Block(1)
    while tokens.peek() is not None:
        word, line = tokens.word("a setting, listen, log or store")
        match word.lower():
            case "store":
                if whole.stores:
                    raise KidsError(line, "a second store: there is one, which may hold others")
                whole.stores.append(_store(tokens, line, 0))
            case "log":
                whole.log += _settings(tokens, "log")
            case "listen":
                if whole.listen:
                    raise KidsError(line, "a second listen")
                whole.listen += _settings(tokens, "listen")
            case _:
                whole.settings.append(_setting(tokens, word, line))
    return whole


def _store(tokens: _Tokens, line: int, level: int) -> Block:
    if level > DEEPEST:
        raise KidsError(line, f"a store in {level} others; allowed: in at most {DEEPEST}")
    kind, at = tokens.word("the kind of the store")
    if kind not in KINDS:
        raise KidsError(at, f"a store of the kind {kind!r}; kids has {', '.join(KINDS)}")
    store = Block(line, kind)
    role = tokens.peek()
    if role is not None and role.lower() in ROLES:
        store.role = tokens.word("")[0]
    tokens.symbol("{")
    while tokens.peek() != "}":
        word, line = tokens.word("a setting, a store or }")
        if word.lower() == "store":
            store.stores.append(_store(tokens, line, level + 1))
            continue
        setting = _setting(tokens, word, line)
        if setting.key not in OF_STORES:
            raise KidsError(
                line, f"a store has no {setting.key}; kids knows {', '.join(OF_STORES)}"
            )
        store.settings.append(setting)
    tokens.symbol("}")
    if kind in {"multiple", "priority"} and not store.stores:
        raise KidsError(store.line, f"a {kind} store without a store in it")
    if kind == "buffer" and sorted(one.role for one in store.stores) != ["primary", "secondary"]:
        raise KidsError(store.line, "a buffer store has one store primary and one secondary")
    return store


def _settings(tokens: _Tokens, block: str) -> list[Setting]:
    tokens.symbol("{")
    found: list[Setting] = []
    while tokens.peek() != "}" or not found:
        word, line = tokens.word(f"a setting of {block}")
        found.append(_setting(tokens, word, line))
    tokens.symbol("}")
    return found


def _setting(tokens: _Tokens, key: str, line: int) -> Setting:
    if key.lower() in KEYWORDS:
        raise KidsError(line, f"{key!r} cannot be the name of a setting")
    values: list[str] = []
    while tokens.peek() != ";" or not values:
        value, at = tokens.word(f"a value of {key}, then ;")
        if value.lower() in KEYWORDS:
            raise KidsError(at, f"the value of {key} cannot be {value!r}, which begins a block")
        values.append(_unquoted(value))
    tokens.symbol(";")
    return Setting(key, tuple(values), line)


def _unquoted(value: str) -> str:
    # For kids the quotes were part of the value, which was never intended.
    if len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]:
        return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
    return value


class _Tokens:
    def __init__(self, text: str) -> None:
        self._all = list(_tokens(text))
        self._at = 0

    def peek(self) -> str | None:
        return self._all[self._at][0] if self._at < len(self._all) else None

    def word(self, wanted: str) -> tuple[str, int]:
        """Take a word, and return its line."""
        found, line = self._next(wanted)
        if found in SYMBOLS:
            raise KidsError(line, f"{found!r} where {wanted} should be")
        return found, line

    def symbol(self, wanted: str) -> None:
        found, line = self._next(wanted)
        if found != wanted:
            raise KidsError(line, f"{found!r} where {wanted!r} should be")

    def _next(self, wanted: str) -> tuple[str, int]:
        if self._at == len(self._all):
            line = self._all[-1][1] if self._all else 1
            raise KidsError(line, f"the file ends where {wanted} should be")
        self._at += 1
        return self._all[self._at - 1]


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    at, line = 0, 1
    while at < len(text):
        if found := NOISE.match(text, at):
            pass
        elif text[at] in SYMBOLS:
            yield text[at], line
            at += 1
            continue
        else:
            # The longer one, as in kids: a quote within a word is part of it.
            both = [match for match in (QUOTED.match(text, at), WORD.match(text, at)) if match]
            if not both:
                raise KidsError(line, f"{text[at]!r} has no meaning outside quotes")
            found = max(both, key=lambda match: match.end())
            yield found[0], line
        line += len(NEWLINE.findall(found[0]))
        at = found.end()


KINDS = ("file", "network", "buffer", "multiple", "priority", "null")
ROLES = ("primary", "secondary")
KEYWORDS = ("listen", "store", "log", *ROLES)
OF_STORES = ("host", "port", "socket", "path", "name", "rotate", "flush", "success", "topic")
SYMBOLS = "{};"
NEWLINE = re.compile(r"\r\n|\n|\r")
NOISE = re.compile(r"[ \t\r\n]+|#[^\r\n]*")
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^'\\]|\\.)*'", re.DOTALL)
WORD = re.compile(r"[!-+\--:?-z|~]+")
