//! The errors of all attempts of a message, kept as one text: the newest first, each with its attempt and time.

use interlock_core::queue::types::Time;

use crate::values::words::{to_bytes, to_text};
use crate::wire::limits::MAX_HISTORY;

/// Between two entries.
const ENTRY: u8 = 0x1e;
/// Between the text, the attempt and the time of an entry.
const PART: u8 = 0x1f;

/// The error of an attempt before those that are kept. Older entries that have no room go whole.
pub fn join(before: Option<&str>, error: &str, attempt: u32, time: Time) -> Box<str> {
    let (before, error) = (before.map(to_bytes).unwrap_or_default(), to_bytes(error));
    let mut joined = Vec::with_capacity(error.len() + before.len() + 32);
    joined.extend(error.iter().copied().map(plain));
    for part in [u64::from(attempt), time] {
        joined.push(PART);
        joined.extend_from_slice(part.to_string().as_bytes());
    }
    let room = MAX_HISTORY.saturating_sub(joined.len() + 1);
    let kept = match before.get(..=room) {
        None => before.len(),
        Some(begin) => begin.iter().rposition(|&byte| byte == ENTRY).unwrap_or(0),
    };
    if kept > 0 {
        joined.push(ENTRY);
        joined.extend_from_slice(&before[..kept]);
    }
    to_text(&joined).into()
}

/// A byte of an error, which must not end it.
pub fn plain(byte: u8) -> u8 {
    if matches!(byte, ENTRY | PART) {
        return b' ';
    }
    byte
}

/// The text of the newest entry.
pub fn newest(history: &[u8]) -> &[u8] {
    let end = history.iter().position(|byte| matches!(*byte, ENTRY | PART));
    &history[..end.unwrap_or(history.len())]
}

/// Like `newest`, of a history as text.
pub fn newest_text(history: &str) -> &str {
    let end = history.find([char::from(ENTRY), char::from(PART)]);
    &history[..end.unwrap_or(history.len())]
}

#[cfg(test)]
mod tests {
    use crate::values::history::*;

    fn after(errors: &[&[u8]]) -> Vec<u8> {
        let mut kept: Option<Box<str>> = None;
        for (n, error) in errors.iter().enumerate() {
            kept = Some(join(kept.as_deref(), &to_text(error), n as u32 + 1, 1000 + n as u64));
        }
        to_bytes(&kept.unwrap()).into_owned()
    }

    #[test]
    fn the_newest_error_is_first_and_no_text_ends_an_entry() {
        let kept = after(&[b"plain", b"\xff\x1e\x1f", b"\0last"]);
        assert_eq!(kept, b"\0last\x1f3\x1f1002\x1e\xff  \x1f2\x1f1001\x1eplain\x1f1\x1f1000");
        assert_eq!(newest(&kept), b"\0last");
        assert_eq!(newest(b"of an older release"), b"of an older release");
    }

    #[test]
    fn as_many_whole_entries_are_kept_as_fit() {
        for length in [0, 1, 1000, 4080, 4089, 4090, 4096] {
            let text = vec![b'x'; length];
            let mut kept: Option<Box<str>> = None;
            for attempt in 1..2000 {
                kept = Some(join(kept.as_deref(), &to_text(&text), attempt, 1_000_000));
            }
            let kept = kept.unwrap();
            let entries: Vec<&str> = kept.split('\x1e').collect();
            let expected: Vec<String> = (1..2000u32)
                .rev()
                .scan(0, |sum, attempt| {
                    let entry = format!("{}\x1f{attempt}\x1f1000000", "x".repeat(length));
                    *sum += entry.len() + usize::from(*sum > 0);
                    (*sum <= MAX_HISTORY).then_some(entry)
                })
                .collect();
            assert_eq!(entries, expected, "{length}");
        }
    }
}
