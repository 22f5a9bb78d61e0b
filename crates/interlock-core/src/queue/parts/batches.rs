//! The leases of many messages that stand: one token and one deadline over all that one call was handed
//! (clause 8). See [`batch`](crate::queue::calls::batch) for how they come and end.

use hashbrown::HashMap;

use crate::queue::parts::index::table;
use crate::queue::parts::slab::{Record, Slab, NONE};
use crate::queue::parts::timers::{Due, Timers};
use crate::queue::types::Time;

/// Said by the holder of a lease about its handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing: one may have begun, as is taken for granted of messages that are not suspect.
    Assumed,
    /// None has begun.
    Waiting,
    /// No report yet, for a suspect message: its handler must not begin before the report (clause
    /// 9).
    Nothing,
    /// Its handler begins. That is final: reports on another connection may arrive late.
    Begun,
}

impl Told {
    fn then(self, said: Told) -> Told {
        match (self, said) {
            (Told::Begun, _) => Told::Begun,
            (Told::Assumed, Told::Begun) => Told::Assumed,
            _ => said,
        }
    }
}

/// The messages that one call was handed.
#[derive(Debug)]
struct Batch {
    /// 0: free.
    token: u64,
    deadline: Time,
    told: Told,
    /// Its place among the deadlines, or the next free record.
    timer: u32,
    /// Messages that are still out.
    out: u32,
    /// The slots of its leases, in the order in which they were leased.
    members: Box<[u32]>,
}

impl Default for Batch {
    fn default() -> Self {
        let (told, members) = (Told::Assumed, Box::default());
        Batch { token: 0, deadline: 0, told, timer: NONE, out: 0, members }
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
pub struct Batches {
    slab: Slab<Batch>,
    by_token: HashMap<u64, u32, std::hash::RandomState>,
    deadlines: Timers,
}

/// Bytes of the smallest list that is allocated.
const LIST: usize = 32;

impl Batches {
    pub fn bytes(&self) -> usize {
        let members = self.slab.len() * LIST;
        self.slab.bytes()
            + members
            + table::<(u64, u32)>(self.by_token.capacity())
            + self.deadlines.bytes()
    }

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

    /// Begins a batch; `fill` adds the leased messages later.
    pub fn begin(&mut self, token: u64, deadline: Time, told: Told) -> u32 {
        let place = self.slab.insert(Batch { token, deadline, told, ..Batch::default() });
        self.by_token.insert(token, place);
        let slab = &mut self.slab;
        let due = Due { at: deadline, id: token, owner: place };
        self.deadlines.insert(due, |owner, position| slab[owner].timer = position);
        place
    }

    pub fn fill(&mut self, place: u32, members: Box<[u32]>) {
        let batch = &mut self.slab[place];
        batch.out = members.len() as u32;
        batch.members = members;
    }

    /// A new deadline for what a token holds, unless it is over; `None`: it holds nothing.
    pub fn extend(&mut self, token: u64, deadline: Time, told: Told, now: Time) -> Option<()> {
        let place = *self.by_token.get(&token)?;
        let batch = &mut self.slab[place];
        if batch.deadline <= now {
            return None;
        }
        (batch.deadline, batch.told) = (deadline, batch.told.then(told));
        let timer = batch.timer;
        let slab = &mut self.slab;
        let mut moved = |owner: u32, position| slab[owner].timer = position;
        self.deadlines.remove(timer, &mut moved);
        self.deadlines.insert(Due { at: deadline, id: token, owner: place }, moved);
        Some(())
    }

    pub fn told(&self, place: u32) -> Told {
        self.slab[place].told
    }

    #[inline]
    pub fn deadline(&self, place: u32) -> Time {
        self.slab[place].deadline
    }

    #[inline]
    pub fn deadlines(&self) -> &Timers {
        &self.deadlines
    }

    /// Returns the token of a batch, and the slots of its leases, in the order in which they were leased.
    pub fn members(&self, place: u32) -> (u64, &[u32]) {
        let batch = &self.slab[place];
        (batch.token, &batch.members)
    }

    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Token, deadline, what its holder said, and the places of the leases of each.
    pub fn all(&self) -> impl Iterator<Item = (u64, Time, Told, &[u32])> {
        let all = self.slab.places().filter(|(_, batch)| batch.token != 0);
        all.map(|(_, batch)| (batch.token, batch.deadline, batch.told, &*batch.members))
    }
}
