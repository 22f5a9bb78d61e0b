//! Leases that whoever holds them means to renew and could not: in one process a handler that keeps the
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
    /// For so long it is renewed, in µs.
    pub span: Time,
    /// It ends then, at the earliest.
    pub deadline: Time,
    /// The end of its handler's time: it is not renewed beyond.
    pub until: Time,
}

/// The leases that are held in this process, each by a number of its own.
#[derive(Debug, Default)]
pub struct Renewals {
    held: Mutex<HashMap<u64, HeldLease>>,
}

impl Renewals {
    /// Takes a lease into care, or notes that it was renewed.
    pub fn hold(&self, number: u64, lease: HeldLease) {
        self.held.lock().insert(number, lease);
    }

    /// Forgets a lease.
    pub fn let_go(&self, number: u64) {
        self.held.lock().remove(&number);
    }

    /// Sets the end of its handler's time.
    pub fn bound(&self, number: u64, until: Time) {
        if let Some(lease) = self.held.lock().get_mut(&number) {
            lease.until = until;
        }
    }

    /// Renews what would have run out by now. To be called before the engine is told the time.
    pub fn renew(&self, engine: &Engine, now: Time, served: &mut Vec<Served>) {
        // Of the engine nothing is asked under the lock of these.
        let late: Vec<(u64, HeldLease)> = {
            let held = self.held.lock();
            let late = held.iter().filter(|(_, lease)| lease.deadline <= now && now < lease.until);
            late.map(|(number, lease)| (*number, lease.clone())).collect()
        };
        for (number, lease) in late {
            // As if it had been renewed in time.
            let then = lease.deadline.saturating_sub(1);
            let token = lease.token.to_string();
            let span = (now - then).saturating_add(lease.span).to_string();
            let args = [token.as_bytes(), span.as_bytes()];
            let done = engine.call(
                Function::Extend,
                Some(&lease.queue),
                &args[..],
                then,
                None,
                &mut Vec::new(),
                served,
            );
            let mut held = self.held.lock();
            match done {
                Outcome::Done => {
                    if let Some(lease) = held.get_mut(&number) {
                        lease.deadline = lease.deadline.max(now.saturating_add(lease.span));
                    }
                }
                // It is lost, or its queue is.
                _ => drop(held.remove(&number)),
            }
        }
    }
}
