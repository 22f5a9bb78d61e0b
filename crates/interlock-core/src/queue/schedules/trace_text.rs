//! The text of a schedule: one call a line, `TIME CALL [field=value ...]` (clause 20).
//!
//! ```text
//! options rules=1 max_messages=4 retry.attempts=2 retry.jitter=false
//! # a comment; blank lines are passed over too
//! 1000 put keys=room%201,b shared=c priority=5
//! 1000 put_many | keys=a size=3 | barrier=true
//! 1001 lease limit=2
//! 1002 nack token=1001 delay=50 error=no%20such%20room
//! ```
//!
//! `rules` is the version of the rules that the calls were made by; without it, the first. A field that has its default is left out, so most lines are short enough to be read. Keys,
//! dedup strings and errors are percent-escaped; a list is joined by commas. Each put of a batch
//! begins with `|`, so a batch of nothing and a batch of one plain put differ.

use std::fmt::{self, Display, Formatter, Write as _};
use std::str::FromStr;

use crate::queue::schedules::trace::{Call, PutCall, Step};
use crate::queue::types::options::NUMBERS;
use crate::queue::types::rules::{Rules, RULES};
use crate::queue::types::{Behind, Kind, Options, RevokeThen, Then};

use parse::{parse_options, parse_step};

mod answer;
mod parse;

/// A queue's options and the calls made to it: what a replay needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub options: Options,
    /// The rules that its calls were made by.
    pub rules: &'static Rules,
    pub steps: Vec<Step>,
}

/// The line that is not a schedule's, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Counted from 1.
    pub line: usize,
    pub what: String,
}

impl Display for TextError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for TextError {}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", options_line(&self.options, self.rules))?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl FromStr for Schedule {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let (options, rules, steps) = (Options::default(), &RULES[0], Vec::new());
        let mut schedule = Schedule { options, rules, steps };
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            let at = |what| TextError { line: number, what };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.split_ascii_whitespace().next() == Some("options") {
                if !schedule.steps.is_empty() {
                    return Err(at("options must precede the first call".into()));
                }
                (schedule.options, schedule.rules) = parse_options(line).map_err(at)?;
            } else {
                schedule.steps.push(parse_step(line).map_err(at)?);
            }
        }
        Ok(schedule)
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut line = Line(format!("{} {}", self.now, name(&self.call)));
        match &self.call {
            Call::Put(put) => line.put(put),
            Call::PutMany(puts) => {
                for put in puts {
                    line.0.push_str(" |");
                    line.put(put);
                }
            }
            Call::Lease { kind, limit } => {
                line.unless(*kind == Kind::Any, "kind", kind_name(*kind));
                line.unless(*limit == 1, "limit", limit);
            }
            Call::Ack { token } | Call::Release { token } => line.field("token", token),
            Call::Nack { token, delay, error } => {
                line.field("token", token);
                line.optional("delay", delay.as_ref());
                line.text("error", error);
            }
            Call::Reject { token, reason } => {
                line.field("token", token);
                line.text("reason", reason);
            }
            Call::Exhaust { token, error } => {
                line.field("token", token);
                line.text("error", error);
            }
            Call::Defer { token, delay } => {
                line.field("token", token);
                line.field("delay", delay);
            }
            Call::Extend { token, by } => {
                line.field("token", token);
                line.field("by", by);
            }
            Call::Cancel { id }
            | Call::Retry { id }
            | Call::Skip { id }
            | Call::Bury { id }
            | Call::Requeue { id }
            | Call::Discard { id } => line.field("id", id),
            Call::Revoke { id, then } => {
                line.field("id", id);
                line.field("then", revoke_then_name(*then));
            }
            Call::Pause { key } | Call::Resume { key } => {
                line.optional("key", key.as_ref().map(|key| escape(key)));
            }
            Call::Limits { limits } => {
                line.unless(limits.is_empty(), "limits", escape(&limits.bytes()));
            }
            Call::Weights { weights } => {
                line.unless(weights.is_empty(), "weights", escape(&weights.bytes()));
            }
            Call::Behind { behind } => line.field("behind", behind.word()),
            Call::CloseLimit { name, delay } => {
                line.field("name", escape(name));
                line.field("delay", delay);
            }
            Call::Explain { id, limit } => {
                line.field("id", id);
                line.field("limit", limit);
            }
            Call::ExplainKey { key, limit } => {
                line.field("key", escape(key));
                line.field("limit", limit);
            }
            Call::HotKeys { limit } | Call::DeadLetters { limit } => line.field("limit", limit),
            Call::Stats | Call::Tick | Call::CancelAll => {}
        }
        f.write_str(&line.0)
    }
}

impl FromStr for Step {
    type Err = TextError;

    /// Parses one line; an error names line 1.
    fn from_str(text: &str) -> Result<Self, TextError> {
        parse_step(text.trim()).map_err(|what| TextError { line: 1, what })
    }
}

/// A line being written.
struct Line(String);

impl Line {
    fn field(&mut self, name: &str, value: impl Display) {
        write!(self.0, " {name}={value}").expect("a String takes what it is given");
    }

    fn unless(&mut self, default: bool, name: &str, value: impl Display) {
        if !default {
            self.field(name, value);
        }
    }

    fn optional(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    fn text(&mut self, name: &str, value: &str) {
        self.unless(value.is_empty(), name, escape(value.as_bytes()));
    }

    fn keys(&mut self, name: &str, keys: &[Vec<u8>]) {
        let joined = keys.iter().map(|key| escape(key)).collect::<Vec<_>>().join(",");
        self.unless(keys.is_empty(), name, joined);
    }

    fn put(&mut self, put: &PutCall) {
        self.keys("keys", &put.keys);
        self.keys("shared", &put.shared);
        self.unless(put.priority == 0, "priority", put.priority);
        self.unless(put.delay == 0, "delay", put.delay);
        self.optional("dedup", put.dedup.as_ref().map(|dedup| escape(dedup.as_bytes())));
        self.unless(!put.barrier, "barrier", put.barrier);
        self.unless(put.size == 0, "size", put.size);
        self.keys("limit", &put.limit);
        self.unless(put.group.is_empty(), "group", escape(&put.group));
        self.optional("coalesce", put.coalesce.as_ref().map(|name| escape(name)));
        self.unless(put.debounce == 0, "debounce", put.debounce);
        self.unless(put.within == 0, "within", put.within);
        self.optional("behind", put.behind.map(Behind::word));
    }
}

/// The line that names a queue's options, all of them.
fn options_line(options: &Options, rules: &Rules) -> String {
    let Options { max_messages, max_bytes, lease, retry, .. } = options;
    let mut line = Line("options".into());
    line.field("rules", rules.version);
    line.field("max_messages", max_messages);
    line.field("max_bytes", max_bytes);
    line.field("lease", or_none(lease.as_ref()));
    for one in &NUMBERS {
        line.field(one.name, (one.get)(options));
    }
    line.unless(options.limits.is_empty(), "limits", escape(&options.limits.bytes()));
    line.unless(options.weights.is_empty(), "weights", escape(&options.weights.bytes()));
    line.unless(options.behind == Behind::Wait, "behind", options.behind.word());
    line.field("retry.attempts", or_none(retry.attempts.as_ref()));
    line.field("retry.first", retry.first);
    line.field("retry.factor", retry.factor);
    line.field("retry.longest", retry.longest);
    line.field("retry.jitter", retry.jitter);
    line.field("retry.then", then_name(retry.then));
    line.0
}

fn or_none(value: Option<&impl Display>) -> String {
    value.map_or("none".into(), |value| value.to_string())
}

/// Printable ASCII is written as it is, except separators; everything else as `%` and two digits.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_graphic() && !b"%,|".contains(&byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("a String takes what it is given");
        }
    }
    text
}

const KINDS: [Kind; 3] = [Kind::Any, Kind::Keyed, Kind::Unkeyed];
const THENS: [Then; 2] = [Then::Dead, Then::Hold];
const REVOKE_THENS: [RevokeThen; 4] =
    [RevokeThen::Retry, RevokeThen::Hold, RevokeThen::Dead, RevokeThen::Skip];

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Any => "any",
        Kind::Keyed => "keyed",
        Kind::Unkeyed => "unkeyed",
    }
}

fn then_name(then: Then) -> &'static str {
    match then {
        Then::Dead => "dead",
        Then::Hold => "hold",
    }
}

fn revoke_then_name(then: RevokeThen) -> &'static str {
    match then {
        RevokeThen::Retry => "retry",
        RevokeThen::Hold => "hold",
        RevokeThen::Dead => "dead",
        RevokeThen::Skip => "skip",
    }
}

/// The call's word in the text; `parse_call` reads the same words.
fn name(call: &Call) -> &'static str {
    match call {
        Call::Put(_) => "put",
        Call::PutMany(_) => "put_many",
        Call::Lease { .. } => "lease",
        Call::Ack { .. } => "ack",
        Call::Nack { .. } => "nack",
        Call::Reject { .. } => "reject",
        Call::Exhaust { .. } => "exhaust",
        Call::Release { .. } => "release",
        Call::Defer { .. } => "defer",
        Call::Extend { .. } => "extend",
        Call::Cancel { .. } => "cancel",
        Call::Revoke { .. } => "revoke",
        Call::Retry { .. } => "retry",
        Call::Skip { .. } => "skip",
        Call::Bury { .. } => "bury",
        Call::Requeue { .. } => "requeue",
        Call::Discard { .. } => "discard",
        Call::Pause { .. } => "pause",
        Call::Resume { .. } => "resume",
        Call::Limits { .. } => "limits",
        Call::Weights { .. } => "weights",
        Call::Behind { .. } => "behind",
        Call::CloseLimit { .. } => "close_limit",
        Call::Explain { .. } => "explain",
        Call::ExplainKey { .. } => "explain_key",
        Call::Stats => "stats",
        Call::HotKeys { .. } => "hot_keys",
        Call::DeadLetters { .. } => "dead_letters",
        Call::Tick => "tick",
        Call::CancelAll => "cancel_all",
    }
}
