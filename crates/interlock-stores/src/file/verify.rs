//! All of a file compared with its checksums.

use std::io;

use crate::disk::{parent, Access, Disk};
use crate::error::StoreError;
use crate::file::frame::{self, Frame, Head};
use crate::file::index::{self, Frames, INDEX};
use crate::file::opened::{Listed, Opened};

/// The findings in one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub path: String,
    /// Messages that are whole, and bytes of their payloads.
    pub messages: u64,
    pub bytes: u64,
    /// Sequences of messages of which the payload is not what it was.
    pub changed: Vec<u64>,
    /// Frames of the index that cannot be read, by their place in bytes.
    pub unreadable: Vec<u64>,
    /// Messages that are missing by their numbers.
    pub missing: u64,
    /// True if it is closed: nothing is written to it any more.
    pub closed: bool,
}

impl Verified {
    /// Returns whether all is as it was written. The end of a file that is written to may be torn.
    pub fn is_whole(&self) -> bool {
        self.changed.is_empty() && self.unreadable.is_empty() && self.missing == 0
    }
}

/// Verifies a data file by its index. `path` is that of the data, compressed or not, without `.zst`.
///
/// # Errors
///
/// If the disk fails, if one of them is not there, or if the index is none.
pub fn verify<D: Disk>(disk: &D, path: &str) -> Result<Verified, StoreError> {
    verified(disk, path).map_err(|error| StoreError::new("verifying", &disk.describe(path), error))
}

fn verified<D: Disk>(disk: &D, path: &str) -> io::Result<Verified> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let index = disk.open(&(path.to_owned() + INDEX), Access::Read)?;
    let known =
        index::read_head(&index)?.map_err(|_| invalid("the head of its index cannot be read"))?;
    let head: Head = known.head;
    let listed = Listed { path: path.to_owned(), head, limit: u64::MAX };
    let mut file = Opened::open(disk, &listed, true)?
        .ok_or_else(|| invalid(&format!("it was renamed just now, in {:?}", parent(path))))?;
    let mut found = Verified { path: path.to_owned(), ..Verified::default() };
    let mut frames = Frames::new(&index, u64::from(head.frames));
    let mut next = head.first;
    loop {
        let place = frames.place();
        let Some(bytes) = frames.next()? else { break };
        match frame::decode(bytes, head.salt) {
            Ok(Frame::Message(record)) => {
                found.missing += record.sequence.saturating_sub(next);
                next = record.sequence + 1;
                match file.payload(&record)? {
                    Some(payload) => {
                        found.messages += 1;
                        found.bytes += payload.len() as u64;
                    }
                    None => found.changed.push(record.sequence),
                }
            }
            Ok(Frame::Mark(mark)) => found.missing += mark.next.saturating_sub(next),
            Ok(Frame::Closed(mark)) => {
                found.missing += mark.next.saturating_sub(next);
                found.closed = true;
            }
            Ok(_) => {}
            Err(_) => found.unreadable.push(place * frame::FRAME as u64),
        }
    }
    Ok(found)
}
