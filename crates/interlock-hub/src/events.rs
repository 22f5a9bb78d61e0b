//! What the server has to say to its controller: lines for the log, and questions of clients that
//! only the controller can answer, for it alone knows the configuration's grammar and may take its
//! time over a password.
//!
//! The controller sleeps on a descriptor. A line that finds no room is counted, not kept: a server
//! that logs faster than the log is written must not grow. A question always has room, for its
//! connection reads nothing more until it is answered.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use parking_lot::Mutex;

use crate::reactor::wake::WakeUp;

#[derive(Debug)]
pub enum Event {
    /// Something an operator wants to know of.
    Log { level: Level, text: String },
    /// A worker has ended by a fault of its own; the text says which.
    Broken { text: String },
    /// A client waits for the answer.
    Question { asker: Asker, question: Question },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Info,
    Warning,
}

/// Which connection asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    pub worker: usize,
    pub token: u64,
    /// The connection's number in CLIENT LIST.
    pub id: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether this is the user's password.
    Password {
        user: Vec<u8>,
        password: Vec<u8>,
    },
    /// CONFIG SET, by pairs of name and value.
    Set(Vec<(Vec<u8>, Vec<u8>)>),
    /// CONFIG RELOAD.
    Reload,
    Shutdown,
}

/// What the controller answers, or a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    /// With an error's text, its code first.
    No(String),
    /// As it goes out.
    Reply(Vec<u8>),
}

pub struct Events {
    waiting: Mutex<Waiting>,
    wake: WakeUp,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    lines: usize,
    lost: u64,
}

impl Events {
    pub fn new() -> io::Result<Self> {
        Ok(Events { waiting: Mutex::default(), wake: WakeUp::new()? })
    }

    pub fn log(&self, level: Level, text: String) {
        let mut waiting = self.waiting.lock();
        if waiting.lines >= MOST_LINES {
            waiting.lost += 1;
            return;
        }
        waiting.lines += 1;
        self.push(waiting, Event::Log { level, text });
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

    /// All there are, and how many lines were left out before the last of them.
    pub fn take(&self) -> (VecDeque<Event>, u64) {
        // Before the look: what comes behind it wakes anew.
        self.wake.silence();
        let mut waiting = self.waiting.lock();
        waiting.lines = 0;
        let lost = std::mem::take(&mut waiting.lost);
        (std::mem::take(&mut waiting.events), lost)
    }

    /// Readable while there is something to take.
    pub fn descriptor(&self) -> RawFd {
        self.wake.descriptor()
    }
}

const MOST_LINES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_bound_are_counted_and_questions_are_kept() {
        let events = Events::new().unwrap();
        for number in 0..MOST_LINES + 5 {
            events.log(Level::Info, number.to_string());
        }
        events.ask(Asker { worker: 0, token: 1, id: 2 }, Question::Reload);
        let (taken, lost) = events.take();
        assert_eq!((taken.len(), lost), (MOST_LINES + 1, 5));
        assert!(matches!(taken.back(), Some(Event::Question { question: Question::Reload, .. })));
        events.log(Level::Warning, "again".into());
        let (taken, lost) = events.take();
        assert_eq!((taken.len(), lost), (1, 0));
    }
}
