//! An engine whose machine stopped answers, once it is started again, as one that never stopped.

use std::sync::Arc;

use interlock_engine::durable::{Durable, OpenError, Repair, Report};
use interlock_engine::{Durability, Engine, EngineSettings, Function, Outcome};
use interlock_journal::storage::simulated::{Faults, Simulated};
use interlock_journal::storage::Fill;

use crate::replaying::{explained, look, random_call_of_runs};
use crate::{strings, KEY, START};

type Stored = Arc<Durable<Simulated>>;

fn start(disk: &Simulated) -> Result<(Stored, Engine, Report), OpenError> {
    let durable = Arc::new(Durable::new());
    let settings = EngineSettings {
        durability: Durability::Always,
        journal: Some(durable.clone()),
        ..EngineSettings::default()
    };
    let engine = Engine::new(settings);
    let settings = interlock_journal::JournalSettings {
        segment: 8_192,
        fill: Fill::Written,
        longest: 1 << 20,
        salt: 1,
        ..Default::default()
    };
    let report = durable.open(&engine, disk.clone(), settings, Repair::Refuse)?;
    Ok((durable, engine, report))
}

fn call(engine: &Engine, function: &str, text: &str, now: u64) -> Result<Vec<String>, String> {
    let (mut out, mut served) = (Vec::new(), Vec::new());
    let args: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    let args: Vec<&str> =
        args.into_iter().map(|word| if word == "-" { "" } else { word }).collect();
    let function = Function::named(format!("il1_{function}").as_bytes()).expect("a function");
    match engine.call(function, Some(KEY), &args[..], now, None, &mut out, &mut served) {
        Outcome::Done => strings(&out),
        Outcome::Refused(refused) => Err(refused.0),
        Outcome::Parked => unreachable!("without a ticket"),
    }
}

#[test]
fn a_restarted_engine_answers_like_one_that_never_stopped() {
    let seed = std::env::var("INTERLOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("INTERLOCK_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut snapshots, mut replayed) = (0, 0);
    for _ in 0..200 {
        let (of_snapshots, of_records) = life(&mut rng);
        snapshots += of_snapshots;
        replayed += of_records;
    }
    assert!(snapshots > 100 && replayed > 1_000, "{snapshots} snapshots, {replayed} records");
}

/// One engine through many restarts, beside one that is never stopped.
fn life(rng: &mut fastrand::Rng) -> (u64, u64) {
    let mut disk = Simulated::new(rng.u64(..));
    let (mut durable, mut engine, _) = start(&disk).unwrap();
    let (_, steady, _) = start(&Simulated::new(1)).unwrap();
    let (mut now, mut calls) = (START, [0u64; 4]);
    let mut leased: Vec<(String, String)> = vec![("5".into(), "6".into())];
    let (mut snapshots, mut replayed) = (0, 0);
    for _ in 0..rng.u64(1..250) {
        now += if rng.bool() { 0 } else { rng.u64(..30) };
        let (function, args) = random_call_of_runs(rng, &mut calls, &leased);
        let ask = |engine: &Engine| {
            let (mut out, mut served) = (Vec::new(), Vec::new());
            let outcome =
                engine.call(function, Some(KEY), &args[..], now, None, &mut out, &mut served);
            (outcome, out)
        };
        let answer = ask(&engine);
        durable.commit().unwrap();
        assert_eq!(answer, ask(&steady));
        if let Some(all) =
            Some(&answer.1).filter(|out| !out.is_empty()).and_then(|out| strings(out).ok())
        {
            let numbers: Vec<String> = all.into_iter().filter(|one| one.len() == 16).collect();
            for token in numbers.iter().take(6) {
                leased.extend(numbers.iter().take(6).map(|id| (token.clone(), id.clone())));
            }
            let from = leased.len().saturating_sub(40);
            leased.drain(..from);
        }
        if rng.u8(..) < 10 {
            durable.snapshot(&engine).unwrap();
        }
        if rng.u8(..) < 12 {
            drop((durable, engine));
            disk = disk.restart();
            let (stored, started, report) = start(&disk).unwrap();
            snapshots += u64::from(report.snapshot.is_some());
            replayed += report.replayed;
            (durable, engine) = (stored, started);
        }
    }
    drop((durable, engine));
    let (durable, engine, _) = start(&disk.restart()).unwrap();
    assert_eq!(explained(&engine, now), explained(&steady, now));
    // A scan goes through messages and lanes as they lie, in no order.
    let unordered = |engine: &Engine| {
        let mut told = look(engine, now, &calls);
        for scanned in told[3..5].iter_mut().flatten() {
            scanned.sort();
        }
        told
    };
    assert_eq!(unordered(&engine), unordered(&steady));
    durable.commit().unwrap();
    (snapshots, replayed)
}

#[test]
fn a_queue_recorded_only_by_name_survives_a_drop_and_a_snapshot() {
    let disk = Simulated::new(2);
    let (durable, engine, _) = start(&disk).unwrap();
    let lost = call(&engine, "extend", "5 30", START);
    assert_eq!(lost, Ok(strings(b"*1\r\n$9\r\nLEASELOST\r\n").unwrap()));
    call(&engine, "drop", "", START).unwrap();
    durable.commit().unwrap();
    durable.snapshot(&engine).unwrap();
    call(&engine, "skip", "6", START).unwrap();
    durable.commit().unwrap();
    drop((durable, engine));
    start(&disk.restart()).unwrap();
}

#[test]
fn a_queue_made_durable_records_its_messages_and_one_made_volatile_is_dropped_from_the_journal() {
    let disk = Simulated::new(3);
    let (durable, engine, _) = start(&disk).unwrap();
    call(&engine, "configure", "DURABILITY none", START).unwrap();
    call(&engine, "put", "- 0 0 first 1 0 0 a", START).unwrap();
    call(&engine, "put", "- 0 0 second 1 0 0 a", START).unwrap();
    call(&engine, "configure", "REPLACE DURABILITY everysec MAXSIZE 9", START).unwrap();
    call(&engine, "lease", "me 1 0 1 500 any", START + 9).unwrap();
    durable.commit().unwrap();
    drop((durable, engine));

    let (durable, engine, _) = start(&disk).unwrap();
    let stats = call(&engine, "stats", "", START + 9).unwrap();
    assert_eq!(stats[1], "2");
    assert_eq!(call(&engine, "configure", "", START + 9).unwrap()[23], "everysec");
    let again = call(&engine, "lease", "me 1 0 1 500 any", START + 9).unwrap();
    assert!(again.contains(&"first".to_owned()), "{again:?}");
    durable.snapshot(&engine).unwrap();
    call(&engine, "configure", "REPLACE DURABILITY none", START + 10).unwrap();
    call(&engine, "put", "- 0 0 third 0 0 0", START + 10).unwrap();
    durable.commit().unwrap();
    drop((durable, engine));

    let (durable, engine, report) = start(&disk).unwrap();
    assert_eq!(engine.names(), [] as [Box<[u8]>; 0], "{report}");
    // The name is reused, as another queue.
    call(&engine, "put", "- 0 0 anew 0 0 0", START + 11).unwrap();
    durable.commit().unwrap();
    drop((durable, engine));
    let (_, engine, _) = start(&disk).unwrap();
    assert_eq!(call(&engine, "stats", "", START + 11).unwrap()[1], "1");
}

#[test]
fn a_put_that_cannot_be_recorded_is_refused_before_it_is_made() {
    let disk = Simulated::new(3);
    let (durable, engine, _) = start(&disk).unwrap();
    call(&engine, "put", "- 0 0 kept 0 0 0", START).unwrap();
    durable.commit().unwrap();
    disk.set_faults(Faults { fail_sync_in: Some(0), ..Faults::default() });
    call(&engine, "put", "- 0 0 lost 0 0 0", START).unwrap();
    durable.commit().unwrap_err();
    for (function, text) in [("put", "- 0 0 more 0 0 0"), ("lease", "me 1 0 1 500 any")] {
        let refused = call(&engine, function, text, START).unwrap_err();
        assert!(
            refused.starts_with(&format!("MISCONF il1_{function}: the journal failed: ")),
            "{refused}"
        );
        assert!(refused.contains("input/output error"), "{refused}");
    }
    assert_eq!(call(&engine, "stats", "", START).unwrap()[1], "2", "it can still be looked at");
}

#[test]
fn a_failed_journal_is_not_reported_healthy_between_two_ticks() {
    let disk = Simulated::new(3);
    let (durable, engine, _) = start(&disk).unwrap();
    disk.set_faults(Faults { fail_sync_in: Some(0), ..Faults::default() });
    call(&engine, "put", "- 0 0 lost 0 0 0", START).unwrap();
    durable.commit().unwrap_err();
    for tenths in 10..30 {
        durable.upkeep(&engine, START + tenths * 100_000).unwrap_err();
    }
}

/// The first reply may have been lost with its connection while its record was on its way to the disk.
#[test]
fn a_repeated_reply_waits_for_the_disk_like_the_first() {
    let disk = Simulated::new(3);
    let (durable, engine, _) = start(&disk).unwrap();
    let put = || call(&engine, "put", "me 1 0 kept 0 0 0", START).unwrap();
    let first = std::thread::scope(|scope| scope.spawn(put).join().unwrap());
    assert_eq!(put(), first);
    durable.commit().unwrap();
    let (_, engine, _) = start(&disk.restart()).unwrap();
    assert_eq!(call(&engine, "stats", "", START).unwrap()[1], "1");
}

/// Reads are answered from memory, where a record may still be on its way to the disk.
#[test]
fn a_read_returns_only_changes_that_are_on_disk() {
    for (reads, text) in [("stats", ""), ("peek", "ID"), ("scan", "0 9"), ("configure", "")] {
        let disk = Simulated::new(3);
        let (durable, engine, _) = start(&disk).unwrap();
        let put = || call(&engine, "put", "me 1 0 kept 0 0 0", START).unwrap();
        let id = std::thread::scope(|scope| scope.spawn(put).join().unwrap()).swap_remove(0);
        call(&engine, reads, &text.replace("ID", &id), START).unwrap();
        durable.commit().unwrap();
        let (_, engine, _) = start(&disk.restart()).unwrap();
        assert_eq!(call(&engine, "stats", "", START).unwrap()[1], "1", "{reads}");
    }
}

#[test]
fn a_parked_put_is_not_applied_while_the_disk_is_nearly_full() {
    let disk = Simulated::new(3);
    let (durable, engine, _) = start(&disk).unwrap();
    call(&engine, "configure", "MAXSIZE 1", START).unwrap();
    let id = call(&engine, "put", "- 0 0 first 0 0 0", START).unwrap().swap_remove(0);
    let (mut out, mut served) = (Vec::new(), Vec::new());
    let waits = ["", "0", "5000000", "second", "0", "0", "0"];
    let mut ask = |now| {
        engine.call(Function::Put, Some(KEY), &waits[..], now, Some(7), &mut out, &mut served)
    };
    assert_eq!(ask(START), Outcome::Parked);
    disk.set_faults(Faults { capacity: Some(9_000), ..Faults::default() });
    durable.journal().unwrap().prepare().unwrap_err();
    let token = call(&engine, "lease", "me 1 0 1 500 any", START).unwrap().swap_remove(0);
    call(&engine, "settle", &format!("me 2 ACK {token} {id}"), START).unwrap();
    assert_eq!(call(&engine, "stats", "", START).unwrap()[1], "0", "it waits on");
    let mut served = Vec::new();
    engine.tick(START + 6_000_000, &mut served);
    let reply = String::from_utf8(served.remove(0).reply).unwrap();
    assert!(reply.starts_with("-MISCONF il1_put: the journal's disk is nearly full: "), "{reply}");
    durable.commit().unwrap();
}

#[test]
fn a_queue_cannot_become_durable_while_the_disk_is_nearly_full() {
    let disk = Simulated::new(3);
    let (durable, engine, _) = start(&disk).unwrap();
    call(&engine, "configure", "DURABILITY none", START).unwrap();
    call(&engine, "put", "- 0 0 first 1 0 0 a", START).unwrap();
    disk.set_faults(Faults { capacity: Some(9_000), ..Faults::default() });
    durable.journal().unwrap().prepare().unwrap_err();
    let refused = call(&engine, "configure", "REPLACE DURABILITY always", START).unwrap_err();
    assert!(
        refused.starts_with("MISCONF il1_configure: the journal's disk is nearly"),
        "{refused}"
    );
    assert_eq!(call(&engine, "configure", "", START).unwrap()[23], "none");
    disk.set_faults(Faults::default());
    assert!(durable.journal().unwrap().prepare().unwrap());
    call(&engine, "configure", "REPLACE DURABILITY always", START).unwrap();
}

#[test]
fn a_failed_snapshot_is_reported_and_not_tried_again_at_once() {
    let disk = Simulated::new(3);
    let (durable, engine, _) = start(&disk).unwrap();
    let payload = "x".repeat(3_000);
    for _ in 0..4 {
        call(&engine, "put", &format!("- 0 0 {payload} 0 0 0"), START).unwrap();
        durable.commit().unwrap();
    }
    assert!(durable.journal().unwrap().has_old_segments());
    let used: usize = disk.list().iter().map(|name| disk.content(name).len()).sum();
    disk.set_faults(Faults { capacity: Some(used as u64 + 1_000), ..Faults::default() });
    while durable.journal().unwrap().prepare().is_ok() {
        call(&engine, "put", &format!("- 0 0 {payload} 0 0 0"), START).unwrap();
        durable.commit().unwrap();
    }
    let tried = |tenths: u64| {
        let before = disk.operations();
        durable.upkeep(&engine, START + tenths * 100_000).unwrap_err();
        disk.operations() - before
    };
    let first = tried(10);
    assert_eq!(tried(11), 0, "operations of the disk a tenth of a second later");
    let tick = tried(21);
    assert!(first > tick && tried(120) > tick, "it is tried at first, and ten seconds later");
}

#[test]
fn on_a_nearly_full_disk_puts_are_refused_and_settlements_accepted() {
    let disk = Simulated::new(3);
    let (durable, engine, _) = start(&disk).unwrap();
    let id = call(&engine, "put", "- 0 0 kept 0 0 0", START).unwrap().swap_remove(0);
    disk.set_faults(Faults { capacity: Some(9_000), ..Faults::default() });
    durable.journal().unwrap().prepare().unwrap_err();
    let refused = call(&engine, "put", "- 0 0 more 0 0 0", START).unwrap_err();
    assert!(
        refused.starts_with("MISCONF il1_put: the journal's disk is nearly full: "),
        "{refused}"
    );
    let token = call(&engine, "lease", "me 1 0 1 500 any", START).unwrap().swap_remove(0);
    let acked = call(&engine, "settle", &format!("me 2 ACK {token} {id}"), START).unwrap();
    assert_eq!(acked, ["ACKED"]);
    durable.commit().unwrap();
    disk.set_faults(Faults::default());
    assert!(durable.upkeep(&engine, START + 1_000_000).unwrap().is_none());
    call(&engine, "put", "- 0 0 more 0 0 0", START).unwrap();
}

#[test]
fn a_function_that_is_not_known_is_refused() {
    let disk = Simulated::new(3);
    let settings = interlock_journal::JournalSettings { salt: 1, ..Default::default() };
    struct Nothing;
    impl interlock_journal::Replay for Nothing {
        fn snapshot(&mut self, _: u32, _: &[u8]) -> Result<(), String> {
            Ok(())
        }
        fn call(&mut self, _: &interlock_journal::Record<'_>) -> Result<(), String> {
            Ok(())
        }
    }
    let settings = interlock_journal::JournalSettings { segment: 8_192, ..settings };
    let (journal, _) =
        interlock_journal::open(disk.clone(), settings, Repair::Refuse, &mut Nothing).unwrap();
    let entry = interlock_journal::Entry { queue: 1, time: START, function: 200 };
    let last = journal.append(entry, [&b"argument"[..]]).unwrap();
    journal.commit(last, interlock_journal::Durability::Always).unwrap();
    drop(journal);
    let Err(error) = start(&disk) else { panic!("started") };
    let text =
        "segment-00000000000000000001: record 1 cannot be replayed: no function has the number 200; \
         start the version that wrote it, or restore the folder from a copy";
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_dump_of_a_queue_cut_or_changed_anywhere_is_refused_or_read_and_never_a_panic() {
    let disk = Simulated::new(3);
    let (durable, engine, _) = start(&disk).unwrap();
    for n in 0..3 {
        let text = format!("c{n} 1 0 payload 1 1 3 a b DEDUP d{n} RESULT 900 ATTEMPTS 2");
        call(&engine, "put", &text, START).unwrap();
    }
    let leased = call(&engine, "lease", "me 1 0 2 500 any", START).unwrap();
    call(&engine, "settle", &format!("me 2 DONE {} {START} result", leased[0]), START).unwrap();
    call(&engine, "pause", "a", START).unwrap();
    // Of everything that a message may have or wait for.
    let declared = "CHANGE LIMITS x=1\x1fr=1/9:2 WEIGHTS g=2 BEHIND park";
    call(&engine, "configure", declared, START).unwrap();
    for n in 0..3 {
        let text = format!("- 0 0 p 0 0 2 LIMIT x\x1fr GROUP g{}", n % 2);
        call(&engine, "put", &text, START).unwrap();
    }
    let held = call(&engine, "put", "- 0 0 p 2 0 0 k l", START).unwrap().swap_remove(0);
    call(&engine, "put", "- 0 0 p 0 0 1 COALESCE n", START).unwrap();
    call(&engine, "lease", "me 3 0 9 500 any", START).unwrap();
    assert_eq!(call(&engine, "revoke", &format!("{held} hold"), START).unwrap(), ["1"]);
    for put in ["1 0 0 k", "0 0 3 COALESCE l DEBOUNCE 9 WITHIN 20", "2 0 1 l m BEHIND park"] {
        call(&engine, "put", &format!("- 0 0 p {put}"), START).unwrap();
    }
    let stats = call(&engine, "stats", "", START).unwrap();
    let figure = |name: &str| stats.iter().position(|one| one == name).map(|at| &stats[at + 1][..]);
    assert_eq!(["held", "parked", "limited", "groups"].map(figure), ["1", "4", "2", "2"].map(Some));
    durable.commit().unwrap();
    let mut bytes = Vec::new();
    engine.dump(b"q", &mut bytes, || ()).unwrap();
    engine.restore(b"q", &bytes).unwrap();
    for length in 0..bytes.len() {
        assert!(engine.restore(b"other", &bytes[..length]).is_err(), "cut at {length}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x15;
        // Whether it is what was written is for the journal's checksum to say.
        let _ = engine.restore(b"other", &changed);
    }
}

#[test]
fn abbreviated_stored_replies_are_repeated_after_a_dump() {
    let disk = Simulated::new(4);
    let (durable, engine, _) = start(&disk).unwrap();
    let payload = "p".repeat((1 << 20) - 200);
    let mut told = Vec::new();
    for n in 0..20 {
        call(&engine, "put", &format!("- 0 0 {payload} 1 0 0 a{n}"), START).unwrap();
        let asked = format!("c{n} 1 0 1 900 any ACK 1 1");
        told.push((asked.clone(), call(&engine, "next", &asked, START).unwrap()));
    }
    durable.commit().unwrap();
    let mut bytes = Vec::new();
    engine.dump(b"q", &mut bytes, || ()).unwrap();
    assert!(bytes.len() < (20 << 20) + (17 << 20), "the first are not there twice");
    engine.restore(b"q", &bytes).unwrap();
    for (asked, first) in &told {
        assert_eq!(&call(&engine, "next", asked, START).unwrap(), first);
    }
}
