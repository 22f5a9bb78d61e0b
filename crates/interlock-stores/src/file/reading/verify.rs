//! Files compared with their checksums, and with each other: what is missing between them.
//!
//! It keeps the [rule of all readers](super::reader).

use std::io;

use crate::disk::{Access, Disk};
use crate::error::StoreError;
use crate::file::frame::{self, Frame, Mark};
use crate::file::index::{self, Frames, INDEX};
use crate::file::reading::listing::Listed;
use crate::file::reading::missing::{Missing, FILES_GONE};
use crate::file::reading::opened::{head_position, open_listed, position, Opened};
use crate::file::reading::survey::{survey, Chain, NO_HEAD, NO_INDEX};
use crate::message::Position;

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
    /// True if there is only its index.
    pub gone: bool,
    /// Bytes behind the last message, in the data and in the index. In the newest file of a chain they may
    /// be what is being written: if they stay they are what a crash tore off, or have lost their records.
    pub trailing: u64,
    /// Sequence of the message that comes next, and the first position that it can have.
    next: u64,
    after: Position,
}

impl Verified {
    /// Returns whether all is as it was written.
    pub fn is_whole(&self) -> bool {
        let none = self.changed.is_empty() && self.unreadable.is_empty();
        none && self.missing == 0 && !self.gone && self.trailing == 0
    }
}

/// The findings below a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllVerified {
    pub files: Vec<Verified>,
    /// Gaps between files.
    pub missing: Vec<Missing>,
    /// Unreadable files, and the reasons.
    pub unreadable: Vec<(String, &'static str)>,
}

/// Verifies all files below a folder; `file`: only this one, as for [`survey`].
///
/// # Errors
///
/// If the disk fails, or that file is not there or has no index.
pub fn verify_all<D: Disk>(disk: &D, file: Option<&str>) -> Result<AllVerified, StoreError> {
    let mut all = AllVerified::default();
    let found = survey(disk, file)?;
    for chain in &found.chains {
        verify_chain(disk, file, chain, &mut all)?;
    }
    let heads = found.unreadable.iter().map(|path| (disk.describe(path), NO_HEAD));
    let lone = found.unindexed.iter().map(|path| (disk.describe(path), NO_INDEX));
    all.unreadable = heads.chain(lone).collect();
    Ok(all)
}

fn verify_chain<D: Disk>(
    disk: &D,
    file: Option<&str>,
    chain: &Chain,
    all: &mut AllVerified,
) -> Result<(), StoreError> {
    let mut before: Option<Verified> = None;
    for (n, listed) in chain.files.iter().enumerate() {
        // It may have been removed for its age since it was found.
        let Some(one) = verify_listed(disk, file, chain, listed)? else { continue };
        if let Some(before) = before {
            let next = listed.head.first;
            let gone = next.saturating_sub(before.next);
            // The oldest may have gone for their age since they were found.
            let is_oldest = || {
                let files = files_now(disk, file, chain)?;
                let first = files.first().map_or(u64::MAX, |oldest| oldest.head.number);
                Ok::<_, StoreError>(first >= listed.head.number)
            };
            if gone > 0 && !is_oldest()? {
                let to = head_position(&listed.head);
                let from = before.after.min(to);
                let file = disk.describe(&one.path);
                all.missing.push(Missing { from, to, messages: gone, file, why: FILES_GONE });
            }
        }
        before = Some(one.clone());
        // The end of a file that was given up is not checked.
        let is_newest = n + 1 == chain.files.len();
        let trailing = if is_newest || one.closed { one.trailing } else { 0 };
        all.files.push(Verified { trailing, ..one });
    }
    Ok(())
}

/// Verifies a file that was found, wherever it is by now; `None`: it is gone.
fn verify_listed<D: Disk>(
    disk: &D,
    file: Option<&str>,
    chain: &Chain,
    listed: &Listed,
) -> Result<Option<Verified>, StoreError> {
    match open_listed(disk, listed, || files_now(disk, file, chain))? {
        Some((opened, listed)) => verified(&listed, opened)
            .map(Some)
            .map_err(|error| StoreError::new("verifying", &disk.describe(&listed.path), error)),
        None => Ok(None),
    }
}

/// The files of a chain that there are by now.
fn files_now<D: Disk>(
    disk: &D,
    file: Option<&str>,
    chain: &Chain,
) -> Result<Vec<Listed>, StoreError> {
    let found = match survey(disk, file) {
        // That one file has another name by now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found?.chains,
    };
    let is_same = |other: &Chain| (&other.store, &other.topic) == (&chain.store, &chain.topic);
    Ok(found.into_iter().find(is_same).map(|chain| chain.files).unwrap_or_default())
}

/// Verifies a data file by its index. `path` is that of the data, compressed or not, without `.zst`.
///
/// # Errors
///
/// Fails if the disk fails, if the file does not exist, or if the index is invalid.
pub fn verify<D: Disk>(disk: &D, path: &str) -> Result<Verified, StoreError> {
    let opened = || {
        let index = disk.open(&(path.to_owned() + INDEX), Access::Read)?;
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let known = index::read_head(&index)?.map_err(|_| invalid(NO_HEAD))?;
        let listed = Listed { path: path.to_owned(), head: known.head, limit: u64::MAX };
        let file = Opened::open(disk, &listed, true)?;
        verified(&listed, file.ok_or_else(|| invalid("it was renamed just now"))?)
    };
    opened().map_err(|error| StoreError::new("verifying", &disk.describe(path), error))
}

fn verified<F: crate::disk::File>(listed: &Listed, mut file: Opened<F>) -> io::Result<Verified> {
    let head = listed.head;
    let mut found = Verified {
        path: listed.path.clone(),
        gone: file.is_gone(),
        next: head.first,
        after: head_position(&head).next(),
        ..Verified::default()
    };
    if file.is_to_be_made() {
        return Ok(found);
    }
    let (mut place, mut end) = (u64::from(head.frames), 0);
    // Frames at the end that cannot be read may be being written.
    let mut bad = Vec::new();
    loop {
        let mut frames = Frames::new(&file.index, place);
        let Some(&bytes) = frames.next()? else { break };
        match frame::decode(&bytes, head.salt) {
            Ok(frame) => {
                found.unreadable.append(&mut bad);
                match frame {
                    Frame::Message(record) if record.sequence < listed.limit => {
                        found.missing += record.sequence.saturating_sub(found.next);
                        (found.next, found.after) = (record.sequence + 1, position(&record).next());
                        end = record.end();
                        match file.payload(&record)? {
                            Some(payload) => {
                                found.messages += 1;
                                found.bytes += payload.len() as u64;
                            }
                            None => found.changed.push(record.sequence),
                        }
                    }
                    Frame::Mark(mark) => found.reach(&mark, listed.limit),
                    Frame::Closed(mark) => {
                        found.reach(&mark, listed.limit);
                        (found.closed, end) = (true, mark.end.max(end));
                    }
                    _ => {}
                }
            }
            Err(_) => bad.push(place * frame::FRAME as u64),
        }
        place += 1;
    }
    let torn = file.index.length()?.saturating_sub(place * frame::FRAME as u64);
    found.trailing = bad.len() as u64 * frame::FRAME as u64 + torn;
    if listed.limit == u64::MAX || found.closed {
        found.trailing += file.length()?.saturating_sub(end);
    }
    Ok(found)
}

impl Verified {
    /// All before a mark was written.
    fn reach(&mut self, mark: &Mark, limit: u64) {
        let next = mark.next.min(limit);
        self.missing += next.saturating_sub(self.next);
        self.next = self.next.max(next);
        self.after = self.after.max(Position::new(mark.time / 1000, mark.n).next());
    }
}
