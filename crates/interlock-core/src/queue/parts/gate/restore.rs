//! A gate as it is dumped, and as it is restored.

use crate::key::KeyRef;
use crate::queue::parts::gate::name::Name;
use crate::queue::parts::gate::Gate;
use crate::queue::parts::groups::SavedPlace;
use crate::queue::parts::ready::Ticket;
use crate::queue::schedules::bytes::{number, string, Damaged, Reader};
use crate::queue::types::limits::BETWEEN;
use crate::queue::types::Time;

impl Gate {
    /// Returns the state of a message's wait, for dumps: the name's place among its own from 1 on, how often it was
    /// passed, whether it keeps slots, and of how many names.
    pub fn state_of(&self, message: u32) -> (u64, u8, bool, u8) {
        let carried = &self.carried[message];
        let at = carried.names.iter().position(|&at| at == carried.waits_for);
        (at.map_or(0, |at| at as u64 + 1), carried.passed, carried.keeps, carried.slots)
    }

    /// Appends the names whose rates are in use or that are closed, whether a message has them or not.
    pub fn dump_times(&self, now: Time, out: &mut Vec<u8>) {
        let timed = |name: &&Name| name.known_until() > now;
        number(out, self.names.iter().filter(timed).count() as u64);
        for name in self.names.iter().filter(timed) {
            string(out, name.text.as_bytes());
            number(out, name.used_until);
            number(out, name.closed_until);
        }
    }

    /// Reads them, after the declaration of limits.
    pub fn restore_times(&mut self, from: &mut Reader<'_>) -> Result<(), Damaged> {
        for _ in 0..from.number("count of rates")? {
            let name = from.string("name of a rate")?;
            if name.is_empty() || name.contains(&BETWEEN) {
                return from.damaged("name of a rate");
            }
            let at = self.place(name);
            let name = &mut self.names[at as usize];
            name.used_until = from.number("time of a rate")?;
            name.close(from.number("end of a closing")?);
            self.keeps_times = true;
        }
        Ok(())
    }

    /// Appends the places of groups.
    pub fn dump_places(&self, out: &mut Vec<u8>) {
        number(out, self.groups.turn());
        let halves = self.names.iter().flat_map(|name| {
            let lines = [false, true].into_iter().zip(&name.line);
            lines.map(move |(keyed, line)| (name.text.as_bytes(), keyed, line))
        });
        let lines = halves.flat_map(|(name, keyed, line)| line.saved(name, keyed, &self.groups));
        let places: Vec<SavedPlace<'_>> = match self.groups.is_idle() {
            true => Vec::new(),
            false => self.groups.saved().chain(lines).collect(),
        };
        number(out, places.len() as u64);
        places.iter().for_each(|place| place.write(out));
    }

    /// Restores the places of groups, when all messages are restored. False: one is of a group without messages.
    pub fn restore_places(&mut self, turn: u64, places: &[SavedPlace<'_>]) -> bool {
        let lines = self.names.iter_mut().flat_map(|name| &mut name.line);
        lines.for_each(|line| line.forget_plain_places());
        self.groups.restore_turn(turn);
        let era = self.groups.era();
        places.iter().all(|saved| {
            let Some(group) = self.groups.known(saved.group) else { return false };
            if saved.name.is_empty() {
                return self.groups.restore_place(group, saved);
            }
            self.place_of(KeyRef::new(saved.name).hash, saved.name).is_some_and(|at| {
                let line = &mut self.names[at as usize].line[usize::from(saved.keyed)];
                line.restore_place(group, saved, era)
            })
        })
    }

    /// A leased message is restored.
    pub fn restore_leased(&mut self, message: u32) {
        for &at in self.carried[message].names.iter() {
            self.names[at as usize].leased += 1;
        }
    }

    /// A message that waited is restored, after all that are leased. False: it cannot wait so.
    pub fn restore_waiting(
        &mut self,
        message: u32,
        (waits_for, passed, keeps, slots): (u64, u8, bool, u8),
        ticket: Ticket,
        keyed: bool,
    ) -> bool {
        let Gate { carried, names, .. } = self;
        let Some(carried) = carried.get_mut(message) else { return false };
        let at = waits_for.checked_sub(1).and_then(|at| carried.names.get(at as usize)).copied();
        let Some(at) = at.filter(|_| usize::from(slots) <= carried.names.len()) else {
            return false;
        };
        self.waiting += 1;
        (carried.waits_for, carried.passed) = (at, passed);
        (carried.keeps, carried.slots) = (keeps, slots);
        (carried.ticket, carried.keyed) = (Some(ticket), keyed);
        if !keeps {
            self.stand(message, ticket, keyed);
            return true;
        }
        self.keepers.insert(message);
        let order: Vec<u32> = carried.names.rates_last(names).collect();
        for (i, at) in order.into_iter().enumerate() {
            let name = &mut names[at as usize];
            (name.keeper, name.kept) = (message, i < usize::from(slots));
        }
        true
    }

    /// All are restored: the first of each line with room is offered.
    pub fn restored(&mut self, now: Time) {
        for message in self.keepers() {
            self.advance(message, now);
        }
        for at in 0..self.names.len() as u32 {
            self.offer(at, now);
        }
    }
}
