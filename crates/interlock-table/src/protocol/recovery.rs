//! Finishes or undoes the unfinished write of a dead writer.
//!
//! Any number may be at it at once, and each may be overtaken or die: every change is a compare-and-swap
//! from exactly the word that the dead one left, read before it was made sure who left it. A move is
//! decided by its source, so the target comes first: while the source is held, everybody decides alike.
//! What cannot be done by one word, copying an image in place, is taken over: from then on it is the
//! recoverer's own write, out of a scratch row that it keeps for that, and it in turn is not overtaken
//! while it lives.

use crate::error::Error;
use crate::fault::Step;
use crate::layout::geometry::{control, INTENTS, WHO};
use crate::layout::state::{Kind, State};
use crate::memory::{Memory, Place};
use crate::protocol::slot;
use crate::protocol::writer::{Intent, Writer};
use crate::sync::{AtomicU64, Ordering::*};

/// Intents: slots that a participant said it was about to hold.
struct Intents {
    insert_lock: Option<usize>,
    slot: Option<Place>,
    target: Option<Place>,
}

impl Memory {
    fn intents(&self, id: u64) -> Intents {
        let Some(at) = self.geometry.participant(id) else {
            return Intents { insert_lock: None, slot: None, target: None };
        };
        let [lock, slot, target] = [0, 1, 2].map(|n| self.word(at + INTENTS + n).load(Acquire));
        let bucket = (lock as usize).checked_sub(1).filter(|n| *n < self.geometry.buckets());
        Intents { insert_lock: bucket, slot: self.slot_of(slot), target: self.slot_of(target) }
    }

    /// Slots and insert locks that a participant holds.
    pub fn held_by(&self, id: u64) -> u64 {
        let Intents { insert_lock, slot, target } = self.intents(id);
        let is_own = |state: State| u64::from(state.owner() == id);
        let lock = insert_lock.map(|bucket| State(self.insert_lock(bucket).load(Acquire)));
        // Both may name one slot, the target of an earlier move.
        let slots = [slot, target.filter(|target| Some(*target) != slot)];
        let slots = slots.into_iter().flatten().map(|place| self.state(place.at));
        lock.into_iter().chain(slots).map(is_own).sum()
    }

    /// Frees all that a dead participant held, but for a row half copied: that takes a scratch row of the
    /// living. Returns whether nothing is held by it any more.
    fn release(
        &self,
        id: u64,
        who: u64,
        step: &impl Fn(Step) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let intents = self.intents(id);
        // Behind every word that decides: if it is somebody else's number by now, the word is no longer
        // what was left, or will not be when it is swapped.
        let left = |state: State| state.owner() == id && self.who(id) == who;
        let source = intents.slot.map(|place| (place, self.state(place.at)));
        let marked = intents.slot.and_then(|place| self.counted(id, place, Intent::Slot));
        if let Some(target) = intents.target {
            let state = self.state(target.at);
            let counted = self.counted(id, target, Intent::MoveTarget);
            if left(state) && state.is_claimed() && Some(target) != intents.slot {
                let moved = source.is_some_and(|(_, at)| at.owner() == id && at.is(Kind::Moved));
                if let Some(counted) = counted.filter(|_| state.is(Kind::Over) != moved) {
                    counted.change(if moved { 1 } else { -1 });
                    step(Step::RecoveredCounted)?;
                }
                self.swap(target.at, state, state.next(moved));
            }
            step(Step::RecoveredTarget)?;
        }
        if let (Some((place, state)), Some(counted)) = (source, marked) {
            if left(state) && state.has_image() {
                return Ok(false);
            }
            if left(state) {
                let live = match state {
                    _ if state.is(Kind::Claim) => counted.is_changed(),
                    _ if state.is(Kind::Over) || state.is(Kind::Moved) => {
                        counted.change(-1);
                        step(Step::RecoveredCounted)?;
                        false
                    }
                    _ => state.is_live(),
                };
                self.swap(place.at, state, state.next(live));
            }
        }
        step(Step::RecoveredSlots)?;
        let resize = self.resize();
        if left(resize) && self.give_up(resize) {
            step(Step::ResizeGivenUp)?;
        }
        if let Some(bucket) = intents.insert_lock {
            let lock = self.insert_lock(bucket);
            let state = State(lock.load(Acquire));
            if left(state) {
                // Failing, it was freed by another.
                let _ = lock.compare_exchange(state.0, state.next(false).0, AcqRel, Relaxed);
            }
        }
        Ok(true)
    }

    /// Frees what a dead participant held, and its number, if no row is half copied.
    pub fn retire(&self, id: u64, who: u64) -> bool {
        let free = self.release(id, who, &|_| Ok(())).unwrap_or(false);
        let vacated = free && self.vacate(id, who);
        if vacated {
            self.count(control::RECOVERED);
        }
        vacated
    }

    /// Frees a lock of a vacant number, if it is still exactly this one. A number is given back
    /// after its last lock, so that only damaged memory has one, such as a file after a power
    /// failure. A row whose full image was elsewhere is deleted.
    pub fn free_stray(&self, word: &AtomicU64, seen: State) {
        let in_place = !seen.has_image() && !seen.is_claimed() && !seen.is(Kind::Moved);
        let free = seen.next(seen.is_live() && in_place);
        // Failing, it is no longer there.
        let _ = word.compare_exchange(seen.0, free.0, AcqRel, Relaxed);
    }

    /// Frees a number; its next owner gets another version of it.
    pub fn vacate(&self, id: u64, who: u64) -> bool {
        let Some(at) = self.geometry.participant(id) else { return false };
        // Release: the next owner of the number has seen that its locks are free.
        self.word(at + WHO).compare_exchange(who, vacant(who), AcqRel, Relaxed).is_ok()
    }
}

#[cfg(not(loom))]
use crate::memory::process::vacant;
#[cfg(loom)]
fn vacant(_who: u64) -> u64 {
    0
}

impl Writer<'_> {
    /// Finishes what a dead participant left, and gives its number back.
    pub fn recover(&self, id: u64, who: u64) -> Result<(), Error> {
        let memory = self.memory;
        while !memory.release(id, who, &|step| self.at(step))? {
            let Some(place) = memory.intents(id).slot else { continue };
            let state = memory.state(place.at);
            if state.owner() == id && state.has_image() && memory.who(id) == who {
                self.redo(place, state)?;
            }
        }
        if memory.vacate(id, who) {
            memory.count(control::RECOVERED);
        }
        Ok(())
    }

    /// Takes over a row that a dead owner had half copied, and finishes it.
    fn redo(&self, place: Place, left: State) -> Result<(), Error> {
        let memory = self.memory;
        let Some(image) = memory.image(left) else { return Ok(()) };
        let own = self.scratch(true);
        slot::copy(image, own);
        self.at(Step::RedoFilled)?;
        // If it succeeds, the image was what it was until now, for the lock stood on it.
        if self.lock(place, left, left.held(self.id, Kind::Redo), Intent::Slot) {
            self.at(Step::RedoTaken)?;
            self.copy(own, memory.value(place.at), Step::RedoHalfCopied)?;
            self.at(Step::RedoCopied)?;
            memory.publish(place.at, left.next(true));
        }
        Ok(())
    }
}

impl Memory {
    /// Copies a half-copied row of a dead participant in place, when no other process has the table
    /// open.
    #[cfg(not(loom))]
    pub fn redo_alone(&self, id: u64) {
        let Some(place) = self.intents(id).slot else { return };
        let state = self.state(place.at);
        if state.owner() == id && state.has_image() {
            if let Some(image) = self.image(state) {
                slot::copy(image, self.value(place.at));
                self.publish(place.at, state.next(true));
            }
        }
    }
}
