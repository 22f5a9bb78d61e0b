//! Situations that the random schedules met, so that a generator that went blind fails the test.

use std::collections::BTreeMap;

use interlock_core::queue::schedules::trace::{Answer, Call};
use interlock_core::queue::types::{Explained, RevokeThen, State};

/// The number of times that each situation came.
#[derive(Default)]
pub struct Tally {
    counts: BTreeMap<&'static str, u64>,
}

/// Each must come at least once in a run of [`ENOUGH`] calls.
const SITUATIONS: [&str; 88] = [
    "put",
    "put known",
    "put replaced",
    "put differs",
    "put full",
    "put stuck",
    "put too large",
    "batch",
    "batch partly known",
    "batch full",
    "batch too large",
    "lease of none",
    "lease of one",
    "lease of several",
    "lease after a retry",
    "ack",
    "ack lost",
    "nack",
    "nack lost",
    "reject",
    "reject lost",
    "exhaust",
    "exhaust lost",
    "release",
    "release lost",
    "defer",
    "defer lost",
    "extend",
    "extend lost",
    "cancel",
    "cancel refused",
    "revoke retry",
    "revoke hold",
    "revoke dead",
    "revoke skip",
    "revoke refused",
    "retry",
    "retry refused",
    "skip",
    "skip refused",
    "bury",
    "bury refused",
    "requeue",
    "requeue unknown",
    "requeue full",
    "requeue stuck",
    "discard",
    "discard unknown",
    "pause",
    "pause again",
    "resume",
    "resume of nothing",
    "explain unknown",
    "explain one",
    "explain several",
    "explain cut",
    "explain delayed",
    "explain waiting",
    "explain ready",
    "explain leased",
    "explain backing off",
    "explain held",
    "explain parked",
    "explain paused",
    "explain limit reached",
    "explain rate used up",
    "explain turn",
    "limits",
    "weights",
    "behind",
    "close limit",
    "stats limited",
    "stats groups",
    "stats parked",
    "explain barrier between",
    "explain two keys",
    "stats delayed",
    "stats waiting",
    "stats ready",
    "stats leased",
    "stats backing off",
    "stats held",
    "stats dead",
    "stats leases_expired",
    "hot keys",
    "dead letters",
    "tick",
    "cancel all",
];

/// Calls after which every situation has come, with much to spare.
pub const ENOUGH: usize = 300_000;

impl Tally {
    pub fn count(&mut self, call: &Call, answer: &Answer) {
        let batch = matches!(call, Call::PutMany(_));
        let situation = match (call, answer) {
            (_, Answer::Full) if batch => "batch full",
            (_, Answer::TooLarge) if batch => "batch too large",
            (Call::Requeue { .. }, Answer::Full) => "requeue full",
            (Call::Requeue { .. }, Answer::Stuck) => "requeue stuck",
            (_, Answer::Stuck) => "put stuck",
            (_, Answer::Full) => "put full",
            (_, Answer::TooLarge) => "put too large",
            (_, Answer::Differs(_)) => "put differs",
            (_, Answer::Put(puts)) => match (batch, puts.iter().filter(|put| put.known).count()) {
                (false, 0) if puts.iter().any(|put| put.replaced) => "put replaced",
                (false, 0) => "put",
                (false, _) => "put known",
                (true, known) if known > 0 && known < puts.len() => "batch partly known",
                (true, _) => "batch",
            },
            (_, Answer::Leased(granted)) => match granted.as_slice() {
                [] => "lease of none",
                [granted] if granted.attempt > 1 => "lease after a retry",
                [_] => "lease of one",
                _ => "lease of several",
            },
            (Call::Ack { .. }, answer) => done_or(answer, "ack", "ack lost"),
            (Call::Nack { .. }, answer) => done_or(answer, "nack", "nack lost"),
            (Call::Reject { .. }, answer) => done_or(answer, "reject", "reject lost"),
            (Call::Exhaust { .. }, answer) => done_or(answer, "exhaust", "exhaust lost"),
            (Call::Release { .. }, answer) => done_or(answer, "release", "release lost"),
            (Call::Defer { .. }, answer) => done_or(answer, "defer", "defer lost"),
            (Call::Extend { .. }, answer) => done_or(answer, "extend", "extend lost"),
            (Call::Cancel { .. }, answer) => done_or(answer, "cancel", "cancel refused"),
            (Call::Revoke { then, .. }, answer) => {
                let then = match then {
                    RevokeThen::Retry => "revoke retry",
                    RevokeThen::Hold => "revoke hold",
                    RevokeThen::Dead => "revoke dead",
                    RevokeThen::Skip => "revoke skip",
                };
                done_or(answer, then, "revoke refused")
            }
            (Call::Retry { .. }, answer) => done_or(answer, "retry", "retry refused"),
            (Call::Skip { .. }, answer) => done_or(answer, "skip", "skip refused"),
            (Call::Bury { .. }, answer) => done_or(answer, "bury", "bury refused"),
            (Call::Requeue { .. }, answer) => done_or(answer, "requeue", "requeue unknown"),
            (Call::Discard { .. }, answer) => done_or(answer, "discard", "discard unknown"),
            (Call::Pause { .. }, answer) => done_or(answer, "pause", "pause again"),
            (Call::Resume { .. }, answer) => done_or(answer, "resume", "resume of nothing"),
            (_, Answer::Explained(None)) => "explain unknown",
            (_, Answer::Explained(Some(explained))) => {
                self.explained(explained);
                match explained.nodes.len() {
                    _ if explained.truncated => "explain cut",
                    1 => "explain one",
                    _ => "explain several",
                }
            }
            (_, Answer::Stats(stats)) => {
                let counts = [
                    ("stats delayed", stats.delayed),
                    ("stats waiting", stats.waiting),
                    ("stats ready", stats.ready),
                    ("stats leased", stats.leased),
                    ("stats backing off", stats.backing_off),
                    ("stats held", stats.held),
                    ("stats dead", stats.dead),
                    ("stats limited", stats.limited),
                    ("stats groups", stats.groups),
                    ("stats parked", stats.parked),
                ];
                for (situation, _) in counts.iter().filter(|(_, count)| *count > 0) {
                    self.add(situation);
                }
                if stats.leases_expired == 0 {
                    return;
                }
                "stats leases_expired"
            }
            (_, Answer::Hot(hot)) if hot.len() > 1 => "hot keys",
            (_, Answer::Dead(dead)) if dead.len() > 1 => "dead letters",
            (Call::Tick, _) => "tick",
            (Call::Limits { .. }, _) => "limits",
            (Call::Weights { .. }, _) => "weights",
            (Call::Behind { .. }, _) => "behind",
            (Call::CloseLimit { .. }, _) => "close limit",
            (_, Answer::Ids(ids)) if ids.len() > 1 => "cancel all",
            _ => return,
        };
        self.add(situation);
    }

    /// Returns the situations that never came.
    pub fn missing(&self) -> Vec<&'static str> {
        SITUATIONS.into_iter().filter(|situation| !self.counts.contains_key(situation)).collect()
    }

    fn explained(&mut self, explained: &Explained) {
        for node in &explained.nodes {
            self.add(match node.state {
                State::Delayed => "explain delayed",
                State::Waiting => "explain waiting",
                State::Ready => "explain ready",
                State::Leased => "explain leased",
                State::BackingOff => "explain backing off",
                State::Held => "explain held",
                State::Parked => "explain parked",
            });
            if !node.paused.is_empty() {
                self.add("explain paused");
            }
            if node.turn.as_ref().is_some_and(|turn| turn.ahead > 0) {
                self.add("explain turn");
            }
            if !node.limits.is_empty() {
                self.add("explain limit reached");
            }
            if node.limits.iter().any(|full| full.wait.is_some()) {
                self.add("explain rate used up");
            }
            if node.blocked.len() > 1 {
                let barrier = node.blocked[0].key.is_none();
                self.add(if barrier { "explain barrier between" } else { "explain two keys" });
            }
        }
    }

    fn add(&mut self, situation: &'static str) {
        *self.counts.entry(situation).or_default() += 1;
    }
}

fn done_or(answer: &Answer, done: &'static str, refused: &'static str) -> &'static str {
    match answer {
        Answer::Done | Answer::Bool(true) | Answer::Id(Some(_)) => done,
        _ => refused,
    }
}
