//! Settlement: a message leaves its lanes, and what it held up is readied (clauses 3, 14, 21).

use crate::key::Key;
use crate::queue::parts::gate::Gate;
use crate::queue::parts::leases::Lease;
use crate::queue::parts::parked::Parked;
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::records::Removed;
use crate::queue::scheduler::{Budget, Scheduler};
use crate::queue::types::message::{BARRIER, BEHIND_BARRIER, GROUPED, KEYED, LIMITED, MARKS};
use crate::queue::types::State;

impl<P> Scheduler<P> {
    /// Removes a message from its lanes and from the queue; readies the messages it blocked (clause 21).
    #[inline]
    pub(in crate::queue) fn settle(&mut self, at: u32, budget: &mut Budget) -> Option<P> {
        self.settle_showing(at, budget, |_, _| ())
    }

    /// Like `settle`, and shows each key of the message, with whether it is shared, as it leaves that
    /// key's lane.
    #[inline(always)]
    pub(in crate::queue) fn settle_showing(
        &mut self,
        at: u32,
        budget: &mut Budget,
        show: impl FnMut(&Key, bool),
    ) -> Option<P> {
        let removed = self.records.remove(at);
        let (mut sequence, mut marks, mut size) = (removed.id, 0, 0);
        if let Some(extra) = self.records.take_extra(&removed) {
            if extra.sequence > 0 {
                sequence = extra.sequence;
            }
            (marks, size) = (extra.suspect & MARKS, extra.size);
            self.counts.take_bytes(extra.size);
            if let Some(name) = extra.dedup {
                self.dedup.settled(name, self.now);
            }
            if !self.coalescing.is_empty() {
                self.coalescing.leave(removed.id);
            }
            if !self.runs.is_idle() {
                self.runs.leave(removed.id);
            }
        }
        let Removed { id, payload, first_edge, state, priority, flags, .. } = removed;
        if flags & (LIMITED | GROUPED) != 0 {
            self.leave_gate(Ticket::new(priority, sequence, at), state, flags);
        }
        // One that was parked and came back has another sequence than its id.
        let parked = sequence != id || state == Some(State::Parked);
        debug_assert!(parked || self.parked.parking(at).is_none(), "a parked message is known");
        if marks != 0 || (parked && self.parked.is_some_and(Parked::remembers)) {
            let weight = payload.as_ref().and_then(|payload| self.engine.weight(payload));
            size = weight.unwrap_or(size);
            self.forget_behind(at, id, first_edge, marks, size);
        }
        if let Some(weight) = payload.as_ref().and_then(|payload| self.engine.weight(payload)) {
            self.counts.take_bytes(weight);
            self.engine.note_settled(id);
        }
        self.counts.settled();
        let placed = !matches!(state, Some(State::Delayed | State::Parked));
        if placed {
            let barrier = if flags & BARRIER != 0 {
                let next = self.barriers.barrier_settled(sequence);
                self.open_gates(budget);
                next
            } else {
                self.lanes.unlink(first_edge, &mut budget.steps, show);
                self.unblock_granted(budget);
                self.barriers.settled(sequence)
            };
            if let Some(barrier) = barrier {
                self.unblock(barrier, budget);
            }
        }
        self.counts.note_low();
        if self.counts.unsettled() <= self.watch.calm_depth() {
            self.watch.calmed(self.counts.unsettled());
            if self.counts.unsettled() == 0 {
                self.numbers.forget_before(self.numbers.next());
            }
        }
        payload
    }

    /// A message that had limit names or a group is removed.
    #[inline(never)]
    fn leave_gate(&mut self, ticket: Ticket, state: Option<State>, flags: u8) {
        self.gate.leave(ticket, flags & KEYED != 0, state == Some(State::Ready), self.now);
        self.await_times();
    }

    /// Ends a lease: what it held of limits is free, and the rest of its run waits.
    #[inline(always)]
    pub(in crate::queue) fn end_lease(&mut self, place: u32) -> Lease {
        let lease = self.leases.end(place);
        self.coalescing.lease_ended();
        self.return_riders(lease.message);
        self.free_slots(lease.message);
        lease
    }

    /// Ends the lease of a message that is settled: the next one of its run has it now.
    #[inline(always)]
    pub(in crate::queue) fn hand_on_lease(&mut self, place: u32) {
        let lease = self.leases.end(place);
        self.coalescing.lease_ended();
        self.promote_rider(lease.message);
        self.free_slots(lease.message);
    }

    /// Frees what a message whose lease ended held of limits.
    #[inline(always)]
    pub(in crate::queue) fn free_slots(&mut self, at: u32) {
        if !self.gate.is_none_or(Gate::is_idle) && self.records[at].flags & LIMITED != 0 {
            self.gate.end_lease(at, self.now);
            self.await_times();
        }
    }

    pub(in crate::queue) fn open_gates(&mut self, budget: &mut Budget) {
        self.earliest_due = 0;
        while budget.steps > 0 {
            let Some((at, sequence)) = self.barriers.next_opening() else {
                return;
            };
            budget.steps -= 1;
            // It may have been cancelled, and its slot reused; or parked, and come back behind another barrier.
            if self.records.has_sequence(at, sequence)
                && self.records[at].flags & BEHIND_BARRIER != 0
            {
                self.records.open_gate(at);
                self.unblock(at, budget);
            }
        }
    }

    #[inline(always)]
    pub(in crate::queue) fn unblock_granted(&mut self, budget: &mut Budget) {
        if !self.lanes.granted().is_empty() {
            self.unblock_each(budget);
        }
    }

    fn unblock_each(&mut self, budget: &mut Budget) {
        if self.lanes.has_unfinished() {
            self.earliest_due = 0;
        }
        // In their order: what the budget does not suffice for must be the last of them.
        for i in 0..self.lanes.granted().len() {
            self.unblock(self.lanes.granted()[i], budget);
        }
        self.lanes.clear_granted();
    }

    /// Readies what earlier calls could not.
    pub(in crate::queue) fn ready_late(&mut self, budget: &mut Budget) {
        while budget.ready > 0 {
            let Some((at, sequence)) = self.ready.next_late() else { return };
            // It may have been cancelled, and its slot reused; or parked.
            let waits = self.records.has_sequence(at, sequence)
                && self.records[at].state == Some(State::Waiting);
            if waits {
                budget.ready -= 1;
                self.make_ready(at);
            }
        }
    }

    /// Notes that a message has one thing less to wait for.
    #[inline]
    pub(in crate::queue) fn unblock(&mut self, at: u32, budget: &mut Budget) {
        if !self.records.one_less_before(at) {
            return;
        }
        if budget.ready == 0 {
            self.ready.postpone(at, self.records.sequence(at));
            self.earliest_due = 0;
            return;
        }
        budget.ready -= 1;
        self.make_ready(at);
    }

    #[inline]
    pub(in crate::queue) fn make_ready(&mut self, at: u32) {
        let sequence = self.records.sequence(at);
        let message = self.records.set_ready(at);
        let ticket = Ticket::new(message.priority, sequence, at);
        let flags = message.flags;
        self.push_ready(ticket, flags, false);
    }
}
