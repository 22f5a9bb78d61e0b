//! Settlement: a message leaves its lanes, and what it held up is readied (clauses 3, 14, 21).

use crate::queue::message::{sequence_of, Message, BARRIER, GATED, KEYED};
use crate::queue::ready::Ticket;
use crate::queue::scheduler::{Budget, Scheduler};
use crate::queue::slab::NONE;
use crate::queue::types::State;

/// So few messages keep no memory worth giving back before they are all settled.
const SLACK: u64 = 1 << 12;

impl<P> Scheduler<P> {
    /// Takes a message out of its lanes and of the queue; readies what it held up (clause 21).
    #[inline]
    pub(super) fn settle(&mut self, at: u32, budget: &mut Budget) -> Option<P> {
        let mut payload = None;
        let (id, first_edge, extra, state, flags) = self.messages.take(at, |message| {
            payload = message.payload.take();
            let Message { id, first_edge, extra, state, flags, .. } = *message;
            (id, first_edge, extra, state, flags)
        });
        let sequence = sequence_of(id, extra, &self.extras);
        if let (Some(weigh), Some(payload)) = (self.weigh, &payload) {
            self.stats.bytes -= weigh(payload);
            if self.notes_ended {
                self.ended.push(id);
            }
        }
        let messages = &self.messages;
        self.index.remove(id, at, |place| messages[place].id);
        self.stats.unsettled -= 1;
        let placed = state != Some(State::Delayed);
        if extra != NONE {
            let place = extra;
            let extra = std::mem::take(&mut self.extras[place]);
            self.extras.remove(place);
            self.stats.bytes = self.stats.bytes.wrapping_sub(extra.size);
            if let Some(failing) = &extra.failing {
                self.errors -= failing.bytes();
            }
            if let Some(name) = extra.dedup {
                self.dedup.settled(name, self.now);
            }
        }
        if placed {
            let barrier = if flags & BARRIER != 0 {
                let next = self.barriers.barrier_settled(sequence);
                self.open_gates(budget);
                next
            } else {
                self.lanes.unlink(first_edge, &mut self.granted, &mut budget.steps);
                self.unblock_granted(budget);
                self.barriers.settled(sequence)
            };
            if let Some(barrier) = barrier {
                self.unblock(barrier, budget);
            }
        }
        if self.stats.unsettled < self.ebb {
            self.ebbed();
        }
        if self.stats.unsettled <= self.watch.calm_depth {
            self.watch.calmed(self.stats.unsettled);
            if self.stats.unsettled == 0 {
                self.oldest = self.next;
                self.put_times.forget(self.next);
            }
        }
        payload
    }

    /// A peak is gone by seven eighths, and each time by seven eighths of what was left: what it took
    /// goes back, for the allocator keeps what is freed little by little.
    #[cold]
    fn ebbed(&mut self) {
        self.peak = self.stats.unsettled;
        self.ebb = match self.ebb {
            1 => 0,
            ebb if ebb < SLACK => 1,
            ebb => ebb / 8,
        };
        self.roomy = true;
    }

    pub(super) fn open_gates(&mut self, budget: &mut Budget) {
        while budget.steps > 0 {
            let Some((at, id)) = self.barriers.next_opening() else {
                return;
            };
            budget.steps -= 1;
            let Some(message) = self.messages.get(at) else {
                continue;
            };
            // It may have been cancelled, and its place used again.
            if message.id == id && message.flags & GATED != 0 {
                self.messages[at].flags &= !GATED;
                self.unblock(at, budget);
            }
        }
    }

    #[inline]
    pub(super) fn unblock_granted(&mut self, budget: &mut Budget) {
        // In their order: what the budget does not suffice for must be the last of them.
        for i in 0..self.granted.len() {
            self.unblock(self.granted[i], budget);
        }
        self.granted.clear();
    }

    /// Readies what earlier calls could not.
    pub(super) fn ready_late(&mut self, budget: &mut Budget) {
        while budget.ready > 0 {
            let Some((at, id)) = self.late.pop_front() else { return };
            // It may have been cancelled, and its place used again.
            let waits = |m: &Message<P>| m.id == id && m.state == Some(State::Waiting);
            if self.messages.get(at).is_some_and(waits) {
                budget.ready -= 1;
                self.make_ready(at);
            }
        }
    }

    /// One thing less stands before a message.
    #[inline]
    fn unblock(&mut self, at: u32, budget: &mut Budget) {
        let message = &mut self.messages[at];
        message.hold -= 1;
        if message.hold > 0 {
            return;
        }
        if budget.ready == 0 {
            let id = message.id;
            self.late.push_back((at, id));
            return;
        }
        budget.ready -= 1;
        self.make_ready(at);
    }

    #[inline]
    pub(super) fn make_ready(&mut self, at: u32) {
        let sequence = self.sequence(at);
        let message = &mut self.messages[at];
        message.state = Some(State::Ready);
        let ticket = Ticket::new(message.priority, sequence, at);
        let keyed = message.flags & KEYED != 0;
        if keyed { &mut self.keyed } else { &mut self.unkeyed }.push(ticket, false);
    }
}
