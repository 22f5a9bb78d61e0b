//! Buckets: sixteen tags compared at once, and the slots behind them.
//!
//! A tag only says where to look. It is written by the holder of its slot, before the slot is live,
//! and cleared by the deleter; where a writer died in between it is above a free slot, which costs
//! a look and nothing else. That is why recovery never writes one: a recoverer that was overtaken
//! could write it into another's row.

use crate::layout::geometry::{Geometry, LEVELS, SLOTS};
use crate::layout::hash::Key;
use crate::memory::{Memory, Place};
use crate::sync::{AtomicU64, Ordering::*};

impl Geometry {
    /// The bucket of a key in one of the rows.
    #[inline]
    pub fn candidate(&self, level: usize, hash: u64) -> usize {
        self.levels[level].bucket(hash)
    }
}

impl Memory {
    /// The slots of a bucket with this tag, one bit each. Acquire: who reads a tag sees what went before
    /// it, or a row that moved on would be missed in its new place too.
    #[inline]
    pub fn tagged(&self, bucket: usize, tag: u64) -> u32 {
        matching(self.tags(bucket), tag)
    }

    /// Writes the tag of a slot that this thread holds.
    pub fn set_tag(&self, place: Place, tag: u64) {
        let word = &self.tags(place.bucket)[place.index / 4];
        let shift = place.index % 4 * 16;
        let mut seen = word.load(Relaxed);
        // The other three are other owners': they change meanwhile.
        loop {
            let wanted = seen & !(0xFFFF << shift) | tag << shift;
            // Release: pairs with the acquire in `tagged`.
            match word.compare_exchange(seen, wanted, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Visits once the slots that may have this key, in the order of the rows, until one has it. One pass
    /// does not miss a row, because a row only moves to a later slot, and exists there before it is removed
    /// here.
    #[inline(always)]
    pub fn look<R>(&self, key: &Key, mut each: impl FnMut(Place) -> Option<R>) -> Option<R> {
        let tag = key.tag();
        for level in 0..LEVELS {
            #[cfg(loom)]
            self.step();
            let bucket = self.geometry.candidate(level, key.hash);
            let mut hits = self.tagged(bucket, tag);
            while hits != 0 {
                let place = Place::new(&self.geometry, bucket, hits.trailing_zeros() as usize);
                if let Some(found) = each(place) {
                    return Some(found);
                }
                hits &= hits - 1;
            }
        }
        None
    }
}

/// One bit per tag that is this one.
#[cfg(all(target_arch = "x86_64", not(loom)))]
#[inline]
fn matching(tags: &[AtomicU64], tag: u64) -> u32 {
    use std::arch::x86_64::*;
    let [a, b, c, d] = [0, 1, 2, 3].map(|n| tags[n].load(Acquire) as i64);
    // SAFETY: SSE2 is part of x86-64; no memory is touched.
    unsafe {
        let tag = _mm_set1_epi16(tag as i16);
        let first = _mm_cmpeq_epi16(_mm_set_epi64x(b, a), tag);
        let second = _mm_cmpeq_epi16(_mm_set_epi64x(d, c), tag);
        _mm_movemask_epi8(_mm_packs_epi16(first, second)) as u32
    }
}

#[cfg(any(not(target_arch = "x86_64"), loom))]
#[inline]
fn matching(tags: &[AtomicU64], tag: u64) -> u32 {
    let mut hits = 0;
    for (n, word) in tags.iter().enumerate() {
        let word = word.load(Acquire);
        for part in 0..4.min(SLOTS - n * 4) {
            hits |= u32::from(word >> (16 * part) & 0xFFFF == tag) << (n * 4 + part);
        }
    }
    hits
}

/// All slots of a bucket.
pub const ALL: u32 = (1 << SLOTS) - 1;

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::protocol::bucket::*;

    #[test]
    fn every_tag_is_found_only_in_its_slot() {
        let words: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        assert_eq!(matching(&words, 0), ALL);
        for slot in 0..SLOTS {
            for tag in [1u64, 0x7FFF, 0x8000, 0xFFFF] {
                words[slot / 4].store(tag << (slot % 4 * 16), Relaxed);
                assert_eq!(matching(&words, tag), 1 << slot);
                assert_eq!(matching(&words, 0), ALL & !(1 << slot));
                assert_eq!(matching(&words, tag ^ 0x8001), 0);
            }
            words[slot / 4].store(0, Relaxed);
        }
    }
}
