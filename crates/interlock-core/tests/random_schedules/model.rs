//! The naive reference model: the contract's clauses as scans over one list of messages.
//!
//! Written from the contract's text and never from the scheduler, and as plain as it can be: no
//! index, no counter that could be forgotten, nothing kept that can be worked out again. Whether
//! a message is ready is asked by looking at every message before it. The lines that
//! implement a clause have its number.

use std::collections::BTreeMap;

use interlock_core::queue::schedules::trace::{Answer, Call, Granted, PutAnswer, PutCall, Step};
use interlock_core::queue::types::{Kind, Options, Stats, Then, Time};

use crate::behind::{Moves, Parking};
use crate::coalesce;
use crate::groups::{Place, Ring};
use crate::limits::{Named, Times};

/// A key as one message holds it; `key` is its place in [`Model::names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub key: usize,
    pub exclusive: bool,
}

/// The phase a message is in; whether a queued one is waiting or ready is worked out when asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Delayed {
        due: Time,
    },
    Queued,
    Leased {
        token: u64,
        since: Time,
        deadline: Option<Time>,
    },
    BackingOff {
        due: Time,
    },
    Held,
    /// It has no place until a key opens.
    Parked,
}

#[derive(Clone, Debug)]
pub struct Message {
    pub id: u64,
    pub sequence: u64,
    /// In the order named, each key once.
    pub holds: Vec<Hold>,
    pub barrier: bool,
    pub priority: i8,
    pub size: u64,
    pub dedup: Option<String>,
    pub put_at: Time,
    /// Time of death, for a dead letter.
    pub died_at: Time,
    /// A lease of it ran out.
    pub suspect: bool,
    pub attempt: u32,
    pub error: String,
    pub phase: Phase,
    pub limit: Named,
    pub group: Vec<u8>,
    /// The paused key under which it was set aside when it came up.
    pub set_aside: Option<usize>,
    pub parking: Parking,
    /// Until when a debounce may delay it.
    pub latest: Time,
}

/// A settled message's dedup string, and when it was settled.
struct Remembered {
    dedup: String,
    id: u64,
    settled: Time,
}

pub struct Model {
    pub(crate) options: Options,
    pub(crate) now: Time,
    /// Unsettled messages that have a place, in sequence.
    pub(crate) placed: Vec<Message>,
    /// Delayed messages, in the order of their puts.
    pub(crate) delayed: Vec<Message>,
    /// Messages that have no place until a key opens, in no order.
    pub(crate) parked: Vec<Message>,
    pub(crate) moves: Moves,
    /// Messages that one call moves behind a failure, and their keys.
    pub most_moved: (u32, u32),
    /// Oldest dead first.
    pub(crate) dead: Vec<Message>,
    /// The time at which the oldest was first seen to be too old.
    pub(crate) dead_mark: Option<Time>,
    remembered: Vec<Remembered>,
    pub(crate) paused: bool,
    pub(crate) paused_keys: Vec<usize>,
    /// Every key ever named.
    pub(crate) names: Vec<Vec<u8>>,
    /// The last message that was put with each coalescing name.
    pub(crate) newest: BTreeMap<Vec<u8>, u64>,
    /// By limit name.
    pub(crate) times: BTreeMap<Vec<u8>, Times>,
    pub(crate) places: BTreeMap<Ring, Place>,
    /// The last number of a place.
    pub(crate) turns: u64,
    /// The last id or sequence drawn; both come from one counter.
    number: u64,
    token: u64,
    /// Only the counts since the queue was made; those of now are worked out.
    pub(crate) counts: Stats,
}

impl Model {
    pub fn new(options: Options) -> Self {
        assert!(!options.retry.jitter, "the model knows no jitter; use retry.jitter=false");
        Model {
            options,
            now: 0,
            placed: Vec::new(),
            delayed: Vec::new(),
            parked: Vec::new(),
            moves: Moves::default(),
            most_moved: (1_000, 4_096),
            dead: Vec::new(),
            dead_mark: None,
            remembered: Vec::new(),
            paused: false,
            paused_keys: Vec::new(),
            names: Vec::new(),
            newest: BTreeMap::new(),
            times: BTreeMap::new(),
            places: BTreeMap::new(),
            turns: 0,
            number: 0,
            token: 0,
            counts: Stats::default(),
        }
    }

    pub fn apply(&mut self, step: &Step) -> Answer {
        self.now = self.now.max(step.now);
        (self.moves.left, self.moves.keys) = self.most_moved;
        self.move_on();
        self.apply_due();
        self.advance();
        let answer = self.answer(step);
        self.move_on();
        self.advance();
        answer
    }

    fn answer(&mut self, step: &Step) -> Answer {
        match &step.call {
            Call::Put(put) => self.put(std::slice::from_ref(put)),
            Call::PutMany(puts) => self.put(puts),
            Call::Lease { kind, limit } => self.lease(*kind, *limit),
            Call::Ack { token } => self.with_lease(*token, |model, at| {
                model.counts.acks += 1;
                model.settle(at);
            }),
            Call::Nack { token, delay, error } => self.with_lease(*token, |model, at| {
                model.placed[at].suspect = false;
                model.fail(at, error, *delay)
            }),
            Call::Reject { token, reason } => self.with_lease(*token, |model, at| {
                model.placed[at].error = reason.clone();
                model.bury_or_hold(at);
            }),
            Call::Exhaust { token, error } => {
                self.with_lease(*token, |model, at| model.exhaust(at, error))
            }
            Call::Release { token } => self.with_lease(*token, |model, at| {
                model.counts.releases += 1;
                model.come_again(at, 0);
            }),
            Call::Defer { token, delay } => self.with_lease(*token, |model, at| {
                model.counts.releases += 1;
                model.come_again(at, *delay);
            }),
            Call::Extend { token, by } => self.with_lease(*token, |model, at| {
                let extended = model.now.saturating_add(*by);
                if let Phase::Leased { deadline, .. } = &mut model.placed[at].phase {
                    *deadline = Some(extended);
                }
            }),
            Call::Cancel { id } => Answer::Bool(self.cancel(*id)),
            Call::Revoke { id, then } => Answer::Bool(self.revoke(*id, *then)),
            Call::Retry { id } => Answer::Bool(self.retry(*id)),
            Call::Skip { id } => Answer::Bool(self.skip(*id)),
            Call::Bury { id } => Answer::Bool(self.bury(*id)),
            Call::Requeue { id } => self.requeue(*id),
            Call::Discard { id } => Answer::Bool(self.discard(*id)),
            Call::Pause { key } => Answer::Bool(self.pause(key.as_deref())),
            Call::Resume { key } => Answer::Bool(self.resume(key.as_deref())),
            Call::Limits { limits } => {
                self.declare(limits);
                Answer::Done
            }
            Call::Weights { weights } => {
                self.options.weights = weights.clone();
                Answer::Done
            }
            Call::Behind { behind } => {
                self.declare_behind(*behind);
                Answer::Done
            }
            Call::CloseLimit { name, delay } => {
                self.close(name, *delay);
                Answer::Done
            }
            Call::Explain { .. } | Call::ExplainKey { .. } => {
                Answer::Explained(self.explain(&step.call, None))
            }
            Call::Stats => Answer::Stats(self.stats()),
            Call::HotKeys { limit } => Answer::Hot(self.hot_keys(*limit)),
            Call::DeadLetters { limit } => Answer::Dead(
                self.dead
                    .iter()
                    .take(*limit)
                    .map(|message| (message.id, message.attempt, message.error.clone()))
                    .collect(),
            ),
            Call::Tick => Answer::Done,
            Call::CancelAll => Answer::Ids(self.cancel_all()),
        }
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Clauses 4, 11 and 13: all of a batch, or nothing of it.
    fn put(&mut self, puts: &[PutCall]) -> Answer {
        let new: Vec<(usize, &PutCall)> = puts
            .iter()
            .enumerate()
            .filter(|(at, put)| {
                put.dedup.as_deref().is_none_or(|dedup| {
                    let earlier = &puts[..*at];
                    self.known(dedup).is_none()
                        && !earlier.iter().any(|other| other.dedup.as_deref() == Some(dedup))
                })
            })
            .collect();
        let (count, bytes, whole) = match self.needs(&new) {
            Ok(needs) => needs,
            Err(differs) => return Answer::Differs(differs),
        };
        if (count > 0 || bytes > 0) && !self.fits(0, 0, count, whole) {
            return Answer::TooLarge;
        }
        if self.parks_too_much(&new) {
            return Answer::Stuck;
        }
        if !self.finds_room(count, bytes) {
            return Answer::Full;
        }
        Answer::Put(puts.iter().map(|put| self.put_one(put)).collect())
    }

    fn put_one(&mut self, put: &PutCall) -> PutAnswer {
        if let Some(id) = put.dedup.as_deref().and_then(|dedup| self.known(dedup)) {
            self.counts.deduplicated += 1;
            return PutAnswer { id, known: true, replaced: false };
        }
        if let Some(id) = self.replace(put) {
            return PutAnswer { id, known: false, replaced: true };
        }
        self.counts.puts += 1;
        let id = self.draw();
        if let Some(name) = &put.coalesce {
            self.newest.insert(name.clone(), id);
        }
        let (due, latest) = coalesce::due(put, self.now);
        let mut message = Message {
            id,
            sequence: id,
            holds: self.holds(put),
            barrier: put.barrier,
            priority: put.priority,
            size: put.size,
            dedup: put.dedup.clone(),
            put_at: self.now,
            died_at: 0,
            suspect: false,
            attempt: 1,
            error: String::new(),
            phase: Phase::Queued,
            limit: Named::new(&put.limit),
            group: put.group.clone(),
            set_aside: None,
            parking: Parking::new(put.behind),
            latest,
        };
        self.enter_ring(&message);
        if let Some(due) = due {
            message.phase = Phase::Delayed { due };
            self.delayed.push(message);
        } else {
            self.take_place(message);
        }
        PutAnswer { id, known: false, replaced: false }
    }

    /// A key named in both is exclusive, one named twice counts once. A coalescing name is the first one.
    pub(crate) fn holds(&mut self, put: &PutCall) -> Vec<Hold> {
        let mut holds: Vec<Hold> = Vec::new();
        let exclusive = put.coalesce.iter().chain(&put.keys).map(|key| (key, true));
        let shared = put.shared.iter().map(|key| (key, false));
        for (name, exclusive) in exclusive.chain(shared) {
            let key = self.key(name);
            if !holds.iter().any(|hold| hold.key == key) {
                holds.push(Hold { key, exclusive });
            }
        }
        holds
    }

    pub(crate) fn key(&mut self, name: &[u8]) -> usize {
        self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_vec());
            self.names.len() - 1
        })
    }

    fn fits(&self, messages: usize, bytes: u64, more: usize, more_bytes: u64) -> bool {
        let Options { max_messages, max_bytes, .. } = self.options;
        (max_messages == 0 || messages + more <= max_messages)
            && (max_bytes == 0 || bytes.saturating_add(more_bytes) <= max_bytes)
    }

    /// Clause 11; what queues nothing needs no room.
    pub(crate) fn finds_room(&self, more: usize, more_bytes: u64) -> bool {
        let messages = self.unsettled().count();
        let bytes = self.unsettled().map(|message| message.size).sum();
        (more == 0 && more_bytes == 0) || self.fits(messages, bytes, more, more_bytes)
    }

    pub fn dead(&self) -> impl Iterator<Item = &Message> {
        self.dead.iter()
    }

    pub fn unsettled(&self) -> impl Iterator<Item = &Message> {
        self.placed.iter().chain(&self.delayed).chain(&self.parked)
    }

    /// Clause 13: the id of the unsettled, or lately settled, message with this string.
    fn known(&self, dedup: &str) -> Option<u64> {
        let unsettled = self.unsettled().find(|message| message.dedup.as_deref() == Some(dedup));
        let settled = || {
            self.remembered.iter().find(|memory| {
                let end = memory.settled.saturating_add(self.options.dedup_window);
                memory.dedup == dedup && self.now < end
            })
        };
        unsettled.map(|message| message.id).or_else(|| settled().map(|memory| memory.id))
    }

    /// Clauses 1, 2, 3, 7, 14 and 22: nothing before it conflicts, and nothing pauses it.
    pub(crate) fn ready(&self, at: usize) -> bool {
        let message = &self.placed[at];
        self.in_front(at)
            && !self.paused
            && !message.holds.iter().any(|hold| self.paused_keys.contains(&hold.key))
    }

    pub(crate) fn in_front(&self, at: usize) -> bool {
        let message = &self.placed[at];
        message.phase == Phase::Queued
            && !self.placed[..at].iter().any(|before| conflict(before, message))
    }

    /// Nothing before it conflicts, and it was not set aside by a pause.
    pub(crate) fn comes_up(&self, at: usize) -> bool {
        self.placed[at].set_aside.is_none() && self.in_front(at)
    }

    /// Clauses 6, 7, 26 and 28. The ready do not conflict with each other.
    fn lease(&mut self, kind: Kind, limit: usize) -> Answer {
        if limit == 0 || self.paused {
            return Answer::Leased(Vec::new());
        }
        let asked = |message: &Message| match kind {
            Kind::Any => true,
            Kind::Keyed => message.keyed(),
            Kind::Unkeyed => !message.keyed(),
        };
        let mut ready: Vec<usize> = (0..self.placed.len())
            .filter(|at| asked(&self.placed[*at]) && self.comes_up(*at))
            .collect();
        let mut granted = Vec::new();
        while granted.len() < limit {
            let may: Vec<usize> =
                ready.iter().copied().filter(|&at| self.may_come_up(at)).collect();
            let Some(at) = self.next_one(&may, b"") else { break };
            if !self.admit(at) {
                if self.placed[at].set_aside.is_some() {
                    ready.retain(|&one| one != at);
                }
                continue;
            }
            ready.retain(|&one| one != at);
            self.take_turn(at, kind);
            // Clause 8: tokens rise with every grant.
            self.token = (self.token + 1).max(self.now);
            self.counts.leases += 1;
            let deadline = self.options.lease.map(|lasts| self.now.saturating_add(lasts));
            let message: &mut Message = &mut self.placed[at];
            message.phase = Phase::Leased { token: self.token, since: self.now, deadline };
            message.limit.forget();
            granted.push(Granted { id: message.id, token: self.token, attempt: message.attempt });
            let names = message.limit.names.clone();
            self.charge(&names);
        }
        Answer::Leased(granted)
    }

    /// Clause 8: a token that is not that of a lease changes nothing.
    fn with_lease(&mut self, token: u64, act: impl FnOnce(&mut Self, usize)) -> Answer {
        // Its deadline may be reached, and what falls due not have come to it yet.
        let stands = |deadline: Option<Time>| deadline.is_none_or(|deadline| deadline > self.now);
        let leased = |message: &Message| match message.phase {
            Phase::Leased { token: its, deadline, .. } => its == token && stands(deadline),
            _ => false,
        };
        match self.placed.iter().position(leased) {
            Some(at) => {
                act(self, at);
                Answer::Done
            }
            None => Answer::LeaseLost,
        }
    }

    /// Clauses 9 and 10: back to its own place, or, with the attempts used up, what `then` says.
    pub(crate) fn fail(&mut self, at: usize, error: &str, delay: Option<u64>) {
        let attempt = self.placed[at].attempt;
        self.placed[at].error = error.into();
        let retry = &self.options.retry;
        if retry.attempts.is_some_and(|attempts| attempt >= attempts) {
            return self.exhaust(at, error);
        }
        let wait = delay.unwrap_or_else(|| self.backoff(attempt));
        self.counts.retries += 1;
        self.placed[at].attempt += 1;
        self.come_again(at, wait);
    }

    /// Clause 9: back to its own place.
    pub(crate) fn come_again(&mut self, at: usize, wait: u64) {
        let message = &mut self.placed[at];
        message.parking.returned = true;
        message.phase = match wait {
            0 => Phase::Queued,
            _ => Phase::BackingOff { due: self.now.saturating_add(wait) },
        };
    }

    fn exhaust(&mut self, at: usize, error: &str) {
        self.placed[at].error = error.into();
        match self.options.retry.then {
            Then::Dead => self.bury_or_hold(at),
            Then::Hold => self.hold(at),
        }
    }

    fn backoff(&self, failures: u32) -> u64 {
        let retry = &self.options.retry;
        if retry.first == 0 {
            return 0;
        }
        let grown = retry.first as f64 * retry.factor.powi(failures as i32 - 1);
        if grown >= retry.longest as f64 {
            retry.longest
        } else {
            grown as u64
        }
    }

    pub(crate) fn dead_letters_full(&self) -> bool {
        self.dead.len() + self.dying() >= self.options.max_dead
    }

    pub(crate) fn bury_or_hold(&mut self, at: usize) {
        if self.dead_letters_full() {
            self.hold(at);
        } else if !self.begins_to_die(at) {
            self.bury_at(at);
        }
    }

    pub(crate) fn bury_at(&mut self, at: usize) {
        self.counts.dead_lettered += 1;
        let message = self.settle(at);
        self.dead.push(Message { died_at: self.now, ..message });
    }

    /// Only now do its lanes move on.
    pub(crate) fn settle(&mut self, at: usize) -> Message {
        let message = self.placed.remove(at);
        self.remember(&message);
        message
    }

    pub(crate) fn remember(&mut self, message: &Message) {
        let Some(dedup) = message.dedup.clone() else {
            return;
        };
        self.remembered.retain(|memory| memory.dedup != dedup);
        self.remembered.push(Remembered { dedup, id: message.id, settled: self.now });
    }

    pub(crate) fn find(&self, id: u64, wanted: impl Fn(Phase) -> bool) -> Option<usize> {
        self.placed.iter().position(|message| message.id == id && wanted(message.phase))
    }

    fn stats(&self) -> Stats {
        let count = |wanted: fn(Phase) -> bool| {
            self.unsettled().filter(|message| wanted(message.phase)).count() as u64
        };
        let queued = count(|phase| phase == Phase::Queued);
        let ready = (0..self.placed.len()).filter(|at| self.ready(*at)).count() as u64;
        Stats {
            unsettled: self.unsettled().count() as u64,
            bytes: self.unsettled().map(|message| message.size).sum(),
            delayed: self.delayed.len() as u64,
            waiting: queued - ready,
            ready,
            leased: count(leased),
            backing_off: count(|phase| matches!(phase, Phase::BackingOff { .. })),
            held: count(|phase| phase == Phase::Held),
            dead: self.dead.len() as u64,
            parked: self.parked.len() as u64,
            groups: self.group_count(),
            limited: self.placed.iter().filter(|m| m.limit.waits_for.is_some()).count() as u64,
            ..self.counts.clone()
        }
    }
}

/// Two messages conflict when they share a key and at least one holds it exclusively; a barrier
/// conflicts with everything (clause 14).
pub(crate) fn conflict(one: &Message, other: &Message) -> bool {
    one.barrier || other.barrier || {
        let meets = |a: &Hold, b: &Hold| a.key == b.key && (a.exclusive || b.exclusive);
        one.holds.iter().any(|a| other.holds.iter().any(|b| meets(a, b)))
    }
}

pub(crate) fn leased(phase: Phase) -> bool {
    matches!(phase, Phase::Leased { .. })
}
