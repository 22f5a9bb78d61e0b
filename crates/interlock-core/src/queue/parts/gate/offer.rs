//! Offers of the gate to a lease, and the times that change them.

use std::collections::BTreeSet;

use crate::queue::parts::gate::name::Name;
use crate::queue::parts::gate::{Gate, Offered, Opens};
use crate::queue::parts::groups::{Front, Groups, NO_GROUP};
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::slab::NONE;
use crate::queue::types::Time;

impl Gate {
    /// A name's keeper takes what is free; the next in line is offered.
    #[inline]
    pub(super) fn offer(&mut self, at: u32, now: Time) {
        if self.names[at as usize].is_awaited() {
            self.offer_to_awaiting(at, now);
        }
    }

    #[inline(never)]
    fn offer_to_awaiting(&mut self, at: u32, now: Time) {
        let keeper = self.names[at as usize].keeper;
        if keeper != NONE {
            self.advance(keeper, now);
        }
        self.refresh(at, now);
    }

    /// Offers the next in line of a name, if that has room, and nothing else of it.
    pub(super) fn refresh(&mut self, at: u32, now: Time) {
        let Gate { names, carried, offered, groups, times, .. } = self;
        let name = &mut names[at as usize];
        let has_room = name.has_room(now);
        for (keyed, line) in [false, true].into_iter().zip(&mut name.line) {
            let next = if has_room { line.next() } else { None };
            let message = next.map_or(NONE, |ticket| ticket.message);
            let before = std::mem::replace(&mut line.offered, message);
            if before == message {
                continue;
            }
            if before != NONE {
                let ticket = carried[before].ticket.expect("it waits in a line");
                withdraw(offered, groups, keyed, ticket);
            }
            next.into_iter().for_each(|ticket| show(offered, groups, keyed, ticket));
        }
        schedule(times, names, at, now);
    }

    pub(super) fn offer_all(&mut self, message: u32, now: Time) {
        let names = self.carried[message].names;
        names.iter().for_each(|&at| self.offer(at, now));
    }
}

/// A message may have room: it is among those that a lease chooses from.
pub(super) fn show(offered: &mut Offered, groups: &mut Groups, keyed: bool, ticket: Ticket) {
    if groups.of(ticket.message) == NO_GROUP {
        offered[usize::from(keyed)].insert(ticket);
    } else {
        groups.insert(Front::Offered, keyed, ticket);
    }
}

pub(super) fn withdraw(offered: &mut Offered, groups: &mut Groups, keyed: bool, ticket: Ticket) {
    if groups.of(ticket.message) == NO_GROUP {
        offered[usize::from(keyed)].remove(&ticket);
    } else {
        groups.remove(Front::Offered, keyed, ticket);
    }
}

/// Notes when time opens a name to those in its line.
pub(super) fn schedule(
    times: &mut BTreeSet<(Time, Opens)>,
    names: &mut [Name],
    at: u32,
    now: Time,
) {
    let name = &mut names[at as usize];
    let opens = name.opens_at(now);
    move_time(times, &mut name.opens, opens, Opens::Line(at));
}

pub(super) fn move_time(
    times: &mut BTreeSet<(Time, Opens)>,
    from: &mut Time,
    to: Time,
    opens: Opens,
) {
    if *from == to {
        return;
    }
    if *from > 0 {
        times.remove(&(*from, opens));
    }
    if to > 0 {
        times.insert((to, opens));
    }
    *from = to;
}
