//! Leases: tokens, deadlines, and what a consumer says of one (clauses 8, 9, 10, 24).
//!
//! ```
//! use interlock_core::queue::calls::lease::{Failed, LeaseLost};
//! use interlock_core::queue::scheduler::{Put, Scheduler};
//! use interlock_core::queue::types::{Kind, Options};
//! use interlock_core::queue::parts::watch::Watch;
//!
//! let options = Options { lease: Some(30), ..Options::default() };
//! let mut scheduler = Scheduler::new(options, Watch::off());
//! scheduler.put(1, &Put::default(), &mut Some("mail")).unwrap();
//! let grant = scheduler.lease(1, Kind::Any, 0).unwrap();
//! scheduler.extend(20, grant.handle, 30).unwrap(); // until 50, not 31
//! scheduler.release(40, grant.handle).unwrap(); // never started: the same attempt again
//! let again = scheduler.lease(40, Kind::Any, 0).unwrap();
//! assert!(again.attempt == 1 && again.handle.token > grant.handle.token);
//! assert_eq!(scheduler.reject(40, again.handle, "no such room"), Ok(Failed::Dead));
//! assert_eq!(scheduler.ack(40, again.handle), Err(LeaseLost));
//! ```

use crate::key::Key;
use crate::queue::parts::batches::Told;
use crate::queue::parts::counts::Happened;
use crate::queue::parts::dead::Dead;
use crate::queue::parts::feed::Change;
use crate::queue::parts::leases::Lease;
use crate::queue::parts::watch::Event;
use crate::queue::scheduler::{Budget, Handle, Scheduler};
use crate::queue::schedules::trace::Call;
use crate::queue::types::message::{BARRIER, QUIET, RETURNED};
use crate::queue::types::{Retry, Then, Time};

/// The token is not, or no longer, that of a lease: nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLost;

/// The outcome for a message whose handling failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Retried after this many µs, at the same attempt.
    Again {
        attempt: u32,
        after: u64,
    },
    Dead,
    Held,
}

/// The source of a failure; it decides what is counted and kept as its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::queue) enum Failure<'a> {
    Nack { delay: Option<u64>, error: &'a str },
    Expired,
    Revoked,
}

impl<P> Scheduler<P> {
    /// The message of a lease that stands.
    #[inline]
    pub(in crate::queue) fn leased(&self, handle: Handle) -> Result<u32, LeaseLost> {
        self.leases.standing(handle, self.now).map(|lease| lease.message).ok_or(LeaseLost)
    }

    /// Returns whether a lease still stands, at the time of the last call.
    #[inline]
    pub fn holds(&self, handle: Handle) -> bool {
        self.leased(handle).is_ok()
    }

    /// The message was handled. Gives back the payload.
    #[inline]
    pub fn ack(&mut self, now: Time, handle: Handle) -> Result<Option<P>, LeaseLost> {
        self.ack_showing(now, handle, |_, _| ())
    }

    /// Like `ack`, and shows the message's keys, each with whether it is shared, before they are
    /// dropped.
    #[inline(always)]
    pub fn ack_showing(
        &mut self,
        now: Time,
        handle: Handle,
        show: impl FnMut(&Key, bool),
    ) -> Result<Option<P>, LeaseLost> {
        let mut budget = self.begin_usual(now, || Call::Ack { token: handle.token });
        if self.watch.wants_handled {
            self.note_handled(handle);
        }
        let at = self.leases.end_standing(handle, self.now).ok_or(LeaseLost)?;
        self.free_slots(at);
        self.counts.note(Happened::Acked);
        let payload = self.settle_showing(at, &mut budget, show);
        self.moves(&mut budget);
        Ok(payload)
    }

    /// Ends the lease of a message that was not handled: it is retried, or given up (clauses 9,
    /// 10).
    pub fn nack(
        &mut self,
        now: Time,
        handle: Handle,
        delay: Option<u64>,
        error: &str,
    ) -> Result<Failed, LeaseLost> {
        let mut budget =
            self.begin(now, || Call::Nack { token: handle.token, delay, error: error.to_owned() });
        let at = self.leased(handle)?;
        self.end_lease(handle.place);
        let failed = self.fail(at, Failure::Nack { delay, error }, &mut budget);
        self.moves(&mut budget);
        Ok(failed)
    }

    /// The message cannot be handled: a dead letter at once.
    pub fn reject(&mut self, now: Time, handle: Handle, reason: &str) -> Result<Failed, LeaseLost> {
        let mut budget =
            self.begin(now, || Call::Reject { token: handle.token, reason: reason.to_owned() });
        let at = self.leased(handle)?;
        self.end_lease(handle.place);
        self.note_error(at, reason);
        let failed = self.give_up(at, Then::Dead, reason, &mut budget);
        self.moves(&mut budget);
        Ok(failed)
    }

    /// The message was not handled, and another attempt is of no use: as if they were used up
    /// (clause 10).
    pub fn exhaust(&mut self, now: Time, handle: Handle, error: &str) -> Result<Failed, LeaseLost> {
        let mut budget =
            self.begin(now, || Call::Exhaust { token: handle.token, error: error.to_owned() });
        let failed = self.exhaust_within(handle, error, &mut budget);
        self.moves(&mut budget);
        failed
    }

    /// The handler never started: same place, same attempt (clause 9).
    pub fn release(&mut self, now: Time, handle: Handle) -> Result<(), LeaseLost> {
        self.begin(now, || Call::Release { token: handle.token });
        let at = self.leased(handle)?;
        self.end_lease(handle.place);
        self.counts.note(Happened::Released);
        self.records.mark(at, RETURNED);
        self.make_ready(at);
        Ok(())
    }

    /// The handler cannot start now: same place, same attempt, `delay` µs later (clause 9).
    pub fn defer(&mut self, now: Time, handle: Handle, delay: u64) -> Result<(), LeaseLost> {
        self.begin(now, || Call::Defer { token: handle.token, delay });
        self.defer_within(handle, delay)
    }

    /// A new deadline, `by` µs from now.
    pub fn extend(&mut self, now: Time, handle: Handle, by: u64) -> Result<(), LeaseLost> {
        self.begin(now, || Call::Extend { token: handle.token, by });
        let at = self.leased(handle)?;
        let id = self.records[at].id;
        self.leases.set_deadline(handle.place, id, self.now.saturating_add(by));
        Ok(())
    }

    /// A lease ran out (clause 9). The first time it is unknown whether this message killed its
    /// consumer: it is delivered again at the same attempt, alone. Only then an attempt is counted.
    /// If no handler had begun, the attempt stays the same; a holder that does not report is given
    /// the benefit of the doubt twice.
    pub(in crate::queue) fn ran_out(&mut self, lease: &Lease, told: Told, budget: &mut Budget) {
        let at = lease.message;
        self.counts.note(Happened::LeaseExpired);
        self.note_expired(lease);
        let silent = if told == Told::Nothing { self.records.silent(at) + 1 } else { 0 };
        let begun = matches!(told, Told::Assumed | Told::Begun) || silent > BELIEVED;
        let was_suspect = self.records.suspect(at) > 0;
        if begun {
            self.records.set_suspect(at, lease.token);
        }
        self.records.set_silent(at, silent.min(BELIEVED));
        if begun && was_suspect {
            self.fail(at, Failure::Expired, budget);
            return;
        }
        if begun {
            let (id, attempt) = (self.records[at].id, self.records.attempt(at));
            let (failed, error) = (Failed::Again { attempt, after: 0 }, EXPIRED.to_owned());
            self.watch.push(Event::Failed { id, attempt, failed, error });
        }
        self.records.mark(at, RETURNED);
        self.make_ready(at);
    }

    /// Somebody settles by a lease that ran out: its consumer lives, so the message did not end it.
    pub fn clear_suspect(&mut self, token: u64, id: u64) {
        if let Some(at) = self.records.find(id).filter(|&at| self.records.suspect(at) == token) {
            self.records.set_suspect(at, 0);
        }
    }

    /// An attempt failed: the retry policy decides.
    pub(in crate::queue) fn fail(
        &mut self,
        at: u32,
        failure: Failure<'_>,
        budget: &mut Budget,
    ) -> Failed {
        let error = match failure {
            Failure::Nack { error, .. } => {
                // Its handler ended by itself.
                self.records.set_suspect(at, 0);
                error
            }
            Failure::Expired => EXPIRED,
            Failure::Revoked => "revoked",
        };
        self.note_error(at, error);
        let attempt = self.records.attempt(at);
        let retry = self.retry_of(at);
        if retry.attempts.is_some_and(|most| attempt >= most) {
            let then = retry.then;
            return self.give_up(at, then, error, budget);
        }
        let after = match failure {
            Failure::Nack { delay: Some(delay), .. } => delay,
            _ => (self.rules.backoff)(&retry, self.records[at].id, attempt),
        };
        self.counts.note(Happened::Retried);
        self.note_failure(Change::Retry, at, error);
        self.records.set_attempt(at, attempt + 1);
        self.records.mark(at, RETURNED);
        if after == 0 {
            self.make_ready(at);
        } else {
            self.back_off(at, self.now.saturating_add(after));
        }
        let failed = Failed::Again { attempt: attempt + 1, after };
        self.note_failed(at, attempt, failed);
        failed
    }

    /// A message becomes a dead letter, or is held if policy or the room for dead letters say so.
    pub(in crate::queue) fn give_up(
        &mut self,
        at: u32,
        then: Then,
        error: &str,
        budget: &mut Budget,
    ) -> Failed {
        let (id, attempt) = (self.records[at].id, self.records.attempt(at));
        if then == Then::Hold || self.dead_full() {
            self.hold(at);
            self.note_failure(Change::Hold, at, error);
            self.note_failed(at, attempt, Failed::Held);
            self.become_stuck(at);
            return Failed::Held;
        }
        if self.begins_to_die(at, self.feed.ended, error, budget) {
            // As if it were held, as long as others are to go with it.
            let failed =
                if self.records.find(id) == Some(at) { Failed::Held } else { Failed::Dead };
            let error = error.to_owned();
            self.watch.push(Event::Failed { id, attempt, failed, error });
            return failed;
        }
        self.note_failure(Change::Dead, at, error);
        self.note_failed(at, attempt, Failed::Dead);
        self.bury_message(at, budget);
        Failed::Dead
    }

    /// Removes a message from its lanes and stores it as a dead letter.
    pub(in crate::queue) fn bury_message(&mut self, at: u32, budget: &mut Budget) {
        let keys = self.keys_of(at);
        let message = &self.records[at];
        let (id, priority, flags) = (message.id, message.priority, message.flags);
        let failing = self.records.take_failing(at);
        let size = self.records.extra(at).map_or(0, |extra| extra.size);
        let dead = Dead {
            id,
            keys,
            attempts: self.records.attempt(at),
            error: failing.error.map_or_else(String::new, String::from),
            retry: failing.retry,
            priority,
            barrier: flags & BARRIER != 0,
            quiet: flags & QUIET != 0,
            size,
            put_at: self.numbers.time_of(id),
            died_at: self.now,
            limit: self.gate.names_of(at),
            group: self.gate.groups.text_of(at).to_vec(),
            behind: self.records.own_behind(at),
            run: self.runs.of(id).to_vec(),
            payload: (),
        };
        let payload = self.settle(at, budget).expect("an unsettled message has its payload");
        self.counts.note(Happened::DeadLettered);
        // A put may bury its message, after it asked when something is due.
        self.earliest_due = 0;
        self.dead.push(dead.with(payload));
    }

    pub(in crate::queue) fn retry_of(&self, at: u32) -> Retry {
        let queue = &self.options.retry;
        let own = self.records.failing(at).and_then(|failing| failing.retry.as_ref());
        own.map_or_else(|| queue.clone(), |own| own.over(queue))
    }

    pub(in crate::queue) fn note_failed(&mut self, at: u32, attempt: u32, failed: Failed) {
        let error = self.records.failing(at).and_then(|failing| failing.error.as_deref());
        let (id, error) = (self.records[at].id, error.unwrap_or_default().to_owned());
        self.watch.push(Event::Failed { id, attempt, failed, error });
    }
}

impl Dead<()> {
    pub(in crate::queue) fn with<P>(self, payload: P) -> Dead<P> {
        let Dead {
            id,
            keys,
            attempts,
            error,
            retry,
            priority,
            barrier,
            quiet,
            size,
            put_at,
            died_at,
            limit,
            group,
            behind,
            run,
            ..
        } = self;
        Dead {
            id,
            keys,
            attempts,
            error,
            retry,
            priority,
            barrier,
            quiet,
            size,
            put_at,
            died_at,
            limit,
            group,
            behind,
            run,
            payload,
        }
    }
}

/// The error of an attempt whose lease ran out.
const EXPIRED: &str = "lease expired";

/// Number of times in a row that a suspect message is not charged when its holder reported nothing
/// before its lease ran out. A consumer may die of another message before it can report, and one
/// that never reports must not go free.
const BELIEVED: u64 = 2;
