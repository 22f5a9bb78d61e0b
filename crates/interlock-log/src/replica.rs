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

mod owner;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::apply::{Answer, Applied, Fate, Whole};
use crate::checkpoint::{Checkpoint, Id, Place};
use crate::codec::checksum;
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

/// The state that a node had before it went back.
#[derive(Debug)]
struct Lost<M> {
    state: Whole<M>,
    /// The checksum of its bytes.
    sum: u64,
    /// The place to which it went back, and the last numbers of then: anything beyond them may be lost.
    position: u64,
    lasts: BTreeMap<Vec<u8>, u64>,
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
    ring: R,
}

impl<M: Machine, R: Ring> Replica<M, R> {
    /// A node that starts with the newest checkpoint that it has, whether or not the log has it too,
    /// or as the snapshot of a database says, or with nothing.
    pub fn new(setup: Setup, ring: R, newest: Option<Checkpoint<M>>) -> Self {
        let (place, state) =
            newest.map_or_else(|| (Place::default(), Whole::default()), |it| (it.place, it.state));
        let mut seen = state.now;
        ring.each(&mut |kept| {
            seen = seen.max(kept.did.time);
            true
        });
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
            mine: None,
            owes: true,
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
        let entry = self.entry(name.clone(), number, Body::Commands(commands.clone()));
        self.pending.push_back(Batch { name, number, busy, commands, tickets });
        entry
    }

    /// All entries of this node that it has not seen counted: to be appended again, in this order,
    /// after a failure, after a while, or when [`Replica::read`] says that there was a gap.
    pub fn again(&self) -> Vec<Vec<u8>> {
        let entry = |batch: &Batch| {
            let body = Body::Commands(batch.commands.clone());
            self.entry(batch.name.clone(), batch.number, body)
        };
        self.pending.iter().map(entry).collect()
    }

    /// A state of other rows, as those of another data centre or a database, for all to join.
    pub fn states(&self, source: Option<Source>, bytes: Vec<u8>) -> Vec<u8> {
        self.entry(self.name.clone(), 0, Body::State { source, bytes })
    }

    fn entry(&self, name: Vec<u8>, number: u64, body: Body) -> Vec<u8> {
        let (read, busy) = (self.place.mark, self.state.busy);
        self.made.set(self.made.get() + 1);
        let nonce = if self.setup.rules.nonces { checksum(self.made.get(), &self.name) } else { 0 };
        Entry { name, number, read, seen: self.seen, busy, nonce, body }.encode()
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

    /// Applies the next entry of the log. True if an entry of this node was in vain, because one before
    /// it is missing: append [`Replica::again`].
    pub fn read(&mut self, id: Id, time: u64, bytes: &[u8]) -> bool {
        if !matches!(self.phase, Phase::Reads) {
            return false;
        }
        self.place = self.place.then(id, bytes);
        self.known.push_back(self.place);
        if self.known.len() >= 2 * KNOWN {
            self.base = self.known.drain(..KNOWN).next_back().unwrap_or(self.base);
        }
        let Ok(entry) = Entry::decode(bytes) else { return false };
        let (limits, rules) = (&self.setup.limits, self.setup.rules);
        let applied = self.state.apply(&entry, self.place.mark, time, limits, rules);
        self.seen = self.seen.max(self.state.now);
        let in_vain = applied.fate == Fate::Gap && self.is_pending(&entry);
        self.answer(&entry, &applied);
        if let Some(did) = applied.kept {
            let position = self.place.mark.position;
            self.ring.add(Kept { name: entry.name.clone(), number: entry.number, position, did });
        }
        if let (Body::State { source: None, bytes }, Fate::Taken) = (&entry.body, applied.fate) {
            let sum = checksum(0, bytes);
            self.mine = self.mine.take().filter(|mine| mine.sum != sum);
        }
        self.doubt(entry.read);
        in_vain
    }

    fn is_pending(&self, entry: &Entry) -> bool {
        self.pending.iter().any(|b| b.name == entry.name && b.number == entry.number)
    }

    /// Gives the answers that an entry has brought.
    fn answer(&mut self, entry: &Entry, applied: &Applied) {
        let answered = |fate| matches!(fate, Fate::Counted | Fate::Repeat | Fate::Full);
        let (now, keep) = (self.state.now, self.setup.limits.timeout + self.setup.limits.span);
        let (mut at, deadlines) = (0, self.setup.rules.deadlines);
        while at < self.pending.len() {
            let batch = &mut self.pending[at];
            let same = batch.name == entry.name && batch.number == entry.number;
            let same = same && answered(applied.fate);
            let counted = self.state.sessions.last(&batch.name) >= batch.number;
            let old = self.state.busy > batch.busy + keep || (same && applied.fate == Fate::Full);
            for (index, command) in (0..).zip(&batch.commands) {
                let Some(ticket) = batch.tickets[index as usize] else { continue };
                let known = command.client.as_ref().filter(|(client, number)| {
                    self.state.sessions.standing(client, *number) == Standing::Done
                });
                let answer = match applied.answers.get(&index).filter(|_| same) {
                    Some(answer) => answer.clone(),
                    None => match known {
                        Some((client, number)) => self.state.answer_again(client, *number),
                        None if counted || old => Answer::Unknown,
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

    /// Rule 3: continues from a checkpoint whose last entry is in the log, or from the beginning.
    ///
    /// # Arguments
    ///
    /// `begins` says that nothing was ever removed from the log's beginning, or that it is empty.
    pub fn go_back(&mut self, checkpoint: Option<Checkpoint<M>>, begins: bool) {
        if checkpoint.is_none() && !begins && self.setup.rules.gaps {
            self.phase = Phase::Stuck;
            self.serves = false;
            return;
        }
        let (place, state) = checkpoint
            .map_or_else(|| (Place::default(), Whole::default()), |it| (it.place, it.state));
        let lost = std::mem::replace(&mut self.state, state);
        let lasts = self.state.sessions.names.iter().map(|(name, it)| (name.clone(), it.last));
        let (position, lasts) = (place.mark.position, lasts.collect());
        match &mut self.mine {
            // A node that goes back again, before it has caught up, knows more from the first time.
            Some(mine) if mine.position <= position => {}
            Some(mine) => (mine.position, mine.lasts) = (position, lasts),
            None if lost.machine.is_some() => {
                let mut bytes = Vec::new();
                lost.encode(&mut bytes);
                let sum = checksum(0, &bytes);
                self.mine = Some(Lost { state: lost, sum, position, lasts });
            }
            None => {}
        }
        self.place = place;
        if self.known_at(place.mark.position) == Some(place) {
            let keep = (place.mark.position - self.base.mark.position) as usize;
            self.known.truncate(keep);
        } else {
            self.known.clear();
            self.base = place;
        }
        self.phase = Phase::Reads;
        self.serves = false;
        self.owes = true;
    }

    /// A node without history found that the log does not begin at its beginning.
    pub fn is_trimmed(&mut self) {
        if self.place.id.is_none() && self.setup.rules.gaps {
            self.phase = Phase::Stuck;
        }
    }

    /// Says that all entries of the log have been read, and returns what is to be appended: a genesis,
    /// a state to join, and at most so many lost entries. Nodes do this one after the other: whoever
    /// comes later first reads what others have put back.
    pub fn at_the_end(&mut self, most: usize) -> Vec<Vec<u8>> {
        if !matches!(self.phase, Phase::Reads) {
            return Vec::new();
        }
        if self.state.machine.is_none() {
            return vec![self.entry(
                self.name.clone(),
                0,
                Body::Genesis(self.setup.genesis.clone()),
            )];
        }
        let mut entries = Vec::new();
        if let Some(mine) = self.mine.take().filter(|_| self.setup.rules.states) {
            if self.lacks(&mine) {
                let mut bytes = Vec::new();
                mine.state.encode(&mut bytes);
                entries.push(self.states(None, bytes));
                self.mine = Some(mine);
                return entries;
            }
        }
        self.serves = true;
        if self.owes {
            if self.setup.rules.puts_back {
                self.put_back(most, &mut entries);
            }
            self.owes = !entries.is_empty();
        }
        if !self.owes {
            self.give_up();
        }
        entries
    }

    /// Gives up entries of this node before which one is missing that nobody puts back any more.
    fn give_up(&mut self) {
        let last = |name: &[u8]| self.state.sessions.last(name);
        let Some(first) = self.pending.front().filter(|it| it.number > last(&it.name) + 1) else {
            return;
        };
        let name = first.name.clone();
        let (vain, rest) = self.pending.drain(..).partition(|batch| batch.name == name);
        self.pending = rest;
        let vain: VecDeque<Batch> = vain;
        let tickets = vain.into_iter().flat_map(|batch| batch.tickets).flatten();
        self.answers.extend(tickets.map(|ticket| (ticket, Answer::Unknown)));
        if name == self.name {
            self.rename();
        }
    }

    /// Takes a name that nobody had before.
    fn rename(&mut self) {
        self.names += 1;
        self.number = 0;
        self.name = self.setup.name.clone();
        self.name.extend_from_slice(format!("+{}", self.names).as_bytes());
    }

    /// True if entries of a lost history are neither in the state nor can be put back.
    fn lacks(&self, mine: &Lost<M>) -> bool {
        let since = self.state.busy.saturating_sub(self.setup.limits.span);
        mine.state.sessions.names.iter().any(|(name, named)| {
            let before = mine.lasts.get(name).copied().unwrap_or(0);
            let last = self.state.sessions.last(name).max(before);
            (last + 1..=named.last).any(|number| !self.ring.has(name, number, since))
        })
    }

    /// Rule 4: what the ring has and the state has not.
    fn put_back(&self, most: usize, entries: &mut Vec<Vec<u8>>) {
        let since = self.state.busy.saturating_sub(self.setup.limits.span);
        let sessions = &self.state.sessions;
        self.ring.each(&mut |kept| {
            let owed = kept.number > sessions.last(&kept.name)
                || kept.did.done.iter().any(|done| {
                    let client = done.command.client.as_ref();
                    client.is_some_and(|(name, n)| !sessions.has_done(name, *n))
                });
            if owed && kept.did.busy >= since {
                let body = Body::PutBack(kept.did.clone());
                entries.push(self.entry(kept.name.clone(), kept.number, body));
            }
            entries.len() < most
        });
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
        }
    }

    /// The id before which the log may be trimmed: that of a node's oldest checkpoint, if another
    /// machine has a checkpoint of the same history at this place or behind it.
    pub fn trim(&self, oldest: Place, others: &[Mark]) -> Option<Id> {
        let ours =
            |mark: &&Mark| self.known_at(mark.position).is_some_and(|known| known.mark == **mark);
        let sound = matches!(self.phase, Phase::Reads)
            && self.known_at(oldest.mark.position) == Some(oldest);
        let kept = others.iter().filter(ours).any(|mark| mark.position >= oldest.mark.position);
        oldest.id.filter(|_| sound && kept)
    }
}
