// Made by `make generate` from wire/: change that.

//! The functions of keyed queues, declared as subcommands, so that rights and COMMAND
//! refer to each by name.

use super::queues::{function, CONSUME, DECLARE, OPERATE, PRODUCE, READ};
use super::{Access, Action, Argument, Command, ARGUMENT};

/// Behind FCALL.
pub const OF_FCALL: &[Command] = &[
    function(
        "fcall|il1_next",
        CONSUME,
        "Settles messages, then leases the next",
        "O(N) of the keys of the messages",
        &[CONSUMER, CALL, WAIT, COUNT, DURATION, KIND, ANY_SETTLEMENT],
    ),
    function(
        "fcall|il1_put",
        PRODUCE,
        "Puts messages, each with zero, one or many keys",
        "O(N) of the keys of the messages",
        &[CONSUMER, CALL, WAIT, SOME_MESSAGE],
    ),
    function(
        "fcall|il1_lease",
        CONSUME,
        "Leases messages that are ready",
        "O(N) of the keys of the messages",
        &[CONSUMER, CALL, WAIT, COUNT, DURATION, KIND],
    ),
    function(
        "fcall|il1_settle",
        CONSUME,
        "Settles messages that are leased",
        "O(N) of the keys of the messages",
        &[CONSUMER, CALL, SOME_SETTLEMENT],
    ),
    function(
        "fcall|il1_extend",
        CONSUME,
        "Moves the deadline of a lease",
        "O(N) of the lease's messages",
        &[TOKEN, DURATION, ONE_WAITING],
    ),
    function(
        "fcall|il1_configure",
        DECLARE,
        "Declares, changes or returns the options of a queue",
        "O(1)",
        &[ANY_OPTION],
    ),
    function("fcall|il1_result", READ, "The outcome of a message", "O(1)", &[ID, WAIT]),
    function(
        "fcall|il1_join",
        READ,
        "Returns whether messages are settled, or waits until they are",
        "O(1)",
        &[WAIT, ONE_ID],
    ),
    function(
        "fcall|il1_cancel",
        OPERATE,
        "Settles a message that is not leased",
        "O(N) of its keys",
        &[ID],
    ),
    function(
        "fcall|il1_revoke",
        OPERATE,
        "Ends the lease of a message",
        "O(N) of its keys",
        &[ID, THEN, ONE_TOKEN],
    ),
    function(
        "fcall|il1_retry",
        OPERATE,
        "Retries a message that is held or backs off",
        "O(1)",
        &[ID],
    ),
    function(
        "fcall|il1_skip",
        OPERATE,
        "Settles a message that is held or backs off",
        "O(N) of its keys",
        &[ID],
    ),
    function(
        "fcall|il1_bury",
        OPERATE,
        "Makes a message that is held or backs off a dead letter",
        "O(N) of its keys",
        &[ID],
    ),
    function(
        "fcall|il1_requeue",
        OPERATE,
        "Requeues a dead letter",
        "O(N) of its keys",
        &[ID, ONE_PAYLOAD, ONE_EXCLUSIVE, ONE_SHARED, ANY_KEY, ONE_LIMIT, ONE_GROUP, ONE_RUN],
    ),
    function("fcall|il1_discard", OPERATE, "Drops a dead letter", "O(N) of its keys", &[ID]),
    function("fcall|il1_forget", OPERATE, "Drops a kept result", "O(1)", &[ID]),
    function(
        "fcall|il1_purge",
        OPERATE,
        "Cancels messages that are not leased, or drops dead letters",
        "O(N) of them, at most 1,000",
        &[WHAT],
    ),
    function(
        "fcall|il1_restore",
        OPERATE,
        "Puts messages of another queue with the attempts they had, or keeps dead letters",
        "O(N) of their keys",
        &[WINDOW, SOME_MESSAGE],
    ),
    function(
        "fcall|il1_drop",
        OPERATE,
        "Removes a queue",
        "O(N) of the messages and keys of the queue",
        &[ONE_FORCE],
    ),
    function(
        "fcall|il1_pause",
        OPERATE,
        "Pauses a queue, or keys of it",
        "O(N) of the keys",
        &[ANY_KEY],
    ),
    function(
        "fcall|il1_resume",
        OPERATE,
        "Resumes a queue, or keys of it",
        "O(N) of the keys",
        &[ANY_KEY],
    ),
    function("fcall|il1_seal", OPERATE, "Refuses puts", "O(1)", &[]),
    function("fcall|il1_reopen", OPERATE, "Accepts puts again", "O(1)", &[]),
    function("fcall|il1_stats", READ, "Counts of a queue", "O(1)", &[]),
    function("fcall|il1_peek", READ, "One unsettled message", "O(N) of its keys", &[ID]),
    function(
        "fcall|il1_scan",
        READ,
        "Lists the unsettled messages, those of a key, or the dead letters, by pages",
        "O(N) of the messages returned",
        &[CURSOR, COUNT, ONE_WHAT, ONE_KEY, ANY_ID],
    ),
    function(
        "fcall|il1_paused",
        READ,
        "The paused keys, and whether the queue is paused",
        "O(N) of the paused keys",
        &[CURSOR],
    ),
    function(
        "fcall|il1_dead_letters",
        READ,
        "Dead letters",
        "O(N) of the dead letters examined",
        &[COUNT, AFTER, ONE_KEY],
    ),
    function(
        "fcall|il1_hot",
        READ,
        "Keys and the number of messages on each",
        "O(N) of the lanes returned",
        &[CURSOR],
    ),
    function(
        "fcall|il1_limits",
        READ,
        "Limit names, what is used of each, and how many messages wait for it",
        "O(N) of the names examined, at most 1,000 and those declared",
        &[COUNT],
    ),
    function(
        "fcall|il1_explain",
        READ,
        "Why a message waits, or the messages on a key",
        "O(N) of the messages returned",
        &[BY, WHAT, LIMIT],
    ),
    function(
        "fcall|il1_roots",
        READ,
        "The messages and pauses that block others",
        "O(N) of the messages, leases and paused keys examined, at most 1,000, and of their keys",
        &[DURATION, COUNT],
    ),
    function(
        "fcall|il1_blocked",
        READ,
        "The number of messages that wait behind others",
        "O(N) of the messages counted, at most 2,000, and of their keys",
        &[MOST, SOME_ROOT],
    ),
    function(
        "fcall|il1_events",
        READ,
        "Events of messages, for watchers",
        "O(N) of the events returned",
        &[AFTER, COUNT, DURATION],
    ),
    function(
        "fcall|il1_announce",
        CONSUME,
        "Announces a worker and returns the requests for it",
        "O(log N) of the workers",
        &[WORKER, TTL, TEXT],
    ),
    function(
        "fcall|il1_workers",
        READ,
        "The workers that announced themselves",
        "O(N) of the workers returned",
        &[AFTER, COUNT],
    ),
    function("fcall|il1_ask", OPERATE, "Leaves a request for a worker", "O(1)", &[WORKER, TEXT]),
    Command {
        access: Access::None,
        ..function(
            "fcall|il1_version",
            READ,
            "Version and capabilities of this server",
            "O(1)",
            &[],
        )
    },
    Command {
        access: Access::None,
        action: Action::ListQueues,
        ..function(
            "fcall|il1_queues",
            READ,
            "Names of all queues",
            "O(N) of the names returned",
            &[ONE_CURSOR],
        )
    },
];

/// Behind FCALL_RO.
pub const OF_FCALL_RO: &[Command] = &[
    function("fcall_ro|il1_result", READ, "The outcome of a message", "O(1)", &[ID, WAIT]),
    function("fcall_ro|il1_stats", READ, "Counts of a queue", "O(1)", &[]),
    function("fcall_ro|il1_peek", READ, "One unsettled message", "O(N) of its keys", &[ID]),
    function(
        "fcall_ro|il1_scan",
        READ,
        "Lists the unsettled messages, those of a key, or the dead letters, by pages",
        "O(N) of the messages returned",
        &[CURSOR, COUNT, ONE_WHAT, ONE_KEY, ANY_ID],
    ),
    function(
        "fcall_ro|il1_paused",
        READ,
        "The paused keys, and whether the queue is paused",
        "O(N) of the paused keys",
        &[CURSOR],
    ),
    function(
        "fcall_ro|il1_dead_letters",
        READ,
        "Dead letters",
        "O(N) of the dead letters examined",
        &[COUNT, AFTER, ONE_KEY],
    ),
    function(
        "fcall_ro|il1_hot",
        READ,
        "Keys and the number of messages on each",
        "O(N) of the lanes returned",
        &[CURSOR],
    ),
    function(
        "fcall_ro|il1_limits",
        READ,
        "Limit names, what is used of each, and how many messages wait for it",
        "O(N) of the names examined, at most 1,000 and those declared",
        &[COUNT],
    ),
    function(
        "fcall_ro|il1_explain",
        READ,
        "Why a message waits, or the messages on a key",
        "O(N) of the messages returned",
        &[BY, WHAT, LIMIT],
    ),
    function(
        "fcall_ro|il1_roots",
        READ,
        "The messages and pauses that block others",
        "O(N) of the messages, leases and paused keys examined, at most 1,000, and of their keys",
        &[DURATION, COUNT],
    ),
    function(
        "fcall_ro|il1_blocked",
        READ,
        "The number of messages that wait behind others",
        "O(N) of the messages counted, at most 2,000, and of their keys",
        &[MOST, SOME_ROOT],
    ),
    function(
        "fcall_ro|il1_workers",
        READ,
        "The workers that announced themselves",
        "O(N) of the workers returned",
        &[AFTER, COUNT],
    ),
    Command {
        access: Access::None,
        ..function(
            "fcall_ro|il1_version",
            READ,
            "Version and capabilities of this server",
            "O(1)",
            &[],
        )
    },
    Command {
        access: Access::None,
        action: Action::ListQueues,
        ..function(
            "fcall_ro|il1_queues",
            READ,
            "Names of all queues",
            "O(N) of the names returned",
            &[ONE_CURSOR],
        )
    },
];

const AFTER: Argument = Argument { name: "after", kind: "string", ..ARGUMENT };
const ANY_ID: Argument =
    Argument { name: "id", kind: "string", flags: &["optional", "multiple"], ..ARGUMENT };
const ANY_KEY: Argument =
    Argument { name: "key", kind: "string", flags: &["optional", "multiple"], ..ARGUMENT };
const ANY_OPTION: Argument =
    Argument { name: "option", kind: "string", flags: &["optional", "multiple"], ..ARGUMENT };
const ANY_SETTLEMENT: Argument =
    Argument { name: "settlement", kind: "string", flags: &["optional", "multiple"], ..ARGUMENT };
const BY: Argument = Argument { name: "by", kind: "string", ..ARGUMENT };
const CALL: Argument = Argument { name: "call", kind: "integer", ..ARGUMENT };
const CONSUMER: Argument = Argument { name: "consumer", kind: "string", ..ARGUMENT };
const COUNT: Argument = Argument { name: "count", kind: "integer", ..ARGUMENT };
const CURSOR: Argument = Argument { name: "cursor", kind: "string", ..ARGUMENT };
const DURATION: Argument = Argument { name: "duration", kind: "integer", ..ARGUMENT };
const ID: Argument = Argument { name: "id", kind: "string", ..ARGUMENT };
const KIND: Argument = Argument { name: "kind", kind: "string", ..ARGUMENT };
const LIMIT: Argument = Argument { name: "limit", kind: "integer", ..ARGUMENT };
const MOST: Argument = Argument { name: "most", kind: "string", ..ARGUMENT };
const ONE_CURSOR: Argument =
    Argument { name: "cursor", kind: "string", flags: &["optional"], ..ARGUMENT };
const ONE_EXCLUSIVE: Argument =
    Argument { name: "exclusive", kind: "string", flags: &["optional"], ..ARGUMENT };
const ONE_FORCE: Argument =
    Argument { name: "force", kind: "string", flags: &["optional"], ..ARGUMENT };
const ONE_GROUP: Argument =
    Argument { name: "group", kind: "string", flags: &["optional"], ..ARGUMENT };
const ONE_ID: Argument = Argument { name: "id", kind: "string", flags: &["optional"], ..ARGUMENT };
const ONE_KEY: Argument =
    Argument { name: "key", kind: "string", flags: &["optional"], ..ARGUMENT };
const ONE_LIMIT: Argument =
    Argument { name: "limit", kind: "integer", flags: &["optional"], ..ARGUMENT };
const ONE_PAYLOAD: Argument =
    Argument { name: "payload", kind: "string", flags: &["optional"], ..ARGUMENT };
const ONE_RUN: Argument =
    Argument { name: "run", kind: "string", flags: &["optional"], ..ARGUMENT };
const ONE_SHARED: Argument =
    Argument { name: "shared", kind: "string", flags: &["optional"], ..ARGUMENT };
const ONE_TOKEN: Argument =
    Argument { name: "token", kind: "string", flags: &["optional"], ..ARGUMENT };
const ONE_WAITING: Argument =
    Argument { name: "waiting", kind: "string", flags: &["optional"], ..ARGUMENT };
const ONE_WHAT: Argument =
    Argument { name: "what", kind: "string", flags: &["optional"], ..ARGUMENT };
const SOME_MESSAGE: Argument =
    Argument { name: "message", kind: "string", flags: &["multiple"], ..ARGUMENT };
const SOME_ROOT: Argument =
    Argument { name: "root", kind: "string", flags: &["multiple"], ..ARGUMENT };
const SOME_SETTLEMENT: Argument =
    Argument { name: "settlement", kind: "string", flags: &["multiple"], ..ARGUMENT };
const TEXT: Argument = Argument { name: "text", kind: "string", ..ARGUMENT };
const THEN: Argument = Argument { name: "then", kind: "string", ..ARGUMENT };
const TOKEN: Argument = Argument { name: "token", kind: "string", ..ARGUMENT };
const TTL: Argument = Argument { name: "ttl", kind: "string", ..ARGUMENT };
const WAIT: Argument = Argument { name: "wait", kind: "integer", ..ARGUMENT };
const WHAT: Argument = Argument { name: "what", kind: "string", ..ARGUMENT };
const WINDOW: Argument = Argument { name: "window", kind: "integer", ..ARGUMENT };
const WORKER: Argument = Argument { name: "worker", kind: "string", ..ARGUMENT };
