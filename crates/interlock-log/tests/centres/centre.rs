//! A data centre: its engine, its nodes, and the writes of its clients.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use interlock_log::checkpoint::{Checkpoint, Place};
use interlock_log::entry::{Body, Command, Entry};
use interlock_log::machine::{Limits, Rules};
use interlock_log::replica::{Need, Replica, Setup};
use interlock_log::ring::Memory;
use interlock_log::rows::{Rows, Settings};

use interlock_table::Value;

use crate::engine::Engine;
use crate::link::Note;

#[derive(Default)]
pub struct Disk {
    pub checkpoints: Vec<(Place, Vec<u8>)>,
    pub ring: Option<Memory>,
    /// Writes that this disk's node has done.
    pub did: BTreeSet<u64>,
}

pub struct Node {
    pub disk: Disk,
    pub replica: Replica<Rows, Memory>,
    pub cut: bool,
    pub again: bool,
    pub start: u64,
    /// Sums that the other data centre has added to rows, as this node has shown them, and whether
    /// the other data centre contributed to the row.
    pub shown: BTreeMap<Vec<u8>, (u64, bool)>,
}

#[derive(Default)]
pub struct Client {
    pub name: Vec<u8>,
    pub number: u64,
    /// Node, its start, and step of the last sending; 0 before the first.
    pub sent: (usize, u64, u64),
    pub write: u64,
    pub deadline: u64,
    pub words: Vec<String>,
}

/// A write of a client.
#[derive(Default, Clone)]
pub struct Write {
    pub client: usize,
    pub number: u64,
    pub words: Vec<String>,
    /// The first answer.
    pub answer: Option<String>,
}

pub struct Centre {
    pub dc: &'static str,
    pub engine: Engine,
    pub nodes: Vec<Node>,
    pub clients: Vec<Client>,
    pub writes: BTreeMap<u64, Write>,
    /// The place up to which the other data centre has sent its rows, as noted in this engine.
    pub notes: Option<Note>,
    /// The link from this data centre is cut.
    pub is_apart: bool,
    pub starts: u64,
    /// Number of times that a node waited for what no node could put back.
    pub waits: u64,
    /// Writes that any node has ever done.
    pub ever: BTreeSet<u64>,
    pub disks_lost: u64,
    pub rules: Rules,
    pub trace: bool,
}

pub fn settings(dc: &str) -> Settings {
    let table = "n: U32, x: U32; sum, last; 100000000 ms";
    let rules = interlock_log::state::Rules::parse(table).expect("rules");
    let (name, dc) = ("t".to_owned(), dc.to_owned());
    let (capacity, centres, tombstones, key_size, ttl) = (1000, 2, 1000, 8, 0);
    Settings { name, dc, rules, capacity, centres, tombstones, key_size, ttl }
}

impl Centre {
    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("     {}: {}", self.dc, what());
        }
    }

    /// Starts node `i` from its disk.
    pub fn start(&mut self, i: usize, mut disk: Disk) -> Node {
        self.starts += 1;
        let mut genesis = Vec::new();
        settings(self.dc).encode(&mut genesis);
        let name = format!("{}{}", self.dc, self.starts).into_bytes();
        let (node, machine) = (vec![i as u8 + 1], vec![i as u8 + 1]);
        let (limits, rules) = (Limits::default(), self.rules);
        let setup = Setup { name, node, machine, genesis, limits, rules };
        let ring = disk.ring.take().unwrap_or_else(|| Memory::new(1_000_000));
        let newest = disk.checkpoints.last().and_then(|(_, bytes)| Checkpoint::decode(bytes).ok());
        let replica = Replica::new(setup, ring, newest);
        let start = self.starts;
        Node { disk, replica, cut: false, again: false, start, shown: BTreeMap::new() }
    }

    pub fn restart(&mut self, i: usize, loses_disk: bool) {
        let node = &mut self.nodes[i];
        let mut disk = std::mem::take(&mut node.disk);
        disk.ring = Some(node.replica.ring().clone());
        if loses_disk {
            disk = Disk::default();
            self.disks_lost += 1;
        }
        self.say(|| format!("node {i} starts again; its disk is lost: {loses_disk}"));
        self.nodes[i] = self.start(i, disk);
    }

    pub fn append(&mut self, i: usize, random: &mut Rng) {
        let node = &mut self.nodes[i];
        if node.cut {
            return;
        }
        let mut entries = Vec::new();
        if node.again || random.u8(..4) == 0 {
            entries = node.replica.again();
            node.again = false;
        }
        if node.replica.serves() && random.bool() {
            entries.push(node.replica.append());
        }
        for bytes in entries {
            self.say(|| format!("node {i} appends {}", tell(&bytes)));
            if !self.is_begun(&bytes) {
                continue;
            }
            if let Some(id) = self.engine.append(bytes, random) {
                self.nodes[i].replica.appended(id);
            }
        }
    }

    pub fn read(&mut self, i: usize, most: usize, random: &mut Rng) {
        if self.nodes[i].cut {
            return;
        }
        for _ in 0..4 {
            let engine = &self.engine;
            let node = &mut self.nodes[i];
            match node.replica.need() {
                Need::Entries(after) => {
                    if !node.replica.last_is(engine.at(after)) {
                        self.say(|| format!("node {i} has lost its place"));
                        continue;
                    }
                    for held in engine.after(after).iter().take(most) {
                        if self.trace {
                            println!("     {}: node {i} reads {}", self.dc, tell(&held.bytes));
                        }
                        node.again |= node.replica.read(held.id, held.time, &held.bytes);
                        if !matches!(node.replica.need(), Need::Entries(_)) {
                            break;
                        }
                    }
                    let sessions = &node.replica.state().sessions;
                    for (write, it) in &self.writes {
                        if sessions.has_done(&self.clients[it.client].name, it.number) {
                            node.disk.did.insert(*write);
                            self.ever.insert(*write);
                        }
                    }
                    let at = node.replica.place();
                    let rests = engine.after(at.id).is_empty();
                    if rests && node.replica.need() == Need::Entries(at.id) {
                        self.at_the_end(i, random);
                    }
                    break;
                }
                Need::Comparison(_) => {
                    while let Need::Comparison(after) = node.replica.need() {
                        let next = engine.after(after).first();
                        node.replica.compare(next.map(|held| (held.id, &held.bytes[..])));
                    }
                }
                Need::Checkpoint(before) => {
                    let usable = |place: &Place| {
                        place.mark.position < before && place.is_in_log(engine.at(place.id))
                    };
                    let found = node.disk.checkpoints.iter().rev().find(|(place, _)| usable(place));
                    let found = found.and_then(|(_, bytes)| Checkpoint::decode(bytes).ok());
                    let place = found.as_ref().map(|it| it.place.mark.position);
                    node.replica.go_back(found, engine.begins());
                    self.say(|| format!("node {i} goes back to {place:?}"));
                }
                Need::Snapshot => unreachable!("no log is trimmed"),
            }
        }
    }

    /// Returns whether the log has begun; only a genesis can begin it.
    fn is_begun(&self, bytes: &[u8]) -> bool {
        let is_genesis = |entry: &Entry| matches!(entry.body, Body::Genesis(_));
        !self.engine.log.is_empty() || Entry::decode(bytes).is_ok_and(|entry| is_genesis(&entry))
    }

    pub fn land(&mut self, random: &mut Rng) {
        if self.engine.flying.iter().all(|bytes| self.is_begun(bytes)) {
            self.engine.land(random);
        }
    }

    fn at_the_end(&mut self, i: usize, random: &mut Rng) {
        let most = [1, 3, 1000][random.usize(..3)];
        if self.nodes[i].replica.waits() && self.is_last_resort(i) {
            self.say(|| format!("node {i} waits no longer"));
            self.waits += 1;
            self.nodes[i].replica.wait_no_longer();
        }
        for bytes in self.nodes[i].replica.at_the_end(most) {
            self.say(|| format!("node {i} puts back {}", tell(&bytes)));
            if self.is_begun(&bytes) {
                self.engine.append(bytes, random);
            }
        }
    }

    /// Returns whether no node that this one can reach will put back anything.
    fn is_last_resort(&self, i: usize) -> bool {
        let end = self.engine.log.last().map(|held| held.id);
        let is_done = |node: &Node| {
            let at_end = node.replica.need() == Need::Entries(end);
            !node.cut && at_end && (!node.replica.owes() || node.replica.waits())
        };
        self.nodes.iter().enumerate().all(|(other, node)| other == i || is_done(node))
    }

    pub fn save(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        let place = node.replica.place();
        if node.cut || !place.is_in_log(self.engine.at(place.id)) {
            return;
        }
        if let Some(bytes) = node.replica.checkpoint() {
            let engine = &self.engine;
            node.disk.checkpoints.retain(|(place, _)| place.is_in_log(engine.at(place.id)));
            node.disk.checkpoints.push((place, bytes));
            if node.disk.checkpoints.len() > 3 {
                node.disk.checkpoints.remove(0);
            }
            node.replica.saved(place.mark.position);
            self.say(|| format!("node {i} saves at {}", place.mark.position));
        }
    }

    /// Returns whether the log's first copy of a write is a put-back, or no loss has reordered it.
    pub fn is_put_back(&self, write: &Write) -> bool {
        let name = &self.clients[write.client].name[..];
        let is_it = |command: &Command| {
            command.client.as_ref().is_some_and(|it| (&*it.0, it.1) == (name, write.number))
        };
        let mut entries = self.engine.log.iter().filter_map(|held| Entry::decode(&held.bytes).ok());
        let found = entries.find_map(|entry| match &entry.body {
            Body::Commands(them) if them.iter().any(is_it) => Some(self.engine.losses == 0),
            Body::PutBack(lost) if lost.done.iter().any(|done| is_it(&done.command)) => Some(true),
            _ => None,
        });
        found.unwrap_or(true)
    }

    /// Returns whether a command that creates this row is done. All that did may be lost with the
    /// disks; then there is no row, whatever was added to it.
    pub fn has_created(&self, key: &str) -> bool {
        let sessions = &self.nodes[0].replica.state().sessions;
        self.writes.values().any(|it| {
            let creates = it.words[0] == "HINCRBY" && it.words[1].ends_with(key);
            creates && sessions.has_done(&self.clients[it.client].name, it.number)
        })
    }

    /// Returns the value of a column as a node shows it.
    pub fn value(&self, i: usize, key: &str, column: usize) -> u64 {
        let Some(machine) = &self.nodes[i].replica.state().machine else { return 0 };
        let rules = machine.store().rules();
        let state = machine.store().get(key.as_bytes());
        let row = rules.view_of(state, self.nodes[i].replica.state().now);
        number(&row.value(column))
    }
}

pub fn number(value: &Value<'_>) -> u64 {
    match value {
        Value::Unsigned(value) => *value,
        _ => 0,
    }
}

/// Describes an entry in a few words.
pub fn tell(bytes: &[u8]) -> String {
    let Ok(entry) = Entry::decode(bytes) else { return "bytes that are not an entry".into() };
    let name = String::from_utf8_lossy(&entry.name);
    let words = |command: &Command| {
        let words: Vec<_> =
            command.arguments.list().into_iter().map(String::from_utf8_lossy).collect();
        let client =
            command.client.as_ref().map(|it| (String::from_utf8_lossy(&it.0).into_owned(), it.1));
        format!("{client:?} {}", words.join(" "))
    };
    let body = match &entry.body {
        Body::Genesis(_) => format!("a genesis, seen {}", entry.seen),
        Body::Commands(them) | Body::Asking(them) => {
            format!("{:?}", them.iter().map(words).collect::<Vec<_>>())
        }
        Body::PutBack(lost) => {
            let them: Vec<_> = lost.done.iter().map(|done| words(&done.command)).collect();
            format!("put back of writer {}: {them:?}", lost.writer)
        }
        Body::State { source, bytes } => format!("a state of {source:?}, {} bytes", bytes.len()),
        other => format!("{other:?}"),
    };
    format!("{name}#{} read {}: {body}", entry.number, entry.read.position)
}
