//! Inserting: a free slot in the order of the rows, else one move, else the oldest of the candidates.

use crate::error::Error;
use crate::fault::Step;
use crate::layout::geometry::{control, ACCESS, HASH, KEY, KEY_LENGTH, LEVELS, SLOTS};
use crate::layout::hash::{tag, Key};
use crate::layout::state::{Kind, State};
use crate::memory::{Memory, Place};
use crate::protocol::bucket::ALL;
use crate::protocol::slot;
use crate::protocol::writer::{Intent, Wait, Writer};
use crate::sync::{fence, Ordering::*};

/// Facts that an insert needs.
pub struct New<'a> {
    pub key: Key<'a>,
    /// The time at which it expires, in the table's time; 0 never.
    pub expiry: u64,
    pub row: &'a [u64],
    /// The table's time.
    pub now: u64,
    /// Time of the last access: now, but for a row that comes from elsewhere.
    pub access: u64,
    /// True if the row of another may be overwritten.
    pub evict: bool,
}

/// A slot that is held for a new row, and its state before.
type Claimed = (Place, State);

impl Memory {
    /// Returns whether the value in this slot has expired. True only as long as its state has not changed.
    #[inline]
    pub fn has_expired(&self, slot: usize, now: u64) -> bool {
        expired(self.value(slot)[0].load(Relaxed), now)
    }
}

/// Returns whether an expiry has come; 0 never does.
#[inline]
pub fn expired(expiry: u64, now: u64) -> bool {
    expiry != 0 && expiry <= now
}

impl Writer<'_> {
    /// Inserts a row, unless one of this key exists already: then returns false.
    pub fn insert(&self, new: &New, wait: &mut Wait) -> Result<bool, Error> {
        let home = self.memory.geometry.candidate(0, new.key.hash);
        let lock = self.lock_insert(home, wait)?;
        let mut inserted = Ok(false);
        // Again, for it was not locked before; an expired one is found too, and rewritten where it lies.
        if self.memory.find(&new.key).is_none() {
            inserted = self.claim(new).and_then(|claimed| self.write_new(new, claimed));
        }
        #[cfg(loom)]
        if let Err(Error::Died) = inserted {
            return inserted;
        }
        self.unlock_insert(home, lock);
        inserted
    }

    /// Writes the row into its slot and publishes it.
    fn write_new(&self, new: &New, (place, held): Claimed) -> Result<bool, Error> {
        let (memory, slot) = (self.memory, place.at);
        memory.word(slot + ACCESS).store(new.access, Relaxed);
        memory.word(slot + HASH).store(new.key.hash, Relaxed);
        memory.word(slot + KEY_LENGTH).store(new.key.bytes.len() as u64, Relaxed);
        for (kept, word) in
            memory.range(slot + KEY, memory.geometry.key_words).iter().zip(new.key.words())
        {
            kept.store(word, Relaxed);
        }
        self.at(Step::RowHalfWritten)?;
        memory.note_expiry(new.expiry);
        slot::store(new.expiry, new.row, memory.value(slot));
        self.at(Step::RowWritten)?;
        memory.set_tag(place, new.key.tag());
        self.at(Step::TagWritten)?;
        if held.is(Kind::Claim) {
            self.count(place, 1);
            self.at(Step::RowCounted)?;
        }
        memory.publish(slot, held.next(true));
        self.at(Step::RowPublished)?;
        Ok(true)
    }

    /// Holds a slot for the row.
    fn claim(&self, new: &New) -> Result<Claimed, Error> {
        let memory = self.memory;
        // Each round others may take what was seen; that all are held by others does not last.
        for _ in 0..ROUNDS {
            if let Some(claimed) = self.claim_free(new)? {
                return Ok(claimed);
            }
            if let Some(claimed) = self.claim_by_move(new)? {
                return Ok(claimed);
            }
            if memory.thaw_all() {
                continue;
            }
            if !new.evict {
                return Err(Error::TableFull);
            }
            if let Some(claimed) = self.claim_oldest(new)? {
                return Ok(claimed);
            }
            crate::sync::spin();
        }
        Err(Error::RowBusy { pid: 0 })
    }

    /// Holds a slot as nobody's, if its state is exactly this one still.
    fn hold(&self, place: Place, before: State, intent: Intent) -> Result<Option<Claimed>, Error> {
        let held = before.claimed(self.id);
        self.mark(place, intent);
        if !self.lock(place, before, held, intent) {
            return Ok(None);
        }
        self.at(if matches!(intent, Intent::Slot) {
            Step::SlotClaimed
        } else {
            Step::TargetClaimed
        })?;
        Ok(Some((place, held)))
    }

    /// The first free or expired slot in the order of the rows.
    fn claim_free(&self, new: &New) -> Result<Option<Claimed>, Error> {
        for level in 0..LEVELS {
            let bucket = self.memory.geometry.candidate(level, new.key.hash);
            if let Some(claimed) = self.claim_in(bucket, new.now, Intent::Slot)? {
                return Ok(Some(claimed));
            }
        }
        Ok(None)
    }

    /// A free or expired slot of one bucket.
    fn claim_in(&self, bucket: usize, now: u64, intent: Intent) -> Result<Option<Claimed>, Error> {
        let memory = self.memory;
        // Slots without a tag are free for certain, and seldom is it necessary to look at the others.
        let untagged = memory.tagged(bucket, 0);
        for (slots, tagged) in [(untagged, false), (ALL & !untagged, true)] {
            for index in (0..SLOTS).filter(|index| slots & 1 << index != 0) {
                let place = Place::new(&memory.geometry, bucket, index);
                let before = memory.state(place.at);
                let over = before.is_live() && tagged && memory.has_expired(place.at, now);
                if before.is_open() && (!before.is_live() || over) {
                    if let Some(claimed) = self.hold(place, before, intent)? {
                        if over {
                            memory.count(control::EXPIRED);
                        }
                        return Ok(Some(claimed));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Moves a resident of a candidate bucket to its own bucket in a later row, and holds what it leaves.
    fn claim_by_move(&self, new: &New) -> Result<Option<Claimed>, Error> {
        let memory = self.memory;
        for level in 0..LEVELS - 1 {
            let bucket = memory.geometry.candidate(level, new.key.hash);
            for index in 0..SLOTS {
                let source = Place::new(&memory.geometry, bucket, index);
                let before = memory.state(source.at);
                if !before.is_open() || !before.is_live() {
                    continue;
                }
                let hash = memory.word(source.at + HASH).load(Relaxed);
                for later in level + 1..LEVELS {
                    let bucket = memory.geometry.candidate(later, hash);
                    if self.has_room(bucket, new.now) {
                        if let Some(claimed) = self.move_row(source, before, bucket, new.now)? {
                            return Ok(Some(claimed));
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// Returns whether a bucket seems to have a slot for a row that moves: nothing is locked for nothing.
    fn has_room(&self, bucket: usize, now: u64) -> bool {
        let memory = self.memory;
        memory.tagged(bucket, 0) != 0
            || (0..SLOTS).any(|index| {
                let slot = memory.geometry.slot(bucket, index);
                let state = memory.state(slot);
                state.is_open() && (!state.is_live() || memory.has_expired(slot, now))
            })
    }

    /// Moves a row to a bucket of a later row, if its state is exactly this one still. A reader that comes
    /// from the front finds it in the one place or in the other.
    fn move_row(
        &self,
        source: Place,
        before: State,
        bucket: usize,
        now: u64,
    ) -> Result<Option<Claimed>, Error> {
        let memory = self.memory;
        let moving = before.held(self.id, Kind::Moving);
        self.mark(source, Intent::Slot);
        if !self.lock(source, before, moving, Intent::Slot) {
            return Ok(None);
        }
        self.at(Step::SourceLocked)?;
        let Some((target, held)) = self.claim_in(bucket, now, Intent::MoveTarget)? else {
            memory.publish(source.at, before.next(true));
            return Ok(None);
        };
        // All but the state.
        let words = memory.geometry.value + memory.geometry.value_words - ACCESS;
        let (from, to) = (source.at + ACCESS, target.at + ACCESS);
        self.copy(memory.range(from, words), memory.range(to, words), Step::TargetHalfCopied)?;
        memory.set_tag(target, tag(memory.word(source.at + HASH).load(Relaxed)));
        self.at(Step::TargetTagged)?;
        // From here on, a process that finds this writer dead publishes the target, before it drops
        // the copy.
        memory.publish(source.at, before.held(self.id, Kind::Moved));
        self.at(Step::SourceMoved)?;
        if held.is(Kind::Claim) {
            self.count(target, 1);
            self.at(Step::TargetCounted)?;
        }
        memory.publish(target.at, held.next(true));
        self.at(Step::TargetPublished)?;
        let left = before.next(true).claimed(self.id);
        memory.publish(source.at, left);
        self.at(Step::SourceFreed)?;
        // The new row is seen with this state.
        fence(Release);
        memory.count(control::MOVES);
        Ok(Some((source, left)))
    }

    /// Holds the slot of the row that was least recently accessed of all candidates.
    fn claim_oldest(&self, new: &New) -> Result<Option<Claimed>, Error> {
        let memory = self.memory;
        let mut oldest: Option<(u64, Place, State)> = None;
        for level in 0..LEVELS {
            let bucket = memory.geometry.candidate(level, new.key.hash);
            for index in 0..SLOTS {
                let place = Place::new(&memory.geometry, bucket, index);
                let state = memory.state(place.at);
                let access = memory.word(place.at + ACCESS).load(Relaxed);
                let older = oldest.is_none_or(|(least, ..)| access < least);
                if older && state.is_open() && state.is_live() {
                    oldest = Some((access, place, state));
                }
            }
        }
        let Some((access, place, before)) = oldest else { return Ok(None) };
        if new.access < new.now.min(access) {
            // It comes from elsewhere, and is itself the oldest.
            return Err(Error::TableFull);
        }
        let claimed = self.hold(place, before, Intent::Slot)?;
        if claimed.is_some() {
            memory.count(control::OVERWRITTEN);
        }
        Ok(claimed)
    }
}

const ROUNDS: usize = 1000;

/// Moves the row of a key to the last row of buckets, and frees what it left.
#[cfg(all(test, loom))]
pub fn move_for_model(writer: &Writer, key: &Key) -> Result<bool, Error> {
    let memory = writer.memory;
    let (source, before) = memory.find(key).expect("it is there");
    let last = memory.geometry.candidate(LEVELS - 1, key.hash);
    let Some((place, held)) = writer.move_row(source, before, last, 1)? else { return Ok(false) };
    writer.count(place, -1);
    memory.publish(place.at, held.next(false));
    Ok(true)
}
