//! The interfaces between a node's loop and its surroundings: clients, news, settings, figures.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use interlock_hub::tables::writes::Words;
use interlock_log::apply::Answer;
use interlock_log::entry::MOST_ARGUMENTS;

use crate::files::Reach;
use crate::log::Largest;

/// The clients of a node, which wait elsewhere.
pub trait Clients {
    /// A descriptor that is readable while there are writes to take.
    fn descriptor(&self) -> RawFd;

    /// The number of writes to take.
    fn waiting(&self) -> usize;

    /// Removes and returns up to `most` writes, oldest first, plus the rest of the last group.
    fn take(&mut self, most: usize) -> Vec<Write>;

    /// Answers writes in the order in which they were applied.
    fn answer(&mut self, answers: Vec<(u64, Answer)>);

    /// Answers writes that were not done and will not be.
    fn refuse(&mut self, writes: Vec<Write>, why: Refused);

    /// Answers a write that is done, but that too few machines have acknowledged.
    fn lack(&mut self, ticket: u64, why: Unacknowledged);

    /// Reports an event of the node.
    fn tell(&mut self, news: News);
}

/// A write of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub ticket: u64,
    pub client: Option<(Vec<u8>, u64)>,
    /// The log time after which the write is not done; `None`: the longest time that a write may
    /// take.
    pub deadline: Option<u64>,
    /// Number of other machines that must have the write before it is answered; `None`: the node's
    /// setting.
    pub acks: Option<usize>,
    pub arguments: Words,
    /// The write and the next one belong to the same entry: the log gets both or neither.
    pub goes_on: bool,
}

impl Write {
    /// Returns the reason why no log can take the write, if any. `furthest`: the last deadline that
    /// a log remembers; `largest`: the largest entry it takes.
    pub fn refusal(&self, deadline: u64, furthest: u64, largest: &Largest) -> Option<Refused> {
        if self.arguments.len() > MOST_ARGUMENTS {
            return Some(Refused::TooMany);
        }
        let (bytes, most) = (self.bytes(), room(largest));
        if bytes > most {
            return Some(Refused::too_long(bytes, largest));
        }
        (deadline > furthest).then_some(Refused::TooFar)
    }

    /// Maximum bytes of the write in an entry.
    pub fn bytes(&self) -> usize {
        let client = self.client.as_ref().map_or(0, |(name, _)| name.len());
        OF_A_WRITE + client + self.arguments.bytes().len() + self.arguments.len() * OF_AN_ARGUMENT
    }
}

/// The reason why a write is answered before enough machines have acknowledged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unacknowledged {
    /// The wait timed out: `have` machines have acknowledged it, fewer than wanted.
    InTime { wanted: usize, have: usize },
    /// The engine has lost entries, maybe this write, which is then put back.
    Lost,
    /// The node ends.
    Ends,
}

/// The reason why writes are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The node ends or drains.
    Drains,
    /// The node could not take writes for as long as a write may take.
    CannotNow,
    /// The same, because its readers see an older state than its log has.
    Behind,
    /// No log would remember for so long that the write was done.
    TooFar,
    /// The write has more arguments than fit into an entry.
    TooMany,
    /// The write is larger than an entry may be, by a setting of the engine.
    TooLong { bytes: usize, most: usize, setting: Arc<str> },
}

impl Refused {
    /// `bytes`: the size of the write, or of a group of writes.
    pub fn too_long(bytes: usize, largest: &Largest) -> Refused {
        Refused::TooLong { bytes, most: room(largest), setting: largest.setting.clone() }
    }
}

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A problem with the engine or its log.
    Trouble(crate::trouble::Trouble),
    /// A problem with a file of the node, or with its disk.
    Disk(String),
    /// The table of the machine could not be written; the node retries.
    Table(String),
    /// Lost entries are not back yet: readers see an older state, and writes are refused.
    Lost(String),
    /// The log has lost entries that readers of the table have seen. Unless a node has put them
    /// back, they disappear from the table.
    ReadersGoBack,
    /// The log belongs to a table with other settings, here as in its genesis. The node only reads
    /// it.
    OtherSettings(Vec<u8>),
    /// The node goes back to this position: the log lacks the entries after it, or has others.
    GoesBack(u64),
    /// The node is no longer stuck: its ring has the entries from one of its checkpoints to this
    /// position of the log.
    GoesOn(u64),
    /// The log lacks its beginning and has none of this node's checkpoints: the node needs one of
    /// another node.
    Stuck,
    /// A checkpoint of another node could not be installed.
    NotInstalled(String),
}

/// Sizes and times of a node.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Maximum entries under way, and maximum of those with few writes while the engine is slow.
    pub under_way: usize,
    pub few: usize,
    /// Maximum writes in an entry.
    pub writes: usize,
    /// A write is done within this time or not at all.
    pub timeout: Duration,
    /// Number of other machines that acknowledge a write before it is answered. The wait ends with
    /// the timeout.
    pub acks: usize,
    /// Number of entries, and bytes of entries, between two checkpoints.
    pub checkpoint: u64,
    pub checkpoint_bytes: u64,
    /// Minimum reach of the oldest checkpoint.
    pub reach: Reach,
    /// Number of entries that stay in the log before those that a checkpoint needs.
    pub keep: u64,
    /// An appended entry that was not read again within this time is appended once more.
    pub again: Duration,
    /// Time to wait for other nodes to put back lost entries that this node cannot.
    pub patience: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            under_way: 8,
            few: 2,
            writes: 4096,
            timeout: Duration::from_secs(10),
            acks: 0,
            checkpoint: 20_000,
            checkpoint_bytes: 32 << 20,
            reach: Reach::default(),
            keep: 0,
            again: Duration::from_secs(2),
            patience: Duration::from_secs(30),
        }
    }
}

/// Returns the largest entry of a log whose engine takes larger ones, or reports no limit.
pub fn largest() -> Largest {
    Largest { bytes: MOST_OF_AN_ENTRY, setting: "Interlock's own limit".into() }
}

/// Returns the maximum bytes of the writes in an entry. The entry that puts them back must fit too.
pub fn room(largest: &Largest) -> usize {
    largest.bytes.saturating_sub(OF_AN_ENTRY)
}

/// Maximum bytes of an entry.
const MOST_OF_AN_ENTRY: usize = 16 << 20;
/// Maximum overhead in bytes of an entry, a write and an argument.
const OF_AN_ENTRY: usize = 1024;
const OF_A_WRITE: usize = 64;
const OF_AN_ARGUMENT: usize = 5;
