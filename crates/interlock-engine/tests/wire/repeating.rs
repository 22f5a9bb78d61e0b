//! A call that is sent again is answered as the first time, and does nothing.

use crate::Bench;

const MINUTE: u64 = 60_000_000;

#[test]
fn the_last_reply_of_each_consumer_is_kept_for_five_minutes() {
    let mut bench = Bench::new();
    let put = "put a 1 0 one 0 0 0";
    let told = bench.call(put);
    bench.call("put b 1 0 two 0 0 0");
    bench.now += 5 * MINUTE - 1;
    assert_eq!(bench.call(put), told);
    let lease = bench.call("lease a 2 0 9 900000000 any");
    assert_eq!(bench.call("lease a 2 0 9 900000000 any"), lease);
    let settle = format!("settle a 3 ACK {} {}", lease[0], lease[4]);
    assert_eq!(bench.call(&settle), ["ACKED"]);
    assert_eq!(bench.call(&settle), ["ACKED"]);
    bench.now += 5 * MINUTE;
    assert_eq!(bench.call(&settle), ["LEASELOST"]);
    assert_eq!((bench.count("puts"), bench.count("acks")), (2, 1));
}

#[test]
fn a_call_that_came_before_or_was_another_function_is_stale() {
    let mut bench = Bench::new();
    bench.call("put a 7 0 one 0 0 0");
    assert_eq!(
        bench.refused("put a 6 0 one 0 0 0"),
        "STALECALL il1_put: call 6 comes after call 7"
    );
    assert_eq!(bench.refused("lease a 7 0 1 9 any"), "STALECALL il1_lease: call 7 was il1_put");
    assert_eq!(bench.count("puts"), 1);
}

#[test]
fn a_call_that_was_refused_is_not_kept() {
    let mut bench = Bench::new();
    bench.call("configure MAXSIZE 1");
    bench.call("put - 0 0 one 0 0 0");
    assert!(bench.refused("put a 1 0 two 0 0 0").starts_with("FULL "));
    bench.call("purge pending");
    bench.call("put a 1 0 two 0 0 0");
}

#[test]
fn what_is_kept_is_bounded_and_a_reply_that_was_dropped_is_not_given_twice() {
    let mut bench = Bench::new();
    let payload = "p".repeat(1 << 20);
    for n in 0..40 {
        bench.call(&format!("put - 0 0 {payload} 0 0 0"));
        bench.call(&format!("lease c{n} 1 0 1 900000000 any"));
    }
    assert!(bench.engine.used() < (40 << 20) + (18 << 20), "{}", bench.engine.used());
    assert!(bench.refused("lease c0 1 0 1 900 any").starts_with("STALECALL il1_lease: "));
    assert_eq!(bench.call("lease c39 1 0 1 900000000 any")[7], payload);
}

#[test]
fn names_of_consumers_that_are_gone_are_forgotten() {
    let mut bench = Bench::new();
    bench.call("put - 0 0 one 0 0 0");
    bench.call("lease holder 0 0 1 900000000 any");
    let held = bench.engine.used();
    for n in 0..100_000 {
        bench.call(&format!("lease c{n} 0 0 1 9 any"));
    }
    assert!(bench.engine.used() < held + (1 << 20), "{}", bench.engine.used());
    let id = crate::START.to_string();
    assert_eq!(bench.call(&format!("peek {id}"))[2], "holder");
}
