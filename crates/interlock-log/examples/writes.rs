//! Measures the CPU time of writes in a log: on the node whose clients wrote them, and on another.
//!
//! `cargo run --release -p interlock-log --example writes [ENTRIES] [WRITES] [KEYS] [KINDS]`
//!
//! The first kind of write is HINCRBY, the second HSET of two columns. Rows are created before the
//! measurement starts.

use std::time::Instant;

use interlock_log::entry::{Arguments, Command};
use interlock_log::machine::{Limits, Rules};
use interlock_log::replica::{Replica, Setup};
use interlock_log::ring::Memory;
use interlock_log::rows::{Rows, Settings};
use interlock_log::state;

const NOW: u64 = 1_700_000_000_000;
const TABLE: &str = "app: U32, unread: U32, seen: U64; last, sum, max; 604800000 ms";

fn main() {
    let mut given = std::env::args().skip(1).filter_map(|n| n.parse::<usize>().ok());
    let (entries, writes) = (given.next().unwrap_or(3_000), given.next().unwrap_or(100));
    let (keys, kinds) = (given.next().unwrap_or(10_000), given.next().unwrap_or(2));
    let made = keys / writes + 1;
    let settings = Settings {
        name: "presence".to_owned(),
        dc: "east".to_owned(),
        rules: state::Rules::parse(TABLE).expect("rules"),
        capacity: 100_000,
        centres: 1,
        tombstones: 1_000,
        key_size: 32,
        ttl: 0,
    };
    let mut genesis = Vec::new();
    settings.encode(&mut genesis);
    let node = |name: &str| {
        let setup = Setup {
            name: name.as_bytes().to_vec(),
            node: name.as_bytes().to_vec(),
            machine: b"machine".to_vec(),
            genesis: genesis.clone(),
            limits: Limits::default(),
            rules: Rules::ALL,
        };
        Replica::<Rows, _>::new(setup, Memory::new(1_000), None)
    };
    let (mut ours, mut other) = (node("ours"), node("other"));
    let mut id = 0;
    for bytes in ours.at_the_end(1) {
        id += 1;
        ours.read((NOW, id), NOW, &bytes);
        other.read((NOW, id), NOW, &bytes);
    }
    ours.at_the_end(1);
    other.at_the_end(1);
    let mut random = fastrand::Rng::with_seed(7);
    let (mut at_ours, mut at_other) = (0, 0);
    for entry in 0..made + entries {
        let commands: Vec<Command> = (0..writes)
            .map(|write| {
                let is_made = entry < made;
                let row = if is_made { entry * writes + write } else { random.usize(..keys) };
                let key = format!("presence:user:{row}");
                let words: Vec<&[u8]> = match random.usize(..kinds) {
                    0 => vec![b"HINCRBY", key.as_bytes(), b"unread", b"1"],
                    _ => vec![b"HSET", key.as_bytes(), b"app", b"5", b"seen", b"1099511627776"],
                };
                let arguments = Arguments::new(&words);
                Command { client: None, deadline: NOW + 60_000, arguments }
            })
            .collect();
        let begun = Instant::now();
        for (ticket, command) in (0..).zip(commands) {
            ours.submit(ticket, command);
        }
        let bytes = ours.append();
        id += 1;
        let time = NOW + entry as u64 / 10;
        ours.read((NOW, id), time, &bytes);
        assert_eq!(ours.answers().len(), writes);
        let took = |begun: Instant| if entry < made { 0 } else { begun.elapsed().as_nanos() };
        at_ours += took(begun);
        let begun = Instant::now();
        other.read((NOW, id), time, &bytes);
        at_other += took(begun);
        if entry % 100 == 0 {
            ours.saved(ours.place().mark.position);
            other.saved(other.place().mark.position);
        }
    }
    let each = |ns: u128| ns as f64 / (entries * writes) as f64 / 1000.0;
    println!(
        "at the node that wrote: {:.2} us a write; at another: {:.2} us",
        each(at_ours),
        each(at_other)
    );
}
