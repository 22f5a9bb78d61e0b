//! `il1_drop`: a queue goes, with all that is in it and all that was said of it.
//!
//! What outlives it for a while are the last replies of its consumers, for a call that is sent again has
//! to be answered as the first time, and the end of its series, for no id and no token may come again
//! (clause 8): those follow the time, but a burst of puts is ahead of it. A queue of this name that is
//! made meanwhile goes on from there. Calls that wait make it anew at once, as they make one that never was.
//!
//! In a journal a `drop` is the call itself, and what is kept stands in a snapshot too; the queue is
//! `forgotten` when nothing is kept any longer, or when it is made anew as one that is not durable.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use interlock_core::queue::types::Time;
use parking_lot::{ArcMutexGuard, RawMutex};

use crate::args::{Args, Read, Reader};
use crate::declare::Durability;
use crate::limits::KEPT;
use crate::queue::Queue;
use crate::reply;
use crate::shared::{Cell, Context, Shared};
use crate::waiting::Want;
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
        // One that nobody had called yet was made by this very call.
        let existed = self.scheduler.last_time() > 0;
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
                cx.record(self, "drop", &[]);
                self.in_journal |= self.is_durable() && cx.shared.settings.journal.is_some();
            }
            self.start_afresh(cx);
        }
        Ok(())
    }

    /// The same, as a journal tells of it.
    pub fn replay_drop(&mut self, cx: &mut Context<'_>) {
        self.in_journal = true;
        self.start_afresh(cx);
    }

    fn start_afresh(&mut self, cx: &mut Context<'_>) {
        let fresh = Queue::new(&self.name, cx.shared.settings.durability);
        let old = std::mem::replace(self, fresh);
        self.scheduler.go_on_from(old.scheduler.series());
        (self.consumers, self.waiting) = (old.consumers, old.waiting);
        (self.counted, self.alarm, self.in_journal) = (old.counted, old.alarm, old.in_journal);
        for order in self.waiting.for_any_end() {
            self.end_wait(order, cx);
        }
        self.dropped = self.waiting.is_empty();
        if !self.dropped {
            self.is_back(cx.shared);
            self.scheduler.pass(cx.now);
        }
    }

    /// It is somebody's again.
    pub fn is_back(&mut self, shared: &Shared) {
        self.dropped = false;
        if std::mem::take(&mut self.in_journal) && !self.is_durable() {
            self.forget_in(shared);
        }
    }

    fn forget_in(&self, shared: &Shared) {
        if let Some(journal) = &shared.settings.journal {
            let now = self.scheduler.last_time();
            journal.record(&self.name, Durability::Always, now, "forgotten", &[]);
        }
    }
}

/// Until when what is kept of a dropped queue is kept, and where it lies.
pub struct Dropped {
    until: Time,
    pub cell: Cell,
}

impl Engine {
    /// The queue of this name, locked; made if it is not there.
    #[cold]
    pub fn taken_up(&self, name: &[u8]) -> (Cell, ArcMutexGuard<RawMutex, Queue>) {
        loop {
            let cell = self.cell(name);
            let mut queue = cell.lock_arc();
            if !queue.dropped {
                return (cell, queue);
            }
            // Unless it was dropped between the look and the lock, and is not where it was found.
            let is_there = self.queues.read().get(name).is_some_and(|one| Arc::ptr_eq(one, &cell));
            if is_there {
                queue.is_back(&self.shared);
                return (cell, queue);
            }
        }
    }

    /// A queue that is not there, to be looked at: it is not counted among all.
    pub fn nobodys(&self, name: &[u8]) -> Cell {
        let cell = self.fresh(name);
        cell.lock().dropped = true;
        cell
    }

    /// What is kept of a queue that was dropped.
    pub fn kept_of(&self, name: &[u8]) -> Option<Cell> {
        self.dropped.lock().get(name).map(|dropped| dropped.cell.clone())
    }

    /// A queue was dropped under its lock: it is nobody's any more. Those of which nothing has to be kept
    /// any longer go for good.
    #[cold]
    pub fn let_go(&self, queue: &Queue, cell: &Cell, now: Time, replays: bool) {
        let (next, token) = queue.scheduler.series();
        let until = now.saturating_add(KEPT).max(next).max(token);
        // Who only reads may have found it before it went, and comes to it after.
        if !self.queues.read().get(&queue.name).is_some_and(|one| Arc::ptr_eq(one, cell)) {
            return;
        }
        let mut names = self.queues.write();
        names.remove(&queue.name);
        let mut dropped = self.dropped.lock();
        drop(names);
        dropped.insert(queue.name.clone(), Dropped { until, cell: cell.clone() });
        if replays {
            return;
        }
        dropped.retain(|_, one| {
            // The lock of another queue is not waited for while one is held.
            let Some(mut old) = (one.until <= now).then(|| one.cell.try_lock_arc()).flatten()
            else {
                return true;
            };
            if old.in_journal {
                old.forget_in(&self.shared);
            }
            self.shared.used.fetch_sub(std::mem::take(&mut old.counted), Ordering::Relaxed);
            false
        });
    }
}

impl crate::waiting::Waiting {
    /// The calls that wait for the end of a message, or of all, in the order in which they came.
    fn for_any_end(&self) -> Vec<u64> {
        let ends = |want: &Want| matches!(want, Want::Result(_) | Want::Join(_));
        let all = self.iter().filter(|(_, waiter)| ends(&waiter.want));
        all.map(|(&order, _)| order).collect()
    }
}
