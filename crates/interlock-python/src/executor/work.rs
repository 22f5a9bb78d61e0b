//! A worker of the executor: gets a message, calls, keeps the result, settles.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use interlock_core::queue::calls::lease::{Failed, LeaseLost};
use interlock_core::queue::scheduler::{Grant, Handle};
use interlock_core::queue::types::{Kind, Then, Time};
use interlock_core::queue::waiting::waiters::{Wait, Want};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::executor::future::{Call, Future, Outcome, Wakes};
use crate::queue::arguments::{Named, PutArguments};
use crate::queue::judgement::Steered;
use crate::queue::lease::{error_text, Lease};
use crate::queue::wait;
use crate::queue::wait::Late;
use crate::queue::{to_kind, Queue};
use crate::runtime::fork;

/// A message that this thread is handling.
pub struct Handling {
    pub queue: Py<Queue>,
    pub id: u64,
    pub token: u64,
    pub kind: Kind,
    shown: Shown,
    forks: u32,
}

/// The lease that `current_lease` shows: made when it is asked for.
enum Shown {
    Lease(Py<Lease>),
    Grant(Grant, Py<PyAny>),
    /// Nothing: the handler has returned. Observers of its end are called before the next call on
    /// its keys, and so must not wait for it.
    Nothing,
}

/// The number of workers that an executor's queue has; 0: it is not an executor's.
#[derive(Default)]
pub struct Crew {
    pub all: AtomicU32,
    /// Number of workers that take keyed messages too.
    pub any: AtomicU32,
}

thread_local! {
    static HANDLING: RefCell<Vec<Handling>> = const { RefCell::new(Vec::new()) };
}

/// A worker that only calls functions in C would never come to where the interpreter lets others run.
const BREATHE: u32 = 128;

/// Shows what the calling thread handles, the innermost last.
pub fn with_handling<R>(see: impl FnOnce(&mut dyn Iterator<Item = &Handling>) -> R) -> R {
    HANDLING.with_borrow(|handling| {
        // In the child of a fork the parent handles it.
        let generation = fork::generation();
        see(&mut handling.iter().filter(|handling| handling.forks == generation))
    })
}

/// The lease under which this thread handles a message for an executor, if it does.
#[pyfunction]
pub fn current_grant(py: Python<'_>) -> PyResult<Option<Py<Lease>>> {
    let found = with_handling(|handling| {
        let last = handling.last()?;
        let shown = match &last.shown {
            Shown::Lease(lease) => Shown::Lease(lease.clone_ref(py)),
            Shown::Grant(grant, payload) => Shown::Grant(*grant, payload.clone_ref(py)),
            Shown::Nothing => return None,
        };
        Some((last.queue.clone_ref(py), shown))
    });
    let (queue, grant, payload) = match found {
        None | Some((_, Shown::Nothing)) => return Ok(None),
        Some((_, Shown::Lease(lease))) => return Ok(Some(lease)),
        Some((queue, Shown::Grant(grant, payload))) => (queue, grant, payload),
    };
    let lease = Lease::make(queue.bind(py), grant, payload)?.unbind();
    // The worker settles it.
    lease.get().lend();
    let kept = Shown::Lease(lease.clone_ref(py));
    let _old = HANDLING.with_borrow_mut(|handling| {
        handling.last_mut().map(|last| std::mem::replace(&mut last.shown, kept))
    });
    Ok(Some(lease))
}

/// Handles messages until the queue is shut down and drained: returns false; or until a lease was
/// lost while it was handled, so that another thread may have taken over: returns true. `on`:
/// exceptions that are retried; `None`: no retry policy.
#[pyfunction]
pub fn run_worker(
    queue: &Bound<'_, Queue>,
    kind: &Bound<'_, PyAny>,
    on: Option<&Bound<'_, PyTuple>>,
) -> PyResult<bool> {
    let py = queue.py();
    let kind = to_kind(Some(kind), "run_worker()")?;
    let core = &queue.get().core;
    let consumer = wait::consumer();
    let forks = fork::generation();
    let view = |payload: &Py<PyAny>, _: &Grant| payload.clone_ref(py);
    let mut rounds = 0u32;
    loop {
        let found = match core.try_get(kind, consumer, view) {
            Ok(Some(found)) => Ok(found),
            Err(ended) => Err(ended),
            Ok(None) => {
                let mut wait = Wait::new(Want::Message(kind), Time::MAX);
                let found = wait::until(py, queue.get(), &mut wait, |wait, waker| {
                    core.get_or_wait(kind, consumer, view, wait, waker)
                });
                wait::catch_up();
                found?
            }
        };
        wait::catch_up();
        let Ok((grant, payload)) = found else {
            return Ok(false);
        };
        let lost = handle(queue, grant, kind, payload, on);
        if core.has_events() {
            wait::catch_up();
        }
        // A worker that ended would leave its messages lying.
        if let Err(error) = queue.get().say(py) {
            error.write_unraisable(py, Some(queue.as_any()));
        }
        if forks != fork::generation() {
            // The handler forked and returned in the child, which is not to do the parent's work.
            wait::catch_up();
            return Ok(false);
        }
        if lost {
            wait::catch_up();
            return Ok(true);
        }
        rounds += 1;
        if rounds.is_multiple_of(BREATHE) {
            py.detach(wait::catch_up);
        }
    }
}

/// Handles a message. True: its lease was lost meanwhile.
fn handle(
    queue: &Bound<'_, Queue>,
    grant: Grant,
    kind: Kind,
    payload: Py<PyAny>,
    on: Option<&Bound<'_, PyTuple>>,
) -> bool {
    let py = queue.py();
    let core = &queue.get().core;
    let payload = payload.into_bound(py);
    let Ok(future) = payload.cast::<Future>() else {
        let reason = "not a call: it was put directly into the queue of an executor";
        let _ = core.call(|scheduler, now| scheduler.reject(now, grant.handle, reason));
        return false;
    };
    let Some(call) = future.get().begin(py, grant.handle.token) else {
        drop(core.ack(grant.handle));
        return false;
    };
    let shown = Shown::Grant(grant, payload.clone().unbind());
    let scope = Scope::enter(queue, (grant.id, grant.handle.token), kind, shown);
    let keywords = call.keywords.as_ref().map(|keywords| keywords.bind(py));
    let outcome = call.function.bind(py).call(call.arguments.bind(py), keywords);
    scope.returned(py);
    drop(call);
    let ended = Attempt { handle: grant.handle, id: grant.id, number: grant.attempt };
    let lost = end(queue, ended, future, outcome, on, Wakes::Late);
    // The last reference: what it holds may run code at its end.
    // SAFETY: an object that is held here.
    if unsafe { ffi::Py_REFCNT(payload.as_ptr()) } == 1 {
        wait::catch_up();
    }
    lost
}

/// While it lives, this thread handles a message, as far as `current_lease` and those who look for
/// deadlocks know.
struct Scope;

impl Scope {
    fn enter(queue: &Bound<'_, Queue>, (id, token): (u64, u64), kind: Kind, shown: Shown) -> Self {
        let queue = queue.clone().unbind();
        let entry = Handling { queue, id, token, kind, shown, forks: fork::generation() };
        HANDLING.with_borrow_mut(|handling| handling.push(entry));
        Scope
    }

    /// The lease is shown no longer.
    fn returned(&self, py: Python<'_>) {
        let shown = HANDLING.with_borrow_mut(|handling| {
            handling.last_mut().map(|last| std::mem::replace(&mut last.shown, Shown::Nothing))
        });
        if let Some(Shown::Lease(lease)) = shown {
            lease.get().take_back(py);
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // Dropped outside the borrow: it may be the last to hold the queue.
        let _gone = HANDLING.with_borrow_mut(|handling| handling.pop());
    }
}

/// A call that was made.
struct Attempt {
    handle: Handle,
    id: u64,
    /// 1 for the first.
    number: u32,
}

/// The call has come to its end: the future gets it, and the message is settled or tried again. True:
/// the lease was lost meanwhile, so that none of this is done.
fn end(
    queue: &Bound<'_, Queue>,
    Attempt { handle, id, number }: Attempt,
    future: &Bound<'_, Future>,
    outcome: PyResult<Bound<'_, PyAny>>,
    on: Option<&Bound<'_, PyTuple>>,
    wakes: Wakes,
) -> bool {
    let py = queue.py();
    let core = &queue.get().core;
    // Revoked: its token is dead, and what it made no longer counts (clause 24).
    let holds = || core.call(|scheduler, _| scheduler.holds(handle));
    let error = match outcome {
        Ok(result) => {
            Future::finish_surely(future, Outcome::Result(result.unbind()), holds, wakes);
            // The payload is the future, which the caller keeps.
            let _late = (wakes == Wakes::Late).then(Late::begin);
            return core.ack(handle).map(drop).is_err();
        }
        // Its traceback is a part of it.
        Err(error) => error.into_value(py).into_bound(py).into_any(),
    };
    let Some(on) = on else {
        Future::finish_surely(future, Outcome::Exception(error.unbind()), holds, Wakes::AtOnce);
        return core.ack(handle).map(drop).is_err();
    };
    let mut text = error_text(&error).unwrap_or_else(|_| "an exception".to_owned());
    let mut rejected = false;
    // As everywhere: a handler that steers is followed, whatever the policy retries.
    let steered = Steered::by(&error, on).unwrap_or(None);
    if let Some(Steered::Retry(delay, Some(limit)) | Steered::Defer(delay, Some(limit))) = &steered
    {
        queue.get().close_limit(handle, limit, *delay);
    }
    let (retried, delay) = match steered {
        Some(Steered::Retry(delay, _)) => (true, Some(delay)),
        Some(Steered::Defer(delay, _)) => {
            future.get().again(handle.token, error.unbind());
            return core.call(|scheduler, now| scheduler.defer(now, handle, delay)).is_err();
        }
        Some(Steered::Reject(reason)) => {
            (text, rejected) = (reason, true);
            (false, None)
        }
        None => (error.is_instance(on).unwrap_or(false), None),
    };
    let (attempts, then) = core.call(|scheduler, _| {
        let retry = &scheduler.options().retry;
        (retry.attempts, retry.then)
    });
    let last = !retried || attempts.is_some_and(|most| number >= most);
    if last && (rejected || then == Then::Dead) {
        // No dead letter: the future has the exception, and who wants it has the future.
        let outcome = Outcome::Exception(error.unbind());
        if Future::finish_surely(future, outcome, holds, Wakes::AtOnce) {
            queue.get().say_ended(py, id, number, &text);
        }
        return core.ack(handle).map(drop).is_err();
    }
    future.get().again(handle.token, error.unbind());
    let failed: Result<Failed, LeaseLost> = match retried {
        true => core.nack(handle, delay, &text),
        false => core.call(|scheduler, now| scheduler.exhaust(now, handle, &text)),
    };
    failed.is_err()
}

/// Calls in this process as the handler of a message that an executor handed on to a pool.
#[pyfunction]
pub fn call_handler<'py>(
    lease: &Bound<'py, Lease>,
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
    keywords: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let this = lease.get();
    this.lend();
    let shown = Shown::Lease(lease.clone().unbind());
    let handled = (this.id, this.handle.token);
    let scope = Scope::enter(this.queue.bind(lease.py()), handled, Kind::Any, shown);
    let outcome = function.call(arguments, Some(keywords));
    scope.returned(lease.py());
    outcome
}

/// A call that a pool made has come to its end: with an exception, or else a result. False: the lease
/// was lost meanwhile.
#[pyfunction]
pub fn end_call(
    lease: &Bound<'_, Lease>,
    result: Option<Bound<'_, PyAny>>,
    error: Option<Bound<'_, PyAny>>,
    on: Option<&Bound<'_, PyTuple>>,
) -> PyResult<bool> {
    let py = lease.py();
    let this = lease.get();
    this.handed_over();
    let outcome = match error {
        Some(error) => Err(PyErr::from_value(error)),
        None => Ok(result.unwrap_or_else(|| py.None().into_bound(py))),
    };
    let future = this.payload.bind(py).cast::<Future>()?;
    let handled = (this.id, this.handle.token);
    let scope = Scope::enter(this.queue.bind(py), handled, Kind::Any, Shown::Nothing);
    let ended = Attempt { handle: this.handle, id: this.id, number: this.attempt };
    let lost = end(this.queue.bind(py), ended, future, outcome, on, Wakes::AtOnce);
    drop(scope);
    this.queue.get().say(py)?;
    Ok(!lost)
}

#[pymethods]
impl Queue {
    /// Creates a future of `class`, and puts it into the queue as a message that calls `function`.
    #[pyo3(signature = (class, keys, shared, priority, quiet, limit, function, arguments, keywords))]
    #[allow(clippy::too_many_arguments)]
    fn _submit<'py>(
        slf: &Bound<'py, Self>,
        class: &Bound<'py, PyType>,
        keys: Option<&Bound<'py, PyAny>>,
        shared: Option<&Bound<'py, PyAny>>,
        priority: Option<&Bound<'py, PyAny>>,
        quiet: Option<&Bound<'py, PyAny>>,
        limit: Option<&Bound<'py, PyAny>>,
        function: Py<PyAny>,
        arguments: Py<PyTuple>,
        keywords: Option<Py<PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let made = class.call0()?;
        let future = made.cast::<Future>()?;
        let put = PutArguments { keys, shared, priority, quiet, limit, ..PutArguments::default() };
        let named = Named::new(slf.get(), "submit_keyed()", &made, &put)?;
        let keywords = keywords.filter(|keywords| !keywords.bind(py).is_empty());
        future.get().prepare(slf.clone().unbind(), Call { function, arguments, keywords });
        let set_id = |id: u64| future.get().set_id(id);
        slf.get().put_named(py, made.clone().unbind(), "submit()", &named, None, set_id)?;
        Ok(made)
    }

    /// Keeps no dead letters of messages given up here: they are settled, and their outcome is kept
    /// elsewhere.
    fn _keep_no_dead_letters(&self) {
        // Relaxed: set before anything is put.
        self.keeps_dead.store(false, Ordering::Relaxed);
    }

    fn _unsettled(&self) -> u64 {
        self.core.call(|scheduler, _| scheduler.unsettled())
    }

    /// The chain by which a message waits for leased ones that do not end before it does, in words.
    fn _waits_for<'py>(
        &self,
        py: Python<'py>,
        id: u64,
        stuck: Vec<u64>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let chain = self.core.call(|scheduler, _| scheduler.waits_for(id, &stuck));
        chain.map(|chain| PyTuple::new(py, chain.words())).transpose()
    }

    /// The thread that leases a message.
    fn _thread_of(&self, id: u64) -> Option<u64> {
        let explained = self.core.call(|scheduler, now| scheduler.explain(now, id, 1))?;
        explained.nodes.first().map(|node| node.consumer).filter(|&consumer| consumer != 0)
    }

    /// Shuts the queue down; what is not leased ends with what `exception` makes.
    fn _fail_all(&self, py: Python<'_>, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.core.shut_down();
        let all = self.core.call(|scheduler, now| scheduler.cancel_all(now));
        for message in &all {
            if let Ok(future) = message.payload.bind(py).cast::<Future>() {
                let exception = exception.call0()?.unbind();
                Future::finish_surely(
                    future,
                    Outcome::Exception(exception),
                    || true,
                    Wakes::AtOnce,
                );
            }
        }
        self.say(py)
    }

    /// Sets how many workers there will be, and how many of them take keyed messages too.
    fn _set_crew(&self, all: u32, any: u32) {
        // Relaxed: set before the first worker is started.
        self.crew.all.store(all, Ordering::Relaxed);
        self.crew.any.store(any, Ordering::Relaxed);
    }

    /// Ids of its messages that the calling thread handles.
    fn _handling(slf: &Bound<'_, Self>) -> Vec<u64> {
        with_handling(|handling| {
            let own = handling.filter(|handling| handling.queue.is(slf));
            own.map(|handling| handling.id).collect()
        })
    }
}
