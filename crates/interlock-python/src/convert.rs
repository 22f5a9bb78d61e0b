//! Keys and times from Python.

use interlock_core::key::{KeyRef, MAX_KEY, MAX_KEYS};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyDelta, PyFloat, PyFrozenSet, PyInt, PyList, PyString, PyTuple,
};
use pyo3::Borrowed;
use smallvec::SmallVec;

use crate::errors::wrong_type;

/// A key's bytes, kept alive by what they are borrowed from.
pub enum KeyBytes<'py> {
    Str(Bound<'py, PyString>),
    Bytes(Bound<'py, PyBytes>),
    /// Decimal digits, at the end of the buffer.
    Digits([u8; 20], u8),
    Long(String),
}

pub type Keys<'py> = SmallVec<[KeyBytes<'py>; 4]>;
pub type KeyRefs<'a> = SmallVec<[KeyRef<'a>; 4]>;

impl KeyBytes<'_> {
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            // Checked when it was taken; the UTF-8 form is cached by the str.
            KeyBytes::Str(text) => text.to_str().map_or(&[], str::as_bytes),
            KeyBytes::Bytes(bytes) => bytes.as_bytes(),
            KeyBytes::Digits(buffer, length) => &buffer[20 - *length as usize..],
            KeyBytes::Long(digits) => digits.as_bytes(),
        }
    }
}

pub fn refs<'a>(keys: &'a [KeyBytes<'_>]) -> KeyRefs<'a> {
    keys.iter().map(|key| KeyRef::new(key.as_bytes())).collect()
}

/// The keys of the usual calls, borrowed where they lie: a str, or a tuple of a few of them. `None`: look
/// closer. Nothing of Python may run while they are used.
pub fn quick<'a>(value: &'a Bound<'_, PyAny>) -> Option<KeyRefs<'a>> {
    let mut keys = KeyRefs::new();
    quick_each(value, |key| keys.push(key)).then_some(keys)
}

/// As `quick`; where it answers false, what was given to `push` is not all.
#[inline(always)]
pub fn quick_each<'a>(value: &'a Bound<'_, PyAny>, mut push: impl FnMut(KeyRef<'a>)) -> bool {
    if let Some(key) = quick_key(value.as_borrowed()) {
        push(key);
        return true;
    }
    let Ok(tuple) = value.cast_exact::<PyTuple>() else { return false };
    if tuple.len() > 16 {
        return false;
    }
    for i in 0..tuple.len() {
        // SAFETY: within the length of a tuple, which cannot change and is held by the caller.
        let item = unsafe {
            Borrowed::from_ptr(
                value.py(),
                ffi::PyTuple_GetItem(tuple.as_ptr(), i as ffi::Py_ssize_t),
            )
        };
        match quick_key(item) {
            Some(key) => push(key),
            None => return false,
        }
    }
    true
}

#[inline]
pub fn quick_key<'a>(text: Borrowed<'a, '_, PyAny>) -> Option<KeyRef<'a>> {
    // SAFETY: an exact str, held by the caller; its UTF-8 form lives as long as it does.
    let bytes: &'a [u8] = unsafe {
        if ffi::PyUnicode_CheckExact(text.as_ptr()) == 0 {
            return None;
        }
        let mut length = 0;
        let start = ffi::PyUnicode_AsUTF8AndSize(text.as_ptr(), &mut length);
        if start.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        std::slice::from_raw_parts(start.cast(), length as usize)
    };
    (!bytes.is_empty() && bytes.len() <= MAX_KEY).then(|| KeyRef::new(bytes))
}

const ALLOWED: &str = "str, bytes, int";

/// One key, canonical: `7`, `"7"` and `b"7"` are one. `name` says where it stood.
pub fn key<'py>(value: &Bound<'py, PyAny>, name: impl Fn() -> String) -> PyResult<KeyBytes<'py>> {
    let key = if let Ok(text) = value.cast::<PyString>() {
        if text.to_str().is_err() {
            return Err(PyValueError::new_err(format!(
                "{} holds a lone surrogate; a str key must encode as UTF-8",
                name()
            )));
        }
        KeyBytes::Str(text.clone())
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        KeyBytes::Bytes(bytes.clone())
    } else if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        digits(value)?
    } else if let Ok(pair) = value.cast::<PyTuple>() {
        return Err(PyTypeError::new_err(format!(
            "{} is tuple; allowed: {ALLOWED}; to join the parts of {} in one key, write a str \
             such as f\"room:{{id}}\"",
            name(),
            pair.repr()?
        )));
    } else {
        return Err(wrong_type(&name(), value, ALLOWED));
    };
    match key.as_bytes().len() {
        0 => Err(PyValueError::new_err(format!("{} is empty; a key has at least a byte", name()))),
        n if n > MAX_KEY => {
            Err(PyValueError::new_err(format!("{} is {n} bytes; allowed: up to {MAX_KEY}", name())))
        }
        _ => Ok(key),
    }
}

fn digits<'py>(value: &Bound<'py, PyAny>) -> PyResult<KeyBytes<'py>> {
    let Ok(number) = value.extract::<i64>() else {
        // Of `int` itself, for a subclass may print itself otherwise (and run code of its own).
        let int = value.py().get_type::<PyInt>();
        let text = int.call_method1("__repr__", (value,))?;
        return Ok(KeyBytes::Long(text.extract()?));
    };
    let (mut buffer, mut at, mut rest) = ([0u8; 20], 20, number.unsigned_abs());
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    Ok(KeyBytes::Digits(buffer, (20 - at) as u8))
}

/// `keys=` or `shared=`: one key or an iterable of keys; a str is always one key.
pub fn keys<'py>(value: &Bound<'py, PyAny>, call: &str, argument: &str) -> PyResult<Keys<'py>> {
    let mut keys = Keys::new();
    let name = |i: usize| format!("{call}: {argument}[{i}]");
    if let Ok(tuple) = value.cast::<PyTuple>() {
        hint_mixed(tuple, call, argument)?;
        check_count(tuple.len(), call, argument)?;
        for (i, item) in tuple.iter_borrowed().enumerate() {
            keys.push(key(&item, || name(i))?);
        }
    } else if let Ok(list) = value.cast::<PyList>() {
        for (i, item) in list.iter().enumerate() {
            check_count(i + 1, call, argument)?;
            keys.push(key(&item, || name(i))?);
        }
    } else if value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyInt>()
    {
        keys.push(key(value, || format!("{call}: {argument}"))?);
    } else if let Ok(items) = value.try_iter() {
        for (i, item) in items.enumerate() {
            check_count(i + 1, call, argument)?;
            keys.push(key(&item?, || name(i))?);
        }
    } else {
        let argument = format!("{call}: {argument}");
        return Err(wrong_type(&argument, value, "a key (str, bytes, int) or an iterable of keys"));
    }
    Ok(keys)
}

fn check_count(count: usize, call: &str, argument: &str) -> PyResult<()> {
    if count <= MAX_KEYS {
        return Ok(());
    }
    let text = format!("{call}: {argument} names more than {MAX_KEYS} keys; allowed: {MAX_KEYS}");
    Err(PyValueError::new_err(text))
}

/// `("room", 7)` looks like one key of two parts, but would be two keys that every room shares.
fn hint_mixed(tuple: &Bound<'_, PyTuple>, call: &str, argument: &str) -> PyResult<()> {
    if tuple.len() < 2 {
        return Ok(());
    }
    let text = tuple.iter_borrowed().any(|item| item.is_instance_of::<PyString>());
    if text && tuple.iter_borrowed().any(|item| item.is_instance_of::<PyInt>()) {
        return Err(PyTypeError::new_err(format!(
            "{call}: {argument} is a tuple that mixes str and int, {}; for one key write \
             f\"room:{{id}}\", for several use a list",
            tuple.repr()?
        )));
    }
    Ok(())
}

/// The canonical bytes of a key, as every engine sees it.
#[pyfunction]
pub fn canonical<'py>(py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, key(value, || "key".to_owned())?.as_bytes()))
}

/// Keys as Python sees them: a frozenset of bytes.
pub fn frozen<'py>(
    py: Python<'py>,
    keys: impl Iterator<Item = Vec<u8>>,
) -> PyResult<Bound<'py, PyFrozenSet>> {
    let keys: Vec<Bound<'py, PyBytes>> = keys.map(|key| PyBytes::new(py, &key)).collect();
    PyFrozenSet::new(py, keys)
}

/// Seconds, a number or a timedelta, as µs. Negative ones and NaN are a ValueError.
pub fn micros(value: &Bound<'_, PyAny>, argument: &str) -> PyResult<u64> {
    let seconds = if let Ok(delta) = value.cast::<PyDelta>() {
        delta.call_method0("total_seconds")?.extract::<f64>()?
    } else if value.is_instance_of::<PyBool>() {
        return Err(wrong_type(argument, value, "seconds as a number, or a timedelta"));
    } else if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() {
        value.extract::<f64>()?
    } else {
        return Err(wrong_type(argument, value, "seconds as a number, or a timedelta"));
    };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!("{argument} is {seconds}; allowed: 0 or more")));
    }
    // A cast saturates, so that infinity is the end of time.
    Ok((seconds * 1e6).round() as u64)
}
