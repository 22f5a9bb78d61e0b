//! A journal that was closed: nothing of what is known of it may be gone.

use std::path::Path;

use interlock_journal::storage::simulated::Simulated;
use interlock_journal::storage::{Fill, Storage};
use interlock_journal::{Durability, Entry, JournalSettings, OpenError, Repair};

use crate::queues::{append, reopen, Queues};

const SETTINGS: JournalSettings =
    JournalSettings { segment: 512, fill: Fill::Written, longest: 999, salt: 5, rules: 1 };
const CLOSED: &str = "closed";

/// A journal of several segments, closed.
fn closed() -> (Simulated, Queues) {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    for n in 0..10u32 {
        let last = append(&journal, &mut queues, n % 3, &[n as u8 + 1; 50]).unwrap();
        journal.commit(last, Durability::Always).unwrap();
    }
    journal.close().unwrap();
    drop(journal);
    (disk, queues)
}

fn segments(disk: &Simulated) -> Vec<String> {
    disk.list().into_iter().filter(|name| name.starts_with("segment-")).collect()
}

/// Returns its error; then the remains after a repair, which continues.
fn repaired(disk: &Simulated, queues: &Queues) -> (String, u64) {
    let Err(error) = reopen(disk.clone(), SETTINGS, Repair::Refuse) else { panic!("opened") };
    let (journal, report, mut found) = reopen(disk.clone(), SETTINGS, Repair::SetAside).unwrap();
    assert_eq!(found, queues.up_to(report.last), "{report}");
    assert!(report.aside.unwrap().files.iter().any(|name| name.starts_with(CLOSED)));
    let next = append(&journal, &mut found, 1, b"next").unwrap();
    assert!(next > report.last);
    journal.close().unwrap();
    drop(journal);
    let (_, _, again) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    assert_eq!(again, found);
    (error.to_string(), found.told.values().map(|told| told.len() as u64).sum::<u64>() - 1)
}

#[test]
fn a_cleanly_closed_journal_reopens_and_is_marked_open() {
    let (disk, queues) = closed();
    assert!(disk.list().contains(&CLOSED.to_owned()));
    let (journal, report, found) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    assert_eq!((found, report.torn, report.aside), (queues, None, None));
    assert!(!disk.list().contains(&CLOSED.to_owned()));
    drop(journal);
    // Brought back by a crash it says less than there is, and is right.
    reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap().0.close().unwrap();
    let mark = disk.content(CLOSED);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    let last = append(&journal, &mut queues, 1, b"more").unwrap();
    journal.commit(last, Durability::Always).unwrap();
    drop(journal);
    disk.set_content(CLOSED, &mark);
    assert_eq!(reopen(disk, SETTINGS, Repair::Refuse).unwrap().2, queues);
}

#[test]
fn a_last_file_that_is_cut_at_any_byte_is_refused_with_what_is_missing() {
    let (whole, queues) = closed();
    let name = segments(&whole).pop().unwrap();
    let content = whole.content(&name);
    for cut in 64..content.len() {
        // The length it was made with is in its head, or is given back to it, as a copy may.
        for padded in [false, true] {
            let (disk, _) = closed();
            let mut less = content[..cut].to_vec();
            if padded {
                less.resize(content.len(), 0);
            }
            if less == content {
                continue;
            }
            disk.set_content(&name, &less);
            match reopen(disk.clone(), SETTINGS, Repair::Refuse) {
                // Only zeroes were lost, with which the last record may end: they are restored.
                Ok((_, report, found)) => {
                    assert!(padded, "cut at {cut}");
                    assert_eq!((report.last, &found), (11, &queues), "cut at {cut}");
                    continue;
                }
                Err(OpenError::Damaged(damage)) => {
                    assert_eq!(damage.file, name);
                    assert!(damage.first <= 12, "cut at {cut}: {damage}");
                    let known = Some(11).filter(|_| damage.first <= 11);
                    assert_eq!(damage.closed, known, "cut at {cut}: {damage}");
                }
                Err(error) => panic!("cut at {cut}: {error}"),
            }
            let (said, left) = repaired(&disk, &queues);
            assert!(said.contains(&name) && said.contains("parts aside"), "{said}");
            if left < 10 {
                let first = left + 1;
                let gone = format!("Records from {first} to 11 cannot be replayed, ");
                let there = "although all of them were present when it was stopped";
                assert!(said.contains(&gone) && said.contains(there), "cut at {cut}: {said}");
            }
        }
    }
}

#[test]
fn missing_segments_are_detected() {
    for keep in 0..3 {
        let (disk, queues) = closed();
        let names = segments(&disk);
        assert!(names.len() > 2);
        for name in &names[keep.min(names.len() - 1)..] {
            disk.remove(name).unwrap();
        }
        let (said, _) = repaired(&disk, &queues);
        assert!(said.contains(" to 11 cannot be replayed"), "{said}");
        if keep == 0 {
            assert!(said.contains("segments are missing"), "{said}");
        }
    }
}

#[test]
fn an_unreadable_close_mark_is_refused_and_set_aside_by_a_repair() {
    let (disk, queues) = closed();
    let mut mark = disk.content(CLOSED);
    mark[17] ^= 1;
    disk.set_content(CLOSED, &mark);
    let (said, left) = repaired(&disk, &queues);
    assert!(said.starts_with("closed is damaged at byte 0: its head cannot be read"), "{said}");
    assert_eq!(left, 10);
}

#[test]
fn after_a_crash_there_is_no_close_mark_and_a_torn_tail_is_cut() {
    let (disk, _) = closed();
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    let last = append(&journal, &mut queues, 1, b"written, and not synced").unwrap();
    journal.commit(last, Durability::None).unwrap();
    drop(journal);
    let name = segments(&disk).pop().unwrap();
    let mut content = disk.content(&name);
    content[80] ^= 1;
    disk.set_content(&name, &content);
    let (_, report, found) = reopen(disk, SETTINGS, Repair::Refuse).unwrap();
    assert_eq!((report.torn.unwrap().first, found), (last, queues.up_to(last - 1)));
}

#[test]
fn the_latest_time_is_known_after_a_stop_a_crash_and_a_snapshot() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    let last = append(&journal, &mut queues, 1, b"one").unwrap();
    assert_eq!((journal.time(), last), (3, 1));
    journal.note_time(9_000, 10_000);
    assert_eq!((journal.time(), journal.last()), (3, 1), "it is not so long ago");
    journal.note_time(20_000, 10_000);
    assert_eq!((journal.time(), journal.last()), (20_000, 2));
    // What has another clock does not set it back.
    journal.append(Entry { queue: 1, time: 9, function: 3 }, [&b"two"[..], b"3"]).unwrap();
    assert_eq!(journal.time(), 20_000);
    journal.commit(2, Durability::Always).unwrap();
    drop(journal);
    let (journal, report, _) = reopen_any(&disk);
    assert_eq!((report.time, journal.time()), (20_000, 20_000));
    journal.note_time(30_000, 0);
    journal.close().unwrap();
    drop(journal);
    let (journal, report, _) = reopen_any(&disk);
    assert_eq!(report.time, 30_000);
    journal.note_time(40_000, 0);
    let mut snapshot = journal.snapshot().unwrap();
    snapshot.queue(1, journal.last(), b"").unwrap();
    snapshot.finish().unwrap();
    drop(journal);
    for name in segments(&disk) {
        disk.remove(&name).unwrap();
    }
    assert_eq!(reopen_any(&disk).1.time, 40_000);
}

struct Any;

impl interlock_journal::Replay for Any {
    fn snapshot(&mut self, _: u32, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn call(&mut self, _: &interlock_journal::Record<'_>) -> Result<(), String> {
        Ok(())
    }
}

fn reopen_any(
    disk: &Simulated,
) -> (interlock_journal::Journal<Simulated>, interlock_journal::Report, ()) {
    let (journal, report) =
        interlock_journal::open(disk.clone(), SETTINGS, Repair::Refuse, &mut Any).unwrap();
    (journal, report, ())
}

#[test]
fn journals_of_versions_without_a_close_mark_are_read() {
    let disk = Simulated::new(1);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash/stored/form-1");
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        disk.set_content(&name, &std::fs::read(entry.path()).unwrap());
    }
    let (journal, report, found) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    assert_eq!((report.last, report.replayed, report.time), (41, 19, 40 * 3), "{report}");
    assert_eq!(found.told.values().map(Vec::len).sum::<usize>(), 40);
    journal.close().unwrap();
    drop(journal);
    let (_, again, same) = reopen(disk, SETTINGS, Repair::Refuse).unwrap();
    assert_eq!((again.last, again.time, same), (41, 40 * 3, found));
}
