//! Objects that hold each other in long chains (a lease whose payload is a lease whose payload is a
//! lease…) are freed one after the other, and not one within the other, for which the stack is too short.
//! The interpreter does so for its own containers, by means that it does not hand on.
//!
//! An object that comes to its end deep within the ends of others is kept, and freed when those have
//! come up to a certain depth again. (The depth is counted for all threads together: while a destructor
//! of Python waits, others may come to their ends. Then some are freed a little later.)

use pyo3::ffi::PyObject;
use pyo3::prelude::*;

use crate::queue::lease_batch::Message;
use crate::runtime::gil::GilCell;

/// Ends within each other.
const MOST: u32 = 64;

static DEPTH: GilCell<u32> = GilCell::new(0);
static LATE: GilCell<Vec<Late>> = GilCell::new(Vec::new());

/// An object or messages to be freed later.
pub enum Late {
    /// An object to which nobody refers, that the collector does not know, and what frees it.
    Object(*mut PyObject, unsafe fn(*mut PyObject)),
    Messages(Vec<Message>),
}

// SAFETY: the pointer is used with the GIL held only.
unsafe impl Send for Late {}

/// Returns whether what comes to its end now is to be freed later.
#[inline]
pub fn is_deep(py: Python<'_>) -> bool {
    DEPTH.with(py, |depth| *depth >= MOST)
}

#[cold]
pub fn later(py: Python<'_>, late: Late) {
    LATE.with_mut(py, |all| all.push(late));
}

/// Runs what frees something, within which other things may come to their ends.
#[inline]
pub fn nested(py: Python<'_>, free: impl FnOnce()) {
    let depth = DEPTH.with_mut(py, |depth| {
        *depth += 1;
        *depth
    });
    free();
    if depth == MOST {
        free_late(py);
    }
    DEPTH.with_mut(py, |depth| *depth -= 1);
}

#[cold]
fn free_late(py: Python<'_>) {
    while let Some(late) = LATE.with_mut(py, Vec::pop) {
        match late {
            // SAFETY: as it was left: nobody refers to the object, and it is freed once.
            Late::Object(object, free) => unsafe { free(object) },
            Late::Messages(messages) => drop(messages),
        }
    }
}
