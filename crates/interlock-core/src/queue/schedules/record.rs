//! Recording: every call with its time, so that a schedule can be replayed (clause 20).
//!
//! ```
//! use interlock_core::queue::{scheduler::Put, types::Options, Queue};
//!
//! let queue = Queue::new(Options::default());
//! assert!(queue.call(|scheduler, _| scheduler.record()), "nothing was called before");
//! queue.put(&Put::default(), "mail").unwrap();
//! let schedule = queue.call(|scheduler, _| scheduler.recording()).unwrap();
//! assert!(schedule.to_string().contains(" put"));
//! ```

use crate::queue::schedules::trace::{Call, Step};
use crate::queue::types::Time;

#[derive(Debug, Default)]
pub struct Recorder {
    steps: Vec<Step>,
}

impl Recorder {
    pub(in crate::queue) fn note(&mut self, now: Time, call: Call) {
        self.steps.push(Step { now, call });
    }

    pub fn into_steps(self) -> Vec<Step> {
        self.steps
    }
}
