"""The options of the scheduler in Rust, and what an engine's queue passes to it and dumps."""

from __future__ import annotations

from scripts.wire.declaration import Option, Wire
from scripts.wire.text import doc, number


def options(wire: Wire) -> str:
    """Return the options, and the list by which dumps and recordings visit them."""
    lines = [
        "//! The options of a queue, and the list by which dumps and recordings visit them.",
        "",
        "use crate::limits::default;",
        "use crate::queue::types::limits::{Limits, Weights};",
        "use crate::queue::types::{Behind, Retry};",
        "",
        "/// The options a queue was made with. A bound of 0 messages or bytes means none.",
        "#[derive(Clone, Debug, PartialEq)]",
        "pub struct Options {",
        "/// Time a lease lasts, µs; `None`: no deadline (clause 8).",
        "pub lease: Option<u64>,",
        "pub retry: Retry,",
    ]
    decides = [one for one in wire.queue if one.scheduler]
    for one in decides:
        lines += [*doc(one.value), f"pub {one.scheduler}: {kind(one)},"]
    lines += ["}", "", "impl Default for Options {", "fn default() -> Self {"]
    lines += ["Options { lease: None, retry: Retry::default(),"]
    lines += [f"{one.scheduler}: {default(one)}," for one in decides]
    listed = _numbers(wire)
    lines += [
        "}",
        "}",
        "}",
        "",
        "/// An option that is a number, behind the bounds, the lease and the retry policy.",
        "pub struct Number {",
        "/// The name of its field, in a recording too.",
        "pub name: &'static str,",
        "/// Its name in Python.",
        "pub argument: &'static str,",
        "/// True if Python has it in seconds, and the scheduler in µs.",
        "pub micros: bool,",
        "/// The first version of a dump that has it.",
        "pub since: u8,",
        "pub get: fn(&Options) -> u64,",
        "/// Returns false if the number is too large for it.",
        "pub set: fn(&mut Options, u64) -> bool,",
        "}",
        "",
        "/// All of them, in the order of a dump.",
        f"pub const NUMBERS: [Number; {len(listed)}] = [",
    ]
    for one in listed:
        micros = str(one.micros).lower()
        get = f"|options| options.{one.scheduler}{' as u64' if cast(one) else ''}"
        set_ = f"{{ options.{one.scheduler} = value; true }}"
        if cast(one):
            set_ = f"value.try_into().map(|value| options.{one.scheduler} = value).is_ok()"
        lines.append(
            f'Number {{ name: "{one.scheduler}", argument: "{one.python}", micros: {micros}, '
            f"since: {one.since['scheduler']}, get: {get}, set: |options, value| {set_} }},"
        )
    newest = max(one.since["scheduler"] for one in listed)
    lines += ["];", "", *doc("The version of a dump that the newest of them came with")]
    return "\n".join([*lines, f"pub const NEWEST: u8 = {newest};"]) + "\n"


def tried(wire: Wire) -> str:
    """Return the values of options in random schedules."""
    listed = _numbers(wire)
    lines = ["//! Values of options in random schedules, in the order of `NUMBERS`.", ""]
    lines.append(f"pub const TRIED: [&[u64]; {len(listed)}] = [")
    lines += [f"&[{', '.join(map(number, one.tried))}]," for one in listed]
    return "\n".join([*lines, "];"]) + "\n"


def declared(wire: Wire) -> list[str]:
    """Return the methods of a queue's declaration that pass it to the scheduler and dump it."""
    lines = doc("Returns them in the form of the scheduler.")
    lines += ["pub fn options(&self) -> Options {", "Options { lease: None, retry: self.retry(),"]
    for one in wire.queue:
        if one.scheduler:
            value = f"self.{one.field}{'.unwrap_or(0)' if one.none else ''}{cast(one)}"
            value += ".clone()" if one.text else ""
            lines.append(f"{one.scheduler}: {value},")
    lines += ["}", "}", ""]
    listed = wire.dumped("queue")
    newest = max(one.since["queue"] for one in listed)
    lines += doc("The version of a queue's dump that the newest option came with.")
    lines += [f"pub const NEWEST: u8 = {newest};", ""]
    lines += doc("Appends the options that are not in the first version of a dump.")
    lines.append("pub fn dump_added(&self, out: &mut Vec<u8>) {")
    for one in listed:
        if one.text:
            lines.append(f"bytes::string(out, &self.{one.field}.bytes());")
        elif one.words:
            lines.append(f"out.push(self.{one.field} as u8);")
        else:
            lines.append(f"number(out, self.{one.field}{'.unwrap_or(0)' if one.none else ''});")
    lines += ["}", "", *doc("Reads those that a dump of this version has.")]
    lines.append("pub fn restore_added(&mut self, from: &mut bytes::Reader<'_>, version: u8)")
    lines.append(" -> Result<(), Damaged> {")
    for one in listed:
        read = f'from.number("{one.name}")?'
        if one.text or one.words:
            read = f'{one.type}::restored(from, "{one.name}")?'
        read = f"Some({read}).filter(|&value| value > 0)" if one.none else read
        lines.append(f"if version >= {one.since['queue']} {{ self.{one.field} = {read}; }}")
    return [*lines, "Ok(())", "}", ""]


def _numbers(wire: Wire) -> list[Option]:
    return [one for one in wire.dumped("scheduler") if not one.text and not one.words]


def kind(option: Option) -> str:
    """Return the type of an option's field: a count is of things in memory."""
    if option.text or option.words:
        return option.type
    return "usize" if option.most == "MAX_COUNT" else "u64"


def default(option: Option) -> str:
    """Return the default of an option's field."""
    if option.text or option.words:
        return f"{option.type}::default()"
    return f"default::{option.name}{cast(option)}"


def cast(option: Option) -> str:
    """Return the cast from the wire's number to the field."""
    return " as usize" if kind(option) == "usize" else ""
