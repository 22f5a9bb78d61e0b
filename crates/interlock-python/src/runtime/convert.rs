//! Keys, times and flags from Python.

use std::ffi::c_long;
use std::fmt;

use interlock_core::key::KeyRef;
use interlock_core::limits::{MAX_KEYS, MAX_KEY_BYTES};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDelta, PyFloat, PyFrozenSet, PyInt, PyList, PyMemoryView,
    PyString, PyTuple,
};
use pyo3::Borrowed;
use smallvec::SmallVec;

use crate::runtime::errors::{wrong_type, wrong_value};

/// The place of a value, as errors name it: `put(): keys`, `put_many(): keys(items[3])`. Its text
/// is made for an error only.
#[derive(Clone, Copy)]
pub struct Argument<'a> {
    pub call: &'a str,
    pub name: &'a str,
    pub of: Of,
}

/// The part of an argument that it was.
#[derive(Clone, Copy)]
pub enum Of {
    /// Itself.
    Call,
    /// The value that a callable gave for the payload.
    Payload,
    /// The value that a callable gave for a payload of a batch.
    Item(usize),
    /// One of a list.
    Each(usize),
}

impl fmt::Display for Argument<'_> {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Argument { call, name, of } = self;
        match of {
            Of::Call => write!(text, "{call}: {name}"),
            Of::Payload => write!(text, "{call}: {name}(payload)"),
            Of::Item(i) => write!(text, "{call}: {name}(items[{i}])"),
            Of::Each(i) => write!(text, "{call}: {name}[{i}]"),
        }
    }
}

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
    quick_each(value.as_borrowed(), |key| keys.push(key)).then_some(keys)
}

/// Like `quick`, for each key. If it returns false, `push` was not called with all keys.
#[inline(always)]
pub fn quick_each<'a>(value: Borrowed<'a, '_, PyAny>, mut push: impl FnMut(KeyRef<'a>)) -> bool {
    if let Some(key) = quick_key(value) {
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
    quick_bytes(text).map(KeyRef::new)
}

/// The bytes of an exact str that can be a key.
#[inline]
pub fn quick_bytes<'a>(text: Borrowed<'a, '_, PyAny>) -> Option<&'a [u8]> {
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
    (!bytes.is_empty() && bytes.len() <= MAX_KEY_BYTES).then_some(bytes)
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
        digits(value, &name)?
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
        n if n > MAX_KEY_BYTES => Err(PyValueError::new_err(format!(
            "{} is {n} bytes; allowed: up to {MAX_KEY_BYTES}",
            name()
        ))),
        _ => Ok(key),
    }
}

fn digits<'py>(value: &Bound<'py, PyAny>, name: impl Fn() -> String) -> PyResult<KeyBytes<'py>> {
    let Ok(number) = value.extract::<i64>() else {
        let int = value.py().get_type::<PyInt>();
        // More bits than any allowed number of digits has: the interpreter may refuse to write them all.
        if int.call_method1("bit_length", (value,))?.extract::<usize>()? > MAX_KEY_BYTES * 4 {
            let text = "is an int of more digits than a key may have bytes; allowed: up to";
            return Err(PyValueError::new_err(format!("{} {text} {MAX_KEY_BYTES}", name())));
        }
        // Uses the method of `int` itself, because a subclass may override it (and run other code).
        let text = int.call_method1("__repr__", (value,))?;
        return Ok(KeyBytes::Long(text.extract()?));
    };
    let mut buffer = [0; 20];
    let length = decimal(number, &mut buffer).len();
    Ok(KeyBytes::Digits(buffer, length as u8))
}

/// A number as a key: its digits, at the end of the buffer.
#[inline]
pub fn decimal(number: i64, buffer: &mut [u8; 20]) -> &[u8] {
    let (mut at, mut rest) = (20, number.unsigned_abs());
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
    &buffer[at..]
}

/// `keys=` or `shared=`: one key or an iterable of keys; a str is always one key.
pub fn keys<'py>(value: &Bound<'py, PyAny>, argument: Argument<'_>) -> PyResult<Keys<'py>> {
    let mut keys = Keys::new();
    let name = |i: usize| format!("{argument}[{i}]");
    if let Ok(tuple) = value.cast::<PyTuple>() {
        hint_mixed(tuple, argument)?;
        check_count(tuple.len(), argument)?;
        for (i, item) in tuple.iter_borrowed().enumerate() {
            keys.push(key(&item, || name(i))?);
        }
    } else if let Ok(list) = value.cast::<PyList>() {
        for (i, item) in list.iter().enumerate() {
            check_count(i + 1, argument)?;
            keys.push(key(&item, || name(i))?);
        }
    } else if value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyInt>()
    {
        keys.push(key(value, || argument.to_string())?);
    } else if gives_bytes(value) {
        return Err(wrong_type(&argument.to_string(), value, BYTES_HINT));
    } else {
        for (i, item) in iterated(value, &argument.to_string(), KEYS_ALLOWED)?.enumerate() {
            check_count(i + 1, argument)?;
            keys.push(key(&item?, || name(i))?);
        }
    }
    Ok(keys)
}

const KEYS_ALLOWED: &str = "a key (str, bytes, int) or an iterable of keys";
const BYTES_HINT: &str =
    "a key (str, bytes, int) or an iterable of keys; bytes(...) makes one key of it";

/// The iterator of what should be iterable. What its own code raises reaches the caller.
pub fn iterated<'py>(
    value: &Bound<'py, PyAny>,
    argument: &str,
    allowed: &str,
) -> PyResult<Bound<'py, pyo3::types::PyIterator>> {
    value.try_iter().map_err(|error| {
        // Uses the type's slots: for a class whose metaclass has `__iter__`, such as an enum, the attribute
        // would be found too. SAFETY: the GIL is held, and the type lives as long as the object.
        let iterable = unsafe {
            let class = value.get_type_ptr();
            !ffi::PyType_GetSlot(class, ffi::Py_tp_iter).is_null()
                || ffi::PySequence_Check(value.as_ptr()) == 1
        };
        match error.is_instance_of::<PyTypeError>(value.py()) && !iterable {
            true => wrong_type(argument, value, allowed),
            false => error,
        }
    })
}

/// Returns whether it is a buffer of single bytes, which would be iterated as that many numbers,
/// each a key.
pub fn gives_bytes(value: &Bound<'_, PyAny>) -> bool {
    if value.is_instance_of::<PyByteArray>() || value.is_instance_of::<PyMemoryView>() {
        return true;
    }
    // SAFETY: the GIL is held. A buffer that was given is given back, and only its head is looked at.
    unsafe {
        if ffi::PyObject_CheckBuffer(value.as_ptr()) == 0 {
            return false;
        }
        let mut buffer = ffi::Py_buffer::new();
        if ffi::PyObject_GetBuffer(value.as_ptr(), &mut buffer, ffi::PyBUF_FULL_RO) < 0 {
            ffi::PyErr_Clear();
            return false;
        }
        let single = buffer.itemsize == 1;
        ffi::PyBuffer_Release(&mut buffer);
        single
    }
}

fn check_count(count: usize, argument: Argument<'_>) -> PyResult<()> {
    if count <= MAX_KEYS {
        return Ok(());
    }
    let text = format!("{argument} names more than {MAX_KEYS} keys; allowed: {MAX_KEYS}");
    Err(PyValueError::new_err(text))
}

/// `("room", 7)` looks like one key of two parts, but would be two keys that every room shares.
fn hint_mixed(tuple: &Bound<'_, PyTuple>, argument: Argument<'_>) -> PyResult<()> {
    if tuple.len() < 2 {
        return Ok(());
    }
    let text = tuple.iter_borrowed().any(|item| item.is_instance_of::<PyString>());
    if text && tuple.iter_borrowed().any(|item| item.is_instance_of::<PyInt>()) {
        return Err(PyTypeError::new_err(format!(
            "{argument} is a tuple that mixes str and int, {}; for one key write \
             f\"room:{{id}}\", for several use a list",
            tuple.repr()?
        )));
    }
    Ok(())
}

/// A Python int. Ids of a queue in this process are below 2^30 as a rule; for these the call for a C `long`
/// is twice as quick as the one for an unsigned number.
#[inline]
pub fn int(py: Python<'_>, number: u64) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the GIL is held; either call returns an owned reference, or null with an exception set.
    unsafe {
        let int = match c_long::try_from(number) {
            Ok(number) => ffi::PyLong_FromLong(number),
            Err(_) => ffi::PyLong_FromUnsignedLongLong(number),
        };
        Bound::from_owned_ptr_or_err(py, int)
    }
}

/// The canonical bytes of a key, as every engine sees it. `name`: what an error calls it.
#[pyfunction]
#[pyo3(signature = (value, name = "key"))]
pub fn canonical<'py>(
    py: Python<'py>,
    value: &Bound<'py, PyAny>,
    name: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, key(value, || name.to_owned())?.as_bytes()))
}

/// The canonical bytes of one key or an iterable of keys, as `call` takes them for its argument `name`.
#[pyfunction]
pub fn canonical_keys<'py>(
    py: Python<'py>,
    value: &Bound<'py, PyAny>,
    call: &str,
    name: &str,
) -> PyResult<Bound<'py, PyTuple>> {
    let keys = keys(value, Argument { call, name, of: Of::Call })?;
    PyTuple::new(py, keys.iter().map(|key| PyBytes::new(py, key.as_bytes())))
}

/// The truth that an `if` would make of an argument, as `queue.Queue` judges `block`.
pub struct Truth(pub bool);

impl<'py> FromPyObject<'_, 'py> for Truth {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        value.is_truthy().map(Truth)
    }
}

/// A flag of our own, where a word that happens to be true is a mistake; `None` is as if not given.
pub fn flag(value: Option<&Bound<'_, PyAny>>, call: &str, name: &str) -> PyResult<bool> {
    let Some(value) = value else { return Ok(false) };
    value.extract::<bool>().map_err(|_| wrong_type(&format!("{call}: {name}"), value, "bool"))
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
    } else if value.is_instance_of::<PyFloat>() {
        value.extract::<f64>()?
    } else if value.is_instance_of::<PyInt>() {
        match value.extract::<f64>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                let negative = value.lt(0)?;
                f64::INFINITY.copysign(if negative { -1.0 } else { 1.0 })
            }
            seconds => seconds?,
        }
    } else {
        return Err(wrong_type(argument, value, "seconds as a number, or a timedelta"));
    };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(wrong_value(argument, value, "0 or more"));
    }
    // A cast saturates, so that infinity is the end of time.
    Ok((seconds * 1e6).round() as u64)
}
