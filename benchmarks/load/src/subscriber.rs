//! A connection that is subscribed, and the check of every delivery.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use crate::net::{self, Poll};
use crate::report::Faults;
use crate::wire::{self, Deliveries, Stamp};

pub struct Subscriber {
    stream: TcpStream,
    deliveries: Deliveries,
    /// How many numbers lie between two messages of one publisher that are for this subscriber.
    step: u64,
    /// By publisher: the number that must come next.
    next: Vec<u64>,
    /// The begin of a delivery whose rest has not come.
    partial: Vec<u8>,
    pub received: u64,
    pub faults: Faults,
}

impl Subscriber {
    /// Subscribed to one topic, by one of the words SUBSCRIBE and PSUBSCRIBE to each of `names`,
    /// once the server has confirmed it.
    pub fn new(
        stream: TcpStream,
        word: &str,
        names: &[String],
        deliveries: Deliveries,
        publishers: usize,
    ) -> io::Result<Self> {
        for (index, name) in names.iter().enumerate() {
            net::send_all(&stream, &wire::command(&[word.as_bytes(), name.as_bytes()]))?;
            let answer = wire::confirmation(&word.to_lowercase(), name, index + 1);
            net::expect(&stream, &answer)?;
        }
        let (next, partial) = (vec![0; publishers], Vec::with_capacity(deliveries.length));
        let faults = Faults::default();
        Ok(Subscriber { stream, deliveries, step: 1, next, partial, received: 0, faults })
    }

    /// It receives `first` and every `step`th message behind it.
    pub fn each(mut self, first: u64, step: u64) -> Self {
        self.next.fill(first);
        self.step = step;
        self
    }

    pub fn watch(&self, poll: &Poll, token: usize) -> io::Result<()> {
        poll.add(self.stream.as_raw_fd(), token)
    }

    /// Reads what is there, and shows the stamp of each delivery.
    pub fn read(&mut self, buffer: &mut [u8], mut seen: impl FnMut(Stamp)) -> io::Result<()> {
        let begun = self.partial.len();
        buffer[..begun].copy_from_slice(&self.partial);
        let Some(count) = net::receive(&self.stream, &mut buffer[begun..])? else { return Ok(()) };
        let mut rest = &buffer[..begun + count];
        let length = self.deliveries.length;
        while rest.len() >= length {
            let (frame, behind) = rest.split_at(length);
            rest = behind;
            self.received += 1;
            match self.deliveries.check(frame) {
                Some(stamp) => {
                    self.note(stamp);
                    seen(stamp);
                }
                None => {
                    let text = String::from_utf8_lossy(frame).into_owned();
                    return Err(io::Error::other(format!("a delivery is {text:?}")));
                }
            }
        }
        self.partial.clear();
        self.partial.extend_from_slice(rest);
        Ok(())
    }

    #[inline]
    fn note(&mut self, stamp: Stamp) {
        let Some(next) = self.next.get_mut(stamp.publisher as usize) else {
            self.faults.misordered += 1;
            return;
        };
        if stamp.number == *next {
            *next += self.step;
        } else if stamp.number > *next {
            // Should one of those between come yet, it counts as misordered too.
            self.faults.lost += (stamp.number - *next) / self.step;
            *next = stamp.number + self.step;
        } else {
            self.faults.misordered += 1;
        }
    }

    /// The faults, with what has not come of `sent` messages of each publisher.
    pub fn settle(&self, sent: impl Iterator<Item = u64>) -> Faults {
        let mut faults = self.faults;
        for (next, sent) in self.next.iter().zip(sent) {
            faults.lost += sent.saturating_sub(*next).div_ceil(self.step);
        }
        faults
    }
}
