//! Reading arguments. All of them are read and checked before anything is changed.

use std::fmt::Display;

use crate::wire::codes::Code;
use crate::wire::limits::{MAX_NUMBER, MAX_TEXT};

/// The arguments of a call, behind its key.
pub trait Args {
    fn len(&self) -> usize;
    /// `index` is below `len`.
    fn get(&self, index: usize) -> &[u8];
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: AsRef<[u8]>> Args for [T] {
    #[inline]
    fn len(&self) -> usize {
        self.len()
    }
    #[inline]
    fn get(&self, index: usize) -> &[u8] {
        self[index].as_ref()
    }
}

/// Bytes that a record of these arguments takes in a journal, about.
pub fn recorded<A: Args + ?Sized>(args: &A) -> u64 {
    (0..args.len()).map(|i| args.get(i).len() as u64 + 4).sum::<u64>() + 40
}

/// The reason why a call was refused: a code, and what was wrong. The queue is as before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused(pub String);

impl Refused {
    #[cold]
    pub fn new(code: Code, called: &str, text: impl Display) -> Self {
        Refused(format!("{code} il1_{called}: {text}"))
    }
}

pub type Read<T> = Result<T, Refused>;

#[cold]
pub fn refuse<T>(code: Code, called: &str, text: impl Display) -> Read<T> {
    Err(Refused::new(code, called, text))
}

/// Names an argument in a refusal, put together only then, for nearly all are as they must be.
pub trait What: FnOnce() -> String + Copy {}

impl<F: FnOnce() -> String + Copy> What for F {}

pub struct Reader<'a, A: Args + ?Sized> {
    pub called: &'static str,
    pub args: &'a A,
    pub at: usize,
}

impl<'a, A: Args + ?Sized> Reader<'a, A> {
    pub fn new(called: &'static str, args: &'a A) -> Self {
        Reader { called, args, at: 0 }
    }

    #[cold]
    pub fn bad<T>(&self, what: impl What, wrong: impl Display) -> Read<T> {
        refuse(Code::BadArgument, self.called, format_args!("{} {wrong}", what()))
    }

    #[inline]
    pub fn more(&self) -> bool {
        self.at < self.args.len()
    }

    #[inline(always)]
    pub fn take(&mut self, what: impl What) -> Read<&'a [u8]> {
        if !self.more() {
            return self.bad(what, "is missing");
        }
        self.at += 1;
        Ok(self.args.get(self.at - 1))
    }

    /// Limits the bytes of an argument.
    #[inline]
    pub fn text(&mut self, most: usize, what: impl What) -> Read<&'a [u8]> {
        let value = self.take(what)?;
        if value.len() > most {
            return self.bad(what, format_args!("has {} bytes; at most {most}", value.len()));
        }
        Ok(value)
    }

    #[inline]
    pub fn whole(&mut self, least: i64, most: u64, what: impl What) -> Read<i64> {
        let value = self.take(what)?;
        if let &[digit @ b'0'..=b'9'] = value {
            // As nearly all counts are.
            let number = i64::from(digit - b'0');
            if number >= least && number as u64 <= most {
                return Ok(number);
            }
        }
        match integer(value) {
            Some(number) if number >= least && (number < 0 || number as u64 <= most) => Ok(number),
            _ => self.no_whole(value, least, most, what),
        }
    }

    /// A whole number that is not negative.
    #[inline]
    pub fn natural(&mut self, least: u64, most: u64, what: impl What) -> Read<u64> {
        self.whole(least as i64, most, what).map(|number| number as u64)
    }

    #[cold]
    fn no_whole<T>(&self, value: &[u8], least: i64, most: u64, what: impl What) -> Read<T> {
        let shown = shown(value);
        self.bad(what, format_args!("is '{shown}'; a whole number from {least} to {most}"))
    }

    /// An id or a token. A leading zero would be a second spelling of the same number.
    #[inline]
    pub fn number(&mut self, what: impl What) -> Read<u64> {
        let value = self.take(what)?;
        // Times in µs have sixteen digits from 2001 to 2286, and ids and tokens are times.
        if let Some(number) = value.try_into().ok().and_then(plain) {
            return Ok(number);
        }
        let plain = (1..=16).contains(&value.len()) && value[0] != b'0';
        match integer(value).filter(|&number| plain && number > 0) {
            Some(number) => Ok(number as u64),
            None => self.bad(what, "is not a number that this queue gives"),
        }
    }

    pub fn end(&self) -> Read<()> {
        if self.more() {
            let left = self.args.len() - self.at;
            return refuse(
                Code::BadArgument,
                self.called,
                format_args!("{left} arguments too many"),
            );
        }
        Ok(())
    }

    /// Reads the consumer, and the number of the call: 0 for one whose reply need not be kept.
    #[inline]
    pub fn caller(&mut self) -> Read<(&'a [u8], u64)> {
        let consumer = self.text(MAX_TEXT, || "consumer".into())?;
        let call = self.natural(0, MAX_NUMBER, || "call".into())?;
        if consumer.is_empty() && call > 0 {
            // All who have no name would be answered with each other's replies.
            return self.bad(|| "consumer".into(), "is empty, which only call 0 may have");
        }
        Ok((consumer, call))
    }
}

/// An id or a token of sixteen digits.
#[inline]
pub fn plain(digits: &[u8; 16]) -> Option<u64> {
    sixteen(digits).filter(|_| digits[0] != b'0')
}

/// Sixteen decimal digits; eight of them at a time, as one word.
#[inline]
fn sixteen(digits: &[u8; 16]) -> Option<u64> {
    let (high, low) = digits.split_at(8);
    Some(eight(high.try_into().ok()?)? * 100_000_000 + eight(low.try_into().ok()?)?)
}

#[inline]
fn eight(digits: [u8; 8]) -> Option<u64> {
    // The first digit is the lowest byte.
    let word = u64::from_le_bytes(digits);
    // Its upper half is 3, and stays 3 when 6 is added to the lower.
    let (upper, threes) = (0xF0F0_F0F0_F0F0_F0F0, 0x3030_3030_3030_3030);
    if word & upper != threes || word.wrapping_add(0x0606_0606_0606_0606) & upper != threes {
        return None;
    }
    let ones = word ^ threes;
    let pairs = (ones * 10 + (ones >> 8)) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_FFFF_0000_FFFF;
    Some((fours * 10_000 + (fours >> 32)) & 0xFFFF_FFFF)
}

/// Decimal digits, perhaps with `-` before them, at most 17 bytes in all.
#[inline]
pub fn integer(value: &[u8]) -> Option<i64> {
    let (negative, digits) = match value.first() {
        Some(b'-') => (true, &value[1..]),
        _ => (false, value),
    };
    if digits.is_empty() || value.len() > 17 {
        return None;
    }
    let mut number = 0i64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(if negative { -number } else { number })
}

/// Returns the beginning of what was given, as printable text: it may be megabytes, and any bytes.
pub fn shown(value: &[u8]) -> String {
    let plain = |&byte: &u8| if (32..127).contains(&byte) { byte as char } else { '?' };
    value.iter().take(32).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use crate::values::args::*;

    #[test]
    fn sixteen_digits_at_once_parse_like_single_digits() {
        let mut rng = fastrand::Rng::with_seed(4);
        for _ in 0..20_000 {
            let text = format!("{:016}", rng.u64(..10_000_000_000_000_000));
            let mut bytes: [u8; 16] = text.as_bytes().try_into().unwrap();
            assert_eq!(sixteen(&bytes), text.parse().ok());
            let at = rng.usize(..16);
            bytes[at] = rng.u8(..);
            let expected = integer(&bytes).filter(|_| bytes[0] != b'-').map(|n| n as u64);
            assert_eq!(sixteen(&bytes), expected, "{bytes:?}");
        }
    }
}
