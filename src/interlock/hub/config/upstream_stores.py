"""A hub that forwards its publications: the stores that `--upstream` declares."""

from __future__ import annotations

from collections.abc import Sequence


def stores(upstreams: Sequence[str], kind: str | None = None) -> list[dict[str, object]]:
    """Return the `[[store]]` tables of an agent of these servers.

    `kind` sets the use of several servers: "priority" (the default) or "multiple".
    """
    # A publisher gets its reply once the message is on this machine's disk.
    safe: dict[str, object] = {"ack": "disk"}
    if len(upstreams) == 1 and kind is None:
        return [{"name": NAME, "kind": "network", **safe, "upstream": upstreams[0]}]
    kind = kind or "priority"
    names = [f"{NAME}-{number}" for number in range(1, len(upstreams) + 1)]
    # Each server of a multiple has a queue and a spool of its own; a priority has one for all.
    above, each = ({}, safe) if kind == "multiple" else (safe, {})
    return [
        {"name": NAME, "kind": kind, "stores": names, **above},
        *(
            {"name": name, "kind": "network", **each, "upstream": upstream}
            for name, upstream in zip(names, upstreams, strict=True)
        ),
    ]


NAME = "upstream"
