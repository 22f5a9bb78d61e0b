//! The places of groups as they are dumped, and as they are restored.

use crate::queue::parts::groups::places::{Half, Place};
use crate::queue::parts::groups::{Groups, FRONTS, NO_GROUP};
use crate::queue::schedules::bytes::{number, string, Damaged, Reader};

/// A place as it was dumped.
#[derive(Debug)]
pub struct SavedPlace<'a> {
    /// The limit name for which the messages wait; empty: for none.
    pub name: &'a [u8],
    pub keyed: bool,
    pub rank: i16,
    pub group: &'a [u8],
    pub number: u64,
    pub used: u32,
}

impl<'a> SavedPlace<'a> {
    /// A place of a name's ring, or of the queue's if the name is empty.
    pub fn new(name: &'a [u8], keyed: bool, rank: i16, group: &'a [u8], place: &Place) -> Self {
        let Place { number, used, .. } = *place;
        SavedPlace { name, keyed, rank, group, number, used }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        string(out, self.name);
        out.extend_from_slice(&[u8::from(self.keyed), -self.rank as i8 as u8]);
        string(out, self.group);
        number(out, self.number);
        number(out, self.used.into());
    }

    pub fn read(from: &mut Reader<'a>) -> Result<Self, Damaged> {
        Ok(SavedPlace {
            name: from.string("name of a ring")?,
            keyed: from.byte("kind of a ring")? != 0,
            rank: -i16::from(from.byte("priority of a ring")? as i8),
            group: from.string("group with a place")?,
            number: from.number("place of a group")?,
            used: from.small("turn of a group")?,
        })
    }
}

impl Groups {
    /// The places of the queue's own rings that are not as they begin.
    pub fn saved(&self) -> impl Iterator<Item = SavedPlace<'_>> {
        self.list.iter().flat_map(|group| {
            group.halves.iter().enumerate().flat_map(move |(keyed, half)| {
                let places = half.places().iter().filter(|(_, place)| place.is_used());
                places.map(move |(rank, place)| {
                    SavedPlace::new(b"", keyed == 1, *rank, group.text.as_bytes(), place)
                })
            })
        })
    }

    /// The text of a group in the list.
    pub fn text(&self, group: u32) -> &[u8] {
        self.list[group as usize].text.as_bytes()
    }

    /// The last number that a place was given.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    pub fn restore_turn(&mut self, turn: u64) {
        self.turn = turn;
    }

    /// The group with this text that has messages, or that of messages without one while others have groups.
    pub fn known(&self, text: &[u8]) -> Option<u32> {
        match text {
            [] => Some(NO_GROUP).filter(|_| !self.is_idle()),
            _ => self.find(crate::key::KeyRef::new(text).hash, text),
        }
    }

    /// A place of the queue's own rings is restored. False: its group has no messages that have it.
    pub fn restore_place(&mut self, group: u32, saved: &SavedPlace<'_>) -> bool {
        let keyed = usize::from(saved.keyed);
        let half: &mut Half = &mut self.list[group as usize].halves[keyed];
        let place = match group {
            NO_GROUP => Some(half.place_or_new(saved.rank)),
            _ => half.place(saved.rank),
        };
        let Some(place) = place else { return false };
        (place.number, place.used) = (saved.number, saved.used);
        if group != NO_GROUP {
            for front in FRONTS {
                half.update(front, &mut self.rings[keyed][front as usize], group);
            }
        }
        true
    }
}
