//! The subscriptions: who is subscribed to what.
//!
//! The directory is shared: for each topic how many receive it and on which workers, so that a
//! publish is answered with a number and visits those workers alone. Only a worker knows which of
//! its connections they are, without a lock. There is no cache of topics to invalidate.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use hashbrown::hash_map::{Entry, EntryRef};
use hashbrown::HashMap;
use parking_lot::RwLock;
use std::hash::RandomState;

use crate::glob;

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
    patterns: RwLock<Patterns>,
    /// Spares most publishes the lock.
    pattern_count: AtomicUsize,
}

/// Patterns by the literal bytes they begin with: a topic is compared with those alone whose
/// beginning it shares.
#[derive(Default)]
struct Patterns {
    by_prefix: HashMap<Box<[u8]>, Vec<(Name, Interest)>, RandomState>,
    /// The place of each among those of its prefix: thousands may begin alike.
    places: Names<usize>,
    /// The number of prefixes of each length.
    lengths: BTreeMap<usize, usize>,
}

/// Bytes that a subscription takes, about, wherever its name is kept.
pub fn weight(kind: SubscriptionKind, name: &[u8]) -> usize {
    match kind {
        // Its literal beginning is kept once more.
        SubscriptionKind::Pattern => OF_A_PATTERN + name.len() + glob::literal_prefix(name),
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
                self.patterns.write().join(name, &self.pattern_count, join)
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
            return self.patterns.write().leave(name, &self.pattern_count, leave);
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
        let patterns = self.patterns.read();
        for &length in patterns.lengths.keys().take_while(|&&length| length <= topic.len()) {
            let Some(bucket) = patterns.by_prefix.get(&topic[..length]) else { continue };
            for (pattern, interest) in bucket {
                if glob::matches(&pattern[length..], &topic[length..])
                    || (length == topic.len() && glob::matches(pattern, topic))
                {
                    each(pattern, *interest);
                }
            }
        }
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
                patterns.by_prefix.values().flatten().map(|(name, it)| of((name, it))).collect()
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

impl Patterns {
    fn join(&mut self, name: &Name, count: &AtomicUsize, join: impl FnOnce(&mut Interest)) {
        let prefix = &name[..glob::literal_prefix(name)];
        let bucket = match self.by_prefix.entry_ref(prefix) {
            EntryRef::Occupied(entry) => entry.into_mut(),
            EntryRef::Vacant(entry) => {
                *self.lengths.entry(prefix.len()).or_default() += 1;
                entry.insert(Vec::new())
            }
        };
        if let Some(&at) = self.places.get(name) {
            return join(&mut bucket[at].1);
        }
        let mut interest = Interest::default();
        join(&mut interest);
        self.places.insert(name.clone(), bucket.len());
        bucket.push((name.clone(), interest));
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(
        &mut self,
        name: &[u8],
        count: &AtomicUsize,
        leave: impl FnOnce(&mut Interest) -> bool,
    ) {
        let prefix = &name[..glob::literal_prefix(name)];
        let EntryRef::Occupied(mut entry) = self.by_prefix.entry_ref(prefix) else { return };
        let bucket = entry.get_mut();
        let Some(&at) = self.places.get(name) else { return };
        if !leave(&mut bucket[at].1) {
            return;
        }
        self.places.remove(name);
        bucket.swap_remove(at);
        if let Some((moved, _)) = bucket.get(at) {
            *self.places.get_mut(moved).expect("each pattern has its place") = at;
        }
        count.fetch_sub(1, Ordering::Relaxed);
        if bucket.is_empty() {
            entry.remove();
            let left = self.lengths.get_mut(&prefix.len()).expect("it was counted");
            *left -= 1;
            if *left == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
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
    fn the_pattern_index_finds_what_comparing_each_pattern_would() {
        let mut random = fastrand::Rng::with_seed(7);
        let directory = Directory::default();
        let mut all: Vec<Name> = Vec::new();
        for round in 0..4_000 {
            let mut string = |from: &[u8], most: usize| -> Vec<u8> {
                (0..random.usize(0..=most)).map(|_| from[random.usize(0..from.len())]).collect()
            };
            let (pattern, topic) = (string(b"aab*?[]\\", 5), string(b"ab*", 5));
            let leaves = round % 3 == 0 && !all.is_empty();
            if leaves {
                let name = all.swap_remove(round % all.len());
                directory.leave(SubscriptionKind::Pattern, &name, 1, true);
            } else if !all.iter().any(|name| **name == *pattern) {
                all.push(Name::from(pattern));
                directory.join(SubscriptionKind::Pattern, all.last().unwrap(), 1);
            }
            let mut found: Vec<Vec<u8>> = Vec::new();
            directory.matching(&topic, |name, _| found.push(name.to_vec()));
            let naive = all.iter().filter(|name| glob::matches(name, &topic));
            let mut expected: Vec<Vec<u8>> = naive.map(|name| name.to_vec()).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "topic {topic:?}");
            assert_eq!(directory.pattern_count(), all.len());
        }
    }

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
