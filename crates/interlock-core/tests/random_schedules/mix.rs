//! The shape of one schedule's queue and its puts. Numbers are small, so that things meet.

use fastrand::Rng;
use interlock_core::queue::schedules::trace::PutCall;
use interlock_core::queue::types::limits::{Limits, Weights};
use interlock_core::queue::types::options::NUMBERS;
use interlock_core::queue::types::{Behind, Options, Retry, Then};

use crate::tried::TRIED;

/// The shape of one schedule's puts, in per cent.
pub struct Mix {
    unkeyed: usize,
    shared: usize,
    many_keys: usize,
    barrier: usize,
    priority: usize,
    delay: usize,
    dedup: usize,
    limited: usize,
    grouped: usize,
    coalesced: usize,
    behind: usize,
    keys: Vec<Vec<u8>>,
    /// Keys are drawn from the first few more often.
    skewed: bool,
    /// From here on, a put becomes a lease or an ack.
    pub deep: usize,
    /// Calls, at most.
    pub longest: usize,
}

impl Mix {
    pub fn new(rng: &mut Rng) -> Self {
        let sometimes = [0, 0, 5, 20, 60];
        let mut mix = Mix {
            unkeyed: choose(rng, &[2, 10, 40]),
            shared: choose(rng, &[0, 20, 50, 80]),
            many_keys: choose(rng, &[10, 40, 80]),
            barrier: choose(rng, &[0, 0, 2, 8, 25]),
            priority: choose(rng, &[0, 0, 30, 90]),
            delay: choose(rng, &sometimes),
            dedup: choose(rng, &sometimes),
            limited: choose(rng, &[0, 30, 90]),
            grouped: choose(rng, &[0, 0, 30, 70, 100]),
            coalesced: choose(rng, &[0, 0, 30, 70]),
            behind: choose(rng, &[0, 0, 20, 70]),
            skewed: rng.bool(),
            deep: choose(rng, &[4, 10, 20, 20, 40]),
            longest: 400,
            keys: Vec::new(),
        };
        let mut many = rng.usize(1..=8);
        // Now and then many lanes, and many messages, so that tables grow and places are reused.
        if rng.usize(0..40) == 0 {
            many = rng.usize(9..=200);
            mix = Mix { deep: 150, longest: 1_500, ..mix };
        }
        let odd = rng.usize(0..4) == 0;
        mix.keys = (0..many).map(|number| key(number, odd)).collect();
        mix
    }

    pub fn put(&self, rng: &mut Rng) -> PutCall {
        let put = self.plain_put(rng);
        if per_cent(rng, self.coalesced) {
            self.coalescing(rng, put)
        } else {
            put
        }
    }

    /// A put with one of few names, mostly without what may not differ from the one before.
    fn coalescing(&self, rng: &mut Rng, put: PutCall) -> PutCall {
        let names = [&b"p"[..], b"q%, ", &self.keys[0]];
        let coalesce = Some(choose(rng, &names).to_vec());
        let mut put = PutCall { coalesce, dedup: None, barrier: false, ..put };
        if per_cent(rng, 85) {
            let PutCall { size, delay, coalesce, behind, .. } = put;
            put = PutCall { size, delay, coalesce, behind, ..PutCall::default() };
        }
        if per_cent(rng, 40) {
            put.delay = 0;
            put.debounce = choose(rng, &[1, 3, 10, 50, u64::MAX]);
            put.within = choose(rng, &[0, 2, 5, 30, u64::MAX]);
        }
        put
    }

    fn plain_put(&self, rng: &mut Rng) -> PutCall {
        let size = rng.u64(0..=9);
        let priority =
            if per_cent(rng, self.priority) { choose(rng, &[-100, -1, 1, 100]) } else { 0 };
        let delay =
            if per_cent(rng, self.delay) { choose(rng, &[1, 2, 5, 30, 500, u64::MAX]) } else { 0 };
        let dedup = per_cent(rng, self.dedup)
            .then(|| choose(rng, &["", "one", "two words", "drei=3|%"]).to_string());
        let names = if per_cent(rng, self.limited) { rng.usize(1..=3) } else { 0 };
        let limit = (0..names).map(|_| choose(rng, &NAMES).to_vec()).collect();
        let group = match per_cent(rng, self.grouped) {
            true => choose(rng, &GROUPS).to_vec(),
            false => Vec::new(),
        };
        let behind = per_cent(rng, self.behind).then(|| choose(rng, &VALUES));
        let plain =
            PutCall { size, priority, delay, dedup, limit, group, behind, ..PutCall::default() };
        if per_cent(rng, self.barrier) {
            return PutCall { barrier: true, ..plain };
        }
        if per_cent(rng, self.unkeyed) {
            return plain;
        }
        let many = if per_cent(rng, self.many_keys) { rng.usize(2..=6) } else { 1 };
        let (mut keys, mut shared) = (Vec::new(), Vec::new());
        for _ in 0..many {
            let key = self.key(rng);
            if per_cent(rng, self.shared) {
                shared.push(key);
            } else {
                keys.push(key);
            }
        }
        PutCall { keys, shared, ..plain }
    }

    /// The outcome for messages behind a failure, where that is asked for.
    pub fn behind(&self, rng: &mut Rng) -> Behind {
        if self.behind > 0 {
            choose(rng, &VALUES)
        } else {
            Behind::Wait
        }
    }

    pub fn with_behind(&self, options: Options, rng: &mut Rng) -> Options {
        let mut options = Options { behind: self.behind(rng), ..options };
        // Messages are held more often than elsewhere.
        if self.behind > 0 && rng.bool() {
            options.retry.attempts = Some(choose(rng, &[1, 1, 2]));
        }
        // Parked messages meet their bound, beside dead letters.
        if self.behind > 0 && rng.usize(0..3) == 0 {
            options.max_messages = rng.usize(4..=12);
            options.max_dead = 10_000;
        }
        options
    }

    pub fn key(&self, rng: &mut Rng) -> Vec<u8> {
        let many = self.keys.len();
        let at = rng.usize(0..many);
        let at = if self.skewed { at.min(rng.usize(0..many)) } else { at };
        self.keys[at].clone()
    }
}

const VALUES: [Behind; 6] =
    [Behind::Park, Behind::Park, Behind::Park, Behind::Bury, Behind::Cancel, Behind::Wait];

/// Names of limits: limited by themselves, by a prefix, or not at all.
const NAMES: [&[u8]; 5] = [b"bank", b"host:a", b"host:b", b"t", b"z%, "];

const GROUPS: [&[u8]; 4] = [b"acme", b"big", b"bit", b"z%, "];

/// Weights of groups, mostly small.
pub fn weights(rng: &mut Rng) -> Weights {
    let all: [(&str, &[u32]); 4] =
        [("acme", &[1, 3]), ("b*", &[1, 2]), ("big", &[2, 5]), ("*", &[1, 2])];
    let mut text = Vec::new();
    for (group, tried) in all {
        if rng.bool() {
            text.push(format!("{group}={}", choose(rng, tried)));
        }
    }
    Weights::parse(text.join("\x1f").as_bytes()).expect("it is well formed")
}

pub fn limit_name(rng: &mut Rng) -> Vec<u8> {
    choose(rng, &NAMES).to_vec()
}

/// Limits of a queue, mostly small, and rates of short times.
pub fn limits(rng: &mut Rng) -> Limits {
    let all: [(&str, &[u32]); 4] =
        [("bank", &[1, 1, 2, 4]), ("host:*", &[1, 2, 3]), ("*", &[1, 2, 5]), ("t", &[1, 3])];
    let mut text = Vec::new();
    for (name, tried) in all {
        if rng.usize(0..3) > 0 {
            let rate = choose(rng, &["1/3:1", "1/10:1", "2/5:2", "3/10:4", "1/40:3"]);
            text.push(match rng.usize(0..3) {
                0 => format!("{name}={rate}"),
                _ => format!("{name}={}", choose(rng, tried)),
            });
        }
    }
    Limits::parse(text.join("\x1f").as_bytes()).expect("it is well formed")
}

/// A queue's options, small bounds and short times mostly.
pub fn options(rng: &mut Rng) -> Options {
    let mut one_in = |n: usize| rng.usize(0..n) == 0;
    let (small_messages, small_bytes, leases) = (one_in(3), one_in(4), !one_in(3));
    let mut options = Options {
        max_messages: if small_messages { rng.usize(1..=16) } else { 0 },
        max_bytes: if small_bytes { rng.u64(1..=60) } else { 0 },
        lease: leases.then(|| choose(rng, &[0, 1, 3, 10, 30, 1_000])),
        retry: Retry {
            attempts: choose(rng, &[None, Some(1), Some(2), Some(3), Some(5)]),
            first: choose(rng, &[0, 0, 1, 3, 20]),
            factor: choose(rng, &[1.0, 1.5, 2.0, 3.0]),
            longest: choose(rng, &[0, 2, 15, 1_000]),
            jitter: false,
            then: choose(rng, &[Then::Dead, Then::Dead, Then::Hold]),
        },
        ..Options::default()
    };
    options.limits = limits(rng);
    options.weights = weights(rng);
    for (one, tried) in NUMBERS.iter().zip(TRIED) {
        (one.set)(&mut options, choose(rng, tried));
    }
    options
}

pub fn choose<T: Copy>(rng: &mut Rng, among: &[T]) -> T {
    among[rng.usize(0..among.len())]
}

fn per_cent(rng: &mut Rng, chance: usize) -> bool {
    rng.usize(0..100) < chance
}

/// Short ones, or ones that a text or a lane's inline bytes could trip over.
fn key(number: usize, odd: bool) -> Vec<u8> {
    if number >= 8 {
        return number.to_string().into_bytes();
    }
    let letter = b'a' + number as u8;
    if !odd {
        return vec![letter];
    }
    match number % 4 {
        // 22 and 23 bytes: the longest that lies inline, and the first that does not.
        0 => [vec![b'i'; 21 + number / 4], vec![letter]].concat(),
        1 => [vec![b'k'; 60], vec![letter]].concat(),
        2 => vec![0xFF, 0, letter],
        _ => vec![b'%', b' ', b',', b'|', letter],
    }
}
