//! Keys and references of a call, of the types that need no conversion.

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::Borrowed;

use crate::runtime::convert;
use crate::table::columns::whole;

/// Calls with the bytes of a key that is a str, bytes or an int, and of no subclass. `None`: look closer.
///
/// # Safety
/// The caller has the object, and is attached; `call` runs no Python code.
#[inline(always)]
pub unsafe fn with_quick_key<R>(
    py: Python<'_>,
    key: *mut PyObject,
    call: impl FnOnce(&[u8]) -> Option<R>,
) -> Option<R> {
    // SAFETY: the caller's.
    unsafe {
        if let Some(bytes) = convert::quick_bytes(Borrowed::from_ptr(py, key)) {
            return call(bytes);
        }
        if let Some(number) = whole(key) {
            return call(convert::decimal(number, &mut [0; 20]));
        }
        if ffi::PyBytes_CheckExact(key) != 0 {
            let (start, length) = (ffi::PyBytes_AsString(key), ffi::PyBytes_Size(key));
            return call(std::slice::from_raw_parts(start.cast(), length as usize));
        }
        None
    }
}

/// A new reference to an object.
///
/// # Safety
/// The caller has the object, and is attached.
#[inline(always)]
pub unsafe fn new_reference(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's.
    unsafe { ffi::Py_NewRef(object) }
}
