//! Handing out: what is chosen of the ready, and the lease that is made of it (clauses 3, 6, 7, 8, 22).

use crate::queue::parts::ready::Ticket;
use crate::queue::scheduler::{Grant, Handle, Scheduler};
use crate::queue::schedules::trace::Call;
use crate::queue::types::message::KEYED;
use crate::queue::types::{Kind, Time};

impl<P> Scheduler<P> {
    /// Hands out the first ready message of the kind asked for (clauses 3, 6, 7, 8, 22).
    #[inline(always)]
    pub fn lease(&mut self, now: Time, kind: Kind, consumer: u64) -> Option<Grant> {
        self.begin(now, || Call::Lease { kind, limit: 1 });
        let at = self.grant(kind, consumer)?;
        Some(self.granted_to(at))
    }

    /// Hands out up to `limit` messages, appended to `grants`.
    pub fn lease_many(
        &mut self,
        now: Time,
        kind: Kind,
        limit: usize,
        consumer: u64,
        grants: &mut Vec<Grant>,
    ) {
        self.begin(now, || Call::Lease { kind, limit });
        for _ in 0..limit {
            let Some(at) = self.grant(kind, consumer) else { return };
            grants.push(self.granted_to(at));
        }
    }

    /// Describes the lease of a message that was just leased.
    #[inline(always)]
    fn granted_to(&self, at: u32) -> Grant {
        let message = &self.records[at];
        let (place, id) = (message.hold, message.id);
        let handle = Handle { place, token: self.leases.last_token() };
        Grant { handle, id, attempt: self.records.attempt(at), message: at }
    }

    /// Returns the message, not the grant: a number fits in a register.
    #[inline]
    fn grant(&mut self, kind: Kind, consumer: u64) -> Option<u32> {
        if self.pauses.of_queue() {
            return None;
        }
        let at = loop {
            let ticket = self.choose(kind)?;
            let message = &self.records[ticket.message];
            let keyed = message.flags & KEYED != 0;
            let first = message.first_edge;
            self.ready.pop(keyed, ticket);
            if self.lanes.paused() > 0 {
                if let Some(lane) = self.lanes.paused_lane(first) {
                    self.park(ticket, lane);
                    continue;
                }
            }
            break ticket.message;
        };
        let token = self.leases.draw_token(self.now);
        let place = self.leases.insert(token, at, consumer, self.now);
        if let Some(length) = self.options.lease {
            let (id, deadline) = (self.records[at].id, self.now.saturating_add(length));
            self.leases.set_deadline(place, id, deadline);
        }
        self.records.set_leased(at, place);
        self.counts.leased(1);
        Some(at)
    }

    #[inline(always)]
    pub(in crate::queue) fn choose(&mut self, kind: Kind) -> Option<Ticket> {
        let records = &self.records;
        self.ready.choose(kind, |ticket| records.is_ready(ticket))
    }

    /// The payload of a message that was just leased.
    #[inline]
    pub fn payload(&self, grant: &Grant) -> &P {
        self.records[grant.message].payload.as_ref().expect("a leased message has its payload")
    }

    /// Ready messages of a kind, as far as is known without looking at pauses of keys.
    #[inline]
    pub fn ready(&self, kind: Kind) -> usize {
        if self.pauses.of_queue() {
            return 0;
        }
        self.ready.len(kind)
    }
}
