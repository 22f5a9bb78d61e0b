//! Delayed messages, which have no place yet (clause 12).

use hashbrown::HashMap;

use crate::key::Key;
use crate::queue::parts::index::table;
use crate::queue::parts::timers::{Due, Timers};
use crate::queue::types::Time;

/// The keys of a message that is in no lane: delayed or parked.
#[derive(Debug, Default)]
pub struct DelayedKeys {
    pub keys: Vec<Key>,
    pub shared: Vec<Key>,
}

impl DelayedKeys {
    /// Its keys, with whether they are shared.
    pub fn all(&self) -> Vec<(Key, bool)> {
        let exclusive = self.keys.iter().map(|key| (key.clone(), false));
        exclusive.chain(self.shared.iter().map(|key| (key.clone(), true))).collect()
    }

    pub fn has(&self, key: &[u8]) -> bool {
        self.keys.iter().chain(&self.shared).any(|one| one.as_bytes() == key)
    }

    pub fn count(&self) -> usize {
        self.keys.len() + self.shared.len()
    }
}

#[derive(Debug, Default)]
pub struct Delays {
    timers: Timers,
    /// The keys of delayed messages by id.
    keys: HashMap<u64, DelayedKeys, std::hash::RandomState>,
}

/// Bytes of the two lists of a delayed message's keys.
const LISTS: usize = 32;

impl Delays {
    /// A message waits; `moved` tells each owner its place among the timers.
    pub fn insert(&mut self, due: Due, keys: DelayedKeys, moved: impl FnMut(u32, u32)) {
        self.keys.insert(due.id, keys);
        self.timers.insert(due, moved);
    }

    /// Removes the message at an index of the timers.
    pub fn remove(&mut self, timer: u32, moved: impl FnMut(u32, u32)) -> DelayedKeys {
        let due = self.timers.remove(timer, moved);
        let keys = self.keys.remove(&due.id).expect("a delayed message's keys");
        if self.keys.len() * 8 < self.keys.capacity() && self.keys.capacity() > 1024 {
            self.keys.shrink_to(self.keys.len() * 2);
        }
        keys
    }

    /// The message at a place among the timers is due at another time.
    pub fn change(&mut self, timer: u32, at: Time, mut moved: impl FnMut(u32, u32)) {
        let due = self.timers.remove(timer, &mut moved);
        self.timers.insert(Due { at, ..due }, moved);
    }

    /// A delayed message's keys, for explanations and for what is handed back; with whether shared.
    pub fn keys_of(&self, id: u64) -> Vec<(Key, bool)> {
        self.keys.get(&id).map_or_else(Vec::new, DelayedKeys::all)
    }

    /// Returns whether a message is delayed and has a key.
    pub fn has_key(&self, id: u64, key: &[u8]) -> bool {
        self.keys.get(&id).is_some_and(|delayed| delayed.has(key))
    }

    /// Counts the keys of a message, if it is delayed.
    pub fn key_count(&self, id: u64) -> Option<usize> {
        self.keys.get(&id).map(DelayedKeys::count)
    }

    #[inline]
    pub fn first(&self) -> Option<&Due> {
        self.timers.first()
    }

    /// The time at which the message at a place among the timers is due.
    pub fn at(&self, timer: u32) -> Option<Time> {
        self.timers.at(timer)
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.timers.iter().map(|due| due.id)
    }

    pub fn bytes(&self) -> usize {
        let keys = table::<(u64, DelayedKeys)>(self.keys.capacity()) + self.keys.len() * LISTS;
        self.timers.bytes() + keys
    }
}
