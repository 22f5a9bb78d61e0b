//! Declarations of FCALL and FCALL_RO; each function of keyed queues is a subcommand of them.

use super::{functions, Access, Action, Argument, Command, ARGUMENT, COMMAND};

pub const DECLARED: &[Command] = &[
    Command {
        name: "fcall",
        arity: -3,
        flags: &["noscript", "stale", "skip_monitor", "no_mandatory_keys", "movablekeys"],
        categories: &["@slow", "@scripting"],
        summary: "Calls a function of keyed queues",
        since: "7.0.0",
        group: "scripting",
        complexity: "Depends on the function that is executed.",
        arguments: CALLED,
        subcommands: functions::OF_FCALL,
        action: Action::Container,
        ..COMMAND
    },
    Command {
        name: "fcall_ro",
        arity: -3,
        flags: &[
            "readonly",
            "noscript",
            "stale",
            "skip_monitor",
            "no_mandatory_keys",
            "movablekeys",
        ],
        categories: &["@slow", "@scripting"],
        summary: "Calls a read-only function of keyed queues",
        since: "7.0.0",
        group: "scripting",
        complexity: "Depends on the function that is executed.",
        arguments: CALLED,
        subcommands: functions::OF_FCALL_RO,
        action: Action::Container,
        ..COMMAND
    },
];

const CALLED: &[Argument] = &[
    Argument { name: "function", kind: "string", ..ARGUMENT },
    Argument { name: "numkeys", kind: "integer", ..ARGUMENT },
    Argument { name: "key", kind: "key", flags: &["optional", "multiple"], ..ARGUMENT },
    Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..ARGUMENT },
];

/// The categories of one class of functions, by which rights are granted.
pub const PRODUCE: &[&str] = &["@queue", "@produce"];
pub const CONSUME: &[&str] = &["@queue", "@consume"];
pub const DECLARE: &[&str] = &["@queue", "@declare"];
pub const OPERATE: &[&str] = &["@queue", "@operate"];
pub const READ: &[&str] = &["@queue", "@read"];

pub const fn function(
    name: &'static str,
    categories: &'static [&'static str],
    summary: &'static str,
    complexity: &'static str,
    arguments: &'static [Argument],
) -> Command {
    Command {
        name,
        arity: -3,
        flags: &["noscript"],
        categories,
        summary,
        since: "1.0.0",
        group: "queue",
        complexity,
        arguments,
        access: Access::Queue,
        action: Action::CallFunction,
        ..COMMAND
    }
}
