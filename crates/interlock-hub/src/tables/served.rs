//! The state tables that the hub serves, by their names. Processes on this machine that have the
//! same table open share its rows.
//!
//! A worker must not be held up by a writer that is alive but stuck. So each call is made with no
//! patience first, then with little; and after waiting in vain a worker has none for a while.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use interlock_table::{Error, Statistics, Table};
use parking_lot::Mutex;
use std::hash::RandomState;

use crate::system::time::Time;
use crate::tables::keeper::Keeper;
use crate::tables::writes::RowWrites;

/// All of them; cloning shares them.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    by_name: Arc<HashMap<Box<[u8]>, Arc<ServedTable>, RandomState>>,
    /// The tables by their ids.
    in_order: Arc<[Arc<ServedTable>]>,
    keeper: Option<Arc<Keeper>>,
    /// Some of them are written by others.
    given: bool,
}

/// A table under the name by which clients know it.
pub struct ServedTable {
    pub name: String,
    /// Its place among those that a scan of all goes over; no other table of this process has or had it.
    pub id: u64,
    hasty: Table,
    patient: Table,
    /// Answers NODE, and says until when rows may be read.
    pub keeper: Option<Arc<Keeper>>,
    /// The writer of its rows, if it is not the hub.
    pub writes: Option<Arc<dyn RowWrites>>,
    /// Commands that named it.
    pub calls: AtomicU64,
    counted: Mutex<Option<Counted>>,
    counting: AtomicBool,
}

/// A count, its time, and how long that took.
#[derive(Clone, Debug)]
struct Counted {
    statistics: Statistics,
    at: Instant,
    took: Duration,
}

impl Tables {
    pub fn new(tables: impl IntoIterator<Item = Arc<ServedTable>>) -> Tables {
        let mut in_order: Vec<_> = tables.into_iter().collect();
        in_order.sort_unstable_by_key(|table| table.id);
        let named = in_order.iter().map(|table| (table.name.as_bytes().into(), table.clone()));
        let by_name = Arc::new(named.collect());
        let keeper = in_order.iter().find_map(|table| table.keeper.clone());
        let given = in_order.iter().any(|table| table.is_given());
        Tables { by_name, in_order: in_order.into(), keeper, given }
    }

    /// The keeper of the first of them that has one.
    #[inline]
    pub fn keeper(&self) -> Option<&Arc<Keeper>> {
        self.keeper.as_ref()
    }

    /// Returns whether some of them are not written by the hub itself.
    #[inline]
    pub fn are_given(&self) -> bool {
        self.given
    }

    #[inline]
    pub fn named(&self, name: &[u8]) -> Option<&Arc<ServedTable>> {
        self.by_name.get(name)
    }

    /// Returns the tables by their ids.
    pub fn all(&self) -> &[Arc<ServedTable>] {
        &self.in_order
    }
}

impl ServedTable {
    pub fn new(name: String, table: &Table) -> Arc<ServedTable> {
        ServedTable::of(name, table, None, None)
    }

    /// A table whose rows another writes; the hub reads them. A keeper gets NODE, and says until when rows
    /// may be read.
    pub fn written(
        name: String,
        table: &Table,
        writes: Arc<dyn RowWrites>,
        keeper: Option<Arc<Keeper>>,
    ) -> Arc<ServedTable> {
        ServedTable::of(name, table, keeper, Some(writes))
    }

    fn of(
        name: String,
        table: &Table,
        keeper: Option<Arc<Keeper>>,
        writes: Option<Arc<dyn RowWrites>>,
    ) -> Arc<ServedTable> {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let served = Arc::new(ServedTable {
            name,
            id: IDS.fetch_add(1, Relaxed),
            hasty: table.with_patience(Duration::ZERO),
            patient: table.with_patience(PATIENCE),
            keeper,
            writes,
            calls: AtomicU64::new(0),
            counted: Mutex::default(),
            counting: AtomicBool::new(false),
        });
        // So that there is something to tell when it is asked for first.
        served.statistics();
        served
    }

    /// Returns whether its rows are not written by the hub itself.
    pub fn is_given(&self) -> bool {
        self.writes.is_some()
    }

    /// Returns the table, for calls that never wait.
    #[inline]
    pub fn table(&self) -> &Table {
        &self.hasty
    }

    /// Makes a call that may have to wait for a writer. `barred`: this worker does not wait before this time;
    /// it is moved on after a wait in vain.
    pub fn call<R>(
        &self,
        barred: &mut Time,
        clock: fn() -> Time,
        mut call: impl FnMut(&Table) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match call(&self.hasty) {
            Err(Error::RowBusy { .. }) if clock() >= *barred => {
                let found = call(&self.patient);
                if matches!(found, Err(Error::RowBusy { .. })) {
                    *barred = clock() + BARRED;
                }
                found
            }
            found => found,
        }
    }

    /// Returns what is known of the table; `None` in the first moments of a large one. Once rows may have
    /// expired, to count means to look at every slot: of a small table that is done at once, of others by a
    /// thread, and again only when somebody asks, once a second at most, and in one of fifty parts of the time.
    pub fn statistics(self: &Arc<Self>) -> Option<Statistics> {
        if self.hasty.slots() <= AT_ONCE {
            return Some(self.hasty.statistics());
        }
        if let Some(known) = self.hasty.known_statistics() {
            return Some(known);
        }
        let counted = self.counted.lock().clone();
        let fresh = |counted: &Counted| {
            counted.at.elapsed() < (counted.took * SHARE).max(Duration::from_secs(1))
        };
        if !counted.as_ref().is_some_and(fresh) && !self.counting.swap(true, Relaxed) {
            let own = self.clone();
            let count = move || {
                let began = Instant::now();
                let statistics = own.hasty.statistics();
                let counted = Counted { statistics, at: Instant::now(), took: began.elapsed() };
                *own.counted.lock() = Some(counted);
                own.counting.store(false, Relaxed);
            };
            if std::thread::Builder::new().name("hub-count".into()).spawn(count).is_err() {
                self.counting.store(false, Relaxed);
            }
        }
        counted.map(|counted| counted.statistics)
    }
}

impl fmt::Debug for ServedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServedTable({:?})", self.name)
    }
}

/// Time that a call waits for a writer that is alive but stuck.
const PATIENCE: Duration = Duration::from_millis(5);
/// µs without waiting after a wait in vain: so stuck writers take a twentieth of the worker's time
/// at most.
const BARRED: Time = 100_000;
/// Slots that are counted within a command.
const AT_ONCE: u64 = 16_384;
/// Counting takes one part in this many of the time.
const SHARE: u32 = 50;
