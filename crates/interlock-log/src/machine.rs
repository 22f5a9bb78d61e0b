//! The interface of a deterministic machine that a log drives: the log passes it each command with
//! the time and the client.

use std::cell::RefCell;

use crate::codec::Damaged;
use crate::entry::Command;
use crate::session::{Client, Sessions, Standing};

/// Limits that all nodes of a log share. Times are in ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest time from the log time to a deadline.
    pub timeout: u64,
    /// Span of the ring, in busy time: lost entries are put back for this long.
    pub span: u64,
    /// The most that one entry adds to the busy time: the records of an idle log do not age.
    pub pause: u64,
    /// The most that a writer's log time may be ahead of the engine's; a larger one is ignored.
    pub ahead: u64,
    pub names: usize,
    pub clients: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: 60_000,
            span: 600_000,
            pause: 60_000,
            ahead: 7 * 86_400_000,
            names: 65_536,
            clients: 65_536,
        }
    }
}

/// The rules. A test can disable each of them to see that its checks fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Rule 2: only the next number of a name is applied.
    pub numbers: bool,
    /// Rule 2: a client's number is done once, and not after a higher one of that client.
    pub clients: bool,
    /// Rule 3: a node whose history is not a prefix of the log goes back.
    pub goes_back: bool,
    /// Rule 4: a node puts lost entries back.
    pub puts_back: bool,
    /// Rule 4: a write that is put back keeps its first stamp, but stays below later writes of its
    /// client.
    pub first_date: bool,
    /// Rule 4: of the writes of one client, the one with the higher number wins.
    pub own_order: bool,
    /// Rule 4: if two writes have the same stamp, both values are attributed to a client that could
    /// have written both.
    pub twins: bool,
    /// Rule 5: if no ring has an entry, the state that contains it is joined.
    pub states: bool,
    /// Log time is at least the highest that an entry's writer has seen.
    pub seen: bool,
    /// A command is skipped after its deadline.
    pub deadlines: bool,
    /// A lost entry is put back without its predecessor if no node has that.
    pub leaps: bool,
    /// Records are kept long enough.
    pub records: bool,
    /// A write is not done if its record may have been dropped.
    pub forgets: bool,
    /// No earlier write of a client is put back after its record was dropped.
    pub latest: bool,
    /// A joined state is kept in the ring until a checkpoint contains it.
    pub keeps_states: bool,
    /// A state is not joined if all its writes are already here. A join is not counted as a merge
    /// if only one side has writes that the other lacks.
    pub within: bool,
    /// A write without a client can be put back if its entry was counted but the write was not
    /// done.
    pub denied: bool,
    /// A state is joined only if no reachable node puts back the entries that it contains.
    pub waits: bool,
    /// A put-back is never refused for lack of capacity.
    pub room: bool,
    /// A different checksum for a known position starts a comparison.
    pub checksums: bool,
    /// No two appends have the same bytes.
    pub nonces: bool,
    /// A log whose beginning was trimmed is not read from its middle.
    pub gaps: bool,
    /// A node continues by itself if its ring has the entries between its checkpoint and the log's
    /// beginning.
    pub continues: bool,
    /// An acknowledgement counts only in the history in which it was made.
    pub acks: bool,
    /// A log is trimmed only up to a place that two machines keep.
    pub two: bool,
    /// Lost rows of other data centres are brought back first.
    pub far: bool,
    /// A lost write comes back only as part of a state if others may have its sums.
    pub takes_back: bool,
    /// A lost write that changed something counts when it comes back, whatever it finds.
    pub late: bool,
    /// A delete that found no row deletes what was done before it and comes back later.
    pub missed: bool,
    /// A report of another data centre counts in full only if it follows all that was heard.
    pub follows: bool,
    /// A log learns of each writer whose writes it has under another one.
    pub names_writers: bool,
    /// A data centre compares its log with what another has heard of it.
    pub judges: bool,
    /// A data centre that has lost what another has heard asks it for all rows.
    pub asks: bool,
}

impl Rules {
    /// All rules, as every node has them.
    pub const ALL: Self = Self {
        numbers: true,
        clients: true,
        goes_back: true,
        puts_back: true,
        first_date: true,
        own_order: true,
        twins: true,
        states: true,
        seen: true,
        deadlines: true,
        leaps: true,
        records: true,
        forgets: true,
        latest: true,
        within: true,
        keeps_states: true,
        denied: true,
        waits: true,
        room: true,
        checksums: true,
        nonces: true,
        gaps: true,
        continues: true,
        acks: true,
        two: true,
        far: true,
        takes_back: true,
        late: true,
        missed: true,
        follows: true,
        names_writers: true,
        judges: true,
        asks: true,
    };
}

/// Outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The command changed nothing and is not put back after a loss.
    Unchanged,
    /// Like `Unchanged`, and the reply is an error.
    Refused,
    /// A delete found no row. It changed nothing, but is put back after a loss: it deletes what was
    /// done before it.
    Missed,
}

/// A snapshot of a state, which writes its bytes.
pub type Image = Box<dyn FnOnce(&mut Vec<u8>) + Send>;

/// Another data centre, or this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Centre<'a> {
    pub name: &'a [u8],
    /// Its report follows all before, so that its own sums are as it says.
    pub is_newest: bool,
}

/// Origin of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin<'a> {
    /// A history of this data centre, or a database.
    Own,
    Far(Centre<'a>),
}

/// Number of commands that a machine is shown before they are done.
pub const AHEAD: usize = 32;

/// A deterministic state: its behaviour depends only on its calls.
pub trait Machine: Sized {
    /// Returns the state at the beginning of a log.
    ///
    /// # Errors
    ///
    /// This node cannot work with such a log.
    fn begin(genesis: &[u8]) -> Result<Self, Damaged>;

    /// The writer under whose name the last command was done; see [`Moment::writer`].
    fn writer(&self) -> u64 {
        0
    }

    /// Advances the log time: rows expire.
    fn advance(&mut self, time: u64);

    /// The next log time at which something expires. `None`: nothing expires.
    fn next_due(&self) -> Option<u64> {
        None
    }

    /// Number of changes to its rows so far, for reports of how many a call has made.
    fn changes(&self) -> u64 {
        0
    }

    /// Announces the next commands, so that the data of the first [`AHEAD`] can be fetched
    /// together.
    fn look_ahead(&mut self, _: &[Command]) {}

    /// Executes a command and appends its reply to `reply`.
    fn apply(&mut self, arguments: &[&[u8]], moment: &Moment<'_>, reply: &mut Vec<u8>) -> Outcome;

    /// Notes that a log begins at this time without the entries of an earlier history: others may
    /// have writes that were lost.
    fn is_bare(&mut self, _time: u64) {}

    /// Returns the number of rows since the last call whose sums may be wrong: others had larger
    /// sums of this data centre than its entries add up to, or may already have counted what was
    /// added.
    fn take_short(&mut self) -> u64 {
        0
    }

    /// Notes that an entry comes back that this writer did first.
    fn comes_back(&mut self, _writer: u64) {}

    /// Returns whether the entries of this log determine the sums of a writer.
    fn is_own(&self, _writer: u64) -> bool {
        true
    }

    /// Returns a state without rows that names writers whose writes this log has under other
    /// writers: their sums from elsewhere would count the same writes again.
    fn of_writers(&self, _writers: &[u64]) -> Option<Self> {
        None
    }

    /// Returns whether a lost write may be done again by its entry. If not, others may already have
    /// the sums of its first writer, and a state that contains the write must be joined.
    fn takes_back(&self, _writer: u64) -> bool {
        true
    }

    /// Returns whether `takes_back` is false for some writers.
    fn has_joined(&self) -> bool {
        false
    }

    /// Returns rows that came from elsewhere and that another state of this data centre lacks. It
    /// looks at a limited number of rows after `since` and also returns the number of the last one;
    /// `None` at the end.
    /// `name` is the other data centre.
    fn far_part(&self, _than: &Self, _name: &[u8], _since: u64) -> (Option<u64>, Option<Self>) {
        (None, None)
    }

    /// Joins a state from elsewhere; joining the same state twice changes nothing. Returns the
    /// highest stamp that it then holds.
    fn join(&mut self, other: Self, judge: &Judge<'_>, origin: Origin<'_>) -> u64;

    /// Becomes the state of another history, which contains everything done here, at a log time.
    /// Returns the highest stamp that it then holds, which is not below the one before.
    fn replace(&mut self, other: Self, time: u64) -> u64;

    /// Returns the highest stamp that it holds, 0 if it holds none.
    fn newest(&self) -> u64 {
        0
    }

    fn encode(&self, out: &mut Vec<u8>);

    /// Returns a snapshot of what `encode` would write now, for another thread to write while this
    /// state changes. Large data should not be copied for it.
    fn image(&self) -> Image {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        Box::new(move |out| out.extend_from_slice(&bytes))
    }

    /// # Errors
    ///
    /// The bytes are not a state.
    fn decode(bytes: &[u8]) -> Result<Self, Damaged>;
}

/// Circumstances of a command.
#[derive(Debug)]
pub struct Moment<'a> {
    /// The log time, in ms.
    pub time: u64,
    /// A stamp above all earlier ones, or the first stamp of a late put-back.
    pub stamp: u64,
    /// The state entry of this data centre that was joined last; 0 before the first. Sums are kept
    /// under it.
    pub lineage: u64,
    /// The command is from a lost entry: it is not refused for lack of capacity.
    pub put_back: bool,
    /// The writer that did a lost command first: the sums of that writer that others have include
    /// it.
    pub writer: Option<u64>,
    /// The command changed something before it was lost, so it counts whatever it finds.
    pub late: bool,
    /// The command was lost: later deletes of its rows count although they found no row.
    pub missed: bool,
    /// Earliest log time at which the command can have been sent, in ms; set only if nothing of its
    /// client was done in this log before.
    pub sent: Option<u64>,
    pub(crate) lost: bool,
    pub(crate) number: u64,
    pub(crate) client: Option<&'a Client>,
    pub(crate) own_order: bool,
    pub(crate) placed: RefCell<Vec<u64>>,
}

impl Moment<'_> {
    /// Returns the stamp at which this command's value replaces one with the stamp `existing` (0
    /// for none), or `None` if the existing value stays.
    pub fn place(&self, existing: u64) -> Option<u64> {
        let own = self.client.filter(|_| self.lost && self.own_order);
        let stamp = match own.and_then(|client| client.with_stamp(existing)) {
            Some(number) if number > self.number => None,
            Some(_) => Some(self.stamp.max(existing + 1)),
            None => Some(self.stamp).filter(|stamp| *stamp > existing),
        };
        if let Some(stamp) = stamp {
            let mut placed = self.placed.borrow_mut();
            if !placed.contains(&stamp) {
                placed.push(stamp);
            }
        }
        stamp
    }
}

/// Stamp, client and number of a write.
type Author<'a> = (u64, &'a [u8], u64);
/// A client and the number of its write.
type Numbered<'a> = (&'a [u8], u64);

/// Decides which of two values wins when states are joined.
#[derive(Debug)]
pub struct Judge<'a> {
    ours: &'a Sessions,
    theirs: &'a Sessions,
    our_authors: Vec<Author<'a>>,
    their_authors: Vec<Author<'a>>,
    rules: Rules,
    pub(crate) lifted: RefCell<Vec<(Vec<u8>, u64, u64)>>,
}

/// The winner and its stamp from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Winner {
    Ours(u64),
    Theirs(u64),
}

impl<'a> Judge<'a> {
    pub(crate) fn new(ours: &'a Sessions, theirs: &'a Sessions, rules: Rules) -> Self {
        let (our_authors, their_authors) = (ours.authors(), theirs.authors());
        let lifted = RefCell::default();
        Self { ours, theirs, our_authors, their_authors, rules, lifted }
    }

    /// Decides between two values. Of one client's values the one with the higher number wins;
    /// between clients, the side that knew of the other's write wins; otherwise the later stamp
    /// wins.
    pub fn place(&self, ours: u64, theirs: u64) -> Winner {
        let (our, their) = self.authors(ours, theirs);
        let (mut they_knew, mut we_knew) = (false, false);
        if self.rules.own_order && our != their {
            if let (Some((our_client, our_number)), Some((their_client, their_number))) =
                (our, their)
            {
                if our_client == their_client {
                    they_knew = their_number > our_number;
                    we_knew = !they_knew;
                } else {
                    they_knew = self.theirs.standing(our_client, our_number) == Standing::Done;
                    we_knew = self.ours.standing(their_client, their_number) == Standing::Done;
                }
            }
        }
        match (they_knew, we_knew) {
            (true, false) if theirs > ours => Winner::Theirs(theirs),
            (true, false) => Winner::Theirs(self.lift(their, ours + 1)),
            (false, true) if ours > theirs => Winner::Ours(ours),
            (false, true) => Winner::Ours(self.lift(our, theirs + 1)),
            _ if theirs > ours => Winner::Theirs(theirs),
            _ => Winner::Ours(ours),
        }
    }

    /// Returns the writers of two values by their stamps. If two histories gave one stamp to writes
    /// of different clients, both values of a row are attributed to the client that could have
    /// written both.
    fn authors(&self, ours: u64, theirs: u64) -> (Option<Numbered<'a>>, Option<Numbered<'a>>) {
        let our = with_stamp(&self.our_authors, ours);
        let their = with_stamp(&self.their_authors, theirs);
        let pairs = our.iter().flat_map(|one| their.iter().map(move |other| (one, other)));
        let same = pairs.filter(|(one, other)| one.1 == other.1 && self.rules.twins).last();
        let (one, other) = same.map_or((our.last(), their.last()), |(a, b)| (Some(a), Some(b)));
        let author = |one: &Author<'a>| (one.1, one.2);
        (one.map(author), other.map(author))
    }

    fn lift(&self, author: Option<(&[u8], u64)>, stamp: u64) -> u64 {
        if let Some((client, number)) = author {
            self.lifted.borrow_mut().push((client.to_vec(), number, stamp));
        }
        stamp
    }
}

fn with_stamp<'b, 'a>(authors: &'b [Author<'a>], stamp: u64) -> &'b [Author<'a>] {
    let from = authors.partition_point(|author| author.0 < stamp);
    let to = authors.partition_point(|author| author.0 <= stamp);
    &authors[from..to]
}
