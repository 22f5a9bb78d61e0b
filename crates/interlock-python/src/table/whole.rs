//! Many rows, and the table as a whole.

use interlock_table::{Resized, Ttl};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use super::{failure, Table, Words};
use crate::convert::{self, iterated, KeyBytes};
use crate::errors::wrong_type;

#[pymethods]
impl Table {
    /// Return the rows of keys in their order; None where there is none.
    ///
    /// Each is read by itself: they may be of different moments.
    #[pyo3(signature = (keys, /))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let keys = keys_of(keys, "get_many(): keys")?;
        let bytes: Vec<&[u8]> = keys.iter().map(KeyBytes::as_bytes).collect();
        let length = self.patient.schema().words();
        let mut row = Words::from_elem(0, length);
        let mut read: Vec<Option<usize>> = Vec::with_capacity(bytes.len());
        let mut words = Vec::with_capacity(bytes.len() * length);
        let done = self.hasty.read_many(&bytes, &mut row, |_, found| {
            read.push(found.map(|row| {
                words.extend_from_slice(row);
                words.len() - length
            }));
        });
        done.map_err(|error| failure::raised(py, error))?;
        let list = PyList::empty(py);
        for at in read {
            match at {
                Some(at) => list.append(self.made(py, &words[at..at + length])?)?,
                None => list.append(py.None())?,
            }
        }
        Ok(list)
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
        let mut pairs = Vec::with_capacity(items.len());
        for item in items.iter() {
            let (key, row): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let key = convert::key(&key, || "set_many(): key".to_owned())?;
            pairs.push((key, self.words(py, &row)?));
        }
        let rows: Vec<_> =
            pairs.iter().map(|(key, row)| (key.as_bytes(), row.as_slice())).collect();
        self.call(py, |table| table.set_many(&rows, Ttl::Usual)).map(drop)
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
        let resized = py.detach(|| self.patient.resize(capacity, drop));
        let Resized { moved, expired, dropped } =
            resized.map_err(|error| failure::raised(py, error))?;
        Ok((moved, expired, dropped))
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
        ] {
            stats.set_item(name, count)?;
        }
        Ok(stats)
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

/// Removes a table's name; who has it open goes on with it. Returns whether there was one.
#[pyfunction]
#[pyo3(signature = (place, is_path))]
pub fn remove_table(py: Python<'_>, place: std::path::PathBuf, is_path: bool) -> PyResult<bool> {
    let location = super::location(place, is_path);
    py.detach(|| interlock_table::remove(&location)).map_err(|error| failure::raised(py, error))
}
