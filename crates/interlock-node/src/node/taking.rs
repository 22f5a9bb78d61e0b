//! A node takes the writes of its clients, or refuses them.

use std::time::Instant;

use interlock_log::entry::{Arguments, Command};
use interlock_log::machine::Machine;
use interlock_stores::disk::Disk;

use super::Node;
use crate::log::Largest;
use crate::ports::{largest, room, Clients, Refused, Write};

/// Removes a write and the rest of its group from `rest`. None of them has its own deadline.
fn group(first: Write, rest: &mut impl Iterator<Item = Write>) -> Vec<Write> {
    let mut group = vec![first];
    while group.last().is_some_and(|last| last.goes_on) {
        match rest.next() {
            Some(next) => group.push(next),
            None => break,
        }
    }
    group
}

impl<M: Machine, D: Disk, C: Clients> Node<M, D, C> {
    pub(super) fn gather(&mut self, now: Instant) {
        if !self.takes() {
            return;
        }
        // Writes already taken must be sent before more are taken.
        self.takes_none = None;
        let writes = self.clients.take(self.pace.writes);
        if writes.is_empty() {
            return;
        }
        let since = now.saturating_duration_since(self.read_at).as_millis() as u64;
        let deadline = self.replica.deadline(since, self.pace.timeout.as_millis() as u64);
        let furthest = self.replica.deadline(since, u64::MAX);
        let largest = self.largest();
        let most = room(&largest);
        let (mut bytes, mut entry) = (0, Vec::with_capacity(writes.len()));
        let mut writes = writes.into_iter();
        while let Some(write) = writes.next() {
            if write.goes_on {
                let group = group(write, &mut writes);
                let size: usize = group.iter().map(Write::bytes).sum();
                let why = group.iter().find_map(|one| one.refusal(deadline, furthest, &largest));
                let too_long = || Refused::too_long(size, &largest);
                if let Some(why) = why.or_else(|| (size > most).then(too_long)) {
                    self.clients.refuse(group, why);
                    continue;
                }
                if bytes + size > most {
                    self.append(std::mem::take(&mut entry), now);
                    bytes = 0;
                }
                bytes += size;
                entry.extend(group.into_iter().map(|one| (one, deadline)));
                continue;
            }
            let deadline = write.deadline.unwrap_or(deadline);
            if let Some(why) = write.refusal(deadline, furthest, &largest) {
                self.clients.refuse(vec![write], why);
                continue;
            }
            if bytes + write.bytes() > most {
                self.append(std::mem::take(&mut entry), now);
                bytes = 0;
            }
            bytes += write.bytes();
            entry.push((write, deadline));
        }
        if !entry.is_empty() {
            self.append(entry, now);
        }
    }

    /// Appends writes as one entry, each with its deadline.
    fn append(&mut self, writes: Vec<(Write, u64)>, now: Instant) {
        // True if some of the writes must be acknowledged.
        let mut asks = false;
        for (write, deadline) in writes {
            let Write { ticket, client, acks, arguments, .. } = write;
            let (whole, place) = arguments.into_shared();
            let arguments = Arguments::shared(whole, place);
            asks |= self.acks.expect(ticket, acks);
            let client = client.map(|(name, number)| (name.into(), number));
            self.replica.submit(ticket, Command { client, deadline, arguments });
        }
        if asks {
            self.ask_others(now);
        }
        self.waiting.push_back(self.replica.append());
    }

    /// The largest entry that the log takes now.
    pub(super) fn largest(&self) -> Largest {
        let own = largest();
        self.log.largest().filter(|found| found.bytes < own.bytes).unwrap_or(own)
    }

    /// Refuses writes that have waited for as long as a write may take, whatever is under way: a
    /// frozen engine never answers.
    pub(super) fn refuse(&mut self, now: Instant) {
        if !self.drains {
            if self.takes() {
                self.takes_none = None;
                return;
            }
            let since = *self.takes_none.get_or_insert(now);
            if now < since + self.pace.timeout {
                return;
            }
        }
        let writes = self.clients.take(self.pace.writes);
        if !writes.is_empty() {
            let why = match (self.drains, self.behind_since) {
                (true, _) => Refused::Drains,
                (false, Some(_)) => Refused::Behind,
                (false, None) => Refused::CannotNow,
            };
            self.clients.refuse(writes, why);
        }
    }
}
