//! Real threads on one queue, for as long as `INTERLOCK_STRESS_SECONDS` says (5 by default).
//!
//! In rounds: producers put messages with keys, shared keys, barriers, delays and priorities; consumers
//! handle them, let some fail, give some back; an operator pauses, cancels and asks. Overlap of what
//! conflicts is detected in two ways that share nothing:
//!
//! 1. while it runs, by a flag for each key that a handler takes and gives back (`witness`);
//! 2. afterwards, from the times at which each handling began and ended (`check`), by the rules of
//!    the contract: order, exclusion, no overtaking.
//!
//! A second kind of round lets leases run out and be revoked under their handlers; there only what was
//! settled in time is held to the rules, and tokens must rise.
//!
//! | variable | meaning |
//! |---|---|
//! | `INTERLOCK_STRESS_SECONDS` | how long each of the two tests runs |
//! | `INTERLOCK_SEED` | the seed of the messages; without it a new one each run, printed |

#![cfg(not(shuttle))]

use std::env;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;

use crate::round::{Round, Totals};

mod check;
mod round;
mod spec;
mod threads;
mod witness;

#[test]
fn conflicting_messages_are_handled_in_order_and_never_overlap() {
    let totals = run(Round::lasting);
    assert!(totals.retried > 0 && totals.cancelled > 0 && totals.rejected > 0, "{totals:?}");
}

#[test]
fn leases_that_expire_during_their_handlers_settle_nothing() {
    let totals = run(Round::ending);
    assert!(totals.lost > 0, "{totals:?}");
}

fn run(round: fn(&mut Rng) -> Round) -> Totals {
    let number = |name: &str| env::var(name).ok().map(|n| n.parse().expect("a whole number"));
    let length = Duration::from_secs(number("INTERLOCK_STRESS_SECONDS").unwrap_or(5));
    let seed = number("INTERLOCK_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
        now.as_nanos() as u64
    });
    let mut rng = Rng::with_seed(seed);
    let mut totals = Totals::default();
    let start = Instant::now();
    while totals.rounds == 0 || start.elapsed() < length {
        let round = round(&mut rng);
        println!("INTERLOCK_SEED={seed}, round {}: {round:?}", totals.rounds);
        totals.add(round.run());
    }
    println!("{totals:?}, nothing out of order, nothing at the same time");
    totals
}
