//! Calls on complete rows.

use std::time::Duration;

use interlock_table::{Column, Ttl, Value, Where, Written};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::{columns, failure, with_key, with_words, Table};
use crate::runtime::convert;

#[pymethods]
impl Table {
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.row(py, key)?.ok_or_else(|| failure::no_row(key))
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        row: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.put(py, key, row, Ttl::Usual, Where::Anywhere).map(drop)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        match with_key(key, |bytes| self.call(py, |table| table.delete(bytes)))? {
            true => Ok(()),
            false => Err(failure::no_row(key)),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        with_key(key, |bytes| {
            self.hasty.contains(bytes).map_err(|error| failure::raised(py, error))
        })
    }

    /// Return a row, or the default if it is missing.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.row(py, key)?.or(default))
    }

    /// Delete a row and return it, or the default if it is missing.
    ///
    /// Raises:
    ///     KeyError: the row is missing, and no default is given.
    #[pyo3(signature = (key, /, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let default = one_default(default, "pop")?;
        let row = with_key(key, |bytes| self.call(py, |table| table.pop(bytes)))?;
        match row {
            Some(row) => self.made(py, row.words()),
            None => default.ok_or_else(|| failure::no_row(key)),
        }
    }

    /// Set a row as a whole, and return whether it was done.
    ///
    /// Args:
    ///     ttl: seconds after which it expires. Default: the table's.
    ///     only: "absent" sets only a missing row, "present" only an existing one. Default: always.
    #[pyo3(signature = (key, row, /, *, ttl=None, only=None))]
    fn set(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        row: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        only: Option<&str>,
    ) -> PyResult<bool> {
        let ttl = match ttl {
            None => Ttl::Usual,
            Some(ttl) => Ttl::For(seconds(ttl, "set(): ttl")?),
        };
        let on = match only {
            None => Where::Anywhere,
            Some("absent") => Where::Absent,
            Some("present") => Where::Present,
            Some(other) => {
                return Err(pyo3::exceptions::PyValueError::new_err(format!(
                    "set(): only is {other:?}; allowed: 'absent', 'present'"
                )))
            }
        };
        Ok(self.put(py, key, row, ttl, on)? != Written::Not)
    }

    /// Return a row as the bytes in which the table keeps it, or the default if it is missing.
    ///
    /// The columns are sorted by size: eight bytes, four, two, one, and then str and bytes. Columns of the
    /// same size have the order of the class. Each str or bytes is preceded by its length in two bytes.
    /// Numbers are little-endian, and there is no padding.
    #[pyo3(signature = (key, default=None, /))]
    fn get_bytes<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let schema = self.patient.schema();
        with_words(schema.words(), |words| {
            let there = with_key(key, |bytes| {
                self.hasty.get_into(bytes, words).map_err(|error| failure::raised(py, error))
            })?;
            let row = || schema.with_bytes(words, |row| PyBytes::new(py, row)).into_any();
            Ok(there.then(row).or(default))
        })
    }

    /// Set a row from the bytes that `get_bytes` returns, of this table or one with the same columns.
    ///
    /// Raises:
    ///     ValueError: the length is wrong, or the bytes are not a valid row of this table.
    #[pyo3(signature = (key, row, /))]
    fn set_bytes(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        row: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let schema = self.patient.schema();
        let Ok(row) = row.cast::<PyBytes>() else {
            return Err(crate::runtime::errors::wrong_type("set_bytes(): row", row, "bytes"));
        };
        with_words(schema.words(), |words| {
            schema.fill(words, row.as_bytes()).map_err(|error| failure::raised(py, error))?;
            self.write(py, key, words, Ttl::Usual, Where::Anywhere).map(drop)
        })
    }

    /// Set some columns of a row in one step, and return whether the row exists.
    ///
    /// Raises:
    ///     TypeError, ValueError: a column does not exist or cannot hold its value; the row is unchanged.
    #[pyo3(signature = (key, /, **columns))]
    fn patch(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        columns: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<bool> {
        let Some(named) = columns else {
            return self.__contains__(py, key);
        };
        let items: Vec<_> = named.iter().collect();
        let mut changes: Vec<(&Column, Value<'_>)> = Vec::with_capacity(items.len());
        for (name, value) in &items {
            let column = self.column(name)?;
            changes.push((column, columns::given(column, value)?));
        }
        let changes: Vec<_> = changes.iter().map(|(column, value)| (*column, value)).collect();
        with_key(key, |bytes| self.call(py, |table| table.patch(bytes, &changes)))
    }

    /// Have a row expire this many seconds from now, and return whether it exists.
    #[pyo3(signature = (key, ttl, /))]
    fn expire(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        ttl: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let ttl = seconds(ttl, "expire(): ttl")?;
        with_key(key, |bytes| self.call(py, |table| table.expire(bytes, ttl)))
    }

    /// Remove the expiry of a row; return whether the row exists and had one.
    #[pyo3(signature = (key, /))]
    fn persist(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        with_key(key, |bytes| self.call(py, |table| table.persist(bytes)))
    }

    /// Return the seconds until a row expires; None if it does not expire.
    ///
    /// Raises:
    ///     KeyError: the row is missing.
    #[pyo3(signature = (key, /))]
    fn ttl(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let ttl = with_key(key, |bytes| self.call(py, |table| table.ttl(bytes)))?;
        let ttl = ttl.ok_or_else(|| failure::no_row(key))?;
        Ok(ttl.map(|ttl| ttl.as_secs_f64()))
    }

    /// Count as an access to a row, and return whether the row exists.
    #[pyo3(signature = (key, /))]
    fn touch(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        with_key(key, |bytes| self.call(py, |table| table.touch(bytes)))
    }

    /// Return how many seconds ago a row was accessed, to about an eighth of a second.
    ///
    /// This does not count as an access.
    ///
    /// Raises:
    ///     KeyError: the row is missing.
    #[pyo3(signature = (key, /))]
    fn idle(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<f64> {
        let idle = with_key(key, |bytes| self.call(py, |table| table.idle(bytes)))?;
        let idle = idle.ok_or_else(|| failure::no_row(key))?;
        Ok(idle.as_secs_f64())
    }
}

impl Table {
    #[inline]
    fn row<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        with_words(self.patient.schema().words(), |words| {
            let there = with_key(key, |bytes| {
                self.hasty.get_into(bytes, words).map_err(|error| failure::raised(py, error))
            })?;
            there.then(|| self.made(py, words)).transpose()
        })
    }

    /// Returns the row that has these words.
    #[inline]
    pub(super) fn made<'py>(&self, py: Python<'py>, words: &[u64]) -> PyResult<Bound<'py, PyAny>> {
        self.rows(py).made(py, self.patient.schema().columns(), words)
    }

    /// Fills the words of a row.
    #[inline]
    pub(super) fn fill(
        &self,
        py: Python<'_>,
        row: &Bound<'_, PyAny>,
        words: &mut [u64],
    ) -> PyResult<()> {
        self.rows(py).fill(py, &self.patient, row, words)
    }

    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        row: &Bound<'_, PyAny>,
        ttl: Ttl,
        on: Where,
    ) -> PyResult<Written> {
        with_words(self.patient.schema().words(), |words| {
            self.fill(py, row, words)?;
            self.write(py, key, words, ttl, on)
        })
    }

    fn write(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        words: &[u64],
        ttl: Ttl,
        on: Where,
    ) -> PyResult<Written> {
        with_key(key, |bytes| self.call(py, |table| table.write(bytes, words, ttl, on)))
    }
}

/// Returns the default that a call was given, if any. Such a call raises if it has none.
pub(super) fn one_default<'py>(
    default: &Bound<'py, PyTuple>,
    call: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if default.len() > 1 {
        let text = format!("{call}(): {} defaults; allowed: one", default.len());
        return Err(PyTypeError::new_err(text));
    }
    Ok(default.iter().next())
}

fn seconds(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Duration> {
    Ok(Duration::from_micros(convert::micros(given, name)?))
}
