//! A process that is killed in the midst of its work, on the real disk.
//!
//! The child is this program once more. It says each message on its standard output once a commit has
//! confirmed it; the parent kills it after some lines and looks for all that was said.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use fastrand::Rng;
use interlock_journal::storage::disk::Disk;
use interlock_stores::disk::folder::Folder;
use interlock_stores::file::{FileStore, Fsync, Reader, Rotation, Settings};
use interlock_stores::spool::{self, Durability, Spool};
use interlock_stores::{Message, Position};

use crate::everyday::{settings, Scratch, NOON, SECOND};
use crate::model::Lost;
use crate::{number, seed};

const FOLDER: &str = "INTERLOCK_STORES_FOLDER";
const TOPICS: u64 = 5;
/// Each payload is the message's number, so that reads can be identified.
const ORIGIN: u128 = 9;

fn store_settings() -> Settings {
    Settings {
        fsync: Fsync::EverySecond,
        rotation: Rotation { size: Some(20_000), minutes: None },
        compression: Some(1),
        descriptors: 6,
        ..settings("[topic]/[date].log")
    }
}

fn topic(number: u64) -> Vec<u8> {
    format!("topic/{}", number % TOPICS).into_bytes()
}

/// Not a test of its own: what the child does.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let disk = Folder::new(folder.join("store"));
    let (mut store, report) = FileStore::open(disk, store_settings(), NOON).unwrap();
    assert!(report.damaged.is_empty(), "{report}");
    let spool_disk = Disk::open(&folder.join("spool")).unwrap();
    let spool_settings = spool::Settings { segment: 16 << 10, ..spool::Settings::new(1 << 30) };
    let (mut spool, report) = Spool::open(spool_disk, spool_settings, NOON, ORIGIN).unwrap();
    assert!(report.aside.is_empty(), "{report}");
    let mut cursor = spool.cursor();
    let mut rng = Rng::new();
    let mut last = number("INTERLOCK_STORES_LAST", 0);
    for turn in 0.. {
        let mut said = String::new();
        for _ in 0..rng.u8(1..9) {
            last += 1;
            let payload = last.to_string().repeat(rng.usize(1..9));
            let message = Message {
                topic: &topic(last),
                payload: payload.as_bytes(),
                time: NOON + turn * SECOND / 10,
                origin: ORIGIN,
                number: last,
            };
            store.append(&message).unwrap();
            let place = spool.append(&message).unwrap();
            said += &format!("said {last} {payload} {place}\n");
        }
        store.commit().unwrap();
        spool.commit(Durability::None).unwrap();
        // One write: a line is cut at most at the end.
        std::io::stdout().write_all(said.as_bytes()).unwrap();
        if turn % 20 == 0 {
            store.tick(NOON + turn * SECOND / 10).unwrap();
            while rng.u8(0..3) > 0 && store.upkeep(NOON).unwrap() {}
        }
        if turn % 50 == 49 {
            let read = spool.read(&mut cursor, 4_000).unwrap();
            if let Some(last) = read.last() {
                // The last line may be cut: another one is behind it.
                let line = format!("forgets {}\nas said\n", last.number);
                std::io::stdout().write_all(line.as_bytes()).unwrap();
                spool.forget(last.place);
                spool.tick().unwrap();
            }
        }
    }
}

#[test]
fn messages_a_killed_process_confirmed_are_stored_once_and_in_order() {
    let mut rng = Rng::with_seed(seed());
    let scratch = Scratch::new("kills");
    let (mut said, mut last, mut forgotten): (Vec<(u64, String)>, u64, u64) = (Vec::new(), 0, 0);
    for kill in 0..number("INTERLOCK_KILLS", 10) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kills::child", "--nocapture"])
            .env(FOLDER, &scratch.0)
            .env("INTERLOCK_STORES_LAST", last.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut left = rng.u32(1..1_500);
        let mut keep = |line: &str| {
            if let Some(number) = line.strip_prefix("forgets ") {
                forgotten = number.parse().ok()?;
                return None;
            }
            let mut words = line.strip_prefix("said ")?.split(' ');
            let number = words.next()?.parse().ok()?;
            let payload = words.next()?.to_owned();
            words.next()?;
            said.push((number, payload));
            Some(())
        };
        for line in lines.by_ref() {
            left -= u32::from(keep(&line).is_some());
            if left == 0 {
                break;
            }
        }
        child.kill().unwrap();
        // What it said before it was killed counts too, but for a last line, which may be cut.
        let mut rest: Vec<String> = lines.collect();
        rest.pop();
        rest.iter().for_each(|line| {
            keep(line);
        });
        child.wait().unwrap();
        last = compare(&scratch.0, &said, forgotten, kill);
    }
    assert!(said.len() > 100 && forgotten > 0, "{} said, {forgotten} forgotten", said.len());
}

/// Compares what is there with what was said; returns the last number of all.
fn compare(folder: &Path, said: &[(u64, String)], forgotten: u64, kill: u64) -> u64 {
    let disk = Folder::new(folder.join("store"));
    let mut found: Vec<(u64, String)> = Vec::new();
    for n in 0..TOPICS {
        let template = store_settings().template;
        let mut forward =
            Reader::new(disk.clone(), template, "keep", &topic(n)).forward(Position::FIRST);
        let (mut before, mut lost) = (0, Lost::default());
        while let Some(stored) = lost.next(|| forward.find()) {
            assert!(stored.number > before, "kill {kill}: {} behind {before}", stored.number);
            assert_eq!((stored.number % TOPICS, stored.origin), (n, ORIGIN));
            before = stored.number;
            found.push((stored.number, String::from_utf8(stored.payload).unwrap()));
        }
        assert_eq!(lost.messages(), 0, "kill {kill}");
    }
    found.sort();
    let there = |one: &(u64, String)| found.binary_search(one).is_ok();
    let missing: Vec<_> = said.iter().filter(|one| !there(one)).collect();
    assert!(missing.is_empty(), "kill {kill}: {missing:?}");
    let spool_disk = Disk::open(&folder.join("spool")).unwrap();
    let settings = spool::Settings { segment: 16 << 10, ..spool::Settings::new(1 << 30) };
    let (spool, _) = Spool::open(spool_disk, settings, NOON, ORIGIN).unwrap();
    let (mut cursor, mut waits) = (spool.cursor(), Vec::new());
    loop {
        let some = spool.read(&mut cursor, 1 << 20).unwrap();
        if some.is_empty() {
            break;
        }
        waits.extend(some);
    }
    assert!(waits.windows(2).all(|two| two[0].number < two[1].number), "kill {kill}");
    let there = |number| waits.binary_search_by_key(&number, |one| one.number).is_ok();
    let missing: Vec<_> =
        said.iter().filter(|(number, _)| *number > forgotten && !there(*number)).collect();
    assert!(missing.is_empty(), "kill {kill}: not in the spool: {missing:?}");
    let of_store = found.last().map_or(0, |(number, _)| *number);
    of_store.max(waits.last().map_or(0, |one| one.number))
}
