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
//! use interlock_core::queue::watch::Watch;
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
//! | file | what of the scheduler it holds |
//! |---|---|
//! | `scheduler` | the state, put |
//! | `message` | an unsettled message |
//! | `grant` | handing out |
//! | `settle` | settlement, and what it readies |
//! | `batch`, `engine`, `read` | leases of many messages, and what else an engine of several processes asks |
//! | `lease` | what a consumer says of a lease: ack, nack, reject, release, extend |
//! | `operate` | what an operator says: cancel, revoke, retry, skip, bury, requeue, pause |
//! | `due` | what falls due |
//! | `carry` | what is given of another queue that it replaces |
//! | `footprint` | what it takes, and how an empty one takes little |
//! | `look_up` | what can be asked without a change |
//! | `dump`, `restore` | the whole of it as bytes, and back |
//! | `chain` | whether one message waits for another |
//! | `explain`, `watch` | why a message waits, and when to say so unasked |

use std::collections::VecDeque;

use crate::key::KeyRef;
use crate::queue::barrier::Barriers;
use crate::queue::batch::Batches;
use crate::queue::dead::DeadLetters;
use crate::queue::dedup::Dedup;
use crate::queue::due::Away;
use crate::queue::index::{Index, PutTimes};
use crate::queue::lane::Lanes;
use crate::queue::lease::Lease;
use crate::queue::message::{sequence, Extra, Message, BARRIER, GATED, KEYED, QUIET};
use crate::queue::operate::Pauses;
use crate::queue::ready::{Ready, Ticket};
use crate::queue::record::Recorder;
use crate::queue::slab::{Slab, NONE};
use crate::queue::timers::Timers;
use crate::queue::trace::{Call, PutCall};
use crate::queue::trace_text::Schedule;
use crate::queue::types::{Options, RetryPart, State, Stats, Time};
use crate::queue::watch::Watch;

/// Most successors readied by one call, and most things due applied by one (clauses 20, 21).
pub const CALL_LIMIT: u32 = 1000;

/// A peak of so many messages is worth giving its memory back.
const FLOOD: u64 = 1 << 16;

/// The work that one call may still do (clause 21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Successors made ready.
    pub ready: u32,
    /// Readers granted beyond the first of a lane, gates opened, tickets returned.
    pub steps: u32,
}

impl Budget {
    pub const ONE_CALL: Budget = Budget { ready: CALL_LIMIT, steps: CALL_LIMIT };
    pub(super) const NO_LIMIT: Budget = Budget { ready: u32::MAX, steps: u32::MAX };
}

#[derive(Debug)]
pub struct Scheduler<P> {
    pub(super) options: Options,
    pub(super) messages: Slab<Message<P>>,
    pub(super) extras: Slab<Extra>,
    pub(super) leases: Slab<Lease>,
    pub(super) batches: Batches,
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
    /// The first number that it gives.
    pub(super) first: u64,
    /// Every unsettled id is at or above it.
    pub(super) oldest: u64,
    pub(super) last_token: u64,
    /// Most unsettled messages since memory was last given back, and how few say that it should be.
    pub(super) peak: u64,
    pub(super) ebb: u64,
    /// Segments enough were freed for the allocator to be asked to return them.
    pub(super) roomy: bool,
    /// Messages whose edge was granted by the call under way; kept for its room.
    pub(super) granted: Vec<u32>,
    /// Messages that nothing holds up any more and that one call more could not ready: (message, id).
    pub(super) late: VecDeque<(u32, u64)>,
    /// Numbers are times, where time is ahead of them: see `engine`.
    pub(super) by_time: bool,
    /// The function that tells a payload's bytes, where the puts do not.
    pub(super) weigh: Option<fn(&P) -> u64>,
    /// True while somebody waits for messages to be settled, and the ids of those that were.
    pub(super) notes_ended: bool,
    pub(super) ended: Vec<u64>,
    /// Bytes of the last errors of messages, and of what they are in.
    pub(super) errors: usize,
    /// The next call is a part of one that has begun: what is due was applied, and this is left to it.
    pub(super) carried: Option<Budget>,
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
}

/// The reason why a put was refused; the queue is as it was.
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
            batches: Batches::default(),
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
            first: 1,
            oldest: 1,
            last_token: 0,
            peak: 0,
            ebb: 0,
            roomy: false,
            granted: Vec::new(),
            late: VecDeque::new(),
            by_time: false,
            weigh: None,
            notes_ended: false,
            ended: Vec::new(),
            errors: 0,
            carried: None,
        }
    }

    /// An empty scheduler with the same options; its tokens go on rising.
    pub(super) fn afresh(&self) -> Self {
        let mut fresh = Scheduler::new(self.options.clone(), Watch::new(self.watch.limits()));
        fresh.last_token = self.last_token;
        (fresh.next, fresh.first) = (self.next, self.next);
        fresh.oldest = self.next;
        fresh
    }

    /// Checks whether a put of `count` messages of `size` bytes in all would find room (clause 11).
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

    /// The messages of a batch that are not known by their dedup string, and their bytes.
    pub(super) fn needs(&self, puts: &[Put<'_>]) -> (usize, u64) {
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
        (count, size)
    }

    /// Returns the number of dedup strings that became known so far.
    pub(super) fn names(&self) -> u64 {
        self.dedup.inserted()
    }

    /// Returns whether these puts may have to wait for room: all may that are neither known nor too
    /// large.
    pub(super) fn waits(&self, puts: &[Put<'_>]) -> bool {
        let (count, size) = self.needs(puts);
        count > 0 && self.room(count, size) != Err(Refused::TooLarge)
    }

    /// Queues a batch whole or not at all (clause 11).
    pub fn put_many(
        &mut self,
        now: Time,
        puts: &[Put<'_>],
        payloads: &mut [Option<P>],
    ) -> Result<Vec<Placed>, Refused> {
        self.begin(now, || Call::PutMany(puts.iter().map(PutCall::from).collect()));
        let (count, size) = self.needs(puts);
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

    /// The next number of the series.
    #[inline]
    pub(super) fn draw(&mut self) -> u64 {
        let number = if self.by_time { self.next.max(self.now) } else { self.next };
        self.next = number + 1;
        number
    }

    /// Returns the time at which a message was put.
    #[inline]
    pub(super) fn put_at(&self, id: u64) -> Time {
        if self.by_time {
            return id;
        }
        self.put_times.at(id)
    }

    /// Gives a message its id and, unless it is delayed, its place.
    #[inline]
    pub(super) fn enter(&mut self, put: &Put<'_>, payload: Option<P>) -> u64 {
        self.enter_at_once(put, payload)
    }

    /// The same, for whoever calls it in a loop.
    #[inline(always)]
    pub(super) fn enter_at_once(&mut self, put: &Put<'_>, payload: Option<P>) -> u64 {
        let id = self.draw();
        self.stats.puts += 1;
        self.stats.unsettled += 1;
        self.swell();
        if !self.by_time && self.put_times.note(id, self.now) {
            self.advance_oldest(id);
        }
        if let (Some(weigh), Some(payload)) = (self.weigh, &payload) {
            self.stats.bytes += weigh(payload);
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
            let dedup = put.dedup.map(|name| self.dedup.insert(name, id, put.window, self.now));
            let extra = self.extra(message);
            extra.size = put.size;
            extra.dedup = dedup;
        }
        if let Some(retry) = put.retry {
            self.failing(message).retry = Some(retry.clone());
        }
        if put.delay > 0 {
            self.delay(message, put);
        } else {
            self.place(message, id, put.keys, put.shared);
        }
        self.watch.entered(self.stats.unsettled, self.now, &mut self.lanes);
        id
    }

    /// Takes note of a peak.
    #[inline]
    pub(super) fn swell(&mut self) {
        if self.stats.unsettled > self.peak {
            self.peak = self.stats.unsettled;
            if self.peak >= FLOOD {
                self.ebb = self.peak / 8;
            }
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
        let Message { id, flags, .. } = self.messages[message];
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
        let gated = self.barriers.place(message, id);
        let record = &mut self.messages[message];
        record.first_edge = chain.first;
        let mut blocked = chain.blocked;
        if gated {
            record.flags |= GATED;
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
    pub(super) fn advance_oldest(&mut self, newest: u64) {
        if self.by_time {
            return;
        }
        let messages = &self.messages;
        let (oldest, _) =
            self.index.next_from(self.oldest, newest, 4096, |place| messages[place].id);
        self.oldest = oldest;
        self.put_times.forget(oldest);
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
