//! Types for the terms of the contract, used by scheduler, queue, trace and tests.

pub mod limits;
pub(super) mod message;
pub mod options;
pub mod rules;
mod stats;

pub use crate::clock::Time;
use crate::limits::default;
use crate::queue::schedules::bytes::{Damaged, Reader};
pub use options::Options;
pub use stats::Stats;

/// The policy for a message whose handling failed (clause 10).
///
/// ```
/// use interlock_core::queue::types::{Options, Retry, Then};
///
/// // Three attempts, 10 ms and 30 ms apart, and then an operator decides.
/// let retry = Retry { attempts: Some(3), first: 10_000, factor: 3.0, then: Then::Hold, ..Retry::default() };
/// let options = Options { retry, ..Options::default() };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Attempts in all; `None`: for ever.
    pub attempts: Option<u32>,
    /// Backoff after the first failure, µs.
    pub first: u64,
    pub factor: f64,
    /// Longest backoff, µs.
    pub longest: u64,
    pub jitter: bool,
    pub then: Then,
}

impl Default for Retry {
    fn default() -> Self {
        Retry {
            attempts: Some(default::ATTEMPTS as u32),
            first: default::FIRST,
            factor: default::FACTOR as f64 / 1000.0,
            longest: default::LONGEST,
            jitter: default::JITTER,
            then: Then::Dead,
        }
    }
}

/// The outcome for a message whose attempts are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Dead,
    Hold,
}

/// The outcome for a message that waits on a key behind a failure (clause 31).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behind {
    /// It waits in its place.
    #[default]
    Wait,
    /// It becomes a dead letter with the message that failed.
    Bury,
    /// It is cancelled with the message that failed.
    Cancel,
    /// It has no place until the key is open.
    Park,
}

impl Behind {
    pub const ALL: [Behind; 4] = [Behind::Wait, Behind::Bury, Behind::Cancel, Behind::Park];

    pub fn word(self) -> &'static str {
        match self {
            Behind::Wait => "wait",
            Behind::Bury => "bury",
            Behind::Cancel => "cancel",
            Behind::Park => "park",
        }
    }

    /// Reads the byte of a dump, which is its number.
    pub fn restored(from: &mut Reader<'_>, wanted: &'static str) -> Result<Self, Damaged> {
        let number = usize::from(from.byte(wanted)?);
        Behind::ALL.get(number).map_or_else(|| from.damaged(wanted), |one| Ok(*one))
    }
}

/// The parts of a message's own retry policy that differ from its queue's (clause 10).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryPart {
    pub attempts: Option<Option<u32>>,
    pub first: Option<u64>,
    pub factor: Option<f64>,
    pub longest: Option<u64>,
    pub jitter: Option<bool>,
    pub then: Option<Then>,
}

impl RetryPart {
    /// The policy that holds for the message.
    pub fn over(&self, queue: &Retry) -> Retry {
        Retry {
            attempts: self.attempts.unwrap_or(queue.attempts),
            first: self.first.unwrap_or(queue.first),
            factor: self.factor.unwrap_or(queue.factor),
            longest: self.longest.unwrap_or(queue.longest),
            jitter: self.jitter.unwrap_or(queue.jitter),
            then: self.then.unwrap_or(queue.then),
        }
    }
}

/// The outcome for a message whose lease an operator ended (clause 24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeThen {
    Retry,
    Hold,
    Dead,
    Skip,
}

/// The kind of work that a consumer asks for (clause 7). A barrier counts as keyed: it holds every
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Any,
    Keyed,
    Unkeyed,
}

/// The stage of its life that a message is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Delayed,
    Waiting,
    Ready,
    Leased,
    BackingOff,
    Held,
    /// In no lane until a key is open (clause 31).
    Parked,
}

impl State {
    pub const ALL: [State; 7] = [
        State::Delayed,
        State::Waiting,
        State::Ready,
        State::Leased,
        State::BackingOff,
        State::Held,
        State::Parked,
    ];

    /// The state's name wherever it appears: in Python, on the wire, in the docs.
    pub fn word(self) -> &'static str {
        match self {
            State::Delayed => "delayed",
            State::Waiting => "waiting",
            State::Ready => "ready",
            State::Leased => "leased",
            State::BackingOff => "backing_off",
            State::Held => "held",
            State::Parked => "parked",
        }
    }
}

/// A key and the number of its unsettled messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hot {
    pub key: Vec<u8>,
    pub depth: u64,
}

/// The explanation why a message waits (clause 17): the message asked for and, breadth first, all
/// that it waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    pub nodes: Vec<Node>,
    /// The limit was reached before the roots were.
    pub truncated: bool,
}

/// One message of an explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub id: u64,
    pub state: State,
    pub attempt: u32,
    /// µs since the put, up to 99 more, or a 256th of it where much was put meanwhile.
    pub age: u64,
    /// The consumer that leases it, as it named itself; 0 if nobody.
    pub consumer: u64,
    /// µs of the lease that have passed, if it is leased.
    pub held_for: Option<u64>,
    /// µs left of the lease, if it has a deadline.
    pub lease_left: Option<u64>,
    /// µs until it falls due, if it is delayed or backing off.
    pub due_in: Option<u64>,
    /// The queue, or a key of it, is paused: these keys, empty bytes for the queue itself.
    pub paused: Vec<Vec<u8>>,
    /// The turn of its group, if it waits for nothing else but limits and pauses, and messages have groups.
    pub turn: Option<Turn>,
    /// The concurrency limits that alone keep a ready message from being leased.
    pub limits: Vec<LimitFull>,
    /// The list that it is in, if it is parked.
    pub parked: Option<ParkedUnder>,
    /// The blockers that hold it up, one entry a key, in the order the put named them.
    pub blocked: Vec<Blocker>,
}

/// The place of a message by the turns of groups (clause 28).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its group; empty: it has none.
    pub group: Vec<u8>,
    /// Ready messages of its group, whatever their priority, without those that wait for a limit.
    pub ready: u64,
    /// Groups that come before its own, at most 1,000.
    pub ahead: u64,
}

/// The list in which a message is parked (clause 31).
#[derive(Clone, Debug, PartialEq)]
pub struct ParkedUnder {
    pub key: Vec<u8>,
    /// µs since it was parked.
    pub age: u64,
    /// Number of times it was parked so far.
    pub times: u32,
    /// Number of messages that return from the same key before it, at most [`MOST_AHEAD`].
    pub ahead: usize,
    /// The key is paused.
    pub paused: bool,
    /// Unsettled messages of the key that were held, by id, the first ones.
    pub behind: Vec<u64>,
}

/// Messages counted before a parked one.
pub const MOST_AHEAD: usize = 1000;

/// A limit that refuses a message: it is reached, or its rate is used up, or it is closed (clauses 26 and 27).
#[derive(Clone, Debug, PartialEq)]
pub struct LimitFull {
    pub name: Vec<u8>,
    /// Number of messages with the name that may be leased at once. `None`: any number.
    pub most: Option<u32>,
    pub leased: u32,
    /// Another message, for which one more is kept.
    pub keeper: Option<u64>,
    /// µs until time lets the message pass; `None`: it does, or time alone will not.
    pub wait: Option<u64>,
    /// Leased messages with the name, if there are as many as may be: by id, cut at the limit of the explanation.
    pub holders: Vec<u64>,
}

/// A limit name: what is used of it, and how many messages wait for it (clauses 26 and 27).
#[derive(Clone, Debug, PartialEq)]
pub struct LimitUse {
    pub name: Vec<u8>,
    /// Number of messages with the name that may be leased at once. `None`: any number.
    pub most: Option<u32>,
    pub rate: Option<limits::Rate>,
    pub leased: u32,
    /// Messages that wait for it, without its keeper.
    pub waiting: u32,
    /// The message that gets the next slots of all of its names.
    pub keeper: Option<u64>,
    /// µs until the rate allows a grant to messages other than the keeper; `None`: there is no rate, or it never does.
    pub wait: Option<u64>,
    /// µs until it opens; 0: it is not closed.
    pub closed: u64,
}

/// One key that holds a message up.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocker {
    /// `None`: a barrier stands between.
    pub key: Option<Vec<u8>>,
    /// The messages now in front on that key, cut at the limit: those that nothing on this key holds up.
    pub holders: Vec<u64>,
    /// The number of unsettled messages in front of this one on that key.
    pub ahead: u64,
    /// `ahead` was counted to its end; else it is "at least".
    pub exact: bool,
}
