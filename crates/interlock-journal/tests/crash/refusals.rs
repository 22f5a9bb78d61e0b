//! Journals that are not opened, and files that are set aside when that is asked for.

use interlock_journal::storage::simulated::Simulated;
use interlock_journal::storage::{disk::Disk, Fill, Storage};
use interlock_journal::{Durability, JournalError, JournalSettings, OpenError, Repair};

use crate::queues::{append, reopen, Queues, KNOWN_RULES};

const SETTINGS: JournalSettings =
    JournalSettings { segment: 512, fill: Fill::Written, longest: 999, salt: 5, rules: 1 };

/// A journal with a snapshot and several segments behind it, closed.
fn filled() -> (Simulated, Queues) {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    for n in 0..40u32 {
        let last = append(&journal, &mut queues, n % 3, &[n as u8; 50]).unwrap();
        journal.commit(last, Durability::Always).unwrap();
        if n == 20 {
            let mut snapshot = journal.snapshot().unwrap();
            for queue in 0..3 {
                snapshot.queue(queue, last, &queues.state(queue)).unwrap();
            }
            assert!(!snapshot.finish().unwrap().removed.is_empty());
        }
    }
    journal.close().unwrap();
    assert_eq!(journal.accepts(None), Err(JournalError::Closed));
    (disk, queues)
}

fn segments(disk: &Simulated) -> Vec<String> {
    disk.list().into_iter().filter(|name| name.starts_with("segment-")).collect()
}

fn snapshot(disk: &Simulated) -> String {
    disk.list().into_iter().find(|name| name.starts_with("snapshot-")).unwrap()
}

fn refused(disk: &Simulated) -> OpenError {
    let before: Vec<_> = disk.list().iter().map(|name| disk.content(name)).collect();
    let Err(error) = reopen(disk.clone(), SETTINGS, Repair::Refuse) else { panic!("opened") };
    let after: Vec<_> = disk.list().iter().map(|name| disk.content(name)).collect();
    assert!(before == after, "{error}: the folder was changed");
    assert!(error.to_string().contains("parts aside"), "{error}");
    error
}

#[test]
fn an_undamaged_journal_is_restored_from_its_snapshot_and_later_records() {
    let (disk, queues) = filled();
    let (_, report, found) = reopen(disk, SETTINGS, Repair::Refuse).unwrap();
    assert_eq!(found, queues);
    let text = report.to_string();
    assert!(text.starts_with("snapshot snapshot-00000000000000000021: 3 queues, "), "{text}");
    assert!(text.contains(": 19 records replayed, "), "{text}");
    assert!(text.ends_with("the last is 41"), "{text}");
    assert_eq!(report.torn, None);
}

#[test]
fn a_missing_segment_is_refused_and_skipped_by_a_repair() {
    let (disk, queues) = filled();
    let middle = segments(&disk)[1].clone();
    disk.remove(&middle).unwrap();
    let OpenError::Damaged(damage) = refused(&disk) else { panic!() };
    assert!(damage.why.ends_with("should come next, and is missing"), "{damage}");
    let (journal, report, mut found) = reopen(disk.clone(), SETTINGS, Repair::SetAside).unwrap();
    assert_eq!(found, queues.up_to(report.last));
    assert_eq!(report.last, damage.first - 1);
    assert!(report.aside.unwrap().files.iter().all(|name| name.ends_with(".aside-1")));
    let last = append(&journal, &mut found, 1, b"on").unwrap();
    journal.commit(last, Durability::Always).unwrap();
    drop(journal);
    let (_, _, again) = reopen(disk, SETTINGS, Repair::Refuse).unwrap();
    assert_eq!(again, found);
}

#[test]
fn a_segment_without_its_head_is_refused() {
    let (disk, queues) = filled();
    let name = segments(&disk)[2].clone();
    let mut content = disk.content(&name);
    content[20] ^= 1;
    disk.set_content(&name, &content);
    let OpenError::Damaged(damage) = refused(&disk) else { panic!() };
    assert_eq!((&damage.file, damage.offset), (&name, 0));
    let (_, report, found) = reopen(disk, SETTINGS, Repair::SetAside).unwrap();
    assert_eq!((report.last, &found), (damage.first - 1, &queues.up_to(damage.first - 1)));
}

#[test]
fn segments_that_end_before_their_snapshot_are_refused_and_no_number_is_reused() {
    let (disk, _) = filled();
    for name in segments(&disk) {
        disk.remove(&name).unwrap();
    }
    disk.remove("closed").unwrap();
    let before = reopen(disk.clone(), SETTINGS, Repair::Refuse).map(|(_, report, _)| report.last);
    // The snapshot alone is all that there is: nothing says that there was more.
    assert_eq!(before.unwrap(), 21);
}

#[test]
fn a_damaged_snapshot_is_refused_and_nothing_is_replayed_without_it() {
    let (disk, _) = filled();
    let name = snapshot(&disk);
    let whole = disk.content(&name);
    for at in [70, whole.len() / 2, whole.len() - 3] {
        let mut content = whole.clone();
        content[at] ^= 4;
        disk.set_content(&name, &content);
        let OpenError::Damaged(damage) = refused(&disk) else { panic!() };
        assert_eq!(damage.file, name);
    }
    for cut in (64..whole.len()).step_by(7) {
        disk.set_content(&name, &whole[..cut]);
        assert!(matches!(refused(&disk), OpenError::Damaged(_)));
    }
    let (_, report, found) = reopen(disk.clone(), SETTINGS, Repair::SetAside).unwrap();
    assert_eq!((found, report.last), (Queues::default(), 0));
    assert!(disk.list().contains(&format!("{name}.aside-1")));
}

#[test]
fn a_later_version_is_refused_and_set_aside_complete() {
    for pick in [snapshot as fn(&Simulated) -> String, |disk| segments(disk)[1].clone()] {
        let (disk, _) = filled();
        let name = pick(&disk);
        let mut content = disk.content(&name);
        content[8] = 2;
        disk.set_content(&name, &content);
        let error = refused(&disk);
        assert!(
            error.to_string().contains(
                "its version is 2; allowed: 1; start the version that \
                                        wrote it"
            ),
            "{error}"
        );
        let files = disk.list().len();
        let (_, report, found) = reopen(disk.clone(), SETTINGS, Repair::SetAside).unwrap();
        assert_eq!(found, Queues::default());
        let aside = report.aside.unwrap();
        assert_eq!(aside.files.len(), disk.list().len() - 1, "all but the new segment");
        assert_eq!(disk.list().len(), files + 1);
    }
}

#[test]
fn unknown_rules_are_refused_before_a_repair_changes_anything() {
    let (disk, mut queues) = filled();
    let later = JournalSettings { rules: KNOWN_RULES + 1, ..SETTINGS };
    let (journal, _, _) = reopen(disk.clone(), later, Repair::Refuse).unwrap();
    let last = append(&journal, &mut queues, 1, b"later").unwrap();
    journal.commit(last, Durability::Always).unwrap();
    drop(journal);
    // Damage, behind which a repair would set aside what the later program wrote.
    let damaged = segments(&disk)[1].clone();
    let mut content = disk.content(&damaged);
    content[20] ^= 1;
    disk.set_content(&damaged, &content);
    let newest = segments(&disk).pop().unwrap();
    let before: Vec<_> = disk.list().iter().map(|name| disk.content(name)).collect();
    for repair in [Repair::Refuse, Repair::SetAside] {
        let Err(error) = reopen(disk.clone(), SETTINGS, repair) else { panic!("opened") };
        let wanted = format!(
            "{newest} was written by version 3 of the rules; allowed: 1 to 2; start the version of \
             Interlock that wrote it, or a later one"
        );
        assert_eq!(error.to_string(), wanted);
        let after: Vec<_> = disk.list().iter().map(|name| disk.content(name)).collect();
        assert!(before == after, "the folder was changed");
    }
}

#[test]
fn a_folder_that_is_not_a_journal_is_refused() {
    let disk = Simulated::new(1);
    disk.set_content(
        "segment-00000000000000000001",
        b"a letter to a friend, of more than 64 bytes, at least so it seems",
    );
    assert!(refused(&disk).to_string().contains("it does not begin as one"));
}

#[test]
fn foreign_files_are_not_touched() {
    let (disk, queues) = filled();
    let others = ["notes.new", "segment-1", "segment-00000000000000000001.old", "snapshot-x.new"];
    others.iter().for_each(|name| disk.set_content(name, b"a letter"));
    for own in ["spare.new", "next.new", "snapshot-00000000000000000030.new"] {
        disk.set_content(own, b"half of one");
    }
    let (_, _, found) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    assert_eq!(found, queues);
    let mut left = disk.list();
    left.retain(|name| name.ends_with(".new") || others.contains(&name.as_str()));
    left.sort();
    let mut others = others;
    others.sort_unstable();
    assert_eq!(left, others);
}

#[test]
fn removing_the_lock_file_does_not_unlock_the_journal() {
    let name = format!("interlock-journal-lock-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let settings = JournalSettings { segment: 4_096, ..JournalSettings::default() };
    let (first, _, mut queues) =
        reopen(Disk::open(&folder).unwrap(), settings, Repair::Refuse).unwrap();
    std::fs::remove_file(folder.join("lock")).unwrap();
    let Err(error) = reopen(Disk::open(&folder).unwrap(), settings, Repair::SetAside) else {
        panic!("both have it");
    };
    assert!(error.to_string().contains("which holds the folder "), "{error}");
    let last = append(&first, &mut queues, 1, b"still its own").unwrap();
    first.commit(last, Durability::Always).unwrap();
    drop(first);
    let (_, _, found) = reopen(Disk::open(&folder).unwrap(), settings, Repair::Refuse).unwrap();
    assert_eq!(found, queues);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_that_an_earlier_version_has_open_is_refused() {
    let name = format!("interlock-journal-earlier-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let disk = Disk::open(&folder).unwrap();
    let held = std::fs::File::create(folder.join("lock")).unwrap();
    held.lock().unwrap();
    let settings = JournalSettings { segment: 4_096, ..JournalSettings::default() };
    assert!(matches!(reopen(disk, settings, Repair::Refuse), Err(OpenError::Locked(_))));
    held.unlock().unwrap();
    assert!(reopen(Disk::open(&folder).unwrap(), settings, Repair::Refuse).is_ok());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn two_processes_cannot_open_one_folder() {
    let folder = std::env::temp_dir().join(format!("interlock-journal-{}", std::process::id()));
    let settings = JournalSettings { segment: 4_096, ..JournalSettings::default() };
    let first = reopen(Disk::open(&folder).unwrap(), settings, Repair::Refuse).unwrap();
    let second = reopen(Disk::open(&folder).unwrap(), settings, Repair::SetAside);
    let Err(error) = second else { panic!("both have it") };
    assert!(matches!(error, OpenError::Locked(_)), "{error}");
    drop(first);
    assert!(reopen(Disk::open(&folder).unwrap(), settings, Repair::Refuse).is_ok());
    std::fs::remove_dir_all(folder).unwrap();
}
