//! The scheduler: a pure state machine that orders messages (clauses 1 to 17 and 20 to 24).
//!
//! Time is given to it, and payloads pass through it unseen: `P` has no bound, so that it can only
//! move one. It never waits and never drops a payload; what is settled is handed back, for a payload's
//! destructor may run foreign code, which must not happen under the queue's lock.
//!
//! ```
//! use interlock_core::key::KeyRef;
//! use interlock_core::queue::scheduler::{Put, Scheduler};
//! use interlock_core::queue::types::{Kind, Options};
//! use interlock_core::queue::parts::watch::Watch;
//!
//! let mut scheduler = Scheduler::new(Options::default(), Watch::off());
//! let (now, keys) = (1_000, [KeyRef::new(b"account:1")]);
//! for payload in ["first", "second"] {
//!     scheduler.put(now, &Put { keys: &keys, ..Put::default() }, &mut Some(payload)).unwrap();
//! }
//! let first = scheduler.lease(now, Kind::Any, 0).unwrap();
//! assert_eq!(scheduler.payload(&first), &"first");
//! assert!(scheduler.lease(now, Kind::Any, 0).is_none(), "the second waits for the first");
//! scheduler.ack(now, first.handle).unwrap();
//! assert!(scheduler.lease(now, Kind::Any, 0).is_some());
//! ```
//!
//! Its [`parts`](super::parts) own the state; the [`calls`](super::calls) each use several of them. This file
//! has the struct of all parts, and put.

use crate::key::KeyRef;
use crate::queue::calls::carry::Carried;
use crate::queue::calls::coalesce::{Coalesce, Coalescing, Differs, Needs};
use crate::queue::calls::engine::EngineSide;
use crate::queue::calls::runs::Runs;
use crate::queue::parts::barrier::Barriers;
use crate::queue::parts::counts::{Counts, Happened};
use crate::queue::parts::dead::DeadLetters;
use crate::queue::parts::dedup::Dedup;
use crate::queue::parts::delays::Delays;
use crate::queue::parts::feed::{Change, Feed};
use crate::queue::parts::gate::Gate;
use crate::queue::parts::groups::Front;
use crate::queue::parts::lane::Lanes;
use crate::queue::parts::lazy::Lazy;
use crate::queue::parts::leases::Leases;
use crate::queue::parts::numbers::Numbers;
use crate::queue::parts::parked::Parked;
use crate::queue::parts::pauses::Pauses;
use crate::queue::parts::ready::{Ready, Ticket};
use crate::queue::parts::records::Records;
use crate::queue::parts::slab::NONE;
use crate::queue::parts::timers::Timers;
use crate::queue::parts::watch::Watch;
use crate::queue::schedules::record::Recorder;
use crate::queue::schedules::trace::{Call, PutCall};
use crate::queue::schedules::trace_text::Schedule;
use crate::queue::types::message::{Message, BARRIER, GROUPED, KEYED, LIMITED, QUIET};
use crate::queue::types::rules::Rules;
use crate::queue::types::{Behind, Options, RetryPart, State, Stats, Time};

/// Most successors readied by one call, and most things due applied by one (clauses 20, 21).
pub const CALL_LIMIT: u32 = 1000;

/// Most keys of the messages that one call parks, returns, buries or cancels behind a failure.
const CALL_KEYS: u32 = 4096;

/// The work that one call may still do (clause 21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Successors made ready.
    pub ready: u32,
    /// Readers granted beyond the first of a lane, gates opened, tickets returned.
    pub steps: u32,
    /// Messages parked, returned, buried or cancelled behind a failure (clause 31), and their keys.
    pub moves: u32,
    pub keys: u32,
}

impl Budget {
    pub const ONE_CALL: Budget =
        Budget { ready: CALL_LIMIT, steps: CALL_LIMIT, moves: CALL_LIMIT, keys: CALL_KEYS };
    pub(super) const NO_LIMIT: Budget =
        Budget { ready: u32::MAX, steps: u32::MAX, moves: u32::MAX, keys: u32::MAX };
}

#[derive(Debug)]
pub struct Scheduler<P> {
    pub(super) options: Options,
    pub(super) rules: &'static Rules,
    pub(super) now: Time,
    /// No call before this time has anything to apply; 0: that is not known.
    pub(super) earliest_due: Time,
    pub(super) records: Records<P>,
    pub(super) leases: Leases,
    pub(super) lanes: Lanes,
    pub(super) barriers: Barriers,
    pub(super) ready: Ready,
    pub(super) pauses: Pauses,
    pub(super) gate: Lazy<Gate>,
    pub(super) delays: Delays,
    pub(super) parked: Lazy<Parked>,
    /// Messages to be retried later, by time.
    pub(super) backoffs: Timers,
    pub(super) numbers: Numbers,
    pub(super) counts: Counts,
    pub(super) dedup: Dedup,
    pub(super) coalescing: Coalescing,
    pub(super) runs: Runs,
    pub(super) dead: DeadLetters<P>,
    pub(super) engine: EngineSide<P>,
    pub(super) feed: Feed,
    pub(super) watch: Watch,
    pub(super) recorder: Option<Box<Recorder>>,
}

/// The arguments of a put.
#[derive(Clone, Copy, Debug, Default)]
pub struct Put<'a> {
    pub keys: &'a [KeyRef<'a>],
    pub shared: &'a [KeyRef<'a>],
    pub priority: i8,
    /// µs.
    pub delay: u64,
    pub dedup: Option<&'a str>,
    pub barrier: bool,
    /// Bytes, where the queue is bounded by them.
    pub size: u64,
    /// Left out of the debug log.
    pub quiet: bool,
    /// The parts of the queue's policy that it overrides.
    pub retry: Option<&'a RetryPart>,
    /// The time for which its dedup string is remembered once it is settled, µs; `None`: as the
    /// queue says.
    pub window: Option<u64>,
    /// Names of concurrency limits, joined; empty: none (clause 26).
    pub limit: &'a [u8],
    /// Its group; empty: none (clause 28).
    pub group: &'a [u8],
    /// Its coalescing name, if it has one (clause 29).
    pub coalesce: Option<&'a Coalesce<'a>>,
    /// The outcome for it behind a failure; `None`: as the queue says (clause 31).
    pub behind: Option<Behind>,
    /// The number of messages of its run and the label, as `100:send`; empty: none (clause 30).
    pub run: &'a [u8],
}

/// The reason why a put was refused; the queue is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// No room now.
    Full,
    /// Larger than the bound: there will never be room.
    TooLarge,
    /// It may not replace the payload of the message that it would replace (clause 29).
    Differs(Differs),
    /// It could be parked, and half of the bound is: that does not end by itself (clause 31).
    Stuck,
}

/// A put that was done, or was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub id: u64,
    /// A dedup string was known: nothing was queued, and `id` is the first put's.
    pub known: bool,
    /// The message with this id has the payload now: nothing was queued (clause 29).
    pub replaced: bool,
}

impl Placed {
    /// Returns whether a message was queued.
    #[inline]
    pub fn is_new(self) -> bool {
        !self.known && !self.replaced
    }
}

/// The right to settle: a lease's place and its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(super) place: u32,
    pub token: u64,
}

/// A leased message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub handle: Handle,
    pub id: u64,
    pub attempt: u32,
    pub(super) message: u32,
}

impl<P> Scheduler<P> {
    pub fn new(options: Options, watch: Watch) -> Self {
        let gate = Gate::new(&options.limits, &options.weights);
        let mut scheduler = Scheduler {
            dedup: Dedup::new(options.dedup_window),
            dead: DeadLetters::new(options.max_dead, options.dead_ttl),
            lanes: Lanes::new(watch.lane_depth()),
            gate: Lazy::new(gate),
            options,
            rules: Rules::current(),
            now: 0,
            earliest_due: 0,
            records: Records::new(),
            leases: Leases::default(),
            barriers: Barriers::default(),
            ready: Ready::default(),
            pauses: Pauses::default(),
            delays: Delays::default(),
            parked: Lazy::default(),
            backoffs: Timers::default(),
            coalescing: Coalescing::default(),
            runs: Runs::default(),
            numbers: Numbers::new(),
            counts: Counts::default(),
            engine: EngineSide::default(),
            feed: Feed::default(),
            watch,
            recorder: None,
        };
        scheduler.gate.free_if(Gate::is_unused);
        scheduler
    }

    /// An empty scheduler with the same options; its tokens continue to rise.
    pub(super) fn afresh(&self) -> Self {
        let mut fresh = Scheduler::new(self.options.clone(), Watch::new(self.watch.limits()));
        fresh.rules = self.rules;
        fresh.leases.go_on_from(self.leases.last_token());
        fresh.numbers.go_on_from(self.numbers.next());
        fresh
    }

    /// From now on calls decide by these rules.
    #[inline]
    pub fn set_rules(&mut self, rules: &'static Rules) {
        self.rules = rules;
    }

    pub fn rules(&self) -> &'static Rules {
        self.rules
    }

    /// Checks whether a put of `count` messages of `size` bytes in all would find room (clause 11).
    pub fn room(&self, count: usize, size: u64) -> Result<(), NoRoom> {
        let Options { max_messages, max_bytes, .. } = self.options;
        if (max_messages > 0 && count > max_messages) || (max_bytes > 0 && size > max_bytes) {
            return Err(NoRoom::TooLarge);
        }
        let (messages, bytes) = (self.counts.unsettled() as usize, self.counts.bytes());
        if (max_messages > 0 && messages + count > max_messages)
            || (max_bytes > 0 && bytes.saturating_add(size) > max_bytes)
        {
            return Err(NoRoom::Full);
        }
        Ok(())
    }

    /// Queues a message; `payload` is taken only if that was done (clauses 4, 11 to 14).
    ///
    /// It is inlined with all that it calls once: a caller that names nothing but keys does not pay for the
    /// questions about the rest.
    #[inline(always)]
    pub fn put(
        &mut self,
        now: Time,
        put: &Put<'_>,
        payload: &mut Option<P>,
    ) -> Result<Placed, NoRoom> {
        self.begin_usual(now, || Call::Put(PutCall::from(put)));
        if let Some(id) = put.dedup.and_then(|name| self.dedup.find(name, self.now)) {
            self.counts.note(Happened::Deduplicated);
            return Ok(Placed { id, known: true, replaced: false });
        }
        if put.coalesce.is_some() {
            return self.put_named(put, payload);
        }
        let room = self.room(1, put.size);
        if self.minds(put.keys, put.shared) && room != Err(NoRoom::TooLarge) {
            self.room_behind(std::slice::from_ref(put))?;
        }
        room?;
        let id = self.enter_at_once(put, payload.take(), None);
        Ok(Placed { id, known: false, replaced: false })
    }

    /// The room that the messages of a batch need that are not known by their dedup string.
    pub(super) fn needs<'a>(&self, puts: &'a [Put<'a>]) -> Result<Needs<'a>, Differs> {
        let mut needs = Needs::default();
        let mut names = hashbrown::HashSet::<&str, std::hash::RandomState>::default();
        for (at, put) in puts.iter().enumerate() {
            let known = put
                .dedup
                .is_some_and(|n| self.dedup.find(n, self.now).is_some() || !names.insert(n));
            if put.coalesce.is_some() {
                self.add_named(&mut needs, at, *put, put.size)?;
            } else if !known {
                needs.add(put.size);
            }
        }
        Ok(needs)
    }

    /// Returns a number that rises when a put that waits for room may need less: a dedup string became known, or
    /// the newest message of a coalescing name is another one, or no longer leased.
    pub fn names(&self) -> u64 {
        self.dedup.inserted() + self.coalescing.changes()
    }

    /// Returns whether these puts may have to wait for room: all may that need some and are not too large.
    pub(super) fn waits(&self, puts: &[Put<'_>]) -> bool {
        self.needs(puts).is_ok_and(|needs| {
            !needs.is_nothing()
                && self.room_for(&needs) != Err(NoRoom::TooLarge)
                && self.room_behind(puts).is_ok()
        })
    }

    /// Queues a batch whole or not at all (clause 11).
    pub fn put_many(
        &mut self,
        now: Time,
        puts: &[Put<'_>],
        payloads: &mut [Option<P>],
    ) -> Result<Vec<Placed>, NoRoom> {
        self.begin(now, || Call::PutMany(puts.iter().map(PutCall::from).collect()));
        let needs = self.needs(puts).map_err(NoRoom::Differs)?;
        let room = self.room_for(&needs);
        if room != Err(NoRoom::TooLarge) {
            self.room_behind(puts)?;
        }
        room?;
        let placed = puts.iter().zip(payloads).map(|(put, payload)| {
            match put.dedup.and_then(|name| self.dedup.find(name, self.now)) {
                Some(id) => {
                    self.counts.note(Happened::Deduplicated);
                    Placed { id, known: true, replaced: false }
                }
                None => self.place_named(put, payload),
            }
        });
        Ok(placed.collect())
    }

    /// Gives a new message, for which there is room, its id and, unless it is delayed, its place. Inlined for the
    /// same reason as `put`.
    #[inline(always)]
    pub fn enter(&mut self, put: &Put<'_>, payload: Option<P>) -> u64 {
        match put.coalesce {
            None => self.enter_at_once(put, payload, None),
            Some(_) => self.enter_named(put, payload, None),
        }
    }

    pub(super) fn enter_as(
        &mut self,
        put: &Put<'_>,
        payload: Option<P>,
        carried: Option<&Carried<'_>>,
    ) -> u64 {
        match put.coalesce {
            None => self.enter_at_once(put, payload, carried),
            Some(_) => self.enter_named(put, payload, carried),
        }
    }

    /// Like `enter`, inlined for callers in a loop. `carried`: what it brings from another queue.
    #[inline(always)]
    pub(super) fn enter_at_once(
        &mut self,
        put: &Put<'_>,
        payload: Option<P>,
        carried: Option<&Carried<'_>>,
    ) -> u64 {
        let id = self.numbers.draw(self.now);
        self.counts.entered(1);
        if self.numbers.note(id, self.now) {
            self.advance_oldest(id);
        }
        if let Some(weight) = payload.as_ref().and_then(|payload| self.engine.weight(payload)) {
            self.counts.add_bytes(weight);
        }
        let mut flags = if put.keys.is_empty() && put.shared.is_empty() { 0 } else { KEYED };
        if put.barrier {
            flags |= BARRIER | KEYED;
        }
        if put.quiet {
            flags |= QUIET;
        }
        if !put.limit.is_empty() {
            flags |= LIMITED;
        }
        if !put.group.is_empty() {
            flags |= GROUPED;
        }
        let new = Message { id, payload, flags, priority: put.priority, ..Message::default() };
        let placed = put.delay == 0 && !put.barrier;
        // One that was in front before it was carried here is placed in any case.
        let looks =
            placed && self.minds(put.keys, put.shared) && !carried.is_some_and(|one| one.stops);
        let message = match placed && !looks {
            true => self.insert_in_lanes(new, put.keys, put.shared),
            false => self.records.insert(new),
        };
        if flags & (LIMITED | GROUPED) != 0 {
            self.enter_gate(message, put, flags);
        }
        if put.size > 0 {
            self.counts.add_bytes(put.size);
            self.records.set_size(message, put.size);
        }
        if let Some(name) = put.dedup {
            let dedup = self.dedup.insert(name, id, put.window, self.now);
            self.records.set_dedup(message, dedup);
        }
        if let Some(retry) = put.retry {
            self.records.set_retry(message, retry.clone());
        }
        if let Some(behind) = put.behind {
            self.set_own_behind(message, behind);
        }
        if !put.run.is_empty() {
            self.enter_run(message, put.run);
        }
        if let Some(carried) = carried {
            self.set_carried(message, carried);
        }
        if looks {
            self.come_new(message, put.keys, put.shared);
        } else {
            if put.delay > 0 {
                self.delay(message, put);
            } else if put.barrier {
                self.place_barrier(message, id);
            }
            self.note(Change::Put, message, 0);
        }
        if self.watch.entered(self.counts.unsettled(), self.now, &mut self.lanes) {
            self.earliest_due = 0;
        }
        id
    }

    /// A message has limit names or a group.
    #[inline(never)]
    fn enter_gate(&mut self, at: u32, put: &Put<'_>, flags: u8) {
        self.gate.enter(at, (put.limit, put.group), flags & KEYED != 0, put.priority);
        let message = &self.records[at];
        if flags & GROUPED != 0 && message.state == Some(State::Ready) {
            let ticket = Ticket::new(message.priority, message.id, at);
            self.push_ready(ticket, flags, true);
        }
    }

    /// A message is ready; `fresh`: its sequence is the highest so far.
    #[inline]
    pub(super) fn push_ready(&mut self, ticket: Ticket, flags: u8, fresh: bool) {
        if flags & GROUPED == 0 {
            self.ready.push(flags & KEYED != 0, ticket, fresh);
        } else {
            self.gate.groups.insert(Front::Ready, flags & KEYED != 0, ticket);
        }
    }

    /// A message takes its place in all its lanes at once (clause 4).
    #[inline]
    pub(super) fn place(
        &mut self,
        message: u32,
        sequence: u64,
        keys: &[KeyRef<'_>],
        shared: &[KeyRef<'_>],
    ) {
        if self.records[message].flags & BARRIER != 0 {
            self.place_barrier(message, sequence);
        } else {
            let (first_edge, gated, blocked) = self.link(message, sequence, keys, shared);
            self.placed(message, sequence, first_edge, gated, blocked);
        }
    }

    fn place_barrier(&mut self, message: u32, sequence: u64) {
        let ready = self.barriers.place_barrier(message, sequence);
        self.placed(message, sequence, NONE, false, u32::from(!ready));
    }

    /// Inserts a message that takes its place at once: it is written once, with the edges that it has.
    #[inline(always)]
    pub(super) fn insert_in_lanes(
        &mut self,
        mut new: Message<P>,
        keys: &[KeyRef<'_>],
        shared: &[KeyRef<'_>],
    ) -> u32 {
        let at = self.records.place();
        let (first_edge, gated, blocked) = self.link(at, new.id, keys, shared);
        new.enter_lanes(first_edge, gated, blocked);
        // A group is known only later.
        if blocked == 0 && new.flags & GROUPED == 0 {
            let ticket = Ticket::new(new.priority, new.id, at);
            self.ready.push(new.flags & KEYED != 0, ticket, true);
        }
        self.records.fill(at, new);
        at
    }

    /// Adds a message to the lanes of its keys. Returns its first edge, whether it is behind a barrier, and
    /// the number of things for which it waits.
    #[inline(always)]
    fn link(
        &mut self,
        message: u32,
        sequence: u64,
        keys: &[KeyRef<'_>],
        shared: &[KeyRef<'_>],
    ) -> (u32, bool, u32) {
        let mut chain = Lanes::chain();
        for &key in keys {
            self.lanes.link(message, key, false, &mut chain);
        }
        for &key in shared {
            self.lanes.link(message, key, true, &mut chain);
        }
        let gated = self.barriers.place(message, sequence);
        let blocked = chain.blocked + u32::from(gated);
        (chain.first, gated, blocked)
    }

    fn placed(&mut self, at: u32, sequence: u64, first_edge: u32, gated: bool, blocked: u32) {
        let message = self.records.enter_lanes(at, first_edge, gated, blocked);
        if blocked == 0 {
            let ticket = Ticket::new(message.priority, sequence, at);
            let flags = message.flags;
            self.push_ready(ticket, flags, true);
        }
    }

    /// Drops put times that are no longer needed.
    pub(super) fn advance_oldest(&mut self, newest: u64) {
        if !self.numbers.are_times() {
            let (oldest, _) = self.records.next_from(self.numbers.oldest(), newest, 4096);
            self.numbers.forget_before(oldest);
        }
    }

    /// Starts a recording of all calls from now on (clause 20). False: there were calls before, without
    /// which it could not be replayed.
    pub fn record(&mut self) -> bool {
        let fresh = *self.counts.stats() == Stats::default() && self.numbers.next() == 1;
        if fresh {
            self.recorder = Some(Box::default());
            self.earliest_due = 0;
        }
        fresh
    }

    /// Ends a recording and gives it.
    pub fn recording(&mut self) -> Option<Schedule> {
        let steps = self.recorder.take()?.into_steps();
        Some(Schedule { options: self.options.clone(), rules: self.rules, steps })
    }

    pub fn dead_payload(&self, id: u64) -> Option<&P> {
        self.dead.get(id).map(|dead| &dead.payload)
    }
}
