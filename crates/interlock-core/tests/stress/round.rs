//! One round: a queue, its threads, what they must have done.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use interlock_core::queue::types::{Kind, Options, Retry};
use interlock_core::queue::Queue;

use crate::check::{check, Handling};
use crate::spec::Payload;
use crate::threads::{consume, operate, produce};
use crate::witness::Flags;

/// A round that hangs ends after this; none comes near it otherwise.
const HANGS: Duration = Duration::from_secs(60);

const PRODUCERS: usize = 2;
const CONSUMERS: [Kind; 4] = [Kind::Any, Kind::Any, Kind::Keyed, Kind::Unkeyed];

#[derive(Clone, Debug)]
pub struct Round {
    seed: u64,
    pub messages: usize,
    pub many_keys: usize,
    max_messages: usize,
    /// µs; leases may end under their handlers.
    pub lease: Option<u64>,
}

impl Round {
    /// Leases last until their consumer ends them.
    pub fn lasting(rng: &mut Rng) -> Self {
        Round {
            seed: rng.u64(..),
            messages: 5_000,
            many_keys: [1, 4, 16, 64][rng.usize(0..4)],
            max_messages: [0, 1, 8, 64][rng.usize(0..4)],
            lease: None,
        }
    }

    /// Leases run out soon, or are revoked.
    pub fn ending(rng: &mut Rng) -> Self {
        Round { lease: Some(rng.u64(5..100)), ..Round::lasting(rng) }
    }

    pub fn run(self) -> Totals {
        let options = Options {
            max_messages: self.max_messages,
            lease: self.lease,
            retry: Retry { attempts: None, first: 0, jitter: false, ..Retry::default() },
            max_dead: 1_000_000,
            ..Options::default()
        };
        let stage = Arc::new(Stage {
            queue: Queue::new(options),
            flags: Flags::new(self.many_keys),
            handlings: Mutex::default(),
            taken_back: Mutex::default(),
            counts: Counts::default(),
            put_all: AtomicBool::new(false),
            round: self.clone(),
        });
        let (done, ended) = mpsc::channel();
        let mut seeds = Rng::with_seed(self.seed);
        for _ in 0..PRODUCERS {
            stage.start(&done, seeds.fork(), produce);
        }
        for kind in CONSUMERS {
            let done = done.clone();
            stage.start(&done, seeds.fork(), move |stage, rng| consume(stage, rng, kind));
        }
        stage.start(&done, seeds.fork(), operate);
        let end = || match ended.recv_timeout(HANGS) {
            Ok(role) => role.unwrap_or_else(|panicked| panic!("{panicked}")),
            Err(_) => panic!("a thread hangs: {}", stage.describe()),
        };
        let mut producing = PRODUCERS;
        for left in (0..PRODUCERS + CONSUMERS.len() + 1).rev() {
            if end() == Role::Producer {
                producing -= 1;
            }
            if producing == 0 {
                stage.put_all.store(true, std::sync::atomic::Ordering::Release);
            }
            assert!(left > 0 || producing == 0);
        }
        stage.end()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    Producer,
    Consumer,
    Operator,
}

/// The state that the threads of a round share.
pub struct Stage {
    pub round: Round,
    pub queue: Queue<Payload>,
    pub flags: Flags,
    pub handlings: Mutex<Vec<Handling>>,
    /// Ids of messages that were cancelled.
    pub taken_back: Mutex<Vec<u64>>,
    pub counts: Counts,
    /// Producers have ended.
    pub put_all: AtomicBool,
}

#[derive(Default)]
pub struct Counts {
    pub acked: AtomicUsize,
    pub retried: AtomicUsize,
    pub rejected: AtomicUsize,
    pub lost: AtomicUsize,
}

type End = Result<Role, String>;

impl Stage {
    fn start(
        self: &Arc<Self>,
        done: &Sender<End>,
        mut rng: Rng,
        body: impl FnOnce(&Stage, &mut Rng) -> Role + Send + 'static,
    ) {
        let (stage, done) = (self.clone(), done.clone());
        thread::spawn(move || {
            let body = std::panic::AssertUnwindSafe(|| body(&stage, &mut rng));
            let end = std::panic::catch_unwind(body).map_err(|panicked| {
                let text = panicked.downcast_ref::<String>();
                text.map_or_else(|| "a thread panicked".to_owned(), Clone::clone)
            });
            // Nobody listens any more where another thread panicked before.
            let _ = done.send(end);
        });
    }

    fn describe(&self) -> String {
        let (stats, undrained) =
            self.queue.call(|scheduler, now| (scheduler.stats(now), scheduler.undrained(5)));
        format!("{stats:?}\n{undrained:?}, {} getters parked", self.queue.getters_parked())
    }

    fn end(&self) -> Totals {
        let stats = self.queue.call(|scheduler, now| scheduler.stats(now));
        let count = |count: &AtomicUsize| count.load(std::sync::atomic::Ordering::Relaxed);
        let Counts { acked, retried, rejected, lost } = &self.counts;
        let totals = Totals {
            rounds: 1,
            acked: count(acked),
            retried: count(retried),
            rejected: count(rejected),
            cancelled: self.taken_back.lock().unwrap().len(),
            lost: count(lost),
        };
        assert_eq!(stats.unsettled, 0);
        assert_eq!(
            totals.acked + totals.rejected + totals.cancelled,
            self.round.messages * PRODUCERS,
            "each is settled once: {totals:?} {stats:?}"
        );
        assert_eq!((stats.acks, stats.dead), (totals.acked as u64, totals.rejected as u64));
        let broken = check(&mut self.handlings.lock().unwrap());
        assert_eq!(broken, Ok(()), "{:?}", self.round);
        totals
    }
}

#[derive(Debug, Default)]
pub struct Totals {
    pub rounds: usize,
    pub acked: usize,
    pub retried: usize,
    pub rejected: usize,
    pub cancelled: usize,
    pub lost: usize,
}

impl Totals {
    pub fn add(&mut self, other: Totals) {
        self.rounds += other.rounds;
        self.acked += other.acked;
        self.retried += other.retried;
        self.rejected += other.rejected;
        self.cancelled += other.cancelled;
        self.lost += other.lost;
    }
}
