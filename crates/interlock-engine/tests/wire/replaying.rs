//! The calls that a journal recorded make the same state again: ids, tokens, kept replies.

use std::sync::{Arc, Mutex};

use interlock_core::queue::types::rules::{Rules, RULES};
use interlock_engine::{Durability, Engine, EngineSettings, Function, Journal, Outcome, Recorded};

use crate::{strings, KEY, START};

type Record = (u64, Recorded, Vec<Vec<u8>>);

#[derive(Default)]
struct Kept(Mutex<Vec<Record>>);

impl Journal for Kept {
    fn record(
        &self,
        _: &[u8],
        durability: Durability,
        now: u64,
        recorded: Recorded,
        args: &[&[u8]],
    ) {
        assert_eq!(durability, Durability::Always);
        let args = args.iter().map(|arg| arg.to_vec()).collect();
        self.0.lock().unwrap().push((now, recorded, args));
    }
}

fn durable(journal: Arc<Kept>) -> Engine {
    Engine::new(EngineSettings {
        durability: Durability::Always,
        journal: Some(journal),
        ..EngineSettings::default()
    })
}

/// Returns what a queue answers to who looks at all of it, and to consumers that send their last
/// call again.
pub fn look(engine: &Engine, now: u64, calls: &[u64; 4]) -> Vec<Result<Vec<String>, String>> {
    let mut told = Vec::new();
    let mut ask = |function: Function, args: Vec<String>| {
        let (mut out, mut served) = (Vec::new(), Vec::new());
        let outcome = engine.call(function, Some(KEY), &args[..], now, None, &mut out, &mut served);
        assert!(served.is_empty());
        told.push(match outcome {
            Outcome::Done => strings(&out),
            Outcome::Refused(refused) => Err(refused.0),
            Outcome::Parked => unreachable!("without a ticket"),
        });
    };
    let words = |text: &str| text.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect();
    ask(Function::Stats, words(""));
    ask(Function::Limits, words("1024"));
    ask(Function::DeadLetters, vec!["1024".into(), String::new()]);
    ask(Function::Hot, words("0"));
    ask(Function::Scan, words("0 1024"));
    ask(Function::Roots, words("0 1024"));
    for id in START..START + 40 {
        ask(Function::Result, words(&format!("{id} 0")));
    }
    // What each consumer's last call would get again. `il1_next` of the same number is known, or stale.
    for (n, call) in calls.iter().enumerate().filter(|(_, &call)| call > 0) {
        for function in [Function::Put, Function::Lease, Function::Settle, Function::Next] {
            let rest = match function {
                Function::Put => "0 again 0 0 0",
                Function::Settle => "ACK 5 6",
                _ => "0 1 50 any",
            };
            ask(function, words(&format!("c{n} {call} {rest}")));
        }
    }
    // And then the numbers that come next.
    ask(
        Function::Put,
        vec!["".into(), "0".into(), "0".into(), "new".into(), "0".into(), "0".into(), "0".into()],
    );
    ask(
        Function::Lease,
        vec!["".into(), "0".into(), "0".into(), "1000".into(), "50".into(), "any".into()],
    );
    told
}

/// Returns why each of the first messages waits.
pub fn explained(engine: &Engine, now: u64) -> Vec<Option<Vec<String>>> {
    let explain = |id: u64| {
        let args = ["id".to_owned(), id.to_string(), "20".to_owned()];
        let (mut out, mut served) = (Vec::new(), Vec::new());
        engine.call(Function::Explain, Some(KEY), &args[..], now, None, &mut out, &mut served);
        strings(&out).ok()
    };
    (START..START + 40).map(explain).collect()
}

#[test]
fn replaying_recorded_calls_restores_the_state() {
    let seed = std::env::var("INTERLOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("INTERLOCK_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..300 {
        schedule(&mut rng);
    }
}

/// Makes a call at `START`, `-` for an empty argument. Returns its reply, or that of the call that it served.
fn ask(engine: &Engine, text: &str, caller: Option<u64>) -> Vec<u8> {
    let mut words = text.split(' ').map(|word| if word == "-" { "" } else { word });
    let function = format!("il1_{}", words.next().unwrap());
    let function = Function::named(function.as_bytes()).unwrap();
    let args: Vec<&str> = words.collect();
    let (mut out, mut served) = (Vec::new(), Vec::new());
    engine.call(function, Some(KEY), &args[..], START, caller, &mut out, &mut served);
    served.pop().map_or(out, |one| one.reply)
}

fn replayed(journal: &Kept) -> Engine {
    let again = durable(Arc::new(Kept::default()));
    for (now, recorded, args) in &*journal.0.lock().unwrap() {
        again
            .replay(b"q", *recorded, &args[..], *now, Rules::current())
            .expect("it was done before");
    }
    again
}

/// One call sets aside at most a thousand messages. Those that a waiting call has set aside are not examined again by the
/// next lease, nor by its replay.
#[test]
fn a_lease_behind_messages_that_a_waiting_call_has_set_aside_is_replayed() {
    for way in ["limits", "pauses"] {
        let journal = Arc::new(Kept::default());
        let engine = durable(journal.clone());
        match way {
            "limits" => drop(ask(&engine, "configure CHANGE LIMITS x=1", None)),
            _ => drop(ask(&engine, "pause k", None)),
        }
        let aside = if way == "limits" { "p 0 0 1 LIMIT x" } else { "p 0 1 0 k" };
        ask(&engine, "put - 0 0 p 0 0 1 LIMIT x", None);
        ask(&engine, "lease c0 1 0 1 900000000 any", None);
        ask(&engine, "lease c1 1 900 9 900000000 any", Some(1));
        (0..1_500).for_each(|_| drop(ask(&engine, &format!("put - 0 0 {aside}"), None)));
        let lease = strings(&ask(&engine, "put - 0 0 p 0 0 0", None)).unwrap();
        assert_eq!(lease[3], "1", "it was handed to the call that waits");
        ask(&engine, &format!("settle c1 2 ACK {} {}", lease[0], lease[4]), None);
        let calls = [1, 2, 0, 0];
        let (again, before) =
            (look(&replayed(&journal), START, &calls), look(&engine, START, &calls));
        assert_eq!(again[0], before[0]);
        assert!(again == before);
    }
}

/// A lease ends where its payloads reach this many bytes. A journal of another limit replays to the
/// same result.
#[test]
fn a_recorded_lease_has_the_number_of_leased_messages() {
    let journal = Arc::new(Kept::default());
    let engine = durable(journal.clone());
    let mut calls = [0u64; 4];
    let put = format!("put - 0 0 {} 0 0 0", "p".repeat(600_000));
    ask(&engine, "lease c2 1 900 9 900000000 any", Some(1));
    (0..7).for_each(|_| drop(ask(&engine, &put, None)));
    let leased = ask(&engine, "lease c0 1 0 9 900000000 any", None);
    let lease = strings(&leased).unwrap();
    assert_eq!(lease[3], "2");
    let next = format!("next c1 1 0 9 900000000 any ACK {} {}", lease[0], lease[4]);
    assert_eq!(strings(&ask(&engine, &next, None)).unwrap()[5], "2");
    calls[..3].fill(1);
    let records = journal.0.lock().unwrap().clone();
    let counts = |(_, recorded, args): &Record| match recorded.name() {
        "granted" | "next" => Some(String::from_utf8_lossy(&args[3]).into_owned()),
        _ => None,
    };
    // The first was handed the only message that there was.
    assert_eq!(records.iter().filter_map(counts).collect::<Vec<_>>(), ["9", "2", "2"]);
    assert_eq!(look(&replayed(&journal), START, &calls), look(&engine, START, &calls));
    // Records of a time without that bound: all that COUNT says.
    let older = durable(Arc::new(Kept::default()));
    let args = |text: &str| text.split(' ').map(|w| w.replace('-', "")).collect::<Vec<String>>();
    (0..3).for_each(|_| {
        let put = &args(&put[4..])[..];
        older.replay(b"q", Recorded::Call(Function::Put), put, START, &RULES[0]).unwrap()
    });
    let granted = &args("lease c0 1 9 900 any")[..];
    older.replay(b"q", Recorded::Granted, granted, START, &RULES[0]).unwrap();
    let stats = strings(&ask(&older, "stats", None)).unwrap();
    assert_eq!(stats[10..12], ["leased", "3"]);
}

fn schedule(rng: &mut fastrand::Rng) {
    let journal = Arc::new(Kept::default());
    let engine = durable(journal.clone());
    let (mut now, mut served, mut calls) = (START, Vec::new(), [0u64; 4]);
    let mut leased: Vec<(String, String)> = vec![("5".into(), "6".into())];
    let note = |reply: &[u8], leased: &mut Vec<(String, String)>| {
        let Ok(all) = strings(reply) else { return };
        // A token is followed, somewhere, by its ids: all later numbers are tried.
        let numbers: Vec<String> = all.iter().filter(|one| one.len() == 16).cloned().collect();
        for token in numbers.iter().take(6) {
            leased.extend(numbers.iter().take(6).map(|id| (token.clone(), id.clone())));
        }
        let from = leased.len().saturating_sub(40);
        leased.drain(..from);
    };
    for ticket in 0..rng.u64(1..200) {
        now += if rng.bool() { 0 } else { rng.u64(..30) };
        let (function, args) = random_call_of_runs(rng, &mut calls, &leased);
        let caller = (rng.u8(..) < 200).then_some(ticket);
        let mut out = Vec::new();
        match engine.call(function, Some(KEY), &args[..], now, caller, &mut out, &mut served) {
            Outcome::Done => note(&out, &mut leased),
            Outcome::Parked if rng.u8(..) < 60 => drop(engine.forget(ticket)),
            _ => {}
        }
        if rng.u8(..) < 60 {
            engine.tick(now, &mut served);
        }
        served.drain(..).for_each(|one| note(&one.reply, &mut leased));
    }
    let waits: Vec<u64> = (0..200).collect();
    for ticket in waits {
        engine.forget(ticket);
    }
    let (again, records) = (replayed(&journal), journal.0.lock().unwrap().clone());
    assert_eq!(explained(&again, now), explained(&engine, now), "after {records:?}");
    assert_eq!(look(&again, now, &calls), look(&engine, now, &calls), "after {records:?}");
}

fn restored(rng: &mut fastrand::Rng) -> Vec<String> {
    let mut args = vec![rng.u64(1..90).to_string()];
    for _ in 0..rng.usize(1..4) {
        let states = ["waiting", "held", "backing_off", "delayed", "dead", "parked"];
        let state = states[rng.usize(..6)];
        let (mark, time) = (rng.u8(..20), START + rng.u64(..200));
        let message = [
            "p 1 0 0 a",
            "p 1 1 0 a b",
            "p 0 0 1 PRIORITY 5",
            "p 0 1 2 a DEDUP d RESULT 60",
            "p 0 0 2 COALESCE a REVISION 3",
            "p 1 0 2 c GROUP h LIMIT r",
        ];
        let text = format!("m{mark} {state} 2 {time} e {}", message[rng.usize(..6)]);
        args.extend(text.split(' ').map(str::to_owned));
    }
    args
}

/// Like `random_call`, among calls that put and lease runs. The kept journals are of calls without.
pub fn random_call_of_runs(
    rng: &mut fastrand::Rng,
    calls: &mut [u64; 4],
    leased: &[(String, String)],
) -> (Function, Vec<String>) {
    let (function, mut args) = random_call(rng, calls, leased);
    match function {
        Function::Put if rng.u8(..) < 90 => {
            let one =
                ["p 1 0 1 r RUN 3:x", "p 1 1 2 r s RUN 9:x QUIET 1", "p 1 0 2 r RUN 9:x LIMIT x"]
                    [rng.usize(..3)];
            for _ in 0..rng.usize(2..5) {
                args.extend(one.split(' ').map(str::to_owned));
            }
        }
        Function::Lease | Function::Next if rng.bool() => args[5] = "any+".into(),
        _ => {}
    }
    (function, args)
}

pub fn random_call(
    rng: &mut fastrand::Rng,
    calls: &mut [u64; 4],
    leased: &[(String, String)],
) -> (Function, Vec<String>) {
    let who = rng.usize(..4);
    let mut head = |repeats: bool| {
        if rng.u8(..) < 30 {
            return vec![format!("c{who}"), "0".to_owned()];
        }
        calls[who] += u64::from(!repeats || calls[who] == 0);
        vec![format!("c{who}"), calls[who].to_string()]
    };
    let repeats = who == 3;
    let mut args = head(repeats);
    let wait = [0, 0, 15, 40][rng.usize(..4)].to_string();
    let (token, id) = leased[rng.usize(..leased.len())].clone();
    let settlement = match rng.u8(..8) {
        7 => ["CLOSE", &token, &id, "20", "e", ["r", "x"][rng.usize(..2)], "1"]
            .map(str::to_owned)
            .into(),
        0 => vec![
            "NACK".to_owned(),
            token,
            id.clone(),
            ["", "0", "9"][rng.usize(..3)].to_owned(),
            "e".into(),
        ],
        1 => vec!["REJECT".to_owned(), token, id.clone(), "bad".into()],
        2 => vec!["RELEASE".to_owned(), token, id.clone()],
        6 => vec!["DEFER".to_owned(), token, id.clone(), rng.u8(..30).to_string()],
        3 => vec!["DONE".to_owned(), token, id.clone(), "result".into()],
        _ => vec!["ACK".to_owned(), token, id.clone()],
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
    match rng.u8(..20) {
        0..=5 => {
            args.push(wait);
            for _ in 0..rng.usize(1..3) {
                args.extend(words(
                    ["p 1 0 0 a", "p 1 1 0 a b", "p 0 0 0", "p 0 1 0 a"][rng.usize(..4)],
                ));
                if rng.u8(..) < 100 {
                    args.extend(words(
                        [
                            "p 0 0 1 DELAY 20",
                            "p 0 0 1 BARRIER 1",
                            "p 1 0 3 a DEDUP d WINDOW 25 RESULT 60",
                            "p 1 0 4 b ATTEMPTS 2 FIRST 9 THEN hold RESULT 90",
                            "p 0 0 1 LIMIT x",
                            "p 0 1 1 a LIMIT x\x1fy",
                            "p 0 0 1 COALESCE a",
                            "longer 0 0 1 COALESCE a",
                            "p 1 0 2 b COALESCE n RESULT 70",
                            "q 1 0 4 b COALESCE n DEBOUNCE 9 WITHIN 30 FIRST 7",
                            "p 2 0 1 a b BEHIND park",
                            "p 2 0 3 a c BEHIND park ATTEMPTS 1 THEN hold",
                            "p 1 0 3 b BEHIND bury ATTEMPTS 1 THEN hold",
                            "p 1 0 1 a BEHIND cancel",
                            "p 0 0 1 GROUP g",
                            "p 0 0 2 GROUP g LIMIT r",
                            "p 1 0 2 c GROUP h LIMIT r\x1fx",
                        ][rng.usize(..17)],
                    ));
                }
            }
            (Function::Put, args)
        }
        6..=8 => {
            args.extend([wait, rng.u8(1..4).to_string(), rng.u8(1..60).to_string(), "any".into()]);
            (Function::Lease, args)
        }
        9..=11 => {
            args.extend(settlement);
            (Function::Settle, args)
        }
        12..=15 => {
            args.extend([wait, "2".into(), rng.u8(1..60).to_string(), "any".into()]);
            args.extend(settlement);
            (Function::Next, args)
        }
        16 => (Function::Extend, vec![leased[0].0.clone(), "30".into()]),
        17 => match rng.u8(..6) {
            0 => (
                Function::Configure,
                words(
                    [
                        "MAXSIZE 6",
                        "REPLACE MAXSIZE 4 MAXDEAD 1",
                        "REPLACE LIMITS *=1",
                        "CHANGE LIMITS x=1\x1fy=2",
                        "CHANGE BEHIND park ATTEMPTS 1 THEN hold",
                        "REPLACE BEHIND bury ATTEMPTS 1",
                        "CHANGE BEHIND cancel",
                        "CHANGE BEHIND wait",
                        "CHANGE LIMITS x=1\x1fr=1/9:2",
                        "CHANGE WEIGHTS g=2\x1f*=3",
                    ][rng.usize(..10)],
                ),
            ),
            1 => (Function::Pause, if rng.bool() { vec![] } else { words("a") }),
            2 => (Function::Resume, if rng.bool() { vec![] } else { words("a") }),
            3 => (Function::Drop, if rng.bool() { vec![] } else { words("FORCE") }),
            4 => (Function::Restore, restored(rng)),
            _ => (if rng.bool() { Function::Seal } else { Function::Reopen }, vec![]),
        },
        18 => match rng.u8(..7) {
            6 => (Function::Forget, vec![id]),
            0 => (
                Function::Revoke,
                vec![id, ["retry", "hold", "dead", "skip"][rng.usize(..4)].into()],
            ),
            1 => (Function::Cancel, vec![id]),
            4 => (Function::Discard, vec![id]),
            2 => (Function::Revoke, vec![id, "retry".into(), leased[0].0.clone()]),
            3 => (Function::Join, if rng.bool() { vec![wait] } else { vec![wait, id] }),
            _ => (Function::Requeue, vec![id]),
        },
        _ => match rng.u8(..6) {
            0 => (Function::Retry, vec![id]),
            1 => (Function::Skip, vec![id]),
            2 => (Function::Bury, vec![id]),
            3 => (Function::Reopen, vec![]),
            4 => (Function::Resume, vec![]),
            _ => (Function::Purge, words(if rng.bool() { "dead" } else { "pending" })),
        },
    }
}
