//! Leases of many messages: one token and one deadline over all that one call was handed (clause 8), as
//! they are given across processes. A heartbeat is then one write, however many messages are out.
//!
//! Each message keeps a lease of its own, which names the batch it is of, so that all that is said of a
//! lease (`ack`, `revoke`, `explain`) needs to know nothing of batches.

use hashbrown::HashMap;

use crate::queue::lease::{Failure, Lease};
use crate::queue::message::KEYED;
use crate::queue::scheduler::{Budget, Grant, Handle, Scheduler};
use crate::queue::slab::{Record, Slab, NONE};
use crate::queue::timers::{Due, Timers};
use crate::queue::types::{Kind, State, Time};

/// What one call was handed.
#[derive(Debug)]
pub struct Batch {
    /// 0: free.
    pub token: u64,
    pub deadline: Time,
    /// Its place among the deadlines, or the next free record.
    timer: u32,
    /// Messages that are still out.
    out: u32,
    /// The places of its leases, in the order they were handed out in.
    pub(super) members: Box<[u32]>,
}

impl Default for Batch {
    fn default() -> Self {
        Batch { token: 0, deadline: 0, timer: NONE, out: 0, members: Box::default() }
    }
}

impl Record for Batch {
    fn clear(&mut self) {
        self.token = 0;
        self.members = Box::default();
    }
    fn link(&self) -> u32 {
        self.timer
    }
    fn set_link(&mut self, next: u32) {
        self.timer = next;
    }
}

#[derive(Debug, Default)]
pub(super) struct Batches {
    pub slab: Slab<Batch>,
    by_token: HashMap<u64, u32, foldhash::fast::RandomState>,
    pub deadlines: Timers,
}

impl Batches {
    /// One of a batch's messages is no longer out.
    pub fn left(&mut self, place: u32) {
        let batch = &mut self.slab[place];
        batch.out -= 1;
        if batch.out > 0 {
            return;
        }
        let (token, timer) = (batch.token, batch.timer);
        let slab = &mut self.slab;
        self.deadlines.remove(timer, |owner, position| slab[owner].timer = position);
        self.slab.remove(place);
        self.by_token.remove(&token);
        if self.by_token.len() * 8 < self.by_token.capacity() && self.by_token.capacity() > 1024 {
            self.by_token.shrink_to(self.by_token.len() * 2);
        }
    }

    pub fn enter(&mut self, token: u64, deadline: Time, members: Box<[u32]>) -> u32 {
        let out = members.len() as u32;
        let batch = Batch { token, deadline, timer: NONE, out, members };
        let place = self.slab.insert(batch);
        self.by_token.insert(token, place);
        let slab = &mut self.slab;
        let due = Due { at: deadline, id: token, owner: place };
        self.deadlines.insert(due, |owner, position| slab[owner].timer = position);
        place
    }
}

/// What a call for many messages got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    pub token: u64,
    pub deadline: Time,
}

impl<P> Scheduler<P> {
    /// Hands out up to `limit` ready messages for `length` µs, under one token; the first one, and more
    /// while all have no more than `keys` keys together. Appends them to `grants`.
    pub fn lease_batch(
        &mut self,
        kind: Kind,
        limit: usize,
        keys: usize,
        length: u64,
        consumer: u64,
        grants: &mut Vec<Grant>,
    ) -> Option<Handed> {
        let from = grants.len();
        let mut left = keys;
        let mut first = self.pick(kind, &mut left, true)?;
        let token = self.now.max(self.last_token + 1);
        self.last_token = token;
        let deadline = self.now.saturating_add(length);
        loop {
            let at = first;
            let place = self.leases.insert(Lease {
                token,
                at: self.now,
                deadline,
                consumer,
                message: at,
                timer: NONE,
                batch: NONE,
                noted: false,
            });
            let message = &mut self.messages[at];
            message.state = Some(State::Leased);
            message.hold = place;
            let id = message.id;
            let attempt = self.attempt(at);
            grants.push(Grant { handle: Handle { place, token }, id, attempt, message: at });
            if grants.len() - from == limit {
                break;
            }
            let Some(next) = self.pick(kind, &mut left, false) else { break };
            first = next;
        }
        let members: Box<[u32]> = grants[from..].iter().map(|grant| grant.handle.place).collect();
        self.stats.leases += members.len() as u64;
        let batch = self.batches.enter(token, deadline, members);
        for grant in &grants[from..] {
            self.leases[grant.handle.place].batch = batch;
        }
        Some(Handed { token, deadline })
    }

    /// Takes the first ready message out, if it has no more than `keys` keys or is the first of its call.
    fn pick(&mut self, kind: Kind, keys: &mut usize, first: bool) -> Option<u32> {
        if self.pauses.queue {
            return None;
        }
        loop {
            let ticket = self.choose(kind)?;
            let message = &self.messages[ticket.message];
            let (keyed, edges) = (message.flags & KEYED != 0, message.first_edge);
            let paused = match self.lanes.paused {
                0 => None,
                _ => self.lanes.paused_lane(edges),
            };
            if paused.is_none() {
                let count = self.lanes.edges_of(edges).count();
                if count > *keys && !first {
                    return None;
                }
                *keys = keys.saturating_sub(count);
            }
            if keyed { &mut self.keyed } else { &mut self.unkeyed }.pop(ticket);
            match paused {
                Some(lane) => self.park(ticket, lane),
                None => return Some(ticket.message),
            }
        }
    }

    /// What this token may settle of this message, unless the deadline is reached: then it is over, even
    /// if what falls due has not come to it yet.
    #[inline]
    pub fn held(&self, token: u64, id: u64) -> Option<Handle> {
        let message = &self.messages[self.find(id)?];
        if message.state != Some(State::Leased) {
            return None;
        }
        let place = message.hold;
        let lease = &self.leases[place];
        let held = lease.token == token
            && (lease.batch == NONE || self.batches.slab[lease.batch].deadline > self.now);
        held.then_some(Handle { place, token })
    }

    /// A new deadline, `length` µs from now, for all that a token still holds; `None`: it holds nothing.
    pub fn extend_batch(&mut self, token: u64, length: u64) -> Option<Time> {
        let place = *self.batches.by_token.get(&token)?;
        let batch = &mut self.batches.slab[place];
        if batch.deadline <= self.now {
            return None;
        }
        let deadline = self.now.saturating_add(length);
        batch.deadline = deadline;
        let timer = batch.timer;
        let slab = &mut self.batches.slab;
        self.batches.deadlines.remove(timer, |owner, position| slab[owner].timer = position);
        let due = Due { at: deadline, id: token, owner: place };
        self.batches.deadlines.insert(due, |owner, position| slab[owner].timer = position);
        Some(deadline)
    }

    /// Ends what has run out, at most `limit` leases, by deadline and then by id. Answers how many more
    /// things this call may apply.
    pub(super) fn expire_batches(&mut self, limit: u32, budget: &mut Budget) -> u32 {
        let mut left = limit;
        while left > 0 {
            let Some(deadline) = self.batches.deadlines.first().map(|due| due.at) else { break };
            if deadline > self.now {
                break;
            }
            let mut out = Vec::new();
            self.batches.deadlines.each_until(deadline, |due| {
                let batch = &self.batches.slab[due.owner];
                let held = batch.members.iter().filter(|&&at| self.leases[at].token == batch.token);
                out.extend(held.map(|&at| (self.messages[self.leases[at].message].id, at)));
            });
            out.sort_unstable();
            for (_, place) in out.into_iter().take(left as usize) {
                left -= 1;
                let lease = self.end_lease(place);
                self.stats.expired += 1;
                self.fail(lease.message, Failure::Expired, budget);
            }
        }
        left
    }
}
