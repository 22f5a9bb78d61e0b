//! The coroutine that `AsyncQueue.put` and `get` return.
//!
//! A coroutine of Python costs as much as the rest of the call. This one tries, when it is first
//! sent into, what the queue can do at once; if that does not suffice it makes the coroutine
//! written in Python and delegates to it from then on. Nothing is done before it is awaited, as
//! with every coroutine, so that one that is cancelled before it began has taken no message.
//!
//! Benefit: an awaited `put`, `get` and `ack` of one key take 438 ns, 812 with Python's coroutines
//! in its place, measured as in [`hot`](crate::fast).

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};

use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning, PyTypeError, PyValueError};
use pyo3::ffi::{self, PyObject, PySendResult, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::runtime::gil::{told, GilCell};
use crate::runtime::nesting;
use crate::runtime::nesting::Late;
use crate::runtime::once::Once;

/// Most kept to be used again.
const KEPT: usize = 64;

/// The task of a coroutine.
#[derive(Clone, Copy, PartialEq)]
pub enum Task {
    Put,
    Get,
    /// Nothing: the call that returned it did everything. There is one of these, awaited any number
    /// of times.
    Nothing,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    New,
    /// Somebody sends into it at this moment, or throws.
    Running,
    /// `inner` continues it.
    Handed,
    Ended,
}

/// An object of Python: its head, and what it was called with, references that it owns or null.
#[repr(C)]
pub struct Coroutine {
    head: PyObject,
    task: Task,
    stage: Stage,
    pub face: *mut PyObject,
    pub payload: *mut PyObject,
    pub keys: *mut PyObject,
    inner: *mut PyObject,
}

/// The functions that make the two calls at once; `Behind` has those that make them in full.
pub struct Calls {
    /// Does what can be done at once: an owned reference, null with an exception, or `None`: not at
    /// once.
    pub put: unsafe fn(&Coroutine) -> Option<*mut PyObject>,
    pub get: unsafe fn(&Coroutine) -> Option<*mut PyObject>,
}

/// The functions behind the calls.
struct Behind {
    calls: Calls,
    /// The coroutine functions of `AsyncQueue`.
    put_in_full: Py<PyAny>,
    get_in_full: Py<PyAny>,
}

struct Class(*mut PyTypeObject);
// SAFETY: a type that lives as long as the process.
unsafe impl Send for Class {}
// SAFETY: as above.
unsafe impl Sync for Class {}

static CLASS: Once<Class> = Once::new();
static BEHIND: Once<Behind> = Once::new();
static NOTHING: Once<Py<PyAny>> = Once::new();

struct Free(GilCell<Vec<*mut Coroutine>>);
// SAFETY: used with the GIL held only.
unsafe impl Sync for Free {}
static FREE: Free = Free(GilCell::new(Vec::new()));

/// Creates the class.
pub fn install(py: Python<'_>) -> PyResult<()> {
    CLASS.get_or_try_init(py, || make_class(py).map(Class)).map(|_| ())
}

/// Sets how the coroutines of `put` and `get` work; the two functions do everything that is not done at once.
pub fn set_behind(calls: Calls, put: &Bound<'_, PyAny>, get: &Bound<'_, PyAny>) {
    let (put_in_full, get_in_full) = (put.clone().unbind(), get.clone().unbind());
    // Once, with the module of the asyncio face.
    let _ = BEHIND.set(put.py(), Behind { calls, put_in_full, get_in_full });
}

fn behind(py: Python<'_>) -> &Behind {
    BEHIND.get(py).expect("set before there is a face to call")
}

/// The coroutine function that does all that a put may want.
pub fn put_in_full(py: Python<'_>) -> &Bound<'_, PyAny> {
    behind(py).put_in_full.bind(py)
}

pub fn get_in_full(py: Python<'_>) -> &Bound<'_, PyAny> {
    behind(py).get_in_full.bind(py)
}

/// The one that is done already.
#[inline]
pub fn nothing(py: Python<'_>) -> *mut PyObject {
    let nothing = NOTHING.get_or_init(py, || {
        // SAFETY: a new object, owned.
        unsafe {
            let made = new(py, Task::Nothing, [std::ptr::null_mut(); 3]);
            Bound::from_owned_ptr(py, made).unbind()
        }
    });
    nothing.clone_ref(py).into_ptr()
}

/// Returns a coroutine that does `task`. It takes references of its own to face, payload and keys
/// (which may be null). Returns null with an exception if memory is short.
///
/// # Safety
/// The GIL is held; the pointers are null or objects.
#[inline]
pub unsafe fn new(py: Python<'_>, task: Task, holds: [*mut PyObject; 3]) -> *mut PyObject {
    let class = CLASS.get(py).expect("made with the module").0;
    // SAFETY: memory of an object of `class`, with no other reference and unknown to the collector,
    // which is notified once the coroutine is complete.
    unsafe {
        let made = match FREE.0.with_mut(py, Vec::pop) {
            Some(kept) => {
                ffi::PyObject_Init(kept.cast(), class);
                kept
            }
            None => {
                let made = ffi::PyType_GenericAlloc(class, 0).cast::<Coroutine>();
                if made.is_null() {
                    return made.cast();
                }
                ffi::PyObject_GC_UnTrack(made.cast());
                made
            }
        };
        holds.into_iter().for_each(|held| ffi::Py_XINCREF(held));
        let [face, payload, keys] = holds;
        (*made).task = task;
        (*made).stage = Stage::New;
        ((*made).face, (*made).payload, (*made).keys) = (face, payload, keys);
        (*made).inner = std::ptr::null_mut();
        // It may be part of a cycle from the start: a payload may refer to it, or to the task that will run
        // it.
        ffi::PyObject_GC_Track(made.cast());
        made.cast()
    }
}

unsafe extern "C" fn dealloc(object: *mut PyObject) {
    // SAFETY: the interpreter's, with the GIL held; nobody refers to the object.
    unsafe {
        let py = Python::assume_attached();
        ffi::PyObject_GC_UnTrack(object.cast());
        match nesting::is_deep(py) {
            true => nesting::later(py, Late::Object(object, free)),
            false => nesting::nested(py, || free(object)),
        }
    }
}

/// # Safety
/// The GIL is held; nobody refers to the object, and the collector does not know it.
unsafe fn free(object: *mut PyObject) {
    // SAFETY: the caller's.
    unsafe {
        let py = Python::assume_attached();
        let slf = object.cast::<Coroutine>();
        clear(object);
        let class = ffi::Py_TYPE(object);
        if FREE.0.with(py, Vec::len) < KEPT {
            FREE.0.with_mut(py, |free| free.push(slf));
        } else {
            ffi::PyObject_GC_Del(object.cast());
        }
        ffi::Py_DECREF(class.cast());
    }
}

#[cold]
fn never_awaited(task: Task) {
    told(|py| {
        let raised = PyErr::take(py);
        let text = format!("coroutine '{}' was never awaited", task.qualified());
        let text = std::ffi::CString::new(text).unwrap_or_default();
        if let Err(error) = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1) {
            error.write_unraisable(py, None);
        }
        if let Some(raised) = raised {
            raised.restore(py);
        }
    });
}

/// Called by the collector: drops the references, including the one to `inner`.
unsafe extern "C" fn clear(object: *mut PyObject) -> c_int {
    // SAFETY: the interpreter's.
    unsafe {
        let slf = object.cast::<Coroutine>();
        if (*slf).stage == Stage::New && (*slf).task != Task::Nothing {
            never_awaited((*slf).task);
        }
        end(slf);
    }
    0
}

/// Drops its arguments. A coroutine that has ended or delegated may be kept for long (by a task), and must
/// not keep its payload alive.
#[inline]
unsafe fn let_go(slf: *mut Coroutine) {
    // SAFETY: each reference is owned, and forgotten before it is given back.
    unsafe {
        for place in [&raw mut (*slf).face, &raw mut (*slf).payload, &raw mut (*slf).keys] {
            ffi::Py_XDECREF(std::ptr::replace(place, std::ptr::null_mut()));
        }
    }
}

unsafe extern "C" fn traverse(
    object: *mut PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the collector's.
    unsafe {
        let slf = &*object.cast::<Coroutine>();
        let class = ffi::Py_TYPE(object).cast();
        for held in [class, slf.face, slf.payload, slf.keys, slf.inner] {
            if !held.is_null() {
                let answer = visit(held, argument);
                if answer != 0 {
                    return answer;
                }
            }
        }
    }
    0
}

/// Sends `value` into it: the next thing to wait for, or its result.
unsafe extern "C" fn send(
    object: *mut PyObject,
    value: *mut PyObject,
    result: *mut *mut PyObject,
) -> PySendResult {
    // SAFETY: the interpreter's, with the GIL held; `result` is a place for a reference.
    unsafe {
        let py = Python::assume_attached();
        let slf = object.cast::<Coroutine>();
        *result = std::ptr::null_mut();
        match ((*slf).task, (*slf).stage) {
            (Task::Nothing, _) => {
                *result = py.None().into_ptr();
                return PySendResult::PYGEN_RETURN;
            }
            (_, Stage::New) if value != ffi::Py_None() => {
                let text = "can't send non-None value to a just-started coroutine";
                raise(|_| PyTypeError::new_err(text));
                return PySendResult::PYGEN_ERROR;
            }
            (task, Stage::New) => {
                // A wake in there runs Python code.
                (*slf).stage = Stage::Running;
                let behind = behind(py);
                let at_once = if task == Task::Put { behind.calls.put } else { behind.calls.get };
                if let Some(done) = at_once(&*slf) {
                    *result = done;
                    end(slf);
                    return match done.is_null() {
                        true => PySendResult::PYGEN_ERROR,
                        false => PySendResult::PYGEN_RETURN,
                    };
                }
                if !hand_on(slf, behind) {
                    end(slf);
                    return PySendResult::PYGEN_ERROR;
                }
            }
            (_, Stage::Running) => {
                running();
                return PySendResult::PYGEN_ERROR;
            }
            (_, Stage::Ended) => {
                raise(|_| PyRuntimeError::new_err("cannot reuse already awaited coroutine"));
                return PySendResult::PYGEN_ERROR;
            }
            (_, Stage::Handed) => {}
        }
        let inner = begin_inner(slf);
        let sent = ffi::PyIter_Send(inner, value, result);
        end_inner(slf, inner, matches!(sent, PySendResult::PYGEN_NEXT));
        sent
    }
}

/// Creates the Python coroutine that does the whole call.
#[cold]
unsafe fn hand_on(slf: *mut Coroutine, behind: &Behind) -> bool {
    // SAFETY: what it was called with is owned until it is taken here.
    unsafe {
        let keywords = match (*slf).keys.is_null() {
            true => std::ptr::null_mut(),
            false => {
                let keywords = ffi::PyDict_New();
                // A put without its keys would be out of order.
                if keywords.is_null()
                    || ffi::PyDict_SetItemString(keywords, c"keys".as_ptr(), (*slf).keys) != 0
                {
                    ffi::Py_XDECREF(keywords);
                    return false;
                }
                keywords
            }
        };
        let (function, arguments) = match (*slf).task {
            Task::Put => {
                (behind.put_in_full.as_ptr(), ffi::PyTuple_Pack(2, (*slf).face, (*slf).payload))
            }
            _ => (behind.get_in_full.as_ptr(), ffi::PyTuple_Pack(1, (*slf).face)),
        };
        if !arguments.is_null() {
            (*slf).inner = ffi::PyObject_Call(function, arguments, keywords);
        }
        ffi::Py_XDECREF(arguments);
        ffi::Py_XDECREF(keywords);
        if (*slf).inner.is_null() {
            return false;
        }
        let_go(slf);
        true
    }
}

#[inline]
unsafe fn end(slf: *mut Coroutine) {
    // SAFETY: the reference is owned.
    unsafe {
        (*slf).stage = Stage::Ended;
        ffi::Py_XDECREF(std::mem::replace(&mut (*slf).inner, std::ptr::null_mut()));
        let_go(slf);
    }
}

/// Borrows the coroutine that it delegates to, for a call into that; no other call happens
/// meanwhile.
unsafe fn begin_inner(slf: *mut Coroutine) -> *mut PyObject {
    // SAFETY: it has handed itself on, so that there is one.
    unsafe {
        (*slf).stage = Stage::Running;
        ffi::Py_INCREF((*slf).inner);
        (*slf).inner
    }
}

/// The call is over, and waits for something if it `goes_on`.
unsafe fn end_inner(slf: *mut Coroutine, inner: *mut PyObject, goes_on: bool) {
    // SAFETY: the reference that `begin_inner` took.
    unsafe {
        ffi::Py_DECREF(inner);
        // The collector may have cleared it.
        match goes_on && !(*slf).inner.is_null() {
            true => (*slf).stage = Stage::Handed,
            false => end(slf),
        }
    }
}

fn running() -> *mut PyObject {
    raise(|_| PyValueError::new_err("coroutine already executing"))
}

#[cold]
fn raise(error: impl FnOnce(Python<'_>) -> PyErr) -> *mut PyObject {
    told(|py| error(py).restore(py));
    std::ptr::null_mut()
}

/// As an iterator answers: its result is a StopIteration, which for None need not be raised.
unsafe fn answer(sent: PySendResult, result: *mut PyObject, quiet: bool) -> *mut PyObject {
    // SAFETY: `result` is what `send` gave.
    unsafe {
        if matches!(sent, PySendResult::PYGEN_RETURN) {
            if !(quiet && result == ffi::Py_None()) {
                // Neither a tuple nor an exception, which this would take apart.
                ffi::PyErr_SetObject(ffi::PyExc_StopIteration, result);
            }
            ffi::Py_DECREF(result);
            return std::ptr::null_mut();
        }
        result
    }
}

unsafe extern "C" fn next(object: *mut PyObject) -> *mut PyObject {
    let mut result = std::ptr::null_mut();
    // SAFETY: the interpreter's.
    unsafe {
        let sent = send(object, ffi::Py_None(), &mut result);
        answer(sent, result, true)
    }
}

unsafe extern "C" fn send_method(object: *mut PyObject, value: *mut PyObject) -> *mut PyObject {
    let mut result = std::ptr::null_mut();
    // SAFETY: the interpreter's.
    unsafe {
        let sent = send(object, value, &mut result);
        answer(sent, result, false)
    }
}

unsafe extern "C" fn throw(object: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter's: `arguments` is a tuple.
    unsafe {
        let slf = object.cast::<Coroutine>();
        if (*slf).stage == Stage::Running {
            return running();
        }
        if (*slf).stage == Stage::Handed {
            let inner = begin_inner(slf);
            let method = ffi::PyObject_GetAttrString(inner, c"throw".as_ptr());
            let thrown = match method.is_null() {
                true => method,
                false => ffi::PyObject_Call(method, arguments, std::ptr::null_mut()),
            };
            ffi::Py_XDECREF(method);
            end_inner(slf, inner, !thrown.is_null());
            return thrown;
        }
        if (*slf).task != Task::Nothing {
            end(slf);
        }
        raise(|py| {
            let arguments = Bound::from_borrowed_ptr(py, arguments);
            thrown_error(&arguments.cast_into_unchecked()).unwrap_or_else(|error| error)
        })
    }
}

/// The exception that `throw(type, value, traceback)` or `throw(error)` names.
pub fn thrown_error(arguments: &Bound<'_, PyTuple>) -> PyResult<PyErr> {
    let error = arguments.get_item(0)?;
    let value = arguments.get_item(1).ok().filter(|value| !value.is_none());
    let is_error =
        |value: &Bound<'_, PyAny>| value.is_instance_of::<pyo3::exceptions::PyBaseException>();
    let raised = match value {
        Some(value) if is_error(&value) => value,
        Some(value) => error.call1((value,))?,
        None if is_error(&error) => error,
        None => error.call0()?,
    };
    Ok(PyErr::from_value(raised))
}

unsafe extern "C" fn close(object: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter's.
    unsafe {
        let slf = object.cast::<Coroutine>();
        if (*slf).stage == Stage::Running {
            return running();
        }
        if (*slf).stage == Stage::Handed {
            let inner = (*slf).inner;
            ffi::Py_INCREF(inner);
            end(slf);
            let method = ffi::PyObject_GetAttrString(inner, c"close".as_ptr());
            let closed = match method.is_null() {
                true => method,
                false => ffi::PyObject_CallNoArgs(method),
            };
            ffi::Py_XDECREF(method);
            ffi::Py_DECREF(inner);
            return closed;
        }
        if (*slf).task != Task::Nothing {
            end(slf);
        }
        ffi::Py_INCREF(ffi::Py_None());
        ffi::Py_None()
    }
}

unsafe extern "C" fn itself(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter's.
    unsafe { ffi::Py_INCREF(object) };
    object
}

/// Returns what it waits for, in the form of coroutines: the one that it delegates to.
unsafe extern "C" fn awaits(object: *mut PyObject, _: *mut c_void) -> *mut PyObject {
    // SAFETY: the interpreter's.
    unsafe {
        let inner = (*object.cast::<Coroutine>()).inner;
        let awaits = if inner.is_null() { ffi::Py_None() } else { inner };
        ffi::Py_INCREF(awaits);
        awaits
    }
}

impl Task {
    fn name(self) -> &'static str {
        match self {
            Task::Put => "put",
            Task::Get => "get",
            Task::Nothing => "ack",
        }
    }

    fn qualified(self) -> String {
        let class = if self == Task::Nothing { "AsyncLease" } else { "AsyncQueue" };
        format!("{class}.{}", self.name())
    }
}

/// The name of the function that made it; qualified where `full` is not null. A task's repr shows it.
unsafe extern "C" fn name(object: *mut PyObject, full: *mut c_void) -> *mut PyObject {
    // SAFETY: the interpreter's.
    let task = unsafe { (*object.cast::<Coroutine>()).task };
    told(|py| {
        let name = if full.is_null() { task.name().to_owned() } else { task.qualified() };
        PyString::new(py, &name).into_ptr()
    })
}

fn make_class(py: Python<'_>) -> PyResult<*mut PyTypeObject> {
    let method = |name: &'static CStr, meth, flags| ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: meth,
        ml_flags: flags,
        ml_doc: c"As of every coroutine.".as_ptr(),
    };
    let one = |function: ffi::PyCFunction| ffi::PyMethodDefPointer { PyCFunction: function };
    // Data that a type refers to must outlive it, and the type lives as long as the process.
    let methods = Box::leak(Box::new([
        method(c"send", one(send_method), ffi::METH_O),
        method(c"throw", one(throw), ffi::METH_VARARGS),
        method(c"close", one(close), ffi::METH_NOARGS),
        ffi::PyMethodDef::zeroed(),
    ]));
    let member = |name: *const c_char, get, doc: &'static CStr, closure| ffi::PyGetSetDef {
        name,
        get,
        set: None,
        doc: doc.as_ptr(),
        closure,
    };
    let (none, some) = (std::ptr::null_mut::<c_void>(), std::ptr::dangling_mut::<c_void>());
    let named = c"Of the method that made it.";
    let members = Box::leak(Box::new([
        member(c"cr_await".as_ptr(), Some(awaits), c"What it waits for, or None.", none),
        member(c"__name__".as_ptr(), Some(name), named, none),
        member(c"__qualname__".as_ptr(), Some(name), named, some),
        member(std::ptr::null(), None, c"", none),
    ]));
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear as *mut c_void),
        slot(ffi::Py_am_await, itself as *mut c_void),
        slot(ffi::Py_am_send, send as *mut c_void),
        slot(ffi::Py_tp_iter, itself as *mut c_void),
        slot(ffi::Py_tp_iternext, next as *mut c_void),
        slot(ffi::Py_tp_methods, methods.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_doc, c"A call of AsyncQueue, to be awaited.".as_ptr() as *mut c_void),
        slot(0, std::ptr::null_mut()),
    ];
    let flags =
        ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let mut spec = ffi::PyType_Spec {
        name: c"interlock._core.Coroutine".as_ptr(),
        basicsize: std::mem::size_of::<Coroutine>() as c_int,
        itemsize: 0,
        flags: flags as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: a valid specification.
    unsafe {
        let class = ffi::PyType_FromSpec(&mut spec);
        Ok(Bound::from_owned_ptr_or_err(py, class)?.into_ptr().cast())
    }
}
