//! The arguments of a put, taken from Python before any lock: user code (an iterator of keys, a
//! callable of the payload) may run here and nowhere later.

use interlock_core::limits::{MAX_KEYS, MAX_LIMIT_NAMES, MAX_TEXT};
use interlock_core::queue::calls::coalesce::Coalesce;
use interlock_core::queue::scheduler::Put;
use interlock_core::queue::types::limits::BETWEEN;
use interlock_core::queue::types::Behind;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyInt, PyMemoryView, PyString};
use pyo3::Borrowed;

use crate::queue::Queue;
use crate::runtime::convert;
use crate::runtime::convert::{flag, Argument, KeyBytes, KeyRefs, Keys, Of};
use crate::runtime::errors::{wrong_type, wrong_value};
use crate::runtime::exit;

/// The keyword arguments of a put, as they came; `None` is as if not given.
#[derive(Default)]
pub struct PutArguments<'a, 'py> {
    pub keys: Option<&'a Bound<'py, PyAny>>,
    pub shared: Option<&'a Bound<'py, PyAny>>,
    pub priority: Option<&'a Bound<'py, PyAny>>,
    pub delay: Option<&'a Bound<'py, PyAny>>,
    pub dedup: Option<&'a Bound<'py, PyAny>>,
    pub barrier: Option<&'a Bound<'py, PyAny>>,
    pub quiet: Option<&'a Bound<'py, PyAny>>,
    pub limit: Option<&'a Bound<'py, PyAny>>,
    pub group: Option<&'a Bound<'py, PyAny>>,
    pub behind: Option<&'a Bound<'py, PyAny>>,
    pub coalesce: CoalesceArguments<'a, 'py>,
}

/// The keyword arguments of a coalescing put, as they came.
#[derive(Clone, Copy, Default)]
pub struct CoalesceArguments<'a, 'py> {
    pub coalesce: Option<&'a Bound<'py, PyAny>>,
    pub debounce: Option<&'a Bound<'py, PyAny>>,
    pub longest: Option<&'a Bound<'py, PyAny>>,
}

/// The same arguments, checked and canonical.
pub struct Named<'py> {
    keys: Keys<'py>,
    shared: Keys<'py>,
    priority: i8,
    delay: u64,
    dedup: Option<Bound<'py, PyString>>,
    barrier: bool,
    quiet: bool,
    size: u64,
    limit: Vec<u8>,
    group: Vec<u8>,
    behind: Option<Behind>,
    coalesce: Option<(KeyBytes<'py>, Times)>,
}

/// µs from each put of a coalescing name, and from the first one, until the message is due; 0: not given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    pub debounce: u64,
    pub within: u64,
}

/// The part of a `Named` that a `Put` borrows.
pub struct Refs<'a> {
    keys: KeyRefs<'a>,
    shared: KeyRefs<'a>,
    coalesce: Option<Coalesce<'a>>,
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
        let barrier = flag(put.barrier, call, "barrier")?;
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
        let coalesce = named_coalesce(put, barrier, call)?;
        check_keys(keys.len() + shared.len() + usize::from(coalesce.is_some()), call)?;
        Ok(Named {
            coalesce,
            keys,
            shared,
            priority: priority(put.priority, call)?,
            delay: delay(put.delay, call)?,
            dedup: dedup(put.dedup, || format!("{call}: dedup"))?,
            barrier,
            quiet: flag(put.quiet, call, "quiet")?,
            limit: limit_names(put.limit, || format!("{call}: limit"))?,
            group: group(put.group, || format!("{call}: group"))?,
            behind: behind(put.behind, || format!("{call}: behind"))?,
            size: if queue.bounds.1 > 0 { size(queue, payload, || call.to_owned())? } else { 0 },
        })
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn refs(&self) -> Refs<'_> {
        let coalesce = self.coalesce.as_ref();
        Refs {
            keys: convert::refs(&self.keys),
            shared: convert::refs(&self.shared),
            coalesce: coalesce.map(|(name, times)| times.of(name.as_bytes())),
        }
    }

    pub fn put<'a, 'b: 'a>(&'a self, refs: &'a Refs<'b>) -> Put<'a> {
        Put {
            keys: &refs.keys,
            shared: &refs.shared,
            coalesce: refs.coalesce.as_ref(),
            priority: self.priority,
            delay: self.delay,
            dedup: self.dedup.as_ref().map(|text| text.to_str().unwrap_or_default()),
            barrier: self.barrier,
            size: self.size,
            quiet: self.quiet,
            limit: &self.limit,
            group: &self.group,
            behind: self.behind,
            ..Put::default()
        }
    }
}

impl Times {
    pub fn of(self, name: &[u8]) -> Coalesce<'_> {
        let Times { debounce, within } = self;
        Coalesce { name, debounce, within, revision: 0 }
    }
}

/// The coalescing name of a put, with its times.
fn named_coalesce<'py>(
    put: &PutArguments<'_, 'py>,
    barrier: bool,
    call: &str,
) -> PyResult<Option<(KeyBytes<'py>, Times)>> {
    let times = times(&put.coalesce, put.delay, call)?;
    let Some(value) = put.coalesce.coalesce else { return Ok(None) };
    if put.dedup.is_some() {
        return Err(with_dedup(call));
    }
    if barrier {
        return Err(PyValueError::new_err(format!("{call}: coalesce with barrier")));
    }
    Ok(Some((name_of(value, || format!("{call}: coalesce"))?, times)))
}

pub fn with_dedup(call: &str) -> PyErr {
    PyValueError::new_err(format!("{call}: coalesce with dedup; a message has one of them"))
}

/// A coalescing name: one key.
pub fn name_of<'py>(
    value: &Bound<'py, PyAny>,
    name: impl Fn() -> String,
) -> PyResult<KeyBytes<'py>> {
    let is_key = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || (value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>());
    if !is_key {
        return Err(wrong_type(&name(), value, "a key (str, int or bytes)"));
    }
    convert::key(value, name)
}

/// Checks the times of a coalescing put.
pub fn times(
    put: &CoalesceArguments<'_, '_>,
    delay_given: Option<&Bound<'_, PyAny>>,
    call: &str,
) -> PyResult<Times> {
    let wrong = |text: &str| Err(PyValueError::new_err(format!("{call}: {text}")));
    let (debounce, longest) = match (put.debounce, put.longest) {
        (None, None) => return Ok(Times::default()),
        (None, Some(_)) => return wrong("longest without debounce"),
        (Some(_), _) if put.coalesce.is_none() => return wrong("debounce without coalesce"),
        (Some(_), None) => return wrong("debounce without longest"),
        (Some(debounce), Some(longest)) => (debounce, longest),
    };
    if delay(delay_given, call)? > 0 {
        return wrong("debounce with delay");
    }
    let name = format!("{call}: debounce");
    let span = convert::micros(debounce, &name)?;
    if span == 0 {
        return Err(wrong_value(&name, debounce, "more than 0 seconds"));
    }
    let name = format!("{call}: longest");
    let within = convert::micros(longest, &name)?;
    if within < span {
        let allowed = format!("debounce ({}) or more", debounce.repr()?);
        return Err(wrong_value(&name, longest, &allowed));
    }
    Ok(Times { debounce: span, within })
}

#[inline]
fn named_keys<'py>(
    given: Option<&Bound<'py, PyAny>>,
    of: Option<&Py<PyAny>>,
    payload: &Bound<'py, PyAny>,
    call: &str,
    name: &str,
) -> PyResult<Keys<'py>> {
    match (given, of) {
        (Some(keys), _) => convert::keys(keys, Argument { call, name, of: Of::Call }),
        (None, None) => Ok(Keys::new()),
        (None, Some(of)) => {
            let keys = called(of.bind(payload.py()), payload)?;
            convert::keys(&keys, Argument { call, name, of: Of::Payload })
        }
    }
}

/// A callable's answer for a payload.
pub fn called<'py>(
    callable: &Bound<'py, PyAny>,
    payload: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // The call of the stable ABI that makes no tuple.
    // SAFETY: objects, and a null at their end.
    unsafe {
        let end = std::ptr::null_mut::<ffi::PyObject>();
        let value = ffi::PyObject_CallFunctionObjArgs(callable.as_ptr(), payload.as_ptr(), end);
        Bound::from_owned_ptr_or_err(payload.py(), value)
    }
}

/// Checks how many keys a message names in all.
pub fn check_keys(count: usize, call: &str) -> PyResult<()> {
    if count <= MAX_KEYS {
        return Ok(());
    }
    let text = format!("{call}: keys and shared name {count} keys; allowed: {MAX_KEYS} in all");
    Err(PyValueError::new_err(text))
}

pub fn priority(value: Option<&Bound<'_, PyAny>>, call: &str) -> PyResult<i8> {
    let Some(value) = value else { return Ok(0) };
    let name = || format!("{call}: priority");
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(wrong_type(&name(), value, "int from -100 to 100"));
    }
    match value.extract::<i64>() {
        Ok(number @ -100..=100) => Ok(number as i8),
        _ => Err(wrong_value(&name(), value, "-100 to 100")),
    }
}

/// Limit names, joined as the scheduler takes them; empty: none.
pub fn limit_names(
    value: Option<&Bound<'_, PyAny>>,
    name: impl Fn() -> String,
) -> PyResult<Vec<u8>> {
    const ALLOWED: &str = "str or an iterable of str";
    let Some(value) = value else { return Ok(Vec::new()) };
    let mut names: Vec<String> = Vec::new();
    let mut add = |one: &Bound<'_, PyAny>| -> PyResult<()> {
        let Ok(text) = one.cast::<PyString>() else {
            return Err(wrong_type(&name(), one, ALLOWED));
        };
        let text = text.to_cow().map_err(|_| lone_surrogate(&name()))?;
        if text.is_empty() || text.as_bytes().contains(&BETWEEN) {
            return Err(wrong_value(&name(), one, "not empty, and without the character U+001F"));
        }
        names.push(text.into_owned());
        Ok(())
    };
    if value.is_instance_of::<PyString>() {
        add(value)?;
    } else if value.is_instance_of::<PyBytes>() {
        return Err(wrong_type(&name(), value, ALLOWED));
    } else {
        for one in convert::iterated(value, &name(), ALLOWED)? {
            add(&one?)?;
        }
    }
    names.sort_unstable();
    names.dedup();
    let joined = names.join("\u{1f}").into_bytes();
    if names.len() > MAX_LIMIT_NAMES || joined.len() > MAX_TEXT {
        let text = format!(
            "{} has {} names of {} bytes; allowed: {MAX_LIMIT_NAMES} names, {MAX_TEXT} bytes in all",
            name(),
            names.len(),
            joined.len()
        );
        return Err(PyValueError::new_err(text));
    }
    Ok(joined)
}

/// Reads the value of `behind`. `None`: as the queue says.
pub fn behind(
    value: Option<&Bound<'_, PyAny>>,
    name: impl Fn() -> String,
) -> PyResult<Option<Behind>> {
    let Some(value) = value else { return Ok(None) };
    let Ok(word) = value.cast::<PyString>() else {
        return Err(wrong_type(&name(), value, "str"));
    };
    let word = word.to_cow().unwrap_or_default();
    match Behind::ALL.into_iter().find(|one| one.word() == word) {
        Some(behind) => Ok(Some(behind)),
        None => Err(wrong_value(&name(), value, "wait, bury, cancel or park")),
    }
}

/// One limit name, or a group, of the usual type, as the scheduler takes it. `None`: it is not one.
#[inline]
pub fn quick_name<'a>(name: Borrowed<'a, '_, PyAny>) -> Option<&'a [u8]> {
    convert::quick_bytes(name).filter(|name| name.len() <= MAX_TEXT && !name.contains(&BETWEEN))
}

/// The group of a message; empty: it has none.
pub fn group(value: Option<&Bound<'_, PyAny>>, name: impl Fn() -> String) -> PyResult<Vec<u8>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let Ok(text) = value.cast::<PyString>() else {
        return Err(wrong_type(&name(), value, "str"));
    };
    let text = text.to_cow().map_err(|_| lone_surrogate(&name()))?;
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes.len() > MAX_TEXT || bytes.contains(&BETWEEN) {
        let allowed = "1 to 1,024 bytes without the character U+001F";
        return Err(wrong_value(&name(), value, allowed));
    }
    Ok(bytes.to_vec())
}

fn lone_surrogate(name: &str) -> PyErr {
    let error = format!("{name} holds a lone surrogate; allowed: what encodes as UTF-8");
    PyValueError::new_err(error)
}

/// µs.
pub fn delay(value: Option<&Bound<'_, PyAny>>, call: &str) -> PyResult<u64> {
    value.map_or(Ok(0), |value| convert::micros(value, &format!("{call}: delay")))
}

pub fn dedup<'py>(
    value: Option<&Bound<'py, PyAny>>,
    name: impl Fn() -> String,
) -> PyResult<Option<Bound<'py, PyString>>> {
    let Some(value) = value else { return Ok(None) };
    let Ok(text) = value.cast::<PyString>() else {
        return Err(wrong_type(&name(), value, "str or None"));
    };
    if text.to_str().is_err() {
        return Err(lone_surrogate(&name()));
    }
    Ok(Some(text.clone()))
}

/// Returns the size of the payload, as it counts against `maxbytes`.
pub fn size(queue: &Queue, payload: &Bound<'_, PyAny>, call: impl Fn() -> String) -> PyResult<u64> {
    if let Some(sizeof) = &queue.sizeof {
        let size = called(sizeof.bind(payload.py()), payload)?;
        let name = || format!("{}: sizeof(payload)", call());
        if !size.is_instance_of::<PyInt>() {
            return Err(wrong_type(&name(), &size, "int, bytes"));
        }
        let bytes = size.extract::<u64>();
        return bytes.map_err(|_| wrong_value(&name(), &size, "0 or more bytes"));
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
        "{}: the queue is bounded by bytes, and the payload is {}; allowed: bytes, str, or any \
         type where the queue is made with sizeof=",
        call(),
        payload.get_type().name()?
    )))
}
