//! Reading without a call's effects: what fell due since the last one counts as it did.

use crate::key::KeyRef;
use crate::queue::calls::coalesce::Named;
use crate::queue::parts::dead::Dead;
use crate::queue::parts::lane::KeysOf;
use crate::queue::parts::slab::NONE;
use crate::queue::scheduler::{Grant, Scheduler};
use crate::queue::types::message::{BARRIER, PAUSED, QUIET};
use crate::queue::types::{Behind, Explained, RetryPart, State, Time};

/// An unsettled message, with all that is known of it.
#[derive(Debug)]
pub struct Seen<'a, P> {
    pub id: u64,
    pub sequence: u64,
    pub attempt: u32,
    pub state: State,
    pub priority: i8,
    pub barrier: bool,
    pub quiet: bool,
    pub payload: &'a P,
    pub dedup: Option<&'a str>,
    /// The window of its dedup string, where it has one of its own.
    pub window: Option<u64>,
    pub retry: Option<&'a RetryPart>,
    /// Its own value of what happens to it behind a failure.
    pub behind: Option<Behind>,
    /// The error of its last failure.
    pub error: Option<&'a str>,
    /// The time at which its delay or backoff ends.
    pub due: Option<Time>,
    /// Token, consumer and deadline.
    pub lease: Option<(u64, u64, Time)>,
    /// On how many of its keys, and barriers, it waits.
    pub blocked: u32,
    pub(in crate::queue) at: u32,
}

impl<P> Scheduler<P> {
    /// An unsettled message.
    pub fn seen(&self, id: u64) -> Option<Seen<'_, P>> {
        self.records.find(id).map(|at| self.seen_at(at))
    }

    fn seen_at(&self, at: u32) -> Seen<'_, P> {
        let message = &self.records[at];
        let mut state = message.state.expect("an unsettled message");
        let extra = self.records.extra(at);
        let failing = extra.and_then(|extra| extra.failing.as_deref());
        let lease = (state == State::Leased).then(|| {
            let lease = &self.leases[message.hold];
            let deadline = self.leases.deadline_of(lease);
            (lease.token, lease.consumer, deadline)
        });
        let due = match state {
            State::Delayed => extra.and_then(|extra| self.delays.at(extra.timer)),
            State::BackingOff => extra.and_then(|extra| self.backoffs.at(extra.timer)),
            _ => None,
        };
        let blocked = if state == State::Waiting { message.hold } else { 0 };
        if state == State::Ready && self.is_paused(at) {
            state = State::Waiting;
        }
        let dedup = extra.and_then(|extra| extra.dedup.as_deref());
        Seen {
            id: message.id,
            sequence: self.records.sequence(at),
            attempt: self.records.attempt(at),
            state,
            priority: message.priority,
            barrier: message.flags & BARRIER != 0,
            quiet: message.flags & QUIET != 0,
            payload: message.payload.as_ref().expect("an unsettled message has its payload"),
            dedup,
            window: dedup.and_then(|name| self.dedup.window_of(name)),
            retry: failing.and_then(|failing| failing.retry.as_ref()),
            error: failing.and_then(|failing| failing.error.as_deref()),
            behind: self.records.own_behind(at),
            due,
            lease,
            blocked,
            at,
        }
    }

    fn is_paused(&self, at: u32) -> bool {
        let message = &self.records[at];
        self.pauses.of_queue()
            || message.flags & PAUSED != 0
            || (self.lanes.paused() > 0 && self.lanes.paused_lane(message.first_edge).is_some())
    }

    /// The limit names of a message that was seen, joined; empty: it has none.
    pub fn limit_names(&self, seen: &Seen<'_, P>) -> Vec<u8> {
        self.gate.names_of(seen.at)
    }

    /// The group of a message that was seen; empty: it has none.
    pub fn group(&self, seen: &Seen<'_, P>) -> &[u8] {
        self.gate.groups.text_of(seen.at)
    }

    /// The coalescing name of a message that was seen, and what is known of it, if it has one.
    pub fn coalesced(&self, seen: &Seen<'_, P>) -> Option<&Named> {
        self.coalescing.of(seen.id)
    }

    /// The keys of a message that was seen, exclusive ones first, each once.
    pub fn keys_seen(&self, seen: &Seen<'_, P>, mut each: impl FnMut(&[u8], bool)) {
        self.each_key(seen.at, &mut each);
    }

    pub(in crate::queue) fn each_key(&self, at: u32, each: &mut impl FnMut(&[u8], bool)) {
        let message = &self.records[at];
        if !matches!(message.state, Some(State::Delayed | State::Parked)) {
            let keys = self.lanes.keys_of(message.first_edge);
            return keys.for_each(|(key, shared)| each(key.as_bytes(), shared));
        }
        let keys = self.keys_of(at);
        let mut told = hashbrown::HashSet::<&[u8], std::hash::RandomState>::default();
        for (key, shared) in &keys {
            if told.insert(key.as_bytes()) {
                each(key.as_bytes(), *shared);
            }
        }
    }

    /// Returns the facts about a leased message: its sequence, its payload, its keys, the exclusive
    /// ones first, each with whether it is shared, and whether it is quiet.
    #[inline]
    pub fn granted(&self, grant: &Grant) -> (u64, &P, KeysOf<'_>, bool) {
        let message = &self.records[grant.message];
        let payload = message.payload.as_ref().expect("a leased message has its payload");
        let sequence = self.records.sequence(grant.message);
        let quiet = message.flags & QUIET != 0;
        (sequence, payload, self.lanes.keys_of(message.first_edge), quiet)
    }

    /// Passes unsettled messages to `each` by their ids, which is the order of their puts, from
    /// `from` on, until it returns false or `steps` ids were looked at. Returns the id to continue
    /// from; 0 when all were seen.
    pub fn list(&self, from: u64, steps: u32, mut each: impl FnMut(Seen<'_, P>) -> bool) -> u64 {
        let (mut from, mut left) = (from.max(self.numbers.oldest()), steps);
        while from < self.numbers.next() {
            if left == 0 {
                return from;
            }
            let (id, at) = self.records.next_from(from, self.numbers.next(), left);
            left = left.saturating_sub((id - from) as u32 + u32::from(at != NONE));
            from = if at == NONE { id } else { id + 1 };
            if at != NONE && !each(self.seen_at(at)) {
                return from;
            }
        }
        0
    }

    /// An upper bound on the unsettled messages in a state, or of all but the delayed and parked ones on
    /// a key. For `ready` and `waiting` it is not exact.
    pub fn at_most(&self, state: Option<&str>, key: Option<KeyRef<'_>>) -> u64 {
        let stats = self.counts();
        let of_state = match state {
            Some("delayed") => stats.delayed,
            Some("leased") => stats.leased,
            Some("backing_off") => stats.backing_off,
            Some("held") => stats.held,
            Some("parked") => stats.parked,
            _ => stats.unsettled,
        };
        let depth = |key| self.lanes.find(key).map_or(0, |lane| self.lanes.lane(lane).depth);
        let unplaced = stats.delayed + stats.parked;
        of_state.min(key.map_or(u64::MAX, |key| unplaced + u64::from(depth(key))))
    }

    /// The last number that was given to a message, as its id or its place; 0: none is unsettled.
    pub fn last_id(&self) -> u64 {
        if self.records.len() == 0 {
            0
        } else {
            self.numbers.next() - 1
        }
    }

    /// Passes about `count` unsettled messages to `each`, in no order, from the place `from` on,
    /// until it returns false. Returns the place to continue from, 0 when all were seen. A message
    /// that exists throughout is seen once.
    pub fn scan(&self, from: u64, count: usize, mut each: impl FnMut(Seen<'_, P>) -> bool) -> u64 {
        let end = self.records.end();
        some_places(from, end, count, |at| {
            self.records
                .get(at)
                .filter(|message| message.state.is_some())
                .map(|_| each(self.seen_at(at)))
        })
    }

    /// Puts the ids in order for `scan_in_order`, some in each call, and keeps them so until the
    /// queue is empty. Returns whether all are.
    pub fn order_ids(&mut self) -> bool {
        self.records.order_some(PLACES)
    }

    /// Passes up to `count` unsettled messages to `each` in the order of their ids, from the id `from`
    /// on, until it returns false. Returns the id to continue from, 0 when all were seen.
    pub fn scan_in_order(
        &self,
        from: u64,
        count: usize,
        mut each: impl FnMut(Seen<'_, P>) -> bool,
    ) -> u64 {
        let mut left = count;
        for at in self.records.in_order(from) {
            if left == 0 {
                return self.records[at].id;
            }
            left = if each(self.seen_at(at)) { left - 1 } else { 0 };
        }
        0
    }

    /// Returns whether `front` finds the messages in a state without all ids being in order.
    pub fn has_few(&self, state: State) -> bool {
        let few = match state {
            State::Delayed => self.delays.len(),
            State::Leased => self.leases.len(),
            State::BackingOff => self.backoffs.len(),
            State::Parked => self.parked.count() as usize,
            State::Held => 0,
            State::Waiting | State::Ready => return false,
        };
        few <= PLACES as usize
    }

    /// Passes up to `count` ids of unsettled messages to `each` in order, from the id `from` on, of all
    /// or of those in a state. Returns the last id looked at; 0 if no more follow. Needs all ids in order,
    /// unless the state `has_few`.
    pub fn front(
        &self,
        from: u64,
        count: usize,
        state: Option<State>,
        mut each: impl FnMut(u64),
    ) -> u64 {
        let (mut left, mut steps) = (count, PLACES);
        let mut look = |id, found| {
            left -= usize::from(found);
            steps -= 1;
            if found {
                each(id);
            }
            left == 0 || steps == 0
        };
        if let Some(state) = state.filter(|&state| self.has_few(state)) {
            let mut ids = self.ids_in(state, from);
            ids.sort_unstable();
            return ids.into_iter().find(|&id| look(id, true)).unwrap_or(0);
        }
        let mut places = self.records.in_order(from);
        let last = places.find(|&at| {
            // Ready, but for a pause.
            let is_ready = self.records[at].state == Some(State::Ready);
            let found = match state {
                None => true,
                Some(State::Ready) => is_ready && !self.is_paused(at),
                Some(State::Waiting) if is_ready => self.is_paused(at),
                state => self.records[at].state == state,
            };
            look(self.records[at].id, found)
        });
        last.map_or(0, |at| self.records[at].id)
    }

    /// The ids, from `from` on, of the messages in a state that is not waiting or ready.
    fn ids_in(&self, state: State, from: u64) -> Vec<u64> {
        let id_of = |at: u32| self.records[at].id;
        let behind = |&id: &u64| id >= from;
        match state {
            State::Delayed => self.delays.ids().filter(behind).collect(),
            State::BackingOff => {
                self.backoffs.iter().map(|due| id_of(due.owner)).filter(behind).collect()
            }
            State::Held => self.counts.held_ids().filter(behind).collect(),
            State::Parked => {
                let parkings = self.parked.parkings().filter(|(_, one)| one.under.is_some());
                parkings.map(|(at, _)| id_of(at)).filter(behind).collect()
            }
            _ => {
                let leases = self.leases.places().filter(|(_, lease)| lease.token != 0);
                leases.map(|(_, lease)| id_of(lease.message)).filter(behind).collect()
            }
        }
    }

    /// The unsettled messages in a key's lane, in sequence: those behind message `after`, or all if it is
    /// not in the lane.
    pub fn on_key(&self, key: KeyRef<'_>, after: u64) -> impl Iterator<Item = Seen<'_, P>> {
        let lane = self.lanes.find(key).filter(|&lane| self.lanes.lane(lane).depth > 0);
        let edges = lane.map(|lane| {
            let last = self.records.find(after).map(|at| &self.records[at]);
            let last = last.filter(|message| message.state != Some(State::Delayed));
            let mut edges = last.into_iter().flat_map(|last| self.lanes.edges_of(last.first_edge));
            match edges.find(|(_, edge)| edge.lane() == lane) {
                Some((edge, _)) => self.lanes.standing_from(self.lanes.next_of(edge)),
                None => self.lanes.standing_from(self.lanes.first_of(lane)),
            }
        });
        edges.into_iter().flatten().map(|edge| self.seen_at(edge.message))
    }

    /// Like `scan`, for the delayed and the parked messages that have a key.
    pub fn scan_delayed(
        &self,
        from: u64,
        count: usize,
        key: &[u8],
        mut each: impl FnMut(Seen<'_, P>) -> bool,
    ) -> u64 {
        if self.delays.len() as u64 + self.parked.count() <= u64::from(PLACES) {
            // Fewer than the places that one call may look at, however many messages there are.
            let ids = self.delays.ids().filter(|&id| self.delays.has_key(id, key));
            let parked = self.parked.parkings().filter(|(_, one)| one.keys.has(key));
            let places = ids.filter_map(|id| self.records.find(id)).chain(parked.map(|(at, _)| at));
            let mut places: Vec<_> = places.filter(|&at| u64::from(at) >= from).collect();
            places.sort_unstable();
            let mut left = count;
            for at in places {
                if left == 0 {
                    return at.into();
                }
                left = if each(self.seen_at(at)) { left - 1 } else { 0 };
            }
            return 0;
        }
        some_places(from, self.records.end(), count, |at| {
            let message = self.records.get(at)?;
            let has_key = match message.state {
                Some(State::Delayed) => self.delays.has_key(message.id, key),
                Some(State::Parked) => self.parked.parking(at).is_some_and(|one| one.keys.has(key)),
                _ => false,
            };
            has_key.then(|| each(self.seen_at(at)))
        })
    }

    /// Like `scan`, for the lanes with messages: key and depth.
    pub fn scan_lanes(&self, from: u64, count: usize, mut each: impl FnMut(&[u8], u32)) -> u64 {
        some_places(from, self.lanes.end(), count, |at| {
            let lane = self.lanes.get(at).filter(|lane| lane.depth > 0)?;
            each(lane.key.as_bytes(), lane.depth);
            Some(true)
        })
    }

    /// The lanes on which most messages stand, up to `count` of them, deepest first: key and depth.
    pub fn deepest_lanes(&mut self, count: usize, mut each: impl FnMut(&[u8], u32)) {
        for number in self.lanes.deepest(count) {
            let lane = self.lanes.lane(number);
            each(lane.key.as_bytes(), lane.depth);
        }
    }

    /// Like `scan`, for what is paused. The queue itself comes first, as an empty key.
    pub fn scan_paused(&self, from: u64, count: usize, mut each: impl FnMut(&[u8])) -> u64 {
        if from == 0 && self.pauses.of_queue() {
            each(b"");
        }
        let mut lanes = self.lanes.all_paused(from.min(u64::from(NONE)) as u32);
        lanes.by_ref().take(count).for_each(|(_, lane)| each(lane.key.as_bytes()));
        lanes.next().map_or(0, |(number, _)| u64::from(number))
    }

    /// Lanes with messages that have a place.
    pub fn lane_count(&self) -> u64 {
        self.lanes.busy()
    }

    /// Paused keys, and one more if the queue is.
    pub fn pause_count(&self) -> u64 {
        self.lanes.paused() as u64 + u64::from(self.pauses.of_queue())
    }

    pub fn dead_letter(&self, id: u64) -> Option<&Dead<P>> {
        self.dead.get(id)
    }

    /// Returns whether a call has left work for outside the lock: events to report, payloads to
    /// drop.
    #[inline]
    pub(in crate::queue) fn has_leavings(&self) -> bool {
        self.watch.has_events() || self.has_expired_dead() || self.has_cancelled()
    }

    /// Returns whether payloads of dead letters that were too old wait to be dropped.
    #[inline]
    pub fn has_expired_dead(&self) -> bool {
        self.dead.has_expired()
    }

    /// Returns and clears these payloads.
    pub fn take_expired_dead(&mut self) -> Vec<P> {
        self.dead.take_expired()
    }

    pub fn dead_count(&self) -> usize {
        self.dead.len()
    }

    /// The dead letters in the order in which they died.
    pub fn all_dead(&self) -> impl DoubleEndedIterator<Item = &Dead<P>> {
        self.dead.iter()
    }

    /// Returns those that died after this one; `None` if this dead letter does not exist.
    pub fn dead_after(&self, id: u64) -> Option<impl Iterator<Item = &Dead<P>>> {
        self.dead.after(id)
    }

    /// Returns those that carry a key, and died after this one, if one is given; `None` if that dead
    /// letter does not exist.
    pub fn dead_on(&self, key: &[u8], id: Option<u64>) -> Option<impl Iterator<Item = &Dead<P>>> {
        self.dead.on_key_after(key, id)
    }

    /// Returns those that died before this one, the newest first; `None` if this dead letter does
    /// not exist.
    pub fn dead_before(&self, id: u64) -> Option<impl Iterator<Item = &Dead<P>>> {
        self.dead.before(id)
    }

    pub fn explained(&self, now: Time, id: u64, limit: usize) -> Option<Explained> {
        let at = self.records.find(id)?;
        Some(self.walk(now, [at].into_iter(), limit.max(1)))
    }

    /// The messages on a key; if there are none, the first of those parked under it.
    pub fn explained_key(&self, now: Time, key: KeyRef<'_>, limit: usize) -> Option<Explained> {
        let lane = self.lanes.find(key).filter(|&lane| self.lanes.lane(lane).depth > 0);
        let Some(lane) = lane else {
            let first = self.parked.under(key.bytes).next()?;
            return Some(self.walk(now, [first].into_iter(), limit.max(1)));
        };
        let standing = self.lanes.standing(lane).map(|edge| edge.message);
        Some(self.walk(now, standing, limit.max(1)))
    }

    /// Consumers that hold a lease, as they named themselves.
    pub fn holders(&self) -> impl Iterator<Item = u64> + '_ {
        self.leases.all().map(|(_, lease)| lease.consumer)
    }
}

/// Visits occupied places from `from` on, until there were `count` of them or one was declared the
/// last. Returns the place to continue from, 0 after the end.
fn some_places(
    from: u64,
    end: u32,
    count: usize,
    mut look: impl FnMut(u32) -> Option<bool>,
) -> u64 {
    let from = from.min(u64::from(end)) as u32;
    let mut left = count;
    // After a peak most places are empty.
    let most = from.saturating_add(PLACES).min(end);
    for at in from..most {
        if left == 0 {
            return u64::from(at);
        }
        match look(at) {
            None => {}
            Some(true) => left -= 1,
            Some(false) => left = 0,
        }
    }
    if most < end {
        u64::from(most)
    } else {
        0
    }
}

/// Places that one call looks at.
const PLACES: u32 = 20_000;

#[cfg(test)]
mod tests {
    use crate::key::KeyRef;
    use crate::queue::parts::watch::Watch;
    use crate::queue::scheduler::{Put, Scheduler};
    use crate::queue::types::{Kind, Options, State};

    /// Returns the ids of all pages in order, and the number of pages.
    fn in_order(scheduler: &mut Scheduler<u64>, count: usize) -> (Vec<u64>, usize) {
        let (mut found, mut from, mut pages) = (Vec::new(), 1, 0);
        while from != 0 {
            pages += 1;
            if scheduler.order_ids() {
                from = scheduler.scan_in_order(from, count, |seen| {
                    found.push(seen.id);
                    true
                });
            }
        }
        (found, pages)
    }

    #[test]
    fn messages_come_in_the_order_of_their_ids_while_others_are_put_and_settled() {
        let mut rng = fastrand::Rng::with_seed(6);
        let mut scheduler: Scheduler<u64> = Scheduler::new(Options::default(), Watch::off());
        let mut live = std::collections::BTreeSet::new();
        // Slots in no order, and more of them than one call puts in order.
        for round in 0..100_000 {
            if round > 60_000 && round % 997 == 0 {
                scheduler.order_ids();
            }
            let id = scheduler.put(1, &Put::default(), &mut Some(round)).unwrap().id;
            live.insert(id);
            let other = rng.u64(1..=id);
            if rng.bool() && live.remove(&other) {
                assert!(scheduler.cancel(1, other).is_some());
            }
        }
        let wanted: Vec<u64> = live.iter().copied().collect();
        let (found, pages) = in_order(&mut scheduler, 100);
        assert!(found == wanted, "{} instead of {}", found.len(), wanted.len());
        assert_eq!(pages, wanted.len().div_ceil(100));
        scheduler.cancel_all(1);
        let id = scheduler.put(1, &Put::default(), &mut Some(0)).unwrap().id;
        assert_eq!(in_order(&mut scheduler, 100).0, [id]);
    }

    #[test]
    fn the_first_ids_in_a_state_are_those_that_a_list_of_all_shows() {
        let mut rng = fastrand::Rng::with_seed(9);
        let mut scheduler: Scheduler<u64> = Scheduler::new(Options::default(), Watch::off());
        for round in 0..30_000 {
            let key = [b'a' + rng.u8(..20)];
            let keys = [KeyRef::new(&key)];
            let delay = if rng.u8(..) < 9 { 1_000 } else { 0 };
            let put = Put { keys: &keys, delay, ..Put::default() };
            scheduler.put(1, &put, &mut Some(round)).unwrap();
            if round % 1_000 == 0 {
                let _ = scheduler.lease(1, Kind::Any, 0);
            }
        }
        scheduler.pause(1, Some(KeyRef::new(b"c")));
        while !scheduler.order_ids() {}
        for state in [None].into_iter().chain(State::ALL.map(Some)) {
            let mut wanted = Vec::new();
            scheduler.list(0, u32::MAX, |seen| {
                wanted.extend((state.is_none_or(|state| seen.state == state)).then_some(seen.id));
                true
            });
            let (mut found, mut from) = (Vec::new(), 0);
            loop {
                let last = scheduler.front(from, 700, state, |id| found.push(id));
                if last == 0 {
                    break;
                }
                from = last + 1;
            }
            assert_eq!(found.len(), wanted.len(), "{state:?}");
            assert!(found == wanted, "{state:?}");
        }
    }

    #[test]
    fn delayed_messages_of_a_key_are_found_once_in_one_call_behind_many_others() {
        let mut scheduler: Scheduler<u64> = Scheduler::new(Options::default(), Watch::off());
        let mut wanted = Vec::new();
        for round in 0..50_000 {
            let key = [b'a' + (round % 2) as u8];
            let keys = [KeyRef::new(&key)];
            let delay = if round % 10_000 < 4 { 1_000 } else { 0 };
            let put = Put { keys: &keys, delay, ..Put::default() };
            let id = scheduler.put(1, &put, &mut Some(round)).unwrap().id;
            if delay > 0 && key == [b'a'] {
                wanted.push(id);
            }
        }
        for count in [1, 3, 10, 100] {
            let (mut found, mut from, mut pages) = (Vec::new(), 0, 0);
            loop {
                from = scheduler.scan_delayed(from, count, b"a", |seen| {
                    found.push(seen.id);
                    true
                });
                pages += 1;
                if from == 0 {
                    break;
                }
            }
            found.sort_unstable();
            assert_eq!((&found, pages), (&wanted, wanted.len().div_ceil(count)));
        }
    }
}
