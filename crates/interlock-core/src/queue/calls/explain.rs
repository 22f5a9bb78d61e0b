//! Explanations why a message waits (clause 17): breadth first from the message to the roots of its
//! waiting.

use std::collections::VecDeque;

use crate::key::KeyRef;
use crate::limits::{MAX_NAMED, MAX_NAMED_BYTES};
use crate::queue::calls::limits::Carriers;
use crate::queue::parts::ready::rank_of;
use crate::queue::parts::slab::NONE;
use crate::queue::scheduler::Scheduler;
use crate::queue::schedules::trace::Call;
use crate::queue::types::message::{BARRIER, BEHIND_BARRIER, KEYED, LIMITED};
use crate::queue::types::{Blocker, Explained, Kind, Node, State, Time, Turn};

/// Edges, leases and ids looked at in all, beyond the messages that are named: with a million pending,
/// well below 1 ms.
const STEPS: u32 = 20_000;

/// Groups counted that are before a message's own.
const MOST_AHEAD: usize = 1000;

/// Messages named that hold a barrier up, beyond those that are leased.
const SHOWN_BEFORE_BARRIER: usize = 10;

/// Messages on their way into an explanation.
struct Walk {
    queue: VecDeque<u32>,
    seen: hashbrown::HashSet<u32, std::hash::RandomState>,
    limit: usize,
    /// Keys and holders, and bytes, that may still be named.
    named: usize,
    bytes: usize,
    truncated: bool,
    steps: u32,
    now: Time,
    /// Messages that could hold a barrier up, leased and not, each by id: looked for once.
    placed: Option<[Vec<(u64, u32)>; 2]>,
    /// Leased messages by their limit names: looked for once.
    carriers: Option<Carriers>,
}

impl Walk {
    fn new(limit: usize, now: Time) -> Self {
        Walk {
            queue: VecDeque::new(),
            seen: Default::default(),
            limit,
            // To name a message is to go through its keys; the last one named may pass either bound.
            named: MAX_NAMED,
            bytes: MAX_NAMED_BYTES,
            truncated: false,
            steps: STEPS,
            now,
            placed: None,
            carriers: None,
        }
    }

    /// Returns whether one more may be named; if not, something is left out.
    fn may_name(&mut self) -> bool {
        let may = self.named > 0 && self.bytes > 0;
        self.truncated |= !may;
        may
    }

    fn add(&mut self, at: u32) {
        if self.seen.contains(&at) {
            return;
        }
        if self.seen.len() == self.limit {
            self.truncated = true;
        } else {
            self.seen.insert(at);
            self.queue.push_back(at);
        }
    }
}

impl<P> Scheduler<P> {
    /// Explains why this message waits, in at most `limit` messages. `None`: it is settled, or
    /// never was.
    ///
    /// ```
    /// # use interlock_core::key::KeyRef;
    /// # use interlock_core::queue::{scheduler::Put, types::{Options, State}, Queue};
    /// # let queue = Queue::new(Options::default());
    /// let keys = [KeyRef::new(b"room:7")];
    /// let [first, second] = [1, 2].map(|n| queue.put(&Put { keys: &keys, ..Put::default() }, n).unwrap().id);
    /// let why = queue.call(|scheduler, now| scheduler.explain(now, second, 100)).unwrap();
    /// assert_eq!((why.nodes[0].id, why.nodes[0].state), (second, State::Waiting));
    /// assert_eq!(why.nodes[0].blocked[0].holders, [first]);
    /// assert_eq!((why.nodes[1].id, why.nodes[1].state), (first, State::Ready));
    /// ```
    pub fn explain(&mut self, now: Time, id: u64, limit: usize) -> Option<Explained> {
        self.begin(now, || Call::Explain { id, limit });
        self.advance_oldest(self.numbers.next());
        self.explained(self.now, id, limit)
    }

    /// Explains the messages on a key, in sequence, and their reasons to wait. `None`: the key has
    /// no messages.
    pub fn explain_key(&mut self, now: Time, key: KeyRef<'_>, limit: usize) -> Option<Explained> {
        self.begin(now, || Call::ExplainKey { key: key.bytes.to_vec(), limit });
        self.advance_oldest(self.numbers.next());
        self.explained_key(self.now, key, limit)
    }

    pub(in crate::queue) fn walk(
        &self,
        now: Time,
        from: impl Iterator<Item = u32>,
        limit: usize,
    ) -> Explained {
        self.walk_in(&mut Walk::new(limit, now.max(self.now)), from)
    }

    fn walk_in(&self, walk: &mut Walk, from: impl Iterator<Item = u32>) -> Explained {
        for at in from {
            if !walk.seen.is_empty() && !self.name(at, walk) {
                break;
            }
            walk.add(at);
            if walk.truncated {
                break;
            }
        }
        let mut nodes = Vec::new();
        while let Some(at) = walk.queue.pop_front() {
            nodes.push(self.node(at, walk));
        }
        Explained { nodes, truncated: walk.truncated }
    }

    /// Counts a message that is about to be named. Returns false if the limit is reached.
    fn name(&self, at: u32, walk: &mut Walk) -> bool {
        if !walk.may_name() {
            return false;
        }
        let (mut count, mut bytes) = (1, 0);
        if !walk.seen.contains(&at) {
            for (_, edge) in self.lanes.edges_of(self.records[at].first_edge) {
                count += 1;
                bytes += self.lanes.lane(edge.lane()).key.as_bytes().len();
            }
        }
        walk.named = walk.named.saturating_sub(count);
        walk.bytes = walk.bytes.saturating_sub(bytes);
        true
    }

    /// Returns the ids of those that are named, each of which will be explained.
    fn name_all(&self, all: impl Iterator<Item = u32>, walk: &mut Walk) -> Vec<u64> {
        let mut ids = Vec::new();
        for at in all.take(walk.limit) {
            if !self.name(at, walk) {
                break;
            }
            ids.push(self.records[at].id);
            walk.add(at);
        }
        ids
    }

    fn node(&self, at: u32, walk: &mut Walk) -> Node {
        let (message, now) = (&self.records[at], walk.now);
        let mut state = message.state.expect("an unsettled message");
        let mut paused = Vec::new();
        if matches!(state, State::Waiting | State::Ready) {
            paused = self.paused_keys(at);
            if !paused.is_empty() {
                state = State::Waiting;
            }
        }
        let lease = (state == State::Leased).then(|| &self.leases[message.hold]);
        let due = match state {
            State::Delayed => self.delays.at(self.records.timer(at)),
            State::BackingOff => self.backoffs.at(self.records.timer(at)),
            _ => None,
        };
        Node {
            id: message.id,
            state,
            attempt: self.records.attempt(at),
            age: now.saturating_sub(self.numbers.time_of(message.id)),
            consumer: lease.map_or(0, |lease| lease.consumer),
            held_for: lease.map(|lease| now - lease.at),
            lease_left: lease
                .filter(|lease| lease.is_timed() || lease.is_of_batch())
                .map(|lease| self.leases.deadline_of(lease))
                .map(|deadline| deadline.saturating_sub(now)),
            due_in: due.map(|due| due.saturating_sub(now)),
            paused,
            turn: match message.state {
                Some(State::Ready) if !self.gate.groups.is_idle() => Some(self.turn_of(at)),
                _ => None,
            },
            limits: match message.state {
                Some(State::Ready) if message.flags & LIMITED != 0 => {
                    self.full_names(at, now, |name| self.name_carriers(name, walk))
                }
                _ => Vec::new(),
            },
            parked: match message.state {
                Some(State::Parked) => {
                    self.parked_under(at, now, |stuck| self.name_all(stuck, walk))
                }
                _ => None,
            },
            blocked: match message.state {
                Some(State::Waiting) => self.blockers(at, walk),
                _ if self.rides(at) => self.blockers(at, walk),
                _ => Vec::new(),
            },
        }
    }

    /// Names the leased messages that carry a limit name.
    fn name_carriers(&self, name: u32, walk: &mut Walk) -> Vec<u64> {
        let carriers = walk.carriers.take().unwrap_or_else(|| self.carriers());
        let of_name = carriers.get(&name).into_iter().flatten();
        let ids = self.name_all(of_name.map(|&(_, at)| at), walk);
        walk.carriers = Some(carriers);
        ids
    }

    /// Returns the place of a message by the turns of groups.
    fn turn_of(&self, at: u32) -> Turn {
        let (groups, message) = (&self.gate.groups, &self.records[at]);
        let keyed = message.flags & KEYED != 0;
        let plain = self.ready.first_rank(keyed, |ticket| self.records.is_ready(ticket));
        Turn {
            group: groups.text_of(at).to_vec(),
            ready: groups.ready_beside(at, self.ready.len(Kind::Any)),
            ahead: groups.ahead((at, keyed, rank_of(message.priority)), plain, MOST_AHEAD),
        }
    }

    fn blockers(&self, at: u32, walk: &mut Walk) -> Vec<Blocker> {
        let message = &self.records[at];
        if message.flags & BARRIER != 0 {
            return vec![self.before_barrier(at, walk)];
        }
        let mut blocked = Vec::new();
        if message.flags & BEHIND_BARRIER != 0 {
            let ahead = self.barriers.before(self.records.sequence(at));
            if let Some(first) = self.barriers.iter().next().filter(|_| ahead > 0) {
                let holders = self.name_all([first.message].into_iter(), walk);
                blocked.push(Blocker { key: None, holders, ahead: ahead as u64, exact: true });
            }
        }
        for (number, edge) in self.lanes.edges_of(message.first_edge) {
            if edge.granted() {
                continue;
            }
            let front = self.lanes.standing(edge.lane()).take_while(|edge| edge.granted());
            let holders = self.name_all(front.map(|edge| edge.message), walk);
            let (ahead, exact) = self.lanes.ahead(number, &mut walk.steps);
            let key = Some(self.lanes.lane(edge.lane()).key.as_bytes().to_vec());
            blocked.push(Blocker { key, holders, ahead, exact });
        }
        blocked
    }

    /// All that was put before a barrier holds it up; what is leased says most, so it comes first.
    fn before_barrier(&self, at: u32, walk: &mut Walk) -> Blocker {
        let sequence = self.records.sequence(at);
        let placed = self.placed_count();
        let (ahead, exact) = self.barriers.messages_before(sequence, placed, &mut walk.steps);
        let [leased, mut others] = walk.placed.take().unwrap_or_else(|| self.look_around(walk));
        let before = |all: &[(u64, u32)], most: usize, walk: &mut Walk| {
            let mut found = Vec::new();
            let most = most.min(walk.named.max(1));
            for &(_, at) in all {
                if found.len() == most {
                    break;
                } else if self.records.sequence(at) < sequence {
                    found.push(at);
                } else if walk.steps == 0 {
                    break;
                } else {
                    walk.steps -= 1;
                }
            }
            self.name_all(found.into_iter(), walk)
        };
        let mut holders = before(&leased, walk.limit, walk);
        let most = walk.limit.min(SHOWN_BEFORE_BARRIER).saturating_sub(holders.len());
        if !self.numbers.are_times() && most > 0 {
            others = self.first_placed(sequence, most, walk);
        }
        holders.extend(before(&others, most, walk));
        walk.placed = Some([leased, others]);
        Blocker { key: None, holders, ahead, exact }
    }

    /// Finds the leased messages and, where numbers are times, with gaps between, and messages are
    /// few, the others.
    fn look_around(&self, walk: &mut Walk) -> [Vec<(u64, u32)>; 2] {
        let (mut leased, mut others) = (Vec::new(), Vec::new());
        if self.numbers.are_times() && self.counts.unsettled() <= LOOKED_THROUGH {
            for (at, message) in self.records.all() {
                match message.state {
                    None | Some(State::Delayed | State::Parked) => {}
                    Some(State::Leased) => leased.push((message.id, at)),
                    Some(_) => others.push((message.id, at)),
                }
            }
            others.sort_unstable();
        } else {
            for (_, lease) in self.leases.places().take(walk.steps as usize) {
                walk.steps -= 1;
                if lease.token != 0 {
                    leased.push((self.records[lease.message].id, lease.message));
                }
            }
        }
        if self.numbers.are_times() {
            leased.sort_unstable();
        }
        [leased, others]
    }

    /// Messages that are not leased and have a place before this one, by id: the first ones.
    fn first_placed(&self, sequence: u64, most: usize, walk: &mut Walk) -> Vec<(u64, u32)> {
        let mut found = Vec::new();
        let mut from = self.numbers.oldest();
        while found.len() < most {
            let (id, at) = self.records.next_from(from, self.numbers.next(), walk.steps);
            walk.steps -= (id - from) as u32;
            if at == NONE {
                break;
            }
            walk.steps = walk.steps.saturating_sub(1);
            from = id + 1;
            let state = self.records[at].state;
            let placed = !matches!(state, Some(State::Delayed | State::Parked | State::Leased));
            if placed && self.records.sequence(at) < sequence {
                found.push((id, at));
            }
        }
        found
    }
}

/// Unsettled messages looked through for those that hold a barrier up.
const LOOKED_THROUGH: u64 = 1000;

#[cfg(test)]
mod tests {
    use crate::queue::calls::explain::*;
    use crate::queue::parts::watch::Watch;
    use crate::queue::scheduler::Put;
    use crate::queue::types::Options;

    /// Steps an explanation of this message takes.
    fn steps(scheduler: &Scheduler<()>, id: u64) -> u32 {
        let mut walk = Walk::new(100, scheduler.now);
        scheduler.walk_in(&mut walk, scheduler.records.find(id).into_iter());
        STEPS - walk.steps
    }

    /// Counted in steps, never in time; beyond them go at most `limit` messages and their keys.
    #[test]
    fn an_explanation_at_a_million_pending_takes_a_bounded_number_of_steps() {
        let million = 1_000_000;
        let mut scheduler = Scheduler::new(Options::default(), Watch::off());
        let keys = [KeyRef::new(b"a")];
        let put = Put { keys: &keys, ..Put::default() };
        (0..million).for_each(|_| assert!(scheduler.put(1, &put, &mut Some(())).is_ok()));
        assert!(steps(&scheduler, million) < 10, "counted from the end");
        assert_eq!(steps(&scheduler, million / 2), STEPS);
        // Nearly all are settled, but for the first, so that only a gap of ids lies between.
        let mut scheduler = Scheduler::new(Options::default(), Watch::off());
        let held = scheduler.put(1, &Put::default(), &mut Some(())).unwrap().id;
        scheduler.lease(1, Kind::Any, 0).expect("it is ready");
        for _ in 0..million {
            scheduler.put(1, &Put::default(), &mut Some(())).unwrap();
            let grant = scheduler.lease(1, Kind::Any, 0).expect("it is ready");
            scheduler.ack(1, grant.handle).unwrap();
        }
        let barrier = Put { barrier: true, ..Put::default() };
        let barrier = scheduler.put(1, &barrier, &mut Some(())).unwrap().id;
        assert_eq!(steps(&scheduler, barrier), STEPS);
        let explained = scheduler.explain(1, barrier, 100).expect("it is unsettled");
        assert_eq!(explained.nodes[0].blocked[0].holders, [held]);
    }
}
