//! A frame of an index: 64 bytes, each with a checksum of its own.
//!
//! | bytes | of every frame |
//! |---|---|
//! | 0 to 3 | CRC32C of the rest, begun with the salt of the file; that of the first frame with 0 |
//! | 4 | kind |
//! | 5 | of a piece of a name: how many bytes of it are used |
//! | 6 | of a piece of a name: 1 if it is the last one |
//!
//! | kind | from byte 8 on |
//! |---|---|
//! | 1 head | `ILSTORES`, version (4), salt (4), number of the file in its chain, sequence of its first message, time of the last message before, its n (4), frames of the head (4), 1 if all is of one topic (4) |
//! | 2 store | number 0 (4), which piece (4), 48 bytes of the store's name |
//! | 3 topic | number of the topic (4), which piece (4), 48 bytes of it |
//! | 4 origin | number of the origin (4), 0 (4), origin (16), the last number that there was of it |
//! | 5 message | sequence, offset, time, number, length (4), CRC32C of the payload (4), topic (4), origin (4), n (4), messages before it that were not known to be on disk (4) |
//! | 6 mark | sequence of the next message, end of the data, time of the last message, and its n (4): all before is on disk |
//! | 7 closed | the same: the file is never written to again |
//!
//! Numbers have eight bytes unless stated otherwise, the lowest first. Topics and origins of a file
//! are numbered from 1, in the order in which they appear; no origin is 0.

/// Bytes of a frame.
pub const FRAME: usize = 64;
/// The version of the form that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Bytes of a name in one frame.
pub const PIECE: usize = 48;
const MAGIC: &[u8; 8] = b"ILSTORES";

/// The first frame of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub salt: u32,
    /// Rises by one from file to file of a chain.
    pub number: u64,
    /// Sequence of the first message: those of files before that have this one or a later one do not
    /// count, for they were written again here.
    pub first: u64,
    /// Time of the message before, µs since 1970, and which one of its millisecond it was.
    pub time: u64,
    pub n: u32,
    /// Frames before the first one about a message.
    pub frames: u32,
    /// True if all messages of the chain have the same topic.
    pub by_topic: bool,
}

/// A message's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub sequence: u64,
    /// The place of the payload, behind which there is a newline.
    pub offset: u64,
    pub time: u64,
    pub number: u64,
    pub length: u32,
    pub crc: u32,
    pub topic: u32,
    pub origin: u32,
    pub n: u32,
    /// Messages before it that were not known to be on disk.
    pub behind: u32,
}

impl Record {
    /// The offset behind the newline.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length)).saturating_add(1)
    }

    /// Every message up to this sequence was on disk when this was written.
    pub fn durable(&self) -> u64 {
        self.sequence.saturating_sub(1).saturating_sub(u64::from(self.behind))
    }
}

/// All that a mark says, and a file's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Sequence of the next message.
    pub next: u64,
    /// The end of the data.
    pub end: u64,
    pub time: u64,
    pub n: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    Head(Head),
    Store { piece: u32, name: &'a [u8], last: bool },
    Topic { topic: u32, piece: u32, name: &'a [u8], last: bool },
    Origin { origin: u32, id: u128, last: u64 },
    Message(Record),
    Mark(Mark),
    Closed(Mark),
}

/// The reason why a frame is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    Checksum,
    /// The frame is valid, but its kind is unknown.
    Kind(u8),
    /// The first frame is one of a later version.
    Version(u32),
}

pub fn encode(out: &mut Vec<u8>, salt: u32, frame: &Frame<'_>) {
    let at = out.len();
    out.extend_from_slice(&[0; FRAME]);
    let bytes = &mut out[at..];
    let mut put = Put { bytes, at: 8 };
    let mut begin = salt;
    let kind = match frame {
        Frame::Head(head) => {
            put.raw(MAGIC).four(VERSION).four(head.salt).eight(head.number).eight(head.first);
            put.eight(head.time).four(head.n).four(head.frames).four(head.by_topic.into());
            begin = 0;
            1
        }
        Frame::Store { piece, name, last } => {
            put.four(0).four(*piece).raw(name).name(name, *last);
            2
        }
        Frame::Topic { topic, piece, name, last } => {
            put.four(*topic).four(*piece).raw(name).name(name, *last);
            3
        }
        Frame::Origin { origin, id, last } => {
            put.four(*origin).four(0).raw(&id.to_le_bytes()).eight(*last);
            4
        }
        Frame::Message(r) => {
            put.eight(r.sequence).eight(r.offset).eight(r.time).eight(r.number).four(r.length);
            put.four(r.crc).four(r.topic).four(r.origin).four(r.n).four(r.behind);
            5
        }
        Frame::Mark(mark) | Frame::Closed(mark) => {
            put.eight(mark.next).eight(mark.end).eight(mark.time).four(mark.n);
            if matches!(frame, Frame::Mark(_)) {
                6
            } else {
                7
            }
        }
    };
    bytes[4] = kind;
    let crc = crc32c::crc32c_append(begin, &bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

pub fn decode(bytes: &[u8; FRAME], salt: u32) -> Result<Frame<'_>, Bad> {
    let kind = bytes[4];
    let begin = if kind == 1 { 0 } else { salt };
    if crc32c::crc32c_append(begin, &bytes[4..]) != four(bytes, 0) {
        return Err(Bad::Checksum);
    }
    let name = &bytes[16..16 + usize::from(bytes[5]).min(PIECE)];
    let last = bytes[6] == 1;
    Ok(match kind {
        1 if bytes[8..16] != *MAGIC => return Err(Bad::Kind(1)),
        1 if four(bytes, 16) != VERSION => return Err(Bad::Version(four(bytes, 16))),
        1 => Frame::Head(Head {
            salt: four(bytes, 20),
            number: eight(bytes, 24),
            first: eight(bytes, 32),
            time: eight(bytes, 40),
            n: four(bytes, 48),
            frames: four(bytes, 52),
            by_topic: four(bytes, 56) == 1,
        }),
        2 => Frame::Store { piece: four(bytes, 12), name, last },
        3 => Frame::Topic { topic: four(bytes, 8), piece: four(bytes, 12), name, last },
        4 => Frame::Origin {
            origin: four(bytes, 8),
            id: u128::from_le_bytes(bytes[16..32].try_into().expect("16")),
            last: eight(bytes, 32),
        },
        5 => Frame::Message(Record {
            sequence: eight(bytes, 8),
            offset: eight(bytes, 16),
            time: eight(bytes, 24),
            number: eight(bytes, 32),
            length: four(bytes, 40),
            crc: four(bytes, 44),
            topic: four(bytes, 48),
            origin: four(bytes, 52),
            n: four(bytes, 56),
            behind: four(bytes, 60),
        }),
        6 | 7 => {
            let mark = Mark {
                next: eight(bytes, 8),
                end: eight(bytes, 16),
                time: eight(bytes, 24),
                n: four(bytes, 32),
            };
            if kind == 6 {
                Frame::Mark(mark)
            } else {
                Frame::Closed(mark)
            }
        }
        other => return Err(Bad::Kind(other)),
    })
}

/// Appends the frames of a name.
pub fn encode_name<'a>(
    out: &mut Vec<u8>,
    salt: u32,
    name: &'a [u8],
    frame: impl Fn(u32, &'a [u8], bool) -> Frame<'a>,
) {
    let pieces = name.len().div_ceil(PIECE).max(1);
    for piece in 0..pieces {
        let part = &name[piece * PIECE..name.len().min((piece + 1) * PIECE)];
        encode(out, salt, &frame(piece as u32, part, piece + 1 == pieces));
    }
}

struct Put<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Put<'_> {
    fn raw(&mut self, more: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + more.len()].copy_from_slice(more);
        self.at += more.len();
        self
    }

    fn four(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    fn eight(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    fn name(&mut self, name: &[u8], last: bool) {
        self.bytes[5] = name.len() as u8;
        self.bytes[6] = last.into();
    }
}

fn four(bytes: &[u8; FRAME], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4"))
}

fn eight(bytes: &[u8; FRAME], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"))
}

#[cfg(test)]
mod tests {
    use crate::file::frame::*;

    fn samples() -> Vec<Frame<'static>> {
        let head = Head { salt: 7, number: 2, first: 3, time: 4, n: 5, frames: 6, by_topic: true };
        let record = Record {
            sequence: 1,
            offset: 2,
            time: 3,
            number: u64::MAX,
            length: u32::MAX,
            crc: 6,
            topic: 7,
            origin: 8,
            n: 9,
            behind: 10,
        };
        let mark = Mark { next: 1, end: 2, time: 3, n: 4 };
        vec![
            Frame::Head(head),
            Frame::Store { piece: 3, name: b"keep", last: true },
            Frame::Topic { topic: 9, piece: 0, name: &[b'x'; PIECE], last: false },
            Frame::Topic { topic: 9, piece: 1, name: b"", last: true },
            Frame::Origin { origin: 4, id: u128::MAX - 5, last: 17 },
            Frame::Message(record),
            Frame::Mark(mark),
            Frame::Closed(mark),
        ]
    }

    #[test]
    fn written_frames_are_read_back() {
        for frame in samples() {
            let mut bytes = Vec::new();
            encode(&mut bytes, 7, &frame);
            assert_eq!(decode(bytes[..].try_into().unwrap(), 7), Ok(frame));
        }
    }

    #[test]
    fn a_frame_with_any_bit_changed_is_not_valid() {
        for frame in samples() {
            let mut bytes = Vec::new();
            encode(&mut bytes, 7, &frame);
            for bit in 0..FRAME * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(changed[..].try_into().unwrap(), 7).is_err(), "{frame:?}: {bit}");
            }
            let other = decode(bytes[..].try_into().unwrap(), 8);
            assert_eq!(other.is_err(), !matches!(frame, Frame::Head(_)), "the salt is in it");
        }
        assert!(decode(&[0; FRAME], 7).is_err() && decode(&[0; FRAME], 0).is_err());
    }

    #[test]
    fn a_long_name_is_split_over_several_frames() {
        for (length, frames) in [(0, 1), (1, 1), (48, 1), (49, 2), (10_240, 214)] {
            let name = vec![b'n'; length];
            let mut bytes = Vec::new();
            encode_name(&mut bytes, 1, &name, |piece, name, last| Frame::Store {
                piece,
                name,
                last,
            });
            assert_eq!(bytes.len(), frames * FRAME);
        }
    }
}
