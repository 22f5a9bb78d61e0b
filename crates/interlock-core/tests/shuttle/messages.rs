//! Getters that sleep until there is a message for them.

use super::*;

/// Payloads are `producer * 100 + number`; odd and even numbers go to two keys.
#[test]
fn messages_of_several_producers_are_handled_once_in_order_without_overlap() {
    explore(|| {
        let queue = queue(endless());
        let witness = Witness::default();
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let witness = witness.clone();
                start(&queue, move |queue| {
                    consume(queue, Kind::Any, |n| witness.handle(n % 2, n / 100, n))
                })
            })
            .collect();
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                start(&queue, move |queue| {
                    for number in 0..3 {
                        let key = if number % 2 == 0 { "even" } else { "odd" };
                        put(queue, key, producer * 100 + number).expect("the queue is open");
                    }
                })
            })
            .collect();
        join(producers);
        queue.shut_down();
        assert_eq!(sorted(join(consumers)), [0, 1, 2, 100, 101, 102]);
    });
}

#[test]
fn a_settlement_wakes_a_getter_for_the_next_message_of_its_key() {
    explore(|| {
        let queue = queue(endless());
        put(&queue, "a", 1).unwrap();
        put(&queue, "a", 2).unwrap();
        let takers: Vec<_> = (0..2)
            .map(|_| {
                start(&queue, |queue| {
                    let (grant, payload) = get(queue, Kind::Any, Time::MAX).unwrap();
                    ack(queue, &grant);
                    payload
                })
            })
            .collect();
        let mut payloads = join(takers);
        payloads.sort_unstable();
        assert_eq!(payloads, [1, 2]);
    });
}

#[test]
fn a_batch_wakes_one_getter_per_message() {
    explore(|| {
        let queue = queue(endless());
        let takers: Vec<_> = (0..3)
            .map(|_| start(&queue, |queue| get(queue, Kind::Any, Time::MAX).unwrap().1))
            .collect();
        start(&queue, |queue| {
            let puts = [Put::default(); 3];
            let placed = queue.call(|scheduler, now| {
                scheduler.put_many(now, &puts, &mut [Some(1), Some(2), Some(3)])
            });
            assert_eq!(placed.map(|placed| placed.len()), Ok(3));
        });
        let mut payloads = join(takers);
        payloads.sort_unstable();
        assert_eq!(payloads, [1, 2, 3]);
    });
}

/// The `any` waiter is called for the unkeyed message and may take the keyed one.
#[test]
fn a_woken_getter_that_takes_another_message_wakes_the_next() {
    explore(|| {
        let queue = queue(endless());
        let any = start(&queue, |queue| get(queue, Kind::Any, Time::MAX).unwrap().1);
        let unkeyed = start(&queue, |queue| get(queue, Kind::Unkeyed, Time::MAX).unwrap().1);
        let producer = start(&queue, |queue| {
            put(queue, "", 1).unwrap();
            let keys = [KeyRef::new(b"a")];
            let urgent = Put { keys: &keys, priority: 100, ..Put::default() };
            queue.put(&urgent, 2).unwrap();
            // One unkeyed message more, for the case that the `any` waiter was quicker.
            put(queue, "", 3).unwrap();
        });
        join([producer]);
        let (any, unkeyed) = (any.join().unwrap(), unkeyed.join().unwrap());
        assert_ne!(any, unkeyed);
        assert_ne!(unkeyed, 2);
    });
}

/// Exactly one message for each of three waiters, in any order of putting and of waiting.
#[test]
fn getters_of_every_kind_get_messages_only_they_can_take() {
    explore(|| {
        let queue = queue(endless());
        let taker = |kind| start(&queue, move |queue| get(queue, kind, Time::MAX).unwrap().1);
        let (keyed, any, unkeyed) = (taker(Kind::Keyed), taker(Kind::Any), taker(Kind::Unkeyed));
        let producers = [("a", 1), ("", 2)]
            .map(|(key, payload)| start(&queue, move |queue| put(queue, key, payload).unwrap()));
        join(producers);
        // Two are left at most: one of them is for the one that still waits.
        put(&queue, "b", 3).unwrap();
        put(&queue, "", 4).unwrap();
        let (keyed, any, unkeyed) =
            (keyed.join().unwrap(), any.join().unwrap(), unkeyed.join().unwrap());
        assert!(keyed % 2 == 1 && unkeyed % 2 == 0, "{keyed} {any} {unkeyed}");
    });
}

/// Somebody who does not wait is quicker than the one who was called.
#[test]
fn a_getter_woken_in_vain_is_woken_again() {
    explore(|| {
        let queue = queue(endless());
        let waiter = start(&queue, |queue| get(queue, Kind::Any, Time::MAX).unwrap().1);
        let thief =
            start(&queue, |queue| queue.try_get(Kind::Any, 0, |p, _| *p).expect("it is open"));
        put(&queue, "", 1).unwrap();
        let stolen = thief.join().unwrap().is_some();
        if stolen {
            put(&queue, "", 2).unwrap();
        }
        assert_eq!(waiter.join().unwrap(), if stolen { 2 } else { 1 });
    });
}

#[test]
fn a_get_many_leaves_remaining_messages_to_other_getters() {
    explore(|| {
        let queue = queue(endless());
        let many = start(&queue, |queue| {
            let mut got = Vec::new();
            let mut wait = Wait::new(Want::Message(Kind::Any), Time::MAX);
            sleep_between(&mut wait, |wait, waker| {
                queue.get_many_or_wait(Kind::Any, 2, 0, |p, _| got.push(*p), wait, waker)
            })
            .unwrap();
            got
        });
        let one = start(&queue, |queue| vec![get(queue, Kind::Any, Time::MAX).unwrap().1]);
        for payload in 1..=3 {
            put(&queue, "", payload).unwrap();
        }
        let got = join([many, one]);
        assert!((2..=3).contains(&got.concat().len()), "{got:?}");
    });
}

#[test]
fn a_settled_barrier_wakes_getters_for_messages_behind_it() {
    explore(|| {
        let queue = queue(endless());
        put(&queue, "a", 1).unwrap();
        queue.put(&Put { barrier: true, ..Put::default() }, 2).unwrap();
        put(&queue, "a", 3).unwrap();
        put(&queue, "", 4).unwrap();
        let consumers: Vec<_> =
            (0..2).map(|_| start(&queue, |queue| consume(queue, Kind::Any, |_| ()))).collect();
        queue.shut_down();
        assert_eq!(sorted(join(consumers)), [1, 2, 3, 4]);
    });
}
