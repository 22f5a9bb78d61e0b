//! The executor's future: what `concurrent.futures.Future` is, without a lock and a condition made
//! for each (794 ns there). `_condition` and `_waiters`, which `wait` and `as_completed` reach for, are
//! made when first asked for. In Python it is also a subclass of the standard one, so that
//! `isinstance` and `asyncio.wrap_future` take it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use interlock_core::sync::{Parker, Unparked};
use pyo3::exceptions::PyTimeoutError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use crate::convert::micros;
use crate::errors;
use crate::fork;
use crate::queue::Queue;
use crate::wait;
use crate::work;

/// A result that is being made, or a message's handling.
#[pyclass(frozen, subclass, weakref, generic, module = "interlock._core")]
pub struct Future {
    inner: Mutex<Inner>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Running,
    Cancelled,
    /// Cancelled, and those who wait in the standard library's way were told.
    CancelledAndNotified,
    Finished,
}

/// What a worker calls.
pub struct Call {
    pub function: Py<PyAny>,
    pub arguments: Py<PyTuple>,
    pub keywords: Option<Py<PyDict>>,
}

struct Inner {
    state: State,
    forks: u32,
    id: u64,
    queue: Option<Py<Queue>>,
    call: Option<Call>,
    result: Option<Py<PyAny>>,
    exception: Option<Py<PyAny>>,
    callbacks: Vec<Py<PyAny>>,
    parked: Vec<Waker>,
    condition: Option<Py<PyAny>>,
    waiters: Option<Py<PyList>>,
}

impl Inner {
    fn done(&self) -> bool {
        !matches!(self.state, State::Pending | State::Running)
    }
}

/// How a future ends.
pub enum Outcome {
    Result(Py<PyAny>),
    Exception(Py<PyAny>),
    Cancelled,
}

static CANCELLED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static INVALID: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static BROKEN: PyOnceLock<Py<PyType>> = PyOnceLock::new();

fn standard(py: Python<'_>, cell: &PyOnceLock<Py<PyType>>, name: &str, text: &str) -> PyErr {
    match cell.import(py, "concurrent.futures", name) {
        Ok(class) => PyErr::from_type(class.clone(), (text.to_owned(),)),
        Err(error) => error,
    }
}

impl Future {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Held under the GIL for a few loads and stores, and never while Python code runs.
        self.inner.lock().expect("never poisoned")
    }

    /// Says what is to be called, before the future is put into its queue.
    pub fn prepare(&self, queue: Py<Queue>, call: Call) {
        let mut inner = self.lock();
        inner.queue = Some(queue);
        inner.call = Some(call);
    }

    pub fn set_id(&self, id: u64) {
        self.lock().id = id;
    }

    /// A worker begins. `None`: it was cancelled. `keep`: the call may have to be made again.
    pub fn begin(&self, py: Python<'_>, keep: bool) -> Option<Call> {
        let mut inner = self.lock();
        if inner.state != State::Pending {
            return None;
        }
        inner.state = State::Running;
        if !keep {
            return inner.call.take();
        }
        inner.call.as_ref().map(|call| Call {
            function: call.function.clone_ref(py),
            arguments: call.arguments.clone_ref(py),
            keywords: call.keywords.as_ref().map(|keywords| keywords.clone_ref(py)),
        })
    }

    /// The attempt failed and another one comes.
    pub fn again(&self, error: Py<PyAny>) {
        let mut inner = self.lock();
        inner.state = State::Pending;
        let _old = inner.exception.replace(error);
    }

    /// Ends it, once: tells those who wait, then calls back.
    pub fn finish(slf: &Bound<'_, Self>, outcome: Outcome) -> PyResult<bool> {
        let py = slf.py();
        let condition = slf.get().lock().condition.as_ref().map(|c| c.clone_ref(py));
        if let Some(condition) = &condition {
            condition.call_method0(py, "acquire")?;
        }
        let mut told = Ok(());
        let ended = {
            let mut inner = slf.get().lock();
            if inner.done() {
                None
            } else {
                let method = match outcome {
                    Outcome::Result(result) => {
                        inner.state = State::Finished;
                        inner.exception = None;
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
                inner.call = None;
                let waiters = inner.waiters.as_ref().map(|waiters| waiters.clone_ref(py));
                if waiters.is_some() && inner.state == State::Cancelled {
                    inner.state = State::CancelledAndNotified;
                }
                let callbacks = std::mem::take(&mut inner.callbacks);
                Some((method, waiters, callbacks, std::mem::take(&mut inner.parked)))
            }
        };
        if let Some((method, Some(waiters), ..)) = &ended {
            told = waiters
                .bind(py)
                .iter()
                .try_for_each(|waiter| waiter.call_method1(*method, (slf,)).map(drop));
        }
        if let Some(condition) = &condition {
            condition.call_method0(py, "notify_all")?;
            condition.call_method0(py, "release")?;
        }
        let Some((_, _, callbacks, parked)) = ended else {
            return Ok(false);
        };
        parked.into_iter().for_each(Waker::wake);
        for callback in callbacks {
            call_back(slf, callback.bind(py));
        }
        told.map(|()| true)
    }

    /// Sleeps until it is done. False: the time was up.
    fn wait(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let py = slf.py();
        let left = timeout.map(|timeout| wait_micros(timeout)).transpose()?;
        if slf.get().lock().done() {
            return Ok(true);
        }
        slf.get().check_lost(py)?;
        if timeout.is_none() {
            slf.get().check_deadlock(py)?;
        }
        let until = left.map(|left| {
            std::time::Instant::now().checked_add(std::time::Duration::from_micros(left))
        });
        let until = until.flatten();
        let parker: Arc<Parker> = Parker::new();
        let main = wait::is_main_thread();
        slf.get().lock().parked.push(parker.waker());
        loop {
            let left =
                until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
            let slept = wait::sleep(py, &parker, left, main);
            let mut inner = slf.get().lock();
            if inner.done() {
                return slept.map(|_| true);
            }
            let over = left.is_some_and(|left| left.is_zero());
            if over || slept.is_err() {
                inner.parked.retain(|waker| !waker.will_wake(&parker.waker()));
                drop(inner);
                return slept.map(|_| false);
            }
            debug_assert_ne!(slept.ok(), Some(Unparked::Woken), "woken but not done");
        }
    }

    /// Pending at a fork, so that the parent makes the result: waiting here would never end.
    fn check_lost(&self, py: Python<'_>) -> PyResult<()> {
        if self.lock().forks == fork::generation() {
            return Ok(());
        }
        let text = "the future was made before this process was forked; its result is made in the \
                    parent. Submit in the process that waits";
        Err(standard(py, &BROKEN, "BrokenExecutor", text))
    }

    /// A handler waits for what stands behind its own message (clause 25).
    fn check_deadlock(&self, py: Python<'_>) -> PyResult<()> {
        let (queue, id) = {
            let inner = self.lock();
            let Some(queue) = inner.queue.as_ref() else {
                return Ok(());
            };
            (queue.clone_ref(py), inner.id)
        };
        let mine = work::handling(&queue);
        if mine.is_empty() {
            return Ok(());
        }
        let chain = queue.get().core.call(|scheduler, _| scheduler.waits_for(id, &mine));
        let Some(chain) = chain else { return Ok(()) };
        let chain: Vec<String> = chain.iter().map(u64::to_string).collect();
        Err(errors::would_deadlock(
            py,
            format!(
                "result(): this handler waits for message {id}, which waits for the handler's own \
                 ({}): it would never end. Return first, or submit without the shared key",
                chain.join(" behind ")
            ),
        ))
    }
}

fn call_back(slf: &Bound<'_, Future>, callback: &Bound<'_, PyAny>) {
    let py = slf.py();
    if let Err(error) = callback.call1((slf,)) {
        // As the standard library does: an exception of a callback is logged and goes no further.
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
}

fn wait_micros(timeout: &Bound<'_, PyAny>) -> PyResult<u64> {
    // The standard library takes a negative timeout as "do not wait".
    match timeout.extract::<f64>() {
        Ok(seconds) if seconds < 0.0 => Ok(0),
        _ => micros(timeout, "result(): timeout"),
    }
}

/// A message was settled without being handled; if it is somebody's future, that is cancelled.
pub fn settled_without_result(py: Python<'_>, payload: Option<Py<PyAny>>) -> PyResult<()> {
    if let Some(payload) = payload {
        if let Ok(future) = payload.bind(py).cast::<Future>() {
            Future::finish(future, Outcome::Cancelled)?;
        }
    }
    Ok(())
}

/// A message was given up; if it is somebody's future, that ends with its last exception.
pub fn given_up(py: Python<'_>, payload: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(future) = payload.cast::<Future>() {
        let last = future.get().lock().exception.take();
        let outcome = last.map_or(Outcome::Cancelled, Outcome::Exception);
        Future::finish(future, outcome)?;
    }
    let _ = py;
    Ok(())
}

#[pymethods]
impl Future {
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Self {
        Future {
            inner: Mutex::new(Inner {
                state: State::Pending,
                forks: fork::generation(),
                id: 0,
                queue: None,
                call: None,
                result: None,
                exception: None,
                callbacks: Vec::new(),
                parked: Vec::new(),
                condition: None,
                waiters: None,
            }),
        }
    }

    /// The id of its message: for `explain`, `revoke` and the rest. 0 before it has one.
    #[getter]
    fn id(&self) -> u64 {
        self.lock().id
    }

    fn cancel(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let py = slf.py();
        let (state, queue, id) = {
            let inner = slf.get().lock();
            (inner.state, inner.queue.as_ref().map(|queue| queue.clone_ref(py)), inner.id)
        };
        match state {
            State::Cancelled | State::CancelledAndNotified => return Ok(true),
            State::Running | State::Finished => return Ok(false),
            State::Pending => {}
        }
        if let Some(queue) = queue {
            let waits = queue.get().core.call(|scheduler, now| scheduler.cancel(now, id));
            if waits.is_none() {
                return Ok(false);
            }
            queue.get().say(py)?;
        }
        Future::finish(slf, Outcome::Cancelled)?;
        Ok(true)
    }

    fn cancelled(&self) -> bool {
        matches!(self.lock().state, State::Cancelled | State::CancelledAndNotified)
    }

    fn running(&self) -> bool {
        self.lock().state == State::Running
    }

    fn done(&self) -> bool {
        self.lock().done()
    }

    fn add_done_callback(slf: &Bound<'_, Self>, callback: &Bound<'_, PyAny>) {
        {
            let mut inner = slf.get().lock();
            if !inner.done() {
                inner.callbacks.push(callback.clone().unbind());
                return;
            }
        }
        call_back(slf, callback);
    }

    #[pyo3(signature = (timeout = None))]
    fn result(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        if !Future::wait(slf, timeout)? {
            return Err(PyTimeoutError::new_err(()));
        }
        let inner = slf.get().lock();
        match (&inner.exception, &inner.result) {
            _ if inner.state != State::Finished => {
                drop(inner);
                Err(standard(py, &CANCELLED, "CancelledError", ""))
            }
            (Some(exception), _) => {
                let exception = exception.clone_ref(py);
                drop(inner);
                Err(PyErr::from_value(exception.into_bound(py)))
            }
            (None, Some(result)) => Ok(result.clone_ref(py)),
            (None, None) => Ok(py.None()),
        }
    }

    #[pyo3(signature = (timeout = None))]
    fn exception(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        if !Future::wait(slf, timeout)? {
            return Err(PyTimeoutError::new_err(()));
        }
        let inner = slf.get().lock();
        if inner.state != State::Finished {
            drop(inner);
            return Err(standard(py, &CANCELLED, "CancelledError", ""));
        }
        Ok(inner.exception.as_ref().map_or_else(|| py.None(), |error| error.clone_ref(py)))
    }

    /// For executors: False if it was cancelled.
    fn set_running_or_notify_cancel(&self, py: Python<'_>) -> PyResult<bool> {
        let mut inner = self.lock();
        match inner.state {
            State::Pending => {
                inner.state = State::Running;
                Ok(true)
            }
            State::Cancelled | State::CancelledAndNotified => {
                inner.state = State::CancelledAndNotified;
                Ok(false)
            }
            _ => {
                drop(inner);
                Err(standard(py, &INVALID, "InvalidStateError", "the future runs or is done"))
            }
        }
    }

    fn set_result(slf: &Bound<'_, Self>, result: Py<PyAny>) -> PyResult<()> {
        Future::set(slf, Outcome::Result(result))
    }

    fn set_exception(slf: &Bound<'_, Self>, exception: Py<PyAny>) -> PyResult<()> {
        Future::set(slf, Outcome::Exception(exception))
    }

    /// Cancelled by its executor; its message is settled already.
    fn _cancelled(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Future::finish(slf, Outcome::Cancelled)
    }

    /// (function, arguments, keywords), for executors that hand it on. `None`: it was cancelled.
    fn _begin<'py>(&self, py: Python<'py>, keep: bool) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(call) = self.begin(py, keep) else {
            return Ok(None);
        };
        let keywords = call.keywords.map_or_else(|| PyDict::new(py).unbind(), |k| k);
        (call.function, call.arguments, keywords).into_pyobject(py).map(Some)
    }

    /// The attempt failed and another one comes.
    fn _again(&self, error: Py<PyAny>) {
        self.again(error);
    }

    #[getter]
    fn _state(&self) -> &'static str {
        match self.lock().state {
            State::Pending => "PENDING",
            State::Running => "RUNNING",
            State::Cancelled => "CANCELLED",
            State::CancelledAndNotified => "CANCELLED_AND_NOTIFIED",
            State::Finished => "FINISHED",
        }
    }

    #[getter]
    fn _condition(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(condition) = &self.lock().condition {
            return Ok(condition.clone_ref(py));
        }
        let made = py.import("threading")?.call_method0("Condition")?.unbind();
        // Making it ran Python code: another thread may have been quicker.
        let mut inner = self.lock();
        Ok(inner.condition.get_or_insert(made).clone_ref(py))
    }

    #[getter]
    fn _waiters(&self, py: Python<'_>) -> Py<PyList> {
        let mut inner = self.lock();
        inner.waiters.get_or_insert_with(|| PyList::empty(py).unbind()).clone_ref(py)
    }

    #[getter]
    fn _exception(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let inner = self.lock();
        inner.exception.as_ref().filter(|_| inner.done()).map(|error| error.clone_ref(py))
    }

    #[getter]
    fn _result(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.lock().result.as_ref().map(|result| result.clone_ref(py))
    }

    #[getter]
    fn _done_callbacks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let callbacks: Vec<Py<PyAny>> =
            self.lock().callbacks.iter().map(|callback| callback.clone_ref(py)).collect();
        PyList::new(py, callbacks)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(inner) = self.inner.try_lock() else {
            return Ok(());
        };
        if let Some(call) = &inner.call {
            visit.call(&call.function)?;
            visit.call(&call.arguments)?;
            visit.call(&call.keywords)?;
        }
        visit.call(&inner.queue)?;
        visit.call(&inner.result)?;
        visit.call(&inner.exception)?;
        visit.call(&inner.condition)?;
        visit.call(&inner.waiters)?;
        inner.callbacks.iter().try_for_each(|callback| visit.call(callback))
    }

    fn __clear__(&self) {
        let cleared = {
            let mut inner = self.lock();
            (
                inner.call.take(),
                inner.queue.take(),
                inner.result.take(),
                inner.exception.take(),
                std::mem::take(&mut inner.callbacks),
                inner.waiters.take(),
            )
        };
        drop(cleared);
    }
}

impl Future {
    fn set(slf: &Bound<'_, Self>, outcome: Outcome) -> PyResult<()> {
        let py = slf.py();
        match Future::finish(slf, outcome)? {
            true => Ok(()),
            false => Err(standard(py, &INVALID, "InvalidStateError", "the future is done already")),
        }
    }
}
