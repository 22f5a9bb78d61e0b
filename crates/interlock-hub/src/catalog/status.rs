//! Declarations of commands that operators and clients send to any Redis server.

use super::{Action, Argument, Command, ADMIN, ADMIN_FLAGS, ARGUMENT, COMMAND, HELP};

pub const DECLARED: &[Command] = &[
    Command {
        name: "time",
        arity: 1,
        flags: &["loading", "stale", "fast"],
        categories: &["@fast"],
        tips: &["nondeterministic_output"],
        summary: "The time of the server: seconds since 1970, and microseconds",
        since: "2.6.0",
        group: "server",
        complexity: "O(1)",
        action: Action::Time,
        ..COMMAND
    },
    Command {
        name: "role",
        arity: 1,
        flags: &["noscript", "loading", "stale", "fast"],
        categories: &["@admin", "@fast", "@dangerous"],
        summary: "Returns master, because there is no replication",
        since: "2.8.12",
        group: "server",
        complexity: "O(1)",
        action: Action::Role,
        ..COMMAND
    },
    Command {
        name: "dbsize",
        arity: 1,
        flags: &["readonly", "fast"],
        categories: &["@keyspace", "@read", "@fast", "@table"],
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        summary: "The number of rows of all tables that the user may read; large ones as last \
                  counted",
        since: "1.0.0",
        group: "server",
        complexity: "O(1)",
        action: Action::Dbsize,
        ..COMMAND
    },
    Command {
        name: "latency",
        arity: -2,
        categories: &["@slow"],
        summary: "Commands about the latency monitor, which is off",
        since: "2.8.13",
        group: "server",
        complexity: "of the subcommand",
        subcommands: LATENCY,
        action: Action::Container,
        ..COMMAND
    },
    Command {
        name: "cluster",
        arity: -2,
        categories: &["@slow"],
        summary: "Returns an error: a hub is not part of a cluster",
        since: "3.0.0",
        group: "cluster",
        complexity: "O(1)",
        action: Action::Cluster,
        ..COMMAND
    },
    Command {
        name: "node",
        arity: -2,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        tips: &["nondeterministic_output"],
        summary: "Queries or operates the node of this hub",
        since: "1.0.0",
        group: "cluster",
        complexity: "of the subcommand",
        arguments: &[
            Argument { name: "subcommand", kind: "string", ..ARGUMENT },
            Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..ARGUMENT },
        ],
        action: Action::Node,
        ..COMMAND
    },
];

const LATENCY: &[Command] = &[
    Command {
        name: "latency|doctor",
        arity: 2,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        summary: "Names the alternatives",
        since: "2.8.13",
        group: "server",
        complexity: "O(1)",
        action: Action::Doctor,
        ..COMMAND
    },
    Command {
        name: "latency|history",
        arity: 3,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        summary: "Returns nothing, because nothing is sampled",
        since: "2.8.13",
        group: "server",
        complexity: "O(1)",
        arguments: &[Argument { name: "event", kind: "string", ..ARGUMENT }],
        action: Action::NoSamples,
        ..COMMAND
    },
    Command {
        name: "latency|latest",
        arity: 2,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        summary: "Returns nothing, because nothing is sampled",
        since: "2.8.13",
        group: "server",
        complexity: "O(1)",
        action: Action::NoSamples,
        ..COMMAND
    },
    Command {
        name: "latency|reset",
        arity: -2,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        summary: "Returns 0, because nothing is sampled",
        since: "2.8.13",
        group: "server",
        complexity: "O(1)",
        arguments: &[Argument {
            name: "event",
            kind: "string",
            flags: &["optional", "multiple"],
            ..ARGUMENT
        }],
        action: Action::LatencyReset,
        ..COMMAND
    },
    Command { name: "latency|help", since: "2.8.13", group: "server", ..HELP },
];
