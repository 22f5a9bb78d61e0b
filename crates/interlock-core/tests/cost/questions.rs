//! The cost of an explanation does not grow with what is pending.

use interlock_core::queue::types::limits::Limits;
use interlock_core::queue::types::{Explained, RevokeThen};

use super::*;

/// Returns the number of allocations of an explanation, and the explanation.
fn explained(subject: &mut Subject, id: u64) -> (usize, Explained) {
    let before = MADE.get();
    let explained = subject.scheduler.explain(subject.now, id, 100).expect("it is unsettled");
    (MADE.get() - before, explained)
}

#[test]
fn an_explanation_costs_the_same_at_a_million_messages_as_at_a_thousand() {
    let ask = |pending: u64| {
        let mut subject = Subject::new(endless());
        let ids: Vec<u64> = (0..pending).map(|_| subject.put_on(1)).collect();
        let (last, explanation) = explained(&mut subject, ids[ids.len() - 1]);
        let blocked = &explanation.nodes[0].blocked[0];
        assert_eq!((blocked.ahead, blocked.exact), (pending - 1, true), "counted from the end");
        assert_eq!(blocked.holders, [ids[0]]);
        let (middle, explanation) = explained(&mut subject, ids[ids.len() / 2]);
        let blocked = &explanation.nodes[0].blocked[0];
        assert_eq!(blocked.exact, pending < 10_000, "counted only so far");
        assert!(blocked.ahead <= pending / 2);
        (last, middle)
    };
    assert_eq!(ask(1_000), ask(MILLION));
}

/// A crowd in front of each key of each message: what is named is bounded in all, whatever the limit.
#[test]
fn an_explanation_names_a_bounded_number_of_blockers() {
    let mut subject = Subject::new(endless());
    let names: Vec<[u8; 8]> = (0..64_u64).map(u64::to_be_bytes).collect();
    let keys: Vec<KeyRef<'_>> = names.iter().map(|name| KeyRef::new(name)).collect();
    for _ in 0..600 {
        subject.put(&Put { shared: &keys, ..Put::default() });
    }
    let put = Put { keys: &keys, ..Put::default() };
    let last = (0..600).map(|_| subject.put(&put)).last().expect("some were put");
    let explained = subject.scheduler.explain(subject.now, last, usize::MAX).expect("it waits");
    let blocked = explained.nodes.iter().flat_map(|node| &node.blocked);
    let holders: usize = blocked.map(|blocker| blocker.holders.len()).sum();
    assert!(explained.truncated);
    assert!((1..=10_000).contains(&holders), "{holders} of 38,400 for each writer");
}

/// Barriers are counted from the nearer end, and each node of an explanation has a part of the steps.
#[test]
fn an_explanation_behind_a_million_barriers_is_bounded() {
    let mut subject = Subject::new(endless());
    let put = Put { barrier: true, ..Put::default() };
    let ids: Vec<u64> = (0..MILLION).map(|_| subject.put(&put)).collect();
    let mut ahead = |at: u64| {
        let (_, explained) = explained(&mut subject, ids[at as usize]);
        let blocked = &explained.nodes[0].blocked[0];
        assert_eq!(blocked.holders[0], ids[0]);
        (blocked.ahead, blocked.exact)
    };
    assert_eq!(ahead(MILLION - 1), (MILLION - 1, true));
    assert_eq!(ahead(1_000), (1_000, true));
    let (counted, exact) = ahead(MILLION / 2);
    assert!(!exact && counted < 20_000, "{counted}");
}

/// The count from the nearer end costs what was walked, not what was found.
#[test]
fn the_messages_ahead_are_counted_for_each_key_of_a_message() {
    let mut subject = Subject::new(endless());
    for _ in 0..MILLION / 2 {
        subject.put_on(1);
        subject.put_on(2);
    }
    let names = [1_u64, 2].map(u64::to_be_bytes);
    let keys = [KeyRef::new(&names[0]), KeyRef::new(&names[1])];
    let id = subject.put(&Put { keys: &keys, ..Put::default() });
    let (_, explanation) = explained(&mut subject, id);
    let blocked = &explanation.nodes[0].blocked;
    let counts: Vec<_> = blocked.iter().map(|blocker| (blocker.ahead, blocker.exact)).collect();
    assert_eq!(counts, [(MILLION / 2, true), (MILLION / 2, true)]);
}

/// Ids that are settled lie between the held one and the barrier: they are not all walked through.
#[test]
fn explaining_a_barrier_behind_a_million_settled_messages_names_its_blocker() {
    let mut subject = Subject::new(endless());
    let held = subject.put_on(0);
    let grant = subject.lease().expect("it stands alone");
    assert!(subject.scheduler.revoke(subject.now, grant.id, RevokeThen::Hold).is_some());
    for key in 1..MILLION {
        subject.put_on(key);
        let grant = subject.lease().expect("nothing waits for the held one");
        subject.ack(&grant);
    }
    let barrier = subject.put(&Put { barrier: true, ..Put::default() });
    let (_, explanation) = explained(&mut subject, barrier);
    let blocked = &explanation.nodes[0].blocked[0];
    assert_eq!((blocked.ahead, &blocked.holders[..]), (1, &[held][..]));
}

/// The leased messages that carry a limit are looked for once, not for each message that it refuses.
#[test]
fn an_explanation_of_many_messages_at_a_full_limit_looks_at_the_leases_once() {
    let cost = |readers: usize| {
        let mut subject = Subject::new(endless());
        subject.scheduler.set_limits(subject.now, Limits::parse(b"x=2000").expect("it is one"));
        let full = Put { limit: b"x", ..Put::default() };
        (0..2_000).for_each(|_| _ = subject.put(&full));
        (0..2_000).for_each(|_| assert!(subject.lease().is_some()));
        let key = [KeyRef::new(b"k")];
        (0..readers).for_each(|_| _ = subject.put(&Put { shared: &key, ..full }));
        assert!(subject.lease().is_none());
        let before = MADE.get();
        let told = subject.scheduler.explain_key(subject.now, key[0], 60).expect("it waits");
        assert_eq!(told.nodes[readers - 1].limits[0].leased, 2_000);
        MADE.get() - before
    };
    let more = (cost(20) - cost(10)) / 10;
    assert!(more <= 12, "{more} allocations for each message more");
}
