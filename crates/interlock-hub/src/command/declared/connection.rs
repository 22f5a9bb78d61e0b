//! Declarations of the commands about one's own connection.

use super::super::{connection, login};
use super::{Argument, Command, ARGUMENT, COMMAND};

pub const DECLARED: &[Command] = &[
    Command {
        name: "ping",
        arity: -1,
        flags: &["fast"],
        categories: &["@fast", "@connection"],
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        summary: "Answers PONG, or the message it was given",
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
        handler: connection::ping,
        ..COMMAND
    },
    Command {
        name: "echo",
        arity: 2,
        flags: &["loading", "stale", "fast"],
        categories: &["@fast", "@connection"],
        summary: "Answers its argument",
        since: "1.0.0",
        group: "connection",
        complexity: "O(1)",
        arguments: &[Argument { name: "message", kind: "string", ..ARGUMENT }],
        timed: false,
        handler: connection::echo,
        ..COMMAND
    },
    Command {
        name: "hello",
        arity: -1,
        flags: &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        categories: &["@fast", "@connection"],
        summary: "Opens a conversation: protocol version, rights, name",
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
        handler: login::hello,
        ..COMMAND
    },
    Command {
        name: "auth",
        arity: -2,
        flags: &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        categories: &["@fast", "@connection"],
        summary: "Says who is calling",
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
        handler: login::auth,
        ..COMMAND
    },
    Command {
        name: "select",
        arity: 2,
        flags: &["loading", "stale", "fast"],
        categories: &["@fast", "@connection"],
        summary: "There is one database, 0",
        since: "1.0.0",
        group: "connection",
        complexity: "O(1)",
        arguments: &[Argument { name: "index", kind: "integer", ..ARGUMENT }],
        handler: connection::select,
        ..COMMAND
    },
    Command {
        name: "quit",
        arity: -1,
        flags: &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        categories: &["@fast", "@connection"],
        summary: "Answers, then closes",
        since: "1.0.0",
        group: "connection",
        complexity: "O(1)",
        changes_deliveries: true,
        handler: connection::quit,
        ..COMMAND
    },
    Command {
        name: "reset",
        arity: 1,
        flags: &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"],
        categories: &["@fast", "@connection"],
        summary: "Makes the connection as it was when it was opened",
        since: "6.2.0",
        group: "connection",
        complexity: "O(1)",
        changes_deliveries: true,
        handler: connection::reset,
        ..COMMAND
    },
    Command {
        name: "readonly",
        arity: 1,
        flags: &["loading", "stale", "fast"],
        categories: &["@fast", "@connection"],
        summary: "For nodes of a cluster, which the hub is not: an error",
        since: "3.0.0",
        group: "cluster",
        complexity: "O(1)",
        handler: connection::readonly,
        ..COMMAND
    },
];
