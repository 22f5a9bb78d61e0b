//! Helpers that the tests of the table share: names of their own, numbers from the environment, rows.

#![allow(dead_code)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use interlock_table::table::Options;
use interlock_table::{remove, Location, Row, Schema, Table, Value};

/// A table in shared memory that is gone when the test ends, however it ends.
pub struct Place(pub Location);

impl Place {
    pub fn new(what: &str) -> Place {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        Place(Location::Name(format!("test-{what}-{}-{number}", std::process::id())))
    }

    pub fn name(&self) -> String {
        match &self.0 {
            Location::Name(name) => name.clone(),
            Location::Path(path) => path.display().to_string(),
        }
    }

    pub fn open(&self, schema: &str, options: &Options) -> Table {
        Table::open(&self.0, &Schema::parse(schema).unwrap(), options).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The seed of a run: a new one each time, printed.
pub fn seed() -> u64 {
    let seed = number("INTERLOCK_SEED", fastrand::u64(..1 << 32));
    println!("INTERLOCK_SEED={seed}");
    seed
}

/// A manual clock for `Options::clock`, and the word that moves it.
pub fn manual() -> (interlock_table::clock::Source, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(1_000_000_000));
    (interlock_table::clock::Source::Manual(now.clone()), now)
}

pub fn row(table: &Table, values: &[(&str, Value)]) -> Row {
    let mut row = Row::new(table.schema());
    values.iter().for_each(|(name, value)| row.set(name, value).unwrap());
    row
}
