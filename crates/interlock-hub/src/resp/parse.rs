//! The incremental parser of requests. Its errors have the text of Redis 7.0.15.
//!
//! The parser remembers its position in an unfinished request, so each byte is read once even if bytes
//! arrive one by one. It copies no byte of an array request: the arguments are ranges of the caller's
//! buffer. That buffer must begin with the request's first byte at each call.

use std::ops::{Index, Range};

use super::inline;
pub use interlock_rows::text::integer;

/// The begin and end of each argument.
pub type Ranges = Vec<(u32, u32)>;

/// Finds the arguments of a request.
#[derive(Debug, Default)]
pub struct Parser {
    /// Ranges within the buffer, or within `unquoted` for an inline command.
    ranges: Ranges,
    /// Arguments of an inline command, without its quotes and escapes.
    unquoted: Vec<u8>,
    inline: bool,
    /// Arguments still to come; none while the request's first line is incomplete.
    missing: u32,
    /// Length of the argument whose head was read.
    bulk: Option<u32>,
    /// Position up to which the request was parsed.
    at: usize,
    /// Position up to which an unfinished line was searched for its end.
    searched: usize,
}

/// The limits of what one client may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest argument.
    pub bulk: u64,
    /// True before the client has logged in: at most ten arguments of 16 KiB, as in Redis.
    pub strict: bool,
}

/// The text sent before the connection is closed, without the leading `-ERR Protocol error: `.
pub type ProtocolError = String;

#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A request of this many bytes is complete; `Parser::arguments` returns it. It may be empty.
    Request(usize),
    Incomplete,
}

/// A copy of arguments, with some of them in lower case.
#[derive(Debug)]
pub struct Copied {
    bytes: Vec<u8>,
    ranges: Vec<(u32, u32)>,
}

impl Copied {
    pub fn arguments(&self) -> Arguments<'_> {
        Arguments { bytes: &self.bytes, ranges: &self.ranges }
    }
}

/// The arguments of one request, the command's name first.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    ranges: &'a [(u32, u32)],
}

impl Parser {
    /// Continues with the request that begins at `buffer[0]`.
    pub fn parse(&mut self, buffer: &[u8], limits: &Limits) -> Result<Parsed, ProtocolError> {
        if self.at == 0 && self.missing == 0 {
            self.ranges.clear();
            match buffer.first() {
                None => return Ok(Parsed::Incomplete),
                Some(b'*') => self.inline = false,
                // A TLS client would wait forever for a TLS reply.
                Some(0x16) if buffer.get(1) == Some(&3) => {
                    return Err("this port does not speak TLS".into());
                }
                Some(_) => return self.parse_inline(buffer),
            }
            let Some(end) = self.line(buffer, "too big mbulk count string")? else {
                return Ok(Parsed::Incomplete);
            };
            let count = integer(&buffer[1..end]).filter(|&count| count <= i64::from(i32::MAX));
            let count = count.ok_or("invalid multibulk length")?;
            if count > STRICT_ARGUMENTS && limits.strict {
                return Err("unauthenticated multibulk length".into());
            }
            self.step_to(end + 2);
            if count <= 0 {
                return Ok(self.done());
            }
            self.missing = count as u32;
            // Reserves room once. An argument takes at least six bytes, so a large count alone reserves little.
            self.ranges.reserve((count as usize).min((buffer.len() - self.at) / 6 + 1));
        }
        if self.bulk.is_none() {
            self.quickly(buffer, limits);
        }
        while self.missing > 0 {
            let Some(length) = self.bulk_length(buffer, limits)? else {
                return Ok(Parsed::Incomplete);
            };
            let end = self.at + length as usize;
            // The two bytes behind an argument are skipped unread, as Redis does.
            if buffer.len() < end + 2 {
                return Ok(Parsed::Incomplete);
            }
            self.ranges.push((self.at as u32, end as u32));
            self.step_to(end + 2);
            self.bulk = None;
            self.missing -= 1;
        }
        Ok(self.done())
    }

    /// Returns the arguments of the complete request that `parse` found in `buffer`.
    pub fn arguments<'a>(&'a self, buffer: &'a [u8]) -> Arguments<'a> {
        let bytes = if self.inline { &self.unquoted[..] } else { buffer };
        Arguments { bytes, ranges: &self.ranges }
    }

    /// Number of bytes that the pending request needs, if its current argument states it.
    pub fn wanted(&self) -> usize {
        self.bulk.map_or(0, |length| self.at + length as usize + 2)
    }

    /// Takes over the shared vector of ranges, if this parser has none of its own.
    pub fn borrow(&mut self, room: &mut Ranges) {
        if self.ranges.capacity() == 0 {
            std::mem::swap(&mut self.ranges, room);
        }
    }

    /// Returns the vector of ranges after a request, so that the next connection can use it.
    pub fn shrink(&mut self, room: &mut Ranges) {
        if self.missing == 0 {
            if (room.capacity() + 1..=LENT_RANGES).contains(&self.ranges.capacity()) {
                std::mem::swap(&mut self.ranges, room);
            }
            if self.ranges.capacity() > KEPT_RANGES {
                self.ranges = Vec::new();
            }
        }
        if self.unquoted.capacity() > KEPT_RANGES {
            self.unquoted = Vec::new();
        }
    }

    /// Bytes it holds in addition to the request, above the amount that every connection may keep.
    pub fn held(&self) -> usize {
        let ranges = self.ranges.capacity().saturating_sub(KEPT_RANGES);
        ranges * size_of::<(u32, u32)>() + self.unquoted.capacity().saturating_sub(KEPT_RANGES)
    }

    /// Parses complete short arguments, as nearly all are. It stops at any other argument or error, which
    /// the slower code then handles.
    fn quickly(&mut self, buffer: &[u8], limits: &Limits) {
        if limits.bulk < SHORT {
            return;
        }
        // Fills the vector up first and assigns the ranges then: appending one by one is slower.
        let from = self.ranges.len();
        let places = (self.missing as usize).min(buffer.len().saturating_sub(self.at) / 6);
        self.ranges.resize(from + places, (0, 0));
        let (mut at, mut taken) = (self.at, 0);
        for place in &mut self.ranges[from..] {
            let Some((head, length)) = buffer.get(at..).and_then(short) else { break };
            let (start, end) = (at + head, at + head + length);
            if buffer.len() < end + 2 {
                break;
            }
            *place = (start as u32, end as u32);
            at = end + 2;
            taken += 1;
        }
        self.ranges.truncate(from + taken);
        self.missing -= taken as u32;
        if taken > 0 {
            self.step_to(at);
        }
    }

    fn bulk_length(
        &mut self,
        buffer: &[u8],
        limits: &Limits,
    ) -> Result<Option<u32>, ProtocolError> {
        if self.bulk.is_none() {
            let Some(end) = self.line(buffer, "too big bulk count string")? else {
                return Ok(None);
            };
            if buffer[self.at] != b'$' {
                // A control character would end the error line or hide in it.
                let got = match buffer[self.at] {
                    b'\r' | b'\n' => ' ',
                    byte => char::from(byte),
                };
                return Err(format!("expected '$', got '{got}'"));
            }
            let length = integer(&buffer[self.at + 1..end]);
            let length = length.filter(|&length| length >= 0 && length as u64 <= limits.bulk);
            let length = length.ok_or("invalid bulk length")?;
            if length > STRICT_BULK && limits.strict {
                return Err("unauthenticated bulk length".into());
            }
            self.step_to(end + 2);
            self.bulk = Some(length as u32);
        }
        Ok(self.bulk)
    }

    /// Finds the end of the current line (its `\r`), once the byte after it has arrived too.
    fn line(&mut self, buffer: &[u8], too_long: &str) -> Result<Option<usize>, ProtocolError> {
        let from = self.searched.max(self.at);
        match buffer[from..].iter().position(|&byte| byte == b'\r') {
            Some(found) if from + found + 1 < buffer.len() => Ok(Some(from + found)),
            Some(found) => {
                self.searched = from + found;
                Ok(None)
            }
            None if buffer.len() - self.at > LONGEST_LINE => Err(too_long.into()),
            None => {
                self.searched = buffer.len();
                Ok(None)
            }
        }
    }

    fn parse_inline(&mut self, buffer: &[u8]) -> Result<Parsed, ProtocolError> {
        let Some(found) = buffer[self.searched..].iter().position(|&byte| byte == b'\n') else {
            if buffer.len() > LONGEST_LINE {
                return Err("too big inline request".into());
            }
            self.searched = buffer.len();
            return Ok(Parsed::Incomplete);
        };
        let end = self.searched + found;
        let line = &buffer[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.inline = true;
        self.unquoted.clear();
        if !inline::split(line, &mut self.unquoted, &mut self.ranges) {
            return Err("unbalanced quotes in request".into());
        }
        self.step_to(end + 1);
        Ok(self.done())
    }

    fn step_to(&mut self, at: usize) {
        self.at = at;
        self.searched = at;
    }

    fn done(&mut self) -> Parsed {
        let used = self.at;
        self.step_to(0);
        Parsed::Request(used)
    }
}

impl<'a> Arguments<'a> {
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let &(start, end) = self.ranges.get(index)?;
        Some(&self.bytes[start as usize..end as usize])
    }

    /// Returns a copy with the arguments at the given indexes in lower case.
    pub fn lowered(&self, places: Range<usize>) -> Copied {
        let size = self.from(0).map(<[u8]>::len).sum();
        let mut copied =
            Copied { bytes: Vec::with_capacity(size), ranges: Vec::with_capacity(self.len()) };
        for (place, argument) in self.from(0).enumerate() {
            let start = copied.bytes.len();
            copied.bytes.extend_from_slice(argument);
            if places.contains(&place) {
                copied.bytes[start..].make_ascii_lowercase();
            }
            copied.ranges.push((start as u32, copied.bytes.len() as u32));
        }
        copied
    }

    pub fn copied(&self) -> Copied {
        self.lowered(0..0)
    }

    /// Returns the arguments after the first `count`.
    pub fn behind(self, count: usize) -> Arguments<'a> {
        Arguments { ranges: self.ranges.get(count..).unwrap_or_default(), ..self }
    }

    /// Returns the arguments from this index on.
    pub fn from(self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let ranges = self.ranges.get(index..).unwrap_or_default();
        ranges.iter().map(move |&(start, end)| &self.bytes[start as usize..end as usize])
    }
}

impl Index<usize> for Arguments<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        let (start, end) = self.ranges[index];
        &self.bytes[start as usize..end as usize]
    }
}

/// Parses the line before an argument of less than 1,000 bytes. Returns the length of the line with its end,
/// and the length of the argument.
#[inline]
fn short(bytes: &[u8]) -> Option<(usize, usize)> {
    let line: &[u8; 4] = bytes.first_chunk()?;
    // The first four bytes as a word, the first of them lowest. Without the `$`, the `\r` and the
    // upper half of the digits, only the digits are left if the line was well-formed.
    let word = u32::from_le_bytes(*line);
    let one = ((word & 0x00FF_FFFF) ^ u32::from_le_bytes(*b"$0\r\0")).rotate_right(8);
    if one <= 9 {
        return Some((4, one as usize));
    }
    let two = (word ^ u32::from_le_bytes(*b"$00\r")).rotate_right(8);
    let (first, second) = ((two & 0xFF) as usize, (two >> 8) as usize);
    if (1..=9).contains(&first) && second <= 9 {
        return Some((5, first * 10 + second));
    }
    let digit = |byte: u8| usize::from(byte.wrapping_sub(b'0'));
    let (first, second, third) = (digit(line[1]), digit(line[2]), digit(line[3]));
    if line[0] != b'$' || !(1..=9).contains(&first) || second > 9 {
        return None;
    }
    (third <= 9 && bytes.get(4) == Some(&b'\r')).then_some((6, first * 100 + second * 10 + third))
}

const LONGEST_LINE: usize = 64 * 1024;
const STRICT_ARGUMENTS: i64 = 10;
const STRICT_BULK: i64 = 16384;
/// Arguments of fewer bytes are short.
const SHORT: u64 = 1000;
const KEPT_RANGES: usize = 32;
/// A vector of ranges with a larger capacity is freed instead of shared.
const LENT_RANGES: usize = 1 << 12;

#[cfg(test)]
mod tests {
    use crate::resp::parse::*;

    const LIMITS: Limits = Limits { bulk: 512 << 20, strict: false };

    /// All requests in `stream`, and the refusal that ended it, read in pieces cut at `cuts`.
    fn read(stream: &[u8], cuts: &[usize]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
        let (mut parser, mut requests, mut start) = (Parser::default(), Vec::new(), 0);
        for &end in cuts.iter().chain([&stream.len()]) {
            loop {
                match parser.parse(&stream[start..end], &LIMITS) {
                    Err(refusal) => return (requests, Some(refusal)),
                    Ok(Parsed::Incomplete) => break,
                    Ok(Parsed::Request(used)) => {
                        let arguments = parser.arguments(&stream[start..end]);
                        requests.push(arguments.from(0).map(<[u8]>::to_vec).collect());
                        start += used;
                    }
                }
            }
        }
        (requests, None)
    }

    /// The same result by splitting complete arrays, for streams without errors and inline commands.
    fn naive(mut stream: &[u8]) -> Vec<Vec<Vec<u8>>> {
        fn head(stream: &mut &[u8]) -> usize {
            let end = stream.windows(2).position(|pair| pair == b"\r\n").unwrap();
            let number = std::str::from_utf8(&stream[1..end]).unwrap().parse().unwrap();
            *stream = &stream[end + 2..];
            number
        }
        let mut requests = Vec::new();
        while !stream.is_empty() {
            let mut request = Vec::new();
            for _ in 0..head(&mut stream) {
                let length = head(&mut stream);
                request.push(stream[..length].to_vec());
                stream = &stream[length + 2..];
            }
            requests.push(request);
        }
        requests
    }

    fn random_stream(seed: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut stream = Vec::new();
        for _ in 0..random.usize(1..5) {
            let count = random.usize(0..4);
            stream.extend_from_slice(format!("*{count}\r\n").as_bytes());
            for _ in 0..count {
                let length = random.usize(0..12);
                stream.extend_from_slice(format!("${length}\r\n").as_bytes());
                stream
                    .extend((0..length).map(|_| *b"\r\n$*a0\0 ".get(random.usize(0..8)).unwrap()));
                stream.extend_from_slice(b"\r\n");
            }
        }
        stream
    }

    #[test]
    fn a_stream_cut_at_any_byte_gives_the_requests_of_the_naive_parser() {
        for seed in 0..300 {
            let stream = random_stream(seed);
            let expected = (naive(&stream), None);
            for cut in 0..=stream.len() {
                assert_eq!(read(&stream, &[cut]), expected, "seed {seed}, cut at {cut}");
            }
            let every: Vec<usize> = (0..stream.len()).collect();
            assert_eq!(read(&stream, &every), expected, "seed {seed}, byte by byte");
        }
    }

    #[test]
    fn refusals_and_inline_commands_are_the_same_however_the_stream_is_cut() {
        let cases: [(&[u8], usize, Option<&str>); 14] = [
            (b"PING\r\n", 1, None),
            (b"  PING\n\r\n\nECHO \"a\\x41\\n\" 'b c'\r\n", 4, None),
            (b"ECHO \"a\r\n", 0, Some("unbalanced quotes in request")),
            (b"ECHO \"a\"b\r\n", 0, Some("unbalanced quotes in request")),
            (b"*-1\r\n*0\r\nPING\r\n", 3, None),
            (b"*x\r\n", 0, Some("invalid multibulk length")),
            (b"*01\r\n", 0, Some("invalid multibulk length")),
            (b"*2147483648\r\n", 0, Some("invalid multibulk length")),
            (b"*1\r\n:4\r\n", 0, Some("expected '$', got ':'")),
            (b"*1\r\n$-1\r\n", 0, Some("invalid bulk length")),
            (b"*1\r\n$536870913\r\n", 0, Some("invalid bulk length")),
            (b"*1\r\n$4\r\nPING\r\n*1\r\n$ 4\r\n", 1, Some("invalid bulk length")),
            (b"*1\r\n$+4\r\n", 0, Some("invalid bulk length")),
            (b"*1\r\n$2\r\nabXX*1\r\n\r\r\n", 1, Some("expected '$', got ' '")),
        ];
        for (stream, requests, refusal) in cases {
            let whole = read(stream, &[]);
            assert_eq!((whole.0.len(), whole.1.as_deref()), (requests, refusal), "{stream:?}");
            for cut in 0..stream.len() {
                assert_eq!(read(stream, &[cut]), whole, "{stream:?} cut at {cut}");
            }
        }
        let (requests, _) = read(cases[1].0, &[]);
        assert_eq!(requests[3], [&b"ECHO"[..], b"aA\n", b"b c"]);
    }

    #[test]
    fn the_line_before_a_short_argument_is_read_as_any_other() {
        let bytes = b"$*0123456789:/ -\r\n\0\xff";
        let picked = |n: usize| bytes[n % bytes.len()];
        for n in 0..bytes.len().pow(4) {
            let (a, b) = (bytes.len(), bytes.len() * bytes.len());
            let line = [b'$', picked(n), picked(n / a), picked(n / b), picked(n / b / a), b'\n'];
            for dollar in [true, n % 31 != 0] {
                let line =
                    if dollar { line } else { [b'*', line[1], line[2], line[3], line[4], b'\n'] };
                let end = line.iter().position(|&byte| byte == b'\r').filter(|_| dollar);
                let length = end.and_then(|end| integer(&line[1..end])).filter(|&n| n >= 0);
                let expected = length.map(|length| (end.unwrap_or(0) + 2, length as usize));
                assert_eq!(short(&line), expected, "{line:?}");
            }
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused_at_64_kib() {
        for (head, refusal) in [
            ("", "too big inline request"),
            ("*", "too big mbulk count string"),
            ("*1\r\n$", "too big bulk count string"),
        ] {
            let stream = [head.as_bytes(), &[b'1'; LONGEST_LINE + 1]].concat();
            assert_eq!(read(&stream, &[]).1.as_deref(), Some(refusal));
            assert_eq!(read(&stream[..LONGEST_LINE - 8], &[]), (vec![], None));
        }
    }

    #[test]
    fn before_a_password_few_and_short_arguments_are_taken() {
        let strict = Limits { strict: true, ..LIMITS };
        let parse = |text: &[u8]| Parser::default().parse(text, &strict).err();
        assert_eq!(parse(b"*11\r\n").as_deref(), Some("unauthenticated multibulk length"));
        assert_eq!(parse(b"*1\r\n$16385\r\n").as_deref(), Some("unauthenticated bulk length"));
        assert_eq!(parse(b"*10\r\n$16384\r\n"), None);
    }
}
