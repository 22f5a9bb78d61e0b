//! Many rows, and the table as a whole.

use std::cell::Cell;

use interlock_table::{Column, Error, Resized, Ttl};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use pyo3::Borrowed;

use super::{columns, failure, with_words, Table};
use crate::runtime::convert;
use crate::runtime::convert::{iterated, KeyBytes};
use crate::runtime::errors::wrong_type;

#[pymethods]
impl Table {
    /// Return the rows of keys in their order, or one column of each; None for missing rows.
    ///
    /// Each is read by itself: they may be of different moments.
    #[pyo3(signature = (keys, column=None, /))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        column: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let column = column.map(|column| self.column(column)).transpose()?;
        // No Python code runs between these two, so the keys are not moved.
        let found = match quick_keys(keys) {
            Some(keys) => self.read_all(&keys, column),
            None => {
                let keys = keys_of(keys, "get_many(): keys")?;
                let keys: Vec<&[u8]> = keys.iter().map(KeyBytes::as_bytes).collect();
                self.read_all(&keys, column)
            }
        };
        let (there, words) = found.map_err(|error| failure::raised(py, error))?;
        let length = words.len() / there.len().max(1);
        let of = |(at, there): (usize, &bool)| match (there, column) {
            (false, _) => Ok(py.None().into_bound(py)),
            (true, Some(column)) => columns::value_of(py, column, &words[at * length..][..length]),
            (true, None) => self.made(py, &words[at * length..][..length]),
        };
        // SAFETY: a new list of this length, filled by index; one that was not filled whole is given back.
        unsafe {
            let list = ffi::PyList_New(there.len() as ffi::Py_ssize_t);
            let list = Bound::from_owned_ptr_or_err(py, list)?;
            for (at, there) in there.iter().enumerate() {
                let value = of((at, there))?.into_ptr();
                ffi::PyList_SetItem(list.as_ptr(), at as ffi::Py_ssize_t, value);
            }
            Ok(list.cast_into_unchecked())
        }
    }

    /// Set the rows of a mapping, each by itself. What raises leaves those before it set.
    #[pyo3(signature = (rows, /))]
    fn set_many(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let items = match rows.cast::<PyDict>() {
            Ok(rows) => rows.items(),
            Err(_) => {
                let Ok(items) = rows.call_method0("items") else {
                    return Err(wrong_type("set_many(): rows", rows, "a mapping of keys to rows"));
                };
                PyList::new(py, items.try_iter()?.collect::<PyResult<Vec<_>>>()?)?
            }
        };
        let length = self.patient.schema().words();
        let mut keys = Vec::with_capacity(items.len());
        let mut words = vec![0; items.len() * length];
        for (item, words) in items.iter().zip(words.chunks_exact_mut(length)) {
            let (key, row): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            keys.push(convert::key(&key, || "set_many(): key".to_owned())?);
            self.fill(py, &row, words)?;
        }
        let rows: Vec<_> =
            keys.iter().map(KeyBytes::as_bytes).zip(words.chunks_exact(length)).collect();
        let mut written = Vec::with_capacity(rows.len());
        match self.hasty.set_many_on(&rows, Ttl::Usual, &mut written) {
            Err(Error::RowBusy { .. }) => {
                self.wait(py, |table| table.set_many_on(&rows, Ttl::Usual, &mut written))
            }
            done => done.map_err(|error| failure::raised(py, error)),
        }
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.patient.rows()) as usize
    }

    /// Delete all rows, and return how many there were. Those inserted meanwhile may be left.
    fn reset(&self, py: Python<'_>) -> PyResult<u64> {
        let mut deleted = 0;
        self.wait(py, |table| table.reset_on(&mut deleted))?;
        Ok(deleted)
    }

    /// Resize it, and return how many rows were moved, had expired, and were dropped.
    fn _resize(&self, py: Python<'_>, capacity: u64, drop: bool) -> PyResult<(u64, u64, u64)> {
        let resized = py.detach(|| self.patient.resize_unless(capacity, drop, signalled));
        let resized = resized.map_err(|error| match (error, SIGNAL.take()) {
            (Error::Interrupted, Some(raised)) => raised,
            (error, _) => failure::raised(py, error),
        });
        resized.map(|Resized { moved, expired, dropped }| (moved, expired, dropped))
    }

    /// Levels as (slots, live rows), then the counts, by the names of `TableStats`.
    fn _stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = py.detach(|| self.patient.statistics());
        let levels = found.levels.map(|(slots, rows)| (slots, rows));
        let stats = PyDict::new(py);
        stats.set_item("levels", PyTuple::new(py, levels)?)?;
        for (name, count) in [
            ("expired", found.expired),
            ("moves", found.moves),
            ("overwritten_expired", found.overwritten_expired),
            ("overwritten", found.overwritten),
            ("retries", found.retries),
            ("recovered", found.recovered),
            ("held", found.held),
            ("writers", found.writers),
            ("bytes", found.bytes),
            ("slot_bytes", found.slot_bytes),
        ] {
            stats.set_item(name, count)?;
        }
        Ok(stats)
    }
}

thread_local! {
    /// Raised by the handler of a signal that came during a call.
    static SIGNAL: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Has the handlers of signals run, and returns whether one of them raised.
fn signalled() -> bool {
    let raised = Python::attach(|py| py.check_signals()).err();
    let is_raised = raised.is_some();
    SIGNAL.set(raised);
    is_raised
}

impl Table {
    /// The words of rows, or of one of their columns, one behind the other, and which are there.
    fn read_all(
        &self,
        keys: &[&[u8]],
        column: Option<&Column>,
    ) -> Result<(Vec<bool>, Vec<u64>), Error> {
        let range = column.map_or(0..self.patient.schema().words(), Column::words);
        let length = range.len();
        let mut there = Vec::with_capacity(keys.len());
        let mut words = Vec::with_capacity(keys.len() * length);
        with_words(length, |row| {
            self.hasty.read_many(keys, range, row, |found| {
                there.push(found.is_some());
                match found {
                    Some([word]) => words.push(*word),
                    Some(found) => words.extend_from_slice(found),
                    // A missing row leaves an empty slot, so that the rows keep their indexes.
                    None => words.resize(words.len() + length, 0),
                }
            })
        })?;
        Ok((there, words))
    }
}

/// The bytes of the keys in a list or tuple, where all are exactly str. They lie where they are as
/// long as no Python code runs. `None`: look closer.
fn quick_keys<'a>(given: &'a Bound<'_, PyAny>) -> Option<Vec<&'a [u8]>> {
    let object = given.as_ptr();
    // SAFETY: attached, and the caller has the object; items are within its length.
    unsafe {
        let (length, item): (_, unsafe extern "C" fn(_, _) -> _) =
            if ffi::PyList_CheckExact(object) != 0 {
                (ffi::PyList_Size(object), ffi::PyList_GetItem)
            } else if ffi::PyTuple_CheckExact(object) != 0 {
                (ffi::PyTuple_Size(object), ffi::PyTuple_GetItem)
            } else {
                return None;
            };
        let mut keys = Vec::with_capacity(length as usize);
        for at in 0..length {
            keys.push(convert::quick_bytes(Borrowed::from_ptr(given.py(), item(object, at)))?);
        }
        Some(keys)
    }
}

fn keys_of<'py>(given: &Bound<'py, PyAny>, name: &str) -> PyResult<Vec<KeyBytes<'py>>> {
    let allowed = "an iterable of keys (str, bytes, int)";
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
        return Err(wrong_type(name, given, allowed));
    }
    let mut keys = Vec::new();
    for (at, key) in iterated(given, name, allowed)?.enumerate() {
        keys.push(convert::key(&key?, || format!("{name}[{at}]"))?);
    }
    Ok(keys)
}

/// Removes a table's name; processes that have it open continue with it. Returns whether it
/// existed.
#[pyfunction]
#[pyo3(signature = (place, is_path))]
pub fn remove_table(py: Python<'_>, place: std::path::PathBuf, is_path: bool) -> PyResult<bool> {
    let location = super::location(place, is_path);
    py.detach(|| interlock_table::remove(&location)).map_err(|error| failure::raised(py, error))
}
