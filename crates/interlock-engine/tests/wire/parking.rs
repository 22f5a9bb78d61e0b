//! Calls that wait are answered in the order of coming, once, by whatever ends their wait.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use crate::{Bench, START};
use interlock_engine::{Durability, EngineSettings, Journal, Recorded};

#[test]
fn parked_calls_are_served_in_order_of_arrival_by_what_they_asked_for() {
    let mut bench = Bench::new();
    bench.park("lease a 1 900 1 50 keyed", 1);
    bench.park("lease b 1 900 1 50 any", 2);
    bench.park("lease c 1 900 2 50 unkeyed", 3);
    bench.call("put - 0 0 first 0 0 0 second 1 0 0 k third 0 0 0");
    let served = bench.answers();
    assert_eq!(served.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [1, 2, 3]);
    let payload = |n: usize| served[n].1.as_ref().unwrap()[7].clone();
    assert_eq!([payload(0), payload(1), payload(2)], ["second", "first", "third"]);
    assert_eq!(bench.engine.next_due(), None, "nobody waits");
}

#[test]
fn a_parked_lease_ends_with_a_due_message_or_empty_at_its_timeout() {
    let mut bench = Bench::new();
    bench.call("put - 0 0 late 0 0 1 DELAY 300");
    bench.park("lease a 1 500 1 100 any", 1);
    assert_eq!(bench.engine.next_due(), Some(START + 300));
    bench.tick(299);
    assert_eq!(bench.woken(), []);
    bench.tick(1);
    let served = bench.answers();
    assert_eq!(served[0].1.as_ref().unwrap()[7], "late");
    bench.tick(100);
    let again = bench.call("lease b 0 0 1 100 any");
    bench.call(&format!("extend {} 100", again[0]));
    bench.park("lease a 2 500 1 100 any", 2);
    bench.tick(100);
    assert_eq!(bench.woken(), [], "the lease ran out again: it backs off");
    bench.tick(400);
    let served = bench.answers();
    let strings = served[0].1.as_ref().unwrap();
    assert_eq!(
        (served[0].0, &strings[..2], &strings[3]),
        (2, &["".into(), "".into()][..], &"0".into())
    );
    assert_eq!(&bench.call("lease a 2 500 1 100 any"), strings, "it is kept as any reply is");
}

#[test]
fn a_repeated_parked_next_settles_once_and_is_answered_on_the_last_connection() {
    let mut bench = Bench::new();
    bench.call("put - 0 0 one 0 0 0");
    let lease = bench.call("lease a 1 0 1 90000 any");
    let next = format!("next a 2 500 1 90000 any ACK {} {}", lease[0], lease[4]);
    bench.park(&next, 1);
    bench.park(&next, 2);
    assert_eq!(bench.count("acks"), 1);
    bench.engine.forget(2);
    assert_eq!(bench.engine.next_due(), None, "nobody waits");
    bench.call("put - 0 0 two 0 0 0");
    assert_eq!(bench.woken(), []);
    let told = bench.call(&next);
    assert_eq!((&told[0], &told[1], &told[9]), (&"1".into(), &"ACKED".into(), &"two".into()));
    assert_eq!(bench.call(&next), told);
    assert_eq!((bench.count("acks"), bench.count("leases")), (1, 2));
}

#[test]
fn a_repeated_parked_call_keeps_its_position() {
    let mut bench = Bench::new();
    bench.park("lease a 1 500 1 900 any", 1);
    bench.park("lease b 1 500 1 900 any", 2);
    bench.park("lease a 1 500 1 900 any", 3);
    bench.call("put - 0 0 one 0 0 0");
    assert_eq!(bench.woken(), [3]);
    bench.call("put - 0 0 two 0 0 0");
    assert_eq!(bench.woken(), [2]);
}

#[test]
fn a_newer_call_of_a_consumer_ends_the_one_that_waits() {
    let mut bench = Bench::new();
    bench.park("lease a 1 500 1 900 any", 1);
    assert!(bench.call("lease a 2 0 1 900 any")[0].is_empty());
    let served = bench.answers();
    assert_eq!(served[0].0, 1);
    assert!(served[0].1.as_ref().unwrap_err().starts_with("STALECALL il1_lease: "));
    bench.park("lease a 3 500 1 900 any", 2);
    assert!(bench.refused("lease a 2 500 1 900 any").starts_with("STALECALL il1_lease: "));
    assert!(bench.refused("settle a 3 ACK 5 6").starts_with("STALECALL il1_settle: "));
}

#[test]
fn parked_puts_wait_in_order_and_get_full_at_their_timeout() {
    let mut bench = Bench::new();
    bench.call("configure MAXSIZE 2");
    bench.call("put - 0 0 one 0 0 0 two 0 0 0");
    bench.park("put a 1 100 three 0 0 0 four 0 0 0", 1);
    bench.park("put b 1 200 five 0 0 0", 2);
    bench.park("put c 1 200 six 0 0 0", 3);
    let lease = bench.call("lease c 0 0 2 900 any");
    bench.call(&format!("settle c 0 ACK {} {}", lease[0], lease[4]));
    assert_eq!(bench.woken(), [2], "the first in line needs room for two");
    bench.tick(100);
    let served = bench.answers();
    assert_eq!(served[0].0, 1);
    let full = "FULL il1_put: 2 messages are unsettled; MAXSIZE is 2";
    assert_eq!(served[0].1.as_ref().unwrap_err(), full);
    assert_eq!(bench.refused("put b 2 0 six 0 0 0"), full);
    bench.call("seal");
    assert!(bench.answers()[0].1.as_ref().unwrap_err().starts_with("SEALED il1_put: "));
}

const KEPT: &str = "FULL il1_put: room is reserved for an earlier put that needs more";

/// One message leased and one not, of three; a batch of two waits and was passed until room is kept for it.
fn with_room_kept(bench: &mut Bench) -> Vec<String> {
    bench.call("configure MAXSIZE 3");
    bench.call("put - 0 0 one 0 0 0 two 0 0 0");
    let lease = bench.call("lease h 0 0 1 90000000 any");
    bench.park("put a 1 90000000 three 0 0 0 four 0 0 0", 1);
    for n in 0..64 {
        let id = bench.call(&format!("put - 0 {} small 0 0 0", n % 2 * 500))[0].clone();
        assert_eq!(bench.call(&format!("cancel {id}")), ["1"]);
    }
    // What was cancelled last was settled while room was kept.
    assert_eq!(bench.refused("put - 0 0 small 0 0 0"), KEPT);
    bench.tick(10_000);
    assert_eq!(bench.refused("put - 0 0 small 0 0 0"), KEPT);
    assert_eq!(bench.woken(), []);
    lease
}

#[test]
fn room_is_reserved_for_the_first_parked_put_and_then_smaller_ones_pass_again() {
    let mut bench = Bench::new();
    let lease = with_room_kept(&mut bench);
    bench.park("put b 1 90000000 small 0 0 0", 2);
    bench.tick(9_999);
    assert_eq!(bench.woken(), []);
    assert_eq!(bench.engine.next_due(), Some(bench.now + 1));
    bench.tick(1);
    assert_eq!(bench.woken(), [2], "nothing was settled");
    bench.call("settle h 0 ACK 5 6");
    for _ in 0..2 {
        let next = bench.call("lease h 0 0 1 90000000 any");
        bench.call(&format!("settle h 0 ACK {} {}", next[0], next[4]));
    }
    assert_eq!(bench.woken(), [1]);
    bench.call(&format!("settle h 0 ACK {} {}", lease[0], lease[4]));
    bench.call("put - 0 0 small 0 0 0");
}

#[test]
fn a_put_that_leaves_frees_the_room_reserved_for_it() {
    for ends in [true, false] {
        let mut bench = Bench::new();
        with_room_kept(&mut bench);
        bench.park("put b 1 90000000 small 0 0 0", 2);
        if ends {
            assert!(bench.call("lease a 2 0 1 9 keyed")[0].is_empty(), "a newer call of its own");
        } else {
            bench.engine.forget(1);
            bench.tick(0);
        }
        assert_eq!(bench.woken().last(), Some(&2));
    }
}

#[test]
fn a_requeued_dead_letter_uses_no_reserved_room() {
    let mut bench = Bench::new();
    let dead = bench.call("put - 0 0 dead 0 0 0")[0].clone();
    let lease = bench.call("lease h 0 0 1 90000000 any");
    bench.call(&format!("settle h 0 REJECT {} {} reason", lease[0], lease[4]));
    with_room_kept(&mut bench);
    assert_eq!(bench.refused(&format!("requeue {dead}")), KEPT.replace("il1_put", "il1_requeue"));
    bench.tick(10_000);
    assert_eq!(bench.call(&format!("requeue {dead}")).len(), 1);
}

#[test]
fn known_and_too_large_puts_are_answered_while_room_is_reserved() {
    let mut bench = Bench::new();
    bench.call("put - 0 0 named 0 0 1 DEDUP x");
    let lease = bench.call("lease - 0 0 1 90000000 any");
    bench.call(&format!("settle - 0 ACK {} {}", lease[0], lease[4]));
    with_room_kept(&mut bench);
    assert_eq!(bench.call("put - 0 0 again 0 0 1 DEDUP x")[1], "1");
    let four = "put - 0 0 a 0 0 0 b 0 0 0 c 0 0 0 d 0 0 0";
    assert!(bench.refused(four).starts_with("TOOBIG "));
    bench.call("seal");
    assert!(bench.refused("put - 0 0 small 0 0 0").starts_with("SEALED "));
}

/// Clause 13: a put of a known string never waits.
#[test]
fn a_parked_put_is_answered_when_its_dedup_string_becomes_known() {
    let mut bench = Bench::new();
    bench.call("configure MAXSIZE 2");
    bench.call("put - 0 0 one 0 0 0");
    bench.park("put a 1 900 three 0 0 0 four 0 0 0", 1);
    bench.park("put b 1 900 two 0 0 1 DEDUP x two 0 0 1 DEDUP y", 2);
    bench.park("put c 1 900 two 0 0 1 DEDUP x one 0 0 1 DEDUP y", 3);
    bench.call("put - 0 0 two 0 0 1 DEDUP y");
    assert_eq!(bench.woken(), []);
    bench.call("cancel 1000000000000000");
    assert_eq!(bench.woken(), [2, 3], "the second is known by what the first has put");
}

#[test]
fn a_sealed_queue_answers_parked_calls_when_it_is_empty() {
    let mut bench = Bench::new();
    bench.call("put - 0 0 one 0 0 0");
    let lease = bench.call("lease a 0 0 1 900 any");
    bench.park("lease b 1 500 1 900 any", 1);
    bench.call("seal");
    assert_eq!(bench.woken(), []);
    bench.call(&format!("settle a 0 ACK {} {}", lease[0], lease[4]));
    assert_eq!(bench.answers()[0].1.as_ref().unwrap()[2], "sealed");
    assert_eq!(bench.parks("lease b 2 500 1 900 any", Some(2)).unwrap().unwrap()[2], "sealed");
}

#[test]
fn a_call_can_wait_for_a_result() {
    let mut bench = Bench::new();
    let ids = bench.call("put - 0 0 one 0 0 1 RESULT 1000 two 0 0 1 ATTEMPTS 1");
    bench.park(&format!("result {} 500", ids[0]), 1);
    bench.park(&format!("result {} 500", ids[0]), 2);
    bench.park(&format!("result {} 500", ids[2]), 3);
    let lease = bench.call("lease a 0 0 2 100 any");
    bench.call(&format!("settle a 0 DONE {} {} fine", lease[0], lease[4]));
    let fine = Ok(vec!["acked".to_owned(), "fine".to_owned()]);
    assert_eq!(bench.answers(), [(1, fine.clone()), (2, fine)]);
    bench.tick(100);
    let again = bench.call("lease a 0 0 2 100 any");
    bench.call(&format!("extend {} 100", again[0]));
    bench.tick(100);
    let failed = Ok(vec!["dead".to_owned(), "lease expired".to_owned()]);
    assert_eq!(bench.answers(), [(3, failed)]);
    let ids = bench.call("put - 0 0 three 0 0 0");
    bench.park(&format!("result {} 500", ids[0]), 4);
    bench.tick(500);
    assert_eq!(bench.answers(), [(4, Ok(vec!["pending".to_owned()]))]);
    bench.now += 1000;
    assert_eq!(bench.call(&format!("result {} 0", START)), ["gone"]);
}

#[test]
fn a_call_can_wait_for_one_message_or_all_to_end() {
    let mut bench = Bench::new();
    assert_eq!(bench.parks("join 500", Some(1)), Some(Ok(vec!["0".into(), "".into()])));
    let ids = bench.call("put - 0 0 one 0 0 0 two 0 0 1 ATTEMPTS 1");
    assert_eq!(bench.call("join 500"), ["2", ""], "without a ticket nobody waits");
    bench.park(&format!("join 500 {}", ids[0]), 1);
    bench.park("join 500", 2);
    bench.park(&format!("join 500 {}", ids[2]), 3);
    let lease = bench.call("lease a 0 0 2 100 any");
    bench.call(&format!("settle a 0 ACK {} {}", lease[0], lease[4]));
    let none = Ok(vec!["0".to_owned(), String::new()]);
    assert_eq!(bench.answers(), [(1, none.clone())]);
    assert_eq!(bench.call("join 0"), ["1", "100"]);
    bench.tick(100);
    let again = bench.call("lease a 0 0 2 100 any");
    bench.call(&format!("extend {} 100", again[0]));
    bench.tick(100);
    assert_eq!(bench.answers(), [(3, none.clone()), (2, none)], "dead, as its lease ran out");
    bench.call("put - 0 0 late 0 0 1 DELAY 900");
    bench.park("join 300", 4);
    bench.park("join 500", 5);
    bench.engine.forget(5);
    bench.tick(300);
    assert_eq!(bench.answers(), [(4, Ok(vec!["1".to_owned(), "600".to_owned()]))]);
    assert_eq!(bench.engine.next_due(), None, "nobody waits");
}

#[test]
fn at_the_memory_limit_only_puts_are_refused() {
    let mut bench = Bench::with(EngineSettings { memory: 1 << 20, ..EngineSettings::default() });
    let put = format!("put - 0 0 {} 0 0 0", "p".repeat(600 << 10));
    bench.call(&put);
    let full = bench.refused(&put);
    assert!(full.starts_with("OOM "), "{full}");
    let lease = bench.call("lease a 1 0 9 900 any");
    bench.call(&format!("settle a 2 ACK {} {}", lease[0], lease[4]));
    bench.call(&put);
}

#[test]
fn messages_that_leave_the_queue_free_its_memory_count() {
    let mut bench = Bench::with(EngineSettings { memory: 1 << 40, ..EngineSettings::default() });
    bench.call("put - 0 0 x 0 0 0");
    bench.call("purge pending");
    // The records of a few messages are kept for the next ones, until it is left alone.
    let rest = |bench: &mut Bench| {
        bench.rest(20_000_000);
        bench.engine.used()
    };
    let empty = rest(&mut bench);
    for way in ["ACK", "REJECT", "cancel", "skip", "revoke", "requeue"] {
        bench.call(&format!("put - 0 0 {} 1 0 0 key", "p".repeat(9000)));
        assert!(bench.engine.used() > empty + 9000);
        if way == "cancel" {
            bench.call("purge pending");
            continue;
        }
        let lease = bench.call("lease - 0 0 1 900 any");
        let (token, id) = (&lease[0], &lease[4]);
        let told = match way {
            "ACK" => bench.call(&format!("settle - 0 ACK {token} {id}")),
            "skip" => {
                bench.call(&format!("settle - 0 NACK {token} {id} 500 -"));
                bench.call(&format!("skip {id}"))
            }
            "revoke" => bench.call(&format!("revoke {id} skip")),
            _ => bench.call(&format!("settle - 0 REJECT {token} {id} bad")),
        };
        assert_ne!(told, ["0"]);
        if way == "requeue" {
            bench.call(&format!("requeue {id}"));
            bench.call("purge pending");
        }
        bench.call("purge dead");
        assert_eq!(rest(&mut bench), empty, "after {way}");
    }
}

#[test]
fn parked_puts_count_towards_the_memory_limit() {
    let mut bench = Bench::with(EngineSettings { memory: 1 << 20, ..EngineSettings::default() });
    bench.call("configure MAXSIZE 1");
    bench.call("put - 0 0 one 0 0 0");
    let put = format!("put - 0 500 {} 0 0 0", "p".repeat(400 << 10));
    bench.park(&put, 1);
    bench.park(&put, 2);
    let refused = bench.parks(&put, Some(3)).expect("it is not parked");
    assert!(refused.unwrap_err().starts_with("OOM "));
    bench.engine.forget(1);
    bench.park(&put, 4);
    bench.engine.forget(2);
    bench.engine.forget(4);
    assert!(bench.engine.used() < 100 << 10);
}

/// Counts the puts that are tried: each asks whether it can be recorded.
#[derive(Default)]
struct Tried(AtomicUsize);

impl Journal for Tried {
    fn record(&self, _: &[u8], _: Durability, _: u64, _: Recorded, _: &[&[u8]]) {}

    fn accepts(&self, _: Option<u64>) -> Result<(), String> {
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }
}

#[test]
fn free_room_is_tried_by_one_parked_put_only() {
    let journal = Arc::new(Tried::default());
    let (durability, kept) = (Durability::Always, Some(journal.clone() as Arc<dyn Journal>));
    let mut bench =
        Bench::with(EngineSettings { durability, journal: kept, ..EngineSettings::default() });
    bench.call("configure MAXSIZE 2");
    bench.call("put - 0 0 one 0 0 0 two 0 0 0");
    bench.park("put first 1 90000000 three 0 0 0 four 0 0 0", 1);
    for n in 0..200 {
        bench.park(&format!("put c{n} 1 90000000 small 0 0 0"), 2 + n);
    }
    let lease = bench.call("lease h 0 0 1 90000000 any");
    journal.0.store(0, Relaxed);
    bench.call(&format!("settle h 0 ACK {} {}", lease[0], lease[4]));
    assert_eq!(bench.woken(), [2], "the first in line needs room for two");
    assert!(journal.0.load(Relaxed) <= 3, "{} puts were tried", journal.0.load(Relaxed));
}

#[test]
fn a_dedup_string_that_becomes_known_is_checked_only_by_puts_that_have_it() {
    let journal = Arc::new(Tried::default());
    let (durability, kept) = (Durability::Always, Some(journal.clone() as Arc<dyn Journal>));
    let mut bench =
        Bench::with(EngineSettings { durability, journal: kept, ..EngineSettings::default() });
    bench.call("configure MAXSIZE 2");
    bench.call("put - 0 0 one 0 0 0 two 0 0 0");
    for n in 0..200 {
        bench.park(&format!("put c{n} 1 90000000 p 0 0 1 DEDUP s{}", n % 100), n);
    }
    let lease = bench.call("lease h 0 0 1 90000000 any");
    journal.0.store(0, Relaxed);
    bench.call(&format!("settle h 0 ACK {} {}", lease[0], lease[4]));
    bench.call("settle h 0 ACK 5 6");
    assert_eq!(bench.woken(), [0, 100], "room for one, and its string");
    let tried = journal.0.load(Relaxed);
    assert!(tried <= 8, "{tried} puts were tried");
}
