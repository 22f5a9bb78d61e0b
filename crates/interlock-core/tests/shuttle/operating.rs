//! Messages that become ready by something other than a put or an ack.

use interlock_core::queue::types::{RevokeThen, Then};

use super::*;

/// A getter waits behind a lease of message 1, on the same key; `free` must let it continue.
fn frees(options: Options, free: impl Fn(&Queue, &Grant) + Send + Sync + Clone + 'static) {
    explore(move || {
        let queue = queue(options.clone());
        put(&queue, "a", 1).unwrap();
        let (grant, _) = get(&queue, Kind::Any, Time::MAX).unwrap();
        put(&queue, "a", 2).unwrap();
        let taker = start(&queue, |queue| get(queue, Kind::Keyed, Time::MAX).unwrap().1);
        let free = free.clone();
        let freeing = start(&queue, move |queue| free(queue, &grant));
        join([freeing]);
        assert!((1..=2).contains(&taker.join().unwrap()));
    });
}

#[test]
fn a_nack_wakes_a_getter_for_the_message() {
    frees(endless(), |queue, grant| {
        queue.nack(grant.handle, None, "again").unwrap();
    });
}

#[test]
fn a_release_wakes_a_getter_for_the_message() {
    frees(endless(), |queue, grant| {
        queue.call(|scheduler, now| scheduler.release(now, grant.handle)).unwrap();
    });
}

#[test]
fn a_rejection_wakes_a_getter_for_the_next_message() {
    frees(endless(), |queue, grant| {
        queue.call(|scheduler, now| scheduler.reject(now, grant.handle, "no")).unwrap();
    });
}

#[test]
fn a_revocation_wakes_a_getter_for_this_or_the_next_message() {
    for then in [RevokeThen::Retry, RevokeThen::Dead, RevokeThen::Skip] {
        frees(endless(), move |queue, grant| {
            assert!(queue.call(|scheduler, now| scheduler.revoke(now, grant.id, then)).is_some());
        });
    }
}

#[test]
fn retrying_skipping_or_burying_a_held_message_wakes_a_getter() {
    let retry = Retry { attempts: Some(1), then: Then::Hold, ..endless().retry };
    for operation in ["retry", "skip", "bury"] {
        frees(Options { retry: retry.clone(), ..endless() }, move |queue, grant| {
            queue.nack(grant.handle, None, "held").unwrap();
            let done = queue.call(|scheduler, now| match operation {
                "retry" => scheduler.retry(now, grant.id),
                "skip" => scheduler.skip(now, grant.id).is_some(),
                _ => scheduler.bury(now, grant.id),
            });
            assert!(done);
        });
    }
}

#[test]
fn a_lease_expiring_by_a_manual_clock_wakes_a_getter() {
    frees(Options { lease: Some(10), ..endless() }, |queue, _| {
        queue.clock().advance(20);
        queue.clock_moved();
    });
}

#[test]
fn a_requeued_dead_letter_wakes_a_getter() {
    explore(|| {
        let queue = queue(endless());
        let id = put(&queue, "a", 1).unwrap();
        let (grant, _) = get(&queue, Kind::Any, Time::MAX).unwrap();
        queue.call(|scheduler, now| scheduler.reject(now, grant.handle, "no")).unwrap();
        let taker = start(&queue, |queue| get(queue, Kind::Any, Time::MAX).unwrap().1);
        assert!(queue.call(|scheduler, now| scheduler.requeue(now, id)).unwrap().is_some());
        assert_eq!(taker.join().unwrap(), 1);
    });
}

#[test]
fn a_resumed_queue_or_key_wakes_a_getter() {
    for key in [None, Some(KeyRef::new(b"a"))] {
        explore(move || {
            let queue = queue(endless());
            queue.call(|scheduler, now| scheduler.pause(now, key));
            let takers = [0, 1].map(|_| {
                start(&queue, |queue| {
                    let (grant, payload) = get(queue, Kind::Any, Time::MAX).unwrap();
                    ack(queue, &grant);
                    payload
                })
            });
            let producer = start(&queue, |queue| {
                put(queue, "a", 1).unwrap();
                put(queue, "a", 2).unwrap();
            });
            let operator = start(&queue, move |queue| {
                assert!(queue.call(|scheduler, now| scheduler.resume(now, key)));
            });
            join([producer, operator]);
            assert_eq!(sorted(vec![join(takers)]), [1, 2]);
        });
    }
}

#[test]
fn cancelling_a_message_wakes_a_getter_for_the_one_behind_it() {
    explore(|| {
        let queue = queue(endless());
        let held = queue.put(&Put { barrier: true, ..Put::default() }, 1).unwrap().id;
        put(&queue, "a", 2).unwrap();
        let taker = start(&queue, |queue| get(queue, Kind::Any, Time::MAX).unwrap().1);
        let cancelled = queue.call(|scheduler, now| scheduler.cancel(now, held)).is_some();
        assert_eq!(taker.join().unwrap(), if cancelled { 2 } else { 1 });
    });
}
