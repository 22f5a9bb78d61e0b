//! Calls on the scheduler by a queue that serves several processes (clauses 8, 20, 21).
//!
//! Its numbers are times where time is ahead of them, so that none repeats after a failover that
//! lost the last ones; the bytes of a message are its payload's. One call from outside is many
//! calls here: [`Scheduler::start`] begins it, with what is due and a budget of messages that all
//! of it together may make ready.

use crate::key::{Key, KeyRef};
use crate::queue::calls::lease::{Failed, Failure, LeaseLost};
use crate::queue::parts::counts::Happened;
use crate::queue::parts::feed::Change;
use crate::queue::parts::numbers::Numbers;
use crate::queue::parts::watch::Watch;
use crate::queue::scheduler::{Budget, Handle, NoRoom, Put, Scheduler};
use crate::queue::types::message::RETURNED;
use crate::queue::types::{Options, Then, Time};

/// Joins the errors of a message into one text. Arguments: the text so far, the new error, the attempt that
/// failed, the time.
pub type JoinErrors = fn(Option<&str>, &str, u32, Time) -> Box<str>;
/// Finds the newest error in such a text.
pub type NewestError = fn(&str) -> &str;

/// State that only a queue that serves several processes has.
#[derive(Debug)]
pub(in crate::queue) struct EngineSide<P> {
    /// The function that tells a payload's bytes, where the puts do not.
    weigh: Option<fn(&P) -> u64>,
    /// The function that makes the error of an attempt one with those before it.
    join: Option<JoinErrors>,
    newest: Option<NewestError>,
    /// The next call is a part of one that has begun: what is due was applied, and this is left to it.
    carried: Option<Budget>,
    /// True while somebody waits for messages to be settled; and the ids of those that were.
    notes_settled: bool,
    settled: Vec<u64>,
    /// The last call to lease got nothing, and set messages aside.
    pub set_aside: bool,
    /// Messages that were cancelled with others, whose payloads are to be dropped.
    pub cancelled: Vec<(u64, P)>,
}

impl<P> Default for EngineSide<P> {
    fn default() -> Self {
        EngineSide {
            weigh: None,
            join: None,
            newest: None,
            carried: None,
            notes_settled: false,
            settled: Vec::new(),
            set_aside: false,
            cancelled: Vec::new(),
        }
    }
}

impl<P> EngineSide<P> {
    #[inline]
    pub fn weight(&self, payload: &P) -> Option<u64> {
        self.weigh.map(|weigh| weigh(payload))
    }

    /// Returns whether payloads are weighed.
    #[inline]
    pub fn weighs(&self) -> bool {
        self.weigh.is_some()
    }

    #[inline]
    pub fn note_settled(&mut self, id: u64) {
        if self.notes_settled {
            self.settled.push(id);
        }
    }

    #[inline]
    pub fn take_carried(&mut self) -> Option<Budget> {
        self.carried.take()
    }
}

impl<P> Scheduler<P> {
    /// A scheduler whose numbers are the larger of the last one plus 1 and the time, µs.
    pub fn by_time(options: Options, weigh: fn(&P) -> u64) -> Self {
        let mut scheduler = Scheduler::new(options, Watch::off());
        scheduler.numbers = Numbers::by_time();
        scheduler.engine.weigh = Some(weigh);
        scheduler
    }

    /// From now on the errors of all attempts are kept, as `join` makes one text of them.
    pub fn keep_errors(&mut self, join: JoinErrors, newest: NewestError) {
        (self.engine.join, self.engine.newest) = (Some(join), Some(newest));
    }

    /// The error of the last attempt that failed.
    pub(in crate::queue) fn newest_error(&self, at: u32) -> Box<str> {
        let failing = self.records.failing(at);
        let error = failing.and_then(|failing| failing.error.as_deref()).unwrap_or_default();
        self.engine.newest.map_or(error, |newest| newest(error)).into()
    }

    /// Keeps the error of an attempt that failed.
    pub(in crate::queue) fn note_error(&mut self, at: u32, error: &str) {
        let Some(join) = self.engine.join else { return self.records.set_error(at, error) };
        let before = self.records.failing(at).and_then(|failing| failing.error.as_deref());
        let joined = join(before, error, self.records.attempt(at), self.now);
        self.records.set_error(at, &joined);
    }

    /// The time of a call for which nothing that is due is applied: one that is replayed.
    #[inline]
    pub fn pass(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// Makes the next call (`cancel`, `skip`, ...) part of the one that `start` began, with this budget.
    pub fn carry(&mut self, budget: Budget) {
        self.engine.carried = Some(budget);
        self.earliest_due = 0;
    }

    /// The message of a dedup string that is known (clause 13).
    #[inline]
    pub fn known(&self, name: &str) -> Option<u64> {
        self.dedup.find(name, self.now)
    }

    /// A put whose dedup string was known.
    pub fn deduplicated(&mut self) {
        self.counts.note(Happened::Deduplicated);
    }

    pub fn nack_within(
        &mut self,
        handle: Handle,
        delay: Option<u64>,
        error: &str,
        budget: &mut Budget,
    ) -> Result<Failed, LeaseLost> {
        let at = self.leased(handle)?;
        self.end_lease(handle.place);
        self.feed.ended = handle.token;
        Ok(self.fail(at, Failure::Nack { delay, error }, budget))
    }

    pub fn reject_within(
        &mut self,
        handle: Handle,
        reason: &str,
        budget: &mut Budget,
    ) -> Result<Failed, LeaseLost> {
        let at = self.leased(handle)?;
        self.end_lease(handle.place);
        self.feed.ended = handle.token;
        self.note_error(at, reason);
        Ok(self.give_up(at, Then::Dead, reason, budget))
    }

    pub fn exhaust_within(
        &mut self,
        handle: Handle,
        error: &str,
        budget: &mut Budget,
    ) -> Result<Failed, LeaseLost> {
        let at = self.leased(handle)?;
        self.end_lease(handle.place);
        self.feed.ended = handle.token;
        self.note_error(at, error);
        let then = self.retry_of(at).then;
        Ok(self.give_up(at, then, error, budget))
    }

    /// The message had expired before a handler began: it is settled. Gives back the payload.
    pub fn drop_within(
        &mut self,
        handle: Handle,
        reason: &str,
        budget: &mut Budget,
    ) -> Result<Option<P>, LeaseLost> {
        let at = self.leased(handle)?;
        self.hand_on_lease(handle.place);
        self.feed.ended = handle.token;
        self.note_failure(Change::MessageExpired, at, reason);
        self.counts.note(Happened::MessageExpired);
        Ok(self.settle(at, budget))
    }

    pub fn release_within(&mut self, handle: Handle) -> Result<(), LeaseLost> {
        let at = self.leased(handle)?;
        self.end_lease(handle.place);
        self.counts.note(Happened::Released);
        self.note(Change::Release, at, handle.token);
        self.records.mark(at, RETURNED);
        self.make_ready(at);
        Ok(())
    }

    /// The handler cannot start now: same place, same attempt, `delay` µs later.
    pub fn defer_within(&mut self, handle: Handle, delay: u64) -> Result<(), LeaseLost> {
        let at = self.leased(handle)?;
        self.end_lease(handle.place);
        self.counts.note(Happened::Released);
        self.note(Change::Defer, at, handle.token);
        self.records.mark(at, RETURNED);
        match delay {
            0 => self.make_ready(at),
            _ => self.back_off(at, self.now.saturating_add(delay)),
        }
        Ok(())
    }

    /// Cancels up to `limit` messages that are not leased, fewer where they have more keys than `keys`
    /// together: their ids and payloads.
    pub fn cancel_some(
        &mut self,
        limit: usize,
        mut keys: usize,
        budget: &mut Budget,
    ) -> Vec<(u64, P)> {
        use crate::queue::types::State;
        let idle = |state: Option<State>| state.is_some_and(|state| state != State::Leased);
        let places: Vec<(u64, u32)> = self
            .records
            .all()
            .filter(|(_, message)| idle(message.state))
            .take(limit)
            .map(|(at, message)| (message.id, at))
            .collect();
        let mut cancelled = Vec::new();
        let noted = self.feed.count();
        for (id, at) in places {
            if keys == 0 {
                break;
            }
            keys = keys.saturating_sub(self.key_count(at));
            cancelled.extend(self.cancel_at(at, budget).map(|payload| (id, payload)));
        }
        self.feed.sort_from(noted);
        cancelled
    }

    /// Cancels one message more of those that one call cancels.
    pub fn cancel_within(&mut self, id: u64, budget: &mut Budget) -> Option<P> {
        let at = self.records.find(id)?;
        self.cancel_at(at, budget)
    }

    /// Drops up to `limit` dead letters, the oldest first: their payloads.
    pub fn drop_dead(&mut self, limit: usize) -> Vec<P> {
        let ids: Vec<u64> = self.dead.iter().take(limit).map(|dead| dead.id).collect();
        ids.into_iter().filter_map(|id| Some(self.dead.remove(id)?.payload)).collect()
    }

    /// Checks whether a dead letter, put again, would find room (clause 11).
    pub fn requeue_room(&self, id: u64) -> Option<Result<(), NoRoom>> {
        let dead = self.dead.get(id)?;
        let size = self.engine.weight(&dead.payload).unwrap_or(dead.size);
        let room = self.room(1, size);
        if room == Err(NoRoom::TooLarge) || !self.parked.is_busy() {
            return Some(room);
        }
        let refs = |shared: bool| -> Vec<KeyRef<'_>> {
            let keys = dead.keys.iter().filter(|(_, s)| *s == shared);
            keys.map(|(key, _)| KeyRef::new(key.as_bytes())).collect()
        };
        let (keys, shared) = (refs(false), refs(true));
        let put = Put { keys: &keys, shared: &shared, size, behind: dead.behind, ..Put::default() };
        Some(self.room_behind(&[put]).and(room))
    }

    /// Replaces the payload of a dead letter, and returns the old one; `None` if the id is unknown.
    pub fn edit_dead(&mut self, id: u64, payload: P) -> Option<P> {
        self.dead.set_payload(id, payload)
    }

    /// Replaces the keys of a dead letter that is not a barrier. A key named twice counts once, as in a put.
    pub fn rekey_dead(&mut self, id: u64, exclusive: &[KeyRef<'_>], shared: &[KeyRef<'_>]) {
        let owned = |(key, shared): (&KeyRef<'_>, bool)| (Key::new(key.bytes), shared);
        let exclusive = exclusive.iter().map(|key| (key, false));
        let keys = exclusive.chain(shared.iter().map(|key| (key, true))).map(owned).collect();
        self.dead.set_keys(id, keys);
    }

    /// Replaces the limit names, joined, the group and the run of a dead letter; empty: none.
    pub fn rename_dead(&mut self, id: u64, limit: Vec<u8>, group: &[u8], run: &[u8]) {
        self.dead.set_names(id, limit, group.to_vec(), run.to_vec());
    }

    /// From now on, or no longer, the ids of messages that were settled are noted.
    pub fn note_ended(&mut self, notes: bool) {
        self.engine.notes_settled = notes;
        self.engine.settled.clear();
    }

    /// Returns whether the last `lease_batch` leased nothing, and set messages aside for paused keys or limits.
    /// Later calls may then lease other messages.
    pub fn has_set_aside(&self) -> bool {
        self.engine.set_aside
    }

    /// The ids noted since this was last asked.
    pub fn ended(&mut self) -> std::vec::Drain<'_, u64> {
        self.engine.settled.drain(..)
    }

    /// Other bounds, for what comes; another policy, for failures from now on.
    pub fn redeclare(&mut self, options: Options) {
        self.dead.set_bounds(options.max_dead, options.dead_ttl);
        self.dedup.set_window(options.dedup_window);
        self.declare_limits(options.limits.clone());
        self.declare_weights(options.weights.clone());
        self.declare_behind(options.behind);
        self.options = options;
        self.earliest_due = 0;
    }

    /// The lowest sequence of those that are ready or stand ready behind a pause that they have not come up to;
    /// `None`: nothing is ready. It looks at the front of each priority.
    pub fn oldest_ready(&mut self) -> Option<u64> {
        if self.counts().ready == 0 {
            return None;
        }
        let records = &self.records;
        let plain = self.ready.oldest(|ticket| records.is_ready(ticket));
        let grouped = match self.gate.groups.is_idle() {
            true => None,
            false => self.gate.groups.oldest(),
        };
        plain.into_iter().chain(grouped).min()
    }

    /// Bytes of the unsettled messages.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.counts.bytes()
    }
}
