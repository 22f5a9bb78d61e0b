//! Nanoseconds per operation: `cargo run --release -p interlock-table --example figures`.
//!
//! 100,000 rows of 76 bytes at a load of 91 %, keys of up to 32 bytes in random order, one thread; then two
//! processes at once. The best of five rounds, for the machine does other things as well.

use std::collections::HashMap;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use interlock_table::fault;
use interlock_table::layout::schema::Column;
use interlock_table::table::{Options, Ttl, Where};
use interlock_table::{remove, By, Error, Location, Overflow, Schema, Table, Value};

/// Rows, if `INTERLOCK_ROWS` does not say otherwise.
const ROWS: usize = 100_000;
const SCHEMA: &str =
    "app_id: U32, background: bool, unread: U32, seen: U64, score: F64, token: str[46]";
const ROUNDS: usize = 5;
const CHILD: &str = "INTERLOCK_TABLE_FIGURES";

fn main() -> Result<(), Error> {
    let other = std::env::var(CHILD).ok();
    let name = other.clone().unwrap_or_else(|| format!("figures-{}", std::process::id()));
    let location = Location::Name(name.clone());
    let rows = std::env::var("INTERLOCK_ROWS").ok().and_then(|rows| rows.parse().ok());
    let rows: usize = rows.unwrap_or(ROWS);
    let schema = Schema::parse(SCHEMA)?;
    let options = Options { capacity: rows as u64, ..Options::default() };
    let table = Table::open(&location, &schema, &options)?;
    let mut keys: Vec<String> = (0..rows).map(|n| format!("user:{}", 888_000_000 + n)).collect();
    fastrand::seed(7);
    fastrand::shuffle(&mut keys);
    if let Some(what) = other.and_then(|_| std::env::args().nth(1)) {
        return run_beside(&table, &keys, &what);
    }
    let row = vec![1; schema.words()];
    for key in &keys {
        table.write(key.as_bytes(), &row, Ttl::Usual, Where::Anywhere)?;
    }
    let statistics = table.statistics();
    println!(
        "{} rows of {} bytes in {} slots ({:.1} % full), {:.1} MB",
        statistics.rows(),
        schema.bytes(),
        statistics.slots(),
        100.0 * statistics.rows() as f64 / statistics.slots() as f64,
        statistics.bytes as f64 / 1e6
    );
    alone(&table, &keys, &row)?;
    // In another order than that in which they are read, or the rows would lie one behind the other.
    let mut sorted: Vec<&String> = keys.iter().collect();
    sorted.sort();
    let rows_of = sorted.iter().map(|key| (key.as_bytes(), row.clone().into()));
    let map: HashMap<&[u8], Box<[u64]>> = rows_of.collect();
    measure("(a HashMap of boxed rows: get)", &keys, |key| {
        assert!(black_box(map[key][2]) == 1);
        Ok(())
    })?;
    let absent: Vec<String> = (0..rows).map(|n| format!("nobody:{n}")).collect();
    measure("miss", &absent, |key| table.contains(key).map(|there| assert!(!there)))?;
    recovery(&table, keys[0].as_bytes(), &row);
    for (own, beside) in
        [("get column", "set column"), ("incr", "incr"), ("get column", "get column")]
    {
        two(&table, &keys, &name, own, beside)?;
    }
    remove(&location)?;
    Ok(())
}

fn alone(table: &Table, keys: &[String], row: &[u64]) -> Result<(), Error> {
    for what in ["get column", "set column", "incr", "get row", "set row"] {
        let (call, column) = (operation(what), &table.schema().columns()[2]);
        measure(what, keys, |key| call(table, column, key, row))?;
    }
    let mut words = vec![0; row.len()];
    let many: Vec<Vec<&[u8]>> =
        keys.chunks(100).map(|keys| keys.iter().map(|key| key.as_bytes()).collect()).collect();
    let best = (0..ROUNDS).map(|_| {
        let begun = Instant::now();
        for keys in &many {
            let all = 0..words.len();
            table
                .read_many(keys, all, &mut words, |row| assert!(black_box(row).is_some()))
                .unwrap();
        }
        begun.elapsed().as_nanos() as f64 / keys.len() as f64
    });
    println!("{:<40} {:6.1} ns a key", "get rows, batches of 100", best.fold(f64::MAX, f64::min));
    Ok(())
}

type Operation = fn(&Table, &Column, &[u8], &[u64]) -> Result<(), Error>;

/// An operation by its name.
fn operation(what: &str) -> Operation {
    match what {
        "get column" => |table, column, key, _| {
            assert!(black_box(table.get_word(key, column)?).is_some());
            Ok(())
        },
        "set column" => |table, column, key, _| {
            assert!(table.set_column(key, column, &Value::Unsigned(5))?);
            Ok(())
        },
        "incr" => |table, column, key, _| {
            let by = By::Integer(1);
            assert!(black_box(table.incr(key, column, by, Overflow::Wrap)?).is_some());
            Ok(())
        },
        "get row" => |table, _, key, row| {
            let mut words = [0; 16];
            assert!(table.get_into(key, &mut words[..row.len()])?);
            black_box(&words);
            Ok(())
        },
        _ => |table, _, key, row| {
            black_box(table.write(key, row, Ttl::Usual, Where::Anywhere)?);
            Ok(())
        },
    }
}

fn measure(
    what: &str,
    keys: &[String],
    mut call: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<f64, Error> {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for key in keys {
            call(key.as_bytes())?;
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / keys.len() as f64);
    }
    println!("{what:<40} {best:6.1} ns");
    Ok(best)
}

/// The first write to a row whose writer was killed in the midst of rewriting it.
fn recovery(table: &Table, key: &[u8], row: &[u64]) {
    let mut times: Vec<u128> = (0..100)
        .map(|_| {
            // SAFETY: there is one thread, and the child dies at the step.
            let child = unsafe { libc::fork() };
            if child == 0 {
                fault::arm(fault::Step::ImageHalfCopied as u32, 1, libc::SIGKILL);
                let _ = table.write(key, row, Ttl::Usual, Where::Anywhere);
            }
            // SAFETY: a null status is allowed.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            let begun = Instant::now();
            table.write(key, row, Ttl::Usual, Where::Anywhere).unwrap();
            begun.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    let (middle, worst) = (times[50] as f64 / 1e3, times[99] as f64 / 1e3);
    println!("{:<40} {middle:6.1} µs, at worst {worst:.1}", "write to a dead writer's row");
}

/// Two processes on the same rows, each in its own order.
fn two(table: &Table, keys: &[String], name: &str, own: &str, beside: &str) -> Result<(), Error> {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program).arg(beside).env(CHILD, name).spawn().expect("a child");
    // It takes a moment until it has begun: rounds until then are thrown away.
    let rounds = (0..ROUNDS + 2).map(|_| measure_quietly(table, keys, own));
    let rounds = rounds.collect::<Result<Vec<_>, _>>();
    let still = child.try_wait().expect("a child").is_none();
    child.kill().expect("a child");
    child.wait().expect("a child");
    let best = rounds?.into_iter().skip(2).fold(f64::MAX, f64::min);
    let label = format!("{own}, another process: {beside}");
    println!("{label:<40} {best:6.1} ns{}", if still { "" } else { " (it had ended)" });
    Ok(())
}

fn measure_quietly(table: &Table, keys: &[String], what: &str) -> Result<f64, Error> {
    let row = vec![1; table.schema().words()];
    let (call, column) = (operation(what), &table.schema().columns()[2]);
    let begun = Instant::now();
    for key in keys {
        call(table, column, key.as_bytes(), &row)?;
    }
    Ok(begun.elapsed().as_nanos() as f64 / keys.len() as f64)
}

/// Work of the other process, until it is killed.
fn run_beside(table: &Table, keys: &[String], what: &str) -> Result<(), Error> {
    let mut keys = keys.to_vec();
    fastrand::seed(8);
    fastrand::shuffle(&mut keys);
    loop {
        measure_quietly(table, &keys, what)?;
    }
}
