// Made by `make generate` from wire/: change that.

//! The limits of keys, and the defaults of a queue, in one process as on an engine.

/// Keys of one message.
pub const MAX_KEYS: usize = 4096;

/// Bytes of a key; the minimum is one.
pub const MAX_KEY_BYTES: usize = 1024;

/// Bytes of a dedup string, of a consumer's name, of the error in an event.
pub const MAX_TEXT: usize = 1024;

/// Names of concurrency limits of one message.
pub const MAX_LIMIT_NAMES: usize = 8;

/// Messages of a group's turn.
pub const MAX_WEIGHT: u32 = 1000;

/// Keys of each kind in an event.
pub const MAX_EVENT_KEYS: usize = 16;

/// Bytes of these keys, of each kind.
pub const MAX_EVENT_KEY_BYTES: usize = 1024;

/// Keys and holders that an explanation names beyond the message asked for.
pub const MAX_NAMED: usize = 10_000;

/// Bytes of these keys.
pub const MAX_NAMED_BYTES: usize = 1_048_576;

/// Messages, leases and paused keys that one call examines to find what blocks others.
pub const MAX_ROOTS: usize = 1000;

/// Limit names with waiting messages among which one call finds those with most.
pub const MAX_AWAITED: usize = 1000;

/// Places in lanes that one call examines to count them.
pub const MAX_PLACES: usize = 10_000;

/// Messages of each kind behind which the oldest waiting message is searched.
pub const MAX_FRONT: usize = 100;

/// The defaults of a queue's options, in the units of the wire.
pub mod default {
    /// Maximum number of unsettled messages, including leased ones; 0 for no bound (clause 11).
    pub const MAXSIZE: u64 = 0;
    /// Maximum bytes of their payloads; 0 for no bound.
    pub const MAXBYTES: u64 = 0;
    /// Maximum number of dead letters.
    pub const MAXDEAD: u64 = 10_000;
    /// µs for which a dedup string stays known after its message is settled.
    pub const WINDOW: u64 = 300_000_000;
    /// Maximum number of attempts; 0 for no limit (clause 10).
    pub const ATTEMPTS: u64 = 5;
    /// First backoff, µs.
    pub const FIRST: u64 = 1_000_000;
    /// Factor by which each further backoff is longer, in thousandths, 1000 or more.
    pub const FACTOR: u64 = 2000;
    /// Longest backoff, µs.
    pub const LONGEST: u64 = 60_000_000;
    /// `1` or `0`.
    pub const JITTER: bool = true;
    /// µs for which a dead letter is kept; 0 for no limit.
    pub const DEAD_TTL: u64 = 2_592_000_000_000;
}
