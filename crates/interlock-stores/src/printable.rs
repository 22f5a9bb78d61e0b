//! Escapes foreign text for a log.

use std::borrow::Cow;

/// Returns text without what could move a cursor, end a line or reorder it: that is escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_odd) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        if is_odd(char) {
            out.extend(char.escape_default());
        } else {
            out.push(char);
        }
    }
    Cow::Owned(out)
}

/// Control characters, those that order text by direction, and those that take no room.
fn is_odd(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use crate::printable::*;

    #[test]
    fn only_control_characters_are_escaped() {
        for (text, expected) in [
            ("ERR no: größer 值", "ERR no: größer 值"),
            ("a\x1b[2Jb\r\n", "a\\u{1b}[2Jb\\r\\n"),
            ("\u{9b}31m\u{202e}x\u{7f}", "\\u{9b}31m\\u{202e}x\\u{7f}"),
        ] {
            assert_eq!(printable(text), expected);
        }
    }
}
