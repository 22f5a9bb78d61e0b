// Made by `make generate` from wire/: change that.

//! The limits of what one call may ask for: each bounds how long it holds a queue up.

/// Keys of one message.
pub const MAX_KEYS: u64 = 4096;

/// Bytes of a key; the minimum is one.
pub const MAX_KEY_BYTES: usize = 1024;

/// Bytes of a payload, and of a result.
pub const MAX_PAYLOAD: usize = 1_048_576;

/// Messages of one put or one lease, settlements of one call.
pub const MAX_BATCH: usize = 1024;

/// Keys of one put or one lease, all its messages together.
pub const MAX_BATCH_KEYS: usize = 4096;

/// Bytes of a message's run: a number and a label.
pub const MAX_RUN: usize = 261;

/// Pairs of name and value of one message.
pub const MAX_OPTIONS: u64 = 24;

/// Bytes of a dedup string, of a consumer's name, of the error in an event.
pub const MAX_TEXT: usize = 1024;

/// Bytes of the concurrency limits of a queue.
pub const MAX_LIMITS: usize = 16_384;

/// Names of concurrency limits of one message.
pub const MAX_LIMIT_NAMES: usize = 8;

/// Bytes of an error or reason.
pub const MAX_ERROR: usize = 4096;

/// Bytes of the errors of all attempts that are stored for a message.
pub const MAX_HISTORY: usize = 16_384;

/// Bytes of a queue's name, of a worker's.
pub const MAX_NAME: usize = 512;

/// µs, maximum of a duration: 31 years, so that now plus a duration stays below 2⁵³.
pub const MAX_SPAN: u64 = 1_000_000_000_000_000;

/// µs since 1970, maximum for messages restored from another queue: the year 2096.
pub const MAX_TIME: u64 = 4_000_000_000_000_000;

/// Maximum number of attempts, messages, dead letters.
pub const MAX_COUNT: u64 = 1_000_000_000;

/// Maximum of an id, a token, a call number: Lua cannot represent larger integers.
pub const MAX_NUMBER: u64 = 9_007_199_254_740_991;

/// Messages that one purge settles or drops; fewer with more than MAX_BATCH_KEYS keys.
pub const MAX_PURGED: usize = 1000;

/// Bytes of payloads and keys after which a call returns no further message or dead letter, and
/// of payloads after which a lease includes no further message.
pub const MAX_TOLD: usize = 1_048_576;

/// Events that a queue keeps while somebody watches.
pub const MAX_EVENTS: usize = 4096;

/// Bytes of consumers, errors and keys after which a call returns no further event.
pub const MAX_EVENT_BYTES: usize = 262_144;

/// µs for which one call registers a watcher.
pub const MAX_WATCH: u64 = 60_000_000;

/// Workers announced at a queue.
pub const MAX_WORKERS: usize = 10_000;

/// Bytes of a worker's announcement.
pub const MAX_ANNOUNCED: usize = 65_536;

/// Bytes of a request to a worker.
pub const MAX_ASKED: usize = 4096;

/// Requests that wait for one worker; beyond it the oldest is dropped.
pub const MAX_REQUESTS: usize = 16;

/// Messages that one call counts behind others.
pub const MAX_WALKED: u64 = 2000;

/// Names of queues that one call examines.
pub const LISTED: usize = 1000;

/// Names of queues up to which a call without a cursor returns all.
pub const MAX_LISTED: usize = 10_000;

/// µs for which a consumer's last reply is kept.
pub const KEPT_REPLY: u64 = 300_000_000;

/// Bytes of the replies that one queue keeps whole; beyond it leases are kept in short form,
/// the oldest first.
pub const MAX_KEPT_BYTES: usize = 16_777_216;

/// Replies of calls without effect that one queue keeps.
pub const MAX_LIGHT: usize = 1024;

/// Approximate bytes of a non-empty queue that becomes durable: one record must hold all of it.
pub const MAX_STATE: u64 = 1_073_741_824;
