//! A handler that would wait for itself gets `WouldDeadlock` (clause 25).

use interlock_core::queue::waiting::waiters::{Wait, Want};
use interlock_core::queue::{Ended, Look};
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::executor::blocked;
use crate::queue::lease::{current_variable, Lease};
use crate::queue::Queue;
use crate::runtime::errors;
use crate::runtime::once::Once;

static HANDLES_HERE: Once<Py<PyAny>> = Once::new();

impl Queue {
    /// A look of a put: where it would sleep, for want of room and not because room is kept for
    /// another put, `check` finds out whether that would ever end. An exception of it is left in
    /// `stuck`.
    pub fn unless_stuck<T>(
        &self,
        look: Look<T>,
        wait: &mut Wait,
        stuck: &mut Option<PyErr>,
        check: impl FnOnce() -> PyResult<()>,
    ) -> Look<T> {
        if !matches!(look, Look::Sleep(_)) || !self.lacks_room(wait) {
            return look;
        }
        let Err(error) = check() else { return look };
        self.core.give_up(wait);
        *stuck = Some(error);
        Look::Ended(Ended::TimedOut)
    }

    pub fn lacks_room(&self, wait: &Wait) -> bool {
        let Want::Room(count, size) = wait.want() else { return false };
        self.core.call(|scheduler, _| scheduler.room(count, size).is_err())
    }

    /// The leases of this queue, (id, token), that the caller comes to the end of only when its wait is
    /// over: those that it is inside of. One that a task was started in is not among them.
    pub fn held_here(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64)>> {
        let mut held = Vec::new();
        each_current(py, &mut |lease| {
            if std::ptr::eq(lease.queue.get(), self) && lease.stands() {
                held.push((lease.id, lease.handle.token));
            }
        })?;
        Ok(held)
    }

    /// Creates the exception of a get that ended without a message. `held`: see `held_here`.
    pub fn get_ended(
        &self,
        py: Python<'_>,
        call: &str,
        ended: Ended,
        held: &[(u64, u64)],
    ) -> PyErr {
        let [(id, _), others @ ..] = held else { return errors::get_ended(py, ended) };
        if ended != Ended::Stuck {
            return errors::get_ended(py, ended);
        }
        let more = match others.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        errors::would_deadlock(
            py,
            format!(
                "{call}: queue {:?} is shut down, and the caller is handling message {id}{more} of it: \
                 all that is unsettled waits for that, or for others that wait as the caller does. \
                 Return first, or get with a timeout",
                self.queue_name()
            ),
        )
    }

    /// The message of this queue that the caller's context handles, if its lease is still valid. A
    /// mere holder of a lease may have given it to another thread; inside `with`, or in the handler
    /// of a consumer, it is the caller who must finish first.
    fn handled(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        if let Some(id) = blocked::handles_of(self) {
            return Ok(Some(id));
        }
        let current = current_variable(py)?.call_method1("get", (py.None(),))?;
        let Ok(lease) = current.cast::<Lease>() else { return Ok(None) };
        let lease = lease.get();
        let mine = std::ptr::eq(lease.queue.get(), self) && lease.stands();
        Ok(mine.then_some(lease.id))
    }
}

/// The leases that the caller is inside of, from the innermost.
fn each_current(py: Python<'_>, each: &mut dyn FnMut(&Lease)) -> PyResult<()> {
    let variable = current_variable(py)?;
    let current = variable.call_method1("get", (py.None(),))?;
    let Ok(lease) = current.cast::<Lease>() else { return Ok(()) };
    let Some(set) = lease.get().entered(py) else {
        // True in a handler of a consumer.
        if HANDLES_HERE.import(py, "interlock.message", "_handles_here")?.call0()?.is_truthy()? {
            each(lease.get());
        }
        return Ok(());
    };
    // A task has a copy of the context that it was started in, where it cannot undo what was set.
    if variable.call_method1("reset", (set,)).is_err() {
        return Ok(());
    }
    each(lease.get());
    let outer = each_current(py, each);
    lease.get().enter_again(variable.call_method1("set", (lease,))?);
    outer
}

impl Queue {
    /// A put that would wait for ever although others take from the queue: all else in it waits for the
    /// messages that the caller handles.
    fn check_others(&self, py: Python<'_>, call: &str) -> PyResult<()> {
        let held: Vec<u64> = self.held_here(py)?.into_iter().map(|(id, _)| id).collect();
        let Some(id) = held.first() else { return Ok(()) };
        if !self.core.call(|scheduler, _| scheduler.all_wait_for(&held)) {
            return Ok(());
        }
        Err(errors::would_deadlock(
            py,
            format!(
                "{call}: queue {:?} is full, and all else that is in it waits for message {id}, which \
                 the caller is handling: nobody can make room. Return first, or put with a timeout",
                self.queue_name(),
            ),
        ))
    }
}

#[pymethods]
impl Queue {
    /// A put that would wait for ever: its caller handles a message of this queue, and is the only one
    /// that ever took from it, or all else that is in it waits for that message. `me`: who took, as it was
    /// noted then.
    #[pyo3(name = "_check_room")]
    pub fn check_room(&self, py: Python<'_>, call: &str, me: u64) -> PyResult<()> {
        if self.only_getter() != Some(me) {
            return self.check_others(py, call);
        }
        match self.handled(py)? {
            None => Ok(()),
            Some(id) => Err(errors::would_deadlock(
                py,
                format!(
                    "{call}: queue {:?} is full, and the caller, the only one that takes from it, is \
                     handling message {id}: nobody can make room. Return first, put with a timeout, \
                     or let another consumer take from the queue too",
                    self.queue_name(),
                ),
            )),
        }
    }

    /// A join that would wait for ever: its caller handles a message of this queue.
    #[pyo3(name = "_check_join")]
    pub fn check_join(&self, py: Python<'_>) -> PyResult<()> {
        match self.handled(py)? {
            None => Ok(()),
            Some(id) => Err(errors::would_deadlock(
                py,
                format!(
                    "join(): the caller is handling message {id} of queue {:?}, which is not settled \
                     before the handler returns. Return first, or join with a timeout",
                    self.queue_name(),
                ),
            )),
        }
    }

    /// Several consumers will take from this queue.
    fn _several_getters(&self) {
        self.note_async_getter();
    }
}
