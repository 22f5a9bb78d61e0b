//! A store of the hub: its queue, what is counted of it, and its thread's handle.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

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
    /// µs since 1970 of the first message that the thread has taken and not yet written; 0: there is none.
    pub writing: AtomicU64,
    /// Messages that the thread has given up at its end.
    pub left: AtomicU64,
    /// The reason why it does not write at this moment.
    pub trouble: Mutex<Option<String>>,
}

/// The surroundings of a store: what it says, and whom it wakes.
pub trait Host: Send + Sync {
    fn log(&self, warning: bool, text: String);
    /// Workers, a bit for each, that wait for progress of some store.
    fn progressed(&self, workers: u64);
    /// A store wrote something: who waits to read is told.
    fn written(&self);
    /// The reply to a question of a connection.
    fn answer(&self, worker: usize, token: u64, reply: Vec<u8>);
    /// The store's thread has ended by a fault of its own.
    fn broke(&self, text: String);
    /// µs since 1970.
    fn now(&self) -> u64;
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
        let oldest = writing.or(self.queue.oldest());
        let age = oldest.map_or(0, |time| now.saturating_sub(time));
        vec![
            ("accepted", accepted),
            ("accepted_bytes", accepted_bytes),
            ("written", read(&figures.written)),
            ("written_bytes", read(&figures.written_bytes)),
            ("in_flight", accepted.saturating_sub(self.queue.passed())),
            ("in_flight_bytes", self.queue.held() as u64),
            ("oldest_age_ms", age / 1000),
            ("dropped", read(&figures.dropped)),
            ("retries", read(&figures.retries)),
            ("errors", read(&figures.errors)),
            ("unsure", read(&figures.unsure)),
            ("files_begun", read(&figures.files_begun)),
            ("files_compressed", read(&figures.files_compressed)),
            ("files_removed", read(&figures.files_removed)),
            ("failing", u64::from(figures.trouble.lock().is_some())),
        ]
    }
}
