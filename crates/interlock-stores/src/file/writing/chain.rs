//! A chain: the files of one topic, or of all where they share them, in the order they were begun.
//!
//! The files of a chain are in one order, and a crash leaves a beginning of it. So the last number
//! of an origin in a chain proves that all before it exist: this is not so across chains.

use std::collections::HashMap;
use std::ops::Range;

use crate::file::frame::{Mark, Record};
use crate::file::writing::segment::Segment;
use crate::message::Message;

#[derive(Debug)]
pub struct Chain<F> {
    /// The topic, where each has files of its own.
    pub topic: Option<Vec<u8>>,
    /// The file that is written to; `None`: the next message begins one.
    pub segment: Option<Segment<F>>,
    /// The number of the last file.
    pub number: u64,
    /// The moment in the name of the last file that was renamed, and which one of that second it was.
    pub renamed: Option<(String, u32)>,
    /// The last message that was written, which is kept whatever happens to the waiting ones.
    pub kept: Cursor,
    /// The last message of all up to which everything is on disk.
    pub durable: u64,
    /// The last number of each origin, those that wait among them.
    pub origins: HashMap<u128, u64>,
    pub waiting: Waiting,
    /// True if it is in the list of chains with waiting messages; `unsynced`: in the list of those with
    /// unsynced data.
    pub listed: bool,
    pub unsynced: bool,
}

/// A place in a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    pub sequence: u64,
    /// µs since 1970, and which one of its millisecond.
    pub time: u64,
    pub n: u32,
}

impl Cursor {
    /// The place behind it, of a message of this time or a later one.
    pub fn next(self, time: u64) -> Cursor {
        let time = time.max(self.time);
        let sequence = self.sequence + 1;
        if time / 1000 != self.time / 1000 || self.sequence == 0 {
            return Cursor { sequence, time, n: 0 };
        }
        match self.n.checked_add(1) {
            Some(n) => Cursor { sequence, time, n },
            None => Cursor { sequence, time: (time / 1000 + 1) * 1000, n: 0 },
        }
    }

    /// A mark behind it, where the data ends.
    pub fn mark(self, end: u64) -> Mark {
        Mark { next: self.sequence + 1, end, time: self.time, n: self.n }
    }
}

/// The messages of a chain that were taken and not yet written, or written and not yet synced.
#[derive(Debug, Default)]
pub struct Waiting {
    pub data: Vec<u8>,
    topics: Vec<u8>,
    pub messages: Vec<One>,
    /// The number of them that were written, and the last of these.
    pub written: usize,
    pub reached: Cursor,
}

/// One of these.
#[derive(Clone, Debug)]
pub struct One {
    pub ticket: u64,
    pub time: u64,
    topic: Range<usize>,
    /// Range of the payload; the newline is after it.
    pub payload: Range<usize>,
    crc: u32,
    origin: u128,
    number: u64,
    /// The last number of its origin before it; `None`: it is the first one.
    before: Option<u64>,
}

/// Buffers that grew larger are given back.
const KEPT: usize = 1 << 20;

impl<F> Chain<F> {
    pub fn new(topic: Option<Vec<u8>>) -> Self {
        Chain {
            topic,
            segment: None,
            number: 0,
            renamed: None,
            kept: Cursor::default(),
            durable: 0,
            origins: HashMap::new(),
            waiting: Waiting::default(),
            listed: false,
            unsynced: false,
        }
    }

    /// Returns whether a message was here before.
    pub fn knows(&self, message: &Message<'_>) -> bool {
        message.origin != 0
            && self.origins.get(&message.origin).is_some_and(|last| message.number <= *last)
    }

    /// Accepts a message, to be written later.
    pub fn take(&mut self, message: &Message<'_>, time: u64, ticket: u64) {
        let before = match message.origin {
            0 => None,
            origin => self.origins.insert(origin, message.number),
        };
        let waiting = &mut self.waiting;
        let from = waiting.data.len();
        waiting.data.extend_from_slice(message.payload);
        let payload = from..waiting.data.len();
        waiting.data.push(b'\n');
        let topic = match self.topic {
            Some(_) => 0..0,
            None => {
                let from = waiting.topics.len();
                waiting.topics.extend_from_slice(message.topic);
                from..waiting.topics.len()
            }
        };
        let (origin, number) = (message.origin, message.number);
        let crc = crc32c::crc32c(message.payload);
        waiting.messages.push(One { ticket, time, topic, payload, crc, origin, number, before });
    }

    /// Returns a message's topic, its origin, and its record but for what its file says.
    pub fn described(&self, n: usize, place: Cursor) -> (&[u8], u128, Record) {
        let one = &self.waiting.messages[n];
        let topic = match &self.topic {
            Some(topic) => topic,
            None => &self.waiting.topics[one.topic.clone()],
        };
        let behind = place.sequence - 1 - self.durable.min(place.sequence - 1);
        let record = Record {
            sequence: place.sequence,
            time: place.time,
            n: place.n,
            number: one.number,
            length: one.payload.len() as u32,
            crc: one.crc,
            behind: u32::try_from(behind).unwrap_or(u32::MAX),
            ..Record::default()
        };
        (topic, one.origin, record)
    }

    /// The last number of each origin among the messages that are written.
    pub fn written_origins(&self) -> HashMap<u128, u64> {
        let mut origins = self.origins.clone();
        for one in self.waiting.messages[self.waiting.written..].iter().rev() {
            match one.before {
                _ if one.origin == 0 => {}
                Some(before) => {
                    origins.insert(one.origin, before);
                }
                None => {
                    origins.remove(&one.origin);
                }
            }
        }
        origins
    }

    /// All that was written is kept; returns how many messages that is.
    pub fn settle(&mut self) -> usize {
        let written = self.waiting.written;
        if written > 0 {
            self.kept = self.waiting.reached;
            self.waiting.forget();
        }
        written
    }

    /// Called when no waiting message was written: they go to another file.
    pub fn undone(&mut self) {
        self.waiting.written = 0;
        self.waiting.reached = self.kept;
        // Some of it may have been synced in that file. The next one has it again, and not on disk yet.
        self.durable = self.durable.min(self.kept.sequence);
        self.segment = None;
    }

    /// Drops messages that wait to be written; returns their tickets. Written ones are kept.
    pub fn withdraw(&mut self) -> Vec<u64> {
        let written = self.waiting.written;
        let given: Vec<One> = self.waiting.messages.drain(written..).collect();
        // From the last one on: what was before the first is what was before all.
        for one in given.iter().rev().filter(|one| one.origin != 0) {
            match one.before {
                Some(before) => self.origins.insert(one.origin, before),
                None => self.origins.remove(&one.origin),
            };
        }
        if written == 0 {
            self.waiting.forget();
        }
        given.iter().map(|one| one.ticket).collect()
    }
}

impl Waiting {
    /// Forgets those that were written.
    fn forget(&mut self) {
        self.messages.drain(..self.written);
        self.written = 0;
        if !self.messages.is_empty() {
            return;
        }
        self.data.clear();
        self.topics.clear();
        if self.data.capacity() > KEPT {
            self.data = Vec::new();
        }
        if self.messages.capacity() > KEPT / size_of::<One>() {
            self.messages = Vec::new();
        }
    }
}
