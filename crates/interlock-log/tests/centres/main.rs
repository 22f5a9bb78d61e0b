//! Worlds of two data centres whose engines lose entries, with the real code. Each data centre has
//! its log, nodes, rings and checkpoints, and a link that sends the states of changed rows to the
//! other.
//!
//! Every world is determined by its seed. A failure is printed with the seed, and with all steps by
//!
//!     INTERLOCK_WORLD=KIND:SEED cargo test --release -p interlock-log --test centres -- --nocapture one_world
//!
//! Allowed in addition to what the worlds of one data centre allow: a sum may be wrong if every node
//! of a data centre reports it. A write that a client repeats before it is put back is judged by
//! what it finds. If all that created a row is lost with the disks, additions to it show nothing.
//!
//! Of 450,000 worlds (100,000 each of `tails`, `all`, `falls` and `disks`, 25,000 each of the others),
//! one breaks a promise: `disks:71295` has a wrong sum that no node reports. A late copy of a lost
//! entry arrives after all disks are lost, and the other data centre already has its sum. 178 have a
//! wrong sum that every node reports.
//!
//! The long run, with the count for each kind:
//!
//!     INTERLOCK_WORLDS=100000 cargo test --release -p interlock-log --test centres -- --nocapture kinds
//!
//! `INTERLOCK_KIND=falls` runs the worlds of one kind only.

#[path = "../worlds/asked.rs"]
mod asked;
mod centre;
#[allow(dead_code)] // other worlds use the rest
#[path = "../worlds/engine.rs"]
mod engine;
mod link;
mod world;

use std::collections::BTreeMap;

use interlock_log::machine::Rules;
use world::{Kind, World};

const STEPS: u64 = 250;

fn kinds() -> Vec<(&'static str, Kind)> {
    let tails = Kind { all: false, disks: false, falls: false, bursts: false, owns: false };
    vec![
        ("tails", tails),
        ("all", Kind { all: true, ..tails }),
        ("falls", Kind { all: true, falls: true, ..tails }),
        ("owned", Kind { owns: true, ..tails }),
        ("owned all", Kind { all: true, owns: true, ..tails }),
        ("disks", Kind { all: true, disks: true, ..tails }),
        ("bursts", Kind { bursts: true, ..tails }),
    ]
}

/// Outcomes of worlds, each with the number of worlds that had it and the first seed.
type Found = BTreeMap<String, (u64, u64)>;

fn worlds(name: &str, kind: Kind, seeds: std::ops::Range<u64>) -> (Found, Found) {
    let (mut broken, mut narrowed) = (Found::new(), Found::new());
    for seed in seeds {
        match World::new(seed, kind, Rules::ALL, false).run(&all()) {
            Ok(them) => {
                for what in them {
                    narrowed.entry(what.to_owned()).or_insert((0, seed)).0 += 1;
                }
            }
            Err(what) => {
                println!("{name}:{seed} {what}");
                let what = what.split(':').next().unwrap_or_default().to_owned();
                broken.entry(what).or_insert((0, seed)).0 += 1;
            }
        }
    }
    (broken, narrowed)
}

fn is_asked(kind: &str) -> bool {
    std::env::var("INTERLOCK_KIND").map_or(true, |asked| asked == kind)
}

fn count() -> u64 {
    asked::count(100)
}

fn all() -> Vec<u64> {
    (1..=STEPS).collect()
}

fn kind(name: &str) -> Kind {
    kinds().into_iter().find(|(kind, _)| *kind == name).expect("a kind").1
}

#[test]
fn one_world() {
    let Some((name, seed, steps)) = asked::one(all()) else { return };
    println!("{:?}", World::new(seed, kind(&name), Rules::ALL, true).run(&steps));
}

#[test]
fn shortest_world() {
    asked::shortest(asked::first()..asked::first() + count(), &all(), |name, seed, steps| {
        World::new(seed, kind(name), Rules::ALL, false).run(steps).err()
    });
}

#[test]
fn kinds_hold() {
    let mut bad = Vec::new();
    for (name, kind) in kinds().into_iter().filter(|(name, _)| is_asked(name)) {
        let begun = std::time::Instant::now();
        let (broken, narrowed) = worlds(name, kind, asked::first()..asked::first() + count());
        println!("{name}: {} worlds in {:?}: {broken:?}; {narrowed:?}", count(), begun.elapsed());
        if !broken.is_empty() {
            bad.push((name, broken));
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

type LeaveOut = fn(&mut Rules);
/// Each rule that one data centre can do without, a kind of worlds that needs it, and the first
/// seed to try.
const RULES: [(&str, &str, u64, LeaveOut); 8] = [
    ("far", "tails", 0, |rules| rules.far = false),
    ("takes_back", "all", 1600, |rules| rules.takes_back = false),
    ("late", "tails", 4300, |rules| rules.late = false),
    ("missed", "owned", 1100, |rules| rules.missed = false),
    ("follows", "falls", 0, |rules| rules.follows = false),
    ("names_writers", "disks", 30927, |rules| rules.names_writers = false),
    ("judges", "falls", 0, |rules| rules.judges = false),
    ("asks", "disks", 2200, |rules| rules.asks = false),
];

/// Without any one rule, worlds of some kind break: the checks can fail, and every rule is needed.
#[test]
fn every_rule_is_needed() {
    let mut idle = Vec::new();
    for (rule, kind, first, leave_out) in RULES.into_iter().filter(|it| is_asked(it.1)) {
        let mut rules = Rules::ALL;
        leave_out(&mut rules);
        // One world that ends worse without the rule than with all rules is enough: it breaks, or has
        // a wrong sum that is reported.
        let kind = self::kind(kind);
        let run = |seed, rules| match World::new(seed, kind, rules, false).run(&all()) {
            Ok(narrowed) => narrowed.first().map(|what| (1, (*what).to_owned())),
            Err(what) => Some((2, what)),
        };
        let rank = |seed| run(seed, Rules::ALL).map_or(0, |(rank, _)| rank);
        let found = (first..first + 20 * count()).find_map(|seed| {
            let (rank_without, what) = run(seed, rules)?;
            (rank_without > rank(seed)).then_some((seed, what))
        });
        println!("without {rule}: {found:?}");
        if found.is_none() {
            idle.push(rule);
        }
    }
    assert!(idle.is_empty(), "nothing breaks without: {idle:?}");
}
