//! `il1_drop`: a queue goes, with all that is in it and all that was said of it.
//!
//! What outlives it for a while are the last replies of its consumers, for a repeated call must be
//! answered as the first time, and the end of its series, for no id and no token may repeat (clause
//! 8): those follow the time, but a burst of puts is ahead of it. A queue of this name that is made
//! meanwhile continues them. Waiting calls recreate it at once, as they create one that never
//! existed.
//!
//! In a journal a `drop` is the call itself, and a snapshot has what is kept; the queue is
//! `forgotten` when nothing is kept any longer, or when it is recreated as one that is not durable.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use interlock_core::queue::types::Time;
use parking_lot::{ArcMutexGuard, RawMutex};

use crate::queue::declare::Durability;
use crate::queue::reclaim::LOOKS;
use crate::queue::shared::{Cell, Context, Shared};
use crate::queue::{Presence, Queue};
use crate::values::args::{Args, Read, Reader};
use crate::values::reply;
use crate::waiting::waiters::Want;
use crate::wire::functions::Function;
use crate::wire::limits::KEPT_REPLY;
use crate::wire::records::Recorded;
use crate::Engine;

impl Queue {
    /// Answers whether it is gone, and what there was: unsettled, leased, dead, results.
    pub fn drop_all<A: Args + ?Sized>(
        &mut self,
        from: &mut Reader<'_, A>,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<()> {
        let force = from.more();
        if force && from.take(|| "force".into())? != b"FORCE" {
            return from.bad(|| "force".into(), "is not FORCE");
        }
        from.end()?;
        // A queue that was only read does not exist.
        let existed = !self.is_blank();
        if existed {
            self.begin(cx);
        }
        let counts = self.scheduler.counts();
        let goes = counts.unsettled == 0 || force;
        let there = [counts.unsettled, counts.leased, counts.dead, self.results.len() as u64];
        reply::array(out, 1 + there.len());
        reply::digit(out, u8::from(existed && goes));
        there.iter().for_each(|&count| reply::number(out, count));
        if goes {
            if existed {
                cx.shared.watched.remove(&self.name, cx.shared);
                cx.shared.workers.lock().drop_queue(cx.shared, &self.name);
                self.record_drop(cx);
            } else {
                self.note_in_journal(cx.shared);
            }
            self.start_afresh(cx);
        }
        Ok(())
    }

    fn record_drop(&mut self, cx: &mut Context<'_>) {
        cx.record(self, Recorded::Call(Function::Drop), &[]);
        self.in_journal |= self.is_durable() && cx.shared.settings.journal.is_some();
    }

    /// Called when an unused queue is dropped, which is not recorded. But if the journal has its name, from a
    /// call that did nothing, the snapshot must have the name too: later records refer to it.
    pub fn note_in_journal(&mut self, shared: &Shared) {
        let journal = shared.settings.journal.as_ref().filter(|_| self.is_durable());
        self.in_journal |= journal.is_some_and(|journal| journal.knows(&self.name));
    }

    /// Drops a queue when a drop is replayed from a journal.
    pub fn replay_drop(&mut self, cx: &mut Context<'_>) {
        self.in_journal = true;
        self.start_afresh(cx);
    }

    /// Drops an empty queue by itself.
    pub fn drop_spent(&mut self, cx: &mut Context<'_>) {
        self.record_drop(cx);
        self.start_afresh(cx);
    }

    fn start_afresh(&mut self, cx: &mut Context<'_>) {
        let fresh = Queue::new(&self.name, cx.shared.settings.durability).instead_of(self);
        let old = std::mem::replace(self, fresh);
        self.scheduler.go_on_from(old.scheduler.series());
        (self.consumers, self.waiting) = (old.consumers, old.waiting);
        self.in_journal = old.in_journal;
        for order in self.waiting.for_any_end() {
            self.end_wait(order, cx);
        }
        if self.waiting.is_empty() {
            self.presence = Presence::Dropped;
        } else {
            self.is_back(cx.shared);
            self.look_for_watch(cx.shared);
            self.scheduler.pass(cx.now);
        }
    }

    /// Notes that the queue is in use again.
    pub fn is_back(&mut self, shared: &Shared) {
        self.presence = Presence::There;
        if std::mem::take(&mut self.in_journal) && !self.is_durable() {
            self.forget_in(shared);
        }
    }

    pub fn forget_in(&self, shared: &Shared) {
        let journal = shared.settings.journal.as_ref();
        if let Some(journal) = journal.filter(|journal| journal.knows(&self.name)) {
            let now = self.scheduler.last_time();
            journal.record(&self.name, Durability::Always, now, Recorded::Forgotten, &[]);
        }
    }
}

/// The remains of queues that are nobody's any more: by name, in the order in which they are of no
/// use, and those that were blank in the order in which they went.
#[derive(Default)]
pub struct Gone {
    by_name: HashMap<Box<[u8]>, One, std::hash::RandomState>,
    order: BTreeSet<(Time, u64)>,
    blank: BTreeSet<u64>,
    names: HashMap<u64, Box<[u8]>, std::hash::RandomState>,
    blank_bytes: u64,
    next: u64,
}

struct One {
    number: u64,
    until: Time,
    /// Bytes of a queue that was blank; 0 for others.
    bytes: u64,
    cell: Cell,
}

impl Gone {
    fn insert(&mut self, name: &[u8], until: Time, bytes: u64, cell: Cell) {
        self.remove(name);
        let number = self.next;
        self.next += 1;
        self.order.insert((until, number));
        self.names.insert(number, name.into());
        if bytes > 0 {
            self.blank.insert(number);
            self.blank_bytes += bytes;
        }
        self.by_name.insert(name.into(), One { number, until, bytes, cell });
    }

    /// Removes a queue that is in use again, or no longer needed.
    pub fn remove(&mut self, name: &[u8]) -> Option<Cell> {
        let One { number, until, bytes, cell } = self.by_name.remove(name)?;
        self.order.remove(&(until, number));
        self.names.remove(&number);
        if self.blank.remove(&number) {
            self.blank_bytes -= bytes;
        }
        Some(cell)
    }

    /// The next that can go for good.
    fn next(&self, now: Time, blank_bound: u64) -> Option<(Box<[u8]>, Cell)> {
        let over = self.order.first().filter(|(until, _)| *until <= now);
        let number = match over {
            Some((_, number)) => number,
            None if self.blank_bytes > blank_bound => self.blank.first()?,
            None => return None,
        };
        let name = self.names.get(number)?;
        Some((name.clone(), self.by_name.get(name)?.cell.clone()))
    }

    pub fn cells(&self) -> impl Iterator<Item = (Box<[u8]>, Cell)> + '_ {
        self.by_name.iter().map(|(name, one)| (name.clone(), one.cell.clone()))
    }
}

impl Engine {
    /// The queue of this name, locked; made if it is not there.
    #[cold]
    pub fn taken_up(&self, name: &[u8]) -> (Cell, ArcMutexGuard<RawMutex, Queue>) {
        loop {
            let cell = self.cell(name);
            let mut queue = cell.lock_arc();
            if !queue.is_dropped() {
                return (cell, queue);
            }
            // Unless it was dropped between the look and the lock, and is not where it was found.
            let is_there = self.queues.read().get(name).is_some_and(|one| Arc::ptr_eq(one, &cell));
            if is_there {
                queue.is_back(&self.shared);
                queue.look_for_watch(&self.shared);
                return (cell, queue);
            }
        }
    }

    /// A queue that is not there, to be looked at: it is not counted among all.
    pub fn nobodys(&self, name: &[u8]) -> Cell {
        let cell = self.fresh(name);
        cell.lock().presence = Presence::Dropped;
        cell
    }

    /// Returns what is kept of a queue that was dropped.
    pub fn kept_of(&self, name: &[u8]) -> Option<Cell> {
        self.gone.lock().by_name.get(name).map(|one| one.cell.clone())
    }

    /// A queue was dropped under its lock: it is nobody's any more. Those of which nothing has to be kept
    /// any longer go for good, some of them.
    #[cold]
    pub fn let_go(&self, queue: &mut Queue, cell: &Cell, now: Time, replays: bool) {
        let (next, token) = queue.scheduler.series();
        let until = now.saturating_add(KEPT_REPLY).max(next).max(token);
        // A reader may have found the queue before it was dropped, and use it afterwards.
        if !self.queues.read().get(&queue.name).is_some_and(|one| Arc::ptr_eq(one, cell)) {
            return;
        }
        let nothing = queue.scheduler.gave_nothing() && !queue.consumers.keep_something();
        let mut names = self.queues.write();
        names.remove(&queue.name);
        let mut gone = self.gone.lock();
        drop(names);
        if !nothing || queue.in_journal || replays {
            queue.presence = Presence::Kept;
            let blank = queue.scheduler.gave_nothing();
            let bytes = if blank { queue.total_weight() } else { 0 };
            gone.insert(&queue.name, until, bytes, cell.clone());
        }
        if replays {
            return;
        }
        self.forget_gone(&mut gone, now);
    }

    /// Some of those of which nothing has to be kept any longer go for good: the rest with later calls, for
    /// thousands may have been dropped at once.
    pub fn forget_gone(&self, gone: &mut Gone, now: Time) {
        let bound = self.blank_bound();
        for _ in 0..LOOKS {
            let Some((name, cell)) = gone.next(now, bound) else { break };
            // The lock of another queue is not waited for while one is held.
            let Some(mut old) = cell.try_lock_arc() else { break };
            gone.remove(&name);
            if old.in_journal {
                old.forget_in(&self.shared);
            }
            old.presence = Presence::Dropped;
            self.shared.count(&mut old, 0);
        }
        let first = gone.order.first().map_or(Time::MAX, |(until, _)| *until);
        let due = if gone.next(now, bound).is_some() { now } else { first };
        self.sweep_gone_at(due);
    }
}

impl crate::waiting::waiters::Waiting {
    /// The calls that wait for the end of a message, or of all, in the order in which they came.
    fn for_any_end(&self) -> Vec<u64> {
        let ends = |want: &Want| matches!(want, Want::Result(_) | Want::Join(_));
        let all = self.iter().filter(|(_, waiter)| ends(&waiter.want));
        all.map(|(&order, _)| order).collect()
    }
}
