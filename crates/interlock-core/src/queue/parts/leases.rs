//! The leases that stand: their tokens, their deadlines, and those of many messages (clauses 8, 20).

use std::ops::Index;

use crate::queue::parts::batches::{Batches, Told};
use crate::queue::parts::slab::{Record, Slab, NONE};
use crate::queue::parts::timers::{Due, Timers};
use crate::queue::scheduler::Handle;
use crate::queue::types::Time;

/// The right to handle one message, as the scheduler keeps it.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// 0: free.
    pub token: u64,
    pub at: Time,
    /// The deadline, where `timer` says that it has one.
    pub deadline: Time,
    pub consumer: u64,
    pub message: u32,
    /// Its place among the deadlines; `NONE`: it has no deadline.
    timer: u32,
    /// Its place among the leases of many messages; `NONE`: it is of one.
    batch: u32,
    /// True if the log already says that it is held too long.
    pub noted: bool,
}

impl Default for Lease {
    fn default() -> Self {
        Lease {
            token: 0,
            at: 0,
            deadline: 0,
            consumer: 0,
            message: NONE,
            timer: NONE,
            batch: NONE,
            noted: false,
        }
    }
}

impl Record for Lease {
    fn clear(&mut self) {
        self.token = 0;
    }
    fn link(&self) -> u32 {
        self.message
    }
    fn set_link(&mut self, next: u32) {
        self.message = next;
    }
}

impl Lease {
    /// Returns whether it has a deadline of its own.
    pub fn is_timed(&self) -> bool {
        self.timer != NONE
    }

    pub fn is_of_batch(&self) -> bool {
        self.batch != NONE
    }
}

#[derive(Debug, Default)]
pub struct Leases {
    slab: Slab<Lease>,
    batches: Batches,
    deadlines: Timers,
    last_token: u64,
}

impl Leases {
    /// Forgets all records, for none is used, but not the last token.
    pub fn compact(&mut self) {
        *self = Leases { last_token: self.last_token, ..Leases::default() };
    }

    pub fn bytes(&self) -> usize {
        self.slab.bytes() + self.batches.bytes() + self.deadlines.bytes()
    }

    #[inline]
    pub fn last_token(&self) -> u64 {
        self.last_token
    }

    /// Continues tokens after this one.
    pub fn go_on_from(&mut self, last_token: u64) {
        self.last_token = last_token;
    }

    #[inline]
    pub fn draw_token(&mut self, now: Time) -> u64 {
        self.last_token = now.max(self.last_token + 1);
        self.last_token
    }

    /// Enters a lease without a deadline; its place.
    #[inline(always)]
    pub fn insert(&mut self, token: u64, message: u32, consumer: u64, now: Time) -> u32 {
        self.slab.insert(Lease {
            token,
            at: now,
            deadline: 0,
            consumer,
            message,
            timer: NONE,
            batch: NONE,
            noted: false,
        })
    }

    /// Enters a lease of a batch.
    #[inline(always)]
    pub fn insert_in_batch(
        &mut self,
        batch: u32,
        (token, deadline): (u64, Time),
        message: u32,
        consumer: u64,
        now: Time,
    ) -> u32 {
        self.slab.insert(Lease {
            token,
            at: now,
            deadline,
            consumer,
            message,
            timer: NONE,
            batch,
            noted: false,
        })
    }

    /// Sets the deadline of a lease; `id` is its message's.
    pub fn set_deadline(&mut self, place: u32, id: u64, deadline: Time) {
        let slab = &mut self.slab;
        slab[place].deadline = deadline;
        let timer = slab[place].timer;
        let mut moved = |owner: u32, position| slab[owner].timer = position;
        if timer != NONE {
            self.deadlines.remove(timer, &mut moved);
        }
        self.deadlines.insert(Due { at: deadline, id, owner: place }, moved);
    }

    /// Ends a lease, and returns it.
    #[inline]
    pub fn end(&mut self, place: u32) -> Lease {
        let lease = self.slab.take(place, |lease| *lease);
        self.leave(lease.batch, lease.timer);
        lease
    }

    /// Ends the lease of a handle, if it stands, and returns its message.
    #[inline(always)]
    pub fn end_standing(&mut self, handle: Handle, now: Time) -> Option<u32> {
        let Leases { slab, batches, .. } = self;
        let (message, batch, timer) = slab.take_if(handle.place, |lease| {
            let Lease { message, batch, timer, .. } = *lease;
            stands(lease, batches, handle, now).then_some((message, batch, timer))
        })?;
        // Neither of a batch nor timed: one look for both.
        if batch & timer != NONE {
            self.leave(batch, timer);
        }
        Some(message)
    }

    /// A lease that ended leaves its batch and the deadlines.
    #[inline(never)]
    fn leave(&mut self, batch: u32, timer: u32) {
        if batch != NONE {
            self.batches.left(batch);
        }
        if timer == NONE {
            return;
        }
        let slab = &mut self.slab;
        self.deadlines.remove(timer, |owner, position| slab[owner].timer = position);
    }

    /// The lease of a handle, if it stands. Once its deadline is reached it is over, even if what falls
    /// due has not come to it yet (clauses 8, 20).
    #[inline]
    pub fn standing(&self, handle: Handle, now: Time) -> Option<&Lease> {
        self.slab.get(handle.place).filter(|lease| stands(lease, &self.batches, handle, now))
    }

    /// Returns the deadline of a lease, its own or its batch's; 0: it has none.
    #[inline]
    pub fn deadline_of(&self, lease: &Lease) -> Time {
        deadline(lease, &self.batches)
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Leases with a deadline of their own.
    #[inline]
    pub fn timed(&self) -> usize {
        self.deadlines.len()
    }

    /// All that stand, each with its place.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Lease)> {
        self.slab.places().filter(|(_, lease)| lease.token != 0)
    }

    /// Every place, including free ones, so that a number of them can be looked at.
    pub fn places(&self) -> impl Iterator<Item = (u32, &Lease)> {
        self.slab.places()
    }

    /// The first deadline of all, or `Time::MAX`.
    #[inline]
    pub fn first_deadline(&self) -> Time {
        let of = |timers: &Timers| timers.first().map_or(Time::MAX, |due| due.at);
        of(&self.deadlines).min(of(self.batches.deadlines()))
    }

    /// The place of the first lease whose own deadline is reached.
    pub fn next_expired(&self, now: Time) -> Option<u32> {
        self.deadlines.first().filter(|due| due.at <= now).map(|due| due.owner)
    }

    /// Notes that the log says that a lease is held too long.
    pub fn note(&mut self, place: u32) {
        self.slab[place].noted = true;
    }

    /// Begins a lease of many messages; its place among them.
    pub fn begin_batch(&mut self, token: u64, deadline: Time, told: Told) -> u32 {
        self.batches.begin(token, deadline, told)
    }

    /// Sets the messages of a lease of many.
    pub fn fill_batch(&mut self, batch: u32, members: Box<[u32]>) {
        self.batches.fill(batch, members);
    }

    /// A new deadline for all that a token still holds, unless it is over; `None`: it holds nothing.
    pub fn extend_batch(
        &mut self,
        token: u64,
        deadline: Time,
        told: Told,
        now: Time,
    ) -> Option<()> {
        self.batches.extend(token, deadline, told, now)
    }

    /// Returns what the holder of the lease at this place has said of its handlers.
    pub fn told(&self, place: u32) -> Told {
        match self.slab[place].batch {
            NONE => Told::Assumed,
            batch => self.batches.told(batch),
        }
    }

    /// Shows the leases of the batches that end first, if they have: all that end at that time.
    pub fn expired_in_batches(&self, now: Time) -> Option<Vec<(u32, &Lease)>> {
        let deadline = self.batches.deadlines().first()?.at;
        if deadline > now {
            return None;
        }
        let mut out = Vec::new();
        self.batches.deadlines().each_until(deadline, |due| {
            let (token, members) = self.batches.members(due.owner);
            // The place of one that is no longer out may be gone, or another lease's.
            let standing = members.iter().filter_map(|&at| {
                Some((at, self.slab.get(at).filter(|lease| lease.token == token)?))
            });
            out.extend(standing);
        });
        Some(out)
    }

    /// The leases of many messages: token, deadline, and those of their leases that still stand.
    pub fn batches(&self) -> impl Iterator<Item = (u64, Time, Told, Vec<&Lease>)> {
        self.batches.all().map(|(token, deadline, told, members)| {
            let leases = members.iter().filter_map(|&place| self.slab.get(place));
            (token, deadline, told, leases.filter(|lease| lease.token == token).collect())
        })
    }

    pub fn batch_count(&self) -> usize {
        self.batches.len()
    }

    /// A lease as it was; `deadline` is its own or its batch's, neither of which it is in yet.
    pub fn restore(
        &mut self,
        (token, deadline): (u64, Time),
        message: u32,
        consumer: u64,
        at: Time,
    ) -> u32 {
        self.insert_in_batch(NONE, (token, deadline), message, consumer, at)
    }

    pub fn restore_batch(&mut self, token: u64, deadline: Time, told: Told, members: Vec<u32>) {
        let batch = self.batches.begin(token, deadline, told);
        for &place in &members {
            self.slab[place].batch = batch;
        }
        self.batches.fill(batch, members.into());
    }
}

/// Returns whether a record is the lease of this handle, and it is not over.
#[inline]
fn stands(lease: &Lease, batches: &Batches, handle: Handle, now: Time) -> bool {
    // Neither of a batch nor timed: one look for both.
    let is_over = || lease.timer & lease.batch != NONE && deadline(lease, batches) <= now;
    lease.token == handle.token && !is_over()
}

#[inline]
fn deadline(lease: &Lease, batches: &Batches) -> Time {
    match lease.batch {
        NONE => lease.deadline,
        batch => batches.deadline(batch),
    }
}

impl Index<u32> for Leases {
    type Output = Lease;

    #[inline]
    fn index(&self, place: u32) -> &Lease {
        &self.slab[place]
    }
}
