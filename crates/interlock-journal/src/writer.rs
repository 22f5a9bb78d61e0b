//! The segment in use, and the step to the next one.

use std::io;
use std::sync::Arc;

use crate::file::{self, FileKind, Head, HEAD};
use crate::file::{NEXT, SPARE};
use crate::journal::JournalSettings;
use crate::storage::{is_full, File, Storage};

#[derive(Debug)]
pub(crate) struct Writer<F> {
    file: Arc<F>,
    number: u64,
    position: u64,
    length: u64,
    /// Bytes ever written, heads aside.
    taken: u64,
    /// Sequence of the last record written.
    last: u64,
    /// The next segment, and its length.
    spare: Option<(F, u64)>,
    /// Numbers of the segments that are there, and the sequence of the first record of each.
    segments: Vec<(u64, u64)>,
    /// The records to be written next, and the sequence of the last of them.
    pub batch: Vec<u8>,
    pub batch_last: u64,
}

/// Factor by which the first segment after a start may be shorter if the disk is full.
const SHORTEST: u64 = 64;
/// A batch's buffer that grew larger is given back.
const KEPT: usize = 4 << 20;

impl<F: File> Writer<F> {
    /// A new segment, behind the record `last`; the last one that there is is `follows`.
    pub fn start<S: Storage<File = F>>(
        storage: &S,
        settings: JournalSettings,
        mut segments: Vec<(u64, u64)>,
        follows: u64,
        last: u64,
    ) -> io::Result<Self> {
        let number = segments.last().map_or(1, |(number, _)| number + 1);
        let (mut length, shortest) = (settings.segment, settings.segment / SHORTEST);
        let file = loop {
            match storage.create(NEXT, length, settings.fill) {
                // The queues can still drain, and what the last run left of its segment is given back.
                Err(error) if is_full(&error) && length / 4 >= shortest.max(1) => length /= 4,
                made => break made?,
            }
        };
        let (kind, first) = (FileKind::Segment, last + 1);
        let (salt, rules) = (settings.salt, settings.rules);
        let head = Head { kind, number, first, salt, length, follows, rules };
        let file = named(storage, file, NEXT, head)?;
        segments.push((number, last + 1));
        Ok(Writer {
            file: Arc::new(file),
            number,
            position: HEAD as u64,
            length,
            taken: 0,
            last,
            spare: None,
            segments,
            batch: Vec::new(),
            batch_last: last,
        })
    }

    pub fn file(&self) -> &Arc<F> {
        &self.file
    }

    pub fn name(&self) -> String {
        file::name(FileKind::Segment, self.number)
    }

    /// Names of the segments that are there, and needed.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.segments.iter().map(|(number, _)| file::name(FileKind::Segment, *number))
    }

    /// Number of the segment that has a record, and the sequence of the first record behind it. None of
    /// those that are there may have it.
    pub fn segment_of(&self, sequence: u64) -> Option<(u64, u64)> {
        let place = self.segments.iter().rposition(|(_, first)| *first <= sequence)?;
        let behind = self.segments.get(place + 1).map_or(u64::MAX, |(_, first)| *first);
        Some((self.segments[place].0, behind))
    }

    /// Sequence of the first record of the first segment that there is.
    pub fn first(&self) -> u64 {
        self.segments.first().map_or(1, |(_, first)| *first)
    }

    /// Returns the place where the next record begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn next_name(&self) -> String {
        file::name(FileKind::Segment, self.number + 1)
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    pub fn room(&self) -> u64 {
        // On a disk that is nearly full a segment may have been made shorter than its own head.
        self.length.saturating_sub(self.position)
    }

    pub fn has_spare(&self) -> bool {
        self.spare.is_some()
    }

    pub fn set_spare(&mut self, file: F, length: u64) {
        self.spare = Some((file, length));
    }

    /// Bytes of the longest batch that needs no segment beside those that are there.
    pub fn longest(&self) -> u64 {
        let spare = self.spare.as_ref().map_or(0, |(_, length)| length.saturating_sub(HEAD as u64));
        self.room().max(spare)
    }

    /// Its file is gone.
    pub fn drop_spare(&mut self) {
        self.spare = None;
    }

    /// Bytes that were ever written.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the number of segments.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Writes the batch, for which there is room.
    pub fn write(&mut self) -> io::Result<()> {
        self.file.write(self.position, &self.batch)?;
        self.position += self.batch.len() as u64;
        self.taken += self.batch.len() as u64;
        self.last = self.batch_last;
        if self.batch.capacity() > KEPT {
            self.batch = Vec::new();
        }
        self.batch.clear();
        Ok(())
    }

    /// Continues in the next segment, which has room for `needed` bytes or more.
    pub fn rotate<S: Storage<File = F>>(
        &mut self,
        storage: &S,
        settings: JournalSettings,
        needed: u64,
    ) -> io::Result<()> {
        let (file, length, name) = match self.spare.take() {
            Some((file, length)) if length >= needed => (file, length, SPARE),
            spare => {
                // A spare segment would only take the room that is needed now.
                if spare.is_some() {
                    let _ = storage.remove(SPARE);
                }
                let length = settings.segment.max(needed);
                (storage.create(NEXT, length, settings.fill)?, length, NEXT)
            }
        };
        let (number, first) = (self.number + 1, self.last + 1);
        let head = Head {
            kind: FileKind::Segment,
            number,
            first,
            salt: settings.salt,
            length,
            follows: self.last,
            rules: settings.rules,
        };
        let file = named(storage, file, name, head)?;
        self.segments.push((number, first));
        (self.file, self.number) = (Arc::new(file), number);
        (self.position, self.length) = (HEAD as u64, length);
        Ok(())
    }

    /// The segments of which no record behind `sequence` is, which are forgotten.
    pub fn take_before(&mut self, sequence: u64) -> Vec<String> {
        let needed = self.segments.iter().rposition(|(_, first)| *first <= sequence + 1);
        let gone = self.segments.drain(..needed.unwrap_or(0));
        gone.map(|(number, _)| file::name(FileKind::Segment, number)).collect()
    }
}

/// Writes the header of a new file, and then names it: a named segment always has its header on disk.
fn named<S: Storage>(storage: &S, file: S::File, from: &str, head: Head) -> io::Result<S::File> {
    file.write(0, &head.encode())?;
    file.sync()?;
    storage.rename(from, &head.name())?;
    Ok(file)
}
