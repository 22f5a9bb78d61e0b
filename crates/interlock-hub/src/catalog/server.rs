//! Declarations of the commands about the server.

use super::{Action, Argument, Command, ADMIN, ADMIN_FLAGS, ARGUMENT, COMMAND, HELP};

pub const DECLARED: &[Command] = &[
    Command {
        name: "info",
        arity: -1,
        flags: &["loading", "stale"],
        categories: &["@slow", "@dangerous"],
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        summary: "Counters and state of the server, by section",
        since: "1.0.0",
        group: "server",
        complexity: "O(1)",
        arguments: &[Argument {
            name: "section",
            kind: "string",
            flags: &["optional", "multiple"],
            ..ARGUMENT
        }],
        action: Action::Info,
        ..COMMAND
    },
    Command {
        name: "command",
        arity: -1,
        flags: &["loading", "stale"],
        categories: &["@slow", "@connection"],
        tips: &["nondeterministic_output_order"],
        summary: "The declarations of all commands",
        since: "2.8.13",
        group: "server",
        complexity: "O(N)",
        subcommands: &[
            Command {
                name: "command|count",
                arity: 2,
                flags: &["loading", "stale"],
                categories: &["@slow", "@connection"],
                summary: "The number of commands",
                since: "2.8.13",
                group: "server",
                complexity: "O(1)",
                action: Action::CommandCount,
                ..COMMAND
            },
            Command {
                name: "command|docs",
                arity: -2,
                flags: &["loading", "stale"],
                categories: &["@slow", "@connection"],
                tips: &["nondeterministic_output_order"],
                summary: "Summaries of commands, and their arguments",
                since: "7.0.0",
                group: "server",
                complexity: "O(N)",
                arguments: &[Argument {
                    name: "command-name",
                    kind: "string",
                    flags: &["optional", "multiple"],
                    ..ARGUMENT
                }],
                action: Action::CommandDocs,
                ..COMMAND
            },
            Command {
                name: "command|info",
                arity: -2,
                flags: &["loading", "stale"],
                categories: &["@slow", "@connection"],
                tips: &["nondeterministic_output_order"],
                summary: "The declarations of some commands, or all",
                since: "2.8.13",
                group: "server",
                complexity: "O(N)",
                arguments: &[Argument {
                    name: "command-name",
                    kind: "string",
                    flags: &["optional", "multiple"],
                    ..ARGUMENT
                }],
                action: Action::CommandInfo,
                ..COMMAND
            },
            Command {
                name: "command|list",
                arity: -2,
                flags: &["loading", "stale"],
                categories: &["@slow", "@connection"],
                tips: &["nondeterministic_output_order"],
                summary: "The names of all commands, or of those of a category or pattern",
                since: "7.0.0",
                group: "server",
                complexity: "O(N)",
                arguments: &[Argument {
                    name: "filterby",
                    kind: "oneof",
                    token: "FILTERBY",
                    flags: &["optional"],
                    arguments: &[
                        Argument {
                            name: "module-name",
                            kind: "string",
                            token: "MODULE",
                            ..ARGUMENT
                        },
                        Argument { name: "category", kind: "string", token: "ACLCAT", ..ARGUMENT },
                        Argument { name: "pattern", kind: "pattern", token: "PATTERN", ..ARGUMENT },
                    ],
                    ..ARGUMENT
                }],
                action: Action::CommandList,
                ..COMMAND
            },
            Command {
                name: "command|help",
                categories: &["@slow", "@connection"],
                since: "5.0.0",
                group: "server",
                ..HELP
            },
        ],
        action: Action::Command,
        ..COMMAND
    },
    Command {
        name: "config",
        arity: -2,
        categories: &["@slow"],
        summary: "Commands about the configuration",
        since: "2.0.0",
        group: "server",
        complexity: "of the subcommand",
        subcommands: &[
            Command {
                name: "config|get",
                arity: -3,
                flags: ADMIN_FLAGS,
                categories: ADMIN,
                summary: "Keys of the configuration that match a pattern, and their values",
                since: "2.0.0",
                group: "server",
                complexity: "O(N)",
                arguments: &[Argument {
                    name: "parameter",
                    kind: "block",
                    flags: &["multiple"],
                    arguments: &[Argument { name: "parameter", kind: "string", ..ARGUMENT }],
                    ..ARGUMENT
                }],
                action: Action::ConfigGet,
                ..COMMAND
            },
            Command {
                name: "config|set",
                arity: -4,
                flags: ADMIN_FLAGS,
                categories: ADMIN,
                tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
                summary: "Changes keys until the next reload or restart: all of them or none",
                since: "2.0.0",
                group: "server",
                complexity: "O(N)",
                arguments: &[Argument {
                    name: "parameter_value",
                    kind: "block",
                    flags: &["multiple"],
                    arguments: &[
                        Argument { name: "parameter", kind: "string", ..ARGUMENT },
                        Argument { name: "value", kind: "string", ..ARGUMENT },
                    ],
                    ..ARGUMENT
                }],
                action: Action::ConfigSet,
                ..COMMAND
            },
            Command {
                name: "config|reload",
                arity: 2,
                flags: ADMIN_FLAGS,
                categories: ADMIN,
                summary: "Reads the configuration again and applies it, as the signal HUP does",
                since: "7.0.0",
                group: "server",
                complexity: "O(N)",
                action: Action::ConfigReload,
                ..COMMAND
            },
            Command {
                name: "config|resetstat",
                arity: 2,
                flags: ADMIN_FLAGS,
                categories: ADMIN,
                summary: "Sets the counters of INFO and of /metrics to 0",
                since: "2.0.0",
                group: "server",
                complexity: "O(1)",
                action: Action::ConfigResetStat,
                ..COMMAND
            },
            Command { name: "config|help", since: "5.0.0", group: "server", ..HELP },
        ],
        action: Action::Container,
        ..COMMAND
    },
    Command {
        name: "slowlog",
        arity: -2,
        categories: &["@slow"],
        summary: "Commands about the slow log",
        since: "2.2.12",
        group: "server",
        complexity: "of the subcommand",
        subcommands: &[
            Command {
                name: "slowlog|get",
                arity: -2,
                flags: &["admin", "loading", "stale"],
                categories: ADMIN,
                tips: &["request_policy:all_nodes", "nondeterministic_output"],
                summary: "The newest slow commands: ten, or the given number, or all with -1",
                since: "2.2.12",
                group: "server",
                complexity: "O(N)",
                arguments: &[Argument {
                    name: "count",
                    kind: "integer",
                    flags: &["optional"],
                    ..ARGUMENT
                }],
                action: Action::SlowlogGet,
                ..COMMAND
            },
            Command {
                name: "slowlog|len",
                arity: 2,
                flags: &["admin", "loading", "stale"],
                categories: ADMIN,
                tips: &[
                    "request_policy:all_nodes",
                    "response_policy:agg_sum",
                    "nondeterministic_output",
                ],
                summary: "The number of slow commands kept",
                since: "2.2.12",
                group: "server",
                complexity: "O(1)",
                action: Action::SlowlogLen,
                ..COMMAND
            },
            Command {
                name: "slowlog|reset",
                arity: 2,
                flags: &["admin", "loading", "stale"],
                categories: ADMIN,
                tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
                summary: "Forgets them",
                since: "2.2.12",
                group: "server",
                complexity: "O(N)",
                action: Action::SlowlogReset,
                ..COMMAND
            },
            Command { name: "slowlog|help", since: "6.2.0", group: "server", ..HELP },
        ],
        action: Action::Container,
        ..COMMAND
    },
    Command {
        name: "backup",
        arity: -2,
        categories: &["@slow"],
        summary: "Commands for a copy of the journal",
        since: "7.0.0",
        group: "server",
        complexity: "of the subcommand",
        subcommands: &[
            Command {
                name: "backup|begin",
                arity: 2,
                flags: ADMIN_FLAGS,
                categories: ADMIN,
                tips: &["nondeterministic_output"],
                summary: "Begins a copy: returns the last record, and for each file its name, \
                          bytes and length",
                since: "7.0.0",
                group: "server",
                complexity: "O(N)",
                action: Action::BackupBegin,
                ..COMMAND
            },
            Command {
                name: "backup|read",
                arity: 5,
                flags: ADMIN_FLAGS,
                categories: ADMIN,
                summary: "Bytes of one of its files, by index from 0; at most 1 MiB",
                since: "7.0.0",
                group: "server",
                complexity: "O(N)",
                arguments: &[
                    Argument { name: "file", kind: "integer", ..ARGUMENT },
                    Argument { name: "offset", kind: "integer", ..ARGUMENT },
                    Argument { name: "count", kind: "integer", ..ARGUMENT },
                ],
                action: Action::BackupRead,
                ..COMMAND
            },
            Command {
                name: "backup|end",
                arity: 2,
                flags: ADMIN_FLAGS,
                categories: ADMIN,
                summary: "Closes its files",
                since: "7.0.0",
                group: "server",
                complexity: "O(1)",
                action: Action::BackupEnd,
                ..COMMAND
            },
            Command { name: "backup|help", since: "7.0.0", group: "server", ..HELP },
        ],
        action: Action::Container,
        ..COMMAND
    },
    Command {
        name: "monitor",
        arity: 1,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        summary: "Shows each command of each connection as it is called",
        since: "1.0.0",
        group: "server",
        complexity: "O(N)",
        changes_deliveries: true,
        action: Action::Monitor,
        ..COMMAND
    },
    Command {
        name: "shutdown",
        arity: -1,
        flags: &["admin", "noscript", "loading", "stale", "no_multi", "allow_busy"],
        categories: ADMIN,
        summary: "Drains and stops the hub; requires a login",
        since: "1.0.0",
        group: "server",
        complexity: "O(N)",
        arguments: &[
            Argument {
                name: "nosave_save",
                kind: "oneof",
                flags: &["optional"],
                arguments: &[
                    Argument { name: "nosave", kind: "pure-token", token: "NOSAVE", ..ARGUMENT },
                    Argument { name: "save", kind: "pure-token", token: "SAVE", ..ARGUMENT },
                ],
                ..ARGUMENT
            },
            Argument {
                name: "now",
                kind: "pure-token",
                token: "NOW",
                since: "7.0.0",
                flags: &["optional"],
                ..ARGUMENT
            },
            Argument {
                name: "force",
                kind: "pure-token",
                token: "FORCE",
                since: "7.0.0",
                flags: &["optional"],
                ..ARGUMENT
            },
            Argument {
                name: "abort",
                kind: "pure-token",
                token: "ABORT",
                since: "7.0.0",
                flags: &["optional"],
                ..ARGUMENT
            },
        ],
        action: Action::Shutdown,
        ..COMMAND
    },
];
