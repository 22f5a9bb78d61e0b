//! Copying the rows of a table into another memory, while others write.
//!
//! The first rounds copy what is there and freeze nothing; each takes what has changed since the one
//! before, which the versions tell. The last freezes, slot by slot, and copies what is left, so that
//! writers wait for that alone. It goes from the front to the back, as rows move: what it has frozen stays,
//! and what it has not yet frozen it comes to. In the first row of buckets it freezes the insert locks too,
//! and no row is inserted or moved without one.

use crate::error::Error;
use crate::fault::Step;
use crate::layout::geometry::{ACCESS, HASH, KEY, KEY_LENGTH, LEVELS, SLOTS};
use crate::layout::hash::{tag, Key};
use crate::layout::state::State;
use crate::memory::{Memory, Place};
use crate::protocol::insert::{expired, New};
use crate::protocol::slot;
use crate::protocol::writer::{Wait, Writer};
use crate::sync::Ordering::*;

/// Fate of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resized {
    /// Rows that are in the new table.
    pub moved: u64,
    /// Rows that had expired.
    pub expired: u64,
    /// Live rows that did not fit.
    pub dropped: u64,
}

/// A row with all that belongs to it.
#[derive(Default)]
struct Copied {
    key: Vec<u8>,
    access: u64,
    expiry: u64,
    row: Vec<u64>,
}

/// Facts known of a slot: the state under which it was copied, and the hash of the key that it held.
#[derive(Clone, Copy)]
struct Known {
    state: State,
    hash: u64,
}

impl Known {
    /// No slot's: its turn is to come.
    const CHANGED: State = State(u64::MAX);
}

pub struct Migration<'a> {
    from: &'a Writer<'a>,
    /// Writer of the memory that is not published yet.
    to: &'a Writer<'a>,
    /// True if the live may be dropped, the least recently accessed first.
    drop: bool,
    known: Vec<Known>,
    row: Copied,
}

impl<'a> Migration<'a> {
    pub fn new(from: &'a Writer<'a>, to: &'a Writer<'a>, drop: bool) -> Migration<'a> {
        let nothing = Known { state: State(0), hash: 0 };
        let known = vec![nothing; from.memory.geometry.slots() as usize];
        Migration { from, to, drop, known, row: Copied::default() }
    }

    /// Copies what has changed, as long as that is much: the fewer rows the last round has to copy, the
    /// shorter others wait.
    pub fn copy(&mut self, now: u64, wait: &mut Wait) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            let mut changed = 0;
            for number in 0..self.known.len() {
                if number % LISTENING == 0 {
                    wait.listen()?;
                }
                let place = self.place(number);
                changed += u64::from(self.take(number, self.from.memory.state(place.at), now)?);
            }
            if changed <= self.known.len() as u64 / 256 {
                break;
            }
        }
        Ok(())
    }

    /// Freezes everything, and copies the rest. Returns the counts of rows.
    pub fn finish(&mut self, now: u64, wait: &mut Wait) -> Result<Resized, Error> {
        let memory = self.from.memory;
        let (mut live, mut expired) = (0, 0);
        for number in 0..self.known.len() {
            if number % LISTENING == 0 {
                wait.listen()?;
            }
            let place = self.place(number);
            if place.index == 0 && place.bucket < memory.geometry.levels[0].buckets as usize {
                self.from.freeze(memory.insert_lock(place.bucket), wait)?;
            }
            let mut state = memory.state(place.at);
            if state.is_live() {
                state = self.from.freeze(memory.word(place.at), wait)?;
                self.from.at(Step::ResizeFreezing)?;
            }
            self.take(number, state, now)?;
            if state.is_live() {
                match memory.has_expired(place.at, now) {
                    true => expired += 1,
                    false => live += 1,
                }
            }
        }
        let moved = self.to.memory.count_live(now);
        if moved > live || moved < live && !self.drop {
            return Err(Error::Invalid(format!("{moved} rows were made of {live}")));
        }
        Ok(Resized { moved, expired, dropped: live - moved })
    }

    fn place(&self, number: usize) -> Place {
        Place::new(&self.from.memory.geometry, number / SLOTS, number % SLOTS)
    }

    /// Copies what a slot holds, if it has changed since it was last copied. Returns whether it had.
    fn take(&mut self, number: usize, state: State, now: u64) -> Result<bool, Error> {
        let known = self.known[number];
        if known.state.is_same(state) {
            return Ok(false);
        }
        let (place, memory) = (self.place(number), self.from.memory);
        let read = memory.copy_row(place, &mut self.row);
        let (state, hash) = read.unwrap_or((State(state.0 & !1), 0));
        self.known[number] = Known { state, hash };
        if known.state.is_live() {
            self.forget(known.hash)?;
        }
        if read.is_some() {
            self.put(hash, now)?;
        }
        Ok(true)
    }

    /// Deletes the new memory's row of this hash, if the table has none any longer.
    fn forget(&mut self, hash: u64) -> Result<(), Error> {
        let mut hashes = vec![hash];
        // Each next one is of a row that moved just now; they would never end if hashes are
        // damaged.
        for _ in 0..CHAIN {
            let Some(hash) = hashes.pop() else { return Ok(()) };
            self.forget_one(hash, &mut hashes)?;
        }
        Err(Error::Invalid("a key has two hashes: the table is damaged".to_owned()))
    }

    fn forget_one(&mut self, hash: u64, more: &mut Vec<u64>) -> Result<(), Error> {
        let (to, from) = (self.to.memory, self.from.memory);
        for level in 0..LEVELS {
            let bucket = to.geometry.candidate(level, hash);
            let mut hits = to.tagged(bucket, tag(hash));
            while hits != 0 {
                let place = Place::new(&to.geometry, bucket, hits.trailing_zeros() as usize);
                hits &= hits - 1;
                let before = to.state(place.at);
                if !before.is_live() || to.word(place.at + HASH).load(Relaxed) != hash {
                    continue;
                }
                let bytes = to.key_in(place.at);
                match from.find(&Key::hashed(&bytes, hash)) {
                    None => drop(self.to.free(place, before)?),
                    // The row has moved. Changes to it are seen in the new table.
                    Some((found, _)) => {
                        let known = &mut self.known[found.intent() as usize - 1];
                        if known.state.is_live() && known.hash == hash {
                            continue;
                        }
                        let other = std::mem::replace(known, Known { state: Known::CHANGED, hash });
                        // No other row shows that this one must be searched.
                        more.extend(other.state.is_live().then_some(other.hash));
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts the row that was copied last.
    fn put(&self, hash: u64, now: u64) -> Result<(), Error> {
        let Copied { key, access, expiry, row } = &self.row;
        let key = Key::hashed(key, hash);
        let (to, found) = (self.to, self.to.memory.find(&key));
        if expired(*expiry, now) {
            if let Some((place, before)) = found {
                to.free(place, before)?;
            }
            return Ok(());
        }
        if let Some((place, before)) = found {
            to.fill(*expiry, row);
            to.write_row(place, before)?;
            to.memory.word(place.at + ACCESS).store(*access, Relaxed);
            return Ok(());
        }
        let (access, expiry, evict) = (*access, *expiry, self.drop);
        match to.insert(&New { key, expiry, row, now, access, evict }, &mut Wait::default()) {
            Err(Error::TableFull) if self.drop => Ok(()),
            other => other.map(drop),
        }
    }
}

/// Rows that moved one after the other under the eyes of who copies them, at most.
const CHAIN: usize = 10_000;

/// Slots behind which it is asked whether to give up.
const LISTENING: usize = 4096;
/// Rounds without freezing anything, at most.
#[cfg(not(loom))]
const ROUNDS: usize = 4;
#[cfg(loom)]
const ROUNDS: usize = 1;

impl Memory {
    /// The key of a slot whose state does not change.
    pub fn key_in(&self, slot: usize) -> Vec<u8> {
        let length = self.word(slot + KEY_LENGTH).load(Relaxed) as usize;
        let words = length.div_ceil(8).min(self.geometry.key_words);
        let words = self.range(slot + KEY, words).iter();
        let mut key: Vec<u8> = words.flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        key.truncate(length);
        key
    }

    /// Copies a row, if there is one. Returns its hash, and the state under which it is whole.
    fn copy_row(&self, place: Place, copied: &mut Copied) -> Option<(State, u64)> {
        loop {
            let before = self.state(place.at);
            if !before.is_live() || before.has_image() && self.image(before).is_none() {
                return None;
            }
            copied.key = self.key_in(place.at);
            copied.access = self.word(place.at + ACCESS).load(Relaxed);
            let hash = self.word(place.at + HASH).load(Relaxed);
            copied.row.resize(self.geometry.value_words - 1, 0);
            let read = self.read_under(place.at, before, &mut |value| {
                slot::load(&value[1..], &mut copied.row);
                value[0].load(Relaxed)
            });
            if let Ok(expiry) = read {
                copied.expiry = expiry;
                return Some((before, hash));
            }
        }
    }

    fn count_live(&self, now: u64) -> u64 {
        let slots = (1..=self.geometry.slots()).filter_map(|number| self.slot_of(number));
        let live =
            |place: &Place| self.state(place.at).is_live() && !self.has_expired(place.at, now);
        slots.filter(live).count() as u64
    }
}
