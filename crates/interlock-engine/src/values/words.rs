//! Any bytes, where the scheduler keeps text: dedup strings and errors.

use std::borrow::Cow;

/// Marks text whose bytes are not UTF-8, or begin with the mark.
const MARK: char = '\0';

/// Each string of bytes has one text, and no two have the same.
pub fn to_text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with(MARK) => Cow::Borrowed(text),
        _ => Cow::Owned(std::iter::once(MARK).chain(bytes.iter().map(|&b| b as char)).collect()),
    }
}

pub fn to_bytes(text: &str) -> Cow<'_, [u8]> {
    match text.strip_prefix(MARK) {
        Some(rest) => Cow::Owned(rest.chars().map(|c| c as u8).collect()),
        None => Cow::Borrowed(text.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use crate::values::words::*;

    #[test]
    fn all_bytes_survive_encoding_as_words() {
        let every: Vec<u8> = (0..=255).collect();
        for bytes in [&every[..], b"", b"plain", b"\0", b"\0plain", b"\xff", "größe".as_bytes()] {
            assert_eq!(to_bytes(&to_text(bytes)), bytes);
        }
        assert_ne!(to_text(b"\xff"), to_text("\0ÿ".as_bytes()));
    }
}
