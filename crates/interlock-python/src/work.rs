//! A worker of the executor: gets a message, calls, keeps the result, settles.

use std::cell::RefCell;

use interlock_core::queue::lease::Failed;
use interlock_core::queue::scheduler::{Grant, Handle};
use interlock_core::queue::types::Time;
use interlock_core::queue::waiters::{Wait, Want};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::arguments::{Named, PutArguments};
use crate::future::{Call, Future, Outcome};
use crate::lease::{error_text, Lease};
use crate::queue::{to_kind, Queue};
use crate::wait;

/// What this thread is handling.
struct Handling {
    queue: Py<Queue>,
    grant: Grant,
    payload: Py<PyAny>,
}

thread_local! {
    static HANDLING: RefCell<Vec<Handling>> = const { RefCell::new(Vec::new()) };
}

/// A worker that only calls functions in C would never come to where the interpreter lets others run.
const BREATHE: u32 = 128;

/// Ids of the messages of this queue that the calling thread handles.
pub fn handling(queue: &Py<Queue>) -> Vec<u64> {
    HANDLING.with_borrow(|handling| {
        let same = handling.iter().filter(|handling| handling.queue.is(queue));
        same.map(|handling| handling.grant.id).collect()
    })
}

/// The lease under which this thread handles a message for an executor, if it does.
#[pyfunction]
pub fn current_grant(py: Python<'_>) -> PyResult<Option<Bound<'_, Lease>>> {
    let found = HANDLING.with_borrow(|handling| {
        let last = handling.last()?;
        Some((last.queue.clone_ref(py), last.grant, last.payload.clone_ref(py)))
    });
    let Some((queue, grant, payload)) = found else {
        return Ok(None);
    };
    let lease = Lease::make(queue.bind(py), grant, payload)?;
    // The worker settles it.
    lease.get().given_away();
    Ok(Some(lease))
}

/// Handles messages until the queue is shut down and drained. `on`: exceptions that are retried; `None`:
/// there is no retry policy.
#[pyfunction]
pub fn run_worker(
    queue: &Bound<'_, Queue>,
    kind: &Bound<'_, PyAny>,
    on: Option<&Bound<'_, PyTuple>>,
) -> PyResult<()> {
    let py = queue.py();
    let kind = to_kind(Some(kind), "run_worker()")?;
    let core = &queue.get().core;
    let consumer = wait::consumer();
    let view = |payload: &Py<PyAny>, _: &Grant| payload.clone_ref(py);
    let mut rounds = 0u32;
    loop {
        let found = match core.try_get(kind, consumer, view) {
            Ok(Some(found)) => Ok(found),
            Err(ended) => Err(ended),
            Ok(None) => {
                let mut wait = Wait::new(Want::Message(kind), Time::MAX);
                wait::until(py, core, &mut wait, |wait, waker| {
                    core.get_or_wait(kind, consumer, view, wait, waker)
                })?
            }
        };
        let Ok((grant, payload)) = found else {
            return Ok(());
        };
        handle(queue, grant, payload, on)?;
        rounds += 1;
        if rounds.is_multiple_of(BREATHE) {
            py.detach(|| ());
        }
    }
}

fn handle(
    queue: &Bound<'_, Queue>,
    grant: Grant,
    payload: Py<PyAny>,
    on: Option<&Bound<'_, PyTuple>>,
) -> PyResult<()> {
    let py = queue.py();
    let core = &queue.get().core;
    let payload = payload.into_bound(py);
    let future = payload.cast::<Future>()?;
    let Some(call) = future.get().begin(py, on.is_some()) else {
        let _ = core.ack(grant.handle);
        return Ok(());
    };
    let entry =
        Handling { queue: queue.clone().unbind(), grant, payload: payload.clone().unbind() };
    HANDLING.with_borrow_mut(|handling| handling.push(entry));
    let Call { function, arguments, keywords } = call;
    let keywords = keywords.as_ref().map(|keywords| keywords.bind(py));
    let outcome = function.bind(py).call(arguments.bind(py), keywords);
    let entry = HANDLING.with_borrow_mut(|handling| handling.pop());
    drop((entry, function, arguments));
    match outcome {
        Ok(result) => {
            Future::finish(future, Outcome::Result(result.unbind()))?;
            // Revoked in the meantime: somebody decided already, and the result stands.
            drop(core.ack(grant.handle));
        }
        Err(error) => failed(queue, grant, future, &error, on)?,
    }
    queue.get().say(py)
}

fn failed(
    queue: &Bound<'_, Queue>,
    grant: Grant,
    future: &Bound<'_, Future>,
    error: &PyErr,
    on: Option<&Bound<'_, PyTuple>>,
) -> PyResult<()> {
    let py = queue.py();
    let core = &queue.get().core;
    let value = error.value(py);
    // Its traceback is a part of it.
    if let Some(traceback) = error.traceback(py) {
        value.setattr("__traceback__", traceback)?;
    }
    let retried = match on {
        None => false,
        Some(on) => value.is_instance(on)?,
    };
    if retried {
        return fail_again(core, grant.handle, future, value.as_any());
    }
    Future::finish(future, Outcome::Exception(value.clone().into_any().unbind()))?;
    drop(core.ack(grant.handle));
    Ok(())
}

/// An attempt failed and the policy may allow another one.
fn fail_again(
    core: &interlock_core::queue::Queue<Py<PyAny>>,
    handle: Handle,
    future: &Bound<'_, Future>,
    error: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let text = error_text(error)?;
    future.get().again(error.clone().unbind());
    match core.nack(handle, None, &text) {
        Ok(Failed::Again { .. } | Failed::Held) => Ok(()),
        Ok(Failed::Dead) | Err(_) => {
            Future::finish(future, Outcome::Exception(error.clone().unbind())).map(drop)
        }
    }
}

/// For executors that hand calls on: the attempt under this lease failed.
#[pyfunction]
pub fn fail(
    lease: &Bound<'_, Lease>,
    future: &Bound<'_, Future>,
    error: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let lease = lease.get();
    lease.given_away();
    fail_again(&lease.queue.get().core, lease.handle, future, error)?;
    lease.queue.get().say(future.py())
}

#[pymethods]
impl Queue {
    /// Makes a future of `class`, and puts it into the queue as a message that calls `function`.
    #[pyo3(signature = (class, keys, shared, priority, quiet, function, arguments, keywords))]
    #[allow(clippy::too_many_arguments)]
    fn _submit<'py>(
        slf: &Bound<'py, Self>,
        class: &Bound<'py, PyType>,
        keys: Option<&Bound<'py, PyAny>>,
        shared: Option<&Bound<'py, PyAny>>,
        priority: Option<&Bound<'py, PyAny>>,
        quiet: bool,
        function: Py<PyAny>,
        arguments: Py<PyTuple>,
        keywords: Option<Py<PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let made = class.call0()?;
        let future = made.cast::<Future>()?;
        let put = PutArguments {
            keys,
            shared,
            priority,
            delay: None,
            dedup: None,
            barrier: false,
            quiet,
        };
        let named = Named::new(slf.get(), "submit_keyed()", &made, &put)?;
        let keywords = keywords.filter(|keywords| !keywords.bind(py).is_empty());
        future.get().prepare(slf.clone().unbind(), Call { function, arguments, keywords });
        let set_id = |id: u64| future.get().set_id(id);
        slf.get().put_named(py, made.clone().unbind(), &named, None, set_id)?;
        Ok(made)
    }

    fn _unsettled(&self) -> u64 {
        self.core.call(|scheduler, _| scheduler.unsettled())
    }
}
