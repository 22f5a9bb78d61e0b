//! Waiters that go away, perhaps just as they were called: the call must not be lost with them.

use super::*;

#[test]
fn an_interrupted_getter_passes_its_wake_up_on() {
    explore(|| {
        let queue = queue(endless());
        let leaver = start(&queue, |queue| get_interrupted(queue, Kind::Any).map(|(_, p)| p));
        let stayer = start(&queue, |queue| Some(get(queue, Kind::Any, Time::MAX).unwrap().1));
        put(&queue, "a", 1).unwrap();
        if leaver.join().unwrap().is_some() {
            put(&queue, "b", 2).unwrap();
        }
        assert!(stayer.join().unwrap().is_some());
    });
}

#[test]
fn an_interrupted_getter_of_any_kind_passes_its_wake_up_to_one_of_another_kind() {
    explore(|| {
        for kind in [Kind::Keyed, Kind::Unkeyed] {
            let queue = queue(endless());
            let key = if kind == Kind::Keyed { "a" } else { "" };
            let leaver = start(&queue, |queue| get_interrupted(queue, Kind::Any).is_some());
            let stayer = start(&queue, move |queue| get(queue, kind, Time::MAX).unwrap().1);
            put(&queue, key, 1).unwrap();
            if leaver.join().unwrap() {
                put(&queue, if key.is_empty() { "" } else { "b" }, 2).unwrap();
            }
            stayer.join().unwrap();
        }
    });
}

/// By a clock that is moved by hand: the one whose time is up may be called for a message at once.
#[test]
fn a_getter_that_times_out_passes_its_wake_up_on() {
    explore(|| {
        let queue = queue(endless());
        let hasty = start(&queue, |queue| get(queue, Kind::Any, 10).map(|(_, p)| p));
        let patient = start(&queue, |queue| get(queue, Kind::Any, Time::MAX).map(|(_, p)| p));
        let clock = start(&queue, |queue| {
            queue.clock().advance(20);
            queue.clock_moved();
        });
        put(&queue, "a", 1).unwrap();
        join([clock]);
        let hasty = hasty.join().unwrap();
        if hasty.is_ok() {
            put(&queue, "b", 2).unwrap();
        }
        let patient = patient.join().unwrap();
        assert!(patient.is_ok() && hasty != Err(Ended::ShutDown), "{hasty:?} {patient:?}");
    });
}

#[test]
fn a_putter_that_leaves_passes_the_room_on() {
    explore(|| {
        let queue = queue(Options { max_messages: 1, ..endless() });
        let id = put(&queue, "a", 1).unwrap();
        let hasty = start(&queue, |queue| room(queue, &Put::default(), 2, 10));
        let patient = start(&queue, |queue| room(queue, &Put::default(), 3, Time::MAX));
        let clock = start(&queue, |queue| {
            queue.clock().advance(20);
            queue.clock_moved();
        });
        assert!(queue.call(|scheduler, now| scheduler.cancel(now, id)).is_some());
        join([clock]);
        if let Ok(entered) = hasty.join().unwrap() {
            assert!(queue.call(|scheduler, now| scheduler.cancel(now, entered)).is_some());
        }
        patient.join().unwrap().expect("there is room");
    });
}

#[test]
fn every_wait_ends_at_its_timeout() {
    explore(|| {
        let queue = queue(Options { max_messages: 1, ..endless() });
        put(&queue, "a", 1).unwrap();
        let (grant, _) = get(&queue, Kind::Any, Time::MAX).unwrap();
        let getters = [Kind::Any, Kind::Keyed, Kind::Unkeyed]
            .map(|kind| start(&queue, move |queue| get(queue, kind, 10).map(|_| ())));
        let putter = start(&queue, |queue| room(queue, &Put::default(), 2, 10).map(|_| ()));
        let joiner = start(&queue, |queue| {
            let mut wait = Wait::new(Want::Drained, 10);
            sleep_between(&mut wait, |wait, waker| queue.drained_or_wait(wait, waker))
        });
        let clock = start(&queue, |queue| {
            queue.clock().advance(9);
            queue.clock_moved();
            Err(Ended::TimedOut)
        });
        let ended = join(getters.into_iter().chain([putter, joiner, clock]));
        assert!(ended.iter().all(|ended| *ended == Err(Ended::TimedOut)), "{ended:?}");
        assert_eq!(queue.getters_parked(), 0);
        ack(&queue, &grant);
    });
}
