//! Choosing what is leased where messages carry limit names (clause 26). Queues without any do not come here.

use crate::queue::parts::ready::Ticket;
use crate::queue::scheduler::Scheduler;
use crate::queue::schedules::trace::Call;
use crate::queue::types::limits::Limits;
use crate::queue::types::message::{KEYED, LIMITED};
use crate::queue::types::{Kind, LimitFull, Time};

/// A message that came up: the first of the ready ones and of those that the gate offers.
#[derive(Clone, Copy, Debug)]
pub(in crate::queue) struct Candidate {
    pub ticket: Ticket,
    pub keyed: bool,
    /// It waited for a name, and is not among the ready ones.
    offered: bool,
}

impl<P> Scheduler<P> {
    /// Other limits, from now on. Leases stay as they are.
    pub fn set_limits(&mut self, now: Time, limits: Limits) {
        self.begin(now, || Call::Limits { limits: limits.clone() });
        self.gate.declare(&limits);
        self.options.limits = limits;
    }

    /// The first message of a kind, by clause 6.
    pub(in crate::queue) fn candidate(&mut self, kind: Kind) -> Option<Candidate> {
        let ready = self.choose(kind);
        let offered = self.gate.first(kind);
        match (ready, offered) {
            (ready, Some(ticket)) if ready.is_none_or(|(_, first)| ticket < first) => {
                let keyed = self.records[ticket.message].flags & KEYED != 0;
                Some(Candidate { ticket, keyed, offered: true })
            }
            (ready, _) => ready.map(|(keyed, ticket)| Candidate { ticket, keyed, offered: false }),
        }
    }

    /// Removes a candidate from the ready ones.
    pub(in crate::queue) fn take(&mut self, candidate: Candidate) {
        if !candidate.offered {
            self.ready.pop(candidate.keyed, candidate.ticket);
        }
    }

    /// Returns whether the name that a candidate waits for is full again. It is then set aside as before.
    pub(in crate::queue) fn waits_on(&mut self, candidate: Candidate) -> bool {
        let waits = candidate.offered && self.gate.waits_on(candidate.ticket.message);
        if waits {
            self.refuse(candidate);
        }
        waits
    }

    /// Returns whether each name of a message has room.
    pub(in crate::queue) fn has_room(&self, at: u32) -> bool {
        self.records[at].flags & LIMITED == 0 || self.gate.has_room(at)
    }

    /// Sets aside a candidate that has no room. Returns whether it did not wait there before.
    pub(in crate::queue) fn refuse(&mut self, candidate: Candidate) -> bool {
        self.take(candidate);
        let Candidate { ticket, keyed, .. } = candidate;
        self.records.set_refused(ticket.message, true);
        self.gate.refuse(ticket.message, ticket, keyed)
    }

    /// Removes the first message of a kind that is not paused and has room.
    #[cold]
    #[inline(never)]
    pub(in crate::queue) fn take_with_room(&mut self, kind: Kind) -> Option<u32> {
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
                self.park(candidate.ticket, lane);
            } else if !self.has_room(at) {
                self.refuse(candidate);
            } else {
                self.take(candidate);
                self.take_slots(at);
                return Some(at);
            }
        }
    }

    /// A message that has room is about to be leased: it takes a slot of each of its names.
    pub(in crate::queue) fn take_slots(&mut self, at: u32) {
        if self.records[at].flags & LIMITED != 0 {
            self.gate.lease(at);
            self.records.set_refused(at, false);
        }
    }

    /// A key was paused: the keepers that have it keep nothing any more.
    pub(in crate::queue) fn release_keepers(&mut self) {
        for at in self.gate.keepers() {
            if self.lanes.paused_lane(self.records[at].first_edge).is_some() {
                self.records.set_refused(at, false);
                if let Some((ticket, keyed)) = self.gate.release(at) {
                    self.ready.push(keyed, ticket, false);
                }
            }
        }
    }

    /// The full names of a ready message, for an explanation; `named` chooses the leased messages that it
    /// names.
    pub(in crate::queue) fn full_names(
        &self,
        at: u32,
        mut named: impl FnMut(&mut dyn Iterator<Item = u32>) -> Vec<u64>,
    ) -> Vec<LimitFull> {
        let full = |full: crate::queue::parts::gate::Full<'_>| {
            let leases = self.leases.all().take(LOOKED_AT).map(|(_, lease)| lease.message);
            let mut holders: Vec<(u64, u32)> = leases
                .filter(|&one| self.gate.has_name(one, full.name))
                .map(|one| (self.records[one].id, one))
                .collect();
            holders.sort_unstable();
            LimitFull {
                name: full.name.to_vec(),
                most: full.most,
                leased: full.leased,
                keeper: full.keeper.map(|at| self.records[at].id),
                holders: named(&mut holders.into_iter().map(|(_, at)| at)),
            }
        };
        self.gate.full(at).map(full).collect()
    }
}

/// Leases that are examined to name those of one limit.
const LOOKED_AT: usize = 10_000;
