"""The tables of the reference pages that are made from the declaration."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from scripts.wire.declaration import ROOT, Figure, Function, Option, Wire

PAGES = (
    "docs/reference/engine-wire.md",
    "docs/reference/refusals.md",
    "docs/reference/client.md",
    "docs/reference/records.md",
)
MARKS = re.compile(r"(<!-- wire:(?P<name>[a-z_ -]+) -->\n?).*?(<!-- /wire -->)", flags=re.DOTALL)
CONFIGURE = re.compile(r"(RemoteQueue\.configure\(\*, ).*?(retry=None\) -> DeclaredOptions)")


def all_of(wire: Wire) -> dict[str, str]:
    """Return the text of each page, by its path."""
    tables: dict[str, Callable[[], str]] = {
        "classes": lambda: classes(wire),
        "codes": lambda: table(
            ("code", "when"), [(f"`{one.name}`", one.when) for one in wire.codes]
        ),
        "figures": lambda: figures("figure", wire.figures),
        "counts": lambda: figures("field", [one for one in counted if not one.total]),
        "totals": lambda: figures("field", [one for one in counted if one.total]),
        "limits": lambda: table(
            ("of", "at most"), [(of, wire.filled(most)) for of, most in wire.told]
        ),
        "message options": lambda: message_options(wire),
        "names": lambda: ", ".join(
            f"`{name}`" for name in [*of_python(wire), "retry"] if name != "durability"
        ),
        "queue options": lambda: queue_options(wire),
        "operating": lambda: operating(wire),
        "refusals": lambda: refusals(wire),
    }
    counted = [one for one in wire.figures if one.scheduler]
    functions = {one.name: one for one in wire.functions}

    def made(mark: re.Match[str]) -> str:
        name = mark["name"]
        if name.startswith("usage "):
            one = functions[name.removeprefix("usage ")]
            text = "\n".join(["```", one.shown, *([one.part] if one.part else []), "```", ""])
        else:
            text = tables[name]()
        return mark[1] + text + mark[3]

    arguments = "".join(f"{name}=None, " for name in of_python(wire))
    texts = {page: MARKS.sub(made, (ROOT / page).read_text("utf-8")) for page in PAGES}
    return {page: CONFIGURE.sub(rf"\g<1>{arguments}\g<2>", text) for page, text in texts.items()}


def of_python(wire: Wire) -> list[str]:
    """Return the arguments of `configure` except the retry policy."""
    return [one.python for one in wire.queue if one.python and not one.policy]


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    texts = ["| " + " | ".join(cells) + " |" for cells in lines]
    texts[1] = "|" + "---|" * len(head)
    return "\n".join(texts) + "\n"


def classes(wire: Wire) -> str:
    """Return the functions of each class."""
    rows = []
    for group in ("produce", "consume", "read", "operate", "declare"):
        found = [one for one in wire.functions if one.group == group]
        text = named([one for one in found if one.reads or group != "read"])
        if group == "read":
            applying = named([one for one in found if not one.reads])
            text += f", which can be called by `FCALL_RO`; and {applying}"
        elif group == "declare":
            text += "; with `CHANGE` or `REPLACE` it is of class operate"
        rows.append((group, text))
    return table(("class", "functions"), rows)


def named(functions: list[Function]) -> str:
    """Return the names of functions."""
    return ", ".join(f"`il1_{one.name}`" for one in functions)


def figures(head: str, listed: Sequence[Figure]) -> str:
    """Return what these figures count."""
    return table((head, "meaning"), [(f"`{one.name}`", one.says) for one in listed])


def operating(wire: Wire) -> str:
    """Return the functions that have no section of their own."""
    rows = [
        (f"`{one.shown}`", wire.filled(one.does), one.answers) for one in wire.functions if one.does
    ]
    return table(("call", "does", "answers"), rows)


def queue_options(wire: Wire) -> str:
    """Return the options of il1_configure."""
    rows = [(f"`{one.name}`", one.value, one.not_given or str(one.default)) for one in wire.queue]
    return table(("name", "value", "default"), rows)


def message_options(wire: Wire) -> str:
    """Return the options of il1_put."""
    own: list[Option] = [one for one in wire.message if not one.policy]
    rows = [(f"`{one.name}`", wire.filled(one.value), one.not_given) for one in own]
    policy = ", ".join(f"`{one.name}`" for one in wire.policy)
    rows.append((policy, "its retry policy, as in `il1_configure`", "the queue's, each"))
    return table(("name", "value", "not given"), rows)


def refusals(wire: Wire) -> str:
    """Error words of servers, with the reaction to each."""
    rows = []
    for one in wire.refusals:
        said = "; ".join(f"`{text}`" for text in (one.shown or one.said).split("; "))
        said = one.said if one is wire.refusals[-1] else said
        rows.append((said, one.by, one.when, one.course, f"`{one.raises}`"))
    return table(("said", "by", "when", "course", "raises"), rows)
