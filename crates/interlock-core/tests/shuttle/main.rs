//! Blocking, wake-up, shutdown and cancellation under every order of threads that a seed can choose.
//!
//! Run with `RUSTFLAGS="--cfg shuttle"`: lock and parker are then the model checker's, which
//! decides at each of their calls which thread continues. It knows no timeouts, so that a lost
//! wake-up is a deadlock, which it reports with the schedule that led there; no slice of waiting
//! can hide one.
//!
//! | module | what is parked while it happens |
//! |---|---|
//! | `messages` | getters of one or more kinds |
//! | `room` | putters of different sizes, batches, dedup strings |
//! | `ending` | everybody, at a shutdown; joiners |
//! | `leaving` | getters and putters that go away as they are called |
//! | `operating` | getters whose message an operator, a nack or a resumed key frees |
//! | `tasks` | futures, some of them dropped |
//! | `alarm` | the timekeeper, while something falls due later |
//! | `anything` | whatever chance parks: random calls from several threads |
//!
//! `INTERLOCK_SHUTTLE_ITERATIONS` sets how many schedules each test explores.

#![cfg(shuttle)]

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use interlock_core::clock::Clock;
use interlock_core::key::KeyRef;
use interlock_core::queue::parts::watch::Watch;
use interlock_core::queue::scheduler::{Grant, Put};
use interlock_core::queue::types::{Kind, Options, Retry, Time};
use interlock_core::queue::waiting::waiters::{Wait, Want};
use interlock_core::queue::{Ended, Look};
use interlock_core::sync::Parker;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread::{self, JoinHandle};
use shuttle::Runner;

mod alarm;
mod anything;
mod ending;
mod leaving;
mod messages;
mod operating;
mod room;
mod tasks;

type Queue = interlock_core::queue::Queue<u32>;

/// Schedules a test explores, half of them random, half of them with few and well placed switches.
const ITERATIONS: usize = 10_000;

/// Switches that a bug of ours may need at most, for the second half.
const DEPTH: usize = 4;

fn explore(body: impl Fn() + Send + Sync + Clone + 'static) {
    let wanted = env::var("INTERLOCK_SHUTTLE_ITERATIONS");
    let iterations = wanted.map_or(ITERATIONS, |n| n.parse().expect("a whole number")) / 2;
    let config = || {
        let mut config = shuttle::Config::new();
        config.stack_size = 0x2_0000;
        config.max_steps = shuttle::MaxSteps::FailAfter(20_000);
        config
    };
    Runner::new(RandomScheduler::new(iterations), config()).run(body.clone());
    Runner::new(PctScheduler::new(DEPTH, iterations), config()).run(body);
}

/// Retries at once and for ever.
fn endless() -> Options {
    Options {
        retry: Retry { attempts: None, first: 0, jitter: false, ..Retry::default() },
        ..Options::default()
    }
}

/// A queue whose time stands still, so that nothing but a call can wake anybody.
fn queue(options: Options) -> Arc<Queue> {
    Arc::new(Queue::with(options, Watch::off(), Clock::manual(1)))
}

fn start<T: Send + 'static>(
    queue: &Arc<Queue>,
    body: impl FnOnce(&Queue) -> T + Send + 'static,
) -> JoinHandle<T> {
    let queue = queue.clone();
    thread::spawn(move || body(&queue))
}

fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
}

/// A put of one key, or of none if that is empty.
fn put(queue: &Queue, key: &str, payload: u32) -> Result<u64, Ended> {
    let keys = [KeyRef::new(key.as_bytes())];
    let keys = if key.is_empty() { &[] } else { &keys[..] };
    queue.put(&Put { keys, ..Put::default() }, payload).map(|placed| placed.id)
}

/// Sleeps between looks until the wait ends, whatever is waited for.
fn sleep_between<T>(
    wait: &mut Wait,
    mut look: impl FnMut(&mut Wait, &Waker) -> Look<T>,
) -> Result<T, Ended> {
    let parker = Parker::new();
    let waker = parker.waker();
    loop {
        match look(wait, &waker) {
            Look::Found(found) => return Ok(found),
            Look::Ended(ended) => return Err(ended),
            Look::Sleep(_) => {
                parker.park(None);
            }
        }
    }
}

fn get(queue: &Queue, kind: Kind, deadline: Time) -> Result<(Grant, u32), Ended> {
    let mut wait = Wait::new(Want::Message(kind), deadline);
    sleep_between(&mut wait, |wait, waker| queue.get_or_wait(kind, 0, |p, _| *p, wait, waker))
}

fn room(queue: &Queue, put: &Put<'_>, payload: u32, deadline: Time) -> Result<u64, Ended> {
    let mut payload = Some(payload);
    let mut wait = Wait::new(Want::Room(1, put.size), deadline);
    let placed =
        sleep_between(&mut wait, |wait, waker| queue.put_or_wait(put, &mut payload, wait, waker));
    placed.map(|placed| placed.id)
}

/// Looks once and, if it would have to sleep, leaves: what a thread does whose signal handler raised.
fn get_interrupted(queue: &Queue, kind: Kind) -> Option<(Grant, u32)> {
    let mut wait = Wait::new(Want::Message(kind), Time::MAX);
    match queue.get_or_wait(kind, 0, |p, _| *p, &mut wait, Waker::noop()) {
        Look::Found(found) => Some(found),
        Look::Ended(ended) => panic!("no look of this test ends with {ended:?}"),
        Look::Sleep(_) => {
            thread::yield_now();
            queue.give_up(&mut wait);
            None
        }
    }
}

fn ack(queue: &Queue, grant: &Grant) {
    queue.ack(grant.handle).expect("the lease stands");
}

/// Gets and acknowledges until the queue is drained and shut down; the payloads, in order.
fn consume(queue: &Queue, kind: Kind, handled: impl Fn(u32)) -> Vec<u32> {
    let mut payloads = Vec::new();
    loop {
        match get(queue, kind, Time::MAX) {
            Ok((grant, payload)) => {
                handled(payload);
                ack(queue, &grant);
                payloads.push(payload);
            }
            Err(Ended::ShutDown) => return payloads,
            Err(ended) => panic!("a get without a deadline ends with {ended:?}"),
        }
    }
}

fn sorted(lists: Vec<Vec<u32>>) -> Vec<u32> {
    let mut all = lists.concat();
    all.sort_unstable();
    all
}

/// Sees from outside that messages of one key are handled in order and one at a time.
#[derive(Clone, Default)]
struct Witness {
    /// By key: whether one is being handled, and the last payload of each producer.
    keys: Arc<Mutex<HashMap<u32, Seen>>>,
}

#[derive(Default)]
struct Seen {
    busy: bool,
    last: HashMap<u32, u32>,
}

impl Witness {
    /// A producer's payloads on a key rise.
    fn handle(&self, key: u32, producer: u32, payload: u32) {
        {
            let mut keys = self.keys.lock().unwrap();
            let seen = keys.entry(key).or_default();
            assert!(!std::mem::replace(&mut seen.busy, true), "two at once on one key");
            let last = seen.last.insert(producer, payload);
            assert!(last.is_none_or(|last| last < payload), "{payload} came after {last:?}");
        }
        thread::yield_now();
        self.keys.lock().unwrap().get_mut(&key).expect("it was begun").busy = false;
    }
}
