//! The disk of a node: its checkpoints, and its ring with the entries that it has read.

use std::collections::BTreeSet;

use interlock_log::checkpoint::Place;
use interlock_log::replica::Raws;
use interlock_log::ring::{Kept, Memory, Raw, Record, Ring};

#[derive(Default)]
pub struct Disk {
    pub checkpoints: Vec<(Place, Vec<u8>)>,
    pub ring: Option<InFile>,
    /// Writes that this disk's node has done.
    pub did: BTreeSet<u64>,
}

/// A ring with the entries that its file would have.
#[derive(Clone)]
pub struct InFile {
    memory: Memory,
    raws: Vec<Raw>,
}

impl InFile {
    pub fn new(most: usize) -> Self {
        Self { memory: Memory::new(most), raws: Vec::new() }
    }

    pub fn raws(&self) -> Raws {
        let mut raws = Raws::default();
        self.raws.iter().cloned().for_each(|raw| raws.add(raw));
        raws
    }
}

impl Ring for InFile {
    fn read(&mut self, place: Place, time: u64, busy: u64, bytes: &[u8], kept: Option<Kept>) {
        let raw = Raw { place, time, bytes: bytes.to_vec() };
        let record = Record::Read(raw.clone(), kept.clone());
        assert_eq!(Record::decode(&record.encode()).as_ref(), Ok(&record));
        self.raws.push(raw);
        self.memory.read(place, time, busy, bytes, kept);
    }

    fn add(&mut self, kept: Kept) {
        self.memory.add(kept);
    }

    fn add_state(&mut self, position: u64, bytes: &[u8]) {
        self.memory.add_state(position, bytes);
    }

    fn states(&self) -> Vec<&[u8]> {
        self.memory.states()
    }

    fn has(&self, name: &[u8], number: u64) -> bool {
        self.memory.has(name, number)
    }

    fn each(&self, call: &mut dyn FnMut(&Kept) -> bool) {
        self.memory.each(call);
    }

    fn saved(&mut self, position: u64, since: u64) {
        self.raws.retain(|raw| raw.place.mark.position > position);
        self.memory.saved(position, since);
    }
}
