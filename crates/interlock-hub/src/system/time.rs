//! The time of the hub's own doings: intervals, not dates.

use std::sync::LazyLock;
use std::time::Instant;

/// µs of a clock that does not step back.
pub type Time = u64;

/// Returns the time since this was first asked.
pub fn now() -> Time {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_micros() as Time
}
