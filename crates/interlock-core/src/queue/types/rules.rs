//! The rules: formulas by which a call decides, in numbered versions (clause 20).
//!
//! A journal and a recording hold calls, not what came of them, and are replayed by the version of the
//! rules that they were written with. So a version never changes once it is released: a changed
//! rule is a further version in [`RULES`], whose fields differ from those of the version before. How
//! to add one is in CONTRIBUTING.md.

use crate::queue::types::Retry;

/// One version of the rules.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Its number, in the head of each segment of a journal and in the first line of a recording.
    pub version: u32,
    /// The pause after a failed attempt, µs: of a policy, the message's id and the attempt.
    pub backoff: fn(&Retry, u64, u32) -> u64,
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

/// All versions, oldest first. The last one is in force.
pub const RULES: &[Rules] = &[Rules { version: 1, backoff }];

impl Rules {
    /// The version in force.
    pub fn current() -> &'static Rules {
        Rules::last_of(RULES)
    }

    /// The version in force among these.
    pub fn last_of(known: &'static [Rules]) -> &'static Rules {
        known.last().expect("there is a first version")
    }

    /// The version of this number; the error names the numbers that are known.
    pub fn find(known: &'static [Rules], version: u32) -> Result<&'static Rules, String> {
        let last = Rules::last_of(known).version;
        known.iter().find(|rules| rules.version == version).ok_or_else(|| match known[0].version {
            first if first == last => first.to_string(),
            first => format!("{first} to {last}"),
        })
    }
}

/// The pause after a failed attempt, µs. With jitter it lies between half and all of the plain one,
/// by a hash of id and attempt: a recorded schedule must replay (clause 20).
///
/// The same to the last µs wherever a queue lives: multiplied step by step, in numbers that Lua has too.
fn backoff(retry: &Retry, id: u64, attempt: u32) -> u64 {
    let mut plain = retry.first as f64;
    for _ in 1..attempt.min(1 + MULTIPLIED) {
        plain *= retry.factor;
    }
    // A product beyond the range of u64 saturates in the cast, and NaN (0 times infinity) is 0.
    let plain = (plain as u64).min(retry.longest);
    if !retry.jitter {
        return plain;
    }
    let spread = id % 16_777_213 * 40_503 + u64::from(attempt) * 9_973;
    let part = (spread % 65_536) as f64 / 65_536.0;
    plain / 2 + ((plain - plain / 2) as f64 * part) as u64
}

/// Most multiplications of a backoff: by then it is the longest, or does not grow.
const MULTIPLIED: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_up_to_the_maximum_and_jitter_stays_in_its_upper_half() {
        let retry = Retry { jitter: false, ..Retry::default() };
        let plain: Vec<u64> = (1..9).map(|n| backoff(&retry, 1, n) / 1_000_000).collect();
        assert_eq!(plain, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff(&retry, 1, u32::MAX), 60_000_000);
        let jittered = Retry { jitter: true, ..retry };
        for id in 1..1000 {
            let pause = backoff(&jittered, id, 3);
            assert!((2_000_000..=4_000_000).contains(&pause));
        }
        let none = Retry { first: 0, ..Retry::default() };
        assert_eq!(backoff(&none, 1, 2_000_000), 0);
        // Worked out by hand from the page of the wire: half, and j of the other half.
        let id = 1_000_000_000_000_000;
        let j = (id % 16_777_213 * 40_503 + 3 * 9_973) % 65_536;
        assert_eq!(backoff(&jittered, id, 3), 2_000_000 + 2_000_000 * j / 65_536);
        assert_eq!(j, 41_386);
    }

    #[test]
    fn versions_rise_and_the_error_for_an_unknown_version_names_the_known() {
        assert!(RULES.windows(2).all(|two| two[0].version + 1 == two[1].version));
        assert_eq!(RULES[0].version, 1);
        static TWO: [Rules; 2] = [Rules { version: 1, backoff }, Rules { version: 2, backoff }];
        assert_eq!(Rules::find(&TWO, 2).unwrap().version, 2);
        assert_eq!(Rules::find(&TWO, 3).unwrap_err(), "1 to 2");
        assert_eq!(Rules::find(&TWO[..1], 2).unwrap_err(), "1");
    }
}
