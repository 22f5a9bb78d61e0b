//! Recovery of a node whose history is not a prefix of the log: it goes back, then brings lost
//! entries back into the log from its ring or, as the last resort, as a state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::far::{is_entry, Far};
use super::{Batch, Phase, Replica};
use crate::apply::{Answer, Whole};
use crate::checkpoint::{Checkpoint, Place};
use crate::codec::{checksum, Reader};
use crate::entry::{Body, PutBack};
use crate::machine::{Machine, Rules};
use crate::ring::{Kept, Ring};
use crate::session::Sessions;

/// The entries of a name that the ring has and the state lacks.
#[derive(Debug, Default)]
struct Owed {
    last: u64,
    numbers: BTreeSet<u64>,
    /// Highest number that is not too old.
    highest: u64,
}

/// The state of a node before it went back.
#[derive(Debug)]
pub(super) struct Lost<M> {
    pub(super) state: Whole<M>,
    /// Checksum of its bytes.
    pub(super) sum: u64,
    /// The position to which the node went back, and the last number of each name there: any later
    /// entry may be lost.
    pub(super) position: u64,
    pub(super) lasts: BTreeMap<Vec<u8>, u64>,
    /// More may be lost than the names show: the ring begins after that position, and names were
    /// forgotten since.
    pub(super) is_deep: bool,
    /// Progress of bringing back its rows from elsewhere.
    pub(super) far: Far,
    /// It contains all entries of the ring.
    pub(super) is_folded: bool,
}

impl<M: Machine> Lost<M> {
    /// Reads the states of joined histories that the ring has kept and no checkpoint has.
    pub(super) fn kept(
        ring: &impl Ring,
        rules: Rules,
        position: u64,
        lasts: BTreeMap<Vec<u8>, u64>,
    ) -> Option<Self> {
        let states =
            ring.states().into_iter().filter(|bytes| rules.keeps_states && !is_entry(bytes));
        let states = states.filter_map(|bytes| Whole::decode(&mut Reader::new(bytes)).ok());
        let mut states = states.filter(Whole::is_believed);
        let mut state: Whole<M> = states.next()?;
        states.for_each(|other| state.merge(other, rules));
        Some(Self::new(state, position, lasts, true))
    }

    pub(super) fn new(
        state: Whole<M>,
        position: u64,
        lasts: BTreeMap<Vec<u8>, u64>,
        is_deep: bool,
    ) -> Self {
        let (far, is_folded) = (Far::default(), false);
        let mut lost = Self { state, sum: 0, position, lasts, is_deep, far, is_folded };
        lost.changed();
        lost
    }

    /// Updates the checksum and starts over after a change of the state.
    pub(super) fn changed(&mut self) {
        let mut bytes = Vec::new();
        self.state.encode(&mut bytes);
        self.sum = checksum(0, &bytes);
        (self.far, self.is_folded) = Default::default();
    }
}

impl<M: Machine, R: Ring> Replica<M, R> {
    /// Rule 3: continues from a checkpoint whose last entry is in the log, or from the beginning.
    /// Another node's snapshot must first be stored as a checkpoint, next to the checkpoints that
    /// are not in the log.
    ///
    /// # Arguments
    ///
    /// `begins`: the log is empty, or nothing was ever removed from its beginning.
    pub fn go_back(&mut self, checkpoint: Option<Checkpoint<M>>, begins: bool) {
        if checkpoint.is_none() && !begins && self.setup.rules.gaps {
            self.phase = Phase::Stuck;
            self.serves = false;
            return;
        }
        let (place, state) = checkpoint
            .map_or_else(|| (Place::default(), Whole::default()), |it| (it.place, it.state));
        self.note_writers();
        let lost = std::mem::replace(&mut self.state, state);
        self.remember(&lost.keepers);
        let lasts = self.state.sessions.names.iter().map(|(name, it)| (name.clone(), it.last));
        let (position, lasts) = (place.mark.position, lasts.collect());
        let forgotten = self.state.sessions.forgotten;
        let is_deep =
            |lost: &Whole<M>| position < self.covered && forgotten < lost.sessions.forgotten;
        match &mut self.mine {
            // When a node goes back again before it has caught up, the first lost state has more:
            // entries read since are in the ring, but joined states are not.
            Some(mine) => {
                mine.is_deep |= is_deep(&mine.state);
                if self.joined {
                    mine.is_deep |= is_deep(&lost);
                    mine.state.merge(lost, self.setup.rules);
                    mine.changed();
                }
                if mine.position > position {
                    (mine.position, mine.lasts) = (position, lasts);
                }
            }
            None if lost.machine.is_some() => {
                let is_deep = is_deep(&lost);
                self.mine = Some(Lost::new(lost, position, lasts, is_deep));
            }
            None => {}
        }
        self.recall();
        let is_snapshot = matches!(self.phase, Phase::Stuck);
        if let Some(mine) =
            self.mine.as_ref().filter(|_| is_snapshot && self.setup.rules.keeps_states)
        {
            // The snapshot becomes the newest checkpoint and lacks the lost history's writes.
            let mut bytes = Vec::new();
            mine.state.encode(&mut bytes);
            self.ring.add_state(0, &bytes);
        }
        self.covered = if is_snapshot { position } else { self.covered.min(position) };
        self.joined = is_snapshot;
        self.used = self.used.min(self.state.busy);
        (self.waits, self.resorts) = (false, false);
        (self.place, self.is_repeated_genesis) = (place, false);
        if self.setup.rules.acks {
            self.acks.go_back();
        }
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

    /// Notes that the log does not begin at its beginning, for a node without history.
    pub fn is_trimmed(&mut self) {
        if self.place.id.is_none() && self.setup.rules.gaps {
            self.phase = Phase::Stuck;
        }
    }

    /// Notes that all entries of the log have been read. Returns the entries to append: a genesis,
    /// a state to join, or at most `most` lost entries. Nodes do this one after the other: later
    /// nodes first read what earlier ones have put back.
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
        let mut entries = self.bring_back();
        if !entries.is_empty() {
            return entries;
        }
        self.waits = self.owes && self.setup.rules.puts_back && self.put_back(most, &mut entries);
        if let Some(mine) = self.mine.take().filter(|_| self.setup.rules.states) {
            if self.waits || self.lacks(&mine) {
                // If this state has nothing that the lost history lacks, the lost one can be joined
                // at once and exactly.
                let waits = self.setup.rules.waits && !self.resorts;
                if !waits || self.state.is_within(&mine.state) {
                    let mut bytes = Vec::new();
                    mine.state.encode(&mut bytes);
                    self.mine = Some(mine);
                    return vec![self.states(None, bytes)];
                }
                self.mine = Some(mine);
                self.waits = true;
            }
        }
        self.serves = true;
        self.waits &= entries.is_empty() && !self.resorts;
        if self.owes && entries.is_empty() && !self.waits {
            entries.extend(self.named_writers());
        }
        self.owes = !entries.is_empty() || self.waits;
        if !self.owes {
            self.resorts = false;
            self.give_up();
        }
        entries
    }

    /// Gives up entries of this node if an earlier one is missing and no node puts it back any
    /// more.
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

    /// Returns whether entries of a lost history are missing in the state and cannot be put back.
    fn lacks(&self, mine: &Lost<M>) -> bool {
        if self.setup.rules.within && mine.state.is_within(&self.state) {
            return false;
        }
        mine.is_deep
            || mine.state.sessions.names.iter().any(|(name, named)| {
                let before = mine.lasts.get(name).copied().unwrap_or(0);
                let uncounted = self.state.sessions.uncounted(name, named.last);
                let mut numbers =
                    uncounted.into_iter().flat_map(|(from, to)| from.max(before + 1)..=to);
                numbers.any(|number| {
                    !self.ring.has(name, number) && !mine.state.sessions.is_missing(name, number)
                })
            })
            || self.lacks_writes(&mine.state.sessions)
            || self.denies_writes(&mine.state.sessions)
    }

    /// Returns whether the lost history has done writes of counted entries that this one has not
    /// done and that cannot be put back.
    fn lacks_writes(&self, mine: &Sessions) -> bool {
        let mut missing = self.state.sessions.undone(mine);
        if !missing.is_empty() {
            self.ring.each(&mut |kept| {
                for done in &kept.did.done {
                    missing.remove(&match &done.command.client {
                        Some((client, number)) => (client.to_vec(), *number, None),
                        None => (kept.name.clone(), kept.number, Some(done.index)),
                    });
                }
                !missing.is_empty()
            });
        }
        !missing.is_empty()
    }

    /// Returns whether the ring would put back entries without some writes that the lost history
    /// has done. The lost history then had joined a state, and this node has the entries of another
    /// history.
    fn denies_writes(&self, mine: &Sessions) -> bool {
        let mut denies = false;
        self.ring.each(&mut |kept| {
            let sessions = &self.state.sessions;
            let is_next = (kept.number > sessions.last(&kept.name)
                || sessions.is_missing(&kept.name, kept.number))
                && kept.number <= mine.last(&kept.name);
            let is_denied = |index: &u64| mine.was_denied(&kept.name, kept.number, *index);
            denies = is_next && !kept.did.denied.iter().all(is_denied);
            !denies
        });
        denies
    }

    /// Rule 4: adds the entries that the ring has and the state lacks. Returns whether some of them
    /// would not count because an earlier entry is missing.
    fn put_back(&self, most: usize, entries: &mut Vec<Vec<u8>>) -> bool {
        let sessions = &self.state.sessions;
        let is_young = |kept: &Kept| {
            let latest = kept.did.done.iter().map(|done| done.command.deadline).max();
            latest.unwrap_or(kept.did.time) > sessions.forgotten
        };
        let leaps = self.resorts && self.setup.rules.leaps;
        // An old entry is put back only if a later one of its name depends on it.
        let mut names: BTreeMap<Vec<u8>, Owed> = BTreeMap::new();
        let takes_back = |kept: &Kept| self.takes_back(kept);
        self.ring.each(&mut |kept| {
            let last = sessions.last(&kept.name);
            if kept.number > last && takes_back(kept) {
                let owed = names.entry(kept.name.clone()).or_default();
                owed.last = last;
                owed.numbers.insert(kept.number);
                if is_young(kept) {
                    owed.highest = kept.number.max(owed.highest);
                }
            }
            true
        });
        let is_blocked = names
            .values()
            .any(|owed| (owed.last + 1..=owed.highest).any(|it| !owed.numbers.contains(&it)));
        self.ring.each(&mut |kept| {
            let mut over_gap = false;
            let is_next = names.get_mut(&kept.name).is_some_and(|owed| {
                let next = owed.numbers.range(owed.last + 1..).next();
                let is_next = next == Some(&kept.number) && kept.number <= owed.highest;
                over_gap = is_next && kept.number > owed.last + 1;
                let is_next = is_next && (leaps || !over_gap);
                if is_next {
                    owed.last = kept.number;
                }
                is_next
            });
            let is_missing = sessions.is_missing(&kept.name, kept.number) && is_young(kept);
            let is_repeat = kept.number <= sessions.last(&kept.name)
                && kept.did.done.iter().any(|done| {
                    let is_missing = match &done.command.client {
                        Some((client, number)) => !sessions.has_done(client, *number),
                        None => sessions.was_denied(&kept.name, kept.number, done.index),
                    };
                    is_missing && done.command.deadline > sessions.forgotten
                });
            if (is_next || is_missing || is_repeat) && takes_back(kept) {
                let did = PutBack { leaps: over_gap, ..kept.did.clone() };
                let body = Body::PutBack(did);
                entries.push(self.entry(kept.name.clone(), kept.number, body));
            }
            entries.len() < most
        });
        is_blocked
    }
}
