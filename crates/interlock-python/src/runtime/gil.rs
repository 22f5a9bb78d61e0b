//! Data that the GIL guards needs no lock of its own.
//!
//! Every call into a queue's core is made with the GIL held, and no call gives it up half-way:
//! payloads are dropped, wakers called and Python objects made outside the core's lock. So the lock
//! between threads, whose two atomic operations would be a fifth of what a `put` costs, has no
//! other thread to keep out. Its replacement only notices a call made within a call, which would be
//! a bug.
//!
//! So an interpreter without a GIL is refused: `interlock/__init__.py` does so at the import (it
//! would not find this module, which is built for the stable ABI, and give no reason), and this
//! file where the module is built for such an interpreter itself, as pip does where no wheel fits.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use interlock_core::sync::{GuardNoSend, RawLock};
use pyo3::prelude::*;

// An object of a free-threaded interpreter has a longer head; PyO3 does not hand on how it is built.
const _: () = assert!(
    std::mem::size_of::<pyo3::ffi::PyObject>() == 2 * std::mem::size_of::<usize>(),
    "Interlock does not support free-threaded Python: the GIL guards its queues. Build it with an \
     interpreter that has the GIL"
);

/// The lock of what is only come to with the GIL held, for as long as it is.
pub struct GilLock(AtomicBool);

/// A mutex around data that only those who hold the GIL come to.
pub type GilMutex<T> = interlock_core::sync::Mutex<T, GilLock>;

/// A queue as the binding holds it.
pub type Core = interlock_core::queue::Queue<Py<PyAny>, GilLock>;

// SAFETY: the caller holds the GIL until it has unlocked, so that no other thread can; a call
// within a call is refused. The flag is atomic for the type's sake alone: plain loads and stores.
unsafe impl RawLock for GilLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: GilLock = GilLock(AtomicBool::new(false));
    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        assert!(self.try_lock(), "entered from within");
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && {
            self.0.store(true, Ordering::Relaxed);
            true
        }
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Calls with proof for PyO3 that this thread holds the GIL, as every caller does. `Python::attach`
/// would ask the interpreter first, and that considers itself never started once it tears down its
/// modules: when the last destructors still call us.
#[inline]
pub fn told<R>(call: impl for<'py> FnOnce(Python<'py>) -> R) -> R {
    // SAFETY: the GIL is held, so that the interpreter is there.
    unsafe { Python::attach_unchecked(call) }
}

/// A value read and written with the GIL held, whole: nothing of it is lent out.
pub struct GilCell<T>(UnsafeCell<T>);

// SAFETY: its methods take proof that the GIL is held, and no reference to the value outlives them.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    pub const fn new(value: T) -> Self {
        GilCell(UnsafeCell::new(value))
    }

    #[inline]
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    #[inline]
    pub fn replace(&self, _: Python<'_>, value: T) -> T {
        // SAFETY: as above.
        std::mem::replace(unsafe { &mut *self.0.get() }, value)
    }

    /// `look` must not run Python code.
    #[inline]
    pub fn with<R>(&self, _: Python<'_>, look: impl FnOnce(&T) -> R) -> R {
        // SAFETY: as above, and nothing runs that could come back for it.
        look(unsafe { &*self.0.get() })
    }

    /// `change` must not run Python code.
    #[inline]
    pub fn with_mut<R>(&self, _: Python<'_>, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as above.
        change(unsafe { &mut *self.0.get() })
    }
}
