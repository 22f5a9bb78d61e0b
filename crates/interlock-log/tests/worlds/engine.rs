//! An engine that holds a log, and its faults.

use fastrand::Rng;
use interlock_log::checkpoint::Id;
use interlock_log::entry::{Body, Command, Entry};

pub struct Held {
    pub id: Id,
    pub time: u64,
    pub bytes: Vec<u8>,
}

#[derive(Default)]
pub struct Engine {
    pub log: Vec<Held>,
    /// Entries of appends that have not arrived yet.
    pub flying: Vec<Vec<u8>>,
    pub time: u64,
    /// Entries were removed from the beginning.
    pub trimmed: bool,
    /// Number of losses so far.
    pub losses: u64,
    /// The clock falls back when entries are lost.
    pub falls: bool,
}

impl Engine {
    pub fn add(&mut self, bytes: Vec<u8>) -> Id {
        self.time += 1;
        let last = self.log.last().map_or((0, 0), |held| held.id);
        let id = if self.time > last.0 { (self.time, 0) } else { (last.0, last.1 + 1) };
        self.log.push(Held { id, time: self.time, bytes });
        id
    }

    /// Appends like an engine whose replies may be lost: at once, late, never, or twice.
    pub fn append(&mut self, bytes: Vec<u8>, random: &mut Rng) -> Option<Id> {
        let x = random.f64();
        let mut id = None;
        if x < 0.7 {
            id = Some(self.add(bytes.clone()));
        } else if x < 0.85 {
            self.flying.push(bytes.clone());
        }
        if x < 0.1 {
            self.add(bytes);
        }
        id.filter(|_| random.bool())
    }

    pub fn land(&mut self, random: &mut Rng) {
        if !self.flying.is_empty() {
            let bytes = self.flying.swap_remove(random.usize(..self.flying.len()));
            self.add(bytes);
        }
    }

    pub fn after(&self, id: Option<Id>) -> &[Held] {
        let from = self.log.partition_point(|held| Some(held.id) <= id);
        &self.log[from..]
    }

    pub fn at(&self, id: Option<Id>) -> Option<&[u8]> {
        let at = self.log.binary_search_by_key(&id?, |held| held.id).ok()?;
        Some(&self.log[at].bytes)
    }

    pub fn lose(&mut self, count: usize) {
        let left = self.log.len().saturating_sub(count);
        self.log.truncate(left);
        self.lost();
    }

    /// Loses everything, including the fact that the log was trimmed, like a new engine.
    pub fn lose_all(&mut self) {
        self.log.clear();
        self.trimmed = false;
        self.lost();
    }

    fn lost(&mut self) {
        self.losses += 1;
        if self.falls {
            self.time = self.log.last().map_or(0, |held| held.time);
        }
    }

    /// Returns whether nothing is missing at the beginning.
    pub fn begins(&self) -> bool {
        !self.trimmed || self.log.is_empty()
    }

    pub fn trim(&mut self, before: Id) {
        let from = self.log.partition_point(|held| held.id < before);
        self.trimmed |= from > 0;
        self.log.drain(..from);
    }
}

/// Describes an entry in a few words.
pub fn tell(bytes: &[u8]) -> String {
    let Ok(entry) = Entry::decode(bytes) else { return "bytes that are not an entry".into() };
    let name = String::from_utf8_lossy(&entry.name);
    let writes = |commands: &[&Command]| -> Vec<u64> {
        commands.iter().map(|it| u64::from(it.arguments.list()[0][0])).collect()
    };
    let body = match &entry.body {
        Body::Genesis(_) => "a genesis".into(),
        Body::Acks { .. } => "an acknowledgement".into(),
        Body::Commands(them) | Body::Asking(them) => {
            format!("{:?}", writes(&them.iter().collect::<Vec<_>>()))
        }
        Body::PutBack(lost) => {
            let them: Vec<_> = lost.done.iter().map(|done| &done.command).collect();
            format!("{:?} put back", writes(&them))
        }
        Body::State { .. } => "a state".into(),
        Body::Keeps { node, report, .. } => {
            format!("{} keeps {report:?}", String::from_utf8_lossy(node))
        }
    };
    format!("{name}#{}, seen {}, read {}: {body}", entry.number, entry.seen, entry.read.position)
}
