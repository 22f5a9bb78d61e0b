//! Finds a message's slot, and the time of its put, by its id.
//!
//! Ids rise by one, so the unsettled ones are nearly a window of numbers: an id's place is written at
//! `id mod size`. A message that outlives a whole turn of the window moves to a side map.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::queue::parts::slab::NONE;
use crate::queue::types::Time;

#[derive(Debug)]
pub struct Index {
    /// Place + 1 at `id & mask`; 0 is empty, so that fresh pages stay untouched zeroes.
    window: Vec<u32>,
    mask: u64,
    old: HashMap<u64, u32, std::hash::RandomState>,
    len: usize,
}

/// Cells with which a window begins, and those below which it does not shrink again.
const FIRST: usize = 32;
const SMALLEST: usize = 256;

/// Bytes of a hash table with room for `capacity` entries.
#[inline]
pub fn table<T>(capacity: usize) -> usize {
    // An eighth is always left free, and each place has a byte beside it. Each call asks for several tables that
    // most queues do not have.
    match capacity {
        0 => 0,
        _ => (capacity * 8 / 7) * (size_of::<T>() + 1),
    }
}

impl Index {
    pub fn new() -> Self {
        Index { window: vec![0; FIRST], mask: FIRST as u64 - 1, old: HashMap::default(), len: 0 }
    }

    pub fn bytes(&self) -> usize {
        self.window.capacity() * size_of::<u32>() + table::<(u64, u32)>(self.old.capacity())
    }

    /// `id_at` tells the id of the message at a place.
    #[inline(always)]
    pub fn insert(&mut self, id: u64, place: u32, id_at: impl Fn(u32) -> u64) {
        if self.len * 2 >= self.window.len() {
            self.resize(self.window.len() * 2, &id_at);
        }
        self.len += 1;
        let cell = &mut self.window[(id & self.mask) as usize];
        let before = std::mem::replace(cell, place + 1);
        if before != 0 {
            self.keep_old(id_at(before - 1), before - 1);
        }
    }

    // Few messages are old, and the map's code is not for the way of all others.
    #[cold]
    fn keep_old(&mut self, id: u64, place: u32) {
        self.old.insert(id, place);
    }

    #[cold]
    fn remove_old(&mut self, id: u64) {
        self.old.remove(&id);
    }

    #[inline]
    pub fn get(&self, id: u64, id_at: impl Fn(u32) -> u64) -> Option<u32> {
        let cell = self.window[(id & self.mask) as usize];
        if cell != 0 && id_at(cell - 1) == id {
            return Some(cell - 1);
        }
        self.old.get(&id).copied()
    }

    #[inline(always)]
    pub fn remove(&mut self, id: u64, place: u32, id_at: impl Fn(u32) -> u64) {
        self.len -= 1;
        let cell = &mut self.window[(id & self.mask) as usize];
        if *cell == place + 1 {
            *cell = 0;
        } else {
            self.remove_old(id);
        }
        if self.len * 16 < self.window.len() && self.window.len() > SMALLEST {
            self.resize((self.window.len() / 4).max(SMALLEST), &id_at);
        }
    }

    #[cold]
    fn resize(&mut self, size: usize, id_at: &impl Fn(u32) -> u64) {
        let before = std::mem::replace(&mut self.window, vec![0; size]);
        self.mask = size as u64 - 1;
        let old = std::mem::take(&mut self.old);
        let cells = before.into_iter().filter(|&cell| cell != 0).map(|cell| cell - 1);
        for place in cells.chain(old.into_values()) {
            let id = id_at(place);
            let cell = &mut self.window[(id & self.mask) as usize];
            // The younger id keeps the window, for the older one will be settled sooner.
            if *cell == 0 {
                *cell = place + 1;
            } else if id_at(*cell - 1) < id {
                let older = *cell - 1;
                *cell = place + 1;
                self.old.insert(id_at(older), older);
            } else {
                self.old.insert(id, place);
            }
        }
    }
}

/// The times at which ids were given: one entry for each tenth of a millisecond in which there was
/// a put, not one for each message (8 bytes of 64 less). Where one message stays and thousands of
/// such tenths pass, those long ago share entries: an age is then known to a part of itself.
#[derive(Debug, Default)]
pub struct PutTimes {
    /// (first number given at that time, the time), rising.
    entries: VecDeque<(u64, Time)>,
    /// Puts before this time share the last entry.
    until: Time,
}

/// µs within which puts share a time.
const GRAIN: Time = 100;
/// An age is known to this part of itself, where it is not to `GRAIN`.
const PART: Time = 256;
/// Most entries, 256 KiB. At `PART` a year of them takes 7,000.
const MOST: usize = 1 << 14;

impl PutTimes {
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(u64, Time)>()
    }

    /// True: this made an entry.
    #[inline]
    pub fn note(&mut self, number: u64, now: Time) -> bool {
        if now < self.until {
            return false;
        }
        self.until = now + GRAIN;
        // More: of a snapshot of before there was a bound.
        if self.entries.len() >= MOST {
            self.thin(now);
        }
        self.entries.push_back((number, now));
        true
    }

    /// Has puts share a time that were at nearly the same time, as seen from now.
    #[cold]
    fn thin(&mut self, now: Time) {
        let mut shared: VecDeque<(u64, Time)> = VecDeque::with_capacity(MOST);
        for (at, &entry) in self.entries.iter().enumerate() {
            let near = match (shared.back(), self.entries.get(at + 1)) {
                // Without this entry its numbers count as given at the time before it.
                (Some(&(_, before)), Some(&(_, after))) => {
                    (after - before).saturating_mul(PART) <= now - after
                }
                _ => false,
            };
            if !near {
                shared.push_back(entry);
            }
        }
        self.entries = shared;
    }

    /// The time `number` was given at, to within a tenth of a millisecond or a 256th of the age then
    /// (never later).
    pub fn at(&self, number: u64) -> Time {
        let after = self.entries.partition_point(|&(first, _)| first <= number);
        self.entries[after.max(1) - 1].1
    }

    /// The first number of each entry and its time, rising.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u64, Time)> + '_ {
        self.entries.iter().copied()
    }

    pub fn until(&self) -> Time {
        self.until
    }

    pub fn restore(&mut self, entries: Vec<(u64, Time)>, until: Time) {
        (self.entries, self.until) = (entries.into(), until);
    }

    /// Forgets what only numbers below `oldest` would ask for.
    #[inline]
    pub fn forget(&mut self, oldest: u64) {
        if self.entries.len() > 1 {
            self.forget_entries(oldest);
        }
    }

    fn forget_entries(&mut self, oldest: u64) {
        while self.entries.len() > 1 && self.entries[1].0 <= oldest {
            self.entries.pop_front();
        }
        if self.entries.len() * 4 < self.entries.capacity() && self.entries.capacity() > 256 {
            self.entries.shrink_to(self.entries.capacity() / 2);
        }
    }
}

impl Index {
    /// The place of the smallest id at or above `from` and below `end`, with how far it looked at most
    /// `steps` numbers: (next number to look at, place or `NONE`).
    pub fn next_from(
        &self,
        from: u64,
        end: u64,
        steps: u32,
        id_at: impl Fn(u32) -> u64,
    ) -> (u64, u32) {
        let mut id = from;
        for _ in 0..steps {
            if id >= end {
                break;
            }
            if let Some(place) = self.get(id, &id_at) {
                return (id, place);
            }
            id += 1;
        }
        (id, NONE)
    }
}

#[cfg(test)]
mod tests {
    use crate::queue::parts::index::*;

    #[test]
    fn every_live_id_is_found_however_long_it_lives() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut index = Index::new();
        let mut ids: Vec<u64> = Vec::new(); // by place; 0: free
        let mut live: Vec<u32> = Vec::new();
        for id in 1..100_000u64 {
            let place = ids.iter().position(|&i| i == 0).unwrap_or_else(|| {
                ids.push(0);
                ids.len() - 1
            });
            ids[place] = id;
            index.insert(id, place as u32, |p| ids[p as usize]);
            live.push(place as u32);
            let most = if id % 5_000 < 2_500 { 700 } else { 20 };
            while live.len() > most {
                // Old ones stay now and then.
                let pick = if rng.u8(..) < 250 { live.len() - 1 } else { rng.usize(..live.len()) };
                let place = live.swap_remove(pick);
                index.remove(ids[place as usize], place, |p| ids[p as usize]);
                ids[place as usize] = 0;
            }
        }
        for &place in &live {
            assert_eq!(index.get(ids[place as usize], |p| ids[p as usize]), Some(place));
        }
        assert_eq!(index.get(1_000_000, |p| ids[p as usize]), None);
        assert_eq!(index.len, live.len());
    }

    #[test]
    fn ids_with_gaps_between_them_are_found() {
        let mut rng = fastrand::Rng::with_seed(8);
        let mut index = Index::new();
        let (mut ids, mut live): (Vec<u64>, Vec<u32>) = Default::default();
        let mut id = 1_000_000_000_000_000;
        for place in 0..50_000u32 {
            id += if rng.bool() { 1 } else { rng.u64(1..3_000) };
            ids.push(id);
            index.insert(id, place, |p| ids[p as usize]);
            live.push(place);
            while live.len() > if place % 9_000 < 5_000 { 3_000 } else { 10 } {
                let place = live.swap_remove(rng.usize(..live.len()));
                index.remove(ids[place as usize], place, |p| ids[p as usize]);
            }
        }
        for &place in &live {
            assert_eq!(index.get(ids[place as usize], |p| ids[p as usize]), Some(place));
        }
        assert_eq!((index.get(id + 1, |p| ids[p as usize]), index.len), (None, live.len()));
    }

    #[test]
    fn put_times_are_exact_to_a_tenth_of_a_millisecond() {
        let mut times = PutTimes::default();
        for number in 1..1000 {
            times.note(number, number * 30);
        }
        for number in 1..1000 {
            let at = times.at(number);
            assert!(at <= number * 30 && at + GRAIN > number * 30);
        }
        times.forget(900);
        assert!(times.at(900) <= 900 * 30);
        assert!(times.entries.len() < 40);
    }

    #[test]
    fn put_times_over_years_use_little_memory_and_are_exact_relative_to_their_age() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut times = PutTimes::default();
        let (mut now, mut given) = (1, vec![0]);
        // Bursts, and then more and more time between.
        for number in 1..400_000u64 {
            now += rng.u64(0..300) << (number / 10_000);
            given.push(now);
            times.note(number, now);
            assert!(times.entries.len() <= MOST && times.entries.capacity() <= MOST);
            if number % 40_000 == 0 {
                for (number, &put) in given.iter().enumerate().skip(1) {
                    let told = times.at(number as u64);
                    let most = GRAIN.max((now - put) / PART);
                    assert!(
                        told <= put && put - told <= most,
                        "{number}: {told} for {put} at {now}"
                    );
                }
            }
        }
        assert!(now > 365 * 86_400_000_000, "{now} µs is a year");
    }

    #[test]
    fn put_times_of_an_old_snapshot_are_reduced() {
        let mut times = PutTimes::default();
        times.restore((0..2 * MOST as u64).map(|n| (n, 1 + n * GRAIN)).collect(), 0);
        times.note(2 * MOST as u64, 1 + 2 * MOST as u64 * GRAIN);
        assert!(times.entries.len() <= MOST, "{} entries", times.entries.len());
    }
}
