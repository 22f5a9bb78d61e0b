//! Copies made while a journal is written to: all that was confirmed before is in them, and they are whole.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

use interlock_journal::copy::{self, Copy};
use interlock_journal::storage::disk::Disk;
use interlock_journal::storage::simulated::Simulated;
use interlock_journal::storage::{File, Fill, Storage};
use interlock_journal::{Durability, JournalSettings, OpenError, Repair};

use crate::queues::{append, reopen, Queues};

const SETTINGS: JournalSettings =
    JournalSettings { segment: 512, fill: Fill::Written, longest: 999, salt: 5, rules: 1 };

/// Writes a copy to a disk, in pieces; the last file lacks `less` bytes.
fn written<F: File>(copy: &Copy<F>, less: u64) -> Simulated {
    let disk = Simulated::new(7);
    for (n, part) in copy.parts().iter().enumerate() {
        let mut content = Vec::new();
        loop {
            let piece = copy.read(part, content.len() as u64, 100).unwrap();
            if piece.is_empty() {
                break;
            }
            content.extend(piece);
        }
        assert_eq!(content.len() as u64, part.bytes);
        content.resize(part.length as usize, 0);
        if n + 1 == copy.parts().len() {
            content.truncate(part.bytes.saturating_sub(less) as usize);
            content.resize(part.length as usize, 0);
        }
        disk.set_content(&part.name, &content);
    }
    disk
}

fn snapshot(journal: &interlock_journal::Journal<impl Storage>, queues: &Mutex<Queues>) {
    let mut snapshot = journal.snapshot().unwrap();
    let known: Vec<u32> = queues.lock().unwrap().told.keys().copied().collect();
    for queue in known {
        let queues = queues.lock().unwrap();
        let (last, state) = (journal.last(), queues.state(queue));
        drop(queues);
        snapshot.queue(queue, last, &state).unwrap();
    }
    snapshot.finish().unwrap();
}

#[test]
fn a_copy_at_any_moment_has_all_confirmed_records_and_reports_missing_ones() {
    let disk = Simulated::new(1);
    let (journal, _, queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    let queues = Mutex::new(queues);
    for n in 0..40u32 {
        let last =
            append(&journal, &mut queues.lock().unwrap(), n % 3, &[n as u8 + 1; 50]).unwrap();
        journal.commit(last, Durability::None).unwrap();
        if n == 20 {
            snapshot(&journal, &queues);
        }
        let ours = journal.copy().unwrap();
        let theirs = copy::of(&disk).unwrap();
        assert_eq!((ours.last(), theirs.last()), (last, last));
        for copied in [&ours, &theirs] {
            let (again, report, found) =
                reopen(written(copied, 0), SETTINGS, Repair::Refuse).unwrap();
            assert_eq!(found, *queues.lock().unwrap(), "{report}");
            assert_eq!((report.last, report.time, again.last()), (last, journal.time(), last));
            // An incomplete one is not a shorter journal.
            for less in [1, 40] {
                let cut = reopen(written(copied, less), SETTINGS, Repair::Refuse);
                let Err(OpenError::Damaged(damage)) = cut else { panic!("{less} bytes less") };
                assert_eq!(damage.closed, Some(last), "{damage}");
            }
        }
    }
    journal.close().unwrap();
    let closed = copy::of(&disk).unwrap();
    assert_eq!(closed.last(), journal.last());
    assert_eq!(
        reopen(written(&closed, 0), SETTINGS, Repair::Refuse).unwrap().2,
        *queues.lock().unwrap()
    );
}

#[test]
fn an_open_segment_can_be_read_after_a_snapshot_removed_it() {
    let folder =
        std::env::temp_dir().join(format!("interlock-journal-copy-{}", std::process::id()));
    let settings = JournalSettings { segment: 4_096, ..JournalSettings::default() };
    let (journal, _, queues) =
        reopen(Disk::open(&folder).unwrap(), settings, Repair::Refuse).unwrap();
    let queues = Mutex::new(queues);
    let fill = |count: u32| {
        for n in 0..count {
            let mut queues = queues.lock().unwrap();
            let last = append(&journal, &mut queues, n % 3, &[n as u8; 200]).unwrap();
            journal.commit(last, Durability::None).unwrap();
        }
    };
    fill(60);
    let (ours, theirs) =
        (journal.copy().unwrap(), copy::of(&Disk::read(&folder).unwrap()).unwrap());
    let expected = queues.lock().unwrap().clone();
    snapshot(&journal, &queues);
    fill(60);
    snapshot(&journal, &queues);
    for copied in [ours, theirs] {
        assert!(copied.parts().iter().any(|part| !folder.join(&part.name).exists()));
        let (_, _, found) = reopen(written(&copied, 0), settings, Repair::Refuse).unwrap();
        assert_eq!(found, expected);
    }
    drop(journal);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn copies_made_during_writes_and_snapshots_are_complete() {
    let folder =
        std::env::temp_dir().join(format!("interlock-journal-copies-{}", std::process::id()));
    let settings = JournalSettings { segment: 16 << 10, ..JournalSettings::default() };
    let (journal, _, queues) =
        reopen(Disk::open(&folder).unwrap(), settings, Repair::Refuse).unwrap();
    let queues = Mutex::new(queues);
    let (ends, confirmed) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for durability in [Durability::Always, Durability::EverySecond] {
            let (journal, queues, ends, confirmed) = (&journal, &queues, &ends, &confirmed);
            scope.spawn(move || {
                let mut n = 0;
                while !ends.load(Ordering::Relaxed) {
                    n += 1;
                    let mut told = queues.lock().unwrap();
                    // A snapshot of all there ever was grows with each.
                    if journal.last() > 20_000 {
                        break;
                    }
                    let last = append(journal, &mut told, n % 5, &[n as u8; 70]).unwrap();
                    drop(told);
                    journal.commit(last, durability).unwrap();
                    confirmed.fetch_max(last, Ordering::AcqRel);
                }
            });
        }
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                journal.prepare().unwrap();
                snapshot(&journal, &queues);
            }
        });
        for n in 0..60 {
            let before = confirmed.load(Ordering::Acquire);
            let copied = match n % 2 {
                0 => journal.copy().unwrap(),
                _ => copy::of(&Disk::read(&folder).unwrap()).unwrap(),
            };
            assert!(copied.last() >= before, "{} of {before}", copied.last());
            let (_, report, found) = reopen(written(&copied, 0), settings, Repair::Refuse).unwrap();
            assert_eq!(report.last, copied.last());
            assert_eq!(found, queues.lock().unwrap().up_to(copied.last()));
        }
        ends.store(true, Ordering::Relaxed);
    });
    drop(journal);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_damaged_journal_or_other_folder_is_not_copied() {
    let disk = Simulated::new(1);
    let said = |disk: &Simulated| copy::of(disk).unwrap_err().to_string();
    assert_eq!(said(&disk), " has no files of a journal");
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    for n in 0..20u32 {
        let last = append(&journal, &mut queues, n % 3, &[n as u8 + 1; 50]).unwrap();
        journal.commit(last, Durability::Always).unwrap();
    }
    journal.close().unwrap();
    let segments: Vec<String> =
        disk.list().into_iter().filter(|name| name.starts_with("segment-")).collect();
    let (first, second, last) = (&segments[0], &segments[1], segments.last().unwrap());
    for (name, at, why) in [
        (first, 70, "it follows record "),
        (second, 20, "its head cannot be read"),
        (last, 70, "though it was on disk, at byte 64"),
    ] {
        let whole = disk.content(name);
        let mut content = whole.clone();
        content[at] ^= 1;
        disk.set_content(name, &content);
        assert!(said(&disk).contains(why), "{}", said(&disk));
        disk.set_content(name, &whole);
    }
    let whole = disk.content(last);
    disk.set_content(last, &whole[..100]);
    assert!(said(&disk).contains("something cut it"), "{}", said(&disk));
    disk.remove(last).unwrap();
    assert!(said(&disk).contains("closed is damaged: records from "), "{}", said(&disk));
}
