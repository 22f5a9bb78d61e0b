//! A queue as bytes: everything that decides its future replies, so that a restored queue behaves
//! as the original would have.
//!
//! Nothing is changed by it, so it may be done between any two calls: what earlier calls left for the
//! next one is written down too. What only saves time or memory is left out (idle lanes, free
//! records), and so is the watch, which is a setting of the program and not of the queue.
//!
//! It costs one pass over the messages, and leaves sorting them to [`restore`](super::restore): a
//! dump holds the queue's lock, a restore does not.
//!
//! ```
//! use interlock_core::queue::scheduler::{Put, Scheduler};
//! use interlock_core::queue::types::{Kind, Options};
//! use interlock_core::queue::parts::watch::Watch;
//!
//! let mut scheduler = Scheduler::new(Options::default(), Watch::off());
//! scheduler.put(1, &Put::default(), &mut Some(7u8)).unwrap();
//! let mut bytes = Vec::new();
//! scheduler.dump(&mut bytes, |payload, out| out.push(*payload));
//! let fresh = Scheduler::new(Options::default(), Watch::off());
//! let mut restored = fresh.restored(&bytes, |bytes| Some(bytes[0])).unwrap();
//! let grant = restored.lease(1, Kind::Any, 0).unwrap();
//! assert_eq!(restored.payload(&grant), &7);
//! ```

use crate::queue::calls::coalesce::Named;
use crate::queue::parts::dead::Dead;
use crate::queue::parts::slab::NONE;
use crate::queue::scheduler::Scheduler;
use crate::queue::schedules::bytes::{number, option, string};
use crate::queue::types::message::{Extra, Message, GROUPED, LIMITED};
use crate::queue::types::options::{NEWEST, NUMBERS};
use crate::queue::types::{Options, Retry, RetryPart, State, Stats, Then};

/// The first byte of a dump. A change of the form takes the next number, and `restore` continues to
/// read the older ones; `wire/options.toml` says which one a new option came with.
pub(in crate::queue) const VERSION: u8 = if NEWEST > FORM { NEWEST } else { FORM };
const FORM: u8 = 9;
/// The last one without groups.
pub(in crate::queue) const BEFORE_GROUPS: u8 = 5;
/// The last one without coalescing names, and how many counts it has.
pub(in crate::queue) const BEFORE_COALESCING: u8 = 6;
pub(in crate::queue) const COUNTS_BEFORE_COALESCING: usize = 17;
/// The last one without runs.
pub(in crate::queue) const BEFORE_RUNS: u8 = 8;
/// The last one without parked messages.
pub(in crate::queue) const BEFORE_PARKED: u8 = 7;
/// The last one without rates.
pub(in crate::queue) const BEFORE_RATES: u8 = 4;
/// The last one without concurrency limits.
pub(in crate::queue) const BEFORE_LIMITS: u8 = 3;
/// The last one without the mark of dead letters.
pub(in crate::queue) const BEFORE_MARK: u8 = 2;
/// The oldest that can be read, and how many counts it has.
pub(in crate::queue) const FIRST_VERSION: u8 = 1;
pub(in crate::queue) const FIRST_COUNTS: usize = 15;

/// Marks of what a message has beyond what all have. `restore` refuses those that it does not know.
pub(in crate::queue) const SEQUENCE: u64 = 1;
pub(in crate::queue) const SIZE: u64 = 2;
pub(in crate::queue) const ATTEMPT: u64 = 4;
pub(in crate::queue) const DEDUP: u64 = 8;
pub(in crate::queue) const ERROR: u64 = 16;
pub(in crate::queue) const WINDOW: u64 = 32;
pub(in crate::queue) const RETRY: u64 = 64;
pub(in crate::queue) const SUSPECT: u64 = 128;
pub(in crate::queue) const COALESCE: u64 = 256;
pub(in crate::queue) const NEWEST_OF_ITS_NAME: u64 = 512;
pub(in crate::queue) const RUN: u64 = 1024;

/// Marks of a lease.
pub(in crate::queue) const LEASE_TIMED: u8 = 1;
pub(in crate::queue) const LEASE_OF_BATCH: u8 = 2;

/// Marks of a lane, and of an edge.
pub(in crate::queue) const LANE_PAUSED: u8 = 1;
pub(in crate::queue) const LANE_UNFINISHED: u8 = 2;
pub(in crate::queue) const EDGE_SHARED: u64 = 1;
pub(in crate::queue) const EDGE_GRANTED: u64 = 2;

impl<P> Scheduler<P> {
    /// Appends the queue to `out`; `payload` appends one payload, which need not say how long it is.
    pub fn dump(&self, out: &mut Vec<u8>, mut payload: impl FnMut(&P, &mut Vec<u8>)) {
        out.extend_from_slice(&[VERSION, u8::from(self.numbers.are_times())]);
        write_options(out, &self.options);
        write_stats(out, self.counts.stats());
        for word in [self.now, self.numbers.next(), self.numbers.oldest(), self.leases.last_token()]
        {
            number(out, word);
        }
        let numbers = self.dump_lanes(out);
        number(out, self.records.len() as u64);
        for (at, message) in self.records.all() {
            self.dump_message(out, at, message, &numbers);
            sized(out, |out| payload(message.payload.as_ref().expect("a payload"), out));
        }
        self.gate.dump_times(self.now, out);
        self.gate.dump_places(out);
        self.dump_parked(out);
        self.dump_batches(out);
        self.dump_barriers(out);
        ids(out, self.ready.late());
        self.dump_pauses(out, &numbers);
        self.dump_dedup(out);
        number(out, self.dead.len() as u64);
        for dead in self.dead.iter() {
            write_dead(out, dead);
            sized(out, |out| payload(&dead.payload, out));
        }
        option(out, self.dead.mark());
        let (times, until) = self.numbers.times();
        number(out, times.len() as u64);
        let (mut id, mut time) = (0, 0);
        for (first, at) in times {
            number(out, first - id);
            number(out, at - time);
            (id, time) = (first, at);
        }
        number(out, until);
    }

    /// The lanes that are needed; returns their numbers in the dump, by their places.
    fn dump_lanes(&self, out: &mut Vec<u8>) -> Vec<u32> {
        let mut numbers = Vec::new();
        let needed = |lane: &crate::queue::parts::lane::Lane| {
            lane.depth > 0 || lane.paused || lane.is_unfinished()
        };
        let mut count = 0;
        let count_at = out.len();
        out.extend_from_slice(&[0; 4]);
        for (at, lane) in self.lanes.all().filter(|(_, lane)| needed(lane)) {
            if numbers.len() <= at as usize {
                numbers.resize(at as usize + 1, NONE);
            }
            numbers[at as usize] = count;
            count += 1;
            let paused = if lane.paused { LANE_PAUSED } else { 0 };
            let unfinished = if lane.is_unfinished() { LANE_UNFINISHED } else { 0 };
            out.push(paused | unfinished);
            string(out, lane.key.as_bytes());
        }
        out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
        let unfinished = self.lanes.unfinished();
        number(out, unfinished.len() as u64);
        for &lane in unfinished {
            number(out, u64::from(numbers[lane as usize]));
        }
        numbers
    }

    fn dump_message(&self, out: &mut Vec<u8>, at: u32, message: &Message<P>, numbers: &[u32]) {
        let state = message.state.expect("an unsettled message");
        out.extend_from_slice(&message.id.to_le_bytes());
        out.extend_from_slice(&[message.flags, state_byte(state), message.priority as u8]);
        match state {
            State::Waiting => number(out, u64::from(message.hold)),
            State::Ready | State::Held | State::Parked => {}
            State::Delayed => {
                number(out, self.delays.at(self.records.timer(at)).expect("a delay"));
            }
            State::BackingOff => {
                number(out, self.backoffs.at(self.records.timer(at)).expect("a backoff"));
            }
            State::Leased => {
                let lease = &self.leases[message.hold];
                number(out, lease.token);
                number(out, lease.at);
                number(out, lease.deadline);
                number(out, lease.consumer);
                let timed = if lease.is_timed() { LEASE_TIMED } else { 0 };
                let batch = if lease.is_of_batch() { LEASE_OF_BATCH } else { 0 };
                out.push(timed | batch);
            }
        }
        if matches!(state, State::Delayed | State::Parked) {
            let keys = self.keys_of(at);
            number(out, keys.len() as u64);
            for (key, shared) in keys {
                out.push(u8::from(shared));
                string(out, key.as_bytes());
            }
        } else {
            let count_at = out.len();
            out.extend_from_slice(&[0; 2]);
            let mut count = 0u16;
            for (_, edge) in self.lanes.edges_of(message.first_edge) {
                let shared = if edge.shared() { EDGE_SHARED } else { 0 };
                let granted = if edge.granted() { EDGE_GRANTED } else { 0 };
                number(out, u64::from(numbers[edge.lane() as usize]) << 2 | shared | granted);
                count += 1;
            }
            out[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
        }
        match self.records.extra(at) {
            None => number(out, 0),
            Some(extra) => self.dump_extra(out, message.id, extra),
        }
        if message.flags & LIMITED != 0 {
            string(out, &self.gate.names_of(at));
            let (waits_for, passed, keeps, slots) = self.gate.state_of(at);
            number(out, waits_for);
            out.extend_from_slice(&[passed, u8::from(keeps), slots]);
        }
        if message.flags & GROUPED != 0 {
            string(out, self.gate.groups.text_of(at));
        }
    }

    /// Facts about messages that are parked or were, and work that is still to be moved.
    fn dump_parked(&self, out: &mut Vec<u8>) {
        let parkings = self.parked.parkings();
        number(out, parkings.len() as u64);
        for (at, parking) in parkings {
            number(out, self.records[at].id);
            for word in [parking.first, u64::from(parking.times), parking.since] {
                number(out, word);
            }
            string(out, parking.under.as_ref().map_or(b"", |key| key.as_bytes()));
        }
        ids(out, self.parked.dying().map(|(_, at)| self.records[at].id));
        let sweeps = self.parked.sweeps();
        number(out, sweeps.len() as u64);
        sweeps.for_each(|key| string(out, key.as_bytes()));
        out.push(u8::from(self.parked.resweep().is_some()));
        if let Some(last) = self.parked.resweep() {
            string(out, last.as_bytes());
        }
    }

    /// Leases of many messages, each with the ids of those that are still out, in order.
    fn dump_batches(&self, out: &mut Vec<u8>) {
        number(out, self.leases.batch_count() as u64);
        for (token, deadline, told, leases) in self.leases.batches() {
            number(out, token);
            number(out, deadline);
            out.push(told as u8);
            ids(out, leases.into_iter().map(|lease| self.records[lease.message].id));
        }
    }

    fn dump_extra(&self, out: &mut Vec<u8>, id: u64, extra: &Extra) {
        let Extra { sequence, size, suspect, attempt, timer: _, dedup, failing } = extra;
        let error = failing.as_ref().and_then(|failing| failing.error.as_deref());
        let retry = failing.as_ref().and_then(|failing| failing.retry.as_ref());
        let window = dedup.as_deref().and_then(|name| self.dedup.window_of(name));
        let (named, run) = (self.coalescing.of(id), self.runs.of(id));
        let marks = [
            (*sequence > 0, SEQUENCE),
            (*size > 0, SIZE),
            (*attempt > 0, ATTEMPT),
            (dedup.is_some(), DEDUP),
            (error.is_some(), ERROR),
            (window.is_some(), WINDOW),
            (retry.is_some(), RETRY),
            (*suspect > 0, SUSPECT),
            (named.is_some(), COALESCE),
            (self.coalescing.is_newest(id), NEWEST_OF_ITS_NAME),
            (!run.is_empty(), RUN),
        ];
        number(out, marks.iter().filter(|(has, _)| *has).map(|(_, mark)| mark).sum());
        let counts = [*sequence, *size, u64::from(*attempt)];
        counts.into_iter().filter(|value| *value > 0).for_each(|value| number(out, value));
        window.into_iter().for_each(|window| number(out, window));
        for text in [dedup.as_deref(), error].into_iter().flatten() {
            string(out, text.as_bytes());
        }
        retry.into_iter().for_each(|retry| write_retry_part(out, retry));
        if *suspect > 0 {
            number(out, *suspect);
        }
        if let Some(Named { name, revision, latest }) = named {
            string(out, name);
            number(out, u64::from(*revision));
            number(out, *latest);
        }
        if !run.is_empty() {
            string(out, run);
        }
    }

    fn dump_barriers(&self, out: &mut Vec<u8>) {
        let barriers = &self.barriers;
        number(out, barriers.open());
        number(out, barriers.iter().count() as u64);
        for barrier in barriers.iter() {
            number(out, self.records[barrier.message].id);
            number(out, barrier.sequence);
            number(out, barrier.after);
            ids(out, barrier.gated.iter().map(|&(_, sequence)| sequence));
        }
        ids(out, barriers.opening().iter().map(|&(_, sequence)| sequence));
    }

    fn dump_pauses(&self, out: &mut Vec<u8>, numbers: &[u32]) {
        let pauses = &self.pauses;
        out.push(u8::from(pauses.of_queue()));
        let aside = pauses.aside();
        number(out, aside.len() as u64);
        for (lane, tickets) in aside {
            number(out, u64::from(numbers[lane as usize]));
            ids(out, tickets.iter().map(|ticket| ticket.sequence));
        }
        ids(out, pauses.returning().map(|ticket| ticket.sequence));
    }

    fn dump_dedup(&self, out: &mut Vec<u8>) {
        number(out, self.dedup.inserted());
        let leaving: Vec<_> = self.dedup.leaving().collect();
        number(out, leaving.len() as u64);
        for (until, name, id) in leaving {
            number(out, until);
            number(out, id);
            string(out, name.as_bytes());
        }
    }
}

/// Writes a byte string whose length is known only afterwards, preceded by the length in four
/// bytes.
fn sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = u32::try_from(out.len() - at - 4).expect("a payload is shorter than 4 GiB");
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

fn ids(out: &mut Vec<u8>, ids: impl ExactSizeIterator<Item = u64>) {
    number(out, ids.len() as u64);
    ids.for_each(|id| number(out, id));
}

fn write_options(out: &mut Vec<u8>, options: &Options) {
    number(out, options.max_messages as u64);
    number(out, options.max_bytes);
    option(out, options.lease);
    write_retry(out, &options.retry);
    for one in &NUMBERS {
        number(out, (one.get)(options));
    }
    string(out, &options.limits.bytes());
    string(out, &options.weights.bytes());
    out.push(options.behind as u8);
}

fn write_retry(out: &mut Vec<u8>, retry: &Retry) {
    let Retry { attempts, first, factor, longest, jitter, then } = retry;
    option(out, attempts.map(u64::from));
    number(out, *first);
    out.extend_from_slice(&factor.to_bits().to_le_bytes());
    number(out, *longest);
    out.extend_from_slice(&[u8::from(*jitter), u8::from(*then == Then::Hold)]);
}

/// Writes the retry policy of a message where it differs from its queue's: for each part, whether
/// it does, and its value.
pub(in crate::queue) fn write_retry_part(out: &mut Vec<u8>, part: &RetryPart) {
    let RetryPart { attempts, first, factor, longest, jitter, then } = part;
    out.push(u8::from(attempts.is_some()));
    if let Some(attempts) = attempts {
        option(out, attempts.map(u64::from));
    }
    option(out, *first);
    option(out, factor.map(f64::to_bits));
    option(out, *longest);
    option(out, jitter.map(u64::from));
    option(out, then.map(|then| u64::from(then == Then::Hold)));
}

/// Writes the figures that restoring does not recount.
fn write_stats(out: &mut Vec<u8>, stats: &Stats) {
    for count in kept_stats(&mut stats.clone()) {
        number(out, *count);
    }
}

/// Returns the counts that are kept; the others are asked of what they count.
pub(in crate::queue) fn kept_stats(stats: &mut Stats) -> [&mut u64; 18] {
    let Stats {
        unsettled,
        bytes,
        delayed: _,
        waiting: _,
        ready: _,
        leased: _,
        backing_off: _,
        held,
        dead: _,
        limited: _,
        groups: _,
        parked: _,
        puts,
        leases,
        acks,
        retries,
        releases,
        leases_expired,
        revoked,
        dead_lettered,
        cancelled,
        skipped,
        requeued,
        deduplicated,
        messages_expired,
        dead_expired,
        coalesced,
    } = stats;
    [
        unsettled,
        bytes,
        held,
        puts,
        leases,
        acks,
        retries,
        releases,
        leases_expired,
        revoked,
        dead_lettered,
        cancelled,
        skipped,
        requeued,
        deduplicated,
        messages_expired,
        dead_expired,
        coalesced,
    ]
}

fn write_dead<P>(out: &mut Vec<u8>, dead: &Dead<P>) {
    let Dead { id, keys, attempts, error, retry, priority, barrier, quiet, .. } = dead;
    let Dead { size, put_at, died_at, .. } = dead;
    number(out, *id);
    number(out, keys.len() as u64);
    for (key, shared) in keys {
        out.push(u8::from(*shared));
        string(out, key.as_bytes());
    }
    number(out, u64::from(*attempts));
    string(out, error.as_bytes());
    out.extend_from_slice(&[*priority as u8, u8::from(*barrier), u8::from(*quiet)]);
    for word in [*size, *put_at, *died_at] {
        number(out, word);
    }
    out.push(u8::from(retry.is_some()));
    retry.iter().for_each(|retry| write_retry_part(out, retry));
    string(out, &dead.limit);
    string(out, &dead.group);
    out.push(dead.behind.map_or(0, |behind| behind as u8 + 1));
    string(out, &dead.run);
}

pub(in crate::queue) const STATES: [State; 7] = [
    State::Delayed,
    State::Waiting,
    State::Ready,
    State::Leased,
    State::BackingOff,
    State::Held,
    State::Parked,
];

fn state_byte(state: State) -> u8 {
    STATES.iter().position(|s| *s == state).expect("one of all") as u8
}
