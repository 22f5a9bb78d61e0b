//! Acknowledgements: a node learns which part of its history other machines have.
//!
//! A node asks in an entry of its own. Nodes that have read it, and have all applied entries in
//! their files, reply with an entry. They acknowledge the position and checksum up to which this
//! reply's writer had read. So an acknowledgement counts only in the history in which it was made,
//! on every engine, and none are sent unless a node asks.

use std::collections::BTreeMap;

use super::{Phase, Replica};
use crate::entry::{Body, Command, Entry};
use crate::machine::Machine;
use crate::ring::Ring;

/// Largest number of machines that are remembered.
const MOST_MACHINES: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Acks {
    /// The next entry of this node asks.
    asks: bool,
    /// Another node has asked since this node's last acknowledgement.
    is_asked: bool,
    /// Position of the last entry that asked, from any node.
    asked_at: u64,
    /// Positions that other machines have acknowledged.
    machines: BTreeMap<Vec<u8>, u64>,
}

impl Acks {
    pub fn asks_next(&mut self) -> bool {
        std::mem::take(&mut self.asks)
    }

    /// Forgets the positions: after a node goes back they belong to another history.
    pub fn go_back(&mut self) {
        *self = Self { asks: self.asks, ..Self::default() };
    }
}

/// Returns the body of an entry with commands, which may also ask for acknowledgements.
pub(super) fn body(asks: bool, commands: Vec<Command>) -> Body {
    if asks {
        Body::Asking(commands)
    } else {
        Body::Commands(commands)
    }
}

impl<M: Machine, R: Ring> Replica<M, R> {
    /// Makes the next entry ask other nodes for an acknowledgement.
    pub fn ask(&mut self) {
        self.acks.asks = true;
    }

    /// Position of the last entry read that asked.
    pub fn asked_at(&self) -> u64 {
        self.acks.asked_at
    }

    /// Returns whether another node waits for an acknowledgement from this one.
    pub fn is_asked(&self) -> bool {
        self.acks.is_asked && self.serves && !self.owes && matches!(self.phase, Phase::Reads)
    }

    /// Returns the entry that acknowledges everything this node has applied. Its files must have
    /// it.
    pub fn acknowledge(&mut self) -> Vec<u8> {
        self.acks.is_asked = false;
        let machine = self.setup.machine.clone();
        self.entry(self.name.clone(), 0, Body::Acks { machine })
    }

    /// Returns the position up to which this number of other machines have acknowledged the
    /// history.
    pub fn acknowledged(&self, machines: usize) -> u64 {
        let mut found: Vec<u64> = self.acks.machines.values().copied().collect();
        found.sort_unstable_by_key(|position| std::cmp::Reverse(*position));
        let last = machines.checked_sub(1).and_then(|last| found.get(last));
        last.copied().unwrap_or(if machines == 0 { u64::MAX } else { 0 })
    }

    /// Number of other machines that have acknowledged a position.
    pub fn acknowledging(&self, position: u64) -> usize {
        self.acks.machines.values().filter(|acked| **acked >= position).count()
    }

    /// Notes requests for acknowledgements, and acknowledgements.
    pub(super) fn heed(&mut self, entry: &Entry) {
        match &entry.body {
            Body::Asking(_) => {
                self.acks.asked_at = self.place.mark.position;
                self.acks.is_asked |= !entry.name.starts_with(&self.setup.name);
            }
            Body::Acks { machine } if *machine != self.setup.machine => {
                // An acknowledgement of another history is worthless.
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
