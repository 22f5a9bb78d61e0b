//! Fair groups: messages of different groups take turns (clause 28).
//!
//! The groups with messages of one kind and priority are in a ring. Each has a *place* there, a number, and the
//! lowest number is next. A place changes at two events: the group's first message of that kind and priority is put,
//! or its turn is over; then it is the last. A group that has nothing to lease keeps its place and is passed over.
//!
//! Messages without a group are together one more group, [`NO_GROUP`], whose tickets stay in
//! [`Ready`](crate::queue::parts::ready::Ready) and in the gate, so that the first message with a group costs
//! nothing for those that are there. While no unsettled message has a group, nobody asks for anything here.

mod places;
mod restore;
mod sequences;
mod sorted;

use hashbrown::HashTable;

use crate::key::{Key, KeyRef};
use crate::queue::parts::groups::places::Half;
pub use crate::queue::parts::groups::places::{Place, Ring};
pub use crate::queue::parts::groups::restore::SavedPlace;
use crate::queue::parts::groups::sequences::Sequences;
use crate::queue::parts::ready::{rank_of, Ticket};
use crate::queue::types::limits::Weights;
use crate::queue::types::Kind;

/// The group of messages without one.
pub const NO_GROUP: u32 = 0;

/// The set of messages that can be leased in which one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// It waits for nothing.
    Ready = 0,
    /// It waits for a limit name, and is the next there.
    Offered = 1,
}

const FRONTS: [Front; 2] = [Front::Ready, Front::Offered];

/// A turn that a grant uses.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub group: u32,
    /// The place of the group once its turn is over.
    pub number: u64,
    pub weight: u32,
}

#[derive(Debug, Default)]
struct Group {
    text: Key,
    hash: u64,
    weight: u32,
    unsettled: u32,
    /// Without keys, and with keys.
    halves: [Half; 2],
}

#[derive(Debug, Default)]
pub struct Groups {
    weights: Weights,
    /// The groups of messages, by the message's slot.
    of: Vec<u32>,
    /// `NO_GROUP` is the first, if a message ever had a group.
    list: Vec<Group>,
    free: Vec<u32>,
    /// Places in the list by the groups' texts.
    texts: HashTable<u32>,
    /// Unsettled messages that have a group.
    messages: usize,
    /// The last number that a place was given.
    turn: u64,
    /// Number of times that the last message with a group left.
    era: u64,
    /// The groups with messages that can be leased, by kind and `Front`.
    rings: [[Ring; 2]; 2],
    /// Messages that can be leased, by kind and `Front`.
    counts: [[usize; 2]; 2],
    /// Sequences of the messages that are ready, to find the lowest.
    sequences: Sequences,
}

/// Returns whether a ticket is that of a message that has a group and is ready.
fn is_ready(list: &[Group], of: &[u32], keyed: bool, ticket: &Ticket) -> bool {
    let group = of.get(ticket.message as usize).and_then(|&at| list.get(at as usize));
    group.is_some_and(|group| group.halves[usize::from(keyed)].has(Front::Ready, ticket))
}

/// The kinds that a consumer asks for, as places of halves.
fn halves(kind: Kind) -> std::ops::Range<usize> {
    match kind {
        Kind::Unkeyed => 0..1,
        Kind::Keyed => 1..2,
        Kind::Any => 0..2,
    }
}

impl Groups {
    pub fn new(weights: &Weights) -> Self {
        Groups { weights: weights.clone(), ..Groups::default() }
    }

    /// Returns whether no unsettled message has a group.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.messages == 0
    }

    /// Returns whether there are neither messages nor weights.
    pub fn is_unused(&self) -> bool {
        self.is_idle() && self.weights.is_empty()
    }

    /// Groups with unsettled messages.
    pub fn count(&self) -> u64 {
        self.texts.len() as u64
    }

    /// The group of a message.
    #[inline]
    pub fn of(&self, message: u32) -> u32 {
        self.of.get(message as usize).copied().unwrap_or(NO_GROUP)
    }

    /// The text of a message's group; empty: it has none.
    pub fn text_of(&self, message: u32) -> &[u8] {
        match self.of(message) {
            NO_GROUP => b"",
            at => self.list[at as usize].text.as_bytes(),
        }
    }

    /// Number of times that the last message with a group left: all places from before are void.
    pub fn era(&self) -> u64 {
        self.era
    }

    /// The number of a place that is the last.
    pub fn last_number(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// A message enters with a group, which gets a place unless it has an unsettled message of this kind and
    /// priority.
    pub fn enter(&mut self, message: u32, group: &[u8], keyed: bool, priority: i8) {
        if self.list.is_empty() {
            let weight = self.weights.weight(b"");
            self.list.push(Group { weight, ..Group::default() });
        }
        let at = self.place_of(group);
        let slot = message as usize;
        if self.of.len() <= slot {
            self.of.resize(slot + 1, NO_GROUP);
        }
        self.of[slot] = at;
        self.messages += 1;
        let group = &mut self.list[at as usize];
        group.unsettled += 1;
        let place = group.halves[usize::from(keyed)].place_or_new(rank_of(priority));
        if place.count == 0 {
            self.turn += 1;
            place.number = self.turn;
        }
        place.count += 1;
    }

    /// The place of a group in the list; it is made if it is not known.
    fn place_of(&mut self, text: &[u8]) -> u32 {
        let hash = KeyRef::new(text).hash;
        if let Some(at) = self.find(hash, text) {
            return at;
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.list.push(Group::default());
            self.list.len() as u32 - 1
        });
        let group = &mut self.list[at as usize];
        group.text.set(text);
        (group.hash, group.weight) = (hash, self.weights.weight(text));
        let list = &self.list;
        self.texts.insert_unique(hash, at, |&at| list[at as usize].hash);
        at
    }

    fn find(&self, hash: u64, text: &[u8]) -> Option<u32> {
        self.texts.find(hash, |&at| self.list[at as usize].text == *text).copied()
    }

    /// A message is settled or cancelled, which had a group or not. `ready`: it is ready.
    pub fn leave(&mut self, ticket: Ticket, keyed: bool, ready: bool) {
        if self.of(ticket.message) == NO_GROUP {
            return;
        }
        if ready {
            self.remove(Front::Ready, keyed, ticket);
        }
        let at = std::mem::replace(&mut self.of[ticket.message as usize], NO_GROUP);
        let group = &mut self.list[at as usize];
        group.halves[usize::from(keyed)].leave(ticket.rank);
        group.unsettled -= 1;
        if group.unsettled == 0 {
            group.text = Key::default();
            let hash = group.hash;
            if let Ok(entry) = self.texts.find_entry(hash, |&place| place == at) {
                entry.remove();
            }
            self.free.push(at);
        }
        self.messages -= 1;
        if self.messages == 0 {
            (self.turn, self.era) = (0, self.era + 1);
            self.list[NO_GROUP as usize].halves.iter_mut().for_each(Half::clear);
        }
    }

    /// A message that has a group can be leased.
    pub fn insert(&mut self, front: Front, keyed: bool, ticket: Ticket) {
        let (at, keyed) = (self.of(ticket.message), usize::from(keyed));
        let half = &mut self.list[at as usize].halves[keyed];
        if half.insert(front, ticket) {
            half.update(front, &mut self.rings[keyed][front as usize], at);
            self.counts[keyed][front as usize] += 1;
            if front == Front::Ready {
                self.sequences.push(keyed == 1, ticket);
                if self.sequences.are_stale(self.ready(Kind::Any)) {
                    let Groups { sequences, list, of, .. } = self;
                    sequences.sweep(|keyed, ticket| is_ready(list, of, keyed, ticket));
                }
            }
        }
    }

    /// It can not, or is leased.
    pub fn remove(&mut self, front: Front, keyed: bool, ticket: Ticket) {
        let (at, keyed) = (self.of(ticket.message), usize::from(keyed));
        let half = &mut self.list[at as usize].halves[keyed];
        if half.remove(front, ticket) {
            half.update(front, &mut self.rings[keyed][front as usize], at);
            self.counts[keyed][front as usize] -= 1;
            if front == Front::Ready {
                self.sequences.remove(keyed == 1, ticket);
            }
        }
    }

    /// Messages of a kind that have a group and are ready.
    #[inline]
    pub fn ready(&self, kind: Kind) -> usize {
        halves(kind).map(|keyed| self.counts[keyed][Front::Ready as usize]).sum()
    }

    /// Messages of a kind that have a group and can be leased.
    #[inline]
    pub fn offers(&self, kind: Kind) -> usize {
        match self.messages {
            0 => 0,
            _ => halves(kind).map(|keyed| self.counts[keyed].iter().sum::<usize>()).sum(),
        }
    }

    /// The lowest sequence of the messages that have a group and are ready.
    pub fn oldest(&mut self) -> Option<u64> {
        let Groups { sequences, list, of, .. } = self;
        sequences.first(|keyed, ticket| is_ready(list, of, keyed, ticket))
    }

    /// The message that is next by turn, among those of these fronts, and whether it has keys. `plain`: the first
    /// messages without a group, those without keys and those with keys.
    pub fn first(
        &self,
        kind: Kind,
        fronts: &[Front],
        plain: [Option<Ticket>; 2],
    ) -> Option<(bool, Ticket)> {
        let mut next = None;
        let mut see = |place: (i16, u64, u32)| {
            if next.is_none_or(|next| place < next) {
                next = Some(place);
            }
        };
        for keyed in halves(kind) {
            for &front in fronts {
                self.rings[keyed][front as usize].first().copied().map(&mut see);
            }
            if let Some(Ticket { rank, .. }) = plain[keyed] {
                see((rank, self.number(keyed, rank), NO_GROUP));
            }
        }
        let (rank, _, group) = next?;
        let mut first: Option<(bool, Ticket)> = None;
        for keyed in halves(kind) {
            let ticket = match group {
                NO_GROUP => plain[keyed],
                at => self.list[at as usize].halves[keyed].first(fronts),
            };
            let before = |one: Ticket| {
                one.rank == rank && first.is_none_or(|(_, first)| one.sequence < first.sequence)
            };
            if let Some(ticket) = ticket.filter(|ticket| before(*ticket)) {
                first = Some((keyed == 1, ticket));
            }
        }
        first
    }

    /// Like `first`, of all that can be leased.
    pub fn next(&self, kind: Kind, plain: [Option<Ticket>; 2]) -> Option<(bool, Ticket)> {
        self.first(kind, &FRONTS, plain)
    }

    /// The place of messages without a group: before all others until they had a turn.
    fn number(&self, keyed: usize, rank: i16) -> u64 {
        self.list[NO_GROUP as usize].halves[keyed].number(rank)
    }

    /// A message is granted to a consumer that asked for this kind: its group uses a turn.
    pub fn take_turn(&mut self, message: u32, kind: Kind, keyed: bool, rank: i16) -> Turn {
        let (group, number) = (self.of(message), self.last_number());
        let one = &mut self.list[group as usize];
        let turn = Turn { group, number, weight: one.weight };
        let moved = match kind {
            Kind::Any => 0..2,
            Kind::Keyed | Kind::Unkeyed => usize::from(keyed)..usize::from(keyed) + 1,
        };
        for keyed in moved {
            let half = &mut one.halves[keyed];
            if group == NO_GROUP {
                half.place_or_new(rank).take(turn);
            } else if let Some(place) = half.place(rank) {
                place.take(turn);
                for front in FRONTS {
                    half.update(front, &mut self.rings[keyed][front as usize], group);
                }
            }
        }
        turn
    }

    /// Other weights, from now on. No place moves.
    pub fn declare(&mut self, weights: &Weights) {
        self.weights = weights.clone();
        for group in &mut self.list {
            group.weight = weights.weight(group.text.as_bytes());
        }
    }

    /// Ready messages of a message's group; `plain`: those that have no group.
    pub fn ready_beside(&self, message: u32, plain: usize) -> u64 {
        let ready = match self.of(message) {
            NO_GROUP => plain,
            at => self.list[at as usize].halves.iter().map(|half| half.count(Front::Ready)).sum(),
        };
        ready as u64
    }

    /// Groups with ready messages of this kind that are before a message's own, at most `most`. `plain`: the rank of
    /// the first ready message of this kind that has no group.
    pub fn ahead(
        &self,
        (message, keyed, rank): (u32, bool, i16),
        plain: Option<i16>,
        most: usize,
    ) -> u64 {
        let (group, keyed) = (self.of(message), usize::from(keyed));
        let before = (rank, self.list[group as usize].halves[keyed].number(rank), NO_GROUP);
        let ring = self.rings[keyed][Front::Ready as usize].before(before);
        let others = ring.filter(|(_, _, other)| *other != group).take(most).count();
        let without = plain.is_some_and(|rank| {
            group != NO_GROUP && (rank, self.number(keyed, rank), NO_GROUP) < before
        });
        (others + usize::from(without)).min(most) as u64
    }

    /// Frees the memory kept for future messages; none has a group.
    pub fn compact(&mut self) {
        *self = Groups { era: self.era, ..Groups::new(&self.weights) };
    }

    /// Bytes of its tables, about.
    pub fn bytes(&self) -> usize {
        let tickets: usize = self.counts.iter().flatten().sum();
        self.of.capacity() * size_of::<u32>()
            + self.list.capacity() * size_of::<Group>()
            + self.texts.len() * OF_A_GROUP
            + tickets * OF_A_TICKET
            + self.sequences.bytes()
    }
}

/// Bytes of a group beside its record: its text, its places, its entries in rings; of a message that can be leased.
const OF_A_GROUP: usize = 160;
const OF_A_TICKET: usize = 64;
