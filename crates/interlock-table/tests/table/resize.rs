//! Resizing a table while others have it open.
//!
//! | variable | meaning |
//! |---|---|
//! | `INTERLOCK_SEED` | the seed; without it a new one each run, printed |
//! | `INTERLOCK_RESIZES` | how often a table is resized while others write, 30 if not told |

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

use crate::common::{manual, number, seed, Place};
use fastrand::Rng;
use interlock_table::table::{Options, Ttl, Where};
use interlock_table::{By, Error, Location, Overflow, Resized, Table, Value};

const SCHEMA: &str = "a: U64, b: U64";

fn set(table: &Table, key: u64, number: u64) {
    let row = [number, !number];
    table.write(&key.to_le_bytes(), &row, Ttl::Usual, Where::Anywhere).unwrap();
}

fn get(table: &Table, key: u64) -> Option<u64> {
    let mut row = [0; 2];
    let there = table.get_into(&key.to_le_bytes(), &mut row).unwrap();
    assert!(!there || row[1] == !row[0], "torn");
    there.then_some(row[0])
}

fn incr(table: &Table, key: u64) -> Result<u64, Error> {
    // Two columns by one: the second as it must be is nobody's matter here.
    let column = table.schema().column("a").unwrap();
    match table.incr(&key.to_le_bytes(), column, By::Integer(1), Overflow::Refuse)? {
        Some(Value::Unsigned(sum)) => Ok(sum),
        other => panic!("{other:?}"),
    }
}

fn patient() -> Options {
    Options { patience: Duration::from_secs(20), ..Options::default() }
}

/// Times that this process has a file mapped.
fn mappings(inode: u64) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let same = |line: &&str| line.split_whitespace().nth(4) == Some(&inode.to_string());
    maps.lines().filter(same).count()
}

#[test]
fn a_resize_keeps_rows_ttls_and_rules_and_open_handles_follow() {
    let place = Place::new("resize");
    let (clock, now) = manual();
    let options = Options {
        capacity: 500,
        ttl: Some(Duration::from_secs(5)),
        evict: false,
        mode: 0o660,
        clock,
        ..Options::default()
    };
    let table = place.open(SCHEMA, &options);
    let (other, hasty) =
        (place.open(SCHEMA, &options), table.with_patience(Duration::from_millis(1)));
    (0..400).for_each(|n| set(&table, n, n));
    table.persist(&7u64.to_le_bytes()).unwrap();
    table.expire(&8u64.to_le_bytes(), Duration::from_secs(1)).unwrap();
    let before = table.made().clone();
    let first = std::fs::metadata(table.path()).unwrap().ino();
    now.fetch_add(2_000_000_000, Relaxed);
    table.touch(&9u64.to_le_bytes()).unwrap();
    for capacity in [5000, 450, 100_000] {
        let resized = table.resize(capacity, false).unwrap();
        let expired = u64::from(capacity == 5000);
        assert_eq!(resized, Resized { moved: 399, expired, dropped: 0 });
        for table in [&table, &other, &hasty, &place.open(SCHEMA, &options)] {
            assert_eq!(table.made().capacity, capacity);
            assert_eq!(table.rows(), 399);
            let made = table.made();
            assert_eq!(
                (made.ttl, made.evict, made.secret, made.created),
                (before.ttl, before.evict, before.secret, before.created)
            );
            for n in (0..400).filter(|n| *n != 8) {
                assert_eq!(get(table, n), Some(n));
                let left = table.ttl(&n.to_le_bytes()).unwrap().unwrap();
                assert_eq!(left, (n != 7).then_some(Duration::from_secs(3)));
            }
            assert_eq!(get(table, 8), None);
        }
        set(&other, 1, 1);
        other.persist(&7u64.to_le_bytes()).unwrap();
        table.expire(&1u64.to_le_bytes(), Duration::from_secs(3)).unwrap();
    }
    assert_eq!(table.idle(&9u64.to_le_bytes()).unwrap(), Some(Duration::ZERO));
    assert_eq!(std::fs::metadata(table.path()).unwrap().permissions().mode() & 0o777, 0o660);
    // The old memory is nobody's any more.
    let inode = || std::fs::metadata(table.path()).unwrap().ino();
    assert_eq!((mappings(first), mappings(inode())), (0, 2));
}

#[test]
fn shrinking_below_the_number_of_rows_is_refused_unless_the_oldest_may_be_dropped() {
    let place = Place::new("drop");
    let (clock, now) = manual();
    let table = place.open(SCHEMA, &Options { capacity: 4000, clock, ..Options::default() });
    (0..4000).for_each(|n| set(&table, n, n));
    // The rows in front were touched last, so that the others come to a table that is full.
    for n in (0..4000u64).rev() {
        now.fetch_add(1, Relaxed);
        assert!(table.touch(&n.to_le_bytes()).unwrap());
    }
    let refused = table.resize(1000, false);
    assert!(matches!(refused, Err(Error::TooSmall { rows: 4000, capacity: 1000 })), "{refused:?}");
    assert_eq!((table.made().capacity, table.rows()), (4000, 4000));
    set(&table, 1, 1);
    let Resized { moved, expired, dropped } = table.resize(1000, true).unwrap();
    assert_eq!((moved + dropped, expired), (4000, 0));
    assert!((1000..1300).contains(&moved), "{moved}");
    assert_eq!(table.rows(), moved);
    // Those that were touched last are those that are left, as far as chance has it.
    let late = (0..500).filter(|n| get(&table, *n).is_some()).count();
    let early = (2000..4000).filter(|n| get(&table, *n).is_some()).count();
    assert!(late > 450 && early <= 5, "{late} late, {early} early");
    assert_eq!(table.statistics().overwritten, 0);
    assert!(matches!(table.resize(0, true), Err(Error::Invalid(_))));
    assert!(matches!(table.resize(1 << 50, true), Err(Error::Invalid(_))));
    let refused = table.resize(1 << 34, true);
    assert!(matches!(refused, Err(Error::NoRoom { .. })), "{refused:?}");
    assert_eq!(table.rows(), moved);
    set(&table, 1, 5);
    assert_eq!(table.resize(1, true).unwrap().moved, table.rows());
}

#[test]
fn a_resized_file_keeps_its_clock_and_a_removed_one_cannot_be_resized() {
    let path = std::env::temp_dir().join(format!("resize-{}.table", std::process::id()));
    let place = Place(Location::Path(path.clone()));
    let options = Options { ttl: Some(Duration::from_secs(100)), ..Options::default() };
    let table = place.open(SCHEMA, &options);
    set(&table, 1, 1);
    let (before, inode) = (table.now(), std::fs::metadata(&path).unwrap().ino());
    table.resize(10, false).unwrap();
    let other = place.open(SCHEMA, &options);
    assert!(std::fs::metadata(&path).unwrap().ino() != inode);
    assert!((before..before + 50_000_000_000).contains(&other.now()));
    assert!(other.ttl(&1u64.to_le_bytes()).unwrap().unwrap() > Some(Duration::from_secs(50)));
    drop(place);
    assert!(matches!(table.resize(20, false), Err(Error::NoTable { .. })));
    set(&table, 1, 2);
    assert_eq!((get(&table, 1), get(&other, 1)), (Some(2), Some(2)));
    // Another one of the same name is not taken for it.
    let place = Place(Location::Path(path.clone()));
    let stranger = place.open(SCHEMA, &options);
    assert!(matches!(table.resize(20, false), Err(Error::NoTable { .. })));
    assert_eq!(stranger.rows(), 0);
    let folder = std::fs::read_dir(path.parent().unwrap()).unwrap();
    let begin = format!(".{}", path.file_name().unwrap().to_str().unwrap());
    let left =
        folder.filter(|f| f.as_ref().unwrap().file_name().to_string_lossy().starts_with(&begin));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_table_resized_thousands_of_times_closes_without_deep_recursion() {
    let place = Place::new("often");
    let options = Options { capacity: 1, key_size: 8, writers: 2, ..Options::default() };
    let table = place.open(SCHEMA, &options);
    set(&table, 1, 1);
    for n in 0..2000 {
        assert_eq!(table.resize(1 + n % 2, false).unwrap().moved, 1);
    }
    assert_eq!(get(&table, 1), Some(1));
    let small = std::thread::Builder::new().stack_size(64 << 10);
    small.spawn(move || drop(table)).unwrap().join().unwrap();
}

#[test]
fn a_scan_during_a_resize_restarts() {
    let place = Place::new("scan");
    let table = place.open(SCHEMA, &Options { capacity: 1000, ..Options::default() });
    (0..1000).for_each(|n| set(&table, n, n));
    let mut seen = std::collections::HashSet::new();
    let mut each = |row: interlock_table::Scanned| {
        seen.insert(row.key);
    };
    let cursor = table.scan(0, 700, &mut each);
    table.resize(8000, false).unwrap();
    let cursor = table.scan(cursor, 700, &mut each);
    assert!(cursor != 0);
    let cursor = table.scan(cursor, 700, &mut each);
    assert_eq!((cursor, seen.len()), (0, 1000));
}

/// Threads that raise counts, insert, delete and read, while the table is resized up and down.
#[test]
fn no_row_is_lost_while_threads_write_and_read() {
    const THREADS: u64 = 4;
    const COUNTED: u64 = 8;
    const OWN: u64 = 400;
    let mut rng = Rng::with_seed(seed());
    let place = Place::new("threads");
    let open = || place.open(SCHEMA, &Options { capacity: 2000, evict: false, ..patient() });
    let table = open();
    (0..COUNTED).for_each(|n| set(&table, 1 << 40 | n, 0));
    let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    let seeds: Vec<u64> = (0..THREADS).map(|_| rng.u64(..)).collect();
    std::thread::scope(|scope| {
        for (thread, seed) in seeds.into_iter().enumerate() {
            // Half of them share the handle of who resizes, which follows under their hands.
            let own = (thread % 2 == 0).then(open);
            let (shared, thread) = (&table, thread as u64);
            let (stop, counted) = (&stop, &counted);
            scope.spawn(move || {
                let table = own.as_ref().unwrap_or(shared);
                let mut rng = Rng::with_seed(seed);
                let mut own = std::collections::HashMap::new();
                let mut last = [0; COUNTED as usize];
                while !stop.load(Relaxed) {
                    let n = rng.u64(..COUNTED);
                    let sum = incr(table, 1 << 40 | n).unwrap();
                    assert!(sum > last[n as usize], "a count went back");
                    last[n as usize] = sum;
                    counted.fetch_add(1, Relaxed);
                    let key = thread << 32 | rng.u64(..OWN);
                    match rng.u8(..4) {
                        0 => {
                            let deleted = table.delete(&key.to_le_bytes()).unwrap();
                            assert_eq!(deleted, own.remove(&key).is_some());
                        }
                        1 => assert_eq!(get(table, key), own.get(&key).copied()),
                        _ => {
                            let number = rng.u64(..);
                            set(table, key, number);
                            own.insert(key, number);
                        }
                    }
                }
                for n in 0..OWN {
                    let key = thread << 32 | n;
                    assert_eq!(get(table, key), own.get(&key).copied());
                }
            });
        }
        let mut resized = 0;
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while resized < number("INTERLOCK_RESIZES", 30) {
                let until = counted.load(Relaxed) + rng.u64(..2000);
                while counted.load(Relaxed) < until {
                    std::thread::yield_now();
                }
                let done = table.resize(rng.u64(1700..20_000), false).unwrap();
                assert_eq!((done.expired, done.dropped), (0, 0));
                resized += 1;
            }
        }));
        stop.store(true, Relaxed);
        result.unwrap();
    });
    let sum: u64 = (0..COUNTED)
        .map(|n| {
            let mut row = [0; 2];
            assert!(table.get_into(&(1u64 << 40 | n).to_le_bytes(), &mut row).unwrap());
            row[0]
        })
        .sum();
    assert_eq!(sum, counted.load(Relaxed));
    assert_eq!(table.statistics().held, 0);
}
