//! Operations on a message by an operator, or by the producer: cancel, revoke, retry, skip, bury,
//! requeue, pause (clauses 10, 15, 22, 23, 24).
//!
//! ```
//! use interlock_core::key::KeyRef;
//! use interlock_core::queue::scheduler::{Put, Scheduler};
//! use interlock_core::queue::types::{Kind, Options, RevokeThen};
//! use interlock_core::queue::parts::watch::Watch;
//!
//! let mut scheduler = Scheduler::new(Options::default(), Watch::off());
//! let key = KeyRef::new(b"room:7");
//! let put = Put { keys: &[key], ..Put::default() };
//! let id = scheduler.put(1, &put, &mut Some("hello")).unwrap().id;
//! assert!(scheduler.pause(1, Some(key)));
//! assert!(scheduler.lease(1, Kind::Any, 0).is_none());
//! assert!(scheduler.resume(1, Some(key)));
//! assert!(scheduler.lease(1, Kind::Any, 0).is_some());
//! assert!(scheduler.cancel(1, id).is_none(), "it is leased");
//! assert!(scheduler.revoke(1, id, RevokeThen::Hold).is_some());
//! assert!(scheduler.bury(1, id));
//! let dead: Vec<u64> = scheduler.dead_letters(1, 10).map(|dead| dead.id).collect();
//! assert_eq!(dead, [id]);
//! assert_eq!(scheduler.requeue(1, id), Ok(Some(id + 1)));
//! ```

use crate::key::{Key, KeyRef};
use crate::queue::calls::lease::Failure;
use crate::queue::parts::counts::Happened;
use crate::queue::parts::dead::Dead;
use crate::queue::parts::feed::Change;
use crate::queue::parts::ready::Ticket;
use crate::queue::scheduler::{Budget, NoRoom, Put, Scheduler};
use crate::queue::schedules::trace::Call;
use crate::queue::types::message::{GROUPED, KEYED, LIMITED, PAUSED, REFUSED};
use crate::queue::types::{Hot, Kind, RevokeThen, State, Stats, Then, Time};

/// A message that was cancelled, with all that is known of it.
#[derive(Debug)]
pub struct Cancelled<P> {
    pub id: u64,
    /// Keys in the order the put named them, with whether they were shared.
    pub keys: Vec<(Key, bool)>,
    pub priority: i8,
    pub attempt: u32,
    pub payload: P,
}

impl<P> Scheduler<P> {
    /// Settles a message that is not leased (clause 23): its payload, or nothing if it is leased,
    /// settled or was never put.
    pub fn cancel(&mut self, now: Time, id: u64) -> Option<P> {
        let mut budget = self.begin(now, || Call::Cancel { id });
        let at = self.records.find(id)?;
        let payload = self.cancel_at(at, &mut budget);
        self.moves(&mut budget);
        payload
    }

    pub(in crate::queue) fn cancel_at(&mut self, at: u32, budget: &mut Budget) -> Option<P> {
        self.cancel_for(at, "", budget)
    }

    /// Like `cancel_at`, for this reason.
    pub(in crate::queue) fn cancel_for(
        &mut self,
        at: u32,
        why: &str,
        budget: &mut Budget,
    ) -> Option<P> {
        let message = &self.records[at];
        let (state, flags) = (message.state?, message.flags);
        if state != State::Leased {
            self.note_told(Change::Cancel, at, 0, why);
        }
        match state {
            State::Leased => return None,
            State::Delayed => {
                self.end_delay(at);
            }
            State::BackingOff => self.end_backoff(at),
            State::Held => self.end_hold(at),
            State::Waiting | State::Ready | State::Parked => {}
        }
        self.counts.note(Happened::Cancelled);
        self.forget_name(at);
        let payload = self.settle(at, budget);
        if state == State::Ready && flags & (PAUSED | REFUSED | GROUPED) == 0 {
            let records = &self.records;
            self.ready.cancelled(flags & KEYED != 0, |ticket| records.is_ready(ticket));
        }
        payload
    }

    /// A message whose handler never finished leaves its string free (clause 13): after a cancel, a
    /// corrected message may be put under the same one.
    fn forget_name(&mut self, at: u32) {
        if let Some(name) = self.records.take_dedup(at) {
            self.dedup.cancelled(&name);
        }
    }

    /// Cancels everything that is not leased; returns it in the order of ids (clause 15).
    pub fn cancel_all(&mut self, now: Time) -> Vec<Cancelled<P>> {
        self.begin(now, || Call::CancelAll);
        let unsettled = |state: Option<State>| state.is_some_and(|s| s != State::Leased);
        let mut places: Vec<(u64, u32)> = self
            .records
            .all()
            .filter(|(_, message)| unsettled(message.state))
            .map(|(at, message)| (message.id, at))
            .collect();
        places.sort_unstable();
        let cancel = |(id, at): (u64, u32)| {
            let keys = self.keys_of(at);
            let (priority, attempt) = (self.records[at].priority, self.records.attempt(at));
            // No limit: whatever this readies is itself cancelled.
            let payload = self.cancel_at(at, &mut { Budget::NO_LIMIT })?;
            Some(Cancelled { id, keys, priority, attempt, payload })
        };
        places.into_iter().filter_map(cancel).collect()
    }

    /// A message's keys, in the order the put named them, with whether they are shared.
    pub fn keys_of(&self, at: u32) -> Vec<(Key, bool)> {
        let message = &self.records[at];
        match message.state {
            Some(State::Delayed) => return self.delays.keys_of(message.id),
            Some(State::Parked) => {
                return self.parked.parking(at).map_or_else(Vec::new, |one| one.keys.all());
            }
            _ => {}
        }
        let edges = self.lanes.edges_of(message.first_edge);
        edges.map(|(_, e)| (self.lanes.lane(e.lane()).key.clone(), e.shared())).collect()
    }

    /// Ends a message's lease as if it had run out (clause 24). The payload comes back if the message
    /// was settled by that. `None`: it is not leased.
    pub fn revoke(&mut self, now: Time, id: u64, then: RevokeThen) -> Option<Option<P>> {
        let mut budget = self.begin(now, || Call::Revoke { id, then });
        let at = self.records.find(id)?;
        if self.records[at].state != Some(State::Leased) || self.rides(at) {
            return None;
        }
        let lease = self.end_lease(self.records[at].hold);
        self.feed.ended = lease.token;
        self.counts.note(Happened::Revoked);
        match then {
            RevokeThen::Retry => {
                self.fail(at, Failure::Revoked, &mut budget);
            }
            RevokeThen::Hold | RevokeThen::Dead => {
                self.note_error(at, "revoked");
                let then = if then == RevokeThen::Hold { Then::Hold } else { Then::Dead };
                self.give_up(at, then, "revoked", &mut budget);
            }
            RevokeThen::Skip => {
                self.counts.note(Happened::Skipped);
                self.note(Change::Skip, at, lease.token);
                let payload = self.settle(at, &mut budget);
                self.moves(&mut budget);
                return Some(payload);
            }
        }
        self.moves(&mut budget);
        Some(None)
    }

    /// A held message, or one that backs off, is ready at once.
    pub fn retry(&mut self, now: Time, id: u64) -> bool {
        let mut budget = self.begin(now, || Call::Retry { id });
        let Some(at) = self.stopped(id) else {
            return false;
        };
        if self.end_stop(at) == State::Held {
            let attempt = self.records.attempt(at);
            self.records.set_attempt(at, attempt + 1);
        }
        self.note(Change::Readied, at, 0);
        self.make_ready(at);
        self.moves(&mut budget);
        true
    }

    /// Settles a held message, or one that backs off: its payload.
    pub fn skip(&mut self, now: Time, id: u64) -> Option<P> {
        let mut budget = self.begin(now, || Call::Skip { id });
        let at = self.stopped(id)?;
        self.end_stop(at);
        self.counts.note(Happened::Skipped);
        self.note(Change::Skip, at, 0);
        let payload = self.settle(at, &mut budget);
        self.moves(&mut budget);
        payload
    }

    /// Turns a held or backing-off message into a dead letter, if there is room for one; once those are gone
    /// that go with it (clause 31).
    pub fn bury(&mut self, now: Time, id: u64) -> bool {
        let mut budget = self.begin(now, || Call::Bury { id });
        let may = |&at: &u32| !self.dead_full() && !self.parked.is_dying(self.records.sequence(at));
        let Some(at) = self.stopped(id).filter(may) else {
            return false;
        };
        if !self.begins_to_die(at, 0, "", &mut budget) {
            self.end_stop(at);
            self.note(Change::Dead, at, 0);
            self.bury_message(at, &mut budget);
        }
        self.moves(&mut budget);
        true
    }

    fn stopped(&self, id: u64) -> Option<u32> {
        let stopped = [Some(State::Held), Some(State::BackingOff)];
        self.records.find(id).filter(|&at| stopped.contains(&self.records[at].state))
    }

    fn end_stop(&mut self, at: u32) -> State {
        if self.records[at].state == Some(State::Held) {
            self.end_hold(at);
            State::Held
        } else {
            self.end_backoff(at);
            State::BackingOff
        }
    }

    /// Puts a dead letter again, as a new message (clause 10). `None`: no such dead letter.
    pub fn requeue(&mut self, now: Time, id: u64) -> Result<Option<u64>, NoRoom> {
        self.begin(now, || Call::Requeue { id });
        self.requeue_room(id).unwrap_or(Ok(()))?;
        let Some(dead) = self.dead.remove(id) else {
            return Ok(None);
        };
        let refs = |shared: bool| -> Vec<KeyRef<'_>> {
            let keys = dead.keys.iter().filter(|(_, s)| *s == shared);
            keys.map(|(key, _)| KeyRef::new(key.as_bytes())).collect()
        };
        let put = Put {
            keys: &refs(false),
            shared: &refs(true),
            priority: dead.priority,
            barrier: dead.barrier,
            size: dead.size,
            quiet: dead.quiet,
            retry: dead.retry.as_ref(),
            limit: &dead.limit,
            group: &dead.group,
            behind: dead.behind,
            run: &dead.run,
            ..Put::default()
        };
        self.counts.note(Happened::Requeued);
        Ok(Some(self.enter(&put, Some(dead.payload))))
    }

    /// Drops a dead letter and returns its payload; `None` if the id is unknown.
    pub fn discard(&mut self, now: Time, id: u64) -> Option<P> {
        self.begin(now, || Call::Discard { id });
        Some(self.dead.remove(id)?.payload)
    }

    /// The dead letters, oldest dead first.
    pub fn dead_letters(&mut self, now: Time, limit: usize) -> impl Iterator<Item = &Dead<P>> {
        self.begin(now, || Call::DeadLetters { limit });
        self.dead.iter().take(limit)
    }

    /// Like `dead_letters`, of those that carry a key.
    pub fn dead_letters_on(
        &mut self,
        now: Time,
        key: &[u8],
        limit: usize,
    ) -> impl Iterator<Item = &Dead<P>> {
        self.begin(now, || Call::DeadLetters { limit: 0 });
        self.dead.on_key(key).take(limit)
    }

    /// Pauses the queue, or a key: no message, or none with that key, is leased. Returns whether it was not paused.
    pub fn pause(&mut self, now: Time, key: Option<KeyRef<'_>>) -> bool {
        let mut budget = self.begin(now, || Call::Pause { key: key.map(|key| key.bytes.to_vec()) });
        let Some(key) = key else {
            return !self.pauses.set_queue(true);
        };
        let paused = self.pause_key(key);
        self.moves(&mut budget);
        paused
    }

    /// Like `pause`, within a call that has begun; the caller moves what is behind the keys.
    pub fn pause_key(&mut self, key: KeyRef<'_>) -> bool {
        let paused = self.lanes.set_paused(key, true).is_some();
        if paused {
            if !self.gate.is_idle() {
                self.release_paused_keepers();
            }
            self.shut_paused(key.bytes);
        }
        paused
    }

    /// Undoes a pause. Returns whether there was one.
    pub fn resume(&mut self, now: Time, key: Option<KeyRef<'_>>) -> bool {
        let mut budget =
            self.begin(now, || Call::Resume { key: key.map(|key| key.bytes.to_vec()) });
        let Some(key) = key else {
            return self.pauses.set_queue(false);
        };
        let resumed = self.resume_key(key, &mut budget);
        self.moves(&mut budget);
        resumed
    }

    /// Like `resume`, within a call that has begun; the caller moves what is behind the keys.
    pub fn resume_key(&mut self, key: KeyRef<'_>, budget: &mut Budget) -> bool {
        let Some(lane) = self.lanes.set_paused(key, false) else {
            return false;
        };
        if self.pauses.resume(lane) {
            self.return_aside(budget);
        }
        self.parked.open_unless(key.bytes, false);
        true
    }

    /// Sets a ready message aside, for a key of it is paused.
    #[cold]
    pub(in crate::queue) fn set_aside(&mut self, ticket: Ticket, lane: u32) {
        self.records.set_paused(ticket.message, true);
        if self.records[ticket.message].flags & LIMITED != 0 {
            self.records.set_refused(ticket.message, false);
            self.gate.pause(ticket.message, self.now);
            self.await_times();
        }
        let (depth, records) = (self.lanes.lane(lane).depth as usize, &self.records);
        self.pauses.set_aside(ticket, lane, depth, |ticket| records.is_paused(ticket));
    }

    pub(in crate::queue) fn return_aside(&mut self, budget: &mut Budget) {
        while budget.steps > 0 {
            let Some(ticket) = self.pauses.next_returning() else {
                return;
            };
            budget.steps -= 1;
            if self.records.is_paused(&ticket) {
                self.records.set_paused(ticket.message, false);
                self.push_ready(ticket, self.records[ticket.message].flags, false);
            }
        }
    }

    /// Returns the paused keys of a message, after the empty key where the queue itself is paused.
    pub(in crate::queue) fn paused_keys(&self, at: u32) -> Vec<Vec<u8>> {
        let queue = self.pauses.of_queue().then(Vec::new);
        let lanes = self.lanes.edges_of(self.records[at].first_edge);
        let keys = lanes
            .map(|(_, edge)| self.lanes.lane(edge.lane()))
            .filter(|lane| lane.paused)
            .map(|lane| lane.key.as_bytes().to_vec());
        queue.into_iter().chain(keys).collect()
    }

    /// Returns all that is paused: the queue (the empty key) and keys.
    pub fn paused(&self) -> Vec<Vec<u8>> {
        let queue = self.pauses.of_queue().then(Vec::new);
        let lanes = self.lanes.all_paused(0);
        let mut keys: Vec<Vec<u8>> = lanes.map(|(_, lane)| lane.key.as_bytes().to_vec()).collect();
        keys.sort();
        queue.into_iter().chain(keys).collect()
    }

    pub fn stats(&mut self, now: Time) -> Stats {
        self.begin(now, || Call::Stats);
        self.counts()
    }

    /// The counts as the calls so far left them.
    pub fn counts(&self) -> Stats {
        let mut stats = self.counts.stats().clone();
        stats.delayed = self.delays.len() as u64;
        stats.leased = self.leases.len() as u64;
        stats.backing_off = self.backoffs.len() as u64;
        stats.dead = self.dead.len() as u64;
        stats.limited = self.gate.waiting();
        stats.groups = self.gate.groups.count();
        stats.parked = self.parked.count();
        stats.ready = match self.pauses.of_queue() {
            true => 0,
            false => self.ready_count() as u64 + stats.limited - self.paused_ready(),
        };
        let elsewhere = stats.delayed + stats.leased + stats.backing_off + stats.held + stats.ready;
        stats.waiting = stats.unsettled - elsewhere - stats.parked;
        stats
    }

    /// Messages that are ready and wait for no limit.
    pub(in crate::queue) fn ready_count(&self) -> usize {
        self.ready.len(Kind::Any) + self.gate.groups.ready(Kind::Any)
    }

    /// Ready messages that wait for a paused key but have not come up yet and so were not set aside, as
    /// far as they are looked for.
    fn paused_ready(&self) -> u64 {
        if self.lanes.paused() == 0 {
            return 0;
        }
        let mut found = hashbrown::HashSet::<u32, std::hash::RandomState>::default();
        let mut left = LOOKED_AT;
        for (number, _) in self.lanes.all_paused(0).take(LOOKED_AT) {
            let granted = self.lanes.standing(number).take_while(|edge| edge.granted());
            found.extend(granted.take(left).map(|edge| edge.message).filter(|&at| {
                left -= 1;
                let message = &self.records[at];
                message.state == Some(State::Ready) && message.flags & PAUSED == 0
            }));
        }
        found.len() as u64
    }

    /// The keys on which most messages stand, deepest first, then by key; of more than 1,024 keys with the
    /// smallest depth returned, any.
    pub fn hot_keys(&mut self, now: Time, limit: usize) -> Vec<Hot> {
        self.begin(now, || Call::HotKeys { limit });
        let deepest = self.lanes.deepest(limit);
        let lanes = deepest.into_iter().map(|number| self.lanes.lane(number));
        lanes
            .map(|lane| Hot { key: lane.key.as_bytes().into(), depth: lane.depth.into() })
            .collect()
    }
}

/// Most paused keys, and messages in front on them, that are examined to count the ready ones.
const LOOKED_AT: usize = 10_000;
