//! Several messages in one call.

use std::task::Waker;

use interlock_core::queue::scheduler::Grant;
use interlock_core::queue::waiters::{Wait, Want};
use interlock_core::queue::{Ended, Look};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::aio::said;
use crate::batch::Batch;
use crate::convert::{iterated, Truth};
use crate::errors;
use crate::lease::Lease;
use crate::named_batch::{BatchArguments, NamedBatch};
use crate::queue::{to_kind, wait_time, Queue};
use crate::queue_operate::at_least_one;
use crate::wait;

#[pymethods]
impl Queue {
    /// Puts a batch, whole or not at all, in order. Returns the ids.
    ///
    /// The rest of the arguments is as for `put`, and holds for all messages.
    ///
    /// Args:
    ///     items: the payloads.
    ///     keys, shared: as for `put`, the same for all messages; or a callable of each payload, which
    ///         gives what a put of it would name.
    ///     each_keys, each_shared: what a put of each payload would name, in their order: as many as
    ///         items. An entry is a key, an iterable of keys, or None. Instead of keys, or shared.
    ///     dedup: a callable of each payload, which gives its name or None.
    ///
    /// Raises:
    ///     Full: there was no room for the whole batch in time; nothing was put.
    ///     ValueError: the batch is larger than the bounds of the queue.
    ///     ShutDown: the queue is shut down.
    #[pyo3(
        signature = (
            items, block = Truth(true), timeout = None, *, keys = None, shared = None,
            priority = None, delay = None, dedup = None, quiet = None, each_keys = None,
            each_shared = None,
        ),
        text_signature = "($self, items, block=True, timeout=None, *, keys=None, shared=None, \
                          priority=0, delay=0, dedup=None, quiet=False, each_keys=None, \
                          each_shared=None)"
    )]
    #[allow(clippy::too_many_arguments)]
    fn put_many<'py>(
        &self,
        py: Python<'py>,
        items: &Bound<'py, PyAny>,
        block: Truth,
        timeout: Option<&Bound<'py, PyAny>>,
        keys: Option<&Bound<'py, PyAny>>,
        shared: Option<&Bound<'py, PyAny>>,
        priority: Option<&Bound<'py, PyAny>>,
        delay: Option<&Bound<'py, PyAny>>,
        dedup: Option<&Bound<'py, PyAny>>,
        quiet: Option<&Bound<'py, PyAny>>,
        each_keys: Option<&Bound<'py, PyAny>>,
        each_shared: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<u64>> {
        let call = "put_many()";
        let timeout = wait_time(block, timeout, call)?;
        let payloads = payloads_of(items)?;
        let put =
            BatchArguments { keys, shared, each_keys, each_shared, priority, delay, dedup, quiet };
        let named = NamedBatch::new(self, &payloads, &put)?;
        // What was called above may have forked.
        self.check_fork(py);
        let mut payloads: Vec<Option<Py<PyAny>>> =
            payloads.into_iter().map(|payload| Some(payload.unbind())).collect();
        let placed = named.with_puts(|puts| {
            let size = puts.iter().map(|put| put.size).fold(0, u64::saturating_add);
            let want = Want::Room(puts.len(), size);
            let mut at_once = Wait::new(want, 0);
            match self.core.put_many_or_wait(puts, &mut payloads, &mut at_once, Waker::noop()) {
                Look::Found(placed) => Ok(Ok(placed)),
                Look::Ended(Ended::TimedOut) | Look::Sleep(_) if timeout != Some(0) => {
                    let mut stuck = None;
                    let mut wait = Wait::new(want, wait::deadline(&self.core, timeout));
                    let placed = wait::until(py, self, &mut wait, |wait, waker| {
                        let look = self.core.put_many_or_wait(puts, &mut payloads, wait, waker);
                        self.unless_stuck(look, wait, &mut stuck, || match timeout {
                            None => self.check_room(py, call, wait::consumer()),
                            Some(_) => Ok(()),
                        })
                    })?;
                    stuck.map_or(Ok(placed), Err)
                }
                Look::Ended(ended) => Ok(Err(ended)),
                Look::Sleep(_) => Ok(Err(Ended::TimedOut)),
            }
        })?;
        let placed = placed.map_err(|ended| errors::put_ended(py, ended, self.bounds))?;
        self.say(py)?;
        Ok(placed.into_iter().map(|placed| placed.id).collect())
    }

    /// What the asyncio face puts a batch with.
    #[allow(clippy::too_many_arguments)]
    fn _batch<'py>(
        &self,
        items: &Bound<'py, PyAny>,
        keys: Option<&Bound<'py, PyAny>>,
        shared: Option<&Bound<'py, PyAny>>,
        priority: Option<&Bound<'py, PyAny>>,
        delay: Option<&Bound<'py, PyAny>>,
        dedup: Option<&Bound<'py, PyAny>>,
        quiet: Option<&Bound<'py, PyAny>>,
        each_keys: Option<&Bound<'py, PyAny>>,
        each_shared: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Batch> {
        let payloads = payloads_of(items)?;
        let put =
            BatchArguments { keys, shared, each_keys, each_shared, priority, delay, dedup, quiet };
        let named = NamedBatch::new(self, &payloads, &put)?;
        let payloads = payloads.into_iter().map(|payload| Some(payload.unbind())).collect();
        Ok(named.with_puts(|puts| Batch::new("put_many()", puts, payloads)))
    }

    /// At least one message, at most `limit`.
    #[pyo3(
        signature = (limit, block = Truth(true), timeout = None, *, kind = None),
        text_signature = "($self, limit, block=True, timeout=None, *, kind='any')"
    )]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        limit: &Bound<'py, PyAny>,
        block: Truth,
        timeout: Option<&Bound<'py, PyAny>>,
        kind: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, Lease>>> {
        let py = slf.py();
        let queue = slf.get();
        queue.check_fork(py);
        let limit = at_least_one(limit, "get_many(): limit")?;
        let kind = to_kind(kind, "get_many()")?;
        let timeout = wait_time(block, timeout, "get_many()")?;
        let consumer = wait::consumer();
        queue.note_getter(consumer);
        let mut found: Vec<(Grant, Py<PyAny>)> = Vec::with_capacity(limit.min(64));
        let mut wait = Wait::new(Want::Message(kind), wait::deadline(&queue.core, timeout));
        wait::until(py, queue, &mut wait, |wait, waker| {
            let view =
                |payload: &Py<PyAny>, grant: &Grant| found.push((*grant, payload.clone_ref(py)));
            queue.core.get_many_or_wait(kind, limit, consumer, view, wait, waker)
        })?
        .map_err(|ended| errors::get_ended(py, ended))?;
        let mut leases = Vec::with_capacity(found.len());
        for (grant, payload) in found {
            leases.push(Lease::make(slf, grant, payload)?);
        }
        said(queue, py, leases.iter().map(|lease| lease.get()))?;
        Ok(leases)
    }

    /// Settles all these leases; the first one that is lost is raised after the others are settled.
    fn ack_many(&self, py: Python<'_>, leases: &Bound<'_, PyAny>) -> PyResult<()> {
        // A copy: what is dropped by an ack may run code that changes the list.
        let leases: Vec<Bound<'_, Lease>> = match leases.cast::<PyList>() {
            Ok(list) => list.iter().map(|lease| Ok(lease.cast_into()?)).collect::<PyResult<_>>()?,
            Err(_) => {
                let each = leases.try_iter()?;
                each.map(|lease| Ok(lease?.cast_into()?)).collect::<PyResult<_>>()?
            }
        };
        let mut first = Ok(());
        for lease in &leases {
            let acked = lease.get().ack(py);
            if first.is_ok() {
                first = acked;
            }
        }
        first
    }
}

/// The payloads of a batch, read once.
fn payloads_of<'py>(items: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match items.cast_exact::<PyList>() {
        Ok(list) => Ok(list.iter().collect()),
        Err(_) => iterated(items, "put_many(): items", "an iterable of payloads")?.collect(),
    }
}
