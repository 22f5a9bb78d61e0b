//! The denials of ACL LOG: who was refused what for want of a right or a password.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;

use crate::access::registry::Card;
use crate::access::users::Reason;
use crate::catalog::name_of;
use crate::system::time::Time;

/// One, or several alike that followed each other soon.
#[derive(Clone, Debug)]
pub struct Denial {
    pub count: u64,
    pub reason: Reason,
    /// The command, the topic or the key; AUTH for a password.
    pub object: Vec<u8>,
    pub user: Vec<u8>,
    pub at: Time,
    /// A line of CLIENT LIST.
    pub client: String,
}

/// The newest of them.
#[derive(Default)]
pub struct Denials {
    entries: Mutex<VecDeque<Denial>>,
    /// Times at which the audit log last had one of a user and a function. Both are few: no stranger makes them up.
    recorded: Mutex<BTreeMap<(String, &'static str), Time>>,
}

impl Denials {
    pub fn add(&self, reason: Reason, object: &[u8], user: &[u8], card: &Card, now: Time) {
        let object = &object[..object.len().min(MOST_BYTES)];
        let user = &user[..user.len().min(MOST_BYTES)];
        let mut entries = self.entries.lock();
        // Otherwise a client that retries all the time would push out all other entries.
        let again = entries.iter().position(|known| {
            let alike = known.reason == reason && known.object == object && known.user == user;
            alike && now.saturating_sub(known.at) < TOGETHER
        });
        let count = again.and_then(|place| entries.remove(place)).map_or(0, |known| known.count);
        let command = name_of(card.command.load(std::sync::atomic::Ordering::Relaxed));
        let client = card.line(now, command);
        let (object, user) = (object.to_vec(), user.to_vec());
        entries.push_front(Denial { count: count + 1, reason, object, user, at: now, client });
        entries.truncate(KEPT);
    }

    /// Returns whether the last one of this user and function that was recorded is a second ago.
    pub fn is_new(&self, user: &str, function: &'static str, now: Time) -> bool {
        let mut recorded = self.recorded.lock();
        let last = recorded.entry((user.to_owned(), function)).or_default();
        let is_new = *last == 0 || now.saturating_sub(*last) >= RECORDED_EVERY;
        if is_new {
            *last = now;
        }
        is_new
    }

    /// The newest first.
    pub fn newest(&self, count: usize) -> Vec<Denial> {
        self.entries.lock().iter().take(count).cloned().collect()
    }

    pub fn clear(&self) {
        self.entries.lock().clear();
    }
}

/// As many as Redis keeps unless told otherwise.
const KEPT: usize = 128;
/// Limit for names, which clients may make up.
const MOST_BYTES: usize = 128;
/// µs.
const RECORDED_EVERY: Time = 1_000_000;
/// µs.
const TOGETHER: Time = 60_000_000;
