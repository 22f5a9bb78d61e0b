//! The time it takes to say why a message waits, with a million pending.

use std::time::Instant;

use interlock_core::key::KeyRef;
use interlock_core::queue::types::Options;
use interlock_core::queue::Queue;

use crate::cycle::{names, put};
use crate::sample::Sample;

const MILLION: u64 = 1_000_000;
const LIMIT: usize = 100;
const ASKED: u64 = 20;
const TIMES: usize = 5;

/// The slowest of twenty messages, from the second to the last, and of a whole key: once all on one
/// hot key, once with four of 1,000 keys each, so that every one waits for others through others.
/// Milliseconds, each the best of five, for an interruption is not what is asked about.
pub fn slowest() -> Sample {
    let names = names(1_000);
    let mut slowest = 0.0_f64;
    let mut missing = 0;
    for keys in [1, 4] {
        let queue = Queue::new(Options::default());
        let mut ids = Vec::with_capacity(MILLION as usize);
        for number in 0..MILLION {
            let held: Vec<KeyRef<'_>> = (0..keys)
                .map(|step| (number as usize * (keys - 1) + step * 251) % names.len())
                .map(|key| KeyRef::new(names[key].as_bytes()))
                .collect();
            ids.push(put(&queue, &held, number));
        }
        for asked in 1..=ASKED {
            let id = ids[(asked * (MILLION / ASKED) - 1) as usize];
            let (nodes, milliseconds) = best(|| {
                let found = queue.call(|scheduler, now| scheduler.explain(now, id, LIMIT));
                found.map_or(0, |found| found.nodes.len())
            });
            // A message that waits has at least one other to name.
            missing += u64::from(nodes < 2);
            slowest = slowest.max(milliseconds);
        }
        let key = KeyRef::new(names[0].as_bytes());
        let (nodes, milliseconds) = best(|| {
            let found = queue.call(|scheduler, now| scheduler.explain_key(now, key, LIMIT));
            found.map_or(0, |found| found.nodes.len())
        });
        missing += u64::from(nodes != LIMIT);
        slowest = slowest.max(milliseconds);
    }
    Sample { value: slowest, messages: MILLION, lost: missing, misordered: 0 }
}

fn best(call: impl Fn() -> usize) -> (usize, f64) {
    let mut best = f64::INFINITY;
    let mut nodes = 0;
    for _ in 0..TIMES {
        let start = Instant::now();
        nodes = call();
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
    }
    (nodes, best)
}
