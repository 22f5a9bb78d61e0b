//! The pause of a queue, and ready messages set aside because a key of them is paused (clause 22).

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::queue::parts::ready::Ticket;

#[derive(Debug, Default)]
pub struct Pauses {
    queue: bool,
    /// Set aside when they came up, by the lane that was paused.
    aside: HashMap<u32, Vec<Ticket>, std::hash::RandomState>,
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
    pub fn set_aside(
        &mut self,
        ticket: Ticket,
        lane: u32,
        depth: usize,
        valid: impl Fn(&Ticket) -> bool,
    ) {
        let aside = self.aside.entry(lane).or_default();
        aside.push(ticket);
        if aside.len() > 32 && aside.len() > 2 * depth {
            aside.retain(valid);
        }
    }

    /// Sends what was set aside for a lane on its way back. Returns whether there was any.
    pub fn resume(&mut self, lane: u32) -> bool {
        let aside = self.aside.remove(&lane);
        let any = aside.is_some();
        self.returning.extend(aside.unwrap_or_default());
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
        self.aside.is_empty() && self.returning.is_empty()
    }

    pub fn aside(&self) -> impl ExactSizeIterator<Item = (u32, &[Ticket])> {
        self.aside.iter().map(|(&lane, tickets)| (lane, tickets.as_slice()))
    }

    pub fn returning(&self) -> impl ExactSizeIterator<Item = &Ticket> {
        self.returning.iter()
    }

    pub fn restore_aside(&mut self, lane: u32, tickets: Vec<Ticket>) {
        self.aside.insert(lane, tickets);
    }

    pub fn restore_returning(&mut self, tickets: Vec<Ticket>) {
        self.returning.extend(tickets);
    }
}
