//! An index as it is read: what its frames say, one after the other.

use std::io;

use crate::disk::{read_at, File};
use crate::file::frame::{self, Bad, Frame, Head, Mark, FRAME};

/// Ends the name of an index.
pub const INDEX: &str = ".idx";
/// Ends the name of an index whose file is being removed: readers do not look for its data.
pub const GOING: &str = ".idx.old";

/// The knowledge that the frames so far give.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub head: Head,
    pub store: Vec<u8>,
    /// The topics, by number less 1.
    pub topics: Vec<Vec<u8>>,
    /// The origins, by number less 1: the origin, and its last message number.
    pub origins: Vec<(u128, u64)>,
    /// Sequence of the next message.
    pub next: u64,
    /// The end of the data.
    pub end: u64,
    /// Time of the last message.
    pub time: u64,
    pub n: u32,
    /// Time of the first message in this file, or 0.
    pub begun: u64,
    pub messages: u64,
    /// All up to this sequence is reported to be on disk.
    pub durable: u64,
    pub closed: bool,
    /// The pieces of a name so far, and how many these are.
    name: Vec<u8>,
    pieces: u32,
}

impl Known {
    fn of_head(head: Head) -> Self {
        Known {
            head,
            next: head.first,
            time: head.time,
            n: head.n,
            durable: head.first.saturating_sub(1),
            ..Known::default()
        }
    }

    pub fn mark(&self) -> Mark {
        Mark { next: self.next, end: self.end, time: self.time, n: self.n }
    }

    /// Applies the next frame. `false`: it does not follow the earlier ones, and nothing was changed.
    pub fn apply(&mut self, frame: &Frame<'_>) -> bool {
        if self.closed {
            return false;
        }
        match *frame {
            Frame::Head(_) => return false,
            Frame::Store { piece, name, last } => {
                if !self.name(piece, name) {
                    return false;
                }
                if last {
                    self.store = self.take_name();
                }
            }
            Frame::Topic { topic, piece, name, last } => {
                if topic as usize != self.topics.len() + 1 || !self.name(piece, name) {
                    return false;
                }
                if last {
                    let name = self.take_name();
                    self.topics.push(name);
                }
            }
            Frame::Origin { origin, id, last } => {
                if origin as usize != self.origins.len() + 1 {
                    return false;
                }
                self.origins.push((id, last));
            }
            Frame::Message(record) => {
                let known = (1..=self.topics.len()).contains(&(record.topic as usize))
                    && record.origin as usize <= self.origins.len();
                if record.sequence != self.next || record.offset != self.end || !known {
                    return false;
                }
                if let Some(origin) = (record.origin as usize).checked_sub(1) {
                    let last = &mut self.origins[origin].1;
                    *last = record.number.max(*last);
                }
                if self.messages == 0 {
                    self.begun = record.time;
                }
                self.messages += 1;
                (self.next, self.end) = (self.next + 1, record.end());
                (self.time, self.n) = (record.time, record.n);
                self.durable = self.durable.max(record.durable());
            }
            Frame::Mark(mark) | Frame::Closed(mark) => {
                if (mark.next, mark.end) != (self.next, self.end) {
                    return false;
                }
                self.durable = self.next.saturating_sub(1);
                self.closed = matches!(frame, Frame::Closed(_));
            }
        }
        true
    }

    /// Applies a valid frame although earlier ones are missing.
    pub fn apply_behind(&mut self, frame: &Frame<'_>) {
        if self.apply(frame) {
            return;
        }
        match *frame {
            Frame::Message(record) if record.sequence >= self.next => {
                if let Some((_, last)) = (record.origin as usize)
                    .checked_sub(1)
                    .and_then(|origin| self.origins.get_mut(origin))
                {
                    *last = record.number.max(*last);
                }
                if self.messages == 0 {
                    self.begun = record.time;
                }
                self.messages += 1;
                (self.next, self.end) = (record.sequence + 1, record.end());
                (self.time, self.n) = (record.time.max(self.time), record.n);
                self.durable = self.durable.max(record.durable());
            }
            // Missing origins before it keep their indexes, without a value.
            Frame::Origin { origin, id, last } => {
                let place = origin as usize;
                if (self.origins.len()..self.origins.len() + FAR).contains(&place) {
                    self.origins.resize(place - 1, (0, 0));
                    self.origins.push((id, last));
                }
            }
            Frame::Mark(mark) | Frame::Closed(mark) if mark.next >= self.next => {
                (self.next, self.end) = (mark.next, mark.end.max(self.end));
                self.durable = self.durable.max(mark.next.saturating_sub(1));
                (self.time, self.n) = (mark.time.max(self.time), mark.n);
            }
            _ => {}
        }
    }

    fn name(&mut self, piece: u32, name: &[u8]) -> bool {
        if piece == 0 {
            self.name.clear();
            self.pieces = 0;
        }
        if piece != self.pieces {
            return false;
        }
        self.name.extend_from_slice(name);
        self.pieces += 1;
        true
    }

    fn take_name(&mut self) -> Vec<u8> {
        self.pieces = 0;
        std::mem::take(&mut self.name)
    }
}

/// No file lacks this many declarations and is worth reading.
const FAR: usize = 1 << 16;

/// The reason why a file is not an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoIndex {
    Damaged,
    Version(u32),
}

/// Reads the head of an index, with the names and origins in it.
pub fn read_head(file: &impl File) -> io::Result<Result<Known, NoIndex>> {
    let mut frames = Frames::new(file, 0);
    let Some(bytes) = frames.next()? else { return Ok(Err(NoIndex::Damaged)) };
    let mut known = match frame::decode(bytes, 0) {
        Ok(Frame::Head(head)) => Known::of_head(head),
        Err(Bad::Version(version)) => return Ok(Err(NoIndex::Version(version))),
        _ => return Ok(Err(NoIndex::Damaged)),
    };
    for _ in 1..known.head.frames {
        let Some(bytes) = frames.next()? else { return Ok(Err(NoIndex::Damaged)) };
        match frame::decode(bytes, known.head.salt) {
            Ok(frame @ (Frame::Store { .. } | Frame::Topic { .. } | Frame::Origin { .. }))
                if known.apply(&frame) => {}
            _ => return Ok(Err(NoIndex::Damaged)),
        }
    }
    if known.head.by_topic && known.topics.len() != 1 {
        return Ok(Err(NoIndex::Damaged));
    }
    Ok(Ok(known))
}

/// Reads the frames of an index, one after the other.
#[derive(Debug)]
pub struct Frames<'a, F> {
    file: &'a F,
    buffer: Vec<u8>,
    /// The place of the next frame in the buffer.
    at: usize,
    /// The place of the buffer's end in the file.
    end: u64,
}

/// Frames that are read at once.
const AT_ONCE: usize = 1024;

impl<'a, F: File> Frames<'a, F> {
    /// From a frame on.
    pub fn new(file: &'a F, frame: u64) -> Self {
        Frames { file, buffer: Vec::new(), at: 0, end: frame * FRAME as u64 }
    }

    /// The number of the frame that comes next.
    pub fn place(&self) -> u64 {
        (self.end - (self.buffer.len() - self.at) as u64) / FRAME as u64
    }

    /// Returns the next complete one, or `None`.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> io::Result<Option<&[u8; FRAME]>> {
        if self.at == self.buffer.len() {
            // The head alone is wanted of most.
            let frames = if self.buffer.is_empty() { 8 } else { AT_ONCE };
            self.buffer.resize(frames * FRAME, 0);
            let read = read_at(self.file, self.end, &mut self.buffer)?;
            self.buffer.truncate(read / FRAME * FRAME);
            self.end += self.buffer.len() as u64;
            self.at = 0;
        }
        let found = self.buffer.get(self.at..self.at + FRAME);
        self.at += found.map_or(0, <[u8]>::len);
        Ok(found.map(|bytes| bytes.try_into().expect("a frame")))
    }
}
