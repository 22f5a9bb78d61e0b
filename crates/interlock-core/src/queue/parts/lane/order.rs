//! The edges of a message in the order of its keys, and those of a lane in their order.

use super::{Edge, Lanes};
use crate::key::Key;
use crate::queue::parts::slab::NONE;

impl Lanes {
    /// A message's edges, in the order its keys were named.
    pub fn edges_of(&self, first: u32) -> impl Iterator<Item = (u32, &Edge)> {
        let mut at = first;
        std::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let edge = &self.edges[at];
            let here = std::mem::replace(&mut at, edge.sibling);
            Some((here, edge))
        })
    }

    /// A message's keys, in the order they were named, each with whether it is shared.
    #[inline]
    pub fn keys_of(&self, first: u32) -> KeysOf<'_> {
        KeysOf { lanes: self, at: first }
    }

    /// The edges in front of an edge in its lane, each with its place: the nearest first.
    pub fn standing_before(&self, edge: u32) -> impl Iterator<Item = (u32, &Edge)> {
        let mut at = self.edges[edge].prev;
        std::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let (here, edge) = (at, &self.edges[at]);
            at = edge.prev;
            Some((here, edge))
        })
    }

    /// The messages of a lane in sequence: the granted ones first.
    pub fn standing(&self, lane: u32) -> impl Iterator<Item = &Edge> {
        self.standing_from(self.lanes[lane].head)
    }

    /// An edge and those behind it in its lane; `NONE`: no edges.
    pub fn standing_from(&self, edge: u32) -> impl Iterator<Item = &Edge> {
        let mut at = edge;
        std::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let edge = &self.edges[at];
            at = edge.next;
            Some(edge)
        })
    }

    /// The first edge of a lane; `NONE`: it has none.
    pub fn first_of(&self, lane: u32) -> u32 {
        self.lanes[lane].head
    }

    /// The edge behind an edge in its lane; `NONE`: it is the last one.
    pub fn next_of(&self, edge: u32) -> u32 {
        self.edges[edge].next
    }

    pub fn edge(&self, edge: u32) -> &Edge {
        &self.edges[edge]
    }

    /// Number of messages that wait in a lane.
    pub fn waiting_in(&self, lane: u32) -> u64 {
        let lane = &self.lanes[lane];
        u64::from(lane.depth - lane.active)
    }

    /// The first message that waits in a lane.
    pub fn first_waiting(&self, lane: u32) -> Option<u32> {
        let first = self.lanes[lane].first_waiting;
        (first != NONE).then(|| self.edges[first].message)
    }

    /// The edges of a lane in sequence, each with its place.
    pub fn edges_in(&self, lane: u32) -> impl Iterator<Item = (u32, &Edge)> {
        let mut at = self.lanes[lane].head;
        std::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let (here, edge) = (at, &self.edges[at]);
            at = edge.next;
            Some((here, edge))
        })
    }

    /// Among the last `most` messages of a lane, while `steps` last: how many hold its key
    /// exclusively, and how many were looked at.
    pub fn exclusive_among_last(&self, lane: u32, most: u32, steps: &mut u32) -> (u64, u64) {
        let (mut exclusive, mut looked) = (0, 0);
        let mut at = self.lanes[lane].tail;
        while at != NONE && looked < u64::from(most) && *steps > 0 {
            *steps -= 1;
            looked += 1;
            exclusive += u64::from(!self.edges[at].shared());
            at = self.edges[at].prev;
        }
        (exclusive, looked)
    }

    /// Counts the edges in front of an edge, from whichever end is nearer, while `steps` last:
    /// (count, whether it was counted to its end).
    pub fn ahead(&self, edge: u32, steps: &mut u32) -> (u64, bool) {
        let lane = &self.lanes[self.edges[edge].lane()];
        let (mut back, mut on) = (edge, edge);
        let mut walked = 0;
        while *steps > 0 {
            *steps -= 1;
            back = self.edges[back].prev;
            if back == NONE {
                return (u64::from(walked), true);
            }
            on = self.edges[on].next;
            if on == NONE {
                return (u64::from(lane.depth - walked - 1), true);
            }
            walked += 1;
        }
        (u64::from(walked), false)
    }
}

/// The keys of a message.
#[derive(Clone, Debug)]
pub struct KeysOf<'a> {
    lanes: &'a Lanes,
    at: u32,
}

impl<'a> Iterator for KeysOf<'a> {
    type Item = (&'a Key, bool);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at == NONE {
            return None;
        }
        let edge = &self.lanes.edges[self.at];
        self.at = edge.sibling;
        Some((&self.lanes.lanes[edge.lane()].key, edge.shared()))
    }
}
