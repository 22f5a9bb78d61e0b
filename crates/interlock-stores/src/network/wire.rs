//! Requests and replies of the Redis protocol, as bytes.

use std::io::Write;

use crate::message::Message;
use crate::network::settings::Protocol;

/// Appends a request of these arguments.
pub fn request(bytes: &mut Vec<u8>, arguments: &[&[u8]]) {
    head(bytes, b'*', arguments.len());
    for argument in arguments {
        head(bytes, b'$', argument.len());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Appends the request that carries a message.
pub fn carry(bytes: &mut Vec<u8>, protocol: Protocol, message: &Message<'_>) {
    let Message { topic, payload, time, origin, number } = *message;
    if protocol == Protocol::Publish {
        return request(bytes, &[b"PUBLISH", topic, payload]);
    }
    let (mut digits, mut more, mut name) = ([0; 20], [0; 20], [0; 32]);
    let (number, time) = (decimal(&mut digits, number), decimal(&mut more, time));
    let origin = hexadecimal(&mut name, origin);
    match protocol {
        Protocol::Relay => request(bytes, &[b"RELAY", origin, number, time, topic, payload]),
        _ => request(
            bytes,
            &[
                b"XADD", topic, b"*", b"payload", payload, b"time", time, b"origin", origin,
                b"number", number,
            ],
        ),
    }
}

fn head(bytes: &mut Vec<u8>, kind: u8, length: usize) {
    bytes.push(kind);
    bytes.extend_from_slice(decimal(&mut [0; 20], length as u64));
    bytes.extend_from_slice(b"\r\n");
}

fn decimal(digits: &mut [u8; 20], mut value: u64) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &digits[at..];
        }
    }
}

/// The name of an origin, in as many letters for each.
pub fn hexadecimal(letters: &mut [u8; 32], origin: u128) -> &[u8] {
    let mut room = &mut letters[..];
    // The array has room for all digits.
    let _ = write!(room, "{origin:032x}");
    letters
}

/// An answer of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    Refused(String),
}

/// The reason why bytes are not a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbage;

/// Returns the reply at the beginning of these bytes and its length; `None`: it is not whole yet.
pub fn reply(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Garbage> {
    let end = bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n');
    let Some(end) = end else {
        let is_known = bytes.first().is_none_or(|kind| b"+-:$".contains(kind));
        return if is_known && bytes.len() < LONGEST_LINE { Ok(None) } else { Err(Garbage) };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(Garbage)?;
    let (kind, text) = line.split_first().ok_or(Garbage)?;
    match kind {
        b'+' => Ok(Some((Reply::Done, end + 1))),
        b':' => {
            let digits = text.strip_prefix(b"-").unwrap_or(text);
            let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            is_number.then_some(Some((Reply::Done, end + 1))).ok_or(Garbage)
        }
        b'-' => {
            let text = String::from_utf8_lossy(text).into_owned();
            Ok(Some((Reply::Refused(text), end + 1)))
        }
        // The id of XADD.
        b'$' => {
            let length = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            let length: usize = length.filter(|length| *length < LONGEST_LINE).ok_or(Garbage)?;
            let whole = end + 1 + length + 2;
            match bytes.get(end + 1 + length..whole) {
                Some(b"\r\n") => Ok(Some((Reply::Done, whole))),
                Some(_) => Err(Garbage),
                None => Ok(None),
            }
        }
        _ => Err(Garbage),
    }
}

/// Bytes of a reply: no upstream has more to say.
const LONGEST_LINE: usize = 64 << 10;
