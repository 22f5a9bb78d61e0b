//! The queue as Python holds it: put and get.

pub(super) mod arguments;
pub(super) mod batch;
mod deadlock;
mod events;
pub(super) mod explanation;
pub(super) mod judgement;
pub(super) mod lease;
pub(super) mod lease_batch;
mod lease_keys;
mod many;
mod messages;
mod named;
mod named_batch;
pub(super) mod operate;
pub(super) mod wait;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use interlock_core::clock::Clock;
use interlock_core::queue::parts::watch::{Limits, Watch};
use interlock_core::queue::scheduler::{Grant, Handle, Placed};
use interlock_core::queue::types::limits::{Declared, Value};
use interlock_core::queue::types::options;
use interlock_core::queue::types::{Kind, Options, Retry, Then, Time};
use interlock_core::queue::waiting::waiters::{Wait, Want};
use interlock_core::queue::{self as core, Ended};
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::asyncio::aio::said;
use crate::asyncio::call::Call;
use crate::executor::blocked;
use crate::executor::work::Crew;
use crate::queue::arguments::{CoalesceArguments, Named, PutArguments};
use crate::queue::lease::Lease;
use crate::runtime::clock::ManualClock;
use crate::runtime::convert::{micros, Truth};
use crate::runtime::errors;
use crate::runtime::fork;
use crate::runtime::gil::Core;

/// The base class of `interlock.KeyedQueue`. See there.
#[pyclass(subclass, frozen, weakref, generic, module = "interlock._core")]
pub struct Queue {
    pub core: Core,
    pub keys_of: Option<Py<PyAny>>,
    pub shared_of: Option<Py<PyAny>>,
    pub sizeof: Option<Py<PyAny>>,
    /// Limits of messages and bytes; 0: no limit.
    pub bounds: (usize, u64),
    name: String,
    /// Number among all queues that this process made, forked ones too.
    pub number: u64,
    /// No callables, no bound in bytes: a put that names only keys needs no more than those.
    pub plain: bool,
    pub crew: Crew,
    pub keeps_dead: AtomicBool,
    forks: AtomicU32,
    /// The thread that got last, and how many different ones there were (2: two or more).
    getter: AtomicU64,
    getters: AtomicU32,
}

static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// Up to 2^53, so that a number survives every language a queue is read from.
const LARGEST: u64 = 1 << 53;

#[pymethods]
impl Queue {
    #[new]
    #[pyo3(signature = (
        maxsize, maxbytes, sizeof, keys, shared, retry, lease, clock, numbers, name, slow_wait,
        warn_depth, warn_lane_depth,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        maxsize: usize,
        maxbytes: u64,
        sizeof: Option<Py<PyAny>>,
        keys: Option<Py<PyAny>>,
        shared: Option<Py<PyAny>>,
        retry: (Option<u32>, u64, f64, u64, bool, bool),
        lease: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, ManualClock>>,
        numbers: &Bound<'_, PyDict>,
        name: String,
        slow_wait: &Bound<'_, PyAny>,
        warn_depth: u64,
        warn_lane_depth: u32,
    ) -> PyResult<Self> {
        let (attempts, first, factor, longest, jitter, dead) = retry;
        let lease = lease.map(|lease| micros(lease, "KeyedQueue(): lease")).transpose()?;
        if lease == Some(0) {
            return Err(PyValueError::new_err(
                "KeyedQueue(): lease is 0; allowed: more than 0 seconds, or None for no deadline",
            ));
        }
        let mut made = Options {
            max_messages: maxsize,
            max_bytes: maxbytes,
            lease,
            retry: Retry {
                attempts,
                first,
                factor,
                longest,
                jitter,
                then: if dead { Then::Dead } else { Then::Hold },
            },
            ..Options::default()
        };
        for one in &options::NUMBERS {
            if let Some(given) = numbers.get_item(one.argument)? {
                let value = if given.is_none() {
                    0
                } else if one.micros {
                    micros(&given, &format!("KeyedQueue(): {}", one.argument))?.min(LARGEST)
                } else {
                    given.extract()?
                };
                (one.set)(&mut made, value);
            }
        }
        if let Some(given) = numbers.get_item("limits")? {
            made.limits = read_declared(&given, "KeyedQueue(): limits")?;
        }
        if let Some(given) = numbers.get_item("weights")? {
            made.weights = read_declared(&given, "KeyedQueue(): weights")?;
        }
        let given = numbers.get_item("behind")?;
        let called = || "KeyedQueue(): behind".to_owned();
        made.behind = arguments::behind(given.as_ref(), called)?.unwrap_or_default();
        let slow_wait = micros(slow_wait, "KeyedQueue(): slow_wait")?.min(LARGEST);
        let watch =
            Watch::new(Limits { depth: warn_depth, lane_depth: warn_lane_depth, slow_wait });
        let clock = clock.map_or(Clock::System, |clock| clock.get().clock.clone());
        let plain = keys.is_none() && shared.is_none() && maxbytes == 0;
        Ok(Queue {
            plain,
            crew: Crew::default(),
            keeps_dead: AtomicBool::new(true),
            core: Core::with_lock(made, watch, clock),
            keys_of: keys,
            shared_of: shared,
            sizeof,
            bounds: (maxsize, maxbytes),
            name,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            forks: AtomicU32::new(fork::generation()),
            getter: AtomicU64::new(0),
            getters: AtomicU32::new(0),
        })
    }

    /// Other concurrency limits, from now on.
    fn _set_limits(&self, py: Python<'_>, limits: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check_fork(py);
        let limits = read_declared(limits, "configure(): limits")?;
        self.core.call(|scheduler, now| scheduler.set_limits(now, limits));
        Ok(())
    }

    /// Other weights of groups, from now on.
    fn _set_weights(&self, py: Python<'_>, weights: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check_fork(py);
        let weights = read_declared(weights, "configure(): weights")?;
        self.core.call(|scheduler, now| scheduler.set_weights(now, weights));
        Ok(())
    }

    /// Another value for what happens to messages behind a failure, from now on.
    fn _set_behind(&self, py: Python<'_>, behind: &Bound<'_, PyAny>) -> PyResult<()> {
        self.check_fork(py);
        let behind = arguments::behind(Some(behind), || "configure(): behind".to_owned())?;
        let behind = behind.unwrap_or_default();
        self.core.call(|scheduler, now| scheduler.set_behind(now, behind));
        Ok(())
    }

    /// A manual clock tells the queue when it is moved.
    fn _follow(slf: &Bound<'_, Self>, clock: &Bound<'_, ManualClock>) -> PyResult<()> {
        clock.get().follow(slf.as_any())
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn maxsize(&self) -> usize {
        self.bounds.0
    }

    #[getter]
    fn maxbytes(&self) -> u64 {
        self.bounds.1
    }

    #[pyo3(
        signature = (
            payload, block = Truth(true), timeout = None, *, keys = None, shared = None,
            priority = None, delay = None, dedup = None, barrier = None, quiet = None,
            limit = None, group = None, behind = None, coalesce = None, debounce = None,
            longest = None,
        ),
        text_signature = "($self, payload, block=True, timeout=None, *, keys=None, shared=None, \
                          priority=None, delay=None, dedup=None, barrier=None, quiet=None, \
                          limit=None, group=None, behind=None, coalesce=None, debounce=None, \
                          longest=None)"
    )]
    #[allow(clippy::too_many_arguments)]
    pub fn _put<'py>(
        &self,
        py: Python<'py>,
        payload: &Bound<'py, PyAny>,
        block: Truth,
        timeout: Option<&Bound<'py, PyAny>>,
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
    ) -> PyResult<u64> {
        let coalesce = CoalesceArguments { coalesce, debounce, longest };
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
            coalesce,
        };
        let named = Named::new(self, "put()", payload, &put)?;
        let timeout = wait_time(block, timeout, "put()")?;
        self.put_named(py, payload.clone().unbind(), "put()", &named, timeout, |_| ())
            .map(|put| put.id)
    }

    /// The id, whether the dedup string was known, and whether a payload was replaced.
    #[pyo3(signature = (
        payload, block, timeout, keys, shared, priority, delay, dedup, barrier, quiet, limit, group, behind,
        coalesce, debounce, longest,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn _put_known<'py>(
        &self,
        py: Python<'py>,
        payload: &Bound<'py, PyAny>,
        block: Truth,
        timeout: Option<&Bound<'py, PyAny>>,
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
    ) -> PyResult<(u64, bool, bool)> {
        let coalesce = CoalesceArguments { coalesce, debounce, longest };
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
            coalesce,
        };
        let named = Named::new(self, "put_known()", payload, &put)?;
        let timeout = wait_time(block, timeout, "put_known()")?;
        let payload = payload.clone().unbind();
        let put = self.put_named(py, payload, "put_known()", &named, timeout, |_| ())?;
        Ok((put.id, put.known, put.replaced))
    }

    #[pyo3(
        signature = (block = Truth(true), timeout = None, *, kind = None),
        text_signature = "($self, block=True, timeout=None, *, kind=None)"
    )]
    fn _get<'py>(
        slf: &Bound<'py, Self>,
        block: Truth,
        timeout: Option<&Bound<'py, PyAny>>,
        kind: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Lease>> {
        let py = slf.py();
        let queue = slf.get();
        queue.check_fork(py);
        let kind = to_kind(kind, "get()")?;
        let timeout = wait_time(block, timeout, "get()")?;
        let consumer = wait::consumer();
        queue.note_getter(consumer);
        let view = |payload: &Py<PyAny>, _: &Grant| payload.clone_ref(py);
        let found = queue.core.try_get(kind, consumer, view);
        let found = match found.map_err(|ended| errors::get_ended(py, ended))? {
            Some(found) => found,
            None => {
                let mut wait = queue.wait_for_message(py, kind, timeout)?;
                wait::until(py, queue, &mut wait, |wait, waker| {
                    queue.core.get_or_wait(kind, consumer, view, wait, waker)
                })?
                .map_err(|ended| queue.get_ended(py, "get()", ended, &wait.holds))?
            }
        };
        let lease = Lease::make(slf, found.0, found.1)?;
        said(queue, py, std::iter::once(lease.get()))?;
        Ok(lease)
    }

    /// Messages that are not leased.
    fn qsize(&self, py: Python<'_>) -> u64 {
        self.check_fork(py);
        self.core.call(|scheduler, now| {
            scheduler.tick(now);
            scheduler.queued()
        })
    }

    /// No message is queued that is not leased.
    fn empty(&self, py: Python<'_>) -> bool {
        self.qsize(py) == 0
    }

    /// A put would have to wait.
    fn full(&self, py: Python<'_>) -> bool {
        self.check_fork(py);
        self.core.call(|scheduler, now| {
            scheduler.tick(now);
            scheduler.room(1, 0).is_err()
        })
    }

    /// Waits until nothing is unsettled. False: the time was up.
    #[pyo3(signature = (timeout = None))]
    fn _join(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.check_fork(py);
        let timeout = wait_time(Truth(true), timeout, "join()")?;
        if timeout.is_none() {
            self.check_join(py)?;
        }
        let mut wait = Wait::new(Want::Drained, wait::deadline(&self.core, timeout));
        let drained =
            wait::until(py, self, &mut wait, |wait, waker| self.core.drained_or_wait(wait, waker))?;
        Ok(drained.is_ok())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for callable in [&self.keys_of, &self.shared_of, &self.sizeof] {
            visit.call(callable)?;
        }
        // The lock is free: it is held under the GIL only, and never while Python code runs.
        let mut result = Ok(());
        self.core.for_each_payload(|payload| {
            if result.is_ok() {
                result = visit.call(payload);
            }
        });
        // A parked coroutine is held by the queue alone.
        self.core.for_each_waker(|waker| {
            if let (Ok(()), Some(call)) = (&result, Call::of(waker)) {
                result = visit.call(&call.wait);
            }
        });
        result
    }

    fn __clear__(&self) {
        // The old queue is dropped here, outside the lock.
        let _old = self.core.start_afresh();
    }
}

impl Queue {
    pub fn put_named(
        &self,
        py: Python<'_>,
        payload: Py<PyAny>,
        call: &str,
        named: &Named<'_>,
        timeout: Option<u64>,
        placed_as: impl FnOnce(u64),
    ) -> PyResult<Placed> {
        self.check_fork(py);
        let refs = named.refs();
        let put = named.put(&refs);
        let mut payload = Some(payload);
        let placed = match self.core.try_put(&put, &mut payload) {
            Ok(Ok(placed)) => Ok(placed),
            Ok(Err(core::scheduler::NoRoom::TooLarge)) => Err(Ended::TooLarge),
            Ok(Err(core::scheduler::NoRoom::Differs(differs))) => Err(Ended::Differs(differs)),
            Ok(Err(core::scheduler::NoRoom::Stuck)) => Err(Ended::Parked),
            Ok(Err(core::scheduler::NoRoom::Full)) if timeout == Some(0) => Err(Ended::TimedOut),
            Ok(Err(core::scheduler::NoRoom::Full)) => {
                let (mut blocked, mut stuck) = (None, None);
                let deadline = wait::deadline(&self.core, timeout);
                let mut wait = Wait::new(Want::Room(1, named.size()), deadline);
                let placed = wait::until(py, self, &mut wait, |wait, waker| {
                    let look = self.core.put_or_wait(&put, &mut payload, wait, waker);
                    self.unless_stuck(look, wait, &mut stuck, || {
                        if timeout.is_none() && blocked.is_none() {
                            self.check_room(py, "put()", wait::consumer())?;
                            blocked = Some(blocked::for_room(py, self, named.size())?);
                        }
                        Ok(())
                    })
                })?;
                stuck.map_or(Ok(placed), Err)?
            }
            Err(ended) => Err(ended),
        };
        let placed =
            placed.map_err(|ended| errors::put_ended(py, call, &self.name, ended, self.bounds))?;
        // Before anything else may run: a consumer may already have it.
        placed_as(placed.id);
        self.say(py)?;
        Ok(placed)
    }

    /// The wait of a get that found nothing.
    pub fn wait_for_message(
        &self,
        py: Python<'_>,
        kind: Kind,
        timeout: Option<u64>,
    ) -> PyResult<Wait> {
        let mut wait = Wait::new(Want::Message(kind), wait::deadline(&self.core, timeout));
        if timeout.is_none() {
            wait.holds = self.held_here(py)?;
        }
        Ok(wait)
    }

    /// The only one that ever took from this queue, if it was only one.
    pub fn only_getter(&self) -> Option<u64> {
        // Relaxed: a hint that only the getter itself can have set to its own identity.
        let one = self.getters.load(Ordering::Relaxed) == 1;
        one.then(|| self.getter.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn note_getter(&self, thread: u64) {
        // Relaxed: every thread writes its own identity; a race only loses a step towards "several".
        if self.getter.load(Ordering::Relaxed) != thread {
            self.getter.store(thread, Ordering::Relaxed);
            let seen = self.getters.load(Ordering::Relaxed);
            self.getters.store((seen + 1).min(2), Ordering::Relaxed);
        }
    }

    /// Tasks share their thread: a task that waits for room does not keep the others from taking.
    pub fn note_async_getter(&self) {
        // Relaxed: see `note_getter`.
        self.getters.store(2, Ordering::Relaxed);
    }

    pub fn queue_name(&self) -> &str {
        &self.name
    }

    /// Closes a limit name to all messages for a time, µs, if the lease was not lost.
    pub fn close_limit(&self, handle: Handle, limit: &str, delay: u64) {
        self.core.call(|scheduler, now| {
            scheduler.tick(now);
            if scheduler.holds(handle) {
                scheduler.close_limit(now, limit.as_bytes(), delay);
            }
        });
    }

    /// In the child of a fork the queue starts empty: the parent handles what was in it.
    #[inline]
    pub fn check_fork(&self, py: Python<'_>) {
        if self.is_forked() {
            self.start_afresh(py);
        }
    }

    #[inline]
    pub fn is_forked(&self) -> bool {
        // Relaxed: changes only in a child with one thread.
        self.forks.load(Ordering::Relaxed) != fork::generation()
    }

    #[cold]
    fn start_afresh(&self, _py: Python<'_>) {
        self.forks.store(fork::generation(), Ordering::Relaxed);
        self.getters.store(0, Ordering::Relaxed);
        self.getter.store(0, Ordering::Relaxed);
        // Never freed: a destructor run here might undo what the parent still needs (a temporary
        // file is deleted by the first process that forgets it).
        std::mem::forget(self.core.start_afresh());
    }
}

/// µs to wait; `Some(0)`: not at all, `None`: for ever.
pub fn wait_time(
    block: Truth,
    timeout: Option<&Bound<'_, PyAny>>,
    call: &str,
) -> PyResult<Option<Time>> {
    match timeout {
        _ if !block.0 => Ok(Some(0)),
        None => Ok(None),
        Some(timeout) => micros(timeout, &format!("{call}: timeout")).map(Some),
    }
}

pub fn to_kind(value: Option<&Bound<'_, PyAny>>, call: &str) -> PyResult<Kind> {
    let Some(value) = value else {
        return Ok(Kind::Any);
    };
    let Ok(text) = value.extract::<&str>() else {
        return Err(errors::wrong_type(
            &format!("{call}: kind"),
            value,
            "'any', 'keyed', 'unkeyed'",
        ));
    };
    match text {
        "any" => Ok(Kind::Any),
        "keyed" => Ok(Kind::Keyed),
        "unkeyed" => Ok(Kind::Unkeyed),
        other => Err(PyValueError::new_err(format!(
            "{call}: kind is {other:?}; allowed: 'any', 'keyed', 'unkeyed'"
        ))),
    }
}

/// Limits, or weights of groups, as text: see `interlock.runtime.concurrency`.
fn read_declared<V: Value>(text: &Bound<'_, PyAny>, name: &str) -> PyResult<Declared<V>> {
    let text: String = text.extract()?;
    Declared::parse(text.as_bytes()).map_err(|why| PyValueError::new_err(format!("{name} {why}")))
}
