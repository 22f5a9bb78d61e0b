//! The ring of idle lanes.

use super::*;

/// Puts a message on a key and takes it out again.
fn pass(lanes: &mut Lanes, key: &str) {
    let first = put(lanes, 0, key);
    take(lanes, first);
}

fn put(lanes: &mut Lanes, message: u32, key: &str) -> u32 {
    let mut chain = Lanes::chain();
    lanes.link(message, KeyRef::new(key.as_bytes()), false, &mut chain);
    chain.first
}

fn take(lanes: &mut Lanes, first: u32) -> Vec<u32> {
    lanes.unlink(first, &mut 0, |_, _| ());
    std::mem::take(&mut lanes.granted)
}

fn is_there(lanes: &Lanes, key: &str) -> bool {
    lanes.find(KeyRef::new(key.as_bytes())).is_some()
}

fn keys(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    range.map(|n| format!("key {n}"))
}

/// Checks what must hold of the lanes that are there, whatever was done.
fn check(lanes: &Lanes) {
    let kept = lanes.recent.clone();
    assert!(kept.len() <= RECENT);
    let unique: std::collections::BTreeSet<u32> = kept.iter().copied().collect();
    assert_eq!(unique.len(), kept.len(), "a lane is kept twice");
    assert_eq!(lanes.table.len(), lanes.lanes.len());
    for (number, lane) in lanes.all() {
        assert_eq!(lane.kept, unique.contains(&number));
        let needed = lane.depth > 0 || lane.paused || lane.unfinished;
        assert!(needed || lane.kept, "an idle lane is there for nothing");
        assert!(lane.depth > 0 || (lane.head, lane.tail, lane.first_waiting) == (NONE, NONE, NONE));
        assert!(lane.depth > 0 || (lane.active, lane.warned) == (0, 0));
        assert_eq!(lanes.find(KeyRef::new(lane.key.as_bytes())), Some(number));
    }
    for number in kept {
        assert!(lanes.lanes[number].kept, "a lane that is gone is kept");
    }
}

#[test]
fn the_most_recent_idle_lanes_are_kept_and_older_ones_dropped() {
    let mut lanes = Lanes::new(u32::MAX);
    for key in keys(0..RECENT) {
        pass(&mut lanes, &key);
    }
    check(&lanes);
    assert!(keys(0..RECENT).all(|key| is_there(&lanes, &key)));
    for key in keys(RECENT..RECENT + 10) {
        pass(&mut lanes, &key);
    }
    check(&lanes);
    assert!(keys(0..10).all(|key| !is_there(&lanes, &key)));
    assert!(keys(10..RECENT + 10).all(|key| is_there(&lanes, &key)));
    // Evicted and back again.
    pass(&mut lanes, "key 0");
    check(&lanes);
    assert!(is_there(&lanes, "key 0") && !is_there(&lanes, "key 10"));
}

#[test]
fn a_lane_reused_while_idle_is_not_evicted_in_use() {
    let mut lanes = Lanes::new(u32::MAX);
    pass(&mut lanes, "busy");
    let first = put(&mut lanes, 1, "busy");
    for key in keys(0..2 * RECENT) {
        pass(&mut lanes, &key);
    }
    check(&lanes);
    let second = put(&mut lanes, 2, "busy");
    assert_eq!(take(&mut lanes, first), [2]);
    assert_eq!(take(&mut lanes, second), []);
    check(&lanes);
    assert!(is_there(&lanes, "busy"), "it became idle just now");
    for key in keys(0..RECENT) {
        pass(&mut lanes, &key);
    }
    check(&lanes);
    assert!(!is_there(&lanes, "busy"));
}

#[test]
fn a_paused_lane_stays_until_it_is_resumed() {
    let mut lanes = Lanes::new(u32::MAX);
    let [before, while_kept] = [&b"before"[..], b"while kept"].map(KeyRef::new);
    lanes.set_paused(before, true);
    pass(&mut lanes, "before");
    pass(&mut lanes, "while kept");
    lanes.set_paused(while_kept, true);
    for key in keys(0..2 * RECENT) {
        pass(&mut lanes, &key);
    }
    check(&lanes);
    assert_eq!(lanes.paused, 2);
    for key in [before, while_kept] {
        let number = lanes.find(key).expect("a paused lane stays");
        assert!(lanes.lane(number).paused);
        assert_eq!(lanes.set_paused(key, false), Some(number));
        assert!(!lanes.lane(number).paused);
    }
    for key in keys(0..RECENT) {
        pass(&mut lanes, &key);
    }
    check(&lanes);
    assert!(lanes.find(before).is_none() && lanes.find(while_kept).is_none());
}

#[test]
fn an_unfinished_lane_stays_until_it_is_continued() {
    let mut lanes = Lanes::new(u32::MAX);
    pass(&mut lanes, "run");
    let mut readers = Vec::new();
    let writer = put(&mut lanes, 0, "run");
    for message in 1..4 {
        let mut chain = Lanes::chain();
        lanes.link(message, KeyRef::new(b"run"), true, &mut chain);
        readers.push(chain.first);
    }
    // The budget suffices for the first reader alone.
    assert_eq!(take(&mut lanes, writer), [1]);
    assert!(lanes.has_unfinished());
    for first in readers {
        take(&mut lanes, first);
    }
    for key in keys(0..2 * RECENT) {
        pass(&mut lanes, &key);
    }
    assert!(is_there(&lanes, "run"), "its number is noted");
    check(&lanes);
    lanes.go_on(&mut 10);
    assert!(lanes.granted().is_empty() && !lanes.has_unfinished());
    check(&lanes);
    for key in keys(0..RECENT) {
        pass(&mut lanes, &key);
    }
    assert!(!is_there(&lanes, "run"));
}

#[test]
fn a_peak_of_keys_leaves_only_the_maximum_of_idle_lanes() {
    let mut lanes = Lanes::new(u32::MAX);
    let count = 40_000;
    for round in 0..3 {
        let all: Vec<u32> =
            keys(0..count).zip(0..).map(|(key, message)| put(&mut lanes, message, &key)).collect();
        check(&lanes);
        assert!(lanes.lanes.segments() > RECENT_SEGMENTS);
        for first in all {
            take(&mut lanes, first);
        }
        check(&lanes);
        assert!(lanes.table.len() <= 2 * RECENT, "{} lanes", lanes.table.len());
        // The lanes kept may be spread over as many segments as there were lanes before it.
        assert!(lanes.lanes.segments() <= RECENT_SEGMENTS + 2, "round {round}");
        assert!(lanes.table.capacity() <= 16 * RECENT, "{}", lanes.table.capacity());
        assert!(lanes.edges.segments() <= 2);
    }
}

#[test]
fn a_key_with_a_new_lane_is_warned_about_again() {
    let mut lanes = Lanes::new(2);
    let deep = |lanes: &mut Lanes| {
        let all: Vec<u32> = (0..4).map(|message| put(lanes, message, "deep")).collect();
        let noted = std::mem::take(&mut lanes.deep).len();
        all.into_iter().for_each(|first| drop(take(lanes, first)));
        noted
    };
    assert_eq!(deep(&mut lanes), 2, "at two and at four");
    assert_eq!(deep(&mut lanes), 2, "the lane was kept, and is calm again");
    check(&lanes);
}

#[test]
fn lanes_used_at_random_keep_their_bounds() {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut lanes = Lanes::new(3);
    let mut held: Vec<u32> = Vec::new();
    for round in 0..60_000u32 {
        let key = match rng.u8(..) {
            // A few that come often, and many that hardly ever do.
            0..128 => format!("{}", rng.u8(..)),
            _ => format!("{}", rng.u32(..20_000)),
        };
        match rng.u8(..) {
            0..8 => {
                lanes.set_paused(KeyRef::new(key.as_bytes()), rng.bool());
            }
            8..140 => held.push(put(&mut lanes, round, &key)),
            _ if !held.is_empty() => {
                let first = held.swap_remove(rng.usize(..held.len()));
                take(&mut lanes, first);
            }
            _ => {}
        }
        // The queue takes what is unfinished with each call.
        lanes.go_on(&mut 1_000_000);
        lanes.deep.clear();
        if round % 500 == 0 {
            check(&lanes);
        }
    }
    held.into_iter().for_each(|first| drop(take(&mut lanes, first)));
    lanes.go_on(&mut 1_000_000);
    check(&lanes);
    assert!(lanes.table.len() <= RECENT + lanes.paused);
}
