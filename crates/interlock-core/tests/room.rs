//! Handlers that put before they settle, producers of all sizes, waits that end early: with a clock
//! that moves only when all are blocked, all of them finish (clause 11).

#![cfg(not(shuttle))]

use std::task::Waker;

use interlock_core::clock::Clock;
use interlock_core::queue::parts::watch::Watch;
use interlock_core::queue::scheduler::{Handle, NoRoom, Put};
use interlock_core::queue::types::{Kind, Options, Time};
use interlock_core::queue::waiting::room::{
    Load, Need, RoomLine, LONGEST, PASSES, PATIENCE, SHORTEST,
};
use interlock_core::queue::waiting::waiters::{Wait, Want};
use interlock_core::queue::{Ended, Look, Queue};

const BOUND: u64 = 100;
/// µs for which a handler waits for room: by then it has come to those who fit, if there is any.
const PATIENT: u64 = 3 * LONGEST;

/// Somebody who takes a step at a time.
enum Actor {
    /// Puts batches of messages of these sizes, one after the other.
    Producer { batches: Vec<Vec<u64>>, wait: Wait },
    /// Takes a message; puts what it brings; settles it.
    Handler { leased: Option<(Handle, u32)>, wait: Wait },
}

/// The put that a message has its handler make: one of this size, that brings as many less one.
#[derive(Clone, Copy)]
struct Brings {
    left: u32,
}

type Brought = Queue<Brings>;

fn puts(sizes: &[u64]) -> Vec<Put<'static>> {
    sizes.iter().map(|&size| Put { size, ..Put::default() }).collect()
}

/// One step; whether it did something.
fn step(queue: &Brought, actor: &mut Actor, rng: &mut fastrand::Rng) -> bool {
    match actor {
        Actor::Producer { batches, wait } => {
            let Some(sizes) = batches.last() else { return false };
            if rng.u8(..) < 3 {
                // It was interrupted, or its time was up.
                queue.give_up(wait);
            }
            if rng.u8(..) < 10 && wait.deadline == Time::MAX {
                let until = queue.clock().now() + rng.u64(0..3 * SHORTEST);
                queue.give_up(wait);
                *wait = Wait::new(Want::Room(0, 0), until);
            }
            let mut payloads = vec![Some(Brings { left: 0 }); sizes.len()];
            let waker = Waker::noop();
            match queue.put_many_or_wait(&puts(sizes), &mut payloads, wait, waker) {
                Look::Found(_) => drop(batches.pop()),
                Look::Ended(Ended::TimedOut) => {}
                Look::Ended(ended) => panic!("{ended:?}"),
                Look::Sleep(_) => return false,
            }
            *wait = Wait::new(Want::Room(0, 0), Time::MAX);
            true
        }
        Actor::Handler { leased, wait } => match leased {
            None => {
                let view = |brings: &Brings, _: &_| *brings;
                let Ok(Some((grant, brings))) = queue.try_get(Kind::Any, 0, view) else {
                    return false;
                };
                *leased = Some((grant.handle, brings.left));
                true
            }
            Some((handle, 0)) => {
                queue.ack(*handle).expect("it has no deadline");
                *leased = None;
                true
            }
            Some((_, left)) => {
                let put = Put { size: 10, ..Put::default() };
                let mut payload = Some(Brings { left: *left - 1 });
                if !wait.is_parked() {
                    *wait = Wait::new(Want::Room(1, 10), queue.clock().now() + PATIENT);
                }
                match queue.put_or_wait(&put, &mut payload, wait, Waker::noop()) {
                    Look::Found(_) => {}
                    Look::Ended(ended) => {
                        // All the bound is taken by what waits for handlers that all put.
                        let room = queue.call(|scheduler, _| scheduler.room(1, 10));
                        assert_eq!((ended, room), (Ended::TimedOut, Err(NoRoom::Full)));
                    }
                    Look::Sleep(_) => return false,
                }
                *left = 0;
                true
            }
        },
    }
}

fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let options = Options { max_bytes: BOUND, ..Options::default() };
    let queue: Brought = Queue::with(options, Watch::off(), Clock::manual(1));
    let handlers = rng.usize(1..5);
    for _ in 0..handlers {
        let put = Put { size: 10, ..Put::default() };
        queue.put(&put, Brings { left: rng.u32(0..400) }).unwrap();
    }
    let wait = || Wait::new(Want::Room(1, 10), Time::MAX);
    let mut actors: Vec<Actor> =
        (0..handlers).map(|_| Actor::Handler { leased: None, wait: wait() }).collect();
    for _ in 0..rng.usize(1..6) {
        let many = rng.bool();
        let batches = (0..rng.usize(1..if many { 200 } else { 3 }))
            .map(|_| match (many, rng.bool()) {
                (true, _) => vec![rng.u64(0..20)],
                (false, true) => vec![rng.u64(90..=BOUND)],
                (false, false) => vec![BOUND / 10; rng.usize(8..=10)],
            })
            .collect();
        actors.push(Actor::Producer { batches, wait: wait() });
    }
    let mut waited = 0;
    loop {
        let from = rng.usize(..actors.len());
        let mut moved = false;
        let all = waited > 0;
        for n in 0..actors.len() {
            let at = (from + n) % actors.len();
            // Some are quicker than others.
            if all || rng.bool() {
                moved |= step(&queue, &mut actors[at], &mut rng);
            }
        }
        let puts = actors.iter().all(|actor| match actor {
            Actor::Producer { batches, .. } => batches.is_empty(),
            Actor::Handler { leased, .. } => leased.is_none(),
        });
        if puts && queue.call(|scheduler, _| scheduler.unsettled()) == 0 {
            return assert_eq!(queue.parked(), 0);
        }
        waited = if moved { 0 } else { waited + 1 };
        assert!(waited < 1000, "all stand still (seed {seed})");
        if !moved || rng.u8(..) < 20 {
            // When all are blocked, time soon brings the end of a turn, or of a wait.
            queue.clock().advance((SHORTEST / 2) << waited.min(12));
            queue.clock_moved();
        }
    }
}

#[test]
fn handlers_that_put_and_puts_of_all_sizes_complete() {
    (0..300).for_each(run);
}

fn busy(unsettled: u64) -> impl Fn(Need) -> Load {
    move |_| Load { unsettled, works: true, fits: false }
}

/// A line with one in it, which was passed so often that room is kept for it now.
fn kept(now: Time) -> RoomLine {
    let mut line = RoomLine::default();
    line.enter(5, Need { count: 10, size: 0 });
    for _ in 0..PASSES {
        assert!(!line.keeps_from(Some(6), now, busy(9)));
        line.passed_by(None, now);
    }
    assert!(line.keeps_from(Some(6), now, busy(9)));
    line
}

#[test]
fn no_put_that_fits_waits_longer_than_the_first_was_passed() {
    let mut line = kept(0);
    let (mut now, mut span) = (0, SHORTEST);
    while span < LONGEST * 4 {
        let most = span.min(LONGEST);
        assert_eq!(line.due(), Some(now + most));
        assert!(line.keeps_from(None, now + most - 1, busy(9)));
        now += most;
        assert!(!line.keeps_from(None, now, busy(9)), "nothing was settled");
        assert_eq!(line.due(), None);
        (0..PASSES * 2).for_each(|_| line.passed_by(None, now));
        assert!(!line.keeps_from(None, now + most - 1, busy(9)));
        now += most;
        assert!(line.keeps_from(None, now, busy(9)));
        span *= 2;
    }
}

#[test]
fn room_stays_reserved_as_long_as_messages_are_settled() {
    let mut line = kept(0);
    for n in 1..=9 {
        assert!(line.keeps_from(None, n * SHORTEST, busy(9 - n)));
    }
    assert!(!line.keeps_from(None, 10 * SHORTEST, busy(0)));
    // Then it is passed for as long as that.
    (0..PASSES).for_each(|_| line.passed_by(None, 10 * SHORTEST));
    assert!(!line.keeps_from(None, 20 * SHORTEST - 1, busy(9)));
    assert!(line.keeps_from(None, 20 * SHORTEST, busy(9)));
}

#[test]
fn the_first_put_is_passed_for_at_most_a_second() {
    let mut line = RoomLine::default();
    line.enter(5, Need { count: 10, size: 0 });
    assert!(!line.keeps_from(None, 0, busy(9)) && !line.keeps_from(None, PATIENCE, busy(9)));
    line.passed_by(None, PATIENCE);
    assert!(line.keeps_from(None, PATIENCE, busy(9)));
    assert!(!line.keeps_from(Some(4), PATIENCE, busy(9)), "it came before");
}

#[test]
fn room_is_not_reserved_without_progress_or_for_a_woken_put_that_does_not_run() {
    let idle = |_: Need| Load { unsettled: 9, works: false, fits: false };
    let mut line = kept(0);
    assert!(!line.keeps_from(None, 1, idle));
    (0..PASSES).for_each(|_| line.passed_by(None, 1));
    assert!(!line.keeps_from(None, LONGEST, idle));
    let fits = |_: Need| Load { unsettled: 9, works: true, fits: true };
    let mut line = kept(0);
    line.called(5);
    assert!(line.keeps_from(None, SHORTEST - 1, fits) && !line.keeps_from(None, SHORTEST, fits));
    assert!(line.is_empty());
    line.enter(5, Need { count: 10, size: 0 });
    assert!(!line.keeps_from(None, LONGEST, fits), "it came, and is passed anew");
}

#[test]
fn a_new_first_put_starts_its_own_reservation() {
    let mut line = kept(0);
    line.enter(6, Need { count: 1, size: 0 });
    line.leave(5);
    assert!(!line.keeps_from(None, 1, busy(9)) && line.due().is_none());
    let all = |need: Need| need.count <= 1;
    assert_eq!(line.fitting(0, false, all).collect::<Vec<_>>(), [6]);
    assert_eq!(line.fitting(7, false, all).count(), 0);
    line.enter(4, Need { count: 2, size: 0 });
    assert_eq!(line.fitting(0, false, all).collect::<Vec<_>>(), [6]);
    assert_eq!(line.fitting(0, true, all).count(), 0);
    line.leave(6);
    assert_eq!(line.fitting(0, false, all).count(), 0);
}
