// Made by `make generate` from wire/: change that.

//! The options of a queue, and the list by which dumps and recordings visit them.

use crate::limits::default;
use crate::queue::types::limits::{Limits, Weights};
use crate::queue::types::{Behind, Retry};

/// The options a queue was made with. A bound of 0 messages or bytes means none.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Time a lease lasts, µs; `None`: no deadline (clause 8).
    pub lease: Option<u64>,
    pub retry: Retry,
    /// Maximum number of unsettled messages, including leased ones; 0 for no bound (clause 11).
    pub max_messages: usize,
    /// Maximum bytes of their payloads; 0 for no bound.
    pub max_bytes: u64,
    /// Maximum number of dead letters.
    pub max_dead: usize,
    /// µs for which a dedup string stays known after its message is settled.
    pub dedup_window: u64,
    /// µs for which a dead letter is kept; 0 for no limit.
    pub dead_ttl: u64,
    /// Concurrency limits (clause 26): entries `NAME=N`, and rates (clause 27): entries
    /// `NAME=N/PER:BURST`, PER in µs, separated by the byte 0x1F. N and BURST are 1 or more, PER at
    /// least N, and a burst takes at most 31 years to come back. A NAME that ends in `*` is a
    /// prefix; the exact name, then the longest prefix, counts. Each name once; returned sorted by
    /// NAME.
    pub limits: Limits,
    /// Weights of groups (clause 28): entries `GROUP=N`, separated by the byte 0x1F, N 1 to 1,000.
    /// A GROUP that ends in `*` is a prefix; the exact group, then the longest prefix, counts, else
    /// 1. Each GROUP once; returned sorted by GROUP.
    pub weights: Weights,
    /// Outcome for messages that wait on a key of a held or dead message, or for `park` on a paused
    /// key (clause 31): `wait`, `bury`, `cancel` or `park`.
    pub behind: Behind,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            lease: None,
            retry: Retry::default(),
            max_messages: default::MAXSIZE as usize,
            max_bytes: default::MAXBYTES,
            max_dead: default::MAXDEAD as usize,
            dedup_window: default::WINDOW,
            dead_ttl: default::DEAD_TTL,
            limits: Limits::default(),
            weights: Weights::default(),
            behind: Behind::default(),
        }
    }
}

/// An option that is a number, behind the bounds, the lease and the retry policy.
pub struct Number {
    /// The name of its field, in a recording too.
    pub name: &'static str,
    /// Its name in Python.
    pub argument: &'static str,
    /// True if Python has it in seconds, and the scheduler in µs.
    pub micros: bool,
    /// The first version of a dump that has it.
    pub since: u8,
    pub get: fn(&Options) -> u64,
    /// Returns false if the number is too large for it.
    pub set: fn(&mut Options, u64) -> bool,
}

/// All of them, in the order of a dump.
pub const NUMBERS: [Number; 3] = [
    Number {
        name: "dedup_window",
        argument: "dedup_window",
        micros: true,
        since: 1,
        get: |options| options.dedup_window,
        set: |options, value| {
            options.dedup_window = value;
            true
        },
    },
    Number {
        name: "max_dead",
        argument: "maxdead",
        micros: false,
        since: 1,
        get: |options| options.max_dead as u64,
        set: |options, value| value.try_into().map(|value| options.max_dead = value).is_ok(),
    },
    Number {
        name: "dead_ttl",
        argument: "dead_ttl",
        micros: true,
        since: 2,
        get: |options| options.dead_ttl,
        set: |options, value| {
            options.dead_ttl = value;
            true
        },
    },
];

/// The version of a dump that the newest of them came with.
pub const NEWEST: u8 = 2;
