//! Records of nodes and clients in the state, so that each write counts once (rule 2).
//!
//! A *name* is one start of a node; the state keeps the number of its last entry. For a client it
//! keeps the highest number that was done, a bit for each of the 1,024 numbers below, ranges of
//! lower numbers that were not done, and the stamps and replies of recent numbers. A record is
//! dropped after enough busy time since its last use. Everything is part of the state: every node
//! decides the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::codec::{put_bytes, put_number, Damaged, Reader};
use crate::entry::{MOST_BYTES, MOST_NAME};

/// Size of the window below a client's highest number; each number in it has a bit.
pub const WINDOW: u64 = 1024;
/// Largest number of ranges of lower numbers that were not done. A client that continues while some
/// of its writes are lost leaves one range; a client that skips numbers leaves many, of which the
/// lowest are forgotten.
pub const MOST_MISSING: usize = 64;
/// Number of writes of a client whose stamps and replies are kept.
pub const RECENT: usize = 64;
/// Longest reply that is kept for a client that asks again, in bytes.
pub const MOST_REPLY: usize = 4096;
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

/// A recent write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent {
    pub number: u64,
    pub stamp: u64,
    /// It changed nothing and is not put back after a loss.
    pub refused: bool,
    /// `None` if it was too long to keep.
    pub reply: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    highest: u64,
    /// Bit `i` is for the number `highest - 1 - i`.
    window: [u64; 16],
    /// Ranges of numbers below the window that were not done, sorted.
    missing: Vec<(u64, u64)>,
    recent: Vec<Recent>,
    used: u64,
    /// Latest deadline of its writes.
    latest: u64,
}

/// Standing of a number according to its client's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Higher than all numbers that were done.
    New,
    /// Done, or too far below the highest to know.
    Done,
    /// Not done, but a higher one was.
    Late,
}

impl Client {
    fn new(used: u64) -> Self {
        Self {
            highest: 0,
            window: [0; 16],
            missing: Vec::new(),
            recent: Vec::new(),
            used,
            latest: 0,
        }
    }

    pub fn standing(&self, number: u64) -> Standing {
        if number > self.highest {
            return Standing::New;
        }
        let below = self.highest - number;
        let is_done = match below {
            0 => true,
            1..=WINDOW => self.bit(below - 1),
            _ => range_at(&self.missing, number).is_none(),
        };
        match is_done {
            true => Standing::Done,
            false => Standing::Late,
        }
    }

    fn miss(&mut self, from: u64, to: u64) {
        match self.missing.last_mut() {
            Some(last) if last.1 + 1 == from => last.1 = to,
            _ => self.missing.push((from, to)),
        }
        drop_lowest(&mut self.missing);
    }

    /// Records the numbers not done that leave the window when `number` becomes the highest.
    fn leave_window(&mut self, number: u64) {
        let lowest = |highest: u64| highest.saturating_sub(WINDOW).max(1);
        for at in lowest(self.highest)..lowest(number) {
            if at > self.highest {
                self.miss(at, lowest(number) - 1);
                break;
            }
            if at < self.highest && !self.bit(self.highest - 1 - at) {
                self.miss(at, at);
            }
        }
    }

    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// Returns the record of a number that was done, if it is recent.
    pub fn recent(&self, number: u64) -> Option<&Recent> {
        self.recent.iter().rev().find(|recent| recent.number == number)
    }

    /// Returns the recent number whose write had a stamp; refused writes set nothing.
    pub fn with_stamp(&self, stamp: u64) -> Option<u64> {
        let sets = |recent: &&Recent| recent.stamp == stamp && !recent.refused;
        self.recent.iter().rev().find(sets).map(|recent| recent.number)
    }

    fn bit(&self, index: u64) -> bool {
        self.window[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    fn set(&mut self, index: u64) {
        if index < WINDOW {
            self.window[(index / 64) as usize] |= 1 << (index % 64);
            return;
        }
        let number = self.highest - 1 - index;
        take_out(&mut self.missing, number);
    }

    fn raise(&mut self, number: u64) {
        if number <= self.highest {
            return;
        }
        self.leave_window(number);
        let (before, was, by) = (self.window, self.highest, number - self.highest);
        self.window = [0; 16];
        self.highest = number;
        let (words, bits) = ((by / 64) as usize, by % 64);
        for to in (words.min(16)..16).rev() {
            let from = to - words;
            self.window[to] = before[from] << bits;
            if bits > 0 && from > 0 {
                self.window[to] |= before[from - 1] >> (64 - bits);
            }
        }
        if was > 0 {
            self.set(by - 1);
        }
    }

    fn add(&mut self, recent: Recent) {
        let at =
            self.recent.partition_point(|r| (r.number, r.stamp) <= (recent.number, recent.stamp));
        self.recent.insert(at, recent);
        if self.recent.len() > RECENT {
            self.recent.remove(0);
        }
    }

    fn mark(&mut self, recent: Recent, used: u64, deadline: u64) {
        self.latest = self.latest.max(deadline);
        self.raise(recent.number);
        if recent.number < self.highest {
            self.set(self.highest - 1 - recent.number);
        }
        self.used = self.used.max(used);
        self.recent.retain(|r| r.number != recent.number || !r.refused);
        self.add(recent);
    }

    fn join(&mut self, mut other: Self) {
        let most = self.highest.max(other.highest);
        self.raise(most);
        other.raise(most);
        for (ours, theirs) in self.window.iter_mut().zip(other.window) {
            *ours |= theirs;
        }
        self.missing = in_both(&self.missing, &other.missing);
        self.used = self.used.max(other.used);
        self.latest = self.latest.max(other.latest);
        for recent in other.recent {
            let same = |r: &Recent| r.number == recent.number && r.stamp == recent.stamp;
            if !self.recent.iter().any(same) {
                self.add(recent);
            }
        }
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
        self.clients.get(client).is_some_and(|record| {
            record.standing(number) == Standing::Done
                && !record.recent(number).is_some_and(|recent| recent.refused)
        })
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
            let is_same =
                |ours: &Client| (ours.highest, ours.window) == (theirs.highest, theirs.window);
            let all = theirs.highest.saturating_sub(WINDOW).max(1)..=theirs.highest;
            let recent = theirs.recent.iter().map(|recent| recent.number);
            let numbers: Vec<_> = match self.clients.get(name) {
                Some(ours) if is_same(ours) => recent.collect(),
                _ => all.collect(),
            };
            for number in numbers {
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
            let from = client.highest.saturating_sub(WINDOW).max(1);
            let recent = client.recent.iter().map(|recent| recent.number);
            let mut numbers = recent.chain(from..=client.highest);
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
        let client = self.clients.get(client)?;
        let later = client.recent.iter().filter(|it| it.number > number && !it.refused);
        later.map(|it| it.stamp.saturating_sub((it.number - number).min(8))).min()
    }

    /// Notes that the value of a client's write has a new stamp.
    pub fn lift(&mut self, client: &[u8], number: u64, stamp: u64) {
        let Some(client) = self.clients.get_mut(client) else { return };
        let (refused, reply) =
            client.recent(number).map_or((false, None), |r| (r.refused, r.reply.clone()));
        client.add(Recent { number, stamp, refused, reply });
    }

    /// Returns stamp, client and number of each recent write, sorted by stamp. Two histories may
    /// have given one stamp to different writes.
    pub fn authors(&self) -> Vec<(u64, &[u8], u64)> {
        let mut authors = Vec::new();
        for (name, client) in &self.clients {
            let recent = client.recent.iter().filter(|recent| !recent.refused);
            authors.extend(recent.map(|recent| (recent.stamp, name.as_slice(), recent.number)));
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
            put_number(out, client.highest);
            put_number(out, client.used);
            put_number(out, client.latest);
            for word in client.window {
                put_number(out, word);
            }
            put_ranges(out, &client.missing);
            put_number(out, client.recent.len() as u64);
            for recent in &client.recent {
                put_number(out, recent.number);
                put_number(out, recent.stamp);
                out.push(u8::from(recent.refused) | u8::from(recent.reply.is_some()) << 1);
                if let Some(reply) = &recent.reply {
                    put_bytes(out, reply);
                }
            }
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
        for _ in 0..reader.count(22)? {
            let name = reader.bytes(MOST_NAME)?.to_vec();
            let mut client = Client::new(0);
            (client.highest, client.used) = (reader.number()?, reader.number()?);
            client.latest = reader.number()?;
            for word in &mut client.window {
                *word = reader.number()?;
            }
            client.missing = ranges(reader, client.highest.saturating_sub(WINDOW))?;
            let count = reader.count(3)?;
            if count > RECENT {
                return Err(Damaged);
            }
            for _ in 0..count {
                let (number, stamp) = (reader.number()?, reader.number()?);
                let flags = reader.byte()?;
                let reply =
                    if flags & 2 == 2 { Some(reader.bytes(MOST_BYTES)?.to_vec()) } else { None };
                client.recent.push(Recent { number, stamp, refused: flags & 1 == 1, reply });
            }
            sessions.clients.insert(name, client);
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
