//! Events while somebody watches, and workers that announce themselves.

use std::collections::HashMap;

use interlock_engine::{Account, EngineSettings, Function};

use crate::replaying::random_call;
use crate::{strings, Bench, KEY, START};

/// One event: its number, time, kind, id, attempt, token, consumer, error, exclusive and shared keys.
type Event = (Vec<String>, Vec<String>, Vec<String>);

fn events(told: &[String]) -> Vec<Event> {
    let mut at = 2;
    let mut all = Vec::new();
    while at < told.len() {
        let count = |i: usize| told[at + i].parse::<usize>().unwrap();
        let (middle, shared) = (at + 10 + count(8), count(9));
        let head = told[at..at + 8].to_vec();
        all.push((head, told[at + 10..middle].to_vec(), told[middle..middle + shared].to_vec()));
        at = middle + shared;
    }
    all
}

impl Bench {
    /// Returns what happened since, as KIND ID ATTEMPT TOKEN CONSUMER ERROR in one line.
    fn events(&mut self, after: &mut String) -> Vec<String> {
        let told = self.call(&format!("events {after} 1024 1000"));
        *after = told[0].clone();
        assert_eq!(told[1], "0");
        events(&told).into_iter().map(|(head, ..)| head[2..].join(" ").trim().to_owned()).collect()
    }

    fn watched() -> (Bench, String) {
        let mut bench = Bench::new();
        let after = bench.call("events - 1 1000")[0].clone();
        assert_eq!(after, START.to_string());
        (bench, after)
    }
}

fn id(n: u64) -> String {
    (START + n).to_string()
}

#[test]
fn events_of_a_message_are_reported_in_order() {
    let (mut bench, mut after) = Bench::watched();
    bench.call("put - 0 0 p 2 1 1 b a c DELAY 5");
    bench.now += 5;
    let (a, token) = (id(0), id(5));
    bench.call("lease worker 1 0 1 10 any");
    bench.call(&format!("settle - 0 DEFER {token} {a} 3"));
    assert_eq!(bench.call("stats")[12..14], ["backing_off", "1"]);
    bench.now += 3;
    bench.call("lease worker 2 0 1 10 any");
    let told = bench.call(&format!("events {after} 1 10"));
    assert_eq!(events(&told)[0].1, ["b", "a"], "as they were put, though it is delayed");
    assert_eq!(events(&told)[0].2, ["c"]);
    let expected = [
        format!("put {a} 1"),
        format!("due {a} 1"),
        format!("lease {a} 1 {token} worker"),
        format!("defer {a} 1 {token}"),
        format!("due {a} 1"),
        format!("lease {a} 1 {} worker", id(8)),
    ];
    assert_eq!(bench.events(&mut after), expected);
    bench.now += 10;
    bench.call("lease - 0 0 1 10 any");
    let expected = [format!("lease_expired {a} 1 {}", id(8)), format!("lease {a} 1 {}", id(18))];
    assert_eq!(bench.events(&mut after), expected, "no attempt is counted");
    bench.call(&format!("extend {} 10", id(18)));
    bench.now += 10;
    bench.call("lease - 0 0 1 10 any");
    let expected = [
        format!("lease_expired {a} 1 {}", id(18)),
        format!("retry {a} 1 {}  lease expired", id(18)),
    ];
    assert_eq!(bench.events(&mut after), expected);
    bench.call(&format!("retry {a}"));
    bench.call("lease - 0 0 1 10 any");
    bench.call(&format!("settle - 0 REJECT {} {a} bad\u{1e}one", id(28)));
    let expected = [
        format!("readied {a} 2"),
        format!("lease {a} 2 {}", id(28)),
        format!("dead {a} 2 {}  bad one", id(28)),
    ];
    assert_eq!(bench.events(&mut after), expected);
    bench.call("put - 0 0 p 0 0 0");
    bench.call(&format!("cancel {}", id(28)));
    let expected = [format!("put {} 1", id(28)), format!("cancel {} 1", id(28))];
    assert_eq!(bench.events(&mut after), expected);
}

#[test]
fn gaps_in_event_numbers_show_dropped_events() {
    let (mut bench, after) = Bench::watched();
    for _ in 0..5 {
        let put = format!("put - 0 0{}", " p 0 0 0".repeat(1024));
        bench.call(&put);
    }
    let told = bench.call(&format!("events {after} 3 1000"));
    assert_eq!(told[..2], [id(5120), "1024".to_owned()]);
    assert_eq!(
        events(&told).iter().map(|one| &one.0[0]).collect::<Vec<_>>(),
        [&id(1025), &id(1026), &id(1027)]
    );
    assert_eq!(bench.call(&format!("events {} 3 1000", id(5119))).len(), 12);
    assert_eq!(bench.call(&format!("events {} 3 1000", id(5120))), [id(5120), "0".into()]);
    assert_eq!(bench.call(&format!("events {} 3 1000", id(9000))), [id(5120), "0".into()]);
    assert_eq!(bench.call("events - 3 1000"), [id(5120), "0".into()]);
    // Nobody watches any more: the numbers begin anew.
    bench.now += 10_000;
    bench.call("put - 0 0 p 0 0 0");
    let told = bench.call(&format!("events {} 3 1000", id(5120)));
    assert_eq!(told, [id(10_000), "4880".into()]);
    // And where they were ahead of the time, they continue.
    let put = format!("put - 0 0{}", " p 0 0 0".repeat(1024));
    bench.call(&put);
    bench.now += 1000;
    bench.call("put - 0 0 p 0 0 0");
    assert_eq!(bench.call("events - 1 10"), [id(11_024), "0".into()]);
}

#[test]
fn an_event_and_a_call_are_bounded() {
    let (mut bench, after) = Bench::watched();
    let long = "k".repeat(600);
    bench.call(&format!(
        "put - 0 0 p 20 2 0 {} {long}1 {long}2",
        (0..20).map(|n| n.to_string()).collect::<Vec<_>>().join(" ")
    ));
    let told = bench.call(&format!("events {after} 9 1000"));
    let (_, exclusive, shared) = &events(&told)[0];
    assert_eq!((exclusive.len(), shared.len()), (16, 1));
    let name = "c".repeat(1000);
    for _ in 0..400 {
        bench.call("put - 0 0 p 0 0 0");
        bench.call(&format!("lease {name} 0 0 1 1000000 unkeyed"));
    }
    let told = bench.call(&format!("events {after} 1024 1000"));
    let bytes: usize = events(&told).iter().map(|one| one.0[6].len()).sum();
    assert!((262_000..264_000).contains(&bytes), "{bytes}");
}

#[test]
fn watching_creates_no_queue_and_the_first_put_is_reported() {
    let (mut bench, mut after) = Bench::watched();
    assert_eq!(bench.engine.count(), 0);
    // A queue that was left as it was goes, and its watch stays.
    bench.call("lease - 0 0 1 10 any");
    bench.call("put - 0 0 p 0 0 0");
    assert_eq!(bench.events(&mut after), [format!("put {} 1", id(0))]);
    bench.call("drop FORCE");
    assert_eq!(bench.engine.count(), 0);
    let told = bench.call(&format!("events {after} 1 1000"));
    assert_eq!(told, [id(0), "0".into()], "it begins anew");
    bench.call("put - 0 0 p 0 0 0");
    assert_eq!(bench.call(&format!("events {} 1 1000", id(0))).len(), 12);
    for call in
        ["events 1", "events - 0 1", "events - 1 0", "events - 1 60000001", "events - 1 1 1"]
    {
        assert!(bench.refused(call).starts_with("BADARG il1_events"), "{call}");
    }
}

/// Whatever is done, the events tell as many steps of each kind as the counts do.
#[test]
fn events_and_counts_agree_after_any_calls() {
    let seed = std::env::var("INTERLOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("INTERLOCK_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..100 {
        schedule(&mut rng);
    }
}

fn schedule(rng: &mut fastrand::Rng) {
    let mut bench = Bench::new();
    let mut after = bench.call("events - 1 60000000")[0].clone();
    let (mut calls, mut leased) = ([0u64; 4], vec![("5".to_owned(), "6".to_owned())]);
    let mut kinds = HashMap::<String, u64>::new();
    for ticket in 0..rng.u64(1..300) {
        bench.now += if rng.bool() { 0 } else { rng.u64(..30) };
        let (function, args) = random_call(rng, &mut calls, &leased);
        if function == Function::Drop {
            continue;
        }
        let (mut out, mut served) = (Vec::new(), Vec::new());
        let caller = rng.bool().then_some(ticket);
        let call = (function, Some(KEY));
        bench.engine.call(call.0, call.1, &args[..], bench.now, caller, &mut out, &mut served);
        bench.tick(0);
        served.append(&mut bench.served);
        for reply in std::iter::once(&out).chain(served.iter().map(|one| &one.reply)) {
            let Some(Ok(told)) = (!reply.is_empty()).then(|| strings(reply)) else { continue };
            let numbers: Vec<&String> = told.iter().filter(|one| one.len() == 16).take(6).collect();
            for token in &numbers {
                leased.extend(numbers.iter().map(|id| ((*token).clone(), (*id).clone())));
            }
            leased.drain(..leased.len().saturating_sub(40));
        }
        let told = bench.call(&format!("events {after} 1024 60000000"));
        after = told[0].clone();
        for (head, ..) in events(&told) {
            *kinds.entry(head[2].clone()).or_default() += 1;
        }
    }
    let mut count = |name: &str| bench.count(name);
    let told = |names: &[&str]| names.iter().filter_map(|name| kinds.get(*name)).sum::<u64>();
    for (names, of) in [
        (&["put"][..], "puts"),
        (&["lease"], "leases"),
        (&["ack"], "acks"),
        (&["retry"], "retries"),
        (&["release", "defer"], "releases"),
        (&["lease_expired"], "leases_expired"),
        (&["dead"], "dead_lettered"),
        (&["cancel"], "cancelled"),
        (&["skip"], "skipped"),
    ] {
        assert_eq!(told(names), count(of), "{of}");
    }
}

#[test]
fn workers_are_listed_until_their_announcement_expires() {
    let mut bench = Bench::new();
    assert_eq!(bench.call("ask w1 stacks"), [""; 0]);
    assert_eq!(bench.call("announce w2 10 two"), [""; 0]);
    bench.now += 4;
    bench.call("announce w1 10 one");
    assert_eq!(bench.engine.count(), 0, "it makes no queue");
    assert_eq!(bench.call("workers - 9"), ["w1", "0", "10", "one", "w2", "4", "6", "two"]);
    assert_eq!(bench.call("workers w1 9"), ["w2", "4", "6", "two"]);
    assert_eq!(bench.call("workers - 1"), ["w1", "0", "10", "one"]);
    let numbers: Vec<String> = (0..18).flat_map(|n| bench.call(&format!("ask w1 {n}"))).collect();
    assert_eq!((numbers.len(), &numbers[0], &numbers[17]), (18, &id(4), &id(21)));
    let taken = bench.call("announce w1 10 one");
    assert_eq!(
        (taken.len(), &taken[0], &taken[1], &taken[31]),
        (32, &id(6), &"2".into(), &"17".into())
    );
    assert_eq!(bench.call("announce w1 10 one"), [""; 0]);
    bench.call("ask w2 drain");
    assert_eq!(bench.call("announce w2 0 -"), [id(22), "drain".into()]);
    assert_eq!(bench.call("workers - 9"), ["w1", "0", "10", "one"]);
    bench.now += 9;
    assert_eq!(bench.call("workers - 9"), ["w1", "9", "1", "one"]);
    bench.now += 1;
    assert_eq!(bench.call("workers - 9"), [""; 0]);
    assert_eq!(bench.call("ask w1 stacks"), [""; 0]);
    bench.call("announce w1 10 one");
    bench.call("drop");
    assert_eq!(bench.call("workers - 9").len(), 4, "there was no queue");
    bench.call("put - 0 0 p 0 0 0");
    bench.call("drop FORCE");
    assert_eq!(bench.call("workers - 9"), [""; 0]);
    for call in [
        "announce",
        "announce - 1 x",
        "announce w -1 x",
        "announce w 1",
        "workers",
        "workers - 0",
        "ask",
        "ask w",
    ] {
        assert!(bench.refused(call).starts_with("BADARG"), "{call}");
    }
}

#[test]
fn announcements_of_workers_are_bounded() {
    let mut bench = Bench::with(EngineSettings { memory: 300_000, ..EngineSettings::default() });
    let text = "t".repeat(65_536);
    assert!(bench.refused(&format!("announce w 1 {text}t")).starts_with("BADARG"));
    for n in 0..4 {
        bench.call(&format!("announce w{n} 10 {text}"));
    }
    assert!(bench.refused(&format!("announce w5 10 {text}")).starts_with("OOM"));
    bench.call(&format!("announce w3 10 {text}"));
    bench.now += 10;
    bench.call(&format!("announce w5 10 {text}"));
    bench.call("announce w5 0 -");
    assert_eq!(bench.engine.used(), 0);
    let mut bench = Bench::new();
    for n in 0..10_000 {
        bench.call(&format!("announce w{n} 10 t"));
    }
    bench.call("announce w9 10 t");
    assert!(bench.refused("announce x 10 t").starts_with("TOOBIG"));
    let mut all = bench.call("workers - 1024");
    let mut last = all[all.len() - 4].clone();
    while let more @ 1.. = {
        let page = bench.call(&format!("workers {last} 1024"));
        all.extend(page.iter().cloned());
        last = page.iter().rev().nth(3).cloned().unwrap_or(last);
        page.len()
    } {
        assert!(more <= 4096);
    }
    assert_eq!(all.len(), 40_000);
}

#[test]
fn memory_of_announcements_counts_for_the_owner_of_the_queue() {
    let account = std::sync::Arc::new(Account::new(0));
    let bench = &mut Bench::new();
    let shared = account.clone();
    bench.engine.set_accounts(Some(Box::new(move |_| vec![shared.clone()])));
    bench.call("announce w 10 text");
    bench.call("ask w request");
    assert!(account.used() > 500);
    bench.call("announce w 10 text");
    bench.now += 10;
    bench.call("workers - 1");
    assert_eq!((account.used(), bench.engine.used()), (0, 0));
}
