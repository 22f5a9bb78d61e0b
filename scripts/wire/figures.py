"""The figures of queues: in Rust, in Python and in the tables of the pages."""

from __future__ import annotations

from scripts.wire.declaration import Figure, Wire
from scripts.wire.text import capital, doc, string


def of_scheduler(wire: Wire) -> str:
    """Return the counts of the scheduler, with their names."""
    counts = [one for one in wire.figures if one.scheduler]
    names = ", ".join(one.name for one in counts)
    lines = ["//! The counts of a queue that the scheduler keeps.", ""]
    lines += doc("Counts of now, and since the queue was created")
    lines += ["#[derive(Clone, Debug, Default, PartialEq, Eq)]", "pub struct Stats {"]
    for one in counts:
        lines += [*doc(one.says), f"pub {one.name}: u64,"]
    lines += ["}", "", "impl Stats {"]
    lines += doc("Returns each count with its name, in the order of the fields")
    lines.append(f"pub fn named(&self) -> [(&'static str, u64); {len(counts)}] {{")
    lines += [f"let Stats {{ {names} }} = *self;", "["]
    lines += [f'("{one.name}", {one.name}),' for one in counts]
    return "\n".join([*lines, "]", "}", "}"]) + "\n"


def of_engine(wire: Wire) -> str:
    """Return the figures that the engine counts, and the list of all."""
    lines = ["//! The figures of `il1_stats`, in the order of the reply.", ""]
    lines += ["use interlock_core::queue::types::Stats;", ""]
    lines += doc("The figures that the scheduler does not count")
    lines.append("pub struct Others {")
    for one in wire.figures:
        if not one.scheduler:
            lines += [*doc(one.says), f"pub {one.name}: u64,"]
    lines += ["}", "", *doc("Returns all figures by their names")]
    lines.append("pub fn named(counts: &Stats, others: &Others) -> Vec<(&'static str, u64)> {")
    lines.append("vec![")
    for one in wire.figures:
        owner = "counts" if one.scheduler else "others"
        lines.append(f'("{one.name}", {owner}.{one.name}),')
    return "\n".join([*lines, "]", "}"]) + "\n"


def stats(wire: Wire) -> list[str]:
    """Return the fields of `Stats` in Python, except the ages."""
    lines = []
    for one in wire.figures:
        if one.scheduler:
            lines += [f"{one.name}: int", *string(f"{capital(one.says)}.".replace("`", "``"))]
    return lines


def families(wire: Wire, kind: str) -> list[str]:
    """Return the declarations of the metrics of a kind, `counter` or `gauge`."""
    return [family(one) for one in wire.metrics if one.total == (kind == "counter")]


def family(figure: Figure) -> str:
    """Return the declaration of a figure's metric."""
    metric = dict(figure.metric)
    given = [figure.name, metric.pop("help")]
    if "panel" in metric:
        given += [metric.pop("panel"), *([metric.pop("line")] if "line" in metric else [])]
    arguments = [f'"{text}"' for text in given]
    arguments += [f'{name}="{value}"' for name, value in metric.items()]
    call = "counter" if figure.total else "gauge"
    return f"{call}({', '.join(arguments)}),"
