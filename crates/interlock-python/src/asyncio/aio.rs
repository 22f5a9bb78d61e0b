//! The base of the asyncio face: one look at a queue, a waker that calls Python, and a lease whose
//! settling is awaited. The coroutines themselves are Python's; consumers on threads, which must be
//! able to stop, wait in the same way.

use std::sync::Mutex;
use std::task::Waker;

use interlock_core::queue::scheduler::{Grant, NoRoom, Placed};
use interlock_core::queue::types::Time;
use interlock_core::queue::waiting::waiters::{Wait, Want};
use interlock_core::queue::{Ended, Look};
use pyo3::exceptions::{PyStopIteration, PyTimeoutError, PyTypeError};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::asyncio::call::Call;
use crate::asyncio::coroutine::thrown_error;
use crate::fast;
use crate::fast::recycle::Recycler;
use crate::queue::arguments::{CoalesceArguments, Named, PutArguments};
use crate::queue::batch::Batch;
use crate::queue::lease::Lease;
use crate::queue::lease_batch::{LeaseBatch, Message, Of};
use crate::queue::operate::at_least_one;
use crate::queue::wait;
use crate::queue::{to_kind, Queue};
use crate::runtime::convert::micros;
use crate::runtime::errors;
use crate::runtime::once::Once;

/// A lease whose settling is awaited; see `interlock.AsyncLease`.
#[pyclass(frozen, subclass, extends = Lease, generic, module = "interlock")]
pub struct AsyncLease;

impl AsyncLease {
    pub fn make<'py>(
        queue: &Bound<'py, Queue>,
        grant: Grant,
        payload: Py<PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        AsyncLease::from_lease(queue.py(), Lease::new(queue, grant, payload))
    }

    pub fn from_lease(py: Python<'_>, lease: Lease) -> PyResult<Bound<'_, Self>> {
        let make = |lease| {
            let lease = PyClassInitializer::from(lease).add_subclass(AsyncLease);
            Ok(Bound::new(py, lease)?.into_super())
        };
        let lease = LEASES.give(py, lease, make)?;
        // SAFETY: of the class that `make` makes, or its subclass.
        Ok(unsafe { lease.cast_into_unchecked() })
    }
}

pub static LEASES: Recycler =
    Recycler::new(c"interlock.AsyncLease", dealloc, fast::install_async_ack);

unsafe extern "C" fn dealloc(lease: *mut ffi::PyObject) {
    // SAFETY: the interpreter's, of an object that `make` made.
    unsafe { LEASES.take(lease, |lease| LEASES.free(lease)) }
}

/// The base class of `interlock.AsyncQueue`. See there.
#[pyclass(frozen, subclass, weakref, generic, module = "interlock._core")]
pub struct AsyncFace {
    #[pyo3(get)]
    pub queue: Py<Queue>,
}

#[pymethods]
impl AsyncFace {
    #[new]
    fn new(queue: Py<Queue>) -> Self {
        AsyncFace { queue }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.queue)
    }
}

/// Something already done, to be awaited: settling in process takes no time. It is what a coroutine
/// is, so that it may be made a task, too.
#[pyclass(frozen, module = "interlock._core")]
pub struct Done {
    result: Option<Py<PyAny>>,
}

#[pymethods]
impl Done {
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        match &slf.get().result {
            // The end of an empty iterator is None, and costs a tenth of a StopIteration that is made.
            None => Ok(PyTuple::empty(slf.py()).try_iter()?.into_any()),
            Some(_) => Ok(slf.clone().into_any()),
        }
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<()> {
        let result = self.result.as_ref().map(|result| result.clone_ref(py));
        Err(PyStopIteration::new_err((result,)))
    }

    fn send(&self, py: Python<'_>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.__next__(py)
    }

    #[pyo3(signature = (*arguments))]
    fn throw(&self, arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
        Err(thrown_error(arguments)?)
    }

    fn close(&self) {}

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.result)
    }
}

static DONE: Once<Py<Done>> = Once::new();

pub fn done(py: Python<'_>) -> PyResult<&Bound<'_, Done>> {
    DONE.get_or_try_init(py, || Py::new(py, Done { result: None })).map(|done| done.bind(py))
}

#[pymethods]
impl AsyncLease {
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
        Err(PyTypeError::new_err(text))
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

/// One wait of a coroutine or a consumer: looks, and in between calls `call` when it is worth to look
/// again. `call` may be called from any thread, and within any call into the queue. `on_loop`: the number
/// of the event loop that has to run for the look; 0 for a thread, which comes by itself.
#[pyclass(frozen, module = "interlock._core")]
pub struct Waiter {
    queue: Py<Queue>,
    wait: Mutex<Wait>,
    until: Mutex<Time>,
    pub call: Py<PyAny>,
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
        // A signal handler may have forked since it began to wait.
        queue.check_fork(slf.py());
        let waker = Call::waker(slf.clone().unbind());
        // Taken out while looking: a wake of another waiter runs Python code, which may look here.
        let mut wait = {
            let mut kept = this.wait.lock().expect("never poisoned");
            let spare = kept.anew(Want::Drained);
            std::mem::replace(&mut *kept, spare)
        };
        if !wait.is_parked() {
            wait = wait.anew(want());
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
    fn look_for_room(
        slf: &Bound<'_, Self>,
        batch: &Bound<'_, Batch>,
    ) -> PyResult<Option<Vec<Placed>>> {
        let py = slf.py();
        let queue = slf.get().queue.get();
        let batch = batch.get();
        let placed = Waiter::look(
            slf,
            || batch.want(),
            |queue, wait, waker| batch.look(&queue.core, wait, waker),
            |ended| errors::put_ended(py, batch.call, queue.queue_name(), ended, queue.bounds),
        )?;
        queue.say(py)?;
        Ok(placed)
    }

    fn look_for_message<'py>(
        slf: &Bound<'py, Self>,
        kind: &Bound<'py, PyAny>,
        to_the_end: bool,
    ) -> PyResult<Option<(Grant, Py<PyAny>)>> {
        let py = slf.py();
        let kind = to_kind(Some(kind), "get()")?;
        let view = |payload: &Py<PyAny>, _: &Grant| payload.clone_ref(py);
        let held = slf.get().waits_for_message(py, to_the_end)?;
        Waiter::look(
            slf,
            || Want::Message(kind),
            |queue, wait, waker| queue.core.get_or_wait(kind, wait::consumer(), view, wait, waker),
            |ended| slf.get().queue.get().get_ended(py, "get()", ended, &held),
        )
    }

    /// Before a look for messages: what the caller holds meanwhile, if it waits without an end.
    fn waits_for_message(&self, py: Python<'_>, to_the_end: bool) -> PyResult<Vec<(u64, u64)>> {
        let waits = |wait: &Wait| wait.deadline == Time::MAX && !to_the_end;
        let asked = waits(&self.wait.lock().expect("never poisoned"));
        let held = if asked { self.queue.get().held_here(py)? } else { Vec::new() };
        let mut wait = self.wait.lock().expect("never poisoned");
        wait.to_the_end = to_the_end;
        wait.holds.clone_from(&held);
        Ok(held)
    }
}

#[pymethods]
impl Waiter {
    #[new]
    #[pyo3(signature = (queue, call, timeout = None, on_loop = 0))]
    fn new(
        queue: &Bound<'_, Queue>,
        call: Py<PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
        on_loop: u64,
    ) -> PyResult<Self> {
        queue.get().check_fork(queue.py());
        let timeout = timeout.map(|timeout| micros(timeout, "timeout")).transpose()?;
        let deadline = wait::deadline(&queue.get().core, timeout);
        Ok(Waiter {
            queue: queue.clone().unbind(),
            wait: Mutex::new(Wait::new(Want::Drained, deadline).on_loop(on_loop)),
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
        let found = Waiter::look_for_message(slf, kind, true)?;
        thread_lease(slf.get().queue.bind(slf.py()), found)
    }

    /// `to_the_end`: after an immediate shutdown, too, it waits for what is leased.
    fn get_async<'py>(
        slf: &Bound<'py, Self>,
        kind: &Bound<'py, PyAny>,
        to_the_end: bool,
    ) -> PyResult<Option<Bound<'py, AsyncLease>>> {
        let found = Waiter::look_for_message(slf, kind, to_the_end)?;
        async_lease(slf.get().queue.bind(slf.py()), found)
    }

    fn get_many_async<'py>(
        slf: &Bound<'py, Self>,
        limit: &Bound<'py, PyAny>,
        kind: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, LeaseBatch>>> {
        let py = slf.py();
        let limit = at_least_one(limit, "get_many(): limit")?;
        let kind = to_kind(Some(kind), "get_many()")?;
        let mut found = Vec::new();
        let held = slf.get().waits_for_message(py, false)?;
        let some = Waiter::look(
            slf,
            || Want::Message(kind),
            |queue, wait, waker| {
                let view = |payload: &Py<PyAny>, grant: &Grant| {
                    found.push(Message { grant: *grant, payload: payload.clone_ref(py) })
                };
                queue.core.get_many_or_wait(kind, limit, wait::consumer(), view, wait, waker)
            },
            |ended| slf.get().queue.get().get_ended(py, "get_many()", ended, &held),
        )?;
        let queue = slf.get().queue.bind(py);
        if some.is_none() {
            queue.get().say(py)?;
            return Ok(None);
        }
        let batch = LeaseBatch::make(queue, found, Of::Coroutines)?;
        queue.get().say(py).inspect_err(|_| batch.get().release(py))?;
        Ok(Some(batch))
    }

    /// The ids, or `None` to sleep.
    fn put(slf: &Bound<'_, Self>, batch: &Bound<'_, Batch>) -> PyResult<Option<Vec<u64>>> {
        let placed = Waiter::look_for_room(slf, batch)?;
        Ok(placed.map(|placed| placed.into_iter().map(|placed| placed.id).collect()))
    }

    /// Returns whether the put that sleeps lacks room; else room is only kept for another.
    fn lacks_room(&self) -> bool {
        let wait = self.wait.lock().expect("never poisoned");
        let asked = wait.anew(wait.want());
        // Not while it is locked: the queue may call others, and so run Python code.
        drop(wait);
        self.queue.get().lacks_room(&asked)
    }

    /// The id of a batch of one, whether its dedup string was known, and whether a payload was replaced; `None`
    /// to sleep.
    fn put_known(
        slf: &Bound<'_, Self>,
        batch: &Bound<'_, Batch>,
    ) -> PyResult<Option<(u64, bool, bool)>> {
        let placed = Waiter::look_for_room(slf, batch)?;
        let told = |placed: &Placed| (placed.id, placed.known, placed.replaced);
        Ok(placed.and_then(|placed| placed.first().map(told)))
    }

    /// True: nothing is unsettled. False: sleep. Raises TimeoutError when the time is up.
    fn drained(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let found = Waiter::look(
            slf,
            || Want::Drained,
            |queue, wait, waker| queue.core.drained_or_wait(wait, waker),
            |_| PyTimeoutError::new_err("not drained in time"),
        )?;
        Ok(found.is_some())
    }

    /// The wait is over without what it was for.
    pub fn give_up(&self, py: Python<'_>) {
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

/// Logs the events of the queue. If that raises (such as Ctrl-C), the caller gets the exception and not the
/// leases, which are returned.
pub fn said<'a>(
    queue: &Queue,
    py: Python<'_>,
    leases: impl Iterator<Item = &'a Lease>,
) -> PyResult<()> {
    queue.say(py).inspect_err(|_| {
        leases.for_each(|lease| drop(lease.release(py)));
    })
}

impl Queue {
    /// Returns the result of a consumer's look: the consumer continues while anything is unsettled,
    /// which may be redelivered.
    fn to_the_end(&self, found: Result<Found, Ended>) -> Result<Found, Ended> {
        match found {
            Err(Ended::ShutDown) if self.core.call(|s, _| s.unsettled()) > 0 => Ok(None),
            found => found,
        }
    }
}

type Found = Option<(Grant, Py<PyAny>)>;

fn thread_lease<'py>(
    queue: &Bound<'py, Queue>,
    found: Found,
) -> PyResult<Option<Bound<'py, Lease>>> {
    let make = |(grant, payload)| Lease::make(queue, grant, payload);
    let lease = found.map(make).transpose()?;
    said(queue.get(), queue.py(), lease.iter().map(|lease| lease.get()))?;
    Ok(lease)
}

fn async_lease<'py>(
    queue: &Bound<'py, Queue>,
    found: Found,
) -> PyResult<Option<Bound<'py, AsyncLease>>> {
    let make = |(grant, payload)| AsyncLease::make(queue, grant, payload);
    let lease = found.map(make).transpose()?;
    said(queue.get(), queue.py(), lease.iter().map(|lease| lease.as_super().get()))?;
    Ok(lease)
}

#[pymethods]
impl Queue {
    /// A message if one is ready, else `None`; what `AsyncQueue.get` tries before it waits. `me`: a
    /// consumer that waits for each of its handlers, by a number of its own.
    #[pyo3(signature = (kind, me = None))]
    fn _try_get_async_in_full<'py>(
        slf: &Bound<'py, Self>,
        kind: Option<&Bound<'py, PyAny>>,
        me: Option<u64>,
    ) -> PyResult<Option<Bound<'py, AsyncLease>>> {
        let py = slf.py();
        let queue = slf.get();
        queue.check_fork(py);
        let kind = to_kind(kind, "get()")?;
        match me {
            Some(me) => queue.note_getter(me),
            None => queue.note_async_getter(),
        }
        let view = |payload: &Py<PyAny>, _: &Grant| payload.clone_ref(py);
        let found = queue.core.try_get(kind, wait::consumer(), view);
        let found = if me.is_some() { queue.to_the_end(found) } else { found };
        async_lease(slf, found.map_err(|ended| errors::get_ended(py, ended))?)
    }

    /// Like `_try_get_async`, but returns a lease for threads.
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
        let found = queue.to_the_end(queue.core.try_get(kind, consumer, view));
        thread_lease(slf, found.map_err(|ended| errors::get_ended(py, ended))?)
    }

    /// The id if there was room, else what to wait for room with: named once, for naming runs code
    /// of the user's, and an iterator of keys cannot be read twice.
    #[pyo3(signature = (
        payload, keys, shared, priority, delay, dedup, barrier, quiet, limit, group, behind,
        coalesce = None, debounce = None, longest = None,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn _try_put_in_full<'py>(
        &self,
        py: Python<'py>,
        payload: &Bound<'py, PyAny>,
        keys: Option<&Bound<'py, PyAny>>,
        shared: Option<&Bound<'py, PyAny>>,
        priority: Option<&Bound<'py, PyAny>>,
        delay: Option<&Bound<'py, PyAny>>,
        dedup: Option<&Bound<'py, PyAny>>,
        barrier: Option<&Bound<'py, PyAny>>,
        quiet: Option<&Bound<'py, PyAny>>,
        limit: Option<&Bound<'py, PyAny>>,
        group: Option<&Bound<'py, PyAny>>,
        behind: Option<&Bound<'py, PyAny>>,
        coalesce: Option<&Bound<'py, PyAny>>,
        debounce: Option<&Bound<'py, PyAny>>,
        longest: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.check_fork(py);
        let put = PutArguments {
            keys,
            shared,
            priority,
            delay,
            dedup,
            barrier,
            quiet,
            limit,
            group,
            behind,
            coalesce: CoalesceArguments { coalesce, debounce, longest },
        };
        let named = Named::new(self, "put()", payload, &put)?;
        let refs = named.refs();
        let put = named.put(&refs);
        let mut payload = Some(payload.clone().unbind());
        let name = self.queue_name();
        let ended = |ended| errors::put_ended(py, "put()", name, ended, self.bounds);
        let answer = match self.core.try_put(&put, &mut payload).map_err(ended)? {
            Ok(placed) => placed.id.into_pyobject(py)?.into_any(),
            Err(NoRoom::Full) => {
                Bound::new(py, Batch::new("put()", &[put], vec![payload]))?.into_any()
            }
            Err(refused) => return Err(errors::refused(py, "put()", name, refused, self.bounds)),
        };
        self.say(py).map(|()| answer)
    }

    /// Creates a batch of one put, so that its arguments are read once.
    #[pyo3(signature = (
        payload, keys, shared, priority, delay, dedup, barrier, quiet, limit, group, behind,
        coalesce, debounce, longest,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn _batch_of_one<'py>(
        &self,
        payload: &Bound<'py, PyAny>,
        keys: Option<&Bound<'py, PyAny>>,
        shared: Option<&Bound<'py, PyAny>>,
        priority: Option<&Bound<'py, PyAny>>,
        delay: Option<&Bound<'py, PyAny>>,
        dedup: Option<&Bound<'py, PyAny>>,
        barrier: Option<&Bound<'py, PyAny>>,
        quiet: Option<&Bound<'py, PyAny>>,
        limit: Option<&Bound<'py, PyAny>>,
        group: Option<&Bound<'py, PyAny>>,
        behind: Option<&Bound<'py, PyAny>>,
        coalesce: Option<&Bound<'py, PyAny>>,
        debounce: Option<&Bound<'py, PyAny>>,
        longest: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Batch> {
        let put = PutArguments {
            keys,
            shared,
            priority,
            delay,
            dedup,
            barrier,
            quiet,
            limit,
            group,
            behind,
            coalesce: CoalesceArguments { coalesce, debounce, longest },
        };
        let named = Named::new(self, "put_known()", payload, &put)?;
        let refs = named.refs();
        Ok(Batch::new("put_known()", &[named.put(&refs)], vec![Some(payload.clone().unbind())]))
    }
}
