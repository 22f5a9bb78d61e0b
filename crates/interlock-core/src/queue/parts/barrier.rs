//! Barriers: alone, after all before them and before all after them (clause 14).
//!
//! While a barrier is unsettled, what is put behind it takes its place in its lanes as ever, but with
//! one thing more to wait for, its gate. When the barrier is settled the gates open, at most as many
//! in one call as the clause on cost allows.

use std::collections::VecDeque;

#[derive(Debug)]
pub struct Barrier {
    pub message: u32,
    pub sequence: u64,
    /// Unsettled messages behind it and before the next barrier.
    pub after: u64,
    /// Messages behind it: (message, its sequence). One that was parked or settled is left in here: its slot
    /// has another sequence then.
    pub gated: VecDeque<(u32, u64)>,
}

#[derive(Debug, Default)]
pub struct Barriers {
    /// Unsettled messages before the first barrier.
    open: u64,
    queue: VecDeque<Barrier>,
    /// Messages whose barrier is settled and whose gates open next: (message, its sequence).
    opening: VecDeque<(u32, u64)>,
}

impl Barriers {
    /// Frees unused capacity.
    pub fn compact(&mut self) {
        self.queue.shrink_to_fit();
        self.opening = VecDeque::new();
    }

    /// Places a message. Returns true if it is behind a barrier, and so has a gate.
    #[inline(always)]
    pub fn place(&mut self, message: u32, sequence: u64) -> bool {
        match self.queue.back_mut() {
            None => {
                self.open += 1;
                false
            }
            Some(last) => {
                last.after += 1;
                last.gated.push_back((message, sequence));
                true
            }
        }
    }

    /// A barrier takes its place. True: it is ready at once.
    pub fn place_barrier(&mut self, message: u32, sequence: u64) -> bool {
        let first = self.queue.is_empty();
        self.queue.push_back(Barrier { message, sequence, after: 0, gated: VecDeque::new() });
        first && self.open == 0
    }

    /// Notes that a message other than a barrier was settled. Returns the barrier that is now
    /// ready.
    #[inline(always)]
    pub fn settled(&mut self, sequence: u64) -> Option<u32> {
        if self.queue.is_empty() {
            self.open -= 1;
            return None;
        }
        self.settled_beside(sequence)
    }

    /// Like `settled`, where there are barriers.
    #[inline(never)]
    fn settled_beside(&mut self, sequence: u64) -> Option<u32> {
        match self.queue.partition_point(|b| b.sequence < sequence) {
            0 => {
                self.open -= 1;
                self.ready()
            }
            n => {
                self.queue[n - 1].after -= 1;
                None
            }
        }
    }

    /// A barrier was settled. Returns the next barrier if that is ready now.
    pub fn barrier_settled(&mut self, sequence: u64) -> Option<u32> {
        let at = self.queue.partition_point(|b| b.sequence < sequence);
        let mut gone = self.queue.remove(at).expect("a placed barrier");
        if at > 0 {
            // Cancelled in the middle: what stood on both sides joins.
            let before = &mut self.queue[at - 1];
            before.after += gone.after;
            before.gated.append(&mut gone.gated);
            return None;
        }
        self.open += gone.after;
        if self.opening.is_empty() {
            self.opening = gone.gated;
        } else {
            self.opening.append(&mut gone.gated);
        }
        self.ready()
    }

    fn ready(&self) -> Option<u32> {
        self.queue.front().filter(|_| self.open == 0).map(|b| b.message)
    }

    /// The next message whose gate opens.
    pub fn next_opening(&mut self) -> Option<(u32, u64)> {
        self.opening.pop_front()
    }

    #[inline]
    pub fn is_opening(&self) -> bool {
        !self.opening.is_empty()
    }

    /// Unsettled messages before the first barrier.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Messages whose gates open next, and their sequences.
    pub fn opening(&self) -> &VecDeque<(u32, u64)> {
        &self.opening
    }

    pub fn restore_open(&mut self, open: u64) {
        self.open = open;
    }

    /// One more barrier, behind all others.
    pub fn restore_barrier(
        &mut self,
        message: u32,
        sequence: u64,
        after: u64,
        gated: Vec<(u32, u64)>,
    ) {
        self.queue.push_back(Barrier { message, sequence, after, gated: gated.into() });
    }

    pub fn restore_opening(&mut self, opening: Vec<(u32, u64)>) {
        self.opening = opening.into();
    }

    /// The barriers, first one first.
    pub fn iter(&self) -> impl Iterator<Item = &Barrier> {
        self.queue.iter()
    }

    pub fn last_before(&self, sequence: u64) -> Option<&Barrier> {
        self.before(sequence).checked_sub(1).map(|at| &self.queue[at])
    }

    /// Counts the barriers before a sequence.
    pub fn before(&self, sequence: u64) -> usize {
        self.queue.partition_point(|b| b.sequence < sequence)
    }

    /// Unsettled messages, barriers too, before the barrier of this sequence, of so many that have a place:
    /// counted from whichever end is nearer, with at most half of the steps left. False: "at least".
    pub fn messages_before(&self, sequence: u64, placed: u64, steps: &mut u32) -> (u64, bool) {
        let count = |b: &Barrier| 1 + b.after;
        let (before, most) = (self.before(sequence), *steps as usize / 2);
        let behind = self.queue.len() - before;
        *steps -= before.min(behind).min(most) as u32;
        if behind < before && behind <= most {
            return (placed - self.queue.range(before..).map(count).sum::<u64>(), true);
        }
        let counted = self.queue.range(..before.min(most)).map(count).sum::<u64>();
        (self.open + counted, before <= most)
    }
}
