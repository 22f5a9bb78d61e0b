//! Concurrency limits: the names that messages carry, the leased messages of each, and the messages
//! set aside until a name has room (clause 26).
//!
//! A message that finds a name full waits for that name, in the name's own line, and is no longer looked
//! at. When the name has room, the first of its line is *offered*: it is among those that a lease
//! chooses from. Whatever takes that one away offers the next, so that a lease always sees the first
//! message of each name with room, and nothing is scanned.

use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::{HashMap, HashTable};

use crate::key::KeyRef;
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::slab::NONE;
use crate::queue::types::limits::{joined, names_of, Limits, BETWEEN};
use crate::queue::types::Kind;

/// Refusals, after the first, that make a message with several names a keeper.
const PASSED: u8 = 64;

/// Names of a message at most.
const NAMES: usize = 8;

/// Names that are kept although no message has them: making one anew costs more than all else that a limit does.
const IDLE: usize = 64;

/// Messages in line: without keys, and with keys.
type Lines = [BTreeSet<Ticket>; 2];

#[derive(Debug)]
struct Name {
    text: Box<[u8]>,
    hash: u64,
    /// `None`: not limited.
    most: Option<u32>,
    /// Unsettled messages with the name.
    unsettled: u32,
    leased: u32,
    /// The message that keeps slots until it has one of each of its names.
    keeper: u32,
    /// A slot is kept for the keeper.
    kept: bool,
    line: Lines,
}

impl Name {
    fn has_room(&self) -> bool {
        self.most.is_none_or(|most| self.leased + u32::from(self.kept) < most)
    }
}

/// The names of a message, in the order of their bytes.
#[derive(Clone, Copy, Debug)]
struct Names {
    len: u8,
    places: [u32; NAMES],
}

impl std::ops::Deref for Names {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.places[..usize::from(self.len)]
    }
}

/// Users do not choose the slots of messages, so that any hash that spreads them will do.
#[derive(Default)]
struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, slot: u32) {
        self.0 = (self.0 ^ u64::from(slot)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The table takes its highest bits and its lowest ones.
        self.0 ^ self.0 >> 32
    }
}

/// The part of a message that limits need.
#[derive(Debug)]
struct Carried {
    names: Names,
    /// Its ticket while it is in a line or offered.
    ticket: Option<Ticket>,
    keyed: bool,
    /// The name that it waits for, or `NONE`.
    waits_for: u32,
    passed: u8,
    keeps: bool,
    /// Number of its first names of which it keeps a slot.
    slots: u8,
}

impl Carried {
    /// Whatever it waited for is forgotten. Returns whether it waited.
    fn come_up(&mut self, names: &mut [Name], offered: &mut Lines) -> bool {
        let waited = self.waits_for != NONE;
        if waited {
            if let Some(ticket) = self.ticket.take() {
                offered[usize::from(self.keyed)].remove(&ticket);
                let line = &mut names[self.waits_for as usize].line;
                line[usize::from(self.keyed)].remove(&ticket);
            }
        }
        (self.waits_for, self.passed, self.keeps, self.slots) = (NONE, 0, false, 0);
        waited
    }

    /// Frees what it keeps.
    fn drop_kept(&self, names: &mut [Name]) {
        if self.keeps {
            for &at in self.names.iter() {
                let name = &mut names[at as usize];
                (name.keeper, name.kept) = (NONE, false);
            }
        }
    }
}

/// A full name of a message that waits: for explanations.
#[derive(Clone, Copy, Debug)]
pub struct Full<'a> {
    pub name: &'a [u8],
    pub most: u32,
    pub leased: u32,
    /// The message for which a slot is kept.
    pub keeper: Option<u32>,
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
}

impl Gate {
    pub fn new(limits: &Limits) -> Self {
        Gate { limits: limits.clone(), ..Gate::default() }
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
        let names = known;
        self.carried.insert(
            message,
            Carried {
                names,
                ticket: None,
                keyed: false,
                waits_for: NONE,
                passed: 0,
                keeps: false,
                slots: 0,
            },
        );
    }

    fn carry(&mut self, name: &[u8]) -> u32 {
        let hash = KeyRef::new(name).hash;
        if let Some(at) = self.place_of(hash, name) {
            let known = &mut self.names[at as usize];
            self.idle -= usize::from(known.unsettled == 0);
            known.unsettled += 1;
            return at;
        }
        let new = Name {
            text: name.into(),
            hash,
            most: self.limits.most(name),
            unsettled: 1,
            leased: 0,
            keeper: NONE,
            kept: false,
            line: Lines::default(),
        };
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

    /// Returns whether each name of a message has room, or it keeps a slot of each.
    pub fn has_room(&self, message: u32) -> bool {
        let carried = &self.carried[&message];
        carried.keeps || carried.names.iter().all(|&at| self.names[at as usize].has_room())
    }

    /// Returns whether the name that a message waits for is full: it was offered, and then others came first.
    pub fn waits_on(&self, message: u32) -> bool {
        let carried = &self.carried[&message];
        let waits_for = carried.waits_for;
        waits_for != NONE && !carried.keeps && !self.names[waits_for as usize].has_room()
    }

    /// A message that came up has no room: it waits for the first name that is full. Returns whether it did not
    /// wait for that one before.
    pub fn refuse(&mut self, message: u32, ticket: Ticket, keyed: bool) -> bool {
        let carried = &self.carried[&message];
        let waits_for = carried.waits_for;
        if self.waits_on(message) {
            self.stand(message, ticket, keyed);
            return false;
        }
        let full = carried.names.iter().copied().find(|&at| !self.names[at as usize].has_room());
        let carried = self.carried.get_mut(&message).expect("it has names");
        if waits_for == NONE {
            self.waiting += 1;
        } else {
            self.offered[usize::from(keyed)].remove(&ticket);
            carried.passed = (carried.passed + 1).min(PASSED);
        }
        carried.waits_for = full.expect("one of its names is full");
        let passed = carried.passed >= PASSED;
        if passed && self.may_keep(message) {
            self.keep(message, ticket, keyed);
        } else {
            self.stand(message, ticket, keyed);
        }
        self.offer_all(message);
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
    fn keep(&mut self, message: u32, ticket: Ticket, keyed: bool) {
        self.offered[usize::from(keyed)].remove(&ticket);
        let carried = self.carried.get_mut(&message).expect("it has names");
        (carried.keeps, carried.slots) = (true, 0);
        (carried.ticket, carried.keyed) = (Some(ticket), keyed);
        for &at in carried.names.iter() {
            self.names[at as usize].keeper = message;
        }
        self.advance(message);
    }

    /// A keeper takes a slot of one name after another, and is offered when it has all.
    fn advance(&mut self, message: u32) {
        let carried = self.carried.get_mut(&message).expect("a keeper has names");
        while let Some(&at) = carried.names.get(usize::from(carried.slots)) {
            let name = &mut self.names[at as usize];
            if !name.has_room() {
                return;
            }
            name.kept = true;
            carried.slots += 1;
        }
        let ticket = carried.ticket.expect("a keeper waits");
        self.offered[usize::from(carried.keyed)].insert(ticket);
    }

    /// Offers the first in line of a name, if that has room.
    fn offer(&mut self, at: u32) {
        let name = &mut self.names[at as usize];
        if !name.has_room() {
            return;
        }
        if name.keeper != NONE && !name.kept {
            let keeper = name.keeper;
            self.advance(keeper);
        }
        let name = &mut self.names[at as usize];
        if name.has_room() {
            for (line, offered) in name.line.iter_mut().zip(&mut self.offered) {
                offered.extend(line.pop_first());
            }
        }
    }

    fn offer_all(&mut self, message: u32) {
        let names = self.carried[&message].names;
        names.iter().for_each(|&at| self.offer(at));
    }

    /// A message that has room is leased.
    pub fn lease(&mut self, message: u32) {
        let Gate { carried, names, offered, waiting, .. } = self;
        let carried = carried.get_mut(&message).expect("it has names");
        carried.drop_kept(names);
        for &at in carried.names.iter() {
            names[at as usize].leased += 1;
        }
        *waiting -= usize::from(carried.come_up(names, offered));
        let carried_names = carried.names;
        carried_names.iter().for_each(|&at| self.offer(at));
    }

    /// Whatever it waited for is forgotten.
    fn come_up(&mut self, message: u32) {
        let Gate { carried, names, offered, waiting, .. } = self;
        let carried = carried.get_mut(&message).expect("it has names");
        *waiting -= usize::from(carried.come_up(names, offered));
    }

    /// A message that came up is set aside under a pause.
    pub fn pause(&mut self, message: u32) {
        self.come_up(message);
        self.offer_all(message);
    }

    /// A lease of a message ended.
    pub fn end_lease(&mut self, message: u32) {
        let names = self.carried[&message].names;
        for &at in names.iter() {
            self.names[at as usize].leased -= 1;
        }
        names.iter().for_each(|&at| self.offer(at));
    }

    /// A message is settled or cancelled, and is not leased.
    pub fn leave(&mut self, message: u32) {
        let Some(mut left) = self.carried.remove(&message) else { return };
        left.drop_kept(&mut self.names);
        self.waiting -= usize::from(left.come_up(&mut self.names, &mut self.offered));
        for &at in left.names.iter() {
            self.offer(at);
            let name = &mut self.names[at as usize];
            name.unsettled -= 1;
            self.idle += usize::from(name.unsettled == 0);
        }
        if self.carried.is_empty() && self.names.len() > 4 * IDLE {
            *self = Gate { limits: std::mem::take(&mut self.limits), ..Gate::default() };
        } else if self.idle > IDLE {
            left.names.iter().for_each(|&at| self.forget(at));
        }
    }

    /// Forgets a name that no message has.
    fn forget(&mut self, at: u32) {
        let name = &mut self.names[at as usize];
        if name.unsettled == 0 {
            let hash = name.hash;
            name.text = Box::default();
            if let Ok(entry) = self.places.find_entry(hash, |&place| place == at) {
                entry.remove();
            }
            self.free.push(at);
            self.idle -= 1;
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

    /// A key of a keeper was paused: what it keeps is free, and it is ready as if it had just become so.
    /// Returns its ticket, and whether it has keys.
    pub fn release(&mut self, message: u32) -> Option<(Ticket, bool)> {
        let carried = self.carried.get_mut(&message).expect("a keeper has names");
        carried.drop_kept(&mut self.names);
        let (ticket, keyed) = (carried.ticket, carried.keyed);
        self.come_up(message);
        self.offer_all(message);
        ticket.map(|ticket| (ticket, keyed))
    }

    /// Other limits, from now on.
    pub fn declare(&mut self, limits: &Limits) {
        if *limits == self.limits {
            return;
        }
        self.limits = limits.clone();
        for name in &mut self.names {
            name.most = self.limits.most(&name.text);
        }
        // One that is forgotten has nothing in line.
        (0..self.names.len() as u32).for_each(|at| self.offer(at));
    }

    /// The names of a message that have no room for it.
    pub fn full(&self, message: u32) -> impl Iterator<Item = Full<'_>> {
        let carried = self.carried.get(&message);
        let names = carried.into_iter().flat_map(|carried| carried.names.iter());
        names.map(|&at| &self.names[at as usize]).filter_map(move |name| {
            let mine = name.kept && name.keeper == message;
            let most = name.most.filter(|_| !name.has_room() && !mine)?;
            let keeper = Some(name.keeper).filter(|_| name.kept);
            Some(Full { name: &name.text, most, leased: name.leased, keeper })
        })
    }

    /// Returns whether a message has this name.
    pub fn has_name(&self, message: u32, name: &[u8]) -> bool {
        let Some(at) = self.place_of(KeyRef::new(name).hash, name) else { return false };
        self.carried.get(&message).is_some_and(|carried| carried.names.contains(&at))
    }

    /// Returns the state of a message's wait, for dumps: the name's place among its own from 1 on, how often it was
    /// passed, whether it keeps slots, and of how many names.
    pub fn state_of(&self, message: u32) -> (u64, u8, bool, u8) {
        let carried = &self.carried[&message];
        let at = carried.names.iter().position(|&at| at == carried.waits_for);
        (at.map_or(0, |at| at as u64 + 1), carried.passed, carried.keeps, carried.slots)
    }

    /// A leased message is restored.
    pub fn restore_leased(&mut self, message: u32) {
        for &at in self.carried[&message].names.iter() {
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
        let Some(carried) = self.carried.get_mut(&message) else { return false };
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
        for (i, &at) in carried.names.iter().enumerate() {
            let name = &mut self.names[at as usize];
            (name.keeper, name.kept) = (message, i < usize::from(slots));
        }
        true
    }

    /// All are restored: the first of each line with room is offered.
    pub fn restored(&mut self) {
        for message in self.keepers() {
            self.advance(message);
        }
        for at in 0..self.names.len() as u32 {
            self.offer(at);
        }
    }

    /// Bytes of its tables, about.
    pub fn bytes(&self) -> usize {
        self.carried.len() * OF_A_MESSAGE + self.places.len() * OF_A_NAME
    }
}

/// Bytes of a message's names and of its place in a line; of a name.
const OF_A_MESSAGE: usize = 112;
const OF_A_NAME: usize = 192;

mod closed;
