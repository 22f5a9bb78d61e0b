//! Commands on rows, without sockets: what they answer, what they cost others, whatever they are given.

mod threadless;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;

use fastrand::Rng;
use interlock_hub::catalog::{all, named};
use interlock_hub::session::Step;
use interlock_hub::shared::settings::{Live, Settings};
use interlock_hub::tables::served::{ServedTable, Tables};
use interlock_table::{fault, Location, Options, Schema, Table};
use threadless::{Client, Hub};

/// A table in a file that goes with it.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let name = format!("interlock-hub-{}-{}", std::process::id(), fastrand::u64(..));
        Place(std::env::temp_dir().join(name))
    }

    fn open(&self, columns: &str, capacity: u64) -> Table {
        let options = Options { capacity, ..Options::default() };
        let schema = Schema::parse(columns).unwrap();
        Table::open(&Location::Path(self.0.clone()), &schema, &options).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn serving(tables: &[(&str, &Table)]) -> Hub {
    let tables = tables.iter().map(|(name, table)| ServedTable::new((*name).into(), table));
    let live = Live { tables: Tables::new(tables), ..Live::default() };
    Hub::new(Settings { live, ..Settings::default() })
}

#[test]
fn a_row_command_has_the_same_arity_on_a_hub_and_on_a_node() {
    for (_, name, words) in interlock_rows::Verb::ALL {
        let declared = named(name.as_bytes()).expect(name);
        assert_eq!(declared.arity, words, "{name}");
        assert!(declared.has_flag("write"), "{name}");
    }
    for (_, name, words) in interlock_rows::Read::ALL {
        let declared = named(name.as_bytes()).expect(name);
        assert_eq!(declared.arity, words, "{name}");
        assert!(declared.has_flag("readonly"), "{name}");
    }
}

#[test]
fn changes_over_the_wire_are_made_in_the_table() {
    let place = Place::new();
    let table = place.open("unread: U32, token: str[8]", 100);
    let mut hub = serving(&[("t", &table)]);
    let mut client = hub.client(1);
    assert_eq!(hub.talk(&mut client, b"HSET t:k unread 5 token x\r\n"), ":2\r\n");
    assert_eq!(hub.talk(&mut client, b"HINCRBY t:k unread 2\r\n"), ":7\r\n");
    let row = table.get(b"k").unwrap().unwrap();
    assert_eq!(row.get("unread"), Some(interlock_table::Value::Unsigned(7)));
    let whole = "*4\r\n$6\r\nunread\r\n$1\r\n7\r\n$5\r\ntoken\r\n$1\r\nx\r\n";
    assert_eq!(hub.talk(&mut client, b"HGETALL t:k\r\n"), whole);
    let refused = hub.talk(&mut client, b"HMGET t:k unread none\r\n");
    assert!(refused.starts_with("-NOCOLUMN ") && refused.ends_with('\n'), "{refused}");
}

static GOES_ON: AtomicBool = AtomicBool::new(false);
static HELD: AtomicBool = AtomicBool::new(false);

extern "C" fn stand_still(_: i32) {
    HELD.store(true, SeqCst);
    while !GOES_ON.load(SeqCst) {
        std::thread::yield_now();
    }
}

#[test]
fn a_stuck_writer_is_waited_for_only_once_in_a_while() {
    let place = Place::new();
    let table = Arc::new(place.open("unread: U32", 100));
    let mut hub = serving(&[("t", &table)]);
    let mut client = hub.client(1);
    hub.talk(&mut client, b"HSET t:held unread 1\r\nHSET t:free unread 1\r\n");
    // SAFETY: the handler touches atomics alone.
    unsafe { libc::signal(libc::SIGUSR1, stand_still as *const () as libc::sighandler_t) };
    let writer = std::thread::spawn({
        let table = table.clone();
        move || {
            let column = table.schema().column("unread").unwrap().clone();
            fault::arm(fault::Step::WordLocked as u32, 1, libc::SIGUSR1);
            let by = interlock_table::By::Integer(10);
            table.incr(b"held", &column, by, interlock_table::Overflow::Refuse).unwrap()
        }
    });
    while !HELD.load(SeqCst) {
        std::thread::yield_now();
    }
    assert_eq!(hub.local.barred, 0);
    let refused = hub.talk(&mut client, b"HINCRBY t:held unread 1\r\n");
    assert!(refused.starts_with("-TRYAGAIN the row is locked by process "), "{refused}");
    // The clock of this hub stands still: from now on nobody waits.
    assert!(hub.local.barred > 0);
    let refused = hub.talk(&mut client, b"DEL t:free t:held\r\n");
    assert!(refused.starts_with("-TRYAGAIN "), "{refused}");
    assert_eq!(
        hub.talk(&mut client, b"HGET t:held unread\r\n"),
        "$1\r\n1\r\n",
        "readers never wait"
    );
    assert_eq!(hub.talk(&mut client, b"HSET t:free unread 4\r\n"), ":1\r\n");
    GOES_ON.store(true, SeqCst);
    writer.join().unwrap();
    assert_eq!(hub.talk(&mut client, b"HINCRBY t:held unread 1\r\n"), ":12\r\n");
}

#[test]
fn a_scan_over_tables_finds_every_row_in_steps_that_are_bounded() {
    let places = [Place::new(), Place::new(), Place::new()];
    let tables = places.each_ref().map(|place| place.open("a: U8", 50_000));
    let mut hub = serving(&[("a", &tables[0]), ("b", &tables[1]), ("c", &tables[2])]);
    let mut client = hub.client(1);
    for n in 0..500 {
        hub.talk(&mut client, format!("HSET a:{n} a 1\r\nHSET c:{n} a 1\r\n").as_bytes());
    }
    for (pattern, wanted) in [("*", 1000), ("c:*", 500), ("[ac]:1?", 20), ("b*", 0), ("d:*", 0)] {
        let (mut cursor, mut keys, mut steps) = ("0".to_owned(), Vec::new(), 0);
        loop {
            let call = format!("SCAN {cursor} MATCH {pattern} COUNT 1000\r\n");
            let reply = hub.talk(&mut client, call.as_bytes());
            let lines: Vec<&str> = reply.split("\r\n").collect();
            keys.extend(lines.iter().filter(|line| line.contains(':')).map(|l| (*l).to_owned()));
            cursor = lines[2].to_owned();
            steps += 1;
            if cursor == "0" {
                break;
            }
        }
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), wanted, "{pattern}");
        // 8,192 slots in each: so it takes as many as the tables that may match are large.
        let slots: u64 = tables.iter().map(Table::slots).sum();
        let least = match pattern {
            "*" => slots,
            "d:*" => 0,
            "[ac]:1?" => slots,
            _ => tables[1].slots(),
        };
        assert!(steps >= least / 8192 && steps <= least / 8192 + 4, "{pattern}: {steps} steps");
    }
}

#[test]
fn every_call_gets_exactly_one_answer() {
    let place = Place::new();
    let table = place.open("a: U8, b: I64, c: F64, d: bool, e: str[4], f: bytes[3]", 20);
    let mut random =
        Rng::with_seed(std::env::var("INTERLOCK_SEED").map_or(5, |s| s.parse().unwrap()));
    let mut hub = serving(&[("t", &table)]);
    let mut client = hub.client(1);
    let own: Vec<&str> = all()
        .flat_map(|command| [command].into_iter().chain(command.subcommands))
        .filter(|command| command.categories.contains(&"@table"))
        .map(|command| command.name)
        .collect();
    assert!(own.len() > 35, "{own:?}");
    let words: [&[u8]; 34] = [
        b"t:k",
        b"t:l",
        b"t:",
        b"t",
        b":",
        b"u:k",
        b"",
        b"a",
        b"b",
        b"c",
        b"d",
        b"e",
        b"f",
        b"0",
        b"1",
        b"-1",
        b"255",
        b"256",
        b"99999999999999999999",
        b"1.5",
        b"nan",
        b"\xff\x00",
        b"text",
        b"NX",
        b"XX",
        b"ANY",
        b"DEFAULT",
        b"NEVER",
        b"COUNT",
        b"MATCH",
        b"*",
        b"WRAP",
        b"TYPE",
        b"t:kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
    ];
    let (mut refused, mut done) = (0, 0);
    for _ in 0..60_000 {
        let name = own[random.usize(0..own.len())];
        let mut call: Vec<&[u8]> = name.split('|').map(str::as_bytes).collect();
        // Mostly what is right at first, so that it comes further.
        let keyed: &[u8] = if name.starts_with("table|m") { b"t" } else { b"t:k" };
        call.extend((random.u8(0..4) > 0).then_some(keyed));
        call.extend((0..random.usize(0..6)).map(|_| words[random.usize(0..words.len())]));
        let mut bytes = format!("*{}\r\n", call.len()).into_bytes();
        for word in &call {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"ECHO end\r\n");
        let reply = fed(&mut hub, &mut client, &bytes);
        let end = whole(&reply).unwrap_or_else(|| panic!("{call:?}: {reply:?}"));
        assert_eq!(&reply[end..], b"$3\r\nend\r\n", "{call:?}: {reply:?}");
        *if reply[0] == b'-' { &mut refused } else { &mut done } += 1;
    }
    assert!(refused > 1000 && done > 1000, "{refused} were refused, {done} done");
}

fn fed(hub: &mut Hub, client: &mut Client, bytes: &[u8]) -> Vec<u8> {
    let (step, _) = hub.feed(client, bytes);
    assert_eq!(step, Step::Idle);
    std::mem::take(&mut client.out)
}

/// The end of the first reply; `None`: it is not whole, or none.
fn whole(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'+' | b'-' => Some(line),
        b':' => number().map(|_| line),
        b'$' => match number()? {
            -1 => Some(line),
            length => {
                let end = line + length as usize + 2;
                (bytes.get(end - 2..end)? == b"\r\n").then_some(end)
            }
        },
        b'*' => {
            let mut end = line;
            for _ in 0..number()?.max(0) {
                end += whole(&bytes[end..])?;
            }
            Some(end)
        }
        _ => None,
    }
}
