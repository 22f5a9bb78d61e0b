//! Random calls around puts that wait for room get what a naive model of clause 11 says: who enters, who
//! waits, who is called, and in which order; alone and in batches, against a bound of messages and one of
//! bytes, with waits that are given up and such whose time is over.
//!
//! `INTERLOCK_OPERATIONS` says how many calls, `INTERLOCK_SEED` repeats a run.

#![cfg(not(shuttle))]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Wake, Waker};

use interlock_core::clock::Clock;
use interlock_core::queue::calls::lease::Failed;
use interlock_core::queue::parts::watch::Watch;
use interlock_core::queue::scheduler::{Handle, NoRoom, Put};
use interlock_core::queue::types::{Kind, Options, Retry, Time};
use interlock_core::queue::waiting::room::{LONGEST, PASSES, PATIENCE, SHORTEST};
use interlock_core::queue::waiting::waiters::{Wait, Want};
use interlock_core::queue::{Ended, Look, Queue};

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Ready,
    Leased,
    Backing(Time),
}

/// A put that waits.
#[derive(Clone, Debug)]
struct Waiting {
    name: usize,
    sizes: Vec<u64>,
    deadline: Time,
    called: bool,
    /// It was called, did not come for long, and lost its place until it comes.
    left: bool,
}

/// The turn of the first in line: how often it was passed, and whether room is kept for it.
#[derive(Clone, Debug)]
struct Turn {
    of: usize,
    passed: u32,
    since: Time,
    /// The number of times room was kept in vain.
    vain: u32,
    open_until: Time,
    /// From when, until when, and how many messages there were.
    kept: Option<(Time, Time, usize)>,
}

/// The queue as clause 11 tells it, in lists that are gone through.
struct Model {
    most: usize,
    most_bytes: u64,
    messages: Vec<(u64, u64, State)>,
    /// Dead letters: id, size.
    dead: Vec<(u64, u64)>,
    /// In the order in which they came.
    line: Vec<Waiting>,
    turn: Option<Turn>,
    next: u64,
}

#[derive(Debug, PartialEq)]
enum Said {
    Entered(Vec<u64>),
    Waits,
    TimedOut,
}

impl Model {
    fn fits(&self, sizes: &[u64]) -> bool {
        let bytes: u64 = self.messages.iter().map(|message| message.1).sum();
        (self.most == 0 || self.messages.len() + sizes.len() <= self.most)
            && (self.most_bytes == 0 || bytes + sizes.iter().sum::<u64>() <= self.most_bytes)
    }

    fn turn_of(&mut self, of: usize, now: Time) -> &mut Turn {
        if self.turn.as_ref().is_none_or(|turn| turn.of != of) {
            self.turn =
                Some(Turn { of, passed: 0, since: now, vain: 0, open_until: 0, kept: None });
        }
        self.turn.as_mut().unwrap()
    }

    fn first(&self) -> Option<Waiting> {
        self.line.iter().find(|waiting| !waiting.left).cloned()
    }

    /// Returns whether room is kept from a put; `me`: its place in line.
    fn keeps_from(&mut self, me: Option<usize>, now: Time) -> bool {
        let Some(first) = self.first() else { return false };
        let place = |name| self.line.iter().position(|w| w.name == name);
        if me.is_some_and(|me| place(me) <= place(first.name)) {
            return false;
        }
        let fits = self.fits(&first.sizes);
        let works = self.messages.iter().any(|m| !matches!(m.2, State::Backing(_)));
        let there = self.messages.len();
        let turn = self.turn_of(first.name, now);
        let span = LONGEST.min(SHORTEST << turn.vain.min(20));
        let Some((from, until, had)) = turn.kept else {
            let passed = turn.passed >= PASSES || turn.passed > 0 && now >= turn.since + PATIENCE;
            if passed && now >= turn.open_until && (works || fits) {
                turn.kept = Some((now, now + span, there));
                return true;
            }
            return false;
        };
        if now < until && (works || fits) {
            return true;
        }
        if works && !fits && there < had {
            turn.kept = Some((from, now + span, there));
            return true;
        }
        // In vain, or there is nothing to hope for: it is passed for as long as room had been kept.
        let vain = turn.vain + u32::from(now >= until);
        let open_until = now + (now.min(until) - from);
        *turn = Turn { of: first.name, passed: 0, since: now, vain, open_until, kept: None };
        if fits && first.called {
            self.line.iter_mut().filter(|w| w.name == first.name).for_each(|w| w.left = true);
        }
        false
    }

    fn enter(&mut self, me: Option<usize>, sizes: &[u64], now: Time) -> Vec<u64> {
        if let Some(first) = self.first() {
            let place = |name| self.line.iter().position(|w| w.name == name);
            if me.is_none_or(|me| place(me).is_none_or(|at| at > place(first.name).unwrap())) {
                self.turn_of(first.name, now).passed += 1;
            }
        }
        let enter = sizes.iter().map(|&size| {
            self.next += 1;
            self.messages.push((self.next, size, State::Ready));
            self.next
        });
        enter.collect()
    }

    /// A look of a put. `me`: it is in line, or will be.
    fn look(&mut self, me: usize, sizes: &[u64], deadline: Time, now: Time) -> Said {
        let stood = self.line.iter().any(|w| w.name == me);
        let kept = self.keeps_from(stood.then_some(me), now);
        if !kept && self.fits(sizes) {
            let ids = self.enter(stood.then_some(me), sizes, now);
            self.line.retain(|w| w.name != me);
            return Said::Entered(ids);
        }
        if deadline <= now {
            self.line.retain(|w| w.name != me);
            return Said::TimedOut;
        }
        match self.line.iter_mut().find(|w| w.name == me) {
            Some(waiting) => (waiting.called, waiting.left) = (false, false),
            None => {
                let sizes = sizes.to_vec();
                self.line.push(Waiting { name: me, sizes, deadline, called: false, left: false });
            }
        }
        Said::Waits
    }

    /// After each call, one who fits is called if nobody is on the way: only the first, if room is kept.
    fn balance(&mut self, now: Time) {
        if self.line.iter().all(|w| w.called) {
            return;
        }
        let keeps = self.keeps_from(None, now);
        if self.line.iter().any(|w| w.called) {
            return;
        }
        let most = if keeps { 1 } else { usize::MAX };
        let fitting = (0..self.line.len()).take(most).find(|&at| self.fits(&self.line[at].sizes));
        if let Some(at) = fitting {
            self.line[at].called = true;
        }
    }

    fn advance(&mut self, now: Time) {
        for message in &mut self.messages {
            if matches!(message.2, State::Backing(due) if due <= now) {
                message.2 = State::Ready;
            }
        }
        self.line.iter_mut().filter(|w| w.deadline <= now).for_each(|w| w.called = true);
    }
}

#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Real {
    name: usize,
    sizes: Vec<u64>,
    wait: Wait,
    calls: Arc<Calls>,
    /// Calls that were answered.
    seen: usize,
}

struct Round {
    queue: Queue<()>,
    model: Model,
    waiting: Vec<Real>,
    leases: Vec<(u64, Handle)>,
    rng: fastrand::Rng,
    named: usize,
    seed: u64,
    step: u64,
    /// The number of waits that came to each end, and of dead letters that were put again.
    ends: [u64; 5],
}

impl Round {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (most, most_bytes) = [(4, 0), (0, 100), (12, 100)][rng.usize(..3)];
        let retry = Retry { attempts: Some(2), ..Retry::default() };
        let options =
            Options { max_messages: most, max_bytes: most_bytes, retry, ..Options::default() };
        let queue = Queue::with(options, Watch::off(), Clock::manual(1));
        let (messages, dead, line) = (Vec::new(), Vec::new(), Vec::new());
        let model = Model { most, most_bytes, messages, dead, line, turn: None, next: 0 };
        let (waiting, leases) = (Vec::new(), Vec::new());
        Round { queue, model, waiting, leases, rng, named: 0, seed, step: 0, ends: [0; 5] }
    }

    fn now(&self) -> Time {
        self.queue.clock().now()
    }

    fn sizes(&mut self) -> Vec<u64> {
        let (most, bytes) = (self.model.most, self.model.most_bytes);
        let rng = &mut self.rng;
        let count = match most.max(1) {
            _ if rng.u8(..4) > 0 => 1,
            1 => rng.usize(1..10),
            most => rng.usize(1..=most),
        };
        let large = if rng.u8(..4) == 0 { bytes } else { 12.min(bytes) } / count as u64;
        (0..count).map(|_| if bytes > 0 { rng.u64(0..=large) } else { 0 }).collect()
    }

    fn look(&self, real: &mut Real) -> Said {
        let puts: Vec<Put<'_>> =
            real.sizes.iter().map(|&size| Put { size, ..Put::default() }).collect();
        let waker = Waker::from(real.calls.clone());
        real.seen = real.calls.0.load(Ordering::Relaxed);
        let look = match puts.as_slice() {
            [put] => match self.queue.put_or_wait(put, &mut Some(()), &mut real.wait, &waker) {
                Look::Found(placed) => Look::Found(vec![placed]),
                Look::Ended(ended) => Look::Ended(ended),
                Look::Sleep(until) => Look::Sleep(until),
            },
            puts => {
                let mut payloads = vec![Some(()); puts.len()];
                self.queue.put_many_or_wait(puts, &mut payloads, &mut real.wait, &waker)
            }
        };
        match look {
            Look::Found(placed) => Said::Entered(placed.iter().map(|placed| placed.id).collect()),
            Look::Ended(Ended::TimedOut) => Said::TimedOut,
            Look::Ended(ended) => panic!("{ended:?}"),
            Look::Sleep(_) => Said::Waits,
        }
    }

    /// A put looks, for the first time or again.
    fn put(&mut self, mut real: Real) {
        let now = self.now();
        let said = self.look(&mut real);
        let expected = self.model.look(real.name, &real.sizes, real.wait.deadline, now);
        let at =
            format!("seed {}, step {}: put {} {:?}", self.seed, self.step, real.name, real.sizes);
        assert_eq!(said, expected, "{at}");
        match said {
            Said::Entered(_) => self.ends[0] += 1,
            Said::TimedOut => self.ends[1] += 1,
            Said::Waits => {
                self.ends[2] += 1;
                self.waiting.push(real);
            }
        }
    }

    fn step(&mut self) {
        self.step += 1;
        match self.rng.u8(..100) {
            0..=29 => {
                let (sizes, now) = (self.sizes(), self.now());
                let deadline = match self.rng.u8(..10) {
                    0..=4 => 0,
                    5..=6 => now + self.rng.u64(1..4 * SHORTEST),
                    _ if self.waiting.len() > 6 => 0,
                    _ => Time::MAX,
                };
                self.named += 1;
                let wait = Wait::new(Want::Room(0, 0), deadline);
                let (name, calls) = (self.named, Arc::new(Calls::default()));
                self.put(Real { name, sizes, wait, calls, seen: 0 });
            }
            30..=54 => {
                // Whoever was called comes, soon or late; some look though nobody called.
                let called = |real: &Real| real.calls.0.load(Ordering::Relaxed) > real.seen;
                let at = self.waiting.iter().position(called);
                let at = at.or_else(|| (self.rng.u8(..10) == 0).then_some(0));
                if let Some(real) = at.filter(|&at| at < self.waiting.len()) {
                    let real = self.waiting.remove(real);
                    self.put(real);
                }
            }
            55..=56 if !self.waiting.is_empty() => {
                let at = self.rng.usize(..self.waiting.len());
                let mut real = self.waiting.remove(at);
                self.queue.give_up(&mut real.wait);
                self.model.line.retain(|waiting| waiting.name != real.name);
                self.ends[3] += 1;
            }
            57..=74 => {
                let got = self.queue.try_get(Kind::Any, 0, |(), _| ()).unwrap();
                let ready = self.model.messages.iter_mut().find(|m| m.2 == State::Ready);
                assert_eq!(got.map(|(grant, ())| grant.id), ready.as_ref().map(|m| m.0));
                if let (Some((grant, ())), Some(message)) = (got, ready) {
                    message.2 = State::Leased;
                    self.leases.push((grant.id, grant.handle));
                }
            }
            75 if !self.model.dead.is_empty() => {
                let (at, now) = (self.rng.usize(..self.model.dead.len()), self.now());
                let (id, size) = self.model.dead[at];
                let expected = if self.model.keeps_from(None, now) || !self.model.fits(&[size]) {
                    Err(NoRoom::Full)
                } else {
                    self.model.dead.remove(at);
                    self.ends[4] += 1;
                    Ok(Some(self.model.enter(None, &[size], now)[0]))
                };
                assert_eq!(self.queue.requeue(id), Ok(expected), "seed {}", self.seed);
            }
            75..=88 if !self.leases.is_empty() => {
                let at = self.rng.usize(..self.leases.len());
                let (id, handle) = self.leases.swap_remove(at);
                if self.rng.u8(..5) > 0 {
                    self.queue.ack(handle).unwrap();
                    self.model.messages.retain(|message| message.0 != id);
                } else {
                    // It is retried once, then it is a dead letter.
                    let delay = self.rng.u64(1..SHORTEST);
                    let failed = self.queue.nack(handle, Some(delay), "").unwrap();
                    let now = self.now();
                    let died = failed == Failed::Dead;
                    if died {
                        let at = self.model.messages.iter().position(|m| m.0 == id).unwrap();
                        let (id, size, _) = self.model.messages.remove(at);
                        self.model.dead.push((id, size));
                    } else {
                        let its = |m: &&mut (u64, u64, State)| m.0 == id;
                        let message = self.model.messages.iter_mut().find(its).unwrap();
                        message.2 = State::Backing(now + delay);
                        self.model.messages.sort_by_key(|message| message.0);
                    }
                }
            }
            89..=90 if !self.model.messages.is_empty() => {
                let at = self.rng.usize(..self.model.messages.len());
                let (id, _, state) = self.model.messages[at];
                let cancelled = self.queue.call(|s, now| s.cancel(now, id)).is_some();
                assert_eq!(cancelled, state != State::Leased);
                self.model.messages.retain(|message| !cancelled || message.0 != id);
            }
            91.. => {
                let by = [1, SHORTEST / 3, SHORTEST, 4 * SHORTEST, PATIENCE, LONGEST];
                self.queue.clock().advance(by[self.rng.usize(..by.len())]);
                self.queue.clock_moved();
                let now = self.now();
                self.model.advance(now);
            }
            _ => return,
        }
        let now = self.now();
        self.model.balance(now);
        self.compare();
        // Any call is a reason to look whose turn it is.
        let unsettled = self.queue.call(|scheduler, _| scheduler.unsettled());
        self.model.balance(now);
        assert_eq!(unsettled as usize, self.model.messages.len(), "seed {}", self.seed);
    }

    fn compare(&self) {
        let at = format!("seed {}, step {}", self.seed, self.step);
        let called = |real: &Real| real.calls.0.load(Ordering::Relaxed) > real.seen;
        let mut real: Vec<usize> =
            self.waiting.iter().filter(|real| called(real)).map(|real| real.name).collect();
        let of = |w: &Waiting| w.called.then_some(w.name);
        let mut model: Vec<usize> = self.model.line.iter().filter_map(of).collect();
        real.sort_unstable();
        model.sort_unstable();
        assert_eq!(real, model, "{at}: who is called, of {:?}", self.model.line);
    }
}

#[test]
fn puts_that_wait_for_room_are_answered_as_by_the_model() {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    let operations: u64 = number("INTERLOCK_OPERATIONS").unwrap_or(200_000);
    let first = number("INTERLOCK_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let length = 1_000;
    let mut ends = [0; 5];
    for seed in (first..).take(operations.div_ceil(length) as usize) {
        let mut round = Round::new(seed);
        (0..length).for_each(|_| round.step());
        ends.iter_mut().zip(round.ends).for_each(|(all, these)| *all += these);
    }
    // Test only what happens.
    assert!(operations < 100_000 || ends.iter().all(|&n| n > 100), "{ends:?}");
}
