//! Record of a client: which of its numbers were done, and which of these writes changed something.

use super::{drop_lowest, in_both, put_ranges, range_at, ranges, take_out};
use crate::codec::{put_bytes, put_number, Damaged, Reader};
use crate::entry::MOST_BYTES;

/// Size of the window below a client's highest number; each number in it has a bit.
pub const WINDOW: u64 = 1024;
/// Number of writes of a client whose stamps and replies are kept.
pub const RECENT: usize = 64;
/// Longest reply that is kept for a client that asks again, in bytes.
pub const MOST_REPLY: usize = 4096;

/// A bit for each of the highest numbers.
type Bits = [u64; (WINDOW / 64) as usize];

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
    /// The numbers that were done: bit `i` is for `highest - 1 - i`.
    window: Bits,
    /// The numbers whose writes changed something: bit `i` is for `highest - i`. No other write is
    /// put back after a loss.
    changed: Bits,
    /// Ranges of numbers below the window that were not done, sorted.
    pub(super) missing: Vec<(u64, u64)>,
    recent: Vec<Recent>,
    pub(super) used: u64,
    /// Latest deadline of its writes.
    pub(super) latest: u64,
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
    pub(super) fn new(used: u64) -> Self {
        Self {
            highest: 0,
            window: Bits::default(),
            changed: Bits::default(),
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
            1..=WINDOW => bit(&self.window, below - 1),
            _ => range_at(&self.missing, number).is_none(),
        };
        match is_done {
            true => Standing::Done,
            false => Standing::Late,
        }
    }

    /// Returns whether a number was done and its write changed something, as far as that is known.
    pub(super) fn has_done(&self, number: u64) -> bool {
        match self.highest.checked_sub(number) {
            Some(below) if below < WINDOW => bit(&self.changed, below),
            _ => {
                let is_void = self.recent(number).is_some_and(|recent| recent.refused);
                self.standing(number) == Standing::Done && !is_void
            }
        }
    }

    /// Returns the numbers that this record has and another one may lack: those of which it knows
    /// whether their writes changed something.
    pub(super) fn differing(&self, other: Option<&Self>) -> Vec<u64> {
        let is_same = |other: &Self| {
            (self.highest, self.window, self.changed)
                == (other.highest, other.window, other.changed)
        };
        let recent = self.recent.iter().map(|recent| recent.number);
        if other.is_some_and(is_same) {
            return recent.collect();
        }
        recent.chain(self.highest.saturating_sub(WINDOW - 1).max(1)..=self.highest).collect()
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
            if at < self.highest && !bit(&self.window, self.highest - 1 - at) {
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

    fn set(&mut self, index: u64) {
        if index < WINDOW {
            set_bit(&mut self.window, index);
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
        let (was, by) = (self.highest, number - self.highest);
        self.highest = number;
        (self.window, self.changed) = (moved(&self.window, by), moved(&self.changed, by));
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

    pub(super) fn mark(&mut self, recent: Recent, used: u64, deadline: u64) {
        self.latest = self.latest.max(deadline);
        self.raise(recent.number);
        if recent.number < self.highest {
            self.set(self.highest - 1 - recent.number);
        }
        let below = self.highest - recent.number;
        if below < WINDOW && !recent.refused {
            set_bit(&mut self.changed, below);
        }
        self.used = self.used.max(used);
        self.recent.retain(|r| r.number != recent.number || !r.refused);
        self.add(recent);
    }

    pub(super) fn join(&mut self, mut other: Self) {
        let most = self.highest.max(other.highest);
        self.raise(most);
        other.raise(most);
        let all = self.window.iter_mut().chain(&mut self.changed);
        all.zip(other.window.into_iter().chain(other.changed)).for_each(|(ours, it)| *ours |= it);
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

    /// Returns a stamp just below those of later writes, if they are recent.
    pub(super) fn stamp_below_later(&self, number: u64) -> Option<u64> {
        let later = self.recent.iter().filter(|it| it.number > number && !it.refused);
        later.map(|it| it.stamp.saturating_sub((it.number - number).min(8))).min()
    }

    /// Notes that the value of a write has a new stamp.
    pub(super) fn lift(&mut self, number: u64, stamp: u64) {
        let (refused, reply) =
            self.recent(number).map_or((false, None), |r| (r.refused, r.reply.clone()));
        self.add(Recent { number, stamp, refused, reply });
    }

    /// Returns stamp and number of each recent write that set something.
    pub(super) fn authors(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.recent.iter().filter(|it| !it.refused).map(|it| (it.stamp, it.number))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.highest, self.used, self.latest] {
            put_number(out, number);
        }
        self.window.iter().chain(&self.changed).for_each(|word| put_number(out, *word));
        put_ranges(out, &self.missing);
        put_number(out, self.recent.len() as u64);
        for recent in &self.recent {
            put_number(out, recent.number);
            put_number(out, recent.stamp);
            out.push(u8::from(recent.refused) | u8::from(recent.reply.is_some()) << 1);
            if let Some(reply) = &recent.reply {
                put_bytes(out, reply);
            }
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut client = Client::new(0);
        (client.highest, client.used) = (reader.number()?, reader.number()?);
        client.latest = reader.number()?;
        for word in client.window.iter_mut().chain(&mut client.changed) {
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
        Ok(client)
    }
}

fn bit(bits: &Bits, index: u64) -> bool {
    bits[(index / 64) as usize] >> (index % 64) & 1 == 1
}

fn set_bit(bits: &mut Bits, index: u64) {
    bits[(index / 64) as usize] |= 1 << (index % 64);
}

/// Returns the bits after the highest number has risen.
fn moved(bits: &Bits, by: u64) -> Bits {
    let mut moved = Bits::default();
    let (words, by) = ((by / 64) as usize, by % 64);
    for (to, word) in moved.iter_mut().enumerate().skip(words) {
        let from = to - words;
        *word = bits[from] << by;
        if by > 0 && from > 0 {
            *word |= bits[from - 1] >> (64 - by);
        }
    }
    moved
}
