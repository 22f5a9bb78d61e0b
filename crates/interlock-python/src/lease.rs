//! A lease as Python holds it.

use std::sync::atomic::{AtomicBool, Ordering};

use interlock_core::key::Key;
use interlock_core::queue::scheduler::{Grant, Handle};
use pyo3::exceptions::PyResourceWarning;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyFrozenSet, PyString};

use crate::convert::{frozen, micros};
use crate::errors;
use crate::queue::Queue;

type NamedKeys = Vec<(Key, bool)>;

/// The right to handle one message. See `interlock.Lease`.
#[pyclass(frozen, subclass, weakref, generic, module = "interlock")]
pub struct Lease {
    pub queue: Py<Queue>,
    payload: Py<PyAny>,
    pub handle: Handle,
    pub id: u64,
    attempt: u32,
    /// Settled through this object, or given away: its end is not an abandonment.
    settled: AtomicBool,
    /// What `__enter__` set the context variable with.
    context: std::sync::Mutex<Option<Py<PyAny>>>,
    keys: PyOnceLock<NamedKeys>,
}

pub static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The context variable that `interlock.current_lease` reads.
pub fn current_variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    CURRENT
        .get_or_try_init(py, || Ok(py.import("interlock.message")?.getattr("_current")?.unbind()))
        .map(|variable| variable.bind(py))
}

impl Lease {
    #[inline]
    pub fn new(queue: &Bound<'_, Queue>, grant: Grant, payload: Py<PyAny>) -> Self {
        Lease {
            queue: queue.clone().unbind(),
            payload,
            handle: grant.handle,
            id: grant.id,
            attempt: grant.attempt,
            settled: AtomicBool::new(false),
            context: std::sync::Mutex::new(None),
            keys: PyOnceLock::new(),
        }
    }

    #[inline]
    pub fn make<'py>(
        queue: &Bound<'py, Queue>,
        grant: Grant,
        payload: Py<PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        Bound::new(queue.py(), Lease::new(queue, grant, payload))
    }

    /// Marks it settled; an error if it was so already.
    #[inline]
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        // Relaxed: under the GIL; the flag guards nothing but itself.
        match self.settled.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(errors::lease_lost(py, self.id, self.handle.token)),
        }
    }

    /// Its end will not count as abandonment: somebody else settles it.
    pub fn given_away(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    fn named_keys(&self, py: Python<'_>) -> PyResult<&NamedKeys> {
        if let Some(keys) = self.keys.get(py) {
            return Ok(keys);
        }
        let found = self.queue.get().core.call(|scheduler, _| scheduler.keys_of_id(self.id));
        let keys = found.ok_or_else(|| errors::lease_lost(py, self.id, self.handle.token))?;
        Ok(self.keys.get_or_init(py, || keys))
    }

    fn set_of_keys<'py>(&self, py: Python<'py>, shared: bool) -> PyResult<Bound<'py, PyFrozenSet>> {
        let keys = self.named_keys(py)?.iter().filter(|(_, s)| *s == shared);
        frozen(py, keys.map(|(key, _)| key.as_bytes().to_vec()))
    }

    /// Keys are read from the queue, where they are gone once the message is settled.
    fn keep_keys(&self, py: Python<'_>) {
        if self.keys.get(py).is_none() {
            let _ = self.named_keys(py);
        }
    }
}

#[pymethods]
impl Lease {
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.payload.bind(py)
    }

    #[getter]
    fn queue(&self) -> String {
        self.queue.get().queue_name().to_owned()
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyFrozenSet>> {
        self.set_of_keys(py, false)
    }

    #[getter]
    fn shared<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyFrozenSet>> {
        self.set_of_keys(py, true)
    }

    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.attempt
    }

    #[getter]
    fn token(&self) -> u64 {
        self.handle.token
    }

    /// It ran out or was revoked, as far as the queue knows at this moment.
    #[getter]
    fn lost(&self, py: Python<'_>) -> bool {
        if self.settled.load(Ordering::Relaxed) {
            return false;
        }
        let queue = self.queue.get();
        queue.check_fork(py);
        queue.core.call(|scheduler, now| {
            scheduler.tick(now);
            !scheduler.holds(self.handle)
        })
    }

    #[inline]
    pub fn ack(&self, py: Python<'_>) -> PyResult<()> {
        self.settle(py)?;
        let queue = self.queue.get();
        queue.check_fork(py);
        let settled = queue.core.ack(self.handle);
        drop(settled.map_err(errors::lost(py, self.id, self.handle.token))?);
        queue.say(py)
    }

    #[pyo3(signature = (delay = None, error = None))]
    pub fn nack(
        &self,
        py: Python<'_>,
        delay: Option<&Bound<'_, PyAny>>,
        error: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let delay = delay.map(|delay| micros(delay, "nack(): delay")).transpose()?;
        let error = error.map_or(Ok(String::new()), error_text)?;
        self.keep_keys(py);
        self.settle(py)?;
        let queue = self.queue.get();
        queue.check_fork(py);
        let failed = queue.core.nack(self.handle, delay, &error);
        failed.map_err(errors::lost(py, self.id, self.handle.token))?;
        queue.say(py)
    }

    pub fn reject(&self, py: Python<'_>, reason: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(text) = reason.cast::<PyString>() else {
            return Err(errors::wrong_type("reject(): reason", reason, "str"));
        };
        let reason = text.to_string_lossy();
        self.keep_keys(py);
        self.settle(py)?;
        let queue = self.queue.get();
        queue.check_fork(py);
        let rejected =
            queue.core.call(|scheduler, now| scheduler.reject(now, self.handle, &reason));
        rejected.map_err(errors::lost(py, self.id, self.handle.token))?;
        queue.say(py)
    }

    pub fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.keep_keys(py);
        self.settle(py)?;
        let queue = self.queue.get();
        queue.check_fork(py);
        let released = queue.core.call(|scheduler, now| scheduler.release(now, self.handle));
        released.map_err(errors::lost(py, self.id, self.handle.token))?;
        queue.say(py)
    }

    pub fn extend(&self, py: Python<'_>, seconds: &Bound<'_, PyAny>) -> PyResult<()> {
        let by = micros(seconds, "extend(): seconds")?;
        if self.settled.load(Ordering::Relaxed) {
            return Err(errors::lease_lost(py, self.id, self.handle.token));
        }
        let queue = self.queue.get();
        queue.check_fork(py);
        let extended = queue.core.call(|scheduler, now| scheduler.extend(now, self.handle, by));
        extended.map_err(errors::lost(py, self.id, self.handle.token))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Lease::enter(slf)
    }

    /// Acks on success; nacks on an exception and lets it through. What was settled inside stays so.
    #[pyo3(signature = (kind, error, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.exit(py, kind, error)?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!(
            "<Lease of message {} in queue {:?}, attempt {}, token {}>",
            self.id,
            self.queue.get().queue_name(),
            self.attempt,
            self.handle.token
        )
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.queue)?;
        visit.call(&self.payload)
    }
}

impl Lease {
    /// The lease is the current one of its context; gives the payload.
    pub fn enter<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let token = current_variable(py)?.call_method1("set", (slf,))?;
        *slf.get().context.lock().expect("never poisoned") = Some(token.unbind());
        Ok(slf.get().payload.bind(py).clone())
    }

    pub fn exit(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.leave_context(py);
        if !self.settled.load(Ordering::Relaxed) {
            if kind.is_none() {
                self.ack(py)?;
            } else if let Err(lost) = self.nack(py, None, Some(error)) {
                // The handler's own exception says more than that its lease is gone.
                drop(lost);
            }
        }
        Ok(())
    }

    fn leave_context(&self, py: Python<'_>) {
        let token = self.context.lock().expect("never poisoned").take();
        if let (Some(token), Ok(variable)) = (token, current_variable(py)) {
            // Entered in another context (a generator that moved): there is nothing to reset there.
            let _ = variable.call_method1("reset", (token,));
        }
    }
}

/// What is kept as a message's last error.
pub fn error_text(error: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = error.cast::<PyString>() {
        return Ok(text.to_string_lossy().into_owned());
    }
    if error.is_instance_of::<pyo3::exceptions::PyBaseException>() {
        let name = error.get_type().name()?;
        // An exception whose text cannot be made is still known by its name.
        return Ok(match error.str() {
            Ok(text) if text.len().unwrap_or(0) > 0 => format!("{name}: {text}"),
            _ => name.to_string(),
        });
    }
    Err(errors::wrong_type("nack(): error", error, "str or an exception"))
}

impl Drop for Lease {
    /// Dropped without a word: counts as a nack, never as an ack (clause 16).
    fn drop(&mut self) {
        if *self.settled.get_mut() {
            return;
        }
        Python::attach(|py| {
            let queue = self.queue.get();
            queue.check_fork(py);
            if queue.core.nack(self.handle, None, "abandoned").is_err() {
                return;
            }
            // An exception may be on its way; the warning must not take its place.
            let raised = PyErr::take(py);
            let text = format!(
                "the lease of message {} in queue {:?} was dropped without being settled; it counts \
                 as a nack",
                self.id,
                queue.queue_name()
            );
            let text = std::ffi::CString::new(text).unwrap_or_default();
            let warning = py.get_type::<PyResourceWarning>();
            if let Err(error) = PyErr::warn(py, &warning, &text, 1) {
                error.write_unraisable(py, None);
            }
            if let Err(error) = queue.say(py) {
                error.write_unraisable(py, None);
            }
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
    }
}
