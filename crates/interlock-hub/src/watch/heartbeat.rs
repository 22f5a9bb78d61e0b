//! Beats that show whether the workers are alive: each is sent one now and then, and counts those
//! it answered.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One entry per worker.
pub struct Beats {
    each: Vec<Beat>,
}

/// Relaxed: a beat says nothing about other memory.
#[derive(Default)]
struct Beat {
    sent: AtomicU64,
    answered: AtomicU64,
}

impl Beats {
    pub fn new(workers: usize) -> Self {
        Beats { each: (0..workers).map(|_| Beat::default()).collect() }
    }

    /// The worker's own word.
    pub fn answer(&self, worker: usize) {
        self.each[worker].answered.fetch_add(1, Relaxed);
    }

    /// Returns how many beats each worker has answered.
    pub fn answered(&self) -> Vec<u64> {
        self.each.iter().map(|beat| beat.answered.load(Relaxed)).collect()
    }

    /// Returns whether the worker has answered what it was sent. If so it is to be sent another:
    /// one that hangs is owed nothing new, or its mailbox would grow for as long as it hangs.
    pub fn next(&self, worker: usize) -> bool {
        let beat = &self.each[worker];
        let alive = beat.answered.load(Relaxed) == beat.sent.load(Relaxed);
        if alive {
            beat.sent.fetch_add(1, Relaxed);
        }
        alive
    }
}
