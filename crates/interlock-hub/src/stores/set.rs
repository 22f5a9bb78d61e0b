//! All stores of a hub: how they begin, change and end.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use interlock_stores::disk::folder::Folder;
use interlock_stores::file::Reader;
use parking_lot::{Mutex, RwLock};

use super::queue::End;
use super::settings::StoreSettings;
use super::store::{Host, Store};
use super::thread::begin;
use super::writer::StoreWriter;
use crate::glob;

/// The stores that there are.
#[derive(Default)]
pub struct Stores {
    current: RwLock<Arc<StoreSet>>,
    /// Threads of current stores, and of those being drained.
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

    /// Applies a new declaration. A store declared as before continues untouched; a changed one
    /// first writes what it was given; a removed one is drained by its own thread.
    ///
    /// # Errors
    ///
    /// Returns an error if no thread can be created; nothing has changed then.
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
                None => revived(&threads, &settings).unwrap_or_else(|| {
                    let store = Store::new(&settings.name);
                    begun.push((store.clone(), settings.kind.clone()));
                    store
                }),
            };
            stores.push(Kept { settings, store });
        }
        for (store, kind) in begun {
            let writer = StoreWriter::new(store.clone(), host.clone(), kind);
            let told = format!("store {}", store.name);
            let handle = match begin(told, host.clone(), move || writer.run()) {
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

    /// Writes out what waits, until that moment, and ends. Nobody puts anything any more. Returns the stores
    /// that hang in a call of the system, and how many messages each had still; the others say so themselves.
    pub fn stop(&self, until: Instant) -> Vec<(String, u64)> {
        *self.current.write() = Arc::default();
        for thread in self.threads.lock().iter() {
            thread.store.queue.order(|orders| orders.end = End::Within(until));
        }
        // A disk that hangs holds its thread for ever. They are looked at meanwhile.
        let is_writing = || self.threads.lock().iter().any(|thread| !thread.handle.is_finished());
        while is_writing() && Instant::now() < until + PATIENCE {
            std::thread::sleep(LOOK);
        }
        let mut hanging = Vec::new();
        for Thread { store, handle } in std::mem::take(&mut *self.threads.lock()) {
            if handle.is_finished() {
                let _ = handle.join();
            } else {
                let left = store.queue.accepted().0.saturating_sub(store.queue.passed());
                hanging.push((store.name.clone(), left));
            }
        }
        hanging
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
        let mut wanting = self.stores.iter().filter(|kept| kept.settings.wants(topic));
        wanting.find_map(|kept| {
            let (name, file) = kept.settings.kind.files(&kept.settings.name)?;
            let disk = Folder::new(file.template.folder());
            Some(Reader::new(disk, file.template.clone(), name, topic))
        })
    }

    /// A bit for each store that keeps a topic.
    pub fn wanting(&self, topic: &[u8]) -> u64 {
        let wants = self.stores.iter().map(|kept| kept.settings.wants(topic));
        wants.enumerate().fold(0, |mask, (place, wants)| mask | u64::from(wants) << place)
    }
}

/// Returns the store of this name that was ending, if it continues instead.
fn revived(threads: &[Thread], settings: &StoreSettings) -> Option<Arc<Store>> {
    let mut ending = threads.iter().map(|thread| &thread.store);
    let store = ending.find(|store| store.name == settings.name)?.clone();
    store.queue.revive(settings.kind.clone()).then_some(store)
}

impl StoreSettings {
    pub fn wants(&self, topic: &[u8]) -> bool {
        let any = |globs: &[Vec<u8>]| {
            globs.iter().any(|pattern| pattern == b"*" || glob::matches(pattern, topic))
        };
        self.filters.iter().any(|filter| any(&filter.topics) && !any(&filter.exclude))
    }
}

const LOOK: Duration = Duration::from_millis(2);
/// Time for a write that had begun before the time limit.
const PATIENCE: Duration = Duration::from_secs(3);
