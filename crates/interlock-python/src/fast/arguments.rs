//! The arguments of a put, recognised by pointer comparison.

use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::runtime::once::Once;

/// The arguments of a put by their place in [`NAMES`]; null where one was not given.
pub(in crate::fast) type PutArguments = [*mut PyObject; NAMES.len()];

const NAMES: [&str; 13] = [
    "payload", "block", "timeout", "keys", "shared", "priority", "delay", "dedup", "barrier",
    "quiet", "limit", "group", "behind",
];
pub(in crate::fast) const PAYLOAD: usize = 0;
pub(in crate::fast) const BLOCK: usize = 1;
pub(in crate::fast) const TIMEOUT: usize = 2;
pub(in crate::fast) const KEYS: usize = 3;
pub(in crate::fast) const SHARED: usize = 4;
const PRIORITY: usize = 5;
const DELAY: usize = 6;
const DEDUP: usize = 7;
const BARRIER: usize = 8;
const QUIET: usize = 9;
pub(in crate::fast) const LIMIT: usize = 10;
pub(in crate::fast) const GROUP: usize = 11;
const BEHIND: usize = 12;
/// Arguments that may be positional.
const POSITIONAL: usize = 3;

/// Finds arguments by their names' identity: a caller's names are interned. `None`: some form that
/// only the ordinary method can take, or refuse.
///
/// # Safety
/// As for METH_FASTCALL with keywords.
#[inline]
pub(in crate::fast) unsafe fn find_arguments(
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
pub(in crate::fast) unsafe fn usual_arguments(
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

/// The payload, keys, limit and group of a put that gives nothing else; null where one was not given.
///
/// # Safety
/// As for METH_FASTCALL with keywords.
#[inline]
pub(in crate::fast) unsafe fn named_arguments(
    known: &Known,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> Option<[*mut PyObject; 4]> {
    let mut found = [std::ptr::null_mut(); 4];
    if count != 1 || names.is_null() {
        return None;
    }
    // SAFETY: the caller's; within the tuple, and one value each follows the positional one.
    unsafe {
        found[0] = *args;
        for i in 0..ffi::PyTuple_Size(names) {
            let name = ffi::PyTuple_GetItem(names, i);
            let at = [KEYS, LIMIT, GROUP].iter().position(|&at| name == known.names[at])?;
            found[at + 1] = *args.add(1 + i as usize);
        }
    }
    Some(found)
}

/// Objects of which there is one each, told by identity.
pub(in crate::fast) struct Known {
    pub names: [*mut PyObject; NAMES.len()],
    pub zero: *mut PyObject,
    pub yes: *mut PyObject,
    pub no: *mut PyObject,
    pub none: *mut PyObject,
    pub any: *mut PyObject,
}

// SAFETY: pointers to objects that are never freed, used with the GIL held.
unsafe impl Send for Known {}
// SAFETY: as above.
unsafe impl Sync for Known {}

static KNOWN: Once<Known> = Once::new();

impl Known {
    pub fn get(py: Python<'_>) -> &'static Known {
        KNOWN.get_or_init(py, || Known {
            names: NAMES.map(|name| PyString::intern(py, name).unbind().into_ptr()),
            // SAFETY: the GIL is held; the reference is kept for ever.
            zero: unsafe { ffi::PyLong_FromLong(0) },
            // SAFETY: an object that lives for ever.
            yes: unsafe { ffi::Py_True() },
            // SAFETY: as above.
            no: unsafe { ffi::Py_False() },
            none: py.None().into_ptr(),
            any: PyString::intern(py, "any").unbind().into_ptr(),
        })
    }

    /// Not given, or `None`, which says the same of every argument but the payload and `block`.
    #[inline]
    pub fn is_unsaid(&self, value: *mut PyObject) -> bool {
        value.is_null() || value == self.none
    }

    /// Like `is_unsaid`, or the number 0. Other objects are not compared by value: `False` and `()` are not
    /// numbers, and the ordinary method reports them.
    #[inline]
    pub fn is_zero(&self, value: *mut PyObject) -> bool {
        self.is_unsaid(value) || value == self.zero
    }

    /// Like `is_unsaid`, or `False`.
    #[inline]
    pub fn is_no(&self, value: *mut PyObject) -> bool {
        self.is_unsaid(value) || value == self.no
    }

    /// Returns whether a put names nothing beyond its keys, limits and group, and does not say how long to wait.
    #[inline]
    pub fn is_usual(&self, found: &PutArguments) -> bool {
        let block = found[BLOCK];
        self.is_unsaid(found[TIMEOUT])
            && (block.is_null() || block == self.yes || block == self.no)
            && self.options_are_usual(found[SHARED..].try_into().expect("as many as there are"))
    }

    /// Returns whether `shared` and all that follow it say nothing, except `limit` and `group`, which may say anything.
    #[inline]
    pub fn options_are_usual(&self, options: &[*mut PyObject; 9]) -> bool {
        self.is_unsaid(options[0])
            && self.is_zero(options[PRIORITY - SHARED])
            && self.is_zero(options[DELAY - SHARED])
            && self.is_unsaid(options[DEDUP - SHARED])
            && self.is_no(options[BARRIER - SHARED])
            && self.is_no(options[QUIET - SHARED])
            && self.is_unsaid(options[BEHIND - SHARED])
    }
}

/// Returns whether a number is given as 0, or not at all, told by identity.
pub fn is_zero(value: Option<&Bound<'_, PyAny>>) -> bool {
    value.is_none_or(|value| Known::get(value.py()).is_zero(value.as_ptr()))
}
