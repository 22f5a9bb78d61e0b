//! Records of nodes and clients in the state, so that each write counts once (rule 2).
//!
//! A *name* is one start of a node; the state keeps the number of its last entry. For a client it
//! keeps the highest number that was done, two bits for each of the 1,024 numbers below (done, and
//! changed something), ranges of lower numbers that were not done, and the stamps and replies of
//! recent numbers. A record is dropped after enough busy time since its last use. Everything is part
//! of the state: every node decides the same.

mod client;

use std::collections::{BTreeMap, BTreeSet};

pub use self::client::{Client, Recent, Standing, MOST_REPLY, RECENT, WINDOW};
use crate::codec::{put_bytes, put_number, Damaged, Reader};
use crate::entry::MOST_NAME;

/// Largest number of ranges of lower numbers that were not done. A client that continues while some
/// of its writes are lost leaves one range; a client that skips numbers leaves many, of which the
/// lowest are forgotten.
pub const MOST_MISSING: usize = 64;
/// Largest number of writes without a client that a name's record keeps as counted but not done.
pub const MOST_DENIED: usize = 1024;

/// Record of a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named {
    /// Number of its last entry.
    pub last: u64,
    /// Busy time of its last entry.
    pub used: u64,
    /// Latest deadline of its writes.
    latest: u64,
    /// Writes without a client that were counted but not done: the number of the entry and the
    /// index in it. Another history may have done them.
    denied: Vec<(u64, u64)>,
    /// Ranges of numbers below the last that were not counted: no node had them when later ones
    /// were put back.
    missing: Vec<(u64, u64)>,
}

impl Named {
    fn count(&mut self, number: u64) {
        if number <= self.last {
            take_out(&mut self.missing, number);
            return;
        }
        if number > self.last + 1 {
            self.missing.push((self.last + 1, number - 1));
            drop_lowest(&mut self.missing);
        }
        self.last = number;
    }

    /// Returns the ranges of numbers up to `up_to` that were not counted.
    fn uncounted(&self, up_to: u64) -> Vec<(u64, u64)> {
        let beyond = (self.last < up_to).then_some((self.last + 1, up_to));
        self.missing.iter().copied().chain(beyond).collect()
    }

    fn deny(&mut self, number: u64, index: u64) {
        if let Err(at) = self.denied.binary_search(&(number, index)) {
            self.denied.insert(at, (number, index));
        }
        if self.denied.len() > MOST_DENIED {
            self.denied.remove(0);
        }
    }

    fn join(&mut self, other: Self) {
        let knows = |named: &Self, one: &(u64, u64)| {
            named.last < one.0 || named.denied.binary_search(one).is_ok()
        };
        let theirs = other.denied.iter().filter(|one| knows(self, one)).copied();
        let theirs: Vec<_> = theirs.collect();
        self.denied.retain(|one| knows(&other, one));
        let last = self.last.max(other.last);
        self.missing = in_both(&self.uncounted(last), &other.uncounted(last));
        for (number, index) in theirs {
            self.deny(number, index);
        }
        self.last = self.last.max(other.last);
        self.used = self.used.max(other.used);
        self.latest = self.latest.max(other.latest);
    }
}

/// Returns the index of the range that contains a number.
fn range_at(ranges: &[(u64, u64)], number: u64) -> Option<usize> {
    let at = ranges.partition_point(|range| range.1 < number);
    ranges.get(at).is_some_and(|range| range.0 <= number).then_some(at)
}

fn take_out(ranges: &mut Vec<(u64, u64)>, number: u64) {
    let Some(at) = range_at(ranges, number) else { return };
    let (from, to) = ranges.remove(at);
    for (from, to) in [(number + 1, to), (from, number - 1)] {
        if from <= to {
            ranges.insert(at, (from, to));
        }
    }
    drop_lowest(ranges);
}

fn drop_lowest(ranges: &mut Vec<(u64, u64)>) {
    if ranges.len() > MOST_MISSING {
        ranges.remove(0);
    }
}

/// Returns the ranges of numbers that are in both lists.
fn in_both(ours: &[(u64, u64)], theirs: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let both = ours.iter().flat_map(|a| theirs.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))));
    let mut both: Vec<_> = both.filter(|(from, to)| from <= to).collect();
    both.drain(..both.len().saturating_sub(MOST_MISSING));
    both
}

/// Records of nodes and clients.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sessions {
    pub names: BTreeMap<Vec<u8>, Named>,
    pub clients: BTreeMap<Vec<u8>, Client>,
    /// Latest deadline of all writes whose records were dropped. For a write with a deadline up to
    /// this, it is unknown whether it was done.
    pub forgotten: u64,
}

impl Sessions {
    /// Returns the number of a name's last entry; 0 if it has no record.
    pub fn last(&self, name: &[u8]) -> u64 {
        self.names.get(name).map_or(0, |named| named.last)
    }

    /// Counts the next entry of a name, with the latest deadline of its writes.
    pub fn count(&mut self, name: &[u8], number: u64, busy: u64, deadline: u64) {
        let named = match self.names.get_mut(name) {
            Some(named) => named,
            None => self.names.entry(name.to_vec()).or_default(),
        };
        named.count(number);
        named.used = busy;
        named.latest = named.latest.max(deadline);
    }

    /// Returns whether a number of a name was not counted although a later one was.
    pub fn is_missing(&self, name: &[u8], number: u64) -> bool {
        let named = self.names.get(name);
        named.is_some_and(|named| range_at(&named.missing, number).is_some())
    }

    /// Returns the ranges of a name's numbers up to `up_to` that were not counted.
    pub fn uncounted(&self, name: &[u8], up_to: u64) -> Vec<(u64, u64)> {
        self.names.get(name).unwrap_or(&Named::default()).uncounted(up_to)
    }

    /// Notes that a write without a client was counted and not done.
    pub fn deny(&mut self, name: &[u8], number: u64, index: u64) {
        if let Some(named) = self.names.get_mut(name) {
            named.deny(number, index);
        }
    }

    /// Returns whether a write without a client was counted but not done.
    pub fn was_denied(&self, name: &[u8], number: u64, index: u64) -> bool {
        let named = self.names.get(name);
        named.is_some_and(|named| named.denied.binary_search(&(number, index)).is_ok())
    }

    /// Notes that such a write was done after all.
    pub fn undeny(&mut self, name: &[u8], number: u64, index: u64) {
        if let Some(named) = self.names.get_mut(name) {
            named.denied.retain(|one| *one != (number, index));
        }
    }

    pub fn standing(&self, client: &[u8], number: u64) -> Standing {
        self.clients.get(client).map_or(Standing::New, |record| record.standing(number))
    }

    /// Returns whether a client's write was done and not refused.
    pub fn has_done(&self, client: &[u8], number: u64) -> bool {
        self.clients.get(client).is_some_and(|record| record.has_done(number))
    }

    /// Notes that a client's write was done.
    pub fn mark(&mut self, client: &[u8], busy: u64, recent: Recent, deadline: u64) {
        let new = || Client::new(busy);
        self.clients.entry(client.to_vec()).or_insert_with(new).mark(recent, busy, deadline);
    }

    /// Drops records that were not used since a busy time.
    pub fn drop_unused(&mut self, since: u64) {
        let forgotten = &mut self.forgotten;
        let mut stays = |used: u64, latest: u64| {
            if used < since {
                *forgotten = latest.max(*forgotten);
            }
            used >= since
        };
        self.names.retain(|_, named| stays(named.used, named.latest));
        self.clients.retain(|_, client| stays(client.used, client.latest));
    }

    /// Joins the records of another history.
    pub fn join(&mut self, other: Self) {
        for (name, theirs) in other.names {
            self.names.entry(name).or_default().join(theirs);
        }
        self.forgotten = self.forgotten.max(other.forgotten);
        for (name, theirs) in other.clients {
            match self.clients.get_mut(&name) {
                Some(ours) => ours.join(theirs),
                None => {
                    self.clients.insert(name, theirs);
                }
            }
        }
    }

    /// Returns the writes that others have done and these have not, although their entries may be
    /// counted: those of clients by number, those of names by number and index in the entry.
    pub fn undone(&self, others: &Self) -> BTreeSet<(Vec<u8>, u64, Option<u64>)> {
        let mut undone = BTreeSet::new();
        for (name, theirs) in &others.clients {
            if theirs.latest <= self.forgotten {
                continue;
            }
            for number in theirs.differing(self.clients.get(name)) {
                if others.has_done(name, number) && !self.has_done(name, number) {
                    undone.insert((name.clone(), number, None));
                }
            }
        }
        for (name, ours) in &self.names {
            for (number, index) in &ours.denied {
                if others.last(name) >= *number
                    && !others.is_missing(name, *number)
                    && !others.was_denied(name, *number, *index)
                {
                    undone.insert((name.clone(), *number, Some(*index)));
                }
            }
        }
        undone
    }

    /// Returns whether others have everything that was done according to these records.
    pub fn is_within(&self, others: &Self) -> bool {
        let is_done = |(name, client): (&Vec<u8>, &Client)| {
            let mut numbers = client.differing(others.clients.get(name)).into_iter();
            numbers.all(|number| !self.has_done(name, number) || others.has_done(name, number))
        };
        let is_counted = |(name, named): (&Vec<u8>, &Named)| {
            let theirs = others.names.get(name);
            theirs.is_some_and(|theirs| {
                let mut denied = theirs.denied.iter().filter(|(number, _)| *number <= named.last);
                let miss = in_both(&theirs.missing, &[(1, named.last)]);
                named.last <= theirs.last
                    && miss == in_both(&miss, &named.missing)
                    && denied.all(|(number, index)| self.was_denied(name, *number, *index))
            })
        };
        self.forgotten <= others.forgotten
            && self.names.iter().all(is_counted)
            && self.clients.iter().all(is_done)
    }

    /// Converts the times at which records were used from the busy time of another history.
    pub fn rebase(&mut self, theirs: u64, ours: u64) {
        let names = self.names.values_mut().map(|named| &mut named.used);
        let clients = self.clients.values_mut().map(|client| &mut client.used);
        for used in names.chain(clients) {
            *used = ours.saturating_sub(theirs.saturating_sub(*used));
        }
    }

    /// Returns a stamp just below those of a client's later writes, if they are recent.
    pub fn stamp_below_later(&self, client: &[u8], number: u64) -> Option<u64> {
        self.clients.get(client)?.stamp_below_later(number)
    }

    /// Notes that the value of a client's write has a new stamp.
    pub fn lift(&mut self, client: &[u8], number: u64, stamp: u64) {
        if let Some(client) = self.clients.get_mut(client) {
            client.lift(number, stamp);
        }
    }

    /// Returns stamp, client and number of each recent write, sorted by stamp. Two histories may
    /// have given one stamp to different writes.
    pub fn authors(&self) -> Vec<(u64, &[u8], u64)> {
        let mut authors = Vec::new();
        for (name, client) in &self.clients {
            authors
                .extend(client.authors().map(|(stamp, number)| (stamp, name.as_slice(), number)));
        }
        authors.sort_unstable();
        authors
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.forgotten);
        put_number(out, self.names.len() as u64);
        for (name, named) in &self.names {
            put_bytes(out, name);
            for number in [named.last, named.used, named.latest, named.denied.len() as u64] {
                put_number(out, number);
            }
            for (number, index) in &named.denied {
                put_number(out, *number);
                put_number(out, *index);
            }
            put_ranges(out, &named.missing);
        }
        put_number(out, self.clients.len() as u64);
        for (name, client) in &self.clients {
            put_bytes(out, name);
            client.encode(out);
        }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut sessions = Self { forgotten: reader.number()?, ..Self::default() };
        for _ in 0..reader.count(6)? {
            let name = reader.bytes(MOST_NAME)?.to_vec();
            let (last, used, latest) = (reader.number()?, reader.number()?, reader.number()?);
            let count = reader.count(2)?;
            let denied = (0..count).map(|_| Ok((reader.number()?, reader.number()?)));
            let denied = denied.collect::<Result<Vec<_>, _>>()?;
            if count > MOST_DENIED || denied.windows(2).any(|two| two[0] >= two[1]) {
                return Err(Damaged);
            }
            let missing = ranges(reader, last)?;
            sessions.names.insert(name, Named { last, used, latest, denied, missing });
        }
        for _ in 0..reader.count(38)? {
            let name = reader.bytes(MOST_NAME)?.to_vec();
            sessions.clients.insert(name, Client::decode(reader)?);
        }
        Ok(sessions)
    }
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[(u64, u64)]) {
    put_number(out, ranges.len() as u64);
    for (from, to) in ranges {
        put_number(out, *from);
        put_number(out, *to);
    }
}

/// Reads ranges of numbers below a number.
fn ranges(reader: &mut Reader<'_>, below: u64) -> Result<Vec<(u64, u64)>, Damaged> {
    let count = reader.count(2)?;
    let ranges = (0..count).map(|_| Ok((reader.number()?, reader.number()?)));
    let ranges = ranges.collect::<Result<Vec<_>, _>>()?;
    let is_sorted = ranges.windows(2).all(|two| two[0].1 < two[1].0);
    let is_right = |range: &(u64, u64)| 0 < range.0 && range.0 <= range.1 && range.1 < below;
    if count > MOST_MISSING || !is_sorted || !ranges.iter().all(is_right) {
        return Err(Damaged);
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests;
