//! Reading a slot, which never waits and writes nothing that others need.
//!
//! A reader takes the state, reads, and takes the state again. If the row is being rewritten as a whole it
//! is read from the image in the owner's scratch row, which is complete: a writer that stopped in the midst
//! of it, or died, holds up nobody.

use crate::layout::geometry::{KEY, KEY_LENGTH};
use crate::layout::hash::Key;
use crate::layout::state::State;
use crate::memory::{Memory, Place};
use crate::sync::{fence, AtomicU64, Ordering::*};

impl Memory {
    /// Returns whether this slot holds the key. True only as long as its state has not changed.
    #[inline]
    pub fn has_key(&self, slot: usize, key: &Key) -> bool {
        let length = key.bytes.len();
        if self.word(slot + KEY_LENGTH).load(Relaxed) != length as u64 {
            return false;
        }
        let words = self.range(slot + KEY, length.div_ceil(8));
        // Most keys are no longer than two words: no loop over them.
        match words {
            [only] => only.load(Relaxed) == key.head[0],
            [first, second] => {
                (first.load(Relaxed) == key.head[0]) & (second.load(Relaxed) == key.head[1])
            }
            _ => has_words(words, key),
        }
    }

    /// Finds the key, and has `take` read its value; `take` may be called again if the row changed
    /// meanwhile. Also returns the slot.
    #[inline]
    pub fn read<R>(
        &self,
        key: &Key,
        mut take: impl FnMut(&[AtomicU64]) -> R,
    ) -> Option<(usize, R)> {
        self.look(key, |place| self.read_at(place.at, key, &mut take))
    }

    #[inline]
    fn read_at<R>(
        &self,
        slot: usize,
        key: &Key,
        take: &mut impl FnMut(&[AtomicU64]) -> R,
    ) -> Option<(usize, R)> {
        let mut before = self.state(slot);
        loop {
            if !before.is_live() || !self.has_key(slot, key) {
                // Another's tag is the same; or the row went, and if it moved, then to where this pass
                // has yet to look.
                return None;
            }
            if before.has_image() && self.image(before).is_none() {
                // No participant has this number: the memory was damaged.
                return None;
            }
            match self.read_under(slot, before, take) {
                Ok(taken) => return Some((slot, taken)),
                Err(now) => before = now,
            }
        }
    }

    /// Reads the value under a state that was seen, or says what the state has become.
    #[inline]
    pub fn read_under<R>(
        &self,
        slot: usize,
        before: State,
        take: &mut impl FnMut(&[AtomicU64]) -> R,
    ) -> Result<R, State> {
        let taken = if before.has_image() {
            match self.image(before) {
                Some(image) => take(image),
                None => return Err(self.state(slot)),
            }
        } else {
            take(self.value(slot))
        };
        #[cfg(loom)]
        self.step();
        // The reads above must come before the state is read.
        fence(Acquire);
        let now = State(self.word(slot).load(Relaxed));
        // An image is filled again for the next row: it counts only while the state is the same.
        let whole = if before.has_image() { now == before } else { before.still(now) };
        if whole {
            return Ok(taken);
        }
        self.count(crate::layout::geometry::control::RETRIES);
        Err(self.state(slot))
    }

    /// Finds the slot that holds the key, and the state under which it does. It may be locked. Always inline,
    /// as `Key::new`.
    #[inline(always)]
    pub fn find(&self, key: &Key) -> Option<(Place, State)> {
        self.look(key, |place| {
            // Locking a slot waits for its first cache line; the value is fetched meanwhile.
            self.fetch(place.at + self.geometry.value);
            self.fetch(place.at + self.geometry.value + self.geometry.value_words - 1);
            let state = self.state(place.at);
            (state.is_live() && self.has_key(place.at, key)).then_some((place, state))
        })
    }
}

/// Returns whether these are the words of a long key.
#[inline(never)]
fn has_words(words: &[AtomicU64], key: &Key) -> bool {
    words.iter().zip(key.words()).all(|(kept, word)| kept.load(Relaxed) == word)
}

/// Copies words, each whole. Relaxed: the state shows whether they belong together.
#[inline]
pub fn copy(from: &[AtomicU64], to: &[AtomicU64]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Relaxed), Relaxed);
    }
}

/// Writes expiry and row.
#[inline]
pub fn store(expiry: u64, row: &[u64], to: &[AtomicU64]) {
    to[0].store(expiry, Relaxed);
    for (from, to) in row.iter().zip(&to[1..]) {
        to.store(*from, Relaxed);
    }
}

#[inline]
pub fn load(from: &[AtomicU64], to: &mut [u64]) {
    for (from, to) in from.iter().zip(to) {
        *to = from.load(Relaxed);
    }
}
