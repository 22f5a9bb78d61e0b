//! Tests the window, and the ranges of numbers below it, against a set of numbers.

use std::collections::BTreeSet;

use super::*;

fn recent(number: u64) -> Recent {
    let refused = number.is_multiple_of(3);
    Recent { number, stamp: number * 10, refused, reply: Some(vec![number as u8]) }
}

/// Compares the window with a set of numbers over jumps of every size, and after joins.
#[test]
fn the_window_equals_the_set_of_done_numbers() {
    let (mut random, mut known) = (fastrand::Rng::with_seed(7), 0);
    for _ in 0..300 {
        let mut pair = [(Client::new(0), BTreeSet::new()), (Client::new(0), BTreeSet::new())];
        // No range was forgotten, nor will one be.
        let mut are_known = true;
        for (client, done) in &mut pair {
            let mut top = 1u64;
            for _ in 0..random.usize(1..200) {
                top += [0, 1, 3, 64, 65, 700, 1024, 1500][random.usize(..8)];
                let number = top.saturating_sub(random.u64(..40)).max(1);
                if client.standing(number) != Standing::Done {
                    client.mark(recent(number), 0, 0);
                    done.insert(number);
                    are_known &= client.missing.len() < MOST_MISSING / 2;
                }
            }
        }
        let [(mut a, done_a), (b, done_b)] = pair;
        check(&a, &done_a, are_known);
        check(&b, &done_b, are_known);
        a.join(b);
        check(&a, &done_a.union(&done_b).copied().collect(), are_known);
        known += usize::from(are_known);
    }
    assert!(known > 5, "{known} are too few");
}

fn check(client: &Client, done: &BTreeSet<u64>, is_known: bool) {
    let top = done.last().copied().unwrap_or(0);
    assert_eq!(client.highest(), top);
    let from = if is_known { 1 } else { top.saturating_sub(WINDOW).max(1) };
    for number in from..=top {
        let expected = if done.contains(&number) { Standing::Done } else { Standing::Late };
        assert_eq!(client.standing(number), expected, "{number} below {top}");
        let has_changed = done.contains(&number) && !recent(number).refused;
        assert!(number + WINDOW <= top || client.has_done(number) == has_changed, "{number}");
    }
    assert_eq!(client.standing(top + 1), Standing::New);
    for number in done.iter().rev().take(RECENT / 2) {
        assert_eq!(client.recent(*number).map(|r| r.stamp), Some(number * 10));
    }
}

/// A client continues for thousands of writes while the node is away whose ring has some of them.
#[test]
fn numbers_not_done_stay_known_however_many_were_done_since() {
    let mut sessions = Sessions::default();
    for number in (1..=10).chain(301..=9000) {
        sessions.mark(b"c", number, recent(number), 0);
    }
    for put_back in 11..=300 {
        assert_eq!(sessions.standing(b"c", put_back), Standing::Late);
        sessions.mark(b"c", put_back, recent(put_back), 0);
        assert_eq!(sessions.standing(b"c", put_back), Standing::Done);
    }
    assert_eq!(sessions.clients[&b"c"[..]].missing, []);
    sessions.mark(b"d", 70_000, recent(7), 0);
    assert_eq!(sessions.standing(b"d", 1), Standing::Late);
}

#[test]
fn a_lost_write_that_changed_nothing_is_not_missed_however_many_its_client_did_since() {
    let [mut lost, mut without_it, mut without_more] = [(); 3].map(|()| Sessions::default());
    for number in 1..=1000 {
        lost.mark(b"c", 0, recent(number), 1);
        if !recent(number).refused {
            without_it.mark(b"c", 0, recent(number), 1);
            if number != 400 {
                without_more.mark(b"c", 0, recent(number), 1);
            }
        }
    }
    assert_eq!(without_it.undone(&lost), BTreeSet::new());
    assert!(lost.is_within(&without_it));
    assert_eq!(without_more.undone(&lost), BTreeSet::from([(b"c".to_vec(), 400, None)]));
    assert!(!lost.is_within(&without_more));
}

#[test]
fn sessions_survive_encoding() {
    let mut sessions = Sessions::default();
    sessions.count(b"n", 4, 9, 12);
    sessions.deny(b"n", 4, 1);
    sessions.deny(b"n", 4, 0);
    for number in [1, 2, 70, 2000] {
        sessions.mark(b"c", number, recent(number), number + 5);
    }
    let mut out = Vec::new();
    sessions.encode(&mut out);
    let mut reader = Reader::new(&out);
    assert_eq!(Sessions::decode(&mut reader), Ok(sessions.clone()));
    assert_eq!(reader.end(), Ok(()));
    for end in 0..out.len() {
        assert_eq!(Sessions::decode(&mut Reader::new(&out[..end])), Err(Damaged));
    }
    sessions.drop_unused(10);
    assert_eq!((sessions.last(b"n"), sessions.standing(b"c", 5)), (0, Standing::Late));
    assert_eq!(sessions.forgotten, 12);
    sessions.drop_unused(2001);
    assert_eq!((sessions.forgotten, sessions.standing(b"c", 5)), (2005, Standing::New));
}

/// Tests the uncounted numbers of a name with put-backs in any order, and joined with another
/// history.
#[test]
fn a_name_knows_which_numbers_below_its_last_are_missing() {
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..500 {
        let mut pair = [(); 2].map(|()| (Named::default(), BTreeSet::new()));
        for (named, counted) in &mut pair {
            for _ in 0..random.u64(..30) {
                let number = random.u64(1..40);
                named.count(number);
                counted.insert(number);
            }
        }
        let [(mut a, counted_a), (b, counted_b)] = pair;
        for last in [false, true] {
            let counted = if last { &counted_a | &counted_b } else { counted_a.clone() };
            assert_eq!(a.last, counted.last().copied().unwrap_or(0));
            for number in 1..60 {
                let is_missing = number < a.last && !counted.contains(&number);
                assert_eq!(range_at(&a.missing, number).is_some(), is_missing, "{number} of {a:?}");
            }
            a.join(b.clone());
        }
    }
}
