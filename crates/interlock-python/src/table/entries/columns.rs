//! The fast paths of reading, setting and incrementing one column.

use interlock_table::Form;
use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::Borrowed;

use super::key::{new_reference, with_quick_key};
use super::{enter, Call, GET_COLUMN, INCR, SET_COLUMN};
use crate::fast::or_raised;
use crate::table::columns::{self, plain, whole};
use crate::table::with_words;

pub unsafe extern "C" fn get_column(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(GET_COLUMN, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(2, 3) {
            return None;
        }
        // SAFETY: as many arguments were given, which live as long as the call.
        unsafe {
            let column = table.known_column(call.get(1))?;
            if !column.kind.is_sized() {
                let found =
                    with_quick_key(py, call.get(0), |key| table.hasty.get_word(key, column).ok())?;
                return match found {
                    Some(word) => {
                        Some(or_raised(py, columns::number(py, column, word).map(Bound::into_ptr)))
                    }
                    None => (!call.get(2).is_null()).then(|| new_reference(call.get(2))),
                };
            }
            with_words(column.words().len(), |words| {
                let there = with_quick_key(py, call.get(0), |key| {
                    table.hasty.get_words(key, column.words(), words).ok()
                })?;
                match there {
                    true => {
                        let value = columns::value_of(py, column, words).map(Bound::into_ptr);
                        Some(or_raised(py, value))
                    }
                    false => (!call.get(2).is_null()).then(|| new_reference(call.get(2))),
                }
            })
        }
    })
}

pub unsafe extern "C" fn set_column(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(SET_COLUMN, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(3, 3) {
            return None;
        }
        // SAFETY: as in `get_column`.
        unsafe {
            let column = table.known_column(call.get(1))?;
            let value = plain(column, Borrowed::from_ptr(py, call.get(2)))?;
            let there = if column.kind.is_sized() {
                with_quick_key(py, call.get(0), |key| {
                    table.hasty.set_column(key, column, &value).ok()
                })?
            } else {
                let bits = column.encode(&value).ok()?;
                with_quick_key(py, call.get(0), |key| table.hasty.set_bits(key, column, bits).ok())?
            };
            there.then(|| new_reference(ffi::Py_None()))
        }
    })
}

pub unsafe extern "C" fn incr(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(INCR, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(2, 3) {
            return None;
        }
        // SAFETY: as in `get_column`.
        unsafe {
            let column = table.known_column(call.get(1))?;
            if !matches!(column.kind.form(), Form::Unsigned | Form::Signed) {
                return None;
            }
            let by = match call.get(2) {
                by if by.is_null() => 1,
                by => whole(by)?,
            };
            let word =
                with_quick_key(py, call.get(0), |key| table.hasty.add(key, column, by).ok()?)?;
            Some(or_raised(py, columns::number(py, column, word).map(Bound::into_ptr)))
        }
    })
}
