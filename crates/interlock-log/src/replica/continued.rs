//! Continuing when the log begins after a node's newest checkpoint: the node's ring may have the
//! entries between.

use std::collections::BTreeMap;

use super::{Phase, Replica};
use crate::checkpoint::{Checkpoint, Id, Place};
use crate::entry::{digest, Entry};
use crate::machine::{Limits, Machine, Rules};
use crate::ring::{Raw, Ring};

/// Entries that a node has read, in all its histories.
#[derive(Debug, Default)]
pub struct Raws(BTreeMap<u64, Vec<Raw>>);

impl Raws {
    pub fn add(&mut self, raw: Raw) {
        let there = self.0.entry(raw.place.mark.position).or_default();
        if !there.iter().any(|one| one.place == raw.place) {
            there.push(raw);
        }
    }

    /// Returns the entries after a place up to and including the log's first entry. `None`: some
    /// are missing.
    fn between(&self, from: Place, id: Id, bytes: &[u8]) -> Option<Vec<&Raw>> {
        let all = self.0.values().flatten().filter(|raw| raw.place.is(id, bytes));
        all.filter_map(|last| self.back(from, last)).next()
    }

    fn back<'a>(&'a self, from: Place, last: &'a Raw) -> Option<Vec<&'a Raw>> {
        let mut found = vec![last];
        loop {
            let raw = *found.last()?;
            let before = raw.place.mark.position.checked_sub(1)?;
            if before <= from.mark.position {
                found.reverse();
                return (from.mark.then(digest(&raw.bytes)) == raw.place.mark).then_some(found);
            }
            let follows = |one: &&Raw| one.place.mark.then(digest(&raw.bytes)) == raw.place.mark;
            found.push(self.0.get(&before)?.iter().find(follows)?);
        }
    }

    /// Returns a checkpoint with the entries up to the log's first one applied.
    fn applied<M: Machine>(
        &self,
        checkpoint: Checkpoint<M>,
        (id, bytes): (Id, &[u8]),
        limits: &Limits,
        rules: Rules,
    ) -> Option<Checkpoint<M>> {
        let Checkpoint { mut place, mut state } = checkpoint;
        for raw in self.between(place, id, bytes)? {
            place = raw.place;
            if let Ok(mut entry) = Entry::decode(&raw.bytes) {
                state.apply(&mut entry, place.mark, raw.time, false, limits, rules);
            }
        }
        Some(Checkpoint { place, state })
    }
}

impl<M: Machine, R: Ring> Replica<M, R> {
    /// Continues from a checkpoint that ends before the log begins, with the entries that this node
    /// has read itself. Returns whether it could.
    pub fn continue_from(
        &mut self,
        checkpoint: Checkpoint<M>,
        raws: &Raws,
        first: (Id, &[u8]),
    ) -> bool {
        if !matches!(self.phase, Phase::Stuck) || !self.setup.rules.continues {
            return false;
        }
        let covered = checkpoint.place.mark.position;
        let (limits, rules) = (&self.setup.limits, self.setup.rules);
        let Some(found) = raws.applied(checkpoint, first, limits, rules) else { return false };
        self.phase = Phase::Reads;
        self.go_back(Some(found), true);
        self.covered = covered;
        true
    }
}
