//! Declarations of CLIENT and its subcommands.

use super::{Action, Argument, Command, ARGUMENT, COMMAND, HELP};

pub const DECLARED: &[Command] = &[Command {
    name: "client",
    arity: -2,
    flags: &[],
    categories: &["@slow"],
    summary: "Commands about connections",
    since: "2.4.0",
    group: "connection",
    complexity: "O(1)",
    subcommands: &[
        Command {
            name: "client|id",
            arity: 2,
            flags: &["noscript", "loading", "stale"],
            categories: &["@slow", "@connection"],
            summary: "Number of this connection",
            since: "5.0.0",
            group: "connection",
            complexity: "O(1)",
            action: Action::ClientId,
            ..COMMAND
        },
        Command {
            name: "client|info",
            arity: 2,
            flags: &["noscript", "loading", "stale"],
            categories: &["@slow", "@connection"],
            tips: &["nondeterministic_output"],
            summary: "One line about this connection",
            since: "6.2.0",
            group: "connection",
            complexity: "O(1)",
            action: Action::ClientInfo,
            ..COMMAND
        },
        Command {
            name: "client|list",
            arity: -2,
            flags: &["admin", "noscript", "loading", "stale"],
            categories: &["@admin", "@slow", "@dangerous", "@connection"],
            tips: &["nondeterministic_output"],
            summary: "One line about each connection",
            since: "2.4.0",
            group: "connection",
            complexity: "O(N)",
            arguments: &[
                Argument {
                    name: "normal_master_replica_pubsub",
                    kind: "oneof",
                    token: "TYPE",
                    since: "5.0.0",
                    flags: &["optional"],
                    arguments: &[
                        Argument {
                            name: "normal",
                            kind: "pure-token",
                            token: "NORMAL",
                            ..ARGUMENT
                        },
                        Argument {
                            name: "master",
                            kind: "pure-token",
                            token: "MASTER",
                            ..ARGUMENT
                        },
                        Argument {
                            name: "replica",
                            kind: "pure-token",
                            token: "REPLICA",
                            ..ARGUMENT
                        },
                        Argument {
                            name: "pubsub",
                            kind: "pure-token",
                            token: "PUBSUB",
                            ..ARGUMENT
                        },
                    ],
                    ..ARGUMENT
                },
                Argument {
                    name: "id",
                    kind: "block",
                    token: "ID",
                    since: "6.2.0",
                    flags: &["optional"],
                    arguments: &[Argument {
                        name: "client-id",
                        kind: "integer",
                        flags: &["multiple"],
                        ..ARGUMENT
                    }],
                    ..ARGUMENT
                },
            ],
            action: Action::ClientList,
            ..COMMAND
        },
        Command {
            name: "client|kill",
            arity: -3,
            flags: &["admin", "noscript", "loading", "stale"],
            categories: &["@admin", "@slow", "@dangerous", "@connection"],
            summary: "Closes connections by address, number or kind",
            since: "2.4.0",
            group: "connection",
            complexity: "O(N)",
            arguments: &[Argument {
                name: "filter",
                kind: "oneof",
                arguments: &[
                    Argument {
                        name: "ip:port",
                        kind: "string",
                        deprecated_since: "2.8.12",
                        ..ARGUMENT
                    },
                    Argument {
                        name: "new-format",
                        kind: "oneof",
                        flags: &["multiple"],
                        arguments: &[
                            Argument {
                                name: "client-id",
                                kind: "integer",
                                token: "ID",
                                since: "2.8.12",
                                flags: &["optional"],
                                ..ARGUMENT
                            },
                            Argument {
                                name: "normal_master_slave_pubsub",
                                kind: "oneof",
                                token: "TYPE",
                                since: "2.8.12",
                                flags: &["optional"],
                                arguments: &[
                                    Argument {
                                        name: "normal",
                                        kind: "pure-token",
                                        token: "NORMAL",
                                        ..ARGUMENT
                                    },
                                    Argument {
                                        name: "master",
                                        kind: "pure-token",
                                        token: "MASTER",
                                        since: "3.2.0",
                                        ..ARGUMENT
                                    },
                                    Argument {
                                        name: "slave",
                                        kind: "pure-token",
                                        token: "SLAVE",
                                        ..ARGUMENT
                                    },
                                    Argument {
                                        name: "replica",
                                        kind: "pure-token",
                                        token: "REPLICA",
                                        since: "5.0.0",
                                        ..ARGUMENT
                                    },
                                    Argument {
                                        name: "pubsub",
                                        kind: "pure-token",
                                        token: "PUBSUB",
                                        ..ARGUMENT
                                    },
                                ],
                                ..ARGUMENT
                            },
                            Argument {
                                name: "username",
                                kind: "string",
                                token: "USER",
                                flags: &["optional"],
                                ..ARGUMENT
                            },
                            Argument {
                                name: "ip:port",
                                kind: "string",
                                token: "ADDR",
                                flags: &["optional"],
                                ..ARGUMENT
                            },
                            Argument {
                                name: "ip:port",
                                kind: "string",
                                token: "LADDR",
                                since: "6.2.0",
                                flags: &["optional"],
                                ..ARGUMENT
                            },
                            Argument {
                                name: "yes/no",
                                kind: "string",
                                token: "SKIPME",
                                flags: &["optional"],
                                ..ARGUMENT
                            },
                        ],
                        ..ARGUMENT
                    },
                ],
                ..ARGUMENT
            }],
            action: Action::ClientKill,
            ..COMMAND
        },
        Command {
            name: "client|setname",
            arity: 3,
            flags: &["noscript", "loading", "stale"],
            categories: &["@slow", "@connection"],
            summary: "Sets the name of this connection",
            since: "2.6.9",
            group: "connection",
            complexity: "O(1)",
            arguments: &[Argument { name: "connection-name", kind: "string", ..ARGUMENT }],
            action: Action::ClientSetname,
            ..COMMAND
        },
        Command {
            name: "client|getname",
            arity: 2,
            flags: &["noscript", "loading", "stale"],
            categories: &["@slow", "@connection"],
            summary: "Name of this connection, if it has one",
            since: "2.6.9",
            group: "connection",
            complexity: "O(1)",
            action: Action::ClientGetname,
            ..COMMAND
        },
        Command {
            name: "client|setinfo",
            arity: 4,
            flags: &["noscript", "loading", "stale"],
            categories: &["@slow", "@connection"],
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            summary: "Sets the name or version of the client library",
            since: "7.2.0",
            group: "connection",
            complexity: "O(1)",
            arguments: &[Argument {
                name: "attr",
                kind: "oneof",
                arguments: &[
                    Argument { name: "libname", kind: "string", token: "LIB-NAME", ..ARGUMENT },
                    Argument { name: "libver", kind: "string", token: "LIB-VER", ..ARGUMENT },
                ],
                ..ARGUMENT
            }],
            action: Action::ClientSetinfo,
            ..COMMAND
        },
        Command {
            name: "client|no-evict",
            arity: 3,
            flags: &["admin", "noscript", "loading", "stale"],
            categories: &["@admin", "@slow", "@dangerous", "@connection"],
            summary: "Keeps the connection open when all clients together exceed limits.clients",
            since: "7.0.0",
            group: "connection",
            complexity: "O(1)",
            arguments: &[Argument {
                name: "enabled",
                kind: "oneof",
                arguments: &[
                    Argument { name: "on", kind: "pure-token", token: "ON", ..ARGUMENT },
                    Argument { name: "off", kind: "pure-token", token: "OFF", ..ARGUMENT },
                ],
                ..ARGUMENT
            }],
            action: Action::ClientNoEvict,
            ..COMMAND
        },
        Command {
            name: "client|no-touch",
            arity: 3,
            flags: &["noscript", "loading", "stale"],
            categories: &["@slow", "@connection"],
            summary: "Accepted without effect: there are no keys to touch",
            since: "7.2.0",
            group: "connection",
            complexity: "O(1)",
            arguments: &[Argument {
                name: "enabled",
                kind: "oneof",
                arguments: &[
                    Argument { name: "on", kind: "pure-token", token: "ON", ..ARGUMENT },
                    Argument { name: "off", kind: "pure-token", token: "OFF", ..ARGUMENT },
                ],
                ..ARGUMENT
            }],
            action: Action::ClientNoTouch,
            ..COMMAND
        },
        Command {
            name: "client|reply",
            arity: 3,
            flags: &["noscript", "loading", "stale"],
            categories: &["@slow", "@connection"],
            summary: "Switches replies on, off, or off for one command",
            since: "3.2.0",
            group: "connection",
            complexity: "O(1)",
            arguments: &[Argument {
                name: "on_off_skip",
                kind: "oneof",
                arguments: &[
                    Argument { name: "on", kind: "pure-token", token: "ON", ..ARGUMENT },
                    Argument { name: "off", kind: "pure-token", token: "OFF", ..ARGUMENT },
                    Argument { name: "skip", kind: "pure-token", token: "SKIP", ..ARGUMENT },
                ],
                ..ARGUMENT
            }],
            action: Action::ClientReply,
            ..COMMAND
        },
        Command {
            name: "client|slow",
            arity: 3,
            flags: &["noscript", "loading", "stale"],
            categories: &["@slow", "@connection"],
            summary: "Sets the reaction to slow reading by this connection",
            since: "7.0.0",
            group: "connection",
            complexity: "O(1)",
            arguments: &[Argument {
                name: "action",
                kind: "oneof",
                arguments: &[
                    Argument { name: "close", kind: "pure-token", token: "CLOSE", ..ARGUMENT },
                    Argument { name: "drop", kind: "pure-token", token: "DROP", ..ARGUMENT },
                ],
                ..ARGUMENT
            }],
            action: Action::ClientSlow,
            ..COMMAND
        },
        Command {
            name: "client|pause",
            arity: -3,
            flags: &["admin", "noscript", "loading", "stale"],
            categories: &["@admin", "@slow", "@dangerous", "@connection"],
            summary: "Delays requests for some milliseconds, all of them or only writes",
            since: "3.0.0",
            group: "connection",
            complexity: "O(1)",
            arguments: &[
                Argument { name: "timeout", kind: "integer", ..ARGUMENT },
                Argument {
                    name: "mode",
                    kind: "oneof",
                    since: "6.2.0",
                    flags: &["optional"],
                    arguments: &[
                        Argument { name: "write", kind: "pure-token", token: "WRITE", ..ARGUMENT },
                        Argument { name: "all", kind: "pure-token", token: "ALL", ..ARGUMENT },
                    ],
                    ..ARGUMENT
                },
            ],
            action: Action::ClientPause,
            ..COMMAND
        },
        Command {
            name: "client|unpause",
            arity: 2,
            flags: &["admin", "noscript", "loading", "stale"],
            categories: &["@admin", "@slow", "@dangerous", "@connection"],
            summary: "Ends CLIENT PAUSE",
            since: "6.2.0",
            group: "connection",
            complexity: "O(N)",
            action: Action::ClientUnpause,
            ..COMMAND
        },
        Command {
            name: "client|unblock",
            arity: -3,
            flags: &["admin", "noscript", "loading", "stale"],
            categories: &["@admin", "@slow", "@dangerous", "@connection"],
            summary: "Ends the wait of a connection that waits in a command",
            since: "5.0.0",
            group: "connection",
            complexity: "O(1)",
            arguments: &[
                Argument { name: "client-id", kind: "integer", ..ARGUMENT },
                Argument {
                    name: "timeout_error",
                    kind: "oneof",
                    flags: &["optional"],
                    arguments: &[
                        Argument {
                            name: "timeout",
                            kind: "pure-token",
                            token: "TIMEOUT",
                            ..ARGUMENT
                        },
                        Argument { name: "error", kind: "pure-token", token: "ERROR", ..ARGUMENT },
                    ],
                    ..ARGUMENT
                },
            ],
            action: Action::ClientUnblock,
            ..COMMAND
        },
        Command {
            name: "client|help",
            categories: &["@slow", "@connection"],
            since: "5.0.0",
            group: "connection",
            ..HELP
        },
    ],
    action: Action::Container,
    ..COMMAND
}];
