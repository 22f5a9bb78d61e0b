//! One queue: the scheduler, and what the wire keeps beside it.

pub(super) mod consumers;
pub(super) mod declare;
pub(super) mod drop;
mod dump;
mod events;
pub(super) mod names;
mod reclaim;
pub(super) mod results;
pub(super) mod shared;
mod workers;

use std::sync::Arc;

use interlock_core::queue::scheduler::{Budget, Grant, Scheduler};
use interlock_core::queue::types::Time;

use crate::calls::put;
use crate::queue::consumers::Consumers;
use crate::queue::declare::{Declared, Durability};
use crate::queue::events::SharedLog;
use crate::queue::results::{End, Results};
use crate::queue::shared::{Account, Context};
use crate::values::history;
use crate::values::scratch::Payload;
use crate::waiting::waiters::Waiting;
use crate::wire::records::Recorded;

/// The data that a message carries through the scheduler.
#[derive(Debug)]
pub struct Body {
    /// And, beside it, the bytes that the message takes without it, about.
    pub data: Payload,
    /// For how many µs its result is kept.
    pub result: u64,
}

impl Body {
    pub fn weight(&self) -> u64 {
        self.data.len() as u64 + u64::from(self.data.beside)
    }
}

/// Bytes that a queue takes without anything in it, and that a result takes, about.
pub const EMPTY: u64 = 4256;
const KEPT_OVERHEAD: u64 = 240;
/// Calls between two looks at what the records of a queue take.
const CALLS: u32 = 16;

/// The standing of a queue among those of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    There,
    /// Nobody's: it was dropped, or is not there and only looked at.
    Dropped,
    /// Dropped, and there for those who send a call again.
    Kept,
}

pub struct Queue {
    pub name: Box<[u8]>,
    pub scheduler: Scheduler<Body>,
    pub declared: Declared,
    /// True if somebody has declared it.
    pub is_declared: bool,
    pub sealed: bool,
    pub presence: Presence,
    /// True if it was dropped, and a journal still has its data.
    pub in_journal: bool,
    pub consumers: Consumers,
    pub results: Results,
    pub waiting: Waiting,
    /// Its events, while somebody watches.
    pub watch: Option<SharedLog>,
    /// Bytes of all messages and dead letters, about.
    pub weight: u64,
    /// The budget of what the call under way may ready, beside what was due (clause 21).
    pub budget: Budget,
    /// Somebody who waited has gone, and those behind may be served.
    pub restless: bool,
    /// The time at which this queue asks to be ticked; `Time::MAX`: never.
    pub alarm: Time,
    /// The part of its weight counted among that of all queues, and the accounts that count it.
    pub counted: u64,
    pub accounts: Vec<Arc<Account>>,
    /// Bytes of the scheduler's records as last measured, and calls since it was made.
    pub structure: u64,
    pub calls: u32,
    /// Somebody will look whether it is still empty: soon, and later.
    pub idle: [bool; 2],
    /// Kept for their room.
    pub grants: Vec<Grant>,
}

impl Queue {
    pub fn new(name: &[u8], durability: Durability) -> Self {
        let declared = Declared::default_of(durability);
        let weigh = |body: &Body| body.data.len() as u64;
        let mut scheduler = Scheduler::by_time(declared.options(), weigh);
        scheduler.keep_errors(history::join, history::newest_text);
        Queue {
            name: name.into(),
            scheduler,
            results: Results::new(declared.results),
            declared,
            is_declared: false,
            sealed: false,
            presence: Presence::There,
            in_journal: false,
            consumers: Consumers::default(),
            waiting: Waiting::default(),
            watch: None,
            weight: 0,
            budget: Budget::ONE_CALL,
            restless: false,
            alarm: Time::MAX,
            counted: 0,
            accounts: Vec::new(),
            structure: 0,
            calls: 0,
            idle: [false; 2],
            grants: Vec::new(),
        }
    }

    /// A message was settled.
    #[inline]
    pub fn gone(&mut self, id: u64, body: Body, end: End, result: &[u8]) {
        self.weight -= body.weight();
        if body.result > 0 {
            let until = self.scheduler.last_time().saturating_add(body.result);
            self.results.keep(id, end, result, until);
        }
    }

    /// The number by which the scheduler knows a consumer.
    #[inline]
    pub fn consumer(&mut self, name: &[u8]) -> u64 {
        let scheduler = &self.scheduler;
        self.consumers.number(name, || scheduler.holders().collect())
    }

    /// Bytes it takes, about. A message's weight has its part of the records; what they take beyond that,
    /// for leases and delays, or because few messages are left of many, counts by itself.
    pub fn total_weight(&self) -> u64 {
        match self.presence {
            Presence::There => {}
            Presence::Dropped => return 0,
            Presence::Kept => return self.consumers.weight() + EMPTY,
        }
        let scheduler = &self.scheduler;
        let of_messages = scheduler.unsettled() * put::OVERHEAD
            + scheduler.edges() as u64 * u64::from(put::KEY_OVERHEAD);
        let records = self.structure.saturating_sub(of_messages) + scheduler.kept_bytes() as u64;
        let kept = self.results.len() as u64 * KEPT_OVERHEAD + self.results.bytes;
        let told = kept + self.consumers.weight() + self.waiting.weight();
        self.weight + told + records + EMPTY
    }

    /// Looks at what the records take, now and then: seldom enough to cost nothing, often enough for one
    /// that is called a few times.
    #[inline]
    pub fn called(&mut self) {
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(CALLS) || self.calls < CALLS && self.calls.is_power_of_two() {
            self.measure();
        }
    }

    #[cold]
    pub fn measure(&mut self) {
        self.structure = self.scheduler.structure() as u64;
    }

    /// Replaces another queue of the same name, and takes over its memory accounting.
    pub fn instead_of(self, old: &mut Queue) -> Queue {
        let accounts = std::mem::take(&mut old.accounts);
        let Queue { counted, alarm, idle, .. } = *old;
        let mut queue = Queue { counted, alarm, accounts, idle, ..self };
        queue.scheduler.set_rules(old.scheduler.rules());
        queue
    }

    /// Counts dead letters that were too old no longer.
    #[inline]
    pub fn drop_expired_dead(&mut self) {
        if self.scheduler.has_expired_dead() {
            for body in self.scheduler.take_expired_dead() {
                self.weight -= body.weight();
            }
        }
    }

    /// Messages were cancelled because of others (clause 31).
    #[inline(always)]
    pub fn note_cancelled(&mut self) {
        if self.scheduler.has_cancelled() {
            self.note_each_cancelled();
        }
    }

    #[cold]
    fn note_each_cancelled(&mut self) {
        for (id, body) in self.scheduler.take_cancelled() {
            self.gone(id, body, End::Cancelled, b"");
        }
    }

    #[inline]
    pub fn is_dropped(&self) -> bool {
        self.presence != Presence::There
    }

    #[inline]
    pub fn is_durable(&self) -> bool {
        self.declared.durability != Durability::None
    }

    /// Applies what is due at the time of a call.
    #[inline]
    pub fn begin(&mut self, cx: &mut Context<'_>) {
        if cx.replays {
            self.scheduler.pass(cx.now);
            self.results.forget_old(cx.now, 1000);
            return;
        }
        if self.watch.is_some() {
            self.look_at_watch(cx.shared, cx.now);
        }
        let (due, budget) = self.scheduler.start(cx.now);
        self.budget = budget;
        self.drop_expired_dead();
        self.note_cancelled();
        if self.results.forget_old(cx.now, 1000) || due {
            cx.record(self, Recorded::Tick, &[]);
        }
        if !self.waiting.is_empty() {
            self.serve(cx);
        }
    }
}
