//! A table of rows in shared memory, as Python sees it.
//!
//! Operations of nanoseconds run with the GIL held, and give up where they would wait for a writer
//! that is alive but stuck. Then the same is done again without the GIL, for as long as the table's
//! patience lasts.

pub mod admin;
pub mod columns;
pub mod entries;
pub mod export;
pub mod failure;
mod records;
mod rows;
pub mod scan;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use interlock_table::{Column, Error, Location, Options, Schema, Table as Shared};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::runtime::convert;
use crate::runtime::convert::KeyBytes;
use crate::runtime::once::Once;
use records::Rows;

/// Time that a waiting call does not look for signals.
const UNHEARD: Duration = Duration::from_millis(50);

#[pyclass(subclass, frozen, module = "interlock._core")]
pub struct Table {
    /// A handle that does not wait for a writer that is alive but stuck.
    hasty: Shared,
    /// Waits for it.
    patient: Shared,
    patience: Duration,
    /// Made once: what makes it first takes a lock, which a forked child would find held for ever.
    path: Py<PyAny>,
    /// Bits of the rights beyond which it was not opened.
    #[pyo3(get)]
    mode: u32,
    /// The names of the columns, interned: those that a call names are mostly the same objects.
    names: Vec<Py<PyString>>,
    rows: Once<Rows>,
}

#[pymethods]
impl Table {
    /// Opens a table, or makes it (`schema` given); opens the one that is there, whatever its schema (None).
    #[new]
    #[pyo3(signature = (place, is_path, schema, capacity, key_size, ttl, evict, writers, mode, patience, keeper = false))]
    #[allow(clippy::too_many_arguments)] // They come from one place, which names them.
    fn new(
        py: Python<'_>,
        place: PathBuf,
        is_path: bool,
        schema: Option<&str>,
        capacity: u64,
        key_size: u32,
        ttl: Option<f64>,
        evict: bool,
        writers: u32,
        mode: u32,
        patience: f64,
        keeper: bool,
    ) -> PyResult<Table> {
        let location = location(place, is_path);
        let options = Options {
            capacity,
            key_size,
            ttl: ttl.map(duration),
            evict,
            writers,
            mode,
            patience: duration(patience),
            keeper,
            ..Options::default()
        };
        let opened = py.detach(|| match schema {
            Some(text) => Shared::open(&location, &Schema::parse(text)?, &options),
            None => Shared::attach(&location, &options),
        });
        let patient = opened.map_err(|error| failure::raised(py, error))?;
        let names = patient.schema().columns().iter();
        let names = names.map(|column| PyString::intern(py, &column.name).unbind()).collect();
        let hasty = patient.with_patience(Duration::ZERO);
        failure::prepare(py)?;
        let path = patient.path().into_pyobject(py)?.unbind();
        Ok(Table {
            hasty,
            patient,
            patience: options.patience,
            path,
            mode,
            names,
            rows: Once::new(),
        })
    }

    /// Sets the functions with which rows are made. Must be called once, before anything else.
    fn _use(
        &self,
        py: Python<'_>,
        class: Bound<'_, PyType>,
        make: Py<PyAny>,
        values: Py<PyAny>,
    ) -> PyResult<()> {
        let rows = Rows::new(class, make, values, &self.names)?;
        let _ = self.rows.set(py, rows);
        Ok(())
    }

    /// Has all who have it open write rows again, though a node kept it.
    fn _keep_no_more(&self) {
        self.patient.keep_no_more();
    }

    /// The class of its rows.
    fn _class<'py>(&self, py: Python<'py>) -> Bound<'py, PyType> {
        self.rows(py).class(py)
    }

    /// The columns, as the table keeps them: `unread: U32, token: str[32]`.
    #[getter]
    fn schema(&self) -> String {
        self.patient.schema().to_string()
    }

    /// The place where it lies.
    #[getter]
    fn path(&self, py: Python<'_>) -> Py<PyAny> {
        self.path.clone_ref(py)
    }

    /// The rows that it surely holds.
    #[getter]
    fn capacity(&self) -> u64 {
        self.patient.made().capacity
    }

    /// True if opening it made it.
    #[getter]
    fn created(&self) -> bool {
        self.patient.is_made_here()
    }

    /// The most bytes of a key.
    #[getter]
    fn key_size(&self) -> u32 {
        self.patient.made().key_size
    }

    /// Time that a row lives, in seconds, if it is not told; None for ever.
    #[getter]
    fn default_ttl(&self) -> Option<f64> {
        let ttl = self.patient.made().ttl;
        (ttl != 0).then(|| ttl as f64 / 1e9)
    }

    /// The fate of a new row without room: "evict" or "raise".
    #[getter]
    fn on_full(&self) -> &'static str {
        match self.patient.made().evict {
            true => "evict",
            false => "raise",
        }
    }
}

impl Table {
    /// Calls with the GIL held; where that would wait, without it and with patience.
    #[inline]
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl Fn(&Shared) -> Result<R, Error> + Sync,
    ) -> PyResult<R> {
        match call(&self.hasty) {
            Ok(value) => Ok(value),
            Err(Error::RowBusy { .. }) => self.wait(py, |table| call(table)),
            Err(error) => Err(failure::raised(py, error)),
        }
    }

    /// Calls without the GIL, again and again until patience is at its end: so Ctrl-C ends it.
    #[cold]
    fn wait<R: Send>(
        &self,
        py: Python<'_>,
        mut call: impl FnMut(&Shared) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let end = Instant::now().checked_add(self.patience);
        loop {
            let left =
                end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            let table = self.patient.with_patience(left.min(UNHEARD));
            match py.detach(|| call(&table)) {
                Err(Error::RowBusy { .. }) if left > UNHEARD => py.check_signals()?,
                done => return done.map_err(|error| failure::raised(py, error)),
            }
        }
    }

    fn rows(&self, py: Python<'_>) -> &Rows {
        self.rows.get(py).expect("told when it was opened")
    }

    /// The column that a call names.
    #[inline]
    fn column(&self, name: &Bound<'_, PyAny>) -> PyResult<&Column> {
        match self.known_column(name.as_ptr()) {
            Some(column) => Ok(column),
            None => self.column_by_name(name),
        }
    }

    /// Like `column`, but compares only the identity of the name.
    #[inline]
    fn known_column(&self, name: *mut ffi::PyObject) -> Option<&Column> {
        let at = self.names.iter().position(|known| known.as_ptr() == name)?;
        Some(&self.patient.schema().columns()[at])
    }

    #[cold]
    fn column_by_name(&self, name: &Bound<'_, PyAny>) -> PyResult<&Column> {
        let Ok(text) = name.cast::<PyString>() else {
            return Err(crate::runtime::errors::wrong_type("column", name, "str"));
        };
        let text = text.to_string_lossy();
        self.patient.schema().column(&text).ok_or_else(|| failure::no_column(&text, self))
    }
}

pub fn location(place: PathBuf, is_path: bool) -> Location {
    match is_path {
        true => Location::Path(place),
        false => Location::Name(place.to_string_lossy().into_owned()),
    }
}

/// Seconds that were checked; what is beyond the end of time is the end.
pub fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Calls with words for a row, all zero: on the stack as long as it is not large.
#[inline(always)]
fn with_words<R>(count: usize, call: impl FnOnce(&mut [u64]) -> R) -> R {
    let (mut small, mut large) = ([0; 32], Vec::new());
    let words = match small.get_mut(..count) {
        Some(words) => words,
        None => {
            large.resize(count, 0);
            &mut large[..]
        }
    };
    call(words)
}

/// The bytes of a key: those of a str where they lie.
#[inline]
fn with_key<R>(key: &Bound<'_, PyAny>, call: impl FnOnce(&[u8]) -> PyResult<R>) -> PyResult<R> {
    if let Some(bytes) = convert::quick_bytes(key.as_borrowed()) {
        return call(bytes);
    }
    let key: KeyBytes<'_> = convert::key(key, || "key".to_owned())?;
    call(key.as_bytes())
}
