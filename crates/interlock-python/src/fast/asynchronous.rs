//! The fast path of `put` and `get` of the asyncio API.
//!
//! `try_put` and `try_get_async` are for the forms that the [coroutine](crate::asyncio::coroutine) does not
//! take, such as those with `timeout=`, and for `get_nowait`. Benefit: without the coroutine an
//! awaited `put`, `get` and `ack` take 812 ns with them and 1,278 with PyO3's entry and the
//! ordinary methods, measured as in [`hot`](crate::fast).

use std::ptr::null_mut;

use interlock_core::queue::scheduler::Grant;
use interlock_core::queue::types::Kind;
use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::Borrowed;

use super::arguments::{usual_arguments, Known, GROUP, LIMIT, SHARED};
use super::queue::{ack, id_of, quick_put};
use super::{attached, call_in_full, guarded, in_full, or_raised, replace, unpanicked};
use crate::asyncio::aio::{AsyncFace, AsyncLease};
use crate::asyncio::coroutine;
use crate::asyncio::coroutine::{Calls, Coroutine, Task};
use crate::queue::wait;
use crate::queue::Queue;

/// The put of the asyncio face that does not wait: all eleven arguments are positional.
pub(in crate::fast) unsafe extern "C" fn try_put(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    guarded(|| {
        // SAFETY: as in `put`.
        unsafe {
            let py = Python::assume_attached();
            let known = Known::get(py);
            if count == 11 && names.is_null() {
                let queue = Borrowed::from_ptr(py, slf);
                let queue = queue.cast_unchecked::<Queue>().get();
                let options = std::array::from_fn(|i| *args.add(2 + i));
                if known.options_are_usual(&options) {
                    let names = [options[LIMIT - SHARED], options[GROUP - SHARED]];
                    let placed = match names.iter().all(|&name| known.is_unsaid(name)) {
                        true => quick_put::<false>(py, queue, known, *args, *args.add(1), names),
                        false => quick_put::<true>(py, queue, known, *args, *args.add(1), names),
                    };
                    if let Some(id) = placed {
                        return id_of(slf, queue, id);
                    }
                }
            }
            in_full(slf, "_try_put_in_full", args, count, names)
        }
    })
}

/// The get of the asyncio face that does not wait.
pub(in crate::fast) unsafe extern "C" fn try_get_async(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    guarded(|| {
        // SAFETY: as in `put`.
        unsafe {
            let py = Python::assume_attached();
            if count == 1 && names.is_null() && *args == Known::get(py).any {
                let queue = Borrowed::from_ptr(py, slf);
                if let Some(lease) = quick_get_async(py, &queue.cast_unchecked()) {
                    return lease;
                }
            }
            in_full(slf, "_try_get_async_in_full", args, count, names)
        }
    })
}

/// A message that is ready, for the asyncio face. `None`: look closer.
#[inline]
fn quick_get_async(py: Python<'_>, queue: &Bound<'_, Queue>) -> Option<*mut PyObject> {
    let core = &queue.get().core;
    if queue.get().is_forked() || core.has_events() {
        return None;
    }
    queue.get().note_async_getter();
    let view = |payload: &Py<PyAny>, _: &Grant| payload.clone_ref(py);
    let (grant, payload) = core.try_get(Kind::Any, wait::consumer(), view).ok()??;
    Some(or_raised(py, AsyncLease::make(queue, grant, payload).map(Bound::into_ptr)))
}

/// `AsyncQueue.put`: what is to be put, to be awaited.
unsafe extern "C" fn async_put(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    guarded(|| {
        // SAFETY: as in `put`, on an AsyncFace.
        unsafe {
            let py = Python::assume_attached();
            if let Some((payload, keys)) = usual_arguments(Known::get(py), args, count, names) {
                return coroutine::new(py, Task::Put, [slf, payload, keys]);
            }
            attached(|py| {
                let function = coroutine::put_in_full(py);
                call_in_full(function, Some(slf), args, count, names)
            })
        }
    })
}

/// `AsyncQueue.get`.
unsafe extern "C" fn async_get(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    guarded(|| {
        // SAFETY: as in `put`, on an AsyncFace.
        unsafe {
            let py = Python::assume_attached();
            if count == 0 && names.is_null() {
                let nothing = std::ptr::null_mut();
                return coroutine::new(py, Task::Get, [slf, nothing, nothing]);
            }
            attached(|py| {
                let function = coroutine::get_in_full(py);
                call_in_full(function, Some(slf), args, count, names)
            })
        }
    })
}

/// # Safety
/// The GIL is held, and the coroutine is one that `async_put` made.
unsafe fn put_at_once(coroutine: &Coroutine) -> Option<*mut PyObject> {
    // SAFETY: the caller's.
    let put = || unsafe {
        let py = Python::assume_attached();
        let queue = face_queue(py, coroutine.face);
        let known = Known::get(py);
        let id = quick_put::<false>(
            py,
            queue.get(),
            known,
            coroutine.payload,
            coroutine.keys,
            [null_mut(); 2],
        )?;
        Some(id_of(queue.as_ptr(), queue.get(), id))
    };
    unpanicked(put).unwrap_or(Some(std::ptr::null_mut()))
}

/// # Safety
/// The GIL is held, and the coroutine is one that `async_get` made.
unsafe fn get_at_once(coroutine: &Coroutine) -> Option<*mut PyObject> {
    // SAFETY: the caller's.
    let get = || unsafe {
        let py = Python::assume_attached();
        quick_get_async(py, face_queue(py, coroutine.face))
    };
    unpanicked(get).unwrap_or(Some(std::ptr::null_mut()))
}

/// The queue of an asyncio face.
///
/// # Safety
/// The GIL is held; `face` is an AsyncFace.
unsafe fn face_queue<'a>(py: Python<'a>, face: *mut PyObject) -> &'a Bound<'a, Queue> {
    // SAFETY: the caller's; the face keeps its queue as long as it is there, and the caller the face.
    unsafe {
        let face = Borrowed::from_ptr(py, face);
        let queue: *const Py<Queue> = &face.cast_unchecked::<AsyncFace>().get().queue;
        (*queue).bind(py)
    }
}

/// Puts the entries in place of `put` and `get` of `AsyncQueue`, which they call for everything
/// slow.
#[pyfunction]
pub fn quicken(class: &Bound<'_, PyAny>) -> PyResult<()> {
    let calls = Calls { put: put_at_once, get: get_at_once };
    let (put, get) = (class.getattr("put")?, class.getattr("get")?);
    coroutine::set_behind(calls, &put, &get);
    let keyed = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
    for (name, entry, function) in
        [(c"put", async_put as ffi::PyCFunctionFastWithKeywords, put), (c"get", async_get, get)]
    {
        let pointer = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: entry };
        replace(class, name, pointer, keyed, doc_of(&function)?)?;
    }
    Ok(())
}

/// A function's signature and docstring as a built-in method carries them.
fn doc_of(function: &Bound<'_, PyAny>) -> PyResult<&'static std::ffi::CStr> {
    let py = function.py();
    let inspect = py.import("inspect")?;
    let signature = inspect.call_method1("signature", (function,))?;
    let empty = inspect.getattr("Signature")?.getattr("empty")?;
    let parameters = signature.getattr("parameters")?.call_method0("values")?;
    let mut bare = Vec::new();
    for parameter in parameters.try_iter()? {
        let change = PyDict::new(py);
        change.set_item("annotation", &empty)?;
        bare.push(parameter?.call_method("replace", (), Some(&change))?);
    }
    let change = PyDict::new(py);
    change.set_item("parameters", bare)?;
    change.set_item("return_annotation", &empty)?;
    let signature = signature.call_method("replace", (), Some(&change))?.str()?.to_string();
    let signature = signature.replacen("(self", "($self", 1);
    let name: String = function.getattr("__name__")?.extract()?;
    // `python -OO` strips it.
    let doc: Option<String> = inspect.call_method1("getdoc", (function,))?.extract()?;
    let doc = doc.unwrap_or_default();
    let doc = std::ffi::CString::new(format!("{name}{signature}\n--\n\n{doc}"))?;
    // A method's docstring must outlive its class, which lives as long as the process.
    Ok(Box::leak(doc.into_boxed_c_str()))
}

/// An AsyncLease's `ack`: done at once, and awaited all the same.
pub(in crate::fast) unsafe extern "C" fn async_ack(
    slf: *mut PyObject,
    _: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: called by the interpreter with the GIL held, on an AsyncLease, which is a Lease.
    let acked = unsafe { ack(slf, std::ptr::null_mut()) };
    if acked.is_null() {
        return acked;
    }
    // SAFETY: `acked` is an owned reference, to None; the GIL is held.
    unsafe {
        ffi::Py_DECREF(acked);
        coroutine::nothing(Python::assume_attached())
    }
}
