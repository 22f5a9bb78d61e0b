//! The messages that can be handed out: higher priority first, then sequence (clauses 6, 7).
//!
//! Messages that are ready at their put come in sequence, so a plain deque holds them; those readied
//! later go through a heap. Entries of messages that were cancelled are skipped when they come up,
//! and swept when they are the greater part.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::queue::types::Kind;

/// A message's place in the order of choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// Priority, negated: the smallest ticket is handed out first.
    rank: i16,
    pub sequence: u64,
    pub message: u32,
}

impl Ticket {
    #[inline]
    pub fn new(priority: i8, sequence: u64, message: u32) -> Self {
        Ticket { rank: -i16::from(priority), sequence, message }
    }
}

#[derive(Debug, Default)]
pub struct ReadySet {
    fresh: VecDeque<(u64, u32)>,
    later: BinaryHeap<Reverse<Ticket>>,
    /// Entries that stand for a ready message; the rest were cancelled.
    live: usize,
}

impl ReadySet {
    pub fn bytes(&self) -> usize {
        self.fresh.capacity() * size_of::<(u64, u32)>()
            + self.later.capacity() * size_of::<Ticket>()
    }

    /// Ready messages here.
    #[inline]
    pub fn len(&self) -> usize {
        self.live
    }

    /// `fresh`: readied as it took its place, so that its sequence is the highest so far.
    #[inline]
    pub fn push(&mut self, ticket: Ticket, fresh: bool) {
        self.live += 1;
        if fresh && ticket.rank == 0 {
            self.fresh.push_back((ticket.sequence, ticket.message));
        } else {
            self.later.push(Reverse(ticket));
        }
    }

    /// The first ticket for which `valid` holds.
    #[inline]
    pub fn peek(&mut self, valid: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        if self.live == 0 {
            return None;
        }
        let fresh = loop {
            let Some(&(sequence, message)) = self.fresh.front() else {
                break None;
            };
            let ticket = Ticket::new(0, sequence, message);
            if valid(&ticket) {
                break Some(ticket);
            }
            self.fresh.pop_front();
        };
        if self.later.is_empty() {
            return fresh;
        }
        let later = loop {
            let Some(&Reverse(ticket)) = self.later.peek() else {
                break None;
            };
            if valid(&ticket) {
                break Some(ticket);
            }
            self.later.pop();
        };
        match (fresh, later) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes out what `peek` gave.
    #[inline]
    pub fn pop(&mut self, ticket: Ticket) {
        self.live -= 1;
        if self.fresh.front() == Some(&(ticket.sequence, ticket.message)) {
            self.fresh.pop_front();
            if self.fresh.capacity() > 1024 && self.fresh.len() * 8 < self.fresh.capacity() {
                self.fresh.shrink_to(self.fresh.capacity() / 2);
            }
        } else {
            self.later.pop();
            if self.later.capacity() > 1024 && self.later.len() * 8 < self.later.capacity() {
                self.later.shrink_to(self.later.capacity() / 2);
            }
        }
    }

    /// Takes out the ticket that was pushed last, fresh and at no priority. A stale entry would do for a
    /// message that is gone, but not for one that will be ready again at the same place.
    pub fn take_back(&mut self, ticket: Ticket) {
        let last = self.fresh.pop_back();
        debug_assert_eq!(last, Some((ticket.sequence, ticket.message)));
        self.live -= 1;
    }

    /// A ready message was cancelled: its entry is stale from now on. Sweeps when most are.
    pub fn cancelled(&mut self, valid: impl Fn(&Ticket) -> bool) {
        self.live -= 1;
        let entries = self.fresh.len() + self.later.len();
        if self.live == 0 {
            self.fresh.clear();
            self.later.clear();
        } else if entries > 64 && entries > self.live * 2 {
            self.fresh.retain(|&(sequence, message)| valid(&Ticket::new(0, sequence, message)));
            self.later.retain(|Reverse(ticket)| valid(ticket));
        } else {
            return;
        }
        self.fresh.shrink_to(2 * self.live);
        self.later.shrink_to(2 * self.live);
    }
}

/// The two sets, messages with keys and those without, and what comes to them late.
#[derive(Debug, Default)]
pub struct Ready {
    keyed: ReadySet,
    unkeyed: ReadySet,
    /// Messages that nothing holds up any more and that one call more could not ready: (message, id).
    late: VecDeque<(u32, u64)>,
}

impl Ready {
    pub fn bytes(&self) -> usize {
        let late = self.late.capacity() * size_of::<(u32, u64)>();
        self.keyed.bytes() + self.unkeyed.bytes() + late
    }

    /// Messages of a kind that are ready.
    #[inline]
    pub fn len(&self, kind: Kind) -> usize {
        match kind {
            Kind::Keyed => self.keyed.len(),
            Kind::Unkeyed => self.unkeyed.len(),
            Kind::Any => self.keyed.len() + self.unkeyed.len(),
        }
    }

    #[inline]
    fn set(&mut self, keyed: bool) -> &mut ReadySet {
        if keyed {
            &mut self.keyed
        } else {
            &mut self.unkeyed
        }
    }

    /// Enters a ticket; `fresh`: its sequence is the highest so far.
    #[inline]
    pub fn push(&mut self, keyed: bool, ticket: Ticket, fresh: bool) {
        self.set(keyed).push(ticket, fresh);
    }

    /// The first ticket of a kind for which `valid` holds.
    #[inline]
    pub fn choose(&mut self, kind: Kind, valid: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        match kind {
            Kind::Keyed => self.keyed.peek(valid),
            Kind::Unkeyed => self.unkeyed.peek(valid),
            Kind::Any if self.unkeyed.len() == 0 => self.keyed.peek(valid),
            Kind::Any => match (self.keyed.peek(&valid), self.unkeyed.peek(&valid)) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
        }
    }

    /// Takes out what `choose` gave.
    #[inline]
    pub fn pop(&mut self, keyed: bool, ticket: Ticket) {
        self.set(keyed).pop(ticket);
    }

    /// See [`ReadySet::take_back`].
    pub fn take_back(&mut self, keyed: bool, ticket: Ticket) {
        self.set(keyed).take_back(ticket);
    }

    /// See [`ReadySet::cancelled`].
    pub fn cancelled(&mut self, keyed: bool, valid: impl Fn(&Ticket) -> bool) {
        self.set(keyed).cancelled(valid);
    }

    /// A message is to be readied by a later call.
    pub fn postpone(&mut self, message: u32, id: u64) {
        self.late.push_back((message, id));
    }

    pub fn next_late(&mut self) -> Option<(u32, u64)> {
        self.late.pop_front()
    }

    #[inline]
    pub fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Ids of the messages that later calls ready, first one first.
    pub fn late(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.late.iter().map(|&(_, id)| id)
    }
}
