//! State that a queue takes over from another one that it replaces: messages with the attempts they
//! had, dead letters, the end of its series of numbers.
//!
//! ```
//! use interlock_core::queue::calls::carry::Stands;
//! use interlock_core::queue::scheduler::{Put, Scheduler};
//! use interlock_core::queue::types::{Options, State};
//!
//! let mut scheduler = Scheduler::by_time(Options::default(), |_: &&str| 0);
//! let (_, mut budget) = scheduler.start(1_000);
//! let put = Put::default();
//! let (id, state) = scheduler.carry_in(&put, "mail", 3, "no route", Stands::Held, &mut budget);
//! assert_eq!(state, Some(State::Held));
//! let seen = scheduler.seen(id).unwrap();
//! assert_eq!((seen.attempt, seen.error), (3, Some("no route")));
//! ```

use hashbrown::HashSet;

use crate::key::Key;
use crate::queue::parts::dead::Dead;
use crate::queue::parts::groups::Front;
use crate::queue::parts::ready::Ticket;
use crate::queue::scheduler::{Budget, Put, Scheduler};
use crate::queue::types::message::{GROUPED, KEYED, RETURNED};
use crate::queue::types::{State, Time};

/// Data that a message brings from the queue it comes from.
pub(in crate::queue) struct Carried<'a> {
    pub attempt: u32,
    /// Its last error; empty: none.
    pub error: &'a str,
    /// It was held, or backed off.
    pub stops: bool,
}

/// The state of a message in the queue it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    Waiting,
    /// Until then.
    Delayed(Time),
    /// Until then.
    BackingOff(Time),
    Held,
}

impl<P> Scheduler<P> {
    /// Queues a message that is new, with its attempt and its last error (empty: none), and returns
    /// its id and state; `None`: it was buried or cancelled behind a message that is held. A message that was
    /// held or backing off waits if another one is in front of it: it had been in front, and must get there
    /// before it can stop again.
    pub fn carry_in(
        &mut self,
        put: &Put<'_>,
        payload: P,
        attempt: u32,
        error: &str,
        stands: Stands,
        budget: &mut Budget,
    ) -> (u64, Option<State>) {
        debug_assert!(self.numbers.are_times(), "of a queue that several processes share");
        // As it enters it may be ready, and it is taken back from there. The end of the plain line is
        // where it then surely is, whatever its priority. Those of groups are found anywhere.
        let stops = matches!(stands, Stands::Held | Stands::BackingOff(_));
        let delay = u64::from(matches!(stands, Stands::Delayed(_)));
        let own_priority = put.priority;
        let priority = if stops && put.group.is_empty() { 0 } else { own_priority };
        let carried = Carried { attempt, error, stops };
        let put = Put { priority, delay, ..*put };
        let id = self.enter_as(&put, Some(payload), Some(&carried));
        let Some(at) = self.records.find(id) else { return (id, None) };
        self.records.set_priority(at, own_priority);
        let ready = self.records[at].state == Some(State::Ready);
        match stands {
            Stands::Delayed(due) => self.change_delay(at, due),
            Stands::Held if ready => {
                self.take_back(at);
                self.hold(at);
                self.become_stuck(at);
                self.moves(budget);
            }
            Stands::BackingOff(until) if ready => {
                self.take_back(at);
                self.back_off(at, until);
            }
            _ => {}
        }
        (id, self.records[at].state)
    }

    pub(in crate::queue) fn set_carried(&mut self, at: u32, carried: &Carried<'_>) {
        if carried.attempt > 1 {
            self.records.set_attempt(at, carried.attempt);
        }
        if !carried.error.is_empty() {
            self.records.set_error(at, carried.error);
        }
        if carried.stops || carried.attempt > 1 {
            self.records.mark(at, RETURNED);
        }
    }

    /// Keeps a dead letter that died elsewhere, behind those that there are; its id.
    pub fn carry_dead(
        &mut self,
        put: &Put<'_>,
        payload: P,
        attempts: u32,
        error: &str,
        died_at: Time,
    ) -> u64 {
        let id = self.numbers.draw(self.now);
        // As lanes take them: named twice counts once, and exclusive goes before shared.
        let mut seen = HashSet::<&[u8], std::hash::RandomState>::default();
        let name = put.coalesce.map(|coalesce| coalesce.name);
        let exclusive = name.into_iter().chain(put.keys.iter().map(|key| key.bytes));
        let keys = exclusive
            .map(|key| (key, false))
            .chain(put.shared.iter().map(|key| (key.bytes, true)))
            .filter(|(key, _)| seen.insert(key))
            .map(|(key, shared)| (Key::new(key), shared))
            .collect();
        self.dead.push(Dead {
            id,
            keys,
            attempts,
            error: error.to_owned(),
            retry: put.retry.cloned(),
            priority: put.priority,
            barrier: put.barrier,
            quiet: put.quiet,
            size: put.size,
            put_at: self.numbers.time_of(id),
            // Its age counts from here on at the latest, whatever the clock there said.
            died_at: died_at.min(self.now),
            limit: put.limit.to_vec(),
            group: put.group.to_vec(),
            behind: put.behind,
            run: put.run.to_vec(),
            payload,
        });
        id
    }

    /// Registers a string for this many µs as the dedup string of a message that is settled now
    /// (clause 13).
    pub fn know(&mut self, name: &str, id: u64, window: u64) {
        let known = self.dedup.insert(name, id, Some(window), self.now);
        self.dedup.settled(known, self.now);
    }

    /// Returns the numbers at which its series continue: ids, and tokens.
    pub fn series(&self) -> (u64, u64) {
        (self.numbers.next(), self.leases.last_token())
    }

    /// Continues the series of another scheduler, in one that has given no number yet (clause 8).
    pub fn go_on_from(&mut self, (next, last_token): (u64, u64)) {
        self.numbers.go_on_from(next);
        self.leases.go_on_from(last_token);
    }

    /// Removes a message that entered as ready, last of all and, without a group, at no priority, from the
    /// ready ones.
    fn take_back(&mut self, at: u32) {
        let (sequence, message) = (self.records.sequence(at), &self.records[at]);
        let keyed = message.flags & KEYED != 0;
        if message.flags & GROUPED == 0 {
            self.ready.take_back(keyed, Ticket::new(0, sequence, at));
        } else {
            let ticket = Ticket::new(message.priority, sequence, at);
            self.gate.groups.remove(Front::Ready, keyed, ticket);
        }
    }
}
