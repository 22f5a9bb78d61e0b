//! The ways between a node's loop and those around it: clients, news, settings, figures.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use interlock_hub::tables::writes::Words;
use interlock_log::apply::Answer;
use interlock_log::entry::MOST_ARGUMENTS;

use crate::files::Reach;
use crate::log::Largest;

/// The clients of a node, who wait elsewhere.
pub trait Clients {
    /// Readable while there is something to take.
    fn descriptor(&self) -> RawFd;

    /// The number of writes that are to be taken.
    fn waiting(&self) -> usize;

    /// Takes up to so many writes, oldest first, and the rest of a group: by what each is answered, its client and number if it has
    /// them, and its arguments.
    fn take(&mut self, most: usize) -> Vec<Write>;

    /// Answers, in the order in which they were applied.
    fn answer(&mut self, answers: Vec<(u64, Answer)>);

    /// Answers writes that were not done, and will not be.
    fn refuse(&mut self, writes: Vec<Write>, why: Refused);

    /// Answers one whose write is done, though too few machines have acknowledged it.
    fn lack(&mut self, ticket: u64, why: Unacknowledged);

    /// Tells what happens to the node.
    fn tell(&mut self, news: News);
}

/// A write of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub ticket: u64,
    pub client: Option<(Vec<u8>, u64)>,
    /// The log time after which it is not done; `None`: as long as any write may take.
    pub deadline: Option<u64>,
    /// Other machines that are to have it before it is answered; `None`: as many as the node says.
    pub acks: Option<usize>,
    pub arguments: Words,
    /// It is in the same entry as the write behind it, or no log has either.
    pub goes_on: bool,
}

impl Write {
    /// Returns why no log may have it. `furthest`: the last deadline that a log keeps in mind; `largest`: of an
    /// entry there.
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

    /// Bytes of it in an entry at most.
    pub fn bytes(&self) -> usize {
        let client = self.client.as_ref().map_or(0, |(name, _)| name.len());
        OF_A_WRITE + client + self.arguments.bytes().len() + self.arguments.len() * OF_AN_ARGUMENT
    }
}

/// A reason why a write is answered before enough machines have acknowledged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unacknowledged {
    /// So many have, and more were wanted.
    InTime { wanted: usize, have: usize },
    /// The engine has lost entries; the write may be among them, and is put back.
    Lost,
    /// The node ends.
    Ends,
}

/// A reason why writes are not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The node ends, or is to be left alone.
    Drains,
    /// For as long as a write may take, the node could not take any.
    CannotNow,
    /// No log would keep in mind for so long that it was done.
    TooFar,
    /// It has more arguments than an entry of a log.
    TooMany,
    /// It has more bytes than an entry of a log, by a setting of the engine.
    TooLong { bytes: usize, most: usize, setting: Arc<str> },
}

impl Refused {
    /// `bytes`: of a write, or of writes that are done together.
    pub fn too_long(bytes: usize, largest: &Largest) -> Refused {
        Refused::TooLong { bytes, most: room(largest), setting: largest.setting.clone() }
    }
}

/// A thing that happened to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The engine or its log.
    Trouble(crate::trouble::Trouble),
    /// A file of the node, or its disk.
    Disk(String),
    /// The table of the machine could not be written; this is tried again.
    Table(String),
    /// The log has lost entries that readers of the table have seen. What no node has put back, they see no
    /// more.
    ReadersGoBack,
    /// The log is of a table with other settings, which its genesis has. The node only reads it.
    OtherSettings(Vec<u8>),
    /// The node goes back to this position: the log does not have what came behind, or not as it was read.
    GoesBack(u64),
    /// It is not stuck any more: its ring has the entries from a checkpoint of its own to this position of the log.
    GoesOn(u64),
    /// The log does not begin at its beginning, and no checkpoint of this node is in it: it needs one of another.
    Stuck,
    /// A checkpoint of another node could not be taken.
    NotInstalled(String),
}

/// The sizes and times of a node.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Entries under way at most, and those of few writes where the engine takes long for one.
    pub under_way: usize,
    pub few: usize,
    /// Writes in an entry at most.
    pub writes: usize,
    /// A write is done within this time or not at all.
    pub timeout: Duration,
    /// Other machines that acknowledge a write before it is answered. It waits for them as long as the timeout says.
    pub acks: usize,
    /// Entries, or bytes of entries, from a checkpoint to the next.
    pub checkpoint: u64,
    pub checkpoint_bytes: u64,
    /// The least that the oldest checkpoint goes back.
    pub reach: Reach,
    /// Entries that stay in the log before those that a checkpoint needs.
    pub keep: u64,
    /// An entry that was not read again in this time is appended again.
    pub again: Duration,
    /// For so long others have time to put back what this node cannot.
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

/// The largest entry of a log whose engine takes larger ones, or does not tell.
pub fn largest() -> Largest {
    Largest { bytes: MOST_OF_AN_ENTRY, setting: "Interlock's own limit".into() }
}

/// Bytes that writes have in an entry at most: of that which puts them back as well.
pub fn room(largest: &Largest) -> usize {
    largest.bytes.saturating_sub(OF_AN_ENTRY)
}

/// Bytes of an entry at most.
const MOST_OF_AN_ENTRY: usize = 16 << 20;
/// Bytes of an entry, a write, and an argument beside what they say, at most.
const OF_AN_ENTRY: usize = 1024;
const OF_A_WRITE: usize = 64;
const OF_AN_ARGUMENT: usize = 5;
