//! The life of a writer: everything, without end, until it is killed; and how it is started.

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use fastrand::Rng;
use interlock_table::{Error, Table, Value};

use crate::rows::*;

const WHAT: &str = "INTERLOCK_TABLE_CHILD";

/// A writer that sends itself a signal when it has passed a step some times.
#[derive(Clone, Copy, Default)]
pub struct Armed {
    pub step: u32,
    pub times: i64,
    pub signal: i32,
}

/// A child that was started, and is waited for by `random::await_change`; whether it is at work for certain.
pub struct Process(pub Child, pub bool);

/// Held while a child is started. Until it runs this program, it has every file open that any test has.
pub static STARTING: Mutex<()> = Mutex::new(());

pub fn spawn(table: &str, writer: u64, seed: u64, armed: Armed) -> Process {
    let Armed { step, times, signal } = armed;
    let _alone = STARTING.lock();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["child::child", "--exact", "--nocapture", "--test-threads=1"])
        .env(WHAT, format!("{table} {writer} {seed} {step} {times} {signal}"))
        .stdout(Stdio::piped())
        .spawn();
    Process(child.unwrap(), false)
}

/// Not a test of its own: what the child does.
#[test]
fn child() {
    let Ok(what) = std::env::var(WHAT) else { return };
    // SAFETY: takes no pointer. A child goes with its parent, however that ends.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let [table, rest @ ..] = &what.split(' ').collect::<Vec<_>>()[..] else { panic!() };
    let [writer, seed, step, times, signal] = [0, 1, 2, 3, 4].map(|n| rest[n].parse().unwrap());
    let ledger = Ledger::open(table);
    let table = attach(table, Duration::from_secs(20));
    if writer == RESIZER {
        println!("ready");
        interlock_table::fault::arm(step as u32, times as i64, signal as i32);
        resize_on(&table, &mut Rng::with_seed(seed));
    }
    for n in 0..OWN {
        // What an earlier life of this writer has left is how it is now.
        let (stamp, ended) = ledger.own(writer, n);
        let there = get(&table, own_key(writer, n)).is_some();
        let stamp = if ended || there == (stamp % 2 == 0) { stamp } else { stamp - 1 };
        ledger.set_own(writer, n, stamp, true);
    }
    let mut rng = Rng::with_seed(seed);
    // Some work, so that there is something to move and to recover.
    (0..300).for_each(|_| work(&table, &ledger, writer, &mut rng));
    println!("ready");
    interlock_table::fault::arm(step as u32, times as i64, signal as i32);
    loop {
        work(&table, &ledger, writer, &mut rng);
    }
}

/// Resizes without end.
fn resize_on(table: &Table, rng: &mut Rng) {
    loop {
        let resized = table.resize(rng.u64(800..3000), false).unwrap();
        assert_eq!((resized.expired, resized.dropped), (0, 0));
    }
}

fn work(table: &Table, ledger: &Ledger, writer: u64, rng: &mut Rng) {
    match rng.u8(..10) {
        0..=2 => {
            let n = rng.u64(..OWN);
            let stamp = ledger.own(writer, n).0 + 1;
            let key = own_key(writer, n);
            ledger.set_own(writer, n, stamp, false);
            let done = match stamp % 2 {
                0 => set(table, key, stamp, 0),
                _ => table.delete(&key.to_le_bytes()).map(|_| ()),
            };
            match done {
                Ok(()) => ledger.set_own(writer, n, stamp, true),
                Err(Error::TableFull) => ledger.set_own(writer, n, stamp - 1, true),
                Err(error) => panic!("{error}"),
            }
        }
        3..=4 => {
            let n = rng.u64(..SHARED);
            ledger.begin_count(writer, n);
            assert!(count_up(table, shared_key(n)).unwrap().is_some(), "it is always there");
            ledger.end_count(writer, n);
        }
        5 => {
            let (key, stamp) = (shared_key(rng.u64(..SHARED)), rng.u64(..));
            let row = words(key, stamp, 0);
            let schema = table.schema();
            let values: Vec<_> = row.iter().map(|word| Value::Unsigned(*word)).collect();
            let columns: Vec<_> = schema.columns().iter().zip(&values).take(8).collect();
            assert!(table.patch(&key.to_le_bytes(), &columns).unwrap(), "it is always there");
        }
        // A row of another, so that locks of all kinds are come upon.
        6 => {
            count_up(table, own_key(rng.u64(..WRITERS), rng.u64(..OWN))).unwrap();
        }
        7 => {
            count_up(table, filler_key(rng.u64(..FILLERS))).unwrap();
        }
        8 => match set(table, filler_key(rng.u64(..FILLERS)), rng.u64(..), 0) {
            Ok(()) | Err(Error::TableFull) => {}
            Err(error) => panic!("{error}"),
        },
        _ if rng.bool() => {
            table.delete(&filler_key(rng.u64(..FILLERS)).to_le_bytes()).unwrap();
        }
        _ => {}
    }
}
