//! Runs (clause 30): what is refused, bounded, and returned by one call.

use crate::Bench;

/// Puts this many messages of one run on a key.
fn put(bench: &mut Bench, key: &str, run: &str, count: usize) -> Vec<String> {
    let one = format!("put - 0 0 p 1 0 1 {key} RUN {run}");
    (0..count).map(|_| bench.call(&one).swap_remove(0)).collect()
}

/// The ids and attempts of a lease without keys beyond the first.
fn told(reply: &[String]) -> Vec<(&str, &str)> {
    reply[4..].chunks(7).map(|one| (&*one[0], &*one[2])).collect()
}

#[test]
fn a_run_that_is_no_number_and_label_is_refused() {
    let mut bench = Bench::new();
    let longest = format!("2:{}", "x".repeat(259));
    let longer = format!("{longest}x");
    for (run, wrong) in [
        ("-", "is empty"),
        ("3", "is not N:LABEL with N from 2 to 1,024"),
        (":a", "is not N:LABEL with N from 2 to 1,024"),
        ("1:a", "is not N:LABEL with N from 2 to 1,024"),
        ("1025:a", "is not N:LABEL with N from 2 to 1,024"),
        ("99999999999999999999999999:a", "is not N:LABEL with N from 2 to 1,024"),
        ("+3:a", "is not N:LABEL with N from 2 to 1,024"),
        ("3a:a", "is not N:LABEL with N from 2 to 1,024"),
        (&*longer, "has 262 bytes; at most 261"),
    ] {
        let refused = bench.refused(&format!("put - 0 0 p 1 0 1 k RUN {run}"));
        assert_eq!(refused, format!("BADARG il1_put: messages[1].RUN {wrong}"));
    }
    put(&mut bench, "k", &longest, 1);
    let id = put(&mut bench, "k", "0003:a:b", 1).remove(0);
    let seen = bench.call(&format!("peek {id}"));
    assert!(seen.windows(2).any(|pair| pair == ["RUN", "3:a:b"]), "{seen:?}");
}

#[test]
fn a_call_returns_at_most_1024_messages_with_riders() {
    let mut bench = Bench::new();
    for key in ["a", "b"] {
        put(&mut bench, key, "1000:x", 1_000);
    }
    let leased = bench.call("lease - 0 0 2 90000 any+");
    assert_eq!(leased[3], "1024");
    assert_eq!((bench.count("leased"), bench.count("riding")), (1_024, 1_022));
    assert_eq!(told(&leased).iter().filter(|(_, attempt)| *attempt == "1").count(), 2);
}

#[test]
fn the_bytes_of_a_call_end_a_run() {
    let mut bench = Bench::new();
    let large = "x".repeat(600_000);
    for _ in 0..3 {
        bench.call(&format!("put - 0 0 {large} 1 0 1 k RUN 9:x"));
    }
    bench.call("put - 0 0 p 1 0 1 l RUN 9:x");
    assert_eq!(bench.call("lease - 0 0 9 90000 any+")[3], "2");
}

#[test]
fn a_repeated_call_returns_the_same_run() {
    let mut bench = Bench::new();
    let ids = put(&mut bench, "k", "9:x", 3);
    let first = bench.call("lease a 1 0 1 90000 any+");
    assert_eq!(told(&first), [(&*ids[0], "1"), (&*ids[1], "+1"), (&*ids[2], "+1")]);
    assert_eq!(bench.call("lease a 1 0 1 90000 any+"), first);
}

#[test]
fn one_call_takes_back_a_run_of_a_thousand_and_no_second_one() {
    let mut bench = Bench::new();
    for key in ["a", "b"] {
        put(&mut bench, key, "1000:x", 1_000);
        bench.call("lease - 0 0 1 50 any+");
    }
    bench.now += 50;
    bench.call("put - 0 0 p 0 0 0");
    assert_eq!((bench.count("leased"), bench.count("waiting")), (1_000, 999));
    bench.call("put - 0 0 p 0 0 0");
    assert_eq!((bench.count("leased"), bench.count("riding")), (0, 0));
    assert_eq!((bench.count("waiting"), bench.count("ready")), (1_998, 4));
}

#[test]
fn a_quiet_rider_has_both_marks() {
    let mut bench = Bench::new();
    for _ in 0..2 {
        bench.call("put - 0 0 p 1 0 2 k RUN 9:x QUIET 1");
    }
    let leased = bench.call("lease - 0 0 1 90000 keyed+");
    assert_eq!((&*leased[6], &*leased[13]), ("-1", "+-1"));
}

#[test]
fn a_rider_follows_the_one_before_it_on_every_key() {
    let first = "p 2 0 1 a b RUN 9:x";
    for (between, second, count) in [
        ("", "p 2 0 1 a b RUN 9:x", "2"),
        ("", "p 2 0 1 b a RUN 9:x", "2"),
        ("p 1 0 0 other", "p 2 0 1 a b RUN 9:x", "2"),
        ("", "p 2 0 1 a b RUN 9:y", "1"),
        ("", "p 2 0 1 a b RUN 8:x", "1"),
        ("", "p 2 0 0 a b", "1"),
        ("", "p 1 0 1 a RUN 9:x", "1"),
        ("", "p 3 0 1 a b c RUN 9:x", "1"),
        ("", "p 1 1 1 a b RUN 9:x", "1"),
        ("", "p 2 0 2 a b RUN 9:x PRIORITY 1", "1"),
        ("", "p 2 0 2 a b RUN 9:x GROUP g", "1"),
        ("p 1 0 1 b RUN 9:x", "p 2 0 1 a b RUN 9:x", "1"),
        ("p 0 1 0 b", "p 2 0 1 a b RUN 9:x", "1"),
        ("p 0 0 1 BARRIER 1", "p 2 0 1 a b RUN 9:x", "1"),
    ] {
        let mut bench = Bench::new();
        for message in [first, between, second].into_iter().filter(|one| !one.is_empty()) {
            bench.call(&format!("put - 0 0 {message}"));
        }
        let leased = bench.call("lease - 0 0 1 90000 any+");
        assert_eq!(leased[3], count, "{between}, then {second}");
    }
    let mut bench = Bench::new();
    bench.call("put - 0 0 p 1 0 0 c p 1 1 1 a s RUN 9:x p 2 1 1 a c s RUN 9:x");
    assert_eq!(bench.call("lease - 0 0 9 90000 any+")[3], "2", "it waits on another key");
    let mut bench = Bench::new();
    bench.call("put - 0 0 p 1 1 1 a s RUN 9:x p 0 1 0 s p 1 1 1 a s RUN 9:x");
    assert_eq!(bench.call("lease - 0 0 1 90000 any+")[3], "1", "a reader is between them");
    let mut bench = Bench::new();
    bench.call("put - 0 0 p 1 1 1 a s RUN 9:x p 2 0 1 a s RUN 9:x");
    assert_eq!(bench.call("lease - 0 0 1 90000 any+")[3], "1", "it holds a key in another mode");
}

#[test]
fn a_message_that_was_leased_before_is_leased_by_itself() {
    for how in ["RELEASE {}", "NACK {} 0 e"] {
        let mut bench = Bench::new();
        let ids = put(&mut bench, "k", "9:x", 3);
        let leased = bench.call("lease - 0 0 1 90000 any+");
        let settlement = how.replace("{}", &format!("{} {}", leased[0], ids[0]));
        bench.call(&format!("settle - 0 {settlement}"));
        assert_eq!((bench.count("leased"), bench.count("riding")), (0, 0));
        let again = bench.call("lease - 0 0 9 90000 any+");
        assert_eq!(again[3], "1", "{how}");
        bench.call(&format!("settle - 0 ACK {} {}", again[0], ids[0]));
        assert_eq!(told(&bench.call("lease - 0 0 9 90000 any+")).len(), 2);
    }
}

#[test]
fn a_run_is_settled_in_its_order() {
    let mut bench = Bench::new();
    let ids = put(&mut bench, "k", "9:x", 4);
    bench.call("put - 0 0 p 1 0 0 k");
    let token = bench.call("lease - 0 0 1 90000 any+").swap_remove(0);
    let [a, b, c, _] = [0, 1, 2, 3].map(|n: usize| &*ids[n]);
    for verb in ["ACK", "RELEASE"] {
        assert_eq!(bench.call(&format!("settle - 0 {verb} {token} {b}")), ["LEASELOST"]);
    }
    assert_eq!(bench.call(&format!("cancel {b}")), ["0"]);
    assert_eq!(bench.call(&format!("revoke {b} retry")), ["0"]);
    let settled = format!("settle - 0 ACK {token} {a} ACK {token} {c} DROP {token} {b} old");
    assert_eq!(bench.call(&settled), ["ACKED", "LEASELOST", "DROPPED"]);
    assert_eq!(bench.call("lease - 0 0 9 90000 any+")[3], "0");
    assert_eq!((bench.count("leased"), bench.count("riding")), (2, 1));
    assert_eq!(bench.call(&format!("settle - 0 REJECT {token} {c} bad")), ["DEAD"]);
    assert_eq!((bench.count("leased"), bench.count("ready"), bench.count("waiting")), (0, 1, 1));
}

#[test]
fn slots_rates_and_turns_count_each_message_of_a_run() {
    let mut bench = Bench::new();
    bench.call("configure CHANGE LIMITS x=2\u{1f}y=1/1000:2");
    let put = |bench: &mut Bench, name: &str| {
        let one = format!("p 1 0 2 {name} RUN 9:x LIMIT {name}");
        bench.call(&format!("put - 0 0 {one} {one} {one}"))
    };
    let ids = put(&mut bench, "x");
    let leased = bench.call("lease - 0 0 1 90000 any+");
    assert_eq!(leased[3], "2");
    bench.call("put - 0 0 p 0 0 1 LIMIT x");
    assert_eq!(bench.call("lease - 0 0 9 90000 any+")[3], "0");
    bench.call(&format!("settle - 0 ACK {} {}", leased[0], ids[0]));
    assert_eq!(bench.call("lease - 0 0 9 90000 unkeyed")[3], "1", "one slot is free");
    put(&mut bench, "y");
    assert_eq!(bench.call("lease - 0 0 1 90000 any+")[3], "2");
    bench.call("put - 0 0 p 0 0 1 LIMIT y");
    assert_eq!(bench.call("lease - 0 0 9 90000 unkeyed")[3], "0", "the rate is used up");
}

#[test]
fn the_slots_of_a_run_that_returns_are_free() {
    let mut bench = Bench::new();
    bench.call("configure CHANGE LIMITS x=3");
    let one = "p 1 0 2 k RUN 9:x LIMIT x";
    let first = bench.call(&format!("put - 0 0 {one} {one} {one}")).swap_remove(0);
    let token = bench.call("lease - 0 0 1 90000 any+").swap_remove(0);
    bench.call(&format!("settle - 0 NACK {token} {first} 900 e"));
    let other = "p 0 0 1 LIMIT x";
    bench.call(&format!("put - 0 0 {other} {other} {other} {other}"));
    assert_eq!(bench.call("lease - 0 0 9 90000 any+")[3], "3");
}

#[test]
fn an_expired_run_returns_and_its_first_message_is_alone() {
    let mut bench = Bench::new();
    put(&mut bench, "k", "9:x", 3);
    bench.call("lease - 0 0 1 50 any+");
    bench.now += 50;
    let again = bench.call("lease - 0 0 9 90000 any+");
    assert_eq!((&*again[2], &*again[3]), ("alone", "1"));
    assert_eq!((bench.count("leases_expired"), bench.count("releases")), (1, 0));
    assert_eq!((bench.count("leased"), bench.count("waiting")), (1, 2));
}

#[test]
fn a_rider_is_told_with_its_blocker_and_is_no_root() {
    let mut bench = Bench::new();
    let ids = put(&mut bench, "k", "9:x", 2);
    bench.call("lease - 0 0 1 90000 any+");
    let node = bench.call(&format!("explain id {} 10", ids[1]));
    assert_eq!(node[3], "leased");
    let blocked = ["k", "1", "1", "1", &*ids[0]];
    assert!(node.windows(5).any(|parts| parts == blocked), "{node:?}");
    assert_eq!(bench.call("roots 0 9")[0], "1");
}
