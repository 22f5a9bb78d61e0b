//! Declarations of the commands about one's own connection.

use super::{Action, Argument, Command, ARGUMENT, COMMAND};

pub const DECLARED: &[Command] = &[
    Command {
        name: "ping",
        arity: -1,
        flags: &["fast"],
        categories: &["@fast", "@connection"],
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        summary: "Returns PONG, or its argument",
        since: "1.0.0",
        group: "connection",
        complexity: "O(1)",
        arguments: &[Argument {
            name: "message",
            kind: "string",
            flags: &["optional"],
            ..ARGUMENT
        }],
        timed: false,
        action: Action::Ping,
        ..COMMAND
    },
    Command {
        name: "echo",
        arity: 2,
        flags: &["loading", "stale", "fast"],
        categories: &["@fast", "@connection"],
        summary: "Returns its argument",
        since: "1.0.0",
        group: "connection",
        complexity: "O(1)",
        arguments: &[Argument { name: "message", kind: "string", ..ARGUMENT }],
        timed: false,
        action: Action::Echo,
        ..COMMAND
    },
    Command {
        name: "hello",
        arity: -1,
        flags: &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        categories: &["@fast", "@connection"],
        summary: "Opens a session: protocol version, login, name",
        since: "6.0.0",
        group: "connection",
        complexity: "O(1)",
        arguments: &[Argument {
            name: "arguments",
            kind: "block",
            flags: &["optional"],
            arguments: &[
                Argument { name: "protover", kind: "integer", ..ARGUMENT },
                Argument {
                    name: "username_password",
                    kind: "block",
                    token: "AUTH",
                    flags: &["optional"],
                    arguments: &[
                        Argument { name: "username", kind: "string", ..ARGUMENT },
                        Argument { name: "password", kind: "string", ..ARGUMENT },
                    ],
                    ..ARGUMENT
                },
                Argument {
                    name: "clientname",
                    kind: "string",
                    token: "SETNAME",
                    flags: &["optional"],
                    ..ARGUMENT
                },
            ],
            ..ARGUMENT
        }],
        changes_deliveries: true,
        action: Action::Hello,
        ..COMMAND
    },
    Command {
        name: "auth",
        arity: -2,
        flags: &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        categories: &["@fast", "@connection"],
        summary: "Logs in",
        since: "1.0.0",
        group: "connection",
        complexity: "O(N)",
        arguments: &[
            Argument {
                name: "username",
                kind: "string",
                since: "6.0.0",
                flags: &["optional"],
                ..ARGUMENT
            },
            Argument { name: "password", kind: "string", ..ARGUMENT },
        ],
        action: Action::Auth,
        ..COMMAND
    },
    Command {
        name: "select",
        arity: 2,
        flags: &["loading", "stale", "fast"],
        categories: &["@fast", "@connection"],
        summary: "Selects a database; the only one is 0",
        since: "1.0.0",
        group: "connection",
        complexity: "O(1)",
        arguments: &[Argument { name: "index", kind: "integer", ..ARGUMENT }],
        action: Action::Select,
        ..COMMAND
    },
    Command {
        name: "quit",
        arity: -1,
        flags: &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        categories: &["@fast", "@connection"],
        summary: "Replies, then closes the connection",
        since: "1.0.0",
        group: "connection",
        complexity: "O(1)",
        changes_deliveries: true,
        action: Action::Quit,
        ..COMMAND
    },
    Command {
        name: "reset",
        arity: 1,
        flags: &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        categories: &["@fast", "@connection"],
        summary: "Resets the connection to its initial state",
        since: "6.2.0",
        group: "connection",
        complexity: "O(1)",
        changes_deliveries: true,
        action: Action::Reset,
        ..COMMAND
    },
    Command {
        name: "readonly",
        arity: 1,
        flags: &["loading", "stale", "fast"],
        categories: &["@fast", "@connection"],
        summary: "Returns an error: the hub is not a node of a cluster",
        since: "3.0.0",
        group: "cluster",
        complexity: "O(1)",
        action: Action::Readonly,
        ..COMMAND
    },
];
