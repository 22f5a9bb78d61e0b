//! As fast as the server lets it: each client sends one write that puts a batch, settles the one it
//! leased before and leases the next, and waits for the answers.
//!
//! As many messages are put as are settled, so the same number is pending at the start and at the
//! end. Where keys are few, a client gets less than a batch, or nothing; then it puts that much
//! less.

use std::error::Error;
use std::io;

use crate::net;
use crate::options::Options;
use crate::queue::pool::Pool;
use crate::queue::side::{Side, Take};

pub fn run<S: Side>(options: &Options, mut pool: Pool<S>) -> Result<String, Box<dyn Error>> {
    pool.fill(options.backlog)?;
    let mut load = Closed::new(options, pool);
    load.run_until(net::now() + options.warm.as_nanos() as u64)?;
    let before = load.pool.mark()?;
    load.run_until(before.at + options.seconds.as_nanos() as u64)?;
    let after = load.pool.mark()?;
    load.pool.drain(options.batch)?;
    load.pool.clear()?;
    let settled = after.settled - before.settled;
    Ok(load.pool.wrongs(load.pool.between(&before, &after, settled)))
}

pub struct Closed<S> {
    pub pool: Pool<S>,
    clients: usize,
    /// Each client has put its first batch.
    started: bool,
    batch: usize,
    take: Take,
    /// ms.
    sleep: i32,
}

impl<S: Side> Closed<S> {
    pub fn new(options: &Options, pool: Pool<S>) -> Self {
        Closed {
            pool,
            clients: options.clients,
            started: false,
            batch: options.batch,
            take: Take { count: options.batch, wait: options.wait },
            sleep: i32::from(!options.spin),
        }
    }

    /// ns of the monotonic clock.
    pub fn run_until(&mut self, end: u64) -> io::Result<()> {
        while net::now() < end {
            for client in 0..self.clients {
                if self.pool.is_idle(client) {
                    let puts = if self.started { self.pool.side.held(client) } else { self.batch };
                    if puts > 0 {
                        self.pool.put(client, puts, 0);
                    }
                    self.pool.next(client, self.take);
                }
                self.pool.flush(client)?;
            }
            self.started = true;
            self.pool.read(self.sleep, |_| ())?;
        }
        Ok(())
    }
}
