//! Worlds of nodes, clients and an engine that loses entries, with the real code.
//!
//! Every world is determined by its seed. A failure is printed with the seed, and with all steps by
//!
//!     INTERLOCK_WORLD=KIND:SEED cargo test --release -p interlock-log --test worlds -- --nocapture one_world
//!
//! Allowed by the guarantees (`ending.rs` checks the condition of each, in every kind):
//!
//! - Around a loss of the engine, a client's value may replace a write of another client that began
//!   after the value's answer.
//! - A client's older write may come back over a newer one if log time fell between them by more
//!   than the span of the ring plus the longest timeout, and the record of the newer one was
//!   dropped.
//! - A sum may be wrong, and a client's older write may win if its record was dropped, if two
//!   histories were joined that each had writes the other lacked. Every node then reports that rows
//!   were merged ([`interlock_log::replica::Replica::merged`]).
//!
//! Of 100,000 worlds of each of the first nine kinds and of `everything`, none broke a promise.
//! These needed a narrower guarantee:
//!
//! | kind | narrower guarantee needed | worlds | first |
//! |---|---|---|---|
//! | shared | an older write of another client | 1,929 | 10 |
//! | trims | a wrong sum, reported by every node | 12 | 19354 |
//! | short | a wrong sum, reported by every node | 427 | 69 |
//! | ring | a wrong sum, reported by every node | 67 | 1529 |
//! | everything | a wrong sum, reported by every node | 532 | 5 |
//! | everything | an older write of a client whose record was dropped, reported by every node | 2 | 34751 |
//! | everything | an older write of a client, log time fell | 2 | 16742 |
//!
//! If logs are trimmed, all nodes may be stuck after a loss of the engine or of disks, in about 1
//! of 200 worlds. An operator then empties the log. Nothing on a living disk is lost by that.
//!
//! `INTERLOCK_SHORTEST=KIND:WHAT` and `shortest_world` reduce the worlds in which something breaks,
//! and print the smallest for `INTERLOCK_WORLD` (KIND:SEED:STEP,STEP...).
//!
//! The long run, with the count for each kind; `INTERLOCK_FIRST` is its first seed:
//!
//!     INTERLOCK_WORLDS=100000 cargo test --release -p interlock-log --test worlds -- --nocapture kinds

mod asked;
mod disk;
mod ending;
mod engine;
mod kind;
mod machine;
mod world;

use std::collections::BTreeMap;

use interlock_log::apply::{Fate, Whole};
use interlock_log::checkpoint::Checkpoint;
use interlock_log::codec::checksum;
use interlock_log::entry::{Arguments, Body, Command, Done, Entry, Mark, PutBack};
use interlock_log::machine::{Limits, Rules};
use kind::Kind;
use world::World;

const STEPS: u64 = 250;

fn kinds() -> Vec<(&'static str, Kind)> {
    let plain = Kind::PLAIN;
    vec![
        ("plain", plain),
        ("rising", Kind { falls: false, ..plain }),
        ("shared", Kind { shared: true, ..plain }),
        ("trims", Kind { trims: true, ..plain }),
        ("short", Kind { short: true, ..plain }),
        ("postponed", Kind { short: true, postpones: true, ..plain }),
        ("ring", Kind { ring: 12, ..plain }),
        ("disks", Kind { disks: true, ..plain }),
        ("capacity", Kind { capacity: 2, ..plain }),
        ("calm", Kind { trims: true, disks: true, calm: true, ..plain }),
        ("records", Kind { records: 4, short: true, ..plain }),
        ("acks", Kind { acks: true, trims: true, ..plain }),
        ("bursts", Kind { bursts: true, ..plain }),
        ("everything", Kind { trims: true, short: true, disks: true, ring: 12, ..plain }),
    ]
}

/// Outcomes of worlds, each with the number of worlds that had it and the first seed.
type Found = BTreeMap<String, (u64, u64)>;

/// Runs worlds. Returns what broke, and which narrower guarantees were needed.
fn worlds(kind: Kind, rules: Rules, seeds: std::ops::Range<u64>) -> (Found, Found) {
    let (mut broken, mut narrowed) = (Found::new(), Found::new());
    for seed in seeds {
        match World::new(seed, kind, rules, false).run(&all()) {
            Ok(them) => {
                for what in them {
                    narrowed.entry(what.to_owned()).or_insert((0, seed)).0 += 1;
                }
            }
            Err(what) => {
                let what = what.split(':').next().unwrap_or_default().to_owned();
                broken.entry(what).or_insert((0, seed)).0 += 1;
            }
        }
    }
    (broken, narrowed)
}

/// Returns the promise that a world breaks, or the narrower guarantees that it needs, if any.
fn outcome(seed: u64, kind: Kind, rules: Rules, steps: &[u64]) -> Option<String> {
    match World::new(seed, kind, rules, false).run(steps) {
        Ok(narrowed) if narrowed.is_empty() => None,
        Ok(narrowed) => Some(format!("{narrowed:?}")),
        Err(broken) => Some(broken),
    }
}

fn count() -> u64 {
    asked::count(200)
}

fn all() -> Vec<u64> {
    (1..=STEPS).collect()
}

#[test]
fn one_world() {
    let Some((name, seed, steps)) = asked::one(all()) else { return };
    println!("{:?}", World::new(seed, kind(&name), Rules::ALL, true).run(&steps));
}

#[test]
fn shortest_world() {
    asked::shortest(0..count(), &all(), |name, seed, steps| {
        outcome(seed, kind(name), Rules::ALL, steps)
    });
}

fn kind(name: &str) -> Kind {
    kinds().into_iter().find(|(kind, _)| *kind == name).expect("a kind").1
}

#[test]
fn kinds_hold() {
    let mut bad = Vec::new();
    for (name, kind) in kinds() {
        let begun = std::time::Instant::now();
        let (broken, narrowed) = worlds(kind, Rules::ALL, asked::first()..asked::first() + count());
        println!("{name}: {} worlds in {:?}: {broken:?}; {narrowed:?}", count(), begun.elapsed());
        if !broken.is_empty() {
            bad.push((name, broken));
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

/// Without any one rule, worlds of some kind break: the checks can fail, and every rule is needed.
#[test]
fn every_rule_is_needed() {
    let mut idle = Vec::new();
    for (rule, kind, first, leave_out) in RULES {
        let mut rules = Rules::ALL;
        leave_out(&mut rules);
        // One world that breaks without the rule and holds with all rules is enough.
        let kind = self::kind(kind);
        let run = |seed, rules| outcome(seed, kind, rules, &all());
        let found = (first..first + 20 * count()).find_map(|seed| {
            let what = run(seed, rules)?;
            run(seed, Rules::ALL).is_none().then_some((seed, what))
        });
        println!("without {rule}: {found:?}");
        if found.is_none() {
            idle.push(rule);
        }
    }
    assert!(idle.is_empty(), "nothing breaks without: {idle:?}");
}

type LeaveOut = fn(&mut Rules);
/// Each rule, a kind of worlds that needs it, and the first seed to try.
const RULES: [(&str, &str, u64, LeaveOut); 24] = [
    ("numbers", "plain", 0, |rules| rules.numbers = false),
    ("clients", "plain", 0, |rules| rules.clients = false),
    ("goes_back", "plain", 0, |rules| rules.goes_back = false),
    ("puts_back", "plain", 0, |rules| rules.puts_back = false),
    ("first_date", "shared", 0, |rules| rules.first_date = false),
    ("own_order", "short", 90, |rules| rules.own_order = false),
    ("twins", "short", 46568, |rules| rules.twins = false),
    ("states", "short", 20, |rules| rules.states = false),
    ("seen", "short", 12, |rules| rules.seen = false),
    ("deadlines", "short", 60, |rules| rules.deadlines = false),
    ("records", "short", 14, |rules| rules.records = false),
    ("forgets", "short", 0, |rules| rules.forgets = false),
    ("leaps", "short", 44281, |rules| rules.leaps = false),
    ("within", "short", 99, |rules| rules.within = false),
    ("keeps_states", "everything", 560, |rules| rules.keeps_states = false),
    ("denied", "short", 279, |rules| rules.denied = false),
    ("waits", "ring", 1259, |rules| rules.waits = false),
    ("room", "capacity", 0, |rules| rules.room = false),
    ("checksums", "shared", 117, |rules| rules.checksums = false),
    ("nonces", "plain", 949, |rules| rules.nonces = false),
    ("gaps", "trims", 23, |rules| rules.gaps = false),
    ("continues", "everything", 6916, |rules| rules.continues = false),
    ("acks", "acks", 0, |rules| rules.acks = false),
    ("two", "calm", 3408, |rules| rules.two = false),
];

/// The rule "latest", whose worlds are too rare to search for: an earlier write with a later
/// deadline comes back long after the record of its client was dropped.
#[test]
fn no_earlier_write_comes_back_once_its_client_is_forgotten() {
    for latest in [true, false] {
        let rules = Rules { latest, ..Rules::ALL };
        let limits = Limits { timeout: 60, span: 60, pause: 60, ..Limits::default() };
        let mut whole = Whole::<machine::Toy>::default();
        let mut apply = |name: &[u8], number, time, body| {
            let (name, read) = (name.to_vec(), Mark::default());
            let mut entry = Entry { name, number, read, seen: 0, nonce: 0, body };
            whole.apply(&mut entry, Mark::default(), time, false, &limits, rules).fate
        };
        let write = |number, deadline| Command {
            client: Some((b"c"[..].into(), number)),
            deadline,
            arguments: Arguments::new(&machine::arguments(number, 1, 0)),
        };
        assert_eq!(apply(b"a", 0, 1000, Body::Genesis(vec![9])), Fate::Taken);
        assert_eq!(apply(b"a", 1, 1001, Body::Commands(vec![write(2, 1010)])), Fate::Counted);
        for number in 1..10 {
            let time = 1001 + 50 * number;
            assert_eq!(apply(b"b", number, time, Body::Commands(Vec::new())), Fate::Counted);
        }
        let done = vec![Done { index: 0, stamp: 999 << 16, command: write(1, 1055) }];
        let lost = PutBack { time: 999, done, ..PutBack::default() };
        assert_eq!(apply(b"z", 1, 1500, Body::PutBack(lost)), Fate::Counted);
        let toy = whole.machine.expect("a machine");
        assert_eq!(toy.writes.contains_key(&1), !latest, "with the rule: {latest}");
    }
}

/// Decodes any bytes of a checkpoint, even from an attacker who added a valid checksum.
#[test]
fn hostile_checkpoints_end_with_an_answer() {
    let mut random = fastrand::Rng::with_seed(3);
    let base = World::new(1, Kind::PLAIN, Rules::ALL, false).into_checkpoint(&all()[..100]);
    for _ in 0..30_000 {
        let mut bytes = base[..base.len() - 8].to_vec();
        for _ in 0..random.usize(1..4) {
            match random.usize(..3) {
                0 if !bytes.is_empty() => {
                    let at = random.usize(..bytes.len());
                    bytes[at] = random.u8(..);
                }
                1 => bytes.truncate(random.usize(..=bytes.len())),
                _ => bytes.insert(random.usize(..=bytes.len()), random.u8(..)),
            }
        }
        let sum = checksum(2, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        if let Ok(it) = Checkpoint::<machine::Toy>::decode(&bytes) {
            let again = Checkpoint::bytes(it.place, &it.state);
            assert_eq!(Checkpoint::decode(&again), Ok(it));
        }
    }
}
