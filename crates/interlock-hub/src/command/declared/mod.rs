//! One declaration per command: what it takes, who may call it, what it is for.
//!
//! Dispatch, COMMAND, COMMAND DOCS and the reference page derive from these. What Redis 7.0.15 has too
//! is declared as there in all that programs read (arity, flags, categories, names of arguments); what
//! people read is in our own words.

mod acl;
mod client;
mod connection;
mod queues;
mod server;
mod status;
mod topics;

use super::{help, nothing, Call};

pub struct Command {
    /// With its container, where it has one: `client|list`.
    pub name: &'static str,
    /// With the name itself; negative: at least so many.
    pub arity: i32,
    pub flags: &'static [&'static str],
    /// The categories by which rights are given.
    pub categories: &'static [&'static str],
    pub tips: &'static [&'static str],
    /// First, last and step of the arguments that are shard topics.
    pub topics: Option<(i32, i32, i32)>,
    pub summary: &'static str,
    pub since: &'static str,
    pub group: &'static str,
    pub complexity: &'static str,
    pub arguments: &'static [Argument],
    pub subcommands: &'static [Command],
    /// True if what was published before it is delivered first.
    pub changes_deliveries: bool,
    /// The arguments that are topics to which one must have a right.
    pub access: Access,
    /// The slow log looks at it always, and not only where many patterns make it slow.
    pub timed: bool,
    /// Answers by pushes, which CLIENT REPLY does not silence.
    pub pushes: bool,
    pub handler: fn(&mut Call<'_, '_>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    None,
    /// To publish to the first argument.
    Publish,
    /// To subscribe to each argument.
    Topics,
    /// To subscribe to all topics that match one of the arguments.
    Patterns,
    /// To the queue that is the key of the function.
    Queue,
}

pub struct Argument {
    pub name: &'static str,
    pub kind: &'static str,
    pub token: &'static str,
    pub since: &'static str,
    pub deprecated_since: &'static str,
    pub flags: &'static [&'static str],
    pub arguments: &'static [Argument],
}

/// In the order in which a name is looked for: what is called often first.
pub static FAMILIES: [&[Command]; 7] = [
    topics::DECLARED,
    queues::DECLARED,
    connection::DECLARED,
    client::DECLARED,
    server::DECLARED,
    acl::DECLARED,
    status::DECLARED,
];

const ADMIN_FLAGS: &[&str] = &["admin", "noscript", "loading", "stale"];
const ADMIN: &[&str] = &["@admin", "@slow", "@dangerous"];

const COMMAND: Command = Command {
    name: "",
    arity: 0,
    flags: &[],
    categories: &[],
    tips: &[],
    topics: None,
    summary: "",
    since: "",
    group: "",
    complexity: "",
    arguments: &[],
    subcommands: &[],
    changes_deliveries: false,
    access: Access::None,
    timed: true,
    pushes: false,
    handler: nothing,
};

/// Of a container: what its subcommands are for.
const HELP: Command = Command {
    arity: 2,
    flags: &["loading", "stale"],
    categories: &["@slow"],
    summary: "What the subcommands are for",
    complexity: "O(1)",
    handler: help,
    ..COMMAND
};

const ARGUMENT: Argument = Argument {
    name: "",
    kind: "",
    token: "",
    since: "",
    deprecated_since: "",
    flags: &[],
    arguments: &[],
};
