//! A node between the log and its state: the five rules.
//!
//! 1. **The log defines the order.** What clients ask is gathered ([`Replica::submit`]) and appended as
//!    one entry ([`Replica::append`]). It is done when the node reads its own entry
//!    ([`Replica::read`]), as every other node does; then the answers are there
//!    ([`Replica::answers`]).
//! 2. **Each write counts once.** Entries have numbers under the node's name, and only the next one is
//!    applied. So what may have been lost is simply appended again ([`Replica::again`]).
//! 3. **A history is a prefix of the log, or the node goes back.** After each fetch the node's owner
//!    looks up the last entry that was applied and says what is there ([`Replica::last_is`]). If it is
//!    another or none, the node needs the newest of its checkpoints that the log still has
//!    ([`Need::Checkpoint`], [`Replica::go_back`]), and reads on from there.
//! 4. **Who has seen a lost entry puts it back.** At the end of the log ([`Replica::at_the_end`]) the
//!    node appends what its ring has and the state has not.
//! 5. **States are for beginnings and the last resort.** If entries are missing that the ring has not
//!    either, the node appends the state of its lost history, for all to join.
//!
//! Nothing here waits, and nothing knows the time of day: the owner fetches, appends, and says what it
//! found. What it appends may be lost, come late or come twice.

mod acks;
mod continued;
mod far;
mod kept;
mod lost;
mod owner;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::acks::Acks;
pub use self::continued::Raws;
use self::lost::Lost;
use crate::apply::{Answer, Applied, Fate, Whole};
use crate::checkpoint::{Checkpoint, Id, Place};
use crate::codec::{checksum, Bytes};
use crate::entry::{Body, Command, Entry, Mark, Source};
use crate::machine::{Limits, Machine, Rules};
use crate::ring::{Kept, Ring};
use crate::session::Standing;

/// A node knows at least so many places of its history.
const KNOWN: usize = 1 << 16;

/// The things that do not change while a node runs.
#[derive(Debug, Clone)]
pub struct Setup {
    /// A name that no start of any node had before.
    pub name: Vec<u8>,
    /// The node's own name, which stays, and its machine's.
    pub node: Vec<u8>,
    pub machine: Vec<u8>,
    /// The first entry of the log, if it is empty.
    pub genesis: Vec<u8>,
    pub limits: Limits,
    pub rules: Rules,
}

/// The next step of the node's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Fetch entries after an id; look up the last one; then [`Replica::last_is`] and [`Replica::read`].
    Entries(Option<Id>),
    /// Fetch entries after an id for [`Replica::compare`]: somebody has another history.
    Comparison(Option<Id>),
    /// The newest checkpoint before a position whose last entry is in the log: [`Replica::go_back`].
    Checkpoint(u64),
    /// The log's beginning is gone, and with it what this node would need: a snapshot of another node
    /// whose last entry is in the log, for [`Replica::go_back`].
    Snapshot,
}

/// One entry of this node that it has not yet seen counted.
#[derive(Debug)]
struct Batch {
    name: Vec<u8>,
    number: u64,
    /// The busy time at which it was first appended.
    busy: u64,
    commands: Vec<Command>,
    /// No client numbers any of them.
    is_plain: bool,
    earliest: u64,
    asks: bool,
    /// The receivers of the answers, until these are given.
    tickets: Vec<Option<u64>>,
}

#[derive(Debug)]
enum Phase {
    Reads,
    Compares { place: Place, claim: Mark },
    GoesBack { before: u64 },
    Stuck,
}

/// A node's state, and all that it knows of its history.
#[derive(Debug)]
pub struct Replica<M, R> {
    setup: Setup,
    /// The name of now: with each rest that was too long comes another.
    name: Vec<u8>,
    names: u64,
    number: u64,
    /// The number of entries that were made to be appended.
    made: Cell<u64>,
    used: u64,
    seen: u64,
    gathered: Vec<(u64, Command)>,
    pending: VecDeque<Batch>,
    answers: Vec<(u64, Answer)>,
    state: Whole<M>,
    place: Place,
    /// The places behind `base`, up to `place`.
    known: VecDeque<Place>,
    base: Place,
    /// Marks of other histories that entries have named, and that were looked into.
    foreign: BTreeSet<Mark>,
    phase: Phase,
    serves: bool,
    /// The state before this node went back, until all of it is in the state or in the ring.
    mine: Option<Lost<M>>,
    owes: bool,
    /// It has put back what it can, and lacks something that others may put back.
    waits: bool,
    /// It has waited for long enough.
    resorts: bool,
    /// All that was counted behind this position is in the ring.
    covered: u64,
    /// Since it went back it has taken in states, which no ring has.
    joined: bool,
    /// The ring has rows of elsewhere which this run of the node has not read.
    has_far: bool,
    /// Nodes of a history that this one has left, with their machines.
    remembered: BTreeMap<Vec<u8>, Vec<u8>>,
    acks: Acks,
    ring: R,
}

impl<M: Machine, R: Ring> Replica<M, R> {
    /// A node that starts with the newest of its checkpoints, whether the log has it or not, or with nothing. The
    /// ring has what a history had that this checkpoint does not continue.
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
        Self {
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
            remembered: BTreeMap::new(),
            acks: Acks::default(),
            ring,
            setup,
        }
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

    /// The node's name of now.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// True if the node has read to the end of the log since it last went back.
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// True if there may be lost entries that this node has to put back.
    pub fn owes(&self) -> bool {
        self.owes
    }

    /// True if all that it can do is done, and others may put back what it lacks.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// The last resort: nobody who can be reached has put back what is missing. At the end of the log
    /// the node joins its lost state, or gives up what hangs on entries that are missing.
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

    /// Takes a write, to be appended with the next entry. The answer is for a ticket of the caller's.
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

    /// The deadline of a write: some time after a log time was read, whichever time that was.
    pub fn deadline(&self, since_last_read: u64, timeout: u64) -> u64 {
        self.state.now + since_last_read + timeout.min(self.setup.limits.timeout)
    }

    /// The answers that are there, and for whom.
    pub fn answers(&mut self) -> Vec<(u64, Answer)> {
        std::mem::take(&mut self.answers)
    }

    /// The next entry, with all that was gathered; with nothing, it tells the time and makes sure that
    /// what was appended before has been read.
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

    /// The entries of this node that it has not seen counted: to be appended again, in this order,
    /// after a failure, after a while, or when [`Replica::read`] says so. Those behind a gap that is
    /// still to be filled are not among them.
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

    /// The number of entries of this node that it has not seen counted.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// A state of other rows, as those of another data centre or a database, for all to join.
    pub fn states(&self, source: Option<Source>, bytes: Vec<u8>) -> Vec<u8> {
        self.entry(self.name.clone(), 0, Body::State { source, bytes })
    }

    /// Takes a name that nobody had before.
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

    /// Says what the log has at the id of the last entry, which was looked up *after* the entries for
    /// [`Replica::read`] were fetched. False if the node must go back and those are worth nothing.
    pub fn last_is(&mut self, found: Option<&[u8]>) -> bool {
        if !self.setup.rules.goes_back || self.place.is_in_log(found) {
            return true;
        }
        self.lose(u64::MAX);
        false
    }

    /// Says which id an entry of this node was given: no entry may come before one that was read.
    pub fn appended(&mut self, id: Id) {
        if self.place.id.is_some_and(|last| id <= last) && self.setup.rules.goes_back {
            self.lose(u64::MAX);
        }
    }

    fn lose(&mut self, before: u64) {
        self.phase = Phase::GoesBack { before };
        self.serves = false;
    }

    /// Applies the next entry of the log. True if entries of this node are to be appended again
    /// ([`Replica::again`]): one was in vain, because one before it was missing, or a gap was filled.
    pub fn read(&mut self, id: Id, time: u64, bytes: &[u8]) -> bool {
        if !matches!(self.phase, Phase::Reads) {
            return false;
        }
        self.place = self.place.then(id, bytes);
        self.known.push_back(self.place);
        if self.known.len() >= 2 * KNOWN {
            self.base = self.known.drain(..KNOWN).next_back().unwrap_or(self.base);
        }
        let Ok(entry) = Entry::decode(bytes) else {
            self.ring.read(self.place, time, self.state.busy, bytes, None);
            return false;
        };
        let (limits, rules) = (&self.setup.limits, self.setup.rules);
        let is_ours = |batch: &Batch| batch.number == entry.number && batch.name == entry.name;
        let is_wanted = self.pending.iter().any(is_ours);
        let mut applied = self.state.apply(&entry, self.place.mark, time, is_wanted, limits, rules);
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

    /// Looks into it if a writer has another checksum for a place that this node knows.
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

    /// Takes the next entry of a comparison; none if the log has no more. The node finds out whether it
    /// or the writer of an entry has the log's history up to a place.
    pub fn compare(&mut self, next: Option<(Id, &[u8])>) {
        let Phase::Compares { place, claim } = &mut self.phase else { return };
        let claim = *claim;
        if let Some((id, bytes)) = next.filter(|_| place.id == self.base.id) {
            // The log may have been trimmed since: then the first that it has is known, or nothing is.
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

    /// The bytes of a checkpoint of now; none where there is nothing to keep, where the history is in
    /// doubt, or while the newest one on disk has something that the log has lost. When they are kept,
    /// call [`Replica::saved`]; only then drop checkpoints that are not in the log.
    pub fn checkpoint(&self) -> Option<Vec<u8>> {
        self.may_save().then(|| Checkpoint::bytes(self.place, &self.state))
    }

    /// A checkpoint at a position has been kept: the ring may drop what is before it.
    pub fn saved(&mut self, position: u64) {
        if !self.owes && self.mine.is_none() {
            let since = self.state.busy.saturating_sub(self.setup.limits.span);
            self.ring.saved(position, since);
            self.covered = position;
        }
    }
}
