//! A sorted set whose first items are in a short list: most sets never have more, and what comes and goes there allocates
//! nothing.

use std::collections::{BTreeSet, VecDeque};

/// Items of the list at most, and those with which it is filled again.
const FEW: usize = 16;
const AGAIN: usize = FEW / 2;

#[derive(Debug)]
pub struct Sorted<T> {
    /// Empty only if all is.
    first: VecDeque<T>,
    /// Items behind all of those.
    rest: BTreeSet<T>,
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Sorted { first: VecDeque::new(), rest: BTreeSet::new() }
    }
}

impl<T: Copy + Ord> Sorted<T> {
    #[inline]
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    #[inline]
    pub fn first(&self) -> Option<&T> {
        self.first.front()
    }

    pub fn contains(&self, item: &T) -> bool {
        self.first.binary_search(item).is_ok() || self.rest.contains(item)
    }

    /// The items before this one, in order.
    pub fn before(&self, item: T) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest).take_while(move |one| **one < item)
    }

    /// Returns whether the item is new.
    #[inline]
    pub fn insert(&mut self, item: T) -> bool {
        let is_last = self.first.back().is_none_or(|last| *last < item);
        if is_last && self.first.len() < FEW && self.rest.is_empty() {
            self.first.push_back(item);
            return true;
        }
        self.insert_among(item, is_last)
    }

    #[inline(never)]
    fn insert_among(&mut self, item: T, behind: bool) -> bool {
        if behind {
            return self.rest.insert(item);
        }
        let Err(at) = self.first.binary_search(&item) else { return false };
        if self.first.len() == FEW {
            self.rest.extend(self.first.pop_back());
        }
        self.first.insert(at, item);
        true
    }

    /// Returns whether it had the item.
    #[inline]
    pub fn remove(&mut self, item: &T) -> bool {
        if self.first.front() != Some(item) {
            return self.remove_from_among(item);
        }
        self.first.pop_front();
        if self.first.is_empty() && !self.rest.is_empty() {
            self.fill();
        }
        true
    }

    #[inline(never)]
    fn remove_from_among(&mut self, item: &T) -> bool {
        match self.first.binary_search(item) {
            // Not the first one, so that others are left.
            Ok(at) => self.first.remove(at).is_some(),
            Err(_) => self.rest.remove(item),
        }
    }

    #[inline(never)]
    fn fill(&mut self) {
        let next = std::iter::from_fn(|| self.rest.pop_first());
        self.first.extend(next.take(AGAIN));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::queue::parts::groups::sorted::Sorted;

    #[test]
    fn it_holds_what_a_sorted_set_holds() {
        let mut rng = fastrand::Rng::with_seed(7);
        for most in [3, 20, 200] {
            let (mut ours, mut plain) = (Sorted::default(), BTreeSet::new());
            for _ in 0..5_000 {
                let item = rng.u32(0..most);
                match rng.u32(0..3) {
                    0 => assert_eq!(ours.remove(&item), plain.remove(&item)),
                    1 => {
                        let first = plain.pop_first();
                        assert_eq!(first.is_some_and(|first| ours.remove(&first)), first.is_some());
                    }
                    _ => assert_eq!(ours.insert(item), plain.insert(item)),
                }
                let some = rng.u32(0..most);
                assert_eq!(ours.contains(&some), plain.contains(&some));
                assert!(ours.before(some).eq(plain.range(..some)));
                assert_eq!((ours.first(), ours.len()), (plain.first(), plain.len()));
                assert_eq!(ours.is_empty(), plain.is_empty());
            }
        }
    }
}
