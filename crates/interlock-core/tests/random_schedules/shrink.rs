//! Makes a failing plan small: fewer calls, plainer puts, plainer options, less time.
//!
//! A step is kept if the smaller plan still goes wrong, in whatever way; each round ends sooner
//! than the one before, so it stops when a whole round has changed nothing.

use std::marker::PhantomData;

use interlock_core::queue::schedules::trace::{Call, PutCall};
use interlock_core::queue::types::limits::{Limits, Weights};
use interlock_core::queue::types::options::NUMBERS;
use interlock_core::queue::types::{Behind, Kind, Options};

use crate::schedule::{Mismatch, Plan, Subject};
use crate::tried::TRIED;

/// The smallest plan found, and how it goes wrong; `None` if the plan does not.
pub fn shrink<S: Subject>(plan: &Plan) -> Option<(Plan, Box<Mismatch>)> {
    let mismatch = plan.run::<S>().err()?;
    let mut smallest = Smallest::<S> { plan: plan.clone(), mismatch, subject: PhantomData };
    smallest.cut_end();
    loop {
        let before = format!("{}", smallest.mismatch.schedule);
        smallest.delete_calls();
        smallest.simplify_calls();
        smallest.simplify_options();
        smallest.stop_time();
        if format!("{}", smallest.mismatch.schedule) == before {
            return Some((smallest.plan, smallest.mismatch));
        }
    }
}

struct Smallest<S> {
    plan: Plan,
    mismatch: Box<Mismatch>,
    subject: PhantomData<S>,
}

impl<S: Subject> Smallest<S> {
    fn try_plan(&mut self, plan: Plan) -> bool {
        let Err(mismatch) = plan.run::<S>() else {
            return false;
        };
        self.plan = plan;
        self.mismatch = mismatch;
        self.cut_end();
        true
    }

    /// Nothing after the wrong answer matters.
    fn cut_end(&mut self) {
        self.plan.calls.truncate(self.mismatch.schedule.steps.len());
    }

    /// Runs of calls, long ones first, from the end.
    fn delete_calls(&mut self) {
        let mut run = (self.plan.calls.len() / 2).max(1);
        loop {
            let mut end = self.plan.calls.len();
            while end > 0 {
                let start = end.saturating_sub(run);
                let mut plan = self.plan.clone();
                plan.calls.drain(start..end);
                self.try_plan(plan);
                end = start.min(self.plan.calls.len());
            }
            if run == 1 {
                return;
            }
            run /= 2;
        }
    }

    fn simplify_calls(&mut self) {
        let mut at = 0;
        while at < self.plan.calls.len() {
            let mut candidate = 0;
            // A simpler call has other candidates, so the count starts anew.
            while at < self.plan.calls.len() {
                let simpler = simpler_calls(&self.plan.calls[at].call);
                let Some(call) = simpler.into_iter().nth(candidate) else {
                    break;
                };
                let mut plan = self.plan.clone();
                plan.calls[at].call = call;
                candidate = if self.try_plan(plan) { 0 } else { candidate + 1 };
            }
            at += 1;
        }
    }

    fn simplify_options(&mut self) {
        let mut changes: Vec<Change> = vec![
            Box::new(|options| options.max_messages = 0),
            Box::new(|options| options.max_bytes = 0),
            Box::new(|options| options.lease = None),
            Box::new(|options| options.retry.attempts = None),
            Box::new(|options| options.retry.first = 0),
            Box::new(|options| options.retry.factor = 1.0),
            Box::new(|options| options.limits = Limits::default()),
            Box::new(|options| options.weights = Weights::default()),
            Box::new(|options| options.behind = Behind::Wait),
        ];
        for (one, tried) in NUMBERS.iter().zip(TRIED) {
            changes.push(Box::new(|options| _ = (one.set)(options, tried[0])));
        }
        for change in changes {
            let mut plan = self.plan.clone();
            change(&mut plan.options);
            if plan.options != self.plan.options {
                self.try_plan(plan);
            }
        }
    }

    /// Lets everything begin at 1 (clocks never read 0), then removes every wait that is not
    /// needed.
    fn stop_time(&mut self) {
        let start = self.plan.calls.iter().map(|planned| planned.now).min().unwrap_or(0);
        self.move_back(0, start.saturating_sub(1));
        for at in 1..self.plan.calls.len() {
            if at >= self.plan.calls.len() {
                return;
            }
            let (before, now) = (self.plan.calls[at - 1].now, self.plan.calls[at].now);
            if now > before && !self.move_back(at, now - before) && now > before + 1 {
                self.move_back(at, now - before - 1);
            }
        }
    }

    fn move_back(&mut self, from: usize, by: u64) -> bool {
        if by == 0 {
            return false;
        }
        let mut plan = self.plan.clone();
        for planned in &mut plan.calls[from..] {
            planned.now = planned.now.saturating_sub(by);
        }
        self.try_plan(plan)
    }
}

type Change = Box<dyn Fn(&mut Options)>;

/// Calls that say less than this one; each is smaller, so that simplifying ends.
fn simpler_calls(call: &Call) -> Vec<Call> {
    match call {
        Call::Put(put) => simpler_puts(put).into_iter().map(Call::Put).collect(),
        Call::PutMany(puts) => {
            let mut calls: Vec<Call> = Vec::new();
            if let [put] = puts.as_slice() {
                calls.push(Call::Put(put.clone()));
            }
            for at in 0..puts.len() {
                let mut fewer = puts.clone();
                fewer.remove(at);
                calls.push(Call::PutMany(fewer));
            }
            for (at, put) in puts.iter().enumerate() {
                for simpler in simpler_puts(put) {
                    let mut puts = puts.clone();
                    puts[at] = simpler;
                    calls.push(Call::PutMany(puts));
                }
            }
            calls
        }
        Call::Lease { kind, limit } => {
            let mut calls = Vec::new();
            if *kind != Kind::Any {
                calls.push(Call::Lease { kind: Kind::Any, limit: *limit });
            }
            if *limit > 1 {
                calls.push(Call::Lease { kind: *kind, limit: 1 });
            }
            calls
        }
        Call::Nack { token, delay, error } => {
            let mut calls = Vec::new();
            if delay.is_some() {
                calls.push(Call::Nack { token: *token, delay: None, error: error.clone() });
            }
            if !error.is_empty() {
                calls.push(Call::Nack { token: *token, delay: *delay, error: String::new() });
            }
            calls
        }
        Call::Reject { token, reason } if !reason.is_empty() => {
            vec![Call::Reject { token: *token, reason: String::new() }]
        }
        Call::Exhaust { token, error } if !error.is_empty() => {
            vec![Call::Exhaust { token: *token, error: String::new() }]
        }
        _ => Vec::new(),
    }
}

fn simpler_puts(put: &PutCall) -> Vec<PutCall> {
    let mut puts = Vec::new();
    let mut offer = |change: &dyn Fn(&mut PutCall)| {
        let mut simpler = put.clone();
        change(&mut simpler);
        if simpler != *put {
            puts.push(simpler);
        }
    };
    offer(&|put| put.priority = 0);
    offer(&|put| put.delay = 0);
    offer(&|put| put.dedup = None);
    offer(&|put| put.barrier = false);
    offer(&|put| put.size = 0);
    offer(&|put| put.group.clear());
    offer(&|put| put.behind = None);
    for at in 0..put.limit.len() {
        offer(&|put| drop(put.limit.remove(at)));
    }
    for at in 0..put.keys.len() {
        offer(&|put| drop(put.keys.remove(at)));
    }
    for at in 0..put.shared.len() {
        offer(&|put| drop(put.shared.remove(at)));
    }
    puts
}
