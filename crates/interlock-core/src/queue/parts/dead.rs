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

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use crate::key::Key;
use crate::queue::types::{Behind, RetryPart, Time};

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
    /// Its limit names, joined.
    pub limit: Vec<u8>,
    /// Its group; empty: none.
    pub group: Vec<u8>,
    /// Its own value of what happens to it behind a failure.
    pub behind: Option<Behind>,
    /// Its run; empty: none.
    pub run: Vec<u8>,
    pub payload: P,
}

impl<P> Dead<P> {
    /// Bytes of its error, its limit names, its group and its run.
    fn texts(&self) -> usize {
        self.error.len() + self.limit.len() + self.group.len() + self.run.len()
    }
}

#[derive(Debug)]
pub(in crate::queue) struct DeadLetters<P> {
    /// The dead letters by the order in which they died.
    letters: BTreeMap<u64, Dead<P>>,
    order_of: HashMap<u64, u64, std::hash::RandomState>,
    /// The same orders by key.
    by_key: BTreeSet<(Key, u64)>,
    next: u64,
    most: usize,
    /// For how many µs one is kept; 0: without limit.
    ttl: u64,
    /// The time at which the oldest was first seen to be too old; `None`: it is not, or was not
    /// checked.
    mark: Option<Time>,
    /// The time of the next look at their age; `Time::MAX`: never.
    look: Time,
    /// Payloads of those that were too old, to be dropped outside the lock.
    expired: Vec<P>,
    /// Bytes of their last errors, limit names, groups and runs.
    bytes: usize,
}

/// µs for which one that is too old stays behind the look that found it so; at most its `ttl`.
const GRACE: Time = 600_000_000;

impl<P> DeadLetters<P> {
    pub fn new(most: usize, ttl: u64) -> Self {
        DeadLetters {
            letters: BTreeMap::new(),
            order_of: HashMap::default(),
            by_key: BTreeSet::new(),
            next: 0,
            most,
            ttl,
            mark: None,
            look: Time::MAX,
            expired: Vec::new(),
            bytes: 0,
        }
    }

    /// Bytes of what is known of them, but for payloads and keys. The nodes of a tree that is filled in order
    /// are about half full, and so is the table of orders at worst.
    pub fn bytes(&self) -> usize {
        let letters = self.letters.len() * size_of::<(u64, Dead<P>, u64, u64)>();
        2 * (letters + self.by_key.len() * size_of::<(Key, u64)>()) + self.bytes
    }

    /// Returns whether there are as many as `maxdead` allows, with `promised` that will be.
    pub fn full(&self, promised: usize) -> bool {
        self.letters.len() + promised >= self.most
    }

    pub fn len(&self) -> usize {
        self.letters.len()
    }

    pub fn push(&mut self, dead: Dead<P>) {
        self.order_of.insert(dead.id, self.next);
        self.by_key.extend(dead.keys.iter().map(|(key, _)| (key.clone(), self.next)));
        self.bytes += dead.texts();
        self.letters.insert(self.next, dead);
        self.next += 1;
        if self.mark.is_none() {
            self.plan_look();
        }
    }

    pub fn get(&self, id: u64) -> Option<&Dead<P>> {
        self.letters.get(self.order_of.get(&id)?)
    }

    /// Replaces the payload, and returns the old one; `None` if this dead letter does not exist.
    pub fn set_payload(&mut self, id: u64, payload: P) -> Option<P> {
        let dead = self.letters.get_mut(self.order_of.get(&id)?)?;
        Some(std::mem::replace(&mut dead.payload, payload))
    }

    /// Replaces the keys, also in the index by key, which otherwise names a letter that is gone.
    pub fn set_keys(&mut self, id: u64, keys: Vec<(Key, bool)>) {
        let Some(&order) = self.order_of.get(&id) else { return };
        let Some(dead) = self.letters.get_mut(&order) else { return };
        for (key, _) in std::mem::replace(&mut dead.keys, keys) {
            self.by_key.remove(&(key, order));
        }
        self.by_key.extend(dead.keys.iter().map(|(key, _)| (key.clone(), order)));
    }

    /// Replaces the limit names, the group and the run.
    pub fn set_names(&mut self, id: u64, limit: Vec<u8>, group: Vec<u8>, run: Vec<u8>) {
        let Some(order) = self.order_of.get(&id) else { return };
        let Some(dead) = self.letters.get_mut(order) else { return };
        self.bytes -= dead.texts();
        (dead.limit, dead.group, dead.run) = (limit, group, run);
        self.bytes += dead.texts();
    }

    pub fn remove(&mut self, id: u64) -> Option<Dead<P>> {
        let order = self.order_of.remove(&id)?;
        let dead = self.letters.remove(&order)?;
        self.bytes -= dead.texts();
        for (key, _) in &dead.keys {
            self.by_key.remove(&(key.clone(), order));
        }
        self.plan_look();
        Some(dead)
    }

    pub fn set_bounds(&mut self, most: usize, ttl: u64) {
        (self.most, self.ttl) = (most, ttl);
        self.plan_look();
    }

    /// The time at which their age is to be looked at; `Time::MAX`: never.
    #[inline]
    pub fn look(&self) -> Time {
        self.look
    }

    pub fn mark(&self) -> Option<Time> {
        self.mark
    }

    pub fn set_mark(&mut self, mark: Option<Time>) {
        self.mark = mark;
        self.plan_look();
    }

    /// Takes out those that were kept for long enough, the oldest first and at most `limit`; how many.
    ///
    /// A clock that is wrong for some seconds drops none: a look that finds the oldest too old marks its time,
    /// and those that were too old then go at the first look `GRACE` later. (A scheduler's time never falls;
    /// where it can, in a Redis, a mark ahead of it is set anew.)
    pub fn expire(&mut self, now: Time, limit: u32) -> u32 {
        if limit == 0 || self.look > now {
            return 0;
        }
        let mut count = 0;
        let grace = GRACE.min(self.ttl);
        let passed = self.mark.filter(|mark| mark.saturating_add(grace) <= now);
        if let Some(mark) = passed {
            while self.oldest_due() <= mark {
                if count == limit {
                    // The next call continues.
                    return count;
                }
                let Some(id) = self.letters.values().next().map(|dead| dead.id) else { break };
                let dead = self.remove(id);
                self.expired.extend(dead.map(|dead| dead.payload));
                count += 1;
            }
        }
        let due = self.oldest_due();
        self.mark = (due <= now).then(|| self.mark.filter(|_| passed.is_none()).unwrap_or(now));
        self.look = self.mark.map_or(due, |mark| mark.saturating_add(grace));
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

    /// At once if the oldest of them may be another than the one that was too old.
    fn plan_look(&mut self) {
        self.look = if self.mark.is_some() { 0 } else { self.oldest_due() };
    }

    /// The time at which the oldest has been kept for long enough; `Time::MAX`: never.
    fn oldest_due(&self) -> Time {
        let first = self.letters.values().next().filter(|_| self.ttl > 0);
        first.map_or(Time::MAX, |dead| dead.died_at.saturating_add(self.ttl))
    }

    /// Returns those that died after this one; `None` if this dead letter does not exist.
    pub fn after(&self, id: u64) -> Option<impl Iterator<Item = &Dead<P>>> {
        let order = *self.order_of.get(&id)?;
        Some(self.letters.range(order + 1..).map(|(_, dead)| dead))
    }

    /// Returns those that died before this one, the newest first; `None` if this dead letter does
    /// not exist.
    pub fn before(&self, id: u64) -> Option<impl Iterator<Item = &Dead<P>>> {
        let order = *self.order_of.get(&id)?;
        Some(self.letters.range(..order).rev().map(|(_, dead)| dead))
    }

    /// Returns the dead letters of a key, the oldest first.
    pub fn on_key(&self, key: &[u8]) -> impl Iterator<Item = &Dead<P>> {
        self.on_key_from(key, 0)
    }

    /// Returns those of a key that died after dead letter `id`, if one is given; `None` if there is no
    /// such letter.
    pub fn on_key_after(
        &self,
        key: &[u8],
        id: Option<u64>,
    ) -> Option<impl Iterator<Item = &Dead<P>>> {
        let first = match id {
            None => 0,
            Some(id) => *self.order_of.get(&id)? + 1,
        };
        Some(self.on_key_from(key, first))
    }

    fn on_key_from(&self, key: &[u8], first: u64) -> impl Iterator<Item = &Dead<P>> {
        let key = Key::new(key);
        let orders = self.by_key.range((key.clone(), first)..=(key, u64::MAX));
        orders.map(|(_, order)| &self.letters[order])
    }

    /// Oldest dead first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Dead<P>> {
        self.letters.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(id: u64, names: &[&str]) -> Dead<u64> {
        Dead {
            id,
            keys: names.iter().map(|name| (Key::new(name.as_bytes()), false)).collect(),
            attempts: 1,
            error: String::new(),
            retry: None,
            priority: 0,
            barrier: false,
            quiet: false,
            size: 0,
            put_at: 1,
            limit: Vec::new(),
            group: Vec::new(),
            behind: None,
            run: Vec::new(),
            died_at: 1,
            payload: id,
        }
    }

    #[test]
    fn the_dead_letters_of_a_key_are_those_that_carry_it() {
        let mut letters = DeadLetters::new(usize::MAX, 0);
        let names = ["a", "ab", "b", "a key of more than twenty-two bytes"];
        let mut rng = fastrand::Rng::with_seed(4);
        for id in 1..2_000 {
            // A key may be named twice, and a letter may have none.
            let some: Vec<&str> = (0..rng.usize(..4)).map(|_| names[rng.usize(..4)]).collect();
            letters.push(dead(id, &some));
            if rng.bool() {
                letters.remove(rng.u64(1..=id));
            }
            if rng.bool() {
                let others = dead(id, &names[..rng.usize(..4)]).keys;
                letters.set_keys(rng.u64(1..=id), others);
            }
        }
        for name in names.iter().chain(&["", "c"]) {
            let carries =
                |dead: &&Dead<u64>| dead.keys.iter().any(|(key, _)| *key == *name.as_bytes());
            let wanted: Vec<u64> = letters.iter().filter(carries).map(|dead| dead.id).collect();
            let found: Vec<u64> = letters.on_key(name.as_bytes()).map(|dead| dead.id).collect();
            assert_eq!(found, wanted, "on {name:?}");
            for (at, &id) in wanted.iter().enumerate().step_by(50) {
                let later = letters.on_key_after(name.as_bytes(), Some(id)).unwrap();
                assert!(later.map(|dead| dead.id).eq(wanted[at + 1..].iter().copied()));
            }
        }
        assert_eq!(letters.by_key.len(), letters.iter().map(distinct).sum());
    }

    fn distinct(dead: &Dead<u64>) -> usize {
        dead.keys.iter().map(|(key, _)| key).collect::<BTreeSet<_>>().len()
    }
}
