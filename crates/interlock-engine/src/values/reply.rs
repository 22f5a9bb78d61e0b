//! Replies, as RESP2 and RESP3 both have them: flat arrays of strings, and errors.

/// Begins an array of `count` strings.
#[inline]
pub fn array(out: &mut Vec<u8>, length: usize) {
    line(out, b'*', length as u64);
}

#[inline]
pub fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        if bytes.len() <= 16 {
            return short(out, bytes.len(), first, last);
        }
    }
    match bytes.len() {
        length @ ..10 => out.extend_from_slice(&[b'$', b'0' + length as u8, b'\r', b'\n']),
        length @ 10..100 => {
            let [tens, ones] = PAIRS[length];
            out.extend_from_slice(&[b'$', tens, ones, b'\r', b'\n']);
        }
        length => line(out, b'$', length as u64),
    }
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A string of 8 to 16 bytes, as many keys are: its first and last eight. A call that copies so few bytes
/// costs more than they do.
#[inline]
fn short(out: &mut Vec<u8>, length: usize, first: &[u8; 8], last: &[u8; 8]) {
    let at = out.len();
    out.extend_from_slice(b"$16\r\n................\r\n");
    let room: &mut [u8; 23] = out[at..].first_chunk_mut().expect("as just appended");
    let head = if length < 10 {
        room[1..4].copy_from_slice(&[b'0' + length as u8, b'\r', b'\n']);
        4
    } else {
        room[2] = b'0' + (length - 10) as u8;
        5
    };
    let end = head + length;
    room[head..head + 8].copy_from_slice(first);
    room[end - 8..end].copy_from_slice(last);
    room[end..end + 2].copy_from_slice(b"\r\n");
    out.truncate(at + end + 2);
}

/// An empty string.
#[inline]
pub fn empty(out: &mut Vec<u8>) {
    out.extend_from_slice(b"$0\r\n\r\n");
}

/// A number below ten.
#[inline]
pub fn digit(out: &mut Vec<u8>, value: u8) {
    out.extend_from_slice(&[b'$', b'1', b'\r', b'\n', b'0' + value, b'\r', b'\n']);
}

#[inline]
pub fn number(out: &mut Vec<u8>, value: u64) {
    if value < 10 {
        return digit(out, value as u8);
    }
    if let Some(digits) = sixteen(value) {
        let mut string = *b"$16\r\n................\r\n";
        string[5..21].copy_from_slice(&digits);
        return out.extend_from_slice(&string);
    }
    let mut digits = [0; 20];
    text(out, decimal(value, &mut digits));
}

/// Two numbers below ten.
#[inline]
pub fn digits(out: &mut Vec<u8>, first: u8, second: u8) {
    let at = out.len();
    out.extend_from_slice(b"$1\r\n0\r\n$1\r\n0\r\n");
    set_digits(&mut out[at..], first, second);
}

/// Changes what `digits` has written.
#[inline]
pub fn set_digits(written: &mut [u8], first: u8, second: u8) {
    (written[4], written[11]) = (b'0' + first, b'0' + second);
}

/// Appends what a put answers of a message: its id, and the outcome, a digit.
#[inline]
pub fn placed(out: &mut Vec<u8>, id: u64, outcome: u8) {
    if let Some(digits) = sixteen(id) {
        let mut strings = *b"$16\r\n................\r\n$1\r\n0\r\n";
        strings[5..21].copy_from_slice(&digits);
        strings[27] += outcome;
        return out.extend_from_slice(&strings);
    }
    number(out, id);
    digit(out, outcome);
}

/// Appends what a lease begins a message with: its id, its sequence if that is another number, its
/// attempt, with a plus before it if it is a rider of its run, and a minus if it is quiet.
#[inline]
pub fn message(
    out: &mut Vec<u8>,
    id: u64,
    sequence: Option<u64>,
    attempt: u32,
    marks: (bool, bool),
) {
    let usual = (false, false);
    if let (Some(digits), None, 0..10, true) = (sixteen(id), sequence, attempt, marks == usual) {
        let mut strings = *b"$16\r\n................\r\n$0\r\n\r\n$1\r\n0\r\n";
        strings[5..21].copy_from_slice(&digits);
        strings[33] += attempt as u8;
        return out.extend_from_slice(&strings);
    }
    number(out, id);
    match sequence {
        Some(sequence) => number(out, sequence),
        None => empty(out),
    }
    match marks {
        (true, true) => text(out, format!("+-{attempt}").as_bytes()),
        (true, false) => text(out, format!("+{attempt}").as_bytes()),
        (false, true) => text(out, format!("-{attempt}").as_bytes()),
        (false, false) => number(out, attempt.into()),
    }
}

/// The digits of a number that has sixteen: of a time in µs, and so of ids and tokens.
#[inline]
fn sixteen(value: u64) -> Option<[u8; 16]> {
    if !(1_000_000_000_000_000..10_000_000_000_000_000).contains(&value) {
        return None;
    }
    let mut digits = [0; 16];
    let (high, low) = ((value / 100_000_000) as u32, (value % 100_000_000) as u32);
    digits[..8].copy_from_slice(&eight(high));
    digits[8..].copy_from_slice(&eight(low));
    Some(digits)
}

/// The eight digits of a number below 10^8, all at once in the parts of one word.
#[inline]
fn eight(value: u32) -> [u8; 8] {
    let value = u64::from(value);
    // Two parts below 10,000, then four below 100, then eight below ten; the first digits are lowest. A
    // part is divided by a multiplication and a shift, which are exact as far as it goes.
    let halves = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007F_0000_007F;
    let pairs = hundreds | ((halves - 100 * hundreds) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000F_000F_000F_000F;
    let ones = pairs - 10 * tens;
    (tens | (ones << 8) | 0x3030_3030_3030_3030).to_le_bytes()
}

pub fn optional(out: &mut Vec<u8>, value: Option<u64>) {
    match value {
        Some(value) => number(out, value),
        None => text(out, b""),
    }
}

/// A whole reply of these strings.
pub fn texts(out: &mut Vec<u8>, all: &[&[u8]]) {
    array(out, all.len());
    all.iter().for_each(|one| text(out, one));
}

/// `what` begins with the error's code.
pub fn error(out: &mut Vec<u8>, what: &str) {
    out.push(b'-');
    // A line break would end the reply.
    out.extend(what.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn line(out: &mut Vec<u8>, kind: u8, value: u64) {
    let mut digits = [0; 20];
    out.push(kind);
    out.extend_from_slice(decimal(value, &mut digits));
    out.extend_from_slice(b"\r\n");
}

#[inline]
pub fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    while value >= 100 {
        // Two at a time.
        let two = (value % 100) as usize;
        value /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[two]);
    }
    if value >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[value as usize]);
    } else {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    &digits[at..]
}

/// The digits of 00 to 99.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// A reply taken apart again: its strings, or the text of the error.
pub fn parse(reply: &[u8]) -> Result<Vec<&[u8]>, String> {
    let end_of = |from: usize| {
        let at = reply[from..].iter().position(|&byte| byte == b'\r');
        from + at.expect("a line of our own ends")
    };
    let whole = |bytes: &[u8]| -> usize {
        std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).expect("our own number")
    };
    if reply[0] == b'-' {
        return Err(String::from_utf8_lossy(&reply[1..end_of(0)]).into_owned());
    }
    let mut at = end_of(0);
    let count = whole(&reply[1..at]);
    let mut strings = Vec::with_capacity(count);
    for _ in 0..count {
        let from = at + 2;
        let end = end_of(from);
        let length = whole(&reply[from + 1..end]);
        strings.push(&reply[end + 2..end + 2 + length]);
        at = end + 2 + length;
    }
    Ok(strings)
}

#[cfg(test)]
mod tests {
    use crate::values::reply::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        let mut rng = fastrand::Rng::with_seed(3);
        let edges = [0, 9, 10, 99, 100, 101, 999, 1000, u64::MAX];
        let random = (0..10_000).map(|_| rng.u64(..) >> rng.u32(..64));
        for value in edges.into_iter().chain(random.collect::<Vec<_>>()) {
            assert_eq!(decimal(value, &mut [0; 20]), value.to_string().as_bytes());
        }
        let ids = (0..10_000).map(|_| rng.u64(1_000_000_000_000_000..10_000_000_000_000_000));
        let borders = [999_999_999_999_999, 1_000_000_000_000_000, 9_999_999_999_999_999];
        for value in edges.into_iter().chain(borders).chain(ids.collect::<Vec<_>>()) {
            let (mut whole, mut parts) = (Vec::new(), Vec::new());
            number(&mut whole, value);
            text(&mut parts, value.to_string().as_bytes());
            assert_eq!(whole, parts);
        }
    }

    #[test]
    fn a_reply_is_parsed_whatever_its_strings_contain() {
        let mut out = Vec::new();
        texts(&mut out, &[b"", b"\r\n$3\r\n", b"\xff", b"plain"]);
        assert_eq!(parse(&out).unwrap(), [&b""[..], b"\r\n$3\r\n", b"\xff", b"plain"]);
        for length in 0..120 {
            let string: Vec<u8> = (0..length).collect();
            let mut out = Vec::new();
            texts(&mut out, &[&string, b"behind"]);
            assert_eq!(parse(&out).unwrap(), [&string[..], b"behind"]);
        }
        let mut out = Vec::new();
        error(&mut out, "FULL il1_put: no\r\nroom");
        assert_eq!(parse(&out).unwrap_err(), "FULL il1_put: no  room");
    }
}
