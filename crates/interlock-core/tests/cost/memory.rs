//! Memory goes back after a peak, and a queue that breathes takes none.

use super::*;
use interlock_core::queue::types::Behind;
use interlock_core::queue::Queue;

fn live() -> isize {
    LIVE.get()
}

/// Bytes that may stay of a million: less than a byte of each, the numbers of segments that were
/// given back.
const LEFT: isize = MILLION as isize;

/// Memory before, at the peak, and after.
fn peak(what: &str, fill: impl FnOnce(&mut Subject)) {
    let mut subject = Subject::new(endless());
    (0..2_000).for_each(|key| {
        subject.put_on(key);
    });
    subject.drain();
    let before = live();
    fill(&mut subject);
    let peak = live() - before;
    subject.drain();
    let left = live() - before;
    println!("{what}: {peak} bytes at the peak, {left} left");
    assert!(left < LEFT, "{what}: {left} bytes are left of {peak}");
}

#[test]
fn memory_is_freed_after_a_million_messages_on_one_key() {
    peak("one key", |subject| {
        (0..MILLION).for_each(|_| {
            subject.put_on(1);
        })
    });
}

#[test]
fn memory_is_freed_after_a_million_keys() {
    peak("a million keys", |subject| {
        (0..MILLION).for_each(|key| {
            subject.put_on(key);
        })
    });
}

#[test]
fn memory_is_freed_after_a_million_unkeyed_messages() {
    peak("unkeyed", |subject| {
        (0..MILLION).for_each(|_| {
            subject.put(&Put::default());
        })
    });
}

#[test]
fn memory_is_freed_after_a_million_delays() {
    peak("delayed", |subject| {
        for key in 0..MILLION {
            let name = (key % 1_000).to_be_bytes();
            let keys = [KeyRef::new(&name)];
            subject.put(&Put { keys: &keys, delay: 1 + key % 977, ..Put::default() });
            subject.now -= 1;
        }
    });
}

#[test]
fn memory_is_freed_after_a_million_dedup_strings() {
    peak("dedup", |subject| {
        for n in 0..MILLION {
            subject.put(&Put { dedup: Some(&n.to_string()), size: 1, ..Put::default() });
        }
    });
}

#[test]
fn memory_is_freed_after_a_million_concurrent_leases_and_failures() {
    peak("leases", |subject| {
        (0..MILLION).for_each(|key| {
            subject.put_on(key);
        });
        let grants: Vec<Grant> = std::iter::from_fn(|| subject.lease()).collect();
        assert_eq!(grants.len() as u64, MILLION);
        for grant in grants {
            let delay = Some(grant.id % 3);
            subject.scheduler.nack(subject.now, grant.handle, delay, "failed").unwrap();
        }
    });
}

#[test]
fn memory_is_freed_after_a_million_cancellations() {
    peak("cancelled", |subject| {
        let ids: Vec<u64> = (0..MILLION).map(|key| subject.put_on(key % 100_000)).collect();
        for id in ids {
            assert!(subject.scheduler.cancel(subject.now, id).is_some());
        }
    });
}

#[test]
fn memory_is_freed_after_a_million_messages_behind_barriers_and_a_pause() {
    peak("barriers", |subject| {
        let key = 5_u64.to_be_bytes();
        subject.scheduler.pause(subject.now, Some(KeyRef::new(&key)));
        for n in 0..MILLION {
            if n % 1_000 == 999 {
                subject.put(&Put { barrier: true, ..Put::default() });
            } else {
                subject.share(n % 10);
            }
        }
        while let Some(grant) = subject.lease() {
            subject.ack(&grant);
        }
        subject.scheduler.resume(subject.now, Some(KeyRef::new(&key)));
    });
}

/// One that is never settled must not keep the place of all that came after it.
#[test]
fn memory_is_freed_even_if_two_messages_stay() {
    let mut subject = Subject::new(endless());
    let before = live();
    let first = subject.put_on(0);
    let grant = subject.lease().expect("it stands alone");
    for round in 0..2 {
        (0..MILLION / 2).for_each(|key| {
            subject.put_on(key + 1);
        });
        while subject.scheduler.unsettled() > 1 + round {
            let grant = subject.lease().expect("nothing waits for the first one");
            subject.ack(&grant);
        }
        subject.put_on(0);
    }
    let left = live() - before;
    assert!(left < LEFT, "{left} bytes for three messages");
    let explained = subject.scheduler.explain(subject.now, first, 1).expect("it is leased");
    assert_eq!(explained.nodes[0].age, subject.now - 2, "when it was put is still known");
    subject.ack(&grant);
    subject.drain();
}

/// However long one message stays, and whatever is put meanwhile, when each was put takes little.
#[test]
fn a_message_that_stays_for_hours_costs_no_memory() {
    let mut subject = Subject::new(endless());
    let first = subject.put_on(0);
    let grant = subject.lease().expect("it stands alone");
    let before = live();
    for key in 0..MILLION {
        subject.now += 10_000;
        subject.put_on(1 + key % 7);
        let grant = subject.lease().expect("nothing waits for the first one");
        subject.ack(&grant);
    }
    let left = live() - before;
    assert!(left < 300_000, "{left} bytes for one message");
    let explained = subject.scheduler.explain(subject.now, first, 1).expect("it is leased");
    assert_eq!(explained.nodes[0].age, subject.now - 2, "when it was put is still known");
    subject.ack(&grant);
}

/// The bars of memory: 64 bytes for a message with one key beyond its payload, 100 for a live key.
#[test]
fn a_message_and_a_key_use_no_more_memory_than_their_limits() {
    let mut subject = Subject::new(endless());
    let before = live();
    (0..MILLION).for_each(|n| {
        subject.put_on(n % 1_000);
    });
    let message = (live() - before) as u64 / MILLION;
    drop(subject);
    let mut subject = Subject::new(endless());
    let before = live();
    (0..MILLION).for_each(|key| {
        subject.put_on(key);
    });
    let key = (live() - before) as u64 / MILLION - message;
    println!("a message takes {message} bytes, a live key {key}");
    assert!(message <= 64 + 8, "{message} bytes, 8 of them the payload");
    assert!(key <= 100, "{key} bytes");
}

/// Counts the allocations of 300,000 messages of which few are unsettled at once.
fn allocations_of_steady_use(subject: &mut Subject) -> usize {
    let cycle = |subject: &mut Subject, n: u64| {
        subject.put_on(n % 50);
        subject.share(n % 7);
        subject.put(&Put::default());
        for _ in 0..3 {
            let grant = subject.lease().expect("three were put");
            subject.ack(&grant);
        }
    };
    (0..1_000).for_each(|n| {
        subject.put_on(n % 50);
    });
    (0..10_000).for_each(|n| cycle(subject, n));
    let before = MADE.get();
    (0..100_000).for_each(|n| cycle(subject, n));
    MADE.get() - before
}

#[test]
fn a_queue_in_steady_use_allocates_nothing() {
    assert_eq!(allocations_of_steady_use(&mut Subject::new(endless())), 0);
}

#[test]
fn messages_of_other_keys_allocate_nothing_while_a_key_is_shut() {
    let mut subject = Subject::new(Options { behind: Behind::Park, ..endless() });
    let shut = u64::MAX.to_be_bytes();
    subject.scheduler.pause(subject.now, Some(KeyRef::new(&shut)));
    subject.put_on(u64::MAX);
    assert_eq!(subject.scheduler.stats(subject.now).parked, 1);
    let made = allocations_of_steady_use(&mut subject);
    // The ids and times behind the parked message are kept, in tables that grow.
    assert!(made < 100, "{made} allocations in 300,000 messages");
}

#[test]
fn a_queue_drained_after_a_flood_keeps_little_memory_and_knows_no_old_handle() {
    let queue = Queue::new(endless());
    let settle = || {
        let (grant, _) = queue.get(|_, _| ()).expect("there is one");
        queue.ack(grant.handle).expect("the lease stands");
        grant.handle
    };
    let put = |key: u32| {
        let key = key.to_le_bytes();
        queue.put(&Put { keys: &[KeyRef::new(&key)], ..Put::default() }, ()).expect("it is open").id
    };
    put(0);
    settle();
    let kept = || queue.call(|scheduler, _| scheduler.structure());
    const FLOOD: u32 = 1 << 16;
    let ids: Vec<u64> = (0..FLOOD).map(put).collect();
    let handles: Vec<_> = ids.iter().map(|_| settle()).collect();
    assert!(kept() < 8192, "{} bytes", kept());
    assert!(queue.ack(handles[0]).is_err());
    assert!(put(1) > ids[ids.len() - 1]);
    settle();
}
