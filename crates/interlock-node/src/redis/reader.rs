//! Reads a stream entry by entry, and notices when its history breaks.

use std::time::{Duration, Instant};

use crate::log::{lost, mark, no_beginning, Entry, Event, Id, Position};
use crate::redis::link::{Asked, Heard, Link};
use crate::redis::Settings;
use crate::trouble::{Kind, Trouble};

pub struct Reader {
    state: State,
    position: Option<Position>,
    /// The last read reached the end of the log: the next one may wait.
    may_wait: bool,
    /// Time of the last read, and whether it waits for entries.
    asked_at: Instant,
    is_waiting: bool,
    /// Number of entries that the next read requests, and that the last one requested.
    count: usize,
    asked: usize,
    /// Entries that were read, until it is known whether they follow the position.
    read: Option<Vec<Entry>>,
    checked: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Stopped,
    Idle,
    Asking,
    /// The entry read last is missing: it asks which entries exist.
    Wondering {
        is_other: bool,
        is_asked: bool,
    },
}

impl Default for Reader {
    fn default() -> Self {
        let (position, read, checked) = Default::default();
        let state = State::Stopped;
        let (asked_at, is_waiting, may_wait) = (Instant::now(), false, false);
        let (count, asked) = (FIRST, FIRST);
        Reader { state, position, may_wait, asked_at, is_waiting, count, asked, read, checked }
    }
}

impl Reader {
    pub fn read_from(&mut self, position: Option<Position>) {
        self.position = position;
        self.lose_replies();
        self.state = State::Idle;
    }

    pub fn position(&self) -> Option<Position> {
        self.position
    }

    pub fn id(&self) -> Id {
        self.position.map(|position| position.id).unwrap_or_default()
    }

    /// Returns whether each read also looks up the entry read last.
    fn is_checked(&self) -> bool {
        self.position.is_some_and(|position| position.mark.is_some())
    }

    pub fn is_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    pub fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking | State::Wondering { .. })
    }

    pub fn stop(&mut self) {
        self.lose_replies();
        self.state = State::Stopped;
    }

    /// Notes that the connection has ended.
    pub fn lose(&mut self) {
        self.lose_replies();
        if self.state != State::Stopped {
            self.state = State::Idle;
        }
    }

    fn lose_replies(&mut self) {
        self.read = None;
        self.may_wait = false;
        self.checked = None;
    }

    /// Requests the next entries if it is time to.
    pub fn ask(&mut self, link: &mut Link, settings: &Settings, now: Instant) {
        if !link.is_up() {
            return;
        }
        let stream = settings.stream.as_slice();
        match &mut self.state {
            State::Idle => {}
            State::Wondering { is_asked: false, is_other } => {
                let first: [&[u8]; 6] = [b"XRANGE", stream, b"-", b"+", b"COUNT", b"1"];
                let last: [&[u8]; 6] = [b"XREVRANGE", stream, b"+", b"-", b"COUNT", b"1"];
                link.ask(Asked::First, &first);
                link.ask(Asked::Last, &last);
                self.state = State::Wondering { is_other: *is_other, is_asked: true };
                return;
            }
            _ => return,
        }
        (self.asked, self.asked_at, self.is_waiting) = (self.count, now, self.may_wait);
        let (id, count) = (self.id().to_string(), self.count.to_string());
        let (id, count) = (id.as_bytes(), count.as_bytes());
        let block = BLOCK.as_millis().to_string();
        if self.is_waiting {
            let read: [&[u8]; 8] =
                [b"XREAD", b"COUNT", count, b"BLOCK", block.as_bytes(), b"STREAMS", stream, id];
            link.ask(Asked::Read, &read);
        } else {
            let read: [&[u8]; 6] = [b"XREAD", b"COUNT", count, b"STREAMS", stream, id];
            link.ask(Asked::Read, &read);
        }
        // After the read, which the engine answers when the wait is over: so all answers come at the
        // same time, and before those that make the entries count.
        match self.checked {
            // The connection is new, and has just asked.
            None => self.checked = Some(now),
            Some(then) if now >= then + CHECKED => {
                link.ask_role();
                self.checked = Some(now);
            }
            Some(_) => {}
        }
        if self.is_checked() {
            link.ask(Asked::Known, &[b"XRANGE", stream, id, id]);
        }
        self.state = State::Asking;
    }

    pub fn hear(&mut self, heard: Heard, settings: &Settings) -> Result<Option<Event>, Trouble> {
        match heard {
            Heard::Read(entries) => {
                self.read = Some(entries);
                if self.is_checked() {
                    return Ok(None);
                }
                self.take(settings).map(Some)
            }
            Heard::Known(mark) => match (mark, self.position) {
                (Some(mark), Some(known)) if Some(mark) == known.mark => {
                    self.take(settings).map(Some)
                }
                (mark, _) => {
                    self.read = None;
                    self.state = State::Wondering { is_other: mark.is_some(), is_asked: false };
                    Ok(None)
                }
            },
            Heard::Ends(ends) => {
                let State::Wondering { is_other, .. } = self.state else { return Ok(None) };
                Err(lost(self.id(), is_other, ends.as_ref(), settings.is_first))
            }
            Heard::TooLong => {
                self.count = (self.count / 8).max(1);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Takes the entries read: they follow the position.
    fn take(&mut self, settings: &Settings) -> Result<Event, Trouble> {
        let entries = self.read.take().unwrap_or_default();
        let mut before = self.position.map(|position| position.id);
        for one in &entries {
            if before.is_some_and(|before| one.id <= before) {
                let text = "it answered XREAD with entries that are not in order";
                return Err(Trouble::new(Kind::NotUnderstood, text));
            }
            before = Some(one.id);
        }
        if let (None, Some(first)) = (self.position, entries.first()) {
            if !(settings.is_first)(&first.bytes) {
                return Err(Trouble::new(Kind::Trimmed, no_beginning(first.id)));
            }
        }
        if let Some(last) = entries.last() {
            self.position = Some(Position { id: last.id, mark: Some(mark(&last.bytes)) });
            let most = entries.iter().map(|one| one.bytes.len()).max().unwrap_or(0) + SMALL;
            self.count = (READ / most).clamp(1, MANY);
        }
        let at_end = entries.len() < self.asked;
        // A reply may have been under way for long. A read that waited in vain did so until its
        // end.
        let waited = if self.is_waiting && entries.is_empty() { BLOCK } else { Duration::ZERO };
        let as_of = (self.asked_at + waited).min(Instant::now());
        // If entries are rare, the next read does not wait, and shows at once whether the log still
        // ends there.
        let was_long = self.is_waiting && as_of.elapsed() > SHORT;
        self.may_wait = at_end && !was_long;
        self.state = State::Idle;
        Ok(Event::Read { entries, at_end, as_of })
    }
}

/// Maximum time that a read waits.
pub const BLOCK: Duration = Duration::from_secs(1);
/// After a read that waited longer than this, the next one does not wait.
const SHORT: Duration = Duration::from_millis(100);
/// Time between two checks that the engine is a primary that does not evict the log.
const CHECKED: Duration = Duration::from_secs(1);
/// Number of entries that a read requests before their size is known.
const FIRST: usize = 64;
const MANY: usize = 1000;
/// Bytes that a read requests, if all entries are as long as the longest of the last ones.
const READ: usize = 8 << 20;
/// Overhead in bytes of an entry.
const SMALL: usize = 64;
