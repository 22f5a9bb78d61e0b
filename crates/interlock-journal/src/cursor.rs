//! Reads records in order while others are written.

use std::io;
use std::sync::Arc;

use crate::file::{self, FileKind, Head, HEAD};
use crate::journal::{at, Journal};
use crate::record::{self, Bad, Record, RecordKind};
use crate::storage::{File, Storage};

/// A place among the records of a journal.
#[derive(Debug)]
pub struct Cursor<F> {
    /// Sequence of the next record.
    next: u64,
    segment: Option<Segment<F>>,
}

#[derive(Debug)]
struct Segment<F> {
    file: Arc<F>,
    name: String,
    number: u64,
    salt: u32,
    /// The place of the next record in the file.
    offset: u64,
    /// The bytes from there on that were read already, but for `used` of them.
    buffer: Vec<u8>,
    used: usize,
}

/// Bytes that are read at once.
const PIECE: usize = 1 << 18;

impl<F> Cursor<F> {
    /// Before the record of this sequence.
    pub fn new(next: u64) -> Self {
        Cursor { next, segment: None }
    }

    /// Leaves out the records before `next`.
    pub fn skip_to(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Sequence of the record that is read next.
    pub fn next(&self) -> u64 {
        self.next
    }
}

impl<S: Storage> Journal<S> {
    /// Passes the written records from the cursor on to `take`, in order, until it returns `false`:
    /// that record is not passed, and is given again. Forgotten records are skipped.
    ///
    /// # Errors
    ///
    /// If the disk fails, or what was written cannot be read.
    pub fn read(
        &self,
        cursor: &mut Cursor<S::File>,
        mut take: impl FnMut(&Record<'_>) -> bool,
    ) -> io::Result<()> {
        loop {
            let (written, found) = {
                let writer = self.writer.lock();
                (writer.last(), writer.segment_of(cursor.next))
            };
            if cursor.next > written {
                return Ok(());
            }
            let Some((number, end)) = found else {
                // Records before the first existing segment were forgotten.
                cursor.next = self.writer.lock().first().max(cursor.next + 1);
                continue;
            };
            if cursor.segment.as_ref().is_none_or(|segment| segment.number != number) {
                let Some(segment) = self.open_segment(number)? else { continue };
                cursor.segment = Some(segment);
            }
            let segment = cursor.segment.as_mut().expect("just opened");
            while cursor.next <= written && cursor.next < end {
                let bytes = &segment.buffer[segment.used..];
                let (record, length) = match record::decode(bytes, segment.salt) {
                    Ok(found) => found,
                    Err(bad) => {
                        let is_long = matches!(bad, Bad::Short);
                        if segment.fill(is_long).map_err(at(&self.storage, &segment.name))? {
                            continue;
                        }
                        let why = match bad {
                            Bad::Short => "it ends within a record",
                            _ => "a record that was written cannot be read",
                        };
                        let error = io::Error::new(io::ErrorKind::InvalidData, why);
                        return Err(at(&self.storage, &segment.name)(error));
                    }
                };
                if record.sequence == cursor.next {
                    if record.kind == RecordKind::Call && !take(&record) {
                        return Ok(());
                    }
                    cursor.next += 1;
                } else if record.sequence > cursor.next {
                    // A repair left a gap.
                    cursor.next = record.sequence;
                    continue;
                }
                segment.used += length;
            }
        }
    }

    fn open_segment(&self, number: u64) -> io::Result<Option<Segment<S::File>>> {
        let name = file::name(FileKind::Segment, number);
        let failed = at(&self.storage, &name);
        let file = match self.storage.open(&name) {
            Ok(file) => file,
            // The segment was forgotten meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let there = self.writer.lock().names().any(|there| there == name);
                return if there { Err(failed(error)) } else { Ok(None) };
            }
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = [0; HEAD];
        let read = file.read(0, &mut bytes).map_err(at(&self.storage, &name))?;
        let head = Head::decode(&bytes[..read], FileKind::Segment, number).map_err(|_| {
            let error = io::Error::new(io::ErrorKind::InvalidData, "its head cannot be read");
            at(&self.storage, &name)(error)
        })?;
        let (file, salt, offset) = (Arc::new(file), head.salt, HEAD as u64);
        Ok(Some(Segment { file, name, number, salt, offset, buffer: Vec::new(), used: 0 }))
    }
}

impl<F: File> Segment<F> {
    /// Reads more behind what was not used yet, for a record that is longer if it `is_long`; returns whether
    /// there was anything that is new.
    fn fill(&mut self, is_long: bool) -> io::Result<bool> {
        self.offset += self.used as u64;
        self.buffer.drain(..self.used);
        self.used = 0;
        let before = std::mem::take(&mut self.buffer);
        // A long record must be read completely. Bytes that were zero when they were read may be records by
        // now; at most one piece of them is read again, because the rest of the segment may be zero.
        let wanted = if is_long { (before.len() * 2).max(PIECE) } else { PIECE };
        let mut bytes = vec![0; wanted];
        let mut read = 0;
        while read < wanted {
            match self.file.read(self.offset + read as u64, &mut bytes[read..])? {
                0 => break,
                more => read += more,
            }
        }
        bytes.truncate(read);
        self.buffer = bytes;
        Ok(self.buffer != before)
    }
}
