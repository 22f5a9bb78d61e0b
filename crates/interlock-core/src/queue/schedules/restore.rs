//! Restores a queue from its [`dump`](super::dump).
//!
//! Messages were written in storage order; here they take their places again in sequence, so that
//! lanes, ready sets and barriers are as before. Places are new, and handles name places, so
//! holders of handles get new ones from [`handle_of`](Scheduler::handle_of).

mod parked;
mod values;

use crate::key::KeyRef;
use crate::queue::parts::batches::Told;
use crate::queue::parts::delays::DelayedKeys;
use crate::queue::parts::gate::Gate;
use crate::queue::parts::groups::SavedPlace;
use crate::queue::parts::lane::Lanes;
use crate::queue::parts::parked::Parked;
use crate::queue::parts::ready::Ticket;
use crate::queue::parts::slab::NONE;
use crate::queue::scheduler::{Handle, Scheduler};
use crate::queue::schedules::bytes::{Damaged, Reader};
use crate::queue::schedules::dump::{
    kept_stats, ATTEMPT, BEFORE_COALESCING, BEFORE_GROUPS, BEFORE_MARK, BEFORE_PARKED,
    BEFORE_RATES, COALESCE, COUNTS_BEFORE_COALESCING, DEDUP, EDGE_GRANTED, EDGE_SHARED, ERROR,
    FIRST_COUNTS, FIRST_VERSION, LANE_PAUSED, LANE_UNFINISHED, LEASE_OF_BATCH, LEASE_TIMED,
    NEWEST_OF_ITS_NAME, RETRY, RUN, SEQUENCE, SIZE, STATES, SUSPECT, VERSION, WINDOW,
};
use crate::queue::schedules::restore::values::{
    read_dead, read_keys, read_options, read_retry_part,
};
use crate::queue::types::limits::{names_of, BETWEEN};
use crate::queue::types::message::{Message, BARRIER, GROUPED, KEYED, LIMITED, PAUSED, REFUSED};
use crate::queue::types::{Behind, State, Stats};

/// A message that has a place, on its way back to it.
struct Placed<'a> {
    sequence: u64,
    at: u32,
    edges: Reader<'a>,
    count: u16,
    /// Its wait for a limit: see `Gate::state_of`.
    waits: (u64, u8, bool, u8),
}

impl<P> Scheduler<P> {
    /// The queue as it was dumped, made of a fresh one of its kind; its options become those of the
    /// dump. `payload` makes a payload of what was written of it, or `None` if it cannot be one.
    ///
    /// # Errors
    ///
    /// If the bytes are not whole, of a version that is not known, or contradict themselves. Whether
    /// they are the bytes that were written is for a checksum to say.
    pub fn restored(
        self,
        bytes: &[u8],
        mut payload: impl FnMut(&[u8]) -> Option<P>,
    ) -> Result<Self, Damaged> {
        let mut s = self;
        let mut reader = Reader::new(bytes);
        let version = reader.byte("version")?;
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            return Err(Damaged { at: 0, wanted: "version that is known" });
        }
        if (reader.byte("kind of a queue")? != 0) != s.numbers.are_times() {
            return reader.damaged("queue of this kind");
        }
        s.redeclare(read_options(&mut reader, version)?);
        let mut stats = Stats::default();
        let kept = match version {
            FIRST_VERSION => FIRST_COUNTS,
            ..=BEFORE_COALESCING => COUNTS_BEFORE_COALESCING,
            _ => usize::MAX,
        };
        for count in kept_stats(&mut stats).into_iter().take(kept) {
            *count = reader.number("count")?;
        }
        s.counts.restore(stats);
        s.now = reader.number("time")?;
        s.numbers.restore(reader.number("next id")?, reader.number("oldest id")?);
        s.leases.go_on_from(reader.number("token")?);
        let lanes = s.restore_lanes(&mut reader)?;
        let count: u64 = reader.number("count of messages")?;
        if count != s.counts.unsettled() {
            return reader.damaged("count of messages that agrees with the counts");
        }
        let mut placed = Vec::new();
        for _ in 0..count {
            s.restore_message(&mut reader, version, &mut placed, &mut payload)?;
        }
        if version > BEFORE_RATES {
            s.gate.restore_times(&mut reader)?;
        }
        let (mut turn, mut places) = (0, Vec::new());
        if version > BEFORE_GROUPS {
            turn = reader.number("turn")?;
            for _ in 0..reader.number("count of places")? {
                places.push(SavedPlace::read(&mut reader)?);
            }
        }
        placed.sort_unstable_by_key(|message: &Placed<'_>| message.sequence);
        for message in &mut placed {
            s.restore_place(message, &lanes)?;
        }
        if !s.gate.restore_places(turn, &places) {
            return reader.damaged("place of a group that has messages");
        }
        s.gate.restored(s.now);
        s.restore_parked(&mut reader, version, &placed)?;
        s.restore_batches(&mut reader, version)?;
        s.restore_barriers(&mut reader, version, &placed)?;
        for _ in 0..reader.number("count of late messages")? {
            let (at, sequence) = s.read_sequence(&mut reader, version, &placed, "late message")?;
            if at != NONE {
                s.ready.postpone(at, sequence);
            }
        }
        s.restore_pauses(&mut reader, &lanes, &placed)?;
        s.restore_dedup(&mut reader)?;
        for _ in 0..reader.number("count of dead letters")? {
            let dead = read_dead(&mut reader, version)?;
            let payload = read_payload(&mut reader, &mut payload)?;
            s.dead.push(dead.with(payload));
        }
        if version > BEFORE_MARK {
            s.dead.set_mark(reader.option("mark of dead letters")?);
        }
        s.restore_put_times(&mut reader)?;
        if !reader.is_at_end() {
            return reader.damaged("end");
        }
        let used = s.counts.stats().puts > 0 || s.dead.len() > 0 || !s.dedup.is_empty();
        s.numbers.restore_used(used);
        if s.counts.unsettled() > 0 {
            s.watch.restored(s.now);
        }
        s.gate.free_if(Gate::is_unused);
        s.parked.free_if(Parked::is_unused);
        Ok(s)
    }

    /// The right to settle a message that is leased: that of its lease now.
    pub fn handle_of(&self, id: u64) -> Option<Handle> {
        let message = &self.records[self.records.find(id)?];
        let place = message.hold;
        let leased = message.state == Some(State::Leased);
        leased.then(|| Handle { place, token: self.leases[place].token })
    }

    /// Ids and handles of all that is leased, in no order.
    pub fn leases(&self) -> impl Iterator<Item = (u64, Handle)> + '_ {
        self.leases.all().map(|(place, lease)| {
            (self.records[lease.message].id, Handle { place, token: lease.token })
        })
    }

    fn restore_lanes(&mut self, reader: &mut Reader<'_>) -> Result<Vec<u32>, Damaged> {
        let count = reader.take(4, "count of lanes")?;
        let count = u32::from_le_bytes(count.try_into().expect("four bytes"));
        let mut lanes = Vec::new();
        for _ in 0..count {
            let marks = reader.byte("lane")?;
            let key = KeyRef::new(reader.string("key of a lane")?);
            if marks & !(LANE_PAUSED | LANE_UNFINISHED) != 0 || self.lanes.find(key).is_some() {
                return reader.damaged("lane");
            }
            let (paused, unfinished) = (marks & LANE_PAUSED != 0, marks & LANE_UNFINISHED != 0);
            lanes.push(self.lanes.restore_lane(key, paused, unfinished));
        }
        for _ in 0..reader.number("count of unfinished lanes")? {
            let lane = known(reader, &lanes)?;
            self.lanes.restore_unfinished(lane);
        }
        Ok(lanes)
    }

    fn restore_message<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        version: u8,
        placed: &mut Vec<Placed<'a>>,
        payload: &mut impl FnMut(&[u8]) -> Option<P>,
    ) -> Result<(), Damaged> {
        let id = reader.word("id")?;
        let flags = reader.byte("flags of a message")?;
        let state = reader.byte("state")?;
        let priority = reader.byte("priority")? as i8;
        let Some(&state) = STATES.get(usize::from(state)) else { return reader.damaged("state") };
        if id == 0 || id >= self.numbers.next() || self.records.find(id).is_some() {
            return reader.damaged("message");
        }
        let (mut hold, mut due, mut lease) = (0, 0, None);
        match state {
            State::Waiting => hold = reader.small("count of what it waits for")?,
            State::Ready | State::Held => {}
            State::Parked if version > BEFORE_PARKED => {}
            State::Parked => return reader.damaged("state"),
            State::Delayed | State::BackingOff => due = reader.number("due time")?,
            State::Leased => {
                lease = Some((
                    reader.number("token")?,
                    reader.number("time of a lease")?,
                    reader.number("deadline")?,
                    reader.number("consumer")?,
                    reader.byte("marks of a lease")?,
                ));
            }
        }
        let message =
            Message { id, flags, priority, hold, state: Some(state), ..Default::default() };
        let at = self.records.insert(message);
        if state == State::Held {
            self.counts.restore_held(id);
        }
        let mut here = None;
        let mut delayed = DelayedKeys { keys: Vec::new(), shared: Vec::new() };
        if matches!(state, State::Delayed | State::Parked) {
            let (mut keys, mut shared) = (Vec::new(), Vec::new());
            for (key, is_shared) in read_keys(reader)? {
                if is_shared { &mut shared } else { &mut keys }.push(key);
            }
            delayed = DelayedKeys { keys, shared };
        } else {
            let count = reader.take(2, "count of keys")?;
            let count = u16::from_le_bytes(count.try_into().expect("two bytes"));
            here = Some((reader.clone(), count));
            for _ in 0..count {
                reader.number("key of a message")?;
            }
        }
        self.restore_extra(reader, at)?;
        let mut waits = (0, 0, false, 0);
        let (mut names, mut group): (&[u8], &[u8]) = (b"", b"");
        if flags & LIMITED != 0 {
            names = reader.string("limit names")?;
            if names_of(names).is_none() {
                return reader.damaged("limit names");
            }
            waits = (
                reader.number("limit that a message waits for")?,
                reader.byte("count of refusals")?,
                reader.byte("keeper")? != 0,
                reader.byte("count of kept slots")?,
            );
        }
        if flags & GROUPED != 0 {
            group = reader.string("group")?;
            if group.is_empty() || group.contains(&BETWEEN) {
                return reader.damaged("group");
            }
        }
        if flags & (LIMITED | GROUPED) != 0 {
            self.gate.enter(at, (names, group), flags & KEYED != 0, priority);
        }
        if let Some((edges, count)) = here {
            placed.push(Placed { sequence: self.records.sequence(at), at, edges, count, waits });
        }
        self.records.set_payload(at, read_payload(reader, payload)?);
        match state {
            State::Delayed => self.delay_until(at, due, delayed),
            State::BackingOff => self.back_off(at, due),
            State::Parked => self.parked.take_keys(at, delayed),
            _ => {}
        }
        if let Some((token, since, deadline, consumer, marks)) = lease {
            if token == 0 || marks & !(LEASE_TIMED | LEASE_OF_BATCH) != 0 {
                return reader.damaged("lease");
            }
            let place = self.leases.restore((token, deadline), at, consumer, since);
            self.records.set_leased(at, place);
            if flags & LIMITED != 0 {
                self.gate.restore_leased(at);
            }
            if marks & LEASE_TIMED != 0 {
                self.leases.set_deadline(place, id, deadline);
            }
        }
        Ok(())
    }

    fn restore_extra(&mut self, reader: &mut Reader<'_>, at: u32) -> Result<(), Damaged> {
        let marks = reader.number("marks of a message")?;
        let of_a_name = COALESCE | NEWEST_OF_ITS_NAME;
        let known =
            SEQUENCE | SIZE | ATTEMPT | DEDUP | ERROR | WINDOW | RETRY | SUSPECT | of_a_name | RUN;
        if marks & !known != 0 || marks & of_a_name == NEWEST_OF_ITS_NAME {
            return reader.damaged("marks of a message that are known");
        }
        if marks == 0 {
            return Ok(());
        }
        let id = self.records[at].id;
        if marks & SEQUENCE != 0 {
            self.records.set_sequence(at, reader.number("sequence")?);
        }
        if marks & SIZE != 0 {
            self.records.set_size(at, reader.number("size")?);
        }
        if marks & ATTEMPT != 0 {
            self.records.set_attempt(at, reader.small("attempt")?);
        }
        let window = match marks & WINDOW {
            0 => None,
            _ => Some(reader.number("window")?),
        };
        if marks & DEDUP != 0 {
            let name = reader.text("dedup string")?;
            let dedup = self.dedup.restore_unsettled(name, id, window);
            self.records.set_dedup(at, dedup);
        }
        if marks & (ERROR | RETRY) != 0 {
            if marks & ERROR != 0 {
                self.records.set_error(at, reader.text("error")?);
            }
            if marks & RETRY != 0 {
                self.records.set_retry(at, read_retry_part(reader)?);
            }
        }
        if marks & SUSPECT != 0 {
            self.records.set_word(at, reader.number("lease that ran out")?);
            if self.records.own_behind(at).is_some_and(|own| own != Behind::Wait) {
                self.parked.note_own();
            }
        }
        if marks & COALESCE != 0 {
            let name = reader.string("coalescing name")?;
            let newest = marks & NEWEST_OF_ITS_NAME != 0;
            if newest && self.coalescing.has_newest(name) {
                return reader.damaged("newest message of a coalescing name");
            }
            let (revision, latest) = (reader.small("revision")?, reader.number("latest delay")?);
            self.records.add_extra(at);
            self.coalescing.insert(id, name, revision, latest, newest);
        }
        if marks & RUN != 0 {
            self.enter_run(at, reader.string("run")?);
        }
        Ok(())
    }

    /// A message takes its place in its lanes and, if it is ready, in the order of choice.
    fn restore_place(&mut self, placed: &mut Placed<'_>, lanes: &[u32]) -> Result<(), Damaged> {
        let (at, reader) = (placed.at, &mut placed.edges);
        let mut chain = Lanes::chain();
        for _ in 0..placed.count {
            let word = reader.number("key of a message")?;
            let Some(&lane) = lanes.get((word >> 2) as usize) else {
                return reader.damaged("lane that is there");
            };
            let (shared, granted) = (word & EDGE_SHARED != 0, word & EDGE_GRANTED != 0);
            if !self.lanes.restore_edge(at, lane, shared, granted, &mut chain) {
                return reader.damaged("key that can be granted");
            }
        }
        self.records.set_first_edge(at, chain.first);
        if self.is_behind_in_run(at) {
            self.runs.restore_rider();
        }
        let message = &self.records[at];
        if message.state == Some(State::Ready) && message.flags & PAUSED == 0 {
            let ticket = Ticket::new(message.priority, placed.sequence, at);
            let (flags, keyed) = (message.flags, message.flags & KEYED != 0);
            if flags & REFUSED == 0 {
                self.push_ready(ticket, flags, true);
            } else if !self.gate.restore_waiting(at, placed.waits, ticket, keyed) {
                return reader.damaged("limit that a message can wait for");
            }
        }
        Ok(())
    }

    fn restore_batches(&mut self, reader: &mut Reader<'_>, version: u8) -> Result<(), Damaged> {
        for _ in 0..reader.number("count of batches")? {
            let token = reader.number("token of a batch")?;
            let deadline = reader.number("deadline of a batch")?;
            let told = match version {
                FIRST_VERSION => 0,
                _ => reader.byte("what the holder of a batch said")?,
            };
            let told = [Told::Assumed, Told::Waiting, Told::Nothing, Told::Begun]
                .get(usize::from(told))
                .copied();
            let Some(told) = told else {
                return reader.damaged("word of the holder of a batch");
            };
            let mut members = Vec::new();
            for _ in 0..reader.number("count of leases of a batch")? {
                let id = reader.number("message of a batch")?;
                let handle = self.handle_of(id).filter(|handle| handle.token == token);
                let Some(handle) = handle else { return reader.damaged("lease of a batch") };
                members.push(handle.place);
            }
            if members.is_empty() {
                return reader.damaged("leases of a batch");
            }
            self.leases.restore_batch(token, deadline, told, members);
        }
        Ok(())
    }

    fn restore_barriers(
        &mut self,
        reader: &mut Reader<'_>,
        version: u8,
        placed: &[Placed<'_>],
    ) -> Result<(), Damaged> {
        let open = reader.number("count of messages before the barriers")?;
        self.barriers.restore_open(open);
        for _ in 0..reader.number("count of barriers")? {
            let id = reader.number("barrier")?;
            let sequence = reader.number("sequence of a barrier")?;
            let after = reader.number("count of messages behind a barrier")?;
            let is_barrier = |at: &u32| self.records[*at].flags & BARRIER != 0;
            let Some(message) = self.records.find(id).filter(is_barrier) else {
                return reader.damaged("barrier");
            };
            let gated = self.read_gated(reader, version, placed)?;
            self.barriers.restore_barrier(message, sequence, after, gated);
        }
        let opening = self.read_gated(reader, version, placed)?;
        self.barriers.restore_opening(opening);
        Ok(())
    }

    /// Settled ones stay in their place, because finding that out costs a step.
    fn read_gated(
        &self,
        reader: &mut Reader<'_>,
        version: u8,
        placed: &[Placed<'_>],
    ) -> Result<Vec<(u32, u64)>, Damaged> {
        let mut gated = Vec::new();
        for _ in 0..reader.number("count of gates")? {
            gated.push(self.read_sequence(reader, version, placed, "gate")?);
        }
        Ok(gated)
    }

    /// A message that has a place, by its sequence, or in older dumps by its id: its slot, `NONE` if it has none
    /// any more, and its sequence.
    fn read_sequence(
        &self,
        reader: &mut Reader<'_>,
        version: u8,
        placed: &[Placed<'_>],
        wanted: &'static str,
    ) -> Result<(u32, u64), Damaged> {
        let number = reader.number(wanted)?;
        if version > BEFORE_PARKED {
            let found = placed.binary_search_by_key(&number, |message| message.sequence);
            return Ok((found.map_or(NONE, |found| placed[found].at), number));
        }
        let at = self.records.find(number);
        Ok(at.map_or((NONE, number), |at| (at, self.records.sequence(at))))
    }

    fn restore_pauses(
        &mut self,
        reader: &mut Reader<'_>,
        lanes: &[u32],
        placed: &[Placed<'_>],
    ) -> Result<(), Damaged> {
        self.pauses.set_queue(reader.byte("pause")? != 0);
        for _ in 0..reader.number("count of paused keys")? {
            let lane = known(reader, lanes)?;
            let tickets = self.read_tickets(reader, placed)?;
            self.pauses.restore_aside(lane, tickets);
        }
        let returning = self.read_tickets(reader, placed)?;
        self.pauses.restore_returning(returning);
        Ok(())
    }

    fn read_tickets(
        &self,
        reader: &mut Reader<'_>,
        placed: &[Placed<'_>],
    ) -> Result<Vec<Ticket>, Damaged> {
        let mut tickets = Vec::new();
        for _ in 0..reader.number("count of messages set aside")? {
            let sequence = reader.number("message set aside")?;
            let found = placed.binary_search_by_key(&sequence, |message| message.sequence);
            let at = found.map_or(NONE, |found| placed[found].at);
            let priority = self.records.get(at).map_or(0, |message| message.priority);
            tickets.push(Ticket::new(priority, sequence, at));
        }
        Ok(tickets)
    }

    fn restore_dedup(&mut self, reader: &mut Reader<'_>) -> Result<(), Damaged> {
        let inserted = reader.number("count of dedup strings")?;
        for _ in 0..reader.number("count of known dedup strings")? {
            let until = reader.number("end of a window")?;
            let id = reader.number("id of a dedup string")?;
            self.dedup.restore_leaving(reader.text("dedup string")?, id, until);
        }
        self.dedup.restore_inserted(inserted);
        Ok(())
    }

    fn restore_put_times(&mut self, reader: &mut Reader<'_>) -> Result<(), Damaged> {
        let mut entries = Vec::new();
        let (mut id, mut time) = (0u64, 0u64);
        for _ in 0..reader.number("count of put times")? {
            id = id.saturating_add(reader.number("id of a put time")?);
            time = time.saturating_add(reader.number("put time")?);
            entries.push((id, time));
        }
        if entries.is_empty() && self.counts.unsettled() > 0 && !self.numbers.are_times() {
            return reader.damaged("put time");
        }
        self.numbers.restore_times(entries, reader.number("end of a put time")?);
        Ok(())
    }
}

fn known(reader: &mut Reader<'_>, lanes: &[u32]) -> Result<u32, Damaged> {
    let number: usize = reader.small("number of a lane")?;
    lanes.get(number).copied().map_or_else(|| reader.damaged("lane that is there"), Ok)
}

fn read_payload<P>(
    reader: &mut Reader<'_>,
    payload: &mut impl FnMut(&[u8]) -> Option<P>,
) -> Result<P, Damaged> {
    let length = reader.take(4, "length of a payload")?;
    let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
    let bytes = reader.take(length as usize, "payload")?;
    payload(bytes).map_or_else(|| reader.damaged("payload that can be read"), Ok)
}
