//! The statistics that INFO tells beside its counters: how often each command was called and what
//! that took, how often each kind of error was answered, and how much comes in just now.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::RandomState;

use crate::catalog::{name_of, Command};
use crate::system::time::Time;
use crate::watch::counters::Counters;

/// Figures of one command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub calls: u64,
    /// µs.
    pub took: Time,
    /// Refused before they were begun.
    pub rejected: u64,
    /// Answered by an error.
    pub failed: u64,
}

/// Counts that one worker has not told yet: a few commands, the last one likely the next.
#[derive(Debug, Default)]
pub struct Tallies {
    recent: Vec<(usize, Tally)>,
    calls: u64,
}

#[derive(Default)]
pub struct Statistics {
    /// The figures by the index of the command.
    commands: Mutex<HashMap<usize, Tally, RandomState>>,
    errors: Mutex<BTreeMap<Box<str>, u64>>,
    samples: Mutex<Vec<Sample>>,
    next_sample: AtomicU64,
}

/// The totals of what had been done at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at: Time,
    commands: u64,
    input: u64,
    output: u64,
}

/// In a second, over the last one or two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    pub commands: f64,
    /// Bytes.
    pub input: f64,
    pub output: f64,
}

impl Tallies {
    /// Returns whether this call's time represents a whole run of calls: reading the clock costs
    /// more than most commands.
    #[inline]
    pub fn samples(&mut self) -> bool {
        self.calls = self.calls.wrapping_add(1);
        self.calls.is_multiple_of(SAMPLED)
    }

    #[inline]
    pub fn of(&mut self, command: &Command) -> &mut Tally {
        let index = command.index();
        let found = self.recent.iter().rposition(|(known, _)| *known == index);
        let place = found.unwrap_or_else(|| {
            self.recent.push((index, Tally::default()));
            self.recent.len() - 1
        });
        &mut self.recent[place].1
    }
}

impl Statistics {
    /// A worker's, once a turn.
    pub fn tell(&self, tallies: &mut Tallies) {
        if tallies.recent.is_empty() {
            return;
        }
        let mut commands = self.commands.lock();
        for (index, tally) in tallies.recent.drain(..) {
            let sum = commands.entry(index).or_default();
            sum.calls += tally.calls;
            sum.took += tally.took;
            sum.rejected += tally.rejected;
            sum.failed += tally.failed;
        }
    }

    /// `text` begins with the error's kind.
    pub fn error(&self, text: &[u8]) {
        let length = text.iter().take(LONGEST_KIND).take_while(|byte| byte.is_ascii_uppercase());
        let kind = std::str::from_utf8(&text[..length.count()]).unwrap_or_default();
        let mut errors = self.errors.lock();
        if let Some(count) = errors.get_mut(kind) {
            *count += 1;
        } else {
            errors.insert(kind.into(), 1);
        }
    }

    /// Notes how far the counters are, ten times a second at most.
    #[inline]
    pub fn sample(&self, now: Time, counters: &Counters) {
        if now >= self.next_sample.load(Relaxed) {
            self.note(now, counters);
        }
    }

    #[cold]
    fn note(&self, now: Time, counters: &Counters) {
        let mut samples = self.samples.lock();
        if samples.last().is_some_and(|last| now < last.at + EVERY) {
            return;
        }
        self.next_sample.store(now + EVERY, Relaxed);
        if samples.len() == SAMPLES {
            samples.remove(0);
        }
        samples.push(Sample::of(now, counters));
    }

    pub fn rates(&self, now: Time, counters: &Counters) -> Rates {
        let samples = self.samples.lock();
        let current = Sample::of(now, counters);
        // Before a long idle time, only the last sample matters: nothing changed after it.
        let recent = samples.iter().position(|sample| sample.at + WINDOW >= now);
        let since = recent.or(samples.len().checked_sub(1)).map(|place| samples[place]);
        let Some(since) = since.filter(|since| since.at < now) else { return Rates::default() };
        let seconds = (now - since.at) as f64 / 1e6;
        // After CONFIG RESETSTAT there is less than before.
        let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        Rates {
            commands: each(current.commands, since.commands),
            input: each(current.input, since.input),
            output: each(current.output, since.output),
        }
    }

    /// Lines of INFO, by the names of the commands.
    pub fn commands(&self) -> BTreeMap<&'static str, Tally> {
        let commands = self.commands.lock();
        commands.iter().map(|(&index, &tally)| (name_of(index), tally)).collect()
    }

    pub fn errors(&self) -> BTreeMap<Box<str>, u64> {
        self.errors.lock().clone()
    }

    /// As at the start.
    pub fn reset(&self) {
        self.commands.lock().clear();
        self.errors.lock().clear();
        self.samples.lock().clear();
    }
}

impl Tally {
    /// As Redis writes it.
    pub fn line(&self) -> String {
        let Tally { calls, took, rejected, failed } = self;
        let each = *took as f64 / (*calls).max(1) as f64;
        format!(
            "calls={calls},usec={took},usec_per_call={each:.2},rejected_calls={rejected},\
             failed_calls={failed}"
        )
    }
}

impl Sample {
    fn of(at: Time, counters: &Counters) -> Self {
        Sample {
            at,
            commands: counters.total_commands_processed.load(Relaxed),
            input: counters.total_net_input_bytes.load(Relaxed),
            output: counters.total_net_output_bytes.load(Relaxed),
        }
    }
}

/// One of this many calls is timed and represents all, unless the slow log looks at each.
pub const SAMPLED: u64 = 64;
/// µs.
const EVERY: Time = 100_000;
const WINDOW: Time = 1_600_000;
const SAMPLES: usize = 16;
const LONGEST_KIND: usize = 32;

#[cfg(test)]
mod tests {
    use crate::watch::counters::add;
    use crate::watch::statistics::*;

    #[test]
    fn rates_cover_the_last_seconds() {
        let (statistics, counters) = (Statistics::default(), Counters::default());
        assert_eq!(statistics.rates(5, &counters), Rates::default());
        for tenth in 0..40 {
            statistics.sample(tenth * EVERY, &counters);
            add(&counters.total_commands_processed, if tenth < 20 { 1000 } else { 10 });
        }
        let rates = statistics.rates(40 * EVERY, &counters);
        assert!((rates.commands - 100.0).abs() < 1.0, "{rates:?}");
        // Idle since: what was done is spread over a longer and longer time.
        assert!(statistics.rates(4000 * EVERY, &counters).commands < 1.0);
        assert!(statistics.samples.lock().len() <= SAMPLES);
    }

    #[test]
    fn errors_are_counted_by_their_first_word() {
        let statistics = Statistics::default();
        for text in [&b"ERR no"[..], b"ERR other", b"NOPERM x", b"", b"\xff", b"lower"] {
            statistics.error(text);
        }
        let errors = statistics.errors();
        let found: Vec<(&str, u64)> =
            errors.iter().map(|(kind, &count)| (&**kind, count)).collect();
        assert_eq!(found, [("", 3), ("ERR", 2), ("NOPERM", 1)]);
        statistics.reset();
        assert!(statistics.errors().is_empty());
    }
}
