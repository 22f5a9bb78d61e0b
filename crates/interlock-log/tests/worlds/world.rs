//! One world: nodes, clients, an engine, and their faults. Everything is determined by the seed.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use interlock_log::apply::Answer;
use interlock_log::checkpoint::{Checkpoint, Place};
use interlock_log::codec::put_number;
use interlock_log::entry::{Arguments, Command, Entry};
use interlock_log::machine::{Limits, Rules};
use interlock_log::replica::{Need, Replica, Setup};

use crate::disk::{Disk, InFile};
use crate::engine::{tell, Engine};
use crate::kind::Kind;
use crate::machine::{arguments, Toy, IDLE};

/// Span of the rings in worlds with short times.
const SPAN: u64 = 60;
/// Number of writes in a burst: more than the records of a client keep replies for.
const BURST: std::ops::Range<u64> = 65..200;

pub struct Node {
    pub disk: Disk,
    pub replica: Replica<Toy, InFile>,
    pub cut: bool,
    /// Writes that the node has answered but not seen acknowledged, and its position at the answer.
    pub unacknowledged: Vec<(u64, u64)>,
    pub again: bool,
    pub machine: u64,
}

pub struct Client {
    /// `None` if the client does not number its writes.
    pub name: Option<Vec<u8>>,
    pub number: u64,
    /// Node, its machine's number, and step of the last sending; 0 before the first.
    pub sent: (usize, u64, u64),
    pub write: u64,
    pub deadline: u64,
    /// The deadline of its write is over: it is sent under its number with a later one.
    pub postponed: bool,
}

/// Client, number and answers of a write.
#[derive(Default, Clone)]
pub struct Write {
    pub client: usize,
    pub number: u64,
    pub begun: u64,
    pub answered: Option<u64>,
    /// The answer was that it was not done and will not be.
    pub denied: bool,
    pub deadline: u64,
    /// Number of losses of the engine before it began.
    pub losses: u64,
    /// Log time at the node to which it was first sent.
    pub time: u64,
}

pub struct World {
    pub seed: u64,
    pub kind: Kind,
    pub rules: Rules,
    pub random: Rng,
    pub engine: Engine,
    pub nodes: Vec<Node>,
    pub born: u64,
    pub clients: Vec<Client>,
    pub writes: BTreeMap<u64, Write>,
    pub step: u64,
    pub trace: bool,
    pub disks_lost: u64,
    /// A write that was acknowledged although no other machine had it.
    pub false_ack: Option<u64>,
    /// All nodes were stuck.
    pub emptied: bool,
    /// Number of times that a node waited for what no node could put back.
    pub waits: u64,
    /// The log was trimmed before all nodes had reported: those that had keep its checkpoints.
    pub trimmed_early: bool,
}

impl World {
    pub fn new(seed: u64, kind: Kind, rules: Rules, trace: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let engine = Engine { falls: kind.falls, time: 1000, ..Engine::default() };
        let count = random.usize(2..=4);
        let name = |name: &str| Some(name.as_bytes().to_vec());
        let clients = [name("a"), name("b"), None].map(|name| Client {
            name,
            number: 0,
            sent: (0, 0, 0),
            write: 0,
            deadline: 0,
            postponed: false,
        });
        let mut world = Self {
            seed,
            kind,
            rules,
            random,
            engine,
            nodes: Vec::new(),
            born: 0,
            clients: clients.into(),
            writes: BTreeMap::new(),
            step: 0,
            trace,
            disks_lost: 0,
            emptied: false,
            waits: 0,
            false_ack: None,
            trimmed_early: false,
        };
        for i in 0..count {
            let node = world.start(i, Disk::default());
            world.nodes.push(node);
        }
        world
    }

    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>4} {}", self.step, what());
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        let (names, clients) = (self.kind.records, self.kind.records.div_ceil(4));
        let limits = Limits { names, clients, ..Limits::default() };
        if self.kind.short {
            Limits { timeout: 60, span: SPAN, pause: 60, ..limits }
        } else {
            limits
        }
    }

    /// Starts node `i` from its disk.
    fn start(&mut self, i: usize, mut disk: Disk) -> Node {
        self.born += 1;
        let mut genesis = Vec::new();
        put_number(&mut genesis, self.kind.capacity);
        let limits = self.limits();
        let name = format!("n{}", self.born).into_bytes();
        let (node, machine) = (vec![i as u8], vec![i as u8]);
        let setup = Setup { name, node, machine, genesis, limits, rules: self.rules };
        let ring = disk.ring.take().filter(|_| !self.kind.forgets);
        let ring = ring.unwrap_or_else(|| InFile::new(self.kind.ring));
        if self.kind.forgets {
            disk.did.clear();
        }
        let newest = disk.checkpoints.last().and_then(|(_, bytes)| Checkpoint::decode(bytes).ok());
        let replica = Replica::new(setup, ring, newest);
        Node {
            disk,
            replica,
            cut: false,
            unacknowledged: Vec::new(),
            again: false,
            machine: self.born,
        }
    }

    /// Runs the world. Returns the narrower guarantees that it needed, or the promise that it
    /// broke.
    pub fn run(mut self, steps: &[u64]) -> Result<BTreeSet<&'static str>, String> {
        self.play(steps);
        self.settle()?;
        self.check()
    }

    /// Runs the world, and returns a checkpoint of its end.
    pub fn into_checkpoint(mut self, steps: &[u64]) -> Vec<u8> {
        self.play(steps);
        self.settle().expect("rest");
        self.nodes[0].replica.checkpoint().expect("a checkpoint")
    }

    fn play(&mut self, steps: &[u64]) {
        let bad = if self.kind.calm { 0.0 } else { self.random.f64() };
        for step in steps {
            self.step = *step;
            // Each step has its own random numbers, so that steps can be left out of a world.
            self.random = Rng::with_seed(self.seed.wrapping_mul(1 << 20).wrapping_add(*step));
            self.engine.time += self.random.u64(..3);
            let i = self.random.usize(..self.nodes.len());
            self.ask();
            let x = self.random.f64();
            if x < 0.45 {
                self.append(i);
            } else if x < 0.80 {
                let most = [1, 3, 100][self.random.usize(..3)];
                self.read(i, most);
            } else if x < 0.86 {
                self.save(i);
            } else if x < 0.89 {
                self.restart(i);
            } else if x < 0.93 {
                self.nodes[i].cut ^= true;
                self.say(|| format!("node {i} is cut: {}", self.nodes[i].cut));
            } else if x < 0.95 {
                self.engine.land(&mut self.random);
            } else if x < 0.95 + 0.02 * bad {
                let count = [1, 2, 5, 20][self.random.usize(..4)];
                self.say(|| format!("the engine loses {count}"));
                self.engine.lose(count);
            } else if x < 0.95 + 0.03 * bad {
                self.say(|| "the engine loses everything".into());
                self.engine.lose_all();
            } else if x < 0.985 {
                if self.kind.trims {
                    self.trim(i);
                }
            } else if self.kind.short {
                let by = [5, 50, 500, 100_000][self.random.usize(..4)];
                self.say(|| format!("time passes: {by}"));
                self.engine.time += by;
            }
        }
    }

    // --- Clients ---

    fn ask(&mut self) {
        for c in 0..self.clients.len() {
            let (node, machine, sent) = self.clients[c].sent;
            let lives = self.nodes[node].machine == machine;
            if sent > 0 && self.step - sent <= 40 && lives {
                continue;
            }
            let node = self.random.usize(..self.nodes.len());
            if !self.nodes[node].replica.serves() {
                continue;
            }
            let client = &mut self.clients[c];
            if std::mem::take(&mut client.postponed) {
                let timeout = self.random.u64(10..90);
                client.deadline = self.nodes[node].replica.deadline(0, timeout);
            } else if sent == 0 || client.name.is_none() {
                if let Some(name) = &client.name {
                    let is_due = self.kind.bursts && self.random.bool();
                    let count = if is_due { self.random.u64(BURST) } else { 0 };
                    for _ in 0..count {
                        client.number += 1;
                        let command = Command {
                            client: Some((name.clone().into(), client.number)),
                            deadline: self.nodes[node].replica.deadline(0, 60_000),
                            arguments: Arguments::new(&arguments(IDLE, 0, 0)),
                        };
                        self.nodes[node].replica.submit(0, command);
                    }
                }
                client.number += 1;
                client.write = self.writes.len() as u64 + 1;
                let timeout = if self.kind.short { self.random.u64(10..90) } else { 60_000 };
                client.deadline = self.nodes[node].replica.deadline(0, timeout);
                let write = Write {
                    client: c,
                    number: client.number,
                    begun: self.step,
                    deadline: client.deadline,
                    losses: self.engine.losses,
                    time: self.nodes[node].replica.state().now,
                    ..Write::default()
                };
                self.writes.insert(client.write, write);
            }
            client.sent = (node, self.nodes[node].machine, self.step);
            let register = if self.kind.shared { 0 } else { c as u64 + 1 };
            let command = Command {
                client: client.name.clone().map(|name| (name.into(), client.number)),
                deadline: client.deadline,
                arguments: Arguments::new(&arguments(client.write, register, 0)),
            };
            let write = client.write;
            self.say(|| format!("client {c} sends write {write} to node {node}"));
            self.nodes[node].replica.submit(write, command);
            self.hear(node);
        }
    }

    fn hear(&mut self, node: usize) {
        for (write, answer) in self.nodes[node].replica.answers() {
            self.say(|| format!("node {node} answers write {write}: {answer:?}"));
            let Some(known) = self.writes.get_mut(&write) else { continue };
            let client = &mut self.clients[known.client];
            if client.write == write {
                client.sent.2 = 0;
            }
            match answer {
                Answer::Done { refused: false, .. } => {
                    known.answered.get_or_insert(self.step);
                    let position = self.nodes[node].replica.place().mark.position;
                    self.nodes[node].unacknowledged.push((write, position));
                }
                // It may still be done by a copy with a later deadline.
                Answer::Past if self.kind.postpones && client.name.is_some() => {
                    client.postponed |= client.write == write;
                }
                Answer::Done { refused: true, .. } | Answer::Late | Answer::Past | Answer::Full => {
                    known.denied = true;
                }
                Answer::Unknown => {}
            }
        }
    }

    // --- Nodes ---

    fn append(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        if node.cut {
            return;
        }
        let mut entries = Vec::new();
        if node.again || self.random.u8(..4) == 0 {
            entries = node.replica.again();
            node.again = false;
        }
        if self.kind.acks && node.replica.is_asked() {
            entries.push(node.replica.acknowledge());
        }
        if node.replica.serves() && self.random.bool() {
            if self.kind.acks {
                node.replica.ask();
            }
            entries.push(node.replica.append());
        }
        if self.random.u8(..4) == 0 {
            let engine = &self.engine;
            let of_now = |(place, _): &&(Place, Vec<u8>)| place.is_in_log(engine.at(place.id));
            let oldest = node.disk.checkpoints.iter().find(of_now).map(|(place, _)| *place);
            entries.extend(node.replica.reports(oldest));
        }
        for bytes in entries {
            self.say(|| format!("node {i} appends {}", tell(&bytes)));
            let id = self.engine.append(bytes, &mut self.random);
            if let Some(id) = id {
                self.nodes[i].replica.appended(id);
            }
        }
    }

    pub(crate) fn read(&mut self, i: usize, most: usize) {
        if self.nodes[i].cut {
            return;
        }
        for _ in 0..4 {
            let engine = &self.engine;
            let node = &mut self.nodes[i];
            match node.replica.need() {
                Need::Entries(after) => {
                    if after.is_none() && !engine.begins() {
                        node.replica.is_trimmed();
                        continue;
                    }
                    let fetched = engine.after(after);
                    if !node.replica.last_is(engine.at(after)) {
                        self.say(|| format!("node {i} has lost its place"));
                        continue;
                    }
                    for held in fetched.iter().take(most) {
                        if node.replica.place().id >= Some(held.id) {
                            continue;
                        }
                        node.again |= node.replica.read(held.id, held.time, &held.bytes);
                        if self.trace {
                            let sessions = &node.replica.state().sessions;
                            let last = Entry::decode(&held.bytes).map(|it| sessions.last(&it.name));
                            let machine = node.replica.state().machine.as_ref();
                            let done = machine.map_or(0, |toy| toy.writes.len());
                            let (step, what) = (self.step, tell(&held.bytes));
                            println!("{step:>4} node {i} reads {what}; last {last:?}, done {done}");
                        }
                        if !matches!(node.replica.need(), Need::Entries(_)) {
                            break;
                        }
                    }
                    if let Some(toy) = &node.replica.state().machine {
                        node.disk.did.extend(toy.writes.keys());
                    }
                    let at = node.replica.place();
                    if self.trace {
                        println!("{:>4} node {i} has read to {at:?}", self.step);
                    }
                    if engine.after(at.id).is_empty() && node.replica.need() == Need::Entries(at.id)
                    {
                        let most = [1, 3, 1000][self.random.usize(..3)];
                        if self.nodes[i].replica.waits() && self.is_last_resort(i) {
                            self.say(|| format!("node {i} waits no longer"));
                            self.waits += 1;
                            self.nodes[i].replica.wait_no_longer();
                        }
                        for bytes in self.nodes[i].replica.at_the_end(most) {
                            self.say(|| format!("node {i} puts back {}", tell(&bytes)));
                            self.engine.append(bytes, &mut self.random);
                        }
                    }
                    break;
                }
                Need::Comparison(after) => {
                    let next = engine.after(after).first();
                    node.replica.compare(next.map(|held| (held.id, &held.bytes[..])));
                    while let Need::Comparison(after) = node.replica.need() {
                        let next = engine.after(after).first();
                        node.replica.compare(next.map(|held| (held.id, &held.bytes[..])));
                    }
                    self.say(|| {
                        format!("node {i} has compared: {:?}", self.nodes[i].replica.need())
                    });
                }
                Need::Checkpoint(before) => {
                    let usable = |place: &Place| {
                        place.mark.position < before && place.is_in_log(engine.at(place.id))
                    };
                    let found = node.disk.checkpoints.iter().rev().find(|(place, _)| usable(place));
                    let found = found.and_then(|(_, bytes)| Checkpoint::decode(bytes).ok());
                    let place = found.as_ref().map(|it| it.place);
                    node.replica.go_back(found, engine.begins());
                    node.unacknowledged.clear();
                    self.say(|| format!("node {i} goes back to {place:?}"));
                }
                Need::Snapshot if self.continues(i) => {}
                Need::Snapshot => {
                    let from = self.random.usize(..self.nodes.len());
                    // The newest stored checkpoint that the log has, or a new one if there is no
                    // such checkpoint.
                    let kept = self.nodes[from].disk.checkpoints.iter().rev();
                    let kept = kept.filter(|_| from != i && !self.nodes[from].cut);
                    let mut kept = kept.filter(|(it, _)| it.is_in_log(self.engine.at(it.id)));
                    let kept = kept.next().map(|(_, bytes)| bytes.clone());
                    let of_now = || self.nodes[from].replica.checkpoint().filter(|_| from != i);
                    let given = kept.or_else(of_now);
                    let given = given.and_then(|bytes| Checkpoint::decode(&bytes).ok());
                    let given = given.filter(|it| it.place.is_in_log(self.engine.at(it.place.id)));
                    let begins = self.engine.begins();
                    if given.is_some() || begins {
                        self.say(|| format!("node {i} takes a snapshot of node {from}"));
                        let node = &mut self.nodes[i];
                        if let Some(it) = &given {
                            let bytes = Checkpoint::bytes(it.place, &it.state);
                            node.disk.checkpoints.push((it.place, bytes));
                        }
                        node.replica.go_back(given, begins);
                    }
                }
            }
        }
        self.hear(i);
        self.heed(i);
    }

    /// Checks the writes that have been acknowledged: another machine must have each in its files.
    fn heed(&mut self, i: usize) {
        let replica = &self.nodes[i].replica;
        let is_acknowledged = |(_, position): &(u64, u64)| replica.acknowledging(*position) > 0;
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != i);
        let mut lacking = self.nodes[i].unacknowledged.iter().filter(|it| is_acknowledged(it));
        let found = lacking
            .find(|(write, _)| !others.clone().any(|(_, node)| node.disk.did.contains(write)));
        if let Some((write, _)) = found {
            self.false_ack.get_or_insert(*write);
        }
    }

    /// Makes a node continue with the entries of its ring, up to where the log begins.
    fn continues(&mut self, i: usize) -> bool {
        let Some(first) = self.engine.log.first() else { return false };
        let raws = self.nodes[i].replica.ring().raws();
        let node = &mut self.nodes[i];
        let kept = node.disk.checkpoints.iter().rev();
        let mut kept = kept.filter_map(|(_, bytes)| Checkpoint::decode(bytes).ok());
        let done = kept.any(|it| node.replica.continue_from(it, &raws, (first.id, &first.bytes)));
        if done {
            self.say(|| format!("node {i} continues by itself"));
        }
        done
    }

    /// Returns whether no node that this one can reach will put back anything.
    fn is_last_resort(&self, i: usize) -> bool {
        let end = self.engine.log.last().map(|held| held.id);
        let is_done = |node: &Node| {
            let at_end = node.replica.need() == Need::Entries(end);
            let rests = at_end && (!node.replica.owes() || node.replica.waits());
            !node.cut && (rests || node.replica.need() == Need::Snapshot)
        };
        self.nodes.iter().enumerate().all(|(other, node)| other == i || is_done(node))
    }

    fn save(&mut self, i: usize) {
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
            self.say(|| format!("node {i} saves at {place:?}"));
        }
    }

    fn restart(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        let mut disk = std::mem::take(&mut node.disk);
        disk.ring = Some(node.replica.ring().clone());
        if self.kind.disks && self.random.u8(..4) == 0 {
            disk = Disk::default();
            self.disks_lost += 1;
        }
        self.say(|| format!("node {i} starts again"));
        self.nodes[i] = self.start(i, disk);
    }

    fn trim(&mut self, i: usize) {
        let node = &self.nodes[i];
        let place = node.replica.place();
        if node.cut || !place.is_in_log(self.engine.at(place.id)) {
            return;
        }
        let cut = node.replica.cut(|place| place.is_in_log(self.engine.at(place.id)));
        if let Some(before) = cut.last().and_then(|place| place.id) {
            self.say(|| format!("node {i} trims before {before:?}"));
            let known = node.replica.state().keepers.iter().count();
            self.trimmed_early |= known < self.nodes.len();
            self.engine.trim(before);
        }
    }
}
