//! The number of successors that one call readies; the rest follow with the next calls (clauses 20,
//! 21).

use super::*;

/// Successors that one call may ready (clause 21).
const LIMIT: usize = 1_000;

#[test]
fn one_settlement_readies_at_most_a_thousand_messages() {
    let mut subject = Subject::new(endless());
    subject.put_on(1);
    let front = subject.lease().expect("it stands alone");
    (0..2_500).for_each(|_| {
        subject.share(1);
    });
    subject.ack(&front);
    assert_eq!(subject.ready(), LIMIT);
    subject.scheduler.tick(subject.now);
    assert_eq!(subject.ready(), 2 * LIMIT);
    subject.scheduler.tick(subject.now);
    assert_eq!(subject.ready(), 2_500);
    assert!(!subject.scheduler.has_leftovers());
}

#[test]
fn a_settled_barrier_opens_at_most_a_thousand_gates_a_call() {
    let mut subject = Subject::new(endless());
    subject.put(&Put { barrier: true, ..Put::default() });
    let barrier = subject.lease().expect("it stands alone");
    (0..2_500).for_each(|key| {
        subject.put_on(key);
    });
    subject.ack(&barrier);
    let mut ready = vec![subject.ready()];
    while subject.scheduler.has_leftovers() {
        subject.scheduler.tick(subject.now);
        ready.push(subject.ready());
    }
    assert_eq!(ready, [LIMIT, 2 * LIMIT, 2_500]);
}

#[test]
fn a_resumed_key_returns_at_most_a_thousand_messages_a_call() {
    let mut subject = Subject::new(endless());
    let key = 1_u64.to_be_bytes();
    (0..2_500).for_each(|_| {
        subject.share(1);
    });
    assert!(subject.scheduler.pause(subject.now, Some(KeyRef::new(&key))));
    // All come up and are set aside.
    assert!(subject.lease().is_none());
    assert!(subject.scheduler.resume(subject.now, Some(KeyRef::new(&key))));
    assert_eq!(subject.ready(), LIMIT);
    subject.drain();
}

#[test]
fn a_call_applies_at_most_a_thousand_due_events() {
    let options = Options { lease: Some(10), ..endless() };
    let mut subject = Subject::new(options);
    (0..2_500).for_each(|key| {
        subject.put_on(key);
    });
    let leased = std::iter::from_fn(|| subject.lease()).count();
    assert_eq!((leased, subject.ready()), (2_500, 0));
    subject.now += 100;
    subject.scheduler.tick(subject.now);
    assert_eq!(subject.ready(), LIMIT);
}

/// A message's end must ready the next one on each of its keys, however many these are.
#[test]
fn a_message_with_the_maximum_of_keys_readies_a_successor_on_each() {
    let names: Vec<[u8; 8]> = (0..4_096_u64).map(u64::to_be_bytes).collect();
    let keys: Vec<KeyRef<'_>> = names.iter().map(|name| KeyRef::new(name)).collect();
    let mut subject = Subject::new(endless());
    subject.put(&Put { keys: &keys, ..Put::default() });
    let front = subject.lease().expect("it stands alone");
    (0..4_096).for_each(|key| {
        subject.put_on(key);
    });
    subject.ack(&front);
    assert!((LIMIT..=4_096).contains(&subject.ready()), "{}", subject.ready());
    subject.drain();
}
