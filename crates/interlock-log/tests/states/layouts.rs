//! States written for another row class.

use interlock_log::stamp::{hybrid, Stamp};
use interlock_log::state::{Change, Rules, State};
use interlock_table::Value;

const AGE: u64 = 1000;

fn rules(columns: &str, merges: &str) -> Rules {
    Rules::parse(&format!("{columns}; {merges}; {AGE} ms")).unwrap()
}

fn made(rules: &Rules, values: Vec<Value<'static>>) -> State {
    let given: Vec<_> = values.into_iter().enumerate().collect();
    let stamp = Stamp { reading: hybrid(5), writer: "a.1" };
    rules.apply(None, &Change::Create { given: &given, expires_at: 9 }, &stamp, 5).unwrap()
}

#[test]
fn columns_come_go_move_and_widen() {
    let then = rules("app: U32, gone: bool, unread: U8, text: str[8]", "last, last, sum, last");
    let now = rules(
        "text: str[9], new: U16, unread: U32, app: I64, gone: U8",
        "last, last, sum, last, flags",
    );
    let text = || Value::Str("t".into());
    let row = vec![Value::Unsigned(7), Value::Bool(true), Value::Unsigned(200), text()];
    let state = made(&then, row);
    let layout = now.layout_of(&then.layout()).unwrap();
    let state = now.relaid(&layout, state.as_bytes()).unwrap();
    let view = now.view(Some(&state), 8);
    let zero = Value::Unsigned(0);
    let wanted = [text(), zero.clone(), Value::Unsigned(200), Value::Signed(7), zero];
    assert_eq!(view.values().unwrap(), wanted);
    assert_eq!(view.expires_at(), 9);
    // States of the current layout stay the same.
    let same = now.layout_of(&now.layout()).unwrap();
    assert_eq!(now.relaid(&same, state.as_bytes()).unwrap(), state);
}

#[test]
fn a_value_that_a_column_cannot_hold_any_more_is_refused_by_its_name() {
    for (then, now, value) in [
        ("n: U32", "n: U8", Value::Unsigned(256)),
        ("n: I8", "n: U8", Value::Signed(-1)),
        ("n: str[8]", "n: str[4]", Value::Str("12345".into())),
        ("n: F64", "n: F32", Value::Float(0.1)),
    ] {
        let (then, now) = (rules(then, "last"), rules(now, "last"));
        let layout = now.layout_of(&then.layout()).unwrap();
        let error = now.relaid(&layout, made(&then, vec![value]).as_bytes()).unwrap_err();
        assert!(error.0.contains("column n "), "{error}");
    }
    let one = rules("n: U8", "last");
    assert!(one.layout_of("n: U8").is_err() && one.layout_of("n: U8; other").is_err());
    let layout = one.layout_of(&one.layout()).unwrap();
    assert!(one.relaid(&layout, b"\x91\x00").is_err());
}
