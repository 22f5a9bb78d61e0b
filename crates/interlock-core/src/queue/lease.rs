//! Leases: tokens, deadlines, and what a consumer says of one (clauses 8, 9, 10, 24).
//!
//! ```
//! use interlock_core::queue::lease::{Failed, LeaseLost};
//! use interlock_core::queue::scheduler::{Put, Scheduler};
//! use interlock_core::queue::types::{Kind, Options};
//! use interlock_core::queue::watch::Watch;
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

use crate::queue::dead::Dead;
pub use crate::queue::lane::KeysOf;
use crate::queue::message::{Failing, BARRIER, QUIET};
use crate::queue::scheduler::{Budget, Handle, Scheduler};
use crate::queue::slab::{Record, NONE};
use crate::queue::timers::Due;
use crate::queue::trace::Call;
use crate::queue::types::{Retry, State, Then, Time};
use crate::queue::watch::Event;

/// The right to handle one message, as the scheduler keeps it.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// 0: free.
    pub token: u64,
    pub at: Time,
    /// The deadline, where `timer` says that it has one.
    pub deadline: Time,
    pub consumer: u64,
    pub message: u32,
    /// Its place among the deadlines; `NONE`: it has no deadline.
    pub timer: u32,
    /// Its place among the leases of many messages; `NONE`: it is of one.
    pub batch: u32,
    /// It was said that it is held too long.
    pub noted: bool,
}

impl Default for Lease {
    fn default() -> Self {
        Lease {
            token: 0,
            at: 0,
            deadline: 0,
            consumer: 0,
            message: NONE,
            timer: NONE,
            batch: NONE,
            noted: false,
        }
    }
}

impl Record for Lease {
    fn clear(&mut self) {
        self.token = 0;
    }
    fn link(&self) -> u32 {
        self.message
    }
    fn set_link(&mut self, next: u32) {
        self.message = next;
    }
}

/// The token is not, or no longer, that of a lease: nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLost;

/// The outcome for a message whose handling failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It comes again, as this attempt, after so many µs.
    Again {
        attempt: u32,
        after: u64,
    },
    Dead,
    Held,
}

/// The source of a failure; it decides what is counted and kept as its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure<'a> {
    Nack { delay: Option<u64>, error: &'a str },
    Expired,
    Revoked,
}

impl<P> Scheduler<P> {
    /// The message of a lease that stands. Once its deadline is reached it is over, even if what falls due
    /// has not come to it yet (clauses 8, 20).
    #[inline]
    pub(super) fn leased(&self, handle: Handle) -> Result<u32, LeaseLost> {
        match self.leases.get(handle.place) {
            Some(lease) if lease.token == handle.token && !self.is_over(lease) => Ok(lease.message),
            _ => Err(LeaseLost),
        }
    }

    /// Returns whether the deadline of a lease is reached.
    #[inline]
    pub(super) fn is_over(&self, lease: &Lease) -> bool {
        if lease.timer & lease.batch == NONE {
            return false;
        }
        let deadline = match lease.batch {
            NONE => lease.deadline,
            batch => self.batches.slab[batch].deadline,
        };
        deadline <= self.now
    }

    /// Returns whether a lease still stands, at the time of the last call.
    #[inline]
    pub fn holds(&self, handle: Handle) -> bool {
        self.leased(handle).is_ok()
    }

    /// Ends the lease of a message.
    #[inline]
    pub(super) fn end_lease(&mut self, place: u32) -> Lease {
        let lease = self.leases.take(place, |lease| *lease);
        if lease.batch != NONE {
            self.batches.left(lease.batch);
        }
        if lease.timer != NONE {
            let leases = &mut self.leases;
            self.deadlines.remove(lease.timer, |owner, position| leases[owner].timer = position);
        }
        lease
    }

    /// The message was handled. Gives back the payload.
    #[inline]
    pub fn ack(&mut self, now: Time, handle: Handle) -> Result<Option<P>, LeaseLost> {
        self.ack_showing(now, handle, |_| ())
    }

    /// As `ack`; shows the message's keys before they are forgotten.
    #[inline]
    pub fn ack_showing(
        &mut self,
        now: Time,
        handle: Handle,
        show: impl FnOnce(KeysOf<'_>),
    ) -> Result<Option<P>, LeaseLost> {
        let mut budget = self.begin(now, || Call::Ack { token: handle.token });
        let at = self.leased(handle)?;
        show(self.lanes.keys_of(self.messages[at].first_edge));
        let lease = self.end_lease(handle.place);
        self.stats.acks += 1;
        if self.watch.wants_handled {
            self.note_handled(at, &lease);
        }
        Ok(self.settle(at, &mut budget))
    }

    /// The message was not handled: it comes again, or is given up (clauses 9, 10).
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
        Ok(self.fail(at, Failure::Nack { delay, error }, &mut budget))
    }

    /// The message cannot be handled: a dead letter at once.
    pub fn reject(&mut self, now: Time, handle: Handle, reason: &str) -> Result<Failed, LeaseLost> {
        let mut budget =
            self.begin(now, || Call::Reject { token: handle.token, reason: reason.to_owned() });
        let at = self.leased(handle)?;
        self.end_lease(handle.place);
        self.set_error(at, reason);
        Ok(self.give_up(at, Then::Dead, &mut budget))
    }

    /// The message was not handled, and another attempt is of no use: as if they were used up
    /// (clause 10).
    pub fn exhaust(&mut self, now: Time, handle: Handle, error: &str) -> Result<Failed, LeaseLost> {
        let mut budget =
            self.begin(now, || Call::Exhaust { token: handle.token, error: error.to_owned() });
        self.exhaust_within(handle, error, &mut budget)
    }

    /// The handler never started: same place, same attempt (clause 9).
    pub fn release(&mut self, now: Time, handle: Handle) -> Result<(), LeaseLost> {
        self.begin(now, || Call::Release { token: handle.token });
        let at = self.leased(handle)?;
        self.end_lease(handle.place);
        self.stats.releases += 1;
        self.messages[at].hold = 0;
        self.make_ready(at);
        Ok(())
    }

    /// A new deadline, `by` µs from now.
    pub fn extend(&mut self, now: Time, handle: Handle, by: u64) -> Result<(), LeaseLost> {
        self.begin(now, || Call::Extend { token: handle.token, by });
        let at = self.leased(handle)?;
        let id = self.messages[at].id;
        let lease = &mut self.leases[handle.place];
        lease.deadline = self.now.saturating_add(by);
        let (deadline, timer) = (lease.deadline, lease.timer);
        let leases = &mut self.leases;
        if timer != NONE {
            self.deadlines.remove(timer, |owner, position| leases[owner].timer = position);
        }
        let due = Due { at: deadline, id, owner: handle.place };
        self.deadlines.insert(due, |owner, position| leases[owner].timer = position);
        Ok(())
    }

    /// An attempt failed: the retry policy decides.
    pub(super) fn fail(&mut self, at: u32, failure: Failure<'_>, budget: &mut Budget) -> Failed {
        let error = match failure {
            Failure::Nack { error, .. } => error,
            Failure::Expired => "lease expired",
            Failure::Revoked => "revoked",
        };
        self.set_error(at, error);
        let attempt = self.attempt(at);
        let retry = self.retry_of(at);
        if retry.attempts.is_some_and(|most| attempt >= most) {
            let then = retry.then;
            return self.give_up(at, then, budget);
        }
        let after = match failure {
            Failure::Nack { delay: Some(delay), .. } => delay,
            _ => backoff(&retry, self.messages[at].id, attempt),
        };
        self.stats.retries += 1;
        let extra = self.extra(at);
        extra.attempt = attempt + 1;
        self.messages[at].hold = 0;
        if after == 0 {
            self.make_ready(at);
        } else {
            self.messages[at].state = Some(State::BackingOff);
            self.extra(at);
            let due =
                Due { at: self.now.saturating_add(after), id: self.messages[at].id, owner: at };
            let (messages, extras) = (&self.messages, &mut self.extras);
            self.backoffs
                .insert(due, |owner, position| extras[messages[owner].extra].timer = position);
        }
        let failed = Failed::Again { attempt: attempt + 1, after };
        self.note_failed(at, attempt, failed);
        failed
    }

    /// A message becomes a dead letter, or is held if policy or the room for dead letters say so.
    pub(super) fn give_up(&mut self, at: u32, then: Then, budget: &mut Budget) -> Failed {
        let attempt = self.attempt(at);
        let failed = if then == Then::Hold || self.dead.full() {
            let message = &mut self.messages[at];
            message.hold = 0;
            message.state = Some(State::Held);
            self.stats.held += 1;
            Failed::Held
        } else {
            Failed::Dead
        };
        self.note_failed(at, attempt, failed);
        if failed == Failed::Dead {
            self.bury_message(at, budget);
        }
        failed
    }

    /// Takes a message out of its lanes and keeps it as a dead letter.
    pub(super) fn bury_message(&mut self, at: u32, budget: &mut Budget) {
        let message = &self.messages[at];
        let lanes = &self.lanes;
        let keys = lanes
            .edges_of(message.first_edge)
            .map(|(_, edge)| (lanes.lane(edge.lane()).key.clone(), edge.shared()))
            .collect();
        let (failing, size) = match message.extra {
            NONE => (Failing::default(), 0),
            extra => {
                let extra = &mut self.extras[extra];
                (extra.failing.take().map_or_else(Failing::default, |failing| *failing), extra.size)
            }
        };
        self.errors -= failing.bytes();
        let dead = Dead {
            id: message.id,
            keys,
            attempts: self.attempt(at),
            error: failing.error.map_or_else(String::new, String::from),
            retry: failing.retry,
            priority: message.priority,
            barrier: message.flags & BARRIER != 0,
            quiet: message.flags & QUIET != 0,
            size,
            put_at: self.put_at(message.id),
            died_at: self.now,
            payload: (),
        };
        let payload = self.settle(at, budget).expect("an unsettled message has its payload");
        self.stats.buried += 1;
        self.dead.push(dead.with(payload));
    }

    pub(super) fn set_error(&mut self, at: u32, error: &str) {
        let failing = self.failing(at);
        let before = failing.bytes();
        failing.error = Some(error.into());
        let more = failing.bytes() as isize - before as isize;
        self.errors = self.errors.wrapping_add_signed(more);
    }

    /// Returns the record of how a message failed, which keeps the retry policy of its put too.
    pub(super) fn failing(&mut self, at: u32) -> &mut Failing {
        self.extra(at).failing.get_or_insert_default()
    }

    pub(super) fn retry_of(&self, at: u32) -> Retry {
        let queue = &self.options.retry;
        match self.messages[at].extra {
            NONE => queue.clone(),
            extra => match &self.extras[extra].failing {
                Some(failing) => {
                    failing.retry.as_ref().map_or_else(|| queue.clone(), |own| own.over(queue))
                }
                None => queue.clone(),
            },
        }
    }

    fn note_failed(&mut self, at: u32, attempt: u32, failed: Failed) {
        let message = &self.messages[at];
        let error = match message.extra {
            NONE => None,
            extra => {
                self.extras[extra].failing.as_ref().and_then(|failing| failing.error.as_deref())
            }
        };
        let (id, error) = (message.id, error.unwrap_or_default().to_owned());
        self.watch.push(Event::Failed { id, attempt, failed, error });
    }
}

impl Dead<()> {
    pub(super) fn with<P>(self, payload: P) -> Dead<P> {
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
            payload,
        }
    }
}

/// The pause after a failed attempt, µs. With jitter it lies between half and all of the plain one,
/// by a hash of id and attempt: a recorded schedule must replay (clause 20).
///
/// The same to the last µs wherever a queue lives: multiplied step by step, in numbers that Lua has too.
fn backoff(retry: &Retry, id: u64, attempt: u32) -> u64 {
    let mut plain = retry.first as f64;
    for _ in 1..attempt.min(1 + MULTIPLIED) {
        plain *= retry.factor;
    }
    // A product beyond the range of u64 saturates in the cast, and NaN (0 times infinity) is 0.
    let plain = (plain as u64).min(retry.longest);
    if !retry.jitter {
        return plain;
    }
    let spread = id % 16_777_213 * 40_503 + u64::from(attempt) * 9_973;
    let part = (spread % 65_536) as f64 / 65_536.0;
    plain / 2 + ((plain - plain / 2) as f64 * part) as u64
}

/// A backoff is multiplied no more often: by then it is the longest, or does not grow.
const MULTIPLIED: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_the_longest_and_jitter_stays_in_its_upper_half() {
        let retry = Retry { jitter: false, ..Retry::default() };
        let plain: Vec<u64> = (1..9).map(|n| backoff(&retry, 1, n) / 1_000_000).collect();
        assert_eq!(plain, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff(&retry, 1, u32::MAX), 60_000_000);
        let jittered = Retry { jitter: true, ..retry };
        for id in 1..1000 {
            let pause = backoff(&jittered, id, 3);
            assert!((2_000_000..=4_000_000).contains(&pause));
        }
        let none = Retry { first: 0, ..Retry::default() };
        assert_eq!(backoff(&none, 1, 2_000_000), 0);
        // Worked out by hand from the page of the wire: half, and j of the other half.
        let id = 1_000_000_000_000_000;
        let j = (id % 16_777_213 * 40_503 + 3 * 9_973) % 65_536;
        assert_eq!(backoff(&jittered, id, 3), 2_000_000 + 2_000_000 * j / 65_536);
        assert_eq!(j, 41_386);
    }
}
