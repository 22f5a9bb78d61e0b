//! Declarations of the commands that publish and subscribe.

use super::{Access, Action, Argument, Command, ADMIN, ADMIN_FLAGS, ARGUMENT, COMMAND, HELP};

pub const DECLARED: &[Command] = &[
    Command {
        name: "publish",
        arity: 3,
        flags: &["pubsub", "loading", "stale", "fast"],
        categories: &["@pubsub", "@fast"],
        summary: "Sends a message to all subscribers of a topic",
        since: "2.0.0",
        group: "pubsub",
        complexity: "O(N+M)",
        arguments: &[
            Argument { name: "channel", kind: "string", ..ARGUMENT },
            Argument { name: "message", kind: "string", ..ARGUMENT },
        ],
        access: Access::Publish,
        timed: false,
        action: Action::Publish,
        ..COMMAND
    },
    Command {
        name: "spublish",
        arity: 3,
        flags: &["pubsub", "loading", "stale", "fast"],
        categories: &["@pubsub", "@fast"],
        topics: Some((1, 1, 1)),
        summary: "Sends a message to all subscribers of a shard topic",
        since: "7.0.0",
        group: "pubsub",
        complexity: "O(N)",
        arguments: &[
            Argument { name: "shardchannel", kind: "string", ..ARGUMENT },
            Argument { name: "message", kind: "string", ..ARGUMENT },
        ],
        access: Access::Publish,
        timed: false,
        action: Action::Spublish,
        ..COMMAND
    },
    Command {
        name: "relay",
        arity: -3,
        flags: &["pubsub", "loading", "stale", "fast"],
        categories: &["@pubsub", "@fast"],
        summary: "Accepts a message of another hub, once; answered when stores have it",
        since: "1.0.0",
        group: "pubsub",
        complexity: "O(N+M)",
        arguments: &[Argument {
            name: "what",
            kind: "oneof",
            arguments: &[
                Argument { name: "sender", kind: "string", token: "OPEN", ..ARGUMENT },
                Argument {
                    name: "relayed",
                    kind: "block",
                    arguments: &[
                        Argument { name: "origin", kind: "string", ..ARGUMENT },
                        Argument { name: "number", kind: "integer", ..ARGUMENT },
                        Argument { name: "time", kind: "integer", ..ARGUMENT },
                        Argument { name: "channel", kind: "string", ..ARGUMENT },
                        Argument { name: "message", kind: "string", ..ARGUMENT },
                    ],
                    ..ARGUMENT
                },
            ],
            ..ARGUMENT
        }],
        access: Access::Relay,
        timed: false,
        action: Action::Relay,
        ..COMMAND
    },
    Command {
        name: "log",
        arity: 3,
        flags: &["pubsub", "loading", "stale", "fast"],
        categories: &["@pubsub", "@fast"],
        summary: "PUBLISH under the name used by older clients",
        since: "7.0.0",
        group: "pubsub",
        complexity: "O(N+M)",
        arguments: &[
            Argument { name: "channel", kind: "string", ..ARGUMENT },
            Argument { name: "message", kind: "string", ..ARGUMENT },
        ],
        access: Access::Publish,
        timed: false,
        action: Action::Publish,
        ..COMMAND
    },
    Command {
        name: "subscribe",
        arity: -2,
        flags: &["pubsub", "noscript", "loading", "stale"],
        categories: &["@pubsub", "@slow"],
        summary: "Subscribes to topics",
        since: "2.0.0",
        group: "pubsub",
        complexity: "O(N)",
        arguments: &[Argument {
            name: "channel",
            kind: "string",
            flags: &["multiple"],
            ..ARGUMENT
        }],
        changes_deliveries: true,
        pushes: true,
        access: Access::Topics,
        action: Action::Subscribe,
        ..COMMAND
    },
    Command {
        name: "psubscribe",
        arity: -2,
        flags: &["pubsub", "noscript", "loading", "stale"],
        categories: &["@pubsub", "@slow"],
        summary: "Subscribes to topics that match globs",
        since: "2.0.0",
        group: "pubsub",
        complexity: "O(N)",
        arguments: &[Argument {
            name: "pattern",
            kind: "block",
            flags: &["multiple"],
            arguments: &[Argument { name: "pattern", kind: "pattern", ..ARGUMENT }],
            ..ARGUMENT
        }],
        changes_deliveries: true,
        pushes: true,
        access: Access::Patterns,
        action: Action::Psubscribe,
        ..COMMAND
    },
    Command {
        name: "unsubscribe",
        arity: -1,
        flags: &["pubsub", "noscript", "loading", "stale"],
        categories: &["@pubsub", "@slow"],
        summary: "Unsubscribes from topics, or from all",
        since: "2.0.0",
        group: "pubsub",
        complexity: "O(N)",
        arguments: &[Argument {
            name: "channel",
            kind: "string",
            flags: &["optional", "multiple"],
            ..ARGUMENT
        }],
        changes_deliveries: true,
        pushes: true,
        action: Action::Unsubscribe,
        ..COMMAND
    },
    Command {
        name: "punsubscribe",
        arity: -1,
        flags: &["pubsub", "noscript", "loading", "stale"],
        categories: &["@pubsub", "@slow"],
        summary: "Unsubscribes from globs, or from all",
        since: "2.0.0",
        group: "pubsub",
        complexity: "O(N+M)",
        arguments: &[Argument {
            name: "pattern",
            kind: "pattern",
            flags: &["optional", "multiple"],
            ..ARGUMENT
        }],
        changes_deliveries: true,
        pushes: true,
        action: Action::Punsubscribe,
        ..COMMAND
    },
    Command {
        name: "ssubscribe",
        arity: -2,
        flags: &["pubsub", "noscript", "loading", "stale"],
        categories: &["@pubsub", "@slow"],
        topics: Some((1, -1, 1)),
        summary: "Subscribes to shard topics",
        since: "7.0.0",
        group: "pubsub",
        complexity: "O(N)",
        arguments: &[Argument {
            name: "shardchannel",
            kind: "string",
            flags: &["multiple"],
            ..ARGUMENT
        }],
        changes_deliveries: true,
        pushes: true,
        access: Access::Topics,
        action: Action::Ssubscribe,
        ..COMMAND
    },
    Command {
        name: "sunsubscribe",
        arity: -1,
        flags: &["pubsub", "noscript", "loading", "stale"],
        categories: &["@pubsub", "@slow"],
        topics: Some((1, -1, 1)),
        summary: "Unsubscribes from shard topics, or from all",
        since: "7.0.0",
        group: "pubsub",
        complexity: "O(N)",
        arguments: &[Argument {
            name: "shardchannel",
            kind: "string",
            flags: &["optional", "multiple"],
            ..ARGUMENT
        }],
        changes_deliveries: true,
        pushes: true,
        action: Action::Sunsubscribe,
        ..COMMAND
    },
    Command {
        name: "pubsub",
        arity: -2,
        flags: &[],
        categories: &["@slow"],
        summary: "Queries about topics",
        since: "2.8.0",
        group: "pubsub",
        complexity: "O(1)",
        subcommands: &[
            Command {
                name: "pubsub|channels",
                arity: -2,
                flags: &["pubsub", "loading", "stale"],
                categories: &["@pubsub", "@slow"],
                summary: "Topics that have a subscriber",
                since: "2.8.0",
                group: "pubsub",
                complexity: "O(N)",
                arguments: &[Argument {
                    name: "pattern",
                    kind: "pattern",
                    flags: &["optional"],
                    ..ARGUMENT
                }],
                action: Action::PubsubChannels,
                ..COMMAND
            },
            Command {
                name: "pubsub|numsub",
                arity: -2,
                flags: &["pubsub", "loading", "stale"],
                categories: &["@pubsub", "@slow"],
                summary: "Number of subscribers of each topic",
                since: "2.8.0",
                group: "pubsub",
                complexity: "O(N)",
                arguments: &[Argument {
                    name: "channel",
                    kind: "string",
                    flags: &["optional", "multiple"],
                    ..ARGUMENT
                }],
                action: Action::PubsubNumsub,
                ..COMMAND
            },
            Command {
                name: "pubsub|numpat",
                arity: 2,
                flags: &["pubsub", "loading", "stale"],
                categories: &["@pubsub", "@slow"],
                summary: "Number of different globs subscribed to",
                since: "2.8.0",
                group: "pubsub",
                complexity: "O(1)",
                action: Action::PubsubNumpat,
                ..COMMAND
            },
            Command {
                name: "pubsub|shardchannels",
                arity: -2,
                flags: &["pubsub", "loading", "stale"],
                categories: &["@pubsub", "@slow"],
                summary: "Shard topics that have a subscriber",
                since: "7.0.0",
                group: "pubsub",
                complexity: "O(N)",
                arguments: &[Argument {
                    name: "pattern",
                    kind: "pattern",
                    flags: &["optional"],
                    ..ARGUMENT
                }],
                action: Action::PubsubShardchannels,
                ..COMMAND
            },
            Command {
                name: "pubsub|shardnumsub",
                arity: -2,
                flags: &["pubsub", "loading", "stale"],
                categories: &["@pubsub", "@slow"],
                summary: "Number of subscribers of each shard topic",
                since: "7.0.0",
                group: "pubsub",
                complexity: "O(N)",
                arguments: &[Argument {
                    name: "shardchannel",
                    kind: "string",
                    flags: &["optional", "multiple"],
                    ..ARGUMENT
                }],
                action: Action::PubsubShardnumsub,
                ..COMMAND
            },
            Command {
                name: "pubsub|clients",
                arity: -2,
                flags: ADMIN_FLAGS,
                categories: ADMIN,
                summary: "Clients that are subscribed, by topic, pattern and shard topic",
                since: "7.0.0",
                group: "pubsub",
                complexity: "O(N)",
                arguments: &[
                    Argument { name: "pattern", kind: "pattern", flags: &["optional"], ..ARGUMENT },
                    Argument {
                        name: "count",
                        kind: "integer",
                        token: "LIMIT",
                        flags: &["optional"],
                        ..ARGUMENT
                    },
                ],
                action: Action::PubsubClients,
                ..COMMAND
            },
            Command { name: "pubsub|help", since: "6.2.0", group: "pubsub", ..HELP },
        ],
        action: Action::Container,
        ..COMMAND
    },
];
