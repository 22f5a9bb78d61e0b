//! Numbers and byte strings one behind the other: what a dump of a queue is written in.
//!
//! Numbers are LEB128, seven bits a byte from the lowest on; a byte string is its length and its
//! bytes. Reading never panics: what is not there, or cannot be, is [`Damaged`].

use std::fmt;

/// The bytes are not a dump, or not a complete one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The place of the damage, in bytes from the beginning.
    pub at: usize,
    /// The name of what was looked for there.
    pub wanted: &'static str,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a queue's dump is damaged at byte {}: no {} there", self.at, self.wanted)
    }
}

impl std::error::Error for Damaged {}

#[inline]
pub fn number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[inline]
pub fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// 0 for nothing, or 1 and the number.
#[inline]
pub fn option(out: &mut Vec<u8>, value: Option<u64>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        number(out, value);
    }
}

/// The bytes that are left to read.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub fn damaged<T>(&self, wanted: &'static str) -> Result<T, Damaged> {
        Err(Damaged { at: self.at, wanted })
    }

    #[inline]
    pub fn number(&mut self, wanted: &'static str) -> Result<u64, Damaged> {
        let (mut value, mut shift) = (0u64, 0);
        for (n, &byte) in self.bytes[self.at..].iter().enumerate() {
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                self.at += n + 1;
                return Ok(value);
            }
        }
        self.damaged(wanted)
    }

    /// A number that fits where it goes.
    #[inline]
    pub fn small<T: TryFrom<u64>>(&mut self, wanted: &'static str) -> Result<T, Damaged> {
        let value = self.number(wanted)?;
        T::try_from(value).or_else(|_| self.damaged(wanted))
    }

    pub fn option(&mut self, wanted: &'static str) -> Result<Option<u64>, Damaged> {
        match self.byte(wanted)? {
            0 => Ok(None),
            1 => self.number(wanted).map(Some),
            _ => self.damaged(wanted),
        }
    }

    #[inline]
    pub fn byte(&mut self, wanted: &'static str) -> Result<u8, Damaged> {
        let Some(&byte) = self.bytes.get(self.at) else { return self.damaged(wanted) };
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub fn take(&mut self, length: usize, wanted: &'static str) -> Result<&'a [u8], Damaged> {
        let rest = &self.bytes[self.at..];
        let Some(bytes) = rest.get(..length) else { return self.damaged(wanted) };
        self.at += length;
        Ok(bytes)
    }

    #[inline]
    pub fn string(&mut self, wanted: &'static str) -> Result<&'a [u8], Damaged> {
        let length = self.small(wanted)?;
        self.take(length, wanted)
    }

    pub fn text(&mut self, wanted: &'static str) -> Result<&'a str, Damaged> {
        let bytes = self.string(wanted)?;
        std::str::from_utf8(bytes).or_else(|_| self.damaged(wanted))
    }

    /// All that is left, which is then read.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    /// Eight bytes as they are, the lowest first.
    #[inline]
    pub fn word(&mut self, wanted: &'static str) -> Result<u64, Damaged> {
        let bytes = self.take(8, wanted)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }
}

#[cfg(test)]
mod tests {
    use crate::queue::schedules::bytes::*;

    #[test]
    fn written_values_are_read_back() {
        let numbers = [0, 1, 127, 128, 300, 1 << 32, u64::MAX - 1, u64::MAX];
        let mut out = Vec::new();
        for value in numbers {
            number(&mut out, value);
            option(&mut out, Some(value));
            option(&mut out, None);
            string(&mut out, &value.to_le_bytes()[..3]);
        }
        let mut reader = Reader::new(&out);
        for value in numbers {
            assert_eq!(reader.number("a number"), Ok(value));
            assert_eq!(reader.option("an option"), Ok(Some(value)));
            assert_eq!(reader.option("an option"), Ok(None));
            assert_eq!(reader.string("a string"), Ok(&value.to_le_bytes()[..3]));
        }
        assert!(reader.is_at_end());
        assert_eq!(reader.number("more"), Err(Damaged { at: out.len(), wanted: "more" }));
    }

    #[test]
    fn values_too_large_or_too_long_are_reported_as_damage() {
        let endless = [0xff; 11];
        assert!(Reader::new(&endless).number("a number").is_err());
        let large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 3];
        assert!(Reader::new(&large).number("a number").is_err());
        assert!(Reader::new(&[2, 0]).option("an option").is_err());
        assert!(Reader::new(&[200, 1]).small::<u8>("a byte").is_ok());
        assert!(Reader::new(&[200, 2]).small::<u8>("a byte").is_err());
        assert!(Reader::new(&[5, 1]).string("a string").is_err());
    }
}
