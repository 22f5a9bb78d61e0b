"""The sources in Lua that are made from the declaration."""

from __future__ import annotations

from collections.abc import Iterable

from scripts.wire.declaration import Option, Wire
from scripts.wire.text import MADE, capital, told, wrapped


def limits(wire: Wire) -> str:
    """Return the limits that the library knows; numbers are inserted where they are named."""
    lines = [
        f"-- {MADE}",
        "",
        "-- The limits of one call. A function blocks the whole server while it",
    ]
    lines += ["-- runs, so each of these bounds how long that can be."]
    for limit in wire.limits.values():
        if limit.lua:
            lines += ["", *wrapped(f"-- {capital(limit.says)}", "-- ")]
            lines.append(f"local {limit.name} = {number(limit.of('redis'))}")
    return "\n".join(lines) + "\n"


def declared(wire: Wire) -> str:
    """Return the functions' flags and the options, in one local: the library has few to spare."""
    lines = [f"-- {MADE}", "", "-- One table, for each name at the top takes one of 200 locals."]
    lines += ["local DECLARED = {", "  flags = {"]
    for function in wire.functions:
        if "redis" in function.servers and function.takes_queue:
            flags = ", ".join(f"'{flag}'" for flag in function.flags)
            lines.append(f"    {function.name} = {{{f' {flags} ' if flags else ''}}},")
    lines += ["  },", "  -- Options of a queue, in the order of the answer.", "  queue = {"]
    lines += [f"    {one_option(one, default=True)}," for one in wire.queue]
    lines += [f"    told = '{told(one.name for one in wire.queue)}',", "  },"]
    lines += ["  -- Options of a message; a default value counts as not given.", "  message = {"]
    lines += [f"    {one_option(one, default=not one.policy)}," for one in wire.message]
    lines += [f"    told = '{told(one.name for one in wire.message)}',", "  },"]
    dead = [one.name for one in wire.message if one.of_the_dead or one.policy]
    lines += ["  -- Options that a dead letter keeps.", "  of_the_dead = {"]
    lines += [f"    '{name}'," for name in dead]
    lines += ["  },", "  -- Figures of il1_stats, in the order of the reply.", "  figures = {"]
    lines += quoted(one.name for one in wire.figures)
    lines += ["  },", "  -- Counters, in the order in which they are stored.", "  counters = {"]
    return "\n".join([*lines, *quoted(wire.stored), "  },", "}"]) + "\n"


def quoted(names: Iterable[str]) -> list[str]:
    """Return strings in lines of a table."""
    listed = ", ".join(f"'{name}'" for name in names)
    return [f"    {line}" for line in wrapped(f"{listed},", "")]


def one_option(option: Option, *, default: bool) -> str:
    """One option, in a line."""
    parts = [f"name = '{option.name}'"]
    if option.words:
        words = ", ".join(f"{word} = true" for word in option.words)
        parts.append(f"words = {{ {words}, told = '{told(option.words)}' }}")
    elif option.text:
        parts.append(f"bytes = {option.text}")
        parts += ["list = true"] * (option.type != "u64")
    else:
        parts.append(f"least = {option.least}, most = {option.most}")
    if default and option.default is not None:
        value = option.default
        parts.append(f"default = '{value}'" if isinstance(value, str) else f"default = {value}")
    return "{ " + ", ".join(parts) + " }"


def number(number: int) -> str:
    """Return a number as Lua reads it: it has no integers, and takes a large one as a power."""
    digits = str(number)
    tail = len(digits) - len(digits.rstrip("0"))
    return f"{digits[:-tail]}e{tail}" if tail >= 12 else digits
