//! Leases of many messages: granting, extending and ending them. Engines use them (clause 8). A heartbeat is
//! then one write, however many messages are out.
//!
//! Each message keeps a lease of its own, which names its batch, so that the calls on a lease
//! (`ack`, `revoke`, `explain`) need not know about batches.

pub use crate::queue::parts::batches::Told;
use crate::queue::parts::counts::Happened;
use crate::queue::parts::feed::Change;
use crate::queue::parts::leases::Lease;
use crate::queue::scheduler::{Budget, Grant, Handle, Scheduler, CALL_LIMIT};
use crate::queue::types::{Kind, State, Time};

/// The most that one call may be handed.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    pub messages: usize,
    /// Messages with those that follow them in their runs (clause 30); 0: the consumer takes no runs.
    pub with_riders: usize,
    /// Keys of all its messages together; the first may have more.
    pub keys: usize,
    /// Weight of all payloads together: the message that reaches it is the last.
    pub bytes: u64,
}

impl Most {
    /// Limits the number of messages, whatever their size.
    pub fn messages(messages: usize) -> Self {
        Most { messages, with_riders: 0, keys: usize::MAX, bytes: u64::MAX }
    }
}

/// The keys and bytes that a call for many messages may still take, and the tickets that it may
/// still set aside (clause 21).
pub(in crate::queue) struct Room {
    /// Messages, with riders.
    pub messages: usize,
    pub keys: usize,
    pub bytes: u64,
    /// Keys of what was taken.
    pub taken: usize,
    set_aside: u32,
}

/// A lease of many messages that is being made.
pub(in crate::queue) struct Batch {
    place: u32,
    token: u64,
    deadline: Time,
    consumer: u64,
}

/// The answer to a call for many messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    pub token: u64,
    pub deadline: Time,
    /// Keys of all its messages together.
    pub keys: usize,
    /// True if the limit of bytes was reached.
    pub is_cut: bool,
}

impl<P> Scheduler<P> {
    /// Hands out ready messages for `length` µs, under one token, and appends them to `grants`.
    pub fn lease_batch(
        &mut self,
        kind: Kind,
        most: Most,
        length: u64,
        consumer: u64,
        grants: &mut Vec<Grant>,
    ) -> Option<Handed> {
        let from = grants.len();
        let Most { messages: mut heads, with_riders, keys, bytes } = most;
        let messages = if with_riders == 0 { heads } else { with_riders };
        let mut left = Room { messages, keys, bytes, taken: 0, set_aside: CALL_LIMIT };
        let first = self.pick(kind, &mut left, true);
        self.engine.set_aside = first.is_none() && left.set_aside < CALL_LIMIT;
        let mut at = first?;
        let token = self.leases.draw_token(self.now);
        let deadline = self.now.saturating_add(length);
        let alone = self.records.suspect(at) > 0;
        let told = if alone { Told::Nothing } else { Told::Assumed };
        let place = self.leases.begin_batch(token, deadline, told);
        let batch = Batch { place, token, deadline, consumer };
        let runs = with_riders > 0 && !self.runs.is_idle();
        loop {
            self.lease_one(at, &batch, &mut left, grants);
            heads -= 1;
            if left.bytes == 0 || alone {
                break;
            }
            if runs && !self.lease_riders(at, kind, &batch, &mut left, grants) {
                break;
            }
            if heads == 0 || left.messages == 0 {
                break;
            }
            let Some(next) = self.pick(kind, &mut left, false) else { break };
            at = next;
        }
        let members: Box<[u32]> = grants[from..].iter().map(|grant| grant.handle.place).collect();
        self.counts.leased(members.len() as u64);
        self.leases.fill_batch(batch.place, members);
        Some(Handed { token, deadline, keys: left.taken, is_cut: left.bytes == 0 })
    }

    /// Leases a message as one of many.
    #[inline(always)]
    pub(in crate::queue) fn lease_one(
        &mut self,
        at: u32,
        batch: &Batch,
        left: &mut Room,
        grants: &mut Vec<Grant>,
    ) {
        let Batch { token, deadline, consumer, .. } = *batch;
        let lease = (token, deadline);
        let place = self.leases.insert_in_batch(batch.place, lease, at, consumer, self.now);
        self.records.set_leased(at, place);
        self.note_lease(at, token, consumer);
        let (id, attempt) = (self.records[at].id, self.records.attempt(at));
        grants.push(Grant { handle: Handle { place, token }, id, attempt, message: at });
        let payload = self.records[at].payload.as_ref();
        let weight = payload.and_then(|payload| self.engine.weight(payload)).unwrap_or(0);
        left.bytes = left.bytes.saturating_sub(weight);
        left.messages -= 1;
    }

    /// Removes the first ready message, if there is room for its keys or it is the first of its call. Messages that
    /// are paused or have no room are set aside, up to a call's limit; any beyond it are still counted in `ready`.
    fn pick(&mut self, kind: Kind, room: &mut Room, first: bool) -> Option<u32> {
        if self.pauses.of_queue() {
            return None;
        }
        loop {
            let candidate = self.candidate(kind)?;
            let at = candidate.ticket.message;
            if self.waits_on(candidate) {
                continue;
            }
            let edges = self.records[at].first_edge;
            let paused = match self.lanes.paused() {
                0 => None,
                _ => self.lanes.paused_lane(edges),
            };
            let admitted = self.admits(candidate);
            if paused.is_some() || !admitted {
                if room.set_aside == 0 {
                    return None;
                }
                let moved = match paused {
                    Some(lane) => {
                        self.take(candidate);
                        self.set_aside(candidate.ticket, lane);
                        true
                    }
                    None => self.refuse(candidate),
                };
                room.set_aside -= u32::from(moved);
                continue;
            }
            if !first && self.records.suspect(at) > 0 {
                return None;
            }
            let count = self.lanes.edges_of(edges).count();
            if count > room.keys && !first {
                return None;
            }
            room.keys = room.keys.saturating_sub(count);
            room.taken += count;
            self.take_to_lease(candidate, kind);
            return Some(at);
        }
    }

    /// Returns the handle with which this token may settle this message. `None` from the deadline on,
    /// even if the expiry of the lease has not been applied yet.
    #[inline]
    pub fn held(&self, token: u64, id: u64) -> Option<Handle> {
        self.held_at(token, id).map(|(_, place)| Handle { place, token })
    }

    /// Returns the grant that this token was given for this message, for a repeated reply; `None`:
    /// it is no longer leased.
    pub fn granted_again(&self, token: u64, id: u64) -> Option<Grant> {
        let (at, place) = self.leased_at(token, id)?;
        let handle = Handle { place, token };
        Some(Grant { handle, id, attempt: self.records.attempt(at), message: at })
    }

    /// Like `held`, but returns the slots of the message and of its lease.
    #[inline]
    fn held_at(&self, token: u64, id: u64) -> Option<(u32, u32)> {
        // One that follows another in a run cannot be settled before it.
        self.leased_at(token, id).filter(|&(at, _)| !self.rides(at))
    }

    #[inline]
    fn leased_at(&self, token: u64, id: u64) -> Option<(u32, u32)> {
        let at = self.records.find(id)?;
        let message = &self.records[at];
        if message.state != Some(State::Leased) {
            return None;
        }
        let place = message.hold;
        self.leases.standing(Handle { place, token }, self.now).map(|_| (at, place))
    }

    /// Acknowledges this message, as one step of a call, and returns its payload. `None`: this token
    /// does not hold the message.
    #[inline]
    pub fn ack_held(&mut self, token: u64, id: u64, budget: &mut Budget) -> Option<Option<P>> {
        let (at, place) = self.held_at(token, id)?;
        self.hand_on_lease(place);
        self.counts.note(Happened::Acked);
        self.note(Change::Ack, at, token);
        Some(self.settle(at, budget))
    }

    /// Returns whether a message must be leased alone: a lease of it expired while its handler may have run.
    pub fn is_alone(&self, grant: &Grant) -> bool {
        self.records.suspect(grant.message) > 0
    }

    /// A new deadline, `length` µs from now, for all that a token still holds; `None`: it holds nothing.
    pub fn extend_batch(&mut self, token: u64, length: u64, told: Told) -> Option<Time> {
        let deadline = self.now.saturating_add(length);
        self.leases.extend_batch(token, deadline, told, self.now)?;
        Some(deadline)
    }

    /// Ends what has run out, at most `limit` leases and the rest of a run, by deadline and then by id. Returns how
    /// many more things this call may apply.
    pub(in crate::queue) fn expire_batches(&mut self, limit: u32, budget: &mut Budget) -> u32 {
        let mut left = limit;
        while left > 0 {
            let Some(expired) = self.leases.expired_in_batches(self.now) else { break };
            let named = |(at, lease): (u32, &Lease)| (self.records[lease.message].id, at);
            // Riders wait again when the lease of their head has ended.
            let is_head = |(_, lease): &(u32, &Lease)| !self.rides(lease.message);
            let mut out: Vec<(u64, u32)> = expired.into_iter().filter(is_head).map(named).collect();
            out.sort_unstable();
            debug_assert!(!out.is_empty(), "a run without its first message");
            for (_, place) in out {
                if left == 0 {
                    break;
                }
                let told = self.leases.told(place);
                let before = self.leases.len();
                let lease = self.end_lease(place);
                left = left.saturating_sub((before - self.leases.len()) as u32);
                self.ran_out(&lease, told, budget);
                self.moves(budget);
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use crate::key::KeyRef;
    use crate::queue::calls::batch::*;
    use crate::queue::calls::lease::Failed;
    use crate::queue::scheduler::Put;
    use crate::queue::types::{Options, Retry, RetryPart, Then};

    const START: Time = 1_000_000_000_000_000;

    fn queue(retry: Retry) -> Scheduler<u64> {
        Scheduler::by_time(Options { retry, ..Options::default() }, |bytes| *bytes)
    }

    fn put(s: &mut Scheduler<u64>, now: Time, put: &Put<'_>) -> u64 {
        s.start(now);
        s.enter(put, Some(3))
    }

    fn lease(s: &mut Scheduler<u64>, now: Time, limit: usize, length: u64) -> (Handed, Vec<u64>) {
        s.start(now);
        let mut grants = Vec::new();
        let handed =
            s.lease_batch(Kind::Any, Most::messages(limit), length, 1, &mut grants).unwrap();
        (handed, grants.iter().map(|grant| grant.id).collect())
    }

    #[test]
    fn ids_follow_the_clock_and_bytes_are_those_of_the_payloads() {
        let mut s = queue(Retry::default());
        let ids = [(0, 0), (0, 1), (5, 5), (4, 6), (5, 7)];
        for (now, id) in ids {
            assert_eq!(put(&mut s, START + now, &Put::default()), START + id);
        }
        assert_eq!(s.bytes(), 15);
        let (first, _) = lease(&mut s, START + 5, 1, 50);
        let (second, handed) = lease(&mut s, START + 5, 2, 50);
        assert_eq!((first.token, second.token, handed.len()), (START + 5, START + 6, 2));
        let delayed = put(&mut s, START + 6, &Put { delay: 3, ..Put::default() });
        s.start(START + 9);
        assert_eq!((delayed, s.seen(delayed).unwrap().sequence), (START + 8, START + 9));
    }

    #[test]
    fn a_batch_lease_lasts_until_its_deadline_and_is_extended_as_a_whole() {
        let mut s = queue(Retry::default());
        for _ in 0..3 {
            put(&mut s, START, &Put::default());
        }
        let (lease, ids) = lease(&mut s, START, 3, 50);
        let held = |s: &Scheduler<u64>, n: usize| s.held(lease.token, ids[n]).is_some();
        assert!(held(&s, 0) && s.held(lease.token + 1, ids[0]).is_none());
        let mut budget = Budget::ONE_CALL;
        assert_eq!(s.ack_held(lease.token, ids[0], &mut budget), Some(Some(3)));
        assert_eq!(s.ack_held(lease.token, ids[0], &mut budget), None);
        assert!(!held(&s, 0) && held(&s, 1));
        s.start(START + 49);
        assert_eq!(s.extend_batch(lease.token, 10, Told::Begun), Some(START + 59));
        // Not yet applied, as where more is due than one call may apply.
        s.pass(START + 58);
        assert!(held(&s, 1));
        s.pass(START + 59);
        assert!(!held(&s, 1), "it is over at its deadline");
        assert_eq!(s.extend_batch(lease.token, 10, Told::Begun), None);
        s.start(START + 59);
        assert_eq!(
            (s.counts().leases_expired, s.counts().leased, s.next_due().is_some()),
            (2, 0, false)
        );
    }

    #[test]
    fn one_call_takes_back_at_most_a_thousand_expired_leases_by_id() {
        let mut s = queue(Retry { attempts: Some(1), ..Retry::default() });
        let (low, plain) = (Put { priority: -1, ..Put::default() }, Put::default());
        let many = CALL_LIMIT as u64 + 200;
        for n in 0..many {
            put(&mut s, START, if n % 3 == 0 { &low } else { &plain });
        }
        // By priority, so that the ids of two leases interleave.
        lease(&mut s, START, many as usize / 2, 50);
        lease(&mut s, START, many as usize, 50);
        s.feed(true);
        s.start(START + 50);
        let ended: Vec<u64> = s.noted().map(|one| one.id).collect();
        assert_eq!(ended, (START..START + u64::from(CALL_LIMIT)).collect::<Vec<_>>());
        assert_eq!(s.next_due(), Some(START + 50), "the rest is for the next call");
        s.start(START + 50);
        assert_eq!((s.counts().leases_expired, s.counts().leased), (many, 0));
    }

    #[test]
    fn an_expired_message_is_leased_alone_and_charged_only_if_it_began_alone() {
        let mut s = queue(Retry { attempts: Some(9), first: 0, ..Retry::default() });
        for _ in 0..3 {
            put(&mut s, START, &Put::default());
        }
        let (_, all) = lease(&mut s, START, 3, 10);
        let attempt = |s: &Scheduler<u64>| s.seen(all[0]).unwrap().attempt;
        let mut now = START;
        let mut token = 0;
        // A holder that dies before it reports anything may have died of another message: the first
        // two such deaths in a row are not charged.
        let said = [
            (Told::Nothing, 1),
            (Told::Nothing, 1),
            (Told::Waiting, 1),
            (Told::Nothing, 1),
            (Told::Begun, 2),
            (Told::Nothing, 2),
            (Told::Nothing, 2),
            (Told::Nothing, 3),
            (Told::Nothing, 4),
            (Told::Begun, 5),
        ];
        for (told, charged) in said {
            now += 10;
            let (alone, first) = lease(&mut s, now, 3, 10);
            assert_eq!(first, all[..1], "the next one is to be alone");
            token = alone.token;
            if told != Told::Nothing {
                assert!(s.extend_batch(token, 10, told).is_some());
            }
            if told == Told::Begun {
                // On another connection, and late.
                assert!(s.extend_batch(token, 10, Told::Waiting).is_some());
            }
            s.start(now + 10);
            assert_eq!(attempt(&s), charged);
        }
        // Its consumer lives after all.
        s.clear_suspect(token, all[0]);
        let (alone, _) = lease(&mut s, now + 10, 3, 10);
        s.extend_batch(alone.token, 10, Told::Begun);
        s.start(now + 20);
        assert_eq!(attempt(&s), 5);
    }

    #[test]
    fn a_lease_returns_fewer_messages_than_requested_if_they_have_many_keys() {
        let mut s = queue(Retry::default());
        let names: Vec<String> = (0..9).map(|n| n.to_string()).collect();
        let keys: Vec<KeyRef<'_>> = names.iter().map(|name| KeyRef::new(name.as_bytes())).collect();
        for part in [&keys[..4], &keys[4..6], &keys[6..]] {
            put(&mut s, START, &Put { keys: part, ..Put::default() });
        }
        let mut grants = Vec::new();
        let most = Most { keys: 6, ..Most::messages(9) };
        s.lease_batch(Kind::Any, most, 50, 1, &mut grants);
        assert_eq!(grants.len(), 2);
        s.lease_batch(Kind::Any, Most { keys: 2, ..most }, 50, 1, &mut grants);
        assert_eq!(grants.len(), 3, "the first is leased however many keys it has");
    }

    #[test]
    fn the_message_that_reaches_the_bytes_of_a_lease_is_its_last() {
        let mut s = queue(Retry::default());
        for weight in [4, 5, 1, 0, 9, 10, 30, 2] {
            s.start(START);
            s.enter(&Put { size: weight, ..Put::default() }, Some(weight));
        }
        let mut leased = || {
            let mut grants = Vec::new();
            let most = Most { bytes: 10, ..Most::messages(9) };
            s.lease_batch(Kind::Any, most, 50, 1, &mut grants);
            grants.len()
        };
        assert_eq!([leased(), leased(), leased(), leased(), leased()], [3, 3, 1, 1, 0]);
    }

    #[test]
    fn a_message_s_own_policy_overrides_parts_of_the_queue_s() {
        let plain = Retry { jitter: false, first: 10, longest: 35, ..Retry::default() };
        let mut s = queue(plain.clone());
        let own = RetryPart { first: Some(7), factor: Some(1.5), ..RetryPart::default() };
        let bounded = RetryPart { attempts: Some(Some(1)), then: Some(Then::Hold), ..own.clone() };
        for retry in [None, Some(&own), Some(&bounded)] {
            put(&mut s, START, &Put { retry, ..Put::default() });
        }
        let (leased, ids) = lease(&mut s, START, 3, 50);
        let mut fail = |n: usize| {
            let mut budget = Budget::ONE_CALL;
            s.nack_within(s.held(leased.token, ids[n]).unwrap(), None, "broken", &mut budget)
        };
        assert_eq!(fail(0), Ok(Failed::Again { attempt: 2, after: 10 }));
        assert_eq!(fail(1), Ok(Failed::Again { attempt: 2, after: 7 }));
        assert_eq!(fail(2), Ok(Failed::Held));
        s.redeclare(Options { retry: Retry { longest: 9, ..plain }, ..Options::default() });
        let (leased, ids) = lease(&mut s, START + 10, 3, 50);
        let mut budget = Budget::ONE_CALL;
        let handle = s.held(leased.token, ids[1]).unwrap();
        let failed = s.nack_within(handle, None, "broken", &mut budget);
        assert_eq!(
            failed,
            Ok(Failed::Again { attempt: 3, after: 9 }),
            "7 times 1.5, but at most 9"
        );
        assert!(s.start(START + 19).0);
    }
    #[test]
    fn a_lease_may_expire_after_slots_of_others_were_freed() {
        let mut s = queue(Retry::default());
        for _ in 0..2_000 {
            put(&mut s, START, &Put::default());
        }
        let (leased, ids) = lease(&mut s, START, 2_000, 50);
        let mut budget = Budget::ONE_CALL;
        for &id in &ids[1..] {
            assert!(s.ack_held(leased.token, id, &mut budget).is_some());
        }
        s.start(START + 50);
        assert_eq!((s.counts().leases_expired, s.counts().leased), (1, 0));
    }

    #[test]
    fn one_call_moves_at_most_a_thousand_paused_messages() {
        let mut s = queue(Retry::default());
        let key = [KeyRef::new(b"a")];
        for _ in 0..1_500 {
            put(&mut s, START, &Put { shared: &key, ..Put::default() });
        }
        s.pause(START, Some(key[0]));
        for left in [500, 0] {
            let most = Most::messages(1);
            assert!(s.lease_batch(Kind::Any, most, 50, 1, &mut Vec::new()).is_none());
            assert_eq!(s.ready(Kind::Any), left);
        }
    }
}
