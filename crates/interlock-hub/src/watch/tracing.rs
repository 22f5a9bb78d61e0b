//! The commands of others as operators see them: the slow log, and the lines of MONITOR.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::access::registry::Card;
use crate::catalog::Command;
use crate::resp::parse::Arguments;
use crate::system::time::Time;

/// The newest slow commands.
#[derive(Default)]
pub struct SlowEntries {
    entries: Mutex<(u64, VecDeque<Slow>)>,
}

#[derive(Clone, Debug)]
pub struct Slow {
    pub number: u64,
    /// Seconds since 1970.
    pub at: u64,
    /// µs.
    pub took: Time,
    pub arguments: Vec<Vec<u8>>,
    pub address: String,
    pub name: Box<[u8]>,
}

impl SlowEntries {
    pub fn add(
        &self,
        card: &Card,
        command: &Command,
        arguments: Arguments<'_>,
        took: Time,
        length: usize,
    ) {
        let arguments = shortened(command, arguments);
        let mut entries = self.entries.lock();
        let (next, entries) = &mut *entries;
        let name = card.name.lock().clone();
        let at = since_1970().as_secs();
        let slow = Slow { number: *next, at, took, arguments, address: card.address.clone(), name };
        *next += 1;
        entries.push_front(slow);
        entries.truncate(length);
    }

    /// The newest first.
    pub fn newest(&self, count: usize) -> Vec<Slow> {
        self.entries.lock().1.iter().take(count).cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.entries.lock().1.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn clear(&self) {
        self.entries.lock().1.clear();
    }
}

/// As Redis keeps them: 32 arguments of 128 bytes. A password is nobody's business.
fn shortened(command: &Command, arguments: Arguments<'_>) -> Vec<Vec<u8>> {
    let hidden = hides(command);
    let count = arguments.len();
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for (index, argument) in arguments.from(0).enumerate() {
        if index == MOST_ARGUMENTS - 1 && count > MOST_ARGUMENTS {
            let more = format!("... ({} more arguments)", count - index);
            kept.push(more.into_bytes());
            break;
        }
        kept.push(match argument.len() {
            _ if hidden && index > 0 => HIDDEN.to_vec(),
            length if length > MOST_BYTES => {
                let more = format!("... ({} more bytes)", length - MOST_BYTES);
                [&argument[..MOST_BYTES], more.as_bytes()].concat()
            }
            _ => argument.to_vec(),
        });
    }
    kept
}

/// A line of MONITOR, as Redis words it.
pub fn monitored(card: &Card, command: &Command, arguments: Arguments<'_>) -> Vec<u8> {
    let now = since_1970();
    let head = format!("+{}.{:06} [0 {}]", now.as_secs(), now.subsec_micros(), card.address);
    let mut line = head.into_bytes();
    let hidden = hides(command);
    for (index, argument) in arguments.from(0).enumerate() {
        line.extend_from_slice(b" \"");
        if hidden && index > 0 {
            line.extend_from_slice(HIDDEN);
        } else {
            argument.iter().for_each(|&byte| escape(byte, &mut line));
        }
        line.push(b'"');
    }
    line.extend_from_slice(b"\r\n");
    line
}

fn escape(byte: u8, line: &mut Vec<u8>) {
    match byte {
        b'\\' | b'"' => line.extend_from_slice(&[b'\\', byte]),
        b'\n' => line.extend_from_slice(b"\\n"),
        b'\r' => line.extend_from_slice(b"\\r"),
        b'\t' => line.extend_from_slice(b"\\t"),
        0x07 => line.extend_from_slice(b"\\a"),
        0x08 => line.extend_from_slice(b"\\b"),
        b' '..=b'~' => line.push(byte),
        other => line.extend_from_slice(format!("\\x{other:02x}").as_bytes()),
    }
}

/// Its arguments may hold a password, or what is like one.
fn hides(command: &Command) -> bool {
    matches!(command.name, "auth" | "hello" | "config|set")
}

fn since_1970() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

const HIDDEN: &[u8] = b"(redacted)";
const MOST_ARGUMENTS: usize = 32;
const MOST_BYTES: usize = 128;
