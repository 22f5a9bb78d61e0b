//! Reading a topic again: from a position on, or back from one.
//!
//! **The rule of all readers.** `XRANGE`, `XREVRANGE`, `XREAD` and `XLEN` of a hub, `interlock store cat`,
//! `tail` and `verify` keep it:
//!
//! 1. What there is is delivered once, in its order, and only as it was written.
//! 2. A file is known by its head and not by its name: one that was renamed, compressed or begun while the
//!    files were listed is neither missed nor read twice. A file that two looks do not show is gone.
//! 3. Sequences have no gaps, so what lacks one is missing: it is reported in its place, with the positions
//!    between which it was and how many messages it had, and what is behind it is delivered.
//! 4. For readers from the first position, nothing counts as missing before the oldest file: the
//!    oldest files are removed by age. A reader from an older place gets a report.
//! 5. Behind the last record of the newest file nothing is missing while a store may be writing it.
//!
//! Forward it is decided in [`Cursor`](super::cursor), backward in [`Backward`](super::backward).

use crate::disk::Disk;
use crate::error::StoreError;
use crate::file::frame::{self, Frame, Record};
use crate::file::index::Frames;
use crate::file::reading::backward::Backward;
use crate::file::reading::cursor::Cursor;
use crate::file::reading::listing::Source;
use crate::file::reading::missing::Found;
use crate::file::reading::opened::{open_listed, Opened};
use crate::message::Position;
use crate::template::Template;

/// Reads what a file store holds of a topic, beside the store that writes: in the same process or in
/// another one. It is shown what is written, though it may not be on disk yet.
#[derive(Clone, Debug)]
pub struct Reader<D> {
    source: Source<D>,
}

impl<D: Disk> Reader<D> {
    /// A reader of a topic of the store of this name.
    pub fn new(disk: D, template: Template, store: &str, topic: &[u8]) -> Self {
        let (store, topic) = (store.as_bytes().to_vec(), topic.to_vec());
        Reader { source: Source { disk, template, store, topic } }
    }

    /// Reads on from the first message at `from` or behind it.
    pub fn forward(&self, from: Position) -> Forward<D> {
        let source = self.source.clone();
        let cursor = Cursor::new(source.disk.clone(), Some(&source.topic), from, false);
        Forward { source, cursor }
    }

    /// Reads back from the last message at `to` or before it.
    ///
    /// # Errors
    ///
    /// If the folder cannot be listed.
    pub fn backward(&self, to: Position) -> Result<Backward<D>, StoreError> {
        self.between(Position::FIRST, to)
    }

    /// The same, as far as to the first message at `from` or behind it.
    ///
    /// # Errors
    ///
    /// If the folder cannot be listed.
    pub fn between(&self, from: Position, to: Position) -> Result<Backward<D>, StoreError> {
        Backward::new(self.source.clone(), from, to)
    }

    /// Returns the position of the last message, readable or not, or `None`.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn last(&self) -> Result<Option<Position>, StoreError> {
        Ok(match self.backward(Position::LAST)?.find()? {
            Some(Found::Message(stored)) => Some(stored.position),
            Some(Found::Missing(missing)) => Some(missing.to),
            None => None,
        })
    }

    /// Returns the number of messages of the topic that can be read. One whose data or record was changed
    /// within its file is among them. Where topics share their files all indexes are read for it.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn count(&self) -> Result<u64, StoreError> {
        let mut count = 0;
        for listed in self.source.list()? {
            let opened = open_listed(&self.source.disk, &listed, || self.source.list())?;
            if let Some((file, listed)) = opened {
                let failed = |error| self.source.failed(&listed.path, error);
                count += self.count_in(&file, listed.limit).map_err(failed)?;
            }
        }
        Ok(count)
    }

    fn count_in(&self, file: &Opened<D::File>, limit: u64) -> std::io::Result<u64> {
        let (head, data) = (file.head, file.length()?);
        if let (true, Some(mark)) = (head.by_topic, file.closed()?) {
            let messages = mark.next.saturating_sub(head.first);
            let is_whole = data >= mark.end
                && file.frames()? > u64::from(head.frames).saturating_add(messages);
            if is_whole {
                return Ok(mark.next.min(limit).saturating_sub(head.first));
            }
        }
        let mut count = 0;
        let mut frames = Frames::new(&file.index, u64::from(head.frames));
        while let Some(bytes) = frames.next()? {
            if let Ok(Frame::Message(record)) = frame::decode(bytes, head.salt) {
                let is_there = record.sequence < limit && record.end() <= data;
                count += u64::from(is_there && self.is_topic(file, &record));
            }
        }
        Ok(count)
    }

    fn is_topic(&self, file: &Opened<D::File>, record: &Record) -> bool {
        file.topic(record.topic).is_some_and(|topic| *topic == self.source.topic)
    }
}

/// Reads a topic in its order, and what comes later when it is asked again.
pub struct Forward<D: Disk> {
    source: Source<D>,
    cursor: Cursor<D>,
}

impl<D: Disk> Forward<D> {
    /// Returns the next message, or what is missing before it; `None`: nothing yet.
    ///
    /// # Errors
    ///
    /// If the disk fails. It can be asked again.
    pub fn find(&mut self) -> Result<Option<Found>, StoreError> {
        let source = &self.source;
        self.cursor.next(&mut |_| source.list())
    }
}
