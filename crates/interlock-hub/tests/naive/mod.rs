//! A parser of whole streams, written for the eye: what Redis 7.0.15 reads, in its words, and one thing
//! that the hub alone refuses.

/// Requests, and what ended the stream before its end.
pub type Outcome = (Vec<Vec<Vec<u8>>>, Option<String>);

/// Reads a stream shorter than 64 KiB, where no line can be too long.
pub fn read(mut stream: &[u8], longest: u64) -> Outcome {
    let mut requests = Vec::new();
    while !stream.is_empty() {
        let request =
            if stream[0] == b'*' { array(&mut stream, longest) } else { inline(&mut stream) };
        match request {
            Ok(Some(request)) => requests.push(request),
            Ok(None) => break,
            Err(refusal) => return (requests, Some(refusal)),
        }
    }
    (requests, None)
}

/// `None`: there is not all of it.
type Request = Result<Option<Vec<Vec<u8>>>, String>;

fn array(stream: &mut &[u8], longest: u64) -> Request {
    let Some(head) = line(stream) else { return Ok(None) };
    let count = number(&head[1..]).filter(|&count| count <= i32::MAX.into());
    let count = count.ok_or("invalid multibulk length")?;
    let mut words = Vec::new();
    for _ in 0..count.max(0) {
        let Some(head) = line(stream) else { return Ok(None) };
        // An empty line has its own end in the place of the sign.
        let sign = head.first().copied().unwrap_or(b' ');
        if sign != b'$' {
            let shown = if sign == b'\n' { ' ' } else { char::from(sign) };
            return Err(format!("expected '$', got '{shown}'"));
        }
        let length = number(&head[1..]).filter(|&length| length >= 0 && length as u64 <= longest);
        let length = length.ok_or("invalid bulk length")? as usize;
        if stream.len() < length + 2 {
            return Ok(None);
        }
        words.push(stream[..length].to_vec());
        *stream = &stream[length + 2..];
    }
    Ok(Some(words))
}

/// Up to a carriage return, with whatever byte follows it.
fn line<'a>(stream: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = stream.iter().position(|&byte| byte == b'\r')?;
    let found = &stream[..end];
    *stream = stream.get(end + 2..)?;
    Some(found)
}

/// Reads a number as the standard library does, less what it forgives.
fn number(text: &[u8]) -> Option<i64> {
    let value: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.to_string().as_bytes() == text).then_some(value)
}

fn inline(stream: &mut &[u8]) -> Request {
    // The hub's own: the beginning of TLS, which in Redis waits for the end of a line.
    if stream.starts_with(&[0x16, 3]) {
        return Err("this port does not speak TLS".into());
    }
    let Some(end) = stream.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
    let text = stream[..end].strip_suffix(b"\r").unwrap_or(&stream[..end]);
    *stream = &stream[end + 1..];
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let unbalanced = || "unbalanced quotes in request".to_owned();
    words(text).ok_or_else(unbalanced).map(Some)
}

/// One byte after the other, with a state for where it stands.
fn words(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Vec<u8>>, 0);
    let mut at = 0;
    while at < text.len() {
        let (byte, next) = (text[at], text.get(at + 1).copied());
        at += 1;
        let Some(open) = &mut word else {
            if !space(byte) {
                word = Some(Vec::new());
                at -= 1;
            }
            continue;
        };
        match (quote, byte) {
            (0, b'\n' | b'\r' | b'\t' | b' ') => words.extend(word.take()),
            (0, b'"' | b'\'') => quote = byte,
            (b'"', b'\\') if next.is_some() => {
                let digits = text.get(at + 1..at + 3).filter(|_| next == Some(b'x'));
                let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
                let digits = digits.filter(|text| text.bytes().all(|d| d.is_ascii_hexdigit()));
                if let Some(digits) = digits {
                    open.push(u8::from_str_radix(digits, 16).ok()?);
                    at += 3;
                } else {
                    open.push(escaped(next?));
                    at += 1;
                }
            }
            (b'\'', b'\\') if next == Some(b'\'') => {
                open.push(b'\'');
                at += 1;
            }
            (closing, byte) if closing == byte && quote != 0 => {
                if next.is_some_and(|next| !space(next)) {
                    return None;
                }
                quote = 0;
                words.extend(word.take());
            }
            _ => open.push(byte),
        }
    }
    words.extend(word);
    (quote == 0).then_some(words)
}

fn escaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}
