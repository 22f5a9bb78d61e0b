//! Numbers and byte strings as bytes, and a decoder that does not trust its input.
//!
//! Numbers have seven bits per byte, lowest first; byte strings have their length before them. For
//! any input, reading ends with a value or with [`Damaged`].

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::digest::digest;

/// The bytes are not what this version writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

/// Appends a number.
pub fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a byte string.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Returns the checksum of bytes that follow others with the checksum `before`.
pub fn checksum(before: u64, bytes: &[u8]) -> u64 {
    digest(before, bytes) as u64
}

/// A part of immutable bytes. Clones share the memory.
#[derive(Clone)]
pub struct Bytes {
    whole: Arc<[u8]>,
    from: u32,
    to: u32,
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.whole[self.from as usize..self.to as usize]
    }
}

impl Bytes {
    /// Returns the bytes at a place. Panics beyond 4 GiB: the strings written and read here are shorter.
    pub fn part(whole: Arc<[u8]>, place: Range<usize>) -> Bytes {
        assert!(place.start <= place.end && place.end <= whole.len(), "a place in it");
        let at = |at: usize| u32::try_from(at).expect("less than 4 GiB");
        Bytes { from: at(place.start), to: at(place.end), whole }
    }
}

/// Panics beyond 4 GiB: the strings written and read here are shorter.
impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Bytes {
        let to = u32::try_from(bytes.len()).expect("less than 4 GiB");
        Bytes { whole: bytes.into(), from: 0, to }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        bytes[..].into()
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Reads bytes that the functions above have written.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// The memory that contains `rest`, if it may be shared.
    whole: Option<&'a Arc<[u8]>>,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, whole: None }
    }

    /// Reads the beginning of some bytes; parts that are kept share their memory.
    pub fn shared(whole: &'a Arc<[u8]>, length: usize) -> Self {
        Self { rest: &whole[..length], whole: Some(whole) }
    }

    /// Keeps the bytes that were read since a copy of this reader was made.
    pub fn since(&self, before: &Reader<'a>) -> Bytes {
        self.keep(&before.rest[..before.left() - self.left()])
    }

    fn keep(&self, part: &'a [u8]) -> Bytes {
        let Some(whole) = self.whole else { return part.into() };
        let from = part.as_ptr() as usize - whole.as_ptr() as usize;
        Bytes { whole: whole.clone(), from: from as u32, to: (from + part.len()) as u32 }
    }

    /// Number of bytes left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, Damaged> {
        let (&first, rest) = self.rest.split_first().ok_or(Damaged)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Damaged)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn word(&mut self) -> Result<u64, Damaged> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Damaged)?))
    }

    /// Reads a number in the only form that [`put_number`] writes.
    #[inline]
    pub fn number(&mut self) -> Result<u64, Damaged> {
        if let Some((&first, rest)) = self.rest.split_first().filter(|(first, _)| **first < 0x80) {
            self.rest = rest;
            return Ok(u64::from(first));
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Result<u64, Damaged> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 || shift > 0 && byte == 0 {
                return Err(Damaged);
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Damaged)
    }

    /// Reads the number of items that follow, each of at least `least` bytes; fails if that many do
    /// not fit.
    #[inline]
    pub fn count(&mut self, least: usize) -> Result<usize, Damaged> {
        let count = usize::try_from(self.number()?).map_err(|_| Damaged)?;
        if count > self.left() / least.max(1) {
            return Err(Damaged);
        }
        Ok(count)
    }

    /// Reads a byte string of at most `most` bytes.
    #[inline]
    pub fn bytes(&mut self, most: usize) -> Result<&'a [u8], Damaged> {
        let length = usize::try_from(self.number()?).map_err(|_| Damaged)?;
        if length > most {
            return Err(Damaged);
        }
        self.take(length)
    }

    /// Like `bytes`, for a string that is kept.
    pub fn kept(&mut self, most: usize) -> Result<Bytes, Damaged> {
        let bytes = self.bytes(most)?;
        Ok(self.keep(bytes))
    }

    /// Ends reading; fails if bytes are left.
    pub fn end(self) -> Result<(), Damaged> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Damaged)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_strings_survive_encoding() {
        let numbers = [0, 1, 127, 128, 300, 1 << 32, u64::MAX - 1, u64::MAX];
        let mut out = Vec::new();
        for number in numbers {
            put_number(&mut out, number);
        }
        put_bytes(&mut out, b"abc");
        let mut reader = Reader::new(&out);
        for number in numbers {
            assert_eq!(reader.number(), Ok(number));
        }
        assert_eq!(reader.bytes(3), Ok(&b"abc"[..]));
        assert_eq!(reader.end(), Ok(()));
    }

    #[test]
    fn a_number_has_one_encoding_and_a_string_a_limit() {
        assert_eq!(Reader::new(&[0x80, 0]).number(), Err(Damaged));
        assert_eq!(Reader::new(&[0xff; 10]).number(), Err(Damaged));
        assert_eq!(Reader::new(&[3, 1, 2]).bytes(9), Err(Damaged));
        assert_eq!(Reader::new(&[2, 1, 2]).bytes(1), Err(Damaged));
        assert_eq!(Reader::new(&[5, 1, 2]).count(1), Err(Damaged));
    }
}
