//! A thread that cannot write: when it tries again, and what it says of it.

use std::time::{Duration, Instant};

/// The tries since one failed.
pub struct Trouble {
    since: Instant,
    said: Instant,
    text: String,
    pause: Duration,
    tries: u64,
}

/// The things to do after a try that failed.
pub struct Failed {
    /// The moment of the next try.
    pub again: Instant,
    /// True if the failure differs from the one before.
    pub is_new: bool,
    /// True if it should be logged.
    pub is_said: bool,
}

impl Trouble {
    fn new(now: Instant) -> Trouble {
        Trouble { since: now, said: now, text: String::new(), pause: FIRST_PAUSE, tries: 0 }
    }

    pub fn failed(trouble: &mut Option<Trouble>, text: &str, now: Instant) -> Failed {
        let trouble = trouble.get_or_insert_with(|| Trouble::new(now));
        trouble.tries += 1;
        let again = now + trouble.pause;
        trouble.pause = (trouble.pause * 2).min(LONGEST_PAUSE);
        let is_new = trouble.text != text;
        let is_said = is_new || now.duration_since(trouble.said) >= REPEATED;
        if is_said {
            (trouble.said, trouble.text) = (now, text.to_owned());
        }
        Failed { again, is_new, is_said }
    }

    /// The line of a try that did not fail.
    pub fn over(&self) -> String {
        let (seconds, tries) = (self.since.elapsed().as_secs_f64(), self.tries);
        format!("after {seconds:.1} s and {tries} tries")
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Between two lines about the same failure.
const REPEATED: Duration = Duration::from_secs(60);
