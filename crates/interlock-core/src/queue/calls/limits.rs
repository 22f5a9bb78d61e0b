//! Choosing what is leased where messages carry limit names (clauses 26 and 27) or have groups (clause 28). Queues
//! without any do not come here.

use crate::queue::parts::gate::Gate;
use crate::queue::parts::groups::Front;
use crate::queue::parts::ready::Ticket;
use crate::queue::scheduler::Scheduler;
use crate::queue::schedules::trace::Call;
use crate::queue::types::limits::{Limits, Weights};
use crate::queue::types::message::{GROUPED, KEYED, LIMITED, REFUSED};
use crate::queue::types::{Kind, LimitFull, LimitUse, Time};

/// A message that came up: the next of the ready ones and of those that the gate offers.
#[derive(Clone, Copy, Debug)]
pub(in crate::queue) struct Candidate {
    pub ticket: Ticket,
    pub keyed: bool,
    /// It waited for a name, and is not among the ready ones.
    offered: bool,
    /// It has a group.
    grouped: bool,
}

impl<P> Scheduler<P> {
    /// Other limits, from now on. Leases stay as they are.
    pub fn set_limits(&mut self, now: Time, limits: Limits) {
        self.begin(now, || Call::Limits { limits: limits.clone() });
        self.declare_limits(limits);
    }

    /// Like `set_limits`, within a call that has begun. What keepers keep is free.
    pub(in crate::queue) fn declare_limits(&mut self, limits: Limits) {
        if limits != self.options.limits {
            self.release_keepers(|_, _| true);
            self.gate.declare(&limits, self.now);
            self.await_times();
        }
        self.options.limits = limits;
    }

    /// Other weights of groups, from now on (clause 28).
    pub fn set_weights(&mut self, now: Time, weights: Weights) {
        self.begin(now, || Call::Weights { weights: weights.clone() });
        self.declare_weights(weights);
    }

    /// Like `set_weights`, within a call that has begun.
    pub(in crate::queue) fn declare_weights(&mut self, weights: Weights) {
        if weights != self.options.weights {
            self.gate.groups.declare(&weights);
        }
        self.options.weights = weights;
    }

    /// Closes a limit name to all messages for a time, µs (clause 27).
    pub fn close_limit(&mut self, now: Time, name: &[u8], delay: u64) {
        self.begin(now, || Call::CloseLimit { name: name.to_vec(), delay });
        self.close_limit_within(name, delay);
    }

    /// Like `close_limit`, within a call that has begun.
    pub fn close_limit_within(&mut self, name: &[u8], delay: u64) {
        self.gate.close(name, self.now.saturating_add(delay), self.now);
        self.await_times();
    }

    /// The gate may have changed the time at which a message may next have room.
    #[inline]
    pub(in crate::queue) fn await_times(&mut self) {
        self.earliest_due = self.earliest_due.min(self.gate.next_time());
    }

    /// The first message of a kind, by clause 6, or by the turns of groups.
    #[inline(always)]
    pub(in crate::queue) fn candidate(&mut self, kind: Kind) -> Option<Candidate> {
        if self.gate.is_none_or(Gate::is_idle) {
            let (keyed, ticket) = self.choose(kind)?;
            return Some(Candidate { ticket, keyed, offered: false, grouped: false });
        }
        match self.gate.groups.is_idle() {
            true => self.candidate_with_limits(kind),
            false => self.candidate_in_turn(kind),
        }
    }

    fn candidate_in_turn(&mut self, kind: Kind) -> Option<Candidate> {
        let records = &self.records;
        let mut plain = self.ready.fronts(|ticket| records.is_ready(ticket));
        for (first, offered) in plain.iter_mut().zip(self.gate.fronts()) {
            *first = first.iter().copied().chain(offered).min();
        }
        let (keyed, ticket) = self.gate.groups.next(kind, plain)?;
        let flags = self.records[ticket.message].flags;
        let (offered, grouped) = (flags & REFUSED != 0, flags & GROUPED != 0);
        Some(Candidate { ticket, keyed, offered, grouped })
    }

    fn candidate_with_limits(&mut self, kind: Kind) -> Option<Candidate> {
        let ready = self.choose(kind);
        // Only messages that wait are offered.
        let offered = if self.gate.waiting() > 0 { self.gate.first(kind) } else { None };
        match (ready, offered) {
            (ready, Some(ticket)) if ready.is_none_or(|(_, first)| ticket < first) => {
                let keyed = self.records[ticket.message].flags & KEYED != 0;
                Some(Candidate { ticket, keyed, offered: true, grouped: false })
            }
            (ready, _) => {
                let (keyed, ticket) = ready?;
                Some(Candidate { ticket, keyed, offered: false, grouped: false })
            }
        }
    }

    /// Removes a candidate from the ready ones.
    #[inline]
    pub(in crate::queue) fn take(&mut self, candidate: Candidate) {
        let Candidate { ticket, keyed, offered, grouped } = candidate;
        if grouped && !offered {
            self.gate.groups.remove(Front::Ready, keyed, ticket);
        } else if !offered {
            self.ready.pop(keyed, ticket);
        }
    }

    /// Returns whether what a candidate waits for refuses it again. It is then set aside as before.
    pub(in crate::queue) fn waits_on(&mut self, candidate: Candidate) -> bool {
        let waits = candidate.offered && self.gate.waits_on(candidate.ticket.message, self.now);
        if waits {
            self.refuse(candidate);
        }
        waits
    }

    /// Returns whether a candidate's names let it pass.
    pub(in crate::queue) fn admits(&self, candidate: Candidate) -> bool {
        let Candidate { ticket, keyed, .. } = candidate;
        self.records[ticket.message].flags & LIMITED == 0
            || self.gate.admits(ticket, keyed, self.now)
    }

    /// Sets aside a candidate that is not admitted. Returns whether it did not wait there before.
    pub(in crate::queue) fn refuse(&mut self, candidate: Candidate) -> bool {
        self.take(candidate);
        let Candidate { ticket, keyed, .. } = candidate;
        self.records.set_refused(ticket.message, true);
        let moved = self.gate.refuse(ticket.message, ticket, keyed, self.now);
        self.await_times();
        moved
    }

    /// Removes the first message of a kind that is not paused and is admitted.
    #[inline(never)]
    pub(in crate::queue) fn take_admitted(&mut self, kind: Kind) -> Option<u32> {
        loop {
            let candidate = self.candidate(kind)?;
            let at = candidate.ticket.message;
            if self.waits_on(candidate) {
                continue;
            }
            let paused = match self.lanes.paused() {
                0 => None,
                _ => self.lanes.paused_lane(self.records[at].first_edge),
            };
            if let Some(lane) = paused {
                self.take(candidate);
                self.set_aside(candidate.ticket, lane);
            } else if !self.admits(candidate) {
                self.refuse(candidate);
            } else {
                self.take_to_lease(candidate, kind);
                return Some(at);
            }
        }
    }

    /// Removes a candidate that is about to be leased to a consumer that asked for this kind. Its group uses a turn, it
    /// takes a slot of each of its names, and is charged to its rates.
    #[inline(always)]
    pub(in crate::queue) fn take_to_lease(&mut self, candidate: Candidate, kind: Kind) {
        if self.gate.is_none_or(Gate::is_idle) {
            self.ready.pop(candidate.keyed, candidate.ticket);
        } else {
            self.take(candidate);
            self.charge(candidate, kind);
        }
    }

    /// A message is about to be leased together with the one before it: it is charged as any other.
    pub(in crate::queue) fn charge_rider(&mut self, at: u32, kind: Kind) {
        if !self.gate.is_idle() {
            let ticket = Ticket::new(self.records[at].priority, self.records.sequence(at), at);
            let rider = Candidate { ticket, keyed: true, offered: false, grouped: false };
            self.charge(rider, kind);
        }
    }

    fn charge(&mut self, candidate: Candidate, kind: Kind) {
        let Candidate { ticket, keyed, .. } = candidate;
        let at = ticket.message;
        if !self.gate.groups.is_idle() {
            self.gate.take_turn(ticket, kind, keyed);
        }
        if self.records[at].flags & LIMITED != 0 {
            self.gate.lease(at, self.now);
            self.records.set_refused(at, false);
            self.await_times();
        }
    }

    /// Some keepers keep nothing any more.
    pub(in crate::queue) fn release_keepers(&mut self, which: impl Fn(&Self, u32) -> bool) {
        for at in self.gate.keepers() {
            if which(&*self, at) {
                self.records.set_refused(at, false);
                if let Some(ticket) = self.gate.release(at, self.now) {
                    self.push_ready(ticket, self.records[at].flags, false);
                }
            }
        }
        self.await_times();
    }

    /// A key was paused: the keepers that have it keep nothing any more.
    pub(in crate::queue) fn release_paused_keepers(&mut self) {
        self.release_keepers(|s, at| s.lanes.paused_lane(s.records[at].first_edge).is_some());
    }

    /// The number of limit names that messages wait for, and at most `count` names with what is used of each: those
    /// with most waiting messages.
    pub fn limits_used(&self, now: Time, count: usize) -> (usize, Vec<LimitUse>) {
        let (number, mut found) = self.gate.used(now, count);
        for keeper in found.iter_mut().filter_map(|one| one.keeper.as_mut()) {
            *keeper = self.records[*keeper as u32].id;
        }
        (number, found)
    }

    /// The names that refuse a ready message, for an explanation; `named` gives the leased messages that it names
    /// as those that carry a name.
    pub(in crate::queue) fn full_names(
        &self,
        at: u32,
        now: Time,
        mut named: impl FnMut(u32) -> Vec<u64>,
    ) -> Vec<LimitFull> {
        let full = |full: crate::queue::parts::gate::Full<'_>| LimitFull {
            name: full.name.to_vec(),
            most: full.most,
            leased: full.leased,
            keeper: full.keeper.map(|at| self.records[at].id),
            wait: full.wait,
            // Leases do not hold up what only time refuses.
            holders: if full.lacks_slot { named(full.place) } else { Vec::new() },
        };
        self.gate.full(at, now).map(full).collect()
    }

    /// The leased messages that carry each name, by id, as far as leases are examined.
    pub(in crate::queue) fn carriers(&self) -> Carriers {
        let mut carriers = Carriers::default();
        for (_, lease) in self.leases.all().take(LOOKED_AT) {
            for &name in self.gate.places_of(lease.message) {
                let of_name = carriers.entry(name).or_default();
                of_name.push((self.records[lease.message].id, lease.message));
            }
        }
        carriers.values_mut().for_each(|of_name| of_name.sort_unstable());
        carriers
    }
}

/// Leased messages, with their ids, by the place of a limit name.
pub(in crate::queue) type Carriers =
    hashbrown::HashMap<u32, Vec<(u64, u32)>, std::hash::RandomState>;

/// Leases that are examined to name those of one limit.
const LOOKED_AT: usize = 10_000;
