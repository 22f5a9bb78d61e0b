//! The number of rows, which is known without looking at them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fastrand::Rng;
use interlock_table::table::{Options, Ttl, Where};
use interlock_table::Table;

use crate::common::{manual, seed, Place};

fn small(place: &Place, capacity: u64) -> Table {
    let options = Options { capacity, key_size: 8, ..Options::default() };
    place.open("a: U64, b: U64", &options)
}

fn set(table: &Table, key: u64, ttl: Ttl) {
    table.write(&key.to_le_bytes(), &[key, key], ttl, Where::Anywhere).unwrap();
}

#[test]
fn rows_that_threads_set_move_overwrite_and_delete_at_once_are_counted() {
    let first = seed();
    let place = Place::new("counts");
    // Every other row of these has no room.
    let table = small(&place, 500);
    for round in 0..5 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(first + round * 4 + thread);
                    for _ in 0..5_000 {
                        let key = rng.u64(..1_000);
                        match rng.u8(..3) {
                            0 => drop(table.delete(&key.to_le_bytes()).unwrap()),
                            _ => set(table, key, Ttl::Usual),
                        }
                    }
                });
            }
        });
        let statistics = table.statistics();
        assert_eq!(statistics, table.visited_statistics());
        assert!(statistics.moves > 0 && statistics.overwritten > 0, "{statistics:?}");
        assert_eq!(table.rows(), statistics.rows());
        table.resize(500 + round * 100, true).unwrap();
        assert_eq!(table.statistics(), table.visited_statistics());
    }
    table.reset().unwrap();
    assert_eq!((table.rows(), table.statistics()), (0, table.visited_statistics()));
}

#[test]
fn rows_are_not_counted_once_they_have_expired() {
    let (clock, now) = manual();
    let place = Place::new("expired-counts");
    let options = Options { capacity: 100, key_size: 8, clock, ..Options::default() };
    let table = place.open("a: U64, b: U64", &options);
    set(&table, 1, Ttl::Never);
    set(&table, 2, Ttl::For(Duration::from_nanos(500)));
    set(&table, 3, Ttl::Never);
    table.expire(&3u64.to_le_bytes(), Duration::from_nanos(900)).unwrap();
    let mut seen = vec![];
    for _ in 0..3 {
        seen.push((table.rows(), table.statistics().expired));
        now.fetch_add(500, Relaxed);
    }
    assert_eq!(seen, [(3, 0), (2, 1), (1, 2)]);
    // What is resized has the same rows.
    table.resize(200, false).unwrap();
    assert_eq!((table.rows(), table.statistics().expired), (1, 0));
    set(&table, 4, Ttl::For(Duration::from_nanos(500)));
    now.fetch_add(500, Relaxed);
    assert_eq!((table.rows(), table.statistics().expired), (1, 1));
}
