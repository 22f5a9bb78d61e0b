//! Events of messages, noted for watchers. Without watchers nothing is noted, at the cost of one comparison.
//!
//! ```
//! use interlock_core::queue::parts::feed::Change;
//! use interlock_core::queue::scheduler::{Put, Scheduler};
//! use interlock_core::queue::types::Options;
//!
//! let mut scheduler = Scheduler::by_time(Options::default(), |_: &&str| 0);
//! scheduler.start(1_000);
//! scheduler.feed(true);
//! let id = scheduler.enter(&Put::default(), Some("mail"));
//! let noted: Vec<_> = scheduler.noted().map(|one| (one.change, one.id)).collect();
//! assert_eq!(noted, [(Change::Put, id)]);
//! ```

use crate::key::Key;
use crate::limits::{MAX_EVENT_KEYS, MAX_EVENT_KEY_BYTES};
use crate::queue::scheduler::Scheduler;

/// A step in the life of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Put,
    /// A put has replaced its payload.
    Replaced,
    /// Its delay or backoff is over.
    Due,
    Lease,
    Ack,
    Release,
    Defer,
    /// Its lease ran out.
    LeaseExpired,
    /// An attempt failed, and it will be retried.
    Retry,
    Dead,
    Hold,
    /// An operator has readied it.
    Readied,
    Skip,
    Cancel,
    /// A message had expired when its turn came.
    MessageExpired,
    /// It has no place until a key is open.
    Parked,
    /// Parked before, it took new places.
    Returned,
}

impl Change {
    pub fn name(self) -> &'static str {
        match self {
            Change::Put => "put",
            Change::Replaced => "replaced",
            Change::Due => "due",
            Change::Lease => "lease",
            Change::Ack => "ack",
            Change::Release => "release",
            Change::Defer => "defer",
            Change::LeaseExpired => "lease_expired",
            Change::Retry => "retry",
            Change::Dead => "dead",
            Change::Hold => "hold",
            Change::Readied => "readied",
            Change::Skip => "skip",
            Change::Cancel => "cancel",
            Change::MessageExpired => "message_expired",
            Change::Parked => "parked",
            Change::Returned => "returned",
        }
    }
}

/// One change, with what is known of its message.
#[derive(Debug)]
pub struct Noted {
    pub change: Change,
    pub id: u64,
    /// The attempt that ended or is under way; of one that is not leased, the next.
    pub attempt: u32,
    /// Token of the lease that begins or ends with it, or 0.
    pub token: u64,
    /// Consumer of a lease that begins.
    pub consumer: u64,
    /// Error of a failed attempt.
    pub error: Box<str>,
    /// The first of its keys, exclusive ones before shared ones.
    pub keys: Vec<(Key, bool)>,
}

/// The changes noted since they were last taken.
#[derive(Debug, Default)]
pub(in crate::queue) struct Feed {
    on: bool,
    noted: Vec<Noted>,
    /// The token of the lease that ended last, for the events that follow for its message.
    pub ended: u64,
}

impl Feed {
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on
    }

    pub fn count(&self) -> usize {
        self.noted.len()
    }

    /// Sorts the events after the first `count` by id: they came in no order.
    pub fn sort_from(&mut self, count: usize) {
        self.noted[count..].sort_unstable_by_key(|noted| noted.id);
    }
}

impl<P> Scheduler<P> {
    /// From now on, or no longer, changes are noted.
    pub fn feed(&mut self, on: bool) {
        self.feed = Feed { on, ..Feed::default() };
    }

    #[inline]
    pub fn has_noted(&self) -> bool {
        !self.feed.noted.is_empty()
    }

    /// The changes noted since this was last asked.
    pub fn noted(&mut self) -> std::vec::Drain<'_, Noted> {
        self.feed.noted.drain(..)
    }

    #[inline]
    pub(in crate::queue) fn note(&mut self, change: Change, at: u32, token: u64) {
        if self.feed.on {
            self.note_change(change, at, token, 0, "");
        }
    }

    /// Notes that a message was leased.
    #[inline]
    pub(in crate::queue) fn note_lease(&mut self, at: u32, token: u64, consumer: u64) {
        if self.feed.on {
            self.note_change(Change::Lease, at, token, consumer, "");
        }
    }

    /// Notes a change with this token and error.
    pub(in crate::queue) fn note_told(&mut self, change: Change, at: u32, token: u64, error: &str) {
        if self.feed.on {
            self.note_change(change, at, token, 0, error);
        }
    }

    /// An attempt failed, by the lease that ended last.
    #[inline]
    pub(in crate::queue) fn note_failure(&mut self, change: Change, at: u32, error: &str) {
        if self.feed.on {
            self.note_change(change, at, self.feed.ended, 0, error);
        }
    }

    #[cold]
    fn note_change(&mut self, change: Change, at: u32, token: u64, consumer: u64, error: &str) {
        let (id, attempt) = (self.records[at].id, self.records.attempt(at));
        let mut keys: Vec<(Key, bool)> = Vec::new();
        let mut sorts = [(0, 0); 2];
        let mut take = |key: &[u8], shared: bool| {
            let (count, bytes) = &mut sorts[usize::from(shared)];
            if *count < MAX_EVENT_KEYS && *bytes + key.len() <= MAX_EVENT_KEY_BYTES {
                *count += 1;
                *bytes += key.len();
                keys.push((Key::new(key), shared));
            } else {
                // Further keys are not reported either.
                *count = MAX_EVENT_KEYS;
            }
        };
        self.each_key(at, &mut take);
        let error = error.into();
        self.feed.noted.push(Noted { change, id, attempt, token, consumer, error, keys });
    }
}
