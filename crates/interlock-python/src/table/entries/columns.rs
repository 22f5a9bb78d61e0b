//! The fast paths of reading, setting and incrementing one column.

use interlock_table::{By, Form, Overflow};
use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::Borrowed;

use super::key::{new_reference, with_quick_key};
use super::{enter, Call, GET_COLUMN, INCR, SET_COLUMN};
use crate::fast::or_raised;
use crate::table::columns::{self, plain, whole};
use crate::table::Words;

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
            let mut words = Words::from_elem(0, column.words().len());
            let there = with_quick_key(py, call.get(0), |key| {
                table.hasty.get_words(key, column.words(), &mut words).ok()
            })?;
            match there {
                true => {
                    Some(or_raised(py, columns::value_of(py, column, &words).map(Bound::into_ptr)))
                }
                false => (!call.get(2).is_null()).then(|| new_reference(call.get(2))),
            }
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
            let there = with_quick_key(py, call.get(0), |key| {
                table.hasty.set_column(key, column, &value).ok()
            })?;
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
            if column.kind.form() == Form::Float || column.kind.is_sized() {
                return None;
            }
            let by = match call.get(2) {
                by if by.is_null() => 1,
                by => whole(by)?,
            };
            let sum = with_quick_key(py, call.get(0), |key| {
                table.hasty.incr(key, column, By::Integer(by.into()), Overflow::Refuse).ok()?
            })?;
            Some(or_raised(py, columns::object(py, sum).map(Bound::into_ptr)))
        }
    })
}
