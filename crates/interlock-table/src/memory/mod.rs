//! The words that all processes share, by name: nothing here changes more than one of them.

#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub(super) mod mapping;
#[cfg(not(loom))]
pub(super) mod process;

#[cfg(not(loom))]
use crate::layout::geometry::IMAGE;
use crate::layout::geometry::{control, Geometry, STATE, TAG_WORDS, WHO};
use crate::layout::state::State;
use crate::sync::{fence, AtomicU64, Ordering::*};

#[cfg(not(loom))]
pub type Words = crate::memory::mapping::Mapping;
#[cfg(loom)]
pub type Words = Box<[AtomicU64]>;

pub struct Memory {
    words: Words,
    pub geometry: Geometry,
    /// Participants whose thread has stopped for good, one bit each.
    #[cfg(loom)]
    pub dead: AtomicU64,
    /// True if every step is a moment at which another thread may run. The model checker looks for
    /// such moments where two threads meet at a word, and forgets one who has only read it before
    /// the other reads and writes it.
    #[cfg(loom)]
    pub stepped: bool,
}

impl Memory {
    #[cfg(not(loom))]
    pub fn new(words: Words, geometry: Geometry) -> Memory {
        assert!(words.len() >= geometry.words, "the head was checked");
        Memory { words, geometry }
    }

    /// Frees the memory, when another has replaced it.
    #[cfg(not(loom))]
    pub fn give_back(&self) {
        self.words.give_back();
    }

    #[inline]
    pub fn word(&self, at: usize) -> &AtomicU64 {
        &self.words[at]
    }

    /// Words side by side.
    #[inline]
    pub fn range(&self, at: usize, words: usize) -> &[AtomicU64] {
        &self.words[at..at + words]
    }

    /// Asks the processor for a line of memory, without waiting for it.
    #[inline]
    pub fn fetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            let word = self.words.as_ptr().wrapping_add(at);
            // SAFETY: a hint; it reads nothing that a program could see, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(word.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Acquire: a reader of the state sees everything written before it.
    #[inline]
    pub fn state(&self, slot: usize) -> State {
        State(self.word(slot + STATE).load(Acquire))
    }

    /// Publishes a state. Release: with all that was written before.
    #[inline]
    pub fn publish(&self, slot: usize, state: State) {
        self.word(slot + STATE).store(state.0, Release);
    }

    /// Changes a state from exactly this one. Acquire and release: what was read of the slot before is
    /// what it held until now, and an intent is in memory before its lock.
    #[inline]
    pub fn swap(&self, slot: usize, from: State, to: State) -> bool {
        self.word(slot + STATE).compare_exchange(from.0, to.0, AcqRel, Relaxed).is_ok()
    }

    /// Returns whether what was read of a slot since this state was seen belongs to it.
    #[inline]
    pub fn stands(&self, slot: usize, state: State) -> bool {
        fence(Acquire);
        self.word(slot + STATE).load(Relaxed) == state.0
    }

    /// The value of a slot: expiry and row, where they have their place.
    #[inline]
    pub fn value(&self, slot: usize) -> &[AtomicU64] {
        self.range(slot + self.geometry.value, self.geometry.value_words)
    }

    /// The scratch row that has the value, if this state says so and names a participant.
    #[inline]
    pub fn image(&self, state: State) -> Option<&[AtomicU64]> {
        let redo = state.is(crate::layout::state::Kind::Redo);
        let at = self.geometry.scratch(state.owner(), redo)?;
        Some(self.range(at, self.geometry.value_words))
    }

    #[inline]
    pub fn insert_lock(&self, bucket: usize) -> &AtomicU64 {
        self.word(self.geometry.insert_lock(bucket))
    }

    #[inline]
    pub fn tags(&self, bucket: usize) -> &[AtomicU64] {
        self.range(self.geometry.tags(bucket), TAG_WORDS)
    }

    /// The word that says who has this number. Acquire: what was there when it was written is seen.
    #[inline]
    pub fn who(&self, id: u64) -> u64 {
        self.geometry.participant(id).map_or(0, |at| self.word(at + WHO).load(Acquire))
    }

    /// Counts an event, all of which are rare. Relaxed: nothing hangs on it.
    #[cold]
    pub fn count(&self, counter: usize) {
        self.word(self.geometry.control + counter).fetch_add(1, Relaxed);
    }

    #[inline]
    pub fn control(&self, word: usize) -> &AtomicU64 {
        debug_assert!(word < control::WORDS);
        self.word(self.geometry.control + word)
    }

    /// The place of a slot from the number in an intent, if there is such a slot.
    pub fn slot_of(&self, intent: u64) -> Option<Place> {
        let number = intent.checked_sub(1).filter(|n| *n < self.geometry.slots())? as usize;
        Some(Place::new(
            &self.geometry,
            number / crate::layout::geometry::SLOTS,
            number % crate::layout::geometry::SLOTS,
        ))
    }

    /// Returns whether the process that wrote this word about itself is gone.
    #[cfg(not(loom))]
    pub fn is_dead(&self, id: u64, who: u64) -> bool {
        // Behind `who`: it goes with this generation of it, or says nothing.
        let image =
            self.geometry.participant(id).map_or(0, |at| self.word(at + IMAGE).load(Acquire));
        crate::memory::process::is_dead(who, image)
    }

    #[cfg(loom)]
    pub fn is_dead(&self, id: u64, who: u64) -> bool {
        who == 0 || self.dead.load(Acquire) & 1 << id != 0
    }
}

/// A slot: its bucket, its index there, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub bucket: usize,
    pub index: usize,
    pub at: usize,
}

impl Place {
    #[inline]
    pub fn new(geometry: &Geometry, bucket: usize, index: usize) -> Place {
        Place { bucket, index, at: geometry.slot(bucket, index) }
    }

    /// The word by which an intent names it, or 0.
    #[inline]
    pub fn intent(self) -> u64 {
        (self.bucket * crate::layout::geometry::SLOTS + self.index) as u64 + 1
    }
}

#[cfg(loom)]
impl Memory {
    /// One bucket in each row, rows of two words, and these participants, all of whom are there.
    pub fn model(participants: u64, stepped: bool) -> Memory {
        let geometry = Geometry::new(0, [1, 1, 1, 1], 1, 2, participants).unwrap();
        let words = (0..geometry.words).map(|_| AtomicU64::new(0)).collect();
        let memory = Memory { words, geometry, dead: AtomicU64::new(0), stepped };
        for id in 1..=participants {
            memory.word(memory.geometry.participant(id).unwrap() + WHO).store(1, Relaxed);
        }
        memory.control(control::RESIZE).store(State(0).next(true).0, Relaxed);
        memory.control(control::USED).store(participants, Relaxed);
        memory
    }

    /// A moment at which another thread may run. Relaxed; but fences on both sides of it would do
    /// what fences are to do elsewhere, so that those are looked at without it.
    pub fn step(&self) {
        if self.stepped {
            self.dead.fetch_or(0, Relaxed);
        }
    }
}
