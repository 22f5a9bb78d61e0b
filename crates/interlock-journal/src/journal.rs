//! The journal that is written: appending, group commit, and the tick of each second.
//!
//! Records of one queue are appended under that queue's lock, so that they are in the order in
//! which its calls were made. An append copies into a buffer, and never waits for the disk. A
//! commit takes everything appended by then, by any thread, writes it at once and syncs it; a
//! commit that comes meanwhile waits, and mostly finds its own records on disk with those of the
//! others.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

pub use crate::condition::{JournalError, Standing};

use crate::condition::Condition;
use crate::file::{Closed, CLOSED, CLOSING, HEAD, SPARE};
use crate::record::{self, Head, RecordKind};
use crate::storage::{File, Fill, Storage};
use crate::writer::Writer;

/// The moment from which an answer may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Once it is written: it is on disk when a segment is full, or the journal is closed.
    None,
    /// Once it is written: it is on disk within about a second.
    EverySecond,
    /// Once it is on disk.
    Always,
}

#[derive(Clone, Copy, Debug)]
pub struct JournalSettings {
    /// Bytes of a segment; one that must take a longer batch is longer.
    pub segment: u64,
    /// The way the length of a segment is made up: zeroes written into it beforehand make syncs
    /// cheaper and cost as many bytes again; worth it where there are queues with
    /// [`Durability::Always`].
    pub fill: Fill,
    /// Most bytes of a record's body.
    pub longest: usize,
    /// Begins the checksums; a random number.
    pub salt: u32,
    /// Version of the rules that what is written now is to be replayed by, as its user counts them. A
    /// process begins a segment of its own, so that all records of a segment have the same.
    pub rules: u32,
}

impl Default for JournalSettings {
    fn default() -> Self {
        let salt = RandomState::new().build_hasher().finish() as u32;
        let (segment, longest) = (64 << 20, 1 << 30);
        JournalSettings { segment, fill: Fill::Written, longest, salt, rules: 0 }
    }
}

/// The data of a call that is to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub queue: u32,
    /// µs since 1970, as the queue was given it.
    pub time: u64,
    pub function: u8,
}

/// A journal that is open. It may be used by several threads.
#[derive(Debug)]
pub struct Journal<S: Storage> {
    pub(crate) storage: S,
    pub(crate) settings: JournalSettings,
    pub(crate) condition: Condition,
    pending: Mutex<Pending>,
    pub(crate) writer: Mutex<Writer<S::File>>,
    /// Held while a file is synced: of two concurrent syncs only one would get an error.
    syncing: Mutex<()>,
    /// Held while a segment is prepared, or a snapshot made.
    preparing: Mutex<()>,
    pub(crate) snapshotting: Mutex<()>,
    written: AtomicU64,
    durable: AtomicU64,
    bytes: AtomicU64,
    /// Bytes that were ever appended, and up to how many of them there are segments.
    appended: AtomicU64,
    room: AtomicU64,
    _lock: S::Lock,
}

/// The records that were appended and not yet taken by a commit.
#[derive(Debug)]
struct Pending {
    bytes: Vec<u8>,
    /// Sequence of the last record.
    last: u64,
    /// Sequence of the last mark, which said that all before it was on disk.
    marked: u64,
    /// The latest time of any record, µs since 1970.
    time: u64,
}

impl<S: Storage> Journal<S> {
    pub(crate) fn new(
        storage: S,
        settings: JournalSettings,
        lock: S::Lock,
        writer: Writer<S::File>,
        last: u64,
        time: u64,
    ) -> Self {
        let room = writer.longest();
        Journal {
            storage,
            settings,
            condition: Condition::default(),
            pending: Mutex::new(Pending { bytes: Vec::new(), last, marked: last, time }),
            writer: Mutex::new(writer),
            syncing: Mutex::new(()),
            preparing: Mutex::new(()),
            snapshotting: Mutex::new(()),
            written: AtomicU64::new(last),
            durable: AtomicU64::new(last),
            bytes: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            room: AtomicU64::new(room),
            _lock: lock,
        }
    }

    /// Returns whether records are accepted: to be asked before the call is made. `growing`: the
    /// call makes the queue larger, as a put does, and its arguments have this many bytes.
    ///
    /// Calls that make a queue larger leave a quarter of a segment to those that make it smaller.
    /// Where calls are faster than [`prepare`](Self::prepare), the next segment is made here.
    ///
    /// # Errors
    ///
    /// Why they are not. The call must then not be made, or what is kept would not be what was done.
    #[inline]
    pub fn accepts(&self, growing: Option<u64>) -> Result<(), JournalError> {
        self.condition.check(growing.is_some())?;
        match growing {
            Some(bytes) if bytes > self.settings.longest as u64 => {
                Err(JournalError::TooLong(bytes as usize, self.settings.longest))
            }
            Some(bytes) if !self.has_room(bytes) => self.make_room(bytes),
            _ => Ok(()),
        }
    }

    /// The disk that it is on: for files beside its own.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// Tells what is wrong, as puts are refused for it.
    ///
    /// # Errors
    ///
    /// That.
    pub fn trouble(&self) -> Result<(), JournalError> {
        self.condition.check(true)
    }

    /// Returns whether records are taken, and if not, why and since when.
    pub fn standing(&self) -> Standing {
        self.condition.standing()
    }

    fn has_room(&self, bytes: u64) -> bool {
        // Relaxed: of calls that are made at this moment each may take what there is; the reserve is for
        // many of them.
        let wanted = self.appended.load(Ordering::Relaxed).saturating_add(bytes);
        wanted.saturating_add(self.settings.segment / RESERVED) <= self.room.load(Ordering::Relaxed)
    }

    #[cold]
    fn make_room(&self, bytes: u64) -> Result<(), JournalError> {
        // The next segment; then what waits is written, which may take that one; then one more.
        for _ in 0..2 {
            self.prepare()?;
            if self.has_room(bytes) {
                return Ok(());
            }
            self.write(&mut self.writer.lock())?;
        }
        self.prepare()?;
        let JournalSettings { segment, fill, .. } = self.settings;
        let length = (HEAD as u64 + bytes).saturating_add(segment / RESERVED);
        if self.has_room(bytes) || length <= segment {
            return Ok(());
        }
        // The record is longer than a segment.
        let _preparing = self.preparing.lock();
        let mut writer = self.writer.lock();
        match self.storage.create(SPARE, length, fill) {
            Ok(file) => {
                writer.set_spare(file, length);
                self.note_room(&writer);
                Ok(())
            }
            // Shorter ones may have room: this does not decide on them.
            Err(error) => {
                writer.drop_spare();
                self.note_room(&writer);
                let place = self.storage.describe(SPARE);
                Err(self.condition.no_room(true, &place, &error))
            }
        }
    }

    /// After each change of what there is to write to.
    fn note_room(&self, writer: &Writer<S::File>) {
        // Relaxed: see `has_room`.
        self.room.store(writer.taken() + writer.longest(), Ordering::Relaxed);
    }

    /// Appends a record of a call that was made; answers its sequence. Nothing is written yet.
    ///
    /// # Errors
    ///
    /// If the journal failed or was closed, and if the arguments are longer than a record may be. On a full
    /// disk it is kept, and written once there is room.
    #[inline]
    pub fn append<'a>(
        &self,
        entry: Entry,
        arguments: impl IntoIterator<Item = &'a [u8]> + Clone,
    ) -> Result<u64, JournalError> {
        self.condition.check_made()?;
        let length = arguments.clone().into_iter().map(|argument| 4 + argument.len()).sum();
        if length > self.settings.longest {
            return Err(JournalError::TooLong(length, self.settings.longest));
        }
        let mut pending = self.pending.lock();
        Ok(self.append_to(&mut pending, entry, RecordKind::Call, |out| {
            record::arguments(out, arguments)
        }))
    }

    #[inline]
    fn append_to(
        &self,
        pending: &mut Pending,
        Entry { queue, time, function }: Entry,
        kind: RecordKind,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> u64 {
        // The durable position is only ever reported too low: a store that is not visible yet lowers it.
        let behind = pending.last - self.durable.load(Ordering::Acquire);
        pending.last += 1;
        pending.time = pending.time.max(time);
        let sequence = pending.last;
        let behind = u32::try_from(behind).unwrap_or(u32::MAX);
        let head = Head { sequence, time, queue, behind, kind, function };
        let before = pending.bytes.len();
        record::encode(&mut pending.bytes, self.settings.salt, head, body);
        // Relaxed, and a plain addition: it is changed under this lock alone.
        let appended = self.appended.load(Ordering::Relaxed);
        let more = pending.bytes.len() - before;
        self.appended.store(appended + more as u64, Ordering::Relaxed);
        sequence
    }

    /// Sequence of the last record that was appended.
    pub fn last(&self) -> u64 {
        self.pending.lock().last
    }

    /// The latest time of any record, of this process or before, µs since 1970: time must not
    /// continue from before it.
    pub fn time(&self) -> u64 {
        self.pending.lock().time
    }

    /// Notes what time it is, unless a record of the last `every` µs does: a delay that runs while nobody
    /// calls is then not begun anew by a clock that was set back meanwhile.
    pub fn note_time(&self, now: u64, every: u64) {
        let mut pending = self.pending.lock();
        if now > pending.time.saturating_add(every) && self.condition.check_made().is_ok() {
            let durable = pending.last == self.durable();
            let entry = Entry { queue: 0, time: now, function: 0 };
            let sequence = self.append_to(&mut pending, entry, RecordKind::Mark, |_| ());
            if durable {
                pending.marked = sequence;
            }
        }
    }

    /// Sequence of the last record that is on disk.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Bytes written since it was opened, or since the last snapshot.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The end of a turn: returns when all records up to `sequence` are as safe as `durability` says.
    ///
    /// # Errors
    ///
    /// If they are not: the turn's answers must not be given. With [`JournalError::Full`] the records are
    /// kept, and are written before all others once there is room.
    pub fn commit(&self, sequence: u64, durability: Durability) -> Result<(), JournalError> {
        let reached = || match durability {
            Durability::Always => &self.durable,
            Durability::EverySecond | Durability::None => &self.written,
        };
        if reached().load(Ordering::Acquire) >= sequence {
            return Ok(());
        }
        let mut writer = self.writer.lock();
        // Another one's commit may have taken these along.
        if reached().load(Ordering::Acquire) >= sequence {
            return Ok(());
        }
        self.write(&mut writer)?;
        if durability == Durability::Always {
            self.sync_file(&**writer.file(), writer.last())?;
        }
        Ok(())
    }

    /// To be called each second: what was written is synced, and a journal that had no room tries again.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn tick(&self) -> Result<(), JournalError> {
        let prepared = match self.condition.get() {
            Some(JournalError::Full(_) | JournalError::Short(_)) => self.prepare().map(drop),
            _ => Ok(()),
        };
        self.mark();
        let (file, last) = {
            let mut writer = self.writer.lock();
            self.write(&mut writer)?;
            self.check_name(&writer)?;
            (Arc::clone(writer.file()), writer.last())
        };
        // Not under the writer's lock: commits that need no sync continue meanwhile.
        self.sync_file(&*file, last)?;
        // Records accepted on a nearly full disk are as safe as others.
        prepared
    }

    /// Tells whether what was written is where a restart looks for it: the folder was not removed or moved.
    ///
    /// # Errors
    ///
    /// [`JournalError::Failed`] if it was.
    pub fn check_place(&self) -> Result<(), JournalError> {
        self.check_name(&self.writer.lock())
    }

    /// A folder that was removed or moved is written to as before, for ever, and found by no restart.
    fn check_name(&self, writer: &Writer<S::File>) -> Result<(), JournalError> {
        let name = writer.name();
        if self.storage.holds(&name, writer.file()) {
            return Ok(());
        }
        let place = self.storage.describe(&name);
        let gone = "it was removed or moved while it was written to";
        Err(self.condition.fail(&place, &io::Error::other(gone)))
    }

    /// After a pause it is written down what is on disk: what is lost of that later was damaged, and not
    /// torn off.
    fn mark(&self) {
        let mut pending = self.pending.lock();
        let durable = self.durable();
        if pending.last == durable && pending.marked < durable {
            let entry = Entry { queue: 0, time: 0, function: 0 };
            pending.marked = self.append_to(&mut pending, entry, RecordKind::Mark, |_| ());
        }
    }

    /// Writes, syncs, and accepts nothing further. A closed journal records what must exist when it
    /// is opened again.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit); and [`JournalError::Full`] if all is on disk, and no room to say so.
    pub fn close(&self) -> Result<(), JournalError> {
        self.condition.check(false)?;
        let done = self.commit(self.last(), Durability::Always).and_then(|()| {
            self.mark();
            self.commit(self.last(), Durability::Always)?;
            self.say_closed()
        });
        self.condition.set(JournalError::Closed);
        done
    }

    fn say_closed(&self) -> Result<(), JournalError> {
        let (last, time) = {
            let pending = self.pending.lock();
            (pending.last, pending.time)
        };
        let made = self.storage.create(CLOSING, 0, Fill::Reserved).and_then(|file| {
            file.write(0, &Closed { last, time }.encode())?;
            file.sync()?;
            self.storage.rename(CLOSING, CLOSED)
        });
        let place = || self.storage.describe(CLOSED);
        made.map_err(|error| self.condition.no_room(false, &place(), &error))
    }

    /// Makes the next segment, unless there is one: to be called now and then by a thread that may wait
    /// for the disk, or a commit has to. Answers whether it made one.
    ///
    /// # Errors
    ///
    /// [`JournalError::Short`] without room for it.
    pub fn prepare(&self) -> Result<bool, JournalError> {
        let _preparing = self.preparing.lock();
        if self.writer.lock().has_spare() {
            self.condition.recovered();
            return Ok(false);
        }
        let JournalSettings { segment, fill, .. } = self.settings;
        match self.storage.create(SPARE, segment, fill) {
            Ok(file) => {
                let mut writer = self.writer.lock();
                writer.set_spare(file, segment);
                self.note_room(&writer);
                self.condition.recovered();
                Ok(true)
            }
            Err(error) => {
                let place = self.storage.describe(SPARE);
                Err(self.condition.set(self.condition.no_room(true, &place, &error)))
            }
        }
    }

    /// Returns whether the segment in use is so full that the next one should be made.
    pub fn wants_segment(&self) -> bool {
        let writer = self.writer.lock();
        !writer.has_spare() && writer.room() < self.settings.segment / 2
    }

    /// Returns whether there are segments that a snapshot would make room of.
    pub fn has_old_segments(&self) -> bool {
        self.writer.lock().segments() > 1
    }

    /// Writes all that was appended so far.
    fn write(&self, writer: &mut Writer<S::File>) -> Result<(), JournalError> {
        if let Some(refused @ (JournalError::Failed(_) | JournalError::Closed)) =
            self.condition.get()
        {
            return Err(refused);
        }
        loop {
            // Records that did not fit before come first.
            if writer.batch.is_empty() {
                let mut pending = self.pending.lock();
                std::mem::swap(&mut writer.batch, &mut pending.bytes);
                writer.batch_last = pending.last;
            }
            if writer.batch.is_empty() {
                return Ok(());
            }
            if writer.room() < writer.batch.len() as u64 {
                self.rotate(writer)?;
            }
            let length = writer.batch.len() as u64;
            if let Err(error) = writer.write() {
                let doing = format!("writing {}", self.storage.describe(&writer.name()));
                return Err(self.condition.fail(&doing, &error));
            }
            self.note_room(writer);
            self.written.store(writer.last(), Ordering::Release);
            self.bytes.fetch_add(length, Ordering::Relaxed);
        }
    }

    /// Continues in a new segment, once this one is completely on disk.
    fn rotate(&self, writer: &mut Writer<S::File>) -> Result<(), JournalError> {
        self.sync_file(&**writer.file(), writer.last())?;
        let needed = crate::file::HEAD as u64 + writer.batch.len() as u64;
        match writer.rotate(&self.storage, self.settings, needed) {
            Ok(()) => {
                self.condition.recovered();
                Ok(())
            }
            Err(error) if crate::storage::may_pass(&error) => {
                self.note_room(writer);
                let place = self.storage.describe(&writer.next_name());
                Err(self.condition.set(self.condition.no_room(false, &place, &error)))
            }
            Err(error) => {
                let doing = format!("making {}", self.storage.describe(&writer.next_name()));
                Err(self.condition.fail(&doing, &error))
            }
        }
    }

    fn sync_file(&self, file: &S::File, last: u64) -> Result<(), JournalError> {
        let _syncing = self.syncing.lock();
        // Whoever synced before may have been told of a failure that is ours too.
        if let Some(failed @ JournalError::Failed(_)) = self.condition.get() {
            return Err(failed);
        }
        if self.durable() >= last {
            return Ok(());
        }
        if let Err(error) = file.sync() {
            return Err(self.condition.fail("syncing a segment", &error));
        }
        self.durable.fetch_max(last, Ordering::AcqRel);
        Ok(())
    }

    pub(crate) fn snapshot_made(&self) {
        self.bytes.store(0, Ordering::Relaxed);
    }
}

/// The part of a segment, one in this many, that is left to calls that make queues smaller.
const RESERVED: u64 = 4;

/// An error of the disk, with what was being done.
pub(crate) fn at(storage: &impl Storage, name: &str) -> impl FnOnce(io::Error) -> io::Error {
    let place = storage.describe(name);
    move |error| io::Error::new(error.kind(), format!("{place}: {error}"))
}
