//! Acknowledgements: a node learns what other machines have of its history.
//!
//! Who wants to know asks in an entry of its own. Nodes that have read it, and have in their files all that they
//! applied, say so in an entry, whose writer's position and checksum are what they acknowledge. So an
//! acknowledgement counts in the history alone in which it was made, on every engine, and while nobody asks there
//! is none.

use std::collections::BTreeMap;

use super::{Phase, Replica};
use crate::entry::{Body, Command, Entry};
use crate::machine::Machine;
use crate::ring::Ring;

/// The most machines that are remembered.
const MOST_MACHINES: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Acks {
    /// The next entry of this node asks.
    asks: bool,
    /// Another node has asked since this one acknowledged.
    is_asked: bool,
    /// The position of the last entry that asked, whoever wrote it.
    asked_at: u64,
    /// The positions that other machines have acknowledged.
    machines: BTreeMap<Vec<u8>, u64>,
}

impl Acks {
    pub fn asks_next(&mut self) -> bool {
        std::mem::take(&mut self.asks)
    }

    /// Positions of the history behind a place stand for nothing any more.
    pub fn go_back(&mut self) {
        *self = Self { asks: self.asks, ..Self::default() };
    }
}

/// The body of an entry with commands, or of one that asks for acknowledgements.
pub(super) fn body(asks: bool, commands: Vec<Command>) -> Body {
    if asks {
        Body::Asking(commands)
    } else {
        Body::Commands(commands)
    }
}

impl<M: Machine, R: Ring> Replica<M, R> {
    /// Has the next entry ask other nodes for an acknowledgement.
    pub fn ask(&mut self) {
        self.acks.asks = true;
    }

    /// The position of the last entry that asked, as far as it was read.
    pub fn asked_at(&self) -> u64 {
        self.acks.asked_at
    }

    /// Returns whether another node waits for an acknowledgement of this one.
    pub fn is_asked(&self) -> bool {
        self.acks.is_asked && self.serves && !self.owes && matches!(self.phase, Phase::Reads)
    }

    /// The entry that acknowledges all that this node has applied. Its files must have it.
    pub fn acknowledge(&mut self) -> Vec<u8> {
        self.acks.is_asked = false;
        let machine = self.setup.machine.clone();
        self.entry(self.name.clone(), 0, Body::Acks { machine })
    }

    /// The position up to which so many other machines have acknowledged this node's history.
    pub fn acknowledged(&self, machines: usize) -> u64 {
        let mut found: Vec<u64> = self.acks.machines.values().copied().collect();
        found.sort_unstable_by_key(|position| std::cmp::Reverse(*position));
        let last = machines.checked_sub(1).and_then(|last| found.get(last));
        last.copied().unwrap_or(if machines == 0 { u64::MAX } else { 0 })
    }

    /// The number of other machines that have acknowledged a position.
    pub fn acknowledging(&self, position: u64) -> usize {
        self.acks.machines.values().filter(|acked| **acked >= position).count()
    }

    /// Takes note of who asks, and of what is acknowledged.
    pub(super) fn heed(&mut self, entry: &Entry) {
        match &entry.body {
            Body::Asking(_) => {
                self.acks.asked_at = self.place.mark.position;
                self.acks.is_asked |= !entry.name.starts_with(&self.setup.name);
            }
            Body::Acks { machine } if *machine != self.setup.machine => {
                // Of another history it is worth nothing.
                if self.has_mark(entry.read) != Some(true) && self.setup.rules.acks {
                    return;
                }
                let machines = &mut self.acks.machines;
                if machines.len() < MOST_MACHINES || machines.contains_key(machine) {
                    let acked = machines.entry(machine.clone()).or_default();
                    *acked = entry.read.position.max(*acked);
                }
            }
            _ => {}
        }
    }
}
