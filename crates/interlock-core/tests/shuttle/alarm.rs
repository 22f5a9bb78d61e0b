//! While something falls due later, one of those who wait sleeps no longer than that.
//!
//! Here time is the system's, for a clock moved by hand rings no alarm; a thread whose sleep has an
//! end spins until then, all others sleep for good.

use interlock_core::queue::types::State;

use super::*;

fn ticking(options: Options) -> Arc<Queue> {
    Arc::new(Queue::with(options, Watch::off(), Clock::System))
}

/// Sleeps to the end that the queue names, or until woken; answers what was got.
fn get_with_alarm(queue: &Queue, kind: Kind) -> Result<(Grant, u32), Ended> {
    let parker = Parker::new();
    let waker = parker.waker();
    let mut wait = Wait::new(Want::Message(kind), Time::MAX);
    loop {
        match queue.get_or_wait(kind, 0, |p, _| *p, &mut wait, &waker) {
            Look::Found(found) => return Ok(found),
            Look::Ended(ended) => return Err(ended),
            Look::Sleep(Time::MAX) => {
                parker.park(None);
            }
            Look::Sleep(until) => {
                while queue.clock().now() < until {
                    std::hint::spin_loop();
                }
                thread::yield_now();
            }
        }
    }
}

/// µs; long enough that some getters are asleep before it is over, and some are not.
const SOON: u64 = 15;

fn put_delayed(queue: &Queue, payload: u32, delay: u64) {
    queue.put(&Put { delay, ..Put::default() }, payload).unwrap();
}

#[test]
fn delayed_messages_wake_getters_whichever_of_them_came_first() {
    explore(|| {
        let queue = ticking(endless());
        let getters =
            [0, 1].map(|_| start(&queue, |queue| get_with_alarm(queue, Kind::Any).unwrap().1));
        put_delayed(&queue, 1, SOON);
        put_delayed(&queue, 2, SOON / 3);
        assert_eq!(sorted(vec![join(getters)]), [1, 2]);
    });
}

#[test]
fn a_timekeeper_that_leaves_or_is_woken_passes_the_alarm_on() {
    explore(|| {
        let queue = ticking(endless());
        put_delayed(&queue, 1, SOON);
        let leaver = start(&queue, |queue| get_interrupted(queue, Kind::Any).is_some());
        let getters =
            [0, 1].map(|_| start(&queue, |queue| get_with_alarm(queue, Kind::Any).unwrap().1));
        put(&queue, "a", 2).unwrap();
        if leaver.join().unwrap() {
            put(&queue, "b", 3).unwrap();
        }
        join(getters);
    });
}

/// The timekeeper may be one that cannot take what falls due: it calls who can.
#[test]
fn a_timekeeper_of_another_kind_wakes_a_getter_for_a_due_message() {
    explore(|| {
        let queue = ticking(endless());
        let keyed = start(&queue, |queue| get_with_alarm(queue, Kind::Keyed).map(|_| ()));
        let unkeyed = start(&queue, |queue| get_with_alarm(queue, Kind::Unkeyed).unwrap().0);
        put_delayed(&queue, 1, SOON);
        let grant = unkeyed.join().unwrap();
        ack(&queue, &grant);
        queue.shut_down();
        assert_eq!(keyed.join().unwrap(), Err(Ended::ShutDown));
    });
}

#[test]
fn the_end_of_a_backoff_or_lease_wakes_a_getter() {
    explore(|| {
        let retry = Retry { first: SOON, factor: 1.0, ..endless().retry };
        let queue = ticking(Options { lease: Some(SOON), retry, ..endless() });
        let id = put(&queue, "a", 1).unwrap();
        let getters =
            [0, 1, 2].map(|_| start(&queue, |queue| get_with_alarm(queue, Kind::Any).unwrap().0));
        // Nobody settles: the second gets it after a lease that charges no attempt (clause 9), the third
        // after a lease and a backoff have run out.
        let grants = join(getters);
        assert!(grants.iter().all(|grant| grant.id == id));
        let mut attempts: Vec<_> = grants.iter().map(|grant| grant.attempt).collect();
        attempts.sort_unstable();
        assert_eq!(attempts, [1, 1, 2]);
        let explained = queue.call(|scheduler, now| scheduler.explain(now, id, 1)).unwrap();
        assert_ne!(explained.nodes[0].state, State::Held);
    });
}
