//! The log as the loop of a node sees it, whichever engine keeps it.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use interlock_log::entry::{self, Body};

use crate::trouble::{Kind, Trouble};

/// A log that one node appends to and reads.
///
/// Nothing here waits. The owner polls the descriptors ([`LogPort::descriptors`]) until
/// [`LogPort::wake_at`], calls [`LogPort::drive`], and takes [`LogPort::event`] events until there is none.
pub trait LogPort: Send {
    /// Appends an entry, behind those that are under way; returns its number. `None`: the engine takes none
    /// now, see [`Event::Open`].
    fn append(&mut self, bytes: &[u8]) -> Option<u64>;

    /// Appends the first entry of a log that is not there yet.
    fn begin(&mut self, bytes: &[u8]) -> Option<u64>;

    /// Entries and their bytes that are under way.
    fn under_way(&self) -> (usize, usize);

    /// Returns whether the engine takes entries.
    fn is_open(&self) -> bool;

    /// Reads on behind an entry; `None`: from the first. Nothing is read before the first call.
    fn read_from(&mut self, position: Option<Position>);

    /// Asks for the first and the last entry. Returns false if the engine does not answer now.
    fn ask_ends(&mut self) -> bool;

    /// The largest entry that the engine takes, once it is open; `None`: it has not told.
    fn largest(&self) -> Option<Largest> {
        None
    }

    /// The reason why this log is never trimmed by its nodes, in words for the operator; `None`: it is.
    fn untrimmed(&self) -> Option<Arc<str>> {
        None
    }

    /// Asks which of some entries are in the log as they were: see [`Event::Looked`]. Returns false if the
    /// engine does not answer now.
    fn look(&mut self, positions: &[Position]) -> bool;

    /// Cuts off what comes before the last of some entries, which stays; of some engines only a part of it. All
    /// of them were looked at just before: where one is not there any more, nothing is cut off. Returns false
    /// if the engine does not answer now.
    fn trim_before(&mut self, positions: &[Position]) -> bool;

    /// Appends what is to be polled.
    fn descriptors(&self, polled: &mut Vec<libc::pollfd>);

    /// The moment at which [`LogPort::drive`] is to be called though nothing is readable.
    fn wake_at(&self) -> Instant;

    /// Does what can be done without waiting. Returns whether there are events.
    fn drive(&mut self, now: Instant) -> bool;

    /// A poll of the descriptors is over: what it has found, for the next call of [`LogPort::drive`].
    fn polled(&mut self, _polled: &[libc::pollfd]) {}

    /// Sends what was asked since [`LogPort::drive`]. Returns whether there are events.
    fn send(&mut self, now: Instant) -> bool {
        self.drive(now)
    }

    /// The next event, if there is one.
    fn event(&mut self) -> Option<Event>;

    /// Waits for the next event until a moment: for those who have nothing else to wait for.
    fn wait(&mut self, until: Instant) -> Option<Event> {
        loop {
            // All that is there before the next look at the sockets.
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
            // Rounded up, or it would look again and again in the last millisecond.
            let ms = wait.as_millis() as i32 + 1;
            // SAFETY: so many entries, whose descriptors are open for as long as the log is.
            unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as u64, ms) };
        }
    }
}

/// The largest entry that an engine takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Largest {
    pub bytes: usize,
    /// The setting of the engine that says so.
    pub setting: Arc<str>,
}

/// An id of an entry. They rise along a log. Redis has both numbers; where an engine has one, `ms` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    pub ms: u64,
    pub number: u64,
}

impl Id {
    /// Reads `MS-NUMBER`, as Redis writes it, or the number alone.
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

/// An entry that was read, by which the log is read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    pub id: Id,
    /// Of its bytes; `None`: whatever is there, and whether it is there or not.
    pub mark: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: Id,
    /// The engine's time of it, in ms since 1970. It may fall from an entry to the next.
    pub time: u64,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The engine takes entries: what is not appended can be appended now.
    Open,
    /// An entry is in the log. `id`: if the engine tells it.
    Appended { number: u64, id: Option<Id> },
    /// An entry is not in the log. Those behind it may be.
    Refused { number: u64, trouble: Trouble },
    /// The connection ended: these entries may be in the log or not.
    Unknown { first: u64, last: u64, trouble: Trouble },
    /// Entries behind those that were read before. `at_end`: no more was there at that moment, which was
    /// `as_of` or later. Without entries it says that the log has no more.
    Read { entries: Vec<Entry>, at_end: bool, as_of: Instant },
    /// The log cannot be read now. Of history ([`crate::trouble::Kind::is_of_history`]): nothing is read until
    /// [`LogPort::read_from`]. Otherwise it is tried again.
    Trouble(Trouble),
    /// The first and the last entry, as asked for.
    Ends(Option<(Entry, Entry)>),
    /// True for each of the entries that were looked at that is in the log.
    Looked(Vec<bool>),
    /// The end of what was asked for: so many entries were cut off, where the engine tells their number.
    Trimmed(Result<u64, Trouble>),
}

/// The digest that tells an entry from another with its id: the one that checkpoints have.
pub fn mark(bytes: &[u8]) -> u64 {
    entry::digest(bytes)
}

/// Tells by its bytes whether an entry can be the first of a log.
pub fn is_genesis(bytes: &[u8]) -> bool {
    entry::Entry::decode(bytes).is_ok_and(|entry| matches!(entry.body, Body::Genesis(_)))
}

/// The reason why an entry that was read is not in the log, by the first and the last of what is there.
/// `is_other`: there is another one in its place.
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
