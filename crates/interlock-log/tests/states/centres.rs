//! One row in several data centres that change it and receive each other's changes at random.

use fastrand::Rng;
use interlock_log::stamp::{self, Clock, Stamp};
use interlock_log::state::{Change, Rules, State};
use interlock_table::{Kind, Value};

pub const NOW: u64 = 1_700_000_000_000;
pub const AGE_MS: u64 = 4000;
pub const TABLES: [&str; 4] = [
    "a: U8, n: I8, top: U8, bits: U16, m: U16; last, sum, max, flags, sum; 4000 ms",
    "f: F64, g: F32, h: F64, i: F32; sum, sum, max, max; 4000 ms",
    "t: str[9], x: bytes[5], b: bool, c: bool, d: F64, e: U64; last, last, last, max, last, sum; \
     4000 ms",
    "n: I64; sum; 4000 ms",
];

pub fn times() -> usize {
    std::env::var("INTERLOCK_STATES")
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(1)
        .min(1000)
}

pub struct Centre {
    pub dc: &'static str,
    pub lineage: u64,
    pub clock: Clock,
    pub state: Option<State>,
}

impl Centre {
    pub fn new(dc: &'static str) -> Centre {
        Centre { dc, lineage: 1, clock: Clock::default(), state: None }
    }

    pub fn join(&mut self, rules: &Rules, theirs: &State) {
        if let Some(joined) = rules.join(self.state.as_ref(), theirs) {
            self.state = Some(joined);
        }
        self.clock.saw(stamp::reading(rules.newest(theirs)));
    }

    /// Changes the row at random; returns the change, if there was one.
    pub fn write(&mut self, rules: &Rules, chance: &mut Rng, now: u64) -> Option<State> {
        if chance.u8(..) < 25 {
            // A lineage is later than all earlier stamps.
            self.lineage = self.clock.last() + 1;
        }
        let writer = stamp::writer(self.dc, self.lineage);
        let stamp = Stamp { reading: self.clock.next(now), writer: &writer };
        let change = change(rules, chance, now);
        let state = self.state.clone();
        let before = state.as_ref().map(State::as_bytes);
        // A lost change that is done late has an old stamp.
        let reading = stamp.reading.saturating_sub(chance.u64(..1 << 22));
        for stamp in [Stamp { reading, writer: &writer }, stamp] {
            let delta = rules.delta(before, &change, &stamp, now);
            let joined = delta.as_ref().and_then(|delta| rules.join(state.as_ref(), delta));
            assert_eq!(rules.apply(before, &change, &stamp, now), joined, "{change:?}");
        }
        let delta = rules.delta(before, &change, &stamp, now)?;
        self.join(rules, &delta);
        Some(delta)
    }

    pub fn shown<'a>(&'a self, rules: &'a Rules, now: u64) -> Option<Vec<String>> {
        let values = rules.view(self.state.as_ref(), now).values()?;
        Some(values.iter().map(|value| format!("{value:?}")).collect())
    }
}

pub fn change(rules: &Rules, chance: &mut Rng, now: u64) -> Change<'static> {
    let expires_at = if chance.u8(..) < 60 { now + chance.u64(..6000) } else { 0 };
    match chance.u8(..100) {
        ..=5 => Change::Delete,
        6..=12 => Change::Expire { at: expires_at },
        13..=30 => Change::Create { given: values(rules, chance).leak(), expires_at },
        31..=50 => Change::Patch { given: values(rules, chance).leak() },
        // If a column is given twice, the last value counts.
        51..=55 => {
            let given = [values(rules, chance), values(rules, chance)].concat();
            Change::Patch { given: given.leak() }
        }
        _ => {
            let (column, value) = values(rules, chance).remove(0);
            match value {
                Value::Str(_) | Value::Bytes(_) | Value::Bool(_) => {
                    Change::Patch { given: vec![(column, value)].leak() }
                }
                to if chance.bool() => Change::Raise { column, to },
                value => Change::CreateBy { column, value, expires_at },
            }
        }
    }
}

fn values(rules: &Rules, chance: &mut Rng) -> Vec<(usize, Value<'static>)> {
    let columns = rules.schema().columns();
    let count = chance.usize(1..=columns.len());
    let mut numbers: Vec<_> = (0..columns.len()).collect();
    chance.shuffle(&mut numbers);
    numbers.truncate(count);
    numbers.into_iter().map(|number| (number, value(columns[number].kind, chance))).collect()
}

fn value(kind: Kind, chance: &mut Rng) -> Value<'static> {
    let floats = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e16, -0.5, 3.0];
    let bits = kind.bytes() as u32 * 8;
    match kind {
        Kind::F32 | Kind::F64 => Value::Float(f64::from(floats[chance.usize(..8)] as f32)),
        Kind::Bool => Value::Bool(chance.bool()),
        Kind::Str(_) => Value::Str(["", "a", "ä", "abcdefghi"][chance.usize(..4)].into()),
        Kind::Bytes(_) => Value::Bytes(vec![7; chance.usize(..6)].into()),
        Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => {
            Value::Unsigned([0, 1, u64::MAX, chance.u64(..)][chance.usize(..4)] >> (64 - bits))
        }
        Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => Value::Signed(
            [0, -1, i64::MIN, i64::MAX, chance.i64(..)][chance.usize(..5)] >> (64 - bits),
        ),
    }
}
