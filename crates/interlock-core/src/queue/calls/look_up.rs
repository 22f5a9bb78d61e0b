//! Calls that read the scheduler without changing it.

use crate::key::Key;
use crate::queue::parts::watch::Watch;
use crate::queue::scheduler::Scheduler;
use crate::queue::types::{Options, State, Time};

impl<P> Scheduler<P> {
    /// The keys of an unsettled message or a dead letter, in the order the put named them, with whether
    /// shared.
    pub fn keys_of_id(&self, id: u64) -> Option<Vec<(Key, bool)>> {
        let dead = || self.dead.get(id).map(|dead| dead.keys.clone());
        self.records.find(id).map(|at| self.keys_of(at)).or_else(dead)
    }

    /// The token of the lease of a message, if it is leased.
    pub fn token_of(&self, id: u64) -> Option<u64> {
        let message = &self.records[self.records.find(id)?];
        (message.state == Some(State::Leased)).then(|| self.leases[message.hold].token)
    }

    /// Returns what keeps the queue from draining: held ids, what is paused, delayed ids, leased
    /// ids, parked ids; at most `limit` of each, ids rising.
    pub fn undrained(&self, limit: usize) -> (Vec<u64>, Vec<Vec<u8>>, [Vec<u64>; 3]) {
        let (mut delayed, mut leased) = (Vec::new(), Vec::new());
        let parked = self.parked.parkings().filter(|(_, one)| one.under.is_some());
        let mut parked: Vec<u64> = parked.map(|(at, _)| self.records[at].id).take(limit).collect();
        delayed.extend(self.delays.ids().take(limit));
        leased
            .extend(self.leases.all().map(|(_, lease)| self.records[lease.message].id).take(limit));
        let held = self.counts.held_ids().take(limit).collect();
        [&mut delayed, &mut leased, &mut parked].into_iter().for_each(|ids| ids.sort_unstable());
        let mut paused: Vec<Vec<u8>> = Vec::new();
        self.scan_paused(0, limit, |key| paused.push(key.to_vec()));
        paused.truncate(limit);
        paused.sort_unstable();
        (held, paused, [delayed, leased, parked])
    }

    /// Ids of what a consumer leases, rising.
    pub fn leased_by(&self, consumer: u64) -> Vec<u64> {
        let leases = self.leases.all().filter(|(_, lease)| lease.consumer == consumer);
        let mut ids: Vec<u64> = leases.map(|(_, l)| self.records[l.message].id).collect();
        ids.sort_unstable();
        ids
    }

    /// Unsettled messages.
    #[inline]
    pub fn unsettled(&self) -> u64 {
        self.counts.unsettled()
    }

    /// Unsettled messages that are not leased.
    #[inline]
    pub fn queued(&self) -> u64 {
        self.counts.unsettled() - self.leases.len() as u64
    }

    /// Messages leased.
    #[inline]
    pub(in crate::queue) fn leases_out(&self) -> usize {
        self.leases.len()
    }

    /// Returns whether, of what is not ready, only leased messages can end: neither time nor the usual
    /// actions of an operator would change anything.
    pub(in crate::queue) fn moves_with_leases_only(&self) -> bool {
        let due = self.leases.timed() + self.backoffs.len() + self.delays.len();
        let paused = self.pauses.of_queue() || self.lanes.paused() > 0;
        due == 0 && self.counts.held() == 0 && !paused && !self.has_leftovers()
    }

    /// Returns whether the exact time matters to the next call.
    #[inline]
    pub fn timed(&self) -> bool {
        self.options.lease.is_some()
            || self.watch.wants_handled
            || !self.dedup.is_empty()
            || self.leases.timed() + self.backoffs.len() + self.delays.len() > 0
    }

    /// The time of the last call.
    #[inline]
    pub fn last_time(&self) -> Time {
        self.now
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn watch(&mut self) -> &mut Watch {
        &mut self.watch
    }

    /// The next message in order of choice is left alone; every unsettled payload is shown to `visit`.
    pub fn for_each_payload(&self, mut visit: impl FnMut(&P)) {
        self.records.all().filter_map(|(_, m)| m.payload.as_ref()).for_each(&mut visit);
        self.dead.iter().for_each(|dead| visit(&dead.payload));
        self.dead.expired().iter().for_each(visit);
    }
}
