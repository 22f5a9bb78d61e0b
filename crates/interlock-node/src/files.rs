//! The files of a node: checkpoints, and a ring of the entries applied since.
//!
//! Both are in one folder, which one process locks. After a crash the intact part of a file is
//! used, and damage is reported ([`Report`]).

mod checkpoints;
mod ring;

use std::fmt;
use std::io;

use interlock_stores::disk::{Disk, Entry};
use interlock_stores::StoreError;

pub use checkpoints::{Checkpoints, Point, Reach, Saved};
pub use ring::{Kept, Limits, Ring, Unsynced};

/// A damaged file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub path: String,
    pub text: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

/// Locks the folder for this process, and creates it if it does not exist.
pub fn lock<D: Disk>(disk: &D) -> Result<D::Lock, StoreError> {
    let wrong = |error| StoreError::new("taking", &disk.describe(""), error);
    for folder in disk.make_folder("").map_err(wrong)? {
        disk.sync_folder(&folder).map_err(wrong)?;
    }
    disk.lock(LOCK).map_err(wrong)?.ok_or_else(|| {
        let error = io::Error::from(io::ErrorKind::ResourceBusy);
        let advice = "another node has this folder: give each node a folder of its own";
        StoreError::advised("taking", &disk.describe(""), error, advice)
    })
}

const LOCK: &str = "lock";

/// Returns the numbers of the files with this prefix, sorted.
fn numbered<D: Disk>(disk: &D, prefix: &str) -> Result<Vec<u64>, StoreError> {
    let listed = disk.list("").map_err(|e| StoreError::new("listing", &disk.describe(""), e))?;
    let number = |entry: &Entry| entry.name.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<u64> = listed.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn name(prefix: &str, number: u64) -> String {
    format!("{prefix}{number:020}")
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
