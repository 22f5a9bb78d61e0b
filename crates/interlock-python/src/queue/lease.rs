//! The Python class of a lease.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU8, Ordering};

use interlock_core::key::Key;
use interlock_core::queue::calls::lease::LeaseLost;
use interlock_core::queue::scheduler::{Grant, Handle};
use pyo3::exceptions::PyResourceWarning;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PyString, PyTuple};

use crate::fast;
use crate::fast::recycle::Recycler;
use crate::queue::judgement::judged;
use crate::queue::lease_keys::NamedKeys;
use crate::queue::Queue;
use crate::runtime::convert::{frozen, micros};
use crate::runtime::errors;
use crate::runtime::gil::{told, GilCell};
use crate::runtime::once::Once;

/// The right to handle one message, until it is settled.
///
/// As a context manager it gives the payload, acknowledges on success, and on an exception puts the
/// message back by the retry policy and lets the exception through; `RetryAfter` and `Reject` steer.
/// Dropped without a word it counts as a failed attempt, and warns.
#[pyclass(frozen, subclass, generic, module = "interlock")]
pub struct Lease {
    pub queue: Py<Queue>,
    pub payload: Py<PyAny>,
    pub handle: Handle,
    pub id: u64,
    pub attempt: u32,
    /// `OPEN`, `SETTLED`, `LOST` or `LENT`; only an `OPEN` lease is abandoned if it is dropped.
    state: AtomicU8,
    /// The token of the context variable that `__enter__` set.
    context: GilCell<Option<Py<PyAny>>>,
    /// Copied from the queue on first use, or on settlement at the latest, when the queue forgets them.
    keys: GilCell<Option<NamedKeys>>,
}

const OPEN: u8 = 0;
const SETTLED: u8 = 1;
/// An attempt to settle it was refused.
const LOST: u8 = 2;
/// Shown to the handler by an executor, which settles it.
const LENT: u8 = 3;

pub static CURRENT: Once<Py<PyAny>> = Once::new();
/// Functions of `interlock.failure`, which know what a handler may raise.
static TEXT_OF: Once<Py<PyAny>> = Once::new();
static KEPT: Once<Py<PyAny>> = Once::new();

/// The context variable that `interlock.current_lease` reads.
pub fn current_variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    CURRENT
        .get_or_try_init(py, || Ok(py.import("interlock.message")?.getattr("_current")?.unbind()))
        .map(|variable| variable.bind(py))
}

pub static LEASES: Recycler = Recycler::new(c"interlock.Lease", dealloc, fast::install_ack);

unsafe extern "C" fn dealloc(lease: *mut ffi::PyObject) {
    // SAFETY: called only by the interpreter, for an object that `make` created.
    unsafe { LEASES.take(lease, |lease| LEASES.free(lease)) }
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
            state: AtomicU8::new(OPEN),
            context: GilCell::new(None),
            keys: GilCell::new(None),
        }
    }

    #[inline]
    pub fn make<'py>(
        queue: &Bound<'py, Queue>,
        grant: Grant,
        payload: Py<PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        Lease::new(queue, grant, payload).into_python(queue.py())
    }

    #[inline]
    pub fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        LEASES.give(py, self, |lease| Bound::new(py, lease))
    }

    /// Marks a new lease as settled, with the keys that its message had, or as lost if `keys` is `None`.
    pub fn ended(self, py: Python<'_>, keys: Option<&[(Key, bool)]>) -> Self {
        let state = if keys.is_some() { SETTLED } else { LOST };
        self.state.store(state, Ordering::Relaxed);
        self.note_keys(py, keys.unwrap_or_default());
        self
    }

    /// Returns whether its memory can be reused without running `drop`: it is settled and has no context.
    #[inline]
    pub fn can_be_recycled(&self, py: Python<'_>) -> bool {
        self.is_settled() && self.context.with(py, Option::is_none)
    }

    /// Drops a lease that can be recycled, without asking PyO3 whether the thread is attached.
    ///
    /// # Safety
    /// The GIL is held.
    #[inline]
    pub unsafe fn drop_settled(self, py: Python<'_>) {
        let lease = ManuallyDrop::new(self);
        // SAFETY: each is read once, and the lease is not used or dropped afterwards; it has no
        // context.
        unsafe {
            if let Some(keys) = std::ptr::read(&lease.keys).into_inner() {
                keys.recycle(py);
            }
            ffi::Py_DECREF(std::ptr::read(&lease.payload).into_ptr());
            ffi::Py_DECREF(std::ptr::read(&lease.queue).into_ptr());
        }
    }

    /// Settles it, once; an error if it is lost or was settled already.
    fn settle<T>(
        &self,
        py: Python<'_>,
        settle: impl FnOnce() -> Result<T, LeaseLost>,
    ) -> PyResult<T> {
        self.queue.get().check_fork(py);
        let settled = if self.is_settled() { Err(LeaseLost) } else { settle() };
        // Relaxed: under the GIL; the state guards nothing but itself.
        match settled {
            Ok(settled) => {
                self.state.store(SETTLED, Ordering::Relaxed);
                Ok(settled)
            }
            Err(LeaseLost) => Err(self.refused(py)),
        }
    }

    /// An attempt to settle it was refused.
    #[cold]
    pub fn refused(&self, py: Python<'_>) -> PyErr {
        match self.state.load(Ordering::Relaxed) {
            LENT => return errors::lease_lent(py, self.id),
            OPEN => self.state.store(LOST, Ordering::Relaxed),
            _ => {}
        }
        errors::lease_lost(py, self.id, self.handle.token)
    }

    #[inline]
    pub fn is_settled(&self) -> bool {
        self.state.load(Ordering::Relaxed) != OPEN
    }

    /// Neither settled through this object nor lost.
    pub fn stands(&self) -> bool {
        let holds = |handle| {
            self.queue.get().core.call(|scheduler, now| {
                scheduler.tick(now);
                scheduler.holds(handle)
            })
        };
        !self.is_settled() && holds(self.handle)
    }

    /// Its end will not count as abandonment: it is settled, or somebody else settles it.
    #[inline]
    pub fn handed_over(&self) {
        self.state.store(SETTLED, Ordering::Relaxed);
    }

    /// Notes that it was settled together with others, with the keys of its message, or was lost.
    pub fn note_settled(&self, py: Python<'_>, settled: Result<&[(Key, bool)], LeaseLost>) {
        match settled {
            Ok(keys) => {
                self.note_keys(py, keys);
                self.handed_over();
            }
            Err(LeaseLost) => self.state.store(LOST, Ordering::Relaxed),
        }
    }

    fn note_keys(&self, py: Python<'_>, keys: &[(Key, bool)]) {
        if !self.knows_keys(py) {
            keys.iter().for_each(|(key, shared)| self.note_key(py, key, *shared));
        }
    }

    #[inline(always)]
    fn note_key(&self, py: Python<'_>, key: &Key, shared: bool) {
        self.keys.with_mut(py, |keys| NamedKeys::add(py, keys, key, shared));
    }

    #[inline(always)]
    fn knows_keys(&self, py: Python<'_>) -> bool {
        self.keys.with(py, Option::is_some)
    }

    /// Undoes `handed_over`.
    pub fn take_up(&self) {
        self.state.store(OPEN, Ordering::Relaxed);
    }

    /// Notes that it was passed to a handler, whose caller settles it.
    pub fn lend(&self) {
        self.state.store(LENT, Ordering::Relaxed);
    }

    /// The handler has come to its end. A lease that was lost by then stays so.
    pub fn take_back(&self, py: Python<'_>) {
        self.keep_keys(py);
        if self.queue.get().core.call(|scheduler, _| scheduler.holds(self.handle)) {
            self.handed_over();
        }
    }

    /// Acknowledges it in the queue, and keeps its keys.
    #[inline]
    pub fn ack_in_core(&self, py: Python<'_>) -> Result<Option<Py<PyAny>>, LeaseLost> {
        let known = self.knows_keys(py);
        self.queue.get().core.ack_showing(self.handle, |key, shared| {
            if !known {
                self.note_key(py, key, shared);
            }
        })
    }

    /// Sees to it that the keys are known here.
    fn find_keys(&self, py: Python<'_>) -> PyResult<()> {
        if self.knows_keys(py) {
            return Ok(());
        }
        let found = self.queue.get().core.call(|scheduler, _| scheduler.keys_of_id(self.id));
        let keys = match found {
            Some(keys) => keys,
            // Settled here, which keeps what keys there are.
            None if self.state.load(Ordering::Relaxed) == SETTLED => Vec::new(),
            None => return Err(errors::lease_lost(py, self.id, self.handle.token)),
        };
        self.keys.replace(py, Some(NamedKeys::Several(keys)));
        Ok(())
    }

    fn set_of_keys<'py>(&self, py: Python<'py>, shared: bool) -> PyResult<Bound<'py, PyFrozenSet>> {
        self.find_keys(py)?;
        let copied = |keys: &Option<NamedKeys>| -> Vec<Vec<u8>> {
            let keys = keys.as_ref().map_or(&[][..], NamedKeys::as_slice);
            keys.iter().filter(|(_, s)| *s == shared).map(|(k, _)| k.as_bytes().to_vec()).collect()
        };
        frozen(py, self.keys.with(py, copied).into_iter())
    }

    /// Keys are read from the queue, where they are gone once the message is settled.
    fn keep_keys(&self, py: Python<'_>) {
        let _ = self.find_keys(py);
    }
}

#[pymethods]
impl Lease {
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

    /// 1 for the first.
    #[getter]
    fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Rises with every lease of the queue: a fence for what the handler writes.
    #[getter]
    fn token(&self) -> u64 {
        self.handle.token
    }

    /// Return whether it has expired or was revoked, as far as the queue knows now.
    #[getter]
    fn lost(&self, py: Python<'_>) -> bool {
        match self.state.load(Ordering::Relaxed) {
            SETTLED => return false,
            LOST => return true,
            _ => {}
        }
        let queue = self.queue.get();
        queue.check_fork(py);
        queue.core.call(|scheduler, now| {
            scheduler.tick(now);
            !scheduler.holds(self.handle)
        })
    }

    /// The message was not handled: it is retried, in its place, or given up.
    ///
    /// Args:
    ///     delay: seconds until then. Default: what the retry policy says.
    ///     error: why, for the logs and the dead letter; a str or an exception.
    ///
    /// Raises:
    ///     LeaseLost: the lease was settled, ran out or was revoked; nothing was changed.
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
        let queue = self.queue.get();
        self.settle(py, || queue.core.nack(self.handle, delay, &error))?;
        queue.say(py)
    }

    /// The message cannot be handled: a dead letter at once. Raises LeaseLost as `ack` does.
    pub fn reject(&self, py: Python<'_>, reason: &Bound<'_, PyAny>) -> PyResult<()> {
        if !reason.is_instance_of::<PyString>() {
            return Err(errors::wrong_type("reject(): reason", reason, "str"));
        }
        let reason = kept_text(reason)?;
        self.keep_keys(py);
        let queue = self.queue.get();
        self.settle(py, || queue.core.call(|s, now| s.reject(now, self.handle, &reason)))?;
        queue.say(py)
    }

    /// The handler raised what is not retried: as if the attempts were used up.
    fn _give_up(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        let error = error_text(error)?;
        self.keep_keys(py);
        let queue = self.queue.get();
        self.settle(py, || queue.core.call(|s, now| s.exhaust(now, self.handle, &error)))?;
        queue.say(py)
    }

    /// Return the message unhandled, in the same place and at the same attempt. Raises LeaseLost as
    /// `ack` does.
    pub fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.keep_keys(py);
        let queue = self.queue.get();
        self.settle(py, || queue.core.call(|s, now| s.release(now, self.handle)))?;
        queue.say(py)
    }

    /// Redeliver the message in the same position and at the same attempt, this many seconds later.
    fn _defer(&self, py: Python<'_>, delay: &Bound<'_, PyAny>) -> PyResult<()> {
        let delay = micros(delay, "defer(): delay")?;
        self.keep_keys(py);
        let queue = self.queue.get();
        self.settle(py, || queue.core.call(|s, now| s.defer(now, self.handle, delay)))?;
        queue.say(py)
    }

    /// Close a limit name to all messages for this many seconds, if the lease was not lost.
    fn _close(&self, py: Python<'_>, limit: &str, delay: &Bound<'_, PyAny>) -> PyResult<()> {
        let delay = micros(delay, "RetryAfter(): seconds")?;
        let queue = self.queue.get();
        queue.check_fork(py);
        queue.close_limit(self.handle, limit, delay);
        Ok(())
    }

    /// Sets the deadline to this many seconds from now. Raises LeaseLost as `ack` does.
    pub fn extend(&self, py: Python<'_>, seconds: &Bound<'_, PyAny>) -> PyResult<()> {
        let by = micros(seconds, "extend(): seconds")?;
        let queue = self.queue.get();
        queue.check_fork(py);
        let extend = || queue.core.call(|scheduler, now| scheduler.extend(now, self.handle, by));
        let extended = if self.is_settled() { Err(LeaseLost) } else { extend() };
        extended.map_err(|LeaseLost| self.refused(py))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Lease::enter(slf)
    }

    /// Acks on success; nacks on an exception and re-raises it. Settlements inside are final.
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
        visit.call(&self.payload)?;
        // The object that `__enter__` stored refers to the context, which refers to this lease. SAFETY: the
        // collector runs with the GIL held.
        let py = unsafe { Python::assume_attached() };
        self.context.with(py, |context| visit.call(context))
    }
}

impl Lease {
    /// Acknowledges the message. Python calls this through [`fast`](crate::fast).
    pub fn ack(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.settle(py, || self.ack_in_core(py))?);
        self.queue.get().say(py)
    }

    /// The lease is the current one of its context; gives the payload.
    pub fn enter<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let token = current_variable(py)?.call_method1("set", (slf,))?;
        if let Some(outer) = slf.get().context.replace(py, Some(token.clone().unbind())) {
            // Entered twice: each `with` undoes its own.
            let both = (token, outer).into_pyobject(py)?.into_any().unbind();
            slf.get().context.replace(py, Some(both));
        }
        Ok(slf.get().payload.bind(py).clone())
    }

    pub fn exit(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.leave_context(py);
        if self.is_settled() {
            return Ok(());
        }
        if kind.is_none() {
            return self.ack(py);
        }
        match self.fail(py, error) {
            // The handler's own exception says more than that its lease is gone.
            Err(lost) if lost.get_type(py).is(errors::lease_lost_type(py)?) => Ok(()),
            other => other,
        }
    }

    /// A handler raised: it may steer, and the policy says what is retried at all.
    fn fail(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        let on = self.queue.bind(py).getattr("_retry_on")?;
        let judged = judged(error, &on)?;
        let text = judged.getattr("text")?;
        if let Some(limit) = judged.getattr("limit")?.extract::<Option<String>>()? {
            self._close(py, &limit, &judged.getattr("delay")?)?;
        }
        match judged.getattr("how")?.cast::<PyString>()?.to_str()? {
            "reject" => self.reject(py, &text),
            "give_up" => self._give_up(py, &text),
            "defer" => self._defer(py, &judged.getattr("delay")?),
            _ => {
                let delay = judged.getattr("delay")?;
                self.nack(py, (!delay.is_none()).then_some(&delay), Some(&text))
            }
        }
    }

    /// Returns the token of the context variable that the innermost `with` of it set.
    pub fn entered<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let token = self.context.with(py, |token| token.as_ref().map(|t| t.bind(py).clone()))?;
        match token.cast::<PyTuple>() {
            Ok(both) => both.get_item(0).ok(),
            Err(_) => Some(token),
        }
    }

    /// Replaces the token of the innermost `with`, which has set the context variable again.
    pub fn enter_again(&self, token: Bound<'_, PyAny>) {
        let py = token.py();
        let outer = self.context.with(py, |kept| {
            let both = kept.as_ref()?.bind(py).cast::<PyTuple>().ok()?;
            both.get_item(1).ok()
        });
        let token = match outer {
            Some(outer) => PyTuple::new(py, [token, outer]).map(Bound::into_any),
            None => Ok(token),
        };
        if let Ok(token) = token {
            self.context.replace(py, Some(token.unbind()));
        }
    }

    fn leave_context(&self, py: Python<'_>) {
        let mut token = self.context.replace(py, None);
        // Entered twice: the pair holds the tokens of the inner and the outer `with`.
        let both = token.as_ref().and_then(|token| token.bind(py).cast::<PyTuple>().ok().cloned());
        if let Some((inner, outer)) = both.and_then(|both| both.extract().ok()) {
            self.context.replace(py, Some(outer));
            token = Some(inner);
        }
        if let (Some(token), Ok(variable)) = (token, current_variable(py)) {
            // Entered in another context (a generator that moved): there is nothing to reset there.
            let _ = variable.call_method1("reset", (token,));
        }
    }
}

/// Returns the text that is kept as a message's last error.
pub fn error_text(error: &Bound<'_, PyAny>) -> PyResult<String> {
    if error.is_instance_of::<PyString>() {
        return kept_text(error);
    }
    if error.is_instance_of::<pyo3::exceptions::PyBaseException>() {
        let text_of = TEXT_OF.import(error.py(), "interlock.failure", "text_of")?;
        return text_of.call1((error,))?.extract();
    }
    Err(errors::wrong_type("nack(): error", error, "str or an exception"))
}

/// A text as it is kept with a message.
fn kept_text(text: &Bound<'_, PyAny>) -> PyResult<String> {
    KEPT.import(text.py(), "interlock.failure", "kept")?.call1((text,))?.extract()
}

impl Drop for Lease {
    /// Dropped without a word: counts as a nack, never as an ack (clause 16).
    fn drop(&mut self) {
        if *self.state.get_mut() != OPEN {
            return;
        }
        told(|py| {
            let queue = self.queue.get();
            queue.check_fork(py);
            if queue.core.nack(self.handle, None, "abandoned").is_ok() {
                warn_abandoned(py, queue, self.id, 0);
            }
        });
    }
}

/// Warns that the lease of a message, and `more` others, were dropped unsettled.
pub fn warn_abandoned(py: Python<'_>, queue: &Queue, id: u64, more: usize) {
    // An exception may be on its way; the warning must not take its place.
    let raised = PyErr::take(py);
    let name = queue.queue_name();
    let text = match more {
        0 => format!(
            "the lease of message {id} in queue {name:?} was dropped without being settled; it counts \
             as a nack"
        ),
        _ => format!(
            "the leases of message {id} and {more} more in queue {name:?} were dropped without being \
             settled; they count as nacks"
        ),
    };
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
}
