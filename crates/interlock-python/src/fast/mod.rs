//! The fast paths of `put`, `get` and `ack`, which the interpreter calls directly.
//!
//! PyO3's own entry parses arguments by comparing names as text and counts each entry and exit in
//! thread-local storage, which together cost more than the queue does. Here the usual forms
//! (`put(payload)`, `put(payload, keys=...)`, `get()`, `ack()`) are recognised by pointers; every
//! other form goes through the ordinary methods, `_put` and `_get`, with the same arguments.
//!
//! Benefit: a `put`, `get` and `ack` of one key take 311 ns, 513 with PyO3's entry and the ordinary
//! method in place of `put`, 356 in place of `get`, 340 in place of `ack` (the least of many bursts
//! of 300, whole-program optimisation, CPython 3.11). In instructions `ack` gains least: 3,769
//! against 4,003.
//!
//! What must hold in here: PyO3 does not know that this thread is attached, so that a `Py` dropped by
//! Rust would be leaked. So in the quick paths no `Py` is dropped (they are given back through the C
//! API), and all that is not quick runs inside `told`.

mod arguments;
mod asynchronous;
mod queue;
pub(super) mod recycle;

use std::ffi::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use pyo3::Borrowed;

use crate::asyncio::aio;
use crate::asyncio::aio::AsyncLease;
use crate::asyncio::coroutine;
use crate::queue::lease::Lease;
use crate::queue::Queue;
use crate::runtime::gil::told;
use arguments::Known;
use asynchronous::{async_ack, try_get_async, try_put};
use queue::{ack, get, put, ACK_DOC, GET_DOC, PUT_DOC};

pub use arguments::is_zero;
pub use asynchronous::quicken;

/// Puts the entries in place of the methods of the same names.
pub fn install(py: Python<'_>) -> PyResult<()> {
    Known::get(py);
    coroutine::install(py)?;
    let queue = py.get_type::<Queue>();
    let keyed = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
    for (name, method, doc) in [
        (c"put", put as ffi::PyCFunctionFastWithKeywords, PUT_DOC),
        (c"get", get, GET_DOC),
        (c"_try_put", try_put, c""),
        (c"_try_get_async", try_get_async, c""),
    ] {
        let pointer = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: method };
        replace(queue.as_any(), name, pointer, keyed, doc)?;
    }
    for class in [py.get_type::<Lease>(), py.get_type::<AsyncLease>()] {
        install_payload(&class)?;
    }
    install_ack(py.get_type::<Lease>().as_any())?;
    install_async_ack(py.get_type::<AsyncLease>().as_any())
}

/// Adds `payload` to a class of leases: a field that the interpreter reads where it lies, as it does
/// a slot, without a call.
fn install_payload(class: &Bound<'_, PyType>) -> PyResult<()> {
    let member = ffi::PyMemberDef {
        name: c"payload".as_ptr(),
        type_code: ffi::Py_T_OBJECT_EX,
        offset: recycle::PAYLOAD as Py_ssize_t,
        flags: ffi::Py_READONLY,
        doc: std::ptr::null(),
    };
    // As the definition of a method: it must outlive its class.
    let member = Box::leak(Box::new(member));
    // SAFETY: objects of `class` have a pointer to an object at this place, from when they are made until
    // they are freed, and it never changes.
    let descriptor = unsafe {
        let descriptor = ffi::PyDescr_NewMember(class.as_type_ptr(), member);
        Bound::from_owned_ptr_or_err(class.py(), descriptor)?
    };
    class.setattr("payload", descriptor)
}

/// Adds `ack` to a class of leases.
pub fn install_ack(class: &Bound<'_, PyAny>) -> PyResult<()> {
    let pointer = ffi::PyMethodDefPointer { PyCFunction: ack };
    replace(class, c"ack", pointer, ffi::METH_NOARGS, ACK_DOC)
}

pub fn install_async_ack(class: &Bound<'_, PyAny>) -> PyResult<()> {
    let pointer = ffi::PyMethodDefPointer { PyCFunction: async_ack };
    replace(class, c"ack", pointer, ffi::METH_NOARGS, ACK_DOC)
}

pub(crate) fn replace(
    class: &Bound<'_, PyAny>,
    name: &'static std::ffi::CStr,
    pointer: ffi::PyMethodDefPointer,
    flags: c_int,
    doc: &'static std::ffi::CStr,
) -> PyResult<()> {
    let method = ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: pointer,
        ml_flags: flags,
        ml_doc: doc.as_ptr(),
    };
    // A method's definition must outlive its class, which lives as long as the process.
    let method = Box::leak(Box::new(method));
    // SAFETY: `class` is a type, and `method` a valid definition that is never freed.
    let descriptor = unsafe {
        let descriptor = ffi::PyDescr_NewMethod(class.as_ptr().cast(), method);
        Bound::from_owned_ptr_or_err(class.py(), descriptor)?
    };
    class.setattr(name.to_str().unwrap_or_default(), descriptor)
}

/// Runs an entry; a panic becomes an exception, as in the ordinary methods.
#[inline]
pub(crate) fn guarded(entry: impl FnOnce() -> *mut PyObject) -> *mut PyObject {
    unpanicked(entry).unwrap_or(std::ptr::null_mut())
}

/// Returns `None` if it panicked; an exception is set then.
#[inline]
pub(crate) fn unpanicked<R>(call: impl FnOnce() -> R) -> Option<R> {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    outcome
        .map_err(|_| {
            told(|py| {
                let text = "a bug in interlock's core; see stderr for where";
                PyRuntimeError::new_err(text).restore(py);
            });
        })
        .ok()
}

/// Drops a reference as the interpreter does, without asking PyO3 whether it may.
#[inline]
fn give_back(payload: Py<PyAny>) {
    // SAFETY: the GIL is held, and the reference is owned.
    unsafe { ffi::Py_DECREF(payload.into_ptr()) }
}

/// Logs the events of the queue, then returns the result.
#[cold]
fn said(slf: *mut PyObject, answer: impl FnOnce() -> *mut PyObject) -> *mut PyObject {
    let answer = answer();
    if answer.is_null() {
        return answer;
    }
    attached(|py| {
        // SAFETY: `slf` is the queue whose method was called; `answer` is owned.
        let (queue, answer) =
            unsafe { (Borrowed::from_ptr(py, slf), Bound::from_owned_ptr(py, answer)) };
        // SAFETY: as above.
        let queue = unsafe { queue.cast_unchecked::<Queue>() };
        aio::said(queue.get(), py, answer.cast::<Lease>().iter().map(|lease| lease.get()))?;
        Ok(answer.into_ptr())
    })
}

#[cold]
pub(crate) fn attached(
    call: impl for<'py> FnOnce(Python<'py>) -> PyResult<*mut PyObject>,
) -> *mut PyObject {
    told(|py| or_raised(py, call(py)))
}

/// The answer, or null with the exception raised.
#[inline]
pub(crate) fn or_raised(py: Python<'_>, answer: PyResult<*mut PyObject>) -> *mut PyObject {
    answer.unwrap_or_else(|error| {
        error.restore(py);
        std::ptr::null_mut()
    })
}

/// The ordinary method, with the same arguments.
///
/// # Safety
/// As for METH_FASTCALL with keywords.
#[cold]
unsafe fn in_full(
    slf: *mut PyObject,
    method: &str,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    attached(|py| {
        // SAFETY: the caller's.
        unsafe {
            let bound = Borrowed::from_ptr(py, slf).getattr(method)?;
            call_in_full(&bound, None, args, count, names)
                .map_err(|error| under_its_own_name(py, error, method))
        }
    })
}

/// An error about an argument names the method that was called, not the one that takes all forms of
/// it.
fn under_its_own_name(py: Python<'_>, error: PyErr, method: &str) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(py) {
        return error;
    }
    let text = error.value(py).to_string();
    let Some(rest) = text.strip_prefix(&format!("Queue.{method}()")) else { return error };
    let name = method.trim_start_matches('_');
    let hint = match rest.contains("argument 'key'") {
        true => "; did you mean keys=?",
        false => "",
    };
    PyTypeError::new_err(format!("{name}(){rest}{hint}"))
}

/// Calls `function` with the arguments of a METH_FASTCALL, after `first`.
///
/// # Safety
/// As for METH_FASTCALL with keywords.
pub(crate) unsafe fn call_in_full(
    function: &Bound<'_, PyAny>,
    first: Option<*mut PyObject>,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> PyResult<*mut PyObject> {
    let py = function.py();
    let keywords = PyDict::new(py);
    // SAFETY: the caller's.
    let positional = unsafe {
        let at = |i: Py_ssize_t| Borrowed::from_ptr(py, *args.add(i as usize));
        if !names.is_null() {
            let names = Borrowed::from_ptr(py, names);
            for (name, i) in names.cast::<PyTuple>()?.iter().zip(count..) {
                keywords.set_item(name, at(i))?;
            }
        }
        let first = first.map(|first| Borrowed::from_ptr(py, first));
        first.into_iter().chain((0..count).map(at)).collect::<Vec<_>>()
    };
    function.call(PyTuple::new(py, positional)?, Some(&keywords)).map(Bound::into_ptr)
}
