//! A client whose write must be on other machines too is answered once they have acknowledged it,
//! or after a timeout.

use std::collections::vec_deque::Drain;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use interlock_log::apply::Answer;
use interlock_log::machine::Machine;
use interlock_stores::disk::Disk;

use super::Node;
use crate::log;
use crate::ports::{Clients, Unacknowledged};

/// Writes done on this node, and acknowledgements under way.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// Number of machines that each write waits for by default.
    wanted: usize,
    /// Number of machines for the writes that differ, by ticket.
    others: HashMap<u64, usize>,
    /// Writes applied, but not yet in the ring file.
    fresh: Vec<(usize, Held)>,
    /// Answers by the number of machines they wait for, oldest first.
    held: BTreeMap<usize, VecDeque<Held>>,
    /// Time of the last appended entry that asks for acknowledgements.
    asked: Option<Instant>,
    /// The digest of the acknowledgement that it has appended and not yet read, and the time.
    said: Option<(u64, Instant)>,
    /// Number of writes answered without enough acknowledgements.
    pub lacked: u64,
}

/// An answer that waits for acknowledgements.
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

    /// The number of writes that wait for acknowledgements.
    pub fn count(&self) -> usize {
        self.fresh.len() + self.held.values().map(VecDeque::len).sum::<usize>()
    }

    /// Notes how many machines a write waits for; returns whether it waits for any.
    pub fn expect(&mut self, ticket: u64, acks: Option<usize>) -> bool {
        if let Some(acks) = acks.filter(|acks| *acks != self.wanted) {
            self.others.insert(ticket, acks);
        }
        acks.unwrap_or(self.wanted) > 0
    }

    pub fn is_in_use(&self) -> bool {
        self.wanted > 0 || !self.others.is_empty()
    }

    /// Keeps the answers that must wait, which came with the entry at `position`, and returns the
    /// others.
    pub fn hold(
        &mut self,
        answers: Vec<(u64, Answer)>,
        position: u64,
        until: Instant,
    ) -> impl Iterator<Item = (u64, Answer)> + '_ {
        answers.into_iter().filter_map(move |(ticket, answer)| {
            let machines = self.others.remove(&ticket).unwrap_or(self.wanted);
            // A write that changed nothing need not be on other machines.
            let waits = machines > 0 && matches!(answer, Answer::Done { refused: false, .. });
            if !waits {
                return Some((ticket, answer));
            }
            self.fresh.push((machines, Held { ticket, answer, position, until }));
            None
        })
    }

    /// Notes that an entry was read.
    pub fn read(&mut self, digest: u64) {
        self.said.take_if(|(said, _)| *said == digest);
    }

    /// Notes that all applied entries are in the ring file.
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
    /// Removes and returns the answers to the entries just read.
    pub(super) fn take_answers(&mut self, now: Instant) {
        let answers = self.replica.answers();
        if answers.is_empty() || !self.acks.is_in_use() {
            self.answers.extend(answers);
            return;
        }
        let (position, until) = (self.replica.place().mark.position, now + self.pace.timeout);
        self.answers.extend(self.acks.hold(answers, position, until));
    }

    /// Answers the writes that enough machines have, and asks for missing acknowledgements.
    pub(super) fn acknowledge(&mut self, now: Instant) {
        self.say(now);
        if self.acks.held.is_empty() {
            return;
        }
        let is_shown = self.behind_since.is_none();
        let (replica, mut done, mut lacking) = (&self.replica, Vec::new(), Vec::new());
        for (machines, held) in &mut self.acks.held {
            let acknowledged = replica.acknowledged(*machines);
            let is_done = |one: &Held| is_shown && one.position <= acknowledged;
            done.extend(first(held, is_done).map(|one| (one.ticket, one.answer)));
            if !is_shown {
                let over = first(held, |one| one.until <= now);
                done.extend(over.map(|one| (one.ticket, Answer::Unknown)));
            }
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

    /// Asks for acknowledgements if no entry in the log does: an answer was given again, or others
    /// may have missed the request.
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

    /// Makes the next entry ask for acknowledgements.
    pub(super) fn ask_others(&mut self, now: Instant) {
        self.acks.asked = Some(now);
        self.replica.ask();
    }

    /// Acknowledges to other nodes the entries in this node's files.
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

    /// Answers clients that have waited too long for the ring file.
    pub(super) fn lack_unwritten(&mut self, now: Instant) {
        let fresh = std::mem::take(&mut self.acks.fresh);
        let (over, waiting) = fresh.into_iter().partition(|(_, held)| held.until <= now);
        self.acks.fresh = waiting;
        for (wanted, held) in over as Vec<(usize, Held)> {
            let have = self.replica.acknowledging(held.position);
            self.lack(held.ticket, Unacknowledged::InTime { wanted, have });
        }
    }

    /// Answers all waiting clients: nobody will acknowledge their writes.
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

    /// Answers clients whose writes are done, because the node ends.
    pub fn end(&mut self) {
        self.lack_all(Unacknowledged::Ends);
    }
}

/// Drains the leading answers that match.
fn first(held: &mut VecDeque<Held>, is_so: impl Fn(&Held) -> bool) -> Drain<'_, Held> {
    let count = held.partition_point(is_so);
    held.drain(..count)
}

/// Time after which a request or acknowledgement that may be lost is repeated.
const ASKED: Duration = Duration::from_secs(1);
