//! A call that is sent again is answered as the first time, and does nothing.

use crate::Bench;

const MINUTE: u64 = 60_000_000;

#[test]
fn the_last_reply_of_each_consumer_is_stored_for_five_minutes() {
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
fn an_older_call_or_one_of_another_function_is_stale() {
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
fn a_refused_call_is_not_stored() {
    let mut bench = Bench::new();
    bench.call("configure MAXSIZE 1");
    bench.call("put - 0 0 one 0 0 0");
    assert!(bench.refused("put a 1 0 two 0 0 0").starts_with("FULL "));
    bench.call("purge pending");
    bench.call("put a 1 0 two 0 0 0");
}

#[test]
fn a_reply_is_repeated_however_many_were_stored_since() {
    let mut bench = Bench::new();
    let payload = "p".repeat(1 << 20);
    let mut told = Vec::new();
    for n in 0..40 {
        bench.call(&format!("put - 0 0 {payload} 1 1 1 a{n} b{n} PRIORITY 3"));
        bench.call("put - 0 0 settled 0 0 0");
        let lease = bench.call("lease - 0 0 1 900000000 unkeyed");
        let acks = format!("ACK {} {} ACK 1 1", lease[0], lease[4]);
        let next = format!("next c{n} 1 0 9 900000000 any {acks}");
        told.push((next.clone(), bench.call(&next)));
    }
    // The messages themselves, and as many replies as one queue keeps whole.
    assert!(bench.engine.used() < (40 << 20) + (18 << 20), "{}", bench.engine.used());
    let (put, ids) = ("put d 1 0 one 0 0 0 two 0 0 0", bench.call("put d 1 0 one 0 0 0 two 0 0 0"));
    for (next, first) in &told {
        assert_eq!(&bench.call(next), first);
        assert_eq!(first[..3], ["2", "ACKED", "LEASELOST"]);
    }
    assert_eq!(bench.call(put), ids);
    assert_eq!((bench.count("leased"), bench.count("acks")), (40, 40));
}

#[test]
fn an_abbreviated_stored_reply_omits_messages_no_longer_leased() {
    let mut bench = Bench::new();
    let payload = "p".repeat(1 << 19);
    let mut leased = Vec::new();
    for n in 0..40 {
        bench.call(&format!("put - 0 0 {payload} 0 0 0 {payload} 0 0 0"));
        leased.push(bench.call(&format!("lease c{n} 1 0 2 900000000 any")));
    }
    let (one, other) = (&leased[0], &leased[1]);
    // Another settles half of the one, and an operator ends all of the other.
    bench.call(&format!("settle - 0 ACK {} {}", one[0], one[4]));
    for id in [&other[4], &other[10]] {
        bench.call(&format!("revoke {id} skip"));
    }
    let again = bench.call("lease c0 1 0 2 900000000 any");
    assert_eq!(again[..4], [&one[0], &one[1], "", "1"]);
    assert_eq!(again[4..], one[10..]);
    assert_eq!(bench.call("lease c1 1 0 2 900000000 any"), ["", "", "0", "0"]);
    // It is the same call nevertheless.
    assert!(bench.refused("lease c1 0 0 2 900000000 any x").starts_with("BADARG"));
    assert_eq!(bench.count("leases"), 80);
}

#[test]
fn names_of_consumers_that_left_are_dropped() {
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

#[test]
fn a_repeated_lease_is_answered_even_if_its_number_was_used_by_a_call_that_did_nothing() {
    let mut bench = Bench::new();
    bench.call("configure MAXSIZE 9");
    let call = "lease a 1 0 1 900000000 any";
    assert!(bench.call(call)[0].is_empty());
    // It has gone for longer than a reply is kept, and counts from 1 again.
    bench.now += 5 * MINUTE;
    bench.call("put - 0 0 one 0 0 0");
    let lease = bench.call(call);
    assert_eq!(lease[7], "one");
    for n in 0..1024 {
        assert!(bench.call(&format!("lease b{n} 1 0 1 900 any"))[0].is_empty());
    }
    assert_eq!(bench.call(call), lease);
}
