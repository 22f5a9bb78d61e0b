//! Several messages in one call.

use std::task::Waker;

use interlock_core::key::KeyRef;
use interlock_core::queue::scheduler::{Grant, Put};
use interlock_core::queue::waiters::{Wait, Want};
use interlock_core::queue::{Ended, Look};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::aio::said;
use crate::arguments::{Named, PutArguments};
use crate::convert;
use crate::errors;
use crate::hot;
use crate::lease::Lease;
use crate::queue::{to_kind, wait_time, Queue};
use crate::queue_operate::at_least_one;
use crate::wait;

/// What the messages of a batch are put with, as it came: a value for all, or a callable of each payload.
#[derive(FromPyObject)]
pub struct BatchArguments<'py> {
    #[pyo3(item)]
    keys: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    shared: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    priority: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    delay: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    dedup: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    barrier: bool,
    #[pyo3(item)]
    quiet: bool,
}

/// An argument once its callable was called.
enum Values<'py> {
    Same(Option<Bound<'py, PyAny>>),
    Each(Vec<Option<Bound<'py, PyAny>>>),
}

/// What the messages of a batch are put with, checked; it holds what their keys are borrowed from.
pub struct NamedBatch<'py> {
    count: usize,
    named: NamedEach<'py>,
}

enum NamedEach<'py> {
    /// Nothing but keys, of the usual types.
    Keys(Values<'py>),
    /// One for each message, or one for all.
    Full(Vec<Named<'py>>),
}

impl<'py> Values<'py> {
    fn new(value: Option<&Bound<'py, PyAny>>, payloads: &[Bound<'py, PyAny>]) -> PyResult<Self> {
        let Some(callable) = value.filter(|value| value.is_callable()) else {
            return Ok(Values::Same(value.cloned()));
        };
        let call = |payload: &Bound<'py, PyAny>| {
            // The call of the stable ABI that makes no tuple.
            // SAFETY: objects, and a null at their end.
            let value = unsafe {
                let end = std::ptr::null_mut::<ffi::PyObject>();
                let value =
                    ffi::PyObject_CallFunctionObjArgs(callable.as_ptr(), payload.as_ptr(), end);
                Bound::from_owned_ptr_or_err(payload.py(), value)?
            };
            Ok((!value.is_none()).then_some(value))
        };
        payloads.iter().map(call).collect::<PyResult<_>>().map(Values::Each)
    }

    fn at(&self, i: usize) -> Option<&Bound<'py, PyAny>> {
        match self {
            Values::Same(value) => value.as_ref(),
            Values::Each(values) => values[i].as_ref(),
        }
    }

    fn are_same(&self) -> bool {
        matches!(self, Values::Same(_))
    }

    /// Whether `convert::quick_each` takes them all.
    fn are_usual_keys(&self) -> bool {
        let usual = |value: &Option<Bound<'py, PyAny>>| match value {
            Some(value) => convert::quick_each(value, |_| ()),
            None => true,
        };
        match self {
            Values::Same(value) => usual(value),
            Values::Each(values) => values.iter().all(usual),
        }
    }
}

impl<'py> BatchArguments<'py> {
    fn names_only_keys(&self) -> bool {
        let others = [&self.shared, &self.priority, &self.delay, &self.dedup];
        !self.barrier && !self.quiet && others.into_iter().flatten().all(hot::is_default)
    }

    pub fn named(
        &self,
        queue: &Queue,
        payloads: &[Bound<'py, PyAny>],
    ) -> PyResult<NamedBatch<'py>> {
        let count = payloads.len();
        let keys = Values::new(self.keys.as_ref(), payloads)?;
        if queue.plain && self.names_only_keys() && keys.are_usual_keys() {
            return Ok(NamedBatch { count, named: NamedEach::Keys(keys) });
        }
        let shared = Values::new(self.shared.as_ref(), payloads)?;
        let dedup = Values::new(self.dedup.as_ref(), payloads)?;
        let one = |(i, payload): (usize, &Bound<'py, PyAny>)| {
            let put = PutArguments {
                keys: keys.at(i),
                shared: shared.at(i),
                priority: self.priority.as_ref(),
                delay: self.delay.as_ref(),
                dedup: dedup.at(i),
                barrier: self.barrier,
                quiet: self.quiet,
            };
            // The name of the item is made for an error only.
            Named::new(queue, "put_many()", payload, &put)
                .or_else(|_| Named::new(queue, &format!("put_many(): items[{i}]"), payload, &put))
        };
        let same = queue.plain && keys.are_same() && shared.are_same() && dedup.are_same();
        let each = payloads.iter().enumerate().take(if same { 1 } else { count });
        let named = each.map(one).collect::<PyResult<_>>()?;
        Ok(NamedBatch { count, named: NamedEach::Full(named) })
    }
}

impl NamedBatch<'_> {
    /// Gives `call` the puts.
    pub fn with_puts<R>(&self, call: impl FnOnce(&[Put<'_>]) -> R) -> R {
        match &self.named {
            NamedEach::Keys(Values::Each(values)) => {
                let mut refs: Vec<KeyRef<'_>> = Vec::with_capacity(self.count);
                let mut ends: Vec<usize> = Vec::with_capacity(self.count);
                for value in values {
                    if let Some(value) = value {
                        convert::quick_each(value, |key| refs.push(key));
                    }
                    ends.push(refs.len());
                }
                let mut start = 0;
                let put = |end: &usize| {
                    let keys = &refs[std::mem::replace(&mut start, *end)..*end];
                    Put { keys, ..Put::default() }
                };
                call(&ends.iter().map(put).collect::<Vec<_>>())
            }
            NamedEach::Keys(Values::Same(value)) => {
                let keys = value.as_ref().and_then(convert::quick).unwrap_or_default();
                call(&vec![Put { keys: &keys, ..Put::default() }; self.count])
            }
            NamedEach::Full(named) => {
                let refs: Vec<_> = named.iter().map(Named::refs).collect();
                match (&named[..], &refs[..]) {
                    ([named], [refs]) => call(&vec![named.put(refs); self.count]),
                    _ => {
                        let puts = named.iter().zip(&refs).map(|(named, refs)| named.put(refs));
                        call(&puts.collect::<Vec<_>>())
                    }
                }
            }
        }
    }
}

#[pymethods]
impl Queue {
    /// Waits for room for the whole batch; `named`: a `BatchArguments`.
    #[pyo3(signature = (payloads, named, block, timeout))]
    fn _put_many<'py>(
        &self,
        py: Python<'py>,
        payloads: Vec<Bound<'py, PyAny>>,
        named: BatchArguments<'py>,
        block: bool,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<u64>> {
        self.check_fork(py);
        let call = "put_many()";
        let timeout = wait_time(block, timeout, call)?;
        let named = named.named(self, &payloads)?;
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
                    let placed = wait::until(py, &self.core, &mut wait, |wait, waker| {
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

    /// At least one message, at most `limit`.
    #[pyo3(
        signature = (limit, block = true, timeout = None, *, kind = None),
        text_signature = "($self, limit, block=True, timeout=None, *, kind='any')"
    )]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        limit: &Bound<'py, PyAny>,
        block: bool,
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
        wait::until(py, &queue.core, &mut wait, |wait, waker| {
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
