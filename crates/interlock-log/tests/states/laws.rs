//! Joining is associative, commutative and idempotent; sums are exact; deletes last even when
//! forgotten.

use std::collections::BTreeMap;

use fastrand::Rng;
use interlock_log::stamp::{self, Stamp};
use interlock_log::state::{Change, Merge, Rules, State};
use interlock_table::{Schema, Value};

use crate::centres::{times, Centre, AGE_MS, NOW, TABLES};

fn joined(rules: &Rules, one: &State, other: &State) -> State {
    rules.join(Some(one), other).unwrap_or_else(|| one.clone())
}

/// Returns changes and states of a key in three data centres.
fn some_states(rules: &Rules, chance: &mut Rng) -> Vec<State> {
    let mut centres = ["east", "west", "e"].map(Centre::new);
    let (mut now, mut deltas, mut found) = (NOW, Vec::<State>::new(), Vec::new());
    for _ in 0..25 {
        // All changes are within half of the age: a change that is joined later may have no effect.
        now += [0, 1, 40, 70][chance.usize(..4)];
        let centre = &mut centres[chance.usize(..3)];
        for delta in &deltas {
            if chance.u8(..) < 50 {
                centre.join(rules, delta);
            }
        }
        if let Some(delta) = centre.write(rules, chance, now) {
            found.push(delta.clone());
            deltas.push(delta);
        }
        found.extend(centre.state.clone());
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn joining_is_associative_commutative_and_idempotent() {
    for seed in 0..400 * times() as u64 {
        let rules = Rules::parse(TABLES[seed as usize % TABLES.len()]).unwrap();
        let mut chance = Rng::with_seed(seed);
        let mut states = some_states(&rules, &mut chance);
        for one in states.iter().take(12) {
            assert_eq!(rules.join(Some(one), &one.clone()), None);
            for other in states.iter().take(12) {
                let together = joined(&rules, one, other);
                assert_eq!(rules.check(together.as_bytes()).as_ref(), Ok(&together));
                assert_eq!(joined(&rules, other, one), together, "seed {seed}");
                assert_eq!(rules.join(Some(&together), one), None, "seed {seed}");
                assert_eq!(rules.join(Some(&together), other), None, "seed {seed}");
                let third = &states[chance.usize(..states.len())];
                let last = joined(&rules, one, &joined(&rules, other, third));
                assert_eq!(joined(&rules, &together, third), last, "seed {seed}");
            }
        }
        let all = |states: &[State]| states.iter().cloned().reduce(|a, b| joined(&rules, &a, &b));
        let whole = all(&states);
        for _ in 0..3 {
            chance.shuffle(&mut states);
            assert_eq!(all(&states), whole, "seed {seed}");
        }
    }
}

/// Each change reaches all nodes within half of the age; each node forgets as soon as it may.
#[test]
fn nodes_that_forgot_a_delete_and_nodes_that_did_not_come_to_the_same_rows() {
    let mut forgotten = 0;
    for seed in 0..200 * times() as u64 {
        let rules = Rules::parse(TABLES[seed as usize % TABLES.len()]).unwrap();
        let mut chance = Rng::with_seed(seed);
        // The last one never forgets and writes nothing.
        let mut centres = ["east", "west", "e", "keeper"].map(Centre::new);
        let mut under_way = BTreeMap::<(u64, u64), (usize, State)>::new();
        let (mut now, mut count) = (NOW, 0);
        let mut arrive = |centres: &mut [Centre; 4],
                          under_way: &mut BTreeMap<(u64, u64), (usize, State)>,
                          chance: &mut Rng,
                          now| {
            let mut forget = |centres: &mut [Centre; 4], chance: &mut Rng, at| {
                for centre in &mut centres[..3] {
                    let life = centre.state.as_ref().map(|state| rules.life(state.as_bytes()));
                    let may = life.is_some_and(|life| (1..=at).contains(&life.forgettable_at));
                    if may && chance.u8(..) < 150 {
                        assert_eq!(centre.shown(&rules, at), None);
                        centre.state = None;
                        forgotten += 1;
                    }
                }
            };
            while under_way.first_key_value().is_some_and(|((due, _), _)| *due <= now) {
                let Some(((due, _), (at, delta))) = under_way.pop_first() else { break };
                forget(centres, chance, due);
                centres[at].join(&rules, &delta);
            }
            forget(centres, chance, now);
        };
        for _ in 0..60 {
            now += [1, 20, 200, 600, AGE_MS][chance.usize(..5)];
            arrive(&mut centres, &mut under_way, &mut chance, now);
            let writer = chance.usize(..3);
            let Some(delta) = centres[writer].write(&rules, &mut chance, now) else { continue };
            for at in (0..4).filter(|at| *at != writer) {
                for _ in 0..chance.usize(1..=2) {
                    count += 1;
                    let due = now + chance.u64(..AGE_MS / 2);
                    under_way.insert((due, count), (at, delta.clone()));
                }
            }
        }
        now += AGE_MS / 2;
        arrive(&mut centres, &mut under_way, &mut chance, now);
        let keeper = centres[3].shown(&rules, now);
        for centre in &centres[..3] {
            assert_eq!(centre.shown(&rules, now), keeper, "seed {seed}");
        }
    }
    assert!(forgotten > 500, "{forgotten}");
}

#[test]
fn sums_are_exact_over_lineages_in_any_order() {
    let schema = Schema::parse("n: U32").unwrap();
    let rules = Rules::new(schema, &[Merge::Sum], 1000).unwrap();
    for seed in 0..50 * times() as u64 {
        let mut chance = Rng::with_seed(seed);
        let mut centres = [Centre::new("east"), Centre::new("west")];
        let (mut deltas, mut total) = (Vec::new(), 0);
        for step in 1..80 {
            let at = chance.usize(..2);
            let by = chance.u64(..100);
            let centre = &mut centres[at];
            if chance.u8(..) < 50 {
                centre.lineage = step;
            }
            let writer = stamp::writer(centre.dc, centre.lineage);
            let stamp = Stamp { reading: centre.clock.next(NOW + step), writer: &writer };
            let view = rules.view(centre.state.as_ref(), NOW);
            let Value::Unsigned(shown) = view.value(0) else { panic!() };
            drop(view);
            let value = Value::Unsigned(shown + by);
            let change = Change::CreateBy { column: 0, value, expires_at: 0 };
            let before = centre.state.as_ref().map(State::as_bytes);
            let delta = rules.delta(before, &change, &stamp, NOW).unwrap();
            centre.join(&rules, &delta);
            deltas.push(delta);
            total += by;
            if chance.u8(..) < 80 {
                for (here, there) in [(0, 1), (1, 0)] {
                    if let Some(state) = centres[there].state.clone() {
                        centres[here].join(&rules, &state);
                    }
                }
            }
        }
        for _ in 0..3 {
            chance.shuffle(&mut deltas);
            let whole = deltas.iter().cloned().reduce(|a, b| joined(&rules, &a, &b)).unwrap();
            let view = rules.view(Some(&whole), NOW);
            assert_eq!(view.value(0), Value::Unsigned(total), "seed {seed}");
            for state in centres.iter().filter_map(|centre| centre.state.as_ref()) {
                assert_eq!(rules.join(Some(&whole), state), None, "seed {seed}");
            }
        }
    }
}

#[test]
fn of_a_maximum_zero_is_more_than_minus_zero_whichever_comes_first() {
    let rules = Rules::parse("a: F64; max; 1000 ms").unwrap();
    let set = |value| {
        let given = &[(0, Value::Float(value))];
        let stamp = Stamp { reading: stamp::hybrid(NOW), writer: "east.1" };
        rules.delta(None, &Change::Create { given, expires_at: 0 }, &stamp, NOW).unwrap()
    };
    let (less, more) = (set(-0.0), set(0.0));
    assert_eq!(joined(&rules, &less, &more), more);
    assert_eq!(joined(&rules, &more, &less), more);
    assert_eq!(joined(&rules, &set(f64::NAN), &set(f64::NEG_INFINITY)), set(f64::NEG_INFINITY));
}
