//! Declarations of the commands about users. Users and their rights come from the configuration;
//! these commands only report them.

use super::{Action, Argument, Command, ADMIN, ADMIN_FLAGS, ARGUMENT, COMMAND, HELP};

pub const DECLARED: &[Command] = &[Command {
    name: "acl",
    arity: -2,
    categories: &["@slow"],
    summary: "Commands about users",
    since: "6.0.0",
    group: "server",
    complexity: "of the subcommand",
    subcommands: SUBCOMMANDS,
    action: Action::Container,
    ..COMMAND
}];

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "acl|cat",
        arity: -2,
        flags: FLAGS,
        categories: ANYBODY,
        summary: "The classes of commands, or the commands of one",
        since: "6.0.0",
        group: "server",
        complexity: "O(N)",
        arguments: &[Argument {
            name: "category",
            kind: "string",
            flags: &["optional"],
            ..ARGUMENT
        }],
        action: Action::AclCat,
        ..COMMAND
    },
    Command {
        name: "acl|dryrun",
        arity: -4,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        summary: "Tests whether a user may make a call, without making it",
        since: "7.0.0",
        group: "server",
        complexity: "O(N)",
        arguments: &[
            Argument { name: "username", kind: "string", ..ARGUMENT },
            Argument { name: "command", kind: "string", ..ARGUMENT },
            Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..ARGUMENT },
        ],
        action: Action::AclDryrun,
        ..COMMAND
    },
    Command {
        name: "acl|genpass",
        arity: -2,
        flags: FLAGS,
        categories: ANYBODY,
        summary: "Random digits for a password",
        since: "6.0.0",
        group: "server",
        complexity: "O(1)",
        arguments: &[Argument { name: "bits", kind: "integer", flags: &["optional"], ..ARGUMENT }],
        action: Action::AclGenpass,
        ..COMMAND
    },
    Command {
        name: "acl|getuser",
        arity: 3,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        summary: "The rights of a user",
        since: "6.0.0",
        group: "server",
        complexity: "O(N)",
        arguments: &[Argument { name: "username", kind: "string", ..ARGUMENT }],
        action: Action::AclGetuser,
        ..COMMAND
    },
    Command {
        name: "acl|list",
        arity: 2,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        summary: "The rights of all users, one line each",
        since: "6.0.0",
        group: "server",
        complexity: "O(N)",
        action: Action::AclList,
        ..COMMAND
    },
    Command {
        name: "acl|log",
        arity: -2,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        summary: "Calls and logins refused for a missing right or a wrong password, newest first",
        since: "6.0.0",
        group: "server",
        complexity: "O(N)",
        arguments: &[Argument {
            name: "operation",
            kind: "oneof",
            flags: &["optional"],
            arguments: &[
                Argument { name: "count", kind: "integer", ..ARGUMENT },
                Argument { name: "reset", kind: "pure-token", token: "RESET", ..ARGUMENT },
            ],
            ..ARGUMENT
        }],
        action: Action::AclLog,
        ..COMMAND
    },
    Command {
        name: "acl|users",
        arity: 2,
        flags: ADMIN_FLAGS,
        categories: ADMIN,
        summary: "The names of all users",
        since: "6.0.0",
        group: "server",
        complexity: "O(N)",
        action: Action::AclUsers,
        ..COMMAND
    },
    Command {
        name: "acl|whoami",
        arity: 2,
        flags: FLAGS,
        categories: ANYBODY,
        summary: "The name of this connection's user",
        since: "6.0.0",
        group: "server",
        complexity: "O(1)",
        action: Action::AclWhoami,
        ..COMMAND
    },
    Command { name: "acl|help", since: "6.0.0", group: "server", ..HELP },
];

const FLAGS: &[&str] = &["noscript", "loading", "stale"];
const ANYBODY: &[&str] = &["@slow"];
