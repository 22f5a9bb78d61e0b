//! A message as it is stored, and as it is read again.

use std::fmt;

/// A message that is to be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    pub topic: &'a [u8],
    pub payload: &'a [u8],
    /// µs since 1970, when it was published.
    pub time: u64,
    /// The publishing agent, for life; 0: none, and then it is stored as often as it comes.
    pub origin: u128,
    /// One more with each message of this origin.
    pub number: u64,
}

/// The place of a message in its topic, which rises from one to the next: the id of XREAD and XRANGE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Milliseconds since 1970.
    pub ms: u64,
    /// The place within that millisecond, from 0 on.
    pub n: u32,
}

impl Position {
    /// Before every message.
    pub const FIRST: Position = Position { ms: 0, n: 0 };
    /// Behind every message.
    pub const LAST: Position = Position { ms: u64::MAX, n: u32::MAX };

    pub fn new(ms: u64, n: u32) -> Self {
        Position { ms, n }
    }

    /// The next position that there may be.
    pub fn next(self) -> Position {
        match self.n.checked_add(1) {
            Some(n) => Position { ms: self.ms, n },
            None => Position { ms: self.ms.saturating_add(1), n: 0 },
        }
    }

    /// The last position before; `None`: this is the first one.
    pub fn before(self) -> Option<Position> {
        match (self.ms, self.n.checked_sub(1)) {
            (ms, Some(n)) => Some(Position { ms, n }),
            (0, None) => None,
            (ms, None) => Some(Position { ms: ms - 1, n: u32::MAX }),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.n)
    }
}

/// A message that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    pub position: Position,
    /// The number of the message in its store, or in its topic where each has files of its own.
    pub sequence: u64,
    pub topic: Vec<u8>,
    pub payload: Vec<u8>,
    /// µs since 1970, and never less than that of the message before.
    pub time: u64,
    pub origin: u128,
    pub number: u64,
}
