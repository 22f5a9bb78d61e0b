//! The connections of a load, the queue they use, and the outcome of every message.

use std::io;

use crate::connection::Connection;
use crate::net::{self, Poll};
use crate::options::Options;
use crate::process;
use crate::queue::book::{Book, Shape};
use crate::queue::side::{Side, Take};
use crate::report::Line;

pub struct Pool<S> {
    pub side: S,
    pub book: Book,
    poll: Poll,
    clients: Vec<Client>,
    pid: u32,
}

struct Client {
    connection: Connection,
    /// Replies that have not come.
    awaited: usize,
}

/// The counts and the processor time at one moment.
pub struct Mark {
    pub at: u64,
    pub settled: u64,
    server: u64,
    client: u64,
}

impl Mark {
    /// ns of a message until a later mark, and those of the server's processor; `None` if there was
    /// no message.
    pub fn each(&self, later: &Mark) -> Option<(f64, f64)> {
        let count = later.settled - self.settled;
        let each = |from: u64, to: u64| (to - from) as f64 / count as f64;
        (count > 0).then(|| (each(self.at, later.at), each(self.server, later.server)))
    }
}

impl<S: Side> Pool<S> {
    pub fn new(options: &Options, shape: Shape, clients: usize, mut side: S) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut all = Vec::with_capacity(clients);
        for number in 0..clients {
            let connection = Connection::new(options.port)?;
            connection.watch(&poll, number)?;
            all.push(Client { connection, awaited: 0 });
        }
        side.prepare(&mut all[0].connection)?;
        let book = Book::new(shape, clients);
        Ok(Pool { side, book, poll, clients: all, pid: options.pid })
    }

    pub fn is_idle(&self, client: usize) -> bool {
        self.clients[client].awaited == 0
    }

    pub fn is_quiet(&self) -> bool {
        self.clients.iter().all(|client| client.awaited == 0)
    }

    /// Records this number of puts; `flush` sends them.
    pub fn put(&mut self, client: usize, count: usize, due: u64) {
        let one = &mut self.clients[client];
        let out = &mut one.connection.out;
        one.awaited += self.side.put(client, out, count, due, &mut self.book);
    }

    /// Writes down settlements of all the client holds, and what it asks for; `flush` sends them.
    pub fn next(&mut self, client: usize, take: Take) {
        let one = &mut self.clients[client];
        let out = &mut one.connection.out;
        one.awaited += self.side.next(client, out, take, &mut self.book);
    }

    pub fn flush(&mut self, client: usize) -> io::Result<()> {
        self.clients[client].connection.flush().map(drop)
    }

    /// Waits up to this number of ms, and reads what has arrived. `came` is given when each message
    /// that came was due.
    pub fn read(&mut self, timeout: i32, mut came: impl FnMut(u64)) -> io::Result<()> {
        for index in 0..self.poll.wait(timeout)? {
            let number = self.poll.token(index);
            let client = &mut self.clients[number];
            client.connection.fill()?;
            while let Some(reply) = client.connection.reply()? {
                client.awaited = client
                    .awaited
                    .checked_sub(1)
                    .ok_or_else(|| io::Error::other("the server said more than it was asked"))?;
                self.side.reply(number, reply, &mut self.book, &mut came)?;
            }
        }
        Ok(())
    }

    /// Puts messages that stay until the end.
    pub fn fill(&mut self, mut count: u64) -> io::Result<()> {
        let most = (MOST_KEYS / self.book.shape.each).min(MOST_MESSAGES) as u64;
        while count > 0 || !self.is_quiet() {
            for client in 0..self.clients.len() {
                if count > 0 && self.is_idle(client) {
                    let part = count.min(most);
                    self.put(client, part as usize, 0);
                    count -= part;
                }
                self.flush(client)?;
            }
            self.read(10, |_| ())?;
        }
        Ok(())
    }

    /// Stops putting; leases and settles what is left, up to `batch` at a time, until the queue is
    /// empty or nothing arrives for a while.
    pub fn drain(&mut self, batch: usize) -> io::Result<()> {
        let mut end = net::now() + PATIENCE;
        let mut settled = self.book.settled;
        let take = Take { count: batch, wait: 0 };
        while net::now() < end && (self.book.pending > 0 || !self.is_quiet()) {
            for client in 0..self.clients.len() {
                let has_work = self.side.held(client) > 0 || self.book.pending > self.book.held;
                if self.is_idle(client) && has_work {
                    self.next(client, take);
                }
                self.flush(client)?;
            }
            self.read(1, |_| ())?;
            if self.book.settled > settled {
                settled = self.book.settled;
                end = net::now() + PATIENCE;
            }
        }
        Ok(())
    }

    /// Afterwards: nothing of this run stays with the server.
    pub fn clear(&mut self) -> io::Result<()> {
        if self.is_quiet() {
            self.side.clear(&mut self.clients[0].connection)?;
        }
        Ok(())
    }

    pub fn mark(&self) -> io::Result<Mark> {
        Ok(Mark {
            at: net::now(),
            settled: self.book.settled,
            server: process::cpu(self.pid)?,
            client: net::used(),
        })
    }

    /// Resident bytes of the server.
    pub fn resident(&self) -> io::Result<u64> {
        process::resident(self.pid)
    }

    /// The line of what was done between two marks.
    pub fn between(&self, before: &Mark, after: &Mark, delivered: u64) -> Line {
        Line::default()
            .with("seconds", (after.at - before.at) as f64 / 1e9)
            .with("delivered", delivered as f64)
            .with("server_cpu_seconds", (after.server - before.server) as f64 / 1e9)
            .with("client_cpu_seconds", (after.client - before.client) as f64 / 1e9)
    }

    /// At the end: what was wrong.
    pub fn wrongs(&self, line: Line) -> String {
        let wrongs = self.book.wrongs;
        line.with("lost", self.book.lost() as f64)
            .with("misordered", wrongs.misordered as f64)
            .with("repeated", wrongs.repeated as f64)
            .with("refused", wrongs.refused as f64)
            .finish()
    }
}

/// ns without a settlement until what has not come is lost.
const PATIENCE: u64 = 3_000_000_000;
/// Of one put: half of what a server takes.
const MOST_MESSAGES: usize = 512;
const MOST_KEYS: usize = 2_048;
