//! The pause of a queue, and ready messages set aside because a key of them is paused (clause 22).

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::queue::parts::ready::Ticket;

#[derive(Debug, Default)]
pub struct Pauses {
    queue: bool,
    /// Set aside when they came up, by the lane that was paused.
    parked: HashMap<u32, Vec<Ticket>, std::hash::RandomState>,
    /// Resumed, and on their way back among the ready (clause 21 limits how many a call moves).
    returning: VecDeque<Ticket>,
}

impl Pauses {
    /// Returns whether the queue itself is paused.
    #[inline]
    pub fn of_queue(&self) -> bool {
        self.queue
    }

    /// Pauses or resumes the queue; returns whether it was paused.
    pub fn set_queue(&mut self, paused: bool) -> bool {
        std::mem::replace(&mut self.queue, paused)
    }

    /// Sets a ticket aside. Sweeps when most of the lane's are stale: at most `depth` messages can
    /// wait there, and `valid` tests one.
    pub fn park(
        &mut self,
        ticket: Ticket,
        lane: u32,
        depth: usize,
        valid: impl Fn(&Ticket) -> bool,
    ) {
        let parked = self.parked.entry(lane).or_default();
        parked.push(ticket);
        if parked.len() > 32 && parked.len() > 2 * depth {
            parked.retain(valid);
        }
    }

    /// Sends what was set aside for a lane on its way back. Returns whether there was any.
    pub fn resume(&mut self, lane: u32) -> bool {
        let parked = self.parked.remove(&lane);
        let any = parked.is_some();
        self.returning.extend(parked.unwrap_or_default());
        any
    }

    pub fn next_returning(&mut self) -> Option<Ticket> {
        self.returning.pop_front()
    }

    #[inline]
    pub fn is_returning(&self) -> bool {
        !self.returning.is_empty()
    }

    /// Returns whether nothing is set aside or on its way back.
    pub fn keep_nothing(&self) -> bool {
        self.parked.is_empty() && self.returning.is_empty()
    }

    pub fn parked(&self) -> impl ExactSizeIterator<Item = (u32, &[Ticket])> {
        self.parked.iter().map(|(&lane, tickets)| (lane, tickets.as_slice()))
    }

    pub fn returning(&self) -> impl ExactSizeIterator<Item = &Ticket> {
        self.returning.iter()
    }

    pub fn restore_parked(&mut self, lane: u32, tickets: Vec<Ticket>) {
        self.parked.insert(lane, tickets);
    }

    pub fn restore_returning(&mut self, tickets: Vec<Ticket>) {
        self.returning.extend(tickets);
    }
}
