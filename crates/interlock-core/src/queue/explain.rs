//! Why a message waits (clause 17): breadth first from the message to the roots of its waiting.

use std::collections::VecDeque;

use crate::key::KeyRef;
use crate::queue::message::{BARRIER, GATED};
use crate::queue::scheduler::Scheduler;
use crate::queue::slab::NONE;
use crate::queue::trace::Call;
use crate::queue::types::{Blocker, Explained, Node, State, Time};

/// Edges, leases and ids looked at in all, beyond the messages that are named: with a million pending,
/// well below 1 ms.
const STEPS: u32 = 20_000;

/// Messages named that hold a barrier up, beyond those that are leased.
const SHOWN_BEFORE_BARRIER: usize = 10;

/// Messages looked at to find out whether one waits for another.
const LONGEST_CHAIN: usize = 10_000;

/// Messages on their way into an explanation.
struct Walk {
    queue: VecDeque<u32>,
    seen: hashbrown::HashSet<u32, foldhash::fast::RandomState>,
    limit: usize,
    truncated: bool,
    steps: u32,
    now: Time,
}

impl Walk {
    fn new(limit: usize, now: Time) -> Self {
        let (queue, seen) = Default::default();
        Walk { queue, seen, limit, truncated: false, steps: STEPS, now }
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
    /// Why this message waits, at most `limit` messages of it. `None`: it is settled, or never was.
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
        self.advance_oldest(self.next);
        self.explained(self.now, id, limit)
    }

    /// What stands on a key, in sequence, and what that waits for. `None`: nothing stands on it.
    pub fn explain_key(&mut self, now: Time, key: KeyRef<'_>, limit: usize) -> Option<Explained> {
        self.begin(now, || Call::ExplainKey { key: key.bytes.to_vec(), limit });
        self.advance_oldest(self.next);
        self.explained_key(self.now, key, limit)
    }

    /// Whether a message waits, through whatever stands between, for one of `targets`: the ids of such a
    /// chain from the message to the target (clause 25).
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
    /// let chain = queue.call(|scheduler, _| scheduler.waits_for(ids[2], &ids[..1]));
    /// assert_eq!(chain, Some(vec![ids[2], ids[0]]));
    /// ```
    pub fn waits_for(&self, id: u64, targets: &[u64]) -> Option<Vec<u64>> {
        if targets.contains(&id) {
            return Some(vec![id]);
        }
        let explained = self.walk(self.now, self.find(id).into_iter(), LONGEST_CHAIN);
        let parent_of = |of: u64| {
            let holds = |node: &&Node| node.blocked.iter().any(|b| b.holders.contains(&of));
            explained.nodes.iter().find(holds).map(|node| node.id)
        };
        let end = explained.nodes.iter().map(|node| node.id).find(|id| targets.contains(id))?;
        let mut chain = vec![end];
        while chain[chain.len() - 1] != id {
            let parent = parent_of(chain[chain.len() - 1])?;
            chain.push(parent);
        }
        chain.reverse();
        Some(chain)
    }

    pub(super) fn walk(
        &self,
        now: Time,
        from: impl Iterator<Item = u32>,
        limit: usize,
    ) -> Explained {
        self.walk_in(&mut Walk::new(limit, now.max(self.now)), from)
    }

    fn walk_in(&self, walk: &mut Walk, from: impl Iterator<Item = u32>) -> Explained {
        for at in from {
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

    fn node(&self, at: u32, walk: &mut Walk) -> Node {
        let (message, now) = (&self.messages[at], walk.now);
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
            State::Delayed => self.delays.at(self.extras[message.extra].timer),
            State::BackingOff => self.backoffs.at(self.extras[message.extra].timer),
            _ => None,
        };
        Node {
            id: message.id,
            state,
            attempt: self.attempt(at),
            age: now.saturating_sub(self.put_at(message.id)),
            consumer: lease.map_or(0, |lease| lease.consumer),
            held_for: lease.map(|lease| now - lease.at),
            lease_left: lease
                .filter(|lease| lease.timer != NONE || lease.batch != NONE)
                .map(|lease| match lease.batch {
                    NONE => lease.deadline,
                    batch => self.batches.slab[batch].deadline,
                })
                .map(|deadline| deadline.saturating_sub(now)),
            due_in: due.map(|due| due.saturating_sub(now)),
            paused,
            blocked: match message.state {
                Some(State::Waiting) => self.blockers(at, walk),
                _ => Vec::new(),
            },
        }
    }

    fn blockers(&self, at: u32, walk: &mut Walk) -> Vec<Blocker> {
        let message = &self.messages[at];
        if message.flags & BARRIER != 0 {
            return vec![self.before_barrier(at, walk)];
        }
        let mut blocked = Vec::new();
        if message.flags & GATED != 0 {
            let ahead = self.barriers.before(self.sequence(at));
            if let Some(first) = self.barriers.iter().next().filter(|_| ahead > 0) {
                walk.add(first.message);
                let holders = vec![self.messages[first.message].id];
                blocked.push(Blocker { key: None, holders, ahead: ahead as u64, exact: true });
            }
        }
        for (number, edge) in self.lanes.edges_of(message.first_edge) {
            if edge.granted() {
                continue;
            }
            let front = self.lanes.standing(edge.lane()).take_while(|edge| edge.granted());
            let front: Vec<u32> = front.map(|edge| edge.message).take(walk.limit).collect();
            let (ahead, exact) = self.lanes.ahead(number, &mut walk.steps);
            let holders = front.iter().map(|&at| self.messages[at].id).collect();
            let key = Some(self.lanes.lane(edge.lane()).key.as_bytes().to_vec());
            blocked.push(Blocker { key, holders, ahead, exact });
            front.into_iter().for_each(|at| walk.add(at));
        }
        blocked
    }

    /// All that was put before a barrier holds it up; what is leased says most, so it comes first.
    fn before_barrier(&self, at: u32, walk: &mut Walk) -> Blocker {
        if self.by_time {
            return self.before_barrier_by_time(at, walk);
        }
        let sequence = self.sequence(at);
        let looked_at = self.leases.places().take(walk.steps as usize);
        let leased = looked_at.filter(|(_, lease)| lease.token != 0).map(|(_, l)| l.message);
        let mut holders: Vec<u32> =
            leased.filter(|&at| self.sequence(at) < sequence).take(walk.limit).collect();
        let mut from = self.oldest;
        let most = walk.limit.min(SHOWN_BEFORE_BARRIER);
        while holders.len() < most {
            let messages = &self.messages;
            let (id, found) =
                self.index.next_from(from, self.next, walk.steps, |place| messages[place].id);
            if found == NONE {
                walk.steps -= (id - from) as u32;
                break;
            }
            walk.steps -= (id - from) as u32 + 1;
            from = id + 1;
            let state = self.messages[found].state;
            let placed = !matches!(state, Some(State::Delayed | State::Leased));
            if placed && self.sequence(found) < sequence {
                holders.push(found);
            }
        }
        holders.iter().for_each(|&at| walk.add(at));
        let holders = holders.into_iter().map(|at| self.messages[at].id).collect();
        let ahead = self.barriers.messages_before(sequence);
        Blocker { key: None, holders, ahead, exact: true }
    }
}

impl<P> Scheduler<P> {
    /// As above where numbers are times, with gaps between: looked through are the messages, while they
    /// are few, else the leases alone. Each by id.
    fn before_barrier_by_time(&self, at: u32, walk: &mut Walk) -> Blocker {
        let sequence = self.sequence(at);
        let (mut leased, mut others) = (Vec::new(), Vec::new());
        let mut look_at = |at: u32| {
            let message = &self.messages[at];
            let placed = message.state.is_some_and(|state| state != State::Delayed);
            if placed && self.sequence(at) < sequence {
                let list =
                    if message.state == Some(State::Leased) { &mut leased } else { &mut others };
                list.push((message.id, at));
            }
        };
        if self.stats.unsettled <= LOOKED_THROUGH {
            self.messages.places().for_each(|(at, _)| look_at(at));
        } else {
            let some = self.leases.places().take(walk.steps as usize);
            some.filter(|(_, lease)| lease.token != 0).for_each(|(_, l)| look_at(l.message));
        }
        leased.sort_unstable();
        others.sort_unstable();
        leased.truncate(walk.limit);
        let more = walk.limit.min(SHOWN_BEFORE_BARRIER).saturating_sub(leased.len());
        let holders: Vec<(u64, u32)> =
            leased.into_iter().chain(others.into_iter().take(more)).collect();
        holders.iter().for_each(|&(_, at)| walk.add(at));
        let holders = holders.into_iter().map(|(id, _)| id).collect();
        let ahead = self.barriers.messages_before(sequence);
        Blocker { key: None, holders, ahead, exact: true }
    }
}

/// Unsettled messages looked through for those that hold a barrier up.
const LOOKED_THROUGH: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::scheduler::Put;
    use crate::queue::types::{Kind, Options};
    use crate::queue::watch::Watch;

    /// Steps an explanation of this message takes.
    fn steps(scheduler: &Scheduler<()>, id: u64) -> u32 {
        let mut walk = Walk::new(100, scheduler.now);
        scheduler.walk_in(&mut walk, scheduler.find(id).into_iter());
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
