//! A log drives a deterministic machine, and tells it of each command when and for whom it is done.

use std::cell::RefCell;

use crate::codec::Damaged;
use crate::entry::Command;
use crate::session::{Client, Sessions, Standing};

/// The bounds that all nodes of a log share. Times are in ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most that a deadline is ahead of the log time.
    pub timeout: u64,
    /// The span of the ring: for as long, by busy time, lost entries are put back.
    pub span: u64,
    /// The most that one entry adds to the busy time: a log that rests does not age its records.
    pub pause: u64,
    /// The most that a writer's log time may be ahead of the engine's; one that is more is ignored.
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

/// The rules, each of which a test can leave out, to see that its checks fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Rule 2: only the next number of a name is applied.
    pub numbers: bool,
    /// Rule 2: a client's number is done once, and none after its successors.
    pub clients: bool,
    /// Rule 3: a node whose history is no prefix of the log goes back.
    pub goes_back: bool,
    /// Rule 4: a node puts lost entries back.
    pub puts_back: bool,
    /// Rule 4: a put-back has the date that it had first, and none above later writes of its client.
    pub first_date: bool,
    /// Rule 4: among the writes of one client the higher number wins.
    pub own_order: bool,
    /// Rule 4: where two writes have one stamp, a value is taken to be of the client that wrote the other, too.
    pub twins: bool,
    /// Rule 5: what no ring has is joined as a state.
    pub states: bool,
    /// Log time does not fall below what an entry's writer has seen.
    pub seen: bool,
    /// A command is skipped past its deadline.
    pub deadlines: bool,
    /// Entries before which one is missing that nobody has are put back without it.
    pub leaps: bool,
    /// Records are kept for long enough.
    pub records: bool,
    /// A write whose record may have been dropped is not done.
    pub forgets: bool,
    /// Of a client whose record was dropped no earlier write is put back.
    pub latest: bool,
    /// A state that was joined is kept in the ring until a checkpoint has it.
    pub keeps_states: bool,
    /// A state is not joined where all its writes are; where only one side has writes that the other lacks
    /// nothing is said to be merged.
    pub within: bool,
    /// A write without a client that was counted and not done can be put back.
    pub denied: bool,
    /// A state is joined only if nobody who can be reached puts back what it has.
    pub waits: bool,
    /// A put-back is never refused for capacity.
    pub room: bool,
    /// Another checksum for a known position is a reason to look.
    pub checksums: bool,
    /// No two appends have the same bytes.
    pub nonces: bool,
    /// A log whose beginning is gone is not read from its middle.
    pub gaps: bool,
    /// A node whose ring continues its checkpoint up to where the log begins goes on by itself.
    pub continues: bool,
    /// An acknowledgement counts in the history alone in which it was made.
    pub acks: bool,
    /// A log is trimmed only up to what two keep.
    pub two: bool,
    /// Rows of other data centres that were lost are brought back first.
    pub far: bool,
    /// A lost write whose sums others may have comes back in a state alone.
    pub takes_back: bool,
    /// A lost write that changed something counts when it comes back, whatever is found.
    pub late: bool,
}

impl Rules {
    /// All of them: as every node has it.
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
    };
}

/// The end of a command at a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// There was nothing to change, and the command is not put back after a loss.
    Unchanged,
    /// The same, and the reply is an error.
    Refused,
}

/// A state as it was, which writes its bytes.
pub type Image = Box<dyn FnOnce(&mut Vec<u8>) + Send>;

/// Another data centre, or this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Centre<'a> {
    pub name: &'a [u8],
    /// Nothing later was heard of it.
    pub is_newest: bool,
}

/// The origin of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin<'a> {
    /// A history of this data centre, or a database.
    Own,
    Far(Centre<'a>),
}

/// Commands of which a machine is told before they are done.
pub const AHEAD: usize = 32;

/// A deterministic state: what it does depends on its calls alone.
pub trait Machine: Sized {
    /// The state at the beginning of a log.
    ///
    /// # Errors
    ///
    /// This node cannot work with such a log.
    fn begin(genesis: &[u8]) -> Result<Self, Damaged>;

    /// The writer under whose name the last command was done; see [`Moment::writer`].
    fn writer(&self) -> u64 {
        0
    }

    /// Lets the log time pass: rows expire.
    fn advance(&mut self, time: u64);

    /// The next log time at which something expires; `None`: nothing will.
    fn next_due(&self) -> Option<u64> {
        None
    }

    /// The changes to its rows so far, for people to be told how many a call has made.
    fn changes(&self) -> u64 {
        0
    }

    /// Says which commands come next: what the first [`AHEAD`] of them need can be fetched together.
    fn look_ahead(&mut self, _: &[Command]) {}

    /// Does a command, and writes its reply behind what is in `reply`.
    fn apply(&mut self, arguments: &[&[u8]], moment: &Moment<'_>, reply: &mut Vec<u8>) -> Outcome;

    /// A log begins at a time by somebody who has no entries of a history before it: others may have what was lost.
    fn is_bare(&mut self, _time: u64) {}

    /// The rows whose sums may be wrong since the last call: others had larger ones of this data centre than its
    /// entries tell, or what was added may be in them already.
    fn take_short(&mut self) -> u64 {
        0
    }

    /// An entry comes back which a writer has done first.
    fn comes_back(&mut self, _writer: u64) {}

    /// Returns whether a lost write may be done again by its entry. If not, others may have the sums of its first
    /// writer already, and a state is to be joined in which it was done.
    fn takes_back(&self, _writer: u64) -> bool {
        true
    }

    /// Returns whether there are writers of whom that is so.
    fn has_joined(&self) -> bool {
        false
    }

    /// The rows that came from elsewhere, and that another state of this data centre lacks: so many at most are
    /// looked at behind a number. Returns the number of the last, or `None` if there are no more.
    ///
    /// # Arguments
    ///
    /// `centre` is the other data centre, and whether this has heard of it later than the other state.
    fn far_part(
        &self,
        _than: &Self,
        _centre: Centre<'_>,
        _since: u64,
    ) -> (Option<u64>, Option<Self>) {
        (None, None)
    }

    /// Takes in a state from somewhere; joining the same twice changes nothing.
    /// Returns the highest stamp that it then holds.
    fn join(&mut self, other: Self, judge: &Judge<'_>, origin: Origin<'_>) -> u64;

    /// Becomes the state of another history, which has all that was done here, at a log time.
    /// Returns the highest stamp that it then holds, and at least the one that it held.
    fn replace(&mut self, other: Self, time: u64) -> u64;

    fn encode(&self, out: &mut Vec<u8>);

    /// Takes what `encode` writes now, for another thread to be written while this goes on. What is large should
    /// not be copied for it.
    fn image(&self) -> Image {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        Box::new(move |out| out.extend_from_slice(&bytes))
    }

    /// # Errors
    ///
    /// The bytes are no state.
    fn decode(bytes: &[u8]) -> Result<Self, Damaged>;
}

/// The circumstances of a command.
#[derive(Debug)]
pub struct Moment<'a> {
    /// The log time, in ms.
    pub time: u64,
    /// A stamp above all before, or the first date of a late put-back.
    pub stamp: u64,
    /// The state entry of this data centre that was joined last; 0 of none. Sums are kept by it.
    pub lineage: u64,
    /// The command comes from a lost entry: it is not refused for capacity.
    pub put_back: bool,
    /// The writer by whom a lost command was done first: what others have of his sums has it already.
    pub writer: Option<u64>,
    /// It was lost after it had changed something, which counts whatever is found.
    pub late: bool,
    /// Nothing of its client was done in this log before, and it was sent at this log time or later, in ms.
    pub sent: Option<u64>,
    pub(crate) lost: bool,
    pub(crate) number: u64,
    pub(crate) client: Option<&'a Client>,
    pub(crate) own_order: bool,
    pub(crate) placed: RefCell<Vec<u64>>,
}

impl Moment<'_> {
    /// The stamp at which this command's value is set over one that has a stamp (0 of none), or
    /// None if that one stays.
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

/// The stamp, client and number of a write.
type Author<'a> = (u64, &'a [u8], u64);
/// A client, and the number of its write.
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

/// A winner, and the stamp that it has from now on.
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

    /// Decides between two values: that of one client with the higher number wins; between clients,
    /// the side that knew of the other's write; otherwise the later stamp.
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

    /// The writers of two values, by their stamps. Where two histories gave one stamp to writes of different clients, the
    /// values of a row are taken to be of the client that could have written both.
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
