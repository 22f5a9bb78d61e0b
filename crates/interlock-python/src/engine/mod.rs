//! The engine of `memory://`: the functions of the wire, in this process.
//!
//! All calls are made with the GIL held, so that no thread ever waits for the engine's locks; only
//! sleeping releases it. Of the threads that wait, one keeps the time: it sleeps until something
//! falls due, and is woken when a call has made that nearer. When it leaves, another takes over.

pub(super) mod journal_copy;
pub(super) mod renewals;
pub(super) mod store_files;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use interlock_core::clock::Clock;
use interlock_core::queue::types::Time;
use interlock_core::sync::Parker;
use interlock_engine::values::reply;
use interlock_engine::waiting::renewals::{HeldLease, Renewals};
use interlock_engine::{Engine as Core, EngineSettings, Function, Outcome, Served};
use interlock_stores::network;
use pyo3::exceptions::{PyLookupError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString};

use crate::queue::wait::{is_main_thread, sleep};
use crate::runtime::clock::ManualClock;
use crate::runtime::fork::generation;

mod error {
    // Made while the module is loaded.
    #![allow(clippy::disallowed_types)]
    use pyo3::exceptions::PyException;

    pyo3::create_exception!(interlock._core, EngineError, PyException);
}
pub use error::EngineError;

#[pyclass(frozen, weakref, module = "interlock._core")]
pub struct Engine {
    core: Core,
    renewals: Renewals,
    /// A forked child owns nothing held before the fork.
    generation: u32,
    clock: Clock,
    tickets: AtomicU64,
    parked: Mutex<HashMap<u64, Slot>>,
    sleepers: Mutex<Sleepers>,
    closed: AtomicBool,
}

/// A parked call.
enum Slot {
    /// A thread sleeps for it.
    Thread(Arc<Parker>),
    Waker(Py<PyAny>),
    Answered(Vec<u8>),
}

#[derive(Default)]
struct Sleepers {
    all: HashMap<u64, Arc<Parker>>,
    /// The sleeper that keeps the time, and until when it sleeps.
    timekeeper: Option<(u64, Time)>,
}

impl Sleepers {
    /// Something falls due at that time: the thread that keeps the time must know.
    fn due(&mut self, at: Time) {
        if let Some((number, until)) = self.timekeeper {
            if at < until {
                self.all[&number].unpark();
            }
        }
    }

    /// A sleeper is about to sleep, and something falls due at `due`. Returns until when it may.
    fn sleeps(&mut self, who: u64, parker: &Arc<Parker>, due: Time) -> Time {
        self.all.insert(who, parker.clone());
        match self.timekeeper {
            Some((number, _)) if number != who => Time::MAX,
            _ => {
                self.timekeeper = Some((who, due));
                due
            }
        }
    }

    fn leaves(&mut self, who: u64) {
        self.all.remove(&who);
        if self.timekeeper.is_some_and(|(number, _)| number == who) {
            self.timekeeper = None;
            if let Some(next) = self.all.values().next() {
                next.unpark();
            }
        }
    }
}

impl Engine {
    /// Makes a call. A parked call has a ticket.
    fn make(
        &self,
        py: Python<'_>,
        function: &str,
        key: Option<&[u8]>,
        args: &Bound<'_, PyAny>,
        parks: bool,
    ) -> PyResult<Result<Vec<u8>, u64>> {
        let Some(function) = Function::named(function.as_bytes()) else {
            return Err(EngineError::new_err("ERR Function not found"));
        };
        let given = args.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let args: Vec<Cow<'_, [u8]>> = given
            .iter()
            .enumerate()
            .map(|(i, value)| bytes_of(i, value))
            .collect::<PyResult<_>>()?;
        // Relaxed: a counter.
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let (mut out, mut served) = (Vec::new(), Vec::new());
        let caller = parks.then_some(ticket);
        let now = self.clock.now();
        self.renew(now, &mut served);
        let outcome = self.core.call(function, key, &args[..], now, caller, &mut out, &mut served);
        drop(args);
        self.deliver(py, served);
        self.note_due();
        match outcome {
            Outcome::Done => Ok(Ok(out)),
            Outcome::Refused(refused) => Err(EngineError::new_err(refused.0)),
            Outcome::Parked => Ok(Err(ticket)),
        }
    }

    fn renew(&self, now: Time, served: &mut Vec<Served>) {
        if self.generation == generation() {
            self.renewals.renew(&self.core, now, served);
        }
    }

    /// Forgets a lease. It is settled next: by then it must not have run out either.
    fn let_go(&self, py: Python<'_>, number: u64) {
        let mut served = Vec::new();
        self.renew(self.clock.now(), &mut served);
        self.renewals.let_go(number);
        self.deliver(py, served);
    }

    /// The engine's time at a moment of Python's `time.monotonic()`.
    fn time_of(&self, moment: f64) -> Time {
        let left = moment - network::now();
        // As casts do: what is too far is the last moment, and what is over is the first.
        (self.clock.now() as f64 + left * 1e6) as Time
    }

    fn note_due(&self) {
        let mut sleepers = self.sleepers.lock().expect("never poisoned");
        if sleepers.timekeeper.is_some() {
            sleepers.due(self.core.next_due().unwrap_or(Time::MAX));
        }
    }

    /// Wakes callers that were answered. Wakers are Python code: nothing is locked while they run.
    fn deliver(&self, py: Python<'_>, served: Vec<Served>) {
        if served.is_empty() {
            return;
        }
        let mut wakers = Vec::new();
        {
            let mut parked = self.parked.lock().expect("never poisoned");
            for Served { ticket, reply } in served {
                match parked.insert(ticket, Slot::Answered(reply)) {
                    Some(Slot::Thread(parker)) => parker.unpark(),
                    Some(Slot::Waker(waker)) => wakers.push((ticket, waker)),
                    _ => {}
                }
            }
        }
        for (ticket, waker) in wakers {
            if let Err(error) = waker.call1(py, (ticket,)) {
                error.write_unraisable(py, Some(waker.bind(py)));
            }
        }
    }

    /// Applies what is due, as often as there is something.
    pub fn tick(&self, py: Python<'_>) {
        let now = self.clock.now();
        let mut served = Vec::new();
        self.renew(now, &mut served);
        self.deliver(py, served);
        while self.core.next_due().is_some_and(|due| due <= now) {
            let mut served = Vec::new();
            self.core.tick(now, &mut served);
            self.deliver(py, served);
        }
    }

    fn answered(&self, ticket: u64) -> Option<Vec<u8>> {
        let mut parked = self.parked.lock().expect("never poisoned");
        match parked.get(&ticket) {
            Some(Slot::Answered(_)) => match parked.remove(&ticket) {
                Some(Slot::Answered(reply)) => Some(reply),
                _ => None,
            },
            _ => None,
        }
    }

    /// Sleeps until there is an answer (`what` returns it), and keeps the time if no other thread
    /// does.
    fn wait<R>(
        &self,
        py: Python<'_>,
        who: u64,
        parker: &Arc<Parker>,
        what: impl Fn() -> Option<R>,
    ) -> PyResult<R> {
        let main = is_main_thread();
        loop {
            if let Some(found) = what() {
                self.sleepers.lock().expect("never poisoned").leaves(who);
                return Ok(found);
            }
            let due = self.core.next_due().unwrap_or(Time::MAX);
            let now = self.clock.now();
            if due <= now {
                self.tick(py);
                continue;
            }
            let until = self.sleepers.lock().expect("never poisoned").sleeps(who, parker, due);
            // A wait on a manual clock is notified when the clock moves.
            let left = (until != Time::MAX && !self.clock.is_manual())
                .then(|| Duration::from_micros(until - now));
            if let Err(error) = sleep(py, parker, left, main) {
                self.sleepers.lock().expect("never poisoned").leaves(who);
                return Err(error);
            }
        }
    }
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (clock = None, memory = 0))]
    fn new(
        py: Python<'_>,
        clock: Option<&Bound<'_, ManualClock>>,
        memory: u64,
    ) -> PyResult<Py<Self>> {
        let engine = Engine {
            core: Core::new(EngineSettings { memory, ..EngineSettings::default() }),
            renewals: Renewals::default(),
            generation: generation(),
            clock: clock.map_or_else(Clock::default, |clock| clock.get().clock.clone()),
            tickets: AtomicU64::new(1),
            parked: Mutex::default(),
            sleepers: Mutex::default(),
            closed: AtomicBool::new(false),
        };
        let engine = Py::new(py, engine)?;
        if let Some(clock) = clock {
            clock.get().follow(engine.bind(py).as_any())?;
        }
        Ok(engine)
    }

    /// Returns the time for dates, µs since 1970.
    fn wall(&self) -> u64 {
        self.clock.wall()
    }

    /// Makes a call, and waits for its reply as long as its WAIT says.
    #[pyo3(signature = (function, key, args, /))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        function: &str,
        key: Option<&[u8]>,
        args: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let ticket = match self.make(py, function, key, args, true)? {
            Ok(reply) => return told(py, &reply),
            Err(ticket) => ticket,
        };
        let parker = Parker::new();
        let slot = Slot::Thread(parker.clone());
        self.parked.lock().expect("never poisoned").insert(ticket, slot);
        match self.wait(py, ticket, &parker, || self.answered(ticket)) {
            Ok(reply) => told(py, &reply),
            Err(error) => {
                self.forget(ticket);
                Err(error)
            }
        }
    }

    /// Makes a call without waiting. Returns its reply, or a ticket.
    #[pyo3(signature = (function, key, args, waker, /))]
    fn start<'py>(
        &self,
        py: Python<'py>,
        function: &str,
        key: Option<&[u8]>,
        args: &Bound<'py, PyAny>,
        waker: Py<PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.make(py, function, key, args, true)? {
            Ok(reply) => Ok(told(py, &reply)?.into_any()),
            Err(ticket) => {
                self.parked.lock().expect("never poisoned").insert(ticket, Slot::Waker(waker));
                Ok(ticket.into_pyobject(py)?.into_any())
            }
        }
    }

    /// The answer of a call that was parked.
    #[pyo3(signature = (ticket, /))]
    fn take<'py>(&self, py: Python<'py>, ticket: u64) -> PyResult<Bound<'py, PyList>> {
        match self.answered(ticket) {
            Some(reply) => told(py, &reply),
            None => Err(PyLookupError::new_err(format!(
                "take(): ticket {ticket} is not answered, or was taken or forgotten"
            ))),
        }
    }

    /// Drops a parked call whose reply is no longer needed.
    #[pyo3(signature = (ticket, /))]
    fn forget(&self, ticket: u64) {
        self.core.forget(ticket);
        // Dropped without the lock: a waker's end may run Python code.
        let slot = self.parked.lock().expect("never poisoned").remove(&ticket);
        drop(slot);
    }

    /// Returns what has leases not run out because nobody could renew them.
    fn renewals(slf: Py<Self>) -> EngineRenewals {
        EngineRenewals { engine: slf, held: Mutex::default() }
    }

    /// Keeps the time for calls that `start` has parked, until `close`.
    fn keep_time(&self, py: Python<'_>) -> PyResult<()> {
        // Relaxed: a counter.
        let who = self.tickets.fetch_add(1, Ordering::Relaxed);
        let parker = Parker::new();
        // Relaxed: read and written with the GIL held.
        self.wait(py, who, &parker, || self.closed.load(Ordering::Relaxed).then_some(()))
    }

    /// Ends `keep_time`.
    fn close(&self) {
        // Relaxed: read and written with the GIL held.
        self.closed.store(true, Ordering::Relaxed);
        self.sleepers.lock().expect("never poisoned").all.values().for_each(|p| p.unpark());
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(parked) = self.parked.try_lock() else { return Ok(()) };
        parked.values().try_for_each(|slot| match slot {
            Slot::Waker(waker) => visit.call(waker),
            _ => Ok(()),
        })
    }
}

/// Step of the engine's clock, µs: a lease may end by this much before its client thinks so.
const STEP: Time = 20_000;

/// Leases that one client holds on an engine: `LeaseRenewals`, without a thread.
#[pyclass(frozen, module = "interlock._core")]
pub struct EngineRenewals {
    engine: Py<Engine>,
    held: Mutex<HashSet<u64>>,
}

#[pymethods]
impl EngineRenewals {
    #[allow(clippy::too_many_arguments)]
    fn hold(
        &self,
        key: u64,
        _address: &str,
        queue: &str,
        token: u64,
        seconds: f64,
        deadline: f64,
        until: f64,
    ) {
        let engine = self.engine.get();
        let lease = HeldLease {
            queue: queue.as_bytes().to_vec(),
            token,
            span: (seconds * 1e6) as Time,
            deadline: engine.time_of(deadline).saturating_sub(STEP),
            until: engine.time_of(until),
        };
        self.held.lock().expect("never poisoned").insert(key);
        engine.renewals.hold(key, lease);
    }

    fn let_go(&self, py: Python<'_>, key: u64) {
        self.held.lock().expect("never poisoned").remove(&key);
        self.engine.get().let_go(py, key);
    }

    fn bound(&self, key: u64, until: f64) {
        let engine = self.engine.get();
        engine.renewals.bound(key, engine.time_of(until));
    }

    fn errors(&self) -> Vec<String> {
        Vec::new()
    }

    fn stop(&self) {
        let held = std::mem::take(&mut *self.held.lock().expect("never poisoned"));
        held.into_iter().for_each(|key| self.engine.get().renewals.let_go(key));
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.engine)
    }
}

fn bytes_of<'a>(i: usize, value: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Cow::Owned(text.to_cow()?.into_owned().into_bytes()));
    }
    if value.is_exact_instance_of::<PyInt>() {
        return Ok(Cow::Owned(value.str()?.to_cow()?.into_owned().into_bytes()));
    }
    let name = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("call(): args[{i}] is {name}; allowed: bytes, str, int")))
}

fn told<'py>(py: Python<'py>, reply: &[u8]) -> PyResult<Bound<'py, PyList>> {
    match reply::parse(reply) {
        Ok(strings) => PyList::new(py, strings.into_iter().map(|one| PyBytes::new(py, one))),
        Err(text) => Err(EngineError::new_err(text)),
    }
}
