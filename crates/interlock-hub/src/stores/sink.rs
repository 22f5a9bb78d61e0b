//! The place where a store's thread puts messages: a file store, or nowhere.

use std::collections::HashSet;

use interlock_stores::disk::folder::Folder;
use interlock_stores::file::{self, Counters, FileStore, Report, Taken};
use interlock_stores::StoreError;

use super::batch::Batch;
use super::settings::{FileSettings, StoreKind};

pub enum Sink {
    File(Box<FileStore<Folder>>),
    Null,
}

/// Messages that the thread has taken and that are not all written.
#[derive(Debug, Default)]
pub struct InHand {
    pub batches: Vec<Batch>,
    /// By message: the file store's ticket of it; `None`: it needs nothing more.
    tickets: Vec<Option<u64>>,
    appended: bool,
}

impl Sink {
    /// Opens the store. What was found there, if it is to be told.
    pub fn open(
        name: &str,
        kind: &StoreKind,
        now: u64,
    ) -> Result<(Sink, Option<Report>), StoreError> {
        let StoreKind::File(settings) = kind else { return Ok((Sink::Null, None)) };
        let disk = Folder::new(settings.template.folder());
        let (store, report) = FileStore::open(disk, told(name, settings), now)?;
        Ok((Sink::File(Box::new(store)), Some(report)))
    }

    /// Writes what is in hand; all of it is as safe as the store makes it when this returns.
    pub fn write(&mut self, hand: &mut InHand) -> Result<(), StoreError> {
        let Sink::File(store) = self else { return Ok(()) };
        if !hand.appended {
            let again = !hand.tickets.is_empty();
            let messages = hand.batches.iter().flat_map(Batch::iter);
            for (place, message) in messages.enumerate() {
                if again && hand.tickets[place].is_none() {
                    continue;
                }
                let ticket = match store.append(&message) {
                    Ok(Taken::Waits(ticket)) => Some(ticket),
                    // Longer ones are refused before they are taken.
                    Ok(Taken::Known) | Err(_) => None,
                };
                if again {
                    hand.tickets[place] = ticket;
                } else {
                    hand.tickets.push(ticket);
                }
            }
            hand.appended = true;
        }
        store.commit()
    }

    /// Takes back what is in hand and not written, before the store is closed.
    pub fn withdraw(&mut self, hand: &mut InHand) {
        let Sink::File(store) = self else { return };
        if std::mem::take(&mut hand.appended) {
            let left: HashSet<u64> = store.withdraw().into_iter().collect();
            for ticket in &mut hand.tickets {
                *ticket = ticket.filter(|ticket| left.contains(ticket));
            }
        }
    }

    /// To be called each second.
    pub fn tick(&mut self, now: u64) -> Result<(), StoreError> {
        match self {
            Sink::File(store) => store.tick(now),
            Sink::Null => Ok(()),
        }
    }

    /// Does a piece of what can wait; returns whether there is more.
    pub fn upkeep(&mut self, now: u64) -> Result<bool, StoreError> {
        match self {
            Sink::File(store) => store.upkeep(now),
            Sink::Null => Ok(false),
        }
    }

    pub fn rotate(&mut self) -> Result<(), StoreError> {
        match self {
            Sink::File(store) => store.rotate(),
            Sink::Null => Ok(()),
        }
    }

    pub fn close(self) -> Result<(), StoreError> {
        match self {
            Sink::File(store) => store.close(),
            Sink::Null => Ok(()),
        }
    }

    pub fn counters(&self) -> Counters {
        match self {
            Sink::File(store) => store.counters(),
            Sink::Null => Counters::default(),
        }
    }
}

impl InHand {
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub fn messages(&self) -> u64 {
        self.batches.iter().map(|batch| batch.len() as u64).sum()
    }

    pub fn weight(&self) -> usize {
        self.batches.iter().map(Batch::weight).sum()
    }

    pub fn payload(&self) -> u64 {
        self.batches.iter().map(Batch::payload).sum()
    }

    /// All of it is written.
    pub fn clear(&mut self) {
        self.batches.clear();
        self.tickets.clear();
        self.appended = false;
    }

    /// Messages of it that are not written.
    pub fn left(&self) -> u64 {
        if self.tickets.is_empty() {
            return self.messages();
        }
        self.tickets.iter().flatten().count() as u64
    }
}

fn told(name: &str, settings: &FileSettings) -> file::Settings {
    let FileSettings { template, fsync, rotation, retention, compression } = settings.clone();
    let settings = file::Settings::new(name, template);
    file::Settings { fsync, rotation, retention, compression, ..settings }
}
