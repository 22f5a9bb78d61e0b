//! Writes replies in RESP2 or RESP3: one call for each type.

/// Appends replies to a buffer.
pub struct Writer<'a> {
    pub out: &'a mut Vec<u8>,
    pub resp3: bool,
}

impl Writer<'_> {
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// Writes an error; `text` begins with its code. A line break would end the reply, so it is
    /// replaced by a space.
    pub fn error(&mut self, text: &[u8]) {
        self.out.push(b'-');
        let one_line = |&byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
        self.out.extend(text.iter().map(one_line));
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    /// Writes a double; `digits` is the number as text.
    pub fn double(&mut self, digits: &str) {
        if self.resp3 {
            self.line(b',', digits.as_bytes());
        } else {
            self.bulk(digits.as_bytes());
        }
    }

    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        bulk(self.out, bytes);
    }

    /// Writes a number as a bulk string.
    #[inline]
    pub fn bulk_number(&mut self, value: i64) {
        digits(value, |digits| bulk(self.out, digits));
    }

    /// Writes text for humans: INFO, CLIENT LIST.
    pub fn verbatim(&mut self, text: &str) {
        if self.resp3 {
            self.number(b'=', text.len() as i64 + 4);
            self.out.extend_from_slice(b"txt:");
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    #[inline]
    pub fn array(&mut self, length: usize) {
        self.number(b'*', length as i64);
    }

    pub fn set(&mut self, length: usize) {
        self.number(if self.resp3 { b'~' } else { b'*' }, length as i64);
    }

    #[inline]
    pub fn map(&mut self, pairs: usize) {
        if self.resp3 {
            self.number(b'%', pairs as i64);
        } else {
            self.number(b'*', pairs as i64 * 2);
        }
    }

    /// Writes the header of a push message, which the client did not ask for.
    pub fn push(&mut self, length: usize) {
        self.number(if self.resp3 { b'>' } else { b'*' }, length as i64);
    }

    #[inline]
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn number(&mut self, kind: u8, value: i64) {
        self.out.push(kind);
        decimal(self.out, value);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[inline]
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    decimal(out, bytes.len() as i64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a decimal number without `format!`, which costs more than a whole short reply.
#[inline]
pub fn decimal(out: &mut Vec<u8>, value: i64) {
    if (0..10).contains(&value) {
        return out.push(b'0' + value as u8);
    }
    digits(value, |digits| out.extend_from_slice(digits));
}

/// Calls `call` with the number's decimal digits.
#[inline]
fn digits(value: i64, call: impl FnOnce(&[u8])) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut left = value.unsigned_abs();
    while left > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    if value < 0 {
        first -= 1;
        digits[first] = b'-';
    }
    call(&digits[first..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(resp3: bool, write: impl Fn(&mut Writer<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Writer { out: &mut out, resp3 });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn types_missing_in_resp2_are_sent_as_redis_does() {
        let all = |w: &mut Writer<'_>| {
            w.null();
            w.map(2);
            w.set(3);
            w.push(3);
            w.verbatim("ab");
        };
        assert_eq!(written(false, all), "$-1\r\n*4\r\n*3\r\n*3\r\n$2\r\nab\r\n");
        assert_eq!(written(true, all), "_\r\n%2\r\n~3\r\n>3\r\n=6\r\ntxt:ab\r\n");
    }

    #[test]
    fn an_error_is_one_line_whatever_the_client_sent() {
        assert_eq!(written(false, |w| w.error(b"ERR a\r\n+OK")), "-ERR a  +OK\r\n");
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for value in [0, 9, 10, -1, -10, 123_456, i64::MAX, i64::MIN] {
            assert_eq!(written(false, |w| w.integer(value)), format!(":{value}\r\n"));
            let text = value.to_string();
            let bulk = format!("${}\r\n{text}\r\n", text.len());
            assert_eq!(written(false, |w| w.bulk_number(value)), bulk);
        }
    }
}
