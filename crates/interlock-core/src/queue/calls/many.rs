//! Many messages under one lock: what a batch in this process costs.

use super::lease::LeaseLost;
use crate::key::{Key, KeyRef};
use crate::queue::scheduler::{Handle, NoRoom, Put, Scheduler};
use crate::queue::schedules::trace::{Call, PutCall};
use crate::queue::types::message::{Message, KEYED};
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
        self.begin_usual(now, || {
            Call::PutMany(puts.clone().map(|put| PutCall::from(&put)).collect())
        });
        let room = self.room(ends.len(), 0);
        let looks = self.minds(keys, &[]);
        if looks && room != Err(NoRoom::TooLarge) {
            let puts: Vec<Put<'_>> = puts.clone().collect();
            self.room_behind(&puts)?;
        }
        room?;
        debug_assert!(!self.numbers.are_times(), "their ids follow each other");
        let first = self.numbers.next();
        if !looks && self.enter_unnoticed(ends.len() as u64) {
            for ((id, put), payload) in (first..).zip(puts).zip(payloads.drain(..)) {
                let flags = if put.keys.is_empty() { 0 } else { KEYED };
                let new = Message { id, payload: Some(payload), flags, ..Message::default() };
                self.insert_in_lanes(new, put.keys, put.shared);
                if self.lanes.has_deep() {
                    self.watch.entered(0, self.now, &mut self.lanes);
                }
            }
        } else {
            for (put, payload) in puts.zip(payloads.drain(..)) {
                self.enter_at_once(&put, Some(payload), None);
            }
        }
        Ok(first)
    }

    /// Counts messages of a batch that nothing is to be noted of one by one, and draws their ids. False:
    /// something is, and nothing was done.
    #[inline(always)]
    fn enter_unnoticed(&mut self, count: u64) -> bool {
        let unsettled = self.counts.unsettled() + count;
        if self.feed.is_on() || self.engine.weighs() || self.watch.says(unsettled, self.now) {
            return false;
        }
        let first = self.numbers.draw_many(count);
        self.counts.entered(count);
        if count > 0 && self.numbers.note(first, self.now) {
            self.advance_oldest(first);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::key::KeyRef;
    use crate::queue::parts::watch::{Limits, Watch};
    use crate::queue::scheduler::{Put, Scheduler};
    use crate::queue::types::{Kind, Options};

    /// The whole state is compared, and what the watch says.
    #[test]
    fn a_batch_leaves_the_queue_as_the_general_way_leaves_it() {
        let mut rng = fastrand::Rng::with_seed(29);
        let names: Vec<String> = (0..12).map(|n| format!("key:{n}")).collect();
        let limits = Limits { depth: 40, lane_depth: 5, slow_wait: 3_000_000 };
        let watched = || Scheduler::<u64>::new(Options::default(), Watch::new(limits));
        let (mut quick, mut general) = (watched(), watched());
        let (mut now, mut payload, mut said) = (1_000, 0, 0);
        for round in 0..4_000 {
            now += [0, 1, 90, 400_000][rng.usize(..4)];
            let count = rng.usize(..9);
            let sets: Vec<Vec<KeyRef<'_>>> = (0..count)
                .map(|_| {
                    let each = (0..rng.usize(..4)).map(|_| &names[rng.usize(..names.len())]);
                    each.map(|name| KeyRef::new(name.as_bytes())).collect()
                })
                .collect();
            let ends: Vec<usize> = (1..=count).map(|n| sets[..n].concat().len()).collect();
            let puts: Vec<Put<'_>> =
                sets.iter().map(|keys| Put { keys, ..Put::default() }).collect();
            let mut payloads: Vec<u64> = (payload..payload + count as u64).collect();
            payload += count as u64;
            let mut same: Vec<Option<u64>> = payloads.iter().copied().map(Some).collect();
            let first = quick.put_keyed(now, &sets.concat(), &ends, &mut payloads).unwrap();
            let placed = general.put_many(now, &puts, &mut same).unwrap();
            let ids: Vec<u64> = placed.iter().map(|placed| placed.id).collect();
            assert_eq!(ids, (first..first + count as u64).collect::<Vec<_>>());
            let limit = rng.usize(..if general.unsettled() > 60 { 40 } else { 7 });
            for scheduler in [&mut quick, &mut general] {
                let mut handles = Vec::new();
                scheduler.lease_many(now, Kind::Any, limit, 1, |_, grant| {
                    handles.push(grant.handle);
                });
                for handle in handles {
                    assert!(scheduler.ack(now, handle).is_ok());
                }
            }
            let dump = |scheduler: &Scheduler<u64>| {
                let mut bytes = Vec::new();
                let payload = |payload: &u64, out: &mut Vec<u8>| out.push(*payload as u8);
                scheduler.dump(&mut bytes, payload);
                bytes
            };
            assert!(dump(&quick) == dump(&general), "in round {round}");
            let events = quick.watch().take_events();
            said += events.len();
            assert_eq!(events, general.watch().take_events(), "in round {round}");
            assert_eq!(quick.next_due(), general.next_due(), "in round {round}");
        }
        assert!(said > 100, "{said} events");
    }
}
