//! Deliberate breaks: queues that break one clause each. The random schedules must find every
//! one and shrink it to a few calls, or they would not find such a mistake in the scheduler.

use std::marker::PhantomData;

use interlock_core::queue::schedules::trace::{Answer, Call, PutCall, Step};
use interlock_core::queue::types::{Kind, Options};

use crate::audit::Audit;
use crate::generate::run_one;
use crate::model::{Message, Model, Phase};
use crate::schedule::{Pair, Subject};
use crate::shrink::shrink;
use crate::tally::Tally;

/// Schedules in which a break must be found.
const SCHEDULES: u64 = 2_000;
/// Calls that suffice to show any of the breaks.
const FEW: usize = 8;

trait Break {
    /// Changes the calls before the queue gets them.
    fn told(_call: &mut Call) {}

    /// Takes messages out of the queue's sight while it grants.
    fn overlooked(_message: &Message) -> bool {
        false
    }

    /// Changes what the queue says.
    fn said(_call: &Call, _answer: &mut Answer) {}
}

/// The model, but for one break.
struct Broken<B> {
    model: Model,
    kind: PhantomData<B>,
}

impl<B: Break> Subject for Broken<B> {
    fn new(options: Options) -> Self {
        Broken { model: Model::new(options), kind: PhantomData }
    }

    fn apply(&mut self, step: &Step) -> Answer {
        let mut step = step.clone();
        B::told(&mut step.call);
        let granting = matches!(step.call, Call::Lease { .. });
        if granting {
            // What falls due must do so before anything is overlooked.
            self.model.apply(&Step { now: step.now, call: Call::Tick });
        }
        let (mut overlooked, mut kept) = (Vec::new(), Vec::new());
        for (at, message) in std::mem::take(&mut self.model.placed).into_iter().enumerate() {
            if granting && B::overlooked(&message) {
                overlooked.push((at, message));
            } else {
                kept.push(message);
            }
        }
        self.model.placed = kept;
        let mut answer = self.model.apply(&step);
        for (at, message) in overlooked {
            self.model.placed.insert(at, message);
        }
        B::said(&step.call, &mut answer);
        answer
    }
}

impl Subject for Model {
    fn new(options: Options) -> Self {
        Model::new(options)
    }

    fn apply(&mut self, step: &Step) -> Answer {
        Model::apply(self, step)
    }
}

fn puts(call: &mut Call) -> &mut [PutCall] {
    match call {
        Call::Put(put) => std::slice::from_mut(put),
        Call::PutMany(puts) => puts,
        _ => &mut [],
    }
}

macro_rules! breaks {
    ($($(#[doc = $doc:literal])* $name:ident { $($body:tt)* })*) => {
        $(
            $(#[doc = $doc])*
            struct $name;
            impl Break for $name { $($body)* }
        )*

        #[test]
        fn every_deliberate_fault_is_found_and_shrunk_to_a_few_calls() {
            $(found::<$name>(stringify!($name));)*
        }
    };
}

breaks! {
    /// Clause 3: what backs off keeps its place, but not its lanes.
    BackoffOvertaken {
        fn overlooked(message: &Message) -> bool {
            matches!(message.phase, Phase::BackingOff { .. })
        }
    }
    /// Clause 10: what is held does not close its lanes.
    HeldOvertaken {
        fn overlooked(message: &Message) -> bool {
            message.phase == Phase::Held
        }
    }
    /// Clause 2: a lease closes nothing.
    LeaseForgotten {
        fn overlooked(message: &Message) -> bool {
            matches!(message.phase, Phase::Leased { .. })
        }
    }
    /// Clause 14.
    BarrierPassed {
        fn told(call: &mut Call) {
            puts(call).iter_mut().for_each(|put| put.barrier = false);
        }
    }
    /// Clause 2: a key held alone is shared.
    ExclusiveIsShared {
        fn told(call: &mut Call) {
            puts(call).iter_mut().for_each(|put| put.shared.append(&mut put.keys));
        }
    }
    /// Clause 5: readers wait for readers.
    SharedIsExclusive {
        fn told(call: &mut Call) {
            puts(call).iter_mut().for_each(|put| put.keys.append(&mut put.shared));
        }
    }
    /// Clause 4: of several keys the last is forgotten.
    LastKeyForgotten {
        fn told(call: &mut Call) {
            for put in puts(call).iter_mut().filter(|put| put.keys.len() > 1) {
                put.keys.pop();
            }
        }
    }
    /// Clause 29: the name is a key, and replaces nothing.
    NothingReplaced {
        fn told(call: &mut Call) {
            puts(call).iter_mut().for_each(|put| put.keys.splice(..0, put.coalesce.take()).for_each(drop));
        }
    }
    /// Clause 29.
    DebounceForgotten {
        fn told(call: &mut Call) {
            puts(call).iter_mut().for_each(|put| put.debounce = 0);
        }
    }
    /// Clause 29: a debounce has no end.
    LatestForgotten {
        fn told(call: &mut Call) {
            puts(call).iter_mut().for_each(|put| put.within = 0);
        }
    }
    /// Clause 6.
    PriorityForgotten {
        fn told(call: &mut Call) {
            puts(call).iter_mut().for_each(|put| put.priority = 0);
        }
    }
    /// Clause 7.
    KindForgotten {
        fn told(call: &mut Call) {
            if let Call::Lease { kind, .. } = call {
                *kind = Kind::Any;
            }
        }
    }
    /// Clause 8: any token settles.
    TokenIgnored {
        fn said(call: &Call, answer: &mut Answer) {
            if matches!(call, Call::Ack { .. }) {
                *answer = Answer::Done;
            }
        }
    }
    /// Clause 8: a lease is not extended.
    ExtendForgotten {
        fn told(call: &mut Call) {
            if matches!(call, Call::Extend { .. }) {
                *call = Call::Tick;
            }
        }
    }
    /// Clause 9: a nack gives no attempt away.
    NackIsRelease {
        fn told(call: &mut Call) {
            if let Call::Nack { token, .. } = *call {
                *call = Call::Release { token };
            }
        }
    }
    /// Clause 11.
    SizeForgotten {
        fn told(call: &mut Call) {
            puts(call).iter_mut().for_each(|put| put.size = 0);
        }
    }
    /// Clause 12.
    DelayForgotten {
        fn told(call: &mut Call) {
            puts(call).iter_mut().for_each(|put| put.delay = 0);
        }
    }
    /// Clause 13.
    DedupForgotten {
        fn told(call: &mut Call) {
            puts(call).iter_mut().for_each(|put| put.dedup = None);
        }
    }
    /// Clause 22: the messages of a paused key are delivered.
    PauseForgotten {
        fn told(call: &mut Call) {
            if let Call::Pause { key: key @ Some(_) } = call {
                *key = Some(b"no such key".to_vec());
            }
        }
    }
}

fn found<B: Break>(name: &str) {
    let mut longer = Vec::new();
    for seed in 0..SCHEDULES {
        let (plan, result) = run_one::<Broken<B>>(seed, &mut Tally::default());
        if result.is_ok() {
            continue;
        }
        let (smaller, mismatch) = shrink::<Broken<B>>(&plan).expect("what goes wrong does again");
        if smaller.calls.len() <= FEW {
            return;
        }
        // Leaving calls out one after the other may end at a longer way to show it.
        longer.push(mismatch.schedule.to_string());
        assert!(longer.len() < 4, "{name} in more than {FEW} calls:\n{}", longer.join("\n"));
    }
    panic!("{name} was not found in {SCHEDULES} schedules");
}

#[test]
fn the_audit_alone_finds_faults_of_order_and_exclusion() {
    assert!(audited::<Broken<BackoffOvertaken>>("clauses 1, 3"));
    assert!(audited::<Broken<LeaseForgotten>>("clause 2"));
    assert!(audited::<Broken<BarrierPassed>>("clause"));
    assert!(audited::<Broken<ExclusiveIsShared>>("clause"));
    assert!(audited::<Broken<LastKeyForgotten>>("clause"));
    assert!(audited::<Broken<TokenIgnored>>("clause 8"));
    assert!(audited::<Broken<DelayForgotten>>("clause 12"));
}

/// Returns whether the audit reports this of a broken queue, without the model. Its first report
/// about a schedule may be a consequence of the fault.
fn audited<S: Subject>(said: &str) -> bool {
    for seed in 0..SCHEDULES {
        let (plan, result) = run_one::<Model>(seed, &mut Tally::default());
        result.expect("the model answers as the model does");
        // The model's own run says which token and id each call means.
        let mut names = Pair::<Model>::new(plan.options.clone());
        let mut subject = S::new(plan.options.clone());
        let mut audit = Audit::new(plan.options.clone());
        for planned in &plan.calls {
            let step = names.resolve(planned);
            names.apply(planned.label, &step).expect("the model answers as the model does");
            if let Err(what) = audit.observe(&step, &subject.apply(&step)) {
                if what.contains(said) {
                    return true;
                }
                break;
            }
        }
    }
    false
}
