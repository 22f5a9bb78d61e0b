//! Who waits: for a message, for room, for the queue to drain. No wake is lost and none is needless.
//!
//! A waiter is *parked* until it is *called*; it then comes back to the lock and looks for itself, so
//! that whoever is quicker may take what it was called for. Two things hold after every change:
//!
//! 1. while a message is ready and a parked waiter would take it, a called waiter that would take it
//!    is on its way; the same for room, one waiter at a time; a put that waits with a dedup string is
//!    called when any string becomes known, for a known one needs no room (clause 13);
//! 2. while something falls due later, one parked waiter, the timekeeper, sleeps no longer than that.
//!
//! Room that becomes free is anybody's, so that a full queue does not hand the processor from one
//! producer to the next for each message; but those who wait for it are passed at most `PASSES` times
//! in a row. Then a put queues up behind them, or else is told that the queue is full.
//!
//! A called waiter that leaves without taking anything (its time was up, its thread was interrupted)
//! comes through the same place, so that both are made true again.
//!
//! How to wait with a waker of one's own, as a future does:
//!
//! ```
//! use std::task::Waker;
//! use interlock_core::queue::types::{Kind, Options, Time};
//! use interlock_core::queue::waiters::{Wait, Want};
//! use interlock_core::queue::{scheduler::Put, Look, Queue};
//!
//! let queue = Queue::new(Options::default());
//! let mut wait = Wait::new(Want::Message(Kind::Any), Time::MAX);
//! let mut look = || queue.get_or_wait(Kind::Any, 1, |payload, _| *payload, &mut wait, Waker::noop());
//! assert!(matches!(look(), Look::Sleep(Time::MAX)));
//! queue.put(&Put::default(), 7).unwrap(); // wakes the waker
//! assert!(matches!(look(), Look::Found((_, 7))));
//! queue.give_up(&mut wait); // what a future's drop must do; here there is nothing to give up
//! ```

use std::collections::BTreeMap;
use std::task::Waker;

use crate::queue::scheduler::Scheduler;
use crate::queue::types::{Kind, Time};

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Message(Kind),
    /// Room for so many messages, of so many bytes in all.
    Room(usize, u64),
    /// Nothing unsettled.
    Drained,
}

/// One wait, from the first look to the last; it keeps its place in line over several calls.
#[derive(Debug)]
pub struct Wait {
    want: Want,
    /// When to give up; `Time::MAX`: never.
    pub deadline: Time,
    number: Option<u64>,
    named: bool,
}

impl Wait {
    pub fn new(want: Want, deadline: Time) -> Self {
        Wait { want, deadline, number: None, named: false }
    }

    /// It slept at least once and has not come to its end.
    pub fn is_parked(&self) -> bool {
        self.number.is_some()
    }

    pub fn want(&self) -> Want {
        self.want
    }

    /// What a put still lacks; `named`: a dedup string of it may become known, and then it lacks less.
    pub(super) fn wants_room(&mut self, count: usize, size: u64, named: bool) {
        self.want = Want::Room(count, size);
        self.named = named;
    }
}

#[derive(Debug)]
struct Parked {
    want: Want,
    waker: Waker,
    deadline: Time,
    /// It waits for room with a dedup string.
    named: bool,
}

#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// In the order of their first park, so that one called in vain is first in line again.
    lines: [BTreeMap<u64, Parked>; LINES],
    called: [usize; LINES],
    parked: usize,
    next: u64,
    /// Waits up to this number are of the process this one was forked from.
    foreign: u64,
    /// Puts that took room since the first of those who wait for it came to be the first.
    passed: u32,
    /// Dedup strings put so far, as far as those who wait for room with one were told.
    names: u64,
    /// The parked waiter that wakes when something falls due, and when.
    timekeeper: Option<(u64, Time)>,
    /// Waiters to be woken once the lock is free.
    pub wakes: Vec<Waker>,
}

/// How often in a row somebody who waits for room may be passed.
const PASSES: u32 = 64;

const LINES: usize = 5;
const ANY: usize = 0;
const KEYED: usize = 1;
const UNKEYED: usize = 2;
const ROOM: usize = 3;
const DRAINED: usize = 4;

fn line(want: Want) -> usize {
    match want {
        Want::Message(Kind::Any) => ANY,
        Want::Message(Kind::Keyed) => KEYED,
        Want::Message(Kind::Unkeyed) => UNKEYED,
        Want::Room(..) => ROOM,
        Want::Drained => DRAINED,
    }
}

impl Waiters {
    /// Nobody waits; a wait of those before, should it come back, is nobody's.
    pub fn afresh(&self) -> Self {
        Waiters { next: self.next, foreign: self.next, ..Waiters::default() }
    }

    #[inline]
    pub fn none_parked(&self) -> bool {
        self.parked == 0
    }

    pub fn parked(&self) -> usize {
        self.parked
    }

    pub fn parked_for_messages(&self) -> usize {
        self.lines[..ROOM].iter().map(BTreeMap::len).sum()
    }

    pub fn for_each_waker(&self, visit: impl FnMut(&Waker)) {
        self.lines.iter().flat_map(BTreeMap::values).map(|parked| &parked.waker).for_each(visit);
    }

    /// Somebody else waits for room, and has waited for longer.
    fn ahead(&self, wait: Option<&Wait>) -> bool {
        let mine = wait.and_then(|wait| wait.number);
        let first = self.lines[ROOM].first_key_value().map(|(&number, _)| number);
        self.called[ROOM] > 0 || first.is_some_and(|first| mine.is_none_or(|mine| first < mine))
    }

    /// Whether a put that finds room leaves it to those who wait for some.
    #[inline]
    pub fn must_queue(&self, wait: Option<&Wait>) -> bool {
        self.passed >= PASSES && self.ahead(wait)
    }

    /// A put found room.
    #[inline]
    pub fn took_room(&mut self, wait: Option<&Wait>) {
        self.passed = if self.ahead(wait) { self.passed.saturating_add(1) } else { 0 };
    }

    /// The waiter is back, called or not.
    pub fn back(&mut self, wait: &mut Wait) {
        let Some(number) = wait.number else { return };
        if number <= self.foreign {
            wait.number = None;
            return;
        }
        let line = line(wait.want);
        if self.lines[line].remove(&number).is_some() {
            self.parked -= 1;
            self.forget_timekeeper(number);
        } else {
            self.called[line] -= 1;
        }
    }

    /// The waiter sleeps: until when at the latest.
    pub fn park(&mut self, wait: &mut Wait, waker: Waker, due: Option<Time>) -> Time {
        let number = *wait.number.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        let Wait { want, deadline, named, .. } = *wait;
        self.lines[line(want)].insert(number, Parked { want, waker, deadline, named });
        self.parked += 1;
        match due {
            Some(due) if self.timekeeper.is_none_or(|(_, at)| at > due) => {
                self.timekeeper = Some((number, due));
                deadline.min(due)
            }
            _ => deadline,
        }
    }

    fn forget_timekeeper(&mut self, number: u64) {
        if self.timekeeper.is_some_and(|(keeper, _)| keeper == number) {
            self.timekeeper = None;
        }
    }

    fn call(&mut self, line: usize, number: u64) {
        if let Some(parked) = self.lines[line].remove(&number) {
            self.parked -= 1;
            self.called[line] += 1;
            self.forget_timekeeper(number);
            self.wakes.push(parked.waker);
        }
    }

    fn first(&self, line: usize) -> Option<u64> {
        self.lines[line].first_key_value().map(|(&number, _)| number)
    }

    fn call_all(&mut self, line: usize) {
        while let Some(number) = self.first(line) {
            self.call(line, number);
        }
    }

    /// Those whose time is up by a clock that has no alarm.
    pub fn call_late(&mut self, now: Time) {
        (0..LINES).for_each(|line| self.call_those(line, |parked| parked.deadline <= now));
    }

    fn call_those(&mut self, line: usize, which: impl Fn(&Parked) -> bool) {
        let those = self.lines[line].iter().filter(|(_, parked)| which(parked));
        for number in those.map(|(&number, _)| number).collect::<Vec<_>>() {
            self.call(line, number);
        }
    }

    /// Makes both invariants true again; called after every change, under the lock.
    #[inline]
    pub fn balance<P>(&mut self, scheduler: &Scheduler<P>, closed: bool, alarms: bool) {
        if self.parked > 0 {
            self.balance_parked(scheduler, closed, alarms);
        }
    }

    fn balance_parked<P>(&mut self, scheduler: &Scheduler<P>, closed: bool, alarms: bool) {
        for (kind, own) in [(Kind::Keyed, KEYED), (Kind::Unkeyed, UNKEYED)] {
            while self.called[ANY] + self.called[own] < scheduler.ready(kind) {
                let (any, only) = (self.first(ANY), self.first(own));
                match (any, only) {
                    (Some(any), Some(only)) if any < only => self.call(ANY, any),
                    (_, Some(only)) => self.call(own, only),
                    (Some(any), None) => self.call(ANY, any),
                    (None, None) => break,
                }
            }
        }
        let drained = scheduler.unsettled() == 0;
        if drained {
            self.call_all(DRAINED);
            if closed {
                (ANY..ROOM).for_each(|line| self.call_all(line));
            }
        }
        if self.names != scheduler.names() {
            self.names = scheduler.names();
            self.call_those(ROOM, |parked| parked.named);
        }
        if closed {
            self.call_all(ROOM);
        } else if self.called[ROOM] == 0 {
            let first = self.lines[ROOM].first_key_value().map(|(&number, p)| (number, p.want));
            if let Some((number, Want::Room(count, size))) = first {
                if scheduler.room(count, size).is_ok() {
                    self.call(ROOM, number);
                }
            }
        }
        if alarms || scheduler.has_leftovers() {
            // What one call could not ready does not wait for a clock to be moved.
            self.keep_time(scheduler.next_due());
        }
    }

    fn keep_time(&mut self, due: Option<Time>) {
        let Some(due) = due else { return };
        if self.timekeeper.is_some_and(|(_, at)| at <= due) || self.called.iter().any(|&n| n > 0) {
            return;
        }
        let first = (0..LINES).find_map(|line| self.first(line).map(|number| (line, number)));
        if let Some((line, number)) = first {
            self.call(line, number);
        }
    }
}
