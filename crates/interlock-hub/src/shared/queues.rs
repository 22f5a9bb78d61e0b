//! The keyed queues of a hub: one engine for all workers, and who is notified when a call that
//! waited is answered.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use interlock_core::clock::Clock;
use interlock_core::wall_clock::STEP;
use interlock_engine::durable::{Durable, OpenError, Repair};
use interlock_engine::{Durability, Engine, EngineSettings, Served, Ticket};
use interlock_journal::storage::disk::Disk;
use interlock_journal::JournalSettings;

use crate::system::boot_time;
use crate::system::time::Time;

pub struct Queues {
    pub engine: Engine,
    /// The records that make them durable, if the hub has a journal.
    pub durable: Option<Arc<Durable>>,
    clock: Clock,
    /// µs by which the time of the queues is ahead of `clock`: not zero if the machine's clock was set
    /// while the hub was stopped.
    ahead: i64,
}

impl Queues {
    pub fn new(memory: u64, clock: Clock) -> Self {
        let engine = Engine::new(EngineSettings { memory, ..EngineSettings::default() });
        Queues { engine, durable: None, clock, ahead: 0 }
    }

    /// Like `new`, with the queues of the journal in a folder. Also returns what was found there.
    pub fn open(
        memory: u64,
        clock: Clock,
        folder: &Path,
        durability: Durability,
        repair: Repair,
    ) -> Result<(Self, String), String> {
        let durable = Arc::new(Durable::new());
        let journal: Option<Arc<dyn interlock_engine::Journal>> = Some(durable.clone());
        let settings = EngineSettings { memory, durability, journal, ..EngineSettings::default() };
        let engine = Engine::new(settings);
        let place = folder.display();
        let disk = Disk::open(folder).map_err(|error| format!("journal {place}: {error}"))?;
        let report = durable
            .open(&engine, disk, JournalSettings::default(), repair)
            .map_err(|error| format!("journal {place}: {}", advised(&error)))?;
        // Continue the time of the previous run, so that deadlines stay right, and never start before
        // the last time in the journal.
        let least = report.time.cast_signed() - clock.now().cast_signed();
        let ahead = match (clock.epoch(), boot_time::known(folder)) {
            (Some(epoch), Some(zero)) => (zero.cast_signed() - epoch.cast_signed()).max(least),
            _ => least.max(0),
        };
        if let Some(epoch) = clock.epoch() {
            boot_time::note(folder, epoch.saturating_add_signed(ahead));
        }
        // A line of the log.
        let mut found = format!("journal {place}: {report}").replace('\n', "; ");
        if ahead.unsigned_abs() > STEP {
            let _ = write!(
                found,
                "; the time of queues continues from its last value, {:+.3} s from the clock",
                ahead as f64 / 1e6
            );
        }
        Ok((Queues { engine, durable: Some(durable), clock, ahead }, found))
    }

    /// The time of the queues, µs since 1970: it never steps back, not over a restart either.
    #[inline]
    pub fn now(&self) -> Time {
        self.clock.now().saturating_add_signed(self.ahead)
    }

    /// The wall clock's time, µs since 1970, for dates: a file has the date that people see on their own
    /// clocks, however long the hub has run. It may step back; a store keeps its own times from doing so.
    pub fn wall(&self) -> Time {
        self.clock.wall()
    }

    /// The source of both times.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// µs by which `now` is ahead of the system's clock.
    pub fn ahead(&self) -> i64 {
        let (_, distrusted) = self.clock.jumps();
        self.now().cast_signed() - self.clock.wall().cast_signed() - distrusted
    }

    /// Returns how many ms a worker may sleep; `None`: nobody waits.
    pub fn timeout(&self) -> Option<u32> {
        let due = self.engine.next_due()?;
        if self.clock.is_manual() {
            // Moving the clock wakes no thread, so it is checked often.
            return Some(1);
        }
        // Rounded up, or it would wake a moment too early, again and again.
        Some(u32::try_from(due.saturating_sub(self.now()).div_ceil(1000)).unwrap_or(u32::MAX))
    }

    /// Answers those whose wait is over. Any worker may; the others then find nothing to do.
    pub fn tick(&self, served: &mut Vec<Served>) {
        let Some(due) = self.engine.next_due() else { return };
        let now = self.now();
        if due <= now {
            self.engine.tick(now, served);
        }
    }
}

/// An error with the name of the setting that lets the hub start despite it.
fn advised(error: &OpenError) -> String {
    match error {
        OpenError::Damaged(_) | OpenError::Unknown { .. } => {
            format!("{error} (queues.repair = true)")
        }
        error => error.to_string(),
    }
}

/// Returns a ticket: the token of a connection, with the number of its worker in unused bits.
pub fn ticket(worker: usize, token: u64) -> Ticket {
    token | (worker as u64) << WORKER
}

/// Returns the worker and the token of the connection that a ticket names.
pub fn connection_of(ticket: Ticket) -> (usize, u64) {
    let worker = (ticket >> WORKER) as usize & MOST_WORKERS;
    (worker, ticket & !((MOST_WORKERS as u64) << WORKER))
}

/// Bit at which the worker's number starts. The lower half of a token is the slot of the connection,
/// which needs at most 26 of the 32 bits; the other 6 hold the worker.
const WORKER: u32 = 26;
const MOST_WORKERS: usize = crate::shared::settings::MOST_WORKERS - 1;
