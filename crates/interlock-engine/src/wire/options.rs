// Made by `make generate` from wire/: change that.

//! The options of queues and of messages, in the order of the answer.

use interlock_core::queue::schedules::bytes::{self, number, Damaged};
use interlock_core::queue::types::limits::{Limits, Weights};
use interlock_core::queue::types::{Behind, Options, Then};

use super::limits::*;
use crate::queue::declare::{read_limits, read_weights, Durability, OneOf};
use crate::values::args::{Args, Read, Reader, What};

/// An option of a queue: `il1_configure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOption {
    /// Maximum number of unsettled messages, including leased ones; 0 for no bound (clause 11).
    MaxSize,
    /// Maximum bytes of their payloads; 0 for no bound.
    MaxBytes,
    /// Maximum number of dead letters.
    MaxDead,
    /// µs for which a dedup string stays known after its message is settled.
    Window,
    /// Maximum number of attempts; 0 for no limit (clause 10).
    Attempts,
    /// First backoff, µs.
    First,
    /// Factor by which each further backoff is longer, in thousandths, 1000 or more.
    Factor,
    /// Longest backoff, µs.
    Longest,
    /// `1` or `0`.
    Jitter,
    /// `dead` or `hold`.
    Then,
    /// Maximum bytes of kept results; the oldest are dropped first.
    Results,
    /// On a hub with a journal: `always` (on disk before a call is answered), `everysec` (on disk
    /// within a second) or `none` (not stored); on Redis `server`, the server's setting.
    Durability,
    /// µs for which a dead letter is kept; 0 for no limit.
    DeadTtl,
    /// Concurrency limits (clause 26): entries `NAME=N`, and rates (clause 27): entries
    /// `NAME=N/PER:BURST`, PER in µs, separated by the byte 0x1F. N and BURST are 1 or more, PER at
    /// least N, and a burst takes at most 31 years to come back. A NAME that ends in `*` is a
    /// prefix; the exact name, then the longest prefix, counts. Each name once; returned sorted by
    /// NAME.
    Limits,
    /// Weights of groups (clause 28): entries `GROUP=N`, separated by the byte 0x1F, N 1 to 1,000.
    /// A GROUP that ends in `*` is a prefix; the exact group, then the longest prefix, counts, else
    /// 1. Each GROUP once; returned sorted by GROUP.
    Weights,
    /// Outcome for messages that wait on a key of a held or dead message, or for `park` on a paused
    /// key (clause 31): `wait`, `bury`, `cancel` or `park`.
    Behind,
}

impl QueueOption {
    pub const ALL: [QueueOption; 16] = [
        QueueOption::MaxSize,
        QueueOption::MaxBytes,
        QueueOption::MaxDead,
        QueueOption::Window,
        QueueOption::Attempts,
        QueueOption::First,
        QueueOption::Factor,
        QueueOption::Longest,
        QueueOption::Jitter,
        QueueOption::Then,
        QueueOption::Results,
        QueueOption::Durability,
        QueueOption::DeadTtl,
        QueueOption::Limits,
        QueueOption::Weights,
        QueueOption::Behind,
    ];
    /// All of them, as text.
    pub const TOLD: &'static str =
        "MAXSIZE, MAXBYTES, MAXDEAD, WINDOW, ATTEMPTS, FIRST, FACTOR, LONGEST, \
JITTER, THEN, RESULTS, DURABILITY, DEAD_TTL, LIMITS, WEIGHTS or BEHIND";

    pub fn name(self) -> &'static str {
        match self {
            QueueOption::MaxSize => "MAXSIZE",
            QueueOption::MaxBytes => "MAXBYTES",
            QueueOption::MaxDead => "MAXDEAD",
            QueueOption::Window => "WINDOW",
            QueueOption::Attempts => "ATTEMPTS",
            QueueOption::First => "FIRST",
            QueueOption::Factor => "FACTOR",
            QueueOption::Longest => "LONGEST",
            QueueOption::Jitter => "JITTER",
            QueueOption::Then => "THEN",
            QueueOption::Results => "RESULTS",
            QueueOption::Durability => "DURABILITY",
            QueueOption::DeadTtl => "DEAD_TTL",
            QueueOption::Limits => "LIMITS",
            QueueOption::Weights => "WEIGHTS",
            QueueOption::Behind => "BEHIND",
        }
    }

    pub fn of_name(name: &[u8]) -> Option<QueueOption> {
        Some(match name {
            b"MAXSIZE" => QueueOption::MaxSize,
            b"MAXBYTES" => QueueOption::MaxBytes,
            b"MAXDEAD" => QueueOption::MaxDead,
            b"WINDOW" => QueueOption::Window,
            b"ATTEMPTS" => QueueOption::Attempts,
            b"FIRST" => QueueOption::First,
            b"FACTOR" => QueueOption::Factor,
            b"LONGEST" => QueueOption::Longest,
            b"JITTER" => QueueOption::Jitter,
            b"THEN" => QueueOption::Then,
            b"RESULTS" => QueueOption::Results,
            b"DURABILITY" => QueueOption::Durability,
            b"DEAD_TTL" => QueueOption::DeadTtl,
            b"LIMITS" => QueueOption::Limits,
            b"WEIGHTS" => QueueOption::Weights,
            b"BEHIND" => QueueOption::Behind,
            _ => return None,
        })
    }
}

/// An option of a message: `il1_put`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOption {
    /// −100 to 100, written with `-`.
    Priority,
    /// µs until the message takes its place (clause 12).
    Delay,
    /// A dedup string, not empty (clause 13).
    Dedup,
    /// A dedup string. The put is refused as `UNKNOWN` if the queue does not know it before the
    /// call: a server that has lost the earlier message takes none that must follow it.
    After,
    /// µs for which the dedup string stays known after the message is settled; ignored without
    /// `DEDUP`.
    Window,
    /// `1`: it runs alone (clause 14). With keys it is `BADARG`.
    Barrier,
    /// µs for which its result is kept once it is settled; 0: it is not kept.
    Result,
    /// `1`: its consumer leaves it out of the log of handled messages.
    Quiet,
    /// Names of limits (clauses 26 and 27), 1 to {MAX_LIMIT_NAMES}, separated by the byte 0x1F.
    /// Returned sorted by their bytes, each once.
    Limit,
    /// Its group (clause 28), without the byte 0x1F.
    Group,
    /// Its outcome while it waits behind a failure (clause 31): `wait`, `bury`, `cancel` or `park`.
    Behind,
    /// A coalescing name (clause 29), not empty: an exclusive key of the message, in front of its
    /// others. The put replaces the payload of the newest message with this name, unless that is
    /// leased. With `BARRIER` or `DEDUP` it is `BADARG`.
    Coalesce,
    /// µs from the last put of its name until the message takes its place (clause 29). Without
    /// `COALESCE`, or with `DELAY`, it is `BADARG`.
    Debounce,
    /// µs from the first put of its name on, beyond which no `DEBOUNCE` delays the message. Without
    /// `DEBOUNCE` it is `BADARG`.
    Within,
    /// Its run (clause 30), `N:LABEL`, N from 2 to {MAX_BATCH}: a consumer that takes runs may be
    /// leased up to N - 1 following messages with it.
    Run,
    /// Maximum number of attempts; 0 for no limit (clause 10).
    Attempts,
    /// First backoff, µs.
    First,
    /// Factor by which each further backoff is longer, in thousandths, 1000 or more.
    Factor,
    /// Longest backoff, µs.
    Longest,
    /// `1` or `0`.
    Jitter,
    /// `dead` or `hold`.
    Then,
    /// Of `il1_restore` only, with `COALESCE`: how often the payload was replaced.
    Revision,
}

impl MessageOption {
    pub const ALL: [MessageOption; 22] = [
        MessageOption::Priority,
        MessageOption::Delay,
        MessageOption::Dedup,
        MessageOption::After,
        MessageOption::Window,
        MessageOption::Barrier,
        MessageOption::Result,
        MessageOption::Quiet,
        MessageOption::Limit,
        MessageOption::Group,
        MessageOption::Behind,
        MessageOption::Coalesce,
        MessageOption::Debounce,
        MessageOption::Within,
        MessageOption::Run,
        MessageOption::Attempts,
        MessageOption::First,
        MessageOption::Factor,
        MessageOption::Longest,
        MessageOption::Jitter,
        MessageOption::Then,
        MessageOption::Revision,
    ];
    /// All of them, as text.
    pub const TOLD: &'static str =
        "PRIORITY, DELAY, DEDUP, AFTER, WINDOW, BARRIER, RESULT, QUIET, LIMIT, \
GROUP, BEHIND, COALESCE, DEBOUNCE, WITHIN, RUN, ATTEMPTS, FIRST, \
FACTOR, LONGEST, JITTER, THEN or REVISION";

    pub fn name(self) -> &'static str {
        match self {
            MessageOption::Priority => "PRIORITY",
            MessageOption::Delay => "DELAY",
            MessageOption::Dedup => "DEDUP",
            MessageOption::After => "AFTER",
            MessageOption::Window => "WINDOW",
            MessageOption::Barrier => "BARRIER",
            MessageOption::Result => "RESULT",
            MessageOption::Quiet => "QUIET",
            MessageOption::Limit => "LIMIT",
            MessageOption::Group => "GROUP",
            MessageOption::Behind => "BEHIND",
            MessageOption::Coalesce => "COALESCE",
            MessageOption::Debounce => "DEBOUNCE",
            MessageOption::Within => "WITHIN",
            MessageOption::Run => "RUN",
            MessageOption::Attempts => "ATTEMPTS",
            MessageOption::First => "FIRST",
            MessageOption::Factor => "FACTOR",
            MessageOption::Longest => "LONGEST",
            MessageOption::Jitter => "JITTER",
            MessageOption::Then => "THEN",
            MessageOption::Revision => "REVISION",
        }
    }

    pub fn of_name(name: &[u8]) -> Option<MessageOption> {
        Some(match name {
            b"PRIORITY" => MessageOption::Priority,
            b"DELAY" => MessageOption::Delay,
            b"DEDUP" => MessageOption::Dedup,
            b"AFTER" => MessageOption::After,
            b"WINDOW" => MessageOption::Window,
            b"BARRIER" => MessageOption::Barrier,
            b"RESULT" => MessageOption::Result,
            b"QUIET" => MessageOption::Quiet,
            b"LIMIT" => MessageOption::Limit,
            b"GROUP" => MessageOption::Group,
            b"BEHIND" => MessageOption::Behind,
            b"COALESCE" => MessageOption::Coalesce,
            b"DEBOUNCE" => MessageOption::Debounce,
            b"WITHIN" => MessageOption::Within,
            b"RUN" => MessageOption::Run,
            b"ATTEMPTS" => MessageOption::Attempts,
            b"FIRST" => MessageOption::First,
            b"FACTOR" => MessageOption::Factor,
            b"LONGEST" => MessageOption::Longest,
            b"JITTER" => MessageOption::Jitter,
            b"THEN" => MessageOption::Then,
            b"REVISION" => MessageOption::Revision,
            _ => return None,
        })
    }
}

impl MessageOption {
    /// Returns the least and the most of one that is a number; of another both are 0.
    pub fn range(self) -> (i64, u64) {
        match self {
            MessageOption::Priority => (-100, 100),
            MessageOption::Delay => (0, MAX_SPAN),
            MessageOption::Dedup => (0, 0),
            MessageOption::After => (0, 0),
            MessageOption::Window => (0, MAX_SPAN),
            MessageOption::Barrier => (0, 1),
            MessageOption::Result => (0, MAX_SPAN),
            MessageOption::Quiet => (0, 1),
            MessageOption::Limit => (0, 0),
            MessageOption::Group => (0, 0),
            MessageOption::Behind => (0, 0),
            MessageOption::Coalesce => (0, 0),
            MessageOption::Debounce => (1, MAX_SPAN),
            MessageOption::Within => (1, MAX_SPAN),
            MessageOption::Run => (0, 0),
            MessageOption::Attempts => (0, MAX_COUNT),
            MessageOption::First => (0, MAX_SPAN),
            MessageOption::Factor => (1000, MAX_COUNT),
            MessageOption::Longest => (0, MAX_SPAN),
            MessageOption::Jitter => (0, 1),
            MessageOption::Then => (0, 0),
            MessageOption::Revision => (0, MAX_COUNT),
        }
    }
}

/// A queue's options, in the units of the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Maximum number of unsettled messages, including leased ones; 0 for no bound (clause 11).
    pub max_size: u64,
    /// Maximum bytes of their payloads; 0 for no bound.
    pub max_bytes: u64,
    /// Maximum number of dead letters.
    pub max_dead: u64,
    /// µs for which a dedup string stays known after its message is settled.
    pub window: u64,
    /// Maximum number of attempts; 0 for no limit (clause 10). `None`: for ever.
    pub attempts: Option<u32>,
    /// First backoff, µs.
    pub first: u64,
    /// Factor by which each further backoff is longer, in thousandths, 1000 or more.
    pub factor: u64,
    /// Longest backoff, µs.
    pub longest: u64,
    /// `1` or `0`.
    pub jitter: bool,
    /// `dead` or `hold`.
    pub then: Then,
    /// Maximum bytes of kept results; the oldest are dropped first.
    pub results: u64,
    /// On a hub with a journal: `always` (on disk before a call is answered), `everysec` (on disk
    /// within a second) or `none` (not stored); on Redis `server`, the server's setting.
    pub durability: Durability,
    /// µs for which a dead letter is kept; 0 for no limit. `None`: without limit.
    pub dead_ttl: Option<u64>,
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

impl Declared {
    pub fn default_of(durability: Durability) -> Self {
        Declared {
            max_size: 0,
            max_bytes: 0,
            max_dead: 10_000,
            window: 300_000_000,
            attempts: Some(5),
            first: 1_000_000,
            factor: 2000,
            longest: 60_000_000,
            jitter: true,
            then: Then::Dead,
            results: 67_108_864,
            durability,
            dead_ttl: Some(2_592_000_000_000),
            limits: Limits::default(),
            weights: Weights::default(),
            behind: Behind::Wait,
        }
    }

    /// Returns them in the form of the scheduler.
    pub fn options(&self) -> Options {
        Options {
            lease: None,
            retry: self.retry(),
            max_messages: self.max_size as usize,
            max_bytes: self.max_bytes,
            max_dead: self.max_dead as usize,
            dedup_window: self.window,
            dead_ttl: self.dead_ttl.unwrap_or(0),
            limits: self.limits.clone(),
            weights: self.weights.clone(),
            behind: self.behind,
        }
    }

    /// The version of a queue's dump that the newest option came with.
    pub const NEWEST: u8 = 6;

    /// Appends the options that are not in the first version of a dump.
    pub fn dump_added(&self, out: &mut Vec<u8>) {
        number(out, self.dead_ttl.unwrap_or(0));
        bytes::string(out, &self.limits.bytes());
        bytes::string(out, &self.weights.bytes());
        out.push(self.behind as u8);
    }

    /// Reads those that a dump of this version has.
    pub fn restore_added(
        &mut self,
        from: &mut bytes::Reader<'_>,
        version: u8,
    ) -> Result<(), Damaged> {
        if version >= 3 {
            self.dead_ttl = Some(from.number("DEAD_TTL")?).filter(|&value| value > 0);
        }
        if version >= 4 {
            self.limits = Limits::restored(from, "LIMITS")?;
        }
        if version >= 5 {
            self.weights = Weights::restored(from, "WEIGHTS")?;
        }
        if version >= 6 {
            self.behind = Behind::restored(from, "BEHIND")?;
        }
        Ok(())
    }

    /// Reads the value of an option.
    pub fn read<A: Args + ?Sized>(
        &mut self,
        option: QueueOption,
        from: &mut Reader<'_, A>,
        what: impl What,
    ) -> Read<()> {
        match option {
            QueueOption::MaxSize => self.max_size = from.natural(0, MAX_COUNT, what)?,
            QueueOption::MaxBytes => self.max_bytes = from.natural(0, MAX_SPAN, what)?,
            QueueOption::MaxDead => self.max_dead = from.natural(0, MAX_COUNT, what)?,
            QueueOption::Window => self.window = from.natural(0, MAX_SPAN, what)?,
            QueueOption::Attempts => {
                self.attempts =
                    Some(from.natural(0, MAX_COUNT, what)? as u32).filter(|&value| value > 0)
            }
            QueueOption::First => self.first = from.natural(0, MAX_SPAN, what)?,
            QueueOption::Factor => self.factor = from.natural(1000, MAX_COUNT, what)?,
            QueueOption::Longest => self.longest = from.natural(0, MAX_SPAN, what)?,
            QueueOption::Jitter => self.jitter = from.natural(0, 1, what)? == 1,
            QueueOption::Then => self.then = Then::read(from, what)?,
            QueueOption::Results => self.results = from.natural(0, MAX_SPAN, what)?,
            QueueOption::Durability => self.durability = Durability::read(from, what)?,
            QueueOption::DeadTtl => {
                self.dead_ttl = Some(from.natural(0, MAX_SPAN, what)?).filter(|&value| value > 0)
            }
            QueueOption::Limits => self.limits = read_limits(from, what)?,
            QueueOption::Weights => self.weights = read_weights(from, what)?,
            QueueOption::Behind => self.behind = Behind::read(from, what)?,
        }
        Ok(())
    }

    /// Returns the value of an option as text; names in it are any bytes.
    pub fn told(&self, option: QueueOption) -> Vec<u8> {
        let text = match option {
            QueueOption::MaxSize => self.max_size.to_string(),
            QueueOption::MaxBytes => self.max_bytes.to_string(),
            QueueOption::MaxDead => self.max_dead.to_string(),
            QueueOption::Window => self.window.to_string(),
            QueueOption::Attempts => self.attempts.unwrap_or(0).to_string(),
            QueueOption::First => self.first.to_string(),
            QueueOption::Factor => self.factor.to_string(),
            QueueOption::Longest => self.longest.to_string(),
            QueueOption::Jitter => u8::from(self.jitter).to_string(),
            QueueOption::Then => self.then.name().to_owned(),
            QueueOption::Results => self.results.to_string(),
            QueueOption::Durability => self.durability.name().to_owned(),
            QueueOption::DeadTtl => self.dead_ttl.unwrap_or(0).to_string(),
            QueueOption::Limits => return self.limits.bytes(),
            QueueOption::Weights => return self.weights.bytes(),
            QueueOption::Behind => self.behind.name().to_owned(),
        };
        text.into_bytes()
    }
}
