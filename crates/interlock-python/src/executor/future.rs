//! The executor's future. It behaves like `concurrent.futures.Future`, but creates no lock and no
//! condition in advance, which take 794 ns there. `_condition` and `_waiters`, which `wait` and
//! `as_completed` access, are created on first use. In Python it is also a subclass of the standard
//! class, so that `isinstance` and `asyncio.wrap_future` accept it. Its methods are in `future_methods`.

use std::ops::DerefMut;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use interlock_core::sync::{Parker, Unparked};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use pyo3::Borrowed;

use crate::executor::blocked;
use crate::queue::wait;
use crate::queue::wait::Late;
use crate::queue::Queue;
use crate::runtime::convert::micros;
use crate::runtime::errors;
use crate::runtime::fork;
use crate::runtime::gil::GilMutex;
use crate::runtime::once::Once;

/// The result of a call, or of the handling of a message.
#[pyclass(frozen, subclass, weakref, generic, module = "interlock._core")]
pub struct Future {
    pub(crate) inner: GilMutex<Inner>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Running,
    Cancelled,
    Finished,
}

/// The call that a worker makes.
pub struct Call {
    pub function: Py<PyAny>,
    pub arguments: Py<PyTuple>,
    pub keywords: Option<Py<PyDict>>,
}

pub(crate) struct Inner {
    pub state: State,
    pub forks: u32,
    pub id: u64,
    /// Token of the lease under which it is handled; results under an earlier one no longer count.
    pub token: u64,
    pub queue: Option<Py<Queue>>,
    pub call: Option<Call>,
    pub result: Option<Py<PyAny>>,
    pub exception: Option<Py<PyAny>>,
    pub callbacks: Vec<Py<PyAny>>,
    pub parked: Vec<Waker>,
    pub condition: Option<Py<PyAny>>,
    /// Fork generation of the process that created the condition.
    pub condition_forks: u32,
    pub waiters: Option<Py<PyList>>,
}

impl Inner {
    pub fn new() -> Self {
        Inner {
            state: State::Pending,
            forks: fork::generation(),
            id: 0,
            token: 0,
            queue: None,
            call: None,
            result: None,
            exception: None,
            callbacks: Vec::new(),
            parked: Vec::new(),
            condition: None,
            condition_forks: 0,
            waiters: None,
        }
    }

    pub fn done(&self) -> bool {
        !matches!(self.state, State::Pending | State::Running)
    }
}

/// The outcome with which a future ends.
pub enum Outcome {
    Result(Py<PyAny>),
    Exception(Py<PyAny>),
    Cancelled,
}

/// The waiters and callbacks of an ended future, and the objects it no longer needs. These are dropped
/// outside the lock, because a destructor may call the future.
struct Ended {
    method: &'static str,
    waiters: Option<Py<PyList>>,
    callbacks: Vec<Py<PyAny>>,
    parked: Vec<Waker>,
    _old: (Option<Call>, Option<Py<PyAny>>),
    /// A reference to a future keeps neither a queue nor the pool behind it alive.
    _queue: Option<Py<Queue>>,
}

impl Ended {
    /// Returns whether dropping the objects may run code: this may be the last reference to an argument
    /// with a destructor.
    fn drops_code(&self, py: Python<'_>) -> bool {
        let (call, exception) = &self._old;
        let Some(call) = call else { return exception.is_some() };
        // SAFETY: the object is alive, because a reference to it is held.
        let is_held = |object: *mut ffi::PyObject| unsafe { ffi::Py_REFCNT(object) } > 1;
        let harmless = |argument: Borrowed<'_, '_, PyAny>| {
            is_held(argument.as_ptr())
                || argument.is_exact_instance_of::<PyInt>()
                || argument.is_exact_instance_of::<PyString>()
                || argument.is_exact_instance_of::<PyBytes>()
                || argument.is_exact_instance_of::<PyFloat>()
        };
        exception.is_some()
            || call.keywords.is_some()
            || !is_held(call.function.as_ptr())
            || !(is_held(call.arguments.as_ptr())
                || call.arguments.bind_borrowed(py).iter_borrowed().all(harmless))
    }
}

impl Future {
    /// Locks the state, for a few loads and stores; never while Python code runs.
    pub(crate) fn lock(&self) -> impl DerefMut<Target = Inner> + '_ {
        self.inner.lock()
    }

    /// Sets the call, before the future is put into its queue.
    pub fn prepare(&self, queue: Py<Queue>, call: Call) {
        let mut inner = self.lock();
        inner.queue = Some(queue);
        inner.call = Some(call);
    }

    pub fn set_id(&self, id: u64) {
        self.lock().id = id;
    }

    pub fn is_done(&self) -> bool {
        self.lock().done()
    }

    /// Called by a worker that begins, under the lease with this token. `None`: the future is already
    /// done, usually because it was cancelled.
    pub fn begin(&self, py: Python<'_>, token: u64) -> Option<Call> {
        let mut inner = self.lock();
        if inner.done() {
            return None;
        }
        // It may already run under a lease that was revoked; from now on only this lease counts.
        inner.state = State::Running;
        inner.token = token;
        inner.call.as_ref().map(|call| Call {
            function: call.function.clone_ref(py),
            arguments: call.arguments.clone_ref(py),
            keywords: call.keywords.as_ref().map(|keywords| keywords.clone_ref(py)),
        })
    }

    /// The attempt under this lease failed, and another one may come.
    pub fn again(&self, token: u64, error: Py<PyAny>) {
        let _old = {
            let mut inner = self.lock();
            if inner.token != token || inner.done() {
                return;
            }
            inner.state = State::Pending;
            inner.exception.replace(error)
        };
    }

    /// Ends the future once: wakes its waiters, then calls the callbacks. False: it was already done, or
    /// `counts` returned false. Error: a signal handler raised, and nothing was changed; or a callback was
    /// interrupted, and the future has ended.
    pub fn finish(
        slf: &Bound<'_, Self>,
        outcome: Outcome,
        counts: impl FnOnce() -> bool,
    ) -> PyResult<bool> {
        let py = slf.py();
        let condition = slf.get().condition(py);
        if let Some(condition) = &condition {
            condition.call_method0(py, "acquire")?;
        }
        let mut raised = None;
        let done =
            Future::finish_locked(slf, outcome, condition, counts, Wakes::AtOnce, &mut raised);
        raised.map_or(Ok(done), Err)
    }

    /// Like `finish`, but a signal cannot prevent it.
    pub fn finish_surely(
        slf: &Bound<'_, Self>,
        outcome: Outcome,
        counts: impl FnOnce() -> bool,
        wakes: Wakes,
    ) -> bool {
        let mut raised = None;
        let done = Future::finish_telling(slf, outcome, counts, wakes, &mut raised);
        if let Some(error) = raised {
            error.write_unraisable(slf.py(), Some(slf.as_any()));
        }
        done
    }

    /// Like `finish_surely`; an exception that interrupted a callback is returned after the future has ended.
    pub fn finish_telling(
        slf: &Bound<'_, Self>,
        outcome: Outcome,
        counts: impl FnOnce() -> bool,
        wakes: Wakes,
        raised: &mut Option<PyErr>,
    ) -> bool {
        let py = slf.py();
        let condition = slf.get().condition(py).filter(|condition| {
            let acquired = condition.call_method0(py, "acquire");
            acquired.map_err(|error| error.write_unraisable(py, Some(slf.as_any()))).is_ok()
        });
        Future::finish_locked(slf, outcome, condition, counts, wakes, raised)
    }

    /// The parent's condition may be held by a thread that is not in this process.
    pub(crate) fn condition(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let inner = self.lock();
        let own = inner.condition.as_ref().filter(|_| inner.condition_forks == fork::generation());
        own.map(|condition| condition.clone_ref(py))
    }

    fn finish_locked(
        slf: &Bound<'_, Self>,
        outcome: Outcome,
        condition: Option<Py<PyAny>>,
        counts: impl FnOnce() -> bool,
        wakes: Wakes,
        raised: &mut Option<PyErr>,
    ) -> bool {
        let py = slf.py();
        let unraisable = |error: PyErr| error.write_unraisable(py, Some(slf.as_any()));
        // No Python code runs in between, so the result of `counts` is still valid.
        let ended = if counts() { slf.get().end(py, outcome) } else { None };
        if let Some(Ended { method, waiters: Some(waiters), .. }) = &ended {
            for waiter in waiters.bind(py) {
                waiter.call_method1(*method, (slf,)).map_or_else(unraisable, drop);
            }
        }
        if let Some(condition) = &condition {
            condition.call_method0(py, "notify_all").map_or_else(unraisable, drop);
            condition.call_method0(py, "release").map_or_else(unraisable, drop);
        }
        let Some(ended) = ended else { return false };
        let late = wakes == Wakes::Late && ended.callbacks.is_empty() && !ended.drops_code(py);
        let late = late.then(Late::begin);
        ended.parked.into_iter().for_each(Waker::wake);
        drop(late);
        for callback in ended.callbacks {
            if let Err(error) = call_back(slf, callback.bind(py)) {
                raised.get_or_insert(error);
            }
        }
        true
    }

    fn end(&self, py: Python<'_>, outcome: Outcome) -> Option<Ended> {
        let mut inner = self.lock();
        if inner.done() {
            return None;
        }
        let exception = inner.exception.take();
        let method = match outcome {
            Outcome::Result(result) => {
                inner.state = State::Finished;
                inner.result = Some(result);
                "add_result"
            }
            Outcome::Exception(exception) => {
                inner.state = State::Finished;
                inner.exception = Some(exception);
                "add_exception"
            }
            Outcome::Cancelled => {
                inner.state = State::Cancelled;
                "add_cancelled"
            }
        };
        Some(Ended {
            method,
            waiters: inner.waiters.as_ref().map(|waiters| waiters.clone_ref(py)),
            callbacks: std::mem::take(&mut inner.callbacks),
            parked: std::mem::take(&mut inner.parked),
            _old: (inner.call.take(), exception),
            _queue: inner.queue.take(),
        })
    }

    /// Sleeps until the future is done. False: the timeout passed.
    pub(crate) fn wait(
        slf: &Bound<'_, Self>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let py = slf.py();
        let left = timeout.map(wait_micros).transpose()?;
        if slf.get().is_done() {
            return Ok(true);
        }
        slf.get().check_lost(py)?;
        // A wait with a timeout cannot be a deadlock.
        let _blocked = match left {
            None => blocked::for_result(slf)?,
            Some(_) => None,
        };
        let until = left.and_then(|left| Instant::now().checked_add(Duration::from_micros(left)));
        let parker: Arc<Parker> = Parker::new();
        let waker = wait::waker_of(&parker);
        let main = wait::is_main_thread();
        slf.get().lock().parked.push(waker.clone());
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let slept = wait::sleep(py, &parker, left, main);
            if !slf.get().is_done() {
                // A signal handler may have forked.
                slf.get().check_lost(py)?;
            }
            let mut inner = slf.get().lock();
            if inner.done() {
                return slept.map(|_| true);
            }
            let over = left.is_some_and(|left| left.is_zero());
            if over || slept.is_err() {
                inner.parked.retain(|parked| !parked.will_wake(&waker));
                drop(inner);
                return slept.map(|_| false);
            }
            debug_assert_ne!(slept.ok(), Some(Unparked::Woken), "woken but not done");
        }
    }

    /// Raises if the future was pending at a fork: only the parent will complete it, so a wait in this
    /// process would never end.
    pub(crate) fn check_lost(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_lost() {
            return Ok(());
        }
        let text = "the future was made before this process was forked; its result is made in the \
                    parent. Submit in the process that waits";
        Err(standard(py, &BROKEN, "BrokenExecutor", text))
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lock().forks != fork::generation()
    }
}

/// Time at which the waiters of a future are woken.
#[derive(Clone, Copy, PartialEq)]
pub enum Wakes {
    AtOnce,
    /// Later, by a worker that calls `wait::catch_up` before any Python code can run.
    Late,
}

pub(crate) fn call_back(slf: &Bound<'_, Future>, callback: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = slf.py();
    if let Err(error) = callback.call1((slf,)) {
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            // Ctrl-C is raised in the caller.
            return Err(error);
        }
        // As in the standard library, an exception of a callback is logged and not raised.
        let log = || -> PyResult<()> {
            let kwargs = PyDict::new(py);
            kwargs.set_item("exc_info", error.value(py))?;
            let logger =
                py.import("logging")?.call_method1("getLogger", ("concurrent.futures",))?;
            let arguments = ("exception calling callback for %r", slf);
            logger.call_method("error", arguments, Some(&kwargs)).map(drop)
        };
        if let Err(error) = log() {
            error.write_unraisable(py, Some(callback));
        }
    }
    Ok(())
}

fn wait_micros(timeout: &Bound<'_, PyAny>) -> PyResult<u64> {
    // The standard library takes a negative timeout as "do not wait".
    match timeout.extract::<f64>() {
        Ok(seconds) if seconds < 0.0 => Ok(0),
        _ => micros(timeout, "result(): timeout"),
    }
}

pub(crate) static CANCELLED: Once<Py<PyType>> = Once::new();
pub(crate) static INVALID: Once<Py<PyType>> = Once::new();
static BROKEN: Once<Py<PyType>> = Once::new();

/// Creates an exception of a class of the standard library.
pub(crate) fn standard(py: Python<'_>, cell: &Once<Py<PyType>>, name: &str, text: &str) -> PyErr {
    match cell.import(py, "concurrent.futures", name) {
        Ok(class) if text.is_empty() => PyErr::from_type(class.clone(), ()),
        Ok(class) => PyErr::from_type(class.clone(), (text.to_owned(),)),
        Err(error) => error,
    }
}

/// Called when a message was settled without being handled: if it has a future, that is cancelled.
pub fn settled_without_result(payload: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(future) = payload.cast::<Future>() {
        Future::finish(future, Outcome::Cancelled, || true)?;
    }
    Ok(())
}

/// Called when a message became a dead letter. If it has a future, that ends with the last exception of
/// the call, or with `LeaseLost` if no attempt raised one.
pub fn given_up(payload: &Bound<'_, PyAny>) -> PyResult<()> {
    let Ok(future) = payload.cast::<Future>() else { return Ok(()) };
    let py = payload.py();
    let (id, last) = {
        let inner = future.get().lock();
        (inner.id, inner.exception.as_ref().map(|last| last.clone_ref(py)))
    };
    let last = last.unwrap_or_else(|| errors::given_up(py, id).into_value(py).into_any());
    Future::finish(future, Outcome::Exception(last), || true).map(drop)
}
