//! The names that are known: those of unsettled messages, and some that no message has.

use std::collections::BTreeSet;

use crate::key::{Key, KeyRef};
use crate::limits::MAX_AWAITED;
use crate::queue::parts::gate::name::{Name, NAMES};
use crate::queue::parts::gate::Gate;
use crate::queue::parts::slab::NONE;
use crate::queue::types::limits::joined;
use crate::queue::types::{LimitUse, Time};

/// A name that refuses a message that waits: for explanations.
#[derive(Clone, Copy, Debug)]
pub struct Full<'a> {
    pub name: &'a [u8],
    /// Its place among the names.
    pub place: u32,
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

impl Gate {
    pub(super) fn carry(&mut self, name: &[u8]) -> u32 {
        let at = self.place(name);
        let known = &mut self.names[at as usize];
        self.idle -= usize::from(known.unsettled == 0);
        known.unsettled += 1;
        at
    }

    /// The place of a name, which is made if it is not known.
    pub(super) fn place(&mut self, name: &[u8]) -> u32 {
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

    pub(super) fn place_of(&self, hash: u64, name: &[u8]) -> Option<u32> {
        self.places.find(hash, |&at| self.names[at as usize].text == *name).copied()
    }

    /// The names of a message, joined; empty: it has none.
    pub fn names_of(&self, message: u32) -> Vec<u8> {
        let Some(carried) = self.carried.get(message) else { return Vec::new() };
        let texts: Vec<&[u8]> =
            carried.names.iter().map(|&at| self.names[at as usize].text.as_bytes()).collect();
        joined(&texts)
    }

    /// Forgets a name that no message has, now or when its rate is as if nothing had been granted.
    pub(super) fn forget(&mut self, at: u32, now: Time) {
        let name = &mut self.names[at as usize];
        // It may be forgotten already.
        if name.unsettled > 0 || name.text.as_bytes().is_empty() || name.rests > 0 {
            return;
        }
        if name.known_until() > now {
            name.rests = name.known_until();
            self.resting.insert((name.rests, at));
            return;
        }
        let hash = name.hash;
        name.text = Key::default();
        if let Ok(entry) = self.places.find_entry(hash, |&place| place == at) {
            entry.remove();
        }
        self.free.push(at);
        self.idle -= 1;
    }

    /// Forgets names that rested, a few for each message that leaves.
    pub(super) fn forget_rested(&mut self, now: Time) {
        for _ in 0..=NAMES {
            let Some(&(time, at)) = self.resting.first().filter(|(time, _)| *time <= now) else {
                return;
            };
            self.resting.remove(&(time, at));
            self.names[at as usize].rests = 0;
            self.forget(at, now);
        }
    }

    /// The names of a message that refuse it.
    pub fn full(&self, message: u32, now: Time) -> impl Iterator<Item = Full<'_>> {
        let carried = self.carried.get(message);
        let names = carried.into_iter().flat_map(|carried| carried.names.iter());
        names.filter_map(move |&place| {
            let name = &self.names[place as usize];
            let mine = name.kept && name.keeper == message;
            let lacks_slot = !mine && !name.has_slot();
            let until = name.shut_until(mine);
            let full = Full {
                name: name.text.as_bytes(),
                place,
                most: name.most,
                leased: name.leased,
                keeper: Some(name.keeper).filter(|_| name.kept && !mine),
                wait: until.checked_sub(now).filter(|&wait| wait > 0 && until < Time::MAX),
                lacks_slot,
            };
            (lacks_slot || until > now).then_some(full)
        })
    }

    /// The number of names that messages wait for or keep; and, of the first of these by their bytes and of the
    /// declared ones, those with most waiting messages. Keepers are named by their slots.
    pub fn used(&self, now: Time, count: usize) -> (usize, Vec<LimitUse>) {
        let is_awaited = |name: &&Name| name.waiting > 0 || name.keeper != NONE;
        let mut awaited: Vec<&Name> = self.names.iter().filter(is_awaited).collect();
        let number = awaited.len();
        if number > MAX_AWAITED {
            awaited.select_nth_unstable_by(MAX_AWAITED, |one, other| one.text.cmp(&other.text));
            awaited.truncate(MAX_AWAITED);
        }
        let listed: BTreeSet<&[u8]> = awaited.iter().map(|name| name.text.as_bytes()).collect();
        let declared = self.limits.names().filter(|name| !listed.contains(name)).map(|text| {
            let hash = KeyRef::new(text).hash;
            match self.place_of(hash, text) {
                Some(at) => self.names[at as usize].used(now),
                None => Name::new(text, hash, &self.limits).used(now),
            }
        });
        let mut found: Vec<LimitUse> = declared.collect();
        found.extend(awaited.iter().map(|name| name.used(now)));
        found.sort_unstable_by(|one, other| {
            other.waiting.cmp(&one.waiting).then_with(|| one.name.cmp(&other.name))
        });
        found.truncate(count);
        (number, found)
    }

    /// The places of a message's names.
    pub fn places_of(&self, message: u32) -> &[u32] {
        self.carried.get(message).map_or(&[], |carried| &carried.names)
    }

    /// Forgets all names; no message has one.
    pub(super) fn forget_names(&mut self) {
        let groups = std::mem::take(&mut self.groups);
        *self = Gate { groups, messages: self.messages, ..Gate::of(&self.limits) };
    }
}
