//! The table's time, in nanoseconds: the boot clock, so that setting a clock neither expires a row
//! nor keeps it. A table in a file adds an offset, which continues its time after a reboot of the
//! machine.
//!
//! It is read at the resolution of the kernel's tick (1 to 10 ms): that is five times as fast as a precise reading.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// A source of time: the system's, or one that a test moves by hand.
#[derive(Clone, Debug, Default)]
pub enum Source {
    #[default]
    System,
    Manual(Arc<AtomicU64>),
}

#[derive(Debug)]
pub struct Clock {
    source: Source,
    /// Added to the boot clock to get the table's time.
    offset: u64,
    /// Time at which `asleep` was last measured, by the monotonic clock.
    measured: AtomicU64,
    /// Difference between the boot clock and the monotonic clock: the time that the machine has slept.
    asleep: AtomicU64,
}

/// The longest tick of a kernel, ns. A coarse reading may be behind by that much.
pub const COARSEST: u64 = 10_000_000;
/// Time for which `asleep` is not measured again, ns. After a sleep, rows may live longer by this.
const TRUSTED: u64 = 10_000_000;

impl Clone for Clock {
    fn clone(&self) -> Clock {
        Clock::new(self.source.clone(), self.offset)
    }
}

impl Clock {
    pub fn new(source: Source, offset: u64) -> Clock {
        let clock =
            Clock { source, offset, measured: AtomicU64::new(0), asleep: AtomicU64::new(0) };
        clock.measure(read(libc::CLOCK_MONOTONIC_COARSE));
        clock
    }

    #[inline]
    pub fn now(&self) -> u64 {
        if let Source::Manual(now) = &self.source {
            return now.load(Relaxed);
        }
        let now = read(libc::CLOCK_MONOTONIC_COARSE);
        // Relaxed: another thread's measurement is as good.
        if now.saturating_sub(self.measured.load(Relaxed)) > TRUSTED {
            self.measure(now);
        }
        now.wrapping_add(self.asleep.load(Relaxed)).wrapping_add(self.offset)
    }

    #[cold]
    fn measure(&self, now: u64) {
        // In a time namespace the difference may be negative.
        let asleep = boot().wrapping_sub(read(libc::CLOCK_MONOTONIC));
        // Two consecutive readings differ by less. Ignoring such changes keeps the time from falling.
        let changed = asleep.wrapping_sub(self.asleep.load(Relaxed)).cast_signed();
        if changed.unsigned_abs() > 1_000_000 {
            self.asleep.store(asleep, Relaxed);
        }
        self.measured.store(now, Relaxed);
    }
}

/// Returns the time since the machine started, including sleep.
pub fn boot() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Returns the time since 1970.
pub fn real() -> u64 {
    read(libc::CLOCK_REALTIME)
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure outlives the call. These clocks exist on every kernel that this crate knows.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use crate::memory::clock::*;

    #[test]
    fn time_is_the_boot_clock_plus_an_offset_and_never_falls() {
        let clock = Clock::new(Source::System, 1 << 60);
        let mut last = 0;
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        assert!((boot() + (1 << 60)).abs_diff(last) < 1_000_000_000);
        let hand = Arc::new(AtomicU64::new(5));
        let clock = Clock::new(Source::Manual(hand.clone()), 0);
        hand.store(7, Relaxed);
        assert_eq!(clock.now(), 7);
    }
}
