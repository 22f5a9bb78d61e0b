//! The declared values of names: concurrency limits (clause 26) and rates (clause 27) of limit names, weights of
//! groups (clause 28).
//!
//! ```
//! use interlock_core::queue::types::limits::{Limits, Rate, Weights};
//!
//! let limits = Limits::parse(b"tenant:*=2\x1fbank=4\x1fapi=10/1000000:20").unwrap();
//! assert_eq!(limits.bytes(), b"api=10/1000000:20\x1fbank=4\x1ftenant:*=2");
//! assert_eq!([limits.most(b"bank"), limits.most(b"tenant:7")], [Some(4), Some(2)]);
//! assert_eq!(limits.rate(b"api"), Some(Rate { interval: 100_000, tolerance: 1_900_000 }));
//! assert_eq!((limits.most(b"banks"), limits.rate(b"bank")), (None, None));
//!
//! let weights = Weights::parse(b"free:*=2\x1facme=3").unwrap();
//! let of = [b"acme".as_slice(), b"free:7", b"zoo"].map(|group| weights.weight(group));
//! assert_eq!(of, [3, 2, 1]);
//! ```

use std::fmt::{self, Display, Formatter};

use crate::limits::MAX_WEIGHT;
use crate::queue::schedules::bytes::{Damaged, Reader};
use crate::queue::types::Time;

/// The byte between names, and between the entries of a declaration.
pub const BETWEEN: u8 = 0x1f;
/// Largest number of a limit, and largest burst of a rate.
const MOST: u64 = 1_000_000_000;
/// Longest time that a burst may take to come back, and longest time of a rate, µs.
const LONGEST: u64 = 1_000_000_000_000_000;

/// A value that is declared for a name.
pub trait Value: Copy + Display + Ord {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// What is wrong with the entry that has it.
    fn parse(text: &[u8]) -> Result<Self, &'static str>;
}

/// The limit of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Number of messages that may be leased at once.
    Most(u32),
    /// Number of grants in a time, µs, and how many of them at once.
    Rate { count: u32, per: u64, burst: u32 },
}

/// A rate in the form of the generic cell rate algorithm, µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Time that one grant takes from the rate, rounded up.
    pub interval: u64,
    /// Time by which grants may be ahead of an even spacing: the interval of a burst without its first.
    pub tolerance: u64,
}

impl Rate {
    /// Returns the number of grants at once after a pause.
    pub fn burst(self) -> u64 {
        self.tolerance / self.interval + 1
    }

    /// Returns the latest of the times until which a rate is used up that this rate can cause at `now`.
    pub fn latest(self, now: Time) -> Time {
        now.saturating_add(self.tolerance + self.interval)
    }
}

impl Value for Limit {
    fn parse(text: &[u8]) -> Result<Self, &'static str> {
        if !text.contains(&b'/') {
            let most = whole(text).filter(|&most| (1..=MOST).contains(&most));
            return most
                .map(|most| Limit::Most(most as u32))
                .ok_or("has a number that is not 1 to 1,000,000,000");
        }
        let rate = || {
            let (count, rest) = split(text, b'/')?;
            let (per, burst) = split(rest, b':')?;
            let (count, per, burst) = (whole(count)?, whole(per)?, whole(burst)?);
            let counts = [count, burst].iter().all(|number| (1..=MOST).contains(number));
            let fits = counts
                && (count..=LONGEST).contains(&per)
                && per.div_ceil(count).saturating_mul(burst) <= LONGEST;
            fits.then_some(Limit::Rate { count: count as u32, per, burst: burst as u32 })
        };
        rate().ok_or("has a rate that is not N/PER:BURST, or is out of range")
    }
}

impl Display for Limit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Most(most) => write!(f, "{most}"),
            Limit::Rate { count, per, burst } => write!(f, "{count}/{per}:{burst}"),
        }
    }
}

/// The weight of a group: the number of messages of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32);

impl Value for Weight {
    fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let weight = whole(text).filter(|&weight| (1..=u64::from(MAX_WEIGHT)).contains(&weight));
        weight.map(|weight| Weight(weight as u32)).ok_or("has a number that is not 1 to 1,000")
    }
}

impl Display for Weight {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names and prefixes, each with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared<V> {
    /// By name; a prefix ends in `*`.
    entries: Vec<(Box<[u8]>, V)>,
}

/// The limits and rates of a queue's limit names.
pub type Limits = Declared<Limit>;

/// The weights of a queue's groups.
pub type Weights = Declared<Weight>;

impl<V> Default for Declared<V> {
    fn default() -> Self {
        Declared { entries: Vec::new() }
    }
}

impl<V: Value> Declared<V> {
    /// Reads a declaration: entries `NAME=VALUE`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let mut entries = Vec::new();
        if text.is_empty() {
            return Ok(Declared { entries });
        }
        for entry in text.split(|&byte| byte == BETWEEN) {
            let Some(at) = entry.iter().rposition(|&byte| byte == b'=') else {
                return Err("has an entry without =");
            };
            if at == 0 {
                return Err("has an empty name");
            }
            entries.push((entry[..at].into(), V::parse(&entry[at + 1..])?));
        }
        entries.sort();
        if entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("has a name twice");
        }
        Ok(Declared { entries })
    }

    /// Like `parse`, from a dump.
    pub fn restored(from: &mut Reader<'_>, wanted: &'static str) -> Result<Self, Damaged> {
        let text = from.string(wanted)?;
        Declared::parse(text).or_else(|_| from.damaged(wanted))
    }

    /// Returns the declaration as text, for dumps and replies: sorted by name. Names are any bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (name, value) in &self.entries {
            if !text.is_empty() {
                text.push(BETWEEN);
            }
            text.extend_from_slice(name);
            text.push(b'=');
            text.extend_from_slice(value.to_string().as_bytes());
        }
        text
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the value for a name: that of the name itself, or else of its longest prefix.
    fn find(&self, name: &[u8]) -> Option<V> {
        if name.last() != Some(&b'*') {
            let at = self.entries.binary_search_by(|(known, _)| (**known).cmp(name));
            if let Ok(at) = at {
                return Some(self.entries[at].1);
            }
        }
        let prefixes = self.entries.iter().filter_map(|(key, value)| {
            let prefix = key.strip_suffix(b"*")?;
            name.starts_with(prefix).then_some((prefix.len(), *value))
        });
        prefixes.max().map(|(_, value)| value)
    }
}

impl Limits {
    /// Returns whether a name may have a rate.
    pub fn has_rates(&self) -> bool {
        self.entries.iter().any(|(_, value)| matches!(value, Limit::Rate { .. }))
    }

    /// Returns the names that are not prefixes.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|(name, _)| &**name).filter(|name| name.last() != Some(&b'*'))
    }

    /// Returns the number of messages of a name that may be leased at once. `None`: any number.
    pub fn most(&self, name: &[u8]) -> Option<u32> {
        self.of(name).0
    }

    /// Returns the rate of a name. `None`: it has none.
    pub fn rate(&self, name: &[u8]) -> Option<Rate> {
        self.of(name).1
    }

    /// Returns `most` and `rate` of a name, of which it has one at most.
    pub fn of(&self, name: &[u8]) -> (Option<u32>, Option<Rate>) {
        match self.find(name) {
            None => (None, None),
            Some(Limit::Most(most)) => (Some(most), None),
            Some(Limit::Rate { count, per, burst }) => {
                let interval = per.div_ceil(count.into());
                (None, Some(Rate { interval, tolerance: interval * u64::from(burst - 1) }))
            }
        }
    }
}

impl Weights {
    /// Returns the number of messages of a group's turn. The group of messages without one is empty.
    pub fn weight(&self, group: &[u8]) -> u32 {
        self.find(group).map_or(1, |Weight(weight)| weight)
    }
}

fn whole(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()
}

/// The parts before and behind the first such byte.
fn split(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&one| one == byte)?;
    Some((&text[..at], &text[at + 1..]))
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
        assert_eq!(Limits::parse(b"a=b=007").unwrap().bytes(), b"a=b=7");
        assert_eq!(Limits::parse(b"\xff=1").unwrap().bytes(), b"\xff=1");
        assert!(Limits::parse(b"").unwrap().is_empty());
    }

    #[test]
    fn a_rate_is_within_its_bounds_or_refused_with_the_reason() {
        let wrong = Err("has a rate that is not N/PER:BURST, or is out of range");
        let bad = ["/1:1", "1/:1", "1/1:", "1/1", "1/1:1:1", "1/1/1:1", "0/1:1", "1/0:1", "1/1:0"];
        let beyond = ["2/1:1", "1000000001/2000000000:1", "1/1000000000000001:1"];
        for value in bad.into_iter().chain(beyond).chain(["1/1000000000001:1000"]) {
            assert_eq!(Limits::parse(format!("a={value}").as_bytes()), wrong, "{value}");
        }
        let most = "a=1/1000000000000:1000";
        assert_eq!(Limits::parse(most.as_bytes()).unwrap().bytes(), most.as_bytes());
        assert_eq!(Limits::parse(b"a=03/010:01").unwrap().bytes(), b"a=3/10:1");
    }

    #[test]
    fn the_interval_of_a_rate_is_rounded_up_so_that_none_is_above_it() {
        let limits = Limits::parse(b"*=3/10:2\x1fa=2").unwrap();
        assert_eq!(limits.rate(b"b"), Some(Rate { interval: 4, tolerance: 4 }));
        assert_eq!((limits.rate(b"a"), limits.most(b"b")), (None, None));
        assert!(limits.has_rates() && !Limits::parse(b"a=2").unwrap().has_rates());
    }

    #[test]
    fn messages_without_a_group_have_the_weight_of_the_empty_prefix() {
        assert_eq!(Weights::parse(b"*=7").unwrap().weight(b""), 7);
        assert_eq!(Weights::parse(b"acme=7\x1fa*=2").unwrap().weight(b""), 1);
    }

    #[test]
    fn a_weight_out_of_range_is_refused_with_the_reason() {
        for value in ["0", "1001", "", "+1", "1/5:1"] {
            let wrong = Err("has a number that is not 1 to 1,000");
            assert_eq!(Weights::parse(format!("a={value}").as_bytes()), wrong, "{value}");
        }
        assert_eq!(Weights::parse(b"b=01000\x1fa=1").unwrap().bytes(), b"a=1\x1fb=1000");
    }

    #[test]
    fn the_names_of_a_message_are_sorted_and_each_is_kept_once() {
        let names = names_of(b"b\x1fa\x1fb").unwrap();
        assert_eq!(joined(&names), b"a\x1fb");
        assert!(names_of(b"").is_none() && names_of(b"a\x1f").is_none());
    }
}
