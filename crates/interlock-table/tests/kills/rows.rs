//! Rows that say by themselves whether they are whole, and a ledger of what was begun and ended.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use interlock_table::table::{Options, Ttl, Where};
use interlock_table::{Error, Location, Table, Value};

use crate::common::Place;

/// A stamp, words that follow from key and stamp, and a count beside them that is only raised.
pub const SCHEMA: &str =
    "stamp: U64, a: U64, b: U64, c: U64, d: U64, e: U64, f: U64, g: U64, count: U64";
const COUNT: usize = 8;

pub fn words(key: u64, stamp: u64, count: u64) -> [u64; 9] {
    let mut row = [stamp; 9];
    for (n, word) in row.iter_mut().enumerate().skip(1) {
        *word = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ stamp.rotate_left(n as u32 * 7);
    }
    row[COUNT] = count;
    row
}

/// The stamp and count of a row, if it is whole.
pub fn check(key: u64, row: &[u64]) -> (u64, u64) {
    let (stamp, count) = (row[0], row[COUNT]);
    assert_eq!(row, words(key, stamp, count), "the row of {key} is torn");
    (stamp, count)
}

pub fn get(table: &Table, key: u64) -> Option<(u64, u64)> {
    let mut row = [0; 9];
    table.get_into(&key.to_le_bytes(), &mut row).unwrap().then(|| check(key, &row))
}

pub fn set(table: &Table, key: u64, stamp: u64, count: u64) -> Result<(), Error> {
    let row = words(key, stamp, count);
    table.write(&key.to_le_bytes(), &row, Ttl::Usual, Where::Anywhere).map(|_| ())
}

pub fn count_up(table: &Table, key: u64) -> Result<Option<u64>, Error> {
    use interlock_table::{By, Overflow};
    let column = table.schema().column("count").unwrap();
    let by = By::Integer(1);
    let count = table.incr(&key.to_le_bytes(), column, by, Overflow::Refuse)?;
    Ok(count.map(|count| match count {
        Value::Unsigned(count) => count,
        other => panic!("{other:?}"),
    }))
}

/// Rows whose stamp only one writer sets or deletes, so that what they are is known at any time.
pub const OWN: u64 = 30;
/// Rows that are always there, and whose counts all writers raise.
pub const SHARED: u64 = 8;
/// Rows that anybody inserts and deletes, so that others have to move.
pub const FILLERS: u64 = 500;
pub const WRITERS: u64 = 3;
/// The number under which the parent counts.
pub const PARENT: u64 = WRITERS;
/// The number of a child that resizes the table, and does nothing else.
pub const RESIZER: u64 = 99;

pub fn own_key(writer: u64, n: u64) -> u64 {
    1000 * writer + n
}

pub fn shared_key(n: u64) -> u64 {
    1 << 32 | n
}

pub fn filler_key(n: u64) -> u64 {
    1 << 33 | n
}

/// Operations that were begun and that have ended: words in a file, which outlive their writer.
pub struct Ledger {
    words: &'static [AtomicU64],
    path: String,
}

const LEDGER_WORDS: usize = 1024;

impl Ledger {
    pub fn open(table: &str) -> Ledger {
        let path = format!("/dev/shm/ledger-{table}");
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        file.set_len(LEDGER_WORDS as u64 * 8).unwrap();
        // SAFETY: the file is as long as the mapping, which is never taken back; any bits are a word.
        let words = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let length = LEDGER_WORDS * 8;
            let file = file.as_raw_fd();
            let at = libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, file, 0);
            assert!(at != libc::MAP_FAILED);
            std::slice::from_raw_parts(at.cast(), LEDGER_WORDS)
        };
        Ledger { words, path }
    }

    pub fn remove(&self) {
        std::fs::remove_file(&self.path).unwrap();
    }

    fn get(&self, at: u64) -> u64 {
        self.words[at as usize].load(SeqCst)
    }

    fn set(&self, at: u64, word: u64) {
        self.words[at as usize].store(word, SeqCst);
    }

    /// The stamp that was last begun, and whether it has ended. An odd stamp is a deletion.
    pub fn own(&self, writer: u64, n: u64) -> (u64, bool) {
        let word = self.get(writer * 256 + n);
        (word >> 1, word & 1 == 1 || word == 0)
    }

    pub fn set_own(&self, writer: u64, n: u64, stamp: u64, ended: bool) {
        self.set(writer * 256 + n, stamp << 1 | u64::from(ended));
    }

    /// Times that a shared count was begun to be raised by a writer, and how often that has ended.
    pub fn counted(&self, writer: u64, n: u64) -> (u64, u64) {
        (self.get(writer * 256 + 100 + n), self.get(writer * 256 + 150 + n))
    }

    pub fn begin_count(&self, writer: u64, n: u64) {
        self.set(writer * 256 + 100 + n, self.counted(writer, n).0 + 1);
    }

    pub fn end_count(&self, writer: u64, n: u64) {
        self.set(writer * 256 + 150 + n, self.counted(writer, n).1 + 1);
    }
}

/// A small table that is nearly full and overwrites nothing, with the shared rows in it.
pub fn crowded(place: &Place) -> Table {
    made(place, 1)
}

/// A table with the shared rows in it, which overwrites nothing.
pub fn made(place: &Place, capacity: u64) -> Table {
    let options =
        Options { capacity, key_size: 8, writers: 64, evict: false, ..Options::default() };
    let table = place.open(SCHEMA, &options);
    (0..SHARED).for_each(|n| set(&table, shared_key(n), 0, 0).unwrap());
    table
}

pub fn attach(name: &str, patience: Duration) -> Table {
    let options = Options { patience, ..Options::default() };
    Table::attach(&Location::Name(name.to_owned()), &options).unwrap()
}

/// Attaches to a table of an earlier boot, which no process may have open.
pub fn attach_unused(name: &str) -> Table {
    let _alone = crate::child::STARTING.lock();
    attach(name, Duration::from_secs(20))
}

/// Conditions that hold for a writer that is dead, or idle: each own row is the last one begun, or,
/// if that has not ended, the one before.
pub fn check_own(table: &Table, ledger: &Ledger, writer: u64) {
    for n in 0..OWN {
        let (stamp, ended) = ledger.own(writer, n);
        let now = get(table, own_key(writer, n)).map(|(stamp, _)| stamp);
        let would_be = |stamp: u64| (stamp.is_multiple_of(2) && stamp > 0).then_some(stamp);
        let right = now == would_be(stamp) || !ended && now == would_be(stamp.saturating_sub(1));
        assert!(right, "row {n} of writer {writer}: {now:?} behind {stamp}, ended: {ended}");
    }
}

/// Conditions that hold when nobody writes: no lock, no row twice or not counted, no increment lost or made twice.
pub fn check_all(table: &Table, ledger: &Ledger) {
    let statistics = table.statistics();
    assert_eq!(statistics.held, 0, "{statistics:?}");
    assert_eq!(statistics, table.visited_statistics(), "the rows were not counted as they are");
    let mut keys = HashSet::new();
    table.scan(0, usize::MAX, |scanned| {
        let key = u64::from_le_bytes(scanned.key[..].try_into().unwrap());
        check(key, scanned.row.words());
        assert!(keys.insert(key), "{key} is there twice");
        assert_eq!(get(table, key).map(|row| row.0), Some(scanned.row.words()[0]));
    });
    for n in 0..SHARED {
        let (_, count) = get(table, shared_key(n)).expect("it is always there");
        let sums = (0..=PARENT).map(|writer| ledger.counted(writer, n));
        let (begun, ended) = sums.fold((0, 0), |sums, one| (sums.0 + one.0, sums.1 + one.1));
        assert!((ended..=begun).contains(&count), "count {n}: {count} of {ended} to {begun}");
    }
}
