//! One client puts at a fixed rate, whatever the server does; the others wait for what comes: how
//! long a message takes from when it was due until a consumer has it.

use std::error::Error;

use crate::net;
use crate::options::Options;
use crate::queue::pool::Pool;
use crate::queue::side::{Side, Take};
use crate::took::Took;

pub fn run<S: Side>(options: &Options, mut pool: Pool<S>) -> Result<String, Box<dyn Error>> {
    let gap = 1_000_000_000 / options.rate;
    let first = net::now() + gap;
    let counted = first + options.warm.as_nanos() as u64;
    let end = counted + options.seconds.as_nanos() as u64;
    let mut took = Took::new(counted, (options.seconds.as_nanos() as u64 / gap) as usize);
    let take = Take { count: options.batch, wait: options.wait };
    let timeout = i32::from(!options.spin);
    let mut before = None;
    let mut after = None;
    let mut due = first;
    let mut patience = u64::MAX;
    // The first to wait is served first, so all wait before the first message.
    loop {
        let now = net::now();
        if before.is_none() && now >= counted {
            before = Some(pool.mark()?);
        }
        while due <= now && due < end {
            pool.put(PUTTER, 1, due);
            due += gap;
        }
        if due >= end && after.is_none() {
            after = Some(pool.mark()?);
            patience = now + PATIENCE;
        }
        if after.is_some() && (pool.book.pending == 0 || now > patience) {
            break;
        }
        for client in 0..=options.clients {
            if client != PUTTER && pool.is_idle(client) {
                pool.next(client, take);
            }
            pool.flush(client)?;
        }
        // Once a read, as soon as it has answered.
        let mut now = 0;
        pool.read(timeout, |due| {
            if now == 0 {
                now = net::now();
            }
            took.note(due, now);
        })?;
    }
    let before = before.ok_or("nothing was measured: seconds is 0")?;
    let after = after.ok_or("nothing was measured: seconds is 0")?;
    took.sort();
    let line = pool
        .between(&before, &after, took.count() as u64)
        .with("p50_us", took.part(0.5)?)
        .with("p99_us", took.part(0.99)?)
        .with("p999_us", took.part(0.999)?)
        .with("longest_us", took.part(1.0)?);
    Ok(pool.wrongs(line))
}

const PUTTER: usize = 0;
/// ns in which the last messages must come.
const PATIENCE: u64 = 3_000_000_000;
