//! What a put names, taken from Python before any lock: user code (an iterator of keys, a callable of
//! the payload) may run here and nowhere later.

use interlock_core::queue::scheduler::Put;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyInt, PyMemoryView, PyString};

use crate::convert::{self, KeyRefs, Keys};
use crate::errors::wrong_type;
use crate::exit;
use crate::queue::Queue;

/// The keyword arguments of a put, as they came.
pub struct PutArguments<'a, 'py> {
    pub keys: Option<&'a Bound<'py, PyAny>>,
    pub shared: Option<&'a Bound<'py, PyAny>>,
    pub priority: Option<&'a Bound<'py, PyAny>>,
    pub delay: Option<&'a Bound<'py, PyAny>>,
    pub dedup: Option<&'a Bound<'py, PyAny>>,
    pub barrier: bool,
    pub quiet: bool,
}

/// The same, checked and canonical.
pub struct Named<'py> {
    keys: Keys<'py>,
    shared: Keys<'py>,
    priority: i8,
    delay: u64,
    dedup: Option<Bound<'py, PyString>>,
    barrier: bool,
    quiet: bool,
    size: u64,
}

impl<'py> Named<'py> {
    #[inline]
    pub fn new(
        queue: &Queue,
        call: &str,
        payload: &Bound<'py, PyAny>,
        put: &PutArguments<'_, 'py>,
    ) -> PyResult<Self> {
        exit::prepare();
        let keys = named_keys(put.keys, queue.keys_of.as_ref(), payload, call, "keys")?;
        let shared = named_keys(put.shared, queue.shared_of.as_ref(), payload, call, "shared")?;
        let barrier = put.barrier;
        let (keys, shared) = match barrier {
            // A barrier holds everything already. Callables of the payload are for the other puts.
            true if put.keys.is_none() && put.shared.is_none() => (Keys::new(), Keys::new()),
            true if !keys.is_empty() || !shared.is_empty() => {
                return Err(PyValueError::new_err(format!(
                    "{call}: a barrier with keys; a barrier holds every key. To hold up one room, \
                     take its key alone (keys=) where the others share it (shared=)"
                )))
            }
            _ => (keys, shared),
        };
        if keys.len() + shared.len() > interlock_core::key::MAX_KEYS {
            return Err(PyValueError::new_err(format!(
                "{call}: keys and shared name {} keys; allowed: {} in all",
                keys.len() + shared.len(),
                interlock_core::key::MAX_KEYS
            )));
        }
        let delay = match put.delay {
            None => 0,
            Some(delay) => convert::micros(delay, &format!("{call}: delay"))?,
        };
        Ok(Named {
            keys,
            shared,
            priority: put.priority.map_or(Ok(0), |value| priority(value, call))?,
            delay,
            dedup: put.dedup.map_or(Ok(None), |value| dedup(value, call))?,
            barrier,
            quiet: put.quiet,
            size: if queue.bounds.1 > 0 { size(queue, payload, call)? } else { 0 },
        })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn refs(&self) -> (KeyRefs<'_>, KeyRefs<'_>) {
        (convert::refs(&self.keys), convert::refs(&self.shared))
    }

    pub fn put<'a, 'b: 'a>(&'a self, refs: &'a (KeyRefs<'b>, KeyRefs<'b>)) -> Put<'a> {
        Put {
            keys: &refs.0,
            shared: &refs.1,
            priority: self.priority,
            delay: self.delay,
            dedup: self.dedup.as_ref().map(|text| text.to_str().unwrap_or_default()),
            barrier: self.barrier,
            size: self.size,
            quiet: self.quiet,
            ..Put::default()
        }
    }
}

#[inline]
fn named_keys<'py>(
    given: Option<&Bound<'py, PyAny>>,
    of: Option<&Py<PyAny>>,
    payload: &Bound<'py, PyAny>,
    call: &str,
    argument: &str,
) -> PyResult<Keys<'py>> {
    match (given, of) {
        (Some(keys), _) => convert::keys(keys, call, argument),
        (None, None) => Ok(Keys::new()),
        (None, Some(of)) => {
            let keys = of.bind(payload.py()).call1((payload,))?;
            convert::keys(&keys, call, &format!("{argument}(payload)"))
        }
    }
}

fn priority(value: &Bound<'_, PyAny>, call: &str) -> PyResult<i8> {
    let name = || format!("{call}: priority");
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<pyo3::types::PyBool>() {
        return Err(wrong_type(&name(), value, "int from -100 to 100"));
    }
    match value.extract::<i64>() {
        Ok(number @ -100..=100) => Ok(number as i8),
        _ => Err(PyValueError::new_err(format!(
            "{} is {}; allowed: -100 to 100",
            name(),
            value.repr()?
        ))),
    }
}

fn dedup<'py>(value: &Bound<'py, PyAny>, call: &str) -> PyResult<Option<Bound<'py, PyString>>> {
    let Ok(text) = value.cast::<PyString>() else {
        return Err(wrong_type(&format!("{call}: dedup"), value, "str or None"));
    };
    if text.to_str().is_err() {
        let error = format!("{call}: dedup holds a lone surrogate; it must encode as UTF-8");
        return Err(PyValueError::new_err(error));
    }
    Ok(Some(text.clone()))
}

/// What the payload counts against `maxbytes`.
fn size(queue: &Queue, payload: &Bound<'_, PyAny>, call: &str) -> PyResult<u64> {
    if let Some(sizeof) = &queue.sizeof {
        let size = sizeof.bind(payload.py()).call1((payload,))?;
        let name = format!("{call}: sizeof(payload)");
        if !size.is_instance_of::<PyInt>() {
            return Err(wrong_type(&name, &size, "int, bytes"));
        }
        return size.extract::<u64>().map_err(|_| {
            PyValueError::new_err(format!("{name} is {size}; allowed: 0 or more bytes"))
        });
    }
    if let Ok(text) = payload.cast::<PyString>() {
        return Ok(text.to_str().map_or(0, str::len) as u64);
    }
    let sized = payload.is_instance_of::<PyBytes>()
        || payload.is_instance_of::<PyByteArray>()
        || payload.is_instance_of::<PyMemoryView>();
    if sized {
        return Ok(payload.len()? as u64);
    }
    Err(PyTypeError::new_err(format!(
        "{call}: the queue is bounded by bytes, and the payload is {}; allowed: bytes, str, or any \
         type where the queue is made with sizeof=",
        payload.get_type().name()?
    )))
}
