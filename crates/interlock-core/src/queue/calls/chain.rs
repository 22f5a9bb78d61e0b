//! Finds whether a message waits for another, through whatever stands between (clause 25).

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use crate::queue::parts::slab::NONE;
use crate::queue::scheduler::Scheduler;
use crate::queue::types::message::{BARRIER, BEHIND_BARRIER};
use crate::queue::types::State;

type Hasher = std::hash::RandomState;

/// Places in lanes looked at to find out whether one message waits for another.
const LOOKED_AT: u32 = 1_000_000;

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
    /// The target with the least sequence, and that sequence: messages before it wait for no target.
    first: u32,
    least: u64,
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
}

impl<P> Scheduler<P> {
    /// Returns the ids of a chain by which a message waits, through whatever stands between, for
    /// one of `targets`, from the message to the target (clause 25).
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
        let from = self.records.find(id)?;
        let stands = |at: &u32| self.records[*at].state != Some(State::Delayed);
        let mut targets: Vec<u32> =
            targets.iter().filter_map(|&id| self.records.find(id)).filter(stands).collect();
        // Which of several chains is found must not hang on the random order of a set (clause 20).
        targets.sort_unstable_by_key(|&at| self.records.sequence(at));
        let first = *targets.first()?;
        let mut search = Search {
            parents: HashMap::default(),
            open: VecDeque::new(),
            passed: HashSet::default(),
            on_lanes: HashMap::default(),
            first,
            least: self.records.sequence(first),
            found: None,
            left: LOOKED_AT,
            targets: targets.iter().copied().collect(),
        };
        for target in targets {
            for (_, edge) in self.lanes.edges_of(self.records[target].first_edge) {
                search.on_lanes.entry(edge.lane()).or_default().push((target, edge.shared()));
            }
        }
        search.add(from, NONE);
        while let Some(at) = search.open.pop_front() {
            self.look_before(at, &mut search);
            if let Some(end) = search.found {
                let parent = |at: &u32| Some(search.parents[at]).filter(|&parent| parent != NONE);
                let chain = std::iter::successors(Some(end), parent);
                let mut chain: Vec<u64> = chain.map(|at| self.records[at].id).collect();
                chain.reverse();
                return Some(chain);
            }
            if search.left == 0 {
                return None;
            }
        }
        None
    }

    /// Adds what a message waits for directly: of each lane what conflicts with it and stands
    /// nearest, for that waits for the rest.
    fn look_before(&self, at: u32, search: &mut Search) {
        let (message, sequence) = (&self.records[at], self.records.sequence(at));
        if message.state != Some(State::Waiting) || sequence < search.least {
            return;
        }
        if message.flags & BARRIER != 0 {
            // A barrier waits for everything before it.
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
                if search.left == 0 || self.records.sequence(before.message) < search.least {
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
mod tests {
    use crate::key::KeyRef;
    use crate::queue::calls::chain::*;
    use crate::queue::parts::watch::Watch;
    use crate::queue::scheduler::Put;
    use crate::queue::types::Options;

    struct Bench(Scheduler<()>);

    impl Bench {
        fn new() -> Self {
            Bench(Scheduler::new(Options::default(), Watch::off()))
        }

        fn put(&mut self, keys: &[&str], shared: &[&str]) -> u64 {
            let refs = |names: &[&'static str]| -> Vec<KeyRef<'static>> {
                names.iter().map(|name| KeyRef::new(name.as_bytes())).collect()
            };
            let leak = |names: &[&str]| -> Vec<&'static str> {
                names.iter().map(|name| &*name.to_string().leak()).collect()
            };
            let (keys, shared) = (refs(&leak(keys)), refs(&leak(shared)));
            let put = Put { keys: &keys, shared: &shared, ..Put::default() };
            self.0.put(1, &put, &mut Some(())).unwrap().id
        }

        fn barrier(&mut self) -> u64 {
            let put = Put { barrier: true, ..Put::default() };
            self.0.put(1, &put, &mut Some(())).unwrap().id
        }
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_messages_is_found() {
        let mut bench = Bench::new();
        let name = |n: usize| format!("key {n}");
        let first = bench.put(&[&name(0)], &[]);
        let length = 100_000;
        let last = (0..length).map(|n| bench.put(&[&name(n), &name(n + 1)], &[])).last().unwrap();
        let chain = bench.0.waits_for(last, &[first]).expect("it waits");
        assert_eq!((chain.len(), chain[0], chain[length]), (length + 1, last, first));
        assert_eq!(bench.0.waits_for(first, &[last]), None);
    }

    #[test]
    fn a_message_between_is_found_wherever_it_is_in_its_lane() {
        let mut bench = Bench::new();
        let front = bench.put(&["a"], &[]);
        let target = bench.put(&["b"], &[]);
        let between = bench.put(&["a", "b"], &[]);
        let reader = bench.put(&[], &["a"]);
        let other = bench.put(&[], &["a"]);
        let writer = bench.put(&["a"], &[]);
        for (id, chain) in
            [(between, vec![between, target]), (reader, vec![reader, between, target])]
        {
            assert_eq!(bench.0.waits_for(id, &[target]), Some(chain));
        }
        assert_eq!(bench.0.waits_for(writer, &[target]).unwrap().len(), 3);
        assert_eq!(bench.0.waits_for(other, &[reader]), None, "readers run side by side");
        assert_eq!(bench.0.waits_for(writer, &[front]), Some(vec![writer, front]));
        let alone = bench.put(&["c"], &[]);
        assert_eq!(bench.0.waits_for(alone, &[front, target, writer]), None);
    }

    #[test]
    fn a_barrier_waits_for_all_earlier_and_blocks_all_later_messages() {
        let mut bench = Bench::new();
        let first = bench.barrier();
        let target = bench.put(&["a"], &[]);
        let second = bench.barrier();
        let behind = bench.put(&["b"], &[]);
        assert_eq!(bench.0.waits_for(behind, &[target]), Some(vec![behind, second, target]));
        assert_eq!(bench.0.waits_for(behind, &[first]).unwrap().len(), 3);
        assert_eq!(bench.0.waits_for(target, &[first]), Some(vec![target, first]));
        // If there are several targets, the first is found, in every process.
        assert_eq!(bench.0.waits_for(second, &[target, first]), Some(vec![second, first]));
        assert_eq!(bench.0.waits_for(second, &[behind]), None);
    }

    /// Counted in places looked at, never in time.
    #[test]
    fn each_message_is_visited_at_most_three_times() {
        let mut bench = Bench::new();
        let target = bench.put(&["apart"], &[]);
        bench.put(&["a"], &[]);
        for n in 0..2_000 {
            match n % 100 {
                99 => bench.put(&["a", "b"], &[]),
                _ => bench.put(&[], &["a", "b"]),
            };
        }
        let last = bench.put(&["a", "b"], &[]);
        let mut search = Search {
            parents: HashMap::default(),
            open: VecDeque::new(),
            passed: HashSet::default(),
            targets: [bench.0.records.find(target).unwrap()].into_iter().collect(),
            on_lanes: HashMap::default(),
            first: bench.0.records.find(target).unwrap(),
            least: 0,
            found: None,
            left: LOOKED_AT,
        };
        search.add(bench.0.records.find(last).unwrap(), NONE);
        while let Some(at) = search.open.pop_front() {
            bench.0.look_before(at, &mut search);
        }
        assert_eq!(search.parents.len(), 2_002);
        let looked_at = LOOKED_AT - search.left;
        assert!(looked_at <= 3 * 2 * 2_001, "{looked_at} places");
    }
}
