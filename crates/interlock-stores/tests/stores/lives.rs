//! A file store on a disk that loses what was not synced, through many crashes: after each, what was
//! confirmed is there, nothing twice, nothing out of order.

use std::collections::HashMap;

use fastrand::Rng;
use interlock_stores::disk::simulated::{Faults, Simulated};
use interlock_stores::file::{FileStore, Fsync, Report, Retention, Rotation, Settings, Taken};
use interlock_stores::Message;

use crate::everyday::{template, DAY, NOON, SECOND};
use crate::model::{read_all, read_from_places, reader, Given, Model, Topic};
use crate::{seed, share};

const TOPICS: [&[u8]; 5] = [b"a", b"b/..", b"", b"..", b"a-20261123T115959.000"];
const PATHS: [&str; 5] = [
    "[topic].log",
    "all.log",
    "[topic]/[date].log",
    "x/[date]/[topic]-[hour].log",
    "[date]-[topic].log",
];

struct Life {
    seed: u64,
    rng: Rng,
    now: u64,
    settings: Settings,
    model: Model,
    /// The last number that was given to each origin; they go round.
    numbers: [u64; 3],
    /// The order in which they were given first.
    order: HashMap<(u128, u64), usize>,
    /// Messages whose fate is not known, and that are sent again with their numbers.
    again: Vec<(usize, Given)>,
    /// A sync failed under a policy that had said that all is well: some in the midst may be lost.
    unsure: bool,
}

/// Counts of what was met in all lives: what never was proves nothing.
#[derive(Debug, Default)]
struct Seen {
    lives: u64,
    crashes: u64,
    kills: u64,
    failures: u64,
    torn: u64,
    known: u64,
    withdrawn: u64,
    rotated: u64,
    compressed: u64,
    removed: u64,
    given_up: u64,
    unsure: u64,
    crashes_while_opening: u64,
    folders_gone: u64,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let path = PATHS[rng.usize(0..PATHS.len())];
        let some = |rng: &mut Rng, values: &[u64]| {
            let value = values[rng.usize(0..values.len())];
            (value > 0).then_some(value)
        };
        let settings = Settings {
            fsync: [Fsync::Always, Fsync::EverySecond, Fsync::Never][rng.usize(0..3)],
            rotation: Rotation {
                size: some(&mut rng, &[0, 200, 2_000]),
                minutes: some(&mut rng, &[0, 0, 7, 60]).map(|minutes| minutes as u32),
            },
            retention: Retention { age: None, bytes: some(&mut rng, &[0, 0, 0, 6_000]) },
            compression: rng.bool().then_some(1),
            descriptors: [2, 4, 64][rng.usize(0..3)],
            salt: rng.u32(..),
            ..Settings::new("keep", template(path))
        };
        Life {
            seed,
            rng,
            now: NOON,
            settings,
            model: Model::default(),
            numbers: [0; 3],
            order: HashMap::new(),
            again: Vec::new(),
            unsure: false,
        }
    }

    /// Works until the machine stops, or it is enough.
    fn work(&mut self, disk: &Simulated, store: &mut FileStore<Simulated>, seen: &mut Seen) {
        // Unconfirmed messages are sent again, as by a forwarding agent.
        let again = std::mem::take(&mut self.again);
        for (topic, given) in again {
            self.give(store, topic, given, seen);
        }
        for _ in 0..self.rng.u32(1..60) {
            if disk.stopped() {
                return;
            }
            self.step(disk, store, seen);
        }
    }

    fn give(
        &mut self,
        store: &mut FileStore<Simulated>,
        topic: usize,
        given: Given,
        seen: &mut Seen,
    ) {
        let Given { payload, origin, number } = &given;
        let (origin, number) = (*origin, *number);
        let message = Message { topic: TOPICS[topic], payload, time: self.now, origin, number };
        match store.append(&message).unwrap() {
            Taken::Waits(_) => {
                self.model.topics.entry(TOPICS[topic].to_vec()).or_default().given.push(given);
            }
            Taken::Known => {
                seen.known += 1;
                let some = self.unsure || self.settings.retention.bytes.is_some();
                let topic = self.model.topics.get(TOPICS[topic]);
                let here = topic.is_some_and(|topic| topic.given.contains(&given));
                assert!(some || here, "seed {}: {given:?} is not here", self.seed);
            }
        }
    }

    fn step(&mut self, disk: &Simulated, store: &mut FileStore<Simulated>, seen: &mut Seen) {
        match self.rng.u8(0..25) {
            0..=12 => {
                self.give_some(store, seen);
                self.commit(store, seen);
            }
            13 | 14 => {
                self.now += SECOND;
                self.tick(store, seen);
            }
            15 => {
                self.now += [60 * SECOND, 3_600 * SECOND, DAY][self.rng.usize(0..3)];
                self.tick(store, seen);
            }
            // A clock that is set back.
            16 => self.now -= [SECOND, 3_600 * SECOND, DAY][self.rng.usize(0..3)].min(self.now / 2),
            17 => {
                let _ = store.rotate();
            }
            18..=20 => {
                for _ in 0..self.rng.u8(1..4) {
                    let _ = store.upkeep(self.now);
                }
            }
            21 => {
                // All is well again.
                disk.set_faults(Faults {
                    stop_in: self.rng.bool().then(|| self.rng.u64(0..200)),
                    ..Faults::default()
                });
                self.commit(store, seen);
            }
            22 if self.rng.u8(0..8) == 0 => self.remove_all(disk, store, seen),
            22 => self.read(disk, store),
            // One of the first writes fails, such as the mark that closes the file before. All is well after that.
            23 => {
                self.give_some(store, seen);
                let fail_write_in = Some(self.rng.u64(0..8));
                disk.set_faults(Faults { fail_write_in, ..Faults::default() });
                self.commit(store, seen);
                let stop_in = self.rng.bool().then(|| self.rng.u64(0..20));
                disk.set_faults(Faults { stop_in, ..Faults::default() });
                self.commit(store, seen);
            }
            _ => disk.set_faults(faults(&mut self.rng)),
        }
    }

    fn give_some(&mut self, store: &mut FileStore<Simulated>, seen: &mut Seen) {
        for _ in 0..self.rng.u8(1..8) {
            let topic = self.rng.usize(0..TOPICS.len());
            let origin = self.rng.usize(0..self.numbers.len());
            self.numbers[origin] += 1;
            let length = [0, 1, 3, 40, 300, 2_500][self.rng.usize(0..6)];
            let payload = (0..length).map(|_| self.rng.u8(b'\n'..b'~')).collect();
            let given = Given { payload, origin: origin as u128 + 1, number: self.numbers[origin] };
            let order = self.order.len();
            self.order.insert((given.origin, given.number), order);
            self.give(store, topic, given, seen);
        }
    }

    fn tick(&mut self, store: &mut FileStore<Simulated>, seen: &mut Seen) {
        if store.tick(self.now).is_err() {
            seen.failures += 1;
        }
        let nothing_waits = store.waiting() == 0;
        let unsure = store.counters().unsure > 0;
        if self.settings.fsync == Fsync::EverySecond && nothing_waits && !unsure {
            // Only where the tick said so, and it was time for one.
            let synced = store.unsynced_messages() == 0;
            for topic in self.model.topics.values_mut() {
                if synced {
                    topic.safe = topic.given.len();
                }
            }
        }
    }

    fn commit(&mut self, store: &mut FileStore<Simulated>, seen: &mut Seen) {
        match store.commit() {
            Ok(()) => {
                for topic in self.model.topics.values_mut() {
                    topic.written = topic.given.len();
                    if self.settings.fsync == Fsync::Always {
                        topic.safe = topic.given.len();
                    }
                }
            }
            Err(_) => {
                seen.failures += 1;
                if self.rng.u8(0..4) == 0 {
                    self.withdraw(store, seen);
                }
            }
        }
    }

    /// Removes all files after they were acknowledged: the store continues.
    fn remove_all(&mut self, disk: &Simulated, store: &FileStore<Simulated>, seen: &mut Seen) {
        if store.waiting() > 0 {
            return;
        }
        disk.remove_all("");
        seen.folders_gone += 1;
        for topic in self.model.topics.values_mut() {
            *topic = Topic::default();
        }
    }

    /// Takes back waiting messages, as if they went elsewhere; here they are sent again.
    fn withdraw(&mut self, store: &mut FileStore<Simulated>, seen: &mut Seen) {
        let count = store.withdraw().len();
        seen.withdrawn += count as u64;
        let mut left = count;
        let mut back = Vec::new();
        for (place, name) in TOPICS.iter().enumerate() {
            let Some(topic) = self.model.topics.get_mut(*name) else { continue };
            // Of each topic a number of the last ones: which, the store says by what it knows.
            while let Some(given) = topic.given.last() {
                let message = Message {
                    topic: name,
                    payload: &given.payload,
                    time: self.now,
                    origin: given.origin,
                    number: given.number,
                };
                if topic.given.len() <= topic.written || store.knows(&message) {
                    break;
                }
                back.push((place, topic.given.pop().expect("just seen")));
                left -= 1;
            }
        }
        assert_eq!(left, 0, "seed {}", self.seed);
        back.sort_by_key(|(_, given)| self.order[&(given.origin, given.number)]);
        self.again.extend(back);
        let again = std::mem::take(&mut self.again);
        for (topic, given) in again {
            self.give(store, topic, given, seen);
        }
    }

    /// Reads all beside the store: what is written is shown, nothing else but what waits.
    fn read(&mut self, disk: &Simulated, store: &FileStore<Simulated>) {
        let removed = self.settings.retention.bytes.is_some() || store.counters().given_up > 0;
        for (name, topic) in &self.model.topics {
            let (found, lost) = read_all(&reader(disk, &self.settings.template, name));
            let found: Vec<Given> = found.iter().map(Given::from).collect();
            if removed || self.unsure {
                continue;
            }
            assert!(
                found.len() >= topic.written,
                "seed {} {} {} {name:?} {:?} {:?} {:?} {:?}",
                self.seed,
                found.len(),
                topic.written,
                store.counters(),
                self.settings,
                disk.files(),
                lost
            );
            if !topic.given.starts_with(&found) {
                for (n, (f, g)) in found.iter().zip(topic.given.iter()).enumerate() {
                    if f != g {
                        println!(
                            "{n}: found {}-{} given {}-{} of {} {} written {} {:?} {:?}",
                            f.origin,
                            f.number,
                            g.origin,
                            g.number,
                            found.len(),
                            topic.given.len(),
                            topic.written,
                            store.counters(),
                            self.settings
                        );
                        break;
                    }
                }
                println!("{} {}", found.len(), topic.given.len());
            }
            assert!(topic.given.starts_with(&found), "seed {}", self.seed);
        }
    }

    /// Compares the stored messages with the given ones; lost ones are sent again.
    fn compare(&mut self, disk: &Simulated, killed: bool, report: &Report) {
        let seed = self.seed;
        for (place, name) in TOPICS.iter().enumerate() {
            let reader = reader(disk, &self.settings.template, name);
            let (stored, lost) = read_all(&reader);
            if lost.messages() > 0 && !self.unsure {
                for missing in &lost.missing {
                    let file = &missing.file;
                    let verified = interlock_stores::file::verify(disk, file);
                    let data = disk.content(file).map(|data| data.len());
                    println!("{file}: {verified:?} {data:?}");
                    let index = disk.content(&(file.clone() + ".idx")).unwrap();
                    let salt = u32::from_le_bytes(index[20..24].try_into().unwrap());
                    for frame in index.chunks_exact(64) {
                        println!(
                            "{:?}",
                            interlock_stores::file::frame::decode(frame.try_into().unwrap(), salt)
                        );
                    }
                }
            }
            assert!(
                lost.messages() == 0 || self.unsure,
                "seed {seed}: {lost:?} {report} {:?} {:?} {name:?}",
                self.settings,
                disk.files()
            );
            let step = stored.len() / 2 + 1;
            read_from_places(&reader, &stored, step);
            let count = reader.count().unwrap();
            // What was given up and was not whole is counted until another file is begun.
            assert!(
                count >= stored.len() as u64,
                "seed {seed}: {count} {} {:?} {:?} {name:?} {report}",
                stored.len(),
                self.settings,
                disk.files()
            );
            let found: Vec<Given> = stored.iter().map(Given::from).collect();
            let Some(topic) = self.model.topics.get_mut(*name) else {
                assert!(found.is_empty(), "seed {seed}: {report}");
                continue;
            };
            let given = std::mem::take(&mut topic.given);
            let safe = if killed { topic.written } else { topic.safe };
            // Files that were removed are the oldest.
            let first = match found.first() {
                _ if self.unsure => 0,
                Some(first) => given.iter().position(|one| one == first).unwrap_or_else(|| {
                    panic!(
                        "seed {seed}: {first:?} was not given to {name:?} {:?} {:?} {:?} {report}",
                        given.first(),
                        self.settings,
                        self.again
                    )
                }),
                None if self.settings.retention.bytes.is_some() => given.len(),
                None => 0,
            };
            assert!(
                first == 0 || self.settings.retention.bytes.is_some(),
                "seed {seed}: {name:?} {first} {} {} {:?} {report} {:?}",
                found.len(),
                given.len(),
                self.settings,
                disk.files()
            );
            let end = (first + found.len()).min(given.len());
            if self.unsure {
                // Some in the midst may be lost: those a sync was not able to bring to the disk.
                let mut rest = given.iter();
                // Their origin may be unknown: it is in the file before them.
                let same = |one: &Given, other: &Given| {
                    let origin = one.origin == 0 || one.origin == other.origin;
                    origin && (one.number, &one.payload) == (other.number, &other.payload)
                };
                let odd = found.iter().find(|one| !rest.any(|other| same(one, other)));
                assert!(odd.is_none(), "seed {seed}: {odd:?} {report}\n{found:?}\n{given:?}");
            } else {
                assert_eq!(found, given[first..end], "seed {seed}: {name:?} {report}");
                assert!(
                    end >= safe,
                    "seed {seed}: {end} of {safe} of {name:?} {killed} {:?} {report} {:?}",
                    self.settings,
                    disk.files()
                );
            }
            for lost in given[end.min(given.len())..].iter().filter(|one| !found.contains(one)) {
                self.again.push((place, lost.clone()));
            }
            topic.removed = first;
            // A file that was removed may be there again after the next crash.
            topic.given = if self.unsure { given } else { given[..end].to_vec() };
            topic.written = topic.given.len();
            // What was not safe may be there and not on disk yet.
            topic.safe = if killed { 0 } else { topic.given.len() };
        }
        let order = &self.order;
        self.again.sort_by_key(|(_, given)| order[&(given.origin, given.number)]);
        self.again.dedup();
    }
}

fn faults(rng: &mut Rng) -> Faults {
    let mut faults = Faults { stop_in: Some(rng.u64(0..400)), ..Faults::default() };
    match rng.u8(0..8) {
        0 => faults.fail_sync_in = Some(rng.u64(0..20)),
        1 => faults.fail_write_in = Some(rng.u64(0..30)),
        2 => faults.capacity = Some(rng.u64(500..20_000)),
        3 => faults.denied = Some(libc::EACCES),
        4 => faults.read_only = true,
        _ => {}
    }
    faults
}

/// Lives through it; returns the disk as it is at the end.
fn live(seed: u64, seen: &mut Seen) -> Simulated {
    let mut life = Life::new(seed);
    let mut disk = Simulated::new(life.rng.u64(..));
    // No more than the process died since it was compared last.
    let mut killed = true;
    for _ in 0..life.rng.u32(2..8) {
        // Recovery is cut short too, now and then.
        let from_the_start = life.rng.u8(0..4) == 0;
        if from_the_start {
            disk.set_faults(faults(&mut life.rng));
        }
        match FileStore::open(disk.clone(), life.settings.clone(), life.now) {
            Ok((mut store, report)) => {
                assert!(life.unsure || allowed(&report), "seed {seed}: {report}");
                seen.torn += report.torn.len() as u64;
                life.compare(&disk, killed, &report);
                killed = true;
                seen.lives += 1;
                disk.set_faults(faults(&mut life.rng));
                life.work(&disk, &mut store, seen);
                let counters = store.counters();
                seen.rotated += counters.closed;
                seen.compressed += counters.compressed;
                seen.removed += counters.removed;
                seen.given_up += counters.given_up;
                seen.unsure += counters.unsure;
                // Of these the model does not know how far they are safe.
                life.unsure |= counters.unsure > 0;
            }
            Err(error) => {
                assert!(from_the_start, "seed {seed}: {error}");
                seen.crashes_while_opening += 1;
            }
        }
        // What stays is for the next life to be compared with.
        let kill = !disk.stopped() && life.rng.bool();
        killed &= kill;
        if kill {
            seen.kills += 1;
            disk = disk.killed();
        } else {
            seen.crashes += 1;
            disk = disk.restart();
        }
    }
    disk
}

/// Returns whether nothing is named that had to be there: the head of a file is not synced alone.
fn allowed(report: &Report) -> bool {
    report.damaged.iter().all(|one| one.messages == 0 && one.why.contains("head of its index"))
}

#[test]
fn a_random_life_is_determined_by_its_seed() {
    for n in 0..share(10) {
        let lived = || {
            let disk = live(seed().wrapping_add(n), &mut Seen::default());
            let content = |file: String| (disk.content(&file), file);
            disk.files().into_iter().map(content).collect::<Vec<_>>()
        };
        assert!(lived() == lived(), "seed {}", seed().wrapping_add(n));
    }
}

#[test]
fn confirmed_messages_survive_any_crash() {
    let mut seen = Seen::default();
    let lives = share(60);
    for n in 0..lives {
        live(seed().wrapping_add(n), &mut seen);
    }
    println!("{seen:?}");
    let Seen { crashes, kills, failures, torn, known, withdrawn, rotated, .. } = seen;
    let Seen { compressed, removed, given_up, unsure, crashes_while_opening, folders_gone, .. } =
        seen;
    let met = [
        crashes,
        kills,
        failures,
        torn,
        known,
        withdrawn,
        rotated,
        compressed,
        removed,
        given_up,
        unsure,
        crashes_while_opening,
        folders_gone,
    ];
    // Of few lives some have no luck.
    assert!(lives < 200 || met.iter().all(|count| *count > 0), "{seen:?}");
}
