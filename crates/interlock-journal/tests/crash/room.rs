//! A full disk, and one that fails.

use interlock_journal::storage::simulated::{Faults, Simulated};
use interlock_journal::storage::{Fill, Storage};
use interlock_journal::{Durability, Journal, JournalError, JournalSettings, Repair};

use crate::queues::{append, reopen, Queues};

const SETTINGS: JournalSettings =
    JournalSettings { segment: 1_000, fill: Fill::Written, longest: 999, salt: 5, rules: 1 };

fn put(journal: &Journal<Simulated>, queues: &mut Queues, n: u8) -> Result<(), JournalError> {
    journal.accepts(Some(PUT))?;
    settle(journal, queues, n)
}

/// Records a call that is taken as long as there is any room.
fn settle(journal: &Journal<Simulated>, queues: &mut Queues, n: u8) -> Result<(), JournalError> {
    journal.accepts(None)?;
    let sequence = append(journal, queues, u32::from(n) % 2, &[n; 60])?;
    journal.commit(sequence, Durability::Always)
}

const PUT: u64 = 110;

#[test]
fn a_full_disk_refuses_records_and_continues_in_order_when_there_is_room() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    disk.set_faults(Faults { capacity: Some(2_500), ..Faults::default() });
    let mut answered = 0;
    let refused = (0..).find_map(|n| {
        let result = settle(&journal, &mut queues, n);
        answered += u32::from(result.is_ok());
        result.err()
    });
    assert!(matches!(refused, Some(JournalError::Full(_))), "{refused:?}");
    assert!(answered > 10);
    // What was refused after it was made waits; nothing else is taken.
    let waiting = journal.last();
    assert!(journal.durable() < waiting);
    assert!(matches!(settle(&journal, &mut queues, 1), Err(JournalError::Full(_))));
    assert!(matches!(journal.tick(), Err(JournalError::Short(_) | JournalError::Full(_))));
    assert_eq!(journal.last(), waiting);
    disk.set_faults(Faults::default());
    journal.tick().unwrap();
    assert_eq!(journal.durable(), waiting);
    put(&journal, &mut queues, 9).unwrap();
    drop(journal);
    let (_, _, found) = reopen(disk.restart(), SETTINGS, Repair::Refuse).unwrap();
    assert_eq!(found, queues);
}

#[test]
fn without_room_for_the_next_segment_settlements_are_still_accepted() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    disk.set_faults(Faults { capacity: Some(1_500), ..Faults::default() });
    assert!(matches!(journal.prepare(), Err(JournalError::Short(_))));
    assert!(matches!(journal.accepts(Some(1)), Err(JournalError::Short(_))));
    journal.accepts(None).unwrap();
    let sequence = append(&journal, &mut queues, 0, b"an ack").unwrap();
    journal.commit(sequence, Durability::Always).unwrap();
    disk.set_faults(Faults::default());
    assert!(journal.prepare().unwrap());
    journal.accepts(Some(1)).unwrap();
    assert!(!journal.prepare().unwrap(), "there is one");
}

#[test]
fn a_snapshot_without_room_leaves_the_journal_as_it_was() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    put(&journal, &mut queues, 3).unwrap();
    disk.set_faults(Faults { capacity: Some(1_100), ..Faults::default() });
    let mut snapshot = journal.snapshot().unwrap();
    let written =
        snapshot.queue(1, journal.last(), &[7; 5_000]).and_then(|()| snapshot.finish().map(drop));
    assert!(interlock_journal::storage::is_full(&written.unwrap_err()));
    assert_eq!(disk.list(), ["segment-00000000000000000001"]);
    put(&journal, &mut queues, 4).unwrap();
}

#[test]
fn after_a_failed_sync_or_write_nothing_is_confirmed() {
    for sync in [true, false] {
        for seed in 0..40 {
            let disk = Simulated::new(seed);
            let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
            put(&journal, &mut queues, 1).unwrap();
            let mut faults = Faults::default();
            *(if sync { &mut faults.fail_sync_in } else { &mut faults.fail_write_in }) = Some(0);
            disk.set_faults(faults);
            let refused = put(&journal, &mut queues, 2).unwrap_err();
            assert!(matches!(refused, JournalError::Failed(_)), "{refused}");
            assert!(refused.to_string().contains("input/output error"), "{refused}");
            // The disk would do it now; that says nothing of what it lost.
            for again in [put(&journal, &mut queues, 3), journal.tick(), journal.close()] {
                assert_eq!(again.as_ref().unwrap_err(), &refused);
            }
            let last = journal.last();
            assert_eq!(journal.commit(last, Durability::Always), Err(refused.clone()));
            assert_eq!(journal.durable(), 1);
            drop(journal);
            let (_, report, found) = reopen(disk.restart(), SETTINGS, Repair::Refuse).unwrap();
            assert!(report.last >= 1);
            assert_eq!(found, queues.up_to(report.last));
        }
    }
}

#[test]
fn a_record_that_is_too_long_is_refused_and_one_longer_than_a_segment_is_not() {
    let disk = Simulated::new(1);
    let settings = JournalSettings { segment: 200, ..SETTINGS };
    let (journal, _, mut queues) = reopen(disk.clone(), settings, Repair::Refuse).unwrap();
    let refused = append(&journal, &mut queues, 0, &[1; 999]);
    assert_eq!(refused, Err(JournalError::TooLong(4 + 999 + 4 + 3, 999)));
    let sequence = append(&journal, &mut queues, 0, &[1; 900]).unwrap();
    journal.commit(sequence, Durability::None).unwrap();
    drop(journal);
    let (_, _, found) = reopen(disk, settings, Repair::Refuse).unwrap();
    assert_eq!(found, queues);
}

#[test]
fn a_call_that_was_made_while_the_disk_filled_up_is_recorded_once_there_is_room() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    disk.set_faults(Faults { capacity: Some(1_500), ..Faults::default() });
    let refused = (0..).find_map(|n| settle(&journal, &mut queues, n).err());
    assert!(matches!(refused, Some(JournalError::Full(_))), "{refused:?}");
    // Another thread had asked before that, and made its call: without its record, what is recorded
    // later would be replayed upon another state.
    append(&journal, &mut queues, 1, b"made meanwhile").unwrap();
    disk.set_faults(Faults::default());
    journal.tick().unwrap();
    drop(journal);
    let (_, _, found) = reopen(disk.restart(), SETTINGS, Repair::Refuse).unwrap();
    assert_eq!(found, queues);
}

#[test]
fn a_spare_segment_that_is_too_small_is_freed_for_the_needed_one() {
    let disk = Simulated::new(1);
    let settings = JournalSettings { longest: 5_000, ..SETTINGS };
    let (journal, _, mut queues) = reopen(disk.clone(), settings, Repair::Refuse).unwrap();
    assert!(journal.prepare().unwrap());
    disk.set_faults(Faults { capacity: Some(2_600), ..Faults::default() });
    let sequence = append(&journal, &mut queues, 0, &[1; 1_400]).unwrap();
    journal.commit(sequence, Durability::Always).unwrap();
    assert_eq!(disk.list(), ["segment-00000000000000000001", "segment-00000000000000000002"]);
}

#[test]
fn without_room_for_a_full_segment_a_shorter_one_is_started() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    for n in 0..5 {
        put(&journal, &mut queues, n).unwrap();
    }
    drop(journal);
    disk.set_faults(Faults { capacity: Some(1_300), ..Faults::default() });
    let (journal, _, mut found) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    assert_eq!(found, queues);
    let sequence = append(&journal, &mut found, 0, b"an ack").unwrap();
    journal.commit(sequence, Durability::Always).unwrap();
    drop(journal);
    let (_, _, again) = reopen(disk.restart(), SETTINGS, Repair::Refuse).unwrap();
    assert_eq!(again, found);
}

#[test]
fn puts_on_a_full_disk_leave_room_for_settlements() {
    for most in 1..12 {
        let disk = Simulated::new(1);
        let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
        disk.set_faults(Faults { capacity: Some(2_500), ..Faults::default() });
        // Several calls before each commit, as many connections make them.
        let refused = 'all: loop {
            for n in 0..most {
                if let Err(refused) = journal.accepts(Some(PUT)) {
                    break 'all refused;
                }
                append(&journal, &mut queues, 1, &[n; 60]).unwrap();
            }
            journal.commit(journal.last(), Durability::Always).unwrap();
        };
        assert!(matches!(refused, JournalError::Short(_)), "{refused:?}");
        assert!(refused.to_string().starts_with("the journal's disk is nearly full: spare.new: "));
        journal.commit(journal.last(), Durability::Always).unwrap();
        for n in 0..2 {
            settle(&journal, &mut queues, n).unwrap();
        }
        drop(journal);
        let (_, _, found) = reopen(disk.restart(), SETTINGS, Repair::Refuse).unwrap();
        assert_eq!(found, queues);
    }
}

#[test]
fn calls_faster_than_segment_creation_create_the_segment_themselves() {
    let disk = Simulated::new(1);
    let settings = JournalSettings { longest: 9_000, ..SETTINGS };
    let (journal, _, mut queues) = reopen(disk.clone(), settings, Repair::Refuse).unwrap();
    for n in 0..100 {
        put(&journal, &mut queues, n).unwrap();
    }
    // One that is longer than a segment has one made for it, or is refused alone.
    journal.accepts(Some(5_100)).unwrap();
    let last = append(&journal, &mut queues, 1, &[7; 5_000]).unwrap();
    journal.commit(last, Durability::Always).unwrap();
    let used: usize = disk.list().iter().map(|name| disk.content(name).len()).sum();
    disk.set_faults(Faults { capacity: Some(used as u64 + 2_000), ..Faults::default() });
    assert!(matches!(journal.accepts(Some(5_100)), Err(JournalError::Short(_))));
    put(&journal, &mut queues, 3).unwrap();
    drop(journal);
    let (_, _, found) = reopen(disk.restart(), settings, Repair::Refuse).unwrap();
    assert_eq!(found, queues);
}

#[test]
fn a_process_out_of_descriptors_continues_once_it_has_some() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    disk.set_faults(Faults { no_files: Some(24), ..Faults::default() });
    let refused = (0..).find_map(|n| settle(&journal, &mut queues, n).err()).unwrap();
    let text = refused.to_string();
    assert!(text.starts_with("the journal cannot make its next segment: "), "{text}");
    assert!(matches!(refused, JournalError::Full(_)), "{refused:?}");
    disk.set_faults(Faults::default());
    journal.tick().unwrap();
    settle(&journal, &mut queues, 1).unwrap();
    drop(journal);
    let (_, _, found) = reopen(disk.restart(), SETTINGS, Repair::Refuse).unwrap();
    assert_eq!(found, queues);
}

#[test]
fn records_in_a_removed_or_replaced_segment_are_not_confirmed() {
    for replaced in [false, true] {
        let disk = Simulated::new(1);
        let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
        put(&journal, &mut queues, 1).unwrap();
        journal.tick().unwrap();
        let name = "segment-00000000000000000001";
        match replaced {
            true => disk.set_content(name, &disk.content(name)),
            false => disk.remove(name).unwrap(),
        }
        let failed = journal.tick().unwrap_err();
        let text = "the journal failed: segment-00000000000000000001: it was removed or moved";
        assert!(failed.to_string().starts_with(text), "{failed}");
        assert_eq!(put(&journal, &mut queues, 2), Err(failed));
    }
}

#[test]
fn records_accepted_on_a_nearly_full_disk_are_synced_within_a_second() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    disk.set_faults(Faults { capacity: Some(1_500), ..Faults::default() });
    assert!(matches!(journal.prepare(), Err(JournalError::Short(_))));
    let last = append(&journal, &mut queues, 0, b"an ack").unwrap();
    journal.commit(last, Durability::EverySecond).unwrap();
    assert!(journal.durable() < last);
    assert!(matches!(journal.tick(), Err(JournalError::Short(_))));
    assert_eq!(journal.durable(), last);
}

#[test]
fn a_put_longer_than_a_record_may_be_is_refused_before_it_is_made() {
    let disk = Simulated::new(1);
    let (journal, _, _) = reopen(disk, SETTINGS, Repair::Refuse).unwrap();
    assert_eq!(journal.accepts(Some(1_000)), Err(JournalError::TooLong(1_000, 999)));
    journal.accepts(Some(PUT)).unwrap();
}
