//! Stops a thread that sleeps between two checks.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Ends the thread.
#[derive(Default)]
pub struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for that time at most; returns whether it was stopped within it.
    pub fn within(&self, time: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.changed.wait_for(&mut stopped, time);
        }
        *stopped
    }
}
