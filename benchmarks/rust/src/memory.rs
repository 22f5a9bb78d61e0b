//! Resident memory: what the process pays, the allocator's share included.
//!
//! Every sample has a process of its own, for pages that an earlier sample left behind would be
//! used again and not be seen.

use std::fmt::Write;
use std::num::NonZeroU64;
use std::process::Command;

use interlock_core::key::KeyRef;
use interlock_core::queue::types::Options;
use interlock_core::queue::Queue;

use crate::cycle::{get_and_ack, put};
use crate::sample::Sample;

const MILLION: u64 = 1_000_000;
const FEW: u64 = 1_000;

/// Takes one sample of this row in another process: the figure, and for `drained` what stood before.
pub fn apart(row: &str) -> (Sample, f64) {
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program).arg(row).output().expect("this program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("digits");
    let mut fields = text.split_whitespace().map(|field| field.parse::<f64>().expect("a number"));
    let mut next = || fields.next().expect("three numbers");
    let (value, before, misordered) = (next(), next(), next());
    let sample = Sample { value, messages: MILLION, lost: 0, misordered: misordered as u64 };
    (sample, before)
}

/// Pairs of what the process holds after a peak of a million is drained, and before the peak.
pub fn drained(repeat: usize) {
    for pair in 0..repeat {
        let (after, before) = apart("core/memory-drained");
        after.print(pair, "ours");
        Sample { value: before, messages: FEW, misordered: 0, ..after }.print(pair, "peer");
    }
}

/// One sample, printed as `apart` reads it.
pub fn once(row: &str) {
    let queue = Queue::new(Options::default());
    // Memory that a queue holds after its first use is not part of a message's share.
    let mut wrong = fill_and_drain(&queue, FEW, FEW);
    let before = resident();
    let value = match row {
        "core/memory-message" => {
            fill(&queue, FEW, FEW);
            let lanes = resident();
            fill(&queue, MILLION, FEW);
            (resident() - lanes) / MILLION as f64
        }
        "core/memory-key" => {
            fill(&queue, MILLION, MILLION);
            let both = resident() - before;
            // The same messages once more, on the keys that live now.
            fill(&queue, MILLION, MILLION);
            (both - (resident() - before - both)) / MILLION as f64
        }
        _ => {
            wrong += fill_and_drain(&queue, MILLION, MILLION);
            wait_for_other_threads();
            resident() / 1e6
        }
    };
    println!("{value} {} {wrong}", before / 1e6);
}

/// A handle of 8 bytes that is never zero, as a reference to a Python object is.
type Payload = NonZeroU64;

fn payload(number: u64) -> Payload {
    NonZeroU64::new(number + 1).expect("more than zero")
}

/// Puts messages on this number of keys in turn.
fn fill(queue: &Queue<Payload>, messages: u64, lanes: u64) {
    let mut name = String::new();
    for number in 0..messages {
        name.clear();
        write!(name, "account:{}", number % lanes).expect("a string has room");
        put(queue, &[KeyRef::new(name.as_bytes())], payload(number));
    }
}

/// Fills the queue and drains it. Gives the number of messages that came back out of their order.
fn fill_and_drain(queue: &Queue<Payload>, messages: u64, lanes: u64) -> u64 {
    fill(queue, messages, lanes);
    let wrong = (0..messages).filter(|&number| get_and_ack(queue) != Some(payload(number))).count();
    assert!(get_and_ack(queue).is_none(), "drained");
    wrong as u64
}

/// Returns when the thread that gives memory back has ended: the only other one that there is.
fn wait_for_other_threads() {
    let threads = || std::fs::read_dir("/proc/self/task").expect("Linux has it").count();
    while threads() > 1 {
        std::thread::yield_now();
    }
}

/// Bytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status")
        .expect("memory is read from /proc, which only Linux has");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let kilobytes = line.split_whitespace().nth(1).expect("a number");
    kilobytes.parse::<f64>().expect("a number") * 1024.0
}
