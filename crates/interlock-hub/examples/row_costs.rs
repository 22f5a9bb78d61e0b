//! Measures what commands on rows cost a worker beside its system calls: a session that is fed pipelines
//! of a hundred. Prints ns a command, the lower quartile of some passes over all rows;
//! `row_costs COMMAND [PASSES]` runs one alone, for a profiler.

use std::sync::Arc;
use std::time::Instant;

use interlock_hub::access::registry::Card;
use interlock_hub::session::Session;
use interlock_hub::shared::mailbox::Mailbox;
use interlock_hub::shared::settings::{Live, Settings};
use interlock_hub::shared::{Core, Local, Shared};
use interlock_hub::tables::served::{ServedTable, Tables};
use interlock_table::{remove, Location, Options, Schema, Table};

const KEYS: usize = 10_000;
const DEPTH: usize = 100;
const COLUMNS: &str =
    "app: U32, background: bool, unread: U32, devices: U16, seen: U64, score: F64, \
                       state: U8, token: str[8], note: bytes[4]";

/// Names, and what is sent. KEY is another row each time; KEYS a hundred of them, by which the time counts.
const COMMANDS: [(&str, &str); 26] = [
    ("hset-1", "HSET t:KEY unread 5"),
    ("hset-3", "HSET t:KEY unread 5 state 4 token abcdef"),
    ("hset-2", "HSET t:KEY unread 5 state 4"),
    ("hset-text", "HSET t:KEY token abcdef"),
    ("hincrby", "HINCRBY t:KEY unread 1"),
    ("hincrbyfloat", "HINCRBYFLOAT t:KEY score 0.5"),
    ("table-set", "TABLE SET t:KEY ANY DEFAULT app 7 unread 5 seen 1099511627776 token abcdef"),
    ("table-mset", "TABLE MSET t 3 unread state token SETS"),
    ("table-patch", "TABLE PATCH t:KEY unread 5 state 4 token abcdef"),
    ("table-incr", "TABLE INCR t:KEY unread 1"),
    ("table-cas", "TABLE CAS t:KEY state 4 4"),
    ("table-cas-text", "TABLE CAS t:KEY token abcdef abcdef"),
    ("pexpire", "PEXPIRE t:KEY 100000000"),
    ("persist", "PERSIST t:KEY"),
    ("hget", "HGET t:KEY unread"),
    ("hget-text", "HGET t:KEY token"),
    ("hmget-3", "HMGET t:KEY unread state token"),
    ("hgetall", "HGETALL t:KEY"),
    ("hvals", "HVALS t:KEY"),
    ("hkeys", "HKEYS t:KEY"),
    ("hlen", "HLEN t:KEY"),
    ("hexists", "HEXISTS t:KEY state"),
    ("hstrlen", "HSTRLEN t:KEY token"),
    ("exists", "EXISTS t:KEY"),
    ("pttl", "PTTL t:KEY"),
    ("table-mget", "TABLE MGET t KEYS"),
];

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let rounds = given.get(1).and_then(|text| text.parse().ok()).unwrap_or(40);
    let location = Location::Name(format!("interlock-hub-rows-{}", std::process::id()));
    let options = Options { capacity: KEYS as u64, ..Options::default() };
    let schema = Schema::parse(COLUMNS).expect("columns");
    let table = Table::open(&location, &schema, &options).expect("a table");
    remove(&location).expect("removed");
    let served = ServedTable::new("t".to_owned(), &table);
    let live = Live { tables: Tables::new([served]), ..Live::default() };
    let mailboxes = vec![Mailbox::new().expect("an eventfd")];
    let settings = Settings { live, ..Settings::default() };
    let shared = Shared::new(settings, mailboxes, 0).expect("no journal to open");
    let mut local = Local::new(0, shared.live());
    let card = Arc::new(Card::new(1, 0, 1, 0));
    let mut session = Session::new(card, 1, &shared.live().users);
    let mut run = |line: &str, rounds: usize| {
        let pipelines: Vec<Vec<u8>> = (0..KEYS / DEPTH).map(|n| pipeline(line, n)).collect();
        let mut out = Vec::with_capacity(1 << 20);
        let mut spent = Vec::with_capacity(rounds);
        // The first pass makes the rows.
        for _ in 0..=rounds {
            let begun = Instant::now();
            for pipeline in &pipelines {
                out.clear();
                let mut core = Core { shared: &shared, local: &mut local, now: 0, clock: || 0 };
                session.run(pipeline, &mut 0, &mut core, &mut out);
                assert!(!out.starts_with(b"-"), "{line}: {}", String::from_utf8_lossy(&out));
            }
            spent.push(begun.elapsed().as_nanos() as f64 / KEYS as f64);
        }
        // Most of the others were held up by other programs.
        spent.sort_by(f64::total_cmp);
        spent[spent.len() / 4]
    };
    run("HSET t:KEY unread 1 state 4 token abcdef", 1);
    for (name, line) in COMMANDS {
        if given.first().is_none_or(|wanted| wanted == "all" || wanted == name) {
            println!("{name:16} {:7.1}", run(line, rounds));
        }
    }
}

fn pipeline(line: &str, number: usize) -> Vec<u8> {
    let key = |n: usize| format!("user:{}", 888_000_000 + (number * DEPTH + n) * 7_919 % KEYS);
    let keys: Vec<String> = (0..DEPTH).map(key).collect();
    if line.ends_with(" KEYS") {
        return encoded(&line.replace("KEYS", &keys.join(" ")));
    }
    if line.ends_with(" SETS") {
        let sets: Vec<String> = keys.iter().map(|key| format!("{key} 5 4 abcdef")).collect();
        return encoded(&line.replace("SETS", &sets.join(" ")));
    }
    keys.iter().flat_map(|key| encoded(&line.replace(":KEY", &format!(":{key}")))).collect()
}

fn encoded(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    out
}
