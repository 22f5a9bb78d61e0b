//! `il1_events`: what happens to messages, kept while somebody watches.
//!
//! The events of a queue are kept by its name: a queue that does not exist can be watched, and its
//! first put is reported. A watched queue has a reference to its log; others pay nothing.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use hashbrown::HashMap;
use interlock_core::queue::parts::feed::Noted;
use interlock_core::queue::types::Time;
use parking_lot::Mutex;

use crate::calls::read::Strings;
use crate::queue::shared::{Account, Context, Shared};
use crate::queue::Queue;
use crate::values::args::{Args, Read, Reader};
use crate::values::history;
use crate::values::words::to_bytes;
use crate::wire::limits::*;

/// The events of a queue.
#[derive(Debug, Default)]
pub struct Log {
    /// The time until which somebody watches.
    until: Time,
    /// The number of the last event.
    last: u64,
    events: VecDeque<Event>,
    bytes: u64,
    /// Its place among the ends of all logs; 0: it is not among them.
    end: Time,
    /// Bytes that are counted of it, and the accounts in which they are.
    counted: u64,
    accounts: Vec<Arc<Account>>,
}

/// At hand in its queue, and known by the name of that.
pub type SharedLog = Arc<Mutex<Log>>;

/// An event as it is sent, after its number.
#[derive(Debug)]
struct Event {
    told: Strings,
    /// Bytes of its consumer, its error and its keys.
    bytes: usize,
}

/// Bytes that an event takes beside its text, and a log beside its events and its name, about.
const OF_AN_EVENT: u64 = 96;
const OF_A_LOG: u64 = 352;

/// Part of the memory of queues, one in this many, that logs may take without their events.
const SHARE: u64 = 8;

/// Logs that one call looks at whose time may be over.
const LOOKS: usize = 64;

/// The logs of all queues that are watched.
#[derive(Default)]
pub struct Watched {
    logs: Mutex<Logs>,
    /// The number of them, for those who only look.
    count: AtomicUsize,
}

#[derive(Default)]
struct Logs {
    by_name: HashMap<Box<[u8]>, SharedLog, std::hash::RandomState>,
    /// The time at which each watch ends unless it is renewed.
    ends: BTreeSet<(Time, Box<[u8]>)>,
    /// Bytes of all logs without their events.
    bytes: u64,
}

impl Logs {
    fn remove(&mut self, queue: &[u8]) -> Option<SharedLog> {
        let log = self.by_name.remove(queue)?;
        self.bytes -= of_a_log(queue);
        Some(log)
    }
}

impl Watched {
    /// Returns whether the logs of all queues, without their events, would take more than their share of the memory: who
    /// may only read must not use up what puts need.
    fn is_full(&self, more: u64, shared: &Shared) -> bool {
        let most = shared.memory.load(Ordering::Relaxed) / SHARE;
        most > 0 && self.logs.lock().bytes + more > most
    }

    /// The log of a queue, if somebody watches it.
    #[inline]
    pub fn log(&self, queue: &[u8]) -> Option<SharedLog> {
        // Relaxed: a watch that is a moment late misses the events of that moment.
        match self.count.load(Ordering::Relaxed) {
            0 => None,
            _ => self.logs.lock().by_name.get(queue).cloned(),
        }
    }

    /// Keeps a log, and returns the time at which the first of all is over.
    fn enter(&self, queue: &[u8], log: &SharedLog, shared: &Shared) -> Time {
        let mut logs = self.logs.lock();
        if logs.by_name.get(queue).is_none_or(|known| !Arc::ptr_eq(known, log)) {
            let mut entered = log.lock();
            entered.end = entered.until;
            entered.accounts = shared.accounts_of(queue);
            entered.recount(shared, queue);
            logs.ends.insert((entered.end, queue.into()));
            drop(entered);
            if logs.by_name.insert(queue.into(), log.clone()).is_none() {
                logs.bytes += of_a_log(queue);
            }
            self.count.store(logs.by_name.len(), Ordering::Relaxed);
        }
        logs.ends.first().map_or(Time::MAX, |(end, _)| *end)
    }

    /// Removes a queue that is no longer watched.
    pub fn remove(&self, queue: &[u8], shared: &Shared) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut logs = self.logs.lock();
            let Some(log) = logs.remove(queue) else { return };
            self.count.store(logs.by_name.len(), Ordering::Relaxed);
            let mut log = log.lock();
            logs.ends.remove(&(log.end, queue.into()));
            log.end = 0;
            log.clear();
            log.count(shared, 0);
        }
    }

    /// Lets some go that are over, those of queues that nobody calls too, and returns when to look again.
    pub fn expire(&self, now: Time, shared: &Shared) -> Time {
        let mut logs = self.logs.lock();
        for _ in 0..LOOKS {
            if logs.ends.first().is_none_or(|(end, _)| *end > now) {
                break;
            }
            let (_, queue) = logs.ends.pop_first().expect("as just seen");
            let Some(log) = logs.by_name.get(&queue).cloned() else { continue };
            let mut log = log.lock();
            log.end = log.until.max(log.last + 1);
            if log.end > now {
                if log.until <= now {
                    // Its last number is known until the time is beyond it, so none repeats.
                    log.clear();
                    log.recount(shared, &queue);
                }
                logs.ends.insert((log.end, queue));
                continue;
            }
            log.end = 0;
            log.clear();
            log.count(shared, 0);
            logs.remove(&queue);
        }
        self.count.store(logs.by_name.len(), Ordering::Relaxed);
        logs.ends.first().map_or(Time::MAX, |(end, _)| *end)
    }

    /// Logs count in other accounts from now on.
    pub fn set_accounts(&self, shared: &Shared) {
        for (queue, log) in &self.logs.lock().by_name {
            let mut log = log.lock();
            let counted = log.counted;
            log.count(shared, 0);
            log.accounts = shared.accounts_of(queue);
            log.count(shared, counted);
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
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let gone = self.events.pop_front();
        self.bytes -= gone.map_or(0, |event| event.weight());
    }

    fn drop_half(&mut self, shared: &Shared, queue: &[u8]) {
        (0..self.events.len().div_ceil(2)).for_each(|_| self.drop_first());
        self.events.shrink_to_fit();
        self.recount(shared, queue);
    }

    fn clear(&mut self) {
        self.events = VecDeque::new();
        self.bytes = 0;
    }

    fn recount(&mut self, shared: &Shared, queue: &[u8]) {
        self.count(shared, self.bytes + of_a_log(queue));
    }

    fn count(&mut self, shared: &Shared, weight: u64) {
        let more = weight.wrapping_sub(self.counted);
        shared.count_beside(&self.accounts, more);
        self.counted = weight;
    }
}

/// Bytes of a log without events.
fn of_a_log(queue: &[u8]) -> u64 {
    OF_A_LOG + 2 * queue.len() as u64
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
        log.clear();
        // Its last number is known until the time is beyond it, so none repeats.
        let is_over = log.last <= now;
        if log.end > 0 {
            log.recount(shared, &self.name);
        }
        drop(log);
        if is_over {
            shared.watched.remove(&self.name, shared);
        }
        self.watch = None;
        self.scheduler.feed(false);
    }

    /// Logs what the call under way has changed. Where memory runs out, the oldest events go first.
    #[cold]
    pub fn log_events(&mut self, shared: &Shared) {
        let time = self.scheduler.last_time();
        let Some(log) = &self.watch else { return };
        let mut log = log.lock();
        for noted in self.scheduler.noted() {
            let consumer = self.consumers.name(noted.consumer);
            log.add(told(&noted, consumer, time));
        }
        if log.end == 0 {
            // The queue is no longer watched: the next call removes it.
            log.clear();
            return;
        }
        log.recount(shared, &self.name);
        let most = shared.memory.load(Ordering::Relaxed);
        if most > 0 && shared.used.load(Ordering::Relaxed) > most {
            log.drop_half(shared, &self.name);
        }
    }

    /// Drops the oldest events until this many bytes are free: messages need the memory more.
    #[cold]
    pub fn drop_events(&self, bytes: u64, cx: &Context<'_>) {
        let Some(log) = &self.watch else { return };
        let mut log = log.lock();
        while bytes > cx.free_of_all() && !log.events.is_empty() {
            log.drop_half(cx.shared, &self.name);
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
        let bytes = of_a_log(&self.name);
        let is_full = |more| more > cx.free() || cx.shared.watched.is_full(more, cx.shared);
        if log.is_none() && is_full(bytes) {
            return Err(cx.out_of_memory(bytes, from.called));
        }
        let log = log.unwrap_or_default();
        {
            let mut log = log.lock();
            if log.until <= now {
                log.clear();
                log.last = now.max(log.last);
            }
            log.until = log.until.max(now + duration);
            log.tell(after, count, out);
        }
        let end = cx.shared.watched.enter(&self.name, &log, cx.shared);
        cx.shared.sweep_beside_at(end);
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
