//! Frees memory that queues no longer need.
//!
//! - A queue that was never declared, paused or sealed, and in which nothing was ever put, is
//!   *blank*: it is dropped after the call that made it. Its reply is kept for a while, for a
//!   repeated call, but of all such queues together only up to a limit of bytes: nothing was leased
//!   or settled, so repeating such a call does no harm.
//! - A queue that holds nothing gives its records back when it has been left alone for a while.
//! - Where memory is bounded and runs short, one that holds nothing, of which nothing is kept and which was
//!   never declared goes as if it had been dropped, once it has been left alone for longer than a reply is
//!   kept.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use interlock_core::queue::types::Time;

use crate::queue::shared::{Cell, Context, Shared};
use crate::queue::{Presence, Queue};
use crate::wire::limits::KEPT_REPLY;
use crate::Engine;

/// Bytes that blank queues are kept in, and the part of the bound on all queues that this is at most.
const BLANK_BYTES: u64 = 16 << 20;
const BLANK_PART: u64 = 8;
/// µs for which an empty queue keeps its records for the next messages.
const IDLE: Time = 10_000_000;
/// Bytes of records that are worth giving back: fewer than those of a single message.
const WORTH: u64 = 512;
/// Queues looked at by one call.
pub const LOOKS: usize = 8;

/// Queues that were left empty, and when each [`Sweep`] of them is due. Each list rises, nearly.
#[derive(Debug)]
pub struct Idle {
    lists: [VecDeque<(Time, Box<[u8]>)>; 2],
    /// The time from which the first of those that were dropped can go for good.
    gone: Time,
    /// The time at which the first watch or announcement is over.
    beside: Time,
}

impl Default for Idle {
    fn default() -> Self {
        Idle { lists: Default::default(), gone: Time::MAX, beside: Time::MAX }
    }
}

/// The end of a queue that was left empty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sweep {
    /// Soon: it gives its records back.
    Compact,
    /// Later: it goes.
    Drop,
}

impl Idle {
    fn first(&self) -> Time {
        let fronts = self.lists.iter().filter_map(|list| list.front());
        fronts.map(|(at, _)| *at).min().unwrap_or(Time::MAX).min(self.gone).min(self.beside)
    }

    fn take(&mut self, now: Time) -> Option<(Sweep, Box<[u8]>)> {
        let due = |list: &VecDeque<_>| list.front().is_some_and(|(at, _): &(Time, _)| *at <= now);
        let sweeps = [Sweep::Compact, Sweep::Drop];
        let sweep = sweeps.into_iter().find(|&sweep| due(&self.lists[sweep as usize]))?;
        Some((sweep, self.lists[sweep as usize].pop_front()?.1))
    }
}

impl Queue {
    /// Returns whether it is as if it had never been, but for kept replies, and those who wait.
    #[inline]
    pub fn is_blank(&self) -> bool {
        self.scheduler.is_unused() && !self.is_declared && !self.sealed && self.results.len() == 0
    }

    /// Returns whether it is empty, has no stored data, and its last call is older than the time for which
    /// replies are stored.
    fn is_spent(&self, now: Time) -> bool {
        !self.is_declared
            && !self.sealed
            && self.waiting.is_empty()
            && self.results.len() == 0
            && self.scheduler.is_empty()
            && self.scheduler.last_time().saturating_add(KEPT_REPLY) <= now
    }
}

impl Shared {
    /// A watch or an announcement ends at this time, unless it is renewed.
    pub fn sweep_beside_at(&self, at: Time) {
        let mut idle = self.idle.lock();
        if at < idle.beside {
            idle.beside = at;
            self.first_idle.store(idle.first(), Relaxed);
        }
    }

    /// Lets go what was kept for watches and of workers that are over, also those of queues that nobody calls.
    #[cold]
    fn sweep_beside(&self, now: Time) {
        self.idle.lock().beside = Time::MAX;
        let watched = self.watched.expire(now, self);
        let working = self.workers.lock().expire(self, now);
        let mut idle = self.idle.lock();
        idle.beside = idle.beside.min(watched).min(working);
        self.first_idle.store(idle.first(), Relaxed);
    }
}

impl Engine {
    /// A call has left a queue blank, whose lock is held: it is nobody's again.
    #[cold]
    pub fn let_blank_go(&self, queue: &mut Queue, cell: &Cell, now: Time, replays: bool) {
        queue.in_journal |= replays;
        queue.note_in_journal(&self.shared);
        queue.presence = Presence::Dropped;
        self.let_go(queue, cell, now, replays);
        self.shared.reclaimed.fetch_add(1, Relaxed);
    }

    /// Bytes in which blank queues are kept, at most.
    pub fn blank_bound(&self) -> u64 {
        match self.shared.memory.load(Relaxed) {
            0 => BLANK_BYTES,
            most => BLANK_BYTES.min(most / BLANK_PART),
        }
    }

    /// Returns whether queues take nearly all that they may.
    fn runs_short(&self) -> bool {
        let most = self.shared.memory.load(Relaxed);
        most > 0 && self.shared.used.load(Relaxed) > most - most / 4
    }

    /// A queue, whose lock is held, was left as it is now by a call.
    #[inline]
    pub fn note_idle(&self, queue: &mut Queue) {
        if queue.scheduler.unsettled() == 0
            && !queue.idle[Sweep::Compact as usize]
            && !queue.is_dropped()
        {
            self.enter_idle(queue);
        }
    }

    #[cold]
    fn enter_idle(&self, queue: &mut Queue) {
        let last = queue.scheduler.last_time();
        if queue.structure > WORTH {
            self.look_again(queue, Sweep::Compact, last + IDLE);
        }
        let bounded = self.shared.memory.load(Relaxed) > 0;
        if bounded
            && !queue.idle[Sweep::Drop as usize]
            && !queue.is_declared
            && queue.scheduler.is_empty()
        {
            self.look_again(queue, Sweep::Drop, last + KEPT_REPLY);
        }
    }

    fn look_again(&self, queue: &mut Queue, sweep: Sweep, at: Time) {
        queue.idle[sweep as usize] = true;
        self.enlist(queue.name.clone(), sweep, at);
    }

    fn enlist(&self, name: Box<[u8]>, sweep: Sweep, at: Time) {
        let mut idle = self.shared.idle.lock();
        idle.lists[sweep as usize].push_back((at, name));
        self.shared.first_idle.store(idle.first(), Relaxed);
    }

    /// Queues that were dropped can go for good from this time on.
    pub fn sweep_gone_at(&self, at: Time) {
        let mut idle = self.shared.idle.lock();
        idle.gone = at;
        self.shared.first_idle.store(idle.first(), Relaxed);
    }

    /// Looks at some queues that were left empty or dropped a while ago. No queue's lock is held.
    #[cold]
    pub fn sweep(&self, now: Time) {
        let (gone, beside) = {
            let idle = self.shared.idle.lock();
            (idle.gone, idle.beside)
        };
        if gone <= now {
            self.forget_gone(&mut self.gone.lock(), now);
        }
        if beside <= now {
            self.shared.sweep_beside(now);
        }
        for _ in 0..LOOKS {
            let next = {
                let mut idle = self.shared.idle.lock();
                let next = idle.take(now);
                self.shared.first_idle.store(idle.first(), Relaxed);
                next
            };
            let Some((sweep, name)) = next else { return };
            let Some(cell) = self.queues.read().get(&name).cloned() else { continue };
            match cell.try_lock_arc() {
                None => self.enlist(name, sweep, now + IDLE),
                Some(mut queue) => {
                    queue.idle[sweep as usize] = false;
                    if !queue.is_dropped() && queue.scheduler.unsettled() == 0 {
                        self.look_at(&mut queue, &cell, sweep, now);
                        self.after(&mut queue);
                    }
                }
            }
        }
    }

    fn look_at(&self, queue: &mut Queue, cell: &Cell, sweep: Sweep, now: Time) {
        let since = queue.scheduler.last_time();
        if sweep == Sweep::Compact {
            if since + IDLE > now {
                self.look_again(queue, Sweep::Compact, since + IDLE);
            } else if queue.scheduler.compact() {
                queue.grants = Vec::new();
                queue.measure();
            }
        } else if queue.is_spent(now) && self.runs_short() {
            let (mut served, shared) = (Vec::new(), &self.shared);
            let (caller, payer) = (None, None);
            let mut cx =
                Context { now, caller, served: &mut served, shared, replays: false, payer };
            queue.drop_spent(&mut cx);
            self.let_go(queue, cell, now, false);
            shared.reclaimed.fetch_add(1, Relaxed);
        } else if !queue.is_declared {
            self.look_again(queue, Sweep::Drop, (since + KEPT_REPLY).max(now + IDLE));
        }
    }
}
