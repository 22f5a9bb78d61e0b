//! Records that are forgotten, and records that are read again while others are written.

use fastrand::Rng;
use interlock_journal::cursor::Cursor;
use interlock_journal::storage::disk::Disk;
use interlock_journal::storage::simulated::{Faults, Simulated};
use interlock_journal::storage::{Fill, Storage};
use interlock_journal::{Durability, Journal, JournalSettings, OpenError, Record, Repair};

use crate::number;
use crate::queues::{append, reopen, Queues};

const SETTINGS: JournalSettings =
    JournalSettings { segment: 512, fill: Fill::Written, longest: 2_000, salt: 5, rules: 1 };

fn read<S: Storage>(journal: &Journal<S>, from: u64) -> Vec<(u64, Vec<u8>)> {
    let (mut cursor, mut found) = (Cursor::new(from), Vec::new());
    let mut note = |record: &Record<'_>| {
        found.push((record.sequence, record.arguments().next().unwrap().to_vec()));
        true
    };
    journal.read(&mut cursor, &mut note).unwrap();
    found
}

fn told(queues: &Queues) -> Vec<(u64, Vec<u8>)> {
    let mut all: Vec<_> = queues.told.values().flatten().cloned().collect();
    all.sort();
    all
}

#[test]
fn a_cursor_reads_written_records_and_later_ones() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    let (mut cursor, mut found, mut written) = (Cursor::new(1), Vec::new(), 0);
    for n in 0..60u32 {
        let last = append(&journal, &mut queues, n % 3, &vec![n as u8; n as usize * 9]).unwrap();
        if n % 4 == 3 {
            journal
                .read(&mut cursor, |record| {
                    found.push((record.sequence, record.arguments().next().unwrap().to_vec()));
                    true
                })
                .unwrap();
            assert_eq!(found.len(), written, "only what is written");
            journal.commit(last, Durability::None).unwrap();
            written = n as usize + 1;
        }
        if n % 10 == 9 {
            journal.tick().unwrap();
            written = n as usize + 1;
        }
    }
    let all = told(&queues);
    assert_eq!(found, all[..found.len()]);
    assert_eq!(read(&journal, 1), all);
    for from in [2, 17, 40, 59] {
        let rest: Vec<_> = all.iter().filter(|(sequence, _)| *sequence >= from).cloned().collect();
        assert_eq!(read(&journal, from), rest);
    }
    // A refused record is given again.
    let mut cursor = Cursor::new(1);
    for _ in 0..2 {
        journal.read(&mut cursor, |record| record.sequence < all[5].0).unwrap();
        assert_eq!(cursor.next(), all[5].0);
    }
}

#[test]
fn forgetting_removes_only_the_forgotten_segments() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    for n in 0..40u32 {
        let last = append(&journal, &mut queues, n % 3, &[n as u8; 50]).unwrap();
        journal.commit(last, Durability::Always).unwrap();
    }
    let all = told(&queues);
    let mut cursor = Cursor::new(1);
    let made = journal.forget(all[24].0).unwrap();
    assert!(made.removed.len() > 3 && made.queues == 0, "{made:?}");
    // A cursor that was behind continues with what exists.
    let mut first = None;
    journal
        .read(&mut cursor, |record| {
            first = Some(record.sequence);
            false
        })
        .unwrap();
    assert!(first.unwrap() <= all[25].0 && first.unwrap() > 1);
    assert_eq!(read(&journal, all[25].0), all[25..]);
    drop(journal);
    let (journal, report, found) = reopen(disk.restart(), SETTINGS, Repair::Refuse).unwrap();
    assert_eq!(told(&found), all[25..], "{report}");
    // All of it, and more than there is.
    journal.forget(u64::MAX).unwrap();
    drop(journal);
}

#[test]
fn records_not_forgotten_survive_any_crash() {
    let first = number("INTERLOCK_SEED", 1);
    let (mut crashes_while_opening, mut forgotten_often) = (0, 0);
    for seed in first..first + number("INTERLOCK_LIVES", 2_000) / 4 {
        let mut rng = Rng::with_seed(seed);
        let mut disk = Simulated::new(rng.u64(..));
        let (mut all, mut confirmed, mut forgotten) = (Vec::new(), 0, 0);
        for _ in 0..rng.u32(2..7) {
            let faults = Faults { stop_in: Some(rng.u64(0..100)), ..Faults::default() };
            let from_the_start = rng.u8(0..4) == 0;
            if from_the_start {
                disk.set_faults(faults);
            }
            match reopen(disk.clone(), SETTINGS, Repair::Refuse) {
                Ok((journal, report, mut queues)) => {
                    let found = told(&queues);
                    let last = report.last;
                    all.retain(|(sequence, _)| *sequence <= last);
                    assert!(last >= confirmed, "seed {seed}: {report}");
                    assert!(all.ends_with(&found), "seed {seed}: {report}");
                    let gone = &all[..all.len() - found.len()];
                    let most = gone.last().map_or(0, |(sequence, _): &(u64, Vec<u8>)| *sequence);
                    assert!(most <= forgotten, "seed {seed}: {most} of {forgotten}: {report}");
                    assert_eq!(read(&journal, most + 1), found, "seed {seed}: {report}");
                    disk.set_faults(faults);
                    for _ in 0..rng.u32(1..30) {
                        let value = vec![rng.u8(..); rng.usize(0..200)];
                        let Ok(last) = append(&journal, &mut queues, 1, &value) else { break };
                        all.push((last, value));
                        if journal.commit(last, Durability::Always).is_err() {
                            break;
                        }
                        confirmed = last;
                        if rng.u8(0..5) == 0 {
                            let upto = rng.u64(forgotten..=confirmed);
                            forgotten = upto;
                            if journal.forget(upto).is_err() {
                                break;
                            }
                            forgotten_often += 1;
                        }
                    }
                }
                Err(OpenError::Disk { .. }) if from_the_start => crashes_while_opening += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
            disk = disk.restart();
        }
    }
    assert!(crashes_while_opening > 0 && forgotten_often > 0);
}

#[test]
fn a_cursor_reads_each_record_once_during_writes_and_forgetting() {
    let name = format!("interlock-journal-cursor-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let settings = JournalSettings { segment: 8_192, ..SETTINGS };
    let (journal, _, _) = reopen(Disk::open(&folder).unwrap(), settings, Repair::Refuse).unwrap();
    const RECORDS: u64 = 5_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut queues = Queues::default();
            for n in 0..RECORDS {
                let last = append(&journal, &mut queues, 1, n.to_string().as_bytes()).unwrap();
                if n % 7 == 6 || n + 1 == RECORDS {
                    journal.commit(last, Durability::None).unwrap();
                }
            }
        });
        let (mut cursor, mut next) = (Cursor::new(1), 0u64);
        while next < RECORDS {
            journal
                .read(&mut cursor, |record| {
                    let expected = next.to_string();
                    assert_eq!(record.arguments().next(), Some(expected.as_bytes()));
                    next += 1;
                    true
                })
                .unwrap();
            if next > 0 && next % 3 == 0 {
                journal.forget(cursor.next() - 1).unwrap();
            }
        }
    });
    drop(journal);
    std::fs::remove_dir_all(folder).unwrap();
}
