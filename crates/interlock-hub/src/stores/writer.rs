//! The thread of a store: takes what waits, writes it, says how far it is, and tries again what failed.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_stores::file::Counters;
use interlock_stores::StoreError;

use super::queue::{End, Orders};
use super::settings::StoreKind;
use super::sink::{InHand, Sink};
use super::store::{Host, Store};

pub struct StoreWriter {
    store: Arc<Store>,
    host: Arc<dyn Host>,
    kind: StoreKind,
    sink: Option<Sink>,
    hand: InHand,
    /// The ticket of the last message that was taken.
    taken: u64,
    end: End,
    trouble: Option<Trouble>,
    /// The moment of the next try.
    again: Instant,
    ticked: Instant,
    /// There is upkeep to do, from then on.
    upkeep: Option<Instant>,
    /// As they were when they were last told.
    counters: Counters,
}

/// It does not write.
struct Trouble {
    since: Instant,
    said: Instant,
    text: String,
    pause: Duration,
    tries: u64,
}

impl StoreWriter {
    pub fn new(store: Arc<Store>, host: Arc<dyn Host>, kind: StoreKind) -> StoreWriter {
        let now = Instant::now();
        StoreWriter {
            store,
            host,
            kind,
            sink: None,
            hand: InHand::default(),
            taken: 0,
            end: End::No,
            trouble: None,
            again: now,
            ticked: now,
            upkeep: None,
            counters: Counters::default(),
        }
    }

    /// Until the store ends. Returns how many messages were not written.
    pub fn run(mut self) -> u64 {
        loop {
            let now = Instant::now();
            let takes = self.hand.is_empty();
            let orders = self.store.queue.next(
                self.until(now),
                self.end,
                takes,
                AT_ONCE,
                &mut self.hand.batches,
            );
            self.follow(orders);
            let now = Instant::now();
            if self.again <= now && self.open() {
                self.write();
                self.care(now);
            }
            if self.is_over() {
                return self.close();
            }
        }
    }

    /// Returns when there is something to do though nothing comes.
    fn until(&self, now: Instant) -> Instant {
        let mut until = now + TICK;
        if self.trouble.is_some() || !self.hand.is_empty() || self.sink.is_none() {
            until = until.min(self.again);
        } else if let Some(upkeep) = self.upkeep {
            until = until.min(upkeep);
        }
        match self.end {
            End::No => until,
            // Who may still put something tells nobody when it cannot any more.
            End::Drained => until.min(now + LOOK),
            End::Within(moment) => until.min(moment),
        }
    }

    fn follow(&mut self, orders: Orders) {
        if orders.end != self.end {
            self.end = orders.end;
            // One try more, whatever failed before.
            self.again = Instant::now();
        }
        if let Some(kind) = orders.kind {
            if let Some(mut sink) = self.sink.take() {
                // What can be written where it was meant for is; the rest goes with the new settings.
                let _ = sink.write(&mut self.hand);
                sink.withdraw(&mut self.hand);
                if let Err(error) = sink.close() {
                    self.say(true, format!("closing: {error}"));
                }
            }
            (self.kind, self.counters) = (kind, Counters::default());
            self.again = Instant::now();
        }
        if orders.rotate {
            if let Some(Err(error)) = self.sink.as_mut().map(Sink::rotate) {
                self.say(true, format!("rotating: {error}"));
            }
        }
    }

    /// Returns whether it is open.
    fn open(&mut self) -> bool {
        if self.sink.is_some() {
            return true;
        }
        match Sink::open(&self.store.name, &self.kind, self.host.now()) {
            Ok((sink, report)) => {
                if let Some(report) = report {
                    // A line of the log.
                    let text = report.to_string().replace('\n', "; ");
                    self.say(!report.is_clean(), format!("open: {text}"));
                }
                self.sink = Some(sink);
                true
            }
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    fn write(&mut self) {
        let Some(sink) = &mut self.sink else { return };
        if self.hand.is_empty() {
            if self.trouble.is_some() {
                self.recovered();
            }
            return;
        }
        let first = self.hand.batches.first().and_then(|batch| batch.time()).unwrap_or(0);
        self.store.figures.writing.store(first, Relaxed);
        match sink.write(&mut self.hand) {
            Ok(()) => {
                let figures = &self.store.figures;
                self.taken += self.hand.messages();
                figures.written.fetch_add(self.hand.messages(), Relaxed);
                figures.written_bytes.fetch_add(self.hand.payload(), Relaxed);
                figures.writing.store(0, Relaxed);
                let weight = self.hand.weight();
                self.hand.clear();
                let workers = self.store.queue.pass(self.taken, weight);
                if workers != 0 {
                    self.host.progressed(workers);
                }
                self.host.written();
                self.recovered();
            }
            Err(error) => self.failed(&error),
        }
        self.count();
    }

    /// Upkeep: each second what falls due, and pieces of what can wait.
    fn care(&mut self, now: Instant) {
        let Some(sink) = &mut self.sink else { return };
        let time = self.host.now();
        let mut failed = None;
        if now.duration_since(self.ticked) >= TICK {
            self.ticked = now;
            failed = sink.tick(time).err();
            self.upkeep.get_or_insert(now);
        }
        if self.upkeep.is_some_and(|moment| moment <= now) {
            self.upkeep = match sink.upkeep(time) {
                Ok(true) => Some(now),
                Ok(false) => None,
                Err(error) => {
                    failed.get_or_insert(error);
                    Some(now + LATER)
                }
            };
        }
        self.count();
        if let Some(error) = failed {
            self.store.figures.errors.fetch_add(1, Relaxed);
            self.say(true, error.to_string());
        }
    }

    /// Tells what the file store has counted.
    fn count(&mut self) {
        let Some(sink) = &self.sink else { return };
        let (now, before) = (sink.counters(), self.counters);
        let figures = &self.store.figures;
        for (figure, now, before) in [
            (&figures.files_begun, now.begun, before.begun),
            (&figures.files_compressed, now.compressed, before.compressed),
            (&figures.files_removed, now.removed, before.removed),
            (&figures.unsure, now.unsure, before.unsure),
        ] {
            figure.fetch_add(now.saturating_sub(before), Relaxed);
        }
        self.counters = now;
    }

    fn failed(&mut self, error: &StoreError) {
        let (now, text) = (Instant::now(), error.to_string());
        let figures = &self.store.figures;
        figures.retries.fetch_add(1, Relaxed);
        let trouble = self.trouble.get_or_insert_with(|| Trouble {
            since: now,
            said: now,
            text: String::new(),
            pause: FIRST_PAUSE,
            tries: 0,
        });
        trouble.tries += 1;
        self.again = now + trouble.pause;
        trouble.pause = (trouble.pause * 2).min(LONGEST_PAUSE);
        if trouble.text != text || now.duration_since(trouble.said) >= REPEATED {
            if trouble.text != text {
                figures.errors.fetch_add(1, Relaxed);
            }
            (trouble.said, trouble.text) = (now, text.clone());
            *figures.trouble.lock() = Some(text.clone());
            self.say(true, text);
        }
    }

    fn recovered(&mut self) {
        if let Some(trouble) = self.trouble.take() {
            *self.store.figures.trouble.lock() = None;
            let seconds = trouble.since.elapsed().as_secs_f64();
            let tries = trouble.tries;
            self.say(false, format!("it writes again, after {seconds:.1} s and {tries} tries"));
        }
    }

    fn is_over(&self) -> bool {
        let is_empty = || self.hand.is_empty() && self.store.queue.is_empty();
        match self.end {
            End::No => false,
            // This thread has it, and the hub's list of those that leave.
            End::Drained => is_empty() && Arc::strong_count(&self.store) <= 2,
            End::Within(moment) => {
                // It was tried once since the order came.
                let most = if self.trouble.is_some() { moment } else { moment + GRACE };
                is_empty() || Instant::now() >= most
            }
        }
    }

    fn close(mut self) -> u64 {
        let figures = &self.store.figures;
        let mut left = 0;
        if let Some(mut sink) = self.sink.take() {
            sink.withdraw(&mut self.hand);
            left = self.hand.left();
            if let Err(error) = sink.close() {
                self.say(true, format!("closing: {error}"));
            }
        } else {
            left += self.hand.left();
        }
        let waits = self.store.queue.accepted().0.saturating_sub(self.taken + self.hand.messages());
        left += waits;
        figures.left.store(left, Relaxed);
        if left > 0 {
            let why = figures.trouble.lock().clone();
            let why = why.unwrap_or_else(|| "the time to drain was over".into());
            self.say(true, format!("{left} messages were not written: {why}"));
        }
        left
    }

    fn say(&self, warning: bool, text: String) {
        self.host.log(warning, format!("store {}: {text}", self.store.name));
    }
}

/// Bytes that are taken from the queue at once, about: one commit.
const AT_ONCE: usize = 4 << 20;
const TICK: Duration = Duration::from_secs(1);
/// Between two looks at whether anybody may still put something.
const LOOK: Duration = Duration::from_millis(20);
/// After upkeep that failed.
const LATER: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Between two lines about the same failure.
const REPEATED: Duration = Duration::from_secs(60);
/// For what is being written when the time to drain is over.
const GRACE: Duration = Duration::from_secs(1);
