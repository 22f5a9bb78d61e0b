//! The spool: messages that wait to be delivered, on a journal, which forgets those that are.
//!
//! A message without origin gets that of the spool, which is random and for life, and a number
//! above all that the spool ever gave: by these a receiver recognises repeats. Forgotten messages
//! may be delivered again after a crash: of the process those forgotten since the last tick, of the
//! machine more. Messages that are not forgotten are never lost.
//!
//! | file | what it is |
//! |---|---|
//! | `origin` | the origin, and a number above which none was given |
//! | `delivered` | the place up to which messages are delivered, as of the last tick |
//! | `*.damaged-N` | what a repair set aside; what is whole in it was taken over |
//! | all others | the journal's |

mod delivered;
mod origin;
mod repair;
mod report;
mod sizes;

use std::fmt;
use std::io;

use interlock_journal::record::{self, RecordKind};
use interlock_journal::storage::{Fill, Storage};
use interlock_journal::{
    cursor, Entry, Journal, JournalError, JournalSettings, OpenError, Record, Repair, Replay,
};

pub use interlock_journal::Durability;
pub use report::Report;

use crate::error::StoreError;
use crate::message::Message;
use delivered::{read_delivered, Delivered};
use origin::{read_origin, write_origin};
use sizes::Sizes;

/// A spool that is open. Appending and forgetting are of one thread.
pub struct Spool<S: Storage> {
    journal: Journal<S>,
    settings: Settings,
    origin: u128,
    /// The number that was given last.
    number: u64,
    /// Up to which place everything is delivered, and up to which that is on disk.
    forgotten: u64,
    persisted: u64,
    /// The same position, as stored on disk.
    delivered: Delivered<S::File>,
    sizes: Sizes,
}

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most bytes of messages that wait, with what is kept of each beside its payload.
    pub bytes: u64,
    /// Bytes of a segment, of which those go that are delivered whole.
    pub segment: u64,
    /// Begins the checksums; a random number.
    pub salt: u32,
}

impl Settings {
    pub fn new(bytes: u64) -> Self {
        let segment = (bytes / 16).clamp(1 << 20, 64 << 20);
        Settings { bytes, segment, salt: JournalSettings::default().salt }
    }
}

/// A message of the spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spooled {
    /// Its place, by which it is forgotten; those of later messages are greater.
    pub place: u64,
    pub topic: Vec<u8>,
    pub payload: Vec<u8>,
    /// µs since 1970.
    pub time: u64,
    pub origin: u128,
    pub number: u64,
}

/// The reason why a message was not taken, or is not on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolError {
    /// The waiting bytes, and their limit.
    Full {
        bytes: u64,
        most: u64,
    },
    Journal(JournalError),
}

impl fmt::Display for SpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpoolError::Full { bytes, most } => {
                write!(f, "the spool is full: {bytes} bytes wait to be delivered; allowed: {most}")
            }
            SpoolError::Journal(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SpoolError {}

impl SpoolError {
    /// The error of a store that was doing something to the spool in this folder.
    pub fn at(self, doing: &str, folder: &str) -> StoreError {
        let error = match self {
            full @ SpoolError::Full { .. } => {
                let advice = "nothing is lost: it accepts more once some are delivered";
                return StoreError::advised(doing, folder, io::Error::other(full), advice);
            }
            SpoolError::Journal(error @ (JournalError::Full(_) | JournalError::Short(_))) => {
                io::Error::new(io::ErrorKind::StorageFull, error)
            }
            SpoolError::Journal(error) => io::Error::other(error),
        };
        StoreError::new(doing, folder, error)
    }
}

impl From<JournalError> for SpoolError {
    fn from(error: JournalError) -> Self {
        SpoolError::Journal(error)
    }
}

/// Bytes that a message takes.
fn size(message: &Message<'_>) -> u64 {
    (record::padded(4 * 4 + 24 + message.topic.len() + message.payload.len())) as u64
}

impl<S: Storage> Spool<S> {
    /// Opens a spool: `now` in µs since 1970, and `fresh`, a random number, is its origin if it has none.
    /// Hubs count in the last byte of an origin, so that is 0.
    ///
    /// # Errors
    ///
    /// Fails if another process has it, if the disk fails, or if a later version wrote it. Damage
    /// is not an error: the intact part is taken over, the rest set aside, and the report describes
    /// it.
    pub fn open(
        storage: S,
        settings: Settings,
        now: u64,
        fresh: u128,
    ) -> Result<(Self, Report), OpenError> {
        let describe = storage.describe("");
        let disk =
            |doing: &str, error| OpenError::Disk { doing: format!("{doing} {describe}"), error };
        let lasting = JournalSettings {
            segment: settings.segment,
            fill: Fill::Reserved,
            longest: 1 << 30,
            salt: settings.salt,
            // Its records are messages, not calls.
            rules: 0,
        };
        let mut found = Waiting::default();
        let (journal, report) =
            interlock_journal::open(storage, lasting, Repair::SetAside, &mut found)?;
        let mut report = Report { journal: report, ..Report::default() };
        let (known, renamed) =
            read_origin(journal.storage()).map_err(|error| disk("reading the origin in", error))?;
        report.renamed = renamed;
        let (origin, number) = known.unwrap_or((fresh.max(1), 0));
        // More than any process assigns, so that no number is given twice even if the last ones
        // were lost.
        let number = now.max(number.saturating_add(1 << 36));
        write_origin(journal.storage(), origin, number)
            .map_err(|error| disk("writing the origin in", error))?;
        let mut sizes = found.sizes;
        let persisted = found.first.map_or(report.journal.last, |first| first - 1);
        // After a repair places are others; and those that the journal has lost are given anew.
        let noted = match report.journal.aside {
            None => read_delivered(journal.storage(), origin),
            Some(_) => Ok(0),
        };
        let noted = noted.map_err(|error| disk("reading what is delivered in", error))?;
        let forgotten = persisted.max(noted.min(report.journal.last));
        sizes.forget(forgotten);
        let delivered = Delivered::begin(journal.storage(), origin, forgotten)
            .map_err(|error| disk("writing what is delivered in", error))?;
        let mut spool =
            Spool { journal, settings, origin, number, forgotten, persisted, delivered, sizes };
        spool.save(&mut report)?;
        report.messages = spool.sizes.messages;
        Ok((spool, report))
    }

    /// The origin of messages that have none.
    pub fn origin(&self) -> u128 {
        self.origin
    }

    /// Messages that wait, and their bytes; a few may be delivered already.
    pub fn waiting(&self) -> (u64, u64) {
        (self.sizes.messages, self.sizes.bytes)
    }

    /// Takes a message; returns its place. It is written by the next [`commit`](Self::commit).
    ///
    /// # Errors
    ///
    /// Fails without room for it, in the bound or on the disk: it was not taken.
    pub fn append(&mut self, message: &Message<'_>) -> Result<u64, SpoolError> {
        let (bytes, most) = (size(message), self.settings.bytes);
        if self.sizes.bytes.saturating_add(bytes) > most && self.sizes.messages > 0 {
            return Err(SpoolError::Full { bytes: self.sizes.bytes, most });
        }
        self.journal.accepts(Some(bytes))?;
        let numbered = self.numbered(message);
        Ok(self.put(&numbered)?)
    }

    /// Gives a message the spool's origin and next number, unless it already has both; for callers that may
    /// append it twice.
    pub fn numbered<'a>(&mut self, message: &Message<'a>) -> Message<'a> {
        if message.origin != 0 {
            return *message;
        }
        self.number += 1;
        Message { origin: self.origin, number: self.number, ..*message }
    }

    fn put(&mut self, message: &Message<'_>) -> Result<u64, JournalError> {
        let Message { topic, payload, time, origin, number } = *message;
        let (origin, number) = (origin.to_le_bytes(), number.to_le_bytes());
        let entry = Entry { queue: 0, time, function: MESSAGE };
        let place = self.journal.append(entry, [topic, payload, &origin[..], &number[..]])?;
        self.sizes.add(place, size(message));
        Ok(place)
    }

    /// Writes what was taken; returns when it is as safe as `durability` says.
    ///
    /// # Errors
    ///
    /// If it is not. With [`JournalError::Full`] it is kept, and written once there is room. A folder that
    /// was removed is [`JournalError::Failed`]: the spool is to be opened anew.
    pub fn commit(&self, durability: Durability) -> Result<(), SpoolError> {
        self.journal.commit(self.journal.last(), durability)?;
        Ok(self.journal.check_place()?)
    }

    /// The place up to which everything is delivered.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// A cursor before the first message that is not forgotten.
    pub fn cursor(&self) -> Cursor<S> {
        Cursor(cursor::Cursor::new(self.forgotten + 1))
    }

    /// Reads the next messages that were committed: at least one, if there is any, and no more than
    /// `most` bytes of payloads beside it.
    ///
    /// # Errors
    ///
    /// If the disk fails. It can be asked again.
    pub fn read(&self, cursor: &mut Cursor<S>, most: usize) -> io::Result<Vec<Spooled>> {
        let (mut read, mut bytes) = (Vec::new(), 0);
        cursor.0.skip_to(self.forgotten + 1);
        self.journal.read(&mut cursor.0, |record| {
            let Some(spooled) = spooled(record) else { return true };
            if !read.is_empty() && bytes + spooled.payload.len() > most {
                return false;
            }
            bytes += spooled.payload.len();
            read.push(spooled);
            true
        })?;
        Ok(read)
    }

    /// Marks all messages up to this place as delivered. After a crash some may be delivered again.
    pub fn forget(&mut self, place: u64) {
        self.forgotten = self.forgotten.max(place.min(self.journal.last()));
        self.sizes.forget(self.forgotten);
    }

    /// To be called each second: what was written is synced, what is delivered is noted, and segments that are
    /// delivered go.
    ///
    /// # Errors
    ///
    /// If the disk fails, or is full: it is tried again.
    pub fn tick(&mut self) -> Result<(), SpoolError> {
        let ticked = self.journal.tick();
        // If it cannot be written, more messages are repeated after a kill; the spool is as good.
        let _ = self.delivered.note(self.forgotten);
        // Not for a few messages: it is a sync, and most of a segment stays.
        let all = self.sizes.messages == 0 && self.forgotten > self.persisted;
        if all || (self.journal.has_old_segments() && self.forgotten > self.persisted) {
            self.persist()?;
        }
        if self.journal.wants_segment() {
            self.journal.prepare()?;
        }
        Ok(ticked?)
    }

    fn persist(&mut self) -> Result<(), SpoolError> {
        let made = self.journal.forget(self.forgotten);
        made.map_err(|error| JournalError::Short(error.to_string().into()))?;
        self.persisted = self.forgotten;
        Ok(())
    }

    /// Writes and syncs everything.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn close(mut self) -> Result<(), SpoolError> {
        let persisted = if self.forgotten > self.persisted { self.persist() } else { Ok(()) };
        self.journal.close()?;
        persisted
    }
}

/// A place in a spool, from which it is read.
pub struct Cursor<S: Storage>(cursor::Cursor<S::File>);

impl<S: Storage> Cursor<S> {
    /// Behind this place, up to which all was delivered.
    pub fn behind(place: u64) -> Self {
        Cursor(cursor::Cursor::new(place + 1))
    }
}

/// The function of a record that is a message.
const MESSAGE: u8 = 1;

fn spooled(record: &Record<'_>) -> Option<Spooled> {
    if record.kind != RecordKind::Call || record.function != MESSAGE {
        return None;
    }
    let mut arguments = record.arguments();
    let (topic, payload) = (arguments.next()?, arguments.next()?);
    let origin = u128::from_le_bytes(arguments.next()?.try_into().ok()?);
    let number = u64::from_le_bytes(arguments.next()?.try_into().ok()?);
    Some(Spooled {
        place: record.sequence,
        topic: topic.to_vec(),
        payload: payload.to_vec(),
        time: record.time,
        origin,
        number,
    })
}

/// The messages that wait when a spool is opened: only how much, for it is read later.
#[derive(Debug, Default)]
struct Waiting {
    sizes: Sizes,
    first: Option<u64>,
}

impl Replay for Waiting {
    fn snapshot(&mut self, _: u32, _: &[u8]) -> Result<(), String> {
        Err("a spool has no queues".into())
    }

    fn call(&mut self, record: &Record<'_>) -> Result<(), String> {
        if record.function != MESSAGE || record.arguments().count() != 4 {
            return Err("it is not a message of a spool".into());
        }
        self.first.get_or_insert(record.sequence);
        self.sizes.add(record.sequence, record::padded(record.body.len()) as u64);
        Ok(())
    }
}
