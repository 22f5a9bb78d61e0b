//! The thread that takes messages out of a spool and delivers them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Instant;

use interlock_stores::file::Counters;
use interlock_stores::spool::Spool;
use interlock_stores::StoreError;

use super::load::{Left, Load};
use super::queue::End;
use super::retry::Trouble;
use super::settings::{Child, StoreKind};
use super::sink::{NullSink, Sink};
use super::spooling::{Orders, Read, Reading, Spooling};
use super::store::Surroundings;
use super::thread::{Upkeep, TICK};

/// Creates the declared sink.
pub type Build = fn(&str, &StoreKind, u128, &Surroundings) -> Box<dyn Sink>;

pub struct Pump {
    spool: Arc<Spooling>,
    around: Surroundings,
    child: Child,
    build: Build,
    /// The origin of the spool.
    sender: u128,
    sink: Box<dyn Sink>,
    reading: Option<Reading>,
    load: Load,
    left: Left,
    /// Number of messages at the beginning of the load that are forgotten.
    forgotten: usize,
    trouble: Option<Trouble>,
    /// The moment of the next try.
    again: Instant,
    /// There may be more to deliver, of which no word comes.
    more: bool,
    upkeep: Upkeep,
    counters: Counters,
}

impl Pump {
    pub fn new(
        spool: Arc<Spooling>,
        around: Surroundings,
        child: Child,
        build: Build,
        sender: u128,
    ) -> Pump {
        let now = Instant::now();
        let sink = build(&child.name, &child.kind, sender, &around);
        Pump {
            spool,
            around,
            child,
            build,
            sender,
            sink,
            reading: None,
            load: Load::default(),
            left: Left::default(),
            forgotten: 0,
            trouble: None,
            again: now,
            more: false,
            upkeep: Upkeep::new(now),
            counters: Counters::default(),
        }
    }

    /// Runs until asked to end.
    pub fn run(mut self) {
        if let Err(error) = self.sink.open() {
            self.failed(&error);
        }
        loop {
            let orders = self.spool.next(self.until(), self.load.is_empty());
            let ends = orders.end;
            self.follow(orders);
            if self.again <= Instant::now() {
                self.deliver();
            }
            self.care();
            if ends {
                return self.close();
            }
        }
    }

    fn until(&self) -> Instant {
        if self.more {
            return Instant::now();
        }
        let until = Instant::now() + TICK;
        if self.trouble.is_some() || !self.load.is_empty() {
            return until.min(self.again);
        }
        until.min(self.upkeep.due().unwrap_or(until))
    }

    fn follow(&mut self, orders: Orders) {
        if let Some(child) = orders.child {
            self.sink.withdraw(&self.load, &mut self.left);
            self.forget();
            self.child = child;
            // Remaining messages go to the new sink.
            self.renew();
            self.again = Instant::now();
            if let Err(error) = self.sink.open() {
                self.failed(&error);
                self.again = Instant::now();
            }
        }
        if orders.rotate {
            if let Err(error) = self.sink.rotate() {
                self.around.say(true, &format!("rotating: {error}"));
            }
        }
    }

    /// Delivers the messages that are available.
    fn deliver(&mut self) {
        self.more = false;
        loop {
            if self.load.is_empty() && !self.read() {
                return;
            }
            let written = self.sink.write(&self.load, &mut self.left);
            self.around.figures(|figures| {
                figures.count(self.sink.counters(), &mut self.counters);
            });
            self.forget();
            match written {
                Ok(()) => {
                    self.drop_load();
                    self.around.host.written();
                    self.recovered();
                }
                Err(error) => return self.failed(&error),
            }
            // Orders and upkeep have their turn between two.
            if self.upkeep.is_late(Instant::now()) || self.spool.has_orders() {
                self.more = true;
                return;
            }
        }
    }

    /// Returns whether there is something.
    fn read(&mut self) -> bool {
        match self.spool.read(&mut self.reading, AT_ONCE) {
            Read::Messages(messages) => {
                (self.load, self.left) = (Load::Spooled(messages), Left::default());
                self.forgotten = 0;
                self.look_at_sender();
                let oldest = self.load.time().unwrap_or(0);
                self.spool.level.oldest.store(oldest, Relaxed);
                true
            }
            Read::Nothing => {
                self.spool.level.oldest.store(0, Relaxed);
                // There is nothing to be tried.
                self.recovered();
                false
            }
            Read::Failed(error) => {
                self.failed(&StoreError::new("reading the spool of", &self.around.name, error));
                false
            }
            Read::Closed => false,
        }
    }

    /// A spool that was made anew is another sender.
    fn look_at_sender(&mut self) {
        let sender = self.spool.look(Spool::origin).unwrap_or(self.sender);
        if sender != self.sender {
            self.sender = sender;
            self.renew();
        }
    }

    /// Puts a new sink in the place of the one that there is, which has nothing in hand.
    fn renew(&mut self) {
        // First this one: it may have what the next one wants.
        let before = std::mem::replace(&mut self.sink, Box::new(NullSink));
        self.end(before);
        self.sink = (self.build)(&self.child.name, &self.child.kind, self.sender, &self.around);
        self.counters = Counters::default();
    }

    /// Forgets what was delivered from the beginning on.
    fn forget(&mut self) {
        let Load::Spooled(messages) = &self.load else { return };
        let leading = self.left.leading(&self.load);
        let more = leading.saturating_sub(self.forgotten);
        let Some(reading) = self.reading.as_ref().filter(|_| more > 0) else { return };
        self.around.figures(|figures| {
            figures.replayed.fetch_add(more as u64, Relaxed);
        });
        self.forgotten = leading;
        if !self.spool.forget(reading, messages[leading - 1].place, more as u64) {
            // It was reopened: all messages still in it are read again.
            self.sink.withdraw(&self.load, &mut self.left);
            self.drop_load();
        }
    }

    fn drop_load(&mut self) {
        self.load = Load::default();
        self.left = Left::default();
        self.forgotten = 0;
    }

    fn care(&mut self) {
        let writes = self.trouble.is_none();
        self.upkeep.run(&mut *self.sink, &self.around, Instant::now(), writes);
    }

    fn failed(&mut self, error: &StoreError) {
        let text = error.to_string();
        let failed = Trouble::failed(&mut self.trouble, &text, Instant::now());
        self.again = failed.again;
        self.around.figures(|figures| {
            figures.retries.fetch_add(1, Relaxed);
            figures.errors.fetch_add(u64::from(failed.is_new), Relaxed);
            *figures.undelivered.lock() = Some(text.clone());
        });
        // A requested stop is not a failure.
        if failed.is_said && !self.spool.has_orders() {
            self.around.say(true, &text);
        }
    }

    fn recovered(&mut self) {
        if let Some(trouble) = self.trouble.take() {
            self.around.figures(|figures| *figures.undelivered.lock() = None);
            self.around.say(false, &format!("it delivers again, {}", trouble.over()));
        }
    }

    fn end(&self, mut sink: Box<dyn Sink>) {
        sink.end(End::Drained);
        if let Err(error) = sink.close() {
            self.around.say(true, &format!("closing: {error}"));
        }
    }

    fn close(mut self) {
        self.sink.withdraw(&self.load, &mut self.left);
        self.forget();
        let sink = std::mem::replace(&mut self.sink, Box::new(NullSink));
        self.end(sink);
    }
}

/// Bytes of payloads that are taken at once, about.
const AT_ONCE: usize = 1 << 20;
