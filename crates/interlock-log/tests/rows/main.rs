//! All rows of a table: counts, expiry, forgotten keys and reported changes agree with the states.

mod commands;
mod driven;
mod hostile;
mod late;

use std::collections::BTreeMap;

use fastrand::Rng;
use interlock_log::codec::Reader;
use interlock_log::rows::Store;
use interlock_log::stamp::{self, Clock, Stamp};
use interlock_log::state::{Change, Rules, State};
use interlock_table::Value;

const NOW: u64 = 1_700_000_000_000;

fn rules() -> Rules {
    Rules::parse("n: U32, a: U8; sum, last; 4000 ms").unwrap()
}

fn change(chance: &mut Rng, now: u64) -> Change<'static> {
    let expires_at = if chance.bool() { now + chance.u64(..3000) } else { 0 };
    let value = Value::Unsigned(chance.u64(..100));
    match chance.u8(..10) {
        0..=2 => Change::Delete,
        3 => Change::Expire { at: expires_at },
        4..=6 => Change::Create { given: vec![(1, value)].leak(), expires_at },
        _ => Change::CreateBy { column: 0, value, expires_at },
    }
}

fn write(store: &mut Store, clock: &mut Clock, dc: &str, key: &[u8], change: &Change) {
    let now = store.time();
    let writer = stamp::writer(dc, 1);
    let stamp = Stamp { reading: clock.next(now), writer: &writer };
    let after = store.rules().apply(store.get(key), change, &stamp, now);
    if let Some(after) = after {
        store.put(key, &after, stamp.reading);
    }
}

fn again(store: &Store, tombstones: usize) -> Store {
    let mut bytes = Vec::new();
    store.encode(&mut bytes);
    let mut reader = Reader::new(&bytes);
    let read = Store::decode(store.rules().clone(), tombstones, &mut reader).unwrap();
    let mut written = Vec::new();
    read.encode(&mut written);
    assert_eq!((written, reader.left()), (bytes, 0));
    read
}

fn check(store: &Store, limit: usize) {
    let (now, rules) = (store.time(), store.rules());
    let mut counts = BTreeMap::<Vec<u8>, u64>::new();
    let (mut dead, mut last) = (0, 0);
    for row in store.all() {
        assert!(row.number > last);
        last = row.number;
        let life = rules.life(row.state);
        assert_eq!(store.is_alive(row.key), life.is_alive(now));
        assert_eq!(rules.view_of(Some(row.state), now).is_there(), life.is_alive(now));
        if life.is_alive(now) {
            *counts.entry(rules.origin(row.state).unwrap().to_vec()).or_default() += 1;
        } else {
            dead += 1;
        }
    }
    for dc in ["east", "west"] {
        assert_eq!(store.rows_of(dc), *counts.get(dc.as_bytes()).unwrap_or(&0));
    }
    assert_eq!(store.rows(), counts.values().sum::<u64>());
    assert_eq!(store.tombstones(), dead);
    assert!(dead <= limit && last <= store.changes());
}

#[test]
fn stores_with_the_same_calls_are_equal_also_over_a_checkpoint() {
    let (mut expired, mut dropped) = (0, 0);
    for seed in 0..150 {
        let mut chance = Rng::with_seed(seed);
        let limit = [3, 1000][chance.usize(..2)];
        let mut stores = [Store::new(rules(), limit), Store::new(rules(), limit)];
        let mut clocks = [Clock::default(); 2];
        let mut now = NOW;
        for _ in 0..200 {
            let most = if chance.u8(..) < 9 { 5 } else { 4 };
            now += [0, 0, 10, 300, 5000][chance.usize(..most)];
            let key = [b'k', chance.u8(..20)];
            let dc = ["east", "west"][chance.usize(..2)];
            let change = change(&mut chance, now);
            for (store, clock) in stores.iter_mut().zip(&mut clocks) {
                let rows = store.rows();
                store.advance(now);
                expired += rows - store.rows();
                write(store, clock, dc, &key, &change);
            }
            if chance.u8(..) < 30 {
                stores[1] = again(&stores[1], limit);
            }
            let [one, other] = &stores;
            assert_eq!(one.checksum(), other.checksum(), "seed {seed}");
            assert_eq!((one.changes(), one.newest()), (other.changes(), other.newest()));
            assert_eq!(one.next_due(), other.next_due());
        }
        check(&stores[0], limit);
        assert_eq!(stores[0].all(), stores[1].all(), "seed {seed}");
        let since = stores[0].changes() - chance.u64(..50);
        let found = stores[0].changed_since(since, usize::MAX);
        assert_eq!(found, stores[1].changed_since(since, usize::MAX));
        assert!(found.iter().all(|row| row.number > since));
        assert_eq!(found[..], stores[0].all()[stores[0].all().len() - found.len()..]);
        assert_eq!(stores[0].changed_since(since, 1), found[..found.len().min(1)]);
        dropped += stores[0].dropped();
    }
    assert!(expired > 1000 && dropped > 100, "{expired} {dropped}");
}

#[test]
fn what_is_told_of_changes_makes_another_store_equal() {
    for seed in 0..50 {
        let mut chance = Rng::with_seed(seed);
        let mut stores = [Store::new(rules(), 1000), Store::new(rules(), 1000)];
        let (mut clocks, mut told) = ([Clock::default(); 2], [0; 2]);
        let mut now = NOW;
        for step in 0..300 {
            now += chance.u64(..5);
            let at = chance.usize(..2);
            stores.iter_mut().for_each(|store| store.advance(now));
            if step < 280 {
                let key = [b'k', chance.u8(..20)];
                let change = change(&mut chance, now);
                write(&mut stores[at], &mut clocks[at], ["east", "west"][at], &key, &change);
            }
            let most = if step < 280 { chance.usize(..5) } else { usize::MAX };
            let changed: Vec<_> = stores[at]
                .changed_since(told[at], most)
                .iter()
                .map(|row| (row.number, row.key.to_vec(), row.state.to_vec()))
                .collect();
            for (number, key, state) in changed {
                let there = &mut stores[1 - at];
                let state = there.rules().check(&state).unwrap();
                if let Some(joined) = joined(there, &key, &state) {
                    let newest = stamp::reading(there.rules().newest(&state));
                    clocks[1 - at].saw(newest);
                    there.put(&key, &joined, newest);
                }
                told[at] = number;
            }
        }
        assert_eq!(stores[0].checksum(), stores[1].checksum(), "seed {seed}");
        assert_eq!(stores[0].rows(), stores[1].rows());
    }
}

fn joined(store: &Store, key: &[u8], state: &State) -> Option<State> {
    match store.get(key) {
        Some(ours) => store.rules().join_bytes(ours, state),
        None => Some(state.clone()),
    }
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    let mut store = Store::new(rules(), 1000);
    let (mut clock, mut chance) = (Clock::default(), Rng::with_seed(1));
    for number in 0..50 {
        store.advance(NOW + number);
        let change = change(&mut chance, NOW + number);
        write(&mut store, &mut clock, "east", &[number as u8 % 20], &change);
    }
    let mut bytes = Vec::new();
    store.encode(&mut bytes);
    for cut in 0..bytes.len() {
        assert!(Store::decode(rules(), 1000, &mut Reader::new(&bytes[..cut])).is_err(), "{cut}");
    }
    for _ in 0..20_000 {
        let mut forged = bytes.clone();
        for _ in 0..chance.usize(1..3) {
            forged[chance.usize(..bytes.len())] = chance.u8(..);
        }
        if let Ok(read) = Store::decode(rules(), 1000, &mut Reader::new(&forged)) {
            check(&read, 1000);
        }
    }
}
