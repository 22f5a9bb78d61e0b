//! A snapshot of a store, for other threads while the store changes. Both share the rows.

use super::{Entry, Slots};
use crate::codec;
use crate::state::Rules;

/// Snapshot of a store.
#[derive(Clone, Debug)]
pub struct Image {
    pub(super) numbers: [u64; 4],
    pub(super) forgot: u64,
    pub(super) rules: Rules,
    pub(super) entries: Slots<Entry>,
}

/// Snapshot of a row.
#[derive(Clone, Debug)]
pub struct Held(pub(super) Entry);

impl Held {
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    pub fn state(&self) -> &[u8] {
        self.0.state()
    }

    /// Number of its last change.
    pub fn number(&self) -> u64 {
        self.0.changed
    }

    /// Returns whether its last change came from another data centre, which has the same row.
    pub fn is_theirs(&self) -> bool {
        self.0.is_theirs
    }
}

impl Image {
    /// Writes the same bytes as [`super::Store::encode`] at the time of the snapshot.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in self.numbers {
            codec::put_number(out, number);
        }
        let mut rows: Vec<&Entry> = self.entries.iter().collect();
        rows.sort_unstable_by_key(|entry| entry.changed);
        codec::put_number(out, rows.len() as u64);
        for entry in rows {
            codec::put_number(out, entry.changed);
            codec::put_bytes(out, entry.key());
            codec::put_bytes(out, entry.state());
        }
    }

    /// Number of the last change.
    pub fn changes(&self) -> u64 {
        self.numbers[1]
    }

    /// Returns whether a key that changed after a number may be forgotten.
    pub fn forgot_since(&self, number: u64) -> bool {
        self.forgot > number
    }

    /// Returns the rows that changed after a number, in the order of their last change.
    pub fn since(&self, number: u64) -> Vec<Held> {
        let later = self.entries.iter().filter(|entry| entry.changed > number);
        let mut rows: Vec<Held> = later.cloned().map(Held).collect();
        rows.sort_unstable_by_key(Held::number);
        rows
    }
}
