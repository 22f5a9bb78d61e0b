//! Measures a table on a log: CPU time of commands, of a checkpoint and of joining, and memory.
//!
//! `cargo run --release -p interlock-log --example rows [ROWS]`

use interlock_log::rows::{Rows, Settings, When};
use interlock_log::stamp::Clock;
use interlock_log::state::Rules;
use interlock_table::{remove, Location, Options, Table};

const NOW: u64 = 1_700_000_000_000;
const TABLE: &str =
    "app: U32, background: bool, unread: U32, devices: U16, seen: U64, score: F64, \
                     state: U8, token: str[8], note: bytes[4]; \
                     last, last, sum, flags, max, sum, last, last, last; 604800000 ms";

fn main() {
    let count: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(300_000);
    let rules = Rules::parse(TABLE).expect("rules");
    let columns = rules.schema().clone();
    let settings = Settings {
        name: "presence".to_owned(),
        dc: "east".to_owned(),
        rules,
        capacity: count as u64,
        centres: 1,
        tombstones: 1_000_000,
        key_size: 32,
        ttl: 0,
    };
    let mut keys: Vec<String> =
        (0..count).map(|n| format!("presence:user:{}", 888_000_000 + n)).collect();
    fastrand::seed(7);
    fastrand::shuffle(&mut keys);
    let before = resident();
    let (mut rows, mut clock) = (Rows::new(settings), Clock::default());
    let mut times = |rows: &mut Rows, name: &str, line: &str| {
        let mut words: Vec<Vec<u8>> =
            line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let at = line.split(' ').position(|word| word == "KEY").unwrap_or(1);
        let begun = busy();
        let mut reply = Vec::new();
        for key in &keys {
            reply.clear();
            words[at].clear();
            words[at].extend_from_slice(key.as_bytes());
            let reading = clock.next(NOW);
            let place = |_| Some(reading);
            let when = When {
                time: NOW,
                reading,
                lineage: 1,
                put_back: false,
                writer: None,
                late: false,
                lost: false,
                sent: None,
                place: &place,
            };
            assert!(rows.run(&words, &when, &mut reply).is_ok(), "{line}");
        }
        let each = (busy() - begun) as f64 / keys.len() as f64;
        println!("{name:24} {:6.2} us", each / 1000.0);
    };
    times(
        &mut rows,
        "whole row",
        "TABLE SET KEY ANY NEVER app 666 background 1 unread 3 devices 5 seen 1099511627776 \
         score 1.5 state 2 token 12345678 note abcd",
    );
    let states = resident() - before;
    times(&mut rows, "HINCRBY, last", "HINCRBY KEY app 1");
    times(&mut rows, "HINCRBY, sum", "HINCRBY KEY unread 1");
    times(&mut rows, "HSET of two columns", "HSET KEY state 4 token abc");
    times(&mut rows, "TABLE CAS", "TABLE CAS KEY state 4 5");
    let changed = resident() - before;
    let path = Location::Name(format!("interlock-log-figures-{}", std::process::id()));
    let options = Options { capacity: count as u64, ..Options::default() };
    let table = Table::open(&path, &columns, &options).expect("a table");
    let bytes = table.bytes() as f64;
    remove(&path).expect("removed");
    for (name, used) in [("states of new rows", states), ("of changed rows", changed)] {
        let (each, ratio) = (used as f64 / count as f64, (used as f64 + bytes) / bytes);
        println!("{name:24} {each:6.0} bytes a row; with the table {ratio:.2} of it alone");
    }
    println!("{:24} {:6.0} bytes a row", "the table alone", bytes / count as f64);
    let mut bytes = Vec::new();
    let begun = busy();
    rows.write(&mut bytes);
    println!("{:24} {:6.0} ms, {} MB", "checkpoint", ms(begun), bytes.len() / 1_000_000);
    let begun = busy();
    let mut other = Rows::read(&bytes).expect("rows");
    println!("{:24} {:6.0} ms", "reading it", ms(begun));
    let begun = busy();
    other.take_in(&rows, &|ours, theirs| (ours, theirs));
    println!("{:24} {:6.0} ms", "joining all, all known", ms(begun));
}

fn ms(begun: u64) -> f64 {
    (busy() - begun) as f64 / 1e6
}

/// Returns the CPU time of this process in ns.
fn busy() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
