//! Messages of one kind that wait for a name, and the turns of their groups.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::parts::groups::{Groups, Place, Ring, SavedPlace, Turn, NO_GROUP};
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::slab::NONE;

#[derive(Debug)]
pub(super) struct Line {
    /// Messages without a group.
    plain: BTreeSet<Ticket>,
    /// From the first message on that waited while others had groups.
    turns: Option<Box<Turns>>,
    /// The message that is offered, or `NONE`: the next, if the name has room.
    pub offered: u32,
}

/// The messages with groups, and the places of all groups.
#[derive(Debug, Default)]
struct Turns {
    tickets: BTreeSet<(u32, Ticket)>,
    places: BTreeMap<(u32, i16), Place>,
    /// Without `NO_GROUP`.
    ring: Ring,
    /// The era of its places: see `Groups::era`.
    era: u64,
}

impl Default for Line {
    fn default() -> Self {
        Line { plain: BTreeSet::new(), turns: None, offered: NONE }
    }
}

/// Returns whether there is a ticket of a rank.
fn has_rank(tickets: &BTreeSet<Ticket>, rank: i16) -> bool {
    let first = tickets.range(Ticket::before(rank)..).next();
    first.is_some_and(|ticket| ticket.rank == rank)
}

impl Line {
    /// A message begins to wait. If it is the first of its group and priority, the group gets a place.
    pub fn insert(&mut self, ticket: Ticket, groups: &mut Groups) {
        let (group, rank) = (groups.of(ticket.message), ticket.rank);
        if groups.is_idle() {
            self.plain.insert(ticket);
            return;
        }
        let new = group == NO_GROUP && !has_rank(&self.plain, rank);
        let turns = self.turns_of(groups.era());
        if group == NO_GROUP {
            if new {
                let place = Place { number: groups.last_number(), ..Place::default() };
                turns.places.insert((group, rank), place);
            }
            self.plain.insert(ticket);
            return;
        }
        let place = turns.places.entry((group, rank)).or_default();
        if place.count == 0 {
            place.number = groups.last_number();
            turns.ring.insert((rank, place.number, group));
        }
        place.count += 1;
        turns.tickets.insert((group, ticket));
    }

    /// The places, without those of an era that is over.
    fn turns_of(&mut self, era: u64) -> &mut Turns {
        let turns = self.turns.get_or_insert_default();
        if turns.era != era {
            turns.places.clear();
            turns.era = era;
        }
        turns
    }

    /// A message waits no longer.
    pub fn remove(&mut self, ticket: Ticket, groups: &Groups) {
        let (group, rank) = (groups.of(ticket.message), ticket.rank);
        if group == NO_GROUP {
            self.plain.remove(&ticket);
            if let Some(turns) = &mut self.turns {
                if !has_rank(&self.plain, rank) {
                    turns.places.remove(&(group, rank));
                }
            }
            return;
        }
        let Some(turns) = &mut self.turns else { return };
        if turns.tickets.remove(&(group, ticket)) {
            let place = turns.places.get_mut(&(group, rank)).expect("its group has a place");
            place.count -= 1;
            if place.count == 0 {
                turns.ring.remove(&(rank, place.number, group));
                turns.places.remove(&(group, rank));
            }
        }
    }

    /// The next message: the first by priority, then by the place of its group, then by sequence.
    pub fn next(&self) -> Option<Ticket> {
        let plain = self.plain.first().copied();
        let Some(turns) = self.turns.as_ref().filter(|turns| !turns.ring.is_empty()) else {
            return plain;
        };
        let &(rank, number, group) = turns.ring.first()?;
        let is_first = |ticket: &Ticket| {
            let place = turns.places.get(&(NO_GROUP, ticket.rank));
            (ticket.rank, place.map_or(0, |place| place.number)) < (rank, number)
        };
        plain.filter(is_first).or_else(|| turns.first_of(group, rank))
    }

    /// The first message of a group and a rank.
    pub fn first_of(&self, group: u32, rank: i16) -> Option<Ticket> {
        match group {
            NO_GROUP => {
                let first = self.plain.range(Ticket::before(rank)..).next().copied();
                first.filter(|ticket| ticket.rank == rank)
            }
            _ => self.turns.as_ref()?.first_of(group, rank),
        }
    }

    /// A message that waited here is granted.
    pub fn take_turn(&mut self, turn: Turn, rank: i16, era: u64) {
        let group = turn.group;
        let turns = self.turns_of(era);
        let place = turns.places.entry((group, rank)).or_default();
        let before = place.number;
        place.take(turn);
        if group != NO_GROUP && place.number != before {
            turns.ring.remove(&(rank, before, group));
            turns.ring.insert((rank, place.number, group));
        }
    }

    /// The places that are not as they begin.
    pub fn saved<'a>(
        &'a self,
        name: &'a [u8],
        keyed: bool,
        groups: &'a Groups,
    ) -> impl Iterator<Item = SavedPlace<'a>> {
        let turns = self.turns.iter().filter(move |turns| turns.era == groups.era());
        let places = turns.flat_map(|turns| turns.places.iter());
        places.filter(|(_, place)| place.is_used()).map(move |(&(group, rank), place)| {
            SavedPlace::new(name, keyed, rank, groups.text(group), place)
        })
    }

    /// A place is restored. False: no message of its group and priority waits here.
    pub fn restore_place(&mut self, group: u32, saved: &SavedPlace<'_>, era: u64) -> bool {
        let rank = saved.rank;
        if self.first_of(group, rank).is_none() {
            return false;
        }
        let turns = self.turns_of(era);
        let place = turns.places.entry((group, rank)).or_default();
        let before = std::mem::replace(&mut place.number, saved.number);
        place.used = saved.used;
        if group != NO_GROUP {
            turns.ring.remove(&(rank, before, group));
            turns.ring.insert((rank, saved.number, group));
        }
        true
    }

    /// As restored: messages without a group have no place until one is restored.
    pub fn forget_plain_places(&mut self) {
        if let Some(turns) = &mut self.turns {
            turns.places.retain(|(group, _), _| *group != NO_GROUP);
        }
    }
}

impl Turns {
    fn first_of(&self, group: u32, rank: i16) -> Option<Ticket> {
        let first = self.tickets.range((group, Ticket::before(rank))..).next();
        first.filter(|(of, ticket)| *of == group && ticket.rank == rank).map(|(_, ticket)| *ticket)
    }
}
