//! Handing out: what is chosen of the ready, and the lease that is made of it (clauses 3, 6, 7, 8, 22).

use crate::queue::parts::gate::Gate;
use crate::queue::parts::ready::Ticket;
use crate::queue::scheduler::{Grant, Handle, Scheduler};
use crate::queue::schedules::trace::Call;
use crate::queue::types::{Kind, Time};

impl<P> Scheduler<P> {
    /// Hands out the first ready message of the kind asked for (clauses 3, 6, 7, 8, 22).
    #[inline(always)]
    pub fn lease(&mut self, now: Time, kind: Kind, consumer: u64) -> Option<Grant> {
        self.lease_showing(now, kind, consumer, |_, _| ()).map(|(grant, ())| grant)
    }

    /// Like `lease`, and shows the message's payload.
    #[inline(always)]
    pub fn lease_showing<R>(
        &mut self,
        now: Time,
        kind: Kind,
        consumer: u64,
        show: impl FnOnce(&P, &Grant) -> R,
    ) -> Option<(Grant, R)> {
        self.begin_usual(now, || Call::Lease { kind, limit: 1 });
        self.grant(kind, consumer, show)
    }

    /// Hands out up to `limit` messages; each is shown with its payload. Returns how many there were.
    #[inline(always)]
    pub fn lease_many(
        &mut self,
        now: Time,
        kind: Kind,
        limit: usize,
        consumer: u64,
        mut show: impl FnMut(&P, &Grant),
    ) -> usize {
        self.begin_usual(now, || Call::Lease { kind, limit });
        let granted = |_: &usize| self.grant(kind, consumer, &mut show).is_some();
        (0..limit).take_while(granted).count()
    }

    #[inline(always)]
    fn grant<R>(
        &mut self,
        kind: Kind,
        consumer: u64,
        show: impl FnOnce(&P, &Grant) -> R,
    ) -> Option<(Grant, R)> {
        if self.pauses.of_queue() {
            return None;
        }
        let at = loop {
            if !self.gate.is_none_or(Gate::is_idle) {
                break self.take_admitted(kind)?;
            }
            let records = &self.records;
            let ticket = self.ready.take(kind, |ticket| records.is_ready(ticket))?;
            if self.lanes.paused() > 0 {
                let first = self.records[ticket.message].first_edge;
                if let Some(lane) = self.lanes.paused_lane(first) {
                    self.set_aside(ticket, lane);
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
            self.earliest_due = self.earliest_due.min(deadline);
        }
        self.counts.leased(1);
        let (message, attempt) = self.records.set_leased(at, place);
        let grant = Grant { handle: Handle { place, token }, id: message.id, attempt, message: at };
        let payload = message.payload.as_ref().expect("a leased message has its payload");
        let shown = show(payload, &grant);
        Some((grant, shown))
    }

    #[inline(always)]
    pub(in crate::queue) fn choose(&mut self, kind: Kind) -> Option<(bool, Ticket)> {
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
        self.ready.len(kind) + self.gate.offers(kind)
    }
}
