//! Several messages in one call.

use std::ops::Range;
use std::task::Waker;

use interlock_core::key::KeyRef;
use interlock_core::queue::scheduler::Grant;
use interlock_core::queue::waiting::waiters::{Wait, Want};
use interlock_core::queue::{Ended, Look};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use pyo3::Borrowed;

use crate::queue::arguments::CoalesceArguments;
use crate::queue::batch::Batch;
use crate::queue::lease::Lease;
use crate::queue::lease_batch::{LeaseBatch, Message, Of};
use crate::queue::named_batch::{BatchArguments, NamedBatch};
use crate::queue::operate::at_least_one;
use crate::queue::wait;
use crate::queue::{to_kind, wait_time, Queue};
use crate::runtime::convert;
use crate::runtime::convert::{iterated, Truth};
use crate::runtime::errors;

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
    ///     limit, group, behind, coalesce: as for `put`, the same for all messages; or a callable of each payload.
    ///     debounce, longest: as for `put`.
    ///
    /// Raises:
    ///     Full: there was not enough room for the whole batch in time; nothing was put.
    ///     ValueError: the batch is larger than the bounds of the queue.
    ///     ShutDown: the queue is shut down.
    #[pyo3(
        signature = (
            items, block = Truth(true), timeout = None, *, keys = None, shared = None,
            priority = None, delay = None, dedup = None, quiet = None, each_keys = None,
            each_shared = None, limit = None, group = None, behind = None, coalesce = None,
            debounce = None, longest = None,
        ),
        text_signature = "($self, items, block=True, timeout=None, *, keys=None, shared=None, \
                          priority=0, delay=0, dedup=None, quiet=False, each_keys=None, \
                          each_shared=None, limit=None, group=None, behind=None, coalesce=None, \
                          debounce=None, longest=None)"
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
        limit: Option<&Bound<'py, PyAny>>,
        group: Option<&Bound<'py, PyAny>>,
        behind: Option<&Bound<'py, PyAny>>,
        coalesce: Option<&Bound<'py, PyAny>>,
        debounce: Option<&Bound<'py, PyAny>>,
        longest: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let call = "put_many()";
        let timeout = wait_time(block, timeout, call)?;
        let mut payloads = payloads_of(items)?;
        let count = payloads.len();
        let put = BatchArguments {
            keys,
            shared,
            each_keys,
            each_shared,
            priority,
            delay,
            dedup,
            quiet,
            limit,
            group,
            behind,
            coalesce: CoalesceArguments { coalesce, debounce, longest },
        };
        if let Some(first) = self.quick_put_many(py, &mut payloads, &put) {
            self.say(py)?;
            return ids(py, count, first);
        }
        let named = NamedBatch::new(self, &payloads, &put)?;
        // The code called above may have forked.
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
        let placed =
            placed.map_err(|ended| errors::put_ended(py, call, &self.name, ended, self.bounds))?;
        self.say(py)?;
        ids(py, placed.len(), placed.into_iter().map(|placed| placed.id))
    }

    /// Creates the batch that the asyncio API puts.
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
        limit: Option<&Bound<'py, PyAny>>,
        group: Option<&Bound<'py, PyAny>>,
        behind: Option<&Bound<'py, PyAny>>,
        coalesce: Option<&Bound<'py, PyAny>>,
        debounce: Option<&Bound<'py, PyAny>>,
        longest: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Batch> {
        let payloads = payloads_of(items)?;
        let put = BatchArguments {
            keys,
            shared,
            each_keys,
            each_shared,
            priority,
            delay,
            dedup,
            quiet,
            limit,
            group,
            behind,
            coalesce: CoalesceArguments { coalesce, debounce, longest },
        };
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
    ) -> PyResult<Bound<'py, LeaseBatch>> {
        let py = slf.py();
        let queue = slf.get();
        queue.check_fork(py);
        let limit = at_least_one(limit, "get_many(): limit")?;
        let kind = to_kind(kind, "get_many()")?;
        let timeout = wait_time(block, timeout, "get_many()")?;
        let consumer = wait::consumer();
        queue.note_getter(consumer);
        let mut found = Vec::with_capacity(limit.min(64));
        let mut wait = queue.wait_for_message(py, kind, timeout)?;
        wait::until(py, queue, &mut wait, |wait, waker| {
            let view = |payload: &Py<PyAny>, grant: &Grant| {
                found.push(Message { grant: *grant, payload: payload.clone_ref(py) })
            };
            queue.core.get_many_or_wait(kind, limit, consumer, view, wait, waker)
        })?
        .map_err(|ended| queue.get_ended(py, "get_many()", ended, &wait.holds))?;
        let batch = LeaseBatch::make(slf, found, Of::Threads)?;
        queue.say(py).inspect_err(|_| batch.get().release(py))?;
        Ok(batch)
    }

    /// Settles all these leases; the first one that is lost is raised after the others are settled.
    /// A batch as `get_many` gave it is settled in one step.
    fn ack_many(&self, py: Python<'_>, leases: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(batch) = leases.cast::<LeaseBatch>() {
            return batch.get().ack(py);
        }
        // A copy: what is dropped by an ack may run code that changes the list.
        let leases: Vec<Bound<'_, Lease>> = match leases.cast::<PyList>() {
            Ok(list) => {
                let each = list.iter().enumerate();
                each.map(|(place, lease)| lease_at(place, lease)).collect::<PyResult<_>>()?
            }
            Err(_) => {
                let each = iterated(leases, "ack_many(): leases", "an iterable of leases")?;
                each.enumerate()
                    .map(|(place, lease)| lease_at(place, lease?))
                    .collect::<PyResult<_>>()?
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

/// The ids of a batch, of which there are `count`, as a list.
fn ids(
    py: Python<'_>,
    count: usize,
    ids: impl Iterator<Item = u64>,
) -> PyResult<Bound<'_, PyList>> {
    // SAFETY: a new list, of which each place is filled once, before any code of Python runs. It takes the
    // reference to what it is filled with.
    unsafe {
        let list = Bound::from_owned_ptr_or_err(py, ffi::PyList_New(count as ffi::Py_ssize_t))?;
        for (at, id) in (0..count as ffi::Py_ssize_t).zip(ids) {
            ffi::PyList_SetItem(list.as_ptr(), at, convert::int(py, id)?.into_ptr());
        }
        Ok(list.cast_into_unchecked())
    }
}

/// One of the leases that are to be settled.
fn lease_at<'py>(place: usize, given: Bound<'py, PyAny>) -> PyResult<Bound<'py, Lease>> {
    given.cast_into::<Lease>().map_err(|error| {
        let argument = format!("ack_many(): leases[{place}]");
        errors::wrong_type(&argument, &error.into_inner(), "a lease of a queue in this process")
    })
}

impl Queue {
    /// The ids of a batch that names nothing, or keys of the usual types that lie ready in a list, and that
    /// finds room. `None`: it is not one, and the payloads are as they were.
    fn quick_put_many<'py>(
        &self,
        py: Python<'py>,
        payloads: &mut Vec<Bound<'py, PyAny>>,
        put: &BatchArguments<'_, 'py>,
    ) -> Option<Range<u64>> {
        if !self.plain || self.is_forked() || !put.names_only_keys() {
            return None;
        }
        let count = payloads.len();
        let mut keys: Vec<KeyRef<'_>> = Vec::with_capacity(count);
        let mut ends: Vec<usize> = Vec::with_capacity(count);
        match (put.keys, put.each_keys) {
            (None, None) => ends.resize(count, 0),
            (None, Some(each)) => {
                let each = Items::new(each).filter(|each| each.len() == count)?;
                for i in 0..count {
                    // Borrowed from a list that no other code can change until they are in the
                    // queue.
                    let value = each.get(i);
                    let known = match convert::quick_key(value) {
                        Some(key) => {
                            keys.push(key);
                            true
                        }
                        None => value.is_none() || convert::quick_each(value, |key| keys.push(key)),
                    };
                    if !known {
                        return None;
                    }
                    ends.push(keys.len());
                }
            }
            _ => return None,
        }
        let mut taken: Vec<Py<PyAny>> =
            std::mem::take(payloads).into_iter().map(Bound::unbind).collect();
        if let Ok(Ok(first)) = self.core.try_put_keyed(&keys, &ends, &mut taken) {
            return Some(first..first + count as u64);
        }
        *payloads = taken.into_iter().map(|payload| payload.into_bound(py)).collect();
        None
    }
}

/// A list or a tuple, as it lies.
enum Items<'a, 'py> {
    List(&'a Bound<'py, PyList>),
    Tuple(&'a Bound<'py, PyTuple>),
}

impl<'a, 'py> Items<'a, 'py> {
    fn new(value: &'a Bound<'py, PyAny>) -> Option<Self> {
        let list = value.cast_exact().map(Items::List);
        list.or_else(|_| value.cast_exact().map(Items::Tuple)).ok()
    }

    fn len(&self) -> usize {
        match self {
            Items::List(list) => list.len(),
            Items::Tuple(tuple) => tuple.len(),
        }
    }

    /// One of them, as long as nothing of Python runs that could change the list. `i`: less than `len`.
    #[inline(always)]
    fn get(&self, i: usize) -> Borrowed<'a, 'py, PyAny> {
        let at = i as ffi::Py_ssize_t;
        // SAFETY: a list or tuple of this length, which is held.
        unsafe {
            match self {
                Items::List(list) => {
                    Borrowed::from_ptr(list.py(), ffi::PyList_GetItem(list.as_ptr(), at))
                }
                Items::Tuple(tuple) => {
                    Borrowed::from_ptr(tuple.py(), ffi::PyTuple_GetItem(tuple.as_ptr(), at))
                }
            }
        }
    }
}

/// The payloads of a batch, read once.
fn payloads_of<'py>(items: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match Items::new(items) {
        Some(items) => Ok((0..items.len()).map(|i| items.get(i).to_owned()).collect()),
        None => iterated(items, "put_many(): items", "an iterable of payloads")?.collect(),
    }
}
