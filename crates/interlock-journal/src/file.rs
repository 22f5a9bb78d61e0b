//! Names and heads of the files in a journal's folder.
//!
//! | file | what it is |
//! |---|---|
//! | `segment-NUMBER` | records, rising without a gap from one segment to the next |
//! | `snapshot-NUMBER` | the state of each queue; NUMBER is the sequence up to which no record is needed |
//! | `spare.new`, `next.new`, `closed.new`, `snapshot-NUMBER.new` | was being made when the process ended; removed |
//! | `closed` | what was there when it was closed: the last record and its time; gone once it is open again |
//! | `*.aside-N` | was set aside by an operator; not looked at |
//! | `lock` | held, as the folder itself is, by the process that has the journal open |
//!
//! A file begins with 64 bytes: what it is, the version of the form, its kind, its number, the
//! sequence of its first record, the salt of its checksums, its length as it was made, which record
//! it follows, the rules that its records are replayed by, and a checksum of these. Versions that knew no `closed` leave one alone: what it says is
//! then less than what is there, and is right still.

/// Bytes before the first record.
pub const HEAD: usize = 64;
/// The version of the form that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"ILJOURNL";

/// Ends the name of a file that is being made.
pub const NEW: &str = ".new";
/// The next segment, made in good time.
pub const SPARE: &str = "spare.new";
/// A segment that a commit has to make for itself.
pub const NEXT: &str = "next.new";
/// Name of the file that describes the journal as it was closed.
pub const CLOSED: &str = "closed";
/// The name of that file while it is written.
pub const CLOSING: &str = "closed.new";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FileKind {
    Segment = 1,
    Snapshot = 2,
    Closed = 3,
}

/// The head of a file: what it says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: FileKind,
    pub number: u64,
    /// Sequence of the first record of a segment; of a snapshot, up to where no record is needed.
    pub first: u64,
    /// The number that the checksums of its records begin with.
    pub salt: u32,
    /// Bytes of a segment as it was made; 0 of a snapshot.
    pub length: u64,
    /// Sequence of the last record of the segment before: `first` less 1, but where a repair left a gap.
    pub follows: u64,
    /// Version of the rules that the records of a segment are replayed by; 0: none was written.
    pub rules: u32,
}

/// The state of a journal when it was closed: of one that has less, something is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Sequence of the last record.
    pub last: u64,
    /// The latest time of any record, µs since 1970.
    pub time: u64,
}

impl Closed {
    pub fn encode(&self) -> [u8; HEAD] {
        let Closed { last, time } = *self;
        let kind = FileKind::Closed;
        Head { kind, number: last, first: time, salt: 0, length: 0, follows: last, rules: 0 }
            .encode()
    }

    pub fn decode(bytes: &[u8]) -> Result<Closed, BadHead> {
        let number = bytes.get(16..24).ok_or(BadHead::Damaged)?;
        let last = u64::from_le_bytes(number.try_into().expect("8"));
        let head = Head::decode(bytes, FileKind::Closed, last)?;
        Ok(Closed { last, time: head.first })
    }
}

/// The reason why a file's head is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHead {
    /// Written by another program, or by nobody.
    NoJournal,
    Version(u32),
    /// Written by this one, and changed since.
    Damaged,
}

impl Head {
    pub fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.salt.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.length.to_le_bytes());
        bytes[44..52].copy_from_slice(&self.follows.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.rules.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..HEAD - 4]);
        bytes[HEAD - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The head of a file that should be of this kind and number.
    pub fn decode(bytes: &[u8], kind: FileKind, number: u64) -> Result<Head, BadHead> {
        let Some(head) = bytes.first_chunk::<HEAD>() else { return Err(BadHead::Damaged) };
        let four = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4"));
        let eight = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8"));
        let whole = crc32c::crc32c(&head[..HEAD - 4]) == four(HEAD - 4);
        if &head[..8] != MAGIC {
            // Zeroes are what a disk shows where it lost a head, or the rest of one.
            let same = head.iter().zip(MAGIC).take_while(|(byte, magic)| byte == magic).count();
            let lost = head[same..8].iter().all(|byte| *byte == 0);
            return Err(if lost { BadHead::Damaged } else { BadHead::NoJournal });
        }
        // A later version may have its checksum elsewhere.
        if four(8) != VERSION && four(8) != 0 {
            return Err(BadHead::Version(four(8)));
        }
        let found = Head {
            kind,
            number,
            first: eight(24),
            salt: four(32),
            length: eight(36),
            follows: eight(44),
            rules: four(52),
        };
        if !whole || four(12) != kind as u32 || eight(16) != number {
            return Err(BadHead::Damaged);
        }
        Ok(found)
    }

    pub fn name(&self) -> String {
        name(self.kind, self.number)
    }
}

/// A file's name, by which names sort as their numbers do.
pub fn name(kind: FileKind, number: u64) -> String {
    match kind {
        FileKind::Segment => format!("segment-{number:020}"),
        FileKind::Snapshot => format!("snapshot-{number:020}"),
        FileKind::Closed => CLOSED.to_owned(),
    }
}

/// The number in a name of this kind.
pub fn number(name_of: &str, kind: FileKind) -> Option<u64> {
    let prefix = match kind {
        FileKind::Segment => "segment-",
        FileKind::Snapshot => "snapshot-",
        FileKind::Closed => return None,
    };
    let number = name_of.strip_prefix(prefix)?.parse().ok()?;
    (name(kind, number) == name_of).then_some(number)
}

/// Returns whether a file of this name was being made when its process ended.
pub fn is_unfinished(name: &str) -> bool {
    let snapshot = |name| number(name, FileKind::Snapshot).is_some();
    [SPARE, NEXT, CLOSING].contains(&name) || name.strip_suffix(NEW).is_some_and(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_and_headers_are_read_back_and_others_refused() {
        for kind in [FileKind::Segment, FileKind::Snapshot] {
            for value in [0, 1, 17, u64::MAX] {
                assert_eq!(number(&name(kind, value), kind), Some(value));
                let head = Head {
                    kind,
                    number: value,
                    first: 5,
                    salt: 6,
                    length: 7,
                    follows: 4,
                    rules: 3,
                };
                assert_eq!(Head::decode(&head.encode(), kind, value), Ok(head));
            }
        }
        for strange in ["segment-1", "segment-", "lock", "segment-00000000000000000001.new"] {
            assert_eq!(number(strange, FileKind::Segment), None, "{strange}");
        }
        let kind = FileKind::Segment;
        let head = Head { kind, number: 3, first: 9, salt: 1, length: 0, follows: 8, rules: 1 };
        let mut bytes = head.encode();
        assert_eq!(Head::decode(&bytes, FileKind::Segment, 4), Err(BadHead::Damaged));
        assert_eq!(Head::decode(&bytes, FileKind::Snapshot, 3), Err(BadHead::Damaged));
        assert_eq!(Head::decode(&bytes[..63], FileKind::Segment, 3), Err(BadHead::Damaged));
        bytes[8] = 2;
        assert_eq!(Head::decode(&bytes, FileKind::Segment, 3), Err(BadHead::Version(2)));
        assert_eq!(Head::decode(&[7; 64], FileKind::Segment, 3), Err(BadHead::NoJournal));
        let closed = Closed { last: 17, time: 1 << 50 };
        assert_eq!(Closed::decode(&closed.encode()), Ok(closed));
        assert_eq!(Closed::decode(&closed.encode()[..63]), Err(BadHead::Damaged));
    }
}
