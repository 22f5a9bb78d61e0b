//! The part of a message that limits need: its names, and what it waits for or keeps.

use std::hash::Hasher;

use crate::queue::parts::gate::name::{Name, NAMES};
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::slab::NONE;
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

/// Users do not choose the slots of messages, so that any hash that spreads them will do.
#[derive(Default)]
pub(super) struct SlotHasher(u64);

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

#[derive(Debug)]
pub(super) struct Carried {
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
    pub fn new(names: Names) -> Self {
        Carried {
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
