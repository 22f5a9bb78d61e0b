//! Forged entries, ring records and checkpoints: nodes stay equal, continue, and terminate.
//!
//! `INTERLOCK_SEED` repeats a run, `INTERLOCK_FUZZ_ROUNDS` lengthens it.

use fastrand::Rng;
use interlock_log::checkpoint::Checkpoint;
use interlock_log::codec::checksum;
use interlock_log::entry::{Arguments, Body, Command, Entry, Mark, Source};
use interlock_log::machine::{Limits, Rules};
use interlock_log::replica::{Need, Replica, Setup};
use interlock_log::ring::{Memory, Record, Ring};
use interlock_log::rows::Rows;

use crate::commands::settings;

const NOW: u64 = 1_700_000_000_000;
type Node = Replica<Rows, Memory>;

/// The log: id, time and bytes of each entry.
#[derive(Default)]
struct Log(Vec<((u64, u64), u64, Vec<u8>)>);

impl Log {
    fn add(&mut self, bytes: Vec<u8>, time: u64) {
        let number = self.0.len() as u64 + 1;
        self.0.push(((1, number), time, bytes));
    }

    /// Makes a node read to the end, however often it goes back.
    fn read(&self, node: &mut Node) {
        let mut steps = 0;
        let from = |id: Option<(u64, u64)>| id.map_or(0, |(_, number)| number as usize);
        loop {
            steps += 1;
            assert!(steps < 300, "it goes round in circles: {:?}", node.need());
            match node.need() {
                Need::Entries(id) => {
                    for (id, time, bytes) in &self.0[from(id)..] {
                        node.read(*id, *time, bytes);
                        if !matches!(node.need(), Need::Entries(_)) {
                            break;
                        }
                    }
                    if matches!(node.need(), Need::Entries(_)) {
                        return;
                    }
                }
                Need::Comparison(id) => {
                    for (id, _, bytes) in &self.0[from(id)..] {
                        node.compare(Some((*id, bytes)));
                        if !matches!(node.need(), Need::Comparison(_)) {
                            break;
                        }
                    }
                    node.compare(None);
                }
                Need::Checkpoint(_) => node.go_back(None, true),
                Need::Snapshot => panic!("the log is whole"),
            }
        }
    }
}

fn node(name: &str, newest: Option<Checkpoint<Rows>>, ring: Memory) -> Node {
    let mut genesis = Vec::new();
    settings("east", 10, 2).encode(&mut genesis);
    let setup = Setup {
        name: format!("{name}/1").into_bytes(),
        node: name.as_bytes().to_vec(),
        machine: name.as_bytes().to_vec(),
        genesis,
        limits: Limits::default(),
        rules: Rules::ALL,
    };
    Replica::new(setup, ring, newest)
}

fn write(node: &mut Node, chance: &mut Rng) -> Vec<u8> {
    for ticket in 0..chance.u64(1..4) {
        let lines = ["HINCRBY t:a n 2", "HSET t:b n 5", "DEL t:a", "PEXPIRE t:b 3", "HSET t:c n 1"];
        let words: Vec<&str> = lines[chance.usize(..lines.len())].split(' ').collect();
        let client = chance.bool().then(|| (b"ann"[..].into(), chance.u64(1..50)));
        let deadline = node.deadline(0, 10_000);
        node.submit(ticket, Command { client, deadline, arguments: Arguments::new(&words) });
    }
    node.append()
}

fn wild(chance: &mut Rng) -> u64 {
    match chance.u8(..5) {
        0 => u64::MAX - chance.u64(..3),
        1 => 1 << chance.u8(..64),
        2 => NOW + chance.u64(..100_000),
        _ => chance.u64(..20),
    }
}

/// Returns bytes that differ a little from others.
fn bent(bytes: &[u8], chance: &mut Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..chance.usize(1..4) {
        if bytes.is_empty() {
            break;
        }
        let at = chance.usize(..bytes.len());
        match chance.u8(..6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, chance.u8(..)),
            2 => drop(bytes.remove(at)),
            3 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFE, 0xFF][chance.usize(..6)],
            _ => bytes[at] ^= 1 << chance.u8(..8),
        }
    }
    bytes
}

/// Returns an entry that an attacker could write.
fn forged(bytes: &[u8], state: &[u8], chance: &mut Rng) -> Vec<u8> {
    let Ok(mut entry) = Entry::decode(bytes) else { return bent(bytes, chance) };
    for _ in 0..chance.usize(1..4) {
        match chance.u8(..8) {
            0 => entry.number = wild(chance),
            1 => entry.seen = wild(chance),
            2 => entry.read = Mark { position: wild(chance), checksum: wild(chance) },
            3 => entry.name = [&b"a/1"[..], b"b/1", b"", b"evil/9"][chance.usize(..4)].to_vec(),
            4 => {
                let mark = Mark { position: wild(chance), checksum: wild(chance) };
                let (name, time, asks) = (b"west".to_vec(), wild(chance), wild(chance));
                let (marks, is_returned) = (vec![mark; chance.usize(..3)], chance.bool());
                let (checked, told) = (vec![mark], marks.clone());
                let source = Source { name, marks, time, checked, told, asks, is_returned };
                let source = chance.bool().then_some(source);
                entry.body = Body::State { source, bytes: bent(state, chance) };
            }
            5 => {
                if let Body::Commands(commands) | Body::Asking(commands) = &mut entry.body {
                    for command in commands {
                        command.deadline = wild(chance);
                        if let Some((_, number)) = &mut command.client {
                            *number = wild(chance).max(1);
                        }
                    }
                }
            }
            6 => {
                if let Body::PutBack(lost) = &mut entry.body {
                    (lost.time, lost.busy, lost.writer) =
                        (wild(chance), wild(chance), wild(chance));
                    for done in &mut lost.done {
                        (done.index, done.stamp) = (wild(chance), wild(chance));
                    }
                }
            }
            _ => entry.nonce = wild(chance),
        }
    }
    if chance.u8(..4) == 0 {
        bent(&entry.encode(), chance)
    } else {
        entry.encode()
    }
}

fn state(node: &Node) -> Vec<u8> {
    let mut bytes = Vec::new();
    node.state().encode(&mut bytes);
    bytes
}

fn seeds(rounds: u64) -> impl Iterator<Item = u64> {
    let from = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let first = from("INTERLOCK_SEED").unwrap_or_else(|| fastrand::u64(..u64::MAX / 2));
    println!("INTERLOCK_SEED={first}");
    first..first + from("INTERLOCK_FUZZ_ROUNDS").unwrap_or(rounds)
}

#[test]
fn nodes_that_read_forged_entries_stay_equal_and_go_on() {
    // In these two a state is joined at the last time that is believed, and written to.
    for seed in [607_542_220, 5_000_421].into_iter().chain(seeds(150)) {
        let mut chance = Rng::with_seed(seed);
        let mut nodes = [node("a", None, Memory::new(50)), node("b", None, Memory::new(50))];
        let (mut log, mut time) = (Log::default(), NOW);
        let mut checkpoint = None;
        for _ in 0..60 {
            time += chance.u64(..2000);
            let at = chance.usize(..2);
            let node = &mut nodes[at];
            match chance.u8(..12) {
                0..=3 if node.state().machine.is_some() => log.add(write(node, &mut chance), time),
                4 => node.again().into_iter().for_each(|one| log.add(one, time)),
                5 => node.at_the_end(8).into_iter().for_each(|one| log.add(one, time)),
                6 if node.state().machine.is_some() => {
                    let reports = node.reports(Some(node.place()));
                    reports.into_iter().for_each(|one| log.add(one, time));
                    let entry = if chance.bool() { node.acknowledge() } else { node.forget(b"b") };
                    log.add(entry, time);
                }
                7 => {
                    checkpoint = node.checkpoint().or(checkpoint);
                    // The node restarts with some of the entries of its ring.
                    let newest = checkpoint.as_deref().map(Checkpoint::decode).transpose();
                    let newest =
                        newest.unwrap_or_else(|_| panic!("seed {seed}: its own checkpoint"));
                    let mut ring = Memory::new(50);
                    nodes[at].ring().each(&mut |kept| {
                        let bytes = Record::of(kept);
                        let bytes =
                            if chance.u8(..3) == 0 { bent(&bytes, &mut chance) } else { bytes };
                        if let Ok(record) = Record::decode(&bytes) {
                            ring.restore(record);
                        }
                        true
                    });
                    nodes[at] = self::node(["a", "b"][at], newest, ring);
                }
                _ if !log.0.is_empty() => {
                    let state = state(&nodes[0]);
                    let bytes = &log.0[chance.usize(..log.0.len())].2;
                    log.add(forged(bytes, &state, &mut chance), time);
                }
                _ => {}
            }
            for node in &mut nodes {
                log.read(node);
                node.answers();
            }
            let [one, other] = &nodes;
            assert_eq!(one.place(), other.place(), "seed {seed}");
            assert!(state(one) == state(other), "seed {seed}: the nodes differ");
        }
    }
}

/// Two nodes can begin a log. Trimmed before the second beginning, it would look whole.
#[test]
fn no_checkpoint_ends_at_a_repeated_genesis() {
    let (mut log, mut one, mut other) =
        (Log::default(), node("a", None, Memory::new(50)), node("b", None, Memory::new(50)));
    let (first, second) = (one.at_the_end(8), other.at_the_end(8));
    first.into_iter().for_each(|entry| log.add(entry, NOW));
    log.read(&mut one);
    assert!(one.checkpoint().is_some());
    second.into_iter().for_each(|entry| log.add(entry, NOW));
    log.read(&mut one);
    assert_eq!(one.place().mark.position, 2);
    assert!(one.checkpoint().is_none());
    log.add(write(&mut one, &mut Rng::with_seed(1)), NOW);
    log.read(&mut one);
    assert!(one.checkpoint().is_some());
}

#[test]
fn a_forged_checkpoint_is_refused_or_can_be_gone_on_from() {
    let mut taken = 0;
    for seed in seeds(60) {
        let mut chance = Rng::with_seed(seed);
        let (mut log, mut one) = (Log::default(), node("a", None, Memory::new(50)));
        one.at_the_end(8).into_iter().for_each(|entry| log.add(entry, NOW));
        log.read(&mut one);
        for step in 0..20 {
            log.add(write(&mut one, &mut chance), NOW + step * 100);
            log.read(&mut one);
        }
        let Some(bytes) = one.checkpoint() else { continue };
        let (content, _) = bytes.split_at(bytes.len() - 8);
        for _ in 0..100 {
            let mut bytes = bent(content, &mut chance);
            assert!(bytes == content || Checkpoint::<Rows>::decode(&bytes).is_err());
            bytes.extend_from_slice(&checksum(2, &bytes).to_le_bytes());
            let Ok(forged) = Checkpoint::<Rows>::decode(&bytes) else { continue };
            taken += 1;
            let mut other = node("b", Some(forged), Memory::new(50));
            if other.state().machine.is_none() || other.place().id.is_none_or(|(ms, _)| ms != 1) {
                continue;
            }
            let from = other.place().id.map_or(0, |(_, number)| number as usize);
            for _ in 0..5 {
                let entry = write(&mut other, &mut chance);
                for (id, time, bytes) in log.0.get(from..).unwrap_or(&[]) {
                    other.read(*id, *time, bytes);
                }
                let id = (1, other.place().id.map_or(1, |(_, number)| number.saturating_add(1)));
                other.read(id, NOW + 10_000, &entry);
                other.answers();
            }
            if let Some(again) = other.checkpoint() {
                assert!(Checkpoint::<Rows>::decode(&again).is_ok(), "seed {seed}");
            }
        }
    }
    assert!(taken > 50, "{taken}");
}
