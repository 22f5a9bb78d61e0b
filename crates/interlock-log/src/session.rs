//! The state remembers nodes and clients, so that each write counts once (rule 2).
//!
//! A *name* is one start of a node; the state keeps the number of its last entry. A client has the
//! highest number that was done, a bit for each of the 1,024 numbers below, and the stamps and replies
//! of recent numbers. Both are dropped when the log has been busy for long enough since their last use.
//! All of it is part of the state: every node decides the same.

use std::collections::{BTreeMap, HashMap};

use crate::codec::{put_bytes, put_number, Damaged, Reader};
use crate::entry::{MOST_BYTES, MOST_NAME};

/// The numbers below a client's highest of which the state knows whether they were done.
pub const WINDOW: u64 = 1024;
/// The numbers of a client whose stamps and replies the state keeps.
pub const RECENT: usize = 64;
/// The longest reply that is kept for a client that asks again, in bytes.
pub const MOST_REPLY: usize = 4096;

/// The last number of a name, and the busy time of its last entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub last: u64,
    pub used: u64,
}

/// A write that was done lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent {
    pub number: u64,
    pub stamp: u64,
    pub refused: bool,
    /// None if it was too long to keep.
    pub reply: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    highest: u64,
    /// Bit `i` stands for the number `highest - 1 - i`.
    window: [u64; 16],
    recent: Vec<Recent>,
    used: u64,
}

/// The standing of a number, by its client's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Higher than all that were done.
    New,
    /// Done, or so far below the highest that nobody knows.
    Done,
    /// Not done, and a higher one was.
    Late,
}

impl Client {
    fn new(used: u64) -> Self {
        Self { highest: 0, window: [0; 16], recent: Vec::new(), used }
    }

    pub fn standing(&self, number: u64) -> Standing {
        if number > self.highest {
            return Standing::New;
        }
        let below = self.highest - number;
        if below == 0 || below > WINDOW || self.bit(below - 1) {
            Standing::Done
        } else {
            Standing::Late
        }
    }

    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// The record of a number that was done, if it is recent.
    pub fn recent(&self, number: u64) -> Option<&Recent> {
        self.recent.iter().rev().find(|recent| recent.number == number)
    }

    /// The number whose write had a stamp, as far as it is recent; a refused one set nothing.
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
        }
    }

    fn raise(&mut self, number: u64) {
        if number <= self.highest {
            return;
        }
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

    fn mark(&mut self, recent: Recent, used: u64) {
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
        self.used = self.used.max(other.used);
        for recent in other.recent {
            let same = |r: &Recent| r.number == recent.number && r.stamp == recent.stamp;
            if !self.recent.iter().any(same) {
                self.add(recent);
            }
        }
    }
}

/// The records of nodes and clients.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sessions {
    pub names: BTreeMap<Vec<u8>, Named>,
    pub clients: BTreeMap<Vec<u8>, Client>,
}

impl Sessions {
    /// The number of a name's last entry; 0 of one that has none, or none any more.
    pub fn last(&self, name: &[u8]) -> u64 {
        self.names.get(name).map_or(0, |named| named.last)
    }

    /// Counts the next entry of a name.
    pub fn count(&mut self, name: &[u8], number: u64, busy: u64) {
        self.names.insert(name.to_vec(), Named { last: number, used: busy });
    }

    pub fn standing(&self, client: &[u8], number: u64) -> Standing {
        self.clients.get(client).map_or(Standing::New, |record| record.standing(number))
    }

    /// True if a client's write was done and not refused.
    pub fn has_done(&self, client: &[u8], number: u64) -> bool {
        self.clients.get(client).is_some_and(|record| {
            record.standing(number) == Standing::Done
                && !record.recent(number).is_some_and(|recent| recent.refused)
        })
    }

    /// Notes that a client's write was done.
    pub fn mark(&mut self, client: &[u8], busy: u64, recent: Recent) {
        let new = || Client::new(busy);
        self.clients.entry(client.to_vec()).or_insert_with(new).mark(recent, busy);
    }

    /// Drops what was not used since a busy time.
    pub fn drop_unused(&mut self, since: u64) {
        self.names.retain(|_, named| named.used >= since);
        self.clients.retain(|_, client| client.used >= since);
    }

    /// Takes in what another history knows.
    pub fn join(&mut self, other: Self) {
        for (name, theirs) in other.names {
            let ours = self.names.entry(name).or_insert(Named { last: 0, used: 0 });
            ours.last = ours.last.max(theirs.last);
            ours.used = ours.used.max(theirs.used);
        }
        for (name, theirs) in other.clients {
            match self.clients.get_mut(&name) {
                Some(ours) => ours.join(theirs),
                None => {
                    self.clients.insert(name, theirs);
                }
            }
        }
    }

    /// Says when records were used in the busy time of another history.
    pub fn rebase(&mut self, theirs: u64, ours: u64) {
        let names = self.names.values_mut().map(|named| &mut named.used);
        let clients = self.clients.values_mut().map(|client| &mut client.used);
        for used in names.chain(clients) {
            *used = ours.saturating_sub(theirs.saturating_sub(*used));
        }
    }

    /// Notes that the value of a client's write has another stamp from now on.
    pub fn lift(&mut self, client: &[u8], number: u64, stamp: u64) {
        let Some(client) = self.clients.get_mut(client) else { return };
        let (refused, reply) =
            client.recent(number).map_or((false, None), |r| (r.refused, r.reply.clone()));
        client.add(Recent { number, stamp, refused, reply });
    }

    /// The client and the number of each recent write, by its stamp.
    pub fn authors(&self) -> HashMap<u64, (&[u8], u64)> {
        let mut authors = HashMap::new();
        for (name, client) in &self.clients {
            for recent in client.recent.iter().filter(|recent| !recent.refused) {
                authors.insert(recent.stamp, (name.as_slice(), recent.number));
            }
        }
        authors
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.names.len() as u64);
        for (name, named) in &self.names {
            put_bytes(out, name);
            put_number(out, named.last);
            put_number(out, named.used);
        }
        put_number(out, self.clients.len() as u64);
        for (name, client) in &self.clients {
            put_bytes(out, name);
            put_number(out, client.highest);
            put_number(out, client.used);
            for word in client.window {
                put_number(out, word);
            }
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
        let mut sessions = Self::default();
        for _ in 0..reader.count(3)? {
            let name = reader.bytes(MOST_NAME)?.to_vec();
            let named = Named { last: reader.number()?, used: reader.number()? };
            sessions.names.insert(name, named);
        }
        for _ in 0..reader.count(20)? {
            let name = reader.bytes(MOST_NAME)?.to_vec();
            let mut client = Client::new(0);
            (client.highest, client.used) = (reader.number()?, reader.number()?);
            for word in &mut client.window {
                *word = reader.number()?;
            }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn recent(number: u64) -> Recent {
        Recent { number, stamp: number * 10, refused: false, reply: Some(vec![number as u8]) }
    }

    /// The window against a set of numbers, over jumps of every size, and joined with another.
    #[test]
    fn the_window_is_the_set_of_done_numbers() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let mut pair = [(Client::new(0), BTreeSet::new()), (Client::new(0), BTreeSet::new())];
            for (client, done) in &mut pair {
                let mut top = 1u64;
                for _ in 0..random.usize(1..200) {
                    top += [0, 1, 3, 64, 65, 700, 1024, 1500][random.usize(..8)];
                    let number = top.saturating_sub(random.u64(..40)).max(1);
                    if client.standing(number) != Standing::Done {
                        client.mark(recent(number), 0);
                        done.insert(number);
                    }
                }
            }
            let [(mut a, done_a), (b, done_b)] = pair;
            check(&a, &done_a);
            check(&b, &done_b);
            a.join(b);
            check(&a, &done_a.union(&done_b).copied().collect());
        }
    }

    fn check(client: &Client, done: &BTreeSet<u64>) {
        let top = done.last().copied().unwrap_or(0);
        assert_eq!(client.highest(), top);
        for number in top.saturating_sub(WINDOW).max(1)..=top {
            let expected = if done.contains(&number) { Standing::Done } else { Standing::Late };
            assert_eq!(client.standing(number), expected, "{number} below {top}");
        }
        assert_eq!(client.standing(top + 1), Standing::New);
        for number in done.iter().rev().take(RECENT / 2) {
            assert_eq!(client.recent(*number).map(|r| r.stamp), Some(number * 10));
        }
    }

    #[test]
    fn sessions_come_back_from_bytes() {
        let mut sessions = Sessions::default();
        sessions.count(b"n", 4, 9);
        for number in [1, 2, 70, 2000] {
            sessions.mark(b"c", number, recent(number));
        }
        let mut out = Vec::new();
        sessions.encode(&mut out);
        let mut reader = Reader::new(&out);
        assert_eq!(Sessions::decode(&mut reader), Ok(sessions.clone()));
        assert_eq!(reader.end(), Ok(()));
        for end in 0..out.len() {
            assert_eq!(Sessions::decode(&mut Reader::new(&out[..end])), Err(Damaged));
        }
        sessions.drop_unused(10);
        assert_eq!((sessions.last(b"n"), sessions.standing(b"c", 5)), (0, Standing::Done));
        sessions.drop_unused(2001);
        assert_eq!(sessions.standing(b"c", 5), Standing::New);
    }
}
