//! The catalog of commands: what each takes, who may call it, what it is for, without the code of any.
//!
//! Dispatch, COMMAND, COMMAND DOCS and the reference page derive from these. What Redis 7.0.15 has too
//! is declared as there in all that programs read (arity, flags, categories, names of arguments); what
//! people read is in our own words.

mod acl;
pub mod actions;
mod client;
mod connection;
mod functions;
mod queues;
mod server;
mod status;
mod stores;
mod tables;
mod topics;

use std::sync::LazyLock;

use interlock_rows::names::{is_called, Names};

use crate::resp::parse::Arguments;

pub use actions::Action;

pub struct Command {
    /// With its container, where it has one: `client|list`.
    pub name: &'static str,
    /// Number of arguments including the name; negative: a minimum.
    pub arity: i32,
    pub flags: &'static [&'static str],
    /// The categories by which rights are given.
    pub categories: &'static [&'static str],
    pub tips: &'static [&'static str],
    /// First, last and step of the arguments that are shard topics, or keys.
    pub topics: Option<(i32, i32, i32)>,
    pub summary: &'static str,
    pub since: &'static str,
    pub group: &'static str,
    pub complexity: &'static str,
    pub arguments: &'static [Argument],
    pub subcommands: &'static [Command],
    /// True if what was published before it is delivered first.
    pub changes_deliveries: bool,
    /// The arguments that name what one must have a right to.
    pub access: Access,
    /// The slow log looks at it always, and not only where many patterns make it slow.
    pub timed: bool,
    /// Answers by pushes, which CLIENT REPLY does not silence.
    pub pushes: bool,
    pub action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    None,
    /// To publish to the first argument.
    Publish,
    /// To publish to the fourth argument, if there is one.
    Relay,
    /// To subscribe to each argument.
    Topics,
    /// To subscribe to all topics that match one of the arguments.
    Patterns,
    /// To the queue that is the key of the function.
    Queue,
    /// To the table of the row that the first argument names.
    Row,
    /// To those of the rows that each argument names.
    Rows,
    /// Like `Row`, for a subcommand.
    TableRow,
    /// To the table that a subcommand's first argument names.
    TableName,
    /// To subscribe to the first argument.
    Stream,
    /// To subscribe to the topics behind STREAMS.
    Streams,
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

static FAMILIES: [&[Command]; 9] = [
    topics::DECLARED,
    queues::DECLARED,
    connection::DECLARED,
    client::DECLARED,
    server::DECLARED,
    acl::DECLARED,
    status::DECLARED,
    tables::DECLARED,
    stores::DECLARED,
];

/// The reason why a command was not found.
#[derive(Clone, Copy, Debug)]
pub enum Unknown {
    Command,
    Subcommand,
    /// FCALL, whose flags are those of a server with libraries.
    Function,
}

pub fn all() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

static BY_NAMES: LazyLock<Names<&'static Command>> =
    LazyLock::new(|| Names::new(all().map(|command| (command.name, command))));

pub fn find(arguments: Arguments<'_>) -> Result<&'static Command, Unknown> {
    let command = BY_NAMES.find(&arguments[0]).ok_or(Unknown::Command)?;
    match arguments.get(1) {
        Some(sub) if !command.subcommands.is_empty() => {
            let calls_functions = command.name.starts_with("fcall");
            let unknown = if calls_functions { Unknown::Function } else { Unknown::Subcommand };
            command.subcommand(sub).ok_or(unknown)
        }
        _ => Ok(command),
    }
}

/// Returns the command with this name, in the form of COMMAND INFO: `get`, `client|list`.
pub fn named(name: &[u8]) -> Option<&'static Command> {
    let subcommands = |command: &'static Command| [command].into_iter().chain(command.subcommands);
    all().flat_map(subcommands).find(|command| name.eq_ignore_ascii_case(command.name.as_bytes()))
}

/// The command whose `index` it is.
pub fn name_of(index: usize) -> &'static str {
    let known = all().flat_map(|command| [command].into_iter().chain(command.subcommands));
    known.into_iter().find(|command| command.index() == index).map_or("NULL", |found| found.name)
}

impl Command {
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Command> {
        // The container's name comes first, and `|`.
        let first = self.name.len() + 1;
        let own = |sub: &&Command| is_called(name, &sub.name.as_bytes()[first..]);
        self.subcommands.iter().find(own)
    }

    /// The command's number: its place in memory.
    pub fn index(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    pub fn wrong_arity(&self, arguments: Arguments<'_>) -> Option<String> {
        let count = arguments.len() as i32;
        let wrong = (self.arity > 0 && count != self.arity) || count < -self.arity;
        wrong.then(|| format!("ERR wrong number of arguments for '{}' command", self.name))
    }
}

pub const REDIS_VERSION: &str = "7.0.15";

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
    action: Action::Container,
};

/// Help of a container: the list of its subcommands.
const HELP: Command = Command {
    arity: 2,
    flags: &["loading", "stale"],
    categories: &["@slow"],
    summary: "Summaries of the subcommands",
    complexity: "O(1)",
    action: Action::Help,
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
