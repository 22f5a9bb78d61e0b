"""The functions as a hub's commands, in Rust."""

from __future__ import annotations

from scripts.wire.declaration import Function, Wire

INTEGERS = ("call", "wait", "count", "duration", "window", "limit")


def hub_functions(wire: Wire) -> str:
    """Return the functions as subcommands of FCALL and FCALL_RO."""
    lines = [
        "//! The functions of keyed queues, declared as subcommands, so that rights and COMMAND",
        "//! refer to each by name.",
        "",
        "use super::queues::{function, CONSUME, DECLARE, OPERATE, PRODUCE, READ};",
        "use super::{Access, Action, Argument, Command, ARGUMENT};",
    ]
    for by, of in (
        ("fcall", wire.functions),
        ("fcall_ro", tuple(one for one in wire.functions if one.reads)),
    ):
        lines += ["", f"/// Behind {by.upper()}.", f"pub const OF_{by.upper()}: &[Command] = &["]
        for one in of:
            lines += hub_function(wire, by, one)
        lines.append("];")
    lines.append("")
    arguments = {arg for one in wire.functions for arg in one.arguments}
    for arg in sorted(arguments, key=constant):
        kind = "integer" if arg.name in INTEGERS else "string"
        flags = ['"optional"'] * arg.optional + ['"multiple"'] * arg.multiple
        said = f", flags: &[{', '.join(flags)}]" if flags else ""
        lines.append(
            f"const {constant(arg)}: Argument = "
            f'Argument {{ name: "{arg.name}", kind: "{kind}"{said}, ..ARGUMENT }};'
        )
    return "\n".join(lines) + "\n"


def hub_function(wire: Wire, by: str, one: Function) -> list[str]:
    """One subcommand."""
    arguments = ", ".join(constant(arg) for arg in one.arguments)
    complexity = wire.filled(one.complexity)
    made = (
        f'function("{by}|il1_{one.name}", {one.group.upper()}, "{one.summary}", "{complexity}", '
        f"&[{arguments}])"
    )
    if one.takes_queue:
        return [f"{made},"]
    handler = "" if "redis" in one.servers else "action: Action::ListQueues, "
    return [f"Command {{ access: Access::None, {handler}..{made} }},"]


def constant(arg: object) -> str:
    """Return the name of an argument's constant, which sets how often it may occur."""
    text = str(arg)
    name = text.strip("[]").split()[0].strip("[]")
    if "..." not in text:
        return f"ONE_{name}" if text.startswith("[") else name
    return f"ANY_{name}" if text.startswith("[") else f"SOME_{name}"
