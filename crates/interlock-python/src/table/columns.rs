//! Values of columns, to Python and back; one column of a row.

use std::borrow::Cow;

use interlock_table::{By, Column, Kind, Overflow, Value};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyString};
use pyo3::IntoPyObjectExt;

use super::{failure, with_key, Table, Words};
use crate::errors::wrong_type;

#[pymethods]
impl Table {
    /// Return one column of a row.
    ///
    /// Raises:
    ///     KeyError: there is no row, and no default.
    ///     ValueError: there is no such column.
    #[pyo3(signature = (key, column, default=None, /))]
    fn get_column<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        column: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let column = self.column(column)?;
        let found = with_key(key, |bytes| match column.kind.is_sized() {
            false => {
                let word = self.call(py, |table| table.get_word(bytes, column))?;
                word.map(|word| number(py, column, word)).transpose()
            }
            true => {
                let mut words = Words::from_elem(0, self.patient.schema().words());
                let there = self.hasty.get_into(bytes, &mut words);
                let there = there.map_err(|error| failure::raised(py, error))?;
                there.then(|| value(py, column, &words)).transpose()
            }
        })?;
        match found.or(default) {
            Some(value) => Ok(value),
            None => Err(failure::no_row(key)),
        }
    }

    /// Set one column of a row.
    ///
    /// Raises:
    ///     KeyError: there is no row.
    ///     TypeError, ValueError: the column cannot hold the value; the row is as before.
    #[pyo3(signature = (key, column, value, /))]
    fn set_column(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        column: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let column = self.column(column)?;
        let value = given(column, value)?;
        let there =
            with_key(key, |bytes| self.call(py, |table| table.set_column(bytes, column, &value)))?;
        match there {
            true => Ok(()),
            false => Err(failure::no_row(key)),
        }
    }

    /// Raise a column, and return what it is then; atomic over all processes.
    ///
    /// Args:
    ///     by: by how much; less than 0 lowers it. Default 1.
    ///     overflow: what becomes of a sum beyond the column's range: "raise" (the row is as before),
    ///         "wrap" or "saturate". Default "raise".
    ///
    /// Raises:
    ///     KeyError: there is no row.
    ///     OverflowError: the sum is beyond the column's range.
    #[pyo3(signature = (key, column, by=None, /, overflow=None))]
    fn incr<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        column: &Bound<'py, PyAny>,
        by: Option<&Bound<'py, PyAny>>,
        overflow: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let column = self.column(column)?;
        let by = match by {
            None => By::Integer(1),
            Some(by) => raise_by(column, by)?,
        };
        let overflow = match overflow {
            None => Overflow::Refuse,
            Some(given) => how(given)?,
        };
        let sum =
            with_key(key, |bytes| self.call(py, |table| table.incr(bytes, column, by, overflow)))?;
        match sum {
            Some(Value::Unsigned(sum)) => sum.into_bound_py_any(py),
            Some(Value::Signed(sum)) => sum.into_bound_py_any(py),
            Some(Value::Float(sum)) => sum.into_bound_py_any(py),
            Some(_) => unreachable!("a sum is a number"),
            None => Err(failure::no_row(key)),
        }
    }

    /// Set a column if it is as expected, and return whether it was; atomic over all processes.
    ///
    /// Raises:
    ///     KeyError: there is no row.
    ///     TypeError, ValueError: the column cannot hold one of the values.
    #[pyo3(signature = (key, column, expected, value, /))]
    fn compare_and_set(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        column: &Bound<'_, PyAny>,
        expected: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let column = self.column(column)?;
        let (expected, value) = (given(column, expected)?, given(column, value)?);
        let done = with_key(key, |bytes| {
            self.call(py, |table| table.compare_and_set(bytes, column, &expected, &value))
        })?;
        done.ok_or_else(|| failure::no_row(key))
    }
}

fn raise_by(column: &Column, by: &Bound<'_, PyAny>) -> PyResult<By> {
    let name = || format!("incr(): by of column {}", column.name);
    if by.is_instance_of::<PyBool>() {
        return Err(wrong_type(&name(), by, "a number"));
    }
    match column.kind {
        Kind::F32 | Kind::F64 => match by.extract::<f64>() {
            Ok(by) => Ok(By::Float(by)),
            Err(_) => Err(wrong_type(&name(), by, "a number")),
        },
        Kind::Bool | Kind::Str(_) | Kind::Bytes(_) => Err(PyTypeError::new_err(format!(
            "incr(): column {} is {}; allowed: a number",
            column.name, column.kind
        ))),
        _ if by.is_instance_of::<PyInt>() => {
            // Beyond any column either way.
            let far = if by.lt(0)? { -(1 << 100) } else { 1 << 100 };
            Ok(By::Integer(by.extract::<i64>().map_or(far, i128::from)))
        }
        _ => Err(wrong_type(&name(), by, "int")),
    }
}

fn how(given: &Bound<'_, PyAny>) -> PyResult<Overflow> {
    let text = given.cast::<PyString>().ok().map(|text| text.to_string_lossy());
    match text.as_deref() {
        Some("raise") => Ok(Overflow::Refuse),
        Some("wrap") => Ok(Overflow::Wrap),
        Some("saturate") => Ok(Overflow::Saturate),
        _ => {
            let allowed = "'raise', 'wrap', 'saturate'";
            Err(crate::errors::wrong_value("incr(): overflow", given, allowed))
        }
    }
}

/// The value of a number's column, of the word in which it lies.
#[inline]
pub fn number<'py>(py: Python<'py>, column: &Column, word: u64) -> PyResult<Bound<'py, PyAny>> {
    match column.decode(word) {
        Value::Unsigned(value) => value.into_bound_py_any(py),
        Value::Signed(value) => value.into_bound_py_any(py),
        Value::Float(value) => value.into_bound_py_any(py),
        Value::Bool(value) => value.into_bound_py_any(py),
        Value::Str(_) | Value::Bytes(_) => unreachable!("a number's column"),
    }
}

/// The value of a column, of a row's words.
#[inline]
pub fn value<'py>(py: Python<'py>, column: &Column, words: &[u64]) -> PyResult<Bound<'py, PyAny>> {
    match column.kind {
        Kind::Bytes(_) => Ok(column.bytes_in(words, |bytes| PyBytes::new(py, bytes)).into_any()),
        Kind::Str(_) => column.bytes_in(words, |bytes| match std::str::from_utf8(bytes) {
            Ok(text) => Ok(PyString::new(py, text).into_any()),
            // Only whole strings are written; what is none was put there by another program.
            Err(_) => String::from_utf8_lossy(bytes).into_bound_py_any(py),
        }),
        _ => number(py, column, words[column.at / 8]),
    }
}

/// The value for a column, of its type; whether it has room is the table's to say.
#[inline]
pub fn given<'a>(column: &Column, value: &'a Bound<'_, PyAny>) -> PyResult<Value<'a>> {
    let wrong = |allowed| wrong_type(&format!("column {}", column.name), value, allowed);
    match column.kind {
        Kind::Bool => match value.cast::<PyBool>() {
            Ok(value) => Ok(Value::Bool(value.is_true())),
            Err(_) => Err(wrong("bool")),
        },
        Kind::F32 | Kind::F64 => {
            let number = value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>();
            match value.extract::<f64>() {
                Ok(value_of) if number && !value.is_instance_of::<PyBool>() => {
                    Ok(Value::Float(value_of))
                }
                _ => Err(wrong("float")),
            }
        }
        Kind::Str(_) => match value.cast::<PyString>() {
            Ok(text) => match text.to_str() {
                Ok(text) => Ok(Value::Str(Cow::Borrowed(text))),
                Err(_) => Err(pyo3::exceptions::PyValueError::new_err(format!(
                    "column {} holds a lone surrogate; a str must encode as UTF-8",
                    column.name
                ))),
            },
            Err(_) => Err(wrong("str")),
        },
        Kind::Bytes(_) => match value.cast::<PyBytes>() {
            Ok(bytes) => Ok(Value::Bytes(Cow::Borrowed(bytes.as_bytes()))),
            Err(_) => match value.cast::<PyByteArray>() {
                Ok(bytes) => Ok(Value::Bytes(Cow::Owned(bytes.to_vec()))),
                Err(_) => Err(wrong("bytes")),
            },
        },
        _ if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() => {
            Err(wrong("int"))
        }
        _ => match value.extract::<i64>() {
            Ok(value) => Ok(Value::Signed(value)),
            Err(_) => match value.extract::<u64>() {
                Ok(value) => Ok(Value::Unsigned(value)),
                Err(_) => {
                    let (least, most) = column.range().unwrap_or_default();
                    let allowed = format!("{least} to {most}");
                    let name = format!("column {}", column.name);
                    Err(crate::errors::wrong_value(&name, value, &allowed))
                }
            },
        },
    }
}
