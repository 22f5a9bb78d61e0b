//! A connection: what is to be sent, and the replies that have come whole.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use crate::net::{self, Poll};
use crate::resp::Scan;

pub struct Connection {
    stream: TcpStream,
    /// Bytes to be sent; `flush` sends them.
    pub out: Vec<u8>,
    /// Of `out`, what the kernel has taken.
    taken: usize,
    input: Vec<u8>,
    /// Of `input`, what is filled.
    filled: usize,
    /// Of `input`, what has been given away.
    given: usize,
    scan: Scan,
}

impl Connection {
    pub fn new(port: u16) -> io::Result<Self> {
        let (out, taken, filled, given, scan) = Default::default();
        let input = vec![0; ROOM];
        Ok(Connection { stream: net::dial(port)?, out, taken, input, filled, given, scan })
    }

    pub fn watch(&self, poll: &Poll, token: usize) -> io::Result<()> {
        poll.add(self.stream.as_raw_fd(), token)
    }

    /// True if the kernel has taken all.
    pub fn flush(&mut self) -> io::Result<bool> {
        if self.taken < self.out.len() {
            self.taken += net::send(&self.stream, &self.out[self.taken..])?;
        }
        if self.taken < self.out.len() {
            return Ok(false);
        }
        self.out.clear();
        self.taken = 0;
        Ok(true)
    }

    /// Reads what is there.
    pub fn fill(&mut self) -> io::Result<()> {
        if self.given > 0 {
            self.input.copy_within(self.given..self.filled, 0);
            self.filled -= self.given;
            self.given = 0;
        }
        if self.filled == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
        if let Some(count) = net::receive(&self.stream, &mut self.input[self.filled..])? {
            self.filled += count;
        }
        Ok(())
    }

    /// The next reply, once it is whole.
    pub fn reply(&mut self) -> io::Result<Option<&[u8]>> {
        let begun = &self.input[self.given..self.filled];
        let Some(length) = self.scan.end(begun)? else { return Ok(None) };
        let start = self.given;
        self.given += length;
        self.scan = Scan::default();
        Ok(Some(&self.input[start..start + length]))
    }

    /// Sends what is to be sent and waits for one reply; not for what is measured.
    pub fn ask(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.out.extend_from_slice(request);
        let end = net::now() + PATIENCE;
        loop {
            self.flush()?;
            self.fill()?;
            if let Some(reply) = self.reply()? {
                return Ok(reply.to_vec());
            }
            if net::now() > end {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not answer"));
            }
        }
    }
}

/// Bytes taken in at once, to begin with.
const ROOM: usize = 64 << 10;
/// ns.
const PATIENCE: u64 = 10_000_000_000;
