"""The figures of a hub in the text format of Prometheus, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from interlock.hub.figures import FIGURES, PREFIX, MetricKind, metric_name

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(info: Mapping[str, object], *, draining: bool = False) -> str:
    """Return the body of /metrics: each figure of `info`, which has the names of INFO."""
    return "".join(f"{line}\n" for line in lines(info, draining=draining))


def lines(info: Mapping[str, object], *, draining: bool) -> Iterator[str]:
    """Yield the body of /metrics line by line."""
    labels = [
        f'{figure.name}="{escaped(str(info[figure.name]))}"'
        for figure in FIGURES
        if figure.kind is MetricKind.LABEL and figure.name in info
    ]
    yield from metric(f"{PREFIX}info", "gauge", "which hub this is; always 1")
    yield f"{PREFIX}info{{{','.join(labels)}}} 1"
    yield from metric(f"{PREFIX}draining", "gauge", "1 while it stops, else 0")
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


def metric(name: str, kind: str, help: str) -> Iterator[str]:
    """Yield the lines that stand above a value."""
    yield f"# HELP {name} {help[:1].upper()}{help[1:]}."
    yield f"# TYPE {name} {kind}"


def escaped(value: str) -> str:
    """Return a label's value as it stands between its quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
