//! A sink that writes to a file store.

use std::collections::HashSet;

use interlock_stores::disk::folder::Folder;
use interlock_stores::file::{self, Counters, FileStore, Taken};
use interlock_stores::StoreError;

use super::load::{Left, Load};
use super::settings::FileSettings;
use super::sink::Sink;
use super::store::Surroundings;

pub struct FileSink {
    settings: file::Settings,
    around: Surroundings,
    store: Option<FileStore<Folder>>,
    /// Messages not yet written: index and the store's ticket.
    tickets: Vec<(usize, u64)>,
    appended: bool,
}

impl FileSink {
    pub fn new(name: &str, settings: &FileSettings, around: Surroundings) -> FileSink {
        let FileSettings { template, fsync, rotation, retention, compression } = settings.clone();
        let settings = file::Settings::new(name, template);
        let settings = file::Settings { fsync, rotation, retention, compression, ..settings };
        FileSink { settings, around, store: None, tickets: Vec::new(), appended: false }
    }

    fn opened(&mut self) -> Result<&mut FileStore<Folder>, StoreError> {
        if self.store.is_none() {
            let disk = Folder::new(self.settings.template.folder());
            let now = self.around.host.now();
            let (store, report) = FileStore::open(disk, self.settings.clone(), now)?;
            // A line of the log.
            let text = report.to_string().replace('\n', "; ");
            self.around.say(!report.is_clean(), &format!("open: {text}"));
            self.store = Some(store);
        }
        let (now, ages) = (self.around.host.now(), self.around.host.is_time_stable());
        let store = self.store.as_mut().expect("just opened");
        store.set_clock(now, ages);
        Ok(store)
    }
}

impl Sink for FileSink {
    fn open(&mut self) -> Result<(), StoreError> {
        self.opened().map(drop)
    }

    fn write(&mut self, load: &Load, left: &mut Left) -> Result<(), StoreError> {
        if !self.appended {
            let store = self.opened()?;
            let mut tickets = Vec::new();
            for (place, message) in left.of(load) {
                match store.append(&message) {
                    Ok(Taken::Waits(ticket)) => tickets.push((place, ticket)),
                    // Longer ones are refused before they are taken.
                    Ok(Taken::Known) | Err(_) => {}
                }
            }
            (self.tickets, self.appended) = (tickets, true);
        }
        self.opened()?.commit()?;
        self.appended = false;
        self.tickets.clear();
        left.all_done();
        Ok(())
    }

    fn withdraw(&mut self, load: &Load, left: &mut Left) {
        let Some(store) = self.store.as_mut().filter(|_| self.appended) else { return };
        let waiting: HashSet<u64> = store.withdraw().into_iter().collect();
        let kept: HashSet<usize> = std::mem::take(&mut self.tickets)
            .into_iter()
            .filter(|(_, ticket)| waiting.contains(ticket))
            .map(|(place, _)| place)
            .collect();
        for place in 0..load.len() {
            if !kept.contains(&place) {
                left.done(place);
            }
        }
        self.appended = false;
    }

    fn tick(&mut self, now: u64) -> Result<(), StoreError> {
        let ages = self.around.host.is_time_stable();
        self.store.as_mut().map_or(Ok(()), |store| {
            store.set_clock(now, ages);
            store.tick(now)
        })
    }

    fn upkeep(&mut self, now: u64) -> Result<bool, StoreError> {
        self.store.as_mut().map_or(Ok(false), |store| store.upkeep(now))
    }

    fn rotate(&mut self) -> Result<(), StoreError> {
        self.store.as_mut().map_or(Ok(()), FileStore::rotate)
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.store.map_or(Ok(()), FileStore::close)
    }

    fn counters(&self) -> Counters {
        self.store.as_ref().map_or(Counters::default(), FileStore::counters)
    }
}
