//! Concurrency limits and rates: the names that messages carry, the leased messages and the grants of each,
//! and the messages set aside until a name has room (clauses 26 and 27).
//!
//! A message that finds a name full waits for that name, in the name's own line, and is no longer looked
//! at. While the name has room, the next of its line is *offered*: it is among those that a lease
//! chooses from. Whatever takes that one away, or changes which one is next, offers another, so that a
//! lease always sees the next message of each name with room, and nothing is scanned. A name that time
//! opens has an entry among the times, as long as a message waits for it.
//!
//! Where messages have groups, `groups` decides which is next (clause 28).

mod carried;
mod closed;
mod known;
mod line;
mod name;
mod offer;
mod restore;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use hashbrown::HashTable;

use crate::queue::parts::gate::carried::{ByMessage, Carried, Names};
pub use crate::queue::parts::gate::known::Full;
use crate::queue::parts::gate::name::{Name, NAMES};
use crate::queue::parts::gate::offer::{move_time, show, withdraw};
use crate::queue::parts::groups::Groups;
use crate::queue::parts::lazy::Part;
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::slab::NONE;
use crate::queue::types::limits::{names_of, Limits, Weights, BETWEEN};
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

/// Offered messages that have no group: those without keys, and those with keys.
type Offered = [BTreeSet<Ticket>; 2];

#[derive(Debug, Default)]
pub struct Gate {
    /// Unsettled messages that have a limit name or a group.
    messages: usize,
    pub groups: Groups,
    limits: Limits,
    names: Vec<Name>,
    free: Vec<u32>,
    /// By their texts.
    places: HashTable<u32>,
    /// Names that no message has.
    idle: usize,
    carried: ByMessage,
    /// Next in line at names with room, and keepers that have all.
    offered: Offered,
    /// Messages that keep slots.
    keepers: BTreeSet<u32>,
    /// Messages that wait for a name.
    waiting: usize,
    /// Times at which something opens, while somebody waits for it.
    times: BTreeSet<(Time, Opens)>,
    /// Names that no message has, by the time from which on they may be forgotten.
    resting: BTreeSet<(Time, u32)>,
    /// A name had a rate or was closed: names without messages are not all forgotten at once.
    keeps_times: bool,
}

impl Part for Gate {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<Gate> = LazyLock::new(Gate::default);
        &EMPTY
    }
}

impl Gate {
    pub fn new(limits: &Limits, weights: &Weights) -> Self {
        Gate { groups: Groups::new(weights), ..Gate::of(limits) }
    }

    /// One without messages.
    fn of(limits: &Limits) -> Self {
        Gate { limits: limits.clone(), keeps_times: limits.has_rates(), ..Gate::default() }
    }

    /// Returns whether no unsettled message has a limit name or a group.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.messages == 0
    }

    /// Messages that wait for a name.
    #[inline]
    pub fn waiting(&self) -> u64 {
        self.waiting as u64
    }

    /// Messages of a kind that may have room.
    #[inline]
    pub fn offers(&self, kind: Kind) -> usize {
        let plain = match kind {
            Kind::Unkeyed => self.offered[0].len(),
            Kind::Keyed => self.offered[1].len(),
            Kind::Any => self.offered[0].len() + self.offered[1].len(),
        };
        plain + self.groups.offers(kind)
    }

    /// The first messages without a group that may have room, those without keys and those with keys.
    pub fn fronts(&self) -> [Option<Ticket>; 2] {
        [0, 1].map(|keyed| self.offered[keyed].first().copied())
    }

    /// The first message of a kind that may have room, where none has a group.
    pub fn first(&self, kind: Kind) -> Option<Ticket> {
        let [unkeyed, keyed] = self.fronts();
        match kind {
            Kind::Unkeyed => unkeyed,
            Kind::Keyed => keyed,
            Kind::Any => [unkeyed, keyed].into_iter().flatten().min(),
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

    /// A message enters with these names, joined, and this group; either may be empty.
    pub fn enter(
        &mut self,
        message: u32,
        (names, group): (&[u8], &[u8]),
        keyed: bool,
        priority: i8,
    ) {
        self.messages += 1;
        if !names.is_empty() {
            self.enter_names(message, names);
        }
        if !group.is_empty() {
            self.groups.enter(message, group, keyed, priority);
        }
    }

    fn enter_names(&mut self, message: u32, names: &[u8]) {
        let mut known = Names { len: 0, places: [NONE; NAMES] };
        let mut add = |name: &[u8]| {
            known.places[usize::from(known.len)] = self.carry(name);
            known.len += 1;
        };
        match names.contains(&BETWEEN) {
            false => add(names),
            true => names_of(names).unwrap_or_default().into_iter().take(NAMES).for_each(add),
        }
        self.carried.insert(Carried::new(message, known));
    }

    /// Returns whether each name of a message has room, or it keeps something of each and time lets it pass.
    #[inline]
    pub fn has_room(&self, message: u32, now: Time) -> bool {
        self.has_room_for(&self.carried[message], now)
    }

    #[inline(always)]
    fn has_room_for(&self, carried: &Carried, now: Time) -> bool {
        match carried.keeps {
            true => carried.shut_until(&self.names) <= now,
            false => carried.names.iter().all(|&at| self.names[at as usize].has_room(now)),
        }
    }

    /// Returns whether a message that came up may be leased: each of its names has room, and at none of them an
    /// earlier message of its group waits.
    pub fn admits(&self, ticket: Ticket, keyed: bool, now: Time) -> bool {
        let carried = &self.carried[ticket.message];
        self.has_room_for(carried, now)
            && (carried.keeps || self.groups.is_idle() || self.own_before(ticket, keyed).is_none())
    }

    /// The first of a message's names at which an earlier one of its group and priority waits.
    fn own_before(&self, ticket: Ticket, keyed: bool) -> Option<u32> {
        let group = self.groups.of(ticket.message);
        let names = &self.carried[ticket.message].names;
        names.rates_last(&self.names).find(|&at| {
            let line = &self.names[at as usize].line[usize::from(keyed)];
            let first = line.first_of(group, ticket.rank);
            first.is_some_and(|first| first.sequence < ticket.sequence)
        })
    }

    /// Returns whether a message that was offered must wait as before: others came first, or a handler closed a
    /// name of it.
    pub fn waits_on(&self, message: u32, now: Time) -> bool {
        let carried = &self.carried[message];
        match carried.waits_for {
            NONE => false,
            _ if carried.keeps => !self.has_room(message, now),
            at => !self.names[at as usize].has_room(now),
        }
    }

    /// A message that came up is not admitted: it waits for the first name that is full, rates last, or at which an
    /// earlier message of its group waits. Returns whether it did not wait for that one before.
    pub fn refuse(&mut self, message: u32, ticket: Ticket, keyed: bool, now: Time) -> bool {
        if self.waits_on(message, now) {
            match self.carried[message].keeps {
                true => self.advance(message, now),
                false => self.refresh(self.carried[message].waits_for, now),
            }
            return false;
        }
        let names = self.carried[message].names;
        let full = names.rates_last(&self.names).find(|&at| !self.names[at as usize].has_room(now));
        let waits_for = full.or_else(|| self.own_before(ticket, keyed));
        let waited = self.carried[message].waits_for != NONE;
        match waited {
            true => self.leave_line(message),
            false => self.waiting += 1,
        }
        let carried = self.carried.get_mut(message).expect("it has names");
        if waited && full.is_some() {
            carried.passed = (carried.passed + 1).min(PASSED);
        }
        carried.waits_for = waits_for.expect("it is not admitted");
        let passed = carried.passed >= PASSED;
        if passed && self.may_keep(message) {
            self.keep(message, ticket, keyed, now);
        } else {
            self.stand(message, ticket, keyed);
        }
        self.offer_all(message, now);
        true
    }

    /// Enters the line of the name that it waits for.
    fn stand(&mut self, message: u32, ticket: Ticket, keyed: bool) {
        let carried = self.carried.get_mut(message).expect("it has names");
        (carried.ticket, carried.keyed) = (Some(ticket), keyed);
        let name = &mut self.names[carried.waits_for as usize];
        name.waiting += 1;
        name.line[usize::from(keyed)].insert(ticket, &mut self.groups);
    }

    /// Leaves that line.
    fn leave_line(&mut self, message: u32) {
        let carried = self.carried.get_mut(message).expect("it has names");
        let (name, keyed) = (&mut self.names[carried.waits_for as usize], carried.keyed);
        let ticket = carried.ticket.take().expect("it waits in a line");
        let line = &mut name.line[usize::from(keyed)];
        name.waiting -= 1;
        line.remove(ticket, &self.groups);
        if line.offered == message {
            line.offered = NONE;
            withdraw(&mut self.offered, &mut self.groups, keyed, ticket);
        }
    }

    fn may_keep(&self, message: u32) -> bool {
        self.carried[message].names.iter().all(|&at| self.names[at as usize].keeper == NONE)
    }

    /// A message becomes the keeper of all its names.
    fn keep(&mut self, message: u32, ticket: Ticket, keyed: bool, now: Time) {
        let carried = self.carried.get_mut(message).expect("it has names");
        (carried.keeps, carried.slots) = (true, 0);
        (carried.ticket, carried.keyed) = (Some(ticket), keyed);
        for &at in carried.names.iter() {
            self.names[at as usize].keeper = message;
        }
        self.keepers.insert(message);
        self.advance(message, now);
    }

    /// A keeper takes a slot of one name after another, then a grant of each of its rates. When it has all, it
    /// is offered as soon as time lets it pass.
    fn advance(&mut self, message: u32, now: Time) {
        let Gate { carried, names, .. } = self;
        let carried = carried.get_mut(message).expect("a keeper has names");
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
            }
            taken.into_iter().for_each(|at| self.refresh(at, now));
        }
        let Gate { carried, names, offered, groups, times, .. } = self;
        let carried = carried.get_mut(message).expect("a keeper has names");
        if !carried.keeps_all() {
            return;
        }
        let ticket = carried.ticket.expect("a keeper waits");
        let until = carried.shut_until(names);
        let opens = if until > now && until < Time::MAX { until } else { 0 };
        move_time(times, &mut carried.opens, opens, Opens::Keeper(message));
        match until <= now {
            true => show(offered, groups, carried.keyed, ticket),
            false => withdraw(offered, groups, carried.keyed, ticket),
        }
    }

    /// A message that has room is leased, and charged to its rates.
    pub fn lease(&mut self, message: u32, now: Time) {
        let Carried { names, waits_for, .. } = self.carried[message];
        if waits_for != NONE {
            self.drop_kept(message);
            self.come_up(message);
        }
        for &at in names.iter() {
            let name = &mut self.names[at as usize];
            name.leased += 1;
            name.charge(now);
        }
        names.iter().for_each(|&at| self.offer(at, now));
    }

    /// A message is granted to a consumer that asked for this kind: its group uses a turn, also among those that wait
    /// for the same name.
    pub fn take_turn(&mut self, ticket: Ticket, kind: Kind, keyed: bool) {
        let turn = self.groups.take_turn(ticket.message, kind, keyed, ticket.rank);
        if let Some(carried) = self.carried.get(ticket.message) {
            if carried.waits_for != NONE && !carried.keeps {
                let line = &mut self.names[carried.waits_for as usize].line[usize::from(keyed)];
                line.take_turn(turn, ticket.rank, self.groups.era());
            }
        }
    }

    /// Whatever it waited for is forgotten.
    fn come_up(&mut self, message: u32) {
        let carried = self.carried.get_mut(message).expect("it has names");
        if carried.waits_for != NONE {
            self.waiting -= 1;
            if carried.keeps {
                move_time(&mut self.times, &mut carried.opens, 0, Opens::Keeper(message));
                let ticket = carried.ticket.take().expect("a keeper waits");
                withdraw(&mut self.offered, &mut self.groups, carried.keyed, ticket);
            } else {
                self.leave_line(message);
            }
        }
        let carried = self.carried.get_mut(message).expect("it has names");
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
        let names = self.carried[message].names;
        for &at in names.iter() {
            self.names[at as usize].leased -= 1;
        }
        names.iter().for_each(|&at| self.offer(at, now));
    }

    /// A message with names or a group is settled or cancelled, and is not leased. `ready`: it is among those that
    /// can be leased.
    pub fn leave(&mut self, ticket: Ticket, keyed: bool, ready: bool, now: Time) {
        let message = ticket.message;
        self.leave_names(message, now);
        if !self.groups.is_idle() {
            self.groups.leave(ticket, keyed, ready);
        }
        self.messages -= 1;
    }

    fn leave_names(&mut self, message: u32, now: Time) {
        let Some(carried) = self.carried.get(message) else { return };
        let names = carried.names;
        if carried.waits_for != NONE {
            self.drop_kept(message);
            self.come_up(message);
        }
        self.carried.remove(message);
        for &at in names.iter() {
            self.offer(at, now);
            let name = &mut self.names[at as usize];
            name.unsettled -= 1;
            self.idle += usize::from(name.unsettled == 0);
        }
        if self.carried.len() == 0 && self.names.len() > 4 * IDLE && !self.keeps_times {
            self.forget_names();
        } else if self.idle > IDLE {
            names.iter().for_each(|&at| self.forget(at, now));
            self.forget_rested(now);
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
        self.keepers.iter().copied().collect()
    }

    /// Whatever a message keeps is free.
    fn drop_kept(&mut self, message: u32) {
        let carried = &self.carried[message];
        if carried.keeps {
            carried.drop_kept(&mut self.names);
            self.keepers.remove(&message);
        }
    }

    /// A keeper keeps nothing any more: a key of it was paused, or there are other limits. It is ready as if it
    /// had just become so. Returns its ticket.
    pub fn release(&mut self, message: u32, now: Time) -> Option<Ticket> {
        self.drop_kept(message);
        let ticket = self.carried[message].ticket;
        self.come_up(message);
        self.offer_all(message, now);
        ticket
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

    /// Frees the memory kept for future messages; no message has a name or a group.
    pub fn compact(&mut self) {
        self.groups.compact();
        self.carried = ByMessage::default();
        if !self.keeps_times {
            self.forget_names();
        }
    }

    /// Returns whether nothing is declared or known.
    pub fn is_unused(&self) -> bool {
        self.is_idle() && self.names.is_empty() && self.limits.is_empty() && self.groups.is_unused()
    }

    /// Bytes of its tables, about.
    pub fn bytes(&self) -> usize {
        self.groups.bytes() + self.carried.len() * OF_A_MESSAGE + self.places.len() * OF_A_NAME
    }
}

/// Bytes of a message's names and of its place in a line; of a name.
const OF_A_MESSAGE: usize = 120;
const OF_A_NAME: usize = 288;
