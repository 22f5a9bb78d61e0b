//! Declarations of the functions of keyed queues: each is a subcommand of FCALL, so that rights, COMMAND
//! and its documentation know it by name.

use super::{Access, Action, Argument, Command, ARGUMENT, COMMAND};

pub const DECLARED: &[Command] = &[
    Command {
        name: "fcall",
        arity: -3,
        flags: &["noscript", "stale", "skip_monitor", "no_mandatory_keys", "movablekeys"],
        categories: &["@slow", "@scripting"],
        summary: "Calls a function of keyed queues",
        since: "7.0.0",
        group: "scripting",
        complexity: "Depends on the function that is executed.",
        arguments: CALLED,
        subcommands: FUNCTIONS,
        action: Action::Container,
        ..COMMAND
    },
    Command {
        name: "fcall_ro",
        arity: -3,
        flags: &[
            "readonly",
            "noscript",
            "stale",
            "skip_monitor",
            "no_mandatory_keys",
            "movablekeys",
        ],
        categories: &["@slow", "@scripting"],
        summary: "Calls a function of keyed queues that only reads",
        since: "7.0.0",
        group: "scripting",
        complexity: "Depends on the function that is executed.",
        arguments: CALLED,
        subcommands: READING,
        action: Action::Container,
        ..COMMAND
    },
];

const CALLED: &[Argument] = &[
    Argument { name: "function", kind: "string", ..ARGUMENT },
    Argument { name: "numkeys", kind: "integer", ..ARGUMENT },
    Argument { name: "key", kind: "key", flags: &["optional", "multiple"], ..ARGUMENT },
    Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..ARGUMENT },
];

/// Of one class: what rights are given by.
const PRODUCE: &[&str] = &["@queue", "@produce"];
const CONSUME: &[&str] = &["@queue", "@consume"];
const DECLARE: &[&str] = &["@queue", "@declare"];
const OPERATE: &[&str] = &["@queue", "@operate"];
const READ: &[&str] = &["@queue", "@read"];

const fn function(
    name: &'static str,
    categories: &'static [&'static str],
    summary: &'static str,
    complexity: &'static str,
    arguments: &'static [Argument],
) -> Command {
    Command {
        name,
        arity: -3,
        flags: &["noscript"],
        categories,
        summary,
        since: "1.0.0",
        group: "queue",
        complexity,
        arguments,
        access: Access::Queue,
        action: Action::CallFunction,
        ..COMMAND
    }
}

/// Those that only read, behind others: FCALL_RO knows them too.
macro_rules! with_reading {
    ($by:literal, [$($before:expr),* $(,)?]) => {
        &[
            $($before,)*
            function(concat!($by, "|il1_result"), READ, "What became of a message", "O(1)", &[ID, WAIT]),
            function(concat!($by, "|il1_stats"), READ, "Counts of a queue", "O(1)", &[]),
            function(concat!($by, "|il1_explain"), READ, "Why a message waits, or what stands on a key", "O(N) of the messages told", &[BY, WHAT, LIMIT]),
            function(concat!($by, "|il1_hot"), READ, "Keys, and how many messages stand on each", "O(N) of the lanes told", &[CURSOR]),
            function(concat!($by, "|il1_peek"), READ, "One unsettled message", "O(N) of its keys", &[ID]),
            function(concat!($by, "|il1_scan"), READ, "Goes through the unsettled messages, or the dead letters", "O(N) of the messages told", &[CURSOR, COUNT, ONE_KIND]),
            function(concat!($by, "|il1_paused"), READ, "What is paused", "O(N) of the paused keys", &[CURSOR]),
            function(concat!($by, "|il1_dead_letters"), READ, "Messages that were given up", "O(N) of the dead letters looked at", &[COUNT, AFTER, ONE_KEY]),
            Command {
                access: Access::None,
                ..function(concat!($by, "|il1_version"), READ, "What this server can do", "O(1)", &[])
            },
            Command {
                access: Access::None,
                action: Action::ListQueues,
                ..function(concat!($by, "|il1_queues"), READ, "Names of all queues", "O(N) of the names told", &[CURSOR])
            },
        ]
    };
}

const READING: &[Command] = with_reading!("fcall_ro", []);
const FUNCTIONS: &[Command] = with_reading!(
    "fcall",
    [
        function(
            "fcall|il1_next",
            CONSUME,
            "Settles messages, then leases the next",
            "O(N) of the keys of the messages",
            &[CONSUMER, CALL, WAIT, COUNT, DURATION, KIND, SETTLEMENTS]
        ),
        function(
            "fcall|il1_put",
            PRODUCE,
            "Puts messages, each with zero, one or many keys",
            "O(N) of the keys of the messages",
            &[CONSUMER, CALL, WAIT, MESSAGE]
        ),
        function(
            "fcall|il1_lease",
            CONSUME,
            "Leases messages that are ready",
            "O(N) of the keys of the messages",
            &[CONSUMER, CALL, WAIT, COUNT, DURATION, KIND]
        ),
        function(
            "fcall|il1_settle",
            CONSUME,
            "Settles messages that are leased",
            "O(N) of the keys of the messages",
            &[CONSUMER, CALL, SETTLEMENT]
        ),
        function(
            "fcall|il1_extend",
            CONSUME,
            "Moves the deadline of a lease",
            "O(N) of the lease's messages",
            &[TOKEN, DURATION]
        ),
        function(
            "fcall|il1_join",
            READ,
            "Whether messages are settled, or waits until they are",
            "O(1)",
            &[WAIT, ONE_ID]
        ),
        function(
            "fcall|il1_configure",
            DECLARE,
            "Declares the options of a queue, or tells them",
            "O(1)",
            &[OPTION]
        ),
        function(
            "fcall|il1_cancel",
            OPERATE,
            "Settles a message that is not leased",
            "O(N) of its keys",
            &[ID]
        ),
        function(
            "fcall|il1_revoke",
            OPERATE,
            "Ends the lease of a message",
            "O(N) of its keys",
            &[ID, THEN, ONE_TOKEN]
        ),
        function(
            "fcall|il1_retry",
            OPERATE,
            "Readies a message that is held or backs off",
            "O(1)",
            &[ID]
        ),
        function(
            "fcall|il1_skip",
            OPERATE,
            "Settles a message that is held or backs off",
            "O(N) of its keys",
            &[ID]
        ),
        function(
            "fcall|il1_bury",
            OPERATE,
            "Makes a message that is held or backs off a dead letter",
            "O(N) of its keys",
            &[ID]
        ),
        function(
            "fcall|il1_requeue",
            OPERATE,
            "Puts a dead letter again",
            "O(N) of its keys",
            &[ID]
        ),
        function("fcall|il1_discard", OPERATE, "Drops a dead letter", "O(N) of its keys", &[ID]),
        function(
            "fcall|il1_purge",
            OPERATE,
            "Cancels messages that are not leased, or drops dead letters",
            "O(N) of them, at most 1,000",
            &[WHAT]
        ),
        function(
            "fcall|il1_restore",
            OPERATE,
            "Puts messages of another queue with the attempts they had, or keeps dead letters",
            "O(N) of their keys",
            &[WINDOW, MESSAGE]
        ),
        function("fcall|il1_drop", OPERATE, "Removes a queue", "O(N) of what it holds", &[FORCE]),
        function(
            "fcall|il1_pause",
            OPERATE,
            "Hands out nothing of a queue, or of keys",
            "O(N) of the keys",
            &[KEY]
        ),
        function("fcall|il1_resume", OPERATE, "Hands out again", "O(N) of the keys", &[KEY]),
        function("fcall|il1_seal", OPERATE, "Refuses puts", "O(1)", &[]),
        function("fcall|il1_reopen", OPERATE, "Takes puts again", "O(1)", &[]),
    ]
);

const CONSUMER: Argument = Argument { name: "consumer", kind: "string", ..ARGUMENT };
const CALL: Argument = Argument { name: "call", kind: "integer", ..ARGUMENT };
const WAIT: Argument = Argument { name: "wait", kind: "integer", ..ARGUMENT };
const COUNT: Argument = Argument { name: "count", kind: "integer", ..ARGUMENT };
const DURATION: Argument = Argument { name: "duration", kind: "integer", ..ARGUMENT };
const KIND: Argument = Argument { name: "kind", kind: "string", ..ARGUMENT };
const ONE_KIND: Argument =
    Argument { name: "what", kind: "string", flags: &["optional"], ..ARGUMENT };
const SETTLEMENTS: Argument = Argument { flags: &["optional", "multiple"], ..SETTLEMENT };
const MESSAGE: Argument =
    Argument { name: "message", kind: "string", flags: &["multiple"], ..ARGUMENT };
const SETTLEMENT: Argument =
    Argument { name: "settlement", kind: "string", flags: &["multiple"], ..ARGUMENT };
const TOKEN: Argument = Argument { name: "token", kind: "string", ..ARGUMENT };
const ONE_TOKEN: Argument = Argument { flags: &["optional"], ..TOKEN };
const OPTION: Argument =
    Argument { name: "option", kind: "string", flags: &["optional", "multiple"], ..ARGUMENT };
const ID: Argument = Argument { name: "id", kind: "string", ..ARGUMENT };
const ONE_ID: Argument = Argument { flags: &["optional"], ..ID };
const THEN: Argument = Argument { name: "then", kind: "string", ..ARGUMENT };
const WINDOW: Argument = Argument { name: "window", kind: "integer", ..ARGUMENT };
const FORCE: Argument =
    Argument { name: "force", kind: "string", flags: &["optional"], ..ARGUMENT };
const WHAT: Argument = Argument { name: "what", kind: "string", ..ARGUMENT };
const KEY: Argument =
    Argument { name: "key", kind: "string", flags: &["optional", "multiple"], ..ARGUMENT };
const BY: Argument = Argument { name: "by", kind: "string", ..ARGUMENT };
const LIMIT: Argument = Argument { name: "limit", kind: "integer", ..ARGUMENT };
const CURSOR: Argument = Argument { name: "cursor", kind: "string", ..ARGUMENT };
const AFTER: Argument = Argument { name: "after", kind: "string", ..ARGUMENT };
const ONE_KEY: Argument = Argument { flags: &["optional"], ..KEY };
