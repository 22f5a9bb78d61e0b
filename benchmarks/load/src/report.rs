//! The line that is printed.

use std::fmt::Write;

/// Counts of what was wrong with what came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Never came, or came with other bytes.
    pub lost: u64,
    /// Came after a later one of its publisher, or twice.
    pub misordered: u64,
}

/// A flat JSON object of numbers.
#[derive(Default)]
pub struct Line(String);

impl Line {
    pub fn with(mut self, name: &str, value: impl Into<f64>) -> Self {
        let comma = if self.0.is_empty() { "" } else { ", " };
        write!(self.0, "{comma}\"{name}\": {}", value.into()).expect("a string has room");
        self
    }

    pub fn faults(self, faults: Faults) -> Self {
        self.with("lost", faults.lost as f64).with("misordered", faults.misordered as f64)
    }

    pub fn finish(self) -> String {
        format!("{{{}}}", self.0)
    }
}
