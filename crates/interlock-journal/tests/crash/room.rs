//! A full disk, and one that fails.

use interlock_journal::storage::simulated::{Faults, Simulated};
use interlock_journal::storage::Fill;
use interlock_journal::{Durability, Journal, Refused, Repair, Settings};

use crate::queues::{append, reopen, Queues};

const SETTINGS: Settings = Settings { segment: 1_000, fill: Fill::Written, longest: 999, salt: 5 };

fn put(journal: &Journal<Simulated>, queues: &mut Queues, n: u8) -> Result<(), Refused> {
    journal.accepts(true)?;
    let sequence = append(journal, queues, u32::from(n) % 2, &[n; 60])?;
    journal.commit(sequence, Durability::Always)
}

#[test]
fn a_full_disk_refuses_and_goes_on_in_order_when_there_is_room() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    disk.set_faults(Faults { capacity: Some(2_500), ..Faults::default() });
    let mut answered = 0;
    let refused = (0..).find_map(|n| {
        let result = put(&journal, &mut queues, n);
        answered += u32::from(result.is_ok());
        result.err()
    });
    assert!(matches!(refused, Some(Refused::Full(_))), "{refused:?}");
    assert!(answered > 10);
    // What was refused after it was made waits; nothing else is taken.
    let waiting = journal.last();
    assert!(journal.durable() < waiting);
    assert!(matches!(put(&journal, &mut queues, 1), Err(Refused::Full(_))));
    assert!(matches!(journal.tick(), Err(Refused::Short(_) | Refused::Full(_))));
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
fn where_the_next_segment_has_no_room_what_makes_a_queue_smaller_is_still_taken() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    disk.set_faults(Faults { capacity: Some(1_500), ..Faults::default() });
    assert!(matches!(journal.prepare(), Err(Refused::Short(_))));
    assert!(matches!(journal.accepts(true), Err(Refused::Short(_))));
    journal.accepts(false).unwrap();
    let sequence = append(&journal, &mut queues, 0, b"an ack").unwrap();
    journal.commit(sequence, Durability::Always).unwrap();
    disk.set_faults(Faults::default());
    assert!(journal.prepare().unwrap());
    journal.accepts(true).unwrap();
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
fn nothing_is_durable_any_more_after_a_failed_sync_or_write() {
    for sync in [true, false] {
        for seed in 0..40 {
            let disk = Simulated::new(seed);
            let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
            put(&journal, &mut queues, 1).unwrap();
            let mut faults = Faults::default();
            *(if sync { &mut faults.fail_sync_in } else { &mut faults.fail_write_in }) = Some(0);
            disk.set_faults(faults);
            let refused = put(&journal, &mut queues, 2).unwrap_err();
            assert!(matches!(refused, Refused::Failed(_)), "{refused}");
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
    let settings = Settings { segment: 200, ..SETTINGS };
    let (journal, _, mut queues) = reopen(disk.clone(), settings, Repair::Refuse).unwrap();
    let refused = append(&journal, &mut queues, 0, &[1; 999]);
    assert_eq!(refused, Err(Refused::TooLong(4 + 999 + 4 + 3, 999)));
    let sequence = append(&journal, &mut queues, 0, &[1; 900]).unwrap();
    journal.commit(sequence, Durability::None).unwrap();
    drop(journal);
    let (_, _, found) = reopen(disk, settings, Repair::Refuse).unwrap();
    assert_eq!(found, queues);
}
