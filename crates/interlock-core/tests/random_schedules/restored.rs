//! Dump and restore: what is restored must answer every further call as what was dumped does, and
//! both as the model does.

use fastrand::Rng;
use interlock_core::queue::schedules::trace::{Answer, Runner, Step};
use interlock_core::queue::schedules::trace_text::Schedule;
use interlock_core::queue::types::Options;

use crate::generate::run_one;
use crate::schedule::Subject;
use crate::shrink::shrink;
use crate::tally::Tally;

const SCHEDULES: u64 = if cfg!(debug_assertions) { 1_000 } else { 10_000 };

/// A scheduler that was never dumped, and one that now and then is restored from a dump of it.
struct Twins<const MOVES: u32, const KEYS: u32> {
    original: Runner,
    restored: Runner,
    /// One seed for all: a plan is run many times while it is shrunk.
    rng: Rng,
}

impl<const MOVES: u32, const KEYS: u32> Subject for Twins<MOVES, KEYS> {
    const MOST_MOVED: (u32, u32) = (MOVES, KEYS);

    fn new(options: Options) -> Self {
        let runner = || Runner::new(options.clone()).moving(Self::MOST_MOVED);
        Twins { original: runner(), restored: runner(), rng: Rng::with_seed(3) }
    }

    fn apply(&mut self, step: &Step) -> Answer {
        match self.rng.u32(0..8) {
            0 => self.restored = self.original.restored().expect("a dump is read"),
            // What is restored of something restored.
            1 => self.restored = self.restored.restored().expect("a dump is read"),
            _ => {}
        }
        let (original, restored) = (self.original.apply(step), self.restored.apply(step));
        // Of what a barrier waits for a scheduler may name whom it likes: the model knows what is right.
        let free = matches!(original, Answer::Explained(_));
        assert!(free || original == restored, "dumped {original:?}\n   restored {restored:?}");
        restored
    }
}

#[test]
fn a_restored_queue_answers_like_the_dumped_one() {
    run::<Twins<1_000, 4_096>>(SCHEDULES);
}

/// Calls move few messages behind a failure here, so that nearly each leaves something to the next.
#[test]
fn a_queue_restored_while_messages_are_moved_answers_like_the_dumped_one() {
    run::<Twins<1, 4_096>>(SCHEDULES / 2);
    run::<Twins<3, 4>>(SCHEDULES / 2);
}

fn run<S: Subject>(schedules: u64) {
    let mut seeds = Rng::with_seed(crate::number("INTERLOCK_SEED").unwrap_or(5));
    for _ in 0..schedules {
        let (plan, result) = run_one::<S>(seeds.u64(..), &mut Tally::default());
        if let Err(what) = result {
            let shrunk = shrink::<S>(&plan);
            panic!("{}", shrunk.map_or(what, |(_, mismatch)| crate::report(&mismatch)));
        }
    }
}

#[test]
fn work_left_for_the_next_call_is_kept_by_dump_and_restore() {
    // More of each than one call may do; the model knows no such limit, so the twins are alone.
    let readers = "1 put keys=a\n1 lease limit=1\n".to_owned()
        + &"1 put shared=a\n".repeat(2_500)
        + "2 ack token=1\n2 stats\n"
        + &"2 lease limit=400\n2 stats\n".repeat(9);
    let gates = "1 put barrier=true\n1 lease limit=1\n".to_owned()
        + &"1 put keys=a,b\n1 put\n1 put keys=c delay=3\n".repeat(1_700)
        + "1 cancel id=2103\n2 ack token=1\n4 stats\n"
        + &"4 lease limit=300\n4 stats\n".repeat(9);
    let parked = "1 put keys=a\n1 put shared=b,c\n1 pause key=b\n".to_owned()
        + &"2 put shared=b\n2 put shared=c\n2 put\n".repeat(2_600)
        + "2 lease limit=2000\n2 cancel id=6\n2 resume key=b\n2 stats\n"
        + &"2 lease limit=300\n2 stats\n".repeat(9);
    for text in [readers, gates, parked] {
        let schedule: Schedule = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let mut twins = Twins::<1_000, 4_096>::new(schedule.options);
        let mut leased = Vec::new();
        let puts = schedule.steps.len() - 25;
        for (n, step) in schedule.steps.iter().enumerate() {
            if n >= puts {
                twins.restored = twins.original.restored().expect("a dump is read");
            }
            if let Answer::Leased(granted) = twins.apply(step) {
                leased.push(granted.len());
            }
        }
        let most = *leased.iter().max().expect("leases");
        assert!(leased[leased.len() - 1] < most, "all came out: {leased:?}");
    }
}
