//! All rows of a table as states, with the counts and indexes that a node needs without a scan.
//!
//! The contents depend only on the calls. So nodes that make the same calls agree on the rows at
//! each log time, the number of rows of each data centre, the forgotten keys and the checksum.

mod ahead;
mod comparison;
mod image;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashTable;

use self::ahead::KeyHasher;
pub use self::comparison::{Comparison, Difference};
pub use self::image::{Held, Image};
use super::slots::Slots;
use crate::codec::{self, Damaged, Reader};
use crate::digest::digest;
use crate::stamp;
use crate::state::{Rules, State};

/// Number of recent changes that are found without a scan of all rows.
const TAIL: usize = 100_000;
/// Longest key, in bytes.
pub const MAX_KEY: usize = 1024;

/// A row that changed: its number, key and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed<'a> {
    pub number: u64,
    pub key: &'a [u8],
    pub state: &'a [u8],
}

/// Changes that have not been shown elsewhere.
#[derive(Clone, Debug)]
pub struct Unshown<'a> {
    /// Keys that had no row any more and were forgotten. They may have a row again.
    pub gone: &'a [Box<[u8]>],
    pub changed: Vec<Changed<'a>>,
}

/// The states of all rows.
#[derive(Clone, Debug)]
pub struct Store {
    rules: Rules,
    /// Largest number of tombstones and expired rows that are kept.
    tombstones: usize,
    entries: Slots<Entry>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
    hasher: KeyHasher,
    /// Rows by the time at which they expire.
    due: BTreeSet<(u64, u32)>,
    /// Keys without a row, by the time from which they may be forgotten.
    dead: BTreeSet<(u64, Box<[u8]>)>,
    /// Number of rows by the data centre in which they were created.
    counts: Vec<(Box<[u8]>, u64)>,
    time: u64,
    changes: u64,
    newest: u64,
    dropped: u64,
    /// Upper bound of the numbers of the last changes of forgotten keys.
    forgot: u64,
    checksum: u128,
    tail: VecDeque<(u64, u32)>,
    /// Number up to which all changes have been shown elsewhere; `None`: changes are not shown.
    shown: Option<u64>,
    /// Forgotten keys whose last change was not shown.
    unshown: Vec<Box<[u8]>>,
    /// Buffer for the key and the state to store.
    both: Vec<u8>,
    /// Places of the next keys, looked up ahead.
    ahead: VecDeque<Option<u32>>,
}

#[derive(Clone, Debug)]
struct Entry {
    /// The key, followed by the state.
    both: Arc<[u8]>,
    /// Number of its last change.
    changed: u64,
    /// Hash of the key: tables grow without reading keys.
    hash: u32,
    key_size: u16,
    is_alive: bool,
    /// Its last change came from another data centre, which has the same row.
    is_theirs: bool,
}

/// Widens a hash for tables, which use its first and last bits.
fn wide(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

impl Entry {
    fn key(&self) -> &[u8] {
        &self.both[..self.key_size.into()]
    }

    fn state(&self) -> &[u8] {
        &self.both[self.key_size.into()..]
    }

    /// Its part of the checksum.
    fn digest(&self) -> u128 {
        digest(u64::from(self.key_size), &self.both)
    }
}

impl Store {
    pub fn new(rules: Rules, tombstones: usize) -> Store {
        Store {
            rules,
            tombstones,
            entries: Slots::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            hasher: KeyHasher::new(),
            due: BTreeSet::new(),
            dead: BTreeSet::new(),
            counts: Vec::new(),
            time: 0,
            changes: 0,
            newest: 0,
            dropped: 0,
            forgot: 0,
            checksum: 0,
            tail: VecDeque::new(),
            shown: None,
            unshown: Vec::new(),
            both: Vec::new(),
            ahead: VecDeque::new(),
        }
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The log time, in ms since 1970.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Number of rows that exist.
    pub fn rows(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// Number of rows that exist and were created in this data centre.
    pub fn rows_of(&self, dc: &str) -> u64 {
        let found = self.counts.iter().find(|(name, _)| **name == *dc.as_bytes());
        found.map_or(0, |(_, count)| *count)
    }

    /// Number of keys that are remembered without a row.
    pub fn tombstones(&self) -> usize {
        self.dead.len()
    }

    /// Number of keys without a row that were forgotten early to make room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Number of the last change.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Highest reading of all stamps stored here.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Notes a reading: from then on `newest` is at least this high.
    pub fn saw(&mut self, reading: u64) {
        self.newest = self.newest.max(reading);
    }

    /// Checksum of all rows, and of the states of keys without a row.
    pub fn checksum(&self) -> u128 {
        self.checksum
    }

    /// Returns the state of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.entry(self.find(key)?).map(Entry::state)
    }

    /// Returns whether the key has a row.
    pub fn is_alive(&self, key: &[u8]) -> bool {
        self.find(key).and_then(|slot| self.entry(slot)).is_some_and(|entry| entry.is_alive)
    }

    /// Returns the place of a key, valid until the time passes or another key is set.
    pub fn place(&self, key: &[u8]) -> Option<u32> {
        self.find(key)
    }

    /// Returns the state at a place.
    pub fn state_at(&self, place: u32) -> Option<&[u8]> {
        self.entry(place).map(Entry::state)
    }

    /// Sets the state of a key. `reading` is the highest of its new stamps.
    pub fn put(&mut self, key: &[u8], state: &State, reading: u64) {
        self.put_at(self.find(key), key, state, reading);
    }

    /// Like `put`, for a key whose place is known; `None` if it has none yet.
    pub fn put_at(&mut self, place: Option<u32>, key: &[u8], state: &State, reading: u64) {
        self.newest = self.newest.max(reading);
        if place.is_some_and(|slot| self.goes_on(slot, state)) {
            return;
        }
        let hash_of_key = match place.and_then(|slot| self.entry(slot)) {
            Some(entry) => entry.hash,
            None => self.hash(key),
        };
        let slot = place.unwrap_or_else(|| {
            let slot = self.free.pop().unwrap_or(self.entries.len() as u32);
            if slot as usize == self.entries.len() {
                self.entries.add();
            }
            let entries = &self.entries;
            let hash = |slot: &u32| entries.get(*slot as usize).map_or(0, |entry| entry.hash);
            self.by_key.insert_unique(wide(hash_of_key), slot, |slot| wide(hash(slot)));
            slot
        });
        self.take_out(slot);
        self.both.clear();
        self.both.extend_from_slice(key);
        self.both.extend_from_slice(state.as_bytes());
        let (both, key_size) = (self.both[..].into(), key.len() as u16);
        let (changed, hash, is_alive, is_theirs) = (0, hash_of_key, false, false);
        let entry = Entry { both, changed, hash, key_size, is_alive, is_theirs };
        *self.entries.get_mut(slot as usize) = Some(entry);
        self.number(slot);
        self.put_in(slot);
        self.limit();
    }

    /// Notes that another data centre has the same row.
    pub fn is_theirs(&mut self, key: &[u8]) {
        if let Some(slot) = self.find(key) {
            if let Some(entry) = self.entries.get_mut(slot as usize) {
                entry.is_theirs = true;
            }
        }
    }

    /// Has a row sent again to another data centre, which has lost changes of it.
    pub fn tell_again(&mut self, key: &[u8]) {
        let Some(slot) = self.find(key) else { return };
        if let Some(entry) = self.entries.get_mut(slot as usize) {
            entry.is_theirs = false;
        }
        self.number(slot);
    }

    /// Sets the state of an existing row if the new state is of the same life, so that counts and
    /// times stay the same. Returns whether it did.
    fn goes_on(&mut self, slot: u32, state: &State) -> bool {
        let Some(entry) = self.entries.get(slot as usize) else { return false };
        if !entry.is_alive || !self.rules.is_same_life(entry.state(), state.as_bytes()) {
            return false;
        }
        self.checksum = self.checksum.wrapping_sub(entry.digest());
        let Some(entry) = self.entries.get_mut(slot as usize) else { return false };
        let key_size = usize::from(entry.key_size);
        let is_as_long = entry.both.len() == key_size + state.as_bytes().len();
        match Arc::get_mut(&mut entry.both).filter(|_| is_as_long) {
            Some(both) => both[key_size..].copy_from_slice(state.as_bytes()),
            // An image shares the old state, or the new state has another length.
            None => {
                self.both.clear();
                self.both.extend_from_slice(entry.key());
                self.both.extend_from_slice(state.as_bytes());
                entry.both = self.both[..].into();
            }
        }
        entry.is_theirs = false;
        self.checksum = self.checksum.wrapping_add(entry.digest());
        self.number(slot);
        true
    }

    /// Lets `change` overwrite bytes of an existing row's state, except those of its life. `None`:
    /// it changed nothing, or an image shares the state.
    pub fn change_at<R>(
        &mut self,
        place: u32,
        reading: u64,
        change: impl FnOnce(&mut [u8]) -> Option<R>,
    ) -> Option<R> {
        let entry = self.entries.get(place as usize).filter(|entry| entry.is_alive)?;
        let before = entry.digest();
        let entry = self.entries.get_mut(place as usize).as_mut()?;
        let key_size = usize::from(entry.key_size);
        let changed = change(&mut Arc::get_mut(&mut entry.both)?[key_size..])?;
        entry.is_theirs = false;
        self.changes += 1;
        entry.changed = self.changes;
        self.checksum = self.checksum.wrapping_sub(before).wrapping_add(entry.digest());
        self.newest = self.newest.max(reading);
        self.add_to_tail(place);
        Some(changed)
    }

    /// Advances the log time: rows expire, and old tombstones are forgotten.
    pub fn advance(&mut self, time: u64) {
        if time <= self.time {
            return;
        }
        self.time = time;
        let mut expired = Vec::new();
        while let Some((_, slot)) = self.due.first().copied().filter(|(due, _)| *due <= time) {
            self.due.pop_first();
            expired.push(slot);
        }
        // Nodes have different slots but the same keys.
        let key = |slot: &u32| self.entry(*slot).map(Entry::key);
        expired.sort_unstable_by(|one, other| key(one).cmp(&key(other)));
        for slot in expired {
            self.uncount(slot);
            self.number(slot);
            self.put_in_dead(slot);
        }
        while self.dead.first().is_some_and(|(at, _)| *at <= time) {
            self.forget();
        }
        self.limit();
    }

    /// The next log time at which something expires. `None`: nothing expires.
    pub fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Returns rows that changed or expired after a number, at most `most`, oldest change first.
    pub fn changed_since(&self, number: u64, most: usize) -> Vec<Changed<'_>> {
        let changed = |slot: usize| {
            let entry = self.entries.get(slot)?;
            let (key, state) = (entry.key(), entry.state());
            Some(Changed { number: entry.changed, key, state })
        };
        if self.is_in_tail(number) {
            let from = self.tail.partition_point(|(at, _)| *at <= number);
            let last = self.tail.range(from..).filter_map(|(at, slot)| {
                changed(*slot as usize).filter(|changed| changed.number == *at)
            });
            return last.take(most).collect();
        }
        let all = (0..self.entries.len()).filter_map(changed);
        let mut found: Vec<_> = all.filter(|changed| changed.number > number).collect();
        found.sort_unstable_by_key(|changed| changed.number);
        found.truncate(most);
        found
    }

    fn is_in_tail(&self, number: u64) -> bool {
        number >= self.changes || self.tail.front().is_some_and(|(first, _)| *first <= number + 1)
    }

    /// Like `changed_since`, without copying bytes. `None`: a scan of all rows is needed, or a key
    /// that changed after the number may be forgotten; use [`Store::image`] then.
    pub fn held_since(&self, number: u64, most: usize) -> Option<Vec<Held>> {
        if !self.is_in_tail(number) || self.forgot > number {
            return None;
        }
        let from = self.tail.partition_point(|(at, _)| *at <= number);
        let last = self.tail.range(from..).filter_map(|(at, slot)| {
            self.entry(*slot).filter(|entry| entry.changed == *at).cloned().map(Held)
        });
        Some(last.take(most).collect())
    }

    /// Returns all changes since [`Store::shown`] was called. `None`: it has not been called since
    /// this store was made, so all rows must be shown.
    pub fn unshown(&self) -> Option<Unshown<'_>> {
        let shown = self.shown?;
        let changed = self.changed_since(shown, usize::MAX);
        Some(Unshown { gone: &self.unshown, changed })
    }

    /// Notes that everything here has been shown elsewhere.
    pub fn shown(&mut self) {
        self.shown = Some(self.changes);
        self.unshown.clear();
    }

    /// Iterates over all states, also of keys without a row, in any order.
    pub fn iter(&self) -> impl Iterator<Item = Changed<'_>> {
        self.entries.iter().map(|entry| Changed {
            number: entry.changed,
            key: entry.key(),
            state: entry.state(),
        })
    }

    /// Returns all states, also of keys without a row, in the order of their last change.
    pub fn all(&self) -> Vec<Changed<'_>> {
        self.changed_since(0, usize::MAX)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_part(0, usize::MAX, out);
    }

    /// Like `encode`, for at most `most` rows that changed after a number. Returns the number of
    /// the last row.
    pub fn encode_part(&self, since: u64, most: usize, out: &mut Vec<u8>) -> u64 {
        for number in [self.time, self.changes, self.newest, self.dropped] {
            codec::put_number(out, number);
        }
        let rows = self.changed_since(since, most);
        codec::put_number(out, rows.len() as u64);
        for row in &rows {
            codec::put_number(out, row.number);
            codec::put_bytes(out, row.key);
            codec::put_bytes(out, row.state);
        }
        rows.last().map_or(since, |row| row.number)
    }

    /// Returns a snapshot for another thread to write while the store changes.
    pub fn image(&self) -> Image {
        Image {
            numbers: [self.time, self.changes, self.newest, self.dropped],
            forgot: self.forgot,
            rules: self.rules.clone(),
            entries: self.entries.clone(),
        }
    }

    /// # Errors
    ///
    /// The bytes were not written by `encode` for such rules.
    pub fn decode(rules: Rules, tombstones: usize, from: &mut Reader) -> Result<Store, Damaged> {
        let mut store = Store::new(rules, tombstones);
        store.time = from.number()?;
        let changes = from.number()?;
        let newest = from.number()?;
        store.dropped = from.number()?;
        let count = from.count(3)?;
        store.by_key.reserve(count, |_| 0);
        for _ in 0..count {
            let number = from.number()?;
            let key = from.bytes(MAX_KEY)?;
            let state = store.rules.check(from.bytes(usize::MAX)?).map_err(|_| Damaged)?;
            if number <= store.changes || number > changes || store.find(key).is_some() {
                return Err(Damaged);
            }
            store.changes = number - 1;
            store.put_at(None, key, &state, 0);
            if store.changes != number {
                return Err(Damaged);
            }
        }
        if newest >= stamp::READINGS {
            return Err(Damaged);
        }
        // It is unknown which keys were forgotten before.
        (store.changes, store.newest, store.forgot) = (changes, newest, changes);
        Ok(store)
    }

    fn find(&self, key: &[u8]) -> Option<u32> {
        self.find_hashed(self.hash(key), key)
    }

    fn find_hashed(&self, hash: u32, key: &[u8]) -> Option<u32> {
        let is_it = |slot: &u32| {
            self.entry(*slot).is_some_and(|entry| entry.hash == hash && entry.key() == key)
        };
        self.by_key.find(wide(hash), is_it).copied()
    }

    fn hash(&self, key: &[u8]) -> u32 {
        self.hasher.hash(key) as u32
    }

    fn entry(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)
    }

    /// Gives a row the next change number.
    fn number(&mut self, slot: u32) {
        self.changes += 1;
        if let Some(entry) = self.entries.get_mut(slot as usize) {
            entry.changed = self.changes;
        }
        self.add_to_tail(slot);
    }

    fn add_to_tail(&mut self, slot: u32) {
        if self.tail.len() >= TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back((self.changes, slot));
    }

    /// Adds a row to the counts, times and checksum.
    fn put_in(&mut self, slot: u32) {
        let Some(entry) = self.entries.get_mut(slot as usize) else { return };
        self.checksum = self.checksum.wrapping_add(entry.digest());
        let life = self.rules.life(entry.state());
        if !life.is_alive(self.time) {
            return self.put_in_dead(slot);
        }
        entry.is_alive = true;
        if life.expires_at > 0 {
            self.due.insert((life.expires_at, slot));
        }
        let origin = self.rules.origin(entry.state()).unwrap_or(&[]);
        match self.counts.iter_mut().find(|(dc, _)| **dc == *origin) {
            Some((_, count)) => *count += 1,
            None => self.counts.push((origin.into(), 1)),
        }
    }

    fn put_in_dead(&mut self, slot: u32) {
        if let Some(entry) = self.entry(slot) {
            let dead = (self.forgettable_at(entry), entry.key().into());
            self.dead.insert(dead);
        }
    }

    /// Returns when an entry may be forgotten: last if its row has not arrived.
    fn forgettable_at(&self, entry: &Entry) -> u64 {
        match self.rules.life(entry.state()).forgettable_at {
            0 => u64::MAX,
            at => at,
        }
    }

    fn take_out(&mut self, slot: u32) {
        let Some(entry) = self.entry(slot) else { return };
        let (hash, life) = (entry.digest(), self.rules.life(entry.state()));
        if !entry.is_alive {
            let dead = (self.forgettable_at(entry), entry.key().into());
            self.dead.remove(&dead);
        } else {
            if life.expires_at > 0 {
                self.due.remove(&(life.expires_at, slot));
            }
            self.uncount(slot);
        }
        self.checksum = self.checksum.wrapping_sub(hash);
    }

    fn uncount(&mut self, slot: u32) {
        let Some(entry) = self.entries.get_mut(slot as usize) else { return };
        entry.is_alive = false;
        let origin = self.rules.origin(entry.state()).unwrap_or(&[]);
        if let Some((_, count)) = self.counts.iter_mut().find(|(dc, _)| **dc == *origin) {
            *count -= 1;
        }
    }

    /// Removes a row and everything known about it.
    pub fn remove(&mut self, key: &[u8]) {
        let Some(slot) = self.find(key) else { return };
        self.take_out(slot);
        self.number(slot);
        self.drop_slot(slot);
    }

    /// Forgets the key without a row that may be forgotten first.
    fn forget(&mut self) {
        let Some((_, key)) = self.dead.pop_first() else { return };
        let Some(slot) = self.find(&key) else { return };
        let hash = self.entry(slot).map_or(0, Entry::digest);
        self.checksum = self.checksum.wrapping_sub(hash);
        self.drop_slot(slot);
    }

    fn drop_slot(&mut self, slot: u32) {
        let Some(entry) = self.entries.get_mut(slot as usize).take() else { return };
        if let Ok(found) = self.by_key.find_entry(wide(entry.hash), |one| *one == slot) {
            found.remove();
        }
        self.forgot = self.forgot.max(entry.changed);
        if self.shown.is_some_and(|shown| entry.changed > shown) {
            self.unshown.push(entry.key().into());
        }
        self.free.push(slot);
    }

    fn limit(&mut self) {
        while self.dead.len() > self.tombstones {
            self.forget();
            self.dropped += 1;
        }
    }
}
