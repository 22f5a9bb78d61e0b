//! Takes one row of the benchmark table in Rust: `interlock-bench ROW REPEAT`.
//!
//! Prints a line of JSON for each sample, as `benchmarks/child.py` does for the rows in Python.
//!
//! | module | rows |
//! |---|---|
//! | `cycle` | put, get and ack, with few and with many messages pending, and the same through the peer |
//! | `memory` | bytes of a message and of a key, and what stays after a peak |
//! | `explain` | how long an explanation takes behind a million messages |

mod cycle;
mod explain;
mod memory;
mod sample;

use std::process::ExitCode;

use sample::{absolute, alternating};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (row, repeat) = match arguments.as_slice() {
        [row, repeat] => (row.as_str(), repeat.parse().unwrap_or(5)),
        // One sample in a process of its own; see memory.rs.
        [row] => {
            memory::once(row);
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("usage: interlock-bench ROW REPEAT");
            return ExitCode::FAILURE;
        }
    };
    match row {
        "core/pending-one-key" => pending(1, repeat),
        "core/pending-1000-lanes" => pending(1_000, repeat),
        "core/1-key" => beside_channel(1, repeat),
        "core/2-keys" => beside_channel(2, repeat),
        "core/4-keys" => beside_channel(4, repeat),
        "core/memory-message" | "core/memory-key" => absolute(repeat, || memory::apart(row).0),
        "core/memory-drained" => memory::drained(repeat),
        "core/explain" => absolute(repeat, explain::slowest),
        _ => {
            eprintln!("no row {row}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn pending(lanes: u64, repeat: usize) {
    alternating(repeat, || cycle::behind(1_000_000, lanes), || cycle::behind(1_000, lanes));
}

fn beside_channel(keys: usize, repeat: usize) {
    alternating(repeat, || cycle::ours(keys), || cycle::channel(keys));
}
