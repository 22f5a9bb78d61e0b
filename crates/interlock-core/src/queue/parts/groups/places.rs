//! The places of one group, and its messages that can be leased.

use crate::queue::parts::groups::sorted::Sorted;
use crate::queue::parts::groups::{Front, Turn};
use crate::queue::parts::ready::Ticket;

/// The groups that take turns: rank, number of the place, group.
pub type Ring = Sorted<(i16, u64, u32)>;

/// A place of a group in a ring: the lowest number is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub number: u64,
    /// Messages granted of the present turn.
    pub used: u32,
    /// Messages for which the place exists.
    pub count: u32,
}

impl Place {
    /// Returns whether it is not as places begin that nobody gave a number.
    pub fn is_used(&self) -> bool {
        self.number > 0 || self.used > 0
    }

    /// A message is granted: the turn is over, or continues.
    pub fn take(&mut self, turn: Turn) {
        self.used += 1;
        if self.used >= turn.weight {
            (self.number, self.used) = (turn.number, 0);
        }
    }
}

/// Messages of a group with keys, or those without.
#[derive(Debug, Default)]
pub(super) struct Half {
    /// By rank, in no order: few groups have messages of several priorities.
    places: Vec<(i16, Place)>,
    /// Messages that can be leased, by `Front`.
    tickets: [Sorted<Ticket>; 2],
    /// The entries of the first of each in the rings.
    entries: [Option<(i16, u64)>; 2],
}

impl Half {
    pub fn place(&mut self, rank: i16) -> Option<&mut Place> {
        self.places.iter_mut().find(|(of, _)| *of == rank).map(|(_, place)| place)
    }

    pub fn place_or_new(&mut self, rank: i16) -> &mut Place {
        let at = self.places.iter().position(|(of, _)| *of == rank).unwrap_or_else(|| {
            self.places.push((rank, Place::default()));
            self.places.len() - 1
        });
        &mut self.places[at].1
    }

    /// The number of a place. 0: it has none.
    pub fn number(&self, rank: i16) -> u64 {
        let place = self.places.iter().find(|(of, _)| *of == rank);
        place.map_or(0, |(_, place)| place.number)
    }

    pub fn places(&self) -> &[(i16, Place)] {
        &self.places
    }

    /// One message of a rank is no longer unsettled.
    pub fn leave(&mut self, rank: i16) {
        let at = self.places.iter().position(|(of, _)| *of == rank).expect("its group has a place");
        self.places[at].1.count -= 1;
        if self.places[at].1.count == 0 {
            self.places.swap_remove(at);
        }
    }

    pub fn clear(&mut self) {
        self.places.clear();
    }

    /// Returns whether it has the ticket.
    pub fn has(&self, front: Front, ticket: &Ticket) -> bool {
        self.tickets[front as usize].contains(ticket)
    }

    /// Returns whether the ticket is new.
    pub fn insert(&mut self, front: Front, ticket: Ticket) -> bool {
        self.tickets[front as usize].insert(ticket)
    }

    /// Returns whether there was such a ticket.
    pub fn remove(&mut self, front: Front, ticket: Ticket) -> bool {
        self.tickets[front as usize].remove(&ticket)
    }

    pub fn count(&self, front: Front) -> usize {
        self.tickets[front as usize].len()
    }

    /// The first of its messages.
    pub fn first(&self, fronts: &[Front]) -> Option<Ticket> {
        let firsts = fronts.iter().filter_map(|&front| self.tickets[front as usize].first());
        firsts.min().copied()
    }

    /// Brings its entry in a ring up to date.
    pub fn update(&mut self, front: Front, ring: &mut Ring, group: u32) {
        let rank = self.tickets[front as usize].first().map(|ticket| ticket.rank);
        let entry = rank.map(|rank| (rank, self.number(rank)));
        let before = std::mem::replace(&mut self.entries[front as usize], entry);
        if before != entry {
            if let Some((rank, number)) = before {
                ring.remove(&(rank, number, group));
            }
            if let Some((rank, number)) = entry {
                ring.insert((rank, number, group));
            }
        }
    }
}
