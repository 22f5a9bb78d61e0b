//! Lost writes that come back to a row that is missing or has changed.

use interlock_log::apply::Fate;
use interlock_log::entry::{Body, PutBack};
use interlock_log::ring::{Kept, Memory, Ring};
use interlock_table::Value;

use crate::driven::{kept, Log, NOW};

/// A row from elsewhere and lost writes to it: the result is the same in whatever order they come
/// back and the row arrives.
#[test]
fn what_was_done_to_a_row_waits_for_it() {
    let mut west = Log::new("west");
    west.write(1, &["HINCRBY t:a n 5", "HSET t:gone n 9"]);
    let mut east = Log::new("east");
    east.takes("west", &west);
    let lines =
        ["TABLE INCR t:a n 4", "TABLE INCR t:a n -3", "TABLE PATCH t:a bits 6", "DEL t:gone"];
    let lost: Vec<_> = lines.iter().zip(1..).map(|(line, n)| kept(&mut east, n, line)).collect();
    assert!(lost.iter().all(|(_, did)| did.done.len() == 1));
    for from in 0..lost.len() {
        for in_between in 0..=lost.len() {
            let mut again = Log::begun("east", NOW, 0);
            for step in 0..=lost.len() {
                if step == in_between {
                    again.takes("west", &west);
                }
                if step < lost.len() {
                    come_back(&mut again, from + step, &lost);
                }
            }
            assert_eq!(again.value("a", 1), Value::Unsigned(6), "{from} {in_between}");
            assert_eq!(again.value("a", 3), Value::Unsigned(6), "{from} {in_between}");
            assert_eq!(again.rows().store().rows(), 1, "{from} {in_between}");
        }
    }
}

fn come_back(log: &mut Log, at: usize, lost: &[(u64, PutBack)]) {
    let (number, did) = &lost[at % lost.len()];
    let did = PutBack { leaps: true, ..did.clone() };
    let name = std::mem::replace(&mut log.name, b"node.1".to_vec());
    assert_eq!(log.append(*number, Body::PutBack(did)).0, Fate::Counted);
    log.name = name;
}

/// A delete finds no row because the row is lost. Then the row comes back: by its lost writes, or
/// from another data centre, which has received it. The delete counts, and what was done later.
#[test]
fn a_delete_that_found_no_row_deletes_what_comes_back() {
    let mut east = Log::new("east");
    let lines = ["HSET t:a n 5", "TABLE PATCH t:a bits 6", "HSET t:b n 7"];
    let lost: Vec<_> = lines.iter().zip(1..).map(|(line, n)| kept(&mut east, n, line)).collect();
    for (later, value) in [("TABLE BARRIER t", 0), ("HSET t:a n 9", 9)] {
        for is_from_west in [false, true] {
            let mut west = Log::new("west");
            west.takes("east", &east);
            let mut again = Log::begun("east", NOW, 100);
            assert_eq!(again.write(11, &["DEL t:a t:c"]), [":0\r\n"]);
            let deleted = again.kept.take().unwrap();
            again.write(12, &[later]);
            if is_from_west {
                again.takes("west", &west);
                assert_eq!(again.value("a", 1), Value::Unsigned(value), "{later}");
            }
            (0..lost.len()).for_each(|at| come_back(&mut again, at, &lost));
            assert_eq!(again.value("a", 1), Value::Unsigned(value), "{later} {is_from_west}");
            // The other data centre does not know that the new row is another one.
            let bits = if is_from_west && value > 0 { 6 } else { 0 };
            assert_eq!(again.value("a", 3), Value::Unsigned(bits), "{later} {is_from_west}");
            assert_eq!(again.value("b", 1), Value::Unsigned(7));
            // The other data centre hears of it.
            west.takes("east", &again);
            assert_eq!(west.value("a", 1), Value::Unsigned(value), "{later} {is_from_west}");

            // The delete is lost, too, and comes back before or after the row.
            for from in 0..=lost.len() {
                let mut third = Log::begun("east", NOW, 200);
                let all = [&lost[..], &[(11, deleted.clone())]].concat();
                (0..all.len()).for_each(|at| come_back(&mut third, from + at, &all));
                assert_eq!(third.value("a", 1), Value::Unsigned(0), "{from}");
                assert_eq!(third.rows().store().rows(), 1, "{from}");
            }
        }
    }
}

/// Histories of one data centre are joined, of which one has a delete that found no row, and the
/// other the row.
#[test]
fn a_delete_that_found_no_row_counts_in_a_joined_history() {
    let mut east = Log::new("east");
    east.write(1, &["HSET t:a n 5", "HSET t:b n 7"]);
    let mut other = Log::begun("east", NOW, 100);
    other.write(11, &["DEL t:a"]);
    for (ours, theirs) in [(0, 1), (1, 0)] {
        let logs = [&east, &other].map(Log::bytes);
        let mut joined = Log::begun("east", NOW, 200);
        for at in [ours, theirs] {
            let body = Body::State { source: None, bytes: logs[at].clone() };
            assert_eq!(joined.append(0, body).0, Fate::Taken);
        }
        assert_eq!(joined.value("a", 1), Value::Unsigned(0));
        assert_eq!(joined.value("b", 1), Value::Unsigned(7));
    }
}

/// Only the last deletes that found no row are remembered, each key once.
#[test]
fn few_deletes_that_found_no_row_are_remembered() {
    let mut east = Log::new("east");
    let (number, lost) = kept(&mut east, 1, "HSET t:k1 n 5");
    let mut again = Log::begun("east", NOW, 100);
    let delete = |again: &mut Log, key: u64| {
        let line = format!("DEL t:k{key}");
        assert_eq!(again.write(10 + key, &[&line]), [":0\r\n"]);
    };
    (1..=1024).for_each(|key| delete(&mut again, key));
    delete(&mut again, 1024);
    come_back(&mut again, 0, &[(number, lost.clone())]);
    assert_eq!(again.value("k1", 1), Value::Unsigned(0));
    let before = again.bytes().len();
    (1025..=2048).for_each(|key| delete(&mut again, key));
    assert!(again.bytes().len() < before + 2000, "the list does not grow");
}

/// A write that changed nothing does not come back, because it could now find a row. A delete does.
#[test]
fn what_changed_nothing_does_not_come_back() {
    let mut east = Log::new("east");
    for (number, line) in [(1, "TABLE INCR t:a n 4"), (2, "PERSIST t:a"), (3, "HSETNX t:b n 1")] {
        let (_, did) = kept(&mut east, number, line);
        assert_eq!(did.done.len(), usize::from(number == 3), "{line}");
    }
    let (_, did) = kept(&mut east, 4, "HSETNX t:b n 2");
    assert!(did.done.is_empty() && did.denied.is_empty());
}

/// Otherwise nodes would put it back for ever.
#[test]
fn a_lost_write_that_is_refused_when_it_comes_back_counts_as_done() {
    let mut east = Log::new("east");
    let lost = kept(&mut east, 1, "HINCRBY t:a top 200");
    let mut again = Log::begun("east", NOW, 100);
    assert_eq!(again.write(11, &["HINCRBY t:a top 250"]), [":250\r\n"]);
    come_back(&mut again, 0, &[lost]);
    assert_eq!(again.value("a", 2), Value::Unsigned(250));
    assert!(again.has_done(1));
}

/// A write that comes to nothing in another history keeps the writer under whom others may have it.
#[test]
fn a_lost_write_keeps_its_writer() {
    let (number, did) = kept(&mut Log::new("east"), 1, "HINCRBY t:a n 1");
    let writer = did.writer;
    let kept = |position, did| Kept { name: b"node.1".to_vec(), number, position, did };
    let mut ring = Memory::new(10);
    ring.add(kept(2, did));
    ring.add(kept(3, PutBack::default()));
    let mut found = Vec::new();
    ring.each(&mut |kept| {
        found.push((kept.position, kept.did.writer, kept.did.done.len()));
        true
    });
    assert!(writer > 0);
    assert_eq!(found, [(3, writer, 1)]);
}
