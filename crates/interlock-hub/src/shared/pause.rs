//! CLIENT PAUSE: requests that wait until a moment, or until somebody ends that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::catalog::Command;
use crate::system::time::Time;

/// Relaxed throughout: who misses a beginning or an end by a moment was a moment earlier.
#[derive(Default)]
pub struct Pause {
    /// Time at which the pause ends; 0: no pause.
    until: AtomicU64,
    writes_only: AtomicBool,
    /// Worker and token of each connection that waits. Its lock decides between the end of a pause and
    /// who comes just then.
    waiting: Mutex<Vec<(usize, u64)>>,
}

impl Pause {
    /// From now on; what was longer, or held more, stays so.
    pub fn begin(&self, until: Time, writes_only: bool) {
        let _waiting = self.waiting.lock();
        let before = self.until.load(Relaxed);
        self.writes_only
            .store(writes_only && (before == 0 || self.writes_only.load(Relaxed)), Relaxed);
        self.until.store(until.max(before).max(1), Relaxed);
    }

    /// Returns whether this command waits.
    #[inline]
    pub fn holds(&self, command: &Command) -> bool {
        self.until.load(Relaxed) != 0 && self.concerns(command)
    }

    #[cold]
    fn concerns(&self, command: &Command) -> bool {
        // Or nobody could end it.
        if command.categories.contains(&"@admin") {
            return false;
        }
        let calls =
            command.categories.contains(&"@queue") && !command.categories.contains(&"@read");
        let writes = calls || PUBLISHES.contains(&command.name);
        writes || !self.writes_only.load(Relaxed)
    }

    /// False: it has ended meanwhile.
    #[must_use]
    pub fn wait(&self, worker: usize, token: u64) -> bool {
        let mut waiting = self.waiting.lock();
        let goes_on = self.until.load(Relaxed) != 0;
        if goes_on {
            waiting.push((worker, token));
        }
        goes_on
    }

    /// Drops a connection that has closed.
    pub fn forget(&self, worker: usize, token: u64) {
        self.waiting.lock().retain(|&one| one != (worker, token));
    }

    /// Returns the remaining time, µs.
    pub fn rest(&self, now: Time) -> Option<Time> {
        let until = self.until.load(Relaxed);
        (until != 0).then(|| until.saturating_sub(now))
    }

    /// Returns the connections whose requests are done now, if it is over.
    pub fn ended(&self, now: Time) -> Vec<(usize, u64)> {
        // Most turns during a pause find it still in force, without taking its lock.
        match self.rest(now) {
            Some(0) => self.end_if(|| self.rest(now) == Some(0)),
            _ => Vec::new(),
        }
    }

    pub fn end(&self) -> Vec<(usize, u64)> {
        self.end_if(|| true)
    }

    /// Asks under the lock: somebody may have made it longer just now.
    fn end_if(&self, ends: impl FnOnce() -> bool) -> Vec<(usize, u64)> {
        let mut waiting = self.waiting.lock();
        if !ends() {
            return Vec::new();
        }
        self.until.store(0, Relaxed);
        std::mem::take(&mut waiting)
    }
}

/// Redis counts them among the writes for this.
const PUBLISHES: [&str; 3] = ["publish", "spublish", "log"];
