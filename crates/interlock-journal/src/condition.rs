//! Whether the journal takes records, and why not.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

/// Why a record was not taken, or is not on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for the next segment. What makes the queue smaller is still taken, while the
    /// segment in use lasts.
    Short(Arc<str>),
    /// There is no room at all. It goes on by itself when there is some again.
    Full(Arc<str>),
    /// A write or a sync failed, and nothing is known of what it was to write: nothing is called
    /// durable any more. An operator has to look at the disk, and to start the program again.
    Failed(Arc<str>),
    /// The record is longer than one may be: bytes, and most bytes.
    TooLong(usize, usize),
    /// The journal was closed.
    Closed,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Short(why) => write!(f, "the journal's disk is nearly full: {why}"),
            Refused::Full(why) => write!(f, "the journal's disk is full: {why}"),
            Refused::Failed(why) => write!(f, "the journal failed: {why}"),
            Refused::TooLong(bytes, most) => {
                write!(f, "a record of {bytes} bytes; allowed: at most {most}")
            }
            Refused::Closed => write!(f, "the journal is closed"),
        }
    }
}

impl std::error::Error for Refused {}

/// The journal's condition; a failure is for ever.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    /// 0 while all is well: what every append looks at.
    mark: AtomicU8,
    refused: Mutex<Option<Refused>>,
}

const WELL: u8 = 0;
const SHORT: u8 = 1;
const NONE: u8 = 2;

impl Condition {
    /// `growing`: what would be recorded makes a queue larger.
    #[inline]
    pub fn check(&self, growing: bool) -> Result<(), Refused> {
        // Relaxed: a call that does not see a change made meanwhile came before it.
        match self.mark.load(Ordering::Relaxed) {
            WELL => Ok(()),
            SHORT if !growing => Ok(()),
            _ => self.refused.lock().clone().map_or(Ok(()), Err),
        }
    }

    pub fn get(&self) -> Option<Refused> {
        self.refused.lock().clone()
    }

    pub fn set(&self, refused: Refused) -> Refused {
        let mut now = self.refused.lock();
        if let Some(Refused::Failed(_) | Refused::Closed) = &*now {
            return now.clone().expect("just seen");
        }
        let mark = if matches!(refused, Refused::Short(_)) { SHORT } else { NONE };
        *now = Some(refused.clone());
        self.mark.store(mark, Ordering::Relaxed);
        refused
    }

    pub fn fail(&self, doing: &str, error: &io::Error) -> Refused {
        self.set(Refused::Failed(format!("{doing}: {error}").into()))
    }

    /// There is room again.
    pub fn recovered(&self) {
        let mut now = self.refused.lock();
        if let Some(Refused::Short(_) | Refused::Full(_)) = &*now {
            *now = None;
            self.mark.store(WELL, Ordering::Relaxed);
        }
    }
}
