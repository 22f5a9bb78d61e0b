//! The end of a world: faults stop, nodes come to rest, and their states are checked against the
//! promises.

use std::collections::BTreeSet;

use interlock_log::replica::Need;

use crate::engine::tell;
use crate::kind::Kind;
use crate::world::{Node, World};

/// The narrower guarantees.
const SHARED: &str = "around a loss, an older write of another client";
const OLDER: &str = "log time fell by more than the span, an older write of a client";
const OLD: &str =
    "an older write, whose record was dropped, and every node says that rows were merged";
const EMPTIED: &str = "all nodes were stuck, and an operator emptied the log";
const MERGED: &str = "a wrong sum, and every node says that rows were merged";

impl World {
    pub fn settle(&mut self) -> Result<(), String> {
        self.step += 1;
        for node in &mut self.nodes {
            node.cut = false;
        }
        for bytes in std::mem::take(&mut self.engine.flying) {
            self.engine.add(bytes);
        }
        for round in 0..100 {
            let before = self.engine.log.last().map(|held| held.id);
            for i in 0..self.nodes.len() {
                for _ in 0..12 {
                    self.read(i, usize::MAX);
                }
            }
            for bytes in std::mem::take(&mut self.engine.flying) {
                self.engine.add(bytes);
            }
            for i in 0..self.nodes.len() {
                for bytes in self.nodes[i].replica.again() {
                    self.engine.add(bytes);
                }
            }
            let stuck = |node: &Node| node.replica.need() == Need::Snapshot;
            if self.nodes.iter().all(stuck) {
                if self.engine.losses == 0 && self.disks_lost < 2 && !self.trimmed_early {
                    return Err("nobody keeps what was trimmed".into());
                }
                self.say(|| "the operator empties the log".into());
                self.engine.lose_all();
                self.emptied = true;
                continue;
            }
            let after = self.engine.log.last().map(|held| held.id);
            let at = |node: &Node| {
                node.replica.need() == Need::Entries(after)
                    && !node.replica.owes()
                    && node.replica.serves()
            };
            if before == after && self.nodes.iter().all(at) {
                self.say(|| format!("rest after {round} rounds"));
                return Ok(());
            }
        }
        for (i, node) in self.nodes.iter().enumerate() {
            self.say(|| {
                let it = &node.replica;
                let again: Vec<_> = it.again().iter().map(|bytes| tell(bytes)).collect();
                format!("node {i} owes {}, waits {}, {:?}", it.owes(), it.waits(), again)
            });
        }
        Err("no rest".into())
    }

    pub fn check(&self) -> Result<BTreeSet<&'static str>, String> {
        let mut narrowed = BTreeSet::new();
        if let Some(write) = self.false_ack {
            return Err(format!("acknowledged, and no other machine had it: write {write}"));
        }
        // No disk is lost, and rings keep all entries.
        if self.waits > 0 && (self.kind.bursts || self.kind == Kind::PLAIN) {
            return Err("a node waited for what nobody has".into());
        }
        if self.emptied {
            narrowed.insert(EMPTIED);
        }
        let first = &self.nodes[0];
        let bytes = first.replica.checkpoint();
        let Some(toy) = &first.replica.state().machine else { return Err("no machine".into()) };
        let twice = toy.writes.iter().find(|(_, times)| **times > 1);
        if let Some((write, _)) = twice {
            return Err(format!("a write was done twice: {}", self.describe(*write)));
        }
        for node in &self.nodes {
            if node.replica.checkpoint() != bytes {
                self.say(|| format!("{:#?}\n{:#?}", first.replica.state(), node.replica.state()));
                self.say(|| format!("{:?}\n{:?}", first.replica.place(), node.replica.place()));
                return Err("nodes differ".into());
            }
            if node.replica.pending() > 0 {
                return Err("own writes left".into());
            }
            // No node can put back a write that is older than the records of its time.
            let forgotten = first.replica.state().sessions.forgotten;
            let gone = |write: &&u64| {
                let is_kept = self.writes.get(write).is_some_and(|it| it.deadline > forgotten);
                !toy.writes.contains_key(write) && is_kept
            };
            if let Some(gone) = node.disk.did.iter().find(gone) {
                return Err(format!(
                    "a write that a living node had done is gone: {}",
                    self.describe(*gone)
                ));
            }
        }
        let done =
            || toy.writes.keys().filter_map(|write| self.writes.get(write).map(|it| (write, it)));
        for (register, value) in &toy.registers {
            let Some(there) = self.writes.get(&value.write) else { continue };
            for (write, other) in done() {
                let (client, number) = (other.client, other.number);
                if self.clients[client].name.is_some()
                    && there.client == client
                    && number > there.number
                {
                    // A joined state still had its value, but no longer the record of its client.
                    let forgotten = first.replica.state().sessions.forgotten;
                    if there.deadline <= forgotten && self.merged_everywhere() {
                        narrowed.insert(OLD);
                        continue;
                    }
                    // If log time has fallen this far, the record of the newer write could be
                    // dropped before the older write came back.
                    if there.deadline > other.time + self.limits().timeout + self.limits().span {
                        narrowed.insert(OLDER);
                        continue;
                    }
                    self.say(|| format!("{:?} {toy:?}", first.replica.state().sessions.clients));
                    return Err(format!("older write of a client over a newer one: {write}"));
                }
                let here = self.kind.shared || *register == client as u64 + 1;
                let after = there.answered.is_some_and(|answered| other.begun > answered);
                if here && after && (self.kind.shared || self.clients[client].name.is_some()) {
                    // Around a loss, writes of different clients, and of one without numbers, are
                    // ordered by stamp.
                    let other_client =
                        there.client != client || self.clients[client].name.is_none();
                    if there.losses < self.engine.losses && other_client {
                        narrowed.insert(SHARED);
                        continue;
                    }
                    return Err(format!(
                        "shared: a value over a write that began after its answer: {write}"
                    ));
                }
            }
        }
        for (write, it) in done() {
            // Around a loss, a node may have done it in the lost history and put it back.
            if it.denied && it.losses == self.engine.losses {
                return Err(format!("a write was denied and then done: {}", self.describe(*write)));
            }
        }
        let sum: u64 = toy.sums.values().sum();
        if sum == toy.writes.len() as u64 {
            return Ok(narrowed);
        }
        if self.merged_everywhere() {
            narrowed.insert(MERGED);
            return Ok(narrowed);
        }
        Err(format!("sum: {sum} of {} writes, and nobody says so", toy.writes.len()))
    }

    /// Returns whether every node reports that rows were merged.
    fn merged_everywhere(&self) -> bool {
        self.nodes.iter().all(|node| node.replica.merged() > 0)
    }

    fn describe(&self, write: u64) -> String {
        let Some(it) = self.writes.get(&write) else { return format!("write {write}") };
        format!("write {write}, number {} of client {} (seed {})", it.number, it.client, self.seed)
    }
}
