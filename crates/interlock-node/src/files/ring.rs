//! The ring: the entries that a node has applied, so that it can put them back if the engine loses
//! them.
//!
//! Records are appended to numbered files. A file is removed once the newest checkpoint covers all
//! of its records and they are too old to be put back, or the ring is too large.

use std::io;

use interlock_stores::disk::{read_at, Access, Disk, File};
use interlock_stores::StoreError;

use crate::files::{lock, long, name, numbered, word, Report, LOCK};

pub struct Ring<D: Disk> {
    disk: D,
    limits: Limits,
    /// Files, oldest first; the last one is written to.
    files: Vec<Segment>,
    file: Option<D::File>,
    /// Records not written yet.
    waiting: Vec<u8>,
    /// The end of the waiting records.
    ends: End,
    /// Number of the first file that [`Ring::unsynced`] has not returned, or returned while it was
    /// written to.
    unsynced: u64,
    /// A failed write may have left part of a record.
    is_torn: bool,
    /// The lock of a folder that was created again.
    lock: Option<D::Lock>,
}

/// Files of a ring that may not be on disk.
pub struct Unsynced<D: Disk> {
    disk: D,
    numbers: Vec<u64>,
}

impl<D: Disk> Unsynced<D> {
    /// Puts everything on disk that was written before [`Ring::unsynced`] was called: it survives a
    /// stop of the machine.
    ///
    /// # Errors
    ///
    /// The disk failed; what is on it is unknown.
    pub fn sync(self) -> Result<(), StoreError> {
        for number in self.numbers {
            let path = name(PREFIX, number);
            let done = self.disk.open(&path, Access::Read).and_then(|file| file.sync());
            match done {
                // The ring has dropped it since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(StoreError::new("syncing", &self.disk.describe(&path), error))
                }
                Ok(()) => {}
            }
        }
        let folder = self.disk.sync_folder("");
        folder.map_err(|error| StoreError::new("syncing", &self.disk.describe(""), error))
    }
}

/// The sizes of a ring, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Size at which the next file begins.
    pub file: u64,
    /// Maximum size of all files; more are kept only if no checkpoint has their records.
    pub all: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { file: 16 << 20, all: 256 << 20 }
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub position: u64,
    /// The log time, for the record's age.
    pub time: u64,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    number: u64,
    length: u64,
    end: End,
}

/// The highest position and time of a set of records.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    position: u64,
    time: u64,
}

impl End {
    fn include(&mut self, other: End) {
        self.position = self.position.max(other.position);
        self.time = self.time.max(other.time);
    }
}

impl<D: Disk> Ring<D> {
    /// Reads all records, oldest first. Records that a crash has left incomplete are cut off and
    /// reported.
    pub fn open(
        disk: D,
        limits: Limits,
        mut see: impl FnMut(Kept),
        reports: &mut Vec<Report>,
    ) -> Result<Ring<D>, StoreError> {
        let (files, file, waiting, ends) = Default::default();
        let (unsynced, is_torn, lock) = (0, false, None);
        let mut ring = Ring { disk, limits, files, file, waiting, ends, unsynced, is_torn, lock };
        let numbers = numbered(&ring.disk, PREFIX)?;
        for (index, number) in numbers.iter().copied().enumerate() {
            let is_last = index + 1 == numbers.len();
            let segment = ring.read(number, is_last, &mut see, reports)?;
            ring.files.push(segment);
        }
        Ok(ring)
    }

    fn read(
        &mut self,
        number: u64,
        is_last: bool,
        see: &mut impl FnMut(Kept),
        reports: &mut Vec<Report>,
    ) -> Result<Segment, StoreError> {
        let path = name(PREFIX, number);
        let place = self.disk.describe(&path);
        let wrong = |error| StoreError::new("reading", &place, error);
        let access = if is_last { Access::Write } else { Access::Read };
        let file = self.disk.open(&path, access).map_err(wrong)?;
        let mut content = vec![0; file.length().map_err(wrong)? as usize];
        let found = read_at(&file, 0, &mut content).map_err(wrong)?;
        content.truncate(found);
        let mut segment = Segment { number, length: 0, end: End::default() };
        let mut at = 0;
        loop {
            while let Some((kept, next)) = record(&content, at, number) {
                segment.end.include(End { position: kept.position, time: kept.time });
                see(kept);
                at = next;
            }
            let Some(next) = next_record(&content, at, number, segment.end.position) else { break };
            let lost = next - at;
            let text = format!("the data from byte {at} is damaged: {lost} bytes are skipped");
            reports.push(Report { path: place.clone(), text });
            at = next;
        }
        segment.length = at as u64;
        if at < content.len() {
            let lost = content.len() - at;
            let text = if is_last {
                format!(
                    "the last {lost} bytes are an incomplete record, as after a crash: cut \
                         off"
                )
            } else {
                format!("the data from byte {at} is damaged: {lost} bytes are skipped")
            };
            reports.push(Report { path: place.clone(), text });
        }
        if is_last {
            if at < content.len() {
                file.truncate(at as u64).map_err(wrong)?;
            }
            self.file = Some(file);
        } else {
            segment.length = content.len() as u64;
        }
        Ok(segment)
    }

    /// Reads all records of its files, oldest first.
    pub fn each(&self, mut see: impl FnMut(Kept)) -> Result<(), StoreError> {
        for segment in &self.files {
            let path = name(PREFIX, segment.number);
            let wrong = |error| StoreError::new("reading", &self.disk.describe(&path), error);
            let file = self.disk.open(&path, Access::Read).map_err(wrong)?;
            let mut content = vec![0; segment.length as usize];
            let found = read_at(&file, 0, &mut content).map_err(wrong)?;
            content.truncate(found);
            let mut at = 0;
            while let Some((kept, next)) = record(&content, at, segment.number) {
                see(kept);
                at = next;
            }
        }
        Ok(())
    }

    /// Adds a record, which [`Ring::write`] writes.
    pub fn add(&mut self, position: u64, time: u64, bytes: &[u8]) {
        // The checksum includes the number of the file, which is not known before the write.
        let length = bytes.len() as u32;
        self.waiting.extend_from_slice(&length.to_le_bytes());
        self.waiting.extend_from_slice(&[0; 4]);
        self.waiting.extend_from_slice(&position.to_le_bytes());
        self.waiting.extend_from_slice(&time.to_le_bytes());
        self.waiting.extend_from_slice(bytes);
        self.ends.include(End { position, time });
    }

    /// Writes the added records. After it returns, they survive a kill of the process, and after
    /// [`Unsynced::sync`] a stop of the machine. It never waits for the disk: clients wait for it.
    ///
    /// # Errors
    ///
    /// The write failed; the records wait for the next call.
    pub fn write(&mut self) -> Result<(), StoreError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let is_full = self.files.last().is_none_or(|one| one.length >= self.limits.file);
        if is_full || self.file.is_none() {
            self.begin()?;
        }
        let (Some(file), Some(segment)) = (&self.file, self.files.last_mut()) else {
            return Ok(());
        };
        let path = name(PREFIX, segment.number);
        let wrong = |error| StoreError::new("writing", &self.disk.describe(&path), error);
        if self.is_torn {
            file.truncate(segment.length).map_err(wrong)?;
            self.is_torn = false;
        }
        seal(&mut self.waiting, segment.number);
        if let Err(error) = file.write(segment.length, &self.waiting) {
            self.is_torn = true;
            return Err(wrong(error));
        }
        segment.length += self.waiting.len() as u64;
        segment.end.include(std::mem::take(&mut self.ends));
        self.waiting.clear();
        self.waiting.shrink_to(KEPT);
        Ok(())
    }

    /// Checks that the written records can be found again: the folder may have been removed or
    /// replaced.
    ///
    /// # Errors
    ///
    /// They cannot.
    pub fn look(&self) -> Result<(), StoreError> {
        let (Some(file), Some(segment)) = (&self.file, self.files.last()) else { return Ok(()) };
        let path = name(PREFIX, segment.number);
        if self.disk.holds(&path, file) {
            return Ok(());
        }
        let error = io::Error::from(io::ErrorKind::NotFound);
        let advice = "the node's folder was removed or replaced: restore it, or remove what is \
                      in its place";
        Err(StoreError::advised("writing", &self.disk.describe(&path), error, advice))
    }

    /// Locks the folder again if it was removed, creating it if necessary. The records written
    /// there are gone, and none wait. Returns whether it has done so.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or locked.
    pub fn renew(&mut self) -> Result<bool, StoreError> {
        let wrong = |error| StoreError::new("looking at", &self.disk.describe(""), error);
        // A folder with a lock is another node's, or this one's with foreign files.
        if self.look().is_ok() || self.disk.exists(LOCK).map_err(wrong)? {
            return Ok(false);
        }
        self.lock = Some(lock(&self.disk)?);
        (self.files, self.file, self.unsynced, self.is_torn) = Default::default();
        (self.waiting, self.ends) = Default::default();
        Ok(true)
    }

    /// Returns the files with records that may not be on disk, for another thread to sync.
    pub fn unsynced(&mut self) -> Unsynced<D> {
        let numbers = self.files.iter().map(|one| one.number);
        let numbers: Vec<u64> = numbers.filter(|number| *number >= self.unsynced).collect();
        self.unsynced = numbers.last().copied().unwrap_or(self.unsynced);
        Unsynced { disk: self.disk.clone(), numbers }
    }

    /// Begins the next file.
    fn begin(&mut self) -> Result<(), StoreError> {
        let number = self.files.last().map_or(1, |last| last.number + 1);
        let path = name(PREFIX, number);
        let make = || -> io::Result<D::File> {
            if self.disk.exists(&path)? {
                self.disk.remove(&path)?;
            }
            self.disk.open(&path, Access::Create)
        };
        let file =
            make().map_err(|error| StoreError::new("making", &self.disk.describe(&path), error))?;
        self.file = Some(file);
        self.is_torn = false;
        self.files.push(Segment { number, length: 0, end: End::default() });
        Ok(())
    }

    /// A checkpoint at `position` is on disk: removes the oldest files without later records, if
    /// all their records are older than `since`, or the ring is too large.
    pub fn saved(&mut self, position: u64, since: u64) -> Result<(), StoreError> {
        let mut all: u64 = self.length();
        while self.files.len() > 1 {
            let oldest = self.files[0];
            let is_old = oldest.end.time < since || all > self.limits.all;
            if oldest.end.position > position || !is_old {
                break;
            }
            let path = name(PREFIX, oldest.number);
            let wrong = |error| StoreError::new("removing", &self.disk.describe(&path), error);
            self.disk.remove(&path).map_err(wrong)?;
            self.files.remove(0);
            all -= oldest.length;
        }
        Ok(())
    }

    /// The number of bytes in files.
    pub fn length(&self) -> u64 {
        self.files.iter().map(|one| one.length).sum()
    }

    /// The number of bytes that wait to be written.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// Returns the record at an offset of a file, and the offset of the next one.
fn record(content: &[u8], at: usize, number: u64) -> Option<(Kept, usize)> {
    let length = word(content, at)? as usize;
    let end = at.checked_add(HEAD)?.checked_add(length)?;
    let whole = content.get(at..end)?;
    if word(whole, 4)? != checksum(whole, number) {
        return None;
    }
    let (position, time) = (long(whole, 8)?, long(whole, 16)?);
    Some((Kept { position, time, bytes: whole[HEAD..].to_vec() }, end))
}

/// Returns the offset of the next record after a damaged one, if any. The position rules out most
/// other offsets cheaply.
fn next_record(content: &[u8], damaged: usize, number: u64, last: u64) -> Option<usize> {
    let near = last.saturating_sub(FAR)..=last.saturating_add(FAR);
    let may_be = |at: &usize| long(content, *at + 8).is_some_and(|found| near.contains(&found));
    (damaged + 1..content.len()).filter(may_be).find(|at| record(content, *at, number).is_some())
}

/// Fills in the records' checksums.
fn seal(records: &mut [u8], number: u64) {
    let mut at = 0;
    while let Some(length) = word(records, at) {
        let Some(whole) = records.get_mut(at..at + HEAD + length as usize) else { return };
        let sum = checksum(whole, number);
        whole[4..8].copy_from_slice(&sum.to_le_bytes());
        at += whole.len();
    }
}

/// Includes the number of the file, so that a record of an older file at the same place on the disk
/// does not pass.
fn checksum(record: &[u8], number: u64) -> u32 {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), &record[..4]);
    crc32c::crc32c_append(sum, &record[8..])
}

const PREFIX: &str = "ring-";
/// Maximum distance of the positions of two records in a file.
const FAR: u64 = 1 << 32;
/// Bytes before a record's own: length, checksum, position, time.
const HEAD: usize = 24;
/// Maximum capacity that the buffer keeps after a write.
const KEPT: usize = 4 << 20;
