//! The queue reads the clock only where time matters; here, that it does so there.

#![cfg(not(shuttle))]

use interlock_core::queue::scheduler::{Placed, Put};
use interlock_core::queue::types::{Kind, Options, Time};
use interlock_core::queue::Queue;

/// µs, of the order of what a thread may be kept from running.
const WINDOW: Time = 60_000;
/// Most by which the coarse clock lags behind.
const LAG: Time = 10_000;

fn put_named(queue: &Queue<u32>) -> Placed {
    let named = Put { dedup: Some("x"), ..Put::default() };
    queue.try_put(&named, &mut Some(1)).expect("it is open").expect("it has no bound")
}

fn spin_until(queue: &Queue<u32>, time: Time) {
    while queue.clock().now() < time {
        std::hint::spin_loop();
    }
}

/// Clause 13 counts the window from the settlement, also if nothing else was called for long.
#[test]
fn a_dedup_string_is_known_for_its_window_after_the_ack() {
    let conclusive = (0..200).any(|_| {
        let queue = Queue::new(Options { dedup_window: WINDOW, ..Options::default() });
        let start = queue.clock().now();
        let first = put_named(&queue);
        let (grant, _) = queue.try_get(Kind::Any, 0, |_, _| ()).unwrap().expect("it is ready");
        spin_until(&queue, start + WINDOW / 2);
        let settled = queue.clock().now();
        queue.ack(grant.handle).expect("the lease stands");
        spin_until(&queue, start + WINDOW + LAG);
        let again = put_named(&queue);
        if queue.clock().now() >= settled + WINDOW - LAG {
            // This thread was kept from running: nothing can be said.
            return false;
        }
        assert_eq!(again, Placed { id: first.id, known: true, replaced: false });
        true
    });
    assert!(conclusive, "this machine is too slow to say anything");
}
