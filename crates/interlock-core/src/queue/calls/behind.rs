//! The outcome for messages behind a failure (clause 31): those that leave their lanes because a key is shut
//! or a message held, and those that come back.
//!
//! ```
//! use interlock_core::key::KeyRef;
//! use interlock_core::queue::parts::watch::Watch;
//! use interlock_core::queue::scheduler::{Put, Scheduler};
//! use interlock_core::queue::types::{Behind, Kind, Options, State};
//!
//! let mut scheduler = Scheduler::new(Options { behind: Behind::Park, ..Options::default() }, Watch::off());
//! let [a, b] = [b"a", b"b"].map(|key| KeyRef::new(key));
//! scheduler.pause(1, Some(a));
//! let mut put = |keys: &[KeyRef<'_>]| {
//!     scheduler.put(1, &Put { keys, ..Put::default() }, &mut Some(())).unwrap().id
//! };
//! let (both, one) = (put(&[a, b]), put(&[b]));
//! assert_eq!(scheduler.seen(both).unwrap().state, State::Parked);
//! assert_eq!(scheduler.lease(1, Kind::Any, 0).unwrap().id, one, "it holds no place on b");
//! scheduler.resume(1, Some(a));
//! assert_eq!(scheduler.seen(both).unwrap().state, State::Waiting);
//! ```

mod notes;
mod room;

use crate::key::{Key, KeyRef};
pub(in crate::queue) use crate::queue::calls::behind::notes::Unsaid;
use crate::queue::calls::lease::Failed;
use crate::queue::parts::delays::DelayedKeys;
use crate::queue::parts::feed::Change;
use crate::queue::parts::groups::Front;
use crate::queue::parts::lane::Edge;
use crate::queue::parts::parked::{Dying, Parked};
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::records::own_behind;
use crate::queue::parts::slab::NONE;
use crate::queue::scheduler::{Budget, Scheduler};
use crate::queue::schedules::trace::Call;
use crate::queue::types::message::{
    Message, BARRIER, GROUPED, KEYED, LIMITED, PAUSED, REFUSED, RETURNED, STUCK,
};
use crate::queue::types::{Behind, ParkedUnder, State, Time, MOST_AHEAD};

/// A message that was parked this often waits in its place.
const TIMES: u32 = 8;

/// The outcome for a message that would take its places.
#[derive(Debug)]
pub(in crate::queue) enum Fate {
    Placed,
    /// It is parked under a key.
    Parked(Key),
    /// It is buried or cancelled with a message that is held.
    Goes(u32),
}

/// A message that is in no lane and may take its places.
pub(in crate::queue) struct Coming<'a> {
    pub behind: Behind,
    /// It was leased: nothing parks it.
    pub returned: bool,
    /// Its sequence when it was parked for the first time; 0: it is new.
    pub first: u64,
    pub keys: &'a [KeyRef<'a>],
    pub shared: &'a [KeyRef<'a>],
}

impl<P> Scheduler<P> {
    /// Declares another value for messages that have none of their own, and sweeps the shut keys.
    pub fn set_behind(&mut self, now: Time, behind: Behind) {
        let mut budget = self.begin(now, || Call::Behind { behind });
        self.declare_behind(behind);
        self.moves(&mut budget);
    }

    pub(in crate::queue) fn declare_behind(&mut self, behind: Behind) {
        if behind != self.options.behind {
            self.parked.set_resweep(Some(Key::default()));
        }
        self.options.behind = behind;
    }

    /// The outcome for a message: its own value, or else the queue's.
    fn behind_of(&self, at: u32) -> Behind {
        self.records.own_behind(at).unwrap_or(self.options.behind)
    }

    /// Returns whether some message may leave its place.
    fn minds_behind(&self) -> bool {
        self.options.behind != Behind::Wait || self.parked.own() > 0 || self.parked.count() > 0
    }

    fn is_paused_key(&self, key: &[u8]) -> bool {
        self.lanes.find(KeyRef::new(key)).is_some_and(|lane| self.lanes.lane(lane).paused)
    }

    /// Returns whether no dead letter more has room, beside those of messages that are about to die.
    pub(in crate::queue) fn dead_full(&self) -> bool {
        self.dead.full(self.parked.dying().len())
    }

    /// Messages that become dead letters as soon as others are gone.
    pub fn dying(&self) -> usize {
        self.parked.dying().len()
    }

    /// Bytes of a message, as they count against the queue's bound.
    pub(in crate::queue) fn payload_size(&self, at: u32) -> u64 {
        let payload = self.records[at].payload.as_ref();
        let weight = payload.and_then(|payload| self.engine.weight(payload));
        weight.unwrap_or_else(|| self.records.extra(at).map_or(0, |extra| extra.size))
    }

    /// The outcome for a message that would take its places now.
    pub(in crate::queue) fn fate(&self, coming: &Coming<'_>) -> Fate {
        let exclusive = coming.keys.iter().map(|key| (key, false));
        let keys = exclusive.chain(coming.shared.iter().map(|key| (key, true)));
        for (key, shared) in keys {
            let lane = self.lanes.find(*key);
            let waits = lane.is_some_and(|lane| self.lanes.would_wait(lane, shared));
            match coming.behind {
                Behind::Wait => break,
                Behind::Park if coming.returned => break,
                Behind::Park => {
                    let paused = lane.is_some_and(|lane| self.lanes.lane(lane).paused);
                    if paused
                        || (waits && self.parked.is_stuck(key.bytes))
                        || self.parked.has_before(key.bytes, coming.first)
                    {
                        return Fate::Parked(Key::new(key.bytes));
                    }
                }
                Behind::Bury if self.dead_full() => break,
                Behind::Bury | Behind::Cancel => match self.parked.held_on(key.bytes) {
                    Some(held) if waits => return Fate::Goes(held),
                    _ => {}
                },
            }
        }
        Fate::Placed
    }

    /// A new message takes its places, or none. It is not given the whole put: a caller that names only keys would
    /// have to write one into memory.
    #[cold]
    pub(in crate::queue) fn come_new(
        &mut self,
        at: u32,
        keys: &[KeyRef<'_>],
        shared: &[KeyRef<'_>],
    ) {
        let names = |keys: &[KeyRef<'_>]| keys.iter().map(|key| Key::new(key.bytes)).collect();
        let keys = DelayedKeys { keys: names(keys), shared: names(shared) };
        // Nothing that it would take from the budget: it is in no lane.
        self.come(at, keys, Change::Put, false, &mut { Budget::ONE_CALL });
        self.note_behind();
    }

    #[cold]
    pub(in crate::queue) fn set_own_behind(&mut self, at: u32, behind: Behind) {
        self.records.set_own_behind(at, behind);
        if behind != Behind::Wait {
            self.parked.note_own();
        }
    }

    /// A message with these keys takes its places, in which `change` is noted, or none. `returns`: it is in no
    /// list any more, but was; it takes a new sequence then.
    pub(in crate::queue) fn come(
        &mut self,
        at: u32,
        keys: DelayedKeys,
        change: Change,
        returns: bool,
        budget: &mut Budget,
    ) {
        let fate = {
            let (exclusive, shared) = (key_refs(&keys.keys), key_refs(&keys.shared));
            let first = self.parked.parking(at).map_or(0, |parking| parking.first);
            let coming = Coming {
                behind: self.behind_of(at),
                returned: self.records.marks(at) & RETURNED != 0,
                first: if returns { first } else { 0 },
                keys: &exclusive,
                shared: &shared,
            };
            let fate = match self.parked.is_busy() && self.records[at].flags & BARRIER == 0 {
                true => self.fate(&coming),
                false => Fate::Placed,
            };
            if let Fate::Placed = fate {
                if returns {
                    let sequence = self.numbers.draw(self.now);
                    self.records.set_sequence(at, sequence);
                    self.numbers.note(sequence, self.now);
                }
                let sequence = self.records.sequence(at);
                self.place(at, sequence, &exclusive, &shared);
                self.note(change, at, 0);
                return;
            }
            fate
        };
        self.parked.take_keys(at, without_doubles(keys));
        self.records.set_parked(at);
        if !returns {
            self.note(change, at, 0);
        }
        match fate {
            Fate::Goes(held) => self.go_with(at, held, budget),
            Fate::Parked(key) => {
                let size = self.payload_size(at);
                if returns {
                    self.parked.list(at, key, size);
                } else {
                    let sequence = self.records.sequence(at);
                    self.parked.enter(at, key.clone(), sequence, self.now, size);
                    self.watch_parked(&key);
                    self.note(Change::Parked, at, 0);
                }
            }
            Fate::Placed => unreachable!("it was placed"),
        }
    }

    /// It is buried or cancelled, as its value says, with a message that is held.
    fn go_with(&mut self, at: u32, held: u32, budget: &mut Budget) {
        self.watch_gone(at, held, self.behind_of(at));
        let text = format!("behind message {}", self.records[held].id);
        if self.behind_of(at) == Behind::Cancel {
            let id = self.records[at].id;
            if let Some(payload) = self.cancel_for(at, &text, budget) {
                self.engine.cancelled.push((id, payload));
            }
            return;
        }
        self.note_error(at, &text);
        self.note_told(Change::Dead, at, 0, &text);
        self.note_failed(at, self.records.attempt(at), Failed::Dead);
        self.bury_message(at, budget);
    }

    /// A ready message is about to leave its lanes: it is no longer counted as ready.
    fn leave_ready(&mut self, at: u32) {
        let message = &self.records[at];
        let (state, flags) = (message.state, message.flags);
        if state == Some(State::Ready) && flags & (PAUSED | REFUSED) == 0 {
            let ticket = Ticket::new(message.priority, self.records.sequence(at), at);
            self.records.set_paused(at, true);
            let records = &self.records;
            match flags & GROUPED {
                0 => self.ready.cancelled(flags & KEYED != 0, |ticket| records.is_ready(ticket)),
                _ => self.gate.groups.remove(Front::Ready, flags & KEYED != 0, ticket),
            }
        }
    }

    /// A message leaves its lanes and is parked under a key.
    fn park(&mut self, at: u32, key: Key, budget: &mut Budget) {
        let Message { flags, first_edge, .. } = self.records[at];
        let sequence = self.records.sequence(at);
        let mut keys = DelayedKeys::default();
        for (key, shared) in self.lanes.keys_of(first_edge) {
            if shared { &mut keys.shared } else { &mut keys.keys }.push(key.clone());
        }
        if flags & LIMITED != 0 {
            // Whatever it kept or waited for is free, as under a pause.
            self.gate.release(at, self.now);
            self.await_times();
        }
        self.leave_ready(at);
        self.records.set_parked(at);
        self.lanes.unlink(first_edge, &mut budget.steps, |_, _| ());
        self.unblock_granted(budget);
        if let Some(barrier) = self.barriers.settled(sequence) {
            self.unblock(barrier, budget);
        }
        self.parked.take_keys(at, keys);
        let size = self.payload_size(at);
        self.parked.enter(at, key.clone(), sequence, self.now, size);
        self.watch_parked(&key);
        self.note(Change::Parked, at, 0);
    }

    // Messages that are held.

    /// A message is held, and counted so.
    pub(in crate::queue) fn hold(&mut self, at: u32) {
        self.records.set_stopped(at, State::Held);
        self.counts.held_one(self.records[at].id);
        self.note_held(at);
    }

    /// Notes a message that is held for those that wait behind it.
    pub(in crate::queue) fn note_held(&mut self, at: u32) {
        let sequence = self.records.sequence(at);
        for (key, _) in self.lanes.keys_of(self.records[at].first_edge) {
            self.parked.add_held(key, sequence, at);
        }
    }

    /// A message is not held any more.
    pub(in crate::queue) fn end_hold(&mut self, at: u32) {
        let sequence = self.records.sequence(at);
        self.counts.held_no_more(self.records[at].id);
        for (key, _) in self.lanes.keys_of(self.records[at].first_edge) {
            self.parked.remove_held(key.as_bytes(), sequence, at);
        }
        self.parked.remove_dying(sequence);
    }

    /// A message was held: its keys are shut until it is settled.
    pub(in crate::queue) fn become_stuck(&mut self, at: u32) {
        self.records.mark(at, STUCK | RETURNED);
        self.note_stuck(at);
        self.sweep_keys_of(at);
    }

    pub(in crate::queue) fn note_stuck(&mut self, at: u32) {
        let id = self.records[at].id;
        for (key, _) in self.lanes.keys_of(self.records[at].first_edge) {
            self.parked.add_stuck(key, id, at);
        }
    }

    fn sweep_keys_of(&mut self, at: u32) {
        if self.minds_behind() {
            for (key, _) in self.lanes.keys_of(self.records[at].first_edge) {
                self.parked.sweep(key);
            }
        }
    }

    /// A key was paused.
    pub(in crate::queue) fn shut_paused(&mut self, key: &[u8]) {
        let key = Key::new(key);
        self.parked.shut(&key);
        if self.minds_behind() {
            self.parked.sweep(&key);
        }
    }

    /// A message that is settled, and still in its lanes, leaves what is kept of it here.
    #[cold]
    pub(in crate::queue) fn forget_behind(
        &mut self,
        at: u32,
        id: u64,
        first_edge: u32,
        marks: u64,
        size: u64,
    ) {
        if own_behind(marks).is_some_and(|own| own != Behind::Wait) {
            self.parked.forget_own();
        }
        if self.parked.is_some_and(|parked| parked.parking(at).is_some()) {
            self.parked.leave(at, size);
            self.parked.forget(at);
        }
        if marks & STUCK != 0 {
            for (_, edge) in self.lanes.edges_of(first_edge) {
                let lane = self.lanes.lane(edge.lane());
                self.parked.remove_stuck(lane.key.as_bytes(), id, lane.paused);
            }
        }
    }

    /// Holds a message that would become a dead letter while others go with it. False: none does.
    pub(in crate::queue) fn begins_to_die(
        &mut self,
        at: u32,
        token: u64,
        error: &str,
        budget: &mut Budget,
    ) -> bool {
        let Message { flags, first_edge, .. } = self.records[at];
        if flags & BARRIER != 0 || !self.minds_behind() {
            return false;
        }
        let takes_others = self.lanes.edges_of(first_edge).any(|(_, edge)| {
            let last = self.lanes.last_of(edge.lane()).expect("it is in there");
            last.message != at && self.goes_if_held(last, 1)
        });
        if !takes_others {
            return false;
        }
        let sequence = self.records.sequence(at);
        match self.records[at].state {
            Some(State::Held) => {}
            Some(State::BackingOff) => {
                self.end_backoff(at);
                self.hold(at);
            }
            _ => self.hold(at),
        }
        self.records.mark(at, RETURNED);
        let told = Some((token, error.into()));
        self.parked.add_dying(sequence, Dying { message: at, told });
        for (key, _) in self.lanes.keys_of(first_edge) {
            self.parked.sweep(key);
        }
        self.moves(budget);
        if let Some(dying) = self.parked.dying_mut(sequence) {
            dying.told = None;
            self.note_told(Change::Hold, at, token, error);
        }
        true
    }

    /// Those with a key that was swept become dead letters, if all is swept that goes with them.
    fn end_dying(&mut self, key: &Key, budget: &mut Budget) {
        let over = |&(_, at): &(u64, u32)| {
            let mut keys = self.lanes.keys_of(self.records[at].first_edge);
            !keys.any(|(key, _)| self.parked.is_swept(key))
        };
        let over: Vec<(u64, u32)> = self.parked.dying_on(key.as_bytes()).filter(over).collect();
        for (sequence, at) in over {
            let told = self.parked.remove_dying(sequence).and_then(|dying| dying.told);
            let (token, error) = told.unwrap_or_else(|| (0, self.newest_error(at)));
            self.end_hold(at);
            self.note_told(Change::Dead, at, token, &error);
            self.bury_message(at, budget);
        }
    }

    // Sweeps and returns.

    /// Moves what is to be moved, as far as the budget lasts.
    #[inline]
    pub fn moves(&mut self, budget: &mut Budget) {
        if self.parked.is_some_and(Parked::has_moves) {
            self.move_some(budget);
        }
    }

    #[cold]
    fn move_some(&mut self, budget: &mut Budget) {
        while budget.moves > 0 && budget.keys > 0 {
            if let Some(key) = self.parked.first_sweep().cloned() {
                self.sweep_one(key, budget);
            } else if self.parked.resweep().is_some() {
                if let Some(key) = self.parked.next_resweep() {
                    budget.moves -= 1;
                    if self.minds_behind() {
                        self.parked.sweep(&key);
                    }
                }
            } else if let Some(at) = self.parked.first_open() {
                self.count_move(at, budget);
                let size = self.payload_size(at);
                self.parked.leave(at, size);
                let keys = self.parked.give_keys(at);
                self.come(at, keys, Change::Returned, true, budget);
            } else {
                break;
            }
        }
        self.note_behind();
        if self.parked.has_moves() {
            self.earliest_due = 0;
        }
    }

    fn count_move(&mut self, at: u32, budget: &mut Budget) {
        budget.moves -= 1;
        budget.keys = budget.keys.saturating_sub(self.key_count(at) as u32);
    }

    /// The last message of a lane goes, or the sweep is over.
    fn sweep_one(&mut self, key: Key, budget: &mut Budget) {
        let lane = self.lanes.find(KeyRef::new(key.as_bytes()));
        let last = lane.and_then(|lane| self.lanes.last_of(lane)).copied();
        let Some(last) = last.filter(|last| self.leaves(last, &key)) else {
            self.parked.end_sweep();
            self.end_dying(&key, budget);
            return;
        };
        self.count_move(last.message, budget);
        match self.behind_of(last.message) {
            Behind::Park => self.park(last.message, key, budget),
            _ => {
                let held = self.parked.held_on(key.as_bytes()).unwrap_or(NONE);
                self.go_with(last.message, held, budget);
            }
        }
    }

    /// Returns whether the last message of a lane leaves it.
    fn leaves(&self, last: &Edge, key: &Key) -> bool {
        let at = last.message;
        match self.behind_of(at) {
            Behind::Wait => false,
            Behind::Park => {
                let waits = !last.granted();
                let shut = self.lanes.lane(last.lane()).paused
                    || (waits && self.parked.is_stuck(key.as_bytes()));
                let times = self.parked.parking(at).map_or(0, |parking| parking.times);
                self.is_queued(at)
                    && shut
                    && self.records.marks(at) & RETURNED == 0
                    && times < TIMES
                    && self.may_park(1, self.payload_size(at))
            }
            _ => self.parked.held_on(key.as_bytes()).is_some() && self.goes_if_held(last, 0),
        }
    }

    /// Returns whether the last message of a lane goes with one of the lane that is held, with room for this
    /// number of dead letters more.
    fn goes_if_held(&self, last: &Edge, more: usize) -> bool {
        let waits = self.is_queued(last.message) && !last.granted();
        match self.behind_of(last.message) {
            Behind::Cancel => waits,
            Behind::Bury => waits && !self.dead.full(self.parked.dying().len() + more),
            _ => false,
        }
    }

    // Explanations.

    /// The list in which a message is parked; `named` chooses the stuck messages that are named.
    pub(in crate::queue) fn parked_under(
        &self,
        at: u32,
        now: Time,
        named: impl FnOnce(&mut dyn Iterator<Item = u32>) -> Vec<u64>,
    ) -> Option<ParkedUnder> {
        let parking = self.parked.parking(at)?;
        let key = parking.under.as_ref()?;
        Some(ParkedUnder {
            key: key.as_bytes().to_vec(),
            age: now.saturating_sub(parking.since),
            times: parking.times,
            ahead: self.parked.ahead(at, MOST_AHEAD),
            paused: self.is_paused_key(key.as_bytes()),
            behind: named(&mut self.parked.stuck_on(key.as_bytes()).take(SHOWN)),
        })
    }

    /// Messages cancelled because of others, with their payloads, since this was last asked.
    pub fn take_cancelled(&mut self) -> Vec<(u64, P)> {
        std::mem::take(&mut self.engine.cancelled)
    }

    /// Returns whether payloads of messages cancelled because of others wait to be taken.
    #[inline]
    pub fn has_cancelled(&self) -> bool {
        !self.engine.cancelled.is_empty()
    }
}

/// Stuck messages that an explanation names.
const SHOWN: usize = 10;

fn key_refs(keys: &[Key]) -> Vec<KeyRef<'_>> {
    keys.iter().map(|key| KeyRef::new(key.as_bytes())).collect()
}

/// Keys as lanes take them: each once, exclusive if it is named so.
fn without_doubles(keys: DelayedKeys) -> DelayedKeys {
    let mut seen = std::collections::BTreeSet::new();
    let mut once = |keys: Vec<Key>| -> Vec<Key> {
        keys.into_iter().filter(|key| seen.insert(key.clone())).collect()
    };
    let exclusive = once(keys.keys);
    DelayedKeys { keys: exclusive, shared: once(keys.shared) }
}
