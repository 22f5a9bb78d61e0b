//! The fast paths of calls on complete rows, as objects or bytes, and of the mapping operators.

use std::ffi::c_int;

use interlock_table::{Ttl, Where};
use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::Borrowed;

use super::key::{new_reference, with_quick_key};
use super::{enter, table_of, Call, GET, GET_BYTES, ORDINARY, SET, SET_BYTES};
use crate::fast::{guarded, or_raised, unpanicked};
use crate::table::{with_words, Table};

pub unsafe extern "C" fn get(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(GET, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(1, 2) {
            return None;
        }
        // SAFETY: as in `get_column`.
        unsafe {
            let found = row_of(py, table, call.get(0))?;
            Some(found.unwrap_or_else(|| default_of(call)))
        }
    })
}

pub unsafe extern "C" fn set(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(SET, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(2, 2) {
            return None;
        }
        // SAFETY: as in `get_column`.
        unsafe {
            write(py, table, call.get(0), call.get(1))?;
            Some(new_reference(ffi::Py_True()))
        }
    })
}

pub unsafe extern "C" fn get_bytes(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(GET_BYTES, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(1, 2) {
            return None;
        }
        let schema = table.patient.schema();
        // SAFETY: as in `get_column`.
        with_words(schema.words(), |words| unsafe {
            let there =
                with_quick_key(py, call.get(0), |key| table.hasty.get_into(key, words).ok())?;
            if !there {
                return Some(default_of(call));
            }
            // No more than a row can have.
            Some(schema.with_bytes(words, |row| {
                ffi::PyBytes_FromStringAndSize(row.as_ptr().cast(), row.len() as Py_ssize_t)
            }))
        })
    })
}

pub unsafe extern "C" fn set_bytes(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(SET_BYTES, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(2, 2) {
            return None;
        }
        // SAFETY: as in `get_column`.
        unsafe {
            let row = call.get(1);
            if ffi::PyBytes_CheckExact(row) == 0 {
                return None;
            }
            let (start, length) = (ffi::PyBytes_AsString(row), ffi::PyBytes_Size(row));
            let row = std::slice::from_raw_parts(start.cast(), length as usize);
            let schema = table.patient.schema();
            with_words(schema.words(), |words| {
                schema.fill(words, row).ok()?;
                with_quick_key(py, call.get(0), |key| {
                    table.hasty.write(key, words, Ttl::Usual, Where::Anywhere).ok()
                })?;
                Some(new_reference(ffi::Py_None()))
            })
        }
    })
}

/// The second argument, or None.
///
/// # Safety
/// As `Call::get`.
unsafe fn default_of(call: Call) -> *mut PyObject {
    // SAFETY: the caller's.
    unsafe {
        match call.get(1) {
            default if default.is_null() => new_reference(ffi::Py_None()),
            default => new_reference(default),
        }
    }
}

/// A row, null with an exception if it cannot be made, or `Some(None)` if it is missing.
///
/// # Safety
/// The caller has the key, and is attached.
#[inline(always)]
unsafe fn row_of(
    py: Python<'_>,
    table: &Table,
    key: *mut PyObject,
) -> Option<Option<*mut PyObject>> {
    with_words(table.patient.schema().words(), |words| {
        // SAFETY: the caller's.
        let there =
            unsafe { with_quick_key(py, key, |key| table.hasty.get_into(key, words).ok()) }?;
        Some(there.then(|| or_raised(py, table.made(py, words).map(Bound::into_ptr))))
    })
}

/// Sets a row. `None`: look closer.
///
/// # Safety
/// The caller has the objects, and is attached.
#[inline(always)]
unsafe fn write(
    py: Python<'_>,
    table: &Table,
    key: *mut PyObject,
    row: *mut PyObject,
) -> Option<()> {
    // SAFETY: the caller's.
    with_words(table.patient.schema().words(), |words| unsafe {
        let row = Borrowed::from_ptr(py, row);
        table.rows(py).quick_fill(py, &table.patient, row, words)?;
        with_quick_key(py, key, |key| {
            table.hasty.write(key, words, Ttl::Usual, Where::Anywhere).ok()
        })
        .map(drop)
    })
}

pub unsafe extern "C" fn subscript(slf: *mut PyObject, key: *mut PyObject) -> *mut PyObject {
    guarded(|| {
        // SAFETY: called by the interpreter, with the GIL held, on a table.
        unsafe {
            let (py, table) = (Python::assume_attached(), table_of(slf));
            match row_of(py, table, key) {
                Some(Some(row)) => row,
                _ => (ORDINARY.get(py).expect("made with the class").subscript)(slf, key),
            }
        }
    })
}

pub unsafe extern "C" fn assign(
    slf: *mut PyObject,
    key: *mut PyObject,
    row: *mut PyObject,
) -> c_int {
    unpanicked(|| {
        // SAFETY: as in `subscript`; no row is a deletion.
        unsafe {
            let (py, table) = (Python::assume_attached(), table_of(slf));
            match if row.is_null() { None } else { write(py, table, key, row) } {
                Some(()) => 0,
                None => (ORDINARY.get(py).expect("made with the class").assign)(slf, key, row),
            }
        }
    })
    .unwrap_or(-1)
}

pub unsafe extern "C" fn contains(slf: *mut PyObject, key: *mut PyObject) -> c_int {
    unpanicked(|| {
        // SAFETY: as in `subscript`.
        unsafe {
            let (py, table) = (Python::assume_attached(), table_of(slf));
            match with_quick_key(py, key, |key| table.hasty.contains(key).ok()) {
                Some(there) => c_int::from(there),
                None => (ORDINARY.get(py).expect("made with the class").contains)(slf, key),
            }
        }
    })
    .unwrap_or(-1)
}
