//! Dropping a queue: its waiting calls, names, and memory.

use interlock_engine::EngineSettings;

use crate::Bench;

#[test]
fn a_lease_parked_on_a_dropped_queue_gets_messages_put_later() {
    let mut bench = Bench::new();
    bench.call("configure MAXSIZE 1");
    bench.call("pause");
    bench.call("put - 0 0 old 0 0 0");
    bench.park("lease a 1 900 1 50 any", 1);
    bench.park("put b 1 900 waited 0 0 0", 2);
    assert_eq!(bench.call("drop FORCE"), ["1", "1", "0", "0", "0"]);
    // There is room now, and what found it was taken at once.
    let answers = bench.answers();
    assert_eq!(answers.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [2, 1]);
    assert!(answers[1].1.as_ref().unwrap().contains(&"waited".to_owned()));
    assert_eq!(bench.engine.names().len(), 1);
}

#[test]
fn waiting_for_a_result_of_a_dropped_queue_is_answered_gone() {
    let mut bench = Bench::new();
    let id = bench.call("put - 0 0 p 0 0 1 RESULT 500")[0].clone();
    bench.park(&format!("result {id} 900"), 1);
    bench.park("lease a 1 900 1 50 keyed", 2);
    bench.call("drop FORCE");
    assert_eq!(bench.answers(), [(1, Ok(vec!["gone".to_owned()]))]);
    // Who waits for work has made it anew.
    assert_eq!(bench.engine.names().len(), 1);
    bench.call("put - 0 0 p 1 0 0 a");
    assert_eq!(bench.woken(), [2]);
}

#[test]
fn a_dropped_queue_has_no_name_and_uses_no_memory() {
    let mut bench = Bench::with(EngineSettings { memory: 1 << 40, ..EngineSettings::default() });
    for round in 0..3 {
        bench.call(&format!("put - 0 0 {} 1 0 0 key", "p".repeat(9000)));
        assert_eq!(bench.engine.count(), 1);
        assert_eq!(bench.call("drop"), ["0", "1", "0", "0", "0"]);
        assert_eq!(bench.call("drop FORCE"), ["1", "1", "0", "0", "0"]);
        assert_eq!(bench.engine.count(), 0);
        assert!(bench.engine.used() < 5000, "round {round}: the end of its series is kept");
        // Nor does it come back by being looked at, or dropped again.
        bench.call("stats");
        assert_eq!(bench.call("drop FORCE"), ["0", "0", "0", "0", "0"]);
        assert_eq!(bench.engine.count(), 0);
    }
    bench.call("put a 1 0 p 0 0 0");
    bench.call("drop FORCE");
    let kept = bench.engine.used();
    assert!(0 < kept && kept < 5500, "{kept} bytes of a reply");
    // Of any queue that is dropped when the last replies are of no use any more.
    bench.now += 400_000_000;
    bench.engine.call(
        interlock_engine::Function::Drop,
        Some(b"il:{other}"),
        &[][..] as &[&str],
        bench.now,
        None,
        &mut Vec::new(),
        &mut Vec::new(),
    );
    assert_eq!(bench.engine.used(), 0);
}

#[test]
fn reading_a_missing_queue_uses_no_memory() {
    let mut bench = Bench::with(EngineSettings { memory: 8 << 10, ..EngineSettings::default() });
    for _ in 0..5 {
        bench.call("stats");
        bench.call("peek 5");
        assert_eq!((bench.engine.count(), bench.engine.used()), (0, 0));
    }
    bench.call("put - 0 0 p 0 0 0");
}

#[test]
fn a_dropped_queue_reuses_no_id_or_token_while_the_clock_stands_still() {
    let mut bench = Bench::new();
    let put = "put - 0 0 p 0 0 0";
    let lease = "lease - 0 0 1 50 any";
    let (mut ids, mut tokens) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        for _ in 0..3 {
            ids.push(bench.call(put)[0].clone());
            tokens.push(bench.call(lease)[0].clone());
        }
        bench.call("drop FORCE");
    }
    assert!(ids.is_sorted_by(|a, b| a < b) && tokens.is_sorted_by(|a, b| a < b));
}

#[test]
fn a_purge_counts_keys_of_delayed_messages() {
    let mut bench = Bench::new();
    let keys: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
    for options in ["0", "1"] {
        let delay = if options == "1" { "DELAY 900" } else { "" };
        for _ in 0..3 {
            let put = format!("put - 0 0 p 3000 0 {options} {} {delay}", keys.join(" "));
            bench.call(put.trim_end());
        }
        let purged: Vec<String> = (0..3).map(|_| bench.call("purge pending")[0].clone()).collect();
        assert_eq!(purged, ["2", "1", "0"], "{delay}");
    }
}
