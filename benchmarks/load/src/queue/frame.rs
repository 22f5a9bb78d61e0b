//! A message as it appears in a put or in the answer to a lease, complete except for its number,
//! its due time and the digits of its keys: a load that formats and parses word by word would be
//! slower than the server.

use crate::queue::book::{Book, Shape, STAMP};

pub struct Frame {
    bytes: Vec<u8>,
    /// The offset of number and due time.
    stamp: usize,
    /// The offset of the first key's line.
    keys: usize,
}

impl Frame {
    /// `before` precedes the payload; `after` is between it and the keys.
    pub fn new(shape: Shape, before: &[u8], after: &[u8]) -> Self {
        let mut bytes = before.to_vec();
        bytes.extend_from_slice(format!("${}\r\n", shape.payload).as_bytes());
        let stamp = bytes.len();
        bytes.resize(stamp + STAMP, 0);
        bytes.resize(stamp + shape.payload, b'x');
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(after);
        let keys = bytes.len();
        (0..shape.each).for_each(|_| bytes.extend_from_slice(&line(0)));
        Frame { bytes, stamp, keys }
    }

    /// Appends the message with this number.
    #[inline]
    pub fn push(&self, out: &mut Vec<u8>, number: u64, due: u64, book: &Book) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let made = &mut out[start..];
        made[self.stamp..self.stamp + 8].copy_from_slice(&number.to_le_bytes());
        made[self.stamp + 8..self.stamp + STAMP].copy_from_slice(&due.to_le_bytes());
        for (made, lane) in made[self.keys..].chunks_exact_mut(LINE).zip(book.lanes(number)) {
            made.copy_from_slice(&line(*lane));
        }
    }

    /// The number and due time of the message at the begin of `bytes`, and how long it is there, if
    /// each of its bytes is as it was put and its keys are in the order of the put.
    #[inline]
    pub fn read(&self, bytes: &[u8], book: &Book) -> Option<(u64, u64, usize)> {
        let got = bytes.get(..self.bytes.len())?;
        let behind = self.stamp + STAMP;
        if got[..self.stamp] != self.bytes[..self.stamp]
            || got[behind..self.keys] != self.bytes[behind..self.keys]
        {
            return None;
        }
        let long = |at: usize| u64::from_le_bytes(got[at..at + 8].try_into().expect("eight"));
        let (number, due) = (long(self.stamp), long(self.stamp + 8));
        if number >= book.count() {
            return None;
        }
        let mut keys = got[self.keys..].chunks_exact(LINE).zip(book.lanes(number));
        keys.all(|(got, lane)| got == line(*lane)).then_some((number, due, got.len()))
    }
}

/// A key, as its line in a request or a reply.
#[inline]
fn line(lane: u32) -> [u8; LINE] {
    let mut line = *b"$8\r\nk0000000\r\n";
    line[4..4 + KEY].copy_from_slice(&name(lane));
    line
}

/// A key: a letter, and the digits of up to ten million.
#[inline]
pub fn name(lane: u32) -> [u8; KEY] {
    let mut name = *b"k0000000";
    let two = |number: u32| PAIRS[number as usize];
    name[1] += (lane / 1_000_000) as u8;
    name[2..4].copy_from_slice(&two(lane / 10_000 % 100));
    name[4..6].copy_from_slice(&two(lane / 100 % 100));
    name[6..8].copy_from_slice(&two(lane % 100));
    name
}

pub const KEY: usize = 8;
const LINE: usize = KEY + 6;
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_only_if_every_byte_is_right() {
        let shape = Shape { keys: 10_000_000, each: 2, payload: 20 };
        let mut book = Book::new(shape, 1);
        (0..3).for_each(|number| assert_eq!(book.put(0), number));
        let frame = Frame::new(shape, b"$1\r\n1\r\n", b"$1\r\n2\r\n");
        let mut out = Vec::new();
        frame.push(&mut out, 2, 77, &book);
        assert_eq!(frame.read(&out, &book), Some((2, 77, out.len())));
        assert_eq!(frame.read(&out[1..], &book), None);
        for at in (0..frame.stamp + 8).chain(frame.stamp + STAMP..out.len()) {
            let mut other = out.clone();
            other[at] ^= 1;
            assert_eq!(frame.read(&other, &book), None, "byte {at}");
        }
    }

    #[test]
    fn a_key_has_all_its_digits() {
        for lane in [0, 7, 99, 100, 123_456, 9_876_543] {
            assert_eq!(name(lane).as_slice(), format!("k{lane:07}").as_bytes());
        }
    }
}
