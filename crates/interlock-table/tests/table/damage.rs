//! Memory that holds noise behind a head that is right, as of a file that a power failure left half
//! written: calls end, with whatever there is or an error, and what cannot be is done away with.
//!
//! | variable | meaning |
//! |---|---|
//! | `INTERLOCK_SEED` | the seed; without it a new one each run, printed |
//! | `INTERLOCK_DAMAGES` | how many tables are damaged, 100 if not told |

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{number, seed, Place};
use fastrand::Rng;
use interlock_table::table::{Options, Ttl, Where};
use interlock_table::{By, Error, Overflow, Table, Value};

const SCHEMA: &str = "a: U64, token: str[20], raw: bytes[3]";
/// Bytes before the control page: the head.
const HEAD: u64 = 4096;
const KEYS: u64 = 120;
/// The place of the word that says whether this is the table.
const RESIZE: u64 = HEAD + 6 * 8;

fn key(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

/// Calls everything there is; nothing waits for ever.
fn use_all(table: &Table) {
    let (column, text) = (&table.schema().columns()[0], &table.schema().columns()[1]);
    let row = vec![7; table.schema().words()];
    for n in 0..KEYS {
        let _ = table.get(&key(n));
        let _ = table.write(&key(n), &row, Ttl::For(Duration::from_secs(n)), Where::Anywhere);
        let _ = table.incr(&key(n), column, By::Integer(1), Overflow::Wrap);
        let _ = table.patch(&key(n), &[(text, &Value::Str("text".into()))]);
        let _ = (table.ttl(&key(n)), table.idle(&key(n)), table.touch(&key(n)));
        if n % 5 == 0 {
            let _ = table.pop(&key(n));
        }
    }
    table.scan(0, usize::MAX, |scanned| {
        table.schema().columns().iter().for_each(|column| drop(scanned.row.get(&column.name)));
    });
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
    let _ = table.get_many(&keys);
    let _ = (table.statistics(), table.rows());
    let _ = (table.resize(300, true), table.resize(100, true), table.reset());
}

#[test]
fn a_corrupt_table_is_reported_and_its_scan_ends() {
    let place = Place::new("ended");
    let table = place.open(SCHEMA, &Options { capacity: 100, ..Options::default() });
    let row = vec![7; table.schema().words()];
    table.write(&key(1), &row, Ttl::Never, Where::Anywhere).unwrap();
    let file = File::options().write(true).open(place.0.path().unwrap()).unwrap();
    file.write_all_at(&[0; 8], RESIZE).unwrap();
    assert!(matches!(table.get(&key(1)), Err(Error::NoTable { .. })));
    let (mut cursor, mut calls) = (0, 0);
    loop {
        cursor = table.scan(cursor, 1, |_| ());
        calls += 1;
        assert!(calls < 10, "it never ends");
        if cursor == 0 {
            break;
        }
    }
    // The rows that are there still, of which nothing changes any more.
    assert_eq!(table.statistics().rows(), 1);
}

#[test]
fn random_bytes_after_the_header_give_rows_or_errors_and_block_nobody() {
    let (said, heard) = mpsc::channel();
    let mut rng = Rng::with_seed(seed());
    let rounds = number("INTERLOCK_DAMAGES", 100);
    std::thread::spawn(move || {
        for _ in 0..rounds {
            damage(&mut rng);
            said.send(()).unwrap();
        }
    });
    for round in 0..rounds {
        heard.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|error| {
            panic!("round {round}: {error}");
        });
    }
}

fn damage(rng: &mut Rng) {
    let place = Place::new("damage");
    let options = Options {
        capacity: 100,
        key_size: 8,
        writers: 4,
        patience: Duration::ZERO,
        ..Options::default()
    };
    let table = place.open(SCHEMA, &options);
    let row = vec![7; table.schema().words()];
    for n in 0..KEYS {
        table.write(&key(n), &row, Ttl::Never, Where::Anywhere).unwrap();
    }
    let path = place.0.path().unwrap();
    let length = fs::metadata(&path).unwrap().len();
    let file = File::options().write(true).open(&path).unwrap();
    let open = rng.bool().then_some(table);
    let words = *rng.choice(&[1, 10, 100, 1000]).unwrap();
    for _ in 0..words {
        let at = rng.u64(HEAD / 8..length / 8) * 8;
        let word = match rng.u8(..4) {
            0 => rng.u64(..),
            // A state, more likely: a version, an owner that may be there, any kind.
            1 | 2 => rng.u64(..9) << 16 | rng.u64(..6) << 4 | rng.u64(..16),
            _ => rng.u64(..20),
        };
        file.write_all_at(&word.to_le_bytes(), at).unwrap();
    }
    open.iter().for_each(use_all);
    if let Ok(table) = Table::attach(&place.0, &options) {
        use_all(&table);
    }
}
