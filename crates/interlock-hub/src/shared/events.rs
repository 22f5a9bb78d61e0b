//! The server's events for its controller: lines for the log, and questions of clients that
//! only the controller can answer, for it alone knows the configuration's grammar and may take its
//! time over a password.
//!
//! The controller sleeps on a descriptor. A line for which there is no room is counted and dropped:
//! a server that logs faster than the log is written must not grow. The log must not grow by what
//! strangers do either: of each kind of line (the text before its colon) only a limited number is
//! logged per period, and the rest is summed up in one line. A question always has room, because
//! its connection reads nothing until it is answered.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::system::wake::WakeUp;

#[derive(Debug)]
pub enum Event {
    /// Something an operator wants to know of.
    Log { level: Level, text: String },
    /// An operator has changed a queue.
    Audit(Box<Change>),
    /// A worker has ended by a fault of its own; the text says which.
    Broken { text: String },
    /// A client waits for the answer.
    Question { asker: Asker, question: Question },
}

/// An operator's call: who made it, from where, on what, and what came of it.
#[derive(Debug)]
pub struct Change {
    pub user: String,
    pub address: String,
    pub action: &'static str,
    pub queue: Vec<u8>,
    pub what: Vec<u8>,
    pub result: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Info,
    Warning,
}

/// The connection that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    pub worker: usize,
    pub token: u64,
    /// The connection's number in CLIENT LIST.
    pub id: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Asks whether this is the user's password.
    Password {
        /// The address it comes from, without its port.
        host: String,
        user: Vec<u8>,
        password: Vec<u8>,
    },
    /// CONFIG SET, by pairs of name and value.
    Set(Vec<(Vec<u8>, Vec<u8>)>),
    /// CONFIG RELOAD.
    Reload,
    Shutdown,
}

/// An answer to a suspended call: from the controller, from a queue, or that its turn has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    /// With an error's text, its code first.
    Refused(String),
    /// As it goes out.
    Reply(Vec<u8>),
    /// Lets a long command continue by one step.
    Turn,
}

pub struct Events {
    waiting: Mutex<Waiting>,
    wake: WakeUp,
    /// Lines of one kind in a `WHILE`; 0: any number.
    repeats: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    lines: usize,
    lost: u64,
    kinds: BTreeMap<String, Repeats>,
}

/// Lines that begin alike.
struct Repeats {
    since: Instant,
    lines: u64,
    left_out: u64,
    level: Level,
}

/// The events that are taken at once.
#[derive(Default)]
pub struct Taken {
    pub events: VecDeque<Event>,
    /// Lines that found no room.
    pub lost: u64,
    /// Lines were left out that will be summed up later.
    pub owes: bool,
}

impl Events {
    pub fn new() -> io::Result<Self> {
        let repeats = AtomicU64::new(0);
        Ok(Events { waiting: Mutex::default(), wake: WakeUp::new()?, repeats })
    }

    /// Sets how many lines of one kind are logged per period; 0: all.
    pub fn set_repeats(&self, lines: u64) {
        self.repeats.store(lines, Relaxed);
    }

    /// Text of clients and other servers may be in it: what a terminal would obey is escaped, but for the
    /// ends of lines that reports have.
    pub fn log(&self, level: Level, text: String) {
        let text = lines(text);
        let mut waiting = self.waiting.lock();
        let most = self.repeats.load(Relaxed);
        if most > 0 && !waiting.takes(level, &text, most) {
            return;
        }
        if waiting.lines >= MOST_LINES {
            waiting.lost += 1;
            return;
        }
        waiting.lines += 1;
        self.push(waiting, Event::Log { level, text });
    }

    /// Notes a change; one that finds no room is counted as a line that was lost.
    pub fn audit(&self, mut change: Change) {
        change.result = lines(change.result).replace(['\r', '\n'], " ");
        let mut waiting = self.waiting.lock();
        if waiting.events.len() >= MOST_CHANGES {
            waiting.lost += 1;
            return;
        }
        self.push(waiting, Event::Audit(Box::new(change)));
    }

    /// Always has room: it happens once a worker.
    pub fn broken(&self, text: String) {
        let waiting = self.waiting.lock();
        self.push(waiting, Event::Broken { text });
    }

    pub fn ask(&self, asker: Asker, question: Question) {
        let waiting = self.waiting.lock();
        self.push(waiting, Event::Question { asker, question });
    }

    fn push(&self, mut waiting: parking_lot::MutexGuard<'_, Waiting>, event: Event) {
        let first = waiting.events.is_empty();
        waiting.events.push_back(event);
        drop(waiting);
        if first {
            self.wake.wake();
        }
    }

    /// All there are; `last`: nobody will ask again.
    pub fn take(&self, last: bool) -> Taken {
        // Before the look: what comes behind it wakes anew.
        self.wake.silence();
        let mut waiting = self.waiting.lock();
        waiting.lines = 0;
        let lost = std::mem::take(&mut waiting.lost);
        waiting.sum_up(last);
        let owes = waiting.kinds.values().any(|kind| kind.left_out > 0);
        Taken { events: std::mem::take(&mut waiting.events), lost, owes }
    }

    /// Readable while there is something to take.
    pub fn descriptor(&self) -> RawFd {
        self.wake.descriptor()
    }
}

impl Waiting {
    /// Returns whether there is room for one line more of its kind.
    fn takes(&mut self, level: Level, text: &str, most: u64) -> bool {
        let mut name = text.split_once(':').map_or(text, |(name, _)| name);
        if self.kinds.len() >= MOST_KINDS && !self.kinds.contains_key(name) {
            // Kinds are the hub's own words, so that there are few; that is not relied upon.
            name = OTHERS;
        }
        let fresh = || Repeats { since: Instant::now(), lines: 0, left_out: 0, level };
        let kind = self.kinds.entry(name.to_owned()).or_insert_with(fresh);
        // The lines that were left out are summed up first.
        if kind.left_out == 0 && kind.since.elapsed() >= WHILE {
            *kind = fresh();
        }
        kind.lines += 1;
        kind.left_out += u64::from(kind.lines > most);
        kind.lines <= most
    }

    /// A line for each kind of which some were left out, once its while is over.
    fn sum_up(&mut self, last: bool) {
        let events = &mut self.events;
        self.kinds.retain(|name, kind| {
            let over = kind.since.elapsed() >= WHILE;
            if kind.left_out > 0 && (over || last) {
                let (count, seconds) = (kind.left_out, kind.since.elapsed().as_secs().max(1));
                let text =
                    format!("{count} more lines like \"{name}\" within {seconds} s were dropped");
                events.push_back(Event::Log { level: kind.level, text });
                return false;
            }
            !over
        });
    }
}

const MOST_LINES: usize = 1024;
const MOST_KINDS: usize = 64;
/// Untaken changes. At most about 8 MB, which no queue's bound counts.
const MOST_CHANGES: usize = 8192;
const OTHERS: &str = "others";
const WHILE: Duration = Duration::from_secs(10);

fn lines(text: String) -> String {
    match text.lines().map(interlock_stores::printable).collect::<Vec<_>>() {
        lines if lines.iter().all(|line| matches!(line, Cow::Borrowed(_))) => text,
        lines => lines.join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use crate::shared::events::*;

    #[test]
    fn log_lines_beyond_the_limit_are_counted_and_requests_are_kept() {
        let events = Events::new().unwrap();
        for number in 0..MOST_LINES + 5 {
            events.log(Level::Info, number.to_string());
        }
        events.ask(Asker { worker: 0, token: 1, id: 2 }, Question::Reload);
        let taken = events.take(false);
        assert_eq!((taken.events.len(), taken.lost), (MOST_LINES + 1, 5));
        let last = taken.events.back();
        assert!(matches!(last, Some(Event::Question { question: Question::Reload, .. })));
        events.log(Level::Warning, "again".into());
        let taken = events.take(false);
        assert_eq!((taken.events.len(), taken.lost), (1, 0));
    }

    #[test]
    fn lines_of_one_kind_are_logged_up_to_a_number_and_then_summed_up() {
        let events = Events::new().unwrap();
        events.set_repeats(3);
        for number in 0..50 {
            events.log(Level::Warning, format!("login failed: number {number}"));
            events.log(Level::Info, format!("kind {}: {number}", number % 25));
        }
        let taken = events.take(false);
        assert_eq!((taken.events.len(), taken.lost, taken.owes), (3 + 50, 0, true));
        events.log(Level::Warning, "login failed: one more".into());
        let taken = events.take(true);
        let Some(Event::Log { level: Level::Warning, text }) = taken.events.front() else {
            panic!("one line");
        };
        assert_eq!(taken.events.len(), 1);
        assert!(text.starts_with("48 more lines like \"login failed\""), "{text}");
        assert!(!taken.owes);
    }

    #[test]
    fn lines_of_different_kinds_are_bounded_together() {
        let events = Events::new().unwrap();
        events.set_repeats(3);
        for number in 0..1000 {
            events.log(Level::Info, format!("kind {number}: one line"));
        }
        assert!(events.waiting.lock().kinds.len() <= MOST_KINDS + 1);
        assert_eq!(events.take(false).events.len(), MOST_KINDS + 3);
    }
}
