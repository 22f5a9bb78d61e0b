//! A waker that calls Python.
//!
//! It has a table of functions of its own, by which it is known among a queue's wakers: the garbage
//! collector must see what a parked coroutine holds, or a queue and the tasks that wait for it could
//! never be collected.

use std::sync::Arc;
use std::task::{RawWaker, RawWakerVTable, Waker};

use pyo3::prelude::*;

use crate::asyncio::aio::Waiter;
use crate::queue::wait::AtOnce;
use crate::runtime::exit;
use crate::runtime::gil::told;

/// Calls the waiter's callable. Calls into the core are made with the GIL held, and so is this.
pub struct Call {
    pub wait: Py<Waiter>,
}

static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, discard);

impl Call {
    pub fn waker(wait: Py<Waiter>) -> Waker {
        let data = Arc::into_raw(Arc::new(Call { wait })).cast();
        // SAFETY: the table's functions take what `Arc::into_raw` gave, and count references to it.
        unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) }
    }

    /// Returns the call that this waker makes, if it is one of ours.
    pub fn of(waker: &Waker) -> Option<&Call> {
        // SAFETY: only `waker` and `clone` use the table, with a `Call` that the waker keeps alive.
        std::ptr::eq(waker.vtable(), &TABLE).then(|| unsafe { &*waker.data().cast::<Call>() })
    }

    fn call(&self, py: Python<'_>) {
        exit::prepare();
        let _at_once = AtOnce::begin();
        let wait = self.wait.get();
        if let Err(error) = wait.call.call0(py) {
            // The loop is closed: nobody will come back for what this waiter was called for.
            wait.give_up(py);
            if !error.is_instance_of::<pyo3::exceptions::PyRuntimeError>(py) {
                error.write_unraisable(py, None);
            }
        }
    }
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: `data` came from `Arc::into_raw`, and the waker that is cloned keeps it alive.
    unsafe { Arc::increment_strong_count(data.cast::<Call>()) };
    RawWaker::new(data, &TABLE)
}

unsafe fn wake(data: *const ()) {
    told(|py| {
        // SAFETY: the waker is used up, and its reference with it.
        let call = unsafe { Arc::from_raw(data.cast::<Call>()) };
        call.call(py);
        // Dropped here, where it is known that the thread is attached, for it may be the last one.
        drop(call);
    });
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker keeps it alive during the call.
    told(|py| unsafe { &*data.cast::<Call>() }.call(py));
}

unsafe fn discard(data: *const ()) {
    // SAFETY: the waker is gone, and its reference with it.
    drop(unsafe { Arc::from_raw(data.cast::<Call>()) });
}
