//! Concurrency limits and rates: the names that messages carry, the leased messages and the grants of each,
//! and the messages set aside until a name has room (clauses 26 and 27).
//!
//! A message that finds a name full waits for that name, in the name's own line, and is no longer looked
//! at. When the name has room, the first of its line is *offered*: it is among those that a lease
//! chooses from. Whatever takes that one away offers the next, so that a lease always sees the first
//! message of each name with room, and nothing is scanned. A name that time opens has an entry among
//! the times, as long as a message waits for it.

mod carried;
mod closed;
mod name;
mod restore;

use std::collections::BTreeSet;
use std::hash::BuildHasherDefault;

use hashbrown::{HashMap, HashTable};

use crate::key::KeyRef;
use crate::queue::parts::gate::carried::{Carried, Names, SlotHasher};
use crate::queue::parts::gate::name::{Lines, Name, NAMES};
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::slab::NONE;
use crate::queue::types::limits::{joined, names_of, Limits, BETWEEN};
use crate::queue::types::{Kind, Time};

/// Refusals, after the first, that make a message with several names a keeper.
const PASSED: u8 = 64;

/// Names that are kept although no message has them: making one anew costs more than all else that a limit does.
const IDLE: usize = 64;

/// A thing that a time opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Opens {
    /// A name, to those in its line.
    Line(u32),
    /// All names of a message that keeps something of each.
    Keeper(u32),
}

/// A name that refuses a message that waits: for explanations.
#[derive(Clone, Copy, Debug)]
pub struct Full<'a> {
    pub name: &'a [u8],
    /// `None`: any number.
    pub most: Option<u32>,
    pub leased: u32,
    /// Another message, for which a slot or a grant is kept.
    pub keeper: Option<u32>,
    /// µs until its rate or its closing lets the message pass.
    pub wait: Option<u64>,
    /// No slot is free.
    pub lacks_slot: bool,
}

#[derive(Debug, Default)]
pub struct Gate {
    limits: Limits,
    names: Vec<Name>,
    free: Vec<u32>,
    /// By their texts.
    places: HashTable<u32>,
    /// Names that no message has.
    idle: usize,
    /// By the message's slot.
    carried: HashMap<u32, Carried, BuildHasherDefault<SlotHasher>>,
    /// First in line at names with room.
    offered: Lines,
    /// Messages that wait for a name.
    waiting: usize,
    /// Times at which something opens, while somebody waits for it.
    times: BTreeSet<(Time, Opens)>,
    /// Names that no message has, by the time from which on they may be forgotten.
    resting: BTreeSet<(Time, u32)>,
    /// A name had a rate or was closed: names without messages are not all forgotten at once.
    keeps_times: bool,
}

impl Gate {
    pub fn new(limits: &Limits) -> Self {
        Gate { limits: limits.clone(), keeps_times: limits.has_rates(), ..Gate::default() }
    }

    /// Returns whether no unsettled message has a name.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.carried.is_empty()
    }

    /// Messages that wait for a name.
    pub fn waiting(&self) -> u64 {
        self.waiting as u64
    }

    /// Messages of a kind that may have room.
    #[inline]
    pub fn offers(&self, kind: Kind) -> usize {
        match kind {
            Kind::Unkeyed => self.offered[0].len(),
            Kind::Keyed => self.offered[1].len(),
            Kind::Any => self.offered[0].len() + self.offered[1].len(),
        }
    }

    /// The first message of a kind that may have room.
    pub fn first(&self, kind: Kind) -> Option<Ticket> {
        let first = |keyed: usize| self.offered[keyed].first().copied();
        match kind {
            Kind::Unkeyed => first(0),
            Kind::Keyed => first(1),
            Kind::Any => [first(0), first(1)].into_iter().flatten().min(),
        }
    }

    /// Returns the time at which a message that waits may next have room without a call. `Time::MAX`: at none.
    #[inline]
    pub fn next_time(&self) -> Time {
        self.times.first().map_or(Time::MAX, |(time, _)| *time)
    }

    /// Offers what time has opened, at most `limit` of it.
    #[cold]
    pub fn open(&mut self, now: Time, limit: u32) {
        for _ in 0..limit {
            let Some(&(_, opens)) = self.times.first().filter(|(time, _)| *time <= now) else {
                return;
            };
            match opens {
                Opens::Line(at) => self.offer(at, now),
                Opens::Keeper(message) => self.advance(message, now),
            }
        }
    }

    /// A message enters with these names, joined.
    pub fn enter(&mut self, message: u32, names: &[u8]) {
        let mut known = Names { len: 0, places: [NONE; NAMES] };
        let mut add = |name: &[u8]| {
            known.places[usize::from(known.len)] = self.carry(name);
            known.len += 1;
        };
        match names.contains(&BETWEEN) {
            false => add(names),
            true => names_of(names).unwrap_or_default().into_iter().take(NAMES).for_each(add),
        }
        self.carried.insert(message, Carried::new(known));
    }

    fn carry(&mut self, name: &[u8]) -> u32 {
        let at = self.place(name);
        let known = &mut self.names[at as usize];
        self.idle -= usize::from(known.unsettled == 0);
        known.unsettled += 1;
        at
    }

    /// The place of a name, which is made if it is not known.
    fn place(&mut self, name: &[u8]) -> u32 {
        let hash = KeyRef::new(name).hash;
        if let Some(at) = self.place_of(hash, name) {
            return at;
        }
        let new = Name::new(name, hash, &self.limits);
        let at = match self.free.pop() {
            Some(at) => {
                self.names[at as usize] = new;
                at
            }
            None => {
                self.names.push(new);
                self.names.len() as u32 - 1
            }
        };
        self.idle += 1;
        let names = &self.names;
        self.places.insert_unique(hash, at, |&at| names[at as usize].hash);
        at
    }

    fn place_of(&self, hash: u64, name: &[u8]) -> Option<u32> {
        self.places.find(hash, |&at| *self.names[at as usize].text == *name).copied()
    }

    /// The names of a message, joined; empty: it has none.
    pub fn names_of(&self, message: u32) -> Vec<u8> {
        let Some(carried) = self.carried.get(&message) else { return Vec::new() };
        let texts: Vec<&[u8]> =
            carried.names.iter().map(|&at| &*self.names[at as usize].text).collect();
        joined(&texts)
    }

    /// Returns whether each name of a message has room, or it keeps something of each and time lets it pass.
    pub fn has_room(&self, message: u32, now: Time) -> bool {
        let carried = &self.carried[&message];
        match carried.keeps {
            true => carried.shut_until(&self.names) <= now,
            false => carried.names.iter().all(|&at| self.names[at as usize].has_room(now)),
        }
    }

    /// Returns whether a message that was offered must wait as before: others came first, or a handler closed a
    /// name of it.
    pub fn waits_on(&self, message: u32, now: Time) -> bool {
        let carried = &self.carried[&message];
        match carried.waits_for {
            NONE => false,
            _ if carried.keeps => !self.has_room(message, now),
            at => !self.names[at as usize].has_room(now),
        }
    }

    /// A message that came up has no room: it waits for the first name that is full, rates last. Returns whether
    /// it did not wait for that one before.
    pub fn refuse(&mut self, message: u32, ticket: Ticket, keyed: bool, now: Time) -> bool {
        if self.waits_on(message, now) {
            match self.carried[&message].keeps {
                true => self.advance(message, now),
                false => self.stand(message, ticket, keyed),
            }
            return false;
        }
        let Gate { carried, names, .. } = self;
        let carried = carried.get_mut(&message).expect("it has names");
        let full = carried.names.rates_last(names).find(|&at| !names[at as usize].has_room(now));
        if carried.waits_for == NONE {
            self.waiting += 1;
        } else {
            names[carried.waits_for as usize].waiting -= 1;
            self.offered[usize::from(keyed)].remove(&ticket);
            carried.passed = (carried.passed + 1).min(PASSED);
        }
        carried.waits_for = full.expect("one of its names is full");
        let passed = carried.passed >= PASSED;
        if passed && self.may_keep(message) {
            self.keep(message, ticket, keyed, now);
        } else {
            let waits_for = self.carried[&message].waits_for;
            self.names[waits_for as usize].waiting += 1;
            self.stand(message, ticket, keyed);
        }
        self.offer_all(message, now);
        true
    }

    /// Enters the line of the name that it waits for.
    fn stand(&mut self, message: u32, ticket: Ticket, keyed: bool) {
        let carried = self.carried.get_mut(&message).expect("it has names");
        (carried.ticket, carried.keyed) = (Some(ticket), keyed);
        self.offered[usize::from(keyed)].remove(&ticket);
        self.names[carried.waits_for as usize].line[usize::from(keyed)].insert(ticket);
    }

    fn may_keep(&self, message: u32) -> bool {
        self.carried[&message].names.iter().all(|&at| self.names[at as usize].keeper == NONE)
    }

    /// A message becomes the keeper of all its names.
    fn keep(&mut self, message: u32, ticket: Ticket, keyed: bool, now: Time) {
        self.offered[usize::from(keyed)].remove(&ticket);
        let carried = self.carried.get_mut(&message).expect("it has names");
        (carried.keeps, carried.slots) = (true, 0);
        (carried.ticket, carried.keyed) = (Some(ticket), keyed);
        for &at in carried.names.iter() {
            self.names[at as usize].keeper = message;
        }
        self.advance(message, now);
    }

    /// A keeper takes a slot of one name after another, then a grant of each of its rates. When it has all, it
    /// is offered as soon as time lets it pass.
    fn advance(&mut self, message: u32, now: Time) {
        let Gate { carried, names, offered, times, .. } = self;
        let carried = carried.get_mut(&message).expect("a keeper has names");
        if !carried.keeps_all() {
            let from = carried.slots;
            let order = carried.names.rates_last(names).skip(usize::from(from));
            let free = |at: &u32| {
                let name = &names[*at as usize];
                name.rate.is_some() || name.has_slot()
            };
            let taken: Vec<u32> = order.take_while(free).collect();
            carried.slots += taken.len() as u8;
            for &at in &taken {
                names[at as usize].kept = true;
                schedule(times, names, at, now);
            }
        }
        if !carried.keeps_all() {
            return;
        }
        let ticket = carried.ticket.expect("a keeper waits");
        let until = carried.shut_until(names);
        let opens = if until > now && until < Time::MAX { until } else { 0 };
        move_time(times, &mut carried.opens, opens, Opens::Keeper(message));
        if until <= now {
            offered[usize::from(carried.keyed)].insert(ticket);
        } else {
            offered[usize::from(carried.keyed)].remove(&ticket);
        }
    }

    /// Offers the first in line of a name, if that has room.
    fn offer(&mut self, at: u32, now: Time) {
        if !self.names[at as usize].is_awaited() {
            return;
        }
        let keeper = self.names[at as usize].keeper;
        if keeper != NONE {
            self.advance(keeper, now);
        }
        let name = &mut self.names[at as usize];
        if name.has_room(now) {
            for (line, offered) in name.line.iter_mut().zip(&mut self.offered) {
                offered.extend(line.pop_first());
            }
        }
        schedule(&mut self.times, &mut self.names, at, now);
    }

    fn offer_all(&mut self, message: u32, now: Time) {
        let names = self.carried[&message].names;
        names.iter().for_each(|&at| self.offer(at, now));
    }

    /// A message that has room is leased, and charged to its rates.
    pub fn lease(&mut self, message: u32, now: Time) {
        let Carried { names, waits_for, .. } = self.carried[&message];
        if waits_for != NONE {
            self.carried[&message].drop_kept(&mut self.names);
            self.come_up(message);
        }
        for &at in names.iter() {
            let name = &mut self.names[at as usize];
            name.leased += 1;
            name.charge(now);
        }
        names.iter().for_each(|&at| self.offer(at, now));
    }

    /// Whatever it waited for is forgotten.
    fn come_up(&mut self, message: u32) {
        let Gate { carried, names, offered, times, .. } = self;
        let carried = carried.get_mut(&message).expect("it has names");
        if carried.waits_for != NONE {
            self.waiting -= 1;
            let name = &mut names[carried.waits_for as usize];
            name.waiting -= u32::from(!carried.keeps);
            move_time(times, &mut carried.opens, 0, Opens::Keeper(message));
            if let Some(ticket) = carried.ticket.take() {
                offered[usize::from(carried.keyed)].remove(&ticket);
                name.line[usize::from(carried.keyed)].remove(&ticket);
            }
        }
        (carried.waits_for, carried.passed) = (NONE, 0);
        (carried.keeps, carried.slots) = (false, 0);
    }

    /// A message that came up is set aside under a pause.
    pub fn pause(&mut self, message: u32, now: Time) {
        self.come_up(message);
        self.offer_all(message, now);
    }

    /// A lease of a message ended.
    pub fn end_lease(&mut self, message: u32, now: Time) {
        let names = self.carried[&message].names;
        for &at in names.iter() {
            self.names[at as usize].leased -= 1;
        }
        names.iter().for_each(|&at| self.offer(at, now));
    }

    /// A message is settled or cancelled, and is not leased.
    pub fn leave(&mut self, message: u32, now: Time) {
        let Some(carried) = self.carried.get(&message) else { return };
        let names = carried.names;
        if carried.waits_for != NONE {
            carried.drop_kept(&mut self.names);
            self.come_up(message);
        }
        self.carried.remove(&message);
        for &at in names.iter() {
            self.offer(at, now);
            let name = &mut self.names[at as usize];
            name.unsettled -= 1;
            self.idle += usize::from(name.unsettled == 0);
        }
        if self.carried.is_empty() && self.names.len() > 4 * IDLE && !self.keeps_times {
            *self = Gate::new(&std::mem::take(&mut self.limits));
        } else if self.idle > IDLE {
            names.iter().for_each(|&at| self.forget(at, now));
            self.forget_rested(now);
        }
    }

    /// Forgets a name that no message has, now or when its rate is as if nothing had been granted.
    fn forget(&mut self, at: u32, now: Time) {
        let name = &mut self.names[at as usize];
        // It may be forgotten already.
        if name.unsettled > 0 || name.text.is_empty() || name.rests > 0 {
            return;
        }
        if name.known_until() > now {
            name.rests = name.known_until();
            self.resting.insert((name.rests, at));
            return;
        }
        let hash = name.hash;
        name.text = Box::default();
        if let Ok(entry) = self.places.find_entry(hash, |&place| place == at) {
            entry.remove();
        }
        self.free.push(at);
        self.idle -= 1;
    }

    /// Forgets names that rested, a few for each message that leaves.
    fn forget_rested(&mut self, now: Time) {
        for _ in 0..=NAMES {
            let Some(&(time, at)) = self.resting.first().filter(|(time, _)| *time <= now) else {
                return;
            };
            self.resting.remove(&(time, at));
            self.names[at as usize].rests = 0;
            self.forget(at, now);
        }
    }

    /// A handler closes a name to all messages until a time.
    pub fn close(&mut self, name: &[u8], until: Time, now: Time) {
        self.keeps_times = true;
        let at = self.place(name);
        self.names[at as usize].close(until);
        self.offer(at, now);
        if self.idle > IDLE {
            self.forget(at, now);
        }
    }

    /// The messages that keep slots.
    pub fn keepers(&self) -> Vec<u32> {
        let mut keepers: Vec<u32> =
            self.names.iter().map(|name| name.keeper).filter(|&at| at != NONE).collect();
        keepers.sort_unstable();
        keepers.dedup();
        keepers
    }

    /// A keeper keeps nothing any more: a key of it was paused, or there are other limits. It is ready as if it
    /// had just become so. Returns its ticket, and whether it has keys.
    pub fn release(&mut self, message: u32, now: Time) -> Option<(Ticket, bool)> {
        let carried = &self.carried[&message];
        carried.drop_kept(&mut self.names);
        let (ticket, keyed) = (carried.ticket, carried.keyed);
        self.come_up(message);
        self.offer_all(message, now);
        ticket.map(|ticket| (ticket, keyed))
    }

    /// Other limits, from now on. Nothing keeps slots.
    pub fn declare(&mut self, limits: &Limits, now: Time) {
        self.limits = limits.clone();
        self.keeps_times |= limits.has_rates();
        for name in &mut self.names {
            name.declare(limits, now);
        }
        // One that is forgotten has nothing in line.
        (0..self.names.len() as u32).for_each(|at| self.offer(at, now));
    }

    /// The names of a message that refuse it.
    pub fn full(&self, message: u32, now: Time) -> impl Iterator<Item = Full<'_>> {
        let carried = self.carried.get(&message);
        let names = carried.into_iter().flat_map(|carried| carried.names.iter());
        names.map(|&at| &self.names[at as usize]).filter_map(move |name| {
            let mine = name.kept && name.keeper == message;
            let lacks_slot = !mine && !name.has_slot();
            let until = name.shut_until(mine);
            let full = Full {
                name: &name.text,
                most: name.most,
                leased: name.leased,
                keeper: Some(name.keeper).filter(|_| name.kept && !mine),
                wait: until.checked_sub(now).filter(|&wait| wait > 0 && until < Time::MAX),
                lacks_slot,
            };
            (lacks_slot || until > now).then_some(full)
        })
    }

    /// Returns whether a message has this name.
    pub fn has_name(&self, message: u32, name: &[u8]) -> bool {
        let Some(at) = self.place_of(KeyRef::new(name).hash, name) else { return false };
        self.carried.get(&message).is_some_and(|carried| carried.names.contains(&at))
    }

    /// Frees the memory kept for future messages; no message has a name.
    pub fn compact(&mut self) {
        if !self.keeps_times {
            *self = Gate::new(&self.limits);
        }
    }

    /// Bytes of its tables, about.
    pub fn bytes(&self) -> usize {
        self.carried.len() * OF_A_MESSAGE + self.places.len() * OF_A_NAME
    }
}

/// Notes when time opens a name to those in its line.
fn schedule(times: &mut BTreeSet<(Time, Opens)>, names: &mut [Name], at: u32, now: Time) {
    let name = &mut names[at as usize];
    let opens = name.opens_at(now);
    move_time(times, &mut name.opens, opens, Opens::Line(at));
}

fn move_time(times: &mut BTreeSet<(Time, Opens)>, from: &mut Time, to: Time, opens: Opens) {
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

/// Bytes of a message's names and of its place in a line; of a name.
const OF_A_MESSAGE: usize = 120;
const OF_A_NAME: usize = 256;
