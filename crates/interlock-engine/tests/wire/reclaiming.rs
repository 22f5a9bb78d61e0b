//! Memory of queues that nobody needs, and what a user's queues may take.

use std::sync::Arc;

use interlock_engine::{Account, EngineSettings, Function, Outcome};

use crate::{strings, Bench};

const BOUND: u64 = 4 << 20;

fn call(
    bench: &mut Bench,
    payer: Option<&Arc<Account>>,
    queue: &str,
    text: &str,
) -> Result<Vec<String>, String> {
    let words: Vec<&str> =
        text.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
    let function = Function::named(format!("il1_{}", words[0]).as_bytes()).expect("a function");
    let key = format!("il:{{{queue}}}");
    let (key, mut out) = (Some(key.as_bytes()), Vec::new());
    let (now, served) = (bench.now, &mut bench.served);
    match bench.engine.call_for(payer, function, key, &words[1..], now, None, &mut out, served) {
        Outcome::Done => Ok(strings(&out).expect("no error")),
        Outcome::Refused(refused) => Err(refused.0),
        Outcome::Parked => unreachable!("without a ticket"),
    }
}

#[test]
fn a_queue_that_was_only_leased_from_is_dropped() {
    let mut bench = Bench::with(EngineSettings { memory: BOUND, ..EngineSettings::default() });
    for n in 0..20_000 {
        call(&mut bench, None, &format!("tmp.{n}"), "lease c 1 0 1 900 any").unwrap();
        call(&mut bench, None, &format!("tmp.{n}"), "settle - 0 ACK 5 6").unwrap();
    }
    assert_eq!(bench.engine.count(), 0);
    assert!(bench.engine.used() <= BOUND / 8 + 8192, "{} bytes", bench.engine.used());
    let put = format!("put - 0 0 {} 0 0 0", "p".repeat(1 << 20));
    call(&mut bench, None, "mail", &put).expect("others have room");
    // Who sends its call again is answered as before.
    let last = |n: u64| format!("lease c {n} 0 1 900 any");
    assert!(call(&mut bench, None, "tmp.19999", &last(2)).is_ok());
    let stale = call(&mut bench, None, "tmp.19999", &last(1)).unwrap_err();
    assert!(stale.starts_with("STALECALL"), "{stale}");
}

#[test]
fn only_a_queue_that_was_never_used_is_dropped_at_once() {
    let mut bench = Bench::new();
    for (name, used) in [
        ("put", "put - 0 0 p 0 0 0"),
        ("declared", "configure MAXSIZE 5"),
        ("paused", "pause k"),
        ("sealed", "seal"),
    ] {
        call(&mut bench, None, name, used).unwrap();
        call(&mut bench, None, name, "lease - 0 0 1 900 any").unwrap();
    }
    for (name, back) in [("paused", "resume k"), ("sealed", "reopen")] {
        call(&mut bench, None, name, back).unwrap();
    }
    let names = bench.engine.names();
    assert_eq!(names, [b"declared"[..].into(), b"put"[..].into()]);
}

#[test]
fn each_call_frees_a_few_of_thousands_of_dropped_queues() {
    let mut bench = Bench::with(EngineSettings { memory: 1 << 40, ..EngineSettings::default() });
    for n in 0..5_000 {
        call(&mut bench, None, &format!("old.{n}"), "put c 1 0 p 0 0 0").unwrap();
        call(&mut bench, None, &format!("old.{n}"), "drop FORCE").unwrap();
    }
    let kept = bench.engine.used();
    let each = kept / 5_000;
    assert!(each > 100, "what is kept of them is counted");
    // As long as replies are kept, and no call drops anything.
    bench.now += 400_000_000;
    let mut calls = 0;
    let mut before = kept;
    while before > each {
        call(&mut bench, None, "other", "stats").unwrap();
        let now = bench.engine.used();
        assert!(before - now <= 8 * each, "{} bytes at once", before - now);
        assert!(now < before, "it continues until none is left");
        (before, calls) = (now, calls + 1);
    }
    assert!(calls >= 5_000 / 8, "{calls}");
}

#[test]
fn an_emptied_queue_frees_its_records() {
    let mut bench = Bench::with(EngineSettings { memory: 1 << 30, ..EngineSettings::default() });
    for n in 0..1000 {
        let queue = n.to_string();
        // As many as that the records are more than those that every queue begins with.
        let put = format!("put - 0 0{}", " p 1 0 0 k".repeat(40));
        call(&mut bench, None, &queue, &put).unwrap();
        for _ in 0..40 {
            let lease = call(&mut bench, None, &queue, "lease - 0 0 1 900 any").unwrap();
            let ack = format!("settle - 0 ACK {} {}", lease[0], lease[4]);
            assert_eq!(call(&mut bench, None, &queue, &ack).unwrap(), ["ACKED"]);
        }
    }
    let before = bench.engine.used();
    assert!(before > 1000 * 10_000, "{before}: records are counted while they are kept");
    bench.rest(20_000_000);
    bench.settle();
    let after = bench.engine.used();
    assert!(after < 1000 * 6_000, "{after}");
    call(&mut bench, None, "7", "put - 0 0 again 1 0 0 k").unwrap();
    let lease = call(&mut bench, None, "7", "lease - 0 0 1 900 any").unwrap();
    assert_eq!(lease[7], "again");
    assert_eq!(call(&mut bench, None, "7", "stats").unwrap()[19], "41", "puts, counted on");
}

#[test]
fn when_memory_is_short_long_empty_queues_are_dropped() {
    // Room for more than the 300 queues of five minutes, and for far fewer than 5000.
    let mut bench = Bench::with(EngineSettings { memory: 2 * BOUND, ..EngineSettings::default() });
    let through = |bench: &mut Bench, n: u32| {
        let queue = format!("tmp.{n}");
        call(bench, None, &queue, "put - 0 0 p 0 0 0")?;
        let lease = call(bench, None, &queue, "lease - 0 0 1 900 any").unwrap();
        let ack = format!("settle - 0 ACK {} {}", lease[0], lease[4]);
        call(bench, None, &queue, &ack)
    };
    let refused = (0..10_000).find_map(|n| through(&mut bench, n).err()).expect("time stands");
    assert!(refused.starts_with("OOM "), "{refused}");
    bench.rest(600_000_000);
    bench.settle();
    for n in 0..5000 {
        bench.rest(1_000_000);
        through(&mut bench, n).expect("those of five minutes ago have gone");
    }
    let (_, reclaimed) = bench.engine.refused_and_reclaimed();
    assert!(reclaimed > 1000, "{reclaimed}");
}

#[test]
fn memory_of_one_user_s_queues_is_bounded_and_others_continue() {
    let mut bench = Bench::with(EngineSettings { memory: 64 << 20, ..EngineSettings::default() });
    let guest = Arc::new(Account::new(1 << 20));
    let of_guest = guest.clone();
    let accounts =
        move |name: &[u8]| if name.starts_with(b"tmp.") { vec![of_guest.clone()] } else { vec![] };
    call(&mut bench, None, "tmp.before", "put - 0 0 p 0 0 0").unwrap();
    bench.engine.set_accounts(Some(Box::new(accounts)));
    let before = guest.used();
    assert!(before > 1000, "what was there counts too");
    let put = format!("put - 0 0 {} 1 0 0 k", "p".repeat(100 << 10));
    let mut refused = None;
    for n in 0..20 {
        let name = format!("tmp.{}", n % 3);
        refused = refused.or(call(&mut bench, Some(&guest), &name, &put).err());
    }
    let refused = refused.expect("it is refused in the end");
    assert!(refused.starts_with("OOM il1_put: "), "{refused}");
    assert!(refused.contains("1048576"), "{refused}");
    assert!(guest.used() <= 1 << 20, "{}", guest.used());
    for (text, word) in [("configure MAXSIZE 9", "OOM"), ("pause k", "OOM")] {
        while call(&mut bench, Some(&guest), "tmp.0", "put - 0 0 p 0 0 0").is_ok() {}
        let told = call(&mut bench, Some(&guest), "tmp.new", text).unwrap_err();
        assert!(told.starts_with(word), "{told}");
    }
    call(&mut bench, None, "tmp.0", &put).expect("who has no bound is not bound by another's");
    call(&mut bench, None, "mail", &put).unwrap();
    // It may always take out.
    let lease = call(&mut bench, Some(&guest), "tmp.0", "lease - 0 0 9 900 any").unwrap();
    let ack = format!("settle - 0 ACK {} {}", lease[0], lease[4]);
    call(&mut bench, Some(&guest), "tmp.0", &ack).unwrap();
    for name in ["tmp.0", "tmp.1", "tmp.2", "tmp.before"] {
        call(&mut bench, None, name, "drop FORCE").unwrap();
    }
    bench.rest(400_000_000);
    call(&mut bench, None, "mail", "drop FORCE").unwrap();
    assert_eq!(guest.used(), 0, "nothing is left of them");
}

#[test]
fn names_of_consumers_that_find_nothing_are_bounded() {
    let mut bench = Bench::new();
    call(&mut bench, None, "mail", "put - 0 0 p 0 0 0").unwrap();
    let held = call(&mut bench, None, "mail", "lease holder 1 0 1 900000000 any").unwrap();
    for n in 0..20_000 {
        let name = format!("{n:0>1000}");
        call(&mut bench, None, "mail", &format!("lease {name} 1 0 1 900 any")).unwrap();
        call(&mut bench, None, "mail", &format!("settle {name} 2 ACK 5 6")).unwrap();
    }
    assert!(bench.engine.used() < 16 << 20, "{} bytes", bench.engine.used());
    // Who has something is known, and answered as before.
    assert_eq!(call(&mut bench, None, "mail", "lease holder 1 0 1 900000000 any").unwrap(), held);
    let last = format!("settle {:0>1000} 2 ACK 5 6", 19_999);
    assert_eq!(call(&mut bench, None, "mail", &last).unwrap(), ["LEASELOST"]);
}

#[test]
fn watches_and_announcements_are_counted_bounded_and_freed() {
    // A client that only reads takes an eighth of the memory, so puts continue.
    for (text, most) in [("events - 1 60000000", 1 << 17), ("announce w 60000000 -", 1 << 20)] {
        let settings = EngineSettings { memory: 1 << 20, ..EngineSettings::default() };
        let mut bench = Bench::with(settings);
        let guest = Arc::new(Account::new(1 << 16));
        let of_guest = guest.clone();
        let accounts = move |name: &[u8]| {
            if name.starts_with(b"tmp.") {
                vec![of_guest.clone()]
            } else {
                vec![]
            }
        };
        bench.engine.set_accounts(Some(Box::new(accounts)));
        for prefix in ["tmp.", "all."] {
            let payer = (prefix == "tmp.").then_some(&guest);
            let mut names = (0..100_000).map(|n| format!("{prefix}{n:0>200}"));
            let refused = names.find_map(|name| call(&mut bench, payer, &name, text).err());
            let refused = refused.expect("it is refused in the end");
            assert!(refused.starts_with("OOM"), "{text}: {refused}");
            // The existing one continues.
            call(&mut bench, payer, &format!("{prefix}{:0>200}", 0), text).unwrap();
        }
        assert!(guest.used() > 1 << 15 && guest.used() <= 1 << 16, "{}", guest.used());
        let used = bench.engine.used();
        assert!(used > most / 2 && used <= most, "{text}: {used}");
        // In other accounts from now on.
        bench.engine.set_accounts(None);
        assert_eq!(guest.used(), 0, "{text}");
        bench.now += 60_000_002;
        for _ in 0..200 {
            // Any call lets some of them go, which are over.
            call(&mut bench, None, "mail", "stats").unwrap();
        }
        assert_eq!(bench.engine.used(), 0, "{text}");
    }
}

#[test]
fn events_are_dropped_when_memory_runs_out() {
    let mut bench = Bench::with(EngineSettings { memory: 1 << 20, ..EngineSettings::default() });
    let put = format!("put - 0 0 p 1 0 0 {}", "k".repeat(1000));
    call(&mut bench, None, "mail", "events - 1 60000000").unwrap();
    for _ in 0..5_000 {
        call(&mut bench, None, "mail", &put).unwrap();
        call(&mut bench, None, "mail", "purge pending").unwrap();
    }
    let told = call(&mut bench, None, "mail", "events 0 1024 60000000").unwrap();
    assert!(told.len() > 100 && told[1] != "0", "the last ones are there: {} of them", told.len());
    call(&mut bench, None, "mail", "drop FORCE").unwrap();
    bench.rest(400_000_000);
    call(&mut bench, None, "mail", "drop FORCE").unwrap();
    assert_eq!(bench.engine.used(), 0);
}
