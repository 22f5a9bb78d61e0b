//! The writes of one connection that wait for replies, which are sent in the order of the writes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::tables::writes::{Reply, RowWrites};

pub struct Line {
    /// Their writer: what another one does follows when they are answered.
    pub writes: Arc<dyn RowWrites>,
    /// The number of the first.
    first: u64,
    places: VecDeque<Place>,
    /// Bytes of those that wait and of replies that wait for others.
    bytes: usize,
}

struct Place {
    /// The client wants no reply.
    silent: bool,
    bytes: usize,
    reply: Option<Reply>,
}

impl Line {
    /// Empty; the first write has this number.
    pub fn new(writes: Arc<dyn RowWrites>, first: u64) -> Self {
        Line { writes, first, places: VecDeque::new(), bytes: 0 }
    }

    /// Adds a write of this size; returns its number.
    pub fn wait(&mut self, bytes: usize, silent: bool) -> u64 {
        let number = self.next();
        self.push(Place { silent, bytes, reply: None });
        number
    }

    /// Adds a reply that is known already.
    pub fn say(&mut self, reply: Vec<u8>) {
        self.push(Place { silent: false, bytes: reply.len(), reply: Some(reply.into()) });
    }

    fn push(&mut self, place: Place) {
        self.bytes += place.bytes + OF_A_PLACE;
        self.places.push_back(place);
    }

    /// The reply to a write.
    pub fn answered(&mut self, number: u64, reply: Reply) {
        let place = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(place) = place.and_then(|at| self.places.get_mut(at)) else { return };
        let kept = if place.silent { Reply::new() } else { reply };
        self.bytes = self.bytes - place.bytes + kept.len();
        place.bytes = kept.len();
        place.reply = Some(kept);
    }

    /// Appends the replies whose turn has come to `out`, and removes them.
    pub fn go_out(&mut self, out: &mut Vec<u8>) {
        while let Some(Place { reply: Some(reply), bytes, .. }) = self.places.front() {
            out.extend_from_slice(reply);
            self.bytes -= bytes + OF_A_PLACE;
            self.first += 1;
            self.places.pop_front();
        }
    }

    /// All that are not answered get this reply.
    pub fn give_up(&mut self, reply: &[u8]) {
        for number in self.first..self.next() {
            if self.places[(number - self.first) as usize].reply.is_none() {
                self.answered(number, reply.into());
            }
        }
    }

    /// The number that the next write gets.
    pub fn next(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// No more is taken, until half of it is answered.
    pub fn is_full(&self) -> bool {
        self.places.len() >= MOST || self.bytes >= MOST_BYTES
    }

    pub fn has_room(&self) -> bool {
        self.places.len() <= MOST / 2 && self.bytes <= MOST_BYTES / 2
    }
}

/// Writes of one connection that wait at once, and their bytes with those of replies. One that is longer waits
/// alone.
const MOST: usize = 1024;
const MOST_BYTES: usize = 1 << 20;
/// Bytes of one beside what it says.
const OF_A_PLACE: usize = 128;
