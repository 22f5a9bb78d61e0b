//! Readers beside a store that writes, begins, renames, compresses and removes files. The next to
//! run is chosen before each operation on the disk, at random; each may pause while the other does
//! a thousand.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use fastrand::Rng;
use interlock_stores::disk::simulated::Simulated;
use interlock_stores::disk::{Access, Disk, Entry, File};
use interlock_stores::file::{verify_all, FileStore, Found, Retention, Rotation, Settings, Survey};
use interlock_stores::Position;

use crate::everyday::{message, settings, NOON, SECOND};
use crate::model::reader;
use crate::{seed, share};

const WRITER: usize = 0;
const READER: usize = 1;

/// Says which of the two touches the disk.
struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    rng: Rng,
    turn: usize,
    /// Operations before it is decided again.
    left: u32,
    gone: [bool; 2],
}

impl Turns {
    fn take<T>(&self, who: usize, operation: impl FnOnce() -> T) -> T {
        let mut state = self.state.lock().unwrap();
        while state.turn != who && !state.gone[1 - who] {
            state = self.changed.wait(state).unwrap();
        }
        let done = operation();
        if state.left == 0 {
            state.turn = 1 - state.turn;
            let most = [1, 4, 20, 100, 2_000][state.rng.usize(0..5)];
            state.left = state.rng.u32(0..most);
            self.changed.notify_all();
        }
        state.left -= u32::from(state.turn == who && state.left > 0);
        done
    }
}

/// The other one continues alone, also if this one panics.
struct Leaves(Arc<Turns>, usize);

impl Drop for Leaves {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.lock() {
            state.gone[self.1] = true;
        }
        self.0.changed.notify_all();
    }
}

/// A disk that two use in turns.
#[derive(Clone)]
struct Shared {
    disk: Simulated,
    turns: Arc<Turns>,
    who: usize,
}

struct SharedFile {
    file: <Simulated as Disk>::File,
    turns: Arc<Turns>,
    who: usize,
}

impl Shared {
    fn take<T>(&self, operation: impl FnOnce(&Simulated) -> T) -> T {
        self.turns.take(self.who, || operation(&self.disk))
    }
}

impl Disk for Shared {
    type File = SharedFile;
    type Lock = <Simulated as Disk>::Lock;

    fn lock(&self, path: &str) -> io::Result<Option<Self::Lock>> {
        self.disk.lock(path)
    }

    fn open(&self, path: &str, access: Access) -> io::Result<SharedFile> {
        let file = self.take(|disk| disk.open(path, access))?;
        Ok(SharedFile { file, turns: Arc::clone(&self.turns), who: self.who })
    }

    fn make_folder(&self, path: &str) -> io::Result<Vec<String>> {
        self.take(|disk| disk.make_folder(path))
    }

    /// As a folder is read: what gets another name meanwhile may be seen under neither, or under both.
    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let parity = |entry: &Entry| entry.name.bytes().map(u32::from).sum::<u32>() % 2 == 0;
        let mut first = self.take(|disk| disk.list(path))?;
        first.retain(parity);
        let mut second = self.take(|disk| disk.list(path))?;
        second.retain(|entry| !parity(entry));
        first.extend(second);
        Ok(first)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.take(|disk| disk.rename(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.take(|disk| disk.remove(path))
    }

    fn remove_folder(&self, path: &str) -> io::Result<()> {
        self.take(|disk| disk.remove_folder(path))
    }

    fn sync_folder(&self, path: &str) -> io::Result<()> {
        self.take(|disk| disk.sync_folder(path))
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.take(|disk| disk.exists(path))
    }

    fn holds(&self, path: &str, file: &SharedFile) -> bool {
        self.take(|disk| disk.holds(path, &file.file))
    }

    fn describe(&self, path: &str) -> String {
        self.disk.describe(path)
    }
}

impl SharedFile {
    fn take<T>(&self, operation: impl FnOnce(&<Simulated as Disk>::File) -> T) -> T {
        self.turns.take(self.who, || operation(&self.file))
    }
}

impl File for SharedFile {
    fn length(&self) -> io::Result<u64> {
        self.take(File::length)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.take(|file| file.read(offset, buffer))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.take(|file| file.write(offset, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.take(File::sync)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.take(|file| file.truncate(length))
    }
}

/// Writes until it is enough.
fn write(disk: Shared, settings: Settings, mut rng: Rng, written: &AtomicU64) {
    let (mut number, mut now) = (0u64, NOON);
    let mut store = FileStore::open(disk.clone(), settings.clone(), now).unwrap().0;
    for _ in 0..60 {
        match rng.u8(0..10) {
            0..=5 => {
                for _ in 0..rng.u64(1..8) {
                    now += SECOND;
                    let payload = format!("{number:04}");
                    store.append(&message(b"t", payload.as_bytes(), now)).unwrap();
                    number += 1;
                }
                store.commit().unwrap();
                written.store(number, Ordering::SeqCst);
            }
            6 => store.rotate().unwrap(),
            7 => store.tick(now).unwrap(),
            8 if rng.u8(0..4) == 0 => {
                store.close().unwrap();
                let settings = Settings { salt: rng.u32(..), ..settings.clone() };
                store = FileStore::open(disk.clone(), settings, now).unwrap().0;
            }
            _ => {
                for _ in 0..8 {
                    if !store.upkeep(now).unwrap() {
                        break;
                    }
                }
            }
        }
    }
}

struct Run {
    disk: Shared,
    settings: Settings,
    written: Arc<AtomicU64>,
    what: String,
}

impl Run {
    /// Checks that what there is comes once and in order, and nothing is missing but what went for its age.
    fn check(&self, reader: &str, before: u64, mut next: impl FnMut() -> Option<Found>) {
        let what = format!("{}: {reader}", self.what);
        let mut numbers = Vec::new();
        let mut gaps = 0;
        while let Some(found) = next() {
            match found {
                Found::Message(stored) => {
                    let number = String::from_utf8(stored.payload).unwrap();
                    numbers.push(number.parse::<u64>().unwrap());
                }
                Found::Missing(missing) => {
                    assert!(self.settings.retention.bytes.is_some(), "{what}: {missing:?}");
                    assert!(
                        missing.why.contains("gone") && missing.why.contains("files"),
                        "{what}: {missing:?}"
                    );
                    gaps += 1;
                }
            }
        }
        if reader == "backward" {
            numbers.reverse();
        }
        let jumps = numbers.windows(2).filter(|two| two[0] + 1 != two[1]).count();
        assert!(jumps <= gaps, "{what}: {numbers:?}");
        assert!(numbers.windows(2).all(|two| two[0] < two[1]), "{what}: {numbers:?}");
        assert!(
            before == 0 || numbers.last() >= Some(&(before - 1)),
            "{what}: {before} {numbers:?}"
        );
        if self.settings.retention.bytes.is_none() {
            assert!(numbers.first().is_none_or(|first| *first == 0), "{what}: {numbers:?}");
        }
    }

    fn read(&self, rng: &mut Rng) {
        let before = self.written.load(Ordering::SeqCst);
        let topic = reader(&self.disk, &self.settings.template, b"t");
        match rng.u8(0..5) {
            0 => {
                let all = verify_all(&self.disk, None).unwrap();
                assert!(all.missing.is_empty(), "{}: verify: {:?}", self.what, all.missing);
                assert!(all.unreadable.is_empty(), "{}: verify: {:?}", self.what, all.unreadable);
                for (n, file) in all.files.iter().enumerate() {
                    let mut file = file.clone();
                    if n + 1 == all.files.len() {
                        // It may be being written.
                        file.trailing = 0;
                    }
                    assert!(file.is_whole(), "{}: verify: {file:?}", self.what);
                }
                let count: u64 = all.files.iter().map(|file| file.messages).sum();
                let none_goes = self.settings.retention.bytes.is_none();
                assert!(count >= before || !none_goes, "{}: verify: {count} {before}", self.what);
            }
            1 => {
                let mut survey = Survey::new(self.disk.clone(), None, Some(b"t"), Position::FIRST);
                self.check("survey", before, || survey.next().unwrap());
            }
            2 => {
                let mut forward = topic.forward(Position::FIRST);
                self.check("forward", before, || forward.find().unwrap());
            }
            3 => {
                let mut backward = topic.backward(Position::LAST).unwrap();
                self.check("backward", before, || backward.find().unwrap());
            }
            _ => {
                let count = topic.count().unwrap();
                let none_goes = self.settings.retention.bytes.is_none();
                assert!(count >= before || !none_goes, "{}: count: {count} {before}", self.what);
            }
        }
    }
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let path = ["[topic].log", "all.log", "[topic]/[date].log"][rng.usize(0..3)];
    let settings = Settings {
        rotation: Rotation { size: Some(rng.u64(10..100)), minutes: None },
        compression: rng.bool().then_some(1),
        retention: Retention { age: None, bytes: rng.bool().then_some(3_000) },
        ..settings(path)
    };
    let state = State { rng: rng.fork(), turn: WRITER, left: 0, gone: [false; 2] };
    let turns = Arc::new(Turns { state: Mutex::new(state), changed: Condvar::new() });
    let (disk, written) = (Simulated::new(seed), Arc::new(AtomicU64::new(0)));
    let disk = |who| Shared { disk: disk.clone(), turns: Arc::clone(&turns), who };
    let leaves = Leaves(Arc::clone(&turns), WRITER);
    let writer = std::thread::spawn({
        let (disk, settings, rng) = (disk(WRITER), settings.clone(), rng.fork());
        let written = Arc::clone(&written);
        move || {
            let _leaves = leaves;
            write(disk, settings, rng, &written);
        }
    });
    let what = format!("seed {seed}, {path}");
    let run = Run { disk: disk(READER), settings, written, what };
    let leaves = Leaves(Arc::clone(&turns), READER);
    // Its folder is there, so that it can be listed.
    run.disk.make_folder("").unwrap();
    while !writer.is_finished() {
        run.read(&mut rng);
    }
    drop(leaves);
    writer.join().unwrap();
}

#[test]
fn concurrent_readers_read_correctly_while_a_store_works() {
    for n in 0..share(40) {
        run(seed().wrapping_add(n));
    }
}
