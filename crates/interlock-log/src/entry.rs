//! The entries of a log, and their bytes.
//!
//! An entry names its writer and states how far the writer had read, so that readers notice a fork.
//! The last eight bytes are a checksum of the rest; every reader skips bytes whose checksum is
//! wrong.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::codec::{checksum, put_bytes, put_number, Bytes, Damaged, Reader};
use crate::heard::{marks, put_marks};
use crate::keepers::Report;
use crate::stamp::{BELIEVED_MS, COUNTER_BITS};

const VERSION: u8 = 1;
const GENESIS: u8 = 1;
const COMMANDS: u8 = 2;
const PUT_BACK: u8 = 3;
const STATE: u8 = 4;
const KEEPS: u8 = 5;
const ASKING: u8 = 6;
const ACKS: u8 = 7;

/// Longest name of a node's start, a client or a source, in bytes.
pub const MOST_NAME: usize = 128;
/// Longest genesis, in bytes.
pub const MOST_GENESIS: usize = 1 << 20;
/// Largest number of commands in an entry.
pub const MOST_COMMANDS: usize = 1 << 16;
/// Largest number of arguments of a command.
pub const MOST_ARGUMENTS: usize = 1 << 16;
/// Longest entry, in bytes.
pub const MOST_BYTES: usize = 256 << 20;

/// Returns the checksum of a single entry.
pub fn digest(entry: &[u8]) -> u64 {
    checksum(1, entry)
}

/// A place in a history: its number of entries and the checksum of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark {
    pub position: u64,
    pub checksum: u64,
}

impl Mark {
    /// Returns the place after the next entry, which has this digest.
    #[must_use]
    pub fn then(self, digest: u64) -> Self {
        let checksum = checksum(self.checksum, &digest.to_le_bytes());
        Self { position: self.position + 1, checksum }
    }

    pub fn encode(self, out: &mut Vec<u8>) {
        put_number(out, self.position);
        out.extend_from_slice(&self.checksum.to_le_bytes());
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self { position: reader.number()?, checksum: reader.word()? })
    }
}

/// A write as a client sent it. Clones share its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The client's name and its number for this write; `None` if the client does not number its
    /// writes.
    pub client: Option<(Bytes, u64)>,
    /// Log time, in ms, after which no node does it.
    pub deadline: u64,
    pub arguments: Arguments,
}

/// The arguments of a command as encoded in an entry: their number, then each with its length
/// before it.
#[derive(Clone, PartialEq, Eq)]
pub struct Arguments(Bytes);

impl Arguments {
    pub fn new<T: AsRef<[u8]>>(arguments: &[T]) -> Arguments {
        let size = arguments.iter().map(|argument| argument.as_ref().len() + 2).sum::<usize>();
        let mut out = Vec::with_capacity(size + 2);
        put_number(&mut out, arguments.len() as u64);
        for argument in arguments {
            put_bytes(&mut out, argument.as_ref());
        }
        Arguments(out.into())
    }

    /// Builds arguments from the bytes at a place of shared memory, as [`Arguments::new`] encodes them.
    pub fn shared(whole: Arc<[u8]>, place: Range<usize>) -> Arguments {
        Arguments(Bytes::part(whole, place))
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Arguments, Damaged> {
        let before = *reader;
        let count = bounded(reader.count(1)?, MOST_ARGUMENTS)?;
        for _ in 0..count {
            reader.bytes(MOST_BYTES)?;
        }
        Ok(Arguments(reader.since(&before)))
    }

    /// Iterates over the arguments.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        let mut reader = Reader::new(&self.0);
        let count = reader.count(1).unwrap_or(0);
        (0..count).map_while(move |_| reader.bytes(MOST_BYTES).ok())
    }

    /// Returns all arguments.
    pub fn list(&self) -> SmallVec<[&[u8]; 12]> {
        let mut reader = Reader::new(&self.0);
        let count = reader.count(1).unwrap_or(0);
        let mut list = SmallVec::with_capacity(count);
        for _ in 0..count {
            let Ok(argument) = reader.bytes(MOST_BYTES) else { break };
            list.push(argument);
        }
        list
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

/// A command of a lost entry that the entry's first reader did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Its index in the entry.
    pub index: u64,
    /// Its first stamp.
    pub stamp: u64,
    pub command: Command,
}

/// The part of a lost entry that its first reader did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PutBack {
    /// Log time at which it was first done, in ms.
    pub time: u64,
    /// Busy time when it was first done, in ms.
    pub busy: u64,
    /// The writer at that time, by [`Machine::writer`](crate::machine::Machine::writer): sums still
    /// have it under this name.
    pub writer: u64,
    pub done: Vec<Done>,
    /// Indexes of the writes without a client that were not done, in increasing order. Another
    /// history may have done them.
    pub denied: Vec<u64>,
    /// It counts although earlier entries of its name are missing: no reachable node has them.
    pub leaps: bool,
}

/// Owner of the rows of a state entry that are not this data centre's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Source {
    pub name: Vec<u8>,
    /// The place that its history had reached; for returned rows, all the places that they came
    /// from.
    pub marks: Vec<Mark>,
    /// Its log time at that place, in ms.
    pub time: u64,
    /// Marks of its histories that the report follows: its history has them, or they are lost.
    pub checked: Vec<Mark>,
    /// Marks of histories of the log's data centre from which the owner has rows.
    pub told: Vec<Mark>,
    /// A new number asks the log's data centre to send all its rows; 0 does not.
    pub asks: u64,
    /// A node of the log's data centre brings the rows back: its log had lost them.
    pub is_returned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Begins a log: the settings that all nodes must share.
    Genesis(Vec<u8>),
    /// Writes. An entry without writes carries the time and shows how far its writer has read.
    Commands(Vec<Command>),
    /// Like `Commands`, and the writer asks nodes on other machines for an acknowledgement.
    Asking(Vec<Command>),
    /// A machine acknowledges everything up to the place that the entry's writer had read: the
    /// node's files have it.
    Acks { machine: Vec<u8> },
    /// Rule 4: `name` and `number` of the entry are those of the lost entry.
    PutBack(PutBack),
    /// Rule 5: a state to join.
    State { source: Option<Source>, bytes: Vec<u8> },
    /// The checkpoints of a node, which decide how far the log may be trimmed.
    Keeps { node: Vec<u8>, machine: Vec<u8>, report: Report },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of the node start that wrote it.
    pub name: Vec<u8>,
    /// Its number under this name, counted from 1; 0 for kinds that are not counted.
    pub number: u64,
    /// The place up to which its writer had read.
    pub read: Mark,
    /// Highest log time that its writer has seen, in ms.
    pub seen: u64,
    /// Differs each time an entry is appended, so that a late copy of a lost entry is never
    /// mistaken for the lost entry itself, even if the engine gives it the same id.
    pub nonce: u64,
    pub body: Body,
}

impl Source {
    /// Encodes all but its name.
    fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.time);
        for list in [&self.marks, &self.checked, &self.told] {
            put_marks(out, list);
        }
        put_number(out, self.asks);
        out.push(u8::from(self.is_returned));
    }

    fn decode(name: Vec<u8>, reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let time = reader.number()?;
        let (marks, checked, told) = (marks(reader)?, marks(reader)?, marks(reader)?);
        let (asks, returned) = (reader.number()?, reader.byte()?);
        if time > BELIEVED_MS || returned > 1 {
            return Err(Damaged);
        }
        Ok(Self { name, marks, time, checked, told, asks, is_returned: returned == 1 })
    }
}

impl Command {
    fn size(&self) -> usize {
        OF_A_COMMAND
            + self.client.as_ref().map_or(0, |(name, _)| name.len())
            + self.arguments.0.len()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match &self.client {
            None => put_bytes(out, b""),
            Some((client, number)) => {
                put_bytes(out, client);
                put_number(out, *number);
            }
        }
        put_number(out, self.deadline);
        out.extend_from_slice(&self.arguments.0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut ahead = *reader;
        let client = if ahead.byte()? == 0 {
            *reader = ahead;
            None
        } else {
            let client = reader.kept(MOST_NAME)?;
            let number = reader.number()?;
            if number == 0 {
                return Err(Damaged);
            }
            Some((client, number))
        };
        let deadline = reader.number()?;
        Ok(Self { client, deadline, arguments: Arguments::decode(reader)? })
    }
}

impl Body {
    /// Approximate size in bytes, so that enough memory is allocated at once.
    fn size(&self) -> usize {
        match self {
            Body::Commands(commands) | Body::Asking(commands) => {
                commands.iter().map(Command::size).sum()
            }
            Body::PutBack(lost) => lost.size(),
            Body::Genesis(bytes) | Body::State { bytes, .. } => bytes.len(),
            Body::Acks { .. } | Body::Keeps { .. } => 0,
        }
    }
}

impl PutBack {
    /// See [`Body::size`].
    pub fn size(&self) -> usize {
        self.done.iter().map(|done| done.command.size() + OF_A_STAMP).sum()
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.time);
        put_number(out, self.busy);
        put_number(out, self.writer);
        put_number(out, self.done.len() as u64);
        for done in &self.done {
            put_number(out, done.index);
            put_number(out, done.stamp);
            done.command.encode(out);
        }
        put_number(out, self.denied.len() as u64);
        for index in &self.denied {
            put_number(out, *index);
        }
        out.push(u8::from(self.leaps));
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let (time, busy, writer) = (reader.number()?, reader.number()?, reader.number()?);
        let count = bounded(reader.count(5)?, MOST_COMMANDS)?;
        let done = (0..count).map(|_| {
            let (index, stamp) = (reader.number()?, reader.number()?);
            Ok(Done { index, stamp, command: Command::decode(reader)? })
        });
        let done = done.collect::<Result<Vec<_>, _>>()?;
        let count = bounded(reader.count(1)?, MOST_COMMANDS)?;
        let denied = (0..count).map(|_| reader.number()).collect::<Result<Vec<_>, _>>()?;
        let is_sorted = done.windows(2).all(|two| two[0].index < two[1].index)
            && denied.windows(2).all(|two| two[0] < two[1]);
        let leaps = reader.byte()?;
        let highest = done.iter().map(|one| one.stamp >> COUNTER_BITS).max().unwrap_or(0);
        if !is_sorted || leaps > 1 || time.max(busy).max(highest) > BELIEVED_MS {
            return Err(Damaged);
        }
        Ok(Self { time, busy, writer, done, denied, leaps: leaps == 1 })
    }
}

impl Entry {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(OF_AN_ENTRY + self.body.size());
        out.push(VERSION);
        put_bytes(&mut out, &self.name);
        put_number(&mut out, self.number);
        self.read.encode(&mut out);
        put_number(&mut out, self.seen);
        out.extend_from_slice(&self.nonce.to_le_bytes());
        match &self.body {
            Body::Genesis(bytes) => {
                out.push(GENESIS);
                put_bytes(&mut out, bytes);
            }
            Body::Commands(commands) => put_commands(&mut out, COMMANDS, commands),
            Body::Asking(commands) => put_commands(&mut out, ASKING, commands),
            Body::Acks { machine } => {
                out.push(ACKS);
                put_bytes(&mut out, machine);
            }
            Body::PutBack(lost) => {
                out.push(PUT_BACK);
                lost.encode(&mut out);
            }
            Body::State { source, bytes } => {
                out.push(STATE);
                match source {
                    None => put_bytes(&mut out, b""),
                    Some(source) => {
                        put_bytes(&mut out, &source.name);
                        source.encode(&mut out);
                    }
                }
                put_bytes(&mut out, bytes);
            }
            Body::Keeps { node, machine, report } => {
                out.push(KEEPS);
                put_bytes(&mut out, node);
                put_bytes(&mut out, machine);
                report.encode(&mut out);
            }
        }
        let sum = checksum(0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes an entry.
    ///
    /// # Errors
    ///
    /// The bytes are damaged or not an entry of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        bounded(bytes.len(), MOST_BYTES)?;
        let body = bytes.len().checked_sub(8).ok_or(Damaged)?;
        if bytes[body..] != checksum(0, &bytes[..body]).to_le_bytes() {
            return Err(Damaged);
        }
        let whole: Arc<[u8]> = bytes.into();
        let mut reader = Reader::shared(&whole, body);
        if reader.byte()? != VERSION {
            return Err(Damaged);
        }
        let name = reader.bytes(MOST_NAME)?.to_vec();
        let number = reader.number()?;
        let read = Mark::decode(&mut reader)?;
        let seen = reader.number()?;
        let nonce = reader.word()?;
        let body = match reader.byte()? {
            GENESIS => Body::Genesis(reader.bytes(MOST_GENESIS)?.to_vec()),
            COMMANDS => Body::Commands(commands(&mut reader)?),
            ASKING => Body::Asking(commands(&mut reader)?),
            ACKS => Body::Acks { machine: reader.bytes(MOST_NAME)?.to_vec() },
            PUT_BACK => Body::PutBack(PutBack::decode(&mut reader)?),
            STATE => {
                let name = reader.bytes(MOST_NAME)?.to_vec();
                let source =
                    if name.is_empty() { None } else { Some(Source::decode(name, &mut reader)?) };
                Body::State { source, bytes: reader.bytes(MOST_BYTES)?.to_vec() }
            }
            KEEPS => Body::Keeps {
                node: reader.bytes(MOST_NAME)?.to_vec(),
                machine: reader.bytes(MOST_NAME)?.to_vec(),
                report: Report::decode(&mut reader)?,
            },
            _ => return Err(Damaged),
        };
        reader.end()?;
        let counted = matches!(body, Body::Commands(_) | Body::Asking(_) | Body::PutBack(_));
        if counted != (number > 0) || name.is_empty() {
            return Err(Damaged);
        }
        Ok(Self { name, number, read, seen, nonce, body })
    }
}

fn put_commands(out: &mut Vec<u8>, kind: u8, commands: &[Command]) {
    out.push(kind);
    put_number(out, commands.len() as u64);
    for command in commands {
        command.encode(out);
    }
}

fn commands(reader: &mut Reader<'_>) -> Result<Vec<Command>, Damaged> {
    let count = bounded(reader.count(3)?, MOST_COMMANDS)?;
    let mut commands = Vec::with_capacity(count);
    for _ in 0..count {
        commands.push(Command::decode(reader)?);
    }
    Ok(commands)
}

/// Overhead in bytes of an entry and of a command, and of the index and stamp of a command that was
/// done.
const OF_AN_ENTRY: usize = 256;
const OF_A_COMMAND: usize = 10;
const OF_A_STAMP: usize = 12;

fn bounded(count: usize, most: usize) -> Result<usize, Damaged> {
    if count > most {
        return Err(Damaged);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Place;

    fn entries() -> Vec<Entry> {
        let command = Command {
            client: Some((b"c"[..].into(), 9)),
            deadline: 77,
            arguments: Arguments::new(&["HSET", "a:b"]),
        };
        let lost = PutBack {
            time: 5,
            busy: 4,
            writer: 6,
            done: vec![Done { index: 2, stamp: 99, command: command.clone() }],
            denied: vec![1, 3],
            leaps: true,
        };
        let plain = Command { client: None, ..command.clone() };
        let mark = Mark { position: 3, checksum: 8 };
        let source = Source {
            name: b"north".to_vec(),
            marks: vec![mark],
            time: 9,
            checked: vec![mark, mark.then(1)],
            told: Vec::new(),
            asks: 7,
            is_returned: true,
        };
        let keeps = |report| Body::Keeps { node: b"a".to_vec(), machine: b"m".to_vec(), report };
        let place = Place { mark, id: Some((7, 0)), entry: 5 };
        let bodies = [
            (0, keeps(Report::Known)),
            (0, keeps(Report::Keeps(Some(place)))),
            (0, Body::Genesis(b"cluster".to_vec())),
            (7, Body::Commands(vec![command.clone(), plain])),
            (6, Body::Asking(vec![command])),
            (0, Body::Acks { machine: b"m".to_vec() }),
            (8, Body::Commands(Vec::new())),
            (9, Body::PutBack(lost)),
            (0, Body::State { source: None, bytes: b"rows".to_vec() }),
            (0, Body::State { source: Some(source), bytes: b"rows".to_vec() }),
        ];
        let read = Mark { position: 12, checksum: u64::MAX };
        let entry =
            |(number, body)| Entry { name: b"n".to_vec(), number, read, seen: 6, nonce: 11, body };
        bodies.map(entry).to_vec()
    }

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let sum = checksum(0, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn entries_survive_encoding_in_one_canonical_form() {
        for entry in entries() {
            let bytes = entry.encode();
            assert_eq!(Entry::decode(&bytes), Ok(entry));
        }
    }

    #[test]
    fn a_changed_byte_is_detected() {
        for entry in entries() {
            let bytes = entry.encode();
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert_eq!(Entry::decode(&changed), Err(Damaged));
                assert_eq!(Entry::decode(&bytes[..at]), Err(Damaged));
            }
        }
    }

    /// Bytes with a valid checksum from an attacker are refused, or decode to an entry that encodes
    /// to them.
    #[test]
    fn hostile_bytes_are_refused_without_a_panic() {
        let mut random = fastrand::Rng::with_seed(1);
        let bases = entries();
        for _ in 0..200_000 {
            let base = &bases[random.usize(..bases.len())].encode();
            let mut bytes = base[..base.len() - 8].to_vec();
            for _ in 0..random.usize(1..4) {
                match random.usize(..4) {
                    0 if !bytes.is_empty() => {
                        let at = random.usize(..bytes.len());
                        bytes[at] = random.u8(..);
                    }
                    1 => bytes.truncate(random.usize(..=bytes.len())),
                    2 => bytes.insert(random.usize(..=bytes.len()), random.u8(..)),
                    _ => bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(9)),
                }
            }
            let bytes = sealed(bytes);
            if let Ok(entry) = Entry::decode(&bytes) {
                assert_eq!(entry.encode(), bytes, "one entry has two forms");
            }
        }
    }
}
