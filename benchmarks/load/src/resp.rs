//! Replies as RESP has them: where one ends, and its content.

use std::io;

/// The point up to which the reply that is coming in has been looked at.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    at: usize,
    /// Elements that are still to come.
    left: usize,
}

impl Default for Scan {
    fn default() -> Self {
        Scan { at: 0, left: 1 }
    }
}

impl Scan {
    /// Bytes of the reply at the begin of `bytes`; `None` while its rest is missing, and then the
    /// next call continues where this one ended.
    pub fn end(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        while self.left > 0 {
            let Some((kind, number, behind)) = head(bytes, self.at)? else { return Ok(None) };
            match kind {
                b'*' => {
                    self.left += usize::try_from(number).unwrap_or(0);
                    self.at = behind;
                }
                b'$' if number >= 0 => {
                    let end = behind + number as usize + 2;
                    if end > bytes.len() {
                        return Ok(None);
                    }
                    self.at = end;
                }
                _ => self.at = behind,
            }
            self.left -= 1;
        }
        Ok(Some(self.at))
    }
}

/// The contents of a reply, element by element.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A whole reply. An error of the server is one here.
    pub fn new(bytes: &'a [u8]) -> io::Result<Self> {
        if bytes.first() == Some(&b'-') {
            return Err(wrong(bytes));
        }
        Ok(Reader { bytes, at: 0 })
    }

    /// Reads how many elements follow; 0 for a reply that says there is nothing.
    pub fn array(&mut self) -> io::Result<usize> {
        match self.head()? {
            (b'*', count) => Ok(usize::try_from(count).unwrap_or(0)),
            (b'$', -1) => Ok(0),
            _ => Err(wrong(self.bytes)),
        }
    }

    /// A string; `None` for what is not there.
    pub fn maybe(&mut self) -> io::Result<Option<&'a [u8]>> {
        let (kind, length) = self.head()?;
        if length == -1 && (kind == b'$' || kind == b'*') {
            return Ok(None);
        }
        if kind != b'$' {
            return Err(wrong(self.bytes));
        }
        let start = self.at;
        self.at += length as usize + 2;
        Ok(Some(&self.bytes[start..start + length as usize]))
    }

    pub fn text(&mut self) -> io::Result<&'a [u8]> {
        self.maybe()?.ok_or_else(|| wrong(self.bytes))
    }

    /// A number, written as a string.
    pub fn number(&mut self) -> io::Result<u64> {
        let text = self.text()?;
        decimal(text).ok_or_else(|| wrong(self.bytes))
    }

    /// A number, as such.
    pub fn integer(&mut self) -> io::Result<i64> {
        match self.head()? {
            (b':', number) => Ok(number),
            _ => Err(wrong(self.bytes)),
        }
    }

    /// The bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Number of its bytes that have been read.
    pub fn skip(&mut self, count: usize) {
        self.at += count;
    }

    pub fn is_through(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn head(&mut self) -> io::Result<(u8, i64)> {
        let (kind, number, behind) = head(self.bytes, self.at)?.ok_or_else(|| wrong(self.bytes))?;
        self.at = behind;
        Ok((kind, number))
    }
}

/// Digits and nothing else.
#[inline]
pub fn decimal(text: &[u8]) -> Option<u64> {
    // Ids and tokens: as long as this until the year 2286.
    if let Some((first, rest)) = text.split_first_chunk::<8>() {
        if let Ok(last) = rest.try_into() {
            return Some(eight(*first)? * 100_000_000 + eight(last)?);
        }
    }
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0, |number: u64, byte| {
        byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0'))
    })
}

/// Eight digits at once: pairs, then fours, then all of them.
#[inline]
fn eight(digits: [u8; 8]) -> Option<u64> {
    let text = u64::from_le_bytes(digits);
    let is_digits = text & 0xf0f0_f0f0_f0f0_f0f0 == 0x3030_3030_3030_3030
        && text.wrapping_add(0x0606_0606_0606_0606) & 0xf0f0_f0f0_f0f0_f0f0
            == 0x3030_3030_3030_3030;
    let pairs = (text & 0x0f0f_0f0f_0f0f_0f0f).wrapping_mul((10 << 8) + 1) >> 8;
    let fours = (pairs & 0x00ff_00ff_00ff_00ff).wrapping_mul((100 << 16) + 1) >> 16;
    let all = (fours & 0x0000_ffff_0000_ffff).wrapping_mul((10_000 << 32) + 1) >> 32;
    is_digits.then_some(all)
}

/// An error with the server's reply in place of the expected one.
pub fn wrong(bytes: &[u8]) -> io::Error {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    io::Error::other(format!("the server said {start:?}"))
}

/// Parts of the line at `at`: its first byte, its number (0 where it is text), and where the next
/// begins.
#[inline]
fn head(bytes: &[u8], at: usize) -> io::Result<Option<(u8, i64, usize)>> {
    // Nearly all: numbers of one or two digits.
    match bytes[at..] {
        [kind @ (b'$' | b':'), ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Ok(Some((kind, i64::from(ones - b'0'), at + 4)))
        }
        [b'$', tens @ b'0'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Ok(Some((b'$', i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), at + 5)))
        }
        _ => long_head(bytes, at),
    }
}

fn long_head(bytes: &[u8], at: usize) -> io::Result<Option<(u8, i64, usize)>> {
    let Some(&kind) = bytes.get(at) else { return Ok(None) };
    if matches!(kind, b'+' | b'-') {
        let end = bytes[at..].iter().position(|byte| *byte == b'\n');
        return Ok(end.map(|end| (kind, 0, at + end + 1)));
    }
    if !matches!(kind, b'*' | b'$' | b':') {
        return Err(wrong(&bytes[at..]));
    }
    let is_negative = bytes.get(at + 1) == Some(&b'-');
    let mut number: i64 = 0;
    let mut place = at + 1 + usize::from(is_negative);
    while let Some(&byte) = bytes.get(place) {
        if byte.is_ascii_digit() {
            number = number * 10 + i64::from(byte - b'0');
            place += 1;
            continue;
        }
        if byte != b'\r' {
            return Err(wrong(&bytes[at..]));
        }
        if place + 1 == bytes.len() {
            return Ok(None);
        }
        return Ok(Some((kind, if is_negative { -number } else { number }, place + 2)));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NESTED: &[u8] = b"*2\r\n*2\r\n$2\r\nab\r\n$-1\r\n:-17\r\n";

    #[test]
    fn a_reply_ends_where_its_last_element_does_however_it_is_split() {
        for reply in [NESTED, b"+OK\r\n", b"*-1\r\n", b"$0\r\n\r\n", b"-ERR no\r\n", b"*0\r\n"] {
            let whole = [reply, b"+next\r\n"].concat();
            for cut in 0..reply.len() {
                let mut scan = Scan::default();
                assert_eq!(scan.end(&whole[..cut]).unwrap(), None, "{cut} of {reply:?}");
                assert_eq!(scan.end(&whole).unwrap(), Some(reply.len()));
            }
        }
    }

    #[test]
    fn a_reader_tells_the_elements_and_what_is_none() {
        let mut reader = Reader::new(NESTED).unwrap();
        assert_eq!((reader.array().unwrap(), reader.array().unwrap()), (2, 2));
        assert_eq!(reader.text().unwrap(), b"ab");
        assert_eq!(reader.maybe().unwrap(), None);
        assert!(reader.number().is_err());
        assert!(Reader::new(b"-ERR no\r\n").is_err());
        assert!(Scan::default().end(b"what\r\n").is_err());
        assert_eq!((decimal(b"120"), decimal(b"1x"), decimal(b"")), (Some(120), None, None));
    }

    #[test]
    fn sixteen_digits_are_read_at_once_and_nothing_else_is() {
        let number = b"1763752934123456";
        assert_eq!(decimal(number), Some(1_763_752_934_123_456));
        for at in 0..number.len() {
            for other in [b'0' - 1, b'9' + 1, b'a', 0x80] {
                let mut text = *number;
                text[at] = other;
                assert_eq!(decimal(&text), None, "{text:?}");
            }
        }
    }
}
