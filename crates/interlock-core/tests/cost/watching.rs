//! Messages that waited too long are found as fast as they are put, and said once a second.

use interlock_core::queue::parts::watch::{Event, Limits};

use super::*;

const SECOND: Time = 1_000_000;

/// A hundred thousand a second, none of which is handled: each call makes a part of what is to be done.
#[test]
fn a_flood_of_slow_messages_is_summed_up_in_the_log() {
    let watch = Watch::new(Limits { slow_wait: 10 * SECOND, ..Limits::default() });
    let mut scheduler: Scheduler<u64> = Scheduler::new(endless(), watch);
    let (mut told, mut notes) = (0, 0);
    let mut hear = |scheduler: &mut Scheduler<u64>| {
        for event in scheduler.watch().take_events() {
            if let Event::SlowWait { others, .. } = event {
                told += 1 + others;
                notes += 1;
            }
        }
        told
    };
    for n in 0..2_000_000 {
        let now = 1 + n * 10;
        scheduler.put(now, &Put::default(), &mut Some(n)).expect("there is no bound");
        if n % 100_000 == 0 {
            hear(&mut scheduler);
        }
    }
    let late = hear(&mut scheduler);
    // Half of them, but for those of the last look and of the last note.
    assert!((750_000..=1_000_000).contains(&late), "{late} of a million");
    // Nobody calls but who watches; it takes what is left in few looks, and says it with the next note.
    let now = 40 * SECOND;
    (0..300).for_each(|_| scheduler.tick(now));
    scheduler.tick(now + SECOND);
    assert_eq!(hear(&mut scheduler), 2_000_000);
    assert!(notes <= 14, "{notes} notes in eleven seconds");
}

/// Leases are gone through once a second at most, however often something else is looked for.
#[test]
fn a_lease_held_too_long_is_logged_even_in_a_flood() {
    let watch = Watch::new(Limits { slow_wait: 10 * SECOND, ..Limits::default() });
    let mut scheduler: Scheduler<u64> = Scheduler::new(endless(), watch);
    let put = |scheduler: &mut Scheduler<u64>, now| {
        scheduler.put(now, &Put::default(), &mut Some(7)).expect("there is no bound").id
    };
    let first = put(&mut scheduler, 1);
    (0..50_000).for_each(|_| {
        put(&mut scheduler, 1);
    });
    scheduler.tick(2 * SECOND);
    scheduler.lease(9 * SECOND, Kind::Any, 5).expect("it is ready");
    let mut slow = Vec::new();
    for half in 20..42 {
        scheduler.tick(half * SECOND / 2);
        for event in scheduler.watch().take_events() {
            if let Event::SlowLease { id, consumer, held } = event {
                slow.push((id, consumer, held / SECOND));
            }
        }
    }
    assert_eq!(slow, [(first, 5, 10)]);
}
