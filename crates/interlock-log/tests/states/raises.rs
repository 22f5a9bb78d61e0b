//! Raising a sum in place has the same result as any other raise.

use fastrand::Rng;
use interlock_log::stamp::{self, Clock, Stamp};
use interlock_log::state::{Change, Rules, State};
use interlock_table::{By, Overflow, Value};

const NOW: u64 = 1_700_000_000_000;

#[test]
fn raised_in_place_is_raised() {
    let rules =
        Rules::parse("n: U32, a: U8, s: I16, f: F64; sum, last, sum, sum; 4000 ms").unwrap();
    let (mut in_place, mut refused) = (0, 0);
    for seed in 0..200 {
        let (mut chance, mut clock) = (Rng::with_seed(seed), Clock::default());
        let mut states: [Option<State>; 2] = [None, None];
        let mut now = NOW;
        for _ in 0..150 {
            now += chance.u64(..400);
            let (at, dc) = (chance.usize(..2), ["east", "west"][chance.usize(..2)]);
            let most = [2, 12][chance.usize(..2)];
            let lineage = chance.u64(1..most);
            let writer = stamp::writer(dc, lineage);
            let stamp = Stamp { reading: clock.next(now), writer: &writer };
            let (column, bits) = (chance.usize(..4), chance.u8(..16));
            let by = By::Integer(chance.i128(-40_000..40_000) >> bits);
            let view = rules.view(states[at].as_ref(), now);
            if !view.is_there() || chance.u8(..) < 20 {
                let value = Value::Unsigned(chance.u64(..100));
                let given = &[(chance.usize(..2), value)];
                let expires_at = if chance.bool() { now + 3000 } else { 0 };
                let change = match chance.u8(..3) {
                    0 => Change::Delete,
                    _ => Change::Replace { given, expires_at },
                };
                let change =
                    if view.is_there() { change } else { Change::Create { given, expires_at } };
                drop(view);
                let before = states[at].as_ref().map(State::as_bytes);
                if let Some(after) = rules.apply(before, &change, &stamp, now) {
                    states[at] = Some(after);
                }
                continue;
            }
            let declared = &rules.schema().columns()[column];
            let overflow =
                [Overflow::Refuse, Overflow::Wrap, Overflow::Saturate][chance.usize(..3)];
            let to = declared.raised(&view.value(column), by, overflow).ok();
            drop(view);
            let before = states[at].clone().unwrap();
            let mut bytes = before.as_bytes().to_vec();
            let shown = rules.raise_in_place(&mut bytes, column, now, &stamp, |shown| {
                declared.raised(shown, by, overflow).ok()
            });
            let Some(to) = to else {
                assert_eq!((shown, &bytes[..]), (None, before.as_bytes()));
                refused += 1;
                continue;
            };
            let after =
                rules.apply(Some(before.as_bytes()), &Change::Raise { column, to }, &stamp, now);
            let after = after.unwrap_or(before.clone());
            match shown {
                Some(shown) => {
                    assert_eq!(bytes, after.as_bytes(), "seed {seed}");
                    assert_eq!(shown, rules.view(Some(&after), now).value(column), "seed {seed}");
                    in_place += 1;
                }
                None => assert_eq!(bytes, before.as_bytes(), "seed {seed}"),
            }
            states[at] = Some(after);
            if chance.u8(..) < 30 {
                let [ours, theirs] = &states;
                if let (Some(ours), Some(theirs)) = (ours, theirs) {
                    let joined = rules.join_bytes(ours.as_bytes(), theirs);
                    states[chance.usize(..2)] = Some(joined.unwrap_or(ours.clone()));
                }
            }
        }
    }
    assert!(in_place > 1_000 && refused > 1_000, "{in_place} {refused}");
}
