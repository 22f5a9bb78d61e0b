//! The cost of a call, in steps and in memory, never in time (clause 21).
//!
//! | module | what is counted |
//! |---|---|
//! | `readying` | successors readied, and things due applied, by one call |
//! | `memory` | bytes at a peak of a million, and after it; allocations of a queue that breathes |
//! | `watching` | calls after which all that has waited too long is known |
//! | `questions` | allocations of an explanation; its steps are counted beside its code |
//!
//! Allocations are counted for each thread on its own, so that the tests run side by side.

#![cfg(not(shuttle))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use interlock_core::key::KeyRef;
use interlock_core::queue::parts::watch::Watch;
use interlock_core::queue::scheduler::{Grant, Put, Scheduler};
use interlock_core::queue::types::{Kind, Options, Retry, Time};

mod memory;
mod questions;
mod readying;
mod watching;

struct Counting;

thread_local! {
    /// Bytes allocated and not yet freed, and allocations so far, of this thread.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MADE: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: isize, made: usize) {
    // A thread that ends frees its own thread-locals; nobody reads its counts any more.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
    let _ = MADE.try_with(|count| count.set(count.get() + made));
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize, 1);
        // SAFETY: as promised by our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize, 1);
        // SAFETY: as promised by our caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize), 0);
        // SAFETY: as promised by our caller.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize, 1);
        // SAFETY: as promised by our caller.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MILLION: u64 = 1_000_000;

fn endless() -> Options {
    let retry = Retry { attempts: None, first: 0, jitter: false, ..Retry::default() };
    Options { retry, dedup_window: 0, ..Options::default() }
}

/// A scheduler of numbers that stands at one time unless it is moved.
struct Subject {
    scheduler: Scheduler<u64>,
    now: Time,
}

impl Subject {
    fn new(options: Options) -> Self {
        Subject { scheduler: Scheduler::new(options, Watch::off()), now: 1 }
    }

    fn put(&mut self, put: &Put<'_>) -> u64 {
        // A microsecond each, so that times of puts are kept as they would be in life.
        self.now += 1;
        self.scheduler.put(self.now, put, &mut Some(7)).expect("there is no bound").id
    }

    fn put_on(&mut self, key: u64) -> u64 {
        let key = key.to_be_bytes();
        self.put(&Put { keys: &[KeyRef::new(&key)], ..Put::default() })
    }

    fn share(&mut self, key: u64) -> u64 {
        let key = key.to_be_bytes();
        self.put(&Put { shared: &[KeyRef::new(&key)], ..Put::default() })
    }

    fn lease(&mut self) -> Option<Grant> {
        self.scheduler.lease(self.now, Kind::Any, 0)
    }

    fn ack(&mut self, grant: &Grant) {
        self.scheduler.ack(self.now, grant.handle).expect("the lease stands");
    }

    /// Handles one message after the other until nothing is left.
    fn drain(&mut self) {
        while self.scheduler.unsettled() > 0 {
            match self.lease() {
                Some(grant) => self.ack(&grant),
                None => {
                    let due = self.scheduler.next_due().expect("something is left to come");
                    self.now = self.now.max(due);
                }
            }
        }
    }

    fn ready(&self) -> usize {
        self.scheduler.ready(Kind::Any)
    }
}
