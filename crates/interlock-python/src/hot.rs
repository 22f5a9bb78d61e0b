//! The three calls that every message makes, `put`, `get` and `ack`, entered straight from the
//! interpreter.
//!
//! PyO3's own entry parses arguments by comparing names as text and counts each entry and exit in
//! thread-local storage, which together cost more than the queue does. Here the usual forms
//! (`put(payload)`, `put(payload, keys=...)`, `get()`, `ack()`) are told by pointers; every other form
//! goes through the ordinary methods, `_put` and `_get`, with the same arguments.
//!
//! What must hold in here: PyO3 does not know that this thread is attached, so that a `Py` dropped by
//! Rust would be leaked. So in the quick paths no `Py` is dropped (they are given back through the C
//! API), and all that is not quick runs inside `Python::attach`.

use std::ffi::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};

use interlock_core::queue::scheduler::{Grant, Put};
use interlock_core::queue::types::Kind;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::Borrowed;

use crate::aio;
use crate::convert::{self, KeyRefs};
use crate::lease::Lease;
use crate::queue::Queue;
use crate::wait;

/// Puts the entries in place of the methods of the same names.
pub fn install(py: Python<'_>) -> PyResult<()> {
    KEYS.get_or_init(py, || PyString::intern(py, "keys").unbind());
    let queue = py.get_type::<Queue>();
    let keyed = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
    let pointer = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: put };
    replace(queue.as_any(), c"put", pointer, keyed, PUT_DOC)?;
    let pointer = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: get };
    replace(queue.as_any(), c"get", pointer, keyed, GET_DOC)?;
    let pointer = ffi::PyMethodDefPointer { PyCFunction: ack };
    replace(py.get_type::<Lease>().as_any(), c"ack", pointer, ffi::METH_NOARGS, ACK_DOC)
}

fn replace(
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

static KEYS: PyOnceLock<Py<PyString>> = PyOnceLock::new();

const PUT_DOC: &std::ffi::CStr = c"put($self, payload, block=True, timeout=None, *, keys=None, \
shared=None, priority=0, delay=0, dedup=None, barrier=False, quiet=False)
--

Puts a message and returns its id.

Args:
    payload: anything.
    block: wait for room. Default True.
    timeout: seconds to wait for room. Default: for ever.
    keys: one key (str, int, bytes) or an iterable of keys, held alone. Default: what the queue's
        own keys= says of the payload, else none.
    shared: keys held together with other readers.
    priority: -100 to 100; higher ones are handed out first, but never out of a key's order.
    delay: seconds until the message takes its place.
    dedup: a name; while a message of this name is unsettled, or was settled within the queue's
        window, nothing is put and its id is returned.
    barrier: runs alone, after all before it and before all after it; names no keys.
    quiet: leave the message out of the debug log.

Raises:
    Full: there was no room in time.
    ShutDown: the queue is shut down.
    WouldDeadlock: the caller is the only one that could make room.
    TypeError, ValueError: an argument is of a wrong type or out of its range; nothing was put.";

const GET_DOC: &std::ffi::CStr = c"get($self, block=True, timeout=None, *, kind='any')
--

Takes the next message: the one of highest priority, then first in sequence, of those that
nothing holds up.

Args:
    block: wait for one. Default True.
    timeout: seconds to wait. Default: for ever.
    kind: 'any', 'keyed' (barriers too) or 'unkeyed'.

Returns:
    a Lease, to be settled with ack(), nack(), reject() or release(), or as a context manager.

Raises:
    Empty: no message was ready in time.
    ShutDown: the queue is shut down and nothing unsettled is left.";

const ACK_DOC: &std::ffi::CStr = c"ack($self)
--

The message was handled: its lanes move on.

Raises:
    LeaseLost: the lease was settled, ran out or was revoked; nothing was changed.";

/// Runs an entry; a panic becomes an exception, as in the ordinary methods.
#[inline]
fn guarded(entry: impl FnOnce() -> *mut PyObject) -> *mut PyObject {
    catch_unwind(AssertUnwindSafe(entry)).unwrap_or_else(|_| {
        Python::attach(|py| {
            PyRuntimeError::new_err("a bug in interlock's core; see stderr for where").restore(py);
        });
        std::ptr::null_mut()
    })
}

unsafe extern "C" fn put(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    guarded(|| {
        // SAFETY: called by the interpreter with the GIL held, and as described for METH_FASTCALL with
        // keywords: `count` positional arguments, then one value for each of `names`.
        unsafe {
            let py = Python::assume_attached();
            let keys = if names.is_null() {
                Some(None)
            } else if ffi::PyTuple_Size(names) == 1
                && KEYS.get(py).is_some_and(|k| k.as_ptr() == ffi::PyTuple_GetItem(names, 0))
            {
                Some(Some(Borrowed::from_ptr(py, *args.add(1))))
            } else {
                None
            };
            if let (1, Some(keys)) = (count, keys) {
                let queue = Borrowed::from_ptr(py, slf);
                let queue = queue.cast_unchecked::<Queue>();
                let payload = Borrowed::from_ptr(py, *args);
                if let Some(id) = quick_put(queue.get(), &payload, keys.as_deref()) {
                    if queue.get().core.has_events() {
                        return said(slf, || ffi::PyLong_FromUnsignedLongLong(id));
                    }
                    return ffi::PyLong_FromUnsignedLongLong(id);
                }
            }
            in_full(slf, "_put", args, count, names)
        }
    })
}

/// A put that names at most keys, of the usual types, and finds room. `None`: it is not one.
#[inline]
fn quick_put(
    queue: &Queue,
    payload: &Bound<'_, PyAny>,
    keys: Option<&Bound<'_, PyAny>>,
) -> Option<u64> {
    if !queue.plain || queue.is_forked() {
        return None;
    }
    let keys = match keys {
        None => KeyRefs::new(),
        Some(keys) => convert::quick(keys)?,
    };
    let put = Put { keys: &keys, ..Put::default() };
    let mut payload = Some(payload.clone().unbind());
    if let Ok(Ok(placed)) = queue.core.try_put(&put, &mut payload) {
        return Some(placed.id);
    }
    if let Some(payload) = payload {
        give_back(payload);
    }
    None
}

unsafe extern "C" fn get(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    guarded(|| {
        // SAFETY: as in `put`.
        unsafe {
            let py = Python::assume_attached();
            let bound = Borrowed::from_ptr(py, slf);
            let bound = bound.cast_unchecked::<Queue>();
            let queue = bound.get();
            if count == 0 && names.is_null() && !queue.is_forked() {
                let consumer = wait::consumer();
                queue.note_getter(consumer);
                let view = |payload: &Py<PyAny>, _: &Grant| payload.clone_ref(py);
                if let Ok(Some((grant, payload))) = queue.core.try_get(Kind::Any, consumer, view) {
                    let make = || match Lease::make(&bound, grant, payload) {
                        Ok(lease) => lease.into_ptr(),
                        Err(error) => {
                            error.restore(py);
                            std::ptr::null_mut()
                        }
                    };
                    return if queue.core.has_events() { said(slf, make) } else { make() };
                }
            }
            in_full(slf, "_get", args, count, names)
        }
    })
}

unsafe extern "C" fn ack(slf: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    guarded(|| {
        // SAFETY: called by the interpreter with the GIL held, on a Lease.
        unsafe {
            let py = Python::assume_attached();
            let lease = Borrowed::from_ptr(py, slf);
            let lease = lease.cast_unchecked::<Lease>().get();
            let queue = lease.queue.get();
            if lease.is_settled() || queue.is_forked() || queue.core.has_events() {
                return attached(|py| lease.ack(py).map(|()| py.None().into_ptr()));
            }
            match lease.ack_in_core() {
                Ok(payload) => {
                    lease.given_away();
                    if let Some(payload) = payload {
                        give_back(payload);
                    }
                    if queue.core.has_events() {
                        return attached(|py| queue.say(py).map(|()| py.None().into_ptr()));
                    }
                    let none = ffi::Py_None();
                    ffi::Py_INCREF(none);
                    none
                }
                Err(_) => {
                    attached(|py| Err(crate::errors::lease_lost(py, lease.id, lease.handle.token)))
                }
            }
        }
    })
}

/// Drops a reference as the interpreter does, without asking PyO3 whether it may.
#[inline]
fn give_back(payload: Py<PyAny>) {
    // SAFETY: the GIL is held, and the reference is owned.
    unsafe { ffi::Py_DECREF(payload.into_ptr()) }
}

/// Says what the queue noted, then answers.
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
fn attached(call: impl for<'py> FnOnce(Python<'py>) -> PyResult<*mut PyObject>) -> *mut PyObject {
    Python::attach(|py| match call(py) {
        Ok(answer) => answer,
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
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
        let (slf, all) = unsafe {
            let named = if names.is_null() { 0 } else { ffi::PyTuple_Size(names) };
            let all: Vec<Borrowed<'_, '_, PyAny>> = (0..(count + named) as usize)
                .map(|i| Borrowed::from_ptr(py, *args.add(i)))
                .collect();
            (Borrowed::from_ptr(py, slf), all)
        };
        let positional = PyTuple::new(py, &all[..count as usize])?;
        let keywords = PyDict::new(py);
        if !names.is_null() {
            // SAFETY: the tuple of names.
            let names = unsafe { Borrowed::from_ptr(py, names) };
            for (name, value) in names.cast::<PyTuple>()?.iter().zip(&all[count as usize..]) {
                keywords.set_item(name, value)?;
            }
        }
        slf.getattr(method)?.call(positional, Some(&keywords)).map(Bound::into_ptr)
    })
}
