//! The rising series of numbers for ids and sequences, and the times at which they were given.

use crate::queue::parts::index::PutTimes;
use crate::queue::types::Time;

#[derive(Debug)]
pub struct Numbers {
    /// Numbers are times, where time is ahead of them: see `engine`.
    by_time: bool,
    /// The next number to give.
    next: u64,
    /// The first number that it gives.
    first: u64,
    /// Every unsettled id is at or above it.
    oldest: u64,
    put_times: PutTimes,
}

impl Numbers {
    /// From 1 on.
    pub fn new() -> Self {
        let put_times = PutTimes::default();
        Numbers { by_time: false, next: 1, first: 1, oldest: 1, put_times }
    }

    /// The larger of the last one plus 1 and the time, µs.
    pub fn by_time() -> Self {
        Numbers { by_time: true, ..Numbers::new() }
    }

    #[inline]
    pub fn are_times(&self) -> bool {
        self.by_time
    }

    #[inline]
    pub fn next(&self) -> u64 {
        self.next
    }

    #[inline]
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Returns whether none was given since its beginning.
    #[inline]
    pub fn are_unused(&self) -> bool {
        self.next == self.first
    }

    #[inline]
    pub fn draw(&mut self, now: Time) -> u64 {
        let number = if self.by_time { self.next.max(now) } else { self.next };
        self.next = number + 1;
        number
    }

    /// Draws several that follow each other, where numbers are not times; returns the first.
    #[inline]
    pub fn draw_many(&mut self, count: u64) -> u64 {
        debug_assert!(!self.by_time, "times may be ahead of the numbers");
        self.next += count;
        self.next - count
    }

    /// Notes the time of a number, where numbers are not times. Returns true if times may have
    /// become forgettable.
    #[inline]
    pub fn note(&mut self, number: u64, now: Time) -> bool {
        !self.by_time && self.put_times.note(number, now)
    }

    /// Returns the time at which a number was given.
    #[inline]
    pub fn time_of(&self, number: u64) -> Time {
        if self.by_time {
            return number;
        }
        self.put_times.at(number)
    }

    /// Drops everything before this number: no caller can ask for it any more.
    #[inline]
    pub fn forget_before(&mut self, oldest: u64) {
        self.oldest = oldest;
        self.put_times.forget(oldest);
    }

    /// Continues the series from here as if it began.
    pub fn go_on_from(&mut self, next: u64) {
        (self.next, self.first, self.oldest) = (next, next, next);
    }

    pub fn bytes(&self) -> usize {
        self.put_times.bytes()
    }

    /// The numbers from which times hold, each with its time; and the last of all times.
    pub fn times(&self) -> (impl ExactSizeIterator<Item = (u64, Time)> + '_, Time) {
        (self.put_times.entries(), self.put_times.until())
    }

    pub fn restore(&mut self, next: u64, oldest: u64) {
        (self.next, self.oldest) = (next, oldest);
    }

    pub fn restore_times(&mut self, entries: Vec<(u64, Time)>, until: Time) {
        self.put_times.restore(entries, until);
    }

    /// Sets whether any number given before still counts.
    pub fn restore_used(&mut self, used: bool) {
        self.first = if used { 0 } else { self.next };
    }
}
