//! Records in segments, with a free list through the free ones: no allocation per operation,
//! and segments that have become empty go back to the system.
//!
//! One growing vector would be a little faster to index, but it could never shrink: a handle in use
//! pins its place, so that after a peak the memory would stay. Segments cost one more load. The first one
//! begins small, and grows while it is the only one: most queues never hold more than a few messages.

/// A record for a slab: a free one keeps the next free place in one of its own fields.
pub trait Record: Default {
    fn link(&self) -> u32;
    fn set_link(&mut self, next: u32);
    /// Drops what the record owns, and leaves it so that an old handle finds nothing in it.
    fn clear(&mut self);
}

/// No place.
pub const NONE: u32 = u32::MAX;

const BITS: u32 = 8;
const SEGMENT: usize = 1 << BITS;
const MASK: u32 = SEGMENT as u32 - 1;
/// Records with which the first segment begins, and how many times as many it has each time it has grown.
const FIRST: usize = 8;
const GROWS: usize = 4;

/// Most places at hand.
const HAND: usize = 256;
/// This many may be kept however few are in use, if they are of one segment: those of a batch.
const FEW: usize = 64;

#[derive(Debug)]
pub struct Slab<T> {
    /// A segment that was given back is empty. All others have `SEGMENT` records, the first one maybe
    /// fewer.
    segments: Vec<Box<[T]>>,
    meta: Vec<Meta>,
    /// Segments with a free place; the last one is used next.
    open: Vec<u32>,
    /// The segment returned last, to be used again first; its `position` links to the one before
    /// it.
    vacant: u32,
    /// Segments given back and not used again.
    vacancies: u32,
    /// Wholly free segments that are kept.
    spare: u32,
    /// Places freed last and not used since, the last one on top: still counted as used in their
    /// segments. A queue that puts and settles in turn, singly or in batches, goes through these alone.
    /// They are few beside the places in use, or of one segment, so that they keep few segments that
    /// nothing else keeps.
    hand: Vec<u32>,
    /// The segment of all places at hand, if there are any; `NONE`: they may be of several.
    near: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Meta {
    first_free: u32,
    free: u32,
    /// Its place in `open`; of a segment given back, the number of the one given back before.
    position: u32,
}

impl<T: Record> Slab<T> {
    pub fn new() -> Self {
        Slab {
            segments: Vec::new(),
            meta: Vec::new(),
            open: Vec::new(),
            vacant: NONE,
            vacancies: 0,
            spare: 0,
            hand: Vec::new(),
            near: NONE,
            len: 0,
        }
    }

    /// Segments that are there.
    #[inline]
    pub fn segments(&self) -> usize {
        self.segments.len() - self.vacancies as usize
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the segments that are there.
    pub fn bytes(&self) -> usize {
        let records: usize = match self.segments.as_slice() {
            [] => 0,
            [first, ..] if first.is_empty() => self.segments() * SEGMENT,
            [first, ..] => (self.segments() - 1) * SEGMENT + first.len(),
        };
        records * size_of::<T>() + self.segments.capacity() * 32
    }

    /// No place is at or above it.
    pub fn end(&self) -> u32 {
        (self.segments.len() << BITS) as u32
    }

    #[inline(always)]
    pub fn insert(&mut self, value: T) -> u32 {
        let at = self.place();
        self[at] = value;
        at
    }

    /// Allocates a slot. It has the remains of `clear`, or a default, with a link, so the caller must write
    /// every field.
    #[inline(always)]
    pub fn place(&mut self) -> u32 {
        self.len += 1;
        match self.hand.pop() {
            None => self.fresh(),
            Some(at) => at,
        }
    }

    #[inline(never)]
    fn fresh(&mut self) -> u32 {
        let number = match self.open.last() {
            Some(&number) => number,
            None => self.grow(),
        };
        let meta = &mut self.meta[number as usize];
        let at = meta.first_free;
        let segment = &self.segments[number as usize];
        self.spare -= u32::from(meta.free == segment.len() as u32);
        meta.free -= 1;
        if meta.free == 0 {
            self.open.pop();
        }
        meta.first_free = segment[(at & MASK) as usize].link();
        at
    }

    /// Frees a place.
    #[inline]
    pub fn remove(&mut self, at: u32) {
        self.take(at, |_| ());
    }

    /// Like `remove`, and also returns what `look` reads from the record before it is cleared, so that the
    /// slot is looked up once.
    #[inline(always)]
    pub fn take<R>(&mut self, at: u32, look: impl FnOnce(&mut T) -> R) -> R {
        self.take_if(at, |record| Some(look(record))).expect("a slot in use")
    }

    /// Like `take`, for a handle that may be old: frees nothing if `look` returns `None`, or if the slot's
    /// segment is not there.
    #[inline(always)]
    pub fn take_if<R>(&mut self, at: u32, look: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let number = at >> BITS;
        let place = self.segments.get_mut(number as usize)?.get_mut((at & MASK) as usize)?;
        let seen = look(place)?;
        place.clear();
        self.len -= 1;
        if number == self.near && self.hand.len() < FEW {
            self.hand.push(at);
        } else {
            self.keep(at);
        }
        Some(seen)
    }

    /// Keeps a place at hand that is one of many, or of another segment than those before it, if that may be.
    #[inline(never)]
    fn keep(&mut self, at: u32) {
        let number = at >> BITS;
        if self.hand.is_empty() {
            self.near = number;
            self.hand.push(at);
        } else if self.hand.len() < HAND && self.hand.len() * 4 <= self.len {
            if number != self.near {
                self.near = NONE;
            }
            self.hand.push(at);
        } else {
            self.put_down(at);
        }
    }

    /// Frees a place, and the older half of those at hand, which are too many; of a few that are left, those
    /// of other segments too.
    #[inline(never)]
    fn put_down(&mut self, at: u32) {
        let mut hand = std::mem::take(&mut self.hand);
        hand.drain(..hand.len().div_ceil(2)).for_each(|at| self.set_free(at));
        if hand.len() < FEW {
            hand.retain(|&other| {
                let near = other >> BITS == at >> BITS;
                if !near {
                    self.set_free(other);
                }
                near
            });
            self.near = at >> BITS;
        }
        self.hand = hand;
        self.set_free(at);
    }

    fn set_free(&mut self, at: u32) {
        let number = at >> BITS;
        let segment = &mut self.segments[number as usize];
        let meta = &mut self.meta[number as usize];
        segment[(at & MASK) as usize].set_link(meta.first_free);
        meta.first_free = at;
        meta.free += 1;
        if meta.free == 1 {
            meta.position = self.open.len() as u32;
            self.open.push(number);
        } else if meta.free == segment.len() as u32 {
            // One empty segment is kept, so that a queue that breathes around a border does not allocate.
            self.spare += 1;
            if self.spare > 1 {
                self.give_back(number);
            }
        }
    }

    #[cold]
    fn give_back(&mut self, number: u32) {
        self.spare -= 1;
        let position = self.meta[number as usize].position as usize;
        self.open.swap_remove(position);
        if let Some(&moved) = self.open.get(position) {
            self.meta[moved as usize].position = position as u32;
        }
        self.segments[number as usize] = Box::default();
        self.meta[number as usize].position = self.vacant;
        self.vacant = number;
        self.vacancies += 1;
        if self.segments() == 1 && self.open.len() == 1 {
            self.open.shrink_to(16);
        }
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        if let [first] = self.segments.as_mut_slice() {
            let there = first.len();
            if (1..SEGMENT).contains(&there) {
                let length = (there * GROWS).min(SEGMENT);
                let mut records = Vec::with_capacity(length);
                records.extend(std::mem::take(first));
                link(&mut records, length, 0);
                let free = (records.len() - there) as u32;
                *first = records.into_boxed_slice();
                self.meta[0] = Meta { first_free: there as u32, free, position: 0 };
                self.open.push(0);
                return 0;
            }
        }
        let number = if self.vacant == NONE {
            self.segments.push(Box::default());
            self.meta.push(Meta { first_free: NONE, free: 0, position: 0 });
            self.segments.len() as u32 - 1
        } else {
            self.vacancies -= 1;
            let before = self.meta[self.vacant as usize].position;
            std::mem::replace(&mut self.vacant, before)
        };
        assert!(number < NONE >> BITS, "a slab holds fewer than 2^32 records");
        let base = number << BITS;
        let length = if self.segments.len() == 1 { FIRST } else { SEGMENT };
        let mut records = Vec::with_capacity(length);
        link(&mut records, length, base);
        self.segments[number as usize] = records.into_boxed_slice();
        self.meta[number as usize] =
            Meta { first_free: base, free: length as u32, position: self.open.len() as u32 };
        self.open.push(number);
        self.spare += 1;
        number
    }

    /// Every place, free ones too, in order; the caller tells them apart.
    pub fn places(&self) -> impl Iterator<Item = (u32, &T)> {
        self.segments.iter().enumerate().flat_map(|(n, segment)| {
            segment.iter().enumerate().map(move |(i, t)| (((n << BITS) + i) as u32, t))
        })
    }
}

/// Adds free records up to `length`, each of which leads to the next; `base`: the place of the first record
/// of all.
fn link<T: Record>(records: &mut Vec<T>, length: usize, base: u32) {
    for next in records.len() + 1..=length {
        let mut record = T::default();
        record.set_link(if next == length { NONE } else { base + next as u32 });
        records.push(record);
    }
}

impl<T: Record> Default for Slab<T> {
    fn default() -> Self {
        Slab::new()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.segments[(at >> BITS) as usize][(at & MASK) as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.segments[(at >> BITS) as usize][(at & MASK) as usize]
    }
}

impl<T> Slab<T> {
    /// The record, if its segment is there: for handles that may be old.
    #[inline]
    pub fn get(&self, at: u32) -> Option<&T> {
        self.segments.get((at >> BITS) as usize)?.get((at & MASK) as usize)
    }
}

#[cfg(test)]
mod tests {
    use crate::queue::parts::slab::*;

    #[derive(Default)]
    struct Number(u64, u32);
    impl Record for Number {
        fn link(&self) -> u32 {
            self.1
        }
        fn set_link(&mut self, next: u32) {
            self.1 = next;
        }
        fn clear(&mut self) {
            self.0 = u64::MAX;
        }
    }

    #[test]
    fn slots_are_reused_and_empty_segments_freed() {
        let mut slab = Slab::new();
        let mut rng = fastrand::Rng::with_seed(7);
        let mut held: Vec<(u32, u64)> = Vec::new();
        for round in 0..200_000u64 {
            let growing = (round / 20_000) % 2 == 0;
            if held.is_empty() || rng.u8(..) < if growing { 170 } else { 80 } {
                held.push((slab.insert(Number(round, 0)), round));
            } else {
                let (at, value) = held.swap_remove(rng.usize(..held.len()));
                assert_eq!(slab[at].0, value);
                slab.remove(at);
            }
            assert_eq!(slab.len(), held.len());
        }
        for (at, value) in &held {
            assert_eq!(slab[*at].0, *value);
        }
        for (at, value) in held.drain(..) {
            assert_eq!(slab[at].0, value);
            slab.remove(at);
        }
        // One that is kept, and that of the place freed first.
        let kept = slab.segments.iter().filter(|segment| !segment.is_empty()).count();
        assert!(kept <= 2, "{kept} segments");
        assert_eq!((slab.segments(), slab.open.len()), (kept, kept));
    }

    #[test]
    fn a_slab_of_few_records_uses_little_memory() {
        let mut slab = Slab::new();
        let mut held = Vec::new();
        for n in 0..SEGMENT as u64 + 1 {
            let most = (n as usize).next_multiple_of(FIRST).max(FIRST * GROWS);
            assert!(slab.bytes() <= (most * GROWS).max(64) * 16 + 128, "{} of {n}", slab.bytes());
            held.push(slab.insert(Number(n, 0)));
        }
        assert_eq!(held, (0..=SEGMENT as u32).collect::<Vec<_>>());
        for (n, at) in held.drain(..).enumerate() {
            assert_eq!(slab[at].0, n as u64);
            slab.remove(at);
        }
        assert_eq!((slab.len(), slab.places().count()), (0, slab.segments() * SEGMENT));
        let mut one = Slab::new();
        for n in 0..1000 {
            let at = one.insert(Number(n, 0));
            one.remove(at);
        }
        assert_eq!(one.places().count(), FIRST);
    }

    /// Counted in places put down: a nearly empty slab that is filled and emptied in turn puts none down.
    #[test]
    fn a_few_free_slots_are_kept_however_few_are_in_use() {
        let mut slab = Slab::new();
        for round in 0..100 {
            let held: Vec<u32> = (0..FEW as u64).map(|n| slab.insert(Number(n, 0))).collect();
            held.into_iter().for_each(|at| slab.remove(at));
            assert_eq!((slab.hand.len(), slab.len()), (FEW, 0), "in round {round}");
        }
    }

    #[test]
    fn free_slots_are_few_compared_with_used_ones() {
        let mut slab = Slab::new();
        let mut held: Vec<u32> = (0..20_000).map(|n| slab.insert(Number(n, 0))).collect();
        let mut rng = fastrand::Rng::with_seed(9);
        while !held.is_empty() {
            let at = held.swap_remove(rng.usize(..held.len()));
            slab.remove(at);
            let most = HAND.min(held.len() / 4 + 1).max(FEW);
            assert!(slab.hand.len() <= most, "{} of {}", slab.hand.len(), held.len());
            let segments: std::collections::HashSet<u32> =
                slab.hand.iter().map(|at| at >> BITS).collect();
            let few = HAND.min(held.len() / 4 + 1).max(1);
            assert!(segments.len() <= few, "of {} segments", segments.len());
        }
        assert!(slab.len() == 0 && slab.segments() <= 2, "{} segments", slab.segments());
    }
}
