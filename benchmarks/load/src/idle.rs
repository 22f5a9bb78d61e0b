//! Opens connections and lets them be: what each costs the server in memory.

use std::error::Error;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use crate::net;
use crate::options::Options;
use crate::process::resident;
use crate::report::Line;
use crate::wire::{command, confirmation};

pub fn run(options: &Options) -> Result<String, Box<dyn Error>> {
    let count = options.connections;
    // Memory that the server allocates for its first connection is not part of a connection's
    // share.
    let first = net::dial(options.port)?;
    ping(&first)?;
    sleep(SETTLED);
    let before = resident(options.pid)?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(net::dial(options.port)?);
        if all.len() % BURST == 0 {
            // More than that many not yet accepted, and the kernel lets the next wait a second.
            ping(&all[all.len() - 1])?;
        }
    }
    // Each has been served once, as one that idles in a pool has.
    all.iter().try_for_each(ping)?;
    sleep(SETTLED);
    let silent = resident(options.pid)?;
    for (index, stream) in all.iter().enumerate() {
        let name = format!("idle:{index:05}");
        net::send_all(stream, &command(&[b"SUBSCRIBE", name.as_bytes()]))?;
        net::expect(stream, &confirmation("subscribe", &name, 1))?;
    }
    sleep(SETTLED);
    let subscribed = resident(options.pid)?;
    let each = |now: u64| (now as f64 - before as f64) / count as f64;
    let line = Line::default()
        .with("connections", count as f64)
        .with("before_bytes", before as f64)
        .with("silent_bytes_each", each(silent))
        .with("subscribed_bytes_each", each(subscribed));
    Ok(line.finish())
}

fn ping(stream: &TcpStream) -> std::io::Result<()> {
    net::send_all(stream, &command(&[b"PING"]))?;
    net::expect(stream, b"+PONG\r\n")
}

/// Connections between two that are waited for; a backlog is 128 at least.
const BURST: usize = 64;
const SETTLED: Duration = Duration::from_millis(200);
