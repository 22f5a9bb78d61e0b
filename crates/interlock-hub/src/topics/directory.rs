//! The subscriptions: who is subscribed to what.
//!
//! The directory is shared: for each topic how many receive it and on which workers, so that a
//! publish is answered with a number and visits those workers alone. Only a worker knows which of
//! its connections they are, without a lock. There is no cache of topics to invalidate.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use hashbrown::hash_map::{Entry, EntryRef};
use hashbrown::HashMap;
use parking_lot::RwLock;
use std::hash::RandomState;

use crate::topics::patterns::Patterns;

/// A topic's or pattern's name, one copy for all who are subscribed to it on one worker.
pub type Name = Arc<[u8]>;
type Names<V> = HashMap<Name, V, RandomState>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubscriptionKind {
    Topic,
    Pattern,
    Shard,
    /// The lines that MONITOR shows: no topic, and no name.
    Trace,
}

/// The receivers of something: how many connections, and a bit for each of their workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    pub receivers: u32,
    pub workers: u64,
}

#[derive(Default)]
pub struct Directory {
    hasher: RandomState,
    topics: [RwLock<Names<Interest>>; STRIPES],
    shards: [RwLock<Names<Interest>>; STRIPES],
    patterns: RwLock<Patterns<Interest>>,
    /// Spares most publishes the lock.
    pattern_count: AtomicUsize,
}

/// Bytes that a subscription takes, about, wherever its name is kept.
pub fn weight(kind: SubscriptionKind, name: &[u8]) -> usize {
    match kind {
        // The literal bytes by which it is found are kept once more.
        SubscriptionKind::Pattern => OF_A_PATTERN + 2 * name.len(),
        _ => OF_A_TOPIC + name.len(),
    }
}

const OF_A_TOPIC: usize = 256;
const OF_A_PATTERN: usize = 512;

impl Directory {
    /// One more connection of `worker` is subscribed.
    pub fn join(&self, kind: SubscriptionKind, name: &Name, worker: usize) {
        let join = |interest: &mut Interest| {
            interest.receivers += 1;
            interest.workers |= 1 << worker;
        };
        match kind {
            SubscriptionKind::Pattern => {
                let mut patterns = self.patterns.write();
                join(patterns.entry(name));
                self.pattern_count.store(patterns.len(), Ordering::Relaxed);
            }
            _ => join(self.stripe(kind, name).write().entry(name.clone()).or_default()),
        }
    }

    /// One connection of `worker` less; `last`: it was this worker's only one.
    pub fn leave(&self, kind: SubscriptionKind, name: &[u8], worker: usize, last: bool) {
        let leave = |interest: &mut Interest| {
            interest.receivers -= 1;
            if last {
                interest.workers &= !(1 << worker);
            }
            interest.receivers == 0
        };
        if kind == SubscriptionKind::Pattern {
            let mut patterns = self.patterns.write();
            if patterns.get_mut(name).is_some_and(leave) {
                patterns.remove(name);
                self.pattern_count.store(patterns.len(), Ordering::Relaxed);
            }
            return;
        }
        let mut names = self.stripe(kind, name).write();
        if let EntryRef::Occupied(mut entry) = names.entry_ref(name) {
            if leave(entry.get_mut()) {
                entry.remove();
            }
        }
    }

    pub fn interest(&self, kind: SubscriptionKind, name: &[u8]) -> Interest {
        self.stripe(kind, name).read().get(name).copied().unwrap_or_default()
    }

    /// Calls `each` for every pattern that `topic` matches.
    pub fn matching(&self, topic: &[u8], mut each: impl FnMut(&[u8], Interest)) {
        // Relaxed: who subscribes at this very moment may miss this very message.
        if self.pattern_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.patterns.read().matching(topic, |pattern, interest| each(pattern, *interest));
    }

    pub fn pattern_count(&self) -> usize {
        self.pattern_count.load(Ordering::Relaxed)
    }

    pub fn shard_count(&self) -> usize {
        self.shards.iter().map(|stripe| stripe.read().len()).sum()
    }

    pub fn topic_count(&self) -> usize {
        self.topics.iter().map(|stripe| stripe.read().len()).sum()
    }

    /// Topics that someone receives: those of one part, of `STRIPES`.
    pub fn names(&self, kind: SubscriptionKind, stripe: usize) -> Vec<Name> {
        let stripes = if kind == SubscriptionKind::Shard { &self.shards } else { &self.topics };
        stripes[stripe].read().keys().cloned().collect()
    }

    /// The names of one part, each with how many receive it. Patterns are all in the first.
    pub fn receivers(&self, kind: SubscriptionKind, stripe: usize) -> Vec<(Name, u32)> {
        let of = |(name, interest): (&Name, &Interest)| (name.clone(), interest.receivers);
        match kind {
            SubscriptionKind::Pattern if stripe > 0 => Vec::new(),
            SubscriptionKind::Pattern => {
                let patterns = self.patterns.read();
                patterns.all().map(of).collect()
            }
            SubscriptionKind::Shard => self.shards[stripe].read().iter().map(of).collect(),
            SubscriptionKind::Topic | SubscriptionKind::Trace => {
                self.topics[stripe].read().iter().map(of).collect()
            }
        }
    }

    fn stripe(&self, kind: SubscriptionKind, name: &[u8]) -> &RwLock<Names<Interest>> {
        let stripes = if kind == SubscriptionKind::Shard { &self.shards } else { &self.topics };
        &stripes[(self.hasher.hash_one(name) >> 32) as usize % STRIPES]
    }
}

/// One worker's subscribers, by the slot of their connection.
#[derive(Default)]
pub struct Subscribers {
    kinds: [Names<Vec<u32>>; 3],
}

impl Subscribers {
    /// Returns the name to keep, shared with all who are subscribed here.
    pub fn add(&mut self, kind: SubscriptionKind, name: &[u8], slot: u32) -> Name {
        let name = match self.kinds[kind as usize].get_key_value(name) {
            Some((name, _)) => name.clone(),
            None => Name::from(name),
        };
        self.kinds[kind as usize].entry(name.clone()).or_default().push(slot);
        name
    }

    /// Removes a subscriber; returns whether it was the last one here.
    pub fn remove(&mut self, kind: SubscriptionKind, name: &Name, slot: u32) -> bool {
        let Entry::Occupied(mut entry) = self.kinds[kind as usize].entry(name.clone()) else {
            return false;
        };
        let slots = entry.get_mut();
        if let Some(at) = slots.iter().position(|&other| other == slot) {
            slots.swap_remove(at);
        }
        let last = slots.is_empty();
        if last {
            entry.remove();
        }
        last
    }

    pub fn of(&self, kind: SubscriptionKind, name: &[u8]) -> &[u32] {
        self.kinds[kind as usize].get(name).map_or(&[], |slots| slots)
    }
}

/// Parts of the directory, each with a lock of its own.
pub const STRIPES: usize = 16;

#[cfg(test)]
mod tests {
    use crate::topics::directory::*;

    #[test]
    fn a_topic_is_known_as_long_as_someone_on_some_worker_receives_it() {
        let directory = Directory::default();
        let name = Name::from(&b"t"[..]);
        directory.join(SubscriptionKind::Topic, &name, 0);
        directory.join(SubscriptionKind::Topic, &name, 3);
        directory.join(SubscriptionKind::Topic, &name, 3);
        let interest = directory.interest(SubscriptionKind::Topic, b"t");
        assert_eq!(interest, Interest { receivers: 3, workers: 0b1001 });
        assert_eq!(directory.interest(SubscriptionKind::Shard, b"t"), Interest::default());
        directory.leave(SubscriptionKind::Topic, b"t", 3, false);
        directory.leave(SubscriptionKind::Topic, b"t", 0, true);
        let interest = directory.interest(SubscriptionKind::Topic, b"t");
        assert_eq!(interest, Interest { receivers: 1, workers: 0b1000 });
        directory.leave(SubscriptionKind::Topic, b"t", 3, true);
        assert!(
            (0..STRIPES).all(|stripe| directory.names(SubscriptionKind::Topic, stripe).is_empty())
        );
    }
}
