//! `il1_events`: what happens to messages, kept while somebody watches.
//!
//! The events of a queue lie beside it, by its name: a queue that is not there can be watched, and what is
//! put into it is told. A queue that is watched has its log at hand; one that is not pays nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use hashbrown::HashMap;
use interlock_core::queue::feed::Noted;
use interlock_core::queue::types::Time;
use parking_lot::Mutex;

use crate::args::{Args, Read, Reader};
use crate::history;
use crate::queue::Queue;
use crate::read::Strings;
use crate::shared::{Context, Shared};
use crate::wire::limits::*;
use crate::words::to_bytes;

/// The events of a queue.
#[derive(Debug, Default)]
pub struct Log {
    /// The time until which somebody watches.
    until: Time,
    /// The number of the last event.
    last: u64,
    events: VecDeque<Event>,
    bytes: u64,
}

/// At hand in its queue, and known by the name of that.
pub type SharedLog = Arc<Mutex<Log>>;

/// One as it is told, behind its number.
#[derive(Debug)]
struct Event {
    told: Strings,
    /// Bytes of its consumer, its error and its keys.
    bytes: usize,
}

/// Bytes that an event takes beside its text, about.
const OF_AN_EVENT: u64 = 64;

/// Logs that are looked through whenever another one comes.
const FEW: usize = 64;

/// The logs of all queues that are watched.
#[derive(Default)]
pub struct Watched {
    logs: Mutex<HashMap<Box<[u8]>, SharedLog, std::hash::RandomState>>,
    /// The number of them, for those who only look.
    count: AtomicUsize,
}

impl Watched {
    /// The log of a queue, if somebody watches it.
    #[inline]
    pub fn log(&self, queue: &[u8]) -> Option<SharedLog> {
        // Relaxed: whoever is a moment late misses what happens at the same moment.
        match self.count.load(Ordering::Relaxed) {
            0 => None,
            _ => self.logs.lock().get(queue).cloned(),
        }
    }

    fn enter(&self, queue: &[u8], log: SharedLog, now: Time) {
        let mut logs = self.logs.lock();
        if logs.get(queue).is_some_and(|known| Arc::ptr_eq(known, &log)) {
            return;
        }
        // Those of queues that nobody calls go here. All are looked at, so not at each that comes.
        if logs.len() < FEW || logs.len().is_power_of_two() {
            logs.retain(|_, log| match log.try_lock() {
                Some(log) => log.until > now || log.last > now,
                None => true,
            });
        }
        logs.insert(queue.into(), log);
        self.count.store(logs.len(), Ordering::Relaxed);
    }

    /// Nobody watches this queue any more.
    pub fn remove(&self, queue: &[u8]) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut logs = self.logs.lock();
            logs.remove(queue);
            self.count.store(logs.len(), Ordering::Relaxed);
        }
    }
}

impl Log {
    fn first(&self) -> u64 {
        self.last + 1 - self.events.len() as u64
    }

    fn add(&mut self, event: Event) {
        self.bytes += event.weight();
        self.events.push_back(event);
        self.last += 1;
        if self.events.len() > MAX_EVENTS {
            let gone = self.events.pop_front();
            self.bytes -= gone.map_or(0, |event| event.weight());
        }
    }
}

impl Event {
    fn weight(&self) -> u64 {
        self.told.len() as u64 + OF_AN_EVENT
    }
}

impl Queue {
    /// The log of its name, or none any more.
    pub fn look_for_watch(&mut self, shared: &Shared) {
        self.watch = shared.watched.log(&self.name);
        self.scheduler.feed(self.watch.is_some());
    }

    /// Drops the log if the time of the watch is over.
    #[cold]
    pub fn look_at_watch(&mut self, shared: &Shared, now: Time) {
        let now = now.max(self.scheduler.last_time());
        let Some(log) = &self.watch else { return };
        let mut log = log.lock();
        if log.until > now {
            return;
        }
        *log = Log { last: log.last, ..Log::default() };
        // Its last number is known until the time is beyond it, for none comes again.
        let is_over = log.last <= now;
        drop(log);
        if is_over {
            shared.watched.remove(&self.name);
        }
        self.watch = None;
        self.scheduler.feed(false);
    }

    /// Bytes that its events take, about.
    pub fn watch_weight(&self) -> u64 {
        self.watch.as_ref().map_or(0, |log| log.lock().bytes)
    }

    /// Logs what the call under way has changed.
    #[cold]
    pub fn log_events(&mut self) {
        let time = self.scheduler.last_time();
        let Some(log) = &self.watch else { return };
        let mut log = log.lock();
        for noted in self.scheduler.noted() {
            let consumer = self.consumers.name(noted.consumer);
            log.add(told(&noted, consumer, time));
        }
    }

    /// `il1_events`.
    pub fn events<A: Args + ?Sized>(
        &mut self,
        from: &mut Reader<'_, A>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let after = match from.more() && from.args.get(from.at).is_empty() {
            true => {
                from.at += 1;
                None
            }
            false => Some(from.natural(0, MAX_NUMBER, || "after".into())?),
        };
        let count = from.natural(1, MAX_BATCH as u64, || "count".into())? as usize;
        let duration = from.natural(1, MAX_WATCH, || "duration".into())?;
        from.end()?;
        let now = cx.now.max(self.scheduler.last_time());
        let log = self.watch.take().or_else(|| cx.shared.watched.log(&self.name));
        let log = log.unwrap_or_default();
        {
            let mut log = log.lock();
            if log.until <= now {
                let last = now.max(log.last);
                *log = Log { last, ..Log::default() };
            }
            log.until = log.until.max(now + duration);
            log.tell(after, count, out);
        }
        cx.shared.watched.enter(&self.name, log.clone(), now);
        if !self.is_dropped() {
            self.watch = Some(log);
            self.scheduler.feed(true);
        }
        Ok(())
    }
}

impl Log {
    fn tell(&self, after: Option<u64>, count: usize, out: &mut Vec<u8>) {
        let first = self.first();
        let mut strings = Strings::default();
        strings.number(self.last);
        strings.number(after.map_or(0, |after| (first - 1).saturating_sub(after)));
        let skipped = after.map_or(u64::MAX, |after| (after + 1).saturating_sub(first));
        let skipped = skipped.min(self.events.len() as u64);
        let mut bytes = 0;
        let told = self.events.iter().skip(skipped as usize).take(count);
        for (number, event) in (first + skipped..).zip(told) {
            strings.number(number);
            strings.append(&event.told);
            bytes += event.bytes;
            if bytes >= MAX_EVENT_BYTES {
                break;
            }
        }
        strings.end(out);
    }
}

fn told(noted: &Noted, consumer: &[u8], time: Time) -> Event {
    let error = to_bytes(&noted.error);
    let error: Vec<u8> = error.iter().take(MAX_TEXT).copied().map(history::plain).collect();
    let mut told = Strings::default();
    told.number(time);
    told.text(noted.change.name().as_bytes());
    told.number(noted.id);
    told.number(noted.attempt.into());
    told.optional(Some(noted.token).filter(|&token| token > 0));
    told.text(consumer);
    told.text(&error);
    let shared = noted.keys.iter().filter(|(_, shared)| *shared).count();
    told.number((noted.keys.len() - shared) as u64);
    told.number(shared as u64);
    let mut bytes = consumer.len() + error.len();
    for (key, _) in &noted.keys {
        told.text(key.as_bytes());
        bytes += key.as_bytes().len();
    }
    told.shrink();
    Event { told, bytes }
}
