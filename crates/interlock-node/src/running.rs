//! A node in its own thread, connected to a hub, a log and a table.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use interlock_hub::system::wake::WakeUp;
use interlock_hub::tables::keeper::Keeper;
use interlock_log::checkpoint::Place;
use interlock_log::codec::{checksum, Reader as BytesReader};
use interlock_log::entry::{Body, Entry, Mark};
use interlock_log::machine::{Limits, Rules};
use interlock_log::replica::Setup;
use interlock_log::rows::{self, Rows, Writers};
use interlock_stores::disk::folder::Folder;
use interlock_table::Table;

use crate::events::Events;
use crate::files;
use crate::hub::{HubClients, HubWrites};
use crate::log::LogPort;
use crate::node::{
    answer, encoded, Ask, Bring, Brought, Changes, News, Node, Pace, Reader, Reported, Standing,
};
use crate::projection::InTable;

pub struct Settings {
    /// A name that no start of any node has had before.
    pub name: String,
    /// The node's own permanent name, and its machine's: two nodes on one machine count once.
    pub node: String,
    pub machine: String,
    pub log: Box<dyn LogPort>,
    pub rows: rows::Settings,
    pub limits: Limits,
    /// The folder for checkpoints and the ring. Starting fails if another process has locked it.
    pub folder: PathBuf,
    pub pace: Pace,
    /// The node serves no client until [`Running::release`]: rows may come from outside.
    pub held: bool,
}

/// The state of a node and its rows.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub standing: Standing,
    pub rows: u64,
    pub tombstones: u64,
    /// Tombstones dropped early because there were too many.
    pub dropped: u64,
    /// Writes that wait for their replies.
    pub waiting: u64,
    /// A checksum of all rows, equal at the same position on all nodes.
    pub checksum: u128,
    /// The node can continue only from a checkpoint of another node.
    pub needs_snapshot: bool,
    /// The file of its newest checkpoint that is in the log, and the checkpoint's place.
    pub newest: Option<(String, Place)>,
}

pub struct Running {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    rows: rows::Settings,
    name: Vec<u8>,
    /// The number of entries made for other data centres.
    made: AtomicU64,
}

struct Shared {
    wake: WakeUp,
    ends: AtomicBool,
    drains: AtomicBool,
    /// The file with another node's checkpoint to install.
    installs: Mutex<Option<String>>,
    is_wanted: AtomicBool,
    resyncs: AtomicBool,
    held: AtomicBool,
    asked: Mutex<Vec<Ask>>,
    brought: Mutex<Vec<Bring>>,
    has_ended: AtomicBool,
    figures: Mutex<Figures>,
    events: Arc<Events>,
    writes: Arc<HubWrites>,
}

impl Running {
    /// Reads the files in the folder and starts the node.
    ///
    /// # Errors
    ///
    /// The folder is locked or unusable; the text is for the operator.
    pub fn start(
        settings: Settings,
        table: Table,
        writes: Arc<HubWrites>,
        reads: Arc<Keeper>,
    ) -> Result<Running, String> {
        let disk = Folder::new(settings.folder);
        let locked = files::lock(&disk).map_err(|error| error.to_string())?;
        let mut genesis = Vec::new();
        settings.rows.encode(&mut genesis);
        let name = settings.name.into_bytes();
        let (node, machine) = (settings.node.into_bytes(), settings.machine.into_bytes());
        let (limits, rules) = (settings.limits, Rules::ALL);
        let own_name = name.clone();
        let setup = Setup { name, node, machine, genesis, limits, rules };
        let events = Arc::<Events>::default();
        let clients = HubClients::new(writes.clone(), events.clone());
        let table = Box::new(InTable::new(table).opens(reads));
        let mut node =
            Node::<Rows, _, _>::new(settings.log, setup, disk, clients, table, settings.pace)
                .map_err(|error| error.to_string())?;
        let wake = WakeUp::new().map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared {
            wake,
            ends: AtomicBool::new(false),
            drains: AtomicBool::new(false),
            installs: Mutex::new(None),
            is_wanted: AtomicBool::new(false),
            resyncs: AtomicBool::new(false),
            held: AtomicBool::new(settings.held),
            asked: Mutex::default(),
            brought: Mutex::default(),
            has_ended: AtomicBool::new(false),
            figures: Mutex::default(),
            events,
            writes,
        });
        let own = shared.clone();
        let run = move || {
            let _locked = locked;
            let run = AssertUnwindSafe(|| run(&mut node, &own));
            // The panic's message is on stderr; the owner sees that the node has ended.
            let _ = catch_unwind(run);
            own.has_ended.store(true, SeqCst);
            own.events.add();
            own.writes.end();
            // Later callers see that the node has ended; those that already wait learn it here.
            lock(&own.asked).clear();
            lock(&own.brought).clear();
        };
        let thread = std::thread::Builder::new().name("node-log".into()).spawn(run);
        let thread = thread.map_err(|error| error.to_string())?;
        let thread = Mutex::new(Some(thread));
        let (rows, name, made) = (settings.rows, own_name, AtomicU64::new(0));
        Ok(Running { shared, thread, rows, name, made })
    }

    pub fn figures(&self) -> Figures {
        let figures = lock(&self.shared.figures).clone();
        Figures { waiting: self.shared.writes.waiting() as u64, ..figures }
    }

    /// Returns the file of the newest checkpoint that is in the log, or requests a checkpoint.
    pub fn checkpoint(&self) -> Option<(String, Place)> {
        let newest = self.figures().newest;
        if newest.is_none() {
            self.shared.is_wanted.store(true, SeqCst);
            self.shared.wake.wake();
        }
        newest
    }

    /// Installs another node's checkpoint from a file in the node's folder. The log decides whether
    /// it is usable: until then, and if not, the node still needs one
    /// ([`Figures::needs_snapshot`]).
    pub fn install(&self, path: String) {
        *lock(&self.shared.installs) = Some(path);
        self.shared.wake.wake();
    }

    /// Forgets the history and reads the log anew.
    pub fn resync(&self) {
        self.shared.resyncs.store(true, SeqCst);
        self.shared.wake.wake();
    }

    /// Returns the news since the last call.
    pub fn news(&self) -> Vec<News> {
        self.shared.events.take()
    }

    /// Returns the number of the node's events, once there are more than those `seen` or the time is
    /// over: news, a new position, the begin and end of troubles, of serving and of the need for a
    /// snapshot.
    pub fn wait_for_event(&self, seen: u64, time: Duration) -> u64 {
        self.shared.events.wait(seen, time)
    }

    /// Ends the waits for an event.
    pub fn wake(&self) {
        self.shared.events.add();
    }

    /// Returns whether the node has ended on its own, because of a bug.
    pub fn has_ended(&self) -> bool {
        self.shared.has_ended.load(SeqCst)
    }

    /// Returns at most `most` rows that a reader outside lacks. Waits until `until` for a change.
    /// `None`: the node has not caught up with its log, or with the reader's mark.
    pub fn changes(&self, reader: Reader, most: usize, until: Instant) -> Option<Changes> {
        let (answer, found) = answer();
        let asked_at = Instant::now();
        lock(&self.shared.asked).push(Ask { reader, most, asked_at, until, answer });
        self.wait(&found, until)
    }

    /// Makes all nodes of the log join rows from outside. Returns whether they are in this node's
    /// state by `until`; if that is unknown, repeating the call is harmless.
    pub fn bring(&self, rows: &[(&[u8], &[u8])], until: Instant) -> bool {
        self.bring_it(Brought::Rows(encoded(&self.rows, rows, Writers::default())), until)
    }

    /// Makes all nodes of the log stop waiting for the checkpoints of `node`. Returns whether this
    /// node has read that by `until`; if that is unknown, repeating the call is harmless.
    pub fn forget(&self, node: &str, until: Instant) -> bool {
        self.bring_it(Brought::Gone(node.as_bytes().to_vec()), until)
    }

    fn bring_it(&self, what: Brought, until: Instant) -> bool {
        let (done, found) = answer();
        lock(&self.shared.brought).push(Bring { what, done });
        self.wait(&found, until).is_some()
    }

    /// Makes an entry of rows for another data centre's log, of which this node has read nothing.
    pub fn states_entry(&self, reported: &Reported, rows: &[(&[u8], &[u8])]) -> Vec<u8> {
        let Reported { report, writers } = reported;
        let source = Some(report.source.clone());
        let number = self.made.fetch_add(1, SeqCst);
        Entry {
            name: self.name.clone(),
            number: 0,
            read: Mark::default(),
            seen: 0,
            nonce: checksum(number, &self.name),
            body: Body::State { source, bytes: encoded(&self.rows, rows, writers.clone()) },
        }
        .encode()
    }

    /// Starts serving: all rows from outside have arrived.
    pub fn release(&self) {
        self.shared.held.store(false, SeqCst);
        self.shared.wake.wake();
    }

    fn wait<T>(&self, found: &Receiver<T>, until: Instant) -> Option<T> {
        if self.has_ended() {
            return None;
        }
        self.shared.wake.wake();
        // The loop answers when the time is over, maybe slightly late.
        let wait = until.saturating_duration_since(Instant::now()) + LATE;
        found.recv_timeout(wait).ok()
    }

    /// Stops taking writes. Returns whether all pending ones are answered by `until`.
    pub fn drain(&self, until: Instant) -> bool {
        self.shared.drains.store(true, SeqCst);
        self.shared.wake.wake();
        loop {
            let standing = self.figures().standing;
            if standing.drains && !standing.is_awaited {
                return true;
            }
            if Instant::now() >= until || self.has_ended() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns whether it was asked to drain; it refuses writes from its next turn on.
    pub fn is_draining(&self) -> bool {
        self.shared.drains.load(SeqCst)
    }

    /// Ends the node; clients that still wait learn that the outcome is unknown.
    pub fn stop(&self) {
        self.shared.ends.store(true, SeqCst);
        self.shared.wake.wake();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(node: &mut Node<Rows, Folder, HubClients>, shared: &Shared) {
    let (mut told, mut is_stale) = (Instant::now(), true);
    while !shared.ends.load(SeqCst) {
        if shared.drains.load(SeqCst) {
            node.drain();
        }
        if shared.is_wanted.swap(false, SeqCst) {
            node.want_checkpoint();
        }
        if let Some(path) = lock(&shared.installs).take() {
            node.install(&path);
        }
        if shared.resyncs.swap(false, SeqCst) {
            node.resync();
        }
        match shared.held.load(SeqCst) {
            true => node.hold(),
            false => node.release(),
        }
        let beat = Instant::now() + if node.rests(IDLE) { IDLE } else { BEAT };
        let until = node.answer_at().map_or(beat, |at| at.min(beat));
        let until = if is_stale { until.min(told + FRESH) } else { until };
        if node.turn(until, Some(shared.wake.descriptor())) {
            shared.wake.silence();
        }
        lock(&shared.asked).drain(..).for_each(|ask| node.ask(ask));
        lock(&shared.brought).drain(..).for_each(|bring| node.bring(bring));
        node.answer();
        let now = Instant::now();
        is_stale = now < told + FRESH;
        if is_stale {
            continue;
        }
        told = now;
        let store = node.replica_state().map(Rows::store);
        let figures = Figures {
            standing: node.standing(),
            rows: store.map_or(0, |store| store.rows()),
            tombstones: store.map_or(0, |store| store.tombstones() as u64),
            dropped: store.map_or(0, |store| store.dropped()),
            waiting: 0,
            needs_snapshot: node.needs_snapshot(),
            newest: node.newest(),
            checksum: store.map_or(0, |store| store.checksum()),
        };
        let before = std::mem::replace(&mut *lock(&shared.figures), figures.clone());
        if state(&before) != state(&figures) {
            shared.events.add();
        }
    }
    node.end();
}

/// The part of a node's figures of which a change is an event.
fn state(figures: &Figures) -> (bool, bool, bool, Vec<&'static str>, u64) {
    let Standing { serves, at_end, told, place, .. } = &figures.standing;
    let troubles = told.troubles.iter().map(|trouble| trouble.kind).collect();
    (*serves, at_end.is_some(), figures.needs_snapshot, troubles, place.mark.position)
}

/// Describes how the settings of a log differ from this node's.
pub fn difference(ours: &rows::Settings, theirs: &[u8]) -> String {
    let Ok(theirs) = rows::Settings::decode(&mut BytesReader::new(theirs)) else {
        return "its settings are of another version of the program".to_owned();
    };
    let rules = |settings: &rows::Settings| settings.rules.fingerprint();
    let both = [
        ("the table's name", ours.name.clone(), theirs.name.clone()),
        ("the data centre", ours.dc.clone(), theirs.dc.clone()),
        ("the columns", rules(ours), rules(&theirs)),
        ("the capacity", ours.capacity.to_string(), theirs.capacity.to_string()),
        ("the number of data centres", ours.centres.to_string(), theirs.centres.to_string()),
        ("the number of tombstones", ours.tombstones.to_string(), theirs.tombstones.to_string()),
        ("the key size", ours.key_size.to_string(), theirs.key_size.to_string()),
        ("the time to live in ms", ours.ttl.to_string(), theirs.ttl.to_string()),
    ];
    let differ = both.into_iter().filter(|(_, ours, theirs)| ours != theirs);
    let differ = differ.map(|(what, ours, theirs)| format!("{what}: {theirs} there, {ours} here"));
    differ.collect::<Vec<_>>().join("; ")
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The node checks the time this often while something may be due.
const BEAT: Duration = Duration::from_millis(500);
/// The same while nothing is. Usually a read that has waited in vain comes first.
const IDLE: Duration = Duration::from_millis(1500);
/// Maximum age of the figures.
const FRESH: Duration = Duration::from_millis(10);
/// Time that a caller waits beyond its deadline for the loop's answer.
const LATE: Duration = Duration::from_secs(1);
