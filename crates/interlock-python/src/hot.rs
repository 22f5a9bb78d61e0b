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
//! API), and all that is not quick runs inside `told`.

use std::ffi::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};

use interlock_core::key::KeyRef;
use interlock_core::queue::scheduler::{Grant, Put};
use interlock_core::queue::types::Kind;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::Borrowed;

use crate::aio;
use crate::aio::{AsyncFace, AsyncLease};
use crate::convert;
use crate::coroutine::{self, Calls, Coroutine, Task};
use crate::gil::told;
use crate::lease::Lease;
use crate::queue::Queue;
use crate::wait;

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
    install_ack(py.get_type::<Lease>().as_any())?;
    install_async_ack(py.get_type::<AsyncLease>().as_any())
}

/// Gives a class of leases its `ack`.
pub fn install_ack(class: &Bound<'_, PyAny>) -> PyResult<()> {
    let pointer = ffi::PyMethodDefPointer { PyCFunction: ack };
    replace(class, c"ack", pointer, ffi::METH_NOARGS, ACK_DOC)
}

pub fn install_async_ack(class: &Bound<'_, PyAny>) -> PyResult<()> {
    let pointer = ffi::PyMethodDefPointer { PyCFunction: async_ack };
    replace(class, c"ack", pointer, ffi::METH_NOARGS, ACK_DOC)
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
    unpanicked(entry).unwrap_or(std::ptr::null_mut())
}

/// `None`: it panicked, and an exception says so.
#[inline]
fn unpanicked<R>(call: impl FnOnce() -> R) -> Option<R> {
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

/// The arguments of a put by their place in [`NAMES`]; null where one was not given.
type PutArguments = [*mut PyObject; NAMES.len()];

const NAMES: [&str; 10] = [
    "payload", "block", "timeout", "keys", "shared", "priority", "delay", "dedup", "barrier",
    "quiet",
];
const PAYLOAD: usize = 0;
const BLOCK: usize = 1;
const TIMEOUT: usize = 2;
const KEYS: usize = 3;
/// Arguments that may be positional.
const POSITIONAL: usize = 3;

/// Finds arguments by their names' identity: a caller's names are interned. `None`: some form that
/// only the ordinary method can take, or refuse.
///
/// # Safety
/// As for METH_FASTCALL with keywords.
#[inline]
unsafe fn find_arguments(
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
unsafe fn usual_arguments(
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
struct Known {
    names: [*mut PyObject; NAMES.len()],
    zero: *mut PyObject,
    no: *mut PyObject,
    none: *mut PyObject,
    any: *mut PyObject,
    /// The empty tuple.
    empty: *mut PyObject,
}

// SAFETY: pointers to objects that are never freed, used with the GIL held.
unsafe impl Send for Known {}
// SAFETY: as above.
unsafe impl Sync for Known {}

static KNOWN: PyOnceLock<Known> = PyOnceLock::new();

impl Known {
    fn get(py: Python<'_>) -> &'static Known {
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
    fn is_default(&self, value: *mut PyObject) -> bool {
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
            let known = Known::get(py);
            let queue = Borrowed::from_ptr(py, slf);
            let queue = queue.cast_unchecked::<Queue>().get();
            if let Some((payload, keys)) = usual_arguments(known, args, count, names) {
                if let Some(id) = quick_put(py, queue, known, payload, keys) {
                    return id_of(slf, queue, id);
                }
            }
            let Some(found) = find_arguments(known, args, count, names) else {
                return in_full(slf, "_put", args, count, names);
            };
            let plain = found[KEYS + 1..].iter().all(|&value| known.is_default(value));
            if plain && (found[TIMEOUT].is_null() || found[TIMEOUT] == known.none) {
                if let Some(id) = quick_put(py, queue, known, found[PAYLOAD], found[KEYS]) {
                    return id_of(slf, queue, id);
                }
            }
            // The interpreter says what is true of `block`, `barrier` and `quiet`.
            let truth = |at: usize, not_given: bool| match found[at].is_null() {
                true => Ok(not_given),
                false => Borrowed::from_ptr(py, found[at]).extract::<bool>(),
            };
            let given = |at: usize| {
                let value = found[at];
                let defaulted = value.is_null() || value == known.none;
                (!defaulted).then(|| Borrowed::from_ptr(py, value).to_owned())
            };
            attached(|py| {
                let payload = Borrowed::from_ptr(py, found[PAYLOAD]);
                let (block, barrier, quiet) =
                    (truth(BLOCK, true)?, truth(8, false)?, truth(9, false)?);
                let [timeout, keys, shared, priority, delay, dedup] = [2, 3, 4, 5, 6, 7].map(given);
                let id = queue._put(
                    py,
                    &payload,
                    block,
                    timeout.as_ref(),
                    keys.as_ref(),
                    shared.as_ref(),
                    priority.as_ref(),
                    delay.as_ref(),
                    dedup.as_ref(),
                    barrier,
                    quiet,
                )?;
                Ok(ffi::PyLong_FromUnsignedLongLong(id))
            })
        }
    })
}

/// The put of the asyncio face that does not wait: all eight arguments are positional.
unsafe extern "C" fn try_put(
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
            if count == 8 && names.is_null() {
                let queue = Borrowed::from_ptr(py, slf);
                let queue = queue.cast_unchecked::<Queue>().get();
                if (2..8).all(|i| known.is_default(*args.add(i))) {
                    if let Some(id) = quick_put(py, queue, known, *args, *args.add(1)) {
                        return id_of(slf, queue, id);
                    }
                }
            }
            in_full(slf, "_try_put_in_full", args, count, names)
        }
    })
}

/// An id for Python, after what the put noted was said.
#[inline]
unsafe fn id_of(slf: *mut PyObject, queue: &Queue, id: u64) -> *mut PyObject {
    // SAFETY: the GIL is held.
    let make = || unsafe { ffi::PyLong_FromUnsignedLongLong(id) };
    if queue.core.has_events() {
        said(slf, make)
    } else {
        make()
    }
}

/// A put that names at most keys, of the usual types, and finds room. `None`: it is not one.
///
/// # Safety
/// The GIL is held; `payload` is an object, `keys` one or null.
#[inline]
unsafe fn quick_put(
    py: Python<'_>,
    queue: &Queue,
    known: &Known,
    payload: *mut PyObject,
    keys: *mut PyObject,
) -> Option<u64> {
    if !queue.plain || queue.is_forked() {
        return None;
    }
    if keys.is_null() || keys == known.none {
        return place(py, queue, &[], payload);
    }
    // SAFETY: the caller's.
    let keys = unsafe { Borrowed::from_ptr(py, keys) };
    match convert::quick_key(keys) {
        Some(key) => place(py, queue, &[key], payload),
        None => place(py, queue, &convert::quick(&keys)?, payload),
    }
}

#[inline]
fn place(
    py: Python<'_>,
    queue: &Queue,
    keys: &[KeyRef<'_>],
    payload: *mut PyObject,
) -> Option<u64> {
    let put = Put { keys, ..Put::default() };
    // SAFETY: an object, which the caller of the entry holds.
    let mut payload = Some(unsafe { Borrowed::from_ptr(py, payload) }.to_owned().unbind());
    if let Ok(Ok(placed)) = queue.core.try_put(&put, &mut payload) {
        return Some(placed.id);
    }
    if let Some(payload) = payload {
        give_back(payload);
    }
    None
}

/// The get of the asyncio face that does not wait.
unsafe extern "C" fn try_get_async(
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
    Some(match AsyncLease::make(queue, grant, payload) {
        Ok(lease) => lease.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    })
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
        let id = quick_put(py, queue.get(), known, coroutine.payload, coroutine.keys)?;
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

/// Puts the entries in place of `put` and `get` of `AsyncQueue`, which go on to do what is not quick.
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
    let doc: String = inspect.call_method1("getdoc", (function,))?.extract()?;
    let doc = std::ffi::CString::new(format!("{name}{signature}\n--\n\n{doc}"))?;
    // A method's docstring must outlive its class, which lives as long as the process.
    Ok(Box::leak(doc.into_boxed_c_str()))
}

/// An AsyncLease's `ack`: done at once, and awaited all the same.
unsafe extern "C" fn async_ack(slf: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
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
            match lease.ack_in_core(py) {
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
                Err(_) => attached(|py| Err(lease.refused(py))),
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
    told(|py| match call(py) {
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
        unsafe {
            let bound = Borrowed::from_ptr(py, slf).getattr(method)?;
            call_in_full(&bound, None, args, count, names)
                .map_err(|error| under_its_own_name(py, error, method))
        }
    })
}

/// A wrong argument is told of the method that was called, not of the one that takes all forms of it.
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
unsafe fn call_in_full(
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
