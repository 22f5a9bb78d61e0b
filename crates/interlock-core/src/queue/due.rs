//! Deadlines, backoffs and delays that fall due (clauses 8, 9, 12, 20): every call first applies
//! what is due, at most a thousand at once.

use crate::key::{Key, KeyRef};
use crate::queue::lease::Failure;
use crate::queue::scheduler::{Budget, Put, Scheduler, CALL_LIMIT};
use crate::queue::slab::NONE;
use crate::queue::timers::Due;
use crate::queue::trace::Call;
use crate::queue::types::{State, Time};

fn refs(keys: &[Key]) -> Vec<KeyRef<'_>> {
    keys.iter().map(|key| KeyRef::new(key.as_bytes())).collect()
}

/// A delayed message's keys: it stands in no lane yet.
#[derive(Debug)]
pub(super) struct Away {
    pub keys: Vec<Key>,
    pub shared: Vec<Key>,
}

impl<P> Scheduler<P> {
    /// Starts a call: the time, what is due, what earlier calls left. Answers how many successors this
    /// call may ready.
    #[inline]
    pub(super) fn begin(&mut self, now: Time, call: impl FnOnce() -> Call) -> Budget {
        self.now = self.now.max(now);
        if let Some(recorder) = &mut self.recorder {
            recorder.note(self.now, call());
        }
        if let Some(budget) = self.carried.take() {
            return budget;
        }
        let mut budget = Budget::ONE_CALL;
        if self.next_due().is_some_and(|due| due <= self.now) {
            self.catch_up(&mut budget);
        }
        budget
    }

    /// Returns the time at which a call would next have something to apply, if nobody calls before.
    #[inline]
    pub fn next_due(&self) -> Option<Time> {
        if self.has_leftovers() {
            return Some(0);
        }
        let mut first = self.watch.next_look;
        for timers in [&self.deadlines, &self.batches.deadlines, &self.backoffs, &self.delays] {
            if let Some(due) = timers.first() {
                first = first.min(due.at);
            }
        }
        (first != Time::MAX).then_some(first)
    }

    /// Returns whether a call would go on with what an earlier one left (clause 21).
    #[inline]
    pub fn has_leftovers(&self) -> bool {
        self.lanes.has_unfinished()
            || !self.late.is_empty()
            || self.barriers.is_opening()
            || self.pauses.is_returning()
    }

    #[cold]
    fn catch_up(&mut self, budget: &mut Budget) {
        self.ready_late(budget);
        self.lanes.go_on(&mut self.granted, &mut budget.steps);
        self.unblock_granted(budget);
        self.open_gates(budget);
        self.unpark(budget);
        for _ in 0..self.expire_batches(CALL_LIMIT, budget) {
            if !self.apply_next(budget) {
                break;
            }
        }
        self.look(self.now);
    }

    /// Applies the first thing due: leases, then backoffs, then delays.
    fn apply_next(&mut self, budget: &mut Budget) -> bool {
        let now = self.now;
        let due = |due: Option<&Due>| due.filter(|due| due.at <= now).copied();
        if let Some(due) = due(self.deadlines.first()) {
            let lease = self.end_lease(due.owner);
            self.stats.expired += 1;
            self.fail(lease.message, Failure::Expired, budget);
        } else if let Some(due) = due(self.backoffs.first()) {
            self.end_backoff(due.owner);
            self.make_ready(due.owner);
        } else if let Some(due) = due(self.delays.first()) {
            self.fall_due(due.owner);
        } else {
            return false;
        }
        true
    }

    /// Takes a message out of the backoffs.
    pub(super) fn end_backoff(&mut self, at: u32) {
        let (messages, extras) = (&self.messages, &mut self.extras);
        let timer = extras[messages[at].extra].timer;
        self.backoffs
            .remove(timer, |owner, position| extras[messages[owner].extra].timer = position);
    }

    /// A put with a delay: no place yet, so that it holds nothing up (clause 12).
    pub(super) fn delay(&mut self, at: u32, put: &Put<'_>) {
        self.extra(at);
        let message = &mut self.messages[at];
        message.state = Some(State::Delayed);
        let due = Due { at: self.now.saturating_add(put.delay), id: message.id, owner: at };
        let names = |keys: &[KeyRef<'_>]| keys.iter().map(|key| Key::new(key.bytes)).collect();
        let away = Away { keys: names(put.keys), shared: names(put.shared) };
        self.away.insert(message.id, away);
        let (messages, extras) = (&self.messages, &mut self.extras);
        self.delays.insert(due, |owner, position| extras[messages[owner].extra].timer = position);
    }

    /// Takes a message out of the delays.
    pub(super) fn end_delay(&mut self, at: u32) -> Away {
        let (messages, extras) = (&self.messages, &mut self.extras);
        let message = &messages[at];
        let timer = extras[message.extra].timer;
        self.delays.remove(timer, |owner, position| extras[messages[owner].extra].timer = position);
        let away = self.away.remove(&message.id).expect("a delayed message's keys");
        if self.away.len() * 8 < self.away.capacity() && self.away.capacity() > 1024 {
            self.away.shrink_to(self.away.len() * 2);
        }
        away
    }

    /// A delay is over: the message takes its sequence and its place.
    fn fall_due(&mut self, at: u32) {
        let away = self.end_delay(at);
        let sequence = self.draw();
        let extra = self.messages[at].extra;
        debug_assert_ne!(extra, NONE);
        self.extras[extra].sequence = sequence;
        if !self.by_time {
            self.put_times.note(sequence, self.now);
        }
        self.watch.fell_due(self.messages[at].id, self.now);
        let (keys, shared) = (refs(&away.keys), refs(&away.shared));
        self.place(at, sequence, &keys, &shared);
    }

    /// A delayed message's keys, for explanations and for what is handed back.
    pub(super) fn away_keys(&self, id: u64) -> Vec<(Key, bool)> {
        let Some(away) = self.away.get(&id) else {
            return Vec::new();
        };
        let exclusive = away.keys.iter().map(|key| (key.clone(), false));
        exclusive.chain(away.shared.iter().map(|key| (key.clone(), true))).collect()
    }

    /// Counts the keys of a message, delayed or not.
    pub(super) fn key_count(&self, at: u32) -> usize {
        let message = &self.messages[at];
        match self.away.get(&message.id) {
            Some(away) => away.keys.len() + away.shared.len(),
            None => self.lanes.edges_of(message.first_edge).count(),
        }
    }

    /// Only applies what is due.
    pub fn tick(&mut self, now: Time) {
        self.begin(now, || Call::Tick);
    }
}
