//! A table: opening it, and rows as a whole.

mod batch;
pub mod change;
pub mod decide;
mod expire;
pub(super) mod resize;
pub(super) mod scan;

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicPtr;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::layout::geometry;
use crate::layout::geometry::{control, ACCESS};
use crate::layout::hash::Key;
use crate::layout::header::Header;
use crate::layout::row::Row;
use crate::layout::schema::Schema;
use crate::memory::clock;
use crate::memory::clock::{Clock, Source};
use crate::memory::Memory;
use crate::protocol::insert::{expired, New};
use crate::protocol::slot;
use crate::protocol::writer::{Wait, Writer};
use crate::region::participant::Shared;
use crate::region::{self, Location, Region, Wanted};
use crate::sync::{AtomicU64, Ordering::*};

/// Settings by which a table is made, and by which this process uses it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rows that it surely holds; beyond them it may overwrite.
    pub capacity: u64,
    /// The longest key, 1 to 1,024 bytes: every slot has room for it.
    pub key_size: u32,
    /// Time that a row lives from when it is set, if it is not told.
    pub ttl: Option<Duration>,
    /// A full table overwrites what was least recently accessed, else it refuses.
    pub evict: bool,
    /// Threads that can write at once, 1 to 4,095.
    pub writers: u32,
    /// Rights of those who may open it; a table with more rights is not opened.
    pub mode: u32,
    /// Time that a call waits for a writer that is alive but stuck.
    pub patience: Duration,
    pub clock: Source,
    /// This process is the node that alone writes rows: no other process can from now on.
    pub keeper: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            capacity: 100_000,
            key_size: 32,
            ttl: None,
            evict: true,
            writers: 1024,
            mode: 0o600,
            patience: Duration::from_secs(1),
            clock: Source::System,
            keeper: false,
        }
    }
}

/// Time that a row is to live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ttl {
    /// As long as the table says.
    #[default]
    Usual,
    Never,
    For(Duration),
}

/// On what a row is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    Anywhere,
    /// Only a missing row.
    Absent,
    /// Only over one that is there.
    Present,
}

/// Outcomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Inserted,
    Replaced,
    /// The row was not in the state that this write requires.
    Not,
}

/// A table that is open. All threads may use it at once.
pub struct Table {
    /// The one that was opened, from which those that took its place are reached.
    first: Arc<Shared>,
    /// The latest of them that is known.
    latest: AtomicPtr<Shared>,
    schema: Arc<Schema>,
    clock: Clock,
    pub(crate) patience: Duration,
    is_made_here: bool,
    /// True if it may write rows of a table that is kept by a node.
    keeps: bool,
}

/// Times that a table may go while it is opened.
const TRIES: u32 = 100;

/// A row's access time is written when it is older than this, so that reading writes little.
const ACCESS_GRAIN: u64 = 1 << 27;

impl Table {
    /// Opens the table, or creates it. An existing one keeps its own capacity, time to live and
    /// rule for when it is full; schema and key size must be the same.
    pub fn open(location: &Location, schema: &Schema, options: &Options) -> Result<Table, Error> {
        let path = location.path()?;
        let header = Table::header(location, schema, options)?;
        let mut tries = 0;
        loop {
            match Table::find(&path, Some(&header.text()), options) {
                Ok(Some(table)) => return table.kept(options),
                Ok(None) => {}
                // It was removed while following it to its resized successor.
                Err(Error::NoTable { .. }) if tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
            if let Some(region) = Region::create(&path, &header, options.mode)? {
                let mut table = Table::new(region, options);
                table.is_made_here = true;
                return table.kept(options);
            }
        }
    }

    /// Opens the table that is there, whatever its schema; of `options` only mode, patience and clock count.
    pub fn attach(location: &Location, options: &Options) -> Result<Table, Error> {
        let path = location.path()?;
        Table::find(&path, None, options)?.ok_or(Error::NoTable { path })?.kept(options)
    }

    fn find(path: &Path, text: Option<&str>, options: &Options) -> Result<Option<Table>, Error> {
        let wanted = Wanted { text, mode: options.mode };
        let Some(region) = Region::attach(path, &wanted)? else { return Ok(None) };
        let table = Table::new(region, options);
        let shared = &table.first;
        // A writer that died may hold slots that nobody would come upon.
        if shared.sweep(None) {
            shared.sweep(Some(shared.writer(options.patience)?));
        }
        shared.region.memory.thaw_all();
        shared.region.clear_next();
        Ok(Some(table))
    }

    fn kept(mut self, options: &Options) -> Result<Table, Error> {
        self.keeps = options.keeper;
        if self.keeps {
            self.here()?.region.keep()?;
        }
        Ok(self)
    }

    /// Has everybody write rows again, until a node opens it. What this process has open may write anyway.
    pub fn keep_no_more(&self) {
        self.last().region.keep_no_more();
    }

    fn header(location: &Location, schema: &Schema, options: &Options) -> Result<Header, Error> {
        let &Options { capacity, key_size, writers, evict, .. } = options;
        let buckets = geometry::buckets(capacity).ok_or_else(|| {
            Error::Invalid(format!("a capacity of {capacity} rows is beyond any machine"))
        })?;
        let header = Header {
            schema: schema.clone(),
            capacity,
            key_size,
            writers,
            buckets,
            secret: [region::random(), region::random()],
            created: clock::real(),
            ttl: options.ttl.map_or(0, nanoseconds),
            evict,
            file: matches!(location, Location::Path(_)),
        };
        header.check().map_err(Error::Invalid)?;
        Ok(header)
    }

    fn new(region: Region, options: &Options) -> Table {
        let clock = Clock::new(options.clock.clone(), region.offset());
        let schema = Arc::new(region.header.schema.clone());
        Table::of(Shared::new(region), schema, clock, options.patience)
    }

    fn of(first: Arc<Shared>, schema: Arc<Schema>, clock: Clock, patience: Duration) -> Table {
        let latest = AtomicPtr::new(Arc::as_ptr(&first).cast_mut());
        let (is_made_here, keeps) = (false, false);
        Table { first, latest, schema, clock, patience, is_made_here, keeps }
    }

    /// Returns the same open table, for calls with another patience.
    pub fn with_patience(&self, patience: Duration) -> Table {
        let (first, schema) = (self.first.clone(), self.schema.clone());
        let mut table = Table::of(first, schema, self.clock.clone(), patience);
        table.is_made_here = self.is_made_here;
        table.keeps = self.keeps;
        table.latest.store(self.latest.load(Acquire), Release);
        table
    }

    /// The table as it is now: the one that was opened, or what it was resized to. Errors: that cannot be
    /// opened.
    #[inline]
    pub(crate) fn here(&self) -> Result<&Shared, Error> {
        let known = self.known();
        match known.region.memory.is_current() {
            true => Ok(known),
            false => self.follow(known),
        }
    }

    #[cold]
    fn follow<'a>(&'a self, mut known: &'a Shared) -> Result<&'a Shared, Error> {
        while !known.region.memory.is_current() {
            known = known.next()?;
        }
        if self.keeps {
            // The next one may have been created before this one was marked as kept.
            known.region.keep()?;
        }
        self.latest.store(std::ptr::from_ref(known).cast_mut(), Release);
        Ok(known)
    }

    #[inline]
    fn known(&self) -> &Shared {
        // SAFETY: the first, or one that it leads to; they live as long as it does.
        unsafe { &*self.latest.load(Acquire) }
    }

    /// Like `here`, or the last one that could be opened, which no longer changes.
    pub(crate) fn last(&self) -> &Shared {
        self.here().unwrap_or_else(|_| self.known())
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Settings that the creator of the table gave, or who resized it.
    pub fn made(&self) -> &Header {
        &self.last().region.header
    }

    /// Like `made`, for settings that a resize keeps: all but capacity and buckets.
    #[inline]
    pub(crate) fn kept_settings(&self) -> &Header {
        &self.first.region.header
    }

    /// Returns whether opening it made it.
    pub fn is_made_here(&self) -> bool {
        self.is_made_here
    }

    /// Returns whether others find this very table by its name: it was not removed.
    pub fn has_name(&self) -> bool {
        self.last().region.has_name()
    }

    /// The position in a log up to which the rows show what was applied, and the checksum of the log up to
    /// there. `None`: no node has said so, or one says it just now.
    pub fn position(&self) -> Option<(u64, u64)> {
        let memory = &self.last().region.memory;
        let position = memory.control(control::POSITION).load(Acquire);
        let checksum = memory.control(control::POSITION_CHECKSUM).load(Acquire);
        let is_whole = memory.control(control::POSITION).load(Acquire) == position;
        (position > 0 && is_whole).then_some((position, checksum))
    }

    /// Stores the position of the log that the rows show; called by the keeper.
    pub fn set_position(&self, position: u64, checksum: u64) {
        let memory = &self.last().region.memory;
        memory.control(control::POSITION).store(0, Release);
        memory.control(control::POSITION_CHECKSUM).store(checksum, Release);
        memory.control(control::POSITION).store(position, Release);
    }

    pub fn path(&self) -> &Path {
        &self.first.region.path
    }

    #[inline]
    pub(crate) fn memory(&self) -> Result<&Memory, Error> {
        Ok(&self.here()?.region.memory)
    }

    /// The table's time, ns.
    #[inline]
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Always inline, as `Key::new`.
    #[inline(always)]
    pub(crate) fn writer(&self) -> Result<Writer<'_>, Error> {
        let here = self.here()?;
        if !self.keeps {
            here.region.check_kept()?;
        }
        here.writer(self.patience)
    }

    /// Has a writer do what is to be done, and again where the table was resized in between.
    #[inline]
    pub(crate) fn writing<R>(
        &self,
        mut call: impl FnMut(&Writer) -> Result<R, Error>,
    ) -> Result<R, Error> {
        loop {
            match call(&self.writer()?) {
                Ok(done) => return Ok(done),
                Err(Error::Moved) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Finds a key, and has `take` read its value. Returns the memory and the slot too.
    #[inline]
    pub(crate) fn read<R>(
        &self,
        key: &Key,
        mut take: impl FnMut(&[AtomicU64]) -> R,
    ) -> Result<Option<(&Memory, usize, R)>, Error> {
        loop {
            let memory = self.memory()?;
            if let Some((slot, taken)) = memory.read(key, &mut take) {
                return Ok(Some((memory, slot, taken)));
            }
            if !memory.is_gone() {
                return Ok(None);
            }
        }
    }

    /// Always inline, as `Key::new`.
    #[inline(always)]
    pub(crate) fn key<'a>(&self, bytes: &'a [u8]) -> Result<Key<'a>, Error> {
        let Header { key_size, secret, .. } = self.kept_settings();
        let limit = *key_size as usize;
        if bytes.is_empty() || bytes.len() > limit {
            return Err(Error::KeyLength { length: bytes.len(), limit });
        }
        Ok(Key::new(bytes, *secret))
    }

    /// The time at which a row expires that is set now: 0 never, and so where the end of time comes before.
    #[inline]
    pub fn expiry(&self, ttl: Ttl, now: u64) -> u64 {
        let ttl = match ttl {
            Ttl::Never => return 0,
            Ttl::Usual if self.kept_settings().ttl == 0 => return 0,
            Ttl::Usual => self.kept_settings().ttl,
            Ttl::For(ttl) => nanoseconds(ttl),
        };
        now.checked_add(ttl).map_or(0, |expiry| expiry.max(1))
    }

    /// Notes that a row was accessed. Relaxed; if the slot has changed hands, its new row looks a
    /// little younger.
    #[inline]
    pub(crate) fn accessed(&self, memory: &Memory, slot: usize, now: u64) {
        let access = memory.word(slot + ACCESS);
        if now.saturating_sub(access.load(Relaxed)) > ACCESS_GRAIN {
            access.store(now, Relaxed);
        }
    }

    /// Like `accessed`, regardless of the last access.
    #[inline]
    pub(crate) fn touched(&self, memory: &Memory, slot: usize, now: u64) {
        memory.word(slot + ACCESS).store(now, Relaxed);
    }

    /// Copies a row's words. Returns whether it is there.
    #[inline]
    pub fn get_into(&self, key: &[u8], row: &mut [u64]) -> Result<bool, Error> {
        self.read_words(&self.key(key)?, self.now(), 0..self.schema.words(), row)
    }

    /// Copies some of a row's words, to as many. Returns whether it is there.
    #[inline]
    pub(crate) fn read_words(
        &self,
        key: &Key,
        now: u64,
        words: Range<usize>,
        to: &mut [u64],
    ) -> Result<bool, Error> {
        // The first word of a value is its expiry.
        let (from, end) = (1 + words.start, 1 + words.end);
        let read = self.read(key, |value| {
            slot::load(&value[from..end], to);
            value[0].load(Relaxed)
        })?;
        let Some((memory, slot, expiry)) = read else { return Ok(false) };
        if expired(expiry, now) {
            return Ok(false);
        }
        self.accessed(memory, slot, now);
        Ok(true)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Row>, Error> {
        let mut row = Row::new(&self.schema);
        Ok(self.get_into(key, row.words_mut())?.then_some(row))
    }

    /// Returns whether a row exists; this is not an access.
    pub fn contains(&self, key: &[u8]) -> Result<bool, Error> {
        let (key, now) = (self.key(key)?, self.now());
        let expiry = self.read(&key, |value| value[0].load(Relaxed))?;
        Ok(expiry.is_some_and(|(.., expiry)| !expired(expiry, now)))
    }

    /// Sets a row as a whole. Errors: as [`write`](Table::write).
    pub fn set(&self, key: &[u8], row: &Row) -> Result<Written, Error> {
        if !Arc::ptr_eq(row.schema(), &self.schema) && **row.schema() != *self.schema {
            let why = format!("a row of {}; the table's is {}", row.schema(), self.schema);
            return Err(Error::Invalid(why));
        }
        self.write(key, row.words(), Ttl::Usual, Where::Anywhere)
    }

    /// Sets a row as a whole, from its words. Errors: a key that is too long, `RowBusy`, and `TableFull`
    /// where nothing is overwritten.
    pub fn write(&self, key: &[u8], row: &[u64], ttl: Ttl, on: Where) -> Result<Written, Error> {
        let key = self.key(key)?;
        if row.len() != self.schema.words() {
            return Err(Error::Invalid(format!("a row of {} words", row.len())));
        }
        self.writing(|writer| self.write_row(writer, key, row, ttl, on))
    }

    pub(crate) fn write_row(
        &self,
        writer: &Writer,
        key: Key,
        row: &[u64],
        ttl: Ttl,
        on: Where,
    ) -> Result<Written, Error> {
        let (memory, now, mut wait) = (writer.memory, self.now(), Wait::default());
        let expiry = self.expiry(ttl, now);
        loop {
            let Some((place, before)) = writer.find(&key)? else {
                if on == Where::Present {
                    return Ok(Written::Not);
                }
                let evict = self.kept_settings().evict;
                let new = New { key, expiry, row, now, access: now, evict };
                if writer.insert(&new, &mut wait)? {
                    return Ok(Written::Inserted);
                }
                continue;
            };
            if !before.is_open() {
                writer.wait(memory.word(place.at), before, &mut wait)?;
                continue;
            }
            let absent = memory.has_expired(place.at, now);
            if (absent && on == Where::Present) || (!absent && on == Where::Absent) {
                if memory.stands(place.at, before) {
                    return Ok(Written::Not);
                }
                continue;
            }
            writer.fill(expiry, row);
            if writer.write_row(place, before)? {
                memory.word(place.at + ACCESS).store(now, Relaxed);
                return Ok(if absent { Written::Inserted } else { Written::Replaced });
            }
        }
    }

    /// Deletes a row. Returns whether it was there.
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.take(key, |_| ())?.is_some())
    }

    /// Deletes a row and returns it.
    pub fn pop(&self, key: &[u8]) -> Result<Option<Row>, Error> {
        self.take(key, |value| {
            let mut row = Row::new(&self.schema);
            slot::load(&value[1..], row.words_mut());
            row
        })
    }

    fn take<R>(
        &self,
        key: &[u8],
        mut read: impl FnMut(&[AtomicU64]) -> R,
    ) -> Result<Option<R>, Error> {
        let (key, now, mut wait) = (self.key(key)?, self.now(), Wait::default());
        self.writing(|writer| {
            let memory = writer.memory;
            loop {
                let Some((place, before)) = writer.find(&key)? else { return Ok(None) };
                if !before.is_open() {
                    writer.wait(memory.word(place.at), before, &mut wait)?;
                    continue;
                }
                let absent = memory.has_expired(place.at, now);
                let taken = read(memory.value(place.at));
                if writer.free(place, before)? {
                    return Ok((!absent).then_some(taken));
                }
            }
        })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.known().region.note_time(self.now());
    }
}

/// A duration in ns, as far as it goes.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
