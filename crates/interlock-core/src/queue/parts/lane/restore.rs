//! Lanes out of a dump: what stood in them is put back in sequence, granted as it was.

use crate::key::KeyRef;
use crate::queue::parts::lane::{Chain, Edge, Lanes, GRANTED, SHARED};
use crate::queue::parts::slab::NONE;

impl Lanes {
    /// A lane without messages.
    pub fn restore_lane(&mut self, key: KeyRef<'_>, paused: bool, unfinished: bool) -> u32 {
        let number = self.find_or_make(key);
        let lane = &mut self.lanes[number];
        (lane.paused, lane.unfinished) = (paused, unfinished);
        if paused {
            let length = lane.key.as_bytes().len();
            self.note_paused(number, length);
        }
        number
    }

    pub fn restore_unfinished(&mut self, number: u32) {
        self.unfinished.push(number);
    }

    /// Puts a message at the end of a lane. False: it cannot be granted, for one before it is not.
    pub fn restore_edge(
        &mut self,
        message: u32,
        number: u32,
        shared: bool,
        granted: bool,
        chain: &mut Chain,
    ) -> bool {
        let lane = &mut self.lanes[number];
        let mut word = number;
        if shared {
            word |= SHARED;
        }
        if granted {
            word |= GRANTED;
        }
        if granted && (lane.first_waiting != NONE || (lane.active > 0 && !(lane.shared && shared)))
        {
            return false;
        }
        let edge =
            self.edges.insert(Edge { word, message, prev: lane.tail, next: NONE, sibling: NONE });
        if lane.tail == NONE {
            lane.head = edge;
        } else {
            self.edges[lane.tail].next = edge;
        }
        lane.tail = edge;
        lane.depth += 1;
        // The warnings for these depths were logged before.
        while u64::from(lane.depth) >= u64::from(self.warn_depth.max(1)) << lane.warned {
            lane.warned += 1;
        }
        if granted {
            lane.active += 1;
            lane.shared = shared;
        } else if lane.first_waiting == NONE {
            lane.first_waiting = edge;
        }
        if chain.first == NONE {
            chain.first = edge;
        } else {
            self.edges[chain.last].sibling = edge;
        }
        chain.last = edge;
        self.list_by_depth(number);
        true
    }
}
