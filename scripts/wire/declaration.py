"""The declaration of the wire: the files of `wire/`, read and checked."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "wire"
CLASSES = ("produce", "consume", "read", "operate", "declare")
COURSES = ("retry", "raise", "end")


class Invalid(Exception):
    """An invalid entry; the text names it."""


@dataclass(frozen=True)
class Argument:
    """One argument of a function, as a hub documents it."""

    name: str
    optional: bool
    multiple: bool

    def __str__(self) -> str:
        name = self.name.upper()
        if not self.multiple:
            return f"[{name}]" if self.optional else name
        return f"[{name} ...]" if self.optional else f"{name} [{name} ...]"


@dataclass(frozen=True)
class Function:
    """A function of the wire, without the ``il1_`` before its name."""

    name: str
    group: str
    """The right that a call needs."""
    arguments: tuple[Argument, ...]
    summary: str
    complexity: str
    usage: str = ""
    part: str = ""
    """The parts of one of its arguments."""
    does: str = ""
    answers: str = ""
    record: int | None = None
    grows: bool = False
    allow_oom: bool = True
    applies_due: bool = False
    ephemeral: bool = False
    takes_queue: bool = True
    servers: tuple[str, ...] = ("redis", "hub")

    @property
    def variant(self) -> str:
        """Its name in Rust."""
        return camel(self.name)

    @property
    def reads(self) -> bool:
        """True if it writes nothing, not even due changes: FCALL_RO takes it."""
        return self.group == "read" and not self.applies_due and not self.ephemeral

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags with which it is registered on Redis."""
        if self.reads:
            return ("no-writes",)
        return () if self.grows or not self.allow_oom else ("allow-oom",)

    @property
    def shown(self) -> str:
        """The name and the arguments, as a page has them."""
        usage = self.usage or " ".join(map(str, self.arguments))
        return f"il1_{self.name} {usage}".rstrip()


@dataclass(frozen=True)
class Record:
    """A word of a journal that is not a function."""

    name: str
    record: int
    says: str
    arguments: str = ""

    @property
    def variant(self) -> str:
        """Its name in Rust."""
        return camel(self.name)


@dataclass(frozen=True)
class Limit:
    """A number that bounds what a call may ask for."""

    name: str
    says: str
    value: int | None = None
    redis: int | None = None
    hub: int | None = None
    lua: bool = False
    rust: str = ""
    core: str = ""
    rows: str = ""
    python: bool = False

    def of(self, server: str) -> int:
        """Return the value of a server."""
        found = self.value if self.value is not None else getattr(self, server)
        if found is None:
            raise Invalid(f"limit {self.name} has no value for {server}")
        return int(found)


@dataclass(frozen=True)
class Option:
    """An option of a queue or of a message."""

    name: str
    value: str
    least: int = 0
    most: str | int | None = None
    words: tuple[str, ...] = ()
    text: str = ""
    """For any bytes, not empty, up to this limit; of a queue, a list that its type reads."""
    default: int | str | None = None
    none: str = ""
    policy: bool = False
    of_the_dead: bool = False
    restored: bool = False
    """It is of il1_restore only, behind the retry policy."""
    field: str = ""
    type: str = "u64"
    python: str = ""
    micros: bool = False
    not_given: str = ""
    scheduler: str = ""
    """Its field in the options of the scheduler."""
    since: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """The first version of a dump that has it: of the `scheduler`, and of a `queue`."""
    tried: tuple[int, ...] = ()
    """Values for random schedules."""
    flag: str = ""
    """The help of its flag on the command line."""

    @property
    def variant(self) -> str:
        """Its name in Rust."""
        return camel(self.field) if self.field else self.name.capitalize()


@dataclass(frozen=True)
class Figure:
    """A figure of a queue in the reply of `il1_stats`."""

    name: str
    says: str
    total: bool = False
    """True if it counts since the queue was created."""
    scheduler: bool = False
    """True if the scheduler counts it."""
    metric: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """Words of a server's error, with the client's reaction."""

    said: str
    course: str
    by: str
    when: str
    advice: str = ""
    raises: str = "EngineUnavailable"
    unsure: bool = False
    ends: bool = False
    shown: str = ""


@dataclass(frozen=True)
class Code:
    """First word of an error of a function."""

    name: str
    rust: str
    when: str


@dataclass(frozen=True)
class Wire:
    """The whole declaration."""

    functions: tuple[Function, ...]
    records: tuple[Record, ...]
    limits: Mapping[str, Limit]
    told: tuple[tuple[str, str], ...]
    queue: tuple[Option, ...]
    message: tuple[Option, ...]
    """Including those of a policy."""
    refusals: tuple[Refusal, ...]
    codes: tuple[Code, ...]
    figures: tuple[Figure, ...]
    """In the order of the reply."""
    metrics: tuple[Figure, ...]
    """Those with a metric, in the order of the metrics."""
    stored: tuple[str, ...]
    """The counters of a queue on Redis, in the order in which it stores them."""
    policy: tuple[Option, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", tuple(one for one in self.queue if one.policy))

    def most(self, option: Option, server: str = "hub") -> int:
        """Return the largest number that an option takes."""
        most = option.most
        if most is None:
            raise Invalid(f"option {option.name} has no most")
        return self.limits[most].of(server) if isinstance(most, str) else most

    def dumped(self, whose: str) -> list[Option]:
        """Return the options that a dump writes by the declaration, in the order of its bytes."""
        found = [one for one in self.queue if whose in one.since]
        return sorted(found, key=lambda one: (one.since[whose], one.scheduler or one.field))

    def filled(self, text: str) -> str:
        """Return a text of a page, in which the limits are named in braces."""

        def value(found: re.Match[str]) -> str:
            name, _, of = found[1].partition(".")
            limit = self.limits[name]
            if of == "mib":
                return str(limit.of("hub") >> 20)
            return f"{limit.of(of or 'hub'):,}"

        return re.sub(r"\{([A-Z_]+(?:\.\w+)?)\}", value, text)


def declared() -> Wire:
    """Read the whole declaration.

    Raises:
        Invalid: an entry contradicts itself or another; the text names it.
    """
    limits = _read("limits")
    options = _read("options")
    refusals = _read("refusals")
    figures = _read("figures")
    reply, stored = figures.pop("reply"), figures.pop("stored")
    figure = {name: _made(Figure, name, entry) for name, entry in figures.items()}
    if sorted(reply) != sorted(figure):
        raise Invalid(f"figures: reply and the entries differ in {set(reply) ^ figure.keys()}")
    queue = tuple(_options(options["queue"]))
    policy = tuple(one for one in queue if one.policy)
    message = tuple(_options(options["message"]))
    wire = Wire(
        functions=tuple(_functions(_read("functions"))),
        records=tuple(_made(Record, name, entry) for name, entry in _read("records").items()),
        limits={name: _made(Limit, name, entry) for name, entry in limits["limit"].items()},
        told=tuple((row["of"], row["most"]) for row in limits["told"]),
        queue=queue,
        message=(
            *(one for one in message if not one.restored),
            *policy,
            *(one for one in message if one.restored),
        ),
        refusals=tuple(_made(Refusal, "", entry) for entry in refusals["refusal"]),
        codes=tuple(_made(Code, name, entry) for name, entry in refusals["code"].items()),
        figures=tuple(figure[name] for name in reply),
        metrics=tuple(one for one in figure.values() if one.metric),
        stored=tuple(stored),
    )
    _check(wire)
    return wire


def camel(name: str) -> str:
    """Return a name as Rust writes those of types: dead_letters is DeadLetters."""
    return "".join(part.capitalize() for part in name.split("_"))


def _read(name: str) -> dict[str, Any]:
    with (FOLDER / f"{name}.toml").open("rb") as file:
        return tomllib.load(file)


def _made(kind: Any, name: str, entry: dict[str, Any]) -> Any:
    known = {one.name for one in fields(kind)}
    unknown = entry.keys() - known
    if unknown:
        raise Invalid(f"{name or entry}: unknown {', '.join(sorted(unknown))}")
    lists = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    return kind(**({"name": name} if name else {}), **lists)


def _functions(entries: dict[str, Any]) -> Iterator[Function]:
    for name, entry in entries.items():
        arguments = tuple(_argument(text) for text in entry.pop("arguments"))
        group = entry.pop("class")
        yield _made(Function, name, {**entry, "group": group, "arguments": arguments})


def _argument(text: str) -> Argument:
    optional = text.startswith("[")
    name = text.strip("[]")
    return Argument(name.removesuffix("..."), optional, name.endswith("..."))


def _options(entries: dict[str, Any]) -> Iterator[Option]:
    for name, entry in entries.items():
        yield _made(Option, name, entry)


def _check(wire: Wire) -> None:
    called = [one.record for one in wire.functions if one.record is not None]
    numbers = [*called, *(one.record for one in wire.records)]
    if len(set(numbers)) < len(numbers) or not all(1 <= number <= 255 for number in numbers):
        raise Invalid("each record has a number of its own, from 1 to 255")
    for function in wire.functions:
        if function.group not in CLASSES:
            raise Invalid(f"function {function.name}: class is {function.group}")
        unrecorded = function.group == "read" or function.ephemeral
        if unrecorded != (function.record is None):
            raise Invalid(f"function {function.name}: it reads, or has a record, and never both")
    for option in (*wire.queue, *wire.message):
        ways = [bool(option.words), bool(option.text), option.most is not None]
        if sum(ways) != 1:
            raise Invalid(f"option {option.name}: it has words, or a text, or a most")
        if isinstance(option.most, str) and option.most not in wire.limits:
            raise Invalid(f"option {option.name}: no limit is called {option.most}")
    names = [option.name for option in wire.queue]
    for option in wire.queue[names.index("DURABILITY") + 1 :]:
        if option.type != "u64" and not option.text and not option.words:
            raise Invalid(f"option {option.name}: write what is not a number by hand")
        if "queue" not in option.since or bool(option.scheduler) != ("scheduler" in option.since):
            raise Invalid(f"option {option.name}: since has no version for a dump that it is in")
        if bool(option.python) != bool(option.flag):
            raise Invalid(f"option {option.name}: it has a name in Python and a flag, or neither")
        if not option.tried and not option.text and not option.words:
            raise Invalid(f"option {option.name}: nothing is tried in random schedules")
    if len(set(wire.stored)) < len(wire.stored):
        raise Invalid("figures: stored has a counter twice")
    for figure in wire.figures:
        unknown = figure.metric.keys() - {"help", "panel", "line", "name", "of_others"}
        if unknown or (figure.metric and "help" not in figure.metric):
            raise Invalid(
                f"figure {figure.name}: its metric has help, panel, line, name, of_others"
            )
    for refusal in wire.refusals:
        if refusal.course not in COURSES:
            raise Invalid(f"refusal {refusal.said}: course is {refusal.course}")
