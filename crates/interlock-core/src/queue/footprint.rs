//! Memory that a scheduler takes beside payloads: counted, not guessed, for a bound is worth what
//! it counts.

use hashbrown::HashMap;

use crate::queue::batch::Batches;
use crate::queue::due::Away;
use crate::queue::index::{table, Index};
use crate::queue::lane::Lanes;
use crate::queue::ready::Ready;
use crate::queue::scheduler::Scheduler;
use crate::queue::slab::Slab;
use crate::queue::timers::Timers;

/// Bytes of the two lists of a delayed message's keys.
const OF_AWAY: usize = 32;

impl<P> Scheduler<P> {
    /// Bytes of records and tables, used or kept for their room.
    #[cold]
    pub fn structure(&self) -> usize {
        let away = table::<(u64, Away)>(self.away.capacity()) + self.away.len() * OF_AWAY;
        self.messages.bytes()
            + self.extras.bytes()
            + self.leases.bytes()
            + self.batches.bytes()
            + self.lanes.bytes()
            + self.keyed.bytes()
            + self.unkeyed.bytes()
            + self.index.bytes()
            + self.put_times.bytes()
            + self.deadlines.bytes()
            + self.backoffs.bytes()
            + self.delays.bytes()
            + away
            + self.granted.capacity() * size_of::<u32>()
            + self.late.capacity() * size_of::<(u32, u64)>()
    }

    /// Bytes of what is kept beside the messages: errors, dedup strings, dead letters without their
    /// payloads and keys, paused keys.
    #[inline]
    pub fn aside(&self) -> usize {
        self.errors + self.dedup.bytes() + self.dead.bytes() + self.lanes.empty_bytes()
    }

    /// Keys of all messages that stand in lanes.
    #[inline]
    pub fn edges(&self) -> usize {
        self.lanes.edges()
    }

    /// Returns whether nothing ever came into it, and nothing is paused.
    #[inline]
    pub fn is_unused(&self) -> bool {
        self.next == self.first && self.lanes.paused == 0 && !self.pauses.queue
    }

    /// Returns whether nothing is unsettled, dead, known or paused.
    pub fn is_empty(&self) -> bool {
        self.stats.unsettled == 0
            && self.dead.len() == 0
            && self.dedup.is_empty()
            && self.lanes.paused == 0
            && !self.pauses.queue
    }

    /// No number was given yet, here or where it goes on from.
    pub fn gave_nothing(&self) -> bool {
        self.next == 1 && self.last_token == 0
    }

    /// Gives back what is kept for the next messages, if there are none now. Whether there were none.
    pub fn compact(&mut self) -> bool {
        let idle = self.stats.unsettled == 0
            && self.lanes.paused == 0
            && self.pauses.parked.is_empty()
            && self.pauses.returning.is_empty();
        if idle {
            self.messages = Slab::new();
            self.extras = Slab::new();
            self.leases = Slab::new();
            self.batches = Batches::default();
            self.lanes = Lanes::new(self.watch.lane_depth());
            (self.keyed, self.unkeyed) = (Ready::default(), Ready::default());
            self.index = Index::new();
            self.deadlines = Timers::default();
            self.backoffs = Timers::default();
            self.delays = Timers::default();
            self.away = HashMap::default();
            self.granted = Vec::new();
            self.late = Default::default();
            self.barriers.compact();
        }
        idle
    }
}

#[cfg(test)]
mod tests {
    use crate::key::KeyRef;
    use crate::queue::scheduler::{Put, Scheduler};
    use crate::queue::types::{Kind, Options};
    use crate::queue::watch::Watch;

    #[test]
    fn a_queue_that_held_few_messages_keeps_little() {
        let mut scheduler: Scheduler<()> = Scheduler::new(Options::default(), Watch::off());
        for now in 1..=100 {
            let keys = [KeyRef::new(b"a"), KeyRef::new(b"b")];
            let put = Put { keys: &keys, ..Put::default() };
            scheduler.put(now, &put, &mut Some(())).unwrap();
            let grant = scheduler.lease(now, Kind::Any, 0).unwrap();
            scheduler.ack(now, grant.handle).unwrap();
        }
        assert!(scheduler.structure() < 4096, "{} bytes", scheduler.structure());
    }
}
