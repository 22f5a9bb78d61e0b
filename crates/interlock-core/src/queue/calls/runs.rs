//! Runs (clause 30): messages that follow one another on the same keys are leased together.
//!
//! The first message of a run, its *head*, is leased as any other. The others, its *riders*, are leased with its token
//! and stay behind it in their lanes: a leased message whose first edge is not granted is a rider. So the lanes
//! say which rider is next: it is in front when the head is settled, and is then the head. If the head's lease ends in
//! another way, its riders wait as before.
//!
//! ```
//! use interlock_core::key::KeyRef;
//! use interlock_core::queue::calls::batch::Most;
//! use interlock_core::queue::scheduler::{Budget, Put, Scheduler};
//! use interlock_core::queue::types::{Kind, Options};
//!
//! let mut scheduler = Scheduler::by_time(Options::default(), |_: &&str| 0);
//! let keys = [KeyRef::new(b"account:1")];
//! let put = Put { keys: &keys, run: b"100:send", ..Put::default() };
//! let ids = ["one", "two"].map(|payload| scheduler.put(1, &put, &mut Some(payload)).unwrap().id);
//! let (mut grants, most) = (Vec::new(), Most { with_riders: 1024, ..Most::messages(1) });
//! let token = scheduler.lease_batch(Kind::Any, most, 50, 0, &mut grants).unwrap().token;
//! assert_eq!(grants.iter().map(|grant| grant.id).collect::<Vec<_>>(), ids);
//! let mut budget = Budget::ONE_CALL;
//! assert!(scheduler.ack_held(token, ids[1], &mut budget).is_none(), "not before the first");
//! assert!(scheduler.ack_held(token, ids[0], &mut budget).is_some());
//! assert!(scheduler.ack_held(token, ids[1], &mut budget).is_some());
//! ```

use std::hash::RandomState;

use hashbrown::HashMap;

use crate::queue::calls::batch::{Batch, Room};
use crate::queue::calls::read::Seen;
use crate::queue::parts::index::table;
use crate::queue::parts::slab::NONE;
use crate::queue::scheduler::{Grant, Scheduler};
use crate::queue::types::message::{LIMITED, RETURNED};
use crate::queue::types::{Kind, State};

/// The runs of the unsettled messages that have one, and the number of riders.
#[derive(Debug, Default)]
pub(in crate::queue) struct Runs {
    /// By the message's id: the number of messages and the label, as they were given.
    texts: HashMap<u64, Box<[u8]>, RandomState>,
    /// Bytes of the texts.
    bytes: usize,
    riding: u64,
}

/// Bytes of the head of a text's allocation.
const OF_A_TEXT: usize = 16;

impl Runs {
    /// Returns whether no unsettled message has a run.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.texts.is_empty()
    }

    /// Leased messages that wait for the one before them in their run.
    #[inline]
    pub fn riding(&self) -> u64 {
        self.riding
    }

    /// The run of a message; empty: it has none.
    pub fn of(&self, id: u64) -> &[u8] {
        self.texts.get(&id).map_or(b"", |text| text)
    }

    pub fn insert(&mut self, id: u64, text: &[u8]) {
        self.bytes += text.len() + OF_A_TEXT;
        self.texts.insert(id, text.into());
    }

    /// A message is settled.
    pub fn leave(&mut self, id: u64) {
        let Some(text) = self.texts.remove(&id) else { return };
        self.bytes -= text.len() + OF_A_TEXT;
        if self.texts.len() * 8 < self.texts.capacity() && self.texts.capacity() > 1024 {
            self.texts.shrink_to(self.texts.len() * 2);
        }
    }

    /// One rider more, of a queue that is restored.
    pub fn restore_rider(&mut self) {
        self.riding += 1;
    }

    /// Frees the memory kept for future messages, when no message has a run.
    pub fn compact(&mut self) {
        self.texts = HashMap::default();
    }

    /// Bytes of the texts and of their table.
    pub fn memory(&self) -> usize {
        self.bytes + table::<(u64, Box<[u8]>)>(self.texts.capacity())
    }
}

/// Returns the number of messages in a run, which is in front of its label.
fn most_of(text: &[u8]) -> usize {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

impl<P> Scheduler<P> {
    /// Returns whether a leased message waits for the one before it in its run.
    #[inline]
    pub(in crate::queue) fn rides(&self, at: u32) -> bool {
        self.runs.riding > 0 && self.is_behind_in_run(at)
    }

    pub(in crate::queue) fn is_behind_in_run(&self, at: u32) -> bool {
        let message = &self.records[at];
        message.state == Some(State::Leased)
            && message.first_edge != NONE
            && !self.lanes.edge(message.first_edge).granted()
    }

    /// Returns whether a message that was just leased, or is leased again, is a rider.
    pub fn is_rider(&self, grant: &Grant) -> bool {
        self.rides(grant.message)
    }

    /// Leased messages that wait for the one before them in their run.
    pub fn riding(&self) -> u64 {
        self.runs.riding()
    }

    /// The run of a message that was seen; empty: it has none.
    pub fn run(&self, seen: &Seen<'_, P>) -> &[u8] {
        self.runs.of(seen.id)
    }

    /// The run of a message that was put; see [`Put::run`](crate::queue::scheduler::Put::run).
    #[inline(never)]
    pub(in crate::queue) fn enter_run(&mut self, at: u32, run: &[u8]) {
        self.records.add_extra(at);
        self.runs.insert(self.records[at].id, run);
    }

    /// Leases the messages that follow one in its run. Returns whether the call may take more.
    #[inline(never)]
    pub(in crate::queue) fn lease_riders(
        &mut self,
        head: u32,
        kind: Kind,
        batch: &Batch,
        left: &mut Room,
        grants: &mut Vec<Grant>,
    ) -> bool {
        if !self.may_run(head) {
            return true;
        }
        let mut last = head;
        for _ in 1..most_of(self.runs.of(self.records[head].id)) {
            let Some((rider, keys)) = self.next_rider(last) else { return true };
            if left.messages == 0 || keys > left.keys {
                return false;
            }
            (left.keys, left.taken) = (left.keys - keys, left.taken + keys);
            self.charge_rider(rider, kind);
            self.lease_one(rider, batch, left, grants);
            self.runs.riding += 1;
            if left.bytes == 0 {
                return false;
            }
            last = rider;
        }
        true
    }

    /// Returns whether a message may be in a run: one that was leased before is leased by itself, so that a
    /// message that fails is found.
    fn may_run(&self, at: u32) -> bool {
        let message = &self.records[at];
        !self.runs.of(message.id).is_empty()
            && message.first_edge != NONE
            && !self.lanes.edge(message.first_edge).shared()
            && self.records.marks(at) & RETURNED == 0
            && self.records.suspect(at) == 0
            && self.records.attempt(at) == 1
    }

    /// The message that may ride behind another one: the next in every one of its lanes. And the number of its keys.
    fn next_rider(&self, last: u32) -> Option<(u32, usize)> {
        let before = &self.records[last];
        let next = Some(self.lanes.next_of(before.first_edge)).filter(is_some)?;
        let at = self.lanes.edge(next).message;
        let message = &self.records[at];
        let alike = message.state == Some(State::Waiting)
            && message.priority == before.priority
            && self.gate.groups.of(at) == self.gate.groups.of(last)
            && self.runs.of(message.id) == self.runs.of(before.id);
        if !alike || !self.may_run(at) {
            return None;
        }
        let (mut keys, mut exclusive) = (0, 0);
        for (_, edge) in self.lanes.edges_of(message.first_edge) {
            let front = self.lanes.edge(Some(edge.before()).filter(is_some)?);
            if front.message != last || front.shared() != edge.shared() {
                return None;
            }
            keys += 1;
            exclusive += u32::from(!edge.shared());
        }
        // It waits for that one alone, and for no barrier.
        let waits = message.hold == exclusive
            && keys == self.lanes.edges_of(before.first_edge).count()
            && (message.flags & LIMITED == 0 || self.gate.has_room(at, self.now));
        waits.then_some((at, keys))
    }

    /// A message of a run is settled: the next one, if there is one, has the lease now.
    #[inline]
    pub(in crate::queue) fn promote_rider(&mut self, head: u32) {
        if self.runs.riding > 0 && self.rider_behind(head).is_some() {
            self.runs.riding -= 1;
        }
    }

    /// The lease of a message ended before it was settled: those behind it in its run wait as before.
    #[inline]
    pub(in crate::queue) fn return_riders(&mut self, head: u32) {
        if self.runs.riding > 0 {
            self.return_each(head);
        }
    }

    #[cold]
    fn return_each(&mut self, head: u32) {
        let mut last = head;
        while let Some(rider) = self.rider_behind(last) {
            last = rider;
            self.leases.end(self.records[rider].hold);
            self.coalescing.lease_ended();
            let edges = self.lanes.edges_of(self.records[rider].first_edge);
            let exclusive = edges.filter(|(_, edge)| !edge.shared()).count();
            self.records.set_waiting(rider, exclusive as u32);
            self.runs.riding -= 1;
            self.free_slots(rider);
        }
    }

    fn rider_behind(&self, at: u32) -> Option<u32> {
        let first = Some(self.records[at].first_edge).filter(is_some)?;
        let behind = Some(self.lanes.next_of(first)).filter(is_some)?;
        Some(self.lanes.edge(behind).message).filter(|&at| self.is_behind_in_run(at))
    }
}

fn is_some(edge: &u32) -> bool {
    *edge != NONE
}
