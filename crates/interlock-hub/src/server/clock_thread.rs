//! The thread that watches the wall clock: a jump is noticed and logged though nobody asks for a date.

use std::time::Duration;

use interlock_core::wall_clock::{Change, FOLLOW, STABLE};

use crate::server::stop::Stop;
use crate::shared::events::Level;
use crate::shared::Shared;

/// Until it is stopped.
pub fn watch(shared: &Shared, stop: &Stop) {
    loop {
        let clock = shared.queues.clock();
        clock.read_wall();
        for change in clock.take_changes() {
            let (level, text) = line(change);
            shared.events.log(level, text);
        }
        if stop.within(TICK) {
            return;
        }
    }
}

fn line(change: Change) -> (Level, String) {
    let seconds = |by: i64| format!("{:+.3} s", by as f64 / 1e6);
    let (follow, stable) = (FOLLOW / 1_000_000, STABLE / 60_000_000);
    match change {
        Change::Jumped(by) => (
            Level::Warning,
            format!(
                "clock: the system clock jumped by {}; dates and timetables follow if that lasts for {follow} s, and \
                 nothing is deleted by age until the clock has been stable for {stable} min",
                seconds(by)
            ),
        ),
        Change::Followed(by) => (
            Level::Warning,
            format!("clock: dates and timetables follow the jump of {}", seconds(by)),
        ),
        Change::Returned(by) => (
            Level::Info,
            format!("clock: the system clock was set back to the time before the jump ({})", seconds(by)),
        ),
    }
}

const TICK: Duration = Duration::from_secs(1);
