//! The ring: what a node has applied and could put back (rule 4).
//!
//! A node keeps it in a file, which survives the process. [`Memory`] is its form in memory, which the
//! file's owner can build on.

use std::collections::{BTreeMap, HashMap};

use crate::codec::{put_bytes, put_number, Damaged, Reader};
use crate::entry::{PutBack, MOST_NAME};

/// The effects of an entry when it was applied, and where that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The name and the number of the entry.
    pub name: Vec<u8>,
    pub number: u64,
    /// The position in the history of then.
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
    /// The bytes are not of [`Kept::encode`].
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let name = reader.bytes(MOST_NAME)?.to_vec();
        let (number, position) = (reader.number()?, reader.number()?);
        Ok(Self { name, number, position, did: PutBack::decode(reader)? })
    }
}

pub trait Ring {
    /// Keeps what an entry did, beside what the same entry did in another history.
    fn add(&mut self, kept: Kept);

    /// True if it keeps an entry.
    fn has(&self, name: &[u8], number: u64) -> bool;

    /// Calls for each, in the order of the node's history, until it returns false.
    fn each(&self, call: &mut dyn FnMut(&Kept) -> bool);

    /// A checkpoint has been kept: what was applied up to a position may be dropped, if it is older
    /// than a busy time or if there is no room.
    fn saved(&mut self, position: u64, since: u64);
}

/// A ring in memory.
#[derive(Debug, Clone)]
pub struct Memory {
    most: usize,
    next: u64,
    kept: BTreeMap<u64, Kept>,
    order: HashMap<(Vec<u8>, u64), u64>,
}

impl Memory {
    /// A ring with room for a number of entries; what no checkpoint has it keeps beyond that.
    pub fn new(most: usize) -> Self {
        Self { most, next: 0, kept: BTreeMap::new(), order: HashMap::new() }
    }

    /// The number of entries that it keeps.
    pub fn count(&self) -> usize {
        self.kept.len()
    }
}

impl Ring for Memory {
    fn add(&mut self, mut kept: Kept) {
        let key = (kept.name.clone(), kept.number);
        if let Some(before) = self.order.remove(&key).and_then(|order| self.kept.remove(&order)) {
            for done in before.did.done {
                if let Err(at) = kept.did.done.binary_search_by_key(&done.index, |d| d.index) {
                    kept.did.denied.retain(|index| *index != done.index);
                    kept.did.done.insert(at, done);
                }
            }
        }
        self.order.insert(key, self.next);
        self.kept.insert(self.next, kept);
        self.next += 1;
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
