//! One queue: the scheduler, and what the wire keeps beside it.

use interlock_core::queue::scheduler::{Budget, Grant, Scheduler};
use interlock_core::queue::types::Time;

use crate::consumers::Consumers;
use crate::declare::{Declared, Durability};
use crate::results::{End, Results};
use crate::room::Payload;
use crate::shared::Context;
use crate::waiting::Waiting;

/// What a message carries through the scheduler.
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

/// Bytes that a queue takes without anything in it, and that a result or a dedup string takes, about.
const EMPTY: u64 = 4096;
const KEPT_OVERHEAD: u64 = 200;

pub struct Queue {
    pub name: Box<[u8]>,
    pub scheduler: Scheduler<Body>,
    pub declared: Declared,
    /// Whether somebody has declared it.
    pub is_declared: bool,
    pub sealed: bool,
    /// Nobody's: it was dropped, or is not there and only looked at.
    pub dropped: bool,
    /// And a journal knows what is kept of it.
    pub in_journal: bool,
    pub consumers: Consumers,
    pub results: Results,
    pub waiting: Waiting,
    /// Bytes of all messages and dead letters, about.
    pub weight: u64,
    /// What the call under way may ready, beside what was due (clause 21).
    pub budget: Budget,
    /// Somebody who waited has gone, and those behind may be served.
    pub restless: bool,
    /// When this queue asks to be ticked; `Time::MAX`: never.
    pub alarm: Time,
    /// What of its weight is counted among that of all queues.
    pub counted: u64,
    /// Kept for their room.
    pub grants: Vec<Grant>,
}

impl Queue {
    pub fn new(name: &[u8], durability: Durability) -> Self {
        let declared = Declared::default_of(durability);
        Queue {
            name: name.into(),
            scheduler: Scheduler::by_time(declared.options(), |body: &Body| body.data.len() as u64),
            results: Results::new(declared.results),
            declared,
            is_declared: false,
            sealed: false,
            dropped: false,
            in_journal: false,
            consumers: Consumers::default(),
            waiting: Waiting::default(),
            weight: 0,
            budget: Budget::ONE_CALL,
            restless: false,
            alarm: Time::MAX,
            counted: 0,
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

    /// Bytes it takes, about.
    pub fn total_weight(&self) -> u64 {
        let kept = (self.results.len() + self.scheduler.dedup_strings()) as u64 * KEPT_OVERHEAD;
        let told = self.results.bytes + self.consumers.weight() + self.waiting.bytes;
        self.weight + told + kept + EMPTY
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
        let (due, budget) = self.scheduler.start(cx.now);
        self.budget = budget;
        if self.results.forget_old(cx.now, 1000) || due {
            cx.record(self, "tick", &[]);
        }
        if !self.waiting.is_empty() {
            self.serve(cx);
        }
    }
}
