//! Sums at the ends of their range.

use crate::common::Place;
use interlock_table::table::change::Overflow;
use interlock_table::table::change::Overflow::{Refuse, Saturate, Wrap};
use interlock_table::table::Options;
use interlock_table::{By, Error, Row, Value};

#[test]
fn a_sum_beyond_its_range_is_refused_wrapped_or_saturated() {
    let place = Place::new("sums");
    let schema =
        "u8: U8, i8: I8, u32: U32, u64: U64, i64: I64, f32: F32, f64: F64, on: bool, s: str[4]";
    let table = place.open(schema, &Options { capacity: 1, ..Options::default() });
    let u = Value::Unsigned;
    let i = Value::Signed;
    let f = Value::Float;
    let add = |n: i128| By::Integer(n);
    let cases: Vec<(&str, Value, By, Overflow, Option<Value>)> = vec![
        ("u8", u(250), add(5), Refuse, Some(u(255))),
        ("u8", u(250), add(6), Refuse, None),
        ("u8", u(250), add(6), Wrap, Some(u(0))),
        ("u8", u(250), add(1000), Saturate, Some(u(255))),
        ("u8", u(3), add(-4), Refuse, None),
        ("u8", u(3), add(-4), Wrap, Some(u(255))),
        ("u8", u(3), add(-4), Saturate, Some(u(0))),
        ("i8", i(-128), add(-1), Refuse, None),
        ("i8", i(-128), add(-1), Wrap, Some(i(127))),
        ("i8", i(100), add(i128::MAX), Saturate, Some(i(127))),
        ("u32", u(u32::MAX.into()), add(1), Refuse, None),
        ("u32", u(u32::MAX.into()), add(1), Wrap, Some(u(0))),
        ("u64", u(u64::MAX), add(1), Refuse, None),
        ("u64", u(u64::MAX), add(2), Wrap, Some(u(1))),
        ("u64", u(0), add(u64::MAX.into()), Refuse, Some(u(u64::MAX))),
        ("i64", i(i64::MIN), add(-1), Wrap, Some(i(i64::MAX))),
        ("f32", f(1.5), By::Float(0.25), Refuse, Some(f(1.75))),
        ("f32", f(f32::MAX.into()), By::Float(f32::MAX.into()), Refuse, None),
        ("f32", f(f32::MAX.into()), By::Float(f32::MAX.into()), Saturate, Some(f(f32::MAX.into()))),
        ("f64", f(f64::MAX), By::Float(f64::MAX), Wrap, None),
        ("f64", f(0.5), add(2), Refuse, Some(f(2.5))),
    ];
    let schema = table.schema().clone();
    for (name, before, by, overflow, after) in cases {
        let column = schema.column(name).unwrap();
        // The neighbours of a word stay as they are.
        let mut row = Row::new(&schema);
        for other in schema.columns() {
            let ones = match other.kind {
                _ if other.name == name => continue,
                interlock_table::Kind::Bool => Value::Bool(true),
                kind if kind.is_sized() => Value::Str("four".into()),
                interlock_table::Kind::F32 | interlock_table::Kind::F64 => f(-1.0),
                _ if other.name.starts_with('i') => i(-1),
                _ => u(255),
            };
            row.set(&other.name, &ones).unwrap();
        }
        row.set(name, &before).unwrap();
        table.set(b"key", &row).unwrap();
        let sum = table.incr(b"key", column, by, overflow);
        match &after {
            Some(after) => {
                assert_eq!(sum.unwrap().as_ref(), Some(after), "{name} {before:?} {by:?}");
                row.set(name, after).unwrap();
            }
            None => assert!(matches!(sum, Err(Error::Overflow { .. })), "{name} {before:?} {by:?}"),
        }
        assert_eq!(table.get(b"key").unwrap(), Some(row), "{name}");
    }
    for name in ["on", "s"] {
        let column = schema.column(name).unwrap();
        let sum = table.incr(b"key", column, add(1), Refuse);
        assert!(matches!(sum, Err(Error::Value { .. })), "{name}");
    }
    assert_eq!(table.incr(b"nobody", schema.column("u8").unwrap(), add(1), Refuse).unwrap(), None);
}

#[test]
fn a_string_that_is_too_long_leaves_the_row_as_it_was() {
    let place = Place::new("long");
    let table = place.open("a: U8, s: str[4]", &Options { capacity: 1, ..Options::default() });
    let schema = table.schema().clone();
    let row = Row::new(&schema).with("s", &Value::Str("abcd".into())).unwrap();
    table.set(b"key", &row).unwrap();
    let (a, s) = (schema.column("a").unwrap(), schema.column("s").unwrap());
    let long = Value::Str("abcde".into());
    let one = Value::Unsigned(1);
    assert!(matches!(table.set_column(b"key", s, &long), Err(Error::Value { .. })));
    assert!(matches!(table.patch(b"key", &[(a, &one), (s, &long)]), Err(Error::Value { .. })));
    assert_eq!(table.get(b"key").unwrap(), Some(row));
    assert_eq!(table.statistics().held, 0);
}
