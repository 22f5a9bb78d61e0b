//! The cost of a message when many others are pending: the same load at ten times as many again
//! and again, then all of them are taken.

use std::error::Error;

use crate::net;
use crate::options::Options;
use crate::queue::closed::Closed;
use crate::queue::pool::Pool;
use crate::queue::side::Side;
use crate::report::Line;

pub fn run<S: Side>(options: &Options, pool: Pool<S>) -> Result<String, Box<dyn Error>> {
    let mut load = Closed::new(options, pool);
    let empty = load.pool.resident()?;
    let mut line = Line::default().with("empty_bytes", empty as f64);
    let mut level = LOWEST.min(options.backlog);
    let mut filled = 0;
    loop {
        let from = net::now();
        let more = level - filled;
        load.pool.fill(more)?;
        filled = level;
        let fill = (net::now() - from) as f64 / more.max(1) as f64;
        let resident = load.pool.resident()?;
        load.run_until(net::now() + options.warm.as_nanos() as u64)?;
        let before = load.pool.mark()?;
        load.run_until(before.at + options.seconds.as_nanos() as u64)?;
        let after = load.pool.mark()?;
        let (nanoseconds, cpu) = before.each(&after).ok_or("nothing was settled")?;
        line = line
            .with(&format!("put_ns_{level}"), fill)
            .with(&format!("cycle_ns_{level}"), nanoseconds)
            .with(&format!("cycle_cpu_ns_{level}"), cpu)
            .with(&format!("resident_bytes_{level}"), resident as f64);
        if level == options.backlog {
            break;
        }
        level = (level * 10).min(options.backlog);
    }
    let before = load.pool.mark()?;
    load.pool.drain(options.batch.max(DRAINED))?;
    let after = load.pool.mark()?;
    let (nanoseconds, _) = before.each(&after).unwrap_or_default();
    line = line
        .with("drain_ns", nanoseconds)
        .with("drained_bytes", load.pool.resident()? as f64)
        .with("delivered", load.pool.book.settled as f64);
    load.pool.clear()?;
    Ok(load.pool.wrongs(line))
}

const LOWEST: u64 = 1_000;
/// Messages of a lease at the end, which is not there to be measured.
const DRAINED: usize = 256;
