//! What the asyncio face stands on: one look at a queue, a waker that calls Python, and a lease whose
//! settling is awaited. The coroutines themselves are Python's; consumers on threads, which must be
//! able to stop, wait in the same way.

use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use interlock_core::queue::scheduler::Grant;
use interlock_core::queue::types::Time;
use interlock_core::queue::waiters::{Wait, Want};
use interlock_core::queue::Look;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments::{Named, PutArguments};
use crate::convert::micros;
use crate::errors;
use crate::lease::Lease;
use crate::queue::{to_kind, OwnedArguments, Queue};
use crate::wait;

/// A lease whose settling is awaited; see `interlock.AsyncLease`.
#[pyclass(frozen, extends = Lease, generic, module = "interlock")]
pub struct AsyncLease;

impl AsyncLease {
    fn make<'py>(
        queue: &Bound<'py, Queue>,
        grant: Grant,
        payload: Py<PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        let base = PyClassInitializer::from(Lease::new(queue, grant, payload));
        Bound::new(queue.py(), base.add_subclass(AsyncLease))
    }
}

/// Something already done, to be awaited: settling in process takes no time.
#[pyclass(frozen, module = "interlock._core")]
pub struct Done {
    result: Option<Py<PyAny>>,
}

#[pymethods]
impl Done {
    fn __await__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.result {
            None => Ok(PyTuple::empty(py).try_iter()?.into_any()),
            Some(result) => {
                let done = DoneIterator { result: Mutex::new(Some(result.clone_ref(py))) };
                Ok(Bound::new(py, done)?.into_any())
            }
        }
    }
}

#[pyclass(frozen, module = "interlock._core")]
struct DoneIterator {
    result: Mutex<Option<Py<PyAny>>>,
}

#[pymethods]
impl DoneIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self) -> PyResult<()> {
        let result = self.result.lock().expect("never poisoned").take();
        Err(pyo3::exceptions::PyStopIteration::new_err((result,)))
    }
}

static DONE: pyo3::sync::PyOnceLock<Py<Done>> = pyo3::sync::PyOnceLock::new();

fn done(py: Python<'_>) -> PyResult<&Bound<'_, Done>> {
    DONE.get_or_try_init(py, || Py::new(py, Done { result: None })).map(|done| done.bind(py))
}

#[pymethods]
impl AsyncLease {
    fn ack<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Done>> {
        slf.as_super().get().ack(slf.py())?;
        done(slf.py()).cloned()
    }

    #[pyo3(signature = (delay = None, error = None))]
    fn nack<'py>(
        slf: &Bound<'py, Self>,
        delay: Option<&Bound<'py, PyAny>>,
        error: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Done>> {
        slf.as_super().get().nack(slf.py(), delay, error)?;
        done(slf.py()).cloned()
    }

    fn reject<'py>(
        slf: &Bound<'py, Self>,
        reason: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Done>> {
        slf.as_super().get().reject(slf.py(), reason)?;
        done(slf.py()).cloned()
    }

    fn release<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Done>> {
        slf.as_super().get().release(slf.py())?;
        done(slf.py()).cloned()
    }

    fn extend<'py>(
        slf: &Bound<'py, Self>,
        seconds: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Done>> {
        slf.as_super().get().extend(slf.py(), seconds)?;
        done(slf.py()).cloned()
    }

    fn __enter__(&self) -> PyResult<()> {
        let text = "an AsyncLease is entered with 'async with'";
        Err(pyo3::exceptions::PyTypeError::new_err(text))
    }

    fn __exit__(
        &self,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Done>> {
        let payload = Lease::enter(slf.as_super())?;
        Bound::new(slf.py(), Done { result: Some(payload.unbind()) })
    }

    #[pyo3(signature = (kind, error, traceback))]
    fn __aexit__<'py>(
        slf: &Bound<'py, Self>,
        kind: &Bound<'py, PyAny>,
        error: &Bound<'py, PyAny>,
        traceback: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Done>> {
        let _ = traceback;
        slf.as_super().get().exit(slf.py(), kind, error)?;
        done(slf.py()).cloned()
    }
}

/// Calls Python when a waiter is called. Calls into the core are made with the GIL held, so is this.
struct Callback {
    wait: Py<Waiter>,
}

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        Python::attach(|py| {
            let wait = self.wait.get();
            if let Err(error) = wait.call.call0(py) {
                // The loop is closed: nobody will come back for what this waiter was called for.
                wait.give_up(py);
                if !error.is_instance_of::<pyo3::exceptions::PyRuntimeError>(py) {
                    error.write_unraisable(py, None);
                }
            }
        });
    }
}

/// One wait of a coroutine or a consumer: looks, and in between calls `call` when it is worth to look again.
#[pyclass(frozen, module = "interlock._core")]
pub struct Waiter {
    queue: Py<Queue>,
    wait: Mutex<Wait>,
    until: Mutex<Time>,
    call: Py<PyAny>,
}

impl Waiter {
    /// The first look, or another: `None` means to sleep.
    fn look<'py, T>(
        slf: &Bound<'py, Self>,
        want: impl FnOnce() -> Want,
        look: impl FnOnce(&Queue, &mut Wait, &Waker) -> Look<T>,
        ended: impl FnOnce(interlock_core::queue::Ended) -> PyErr,
    ) -> PyResult<Option<T>> {
        let this = slf.get();
        let queue = this.queue.get();
        let waker = Waker::from(Arc::new(Callback { wait: slf.clone().unbind() }));
        // Taken out while looking: a wake of another waiter runs Python code, which may look here.
        let mut wait = {
            let mut kept = this.wait.lock().expect("never poisoned");
            let deadline = kept.deadline;
            std::mem::replace(&mut *kept, Wait::new(Want::Drained, deadline))
        };
        if !wait.is_parked() {
            wait = Wait::new(want(), wait.deadline);
        }
        let found = look(queue, &mut wait, &waker);
        *this.wait.lock().expect("never poisoned") = wait;
        match found {
            Look::Found(found) => Ok(Some(found)),
            Look::Ended(why) => Err(ended(why)),
            Look::Sleep(until) => {
                *this.until.lock().expect("never poisoned") = until;
                Ok(None)
            }
        }
    }
}

impl Waiter {
    fn look_for_message<'py>(
        slf: &Bound<'py, Self>,
        kind: &Bound<'py, PyAny>,
    ) -> PyResult<Option<(Grant, Py<PyAny>)>> {
        let py = slf.py();
        let kind = to_kind(Some(kind), "get()")?;
        let view = |payload: &Py<PyAny>, _: &Grant| payload.clone_ref(py);
        let found = Waiter::look(
            slf,
            || Want::Message(kind),
            |queue, wait, waker| queue.core.get_or_wait(kind, wait::consumer(), view, wait, waker),
            |ended| errors::get_ended(py, ended),
        )?;
        slf.get().queue.get().say(py)?;
        Ok(found)
    }
}

#[pymethods]
impl Waiter {
    #[new]
    #[pyo3(signature = (queue, call, timeout = None))]
    fn new(
        queue: &Bound<'_, Queue>,
        call: Py<PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        queue.get().check_fork(queue.py());
        let timeout = timeout.map(|timeout| micros(timeout, "timeout")).transpose()?;
        let deadline = wait::deadline(&queue.get().core, timeout);
        Ok(Waiter {
            queue: queue.clone().unbind(),
            wait: Mutex::new(Wait::new(Want::Drained, deadline)),
            until: Mutex::new(Time::MAX),
            call,
        })
    }

    /// Seconds until it is worth to look again without having been called; `None`: no such time.
    #[getter]
    fn left(&self) -> Option<f64> {
        let until = *self.until.lock().expect("never poisoned");
        self.queue.get().core.time_left(until).map(|left| left.as_secs_f64())
    }

    fn get<'py>(
        slf: &Bound<'py, Self>,
        kind: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, Lease>>> {
        let found = Waiter::look_for_message(slf, kind)?;
        let queue = slf.get().queue.bind(slf.py());
        found.map(|(grant, payload)| Lease::make(queue, grant, payload)).transpose()
    }

    fn get_async<'py>(
        slf: &Bound<'py, Self>,
        kind: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, AsyncLease>>> {
        let found = Waiter::look_for_message(slf, kind)?;
        let queue = slf.get().queue.bind(slf.py());
        found.map(|(grant, payload)| AsyncLease::make(queue, grant, payload)).transpose()
    }

    fn get_many_async<'py>(
        slf: &Bound<'py, Self>,
        limit: usize,
        kind: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Vec<Bound<'py, AsyncLease>>>> {
        let py = slf.py();
        let kind = to_kind(Some(kind), "get_many()")?;
        let mut found: Vec<(Grant, Py<PyAny>)> = Vec::new();
        let some = Waiter::look(
            slf,
            || Want::Message(kind),
            |queue, wait, waker| {
                let view = |payload: &Py<PyAny>, grant: &Grant| {
                    found.push((*grant, payload.clone_ref(py)))
                };
                queue.core.get_many_or_wait(kind, limit, wait::consumer(), view, wait, waker)
            },
            |ended| errors::get_ended(py, ended),
        )?;
        let queue = slf.get().queue.bind(py);
        queue.get().say(py)?;
        if some.is_none() {
            return Ok(None);
        }
        let lease = |(grant, payload)| AsyncLease::make(queue, grant, payload);
        found.into_iter().map(lease).collect::<PyResult<Vec<_>>>().map(Some)
    }

    /// One element of `named` a payload; the ids, or `None` to sleep.
    fn put_many<'py>(
        slf: &Bound<'py, Self>,
        payloads: Vec<Bound<'py, PyAny>>,
        named: Vec<OwnedArguments<'py>>,
    ) -> PyResult<Option<Vec<u64>>> {
        let py = slf.py();
        let queue = slf.get().queue.get();
        let named = payloads
            .iter()
            .zip(&named)
            .map(|(payload, put)| Named::new(queue, "put()", payload, &put.borrowed()))
            .collect::<PyResult<Vec<_>>>()?;
        let refs: Vec<_> = named.iter().map(Named::refs).collect();
        let puts: Vec<_> = named.iter().zip(&refs).map(|(named, refs)| named.put(refs)).collect();
        let mut payloads: Vec<Option<Py<PyAny>>> =
            payloads.into_iter().map(|payload| Some(payload.unbind())).collect();
        let size = named.iter().map(Named::size).sum();
        let placed = Waiter::look(
            slf,
            || Want::Room(puts.len(), size),
            |queue, wait, waker| queue.core.put_many_or_wait(&puts, &mut payloads, wait, waker),
            |ended| errors::put_ended(py, ended, queue.bounds),
        )?;
        queue.say(py)?;
        Ok(placed.map(|placed| placed.into_iter().map(|placed| placed.id).collect()))
    }

    /// True: nothing is unsettled. False: sleep.
    fn drained(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let found = Waiter::look(
            slf,
            || Want::Drained,
            |queue, wait, waker| queue.core.drained_or_wait(wait, waker),
            |ended| errors::get_ended(slf.py(), ended),
        )?;
        Ok(found.is_some())
    }

    /// The wait is over without what it was for.
    fn give_up(&self, py: Python<'_>) {
        let mut wait = {
            let mut kept = self.wait.lock().expect("never poisoned");
            std::mem::replace(&mut *kept, Wait::new(Want::Drained, Time::MAX))
        };
        let queue = self.queue.get();
        queue.check_fork(py);
        queue.core.give_up(&mut wait);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.queue)?;
        visit.call(&self.call)
    }
}

#[pymethods]
impl Queue {
    /// A message if one is ready, else `None`; what `AsyncQueue.get` tries before it waits.
    fn _try_get_async<'py>(
        slf: &Bound<'py, Self>,
        kind: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, AsyncLease>>> {
        let py = slf.py();
        let queue = slf.get();
        queue.check_fork(py);
        let kind = to_kind(kind, "get()")?;
        let view = |payload: &Py<PyAny>, _: &Grant| payload.clone_ref(py);
        let found = queue.core.try_get(kind, wait::consumer(), view);
        queue.note_async_getter();
        let found = found.map_err(|ended| errors::get_ended(py, ended))?;
        queue.say(py)?;
        found.map(|(grant, payload)| AsyncLease::make(slf, grant, payload)).transpose()
    }

    /// As `_try_get_async`, a lease for threads.
    fn _try_get<'py>(
        slf: &Bound<'py, Self>,
        kind: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, Lease>>> {
        let py = slf.py();
        let queue = slf.get();
        queue.check_fork(py);
        let kind = to_kind(kind, "get()")?;
        let consumer = wait::consumer();
        queue.note_getter(consumer);
        let view = |payload: &Py<PyAny>, _: &Grant| payload.clone_ref(py);
        let found = queue.core.try_get(kind, consumer, view);
        let found = found.map_err(|ended| errors::get_ended(py, ended))?;
        queue.say(py)?;
        found.map(|(grant, payload)| Lease::make(slf, grant, payload)).transpose()
    }

    /// The id if there was room, else `None`.
    #[pyo3(signature = (payload, keys, shared, priority, delay, dedup, barrier, quiet))]
    #[allow(clippy::too_many_arguments)]
    fn _try_put<'py>(
        &self,
        py: Python<'py>,
        payload: &Bound<'py, PyAny>,
        keys: Option<&Bound<'py, PyAny>>,
        shared: Option<&Bound<'py, PyAny>>,
        priority: Option<&Bound<'py, PyAny>>,
        delay: Option<&Bound<'py, PyAny>>,
        dedup: Option<&Bound<'py, PyAny>>,
        barrier: bool,
        quiet: bool,
    ) -> PyResult<Option<u64>> {
        use interlock_core::queue::scheduler::Refused;
        self.check_fork(py);
        let put = PutArguments { keys, shared, priority, delay, dedup, barrier, quiet };
        let named = Named::new(self, "put()", payload, &put)?;
        let refs = named.refs();
        let mut payload = Some(payload.clone().unbind());
        let placed = self.core.try_put(&named.put(&refs), &mut payload);
        let id = match placed.map_err(|ended| errors::put_ended(py, ended, self.bounds))? {
            Ok(placed) => Some(placed.id),
            Err(Refused::Full) => None,
            Err(refused) => return Err(errors::refused(py, refused, self.bounds)),
        };
        self.say(py)?;
        Ok(id)
    }
}
