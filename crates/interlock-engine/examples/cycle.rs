//! Measures the cost of a cycle: acknowledge and lease by one `il1_next`, and put as many again.
//! Prints ns a message.

use std::time::Instant;

use interlock_engine::values::reply;
use interlock_engine::{Engine, EngineSettings, Function, Outcome};

const KEY: Option<&[u8]> = Some(b"il:{q}");

fn main() {
    println!("batch  keys  ns a message");
    for batch in [1, 16, 100] {
        for keys in [0, 1, 2] {
            let best = (0..5).map(|_| cycles(batch, keys)).fold(f64::MAX, f64::min);
            println!("{batch:5}  {keys:4}  {best:6.0}");
        }
    }
}

fn cycles(batch: usize, keys: usize) -> f64 {
    let engine = Engine::new(EngineSettings::default());
    let (mut out, mut served) = (Vec::new(), Vec::new());
    let names: Vec<String> = (0..100_000).map(|n| format!("key:{n}")).collect();
    let payload = "p".repeat(100);
    let count = keys.to_string();
    let batch_text = batch.to_string();
    let rounds = 200_000 / batch;
    let (mut at, mut now) = (0, 1_700_000_000_000_000);
    let mut settle: Vec<Vec<u8>> = Vec::new();
    let mut spent = 0;
    for round in 1..=rounds {
        now += 50;
        let call = (2 * round).to_string();
        let mut put: Vec<&[u8]> = vec![b"p", call.as_bytes(), b"0"];
        for _ in 0..batch {
            put.extend([payload.as_bytes(), count.as_bytes(), b"0", b"0"]);
            for _ in 0..keys {
                put.push(names[at % names.len()].as_bytes());
                at += 7919;
            }
        }
        out.clear();
        let begun = Instant::now();
        let done = engine.call(Function::Put, KEY, &put[..], now, None, &mut out, &mut served);
        spent += begun.elapsed().as_nanos();
        assert_eq!(done, Outcome::Done);
        let mut next: Vec<&[u8]> =
            vec![b"c", call.as_bytes(), b"0", batch_text.as_bytes(), b"30000000", b"any"];
        next.extend(settle.iter().map(|arg| &arg[..]));
        out.clear();
        let begun = Instant::now();
        let done = engine.call(Function::Next, KEY, &next[..], now, None, &mut out, &mut served);
        spent += begun.elapsed().as_nanos();
        assert_eq!(done, Outcome::Done);
        let told = reply::parse(&out).expect("no error");
        let lease = &told[1 + settle.len() / 3..];
        settle.clear();
        let mut from = 4;
        for _ in 0..batch {
            settle.extend([b"ACK".to_vec(), lease[0].to_vec(), lease[from].to_vec()]);
            from += 6 + keys;
        }
    }
    spent as f64 / (rounds * batch) as f64
}
