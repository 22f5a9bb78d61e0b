//! No argument makes the engine panic, and one that is refused changes nothing.

use interlock_engine::{Engine, EngineSettings, Function, Outcome};

use crate::{Bench, KEY, START};

/// Words that mean something to some function, and some that mean nothing.
const WORDS: [&[u8]; 58] = [
    b"",
    b"0",
    b"1",
    b"2",
    b"3",
    b"-1",
    b"-0",
    b"00",
    b"007",
    b"1024",
    b"1025",
    b"4096",
    b"4097",
    b"16",
    b"9007199254740991",
    b"9007199254740992",
    b"99999999999999999",
    b"999999999999999999",
    b"1000000000000000",
    b"1000000000000001",
    b"any",
    b"keyed",
    b"unkeyed",
    b"ACK",
    b"DONE",
    b"NACK",
    b"REJECT",
    b"EXHAUST",
    b"DROP",
    b"RELEASE",
    b"c",
    b"\xff\xfe",
    b"\0",
    b"\r\n",
    b"a",
    b"b",
    b"PRIORITY",
    b"DELAY",
    b"DEDUP",
    b"AFTER",
    b"WINDOW",
    b"BARRIER",
    b"RESULT",
    b"QUIET",
    b"ATTEMPTS",
    b"FIRST",
    b"FACTOR",
    b"THEN",
    b"REPLACE",
    b"MAXSIZE",
    b"MAXDEAD",
    b"DURABILITY",
    b"none",
    b"pending",
    b"dead",
    b"id",
    b"key",
    b"hold",
];

#[test]
fn no_input_makes_the_engine_panic() {
    let seed = std::env::var("INTERLOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("INTERLOCK_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let engine = Engine::new(EngineSettings { memory: 1 << 24, ..EngineSettings::default() });
    let (mut now, mut served) = (START, Vec::new());
    let mut done = 0;
    for ticket in 0..200_000 {
        let function = *rng.choice(Function::ALL).unwrap();
        let mut args: Vec<Vec<u8>> = begin(&mut rng, function);
        let count = rng.usize(..14);
        args.extend((0..count).map(|_| word(&mut rng, now)));
        let keys: [Option<&[u8]>; 6] =
            [Some(KEY), Some(KEY), Some(b"il:{other}"), None, Some(b"il:{}"), Some(b"\xff{}")];
        let odd = rng.u8(..) > 250;
        let key = keys[rng.usize(..if odd { 6 } else { 3 })];
        let key = if function.takes_queue() { key } else { None };
        let caller = rng.bool().then_some(ticket);
        let mut out = Vec::new();
        match engine.call(function, key, &args[..], now, caller, &mut out, &mut served) {
            Outcome::Done => {
                interlock_engine::values::reply::parse(&out).unwrap();
                done += 1;
            }
            Outcome::Refused(refused) => assert!(refused.0.contains(' ')),
            Outcome::Parked if rng.bool() => drop(engine.forget(ticket)),
            Outcome::Parked => {}
        }
        now += rng.u64(..40);
        if rng.u8(..) < 20 {
            engine.tick(now, &mut served);
        }
    }
    assert!(done > 10_000, "only {done} of the calls meant something");
}

/// The arguments with which a call of this function begins well.
fn begin(rng: &mut fastrand::Rng, function: Function) -> Vec<Vec<u8>> {
    let consumer = [&b"a"[..], b"b", b""][rng.usize(..3)].to_vec();
    let call = if consumer.is_empty() { 0 } else { rng.u64(..9) };
    let mut args = vec![consumer, call.to_string().into_bytes()];
    match function {
        _ if rng.u8(..) < 20 => args.clear(),
        Function::Put => {
            args.push(b"20".to_vec());
            let keys = rng.usize(..3);
            args.extend([
                b"p".to_vec(),
                keys.to_string().into_bytes(),
                b"0".to_vec(),
                b"0".to_vec(),
            ]);
            args.extend((0..keys).map(|_| vec![b'a' + rng.u8(..4)]));
        }
        Function::Lease | Function::Next => {
            let count = rng.usize(1..4).to_string().into_bytes();
            args.extend([b"20".to_vec(), count, b"30".to_vec(), b"any".to_vec()]);
        }
        Function::Settle => {}
        Function::Events => {
            args = vec![word(rng, START + 1_000_000), b"9".to_vec(), b"1000".to_vec()];
        }
        Function::Announce => args = vec![vec![b'a' + rng.u8(..4)], b"100".to_vec()],
        Function::Ask => args = vec![vec![b'a' + rng.u8(..4)]],
        _ => args.clear(),
    }
    args
}

fn word(rng: &mut fastrand::Rng, now: u64) -> Vec<u8> {
    match rng.u8(..10) {
        0 => (0..rng.usize(..40)).map(|_| rng.u8(..)).collect(),
        1..=3 => (now - rng.u64(..200)).to_string().into_bytes(),
        _ => WORDS[rng.usize(..WORDS.len())].to_vec(),
    }
}

#[test]
fn a_refused_call_changes_nothing() {
    let mut bench = Bench::new();
    bench.call("put - 0 0 one 1 0 0 a two 1 0 0 a");
    bench.call("lease c 1 0 1 900 any");
    let seen = |bench: &mut Bench| {
        let scan = bench.call("scan 0 100");
        (bench.call("stats"), scan, bench.call("configure"))
    };
    let before = seen(&mut bench);
    for (call, refused) in [
        ("put c 2 0 p 1 0 0 - x 0 0 0", "BADARG il1_put: messages[1].exclusive[1] is empty"),
        ("put c 2 0 p 0 0 0 q 1", "BADARG il1_put: messages[2].shared is missing"),
        (
            "put c 2 0 p 0 0 1 COLOR 1",
            "BADARG il1_put: messages[1].options holds a name that is not",
        ),
        (
            "put c 2 0 p 0 0 2 DELAY 1 DELAY 2",
            "BADARG il1_put: messages[1].options name DELAY twice",
        ),
        (
            "put c 2 0 p 1 0 1 k BARRIER 1",
            "BADARG il1_put: messages[1].BARRIER is 1, but the message has keys",
        ),
        ("put c x 0 p", "BADARG il1_put: call is 'x'; a whole number from 0 to 9007199254740991"),
        ("put - 1 0 p", "BADARG il1_put: consumer is empty, which only call 0 may have"),
        ("lease c 2 0 0 9 any", "BADARG il1_lease: count is '0'; a whole number from 1 to 1024"),
        ("lease c 2 0 1 9 all", "BADARG il1_lease: kind is not any, keyed, unkeyed, any+ or keyed+"),
        ("lease c 2 0 1 9 any x y", "BADARG il1_lease: 2 arguments too many"),
        ("settle c 2", "BADARG il1_settle: settlements are missing"),
        (
            "settle c 2 ACK 05 6",
            "BADARG il1_settle: settlements[1].token is not a number that this queue gives",
        ),
        (
            "settle c 2 ack 5 6",
            "BADARG il1_settle: settlements[1] is not ACK, DONE, NACK, REJECT, EXHAUST, RELEASE, DEFER, DROP or CLOSE",
        ),
        (
            "settle c 2 DEFER 5 6 -1",
            "BADARG il1_settle: settlements[1].delay is '-1'; a whole number from 0 to",
        ),
        ("next c 2 0 1 9 any REJECT 5 6", "BADARG il1_next: settlements[1].reason is missing"),
        ("configure DURABILITY always", "NOTSUPPORTED il1_configure: DURABILITY is 'always'"),
        ("configure COLOR 1", "BADARG il1_configure: options[1] is not CHANGE, REPLACE, MAXSIZE"),
        ("purge all", "BADARG il1_purge: what is not pending or dead"),
        ("revoke 5 later", "BADARG il1_revoke: then is not retry, hold, dead or skip"),
        ("revoke 5 retry x", "BADARG il1_revoke: token is not a number that this queue gives"),
        ("join 0 x", "BADARG il1_join: id is not a number that this queue gives"),
        ("join 0 5 6", "BADARG il1_join: 1 arguments too many"),
        ("peek -1", "BADARG il1_peek: id is not a number that this queue gives"),
        ("explain id 5 1001", "BADARG il1_explain: limit is '1001'; a whole number from 1 to 1000"),
        ("version x", "BADARG il1_version: 1 arguments too many"),
    ] {
        let told = bench.refused(call);
        assert!(told.starts_with(refused), "{call}: {told}");
        assert_eq!(seen(&mut bench), before, "after {call}");
    }
}
