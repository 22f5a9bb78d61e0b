//! Shutdown and join: everybody who sleeps must hear of it.

use interlock_core::queue::types::RevokeThen;

use super::*;

#[test]
fn a_shutdown_ends_every_getter_of_an_empty_queue() {
    explore(|| {
        let queue = queue(endless());
        let getters = [Kind::Any, Kind::Keyed, Kind::Unkeyed, Kind::Any]
            .map(|kind| start(&queue, move |queue| get(queue, kind, Time::MAX).map(|_| ())));
        queue.shut_down();
        assert!(join(getters).into_iter().all(|ended| ended == Err(Ended::ShutDown)));
    });
}

#[test]
fn a_shutdown_ends_every_putter_and_lets_getters_drain_the_rest() {
    explore(|| {
        let queue = queue(Options { max_messages: 1, ..endless() });
        put(&queue, "a", 1).unwrap();
        let putters = [2, 3].map(|n| start(&queue, move |queue| put(queue, "a", n)));
        let closer = start(&queue, |queue| queue.shut_down());
        let ended = join(putters);
        join([closer]);
        assert!(ended.iter().all(|ended| *ended == Err(Ended::ShutDown)), "{ended:?}");
        let getters = [0, 1].map(|_| start(&queue, |queue| consume(queue, Kind::Any, |_| ())));
        assert_eq!(sorted(join(getters)), [1]);
    });
}

/// Getters and putters parked at once, with a message out on lease: the last settlement ends them.
#[test]
fn a_getter_waiting_during_shutdown_ends_when_the_last_message_is_settled() {
    explore(|| {
        let queue = queue(Options { max_messages: 1, ..endless() });
        put(&queue, "a", 1).unwrap();
        let (grant, _) = get(&queue, Kind::Any, Time::MAX).unwrap();
        let getters = [Kind::Any, Kind::Keyed]
            .map(|kind| start(&queue, move |queue| get(queue, kind, Time::MAX).map(|_| ())));
        let putter = start(&queue, |queue| put(queue, "a", 2).map(|_| ()));
        let closer = start(&queue, |queue| queue.shut_down());
        join([closer]);
        ack(&queue, &grant);
        let ended = join(getters.into_iter().chain([putter]));
        assert!(ended.iter().all(|ended| *ended == Err(Ended::ShutDown)), "{ended:?}");
    });
}

#[test]
fn an_immediate_shutdown_ends_every_wait_at_once() {
    explore(|| {
        let queue = queue(Options { max_messages: 2, ..endless() });
        put(&queue, "a", 1).unwrap();
        put(&queue, "a", 2).unwrap();
        queue.call(|scheduler, now| scheduler.pause(now, None));
        let getter = start(&queue, |queue| get(queue, Kind::Any, Time::MAX).map(|_| ()));
        let putter = start(&queue, |queue| put(queue, "a", 3).map(|_| ()));
        let joiner = start(&queue, |queue| {
            queue.join();
            Err(Ended::ShutDown)
        });
        let closer = start(&queue, |queue| {
            queue.shut_down();
            queue.call(|scheduler, now| scheduler.cancel_all(now)).len()
        });
        let ended = join([getter, putter, joiner]);
        assert!(ended.iter().all(|ended| *ended == Err(Ended::ShutDown)), "{ended:?}");
        assert_eq!(closer.join().unwrap(), 2);
    });
}

#[test]
fn joins_end_when_the_last_message_is_settled() {
    explore(|| {
        let queue = queue(endless());
        put(&queue, "a", 1).unwrap();
        put(&queue, "b", 2).unwrap();
        let joiners = [0, 1].map(|_| start(&queue, |queue| queue.join()));
        let takers = [0, 1].map(|_| {
            start(&queue, |queue| {
                let (grant, _) = get(queue, Kind::Any, Time::MAX).unwrap();
                ack(queue, &grant);
            })
        });
        join(takers);
        join(joiners);
        assert_eq!(queue.call(|scheduler, _| scheduler.unsettled()), 0);
    });
}

#[test]
fn a_join_ends_when_the_last_message_becomes_a_dead_letter() {
    for given_up in ["cancelled", "rejected", "skipped", "revoked"] {
        explore(move || {
            let queue = queue(endless());
            let id = put(&queue, "a", 1).unwrap();
            let joiner = start(&queue, |queue| queue.join());
            queue.call(|scheduler, now| {
                if given_up == "cancelled" {
                    return assert!(scheduler.cancel(now, id).is_some());
                }
                let grant = scheduler.lease(now, Kind::Any, 0).expect("it is ready");
                match given_up {
                    "rejected" => assert!(scheduler.reject(now, grant.handle, "no").is_ok()),
                    "revoked" => assert!(scheduler.revoke(now, id, RevokeThen::Skip).is_some()),
                    _ => {
                        assert!(scheduler.revoke(now, id, RevokeThen::Hold).is_some());
                        assert!(scheduler.skip(now, id).is_some());
                    }
                }
            });
            join([joiner]);
        });
    }
}

/// Waking a joiner does not promise that nothing is put before it looks: then it continues to
/// sleep.
#[test]
fn a_join_woken_in_vain_keeps_waiting() {
    explore(|| {
        let queue = queue(endless());
        put(&queue, "a", 1).unwrap();
        let joiner = start(&queue, |queue| queue.join());
        let consumer = start(&queue, |queue| consume(queue, Kind::Any, |_| ()));
        put(&queue, "a", 2).unwrap();
        join([joiner]);
        queue.shut_down();
        assert_eq!(consumer.join().unwrap(), [1, 2]);
    });
}
