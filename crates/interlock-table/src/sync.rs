//! Atomic words and fences, from the platform or, under `--cfg loom`, from the model checker.

pub use std::sync::atomic::Ordering;

#[cfg(loom)]
pub use loom::sync::atomic::{fence, AtomicU64};
#[cfg(not(loom))]
pub use std::sync::atomic::{fence, AtomicU64};

/// Lets other threads run, in a loop that waits for a word to change.
#[inline]
pub fn spin() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
