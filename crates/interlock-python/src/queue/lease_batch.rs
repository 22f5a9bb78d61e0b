//! Leases that one call took together: a sequence of them, each made when it is asked for. Most batches
//! are handled by their payloads and settled whole, and then no lease is ever made.

use interlock_core::key::Key;
use interlock_core::queue::calls::lease::LeaseLost;
use interlock_core::queue::scheduler::Grant;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice};

use crate::asyncio::aio::AsyncLease;
use crate::queue::lease::{warn_abandoned, Lease};
use crate::queue::Queue;
use crate::runtime::gil::{told, GilCell};
use crate::runtime::nesting;
use crate::runtime::nesting::Late;

/// The answer of `get_many`: a sequence of the leases of its messages.
///
/// `payloads` are their payloads; `ack_many(batch)` settles all of them in one step. A lease is made when
/// it is first asked for, by index, slice or iteration, and is then the same each time. Dropped without a
/// word, each message that is not settled counts as a failed attempt, and the batch warns.
#[pyclass(frozen, subclass, generic, module = "interlock")]
pub struct LeaseBatch {
    queue: Py<Queue>,
    messages: Vec<Message>,
    of: Of,
    state: GilCell<State>,
}

/// The answer of `AsyncQueue.get_many`: as `LeaseBatch`, of leases whose settling is awaited.
#[pyclass(frozen, extends = LeaseBatch, generic, module = "interlock")]
pub struct AsyncLeaseBatch;

/// A message as it was leased.
pub struct Message {
    pub grant: Grant,
    pub payload: Py<PyAny>,
}

/// The callers to whom the leases belong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Threads,
    Coroutines,
}

#[derive(Default)]
struct State {
    /// The leases that were asked for, by their places; empty: none was.
    made: Vec<Option<Py<Lease>>>,
    /// The messages of which no lease was made are settled.
    ended: bool,
    /// The keys that those had, and where each one's end.
    keys: Vec<(Key, bool)>,
    ends: Vec<usize>,
    /// Places of those that were lost by then.
    lost: Vec<usize>,
}

impl State {
    fn made(&self, i: usize) -> Option<&Py<Lease>> {
        self.made.get(i).and_then(Option::as_ref)
    }

    /// Notes the outcome for the message at this place; in the order of their places. The last ones of
    /// `keys` are its, as many as the outcome says.
    #[inline(always)]
    fn note(&mut self, py: Python<'_>, i: usize, settled: Result<usize, LeaseLost>) {
        let before = self.keys.len() - settled.unwrap_or(0);
        if let Some(lease) = self.made(i) {
            lease.get().note_settled(py, settled.map(|_| &self.keys[before..]));
            return self.keys.truncate(before);
        }
        if settled.is_err() {
            self.lost.push(i);
        }
        // Not for each message, for it is a loop that is seldom entered.
        if self.ends.len() < i {
            self.ends.resize(i, before);
        }
        self.ends.push(self.keys.len());
    }

    /// The keys of a message that was settled; `None`: it was lost.
    fn keys_of(&self, i: usize) -> Option<Vec<(Key, bool)>> {
        // They were noted in the order of their places.
        if self.lost.binary_search(&i).is_ok() {
            return None;
        }
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(self.ends.get(i).map_or_else(Vec::new, |&end| self.keys[start..end].to_vec()))
    }
}

impl LeaseBatch {
    pub fn make<'py>(
        queue: &Bound<'py, Queue>,
        messages: Vec<Message>,
        of: Of,
    ) -> PyResult<Bound<'py, Self>> {
        let py = queue.py();
        let state = GilCell::new(State::default());
        let batch = LeaseBatch { queue: queue.clone().unbind(), messages, of, state };
        match of {
            Of::Threads => Bound::new(py, batch),
            Of::Coroutines => {
                let batch = PyClassInitializer::from(batch).add_subclass(AsyncLeaseBatch);
                Ok(Bound::new(py, batch)?.into_super())
            }
        }
    }

    /// The lease of a message, made if it is asked for the first time.
    fn lease<'py>(&self, py: Python<'py>, i: usize) -> PyResult<Bound<'py, Lease>> {
        let known = |state: &State| state.made(i).map(|lease| lease.clone_ref(py));
        if let Some(lease) = self.state.with(py, known) {
            return Ok(lease.into_bound(py));
        }
        let Message { grant, payload } = &self.messages[i];
        let queue = self.queue.bind(py);
        let mut lease = Lease::new(queue, *grant, payload.clone_ref(py));
        let ended = |state: &State| state.ended.then(|| state.keys_of(i));
        if let Some(keys) = self.state.with(py, ended) {
            lease = lease.ended(py, keys.as_deref());
        } else {
            // Until the lease is kept below, the message is the batch's, whatever comes of making it.
            lease.handed_over();
        }
        let made = match self.of {
            Of::Threads => lease.into_python(py)?,
            Of::Coroutines => AsyncLease::from_lease(py, lease)?.into_super(),
        };
        // To make it, code may have run that asked for the same one, or settled all.
        if let Some(lease) = self.state.with(py, known) {
            return Ok(lease.into_bound(py));
        }
        self.state.with_mut(py, |state| {
            if !state.ended {
                made.get().take_up();
            }
            if state.made.is_empty() {
                state.made.resize_with(self.messages.len(), || None);
            }
            state.made[i] = Some(made.clone().unbind());
        });
        Ok(made)
    }

    /// The places of the messages of which no lease was made, if those were not settled before. From here
    /// on they are.
    fn end(&self, py: Python<'_>) -> Vec<usize> {
        self.state.with_mut(py, |state| {
            if std::mem::replace(&mut state.ended, true) {
                return Vec::new();
            }
            (0..self.messages.len()).filter(|&i| state.made(i).is_none()).collect()
        })
    }

    /// Settles all of it in one step; raises for the first that was settled or lost before.
    pub fn ack(&self, py: Python<'_>) -> PyResult<()> {
        let queue = self.queue.get();
        queue.check_fork(py);
        let (open, mut refused) = self.state.with_mut(py, |state| {
            let ended = std::mem::replace(&mut state.ended, true);
            let all = 0..self.messages.len();
            state.keys.reserve(all.len());
            state.ends.reserve(all.len());
            if !ended && state.made.is_empty() {
                return (all.collect(), None);
            }
            let stands = |i: &usize| match state.made(*i) {
                Some(lease) => !lease.get().is_settled(),
                None => !ended,
            };
            let open: Vec<usize> = all.clone().filter(stands).collect();
            let refused = all.zip(&open).find(|(i, at)| i != *at).map(|(i, _)| i);
            let short = open.len() < self.messages.len();
            let refused = refused.or(short.then_some(open.len()));
            (open, refused)
        });
        let mut payloads = Vec::with_capacity(open.len());
        let handles = open.iter().map(|&i| self.messages[i].grant.handle);
        let show = |key: &Key, shared: bool| {
            self.state.with_mut(py, |state| state.keys.push((key.clone(), shared)));
        };
        let mut places = open.iter().copied();
        let done = |settled: Result<usize, LeaseLost>| {
            let Some(i) = places.next() else { return };
            if settled.is_err() {
                refused = Some(refused.map_or(i, |first| first.min(i)));
            }
            self.state.with_mut(py, |state| state.note(py, i, settled));
        };
        queue.core.ack_many(handles, show, done, &mut payloads);
        payloads.into_iter().for_each(|payload| payload.drop_ref(py));
        queue.say(py)?;
        refused.map_or(Ok(()), |i| Err(self.lease(py, i)?.get().refused(py)))
    }

    /// Returns the messages whose leases are not needed.
    pub fn release(&self, py: Python<'_>) {
        for i in self.end(py) {
            let handle = self.messages[i].grant.handle;
            let _ = self.queue.get().core.call(|scheduler, now| scheduler.release(now, handle));
        }
    }

    fn place(&self, index: isize) -> Option<usize> {
        let length = self.messages.len();
        let place =
            if index < 0 { length.checked_sub(index.unsigned_abs())? } else { index as usize };
        (place < length).then_some(place)
    }

    fn leases<'py>(
        &self,
        py: Python<'py>,
        places: impl Iterator<Item = usize>,
    ) -> PyResult<Bound<'py, PyList>> {
        let leases: Vec<_> = places.map(|i| self.lease(py, i)).collect::<PyResult<_>>()?;
        PyList::new(py, leases)
    }
}

#[pymethods]
impl LeaseBatch {
    /// The payloads of its messages, in their order; a new list each time.
    #[getter]
    fn payloads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.messages.iter().map(|message| message.payload.bind(py)))
    }

    fn __len__(&self) -> usize {
        self.messages.len()
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if let Ok(slice) = index.cast::<PySlice>() {
            let slice = slice.indices(this.messages.len() as isize)?;
            let at = |n: usize| (slice.start + slice.step * n as isize) as usize;
            return Ok(this.leases(py, (0..slice.slicelength).map(at))?.into_any());
        }
        // As of a list: what is too large for a place is out of range, too.
        let index = index.extract::<isize>().map_err(|error| {
            let large = error.is_instance_of::<PyOverflowError>(py);
            if large {
                PyIndexError::new_err("index out of range")
            } else {
                error
            }
        })?;
        let place = this.place(index);
        let place = place.ok_or_else(|| PyIndexError::new_err("index out of range"))?;
        Ok(this.lease(py, place)?.into_any())
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        // By index, until the end. SAFETY: an object, which has items by number.
        unsafe { Bound::from_owned_ptr_or_err(slf.py(), ffi::PySeqIter_New(slf.as_ptr())) }
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let leases = slf.get().leases(slf.py(), (0..slf.get().messages.len()).rev())?;
        Ok(leases.try_iter()?.into_any())
    }

    /// A list of these leases and others.
    fn __add__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = slf.get().leases(slf.py(), 0..slf.get().messages.len())?;
        list.call_method1("extend", (other,))?;
        Ok(list)
    }

    fn __radd__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let list = other.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let list = PyList::new(slf.py(), list)?;
        list.call_method1("extend", (slf,))?;
        Ok(list)
    }

    /// The place of a lease. Raises ValueError if it is not of this batch.
    #[pyo3(signature = (lease, start = 0, stop = isize::MAX))]
    fn index<'py>(
        slf: &Bound<'py, Self>,
        lease: &Bound<'py, PyAny>,
        start: isize,
        stop: isize,
    ) -> PyResult<usize> {
        let (py, this) = (slf.py(), slf.get());
        let range = PySlice::new(py, start, stop, 1).indices(this.messages.len() as isize)?;
        let made = |i: &usize| {
            let same = |state: &State| state.made(*i).is_some_and(|made| made.is(lease));
            this.state.with(py, same)
        };
        let found = (range.start as usize..range.stop.max(range.start) as usize).find(made);
        found.ok_or_else(|| PyValueError::new_err("the lease is not of this batch"))
    }

    /// 1 for a lease of this batch, else 0.
    fn count<'py>(slf: &Bound<'py, Self>, lease: &Bound<'py, PyAny>) -> usize {
        usize::from(LeaseBatch::__contains__(slf, lease))
    }

    fn __contains__<'py>(slf: &Bound<'py, Self>, lease: &Bound<'py, PyAny>) -> bool {
        LeaseBatch::index(slf, lease, 0, isize::MAX).is_ok()
    }

    fn __repr__(&self) -> String {
        let (count, name) = (self.messages.len(), self.queue.get().queue_name());
        format!("<LeaseBatch of {count} messages in queue {name:?}>")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.queue)?;
        self.messages.iter().try_for_each(|message| visit.call(&message.payload))?;
        // SAFETY: the collector runs with the GIL held.
        let py = unsafe { Python::assume_attached() };
        self.state.with(py, |state| state.made.iter().try_for_each(|lease| visit.call(lease)))
    }
}

impl Drop for LeaseBatch {
    /// Dropped unsettled: counts as a nack of each, never as an ack (clause 16). Leases already
    /// created report it themselves.
    fn drop(&mut self) {
        told(|py| {
            let open = self.end(py);
            if open.is_empty() {
                return;
            }
            let queue = self.queue.get();
            queue.check_fork(py);
            let nack = |handle| queue.core.nack(handle, None, "abandoned").is_ok();
            let grants = open.iter().map(|&i| self.messages[i].grant);
            let ids: Vec<u64> =
                grants.filter(|grant| nack(grant.handle)).map(|grant| grant.id).collect();
            if let Some((first, others)) = ids.split_first() {
                warn_abandoned(py, queue, *first, others.len());
            }
        });
        told(|py| {
            let messages = std::mem::take(&mut self.messages);
            match nesting::is_deep(py) {
                true => nesting::later(py, Late::Messages(messages)),
                false => nesting::nested(py, || {
                    messages.into_iter().for_each(|message| message.payload.drop_ref(py));
                }),
            }
        });
    }
}
