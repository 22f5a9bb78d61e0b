//! Several processes on one table: nothing is torn, and no increment is lost.
//!
//! | variable | meaning |
//! |---|---|
//! | `INTERLOCK_SEED` | the seed; without it a new one each run, printed |
//! | `INTERLOCK_TABLE_OPS` | how many calls all of them make, 1,000,000 if not told |

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{number, row, seed, Place};
use fastrand::Rng;
use interlock_table::table::{Options, Ttl, Where, Written};
use interlock_table::{By, Location, Overflow, Row, Table, Value};

const CHILD: &str = "INTERLOCK_TABLE_PROCESS";
const SCHEMA: &str = "owner: U64, same: U64, again: U64, count: U32, half: I16, text: str[24]";
const PROCESSES: u64 = 4;
const COUNTED: u64 = 16;
const OWN: u64 = 300;

fn patient() -> Options {
    Options { patience: Duration::from_secs(20), ..Options::default() }
}

fn counted(n: u64) -> String {
    format!("counted:{n}")
}

/// A row whose columns follow from one number.
fn set(table: &Table, key: &str, number: u64) -> Written {
    let row = row(
        table,
        &[
            ("owner", Value::Unsigned(number)),
            ("same", Value::Unsigned(number)),
            ("again", Value::Unsigned(!number)),
            ("text", Value::Str(format!("{number:024}").into())),
        ],
    );
    table.write(key.as_bytes(), row.words(), Ttl::Usual, Where::Anywhere).unwrap()
}

fn check(key: &[u8], row: &Row) -> u64 {
    let Some(Value::Unsigned(number)) = row.get("owner") else { panic!() };
    let key = String::from_utf8_lossy(key);
    assert_eq!(row.get("same"), Some(Value::Unsigned(number)), "{key} is torn");
    assert_eq!(row.get("again"), Some(Value::Unsigned(!number)), "{key} is torn");
    assert_eq!(row.get("text"), Some(Value::Str(format!("{number:024}").into())), "{key} is torn");
    number
}

/// Not a test of its own: what each process does.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    // SAFETY: takes no pointer. A child goes with its parent, however that ends.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let [name, rest @ ..] = &what.split(' ').collect::<Vec<_>>()[..] else { panic!() };
    let [process, seed, calls] = [0, 1, 2].map(|n| rest[n].parse::<u64>().unwrap());
    let table = Table::attach(&Location::Name(name.to_string()), &patient()).unwrap();
    let schema = table.schema().clone();
    let column = |name| schema.column(name).unwrap();
    let mut rng = Rng::with_seed(seed);
    let mut own: HashMap<String, u64> = HashMap::new();
    for _ in 0..calls / 5 {
        // One of each, so that it is known what the sums must be.
        let key = counted(rng.u64(..COUNTED));
        let by = By::Integer(1);
        assert!(table
            .incr(key.as_bytes(), column("count"), by, Overflow::Refuse)
            .unwrap()
            .is_some());
        let key = counted(rng.u64(..COUNTED));
        let half = column("half");
        assert!(table.incr(key.as_bytes(), half, by, Overflow::Wrap).unwrap().is_some());
        let key = counted(rng.u64(..COUNTED));
        let number = rng.u64(..);
        let text = Value::Str(format!("{number:024}").into());
        let (number, not) = (Value::Unsigned(number), Value::Unsigned(!number));
        let columns = [
            (column("owner"), &number),
            (column("same"), &number),
            (column("again"), &not),
            (column("text"), &text),
        ];
        assert!(table.patch(key.as_bytes(), &columns).unwrap());
        let key = counted(rng.u64(..COUNTED));
        check(key.as_bytes(), &table.get(key.as_bytes()).unwrap().unwrap());
        // Rows of its own are as in a map, whatever the others do around them.
        let key = format!("{process}:{}", rng.u64(..OWN));
        match rng.u8(..4) {
            0 => {
                let deleted = table.delete(key.as_bytes()).unwrap();
                assert_eq!(deleted, own.remove(&key).is_some());
            }
            1 => {
                let found = table.get(key.as_bytes()).unwrap();
                let found = found.map(|row| check(key.as_bytes(), &row));
                assert_eq!(found, own.get(&key).copied(), "{key}");
            }
            _ => {
                let number = rng.u64(..);
                let there = own.insert(key.clone(), number).is_some();
                let expected = if there { Written::Replaced } else { Written::Inserted };
                assert_eq!(set(&table, &key, number), expected);
            }
        }
    }
    for n in 0..OWN {
        let key = format!("{process}:{n}");
        let found = table.get(key.as_bytes()).unwrap().map(|row| check(key.as_bytes(), &row));
        assert_eq!(found, own.get(&key).copied(), "{key}");
    }
}

#[test]
fn four_processes_write_no_torn_row_and_lose_no_increment() {
    let seed = seed();
    let place = Place::new("processes");
    // So small that rows move, and so large that none is overwritten.
    let options = Options { capacity: PROCESSES * OWN + COUNTED, evict: false, ..patient() };
    let table = place.open(SCHEMA, &options);
    for n in 0..COUNTED {
        set(&table, &counted(n), n);
    }
    let calls = number("INTERLOCK_TABLE_OPS", 1_000_000) / PROCESSES;
    let children: Vec<Child> = (0..PROCESSES)
        .map(|process| {
            Command::new(std::env::current_exe().unwrap())
                .args(["processes::child", "--exact", "--nocapture", "--test-threads=1"])
                .env(CHILD, format!("{} {process} {} {calls}", place.name(), seed + process))
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let sum = |name: &str| -> i64 {
        let row = |n| table.get(counted(n).as_bytes()).unwrap().unwrap();
        let values = (0..COUNTED).map(|n| match row(n).get(name) {
            Some(Value::Unsigned(count)) => count as i64,
            Some(Value::Signed(count)) => count,
            other => panic!("{other:?}"),
        });
        values.sum()
    };
    assert_eq!(sum("count") as u64, calls / 5 * PROCESSES);
    // 16 bits each, which went round.
    assert_eq!(sum("half") as u16, (calls / 5 * PROCESSES) as u16);
    let statistics = table.statistics();
    assert_eq!((statistics.held, statistics.overwritten), (0, 0));
    println!("{statistics:?}");
}

#[test]
fn a_forked_child_is_another_writer_and_takes_nothing_from_its_parent() {
    let place = Place::new("fork");
    let table = place.open("a: U64", &Options::default());
    table.write(b"parent", &[1], Ttl::Usual, Where::Anywhere).unwrap();
    assert_eq!(table.statistics().writers, 1);
    // SAFETY: the child uses the table and leaves; no other thread of this test holds a lock it needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let written = table.write(b"child", &[2], Ttl::Usual, Where::Anywhere);
        let right = written.is_ok() && table.statistics().writers == 2;
        drop(table);
        // SAFETY: ends the child without running what is the parent's.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = 0;
    // SAFETY: the status outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(table.contains(b"child").unwrap());
    // The child has closed it, and the parent's number is the parent's still.
    assert_eq!(table.statistics().writers, 1);
    table.write(b"parent", &[3], Ttl::Usual, Where::Anywhere).unwrap();
    assert_eq!(table.statistics().writers, 1);
}
