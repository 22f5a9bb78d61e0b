//! A value that is made at its first use and kept as long as its place.
//!
//! PyO3's `PyOnceLock` gives up the GIL while it notes that the value is being made. Another thread
//! may fork then: in the child nothing finishes it, and every user of the value waits for ever.
//! Here no thread waits. Creating the value may run Python code, and so two threads, or a thread
//! within its own creation, may do it at once: the first that finishes counts.

use std::cell::UnsafeCell;

use pyo3::prelude::*;
use pyo3::type_object::PyTypeCheck;
use pyo3::types::{PyDelta, PyList};

use crate::runtime::clock::ManualClock;

/// A value that is made once, with the GIL held.
pub struct Once<T>(UnsafeCell<Option<T>>);

// SAFETY: it is written and looked at with the GIL held only, and a value that is there stays as it is
// for as long as it is lent out.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    pub const fn new() -> Self {
        Once(UnsafeCell::new(None))
    }

    #[inline]
    pub fn get(&self, _: Python<'_>) -> Option<&T> {
        // SAFETY: the GIL is held, and nobody changes a value that is there.
        unsafe { (*self.0.get()).as_ref() }
    }

    /// Sets the value; returns it as an error if one is already set.
    pub fn set(&self, py: Python<'_>, value: T) -> Result<(), T> {
        if self.get(py).is_some() {
            return Err(value);
        }
        // SAFETY: the GIL is held, nothing is there that could be lent out, and nothing is dropped.
        unsafe { *self.0.get() = Some(value) };
        Ok(())
    }

    #[inline]
    pub fn get_or_try_init<E>(
        &self,
        py: Python<'_>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        match self.get(py) {
            Some(value) => Ok(value),
            None => self.made(py, make()?),
        }
    }

    #[inline]
    pub fn get_or_init(&self, py: Python<'_>, make: impl FnOnce() -> T) -> &T {
        let made = self.get_or_try_init(py, || Ok::<T, std::convert::Infallible>(make()));
        made.unwrap_or_else(|never| match never {})
    }

    #[cold]
    fn made<E>(&self, py: Python<'_>, value: T) -> Result<&T, E> {
        let _late = self.set(py, value);
        Ok(self.get(py).expect("set just now, or before"))
    }
}

impl<T: PyTypeCheck> Once<Py<T>> {
    /// Something of a Python module.
    #[inline]
    pub fn import<'py>(
        &self,
        py: Python<'py>,
        module: &str,
        name: &str,
    ) -> PyResult<&Bound<'py, T>> {
        let import = || PyResult::Ok(py.import(module)?.getattr(name)?.cast_into()?.unbind());
        Ok(self.get_or_try_init(py, import)?.bind(py))
    }
}

/// Has PyO3 make what it keeps in locks of its own, while the module is loaded: a type of `datetime`, names
/// of attributes, a function of `operator`.
pub fn make_early(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<ManualClock>();
    let _ = py.None().bind(py).cast::<PyDelta>().is_ok();
    let _ = (class.name()?, class.qualname()?, class.module()?, class.fully_qualified_name()?);
    let _ = PyList::empty(py).try_iter()?.collect::<PyResult<Vec<_>>>()?;
    // An argument of a wrong type is noted on the error.
    let _ = class.call1((class.clone(),)).is_err();
    Ok(())
}
