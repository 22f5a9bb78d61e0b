//! A row is looked at and changed in one step.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use interlock_table::table::Options;
use interlock_table::{Change, Error, Given, Seen, Table, Value};

use crate::common::{manual, number, seed, Place};

const SCHEMA: &str = "a: U32, b: U64, c: I8, d: bool, e: str[9], f: F64";
/// So large that a row has no room on the stack.
const WIDE: &str = "a: U32, b: U64, c: I8, d: bool, e: str[9], f: F64, g: bytes[600]";

/// The rows: their values, and when they expire.
type Model = HashMap<Vec<u8>, (Vec<Value<'static>>, u64)>;

fn zero() -> Vec<Value<'static>> {
    let (number, text) = (Value::Unsigned(0), Value::Str("".into()));
    vec![number.clone(), number, Value::Signed(0), Value::Bool(false), text, Value::Float(0.0)]
}

fn values(table: &Table, seen: &Seen<'_>) -> Vec<Value<'static>> {
    table.schema().columns()[..6].iter().map(|column| seen.value(column)).collect()
}

#[test]
fn random_changes_are_applied_as_described() {
    for schema in [SCHEMA, WIDE] {
        random_changes(schema);
    }
}

fn random_changes(schema: &str) {
    let (place, (clock, now)) = (Place::new("decide"), manual());
    let table = place.open(schema, &Options { capacity: 100, clock, ..Options::default() });
    let mut random = fastrand::Rng::with_seed(seed());
    let mut model = Model::new();
    for _ in 0..number("INTERLOCK_OPS", 30_000).min(30_000) {
        let key = vec![b'a' + random.u8(0..5)];
        if random.u8(0..20) == 0 {
            now.fetch_add(random.u64(0..1000), Relaxed);
        }
        let time = table.now();
        model.retain(|_, (_, expiry)| *expiry == 0 || *expiry > time);
        let expires_at = if random.bool() { 0 } else { time + random.u64(0..2000) };
        let given: Vec<Given<'_>> = (0..random.usize(0..4))
            .map(|_| match random.usize(0..6) {
                0 => (0, Value::Unsigned(random.u32(..).into())),
                1 => (1, Value::Unsigned(random.u64(..))),
                2 => (2, Value::Signed(random.i8(..).into())),
                3 => (3, Value::Bool(random.bool())),
                4 => (4, Value::Str("häßlich"[..random.usize(0..2)].to_owned().into())),
                _ => (5, Value::Float(random.f64())),
            })
            .collect();
        let (column, value) = (1, Value::Unsigned(random.u64(..)));
        let there = model.contains_key(&key);
        let change = match (there, random.u8(0..5)) {
            (_, 0) => None,
            (false, 1 | 2) => Some(Change::CreateBy { column, value: value.clone(), expires_at }),
            (false, _) => Some(Change::Create { given: &given, expires_at }),
            (true, 1) => Some(Change::Replace { given: &given, expires_at }),
            (true, 2) => Some(Change::Patch { given: &given }),
            (true, 3) => Some(Change::Raise { column, to: value.clone() }),
            (true, _) if random.bool() => Some(Change::Expire { at: expires_at }),
            (true, _) => Some(Change::Delete),
        };
        let mut told = None;
        let done = table.decide(&key, |seen, to| {
            told = seen.is_there().then(|| (values(&table, seen), seen.left()));
            to.clone_from(&change);
        });
        done.unwrap();
        let before = model.get(&key).map(|(values, expiry)| {
            let left = (*expiry != 0).then(|| std::time::Duration::from_nanos(expiry - time));
            (values.clone(), left)
        });
        assert_eq!(told, before, "{change:?}");
        let mut after = model.remove(&key);
        let set = |row: &mut Vec<Value<'static>>, given: &[Given<'_>]| {
            for (column, value) in given {
                row[*column] = match value {
                    Value::Str(text) => Value::Str(text.to_string().into()),
                    Value::Unsigned(number) => Value::Unsigned(*number),
                    Value::Signed(number) => Value::Signed(*number),
                    Value::Float(number) => Value::Float(*number),
                    Value::Bool(truth) => Value::Bool(*truth),
                    Value::Bytes(_) => unreachable!(),
                }
            }
        };
        match change {
            None => {}
            Some(Change::Delete) => after = None,
            Some(Change::Create { given, expires_at } | Change::Replace { given, expires_at }) => {
                let mut row = zero();
                set(&mut row, given);
                after = Some((row, expires_at));
            }
            Some(Change::CreateBy { column, value, expires_at }) => {
                let mut row = zero();
                set(&mut row, &[(column, value)]);
                after = Some((row, expires_at));
            }
            Some(Change::Patch { given }) => set(&mut after.as_mut().unwrap().0, given),
            Some(Change::Raise { column, to }) => {
                set(&mut after.as_mut().unwrap().0, &[(column, to)]);
            }
            Some(Change::Expire { at }) => after.as_mut().unwrap().1 = at,
        }
        if let Some(after) = after.filter(|(_, expiry)| *expiry == 0 || *expiry > time) {
            model.insert(key.clone(), after);
        }
        let found = table.look(&key, |seen| seen.is_there().then(|| values(&table, seen))).unwrap();
        assert_eq!(found, model.get(&key).map(|(values, _)| values.clone()));
    }
}

#[test]
fn an_invalid_change_changes_nothing() {
    let place = Place::new("decide");
    let table = place.open(SCHEMA, &Options { capacity: 100, ..Options::default() });
    let pair = [(0, Value::Unsigned(1))];
    let create = Change::Create { given: &pair, expires_at: 0 };
    let refused = |change: &Change<'_>| {
        let done = table.decide(b"k", |_, to| *to = Some(change.clone()));
        assert!(matches!(done, Err(Error::Invalid(_) | Error::Value { .. })), "{change:?}");
    };
    for change in [
        Change::Delete,
        Change::Expire { at: 1 },
        Change::Raise { column: 0, to: Value::Unsigned(1) },
        Change::Patch { given: &pair },
        Change::Replace { given: &pair, expires_at: 0 },
        Change::Create { given: &[(0, Value::Signed(-1))], expires_at: 0 },
        Change::Create { given: &[(6, Value::Signed(1))], expires_at: 0 },
    ] {
        refused(&change);
    }
    assert!(!table.contains(b"k").unwrap());
    table.decide(b"k", |_, to| *to = Some(create.clone())).unwrap();
    let before = table.get(b"k").unwrap();
    for change in [
        create,
        Change::CreateBy { column: 0, value: Value::Unsigned(1), expires_at: 0 },
        Change::Raise { column: 2, to: Value::Signed(200) },
        Change::Patch { given: &[(0, Value::Unsigned(2)), (4, Value::Str("0123456789".into()))] },
        Change::Replace { given: &[(3, Value::Unsigned(2))], expires_at: 0 },
        Change::Raise { column: 6, to: Value::Signed(0) },
    ] {
        refused(&change);
    }
    assert_eq!(table.get(b"k").unwrap(), before);
}

/// Threads raise, delete and rewrite rows; each counts the results it got.
#[test]
fn a_decision_still_holds_when_it_is_written() {
    let place = Place::new("decide");
    let table = place.open(SCHEMA, &Options { capacity: 100, ..Options::default() });
    let (raised, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let columns = table.schema().columns();
    let both = |seen: &Seen<'_>| match (seen.value(&columns[0]), seen.value(&columns[1])) {
        (Value::Unsigned(one), Value::Unsigned(other)) => (one, other),
        other => panic!("{other:?}"),
    };
    let turns = number("INTERLOCK_OPS", 40_000).min(40_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (table, raised, taken) = (&table, &raised, &taken);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for _ in 0..turns {
                    let key = [b'a' + random.u8(0..2)];
                    let what = random.u8(0..8);
                    let mut told = (0, 0);
                    let done = table.decide(&key, |seen, to| {
                        let decided = match (seen.is_there().then(|| both(seen)), what) {
                            (None, 0) => (None, (0, 0)),
                            (None, _) => {
                                let value = Value::Unsigned(1);
                                (Some(Change::CreateBy { column: 1, value, expires_at: 0 }), (1, 0))
                            }
                            (Some((_, sum)), 0) => (Some(Change::Delete), (0, sum)),
                            (Some((_, sum)), 1) => {
                                let given = &[(0, Value::Unsigned(7)), (3, Value::Bool(true))];
                                // The sum begins anew, and what it was is taken.
                                (Some(Change::Replace { given, expires_at: 0 }), (0, sum))
                            }
                            (Some((_, sum)), _) => {
                                let to = Value::Unsigned(sum + 1);
                                (Some(Change::Raise { column: 1, to }), (1, 0))
                            }
                        };
                        (*to, told) = decided;
                    });
                    done.unwrap();
                    let (more, less) = told;
                    raised.fetch_add(more, Relaxed);
                    taken.fetch_add(less, Relaxed);
                }
            });
        }
    });
    let mut left = 0;
    for key in [b"a", b"b"] {
        left += table.look(key, |seen| both(seen).1).unwrap();
    }
    assert_eq!(raised.into_inner(), taken.into_inner() + left);
}
