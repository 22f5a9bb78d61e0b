//! Declarations of the commands on what stores keep: those that Redis has for streams, and STORE.

use super::{Access, Action, Argument, Command, ADMIN, ADMIN_FLAGS, ARGUMENT, COMMAND, HELP};

pub const DECLARED: &[Command] = &[
    Command {
        name: "xrange",
        arity: -4,
        summary: "Messages of a topic that a store keeps, between two positions",
        arguments: &[KEY, START, END, COUNT],
        action: Action::Xrange,
        ..READING
    },
    Command {
        name: "xrevrange",
        arity: -4,
        summary: "The same in reverse, from the later position to the earlier",
        arguments: &[KEY, END, START, COUNT],
        action: Action::Xrevrange,
        ..READING
    },
    Command {
        name: "xlen",
        arity: 2,
        flags: &["readonly", "fast"],
        categories: &["@read", "@stream", "@fast"],
        summary: "The number of messages of a topic that a store keeps",
        arguments: &[KEY],
        action: Action::Xlen,
        ..READING
    },
    Command {
        name: "xread",
        arity: -4,
        flags: &["readonly", "blocking", "movablekeys"],
        categories: &["@read", "@stream", "@slow", "@blocking"],
        summary: "Messages of topics after a position each; can wait for some",
        topics: None,
        access: Access::Streams,
        arguments: &[
            COUNT,
            Argument { token: "BLOCK", name: "milliseconds", ..COUNT },
            Argument {
                name: "streams",
                kind: "block",
                token: "STREAMS",
                arguments: &[
                    Argument { flags: &["multiple"], ..KEY },
                    Argument { name: "id", kind: "string", flags: &["multiple"], ..ARGUMENT },
                ],
                ..ARGUMENT
            },
        ],
        action: Action::Xread,
        ..READING
    },
    Command {
        name: "xreadgroup",
        arity: -7,
        flags: &["write", "blocking", "movablekeys"],
        categories: &["@write", "@stream", "@slow", "@blocking"],
        topics: None,
        access: Access::Streams,
        summary: "Refused: topics have no consumer groups",
        complexity: "O(1)",
        action: Action::ConsumerGroups,
        ..READING
    },
    Command {
        name: "xgroup",
        arity: -2,
        flags: &[],
        categories: &["@stream", "@slow"],
        topics: None,
        access: Access::None,
        summary: "Refused: topics have no consumer groups",
        complexity: "O(1)",
        action: Action::ConsumerGroups,
        ..READING
    },
    Command {
        name: "store",
        arity: -2,
        categories: &["@slow"],
        summary: "Commands about stores",
        since: "1.0.0",
        group: "stream",
        complexity: "of the subcommand",
        subcommands: OF_STORE,
        ..COMMAND
    },
];

const OF_STORE: &[Command] = &[
    Command { name: "store|help", since: "1.0.0", group: "stream", ..HELP },
    Command {
        name: "store|list",
        arity: 2,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        summary: "The stores, their settings and their progress",
        since: "1.0.0",
        group: "stream",
        complexity: "O(N) in the stores",
        action: Action::StoreList,
        ..COMMAND
    },
];

const READING: Command = Command {
    flags: &["readonly"],
    categories: &["@read", "@stream", "@slow"],
    topics: Some((1, 1, 1)),
    since: "5.0.0",
    group: "stream",
    complexity: "O(N) in the messages",
    access: Access::Stream,
    ..COMMAND
};

const KEY: Argument = Argument { name: "key", kind: "key", ..ARGUMENT };
const START: Argument = Argument { name: "start", kind: "string", ..ARGUMENT };
const END: Argument = Argument { name: "end", kind: "string", ..ARGUMENT };
const COUNT: Argument =
    Argument { name: "count", kind: "integer", token: "COUNT", flags: &["optional"], ..ARGUMENT };
