"""One request to the API: its user, its arguments, and its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.dashboard.paths import decoded
from interlock.dashboard.polling.engine_access import Access
from interlock.dashboard.refusal import Refusal
from interlock.runtime.limits import MAX_NAME

if TYPE_CHECKING:
    from interlock.dashboard.settings import Settings


@dataclass(slots=True)
class Call:
    """An accepted request."""

    settings: Settings
    access: Access
    names: tuple[str, ...]
    """Segments of the path for the route's placeholders, as they were sent."""
    query: Mapping[str, str]
    body: bytes
    session: str
    """The id in the cookie, for the mark; empty for one that comes with a token in a header."""
    mark: str = ""

    @property
    def queue(self) -> str:
        """The queue that the path names first; raises Refusal for an invalid name."""
        return queue_name(decoded(self.names[0]))

    def text(self, name: str, longest: int = 1024) -> str:
        """Return a parameter of the query; empty if it is missing."""
        found = self.query.get(name, "")
        if len(found) > longest:
            raise Refusal(400, f"{name} has {len(found)} characters; allowed: up to {longest}")
        return found

    def number(self, name: str, usual: int, most: int) -> int:
        """Return a parameter of the query that is a whole number from 1 to `most`."""
        found = self.query.get(name)
        if found is None:
            return usual
        if not (found.isascii() and found.isdigit() and len(found) < 10 and int(found) >= 1):
            raise Refusal(400, f"{name} is {found[:40]!r}; allowed: 1 to {most}")
        return min(int(found), most)

    def json(self, *allowed: str) -> dict[str, Any]:
        """Return the object that was sent; an empty body is an empty object.

        Raises:
            Refusal: not an object, or one with unknown names: ignoring a misspelt filter would
                affect more than was meant.
        """
        if not self.body:
            return {}
        try:
            found = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refusal(400, f"the body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise Refusal(400, f"the body is {type(found).__name__}; allowed: a JSON object")
        if unknown := found.keys() - set(allowed):
            raise Refusal(400, f"{min(unknown)[:40]!r} is unknown; allowed: {', '.join(allowed)}")
        return found


def queue_name(name: str) -> str:
    """Return the name of a queue; raise Refusal for an invalid one."""
    if not 1 <= len(name.encode()) <= MAX_NAME or "{" in name or "}" in name:
        raise Refusal(400, f"a queue's name has 1 to {MAX_NAME} bytes, without braces")
    return name


Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path of the API, with its handler."""

    method: str
    path: str
    """Behind ``/api/``; ``*`` matches one segment."""

    answer: Handler
    writes: bool = False
    """True if the dashboard must have been started with write access."""
