//! The messages of a run: what each is, where it is, and whether what comes out is right.
//!
//! A message is a number, rising over all connections. Its keys follow from it. Correctness is
//! checked by ids where the server has keys: each key's messages come in the order of their ids,
//! the next one after the settlement of the one before was sent, and ids rise with the puts of each
//! connection. A peer without keys has to keep the order of each putter as each consumer sees it.

use std::io;

/// Every message of a run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Different keys in all.
    pub keys: u64,
    /// Keys of a message.
    pub each: usize,
    /// Bytes, at least `STAMP`.
    pub payload: usize,
}

/// Counts of what was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wrongs {
    /// Delivered twice, or reported settled when it was not.
    pub repeated: u64,
    /// Came after a later one of its key, or beside one.
    pub misordered: u64,
    /// Settlements that were refused.
    pub refused: u64,
}

pub struct Book {
    pub shape: Shape,
    /// By number: its id, and in the upper bits where it is.
    messages: Vec<u64>,
    /// By number: its keys, `shape.each` of them.
    keys: Vec<u32>,
    /// By key: the last id that came, and in the upper bits whether it is being handled.
    lanes: Vec<u64>,
    /// By consumer and putter: one more than the last number that came.
    seen: Vec<u64>,
    putters: usize,
    /// By number, only without keys: who put it.
    put_by: Vec<u16>,
    filling: Vec<u8>,
    /// Put, and not settled.
    pub pending: u64,
    pub settled: u64,
    /// Came, and not settled.
    pub held: u64,
    pub wrongs: Wrongs,
}

impl Book {
    /// `clients` both put and consume.
    pub fn new(shape: Shape, clients: usize) -> Self {
        Book {
            shape,
            messages: Vec::new(),
            keys: Vec::new(),
            lanes: vec![0; shape.keys as usize],
            seen: vec![0; clients * clients],
            putters: clients,
            put_by: Vec::new(),
            filling: vec![b'x'; shape.payload - STAMP],
            pending: 0,
            settled: 0,
            held: 0,
            wrongs: Wrongs::default(),
        }
    }

    /// A new message: its number.
    pub fn put(&mut self, putter: usize) -> u64 {
        let number = self.messages.len() as u64;
        self.messages.push(0);
        self.put_by.push(putter as u16);
        let first = part(mixed(number), self.shape.keys);
        // A step that is the same for all: none meets another one, nor the first.
        let step = 1 + part(mixed(!number), (self.shape.keys / self.shape.each as u64).max(1));
        let mut key = first;
        for _ in 0..self.shape.each {
            self.keys.push(key as u32);
            key += step;
            if key >= self.shape.keys {
                key -= self.shape.keys;
            }
        }
        self.pending += 1;
        number
    }

    /// Its payload, at the end of `out`. `due` is ns of the monotonic clock, or 0.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>, number: u64, due: u64) {
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&due.to_le_bytes());
        out.extend_from_slice(&self.filling);
    }

    /// The number in a payload, and when it was due. Another payload than was put is an error: from
    /// then on nothing that was counted could be trusted.
    #[inline]
    pub fn read(&self, payload: &[u8]) -> io::Result<(u64, u64)> {
        let long = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().expect("eight"));
        if payload.len() != self.shape.payload || payload[STAMP..] != self.filling {
            return Err(strange("a payload", payload));
        }
        let (number, due) = (long(0), long(8));
        if number >= self.messages.len() as u64 {
            return Err(strange("a message that was never put", payload));
        }
        Ok((number, due))
    }

    /// Its keys, which are different ones.
    #[inline]
    pub fn lanes(&self, number: u64) -> &[u32] {
        let start = number as usize * self.shape.each;
        &self.keys[start..start + self.shape.each]
    }

    /// Messages so far.
    pub fn count(&self) -> u64 {
        self.messages.len() as u64
    }

    /// The id that the server gave a message, from the answer to its put or from its lease,
    /// whichever comes first.
    #[inline]
    pub fn name(&mut self, number: u64, id: u64) -> io::Result<()> {
        let message = &mut self.messages[number as usize];
        match *message & ID {
            0 => *message |= id,
            known if known == id => {}
            known => {
                let text = format!("message {number} has the ids {known} and {id}");
                return Err(io::Error::other(text));
            }
        }
        Ok(())
    }

    /// A message came that has keys.
    #[inline]
    pub fn came(&mut self, number: u64, id: u64) -> io::Result<()> {
        self.name(number, id)?;
        self.take(number);
        let start = number as usize * self.shape.each;
        for lane in &self.keys[start..start + self.shape.each] {
            let last = &mut self.lanes[*lane as usize];
            if *last & HELD != 0 || *last & ID >= id {
                self.wrongs.misordered += 1;
            }
            *last = HELD | id;
        }
        Ok(())
    }

    /// A message came from a peer without keys.
    #[inline]
    pub fn came_keyless(&mut self, number: u64, consumer: usize) {
        self.take(number);
        let putter = self.put_by[number as usize] as usize;
        let next = &mut self.seen[consumer * self.putters + putter];
        if number < *next {
            self.wrongs.misordered += 1;
        } else {
            *next = number + 1;
        }
    }

    /// Its settlement is about to be sent: from now on the next of its keys may come.
    #[inline]
    pub fn settle(&mut self, number: u64) {
        let start = number as usize * self.shape.each;
        for lane in &self.keys[start..start + self.shape.each] {
            self.lanes[*lane as usize] &= !HELD;
        }
        self.messages[number as usize] |= SETTLED;
        self.held -= 1;
    }

    /// The number of settlements accepted, and the number sent.
    #[inline]
    pub fn confirm(&mut self, taken: u64, sent: u64) {
        self.settled += taken;
        self.pending -= taken;
        self.wrongs.refused += sent - taken;
    }

    #[inline]
    fn take(&mut self, number: u64) {
        let message = &mut self.messages[number as usize];
        if *message & (HELD | SETTLED) != 0 {
            self.wrongs.repeated += 1;
        }
        *message |= HELD;
        self.held += 1;
    }

    /// Messages that never came, or whose settlement was not taken.
    pub fn lost(&self) -> u64 {
        self.pending
    }
}

/// A number below `count`, each as likely, from a random one.
fn part(random: u64, count: u64) -> u64 {
    ((u128::from(random) * u128::from(count)) >> 64) as u64
}

fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn strange(what: &str, payload: &[u8]) -> io::Error {
    let start = String::from_utf8_lossy(&payload[..payload.len().min(80)]).into_owned();
    io::Error::other(format!("{what}: {start:?}"))
}

/// Bytes of a payload that differ from message to message.
pub const STAMP: usize = 16;
/// Ids are below 2⁵³.
const ID: u64 = (1 << 53) - 1;
const HELD: u64 = 1 << 62;
const SETTLED: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { keys: 3, each: 2, payload: 20 };

    fn book() -> Book {
        let mut book = Book::new(Shape { keys: 1, each: 1, ..SHAPE }, 2);
        (0..3).for_each(|_| assert!(book.put(0) < 3));
        book
    }

    #[test]
    fn the_keys_of_a_message_are_different_ones() {
        for (keys, each) in [(3, 2), (100_000, 4), (4, 4), (7, 3), (1, 1)] {
            let mut book = Book::new(Shape { keys, each, payload: 16 }, 1);
            for _ in 0..1_000 {
                let number = book.put(0);
                let mut all: Vec<_> = book.lanes(number).to_vec();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), each, "{number} with {each} of {keys}");
                assert!(all.iter().all(|key| u64::from(*key) < keys));
            }
        }
    }

    #[test]
    fn one_after_the_other_is_right() {
        let mut book = book();
        for number in 0..3 {
            book.came(number, number + 10).unwrap();
            book.settle(number);
        }
        book.confirm(3, 3);
        assert_eq!((book.wrongs, book.lost(), book.held), (Wrongs::default(), 0, 0));
    }

    #[test]
    fn beside_another_or_after_a_later_one_is_misordered() {
        let mut book = book();
        book.came(0, 10).unwrap();
        book.came(1, 11).unwrap();
        assert_eq!(book.wrongs.misordered, 1);
        let mut book = self::book();
        book.came(1, 11).unwrap();
        book.settle(1);
        book.came(0, 10).unwrap();
        assert_eq!(book.wrongs.misordered, 1);
    }

    #[test]
    fn twice_is_repeated_and_what_does_not_come_is_lost() {
        let mut book = book();
        book.came(0, 10).unwrap();
        book.settle(0);
        book.confirm(0, 1);
        book.came(0, 10).unwrap();
        let wrongs = Wrongs { repeated: 1, misordered: 1, refused: 1 };
        assert_eq!((book.wrongs, book.lost()), (wrongs, 3));
        assert!(book.came(1, 10).is_ok() && book.came(1, 12).is_err());
    }

    #[test]
    fn a_peer_without_keys_keeps_the_order_of_each_putter() {
        let mut book = book();
        book.came_keyless(1, 0);
        book.came_keyless(2, 1);
        assert_eq!(book.wrongs.misordered, 0);
        book.came_keyless(0, 0);
        assert_eq!(book.wrongs.misordered, 1);
    }

    #[test]
    fn another_payload_than_was_put_is_an_error() {
        let book = book();
        let mut payload = Vec::new();
        book.write(&mut payload, 2, 77);
        assert_eq!(book.read(&payload).unwrap(), (2, 77));
        for at in [0, 16, 19] {
            let mut other = payload.clone();
            other[at] ^= 0x41;
            assert!(book.read(&other).is_err(), "byte {at}");
        }
        assert!(book.read(&payload[..19]).is_err());
    }
}
