//! A store of the hub: its queue, what is counted of it, and what its threads have around them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use interlock_stores::file::Counters;
use parking_lot::Mutex;

use super::queue::Queue;

/// The part of a store that stays the same while its settings change.
#[derive(Debug)]
pub struct Store {
    pub name: String,
    pub queue: Queue,
    pub figures: Figures,
}

/// Counted since the store began. Relaxed: each is right by itself.
#[derive(Debug, Default)]
pub struct Figures {
    /// Messages that are written, and bytes of their payloads.
    pub written: AtomicU64,
    pub written_bytes: AtomicU64,
    /// Messages that found no room.
    pub dropped: AtomicU64,
    /// Attempts that failed, and were or will be made again.
    pub retries: AtomicU64,
    /// Failures of another kind than the one before: what was logged.
    pub errors: AtomicU64,
    /// Files begun, compressed and removed.
    pub files_begun: AtomicU64,
    pub files_compressed: AtomicU64,
    pub files_removed: AtomicU64,
    /// Messages that were written, and then a sync of them failed.
    pub unsure: AtomicU64,
    /// µs since 1970 of the first message that the thread has taken and not yet written, or 0.
    pub writing: AtomicU64,
    /// Messages that the thread has given up at its end.
    pub left: AtomicU64,
    /// Messages that were delivered out of a spool.
    pub replayed: AtomicU64,
    /// Messages of a spool that damage has destroyed, and files of it that were set aside.
    pub lost: AtomicU64,
    pub aside: AtomicU64,
    /// The reason why it does not write at this moment, and why what is spooled is not delivered.
    pub trouble: Mutex<Option<String>>,
    pub undelivered: Mutex<Option<String>>,
    spools: Mutex<Vec<Weak<Level>>>,
    links: Mutex<Vec<Weak<Link>>>,
}

/// The messages of a spool that wait.
#[derive(Debug, Default)]
pub struct Level {
    pub messages: AtomicU64,
    pub bytes: AtomicU64,
    /// µs since 1970 of the oldest; 0: none, or not known yet.
    pub oldest: AtomicU64,
}

/// A connection to a server that messages are sent to.
#[derive(Debug)]
pub struct Link {
    pub connected: AtomicBool,
    /// Set, it ends a delivery that waits.
    pub stop: Arc<AtomicBool>,
}

/// The surroundings of a store: what it says, and whom it wakes.
pub trait Host: Send + Sync {
    fn log(&self, warning: bool, text: String);
    /// Workers, a bit for each, that wait for progress of some store.
    fn progressed(&self, workers: u64);
    /// A store wrote something: clients waiting to read are notified.
    fn written(&self);
    /// The reply to a question of a connection.
    fn answer(&self, worker: usize, token: u64, reply: Vec<u8>);
    /// The store's thread has ended by a fault of its own.
    fn broke(&self, text: String);
    /// A spool begins to number messages for others under this origin.
    fn sends_as(&self, origin: u128);
    /// The time for dates, µs since 1970.
    fn now(&self) -> u64;
    /// Returns whether that has been right for long enough to delete by it.
    fn is_time_stable(&self) -> bool;
}

/// The store and the hub, as the sinks of a store see them.
#[derive(Clone)]
pub struct Surroundings {
    /// The name of the store whose queue it is.
    pub name: String,
    pub host: Arc<dyn Host>,
    /// Not held: who holds one may put something into its queue.
    store: Weak<Store>,
}

impl Surroundings {
    pub fn new(store: &Arc<Store>, host: Arc<dyn Host>) -> Surroundings {
        Surroundings { name: store.name.clone(), host, store: Arc::downgrade(store) }
    }

    pub fn say(&self, warning: bool, text: &str) {
        self.host.log(warning, format!("store {}: {text}", self.name));
    }

    pub fn figures(&self, count: impl FnOnce(&Figures)) {
        self.with(|store| count(&store.figures));
    }

    /// Does something with the store, as long as there is one.
    pub fn with(&self, work: impl FnOnce(&Store)) {
        if let Some(store) = self.store.upgrade() {
            work(&store);
        }
    }
}

impl Figures {
    pub fn add_level(&self, level: &Arc<Level>) {
        add(&self.spools, level);
    }

    pub fn add_link(&self, link: &Arc<Link>) {
        add(&self.links, link);
    }

    /// Ends deliveries that wait: the store ends.
    pub fn stop_links(&self) {
        let links = self.links.lock();
        links.iter().filter_map(Weak::upgrade).for_each(|link| link.stop.store(true, Relaxed));
    }

    /// Counts what file stores have done since `before`.
    pub fn count(&self, now: Counters, before: &mut Counters) {
        for (figure, now, before) in [
            (&self.files_begun, now.begun, before.begun),
            (&self.files_compressed, now.compressed, before.compressed),
            (&self.files_removed, now.removed, before.removed),
            (&self.unsure, now.unsure, before.unsure),
        ] {
            figure.fetch_add(now.saturating_sub(before), Relaxed);
        }
        *before = now;
    }

    /// The reason why messages are not where they belong.
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().clone();
        trouble.or_else(|| self.undelivered.lock().clone())
    }

    /// Messages and bytes that are spooled, and µs since 1970 of the oldest.
    fn spooled(&self) -> (u64, u64, Option<u64>) {
        let levels = self.spools.lock();
        let levels: Vec<Arc<Level>> = levels.iter().filter_map(Weak::upgrade).collect();
        let sum =
            |of: fn(&Level) -> &AtomicU64| levels.iter().map(|one| of(one).load(Relaxed)).sum();
        let oldest = levels.iter().map(|one| one.oldest.load(Relaxed)).filter(|time| *time > 0);
        (sum(|level| &level.messages), sum(|level| &level.bytes), oldest.min())
    }

    /// The number of servers it sends to, and of those it is connected with.
    fn upstreams(&self) -> (u64, u64) {
        let links = self.links.lock();
        let links: Vec<Arc<Link>> = links.iter().filter_map(Weak::upgrade).collect();
        let connected = links.iter().filter(|link| link.connected.load(Relaxed)).count();
        (links.len() as u64, connected as u64)
    }
}

fn add<T>(all: &Mutex<Vec<Weak<T>>>, one: &Arc<T>) {
    let mut all = all.lock();
    all.retain(|one| one.strong_count() > 0);
    all.push(Arc::downgrade(one));
}

impl Store {
    pub fn new(name: &str) -> Arc<Store> {
        let (queue, figures) = Default::default();
        Arc::new(Store { name: name.into(), queue, figures })
    }

    /// Its figures, by their names.
    pub fn told(&self, now: u64) -> Vec<(&'static str, u64)> {
        let (accepted, accepted_bytes) = self.queue.accepted();
        let figures = &self.figures;
        let read = |figure: &AtomicU64| figure.load(Relaxed);
        let writing = Some(read(&figures.writing)).filter(|time| *time > 0);
        let (spooled, spooled_bytes, spooled_oldest) = figures.spooled();
        let oldest = spooled_oldest.or(writing).or(self.queue.oldest());
        let age = oldest.map_or(0, |time| now.saturating_sub(time));
        let (upstreams, connected) = figures.upstreams();
        vec![
            ("accepted", accepted),
            ("accepted_bytes", accepted_bytes),
            ("written", read(&figures.written)),
            ("written_bytes", read(&figures.written_bytes)),
            ("in_flight", accepted.saturating_sub(self.queue.passed())),
            ("in_flight_bytes", self.queue.held() as u64),
            ("oldest_age_ms", age / 1000),
            ("spooled", spooled),
            ("spooled_bytes", spooled_bytes),
            ("replayed", read(&figures.replayed)),
            ("upstreams", upstreams),
            ("connected", connected),
            ("dropped", read(&figures.dropped)),
            ("retries", read(&figures.retries)),
            ("errors", read(&figures.errors)),
            ("unsure", read(&figures.unsure)),
            ("lost", read(&figures.lost)),
            ("set_aside", read(&figures.aside)),
            ("files_begun", read(&figures.files_begun)),
            ("files_compressed", read(&figures.files_compressed)),
            ("files_removed", read(&figures.files_removed)),
            ("failing", u64::from(figures.trouble().is_some())),
        ]
    }
}
