//! A schedule as it is generated and shrunk, and the run that compares every answer.
//!
//! A planned call names a lease or a message by the call that gave it ("the second grant of the
//! call labelled 17"), never by its token or id: whatever shrinking takes away, the rest keeps
//! its meaning, and what was given by a call that is gone is simply unknown.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use interlock_core::queue::schedules::trace::{Answer, Call, Runner, Step};
use interlock_core::queue::schedules::trace_text::Schedule;
use interlock_core::queue::types::rules::Rules;
use interlock_core::queue::types::{Options, Time};

use crate::audit::Audit;
use crate::compare::differ;
use crate::model::Model;

/// Whatever is held against the model.
pub trait Subject {
    /// Messages that one call moves behind a failure, and their keys (clause 31).
    const MOST_MOVED: (u32, u32) = (1_000, 4_096);

    fn new(options: Options) -> Self;
    fn apply(&mut self, step: &Step) -> Answer;
}

impl Subject for Runner {
    fn new(options: Options) -> Self {
        Runner::new(options)
    }

    fn apply(&mut self, step: &Step) -> Answer {
        Runner::apply(self, step)
    }
}

/// The `at`-th thing (id or token) that the call labelled `label` gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub label: usize,
    pub at: usize,
}

#[derive(Clone, Debug)]
pub struct Planned {
    pub label: usize,
    pub now: Time,
    /// Its token or id is a placeholder where `about` says which one is meant.
    pub call: Call,
    pub about: Option<Given>,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub options: Options,
    pub calls: Vec<Planned>,
}

impl Plan {
    /// A schedule read from a file: tokens and ids stay as they are.
    pub fn from_schedule(schedule: Schedule) -> Self {
        let planned = |(label, step): (usize, Step)| Planned {
            label,
            now: step.now,
            call: step.call,
            about: None,
        };
        let calls = schedule.steps.into_iter().enumerate().map(planned).collect();
        Plan { options: schedule.options, calls }
    }

    /// Runs it to its end or to the first answer that is wrong.
    pub fn run<S: Subject>(&self) -> Result<(), Box<Mismatch>> {
        let mut pair = Pair::<S>::new(self.options.clone());
        let mut steps = Vec::new();
        for planned in &self.calls {
            let step = pair.resolve(planned);
            steps.push(step.clone());
            if let Err(what) = pair.apply(planned.label, &step) {
                let (options, rules) = (self.options.clone(), Rules::current());
                let schedule = Schedule { options, rules, steps };
                return Err(Box::new(Mismatch { schedule, what }));
            }
        }
        Ok(())
    }
}

/// A schedule whose last call was answered wrongly.
#[derive(Debug)]
pub struct Mismatch {
    pub schedule: Schedule,
    pub what: String,
}

/// Subject and model side by side, and what the calls so far gave.
pub struct Pair<S> {
    subject: S,
    pub model: Model,
    audit: Audit,
    given: Vec<Vec<u64>>,
}

impl<S: Subject> Pair<S> {
    pub fn new(options: Options) -> Self {
        let mut model = Model::new(options.clone());
        model.most_moved = S::MOST_MOVED;
        Pair {
            subject: S::new(options.clone()),
            model,
            audit: Audit::new(options),
            given: Vec::new(),
        }
    }

    /// The call with its token or id in place; 0 where it is unknown.
    pub fn resolve(&self, planned: &Planned) -> Step {
        let mut call = planned.call.clone();
        if let Some(Given { label, at }) = planned.about {
            let number = self.given.get(label).and_then(|given| given.get(at));
            *number_of(&mut call).expect("only what takes a number is about one") =
                number.copied().unwrap_or(0);
        }
        Step { now: planned.now, call }
    }

    /// Gives the answer, if model and audit agree to it.
    pub fn apply(&mut self, label: usize, step: &Step) -> Result<Answer, String> {
        let expected = self.model.apply(step);
        // A panic is a wrong answer too, and shrinks like one.
        let answer = quietly(|| self.subject.apply(step))?;
        if let Some(what) = differ(&self.model, step, &expected, &answer) {
            return Err(what);
        }
        self.audit.observe(step, &answer)?;
        let numbers = match &answer {
            Answer::Put(puts) => puts.iter().map(|put| put.id).collect(),
            Answer::Leased(granted) => granted.iter().map(|grant| grant.token).collect(),
            Answer::Id(Some(id)) => vec![*id],
            _ => Vec::new(),
        };
        if !numbers.is_empty() {
            self.given.resize(self.given.len().max(label + 1), Vec::new());
            self.given[label] = numbers;
        }
        Ok(answer)
    }
}

/// The token or id that a call takes.
pub fn number_of(call: &mut Call) -> Option<&mut u64> {
    match call {
        Call::Ack { token }
        | Call::Nack { token, .. }
        | Call::Reject { token, .. }
        | Call::Exhaust { token, .. }
        | Call::Release { token }
        | Call::Defer { token, .. }
        | Call::Extend { token, .. } => Some(token),
        Call::Cancel { id }
        | Call::Revoke { id, .. }
        | Call::Retry { id }
        | Call::Skip { id }
        | Call::Bury { id }
        | Call::Requeue { id }
        | Call::Discard { id }
        | Call::Explain { id, .. } => Some(id),
        _ => None,
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// A panic as an error; shrinking meets the same one many times, so nothing is printed of it.
fn quietly<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    QUIET.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    QUIET.set(false);
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("panicked: {}", text.unwrap_or("without a word"))
    })
}
