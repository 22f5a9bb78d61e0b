//! Lanes: the unsettled messages of each key, in order (clauses 1 to 5, 14, 21, 22).
//!
//! A message on k keys has k edges, one in each lane. A lane is a list of edges in sequence, in two
//! parts: those *granted*, which nothing on this key holds up (one exclusive, or a run of shared),
//! and behind them those that wait. An edge is granted once and leaves once, so a call costs O(its
//! keys), amortised, however long a lane is.

use std::collections::BTreeSet;

use hashbrown::hash_table::{Entry, HashTable};

use crate::key::{Key, KeyRef};
use crate::queue::parts::lane::depths::{Depths, Neighbours};
use crate::queue::parts::slab::{Record, Slab, NONE};

const SHARED: u32 = 1 << 31;
const GRANTED: u32 = 1 << 30;
const LANE: u32 = GRANTED - 1;

/// Most idle lanes that stay.
const RECENT: usize = 1024;
/// None stays while the lanes take more segments than this (16 of 256 lanes, 0.3 MB), or a few idle ones
/// would keep the memory of a peak.
const RECENT_SEGMENTS: usize = 16;
/// Longer keys, bytes, do not stay: nobody counts them.
const RECENT_KEY: usize = 64;
/// Bytes that a paused lane takes beside its key.
const OF_A_LANE: usize = 96;

/// One message on one key.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Number of the lane, with the marks for shared and granted above.
    word: u32,
    pub message: u32,
    prev: u32,
    next: u32,
    /// The message's edge on its next key.
    pub sibling: u32,
}

impl Default for Edge {
    fn default() -> Self {
        Edge { word: 0, message: NONE, prev: NONE, next: NONE, sibling: NONE }
    }
}

impl Edge {
    #[inline]
    pub fn lane(&self) -> u32 {
        self.word & LANE
    }
    #[inline]
    pub fn shared(&self) -> bool {
        self.word & SHARED != 0
    }
    #[inline]
    pub fn granted(&self) -> bool {
        self.word & GRANTED != 0
    }
    /// The edge in front of it in its lane; `NONE`: it is the first.
    pub fn before(&self) -> u32 {
        self.prev
    }
}

impl Record for Edge {
    fn clear(&mut self) {
        self.message = NONE;
    }
    fn link(&self) -> u32 {
        self.next
    }
    fn set_link(&mut self, next: u32) {
        self.next = next;
    }
}

#[derive(Debug)]
pub struct Lane {
    pub key: Key,
    hash: u32,
    head: u32,
    tail: u32,
    first_waiting: u32,
    /// Granted edges, and all edges.
    active: u32,
    pub depth: u32,
    shared: bool,
    pub paused: bool,
    unfinished: bool,
    /// Among those that were idle lately.
    kept: bool,
    /// The number of times that the depth at which a warning is due was passed and doubled.
    pub warned: u8,
    /// The class of depths under which it is listed (see `depths`): never below that of its depth.
    class: u8,
    /// The lanes before and behind it in the list of its class, unless that is 0.
    listed: Neighbours,
}

impl Default for Lane {
    fn default() -> Self {
        Lane {
            key: Key::default(),
            hash: 0,
            head: NONE,
            tail: NONE,
            first_waiting: NONE,
            active: 0,
            depth: 0,
            shared: false,
            paused: false,
            unfinished: false,
            kept: false,
            warned: 0,
            class: 0,
            listed: Neighbours::default(),
        }
    }
}

impl Record for Lane {
    fn clear(&mut self) {
        if matches!(self.key, Key::Heap(_)) {
            self.key = Key::default();
        }
    }
    fn link(&self) -> u32 {
        self.head
    }
    fn set_link(&mut self, next: u32) {
        self.head = next;
    }
}

#[derive(Debug, Default)]
pub struct Lanes {
    lanes: Slab<Lane>,
    edges: Slab<Edge>,
    table: HashTable<u32>,
    /// Lanes with successors that one call could not ready (clause 21).
    unfinished: Vec<u32>,
    /// Lanes that were idle lately, a ring in the order they fell idle in. They stay because most
    /// keys are soon used again, and making and dropping a lane costs as much as all other work for
    /// a key.
    recent: Vec<u32>,
    /// The place of the oldest in the full ring.
    oldest: usize,
    /// The number of paused lanes, and the lanes themselves.
    paused: usize,
    paused_lanes: BTreeSet<u32>,
    /// Bytes of the keys of paused lanes.
    paused_bytes: usize,
    /// Depth at which a lane is worth a warning, and the lanes that reached it or its double.
    warn_depth: u32,
    deep: Vec<u32>,
    /// Lanes by depth, for `deepest`.
    depths: Depths,
    /// Messages whose edge was granted by the call under way; kept for its room.
    granted: Vec<u32>,
}

/// The edges of a message being put.
#[derive(Debug)]
pub struct Chain {
    pub first: u32,
    last: u32,
    /// Keys on which it is not in front.
    pub blocked: u32,
}

impl Chain {
    #[inline(always)]
    fn add(&mut self, edge: u32, edges: &mut Slab<Edge>) {
        if self.first == NONE {
            self.first = edge;
        } else {
            edges[self.last].sibling = edge;
        }
        self.last = edge;
    }
}

impl Lanes {
    pub fn new(warn_depth: u32) -> Self {
        Lanes { warn_depth, ..Lanes::default() }
    }

    pub fn chain() -> Chain {
        Chain { first: NONE, last: NONE, blocked: 0 }
    }

    /// Puts `message` at the end of the key's lane; a key named twice counts once. Returns the lane.
    #[inline]
    pub fn link(&mut self, message: u32, key: KeyRef<'_>, shared: bool, chain: &mut Chain) -> u32 {
        let number = self.find_or_make(key);
        let mut word = number;
        if shared {
            word |= SHARED;
        }
        let lane = &mut self.lanes[number];
        if lane.tail == NONE {
            // Most messages are alone on their keys: nothing is to be compared.
            word |= GRANTED;
            let alone = Edge { word, message, prev: NONE, next: NONE, sibling: NONE };
            let edge = self.edges.insert(alone);
            (lane.head, lane.tail, lane.active, lane.depth) = (edge, edge, 1, 1);
            lane.shared = shared;
            if self.warn_depth <= 1 {
                lane.warned = 1;
                self.deep.push(number);
            }
            chain.add(edge, &mut self.edges);
            return number;
        }
        // Exclusive keys come first, so that a key in both sets stays exclusive.
        if self.edges[lane.tail].message == message {
            return number;
        }
        let free = lane.first_waiting == NONE && lane.shared && shared;
        if free {
            word |= GRANTED;
        }
        let last = lane.tail;
        let edge = self.edges.insert(Edge { word, message, prev: last, next: NONE, sibling: NONE });
        self.edges[last].next = edge;
        lane.tail = edge;
        lane.depth += 1;
        if u64::from(lane.depth) >= u64::from(self.warn_depth) << lane.warned {
            lane.warned += 1;
            self.deep.push(number);
        }
        let deeper = lane.depth > depths::LAST[lane.class as usize];
        if free {
            lane.active += 1;
        } else {
            if lane.first_waiting == NONE {
                lane.first_waiting = edge;
            }
            chain.blocked += 1;
        }
        chain.add(edge, &mut self.edges);
        if deeper {
            self.list_by_depth(number);
        }
        number
    }

    /// Removes a message from all its lanes, and grants the edges that are now in front, while `budget`
    /// lasts. Shows each key, in the order in which they were named, with whether it is shared.
    #[inline(always)]
    pub fn unlink(&mut self, first: u32, budget: &mut u32, mut show: impl FnMut(&Key, bool)) {
        let mut at = first;
        while at != NONE {
            let here = at;
            let edge = self.edges.take(here, |edge| *edge);
            let number = edge.lane();
            let lane = &mut self.lanes[number];
            show(&lane.key, edge.shared());
            at = edge.sibling;
            if lane.depth == 1 {
                (lane.head, lane.tail, lane.first_waiting) = (NONE, NONE, NONE);
                (lane.active, lane.depth) = (0, 0);
                if lane.falls_idle() {
                    self.keep(number);
                }
                continue;
            }
            if edge.prev == NONE {
                lane.head = edge.next;
            } else {
                self.edges[edge.prev].next = edge.next;
            }
            if edge.next == NONE {
                lane.tail = edge.prev;
            } else {
                self.edges[edge.next].prev = edge.prev;
            }
            if edge.granted() {
                lane.active -= 1;
            } else if lane.first_waiting == here {
                lane.first_waiting = edge.next;
            }
            lane.depth -= 1;
            if lane.warned > 0 && lane.depth < self.warn_depth / 2 {
                lane.warned = 0;
            }
            if lane.first_waiting != NONE {
                self.grant(number, budget);
            }
        }
    }

    /// Grants the messages now in front of a lane. The first one is free: a message's end must
    /// ready the next one on each of its keys, however many they are; only runs of readers must be
    /// limited.
    fn grant(&mut self, number: u32, budget: &mut u32) {
        let lane = &mut self.lanes[number];
        let mut free = true;
        while lane.first_waiting != NONE {
            let edge = &mut self.edges[lane.first_waiting];
            if lane.active > 0 && !(lane.shared && edge.shared()) {
                return;
            }
            if !free && *budget == 0 {
                if !lane.unfinished {
                    lane.unfinished = true;
                    self.unfinished.push(number);
                }
                return;
            }
            *budget -= u32::from(!free);
            free = false;
            edge.word |= GRANTED;
            lane.active += 1;
            lane.shared = edge.shared();
            lane.first_waiting = edge.next;
            self.granted.push(edge.message);
        }
    }

    /// Continues the work that earlier calls left (clause 21).
    pub fn go_on(&mut self, budget: &mut u32) {
        while *budget > 0 {
            let Some(number) = self.unfinished.pop() else {
                return;
            };
            self.lanes[number].unfinished = false;
            if self.lanes[number].depth == 0 {
                self.drop_if_idle(number);
            } else {
                self.grant(number, budget);
            }
        }
    }

    /// Messages whose edge was granted by the call under way.
    #[inline]
    pub fn granted(&self) -> &[u32] {
        &self.granted
    }

    /// They were seen to; the list is kept for its room.
    #[inline]
    pub fn clear_granted(&mut self) {
        self.granted.clear();
    }

    #[inline]
    pub fn has_deep(&self) -> bool {
        !self.deep.is_empty()
    }

    /// Returns and clears the lanes that passed a depth at which a warning is due.
    pub fn take_deep(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.deep)
    }

    /// Paused lanes.
    #[inline]
    pub fn paused(&self) -> usize {
        self.paused
    }

    #[inline]
    pub fn has_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    #[inline]
    fn find_or_make(&mut self, key: KeyRef<'_>) -> u32 {
        let lanes = &self.lanes;
        let is = |&n: &u32| lanes[n].is(key);
        // Looked for once, found or not.
        match self.table.entry(spread(key.hash as u32), is, |&n| spread(lanes[n].hash)) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(place) => {
                let number = self.lanes.place();
                self.lanes[number].begin(key);
                assert!(number <= LANE, "a queue holds fewer than 2^30 live keys");
                place.insert(number);
                number
            }
        }
    }

    pub fn find(&self, key: KeyRef<'_>) -> Option<u32> {
        self.table.find(spread(key.hash as u32), |&n| self.lanes[n].is(key)).copied()
    }

    /// A lane without messages goes, unless it is paused (clause 22), about to be looked at, or one of
    /// the last that were idle.
    fn drop_if_idle(&mut self, number: u32) {
        if self.lanes[number].falls_idle() {
            self.keep(number);
        }
    }

    /// Keeps a lane that fell idle, for the one that did so first of those kept; or drops it.
    #[inline]
    fn keep(&mut self, number: u32) {
        let long = self.lanes[number].key.as_bytes().len() > RECENT_KEY;
        if self.lanes.segments() > RECENT_SEGMENTS || long {
            return self.drop_lane(number);
        }
        if self.recent.len() < RECENT {
            self.recent.push(number);
        } else {
            let oldest = std::mem::replace(&mut self.recent[self.oldest], number);
            self.oldest = (self.oldest + 1) % RECENT;
            let lane = &mut self.lanes[oldest];
            lane.kept = false;
            if lane.depth == 0 && !lane.paused && !lane.unfinished {
                self.drop_lane(oldest);
            }
        }
    }

    fn drop_lane(&mut self, number: u32) {
        let lane = &self.lanes[number];
        let hash = spread(lane.hash);
        if lane.class > 0 {
            self.list_under(number, 0);
        }
        if let Ok(entry) = self.table.find_entry(hash, |&n| n == number) {
            entry.remove();
        }
        self.lanes.remove(number);
        if self.table.len() * 8 < self.table.capacity() && self.table.capacity() > 1024 {
            let lanes = &self.lanes;
            self.table.shrink_to(self.table.len() * 2, |&n| spread(lanes[n].hash));
        }
    }

    /// Bytes of records and tables.
    pub fn bytes(&self) -> usize {
        let lists =
            self.table.capacity() * 8 + (self.recent.capacity() + self.granted.capacity()) * 4;
        self.lanes.bytes() + self.edges.bytes() + self.depths.bytes() + lists
    }

    /// Bytes of what stays though no message is in it.
    pub fn empty_bytes(&self) -> usize {
        self.paused * OF_A_LANE + self.paused_bytes
    }

    /// Returns the number of edges: keys of messages that have their place.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }

    /// Lanes that the next call continues with, the first one last.
    pub fn unfinished(&self) -> &[u32] {
        &self.unfinished
    }

    /// Pauses or resumes a key; returns the lane if that changed anything.
    pub fn set_paused(&mut self, key: KeyRef<'_>, paused: bool) -> Option<u32> {
        let number = match self.find(key) {
            Some(number) => number,
            None if paused => self.find_or_make(key),
            None => return None,
        };
        let lane = &mut self.lanes[number];
        if lane.paused == paused {
            return None;
        }
        lane.paused = paused;
        let (idle, length) = (lane.depth == 0, lane.key.as_bytes().len());
        if paused {
            self.note_paused(number, length);
        } else {
            self.paused -= 1;
            self.paused_bytes -= length;
            self.paused_lanes.remove(&number);
            if idle {
                self.drop_if_idle(number);
            }
        }
        Some(number)
    }

    fn note_paused(&mut self, number: u32, length: usize) {
        self.paused += 1;
        self.paused_bytes += length;
        self.paused_lanes.insert(number);
    }

    /// The paused lanes from this number on, rising.
    pub fn all_paused(&self, from: u32) -> impl Iterator<Item = (u32, &Lane)> {
        self.paused_lanes.range(from..).map(|&number| (number, &self.lanes[number]))
    }

    /// Returns whether a message at the end of a lane would wait there.
    pub fn would_wait(&self, lane: u32, shared: bool) -> bool {
        let lane = &self.lanes[lane];
        lane.depth > 0 && !(shared && lane.shared && lane.first_waiting == NONE)
    }

    /// The last message of a lane.
    pub fn last_of(&self, lane: u32) -> Option<&Edge> {
        let tail = self.lanes[lane].tail;
        (tail != NONE).then(|| &self.edges[tail])
    }

    /// The first of a message's lanes that is paused.
    pub fn paused_lane(&self, first: u32) -> Option<u32> {
        self.edges_of(first).map(|(_, edge)| edge.lane()).find(|&lane| self.lanes[lane].paused)
    }

    /// No lane's number is at or above it.
    pub fn end(&self) -> u32 {
        self.lanes.end()
    }

    /// The lane, if one may be there; free ones have no messages.
    pub fn get(&self, number: u32) -> Option<&Lane> {
        self.lanes.get(number)
    }

    /// Lanes on which messages stand.
    pub fn busy(&self) -> u64 {
        // All but those that stay without a message: idle lately, paused, or about to be looked at.
        let recent = self.recent.iter().map(|&number| &self.lanes[number]);
        let paused = self.all_paused(0).map(|(_, lane)| lane).filter(|lane| !lane.kept);
        let unfinished = self.unfinished.iter().map(|&number| &self.lanes[number]);
        let unfinished = unfinished.filter(|lane| !lane.kept && !lane.paused);
        let idle = recent.chain(paused).chain(unfinished).filter(|lane| lane.depth == 0).count();
        (self.table.len() - idle) as u64
    }

    pub fn lane(&self, number: u32) -> &Lane {
        &self.lanes[number]
    }

    /// Every live lane.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Lane)> {
        self.table.iter().map(|&number| (number, &self.lanes[number]))
    }
}

impl Lane {
    /// Called when the lane becomes empty. Returns whether it must be added to the lanes that were idle last:
    /// not if it is kept for another reason.
    #[inline]
    fn falls_idle(&mut self) -> bool {
        self.warned = 0;
        let stays = self.kept | self.paused | self.unfinished;
        self.kept |= !stays;
        !stays
    }

    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// A record that was another lane's, or nobody's. It is written where it lies: made elsewhere and
    /// moved, it would be read again before its parts are out of the processor's hands.
    #[inline]
    fn begin(&mut self, key: KeyRef<'_>) {
        self.key.set(key.bytes);
        let Lane { key: _, hash, head, tail, first_waiting, active, depth, .. } = self;
        (*hash, *head, *tail, *first_waiting) = (key.hash as u32, NONE, NONE, NONE);
        (*active, *depth) = (0, 0);
        let Lane { shared, paused, unfinished, kept, warned, .. } = self;
        (*shared, *paused, *unfinished, *kept, *warned) = (false, false, false, false, 0);
    }

    #[inline]
    fn is(&self, key: KeyRef<'_>) -> bool {
        self.hash == key.hash as u32 && self.key == *key.bytes
    }
}

/// The table takes its tags from a hash's top bits, of which a lane keeps the lower half only.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub use order::KeysOf;

mod depths;
mod order;
mod restore;

#[cfg(test)]
mod tests;
