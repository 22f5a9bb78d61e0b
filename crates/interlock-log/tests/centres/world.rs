//! One world: two data centres and their faults. Everything is determined by the seed.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use interlock_log::apply::Answer;
use interlock_log::entry::{Arguments, Command};
use interlock_log::machine::Rules;
use interlock_log::replica::Need;

use crate::centre::{number, Centre, Client, Disk, Node, Write};
use crate::engine::Engine;
use crate::link;

/// Faults of a world in addition to those of all worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Engines may lose everything.
    pub all: bool,
    /// Some disks are lost.
    pub disks: bool,
    /// An engine's clock falls with its entries.
    pub falls: bool,
    /// Clients send many writes at once that change nothing.
    pub bursts: bool,
    /// Each client also has its own register, which it may delete.
    pub owns: bool,
}

const BEGIN: u64 = 1_800_000_000_000;
/// Number of writes in a burst: more than the records of a client keep replies for.
const BURST: std::ops::Range<u64> = 65..200;
const SUMS: [&str; 3] = ["s0", "s1", "s2"];
const MERGED: &str = "a wrong sum, and every node says that rows were merged";

pub struct World {
    seed: u64,
    kind: Kind,
    random: Rng,
    centres: [Centre; 2],
    step: u64,
    trace: bool,
}

impl World {
    pub fn new(seed: u64, kind: Kind, rules: Rules, trace: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let centres = ["e", "w"].map(|dc| {
            let engine = Engine { falls: kind.falls, time: BEGIN, ..Engine::default() };
            let client =
                |n: usize| Client { name: format!("{dc}-{n}").into_bytes(), ..Client::default() };
            let mut centre = Centre {
                dc,
                engine,
                nodes: Vec::new(),
                clients: vec![client(0), client(1)],
                writes: BTreeMap::new(),
                notes: None,
                is_apart: false,
                starts: 0,
                waits: 0,
                ever: BTreeSet::new(),
                disks_lost: 0,
                rules,
                trace,
            };
            for i in 0..random.usize(1..=3) {
                let node = centre.start(i, Disk::default());
                centre.nodes.push(node);
            }
            centre
        });
        Self { seed, kind, random, centres, step: 0, trace }
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>4} {}", self.step, what());
        }
    }

    pub fn run(mut self, steps: &[u64]) -> Result<BTreeSet<&'static str>, String> {
        let bad = self.random.f64();
        for step in steps {
            self.step = *step;
            self.random = Rng::with_seed(self.seed.wrapping_mul(1 << 20).wrapping_add(*step));
            self.step_on(bad);
            self.watch()?;
        }
        self.settle()?;
        self.check()
    }

    fn step_on(&mut self, bad: f64) {
        let mut random = self.random.clone();
        let c = random.usize(..2);
        self.say(|| format!("in {}", self.centres[c].dc));
        let (one, other) = self.centres.split_at_mut(1);
        let (near, far) =
            if c == 0 { (&mut one[0], &mut other[0]) } else { (&mut other[0], &mut one[0]) };
        for centre in [&mut *near, &mut *far] {
            centre.engine.time += random.u64(..3);
        }
        let i = random.usize(..near.nodes.len());
        ask(near, self.step, self.kind, &mut random);
        let x = random.f64();
        if x < 0.30 {
            near.append(i, &mut random);
        } else if x < 0.60 {
            let most = [1, 3, 100][random.usize(..3)];
            near.read(i, most, &mut random);
            hear(near, i);
        } else if x < 0.80 {
            if !near.is_apart && !near.nodes[i].cut {
                link::send(near, i, far, &mut random, true);
            }
        } else if x < 0.85 {
            near.save(i);
        } else if x < 0.88 {
            let loses = self.kind.disks && random.u8(..3) == 0;
            near.restart(i, loses);
        } else if x < 0.91 {
            near.nodes[i].cut ^= true;
        } else if x < 0.93 {
            near.is_apart ^= true;
        } else if x < 0.945 {
            near.land(&mut random);
        } else if x < 0.945 + 0.03 * bad {
            let count = [1, 2, 5, 20][random.usize(..4)];
            near.say(|| format!("the engine loses {count}"));
            near.engine.lose(count);
            near.engine.time = near.engine.time.max(BEGIN);
        } else if x < 0.945 + 0.05 * bad && self.kind.all {
            near.say(|| "the engine loses everything".to_owned());
            near.engine.lose_all();
            near.engine.time = near.engine.time.max(BEGIN);
            near.notes = None;
        }
    }

    /// Checks that readers of a node that has caught up still see what the other data centre has
    /// sent.
    fn watch(&mut self) -> Result<(), String> {
        for c in 0..2 {
            let (other, losses) = (self.centres[1 - c].dc, self.centres[1 - c].engine.losses);
            let centre = &mut self.centres[c];
            for i in 0..centre.nodes.len() {
                let replica = &centre.nodes[i].replica;
                if !replica.serves() || replica.owes() || losses > 0 {
                    continue;
                }
                let Some(machine) = &replica.state().machine else { continue };
                let rules = machine.store().rules();
                let is_own = |name: &[u8], _| !name.starts_with(other.as_bytes());
                let is_of_other =
                    |state: &[u8]| rules.is_of_others(state, centre.dc.as_bytes(), &|_| false);
                let seen: BTreeMap<_, _> = machine
                    .store()
                    .all()
                    .iter()
                    .filter(|row| SUMS.iter().any(|key| key.as_bytes() == row.key)) // others are deleted, too
                    .map(|row| {
                        let theirs = rules.without(rules.trust(row.state.into()), is_own);
                        let value = rules.view(Some(&theirs), 0).value(0);
                        (row.key.to_vec(), (number(&value), is_of_other(row.state)))
                    })
                    .collect();
                // A row to which the other contributed nothing comes back as a write of this data
                // centre.
                for (key, (before, _)) in centre.nodes[i].shown.iter().filter(|(_, it)| it.1) {
                    let is_back = seen.get(key).is_none_or(|(now, _)| now < before);
                    if is_back && replica.merged() == 0 {
                        let key = String::from_utf8_lossy(key);
                        return Err(format!(
                            "a row goes back: {key} at node {i} in step {}",
                            self.step
                        ));
                    }
                }
                centre.nodes[i].shown = seen;
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), String> {
        self.step += 1;
        self.say(|| "faults cease".to_owned());
        let mut random = Rng::with_seed(self.seed);
        for centre in &mut self.centres {
            centre.nodes.iter_mut().for_each(|node| node.cut = false);
        }
        let mut calm = 0;
        for round in 0..200 {
            let before = self.ends();
            for centre in &mut self.centres {
                while !centre.engine.flying.is_empty() && !centre.engine.log.is_empty() {
                    centre.land(&mut random);
                }
                for i in 0..centre.nodes.len() {
                    for _ in 0..12 {
                        centre.read(i, usize::MAX, &mut random);
                    }
                    hear(centre, i);
                }
                for i in 0..centre.nodes.len() {
                    let again = centre.nodes[i].replica.again();
                    if !centre.engine.log.is_empty() {
                        for bytes in again {
                            centre.engine.add(bytes);
                        }
                    }
                }
            }
            let [one, other] = &mut self.centres;
            let is_sent = link::send(one, 0, other, &mut random, false);
            let is_sent = link::send(other, 0, one, &mut random, false) && is_sent;
            let rests = |centre: &Centre| {
                let end = centre.engine.log.last().map(|held| held.id);
                centre.nodes.iter().all(|node: &Node| {
                    node.replica.need() == Need::Entries(end)
                        && !node.replica.owes()
                        && node.replica.serves()
                })
            };
            let is_calm = before == self.ends() && self.centres.iter().all(rests) && is_sent;
            calm = if is_calm { calm + 1 } else { 0 };
            if calm == 2 {
                self.say(|| format!("rest after {round} rounds"));
                return Ok(());
            }
        }
        Err("no rest".into())
    }

    fn ends(&self) -> [Option<(u64, u64)>; 2] {
        [0, 1].map(|c| self.centres[c].engine.log.last().map(|held| held.id))
    }

    fn check(&self) -> Result<BTreeSet<&'static str>, String> {
        let mut narrowed = BTreeSet::new();
        // No disk is lost, and rings keep all entries.
        if self.kind.bursts && self.centres.iter().any(|centre| centre.waits > 0) {
            return Err("a node waited for what nobody has".into());
        }
        let nodes = || self.centres.iter().flat_map(|centre| &centre.nodes);
        // The nodes of the data centre that owns the sum.
        let is_said = self
            .centres
            .iter()
            .any(|centre| centre.nodes.iter().all(|node| node.replica.merged() > 0));
        for centre in &self.centres {
            let bytes = centre.nodes[0].replica.checkpoint();
            for node in &centre.nodes {
                if node.replica.checkpoint() != bytes {
                    return Err(format!("nodes of {} differ", centre.dc));
                }
                let sessions = &node.replica.state().sessions;
                let gone = node.disk.did.iter().find(|write| {
                    let it = &centre.writes[write];
                    !sessions.has_done(&centre.clients[it.client].name, it.number)
                });
                if let Some(gone) = gone {
                    return Err(format!(
                        "a write that a node had done is gone: {:?}",
                        centre.writes[gone].words
                    ));
                }
            }
        }
        for key in SUMS {
            let (mut least, mut most) = (0, 0);
            let has_row = self.centres.iter().any(|centre| centre.has_created(key));
            for centre in &self.centres {
                let sessions = &centre.nodes[0].replica.state().sessions;
                let is_of = |it: &Write| it.words.iter().any(|word| word.ends_with(key));
                for (write, it) in centre.writes.iter().filter(|(_, it)| is_of(it)) {
                    let was_done = |write: &u64| centre.ever.contains(write);
                    if !sessions.has_done(&centre.clients[it.client].name, it.number) {
                        // The other data centre may have it.
                        most += u64::from(centre.disks_lost > 0 && was_done(write));
                        continue;
                    }
                    // A write that is repeated before earlier ones are put back may not find its
                    // row.
                    let is_sure = it.words[0] == "HINCRBY"
                        || has_row
                            && centre.is_put_back(it)
                            && it.answer.as_ref().is_some_and(|answer| answer.starts_with(':'));
                    least += u64::from(is_sure);
                    most += 1;
                }
            }
            let value = self.centres[0].value(0, key, 0);
            self.say(|| format!("{key}: {:?}", self.totals(key)));
            if !(least..=most).contains(&value) {
                if !is_said {
                    let said: Vec<_> = nodes().map(|node| node.replica.merged()).collect();
                    return Err(format!(
                        "sum: {key} is {value}, and {least} to {most} is right; merged {said:?}"
                    ));
                }
                narrowed.insert(MERGED);
            }
        }
        self.check_owned()?;
        let of = |c: usize| {
            let machine = self.centres[c].nodes[0].replica.state().machine.as_ref();
            machine.map(|it| it.store().checksum())
        };
        if of(0) != of(1) {
            self.say(|| format!("{:?}", self.rows()));
            return Err("data centres differ".into());
        }
        Ok(narrowed)
    }

    /// Checks that a row which only one client writes is as its last write left it. A delete counts
    /// even if it found no row and the row comes back later.
    fn check_owned(&self) -> Result<(), String> {
        for centre in &self.centres {
            let sessions = &centre.nodes[0].replica.state().sessions;
            for (c, client) in centre.clients.iter().enumerate() {
                let (key, mut due, mut added) = (own(centre.dc, c), vec![0], 0);
                let mut before = Vec::new();
                let is_of = |it: &&Write| {
                    let is_of_row = it.words.iter().any(|word| word.ends_with(&key));
                    it.client == c && is_of_row && sessions.has_done(&client.name, it.number)
                };
                let done = centre.writes.values().filter(is_of);
                for it in BTreeMap::from_iter(done.map(|it| (it.number, it))).values() {
                    match (&it.words[0][..], it.words[it.words.len() - 1].parse()) {
                        ("DEL", _) => (before, due, added) = (due, vec![0], 0),
                        // A delete that is put back leaves a row to which something was added
                        // since.
                        ("HINCRBY", _) => (due, added) = ([&due[..], &before].concat(), added + 1),
                        (_, value) => due = value.into_iter().collect(),
                    }
                }
                if centre.value(0, &key, 0) < added {
                    return Err(format!("an older delete won: {key} lacks some of {added}"));
                }
                let value = centre.value(0, &key, 1);
                if !due.contains(&value) {
                    return Err(format!(
                        "an older write of a client won: {key} is {value}, not of {due:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Names and times of the totals of a row in both data centres.
    fn totals(&self, key: &str) -> [Vec<(String, u64)>; 2] {
        [0, 1].map(|c| {
            let mut totals = Vec::new();
            let machine = self.centres[c].nodes[0].replica.state().machine.as_ref();
            let Some(store) = machine.map(|it| it.store()) else { return totals };
            if let Some(state) = store.get(key.as_bytes()) {
                let rules = store.rules();
                rules.each_total(&rules.trust(state.into()), |name, at| {
                    totals.push((String::from_utf8_lossy(name).into_owned(), at >> 16));
                });
            }
            totals
        })
    }

    fn rows(&self) -> Vec<Vec<(String, Vec<u8>)>> {
        let rows = |centre: &Centre| {
            let Some(machine) = &centre.nodes[0].replica.state().machine else { return Vec::new() };
            let all = machine.store().all();
            let mut all: Vec<_> = all
                .iter()
                .map(|row| (String::from_utf8_lossy(row.key).into_owned(), row.state.to_vec()))
                .collect();
            all.sort();
            all
        };
        self.centres.iter().map(rows).collect()
    }
}

fn ask(centre: &mut Centre, step: u64, kind: Kind, random: &mut Rng) {
    let owns = kind.owns;
    for c in 0..centre.clients.len() {
        let (node, start, sent) = centre.clients[c].sent;
        let lives = centre.nodes[node].start == start;
        if sent > 0 && step - sent <= 40 && lives {
            continue;
        }
        let node = random.usize(..centre.nodes.len());
        if !centre.nodes[node].replica.serves() || random.u8(..4) > 0 {
            continue;
        }
        let start = centre.nodes[node].start;
        let client = &mut centre.clients[c];
        if sent == 0 {
            let count = if kind.bursts && random.bool() { random.u64(BURST) } else { 0 };
            for _ in 0..count {
                client.number += 1;
                let command = Command {
                    client: Some((client.name[..].into(), client.number)),
                    deadline: centre.nodes[node].replica.deadline(0, 60_000),
                    arguments: Arguments::new(&["TABLE", "INCR", "t:none", "n", "1"]),
                };
                centre.nodes[node].replica.submit(0, command);
            }
            client.number += 1;
            client.write = centre.writes.len() as u64 + 1;
            client.deadline = centre.nodes[node].replica.deadline(0, 60_000);
            let (key, register) = (SUMS[random.usize(..3)], random.u8(..2));
            let own = format!("t:{}", own(centre.dc, c));
            let line = match random.u8(..10) {
                0..=2 if owns => format!("HSET {own} x {}", client.write),
                3 | 4 if owns && c == 1 => {
                    format!("TABLE SET {own} ANY DEFAULT x {}", client.write)
                }
                5 if owns => format!("DEL {own}"),
                3 | 4 if owns => format!("HINCRBY {own} n 1"),
                0..4 => format!("HINCRBY t:{key} n 1"),
                4..7 => format!("TABLE INCR t:{key} n 1"),
                7..9 => format!("HSET t:r{register} x {}", client.write),
                _ => format!("TABLE PATCH t:r{register} x {}", client.write),
            };
            client.words = line.split(' ').map(str::to_owned).collect();
            let write = Write {
                client: c,
                number: client.number,
                words: client.words.clone(),
                answer: None,
            };
            centre.writes.insert(client.write, write);
        }
        client.sent = (node, start, step);
        let command = Command {
            client: Some((client.name[..].into(), client.number)),
            deadline: client.deadline,
            arguments: Arguments::new(&client.words),
        };
        let write = client.write;
        centre.nodes[node].replica.submit(write, command);
        hear(centre, node);
    }
}

/// Returns the key of a client's own register.
fn own(dc: &str, client: usize) -> String {
    format!("{dc}own{client}")
}

fn hear(centre: &mut Centre, node: usize) {
    for (write, answer) in centre.nodes[node].replica.answers() {
        centre.say(|| format!("node {node} answers write {write}: {answer:?}"));
        let Some(known) = centre.writes.get_mut(&write) else { continue };
        let client = &mut centre.clients[known.client];
        if client.write == write {
            client.sent.2 = 0;
        }
        if let Answer::Done { reply: Some(reply), .. } = answer {
            let text = String::from_utf8_lossy(&reply).into_owned();
            known.answer.get_or_insert(text);
        }
    }
}
