//! Errors of the core as exceptions. The tree is written in Python and looked up once.

use interlock_core::queue::calls::coalesce::{Differs, Earlier};
use interlock_core::queue::scheduler::NoRoom;
use interlock_core::queue::Ended;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::runtime::once::Once;

static FULL: Once<Py<PyType>> = Once::new();
static EMPTY: Once<Py<PyType>> = Once::new();
static SHUT_DOWN: Once<Py<PyType>> = Once::new();
static LEASE_LOST: Once<Py<PyType>> = Once::new();
static WOULD_DEADLOCK: Once<Py<PyType>> = Once::new();

pub fn raise(py: Python<'_>, cell: &Once<Py<PyType>>, name: &str, text: String) -> PyErr {
    match cell.import(py, "interlock.errors", name) {
        Ok(class) => PyErr::from_type(class.clone(), (text,)),
        Err(error) => error,
    }
}

pub fn full(py: Python<'_>, most: usize, bytes: u64) -> PyErr {
    let bound = match (most, bytes) {
        (most, 0) => format!("maxsize={most}"),
        (0, bytes) => format!("maxbytes={bytes}"),
        (most, bytes) => format!("maxsize={most}, maxbytes={bytes}"),
    };
    raise(py, &FULL, "Full", format!("the queue is full ({bound}; leased messages count)"))
}

pub fn empty(py: Python<'_>) -> PyErr {
    raise(py, &EMPTY, "Empty", "no message is ready".to_owned())
}

pub fn shut_down(py: Python<'_>) -> PyErr {
    raise(py, &SHUT_DOWN, "ShutDown", "the queue is shut down".to_owned())
}

pub fn would_deadlock(py: Python<'_>, text: String) -> PyErr {
    raise(py, &WOULD_DEADLOCK, "WouldDeadlock", text)
}

pub fn lease_lost(py: Python<'_>, id: u64, token: u64) -> PyErr {
    let text = format!(
        "the lease of message {id} (token {token}) was settled, expired or was revoked; nothing \
         was changed"
    );
    raise(py, &LEASE_LOST, "LeaseLost", text)
}

/// A call's own lease: what settles it is the end of the call.
pub fn lease_lent(py: Python<'_>, id: u64) -> PyErr {
    let text = format!(
        "the executor settles the lease of message {id} when the call returns or raises; nothing \
         was changed"
    );
    raise(py, &LEASE_LOST, "LeaseLost", text)
}

pub fn lease_lost_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    LEASE_LOST.import(py, "interlock.errors", "LeaseLost")
}

/// Creates the exception of a future whose message became a dead letter before an attempt ended.
pub fn given_up(py: Python<'_>, id: u64) -> PyErr {
    let text = format!("message {id} was given up while it was handled: its lease was revoked");
    raise(py, &LEASE_LOST, "LeaseLost", text)
}

pub fn too_large(most: usize, bytes: u64) -> PyErr {
    PyValueError::new_err(format!(
        "the put is larger than the queue's bound and would never find room \
         (maxsize={most}, maxbytes={bytes}; 0 is no bound)"
    ))
}

/// A put that may not replace the payload that it would replace.
pub fn differs(Differs { message, what, earlier }: Differs) -> PyErr {
    let item = |at: usize| match at {
        0 => "the message".to_owned(),
        at => format!("items[{at}]"),
    };
    let earlier = match earlier {
        Earlier::Queued(id) => format!("message {id}"),
        Earlier::OfCall(at) => format!("items[{at}]"),
    };
    let (one, what) = (item(message), what.words());
    PyValueError::new_err(format!(
        "put(): {one} has another {what} than {earlier}, whose payload it would replace"
    ))
}

/// A put of a message that could be parked, while half of a bound of the queue is.
fn half_is_parked(py: Python<'_>, call: &str, queue: &str) -> PyErr {
    let text = format!(
        "{call}: half of the queue's bound is parked behind paused or held keys; resume or settle those \
         (interlock queue roots {queue})"
    );
    raise(py, &FULL, "Full", text)
}

pub fn refused(
    py: Python<'_>,
    call: &str,
    queue: &str,
    refused: NoRoom,
    bounds: (usize, u64),
) -> PyErr {
    match refused {
        NoRoom::Full => full(py, bounds.0, bounds.1),
        NoRoom::TooLarge => too_large(bounds.0, bounds.1),
        NoRoom::Differs(why) => differs(why),
        NoRoom::Stuck => half_is_parked(py, call, queue),
    }
}

/// A put that ended without its message being queued.
pub fn put_ended(
    py: Python<'_>,
    call: &str,
    queue: &str,
    ended: Ended,
    bounds: (usize, u64),
) -> PyErr {
    match ended {
        Ended::Parked => half_is_parked(py, call, queue),
        Ended::ShutDown => shut_down(py),
        // Only a get is ever stuck.
        Ended::TimedOut | Ended::Stuck => full(py, bounds.0, bounds.1),
        Ended::TooLarge => too_large(bounds.0, bounds.1),
        Ended::Differs(why) => differs(why),
    }
}

/// A get that ended without a message.
pub fn get_ended(py: Python<'_>, ended: Ended) -> PyErr {
    match ended {
        Ended::ShutDown => shut_down(py),
        _ => empty(py),
    }
}

/// `put(): keys[1] is float; allowed: str, bytes, int`
pub fn wrong_type(argument: &str, value: &Bound<'_, PyAny>, allowed: &str) -> PyErr {
    let name = value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{argument} is {name}; allowed: {allowed}"))
}

/// `put(): priority is 101; allowed: -100 to 100`
pub fn wrong_value(argument: &str, value: &Bound<'_, PyAny>, allowed: &str) -> PyErr {
    // A class may not print itself, nor the interpreter an int of thousands of digits.
    let shown = value.repr().map(|text| text.to_string_lossy().into_owned());
    let shown = shown.unwrap_or_else(|_| "out of range".to_owned());
    PyValueError::new_err(format!("{argument} is {shown}; allowed: {allowed}"))
}
