//! Due times, in a heap from which any entry can be removed (clauses 8, 12, 20).
//!
//! A plain heap would keep an entry for each lease until its deadline, thirty seconds of garbage at
//! a million leases a second. Here the owner of an entry knows its place, and takes it out.

use crate::queue::types::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    pub at: Time,
    /// Breaks ties (clause 20): the message's id, or its sequence if it backs off.
    pub id: u64,
    pub owner: u32,
}

#[derive(Debug, Default)]
pub struct Timers {
    heap: Vec<Due>,
}

impl Timers {
    pub fn bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Due>()
    }

    pub fn first(&self) -> Option<&Due> {
        self.heap.first()
    }

    /// Every entry that is due by then, in no order.
    pub fn each_until(&self, time: Time, mut each: impl FnMut(&Due)) {
        let mut ahead = vec![0];
        while let Some(at) = ahead.pop() {
            if let Some(due) = self.heap.get(at).filter(|due| due.at <= time) {
                each(due);
                ahead.extend([2 * at + 1, 2 * at + 2]);
            }
        }
    }

    /// Returns the time at which the entry at `position` is due.
    pub fn at(&self, position: u32) -> Option<Time> {
        self.heap.get(position as usize).map(|due| due.at)
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// All, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Due> {
        self.heap.iter()
    }

    pub fn insert(&mut self, due: Due, mut moved: impl FnMut(u32, u32)) {
        self.heap.push(due);
        self.rise(self.heap.len() - 1, &mut moved);
    }

    /// Removes the entry at `position`, and calls `moved(owner, position)` for each entry that moved.
    pub fn remove(&mut self, position: u32, mut moved: impl FnMut(u32, u32)) -> Due {
        let at = position as usize;
        let due = self.heap.swap_remove(at);
        if at < self.heap.len() {
            let at = self.rise(at, &mut moved);
            self.sink(at, &mut moved);
        }
        if self.heap.len() * 4 < self.heap.capacity() && self.heap.capacity() > 1024 {
            self.heap.shrink_to(self.heap.capacity() / 2);
        }
        due
    }

    fn rise(&mut self, mut at: usize, moved: &mut impl FnMut(u32, u32)) -> usize {
        let due = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent] <= due {
                break;
            }
            self.place(at, self.heap[parent], moved);
            at = parent;
        }
        self.place(at, due, moved);
        at
    }

    fn sink(&mut self, mut at: usize, moved: &mut impl FnMut(u32, u32)) {
        let due = self.heap[at];
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1] < self.heap[child] {
                child += 1;
            }
            if due <= self.heap[child] {
                break;
            }
            self.place(at, self.heap[child], moved);
            at = child;
        }
        self.place(at, due, moved);
    }

    fn place(&mut self, at: usize, due: Due, moved: &mut impl FnMut(u32, u32)) {
        self.heap[at] = due;
        moved(due.owner, at as u32);
    }
}

#[cfg(test)]
mod tests {
    use crate::queue::parts::timers::*;
    use std::collections::HashMap;

    #[test]
    fn entries_leave_in_order_and_owners_know_their_place() {
        let mut rng = fastrand::Rng::with_seed(11);
        let mut timers = Timers::default();
        let mut places: HashMap<u32, u32> = HashMap::new();
        let mut live: Vec<Due> = Vec::new();
        for owner in 0..20_000u32 {
            if rng.u8(..) < 150 || live.is_empty() {
                let due = Due { at: rng.u64(..500), id: u64::from(owner), owner };
                timers.insert(due, |o, p| {
                    places.insert(o, p);
                });
                live.push(due);
            } else {
                let due = live.swap_remove(rng.usize(..live.len()));
                let place = places[&due.owner];
                let out = timers.remove(place, |o, p| {
                    places.insert(o, p);
                });
                assert_eq!(out, due);
            }
        }
        live.sort();
        for due in live {
            assert_eq!(timers.first(), Some(&due));
            timers.remove(0, |o, p| {
                places.insert(o, p);
            });
        }
        assert_eq!(timers.len(), 0);
    }
}
