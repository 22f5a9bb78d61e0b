"""The library of functions for Redis and Valkey: put together, installed, checked by its hash.

A server has no `require`, so the files of `lua/` are joined into one text. Its name and those of
its functions carry the wire version: libraries of two versions exist side by side while clients are
upgraded, and neither replaces the other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from interlock import _core
from interlock.client.wire.admin import version
from interlock.client.wire.functions import FUNCTIONS
from interlock.client.wire.records import Version, release_of
from interlock.errors import InterlockError

if TYPE_CHECKING:
    import redis

WIRE = 1

# A local of Lua is visible only below the line that declares it.
SHARED = (
    "server",
    "limits",
    "declared",
    "clock",
    "arguments",
    "queue",
    "hashes",
    "counters",
    "record",
    "events",
    "lane",
    "pauses",
    "limit_names",
    "options",
    "turns",
    "rings",
    "rates",
    "slots",
    "sharing",
    "admission",
    "ready",
    "choice",
    "plain_turns",
    "lanes",
    "dedup",
    "results",
    "barriers",
    "shut_keys",
    "coalescing",
    "placement",
    "openings",
    "outcome",
    "parking",
    "sweeps",
    "leases",
    "forms",
    "lease_end",
    "runs",
    "selection",
    "plain",
    "grants",
    "due",
    "settlements",
    "quick",
    "room",
    "waiters",
    "description",
    "front",
    "calls",
    "replies",
    "lease_request",
    "stopped",
    "seal",
    "workers",
    "register",
)
WORD = re.compile(r"\w+")
# Comments and strings contain no names.
NO_CODE = re.compile(r"--.*|'[^'\n]*'")
# Not a field or a method.
NAMED = re.compile(r"(?<![\w.:])[a-zA-Z_]\w*")
# Of names that are declared together, no other file uses any.
DECLARED = re.compile(r"^local (function )?(\w+)\b(?!,)", re.MULTILINE)
OWN = re.compile(r"^local (?:function )?(\w+(?:, \w+)*)", re.MULTILINE)
CONSTANT = re.compile(r"^local ([A-Z_]{2,}) = (\d[\de]*)\b", re.MULTILINE)
COUNTERS = re.compile(r"^  counters = \{(.*?)^  \}", re.MULTILINE | re.DOTALL)
COUNTER = re.compile(r"\bN\.(\w+)")


class Library:
    """The text of one wire version, and its name."""

    def __init__(
        self,
        wire: int = WIRE,
        instead: Mapping[str, str] | None = None,
        release: str = _core.__version__,
    ) -> None:
        """Take the text of some files, by name, from `instead`; tests replace the clock."""
        self.wire = wire
        self.release = release
        self.name = f"il{wire}"
        self._instead = instead or {}

    # Assembled on demand: a client of a hub never needs it.
    @cached_property
    def _body(self) -> str:
        files = {name: self._instead.get(name) or _file("shared", name) for name in SHARED}
        files |= {f"il_{name}": _file("functions", name) for name in FUNCTIONS}
        return _joined(_with_numbers(files))

    @cached_property
    def hash(self) -> str:
        """The hash that identifies this library on a server."""
        return hashlib.sha256(f"{self.wire}\n{self._body}".encode()).hexdigest()

    @cached_property
    def text(self) -> str:
        """The text as FUNCTION LOAD takes it."""
        # One local: a function may have 200 of them, and the library is one.
        about = f"wire = '{self.wire}', hash = '{self.hash}', release = '{self.release}'"
        head = f"#!lua name={self.name}\nlocal ABOUT = {{ {about} }}"
        return f"{head}\n{self._body}"

    def installed(self, connection: redis.Redis) -> str | None:
        """Return the hash of the server's library of this wire version; None: it has none."""
        found = self.found(connection)
        return None if found is None else found.library

    def found(self, connection: redis.Redis) -> Version | None:
        """Return the version of the server's library; None: it has none."""
        from redis.exceptions import ResponseError

        try:
            reply: Any = connection.fcall(f"il{self.wire}_version", 0)
        except ResponseError as error:
            if "Function not found" in str(error):
                return None
            raise
        return version([part.encode() if isinstance(part, str) else part for part in reply])

    def replaces(self, found: Version) -> bool:
        """Return whether this text replaces the one on a server.

        A text of an older release, or a different text of the same release, is replaced,
        immediately and for all clients: within a wire version every text understands the data of
        older ones. A text of a newer release stays: it has the functions of this one, and may have
        stored data that this one does not understand.
        """
        return found.library != self.hash and found.release <= release_of(self.release)

    def load(self, connection: redis.Redis) -> bool:
        """Install this text if it replaces the one on the server.

        Return whether it was installed.
        """
        found = self.found(connection)
        if found is not None and not self.replaces(found):
            return False
        # REPLACE even if the library is missing: another client may have been quicker.
        connection.function_load(self.text, replace=True)
        if self.installed(connection) != self.hash:
            raise InterlockError(f"library {self.name}: another text was installed meanwhile")
        return True


def load(connection: redis.Redis) -> bool:
    """Install the library of this release if the server has none or an older one.

    Return whether it was installed.
    """
    return Library().load(connection)


def _with_numbers(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files with constants and counter positions replaced by their numbers.

    Lua 5.1 has no constants: each would take one of the few locals, and the position of a counter
    would be looked up in a table, by name, at each access. So a local in capitals whose value is a
    number must not be changed: the server would refuse the library.
    """
    constants: dict[str, str] = {}
    for text in files.values():
        constants |= CONSTANT.findall(text)
    named = COUNTERS.search(files["declared"])
    assert named is not None
    places = {word: str(i) for i, word in enumerate(WORD.findall(named.group(1)), 1)}

    def number(found: re.Match[str]) -> str:
        word: str = found.group()
        return constants.get(word, word)

    numbered = {}
    for name, text in files.items():
        counted = COUNTER.sub(lambda found: places[found.group(1)], CONSTANT.sub("", text))
        numbered[name] = WORD.sub(number, counted)
    return numbered


def _joined(files: Mapping[str, str]) -> str:
    """Return one text, in which a file's locals are private except those that a later file uses.

    Lua allows at most 200 locals at a time. Locals that other files use are declared before the
    file's block. A file may declare a name for itself that an earlier one has as well.
    """
    parts = []
    later = {name: _used(text) for name, text in files.items()}
    for name, text in files.items():
        del later[name]
        locals = {found.group(2) for found in DECLARED.finditer(text)}
        named = {local for local in locals if any(local in used for used in later.values())}

        def declared_before(found: re.Match[str], named: set[str] = named) -> str:
            function, local = found.group(1) or "", found.group(2)
            return function + local if local in named else found.group()

        if named:
            parts.append(f"local {', '.join(sorted(named))}")
        # Locals inside a function do not count towards the 200.
        begin, end = ("(function()", "end)();") if name.startswith("il_") else ("do", "end")
        parts.append(f"{begin}\n{DECLARED.sub(declared_before, text)}\n{end}")
    return "\n".join(parts)


def _used(text: str) -> set[str]:
    """Return the names in a file that it does not declare at its top."""
    own = {name for names in OWN.findall(text) for name in names.split(", ")}
    return set(NAMED.findall(NO_CODE.sub("", text))) - own


def _file(folder: str, name: str) -> str:
    for group in files("interlock.client.lua").joinpath(folder).iterdir():
        if (file := group.joinpath(f"{name}.lua")).is_file():
            return file.read_text("utf-8")
    raise FileNotFoundError(f"{folder}: no {name}.lua")
