//! Random calls from several threads: whatever they park must end when the queue is shut down.

use interlock_core::queue::types::RevokeThen;
use shuttle::rand::{thread_rng, Rng};

use super::*;

const KEYS: [&str; 3] = ["", "a", "b"];

/// One of the puts, with a deadline that the clock may or may not reach.
fn put_something(queue: &Queue) {
    let mut rng = thread_rng();
    let key = KEYS[rng.gen_range(0..3usize)];
    let other = KEYS[rng.gen_range(1..3usize)];
    let (keys, shared) = ([KeyRef::new(key.as_bytes())], [KeyRef::new(other.as_bytes())]);
    let put = Put {
        keys: if key.is_empty() { &[] } else { &keys },
        shared: if rng.gen_bool(0.3) { &shared } else { &[] },
        priority: rng.gen_range(-1..=1),
        delay: if rng.gen_bool(0.2) { 5 } else { 0 },
        size: rng.gen_range(0..=3),
        dedup: rng.gen_bool(0.2).then_some("x"),
        ..Put::default()
    };
    let barrier = Put { barrier: true, priority: put.priority, size: 1, ..Put::default() };
    let put = if rng.gen_bool(0.1) { &barrier } else { &put };
    let deadline = if rng.gen_bool(0.5) { Time::MAX } else { 10 };
    let _ = room(queue, put, 1, deadline);
}

fn get_something(queue: &Queue) {
    let mut rng = thread_rng();
    let kind = [Kind::Any, Kind::Keyed, Kind::Unkeyed][rng.gen_range(0..3usize)];
    let got = match rng.gen_range(0..4) {
        0 => queue.try_get(kind, 0, |p, _| *p).unwrap_or(None),
        1 => get(queue, kind, 10).ok(),
        _ => get(queue, kind, Time::MAX).ok(),
    };
    let Some((grant, _)) = got else { return };
    thread::yield_now();
    match rng.gen_range(0..8) {
        0 => drop(queue.nack(grant.handle, None, "again")),
        1 => drop(queue.nack(grant.handle, Some(5), "later")),
        2 => drop(queue.call(|scheduler, now| scheduler.release(now, grant.handle))),
        3 => drop(queue.call(|scheduler, now| scheduler.reject(now, grant.handle, "no"))),
        _ => drop(queue.ack(grant.handle)),
    }
}

fn operate(queue: &Queue) {
    let mut rng = thread_rng();
    let id = rng.gen_range(1..6);
    let key = [None, Some(KeyRef::new(b"a"))][rng.gen_range(0..2usize)];
    match rng.gen_range(0..6) {
        0 => drop(queue.call(|scheduler, now| scheduler.requeue(now, id))),
        5 => {
            queue.call(|scheduler, now| scheduler.cancel(now, id));
        }
        1 => drop(queue.call(|scheduler, now| scheduler.revoke(now, id, RevokeThen::Retry))),
        2 => {
            queue.call(|scheduler, now| scheduler.pause(now, key));
        }
        3 => {
            queue.call(|scheduler, now| scheduler.resume(now, key));
        }
        _ => {
            queue.clock().advance(5);
            queue.clock_moved();
        }
    }
}

/// Ends what the threads left, so that everybody who still waits can end.
fn wind_up(queue: &Queue) {
    queue.call(|scheduler, now| {
        scheduler.resume(now, None);
        scheduler.resume(now, Some(KeyRef::new(b"a")));
    });
    queue.shut_down();
    while queue.call(|scheduler, _| scheduler.unsettled()) > 0 {
        queue.clock().advance(100);
        queue.clock_moved();
        if let Ok(Some((grant, _))) = queue.try_get(Kind::Any, 0, |p, _| *p) {
            let _ = queue.ack(grant.handle);
        }
        thread::yield_now();
    }
}

#[test]
fn no_thread_sleeps_for_ever_under_random_operations() {
    explore(|| {
        let bounds = Options { max_messages: 2, max_bytes: 4, lease: Some(50), ..endless() };
        let queue = queue(bounds);
        let getters = (0..2).map(|_| {
            start(&queue, |queue| {
                get_something(queue);
                get_something(queue);
            })
        });
        let getters: Vec<_> = getters.collect();
        let putters = [0, 1].map(|_| {
            start(&queue, |queue| {
                put_something(queue);
                put_something(queue);
            })
        });
        let operator = start(&queue, |queue| (0..3).for_each(|_| operate(queue)));
        let joiner = start(&queue, |queue| queue.join());
        join([operator]);
        wind_up(&queue);
        join(getters.into_iter().chain(putters).chain([joiner]));
        assert_eq!(queue.getters_parked(), 0);
    });
}
