//! The spool on a bad disk: what was committed is delivered, in order, until it is forgotten.

use std::collections::BTreeMap;

use fastrand::Rng;
use interlock_journal::storage::simulated::{Faults, Simulated};
use interlock_stores::spool::{Durability, Report, Settings, Spool, SpoolError, Spooled};
use interlock_stores::Message;

use crate::{seed, share};

const SEGMENT: u64 = 2_048;

fn settings(salt: u32) -> Settings {
    Settings { bytes: 100_000, segment: SEGMENT, salt }
}

fn open(disk: &Simulated, salt: u32) -> (Spool<Simulated>, Report) {
    Spool::open(disk.clone(), settings(salt), 1_000, 77).unwrap()
}

fn message<'a>(topic: &'a [u8], payload: &'a [u8]) -> Message<'a> {
    Message { topic, payload, time: 5, origin: 0, number: 0 }
}

fn all(spool: &Spool<Simulated>) -> Vec<Spooled> {
    let (mut cursor, mut found) = (spool.cursor(), Vec::new());
    loop {
        let some = spool.read(&mut cursor, 300).unwrap();
        if some.is_empty() {
            return found;
        }
        found.extend(some);
    }
}

#[test]
fn committed_messages_are_read_in_order_until_forgotten() {
    let disk = Simulated::new(1);
    let (mut spool, report) = open(&disk, 1);
    assert_eq!((report.messages, spool.origin()), (0, 77));
    let mut cursor = spool.cursor();
    assert_eq!(spool.read(&mut cursor, 100).unwrap(), []);
    let places: Vec<u64> = (0..100u8)
        .map(|n| {
            let place = spool.append(&message(b"topic", &[n; 50])).unwrap();
            spool.commit(Durability::Always).unwrap();
            place
        })
        .collect();
    let found = all(&spool);
    assert_eq!(found.iter().map(|one| one.place).collect::<Vec<_>>(), places);
    assert!(found.windows(2).all(|two| two[0].number + 1 == two[1].number));
    assert!(found.iter().all(|one| one.origin == 77 && one.topic == b"topic" && one.time == 5));
    // A cursor continues where it was; a read returns at most this many bytes.
    assert_eq!(spool.read(&mut cursor, 120).unwrap(), found[..2]);
    assert_eq!(spool.read(&mut cursor, 1).unwrap(), found[2..3]);
    let segments =
        |disk: &Simulated| disk.list().iter().filter(|n| n.starts_with("segment")).count();
    let before = segments(&disk);
    spool.forget(found[79].place);
    spool.tick().unwrap();
    assert!(segments(&disk) < before / 2, "{:?}", disk.list());
    assert_eq!(all(&spool), found[80..]);
    assert_eq!(spool.read(&mut cursor, 1).unwrap(), found[80..81], "those before were forgotten");
    let last = found[99].number;
    drop(spool);
    let (mut spool, report) = open(&disk.restart(), 2);
    assert_eq!(all(&spool), found[80..], "{report}");
    // No number is given twice, and the origin is for life.
    spool.append(&message(b"", b"")).unwrap();
    spool.commit(Durability::Always).unwrap();
    let next = all(&spool).pop().unwrap();
    assert!(next.number > last && next.origin == 77);
    // What has an origin keeps it, and its number.
    spool.append(&Message { origin: 5, number: 6, ..message(b"a", b"b") }).unwrap();
    spool.commit(Durability::None).unwrap();
    let next = all(&spool).pop().unwrap();
    assert_eq!((next.origin, next.number), (5, 6));
}

#[test]
fn messages_delivered_before_the_last_tick_are_not_repeated_after_a_kill() {
    let disk = Simulated::new(1);
    let (mut spool, _) = open(&disk, 1);
    let put = |spool: &mut Spool<Simulated>, n: u8| {
        spool.append(&message(b"t", &[n; 20])).unwrap();
        spool.commit(Durability::None).unwrap();
    };
    (0..8).for_each(|n| put(&mut spool, n));
    let found = all(&spool);
    spool.forget(found[4].place);
    spool.tick().unwrap();
    spool.forget(found[6].place);
    // All of it fits into a segment, so the journal itself has forgotten nothing.
    drop(spool);
    let (spool, report) = open(&disk, 2);
    assert_eq!(all(&spool), found[5..], "{report}");
    drop(spool);
    // A place that is not whole, or of another spool, says nothing.
    let mut content = disk.content("delivered");
    content[26] ^= 1;
    disk.set_content("delivered", &content);
    let (spool, _) = open(&disk, 3);
    assert_eq!(all(&spool), found);
}

#[test]
fn a_position_lost_by_the_journal_is_reassigned_and_delivered() {
    for seed in 0..20 {
        let disk = Simulated::new(seed);
        let (mut spool, _) = open(&disk, 1);
        for n in 0..10u8 {
            spool.append(&message(b"t", &[n; 20])).unwrap();
            spool.commit(Durability::None).unwrap();
        }
        let last = all(&spool).pop().unwrap().place;
        spool.forget(last);
        drop(spool);
        // The machine crashes: of the journal nothing is left, and of this file all.
        let disk = disk.restart();
        let (spool, _) = open(&disk, 2);
        let origin = spool.origin();
        drop(spool);
        let mut bytes = b"ILDELIVE".to_vec();
        bytes.extend(origin.to_le_bytes());
        bytes.extend(last.to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        disk.set_content("delivered", &bytes);
        let (mut spool, _) = open(&disk, 3);
        let begun = all(&spool).len();
        spool.append(&message(b"t", b"new")).unwrap();
        spool.commit(Durability::Always).unwrap();
        drop(spool);
        let (spool, _) = open(&disk.restart(), 4);
        assert_eq!(all(&spool).len(), begun + 1, "seed {seed}");
    }
}

#[test]
fn a_full_spool_reports_it_and_loses_nothing() {
    let disk = Simulated::new(1);
    let few = Settings { bytes: 1_000, ..settings(1) };
    let (mut spool, _) = Spool::open(disk.clone(), few, 1, 77).unwrap();
    let refused = (0..).find_map(|n: u8| spool.append(&message(b"t", &[n; 30])).err()).unwrap();
    assert!(matches!(refused, SpoolError::Full { most: 1_000, .. }), "{refused}");
    assert!(refused.to_string().contains("972 bytes wait to be delivered"), "{refused}");
    spool.commit(Durability::Always).unwrap();
    let found = all(&spool);
    assert_eq!(spool.waiting().0, found.len() as u64);
    spool.forget(found.last().unwrap().place);
    assert_eq!(spool.waiting(), (0, 0));
    spool.append(&message(b"t", b"more")).unwrap();
    // A full disk is reported, and taken messages are written when there is room.
    drop(spool);
    let disk = Simulated::new(2);
    let (mut spool, _) = open(&disk, 1);
    disk.set_faults(Faults { capacity: Some(6_000), ..Faults::default() });
    let mut taken = 0;
    let refused = loop {
        match spool.append(&message(b"t", &[7; 100])) {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
        spool.commit(Durability::Always).unwrap();
    };
    assert!(refused.to_string().contains("disk is nearly full"), "{refused}");
    disk.set_faults(Faults::default());
    spool.tick().unwrap();
    spool.append(&message(b"t", b"more")).unwrap();
    spool.commit(Durability::Always).unwrap();
    drop(spool);
    assert_eq!(all(&open(&disk.restart(), 1).0).len(), taken + 1);
}

#[test]
fn valid_messages_after_damage_are_delivered_and_the_others_counted() {
    let mut rng = Rng::with_seed(seed());
    let mut met = BTreeMap::new();
    for _ in 0..share(150) {
        let disk = Simulated::new(1);
        let (mut spool, _) = open(&disk, 9);
        for n in 0..80u8 {
            spool.append(&message(b"t", &[n; 60])).unwrap();
            spool.commit(Durability::Always).unwrap();
        }
        let given = all(&spool);
        spool.close().unwrap();
        let segments: Vec<String> =
            disk.list().into_iter().filter(|name| name.starts_with("segment")).collect();
        let name = segments[rng.usize(0..segments.len())].clone();
        let mut content = disk.content(&name);
        match rng.u8(0..3) {
            0 => content.truncate(rng.usize(0..content.len())),
            1 => {
                let at = rng.usize(0..content.len());
                content[at] ^= 1 << rng.u8(0..8);
            }
            _ => {
                let at = rng.usize(0..content.len());
                let end = (at + rng.usize(1..600)).min(content.len());
                content[at..end].fill_with(|| rng.u8(..));
            }
        }
        disk.set_content(&name, &content);
        let (spool, report) = open(&disk, 10);
        let found = all(&spool);
        let strip = |one: &Spooled| (one.number, one.payload.clone());
        let (found, given): (Vec<_>, Vec<_>) =
            (found.iter().map(strip).collect(), given.iter().map(strip).collect());
        let mut rest = given.iter();
        assert!(found.iter().all(|one| rest.any(|other| other == one)), "out of order: {report}");
        let lost = (given.len() - found.len()) as u64;
        // A record takes a hundred bytes and more: what is whole is delivered.
        assert!(lost <= 20, "{lost} lost: {report}");
        assert_eq!(report.messages, found.len() as u64, "{report}");
        if lost > 0 {
            assert!(!report.aside.is_empty(), "{report}");
            assert!(report.aside.iter().all(|name| name.contains(".damaged-")), "{report}");
            assert!(report.lost <= lost + 1, "{} of {lost}: {report}", report.lost);
            // It is done once.
            drop(spool);
            let (again, second) = open(&disk, 11);
            assert_eq!(all(&again).len(), found.len());
            assert!(second.aside.is_empty(), "{second}");
        }
        *met.entry((lost > 0, report.saved > 0)).or_insert(0) += 1;
    }
    println!("{met:?}");
    assert!(met.contains_key(&(true, true)), "{met:?}");
}

#[test]
fn an_unreadable_origin_is_replaced_and_reported() {
    let disk = Simulated::new(1);
    drop(open(&disk, 1));
    let mut content = disk.content("origin");
    content[10] ^= 1;
    disk.set_content("origin", &content);
    let (spool, report) = Spool::open(disk, settings(1), 1, 88).unwrap();
    assert!(report.renamed && spool.origin() == 88, "{report}");
}

struct Life {
    rng: Rng,
    /// All that was taken and not known to be delivered, in order.
    waits: Vec<(u64, Vec<u8>)>,
    /// Numbers of them on disk, and of the delivered ones at the beginning.
    safe: usize,
    delivered: usize,
    highest: u64,
    given: u64,
}

fn live(seed: u64, seen: &mut [u64; 5]) {
    let mut rng = Rng::with_seed(seed);
    let mut disk = Simulated::new(rng.u64(..));
    let mut life =
        Life { rng: rng.fork(), waits: Vec::new(), safe: 0, delivered: 0, highest: 0, given: 0 };
    for now in 0..rng.u64(2..8) {
        let mut faults = Faults { stop_in: Some(rng.u64(0..150)), ..Faults::default() };
        match rng.u8(0..8) {
            0 => faults.fail_sync_in = Some(rng.u64(0..20)),
            1 => faults.fail_write_in = Some(rng.u64(0..30)),
            2 => faults.capacity = Some(rng.u64(5_000..30_000)),
            _ => {}
        }
        let from_the_start = rng.u8(0..4) == 0;
        if from_the_start {
            disk.set_faults(faults);
        }
        match Spool::open(disk.clone(), settings(rng.u32(..)), now, 77) {
            Ok((mut spool, report)) => {
                assert!(report.aside.is_empty(), "seed {seed}: {report}");
                let found: Vec<_> =
                    all(&spool).into_iter().map(|one| (one.number, one.payload)).collect();
                // Some delivered ones may be repeated; none that is on disk is missing.
                let begins = match found.first() {
                    Some((_, first)) => life.waits.iter().position(|(_, one)| one == first),
                    None => Some(life.delivered),
                };
                let begins = begins.unwrap_or_else(|| panic!("seed {seed}: {report}"));
                assert!(begins <= life.delivered, "seed {seed}: lost: {report}");
                let end = begins + found.len();
                assert!(end >= life.safe, "seed {seed}: {end} of {}: {report}", life.safe);
                for ((number, payload), waits) in found.iter().zip(&mut life.waits[begins..]) {
                    assert!(*payload == waits.1, "seed {seed}: out of order: {report}");
                    assert!([0, *number].contains(&waits.0), "seed {seed}: {report}");
                    waits.0 = *number;
                    life.highest = life.highest.max(*number);
                }
                seen[0] += 1;
                seen[1] += u64::from(begins < life.delivered);
                life.waits.truncate(end);
                (life.safe, life.delivered) = (end, life.delivered.min(end));
                disk.set_faults(faults);
                life.work(&mut spool, seen);
            }
            Err(error) => {
                assert!(from_the_start, "seed {seed}: {error}");
                seen[2] += 1;
            }
        }
        disk = disk.restart();
    }
}

impl Life {
    fn work(&mut self, spool: &mut Spool<Simulated>, seen: &mut [u64; 5]) {
        let mut cursor = spool.cursor();
        let mut read = Vec::new();
        for _ in 0..self.rng.u32(1..60) {
            match self.rng.u8(0..10) {
                0..=5 => {
                    for _ in 0..self.rng.u8(1..6) {
                        let length = [0, 3, 40, 200, 600][self.rng.usize(0..5)];
                        self.given += 1;
                        let mut payload = self.given.to_string().into_bytes();
                        payload.extend((0..length).map(|_| self.rng.u8(..)));
                        if spool.append(&message(b"t", &payload)).is_err() {
                            seen[3] += 1;
                            break;
                        }
                        // The number is known when it is read: it rises by one.
                        self.waits.push((0, payload));
                    }
                    let always = self.rng.bool();
                    let durability = if always { Durability::Always } else { Durability::None };
                    if spool.commit(durability).is_err() {
                        return self.number(spool, &mut cursor, &mut read);
                    }
                    self.number(spool, &mut cursor, &mut read);
                    if always {
                        self.safe = self.waits.len();
                    }
                }
                6 | 7 => {
                    if spool.tick().is_err() {
                        return;
                    }
                }
                // Delivered is what is on disk, up to some message.
                _ => {
                    let most = read.len().min(self.safe);
                    if most > self.delivered {
                        self.delivered = self.rng.usize(self.delivered..=most);
                        if self.delivered > 0 && self.delivered <= read.len() {
                            if let Some(place) = read[self.delivered - 1] {
                                spool.forget(place);
                                seen[4] += 1;
                            }
                        }
                    }
                }
            }
        }
    }

    /// Reads what was committed, and notes the numbers.
    fn number(
        &mut self,
        spool: &Spool<Simulated>,
        cursor: &mut interlock_stores::spool::Cursor<Simulated>,
        read: &mut Vec<Option<u64>>,
    ) {
        if read.is_empty() {
            read.resize(self.first_read(spool), None);
        }
        while let Ok(some) = spool.read(cursor, 1_000) {
            if some.is_empty() {
                return;
            }
            for one in some {
                let waits = &mut self.waits[read.len()];
                assert_eq!(waits.1, one.payload);
                assert!(waits.0 == 0 || waits.0 == one.number);
                if waits.0 == 0 {
                    assert!(one.number > self.highest, "a number comes twice");
                    self.highest = one.number;
                }
                waits.0 = one.number;
                read.push(Some(one.place));
            }
        }
    }

    /// Returns how many of what was taken are before the first one that is read.
    fn first_read(&self, spool: &Spool<Simulated>) -> usize {
        let mut cursor = spool.cursor();
        match spool.read(&mut cursor, 1) {
            Ok(some) if !some.is_empty() => {
                self.waits.iter().position(|(number, _)| *number == some[0].number).unwrap_or_else(
                    || self.waits.iter().position(|(number, _)| *number == 0).unwrap_or(0),
                )
            }
            _ => self.waits.len(),
        }
    }
}

#[test]
fn messages_on_disk_are_delivered_after_any_crash() {
    let mut seen = [0; 5];
    for n in 0..share(300) {
        live(seed().wrapping_add(n), &mut seen);
    }
    println!("lives, delivered again, crashes while opening, refused, forgotten: {seen:?}");
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}
