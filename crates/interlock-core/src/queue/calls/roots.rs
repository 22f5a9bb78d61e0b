//! Roots: messages that are held, back off or are leased for long, and paused keys. How many
//! messages wait behind each, and for how long the first of them has.
//!
//! ```
//! use interlock_core::key::KeyRef;
//! use interlock_core::queue::calls::roots::{Behind, RootKind};
//! use interlock_core::queue::scheduler::{Put, Scheduler};
//! use interlock_core::queue::types::{Kind, Options};
//! use interlock_core::queue::parts::watch::Watch;
//!
//! let mut scheduler = Scheduler::new(Options::default(), Watch::off());
//! let [a, b, c] = [b"a", b"b", b"c"].map(|key| KeyRef::new(key));
//! for keys in [[a, b], [b, c], [c, a]] {
//!     scheduler.put(1, &Put { keys: &keys, ..Put::default() }, &mut Some(())).unwrap();
//! }
//! let first = scheduler.lease(1, Kind::Any, 0).unwrap().id;
//! let roots = scheduler.roots(9, 5, 10);
//! assert_eq!((roots.told[0].kind, roots.told[0].id), (RootKind::Leased, first));
//! assert_eq!(roots.told[0].depth, 2, "one waits on each of its keys");
//! assert_eq!(scheduler.blocked(&Behind { ids: &[first], ..Behind::default() }, 10), (2, true));
//! ```

use std::collections::{HashMap, HashSet};

use crate::key::KeyRef;
use crate::limits::{MAX_FRONT, MAX_NAMED, MAX_PLACES, MAX_ROOTS};
use crate::queue::parts::groups::Front;
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::slab::NONE;
use crate::queue::scheduler::Scheduler;
use crate::queue::types::message::BARRIER;
use crate::queue::types::{Kind, State, Time};

/// The reason for which something holds others up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    Paused,
    Held,
    Leased,
    BackingOff,
}

impl RootKind {
    pub fn word(self) -> &'static str {
        match self {
            RootKind::Paused => "paused",
            RootKind::Held => State::Held.word(),
            RootKind::Leased => State::Leased.word(),
            RootKind::BackingOff => State::BackingOff.word(),
        }
    }
}

/// A message or a paused key that holds others up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub kind: RootKind,
    /// 0: it is a pause.
    pub id: u64,
    /// The paused key, empty where the queue is paused; or the message's key with the deepest lane, empty where it
    /// has none.
    pub key: Vec<u8>,
    /// Number of messages that wait in its lanes; one that waits in two of them counts in both.
    pub depth: u64,
    /// µs that the lease has lasted, or until the backoff ends.
    pub time: Option<u64>,
    /// The consumer of the lease; 0: it is not leased.
    pub consumer: u64,
}

/// Roots, as far as they were looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// Number of roots found.
    pub found: u64,
    /// True if all were looked at; otherwise the count is a minimum.
    pub exact: bool,
    /// The roots with the deepest lanes come first.
    pub told: Vec<Root>,
}

/// The messages and keys behind which others are counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Behind<'a> {
    pub ids: &'a [u64],
    /// As if they were paused.
    pub keys: &'a [KeyRef<'a>],
    /// As if the queue were paused.
    pub queue: bool,
}

impl<P> Scheduler<P> {
    /// Finds what holds others up; a lease counts that has lasted `long` µs. O(messages, leases and paused keys
    /// looked at, at most 1,000, and their keys, at most 10,000).
    pub fn roots(&self, now: Time, long: u64, count: usize) -> Roots {
        let now = now.max(self.now);
        let mut look = Look { named: MAX_NAMED, left: MAX_ROOTS, exact: true, found: Vec::new() };
        if self.pauses.of_queue() {
            let (kind, depth) = (RootKind::Paused, self.queued_in_place());
            look.add(Root { kind, id: 0, key: Vec::new(), depth, time: None, consumer: 0 });
        }
        for (number, lane) in self.lanes.all_paused(0) {
            if !look.may(1) {
                break;
            }
            let (kind, key) = (RootKind::Paused, lane.key.as_bytes().to_vec());
            let parked = self.parked.count_under(&key);
            let depth = u64::from(self.lanes.lane(number).depth) + parked;
            look.add(Root { kind, id: 0, key, depth, time: None, consumer: 0 });
        }
        for id in self.counts.held_ids() {
            let at = self.records.find(id).expect("a held message is unsettled");
            if !self.look_at(at, RootKind::Held, now, &mut look) {
                break;
            }
        }
        for (seen, (_, lease)) in self.leases.places().enumerate() {
            if seen == MAX_NAMED {
                look.exact = false;
                break;
            }
            let counts = lease.token != 0
                && lease.at.saturating_add(long) <= now
                && !self.rides(lease.message);
            if counts && !self.look_at(lease.message, RootKind::Leased, now, &mut look) {
                break;
            }
        }
        for due in self.backoffs.iter() {
            if !self.look_at(due.owner, RootKind::BackingOff, now, &mut look) {
                break;
            }
        }
        let Look { mut found, exact, .. } = look;
        found.sort_unstable_by(|a, b| {
            b.depth.cmp(&a.depth).then_with(|| a.id.cmp(&b.id)).then_with(|| a.key.cmp(&b.key))
        });
        let number = found.len() as u64;
        found.truncate(count);
        Roots { found: number, exact, told: found }
    }

    /// False: there were enough.
    fn look_at(&self, at: u32, kind: RootKind, now: Time, look: &mut Look) -> bool {
        let message = &self.records[at];
        let (mut depth, mut deepest, mut key) = (0, 0, None);
        let mut keys = 1;
        for (_, edge) in self.lanes.edges_of(message.first_edge) {
            let lane = self.lanes.lane(edge.lane());
            keys += 1;
            depth += self.lanes.waiting_in(edge.lane());
            depth += self.parked.count_under(lane.key.as_bytes());
            if lane.depth > deepest {
                (deepest, key) = (lane.depth, Some(lane.key.as_bytes()));
            }
        }
        if !look.may(keys) {
            return false;
        }
        if message.flags & BARRIER != 0 {
            // Everything placed is behind it.
            depth = self.placed_count() - 1;
        }
        let lease = (kind == RootKind::Leased).then(|| &self.leases[message.hold]);
        let time = match lease {
            Some(lease) => Some(now - lease.at),
            None if kind == RootKind::BackingOff => {
                let due = self.backoffs.at(self.records.timer(at));
                due.map(|due| due.saturating_sub(now))
            }
            None => None,
        };
        look.add(Root {
            kind,
            id: message.id,
            key: key.unwrap_or_default().to_vec(),
            depth,
            time,
            consumer: lease.map_or(0, |lease| lease.consumer),
        });
        true
    }

    /// Messages that have a place.
    pub(in crate::queue) fn placed_count(&self) -> u64 {
        self.counts.unsettled() - self.delays.len() as u64 - self.parked.count()
    }

    /// Number of messages that a pause of the queue blocks: they are in their lanes, and neither leased nor set
    /// aside.
    fn queued_in_place(&self) -> u64 {
        let aside = self.leases.len() as u64 + self.backoffs.len() as u64 + self.counts.held();
        self.placed_count() - aside
    }

    /// Counts the messages that wait behind these, directly or through others, each once and these
    /// not counted: at most `most`, in addition to those behind a barrier that waits too, which are
    /// counted without being looked at. False: the count is a minimum. O(messages counted and their
    /// keys, at most 10,000 places in lanes).
    pub fn blocked(&self, behind: &Behind<'_>, most: u64) -> (u64, bool) {
        if behind.queue {
            return (self.queued_in_place(), true);
        }
        let mut walk = Walk {
            seen: HashSet::default(),
            looked_at: HashMap::default(),
            line: Vec::new(),
            count: 0,
            most,
            steps: MAX_PLACES,
            until: u64::MAX,
            exact: true,
        };
        let mut first = u64::MAX;
        for &id in behind.ids {
            let unplaced = [Some(State::Delayed), Some(State::Parked)];
            let placed = |&at: &u32| !unplaced.contains(&self.records[at].state);
            if let Some(at) = self.records.find(id).filter(placed) {
                first = first.min(self.records.sequence(at));
                if walk.seen.insert(at) {
                    walk.line.push(at);
                }
            }
        }
        let lanes: Vec<u32> = behind.keys.iter().filter_map(|&key| self.lanes.find(key)).collect();
        for &lane in &lanes {
            for (_, edge) in self.lanes.edges_in(lane) {
                if walk.steps == 0 {
                    walk.exact = false;
                    break;
                }
                walk.steps -= 1;
                if self.is_queued(edge.message) {
                    first = first.min(self.records.sequence(edge.message));
                    break;
                }
            }
        }
        let behind_barrier = self.behind_barrier(first, &mut walk);
        for &lane in &lanes {
            for (_, edge) in self.lanes.edges_in(lane) {
                if walk.steps == 0 {
                    walk.exact = false;
                    break;
                }
                walk.steps -= 1;
                if self.is_queued(edge.message) && !self.count(edge.message, &mut walk) {
                    break;
                }
            }
        }
        while let Some(at) = walk.line.pop() {
            if !self.count_behind(at, &mut walk) {
                walk.exact = false;
                break;
            }
        }
        (walk.count + behind_barrier + self.parked_behind(behind), walk.exact)
    }

    /// Messages parked under the keys of these.
    fn parked_behind(&self, behind: &Behind<'_>) -> u64 {
        if self.parked.count() == 0 {
            return 0;
        }
        let mut keys: HashSet<&[u8]> = behind.keys.iter().map(|key| key.bytes).collect();
        for at in behind.ids.iter().filter_map(|&id| self.records.find(id)) {
            let lanes = self.lanes.keys_of(self.records[at].first_edge);
            keys.extend(lanes.map(|(key, _)| key.as_bytes()));
        }
        keys.into_iter().map(|key| self.parked.count_under(key)).sum()
    }

    pub(in crate::queue) fn is_queued(&self, at: u32) -> bool {
        matches!(self.records[at].state, Some(State::Waiting | State::Ready))
    }

    /// The first barrier at or behind a sequence waits, and so does all behind it: how many those are. What comes
    /// before it is left to the walk.
    fn behind_barrier(&self, first: u64, walk: &mut Walk) -> u64 {
        if first == u64::MAX {
            return 0;
        }
        let Some(barrier) = self.barriers.iter().nth(self.barriers.before(first)) else { return 0 };
        walk.until = barrier.sequence;
        let mut steps = 2 * MAX_ROOTS as u32;
        let placed = self.placed_count();
        let (ahead, exact) = self.barriers.messages_before(walk.until, placed, &mut steps);
        if !exact {
            walk.exact = false;
            return 0;
        }
        let among = |&&at: &&u32| self.records.sequence(at) >= walk.until;
        placed - ahead - walk.line.iter().filter(among).count() as u64
    }

    /// Counts a message, whose lanes are looked at next. False: there were enough.
    fn count(&self, at: u32, walk: &mut Walk) -> bool {
        if self.records.sequence(at) >= walk.until || walk.seen.contains(&at) {
            return true;
        }
        if walk.count == walk.most {
            walk.exact = false;
            return false;
        }
        walk.seen.insert(at);
        walk.count += 1;
        walk.line.push(at);
        true
    }

    /// Counts what waits behind a message in its lanes: the first that conflicts with it, and all behind that.
    /// False: there was enough.
    fn count_behind(&self, at: u32, walk: &mut Walk) -> bool {
        for (place, edge) in self.lanes.edges_of(self.records[at].first_edge) {
            if walk.looked_at.get(&place) == Some(&true) {
                continue;
            }
            let mut conflicts = !edge.shared();
            let mut next = self.lanes.next_of(place);
            while next != NONE {
                if walk.steps == 0 {
                    return false;
                }
                walk.steps -= 1;
                let edge = self.lanes.edge(next);
                if self.records.sequence(edge.message) >= walk.until {
                    break;
                }
                conflicts |= !edge.shared();
                match walk.looked_at.insert(next, conflicts) {
                    Some(true) => {
                        walk.looked_at.insert(next, true);
                        break;
                    }
                    Some(false) if !conflicts => break,
                    _ => {}
                }
                if conflicts && !self.count(edge.message, walk) {
                    return false;
                }
                next = self.lanes.next_of(next);
            }
        }
        true
    }

    /// Returns the sequence of the oldest waiting message. The search covers messages behind at most 100 held, 100
    /// leased and 100 backing-off messages, 100 paused keys, the next ready message and a barrier.
    pub fn oldest_waiting(&mut self) -> Option<u64> {
        if self.counts().waiting == 0 {
            return None;
        }
        let next = self.next_ready().map(|ticket| ticket.message);
        let mut oldest = u64::MAX;
        if let Some(at) = next {
            if self.pauses.of_queue() {
                oldest = self.records.sequence(at);
            }
            oldest = oldest.min(self.first_behind(at));
        }
        for id in self.counts.held_ids().take(MAX_FRONT) {
            oldest = oldest.min(self.records.find(id).map_or(u64::MAX, |at| self.first_behind(at)));
        }
        let leases = self.leases.places().take(MAX_NAMED).filter(|(_, lease)| lease.token != 0);
        for (_, lease) in leases.take(MAX_FRONT) {
            oldest = oldest.min(self.first_behind(lease.message));
        }
        for due in self.backoffs.iter().take(MAX_FRONT) {
            oldest = oldest.min(self.first_behind(due.owner));
        }
        for (lane, _) in self.lanes.all_paused(0).take(MAX_FRONT) {
            let mut standing = self.lanes.standing(lane).take(MAX_FRONT);
            let queued = standing.find(|edge| self.is_queued(edge.message));
            oldest = oldest.min(queued.map_or(u64::MAX, |e| self.records.sequence(e.message)));
        }
        oldest = oldest.min(self.first_at_barrier());
        (oldest != u64::MAX).then_some(oldest)
    }

    /// The ready message that is leased next, without those that wait for a limit.
    fn next_ready(&mut self) -> Option<Ticket> {
        let next = match self.gate.groups.is_idle() {
            true => self.choose(Kind::Any),
            false => {
                let records = &self.records;
                let plain = self.ready.fronts(|ticket| records.is_ready(ticket));
                self.gate.groups.first(Kind::Any, &[Front::Ready], plain)
            }
        };
        next.map(|(_, ticket)| ticket)
    }

    /// The ages of the oldest ready message and of the oldest waiting one, µs, or 0.
    pub fn ages(&mut self, now: Time) -> [u64; 2] {
        let now = now.max(self.now);
        let numbers = [self.oldest_ready(), self.oldest_waiting()];
        numbers.map(|n| n.map_or(0, |n| now.saturating_sub(self.numbers.time_of(n))))
    }

    /// The sequence of the first message that waits in the lanes of one.
    fn first_behind(&self, at: u32) -> u64 {
        let lanes = self.lanes.edges_of(self.records[at].first_edge).take(MAX_FRONT);
        lanes
            .filter_map(|(_, edge)| self.lanes.first_waiting(edge.lane()))
            .map(|at| self.records.sequence(at))
            .min()
            .unwrap_or(u64::MAX)
    }

    /// The sequence of the first barrier, if it waits, or else of the first message behind it.
    fn first_at_barrier(&self) -> u64 {
        let mut barriers = self.barriers.iter();
        let Some(first) = barriers.next() else { return u64::MAX };
        if self.records[first.message].state == Some(State::Waiting) {
            return first.sequence;
        }
        let gated = first.gated.iter().take(MAX_FRONT).find(|&&(at, sequence)| {
            self.records.has_sequence(at, sequence)
                && self.records[at].state == Some(State::Waiting)
        });
        let next = barriers.next().map_or(u64::MAX, |barrier| barrier.sequence);
        gated.map_or(next, |&(at, _)| self.records.sequence(at))
    }
}

/// A look for roots: keys and roots that may still be looked at.
struct Look {
    named: usize,
    left: usize,
    exact: bool,
    found: Vec<Root>,
}

impl Look {
    /// Returns whether one more message with this many keys may be looked at; if not, some are left
    /// out.
    fn may(&mut self, keys: usize) -> bool {
        let may = self.left > 0 && self.named > 0;
        self.exact &= may;
        self.named = self.named.saturating_sub(keys);
        may
    }

    fn add(&mut self, root: Root) {
        self.left = self.left.saturating_sub(1);
        self.found.push(root);
    }
}

/// A count of what waits behind some messages.
struct Walk {
    /// The counted messages.
    seen: HashSet<u32>,
    /// Edges that were come across: true where all behind was counted, false where a reader was passed over.
    looked_at: HashMap<u32, bool>,
    /// Messages whose lanes are to be looked at.
    line: Vec<u32>,
    count: u64,
    most: u64,
    steps: usize,
    /// Only messages with a sequence below it are counted.
    until: u64,
    exact: bool,
}

#[cfg(test)]
mod tests {
    use crate::queue::calls::roots::*;
    use crate::queue::parts::watch::Watch;
    use crate::queue::scheduler::Put;
    use crate::queue::types::Options;

    fn put(scheduler: &mut Scheduler<()>, keys: &[&str], shared: &[&str]) -> u64 {
        let [keys, shared] = [keys, shared]
            .map(|some| some.iter().map(|key| KeyRef::new(key.as_bytes())).collect::<Vec<_>>());
        let put = Put { keys: &keys, shared: &shared, ..Put::default() };
        scheduler.put(1, &put, &mut Some(())).expect("there is room").id
    }

    fn behind(scheduler: &Scheduler<()>, id: u64, most: u64) -> (u64, bool) {
        scheduler.blocked(&Behind { ids: &[id], ..Behind::default() }, most)
    }

    /// Counted in messages and places, never in time.
    #[test]
    fn counting_at_a_million_pending_is_bounded() {
        let mut scheduler = Scheduler::new(Options::default(), Watch::off());
        let root = put(&mut scheduler, &["a"], &[]);
        (0..1_000_000).for_each(|_| _ = put(&mut scheduler, &["a"], &[]));
        assert_eq!(behind(&scheduler, root, 2_000), (2_000, false));
        assert_eq!(behind(&scheduler, root, u64::MAX), (MAX_PLACES as u64, false));
        // Readers are passed over one by one until a writer comes, and each place counts.
        let mut scheduler = Scheduler::new(Options::default(), Watch::off());
        let root = put(&mut scheduler, &[], &["a"]);
        (0..MAX_PLACES).for_each(|_| _ = put(&mut scheduler, &[], &["a"]));
        put(&mut scheduler, &["a"], &[]);
        assert_eq!(behind(&scheduler, root, 2_000), (0, false));
    }

    #[test]
    fn more_than_a_thousand_roots_are_reported_as_incomplete() {
        let mut scheduler = Scheduler::new(Options::default(), Watch::off());
        for n in 0..MAX_ROOTS + 1 {
            put(&mut scheduler, &[&n.to_string()], &[]);
            scheduler.lease(1, Kind::Any, 0).expect("it is ready");
        }
        let roots = scheduler.roots(1, 0, 3);
        assert_eq!((roots.found, roots.exact, roots.told.len()), (MAX_ROOTS as u64, false, 3));
    }
}
