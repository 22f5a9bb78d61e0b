//! Time, µs since the Unix epoch: the system's, or one that a test moves by hand.
//!
//! There are two. Durations use [`Clock::now`]: the wall clock read once, plus the monotonic clock since, so it
//! never steps. Dates use [`Clock::wall`]: the wall clock as far as [`WallClock`] believes it. A precise reading costs 29 ns here and a coarse one (to 4 ms) 7 ns, so that a queue
//! in which nothing falls due reads the coarse one.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::wall_clock::{Change, Reading, WallClock, STEP};

/// Microseconds since the Unix epoch; a scheduler never lets it fall.
pub type Time = u64;

#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    /// Stands still until it is moved.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    pub fn manual(start: Time) -> Self {
        Clock::Manual(Arc::new(AtomicU64::new(start)))
    }

    pub fn is_manual(&self) -> bool {
        matches!(self, Clock::Manual(_))
    }

    #[inline]
    pub fn now(&self) -> Time {
        match self {
            Clock::System => *EPOCH + monotonic(),
            // Acquire and release: who sees the new time also sees what was done before the move.
            Clock::Manual(now) => now.load(Ordering::Acquire),
        }
    }

    /// The time for dates, never for order: it follows the wall clock, and so may fall, once a jump has lasted.
    pub fn wall(&self) -> Time {
        match self {
            Clock::System => believed_wall(),
            Clock::Manual(_) => self.now(),
        }
    }

    /// Returns the time at which the monotonic clock was zero; `None`: a manual clock has none.
    pub fn epoch(&self) -> Option<Time> {
        matches!(self, Clock::System).then(|| *EPOCH)
    }

    /// Judges the wall clock. To be called each second, so that a jump is noticed though nobody asks for a date.
    pub fn read_wall(&self) -> Reading {
        match self {
            Clock::System => judge(&mut WALL.lock(), system_wall(), boot()),
            Clock::Manual(_) => Reading { time: self.now(), is_stable: true },
        }
    }

    /// Returns and clears the changes of the wall clock since the last call.
    pub fn take_changes(&self) -> Vec<Change> {
        match self {
            Clock::System => WALL.lock().take_changes(),
            Clock::Manual(_) => Vec::new(),
        }
    }

    /// Number of jumps of the wall clock in the life of the process, and µs by which it is ahead of `wall` while
    /// a jump is not followed.
    pub fn jumps(&self) -> (u64, i64) {
        match self {
            Clock::System => {
                let wall = WALL.lock();
                (wall.jumps(), wall.distrusted())
            }
            Clock::Manual(_) => (0, 0),
        }
    }

    /// Like `now`, but up to a few milliseconds behind.
    #[inline]
    pub fn coarse(&self) -> Time {
        match self {
            Clock::System => *EPOCH + coarse_monotonic(),
            Clock::Manual(_) => self.now(),
        }
    }

    /// Advances a manual clock, and returns whether it is one. Queues that wait on it must be
    /// notified.
    pub fn advance(&self, by: u64) -> bool {
        match self {
            Clock::System => false,
            Clock::Manual(now) => {
                now.fetch_add(by, Ordering::Release);
                true
            }
        }
    }
}

/// Wall-clock time at which the monotonic clock stood at zero.
static EPOCH: LazyLock<Time> = LazyLock::new(|| system_wall().saturating_sub(monotonic()));

/// The system has one wall clock, so the process has one judgement of it.
static WALL: Mutex<WallClock> = Mutex::new(WallClock::new());
/// From elapsed time to the wall clock while no jump is pending, else `UNSETTLED`: what saves the lock.
static SETTLED: AtomicI64 = AtomicI64::new(UNSETTLED);
const UNSETTLED: i64 = i64::MIN;

fn believed_wall() -> Time {
    let (wall, elapsed) = (system_wall(), boot());
    // Relaxed: it guards nothing, and who sees an older one judges by that.
    let settled = SETTLED.load(Ordering::Relaxed);
    let seen = wall.cast_signed() - elapsed.cast_signed();
    // Half of it: what has drifted further is noted before it would seem to be a jump.
    if settled != UNSETTLED && seen.abs_diff(settled) <= STEP / 2 {
        return wall;
    }
    judge(&mut WALL.lock(), wall, elapsed).time
}

fn judge(clock: &mut WallClock, wall: Time, elapsed: Time) -> Reading {
    let reading = clock.read(wall, elapsed);
    SETTLED.store(clock.settled().unwrap_or(UNSETTLED), Ordering::Relaxed);
    reading
}

fn system_wall() -> Time {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as Time)
}

#[cfg(target_os = "linux")]
#[inline]
fn read(clock: libc::clockid_t) -> Time {
    let mut spec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `spec` is a valid place for the answer; these clocks exist on every Linux we run on.
    unsafe { libc::clock_gettime(clock, &mut spec) };
    spec.tv_sec as Time * 1_000_000 + spec.tv_nsec as Time / 1000
}

#[cfg(target_os = "linux")]
#[inline]
fn monotonic() -> Time {
    read(libc::CLOCK_MONOTONIC)
}

#[cfg(target_os = "linux")]
#[inline]
fn coarse_monotonic() -> Time {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Elapsed time, the sleep of the machine counted.
#[cfg(target_os = "linux")]
fn boot() -> Time {
    read(libc::CLOCK_BOOTTIME)
}

#[cfg(not(target_os = "linux"))]
fn boot() -> Time {
    monotonic()
}

#[cfg(not(target_os = "linux"))]
fn monotonic() -> Time {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    START.elapsed().as_micros() as Time
}

#[cfg(not(target_os = "linux"))]
fn coarse_monotonic() -> Time {
    monotonic()
}

#[cfg(test)]
mod tests {
    use crate::clock::*;

    #[test]
    fn a_coarse_reading_is_never_ahead_and_a_manual_clock_does_not_move() {
        let clock = Clock::System;
        let coarse = clock.coarse();
        assert!(coarse <= clock.now());
        let manual = Clock::manual(5);
        assert_eq!((manual.now(), manual.coarse()), (5, 5));
        assert!(manual.advance(10));
        assert_eq!(manual.now(), 15);
        assert!(!clock.advance(10));
    }
}
