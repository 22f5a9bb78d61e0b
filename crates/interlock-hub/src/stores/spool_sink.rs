//! A spool as a sink: messages are kept, and a thread of its own delivers them to the sink below.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use interlock_journal::storage::disk::Disk;
use interlock_journal::{JournalError, OpenError};
use interlock_stores::file::Fsync;
use interlock_stores::spool::{Durability, Report, Settings, Spool, SpoolError};
use interlock_stores::StoreError;
use ring::rand::{SecureRandom, SystemRandom};

use super::load::{Left, Load};
use super::pump::{Build, Pump};
use super::queue::End;
use super::settings::{Child, SpoolSettings, StoreKind};
use super::sink::Sink;
use super::spooling::Spooling;
use super::store::{Figures, Surroundings};
use super::thread::begin;

pub struct SpoolSink {
    settings: SpoolSettings,
    child: Child,
    build: Build,
    around: Surroundings,
    spool: Arc<Spooling>,
    pump: Option<JoinHandle<()>>,
    /// Origins and numbers of the messages it was given: they keep them, however often they are put in.
    numbers: Vec<(u128, u64)>,
    /// Number of the remaining messages that are in it.
    appended: usize,
    /// The place of the last message of all.
    last: u64,
    /// The previously open spool: its origin, and up to which place it is delivered.
    before: Option<(u128, u64)>,
    /// The store is to be another: once all is delivered, this one ends.
    is_leaving: bool,
    /// The store has been removed.
    is_removed: bool,
}

impl SpoolSink {
    pub fn new(
        settings: &SpoolSettings,
        child: &Child,
        build: Build,
        around: Surroundings,
    ) -> SpoolSink {
        SpoolSink {
            settings: settings.clone(),
            child: child.clone(),
            build,
            spool: Spooling::new(around.clone()),
            around,
            pump: None,
            numbers: Vec::new(),
            appended: 0,
            last: 0,
            before: None,
            is_leaving: false,
            is_removed: false,
        }
    }

    fn failed(&mut self, doing: &str, error: SpoolError) -> StoreError {
        let folder = self.settings.folder.display().to_string();
        match &error {
            SpoolError::Full { .. } => self.spool.wait_for_room(),
            // It is unknown what was written last: the spool is read again, and missing messages are
            // rewritten.
            SpoolError::Journal(JournalError::Failed(_) | JournalError::Closed) => {
                self.give_up();
            }
            SpoolError::Journal(_) => {}
        }
        error.at(doing, &folder)
    }

    /// Closes it without a word, to be opened anew.
    fn give_up(&mut self) {
        if let Some(spool) = self.spool.closed() {
            self.before = Some((spool.origin(), spool.forgotten()));
            // These will be delivered again.
            self.spool.level.messages.fetch_sub(self.appended as u64, Relaxed);
        }
        self.appended = 0;
    }

    fn open_spool(&mut self) -> Result<(), StoreError> {
        let folder = self.settings.folder.clone();
        let shown = folder.display().to_string();
        let failed = |error| StoreError::new("opening the spool", &shown, error);
        let disk = Disk::open(&folder).map_err(failed)?;
        let mut fresh = [0; 16];
        SystemRandom::new()
            .fill(&mut fresh)
            .map_err(|_| failed(std::io::Error::other("the system has no random numbers")))?;
        let settings = Settings::new(self.settings.bytes);
        let now = self.around.host.now();
        // The last byte counts the hubs that a message has come through.
        fresh[0] = 0;
        let (spool, report) = Spool::open(disk, settings, now, u128::from_le_bytes(fresh))
            .map_err(|error| open_error(error, &folder))?;
        let is_whole = report.journal.aside.is_none() && report.aside.is_empty();
        let delivered = match self.before.take() {
            // After a repair places are others.
            Some((origin, delivered)) if origin == spool.origin() && is_whole => delivered,
            Some((origin, _)) if origin != spool.origin() => {
                let gone = self.spool.level.messages.load(Relaxed);
                self.around.figures(|figures| {
                    figures.lost.fetch_add(gone, Relaxed);
                });
                if gone > 0 {
                    let text = format!(
                        "the spool in {shown} was removed, and {gone} messages that waited in it \
                         are lost, except those in flight; it is created again"
                    );
                    self.around.say(true, &text);
                }
                0
            }
            _ => 0,
        };
        self.tell(&report, &shown);
        self.around.host.sends_as(spool.origin());
        self.spool.opened(spool, delivered);
        Ok(())
    }

    fn tell(&self, report: &Report, shown: &str) {
        let is_damaged =
            report.journal.aside.is_some() || !report.aside.is_empty() || report.renamed;
        self.around.figures(|figures| {
            figures.lost.fetch_add(report.lost, Relaxed);
            figures.aside.fetch_add(report.aside.len() as u64, Relaxed);
        });
        // A line of the log.
        let text = match (is_damaged, report.messages) {
            (true, _) => report.to_string().replace('\n', "; "),
            (false, 0) => return,
            (false, messages) => format!("{messages} messages wait"),
        };
        self.around.say(is_damaged, &format!("spool {shown}: {text}"));
    }

    fn begin_pump(&mut self) -> Result<(), StoreError> {
        let sender = self.spool.look(Spool::origin).unwrap_or(0);
        let (spool, around) = (self.spool.clone(), self.around.clone());
        let pump = Pump::new(spool, around, self.child.clone(), self.build, sender);
        let told = format!("pump of store {}", self.around.name);
        let begun = begin(told, self.around.host.clone(), move || pump.run());
        let failed = |error| StoreError::new("beginning the thread of", &self.around.name, error);
        self.pump = Some(begun.map_err(failed)?);
        Ok(())
    }

    fn append(&mut self, load: &Load, left: &Left) -> Result<(), SpoolError> {
        let (numbers, appended, last) = (&mut self.numbers, &mut self.appended, &mut self.last);
        let before = *appended;
        let level = &self.spool.level;
        let done = self.spool.change(|spool| {
            let (_, bytes) = spool.waiting();
            let mut result = Ok(());
            for (_, message) in left.of(load).skip(before) {
                let message = match numbers.get(*appended) {
                    Some(&(origin, number)) => {
                        interlock_stores::Message { origin, number, ..message }
                    }
                    None => {
                        let message = spool.numbered(&message);
                        numbers.push((message.origin, message.number));
                        message
                    }
                };
                match spool.append(&message) {
                    Ok(place) => (*last, *appended) = (place, *appended + 1),
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
            }
            level.messages.fetch_add((*appended - before) as u64, Relaxed);
            level.bytes.fetch_add(spool.waiting().1.saturating_sub(bytes), Relaxed);
            result
        });
        done.unwrap_or(Err(SpoolError::Journal(JournalError::Closed)))
    }

    fn commit(&self) -> Result<(), SpoolError> {
        let durability = match self.settings.fsync {
            Fsync::Always => Durability::Always,
            Fsync::EverySecond => Durability::EverySecond,
            Fsync::Never => Durability::None,
        };
        let done = self.spool.look(|spool| spool.commit(durability));
        let done = done.unwrap_or(Err(SpoolError::Journal(JournalError::Closed)));
        if done.is_ok() {
            self.spool.arrived();
        }
        done
    }
}

impl Sink for SpoolSink {
    fn open(&mut self) -> Result<(), StoreError> {
        if !self.spool.is_open() {
            self.open_spool()?;
        }
        if self.pump.is_none() {
            self.begin_pump()?;
        }
        Ok(())
    }

    fn write(&mut self, load: &Load, left: &mut Left) -> Result<(), StoreError> {
        self.open()?;
        let appended = self.append(load, left);
        // The messages that had room are delivered, whatever happens to the rest.
        if self.appended > 0 {
            self.commit().map_err(|error| self.failed("writing the spool", error))?;
        }
        appended.map_err(|error| self.failed("writing the spool", error))?;
        self.numbers.clear();
        self.appended = 0;
        left.all_done();
        Ok(())
    }

    fn withdraw(&mut self, _load: &Load, left: &mut Left) {
        let appended = std::mem::take(&mut self.appended);
        self.numbers.clear();
        if appended > 0 && self.commit().is_ok() {
            left.first_done(appended);
        }
    }

    fn tick(&mut self, _now: u64) -> Result<(), StoreError> {
        if self.spool.is_unreadable() {
            self.give_up();
        }
        // Waiting messages must be delivered even if no new ones arrive.
        self.open()?;
        match self.spool.change(Spool::tick) {
            Some(Err(error)) => Err(self.failed("keeping the spool", error)),
            Some(Ok(())) | None => Ok(()),
        }
    }

    fn rotate(&mut self) -> Result<(), StoreError> {
        self.spool.order(|orders| orders.rotate = true);
        Ok(())
    }

    fn reached(&mut self, ticket: u64) {
        self.spool.mark(self.last, ticket);
    }

    fn turn(&mut self, kind: &StoreKind) -> bool {
        let child = match kind {
            StoreKind::Spool(settings, child) => {
                self.is_leaving = settings.folder != self.settings.folder
                    || settings.bytes != self.settings.bytes;
                self.settings.fsync = settings.fsync;
                (**child).clone()
            }
            kind => {
                self.is_leaving = true;
                Child { name: self.around.name.clone(), kind: kind.clone() }
            }
        };
        if child != self.child {
            self.child = child.clone();
            // Messages that wait for the old server need not be finished first.
            self.around.figures(Figures::stop_links);
            self.spool.order(|orders| orders.child = Some(child));
        }
        self.is_removed = false;
        self.spool.set_ending(self.is_leaving);
        if self.is_leaving && self.waiting() > 0 {
            let text = format!(
                "{} messages wait in {}: they are delivered first, then the new settings apply",
                self.waiting(),
                self.settings.folder.display()
            );
            self.around.say(false, &text);
        }
        true
    }

    fn is_past(&self) -> bool {
        self.is_leaving && self.appended == 0 && self.spool.is_open() && self.waiting() == 0
    }

    fn waiting(&self) -> u64 {
        self.spool.level.messages.load(Relaxed)
    }

    fn end(&mut self, end: End) {
        self.spool.set_ending(end != End::No || self.is_leaving);
        self.is_removed |= end == End::Drained;
        if let (End::Drained, true) = (end, self.waiting() > 0) {
            let text = format!(
                "it was removed, and {} messages wait in {}: they are delivered while this hub \
                 runs",
                self.waiting(),
                self.settings.folder.display()
            );
            self.around.say(true, &text);
        }
    }

    fn close(mut self: Box<Self>) -> Result<(), StoreError> {
        self.spool.order(|orders| orders.end = true);
        self.around.figures(Figures::stop_links);
        if let Some(pump) = self.pump.take() {
            let most = Instant::now() + GRACE;
            while !pump.is_finished() && Instant::now() < most {
                std::thread::sleep(LOOK);
            }
            // One that hangs finds it closed, and ends.
            if pump.is_finished() {
                let _ = pump.join();
            }
        }
        let waiting = self.waiting();
        let folder = self.settings.folder.display().to_string();
        if waiting > 0 {
            let then = if self.is_removed || self.is_leaving {
                "a store that has this folder as its spool delivers them"
            } else {
                "the next start delivers them"
            };
            self.around.say(true, &format!("{waiting} messages stay spooled in {folder}: {then}"));
        }
        match self.spool.closed() {
            Some(spool) => spool.close().map_err(|error| error.at("closing the spool", &folder)),
            None => Ok(()),
        }
    }
}

fn open_error(error: OpenError, folder: &Path) -> StoreError {
    let (kind, text) = match error {
        OpenError::Locked(_) => (std::io::ErrorKind::ResourceBusy, "it is already open".into()),
        OpenError::Disk { doing, error } => (error.kind(), format!("{doing}: {error}")),
        error => (std::io::ErrorKind::InvalidData, error.to_string()),
    };
    let error = std::io::Error::new(kind, text);
    StoreError::new("opening the spool", &folder.display().to_string(), error)
}

/// Time for the delivery in progress when it is closed.
const GRACE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(2);
