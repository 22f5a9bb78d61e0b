//! Finds whether a message waits for others that never end, through whatever stands between (clause 25).

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use crate::queue::parts::slab::NONE;
use crate::queue::scheduler::Scheduler;
use crate::queue::types::message::{BARRIER, BEHIND_BARRIER};
use crate::queue::types::{LimitFull, State};

type Hasher = std::hash::RandomState;

/// Places in lanes looked at to find out whether one message waits for another.
const LOOKED_AT: u32 = 1_000_000;

/// Holders of a limit that a chain names.
const SHOWN: usize = 5;

/// The messages by which one waits for others that never end.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// From the message that waits to the one that never ends, or to the one that a limit refuses.
    pub ids: Vec<u64>,
    /// The limit that refuses the last one. Its holders are those that never end.
    pub limit: Option<LimitFull>,
}

impl Chain {
    /// The messages in words, to be joined by "behind".
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.ids.iter().map(u64::to_string).collect();
        if let Some(full) = &self.limit {
            let holders = || full.holders.iter().chain(&full.keeper);
            let mut shown: Vec<String> = holders().take(SHOWN).map(u64::to_string).collect();
            if let Some(more @ 1..) = holders().count().checked_sub(SHOWN) {
                shown.push(format!("{more} more"));
            }
            let holders = shown.join(" and ");
            let name = String::from_utf8_lossy(&full.name);
            words.push(format!("{holders} on limit {}", name.escape_debug()));
        }
        words
    }
}

/// A search from one message, breadth first, back to one of the targets.
struct Search {
    /// For each message found, the one that waits for it.
    parents: HashMap<u32, u32, Hasher>,
    open: VecDeque<u32>,
    /// Places of readers behind which a reader has already looked.
    passed: HashSet<u32, Hasher>,
    targets: HashSet<u32, Hasher>,
    /// The targets by their lanes: (target, whether it is a reader).
    on_lanes: HashMap<u32, Vec<(u32, bool)>, Hasher>,
    /// The target with the least sequence, and that sequence.
    first: u32,
    least: u64,
    /// Limits whose slots the targets have: see `Gate::closed_by`.
    closed: Vec<u32>,
    found: Option<u32>,
    left: u32,
}

impl Search {
    fn add(&mut self, at: u32, parent: u32) {
        if self.parents.contains_key(&at) {
            return;
        }
        self.parents.insert(at, parent);
        if self.targets.contains(&at) {
            self.found = Some(at);
        } else {
            self.open.push_back(at);
        }
    }

    /// Messages before this sequence wait for no target. A message that a limit refuses may be before all
    /// that have its slots.
    fn floor(&self) -> u64 {
        if self.closed.is_empty() {
            self.least
        } else {
            0
        }
    }
}

impl<P> Scheduler<P> {
    /// Returns a chain by which a message waits, through whatever stands between, for `stuck`: messages that
    /// do not end before it does. It waits for one of them, or for a limit whose slots they all have (clause
    /// 25).
    ///
    /// ```
    /// # use interlock_core::key::KeyRef;
    /// # use interlock_core::queue::{scheduler::Put, types::Options, Queue};
    /// # let queue = Queue::new(Options::default());
    /// let put = |key: &[u8]| {
    ///     let keys = [KeyRef::new(key), KeyRef::new(b"both")];
    ///     queue.put(&Put { keys: &keys, ..Put::default() }, ()).unwrap().id
    /// };
    /// let ids = [put(b"a"), put(b"b"), put(b"b")];
    /// let chain = queue.call(|scheduler, _| scheduler.waits_for(ids[2], &ids[..1])).unwrap();
    /// assert_eq!(chain.ids, [ids[2], ids[0]]);
    /// ```
    pub fn waits_for(&self, id: u64, stuck: &[u64]) -> Option<Chain> {
        if stuck.contains(&id) {
            return Some(Chain { ids: vec![id], limit: None });
        }
        let from = self.records.find(id)?;
        let mut search = self.search(stuck)?;
        search.add(from, NONE);
        while let Some(at) = search.open.pop_front() {
            self.look_before(at, &mut search);
            if let Some(end) = search.found {
                let parent = |at: &u32| Some(search.parents[at]).filter(|&parent| parent != NONE);
                let chain = std::iter::successors(Some(end), parent);
                let mut ids: Vec<u64> = chain.map(|at| self.records[at].id).collect();
                ids.reverse();
                return Some(Chain { ids, limit: self.closed_limit(end, &search) });
            }
            if search.left == 0 {
                return None;
            }
        }
        None
    }

    /// Returns whether all that is unsettled waits for `stuck`, which are leased: nothing else is handled or
    /// can be, neither time nor the usual actions of an operator aside (clause 25).
    pub fn all_wait_for(&self, stuck: &[u64]) -> bool {
        let Some(search) = self.search(stuck).filter(|_| self.moves_with_leases_only()) else {
            return false;
        };
        let leased = search.targets.iter().filter(|&&at| self.is_leased(at)).count();
        let ready = self.ready_count() + self.gate.waiting() as usize;
        leased == self.leases.len() && ready == self.refused_by(&search.closed).count()
    }

    /// Prepares a search for these messages. `None`: none of them has a place.
    fn search(&self, stuck: &[u64]) -> Option<Search> {
        let stands =
            |at: &u32| !matches!(self.records[*at].state, Some(State::Delayed | State::Parked));
        let mut targets: Vec<u32> =
            stuck.iter().filter_map(|&id| self.records.find(id)).filter(stands).collect();
        // Which of several chains is found must not hang on the random order of a set (clause 20).
        targets.sort_unstable_by_key(|&at| self.records.sequence(at));
        targets.dedup();
        let first = *targets.first()?;
        let mut on_lanes: HashMap<u32, Vec<(u32, bool)>, Hasher> = HashMap::default();
        for &target in &targets {
            for (_, edge) in self.lanes.edges_of(self.records[target].first_edge) {
                on_lanes.entry(edge.lane()).or_default().push((target, edge.shared()));
            }
        }
        let leased = targets.iter().copied().filter(|&at| self.is_leased(at));
        Some(Search {
            parents: HashMap::default(),
            open: VecDeque::new(),
            passed: HashSet::default(),
            on_lanes,
            first,
            least: self.records.sequence(first),
            closed: self.gate.closed_by(leased),
            found: None,
            left: LOOKED_AT,
            targets: targets.into_iter().collect(),
        })
    }

    fn is_leased(&self, at: u32) -> bool {
        self.records[at].state == Some(State::Leased)
    }

    /// The ready messages that one of these limits refuses.
    fn refused_by<'a>(&'a self, closed: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        let refused = self.gate.refused_by(closed);
        refused.filter(move |&at| self.records[at].state == Some(State::Ready))
    }

    /// The limit that refuses the last message of a chain, if it is not a target.
    fn closed_limit(&self, end: u32, search: &Search) -> Option<LimitFull> {
        if search.targets.contains(&end) {
            return None;
        }
        let carriers = self.carriers();
        let full = self.full_names(end, self.now, |name| {
            let leased = carriers.get(&name).into_iter().flatten();
            leased.filter(|(_, at)| search.targets.contains(at)).map(|&(id, _)| id).collect()
        });
        full.into_iter().find(|full| {
            full.most.is_some_and(|most| {
                full.holders.len() + usize::from(full.keeper.is_some()) >= most as usize
            })
        })
    }

    /// Adds what a message waits for directly: of each lane what conflicts with it and stands
    /// nearest, for that waits for the rest.
    fn look_before(&self, at: u32, search: &mut Search) {
        let (message, sequence) = (&self.records[at], self.records.sequence(at));
        // Whatever else it waits for, in the end it needs a slot.
        let may_start = !matches!(message.state, Some(State::Leased | State::Held));
        if may_start && self.gate.refuses(at, &search.closed) {
            search.found = Some(at);
            return;
        }
        if message.state == Some(State::Parked) {
            // It has no place before those that shut its key are settled.
            let under = self.parked.parking(at).and_then(|parking| parking.under.as_ref());
            for stuck in under.into_iter().flat_map(|key| self.parked.stuck_on(key.as_bytes())) {
                search.add(stuck, at);
            }
            return;
        }
        if message.state != Some(State::Waiting) || sequence < search.floor() {
            return;
        }
        if message.flags & BARRIER != 0 {
            // A barrier waits for everything before it. All that is leased is before it.
            if search.least < sequence {
                search.add(search.first, at);
            }
            return;
        }
        for (_, edge) in self.lanes.edges_of(message.first_edge).filter(|(_, e)| !e.granted()) {
            let Some(targets) = search.on_lanes.get(&edge.lane()) else { continue };
            let conflicts = |&&(target, shared): &&(u32, bool)| {
                !(shared && edge.shared()) && self.records.sequence(target) < sequence
            };
            if let Some(&(target, _)) = targets.iter().find(conflicts) {
                return search.add(target, at);
            }
        }
        if message.flags & BEHIND_BARRIER != 0 {
            if let Some(barrier) = self.barriers.last_before(sequence) {
                search.add(barrier.message, at);
            }
        }
        for (number, edge) in self.lanes.edges_of(message.first_edge).filter(|(_, e)| !e.granted())
        {
            for (place, before) in self.lanes.standing_before(number) {
                search.left = search.left.saturating_sub(1);
                if search.left == 0 || self.records.sequence(before.message) < search.floor() {
                    break;
                }
                if !before.shared() {
                    search.add(before.message, at);
                    break;
                }
                let new = search.passed.insert(place);
                if !edge.shared() {
                    search.add(before.message, at);
                } else if !new {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
