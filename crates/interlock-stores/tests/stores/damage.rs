//! Files that something changed: what is whole is read, what is not is named and counted, and nothing
//! panics.

use fastrand::Rng;
use interlock_stores::disk::simulated::Simulated;
use interlock_stores::file::verify;
use interlock_stores::file::{FileStore, Fsync, Rotation, Settings};
use interlock_stores::Position;

use crate::everyday::{message, settings, NOON, SECOND};
use crate::model::{reader, Lost};
use crate::{seed, share};

const MESSAGES: usize = 60;

fn payload(n: usize) -> Vec<u8> {
    let mut payload = format!("message {n} ").into_bytes();
    payload.resize(20 + n % 50, b'.');
    payload
}

/// A store of several files, some of them compressed, closed or left as it was.
fn stored(path: &str, compressed: bool, closed: bool) -> (Simulated, Settings) {
    let disk = Simulated::new(1);
    let settings = Settings {
        fsync: Fsync::Always,
        rotation: Rotation { size: Some(700), minutes: None },
        compression: compressed.then_some(3),
        ..settings(path)
    };
    let (mut store, _) = FileStore::open(disk.clone(), settings.clone(), NOON).unwrap();
    for n in 0..MESSAGES {
        let payload = payload(n);
        store.append(&message(b"t", &payload, NOON + n as u64 * SECOND)).unwrap();
        store.commit().unwrap();
    }
    while store.upkeep(NOON).unwrap() {}
    if closed {
        store.close().unwrap();
    }
    (disk.killed(), settings)
}

/// Reads all forward and backward; returns which are there.
fn read(disk: &Simulated, settings: &Settings) -> (Vec<usize>, u64) {
    let reader = reader(disk, &settings.template, b"t");
    let mut forward = reader.forward(Position::FIRST);
    let (mut found, mut lost) = (Vec::new(), Lost::default());
    while let Some(stored) = lost.next(|| forward.find()) {
        let text = String::from_utf8_lossy(&stored.payload).into_owned();
        let n: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(stored.payload, payload(n), "what is read is what was written");
        found.push(n);
    }
    assert!(found.is_sorted(), "{found:?}");
    let mut backward = reader.backward(Position::LAST).unwrap();
    let mut back = Vec::new();
    while let Some(stored) = Lost::default().next(|| backward.find()) {
        let text = String::from_utf8_lossy(&stored.payload).into_owned();
        back.push(text.split(' ').nth(1).unwrap().parse().unwrap());
    }
    back.reverse();
    assert_eq!(found, back);
    let _ = reader.count().unwrap();
    (found, lost.messages())
}

#[test]
fn valid_frames_are_read_and_damaged_ones_named_and_counted() {
    let mut rng = Rng::with_seed(seed());
    let (mut lost_some, mut named, mut aside) = (0, 0, 0);
    for _ in 0..share(600) {
        let path = ["[topic].log", "all.log"][rng.usize(0..2)];
        let (disk, settings) = stored(path, rng.bool(), rng.bool());
        let files = disk.files();
        let name = files[rng.usize(0..files.len())].clone();
        let mut content = disk.content(&name).unwrap();
        if content.is_empty() {
            continue;
        }
        let at = rng.usize(0..content.len());
        match rng.u8(0..4) {
            0 => content[at] ^= 1 << rng.u8(0..8),
            1 => content.truncate(at),
            2 => {
                let end = (at + rng.usize(1..300)).min(content.len());
                content[at..end].fill_with(|| rng.u8(..));
            }
            _ => content.truncate(0),
        }
        disk.set_content(&name, &content);
        // As it lies there.
        let (found, lost) = read(&disk, &settings);
        let _ = verify(&disk, name.trim_end_matches(".idx").trim_end_matches(".zst"));
        // And when it is opened again, and written on.
        let (mut store, report) = FileStore::open(disk.clone(), settings.clone(), NOON).unwrap();
        let (after, lost_after) = read(&disk, &settings);
        // Opening loses nothing that is whole: what was torn off was not.
        assert!(found.iter().all(|n| after.contains(n)), "{name}: {report}\n{found:?}\n{after:?}");
        let gone = (MESSAGES - after.len()) as u64;
        let named_ones: u64 = report.damaged.iter().map(|one| one.messages).sum();
        let told = lost.max(lost_after).max(named_ones);
        let is_named = told > 0 || !report.is_clean();
        assert!(
            gone == 0 || is_named || is_whole_file(&name, &content),
            "{name}: {gone} gone {found:?} {after:?} at {at} of {}\n{report} {files:?}",
            content.len()
        );
        assert!(told <= gone + 1, "{name}: {told} told, {gone} gone: {report}");
        lost_some += u64::from(gone > 0);
        named += u64::from(told > 0);
        aside += u64::from(report.damaged.iter().any(|one| !one.aside.is_empty()));
        let payload = payload(MESSAGES);
        store.append(&message(b"t", &payload, NOON + 3_600 * SECOND)).unwrap();
        store.commit().unwrap();
        store.close().unwrap();
        let (last, _) = read(&disk, &settings);
        assert_eq!(last.len(), after.len() + 1, "{name}: {report}");
        assert_eq!(last.last(), Some(&MESSAGES));
        let (_, again) = FileStore::open(disk.clone(), settings.clone(), NOON).unwrap();
        assert!(again.damaged.is_empty() && again.torn.is_empty(), "{name}: {report}\n{again}");
    }
    println!("{lost_some} lost some, {named} told how many, {aside} set aside");
    assert!(lost_some > 0 && named > 0 && aside > 0);
}

/// Returns whether a file was emptied: an index of no length is one that was being made.
fn is_whole_file(name: &str, content: &[u8]) -> bool {
    name.ends_with(".idx") && content.len() < 64
}

#[test]
fn a_newest_index_that_lost_entries_is_closed_and_a_new_file_begun() {
    let (disk, settings) = stored("[topic].log", false, true);
    let mut index = disk.content("t.log.idx").unwrap();
    let messages = index.len() / 64 - 5;
    let at = index.len() - 64 * (messages - 1);
    index[at + 20] ^= 1;
    disk.set_content("t.log.idx", &index);
    let (store, report) = FileStore::open(disk.clone(), settings.clone(), NOON).unwrap();
    assert_eq!(report.damaged.len(), 1, "{report}");
    assert_eq!(report.damaged[0].messages, 1, "{report}");
    assert!(
        report.to_string().contains("1 message is lost; its intact messages are read"),
        "{report}"
    );
    let (found, lost) = read(&disk, &settings);
    assert_eq!((found.len(), lost), (MESSAGES - 1, 1));
    drop(store);
}
