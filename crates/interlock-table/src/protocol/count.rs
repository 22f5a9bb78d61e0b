//! The number of live rows, known without looking at the slots.
//!
//! Each participant has one word for each row of buckets: the rows that it has put there, less those
//! that it has removed. The sum over all participants is the number of rows. A writer changes its
//! count while it holds the slot, just before it publishes it, so after its death the slot still shows
//! what the count lacks:
//!
//! | held as | counts as | if the owner is dead |
//! |---|---|---|
//! | `Claim` | free | published if the owner has counted its row, which is then complete; freed otherwise |
//! | `Over`, `Moved` | live | removed from the owner's count, unless the owner did so; then freed |
//! | anything else | live | the row stays |
//!
//! The target of a move is decided by its source. To know whether the owner has changed its count, it is
//! compared with the *mark*: the count as it was before the slot was locked. Each change also raises an
//! order number in the upper bits, so a compare-and-swap from the mark succeeds once, however many
//! processes recover the same writer.
//!
//! Rows that have expired are included until their slots are reused. How many they are cannot be known
//! without looking. But the table keeps the earliest expiry that any row ever had: before that time there
//! are none.

use crate::layout::geometry::{control, COUNTS, LEVELS, MARKS, SLOTS};
use crate::memory::{Memory, Place};
use crate::protocol::writer::{Intent, Writer};
use crate::sync::{AtomicU64, Ordering::*};

/// Bits of a count; above them is its order number. Sums wrap, as do counts.
const COUNT_BITS: u32 = 40;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// The word after a count has changed by this much.
fn changed(word: u64, by: i64) -> u64 {
    let order = (word >> COUNT_BITS).wrapping_add(1) << COUNT_BITS;
    order | word.wrapping_add_signed(by) & COUNT
}

/// A sum of counts as a number of rows: never less than 0, though a row may be seen removed that was not yet
/// seen put.
fn rows(sum: u64, most: u64) -> u64 {
    let sum = ((sum << (64 - COUNT_BITS)) as i64) >> (64 - COUNT_BITS);
    u64::try_from(sum).unwrap_or(0).min(most)
}

/// A participant's count and the mark that it noted for one of its slots.
pub struct Counted<'a> {
    word: &'a AtomicU64,
    mark: u64,
}

impl Counted<'_> {
    /// Returns whether the owner, or who recovers it, has changed the count since the mark.
    pub fn is_changed(&self) -> bool {
        // Acquire: what was written before the count is seen.
        self.word.load(Acquire) != self.mark
    }

    /// Changes the count, unless it was changed since the mark.
    pub fn change(&self, by: i64) {
        // Failing, it was changed.
        let _ = self.word.compare_exchange(self.mark, changed(self.mark, by), AcqRel, Acquire);
    }
}

impl Memory {
    fn count_at(&self, participant: usize, place: Place) -> &AtomicU64 {
        self.word(participant + COUNTS + self.geometry.level_of(place.bucket))
    }

    /// The count of a participant for the slot that this intent names.
    pub fn counted(&self, id: u64, place: Place, intent: Intent) -> Option<Counted<'_>> {
        let at = self.geometry.participant(id)?;
        let mark = self.word(at + MARKS + intent.mark()).load(Acquire);
        Some(Counted { word: self.count_at(at, place), mark })
    }

    /// Rows of each row of buckets, expired ones among them.
    pub fn rows(&self) -> [u64; LEVELS] {
        let mut sums = [0u64; LEVELS];
        for id in 1..=self.participants_used() {
            let Some(at) = self.geometry.participant(id) else { break };
            for (sum, word) in sums.iter_mut().zip(self.range(at + COUNTS, LEVELS)) {
                *sum = sum.wrapping_add(word.load(Acquire));
            }
        }
        let mut levels = self.geometry.levels.iter();
        sums.map(|sum| {
            let buckets = levels.next().map_or(0, |level| u64::from(level.buckets));
            rows(sum, buckets * SLOTS as u64)
        })
    }

    /// Live rows of each row of buckets, and all expired ones, by visiting all slots.
    pub fn visited_rows(&self, now: u64) -> ([u64; LEVELS], u64) {
        let (mut rows, mut expired) = ([0; LEVELS], 0);
        for bucket in 0..self.geometry.buckets() {
            let live = &mut rows[self.geometry.level_of(bucket)];
            for index in 0..SLOTS {
                let slot = self.geometry.slot(bucket, index);
                match self.state(slot).is_live() {
                    true if self.has_expired(slot, now) => expired += 1,
                    true => *live += 1,
                    false => {}
                }
            }
        }
        (rows, expired)
    }

    /// The highest number that any participant ever had.
    pub fn participants_used(&self) -> u64 {
        self.control(control::USED).load(Acquire).min(self.geometry.participants)
    }

    /// Returns whether no row can have expired yet. To be asked after the rows were counted.
    pub fn has_none_expired(&self, now: u64) -> bool {
        // The complement of 0, the end of time, if no row has an expiry.
        !self.control(control::EARLIEST).load(Acquire) > now
    }

    /// Notes that a row is to expire, before it is written.
    #[inline]
    pub fn note_expiry(&self, expiry: u64) {
        let earliest = self.control(control::EARLIEST);
        // The complement: of a new table, whose words are zero, it says that none expires.
        if expiry != 0 && earliest.load(Relaxed) < !expiry {
            earliest.fetch_max(!expiry, AcqRel);
        }
    }

    /// Counts the rows anew when no other process has the table open: after a power failure its words may be
    /// of different moments.
    #[cfg(not(loom))]
    pub fn recount(&self) {
        let mut rows = [0; LEVELS];
        for bucket in 0..self.geometry.buckets() {
            for index in 0..SLOTS {
                let slot = self.geometry.slot(bucket, index);
                let state = self.state(slot);
                if state.owner() != 0 {
                    self.free_stray(self.word(slot), state);
                }
                rows[self.geometry.level_of(bucket)] += u64::from(self.state(slot).is_live());
            }
        }
        for id in 1..=self.geometry.participants {
            let Some(at) = self.geometry.participant(id) else { break };
            for (word, rows) in self.range(at + COUNTS, LEVELS).iter().zip(&mut rows) {
                word.store(std::mem::take(rows), Release);
            }
        }
        self.control(control::USED).fetch_max(1, AcqRel);
    }
}

impl Writer<'_> {
    /// Notes the count as it is, before a slot is locked.
    #[inline]
    pub fn mark(&self, place: Place, intent: Intent) {
        // Relaxed: it is in memory before the lock, for the lock is taken with release. No other writes the
        // count of one that lives.
        let count = self.memory.count_at(self.at, place).load(Relaxed);
        self.memory.word(self.at + MARKS + intent.mark()).store(count, Relaxed);
    }

    /// Counts a row that is put into a slot (1) or removed from it (-1), which this thread holds.
    #[inline]
    pub fn count(&self, place: Place, by: i64) {
        let word = self.memory.count_at(self.at, place);
        // Release: who sees it sees the row.
        word.store(changed(word.load(Relaxed), by), Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::protocol::count::*;

    #[test]
    fn a_count_wraps_and_its_sum_is_not_affected() {
        let (mut one, mut other) = (0, 0);
        for _ in 0..5 {
            one = changed(one, 1);
        }
        for _ in 0..3 {
            other = changed(other, -1);
        }
        assert_eq!((one >> COUNT_BITS, other >> COUNT_BITS), (5, 3));
        assert_eq!(rows(one.wrapping_add(other), 100), 2);
        assert_eq!(rows(other, 100), 0);
        assert_eq!(rows(one, 4), 4);
        let last = changed(!0 << COUNT_BITS | 7, 1);
        assert_eq!(last, 8, "the order number starts over");
    }
}
