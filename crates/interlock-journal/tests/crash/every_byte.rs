//! The last records cut and changed at every byte: intact ones are kept, and the rest is reported.

use interlock_journal::storage::simulated::Simulated;
use interlock_journal::storage::Fill;
use interlock_journal::{record, Durability, JournalSettings, OpenError, Repair};

use crate::queues::{append, reopen, Queues};

const SETTINGS: JournalSettings =
    JournalSettings { segment: 4_096, fill: Fill::Written, longest: 999, salt: 5, rules: 1 };
const NAME: &str = "segment-00000000000000000001";

/// A journal's only segment, what is in it, and where each record begins, and ends before its padding.
fn segment(records: usize, durability: Durability) -> (Vec<u8>, Queues, Vec<usize>, Vec<usize>) {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    let mut begins = vec![interlock_journal::file::HEAD];
    let mut ends = Vec::new();
    for n in 0..records {
        let value = vec![n as u8 + 1; n * 7 % 40];
        let sequence = append(&journal, &mut queues, n as u32 % 3, &value).unwrap();
        journal.commit(sequence, durability).unwrap();
        let body = 4 + value.len() + 4 + value.len().to_string().len();
        ends.push(begins[n] + record::HEAD + body);
        begins.push(begins[n] + record::padded(body));
    }
    (disk.content(NAME), queues, begins, ends)
}

fn disk_with(content: &[u8]) -> Simulated {
    let disk = Simulated::new(2);
    disk.set_content(NAME, content);
    disk
}

#[test]
fn a_segment_cut_at_any_byte_is_refused_and_a_repair_keeps_complete_records() {
    let (content, queues, begins, ends) = segment(12, Durability::Always);
    for cut in begins[5]..begins[12] {
        let disk = disk_with(&content[..cut]);
        let Err(OpenError::Damaged(damage)) = reopen(disk.clone(), SETTINGS, Repair::Refuse) else {
            panic!("cut at {cut}, and opened");
        };
        let whole = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!((damage.offset, damage.first), (begins[whole] as u64, whole as u64 + 1));
        let said = damage.to_string();
        let length = format!("it was created with 4096 bytes and has {cut}: it was truncated. ");
        assert!(said.contains(&length) && said.ends_with(", if there were any"), "{said}");
        let (_, report, found) = reopen(disk, SETTINGS, Repair::SetAside).unwrap();
        assert_eq!(report.last, whole as u64, "cut at {cut}");
        assert_eq!(found, queues.up_to(whole as u64), "cut at {cut}");
        assert_eq!((report.torn, report.aside.unwrap().why), (None, said));
    }
}

#[test]
fn a_changed_byte_is_refused_in_confirmed_records_and_else_cut_off_and_reported() {
    for durability in [Durability::Always, Durability::EverySecond] {
        let (content, queues, begins, _) = segment(12, durability);
        let (mut refused, mut torn) = (0, 0);
        for at in begins[5]..begins[12] {
            let mut changed = content.clone();
            changed[at] ^= 0x20;
            let hit = begins.iter().rposition(|begin| *begin <= at).unwrap();
            match reopen(disk_with(&changed), SETTINGS, Repair::Refuse) {
                Ok((_, report, found)) => {
                    if report.torn.is_none() {
                        // Zeroes between two records belong to none.
                        assert_eq!((report.last, found), (12, queues.clone()), "byte {at}");
                        continue;
                    }
                    torn += 1;
                    assert!(durability != Durability::Always || hit == 11, "byte {at}");
                    assert_eq!((report.last, found), (hit as u64, queues.up_to(hit as u64)));
                    let found = report.torn.unwrap();
                    assert_eq!((found.offset, found.first), (begins[hit] as u64, hit as u64 + 1));
                    assert_eq!(found.whole, 11 - hit as u64, "byte {at}");
                    assert_eq!(found.last, 12);
                    // A last record may end in zeroes, which nobody could tell from those behind it.
                    let end = (begins[12] - begins[hit]) as u64;
                    assert!((end - 3..=end).contains(&found.bytes), "byte {at}: {}", found.bytes);
                }
                Err(OpenError::Damaged(damage)) => {
                    refused += 1;
                    assert!(durability == Durability::Always && hit < 11, "byte {at}: {damage}");
                    assert_eq!((damage.offset, damage.first), (begins[hit] as u64, hit as u64 + 1));
                    assert_eq!((damage.whole, damage.last), (11 - hit as u64, 12), "byte {at}");
                    let disk = disk_with(&changed);
                    let (journal, report, found) =
                        reopen(disk.clone(), SETTINGS, Repair::SetAside).unwrap();
                    assert_eq!((report.last, &found), (hit as u64, &queues.up_to(hit as u64)));
                    let aside = report.aside.unwrap();
                    assert_eq!(disk.content(&aside.files[0]), changed);
                    // And it continues from there.
                    let mut found = found;
                    let next = append(&journal, &mut found, 0, b"next").unwrap();
                    journal.commit(next, Durability::Always).unwrap();
                    drop(journal);
                    let (_, report, again) = reopen(disk, SETTINGS, Repair::Refuse).unwrap();
                    assert_eq!((report.last, again), (next, found));
                }
                Err(error) => panic!("byte {at}: {error}"),
            }
        }
        println!("{durability:?}: {refused} refused, {torn} cut off");
    }
}

#[test]
fn after_a_pause_even_the_last_record_is_known_to_be_missing() {
    let disk = Simulated::new(1);
    let (journal, _, mut queues) = reopen(disk.clone(), SETTINGS, Repair::Refuse).unwrap();
    let last = append(&journal, &mut queues, 0, b"last").unwrap();
    journal.commit(last, Durability::Always).unwrap();
    journal.tick().unwrap();
    drop(journal);
    let mut content = disk.content(NAME);
    content[interlock_journal::file::HEAD + 40] ^= 1;
    let Err(OpenError::Damaged(damage)) = reopen(disk_with(&content), SETTINGS, Repair::Refuse)
    else {
        panic!("it was on disk");
    };
    assert_eq!((damage.offset, damage.first, damage.whole), (64, 1, 1));
}
