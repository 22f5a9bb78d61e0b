//! Iterates over all rows, a batch at a time.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use interlock_table::clock;
use interlock_table::layout::row::Row;
use interlock_table::Table as Shared;
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::Table;

/// Going over a table, as far as it has got.
pub struct Scanning {
    table: Shared,
    cursor: u64,
    ended: bool,
    /// Keys that were met, by two hashes: one that is moved while others are inserted is met twice. That two
    /// keys of a table have both in common is less likely than a fault of the memory.
    seen: HashSet<u128>,
    hashes: [RandomState; 2],
    /// From the table's time to that of day, ns.
    to_real: i128,
}

/// A row with what it is called and when it expires: µs since 1970, if it does.
pub struct Found {
    pub key: Vec<u8>,
    pub row: Row,
    pub expires: Option<i64>,
}

impl Scanning {
    pub fn new(table: &Shared) -> Scanning {
        // It never waits for a writer.
        let table = table.with_patience(Duration::ZERO);
        let to_real = i128::from(clock::real()) - i128::from(table.now());
        let hashes = [RandomState::new(), RandomState::new()];
        Scanning { table, cursor: 0, ended: false, seen: HashSet::new(), hashes, to_real }
    }

    pub fn key_size(&self) -> usize {
        self.table.made().key_size as usize
    }

    /// Bytes of a row with a key of the greatest length.
    pub fn row_bytes(&self) -> usize {
        self.table.schema().words() * 8 + self.key_size()
    }

    /// Up to `limit` rows; none at the end.
    pub fn next(&mut self, limit: usize) -> Vec<Found> {
        let mut rows = Vec::new();
        while rows.is_empty() && !self.ended {
            let Scanning { seen, hashes, to_real, .. } = self;
            self.cursor = self.table.scan(self.cursor, limit, |found| {
                let [one, other] = hashes.each_ref().map(|hash| hash.hash_one(&found.key));
                if seen.insert(u128::from(one) << 64 | u128::from(other)) {
                    let micros = |at| ((i128::from(at) + *to_real) / 1000) as i64;
                    let expires = (found.expiry != 0).then(|| micros(found.expiry));
                    rows.push(Found { key: found.key, row: found.row, expires });
                }
            });
            self.ended = self.cursor == 0;
        }
        rows
    }
}

/// A walk over a table, for one caller at a time. Errors: another thread, or one that was using it
/// when this process was forked, is still using it.
pub fn alone(scanning: &Mutex<Scanning>) -> PyResult<MutexGuard<'_, Scanning>> {
    match scanning.try_lock() {
        Ok(scanning) => Ok(scanning),
        Err(TryLockError::Poisoned(scanning)) => Ok(scanning.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(PyValueError::new_err("another thread is using this iterator"))
        }
    }
}

/// An iteration over a table.
#[pyclass(frozen, module = "interlock._core")]
pub struct TableScan {
    table: Py<Table>,
    scanning: Mutex<Scanning>,
}

/// A key as it is shown, a row, and when it expires, in seconds since 1970.
type Item<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Option<f64>);

#[pymethods]
impl TableScan {
    #[new]
    fn new(table: Bound<'_, Table>) -> TableScan {
        let scanning = Mutex::new(Scanning::new(&table.get().patient));
        TableScan { table: table.unbind(), scanning }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.table)
    }

    /// Return up to `limit` rows, none at the end: keys, rows, and when they expire (None: never).
    fn next<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Vec<Item<'py>>> {
        let found = py.detach(|| alone(&self.scanning).map(|mut rows| rows.next(limit)))?;
        let table = self.table.get();
        let item = |found: &Found| {
            let key = match std::str::from_utf8(&found.key) {
                Ok(text) => PyString::new(py, text).into_any(),
                Err(_) => PyBytes::new(py, &found.key).into_any(),
            };
            let expires = found.expires.map(|micros| micros as f64 / 1e6);
            Ok((key, table.made(py, found.row.words())?, expires))
        };
        found.iter().map(item).collect()
    }
}
