//! Dead letters (clause 10): out of their lanes, kept with all that is known of them, bounded.
//!
//! ```
//! use interlock_core::queue::{scheduler::Put, types::Options, Queue};
//!
//! let queue = Queue::new(Options::default());
//! queue.put(&Put::default(), "mail").unwrap();
//! let (grant, _) = queue.get(|_, _| ()).unwrap();
//! queue.call(|scheduler, now| scheduler.reject(now, grant.handle, "no such room")).unwrap();
//! queue.call(|scheduler, now| {
//!     let dead = scheduler.dead_letters(now, 10).next().unwrap();
//!     assert_eq!((dead.payload, dead.attempts, &dead.error[..]), ("mail", 1, "no such room"));
//! });
//! ```

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::key::Key;
use crate::queue::types::{RetryPart, Time};

/// A message that was given up.
#[derive(Debug)]
pub struct Dead<P> {
    pub id: u64,
    /// Keys in the order the put named them, with whether they were shared.
    pub keys: Vec<(Key, bool)>,
    pub attempts: u32,
    pub error: String,
    /// The part of the retry policy that its put named.
    pub retry: Option<RetryPart>,
    pub priority: i8,
    pub barrier: bool,
    pub quiet: bool,
    pub size: u64,
    pub put_at: Time,
    pub died_at: Time,
    pub payload: P,
}

#[derive(Debug)]
pub(super) struct DeadLetters<P> {
    /// By the order in which they died.
    letters: BTreeMap<u64, Dead<P>>,
    order_of: HashMap<u64, u64, std::hash::RandomState>,
    next: u64,
    most: usize,
    /// For how many µs one is kept; 0: without limit.
    ttl: u64,
    /// The time at which the oldest has been kept for long enough; `Time::MAX`: never.
    due: Time,
    /// Payloads of those that were too old, for whoever drops them outside the lock.
    expired: Vec<P>,
    /// Of their last errors.
    bytes: usize,
}

/// Bytes that a dead letter takes beside its payload, keys and error.
const OF_A_LETTER: usize = 160;

impl<P> DeadLetters<P> {
    pub fn new(most: usize, ttl: u64) -> Self {
        DeadLetters {
            letters: BTreeMap::new(),
            order_of: HashMap::default(),
            next: 0,
            most,
            ttl,
            due: Time::MAX,
            expired: Vec::new(),
            bytes: 0,
        }
    }

    /// Bytes of what is known of them, but for payloads and keys.
    pub fn bytes(&self) -> usize {
        self.letters.len() * OF_A_LETTER + self.bytes
    }

    pub fn full(&self) -> bool {
        self.letters.len() >= self.most
    }

    pub fn len(&self) -> usize {
        self.letters.len()
    }

    pub fn push(&mut self, dead: Dead<P>) {
        self.order_of.insert(dead.id, self.next);
        self.bytes += dead.error.len();
        self.letters.insert(self.next, dead);
        self.next += 1;
        self.note_due();
    }

    pub fn get(&self, id: u64) -> Option<&Dead<P>> {
        self.letters.get(self.order_of.get(&id)?)
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut Dead<P>> {
        self.letters.get_mut(self.order_of.get(&id)?)
    }

    pub fn remove(&mut self, id: u64) -> Option<Dead<P>> {
        let order = self.order_of.remove(&id)?;
        let dead = self.letters.remove(&order)?;
        self.bytes -= dead.error.len();
        self.note_due();
        Some(dead)
    }

    pub fn set_bounds(&mut self, most: usize, ttl: u64) {
        (self.most, self.ttl) = (most, ttl);
        self.note_due();
    }

    /// The time at which the oldest goes; `Time::MAX`: never.
    #[inline]
    pub fn due(&self) -> Time {
        self.due
    }

    /// Takes out those that were kept for long enough, the oldest first and at most `limit`; how many.
    pub fn expire(&mut self, now: Time, limit: u32) -> u32 {
        let mut count = 0;
        while count < limit && self.due <= now {
            let Some(id) = self.letters.values().next().map(|dead| dead.id) else { break };
            let dead = self.remove(id);
            self.expired.extend(dead.map(|dead| dead.payload));
            count += 1;
        }
        count
    }

    pub fn has_expired(&self) -> bool {
        !self.expired.is_empty()
    }

    /// Payloads of those that were too old, since this was last asked.
    pub fn take_expired(&mut self) -> Vec<P> {
        std::mem::take(&mut self.expired)
    }

    pub fn expired(&self) -> &[P] {
        &self.expired
    }

    fn note_due(&mut self) {
        let first = self.letters.values().next().filter(|_| self.ttl > 0);
        self.due = first.map_or(Time::MAX, |dead| dead.died_at.saturating_add(self.ttl));
    }

    /// Those that died after this one; `None`: there is no such dead letter.
    pub fn after(&self, id: u64) -> Option<impl Iterator<Item = &Dead<P>>> {
        let order = *self.order_of.get(&id)?;
        Some(self.letters.range(order + 1..).map(|(_, dead)| dead))
    }

    /// Those that died before this one, the newest first; `None`: there is no such dead letter.
    pub fn before(&self, id: u64) -> Option<impl Iterator<Item = &Dead<P>>> {
        let order = *self.order_of.get(&id)?;
        Some(self.letters.range(..order).rev().map(|(_, dead)| dead))
    }

    /// Oldest dead first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Dead<P>> {
        self.letters.values()
    }
}
