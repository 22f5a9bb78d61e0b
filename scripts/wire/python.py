"""The sources in Python that are made from the declaration."""

from __future__ import annotations

import re
from collections.abc import Iterable

from scripts.wire import figures
from scripts.wire.declaration import ROOT, Option, Wire
from scripts.wire.text import MADE, capital, number, string

PARTS = (
    "src/interlock/client/faces/aio_queue.py",
    "src/interlock/cli/queue/actions/configure.py",
    "src/interlock/message.py",
    "src/interlock/runtime/queue_figures.py",
)
MARKS = re.compile(r"((?P<indent> *)# wire: (?P<name>\w+)\n).*?( *# /wire\n)", flags=re.DOTALL)


def limits(wire: Wire) -> str:
    """Return the limits that clients know."""
    lines = [f"# {MADE}", '"""The limits of the wire."""', ""]
    lines += ["from __future__ import annotations", ""]
    for limit in wire.limits.values():
        if limit.python:
            lines.append(f"{limit.name} = {number(limit.of('hub'))}")
            lines += string(capital(limit.says) + ".")
            if limit.value is None:
                lines.append(f"{limit.name}_ON_REDIS = {number(limit.of('redis'))}")
                lines += string(f"The same on Redis: {limit.says}.")
    return "\n".join(lines) + "\n"


def declared(wire: Wire) -> str:
    """Return the functions and options, as the client of an engine has them."""
    words = [one for one in wire.queue if one.words and one.scheduler and not one.policy]
    texts = sorted({one.type for one in (*words, *(one for one in wire.queue if one.text))})
    lines = [
        f"# {MADE}",
        '"""The functions and options of the wire."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Literal, NamedTuple, TypedDict",
        "",
        "from interlock.retry import Retry, Seconds",
        f"from interlock.runtime.concurrency import {', '.join(texts)}",
        "",
        "",
        "class Option(NamedTuple):",
        '    """An option of a queue that a client declares."""',
        "",
        "    name: str",
        "    argument: str",
        "    most: int = 0",
        "    words: tuple[str, ...] = ()",
        "    micros: bool = False",
        '    """The argument is in seconds."""',
        "    unbounded: bool = False",
        '    """None is allowed, and means 0."""',
        "    limits: bool = False",
        '    """A mapping of names to numbers and rates."""',
        "    weights: bool = False",
        '    """A mapping of groups to numbers."""',
        "",
        "",
        "OPTIONS = (",
    ]
    types: list[tuple[str, str]] = []
    lines += _options(wire, [one for one in wire.queue if one.python and not one.policy], types)
    lines += [")", '"""Options other than the retry policy."""', "", "POLICY = ("]
    lines += _options(wire, wire.policy, [])
    lines += [")", '"""Options of a `Retry`."""', ""]
    lines += [f"FUNCTIONS = {tuple(o.name for o in wire.functions if 'redis' in o.servers)!r}"]
    lines += ['"""Functions of the library for Redis."""', ""]
    lines += [f"GROWING = {tuple(one.name for one in wire.functions if one.grows)!r}"]
    lines += ['"""Functions that a server refuses at its memory limit."""', "", ""]
    for one in wire.queue:
        # The value of one that a queue of this process has too is declared with those.
        if one.words and not one.policy and not one.scheduler:
            lines[-1:] = [f"{one.python.capitalize()} = Literal{list(one.words)!r}", "", ""]
    lines += ["class DeclaredOptions(TypedDict, total=False):"]
    lines += ['    """The options that an engine holds, by the names of their arguments."""', ""]
    lines += [f"    {name}: {kind}" for name, kind in types] + ["    retry: Retry"]
    return "\n".join(lines) + "\n"


def _options(wire: Wire, options: Iterable[Option], types: list[tuple[str, str]]) -> list[str]:
    """Return a line for each option; add its argument and the argument's type to `types`."""
    lines = []
    for one in options:
        said = f'"{one.name}", "{one.python}"'
        none = ", unbounded=True" if one.none else ""
        if one.words:
            lines.append(f"    Option({said}, words={one.words!r}),")
            types.append((one.python, one.python.capitalize()))
        elif one.text:
            lines.append(f"    Option({said}, {one.type.lower()}=True),")
            types.append((one.python, one.type))
        elif one.micros:
            lines.append(f"    Option({said}, {number(wire.most(one))}, micros=True{none}),")
            types.append((one.python, "Seconds | None" if one.none else "Seconds"))
        else:
            lines.append(f"    Option({said}, {number(wire.most(one))}{none}),")
            types.append((one.python, "int | None" if one.none else "int"))
    return lines


def parts(wire: Wire) -> dict[str, str]:
    """Return the files by hand in which some lines are made, by their paths."""
    own = [one for one in wire.queue if one.python and not one.policy]
    made = {
        "arguments": [f"{one.python}: {optional(one)} = None," for one in own],
        "passed": [f"{one.python}={one.python}," for one in own],
        "flags": [flag(one) for one in (*own, *wire.policy)],
        "stats": figures.stats(wire),
        "gauges": figures.families(wire, "gauge"),
        "counters": figures.families(wire, "counter"),
    }

    def lines(mark: re.Match[str]) -> str:
        body = "".join(f"{mark['indent']}{line}\n" for line in made[mark["name"]])
        return mark[1] + body + mark[4]

    return {path: MARKS.sub(lines, (ROOT / path).read_text("utf-8")) for path in PARTS}


def optional(option: Option) -> str:
    """Return the type of an option's argument that need not be given."""
    if option.words:
        return f"{option.python.capitalize()} | None"
    if option.text:
        return f"{option.type} | None"
    return "Seconds | None" if option.micros else "int | None"


def flag(option: Option) -> str:
    """Return the entry of an option's flag."""
    value = "N"
    if option.micros:
        value = "SECONDS"
    elif option.words or option.type == "bool":
        value = "WORD"
    elif option.text:
        value = "LIST"
    elif option.least:
        value = "NUMBER"
    name = option.python.replace("_", "-")
    return f'"{option.python}": Flag("--{name}", "{option.flag}", "{value}"),'


def refusal_table(wire: Wire) -> str:
    """Return the rows of servers' refusals."""
    lines = [
        f"# {MADE}",
        '"""The refusals of servers, of which the first that fits counts."""',
        "",
        "from __future__ import annotations",
        "",
        "from interlock.client.connection.refusal import TENANT, Refusal",
        "",
        "REFUSALS = (",
    ]
    for one in wire.refusals:
        advice = f"f{one.advice!r}" if "{TENANT}" in one.advice else repr(one.advice)
        parts = [repr(one.said), repr(one.course), repr(one.by), repr(one.when)]
        if one.advice:
            parts.append(f"advice={advice}")
        if one.raises != "EngineUnavailable":
            parts.append(f"raises={one.raises!r}")
        parts += ["unsure=True"] * one.unsure + ["ends=True"] * one.ends
        if one.shown:
            parts.append(f"shown={one.shown!r}")
        lines.append(f"    Refusal({', '.join(parts)}),")
    return "\n".join([*lines, ")"]) + "\n"
