//! The files of a store that are not written to any more: which there are, and which go.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::file::settings::Retention;

/// A closed file and its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Its path, without what compression adds.
    pub path: String,
    pub chain: usize,
    /// Its number in the chain.
    pub number: u64,
    pub bytes: u64,
    /// Time of its last message.
    pub time: u64,
    /// True if it is compressed, or cannot be.
    pub compressed: bool,
}

/// Closed files, by the time of their last message.
#[derive(Clone, Debug, Default)]
pub struct Files {
    all: BTreeMap<Key, Closed>,
    by_path: HashMap<String, Key>,
    bytes: u64,
    /// Files to be compressed.
    raw: BTreeSet<Key>,
}

/// The time of its last message, its chain, and its number in that.
type Key = (u64, usize, u64);

impl Files {
    pub fn add(&mut self, closed: Closed) {
        let key = key_of(&closed);
        self.bytes += closed.bytes;
        if !closed.compressed {
            self.raw.insert(key);
        }
        self.by_path.insert(closed.path.clone(), key);
        if let Some(before) = self.all.insert(key, closed) {
            self.bytes -= before.bytes;
        }
    }

    pub fn count(&self) -> u64 {
        self.all.len() as u64
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file that has to go first, if one has to: `others` are bytes of those that are written to.
    pub fn to_go(&self, retention: Retention, now: u64, others: u64) -> Option<Closed> {
        let oldest = self.all.values().next()?;
        let old = retention.age.is_some_and(|age| oldest.time.saturating_add(age) <= now);
        let many = retention.bytes.is_some_and(|bytes| self.bytes + others > bytes);
        (old || many).then(|| oldest.clone())
    }

    pub fn remove(&mut self, closed: &Closed) {
        if let Some(gone) = self.all.remove(&key_of(closed)) {
            self.bytes -= gone.bytes;
            if self.by_path.get(&gone.path).is_some_and(|key| *key == key_of(&gone)) {
                self.by_path.remove(&gone.path);
            }
        }
    }

    /// The oldest file that is to be compressed.
    pub fn to_compress(&mut self) -> Option<Closed> {
        while let Some(key) = self.raw.pop_first() {
            if let Some(closed) = self.all.get(&key).filter(|closed| !closed.compressed) {
                return Some(closed.clone());
            }
        }
        None
    }

    /// A file was compressed, or left as it is; `saved` are the bytes that it has less.
    pub fn compressed(&mut self, closed: &Closed, saved: u64) {
        if let Some(one) = self.all.get_mut(&key_of(closed)) {
            one.compressed = true;
            one.bytes = one.bytes.saturating_sub(saved);
            self.bytes = self.bytes.saturating_sub(saved);
        }
    }

    /// A file has another name now.
    pub fn renamed(&mut self, from: &str, number: u64, to: &str) {
        let Some(key) = self.by_path.get(from).copied() else { return };
        if self.all.get(&key).is_none_or(|closed| closed.number != number) {
            return self.forget(from);
        }
        self.by_path.remove(from);
        self.forget(to);
        if let Some(closed) = self.all.get_mut(&key) {
            to.clone_into(&mut closed.path);
            self.by_path.insert(to.to_owned(), key);
        }
    }

    /// Another file is to have this path. The one that is known by it went without the store: whatever
    /// was to be done with it, such as to compress it, must not be done with the other one.
    pub fn forget(&mut self, path: &str) {
        if let Some(gone) = self.by_path.remove(path).and_then(|key| self.all.remove(&key)) {
            self.bytes -= gone.bytes;
        }
    }

    /// A file that was known, as it is known now.
    pub fn again(&self, closed: &Closed) -> Option<Closed> {
        self.all.get(&key_of(closed)).cloned()
    }
}

fn key_of(closed: &Closed) -> Key {
    (closed.time, closed.chain, closed.number)
}
