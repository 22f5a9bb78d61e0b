//! The search behind a place where no record can be read: was what lies there ever on disk?

use crate::record::{self, ALIGN};

/// The findings behind such a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Bytes up to the last one that is not zero.
    pub bytes: u64,
    /// Whole records among them.
    pub records: u64,
    /// Sequence of the last of these, or 0.
    pub last: u64,
    /// Up to which sequence these say that all was on disk.
    pub durable: u64,
}

/// Looks through `bytes`, which begin where the record `expected` should.
pub fn behind(bytes: &[u8], salt: u32, expected: u64) -> Behind {
    let length = without_zeroes(bytes);
    let mut found = Behind { bytes: length as u64, ..Behind::default() };
    let mut at = 0;
    while at < length {
        let here = &bytes[at..];
        // A checksum of each place would take its square; this number excludes most places.
        let plausible = record::sequence_of(here)
            .is_some_and(|sequence| (expected..expected.saturating_add(FAR)).contains(&sequence));
        match plausible.then(|| record::decode(here, salt)) {
            Some(Ok((record, length))) => {
                found.records += 1;
                found.last = found.last.max(record.sequence);
                found.durable = found.durable.max(record.durable());
                at += length;
            }
            _ => at += ALIGN,
        }
    }
    found
}

/// Returns how long they are without the zeroes at their end, which are most of a segment that was
/// just begun: looked at one by one they would take longer than all the rest.
fn without_zeroes(bytes: &[u8]) -> usize {
    let mut end = bytes.len();
    for piece in bytes.rchunks(PIECE) {
        if piece.iter().fold(0, |all, byte| all | byte) != 0 {
            break;
        }
        end -= piece.len();
    }
    bytes[..end].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

const PIECE: usize = 4096;
/// No segment has this many records.
const FAR: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trailing_zeroes_are_ignored() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5] {
            let mut bytes = vec![0; length];
            assert_eq!(without_zeroes(&bytes), 0);
            for at in [0, 1, PIECE - 1, PIECE, 3 * PIECE] {
                if at < length {
                    bytes[at] = 1;
                    assert_eq!(without_zeroes(&bytes), at + 1, "of {length}");
                }
            }
        }
    }
}
