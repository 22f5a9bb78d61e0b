//! Keys that are shut, the messages parked under them, and what is still to be moved (clause 31).
//!
//! A key is *shut* while it is paused, or while an unsettled message that was held carries it. What waits on
//! it is *parked*: in no lane, but in the list of one key, in the order of the sequences that the messages
//! had when they were parked for the first time. When the key opens, its list is *open*, and the
//! messages of all open lists return, lowest first. A *sweep* of a key parks, buries or cancels what waits on
//! it, the last message first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::LazyLock;

use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};

use crate::key::{Key, KeyRef};
use crate::queue::parts::delays::DelayedKeys;
use crate::queue::parts::index::table;
use crate::queue::parts::lazy::Part;
use crate::queue::types::Time;

/// Facts about a message that is parked, or was.
#[derive(Debug, Default)]
pub struct Parking {
    /// Its sequence when it was parked for the first time.
    pub first: u64,
    /// Number of times that it was parked.
    pub times: u32,
    /// The time at which it was parked last.
    pub since: Time,
    /// The key in whose list it is; `None`: it is in none.
    pub under: Option<Key>,
    /// Its keys, while it is in no lane.
    pub keys: DelayedKeys,
}

/// A message that is held until others are gone, and then becomes a dead letter.
#[derive(Debug)]
pub struct Dying {
    pub message: u32,
    /// Token and error of its death, while the call lasts in which its last attempt failed.
    pub told: Option<(u64, Box<str>)>,
}

/// A message in a list: by its first sequence.
type Listed = (u64, u32);

#[derive(Debug, Default)]
pub struct Parked {
    shut: BTreeSet<Key>,
    /// The keys that are shut, or of held messages, or have lists: a message with none of them takes its places.
    minded: HashTable<Key>,
    /// Bytes of the keys' texts in all tables but `Parking::keys`, which a message's own size contains.
    text_bytes: usize,
    /// The unsettled messages of each key that were held, by id.
    stuck: BTreeMap<Key, BTreeMap<u64, u32>>,
    /// Those of each key that are held now, by sequence; the dying, too.
    held: BTreeMap<Key, BTreeSet<(u64, u32)>>,
    /// By sequence.
    dying: BTreeMap<u64, Dying>,
    /// By the message's slot.
    parkings: HashMap<u32, Parking, std::hash::RandomState>,
    lists: BTreeMap<Key, BTreeSet<Listed>>,
    /// The first of each list whose key is open.
    open: BTreeSet<Listed>,
    sweeps: VecDeque<Key>,
    /// The same keys, to be found.
    swept: BTreeSet<Key>,
    /// The last shut key that was swept because the queue has another value; empty: none yet.
    resweep: Option<Key>,
    /// Unsettled messages with a value of their own other than `wait`.
    own: u64,
    /// Messages in lists, and their bytes.
    count: u64,
    bytes: u64,
    /// A key is shut, or a message held or parked.
    busy: bool,
    /// There is something to move.
    moving: bool,
}

impl Part for Parked {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<Parked> = LazyLock::new(Parked::default);
        &EMPTY
    }
}

impl Parked {
    /// Returns whether nothing is known of any key or message.
    pub fn is_unused(&self) -> bool {
        !self.busy && !self.moving && !self.remembers() && self.stuck.is_empty() && self.own == 0
    }

    /// Returns whether a message may not be able to take its place.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// Returns whether something is still to be swept or to return.
    #[inline]
    pub fn has_moves(&self) -> bool {
        self.moving
    }

    /// Returns whether a message with this key may not be able to take its place.
    #[inline]
    pub fn minds(&self, key: &KeyRef<'_>) -> bool {
        self.minded.find(key.hash, |one| *one == *key.bytes).is_some()
    }

    /// A key entered or left one of the tables that make it a minded one.
    fn note_key(&mut self, key: &Key) {
        let bytes = key.as_bytes();
        let minds = self.shut.contains(bytes)
            || self.held.contains_key(bytes)
            || self.lists.contains_key(bytes);
        let hash = |one: &Key| KeyRef::new(one.as_bytes()).hash;
        match self.minded.entry(hash(key), |one| one == key, hash) {
            Entry::Vacant(entry) if minds => {
                self.text_bytes += bytes.len();
                entry.insert(key.clone());
            }
            Entry::Occupied(entry) if !minds => {
                self.text_bytes -= bytes.len();
                entry.remove();
                if self.minded.is_empty() && self.minded.capacity() > 1024 {
                    self.minded = HashTable::new();
                }
            }
            _ => {}
        }
        self.note();
    }

    fn note(&mut self) {
        self.busy = !self.shut.is_empty() || !self.held.is_empty() || self.count > 0;
        self.moving = !self.sweeps.is_empty() || self.resweep.is_some() || !self.open.is_empty();
    }

    /// Messages in lists.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of the messages in lists.
    pub fn payload_bytes(&self) -> u64 {
        self.bytes
    }

    /// Unsettled messages with a value of their own other than `wait`.
    pub fn own(&self) -> u64 {
        self.own
    }

    pub fn note_own(&mut self) {
        self.own += 1;
    }

    pub fn forget_own(&mut self) {
        self.own -= 1;
    }

    /// Returns whether a message that is settled may have left something here, beside its marks.
    #[inline]
    pub fn remembers(&self) -> bool {
        !self.parkings.is_empty() || !self.dying.is_empty()
    }

    // Shut keys.

    pub fn shut(&mut self, key: &Key) {
        if self.shut.insert(key.clone()) {
            self.text_bytes += key.as_bytes().len();
            let first = self.first_of(key.as_bytes());
            first.map(|first| self.open.remove(&first));
        }
        self.note_key(key);
    }

    /// A reason for which a key was shut is gone; `paused`: it is paused.
    pub fn open_unless(&mut self, key: &[u8], paused: bool) {
        if !paused && !self.stuck.contains_key(key) && self.shut.remove(key) {
            self.text_bytes -= key.len();
            let first = self.first_of(key);
            self.open.extend(first);
        }
        self.note_key(&Key::new(key));
    }

    /// A message with this key was held.
    pub fn add_stuck(&mut self, key: &Key, id: u64, message: u32) {
        let stuck = self.stuck.entry(key.clone()).or_default();
        self.text_bytes += if stuck.is_empty() { key.as_bytes().len() } else { 0 };
        stuck.insert(id, message);
        self.shut(key);
    }

    /// A message with this key that was held is settled.
    pub fn remove_stuck(&mut self, key: &[u8], id: u64, paused: bool) {
        let Some(stuck) = self.stuck.get_mut(key) else { return };
        stuck.remove(&id);
        if stuck.is_empty() {
            self.stuck.remove(key);
            self.text_bytes -= key.len();
            self.open_unless(key, paused);
        }
    }

    /// The unsettled messages of a key that were held, by id.
    pub fn stuck_on(&self, key: &[u8]) -> impl Iterator<Item = u32> + '_ {
        self.stuck.get(key).into_iter().flat_map(|stuck| stuck.values().copied())
    }

    pub fn is_stuck(&self, key: &[u8]) -> bool {
        self.stuck.contains_key(key)
    }

    pub fn add_held(&mut self, key: &Key, sequence: u64, message: u32) {
        let held = self.held.entry(key.clone()).or_default();
        self.text_bytes += if held.is_empty() { key.as_bytes().len() } else { 0 };
        held.insert((sequence, message));
        self.note_key(key);
    }

    pub fn remove_held(&mut self, key: &[u8], sequence: u64, message: u32) {
        let Some(held) = self.held.get_mut(key) else { return };
        held.remove(&(sequence, message));
        if held.is_empty() {
            self.held.remove(key);
            self.text_bytes -= key.len();
        }
        self.note_key(&Key::new(key));
    }

    /// The first message of a key that is held.
    pub fn held_on(&self, key: &[u8]) -> Option<u32> {
        self.held.get(key)?.first().map(|&(_, message)| message)
    }

    // Messages that become dead letters when others are gone.

    pub fn add_dying(&mut self, sequence: u64, dying: Dying) {
        self.dying.insert(sequence, dying);
    }

    pub fn dying_mut(&mut self, sequence: u64) -> Option<&mut Dying> {
        self.dying.get_mut(&sequence)
    }

    pub fn remove_dying(&mut self, sequence: u64) -> Option<Dying> {
        self.dying.remove(&sequence)
    }

    pub fn is_dying(&self, sequence: u64) -> bool {
        self.dying.contains_key(&sequence)
    }

    /// Those of a key that die, by sequence. O(messages of the key that are held), or O(those that die).
    pub fn dying_on(&self, key: &[u8]) -> impl Iterator<Item = (u64, u32)> + '_ {
        let held = self.held.get(key).filter(|_| !self.dying.is_empty());
        held.into_iter().flatten().copied().filter(|(sequence, _)| self.is_dying(*sequence))
    }

    /// Those that die, by sequence.
    pub fn dying(&self) -> impl ExactSizeIterator<Item = (u64, u32)> + '_ {
        self.dying.iter().map(|(&sequence, dying)| (sequence, dying.message))
    }

    // Sweeps.

    pub fn sweep(&mut self, key: &Key) {
        if self.swept.insert(key.clone()) {
            self.sweeps.push_back(key.clone());
        }
        self.note();
    }

    pub fn first_sweep(&self) -> Option<&Key> {
        self.sweeps.front()
    }

    pub fn end_sweep(&mut self) {
        if let Some(key) = self.sweeps.pop_front() {
            self.swept.remove(&key);
        }
        self.note();
    }

    pub fn is_swept(&self, key: &Key) -> bool {
        self.swept.contains(key)
    }

    pub fn sweeps(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.sweeps.iter()
    }

    /// From now on all shut keys are swept again, from this one on; `None`: none is.
    pub fn set_resweep(&mut self, key: Option<Key>) {
        self.resweep = key;
        self.note();
    }

    pub fn resweep(&self) -> Option<&Key> {
        self.resweep.as_ref()
    }

    /// Steps to the next shut key, which is to be swept again; `None`: there is none, or no more.
    pub fn next_resweep(&mut self) -> Option<Key> {
        let last = self.resweep.take()?;
        let behind = (Bound::Excluded(last.as_bytes()), Bound::Unbounded);
        let next = self.shut.range::<[u8], _>(behind).next().cloned();
        self.resweep.clone_from(&next);
        self.note();
        next
    }

    // Lists.

    /// Notes the keys of a message that is in no lane, and in no list yet.
    pub fn take_keys(&mut self, message: u32, keys: DelayedKeys) {
        self.parkings.entry(message).or_default().keys = keys;
    }

    /// A message that is in no lane enters the list of a key. `sequence`: the one that it had last.
    pub fn enter(&mut self, message: u32, key: Key, sequence: u64, now: Time, size: u64) {
        let parking = self.parkings.entry(message).or_default();
        if parking.first == 0 {
            parking.first = sequence;
        }
        parking.times += 1;
        parking.since = now;
        self.list(message, key, size);
    }

    /// Like `enter`, for one that comes out of another list.
    pub fn list(&mut self, message: u32, key: Key, size: u64) {
        let parking = self.parkings.entry(message).or_default();
        let listed = (parking.first, message);
        parking.under = Some(key.clone());
        self.text_bytes += key.as_bytes().len();
        self.count += 1;
        self.bytes = self.bytes.wrapping_add(size);
        self.change_list(key, |list| _ = list.insert(listed));
    }

    /// A message leaves its list, if it is in one.
    pub fn leave(&mut self, message: u32, size: u64) {
        let Some(parking) = self.parkings.get_mut(&message) else { return };
        let Some(key) = parking.under.take() else { return };
        let listed = (parking.first, message);
        self.text_bytes -= key.as_bytes().len();
        self.count -= 1;
        self.bytes = self.bytes.wrapping_sub(size);
        self.change_list(key, |list| _ = list.remove(&listed));
    }

    /// The payload of a message in a list was replaced.
    pub fn resize(&mut self, before: u64, size: u64) {
        self.bytes = self.bytes.wrapping_sub(before).wrapping_add(size);
    }

    fn change_list(&mut self, key: Key, change: impl FnOnce(&mut BTreeSet<Listed>)) {
        let shut = self.shut.contains(&key);
        let list = self.lists.entry(key.clone()).or_default();
        let before = list.first().copied();
        change(list);
        let after = list.first().copied();
        let length = key.as_bytes().len();
        self.text_bytes += if before.is_none() { length } else { 0 };
        self.text_bytes -= if after.is_none() { length } else { 0 };
        if list.is_empty() {
            self.lists.remove(&key);
        }
        if !shut && before != after {
            before.map(|before| self.open.remove(&before));
            self.open.extend(after);
        }
        match before.is_none() || after.is_none() {
            true => self.note_key(&key),
            false => self.note(),
        }
    }

    /// Takes back the keys of a message that takes its places.
    pub fn give_keys(&mut self, message: u32) -> DelayedKeys {
        self.parkings.get_mut(&message).map(|one| std::mem::take(&mut one.keys)).unwrap_or_default()
    }

    /// A message is settled.
    pub fn forget(&mut self, message: u32) {
        self.parkings.remove(&message);
        if self.parkings.is_empty() && self.parkings.capacity() > 1024 {
            self.parkings = HashMap::default();
        }
    }

    pub fn parking(&self, message: u32) -> Option<&Parking> {
        self.parkings.get(&message)
    }

    pub fn parkings(&self) -> impl ExactSizeIterator<Item = (u32, &Parking)> {
        self.parkings.iter().map(|(&message, parking)| (message, parking))
    }

    pub fn restore(&mut self, message: u32, parking: Parking) {
        self.parkings.insert(message, parking);
    }

    /// The message that returns next.
    pub fn first_open(&self) -> Option<u32> {
        self.open.first().map(|&(_, message)| message)
    }

    fn first_of(&self, key: &[u8]) -> Option<Listed> {
        self.lists.get(key)?.first().copied()
    }

    /// The messages in the list of a key, in their order.
    pub fn under(&self, key: &[u8]) -> impl Iterator<Item = u32> + '_ {
        self.lists.get(key).into_iter().flatten().map(|&(_, message)| message)
    }

    /// Number of messages in the list of a key.
    pub fn count_under(&self, key: &[u8]) -> u64 {
        self.lists.get(key).map_or(0, BTreeSet::len) as u64
    }

    /// Returns whether a list has a message before a first sequence; 0: any message.
    pub fn has_before(&self, key: &[u8], first: u64) -> bool {
        self.first_of(key).is_some_and(|(other, _)| first == 0 || other < first)
    }

    /// Number of messages in its list that are before a message, at most `most`.
    pub fn ahead(&self, message: u32, most: usize) -> usize {
        let Some(parking) = self.parkings.get(&message) else { return 0 };
        let list = parking.under.as_ref().and_then(|key| self.lists.get(key));
        list.map_or(0, |list| list.range(..(parking.first, 0)).take(most).count())
    }

    /// Bytes of its tables, about.
    pub fn table_bytes(&self) -> usize {
        let keys = self.shut.len() + self.stuck.len() + self.held.len() + self.lists.len();
        let swept: usize = self.sweeps.iter().map(|key| 2 * key.as_bytes().len()).sum();
        let minded = table::<Key>(self.minded.capacity());
        keys * OF_A_KEY + minded + self.text_bytes + swept + self.parkings.len() * OF_A_MESSAGE
    }
}

const OF_A_KEY: usize = 64;
const OF_A_MESSAGE: usize = 200;
