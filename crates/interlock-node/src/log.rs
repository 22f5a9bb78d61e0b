//! The log as a node's loop sees it, in whichever engine.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use interlock_log::entry::{self, Body};

use crate::trouble::{Kind, Trouble};

/// A log to which one node appends and from which it reads.
///
/// Nothing here blocks except [`LogPort::wait`]. The owner polls the descriptors
/// ([`LogPort::descriptors`]) until [`LogPort::wake_at`], calls [`LogPort::drive`], and takes
/// events from [`LogPort::event`] until it returns `None`.
pub trait LogPort: Send {
    /// Appends an entry after those under way and returns its number. `None`: the engine takes no
    /// entries now, see [`Event::Open`].
    fn append(&mut self, bytes: &[u8]) -> Option<u64>;

    /// Appends the first entry of a log that does not exist yet.
    fn begin(&mut self, bytes: &[u8]) -> Option<u64>;

    /// Returns the number of entries under way and their bytes.
    fn under_way(&self) -> (usize, usize);

    /// Returns whether the engine takes entries.
    fn is_open(&self) -> bool;

    /// Reads the entries after `position`; `None`: from the first. Nothing is read before the first
    /// call.
    fn read_from(&mut self, position: Option<Position>);

    /// Asks for the first and the last entry. Returns false if the engine does not answer now.
    fn ask_ends(&mut self) -> bool;

    /// The largest entry that the engine takes, known once it is open; `None`: the engine has not
    /// reported one.
    fn largest(&self) -> Option<Largest> {
        None
    }

    /// The reason why nodes never trim this log, in words for the operator; `None`: they do.
    fn untrimmed(&self) -> Option<Arc<str>> {
        None
    }

    /// Asks which of these entries are in the log unchanged, see [`Event::Looked`]. Returns false
    /// if the engine does not answer now.
    fn look(&mut self, positions: &[Position]) -> bool;

    /// Deletes the entries before the last of `positions`, which stays; some engines delete only a
    /// part of them. The caller has just looked up all positions: if one is no longer there,
    /// nothing is deleted. Returns false if the engine does not answer now.
    fn trim_before(&mut self, positions: &[Position]) -> bool;

    /// Appends the descriptors to poll.
    fn descriptors(&self, polled: &mut Vec<libc::pollfd>);

    /// The time at which [`LogPort::drive`] is to be called even if nothing is readable.
    fn wake_at(&self) -> Instant;

    /// Does everything that is possible without blocking. Returns whether there are events.
    fn drive(&mut self, now: Instant) -> bool;

    /// Passes the results of a poll of the descriptors to the next call of [`LogPort::drive`].
    fn polled(&mut self, _polled: &[libc::pollfd]) {}

    /// Sends everything requested since [`LogPort::drive`]. Returns whether there are events.
    fn send(&mut self, now: Instant) -> bool {
        self.drive(now)
    }

    /// Returns the next event, if any.
    fn event(&mut self) -> Option<Event>;

    /// Waits for the next event until `until`, for callers that have nothing else to wait for.
    fn wait(&mut self, until: Instant) -> Option<Event> {
        loop {
            // Return all events before looking at the sockets again.
            if let Some(event) = self.event() {
                return Some(event);
            }
            let now = Instant::now();
            if self.drive(now) {
                continue;
            }
            if now >= until {
                return None;
            }
            let mut polled = Vec::new();
            self.descriptors(&mut polled);
            let wait = self.wake_at().min(until).saturating_duration_since(now);
            // Round up, or it would spin in the last millisecond.
            let ms = wait.as_millis() as i32 + 1;
            // SAFETY: the pointer and the length are those of `polled`, whose descriptors are open
            // for as long as the log is.
            unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as u64, ms) };
        }
    }
}

/// The largest entry that an engine takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Largest {
    pub bytes: usize,
    /// The engine's setting that limits it.
    pub setting: Arc<str>,
}

/// The id of an entry. Ids rise along a log. Redis uses both numbers; in an engine with one, `ms`
/// is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    pub ms: u64,
    pub number: u64,
}

impl Id {
    /// Parses `MS-NUMBER`, as Redis writes it, or the number alone.
    pub fn read(text: &[u8]) -> Option<Id> {
        let text = std::str::from_utf8(text).ok()?;
        let (ms, number) = text.split_once('-').unwrap_or(("0", text));
        Some(Id { ms: ms.parse().ok()?, number: number.parse().ok()? })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ms {
            0 => write!(f, "{}", self.number),
            ms => write!(f, "{ms}-{}", self.number),
        }
    }
}

/// The position of an entry that was read, from which reading continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    pub id: Id,
    /// The digest of its bytes; `None`: the entry may be any, or missing.
    pub mark: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: Id,
    /// The engine's timestamp of the entry, in ms since 1970. It may be lower than that of the
    /// entry before.
    pub time: u64,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The engine takes entries: an append that was not taken before can be repeated now.
    Open,
    /// An entry is in the log. `id`: if the engine reports it.
    Appended { number: u64, id: Option<Id> },
    /// An entry is not in the log. Later ones may be.
    Refused { number: u64, trouble: Trouble },
    /// The connection ended: these entries may or may not be in the log.
    Unknown { first: u64, last: u64, trouble: Trouble },
    /// Entries after those read before. `at_end`: the log ended there at `as_of` or later. An event
    /// without entries says just that.
    Read { entries: Vec<Entry>, at_end: bool, as_of: Instant },
    /// The log cannot be read now. If the trouble is one of history
    /// ([`crate::trouble::Kind::is_of_history`]), nothing is read until [`LogPort::read_from`];
    /// otherwise reading is retried.
    Trouble(Trouble),
    /// The first and the last entry, in answer to [`LogPort::ask_ends`].
    Ends(Option<(Entry, Entry)>),
    /// For each position of [`LogPort::look`]: true if that entry is in the log.
    Looked(Vec<bool>),
    /// The result of [`LogPort::trim_before`]: the number of deleted entries, if the engine reports
    /// it.
    Trimmed(Result<u64, Trouble>),
}

/// Returns the digest that distinguishes an entry from another one with its id; checkpoints store
/// the same one.
pub fn mark(bytes: &[u8]) -> u64 {
    entry::digest(bytes)
}

/// Returns whether these bytes can be the first entry of a log.
pub fn is_genesis(bytes: &[u8]) -> bool {
    entry::Entry::decode(bytes).is_ok_and(|entry| matches!(entry.body, Body::Genesis(_)))
}

/// Returns the reason why an entry that was read is not in the log, from the log's first and last
/// entry. `is_other`: another entry has its id.
pub(crate) fn lost(
    id: Id,
    is_other: bool,
    ends: Option<&(Entry, Entry)>,
    is_first: fn(&[u8]) -> bool,
) -> Trouble {
    let Some((first, last)) = ends else { return Trouble::new(Kind::Gone, GONE) };
    if is_other {
        let text = format!("the entry {id}, which was read, is another now: {LOST}");
        return Trouble::new(Kind::Forked, text);
    }
    if first.id > id {
        let text = if is_first(&first.bytes) {
            format!("another log begins at {}, behind {id}, which was read last: {LOST}", first.id)
        } else {
            format!(
                "the log begins at {}, behind {id}, which was read last: it was trimmed; the node needs a \
                 snapshot of another node",
                first.id
            )
        };
        return Trouble::new(Kind::Trimmed, text);
    }
    let text = if last.id < id {
        format!("the log ends at {}, though {id} was read: {LOST}", last.id)
    } else {
        format!("the entry {id}, which was read, is missing now: {LOST}")
    };
    Trouble::new(Kind::Forked, text)
}

pub(crate) fn no_beginning(id: Id) -> String {
    format!(
        "the log begins at {id}, but not with the first entry of a log: it was trimmed; the node needs a \
         snapshot of another node"
    )
}

pub(crate) const LOST: &str =
    "the engine has lost entries; the node goes back to a checkpoint that is still part of the log";
pub(crate) const GONE: &str =
    "the log's stream is missing: it was deleted, or the engine has lost its data";
