//! The declared concurrency limits of a queue (clause 26).
//!
//! ```
//! use interlock_core::queue::types::limits::Limits;
//!
//! let limits = Limits::parse(b"tenant:*=2\x1fbank=4").unwrap();
//! assert_eq!(limits.text(), "bank=4\x1ftenant:*=2");
//! assert_eq!([limits.most(b"bank"), limits.most(b"tenant:7")], [Some(4), Some(2)]);
//! assert_eq!(limits.most(b"banks"), None);
//! ```

use crate::queue::schedules::bytes::{Damaged, Reader};

/// The byte between names, and between the entries of a declaration.
pub const BETWEEN: u8 = 0x1f;
/// Largest number of a limit.
const MOST: u64 = 1_000_000_000;

/// Names and prefixes, each with the number of messages that may be leased at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// By name; a prefix ends in `*`.
    entries: Vec<(Box<[u8]>, u32)>,
}

impl Limits {
    /// Reads a declaration: entries `NAME=N`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let mut entries = Vec::new();
        if text.is_empty() {
            return Ok(Limits { entries });
        }
        for entry in text.split(|&byte| byte == BETWEEN) {
            let Some(at) = entry.iter().rposition(|&byte| byte == b'=') else {
                return Err("has an entry without =");
            };
            let (name, digits) = (&entry[..at], &entry[at + 1..]);
            if name.is_empty() {
                return Err("has an empty name");
            }
            let Some(most) = whole(digits).filter(|&most| (1..=MOST).contains(&most)) else {
                return Err("has a number that is not 1 to 1,000,000,000");
            };
            entries.push((name.into(), most as u32));
        }
        entries.sort();
        if entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("has a name twice");
        }
        Ok(Limits { entries })
    }

    /// Like `parse`, from a dump.
    pub fn restored(from: &mut Reader<'_>, wanted: &'static str) -> Result<Self, Damaged> {
        let text = from.string(wanted)?;
        Limits::parse(text).or_else(|_| from.damaged(wanted))
    }

    /// Returns the declaration as text: sorted by name. Bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Returns the declaration as bytes, for dumps and replies.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (name, most) in &self.entries {
            if !text.is_empty() {
                text.push(BETWEEN);
            }
            text.extend_from_slice(name);
            text.push(b'=');
            text.extend_from_slice(most.to_string().as_bytes());
        }
        text
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number for a name: that of the name itself, or else of its longest prefix.
    /// `None`: the name is not limited.
    pub fn most(&self, name: &[u8]) -> Option<u32> {
        let found = |key: &[u8]| {
            let at = self.entries.binary_search_by(|(name, _)| (**name).cmp(key)).ok()?;
            Some(self.entries[at].1)
        };
        if name.last() != Some(&b'*') {
            if let Some(most) = found(name) {
                return Some(most);
            }
        }
        let prefixes = self.entries.iter().filter_map(|(key, most)| {
            let prefix = key.strip_suffix(b"*")?;
            name.starts_with(prefix).then_some((prefix.len(), *most))
        });
        prefixes.max().map(|(_, most)| most)
    }
}

fn whole(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()
}

/// The names of a message, sorted, each once. `None`: a name is empty, or there is none.
pub fn names_of(text: &[u8]) -> Option<Vec<&[u8]>> {
    let mut names: Vec<&[u8]> = text.split(|&byte| byte == BETWEEN).collect();
    if names.iter().any(|name| name.is_empty()) {
        return None;
    }
    names.sort_unstable();
    names.dedup();
    Some(names)
}

/// The names joined again, as they are stored and returned.
pub fn joined(names: &[&[u8]]) -> Vec<u8> {
    names.join(&BETWEEN)
}

#[cfg(test)]
mod tests {
    use crate::queue::types::limits::*;

    #[test]
    fn an_exact_name_counts_before_the_longest_prefix() {
        let limits = Limits::parse(b"*=9\x1fa*=3\x1fab=1\x1fab*=2").unwrap();
        let most = [b"ab".as_slice(), b"abc", b"a", b"b", b"ab*"].map(|name| limits.most(name));
        assert_eq!(most, [1, 2, 3, 9, 2].map(Some));
    }

    #[test]
    fn a_malformed_declaration_is_refused_with_the_reason() {
        let bad = [b"bank".as_slice(), b"=1", b"bank=0", b"bank=", b"bank=-1", b"bank=+1"];
        assert!(bad.iter().all(|text| Limits::parse(text).is_err()));
        assert_eq!(Limits::parse(b"a=1\x1fa=2"), Err("has a name twice"));
        assert_eq!(Limits::parse(b"a=b=007").unwrap().text(), "a=b=7");
        assert!(Limits::parse(b"").unwrap().is_empty());
    }

    #[test]
    fn the_names_of_a_message_are_sorted_and_each_is_kept_once() {
        let names = names_of(b"b\x1fa\x1fb").unwrap();
        assert_eq!(joined(&names), b"a\x1fb");
        assert!(names_of(b"").is_none() && names_of(b"a\x1f").is_none());
    }
}
