//! The files of a store: which are begun, named, compressed, removed, kept open; and read beside it all.

use std::sync::atomic::{AtomicBool, Ordering};

use interlock_stores::disk::folder::Folder;
use interlock_stores::disk::simulated::{Faults, Simulated};
use interlock_stores::file::verify;
use interlock_stores::file::{
    FileStore, Found, Fsync, Reader, Retention, Rotation, Settings, Survey,
};
use interlock_stores::{name, Message, Position};

use crate::everyday::{message, settings, Scratch, DAY, NOON, SECOND};
use crate::model::{read_all, reader, Lost};

const MINUTE: u64 = 60 * SECOND;

fn open(disk: &Simulated, settings: &Settings) -> FileStore<Simulated> {
    FileStore::open(disk.clone(), settings.clone(), NOON).unwrap().0
}

fn put(store: &mut FileStore<Simulated>, payload: &str, time: u64) {
    store.append(&message(b"a", payload.as_bytes(), time)).unwrap();
    store.commit().unwrap();
}

/// Names of data files with what is in them, as they sort.
fn contents(disk: &Simulated) -> Vec<(String, String)> {
    let data = disk.files().into_iter().filter(|name| name.ends_with(".log"));
    let text = |name: &String| String::from_utf8(disk.content(name).unwrap()).unwrap();
    data.map(|name| (name.clone(), text(&name))).collect()
}

fn texts(disk: &Simulated) -> Vec<String> {
    contents(disk).into_iter().map(|(_, text)| text).collect()
}

/// A closed file keeps its name until the next one needs it, and somebody may remove it before.
#[test]
fn a_file_being_written_is_not_compressed_in_place_of_a_removed_one() {
    let disk = Simulated::new(1);
    let mut store = open(&disk, &Settings { compression: Some(1), ..settings("[topic].log") });
    put(&mut store, "old", NOON);
    store.rotate().unwrap();
    disk.remove_all("");
    put(&mut store, "new", NOON);
    while store.upkeep(NOON).unwrap() {}
    assert_eq!(disk.files(), ["a.log", "a.log.idx"]);
    assert_eq!(store.usage().0, 1, "the one that was removed is not counted any more");
    put(&mut store, "newer", NOON);
    assert_eq!(texts(&disk), ["new\nnewer\n"]);
}

/// The mark that closes a full file fails, and what was synced in it is written again to the next one.
#[test]
fn a_rewritten_message_is_not_reported_as_synced_before_it_is() {
    let disk = Simulated::new(1);
    let rotation = Rotation { size: Some(200), minutes: None };
    let settings = Settings { rotation, fsync: Fsync::Never, ..settings("[date].log") };
    let mut store = open(&disk, &settings);
    put(&mut store, &"1".repeat(99), NOON);
    for payload in ["2".repeat(98), "3".repeat(98)] {
        store.append(&message(b"a", payload.as_bytes(), NOON)).unwrap();
    }
    // The data and the index of the second message, and the mark.
    disk.set_faults(Faults { fail_write_in: Some(2), ..Faults::default() });
    let error = store.commit().unwrap_err().to_string();
    assert!(error.starts_with("closing "), "{error}");
    disk.set_faults(Faults::default());
    store.commit().unwrap();
    assert_eq!(disk.files().len(), 4);
    for _ in 0..100 {
        let restarted = disk.restart();
        let report = FileStore::open(restarted, settings.clone(), NOON).unwrap().1;
        let lost = report.damaged.iter().find(|one| one.messages > 0);
        assert!(lost.is_none(), "after a power failure: {report}");
    }
    assert_eq!(store.unsynced_messages(), 2);
}

#[test]
fn files_rotate_at_their_size_limit_and_names_sort_by_time() {
    let disk = Simulated::new(1);
    let rotation = Rotation { size: Some(10), minutes: None };
    let mut store = open(&disk, &Settings { rotation, ..settings("[date].log") });
    for (n, payload) in ["1234", "1234", "1", "12345678901234", "1"].into_iter().enumerate() {
        put(&mut store, payload, NOON + n as u64 * SECOND / 2);
    }
    let names: Vec<String> = contents(&disk).into_iter().map(|(name, _)| name).collect();
    assert_eq!(texts(&disk), ["1234\n1234\n", "1\n", "12345678901234\n", "1\n"]);
    assert_eq!(names[0], "2026-11-23-20261123T115959.000.log");
    assert_eq!(names[2], "2026-11-23-20261123T120000.001.log");
    assert_eq!(names[3], "2026-11-23.log");
    // The same in one commit.
    let disk = Simulated::new(1);
    let mut store = open(&disk, &Settings { rotation, ..settings("[date].log") });
    for payload in ["1234", "1234", "1", "12345678901234", "1"] {
        store.append(&message(b"a", payload.as_bytes(), NOON)).unwrap();
    }
    store.commit().unwrap();
    assert_eq!(texts(&disk), ["1234\n1234\n", "1\n", "12345678901234\n", "1\n"]);
}

#[test]
fn a_period_ends_at_a_message_or_tick_and_not_when_the_clock_is_set_back() {
    let disk = Simulated::new(1);
    let rotation = Rotation { size: None, minutes: Some(30) };
    let mut store = open(&disk, &Settings { rotation, ..settings("[topic].log") });
    put(&mut store, "before noon", NOON);
    put(&mut store, "after", NOON + MINUTE);
    put(&mut store, "late", NOON - 2 * DAY);
    assert_eq!(texts(&disk), ["before noon\n", "after\nlate\n"]);
    assert_eq!(store.counters().closed, 1);
    store.tick(NOON - DAY).unwrap();
    assert_eq!(store.counters().closed, 1);
    store.tick(NOON + 31 * MINUTE).unwrap();
    assert_eq!(store.counters().closed, 2);
    put(&mut store, "new", NOON);
    assert_eq!(texts(&disk), ["before noon\n", "after\nlate\n", "new\n"]);
    // On request, and then only what has something in it.
    store.rotate().unwrap();
    store.rotate().unwrap();
    assert_eq!(store.counters().closed, 3);
}

#[test]
fn the_oldest_files_are_removed_by_age_and_size_and_origins_stay_known() {
    for retention in
        [Retention { age: Some(DAY), bytes: None }, Retention { age: None, bytes: Some(1) }]
    {
        let disk = Simulated::new(1);
        let settings =
            Settings { retention, fsync: Fsync::Always, ..settings("[topic]/[date].log") };
        let mut store = open(&disk, &settings);
        for (n, time) in [NOON, NOON + DAY, NOON + 2 * DAY].into_iter().enumerate() {
            let number = n as u64 + 1;
            let message = Message { topic: b"a", payload: b"x", time, origin: 7, number };
            store.append(&message).unwrap();
            store.commit().unwrap();
        }
        store.tick(NOON + 2 * DAY + DAY / 2).unwrap();
        while store.upkeep(NOON + 2 * DAY + DAY / 2).unwrap() {}
        let left = read_all(&reader(&disk, &settings.template, b"a")).0;
        assert_eq!(left.len(), 1, "{:?}", disk.files());
        // The last one goes too, and leaves an empty file that knows the numbers.
        store.tick(NOON + 4 * DAY).unwrap();
        while store.upkeep(NOON + 4 * DAY).unwrap() {}
        assert_eq!(read_all(&reader(&disk, &settings.template, b"a")).0.len(), 0);
        assert_eq!(disk.files().len(), 2, "{:?}", disk.files());
        drop(store);
        let disk = disk.restart();
        let mut store = open(&disk, &settings);
        let again = Message { topic: b"a", payload: b"x", time: NOON, origin: 7, number: 3 };
        assert!(store.knows(&again));
        put(&mut store, "next", NOON + 4 * DAY);
        let found = read_all(&reader(&disk, &settings.template, b"a")).0;
        assert_eq!((found.len(), found[0].sequence), (1, 4));
    }
}

#[test]
fn closed_files_are_compressed_in_slices_and_read_as_before() {
    let disk = Simulated::new(1);
    let settings = Settings { compression: Some(3), ..settings("[topic].log") };
    let mut store = open(&disk, &settings);
    let line = "the same again and again ".repeat(1_000);
    for n in 0..100 {
        put(&mut store, &line, NOON + n);
    }
    let before = read_all(&reader(&disk, &settings.template, b"a")).0;
    store.rotate().unwrap();
    let mut slices = 0;
    while store.upkeep(NOON).unwrap() {
        slices += 1;
        // Writing continues between them.
        put(&mut store, "meanwhile", NOON + 1_000);
    }
    assert!(slices > 2, "{slices}");
    let name = "a-20261123T115959.000.log.zst";
    assert!(disk.content(name).unwrap().len() < line.len());
    let unpacked = zstd::stream::decode_all(&disk.content(name).unwrap()[..]).unwrap();
    assert_eq!(unpacked, format!("{line}\n").repeat(100).into_bytes());
    let after = read_all(&reader(&disk, &settings.template, b"a")).0;
    assert_eq!(after[..100], before[..]);
    assert_eq!(after.len(), 100 + slices);
}

#[test]
fn any_topic_is_stored_and_recorded_in_its_file() {
    let long = [b'/'; 10_240];
    let odd: [&[u8]; 9] =
        [b"a/b", b"..", b"../../../x", b"\0", b"a\nb", b"\xff\xfe\xc3", b"", b".hidden", &long];
    for path in ["[topic]/x.log", "[topic].log", "all.log"] {
        let disk = Simulated::new(1);
        let settings = settings(path);
        let mut store = open(&disk, &settings);
        for (n, topic) in odd.iter().enumerate() {
            store.append(&message(topic, n.to_string().as_bytes(), NOON)).unwrap();
        }
        store.commit().unwrap();
        store.close().unwrap();
        for (n, topic) in odd.iter().enumerate() {
            let found = read_all(&reader(&disk, &settings.template, topic)).0;
            assert_eq!(found.len(), 1, "{path} {n}");
            assert_eq!(
                (&found[0].topic[..], found[0].payload.clone()),
                (*topic, n.to_string().into())
            );
        }
        if path == "[topic].log" {
            for file in disk.files().iter().filter_map(|file| file.strip_suffix(".log")) {
                let topic = name::decode(file);
                assert!(topic.is_none_or(|topic| odd.contains(&&topic[..])), "{file}");
            }
        }
    }
}

#[test]
fn many_topics_keep_few_files_open() {
    let scratch = Scratch::new("descriptors");
    let settings = Settings { descriptors: 10, ..settings("[topic]/[date].log") };
    let folder = Folder::new(&scratch.0);
    let open = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = all.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        let ours = links.filter(|link| link.starts_with(&scratch.0));
        ours.filter(|link| !link.ends_with(".keep.lock")).count()
    };
    let (mut store, _) = FileStore::open(folder.clone(), settings.clone(), NOON).unwrap();
    for round in 0..3u64 {
        for n in 0..200u32 {
            let topic = format!("topic {n}").into_bytes();
            store.append(&message(&topic, round.to_string().as_bytes(), NOON + round)).unwrap();
            if n % 7 == 0 {
                store.commit().unwrap();
                assert!(open() <= 10, "{}", open());
            }
        }
        store.commit().unwrap();
        store.tick(NOON + round * 2 * SECOND).unwrap();
        assert!((1..=10).contains(&open()));
    }
    store.close().unwrap();
    let found = read_all(&reader(&folder, &settings.template, b"topic 150")).0;
    assert_eq!(found.iter().map(|one| one.payload[0]).collect::<Vec<_>>(), b"012");
}

#[test]
fn a_concurrent_reader_misses_nothing_while_files_rotate_and_disappear() {
    const MESSAGES: u64 = 6_000;
    for path in ["[topic].log", "all.log"] {
        let scratch = Scratch::new("beside");
        let folder = Folder::new(&scratch.0);
        let settings = Settings {
            rotation: Rotation { size: Some(8_000), minutes: None },
            compression: Some(1),
            descriptors: 4,
            ..settings(path)
        };
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let reader =
                        Reader::new(folder.clone(), settings.template.clone(), "keep", b"b");
                    let mut forward = reader.forward(Position::FIRST);
                    let (mut next, mut lost) = (0, Lost::default());
                    while next < MESSAGES {
                        let ended = ends.load(Ordering::Acquire);
                        match lost.next(|| forward.find()) {
                            Some(stored) => {
                                assert_eq!(stored.payload, next.to_string().as_bytes());
                                next += 1;
                            }
                            // Whatever was written before is shown.
                            None => assert!(!ended, "{next} of {MESSAGES}: {lost:?}"),
                        }
                        if next % 1_500 == 1 {
                            let mut backward = reader.backward(Position::LAST).unwrap();
                            assert!(backward.find().unwrap().is_some());
                        }
                    }
                    assert_eq!(lost.messages(), 0);
                });
            }
            let (mut store, _) = FileStore::open(folder.clone(), settings.clone(), NOON).unwrap();
            for n in 0..MESSAGES {
                for topic in [b"a", b"b"] {
                    store.append(&message(topic, n.to_string().as_bytes(), NOON + n)).unwrap();
                }
                if n % 5 == 4 {
                    store.commit().unwrap();
                }
                if n % 50 == 49 {
                    store.upkeep(NOON).unwrap();
                }
            }
            store.close().unwrap();
            ends.store(true, Ordering::Release);
        });
    }
}

/// A short life with everything in it; returns what was confirmed.
fn script(disk: &Simulated, settings: &Settings) -> u64 {
    let Ok((mut store, _)) = FileStore::open(disk.clone(), settings.clone(), NOON) else {
        return 0;
    };
    let mut confirmed = 0;
    for n in 1..=12u64 {
        let topic: &[u8] = b"a";
        let time = NOON + n * SECOND;
        let payload = [b'x'; 30];
        let number = n;
        store.append(&Message { topic, payload: &payload, time, origin: 4, number }).unwrap();
        if store.commit().is_err() {
            return confirmed;
        }
        confirmed = n;
        if n % 3 == 0 {
            let _ = (store.tick(time), store.upkeep(time));
        }
    }
    confirmed
}

#[test]
fn crashes_at_every_operation_and_during_the_next_opening_lose_nothing() {
    for path in ["[topic]/[date].log", "all.log"] {
        let settings = Settings {
            fsync: Fsync::Always,
            rotation: Rotation { size: Some(100), minutes: None },
            compression: Some(1),
            ..settings(path)
        };
        let whole = Simulated::new(0);
        assert_eq!(script(&whole, &settings), 12);
        for stop in 0..whole.operations() {
            let disk = Simulated::new(stop);
            disk.set_faults(Faults { stop_in: Some(stop), ..Faults::default() });
            let mut confirmed = script(&disk, &settings);
            let mut disk = disk.restart();
            // The opening is cut short as well, one operation later each time.
            for second in 0.. {
                disk.set_faults(Faults { stop_in: Some(second), ..Faults::default() });
                let opened = FileStore::open(disk.clone(), settings.clone(), NOON);
                let done = !disk.stopped();
                drop(opened);
                let check = |confirmed: u64| {
                    let (found, lost) = read_all(&reader(&disk, &settings.template, b"a"));
                    let numbers: Vec<u64> = found.iter().map(|one| one.number).collect();
                    let all: Vec<u64> = (1..=numbers.len() as u64).collect();
                    assert_eq!(numbers, all, "{path}: stopped at {stop}, then {second}");
                    assert!(numbers.len() as u64 >= confirmed, "{path}: {stop}, {second}");
                    assert_eq!(lost.messages(), 0, "{path}: stopped at {stop}, then {second}");
                };
                if done {
                    disk.set_faults(Faults::default());
                    check(confirmed);
                    break;
                }
                disk = disk.restart();
            }
            // It continues, and repeats are recognised.
            let (mut store, report) =
                FileStore::open(disk.clone(), settings.clone(), NOON).unwrap();
            assert!(report.damaged.iter().all(|one| one.messages == 0), "{stop}: {report}");
            for number in 1..=14 {
                let message = Message { topic: b"a", payload: b"y", time: NOON, origin: 4, number };
                store.append(&message).unwrap();
                store.commit().unwrap();
                confirmed = number;
            }
            let (found, _) = read_all(&reader(&disk, &settings.template, b"a"));
            assert_eq!(found.len() as u64, confirmed, "{path}: stopped at {stop}");
        }
    }
}

#[test]
fn a_file_is_read_and_followed_by_path_whatever_topics_it_has() {
    let disk = Simulated::new(1);
    let settings = Settings { compression: Some(1), ..settings("all.log") };
    let mut store = open(&disk, &settings);
    let give = |store: &mut FileStore<Simulated>, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let topic = [b'a' + (number % 3) as u8];
            let payload = number.to_string();
            let payload = payload.as_bytes();
            store
                .append(&Message { topic: &topic, payload, time: NOON, origin: 2, number })
                .unwrap();
        }
        store.commit().unwrap();
    };
    let file = |name| Survey::new(disk.clone(), Some(name), None, Position::FIRST);
    let read = |survey: &mut Survey<Simulated>| {
        let mut found = Vec::new();
        while let Some(next) = survey.next().unwrap() {
            let Found::Message(stored) = next else { panic!("{next:?}") };
            assert_eq!(stored.topic, [b'a' + (stored.number % 3) as u8]);
            assert_eq!((stored.payload, stored.origin), (stored.number.to_string().into(), 2));
            found.push(stored.number);
        }
        found
    };
    give(&mut store, 1..10);
    let mut records = file("all.log");
    assert_eq!(read(&mut records), (1..10).collect::<Vec<_>>());
    give(&mut store, 10..20);
    assert_eq!(read(&mut records), (10..20).collect::<Vec<_>>());
    let (files, bytes) = store.usage();
    let used: usize = disk.files().iter().map(|file| disk.content(file).unwrap().len()).sum();
    assert_eq!((files, bytes), (1, used as u64));
    store.rotate().unwrap();
    while store.upkeep(NOON).unwrap() {}
    let mut records = file("all.log");
    assert_eq!(read(&mut records), (1..20).collect::<Vec<_>>());
    let verified = verify(&disk, "all.log").unwrap();
    assert!(verified.is_whole() && verified.closed && verified.messages == 19, "{verified:?}");
    let used: usize = disk.files().iter().map(|file| disk.content(file).unwrap().len()).sum();
    // The table of a compressed file is not counted.
    assert!(store.usage().1.abs_diff(used as u64) < 100, "{:?} {used}", store.usage());
    let error = file("none.log").next().unwrap_err().to_string();
    assert!(error.contains("none.log"), "{error}");
}

#[test]
fn very_many_files_are_synced_in_steps_between_messages() {
    let disk = Simulated::new(5);
    let mut store = open(&disk, &settings("x/[topic].log"));
    const TOPICS: usize = 300;
    for topic in 0..TOPICS {
        store.append(&message(format!("t{topic}").as_bytes(), b"x", NOON)).unwrap();
    }
    store.commit().unwrap();
    assert_eq!(store.unsynced_messages(), TOPICS as u64);
    store.tick(NOON + 2 * SECOND).unwrap();
    let left = store.unsynced_messages();
    assert!(0 < left && left < TOPICS as u64, "{left}");
    let mut pieces = 0;
    while store.upkeep(NOON + 2 * SECOND).unwrap() {
        pieces += 1;
    }
    assert!(pieces > 10);
    assert_eq!(store.unsynced_messages(), 0);
    // The next message of each goes to another file, though most are not closed yet.
    store.rotate().unwrap();
    assert!((1..TOPICS as u64).contains(&store.counters().closed));
    store.append(&message(b"t299", b"y", NOON)).unwrap();
    store.commit().unwrap();
    assert_eq!(disk.content("t299.log").unwrap(), b"y\n");
    while store.upkeep(NOON + 3 * SECOND).unwrap() {}
    assert_eq!(store.counters().closed, TOPICS as u64);
}
