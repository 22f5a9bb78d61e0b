//! The things that a user of the file store sees.

use std::path::{Path, PathBuf};

use interlock_stores::calendar::Zone;
use interlock_stores::disk::folder::Folder;
use interlock_stores::disk::simulated::{Faults, Simulated};
use interlock_stores::file::{FileStore, Fsync, Report, Settings, Taken};
use interlock_stores::{Message, Position, Template};

use crate::model::{read_all, read_from_places, reader};

/// 2026-11-23 11:59:59.
pub const NOON: u64 = 1_795_435_199 * SECOND;
pub const SECOND: u64 = 1_000_000;
pub const DAY: u64 = 86_400 * SECOND;

pub fn template(text: &str) -> Template {
    Template::parse(text, "host", "keep", Zone::Utc).unwrap()
}

pub fn settings(path: &str) -> Settings {
    Settings { salt: 7, ..Settings::new("keep", template(path)) }
}

pub fn message<'a>(topic: &'a [u8], payload: &'a [u8], time: u64) -> Message<'a> {
    Message { topic, payload, time, origin: 0, number: 0 }
}

fn open(disk: &Simulated, settings: &Settings) -> (FileStore<Simulated>, Report) {
    FileStore::open(disk.clone(), settings.clone(), NOON).unwrap()
}

fn text(disk: &Simulated, path: &str) -> String {
    String::from_utf8(disk.content(path).unwrap_or_else(|| panic!("{path}"))).unwrap()
}

/// A folder of the real disk for a test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("interlock-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn messages_are_stored_as_lines_in_a_file_and_read_back() {
    let scratch = Scratch::new("everyday");
    let folder = Folder::new(&scratch.0);
    let settings = settings("x/[topic]/[date].log");
    let open = || FileStore::open(folder.clone(), settings.clone(), NOON).unwrap();
    let (mut store, report) = open();
    assert!(report.is_clean());
    for (topic, payload) in [(&b"a"[..], &b"one"[..]), (b"a", b"two\nlines"), (b"../b", b"")] {
        assert!(matches!(store.append(&message(topic, payload, NOON)).unwrap(), Taken::Waits(_)));
    }
    store.commit().unwrap();
    let read = |path: &str| std::fs::read_to_string(scratch.0.join(path)).unwrap();
    assert_eq!(read("a/2026-11-23.log"), "one\ntwo\nlines\n");
    assert_eq!(read("%2E.%2Fb/2026-11-23.log"), "\n");
    drop(store);
    let (mut store, report) = open();
    assert!(report.is_clean(), "{report}");
    store.append(&message(b"a", b"three", NOON + 5)).unwrap();
    store.append(&message(b"a", b"tomorrow", NOON + DAY)).unwrap();
    store.append(&message(b"a", b"late", NOON)).unwrap();
    store.close().unwrap();
    assert_eq!(read("a/2026-11-23.log"), "one\ntwo\nlines\nthree\n");
    assert_eq!(read("a/2026-11-24.log"), "tomorrow\nlate\n");
    let (found, lost) = read_all(&reader(&folder, &settings.template, b"a"));
    let payloads: Vec<_> = found.iter().map(|stored| &stored.payload[..]).collect();
    assert_eq!(payloads, [&b"one"[..], b"two\nlines", b"three", b"tomorrow", b"late"]);
    assert_eq!(lost.messages(), 0);
    let ms = NOON / 1000;
    let places: Vec<_> = found.iter().map(|stored| stored.position).collect();
    let day = ms + DAY / 1000;
    let expected =
        [(ms, 0), (ms, 1), (ms, 2), (day, 0), (day, 1)].map(|(ms, n)| Position { ms, n });
    assert_eq!(places, expected);
    assert_eq!(reader(&folder, &settings.template, b"a").count().unwrap(), 5);
    assert_eq!(reader(&folder, &settings.template, b"../b").count().unwrap(), 1);
    assert_eq!(reader(&folder, &settings.template, b"c").count().unwrap(), 0);
    let outside: Vec<_> = std::fs::read_dir(Path::new(&scratch.0)).unwrap().collect();
    assert_eq!(outside.len(), 3, "two topics and a lock: {outside:?}");
}

#[test]
fn a_message_of_an_origin_is_stored_once_over_restarts_and_failures() {
    for path in ["[topic].log", "all.log"] {
        let disk = Simulated::new(1);
        let settings = Settings { fsync: Fsync::Always, ..settings(path) };
        let (mut store, _) = open(&disk, &settings);
        let give = |store: &mut FileStore<Simulated>, topic: &[u8], origin, number| {
            store.append(&Message { topic, payload: b"x", time: NOON, origin, number }).unwrap()
        };
        assert!(matches!(give(&mut store, b"a", 5, 1), Taken::Waits(_)));
        assert_eq!(give(&mut store, b"a", 5, 1), Taken::Known, "it waits");
        assert!(matches!(give(&mut store, b"a", 6, 1), Taken::Waits(_)));
        store.commit().unwrap();
        assert_eq!(give(&mut store, b"a", 5, 1), Taken::Known);
        assert!(matches!(give(&mut store, b"a", 5, 3), Taken::Waits(_)));
        store.commit().unwrap();
        drop(store);
        let disk = disk.restart();
        let (mut store, _) = open(&disk, &settings);
        for number in 1..=3 {
            assert_eq!(give(&mut store, b"a", 5, number), Taken::Known);
        }
        assert_eq!(give(&mut store, b"a", 6, 1), Taken::Known);
        assert!(matches!(give(&mut store, b"a", 0, 1), Taken::Waits(_)));
        assert!(matches!(give(&mut store, b"a", 0, 1), Taken::Waits(_)));
        store.rotate().unwrap();
        store.commit().unwrap();
        store.close().unwrap();
        let (found, _) = read_all(&reader(&disk, &settings.template, b"a"));
        let read: Vec<_> = found.iter().map(|stored| (stored.origin, stored.number)).collect();
        assert_eq!(read, [(5, 1), (6, 1), (5, 3), (0, 1), (0, 1)]);
        read_from_places(&reader(&disk, &settings.template, b"a"), &found, 1);
    }
}

#[test]
fn a_failed_write_is_kept_and_written_once_possible() {
    for (faults, says) in [
        (Faults { capacity: Some(300), ..Faults::default() }, "free some space on that disk"),
        (
            Faults { denied: Some(libc::EACCES), ..Faults::default() },
            "let the user of this process",
        ),
        (Faults { read_only: true, ..Faults::default() }, "mount that file system for writing"),
        (Faults { fail_write_in: Some(0), ..Faults::default() }, "check that disk"),
        (Faults { fail_sync_in: Some(0), ..Faults::default() }, "check that disk"),
        (Faults { denied: Some(libc::EMFILE), ..Faults::default() }, "more open files"),
    ] {
        let disk = Simulated::new(1);
        let settings = Settings { fsync: Fsync::Always, ..settings("[topic].log") };
        let (mut store, _) = open(&disk, &settings);
        disk.set_faults(faults);
        for payload in [b"one", b"two"] {
            store.append(&message(b"a", payload, NOON)).unwrap();
        }
        let error = store.commit().unwrap_err().to_string();
        assert!(error.contains("a.log") && error.contains(says), "{error}");
        assert_eq!((store.waiting(), store.counters().messages), (2, 0));
        disk.set_faults(Faults::default());
        store.commit().unwrap();
        assert_eq!((store.waiting(), store.counters().messages), (0, 2));
        drop(store);
        let (found, _) = read_all(&reader(&disk, &settings.template, b"a"));
        let payloads: Vec<_> = found.iter().map(|stored| &stored.payload[..]).collect();
        assert_eq!(payloads, [b"one", b"two"], "{says}");
        assert_eq!(text(&disk, "a.log"), "one\ntwo\n", "{says}");
    }
}

#[test]
fn a_removed_folder_is_created_again() {
    let disk = Simulated::new(1);
    let settings = Settings { fsync: Fsync::Always, ..settings("[topic]/[date].log") };
    let (mut store, _) = open(&disk, &settings);
    store.append(&Message { number: 1, origin: 9, ..message(b"a", b"one", NOON) }).unwrap();
    store.commit().unwrap();
    disk.remove_all("a");
    store.append(&Message { number: 2, origin: 9, ..message(b"a", b"two", NOON) }).unwrap();
    store.commit().unwrap();
    assert_eq!(text(&disk, "a/2026-11-23.log"), "two\n");
    let again = Message { number: 1, origin: 9, ..message(b"a", b"one", NOON) };
    assert_eq!(store.append(&again).unwrap(), Taken::Known);
    drop(store);
    let (found, _) = read_all(&reader(&disk.restart(), &settings.template, b"a"));
    assert_eq!((found.len(), found[0].sequence), (1, 2));
}

#[test]
fn a_withdrawn_message_is_not_written_and_not_known() {
    // A part of the write that fails is done, another one each time.
    for seed in 0..30 {
        let disk = Simulated::new(seed);
        let settings = Settings { fsync: Fsync::Always, ..settings("[topic].log") };
        let (mut store, _) = open(&disk, &settings);
        let give = |number, topic: &[u8], store: &mut FileStore<Simulated>| {
            let message = Message { topic, payload: b"0123456789", time: NOON, origin: 3, number };
            store.append(&message).unwrap()
        };
        give(1, b"a", &mut store);
        store.commit().unwrap();
        disk.set_faults(Faults { fail_write_in: Some(1), ..Faults::default() });
        let taken: Vec<_> = (2..5).map(|number| give(number, b"a", &mut store)).collect();
        store.commit().unwrap_err();
        let withdrawn = store.withdraw();
        assert_eq!(withdrawn.into_iter().map(Taken::Waits).collect::<Vec<_>>(), taken);
        assert_eq!(store.waiting(), 0);
        store.commit().unwrap();
        // They may come back, and others in their place.
        assert!(matches!(give(2, b"a", &mut store), Taken::Waits(_)));
        store.commit().unwrap();
        drop(store);
        let (found, _) = read_all(&reader(&disk.restart(), &settings.template, b"a"));
        assert_eq!(found.iter().map(|stored| stored.number).collect::<Vec<_>>(), [1, 2]);
    }
}

#[test]
fn two_stores_do_not_write_to_the_same_files() {
    let disk = Simulated::new(1);
    let settings = settings("all.log");
    let (mut store, _) = open(&disk, &settings);
    store.append(&message(b"a", b"one", NOON)).unwrap();
    store.commit().unwrap();
    let error = FileStore::open(disk.clone(), settings.clone(), NOON).unwrap_err().to_string();
    assert!(error.contains(".keep.lock") && error.contains("another process has it"), "{error}");
    let other = Settings { name: "other".into(), ..settings.clone() };
    let (mut second, report) = FileStore::open(disk.clone(), other, NOON).unwrap();
    assert_eq!(report.files, 0);
    second.append(&message(b"a", b"two", NOON)).unwrap();
    let error = second.commit().unwrap_err().to_string();
    assert!(error.contains("it belongs to the store keep"), "{error}");
    // What nobody knows is given another name, and nothing is written to it.
    drop((store, second));
    disk.set_content("other.log", b"of somebody\n");
    let settings = Settings { template: template("other.log"), ..settings };
    let (mut store, report) = open(&disk, &settings);
    assert_eq!(report.unindexed, ["other.log"]);
    store.append(&message(b"a", b"three", NOON)).unwrap();
    store.commit().unwrap();
    assert_eq!(text(&disk, "other.log"), "three\n");
    assert_eq!(text(&disk, "other-20261123T115959.000.log"), "of somebody\n");
}

#[test]
fn a_known_message_is_on_disk_before_it_is_acknowledged_again() {
    for seed in 0..40 {
        let disk = Simulated::new(seed);
        let settings = Settings { fsync: Fsync::Never, ..settings("[topic].log") };
        let (mut store, _) = open(&disk, &settings);
        let given = Message { number: 1, origin: 9, ..message(b"a", b"one", NOON) };
        store.append(&given).unwrap();
        store.commit().unwrap();
        drop(store);
        // The process is killed, and the agent sends it again.
        let disk = disk.killed();
        let settings = Settings { fsync: Fsync::Always, ..settings };
        let (mut store, _) = open(&disk, &settings);
        assert_eq!(store.append(&given).unwrap(), Taken::Known);
        store.commit().unwrap();
        drop(store);
        let (found, _) = read_all(&reader(&disk.restart(), &settings.template, b"a"));
        assert_eq!(found.len(), 1, "seed {seed}");
    }
}

#[test]
fn a_folder_created_by_a_killed_process_is_synced_before_the_next_confirmation() {
    for seed in 0..40 {
        let disk = Simulated::new(seed);
        let settings = settings("[date]/[hour]/[topic].log");
        let (mut store, _) = open(&disk, &settings);
        store.append(&message(b"a", b"one", NOON)).unwrap();
        store.commit().unwrap();
        drop(store);
        let disk = disk.killed();
        let (mut store, _) = open(&disk, &settings);
        store.tick(NOON + 2 * SECOND).unwrap();
        assert_eq!(store.unsynced_messages(), 0);
        let (found, _) = read_all(&reader(&disk.restart(), &settings.template, b"a"));
        assert_eq!(found.len(), 1, "seed {seed}");
    }
}
