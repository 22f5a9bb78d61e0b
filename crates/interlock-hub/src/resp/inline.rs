//! Inline commands: words with quotes and escapes, as typed into telnet.

/// Splits `line` into words as Redis does; false where quotes do not balance.
pub fn split(line: &[u8], words: &mut Vec<u8>, ranges: &mut Vec<(u32, u32)>) -> bool {
    // Redis reads the line as a C string.
    let line = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let mut rest = line;
    loop {
        while let [first, tail @ ..] = rest {
            if !is_space(*first) {
                break;
            }
            rest = tail;
        }
        if rest.is_empty() {
            return true;
        }
        let start = words.len() as u32;
        let Some(tail) = word(rest, words) else { return false };
        rest = tail;
        ranges.push((start, words.len() as u32));
    }
}

/// Appends one word and gives what is behind it.
fn word<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut quote = None;
    loop {
        match (quote, rest) {
            (None, [] | [b'\n' | b'\r' | b'\t' | b' ', ..]) => return Some(rest),
            (None, [open @ (b'"' | b'\''), tail @ ..]) => (quote, rest) = (Some(*open), tail),
            (Some(_), []) => return None,
            (Some(b'"'), [b'\\', b'x', high, low, tail @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                out.push(nibble(*high) << 4 | nibble(*low));
                rest = tail;
            }
            (Some(b'"'), [b'\\', escaped, tail @ ..]) => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = tail;
            }
            (Some(b'\''), [b'\\', b'\'', tail @ ..]) => {
                out.push(b'\'');
                rest = tail;
            }
            // A closing quote ends the word: a space or nothing must follow.
            (Some(open), [byte, tail @ ..]) if *byte == open => {
                return tail.first().is_none_or(|&next| is_space(next)).then_some(tail);
            }
            (_, [byte, tail @ ..]) => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}
