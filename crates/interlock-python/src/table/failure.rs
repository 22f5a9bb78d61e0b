//! A table's errors as exceptions.

use interlock_table::Error;
use pyo3::exceptions::{
    PyFileNotFoundError, PyKeyError, PyOSError, PyOverflowError, PyPermissionError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::Table;
use crate::runtime::errors::raise;
use crate::runtime::once::Once;

static NOT_A_TABLE: Once<Py<PyType>> = Once::new();
static ROW_BUSY: Once<Py<PyType>> = Once::new();
static SCHEMA_MISMATCH: Once<Py<PyType>> = Once::new();
static TABLE_FULL: Once<Py<PyType>> = Once::new();
static TABLE_KEPT: Once<Py<PyType>> = Once::new();

/// Looks the classes up before they are needed: as of a table's path.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    for (cell, name) in [
        (&NOT_A_TABLE, "NotATable"),
        (&ROW_BUSY, "RowBusy"),
        (&SCHEMA_MISMATCH, "SchemaMismatch"),
        (&TABLE_FULL, "TableFull"),
        (&TABLE_KEPT, "TableKept"),
    ] {
        cell.import(py, "interlock.errors", name)?;
    }
    Ok(())
}

#[cold]
pub fn raised(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::RowBusy { .. }
        | Error::TooManyWriters { .. }
        | Error::Moved
        | Error::Interrupted => raise(py, &ROW_BUSY, "RowBusy", text),
        Error::TableFull | Error::TooSmall { .. } => raise(py, &TABLE_FULL, "TableFull", text),
        Error::Kept { .. } | Error::KeptAlready { .. } => raise(py, &TABLE_KEPT, "TableKept", text),
        Error::SchemaMismatch { .. } => raise(py, &SCHEMA_MISMATCH, "SchemaMismatch", text),
        Error::NotATable { .. } | Error::Version { .. } | Error::Namespace { .. } => {
            raise(py, &NOT_A_TABLE, "NotATable", text)
        }
        Error::KeyLength { .. } | Error::Invalid(_) | Error::Value { .. } => {
            PyValueError::new_err(text)
        }
        Error::Overflow { .. } => PyOverflowError::new_err(text),
        Error::Permissions { .. } => PyPermissionError::new_err((libc::EACCES, text)),
        Error::NoTable { .. } => PyFileNotFoundError::new_err((libc::ENOENT, text)),
        Error::NoRoom { .. } => PyOSError::new_err((libc::ENOSPC, text)),
        Error::Io { error, .. } => match error.raw_os_error() {
            Some(number) => PyOSError::new_err((number, text)),
            None => PyOSError::new_err(text),
        },
    }
}

#[cold]
pub fn no_column(name: &str, table: &Table) -> PyErr {
    let names: Vec<_> = table.patient.schema().columns().iter().map(|c| c.name.as_str()).collect();
    PyValueError::new_err(format!("there is no column {name:?}; there are {}", names.join(", ")))
}

/// A missing row, as dict reports it.
#[cold]
pub fn no_row(key: &Bound<'_, PyAny>) -> PyErr {
    PyKeyError::new_err(key.clone().unbind())
}
