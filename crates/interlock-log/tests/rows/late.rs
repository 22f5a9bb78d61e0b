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

/// A write that changed nothing does not come back, because it could now find a row.
#[test]
fn what_changed_nothing_does_not_come_back() {
    let mut east = Log::new("east");
    for (number, line) in [(1, "TABLE INCR t:a n 4"), (2, "DEL t:a"), (3, "HSETNX t:b n 1")] {
        let (_, did) = kept(&mut east, number, line);
        assert_eq!(did.done.len(), usize::from(number == 3), "{line}");
    }
    let (_, did) = kept(&mut east, 4, "HSETNX t:b n 2");
    assert!(did.done.is_empty() && did.denied.is_empty());
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
