//! The model's messages behind a failure (clause 31): what leaves its lanes because a key is shut or a message held,
//! and what comes back. Whether a key is shut is asked by looking at every message that has it.

use interlock_core::queue::types::{Behind, ParkedUnder, MOST_AHEAD};

use crate::model::{Hold, Message, Model, Phase};

/// A message that was parked this often waits in its place.
const TIMES: u32 = 8;
/// Stuck messages that an explanation names.
const SHOWN: usize = 10;

/// A message's part in this clause.
#[derive(Clone, Debug, Default)]
pub struct Parking {
    /// Its own value; `None`: as the queue says.
    pub own: Option<Behind>,
    /// It was held.
    pub stuck: bool,
    /// Held until those that go with it are gone.
    pub dying: bool,
    /// A lease of it ended without settling it: nothing parks it.
    pub returned: bool,
    /// Its sequence when it was parked for the first time; 0: it never was.
    first: u64,
    times: u32,
    since: u64,
    under: usize,
}

impl Parking {
    pub fn new(own: Option<Behind>) -> Self {
        Parking { own, ..Parking::default() }
    }
}

/// Work for later calls, and what this one may still move.
#[derive(Default)]
pub struct Moves {
    sweeps: Vec<usize>,
    /// The last shut key that was swept because the queue has another value.
    resweep: Option<Vec<u8>>,
    pub left: u32,
    pub keys: u32,
}

impl Model {
    fn behind_of(&self, message: &Message) -> Behind {
        message.parking.own.unwrap_or(self.options.behind)
    }

    fn minds_behind(&self) -> bool {
        let minds = |message: &Message| message.parking.own.is_some_and(|own| own != Behind::Wait);
        self.options.behind != Behind::Wait
            || !self.parked.is_empty()
            || self.unsettled().any(minds)
    }

    /// The messages of a key that have a place, in order.
    fn on_key(&self, key: usize) -> impl DoubleEndedIterator<Item = &Message> + Clone {
        self.placed.iter().filter(move |message| message.holds.iter().any(|hold| hold.key == key))
    }

    fn is_paused(&self, key: usize) -> bool {
        self.paused_keys.contains(&key)
    }

    fn is_stuck(&self, key: usize) -> bool {
        self.on_key(key).any(|message| message.parking.stuck)
    }

    fn key_is_shut(&self, key: usize) -> bool {
        self.is_paused(key) || self.is_stuck(key)
    }

    /// The first message of a key that is held.
    fn held_on(&self, key: usize) -> Option<u64> {
        self.on_key(key).find(|message| message.phase == Phase::Held).map(|message| message.id)
    }

    fn under(&self, key: usize) -> impl Iterator<Item = &Message> {
        self.parked.iter().filter(move |message| message.parking.under == key)
    }

    /// Returns whether a message waits on a key: at a place of its lane, or at its end.
    fn waits_on(&self, hold: Hold, before: usize) -> bool {
        let conflicts = |message: &Message| {
            let of_key = message.holds.iter().find(|other| other.key == hold.key);
            of_key.is_some_and(|other| other.exclusive || hold.exclusive)
        };
        self.placed[..before].iter().any(conflicts)
    }

    pub(crate) fn dying(&self) -> usize {
        self.placed.iter().filter(|message| message.parking.dying).count()
    }

    // Room: at most half of each bound may be parked.

    fn may_park(&self, count: usize, bytes: u64) -> bool {
        let (messages, most) = (self.options.max_messages, self.options.max_bytes);
        let bytes = bytes + self.parked.iter().map(|message| message.size).sum::<u64>();
        (messages == 0 || 2 * (self.parked.len() + count) <= messages)
            && (most == 0 || bytes.saturating_mul(2) <= most)
    }

    /// Returns whether messages that are about to be put could exceed that: their values, keys and sizes.
    pub(crate) fn is_too_much_to_park(&self, new: &[(Option<Behind>, Vec<Hold>, u64)]) -> bool {
        let could = |(own, holds, _): &&(Option<Behind>, Vec<Hold>, u64)| {
            let shut =
                |hold: &Hold| self.key_is_shut(hold.key) || self.under(hold.key).next().is_some();
            own.unwrap_or(self.options.behind) == Behind::Park && holds.iter().any(shut)
        };
        let could: Vec<_> = new.iter().filter(could).collect();
        let bytes = could.iter().map(|(_, _, size)| *size).fold(0, u64::saturating_add);
        !could.is_empty() && !self.may_park(could.len(), bytes)
    }

    /// Returns whether this dead letter cannot be requeued since too much of the queue is parked.
    pub(crate) fn parks_too_much_again(&self, dead: &Message) -> bool {
        let Message { parking, holds, size, .. } = dead;
        self.is_too_much_to_park(&[(parking.own, holds.clone(), *size)])
    }

    // A message takes its places, or none.

    /// A message that is new, due or on its way back.
    pub(crate) fn take_place(&mut self, mut message: Message) {
        let (behind, returns) = (self.behind_of(&message), message.phase == Phase::Parked);
        let first = if returns { message.parking.first } else { message.sequence };
        for hold in message.holds.clone() {
            let waits = self.waits_on(hold, self.placed.len());
            match behind {
                Behind::Park if !message.parking.returned => {
                    let before = self.under(hold.key).any(|other| other.parking.first < first);
                    if self.is_paused(hold.key) || waits && self.is_stuck(hold.key) || before {
                        return self.park(message, hold.key);
                    }
                }
                Behind::Bury if self.dead_letters_full() => {}
                Behind::Bury | Behind::Cancel if waits => {
                    if let Some(held) = self.held_on(hold.key) {
                        return self.go_with(message, held);
                    }
                }
                _ => {}
            }
        }
        if returns {
            message.phase = Phase::Queued;
            message.sequence = self.draw();
        }
        self.placed.push(message);
    }

    /// A message that has no place enters the list of a key.
    fn park(&mut self, mut message: Message, key: usize) {
        let parking = &mut message.parking;
        parking.under = key;
        if message.phase != Phase::Parked {
            parking.first = if parking.first == 0 { message.sequence } else { parking.first };
            parking.times += 1;
            parking.since = self.now;
            message.limit.forget();
            (message.phase, message.set_aside) = (Phase::Parked, None);
        }
        self.parked.push(message);
    }

    /// A message that has no place is buried or cancelled with one that is held.
    fn go_with(&mut self, mut message: Message, held: u64) {
        if self.behind_of(&message) == Behind::Cancel {
            self.counts.cancelled += 1;
            return;
        }
        message.error = format!("behind message {held}");
        self.counts.dead_lettered += 1;
        self.remember(&message);
        self.dead.push(Message { died_at: self.now, ..message });
    }

    // Failures.

    pub(crate) fn hold(&mut self, at: usize) {
        let message = &mut self.placed[at];
        message.phase = Phase::Held;
        (message.parking.stuck, message.parking.returned) = (true, true);
        self.sweep_keys_of(at);
    }

    pub(crate) fn sweep_keys_of(&mut self, at: usize) {
        let keys: Vec<usize> = self.placed[at].holds.iter().map(|hold| hold.key).collect();
        keys.into_iter().for_each(|key| self.sweep(key));
    }

    pub(crate) fn sweep(&mut self, key: usize) {
        if self.minds_behind() && !self.moves.sweeps.contains(&key) {
            self.moves.sweeps.push(key);
        }
    }

    /// Holds a message that would become a dead letter, if others go with it.
    pub(crate) fn begins_to_die(&mut self, at: usize) -> bool {
        if !self.minds_behind() {
            return false;
        }
        let before = std::mem::replace(&mut self.placed[at].phase, Phase::Held);
        let takes = |hold: &Hold| {
            let last =
                self.placed.iter().rposition(|one| one.holds.iter().any(|h| h.key == hold.key));
            let last = last.expect("its own lane");
            let own = self.behind_of(&self.placed[last]);
            last != at && own != Behind::Park && self.leaves(last, hold.key, 1)
        };
        if !self.placed[at].holds.iter().any(takes) {
            self.placed[at].phase = before;
            return false;
        }
        (self.placed[at].parking.dying, self.placed[at].parking.returned) = (true, true);
        self.sweep_keys_of(at);
        self.move_on();
        true
    }

    fn end_dying(&mut self) {
        let over = |message: &Message| {
            let swept = |hold: &Hold| self.moves.sweeps.contains(&hold.key);
            message.parking.dying && !message.holds.iter().any(swept)
        };
        let over: Vec<u64> =
            self.placed.iter().filter(|one| over(one)).map(|message| message.id).collect();
        for id in over {
            let at = self.find(id, |_| true).expect("it dies only now");
            self.bury_at(at);
        }
    }

    // Sweeps and returns.

    /// The queue has another value.
    pub(crate) fn declare_behind(&mut self, behind: Behind) {
        if behind != self.options.behind {
            self.options.behind = behind;
            self.moves.resweep = Some(Vec::new());
        }
    }

    /// Moves what is to be moved, as far as the call may.
    pub(crate) fn move_on(&mut self) {
        while self.moves.left > 0 && self.moves.keys > 0 {
            if let Some(&key) = self.moves.sweeps.first() {
                self.sweep_one(key);
            } else if let Some(last) = self.moves.resweep.take() {
                self.sweep_next(&last);
            } else {
                let opened = |at: &usize| !self.key_is_shut(self.parked[*at].parking.under);
                let first = (0..self.parked.len()).filter(opened);
                let Some(at) = first.min_by_key(|&at| self.parked[at].parking.first) else {
                    return;
                };
                let message = self.parked.remove(at);
                self.count_move(&message);
                self.take_place(message);
            }
        }
    }

    fn count_move(&mut self, message: &Message) {
        self.moves.left -= 1;
        self.moves.keys = self.moves.keys.saturating_sub(message.holds.len() as u32);
    }

    /// The last message of a lane goes, or ends the sweep.
    fn sweep_one(&mut self, key: usize) {
        let on_key = |message: &Message| message.holds.iter().any(|hold| hold.key == key);
        let last = self.placed.iter().rposition(on_key);
        let Some(at) = last.filter(|&at| self.leaves(at, key, 0)) else {
            self.moves.sweeps.remove(0);
            self.end_dying();
            return;
        };
        let held = self.held_on(key);
        let message = self.placed.remove(at);
        self.count_move(&message);
        match (self.behind_of(&message), held) {
            (Behind::Bury | Behind::Cancel, Some(held)) => self.go_with(message, held),
            _ => self.park(message, key),
        }
    }

    /// Each shut key is swept again, in the order of their bytes.
    fn sweep_next(&mut self, last: &[u8]) {
        let shut = |key: &usize| self.key_is_shut(*key) && self.names[*key][..] > *last;
        let next = (0..self.names.len()).filter(shut).min_by_key(|&key| &self.names[key]);
        if let Some(key) = next {
            self.moves.resweep = Some(self.names[key].clone());
            self.moves.left -= 1;
            self.sweep(key);
        }
    }

    /// Returns whether the last message of a lane leaves it, with room for that many dead letters more.
    fn leaves(&self, at: usize, key: usize, more: usize) -> bool {
        let message = &self.placed[at];
        let hold = *message.holds.iter().find(|hold| hold.key == key).expect("it is in its lane");
        let (waits, behind) = (self.waits_on(hold, at), self.behind_of(message));
        if message.phase != Phase::Queued {
            return false;
        }
        match behind {
            Behind::Wait => false,
            Behind::Park => {
                let shut = self.is_paused(key) || waits && self.is_stuck(key);
                let stays = message.parking.returned || message.parking.times >= TIMES;
                shut && !stays && self.may_park(1, message.size)
            }
            Behind::Cancel => waits && self.held_on(key).is_some(),
            Behind::Bury => {
                let dead = self.dead.len() + self.dying() + more;
                waits && self.held_on(key).is_some() && dead < self.options.max_dead
            }
        }
    }

    // Explanations.

    pub(crate) fn parked_under(&self, message: &Message) -> ParkedUnder {
        let Parking { first, times, since, under, .. } = message.parking;
        let stuck = self.on_key(under).filter(|one| one.parking.stuck);
        let mut behind: Vec<u64> = stuck.map(|one| one.id).collect();
        behind.sort_unstable();
        behind.truncate(SHOWN);
        let ahead = self.under(under).filter(|other| other.parking.first < first).count();
        ParkedUnder {
            key: self.names[under].clone(),
            age: self.now - since,
            times,
            ahead: ahead.min(MOST_AHEAD),
            paused: self.is_paused(under),
            behind,
        }
    }

    /// The message that is explained for a key on which none has a place.
    pub(crate) fn first_under(&self, key: usize) -> Option<&Message> {
        self.under(key).min_by_key(|message| message.parking.first)
    }
}
