//! The thread of a store: takes what waits, writes it, says how far it is, and tries again what failed.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_stores::file::Counters;
use interlock_stores::StoreError;

use super::batch::Batch;
use super::load::{Left, Load};
use super::queue::{End, Orders};
use super::retry::Trouble;
use super::settings::StoreKind;
use super::sink::{NullSink, Sink};
use super::store::{Host, Store, Surroundings};
use super::thread::{Upkeep, TICK};
use super::tree::build;

pub struct StoreWriter {
    store: Arc<Store>,
    around: Surroundings,
    kind: StoreKind,
    sink: Box<dyn Sink>,
    is_open: bool,
    load: Load,
    left: Left,
    /// The ticket of the last message that was taken.
    taken: u64,
    end: End,
    trouble: Option<Trouble>,
    /// The moment of the next try.
    again: Instant,
    upkeep: Upkeep,
    /// As they were when they were last told.
    counters: Counters,
}

impl StoreWriter {
    pub fn new(store: Arc<Store>, host: Arc<dyn Host>, kind: StoreKind) -> StoreWriter {
        let now = Instant::now();
        let around = Surroundings::new(&store, host);
        let sink = build(&store.name, &kind, 0, &around);
        StoreWriter {
            store,
            around,
            kind,
            sink,
            is_open: false,
            load: Load::default(),
            left: Left::default(),
            taken: 0,
            end: End::No,
            trouble: None,
            again: now,
            upkeep: Upkeep::new(now),
            counters: Counters::default(),
        }
    }

    /// Until the store ends.
    pub fn run(mut self) {
        let mut batches: Vec<Batch> = Vec::new();
        loop {
            let now = Instant::now();
            let takes = self.load.is_empty() && !self.sink.is_past();
            let until = self.until(now);
            let orders = self.store.queue.next(until, self.end, takes, AT_ONCE, &mut batches);
            if !batches.is_empty() {
                self.load = Load::Published(std::mem::take(&mut batches));
                self.left = Left::default();
            }
            self.follow(orders);
            if self.sink.is_past() {
                self.renew();
            }
            let now = Instant::now();
            if self.again <= now && self.open() {
                self.write();
                self.care(now);
            }
            if self.is_over() && self.store.queue.end(self.end) {
                return self.close();
            }
        }
    }

    /// Returns when there is something to do though nothing comes.
    fn until(&self, now: Instant) -> Instant {
        let mut until = now + TICK;
        if self.sink.is_past() {
            return now;
        }
        if self.trouble.is_some() || !self.load.is_empty() || !self.is_open {
            until = until.min(self.again);
        } else if let Some(due) = self.upkeep.due() {
            until = until.min(due);
        }
        match self.end {
            End::No => until,
            // Deliveries are reported, except those of the very last moment.
            End::Drained if self.sink.waiting() > 0 => until,
            // A worker does not report when it stops offering messages, so the writer checks regularly.
            End::Drained => until.min(now + LOOK),
            End::Within(moment) => until.min(moment),
        }
    }

    fn follow(&mut self, orders: Orders) {
        if orders.end != self.end {
            self.end = orders.end;
            self.sink.end(self.end);
            // One try more, whatever failed before.
            self.again = Instant::now();
        }
        if let Some(kind) = orders.kind {
            self.kind = kind;
            if !self.sink.turn(&self.kind) {
                // Messages are written by the old settings as far as possible; the rest by the new ones.
                if !self.load.is_empty() {
                    let _ = self.sink.write(&self.load, &mut self.left);
                }
                self.renew();
            }
            self.again = Instant::now();
        }
        if orders.again {
            self.again = Instant::now();
        }
        if orders.rotate {
            if let Err(error) = self.sink.rotate() {
                self.around.say(true, &format!("rotating: {error}"));
            }
        }
    }

    /// Puts a new sink in the place of the one that there is, which gives back what it has not written.
    fn renew(&mut self) {
        let mut sink = std::mem::replace(&mut self.sink, Box::new(NullSink));
        sink.withdraw(&self.load, &mut self.left);
        if let Err(error) = sink.close() {
            self.around.say(true, &format!("closing: {error}"));
        }
        // Not before: the other may have what this one wants.
        self.sink = build(&self.store.name, &self.kind, 0, &self.around);
        (self.is_open, self.counters) = (false, Counters::default());
    }

    /// Returns whether it is open.
    fn open(&mut self) -> bool {
        if !self.is_open {
            match self.sink.open() {
                Ok(()) => self.is_open = true,
                Err(error) => self.failed(&error),
            }
        }
        self.is_open
    }

    fn write(&mut self) {
        if self.load.is_empty() {
            if self.trouble.is_some() {
                self.recovered();
            }
            return;
        }
        let figures = &self.store.figures;
        figures.writing.store(self.load.time().unwrap_or(0), Relaxed);
        match self.sink.write(&self.load, &mut self.left) {
            Ok(()) => {
                let messages = self.load.len() as u64;
                self.taken += messages;
                figures.written.fetch_add(messages, Relaxed);
                figures.written_bytes.fetch_add(self.load.payload(), Relaxed);
                figures.writing.store(0, Relaxed);
                self.sink.reached(self.taken);
                let workers = self.store.queue.pass(self.taken, self.load.weight());
                (self.load, self.left) = (Load::default(), Left::default());
                if workers != 0 {
                    self.around.host.progressed(workers);
                }
                self.around.host.written();
                self.recovered();
            }
            Err(error) => self.failed(&error),
        }
        self.count();
    }

    fn care(&mut self, now: Instant) {
        let writes = self.trouble.is_none();
        self.upkeep.run(&mut *self.sink, &self.around, now, writes);
        self.count();
    }

    /// Tells what file stores have counted.
    fn count(&mut self) {
        self.store.figures.count(self.sink.counters(), &mut self.counters);
    }

    fn failed(&mut self, error: &StoreError) {
        let text = error.to_string();
        let failed = Trouble::failed(&mut self.trouble, &text, Instant::now());
        self.again = failed.again;
        let figures = &self.store.figures;
        figures.retries.fetch_add(1, Relaxed);
        figures.errors.fetch_add(u64::from(failed.is_new), Relaxed);
        *figures.trouble.lock() = Some(text.clone());
        if failed.is_said {
            self.around.say(true, &text);
        }
    }

    fn recovered(&mut self) {
        if let Some(trouble) = self.trouble.take() {
            *self.store.figures.trouble.lock() = None;
            self.around.say(false, &format!("it writes again, {}", trouble.over()));
        }
    }

    fn is_over(&self) -> bool {
        let is_empty = || self.load.is_empty() && self.store.queue.is_empty();
        let is_delivered = || self.sink.waiting() == 0;
        match self.end {
            End::No => false,
            // This thread has it, and the hub's list of those that leave.
            End::Drained => is_empty() && is_delivered() && Arc::strong_count(&self.store) <= 2,
            End::Within(moment) => {
                let now = Instant::now();
                // It was tried once since the command arrived.
                let most = if self.trouble.is_some() { moment } else { moment + GRACE };
                is_empty() && (is_delivered() || now >= moment) || now >= most
            }
        }
    }

    fn close(mut self) {
        self.sink.withdraw(&self.load, &mut self.left);
        let mut left = self.left.count(&self.load);
        if let Err(error) = self.sink.close() {
            self.around.say(true, &format!("closing: {error}"));
        }
        let messages = self.load.len() as u64;
        left += self.store.queue.accepted().0.saturating_sub(self.taken + messages);
        let figures = &self.store.figures;
        figures.left.store(left, Relaxed);
        if left > 0 {
            let why = figures.trouble.lock().clone();
            let why = why.unwrap_or_else(|| "the drain timeout was over".into());
            self.around.say(true, &format!("{left} messages were not written: {why}"));
        }
    }
}

/// Bytes that are taken from the queue at once, about: one commit.
const AT_ONCE: usize = 4 << 20;
/// Between two looks at whether anybody may still put something.
const LOOK: Duration = Duration::from_millis(20);
/// For what is being written when the time to drain is over.
const GRACE: Duration = Duration::from_secs(1);
