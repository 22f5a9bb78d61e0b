//! The messages of a worker's turn that are passed to stores.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use hashbrown::HashMap;
use interlock_stores::file::LONGEST_PAYLOAD;
use interlock_stores::Message;
use std::hash::RandomState;

use super::batch::{weight, Batch};
use super::set::{Kept, StoreSet};
use super::settings::{Acknowledgement, Full};
use super::store::Store;

pub struct Offers {
    set: Arc<StoreSet>,
    worker: usize,
    /// For each topic, a bit for each store that keeps it.
    wanted: HashMap<Box<[u8]>, u64, RandomState>,
    /// Bytes of these topics.
    known: usize,
    /// The messages of this turn for each store.
    batches: Vec<Batch>,
    touched: u64,
    /// Connections whose answers wait for stores, and for which.
    publishers: Vec<(u64, u64)>,
    /// Connections that wait for room.
    waiting: Vec<u64>,
}

/// The fate of a message that was offered.
#[derive(Debug, PartialEq, Eq)]
pub enum Offered {
    /// The publisher continues as if there were no stores.
    Taken,
    /// A store has no room for it: nothing was done, and it is to be offered again.
    Full,
    /// No store can ever take it; the text says why.
    Refused(String),
}

/// A condition of a connection's answers: a store is done with all up to a ticket.
#[derive(Clone, Debug)]
pub struct Gate {
    pub store: Arc<Store>,
    pub ticket: u64,
    /// The publisher waits until the messages are delivered upstream, not only written.
    pub upstream: bool,
}

impl Gate {
    pub fn is_open(&self) -> bool {
        let queue = &self.store.queue;
        if self.upstream {
            queue.has_delivered(self.ticket)
        } else {
            queue.has_passed(self.ticket)
        }
    }
}

impl Offers {
    /// Returns `None` if there are no stores.
    pub fn new(set: Arc<StoreSet>, worker: usize) -> Option<Box<Offers>> {
        if set.stores.is_empty() {
            return None;
        }
        let batches = set.stores.iter().map(|_| Batch::default()).collect();
        let (wanted, known, touched, publishers, waiting) = Default::default();
        Some(Box::new(Offers { set, worker, wanted, known, batches, touched, publishers, waiting }))
    }

    /// Passes a message to the stores that want it, if all of them have room.
    pub fn offer(
        &mut self,
        token: u64,
        topic: &[u8],
        payload: &[u8],
        now: impl FnOnce() -> u64,
    ) -> Offered {
        let wanting = match self.wanted.get(topic) {
            Some(wanting) => *wanting,
            None => self.learn(topic),
        };
        if wanting == 0 {
            return Offered::Taken;
        }
        let message = Message { topic, payload, time: now(), origin: 0, number: 0 };
        self.take(wanting, token, &message)
    }

    /// Like `offer`, for a message of another hub. That hub deletes the message when it is answered, so the
    /// answer waits until all stores that accepted the message have written it, whatever their `ack` is.
    pub fn relay(&mut self, token: u64, message: &Message<'_>) -> Offered {
        let wanting = match self.wanted.get(message.topic) {
            Some(wanting) => *wanting,
            None => self.learn(message.topic),
        };
        if wanting == 0 {
            return Offered::Taken;
        }
        self.take(wanting, token, message)
    }

    fn take(&mut self, wanting: u64, token: u64, message: &Message<'_>) -> Offered {
        let Message { topic, payload, time, origin, .. } = *message;
        if payload.len() > LONGEST_PAYLOAD {
            let bytes = payload.len();
            return Offered::Refused(format!(
                "ERR a store keeps messages of up to {LONGEST_PAYLOAD} bytes, this one has {bytes}"
            ));
        }
        let weight = weight(message);
        let (mut taken, mut acknowledged) = (0, 0);
        for place in bits(wanting) {
            let kept = &self.set.stores[place];
            let (queue, most) = (&kept.store.queue, kept.settings.queue);
            let mut has_room = queue.reserve(weight, most);
            if !has_room && kept.settings.full == Full::Wait {
                queue.watch(self.worker);
                // There may have been some just now.
                has_room = queue.reserve(weight, most);
                if !has_room {
                    bits(taken)
                        .for_each(|place| self.set.stores[place].store.queue.release(weight));
                    self.waiting.push(token);
                    return Offered::Full;
                }
            }
            if has_room {
                taken |= 1 << place;
                if kept.settings.acknowledges >= Acknowledgement::Disk || origin != 0 {
                    acknowledged |= 1 << place;
                }
            } else {
                kept.store.figures.dropped.fetch_add(1, Relaxed);
            }
        }
        for place in bits(taken) {
            if origin == 0 {
                self.batches[place].push(topic, payload, time);
            } else {
                self.batches[place].push_relayed(message);
            }
        }
        self.touched |= taken;
        if acknowledged != 0 {
            match self.publishers.last_mut() {
                Some((last, stores)) if *last == token => *stores |= acknowledged,
                _ => self.publishers.push((token, acknowledged)),
            }
        }
        Offered::Taken
    }

    #[cold]
    fn learn(&mut self, topic: &[u8]) -> u64 {
        self.known += topic.len() + OVERHEAD;
        if self.known > MOST_KNOWN {
            self.wanted = HashMap::default();
            self.known = topic.len() + OVERHEAD;
        }
        let wanting = self.set.wanting(topic);
        self.wanted.insert(topic.into(), wanting);
        wanting
    }

    /// Returns whether there is something to hand over.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.touched != 0
    }

    /// Hands over what the turn has. Returns the connections whose answers wait, and for what.
    pub fn hand_over(&mut self) -> Vec<(u64, Vec<Gate>)> {
        let mut tickets = [0; super::MOST_STORES];
        for place in bits(std::mem::take(&mut self.touched)) {
            let batch = std::mem::take(&mut self.batches[place]);
            tickets[place] = self.set.stores[place].store.queue.put(batch);
        }
        let gate = |place: usize| {
            let Kept { settings, store } = &self.set.stores[place];
            let upstream = settings.acknowledges == Acknowledgement::Upstream;
            Gate { store: store.clone(), ticket: tickets[place], upstream }
        };
        let publishers = std::mem::take(&mut self.publishers).into_iter();
        publishers.map(|(token, stores)| (token, bits(stores).map(gate).collect())).collect()
    }

    /// Connections that wait for room: they are to try again.
    pub fn waiting(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waiting)
    }
}

fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(next)
    })
}

/// Bytes of topics of which it is remembered who keeps them, about.
const MOST_KNOWN: usize = 4 << 20;
const OVERHEAD: usize = 40;
