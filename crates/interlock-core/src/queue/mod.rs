//! Messages that share a key are leased in order and never at the same time; others in parallel.
//!
//! [`Queue`] is the lock and the waiting around a [`scheduler::Scheduler`], which decides.
//!
//! ```
//! use interlock_core::key::KeyRef;
//! use interlock_core::queue::{scheduler::Put, types::Options, Queue};
//!
//! let queue = Queue::new(Options::default());
//! let keys = [KeyRef::new(b"account:1"), KeyRef::new(b"account:2")];
//! queue.put(&Put { keys: &keys, ..Put::default() }, "transfer").unwrap();
//! let (grant, payload) = queue.get(|payload, _| *payload).unwrap();
//! assert_eq!(payload, "transfer");
//! queue.ack(grant.handle).unwrap();
//! ```

pub mod calls;
pub mod parts;
pub mod scheduler;
pub mod schedules;
pub mod types;
pub mod waiting;

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use crate::clock::Clock;
use crate::key::Key;
use crate::sync::{give_memory_back, Mutex, Parker, RawLock, ThreadLock};
use calls::coalesce::Differs;
use calls::lease::{Failed, LeaseLost};
use parts::watch::{Event, Watch};
use scheduler::{Grant, Handle, NoRoom, Placed, Put, Scheduler};
use types::{Kind, Options, Time};
use waiting::waiters::{Wait, Waiters, Want};

/// A queue that threads and tasks share; its lock `L` may cost nothing where callers come one at a time.
pub struct Queue<P, L: RawLock = ThreadLock> {
    inner: Mutex<Inner<P>, L>,
    clock: Clock,
    /// Something worth saying was noted by a call; see [`Queue::take_events`].
    noted: AtomicBool,
}

struct Inner<P> {
    scheduler: Scheduler<P>,
    waiters: Waiters,
    closed: bool,
    /// Shut down immediately: a get that finds nothing does not wait for leased messages.
    over: bool,
}

/// The reason why a call that may wait gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The queue is shut down, and for a get: nothing unsettled is left.
    ShutDown,
    TimedOut,
    /// A get of a queue that is shut down: all that is unsettled waits for those who get so (clause 25).
    Stuck,
    /// A put that could be parked, while half of the queue's bound is (clause 31).
    Parked,
    /// Larger than the queue's bound.
    TooLarge,
    /// It may not replace the payload of the message that it would replace (clause 29).
    Differs(Differs),
}

/// The first look at something one may have to wait for.
#[derive(Debug)]
pub enum Look<T> {
    Found(T),
    Ended(Ended),
    /// Sleep until called, or until this time at the latest.
    Sleep(Time),
}

impl<P> Queue<P> {
    pub fn new(options: Options) -> Self {
        Queue::with(options, Watch::off(), Clock::System)
    }

    pub fn with(options: Options, watch: Watch, clock: Clock) -> Self {
        Queue::with_lock(options, watch, clock)
    }
}

impl<P, L: RawLock> Queue<P, L> {
    /// Like `with`, for a lock given by the caller.
    pub fn with_lock(options: Options, watch: Watch, clock: Clock) -> Self {
        let scheduler = Scheduler::new(options, watch);
        let inner = Inner { scheduler, waiters: Waiters::default(), closed: false, over: false };
        Queue { inner: Mutex::new(inner), clock, noted: AtomicBool::new(false) }
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Makes a call under the lock, at a precise time, and wakes whom it concerns.
    ///
    /// ```
    /// # use interlock_core::queue::{scheduler::Put, types::Options, Queue};
    /// # let queue = Queue::new(Options::default());
    /// let id = queue.put(&Put::default(), "mail").unwrap().id;
    /// assert_eq!(queue.call(|scheduler, now| scheduler.cancel(now, id)), Some("mail"));
    /// assert_eq!(queue.call(|scheduler, now| scheduler.stats(now)).cancelled, 1);
    /// ```
    pub fn call<R>(&self, call: impl FnOnce(&mut Scheduler<P>, Time) -> R) -> R {
        self.locked(|inner, clock| call(&mut inner.scheduler, clock.now()))
    }

    /// Like `call`, but reads the coarse clock if nothing can be due.
    #[inline(always)]
    fn quick<R>(&self, call: impl FnOnce(&mut Inner<P>, Time) -> R) -> R {
        self.locked(|inner, _| {
            let now = self.time_of(inner, false);
            call(inner, now)
        })
    }

    #[inline(always)]
    fn locked<R>(&self, call: impl FnOnce(&mut Inner<P>, &Clock) -> R) -> R {
        let mut inner = self.inner.lock();
        let result = call(&mut inner, &self.clock);
        if inner.wants_more() {
            drop(inner);
            self.after_call();
        }
        result
    }

    /// The time of a call: of the coarse clock if nothing can be due.
    #[inline(always)]
    fn time_of(&self, inner: &Inner<P>, exact: bool) -> Time {
        match exact || inner.scheduler.timed() {
            true => self.clock.now(),
            false => self.clock.coarse(),
        }
    }

    /// Does what few calls need once they are made: says that something was noted, gives memory
    /// back, wakes.
    #[inline(never)]
    fn after_call(&self) {
        let mut inner = self.inner.lock();
        if inner.scheduler.watch.has_events() {
            // Relaxed: only a hint to look; the events themselves are read under the lock.
            self.noted.store(true, Ordering::Relaxed);
        }
        if inner.scheduler.counts.take_freed() {
            // Of a drained queue, what is kept for the next messages goes too: it is the peak's.
            inner.scheduler.compact();
            drop(inner);
            give_memory_back();
            inner = self.inner.lock();
        }
        let Inner { scheduler, waiters, closed, .. } = &mut *inner;
        waiters.balance(scheduler, *closed, !self.clock.is_manual(), || self.clock.now());
        let (wakes, _expired) = (std::mem::take(&mut waiters.wakes), scheduler.take_expired_dead());
        let _cancelled = scheduler.take_cancelled();
        // Unlock first, or the woken thread sleeps again; and a payload may have a destructor.
        drop(inner);
        wakes.into_iter().for_each(Waker::wake);
    }

    /// Puts a message; the payload comes back if it was refused or known.
    ///
    /// ```
    /// # use interlock_core::queue::{scheduler::{Put, NoRoom}, types::Options, Queue};
    /// let queue = Queue::new(Options { max_messages: 1, ..Options::default() });
    /// let mut payload = Some("first");
    /// assert!(queue.try_put(&Put::default(), &mut payload).unwrap().is_ok());
    /// assert_eq!(payload.replace("second"), None);
    /// assert_eq!(queue.try_put(&Put::default(), &mut payload).unwrap(), Err(NoRoom::Full));
    /// assert_eq!(payload, Some("second"));
    /// ```
    #[inline(always)]
    pub fn try_put(
        &self,
        put: &Put<'_>,
        payload: &mut Option<P>,
    ) -> Result<Result<Placed, NoRoom>, Ended> {
        // Not `quick`: callers would share one copy of its closure, and a put of plain keys would pay for the rest.
        let mut inner = self.inner.lock();
        let now = self.time_of(&inner, put.delay > 0 || put.coalesce.is_some());
        let placed = inner.try_put(now, put, payload);
        if inner.wants_more() {
            drop(inner);
            self.after_call();
        }
        placed
    }

    /// Like `try_put`; if there is no room, enters the line of waiting puts.
    pub fn put_or_wait(
        &self,
        put: &Put<'_>,
        payload: &mut Option<P>,
        wait: &mut Wait,
        waker: &Waker,
    ) -> Look<Placed> {
        self.look(wait, waker, |inner, now, wait| {
            if inner.closed {
                return Some(Err(Ended::ShutDown));
            }
            let Inner { scheduler, waiters, .. } = inner;
            let kept = waiters.keeps_room(Some(wait), scheduler, now);
            let placed = match kept && scheduler.waits(&[*put]) {
                true => Err(NoRoom::Full),
                false => scheduler.put(now, put, payload),
            };
            match placed {
                Ok(placed) => {
                    if placed.is_new() {
                        waiters.took_room(Some(wait), now);
                    }
                    Some(Ok(placed))
                }
                Err(NoRoom::TooLarge) => Some(Err(Ended::TooLarge)),
                Err(NoRoom::Differs(differs)) => Some(Err(Ended::Differs(differs))),
                Err(NoRoom::Stuck) => Some(Err(Ended::Parked)),
                Err(NoRoom::Full) => {
                    scheduler.wants_room(&[*put], wait);
                    None
                }
            }
        })
    }

    /// Puts a dead letter again, as a put that does not wait (clause 10), and returns its new id;
    /// `None` if the id is unknown.
    pub fn requeue(&self, id: u64) -> Result<Result<Option<u64>, NoRoom>, Ended> {
        self.locked(|inner, clock| {
            let now = clock.now();
            let Inner { scheduler, waiters, closed, .. } = inner;
            if *closed && scheduler.dead_payload(id).is_some() {
                return Err(Ended::ShutDown);
            }
            let kept = waiters.keeps_room(None, scheduler, now);
            if kept && scheduler.requeue_room(id) == Some(Ok(())) {
                return Ok(Err(NoRoom::Full));
            }
            let new = scheduler.requeue(now, id);
            if matches!(new, Ok(Some(_))) {
                waiters.took_room(None, now);
            }
            Ok(new)
        })
    }

    /// Like `put_or_wait`, for a batch.
    pub fn put_many_or_wait(
        &self,
        puts: &[Put<'_>],
        payloads: &mut [Option<P>],
        wait: &mut Wait,
        waker: &Waker,
    ) -> Look<Vec<Placed>> {
        self.look(wait, waker, |inner, now, wait| {
            if inner.closed {
                return Some(Err(Ended::ShutDown));
            }
            let Inner { scheduler, waiters, .. } = inner;
            let kept = waiters.keeps_room(Some(wait), scheduler, now);
            let placed = match kept && scheduler.waits(puts) {
                true => Err(NoRoom::Full),
                false => scheduler.put_many(now, puts, payloads),
            };
            match placed {
                Ok(placed) => {
                    if placed.iter().any(|placed| placed.is_new()) {
                        waiters.took_room(Some(wait), now);
                    }
                    Some(Ok(placed))
                }
                Err(NoRoom::TooLarge) => Some(Err(Ended::TooLarge)),
                Err(NoRoom::Differs(differs)) => Some(Err(Ended::Differs(differs))),
                Err(NoRoom::Stuck) => Some(Err(Ended::Parked)),
                Err(NoRoom::Full) => {
                    scheduler.wants_room(puts, wait);
                    None
                }
            }
        })
    }

    /// Hands out a message if one is ready; `view` sees its payload, under the lock. `consumer` is who
    /// asks, as explanations will show it.
    ///
    /// ```
    /// # use interlock_core::queue::{scheduler::Put, types::{Kind, Options}, Queue};
    /// # let queue = Queue::new(Options::default());
    /// queue.put(&Put::default(), 7).unwrap();
    /// assert!(queue.try_get(Kind::Keyed, 1, |payload, _| *payload).unwrap().is_none());
    /// let (grant, payload) = queue.try_get(Kind::Any, 1, |payload, _| *payload).unwrap().unwrap();
    /// assert_eq!((grant.attempt, payload), (1, 7));
    /// ```
    #[inline(always)]
    pub fn try_get<R>(
        &self,
        kind: Kind,
        consumer: u64,
        view: impl FnMut(&P, &Grant) -> R,
    ) -> Result<Option<(Grant, R)>, Ended> {
        self.quick(|inner, now| match inner.grant(now, kind, consumer, view) {
            None if inner.is_over(false) => Err(Ended::ShutDown),
            found => Ok(found),
        })
    }

    /// Like `try_get`; if no message is ready, enters the line of waiting gets.
    pub fn get_or_wait<R>(
        &self,
        kind: Kind,
        consumer: u64,
        view: impl FnMut(&P, &Grant) -> R,
        wait: &mut Wait,
        waker: &Waker,
    ) -> Look<(Grant, R)> {
        self.look(wait, waker, |inner, now, wait| match inner.grant(now, kind, consumer, view) {
            None => inner.never(wait).map(Err),
            found => found.map(Ok),
        })
    }

    /// Like `get_or_wait`, for up to `limit` messages at once, at least one.
    pub fn get_many_or_wait(
        &self,
        kind: Kind,
        limit: usize,
        consumer: u64,
        mut view: impl FnMut(&P, &Grant),
        wait: &mut Wait,
        waker: &Waker,
    ) -> Look<()> {
        self.look(wait, waker, |inner, now, wait| {
            loop {
                if inner.scheduler.lease_many(now, kind, limit, consumer, &mut view) > 0 {
                    return Some(Ok(()));
                }
                // As in `grant`.
                if !inner.scheduler.has_leftovers() {
                    return inner.never(wait).map(Err);
                }
            }
        })
    }

    /// Waits for the queue to have nothing unsettled.
    pub fn drained_or_wait(&self, wait: &mut Wait, waker: &Waker) -> Look<()> {
        self.look(wait, waker, |inner, now, _| {
            inner.scheduler.tick(now);
            (inner.scheduler.unsettled() == 0).then_some(Ok(()))
        })
    }

    fn look<T>(
        &self,
        wait: &mut Wait,
        waker: &Waker,
        look: impl FnOnce(&mut Inner<P>, Time, &mut Wait) -> Option<Result<T, Ended>>,
    ) -> Look<T> {
        self.locked(|inner, clock| {
            let now = clock.now();
            inner.waiters.back(wait);
            match look(inner, now, wait) {
                Some(found) => {
                    inner.waiters.leave(wait);
                    found.map_or_else(Look::Ended, Look::Found)
                }
                None if wait.deadline <= now => {
                    inner.waiters.leave(wait);
                    Look::Ended(Ended::TimedOut)
                }
                None => {
                    let Inner { scheduler, waiters, .. } = &*inner;
                    let alarm = (!clock.is_manual()).then(|| waiters.due(scheduler)).flatten();
                    let until = inner.waiters.park(wait, waker.clone(), alarm);
                    Look::Sleep(if clock.is_manual() { Time::MAX } else { until })
                }
            }
        })
    }

    /// The waiter goes without what it waited for.
    pub fn give_up(&self, wait: &mut Wait) {
        self.locked(|inner, _| {
            inner.waiters.back(wait);
            inner.waiters.leave(wait);
        });
    }

    /// The message was handled; the payload comes back, to be dropped outside the lock.
    #[inline]
    pub fn ack(&self, handle: Handle) -> Result<Option<P>, LeaseLost> {
        self.ack_showing(handle, |_, _| ())
    }

    /// Like `ack`, and shows the message's keys, each with whether it is shared, before they are
    /// dropped.
    #[inline(always)]
    pub fn ack_showing(
        &self,
        handle: Handle,
        show: impl FnMut(&Key, bool),
    ) -> Result<Option<P>, LeaseLost> {
        self.locked(|inner, clock| {
            // An ack says nothing about time where nothing falls due; not to read the clock is a
            // twentieth of its cost.
            let last = inner.scheduler.last_time();
            let timed = inner.scheduler.timed() || clock.is_manual();
            let now = if timed { clock.now() } else { last };
            inner.scheduler.ack_showing(now, handle, show)
        })
    }

    /// Ends the lease of a message that was not handled: it is retried after `delay` µs, `None` for
    /// the retry policy's backoff; or it is given up.
    ///
    /// ```
    /// # use interlock_core::queue::{calls::lease::Failed, scheduler::Put, types::Options, Queue};
    /// # let queue = Queue::new(Options::default());
    /// queue.put(&Put::default(), "mail").unwrap();
    /// let (grant, _) = queue.get(|_, _| ()).unwrap();
    /// let failed = queue.nack(grant.handle, Some(0), "no answer").unwrap();
    /// assert_eq!(failed, Failed::Again { attempt: 2, after: 0 });
    /// assert!(queue.ack(grant.handle).is_err());
    /// ```
    pub fn nack(
        &self,
        handle: Handle,
        delay: Option<u64>,
        error: &str,
    ) -> Result<Failed, LeaseLost> {
        self.call(|scheduler, now| scheduler.nack(now, handle, delay, error))
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        self.noted.load(Ordering::Relaxed)
    }

    /// Returns and clears the events of the calls so far; the caller reports them.
    pub fn take_events(&self) -> Vec<Event> {
        let mut inner = self.inner.lock();
        self.noted.store(false, Ordering::Relaxed);
        inner.scheduler.watch.take_events()
    }

    /// Empties the queue and forgets who waits, in a process made by `fork`: the messages are handled
    /// in the parent, and the threads that waited are not in the child. The old state comes back, so
    /// that payloads are dropped outside the lock.
    pub fn start_afresh(&self) -> impl Sized {
        let mut inner = self.inner.lock();
        let fresh = inner.scheduler.afresh();
        let fresh_waiters = inner.waiters.afresh();
        let waiters = std::mem::replace(&mut inner.waiters, fresh_waiters);
        (std::mem::replace(&mut inner.scheduler, fresh), waiters)
    }

    /// A manual clock was moved: applies what is due, and calls whose time is up.
    ///
    /// ```
    /// # use interlock_core::clock::Clock;
    /// # use interlock_core::queue::{scheduler::Put, types::Options, parts::watch::Watch, Queue};
    /// let queue = Queue::with(Options::default(), Watch::off(), Clock::manual(0));
    /// queue.put(&Put { delay: 60_000_000, ..Put::default() }, "in a minute").unwrap();
    /// queue.clock().advance(60_000_000);
    /// queue.clock_moved();
    /// assert_eq!(queue.get(|payload, _| *payload).unwrap().1, "in a minute");
    /// ```
    pub fn clock_moved(&self) {
        self.locked(|inner, clock| {
            let now = clock.now();
            inner.scheduler.tick(now);
            while inner.scheduler.next_due().is_some_and(|due| due <= now) {
                inner.scheduler.tick(now);
            }
            inner.waiters.call_late(now);
        });
    }

    /// Shows every unsettled payload, and those of the dead letters, under the lock.
    pub fn for_each_payload(&self, visit: impl FnMut(&P)) {
        self.inner.lock().scheduler.for_each_payload(visit);
    }

    /// Shows the wakers of all who are parked, under the lock.
    pub fn for_each_waker(&self, visit: impl FnMut(&Waker)) {
        self.inner.lock().waiters.for_each_waker(visit);
    }

    /// Waiters parked in whatever call.
    pub fn parked(&self) -> usize {
        self.inner.lock().waiters.parked()
    }

    /// Waiters parked in a get.
    pub fn getters_parked(&self) -> usize {
        self.inner.lock().waiters.parked_for_messages()
    }
}

impl<P> Inner<P> {
    #[inline]
    fn wants_more(&self) -> bool {
        self.scheduler.has_leavings()
            || self.scheduler.counts.have_freed()
            || !self.waiters.none_parked()
            || !self.waiters.wakes.is_empty()
    }

    #[inline(always)]
    fn try_put(
        &mut self,
        now: Time,
        put: &Put<'_>,
        payload: &mut Option<P>,
    ) -> Result<Result<Placed, NoRoom>, Ended> {
        let Inner { scheduler, waiters, closed, .. } = self;
        if *closed {
            return Err(Ended::ShutDown);
        }
        if waiters.keeps_room(None, scheduler, now) && scheduler.waits(&[*put]) {
            return Ok(Err(NoRoom::Full));
        }
        let placed = scheduler.put(now, put, payload);
        if placed.is_ok_and(Placed::is_new) {
            waiters.took_room(None, now);
        }
        Ok(placed)
    }

    #[inline(always)]
    fn grant<R>(
        &mut self,
        now: Time,
        kind: Kind,
        consumer: u64,
        mut view: impl FnMut(&P, &Grant) -> R,
    ) -> Option<(Grant, R)> {
        loop {
            match self.scheduler.lease_showing(now, kind, consumer, &mut view) {
                // The next call may ready messages that one call could not (clause 21).
                None if self.scheduler.has_leftovers() => {}
                granted => return granted,
            }
        }
    }
}

/// Waiting with the caller's own thread, for users in Rust.
impl<P, L: RawLock> Queue<P, L> {
    /// Puts a message, and waits for room.
    pub fn put(&self, put: &Put<'_>, payload: P) -> Result<Placed, Ended> {
        let mut payload = Some(payload);
        let mut wait = Wait::new(Want::Room(1, put.size), Time::MAX);
        self.sleep_between(|waker| self.put_or_wait(put, &mut payload, &mut wait, waker))
    }

    /// Waits for a message of any kind.
    pub fn get<R>(&self, view: impl Fn(&P, &Grant) -> R) -> Result<(Grant, R), Ended> {
        let mut wait = Wait::new(Want::Message(Kind::Any), Time::MAX);
        self.sleep_between(|waker| self.get_or_wait(Kind::Any, 0, &view, &mut wait, waker))
    }

    /// Waits until nothing is unsettled.
    pub fn join(&self) {
        let mut wait = Wait::new(Want::Drained, Time::MAX);
        let _: Result<(), Ended> =
            self.sleep_between(|waker| self.drained_or_wait(&mut wait, waker));
    }

    fn sleep_between<T>(&self, mut look: impl FnMut(&Waker) -> Look<T>) -> Result<T, Ended> {
        let parker = Parker::new();
        let waker = parker.waker();
        loop {
            match look(&waker) {
                Look::Found(found) => return Ok(found),
                Look::Ended(ended) => return Err(ended),
                Look::Sleep(until) => {
                    parker.park(self.time_left(until));
                }
            }
        }
    }

    /// Returns how long a thread may sleep until this time; `None`: until it is woken.
    pub fn time_left(&self, until: Time) -> Option<Duration> {
        let left = |until: Time| Duration::from_micros(until.saturating_sub(self.clock.now()));
        (until != Time::MAX).then(|| left(until))
    }
}
