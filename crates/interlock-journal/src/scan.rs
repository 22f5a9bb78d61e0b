//! What lies behind a place where no record can be read: was it ever on disk?

use crate::record::{self, ALIGN};

/// What was found behind such a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Bytes up to the last one that is not zero.
    pub bytes: u64,
    /// Whole records among them.
    pub records: u64,
    /// Sequence of the last of these; 0 where there is none.
    pub last: u64,
    /// Up to which sequence these say that all was on disk.
    pub durable: u64,
}

/// Looks through `bytes`, which begin where the record `expected` should.
pub fn behind(bytes: &[u8], salt: u32, expected: u64) -> Behind {
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut found = Behind { bytes: length as u64, ..Behind::default() };
    let mut at = 0;
    while at < length {
        let here = &bytes[at..];
        // A checksum of each place would take its square; most places are told by this number.
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

/// No segment has so many records.
const FAR: u64 = 1 << 40;
