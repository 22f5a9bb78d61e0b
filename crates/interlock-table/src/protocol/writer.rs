//! A thread that writes: its number, its intents, and the locks it takes.
//!
//! A writer notes a lock first, in an intent, and locks by a compare-and-swap from exactly the
//! unlocked word it has seen. So a process that finds it dead finds by the intents all that it
//! held.

use std::time::Duration;
#[cfg(not(loom))]
use std::time::Instant;

use crate::error::Error;
use crate::fault::Step;
use crate::layout::geometry::INTENTS;
use crate::layout::hash::Key;
use crate::layout::state::{Kind, State};
use crate::memory::{Memory, Place};
use crate::protocol::slot;
use crate::sync::{fence, spin, AtomicU64, Ordering::*};

/// Things that an intent names.
#[derive(Clone, Copy)]
pub enum Intent {
    InsertLock = 0,
    Slot = 1,
    MoveTarget = 2,
}

impl Intent {
    /// The number of the mark that goes with it; an insert lock has none.
    #[inline]
    pub fn mark(self) -> usize {
        usize::from(matches!(self, Intent::MoveTarget))
    }
}

#[derive(Clone, Copy)]
pub struct Writer<'a> {
    pub memory: &'a Memory,
    pub id: u64,
    /// The participant's place.
    pub(in crate::protocol) at: usize,
    /// Time that one that lives is waited for.
    pub patience: Duration,
    /// The step at which the thread of a model stops for good.
    #[cfg(loom)]
    pub dies_at: Option<Step>,
}

impl<'a> Writer<'a> {
    /// The thread must be the one that has this number.
    #[inline]
    pub fn new(memory: &'a Memory, id: u64, patience: Duration) -> Writer<'a> {
        let at = memory.geometry.participant(id).expect("a participant of this table");
        Writer {
            memory,
            id,
            at,
            patience,
            #[cfg(loom)]
            dies_at: None,
        }
    }

    /// Passes a step of the write path.
    #[inline]
    pub fn at(&self, _step: Step) -> Result<(), Error> {
        #[cfg(loom)]
        self.memory.step();
        #[cfg(loom)]
        if self.dies_at == Some(_step) {
            self.memory.dead.fetch_or(1 << self.id, AcqRel);
            return Err(Error::Died);
        }
        #[cfg(all(feature = "faults", not(loom)))]
        crate::fault::pass(_step);
        Ok(())
    }

    /// Relaxed: it is in memory before the lock, for the lock is taken with release.
    #[inline]
    pub fn intend(&self, intent: Intent, what: u64) {
        self.memory.word(self.at + INTENTS + intent as usize).store(what, Relaxed);
    }

    /// Locks a slot, if its state is exactly this one still.
    #[inline]
    pub fn lock(&self, place: Place, from: State, to: State, intent: Intent) -> bool {
        self.intend(intent, place.intent());
        let locked = self.memory.swap(place.at, from, to);
        // Writes in place after this are visible only together with the lock.
        fence(Release);
        locked
    }

    /// Fills the own scratch row.
    #[inline]
    pub fn fill(&self, expiry: u64, row: &[u64]) {
        self.memory.note_expiry(expiry);
        slot::store(expiry, row, self.scratch(false));
    }

    /// A scratch row, to be filled: who reads the image of the row before must see that its lock is gone.
    #[inline]
    pub fn scratch(&self, redo: bool) -> &'a [AtomicU64] {
        fence(Release);
        let at = self.memory.geometry.scratch_of(self.at, redo);
        self.memory.range(at, self.memory.geometry.value_words)
    }

    /// Rewrites a row as a whole from the own scratch row, if its state is exactly `before` still.
    #[inline]
    pub fn write_row(&self, place: Place, before: State) -> Result<bool, Error> {
        self.at(Step::ImageFilled)?;
        if !self.lock(place, before, before.held(self.id, Kind::Row), Intent::Slot) {
            return Ok(false);
        }
        self.at(Step::ImageLocked)?;
        let at = self.memory.geometry.scratch_of(self.at, false);
        let image = self.memory.range(at, self.memory.geometry.value_words);
        self.copy(image, self.memory.value(place.at), Step::ImageHalfCopied)?;
        self.at(Step::ImageCopied)?;
        self.memory.publish(place.at, before.next(true));
        Ok(true)
    }

    /// Copies, with a step in the middle.
    #[inline]
    pub fn copy(&self, from: &[AtomicU64], to: &[AtomicU64], half: Step) -> Result<(), Error> {
        let middle = from.len().div_ceil(2);
        for (n, (from, to)) in from.iter().zip(to).enumerate() {
            if n == middle {
                self.at(half)?;
            }
            to.store(from.load(Relaxed), Relaxed);
        }
        Ok(())
    }

    /// Changes one word of a value, if its state is exactly `before` still. `change` may refuse.
    #[inline]
    pub fn write_word<R>(
        &self,
        place: Place,
        before: State,
        word: usize,
        change: impl FnOnce(u64) -> Result<(u64, R), Error>,
    ) -> Result<Option<R>, Error> {
        if !self.lock(place, before, before.held(self.id, Kind::Word), Intent::Slot) {
            return Ok(None);
        }
        self.at(Step::WordLocked)?;
        let (is_expiry, word) = (word == 0, &self.memory.value(place.at)[word]);
        let changed = change(word.load(Relaxed));
        if let Ok((wanted, _)) = &changed {
            if is_expiry {
                self.memory.note_expiry(*wanted);
            }
            word.store(*wanted, Relaxed);
        }
        self.at(Step::WordWritten)?;
        self.memory.publish(place.at, before.next(true));
        changed.map(|(_, told)| Some(told))
    }

    /// Deletes a row, if its state is exactly `before` still.
    pub fn free(&self, place: Place, before: State) -> Result<bool, Error> {
        self.mark(place, Intent::Slot);
        if !self.lock(place, before, before.claimed(self.id), Intent::Slot) {
            return Ok(false);
        }
        self.at(Step::DeleteClaimed)?;
        self.memory.set_tag(place, 0);
        self.at(Step::DeleteUntagged)?;
        self.count(place, -1);
        self.at(Step::DeleteCounted)?;
        self.memory.publish(place.at, before.next(false));
        Ok(true)
    }

    /// Finds the slot that holds the key, and the state under which it does. It may be locked.
    /// Errors: `Moved`, if this memory was replaced: then a missing row proves nothing.
    #[inline(always)]
    pub fn find(&self, key: &Key) -> Result<Option<(Place, State)>, Error> {
        let found = self.memory.find(key);
        if found.is_none() && self.memory.is_gone() {
            return Err(Error::Moved);
        }
        Ok(found)
    }

    /// Takes the insert lock of a bucket, so that two inserts of the same key see each other's row.
    pub fn lock_insert(&self, bucket: usize, wait: &mut Wait) -> Result<State, Error> {
        let lock = self.memory.insert_lock(bucket);
        self.intend(Intent::InsertLock, bucket as u64 + 1);
        loop {
            let seen = State(lock.load(Acquire));
            if !seen.is_open() {
                self.wait(lock, seen, wait)?;
                continue;
            }
            let held = seen.held(self.id, Kind::Claim);
            if lock.compare_exchange(seen.0, held.0, AcqRel, Relaxed).is_ok() {
                if self.memory.is_gone() {
                    return Err(Error::Moved);
                }
                self.at(Step::InsertLocked)?;
                return Ok(seen);
            }
        }
    }

    pub fn unlock_insert(&self, bucket: usize, seen: State) {
        self.memory.insert_lock(bucket).store(seen.next(false).0, Release);
    }

    /// Waits until a word is no longer as it was seen: for a moment, and then by asking whether its owner
    /// lives. If it does not, what it left is finished. To be called with no slot held.
    #[cold]
    pub fn wait(&self, word: &AtomicU64, seen: State, wait: &mut Wait) -> Result<(), Error> {
        for _ in 0..SPINS {
            if word.load(Acquire) != seen.0 {
                return Ok(());
            }
            spin();
        }
        // In replaced memory locks mean nothing, and nothing frees them.
        if self.memory.resize().0 == 0 {
            return Err(Error::Moved);
        }
        if seen.is(Kind::Frozen) {
            return self.wait_for_resize(word, seen, wait);
        }
        loop {
            let who = self.memory.who(seen.owner());
            // Behind `who`: if the word is as it was, this is who holds it.
            if word.load(Acquire) != seen.0 {
                return Ok(());
            }
            if is_vacant(who) {
                self.memory.free_stray(word, seen);
                return Ok(());
            }
            if self.memory.is_dead(seen.owner(), who) {
                return self.recover(seen.owner(), who);
            }
            wait.pause(self.patience, who)?;
        }
    }
}

/// Time for which a call does not ask whether it is to be given up.
#[cfg(not(loom))]
const UNHEARD: Duration = Duration::from_millis(50);

#[cfg(not(loom))]
fn is_vacant(who: u64) -> bool {
    crate::memory::process::pid(who) == 0
}
#[cfg(loom)]
fn is_vacant(who: u64) -> bool {
    who == 0
}

#[cfg(not(loom))]
const SPINS: u32 = 200;
#[cfg(loom)]
const SPINS: u32 = 1;

/// Returns whether a call should be given up.
pub type Ask = fn() -> bool;

/// Time that a call has waited for others that live.
#[derive(Default)]
pub struct Wait {
    /// Asked now and then, in a call that may take long; and when it was.
    #[cfg(not(loom))]
    ask: Option<(Ask, Instant)>,
    #[cfg(not(loom))]
    since: Option<Instant>,
    #[cfg(not(loom))]
    pauses: u32,
}

impl Wait {
    #[cfg(not(loom))]
    pub fn unless(ask: Ask) -> Wait {
        Wait { ask: Some((ask, Instant::now())), ..Wait::default() }
    }

    #[cfg(loom)]
    pub fn unless(_: Ask) -> Wait {
        Wait::default()
    }

    /// Errors: `Interrupted`, if the call is to be given up.
    pub fn listen(&mut self) -> Result<(), Error> {
        #[cfg(not(loom))]
        if let Some((ask, asked)) = &mut self.ask {
            if asked.elapsed() >= UNHEARD {
                *asked = Instant::now();
                if ask() {
                    return Err(Error::Interrupted);
                }
            }
        }
        Ok(())
    }

    #[cfg(not(loom))]
    pub fn pause(&mut self, patience: Duration, who: u64) -> Result<(), Error> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= patience {
            return Err(Error::RowBusy { pid: crate::memory::process::pid(who) });
        }
        self.listen()?;
        // First it may only have been pushed off its core; later it sleeps.
        match self.pauses {
            0..8 => std::thread::yield_now(),
            n => std::thread::sleep(Duration::from_micros(50 << (n - 8).min(4))),
        }
        self.pauses += 1;
        Ok(())
    }

    #[cfg(loom)]
    pub fn pause(&mut self, _patience: Duration, _who: u64) -> Result<(), Error> {
        spin();
        Ok(())
    }
}
