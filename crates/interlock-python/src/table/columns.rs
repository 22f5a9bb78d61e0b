//! Converts values of columns to and from Python; calls on one column of a row.

use std::borrow::Cow;

use interlock_table::{By, Column, Form, Overflow, Value};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyString, PyTuple};
use pyo3::{Borrowed, IntoPyObjectExt};

use super::rows::one_default;
use super::{failure, with_key, with_words, Table};
use crate::runtime::errors::wrong_type;

#[pymethods]
impl Table {
    /// Return one column of a row, or the default if the row is missing.
    ///
    /// Raises:
    ///     KeyError: the row is missing, and no default is given.
    ///     ValueError: the column does not exist.
    #[pyo3(signature = (key, column, /, *default))]
    fn get_column<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        column: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let default = one_default(default, "get_column")?;
        let column = self.column(column)?;
        with_words(column.words().len(), |words| {
            let there = with_key(key, |bytes| {
                let there = self.hasty.get_words(bytes, column.words(), words);
                there.map_err(|error| failure::raised(py, error))
            })?;
            match there {
                true => value_of(py, column, words),
                false => default.ok_or_else(|| failure::no_row(key)),
            }
        })
    }

    /// Set one column of a row.
    ///
    /// Raises:
    ///     KeyError: the row is missing.
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
    ///     overflow: how a sum beyond the column's range is treated: "raise" (the row is as before),
    ///         "wrap" or "saturate". Default "raise".
    ///
    /// Raises:
    ///     KeyError: the row is missing.
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
        let overflow = match overflow {
            None => Overflow::Refuse,
            Some(given) => how(given)?,
        };
        let by = match by {
            None => By::Integer(1),
            Some(by) => raise_by(column, by, overflow)?,
        };
        let word = with_key(key, |bytes| {
            self.call(py, |table| table.incr_word(bytes, column, by, overflow))
        })?;
        word.map_or_else(|| Err(failure::no_row(key)), |word| number(py, column, word))
    }

    /// Set a column if it is as expected, and return whether it was; atomic over all processes.
    ///
    /// Raises:
    ///     KeyError: the row is missing.
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

fn raise_by(column: &Column, by: &Bound<'_, PyAny>, overflow: Overflow) -> PyResult<By> {
    if matches!(column.kind.form(), Form::Unsigned | Form::Signed) {
        // SAFETY: the caller has the object, and is attached.
        if let Some(by) = unsafe { whole(by.as_ptr()) } {
            return Ok(By::Integer(by.into()));
        }
    }
    let name = || format!("incr(): by of column {}", column.name);
    if by.is_instance_of::<PyBool>() {
        return Err(wrong_type(&name(), by, "a number"));
    }
    match column.kind.form() {
        Form::Float => match by.extract::<f64>() {
            Ok(by) => Ok(By::Float(by)),
            Err(_) if by.is_instance_of::<PyInt>() => {
                Err(PyOverflowError::new_err(format!("{} is an int beyond any float", name())))
            }
            Err(_) => Err(wrong_type(&name(), by, "a number")),
        },
        Form::Bool | Form::Str | Form::Bytes => Err(PyTypeError::new_err(format!(
            "incr(): column {} is {}; allowed: a number",
            column.name, column.kind
        ))),
        _ if by.is_instance_of::<PyInt>() => {
            if let Ok(by) = by.extract::<i128>() {
                return Ok(By::Integer(by));
            }
            if overflow == Overflow::Wrap {
                // The bits that no column has room for are of no matter.
                let and = by.py().get_type::<PyInt>().getattr("__and__")?;
                return Ok(By::Integer(and.call1((by, u64::MAX))?.extract::<u64>()?.into()));
            }
            // Beyond any column either way.
            Ok(By::Integer(if by.lt(0)? { i128::MIN } else { i128::MAX }))
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
            Err(crate::runtime::errors::wrong_value("incr(): overflow", given, allowed))
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
        text => object(py, text),
    }
}

/// A value as an object.
pub fn object<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Unsigned(value) => value.into_bound_py_any(py),
        Value::Signed(value) => value.into_bound_py_any(py),
        Value::Float(value) => value.into_bound_py_any(py),
        Value::Bool(value) => value.into_bound_py_any(py),
        Value::Str(text) => text.into_bound_py_any(py),
        Value::Bytes(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
    }
}

/// The value of a column, of a row's words.
#[inline]
pub fn value<'py>(py: Python<'py>, column: &Column, words: &[u64]) -> PyResult<Bound<'py, PyAny>> {
    match column.kind.is_sized() {
        true => value_of(py, column, &words[column.words()]),
        false => number(py, column, words[column.at / 8]),
    }
}

/// The value of a column, of the words in which it lies.
#[inline]
pub fn value_of<'py>(
    py: Python<'py>,
    column: &Column,
    words: &[u64],
) -> PyResult<Bound<'py, PyAny>> {
    match column.kind.form() {
        Form::Bytes => Ok(column.bytes_of(words, |bytes| PyBytes::new(py, bytes)).into_any()),
        Form::Str => column.bytes_of(words, |bytes| match std::str::from_utf8(bytes) {
            Ok(text) => Ok(PyString::new(py, text).into_any()),
            // Only whole strings are written; anything else was put there by another program.
            Err(_) => String::from_utf8_lossy(bytes).into_bound_py_any(py),
        }),
        _ => number(py, column, words[0]),
    }
}

/// The value for a column, where it is of the very type: no code of the value's own runs. `None`: look
/// closer.
#[inline]
pub fn plain<'a>(column: &Column, value: Borrowed<'a, '_, PyAny>) -> Option<Value<'a>> {
    let object = value.as_ptr();
    // SAFETY: the caller has the object, and is attached. Its bytes live as long as it does.
    unsafe {
        match column.kind.form() {
            Form::Bool if object == ffi::Py_True() => Some(Value::Bool(true)),
            Form::Bool if object == ffi::Py_False() => Some(Value::Bool(false)),
            Form::Bool => None,
            Form::Float => (ffi::PyFloat_CheckExact(object) != 0)
                .then(|| Value::Float(ffi::PyFloat_AsDouble(object))),
            Form::Str => {
                if ffi::PyUnicode_CheckExact(object) == 0 {
                    return None;
                }
                let mut length = 0;
                let start = ffi::PyUnicode_AsUTF8AndSize(object, &mut length);
                if start.is_null() {
                    ffi::PyErr_Clear();
                    return None;
                }
                let bytes = std::slice::from_raw_parts(start.cast(), length as usize);
                Some(Value::Str(Cow::Borrowed(std::str::from_utf8_unchecked(bytes))))
            }
            Form::Bytes => {
                if ffi::PyBytes_CheckExact(object) == 0 {
                    return None;
                }
                let (start, length) = (ffi::PyBytes_AsString(object), ffi::PyBytes_Size(object));
                let bytes = std::slice::from_raw_parts(start.cast(), length as usize);
                Some(Value::Bytes(Cow::Borrowed(bytes)))
            }
            _ => whole(object).map(Value::Signed),
        }
    }
}

/// A number of up to 64 bits, of an exact int.
///
/// # Safety
/// The caller has the object, and is attached.
#[inline]
pub unsafe fn whole(object: *mut ffi::PyObject) -> Option<i64> {
    // SAFETY: the caller's.
    unsafe {
        if ffi::PyLong_CheckExact(object) == 0 {
            return None;
        }
        let mut overflow = 0;
        let value = ffi::PyLong_AsLongLongAndOverflow(object, &mut overflow);
        (overflow == 0).then_some(value)
    }
}

/// The value for a column, of its type; whether it has room is the table's to say.
#[inline]
pub fn given<'a>(column: &Column, value: &'a Bound<'_, PyAny>) -> PyResult<Value<'a>> {
    if let Some(value) = plain(column, value.as_borrowed()) {
        return Ok(value);
    }
    let wrong = |allowed| wrong_type(&format!("column {}", column.name), value, allowed);
    match column.kind.form() {
        Form::Bool => match value.cast::<PyBool>() {
            Ok(value) => Ok(Value::Bool(value.is_true())),
            Err(_) => Err(wrong("bool")),
        },
        Form::Float => {
            let number = value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>();
            match value.extract::<f64>() {
                Ok(value_of) if number && !value.is_instance_of::<PyBool>() => {
                    Ok(Value::Float(value_of))
                }
                // Not its digits, of which there are hundreds.
                Err(_) if value.is_instance_of::<PyInt>() => Err(PyValueError::new_err(format!(
                    "column {} is an int beyond any float",
                    column.name
                ))),
                _ => Err(wrong("float")),
            }
        }
        Form::Str => match value.cast::<PyString>() {
            Ok(text) => match text.to_str() {
                Ok(text) => Ok(Value::Str(Cow::Borrowed(text))),
                Err(_) => Err(PyValueError::new_err(format!(
                    "column {} holds a lone surrogate; a str must encode as UTF-8",
                    column.name
                ))),
            },
            Err(_) => Err(wrong("str")),
        },
        Form::Bytes => match value.cast::<PyBytes>() {
            Ok(bytes) => Ok(Value::Bytes(Cow::Borrowed(bytes.as_bytes()))),
            Err(_) => match value.cast::<PyByteArray>() {
                Ok(bytes) => Ok(Value::Bytes(Cow::Owned(bytes.to_vec()))),
                Err(_) => Err(wrong("bytes")),
            },
        },
        _ if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() => {
            Err(wrong("int"))
        }
        Form::Unsigned | Form::Signed => match value.extract::<i64>() {
            Ok(value) => Ok(Value::Signed(value)),
            Err(_) => match value.extract::<u64>() {
                Ok(value) => Ok(Value::Unsigned(value)),
                Err(_) => {
                    let (least, most) = column.range().unwrap_or_default();
                    let allowed = format!("{least} to {most}");
                    let name = format!("column {}", column.name);
                    Err(crate::runtime::errors::wrong_value(&name, value, &allowed))
                }
            },
        },
    }
}
