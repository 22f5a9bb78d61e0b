//! The file `origin`: who a spool is for those who receive from it, and a number above which it gave none.

use std::io;

use interlock_journal::storage::{read_all, File, Fill, Storage};

const ORIGIN: &str = "origin";
const ORIGIN_NEW: &str = "origin.new";
const MAGIC: &[u8; 8] = b"ILORIGIN";

/// Returns the origin and the number that are kept, and whether there is something that cannot be read.
pub fn read_origin(storage: &impl Storage) -> io::Result<(Option<(u128, u64)>, bool)> {
    let mut bytes = Vec::new();
    match storage.open(ORIGIN).and_then(|file| read_all(&file, &mut bytes)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, false)),
        Err(error) => return Err(error),
    }
    let whole = bytes.len() == 36
        && bytes[..8] == *MAGIC
        && crc32c::crc32c(&bytes[..32]).to_le_bytes() == bytes[32..];
    if !whole {
        return Ok((None, true));
    }
    let origin = u128::from_le_bytes(bytes[8..24].try_into().expect("16"));
    let number = u64::from_le_bytes(bytes[24..32].try_into().expect("8"));
    Ok((Some((origin, number)), false))
}

pub fn write_origin(storage: &impl Storage, origin: u128, number: u64) -> io::Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(origin.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    let file = storage.create(ORIGIN_NEW, 0, Fill::Reserved)?;
    file.write(0, &bytes)?;
    file.sync()?;
    storage.rename(ORIGIN_NEW, ORIGIN)
}
