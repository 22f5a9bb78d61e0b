//! Known dedup strings (clause 13): while unsettled, and for a window after.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;

use crate::queue::parts::index::table;
use crate::queue::types::Time;

#[derive(Debug)]
pub struct Dedup {
    window: u64,
    known: HashMap<Arc<str>, Entry, std::hash::RandomState>,
    /// Settled ones by the time they are forgotten, which rises, for the window is one length.
    leaving: VecDeque<(Time, Arc<str>)>,
    /// The strings whose own window ends before that of a string settled earlier.
    sooner: BinaryHeap<Reverse<(Time, Arc<str>)>>,
    inserted: u64,
    /// Bytes of the strings.
    bytes: usize,
}

/// Strings forgotten at most by one call: more than it can add, so that they become fewer (clause 21).
const FORGOTTEN: usize = 4;

/// Bytes of the head of a string's allocation.
const OF_A_STRING: usize = 32;

#[derive(Debug)]
struct Entry {
    id: u64,
    /// Its own, instead of the queue's.
    window: Option<u64>,
    /// `None` while unsettled.
    until: Option<Time>,
}

impl Dedup {
    pub fn new(window: u64) -> Self {
        Dedup {
            window,
            known: HashMap::default(),
            leaving: VecDeque::new(),
            sooner: BinaryHeap::new(),
            inserted: 0,
            bytes: 0,
        }
    }

    /// Bytes of the strings, and of the tables they are in.
    pub fn bytes(&self) -> usize {
        self.bytes
            + self.known.len() * OF_A_STRING
            + table::<(Arc<str>, Entry)>(self.known.capacity())
            + self.leaving.capacity() * size_of::<(Time, Arc<str>)>()
            + self.sooner.capacity() * size_of::<(Time, Arc<str>)>()
    }

    fn keep(&mut self, name: &Arc<str>, entry: Entry) {
        if self.known.insert(name.clone(), entry).is_none() {
            self.bytes += name.len();
        }
    }

    pub fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    /// The window of a string that is known, if it has one of its own.
    pub fn window_of(&self, name: &str) -> Option<u64> {
        self.known.get(name)?.window
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

    pub fn insert(&mut self, name: &str, id: u64, window: Option<u64>, now: Time) -> Arc<str> {
        self.forget(now);
        self.inserted += 1;
        let name: Arc<str> = name.into();
        self.keep(&name, Entry { id, window, until: None });
        name
    }

    /// Returns the number of strings that became known so far.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The message of this string was settled.
    pub fn settled(&mut self, name: Arc<str>, now: Time) {
        if let Some(entry) = self.known.get_mut(&name) {
            let until = now.saturating_add(entry.window.unwrap_or(self.window));
            entry.until = Some(until);
            self.leave(until, name);
        }
        self.forget(now);
    }

    /// The message of this string was cancelled.
    pub fn cancelled(&mut self, name: &str) {
        self.drop_name(name);
    }

    fn drop_name(&mut self, name: &str) {
        if self.known.remove(name).is_some() {
            self.bytes -= name.len();
        }
    }

    fn leave(&mut self, until: Time, name: Arc<str>) {
        if self.leaving.back().is_none_or(|(last, _)| *last <= until) {
            self.leaving.push_back((until, name));
        } else {
            self.sooner.push(Reverse((until, name)));
        }
    }

    /// Strings that stay known for a while though their messages are settled: until when, and the
    /// message's id; those of the queue's own window in the order in which they are forgotten.
    pub fn leaving(&self) -> impl Iterator<Item = (Time, &str, u64)> {
        let sooner = self.sooner.iter().map(|Reverse(leaving)| leaving);
        self.leaving.iter().chain(sooner).filter_map(|(until, name)| {
            let entry = self.known.get(name).filter(|entry| entry.until == Some(*until))?;
            Some((*until, &**name, entry.id))
        })
    }

    pub fn restore_unsettled(&mut self, name: &str, id: u64, window: Option<u64>) -> Arc<str> {
        let name: Arc<str> = name.into();
        self.keep(&name, Entry { id, window, until: None });
        name
    }

    pub fn restore_leaving(&mut self, name: &str, id: u64, until: Time) {
        let name: Arc<str> = name.into();
        self.keep(&name, Entry { id, window: None, until: Some(until) });
        self.leave(until, name);
    }

    pub fn restore_inserted(&mut self, inserted: u64) {
        self.inserted = inserted;
    }

    fn forget(&mut self, now: Time) {
        for _ in 0..FORGOTTEN {
            let over = |until: &Time| *until <= now;
            let (until, name) = if self.leaving.front().is_some_and(|(until, _)| over(until)) {
                self.leaving.pop_front().expect("just seen")
            } else if self.sooner.peek().is_some_and(|Reverse((until, _))| over(until)) {
                self.sooner.pop().expect("just seen").0
            } else {
                break;
            };
            // The string may have been put again since.
            if self.known.get(&name).is_some_and(|entry| entry.until == Some(until)) {
                self.drop_name(&name);
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

#[cfg(test)]
mod tests {
    use crate::queue::parts::dedup::*;

    #[test]
    fn dedup_strings_are_known_for_their_own_window_and_then_dropped() {
        let mut dedup = Dedup::new(100);
        let windows = [None, Some(0), Some(30), Some(500), None, Some(20)];
        let names: Vec<String> = (0..6).map(|n| n.to_string()).collect();
        for (n, name) in names.iter().enumerate() {
            let known = dedup.insert(name, n as u64, windows[n], 10);
            dedup.settled(known, 10);
        }
        for (n, window) in windows.iter().enumerate() {
            let until = 10 + window.unwrap_or(100);
            assert_eq!(dedup.find(&names[n], until), None);
            assert_eq!(dedup.find(&names[n], until - 1).is_some(), until > 10);
        }
        dedup.forget(600);
        dedup.forget(600);
        assert!(dedup.is_empty() && dedup.sooner.is_empty() && dedup.leaving.is_empty());
        assert_eq!(dedup.bytes, 0);
    }

    #[test]
    fn a_cancelled_dedup_string_is_dropped_and_a_repeated_one_counted_once() {
        let mut dedup = Dedup::new(100);
        for now in [10, 500, 1000] {
            let name = dedup.insert("twelve bytes", now, None, now);
            assert_eq!(dedup.bytes, 12);
            dedup.settled(name, now);
        }
        dedup.insert("seven b", 7, None, 1000);
        assert_eq!(dedup.bytes, 19);
        dedup.cancelled("seven b");
        dedup.cancelled("seven b");
        assert_eq!((dedup.bytes, dedup.known.len()), (12, 1));
    }
}
