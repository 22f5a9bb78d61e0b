//! Limits that have no room while certain messages stay leased, for those who look for deadlocks (clause 25).

use std::collections::BTreeMap;

use super::Gate;

impl Gate {
    /// The names that have no room while these messages stay leased, sorted: they have all slots, together with
    /// keepers that wait for such a name.
    pub fn closed_by(&self, leased: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut taken: BTreeMap<u32, u32> = BTreeMap::new();
        for carried in leased.filter_map(|at| self.carried.get(at)) {
            carried.names.iter().for_each(|&at| *taken.entry(at).or_default() += 1);
        }
        if taken.is_empty() {
            return Vec::new();
        }
        let is_full =
            |at: u32, slots: u32| self.names[at as usize].most.is_some_and(|n| slots >= n);
        for keeper in self.keepers() {
            // Two keepers have no name in common.
            let carried = &self.carried[keeper];
            let order: Vec<u32> = carried.names.rates_last(&self.names).collect();
            let (kept, wanted) = order.split_at(carried.slots.into());
            if wanted.iter().any(|&at| taken.get(&at).is_some_and(|&slots| is_full(at, slots))) {
                kept.iter().for_each(|&at| *taken.entry(at).or_default() += 1);
            }
        }
        taken.into_iter().filter(|&(at, slots)| is_full(at, slots)).map(|(at, _)| at).collect()
    }

    /// Returns whether one of these names, sorted, is one that a message has no slot of.
    pub fn refuses(&self, message: u32, closed: &[u32]) -> bool {
        !closed.is_empty()
            && self.carried.get(message).is_some_and(|carried| {
                let mut wanted = carried.names.rates_last(&self.names).skip(carried.slots.into());
                wanted.any(|at| closed.binary_search(&at).is_ok())
            })
    }

    /// The messages that have no slot of one of these names.
    pub fn refused_by<'a>(&'a self, closed: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        let some = if closed.is_empty() { 0 } else { usize::MAX };
        self.carried.messages().take(some).filter(move |&at| self.refuses(at, closed))
    }
}
