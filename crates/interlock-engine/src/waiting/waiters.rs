//! Parked calls in order of arrival, with the clients to answer.

mod puts;
pub mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashMap;
use interlock_core::queue::types::{Kind, Time};
use interlock_core::queue::waiting::room::{Need, RoomLine};

use crate::calls::lease::Wanted;
use crate::calls::put::Eases;
use crate::calls::settle::Answer;
use crate::queue::shared::Account;
use crate::wire::functions::Function;

/// The number by which a caller is to be answered: its own, which no other parked call has.
pub type Ticket = u64;

/// A reply to a call that was parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    pub ticket: Ticket,
    pub reply: Vec<u8>,
}

#[derive(Debug)]
pub struct Waiter {
    pub ticket: Ticket,
    pub until: Time,
    pub function: Function,
    pub consumer: Box<[u8]>,
    pub call: u64,
    /// The account whose bound of memory holds for a put that waits.
    pub payer: Option<Arc<Account>>,
    pub want: Want,
}

#[derive(Debug)]
pub enum Want {
    /// With the answers of what `il1_next` has settled.
    Lease(Wanted, Option<Vec<Answer>>),
    /// A waiting put.
    Room(WaitingPut),
    Result(u64),
    /// The end of a message, or of all.
    Join(Option<u64>),
}

/// A put that waits for room.
#[derive(Debug)]
pub struct WaitingPut {
    pub args: Vec<Box<[u8]>>,
    pub need: Need,
    /// Events after which it may need less.
    pub eases: Eases,
}

#[derive(Debug, Default)]
pub struct Waiting {
    all: BTreeMap<u64, Waiter>,
    next: u64,
    /// Bytes of the waiting puts.
    pub bytes: u64,
    /// Lines of calls that wait for any, keyed and unkeyed messages.
    lines: [BTreeSet<u64>; 3],
    pub room: RoomLine,
    /// Puts by the hashes of their dedup strings, and those of which a string became known since they were
    /// tried last.
    named: Orders,
    hasher: std::hash::RandomState,
    pub eased: BTreeSet<u64>,
    /// Puts with coalescing names, and `Scheduler::names` when they were tried last.
    coalescing: BTreeSet<u64>,
    names: u64,
    /// Calls that wait for the end of a message, by its id.
    for_ends: Orders,
    /// Calls that wait until nothing is unsettled.
    for_all: BTreeSet<u64>,
    until: BTreeSet<(Time, u64)>,
    by_ticket: HashMap<Ticket, u64, std::hash::RandomState>,
    /// Numbered calls that wait.
    by_consumer: HashMap<Box<[u8]>, u64, std::hash::RandomState>,
}

pub fn line_of(kind: Kind) -> usize {
    match kind {
        Kind::Any => 0,
        Kind::Keyed => 1,
        Kind::Unkeyed => 2,
    }
}

/// Bytes that a call that waits takes beside its arguments.
const OF_A_WAITER: u64 = 512;

type Orders = HashMap<u64, Vec<u64>, std::hash::RandomState>;

fn forget(among: &mut Orders, key: u64, order: u64) {
    if let Some(orders) = among.get_mut(&key) {
        orders.retain(|&one| one != order);
        if orders.is_empty() {
            among.remove(&key);
        }
    }
}

fn bytes_of(args: &[Box<[u8]>]) -> u64 {
    args.iter().map(|arg| arg.len() as u64 + 16).sum()
}

impl Waiting {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    #[inline]
    pub fn wait_for_room(&self) -> bool {
        !self.room.is_empty()
    }

    /// Bytes that they take, about.
    pub fn weight(&self) -> u64 {
        self.bytes + self.all.len() as u64 * OF_A_WAITER
    }

    /// Returns the hash by which a dedup string is known here.
    pub fn hash_of(&self, name: &str) -> u64 {
        self.hasher.hash_one(name)
    }

    /// A dedup string is known from now on.
    #[inline]
    pub fn became_known(&mut self, name: &str) {
        if !self.named.is_empty() {
            let orders = self.named.get(&self.hash_of(name));
            self.eased.extend(orders.into_iter().flatten());
        }
    }

    /// Other messages may have become those whose payloads puts replace.
    pub fn ease_coalescing(&mut self, names: u64) {
        if names != self.names {
            self.names = names;
            self.eased.extend(&self.coalescing);
        }
    }

    pub fn wait_for_ends(&self) -> bool {
        !self.for_ends.is_empty()
    }

    /// The first who waits until nothing is unsettled.
    pub fn first_for_all(&self) -> Option<u64> {
        self.for_all.first().copied()
    }

    pub fn enter(&mut self, waiter: Waiter) {
        let order = self.next;
        self.next += 1;
        self.insert(order, waiter);
    }

    /// Back to where it stood.
    pub fn insert(&mut self, order: u64, waiter: Waiter) {
        match &waiter.want {
            Want::Lease(wanted, _) => drop(self.lines[line_of(wanted.kind)].insert(order)),
            Want::Room(put) => {
                self.bytes += bytes_of(&put.args);
                self.room.enter(order, put.need);
                for &name in &put.eases.dedup {
                    self.named.entry(name).or_default().push(order);
                }
                if put.eases.coalesces {
                    self.coalescing.insert(order);
                }
            }
            Want::Result(id) | Want::Join(Some(id)) => {
                self.for_ends.entry(*id).or_default().push(order);
            }
            Want::Join(None) => drop(self.for_all.insert(order)),
        }
        self.until.insert((waiter.until, order));
        self.by_ticket.insert(waiter.ticket, order);
        if waiter.call > 0 {
            self.by_consumer.insert(waiter.consumer.clone(), order);
        }
        self.all.insert(order, waiter);
    }

    pub fn remove(&mut self, order: u64) -> Option<Waiter> {
        let waiter = self.all.remove(&order)?;
        match &waiter.want {
            Want::Lease(wanted, _) => drop(self.lines[line_of(wanted.kind)].remove(&order)),
            Want::Room(put) => {
                self.bytes -= bytes_of(&put.args);
                self.room.leave(order);
                self.eased.remove(&order);
                put.eases.dedup.iter().for_each(|&name| forget(&mut self.named, name, order));
                self.coalescing.remove(&order);
            }
            Want::Result(id) | Want::Join(Some(id)) => {
                forget(&mut self.for_ends, *id, order);
            }
            Want::Join(None) => drop(self.for_all.remove(&order)),
        }
        self.until.remove(&(waiter.until, order));
        if self.by_ticket.get(&waiter.ticket) == Some(&order) {
            self.by_ticket.remove(&waiter.ticket);
        }
        if self.by_consumer.get(&waiter.consumer) == Some(&order) {
            self.by_consumer.remove(&waiter.consumer);
        }
        Some(waiter)
    }

    /// The first that wants what one of the `lines` named has.
    pub fn first(&self, lines: impl Fn(usize) -> bool) -> Option<u64> {
        let named = (0..self.lines.len()).filter(|&line| lines(line));
        named.filter_map(|line| self.lines[line].first().copied()).min()
    }

    pub fn get(&self, order: u64) -> Option<&Waiter> {
        self.all.get(&order)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&u64, &Waiter)> {
        self.all.iter()
    }

    pub fn of_ticket(&self, ticket: Ticket) -> Option<u64> {
        self.by_ticket.get(&ticket).copied()
    }

    /// The numbered call of this consumer that waits.
    pub fn of_consumer(&self, consumer: &[u8]) -> Option<u64> {
        self.by_consumer.get(consumer).copied()
    }

    pub fn of_end(&self, id: u64) -> Vec<u64> {
        self.for_ends.get(&id).cloned().unwrap_or_default()
    }

    /// The first whose wait is over.
    pub fn over(&self, now: Time) -> Option<u64> {
        self.until.first().filter(|(until, _)| *until <= now).map(|&(_, order)| order)
    }

    /// Returns the time at which the next wait is over.
    pub fn first_until(&self) -> Option<Time> {
        self.until.first().map(|&(until, _)| until)
    }
}
