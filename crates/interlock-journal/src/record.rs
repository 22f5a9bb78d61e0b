//! A record: one call as bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 3 | CRC32C of all that follows, padding aside, begun with the salt of the file |
//! | 4 to 7 | length of the body |
//! | 8 to 15 | sequence: one more than that of the record before |
//! | 16 to 23 | time given to the call, µs since 1970 |
//! | 24 to 27 | number of the queue |
//! | 28 to 31 | how many of the records before it were not known to be on disk when it was appended |
//! | 32 | kind |
//! | 33 | the function, as a number chosen by the caller |
//! | 34, 35 | 0 |
//! | from 36 | the body: the arguments, each behind its length (4 bytes), and zeroes up to a multiple of 4 |
//!
//! Numbers have their lowest byte first. The salt is a random number: without knowing it, nobody
//! can send a payload in which a recovery that reads past a torn tail would see a record.

/// Bytes of a record before its body.
pub const HEAD: usize = 36;
/// Records begin at multiples of it.
pub const ALIGN: usize = 4;

/// The purpose of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A call, to be replayed.
    Call = 1,
    /// The journal's own: says only what is on disk.
    Mark = 2,
    /// A piece of a queue's state, in a snapshot, and the last one of that queue.
    Piece = 3,
    LastPiece = 4,
    /// The end of a snapshot.
    End = 5,
}

const KINDS: [RecordKind; 5] =
    [RecordKind::Call, RecordKind::Mark, RecordKind::Piece, RecordKind::LastPiece, RecordKind::End];

/// A record as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub sequence: u64,
    /// µs since 1970.
    pub time: u64,
    pub queue: u32,
    /// The number of records before it that were not known to be on disk.
    pub behind: u32,
    pub kind: RecordKind,
    pub function: u8,
    pub body: &'a [u8],
}

impl<'a> Record<'a> {
    /// Every record up to this one was on disk when this one was appended.
    pub fn durable(&self) -> u64 {
        self.sequence.saturating_sub(1).saturating_sub(u64::from(self.behind))
    }

    /// The arguments. A record whose checksum is right has them whole.
    pub fn arguments(&self) -> Arguments<'a> {
        Arguments { rest: self.body }
    }
}

/// The arguments of a call.
#[derive(Clone, Debug)]
pub struct Arguments<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.rest.split_first_chunk::<4>()?;
        let (argument, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.rest = rest;
        Some(argument)
    }
}

/// The part of a record that is known before its body.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub sequence: u64,
    pub time: u64,
    pub queue: u32,
    pub behind: u32,
    pub kind: RecordKind,
    pub function: u8,
}

/// Bytes that a record with a body of this length takes.
pub const fn padded(body: usize) -> usize {
    (HEAD + body).next_multiple_of(ALIGN)
}

/// Appends a record; `body` appends its body.
#[inline]
pub fn encode(out: &mut Vec<u8>, salt: u32, head: Head, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; HEAD]);
    body(out);
    let end = out.len();
    let record = &mut out[at..end];
    let length = (record.len() - HEAD) as u32;
    record[4..8].copy_from_slice(&length.to_le_bytes());
    record[8..16].copy_from_slice(&head.sequence.to_le_bytes());
    record[16..24].copy_from_slice(&head.time.to_le_bytes());
    record[24..28].copy_from_slice(&head.queue.to_le_bytes());
    record[28..32].copy_from_slice(&head.behind.to_le_bytes());
    record[32] = head.kind as u8;
    record[33] = head.function;
    let crc = crc32c::crc32c_append(salt, &record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    out.resize(end.next_multiple_of(ALIGN), 0);
}

/// Appends arguments as a body has them.
#[inline]
pub fn arguments<'a>(out: &mut Vec<u8>, arguments: impl IntoIterator<Item = &'a [u8]>) {
    for argument in arguments {
        out.extend_from_slice(&(argument.len() as u32).to_le_bytes());
        out.extend_from_slice(argument);
    }
}

/// The reason why a record is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The bytes end before the record does.
    Short,
    /// The checksum is another one.
    Checksum,
    /// The checksum is right, and the kind is unknown.
    Kind(u8),
}

/// The record that `bytes` begin with, and how many bytes it takes.
#[inline]
pub fn decode(bytes: &[u8], salt: u32) -> Result<(Record<'_>, usize), Bad> {
    let Some(head) = bytes.first_chunk::<HEAD>() else { return Err(Bad::Short) };
    let length = four(head, 4) as usize;
    let Some(record) = bytes.get(4..HEAD.saturating_add(length)) else { return Err(Bad::Short) };
    if crc32c::crc32c_append(salt, record) != four(head, 0) {
        return Err(Bad::Checksum);
    }
    let Some(&kind) = KINDS.iter().find(|kind| **kind as u8 == head[32]) else {
        return Err(Bad::Kind(head[32]));
    };
    let record = Record {
        sequence: eight(head, 8),
        time: eight(head, 16),
        queue: four(head, 24),
        behind: four(head, 28),
        kind,
        function: head[33],
        body: &record[HEAD - 4..],
    };
    Ok((record, padded(length)))
}

/// The sequence that a record at the beginning of `bytes` would have.
#[inline]
pub fn sequence_of(bytes: &[u8]) -> Option<u64> {
    Some(eight(bytes.first_chunk::<HEAD>()?, 8))
}

#[inline]
fn four(head: &[u8; HEAD], at: usize) -> u32 {
    u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
fn eight(head: &[u8; HEAD], at: usize) -> u64 {
    u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(arguments_of: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        let head =
            Head { sequence: 7, time: 8, queue: 9, behind: 2, kind: RecordKind::Call, function: 3 };
        encode(&mut out, 99, head, |out| arguments(out, arguments_of.iter().copied()));
        out
    }

    #[test]
    fn written_records_are_read_back() {
        for arguments in [&[][..], &[b"".as_slice()], &[b"a", b"", b"bcd", &[0; 1000]]] {
            let bytes = sample(arguments);
            assert_eq!(bytes.len() % ALIGN, 0);
            let (record, length) = decode(&bytes, 99).unwrap();
            assert_eq!(length, bytes.len());
            assert_eq!((record.sequence, record.time, record.queue), (7, 8, 9));
            assert_eq!((record.kind, record.function, record.durable()), (RecordKind::Call, 3, 4));
            assert_eq!(record.arguments().collect::<Vec<_>>(), arguments);
        }
    }

    #[test]
    fn a_record_cut_or_changed_at_any_byte_is_not_valid() {
        let bytes = sample(&[b"abcd", b"efgh"]);
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at], 99).is_err(), "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(decode(&changed, 99).is_err(), "changed at {at}");
        }
        assert!(decode(&bytes, 98).is_err());
        assert_eq!(decode(&[0; 64], 99).unwrap_err(), Bad::Checksum);
    }
}
