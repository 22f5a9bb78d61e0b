// Made by `make generate` from wire/: change that.

//! The functions by name, and the class of each, by which rights are granted.

/// The class of rights that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Produce,
    Consume,
    Read,
    Operate,
    Declare,
}

/// A function of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `il1_next CONSUMER CALL WAIT COUNT DURATION KIND [SETTLEMENT ...]`.
    Next,
    /// `il1_put CONSUMER CALL WAIT MESSAGE [MESSAGE ...]`.
    Put,
    /// `il1_lease CONSUMER CALL WAIT COUNT DURATION KIND`.
    Lease,
    /// `il1_settle CONSUMER CALL SETTLEMENT [SETTLEMENT ...]`.
    Settle,
    /// `il1_extend TOKEN DURATION [WAITING]`.
    Extend,
    /// `il1_configure [CHANGE | REPLACE] [NAME VALUE ...]`.
    Configure,
    /// `il1_result ID WAIT`.
    Result,
    /// `il1_join WAIT [ID]`.
    Join,
    /// `il1_cancel ID`.
    Cancel,
    /// `il1_revoke ID THEN [TOKEN]`.
    Revoke,
    /// `il1_retry ID`.
    Retry,
    /// `il1_skip ID`.
    Skip,
    /// `il1_bury ID`.
    Bury,
    /// `il1_requeue ID [PAYLOAD [EXCLUSIVE SHARED [KEY ...] [KEY ...] [LIMIT GROUP RUN]]]`.
    Requeue,
    /// `il1_discard ID`.
    Discard,
    /// `il1_forget ID`.
    Forget,
    /// `il1_purge WHAT`.
    Purge,
    /// `il1_restore WINDOW ITEM [ITEM ...]`.
    Restore,
    /// `il1_drop [FORCE]`.
    Drop,
    /// `il1_pause [KEY ...]`.
    Pause,
    /// `il1_resume [KEY ...]`.
    Resume,
    /// `il1_seal`.
    Seal,
    /// `il1_reopen`.
    Reopen,
    /// `il1_stats`.
    Stats,
    /// `il1_peek ID`.
    Peek,
    /// `il1_scan CURSOR COUNT [dead | newest | key KEY | delayed KEY | ids ID ... | larger ID
    /// [STATE] | front ID [STATE] | rising]`.
    Scan,
    /// `il1_paused CURSOR`.
    Paused,
    /// `il1_dead_letters COUNT AFTER [KEY]`.
    DeadLetters,
    /// `il1_hot CURSOR`.
    Hot,
    /// `il1_limits COUNT`.
    Limits,
    /// `il1_explain BY WHAT LIMIT`.
    Explain,
    /// `il1_roots DURATION COUNT`.
    Roots,
    /// `il1_blocked MOST ROOT [ROOT ...]`.
    Blocked,
    /// `il1_events AFTER COUNT DURATION`.
    Events,
    /// `il1_announce WORKER TTL TEXT`.
    Announce,
    /// `il1_workers AFTER COUNT`.
    Workers,
    /// `il1_ask WORKER TEXT`.
    Ask,
    /// `il1_version`.
    Version,
    /// `il1_queues [CURSOR]`.
    Queues,
}

impl Function {
    pub const ALL: &'static [Function] = &[
        Function::Next,
        Function::Put,
        Function::Lease,
        Function::Settle,
        Function::Extend,
        Function::Configure,
        Function::Result,
        Function::Join,
        Function::Cancel,
        Function::Revoke,
        Function::Retry,
        Function::Skip,
        Function::Bury,
        Function::Requeue,
        Function::Discard,
        Function::Forget,
        Function::Purge,
        Function::Restore,
        Function::Drop,
        Function::Pause,
        Function::Resume,
        Function::Seal,
        Function::Reopen,
        Function::Stats,
        Function::Peek,
        Function::Scan,
        Function::Paused,
        Function::DeadLetters,
        Function::Hot,
        Function::Limits,
        Function::Explain,
        Function::Roots,
        Function::Blocked,
        Function::Events,
        Function::Announce,
        Function::Workers,
        Function::Ask,
        Function::Version,
        Function::Queues,
    ];

    /// Returns its name behind `il1_`.
    pub fn name(self) -> &'static str {
        match self {
            Function::Next => "next",
            Function::Put => "put",
            Function::Lease => "lease",
            Function::Settle => "settle",
            Function::Extend => "extend",
            Function::Configure => "configure",
            Function::Result => "result",
            Function::Join => "join",
            Function::Cancel => "cancel",
            Function::Revoke => "revoke",
            Function::Retry => "retry",
            Function::Skip => "skip",
            Function::Bury => "bury",
            Function::Requeue => "requeue",
            Function::Discard => "discard",
            Function::Forget => "forget",
            Function::Purge => "purge",
            Function::Restore => "restore",
            Function::Drop => "drop",
            Function::Pause => "pause",
            Function::Resume => "resume",
            Function::Seal => "seal",
            Function::Reopen => "reopen",
            Function::Stats => "stats",
            Function::Peek => "peek",
            Function::Scan => "scan",
            Function::Paused => "paused",
            Function::DeadLetters => "dead_letters",
            Function::Hot => "hot",
            Function::Limits => "limits",
            Function::Explain => "explain",
            Function::Roots => "roots",
            Function::Blocked => "blocked",
            Function::Events => "events",
            Function::Announce => "announce",
            Function::Workers => "workers",
            Function::Ask => "ask",
            Function::Version => "version",
            Function::Queues => "queues",
        }
    }

    /// Finds one by what is behind `il1_`.
    pub fn of_name(name: &[u8]) -> Option<Function> {
        Some(match name {
            b"next" => Function::Next,
            b"put" => Function::Put,
            b"lease" => Function::Lease,
            b"settle" => Function::Settle,
            b"extend" => Function::Extend,
            b"configure" => Function::Configure,
            b"result" => Function::Result,
            b"join" => Function::Join,
            b"cancel" => Function::Cancel,
            b"revoke" => Function::Revoke,
            b"retry" => Function::Retry,
            b"skip" => Function::Skip,
            b"bury" => Function::Bury,
            b"requeue" => Function::Requeue,
            b"discard" => Function::Discard,
            b"forget" => Function::Forget,
            b"purge" => Function::Purge,
            b"restore" => Function::Restore,
            b"drop" => Function::Drop,
            b"pause" => Function::Pause,
            b"resume" => Function::Resume,
            b"seal" => Function::Seal,
            b"reopen" => Function::Reopen,
            b"stats" => Function::Stats,
            b"peek" => Function::Peek,
            b"scan" => Function::Scan,
            b"paused" => Function::Paused,
            b"dead_letters" => Function::DeadLetters,
            b"hot" => Function::Hot,
            b"limits" => Function::Limits,
            b"explain" => Function::Explain,
            b"roots" => Function::Roots,
            b"blocked" => Function::Blocked,
            b"events" => Function::Events,
            b"announce" => Function::Announce,
            b"workers" => Function::Workers,
            b"ask" => Function::Ask,
            b"version" => Function::Version,
            b"queues" => Function::Queues,
            _ => return None,
        })
    }

    pub fn class(self) -> Class {
        match self {
            Function::Next
            | Function::Lease
            | Function::Settle
            | Function::Extend
            | Function::Announce => Class::Consume,
            Function::Put => Class::Produce,
            Function::Configure => Class::Declare,
            Function::Result
            | Function::Join
            | Function::Stats
            | Function::Peek
            | Function::Scan
            | Function::Paused
            | Function::DeadLetters
            | Function::Hot
            | Function::Limits
            | Function::Explain
            | Function::Roots
            | Function::Blocked
            | Function::Events
            | Function::Workers
            | Function::Version
            | Function::Queues => Class::Read,
            Function::Cancel
            | Function::Revoke
            | Function::Retry
            | Function::Skip
            | Function::Bury
            | Function::Requeue
            | Function::Discard
            | Function::Forget
            | Function::Purge
            | Function::Restore
            | Function::Drop
            | Function::Pause
            | Function::Resume
            | Function::Seal
            | Function::Reopen
            | Function::Ask => Class::Operate,
        }
    }

    /// Returns whether it takes one key, the queue; the others take none.
    pub fn takes_queue(self) -> bool {
        !matches!(self, Function::Version | Function::Queues)
    }

    /// Returns whether it only reads, and does not apply what is due either.
    pub fn only_reads(self) -> bool {
        matches!(
            self,
            Function::Result
                | Function::Stats
                | Function::Peek
                | Function::Scan
                | Function::Paused
                | Function::DeadLetters
                | Function::Hot
                | Function::Limits
                | Function::Explain
                | Function::Roots
                | Function::Blocked
                | Function::Workers
                | Function::Version
                | Function::Queues
        )
    }

    /// Returns whether it changes only what no journal has and no restart keeps.
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Function::Events | Function::Announce | Function::Ask)
    }

    /// Returns whether it makes a queue larger: a full server refuses it.
    pub fn grows(self) -> bool {
        matches!(self, Function::Put | Function::Requeue | Function::Restore)
    }

    /// Returns its number in a journal; `None`: it changes nothing.
    pub fn record(self) -> Option<u8> {
        Some(match self {
            Function::Next => 19,
            Function::Put => 16,
            Function::Lease => 17,
            Function::Settle => 18,
            Function::Extend => 20,
            Function::Configure => 21,
            Function::Cancel => 22,
            Function::Revoke => 23,
            Function::Retry => 24,
            Function::Skip => 25,
            Function::Bury => 26,
            Function::Requeue => 27,
            Function::Discard => 35,
            Function::Forget => 36,
            Function::Purge => 28,
            Function::Restore => 33,
            Function::Drop => 34,
            Function::Pause => 29,
            Function::Resume => 30,
            Function::Seal => 31,
            Function::Reopen => 32,
            Function::Result
            | Function::Join
            | Function::Stats
            | Function::Peek
            | Function::Scan
            | Function::Paused
            | Function::DeadLetters
            | Function::Hot
            | Function::Limits
            | Function::Explain
            | Function::Roots
            | Function::Blocked
            | Function::Events
            | Function::Announce
            | Function::Workers
            | Function::Ask
            | Function::Version
            | Function::Queues => return None,
        })
    }
}
