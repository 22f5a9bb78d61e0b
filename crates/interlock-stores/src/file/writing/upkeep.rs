//! The work beside writing: what falls due each second, compression, retention, and the end.

use std::io;

use crate::disk::{parent, Access, Disk};
use crate::error::StoreError;
use crate::file::compress::{Compression, COMPRESSED};
use crate::file::files::Closed;
use crate::file::index::{self, GOING, INDEX};
use crate::file::settings::Fsync;
use crate::file::writing::store::{Due, FileStore, AT_ONCE};

const SECOND: u64 = 1_000_000;
/// Files that a piece of upkeep syncs or closes: each may cost the disk milliseconds.
const PIECE: usize = 8;

impl<D: Disk> FileStore<D> {
    /// To be called each second: written messages are synced if the policy says so, and the files
    /// of a past period are closed. With very many, some are left to [`Self::upkeep`].
    ///
    /// # Errors
    ///
    /// The first one of those that came; the rest is done.
    pub fn tick(&mut self, now: u64) -> Result<(), StoreError> {
        let mut failed = None;
        // A clock that was set back must not stop it.
        let due = now.abs_diff(self.synced) >= SECOND;
        if due && self.settings.fsync != Fsync::Never {
            self.synced = now;
            self.due.extend(std::mem::take(&mut self.unsynced).into_iter().map(Due::Sync));
        }
        // A clock that was set back ends no period: the next message is of the latest time of all.
        let now = self.dated(now.max(self.time));
        let period = self.settings.period(now);
        if std::mem::replace(&mut self.period, period) != period {
            self.end(|segment, _| segment.period != period);
        }
        let ages = self.ages && self.settings.retention.age.is_some();
        if ages && now.abs_diff(self.aged) >= 60 * SECOND {
            self.aged = now;
            // No process writes to them, and they are as old as files that are removed.
            let age = self.settings.retention.age.unwrap_or(u64::MAX);
            self.end(|_, last| last.saturating_add(age) <= now);
        }
        self.work(AT_ONCE, &mut failed);
        failed.map_or(Ok(()), Err)
    }

    /// Does at most `most` of what is due.
    pub(in crate::file) fn work(&mut self, most: usize, failed: &mut Option<StoreError>) {
        // A failed one is due again at the next tick.
        for _ in 0..most.min(self.due.len()) {
            let done = match self.due.pop_front() {
                Some(Due::Sync(place)) => self.sync_or_mark(place),
                Some(Due::Close(place)) => {
                    let has_ended =
                        self.chains[place].segment.as_ref().is_some_and(|one| one.ended);
                    if has_ended {
                        self.close_segment(place)
                    } else {
                        Ok(())
                    }
                }
                None => return,
            };
            if let Err(error) = done {
                failed.get_or_insert(error);
            }
        }
    }

    /// Syncs the written messages of a chain to disk; if nothing was added since, the index records
    /// so.
    fn sync_or_mark(&mut self, place: usize) -> Result<(), StoreError> {
        let chain = &self.chains[place];
        if chain.segment.as_ref().is_some_and(|segment| segment.dirty) {
            // Said by the next tick, if nothing comes in between; and what cannot be opened now may be then.
            self.unsynced.push(place);
            return self.sync(place);
        }
        self.chains[place].unsynced = false;
        let chain = &mut self.chains[place];
        let mark = |end| chain.kept.mark(end);
        if let Some(segment) = &mut chain.segment {
            let marked = segment.marked || segment.messages == 0;
            if !marked && segment.handles.is_some() && segment.is_there(&self.disk) {
                // Without it the file is as good: a fault of the disk shows with the next message.
                let _ = segment.write_mark(mark(segment.data_end));
            }
        }
        Ok(())
    }

    /// Does a piece of the work that waits: syncs or closes some files, compresses a slice of a closed file, or removes one that has to
    /// go. Returns whether there is more.
    ///
    /// # Errors
    ///
    /// If it cannot be done now: to be called again later.
    pub fn upkeep(&mut self, now: u64) -> Result<bool, StoreError> {
        if !self.due.is_empty() {
            let mut failed = None;
            self.work(PIECE, &mut failed);
            return failed.map_or(Ok(true), Err);
        }
        if let Some(closed) = self.oldest(now) {
            return self.retire(closed).map(|()| true);
        }
        let Some(level) = self.settings.compression else { return Ok(false) };
        let mut compression = match self.compression.take() {
            Some(compression) => compression,
            None => {
                let Some(closed) = self.files.to_compress() else { return Ok(false) };
                match Compression::begin(&self.disk, closed.clone()) {
                    Ok(Some(compression)) => compression,
                    Ok(None) => {
                        self.files.compressed(&closed, 0);
                        return Ok(true);
                    }
                    Err(error) => {
                        self.files.add(closed);
                        return Err(error);
                    }
                }
            }
        };
        match self.files.again(&compression.closed) {
            Some(closed) if closed.path == compression.closed.path => {}
            // It was removed or renamed: the file with the old name may be in use.
            now => {
                compression.abandon(&self.disk);
                now.into_iter().for_each(|closed| self.files.add(closed));
                return Ok(true);
            }
        }
        match compression.step(&self.disk, level) {
            Ok(None) => self.compression = Some(compression),
            Ok(Some(saved)) => {
                self.files.compressed(&compression.closed, saved);
                self.counters.compressed += 1;
            }
            Err(error) => {
                let closed = compression.abandon(&self.disk);
                self.files.add(closed);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// The file to remove first. Files being written stay.
    fn oldest(&self, now: u64) -> Option<Closed> {
        let mut retention = self.settings.retention;
        if !self.ages {
            retention.age = None;
        }
        if retention.age.is_none() && retention.bytes.is_none() {
            return None;
        }
        let mut others = 0;
        if retention.bytes.is_some() {
            let segments = self.chains.iter().filter_map(|chain| chain.segment.as_ref());
            others = segments.map(|segment| segment.data_end + segment.index_end).sum();
        }
        self.files.to_go(retention, now, others)
    }

    /// Returns whether a file's name is still its own.
    fn is_still(&self, closed: &Closed) -> bool {
        let file = self.disk.open(&(closed.path.clone() + INDEX), Access::Read);
        match file.and_then(|file| index::read_head(&file)) {
            Ok(Ok(known)) => {
                let topic = known.head.by_topic.then(|| &known.topics[0]);
                known.head.number == closed.number
                    && known.store == self.settings.name.as_bytes()
                    && topic == self.chains[closed.chain].topic.as_ref()
            }
            // The remaining files of it may be removed.
            _ => true,
        }
    }

    fn retire(&mut self, closed: Closed) -> Result<(), StoreError> {
        // The newest file of a chain has the last numbers of origins: it must be another one, and
        // on disk.
        let chain = &self.chains[closed.chain];
        if chain.segment.is_none() {
            let time = self.dated(self.time.max(closed.time));
            let period = self.settings.period(time);
            self.begin(closed.chain, time, period)?;
        }
        if self.chains[closed.chain].segment.as_ref().is_some_and(|segment| segment.dirty) {
            self.sync(closed.chain)?;
        }
        // Its name may be another one now.
        let closed = self.files.again(&closed).unwrap_or(closed);
        if !self.is_still(&closed) {
            // Another one has that name: nobody knows better than its index.
            self.files.remove(&closed);
            return Ok(());
        }
        remove(&self.disk, &closed.path).map_err(|error| {
            StoreError::new("removing", &self.disk.describe(&closed.path), error)
        })?;
        let folder = parent(&closed.path);
        match self.disk.sync_folder(folder) {
            // Or one that is newer might go, and this one be there again after a crash.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::new("syncing", &self.disk.describe(folder), error));
            }
            _ => {}
        }
        self.files.remove(&closed);
        self.counters.removed += 1;
        Ok(())
    }

    /// Syncs everything to disk and records so in the indexes, before the store is dropped.
    ///
    /// # Errors
    ///
    /// The first one that came; the rest is done.
    pub fn close(mut self) -> Result<(), StoreError> {
        let mut failed = self.commit().err();
        for place in 0..self.chains.len() {
            let dirty = self.chains[place].segment.as_ref().is_some_and(|segment| segment.dirty);
            if dirty {
                if let Err(error) = self.sync(place) {
                    failed.get_or_insert(error);
                }
            }
            let chain = &mut self.chains[place];
            if let Some(segment) = &mut chain.segment {
                let marked = segment.marked || segment.messages == 0;
                if !marked && matches!(segment.open(&self.disk), Ok(true)) {
                    let mark = chain.kept.mark(segment.data_end);
                    if segment.is_there(&self.disk) && segment.write_mark(mark).is_ok() {
                        // A mark that is lost says nothing, and nothing is wrong without it.
                        let _ = segment.sync();
                    }
                }
                segment.handles = None;
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Removes a file. Its index gets another name first: nobody takes data that goes for data that is missing.
pub fn remove<D: Disk>(disk: &D, path: &str) -> io::Result<()> {
    let gone = |done: io::Result<()>| match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    };
    let (index, going) = (format!("{path}{INDEX}"), format!("{path}{GOING}"));
    if disk.exists(&index)? {
        gone(disk.remove(&going))?;
        gone(disk.rename(&index, &going))?;
    }
    for ending in ["", COMPRESSED, GOING] {
        gone(disk.remove(&format!("{path}{ending}")))?;
    }
    Ok(())
}
