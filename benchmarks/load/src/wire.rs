//! Requests, and what a delivery of each must look like, byte for byte.
//!
//! A payload has 64 bytes: the publisher (4), its message's number (8), when it was due (8), and
//! filling. All requests of a run have one length, and so have all deliveries.

/// The facts that a message carries of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub publisher: u32,
    pub number: u64,
    /// ns of the monotonic clock; 0 where nobody asks.
    pub due: u64,
}

/// Target of publishes.
#[derive(Clone, Debug)]
pub enum Topics {
    /// To one.
    One(String),
    /// One message after another to each of this number in turn: `t0000`, `t0001` and so on.
    Turn(usize),
    /// Each to a new topic, which matches one of this number of patterns: `p00007:000000042`.
    New(usize),
    /// The same with the literal bytes of the patterns at their end: `000000042:p00007`.
    NewBefore(usize),
}

impl Topics {
    /// One that stands for each with this rest of the message's number: the nine digits of a new
    /// one are put in by who uses it.
    fn name(&self, rest: usize) -> String {
        match self {
            Topics::One(name) => name.clone(),
            Topics::Turn(_) => turn_name(rest),
            Topics::New(_) => format!("p{rest:05}:{:09}", 0),
            Topics::NewBefore(_) => format!("{:09}:p{rest:05}", 0),
        }
    }

    /// The number of names, but for digits.
    fn count(&self) -> usize {
        match self {
            Topics::One(_) => 1,
            Topics::Turn(count) | Topics::New(count) | Topics::NewBefore(count) => *count,
        }
    }

    /// The pattern that topics with this rest match.
    pub fn pattern(&self, rest: usize) -> String {
        match self {
            Topics::NewBefore(_) => format!("*:p{rest:05}"),
            _ => format!("p{rest:05}:*"),
        }
    }

    /// Bytes from the start of a new topic's digits to the topic's end; `None` if topics are not new.
    fn digits(&self) -> Option<usize> {
        match self {
            Topics::New(_) => Some(DIGITS),
            Topics::NewBefore(_) => Some(DIGITS + ":p00007".len()),
            _ => None,
        }
    }
}

pub fn turn_name(index: usize) -> String {
    format!("t{index:04}")
}

/// Requests or deliveries ready made, one for each name, all of one length.
struct Table {
    each: Vec<Vec<u8>>,
    /// The offset of a new topic's digits.
    digits: Option<usize>,
}

impl Table {
    fn new(topics: &Topics, made: impl Fn(usize, &str) -> Vec<u8>) -> Self {
        let each: Vec<_> = (0..topics.count()).map(|rest| made(rest, &topics.name(rest))).collect();
        // A topic's end is followed by the end of its line, and by the payload's length.
        let behind_topic = b"\r\n$64\r\n".len();
        let digits = topics.digits().map(|from_end| each[0].len() - behind_topic - from_end);
        Table { each, digits }
    }

    fn of(&self, number: u64) -> &[u8] {
        &self.each[(number % self.each.len() as u64) as usize]
    }
}

fn digits(mut number: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    digits
}

/// The requests that publish: everything before the payload is ready made.
pub struct Requests(Table);

impl Requests {
    pub fn new(topics: Topics) -> Self {
        Requests(Table::new(&topics, |_, topic| {
            let mut whole = command(&[b"PUBLISH", topic.as_bytes(), &[b'x'; PAYLOAD]]);
            whole.truncate(whole.len() - PAYLOAD - 2);
            whole
        }))
    }

    /// Appends one.
    #[inline]
    pub fn push(&self, out: &mut Vec<u8>, stamp: Stamp) {
        let start = out.len();
        out.extend_from_slice(self.0.of(stamp.number));
        if let Some(at) = self.0.digits {
            out[start + at..start + at + DIGITS].copy_from_slice(&digits(stamp.number));
        }
        let mut payload = [0; STAMP];
        stamp.write(&mut payload);
        out.extend_from_slice(&payload);
        out.extend_from_slice(&FILLING);
    }
}

/// The deliveries that one subscriber gets: everything before the payload is ready made.
pub struct Deliveries {
    heads: Table,
    /// Bytes of each delivery.
    pub length: usize,
}

impl Deliveries {
    pub fn new(topics: Topics) -> Self {
        let heads = Table::new(&topics, |rest, topic| head(&topics, rest, topic));
        let length = heads.each[0].len() + PAYLOAD + 2;
        Deliveries { heads, length }
    }

    /// The stamp of a delivery with this length; `None` where a byte is not as it must be.
    #[inline]
    pub fn check(&self, frame: &[u8]) -> Option<Stamp> {
        let (head, payload) = frame.split_at(self.length - PAYLOAD - 2);
        let stamp = Stamp::read(payload);
        let expected = self.heads.of(stamp.number);
        let is_right = match self.heads.digits {
            None => head == expected,
            Some(at) => {
                head[..at] == expected[..at]
                    && head[at..at + DIGITS] == digits(stamp.number)
                    && head[at + DIGITS..] == expected[at + DIGITS..]
            }
        };
        (is_right && payload[STAMP..] == FILLING).then_some(stamp)
    }
}

fn head(topics: &Topics, rest: usize, topic: &str) -> Vec<u8> {
    let mut out = match topics {
        Topics::New(_) | Topics::NewBefore(_) => {
            let mut out = b"*4\r\n$8\r\npmessage\r\n".to_vec();
            bulk(&mut out, topics.pattern(rest).as_bytes());
            out
        }
        _ => b"*3\r\n$7\r\nmessage\r\n".to_vec(),
    };
    bulk(&mut out, topic.as_bytes());
    out.extend_from_slice(format!("${PAYLOAD}\r\n").as_bytes());
    out
}

impl Stamp {
    fn write(self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.publisher.to_le_bytes());
        payload[4..12].copy_from_slice(&self.number.to_le_bytes());
        payload[12..STAMP].copy_from_slice(&self.due.to_le_bytes());
    }

    fn read(payload: &[u8]) -> Self {
        let long = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().expect("eight"));
        let publisher = u32::from_le_bytes(payload[..4].try_into().expect("four"));
        Stamp { publisher, number: long(4), due: long(12) }
    }
}

/// A request as RESP has it.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bulk(&mut out, word);
    }
    out
}

/// The answer to SUBSCRIBE and PSUBSCRIBE.
pub fn confirmation(kind: &str, name: &str, count: usize) -> Vec<u8> {
    let mut out = b"*3\r\n".to_vec();
    bulk(&mut out, kind.as_bytes());
    bulk(&mut out, name.as_bytes());
    out.extend_from_slice(format!(":{count}\r\n").as_bytes());
    out
}

fn bulk(out: &mut Vec<u8>, word: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Bytes of every message.
pub const PAYLOAD: usize = 64;
const STAMP: usize = 20;
const DIGITS: usize = 9;
const FILLING: [u8; PAYLOAD - STAMP + 2] = {
    let mut filling = [b'x'; PAYLOAD - STAMP + 2];
    filling[PAYLOAD - STAMP] = b'\r';
    filling[PAYLOAD - STAMP + 1] = b'\n';
    filling
};

#[cfg(test)]
mod tests {
    use super::*;

    const STAMPED: Stamp = Stamp { publisher: 3, number: 1_234, due: 99 };

    fn delivery(text: &str) -> Vec<u8> {
        let mut payload = [0; STAMP];
        STAMPED.write(&mut payload);
        [text.as_bytes(), &payload, &FILLING].concat()
    }

    #[test]
    fn a_request_has_the_topic_and_64_bytes() {
        let mut out = Vec::new();
        Requests::new(Topics::New(1_000)).push(&mut out, STAMPED);
        assert!(out.starts_with(b"*3\r\n$7\r\nPUBLISH\r\n$16\r\np00234:000001234\r\n$64\r\n\x03"));
        assert_eq!(Stamp::read(&out[out.len() - PAYLOAD - 2..]), STAMPED);
    }

    #[test]
    fn a_delivery_is_known_only_if_every_byte_is_right() {
        let one = "*3\r\n$7\r\nmessage\r\n$4\r\nload\r\n$64\r\n";
        let turn = "*3\r\n$7\r\nmessage\r\n$5\r\nt0018\r\n$64\r\n";
        let new = "*4\r\n$8\r\npmessage\r\n$8\r\np00234:*\r\n$16\r\np00234:000001234\r\n$64\r\n";
        let before = "*4\r\n$8\r\npmessage\r\n$8\r\n*:p00234\r\n$16\r\n000001234:p00234\r\n$64\r\n";
        for (topics, text) in [
            (Topics::One("load".into()), one),
            (Topics::Turn(64), turn),
            (Topics::New(1_000), new),
            (Topics::NewBefore(1_000), before),
        ] {
            let deliveries = Deliveries::new(topics.clone());
            let frame = delivery(text);
            let start = text.len();
            assert_eq!(frame.len(), deliveries.length);
            assert_eq!(deliveries.check(&frame), Some(STAMPED));
            for at in (0..start).chain(start + STAMP..frame.len()) {
                let mut other = frame.clone();
                other[at] ^= 1;
                assert_eq!(deliveries.check(&other), None, "byte {at} of {topics:?}");
            }
        }
    }
}
