//! A node between the log and its state: the five rules.
//!
//! 1. **The log defines the order.** Writes of clients are gathered ([`Replica::submit`]) and
//!    appended as one entry ([`Replica::append`]). They are done when the node reads its own entry
//!    ([`Replica::read`]), as every other node does; then the answers are ready
//!    ([`Replica::answers`]).
//! 2. **Each write counts once.** Entries are numbered under the node's name, and only the next
//!    number is applied. So an entry that may have been lost is simply appended again
//!    ([`Replica::again`]).
//! 3. **A history is a prefix of the log, or the node goes back.** After each fetch the node's
//!    owner looks up the last applied entry and reports what the log has there
//!    ([`Replica::last_is`]). If it is another entry or none, the node needs the newest of its
//!    checkpoints that the log still has ([`Need::Checkpoint`], [`Replica::go_back`]), and reads
//!    from there.
//! 4. **A node that has seen a lost entry puts it back.** At the end of the log
//!    ([`Replica::at_the_end`]) the node appends the entries that its ring has and its state lacks.
//! 5. **States are for beginnings and the last resort.** If the ring lacks missing entries too, the
//!    node appends the state of its lost history for all nodes to join.
//!
//! Nothing here waits or knows the time of day: the owner fetches, appends and reports the results.
//! Entries that it appends may be lost, arrive late or arrive twice.

mod acks;
mod continued;
mod far;
mod kept;
mod lost;
mod owner;
mod report;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::acks::Acks;
pub use self::continued::Raws;
use self::lost::Lost;
pub use self::report::Report;
use crate::apply::{Answer, Applied, Fate, Whole};
use crate::checkpoint::{Checkpoint, Id, Place};
use crate::codec::{checksum, Bytes};
use crate::entry::{Body, Command, Entry, Mark, Source};
use crate::machine::{Limits, Machine, Rules};
use crate::ring::{Kept, Ring};
use crate::session::Standing;

/// Smallest number of places of its history that a node knows.
const KNOWN: usize = 1 << 16;

/// Settings that do not change while a node runs.
#[derive(Debug, Clone)]
pub struct Setup {
    /// A name that no earlier start of any node has used.
    pub name: Vec<u8>,
    /// The node's permanent name, and its machine's.
    pub node: Vec<u8>,
    pub machine: Vec<u8>,
    /// The first entry of the log; written if the log is empty.
    pub genesis: Vec<u8>,
    pub limits: Limits,
    pub rules: Rules,
}

/// Next step of the node's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Fetch the entries after an id and look up the last applied one; then call
    /// [`Replica::last_is`] and [`Replica::read`].
    Entries(Option<Id>),
    /// Fetch the entries after an id for [`Replica::compare`]: another node has a different
    /// history.
    Comparison(Option<Id>),
    /// Load the newest checkpoint before a position whose last entry is in the log, for
    /// [`Replica::go_back`].
    Checkpoint(u64),
    /// Get a snapshot of another node whose last entry is in the log, for [`Replica::go_back`]: the
    /// log was trimmed, and this node would need its beginning.
    Snapshot,
}

/// An entry of this node that it has not yet seen counted.
#[derive(Debug)]
struct Batch {
    name: Vec<u8>,
    number: u64,
    /// Busy time at which it was first appended.
    busy: u64,
    commands: Vec<Command>,
    /// None of the commands has a client's number.
    is_plain: bool,
    earliest: u64,
    asks: bool,
    /// Receivers of the answers; `None` once answered.
    tickets: Vec<Option<u64>>,
}

#[derive(Debug)]
enum Phase {
    Reads,
    Compares { place: Place, claim: Mark },
    GoesBack { before: u64 },
    Stuck,
}

/// A node's state and its knowledge of its history.
#[derive(Debug)]
pub struct Replica<M, R> {
    setup: Setup,
    /// The current name: after each idle period that is too long the node takes a new one.
    name: Vec<u8>,
    names: u64,
    number: u64,
    /// Number of entries made for appending.
    made: Cell<u64>,
    used: u64,
    seen: u64,
    gathered: Vec<(u64, Command)>,
    pending: VecDeque<Batch>,
    answers: Vec<(u64, Answer)>,
    state: Whole<M>,
    place: Place,
    /// The places after `base`, up to `place`.
    known: VecDeque<Place>,
    base: Place,
    /// The last entry is a genesis that another node has written too: of a log that is trimmed before
    /// it, it would look like the beginning.
    is_repeated_genesis: bool,
    /// Marks of other histories that entries have named and that were compared.
    foreign: BTreeSet<Mark>,
    phase: Phase,
    serves: bool,
    /// The state before this node went back, until all of it is in the state or in the ring.
    mine: Option<Lost<M>>,
    owes: bool,
    /// It has put back all it can, and others may put back entries that it lacks.
    waits: bool,
    /// It has waited long enough.
    resorts: bool,
    /// The ring has every entry counted after this position.
    covered: u64,
    /// It has joined states, which no ring has, since it went back.
    joined: bool,
    /// The ring has rows from elsewhere that this process has not read.
    has_far: bool,
    /// Writers of entries that may be lost.
    writers: BTreeSet<u64>,
    /// Nodes of a history that this node has left, with their machines.
    remembered: BTreeMap<Vec<u8>, Vec<u8>>,
    acks: Acks,
    ring: R,
}

impl<M: Machine, R: Ring> Replica<M, R> {
    /// Creates a node that starts with its newest checkpoint, whether or not the log has it, or
    /// with nothing. The ring has the entries of a history that this checkpoint does not include.
    pub fn new(setup: Setup, ring: R, newest: Option<Checkpoint<M>>) -> Self {
        let (place, state) =
            newest.map_or_else(|| (Place::default(), Whole::default()), |it| (it.place, it.state));
        let mut seen = state.now;
        ring.each(&mut |kept| {
            seen = seen.max(kept.did.time);
            true
        });
        let lasts = state.sessions.names.iter().map(|(name, it)| (name.clone(), it.last));
        let mine = Lost::kept(&ring, setup.rules, place.mark.position, lasts.collect());
        let mut new = Self {
            name: setup.name.clone(),
            names: 0,
            number: 0,
            made: Cell::new(0),
            used: state.busy,
            seen,
            gathered: Vec::new(),
            pending: VecDeque::new(),
            answers: Vec::new(),
            state,
            place,
            known: VecDeque::new(),
            base: place,
            is_repeated_genesis: false,
            foreign: BTreeSet::new(),
            phase: Phase::Reads,
            serves: false,
            joined: mine.is_some(),
            has_far: true,
            mine,
            owes: true,
            waits: false,
            resorts: false,
            covered: place.mark.position,
            writers: BTreeSet::new(),
            remembered: BTreeMap::new(),
            acks: Acks::default(),
            ring,
            setup,
        };
        new.note_writers();
        new
    }

    pub fn state(&self) -> &Whole<M> {
        &self.state
    }

    pub fn place(&self) -> Place {
        self.place
    }

    pub fn ring(&self) -> &R {
        &self.ring
    }

    /// The node's current name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns whether the node has read to the end of the log since it last went back.
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// Returns whether there may be lost entries that this node has to put back.
    pub fn owes(&self) -> bool {
        self.owes
    }

    /// Returns whether this node has done all it can and others may put back entries that it lacks.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Ends the wait: no reachable node has put back the missing entries. At the end of the log the
    /// node joins its lost state, or gives up entries that depend on missing ones.
    pub fn wait_no_longer(&mut self) {
        self.resorts = self.waits;
    }

    pub fn need(&self) -> Need {
        match &self.phase {
            Phase::Reads => Need::Entries(self.place.id),
            Phase::Compares { place, .. } => Need::Comparison(place.id),
            Phase::GoesBack { before } => Need::Checkpoint(*before),
            Phase::Stuck => Need::Snapshot,
        }
    }

    // --- Clients ---

    /// Takes a write, which is appended with the next entry. `ticket` is the caller's name for the
    /// answer.
    pub fn submit(&mut self, ticket: u64, command: Command) {
        if let Some((client, number)) = command.client.as_ref().filter(|_| self.setup.rules.clients)
        {
            if self.state.sessions.standing(client, *number) == Standing::Done {
                let answer = self.state.answer_again(client, *number);
                self.answers.push((ticket, answer));
                return;
            }
        }
        self.gathered.push((ticket, command));
    }

    /// Returns the deadline of a write, given the time since the log time was last read.
    pub fn deadline(&self, since_last_read: u64, timeout: u64) -> u64 {
        self.state.now + since_last_read + timeout.min(self.setup.limits.timeout)
    }

    /// Takes the answers that are ready, with their tickets.
    pub fn answers(&mut self) -> Vec<(u64, Answer)> {
        std::mem::take(&mut self.answers)
    }

    /// Returns the next entry, with all gathered writes. Without writes, it carries the time and
    /// makes sure that earlier entries have been read.
    pub fn append(&mut self) -> Vec<u8> {
        let limits = &self.setup.limits;
        if self.number > 0 && self.state.busy > self.used + (limits.timeout + limits.span) / 2 {
            self.rename();
        }
        self.number += 1;
        self.used = self.used.max(self.state.busy);
        let (tickets, commands): (_, Vec<Command>) =
            self.gathered.drain(..).map(|(ticket, command)| (Some(ticket), command)).unzip();
        let (name, number, busy) = (self.name.clone(), self.number, self.state.busy);
        let asks = self.acks.asks_next();
        let entry = self.made_now(name, number, acks::body(asks, commands));
        let bytes = entry.encode();
        let Entry { name, body: Body::Commands(commands) | Body::Asking(commands), .. } = entry
        else {
            return bytes;
        };
        let is_plain = commands.iter().all(|command| command.client.is_none());
        let earliest = commands.iter().map(|command| command.deadline).min().unwrap_or(u64::MAX);
        let batch = Batch { name, number, busy, commands, is_plain, earliest, asks, tickets };
        self.pending.push_back(batch);
        bytes
    }

    /// Returns this node's entries that it has not seen counted. They must be appended again in
    /// this order after a failure, after a while, or when [`Replica::read`] says so. Entries after
    /// a gap that is still to be filled are left out.
    pub fn again(&self) -> Vec<Vec<u8>> {
        let mut entries = Vec::new();
        let mut before: Option<(&[u8], u64)> = None;
        for batch in &self.pending {
            let last = match before {
                Some((name, number)) if *name == *batch.name => number,
                _ => self.state.sessions.last(&batch.name),
            };
            before = Some((&batch.name, last));
            if batch.number <= last + 1 {
                before = Some((&batch.name, batch.number.max(last)));
                let body = acks::body(batch.asks, batch.commands.clone());
                entries.push(self.entry(batch.name.clone(), batch.number, body));
            }
        }
        entries
    }

    /// Number of entries of this node that it has not seen counted.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns an entry with other rows, such as those of another data centre or a database, for
    /// all to join.
    pub fn states(&self, source: Option<Source>, bytes: Vec<u8>) -> Vec<u8> {
        self.entry(self.name.clone(), 0, Body::State { source, bytes })
    }

    /// Takes a name that no node has used.
    fn rename(&mut self) {
        self.names += 1;
        self.number = 0;
        self.name = self.setup.name.clone();
        self.name.extend_from_slice(format!("+{}", self.names).as_bytes());
    }

    fn entry(&self, name: Vec<u8>, number: u64, body: Body) -> Vec<u8> {
        self.made_now(name, number, body).encode()
    }

    fn made_now(&self, name: Vec<u8>, number: u64, body: Body) -> Entry {
        let read = self.place.mark;
        self.made.set(self.made.get() + 1);
        let nonce = if self.setup.rules.nonces { checksum(self.made.get(), &self.name) } else { 0 };
        Entry { name, number, read, seen: self.seen, nonce, body }
    }

    // --- The log ---

    /// Takes the entry that the log has at the last entry's id, which must be looked up *after* the
    /// entries for [`Replica::read`] were fetched. Returns false if the node must go back; the
    /// fetched entries are then useless.
    pub fn last_is(&mut self, found: Option<&[u8]>) -> bool {
        if !self.setup.rules.goes_back || self.place.is_in_log(found) {
            return true;
        }
        self.lose(u64::MAX);
        false
    }

    /// Takes the id that an entry of this node was given: no entry may come before one that was
    /// read.
    pub fn appended(&mut self, id: Id) {
        if self.place.id.is_some_and(|last| id <= last) && self.setup.rules.goes_back {
            self.lose(u64::MAX);
        }
    }

    fn lose(&mut self, before: u64) {
        self.phase = Phase::GoesBack { before };
        self.serves = false;
    }

    /// Applies the next entry of the log. Returns true if entries of this node must be appended
    /// again ([`Replica::again`]): an entry did not count because the one before it was missing, or
    /// a gap was filled.
    pub fn read(&mut self, id: Id, time: u64, bytes: &[u8]) -> bool {
        if !matches!(self.phase, Phase::Reads) {
            return false;
        }
        self.place = self.place.then(id, bytes);
        self.known.push_back(self.place);
        if self.known.len() >= 2 * KNOWN {
            self.base = self.known.drain(..KNOWN).next_back().unwrap_or(self.base);
        }
        self.is_repeated_genesis = false;
        let Ok(mut entry) = Entry::decode(bytes) else {
            self.ring.read(self.place, time, self.state.busy, bytes, None);
            return false;
        };
        self.is_repeated_genesis =
            self.place.mark.position > 1 && matches!(entry.body, Body::Genesis(_));
        let (limits, rules) = (&self.setup.limits, self.setup.rules);
        let is_ours = |batch: &Batch| batch.number == entry.number && batch.name == entry.name;
        let is_wanted = self.pending.iter().any(is_ours);
        let mut applied =
            self.state.apply(&mut entry, self.place.mark, time, is_wanted, limits, rules);
        self.seen = self.seen.max(self.state.now);
        let is_filled = matches!((applied.fate, &entry.body), (Fate::Counted, Body::PutBack(_)));
        let is_vain = applied.fate == Fate::Gap || is_filled;
        let is_vain = is_vain && self.pending.iter().any(|batch| batch.name == entry.name);
        self.answer(&entry, &mut applied);
        self.heed(&entry);
        let position = self.place.mark.position;
        let (name, number) = (entry.name.clone(), entry.number);
        let kept = applied.kept.map(|did| Kept { name, number, position, did });
        self.ring.read(self.place, time, self.state.busy, bytes, kept);
        if let (Body::State { source: None, bytes }, Fate::Taken) = (&entry.body, applied.fate) {
            let sum = checksum(0, bytes);
            if self.setup.rules.keeps_states && applied.joined {
                self.ring.add_state(self.place.mark.position, bytes);
            }
            self.mine = self.mine.take().filter(|mine| mine.sum != sum);
            self.covered = self.place.mark.position;
            self.joined = true;
        }
        if matches!((&entry.body, applied.fate), (Body::State { source: Some(_), .. }, Fate::Taken))
        {
            self.ring.add_state(self.place.mark.position, bytes);
        }
        self.doubt(entry.read);
        is_vain && !self.again().is_empty()
    }

    /// Gives the answers that an entry has brought.
    fn answer(&mut self, entry: &Entry, applied: &mut Applied) {
        let answered = |fate| matches!(fate, Fate::Counted | Fate::Repeat | Fate::Full);
        let (now, keep) = (self.state.now, self.setup.limits.timeout + self.setup.limits.span);
        let (mut at, deadlines) = (0, self.setup.rules.deadlines);
        while at < self.pending.len() {
            let batch = &mut self.pending[at];
            let same = batch.name == entry.name && batch.number == entry.number;
            let same = same && answered(applied.fate);
            let counted = self.state.sessions.last(&batch.name) >= batch.number;
            let old = self.state.busy > batch.busy + keep || (same && applied.fate == Fate::Full);
            let forgotten = self.state.sessions.forgotten;
            let is_over = batch.earliest <= forgotten || (deadlines && now > batch.earliest);
            if batch.is_plain && !same && !counted && !old && !is_over {
                at += 1;
                continue;
            }
            for (index, command) in (0..).zip(&batch.commands) {
                let Some(ticket) = batch.tickets[index as usize] else { continue };
                let is_known = |(client, number): &&(Bytes, u64)| {
                    self.state.sessions.standing(client, *number) == Standing::Done
                };
                let own = if same { applied.take_answer(index) } else { None };
                let answer = match own {
                    Some(answer) => answer,
                    None => match command.client.as_ref().filter(is_known) {
                        Some((client, number)) => self.state.answer_again(client, *number),
                        None if counted || old => Answer::Unknown,
                        None if command.deadline <= forgotten => Answer::Unknown,
                        None if deadlines && now > command.deadline => Answer::Past,
                        None => continue,
                    },
                };
                batch.tickets[index as usize] = None;
                self.answers.push((ticket, answer));
            }
            if counted || old {
                self.pending.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Starts a comparison if a writer has a different checksum for a place that this node knows.
    fn doubt(&mut self, claim: Mark) {
        if !self.setup.rules.checksums || !self.setup.rules.goes_back {
            return;
        }
        let differs = self.known_at(claim.position).is_some_and(|it| it.mark != claim);
        if differs && !self.foreign.contains(&claim) {
            self.phase = Phase::Compares { place: self.base, claim };
        }
    }

    fn known_at(&self, position: u64) -> Option<Place> {
        if position == self.base.mark.position {
            return Some(self.base);
        }
        let index = position.checked_sub(self.base.mark.position + 1)?;
        self.known.get(usize::try_from(index).ok()?).copied()
    }

    /// Takes the next entry of a comparison, or `None` at the end of the log. The comparison
    /// decides whether this node or the writer of an entry has the log's history up to a place.
    pub fn compare(&mut self, next: Option<(Id, &[u8])>) {
        let Phase::Compares { place, claim } = &mut self.phase else { return };
        let claim = *claim;
        if let Some((id, bytes)) = next.filter(|_| place.id == self.base.id) {
            // If the log has been trimmed since, its first entry is known, or no entry is.
            let at = self.known.partition_point(|known| known.id < Some(id));
            if at > 0 && self.known.get(at).is_some_and(|known| known.is(id, bytes)) {
                *place = self.known[at - 1];
            }
        }
        if let Some((id, bytes)) = next.filter(|_| place.mark.position < claim.position) {
            *place = place.then(id, bytes);
            if place.mark.position < claim.position {
                return;
            }
        }
        let found = place.mark;
        self.foreign.insert(claim);
        while self.foreign.first().is_some_and(|it| it.position < self.base.mark.position) {
            self.foreign.pop_first();
        }
        if self.known_at(claim.position).is_some_and(|mine| mine.mark == found) {
            self.phase = Phase::Reads;
        } else {
            self.lose(claim.position);
        }
    }

    // --- Checkpoints ---

    /// Returns the bytes of a checkpoint of the current state. `None`: there is nothing to keep,
    /// the history is in doubt, the log must not be trimmed before the last entry, or the newest checkpoint on disk has entries that the log has lost.
    /// Call [`Replica::saved`] once the bytes are stored; only then drop checkpoints that are not
    /// in the log.
    pub fn checkpoint(&self) -> Option<Vec<u8>> {
        self.may_save().then(|| Checkpoint::bytes(self.place, &self.state))
    }

    /// Notes that a checkpoint at a position was stored: the ring may drop earlier entries.
    pub fn saved(&mut self, position: u64) {
        if !self.owes && self.mine.is_none() {
            let since = self.state.busy.saturating_sub(self.setup.limits.span);
            self.ring.saved(position, since);
            self.covered = position;
        }
    }
}
