//! put, get and ack: the whole life of a message whose handler does nothing.

use std::time::{Duration, Instant};

use interlock_core::key::KeyRef;
use interlock_core::queue::scheduler::Put;
use interlock_core::queue::types::{Kind, Options};
use interlock_core::queue::Queue;

use crate::sample::Sample;

const LANES: usize = 1_000;
const CYCLES: u64 = 1_000_000;
const BESIDE: u64 = 400_000;
const BATCH: u64 = 1_000;

/// Names of keys, short enough to be stored in the key itself.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("account:{number}")).collect()
}

/// A put with these keys and nothing else; the message's id.
pub fn put<P>(queue: &Queue<P>, keys: &[KeyRef<'_>], payload: P) -> u64 {
    let put = Put { keys, ..Put::default() };
    queue.try_put(&put, &mut Some(payload)).expect("open").expect("unbounded").id
}

/// Takes the next message and settles it; its payload.
pub fn get_and_ack<P: Copy>(queue: &Queue<P>) -> Option<P> {
    let (grant, payload) = queue.try_get(Kind::Any, 0, |payload, _| *payload).expect("open")?;
    queue.ack(grant.handle).expect("leased");
    Some(payload)
}

/// Cycles of put, get and ack behind `depth` messages spread over `lanes` keys. As many cycles at
/// every depth, and as many as the deepest has messages, so that each of its records is met once.
pub fn behind(depth: u64, lanes: u64) -> Sample {
    let names = names(lanes as usize);
    let queue = Queue::new(Options::default());
    let enter = |number: u64| {
        put(&queue, &[KeyRef::new(names[(number % lanes) as usize].as_bytes())], number)
    };
    for number in 0..depth {
        enter(number);
    }
    let mut wrong = 0;
    let start = Instant::now();
    for number in 0..CYCLES {
        enter(depth + number);
        // Sequence decides among the ready, so that the order is exact over all lanes.
        wrong += u64::from(get_and_ack(&queue) != Some(number));
    }
    Sample::each(start.elapsed().as_secs_f64(), CYCLES, wrong)
}

/// Cycles with one message at a time that holds `keys` of 1,000 keys.
pub fn ours(keys: usize) -> Sample {
    let names = names(LANES);
    let queue = Queue::new(Options::default());
    let mut wrong = 0;
    let start = Instant::now();
    for number in 0..BESIDE {
        let held: [KeyRef<'_>; 4] = std::array::from_fn(|step| match step < keys {
            true => KeyRef::new(names[nth(number, step)].as_bytes()),
            false => KeyRef { bytes: b"", hash: 0 },
        });
        put(&queue, &held[..keys], number);
        wrong += u64::from(get_and_ack(&queue) != Some(number));
    }
    Sample::each(start.elapsed().as_secs_f64(), BESIDE, wrong)
}

/// The same through key-message-channel, which settles a message when it is dropped.
///
/// It takes its keys as strings of its own. They are made outside the clock: a program might have
/// them at hand.
pub fn channel(keys: usize) -> Sample {
    let names = names(LANES);
    let (sender, mut receiver) = key_message_channel::unbounded();
    let mut wrong = 0;
    let mut spent = Duration::ZERO;
    for first in (0..BESIDE).step_by(BATCH as usize) {
        let batch: Vec<Vec<String>> = (first..first + BATCH)
            .map(|number| (0..keys).map(|step| names[nth(number, step)].clone()).collect())
            .collect();
        let start = Instant::now();
        for (number, held) in (first..).zip(batch) {
            sender.send(held, number).expect("open");
            let message = receiver.recv().expect("open");
            wrong += u64::from(*message.value() != Some(number));
        }
        spent += start.elapsed();
    }
    Sample::each(spent.as_secs_f64(), BESIDE, wrong)
}

/// The key that a message holds as its `step`th: all different within a message.
fn nth(number: u64, step: usize) -> usize {
    (number as usize + step * 251) % LANES
}
