//! All stores of a hub: how they begin, change and end.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use interlock_stores::disk::folder::Folder;
use interlock_stores::file::Reader;
use parking_lot::{Mutex, RwLock};

use super::queue::End;
use super::settings::{StoreKind, StoreSettings};
use super::store::{Host, Store};
use super::writer::StoreWriter;
use crate::glob;
use crate::signals::BlockedSignals;

/// The stores that there are.
#[derive(Default)]
pub struct Stores {
    current: RwLock<Arc<StoreSet>>,
    /// Of those that there are, and of those that are being drained.
    threads: Mutex<Vec<Thread>>,
}

/// The stores as they are declared at one time.
#[derive(Default)]
pub struct StoreSet {
    pub stores: Vec<Kept>,
}

/// A store with what was declared of it.
pub struct Kept {
    pub settings: StoreSettings,
    pub store: Arc<Store>,
}

struct Thread {
    store: Arc<Store>,
    handle: JoinHandle<()>,
}

impl Stores {
    pub fn current(&self) -> Arc<StoreSet> {
        self.current.read().clone()
    }

    /// From now on there are these. One that is declared as before goes on untouched; one that is declared
    /// otherwise writes what it was given first; one that is no more is drained by its own thread.
    ///
    /// # Errors
    ///
    /// If there is no thread to be had: then all is as it was.
    pub fn apply(&self, declared: Vec<StoreSettings>, host: &Arc<dyn Host>) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.handle.is_finished());
        let before = self.current();
        let mut stores = Vec::new();
        let mut begun = Vec::new();
        for settings in declared {
            let known = before.stores.iter().find(|kept| kept.settings.name == settings.name);
            let store = match known {
                Some(kept) => kept.store.clone(),
                None => {
                    let store = Store::new(&settings.name);
                    begun.push((store.clone(), settings.kind.clone()));
                    store
                }
            };
            stores.push(Kept { settings, store });
        }
        for (store, kind) in begun {
            let writer = StoreWriter::new(store.clone(), host.clone(), kind);
            let handle = match begin(&store, writer, host.clone()) {
                Ok(handle) => handle,
                Err(error) => {
                    for Thread { store, .. } in threads.iter() {
                        if !before.stores.iter().any(|kept| Arc::ptr_eq(&kept.store, store)) {
                            store.queue.order(|orders| orders.end = End::Drained);
                        }
                    }
                    return Err(error);
                }
            };
            threads.push(Thread { store, handle });
        }
        for kept in &before.stores {
            let now = stores.iter().find(|one| Arc::ptr_eq(&one.store, &kept.store));
            kept.store.queue.order(|orders| match now {
                None => orders.end = End::Drained,
                Some(now) if now.settings.kind != kept.settings.kind => {
                    orders.kind = Some(now.settings.kind.clone());
                }
                Some(_) => {}
            });
        }
        *self.current.write() = Arc::new(StoreSet { stores });
        Ok(())
    }

    /// Begins new files, where there are messages in the old ones.
    pub fn rotate(&self) {
        for kept in &self.current().stores {
            kept.store.queue.order(|orders| orders.rotate = true);
        }
    }

    /// Writes out what waits, until that moment, and ends. Nobody puts anything any more. Returns how many
    /// messages were not written.
    pub fn stop(&self, until: Instant) -> u64 {
        *self.current.write() = Arc::default();
        for thread in self.threads.lock().iter() {
            thread.store.queue.order(|orders| orders.end = End::Within(until));
        }
        // A disk that hangs holds its thread for ever. They are looked at meanwhile.
        let is_writing = || self.threads.lock().iter().any(|thread| !thread.handle.is_finished());
        while is_writing() && Instant::now() < until + PATIENCE {
            std::thread::sleep(LOOK);
        }
        let mut left = 0;
        for Thread { store, handle } in std::mem::take(&mut *self.threads.lock()) {
            if handle.is_finished() {
                let _ = handle.join();
                left += store.figures.left.load(std::sync::atomic::Ordering::Relaxed);
            } else {
                left += store.queue.accepted().0.saturating_sub(store.queue.passed());
            }
        }
        left
    }

    /// The figures of each store by its name, those that are being drained among them.
    pub fn told(&self, now: u64) -> Vec<(String, Vec<(&'static str, u64)>)> {
        let threads = self.threads.lock();
        let running = threads.iter().filter(|thread| !thread.handle.is_finished());
        running.map(|thread| (thread.store.name.clone(), thread.store.told(now))).collect()
    }
}

impl StoreSet {
    /// Returns a reader of a topic, of the first store that keeps it in files.
    pub fn reader(&self, topic: &[u8]) -> Option<Reader<Folder>> {
        self.stores.iter().find_map(|kept| match &kept.settings.kind {
            StoreKind::File(file) if kept.settings.wants(topic) => {
                let disk = Folder::new(file.template.folder());
                Some(Reader::new(disk, file.template.clone(), &kept.settings.name, topic))
            }
            _ => None,
        })
    }

    /// A bit for each store that keeps a topic.
    pub fn wanting(&self, topic: &[u8]) -> u64 {
        let wants = self.stores.iter().map(|kept| kept.settings.wants(topic));
        wants.enumerate().fold(0, |mask, (place, wants)| mask | u64::from(wants) << place)
    }
}

impl StoreSettings {
    pub fn wants(&self, topic: &[u8]) -> bool {
        let any = |globs: &[Vec<u8>]| {
            globs.iter().any(|pattern| pattern == b"*" || glob::matches(pattern, topic))
        };
        any(&self.topics) && !any(&self.exclude)
    }
}

fn begin(
    store: &Store,
    writer: StoreWriter,
    host: Arc<dyn Host>,
) -> std::io::Result<JoinHandle<()>> {
    // Signals are for the thread that started the hub.
    let _signals = BlockedSignals::block();
    let name = store.name.clone();
    Builder::new().name(format!("store-{name}")).spawn(move || {
        let run = AssertUnwindSafe(|| writer.run());
        if let Err(panic) = catch_unwind(run) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            host.broke(format!("store {name} has ended by a fault of the hub: {text}"));
        }
    })
}

const LOOK: Duration = Duration::from_millis(2);
/// For a write that was begun before the time was over.
const PATIENCE: Duration = Duration::from_secs(3);
