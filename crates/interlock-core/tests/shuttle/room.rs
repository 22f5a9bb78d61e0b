//! Putters that sleep until there is room.

use super::*;

fn bounded(max_messages: usize, max_bytes: u64) -> Arc<Queue> {
    queue(Options { max_messages, max_bytes, ..endless() })
}

#[test]
fn every_message_passes_through_a_queue_of_one() {
    explore(|| {
        let queue = bounded(1, 0);
        let consumer = start(&queue, |queue| consume(queue, Kind::Any, |_| ()));
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                start(&queue, move |queue| {
                    for number in 0..2 {
                        put(queue, "a", producer * 100 + number).expect("the queue is open");
                    }
                })
            })
            .collect();
        join(producers);
        queue.shut_down();
        let payloads = consumer.join().unwrap();
        assert_eq!(payloads.iter().filter(|&&n| n < 100).collect::<Vec<_>>(), [&0, &1]);
        assert_eq!(sorted(vec![payloads]), [0, 1, 100, 101]);
    });
}

#[test]
fn two_consumers_and_two_producers_make_progress_on_a_queue_of_two() {
    explore(|| {
        let queue = bounded(2, 0);
        let consumers: Vec<_> =
            (0..2).map(|_| start(&queue, |queue| consume(queue, Kind::Any, |_| ()))).collect();
        let producers: Vec<_> = ["a", "b"]
            .into_iter()
            .map(|key| {
                start(&queue, move |queue| {
                    (0..3).for_each(|number| assert!(put(queue, key, number).is_ok()));
                })
            })
            .collect();
        join(producers);
        queue.shut_down();
        assert_eq!(sorted(join(consumers)), [0, 0, 1, 1, 2, 2]);
    });
}

#[test]
fn large_and_small_putters_all_find_room() {
    explore(|| {
        let queue = bounded(0, 4);
        let putters = [3, 1, 4, 2].map(|size| {
            start(&queue, move |queue| {
                room(queue, &Put { size, ..Put::default() }, size as u32, Time::MAX).unwrap();
            })
        });
        let consumer = start(&queue, |queue| consume(queue, Kind::Any, |_| ()));
        join(putters);
        queue.shut_down();
        assert_eq!(sorted(vec![consumer.join().unwrap()]), [1, 2, 3, 4]);
    });
}

/// The large one in front is called late or never; when it leaves, the small one behind it must be.
#[test]
fn a_large_putter_that_leaves_admits_the_small_one_behind_it() {
    explore(|| {
        let queue = bounded(0, 4);
        room(&queue, &Put { size: 2, ..Put::default() }, 1, Time::MAX).unwrap();
        let large = start(&queue, |queue| {
            let put = Put { size: 4, ..Put::default() };
            let mut wait = Wait::new(Want::Room(1, 4), Time::MAX);
            match queue.put_or_wait(&put, &mut Some(9), &mut wait, Waker::noop()) {
                Look::Sleep(_) => queue.give_up(&mut wait),
                look => panic!("{look:?} where there is no room"),
            }
        });
        let small = start(&queue, |queue| {
            room(queue, &Put { size: 1, ..Put::default() }, 2, Time::MAX).unwrap()
        });
        join([large]);
        small.join().unwrap();
    });
}

#[test]
fn a_cancelled_message_makes_room() {
    explore(|| {
        let queue = bounded(1, 0);
        let id = put(&queue, "a", 1).unwrap();
        let putter = start(&queue, |queue| put(queue, "b", 2));
        assert_eq!(queue.call(|scheduler, now| scheduler.cancel(now, id)), Some(1));
        assert!(putter.join().unwrap().is_ok());
    });
}

fn put_batch(queue: &Queue, puts: &[Put<'_>], deadline: Time) -> Result<usize, Ended> {
    let mut payloads = vec![Some(7); puts.len()];
    let size = puts.iter().map(|put| put.size).sum();
    let mut wait = Wait::new(Want::Room(puts.len(), size), deadline);
    sleep_between(&mut wait, |wait, waker| queue.put_many_or_wait(puts, &mut payloads, wait, waker))
        .map(|placed| placed.len())
}

#[test]
fn a_batch_waits_for_room_for_all_of_it() {
    explore(|| {
        let queue = bounded(3, 0);
        put(&queue, "a", 1).unwrap();
        put(&queue, "a", 2).unwrap();
        let batch = start(&queue, |queue| put_batch(queue, &[Put::default(); 3], Time::MAX));
        let consumer = start(&queue, |queue| consume(queue, Kind::Any, |_| ()));
        assert_eq!(batch.join().unwrap(), Ok(3));
        queue.shut_down();
        assert_eq!(sorted(vec![consumer.join().unwrap()]), [1, 2, 7, 7, 7]);
    });
}

/// Only what is not known needs room (clause 13): with the known one leased for ever, room for one
/// is all there will be.
#[test]
fn a_batch_with_a_known_message_waits_only_for_room_for_the_others() {
    explore(|| {
        let queue = bounded(2, 0);
        queue.put(&Put { dedup: Some("known"), ..Put::default() }, 1).unwrap();
        let (held, _) = get(&queue, Kind::Any, Time::MAX).unwrap();
        let other = put(&queue, "a", 2).unwrap();
        let batch = start(&queue, |queue| {
            let known = Put { dedup: Some("known"), ..Put::default() };
            put_batch(queue, &[known, Put::default()], Time::MAX)
        });
        assert_eq!(queue.call(|scheduler, now| scheduler.cancel(now, other)), Some(2));
        assert_eq!(batch.join().unwrap(), Ok(2));
        ack(&queue, &held);
    });
}

/// Clause 13: a put of a known string never blocks, also if it became known while it waited.
#[test]
fn a_putter_whose_dedup_string_becomes_known_stops_waiting() {
    explore(|| {
        let queue = bounded(1, 0);
        let id = put(&queue, "a", 1).unwrap();
        let named = Put { dedup: Some("x"), ..Put::default() };
        let putters = [0, 1].map(|_| {
            start(&queue, |queue| {
                let named = Put { dedup: Some("x"), ..Put::default() };
                room(queue, &named, 2, Time::MAX).unwrap()
            })
        });
        assert_eq!(queue.call(|scheduler, now| scheduler.cancel(now, id)), Some(1));
        let ids = join(putters);
        assert_eq!(ids[0], ids[1]);
        assert_eq!(room(&queue, &named, 2, Time::MAX), Ok(ids[0]));
    });
}
