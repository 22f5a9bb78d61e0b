//! Random calls against a map.
//!
//! | variable | meaning |
//! |---|---|
//! | `INTERLOCK_SEED` | the seed; without it a new one each run, printed |
//! | `INTERLOCK_TABLE_OPS` | how many calls, 300,000 if not told |

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::common::{manual, number, row, seed, Place};
use fastrand::Rng;
use interlock_table::table::change::{By, Overflow};
use interlock_table::table::{Options, Ttl, Where, Written};
use interlock_table::{Error, Row, Table, Value};

const SCHEMA: &str = "count: U32, small: I8, on: bool, score: F64, token: str[20], raw: bytes[3]";

/// Contents that the table ought to hold: the row, and when it expires.
type Model = HashMap<Vec<u8>, (Row, u64)>;

fn random_row(rng: &mut Rng, table: &Table) -> Row {
    let text: String = (0..rng.usize(..11)).map(|_| rng.alphanumeric()).collect();
    row(
        table,
        &[
            ("count", Value::Unsigned(rng.u32(..).into())),
            ("small", Value::Signed(rng.i8(..).into())),
            ("on", Value::Bool(rng.bool())),
            ("score", Value::Float(rng.f64())),
            ("token", Value::Str(text.into())),
            ("raw", Value::Bytes(vec![rng.u8(..); rng.usize(..4)].into())),
        ],
    )
}

#[test]
fn random_calls_answer_as_a_map_does() {
    let seed = seed();
    let mut rng = Rng::with_seed(seed);
    let (clock, now) = manual();
    let place = Place::new("model");
    let options =
        Options { capacity: 3000, key_size: 40, evict: false, clock, ..Options::default() };
    let table = place.open(SCHEMA, &options);
    let mut model = Model::new();
    for done in 0..number("INTERLOCK_TABLE_OPS", 300_000) {
        let call = std::panic::AssertUnwindSafe(|| step(&mut rng, &table, &mut model, &now));
        if let Err(panic) = std::panic::catch_unwind(call) {
            println!("INTERLOCK_SEED={seed}, call {done}");
            std::panic::resume_unwind(panic);
        }
    }
    let statistics = table.statistics();
    assert_eq!(statistics.held, 0);
    assert_eq!(statistics, table.visited_statistics());
    assert_eq!(statistics.overwritten, 0);
}

fn step(rng: &mut Rng, table: &Table, model: &mut Model, clock: &std::sync::atomic::AtomicU64) {
    let now = clock.load(Relaxed);
    let key = rng.u32(..2000).to_string();
    // Of all lengths, and many with the same beginning.
    let key = key.repeat(1 + rng.usize(..2) * 40 / key.len().max(2) / 2).into_bytes();
    let there = model.get(&key).cloned();
    let schema = table.schema().clone();
    let column = |name: &str| schema.column(name).unwrap().clone();
    match rng.u8(..20) {
        0..=3 => {
            let row = random_row(rng, table);
            let (ttl, expiry) = match rng.u8(..4) {
                0 => (Ttl::Never, 0),
                1 => (Ttl::Usual, 0),
                _ => {
                    let ttl = rng.u64(1..50) * 100;
                    (Ttl::For(Duration::from_nanos(ttl)), now + ttl)
                }
            };
            let on = *rng.choice(&[Where::Anywhere, Where::Absent, Where::Present]).unwrap();
            let expected = match (&there, on) {
                (None, Where::Present) | (Some(_), Where::Absent) => Written::Not,
                (None, _) => Written::Inserted,
                (Some(_), _) => Written::Replaced,
            };
            assert_eq!(table.write(&key, row.words(), ttl, on).unwrap(), expected);
            if expected != Written::Not {
                model.insert(key, (row, expiry));
            }
        }
        4 => {
            assert_eq!(table.delete(&key).unwrap(), there.is_some());
            model.remove(&key);
        }
        5 => {
            assert_eq!(table.pop(&key).unwrap(), there.map(|(row, _)| row));
            model.remove(&key);
        }
        6..=8 => assert_eq!(table.get(&key).unwrap(), there.map(|(row, _)| row)),
        9 => {
            let name = *rng.choice(&["count", "small", "on", "score", "token", "raw"]).unwrap();
            let expected = there.and_then(|(row, _)| row.get(name));
            assert_eq!(table.get_column(&key, &column(name)).unwrap(), expected);
        }
        10 | 11 => {
            let name = *rng.choice(&["count", "small", "on", "score", "token", "raw"]).unwrap();
            let value = random_row(rng, table).get(name).unwrap();
            let set = table.set_column(&key, &column(name), &value).unwrap();
            assert_eq!(set, there.is_some());
            model.entry(key).and_modify(|(row, _)| row.set(name, &value).unwrap());
        }
        12 => {
            let by = rng.i128(..) >> *rng.choice(&[0, 60, 94, 124]).unwrap();
            let how = *rng.choice(&[Overflow::Refuse, Overflow::Wrap, Overflow::Saturate]).unwrap();
            let count = column("count");
            let answer = match i64::try_from(by) {
                Ok(by) if how == Overflow::Refuse && rng.bool() => {
                    let word = table.add(&key, &count, by);
                    word.map(|word| word.map(|word| count.decode(word)))
                }
                _ => table.incr(&key, &count, By::Integer(by), how),
            };
            let Some((mut row, expiry)) = there else { return assert_eq!(answer.unwrap(), None) };
            let Some(Value::Unsigned(before)) = row.get("count") else { panic!() };
            let sum = i128::from(before).saturating_add(by);
            let within = match how {
                Overflow::Refuse => u32::try_from(sum).ok(),
                Overflow::Wrap => Some((before as u32).wrapping_add(by as u32)),
                Overflow::Saturate => Some(sum.clamp(0, u32::MAX.into()) as u32),
            };
            match within {
                None => assert!(matches!(answer, Err(Error::Overflow { .. }))),
                Some(sum) => {
                    let sum = Value::Unsigned(sum.into());
                    assert_eq!(answer.unwrap(), Some(sum.clone()));
                    row.set("count", &sum).unwrap();
                    model.insert(key, (row, expiry));
                }
            }
        }
        13 => {
            let name = *rng.choice(&["small", "token"]).unwrap();
            let old = there.as_ref().and_then(|(row, _)| row.get(name));
            let other = random_row(rng, table).get(name).unwrap();
            let expected = old.clone().filter(|_| rng.bool()).unwrap_or_else(|| other.clone());
            let same = table.compare_and_set(&key, &column(name), &expected, &other).unwrap();
            assert_eq!(same, old.as_ref().map(|old| *old == expected));
            if same == Some(true) {
                model.entry(key).and_modify(|(row, _)| row.set(name, &other).unwrap());
            }
        }
        14 => {
            let ttl = rng.u64(1..50) * 100;
            let known = table.expire(&key, Duration::from_nanos(ttl)).unwrap();
            assert_eq!(known, there.is_some());
            model.entry(key).and_modify(|(_, expiry)| *expiry = now + ttl);
        }
        15 => {
            let had = there.is_some_and(|(_, expiry)| expiry != 0);
            assert_eq!(table.persist(&key).unwrap(), had);
            model.entry(key).and_modify(|(_, expiry)| *expiry = 0);
        }
        16 => {
            let left = |expiry: u64| (expiry != 0).then(|| Duration::from_nanos(expiry - now));
            assert_eq!(table.ttl(&key).unwrap(), there.map(|(_, expiry)| left(expiry)));
        }
        17 => {
            assert_eq!(table.contains(&key).unwrap(), there.is_some());
            assert_eq!(table.touch(&key).unwrap(), there.is_some());
            assert_eq!(table.idle(&key).unwrap(), there.map(|_| Duration::ZERO));
        }
        18 => {
            // In the steps of the times to live, so that it often is just the moment.
            let now = now + rng.u64(..5) * 100;
            clock.store(now, Relaxed);
            model.retain(|_, (_, expiry)| *expiry == 0 || *expiry > now);
        }
        _ if rng.u32(..2000) == 0 => {
            assert!(table.reset().unwrap() >= model.len() as u64);
            model.clear();
        }
        _ if rng.u32(..200) == 0 => {
            let mut cursor = 0;
            let mut seen = 0;
            loop {
                cursor = table.scan(cursor, 7, |scanned| {
                    let known = &model[&scanned.key];
                    assert_eq!((&scanned.row, scanned.expiry), (&known.0, known.1));
                    seen += 1;
                });
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(seen, model.len());
            assert_eq!(table.rows(), model.len() as u64);
            let keys: Vec<_> = (0..100u32).map(|n| n.to_string()).collect();
            let keys: Vec<_> = keys.iter().map(|key| key.as_bytes()).collect();
            let rows = table.get_many(&keys).unwrap();
            for (key, row) in keys.into_iter().zip(rows) {
                assert_eq!(row, model.get(key).map(|(row, _)| row.clone()));
            }
        }
        _ => {}
    }
}
