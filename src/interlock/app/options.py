"""The options of queues that an app declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from interlock.client.wire.functions import DeclaredOptions


def checked(queues: Mapping[str, DeclaredOptions]) -> dict[str, DeclaredOptions]:
    """Return the options of an app's queues, or raise what is wrong with them."""
    from interlock.client.wire import declaration
    from interlock.client.wire.functions import DeclaredOptions

    if not isinstance(queues, Mapping):
        raise TypeError(f"App(): queues is {type(queues).__name__}; allowed: a dict of dicts")
    found: dict[str, DeclaredOptions] = {}
    for name, given in queues.items():
        if not isinstance(name, str) or not isinstance(given, Mapping):
            raise TypeError(
                f"App(): queues holds {name!r}: {given!r}; allowed: a name and a dict of options"
            )
        values: dict[str, Any] = dict(given)
        allowed = sorted(DeclaredOptions.__annotations__)
        if unknown := values.keys() - set(allowed):
            raise TypeError(
                f"App(): queues[{name!r}] has an unknown option {min(unknown, key=str)!r}; "
                f"allowed: {', '.join(allowed)}"
            )
        declaration.pairs(f"App(): queues[{name!r}]", values)
        found[name] = cast("DeclaredOptions", values)
    return found
