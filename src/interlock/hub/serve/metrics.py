"""The figures of a hub in the text format of Prometheus, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from interlock.hub.serve.figures import (
    FIGURES,
    PREFIX,
    STORE_FIGURES,
    TABLE_FIGURES,
    Figure,
    MetricKind,
    metric_name,
)
from interlock.runtime.queue_figures import Family, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(
    info: Mapping[str, object],
    tables: Mapping[str, Mapping[str, int]] | None = None,
    stores: Mapping[str, Mapping[str, int]] | None = None,
    queues: Iterable[tuple[Family, Sequence[Sample]]] = (),
    *,
    draining: bool = False,
) -> str:
    """Return the body of /metrics: each figure of `info`, under its INFO name, then those of each
    table and store, and the families of queues."""
    found = chain(
        lines(info, draining=draining),
        labelled("table", TABLE_FIGURES, tables or {}),
        labelled("store", STORE_FIGURES, stores or {}),
        of_families(queues),
    )
    return "\n".join([*found, ""])


def lines(info: Mapping[str, object], *, draining: bool) -> Iterator[str]:
    """Yield the body of /metrics line by line."""
    labels = [
        f'{figure.name}="{escaped(str(info[figure.name]))}"'
        for figure in FIGURES
        if figure.kind is MetricKind.LABEL and figure.name in info
    ]
    yield from metric(f"{PREFIX}info", "gauge", "which hub this is; always 1")
    yield f"{PREFIX}info{{{','.join(labels)}}} 1"
    yield from metric(f"{PREFIX}draining", "gauge", "1 while it is stopping, else 0")
    yield f"{PREFIX}draining {int(draining)}"
    for figure in FIGURES:
        if figure.metric and figure.name in info:
            yield from metric(figure.metric, figure.kind.value, figure.help)
            yield f"{figure.metric} {info[figure.name]}"
    declared = {figure.name for figure in FIGURES}
    for name, value in info.items():
        if name not in declared and isinstance(value, int | float):
            yield f"# TYPE {metric_name(name)} untyped"
            yield f"{metric_name(name)} {value}"


def labelled(
    label: str, figures: Sequence[Figure], all_found: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """Yield the figures of tables or stores, each with its name as the label."""
    for figure in figures:
        told = [
            (name, found[figure.name]) for name, found in all_found.items() if figure.name in found
        ]
        if told:
            name = metric_name(f"{label}_{figure.name}", figure.kind)
            yield from metric(name, figure.kind.value, figure.help)
            in_ms = figure.name.endswith("_ms")
            for one, value in told:
                yield f'{name}{{{label}="{escaped(one)}"}} {value / 1000 if in_ms else value}'


def of_families(families: Iterable[tuple[Family, Sequence[Sample]]]) -> Iterator[str]:
    """Yield the families that have samples, with them."""
    # A queue's labels are in most families: each is formatted once.
    written: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {(): {(): ""}}
    for family, samples in families:
        if not samples:
            continue
        yield from metric(family.name, family.kind, family.help)
        name, known = family.name, written.setdefault(family.labels, {})
        for values, figure in samples:
            labels = known.get(values)
            if labels is None:
                pairs = zip(family.labels, values, strict=True)
                told = ",".join(f'{label}="{escaped(value)}"' for label, value in pairs)
                labels = known[values] = f"{{{told}}}"
            yield f"{name}{labels} {figure}"


def metric(name: str, kind: str, help: str) -> Iterator[str]:
    """Yield the header lines of a metric."""
    yield f"# HELP {name} {help[:1].upper()}{help[1:]}."
    yield f"# TYPE {name} {kind}"


def escaped(value: str) -> str:
    """Return a label's value as written between its quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
