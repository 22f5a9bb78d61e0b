//! Snapshots: the state of every queue, so that the segments before it can go.
//!
//! Queues are written one after the other, each as it was at a moment of its own: under its lock its
//! state is copied and the journal's last sequence noted; what comes later is replayed upon that. So
//! no queue waits for another, and none for the disk.

use std::io;

use parking_lot::MutexGuard;

use crate::file::{self, NEW};
use crate::journal::{at, Durability, Journal};
use crate::record::{self, Head, RecordKind};
use crate::storage::{File, Fill, Storage};

/// Bytes of a queue's state in one record.
const PIECE: usize = 1 << 20;

/// A snapshot that is being written. Dropped without [`finish`](Self::finish), it never was.
pub struct Snapshot<'a, S: Storage> {
    journal: &'a Journal<S>,
    file: S::File,
    head: file::Head,
    buffer: Vec<u8>,
    position: u64,
    queues: u32,
    /// The latest record that a queue's state has in it.
    highest: u64,
    finished: bool,
    _one: MutexGuard<'a, ()>,
}

/// The outcome of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub name: String,
    pub queues: u32,
    pub bytes: u64,
    /// Files that were not needed any more.
    pub removed: Vec<String>,
}

impl<S: Storage> Journal<S> {
    /// Begins a snapshot. All queues that are there have to be given to it; the records of those that
    /// are not given go with the old segments, but for records that are appended from now on.
    ///
    /// # Errors
    ///
    /// Fails if the disk fails or is full: the journal continues as before.
    pub fn snapshot(&self) -> io::Result<Snapshot<'_, S>> {
        let one = self.snapshotting.lock();
        let floor = self.last();
        self.snapshot_at(floor, one)
    }

    /// Forgets all records up to `last`: those behind it stay. For a journal of which nothing is kept but
    /// its records, as they are delivered; what a snapshot had in it is forgotten too.
    ///
    /// # Errors
    ///
    /// If the disk fails or is full: what was to be forgotten may come back.
    pub fn forget(&self, last: u64) -> io::Result<Made> {
        let one = self.snapshotting.lock();
        // This is the state without any queue.
        self.snapshot_at(last.min(self.last()), one)?.finish()
    }

    fn snapshot_at<'a>(
        &'a self,
        floor: u64,
        one: MutexGuard<'a, ()>,
    ) -> io::Result<Snapshot<'a, S>> {
        let salt = self.settings.salt;
        let head = file::Head {
            kind: file::FileKind::Snapshot,
            number: floor,
            first: floor,
            salt,
            length: 0,
            follows: 0,
            // A state is what calls led to: no rules are needed to read it.
            rules: 0,
        };
        let name = head.name() + NEW;
        let file =
            self.storage.create(&name, 0, Fill::Reserved).map_err(at(&self.storage, &name))?;
        Ok(Snapshot {
            journal: self,
            file,
            head,
            buffer: head.encode().to_vec(),
            position: 0,
            queues: 0,
            highest: floor,
            finished: false,
            _one: one,
        })
    }
}

impl<S: Storage> Snapshot<'_, S> {
    /// Writes a queue's state; `last` is what [`Journal::last`] said under the queue's lock, when the
    /// state was copied.
    ///
    /// # Errors
    ///
    /// If the disk fails or is full.
    pub fn queue(&mut self, queue: u32, last: u64, state: &[u8]) -> io::Result<()> {
        self.highest = self.highest.max(last);
        self.queues += 1;
        let pieces = state.len().div_ceil(PIECE).max(1);
        for piece in 0..pieces {
            let kind = if piece + 1 == pieces { RecordKind::LastPiece } else { RecordKind::Piece };
            let behind = piece as u32;
            let head = Head { sequence: last, time: 0, queue, behind, kind, function: 0 };
            let bytes = &state[piece * PIECE..state.len().min((piece + 1) * PIECE)];
            record::encode(&mut self.buffer, self.head.salt, head, |out| out.extend(bytes));
            if self.buffer.len() >= PIECE {
                self.write()?;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let name = self.head.name() + NEW;
        let storage = &self.journal.storage;
        self.file.write(self.position, &self.buffer).map_err(at(storage, &name))?;
        self.position += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes it the snapshot that a recovery begins with, and removes what is not needed any more.
    ///
    /// # Errors
    ///
    /// If the disk fails or is full: the one before stays in force.
    pub fn finish(mut self) -> io::Result<Made> {
        let journal = self.journal;
        let storage = &journal.storage;
        let head = Head {
            sequence: self.highest,
            time: self.journal.time(),
            queue: self.queues,
            behind: 0,
            kind: RecordKind::End,
            function: 0,
        };
        record::encode(&mut self.buffer, self.head.salt, head, |_| ());
        self.write()?;
        let (from, name) = (self.head.name() + NEW, self.head.name());
        self.file.sync().map_err(at(storage, &from))?;
        // A snapshot must not be ahead of the journal, or numbers would be given twice.
        journal.commit(self.highest, Durability::Always).map_err(io::Error::other)?;
        storage.rename(&from, &name).map_err(at(storage, &name))?;
        self.finished = true;
        journal.snapshot_made();
        let mut removed = journal.writer.lock().take_before(self.head.number);
        removed.extend(storage.names()?.into_iter().filter(|other| {
            file::number(other, file::FileKind::Snapshot).is_some_and(|n| n < self.head.number)
        }));
        for name in &removed {
            storage.remove(name).map_err(at(storage, name))?;
        }
        Ok(Made { name, queues: self.queues, bytes: self.position, removed })
    }
}

impl<S: Storage> Drop for Snapshot<'_, S> {
    fn drop(&mut self) {
        if !self.finished {
            // If it stays, the next recovery removes it.
            let _ = self.journal.storage.remove(&(self.head.name() + NEW));
        }
    }
}
