//! A connection that publishes, and what it is answered.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use crate::net::{self, Poll};
use crate::wire::{Requests, Stamp};

pub struct Publisher {
    stream: TcpStream,
    number: u32,
    requests: Requests,
    out: Vec<u8>,
    /// Of `out`, what the kernel has taken.
    taken: usize,
    /// The one right reply, over and over.
    expected: Vec<u8>,
    reply: usize,
    /// Bytes of the reply that is coming in.
    partial: usize,
    pub sent: u64,
    pub answered: u64,
}

impl Publisher {
    /// Number of subscribers that each of its publishes must reach.
    pub fn new(port: u16, number: usize, requests: Requests, receivers: usize) -> io::Result<Self> {
        let reply = format!(":{receivers}\r\n");
        Ok(Publisher {
            stream: net::dial(port)?,
            number: number as u32,
            requests,
            out: Vec::new(),
            taken: 0,
            expected: reply.repeat(REPLIES).into_bytes(),
            reply: reply.len(),
            partial: 0,
            sent: 0,
            answered: 0,
        })
    }

    pub fn watch(&self, poll: &Poll, token: usize) -> io::Result<()> {
        poll.add(self.stream.as_raw_fd(), token)
    }

    pub fn unanswered(&self) -> usize {
        (self.sent - self.answered) as usize
    }

    /// Writes a message down; `flush` sends it. `due` is ns of the monotonic clock, or 0.
    pub fn put(&mut self, due: u64) {
        let stamp = Stamp { publisher: self.number, number: self.sent, due };
        self.requests.push(&mut self.out, stamp);
        self.sent += 1;
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

    /// Reads what is there. A reply that names another number of receivers is an error: from then
    /// on nothing that was counted could be trusted.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let most = self.reply * (REPLIES - 1);
        let most = most.min(buffer.len());
        let Some(count) = net::receive(&self.stream, &mut buffer[..most])? else { return Ok(()) };
        let got = &buffer[..count];
        if got != &self.expected[self.partial..self.partial + count] {
            let start = String::from_utf8_lossy(&got[..count.min(80)]).into_owned();
            let wanted = String::from_utf8_lossy(&self.expected[..self.reply]).into_owned();
            return Err(io::Error::other(format!("{start:?} instead of {wanted:?}")));
        }
        let bytes = self.partial + count;
        self.answered += (bytes / self.reply) as u64;
        self.partial = bytes % self.reply;
        Ok(())
    }
}

/// Replies read at once, and one begun.
const REPLIES: usize = 1_024;
