//! Random schedules: what is called is chosen while model and scheduler run, so that tokens are
//! mostly live, an operator's calls mostly meet what is stuck, and time mostly moves to a moment
//! at which something falls due.
//!
//! Every schedule draws its own options, keys and weights, and its weights again every few dozen
//! calls: it fills up, works off, fails, stands still.

use fastrand::Rng;
use interlock_core::queue::schedules::trace::{Answer, Call, PutCall};
use interlock_core::queue::types::{Kind, RevokeThen, Time};

use crate::mix::{choose, limit_name, limits, options, weights, Mix};
use crate::model::{Message, Model, Phase};
use crate::schedule::{number_of, Given, Pair, Plan, Planned, Subject};
use crate::tally::Tally;

/// Makes one random schedule while it runs; the second is what was wrong with its last answer.
pub fn run_one<S: Subject>(seed: u64, tally: &mut Tally) -> (Plan, Result<(), String>) {
    let mut rng = Rng::with_seed(seed);
    let options = options(&mut rng);
    let mut generator = Generator::new(rng);
    let options = generator.mix.with_behind(options, &mut generator.rng);
    let mut pair = Pair::<S>::new(options.clone());
    let mut plan = Plan { options, calls: Vec::new() };
    for label in 0..generator.rng.usize(50..=generator.mix.longest) {
        let planned = generator.next(label, &pair);
        let step = pair.resolve(&planned);
        plan.calls.push(planned);
        match pair.apply(label, &step) {
            Ok(answer) => {
                tally.count(&step.call, &answer);
                generator.learn(label, &answer);
            }
            Err(what) => return (plan, Err(what)),
        }
    }
    (plan, Ok(()))
}

/// The calls that can be made, each with its usual weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Put,
    PutMany,
    Lease,
    Ack,
    Nack,
    Reject,
    Exhaust,
    Release,
    Defer,
    Extend,
    Cancel,
    Revoke,
    Retry,
    Skip,
    Bury,
    Requeue,
    Discard,
    Pause,
    Resume,
    Limits,
    Weights,
    Behind,
    CloseLimit,
    Explain,
    ExplainKey,
    Stats,
    HotKeys,
    DeadLetters,
    Tick,
    CancelAll,
}

const USUAL: [(What, u32); 30] = [
    (What::Put, 300),
    (What::PutMany, 40),
    (What::Lease, 240),
    (What::Ack, 140),
    (What::Nack, 60),
    (What::Reject, 15),
    (What::Exhaust, 12),
    (What::Release, 20),
    (What::Defer, 20),
    (What::Extend, 20),
    (What::Cancel, 20),
    (What::Revoke, 24),
    (What::Retry, 20),
    (What::Skip, 14),
    (What::Bury, 14),
    (What::Requeue, 14),
    (What::Discard, 5),
    (What::Pause, 10),
    (What::Resume, 20),
    (What::Limits, 8),
    (What::Weights, 6),
    (What::Behind, 6),
    (What::CloseLimit, 8),
    (What::Explain, 40),
    (What::ExplainKey, 16),
    (What::Stats, 30),
    (What::HotKeys, 10),
    (What::DeadLetters, 10),
    (What::Tick, 20),
    (What::CancelAll, 1),
];

struct Generator {
    rng: Rng,
    now: Time,
    mix: Mix,
    weights: [u32; USUAL.len()],
    weights_last: usize,
    /// The numbers that the calls gave, rising: tokens, and ids.
    tokens: Vec<(u64, Given)>,
    ids: Vec<(u64, Given)>,
}

impl Generator {
    fn new(mut rng: Rng) -> Self {
        Generator {
            mix: Mix::new(&mut rng),
            now: choose(&mut rng, &[1, 1_000, 1_700_000_000_000_000]),
            rng,
            weights: [0; USUAL.len()],
            weights_last: 0,
            tokens: Vec::new(),
            ids: Vec::new(),
        }
    }

    fn next<S: Subject>(&mut self, label: usize, pair: &Pair<S>) -> Planned {
        if self.weights_last == 0 {
            self.draw_weights();
        }
        self.weights_last -= 1;
        let now = self.time(pair);
        let mut what = self.what();
        let deep = pair.model.unsettled().count() >= self.mix.deep;
        if deep && matches!(what, What::Put | What::PutMany) {
            what = if self.rng.bool() { What::Lease } else { What::Ack };
        }
        // A dead letter that may not be parked comes seldom, and by itself is seldom requeued.
        if what == What::Put && self.rng.u32(0..4) == 0 && refused(&pair.model).next().is_some() {
            what = What::Requeue;
        }
        let mut call = self.call(what);
        let about = self.about(what, pair);
        if let Err(number) = about {
            if let Some(place) = number_of(&mut call) {
                *place = number;
            }
        }
        Planned { label, now, call, about: about.ok() }
    }

    fn learn(&mut self, label: usize, answer: &Answer) {
        match answer {
            Answer::Put(puts) => {
                for (at, put) in
                    puts.iter().enumerate().filter(|(_, put)| !put.known && !put.replaced)
                {
                    self.ids.push((put.id, Given { label, at }));
                }
            }
            Answer::Leased(granted) => {
                for (at, grant) in granted.iter().enumerate() {
                    self.tokens.push((grant.token, Given { label, at }));
                }
            }
            Answer::Id(Some(id)) => self.ids.push((*id, Given { label, at: 0 })),
            _ => {}
        }
    }

    fn draw_weights(&mut self) {
        self.weights_last = self.rng.usize(15..=120);
        for (weight, (_, usual)) in self.weights.iter_mut().zip(USUAL) {
            *weight = usual * choose(&mut self.rng, &[0, 1, 1, 1, 2, 6]);
        }
        // A spell without any of these three would only fill or only starve the queue.
        for (always, least) in [(What::Put, 60), (What::Lease, 60), (What::Ack, 30)] {
            let weight = &mut self.weights[always as usize];
            *weight = (*weight).max(least);
        }
    }

    fn what(&mut self) -> What {
        let mut left = self.rng.u32(0..self.weights.iter().sum());
        for (weight, (what, _)) in self.weights.iter().zip(USUAL) {
            if left < *weight {
                return what;
            }
            left -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }

    /// Mostly it stands still; else a little on, to something's due time or beside it, far on,
    /// or, as a clock may, back.
    fn time<S: Subject>(&mut self, pair: &Pair<S>) -> Time {
        match self.rng.u32(0..100) {
            0..=59 => {}
            60..=72 => self.now += self.rng.u64(1..=3),
            73..=80 => self.now += self.rng.u64(1..=50),
            81..=95 => {
                let due = pair.model.unsettled().filter_map(|message| due(message.phase));
                let due = due.chain(pair.model.opens()).min();
                if let Some(due) = due.filter(|due| *due < self.now + 1_000_000) {
                    self.now = self.now.max((due + self.rng.u64(0..=2)).saturating_sub(1));
                }
            }
            96..=97 => self.now += self.rng.u64(50..=100_000),
            _ => return self.now.saturating_sub(self.rng.u64(1..=100)),
        }
        self.now
    }

    fn call(&mut self, what: What) -> Call {
        let (token, id) = (0, 0);
        match what {
            What::Put => Call::Put(self.mix.put(&mut self.rng)),
            What::PutMany => {
                let many = self.rng.usize(0..=6);
                let mut puts: Vec<_> = (0..many).map(|_| self.mix.put(&mut self.rng)).collect();
                // A batch that names nothing but keys takes a shorter way.
                if self.rng.usize(0..3) == 0 {
                    let plain = |put: PutCall| PutCall { keys: put.keys, ..PutCall::default() };
                    puts = puts.into_iter().map(plain).collect();
                }
                Call::PutMany(puts)
            }
            What::Lease => Call::Lease {
                kind: choose(&mut self.rng, &[Kind::Any, Kind::Any, Kind::Keyed, Kind::Unkeyed]),
                limit: choose(&mut self.rng, &[1, 1, 1, 1, 2, 3, 100, 0]),
            },
            What::Ack => Call::Ack { token },
            What::Nack => Call::Nack {
                token,
                delay: choose(&mut self.rng, &[None, None, Some(0), Some(1), Some(25)]),
                error: self.text(),
            },
            What::Reject => Call::Reject { token, reason: self.text() },
            What::Exhaust => Call::Exhaust { token, error: self.text() },
            What::Release => Call::Release { token },
            What::Defer => {
                Call::Defer { token, delay: choose(&mut self.rng, &[0, 1, 25, u64::MAX]) }
            }
            What::Extend => {
                Call::Extend { token, by: choose(&mut self.rng, &[0, 1, 5, 40, 2_000, u64::MAX]) }
            }
            What::Cancel => Call::Cancel { id },
            What::Revoke => Call::Revoke {
                id,
                then: choose(
                    &mut self.rng,
                    &[RevokeThen::Retry, RevokeThen::Hold, RevokeThen::Dead, RevokeThen::Skip],
                ),
            },
            What::Retry => Call::Retry { id },
            What::Skip => Call::Skip { id },
            What::Bury => Call::Bury { id },
            What::Requeue => Call::Requeue { id },
            What::Discard => Call::Discard { id },
            What::Pause => Call::Pause { key: self.paused_key() },
            What::Resume => Call::Resume { key: self.paused_key() },
            What::Limits => Call::Limits { limits: limits(&mut self.rng) },
            What::Weights => Call::Weights { weights: weights(&mut self.rng) },
            What::Behind => Call::Behind { behind: self.mix.behind(&mut self.rng) },
            What::CloseLimit => Call::CloseLimit {
                name: limit_name(&mut self.rng),
                delay: choose(&mut self.rng, &[0, 1, 3, 12, 100, u64::MAX]),
            },
            What::Explain => Call::Explain { id, limit: self.limit() },
            What::ExplainKey => {
                Call::ExplainKey { key: self.mix.key(&mut self.rng), limit: self.limit() }
            }
            What::Stats => Call::Stats,
            What::HotKeys => Call::HotKeys { limit: self.rng.usize(0..=9) },
            What::DeadLetters => Call::DeadLetters { limit: self.rng.usize(0..=9) },
            What::Tick => Call::Tick,
            What::CancelAll => Call::CancelAll,
        }
    }

    fn paused_key(&mut self) -> Option<Vec<u8>> {
        (self.rng.usize(0..4) != 0).then(|| self.mix.key(&mut self.rng))
    }

    fn limit(&mut self) -> usize {
        choose(&mut self.rng, &[0, 1, 2, 4, 100])
    }

    fn text(&mut self) -> String {
        choose(&mut self.rng, &["", "boom", "no such room: 7", "naïve %|=,"]).into()
    }

    /// Chooses the lease or message that the call is about; now and then a stale one, or a number
    /// that never was given, as `Err`.
    fn about<S: Subject>(&mut self, what: What, pair: &Pair<S>) -> Result<Given, u64> {
        let model = &pair.model;
        let chance = self.rng.u32(0..100);
        if chance < 4 {
            return Err(choose(&mut self.rng, &[0, 1, 5, 1 << 53, u64::MAX]));
        }
        let stale = chance < 12;
        match what {
            What::Ack
            | What::Nack
            | What::Reject
            | What::Exhaust
            | What::Release
            | What::Defer
            | What::Extend => {
                let token = |message: &Message| match message.phase {
                    Phase::Leased { token, .. } => Some(token),
                    _ => None,
                };
                let live: Vec<u64> = model.unsettled().filter_map(token).collect();
                pick(&mut self.rng, &live, &self.tokens, stale)
            }
            What::Cancel | What::Explain => {
                let live: Vec<u64> = model.unsettled().map(|message| message.id).collect();
                pick(&mut self.rng, &live, &self.ids, stale)
            }
            What::Revoke | What::Retry | What::Skip | What::Bury => {
                let leased = matches!(what, What::Revoke);
                let wanted = |message: &&Message| match message.phase {
                    Phase::Leased { .. } => leased,
                    Phase::Held | Phase::BackingOff { .. } => !leased,
                    _ => false,
                };
                let live: Vec<u64> =
                    model.unsettled().filter(wanted).map(|message| message.id).collect();
                pick(&mut self.rng, &live, &self.ids, stale)
            }
            What::Requeue if self.rng.bool() && refused(model).next().is_some() => {
                let live: Vec<u64> = refused(model).map(|message| message.id).collect();
                pick(&mut self.rng, &live, &self.ids, stale)
            }
            What::Requeue | What::Discard => {
                let live: Vec<u64> = model.dead().map(|message| message.id).collect();
                pick(&mut self.rng, &live, &self.ids, stale)
            }
            _ => Err(0),
        }
    }
}

/// Dead letters whose requeue is refused, for too much is parked.
fn refused(model: &Model) -> impl Iterator<Item = &Message> {
    model.dead().filter(|dead| model.parks_too_much_again(dead))
}

/// One of the live, or any that was ever given.
fn pick(rng: &mut Rng, live: &[u64], given: &[(u64, Given)], stale: bool) -> Result<Given, u64> {
    if given.is_empty() {
        return Err(0);
    }
    if stale || live.is_empty() {
        return Ok(given[rng.usize(0..given.len())].1);
    }
    let number = choose(rng, live);
    let at = given.binary_search_by_key(&number, |(number, _)| *number);
    at.map(|at| given[at].1).map_err(|_| number)
}

fn due(phase: Phase) -> Option<Time> {
    match phase {
        Phase::Delayed { due } | Phase::BackingOff { due } => Some(due),
        Phase::Leased { deadline, .. } => deadline,
        Phase::Queued | Phase::Held | Phase::Parked => None,
    }
}
