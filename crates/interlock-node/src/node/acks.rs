//! A client whose write is to be on other machines too is answered once they have acknowledged it, or when that
//! takes too long.

use std::collections::vec_deque::Drain;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use interlock_log::apply::Answer;
use interlock_log::machine::Machine;
use interlock_stores::disk::Disk;

use super::Node;
use crate::log;
use crate::ports::{Clients, Unacknowledged};

/// Writes that are done here, and acknowledgements under way.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// Machines for which each write waits, unless it says otherwise.
    wanted: usize,
    /// Writes that say otherwise, by their tickets.
    others: HashMap<u64, usize>,
    /// Applied, and not yet in the ring file.
    fresh: Vec<(usize, Held)>,
    /// By the number of machines for which they wait, oldest first.
    held: BTreeMap<usize, VecDeque<Held>>,
    /// The moment at which it last appended an entry that asks.
    asked: Option<Instant>,
    /// The digest of the acknowledgement that it has appended and not read, and the moment.
    said: Option<(u64, Instant)>,
    /// Writes that were answered though too few machines had acknowledged them.
    pub lacked: u64,
}

/// An answer that waits.
#[derive(Debug)]
struct Held {
    ticket: u64,
    answer: Answer,
    position: u64,
    until: Instant,
}

impl Acks {
    pub fn new(wanted: usize) -> Acks {
        Acks { wanted, ..Acks::default() }
    }

    /// Writes that wait for acknowledgements.
    pub fn count(&self) -> usize {
        self.fresh.len() + self.held.values().map(VecDeque::len).sum::<usize>()
    }

    /// Notes for how many machines a write waits; returns whether it waits for any.
    pub fn expect(&mut self, ticket: u64, acks: Option<usize>) -> bool {
        if let Some(acks) = acks.filter(|acks| *acks != self.wanted) {
            self.others.insert(ticket, acks);
        }
        acks.unwrap_or(self.wanted) > 0
    }

    pub fn is_in_use(&self) -> bool {
        self.wanted > 0 || !self.others.is_empty()
    }

    /// Keeps those of the answers that wait, which came with the entry at a position, and returns the others.
    pub fn hold(
        &mut self,
        answers: Vec<(u64, Answer)>,
        position: u64,
        until: Instant,
    ) -> impl Iterator<Item = (u64, Answer)> + '_ {
        answers.into_iter().filter_map(move |(ticket, answer)| {
            let machines = self.others.remove(&ticket).unwrap_or(self.wanted);
            // What was not done need not be anywhere.
            let waits = machines > 0 && matches!(answer, Answer::Done { refused: false, .. });
            if !waits {
                return Some((ticket, answer));
            }
            self.fresh.push((machines, Held { ticket, answer, position, until }));
            None
        })
    }

    /// An entry was read.
    pub fn read(&mut self, digest: u64) {
        self.said.take_if(|(said, _)| *said == digest);
    }

    /// All that was applied is in the ring file.
    pub fn written(&mut self) {
        for (machines, held) in self.fresh.drain(..) {
            self.held.entry(machines).or_default().push_back(held);
        }
    }

    fn newest(&self) -> Option<u64> {
        self.held.values().filter_map(|them| them.back()).map(|held| held.position).max()
    }
}

impl<M: Machine, D: Disk, C: Clients> Node<M, D, C> {
    /// Takes the answers to what was just read.
    pub(super) fn take_answers(&mut self, now: Instant) {
        let answers = self.replica.answers();
        if answers.is_empty() || !self.acks.is_in_use() {
            self.answers.extend(answers);
            return;
        }
        let (position, until) = (self.replica.place().mark.position, now + self.pace.timeout);
        self.answers.extend(self.acks.hold(answers, position, until));
    }

    /// Answers those whose writes enough machines have, and asks for what is missing.
    pub(super) fn acknowledge(&mut self, now: Instant) {
        self.say(now);
        if self.acks.held.is_empty() {
            return;
        }
        let (replica, mut done, mut lacking) = (&self.replica, Vec::new(), Vec::new());
        for (machines, held) in &mut self.acks.held {
            let acknowledged = replica.acknowledged(*machines);
            let is_done = |one: &Held| one.position <= acknowledged;
            done.extend(first(held, is_done).map(|one| (one.ticket, one.answer)));
            lacking.extend(
                first(held, |one| one.until <= now)
                    .map(|one| (one.ticket, *machines, replica.acknowledging(one.position))),
            );
        }
        self.acks.held.retain(|_, held| !held.is_empty());
        if !done.is_empty() {
            self.clients.answer(done);
        }
        for (ticket, wanted, have) in lacking {
            self.lack(ticket, Unacknowledged::InTime { wanted, have });
        }
        self.ask_again(now);
    }

    /// Asks where the log has no entry that does: an answer was given again, or others may have missed it.
    fn ask_again(&mut self, now: Instant) {
        let Some(newest) = self.acks.newest() else { return };
        let is_asked = self.replica.asked_at() >= newest;
        let again = self.acks.asked.is_none_or(|asked| now >= asked + ASKED);
        let may = self.log.is_open() && self.waiting.is_empty() && self.is_settled();
        if may && (again || (!is_asked && self.log.under_way().0 == 0)) {
            self.ask_others(now);
            self.waiting.push_back(self.replica.append());
        }
    }

    /// Has the next entry ask.
    pub(super) fn ask_others(&mut self, now: Instant) {
        self.acks.asked = Some(now);
        self.replica.ask();
    }

    /// Acknowledges to others what is in this node's files.
    fn say(&mut self, now: Instant) {
        let is_said = self.acks.said.is_some_and(|(_, since)| now < since + ASKED);
        if !self.replica.is_asked() || is_said || self.is_other || self.disk_bad.is_some() {
            return;
        }
        if self.log.is_open() && self.waiting.is_empty() {
            let entry = self.replica.acknowledge();
            self.acks.said = Some((log::mark(&entry), now));
            self.waiting.push_back(entry);
        }
    }

    /// Those who have waited long enough for the ring file are told so.
    pub(super) fn lack_unwritten(&mut self, now: Instant) {
        let fresh = std::mem::take(&mut self.acks.fresh);
        let (over, waiting) = fresh.into_iter().partition(|(_, held)| held.until <= now);
        self.acks.fresh = waiting;
        for (wanted, held) in over as Vec<(usize, Held)> {
            let have = self.replica.acknowledging(held.position);
            self.lack(held.ticket, Unacknowledged::InTime { wanted, have });
        }
    }

    /// Those who wait are told so: nobody will acknowledge what they have done.
    pub(super) fn lack_all(&mut self, why: Unacknowledged) {
        self.acks.written();
        for held in std::mem::take(&mut self.acks.held).into_values().flatten() {
            self.lack(held.ticket, why);
        }
        self.acks.said = None;
    }

    fn lack(&mut self, ticket: u64, why: Unacknowledged) {
        self.acks.lacked += 1;
        self.clients.lack(ticket, why);
    }

    /// It ends: answers those whose writes are done.
    pub fn end(&mut self) {
        self.lack_all(Unacknowledged::Ends);
    }
}

/// Takes the first of them for which something is so.
fn first(held: &mut VecDeque<Held>, is_so: impl Fn(&Held) -> bool) -> Drain<'_, Held> {
    let count = held.partition_point(is_so);
    held.drain(..count)
}

/// After which what may be lost is asked, or said, again.
const ASKED: Duration = Duration::from_secs(1);
