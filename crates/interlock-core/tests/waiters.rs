//! The waiters that are called, and how often: seen through wakers that count.
//!
//! That no wake is lost in any order of threads is held by `shuttle`; here, that none is needless.

#![cfg(not(shuttle))]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Wake, Waker};

use interlock_core::clock::Clock;
use interlock_core::key::KeyRef;
use interlock_core::queue::parts::watch::Watch;
use interlock_core::queue::scheduler::{Grant, Put};
use interlock_core::queue::types::{Kind, Options, RevokeThen, Time};
use interlock_core::queue::waiting::waiters::{Wait, Want};
use interlock_core::queue::{Ended, Look, Queue};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A waiter that looks only when it is called.
struct Waiter {
    wait: Wait,
    count: Arc<Count>,
    waker: Waker,
}

impl Waiter {
    fn new(want: Want, deadline: Time) -> Self {
        let count = Arc::new(Count::default());
        Waiter { wait: Wait::new(want, deadline), waker: Waker::from(count.clone()), count }
    }

    fn getter(queue: &Queue<u32>, kind: Kind) -> Self {
        let mut waiter = Waiter::new(Want::Message(kind), Time::MAX);
        assert!(matches!(waiter.get(queue), Look::Sleep(_)), "there is a message already");
        waiter
    }

    fn get(&mut self, queue: &Queue<u32>) -> Look<u32> {
        let Want::Message(kind) = self.wait.want() else { panic!("a putter gets nothing") };
        match queue.get_or_wait(kind, 0, |p, _| *p, &mut self.wait, &self.waker) {
            Look::Found((_, payload)) => Look::Found(payload),
            Look::Ended(ended) => Look::Ended(ended),
            Look::Sleep(until) => Look::Sleep(until),
        }
    }

    fn put(&mut self, queue: &Queue<u32>) -> Look<u64> {
        let Want::Room(1, size) = self.wait.want() else { panic!("it puts nothing, or many") };
        let (put, mut payload) = (sized(size), Some(0));
        match queue.put_or_wait(&put, &mut payload, &mut self.wait, &self.waker) {
            Look::Found(placed) => Look::Found(placed.id),
            Look::Ended(ended) => Look::Ended(ended),
            Look::Sleep(until) => Look::Sleep(until),
        }
    }

    fn calls(&self) -> usize {
        self.count.0.load(Ordering::Relaxed)
    }
}

fn queue(options: Options) -> Queue<u32> {
    Queue::with(options, Watch::off(), Clock::manual(1))
}

fn put(queue: &Queue<u32>, payload: u32) {
    let placed = queue.try_put(&Put::default(), &mut Some(payload));
    assert!(matches!(placed, Ok(Ok(_))), "{placed:?}");
}

#[test]
fn a_message_wakes_only_the_longest_waiting_getter() {
    let queue = queue(Options::default());
    let mut waiters: Vec<_> = (0..3).map(|_| Waiter::getter(&queue, Kind::Any)).collect();
    put(&queue, 1);
    assert_eq!(waiters.iter().map(Waiter::calls).collect::<Vec<_>>(), [1, 0, 0]);
    put(&queue, 2);
    assert_eq!(waiters.iter().map(Waiter::calls).collect::<Vec<_>>(), [1, 1, 0]);
    assert!(matches!(waiters[1].get(&queue), Look::Found(1)));
    assert!(matches!(waiters[0].get(&queue), Look::Found(2)));
    assert_eq!(waiters[2].calls(), 0);
}

#[test]
fn a_waiter_woken_in_vain_keeps_its_position() {
    let queue = queue(Options::default());
    let mut first = Waiter::getter(&queue, Kind::Any);
    let second = Waiter::getter(&queue, Kind::Any);
    put(&queue, 1);
    assert!(queue.try_get(Kind::Any, 0, |p, _| *p).unwrap().is_some());
    assert!(matches!(first.get(&queue), Look::Sleep(_)));
    put(&queue, 2);
    assert_eq!((first.calls(), second.calls()), (2, 0));
}

#[test]
fn a_message_wakes_no_getter_that_cannot_take_it() {
    let queue = queue(Options::default());
    let keyed = Waiter::getter(&queue, Kind::Keyed);
    let putter = Waiter::new(Want::Room(1, 0), Time::MAX);
    put(&queue, 1);
    assert_eq!((keyed.calls(), putter.calls()), (0, 0));
    let unkeyed = Waiter::getter(&queue, Kind::Keyed);
    queue.try_put(&Put { barrier: true, ..Put::default() }, &mut Some(2)).unwrap().unwrap();
    let (grant, _) = queue.try_get(Kind::Unkeyed, 0, |p, _| *p).unwrap().unwrap();
    queue.ack(grant.handle).unwrap();
    assert_eq!((keyed.calls(), unkeyed.calls()), (1, 0), "the barrier is ready now");
}

fn sized(size: u64) -> Put<'static> {
    Put { size, ..Put::default() }
}

/// A putter that sleeps.
fn putter(queue: &Queue<u32>, size: u64, on: u64) -> Waiter {
    let mut waiter = Waiter::new(Want::Room(1, size), Time::MAX);
    waiter.wait = Wait::new(Want::Room(1, size), Time::MAX).on_loop(on);
    assert!(matches!(waiter.put(queue), Look::Sleep(_)), "there is room already");
    waiter
}

#[test]
fn free_room_wakes_only_the_first_putter_that_fits() {
    let queue = queue(Options { max_bytes: 4, ..Options::default() });
    let ids = [1, 2, 1].map(|size| queue.try_put(&sized(size), &mut Some(0)).unwrap().unwrap().id);
    let cancel = |id| assert!(queue.call(|scheduler, now| scheduler.cancel(now, id)).is_some());
    let mut waiters = [4, 3, 2, 1].map(|size| putter(&queue, size, 0));
    let calls = |waiters: &[Waiter]| waiters.iter().map(Waiter::calls).collect::<Vec<_>>();
    cancel(ids[0]);
    assert_eq!(calls(&waiters), [0, 0, 0, 1], "there is room for one byte");
    cancel(ids[1]);
    assert_eq!(calls(&waiters), [0, 0, 0, 1], "one at a time");
    queue.give_up(&mut waiters[3].wait);
    assert_eq!(calls(&waiters), [0, 1, 0, 1], "the first for which three are enough");
    assert!(matches!(waiters[1].put(&queue), Look::Found(_)));
    assert_eq!(calls(&waiters), [0, 1, 0, 1]);
    cancel(ids[2]);
    assert_eq!(calls(&waiters), [0, 1, 0, 1], "one byte is too little for those who are left");
    waiters.iter_mut().for_each(|waiter| queue.give_up(&mut waiter.wait));
}

#[test]
fn a_woken_task_withholds_no_message_or_room_from_threads_or_other_loops() {
    let bounded = queue(Options { max_messages: 1, ..Options::default() });
    let getter = |on| {
        let mut waiter = Waiter::new(Want::Message(Kind::Any), Time::MAX);
        waiter.wait = Wait::new(Want::Message(Kind::Any), Time::MAX).on_loop(on);
        assert!(matches!(waiter.get(&bounded), Look::Sleep(_)));
        waiter
    };
    let calls = |waiters: &[Waiter]| waiters.iter().map(Waiter::calls).collect::<Vec<_>>();
    let mut getters: Vec<_> = [7, 7, 8, 0, 0].map(getter).into();
    put(&bounded, 1);
    assert_eq!(calls(&getters), [1, 0, 1, 1, 0], "of each loop one, and a thread");
    assert!(matches!(getters[3].get(&bounded), Look::Found(1)));
    assert_eq!(calls(&getters), [1, 0, 1, 1, 0]);
    let mut putters: Vec<_> = [7, 0, 8].map(|on| putter(&bounded, 0, on)).into();
    assert!(bounded.call(|scheduler, now| scheduler.revoke(now, 1, RevokeThen::Skip)).is_some());
    assert_eq!(calls(&putters), [1, 1, 0], "the thread runs, and the next one is woken");
    assert!(matches!(putters[1].put(&bounded), Look::Found(_)));
    for waiter in getters.iter_mut().chain(&mut putters) {
        bounded.give_up(&mut waiter.wait);
    }
    // A thread that waits for longer is enough for all.
    let unbounded = queue(Options::default());
    let thread = Waiter::getter(&unbounded, Kind::Any);
    let mut task = Waiter::new(Want::Message(Kind::Any), Time::MAX);
    task.wait = Wait::new(Want::Message(Kind::Any), Time::MAX).on_loop(7);
    assert!(matches!(task.get(&unbounded), Look::Sleep(_)));
    put(&unbounded, 1);
    assert_eq!((thread.calls(), task.calls()), (1, 0));
    put(&unbounded, 2);
    assert_eq!((thread.calls(), task.calls()), (1, 1));
}

#[test]
fn each_group_of_waiters_has_its_own_timekeeper() {
    let queue: Queue<u32> = Queue::new(Options::default());
    let hour = 3_600_000_000;
    queue.try_put(&Put { delay: hour, ..Put::default() }, &mut Some(1)).unwrap().unwrap();
    let mut until = [7, 7, 0, 0].map(|on| {
        let mut waiter = Waiter::new(Want::Message(Kind::Any), Time::MAX);
        waiter.wait = Wait::new(Want::Message(Kind::Any), Time::MAX).on_loop(on);
        match waiter.get(&queue) {
            Look::Sleep(until) => (until, waiter),
            look => panic!("{look:?} of a message that is not due"),
        }
    });
    let knows: Vec<bool> = until.iter().map(|(until, _)| *until != Time::MAX).collect();
    assert_eq!(knows, [true, false, true, false]);
    queue.give_up(&mut until[2].1.wait);
    let calls: Vec<usize> = until.iter().map(|(_, waiter)| waiter.calls()).collect();
    assert_eq!(calls, [0, 0, 0, 1]);
}

#[test]
fn a_shutdown_wakes_every_waiter_once() {
    let queue = queue(Options { max_messages: 1, ..Options::default() });
    let mut getter = Waiter::getter(&queue, Kind::Keyed);
    put(&queue, 1);
    let mut putter = Waiter::new(Want::Room(1, 0), Time::MAX);
    let mut look =
        || queue.put_or_wait(&Put::default(), &mut Some(2), &mut putter.wait, &putter.waker);
    assert!(matches!(look(), Look::Sleep(_)));
    queue.shut_down();
    assert!(matches!(look(), Look::Ended(Ended::ShutDown)));
    assert_eq!((getter.calls(), putter.calls()), (0, 1));
    let (grant, _) = queue.try_get(Kind::Any, 0, |p, _| *p).unwrap().unwrap();
    queue.ack(grant.handle).unwrap();
    assert_eq!(getter.calls(), 1);
    assert!(matches!(getter.get(&queue), Look::Ended(Ended::ShutDown)));
}

/// Clause 25: the remaining messages are held by those who wait, and one of them is notified.
#[test]
fn after_a_shutdown_waiters_for_each_other_are_woken_once() {
    let queue = queue(Options::default());
    (1..=3).for_each(|n| put(&queue, n));
    let leases = [0; 3].map(|_| queue.try_get(Kind::Any, 0, |p, _| *p).unwrap().unwrap().0);
    let holding = |grant: &Grant| {
        let mut waiter = Waiter::new(Want::Message(Kind::Any), Time::MAX);
        waiter.wait.holds = vec![(grant.id, grant.handle.token)];
        assert!(matches!(waiter.get(&queue), Look::Sleep(_)));
        waiter
    };
    let mut waiters = [holding(&leases[0]), holding(&leases[1])];
    let calls = |waiters: &[Waiter; 2]| waiters.each_ref().map(Waiter::calls);
    queue.shut_down();
    assert_eq!(calls(&waiters), [0, 0], "the third lease is elsewhere");
    queue.ack(leases[2].handle).unwrap();
    assert_eq!(calls(&waiters), [1, 1]);
    assert!(matches!(waiters[0].get(&queue), Look::Ended(Ended::Stuck)));
    assert!(matches!(waiters[1].get(&queue), Look::Sleep(_)), "the first may settle now");
    queue.ack(leases[0].handle).unwrap();
    assert_eq!(calls(&waiters), [1, 2]);
    assert!(matches!(waiters[1].get(&queue), Look::Ended(Ended::Stuck)));
    queue.ack(leases[1].handle).unwrap();
}

/// In a child process threads are gone, but futures that waited are still there and are dropped.
#[test]
fn a_waiter_from_before_a_fork_is_ignored_in_the_child() {
    let queue = queue(Options::default());
    let mut called = Waiter::getter(&queue, Kind::Any);
    let mut parked = Waiter::getter(&queue, Kind::Any);
    put(&queue, 1);
    drop(queue.start_afresh());
    let fresh = Waiter::getter(&queue, Kind::Any);
    queue.give_up(&mut called.wait);
    assert!(matches!(parked.get(&queue), Look::Sleep(_)));
    put(&queue, 2);
    assert_eq!((fresh.calls(), parked.calls()), (1, 0));
    put(&queue, 3);
    assert_eq!((fresh.calls(), parked.calls()), (1, 1));
    assert!(matches!(parked.get(&queue), Look::Found(2)));
}

#[test]
fn only_the_timekeeper_limits_its_sleep_to_the_next_due_time() {
    let queue: Queue<u32> = Queue::new(Options::default());
    let hour = 3_600_000_000;
    queue.try_put(&Put { delay: hour, ..Put::default() }, &mut Some(1)).unwrap().unwrap();
    let sleep = |waiter: &mut Waiter| match waiter.get(&queue) {
        Look::Sleep(until) => until,
        look => panic!("{look:?} of a message that is not due"),
    };
    let mut waiters = [0, 1].map(|_| Waiter::new(Want::Message(Kind::Any), Time::MAX));
    assert_ne!(sleep(&mut waiters[0]), Time::MAX);
    assert_eq!(sleep(&mut waiters[1]), Time::MAX);
    queue.give_up(&mut waiters[0].wait);
    assert_eq!(waiters[1].calls(), 1, "it keeps the time now");
    assert_ne!(sleep(&mut waiters[1]), Time::MAX);
    let before = waiters[1].calls();
    queue.try_put(&Put { delay: hour / 2, ..Put::default() }, &mut Some(2)).unwrap().unwrap();
    assert_eq!(waiters[1].calls(), before + 1, "something falls due sooner");
}

/// One call readies a thousand; with nobody else to call, the waiting one must be called to
/// continue.
#[test]
fn waiters_are_woken_until_no_call_could_make_more_messages_ready() {
    let queue = queue(Options::default());
    let barrier = Put { barrier: true, ..Put::default() };
    queue.try_put(&barrier, &mut Some(0)).unwrap().unwrap();
    let (grant, _) = queue.try_get(Kind::Any, 0, |p, _| *p).unwrap().expect("it stands alone");
    for number in 1..2_500_u32 {
        let name = number.to_be_bytes();
        let keys = [KeyRef::new(&name)];
        queue.try_put(&Put { keys: &keys, ..Put::default() }, &mut Some(number)).unwrap().unwrap();
    }
    put(&queue, 2_500);
    let mut getter = Waiter::getter(&queue, Kind::Unkeyed);
    queue.ack(grant.handle).unwrap();
    let mut calls = 0;
    loop {
        assert!(getter.calls() > calls, "it sleeps, and its message is not ready yet");
        calls = getter.calls();
        match getter.get(&queue) {
            Look::Found(payload) => break assert_eq!(payload, 2_500),
            look => assert!(matches!(look, Look::Sleep(_)), "{look:?}"),
        }
    }
}
