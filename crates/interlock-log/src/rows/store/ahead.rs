//! Lookup of the keys of several commands before they are done one after the other: the processor
//! waits for the memory of many rows at once instead of for each in turn.

use std::hash::{BuildHasher, RandomState};

use siphasher::sip::SipHasher13;

use super::Store;
use crate::machine::AHEAD;

/// Hashes keys, which clients choose, with secrets that clients do not know.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHasher(SipHasher13);

impl KeyHasher {
    pub fn new() -> KeyHasher {
        let drawn = RandomState::new();
        KeyHasher(SipHasher13::new_with_keys(drawn.hash_one(0), drawn.hash_one(1)))
    }

    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.0.hash(key)
    }
}

impl Store {
    /// Looks up a key of each of the next commands.
    pub fn look_ahead<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        self.ahead.clear();
        let (mut hashed, mut count) = ([(0, &[][..]); AHEAD], 0);
        for (place, key) in hashed.iter_mut().zip(keys) {
            *place = (self.hash(key), key);
            count += 1;
        }
        for (hash, key) in &hashed[..count] {
            self.ahead.push_back(self.find_hashed(*hash, key));
        }
    }

    /// Takes the place that was found for the next command, if any.
    pub fn next_ahead(&mut self) -> Option<u32> {
        self.ahead.pop_front().flatten()
    }

    /// Like `place`, for a key that may be at a known place.
    pub fn place_from(&self, known: Option<u32>, key: &[u8]) -> Option<u32> {
        let is_it = |place: &u32| self.entry(*place).is_some_and(|entry| entry.key() == key);
        known.filter(is_it).or_else(|| self.find(key))
    }
}
