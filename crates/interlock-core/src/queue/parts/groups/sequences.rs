//! The lowest sequence of the messages that have a group and are ready, for those who ask how long one has been so. Few
//! ask, so nothing is searched when a message comes or goes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::queue::parts::ready::Ticket;

/// Entries that may be there however few messages are ready.
const FEW: usize = 64;

/// A message that became ready: sequence, slot, rank, whether it has keys.
type Entry = (u64, u32, i16, bool);

/// Messages that became ready, in order. Some are not ready any more.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    /// Those of rising sequences.
    rising: VecDeque<Entry>,
    others: BinaryHeap<Reverse<Entry>>,
}

fn entry(ticket: Ticket, keyed: bool) -> Entry {
    (ticket.sequence, ticket.message, ticket.rank, keyed)
}

fn is_ready(ready: &impl Fn(bool, &Ticket) -> bool, entry: &Entry) -> bool {
    let (sequence, message, rank, keyed) = *entry;
    ready(keyed, &Ticket { rank, sequence, message })
}

impl Sequences {
    pub fn push(&mut self, keyed: bool, ticket: Ticket) {
        let entry = entry(ticket, keyed);
        match self.rising.back() {
            Some(last) if *last > entry => self.others.push(Reverse(entry)),
            _ => self.rising.push_back(entry),
        }
    }

    /// A message is not ready any more. Unless it is the first, it is found later.
    pub fn remove(&mut self, keyed: bool, ticket: Ticket) {
        if self.rising.front() == Some(&entry(ticket, keyed)) {
            self.rising.pop_front();
        }
    }

    /// Returns whether most entries are of messages that are not ready; `count` are.
    pub fn are_stale(&self, count: usize) -> bool {
        let all = self.rising.len() + self.others.len();
        all > FEW && all > 2 * count
    }

    /// Drops all others than those of ready messages.
    #[cold]
    pub fn sweep(&mut self, ready: impl Fn(bool, &Ticket) -> bool) {
        let others = std::mem::take(&mut self.others).into_iter().map(|Reverse(entry)| entry);
        let all = std::mem::take(&mut self.rising).into_iter().chain(others);
        let mut left: Vec<Entry> = all.filter(|entry| is_ready(&ready, entry)).collect();
        left.sort_unstable();
        left.dedup();
        self.rising = left.into();
    }

    /// The lowest sequence of a ready message.
    pub fn first(&mut self, ready: impl Fn(bool, &Ticket) -> bool) -> Option<u64> {
        while self.rising.front().is_some_and(|entry| !is_ready(&ready, entry)) {
            self.rising.pop_front();
        }
        while self.others.peek().is_some_and(|Reverse(entry)| !is_ready(&ready, entry)) {
            self.others.pop();
        }
        let rising = self.rising.front();
        let others = self.others.peek().map(|Reverse(entry)| entry);
        rising.into_iter().chain(others).map(|(sequence, ..)| *sequence).min()
    }

    /// Bytes of its tables.
    pub fn bytes(&self) -> usize {
        (self.rising.capacity() + self.others.capacity()) * size_of::<Entry>()
    }
}
