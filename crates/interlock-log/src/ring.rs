//! The ring: entries that a node has applied and can put back (rule 4).
//!
//! It also has the states joined since the newest checkpoint. A node keeps the ring in a file,
//! which survives the process. [`Memory`] keeps it in memory; the owner of the file can build on
//! it.

use std::collections::{BTreeMap, HashMap};

use crate::checkpoint::Place;
use crate::codec::{put_bytes, put_number, Damaged, Reader};
use crate::entry::{Body, Done, Entry, PutBack, MOST_NAME};

/// The effects of an entry when it was applied, and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Name and number of the entry.
    pub name: Vec<u8>,
    pub number: u64,
    /// Position in the history in which it was applied.
    pub position: u64,
    pub did: PutBack,
}

impl Kept {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.name);
        put_number(out, self.number);
        put_number(out, self.position);
        self.did.encode(out);
    }

    /// # Errors
    ///
    /// The bytes were not written by [`Kept::encode`].
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let name = reader.bytes(MOST_NAME)?.to_vec();
        let (number, position) = (reader.number()?, reader.number()?);
        Ok(Self { name, number, position, did: PutBack::decode(reader)? })
    }
}

/// An entry as it was in the log. A node needs these if the log was trimmed beyond the position of its
/// newest checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// The place after it.
    pub place: Place,
    /// The engine's time for it.
    pub time: u64,
    pub bytes: Vec<u8>,
}

/// A record of a ring file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Entry(Kept),
    /// An entry that was read, and its effects.
    Read(Raw, Option<Kept>),
    /// A joined state of this data centre, and the position after it. It is stored because no entry of the
    /// log contains it.
    State {
        position: u64,
        bytes: Vec<u8>,
    },
    /// A checkpoint was saved that has all states joined up to a position.
    Saved {
        position: u64,
    },
}

/// Approximate size of an entry's record without its commands, in bytes.
const OF_A_RECORD: usize = 256;
const ENTRY: u8 = 0;
const STATE: u8 = 1;
const SAVED: u8 = 2;
const READ: u8 = 3;

impl Record {
    /// Encodes the record of an entry.
    pub fn of(kept: &Kept) -> Vec<u8> {
        let mut out = Vec::with_capacity(kept.did.size() + OF_A_RECORD);
        out.push(ENTRY);
        kept.encode(&mut out);
        out
    }

    /// Encodes the record of an entry that was read. Each of its commands is written once.
    pub fn of_read(place: Place, time: u64, bytes: &[u8], kept: Option<&Kept>) -> Vec<u8> {
        let mut out = vec![READ];
        place.encode(&mut out);
        put_number(&mut out, time);
        put_bytes(&mut out, bytes);
        out.push(u8::from(kept.is_some()));
        if let Some(Kept { did, .. }) = kept {
            for number in [did.time, did.busy, did.writer, did.done.len() as u64] {
                put_number(&mut out, number);
            }
            for done in &did.done {
                put_number(&mut out, done.index);
                put_number(&mut out, done.stamp);
            }
            put_number(&mut out, did.denied.len() as u64);
            did.denied.iter().for_each(|index| put_number(&mut out, *index));
        }
        out
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Record::Entry(kept) => return Record::of(kept),
            Record::Read(Raw { place, time, bytes }, kept) => {
                return Record::of_read(*place, *time, bytes, kept.as_ref());
            }
            Record::State { position, bytes } => {
                out.push(STATE);
                put_number(&mut out, *position);
                put_bytes(&mut out, bytes);
            }
            Record::Saved { position } => {
                out.push(SAVED);
                put_number(&mut out, *position);
            }
        }
        out
    }

    /// # Errors
    ///
    /// The bytes are not a record of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut reader = Reader::new(bytes);
        let record = match reader.byte()? {
            ENTRY => Record::Entry(Kept::decode(&mut reader)?),
            STATE => {
                let position = reader.number()?;
                Record::State { position, bytes: reader.bytes(usize::MAX)?.to_vec() }
            }
            SAVED => Record::Saved { position: reader.number()? },
            READ => {
                let (place, time) = (Place::decode(&mut reader)?, reader.number()?);
                let bytes = reader.bytes(usize::MAX)?.to_vec();
                let kept = match reader.byte()? {
                    0 => None,
                    _ => Some(kept(&mut reader, place, &bytes)?),
                };
                Record::Read(Raw { place, time, bytes }, kept)
            }
            _ => return Err(Damaged),
        };
        reader.end()?;
        Ok(record)
    }
}

/// Decodes the effects of an entry.
fn kept(reader: &mut Reader<'_>, place: Place, bytes: &[u8]) -> Result<Kept, Damaged> {
    let entry = Entry::decode(bytes)?;
    let command = |index: u64| match &entry.body {
        Body::Commands(them) | Body::Asking(them) => {
            them.get(usize::try_from(index).ok()?).cloned()
        }
        Body::PutBack(lost) => {
            let at = lost.done.binary_search_by_key(&index, |done| done.index).ok()?;
            Some(lost.done[at].command.clone())
        }
        _ => None,
    };
    let mut did = PutBack { time: reader.number()?, busy: reader.number()?, ..PutBack::default() };
    did.writer = reader.number()?;
    for _ in 0..reader.count(2)? {
        let (index, stamp) = (reader.number()?, reader.number()?);
        did.done.push(Done { index, stamp, command: command(index).ok_or(Damaged)? });
    }
    for _ in 0..reader.count(1)? {
        did.denied.push(reader.number()?);
    }
    Ok(Kept { name: entry.name, number: entry.number, position: place.mark.position, did })
}

pub trait Ring {
    /// Keeps an entry that was read, and its effects. `busy`: busy time at which it was read.
    fn read(&mut self, _place: Place, _time: u64, _busy: u64, _bytes: &[u8], kept: Option<Kept>) {
        if let Some(kept) = kept {
            self.add(kept);
        }
    }

    /// Keeps the effects of an entry, together with those of the same entry in another history.
    fn add(&mut self, kept: Kept);

    /// Keeps a state that no entry contains, until a checkpoint at this position or later is saved.
    fn add_state(&mut self, position: u64, bytes: &[u8]);

    /// Returns the states that no checkpoint has, oldest first.
    fn states(&self) -> Vec<&[u8]>;

    /// Returns whether it keeps an entry.
    fn has(&self, name: &[u8], number: u64) -> bool;

    /// Calls a function for each entry, in the order of the node's history, until it returns false.
    fn each(&self, call: &mut dyn FnMut(&Kept) -> bool);

    /// Notes that a checkpoint was kept: entries up to its position may be dropped if they are
    /// older than a busy time or if room is needed.
    fn saved(&mut self, position: u64, since: u64);
}

/// A ring in memory.
#[derive(Debug, Clone)]
pub struct Memory {
    most: usize,
    next: u64,
    kept: BTreeMap<u64, Kept>,
    order: HashMap<(Vec<u8>, u64), u64>,
    /// The states that no checkpoint has, and the positions after them.
    states: Vec<(u64, Vec<u8>)>,
}

impl Memory {
    /// Creates a ring with room for a number of entries; entries that no checkpoint has are kept
    /// beyond that number.
    pub fn new(most: usize) -> Self {
        Self { most, next: 0, kept: BTreeMap::new(), order: HashMap::new(), states: Vec::new() }
    }

    /// Adds a record from a file.
    pub fn restore(&mut self, record: Record) {
        match record {
            Record::Entry(kept) | Record::Read(_, Some(kept)) => self.add(kept),
            Record::Read(_, None) => {}
            Record::State { position, bytes } => self.states.push((position, bytes)),
            Record::Saved { position } => {
                self.drop_states(position);
            }
        }
    }

    /// Drops the states that a checkpoint has; returns whether there were any.
    pub fn drop_states(&mut self, position: u64) -> bool {
        let before = self.states.len();
        self.states.retain(|(behind, _)| *behind > position);
        self.states.len() < before
    }

    /// Number of entries in it.
    pub fn count(&self) -> usize {
        self.kept.len()
    }
}

impl Ring for Memory {
    fn add(&mut self, mut kept: Kept) {
        let key = (kept.name.clone(), kept.number);
        let mut order = self.next;
        let there = self.order.remove(&key);
        if let Some((at, before)) = there.and_then(|at| Some((at, self.kept.remove(&at)?))) {
            order = at; // the entries that it may depend on are before this index
            if kept.did.done.is_empty() {
                kept.did.writer = before.did.writer;
            }
            for done in before.did.done {
                if let Err(at) = kept.did.done.binary_search_by_key(&done.index, |d| d.index) {
                    kept.did.denied.retain(|index| *index != done.index);
                    kept.did.done.insert(at, done);
                }
            }
        }
        self.order.insert(key, order);
        self.kept.insert(order, kept);
        self.next += 1;
    }

    fn add_state(&mut self, position: u64, bytes: &[u8]) {
        self.states.push((position, bytes.to_vec()));
    }

    fn states(&self) -> Vec<&[u8]> {
        self.states.iter().map(|(_, bytes)| &bytes[..]).collect()
    }

    fn has(&self, name: &[u8], number: u64) -> bool {
        self.order.contains_key(&(name.to_vec(), number))
    }

    fn each(&self, call: &mut dyn FnMut(&Kept) -> bool) {
        for kept in self.kept.values() {
            if !call(kept) {
                return;
            }
        }
    }

    fn saved(&mut self, position: u64, since: u64) {
        self.drop_states(position);
        let mut over = self.kept.len().saturating_sub(self.most);
        let order = &mut self.order;
        self.kept.retain(|_, kept| {
            if kept.position > position || (over == 0 && kept.did.busy >= since) {
                return true;
            }
            over = over.saturating_sub(1);
            order.remove(&(kept.name.clone(), kept.number));
            false
        });
    }
}
