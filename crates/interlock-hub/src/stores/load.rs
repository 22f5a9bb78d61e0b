//! Messages that a thread has taken from the queue and not written completely.

use interlock_stores::spool::Spooled;
use interlock_stores::Message;

use super::batch::Batch;

#[derive(Debug)]
pub enum Load {
    /// From the queue.
    Published(Vec<Batch>),
    /// Out of a spool.
    Spooled(Vec<Spooled>),
}

/// The messages of a load that are still to be put somewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Flags of the messages that are done. If it is shorter than the load, later messages are not done.
    done: Vec<bool>,
    all: bool,
}

impl Load {
    pub fn is_empty(&self) -> bool {
        match self {
            Load::Published(batches) => batches.is_empty(),
            Load::Spooled(messages) => messages.is_empty(),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Load::Published(batches) => batches.iter().map(Batch::len).sum(),
            Load::Spooled(messages) => messages.len(),
        }
    }

    /// Bytes of the payloads.
    pub fn payload(&self) -> u64 {
        match self {
            Load::Published(batches) => batches.iter().map(Batch::payload).sum(),
            Load::Spooled(messages) => messages.iter().map(|one| one.payload.len() as u64).sum(),
        }
    }

    /// Bytes that it counts for in the bound of a queue.
    pub fn weight(&self) -> usize {
        match self {
            Load::Published(batches) => batches.iter().map(Batch::weight).sum(),
            Load::Spooled(_) => 0,
        }
    }

    /// µs since 1970 at which its first message was published.
    pub fn time(&self) -> Option<u64> {
        self.messages().next().map(|message| message.time)
    }

    pub fn messages(&self) -> Messages<'_> {
        match self {
            Load::Published(batches) => {
                Messages::Published(Box::new(batches.iter().flat_map(Batch::iter)))
            }
            Load::Spooled(messages) => Messages::Spooled(messages.iter()),
        }
    }
}

impl Default for Load {
    fn default() -> Self {
        Load::Published(Vec::new())
    }
}

pub enum Messages<'a> {
    Published(Box<dyn Iterator<Item = Message<'a>> + 'a>),
    Spooled(std::slice::Iter<'a, Spooled>),
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        match self {
            Messages::Published(messages) => messages.next(),
            Messages::Spooled(messages) => messages.next().map(|one| Message {
                topic: &one.topic,
                payload: &one.payload,
                time: one.time,
                origin: one.origin,
                number: one.number,
            }),
        }
    }
}

impl Left {
    pub fn is_left(&self, place: usize) -> bool {
        !self.all && !self.done.get(place).copied().unwrap_or(false)
    }

    /// The messages that are left, each with its place in the load.
    pub fn of<'a>(&'a self, load: &'a Load) -> impl Iterator<Item = (usize, Message<'a>)> {
        load.messages().enumerate().filter(|(place, _)| self.is_left(*place))
    }

    pub fn done(&mut self, place: usize) {
        if self.done.len() <= place {
            self.done.resize(place + 1, false);
        }
        self.done[place] = true;
    }

    pub fn all_done(&mut self) {
        self.all = true;
    }

    /// Marks the first `count` remaining messages as done.
    pub fn first_done(&mut self, count: usize) {
        let mut place = 0;
        for _ in 0..if self.all { 0 } else { count } {
            while !self.is_left(place) {
                place += 1;
            }
            self.done(place);
        }
    }

    /// The number of messages at the beginning of the load that are done.
    pub fn leading(&self, load: &Load) -> usize {
        if self.all {
            return load.len();
        }
        self.done.iter().take_while(|done| **done).count()
    }

    pub fn count(&self, load: &Load) -> u64 {
        if self.all {
            return 0;
        }
        (load.len() - self.done.iter().filter(|done| **done).count()) as u64
    }

    /// Adds what is left there.
    pub fn with(&mut self, other: &Left) {
        match (self.all, other.all) {
            (_, true) => {}
            (true, false) => *self = other.clone(),
            (false, false) => {
                self.done.truncate(other.done.len());
                for (mine, theirs) in self.done.iter_mut().zip(&other.done) {
                    *mine &= theirs;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::stores::load::*;

    fn load(count: usize) -> Load {
        let mut batch = Batch::default();
        (0..count).for_each(|_| batch.push(b"t", b"x", 0));
        Load::Published(vec![batch])
    }

    #[test]
    fn the_remaining_load_is_what_no_store_has_finished() {
        let load = load(4);
        let mut left = Left::default();
        assert_eq!((left.count(&load), left.leading(&load)), (4, 0));
        left.done(2);
        left.first_done(2);
        assert_eq!((left.count(&load), left.leading(&load)), (1, 3));
        assert_eq!(left.of(&load).map(|(place, _)| place).collect::<Vec<_>>(), [3]);
        let mut other = Left::default();
        other.done(1);
        other.done(3);
        left.with(&other);
        assert_eq!(left.of(&load).map(|(place, _)| place).collect::<Vec<_>>(), [0, 2, 3]);
        other.all_done();
        left.with(&other);
        assert_eq!(left.count(&load), 3);
        other.with(&left);
        assert_eq!((other.count(&load), other == left), (3, true));
        left.all_done();
        assert_eq!((left.count(&load), left.leading(&load)), (0, 4));
    }
}
