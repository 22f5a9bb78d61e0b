//! The unsettled messages, found by slot number or id, and the data that only few messages have.

use std::collections::BTreeSet;
use std::ops::Index;
use std::sync::Arc;

use crate::queue::parts::index::Index as Places;
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::slab::{Slab, NONE};
use crate::queue::types::message::{
    Extra, Failing, Message, BEHIND_BARRIER, MARKS, OWN, PAUSED, REFUSED, RETURNED, SILENT, STUCK,
    TOKEN,
};
use crate::queue::types::{Behind, RetryPart, State};

/// The messages. Callers read a message by its slot, and change it by the methods here.
#[derive(Debug)]
pub struct Records<P> {
    messages: Slab<Message<P>>,
    extras: Slab<Extra>,
    places: Places,
    /// Bytes of the last errors of messages, with their allocations.
    errors: usize,
    /// The ids in order, from the first call that asked for it until the queue is empty.
    order: Option<Box<IdOrder>>,
}

/// The ids of the unsettled messages in order: where ids are times, `next_from` would cross long gaps.
#[derive(Debug)]
struct IdOrder {
    ids: BTreeSet<u64>,
    /// Messages in slots from here to before `end` may be missing. Those put later are not.
    at: u32,
    end: u32,
}

/// Bytes of an id in the order, about: nodes filled from one side are half full.
const ORDERED: usize = 20;

/// Data of a message that was removed.
#[derive(Debug)]
pub struct Removed<P> {
    pub id: u64,
    pub payload: Option<P>,
    pub first_edge: u32,
    pub state: Option<State>,
    pub priority: i8,
    pub flags: u8,
    /// Slot of the data that only few messages have, for `take_extra`.
    extra: u32,
}

impl<P> Records<P> {
    pub fn new() -> Self {
        let (messages, extras, places) = (Slab::new(), Slab::new(), Places::new());
        Records { messages, extras, places, errors: 0, order: None }
    }

    /// Bytes of records and tables, including unused capacity.
    pub fn bytes(&self) -> usize {
        let order = self.order.as_ref().map_or(0, |order| order.ids.len() * ORDERED);
        self.messages.bytes() + self.extras.bytes() + self.places.bytes() + order
    }

    /// Bytes of the last errors.
    pub fn error_bytes(&self) -> usize {
        self.errors
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// One more than the highest slot.
    pub fn end(&self) -> u32 {
        self.messages.end()
    }

    /// Returns the message in a slot. `None`: the slot does not exist. A free slot has no state.
    #[inline]
    pub fn get(&self, at: u32) -> Option<&Message<P>> {
        self.messages.get(at)
    }

    /// Returns every message and its slot, in no particular order.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Message<P>)> {
        self.messages.places().filter(|(_, message)| message.state.is_some())
    }

    #[inline(always)]
    pub fn insert(&mut self, message: Message<P>) -> u32 {
        let at = self.place();
        self.fill(at, message);
        at
    }

    /// Allocates a slot for a message, to be filled next.
    #[inline(always)]
    pub fn place(&mut self) -> u32 {
        self.messages.place()
    }

    /// Writes a new message into the slot allocated for it.
    #[inline(always)]
    pub fn fill(&mut self, at: u32, message: Message<P>) {
        let id = message.id;
        self.messages[at] = message;
        let messages = &self.messages;
        self.places.insert(id, at, |place| messages[place].id);
        if let Some(order) = &mut self.order {
            order.ids.insert(id);
        }
    }

    /// Removes a message. Call `take_extra` next, for the data that only few messages have.
    #[inline(always)]
    pub fn remove(&mut self, at: u32) -> Removed<P> {
        let removed = self.messages.take(at, |message| {
            let payload = message.payload.take();
            let Message { id, first_edge, extra, state, priority, flags, .. } = *message;
            Removed { id, payload, first_edge, state, priority, flags, extra }
        });
        let messages = &self.messages;
        self.places.remove(removed.id, at, |place| messages[place].id);
        if let Some(order) = &mut self.order {
            order.ids.remove(&removed.id);
            if messages.len() == 0 {
                self.order = None;
            }
        }
        removed
    }

    /// Removes the data that only few messages have, if this one had any.
    #[inline(always)]
    pub fn take_extra(&mut self, removed: &Removed<P>) -> Option<Extra> {
        if removed.extra == NONE {
            return None;
        }
        let extra = std::mem::take(&mut self.extras[removed.extra]);
        self.extras.remove(removed.extra);
        if let Some(failing) = &extra.failing {
            self.errors -= failing.bytes();
        }
        Some(extra)
    }

    /// Returns the slot of an unsettled message.
    #[inline]
    pub fn find(&self, id: u64) -> Option<u32> {
        self.places.get(id, |place| self.messages.get(place).map_or(0, |message| message.id))
    }

    /// Returns the first unsettled id from `from` to before `end`, and its slot. Looks at `steps` ids at
    /// most; if it finds none, returns the id to continue from, and `NONE`.
    pub fn next_from(&self, from: u64, end: u64, steps: u32) -> (u64, u32) {
        self.places.next_from(from, end, steps, |place| self.messages[place].id)
    }

    /// Looks at up to `most` slots whose ids are not in order yet. Returns whether all are.
    pub fn order_some(&mut self, most: u32) -> bool {
        let Records { messages, order, .. } = self;
        let order = order.get_or_insert_with(|| {
            Box::new(IdOrder { ids: BTreeSet::new(), at: 0, end: messages.end() })
        });
        let until = order.at.saturating_add(most).min(order.end);
        let found = (order.at..until).filter_map(|at| messages.get(at));
        order.ids.extend(found.filter(|message| message.state.is_some()).map(|m| m.id));
        order.at = until;
        until == order.end
    }

    /// Returns the slots of unsettled messages in the order of their ids, from an id on: of all that
    /// `order_some` has put in order.
    pub fn in_order(&self, from: u64) -> impl Iterator<Item = u32> + '_ {
        let ids = self.order.iter().flat_map(move |order| order.ids.range(from..));
        ids.filter_map(|&id| self.find(id))
    }

    #[inline]
    pub fn sequence(&self, at: u32) -> u64 {
        self.sequence_of(&self.messages[at])
    }

    /// Like `sequence`, of a message that is looked up already.
    #[inline(always)]
    fn sequence_of(&self, message: &Message<P>) -> u64 {
        match message.extra {
            NONE => message.id,
            extra => match self.extras[extra].sequence {
                0 => message.id,
                sequence => sequence,
            },
        }
    }

    #[inline]
    pub fn attempt(&self, at: u32) -> u32 {
        self.extra(at).map_or(1, |extra| extra.attempt.max(1))
    }

    /// Returns the data that only few messages have, if this one has any.
    #[inline]
    pub fn extra(&self, at: u32) -> Option<&Extra> {
        match self.messages[at].extra {
            NONE => None,
            extra => Some(&self.extras[extra]),
        }
    }

    /// Like `extra`, but creates the data if it is missing.
    fn extra_mut(&mut self, at: u32) -> &mut Extra {
        if self.messages[at].extra == NONE {
            self.messages[at].extra = self.extras.insert(Extra::default());
        }
        let extra = self.messages[at].extra;
        &mut self.extras[extra]
    }

    /// Notes that a waiting message has one thing less to wait for. Returns whether it waits for nothing more; one
    /// that is leased with the message before it does not become ready.
    #[inline]
    pub fn one_less_before(&mut self, at: u32) -> bool {
        let message = &mut self.messages[at];
        if message.state == Some(State::Leased) {
            return false;
        }
        message.hold -= 1;
        message.hold == 0
    }

    /// Notes that it is leased no longer, and waits for this number of things.
    pub fn set_waiting(&mut self, at: u32, things: u32) {
        let message = &mut self.messages[at];
        (message.state, message.hold) = (Some(State::Waiting), things);
    }

    #[inline]
    pub fn set_ready(&mut self, at: u32) -> &Message<P> {
        let message = &mut self.messages[at];
        (message.state, message.hold) = (Some(State::Ready), 0);
        message
    }

    /// Notes that the lease with this number holds it. Returns the message, and its attempt.
    #[inline]
    pub fn set_leased(&mut self, at: u32, lease: u32) -> (&Message<P>, u32) {
        let message = &mut self.messages[at];
        (message.state, message.hold) = (Some(State::Leased), lease);
        let attempt = match message.extra {
            NONE => 1,
            extra => self.extras[extra].attempt.max(1),
        };
        (message, attempt)
    }

    /// Sets its state to held, backing off or delayed. In the last two states it can have a timer.
    pub fn set_stopped(&mut self, at: u32, state: State) {
        let message = &mut self.messages[at];
        (message.state, message.hold) = (Some(state), 0);
        if state != State::Held {
            self.extra_mut(at);
        }
    }

    /// Notes that it is parked: in no lane, behind no barrier, and not set aside.
    pub fn set_parked(&mut self, at: u32) {
        let message = &mut self.messages[at];
        (message.state, message.hold) = (Some(State::Parked), 0);
        message.first_edge = NONE;
        message.flags &= !(BEHIND_BARRIER | PAUSED | REFUSED);
    }

    /// Notes that it is in its lanes, from this edge on.
    pub fn set_first_edge(&mut self, at: u32, first_edge: u32) {
        self.messages[at].first_edge = first_edge;
    }

    /// Notes that a message is in its lanes; see [`Message::enter_lanes`].
    #[inline]
    pub fn enter_lanes(
        &mut self,
        at: u32,
        first_edge: u32,
        gated: bool,
        things: u32,
    ) -> &Message<P> {
        let message = &mut self.messages[at];
        message.enter_lanes(first_edge, gated, things);
        message
    }

    pub fn open_gate(&mut self, at: u32) {
        self.messages[at].flags &= !BEHIND_BARRIER;
    }

    /// Notes whether it is ready but set aside, because a key of it is paused.
    pub fn set_paused(&mut self, at: u32, paused: bool) {
        let message = &mut self.messages[at];
        message.flags = if paused { message.flags | PAUSED } else { message.flags & !PAUSED };
    }

    pub fn set_priority(&mut self, at: u32, priority: i8) {
        self.messages[at].priority = priority;
    }

    pub fn set_payload(&mut self, at: u32, payload: P) {
        self.messages[at].payload = Some(payload);
    }

    /// Replaces the payload and its bytes, and returns the old one.
    pub fn replace_payload(&mut self, at: u32, payload: P, size: u64) -> P {
        if size > 0 || self.extra(at).is_some() {
            self.set_size(at, size);
        }
        self.messages[at].payload.replace(payload).expect("an unsettled message has its payload")
    }

    /// Notes that nobody has tried its payload yet.
    pub fn begin_again(&mut self, at: u32) {
        let extra = self.extra_mut(at);
        (extra.attempt, extra.suspect) = (0, extra.suspect & MARKS);
        if let Some(failing) = &mut extra.failing {
            let before = failing.bytes();
            failing.error = None;
            self.errors -= before;
        }
    }

    /// Makes room for the data that only few messages have, so that it is there when the message is settled.
    pub fn add_extra(&mut self, at: u32) {
        self.extra_mut(at);
    }

    pub fn set_attempt(&mut self, at: u32, attempt: u32) {
        self.extra_mut(at).attempt = attempt;
    }

    /// Token of its last lease that expired, if it must be leased alone because of that; else 0.
    #[inline]
    pub fn suspect(&self, at: u32) -> u64 {
        self.extra(at).map_or(0, |extra| extra.suspect & TOKEN)
    }

    /// Sets the result of `suspect`, and counts its leases anew.
    pub fn set_suspect(&mut self, at: u32, token: u64) {
        self.set_word(at, token | self.marks(at));
    }

    /// The token, the count and the marks that `Extra::suspect` holds, out of a dump.
    pub fn set_word(&mut self, at: u32, word: u64) {
        if word != self.extra(at).map_or(0, |extra| extra.suspect) {
            self.extra_mut(at).suspect = word;
        }
    }

    /// `STUCK`, `RETURNED` and its own value.
    #[inline]
    pub fn marks(&self, at: u32) -> u64 {
        self.extra(at).map_or(0, |extra| extra.suspect & MARKS)
    }

    /// Adds `STUCK` or `RETURNED`.
    pub fn mark(&mut self, at: u32, mark: u64) {
        if self.marks(at) & mark != mark {
            self.extra_mut(at).suspect |= mark;
        }
    }

    /// Its own value of what happens to it behind a failure.
    pub fn own_behind(&self, at: u32) -> Option<Behind> {
        own_behind(self.marks(at))
    }

    pub fn set_own_behind(&mut self, at: u32, behind: Behind) {
        self.extra_mut(at).suspect |= (behind as u64 + 1) << OWN;
    }

    /// Number of consecutive leases that expired before the consumer reported that its handler began.
    pub fn silent(&self, at: u32) -> u64 {
        self.extra(at).map_or(0, |extra| (extra.suspect & !MARKS) >> SILENT)
    }

    pub fn set_silent(&mut self, at: u32, times: u64) {
        self.set_word(at, self.suspect(at) | times << SILENT | self.marks(at));
    }

    pub fn set_sequence(&mut self, at: u32, sequence: u64) {
        self.extra_mut(at).sequence = sequence;
    }

    pub fn set_size(&mut self, at: u32, size: u64) {
        self.extra_mut(at).size = size;
    }

    pub fn set_dedup(&mut self, at: u32, dedup: Arc<str>) {
        self.extra_mut(at).dedup = Some(dedup);
    }

    /// Sets the index of a message among the timers.
    #[inline]
    pub fn set_timer(&mut self, at: u32, position: u32) {
        self.extras[self.messages[at].extra].timer = position;
    }

    /// Returns its index among the timers.
    #[inline]
    pub fn timer(&self, at: u32) -> u32 {
        self.extras[self.messages[at].extra].timer
    }

    /// Returns the last failure of a message and its own retry policy, if it has either.
    pub fn failing(&self, at: u32) -> Option<&Failing> {
        self.extra(at)?.failing.as_deref()
    }

    pub fn set_retry(&mut self, at: u32, retry: RetryPart) {
        self.extra_mut(at).failing.get_or_insert_default().retry = Some(retry);
    }

    pub fn set_error(&mut self, at: u32, error: &str) {
        let failing = self.extra_mut(at).failing.get_or_insert_default();
        let before = failing.bytes();
        failing.error = Some(error.into());
        let more = failing.bytes() as isize - before as isize;
        self.errors = self.errors.wrapping_add_signed(more);
    }

    /// Removes and returns its last failure and its own policy.
    pub fn take_failing(&mut self, at: u32) -> Failing {
        let extra = self.messages[at].extra;
        let taken = if extra == NONE { None } else { self.extras[extra].failing.take() };
        let failing = taken.map_or_else(Failing::default, |failing| *failing);
        self.errors -= failing.bytes();
        failing
    }

    /// Removes and returns its dedup string.
    pub fn take_dedup(&mut self, at: u32) -> Option<Arc<str>> {
        match self.messages[at].extra {
            NONE => None,
            extra => self.extras[extra].dedup.take(),
        }
    }

    /// Returns whether the ticket is current: its slot still has that message, ready and not set aside.
    #[inline]
    pub fn is_ready(&self, ticket: &Ticket) -> bool {
        self.stands_for(ticket, 0)
    }

    /// Returns whether the ticket's slot still has that message, ready but set aside.
    pub fn is_paused(&self, ticket: &Ticket) -> bool {
        self.stands_for(ticket, PAUSED)
    }

    /// Notes whether it is ready but set aside, because a limit of it is reached.
    pub fn set_refused(&mut self, at: u32, refused: bool) {
        let message = &mut self.messages[at];
        message.flags = if refused { message.flags | REFUSED } else { message.flags & !REFUSED };
    }

    /// Returns whether a slot still has the message that had this sequence, in a lane.
    pub fn has_sequence(&self, at: u32, sequence: u64) -> bool {
        self.messages
            .get(at)
            .is_some_and(|message| message.state.is_some() && self.sequence_of(message) == sequence)
    }

    #[inline]
    fn stands_for(&self, ticket: &Ticket, aside: u8) -> bool {
        self.messages.get(ticket.message).is_some_and(|message| {
            message.state == Some(State::Ready)
                && message.flags & (PAUSED | REFUSED) == aside
                && self.sequence_of(message) == ticket.sequence
        })
    }
}

/// Reads a message's own value from its marks.
pub fn own_behind(marks: u64) -> Option<Behind> {
    let number = (marks & !(STUCK | RETURNED)) >> OWN;
    Behind::ALL.get((number as usize).wrapping_sub(1)).copied()
}

impl<P> Index<u32> for Records<P> {
    type Output = Message<P>;

    #[inline]
    fn index(&self, at: u32) -> &Message<P> {
        &self.messages[at]
    }
}
