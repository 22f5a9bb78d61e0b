//! The layout: words counted from the beginning of the memory.
//!
//! | part | words |
//! |---|---|
//! | head | what [`header`](crate::layout::header) says |
//! | control | [`control`]: namespaces, clock, counters |
//! | participants | who, thread, three intents, image, two marks, counts of rows, two scratch rows |
//! | tags | of all buckets of the four rows, one bucket behind the other |
//! | insert locks | one for each bucket |
//! | slots | those of all buckets |
//!
//! Tags lie apart from the slots: two buckets' share a line of the cache, and those of 100,000 rows are
//! found in a cache that holds a hundredth of the table, where a bucket's head would be one more wait for
//! memory in each call.
//!
//! A slot: state, access time, hash, length of the key, key, expiry, row. Expiry and row together are the
//! *value*: what a whole-row write changes, and what a scratch row holds.
//!
//! The rows have prime numbers of buckets in the ratio 70/20/7/3, and a key has one candidate
//! bucket in each, by the remainder of the same half of its hash. This is why the first live row is
//! overwritten only at a load of 99.3 %: keys that do not fit the large row use the smaller ones.

#[cfg(not(loom))]
pub const SLOTS: usize = 16;
/// The model checker goes through every order of every word.
#[cfg(loom)]
pub const SLOTS: usize = 2;
pub const LEVELS: usize = 4;
/// Candidates of a key.
pub const CANDIDATES: usize = SLOTS * LEVELS;

/// Words of a bucket's tags, four in a word.
pub const TAG_WORDS: usize = SLOTS.div_ceil(4);
/// Words of a page of memory, and of a line of the cache.
const PAGE: usize = 512;
const LINE: usize = 8;

/// Words of a slot before its key.
pub const STATE: usize = 0;
pub const ACCESS: usize = 1;
pub const HASH: usize = 2;
pub const KEY_LENGTH: usize = 3;
pub const KEY: usize = 4;

/// Words of a participant before its scratch rows.
pub const WHO: usize = 0;
pub const THREAD: usize = 1;
pub const INTENTS: usize = 2;
pub const IMAGE: usize = 5;
/// Counts as they were before a slot was locked, two of them.
pub const MARKS: usize = 6;
/// Rows that it has put less those that it has removed: one word for each row of buckets.
pub const COUNTS: usize = 8;
const SCRATCH: usize = 16;

/// Words between head and participants: namespaces and clock, then one line of the cache per counter.
pub mod control {
    pub const PID_NAMESPACE: usize = 0;
    pub const TIME_NAMESPACE: usize = 1;
    pub const BOOT: usize = 2;
    /// Nanoseconds from the boot clock to the table's own.
    pub const OFFSET: usize = 4;
    /// The table's latest time that any process has noted.
    pub const LATEST: usize = 5;
    /// Tells if this is the table still, and who resizes it: see [`resize`](crate::table::resize).
    pub const RESIZE: usize = 6;
    /// A random number in the name under which the next one is linked, before it gets this one's.
    pub const NEXT: usize = 7;
    pub const COUNTERS: usize = 8;
    pub const MOVES: usize = COUNTERS;
    pub const EXPIRED: usize = COUNTERS + 8;
    pub const OVERWRITTEN: usize = COUNTERS + 16;
    pub const RETRIES: usize = COUNTERS + 24;
    pub const RECOVERED: usize = COUNTERS + 32;
    /// Times that it was resized.
    pub const GENERATION: usize = COUNTERS + 40;
    /// The process of the node that alone writes rows, as a participant says who it is; 0: all may.
    pub const KEEPER: usize = COUNTERS + 48;
    /// The image of that process.
    pub const KEEPER_IMAGE: usize = KEEPER + 1;
    /// The position in a log up to which the keeper has shown what it applied; 0: of none, or it is not
    /// known just now.
    pub const POSITION: usize = COUNTERS + 56;
    /// The checksum of the log up to there.
    pub const POSITION_CHECKSUM: usize = POSITION + 1;
    /// The complement of the earliest expiry that any row ever had; 0: none had one.
    pub const EARLIEST: usize = COUNTERS + 64;
    /// The highest number that any participant ever had.
    pub const USED: usize = COUNTERS + 72;
    pub const WORDS: usize = 512;
}

/// One row of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    pub buckets: u32,
    /// The number of its first bucket.
    pub first: usize,
    /// 2^64 / buckets, rounded up: a remainder by two products.
    reciprocal: u64,
}

impl Level {
    fn new(buckets: u32, first: usize) -> Level {
        Level { buckets, first, reciprocal: (u64::MAX / u64::from(buckets)).wrapping_add(1) }
    }

    /// The number of the bucket for this hash.
    #[inline]
    pub fn bucket(&self, hash: u64) -> usize {
        let fraction = self.reciprocal.wrapping_mul(hash & 0xFFFF_FFFF);
        self.first + ((u128::from(fraction) * u128::from(self.buckets)) >> 64) as usize
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub levels: [Level; LEVELS],
    pub key_words: usize,
    /// Words of a row, and one for its expiry.
    pub value_words: usize,
    pub participants: u64,
    /// The value's place in a slot.
    pub value: usize,
    slot_words: usize,
    participant_words: usize,
    pub control: usize,
    participants_at: usize,
    tags_at: usize,
    locks_at: usize,
    slots_at: usize,
    /// Words in all.
    pub words: usize,
}

impl Geometry {
    /// `None` if it would not fit the machine's memory.
    pub fn new(
        head_words: usize,
        buckets: [u32; LEVELS],
        key_words: usize,
        row_words: usize,
        participants: u64,
    ) -> Option<Geometry> {
        let value = KEY + key_words;
        let value_words = 1 + row_words;
        let slot_words = value + value_words;
        let participant_words = (SCRATCH + 2 * value_words).next_multiple_of(LINE);
        let participants_at = head_words + control::WORDS;
        let room = usize::try_from(participants).ok()?.checked_mul(participant_words)?;
        // Begin at a page, so that no bucket's tags cross two lines of the cache.
        let tags_at = participants_at.checked_add(room)?.next_multiple_of(PAGE);
        let mut first = 0;
        let levels = buckets.map(|buckets| {
            let level = Level::new(buckets, first);
            first += buckets as usize;
            level
        });
        let locks_at = first.checked_mul(TAG_WORDS)?.checked_add(tags_at)?.next_multiple_of(LINE);
        let slots_at = locks_at.checked_add(first)?.next_multiple_of(PAGE);
        let words = first.checked_mul(SLOTS * slot_words)?.checked_add(slots_at)?;
        (words < isize::MAX as usize / 8).then_some(Geometry {
            levels,
            key_words,
            value_words,
            participants,
            value,
            slot_words,
            participant_words,
            control: head_words,
            participants_at,
            tags_at,
            locks_at,
            slots_at,
            words,
        })
    }

    pub fn buckets(&self) -> usize {
        self.levels.iter().map(|level| level.buckets as usize).sum()
    }

    pub fn slots(&self) -> u64 {
        (self.buckets() * SLOTS) as u64
    }

    /// Bytes that a slot takes, with its tag.
    pub fn slot_bytes(&self) -> u64 {
        (self.slot_words * 8 + TAG_WORDS * 8 / SLOTS) as u64
    }

    /// The place of a bucket's tags.
    #[inline]
    pub fn tags(&self, bucket: usize) -> usize {
        self.tags_at + bucket * TAG_WORDS
    }

    /// The place of a bucket's insert lock.
    #[inline]
    pub fn insert_lock(&self, bucket: usize) -> usize {
        self.locks_at + bucket
    }

    /// The place of a slot.
    #[inline]
    pub fn slot(&self, bucket: usize, index: usize) -> usize {
        self.slots_at + (bucket * SLOTS + index) * self.slot_words
    }

    /// The place of a participant; `None` for an unknown number.
    #[inline]
    pub fn participant(&self, id: u64) -> Option<usize> {
        let known = (1..=self.participants).contains(&id);
        known.then(|| self.participants_at + (id - 1) as usize * self.participant_words)
    }

    /// The place of a scratch row: the own, or the one for what a dead owner left.
    #[inline]
    pub fn scratch(&self, id: u64, redo: bool) -> Option<usize> {
        Some(self.scratch_of(self.participant(id)?, redo))
    }

    /// Like `scratch`, of the participant at this place.
    #[inline]
    pub fn scratch_of(&self, participant: usize, redo: bool) -> usize {
        let at = participant + SCRATCH;
        if redo {
            at + self.value_words
        } else {
            at
        }
    }

    /// The row of buckets in which this bucket is.
    pub fn level_of(&self, bucket: usize) -> usize {
        self.levels.iter().rposition(|level| level.first <= bucket).unwrap_or(0)
    }
}

/// The numbers of buckets of a table that is to hold this many rows: they take 91 % of its slots.
pub fn buckets(capacity: u64) -> Option<[u32; LEVELS]> {
    let wanted = u128::from(capacity) * 100 / 91 / SLOTS as u128 + 1;
    let mut last = 0;
    let mut buckets = [3, 7, 20, 70].map(|percent| {
        // Different primes, or two rows would have the same buckets for the same keys.
        last = prime(u32::try_from((wanted * percent).div_ceil(100)).ok()?.max(last + 1))?;
        Some(last)
    });
    buckets.reverse();
    let [first, second, third, fourth] = buckets;
    Some([first?, second?, third?, fourth?])
}

/// The first prime from here on.
fn prime(from: u32) -> Option<u32> {
    let is_prime = |n: u32| {
        n >= 2
            && (2..).take_while(|d| d * d <= u64::from(n)).all(|d| !u64::from(n).is_multiple_of(d))
    };
    (from..=u32::MAX / 2).find(|n| is_prime(*n))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::layout::geometry::*;

    #[test]
    fn level_sizes_are_primes_in_the_ratio_and_hold_the_capacity() {
        assert_eq!(buckets(1), Some([7, 5, 3, 2]));
        for capacity in [100, 10_000, 100_000, 4_000_000, 50_000_000u64] {
            let buckets = buckets(capacity).unwrap();
            let sum: u32 = buckets.iter().sum();
            let load = capacity as f64 / (f64::from(sum) * SLOTS as f64);
            assert!(load <= 0.91, "{capacity}: {load}");
            if capacity >= 10_000 {
                assert!(load > 0.88, "{capacity}: {load}");
                for (buckets, percent) in buckets.iter().zip([0.70, 0.20, 0.07, 0.03]) {
                    assert!((f64::from(*buckets) / f64::from(sum) - percent).abs() < 0.01);
                }
            }
            assert!(buckets.windows(2).all(|pair| pair[0] > pair[1]));
        }
        assert_eq!(buckets(u64::MAX), None);
        assert_eq!(prime(90), Some(97));
    }

    #[test]
    fn a_bucket_is_the_remainder() {
        for buckets in [2, 7, 4801, 2_405_119] {
            let level = Level::new(buckets, 10);
            for hash in (0..u64::from(u32::MAX)).step_by(7_654_321).chain([u64::from(u32::MAX)]) {
                assert_eq!(level.bucket(hash | 5 << 40) as u64, 10 + hash % u64::from(buckets));
            }
        }
    }

    #[test]
    fn regions_do_not_overlap() {
        let geometry = Geometry::new(512, [7, 5, 3, 2], 4, 10, 9).unwrap();
        assert_eq!(geometry.participant(0), None);
        assert_eq!(geometry.participant(10), None);
        let last = geometry.scratch(9, true).unwrap() + geometry.value_words;
        assert!(last <= geometry.tags(0) && geometry.tags(0).is_multiple_of(PAGE));
        assert!(geometry.tags(17) <= geometry.insert_lock(0));
        assert!(geometry.insert_lock(17) <= geometry.slot(0, 0));
        assert_eq!(
            geometry.slot(0, 15) + geometry.value + geometry.value_words,
            geometry.slot(1, 0)
        );
        assert_eq!(geometry.slot(17, 0), geometry.words);
        assert_eq!([0, 6, 7, 11, 12, 16].map(|n| geometry.level_of(n)), [0, 0, 1, 1, 2, 3]);
    }
}
