//! Lanes by depth, so that the deepest are found without a look at all.
//!
//! A lane is listed when it grows deeper than the class of depths under which it is listed, and stays there
//! when it shrinks: a lane whose depth goes up and down costs its puts a comparison. `deepest` lists anew
//! those that it finds to be shallower, which the puts that listed them have paid for.

use super::Lanes;
use crate::queue::parts::slab::NONE;

/// The first lane of each class; empty while no lane was ever listed.
#[derive(Debug, Default)]
pub(super) struct Depths {
    first: Vec<u32>,
}

/// The lanes before and behind a lane in the list of its class.
#[derive(Debug)]
pub(super) struct Neighbours {
    prev: u32,
    next: u32,
}

impl Default for Neighbours {
    fn default() -> Self {
        Neighbours { prev: NONE, next: NONE }
    }
}

/// Depths up to this one have a class each; above, 8 classes share each doubling.
const EXACT: u32 = 15;
const CLASSES: usize = 7 + 8 * 29;

/// The largest depth of each class. Class 0, of lanes of one message or none, is not listed.
pub(super) static LAST: [u32; 256] = last_depths();

const fn last_depths() -> [u32; 256] {
    let mut last = [u32::MAX; 256];
    let mut class = 0;
    while class + 1 < CLASSES {
        last[class] = first_depth(class + 1) - 1;
        class += 1;
    }
    last
}

/// The smallest depth of a class.
const fn first_depth(class: usize) -> u32 {
    if class < 7 {
        return class as u32 + 1;
    }
    let (doubling, part) = ((class - 7) / 8, (class - 7) % 8);
    (8 + part as u32) << doubling
}

/// The class of a depth.
fn class_of(depth: u32) -> u8 {
    if depth < 8 {
        return depth.saturating_sub(1) as u8;
    }
    let doubling = depth.ilog2() - 3;
    (7 + 8 * doubling + (depth >> doubling) - 8) as u8
}

/// Most lanes of the smallest depth returned that are compared by key.
pub(super) const TIES: usize = 1024;

impl Depths {
    pub(super) fn bytes(&self) -> usize {
        self.first.capacity() * size_of::<u32>()
    }
}

impl Lanes {
    /// Lists a lane that has become deeper than its class.
    #[cold]
    pub(super) fn list_by_depth(&mut self, number: u32) {
        let lane = &self.lanes[number];
        let class = class_of(lane.depth);
        if class > lane.class {
            self.list_under(number, class);
        }
    }

    /// Moves a lane to the list of another class.
    pub(super) fn list_under(&mut self, number: u32, class: u8) {
        let lane = &mut self.lanes[number];
        let before = std::mem::replace(&mut lane.class, class);
        let Neighbours { prev, next } = std::mem::take(&mut lane.listed);
        if before > 0 {
            match prev {
                NONE => self.depths.first[usize::from(before)] = next,
                prev => self.lanes[prev].listed.next = next,
            }
            if next != NONE {
                self.lanes[next].listed.prev = prev;
            }
        }
        if class > 0 {
            if self.depths.first.is_empty() {
                self.depths.first.resize(CLASSES, NONE);
            }
            let next = std::mem::replace(&mut self.depths.first[usize::from(class)], number);
            self.lanes[number].listed.next = next;
            if next != NONE {
                self.lanes[next].listed.prev = number;
            }
        }
    }

    /// The lanes on which most messages stand, deepest first, by key where depths are equal. Where more than
    /// `TIES` lanes have the smallest depth returned, any of them.
    pub fn deepest(&mut self, limit: usize) -> Vec<u32> {
        let mut found = Vec::new();
        for class in (1..self.depths.first.len()).rev() {
            if found.len() >= limit {
                break;
            }
            self.find_in_class(class, limit.max(TIES), &mut found);
        }
        if found.len() < limit {
            let single = self.lanes.places().filter(|(_, lane)| lane.depth == 1);
            found.extend(single.map(|(number, _)| number).take(limit.max(TIES)));
        }
        let lanes = &self.lanes;
        let order = |one: &u32, other: &u32| {
            let (one, other) = (&lanes[*one], &lanes[*other]);
            let by_key = || one.key.as_bytes().cmp(other.key.as_bytes());
            other.depth.cmp(&one.depth).then_with(by_key)
        };
        if found.len() > limit && limit > 0 {
            found.select_nth_unstable_by(limit - 1, order);
        }
        found.truncate(limit);
        found.sort_unstable_by(order);
        found
    }

    /// Finds the lanes of a class, or `most` of those whose depth is the same. Lanes that are shallower leave
    /// it.
    fn find_in_class(&mut self, class: usize, most: usize, found: &mut Vec<u32>) {
        let exact = LAST[class] <= EXACT;
        let (first, mut at) = (found.len(), self.depths.first[class]);
        while at != NONE && !(exact && found.len() - first >= most) {
            let number = at;
            at = self.lanes[number].listed.next;
            let now = class_of(self.lanes[number].depth);
            if usize::from(now) == class {
                found.push(number);
            } else {
                self.list_under(number, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRef;

    fn deepest_of_all(lanes: &Lanes, limit: usize) -> Vec<u32> {
        let mut all: Vec<u32> =
            lanes.all().filter(|(_, lane)| lane.depth > 0).map(|(number, _)| number).collect();
        all.sort_by(|one, other| {
            let (one, other) = (lanes.lane(*one), lanes.lane(*other));
            other.depth.cmp(&one.depth).then_with(|| one.key.cmp(&other.key))
        });
        all.truncate(limit);
        all
    }

    fn put(lanes: &mut Lanes, key: u32) -> u32 {
        let mut chain = Lanes::chain();
        lanes.link(1, KeyRef::new(&key.to_be_bytes()), false, &mut chain);
        chain.first
    }

    #[test]
    fn classes_cover_all_depths_without_gaps() {
        for depth in (0..100_000).chain((5..32).flat_map(|bit| [(1 << bit) - 1, 1 << bit])) {
            let class = usize::from(class_of(depth));
            assert!(depth <= LAST[class], "depth {depth} in class {class}");
            assert!(class == 0 || depth > LAST[class - 1], "depth {depth} in class {class}");
            assert!(depth == 0 || depth > EXACT || LAST[class] == depth);
        }
        assert_eq!(LAST[usize::from(class_of(u32::MAX))], u32::MAX);
    }

    #[test]
    fn the_deepest_lanes_are_those_that_a_look_at_all_finds() {
        let mut rng = fastrand::Rng::with_seed(11);
        let mut lanes = Lanes::new(u32::MAX);
        let mut edges: Vec<u32> = Vec::new();
        for round in 0..60_000 {
            let growing = (round / 10_000) % 2 == 0;
            if edges.is_empty() || rng.u8(..) < if growing { 170 } else { 90 } {
                // A few deep lanes, and many that come and go.
                let key = if rng.bool() { rng.u32(..8) } else { rng.u32(..20_000) };
                edges.push(put(&mut lanes, key));
            } else {
                let edge = edges.swap_remove(rng.usize(..edges.len()));
                lanes.unlink(edge, &mut 0, |_, _| ());
                lanes.clear_granted();
            }
            if round % 501 == 0 {
                let limit = rng.usize(..40);
                let found = lanes.deepest(limit);
                let depths = |of: &[u32]| -> Vec<u32> {
                    of.iter().map(|&number| lanes.lane(number).depth).collect()
                };
                let wanted = deepest_of_all(&lanes, limit);
                assert_eq!(depths(&found), depths(&wanted), "in round {round}");
                let unique: std::collections::BTreeSet<_> = found.iter().collect();
                assert_eq!(unique.len(), found.len(), "a lane is found twice");
            }
        }
    }

    #[test]
    fn lanes_of_equal_depth_are_in_order_of_their_keys() {
        let mut lanes = Lanes::new(u32::MAX);
        for key in (0..TIES as u32).rev() {
            put(&mut lanes, key);
            put(&mut lanes, key);
        }
        assert_eq!(lanes.deepest(5), deepest_of_all(&lanes, 5));
    }
}
