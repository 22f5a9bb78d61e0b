//! The file store: messages are taken, written together, and kept as its settings say.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::disk::{parent, Disk};
use crate::error::StoreError;
use crate::file::compress::Compression;
use crate::file::files::{Closed, Files};
use crate::file::settings::{Fsync, Settings};
use crate::file::writing::chain::Chain;
use crate::file::writing::segment::{Batch, Waiting};
use crate::message::Message;

/// Most bytes of a topic.
pub const LONGEST_TOPIC: usize = 64 << 10;
/// Most bytes of a payload.
pub const LONGEST_PAYLOAD: usize = 1 << 30;

/// A store that keeps messages in files. One thread uses it; others read with a
/// [`Reader`](crate::file::Reader), in any process.
///
/// Messages are [taken](Self::append), and written by a [commit](Self::commit). If that fails they stay
/// here, and the next commit tries again; a caller that has another place for them can have them
/// [back](Self::withdraw).
#[derive(Debug)]
pub struct FileStore<D: Disk> {
    pub(in crate::file) disk: D,
    pub(in crate::file) settings: Settings,
    pub(in crate::file) chains: Vec<Chain<D::File>>,
    pub(in crate::file) by_topic: HashMap<Vec<u8>, usize>,
    pub(in crate::file) shared: Option<usize>,
    /// Chains with messages that wait, and those of which something may not be on disk.
    listed: Vec<usize>,
    pub(in crate::file) unsynced: Vec<usize>,
    /// Work that is due, and done piece by piece: thousands of files must not hold up the next message.
    pub(in crate::file) due: VecDeque<Due>,
    /// Chains of which files are open.
    pub(in crate::file) open: Vec<usize>,
    pub(in crate::file) uses: u64,
    /// Folders with names in them that may not be on disk.
    pub(in crate::file) folders: BTreeSet<String>,
    /// Files that were to get another name, and may have it by halves.
    pub(in crate::file) renames: BTreeMap<String, (String, u64)>,
    /// The latest time of any message: none is before it.
    pub(in crate::file) time: u64,
    /// The time of day, for the dates in names; see [`FileStore::set_clock`].
    present: u64,
    /// Files may go by their age.
    pub(in crate::file) ages: bool,
    tickets: u64,
    pub(in crate::file) files: Files,
    pub(in crate::file) compression: Option<Compression<D::File>>,
    /// The times of the last sync, and of the last look for old files.
    pub(in crate::file) synced: u64,
    pub(in crate::file) aged: u64,
    pub(in crate::file) period: (i64, i64),
    /// The minute that is the same period, and which one.
    known_period: Option<(u64, (i64, i64))>,
    pub(in crate::file) counters: Counters,
    pub(in crate::file) _lock: D::Lock,
}

/// Times of messages may be ahead of the time of day by this much before names no longer follow them, µs.
const AHEAD: u64 = 60_000_000;
/// Most files that a tick syncs or closes; the rest is done in pieces, between messages.
pub(in crate::file) const AT_ONCE: usize = 64;

/// Work of a chain that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) enum Due {
    Sync(usize),
    /// Its file has ended.
    Close(usize),
}

/// The outcome for a message that was given to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The message is written by the next commit. The number rises by one per message.
    Waits(u64),
    /// The message is stored already, or waits: only that commit is needed.
    Known,
}

/// The reason why a message was not taken: it is longer than one may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLong {
    Topic { bytes: usize, most: usize },
    Payload { bytes: usize, most: usize },
}

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, bytes, most) = match self {
            TooLong::Topic { bytes, most } => ("topic", bytes, most),
            TooLong::Payload { bytes, most } => ("payload", bytes, most),
        };
        write!(f, "a {what} of {bytes} bytes; allowed: at most {most}")
    }
}

impl std::error::Error for TooLong {}

/// Counts of what was done since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that are written, and bytes of their payloads.
    pub messages: u64,
    pub bytes: u64,
    /// Messages that were here before.
    pub known: u64,
    /// Files that were begun, closed, compressed and removed.
    pub begun: u64,
    pub closed: u64,
    pub compressed: u64,
    pub removed: u64,
    /// Files that were given up because they, or a sync of them, were lost.
    pub given_up: u64,
    /// Messages that were acknowledged, and then a sync of them failed: they may be lost.
    pub unsure: u64,
    /// Commits that failed.
    pub failures: u64,
}

impl Counters {
    /// Returns the sum of the counters of two stores.
    #[must_use]
    pub fn and(self, other: Counters) -> Counters {
        Counters {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
            known: self.known + other.known,
            begun: self.begun + other.begun,
            closed: self.closed + other.closed,
            compressed: self.compressed + other.compressed,
            removed: self.removed + other.removed,
            given_up: self.given_up + other.given_up,
            unsure: self.unsure + other.unsure,
            failures: self.failures + other.failures,
        }
    }
}

impl<D: Disk> FileStore<D> {
    pub(in crate::file) fn new(disk: D, settings: Settings, lock: D::Lock, now: u64) -> Self {
        let period = settings.period(now);
        FileStore {
            disk,
            settings,
            chains: Vec::new(),
            by_topic: HashMap::new(),
            shared: None,
            listed: Vec::new(),
            unsynced: Vec::new(),
            due: VecDeque::new(),
            open: Vec::new(),
            uses: 0,
            folders: BTreeSet::new(),
            renames: BTreeMap::new(),
            time: 0,
            present: u64::MAX,
            ages: true,
            tickets: 0,
            files: Files::default(),
            compression: None,
            synced: now,
            aged: now,
            period,
            known_period: None,
            counters: Counters::default(),
            _lock: lock,
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Tells the store the time of day, and whether that can be trusted enough to delete files by their age.
    ///
    /// Times of messages never fall. After a clock that was far ahead was set right, they stay where they are until
    /// the clock has caught up; the names of new files have the true date all the same. Without this call
    /// the times of messages are believed.
    pub fn set_clock(&mut self, now: u64, ages: bool) {
        (self.present, self.ages) = (now, ages);
    }

    /// The time that the name of a file is to have for a message of this time.
    pub(in crate::file) fn dated(&self, time: u64) -> u64 {
        if time > self.present.saturating_add(AHEAD) {
            return self.present;
        }
        time
    }

    /// Returns the number of files of the store, and their bytes with those of their indexes.
    pub fn usage(&self) -> (u64, u64) {
        let segments = self.chains.iter().filter_map(|chain| chain.segment.as_ref());
        segments.fold((self.files.count(), self.files.bytes()), |(files, bytes), segment| {
            (files + 1, bytes + segment.data_end + segment.index_end)
        })
    }

    /// Takes a message, which the next commit writes.
    ///
    /// # Errors
    ///
    /// If its topic or its payload is too long.
    pub fn append(&mut self, message: &Message<'_>) -> Result<Taken, TooLong> {
        let (topic, payload) = (message.topic.len(), message.payload.len());
        if topic > LONGEST_TOPIC {
            return Err(TooLong::Topic { bytes: topic, most: LONGEST_TOPIC });
        }
        if payload > LONGEST_PAYLOAD {
            return Err(TooLong::Payload { bytes: payload, most: LONGEST_PAYLOAD });
        }
        let place = self.chain_of(message.topic);
        let chain = &mut self.chains[place];
        if chain.knows(message) {
            self.counters.known += 1;
            // The previous process may have written it without syncing or reporting it; now it is
            // reported.
            let dirty = chain.segment.as_ref().is_some_and(|segment| segment.dirty);
            if dirty && !std::mem::replace(&mut chain.listed, true) {
                self.listed.push(place);
            }
            return Ok(Taken::Known);
        }
        // A clock that was set back leads to no older file.
        self.time = self.time.max(message.time);
        self.tickets += 1;
        chain.take(message, self.time, self.tickets);
        if !std::mem::replace(&mut chain.listed, true) {
            self.listed.push(place);
        }
        Ok(Taken::Waits(self.tickets))
    }

    /// Returns the chain of a topic, creating it if necessary.
    pub(in crate::file) fn chain_of(&mut self, topic: &[u8]) -> usize {
        let by_topic = self.settings.template.by_topic();
        let known = if by_topic { self.by_topic.get(topic).copied() } else { self.shared };
        known.unwrap_or_else(|| {
            let place = self.chains.len();
            self.chains.push(Chain::new(by_topic.then(|| topic.to_vec())));
            if by_topic {
                self.by_topic.insert(topic.to_vec(), place);
            } else {
                self.shared = Some(place);
            }
            place
        })
    }

    /// Returns the number of messages that wait for a commit.
    pub fn waiting(&self) -> usize {
        self.listed.iter().map(|place| self.chains[*place].waiting.messages.len()).sum()
    }

    /// Returns whether a message is stored, or waits: a repeated one is not stored again.
    pub fn knows(&self, message: &Message<'_>) -> bool {
        let by_topic = self.settings.template.by_topic();
        let place = if by_topic { self.by_topic.get(message.topic).copied() } else { self.shared };
        place.is_some_and(|place| self.chains[place].knows(message))
    }

    /// Returns the number of messages that are written and of which it is not known that they are on disk.
    pub fn unsynced_messages(&self) -> u64 {
        let of = |place: &usize| {
            let chain = &self.chains[*place];
            chain.kept.sequence.saturating_sub(chain.durable)
        };
        let due = self.due.iter().filter_map(|due| match due {
            Due::Sync(place) => Some(place),
            Due::Close(_) => None,
        });
        self.unsynced.iter().chain(due).map(of).sum()
    }

    /// Writes all messages that wait. When it returns they are as safe as the fsync policy says.
    ///
    /// # Errors
    ///
    /// If some are not: those wait still, in their order, and none of them counts as written. The others
    /// are written. To be called again later, after a pause that grows.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        let listed = std::mem::take(&mut self.listed);
        let mut failed = None;
        for &place in &listed {
            if let Err(error) = self.write(place) {
                failed.get_or_insert(error);
            }
        }
        for &place in &listed {
            // Some waiting messages may be in a file that was closed meanwhile, and is on disk.
            let unsynced = self.chains[place].segment.as_ref().is_some_and(|one| one.dirty)
                || self.chains[place].waiting.written > 0;
            if self.settings.fsync == Fsync::Always && unsynced {
                if let Err(error) = self.sync(place) {
                    failed.get_or_insert(error);
                }
            }
            self.settle(place);
            let chain = &mut self.chains[place];
            if chain.waiting.messages.is_empty() {
                chain.listed = false;
            } else {
                self.listed.push(place);
            }
        }
        if self.listed.is_empty() {
            // A chain that failed and was synced after all has nothing that waits.
            return failed.map_or(Ok(()), Err);
        }
        self.counters.failures += 1;
        Err(failed.expect("whatever was not written has its reason"))
    }

    /// Keeps what was written of a chain.
    pub(in crate::file) fn settle(&mut self, place: usize) {
        let chain = &mut self.chains[place];
        let written = &chain.waiting.messages[..chain.waiting.written];
        self.counters.bytes += written.iter().map(|one| one.payload.len() as u64).sum::<u64>();
        self.counters.messages += chain.settle() as u64;
    }

    /// Drops the messages that wait, after a commit failed; returns their tickets. They are not written, and
    /// not known as stored.
    pub fn withdraw(&mut self) -> Vec<u64> {
        let mut tickets = Vec::new();
        for place in std::mem::take(&mut self.listed) {
            let chain = &mut self.chains[place];
            chain.listed = false;
            tickets.extend(chain.withdraw());
        }
        tickets.sort_unstable();
        tickets
    }

    /// Writes what waits in a chain, into as many files as that takes.
    fn write(&mut self, place: usize) -> Result<(), StoreError> {
        let chain = &mut self.chains[place];
        if chain.waiting.written == 0 {
            chain.waiting.reached = chain.kept;
        }
        let mut gone = 0;
        while self.chains[place].waiting.written < self.chains[place].waiting.messages.len() {
            let written = self.chains[place].waiting.written;
            let one = &self.chains[place].waiting.messages[written];
            let (time, length) = (one.time, one.payload.len());
            let time = self.dated(self.chains[place].waiting.reached.next(time).time);
            let period = self.period_of(time);
            if !self.fits(place, period, length as u64 + 1) {
                self.begin(place, time, period)?;
            }
            if self.open_segment(place)? && self.write_some(place, period)? {
                continue;
            }
            // Its file was removed, moved or cut by somebody: another one is begun, once.
            self.give_up(place);
            gone += 1;
            if gone > 1 {
                let error = std::io::Error::from_raw_os_error(libc::ENOENT);
                let place = self.disk.describe("");
                return Err(StoreError::new("writing to", &place, error));
            }
        }
        Ok(())
    }

    /// Returns whether a chain's file takes a message of this size, newline included.
    fn fits(&self, place: usize, period: (i64, i64), bytes: u64) -> bool {
        let Some(segment) = &self.chains[place].segment else { return false };
        let most = self.settings.rotation.size.unwrap_or(u64::MAX);
        segment.period == period
            && !segment.ended
            && (segment.messages == 0 || segment.data_end.saturating_add(bytes) <= most)
    }

    /// Writes the next messages of a chain, as many as go into its file; `false`: that is gone.
    fn write_some(&mut self, place: usize, period: (i64, i64)) -> Result<bool, StoreError> {
        let most = self.settings.rotation.size.unwrap_or(u64::MAX);
        let written = self.chains[place].waiting.written;
        let (mut batch, mut n, mut end) = (Batch::default(), written, 0);
        let mut reached = self.chains[place].waiting.reached;
        let began = reached.next(self.chains[place].waiting.messages[written].time).time;
        while n < self.chains[place].waiting.messages.len() {
            let time = self.chains[place].waiting.messages[n].time;
            let next = reached.next(time);
            if n > written && self.period_of(self.dated(next.time)) != period {
                break;
            }
            let chain = &self.chains[place];
            let segment = chain.segment.as_ref().expect("it was opened");
            let payload = &chain.waiting.messages[n].payload;
            let from = chain.waiting.messages[written].payload.start;
            let length = (payload.end + 1 - from) as u64;
            if n > written && segment.data_end + length > most {
                break;
            }
            let (topic, origin, record) = chain.described(n, next);
            segment.add(&mut batch, Waiting { topic, origin, record });
            (reached, end, n) = (next, payload.end + 1, n + 1);
        }
        let chain = &mut self.chains[place];
        let from = chain.waiting.messages[written].payload.start;
        let segment = chain.segment.as_mut().expect("it was opened");
        if !segment.is_long() {
            return Ok(false);
        }
        let data = &chain.waiting.data[from..end];
        if let Err(error) = segment.write(data, &batch) {
            return Err(StoreError::new("writing", &self.disk.describe(&segment.path), error));
        }
        segment.written(batch, began);
        if !segment.is_there(&self.disk) {
            return Ok(false);
        }
        (chain.waiting.written, chain.waiting.reached) = (n, reached);
        if !std::mem::replace(&mut chain.unsynced, true) {
            self.unsynced.push(place);
        }
        Ok(true)
    }

    /// The period of a time, which is asked for each message and mostly the same.
    fn period_of(&mut self, time: u64) -> (i64, i64) {
        let minute = time / 60_000_000;
        match self.known_period {
            Some((known, period)) if known == minute => period,
            _ => {
                let period = self.settings.period(time);
                self.known_period = Some((minute, period));
                period
            }
        }
    }

    /// Opens the file of a chain, and closes the one that was not used for longest if there are too many;
    /// `false`: it is gone.
    pub(in crate::file) fn open_segment(&mut self, place: usize) -> Result<bool, StoreError> {
        self.uses += 1;
        let Some(segment) = &mut self.chains[place].segment else { return Ok(false) };
        segment.used = self.uses;
        if segment.handles.is_some() {
            return Ok(true);
        }
        self.make_way();
        let segment = self.chains[place].segment.as_mut().expect("just seen");
        match segment.open(&self.disk) {
            Ok(true) => {
                self.open.push(place);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => {
                Err(StoreError::new("opening", &self.disk.describe(&segment.path), error))
            }
        }
    }

    /// Closes files until two more can be opened.
    pub(in crate::file) fn make_way(&mut self) {
        let chains = &self.chains;
        let is_open = |place: &usize| {
            chains[*place].segment.as_ref().is_some_and(|segment| segment.handles.is_some())
        };
        self.open.retain(is_open);
        while (self.open.len() + 1) * 2 > self.settings.descriptors.max(2) {
            let used = |place: &usize| self.chains[*place].segment.as_ref().map_or(0, |s| s.used);
            let oldest = self.open.iter().enumerate().min_by_key(|(_, place)| used(place));
            let Some((at, _)) = oldest else { return };
            let place = self.open.swap_remove(at);
            if let Some(segment) = &mut self.chains[place].segment {
                segment.handles = None;
            }
        }
    }

    /// A chain's file is lost, or nothing is known of it any more: the next message begins another one.
    pub(in crate::file) fn give_up(&mut self, place: usize) {
        let chain = &mut self.chains[place];
        if let Some(segment) = chain.segment.take() {
            self.counters.given_up += 1;
            // It is removed in its turn like others, if it still exists.
            self.files.add(Closed {
                path: segment.path,
                chain: place,
                number: segment.number,
                bytes: segment.data_end + segment.index_end,
                time: chain.kept.time,
                compressed: true,
            });
        }
        // It is unknown whether any waiting message was written.
        chain.undone();
    }

    /// Brings what was written in a chain to the disk.
    ///
    /// # Errors
    ///
    /// If it is not there. After a failed sync nothing is known of a file: what waits is written anew,
    /// into another one, and what does not wait any more is counted as unsure.
    pub(in crate::file) fn sync(&mut self, place: usize) -> Result<(), StoreError> {
        let there = match self.chains[place].segment.as_ref().map(|segment| segment.dirty) {
            Some(true) => self.open_segment(place)?,
            // Earlier data was synced when its file was closed.
            Some(false) | None => {
                self.on_disk(place);
                return Ok(());
            }
        };
        let segment = self.chains[place].segment.as_ref().expect("just seen");
        let (path, fresh) = (segment.path.clone(), segment.fresh);
        let synced = match there && segment.is_there(&self.disk) {
            false => Err(std::io::Error::from_raw_os_error(libc::ENOENT)),
            true => segment.sync().and_then(|()| self.sync_names(&path, fresh)),
        };
        let segment = self.chains[place].segment.as_mut().expect("just seen");
        let synced = synced.and_then(|()| match segment.is_there(&self.disk) {
            true => Ok(()),
            false => Err(std::io::Error::from_raw_os_error(libc::ENOENT)),
        });
        match synced {
            Ok(()) => {
                (segment.dirty, segment.fresh) = (false, false);
                self.on_disk(place);
                Ok(())
            }
            Err(error) => {
                let chain = &self.chains[place];
                self.counters.unsure += chain.kept.sequence.saturating_sub(chain.durable);
                self.give_up(place);
                // Counted once.
                self.chains[place].durable = self.chains[place].kept.sequence;
                Err(StoreError::new("syncing", &self.disk.describe(&path), error))
            }
        }
    }

    fn on_disk(&mut self, place: usize) {
        let chain = &mut self.chains[place];
        let reached = if chain.waiting.written > 0 { chain.waiting.reached } else { chain.kept };
        chain.durable = reached.sequence;
    }

    /// Brings the name of a file to the disk, if it is `fresh`, and those of folders that were made.
    pub(in crate::file) fn sync_names(&mut self, path: &str, fresh: bool) -> std::io::Result<()> {
        if fresh {
            self.disk.sync_folder(parent(path))?;
        }
        while let Some(folder) = self.folders.first().cloned() {
            match self.disk.sync_folder(&folder) {
                // Somebody removed it; whatever was in it is missed elsewhere.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                synced => synced?,
            }
            self.folders.remove(&folder);
        }
        Ok(())
    }
}
