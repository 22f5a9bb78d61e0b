//! Watchfulness: what is worth saying unasked.
//!
//! The scheduler only takes notes; the holder of the queue logs them after each call. A depth is
//! noted once when it is passed and again each time it has doubled; slow messages are looked for
//! when the oldest may have become slow, not at every call.
//!
//! ```
//! use interlock_core::clock::Clock;
//! use interlock_core::queue::parts::watch::{Event, Limits, Watch};
//! use interlock_core::queue::{scheduler::Put, types::Options, Queue};
//!
//! let watch = Watch::new(Limits { depth: 2, ..Limits::default() });
//! let queue = Queue::with(Options::default(), watch, Clock::System);
//! (0..3).for_each(|n| drop(queue.put(&Put::default(), n)));
//! assert!(queue.has_events());
//! let depth = |event: &Event| matches!(event, Event::Depth { depth: 2, .. });
//! assert!(queue.take_events().iter().any(depth));
//! ```

use crate::queue::calls::behind::Unsaid;
use crate::queue::calls::lease::Failed;
use crate::queue::parts::lane::Lanes;
use crate::queue::parts::leases::Lease;
use crate::queue::parts::slab::NONE;
use crate::queue::scheduler::{Handle, Scheduler};
use crate::queue::types::message::QUIET;
use crate::queue::types::{State, Time};

/// The limits to watch; 0 switches a line off.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Unsettled messages.
    pub depth: u64,
    /// Unsettled messages on one key.
    pub lane_depth: u32,
    /// µs a message may wait, or be leased.
    pub slow_wait: u64,
}

/// Something worth saying.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The queue passed its depth; with a key that nine in ten messages hold exclusively, if there is one.
    Depth {
        depth: u64,
        serialised_by: Option<Vec<u8>>,
    },
    LaneDepth {
        key: Vec<u8>,
        depth: u64,
    },
    /// This many more keys reached their depth within the last second.
    MoreLanes {
        lanes: u64,
    },
    /// A message has waited too long, and `others` since the last such note.
    SlowWait {
        id: u64,
        waited: u64,
        others: u64,
    },
    /// A lease has been held too long.
    SlowLease {
        id: u64,
        consumer: u64,
        held: u64,
    },
    /// Messages are parked: their number, and a key that some of them wait for, with the held message; `None`: the key
    /// is paused.
    Parked {
        count: u64,
        key: Vec<u8>,
        /// µs since the first of those under the key was parked.
        waited: u64,
        behind: Option<u64>,
    },
    /// Messages went with one that is held, the last of them on this key.
    Swept {
        key: Vec<u8>,
        behind: u64,
        buried: u64,
        cancelled: u64,
    },
    /// An attempt failed.
    Failed {
        id: u64,
        attempt: u32,
        failed: Failed,
        error: String,
    },
    /// A second has passed since the last one, or there is something again that may become slow: time
    /// to see whether `wants_handled` still holds, and that somebody looks.
    Second,
    /// A message was acknowledged; only where this is asked for.
    Handled {
        id: u64,
        keys: Vec<Vec<u8>>,
        attempt: u32,
        waited: u64,
        handled: u64,
    },
}

#[derive(Debug)]
pub struct Watch {
    limits: Limits,
    events: Vec<Event>,
    /// Unsettled messages at which the next note is due, and at or below which counting starts anew.
    next_depth: u64,
    calm_depth: u64,
    /// The time of the next look for what is slow.
    next_look: Time,
    /// Ids below were looked at.
    seen: u64,
    /// Messages that waited too long and were not noted yet: the first one, since when, and how
    /// many more.
    slow: Option<(u64, Time)>,
    others: u64,
    /// The times at which that may be noted, and at which leases are looked at again.
    next_note: Time,
    next_leases: Time,
    next_second: Time,
    /// The greatest depth noted since then: a queue that breathes about a limit is not noted at each
    /// breath.
    noted_depth: u64,
    /// Notes about deep lanes since then, and those not made because there were enough.
    lane_notes: u32,
    more_lanes: u64,
    /// Delayed messages by the time they took their place: (time, id).
    placed_late: std::collections::VecDeque<(Time, u64)>,
    /// True if each acknowledged message is to be noted.
    pub wants_handled: bool,
    pub(in crate::queue) unsaid: Unsaid,
}

/// Most notes about deep lanes in a second: a burst on a thousand keys is logged in a line, not in
/// a thousand.
const LANE_NOTES: u32 = 20;

/// Messages of one lane, and of all, that are looked at for how they hold their key, for that is done within
/// a put.
const SAMPLED_OF_A_LANE: u32 = 1000;
const SAMPLED: u32 = 10_000;

/// Shortest time between two looks, µs.
pub const PAUSE: Time = 1_000_000;

impl Watch {
    pub fn new(limits: Limits) -> Self {
        Watch {
            limits,
            events: Vec::new(),
            next_depth: if limits.depth == 0 { u64::MAX } else { limits.depth },
            calm_depth: 0,
            next_look: Time::MAX,
            seen: 0,
            slow: None,
            others: 0,
            next_note: 0,
            next_leases: 0,
            next_second: 0,
            noted_depth: 0,
            lane_notes: 0,
            more_lanes: 0,
            placed_late: Default::default(),
            wants_handled: false,
            unsaid: Unsaid::default(),
        }
    }

    /// Watches nothing.
    pub fn off() -> Self {
        Watch::new(Limits::default())
    }

    pub(in crate::queue) fn limits(&self) -> Limits {
        self.limits
    }

    pub(in crate::queue) fn lane_depth(&self) -> u32 {
        if self.limits.lane_depth == 0 {
            u32::MAX
        } else {
            self.limits.lane_depth
        }
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Returns the time of the next look for what is slow; `Time::MAX`: there is nothing to look
    /// for.
    pub fn next_look(&self) -> Time {
        self.next_look
    }

    /// Returns whether events are read: not of a queue without warnings.
    #[inline]
    pub(in crate::queue) fn is_on(&self) -> bool {
        self.limits.depth > 0 || self.limits.slow_wait > 0 || self.limits.lane_depth > 0
    }

    pub(in crate::queue) fn push(&mut self, event: Event) {
        if self.is_on() {
            self.events.push(event);
        }
    }

    /// Asks for a look at this time at the latest.
    pub(in crate::queue) fn look_at(&mut self, time: Time) {
        self.next_look = self.next_look.min(time);
    }

    /// Notes a new message. Returns whether there was something to say, or a time to look at was set.
    #[inline(always)]
    pub(in crate::queue) fn entered(
        &mut self,
        unsettled: u64,
        now: Time,
        lanes: &mut Lanes,
    ) -> bool {
        let says = lanes.has_deep() || self.says(unsettled, now);
        if says {
            self.say_of_entered(unsettled, now, lanes);
        }
        says
    }

    /// Returns whether a message that enters is noted, unless it makes a lane deep.
    #[inline(always)]
    pub(in crate::queue) fn says(&self, unsettled: u64, now: Time) -> bool {
        let first = self.next_look == Time::MAX && self.limits.slow_wait > 0;
        unsettled >= self.next_depth || first || now >= self.next_second
    }

    #[cold]
    fn say_of_entered(&mut self, unsettled: u64, now: Time, lanes: &mut Lanes) {
        if unsettled >= self.next_depth {
            if now >= self.next_second {
                self.noted_depth = 0;
            }
            self.depth_reached(unsettled, lanes);
        }
        if lanes.has_deep() {
            self.lanes_deep(lanes);
        }
        let first = self.next_look == Time::MAX && self.limits.slow_wait > 0;
        if first {
            self.next_look = now.saturating_add(self.limits.slow_wait);
        }
        if first || now >= self.next_second {
            self.next_second = now + PAUSE;
            self.noted_depth = 0;
            self.lane_notes = 0;
            let lanes = std::mem::take(&mut self.more_lanes);
            self.push(if lanes > 0 { Event::MoreLanes { lanes } } else { Event::Second });
        }
    }

    #[cold]
    fn depth_reached(&mut self, depth: u64, lanes: &Lanes) {
        self.next_depth = depth.saturating_mul(2);
        self.calm_depth = self.limits.depth / 2;
        if depth < self.noted_depth.saturating_mul(2) {
            return;
        }
        self.noted_depth = depth;
        let mut steps = SAMPLED;
        // Messages that only read a key are not serialised by it.
        let serialised_by = lanes
            .all()
            .filter(|(_, lane)| u64::from(lane.depth) * 10 >= depth * 9)
            .find(|&(number, lane)| {
                let (exclusive, looked) =
                    lanes.exclusive_among_last(number, SAMPLED_OF_A_LANE, &mut steps);
                looked > 0 && exclusive * u64::from(lane.depth) * 10 >= looked * depth * 9
            })
            .map(|(_, lane)| lane.key.as_bytes().to_vec());
        self.push(Event::Depth { depth, serialised_by });
    }

    #[cold]
    fn lanes_deep(&mut self, lanes: &mut Lanes) {
        for number in lanes.take_deep() {
            if self.lane_notes == LANE_NOTES {
                self.more_lanes += 1;
                continue;
            }
            self.lane_notes += 1;
            let lane = lanes.lane(number);
            let key = lane.key.as_bytes().to_vec();
            self.push(Event::LaneDepth { key, depth: lane.depth.into() });
        }
    }

    /// The depth at or below which counting starts anew.
    #[inline]
    pub(in crate::queue) fn calm_depth(&self) -> u64 {
        self.calm_depth
    }

    /// There are messages of before: the first look at them is due.
    pub(in crate::queue) fn restored(&mut self, now: Time) {
        if self.limits.slow_wait > 0 {
            self.next_look = now;
        }
    }

    pub(in crate::queue) fn calmed(&mut self, unsettled: u64) {
        if self.calm_depth > 0 {
            self.calm_depth = 0;
            self.next_depth = self.limits.depth;
        }
        if unsettled == 0 {
            self.placed_late.clear();
        }
    }

    pub(in crate::queue) fn fell_due(&mut self, id: u64, now: Time) {
        if self.limits.slow_wait > 0 {
            self.placed_late.push_back((now, id));
        }
    }
}

impl<P> Scheduler<P> {
    /// Looks for messages that have waited, and leases that have been held, too long; notes what happened behind
    /// failures.
    pub(in crate::queue) fn look(&mut self, now: Time) {
        if now >= self.watch.next_look {
            self.watch.next_look = self.look_at_slow(now);
            self.note_behind();
        }
    }

    /// Returns the time of the next look.
    fn look_at_slow(&mut self, now: Time) -> Time {
        let slow = self.watch.limits.slow_wait;
        if slow == 0 {
            return Time::MAX;
        }
        if now >= self.watch.next_leases {
            // All leases are gone through, so not at each look.
            let next = self.look_at_leases(now, slow).min(now + slow);
            self.watch.next_leases = next.max(now + PAUSE);
        }
        let mut next = match self.leases.len() {
            0 => Time::MAX,
            _ => self.watch.next_leases,
        };
        let (mut first, mut others) = (self.watch.slow, self.watch.others);
        let mut note = |id: u64, since: Time| match first {
            None => first = Some((id, since)),
            Some(_) => others += 1,
        };
        let mut unfinished = true;
        let mut seen = self.watch.seen.max(self.numbers.oldest());
        for _ in 0..4096 {
            let (id, at) = self.records.next_from(seen, self.numbers.next(), 4096);
            seen = id;
            if at == NONE {
                unfinished = id < self.numbers.next();
                break;
            }
            let put_at = self.numbers.time_of(id);
            if put_at + slow > now {
                next = next.min(put_at + slow);
                unfinished = false;
                break;
            }
            seen += 1;
            // A delayed message waits from the time when it took its place; the code below finds it.
            let undelayed = self.records.sequence(at) == id;
            if undelayed && matches!(self.records[at].state, Some(State::Waiting | State::Ready)) {
                note(id, put_at);
            }
        }
        self.watch.seen = seen;
        while let Some(&(placed, id)) = self.watch.placed_late.front() {
            if placed + slow > now {
                next = next.min(placed + slow);
                break;
            }
            self.watch.placed_late.pop_front();
            let at = self.records.find(id);
            let state = at.and_then(|at| self.records[at].state);
            if matches!(state, Some(State::Waiting | State::Ready)) {
                note(id, placed);
            }
        }
        (self.watch.slow, self.watch.others) = (first, others);
        if let Some((id, since)) = first.filter(|_| now >= self.watch.next_note) {
            self.watch.push(Event::SlowWait { id, waited: now - since, others });
            (self.watch.slow, self.watch.others) = (None, 0);
            self.watch.next_note = now + PAUSE;
        }
        if self.watch.slow.is_some() {
            next = next.min(self.watch.next_note);
        }
        match next {
            // The next call, or the watcher, continues: however much is put, it does not lag for
            // long.
            _ if unfinished => now,
            Time::MAX if self.counts.unsettled() == 0 => Time::MAX,
            Time::MAX => now + slow,
            next => next.max(now + PAUSE),
        }
    }

    /// Returns the time at which the next lease will have been held too long.
    fn look_at_leases(&mut self, now: Time, slow: u64) -> Time {
        let mut next = Time::MAX;
        let mut long = Vec::new();
        for (place, lease) in self.leases.all() {
            if lease.noted {
                continue;
            }
            if lease.at + slow <= now {
                long.push(place);
            } else {
                next = next.min(lease.at + slow);
            }
        }
        for place in long {
            self.leases.note(place);
            let Lease { at, consumer, message, .. } = self.leases[place];
            let id = self.records[message].id;
            self.watch.push(Event::SlowLease { id, consumer, held: now - at });
        }
        next
    }

    #[cold]
    pub(in crate::queue) fn note_handled(&mut self, handle: Handle) {
        let Some(&lease) = self.leases.standing(handle, self.now) else { return };
        let at = lease.message;
        let message = &self.records[at];
        if message.flags & QUIET != 0 {
            return;
        }
        let id = message.id;
        let since = self.numbers.time_of(self.records.sequence(at));
        let keys = self.keys_of(at).into_iter().map(|(key, _)| key.as_bytes().to_vec()).collect();
        self.watch.push(Event::Handled {
            id,
            keys,
            attempt: self.records.attempt(at),
            waited: lease.at.saturating_sub(since),
            handled: self.now - lease.at,
        });
    }
}
