//! The arguments of a put, told by pointers.

use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple};

/// The arguments of a put by their place in [`NAMES`]; null where one was not given.
pub(super) type PutArguments = [*mut PyObject; NAMES.len()];

const NAMES: [&str; 10] = [
    "payload", "block", "timeout", "keys", "shared", "priority", "delay", "dedup", "barrier",
    "quiet",
];
pub(super) const PAYLOAD: usize = 0;
pub(super) const BLOCK: usize = 1;
pub(super) const TIMEOUT: usize = 2;
pub(super) const KEYS: usize = 3;
/// Arguments that may be positional.
const POSITIONAL: usize = 3;

/// Finds arguments by their names' identity: a caller's names are interned. `None`: some form that
/// only the ordinary method can take, or refuse.
///
/// # Safety
/// As for METH_FASTCALL with keywords.
#[inline]
pub(super) unsafe fn find_arguments(
    known: &Known,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> Option<PutArguments> {
    let mut found = [std::ptr::null_mut(); NAMES.len()];
    let positional = count as usize;
    if positional > POSITIONAL {
        return None;
    }
    for (i, place) in found.iter_mut().enumerate().take(positional) {
        // SAFETY: the caller's.
        *place = unsafe { *args.add(i) };
    }
    if !names.is_null() {
        // SAFETY: the caller's.
        for i in 0..unsafe { ffi::PyTuple_Size(names) } {
            // SAFETY: within the tuple, and one value each follows the positional ones.
            let (name, value) =
                unsafe { (ffi::PyTuple_GetItem(names, i), *args.add(positional + i as usize)) };
            // Keys first: they are what most puts name.
            let at = match name == known.names[KEYS] {
                true => KEYS,
                false => known.names.iter().position(|&known| known == name)?,
            };
            if !found[at].is_null() {
                return None;
            }
            found[at] = value;
        }
    }
    (!found[PAYLOAD].is_null()).then_some(found)
}

/// The arguments of `put(payload)` and `put(payload, keys=...)`.
///
/// # Safety
/// As for METH_FASTCALL with keywords.
#[inline(always)]
pub(super) unsafe fn usual_arguments(
    known: &Known,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> Option<(*mut PyObject, *mut PyObject)> {
    // SAFETY: the caller's; one value each follows the positional ones.
    unsafe {
        if count != 1 {
            None
        } else if names.is_null() {
            Some((*args, std::ptr::null_mut()))
        } else if ffi::PyTuple_Size(names) == 1
            && ffi::PyTuple_GetItem(names, 0) == known.names[KEYS]
        {
            Some((*args, *args.add(1)))
        } else {
            None
        }
    }
}

/// Objects of which there is one each, told by identity.
pub(super) struct Known {
    pub names: [*mut PyObject; NAMES.len()],
    pub zero: *mut PyObject,
    pub no: *mut PyObject,
    pub none: *mut PyObject,
    pub any: *mut PyObject,
    /// The empty tuple.
    pub empty: *mut PyObject,
}

// SAFETY: pointers to objects that are never freed, used with the GIL held.
unsafe impl Send for Known {}
// SAFETY: as above.
unsafe impl Sync for Known {}

static KNOWN: PyOnceLock<Known> = PyOnceLock::new();

impl Known {
    pub fn get(py: Python<'_>) -> &'static Known {
        KNOWN.get_or_init(py, || Known {
            names: NAMES.map(|name| PyString::intern(py, name).unbind().into_ptr()),
            // SAFETY: the GIL is held; the reference is kept for ever.
            zero: unsafe { ffi::PyLong_FromLong(0) },
            // SAFETY: an object that lives for ever.
            no: unsafe { ffi::Py_False() },
            none: py.None().into_ptr(),
            any: PyString::intern(py, "any").unbind().into_ptr(),
            empty: PyTuple::empty(py).unbind().into_ptr(),
        })
    }

    /// Not given, or given as its default.
    #[inline]
    pub fn is_default(&self, value: *mut PyObject) -> bool {
        value.is_null()
            || value == self.none
            || value == self.zero
            || value == self.no
            || value == self.empty
    }
}

/// Whether an argument is given as its default, told by identity.
pub fn is_default(value: &Bound<'_, PyAny>) -> bool {
    Known::get(value.py()).is_default(value.as_ptr())
}
