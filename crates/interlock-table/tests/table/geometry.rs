//! Load that a table reaches before it overwrites, and what it overwrites then.

use std::sync::atomic::Ordering::Relaxed;

use crate::common::{manual, Place};
use interlock_table::table::{Options, Ttl, Where};
use interlock_table::{Error, Table};

fn set(table: &Table, key: &[u8], ttl: Ttl) -> Result<(), Error> {
    table.write(key, &[0], ttl, Where::Anywhere).map(|_| ())
}

#[test]
fn no_live_row_is_overwritten_before_99_percent_are_full() {
    for capacity in [100_000, 300_000] {
        let place = Place::new("load");
        let table = place.open("a: U64", &Options { capacity, key_size: 8, ..Options::default() });
        let slots = table.statistics().slots();
        let mut inserted = 0u64;
        // Counting would take longer than all else.
        while inserted < slots * 98 / 100 || table.statistics().overwritten == 0 {
            let batch = if inserted < slots * 98 / 100 { slots * 98 / 100 } else { slots / 2000 };
            for _ in 0..batch {
                set(&table, &inserted.to_le_bytes(), Ttl::Usual).unwrap();
                inserted += 1;
            }
        }
        let statistics = table.statistics();
        let load = (inserted - slots / 2000) as f64 / slots as f64;
        println!("{capacity}: first overwritten behind {load:.4}, {} moves", statistics.moves);
        // Each table has keys of its own for its hash: 60 tables of each size were between 0.992 and 0.994.
        assert!(load >= 0.99, "{capacity}: {load}");
        assert_eq!(statistics.rows() + statistics.overwritten, inserted);
        assert_eq!(statistics.highest_level(), 4);
        let reads = statistics.levels.iter().map(|(_, live)| *live as f64 / inserted as f64);
        let buckets: f64 = reads.enumerate().map(|(level, part)| (level + 1) as f64 * part).sum();
        println!("{capacity}: a hit reads {buckets:.3} buckets when it is full");
    }
}

#[test]
fn a_full_table_refuses_rows_if_configured_and_a_small_one_holds_its_capacity() {
    for capacity in [1, 5, 50, 500] {
        let place = Place::new("small");
        let options = Options { capacity, evict: false, ..Options::default() };
        let table = place.open("a: U64", &options);
        let mut inserted = 0u64;
        let error = loop {
            match set(&table, &inserted.to_le_bytes(), Ttl::Usual) {
                Ok(()) => inserted += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::TableFull), "{error}");
        assert!(inserted >= capacity, "{inserted} of {capacity}");
        assert_eq!(table.rows(), inserted);
        (0..inserted).for_each(|n| assert!(table.contains(&n.to_le_bytes()).unwrap()));
        assert!(table.delete(&0u64.to_le_bytes()).unwrap());
        set(&table, &0u64.to_le_bytes(), Ttl::Usual).unwrap();
        assert_eq!(table.statistics().held, 0);
    }
}

#[test]
fn expired_rows_are_evicted_first_and_then_the_least_recently_used() {
    let (clock, now) = manual();
    let place = Place::new("oldest");
    let table = place.open("a: U64", &Options { capacity: 1, clock, ..Options::default() });
    let second = 1_000_000_000;
    let slots = table.statistics().slots();
    for n in 0..slots * 4 {
        now.fetch_add(second, Relaxed);
        set(&table, &n.to_le_bytes(), Ttl::Usual).unwrap();
    }
    // All are full, or nearly; these are looked at, and stay.
    let full = table.statistics();
    assert!(full.rows() * 100 >= full.slots() * 95 && full.overwritten > slots * 2);
    let mut kept = Vec::new();
    now.fetch_add(second, Relaxed);
    table.scan(0, 20, |scanned| kept.push(scanned.key));
    for n in 0..slots / 4 {
        now.fetch_add(second, Relaxed);
        kept.iter().for_each(|key| assert!(table.get(key).unwrap().is_some()));
        set(&table, &(1 << 40 | n).to_le_bytes(), Ttl::Usual).unwrap();
    }
    // Half expire: nothing live is overwritten as long as there is one of them among the candidates.
    let mut keys = Vec::new();
    table.scan(0, usize::MAX, |scanned| keys.push(scanned.key));
    for key in keys.iter().step_by(2) {
        assert!(table.expire(key, std::time::Duration::from_nanos(5)).unwrap());
    }
    now.fetch_add(second, Relaxed);
    let before = table.statistics();
    assert!(before.expired > slots / 3);
    (0..slots / 4).for_each(|n| set(&table, &(1 << 41 | n).to_le_bytes(), Ttl::Usual).unwrap());
    let after = table.statistics();
    assert_eq!(after.overwritten, before.overwritten);
    assert!(after.overwritten_expired > before.overwritten_expired);
}
