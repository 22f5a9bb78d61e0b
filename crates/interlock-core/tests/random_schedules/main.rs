//! Random schedules against a naive model, written from the contract and never from the scheduler.
//!
//! | variable | meaning |
//! |---|---|
//! | `INTERLOCK_SEED` | the seed; without it a new one each run, printed |
//! | `INTERLOCK_OPS` | calls in all; 10,000,000, or 200,000 in a debug build |
//! | `INTERLOCK_SCHEDULE` | a file with a schedule, to be replayed instead |
//!
//! | module | what it holds |
//! |---|---|
//! | `model`, `due`, `operate`, `limits`, `groups`, `coalesce`, `behind`, `explain` | the contract as scans over one list |
//! | `audit` | order and exclusion seen from the answers alone |
//! | `compare` | when two answers are the same, and what is masked |
//! | `schedule` | plans, and the run of scheduler and model side by side |
//! | `generate`, `mix` | making plans |
//! | `shrink` | making them small |
//! | `tally` | what the schedules met, so that nothing is left out unseen |
//! | `broken` | deliberate breaks, each of which must be found |
//! | `restored` | a scheduler beside what its dump is restored to |
//! | `edges` | schedules that chance would not find |

use std::env;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use interlock_core::queue::schedules::trace::Runner;

use crate::schedule::{Mismatch, Plan};
use crate::tally::Tally;

mod audit;
mod behind;
mod broken;
mod coalesce;
mod compare;
mod due;
mod edges;
mod explain;
mod generate;
mod groups;
mod limits;
mod mix;
mod model;
mod operate;
mod restored;
mod schedule;
mod shrink;
mod tally;
mod tried;

const OPERATIONS: usize = if cfg!(debug_assertions) { 200_000 } else { 10_000_000 };

#[test]
fn every_schedule_is_answered_as_the_model_answers_it() {
    if let Some(path) = env::var_os("INTERLOCK_SCHEDULE") {
        let text = fs::read_to_string(&path).expect("INTERLOCK_SCHEDULE names a file");
        let schedule = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Err(mismatch) = Plan::from_schedule(schedule).run::<Runner>() {
            panic!("{}", report(&mismatch));
        }
        return;
    }
    let seed = number("INTERLOCK_SEED").unwrap_or_else(new_seed);
    let wanted = number("INTERLOCK_OPS").map_or(OPERATIONS, |operations| operations as usize);
    println!("INTERLOCK_SEED={seed}, {wanted} operations");
    let mut seeds = fastrand::Rng::with_seed(seed);
    let mut tally = Tally::default();
    let (mut done, mut schedules) = (0, 0);
    while done < wanted {
        let (plan, result) = generate::run_one::<Runner>(seeds.u64(..), &mut tally);
        if let Err(what) = result {
            let text = shrink::shrink::<Runner>(&plan).map_or_else(
                || format!("{what}\nbut not again: the answers are not a pure function"),
                |(_, mismatch)| report(&mismatch),
            );
            panic!("INTERLOCK_SEED={seed}, schedule {schedules}, {done} operations in:\n{text}");
        }
        done += plan.calls.len();
        schedules += 1;
    }
    println!("{done} operations in {schedules} schedules, every answer as the model's");
    if wanted >= tally::ENOUGH {
        assert_eq!(tally.missing(), Vec::<&str>::new(), "never met with INTERLOCK_SEED={seed}");
    }
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}; allowed: a whole number")))
}

fn new_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    since.as_nanos() as u64
}

/// Returns the text to save in a file and give as `INTERLOCK_SCHEDULE`.
fn report(Mismatch { schedule, what }: &Mismatch) -> String {
    let what = what.replace('\n', "\n# ");
    format!("{schedule}# the last call: {what}\n")
}
