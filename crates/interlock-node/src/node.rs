//! The loop of a node, between its clients, the log, its state and its files. It never blocks on
//! one of them alone.
//!
//! Everything that clients have written since the last append becomes one entry; several entries
//! are under way. A client is answered once the node has read its own entry and has the applied
//! entries in its ring file.

mod acks;
mod disk;
mod keeping;
mod outside;
mod places;
mod standing;
mod taking;

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlock_log::apply::Answer;
use interlock_log::checkpoint::Place;
use interlock_log::codec::checksum;
use interlock_log::entry::Mark;
use interlock_log::machine::Machine;
use interlock_log::replica::{Need, Replica, Setup};
use interlock_log::ring::{Memory, Record};
use interlock_stores::disk::Disk;
use interlock_stores::StoreError;

pub(crate) use self::outside::{answer, encoded, Ask, Bring, Brought, Outside};
pub use self::outside::{Changes, Lacking, Reader, Reported, Stand};
use crate::files::{Checkpoints, Limits, Point, Report, Ring};
use crate::kept::InFile;
use crate::log::{self, Event, Id, LogPort, Position};
pub use crate::ports::{Clients, News, Pace, Refused, Unacknowledged, Write};
use crate::projection::Projection;
use crate::saver::Saver;
use acks::Acks;
use keeping::Keeping;
use places::{older, position};
pub use standing::{KeeperTold, Standing, Standstill, Told};

pub struct Node<M, D: Disk, C> {
    log: Box<dyn LogPort>,
    replica: Replica<M, InFile<D>>,
    genesis: Vec<u8>,
    projection: Box<dyn Projection<M>>,
    /// The last problem of the table, so that it is reported once.
    table_trouble: Option<String>,
    /// The place that readers saw in the table before this node showed anything.
    seen_before: Option<Mark>,
    is_other: bool,
    outside: Outside,
    drains: bool,
    /// There is more to do that no descriptor signals: what was sent last was answered at once.
    has_more: bool,
    /// The moment whose whole log readers see.
    at_end: Option<Instant>,
    is_at_end: bool,
    /// Time of the last entry that it appended to announce the time, and the ms for which it lets
    /// another node do so first.
    told_at: Instant,
    patience: u64,
    /// Time at which it stopped taking writes.
    takes_none: Option<Instant>,
    ring: Arc<Mutex<Ring<D>>>,
    saver: Saver<D>,
    clients: C,
    pace: Pace,
    /// Replies to send once the ring is written.
    answers: Vec<(u64, Answer)>,
    /// Since when readers of this machine have seen an older state.
    behind_since: Option<Instant>,
    acks: Acks,
    /// Entries to append once the engine takes them.
    waiting: VecDeque<Vec<u8>>,
    /// All pending entries are to be appended again, not before this time.
    again: Option<Instant>,
    /// Since when it has been waiting for other nodes to put back entries that it cannot.
    waits: Option<Instant>,
    is_genesis_under_way: bool,
    is_reading_for: ReadingFor,
    /// True if it has asked where the log begins: its ring may have the entries before that.
    asks_for_ends: bool,
    /// The number of the checkpoint that it went back to; older ones are tried next.
    tried: u64,
    /// Since it was asked to read the log anew: the number of the checkpoint after which it looks for
    /// one to continue from, should the log lack its beginning.
    resynced: Option<u64>,
    read_at: Instant,
    written_at: Instant,
    /// Time of the last append.
    sent_at: Instant,
    /// The position of the newest checkpoint, and of the one that was last begun.
    saved: u64,
    begun: u64,
    /// Since when the ring cannot be written.
    disk_bad: Option<Instant>,
    /// Time of the last check that its folder exists.
    looked_at: Instant,
    /// True if it has appended an empty entry to learn the log's current time.
    is_greeted: bool,
    /// True if it has read an entry since.
    knows_time: bool,
    keeping: Keeping,
    told: Told,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadingFor {
    State,
    Comparison,
    Nothing,
}

impl<M: Machine, D: Disk, C: Clients> Node<M, D, C> {
    /// Starts with the contents of the folder, which the owner has locked.
    pub fn new(
        log: Box<dyn LogPort>,
        setup: Setup,
        disk: D,
        mut clients: C,
        projection: Box<dyn Projection<M>>,
        pace: Pace,
    ) -> Result<Self, StoreError> {
        let (mut memory, mut reports, mut unread) = (Memory::new(MOST_KEPT), Vec::new(), 0);
        let see = |one: crate::files::Kept| match Record::decode(&one.bytes) {
            Ok(record) => memory.restore(record),
            Err(_) => unread += 1,
        };
        let ring = Ring::open(disk.clone(), Limits::default(), see, &mut reports)?;
        if unread > 0 {
            let text = format!(
                "{unread} records were written by another version of the program, and are skipped"
            );
            reports.push(Report { path: "the ring".to_owned(), text });
        }
        let ring = Arc::new(Mutex::new(ring));
        let checkpoints = Checkpoints::open(disk, pace.reach)?;
        let newest = older(&checkpoints, u64::MAX, &mut reports)?;
        let (tried, point, newest) = newest
            .map_or((u64::MAX, Point::default(), None), |(n, stand, found)| {
                (n, stand, Some(found))
            });
        for Report { path, text } in reports {
            clients.tell(News::Disk(format!("{path}: {text}")));
        }
        let saved = newest.as_ref().map_or(0, |found| found.place.mark.position);
        let genesis = setup.genesis.clone();
        // Names are new with each start, so nodes differ in their patience.
        let patience = checksum(3, &setup.name) % PATIENCE;
        let replica = Replica::new(setup, InFile { memory, file: ring.clone() }, newest);
        let mut node = Node {
            log,
            replica,
            genesis,
            seen_before: projection.shown(),
            projection,
            table_trouble: None,
            is_other: false,
            outside: Outside::default(),
            drains: false,
            has_more: false,
            at_end: None,
            is_at_end: false,
            told_at: Instant::now(),
            patience,
            takes_none: None,
            ring,
            saver: Saver::new(checkpoints),
            clients,
            pace,
            answers: Vec::new(),
            behind_since: None,
            acks: Acks::new(pace.acks),
            waiting: VecDeque::new(),
            again: None,
            waits: None,
            is_genesis_under_way: false,
            is_reading_for: ReadingFor::State,
            asks_for_ends: false,
            tried,
            resynced: None,
            read_at: Instant::now(),
            written_at: Instant::now(),
            sent_at: Instant::now(),
            saved,
            begun: saved,
            disk_bad: None,
            looked_at: Instant::now(),
            is_greeted: false,
            knows_time: false,
            keeping: Keeping::new(point.bytes),
            told: Told::default(),
        };
        node.log.read_from(position(node.replica.place()));
        Ok(node)
    }

    pub fn replica_state(&self) -> Option<&M> {
        self.replica.state().machine.as_ref()
    }

    pub fn place(&self) -> Place {
        self.replica.place()
    }

    /// Returns whether it has read the log to its end since it last went back.
    pub fn serves(&self) -> bool {
        self.replica.serves() && !self.outside.held
    }

    pub fn clients(&mut self) -> &mut C {
        &mut self.clients
    }

    /// Stops taking writes; those already taken are done.
    pub fn drain(&mut self) {
        self.drains = true;
    }

    /// Waits for an event, for `woken` to become readable, or until a moment, then does the work
    /// that is due. Returns whether `woken` is readable.
    pub fn turn(&mut self, until: Instant, woken: Option<RawFd>) -> bool {
        let now = Instant::now();
        let mut polled = Vec::new();
        self.log.descriptors(&mut polled);
        let at = polled.len();
        polled.extend(woken.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }));
        if self.takes() || self.drains {
            let fd = self.clients.descriptor();
            polled.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        }
        let mut wake = self.log.wake_at().min(until);
        if self.log.is_open() && self.log.under_way().0 == 0 {
            wake = self.again.map_or(wake, |again| wake.min(again));
        }
        if self.disk_bad.is_some() {
            wake = wake.min(now + RETRY);
        }
        let slow_at = self.sent_at + SLOW;
        if now < slow_at && (1..self.pace.few).contains(&self.log.under_way().0) {
            wake = wake.min(slow_at);
        }
        let wait = wake.saturating_duration_since(now);
        let ms = if wait.is_zero() || self.has_more { 0 } else { wait.as_millis() as i32 + 1 };
        // SAFETY: the pointer and the length are those of `polled`, whose descriptors are open for
        // as long as their owners are.
        let found = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as u64, ms) };
        if found >= 0 {
            self.log.polled(&polled);
        }
        self.has_more = self.work(Instant::now());
        woken.is_some() && polled[at].revents != 0
    }

    fn takes(&self) -> bool {
        self.log.is_open()
            && self.serves()
            && !self.is_other
            && !self.drains
            && self.knows_time
            && self.disk_bad.is_none()
            && self.waiting.is_empty()
            && !self.projection.is_behind()
            && self.has_place()
    }

    /// Returns whether another entry may be sent now. Several entries may be under way if each has
    /// many writes. An entry with few writes waits for the previous one and gathers more meanwhile,
    /// unless the engine is slow.
    fn has_place(&self) -> bool {
        let count = self.log.under_way().0;
        let is_slow = || count < self.pace.few && self.sent_at.elapsed() >= SLOW;
        let has_many = || count < self.pace.under_way && self.clients.waiting() >= MANY;
        count == 0 || is_slow() || has_many()
    }

    /// Returns whether there is more work to do at once.
    fn work(&mut self, now: Instant) -> bool {
        self.log.drive(now);
        while let Some(event) = self.log.event() {
            self.see(event, now);
        }
        self.follow();
        self.show();
        self.watch_readers(now);
        self.leave(now);
        self.write_ring(now);
        self.acknowledge(now);
        self.append_again(now);
        self.gather(now);
        self.tell_time(now);
        self.refuse(now);
        self.send();
        self.save(now);
        self.keep(now);
        self.log.send(now)
    }

    /// Shows the applied entries to readers on this machine.
    fn show(&mut self) {
        let place = self.replica.place();
        let is_settled = self.is_settled() && !self.outside.held;
        let Some(genesis) =
            self.replica.state().machine.as_ref().map(|_| &self.replica.state().genesis)
        else {
            return;
        };
        if self.is_other || *genesis != self.genesis {
            if !self.is_other {
                self.is_other = true;
                let genesis = genesis.clone();
                self.told.begins("settings", "the log belongs to a table with other settings");
                self.clients.tell(News::OtherSettings(genesis));
            }
            return;
        }
        if is_settled && self.seen_before.take().is_some_and(|seen| self.replica.lacks_mark(seen)) {
            self.clients.tell(News::ReadersGoBack);
        }
        let Some(machine) = self.replica.machine_mut() else { return };
        let trouble = self.projection.show(machine, place, is_settled).err();
        if trouble != self.table_trouble {
            self.table_trouble.clone_from(&trouble);
            self.told.ends("table");
            if let Some(text) = trouble {
                self.told.begins("table", text.clone());
                self.clients.tell(News::Table(text));
            }
        }
    }

    /// Answers clients whose deadlines have passed.
    fn leave(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.read_at);
        if since > BEHIND && self.replica.is_awaited() {
            self.replica.leave(since.as_millis() as u64);
        }
    }

    fn see(&mut self, event: Event, now: Instant) {
        match event {
            Event::Open => self.again = Some(now),
            // The log itself compares the id with the last one read when the entry was appended.
            Event::Appended { .. } => self.told.ends("append"),
            Event::Refused { trouble, .. } => {
                self.again = Some(now + RETRY);
                self.is_genesis_under_way = false;
                if !trouble.kind.is_of_history() {
                    self.told.begins("append", trouble.text.clone());
                }
                self.clients.tell(News::Trouble(trouble));
            }
            Event::Unknown { trouble, .. } => {
                self.is_genesis_under_way = false;
                self.told.begins("engine", trouble.text.clone());
                self.clients.tell(News::Trouble(trouble));
            }
            Event::Trouble(trouble) => {
                let is_of_history = trouble.kind.is_of_history();
                if !is_of_history {
                    self.told.begins("engine", trouble.text.clone());
                }
                self.clients.tell(News::Trouble(trouble));
                if is_of_history {
                    self.go_back();
                }
            }
            Event::Read { entries, at_end, as_of } => {
                if self.log.is_open() {
                    self.told.ends("engine");
                }
                match self.is_reading_for {
                    ReadingFor::Nothing => {}
                    ReadingFor::Comparison => self.compare(&entries, at_end),
                    ReadingFor::State => {
                        self.apply(&entries, at_end, now);
                        // Until then readers of the table see the state from before it went back.
                        if at_end && self.is_settled() {
                            self.at_end = Some(as_of);
                        }
                    }
                }
            }
            Event::Looked(there) => self.looked(&there),
            Event::Trimmed(done) => self.trimmed(done),
            Event::Ends(Some((first, _))) => self.continue_from(&first),
            Event::Ends(None) => {}
        }
    }

    fn apply(&mut self, entries: &[log::Entry], at_end: bool, now: Instant) {
        for entry in entries {
            let id = (entry.id.ms, entry.id.number);
            self.keeping.bytes += entry.bytes.len() as u64;
            if self.replica.read(id, entry.time, &entry.bytes) {
                self.again = Some(now);
            }
            self.outside.read(self.replica.place().entry);
            self.acks.read(self.replica.place().entry);
            if self.acks.is_in_use() {
                self.take_answers(now);
            }
            if !matches!(self.replica.need(), Need::Entries(_)) {
                return;
            }
        }
        if !entries.is_empty() {
            (self.written_at, self.read_at) = (now, now);
            self.is_genesis_under_way = false;
            self.knows_time |= self.is_greeted;
        }
        self.is_at_end = at_end;
        if !at_end {
            return;
        }
        // It has caught up: the next time it goes back, it starts with the newest checkpoint.
        (self.tried, self.resynced) = (u64::MAX, None);
        let has_state = self.replica.state().machine.is_some();
        if self.is_genesis_under_way || (has_state && !self.waiting.is_empty()) {
            return;
        }
        if !self.replica.waits() {
            self.waits = None;
        } else if now >= *self.waits.get_or_insert(now) + self.pace.patience {
            self.replica.wait_no_longer();
        }
        let entries = self.replica.at_the_end(MOST_PUT_BACK);
        self.told.puts_back(&entries);
        self.waiting.extend(entries);
        if self.replica.serves() && !self.is_greeted {
            self.is_greeted = true;
            self.waiting.push_back(self.replica.append());
        }
    }

    fn compare(&mut self, entries: &[log::Entry], at_end: bool) {
        for entry in entries {
            let id = (entry.id.ms, entry.id.number);
            self.replica.compare(Some((id, &entry.bytes)));
            if !matches!(self.replica.need(), Need::Comparison(_)) {
                return;
            }
        }
        if at_end {
            self.replica.compare(None);
        }
    }

    /// Reads the entries that the replica needs next.
    fn follow(&mut self) {
        loop {
            let now = self.is_reading_for;
            match self.replica.need() {
                Need::Entries(_) if now == ReadingFor::State => return,
                Need::Comparison(_) if now == ReadingFor::Comparison => return,
                Need::Snapshot if now == ReadingFor::Nothing => {
                    self.asks_for_ends = self.asks_for_ends && !self.log.ask_ends();
                    return;
                }
                Need::Entries(_) => {
                    self.told.ends("stuck");
                    self.is_reading_for = ReadingFor::State;
                    self.log.read_from(position(self.replica.place()));
                    return;
                }
                Need::Comparison(id) => {
                    self.is_reading_for = ReadingFor::Comparison;
                    let from = |(ms, number)| Position { id: Id { ms, number }, mark: None };
                    self.log.read_from(id.map(from));
                    return;
                }
                Need::Checkpoint(_) => self.go_back(),
                Need::Snapshot => {
                    self.is_reading_for = ReadingFor::Nothing;
                    self.told.begins("stuck", STUCK);
                    self.clients.tell(News::Stuck);
                    self.asks_for_ends = true;
                    return;
                }
            }
        }
    }

    /// Goes back to the newest checkpoint that may still be part of the log (rule 3). If the log
    /// turns out not to have it, the one before is tried.
    fn go_back(&mut self) {
        if !matches!(self.replica.need(), Need::Checkpoint(_)) {
            if self.continue_from_oldest() {
                return;
            }
            self.replica.last_is(None);
        }
        let Need::Checkpoint(before) = self.replica.need() else {
            // Without a history it cannot go back to a checkpoint: the log lacks its beginning.
            self.replica.is_trimmed();
            return;
        };
        self.saver.cancel();
        let mut reports = Vec::new();
        let found = loop {
            match older::<M, D>(&self.saver.checkpoints(), self.tried, &mut reports) {
                Ok(Some((number, point, found))) => {
                    self.tried = number;
                    if found.place.mark.position < before {
                        break Some((point, found));
                    }
                }
                Ok(None) => break None,
                Err(error) => {
                    self.clients.tell(News::Disk(error.to_string()));
                    break None;
                }
            }
        };
        for Report { path, text } in reports {
            self.clients.tell(News::Disk(format!("{path}: {text}")));
        }
        self.told.went_back += 1;
        let bytes = found.as_ref().map_or(0, |(point, _)| point.bytes);
        self.go_on(found.map(|(_, found)| found), bytes);
        self.clients.tell(News::GoesBack(self.replica.place().mark.position));
    }

    /// Appends the pending entries again, in order, once nothing is under way and they may be lost.
    fn append_again(&mut self, now: Instant) {
        if now >= self.written_at + self.pace.again {
            self.written_at = now;
            self.again = self.again.or(Some(now));
        }
        let is_due = self.again.is_some_and(|again| now >= again);
        let has_state = self.replica.state().machine.is_some();
        if !is_due || !has_state || !self.can_send() || self.log.under_way().0 > 0 {
            return;
        }
        self.again = None;
        self.waiting.extend(self.replica.again());
    }

    /// Rows expire by the log's time: while nobody writes, an entry without commands announces it.
    fn tell_time(&mut self, now: Instant) {
        if now < self.told_at + TOLD || !self.takes() || self.log.under_way().0 > 0 {
            return;
        }
        let due = self.replica.state().machine.as_ref().and_then(M::next_due);
        let since = now.saturating_duration_since(self.read_at).as_millis() as u64;
        if due.is_some_and(|due| self.replica.deadline(since, 0) >= due + self.patience) {
            self.told_at = now;
            self.waiting.push_back(self.replica.append());
        }
    }

    fn can_send(&self) -> bool {
        self.log.is_open() && self.waiting.is_empty()
    }

    fn send(&mut self) {
        while let Some(entry) = self.waiting.front() {
            let sent = if self.replica.state().machine.is_none() {
                self.is_genesis_under_way = true;
                self.log.begin(entry)
            } else {
                self.log.append(entry)
            };
            if sent.is_none() {
                return;
            }
            self.sent_at = Instant::now();
            self.told.appended(entry);
            self.waiting.pop_front();
        }
    }
}

const STUCK: &str = "the log begins after the node's checkpoints";
/// Time after which an entry of few writes no longer waits for the one under way.
const SLOW: Duration = Duration::from_millis(1);
/// Number of writes worth an entry even while others are under way.
const MANY: usize = 64;
/// Maximum entries in the ring that no checkpoint needs.
const MOST_KEPT: usize = 100_000;
/// Maximum lost entries that are put back between two reads.
const MOST_PUT_BACK: usize = 64;
/// Time between two entries that announce the time.
const TOLD: Duration = Duration::from_millis(500);
/// Maximum ms for which a node lets others go first.
const PATIENCE: u64 = 500;
/// Time since the last entry was read. While it is shorter, no deadline can pass unnoticed.
const BEHIND: Duration = Duration::from_secs(1);
/// Time after which a refused append is retried.
const RETRY: Duration = Duration::from_millis(100);
