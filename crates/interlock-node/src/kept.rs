//! The ring of what was applied, in memory and in its file.

use std::sync::{Arc, Mutex, PoisonError};

use interlock_log::ring::{Kept, Memory, Ring as Keeps};
use interlock_stores::disk::Disk;

use crate::files::Ring;

/// The ring in memory, with its file.
pub struct InFile<D: Disk> {
    pub memory: Memory,
    pub file: Arc<Mutex<Ring<D>>>,
}

impl<D: Disk> Keeps for InFile<D> {
    fn add(&mut self, kept: Kept) {
        let mut bytes = Vec::new();
        kept.encode(&mut bytes);
        let (position, time) = (kept.position, kept.did.busy);
        self.file.lock().unwrap_or_else(PoisonError::into_inner).add(position, time, &bytes);
        self.memory.add(kept);
    }

    fn has(&self, name: &[u8], number: u64) -> bool {
        self.memory.has(name, number)
    }

    fn each(&self, call: &mut dyn FnMut(&Kept) -> bool) {
        self.memory.each(call);
    }

    fn saved(&mut self, position: u64, since: u64) {
        self.memory.saved(position, since);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A file that cannot be removed costs room alone; the next checkpoint tries again.
        let _ = file.saved(position, since);
    }
}
