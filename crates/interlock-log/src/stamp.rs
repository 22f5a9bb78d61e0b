//! Stamps: the order of changes, by hybrid time with the writer's name as tie-break.
//!
//! A reading is the time in ms since 1970 multiplied by 65,536, plus a counter. A writer is a data
//! centre and a lineage of its log (`DC.LINEAGE`, in base 36). A packed stamp is the eight bytes of
//! the reading, highest first, followed by the writer's name; packed stamps sort like stamps.

/// Number of bits of a reading that count within a millisecond.
pub const COUNTER_BITS: u32 = 16;
/// Exclusive upper bound of readings: twice a reading still fits 64 bits, and a reading can follow
/// every other.
pub const READINGS: u64 = 1 << 62;
/// Last time in ms since 1970 that has readings.
pub const LATEST_MS: u64 = (READINGS - 1) >> COUNTER_BITS;
/// Last time in ms that is accepted from others. The range after it, up to `LATEST_MS`, is left for
/// the readings of all later writes, so a node's own checkpoint may have them.
pub const BELIEVED_MS: u64 = LATEST_MS / 2;
/// Separates the data centre and the lineage in a writer's name.
pub const LINEAGE: u8 = b'.';
/// Longest name of a data centre, in bytes.
pub const MAX_NAME: usize = 32;

/// Time and author of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp<'a> {
    pub reading: u64,
    /// The name of a data centre, with or without a lineage.
    pub writer: &'a str,
}

impl Stamp<'_> {
    pub fn pack(&self) -> Vec<u8> {
        let mut packed = self.reading.to_be_bytes().to_vec();
        packed.extend_from_slice(self.writer.as_bytes());
        packed
    }
}

/// Returns the first reading of a time in ms since 1970.
pub fn hybrid(ms: u64) -> u64 {
    ms.saturating_mul(1 << COUNTER_BITS).min(READINGS - 1)
}

/// Returns the reading of a packed stamp, 0 if it has none.
#[inline]
pub fn reading(packed: &[u8]) -> u64 {
    packed.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Returns the first time in ms that is not before a reading.
pub fn ms_above(reading: u64) -> u64 {
    reading.div_ceil(1 << COUNTER_BITS)
}

/// Returns whether this is a valid name of a data centre: 1 to 32 letters, digits, `-` or `_`.
pub fn is_name(name: &[u8]) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
}

/// Returns the writer's name for a lineage of a data centre's log.
pub fn writer(dc: &str, lineage: u64) -> String {
    let mut digits = Vec::new();
    let mut rest = lineage;
    while rest > 0 || digits.is_empty() {
        digits.push(char::from_digit((rest % 36) as u32, 36).unwrap_or('0'));
        rest /= 36;
    }
    format!("{dc}.{}", digits.iter().rev().collect::<String>())
}

/// Returns the data centre of a writer, and the lineage if it has one. `None`: it is not a writer's
/// name.
pub fn parts(writer: &[u8]) -> Option<(&[u8], Option<u64>)> {
    let Some(at) = writer.iter().position(|byte| *byte == LINEAGE) else {
        return is_name(writer).then_some((writer, None));
    };
    let (dc, digits) = (&writer[..at], &writer[at + 1..]);
    let is_plain = digits.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    if !is_name(dc) || !is_plain || digits.len() > 1 && digits[0] == b'0' {
        return None;
    }
    let lineage = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 36).ok()?;
    Some((dc, Some(lineage)))
}

/// Returns whether these bytes are a packed stamp.
pub fn is_packed(stamp: &[u8]) -> bool {
    stamp.len() > 8 && reading(stamp) < READINGS && parts(&stamp[8..]).is_some()
}

/// Source of readings that never repeats one and never returns one below a reading it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    last: u64,
}

impl Clock {
    /// Creates a clock that continues after this reading.
    pub fn behind(last: u64) -> Clock {
        Clock { last: last.min(READINGS - 1) }
    }

    /// Returns a reading that is later than all before, and not before this log time.
    pub fn next(&mut self, now_ms: u64) -> u64 {
        self.last = hybrid(now_ms).max((self.last + 1).min(READINGS - 1));
        self.last
    }

    /// Notes the reading of another clock: all following readings are later.
    pub fn saw(&mut self, reading: u64) {
        self.last = self.last.max(reading.min(READINGS - 1));
    }

    /// Last reading that was returned or seen.
    pub fn last(&self) -> u64 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_stamps_sort_like_stamps() {
        let mut stamps = Vec::new();
        for reading in [0, 1, 255, 256, 1 << 40, READINGS - 1] {
            for writer in ["a", "a.1", "a.10", "a.2", "ab", "b.0"] {
                stamps.push(Stamp { reading, writer });
            }
        }
        assert!(stamps.windows(2).all(|two| two[0] < two[1]));
        assert!(stamps.windows(2).all(|two| two[0].pack() < two[1].pack()));
        assert!(stamps.iter().all(|stamp| is_packed(&stamp.pack())));
        assert!(stamps.iter().all(|stamp| reading(&stamp.pack()) == stamp.reading));
    }

    #[test]
    fn writer_ids_survive_encoding() {
        for lineage in [0, 1, 35, 36, 1_700_000_000_000, u64::MAX] {
            let name = writer("east", lineage);
            assert_eq!(parts(name.as_bytes()), Some((&b"east"[..], Some(lineage))));
        }
        assert_eq!(writer("east", 37), "east.11");
        assert_eq!(parts(b"north-2_x"), Some((&b"north-2_x"[..], None)));
        for name in [
            &b""[..],
            b".1",
            b"east.",
            b"east.01",
            b"east.A",
            b"east.1.2",
            b"e\xffst.1",
            b"ea st",
            b"east.zzzzzzzzzzzzzz",
            b"a2345678901234567890123456789012x",
        ] {
            assert_eq!(parts(name), None, "{name:?}");
        }
        assert!(!is_packed(b"12345678") && !is_packed(b"\xff2345678east"));
    }

    #[test]
    fn a_clock_stays_above_all_it_gave_and_saw_and_never_overflows() {
        let mut clock = Clock::default();
        assert_eq!(clock.next(5), hybrid(5));
        assert_eq!(clock.next(4), hybrid(5) + 1);
        clock.saw(hybrid(9));
        assert_eq!(clock.next(9), hybrid(9) + 1);
        clock.saw(u64::MAX);
        assert_eq!(clock.next(u64::MAX), READINGS - 1);
        assert_eq!((ms_above(hybrid(7)), ms_above(hybrid(7) + 1)), (7, 8));
    }
}
