//! Messages to put, made by chance, with what a handler and the check need to know of them.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::Arc;

use fastrand::Rng;
use interlock_core::key::KeyRef;
use interlock_core::queue::scheduler::Put;

/// The key that everything shares and a barrier takes alone, for the witnesses only.
pub const EVERYTHING: usize = 0;

#[derive(Debug)]
pub struct Spec {
    /// Numbers of keys, with whether it shares them; the first is [`EVERYTHING`].
    pub keys: Vec<(usize, bool)>,
    pub barrier: bool,
    pub delay: u64,
    pub priority: i8,
    /// The attempt that must come next.
    pub attempt: AtomicU32,
    /// 0 until the put has returned.
    pub id: AtomicU64,
}

pub type Payload = Arc<Spec>;

impl Spec {
    pub fn new(rng: &mut Rng, many_keys: usize) -> Spec {
        let mut per_cent = |n: u32| rng.u32(0..100) < n;
        let (unkeyed, barrier) = (per_cent(10), per_cent(1));
        let (delayed, urgent) = (per_cent(5), per_cent(10));
        let mut keys = vec![(EVERYTHING, !barrier)];
        if !unkeyed && !barrier {
            for _ in 0..rng.usize(1..=3) {
                let key = rng.usize(0..many_keys).min(rng.usize(0..many_keys)) + 1;
                if keys.iter().all(|&(other, _)| other != key) {
                    keys.push((key, rng.u8(0..3) == 0));
                }
            }
        }
        Spec {
            keys,
            barrier,
            delay: if delayed { rng.u64(1..200) } else { 0 },
            priority: if urgent { rng.i8(-100..=100) } else { 0 },
            attempt: AtomicU32::new(1),
            id: AtomicU64::new(0),
        }
    }

    /// Calls with the put that this is.
    pub fn with_put<R>(&self, call: impl FnOnce(&Put<'_>) -> R) -> R {
        let bytes = |shared: bool| -> Vec<[u8; 8]> {
            let real = self.keys[1..].iter().filter(|(_, s)| *s == shared);
            real.map(|(key, _)| key.to_be_bytes()).collect()
        };
        let (keys, shared) = (bytes(false), bytes(true));
        let keys: Vec<KeyRef<'_>> = keys.iter().map(|key| KeyRef::new(key)).collect();
        let shared: Vec<KeyRef<'_>> = shared.iter().map(|key| KeyRef::new(key)).collect();
        call(&Put {
            keys: &keys,
            shared: &shared,
            barrier: self.barrier,
            delay: self.delay,
            priority: self.priority,
            ..Put::default()
        })
    }
}
