//! Handing out: what is chosen of the ready, and the lease that is made of it (clauses 3, 6, 7, 8, 22).

use crate::queue::lease::Lease;
use crate::queue::message::{is_ready, KEYED};
use crate::queue::ready::Ticket;
use crate::queue::scheduler::{Grant, Handle, Scheduler};
use crate::queue::slab::NONE;
use crate::queue::timers::Due;
use crate::queue::trace::Call;
use crate::queue::types::{Kind, State, Time};

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

    /// Describes the lease of a message that was just handed out.
    #[inline(always)]
    fn granted_to(&self, at: u32) -> Grant {
        let message = &self.messages[at];
        let (place, id) = (message.hold, message.id);
        let handle = Handle { place, token: self.last_token };
        Grant { handle, id, attempt: self.attempt(at), message: at }
    }

    /// Answers the message, not the grant: a number fits in a register.
    #[inline]
    fn grant(&mut self, kind: Kind, consumer: u64) -> Option<u32> {
        if self.pauses.queue {
            return None;
        }
        let at = loop {
            let ticket = self.choose(kind)?;
            let message = &self.messages[ticket.message];
            let keyed = message.flags & KEYED != 0;
            let first = message.first_edge;
            if keyed { &mut self.keyed } else { &mut self.unkeyed }.pop(ticket);
            if self.lanes.paused > 0 {
                if let Some(lane) = self.lanes.paused_lane(first) {
                    self.park(ticket, lane);
                    continue;
                }
            }
            break ticket.message;
        };
        let token = self.now.max(self.last_token + 1);
        self.last_token = token;
        let place = self.leases.insert(Lease {
            token,
            at: self.now,
            deadline: 0,
            consumer,
            message: at,
            timer: NONE,
            batch: NONE,
            noted: false,
        });
        if let Some(length) = self.options.lease {
            self.set_deadline(place, self.messages[at].id, length);
        }
        let message = &mut self.messages[at];
        message.state = Some(State::Leased);
        message.hold = place;
        self.stats.leases += 1;
        Some(at)
    }

    fn set_deadline(&mut self, place: u32, id: u64, length: u64) {
        let at = self.now.saturating_add(length);
        let leases = &mut self.leases;
        leases[place].deadline = at;
        let due = Due { at, id, owner: place };
        self.deadlines.insert(due, |owner, position| leases[owner].timer = position);
    }

    #[inline]
    pub(super) fn choose(&mut self, kind: Kind) -> Option<Ticket> {
        let (messages, extras) = (&self.messages, &self.extras);
        let valid = |ticket: &Ticket| is_ready(messages, extras, ticket);
        match kind {
            Kind::Keyed => self.keyed.peek(valid),
            Kind::Unkeyed => self.unkeyed.peek(valid),
            Kind::Any if self.unkeyed.len() == 0 => self.keyed.peek(valid),
            Kind::Any => match (self.keyed.peek(valid), self.unkeyed.peek(valid)) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
        }
    }

    /// The payload of a message that was just handed out.
    #[inline]
    pub fn payload(&self, grant: &Grant) -> &P {
        self.messages[grant.message].payload.as_ref().expect("a leased message has its payload")
    }

    /// Ready messages of a kind, as far as is known without looking at pauses of keys.
    #[inline]
    pub fn ready(&self, kind: Kind) -> usize {
        if self.pauses.queue {
            return 0;
        }
        match kind {
            Kind::Keyed => self.keyed.len(),
            Kind::Unkeyed => self.unkeyed.len(),
            Kind::Any => self.keyed.len() + self.unkeyed.len(),
        }
    }
}
