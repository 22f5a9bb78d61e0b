//! Reads a topic backwards.

use crate::disk::{Disk, File};
use crate::error::StoreError;
use crate::file::frame::{self, Frame, Record, FRAME};
use crate::file::reading::listing::{Listed, Source};
use crate::file::reading::missing;
use crate::file::reading::missing::{Found, Missing};
use crate::file::reading::opened::{head_position, open_listed, position, stored, Opened};
use crate::message::{Position, Stored};

/// Reads a topic against its order, from what there was when it was begun.
#[derive(Debug)]
pub struct Backward<D: Disk> {
    source: Source<D>,
    from: Position,
    to: Position,
    /// Files that were not read yet.
    files: Vec<Listed>,
    file: Option<Back<D::File>>,
    /// The sequence of what was read last, the last position that what is before it can have, and why that
    /// is missing, if it is.
    above: Option<(u64, Position, &'static str)>,
    /// Path of the file that was read last, to report what is missing before it.
    path: String,
    is_last: bool,
    missing: Option<Missing>,
    message: Option<Stored>,
}

#[derive(Debug)]
struct Back<F> {
    opened: Opened<F>,
    limit: u64,
    /// The frames before this one were not read yet.
    place: u64,
    /// Some of these, from `from` on.
    buffer: Vec<u8>,
    from: u64,
}

impl<D: Disk> Backward<D> {
    pub(in crate::file) fn new(
        source: Source<D>,
        from: Position,
        to: Position,
    ) -> Result<Self, StoreError> {
        let files = source.list()?;
        Ok(Backward {
            source,
            from,
            to,
            files,
            file: None,
            above: None,
            path: String::new(),
            is_last: false,
            missing: None,
            message: None,
        })
    }

    /// Returns the message before, or what is missing between.
    ///
    /// # Errors
    ///
    /// If the disk fails. It can be asked again.
    pub fn find(&mut self) -> Result<Option<Found>, StoreError> {
        loop {
            if self.message.is_some() || self.is_last {
                let missing = self.missing.take().map(Found::Missing);
                return Ok(missing.or_else(|| self.message.take().map(Found::Message)));
            }
            if self.file.is_none() && !self.open_next()? {
                self.is_last = true;
                continue;
            }
            self.step().map_err(|error| self.source.failed(&self.path, error))?;
        }
    }

    /// Reads the message before in the file that is open.
    fn step(&mut self) -> std::io::Result<()> {
        let back = self.file.as_mut().expect("it is open");
        if back.place <= u64::from(back.opened.head.frames) {
            let head = back.opened.head;
            let (first, before) = (head.first, head_position(&head));
            self.file = None;
            self.reach(first, before.next());
            self.above = Some((first, before.min(self.to), missing::FILES_GONE));
            return Ok(());
        }
        let Some(frame) = back.frame()? else { return Ok(()) };
        let record = match frame {
            Either::Message(record) => record,
            // The last one, if all is there.
            Either::Mark(next, at) => {
                let next = next.min(back.limit);
                if at <= self.to && self.above.is_none_or(|(above, ..)| above > next) {
                    self.reach(next, at.next());
                    self.above = Some((next, at, missing::NO_RECORDS));
                }
                return Ok(());
            }
        };
        let at = position(&record);
        if record.sequence >= back.limit {
            return Ok(());
        }
        if at > self.to {
            let before = at.before().unwrap_or(Position::FIRST);
            self.above = Some((record.sequence, before.min(self.to), missing::NO_RECORDS));
            return Ok(());
        }
        back.opened.know(record.topic)?;
        let named = back.opened.topic(record.topic);
        let ours = named.is_none_or(|topic| *topic == *self.source.topic);
        let payload = match named {
            Some(_) if ours => back.opened.payload(&record)?,
            _ => None,
        };
        let is_gone = back.opened.is_gone();
        self.reach(record.sequence + 1, at.next());
        let before = at.before().unwrap_or(Position::FIRST);
        self.above = Some((record.sequence, before, missing::NO_RECORDS));
        if at < self.from {
            self.is_last = true;
            return Ok(());
        }
        let back = self.file.as_mut().expect("it is open");
        match payload {
            Some(payload) => {
                let origin = back.opened.origin(record.origin)?;
                let topic = self.source.topic.clone();
                self.message = Some(stored(&record, topic, payload, origin));
            }
            None if ours => {
                self.add(at, at, 1, if is_gone { missing::DATA_GONE } else { missing::CHANGED });
            }
            None => {}
        }
        Ok(())
    }

    /// The message before what was read last is the one before this sequence: those between are missing,
    /// from a position on.
    fn reach(&mut self, next: u64, from: Position) {
        let Some((above, to, why)) = self.above else { return };
        let gone = above.saturating_sub(next);
        if gone > 0 {
            self.add(from.min(to), to, gone, why);
        }
    }

    fn add(&mut self, from: Position, to: Position, messages: u64, why: &'static str) {
        if to < self.from {
            return;
        }
        let file = self.source.disk.describe(&self.path);
        let missing = Missing { from: from.max(self.from), to, messages, file, why };
        match &mut self.missing {
            Some(behind) => behind.extend_back(&missing),
            none => *none = Some(missing),
        }
    }

    fn open_next(&mut self) -> Result<bool, StoreError> {
        while let Some(listed) = self.files.last().cloned() {
            let before = head_position(&listed.head);
            if before > self.to {
                // All of it is behind.
                self.above = Some((listed.head.first, self.to, missing::FILES_GONE));
                self.files.pop();
                continue;
            }
            let source = &self.source;
            let Some((opened, listed)) = open_listed(&source.disk, &listed, || source.list())?
            else {
                self.files = source.list()?;
                // Before anything was read, those that came meanwhile are as good.
                let any = self.above.is_none();
                self.files.retain(|other| any || other.head.number <= listed.head.number);
                continue;
            };
            let failed = |error| source.failed(&listed.path, error);
            // One more, to report what is missing before it.
            let place = opened.seek(self.to.next()).map_err(failed)?;
            let place = (place + 1).min(opened.frames().map_err(failed)?);
            let (limit, buffer, from) = (listed.limit, Vec::new(), place);
            self.path.clone_from(&listed.path);
            self.file = Some(Back { opened, limit, place, buffer, from });
            self.files.pop();
            return Ok(true);
        }
        if let Some((first, to, missing::FILES_GONE)) = self.above {
            if first > 1 && self.from > Position::FIRST {
                self.add(self.from, to, 0, missing::OLDER_GONE);
            }
        }
        Ok(false)
    }
}

/// Frames that are read at once.
const AT_ONCE: u64 = 256;

/// A frame, as far as it says which messages are before it.
enum Either {
    Message(Record),
    /// The sequence of the next message, and the position of the last one.
    Mark(u64, Position),
}

impl<F: File> Back<F> {
    /// The frame before, if it tells anything.
    fn frame(&mut self) -> std::io::Result<Option<Either>> {
        if self.place == self.from {
            let first = u64::from(self.opened.head.frames);
            self.from = self.place.saturating_sub(AT_ONCE).max(first);
            self.buffer.resize((self.place - self.from) as usize * FRAME, 0);
            let read = crate::disk::read_at(
                &self.opened.index,
                self.from * FRAME as u64,
                &mut self.buffer,
            )?;
            self.buffer[read..].fill(0);
        }
        self.place -= 1;
        let at = (self.place - self.from) as usize * FRAME;
        let bytes: &[u8; FRAME] = self.buffer[at..at + FRAME].try_into().expect("a frame");
        Ok(match frame::decode(bytes, self.opened.head.salt) {
            Ok(Frame::Message(record)) => Some(Either::Message(record)),
            Ok(Frame::Mark(mark) | Frame::Closed(mark)) => {
                Some(Either::Mark(mark.next, Position::new(mark.time / 1000, mark.n)))
            }
            _ => None,
        })
    }
}
