//! A toy machine that shows which writes were done, how often, and which values they replaced.

use std::collections::BTreeMap;

use interlock_log::codec::{put_number, Damaged, Reader};
use interlock_log::machine::{Judge, Machine, Moment, Origin, Outcome, Winner};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    pub stamp: u64,
    pub write: u64,
    pub expires: u64,
}

/// Each write has its own number, sets a register, and adds one to a sum.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Toy {
    /// Number of times each write was done.
    pub writes: BTreeMap<u64, u64>,
    pub registers: BTreeMap<u64, Value>,
    pub sums: BTreeMap<u64, u64>,
    /// Largest number of registers; further ones are refused.
    pub capacity: u64,
    /// The last writer.
    pub writer: u64,
}

/// Number of all writes that change nothing.
pub const IDLE: u64 = u64::MAX;

/// Encodes a write as arguments: its number, the register, and its time to live (0: for ever).
pub fn arguments(write: u64, register: u64, life: u64) -> Vec<Vec<u8>> {
    [write, register, life].iter().map(|number| number.to_le_bytes().to_vec()).collect()
}

fn number(argument: &[u8]) -> u64 {
    argument.try_into().map_or(0, u64::from_le_bytes)
}

impl Machine for Toy {
    fn begin(genesis: &[u8]) -> Result<Self, Damaged> {
        let capacity = Reader::new(genesis).number()?;
        Ok(Self { capacity, ..Self::default() })
    }

    fn writer(&self) -> u64 {
        self.writer
    }

    fn advance(&mut self, time: u64) {
        self.registers.retain(|_, value| value.expires == 0 || value.expires > time);
    }

    fn apply(&mut self, arguments: &[&[u8]], moment: &Moment<'_>, reply: &mut Vec<u8>) -> Outcome {
        let [write, register, life] = arguments else {
            reply.extend_from_slice(b"what?");
            return Outcome::Refused;
        };
        let (write, register, life) = (number(write), number(register), number(life));
        if write == IDLE {
            return Outcome::Unchanged;
        }
        let full = self.registers.len() as u64 >= self.capacity;
        if full && !self.registers.contains_key(&register) && !moment.put_back {
            reply.extend_from_slice(b"full");
            return Outcome::Refused;
        }
        *self.writes.entry(write).or_default() += 1;
        // As in a table, a lost write counts under its first writer.
        if moment.writer.is_none() {
            self.writer = moment.lineage;
        }
        *self.sums.entry(moment.writer.unwrap_or(moment.lineage)).or_default() += 1;
        let existing = self.registers.get(&register).map_or(0, |value| value.stamp);
        if let Some(stamp) = moment.place(existing) {
            let expires = if life == 0 { 0 } else { (stamp >> 16) + life };
            if expires == 0 || expires > moment.time {
                self.registers.insert(register, Value { stamp, write, expires });
            }
        }
        reply.extend_from_slice(&write.to_le_bytes());
        Outcome::Done
    }

    fn join(&mut self, other: Self, judge: &Judge<'_>, _: Origin<'_>) -> u64 {
        for (write, times) in other.writes {
            let ours = self.writes.entry(write).or_default();
            *ours = times.max(*ours);
        }
        for (lineage, sum) in other.sums {
            let ours = self.sums.entry(lineage).or_default();
            *ours = sum.max(*ours);
        }
        for (register, theirs) in other.registers {
            match self.registers.get_mut(&register) {
                None => {
                    self.registers.insert(register, theirs);
                }
                Some(ours) if ours.write == theirs.write => {
                    ours.stamp = ours.stamp.max(theirs.stamp);
                    ours.expires = ours.expires.max(theirs.expires);
                }
                Some(ours) => match judge.place(ours.stamp, theirs.stamp) {
                    Winner::Ours(stamp) => ours.stamp = stamp,
                    Winner::Theirs(stamp) => *ours = Value { stamp, ..theirs },
                },
            }
        }
        self.registers.values().map(|value| value.stamp).max().unwrap_or(0)
    }

    fn replace(&mut self, other: Self, time: u64) -> u64 {
        *self = Self { capacity: self.capacity, ..other };
        self.advance(time);
        self.registers.values().map(|value| value.stamp).max().unwrap_or(0)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for map in [&self.writes, &self.sums] {
            put_number(out, map.len() as u64);
            for (key, value) in map {
                put_number(out, *key);
                put_number(out, *value);
            }
        }
        put_number(out, self.registers.len() as u64);
        for (register, value) in &self.registers {
            for number in [*register, value.stamp, value.write, value.expires] {
                put_number(out, number);
            }
        }
        put_number(out, self.capacity);
        put_number(out, self.writer);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut reader = Reader::new(bytes);
        let mut toy = Self::default();
        for map in [&mut toy.writes, &mut toy.sums] {
            for _ in 0..reader.count(2)? {
                map.insert(reader.number()?, reader.number()?);
            }
        }
        for _ in 0..reader.count(4)? {
            let register = reader.number()?;
            let (stamp, write, expires) = (reader.number()?, reader.number()?, reader.number()?);
            toy.registers.insert(register, Value { stamp, write, expires });
        }
        toy.capacity = reader.number()?;
        toy.writer = reader.number()?;
        reader.end()?;
        Ok(toy)
    }
}
