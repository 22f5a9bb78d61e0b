//! Readers that stop for a while, beside a store that continues: each message is delivered once and
//! in order, or it is missing and this is reported.

use std::collections::BTreeMap;
use std::fs;

use fastrand::Rng;
use interlock_stores::disk::folder::Folder;
use interlock_stores::file::{FileStore, Found, Missing, Retention, Rotation, Settings, Survey};
use interlock_stores::Position;

use crate::everyday::{message, settings, Scratch, NOON, SECOND};
use crate::model::reader;
use crate::{seed, share};

/// The findings of a reader so far.
#[derive(Default)]
struct Told {
    numbers: Vec<u64>,
    positions: BTreeMap<u64, Position>,
    missing: Vec<Missing>,
}

impl Told {
    /// Reads up to `most`; returns whether there may be more.
    fn read(&mut self, most: usize, next: &mut dyn FnMut() -> Option<Found>) -> bool {
        for _ in 0..most {
            match next() {
                Some(Found::Message(stored)) => {
                    let number = String::from_utf8(stored.payload).unwrap().parse().unwrap();
                    self.numbers.push(number);
                    self.positions.insert(number, stored.position);
                }
                Some(Found::Missing(missing)) => self.missing.push(missing),
                None => return false,
            }
        }
        true
    }
}

struct Run {
    rng: Rng,
    scratch: Scratch,
    folder: Folder,
    settings: Settings,
    now: u64,
    number: u64,
    /// Positions by number: each is a second behind the one before.
    destroyed: u64,
}

impl Run {
    fn open(&mut self) -> FileStore<Folder> {
        // Each process has another one.
        self.settings.salt = self.rng.u32(..);
        fs::create_dir_all(&self.scratch.0).unwrap();
        FileStore::open(self.folder.clone(), self.settings.clone(), self.now).unwrap().0
    }

    fn put(&mut self, store: &mut FileStore<Folder>, count: u64) {
        for _ in 0..count {
            self.now += SECOND;
            let payload = self.number.to_string();
            store.append(&message(b"t", payload.as_bytes(), self.now)).unwrap();
            self.number += 1;
        }
        // A file that is gone makes it fail once, and another one is begun.
        let written = (0..10).any(|_| store.commit().is_ok());
        assert!(written, "{:?}", store.commit());
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.scratch.0).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".idx")).collect();
        names.sort();
        names
    }

    /// Somebody does something to a file.
    fn destroy(&mut self) {
        let names = self.names();
        let Some(index) = names.get(self.rng.usize(0..names.len().max(1))) else { return };
        let index = self.scratch.0.join(index);
        let data = index.with_extension("");
        let packed = data.with_extension("log.zst");
        self.destroyed += 1;
        match self.rng.u8(0..5) {
            0 => {
                let _ = (fs::remove_file(&data), fs::remove_file(&packed));
            }
            1 => {
                let _ = (fs::remove_file(&data), fs::remove_file(&packed));
                let _ = fs::remove_file(&index);
            }
            2 => {
                let name = format!("{}.{}", data.display(), self.destroyed);
                let _ = fs::rename(&data, name);
            }
            3 => {
                let length = fs::metadata(&index).map_or(0, |of| of.len());
                let file = fs::OpenOptions::new().write(true).open(&index).unwrap();
                file.set_len(length / 2).unwrap();
            }
            _ => {
                if let Ok(mut bytes) = fs::read(&index) {
                    let at = self.rng.usize(0..bytes.len().max(1));
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 8;
                    }
                    fs::write(&index, bytes).unwrap();
                }
            }
        }
    }
}

fn run(seed: u64, destroys: bool) {
    let mut rng = Rng::with_seed(seed);
    let scratch = Scratch::new(if destroys { "stalled-destroyed" } else { "stalled" });
    let folder = Folder::new(&scratch.0);
    let path = ["[topic].log", "all.log", "[date].log"][rng.usize(0..3)];
    let settings = Settings {
        rotation: Rotation { size: Some(rng.u64(10..200)), minutes: None },
        compression: rng.bool().then_some(1),
        retention: Retention { age: None, bytes: None },
        ..settings(path)
    };
    let mut run =
        Run { rng, scratch, folder: folder.clone(), settings, now: NOON, number: 0, destroyed: 0 };
    let mut store = run.open();
    run.put(&mut store, 3);
    let reader = reader(&folder, &run.settings.template, b"t");
    let (mut forward, mut survey) = (
        reader.forward(Position::FIRST),
        Survey::new(folder.clone(), None, Some(b"t"), Position::FIRST),
    );
    let (mut by_forward, mut by_survey) = (Told::default(), Told::default());
    by_forward.read(1, &mut || forward.find().unwrap());
    by_survey.read(1, &mut || survey.next().unwrap());
    for _ in 0..80 {
        match run.rng.u8(0..12) {
            0..=4 => {
                let count = run.rng.u64(1..12);
                run.put(&mut store, count);
            }
            5 => {
                let _ = store.rotate();
            }
            6 | 7 => {
                for _ in 0..run.rng.u8(1..6) {
                    let _ = store.upkeep(run.now);
                }
            }
            8 => {
                let most = run.rng.usize(1..30);
                by_forward.read(most, &mut || forward.find().unwrap());
            }
            9 => {
                let most = run.rng.usize(1..30);
                by_survey.read(most, &mut || survey.next().unwrap());
            }
            10 if destroys && run.rng.u8(0..3) == 0 => run.destroy(),
            11 if destroys && run.rng.u8(0..8) == 0 => {
                // All is gone, and begun anew by another process.
                drop(store);
                fs::remove_dir_all(&run.scratch.0).unwrap();
                run.destroyed += 1;
                store = run.open();
                run.put(&mut store, 1);
            }
            _ => {}
        }
    }
    // After the last written message a loss cannot be detected.
    run.put(&mut store, 1);
    let _ = store.rotate();
    run.put(&mut store, 1);
    for (what, told, next) in [
        ("forward", &mut by_forward, &mut (|| forward.find().unwrap()) as &mut dyn FnMut() -> _),
        ("survey", &mut by_survey, &mut || survey.next().unwrap()),
    ] {
        while told.read(1_000, next) {}
        told.read(1_000, next);
        let what = format!("seed {seed}: {what}: {} of {path}", run.destroyed);
        assert!(told.numbers.windows(2).all(|two| two[0] < two[1]), "{what}: {:?}", told.numbers);
        if run.destroyed == 0 {
            assert!(told.missing.is_empty(), "{what}: {:?}", told.missing);
            assert_eq!(told.numbers, (0..run.number).collect::<Vec<_>>(), "{what}");
        }
        for number in 0..run.number {
            let at = Position::new((NOON + (number + 1) * SECOND) / 1000, 0);
            let missing = told.missing.iter().any(|one| (one.from..=one.to).contains(&at));
            let told_it = told.positions.get(&number);
            assert!(told_it.is_none_or(|found| *found == at), "{what}");
            assert!(
                told_it.is_some() || missing,
                "{what}: {number} at {at} is neither delivered nor reported: {:?} {:?} {:?}",
                told.numbers,
                told.missing,
                run.names()
            );
        }
    }
    // Who comes now, too.
    let mut fresh = Told::default();
    let mut forward = reader.forward(Position::FIRST);
    while fresh.read(1_000, &mut || forward.find().unwrap()) {}
    let mut other = Told::default();
    let mut survey = Survey::new(folder, None, Some(b"t"), Position::FIRST);
    while other.read(1_000, &mut || survey.next().unwrap()) {}
    assert_eq!(fresh.numbers, other.numbers, "seed {seed}");
    assert_eq!(fresh.missing, other.missing, "seed {seed}");
    let mut backward = reader.backward(Position::LAST).unwrap();
    let mut back = Told::default();
    while back.read(1_000, &mut || backward.find().unwrap()) {}
    back.numbers.reverse();
    assert_eq!(fresh.numbers, back.numbers, "seed {seed}");
}

#[test]
fn a_stalled_reader_misses_no_existing_message() {
    for n in 0..share(8) {
        run(seed().wrapping_add(n), false);
    }
}

#[test]
fn a_reader_reports_every_message_it_does_not_deliver() {
    for n in 0..share(24) {
        run(seed().wrapping_add(1_000 + n), true);
    }
}
