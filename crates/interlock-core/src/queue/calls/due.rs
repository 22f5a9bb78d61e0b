//! Deadlines, backoffs, delays, rates and the age of dead letters (clauses 8, 9, 10, 12, 20, 27): every call first
//! applies what is due, at most a thousand at once.

use crate::key::{Key, KeyRef};
use crate::queue::parts::batches::Told;
use crate::queue::parts::counts::Happened;
use crate::queue::parts::delays::DelayedKeys;
use crate::queue::parts::feed::Change;
use crate::queue::parts::gate::Gate;
use crate::queue::parts::leases::Lease;
use crate::queue::parts::parked::Parked;
use crate::queue::parts::timers::Due;
use crate::queue::scheduler::{Budget, Put, Scheduler, CALL_LIMIT};
use crate::queue::schedules::trace::Call;
use crate::queue::types::{State, Time};

impl<P> Scheduler<P> {
    /// Starts a put, a lease or an ack as `begin` does. Most find that nothing can be due yet, which they see
    /// by one comparison: each of these three calls lowers `earliest_due` where it brings something that
    /// falls due, or leaves work to the next call.
    #[inline(always)]
    pub(in crate::queue) fn begin_usual(
        &mut self,
        now: Time,
        call: impl FnOnce() -> Call,
    ) -> Budget {
        if now.max(self.now) < self.earliest_due {
            self.now = now.max(self.now);
            debug_assert!(!self.is_due(self.now), "due before it was looked for");
            return Budget::ONE_CALL;
        }
        let budget = self.begin(now, call);
        // A recording notes every call.
        if self.recorder.is_none() {
            self.earliest_due = self.next_due().unwrap_or(Time::MAX).min(self.dead.look());
        }
        budget
    }

    /// Starts a call: the time, what is due, what earlier calls left. Returns how many successors this
    /// call may ready.
    #[inline]
    pub(in crate::queue) fn begin(&mut self, now: Time, call: impl FnOnce() -> Call) -> Budget {
        match self.begin_carried(now, call) {
            Some(budget) => budget,
            None => self.caught_up(Budget::ONE_CALL),
        }
    }

    /// Begins a call without applying what is due. Returns the budget of the call that it is part of, which did.
    #[inline(always)]
    fn begin_carried(&mut self, now: Time, call: impl FnOnce() -> Call) -> Option<Budget> {
        self.earliest_due = 0;
        self.now = self.now.max(now);
        if let Some(recorder) = &mut self.recorder {
            recorder.note(self.now, call());
        }
        self.engine.take_carried()
    }

    /// Begins a call: applies what is due. Returns whether there was anything, and what the rest of the call may
    /// still ready.
    #[inline]
    pub fn start(&mut self, now: Time) -> (bool, Budget) {
        let carried = self.begin_carried(now, || Call::Tick);
        let (due, mut budget) = (self.is_due(self.now), carried.unwrap_or(Budget::ONE_CALL));
        if due && carried.is_none() {
            self.catch_up(&mut budget);
        }
        (due, budget)
    }

    /// Starts a call with this budget; the next call is the rest of it.
    pub fn start_within(&mut self, now: Time, budget: Budget) {
        self.pass(now);
        let left = self.caught_up(budget);
        self.carry(left);
    }

    #[inline(always)]
    fn caught_up(&mut self, mut budget: Budget) -> Budget {
        if self.is_due(self.now) {
            self.catch_up(&mut budget);
        }
        budget
    }

    /// Returns whether a call at this time has something to apply.
    #[inline]
    pub(in crate::queue) fn is_due(&self, now: Time) -> bool {
        self.next_due().is_some_and(|due| due <= now) || self.dead.look() <= now
    }

    /// Returns the time at which a call would next have something to apply, if nobody calls before.
    /// Dead letters that become too old are left out: nobody waits for that.
    #[inline]
    pub fn next_due(&self) -> Option<Time> {
        if self.has_leftovers() {
            return Some(0);
        }
        let mut first = self.watch.next_look().min(self.leases.first_deadline());
        if !self.gate.is_none_or(Gate::is_idle) {
            first = first.min(self.gate.next_time());
        }
        // Each by itself: a list of two would be written to memory in each call.
        if let Some(due) = self.backoffs.first() {
            first = first.min(due.at);
        }
        if let Some(due) = self.delays.first() {
            first = first.min(due.at);
        }
        (first != Time::MAX).then_some(first)
    }

    /// Returns whether a call would continue the work that an earlier one left (clause 21).
    #[inline]
    pub fn has_leftovers(&self) -> bool {
        self.lanes.has_unfinished()
            || self.ready.has_late()
            || self.barriers.is_opening()
            || self.pauses.is_returning()
            || self.parked.is_some_and(Parked::has_moves)
    }

    #[cold]
    fn catch_up(&mut self, budget: &mut Budget) {
        self.ready_late(budget);
        self.lanes.go_on(&mut budget.steps);
        self.unblock_granted(budget);
        self.open_gates(budget);
        self.return_aside(budget);
        self.moves(budget);
        let mut left = self.expire_batches(CALL_LIMIT, budget);
        while left > 0 && self.apply_next(budget) {
            left -= 1;
        }
        if self.gate.next_time() <= self.now {
            self.gate.open(self.now, CALL_LIMIT);
        }
        for _ in 0..self.dead.expire(self.now, left) {
            self.counts.note(Happened::DeadExpired);
        }
        self.look(self.now);
    }

    /// Applies the first thing due: leases, then backoffs, then delays.
    fn apply_next(&mut self, budget: &mut Budget) -> bool {
        let now = self.now;
        let due = |due: Option<&Due>| due.filter(|due| due.at <= now).copied();
        if let Some(place) = self.leases.next_expired(now) {
            let lease = self.end_lease(place);
            self.ran_out(&lease, Told::Assumed, budget);
            self.moves(budget);
        } else if let Some(due) = due(self.backoffs.first()) {
            self.end_backoff(due.owner);
            self.note(Change::Due, due.owner, 0);
            self.make_ready(due.owner);
        } else if let Some(due) = due(self.delays.first()) {
            self.fall_due(due.owner, budget);
            self.moves(budget);
        } else {
            return false;
        }
        true
    }

    /// A lease ran out.
    #[inline]
    pub(in crate::queue) fn note_expired(&mut self, lease: &Lease) {
        self.feed.ended = lease.token;
        self.note(Change::LeaseExpired, lease.message, lease.token);
    }

    /// Schedules a message to become ready again at a time.
    pub(in crate::queue) fn back_off(&mut self, at: u32, until: Time) {
        self.records.set_stopped(at, State::BackingOff);
        let due = Due { at: until, id: self.records.sequence(at), owner: at };
        let records = &mut self.records;
        self.earliest_due = 0;
        self.backoffs.insert(due, |owner, position| records.set_timer(owner, position));
    }

    /// Removes a message from the backoffs.
    pub(in crate::queue) fn end_backoff(&mut self, at: u32) {
        let (timer, records) = (self.records.timer(at), &mut self.records);
        self.backoffs.remove(timer, |owner, position| records.set_timer(owner, position));
    }

    /// A put with a delay: no place yet, so that it holds nothing up (clause 12).
    pub(in crate::queue) fn delay(&mut self, at: u32, put: &Put<'_>) {
        let names = |keys: &[KeyRef<'_>]| keys.iter().map(|key| Key::new(key.bytes)).collect();
        let keys = DelayedKeys { keys: names(put.keys), shared: names(put.shared) };
        self.delay_until(at, self.now.saturating_add(put.delay), keys);
    }

    pub(in crate::queue) fn delay_until(&mut self, at: u32, until: Time, keys: DelayedKeys) {
        self.records.set_stopped(at, State::Delayed);
        let due = Due { at: until, id: self.records[at].id, owner: at };
        let records = &mut self.records;
        self.earliest_due = 0;
        self.delays.insert(due, keys, |owner, position| records.set_timer(owner, position));
    }

    /// A delayed message is due at another time.
    pub(in crate::queue) fn change_delay(&mut self, at: u32, due: Time) {
        let (timer, records) = (self.records.timer(at), &mut self.records);
        self.earliest_due = 0;
        self.delays.change(timer, due, |owner, position| records.set_timer(owner, position));
    }

    /// Removes a message from the delays.
    pub(in crate::queue) fn end_delay(&mut self, at: u32) -> DelayedKeys {
        let (timer, records) = (self.records.timer(at), &mut self.records);
        self.delays.remove(timer, |owner, position| records.set_timer(owner, position))
    }

    /// A delay is over: the message takes its sequence and its place.
    fn fall_due(&mut self, at: u32, budget: &mut Budget) {
        let delayed = self.end_delay(at);
        let sequence = self.numbers.draw(self.now);
        self.records.set_sequence(at, sequence);
        self.numbers.note(sequence, self.now);
        self.watch.fell_due(self.records[at].id, self.now);
        self.come(at, delayed, Change::Due, false, budget);
    }

    /// Counts the keys of a message, whether it is in its lanes or not.
    pub(in crate::queue) fn key_count(&self, at: u32) -> usize {
        let message = &self.records[at];
        match message.state {
            Some(State::Delayed) => self.delays.key_count(message.id).unwrap_or(0),
            Some(State::Parked) => self.parked.parking(at).map_or(0, |one| one.keys.count()),
            _ => self.lanes.edges_of(message.first_edge).count(),
        }
    }

    /// Only applies what is due.
    pub fn tick(&mut self, now: Time) {
        self.begin(now, || Call::Tick);
    }
}
