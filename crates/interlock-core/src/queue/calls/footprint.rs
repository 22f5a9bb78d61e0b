//! Memory that a scheduler takes beside payloads: counted, not guessed, for a bound is worth what
//! it counts.

use crate::queue::parts::delays::Delays;
use crate::queue::parts::gate::Gate;
use crate::queue::parts::lane::Lanes;
use crate::queue::parts::parked::Parked;
use crate::queue::parts::ready::Ready;
use crate::queue::parts::records::Records;
use crate::queue::parts::timers::Timers;
use crate::queue::scheduler::Scheduler;

impl<P> Scheduler<P> {
    /// Bytes of records and tables, used or kept for their room.
    #[cold]
    pub fn structure(&self) -> usize {
        self.records.bytes()
            + self.leases.bytes()
            + self.lanes.bytes()
            + self.ready.bytes()
            + self.numbers.bytes()
            + self.backoffs.bytes()
            + self.delays.bytes()
            + self.gate.own_bytes()
            + self.gate.bytes()
            + self.parked.own_bytes()
            + self.parked.table_bytes()
    }

    /// Bytes of what is kept beside the messages: errors, dedup strings, dead letters without their
    /// payloads and keys, paused keys.
    #[inline]
    pub fn kept_bytes(&self) -> usize {
        self.records.error_bytes()
            + self.dedup.bytes()
            + self.coalescing.memory()
            + self.runs.memory()
            + self.dead.bytes()
            + self.lanes.empty_bytes()
    }

    /// Keys of all messages in lanes.
    #[inline]
    pub fn edges(&self) -> usize {
        self.lanes.edges()
    }

    /// Returns whether nothing ever came into it, and nothing is paused.
    #[inline]
    pub fn is_unused(&self) -> bool {
        self.numbers.are_unused() && self.lanes.paused() == 0 && !self.pauses.of_queue()
    }

    /// Returns whether nothing is unsettled, dead, known or paused.
    pub fn is_empty(&self) -> bool {
        self.counts.unsettled() == 0
            && self.dead.len() == 0
            && self.dedup.is_empty()
            && self.lanes.paused() == 0
            && !self.pauses.of_queue()
    }

    /// Returns whether no number was given yet, neither here nor where its series continues from.
    pub fn gave_nothing(&self) -> bool {
        self.numbers.next() == 1 && self.leases.last_token() == 0
    }

    /// Frees the memory kept for future messages if the queue is empty. Returns whether it was.
    pub fn compact(&mut self) -> bool {
        let idle =
            self.counts.unsettled() == 0 && self.lanes.paused() == 0 && self.pauses.keep_nothing();
        if idle {
            self.records = Records::new();
            self.leases.compact();
            self.lanes = Lanes::new(self.watch.lane_depth());
            self.ready = Ready::default();
            self.backoffs = Timers::default();
            self.delays = Delays::default();
            self.barriers.compact();
            if !self.gate.is_none_or(Gate::is_unused) {
                self.gate.compact();
            }
            self.gate.free_if(Gate::is_unused);
            self.parked.free_if(Parked::is_unused);
            self.coalescing.compact();
            self.runs.compact();
        }
        idle
    }
}

#[cfg(test)]
mod tests {
    use crate::key::KeyRef;
    use crate::queue::parts::watch::Watch;
    use crate::queue::scheduler::{Put, Scheduler};
    use crate::queue::types::{Kind, Options};

    #[test]
    fn a_queue_that_held_few_messages_keeps_little_memory() {
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
