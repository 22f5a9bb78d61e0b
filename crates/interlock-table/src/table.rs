//! A table: opening it, and rows as a whole.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{self, Clock, Source};
use crate::error::Error;
use crate::geometry::{self, ACCESS};
use crate::hash::Key;
use crate::header::Header;
use crate::insert::{expired, New};
use crate::memory::Memory;
use crate::participant::Shared;
use crate::region::{Location, Region, Wanted};
use crate::row::Row;
use crate::schema::Schema;
use crate::slot;
use crate::sync::Ordering::*;
use crate::writer::{Wait, Writer};

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
    /// Time that a call waits for a writer that lives and does not go on.
    pub patience: Duration,
    pub clock: Source,
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
    /// Only where there is none.
    Absent,
    /// Only over one that is there.
    Present,
}

/// Outcomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Inserted,
    Replaced,
    /// It was not as it should have been for this write.
    Not,
}

/// A table that is open. All threads may use it at once.
pub struct Table {
    pub(crate) shared: Arc<Shared>,
    schema: Arc<Schema>,
    clock: Clock,
    patience: Duration,
}

/// A row's access time is written when it is older than this, so that reading writes little.
const ACCESS_GRAIN: u64 = 1 << 27;

impl Table {
    /// Opens the table that is there, or makes it. What is there keeps its own capacity, time to live and
    /// rule for when it is full; schema and key size must be the same.
    pub fn open(location: &Location, schema: &Schema, options: &Options) -> Result<Table, Error> {
        let path = location.path()?;
        let header = Table::header(location, schema, options)?;
        loop {
            if let Some(table) = Table::find(&path, Some(&header.text()), options)? {
                return Ok(table);
            }
            if let Some(region) = Region::create(&path, &header, options.mode)? {
                return Ok(Table::new(region, options));
            }
        }
    }

    /// Opens the table that is there, whatever its schema; of `options` only mode, patience and clock count.
    pub fn attach(location: &Location, options: &Options) -> Result<Table, Error> {
        let path = location.path()?;
        Table::find(&path, None, options)?.ok_or(Error::NoTable { path })
    }

    fn find(path: &Path, text: Option<&str>, options: &Options) -> Result<Option<Table>, Error> {
        let wanted = Wanted { text, mode: options.mode };
        let Some(region) = Region::attach(path, &wanted)? else { return Ok(None) };
        let table = Table::new(region, options);
        // A writer that died may hold slots that nobody would come upon.
        if table.shared.sweep(None) {
            table.shared.sweep(Some(table.writer()?));
        }
        Ok(Some(table))
    }

    fn header(location: &Location, schema: &Schema, options: &Options) -> Result<Header, Error> {
        let &Options { capacity, key_size, writers, evict, .. } = options;
        let mut seed = [0; 8];
        // SAFETY: writes at most the array's length.
        let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
        if got != 8 {
            seed = clock::real().to_le_bytes();
        }
        let buckets = geometry::buckets(capacity).ok_or_else(|| {
            Error::Invalid(format!("a capacity of {capacity} rows is beyond any machine"))
        })?;
        let header = Header {
            schema: schema.clone(),
            capacity,
            key_size,
            writers,
            buckets,
            seed: u64::from_le_bytes(seed),
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
        Table { shared: Shared::new(region), schema, clock, patience: options.patience }
    }

    /// The same open table, for calls that wait longer or less for a writer that does not go on.
    pub fn with_patience(&self, patience: Duration) -> Table {
        let (shared, schema) = (self.shared.clone(), self.schema.clone());
        Table { shared, schema, clock: self.clock.clone(), patience }
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Settings that the creator of the table gave.
    pub fn made(&self) -> &Header {
        &self.shared.region.header
    }

    pub fn path(&self) -> &Path {
        &self.shared.region.path
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.shared.region.memory
    }

    /// The table's time, ns.
    #[inline]
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    #[inline]
    pub(crate) fn writer(&self) -> Result<Writer<'_>, Error> {
        Ok(Writer::new(self.memory(), self.shared.claim()?, self.patience))
    }

    #[inline]
    pub(crate) fn key<'a>(&self, bytes: &'a [u8]) -> Result<Key<'a>, Error> {
        let limit = self.made().key_size as usize;
        if bytes.is_empty() || bytes.len() > limit {
            return Err(Error::KeyLength { length: bytes.len(), limit });
        }
        Ok(Key::new(bytes, self.made().seed))
    }

    /// The time at which a row expires that is set now: 0 never, and so where the end of time comes before.
    pub(crate) fn expiry(&self, ttl: Ttl, now: u64) -> u64 {
        let ttl = match ttl {
            Ttl::Never => return 0,
            Ttl::Usual if self.made().ttl == 0 => return 0,
            Ttl::Usual => self.made().ttl,
            Ttl::For(ttl) => nanoseconds(ttl),
        };
        now.checked_add(ttl).map_or(0, |expiry| expiry.max(1))
    }

    /// Notes that a row was accessed. Relaxed, and whoever has the slot by now looks a little younger.
    #[inline]
    pub(crate) fn accessed(&self, slot: usize, now: u64) {
        let access = self.memory().word(slot + ACCESS);
        if now.saturating_sub(access.load(Relaxed)) > ACCESS_GRAIN {
            access.store(now, Relaxed);
        }
    }

    /// Copies a row's words. Returns whether it is there.
    #[inline]
    pub fn get_into(&self, key: &[u8], row: &mut [u64]) -> Result<bool, Error> {
        let (key, now) = (self.key(key)?, self.now());
        Ok(self.read_row(&key, now, row))
    }

    #[inline]
    pub(crate) fn read_row(&self, key: &Key, now: u64, row: &mut [u64]) -> bool {
        let read = self.memory().read(key, |value| {
            slot::load(&value[1..], row);
            value[0].load(Relaxed)
        });
        let Some((slot, expiry)) = read else { return false };
        if expired(expiry, now) {
            return false;
        }
        self.accessed(slot, now);
        true
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Row>, Error> {
        let mut row = Row::new(&self.schema);
        Ok(self.get_into(key, row.words_mut())?.then_some(row))
    }

    /// Returns whether there is a row; that is no access.
    pub fn contains(&self, key: &[u8]) -> Result<bool, Error> {
        let (key, now) = (self.key(key)?, self.now());
        let expiry = self.memory().read(&key, |value| value[0].load(Relaxed));
        Ok(expiry.is_some_and(|(_, expiry)| !expired(expiry, now)))
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
        self.write_row(&self.writer()?, key, row, ttl, on)
    }

    pub(crate) fn write_row(
        &self,
        writer: &Writer,
        key: Key,
        row: &[u64],
        ttl: Ttl,
        on: Where,
    ) -> Result<Written, Error> {
        let (memory, now, mut wait) = (self.memory(), self.now(), Wait::default());
        let new = New { key, expiry: self.expiry(ttl, now), row, now, evict: self.made().evict };
        loop {
            let Some((place, before)) = memory.find(&key) else {
                if on == Where::Present {
                    return Ok(Written::Not);
                }
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
            writer.fill(new.expiry, row);
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
        mut read: impl FnMut(&[crate::sync::AtomicU64]) -> R,
    ) -> Result<Option<R>, Error> {
        let (key, writer, now) = (self.key(key)?, self.writer()?, self.now());
        let (memory, mut wait) = (self.memory(), Wait::default());
        loop {
            let Some((place, before)) = memory.find(&key) else { return Ok(None) };
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
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.shared.region.note_time(self.now());
    }
}

/// A duration in ns, as far as it goes.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
