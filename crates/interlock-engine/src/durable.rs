//! Durable queues: what a [`Journal`] records, in the journal of `interlock-journal`.
//!
//! ```
//! use std::sync::Arc;
//! use interlock_engine::durable::{Durable, Repair};
//! use interlock_engine::{Durability, Engine, Function, Outcome, EngineSettings};
//! use interlock_journal::storage::disk::Disk;
//!
//! let folder = std::env::temp_dir().join(format!("interlock-durable-{}", std::process::id()));
//! let start = || {
//!     let durable = Arc::new(Durable::new());
//!     let settings = EngineSettings {
//!         durability: Durability::Always,
//!         journal: Some(durable.clone()),
//!         ..EngineSettings::default()
//!     };
//!     let engine = Engine::new(settings);
//!     let disk = Disk::open(&folder).unwrap();
//!     let report = durable.open(&engine, disk, Default::default(), Repair::Refuse).unwrap();
//!     (durable, engine, report)
//! };
//! let call = |engine: &Engine, function, args: &[&str], now| {
//!     let (mut out, mut served) = (Vec::new(), Vec::new());
//!     let key = Some(&b"il:{mail}"[..]);
//!     assert_eq!(engine.call(function, key, args, now, None, &mut out, &mut served), Outcome::Done);
//!     String::from_utf8(out).unwrap()
//! };
//! let (durable, engine, _) = start();
//! call(&engine, Function::Put, &["me", "1", "0", "hello", "1", "0", "0", "room:7"], 1_000);
//! durable.commit().unwrap(); // and only now the reply may leave
//! drop((durable, engine));
//!
//! let (_, engine, report) = start();
//! assert_eq!(report.replayed, 2); // the queue's name, and the put
//! let lease = call(&engine, Function::Lease, &["you", "1", "0", "1", "500", "any"], 2_000);
//! assert!(lease.contains("hello"));
//! # std::fs::remove_dir_all(folder).unwrap();
//! ```
//!
//! A queue has a number in the journal, given by the first record of it, which holds its name. In a
//! snapshot the name precedes the queue's dump.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use hashbrown::HashMap;
use interlock_core::queue::schedules::bytes::{string, Reader};
use interlock_core::queue::types::rules::Rules;
use interlock_core::queue::types::Time;
use interlock_journal::snapshot::Made;
use interlock_journal::storage::disk::Disk;
use interlock_journal::storage::Storage;
use interlock_journal::{journal, Entry, JournalError, Record, Replay};
use parking_lot::RwLock;

use crate::queue::names::ByName;
use crate::{Durability, Engine, Journal, Recorded};

pub use interlock_journal::{OpenError, Repair, Report};

/// Bytes of records after which a snapshot is taken, if the last one was smaller than half of that.
const SNAPSHOT_AFTER: u64 = 256 << 20;
/// After one that could not be made, µs.
const SNAPSHOT_AGAIN: Time = 10_000_000;
/// Longest time by which setting the clock back can delay a message while no calls are made, µs.
const TIME_NOTED: Time = 10_000_000;
/// The record that gives a queue its number.
const NAME: u8 = 0;

/// The records of an engine's durable queues.
pub struct Durable<S: Storage = Disk> {
    journal: OnceLock<interlock_journal::Journal<S>>,
    numbers: RwLock<Numbers>,
    /// Time of the last tick.
    ticked: AtomicU64,
    /// Bytes of the last snapshot, and when the next one may be tried.
    snapshot_bytes: AtomicU64,
    snapshot_from: AtomicU64,
}

#[derive(Default)]
struct Numbers {
    of: ByName<u32>,
    last: u32,
}

thread_local! {
    /// The records that this thread has made since its last commit.
    static TURN: Cell<Turn> = const { Cell::new(Turn { last: 0, durability: journal::Durability::None }) };
    /// The reason why something could not be recorded since then.
    static LOST: std::cell::RefCell<Option<JournalError>> = const { std::cell::RefCell::new(None) };
}

/// Sequence of the last record; 0 for none. And the strongest promise of all.
#[derive(Clone, Copy)]
struct Turn {
    last: u64,
    durability: journal::Durability,
}

impl<S: Storage> Default for Durable<S> {
    fn default() -> Self {
        let (ticked, snapshot_bytes, snapshot_from) = Default::default();
        let (journal, numbers) = Default::default();
        Durable { journal, numbers, ticked, snapshot_bytes, snapshot_from }
    }
}

impl<S: Storage> Durable<S> {
    pub fn new() -> Self {
        Durable::default()
    }

    /// Opens the journal and makes the queues of an engine, which has none yet, as they were. Until then
    /// durable queues can only be read.
    ///
    /// # Errors
    ///
    /// As [`interlock_journal::open`]. The engine then holds what had been read, and is of no use.
    pub fn open(
        &self,
        engine: &Engine,
        storage: S,
        settings: interlock_journal::JournalSettings,
        repair: Repair,
    ) -> Result<Report, OpenError> {
        let rules = Rules::last_of(engine.rules());
        let settings = interlock_journal::JournalSettings { rules: rules.version, ..settings };
        let (names, strangers) = Default::default();
        let mut replayer = Replayer { engine, rules, names, last: 0, strangers };
        let (journal, report) = interlock_journal::open(storage, settings, repair, &mut replayer)?;
        if let Some(number) = replayer.strangers.iter().min() {
            let why = format!("queue {number} has records, and no name");
            return Err(OpenError::Replay {
                file: "the journal".into(),
                sequence: report.last,
                why,
            });
        }
        let mut numbers = self.numbers.write();
        numbers.last = replayer.last;
        numbers.of = replayer.names.into_iter().map(|(number, name)| (name, number)).collect();
        drop(numbers);
        let found = report.snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes);
        self.snapshot_bytes.store(found, Ordering::Relaxed);
        assert!(self.journal.set(journal).is_ok(), "a journal is opened once");
        Ok(report)
    }

    /// The journal once it is open, for [`tick`](interlock_journal::Journal::tick),
    /// [`prepare`](interlock_journal::Journal::prepare) and what it can be asked.
    pub fn journal(&self) -> Option<&interlock_journal::Journal<S>> {
        self.journal.get()
    }

    /// The end of a turn of this thread: when it returns, the replies of its calls, and of those
    /// they served, may be sent. A thread records for one engine.
    ///
    /// # Errors
    ///
    /// The error if they must not be sent.
    pub fn commit(&self) -> Result<(), JournalError> {
        let Turn { last, durability } =
            TURN.replace(Turn { last: 0, durability: journal::Durability::None });
        if let Some(lost) = LOST.take() {
            return Err(lost);
        }
        match self.journal.get() {
            Some(journal) if last > 0 => journal.commit(last, durability),
            _ => Ok(()),
        }
    }

    /// Writes the state of all durable queues, one after the other, so that old records can go. Each
    /// queue is held while its state is copied in memory, and not while it is written.
    ///
    /// # Errors
    ///
    /// Fails if the disk fails or is full: the journal continues as before.
    pub fn snapshot(&self, engine: &Engine) -> io::Result<Made> {
        let journal = self.journal.get().ok_or_else(|| io::Error::other("it is not open"))?;
        let mut snapshot = journal.snapshot()?;
        let numbers: Vec<(Box<[u8]>, u32)> = {
            let numbers = self.numbers.read();
            numbers.of.iter().map(|(name, number)| (name.clone(), *number)).collect()
        };
        let mut state = Vec::new();
        for (name, number) in numbers {
            state.clear();
            string(&mut state, &name);
            if let Some(last) = engine.dump(&name, &mut state, || journal.last()) {
                snapshot.queue(number, last, &state)?;
            }
        }
        snapshot.finish()
    }

    /// Does what has to be done beside the calls, by a thread that may wait for the disk: to be
    /// called about ten times a second with the time, µs. Syncs once a second, makes the next
    /// segment in good time, and takes a snapshot when the journal has grown enough, or has no room
    /// and old segments. Answers the snapshot, or why it could not be made: the next one is tried
    /// ten seconds later.
    ///
    /// # Errors
    ///
    /// Why calls are refused meanwhile, as [`commit`](Self::commit) says it. To be said once, for each
    /// call of this function comes to it anew.
    pub fn upkeep(
        &self,
        engine: &Engine,
        now: Time,
    ) -> Result<Option<io::Result<Made>>, JournalError> {
        let Some(journal) = self.journal.get() else { return Ok(None) };
        // Relaxed: one thread does this.
        let second = now.saturating_sub(self.ticked.load(Ordering::Relaxed)) >= 1_000_000;
        let mut done = match second {
            true => {
                self.ticked.store(now, Ordering::Relaxed);
                journal.tick()
            }
            // A fault persists between two ticks. Without room, try once a second: each try uses up
            // what is left.
            false => journal.trouble(),
        };
        if done.is_ok() && journal.wants_segment() {
            done = journal.prepare().map(drop);
        }
        let full = matches!(done, Err(JournalError::Short(_) | JournalError::Full(_)));
        let enough = SNAPSHOT_AFTER.max(2 * self.snapshot_bytes.load(Ordering::Relaxed));
        let wanted = journal.bytes() >= enough || (full && journal.has_old_segments());
        // Each try holds up every queue for a moment.
        if !wanted || now < self.snapshot_from.load(Ordering::Relaxed) {
            return done.map(|()| None);
        }
        match self.snapshot(engine) {
            Ok(made) => {
                self.snapshot_bytes.store(made.bytes, Ordering::Relaxed);
                Ok(Some(Ok(made)))
            }
            // The journal continues without it, and reports lack of room or a failure itself.
            Err(error) => {
                self.snapshot_from.store(now + SNAPSHOT_AGAIN, Ordering::Relaxed);
                done.map(|()| Some(Err(error)))
            }
        }
    }

    /// Records the time of the queues, so that the next process continues from it; to be called
    /// regularly. Nothing is written while nothing falls due.
    pub fn note_time(&self, engine: &Engine, now: Time) {
        if let Some(journal) = self.journal.get().filter(|_| engine.next_due().is_some()) {
            journal.note_time(now, TIME_NOTED);
        }
    }

    /// The end, at that time of the queues: all is on disk, and it is known that it was.
    ///
    /// # Errors
    ///
    /// As [`interlock_journal::Journal::close`].
    pub fn close(&self, now: Time) -> Result<(), JournalError> {
        let Some(journal) = self.journal.get() else { return Ok(()) };
        journal.note_time(now, 0);
        journal.close()
    }

    fn append(
        &self,
        entry: Entry,
        durability: journal::Durability,
        args: &[&[u8]],
    ) -> Result<(), JournalError> {
        let journal = self.journal.get().ok_or(JournalError::Closed)?;
        let sequence = journal.append(entry, args.iter().copied())?;
        let turn = TURN.get();
        TURN.set(Turn { last: sequence, durability: turn.durability.max(durability) });
        Ok(())
    }

    /// The number of a queue, whose lock is held.
    fn number(
        &self,
        queue: &[u8],
        durability: journal::Durability,
        time: Time,
    ) -> Result<u32, JournalError> {
        if let Some(&number) = self.numbers.read().of.get(queue) {
            return Ok(number);
        }
        let mut numbers = self.numbers.write();
        let number = numbers.last + 1;
        self.append(Entry { queue: number, time, function: NAME }, durability, &[queue])?;
        numbers.last = number;
        numbers.of.insert(queue.into(), number);
        Ok(number)
    }
}

impl<S: Storage> Journal for Durable<S> {
    fn record(
        &self,
        queue: &[u8],
        durability: Durability,
        now: Time,
        recorded: Recorded,
        args: &[&[u8]],
    ) {
        let durability = promise(durability);
        let function = recorded.number().expect("every function that changes something has one");
        let appended = self.number(queue, durability, now).and_then(|number| {
            self.append(Entry { queue: number, time: now, function }, durability, args)
        });
        if let Err(refused) = appended {
            LOST.set(Some(refused));
        } else if recorded == Recorded::Forgotten {
            self.numbers.write().of.remove(queue);
        }
    }

    fn knows(&self, queue: &[u8]) -> bool {
        self.numbers.read().of.contains_key(queue)
    }

    fn repeated(&self, durability: Durability) {
        if let Some(journal) = self.journal.get() {
            let turn = TURN.get();
            let durability = turn.durability.max(promise(durability));
            TURN.set(Turn { last: turn.last.max(journal.last()), durability });
        }
    }

    fn shown(&self, durability: Durability) {
        if self.journal.get().is_some_and(|journal| journal.accepts(None).is_ok()) {
            self.repeated(durability);
        }
    }

    fn accepts(&self, growing: Option<u64>) -> Result<(), String> {
        match self.journal.get() {
            Some(journal) => journal.accepts(growing).map_err(|refused| refused.to_string()),
            None => Err("the journal is not open".to_owned()),
        }
    }
}

fn promise(durability: Durability) -> journal::Durability {
    match durability {
        Durability::Always => journal::Durability::Always,
        Durability::EverySecond => journal::Durability::EverySecond,
        Durability::None => journal::Durability::None,
    }
}

/// Repeats the calls of a journal.
struct Replayer<'a> {
    engine: &'a Engine,
    /// The rules that the calls now replayed were made by.
    rules: &'static Rules,
    names: HashMap<u32, Box<[u8]>, std::hash::RandomState>,
    last: u32,
    /// Numbers without a name, of queues that must turn out to be durable no longer.
    strangers: hashbrown::HashSet<u32, std::hash::RandomState>,
}

impl Replay for Replayer<'_> {
    fn snapshot(&mut self, queue: u32, state: &[u8]) -> Result<(), String> {
        let mut reader = Reader::new(state);
        let name = reader.string("name").map_err(|damaged| damaged.to_string())?;
        self.engine.restore(name, reader.rest()).map_err(|damaged| damaged.to_string())?;
        self.names.insert(queue, name.into());
        self.last = self.last.max(queue);
        Ok(())
    }

    fn rules(&mut self, version: u32) -> Result<(), String> {
        // What was written before there were versions has 0.
        self.rules = Rules::find(self.engine.rules(), version.max(1))?;
        Ok(())
    }

    fn call(&mut self, record: &Record<'_>) -> Result<(), String> {
        // With room for those of most calls: a million records are a million lists.
        let mut args: Vec<&[u8]> = Vec::with_capacity(16);
        args.extend(record.arguments());
        if record.function == NAME {
            let [name] = args[..] else { return Err("a queue has one name".into()) };
            self.names.insert(record.queue, name.into());
            self.last = self.last.max(record.queue);
            return Ok(());
        }
        let Some(recorded) = Recorded::of_number(record.function) else {
            return Err(format!("no function has the number {}", record.function));
        };
        let forgotten = recorded == Recorded::Forgotten;
        let Some(name) = self.names.get(&record.queue) else {
            // It was durable when the snapshot began, but not when its turn came.
            if forgotten {
                self.strangers.remove(&record.queue);
            } else {
                self.strangers.insert(record.queue);
            }
            return Ok(());
        };
        let made = self.engine.replay(name, recorded, &args[..], record.time, self.rules);
        let made = made
            .map_err(|refused| format!("queue {}: {}", String::from_utf8_lossy(name), refused.0));
        if forgotten {
            self.names.remove(&record.queue);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use crate::durable::*;
    use crate::{Class, Function};

    #[test]
    fn every_changing_function_has_a_unique_record_number() {
        let mut numbers = Vec::new();
        let changes = |one: &&Function| one.class() != Class::Read && !one.is_ephemeral();
        for &function in Function::ALL.iter().filter(changes) {
            let number =
                Recorded::Call(function).number().unwrap_or_else(|| panic!("{}", function.name()));
            assert_eq!(Recorded::of_number(number), Some(Recorded::Call(function)));
            numbers.push(number);
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(
            numbers.len(),
            Function::ALL.iter().filter(|one| one.record().is_some()).count()
        );
        assert!(Recorded::of_number(NAME).is_none());
    }
}
