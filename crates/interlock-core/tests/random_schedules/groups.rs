//! The model's fair groups (clause 28): the places of groups must be remembered, all else is counted anew.

use interlock_core::queue::types::{Kind, Turn};

use crate::model::{Message, Model, Phase};

/// The limit name for which messages wait, empty for none; whether they have keys; their priority; their group.
pub type Ring = (Vec<u8>, bool, i8, Vec<u8>);

/// The lowest number is next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    number: u64,
    used: u32,
}

impl Message {
    pub(crate) fn keyed(&self) -> bool {
        !self.holds.is_empty() || self.barrier
    }

    fn ring(&self, name: &[u8], keyed: bool) -> Ring {
        (name.to_vec(), keyed, self.priority, self.group.clone())
    }

    fn own_ring(&self, name: &[u8]) -> Ring {
        self.ring(name, self.keyed())
    }
}

impl Model {
    fn has_groups(&self) -> bool {
        self.unsettled().any(|message| !message.group.is_empty())
    }

    fn place(&self, ring: &Ring) -> Place {
        self.places.get(ring).copied().unwrap_or_default()
    }

    fn place_last(&mut self, ring: Ring) {
        self.turns += 1;
        self.places.insert(ring, Place { number: self.turns, used: 0 });
    }

    /// A message is about to be put.
    pub(crate) fn enter_ring(&mut self, message: &Message) {
        if message.group.is_empty() {
            return;
        }
        if !self.has_groups() {
            self.places.clear();
        }
        let ring = message.own_ring(b"");
        if self.unsettled().all(|other| other.own_ring(b"") != ring) {
            self.place_last(ring);
        }
    }

    /// A message is about to wait for a name.
    pub(crate) fn enter_line(&mut self, at: usize, name: &[u8]) {
        let ring = self.placed[at].own_ring(name);
        if self.has_groups() && self.line_of(name).all(|other| other.own_ring(name) != ring) {
            self.place_last(ring);
        }
    }

    /// The messages that wait for a name, without its keeper.
    fn line_of<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a Message> {
        self.placed.iter().filter(move |message| {
            message.limit.waits_for.as_deref() == Some(name) && message.limit.slots.is_none()
        })
    }

    /// A message is granted to a consumer that asked for this kind.
    pub(crate) fn take_turn(&mut self, at: usize, kind: Kind) {
        if !self.has_groups() {
            return;
        }
        let message = &self.placed[at];
        let mut rings = vec![message.own_ring(b"")];
        if kind == Kind::Any {
            rings.push(message.ring(b"", !message.keyed()));
        }
        if let (Some(name), None) = (&message.limit.waits_for, message.limit.slots) {
            rings.push(message.own_ring(name));
        }
        let (group, weight) = (message.group.clone(), self.options.weights.weight(&message.group));
        self.turns += 1;
        for ring in rings {
            if !group.is_empty() && !self.places.contains_key(&ring) {
                continue;
            }
            let place = self.places.entry(ring).or_default();
            place.used += 1;
            if place.used >= weight {
                *place = Place { number: self.turns, used: 0 };
            }
        }
    }

    /// The first of these by priority, then by the place of its group, then by sequence.
    pub(crate) fn next_one(&self, among: &[usize], name: &[u8]) -> Option<usize> {
        let highest = among.iter().map(|&at| self.placed[at].priority).max()?;
        let some = || among.iter().copied().filter(|&at| self.placed[at].priority == highest);
        let number = |at: &usize| self.place(&self.placed[*at].own_ring(name)).number;
        let turn = some().min_by_key(number)?;
        some().find(|&at| self.placed[at].group == self.placed[turn].group)
    }

    /// Returns whether a message may come up, as far as is known before it does: it waits for no name, or is the next
    /// of a line with room, or is a keeper that has all that it needs.
    pub(crate) fn may_come_up(&self, at: usize) -> bool {
        let message = &self.placed[at];
        if let Some(slots) = message.limit.slots {
            return slots == message.limit.names.len() && !self.is_shut_to(message);
        }
        let Some(name) = &message.limit.waits_for else { return true };
        let in_line = |other: &usize| {
            let other = &self.placed[*other];
            let waits = other.limit.waits_for.as_ref() == Some(name) && other.limit.slots.is_none();
            waits && other.keyed() == message.keyed()
        };
        let line: Vec<usize> = (0..self.placed.len()).filter(in_line).collect();
        self.has_room(name, message) && self.next_one(&line, name) == Some(at)
    }

    /// Returns whether an earlier message of the same group, kind and priority waits for a name.
    pub(crate) fn own_before(&self, at: usize, name: &[u8]) -> bool {
        let ring = self.placed[at].own_ring(name);
        let waits = |other: &Message| {
            other.limit.waits_for.as_deref() == Some(name) && other.limit.slots.is_none()
        };
        self.placed[..at].iter().any(|other| waits(other) && other.own_ring(name) == ring)
    }

    /// Messages that wait for nothing but their turn, and were not set aside by a pause.
    fn ready_ones(&self) -> Vec<usize> {
        let ready = |at: &usize| self.comes_up(*at) && self.placed[*at].limit.waits_for.is_none();
        (0..self.placed.len()).filter(ready).collect()
    }

    /// Returns the turn of a message, for an explanation.
    pub(crate) fn turn_of(&self, at: usize) -> Option<Turn> {
        let message = &self.placed[at];
        if message.phase != Phase::Queued || !self.in_front(at) || !self.has_groups() {
            return None;
        }
        let ready = self.ready_ones();
        let key = |at: usize| {
            let message = &self.placed[at];
            (-i16::from(message.priority), self.place(&message.own_ring(b"")).number)
        };
        let mut groups: Vec<&[u8]> = ready.iter().map(|&at| &self.placed[at].group[..]).collect();
        groups.sort_unstable();
        groups.dedup();
        let is_ahead = |group: &&&[u8]| {
            let own = |other: &usize| {
                let other = &self.placed[*other];
                other.group == **group && other.keyed() == message.keyed()
            };
            let own: Vec<usize> = ready.iter().copied().filter(own).collect();
            **group != message.group
                && self.next_one(&own, b"").is_some_and(|one| key(one) < key(at))
        };
        Some(Turn {
            group: message.group.clone(),
            ready: ready.iter().filter(|&&one| self.placed[one].group == message.group).count()
                as u64,
            ahead: groups.iter().filter(is_ahead).count() as u64,
        })
    }

    /// Groups with unsettled messages.
    pub(crate) fn group_count(&self) -> u64 {
        let mut groups: Vec<&[u8]> = self.unsettled().map(|message| &message.group[..]).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.iter().filter(|group| !group.is_empty()).count() as u64
    }
}
