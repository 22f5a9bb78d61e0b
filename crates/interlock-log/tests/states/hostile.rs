//! Bytes from outside are refused, or are a state that can be joined with any other.

use fastrand::Rng;
use interlock_log::stamp::{self, Stamp};
use interlock_log::state::{Change, Merge, Rules, State};
use interlock_table::Value;

use crate::centres::{times, Centre, NOW, TABLES};

#[test]
fn forged_states_are_refused_or_can_be_joined_shown_and_changed() {
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..60 * times() as u64 {
        let rules = Rules::parse(TABLES[seed as usize % TABLES.len()]).unwrap();
        let mut chance = Rng::with_seed(seed);
        let mut centres = ["east", "west"].map(Centre::new);
        let mut states: Vec<State> = Vec::new();
        for step in 0..30 {
            let (at, from) = (chance.usize(..2), chance.usize(..2));
            if let Some(state) = centres[from].state.clone() {
                centres[at].join(&rules, &state);
            }
            states.extend(centres[at].write(&rules, &mut chance, NOW + step * 200));
            states.extend(centres[at].state.clone());
        }
        for _ in 0..3000 {
            let mut bytes = states[chance.usize(..states.len())].as_bytes().to_vec();
            for _ in 0..chance.usize(1..4) {
                let at = chance.usize(..bytes.len());
                match chance.u8(..6) {
                    0 => bytes[at] = chance.u8(..),
                    1 => bytes[at] = [0xC0, 0xC4, 0x90, 0xDD, 0xCF, 0xD9, 1, 2][chance.usize(..8)],
                    2 => bytes.truncate(at.max(1)),
                    3 => bytes.insert(at, chance.u8(..)),
                    4 => bytes[at] ^= 1 << chance.u8(..8),
                    _ => {
                        bytes.remove(at);
                        bytes.push(0);
                    }
                }
            }
            let Ok(forged) = rules.check(&bytes) else {
                refused += 1;
                continue;
            };
            taken += 1;
            assert_eq!(forged.as_bytes(), bytes);
            let other = &states[chance.usize(..states.len())];
            let joined = rules.join(Some(&forged), other).unwrap_or(forged.clone());
            let writer = stamp::writer("east", 99);
            let reading = stamp::reading(rules.newest(&joined)) + 1;
            let stamp = Stamp { reading: reading.min(stamp::READINGS - 1), writer: &writer };
            let change = crate::centres::change(&rules, &mut chance, NOW);
            let after = rules.apply(Some(joined.as_bytes()), &change, &stamp, NOW);
            for state in [&joined, after.as_ref().unwrap_or(&joined)] {
                assert_eq!(rules.check(state.as_bytes()).as_ref(), Ok(state), "{change:?}");
                rules.view(Some(state), NOW).values();
                rules.life(state.as_bytes());
            }
        }
        for _ in 0..3000 {
            let bytes: Vec<_> = (0..chance.usize(..40)).map(|_| chance.u8(..)).collect();
            refused += usize::from(rules.check(&bytes).is_err());
            // Invalid bytes that are trusted give a wrong answer, but no panic.
            let state = rules.trust(bytes.into());
            rules.view(Some(&state), NOW).values();
            let _ = (rules.life(state.as_bytes()), rules.newest(&state));
        }
    }
    assert!(taken > 500 && refused > 100_000, "{taken} {refused}");
}

#[test]
fn stamps_that_are_no_text_or_beyond_all_clocks_are_refused() {
    let rules = Rules::parse("a: U8; last; 1000 ms").unwrap();
    let set = |reading, writer| {
        let given = &[(0, Value::Unsigned(7))];
        let change = Change::Create { given, expires_at: 0 };
        rules.delta(None, &change, &Stamp { reading, writer }, NOW).unwrap()
    };
    let state = set(stamp::hybrid(NOW), "east.1");
    assert!(rules.check(state.as_bytes()).is_ok());
    let at = state.as_bytes().windows(4).position(|four| four == b"east").unwrap();
    for byte in [0xFF, 0xC3, b' ', b'/', 0] {
        let mut bytes = state.as_bytes().to_vec();
        bytes[at + 1] = byte;
        assert!(rules.check(&bytes).is_err(), "{byte}");
    }
    for (reading, writer) in [
        (stamp::READINGS, "east.1"),
        (u64::MAX, "east"),
        (5, ""),
        (5, "east."),
        (5, "east.01"),
        (5, "a-name-that-is-longer-than-32-bytes"),
    ] {
        assert!(rules.check(set(reading, writer).as_bytes()).is_err(), "{reading} {writer}");
    }
}

#[test]
fn what_are_no_rules_is_refused() {
    for text in [
        "",
        "a: U8; last",
        "a: U8; last; 0 ms",
        "a: U8; last; 5 s",
        "a: U8; first; 5 ms",
        "a: U8; last, last; 5 ms",
        "a: str[5]; sum; 5 ms",
        "a: bool; sum; 5 ms",
        "a: I8; flags; 5 ms",
        "a: bytes[5]; max; 5 ms",
        "a: F64; flags; 5 ms",
    ] {
        assert!(Rules::parse(text).is_err(), "{text}");
    }
    assert_eq!(Merge::of("max"), Some(Merge::Max));
}
