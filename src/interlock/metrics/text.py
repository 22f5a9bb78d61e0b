"""The text format of Prometheus, for families of many samples: one pass, and no object for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from interlock.hub.serve.metrics import escaped, metric
from interlock.runtime.queue_figures import Family, Sample

__all__ = ["text"]


def text(told: Iterable[tuple[Family, Sequence[Sample]]]) -> str:
    """Return the body of a page; families without samples are left out."""
    found: list[str] = []
    for family, samples in told:
        if samples:
            found += metric(family.name, family.kind, family.help)
            name, labels = family.name, family.labels
            found += [f"{name}{labelled(labels, values)} {figure}" for values, figure in samples]
    return "\n".join([*found, ""])


@lru_cache(maxsize=65_536)
def labelled(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return labels as written behind a family's name."""
    if not names:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in pairs) + "}"
