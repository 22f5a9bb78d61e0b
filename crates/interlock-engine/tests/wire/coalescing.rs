//! Puts that replace payloads (clause 29): what is refused, waits for room, and survives a restart.

use crate::{Bench, START};

#[test]
fn a_put_that_may_replace_nothing_is_refused_and_names_the_difference() {
    let mut bench = Bench::new();
    let id = bench.call("put - 0 0 old 1 0 2 k COALESCE c PRIORITY 1")[0].clone();
    let differs = |text: &str| format!("DIFFERS il1_put: {text}, whose payload it would replace");
    for (put, what) in [
        ("new 0 0 2 COALESCE c PRIORITY 1", "messages[1] has another set of keys"),
        ("new 1 0 2 k COALESCE c PRIORITY 2", "messages[1] has another priority"),
        ("new 1 0 3 k COALESCE c PRIORITY 1 LIMIT x", "messages[1] has another limit"),
        ("plain 0 0 0 new 0 1 1 k COALESCE c", "messages[2] has another set of keys"),
    ] {
        let refused = bench.refused(&format!("put - 0 0 {put}"));
        assert_eq!(refused, differs(&format!("{what} than message {id}")));
    }
    let refused = bench.refused("put - 0 0 a 0 0 1 COALESCE d b 0 0 0 c 1 0 1 k COALESCE d");
    assert_eq!(refused, differs("messages[3] has another set of keys than messages[1]"));
    assert_eq!((bench.count("puts"), bench.count("coalesced")), (1, 0));
    // With the name among its keys it is the same message.
    let put = "put - 0 0 new 2 0 2 c k COALESCE c PRIORITY 1";
    assert_eq!(bench.call(put), [id, "2".into()]);
}

#[test]
fn options_that_exclude_each_other_are_refused_in_their_order() {
    let mut bench = Bench::new();
    for (options, wrong) in [
        ("2 COALESCE c BARRIER 1", "COALESCE with BARRIER"),
        ("3 BARRIER 1 DEDUP d COALESCE c", "COALESCE with BARRIER"),
        ("2 DEDUP d COALESCE c", "COALESCE with DEDUP"),
        ("1 DEBOUNCE 5", "DEBOUNCE without COALESCE"),
        ("3 DELAY 1 DEBOUNCE 5 COALESCE c", "DEBOUNCE with DELAY"),
        ("2 WITHIN 5 COALESCE c", "WITHIN without DEBOUNCE"),
        ("2 REVISION 5 COALESCE c", "REVISION is only for il1_restore"),
    ] {
        let refused = bench.refused(&format!("put - 0 0 p 0 0 {options}"));
        assert_eq!(refused, format!("BADARG il1_put: messages[1].{wrong}"));
    }
    for (options, wrong) in [
        ("2 COALESCE c DEBOUNCE 5", "DEBOUNCE is given by state and time"),
        ("1 REVISION 5", "REVISION without COALESCE"),
    ] {
        let refused = bench.refused(&format!("restore 5 m delayed 1 9 - p 0 0 {options}"));
        assert_eq!(refused, format!("BADARG il1_restore: messages[1].{wrong}"));
    }
    let empty = bench.refused("put - 0 0 p 0 0 1 COALESCE -");
    assert_eq!(empty, "BADARG il1_put: messages[1].COALESCE is empty");
    let keys: Vec<String> = (0..4_096).map(|n| n.to_string()).collect();
    let many = format!("put - 0 0 p 4096 0 1 {} COALESCE c", keys.join(" "));
    assert_eq!(bench.refused(&many), "BADARG il1_put: messages[1] has 4097 keys; at most 4096");
}

#[test]
fn a_waiting_put_replaces_the_newest_message_once_that_is_no_longer_leased() {
    let mut bench = Bench::new();
    bench.call("configure MAXSIZE 1");
    let id = bench.call("put - 0 0 one 0 0 1 COALESCE c")[0].clone();
    let lease = bench.call("lease a 1 0 1 90000 any");
    bench.park("put b 1 90000 two 0 0 1 COALESCE c", 1);
    bench.park("put c 1 90000 three 1 0 1 k COALESCE c", 2);
    bench.call(&format!("settle a 2 RELEASE {} {id}", lease[0]));
    let served = bench.answers();
    assert_eq!(served[0], (1, Ok(vec![id.clone(), "2".into()])));
    let differs = format!(
        "DIFFERS il1_put: messages[1] has another set of keys than message {id}, whose payload it \
         would replace"
    );
    assert_eq!(served[1], (2, Err(differs)));
    assert_eq!(bench.call("lease a 3 0 1 90000 any")[7], "two");
}

#[test]
fn a_waiting_put_that_fits_once_a_payload_became_smaller_enters() {
    let mut bench = Bench::new();
    bench.call("configure MAXBYTES 10");
    bench.call("put - 0 0 12345678 0 0 1 COALESCE c");
    bench.park("put b 1 90000 abcde 0 0 0", 1);
    assert_eq!(bench.woken(), []);
    bench.call("put - 0 0 1 0 0 1 COALESCE c");
    assert_eq!(bench.woken(), [1]);
    assert_eq!(bench.count("bytes"), 6);
}

#[test]
fn a_debounced_message_is_due_at_the_time_of_the_last_put_or_the_latest() {
    let mut bench = Bench::new();
    let put = "put - 0 0 p 0 0 3 COALESCE c DEBOUNCE 10 WITHIN 25";
    let id = bench.call(put)[0].clone();
    let due = |bench: &mut Bench| bench.call(&format!("peek {id}"))[4].parse::<u64>().unwrap();
    assert_eq!(due(&mut bench), START + 10);
    bench.tick(9);
    bench.call(put);
    assert_eq!(due(&mut bench), START + 19);
    bench.tick(9);
    bench.call(put);
    assert_eq!(due(&mut bench), START + 25);
    let told = bench.call(&format!("peek {id}"));
    let at = told.iter().position(|part| part == "COALESCE").unwrap();
    assert_eq!(told[at..at + 4], ["COALESCE", "c", "REVISION", "2"]);
}
