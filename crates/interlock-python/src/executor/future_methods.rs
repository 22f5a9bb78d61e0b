//! The future's methods, with the names and meanings of `concurrent.futures.Future`.

use pyo3::exceptions::PyTimeoutError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::executor::future::{
    call_back, standard, Future, Inner, Outcome, State, Wakes, CANCELLED, INVALID,
};
use crate::runtime::fork;
use crate::runtime::gil::GilMutex;

#[pymethods]
impl Future {
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Self {
        Future { inner: GilMutex::new(Inner::new()) }
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
            State::Cancelled => return Ok(true),
            State::Finished => return Ok(false),
            State::Pending | State::Running => {}
        }
        let Some(queue) = queue else {
            // Nobody's message.
            return match state {
                State::Running => Ok(false),
                _ => Future::finish(slf, Outcome::Cancelled, || true),
            };
        };
        if slf.get().is_lost() {
            // The parent's, and ids of this process may be the same.
            return Ok(false);
        }
        // Whether it is being handled is the queue's to say: it may wait again after a failure, or after
        // its lease was revoked.
        let queue = queue.bind(py);
        let payload = queue.get().core.call(|scheduler, now| scheduler.cancel(now, id));
        if payload.is_none() {
            return Ok(slf.get().cancelled());
        }
        let mut raised = None;
        Future::finish_telling(slf, Outcome::Cancelled, || true, Wakes::AtOnce, &mut raised);
        queue.get().say(py)?;
        raised.map_or(Ok(true), Err)
    }

    fn cancelled(&self) -> bool {
        self.lock().state == State::Cancelled
    }

    fn running(&self) -> bool {
        self.lock().state == State::Running
    }

    fn done(&self) -> bool {
        self.is_done()
    }

    fn add_done_callback(slf: &Bound<'_, Self>, callback: &Bound<'_, PyAny>) -> PyResult<()> {
        {
            let mut inner = slf.get().lock();
            if !inner.done() {
                inner.callbacks.push(callback.clone().unbind());
                return Ok(());
            }
        }
        call_back(slf, callback)
    }

    #[pyo3(signature = (timeout = None))]
    fn result(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        match Future::outcome(slf, timeout)? {
            (Some(exception), _) => Err(PyErr::from_value(exception.into_bound(py))),
            (None, result) => Ok(result.unwrap_or_else(|| py.None())),
        }
    }

    #[pyo3(signature = (timeout = None))]
    fn exception(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let (exception, _) = Future::outcome(slf, timeout)?;
        Ok(exception.unwrap_or_else(|| slf.py().None()))
    }

    /// For executors: False if it was cancelled.
    fn set_running_or_notify_cancel(&self, py: Python<'_>) -> PyResult<bool> {
        let mut inner = self.lock();
        match inner.state {
            State::Pending => {
                inner.state = State::Running;
                Ok(true)
            }
            State::Cancelled => Ok(false),
            State::Running | State::Finished => {
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

    /// Settled without a result. False: it was done already.
    fn _cancelled(slf: &Bound<'_, Self>) -> bool {
        Future::finish_surely(slf, Outcome::Cancelled, || true, Wakes::AtOnce)
    }

    /// (function, arguments, keywords), for executors that hand it on under the lease with this token.
    /// `None`: it was cancelled.
    fn _begin<'py>(&self, py: Python<'py>, token: u64) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(call) = self.begin(py, token) else {
            return Ok(None);
        };
        let keywords = call.keywords.unwrap_or_else(|| PyDict::new(py).unbind());
        (call.function, call.arguments, keywords).into_pyobject(py).map(Some)
    }

    /// In the standard library's words. There a cancelled future is first "CANCELLED", until its
    /// executor comes across it; here its message is gone at once.
    #[getter]
    fn _state(&self) -> &'static str {
        match self.lock().state {
            State::Pending => "PENDING",
            State::Running => "RUNNING",
            State::Cancelled => "CANCELLED_AND_NOTIFIED",
            State::Finished => "FINISHED",
        }
    }

    #[getter]
    fn _condition(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(condition) = self.condition(py) {
            return Ok(condition);
        }
        let made = py.import("threading")?.call_method0("Condition")?.unbind();
        // Making it ran Python code: another thread may have been quicker.
        if let Some(condition) = self.condition(py) {
            return Ok(condition);
        }
        let _old = {
            let mut inner = self.lock();
            inner.condition_forks = fork::generation();
            inner.condition.replace(made.clone_ref(py))
        };
        Ok(made)
    }

    /// The list to which `wait` and `as_completed` add the waiters to notify of its end.
    #[getter]
    fn _waiters(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        if !self.is_done() {
            self.check_lost(py)?;
        }
        // Made outside the lock: the garbage collector may run.
        let made = PyList::empty(py).unbind();
        Ok(self.lock().waiters.get_or_insert(made).clone_ref(py))
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
        let Some(inner) = self.inner.try_lock() else {
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
        match Future::finish(slf, outcome, || true)? {
            true => Ok(()),
            false => Err(standard(py, &INVALID, "InvalidStateError", "the future is done already")),
        }
    }

    /// Exception and result, when it is done; an error if that took too long, or it was cancelled.
    #[allow(clippy::type_complexity)]
    fn outcome(
        slf: &Bound<'_, Self>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Option<Py<PyAny>>, Option<Py<PyAny>>)> {
        let py = slf.py();
        if !Future::wait(slf, timeout)? {
            return Err(PyTimeoutError::new_err(()));
        }
        let inner = slf.get().lock();
        if inner.state != State::Finished {
            drop(inner);
            return Err(standard(py, &CANCELLED, "CancelledError", ""));
        }
        let clone = |value: &Option<Py<PyAny>>| value.as_ref().map(|value| value.clone_ref(py));
        Ok((clone(&inner.exception), clone(&inner.result)))
    }
}
