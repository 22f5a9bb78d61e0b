//! The data that one connection may know of another: CLIENT LIST and CLIENT KILL.
//!
//! Only its own worker touches a connection. What others may read of it is on a card of atomics; to
//! end it, they mark the card and send its worker a word.

use std::fmt::Write;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering::Relaxed,
};
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::RandomState;

use crate::access::users::{User, DEFAULT};
use crate::system::time::Time;

/// Card of one connection. All orderings are relaxed: each value is independent.
pub struct Card {
    pub id: u64,
    pub address: String,
    pub local: String,
    pub fd: i32,
    pub worker: usize,
    /// The slot of the connection in its worker, and which of all that had the slot it is.
    pub token: u64,
    pub created: Time,
    pub seen: AtomicU64,
    pub name: Mutex<Box<[u8]>>,
    /// `None` until the client logs in, if it must.
    pub user: Mutex<Option<Arc<User>>>,
    pub library: Mutex<[Box<[u8]>; 2]>,
    pub resp: AtomicU8,
    /// Topics, patterns, shard topics.
    pub subscriptions: [AtomicU32; 3],
    /// Bytes that the hub keeps for it, by `Part`.
    pub held: [AtomicUsize; 3],
    pub unread: AtomicUsize,
    /// Index of the last command's declaration.
    pub command: AtomicUsize,
    pub no_evict: AtomicBool,
    /// A call of it waits for a queue, or for messages of a topic.
    pub blocked: AtomicBool,
    pub killed: AtomicBool,
}

/// A part of what a connection can make the hub keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Output that it has not read.
    Owed,
    /// Its unfinished request, with what the parser keeps about that.
    Asked,
    Subscribed,
}

#[derive(Default)]
pub struct Registry {
    last: AtomicU64,
    cards: Mutex<HashMap<u64, Arc<Card>, RandomState>>,
}

impl Registry {
    pub fn next_id(&self) -> u64 {
        self.last.fetch_add(1, Relaxed) + 1
    }

    pub fn add(&self, card: Arc<Card>) {
        self.cards.lock().insert(card.id, card);
    }

    pub fn remove(&self, id: u64) {
        self.cards.lock().remove(&id);
    }

    pub fn holds(&self, id: u64) -> bool {
        self.cards.lock().contains_key(&id)
    }

    pub fn len(&self) -> usize {
        self.cards.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All connections, oldest first, without those whose end is on its way.
    pub fn all(&self) -> Vec<Arc<Card>> {
        let cards = self.cards.lock();
        let living = cards.values().filter(|card| !card.killed.load(Relaxed));
        let mut all: Vec<_> = living.cloned().collect();
        drop(cards);
        all.sort_unstable_by_key(|card| card.id);
        all
    }
}

impl Card {
    pub fn new(id: u64, worker: usize, token: u64, now: Time) -> Self {
        Card {
            id,
            address: String::new(),
            local: String::new(),
            fd: -1,
            worker,
            token,
            created: now,
            seen: AtomicU64::new(now),
            name: Mutex::default(),
            user: Mutex::default(),
            library: Mutex::default(),
            resp: AtomicU8::new(2),
            subscriptions: Default::default(),
            held: Default::default(),
            unread: AtomicUsize::new(0),
            command: AtomicUsize::new(usize::MAX),
            no_evict: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
        }
    }

    pub fn held(&self, part: Part) -> usize {
        self.held[part as usize].load(Relaxed)
    }

    /// All of it.
    pub fn holds(&self) -> usize {
        self.held.iter().map(|part| part.load(Relaxed)).sum()
    }

    /// Sets the bytes held and returns the increase. Called only by its own worker.
    #[must_use]
    pub fn hold(&self, part: Part, bytes: usize) -> isize {
        let held = &self.held[part as usize];
        let before = held.load(Relaxed);
        if before != bytes {
            held.store(bytes, Relaxed);
        }
        bytes as isize - before as isize
    }

    /// The address without its port.
    pub fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or(&self.address, |(host, _)| host)
    }

    pub fn is_subscribed(&self) -> bool {
        self.subscriptions.iter().any(|count| count.load(Relaxed) > 0)
    }

    pub fn user_name(&self) -> String {
        self.user.lock().as_ref().map_or(DEFAULT, |user| &user.name).to_owned()
    }

    /// Describes it for a log line.
    pub fn who(&self) -> String {
        let name = self.name.lock();
        let name = String::from_utf8_lossy(&name);
        let (id, address, user) = (self.id, &self.address, self.user_name());
        format!("id={id} addr={address} name={name} user={user}")
    }

    /// A line of CLIENT LIST, in the fields of Redis 7.0.15; what the hub does not have reads 0.
    pub fn line(&self, now: Time, command: &str) -> String {
        let mut flags = String::new();
        if self.is_subscribed() {
            flags.push('P');
        }
        if self.blocked.load(Relaxed) {
            flags.push('b');
        }
        if self.no_evict.load(Relaxed) {
            flags.push('e');
        }
        if self.address == self.local {
            flags.push('U');
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let [topics, patterns, shards] =
            [0, 1, 2].map(|kind| self.subscriptions[kind].load(Relaxed));
        let owed = self.held(Part::Owed);
        let mut line = String::new();
        let library = self.library.lock();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let _ = write!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db=0 sub={topics} \
             psub={patterns} ssub={shards} multi=-1 qbuf={} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 \
             rbp=0 obl={owed} oll=0 omem={owed} tot-mem={} events=r cmd={command} user={} \
             redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.address,
            self.local,
            self.fd,
            text(&self.name.lock()),
            now.saturating_sub(self.created) / 1_000_000,
            now.saturating_sub(self.seen.load(Relaxed)) / 1_000_000,
            self.unread.load(Relaxed),
            self.holds(),
            self.user_name(),
            self.resp.load(Relaxed),
            text(&library[0]),
            text(&library[1]),
        );
        line
    }
}
