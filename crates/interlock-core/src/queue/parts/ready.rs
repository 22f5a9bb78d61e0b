//! The messages that can be leased: higher priority first, then sequence (clauses 6, 7).
//!
//! Messages that are ready at their put come in sequence, so a plain deque holds them; those readied
//! later go through a heap, and each other priority has a heap of its own, so that the oldest of each
//! is in front (`oldest`). Entries of messages that were cancelled are skipped when they come up, and swept
//! when they are the greater part.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::queue::types::Kind;

/// A message's place in the order of choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// Priority, negated: the smallest ticket is leased first.
    pub rank: i16,
    pub sequence: u64,
    pub message: u32,
}

/// The rank of a priority: the smallest is leased first.
#[inline]
pub fn rank_of(priority: i8) -> i16 {
    -i16::from(priority)
}

impl Ticket {
    #[inline]
    pub fn new(priority: i8, sequence: u64, message: u32) -> Self {
        Ticket { rank: rank_of(priority), sequence, message }
    }

    /// A ticket before all of its rank.
    pub fn before(rank: i16) -> Self {
        Ticket { rank, sequence: 0, message: 0 }
    }
}

/// Messages of one priority: sequence and message, the lowest first.
type Heap = BinaryHeap<Reverse<(u64, u32)>>;

#[derive(Debug, Default)]
pub struct ReadySet {
    fresh: VecDeque<(u64, u32)>,
    later: Heap,
    /// The other priorities, by rank, the highest priority first; none is empty.
    ranked: Vec<(i16, Heap)>,
    /// The heap that was emptied last: a queue with one urgent message at a time allocates nothing.
    spare: Heap,
    /// Entries of messages that are ready; the rest were cancelled.
    live: usize,
}

impl ReadySet {
    pub fn bytes(&self) -> usize {
        let heaps = self.ranked.iter().map(|(_, heap)| heap);
        let entries: usize = heaps.chain([&self.later, &self.spare]).map(Heap::capacity).sum();
        (self.fresh.capacity() + entries) * size_of::<(u64, u32)>()
            + self.ranked.capacity() * size_of::<(i16, Heap)>()
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
            self.push_on_heap(ticket);
        }
    }

    // Heaps are kept out of the code of the plain way, which is several times as quick.
    #[inline(never)]
    fn push_on_heap(&mut self, ticket: Ticket) {
        let entry = Reverse((ticket.sequence, ticket.message));
        match ticket.rank {
            0 => self.later.push(entry),
            rank => self.heap_of(rank).push(entry),
        }
    }

    fn heap_of(&mut self, rank: i16) -> &mut Heap {
        let at = self.ranked.binary_search_by_key(&rank, |&(rank, _)| rank).unwrap_or_else(|at| {
            self.ranked.insert(at, (rank, std::mem::take(&mut self.spare)));
            at
        });
        &mut self.ranked[at].1
    }

    /// Removes a heap that is empty.
    fn remove_heap(&mut self, at: usize) {
        let (_, heap) = self.ranked.remove(at);
        if heap.capacity() <= 1024 {
            self.spare = heap;
        }
        if self.ranked.is_empty() {
            self.ranked = Vec::new();
        }
    }

    #[inline]
    fn fresh_front(&mut self, valid: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        while let Some(&(sequence, message)) = self.fresh.front() {
            let ticket = Ticket::new(0, sequence, message);
            if valid(&ticket) {
                return Some(ticket);
            }
            self.fresh.pop_front();
        }
        None
    }

    /// The first ticket of one of the other priorities.
    fn front_of(&mut self, at: usize, valid: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        let (rank, heap) = &mut self.ranked[at];
        front(heap, *rank, valid)
    }

    /// The first ticket for which `valid` holds.
    #[inline(always)]
    pub fn peek(&mut self, valid: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        if self.live == 0 {
            return None;
        }
        if self.later.is_empty() && self.ranked.is_empty() {
            return self.fresh_front(valid);
        }
        self.peek_at_heaps(valid)
    }

    #[inline(never)]
    fn peek_at_heaps(&mut self, valid: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        let fresh = self.fresh_front(&valid);
        let later = front(&mut self.later, 0, &valid);
        let plain = match (fresh, later) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        while let Some(&(rank, _)) = self.ranked.first() {
            if rank > 0 && plain.is_some() {
                break;
            }
            let urgent = self.front_of(0, &valid);
            if urgent.is_some() {
                return urgent;
            }
            self.remove_heap(0);
        }
        plain
    }

    /// The lowest sequence of all tickets for which `valid` holds, whatever their priority.
    pub fn oldest(&mut self, valid: impl Fn(&Ticket) -> bool) -> Option<u64> {
        if self.live == 0 {
            return None;
        }
        let plain = [self.fresh_front(&valid), front(&mut self.later, 0, &valid)];
        let mut oldest = plain.into_iter().flatten().map(|ticket| ticket.sequence).min();
        for at in (0..self.ranked.len()).rev() {
            match self.front_of(at, &valid) {
                Some(ticket) => {
                    oldest = Some(oldest.map_or(ticket.sequence, |o| o.min(ticket.sequence)));
                }
                None => self.remove_heap(at),
            }
        }
        oldest
    }

    /// The highest priority, negated, of all tickets for which `valid` holds.
    pub fn first_rank(&self, valid: impl Fn(&Ticket) -> bool) -> Option<i16> {
        if self.live == 0 {
            return None;
        }
        let is_valid = |rank: i16, &(sequence, message): &(u64, u32)| {
            valid(&Ticket { rank, sequence, message })
        };
        let has = |rank: i16, heap: &Heap| heap.iter().any(|Reverse(entry)| is_valid(rank, entry));
        let ranked = |(rank, heap): &&(i16, Heap)| has(*rank, heap);
        let plain = || self.fresh.iter().any(|entry| is_valid(0, entry)) || has(0, &self.later);
        let urgent = self.ranked.iter().take_while(|(rank, _)| *rank < 0).find(ranked);
        match urgent {
            Some((rank, _)) => Some(*rank),
            None if plain() => Some(0),
            None => self.ranked.iter().find(ranked).map(|(rank, _)| *rank),
        }
    }

    /// Removes the first ticket for which `valid` holds.
    #[inline(always)]
    pub fn take(&mut self, valid: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        if self.live == 0 {
            return None;
        }
        if !self.later.is_empty() || !self.ranked.is_empty() {
            let ticket = self.peek_at_heaps(valid)?;
            self.pop(ticket);
            return Some(ticket);
        }
        while let Some((sequence, message)) = self.fresh.pop_front() {
            let ticket = Ticket::new(0, sequence, message);
            if valid(&ticket) {
                self.live -= 1;
                self.shrink_fresh();
                return Some(ticket);
            }
        }
        None
    }

    /// Removes the ticket that `peek` returned.
    #[inline]
    pub fn pop(&mut self, ticket: Ticket) {
        self.live -= 1;
        let entry = (ticket.sequence, ticket.message);
        if ticket.rank == 0 && self.fresh.front() == Some(&entry) {
            self.fresh.pop_front();
            self.shrink_fresh();
        } else {
            self.pop_off_heap(ticket);
        }
    }

    #[inline(always)]
    fn shrink_fresh(&mut self) {
        let capacity = self.fresh.capacity();
        if capacity > 1024 && self.fresh.len() * 8 < capacity {
            self.fresh.shrink_to(capacity / 2);
        }
    }

    #[inline(never)]
    fn pop_off_heap(&mut self, ticket: Ticket) {
        if ticket.rank == 0 {
            return pop(&mut self.later);
        }
        let (rank, heap) = &mut self.ranked[0];
        debug_assert_eq!(*rank, ticket.rank);
        pop(heap);
        if heap.is_empty() {
            self.remove_heap(0);
        }
    }

    /// Removes the ticket that was pushed last, which is fresh and has no priority. Leaving it as a stale
    /// entry is not enough, because the message may become ready again in the same slot.
    pub fn take_back(&mut self, ticket: Ticket) {
        let last = self.fresh.pop_back();
        debug_assert_eq!(last, Some((ticket.sequence, ticket.message)));
        self.live -= 1;
    }

    /// A ready message was cancelled: its entry is stale from now on. Sweeps when most are.
    pub fn cancelled(&mut self, valid: impl Fn(&Ticket) -> bool) {
        self.live -= 1;
        let ranked: usize = self.ranked.iter().map(|(_, heap)| heap.len()).sum();
        let entries = self.fresh.len() + self.later.len() + ranked;
        if self.live == 0 {
            self.fresh.clear();
            self.later.clear();
            self.ranked = Vec::new();
        } else if entries > 64 && entries > self.live * 2 {
            self.fresh.retain(|&(sequence, message)| valid(&Ticket::new(0, sequence, message)));
            let retain = |heap: &mut Heap, rank| {
                heap.retain(|&Reverse((sequence, message))| {
                    valid(&Ticket { rank, sequence, message })
                });
            };
            retain(&mut self.later, 0);
            self.ranked.retain_mut(|(rank, heap)| {
                retain(heap, *rank);
                heap.shrink_to(2 * heap.len());
                !heap.is_empty()
            });
        } else {
            return;
        }
        self.fresh.shrink_to(2 * self.live);
        self.later.shrink_to(2 * self.live);
    }
}

/// The first ticket of a heap for which `valid` holds.
#[inline]
fn front(heap: &mut Heap, rank: i16, valid: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
    while let Some(&Reverse((sequence, message))) = heap.peek() {
        let ticket = Ticket { rank, sequence, message };
        if valid(&ticket) {
            return Some(ticket);
        }
        heap.pop();
    }
    None
}

#[inline]
fn pop(heap: &mut Heap) {
    heap.pop();
    if heap.capacity() > 1024 && heap.len() * 8 < heap.capacity() {
        heap.shrink_to(heap.capacity() / 2);
    }
}

/// The two sets, messages with keys and those without, and what comes to them late.
#[derive(Debug, Default)]
pub struct Ready {
    keyed: ReadySet,
    unkeyed: ReadySet,
    /// Messages that nothing holds up any more and that one call more could not ready: (message, sequence).
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
    #[inline(always)]
    pub fn push(&mut self, keyed: bool, ticket: Ticket, fresh: bool) {
        self.set(keyed).push(ticket, fresh);
    }

    /// The first ticket of a kind for which `valid` holds, and whether its message has keys.
    #[inline(always)]
    pub fn choose(
        &mut self,
        kind: Kind,
        valid: impl Fn(&Ticket) -> bool,
    ) -> Option<(bool, Ticket)> {
        let Some(keyed) = self.only(kind) else { return self.choose_of_both(valid) };
        self.set(keyed).peek(valid).map(|ticket| (keyed, ticket))
    }

    /// Removes the ticket that `choose` would return.
    #[inline(always)]
    pub fn take(&mut self, kind: Kind, valid: impl Fn(&Ticket) -> bool) -> Option<Ticket> {
        match self.only(kind) {
            Some(keyed) => self.set(keyed).take(valid),
            None => {
                let (keyed, ticket) = self.choose_of_both(valid)?;
                self.pop(keyed, ticket);
                Some(ticket)
            }
        }
    }

    /// Returns whether the messages of a kind that are ready have keys; `None`: some have and some have
    /// not.
    #[inline(always)]
    fn only(&self, kind: Kind) -> Option<bool> {
        match kind {
            Kind::Keyed => Some(true),
            Kind::Unkeyed => Some(false),
            // Most queues have messages of one sort only.
            Kind::Any if self.unkeyed.len() == 0 => Some(true),
            Kind::Any if self.keyed.len() == 0 => Some(false),
            Kind::Any => None,
        }
    }

    #[inline(never)]
    fn choose_of_both(&mut self, valid: impl Fn(&Ticket) -> bool) -> Option<(bool, Ticket)> {
        let keyed = self.keyed.peek(&valid).map(|ticket| (true, ticket));
        let unkeyed = self.unkeyed.peek(&valid).map(|ticket| (false, ticket));
        match (keyed, unkeyed) {
            (Some(a), Some(b)) => Some(if a.1 < b.1 { a } else { b }),
            (a, b) => a.or(b),
        }
    }

    /// The first tickets of messages without keys, and of those with keys, for which `valid` holds.
    pub fn fronts(&mut self, valid: impl Fn(&Ticket) -> bool) -> [Option<Ticket>; 2] {
        [self.unkeyed.peek(&valid), self.keyed.peek(&valid)]
    }

    /// See [`ReadySet::first_rank`].
    pub fn first_rank(&self, keyed: bool, valid: impl Fn(&Ticket) -> bool) -> Option<i16> {
        match keyed {
            true => self.keyed.first_rank(valid),
            false => self.unkeyed.first_rank(valid),
        }
    }

    /// The lowest sequence of all tickets for which `valid` holds.
    pub fn oldest(&mut self, valid: impl Fn(&Ticket) -> bool) -> Option<u64> {
        let sets = [self.keyed.oldest(&valid), self.unkeyed.oldest(&valid)];
        sets.into_iter().flatten().min()
    }

    /// Removes the ticket that `choose` returned.
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
    pub fn postpone(&mut self, message: u32, sequence: u64) {
        self.late.push_back((message, sequence));
    }

    pub fn next_late(&mut self) -> Option<(u32, u64)> {
        self.late.pop_front()
    }

    #[inline]
    pub fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Sequences of the messages that later calls ready, first one first.
    pub fn late(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.late.iter().map(|&(_, sequence)| sequence)
    }
}
