//! Results: the outcomes of messages whose put asked to keep them, bounded in bytes.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use interlock_core::queue::schedules::bytes::{number, string, Damaged, Reader};
use interlock_core::queue::types::Time;

/// The way a message came to its end, but as a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    // The numbers appear in dumps.
    Done = 0,
    Cancelled = 1,
    Skipped = 2,
    Expired = 3,
}

impl End {
    pub fn text(self) -> &'static [u8] {
        match self {
            End::Done => b"acked",
            End::Cancelled => b"cancelled",
            End::Skipped => b"skipped",
            End::Expired => b"expired",
        }
    }
}

#[derive(Debug)]
pub struct Kept {
    pub end: End,
    pub result: Box<[u8]>,
    until: Time,
    order: u64,
}

#[derive(Debug, Default)]
pub struct Results {
    by_id: HashMap<u64, Kept, std::hash::RandomState>,
    /// In the order in which they came.
    order: BTreeMap<u64, u64>,
    next: u64,
    until: BTreeSet<(Time, u64)>,
    pub bytes: u64,
    pub most: u64,
}

impl Results {
    pub fn new(most: u64) -> Self {
        Results { most, ..Results::default() }
    }

    pub fn keep(&mut self, id: u64, end: End, result: &[u8], until: Time) {
        if result.len() as u64 > self.most {
            return;
        }
        let kept = Kept { end, result: result.into(), until, order: self.next };
        self.bytes += result.len() as u64;
        self.order.insert(self.next, id);
        self.until.insert((until, id));
        self.next += 1;
        self.by_id.insert(id, kept);
        self.bound();
    }

    /// Drops the oldest while they have more bytes than allowed.
    pub fn bound(&mut self) {
        while self.bytes > self.most {
            let Some((_, &id)) = self.order.first_key_value() else { return };
            self.forget(id);
        }
    }

    /// Drops what is kept of a message.
    pub fn forget(&mut self, id: u64) {
        if let Some(kept) = self.by_id.remove(&id) {
            self.bytes -= kept.result.len() as u64;
            self.order.remove(&kept.order);
            self.until.remove(&(kept.until, id));
        }
    }

    /// Drops what was kept long enough, at most `limit` of it; whether there was some.
    pub fn forget_old(&mut self, now: Time, limit: usize) -> bool {
        for n in 0..limit {
            match self.until.first() {
                Some(&(until, id)) if until <= now => self.forget(id),
                _ => return n > 0,
            }
        }
        true
    }

    pub fn dump(&self, out: &mut Vec<u8>) {
        number(out, self.order.len() as u64);
        for id in self.order.values() {
            let Kept { end, result, until, .. } = &self.by_id[id];
            number(out, *id);
            out.push(*end as u8);
            number(out, *until);
            string(out, result);
        }
    }

    pub fn restored(reader: &mut Reader<'_>, most: u64) -> Result<Results, Damaged> {
        let mut results = Results::new(most);
        for _ in 0..reader.number("count of results")? {
            let id = reader.number("id of a result")?;
            let end = match reader.byte("end of a message")? {
                0 => End::Done,
                1 => End::Cancelled,
                2 => End::Skipped,
                3 => End::Expired,
                _ => return reader.damaged("end of a message"),
            };
            let until = reader.number("time of a result")?;
            results.keep(id, end, reader.string("result")?, until);
        }
        Ok(results)
    }

    pub fn get(&self, id: u64, now: Time) -> Option<&Kept> {
        self.by_id.get(&id).filter(|kept| kept.until > now)
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }
}
