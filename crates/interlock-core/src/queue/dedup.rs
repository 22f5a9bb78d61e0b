//! Known dedup strings (clause 13): while unsettled, and for a window after.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::queue::types::Time;

#[derive(Debug)]
pub struct Dedup {
    window: u64,
    known: HashMap<Arc<str>, Entry, foldhash::fast::RandomState>,
    /// Settled ones by the time they are forgotten, which rises, for the window is one length.
    leaving: VecDeque<(Time, Arc<str>)>,
    inserted: u64,
}

/// Strings forgotten at most by one call: more than it can add, so that they become fewer (clause 21).
const FORGOTTEN: usize = 4;

#[derive(Debug)]
struct Entry {
    id: u64,
    /// `None` while unsettled.
    until: Option<Time>,
}

impl Dedup {
    pub fn new(window: u64) -> Self {
        Dedup { window, known: HashMap::default(), leaving: VecDeque::new(), inserted: 0 }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The id of the first put of this string, if it is still known.
    pub fn find(&self, name: &str, now: Time) -> Option<u64> {
        let entry = self.known.get(name)?;
        entry.until.is_none_or(|until| now < until).then_some(entry.id)
    }

    pub fn insert(&mut self, name: &str, id: u64, now: Time) -> Arc<str> {
        self.forget(now);
        self.inserted += 1;
        let name: Arc<str> = name.into();
        self.known.insert(name.clone(), Entry { id, until: None });
        name
    }

    /// How many strings became known so far.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The message of this string was settled.
    pub fn settled(&mut self, name: Arc<str>, now: Time) {
        if let Some(entry) = self.known.get_mut(&name) {
            let until = now.saturating_add(self.window);
            entry.until = Some(until);
            self.leaving.push_back((until, name));
        }
        self.forget(now);
    }

    /// Strings that stay known for a while though their messages are settled: until when, and the
    /// message's id; in the order in which they are forgotten.
    pub fn leaving(&self) -> impl Iterator<Item = (Time, &str, u64)> {
        self.leaving.iter().filter_map(|(until, name)| {
            let entry = self.known.get(name).filter(|entry| entry.until == Some(*until))?;
            Some((*until, &**name, entry.id))
        })
    }

    pub fn restore_unsettled(&mut self, name: &str, id: u64) -> Arc<str> {
        let name: Arc<str> = name.into();
        self.known.insert(name.clone(), Entry { id, until: None });
        name
    }

    pub fn restore_leaving(&mut self, name: &str, id: u64, until: Time) {
        let name: Arc<str> = name.into();
        self.known.insert(name.clone(), Entry { id, until: Some(until) });
        self.leaving.push_back((until, name));
    }

    pub fn restore_inserted(&mut self, inserted: u64) {
        self.inserted = inserted;
    }

    fn forget(&mut self, now: Time) {
        for _ in 0..FORGOTTEN {
            if self.leaving.front().is_none_or(|(until, _)| *until > now) {
                break;
            }
            let (until, name) = self.leaving.pop_front().expect("just seen");
            // The string may have been put again since.
            if self.known.get(&name).is_some_and(|entry| entry.until == Some(until)) {
                self.known.remove(&name);
            }
        }
        if self.known.len() * 8 < self.known.capacity() && self.known.capacity() > 1024 {
            self.known.shrink_to(self.known.len() * 2);
        }
        if self.leaving.len() * 8 < self.leaving.capacity() && self.leaving.capacity() > 1024 {
            self.leaving.shrink_to(self.leaving.len() * 2);
        }
    }
}
