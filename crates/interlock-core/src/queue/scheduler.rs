//! The scheduler: a pure state machine that orders messages (clauses 1 to 17 and 20 to 24).
//!
//! Time is given to it, and payloads pass through it unseen: `P` has no bound, so that it can only
//! move one. It never waits and never drops a payload; what is settled is handed back, for a payload's
//! destructor may run foreign code, which must not happen under the queue's lock.
//!
//! | file | what of the scheduler it holds |
//! |---|---|
//! | `scheduler` | the state, put, lease, settlement |
//! | `lease` | what a consumer says of a lease: ack, nack, reject, release, extend |
//! | `operate` | what an operator says: cancel, revoke, retry, skip, bury, requeue, pause |
//! | `due` | what falls due |
//! | `explain`, `watch` | why a message waits, and when to say so unasked |

use std::sync::Arc;

use crate::key::{Key, KeyRef};
use crate::queue::barrier::Barriers;
use crate::queue::dead::DeadLetters;
use crate::queue::dedup::Dedup;
use crate::queue::due::Away;
use crate::queue::index::{Index, PutTimes};
use crate::queue::lane::Lanes;
use crate::queue::lease::Lease;
use crate::queue::operate::Pauses;
use crate::queue::ready::{Ready, Ticket};
use crate::queue::record::Recorder;
use crate::queue::slab::{Record, Slab, NONE};
use crate::queue::timers::{Due, Timers};
use crate::queue::trace::{Call, PutCall};
use crate::queue::trace_text::Schedule;
use crate::queue::types::{Kind, Options, State, Stats, Time};
use crate::queue::watch::Watch;

/// Most successors readied by one call, and most things due applied by one (clauses 20, 21).
pub const CALL_LIMIT: u32 = 1000;

#[derive(Debug)]
pub struct Scheduler<P> {
    pub(super) options: Options,
    pub(super) messages: Slab<Message<P>>,
    pub(super) extras: Slab<Extra>,
    pub(super) leases: Slab<Lease>,
    pub(super) lanes: Lanes,
    pub(super) barriers: Barriers,
    pub(super) keyed: Ready,
    pub(super) unkeyed: Ready,
    pub(super) index: Index,
    pub(super) put_times: PutTimes,
    pub(super) dedup: Dedup,
    pub(super) dead: DeadLetters<P>,
    /// Deadlines of leases, ends of backoffs, ends of delays.
    pub(super) deadlines: Timers,
    pub(super) backoffs: Timers,
    pub(super) delays: Timers,
    /// Keys of delayed messages, by id.
    pub(super) away: hashbrown::HashMap<u64, Away, foldhash::fast::RandomState>,
    pub(super) pauses: Pauses,
    pub(super) watch: Watch,
    pub(super) recorder: Option<Box<Recorder>>,
    pub(super) stats: Stats,
    pub(super) now: Time,
    /// The next number to give: ids and sequences share one rising series.
    pub(super) next: u64,
    /// Every unsettled id is at or above it.
    pub(super) oldest: u64,
    pub(super) last_token: u64,
    /// Messages whose edge was granted by the call under way; kept for its room.
    pub(super) granted: Vec<u32>,
}

/// An unsettled message; 32 bytes for a payload of 8.
#[derive(Debug)]
pub struct Message<P> {
    pub id: u64,
    pub payload: Option<P>,
    pub first_edge: u32,
    /// While it waits: on how many keys, and gates, something stands before it. While it is leased:
    /// the place of its lease.
    pub hold: u32,
    /// Place of what only few messages have.
    pub extra: u32,
    pub state: Option<State>,
    pub priority: i8,
    pub flags: u8,
}

pub const KEYED: u8 = 1;
pub const BARRIER: u8 = 2;
/// Behind a barrier that is not settled, or whose gates are still opening.
pub const GATED: u8 = 4;
/// Ready, but set aside because a key of it is paused.
pub const PARKED: u8 = 8;
pub const QUIET: u8 = 16;

/// What only some messages have: delay, more than one attempt, a size, a dedup string.
#[derive(Debug, Default)]
pub struct Extra {
    /// Its sequence, if that is not its id: it was delayed.
    pub sequence: u64,
    pub size: u64,
    pub attempt: u32,
    /// Its place among the timers, or the next free record.
    pub timer: u32,
    pub dedup: Option<Arc<str>>,
    pub error: Option<Box<str>>,
}

impl Record for Extra {
    fn link(&self) -> u32 {
        self.timer
    }
    fn set_link(&mut self, next: u32) {
        self.timer = next;
    }
}

impl<P> Default for Message<P> {
    fn default() -> Self {
        Message {
            id: 0,
            payload: None,
            first_edge: NONE,
            hold: 0,
            extra: NONE,
            state: None,
            priority: 0,
            flags: 0,
        }
    }
}

impl<P> Record for Message<P> {
    fn link(&self) -> u32 {
        self.first_edge
    }
    fn set_link(&mut self, next: u32) {
        self.first_edge = next;
    }
}

/// What a put names.
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
}

/// Why a put was refused; the queue is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No room now.
    Full,
    /// Larger than the bound: there will never be room.
    TooLarge,
}

/// A put that was done, or was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub id: u64,
    /// A dedup string was known: nothing was queued, and `id` is the first put's.
    pub known: bool,
}

/// The right to settle: a lease's place and its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(super) place: u32,
    pub token: u64,
}

/// A message handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub handle: Handle,
    pub id: u64,
    pub attempt: u32,
    pub(super) message: u32,
}

impl<P> Scheduler<P> {
    pub fn new(options: Options, watch: Watch) -> Self {
        Scheduler {
            dedup: Dedup::new(options.dedup_window),
            dead: DeadLetters::new(options.max_dead),
            lanes: Lanes::new(watch.lane_depth()),
            options,
            messages: Slab::new(),
            extras: Slab::new(),
            leases: Slab::new(),
            barriers: Barriers::default(),
            keyed: Ready::default(),
            unkeyed: Ready::default(),
            index: Index::new(),
            put_times: PutTimes::default(),
            deadlines: Timers::default(),
            backoffs: Timers::default(),
            delays: Timers::default(),
            away: Default::default(),
            pauses: Pauses::default(),
            watch,
            recorder: None,
            stats: Stats::default(),
            now: 0,
            next: 1,
            oldest: 1,
            last_token: 0,
            granted: Vec::new(),
        }
    }

    /// An empty scheduler with the same options; its tokens go on rising.
    pub(super) fn afresh(&self) -> Self {
        let mut fresh = Scheduler::new(self.options.clone(), Watch::new(self.watch.limits()));
        fresh.last_token = self.last_token;
        fresh.next = self.next;
        fresh.oldest = self.next;
        fresh
    }

    /// Whether a put of `count` messages of `size` bytes in all would find room (clause 11).
    pub fn room(&self, count: usize, size: u64) -> Result<(), Refused> {
        let Options { max_messages, max_bytes, .. } = self.options;
        if (max_messages > 0 && count > max_messages) || (max_bytes > 0 && size > max_bytes) {
            return Err(Refused::TooLarge);
        }
        let (messages, bytes) = (self.stats.unsettled as usize, self.stats.bytes);
        if (max_messages > 0 && messages + count > max_messages)
            || (max_bytes > 0 && bytes.saturating_add(size) > max_bytes)
        {
            return Err(Refused::Full);
        }
        Ok(())
    }

    /// Queues a message; `payload` is taken only if that was done (clauses 4, 11 to 14).
    #[inline]
    pub fn put(
        &mut self,
        now: Time,
        put: &Put<'_>,
        payload: &mut Option<P>,
    ) -> Result<Placed, Refused> {
        self.begin(now, || Call::Put(PutCall::from(put)));
        if let Some(id) = put.dedup.and_then(|name| self.dedup.find(name, self.now)) {
            self.stats.deduplicated += 1;
            return Ok(Placed { id, known: true });
        }
        self.room(1, put.size)?;
        let id = self.enter(put, payload.take());
        Ok(Placed { id, known: false })
    }

    /// Queues a batch whole or not at all (clause 11).
    pub fn put_many(
        &mut self,
        now: Time,
        puts: &[Put<'_>],
        payloads: &mut [Option<P>],
    ) -> Result<Vec<Placed>, Refused> {
        self.begin(now, || Call::PutMany(puts.iter().map(PutCall::from).collect()));
        let (mut count, mut size) = (0, 0u64);
        let mut names = hashbrown::HashSet::<&str, foldhash::fast::RandomState>::default();
        for put in puts {
            let known = put
                .dedup
                .is_some_and(|n| self.dedup.find(n, self.now).is_some() || !names.insert(n));
            if !known {
                count += 1;
                size = put.size.saturating_add(size);
            }
        }
        self.room(count, size)?;
        let placed = puts.iter().zip(payloads).map(|(put, payload)| {
            match put.dedup.and_then(|name| self.dedup.find(name, self.now)) {
                Some(id) => {
                    self.stats.deduplicated += 1;
                    Placed { id, known: true }
                }
                None => Placed { id: self.enter(put, payload.take()), known: false },
            }
        });
        Ok(placed.collect())
    }

    /// Gives a message its id and, unless it is delayed, its place.
    #[inline]
    pub(super) fn enter(&mut self, put: &Put<'_>, payload: Option<P>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.stats.puts += 1;
        self.stats.unsettled += 1;
        if self.put_times.note(id, self.now) {
            self.advance_oldest(id);
        }
        let mut flags = if put.keys.is_empty() && put.shared.is_empty() { 0 } else { KEYED };
        if put.barrier {
            flags |= BARRIER | KEYED;
        }
        if put.quiet {
            flags |= QUIET;
        }
        let message = self.messages.insert(Message {
            id,
            payload,
            flags,
            priority: put.priority,
            ..Message::default()
        });
        let messages = &self.messages;
        self.index.insert(id, message, |place| messages[place].id);
        if put.size > 0 || put.dedup.is_some() {
            // Where bytes are not bounded a sum may pass 2^64; it comes back to zero all the same.
            self.stats.bytes = self.stats.bytes.wrapping_add(put.size);
            let dedup = put.dedup.map(|name| self.dedup.insert(name, id, self.now));
            let extra = self.extra(message);
            extra.size = put.size;
            extra.dedup = dedup;
        }
        if put.delay > 0 {
            self.delay(message, put);
        } else {
            self.place(message, id, put.keys, put.shared);
        }
        self.watch.entered(self.stats.unsettled, self.now, &mut self.lanes);
        id
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
        let flags = self.messages[message].flags;
        if flags & BARRIER != 0 {
            let ready = self.barriers.place_barrier(message, sequence);
            return self.placed(message, sequence, u32::from(!ready));
        }
        let mut chain = Lanes::chain();
        for &key in keys {
            self.lanes.link(message, key, false, &mut chain);
        }
        for &key in shared {
            self.lanes.link(message, key, true, &mut chain);
        }
        self.messages[message].first_edge = chain.first;
        let mut blocked = chain.blocked;
        if self.barriers.place(message, self.messages[message].id) {
            self.messages[message].flags |= GATED;
            blocked += 1;
        }
        self.placed(message, sequence, blocked);
    }

    #[inline]
    fn placed(&mut self, at: u32, sequence: u64, blocked: u32) {
        let message = &mut self.messages[at];
        message.hold = blocked;
        if blocked > 0 {
            message.state = Some(State::Waiting);
        } else {
            message.state = Some(State::Ready);
            let ticket = Ticket::new(message.priority, sequence, at);
            let keyed = message.flags & KEYED != 0;
            if keyed { &mut self.keyed } else { &mut self.unkeyed }.push(ticket, true);
        }
    }

    /// Hands out the first ready message of the kind asked for (clauses 3, 6, 7, 8, 22).
    #[inline]
    pub fn lease(&mut self, now: Time, kind: Kind, consumer: u64) -> Option<Grant> {
        self.begin(now, || Call::Lease { kind, limit: 1 });
        self.grant(kind, consumer)
    }

    /// Hands out up to `limit` messages, appended to `grants`.
    pub fn lease_many(
        &mut self,
        now: Time,
        kind: Kind,
        limit: usize,
        consumer: u64,
        grants: &mut Vec<Grant>,
    ) {
        self.begin(now, || Call::Lease { kind, limit });
        grants.extend(std::iter::from_fn(|| self.grant(kind, consumer)).take(limit));
    }

    #[inline]
    fn grant(&mut self, kind: Kind, consumer: u64) -> Option<Grant> {
        if self.pauses.queue {
            return None;
        }
        let at = loop {
            let ticket = self.choose(kind)?;
            let message = &self.messages[ticket.message];
            let keyed = message.flags & KEYED != 0;
            let first = message.first_edge;
            if keyed { &mut self.keyed } else { &mut self.unkeyed }.pop(ticket);
            if self.lanes.paused > 0 {
                if let Some(lane) = self.lanes.paused_lane(first) {
                    self.park(ticket, lane);
                    continue;
                }
            }
            break ticket.message;
        };
        let token = self.now.max(self.last_token + 1);
        self.last_token = token;
        let id = self.messages[at].id;
        let deadline = self.options.lease.map(|length| self.now.saturating_add(length).max(1));
        let place = self.leases.insert(Lease {
            token,
            at: self.now,
            deadline: deadline.unwrap_or(0),
            consumer,
            message: at,
            timer: NONE,
            noted: false,
        });
        if let Some(at) = deadline {
            let leases = &mut self.leases;
            let due = Due { at, id, owner: place };
            self.deadlines.insert(due, |owner, position| leases[owner].timer = position);
        }
        let attempt = self.attempt(at);
        let message = &mut self.messages[at];
        message.state = Some(State::Leased);
        message.hold = place;
        self.stats.leases += 1;
        Some(Grant { handle: Handle { place, token }, id, attempt, message: at })
    }

    #[inline]
    fn choose(&mut self, kind: Kind) -> Option<Ticket> {
        let (messages, extras) = (&self.messages, &self.extras);
        let valid = |ticket: &Ticket| is_ready(messages, extras, ticket);
        match kind {
            Kind::Keyed => self.keyed.peek(valid),
            Kind::Unkeyed => self.unkeyed.peek(valid),
            Kind::Any => match (self.keyed.peek(valid), self.unkeyed.peek(valid)) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
        }
    }

    /// The payload of a message that was just handed out.
    #[inline]
    pub fn payload(&self, grant: &Grant) -> &P {
        self.messages[grant.message].payload.as_ref().expect("a leased message has its payload")
    }

    /// Ready messages of a kind, as far as is known without looking at pauses of keys.
    #[inline]
    pub fn ready(&self, kind: Kind) -> usize {
        if self.pauses.queue {
            return 0;
        }
        match kind {
            Kind::Keyed => self.keyed.len(),
            Kind::Unkeyed => self.unkeyed.len(),
            Kind::Any => self.keyed.len() + self.unkeyed.len(),
        }
    }

    /// Takes a message out of its lanes and of the queue; readies what it held up (clause 21).
    #[inline]
    pub(super) fn settle(&mut self, at: u32, budget: &mut u32) -> Option<P> {
        let sequence = self.sequence(at);
        let message = self.messages.remove(at);
        let messages = &self.messages;
        self.index.remove(message.id, at, |place| messages[place].id);
        self.stats.unsettled -= 1;
        let placed = message.state != Some(State::Delayed);
        if message.extra != NONE {
            let extra = self.extras.remove(message.extra);
            self.stats.bytes = self.stats.bytes.wrapping_sub(extra.size);
            if let Some(name) = extra.dedup {
                self.dedup.settled(name, self.now);
            }
        }
        if placed {
            let barrier = if message.flags & BARRIER != 0 {
                let next = self.barriers.barrier_settled(sequence);
                self.open_gates(budget);
                next
            } else {
                self.lanes.unlink(message.first_edge, &mut self.granted, budget);
                self.unblock_granted();
                self.barriers.settled(sequence)
            };
            if let Some(barrier) = barrier {
                self.unblock(barrier);
            }
        }
        if self.stats.unsettled <= self.watch.calm_depth {
            self.watch.calmed(self.stats.unsettled);
            if self.stats.unsettled == 0 {
                self.oldest = self.next;
                self.put_times.forget(self.next);
            }
        }
        message.payload
    }

    pub(super) fn open_gates(&mut self, budget: &mut u32) {
        while *budget > 0 {
            let Some((at, id)) = self.barriers.next_opening() else {
                return;
            };
            *budget -= 1;
            let Some(message) = self.messages.get(at) else {
                continue;
            };
            // It may have been cancelled, and its place used again.
            if message.id == id && message.flags & GATED != 0 {
                self.messages[at].flags &= !GATED;
                self.unblock(at);
            }
        }
    }

    #[inline]
    pub(super) fn unblock_granted(&mut self) {
        while let Some(at) = self.granted.pop() {
            self.unblock(at);
        }
    }

    /// One thing less stands before a message.
    #[inline]
    fn unblock(&mut self, at: u32) {
        let message = &mut self.messages[at];
        message.hold -= 1;
        if message.hold == 0 {
            self.make_ready(at);
        }
    }

    #[inline]
    pub(super) fn make_ready(&mut self, at: u32) {
        let sequence = self.sequence(at);
        let message = &mut self.messages[at];
        message.state = Some(State::Ready);
        let ticket = Ticket::new(message.priority, sequence, at);
        let keyed = message.flags & KEYED != 0;
        if keyed { &mut self.keyed } else { &mut self.unkeyed }.push(ticket, false);
    }

    #[inline]
    pub(super) fn sequence(&self, at: u32) -> u64 {
        sequence(&self.messages, &self.extras, at)
    }

    #[inline]
    pub(super) fn attempt(&self, at: u32) -> u32 {
        match self.messages[at].extra {
            NONE => 1,
            extra => self.extras[extra].attempt.max(1),
        }
    }

    /// The record of what only few messages have, made if need be.
    pub(super) fn extra(&mut self, at: u32) -> &mut Extra {
        if self.messages[at].extra == NONE {
            self.messages[at].extra = self.extras.insert(Extra::default());
        }
        let extra = self.messages[at].extra;
        &mut self.extras[extra]
    }

    #[inline]
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        self.index.get(id, |place| self.messages.get(place).map_or(0, |m| m.id))
    }

    /// Lets go of put times that nobody can ask for any more.
    fn advance_oldest(&mut self, newest: u64) {
        let messages = &self.messages;
        let (oldest, _) =
            self.index.next_from(self.oldest, newest, 4096, |place| messages[place].id);
        self.oldest = oldest;
        self.put_times.forget(oldest);
    }

    /// The keys of an unsettled message, in the order the put named them, with whether shared.
    pub fn keys_of_id(&self, id: u64) -> Option<Vec<(Key, bool)>> {
        self.find(id).map(|at| self.keys_of(at))
    }

    /// The token of the lease of a message, if it is leased.
    pub fn token_of(&self, id: u64) -> Option<u64> {
        let message = &self.messages[self.find(id)?];
        (message.state == Some(State::Leased)).then(|| self.leases[message.hold].token)
    }

    /// What keeps the queue from draining: held ids, what is paused, delayed ids, leased ids; each at
    /// most `limit` long, ids rising.
    pub fn undrained(&self, limit: usize) -> (Vec<u64>, Vec<Vec<u8>>, Vec<u64>, Vec<u64>) {
        let of = |state: State| {
            let places = self.messages.places().filter(|(_, m)| m.state == Some(state));
            let mut ids: Vec<u64> = places.map(|(_, message)| message.id).collect();
            ids.sort_unstable();
            ids.truncate(limit);
            ids
        };
        let mut paused = self.paused();
        paused.truncate(limit);
        (of(State::Held), paused, of(State::Delayed), of(State::Leased))
    }

    /// Ids of what a consumer leases, rising.
    pub fn leased_by(&self, consumer: u64) -> Vec<u64> {
        let leases = self.leases.places().filter(|(_, l)| l.token != 0 && l.consumer == consumer);
        let mut ids: Vec<u64> = leases.map(|(_, l)| self.messages[l.message].id).collect();
        ids.sort_unstable();
        ids
    }

    /// Unsettled messages.
    #[inline]
    pub fn unsettled(&self) -> u64 {
        self.stats.unsettled
    }

    /// Unsettled messages that are not leased.
    #[inline]
    pub fn queued(&self) -> u64 {
        self.stats.unsettled - self.leases.len() as u64
    }

    /// Whether the exact time matters to the next call.
    #[inline]
    pub fn timed(&self) -> bool {
        self.options.lease.is_some()
            || self.watch.wants_handled
            || self.deadlines.len() + self.backoffs.len() + self.delays.len() > 0
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn watch(&mut self) -> &mut Watch {
        &mut self.watch
    }

    /// The next message in order of choice is left alone; every unsettled payload is shown to `visit`.
    pub fn for_each_payload(&self, mut visit: impl FnMut(&P)) {
        self.messages.places().filter_map(|(_, m)| m.payload.as_ref()).for_each(&mut visit);
        self.dead.iter().for_each(|dead| visit(&dead.payload));
    }

    /// Starts a recording of all calls from now on (clause 20). False: there were calls before, without
    /// which it could not be replayed.
    pub fn record(&mut self) -> bool {
        let fresh = self.stats == Stats::default() && self.next == 1;
        if fresh {
            self.recorder = Some(Box::default());
        }
        fresh
    }

    /// Ends a recording and gives it.
    pub fn recording(&mut self) -> Option<Schedule> {
        let steps = self.recorder.take()?.into_steps();
        Some(Schedule { options: self.options.clone(), steps })
    }

    pub fn dead_payload(&self, id: u64) -> Option<&P> {
        self.dead.get(id).map(|dead| &dead.payload)
    }
}

/// A ticket stands for the message at its place, and that is ready and not set aside.
#[inline]
pub(super) fn is_ready<P>(
    messages: &Slab<Message<P>>,
    extras: &Slab<Extra>,
    ticket: &Ticket,
) -> bool {
    messages.get(ticket.message).is_some_and(|message| {
        message.state == Some(State::Ready)
            && message.flags & PARKED == 0
            && sequence(messages, extras, ticket.message) == ticket.sequence
    })
}

#[inline]
pub(super) fn sequence<P>(messages: &Slab<Message<P>>, extras: &Slab<Extra>, at: u32) -> u64 {
    let message = &messages[at];
    match message.extra {
        NONE => message.id,
        extra => match extras[extra].sequence {
            0 => message.id,
            sequence => sequence,
        },
    }
}
