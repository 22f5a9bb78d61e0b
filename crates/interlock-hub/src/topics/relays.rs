//! Messages of other hubs: who brings them, and which have come before.
//!
//! A sender, which is another hub's spool, has one connection at a time: what the one before still has
//! under way is handed on before the next one is let in. So what subscribers get is in order.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};
use ring::digest;
use std::hash::RandomState;

use crate::access::registry::Card;

#[derive(Default)]
pub struct Relays {
    senders: Mutex<HashMap<u128, Sender, RandomState>>,
    /// The last number of each origin that went to subscribers.
    numbers: [Mutex<Numbers>; STRIPES],
    /// The origins of this hub's own spools.
    own: RwLock<Vec<u128>>,
    /// The origins that other hubs will know as theirs what this one passes on to them.
    passed: Mutex<Passed>,
}

/// The way on which a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// This hub knows the message under this origin.
    Known(u128),
    /// From this hub, and back.
    Back,
    /// The message went through so many hubs that they must form a cycle.
    Around,
}

struct Sender {
    /// The connection that brings its messages.
    card: Arc<Card>,
    /// The connection that is to follow it.
    next: Option<Arc<Card>>,
}

/// The place of a connection among those of its sender.
pub enum Opened {
    Now,
    /// Once this sender has ended; `superseded` waited for the same and gives up.
    Behind {
        holder: Arc<Card>,
        superseded: Option<Arc<Card>>,
    },
}

impl Relays {
    /// A connection wants to bring a sender's messages.
    pub fn open(&self, sender: u128, card: &Arc<Card>, is_gone: impl Fn(&Card) -> bool) -> Opened {
        let mut senders = self.senders.lock();
        let Some(known) = senders.get_mut(&sender) else {
            senders.insert(sender, Sender { card: card.clone(), next: None });
            return Opened::Now;
        };
        if known.card.id == card.id {
            return Opened::Now;
        }
        let superseded = known.next.take().filter(|next| next.id != card.id);
        if is_gone(&known.card) {
            known.card = card.clone();
            known.next = superseded;
            return Opened::Now;
        }
        known.next = Some(card.clone());
        Opened::Behind { holder: known.card.clone(), superseded }
    }

    /// All that a connection brought is handed on. Returns the one that may bring more.
    pub fn release(&self, sender: u128, id: u64) -> Option<Arc<Card>> {
        let mut senders = self.senders.lock();
        let known = senders.get_mut(&sender)?;
        if known.card.id != id {
            known.next.take_if(|next| next.id == id);
            return None;
        }
        match known.next.take() {
            Some(next) => {
                known.card = next.clone();
                Some(next)
            }
            None => {
                senders.remove(&sender);
                None
            }
        }
    }

    /// Returns whether subscribers have had no message of this origin with this number or a later one.
    pub fn is_new(&self, origin: u128, number: u64) -> bool {
        self.numbers[(origin >> 64) as usize % STRIPES].lock().pass(origin, number)
    }

    /// This hub passes messages on, and numbers its own under this origin.
    pub fn sends_as(&self, origin: u128) {
        let mut own = self.own.write();
        if !own.contains(&origin) {
            own.push(origin);
        }
    }

    /// The way on which messages of an origin come that a sender brings.
    pub fn way(&self, sender: u128, origin: u128) -> Way {
        let own = self.own.read();
        if own.iter().any(|own| own & !HOPS == origin & !HOPS) || self.passed.lock().has(origin) {
            return Way::Back;
        }
        let Some(known) = known_as(sender, origin) else { return Way::Around };
        if !own.is_empty() {
            let mut passed = self.passed.lock();
            own.iter().filter_map(|own| known_as(*own, known)).for_each(|next| passed.add(next));
        }
        Way::Known(known)
    }

    /// Senders that are connected.
    pub fn connected(&self) -> usize {
        self.senders.lock().len()
    }
}

/// Numbers of the origins that were heard of last: those of two generations.
#[derive(Default)]
struct Numbers {
    young: HashMap<u128, u64, RandomState>,
    old: HashMap<u128, u64, RandomState>,
}

impl Numbers {
    fn pass(&mut self, origin: u128, number: u64) -> bool {
        if let Some(last) = self.young.get_mut(&origin) {
            let is_new = number > *last;
            *last = number.max(*last);
            return is_new;
        }
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        let last = self.old.remove(&origin);
        self.young.insert(origin, last.map_or(number, |last| last.max(number)));
        last.is_none_or(|last| number > last)
    }
}

/// Origins without their last bytes, of two generations.
#[derive(Default)]
struct Passed {
    young: HashSet<u128, RandomState>,
    old: HashSet<u128, RandomState>,
}

impl Passed {
    fn has(&self, origin: u128) -> bool {
        self.young.contains(&(origin & !HOPS)) || self.old.contains(&(origin & !HOPS))
    }

    fn add(&mut self, origin: u128) {
        if self.young.len() >= GENERATION * STRIPES {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(origin & !HOPS);
    }
}

/// Returns the origin under which a message is known here: by the sender that brought it, for two
/// senders may bring messages of one origin in any order. `None`: it has been through so many hubs
/// that they must form a circle.
///
/// The last byte counts hubs: 0 of a spool's own.
fn known_as(sender: u128, origin: u128) -> Option<u128> {
    if sender == origin {
        return Some(origin & !HOPS | 1);
    }
    let hops = origin & HOPS;
    if hops >= MOST_HUBS {
        return None;
    }
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&sender.to_be_bytes());
    bytes[16..].copy_from_slice(&origin.to_be_bytes());
    let mixed = digest::digest(&digest::SHA256, &bytes);
    let mut first = [0; 16];
    first.copy_from_slice(&mixed.as_ref()[..16]);
    Some(u128::from_be_bytes(first) & !HOPS | (hops + 1))
}

/// Returns whether the last byte of an origin is a number of hubs.
pub fn counts_hubs(sender: u128, origin: u128) -> bool {
    sender == origin || origin & HOPS <= MOST_HUBS
}

const HOPS: u128 = 0xff;
const MOST_HUBS: u128 = 16;
const STRIPES: usize = 16;
/// Origins of a generation, in each stripe.
const GENERATION: usize = 4096;

#[cfg(test)]
mod tests {
    use crate::topics::relays::*;

    fn card(id: u64) -> Arc<Card> {
        Arc::new(Card::new(id, 0, id, 0))
    }

    fn is_open(opened: &Opened) -> bool {
        matches!(opened, Opened::Now)
    }

    #[test]
    fn a_sender_has_one_connection_and_the_newest_waiting_one_follows() {
        let relays = Relays::default();
        let cards: Vec<_> = (0..4).map(card).collect();
        let open = |place: usize| relays.open(7, &cards[place], |_| false);
        assert!(is_open(&open(0)) && is_open(&open(0)));
        assert!(is_open(&relays.open(8, &cards[3], |_| false)));
        let Opened::Behind { holder, superseded } = open(1) else { panic!("two at a time") };
        assert_eq!((holder.id, superseded.is_none()), (0, true));
        let Opened::Behind { holder, superseded } = open(2) else { panic!("two at a time") };
        assert_eq!((holder.id, superseded.map(|card| card.id)), (0, Some(1)));
        assert!(relays.release(7, 1).is_none(), "it waits no more");
        assert_eq!(relays.release(7, 0).map(|card| card.id), Some(2));
        assert!(relays.release(7, 0).is_none());
        assert!(!is_open(&open(1)));
        assert!(relays.release(7, 1).is_none() && relays.release(7, 2).is_none());
        assert_eq!(relays.connected(), 1);
        assert!(is_open(&relays.open(8, &cards[1], |card| card.id == 3)), "its worker is gone");
    }

    #[test]
    fn a_message_number_is_new_once_and_frequent_origins_are_remembered() {
        let mut numbers = Numbers::default();
        assert!(numbers.pass(1, 5) && !numbers.pass(1, 5) && !numbers.pass(1, 4));
        for origin in 10..10 + 3 * GENERATION as u128 {
            assert!(numbers.pass(origin, 1));
            assert!(!numbers.pass(1, 5), "{origin}");
            assert!(numbers.young.len() + numbers.old.len() <= 2 * GENERATION);
        }
        assert!(numbers.pass(1, 6));
    }

    #[test]
    fn a_message_this_hub_forwarded_is_recognised_when_it_returns() {
        let (here, there) = (Relays::default(), Relays::default());
        let (own, other, agent) = (0xa00, 0xb00, 0xc00);
        here.sends_as(own);
        there.sends_as(other);
        let Way::Known(first) = there.way(own, own) else { panic!("it is new there") };
        assert_eq!(here.way(other, first), Way::Back);
        // So is what another has given it.
        let Way::Known(taken) = here.way(agent, agent) else { panic!("it is new here") };
        let Way::Known(second) = there.way(own, taken) else { panic!("it is new there") };
        assert_eq!(here.way(other, second), Way::Back);
        assert_eq!(here.way(agent, agent), Way::Known(taken));
        assert!(matches!(here.way(other, other), Way::Known(_)));
    }

    #[test]
    fn a_message_relayed_by_two_routes_has_two_identities_and_cycles_end() {
        let known = known_as(0xa00, 0xa07).unwrap();
        assert_eq!(known_as(0xa77, 0xa77), Some(0xa01));
        assert_ne!(known_as(0xb00, 0xa07).unwrap(), known);
        assert_eq!(known_as(0xa00, 0xa07).unwrap() & HOPS, 8);
        let (mut origin, mut hubs) = (known_as(3, 3).unwrap(), 1);
        while let Some(next) = known_as(4, origin) {
            (origin, hubs) = (next, hubs + 1);
        }
        assert_eq!(hubs, 16);
        assert_eq!(Relays::default().way(4, origin), Way::Around);
        assert!(counts_hubs(3, origin) && counts_hubs(0x77, 0x77) && !counts_hubs(3, 0x77));
    }
}
