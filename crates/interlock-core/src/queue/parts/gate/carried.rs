//! The part of a message that limits need: its names, and what it waits for or keeps.

use std::ops::Index;

use crate::queue::parts::gate::name::{Name, NAMES};
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::slab::{Record, Slab, NONE};
use crate::queue::types::Time;

/// The names of a message, in the order of their bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub len: u8,
    pub places: [u32; NAMES],
}

impl std::ops::Deref for Names {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.places[..usize::from(self.len)]
    }
}

impl Names {
    /// The order in which a keeper takes them, and in which a message waits for one: rates last.
    pub fn rates_last<'a>(&'a self, names: &'a [Name]) -> impl Iterator<Item = u32> + 'a {
        let of = move |rated: bool| {
            self.iter().copied().filter(move |&at| names[at as usize].rate.is_some() == rated)
        };
        of(false).chain(of(true))
    }
}

#[derive(Debug)]
pub(super) struct Carried {
    /// The slot of the message.
    pub message: u32,
    pub names: Names,
    /// Its ticket while it is in a line or offered.
    pub ticket: Option<Ticket>,
    pub keyed: bool,
    /// The name that it waits for, or `NONE`.
    pub waits_for: u32,
    pub passed: u8,
    pub keeps: bool,
    /// Number of its first names of which it keeps a slot.
    pub slots: u8,
    /// The time for which it is among the gate's times, as a keeper; 0: it is not.
    pub opens: Time,
}

impl Carried {
    #[inline]
    pub fn new(message: u32, names: Names) -> Self {
        Carried {
            message,
            names,
            ticket: None,
            keyed: false,
            waits_for: NONE,
            passed: 0,
            keeps: false,
            slots: 0,
            opens: 0,
        }
    }

    /// Returns whether it keeps all that it needs.
    pub fn keeps_all(&self) -> bool {
        self.keeps && usize::from(self.slots) == self.names.len()
    }

    /// Returns the time before which its rates, or closings, refuse a message that keeps something of each.
    pub fn shut_until(&self, names: &[Name]) -> Time {
        self.names.iter().map(|&at| names[at as usize].shut_until(true)).max().unwrap_or(0)
    }

    /// Frees what it keeps.
    pub fn drop_kept(&self, names: &mut [Name]) {
        for &at in self.names.iter() {
            let name = &mut names[at as usize];
            (name.keeper, name.kept) = (NONE, false);
        }
    }
}

impl Default for Carried {
    fn default() -> Self {
        Carried::new(NONE, Names { len: 0, places: [NONE; NAMES] })
    }
}

impl Record for Carried {
    fn clear(&mut self) {
        self.message = NONE;
    }
    fn link(&self) -> u32 {
        self.waits_for
    }
    fn set_link(&mut self, next: u32) {
        self.waits_for = next;
    }
}

/// The messages that have names, found by their slots.
#[derive(Debug, Default)]
pub(super) struct ByMessage {
    /// Places in the list, or `NONE`.
    places: Vec<u32>,
    list: Slab<Carried>,
}

impl ByMessage {
    #[inline]
    pub fn insert(&mut self, carried: Carried) {
        let slot = carried.message as usize;
        if self.places.len() <= slot {
            self.places.resize(slot + 1, NONE);
        }
        self.places[slot] = self.list.insert(carried);
    }

    #[inline]
    pub fn remove(&mut self, message: u32) {
        let at = std::mem::replace(&mut self.places[message as usize], NONE);
        self.list.remove(at);
    }

    #[inline]
    fn place(&self, message: u32) -> Option<u32> {
        self.places.get(message as usize).copied().filter(|&at| at != NONE)
    }

    #[inline]
    pub fn get(&self, message: u32) -> Option<&Carried> {
        self.place(message).map(|at| &self.list[at])
    }

    #[inline]
    pub fn get_mut(&mut self, message: u32) -> Option<&mut Carried> {
        self.place(message).map(|at| &mut self.list[at])
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The slots of all, in no particular order.
    pub fn messages(&self) -> impl Iterator<Item = u32> + '_ {
        self.list.places().map(|(_, carried)| carried.message).filter(|&message| message != NONE)
    }
}

impl Index<u32> for ByMessage {
    type Output = Carried;

    #[inline]
    fn index(&self, message: u32) -> &Carried {
        &self.list[self.places[message as usize]]
    }
}
