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
    part: Part,
    /// By publisher: the number that must come next.
    next: Vec<u64>,
    /// The begin of a delivery whose rest has not come.
    partial: Vec<u8>,
    pub received: u64,
    pub faults: Faults,
}

/// The part of a publisher's numbers that is for one subscriber.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    All,
    /// Each that this divides.
    Each(u64),
    /// All but those.
    AllBut(u64),
}

impl Part {
    /// Counts those below this number.
    fn below(self, number: u64) -> u64 {
        match self {
            Part::All => number,
            Part::Each(step) => number.div_ceil(step),
            Part::AllBut(step) => number - number.div_ceil(step),
        }
    }

    /// The first one from this number on.
    fn from(self, number: u64) -> u64 {
        match self {
            Part::All => number,
            Part::Each(step) => number.next_multiple_of(step),
            Part::AllBut(step) => number + u64::from(number.is_multiple_of(step)),
        }
    }
}

impl Subscriber {
    /// Subscribed, by one of the words SUBSCRIBE and PSUBSCRIBE to each of `names`,
    /// once the server has confirmed it.
    pub fn new(
        stream: TcpStream,
        word: &str,
        names: &[String],
        deliveries: Deliveries,
        publishers: usize,
        part: Part,
    ) -> io::Result<Self> {
        for (index, name) in names.iter().enumerate() {
            net::send_all(&stream, &wire::command(&[word.as_bytes(), name.as_bytes()]))?;
            let answer = wire::confirmation(&word.to_lowercase(), name, index + 1);
            net::expect(&stream, &answer)?;
        }
        let next = vec![part.from(0); publishers];
        let partial = Vec::with_capacity(deliveries.length);
        let (received, faults) = Default::default();
        Ok(Subscriber { stream, deliveries, part, next, partial, received, faults })
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
        if stamp.number < *next {
            self.faults.misordered += 1;
            return;
        }
        if stamp.number > *next {
            // Should one of those between come yet, it counts as misordered too.
            self.faults.lost += self.part.below(stamp.number) - self.part.below(*next);
        }
        *next = self.part.from(stamp.number + 1);
    }

    /// Counts the messages for it, out of this number published.
    pub fn of(&self, published: u64) -> u64 {
        self.part.below(published)
    }

    /// The faults, with what has not come of `sent` messages of each publisher.
    pub fn settle(&self, sent: impl Iterator<Item = u64>) -> Faults {
        let mut faults = self.faults;
        for (next, sent) in self.next.iter().zip(sent) {
            faults.lost += self.part.below(sent).saturating_sub(self.part.below(*next));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_two_subscribers_make_a_whole() {
        let (each, others) = (Part::Each(4), Part::AllBut(4));
        for number in 0..20 {
            assert_eq!(each.below(number) + others.below(number), number);
            let next = (number..).find(|number| number % 4 == 0).unwrap();
            assert_eq!(each.from(number), next);
            let next = (number..).find(|number| number % 4 != 0).unwrap();
            assert_eq!(others.from(number), next);
        }
    }
}
