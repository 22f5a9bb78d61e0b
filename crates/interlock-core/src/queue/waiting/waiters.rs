//! Waiters: for a message, for room, for the queue to drain. No wake is lost and none is needless.
//!
//! A waiter is *parked* until it is *called*; it then comes back to the lock and looks for itself,
//! so that a quicker one may take what it was called for. Threads come by themselves; the tasks of
//! an event loop come only when the loop does, which may be busy, or stopped. So waiters form
//! *crowds*, the threads in one and the tasks of each loop in one. Two things hold after every
//! change, in each crowd:
//!
//! 1. while a message is ready and a parked waiter would take it, a called waiter that would take it
//!    is on its way: one of the same crowd, or a thread. The same for room, one waiter at a time; a put
//!    that waits with a dedup string is called when any string becomes known, for a known one needs no
//!    room (clause 13), and one with a coalescing name when it may have become one that replaces (clause 29);
//! 2. while something falls due later, one parked waiter, the timekeeper, sleeps no longer than that.
//!
//! Any put may take room that becomes free, so that a full queue does not hand the processor from
//! one producer to the next for each message, and so that those who must put before they settle can
//! continue; but at times it is kept for the first who waits: see [`room`](crate::queue::waiting::room).
//!
//! A called waiter that leaves without taking anything (its time was up, its thread was interrupted)
//! comes through the same place, so that both are made true again.
//!
//! How to wait with a waker of one's own, as a future does:
//!
//! ```
//! use std::task::Waker;
//! use interlock_core::queue::types::{Kind, Options, Time};
//! use interlock_core::queue::waiting::waiters::{Wait, Want};
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

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use crate::queue::scheduler::Scheduler;
use crate::queue::types::{Kind, Time};
use crate::queue::waiting::room::{Need, RoomLine};

/// The thing that a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Message(Kind),
    /// Room for this many messages, of this many bytes in all.
    Room(usize, u64),
    /// The queue has no unsettled message.
    Drained,
}

/// One wait, from the first look to the last; it keeps its place in line over several calls.
#[derive(Debug)]
pub struct Wait {
    want: Want,
    /// The time at which to give up; `Time::MAX`: never.
    pub deadline: Time,
    on: u64,
    number: Option<u64>,
    named: bool,
    /// Leases, (id, token), that the caller does not come to settle before this wait ends.
    pub holds: Vec<(u64, u64)>,
    /// For a message. True: after an immediate shutdown it waits as long as any message is unsettled.
    pub to_the_end: bool,
}

impl Wait {
    pub fn new(want: Want, deadline: Time) -> Self {
        let (on, holds) = (THREADS, Vec::new());
        Wait { want, deadline, on, number: None, named: false, holds, to_the_end: false }
    }

    /// A wait of a task, which comes only when its event loop does; `number` identifies the loop.
    ///
    /// ```
    /// # use std::task::Waker;
    /// # use interlock_core::queue::types::{Kind, Options, Time};
    /// # use interlock_core::queue::waiting::waiters::{Wait, Want};
    /// # use interlock_core::queue::{scheduler::Put, Look, Queue};
    /// let queue = Queue::new(Options::default());
    /// let mut wait = Wait::new(Want::Message(Kind::Any), Time::MAX).on_loop(7);
    /// let look = queue.get_or_wait(Kind::Any, 1, |payload, _| *payload, &mut wait, Waker::noop());
    /// assert!(matches!(look, Look::Sleep(_)));
    /// # queue.put(&Put::default(), 7).unwrap();
    /// # queue.give_up(&mut wait);
    /// ```
    pub fn on_loop(mut self, number: u64) -> Self {
        self.on = number;
        self
    }

    /// Another wait of the same caller.
    pub fn anew(&self, want: Want) -> Self {
        let Wait { deadline, on, ref holds, to_the_end, .. } = *self;
        Wait { want, deadline, on, number: None, named: false, holds: holds.clone(), to_the_end }
    }

    /// Returns whether it has slept and its wait has not ended.
    pub fn is_parked(&self) -> bool {
        self.number.is_some()
    }

    pub fn want(&self) -> Want {
        self.want
    }

    /// Sets the room that a put still lacks; `named`: a dedup string of it may become known, or a message be there
    /// whose payload it replaces, and then it lacks less.
    pub(in crate::queue) fn wants_room(&mut self, count: usize, size: u64, named: bool) {
        self.want = Want::Room(count, size);
        self.named = named;
    }
}

#[derive(Debug)]
struct Parked {
    waker: Waker,
    deadline: Time,
    /// True if it waits for room with a dedup string or a coalescing name.
    named: bool,
}

/// Waiters that come when one of them could.
#[derive(Debug, Default)]
struct Crowd {
    /// `THREADS`, or the number of a loop.
    on: u64,
    /// In the order of their first park, so that one called in vain is first in line again.
    lines: [BTreeMap<u64, Parked>; LINES],
    called: [usize; LINES],
    parked: usize,
    /// The parked waiter that wakes when something falls due, and when.
    timekeeper: Option<(u64, Time)>,
}

#[derive(Debug, Default)]
pub(in crate::queue) struct Waiters {
    threads: Crowd,
    loops: Vec<Crowd>,
    /// Puts that wait for room, parked or called.
    pub room: RoomLine,
    /// For those who wait for a message, without an end, the leases that they hold.
    holding: BTreeMap<u64, Vec<(u64, u64)>>,
    parked: usize,
    next: u64,
    /// Waits up to this number are of the process this one was forked from.
    foreign: u64,
    /// `Scheduler::names`, as far as those know who wait for room with a name.
    names: u64,
    /// Waiters to be woken once the lock is free.
    pub wakes: Vec<Waker>,
}

/// The crowd of the threads.
const THREADS: u64 = 0;

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

impl Crowd {
    fn remove(&mut self, line: usize, number: u64) -> Option<Parked> {
        let parked = self.lines[line].remove(&number)?;
        self.parked -= 1;
        if self.timekeeper.is_some_and(|(holder, _)| holder == number) {
            self.timekeeper = None;
        }
        Some(parked)
    }

    fn first(&self, line: usize) -> Option<u64> {
        self.lines[line].first_key_value().map(|(&number, _)| number)
    }

    /// Number of woken waiters that would take a message of one kind.
    fn coming(&self, own: usize) -> usize {
        self.called[ANY] + self.called[own]
    }

    /// Finds the one of them that waits longest for a message of one kind.
    fn longest(&self, own: usize) -> Option<(u64, usize)> {
        [ANY, own].into_iter().filter_map(|line| Some((self.first(line)?, line))).min()
    }

    fn is_left(&self) -> bool {
        self.parked == 0 && self.called == [0; LINES]
    }
}

impl Waiters {
    /// Returns an empty line. Waits that began before do not belong to it, such as the parent's after a fork.
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
        self.crowds().flat_map(|crowd| &crowd.lines[..ROOM]).map(BTreeMap::len).sum()
    }

    pub fn for_each_waker(&self, visit: impl FnMut(&Waker)) {
        let lines = self.crowds().flat_map(|crowd| &crowd.lines);
        lines.flat_map(BTreeMap::values).map(|parked| &parked.waker).for_each(visit);
    }

    fn crowds(&self) -> impl Iterator<Item = &Crowd> {
        std::iter::once(&self.threads).chain(&self.loops)
    }

    /// The crowd at a place among `crowds`.
    fn crowd(&mut self, at: usize) -> &mut Crowd {
        match at.checked_sub(1) {
            None => &mut self.threads,
            Some(at) => &mut self.loops[at],
        }
    }

    fn crowd_of(&mut self, on: u64) -> &mut Crowd {
        if on == THREADS {
            return &mut self.threads;
        }
        let at = self.loops.iter().position(|crowd| crowd.on == on).unwrap_or_else(|| {
            self.loops.retain(|crowd| !crowd.is_left());
            self.loops.push(Crowd { on, ..Crowd::default() });
            self.loops.len() - 1
        });
        &mut self.loops[at]
    }

    /// Returns whether a put that finds room leaves it to the first of those who wait for some.
    #[inline]
    pub fn keeps_room<P>(
        &mut self,
        wait: Option<&Wait>,
        scheduler: &Scheduler<P>,
        now: Time,
    ) -> bool {
        !self.room.is_empty() && {
            let me = wait.and_then(|wait| wait.number);
            self.room.keeps_from(me, now, |need| scheduler.load(need))
        }
    }

    /// A put found room.
    #[inline]
    pub fn took_room(&mut self, wait: Option<&Wait>, now: Time) {
        if !self.room.is_empty() {
            self.room.passed_by(wait.and_then(|wait| wait.number), now);
        }
    }

    /// The waiter is back, called or not.
    pub fn back(&mut self, wait: &mut Wait) {
        let Some(number) = wait.number else { return };
        if number <= self.foreign {
            wait.number = None;
            return;
        }
        let line = line(wait.want);
        let crowd = self.crowd_of(wait.on);
        if crowd.remove(line, number).is_some() {
            self.parked -= 1;
        } else {
            crowd.called[line] -= 1;
        }
    }

    /// The wait of one who is back is over.
    pub fn leave(&mut self, wait: &mut Wait) {
        if let (Want::Room(..), Some(number)) = (wait.want, wait.number) {
            self.room.leave(number);
        }
        if let Some(number) = wait.number.filter(|_| !self.holding.is_empty()) {
            self.holding.remove(&number);
        }
        *wait = wait.anew(wait.want);
    }

    /// The waiter sleeps: until when at the latest.
    pub fn park(&mut self, wait: &mut Wait, waker: Waker, due: Option<Time>) -> Time {
        let number = *wait.number.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        let Wait { want, deadline, named, on, .. } = *wait;
        if let Want::Room(count, size) = want {
            self.room.enter(number, Need { count, size });
        } else if !wait.holds.is_empty() && deadline == Time::MAX {
            self.holding.insert(number, wait.holds.clone());
        }
        self.parked += 1;
        let crowd = self.crowd_of(on);
        crowd.lines[line(want)].insert(number, Parked { waker, deadline, named });
        crowd.parked += 1;
        match due {
            Some(due) if crowd.timekeeper.is_none_or(|(_, at)| at > due) => {
                crowd.timekeeper = Some((number, due));
                deadline.min(due)
            }
            _ => deadline,
        }
    }

    fn call(&mut self, at: usize, line: usize, number: u64) {
        let crowd = self.crowd(at);
        if let Some(parked) = crowd.remove(line, number) {
            crowd.called[line] += 1;
            self.parked -= 1;
            self.wakes.push(parked.waker);
            if line == ROOM {
                self.room.called(number);
            }
        }
    }

    /// Calls those who wait for a message.
    pub fn call_getters(&mut self) {
        (ANY..ROOM).for_each(|line| self.call_all(line));
    }

    /// Returns whether nothing but this waiter, and others who wait as it does, could end its wait
    /// in a queue that is closed for puts (clause 25). `None`: whether that holds for the parked
    /// ones.
    pub fn are_stuck<P>(&self, wait: Option<&Wait>, scheduler: &Scheduler<P>) -> bool {
        let own = wait.map(|wait| wait.holds.as_slice()).unwrap_or_default();
        if (own.is_empty() || wait.is_some_and(|wait| wait.deadline != Time::MAX))
            && (wait.is_some() || self.holding.is_empty())
        {
            return false;
        }
        let most = own.len() + self.holding.values().map(Vec::len).sum::<usize>();
        let nothing_ready = scheduler.ready(Kind::Any) == 0;
        let some = (1..=most).contains(&scheduler.leases_out());
        some && nothing_ready && scheduler.moves_with_leases_only() && {
            let stands = |&&(id, token): &&(u64, u64)| scheduler.token_of(id) == Some(token);
            let others = self.holding.values().flatten();
            let held: BTreeSet<_> = own.iter().chain(others).filter(stands).collect();
            held.len() == scheduler.leases_out()
                && (wait.is_none() || own.iter().any(|lease| held.contains(lease)))
        }
    }

    fn call_stuck(&mut self) {
        for number in self.holding.keys().copied().collect::<Vec<_>>() {
            let found = self.crowds().enumerate().find_map(|(at, crowd)| {
                let line = (ANY..ROOM).find(|&line| crowd.lines[line].contains_key(&number))?;
                Some((at, line))
            });
            if let Some((at, line)) = found {
                self.call(at, line, number);
            }
        }
    }

    fn call_all(&mut self, line: usize) {
        self.call_those(line, |_| true);
    }

    /// Wakes the waiters whose timeout has passed, by a clock that has no alarm.
    pub fn call_late(&mut self, now: Time) {
        (0..LINES).for_each(|line| self.call_those(line, |parked| parked.deadline <= now));
    }

    fn call_those(&mut self, line: usize, which: impl Fn(&Parked) -> bool) {
        for at in 0..=self.loops.len() {
            let those = self.crowd(at).lines[line].iter().filter(|(_, parked)| which(parked));
            for number in those.map(|(&number, _)| number).collect::<Vec<_>>() {
                self.call(at, line, number);
            }
        }
    }

    /// Restores both invariants; called after every change, under the lock.
    #[inline]
    pub fn balance<P>(
        &mut self,
        scheduler: &Scheduler<P>,
        closed: bool,
        alarms: bool,
        now: impl FnOnce() -> Time,
    ) {
        if self.parked > 0 {
            self.balance_parked(scheduler, closed, alarms, now);
        }
    }

    fn balance_parked<P>(
        &mut self,
        scheduler: &Scheduler<P>,
        closed: bool,
        alarms: bool,
        now: impl FnOnce() -> Time,
    ) {
        for (kind, own) in [(Kind::Keyed, KEYED), (Kind::Unkeyed, UNKEYED)] {
            let ready = scheduler.ready(kind);
            while let Some((at, line, number)) = self.lacking(own, ready) {
                self.call(at, line, number);
            }
        }
        let drained = scheduler.unsettled() == 0;
        if drained {
            self.call_all(DRAINED);
            if closed {
                self.call_getters();
            }
        }
        if self.names != scheduler.names() {
            self.names = scheduler.names();
            self.call_those(ROOM, |parked| parked.named);
        }
        if closed {
            self.call_all(ROOM);
            if !self.holding.is_empty() && self.are_stuck(None, scheduler) {
                self.call_stuck();
            }
        } else if !self.room.is_empty() {
            let keeps = self.keeps_room(None, scheduler, now());
            let fits = |need: Need| scheduler.room(need.count, need.size).is_ok();
            while let Some((at, number)) = self.lacking_room(keeps, fits) {
                self.call(at, ROOM, number);
            }
        }
        if alarms || scheduler.has_leftovers() {
            // Messages left by the limit of a call must not wait for a manual clock to be moved.
            self.keep_time(self.due(scheduler));
        }
    }

    /// Returns the time at which something falls due, or room is no longer kept.
    #[inline]
    pub fn due<P>(&self, scheduler: &Scheduler<P>) -> Option<Time> {
        scheduler.next_due().into_iter().chain(self.room.due()).min()
    }

    /// Finds the waiter that waits longest where too few are on their way for what is ready.
    fn lacking(&self, own: usize, ready: usize) -> Option<(usize, usize, u64)> {
        let threads = self.threads.coming(own);
        if threads >= ready {
            return None;
        }
        let crowds = self.crowds().enumerate();
        let lacking = crowds.filter(|(at, crowd)| {
            let tasks = if *at == 0 { 0 } else { crowd.coming(own) };
            threads + tasks < ready
        });
        let longest = lacking.filter_map(|(at, crowd)| {
            let (number, line) = crowd.longest(own)?;
            Some((number, at, line))
        });
        longest.min().map(|(number, at, line)| (at, line, number))
    }

    /// Finds the waiter that waits longest for room that is there, where nobody is on the way.
    fn lacking_room(&self, keeps: bool, fits: impl Fn(Need) -> bool) -> Option<(usize, u64)> {
        let lacks = |crowd: &Crowd| crowd.called[ROOM] == 0 && !crowd.lines[ROOM].is_empty();
        if self.threads.called[ROOM] > 0 || !self.crowds().any(lacks) {
            return None;
        }
        self.room.fitting(0, keeps, fits).find_map(|number| {
            let mut crowds = self.crowds().enumerate();
            let (at, crowd) = crowds.find(|(_, c)| c.lines[ROOM].contains_key(&number))?;
            (crowd.called[ROOM] == 0).then_some((at, number))
        })
    }

    /// Calls one of each crowd that does not know when something falls due.
    fn keep_time(&mut self, due: Option<Time>) {
        let Some(due) = due else { return };
        for at in 0..=self.loops.len() {
            let crowd = self.crowd(at);
            let knows = crowd.timekeeper.is_some_and(|(_, at)| at <= due);
            if crowd.parked == 0 || knows || crowd.called.iter().any(|&n| n > 0) {
                continue;
            }
            let first = (0..LINES).find_map(|line| crowd.first(line).map(|number| (line, number)));
            if let Some((line, number)) = first {
                self.call(at, line, number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::queue::waiting::waiters::*;

    /// Counted in needs compared with what there is.
    #[test]
    fn other_waiters_of_a_loop_are_not_visited_while_one_is_being_woken() {
        let mut waiters = Waiters::default();
        for _ in 0..1000 {
            let mut wait = Wait::new(Want::Room(1, 0), Time::MAX).on_loop(7);
            waiters.park(&mut wait, Waker::noop().clone(), None);
        }
        let asked = Cell::new(0);
        let fits = |_| {
            asked.set(asked.get() + 1);
            true
        };
        let (at, number) = waiters.lacking_room(false, fits).expect("there is room");
        assert_eq!((at, number), (1, 1));
        waiters.call(at, ROOM, number);
        asked.set(0);
        assert_eq!(waiters.lacking_room(false, fits), None);
        assert!(asked.get() <= 2, "{} of a thousand", asked.get());
    }
}
