//! Forks: what was made before one is not this process's own.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Returns the number of forks between the process that loaded the module and this one.
#[inline]
pub fn generation() -> u32 {
    // Relaxed: written in the child while it has one thread.
    FORKS.load(Ordering::Relaxed)
}

/// Called in the child of a fork.
#[pyfunction]
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
