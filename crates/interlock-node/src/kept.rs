//! The ring of applied entries, in memory and in its file.

use std::sync::{Arc, Mutex, PoisonError};

use interlock_log::checkpoint::Place;
use interlock_log::ring::{Kept, Memory, Record, Ring as Keeps};
use interlock_stores::disk::Disk;

use crate::files::Ring;

/// The ring in memory and its file.
pub struct InFile<D: Disk> {
    pub memory: Memory,
    pub file: Arc<Mutex<Ring<D>>>,
}

impl<D: Disk> Keeps for InFile<D> {
    fn read(&mut self, place: Place, time: u64, busy: u64, bytes: &[u8], kept: Option<Kept>) {
        let record = Record::of_read(place, time, bytes, kept.as_ref());
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.add(place.mark.position, busy, &record);
        drop(file);
        self.memory.read(place, time, busy, bytes, kept);
    }

    fn add(&mut self, kept: Kept) {
        let bytes = Record::of(&kept);
        let (position, time) = (kept.position, kept.did.busy);
        self.file.lock().unwrap_or_else(PoisonError::into_inner).add(position, time, &bytes);
        self.memory.add(kept);
    }

    fn add_state(&mut self, position: u64, bytes: &[u8]) {
        let record = Record::State { position, bytes: bytes.to_vec() }.encode();
        self.file.lock().unwrap_or_else(PoisonError::into_inner).add(position, 0, &record);
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
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if self.memory.drop_states(position) {
            file.add(position, since, &Record::Saved { position }.encode());
        }
        self.memory.saved(position, since);
        // A file that cannot be removed only costs space; the next checkpoint retries.
        let _ = file.saved(position, since);
    }
}
