//! Chains, and a drain that shows what they claim.

use fastrand::Rng;

use crate::key::KeyRef;
use crate::queue::calls::chain::*;
use crate::queue::parts::watch::Watch;
use crate::queue::scheduler::{Grant, Put};
use crate::queue::types::limits::Limits;
use crate::queue::types::{Behind, Kind, Options, RevokeThen};

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

    fn chain(&self, id: u64, stuck: &[u64]) -> Option<Vec<u64>> {
        self.0.waits_for(id, stuck).map(|chain| chain.ids)
    }
}

#[test]
fn a_chain_of_a_hundred_thousand_messages_is_found() {
    let mut bench = Bench::new();
    let name = |n: usize| format!("key {n}");
    let first = bench.put(&[&name(0)], &[]);
    let length = 100_000;
    let last = (0..length).map(|n| bench.put(&[&name(n), &name(n + 1)], &[])).last().unwrap();
    let chain = bench.chain(last, &[first]).expect("it waits");
    assert_eq!((chain.len(), chain[0], chain[length]), (length + 1, last, first));
    assert_eq!(bench.chain(first, &[last]), None);
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
    for (id, chain) in [(between, vec![between, target]), (reader, vec![reader, between, target])] {
        assert_eq!(bench.chain(id, &[target]), Some(chain));
    }
    assert_eq!(bench.chain(writer, &[target]).unwrap().len(), 3);
    assert_eq!(bench.chain(other, &[reader]), None, "readers run side by side");
    assert_eq!(bench.chain(writer, &[front]), Some(vec![writer, front]));
    let alone = bench.put(&["c"], &[]);
    assert_eq!(bench.chain(alone, &[front, target, writer]), None);
}

#[test]
fn a_barrier_waits_for_all_earlier_and_blocks_all_later_messages() {
    let mut bench = Bench::new();
    let first = bench.barrier();
    let target = bench.put(&["a"], &[]);
    let second = bench.barrier();
    let behind = bench.put(&["b"], &[]);
    assert_eq!(bench.chain(behind, &[target]), Some(vec![behind, second, target]));
    assert_eq!(bench.chain(behind, &[first]).unwrap().len(), 3);
    assert_eq!(bench.chain(target, &[first]), Some(vec![target, first]));
    // If there are several targets, the first is found, in every process.
    assert_eq!(bench.chain(second, &[target, first]), Some(vec![second, first]));
    assert_eq!(bench.chain(second, &[behind]), None);
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
    let mut search = bench.0.search(&[target]).unwrap();
    search.least = 0;
    search.add(bench.0.records.find(last).unwrap(), NONE);
    while let Some(at) = search.open.pop_front() {
        bench.0.look_before(at, &mut search);
    }
    assert_eq!(search.parents.len(), 2_002);
    let looked_at = LOOKED_AT - search.left;
    assert!(looked_at <= 3 * 2 * 2_001, "{looked_at} places");
}

// -- Limits ---------------------------------------------------------------------------------------

/// A queue with limits, and the messages that are handled.
struct Limited {
    scheduler: Scheduler<()>,
    handled: Vec<Grant>,
}

impl Limited {
    fn new(limits: &str) -> Self {
        let options = Options { limits: declared(limits), ..Options::default() };
        Limited { scheduler: Scheduler::new(options, Watch::off()), handled: Vec::new() }
    }

    /// `keys` and `limit`: a letter each; a capital key is shared.
    fn put(&mut self, keys: &str, limit: &str) -> u64 {
        let lower = keys.to_ascii_lowercase();
        let (mut own, mut shared) = (Vec::new(), Vec::new());
        for (given, key) in keys.bytes().zip(lower.as_bytes().chunks(1)) {
            if given.is_ascii_uppercase() { &mut shared } else { &mut own }.push(KeyRef::new(key));
        }
        self.enter(&Put { keys: &own, shared: &shared, ..Put::default() }, limit)
    }

    fn enter(&mut self, put: &Put<'_>, limit: &str) -> u64 {
        let limit: Vec<&[u8]> = limit.as_bytes().chunks(1).collect();
        let limit = limit.join(&0x1f);
        self.scheduler.put(1, &Put { limit: &limit, ..*put }, &mut Some(())).unwrap().id
    }

    fn lease(&mut self) -> Option<u64> {
        let grant = self.scheduler.lease(1, Kind::Any, 0)?;
        self.handled.push(grant);
        Some(grant.id)
    }

    fn ack(&mut self, id: u64) {
        let at = self.handled.iter().position(|grant| grant.id == id).expect("it is handled");
        self.scheduler.ack(1, self.handled.swap_remove(at).handle).expect("its lease stands");
    }

    /// Ends all but `stuck`, as long as there is something to end. Returns whether there was.
    fn drain(&mut self, stuck: &[u64]) -> bool {
        let mut any = false;
        loop {
            let ids = self.handled.iter().map(|grant| grant.id);
            let ending: Vec<u64> = ids.filter(|id| !stuck.contains(id)).collect();
            if ending.is_empty() && self.lease().is_none() {
                return any;
            }
            any |= !ending.is_empty();
            ending.into_iter().for_each(|id| self.ack(id));
        }
    }

    /// Checks what chains claim by a drain. Returns how many messages wait for `stuck`.
    fn check(&mut self, ids: &[u64], stuck: &[u64]) -> usize {
        let unsettled = |s: &Self, id: u64| s.scheduler.seen(id).is_some();
        let ids: Vec<u64> = ids.iter().copied().filter(|&id| unsettled(self, id)).collect();
        let chains: Vec<_> = ids.iter().map(|&id| self.scheduler.waits_for(id, stuck)).collect();
        for chain in chains.iter().flatten() {
            let by_limit = chain.limit.as_ref().map(|full| {
                let taken = full.holders.len() + usize::from(full.keeper.is_some());
                full.most.is_some_and(|most| taken >= most as usize)
                    && full.holders.iter().all(|id| stuck.contains(id))
            });
            let told = by_limit.unwrap_or_else(|| stuck.contains(chain.ids.last().unwrap()));
            assert!(told, "{chain:?}, {stuck:?}");
        }
        let all = self.scheduler.all_wait_for(stuck);
        let moved = self.drain(stuck);
        for (&id, chain) in ids.iter().zip(&chains) {
            assert_eq!(chain.is_some(), unsettled(self, id), "{id}: {chain:?}, {stuck:?}");
        }
        assert!(stuck.is_empty() || all != moved, "all wait: {all}; others ended: {moved}");
        let waiting = ids.iter().zip(&chains).filter(|(id, _)| !stuck.contains(id));
        waiting.filter(|(_, chain)| chain.is_some()).count()
    }
}

fn declared(limits: &str) -> Limits {
    Limits::parse(limits.replace(' ', "\x1f").as_bytes()).expect("limits")
}

/// Each letter of `all` with one chance in `of`.
fn some(rng: &mut Rng, all: &str, of: u32) -> String {
    all.chars().filter(|_| rng.u32(..of) == 0).collect()
}

#[test]
fn a_message_waits_for_stuck_ones_exactly_if_it_is_left_when_all_others_have_ended() {
    let (mut waited, mut refused) = (0, 0);
    for seed in 0..4_000 {
        let mut rng = Rng::with_seed(seed);
        let most: Vec<u32> = (0..3).map(|_| rng.u32(1..=3)).collect();
        let mut bench = Limited::new(&format!("x={} y={} z={}", most[0], most[1], most[2]));
        let mut ids = Vec::new();
        for _ in 0..rng.usize(4..24) {
            match rng.u32(..8) {
                0 | 1 => {
                    bench.lease();
                }
                2 if !bench.handled.is_empty() => {
                    let at = rng.usize(..bench.handled.len());
                    bench.ack(bench.handled[at].id);
                }
                3 if rng.bool() => {
                    let put = Put { barrier: true, ..Put::default() };
                    ids.push(bench.enter(&put, &some(&mut rng, "xyz", 4)));
                }
                _ => ids.push(bench.put(&some(&mut rng, "abcABC", 6), &some(&mut rng, "xyz", 2))),
            }
        }
        if rng.u32(..4) == 0 {
            bench.scheduler.set_limits(1, declared("x=1 y=1 z=2"));
        }
        let stuck = bench.handled.iter().map(|grant| grant.id);
        let stuck: Vec<u64> = stuck.filter(|_| rng.u32(..4) > 0).collect();
        let chains = ids.iter().filter_map(|&id| bench.scheduler.waits_for(id, &stuck));
        refused += chains.filter(|chain| chain.limit.is_some()).count();
        waited += bench.check(&ids, &stuck);
    }
    assert!(waited > 4_000 && refused > 1_000, "{waited} waited, {refused} for a limit");
}

#[test]
fn a_message_waits_for_a_limit_if_all_its_slots_are_taken_by_stuck_ones() {
    let mut bench = Limited::new("x=2");
    let ids = [(); 3].map(|()| bench.put("", "x"));
    let behind = bench.put("a", "x");
    let last = bench.put("a", "");
    assert_eq!([bench.lease(), bench.lease()], [Some(ids[0]), Some(ids[1])]);
    assert_eq!(bench.scheduler.waits_for(last, &ids[..1]), None, "the other slot becomes free");
    let chain = bench.scheduler.waits_for(last, &ids[..2]).expect("none becomes free");
    assert_eq!(
        chain.words(),
        [format!("{last}"), format!("{behind}"), "1 and 2 on limit x".into()]
    );
    assert_eq!(bench.check(&[ids[2], behind, last], &ids[..2]), 3);
}

/// Clause 26: a keeper that waits for one name keeps its slot of another.
#[test]
fn a_message_waits_for_a_slot_that_is_kept_for_one_that_never_starts() {
    let mut bench = Limited::new("x=1 y=1");
    let mut now = ["x", "y"].map(|name| bench.put("", name));
    assert_eq!([bench.lease(), bench.lease()], now.map(Some));
    let keeper = bench.put("", "xy");
    for n in 0..64 {
        let next = bench.put("", ["x", "y"][n % 2]);
        assert_eq!(bench.lease(), None);
        bench.ack(std::mem::replace(&mut now[n % 2], next));
        assert_eq!(bench.lease(), Some(next));
    }
    let behind = bench.put("", "x");
    assert_eq!(bench.lease(), None);
    bench.ack(now[0]);
    assert_eq!(bench.lease(), None, "kept for the message of both");
    let chain = bench.scheduler.waits_for(behind, &now[1..]).expect("it is not given up");
    assert_eq!(chain.words(), [format!("{behind}"), format!("{keeper} on limit x")]);
    assert_eq!(bench.check(&[keeper, behind], &now[1..]), 2);
}

#[test]
fn a_message_parked_behind_a_handlers_own_waits_for_it() {
    let options = Options { behind: Behind::Park, ..Options::default() };
    let mut bench = Bench(Scheduler::new(options, Watch::off()));
    let own = bench.put(&["a"], &[]);
    bench.0.lease(1, Kind::Any, 0).unwrap();
    bench.0.revoke(1, own, RevokeThen::Hold).unwrap();
    let parked = bench.put(&["a", "b"], &[]);
    assert!(bench.0.retry(1, own));
    bench.0.lease(1, Kind::Any, 0).unwrap();
    assert_eq!(bench.chain(parked, &[own]), Some(vec![parked, own]));
    let other = bench.put(&["b"], &[]);
    assert_eq!(bench.chain(other, &[own]), None, "it holds no place on its other key");
}
