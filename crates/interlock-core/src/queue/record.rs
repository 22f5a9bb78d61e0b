//! Recording: every call with its time, so that a schedule can be replayed (clause 20).

use crate::queue::trace::{Call, Step};
use crate::queue::types::Time;

#[derive(Debug, Default)]
pub struct Recorder {
    steps: Vec<Step>,
}

impl Recorder {
    pub(super) fn note(&mut self, now: Time, call: Call) {
        self.steps.push(Step { now, call });
    }

    pub fn into_steps(self) -> Vec<Step> {
        self.steps
    }
}
