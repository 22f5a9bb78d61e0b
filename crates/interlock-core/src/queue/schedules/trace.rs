//! A schedule: calls with the times they were made at, and what was answered (clause 20).
//!
//! The scheduler is a pure state machine, so a recorded schedule replays to the same answers.
//! The same text is what the random tests print when they have shrunk a failing case, and what
//! a recording queue writes: one call a line, `TIME CALL [field=value ...]`, keys percent-escaped.
//!
//! ```
//! use interlock_core::queue::schedules::trace::{Answer, Runner};
//! use interlock_core::queue::schedules::trace_text::Schedule;
//!
//! let text = "1000 put keys=a\n1000 put keys=a\n1001 lease limit=2\n1002 ack token=1001";
//! let schedule: Schedule = text.parse().unwrap();
//! let mut runner = Runner::of(&schedule);
//! let answers: Vec<Answer> = schedule.steps.iter().map(|step| runner.apply(step)).collect();
//! assert!(matches!(&answers[2], Answer::Leased(granted) if granted.len() == 1));
//! assert_eq!(answers[3], Answer::Done);
//! ```

use hashbrown::HashMap;

use crate::key::KeyRef;
use crate::queue::calls::coalesce::{Coalesce, Differs};
use crate::queue::calls::lease::LeaseLost;
use crate::queue::parts::slab::NONE;
use crate::queue::parts::watch::Watch;
use crate::queue::scheduler::{Budget, Grant, Handle, NoRoom, Placed, Put, Scheduler};
use crate::queue::schedules::bytes::Damaged;
use crate::queue::schedules::trace_text::Schedule;
use crate::queue::types::limits::{Limits, Weights, BETWEEN};
use crate::queue::types::{Behind, Explained, Hot, Kind, Options, RevokeThen, Stats, Time};

/// One call to the scheduler, in the words of the contract.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    Put(PutCall),
    /// A batch: enters whole or not at all (clause 11).
    PutMany(Vec<PutCall>),
    Lease {
        kind: Kind,
        limit: usize,
    },
    Ack {
        token: u64,
    },
    /// `delay` in µs; `None` follows the retry policy.
    Nack {
        token: u64,
        delay: Option<u64>,
        error: String,
    },
    Reject {
        token: u64,
        reason: String,
    },
    /// As if its attempts were used up.
    Exhaust {
        token: u64,
        error: String,
    },
    Release {
        token: u64,
    },
    /// Like `Release`, but the message becomes ready after `delay` µs.
    Defer {
        token: u64,
        delay: u64,
    },
    /// A new deadline, `by` µs from now.
    Extend {
        token: u64,
        by: u64,
    },
    Cancel {
        id: u64,
    },
    Revoke {
        id: u64,
        then: RevokeThen,
    },
    Retry {
        id: u64,
    },
    Skip {
        id: u64,
    },
    Bury {
        id: u64,
    },
    Requeue {
        id: u64,
    },
    Discard {
        id: u64,
    },
    Pause {
        key: Option<Vec<u8>>,
    },
    Resume {
        key: Option<Vec<u8>>,
    },
    /// Declares other concurrency limits (clause 26).
    Limits {
        limits: Limits,
    },
    /// Declares other weights of groups (clause 28).
    Weights {
        weights: Weights,
    },
    /// Declares what happens to messages behind a failure (clause 31).
    Behind {
        behind: Behind,
    },
    /// Closes a limit name for `delay` µs (clause 27).
    CloseLimit {
        name: Vec<u8>,
        delay: u64,
    },
    Explain {
        id: u64,
        limit: usize,
    },
    ExplainKey {
        key: Vec<u8>,
        limit: usize,
    },
    Stats,
    HotKeys {
        limit: usize,
    },
    DeadLetters {
        limit: usize,
    },
    /// Only applies what is due.
    Tick,
    /// Cancels everything that is not leased (clause 15, `shutdown(immediate=True)`).
    CancelAll,
}

/// The arguments of a put. Times in µs, `size` in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PutCall {
    pub keys: Vec<Vec<u8>>,
    pub shared: Vec<Vec<u8>>,
    pub priority: i8,
    pub delay: u64,
    pub dedup: Option<String>,
    pub barrier: bool,
    pub size: u64,
    /// Names of concurrency limits.
    pub limit: Vec<Vec<u8>>,
    /// Its group; empty: none.
    pub group: Vec<u8>,
    /// Its coalescing name, with its times.
    pub coalesce: Option<Vec<u8>>,
    pub debounce: u64,
    pub within: u64,
    /// The outcome for it behind a failure; `None`: as the queue says.
    pub behind: Option<Behind>,
}

/// The answer of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The ids in the order of the batch; `known` where a dedup string was known (clause 13).
    Put(Vec<PutAnswer>),
    /// No room now (clause 11).
    Full,
    /// Never room: larger than the bound (clause 11).
    TooLarge,
    /// It may not replace the payload that it would replace (clause 29).
    Differs(Differs),
    /// Half of the bound is parked (clause 31).
    Stuck,
    Leased(Vec<Granted>),
    Done,
    /// The token is not that of a lease (clause 8).
    LeaseLost,
    Bool(bool),
    /// `requeue`: the new id, or nothing where no such dead letter is.
    Id(Option<u64>),
    Explained(Option<Explained>),
    Stats(Stats),
    Hot(Vec<Hot>),
    /// id, attempts, last error; oldest dead first.
    Dead(Vec<(u64, u32, String)>),
    /// `CancelAll`: the ids cancelled, rising.
    Ids(Vec<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutAnswer {
    pub id: u64,
    pub known: bool,
    pub replaced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    pub id: u64,
    pub token: u64,
    pub attempt: u32,
}

/// A call with the time given to it, µs, never falling.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub now: Time,
    pub call: Call,
}

impl PutCall {
    /// Returns whether it gives nothing beyond keys, held alone.
    fn names_only_keys(&self) -> bool {
        *self == PutCall { keys: self.keys.clone(), ..PutCall::default() }
    }

    fn named(&self) -> Option<Coalesce<'_>> {
        let PutCall { coalesce, debounce, within, .. } = self;
        let name = coalesce.as_deref()?;
        Some(Coalesce { name, debounce: *debounce, within: *within, revision: 0 })
    }
}

impl From<&Put<'_>> for PutCall {
    fn from(put: &Put<'_>) -> Self {
        let names = |keys: &[KeyRef<'_>]| keys.iter().map(|key| key.bytes.to_vec()).collect();
        PutCall {
            keys: names(put.keys),
            shared: names(put.shared),
            priority: put.priority,
            delay: put.delay,
            dedup: put.dedup.map(str::to_owned),
            barrier: put.barrier,
            size: put.size,
            limit: match put.limit {
                [] => Vec::new(),
                names => names.split(|&byte| byte == BETWEEN).map(<[u8]>::to_vec).collect(),
            },
            group: put.group.to_vec(),
            coalesce: put.coalesce.map(|coalesce| coalesce.name.to_vec()),
            debounce: put.coalesce.map_or(0, |coalesce| coalesce.debounce),
            within: put.coalesce.map_or(0, |coalesce| coalesce.within),
            behind: put.behind,
        }
    }
}

/// A scheduler that takes recorded calls: for replay, and for the random tests.
#[derive(Debug)]
pub struct Runner {
    scheduler: Scheduler<()>,
    /// Leases by their token; settled ones too, so that an old token can be tried again.
    handles: Handles,
    /// The work that one call may do.
    budget: Budget,
}

type Handles = HashMap<u64, Handle, std::hash::RandomState>;

impl Runner {
    pub fn new(options: Options) -> Self {
        Runner {
            scheduler: Scheduler::new(options, Watch::off()),
            handles: HashMap::default(),
            budget: Budget::ONE_CALL,
        }
    }

    /// Limits the messages that each call moves behind a failure, and their keys (clause 31).
    #[must_use]
    pub fn moving(mut self, (moves, keys): (u32, u32)) -> Self {
        self.budget = Budget { moves, keys, ..Budget::ONE_CALL };
        self
    }

    /// One for the calls of a schedule: with its options, and by its rules.
    pub fn of(schedule: &Schedule) -> Self {
        let mut runner = Runner::new(schedule.options.clone());
        runner.scheduler.set_rules(schedule.rules);
        runner
    }

    /// Another one, with what a dump of this one's scheduler is restored to.
    ///
    /// # Errors
    ///
    /// If the dump cannot be read, which is a fault in the scheduler.
    pub fn restored(&self) -> Result<Self, Damaged> {
        let mut bytes = Vec::new();
        self.scheduler.dump(&mut bytes, |(), _| ());
        let mut fresh = Scheduler::new(Options::default(), Watch::off());
        fresh.set_rules(self.scheduler.rules());
        let scheduler = fresh.restored(&bytes, |_| Some(()))?;
        let mut handles = self.handles.clone();
        handles.extend(scheduler.leases().map(|(_, handle)| (handle.token, handle)));
        Ok(Runner { scheduler, handles, budget: self.budget })
    }

    pub fn apply(&mut self, step: &Step) -> Answer {
        let now = step.now;
        if self.budget != Budget::ONE_CALL {
            self.scheduler.start_within(now, self.budget);
        }
        let (s, handles) = (&mut self.scheduler, &mut self.handles);
        let done =
            |result: Result<(), LeaseLost>| result.map_or(Answer::LeaseLost, |()| Answer::Done);
        match &step.call {
            Call::Put(put) => answer_put(with_put(put, |put| {
                s.put(now, put, &mut Some(())).map(|placed| vec![placed])
            })),
            // As a queue puts such a batch: with the ids in a row.
            Call::PutMany(puts) if puts.iter().all(PutCall::names_only_keys) => {
                let mut ends = Vec::new();
                let mut keys = Vec::new();
                for put in puts {
                    keys.extend(refs(&put.keys));
                    ends.push(keys.len());
                }
                let first = s.put_keyed(now, &keys, &ends, &mut vec![(); puts.len()]);
                let ids = first.map(|first| first..first + puts.len() as u64);
                let placed = |id| Placed { id, known: false, replaced: false };
                answer_put(ids.map(|ids| ids.map(placed).collect()))
            }
            Call::PutMany(puts) => {
                let limits: Vec<Vec<u8>> =
                    puts.iter().map(|put| put.limit.join(&BETWEEN)).collect();
                let keys: Vec<[Vec<KeyRef<'_>>; 2]> =
                    puts.iter().map(|put| [refs(&put.keys), refs(&put.shared)]).collect();
                let names: Vec<Option<Coalesce<'_>>> = puts.iter().map(PutCall::named).collect();
                let puts: Vec<Put<'_>> = puts
                    .iter()
                    .zip(keys.iter().zip(limits.iter().zip(&names)))
                    .map(|(put, (keys, (limit, name)))| named(put, keys, limit, name.as_ref()))
                    .collect();
                answer_put(s.put_many(now, &puts, &mut vec![Some(()); puts.len()]))
            }
            Call::Lease { kind, limit } => {
                let mut grants = Vec::new();
                s.lease_many(now, *kind, *limit, 0, |_, grant| grants.push(*grant));
                handles.extend(grants.iter().map(|grant| (grant.handle.token, grant.handle)));
                let granted = |grant: &Grant| Granted {
                    id: grant.id,
                    token: grant.handle.token,
                    attempt: grant.attempt,
                };
                Answer::Leased(grants.iter().map(granted).collect())
            }
            Call::Ack { token } => done(s.ack(now, handle(handles, *token)).map(drop)),
            Call::Nack { token, delay, error } => {
                done(s.nack(now, handle(handles, *token), *delay, error).map(drop))
            }
            Call::Reject { token, reason } => {
                done(s.reject(now, handle(handles, *token), reason).map(drop))
            }
            Call::Exhaust { token, error } => {
                done(s.exhaust(now, handle(handles, *token), error).map(drop))
            }
            Call::Release { token } => done(s.release(now, handle(handles, *token))),
            Call::Defer { token, delay } => done(s.defer(now, handle(handles, *token), *delay)),
            Call::Extend { token, by } => done(s.extend(now, handle(handles, *token), *by)),
            Call::Cancel { id } => Answer::Bool(s.cancel(now, *id).is_some()),
            Call::Revoke { id, then } => Answer::Bool(s.revoke(now, *id, *then).is_some()),
            Call::Retry { id } => Answer::Bool(s.retry(now, *id)),
            Call::Skip { id } => Answer::Bool(s.skip(now, *id).is_some()),
            Call::Bury { id } => Answer::Bool(s.bury(now, *id)),
            Call::Discard { id } => Answer::Bool(s.discard(now, *id).is_some()),
            Call::Requeue { id } => s.requeue(now, *id).map_or_else(answer_refused, Answer::Id),
            Call::Pause { key } => Answer::Bool(s.pause(now, key.as_deref().map(KeyRef::new))),
            Call::Resume { key } => Answer::Bool(s.resume(now, key.as_deref().map(KeyRef::new))),
            Call::Limits { limits } => {
                s.set_limits(now, limits.clone());
                Answer::Done
            }
            Call::Weights { weights } => {
                s.set_weights(now, weights.clone());
                Answer::Done
            }
            Call::Behind { behind } => {
                s.set_behind(now, *behind);
                Answer::Done
            }
            Call::CloseLimit { name, delay } => {
                s.close_limit(now, name, *delay);
                Answer::Done
            }
            Call::Explain { id, limit } => Answer::Explained(s.explain(now, *id, *limit)),
            Call::ExplainKey { key, limit } => {
                Answer::Explained(s.explain_key(now, KeyRef::new(key), *limit))
            }
            Call::Stats => Answer::Stats(s.stats(now)),
            Call::HotKeys { limit } => Answer::Hot(s.hot_keys(now, *limit)),
            Call::DeadLetters { limit } => {
                let letters = s.dead_letters(now, *limit);
                Answer::Dead(letters.map(|d| (d.id, d.attempts, d.error.clone())).collect())
            }
            Call::Tick => {
                s.tick(now);
                Answer::Done
            }
            Call::CancelAll => Answer::Ids(s.cancel_all(now).iter().map(|c| c.id).collect()),
        }
    }
}

fn handle(handles: &Handles, token: u64) -> Handle {
    handles.get(&token).copied().unwrap_or(Handle { place: NONE, token })
}

fn refs(keys: &[Vec<u8>]) -> Vec<KeyRef<'_>> {
    keys.iter().map(|key| KeyRef::new(key)).collect()
}

fn named<'a>(
    put: &'a PutCall,
    keys: &'a [Vec<KeyRef<'a>>; 2],
    limit: &'a [u8],
    coalesce: Option<&'a Coalesce<'a>>,
) -> Put<'a> {
    Put {
        keys: &keys[0],
        shared: &keys[1],
        priority: put.priority,
        delay: put.delay,
        dedup: put.dedup.as_deref(),
        barrier: put.barrier,
        size: put.size,
        quiet: false,
        retry: None,
        window: None,
        limit,
        group: &put.group,
        coalesce,
        behind: put.behind,
        run: b"",
    }
}

fn with_put<R>(put: &PutCall, call: impl FnOnce(&Put<'_>) -> R) -> R {
    let (keys, limit) = ([refs(&put.keys), refs(&put.shared)], put.limit.join(&BETWEEN));
    call(&named(put, &keys, &limit, put.named().as_ref()))
}

fn answer_put(placed: Result<Vec<Placed>, NoRoom>) -> Answer {
    let answer = |Placed { id, known, replaced }| PutAnswer { id, known, replaced };
    placed.map_or_else(answer_refused, |all| Answer::Put(all.into_iter().map(answer).collect()))
}

fn answer_refused(refused: NoRoom) -> Answer {
    match refused {
        NoRoom::Full => Answer::Full,
        NoRoom::TooLarge => Answer::TooLarge,
        NoRoom::Differs(differs) => Answer::Differs(differs),
        NoRoom::Stuck => Answer::Stuck,
    }
}
