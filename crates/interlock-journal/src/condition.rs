//! The condition of the journal: whether it takes records, and why not.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::storage::is_full;

/// The reason why a record was not taken, or is not on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// The next segment cannot be made, mostly for want of room. What makes the queue smaller is still
    /// taken, while the segment in use lasts.
    Short(Arc<str>),
    /// No room at all. It continues by itself when there is room again.
    Full(Arc<str>),
    /// A write or a sync failed, and nothing is known of what it was to write: nothing is called
    /// durable any more. An operator has to look at the disk, and to start the program again.
    Failed(Arc<str>),
    /// The record is longer than one may be: bytes, and most bytes.
    TooLong(usize, usize),
    /// The journal was closed.
    Closed,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Short(why) | JournalError::Full(why) => f.write_str(why),
            JournalError::Failed(why) => write!(f, "the journal failed: {why}"),
            JournalError::TooLong(bytes, most) => {
                write!(f, "a record of {bytes} bytes; allowed: at most {most}")
            }
            JournalError::Closed => write!(f, "the journal is closed"),
        }
    }
}

impl std::error::Error for JournalError {}

/// The journal's condition; a failure is for ever.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    /// 0 while all is well: what every append looks at.
    mark: AtomicU8,
    refused: Mutex<Option<JournalError>>,
    /// Since when something has been wrong, whatever it was at first.
    since: Mutex<Option<SystemTime>>,
}

/// The condition of a journal, as it tells those who ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The reason why records are refused; `None`: they are taken.
    pub refused: Option<JournalError>,
    /// Since when, by the system's clock.
    pub since: Option<SystemTime>,
}

const WELL: u8 = 0;
const SHORT: u8 = 1;
const FULL: u8 = 2;
const ENDED: u8 = 3;

impl Condition {
    /// `growing`: what would be recorded makes a queue larger.
    #[inline]
    pub fn check(&self, growing: bool) -> Result<(), JournalError> {
        // Relaxed: a call that does not see a change made meanwhile came before it.
        match self.mark.load(Ordering::Relaxed) {
            WELL => Ok(()),
            SHORT if !growing => Ok(()),
            _ => self.refused.lock().clone().map_or(Ok(()), Err),
        }
    }

    /// Checks whether a call that was made can be recorded. One that was taken before the disk was
    /// found full must be: without it, what is recorded later would be replayed upon another state.
    #[inline]
    pub fn check_made(&self) -> Result<(), JournalError> {
        // Relaxed: as above.
        match self.mark.load(Ordering::Relaxed) {
            ENDED => self.refused.lock().clone().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    pub fn get(&self) -> Option<JournalError> {
        self.refused.lock().clone()
    }

    pub fn standing(&self) -> Standing {
        let refused = self.refused.lock();
        Standing { refused: refused.clone(), since: *self.since.lock() }
    }

    pub fn set(&self, refused: JournalError) -> JournalError {
        let mut now = self.refused.lock();
        if let Some(JournalError::Failed(_) | JournalError::Closed) = &*now {
            return now.clone().expect("just seen");
        }
        let mark = match refused {
            JournalError::Short(_) => SHORT,
            JournalError::Full(_) => FULL,
            _ => ENDED,
        };
        if now.is_none() {
            *self.since.lock() = Some(SystemTime::now());
        }
        *now = Some(refused.clone());
        self.mark.store(mark, Ordering::Relaxed);
        refused
    }

    pub fn fail(&self, doing: &str, error: &io::Error) -> JournalError {
        self.set(JournalError::Failed(format!("{doing}: {error}").into()))
    }

    /// A file could not be made, and nothing that was taken is the worse for it: `left` says whether the
    /// segment in use lasts for a while.
    pub fn no_room(&self, left: bool, place: &str, error: &io::Error) -> JournalError {
        let why = match (is_full(error) || error.kind() == io::ErrorKind::FileTooLarge, left) {
            (true, true) => "the journal's disk is nearly full",
            (true, false) => "the journal's disk is full",
            (false, _) => "the journal cannot make its next segment",
        };
        let why = format!("{why}: {place}: {error}").into();
        if left {
            JournalError::Short(why)
        } else {
            JournalError::Full(why)
        }
    }

    /// There is room again.
    pub fn recovered(&self) {
        let mut now = self.refused.lock();
        if let Some(JournalError::Short(_) | JournalError::Full(_)) = &*now {
            *now = None;
            *self.since.lock() = None;
            self.mark.store(WELL, Ordering::Relaxed);
        }
    }
}
