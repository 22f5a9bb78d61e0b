//! The settings of a table in a log's genesis, which all nodes share.

use crate::codec::{self, Damaged, Reader};
use crate::stamp;
use crate::state::Rules;

/// Version of the computation: a new version begins with an entry once all nodes support it.
const VERSION: u64 = 1;
const MAX_TEXT: usize = 1 << 20;

/// A table's settings on all nodes of a data centre.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The table's name.
    pub name: String,
    /// The data centre of the log.
    pub dc: String,
    pub rules: Rules,
    /// Largest number of rows.
    pub capacity: u64,
    /// Number of data centres. Each may create its share of the capacity, so that together they do
    /// not exceed it.
    pub centres: u64,
    /// Largest number of deleted and expired rows that are remembered.
    pub tombstones: u64,
    /// Longest key, in bytes.
    pub key_size: u64,
    /// Time to live, in ms, of rows for which none is given; 0: for ever.
    pub ttl: u64,
}

impl Settings {
    /// Number of rows that this data centre may create.
    pub fn share(&self) -> u64 {
        (self.capacity / self.centres.max(1)).max(1)
    }

    /// Returns whether the states of both tables can be joined.
    pub fn is_same_table(&self, other: &Settings) -> bool {
        self.name == other.name && self.rules.fingerprint() == other.rules.fingerprint()
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        codec::put_number(out, VERSION);
        for text in [&self.name, &self.dc, &self.rules.fingerprint()] {
            codec::put_bytes(out, text.as_bytes());
        }
        for number in [self.capacity, self.centres, self.tombstones, self.key_size, self.ttl] {
            codec::put_number(out, number);
        }
    }

    /// # Errors
    ///
    /// The bytes are of another version or were not written by `encode`.
    pub fn decode(from: &mut Reader) -> Result<Settings, Damaged> {
        if from.number()? != VERSION {
            return Err(Damaged);
        }
        let mut text = || {
            let bytes = from.bytes(MAX_TEXT)?;
            String::from_utf8(bytes.to_vec()).map_err(|_| Damaged)
        };
        let (name, dc, rules) = (text()?, text()?, text()?);
        let rules = Rules::parse(&rules).map_err(|_| Damaged)?;
        let mut number = || from.number();
        let (capacity, centres) = (number()?, number()?);
        let (tombstones, key_size, ttl) = (number()?, number()?, number()?);
        let found = Settings { name, dc, rules, capacity, centres, tombstones, key_size, ttl };
        let right = stamp::is_name(found.dc.as_bytes())
            && capacity > 0
            && centres > 0
            && (1..=super::MAX_KEY as u64).contains(&key_size);
        right.then_some(found).ok_or(Damaged)
    }
}
