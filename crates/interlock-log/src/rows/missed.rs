//! Deletes that found no row.
//!
//! An engine that has lost entries may have lost the row with them. When writes from before such a
//! delete come back, the delete must count although it did nothing at its time. So a table
//! remembers the last such deletes.

use std::collections::{BTreeMap, BTreeSet};

use interlock_rows::Command;
use interlock_table::Change;

use super::table::{Rows, When};
use super::MAX_KEY;
use crate::codec::{put_bytes, put_number, Damaged, Reader};
use crate::state::State;

/// Largest number of keys that are remembered; the earliest deletes are forgotten first.
pub const MOST_MISSED: usize = 1024;

/// The last delete that found no row, of each key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    by_key: BTreeMap<Box<[u8]>, u64>,
    by_reading: BTreeSet<(u64, Box<[u8]>)>,
}

impl Missed {
    pub fn note(&mut self, key: &[u8], reading: u64) {
        let known = self.by_key.get_mut(key);
        match known {
            Some(known) if *known >= reading => return,
            Some(known) => {
                self.by_reading.remove(&(*known, key.into()));
                *known = reading;
            }
            None => {
                self.by_key.insert(key.into(), reading);
            }
        }
        self.by_reading.insert((reading, key.into()));
        if self.by_key.len() > MOST_MISSED {
            if let Some((_, key)) = self.by_reading.pop_first() {
                self.by_key.remove(&key);
            }
        }
    }

    /// Returns the reading of a key's delete.
    pub fn of(&self, key: &[u8]) -> Option<u64> {
        self.by_key.get(key).copied()
    }

    pub fn join(&mut self, other: &Missed) {
        other.by_reading.iter().for_each(|(reading, key)| self.note(key, *reading));
    }

    pub fn all(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.by_key.iter().map(|(key, reading)| (&**key, *reading))
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.by_key.len() as u64);
        for (key, reading) in &self.by_key {
            put_bytes(out, key);
            put_number(out, *reading);
        }
    }

    /// # Errors
    ///
    /// The bytes were not written by `encode`.
    pub fn decode(from: &mut Reader<'_>) -> Result<Missed, Damaged> {
        let mut missed = Missed::default();
        let count = from.count(3)?;
        for _ in 0..count {
            let key = from.bytes(MAX_KEY)?.to_vec();
            let is_sorted = missed.by_key.last_key_value().is_none_or(|(last, _)| **last < *key);
            if !is_sorted || key.is_empty() || count > MOST_MISSED {
                return Err(Damaged);
            }
            missed.note(&key, from.number()?);
        }
        Ok(missed)
    }
}

impl Rows {
    /// Compares a lost command with the last delete of a row that found no row. If the delete is
    /// later, does it again and returns `None`: the command has no effect on the row. Otherwise
    /// returns the command's circumstances, with a reading above the delete's.
    pub(super) fn delete_missed<'a>(&mut self, key: &[u8], when: &When<'a>) -> Option<When<'a>> {
        let Some(deleted) = self.missed.of(key).filter(|_| when.lost) else { return Some(*when) };
        match (when.place)(deleted) {
            Some(reading) => Some(When { reading, ..*when }),
            None => {
                self.delete_at(key, deleted, when.time);
                None
            }
        }
    }

    /// Deletes a row at an earlier reading unless something later was done to it.
    fn delete_at(&mut self, key: &[u8], reading: u64, time: u64) {
        let when = When {
            time,
            reading,
            lineage: self.lineage.0,
            put_back: true,
            writer: None,
            late: true,
            lost: false,
            sent: None,
            place: &|existing| (reading > existing).then_some(reading),
        };
        // A delete is never refused.
        let _ = self.decide(key, &Command::Delete, &when);
    }

    /// Does a delete that found no row and is later than all of a row that now comes.
    pub(super) fn delete_before(&mut self, key: &[u8], theirs: &State) {
        let last = self.settings.rules.latest(theirs.as_bytes(), &Change::Delete);
        if let Some(reading) = self.missed.of(key).filter(|deleted| *deleted > last) {
            self.delete_at(key, reading, self.store.time());
        }
    }

    /// Joins the deletes of another history of this data centre that found no row.
    pub(super) fn take_missed(&mut self, other: &Rows) {
        for (key, reading) in other.missed.all() {
            if self.store.is_alive(key) {
                self.delete_at(key, reading, self.store.time());
            }
        }
        self.missed.join(&other.missed);
    }
}
