//! Many messages under one lock: what a batch in this process costs.

use super::lease::LeaseLost;
use crate::key::{Key, KeyRef};
use crate::queue::scheduler::{Handle, NoRoom, Put, Scheduler};
use crate::queue::schedules::trace::{Call, PutCall};
use crate::queue::types::Time;
use crate::queue::{Ended, Inner, Queue};
use crate::sync::RawLock;

impl<P, L: RawLock> Queue<P, L> {
    /// Acknowledges several leases at one time. For each in turn, under the lock, `show` is called with
    /// each key of the message, before it is forgotten, and whether it is shared; then `done` with the
    /// number of these keys, or the error. The payloads are appended to `payloads`, to be dropped outside
    /// the lock.
    ///
    /// ```
    /// # use interlock_core::key::{Key, KeyRef};
    /// # use interlock_core::queue::{scheduler::Put, types::Options, Queue};
    /// # let queue = Queue::new(Options::default());
    /// let (a, b) = ([KeyRef::new(b"a")], [KeyRef::new(b"b")]);
    /// queue.put(&Put { keys: &a, shared: &b, ..Put::default() }, "mail").unwrap();
    /// let (grant, _) = queue.get(|_, _| ()).unwrap();
    /// let (mut keys, mut outcomes, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
    /// let handles = [grant.handle, grant.handle];
    /// let show = |key: &Key, shared| keys.push((key.clone(), shared));
    /// queue.ack_many(handles, show, |outcome| outcomes.push(outcome.is_ok()), &mut payloads);
    /// assert_eq!((payloads, outcomes), (vec!["mail"], vec![true, false]));
    /// assert_eq!(keys, [(Key::new(b"a"), false), (Key::new(b"b"), true)]);
    /// ```
    pub fn ack_many(
        &self,
        handles: impl IntoIterator<Item = Handle>,
        mut show: impl FnMut(&Key, bool),
        mut done: impl FnMut(Result<usize, LeaseLost>),
        payloads: &mut Vec<P>,
    ) {
        self.locked(|inner, clock| {
            let scheduler = &mut inner.scheduler;
            // As for one ack, the clock is read only if something may be due.
            let timed = scheduler.timed() || clock.is_manual();
            let now = if timed { clock.now() } else { scheduler.last_time() };
            for handle in handles {
                let mut keys = 0;
                let count = |key: &Key, shared| {
                    keys += 1;
                    show(key, shared);
                };
                let acked = scheduler.ack_showing(now, handle, count);
                done(acked.map(|payload| {
                    payloads.extend(payload);
                    keys
                }));
            }
        });
    }

    /// Puts messages that name nothing but keys, held alone, if there is room for all of them: each of
    /// `payloads` with the keys that end at its place in `ends`. Returns the first one's id; those of the
    /// others follow it. The payloads are taken only if that was done.
    ///
    /// ```
    /// # use interlock_core::key::KeyRef;
    /// # use interlock_core::queue::{types::Options, Queue};
    /// # let queue = Queue::new(Options::default());
    /// let keys = [KeyRef::new(b"a"), KeyRef::new(b"b")];
    /// let mut payloads = vec!["of a", "of none", "of b"];
    /// let first = queue.try_put_keyed(&keys, &[1, 1, 2], &mut payloads).unwrap().unwrap();
    /// assert_eq!((first, payloads.len()), (1, 0));
    /// assert_eq!(queue.get(|payload, _| *payload).unwrap().1, "of a");
    /// ```
    pub fn try_put_keyed(
        &self,
        keys: &[KeyRef<'_>],
        ends: &[usize],
        payloads: &mut Vec<P>,
    ) -> Result<Result<u64, NoRoom>, Ended> {
        self.quick(|inner, now| {
            if inner.closed {
                return Err(Ended::ShutDown);
            }
            let Inner { scheduler, waiters, .. } = inner;
            if waiters.keeps_room(None, scheduler, now) {
                return Ok(Err(NoRoom::Full));
            }
            let placed = scheduler.put_keyed(now, keys, ends, payloads);
            if placed.is_ok() && !ends.is_empty() {
                waiters.took_room(None, now);
            }
            Ok(placed)
        })
    }
}

impl<P> Scheduler<P> {
    /// See `Queue::try_put_keyed`.
    pub(in crate::queue) fn put_keyed(
        &mut self,
        now: Time,
        keys: &[KeyRef<'_>],
        ends: &[usize],
        payloads: &mut Vec<P>,
    ) -> Result<u64, NoRoom> {
        let starts = std::iter::once(&0).chain(ends);
        let puts = starts
            .zip(ends)
            .map(|(&start, &end)| Put { keys: &keys[start..end], ..Put::default() });
        self.begin(now, || Call::PutMany(puts.clone().map(|put| PutCall::from(&put)).collect()));
        self.room(ends.len(), 0)?;
        debug_assert!(!self.numbers.are_times(), "their ids follow each other");
        let first = self.numbers.next();
        for (put, payload) in puts.zip(payloads.drain(..)) {
            self.enter_at_once(&put, Some(payload));
        }
        Ok(first)
    }
}
