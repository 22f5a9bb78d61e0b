//! Replies of the Redis protocol (RESP2), parsed as they arrive: no byte is parsed twice, and no
//! memory is allocated for announced bytes that have not arrived.

/// A reply. Its bytes borrow from the buffer it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    Text(&'a [u8]),
    Error(&'a [u8]),
    Number(i64),
    Bytes(&'a [u8]),
    Nil,
    List(Vec<Reply<'a>>),
}

/// The reason why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// They are not in this protocol.
    Garbage,
    /// The reply is larger than the limit.
    TooLong,
}

/// The position up to which the reply at the beginning of a buffer has been scanned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    at: usize,
    /// Values still expected, beyond the one of every reply.
    left: usize,
    begun: bool,
}

impl Scan {
    /// Returns the length of the reply at the beginning of `bytes` once it is complete. Each call
    /// must pass the same bytes again, with more after them.
    pub fn length(&mut self, bytes: &[u8], most: usize) -> Result<Option<usize>, Bad> {
        if !self.begun {
            (self.begun, self.left) = (true, 1);
        }
        while self.left > 0 {
            let Some((kind, text, next)) = line(bytes, self.at)? else { return Ok(None) };
            self.at = match kind {
                b'+' | b'-' | b':' => next,
                b'$' => match number(text)? {
                    -1 => next,
                    length => {
                        let length = usize::try_from(length).map_err(|_| Bad::Garbage)?;
                        if length > most || next + length + 2 > most {
                            return Err(Bad::TooLong);
                        }
                        if bytes.len() < next + length + 2 {
                            return Ok(None);
                        }
                        next + length + 2
                    }
                },
                b'*' => {
                    let count = number(text)?.max(0) as usize;
                    // Each value takes some bytes.
                    if count > most / SHORTEST {
                        return Err(Bad::TooLong);
                    }
                    self.left += count;
                    next
                }
                _ => return Err(Bad::Garbage),
            };
            self.left -= 1;
            if self.at + self.left * SHORTEST > most {
                return Err(Bad::TooLong);
            }
        }
        let length = self.at;
        *self = Scan::default();
        Ok(Some(length))
    }
}

/// Parses a reply that [`Scan::length`] has found complete.
pub fn reply(bytes: &[u8]) -> Result<Reply<'_>, Bad> {
    let (reply, length) = value(bytes, 0, 0)?;
    if length == bytes.len() {
        Ok(reply)
    } else {
        Err(Bad::Garbage)
    }
}

fn value(bytes: &[u8], at: usize, depth: usize) -> Result<(Reply<'_>, usize), Bad> {
    let (kind, text, next) = line(bytes, at)?.ok_or(Bad::Garbage)?;
    Ok(match kind {
        b'+' => (Reply::Text(text), next),
        b'-' => (Reply::Error(text), next),
        b':' => (Reply::Number(number(text)?), next),
        b'$' => match number(text)? {
            -1 => (Reply::Nil, next),
            length => {
                let end = usize::try_from(length).ok().and_then(|length| next.checked_add(length));
                let end = end.ok_or(Bad::Garbage)?;
                match (bytes.get(next..end), bytes.get(end..end + 2)) {
                    (Some(found), Some(b"\r\n")) => (Reply::Bytes(found), end + 2),
                    _ => return Err(Bad::Garbage),
                }
            }
        },
        b'*' => match number(text)? {
            -1 => (Reply::Nil, next),
            count => {
                if depth == DEEPEST {
                    return Err(Bad::Garbage);
                }
                let (mut list, mut next) = (Vec::new(), next);
                for _ in 0..count {
                    let found = value(bytes, next, depth + 1)?;
                    next = found.1;
                    list.push(found.0);
                }
                (Reply::List(list), next)
            }
        },
        _ => return Err(Bad::Garbage),
    })
}

/// A line's type and text, and the position of the next line.
type Line<'a> = (u8, &'a [u8], usize);

/// Returns the line at a position; `None`: it is incomplete.
fn line(bytes: &[u8], at: usize) -> Result<Option<Line<'_>>, Bad> {
    let rest = &bytes[at..];
    let Some(end) = rest.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
        let is_known = rest.first().is_none_or(|kind| b"+-:$*".contains(kind));
        return if is_known && rest.len() < LONGEST_LINE { Ok(None) } else { Err(Bad::Garbage) };
    };
    match rest[..end].strip_suffix(b"\r").and_then(<[u8]>::split_first) {
        Some((kind, text)) => Ok(Some((*kind, text, at + end + 1))),
        None => Err(Bad::Garbage),
    }
}

/// Parses a number of the protocol. A length or count is never below -1.
fn number(text: &[u8]) -> Result<i64, Bad> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or(Bad::Garbage)
}

/// Maximum bytes of a line; no engine sends longer ones.
const LONGEST_LINE: usize = 64 << 10;
/// Bytes of the shortest value.
const SHORTEST: usize = 3;
const DEEPEST: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 1 << 20;

    #[test]
    fn a_reply_is_parsed_once_complete_however_it_is_split() {
        let bytes: &[u8] = b"*2\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\ne\r\n$4\r\n\r\n\r\n\r\n*3\r\n:-5\r\n$-1\r\n*-1\r\n";
        let wanted = Reply::List(vec![
            Reply::List(vec![
                Reply::Bytes(b"1-1"),
                Reply::List(vec![Reply::Bytes(b"e"), Reply::Bytes(b"\r\n\r\n")]),
            ]),
            Reply::List(vec![Reply::Number(-5), Reply::Nil, Reply::Nil]),
        ]);
        for step in 1..bytes.len() {
            let (mut scan, mut cut) = (Scan::default(), step);
            let two = [bytes, b"+OK\r\n"].concat();
            loop {
                let there = cut.min(two.len());
                match scan.length(&two[..there], MOST) {
                    Ok(None) => assert!(there < bytes.len(), "{there}"),
                    Ok(Some(length)) => {
                        assert!(length == bytes.len() && there >= length, "{there}");
                        assert_eq!(reply(&two[..length]), Ok(wanted.clone()));
                        assert_eq!(scan.length(&two[length..], MOST), Ok(Some(5)));
                        break;
                    }
                    Err(bad) => panic!("{bad:?}"),
                }
                cut += step;
            }
        }
    }

    #[test]
    fn a_reply_announcing_more_than_the_limit_is_refused_at_once() {
        for bytes in [
            &b"$9999999\r\n"[..],
            b"*9999999\r\n",
            b"*2\r\n*300000\r\n*300000\r\n",
            b"$9223372036854775807\r\n",
            b"*9223372036854775807\r\n",
        ] {
            assert_eq!(Scan::default().length(bytes, MOST), Err(Bad::TooLong), "{bytes:?}");
        }
        for bytes in [&b"hello\r\n"[..], b"$x\r\n", b"$-2\r\n", b"*\r\n", b"\r\n", b"\n", b"+OK\n"]
        {
            assert_eq!(Scan::default().length(bytes, MOST), Err(Bad::Garbage), "{bytes:?}");
        }
        let endless = vec![b'+'; LONGEST_LINE];
        assert_eq!(Scan::default().length(&endless, MOST), Err(Bad::Garbage));
    }

    #[test]
    fn nested_lists_do_not_overflow_the_stack() {
        let deep = [b"*1\r\n".repeat(50_000), b":1\r\n".to_vec()].concat();
        assert_eq!(Scan::default().length(&deep, MOST), Ok(Some(deep.len())));
        assert_eq!(reply(&deep), Err(Bad::Garbage));
    }

    #[test]
    fn random_bytes_are_a_reply_or_refused() {
        let mut random = fastrand::Rng::with_seed(1);
        let pieces: [&[u8]; 12] = [
            b"*",
            b"$",
            b"+",
            b"-",
            b":",
            b"\r\n",
            b"1",
            b"3",
            b"-1",
            b"a\r\n",
            b"\0",
            b"$1\r\nx\r\n",
        ];
        for _ in 0..200_000 {
            let count = random.usize(..12);
            let bytes: Vec<u8> =
                (0..count).flat_map(|_| pieces[random.usize(..pieces.len())]).copied().collect();
            if let Ok(Some(length)) = Scan::default().length(&bytes, 1000) {
                assert!(length <= bytes.len());
                let _ = reply(&bytes[..length]);
            }
        }
    }
}
