"""The sources in Rust that are made from the declaration: of the engine and of the scheduler."""

from __future__ import annotations

from collections.abc import Iterable

from scripts.wire import scheduler
from scripts.wire.declaration import Function, Option, Wire
from scripts.wire.text import doc, number, told, wrapped


def engine_limits(wire: Wire) -> str:
    """Return the limits that the engine knows."""
    lines = [
        "//! The limits of what one call may ask for: each bounds how long it holds a queue up."
    ]
    for limit in wire.limits.values():
        if limit.rust:
            lines += ["", *doc(limit.says)]
            lines.append(f"pub const {limit.name}: {limit.rust} = {number(limit.of('hub'))};")
    return "\n".join(lines) + "\n"


def core_limits(wire: Wire) -> str:
    """Return the limits that hold in one process too, and the defaults of a queue."""
    lines = ["//! The limits of keys, and the defaults of a queue, in one process as on an engine."]
    for limit in wire.limits.values():
        if limit.core:
            lines += ["", *doc(limit.says)]
            lines.append(f"pub const {limit.name}: {limit.core} = {number(limit.of('hub'))};")
    lines += [
        "",
        "/// The defaults of a queue's options, in the units of the wire.",
        "pub mod default {",
    ]
    for option in wire.queue:
        if type(option.default) is int and (option.policy or option.python):
            kind = "bool" if option.type == "bool" else "u64"
            value = (
                str(bool(option.default)).lower() if kind == "bool" else f"{number(option.default)}"
            )
            lines += [*doc(option.value), f"pub const {option.name}: {kind} = {value};"]
    return "\n".join([*lines, "}"]) + "\n"


def rows_limits(wire: Wire) -> str:
    """Return the limits of the rows of tables."""
    lines = ["//! The limits of rows."]
    for limit in wire.limits.values():
        if limit.rows:
            lines += ["", *doc(limit.says)]
            lines.append(f"pub const {limit.name}: {limit.rows} = {number(limit.of('hub'))};")
    return "\n".join(lines) + "\n"


def functions(wire: Wire) -> str:
    """Return the enum of the functions."""
    all_ = wire.functions
    lines = [
        "//! The functions by name, and the class of each, by which rights are granted.",
        "",
        "/// The class of rights that a call needs.",
        "#[derive(Clone, Copy, Debug, PartialEq, Eq)]",
        "pub enum Class { Produce, Consume, Read, Operate, Declare }",
        "",
        "/// A function of the wire.",
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]",
        "pub enum Function {",
    ]
    for one in all_:
        lines += [*doc(f"`{one.shown}`"), f"{one.variant},"]
    lines += ["}", "", "impl Function {"]
    listed = ", ".join(f"Function::{one.variant}" for one in all_)
    lines += [f"pub const ALL: &'static [Function] = &[{listed}];", ""]
    lines += doc("Returns its name behind `il1_`.")
    lines += ["pub fn name(self) -> &'static str {", "match self {"]
    lines += [f'Function::{one.variant} => "{one.name}",' for one in all_]
    lines += ["}", "}", ""]
    lines += doc("Finds one by what is behind `il1_`.")
    lines += ["pub fn of_name(name: &[u8]) -> Option<Function> {", "Some(match name {"]
    lines += [f'b"{one.name}" => Function::{one.variant},' for one in all_]
    lines += ["_ => return None,", "})", "}", ""]
    lines += ["pub fn class(self) -> Class {", "match self {"]
    for group in dict.fromkeys(one.group for one in all_):
        lines.append(
            f"{any_of(one for one in all_ if one.group == group)} => {camel_class(group)},"
        )
    lines += ["}", "}", ""]
    lines += doc("Returns whether it takes one key, the queue; the others take none.")
    lines += ["pub fn takes_queue(self) -> bool {"]
    lines += [f"!matches!(self, {any_of(one for one in all_ if not one.takes_queue)})", "}", ""]
    lines += doc("Returns whether it only reads, and does not apply what is due either.")
    lines += ["pub fn only_reads(self) -> bool {"]
    lines += [f"matches!(self, {any_of(one for one in all_ if one.reads)})", "}", ""]
    lines += doc("Returns whether it changes only what no journal has and no restart keeps.")
    lines += ["pub fn is_ephemeral(self) -> bool {"]
    lines += [f"matches!(self, {any_of(one for one in all_ if one.ephemeral)})", "}", ""]
    lines += doc("Returns whether it makes a queue larger: a full server refuses it.")
    lines += ["pub fn grows(self) -> bool {"]
    lines += [f"matches!(self, {any_of(one for one in all_ if one.grows)})", "}", ""]
    lines += doc("Returns its number in a journal; `None`: it changes nothing.")
    lines += ["pub fn record(self) -> Option<u8> {", "Some(match self {"]
    lines += [f"Function::{one.variant} => {one.record}," for one in all_ if one.record]
    lines += [f"{any_of(one for one in all_ if not one.record)} => return None,", "})", "}", "}"]
    return "\n".join(lines) + "\n"


def records(wire: Wire) -> str:
    """Return the enum of what a journal records."""
    lines = [
        "//! The numbers of the journal's records, which never change.",
        "",
        "use super::functions::Function;",
        "",
        "/// The content of a record: a call that changed something, or what else is to be known.",
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]",
        "pub enum Recorded {",
        "/// A call of this function was made, with these arguments.",
        "Call(Function),",
    ]
    for one in wire.records:
        says = one.says + f". Its arguments: `{one.arguments}`" * bool(one.arguments)
        lines += [*doc(says), f"{one.variant},"]
    lines += ["}", "", "impl Recorded {", "pub fn name(self) -> &'static str {", "match self {"]
    lines.append("Recorded::Call(function) => function.name(),")
    lines += [f'Recorded::{one.variant} => "{one.name}",' for one in wire.records]
    lines += ["}", "}", ""]
    lines += doc("Returns its number; `None`: a function that changes nothing.")
    lines += ["pub fn number(self) -> Option<u8> {", "Some(match self {"]
    lines.append("Recorded::Call(function) => return function.record(),")
    lines += [f"Recorded::{one.variant} => {one.record}," for one in wire.records]
    lines += ["})", "}", ""]
    lines += doc("Finds the one that has a number.")
    lines += ["pub fn of_number(number: u8) -> Option<Recorded> {", "Some(match number {"]
    lines += [f"{one.record} => Recorded::{one.variant}," for one in wire.records]
    called = sorted((one.record, one.variant) for one in wire.functions if one.record)
    lines += [f"{number} => Recorded::Call(Function::{variant})," for number, variant in called]
    lines += ["_ => return None,", "})", "}", "}"]
    return "\n".join(lines) + "\n"


def options(wire: Wire) -> str:
    """Return the enums of the options, and a queue's declaration."""
    lines = [
        "//! The options of queues and of messages, in the order of the answer.",
        "",
        "use interlock_core::queue::schedules::bytes::{self, number, Damaged};",
        "use interlock_core::queue::types::limits::{Limits, Weights};",
        "use interlock_core::queue::types::{Behind, Options, Then};",
        "",
        "use super::limits::*;",
        "use crate::values::args::{Args, Read, Reader, What};",
        "use crate::queue::declare::{read_limits, read_weights, Durability, OneOf};",
        "",
    ]
    lines += option_enum("QueueOption", "An option of a queue: `il1_configure`.", wire.queue)
    lines += option_enum("MessageOption", "An option of a message: `il1_put`.", wire.message)
    lines += ["impl MessageOption {"]
    lines += doc("Returns the least and the most of one that is a number; of another both are 0")
    lines += ["pub fn range(self) -> (i64, u64) {", "match self {"]
    for one in wire.message:
        numbers = f"({number(one.least)}, {one.most})" if one.most is not None else "(0, 0)"
        lines.append(f"MessageOption::{one.variant} => {numbers},")
    lines += ["}", "}", "}", ""]
    lines += [
        "/// A queue's options, in the units of the wire.",
        "#[derive(Clone, Debug, PartialEq, Eq)]",
    ]
    lines += ["pub struct Declared {"]
    for one in wire.queue:
        says = one.value + (f". `None`: {one.none}" if one.none else "")
        lines += [*doc(says), f"pub {one.field}: {field_type(one)},"]
    lines += ["}", "", "impl Declared {"]
    lines += ["pub fn default_of(durability: Durability) -> Self {", "Declared {"]
    lines += [
        "durability," if one.type == "Durability" else f"{one.field}: {rust_default(one)},"
        for one in wire.queue
    ]
    lines += ["}", "}", "", *scheduler.declared(wire)]
    lines += doc("Reads the value of an option.")
    lines += [
        "pub fn read<A: Args + ?Sized>(&mut self, option: QueueOption, from: &mut Reader<'_, A>,"
        " what: impl What) -> Read<()> {",
        "match option {",
    ]
    for one in wire.queue:
        arm = f"QueueOption::{one.variant} => self.{one.field} ="
        if one.words:
            value = f"{one.type}::read(from, what)?"
        elif one.text:
            value = f"read_{one.field}(from, what)?"
        else:
            value = f"from.natural({number(one.least)}, {one.most}, what)?"
            if one.none:
                cast = "" if one.type == "u64" else f" as {one.type}"
                value = f"Some({value}{cast}).filter(|&value| value > 0)"
            elif one.type == "bool":
                value += " == 1"
        lines.append(f"{arm} {value},")
    lines += ["}", "Ok(())", "}", ""]
    lines += doc("Returns the value of an option as text; names in it are any bytes.")
    lines += ["pub fn told(&self, option: QueueOption) -> Vec<u8> {", "let text = match option {"]
    for one in wire.queue:
        value = f"self.{one.field}"
        if one.words:
            value += ".name().to_owned()"
        elif one.text:
            value = f"return {value}.bytes()"
        elif one.none:
            value += ".unwrap_or(0).to_string()"
        elif one.type == "bool":
            value = f"u8::from({value}).to_string()"
        else:
            value += ".to_string()"
        lines.append(f"QueueOption::{one.variant} => {value},")
    lines += ["};", "text.into_bytes()", "}", "}"]
    return "\n".join(lines) + "\n"


def option_enum(name: str, says: str, of: tuple[Option, ...]) -> list[str]:
    """Return the lines of one enum of options."""
    lines = [*doc(says), "#[derive(Clone, Copy, Debug, PartialEq, Eq)]", f"pub enum {name} {{"]
    for one in of:
        lines += [*doc(one.value), f"{one.variant},"]
    listed = ", ".join(f"{name}::{one.variant}" for one in of)
    lines += ["}", "", f"impl {name} {{"]
    lines += [f"pub const ALL: [{name}; {len(of)}] = [{listed}];", *doc("All of them, as text.")]
    text = "\\\n".join(wrapped(told(one.name for one in of), "", 70)).replace("\\\n", " \\\n")
    lines += [f'pub const TOLD: &\'static str = "{text}";', ""]
    lines += ["pub fn name(self) -> &'static str {", "match self {"]
    lines += [f'{name}::{one.variant} => "{one.name}",' for one in of]
    lines += [
        "}",
        "}",
        "",
        f"pub fn of_name(name: &[u8]) -> Option<{name}> {{",
        "Some(match name {",
    ]
    lines += [f'b"{one.name}" => {name}::{one.variant},' for one in of]
    return [*lines, "_ => return None,", "})", "}", "}", ""]


def codes(wire: Wire) -> str:
    """Return the enum of the codes."""
    lines = [
        "//! The first words of errors.",
        "",
        "use std::fmt;",
        "",
        "/// The reason of a refusal, in one word.",
        "#[derive(Clone, Copy, Debug, PartialEq, Eq)]",
        "pub enum Code {",
    ]
    for one in wire.codes:
        lines += [*doc(one.when), f"{one.rust},"]
    lines += ["}", "", "impl fmt::Display for Code {"]
    lines += [
        "fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {",
        "f.write_str(match self {",
    ]
    lines += [f'Code::{one.rust} => "{one.name}",' for one in wire.codes]
    lines += ["})", "}", "}"]
    return "\n".join(lines) + "\n"


def field_type(option: Option) -> str:
    """Return the type of an option's field."""
    return f"Option<{option.type}>" if option.none else option.type


def rust_default(option: Option) -> str:
    """Return the default of an option's field."""
    if option.text:
        return f"{option.type}::default()"
    if option.words:
        return f"{option.type}::{str(option.default).capitalize()}"
    if option.type == "bool":
        return str(bool(option.default)).lower()
    return f"Some({number(option.default)})" if option.none else f"{number(option.default)}"


def any_of(some: Iterable[Function]) -> str:
    """Return a pattern of functions."""
    return " | ".join(f"Function::{one.variant}" for one in some)


def camel_class(group: str) -> str:
    """Return a class in Rust."""
    return f"Class::{group.capitalize()}"
