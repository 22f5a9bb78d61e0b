//! Order and exclusion, checked from calls and answers alone.
//!
//! The model could share a mistake with the scheduler. This knows neither: it records the order of
//! puts and the current leases, and holds every grant against clauses 1, 2, 3 and 8. If it cannot
//! be certain (a message that may be dead or held), it accepts.

use std::cmp::Reverse;

use interlock_core::queue::schedules::trace::{Answer, Call, PutAnswer, PutCall, Step};
use interlock_core::queue::types::{Behind, Options, RevokeThen, Time};

use crate::coalesce;

pub struct Audit {
    options: Options,
    now: Time,
    last_token: u64,
    /// The next place in the queue.
    next: u64,
    /// Messages that may still be unsettled.
    live: Vec<Seen>,
    /// Settled, but perhaps as a dead letter, to be requeued.
    gone: Vec<Seen>,
}

#[derive(Clone)]
struct Seen {
    id: u64,
    keys: Vec<Vec<u8>>,
    shared: Vec<Vec<u8>>,
    barrier: bool,
    /// `None`: delayed.
    place: Option<u64>,
    due: Time,
    /// Until when a debounce may delay it.
    latest: Time,
    attempt: u32,
    lease: Option<Lease>,
    /// It is unsettled for certain.
    certain: bool,
    /// It may have left its place, or come back to another one (clause 31).
    loose: bool,
}

#[derive(Clone, Copy)]
struct Lease {
    token: u64,
    deadline: Option<Time>,
}

impl Audit {
    pub fn new(options: Options) -> Self {
        Audit { options, now: 0, last_token: 0, next: 0, live: Vec::new(), gone: Vec::new() }
    }

    pub fn observe(&mut self, step: &Step, answer: &Answer) -> Result<(), String> {
        self.now = self.now.max(step.now);
        self.see_due();
        match (&step.call, answer) {
            (Call::Put(put), Answer::Put(answers)) => {
                self.see_put(put, answers[0]);
            }
            (Call::PutMany(puts), Answer::Put(answers)) => {
                for (put, answer) in puts.iter().zip(answers) {
                    self.see_put(put, *answer);
                }
            }
            (Call::Lease { .. }, Answer::Leased(granted)) => {
                for grant in granted {
                    self.see_grant(grant.id, grant.token, grant.attempt)?;
                }
            }
            (
                Call::Ack { token } | Call::Reject { token, .. } | Call::Exhaust { token, .. },
                Answer::Done,
            ) => {
                let at = self.leased(*token)?;
                if matches!(step.call, Call::Ack { .. }) {
                    self.live.remove(at);
                } else {
                    self.live[at].lease = None;
                    self.live[at].certain = false;
                }
            }
            (Call::Nack { token, .. }, Answer::Done) => {
                let at = self.leased(*token)?;
                self.failed(at);
            }
            (Call::Release { token } | Call::Defer { token, .. }, Answer::Done) => {
                let at = self.leased(*token)?;
                self.live[at].lease = None;
            }
            (Call::Extend { token, by }, Answer::Done) => {
                let at = self.leased(*token)?;
                let deadline = Some(self.now.saturating_add(*by));
                self.live[at].lease = Some(Lease { token: *token, deadline });
            }
            (Call::Behind { behind }, _) => {
                self.options.behind = *behind;
                for seen in self.live.iter_mut().filter(|_| *behind != Behind::Wait) {
                    seen.loose = true;
                }
            }
            (Call::Revoke { id, then }, Answer::Bool(true)) => self.see_revoke(*id, *then),
            (Call::Cancel { id } | Call::Skip { id } | Call::Bury { id }, Answer::Bool(true)) => {
                self.settled(*id)
            }
            (Call::Requeue { id }, Answer::Id(Some(new))) => self.see_requeue(*id, *new),
            (Call::CancelAll, Answer::Ids(ids)) => ids.iter().for_each(|id| self.settled(*id)),
            _ => {}
        }
        Ok(())
    }

    /// Leases that ran out end here as they do in the queue; what was delayed takes its place.
    fn see_due(&mut self) {
        let now = self.now;
        for at in 0..self.live.len() {
            let ran_out = |lease: Lease| lease.deadline.is_some_and(|deadline| deadline <= now);
            if self.live[at].lease.is_some_and(ran_out) {
                self.failed(at);
            }
        }
        let is_due = |seen: &&mut Seen| seen.place.is_none() && seen.due <= now;
        let mut due: Vec<&mut Seen> = self.live.iter_mut().filter(is_due).collect();
        due.sort_by_key(|seen| Reverse((seen.due, seen.id)));
        while let Some(seen) = due.pop() {
            seen.place = Some(self.next);
            self.next += 1;
        }
    }

    fn see_put(&mut self, put: &PutCall, answer: PutAnswer) {
        let id = answer.id;
        if answer.known {
            return;
        }
        if answer.replaced {
            let delayed = |seen: &&mut Seen| seen.id == id && seen.place.is_none();
            if let Some(seen) = self.live.iter_mut().find(delayed).filter(|_| put.debounce > 0) {
                seen.due = self.now.saturating_add(put.debounce).min(seen.latest);
            }
            return;
        }
        let (due, latest) = coalesce::due(put, self.now);
        self.live.push(Seen {
            id,
            keys: put.coalesce.iter().chain(&put.keys).cloned().collect(),
            shared: put.shared.clone(),
            barrier: put.barrier,
            place: due.is_none().then_some(self.next),
            due: due.unwrap_or(self.now),
            latest,
            attempt: 1,
            lease: None,
            certain: true,
            loose: put.behind.unwrap_or(self.options.behind) != Behind::Wait,
        });
        self.next += 1;
    }

    fn see_grant(&mut self, id: u64, token: u64, attempt: u32) -> Result<(), String> {
        if token <= self.last_token || token < self.now {
            let last = self.last_token;
            return Err(format!("clause 8: token {token} after {last} at {}", self.now));
        }
        self.last_token = token;
        let Some(at) = self.live.iter().position(|seen| seen.id == id) else {
            return Err(format!("clause 19: {id} was granted and is not there"));
        };
        let granted = &self.live[at];
        let Some(place) = granted.place else {
            return Err(format!("clause 12: {id} was granted before it was due"));
        };
        for other in &self.live {
            if other.lease.is_some() && (other.id == id || conflict(other, granted)) {
                return Err(format!("clause 2: {id} was granted while {} is leased", other.id));
            }
            let before = other.place.is_some_and(|other| other < place);
            if before && other.certain && !other.loose && conflict(other, granted) {
                return Err(format!("clauses 1, 3: {id} was granted before {}", other.id));
            }
        }
        let deadline = self.options.lease.map(|lasts| self.now.saturating_add(lasts));
        let granted = &mut self.live[at];
        granted.lease = Some(Lease { token, deadline });
        granted.attempt = attempt;
        granted.certain = true;
        Ok(())
    }

    fn see_revoke(&mut self, id: u64, then: RevokeThen) {
        let Some(at) = self.live.iter().position(|seen| seen.id == id) else {
            return;
        };
        match then {
            RevokeThen::Retry => self.failed(at),
            RevokeThen::Hold => self.live[at].lease = None,
            RevokeThen::Dead => {
                self.live[at].lease = None;
                self.live[at].certain = false;
            }
            RevokeThen::Skip => self.settled(id),
        }
    }

    fn see_requeue(&mut self, id: u64, new: u64) {
        let same = |seen: &Seen| seen.id == id;
        let seen = match self.live.iter().position(same) {
            Some(at) => self.live.remove(at),
            None => match self.gone.iter().position(same) {
                Some(at) => self.gone.remove(at),
                None => return,
            },
        };
        let place = Some(self.next);
        self.next += 1;
        let loose = seen.loose || self.options.behind != Behind::Wait;
        let seen = Seen { id: new, loose, ..seen };
        self.live.push(Seen { place, attempt: 1, lease: None, certain: true, ..seen });
    }

    fn leased(&self, token: u64) -> Result<usize, String> {
        let holds = |seen: &Seen| seen.lease.is_some_and(|lease| lease.token == token);
        self.live.iter().position(holds).ok_or_else(|| {
            format!("clause 8: token {token} was accepted and is not that of a lease")
        })
    }

    /// A failure: retried, or, with its attempts used up, dead or held.
    fn failed(&mut self, at: usize) {
        let seen = &mut self.live[at];
        seen.lease = None;
        seen.certain = self.options.retry.attempts.is_none_or(|attempts| seen.attempt < attempts);
    }

    fn settled(&mut self, id: u64) {
        if let Some(at) = self.live.iter().position(|seen| seen.id == id) {
            let seen = self.live.remove(at);
            self.gone.push(seen);
        }
    }
}

fn conflict(one: &Seen, other: &Seen) -> bool {
    let meet = |a: &[Vec<u8>], b: &[Vec<u8>]| a.iter().any(|key| b.contains(key));
    one.id != other.id
        && (one.barrier
            || other.barrier
            || meet(&one.keys, &other.keys)
            || meet(&one.keys, &other.shared)
            || meet(&one.shared, &other.keys))
}
