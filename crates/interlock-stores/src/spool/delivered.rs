//! The file `delivered`: the place up to which messages are delivered, written each second without a sync.
//!
//! The journal forgets whole segments and syncs them. This file survives the process: after a kill,
//! only messages of the last second are sent again.
//!
//! After a crash of the machine it may be older than the journal, which costs nothing, or name a
//! place that the journal has lost. Opening the spool writes and syncs it before a message gets
//! that place.

use std::io;

use interlock_journal::storage::{read_all, File, Fill, Storage};

const DELIVERED: &str = "delivered";
const DELIVERED_NEW: &str = "delivered.new";
const MAGIC: &[u8; 8] = b"ILDELIVE";
const LENGTH: usize = 36;

/// The file, open to be written.
pub struct Delivered<F> {
    file: F,
    origin: u128,
    place: u64,
}

/// Returns the place in the file of the spool of this origin; 0 if the file is missing or
/// incomplete.
pub fn read_delivered(storage: &impl Storage, origin: u128) -> io::Result<u64> {
    let mut bytes = Vec::new();
    match storage.open(DELIVERED).and_then(|file| read_all(&file, &mut bytes)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    }
    let Some(place) = bytes.get(24..32) else { return Ok(0) };
    let place = u64::from_le_bytes(place.try_into().expect("8"));
    Ok(if bytes == encode(origin, place) { place } else { 0 })
}

impl<F: File> Delivered<F> {
    /// Creates the file again; it is on disk when this returns.
    pub fn begin<S: Storage<File = F>>(storage: &S, origin: u128, place: u64) -> io::Result<Self> {
        let file = storage.create(DELIVERED_NEW, LENGTH as u64, Fill::Reserved)?;
        file.write(0, &encode(origin, place))?;
        file.sync()?;
        storage.rename(DELIVERED_NEW, DELIVERED)?;
        Ok(Delivered { file, origin, place })
    }

    /// Notes a place that is further.
    pub fn note(&mut self, place: u64) -> io::Result<()> {
        if place > self.place {
            self.file.write(0, &encode(self.origin, place))?;
            self.place = place;
        }
        Ok(())
    }
}

fn encode(origin: u128, place: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(origin.to_le_bytes());
    bytes.extend(place.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}
