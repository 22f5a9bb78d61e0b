//! Leases whose holder could not renew them in time: in one process a handler that keeps the
//! interpreter keeps the renewer from running too, and nothing must fall due for that.

use std::collections::HashMap;

use interlock_core::queue::types::Time;
use parking_lot::Mutex;

use crate::{Engine, Function, Outcome, Served};

/// A lease that is held.
#[derive(Clone, Debug)]
pub struct HeldLease {
    /// The key of its queue.
    pub queue: Vec<u8>,
    pub token: u64,
    /// Length of a renewal, µs.
    pub span: Time,
    /// Earliest end of the lease.
    pub deadline: Time,
    /// The end of its handler's time: it is not renewed beyond.
    pub until: Time,
}

/// The leases that are held in this process, each by a number of its own.
#[derive(Debug, Default)]
pub struct Renewals {
    held: Mutex<Leases>,
}

#[derive(Debug, Default)]
struct Leases {
    all: HashMap<u64, HeldLease>,
    /// The earliest end of any, if any.
    first: Option<Time>,
}

impl Leases {
    fn late(&mut self, now: Time) -> Vec<(u64, HeldLease)> {
        if self.first.is_none_or(|first| now < first) {
            return Vec::new();
        }
        let late = self.all.iter().filter(|(_, lease)| lease.deadline <= now && now < lease.until);
        let late = late.map(|(number, lease)| (*number, lease.clone())).collect();
        // Leases whose handler's timeout has passed are left to expire.
        self.first = self.all.values().map(|lease| lease.deadline).filter(|end| *end > now).min();
        late
    }

    fn put(&mut self, number: u64, lease: HeldLease) {
        self.first = Some(self.first.map_or(lease.deadline, |first| first.min(lease.deadline)));
        self.all.insert(number, lease);
    }
}

impl Renewals {
    /// Adds a lease to be renewed, or notes that it was renewed.
    pub fn hold(&self, number: u64, lease: HeldLease) {
        self.held.lock().put(number, lease);
    }

    /// Forgets a lease.
    pub fn let_go(&self, number: u64) {
        self.held.lock().all.remove(&number);
    }

    /// Sets the end of its handler's time.
    pub fn bound(&self, number: u64, until: Time) {
        if let Some(lease) = self.held.lock().all.get_mut(&number) {
            lease.until = until;
        }
    }

    /// Renews leases that would have run out by now. To be called before the engine gets the time.
    pub fn renew(&self, engine: &Engine, now: Time, served: &mut Vec<Served>) {
        // The engine is not called while this lock is held.
        let late = self.held.lock().late(now);
        for (number, lease) in late {
            // As if it had been renewed in time.
            let then = lease.deadline.saturating_sub(1);
            let token = lease.token.to_string();
            let span = (now - then).saturating_add(lease.span).to_string();
            let args = [token.as_bytes(), span.as_bytes()];
            let key = Some(&lease.queue[..]);
            let mut out = Vec::new();
            let done = engine.call(Function::Extend, key, &args[..], then, None, &mut out, served);
            let mut held = self.held.lock();
            match done {
                Outcome::Done => {
                    // It may have been renewed or removed meanwhile.
                    let deadline = now.saturating_add(lease.span);
                    if let Some(one) = held.all.get_mut(&number) {
                        one.deadline = one.deadline.max(deadline);
                        held.first = held.first.map(|first| first.min(deadline)).or(Some(deadline));
                    }
                }
                // The lease or its queue is lost.
                _ => drop(held.all.remove(&number)),
            }
        }
    }
}
