//! The files of a node, on a faulty simulated disk, and on the real one with a process that is
//! killed.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use interlock_log::checkpoint::Place;
use interlock_log::entry::Mark;
use interlock_node::files::{lock, Checkpoints, Kept, Limits, Point, Reach, Report, Ring};
use interlock_stores::disk::folder::Folder;
use interlock_stores::disk::simulated::{Faults, Simulated};
use interlock_stores::disk::Disk;

const SMALL: Limits = Limits { file: 200, all: 1000 };
/// The last three checkpoints suffice.
const THREE: Reach = Reach { time: 0, bytes: 0 };

/// A point of a log with one entry of ten bytes per second.
fn at(position: u64) -> Point {
    let mark = Mark { position, checksum: !position };
    let place = Place { mark, id: Some((position, 1)), entry: position << 40 };
    Point { place, time: position * 1000, bytes: position * 10 }
}

fn positions(checkpoints: &Checkpoints<Simulated>) -> Vec<u64> {
    checkpoints.kept().map(|(_, point)| point.place.mark.position).collect()
}

fn opened<D: Disk>(disk: &D, limits: Limits) -> (Ring<D>, Vec<Kept>, Vec<Report>) {
    let (mut kept, mut reports) = (Vec::new(), Vec::new());
    let ring = Ring::open(disk.clone(), limits, |one| kept.push(one), &mut reports).unwrap();
    (ring, kept, reports)
}

fn kept(position: u64) -> Kept {
    Kept { position, time: position * 10, bytes: vec![position as u8; position as usize % 50] }
}

fn add<D: Disk>(ring: &mut Ring<D>, position: u64) {
    let one = kept(position);
    ring.add(one.position, one.time, &one.bytes);
}

fn disk(seed: u64) -> Simulated {
    let disk = Simulated::new(seed);
    drop(lock(&disk).unwrap());
    disk
}

#[test]
fn a_folder_belongs_to_one_process() {
    let disk = Simulated::new(1);
    let taken = lock(&disk).unwrap();
    let error = lock(&disk).err().unwrap().to_string();
    assert!(error.contains("another node has this folder"), "{error}");
    drop(taken);
    lock(&disk).unwrap();
}

#[test]
fn three_checkpoints_are_kept_and_the_newest_valid_one_is_found() {
    let disk = disk(1);
    let mut checkpoints = Checkpoints::open(disk.clone(), THREE).unwrap();
    let mut reports = Vec::new();
    assert_eq!(checkpoints.newest(u64::MAX, &mut reports).unwrap(), None);
    // A node that has gone back has lower positions afterwards.
    for position in [10, 20, 30, 25] {
        checkpoints.save(at(position), format!("state {position}").as_bytes()).unwrap();
    }
    assert_eq!(checkpoints.count(), 3);
    let mut again = Checkpoints::open(disk.clone(), THREE).unwrap();
    let (mut found, mut before) = (Vec::new(), u64::MAX);
    while let Some(saved) = again.newest(before, &mut reports).unwrap() {
        assert_eq!(saved.bytes, format!("state {}", saved.point.place.mark.position).as_bytes());
        found.push(saved.point.place.mark.position);
        before = saved.number;
    }
    assert_eq!((found, reports.len()), (vec![25, 30, 20], 0));
    again.remove(4).unwrap();
    assert_eq!(
        again.newest(u64::MAX, &mut reports).unwrap().unwrap().point.place.mark.position,
        30
    );
    // A number is not reused while this process remembers it.
    again.save(at(26), b"x").unwrap();
    assert_eq!(again.newest(u64::MAX, &mut reports).unwrap().unwrap().number, 5);
}

#[test]
fn three_checkpoints_reach_back_far_enough_however_often_they_are_written() {
    for (reach, far) in [
        (Reach { time: 600_000, bytes: u64::MAX }, 600),
        (Reach { time: u64::MAX, bytes: 900 }, 90),
    ] {
        let disk = disk(1);
        let mut checkpoints = Checkpoints::open(disk.clone(), reach).unwrap();
        for position in (1..3000).step_by(7) {
            checkpoints.save(at(position), b"state").unwrap();
            let oldest = positions(&checkpoints)[0];
            assert!(oldest + far <= position || oldest == 1, "{oldest} of {position}");
            assert!(oldest + 2 * far + 14 >= position, "{oldest} of {position}");
            assert!(checkpoints.count() <= 3);
            if position % 5 == 0 {
                let before = positions(&checkpoints);
                checkpoints = Checkpoints::open(disk.clone(), reach).unwrap();
                assert_eq!(positions(&checkpoints), before);
            }
        }
    }
}

#[test]
fn checkpoints_of_a_lost_history_are_removed_first() {
    let reach = Reach { time: u64::MAX, bytes: u64::MAX };
    let mut checkpoints = Checkpoints::open(disk(1), reach).unwrap();
    (10..13).for_each(|position| checkpoints.save(at(position), b"lost").unwrap());
    checkpoints.are_lost(|_| true);
    for (position, kept) in [(1, vec![11, 12, 1]), (2, vec![12, 1, 2]), (3, vec![1, 2, 3])] {
        checkpoints.save(at(position), b"of now").unwrap();
        assert_eq!(positions(&checkpoints), kept);
    }
    checkpoints.save(at(9), b"of now").unwrap();
    assert_eq!(positions(&checkpoints), [1, 3, 9]);
}

#[test]
fn a_checkpoint_of_another_node_is_taken_completely_or_not_at_all() {
    let (theirs, ours) = (disk(1), disk(2));
    let mut given = Checkpoints::open(theirs.clone(), THREE).unwrap();
    given.save(at(7), b"their state").unwrap();
    let content = theirs.content(&Checkpoints::<Simulated>::path(1)).unwrap();
    let path = "unfinished-00000000000000000000";
    let mut checkpoints = Checkpoints::open(ours.clone(), THREE).unwrap();
    checkpoints.save(at(9), b"own").unwrap();
    for bad in [&content[..content.len() - 1], b"", &[content.as_slice(), b"x"].concat()] {
        ours.set_content(path, bad);
        assert!(checkpoints.adopt(path).unwrap_err().contains("damaged"));
        assert_eq!((ours.exists(path).unwrap(), checkpoints.count()), (false, 1));
    }
    assert!(checkpoints.adopt(path).is_err(), "there is none");
    ours.set_content(path, &content);
    let saved = checkpoints.adopt(path).unwrap();
    assert_eq!((saved.point, &saved.bytes[..]), (at(7), &b"their state"[..]));
    let again = Checkpoints::open(ours, THREE).unwrap();
    assert_eq!(again.newest(u64::MAX, &mut Vec::new()).unwrap(), Some(saved));
}

#[test]
fn a_checkpoint_with_any_byte_changed_or_missing_is_skipped() {
    let disk = disk(1);
    let mut checkpoints = Checkpoints::open(disk.clone(), THREE).unwrap();
    checkpoints.save(at(1), b"older").unwrap();
    checkpoints.save(at(2), b"newer state").unwrap();
    let path = "checkpoint-00000000000000000002";
    let whole = disk.content(path).unwrap();
    let check = |content: &[u8]| {
        disk.set_content(path, content);
        let mut reports = Vec::new();
        let found = checkpoints.newest(u64::MAX, &mut reports).unwrap().unwrap();
        assert_eq!(
            (found.point.place.mark.position, &found.bytes[..], reports.len()),
            (1, &b"older"[..], 1)
        );
    };
    for at in 0..whole.len() {
        check(&whole[..at]);
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        check(&changed);
    }
    check(&[whole.as_slice(), b"x"].concat());
}

#[test]
fn a_ring_with_a_changed_or_missing_byte_lacks_only_that_record() {
    let disk = disk(1);
    let (mut ring, ..) = opened(&disk, SMALL);
    (1..=4).for_each(|position| add(&mut ring, position));
    ring.write().unwrap();
    drop(ring);
    let path = "ring-00000000000000000001";
    let whole = disk.content(path).unwrap();
    let ends: Vec<usize> =
        (1..=4).map(|n| (1..=n).map(|m| 24 + kept(m).bytes.len()).sum()).collect();
    assert_eq!(ends[3], whole.len());
    for at in 0..whole.len() {
        let before = ends.iter().filter(|end| **end <= at).count() as u64;
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        let is_at_the_end = at >= ends[2];
        for (content, behind, is_told) in [
            (&whole[..at], before + 9..=4, !(at == 0 || ends.contains(&at))),
            (&changed, before + 2..=4, true),
        ] {
            disk.set_content(path, content);
            let (mut ring, found, reports) = opened(&disk, SMALL);
            let wanted: Vec<Kept> = (1..=before).chain(behind).map(kept).collect();
            assert_eq!(found, wanted, "{at}");
            assert_eq!(reports.len(), usize::from(is_told), "{at}");
            // The ring continues from there.
            add(&mut ring, 9);
            ring.write().unwrap();
            drop(ring);
            let (_, found, reports) = opened(&disk, SMALL);
            assert_eq!((found.len(), found.last()), (wanted.len() + 1, Some(&kept(9))));
            let is_cut = content.len() < whole.len() || is_at_the_end;
            assert_eq!(reports.len(), usize::from(!is_cut), "{at}");
        }
    }
}

#[test]
fn nothing_behind_the_newest_checkpoint_is_dropped() {
    let disk = disk(1);
    let (mut ring, ..) = opened(&disk, SMALL);
    for position in 1..=200 {
        add(&mut ring, position);
        ring.write().unwrap();
    }
    let whole = ring.length();
    assert!(whole > SMALL.all);
    // Too large, but no checkpoint covers the records.
    ring.saved(0, u64::MAX).unwrap();
    assert_eq!(ring.length(), whole);
    // Too large: it shrinks to the limit, whatever its age.
    ring.saved(150, 0).unwrap();
    drop(ring);
    let (mut ring, found, reports) = opened(&disk, SMALL);
    let first = found[0].position;
    assert!(first > 1 && first <= 151 && reports.is_empty(), "{first}");
    assert_eq!(found, (first..=200).map(kept).collect::<Vec<_>>());
    // Small enough: only old files are removed.
    ring.saved(200, 1900).unwrap();
    let (_, found, _) = opened(&disk, SMALL);
    let first = found[0].position;
    assert!((180..=190).contains(&first) && found.last() == Some(&kept(200)), "{first}");
}

#[test]
fn a_write_to_the_ring_does_not_wait_for_the_disk() {
    let disk = disk(1);
    let (mut ring, ..) = opened(&disk, SMALL);
    // The first sync fails.
    disk.set_faults(Faults { fail_sync_in: Some(0), ..Faults::default() });
    for position in 1..=40 {
        add(&mut ring, position);
        ring.write().unwrap();
    }
    assert!(ring.length() > 2 * SMALL.file);
    let error = ring.unsynced().sync().unwrap_err().to_string();
    assert!(error.contains("syncing") && error.contains("ring-"), "{error}");
}

#[test]
fn a_full_disk_is_reported_and_pending_records_are_written_when_there_is_room() {
    let disk = disk(1);
    let (mut ring, ..) = opened(&disk, SMALL);
    let mut checkpoints = Checkpoints::open(disk.clone(), THREE).unwrap();
    checkpoints.save(at(1), b"older").unwrap();
    disk.set_faults(Faults { capacity: Some(300), ..Faults::default() });
    let mut failed = 0;
    for position in 1..=40 {
        add(&mut ring, position);
        failed += usize::from(ring.write().is_err());
    }
    let error = checkpoints.save(at(2), &[0; 300]).unwrap_err().to_string();
    assert!(error.contains("free some space"), "{error}");
    assert!(failed > 0 && ring.waiting() > 0);
    assert_eq!(
        checkpoints.newest(u64::MAX, &mut Vec::new()).unwrap().unwrap().point.place.mark.position,
        1
    );
    disk.set_faults(Faults::default());
    ring.write().unwrap();
    checkpoints.save(at(2), &[0; 300]).unwrap();
    assert_eq!(
        checkpoints.newest(u64::MAX, &mut Vec::new()).unwrap().unwrap().point.place.mark.position,
        2
    );
    drop(ring);
    let (_, found, reports) = opened(&disk, SMALL);
    assert_eq!((found, reports), ((1..=40).map(kept).collect(), Vec::new()));
}

/// Synced records survive when the machine stops at any operation, or a write or a sync fails.
#[test]
fn synced_records_survive_a_power_failure() {
    for seed in 0..2000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = disk(seed);
        let (mut ring, ..) = opened(&disk, SMALL);
        let mut checkpoints = Checkpoints::open(disk.clone(), THREE).unwrap();
        let stop = random.u64(..120);
        let mut faults = Faults { stop_in: Some(stop), ..Faults::default() };
        if seed % 3 == 0 {
            faults.fail_write_in = Some(random.u64(..40));
        }
        disk.set_faults(faults);
        // The positions synced, saved, and dropped after a checkpoint.
        let (mut synced, mut saved) = (0, 0);
        for position in 1..=60u64 {
            add(&mut ring, position);
            if ring.write().is_ok() && random.u8(..4) == 0 && ring.unsynced().sync().is_ok() {
                synced = position;
            }
            if random.u8(..10) == 0
                && checkpoints.save(at(position), &[position as u8; 100]).is_ok()
            {
                saved = position;
                let _ = ring.saved(position, 0);
            }
        }
        drop((ring, checkpoints));
        let disk = disk.restart();
        drop(lock(&disk).unwrap());
        let mut reports = Vec::new();
        let checkpoints = Checkpoints::open(disk.clone(), THREE).unwrap();
        let found = checkpoints.newest(u64::MAX, &mut reports).unwrap();
        let position = found.as_ref().map_or(0, |found| found.point.place.mark.position);
        assert!(position >= saved, "seed {seed}: the checkpoint {position}, {saved} was saved");
        assert!(reports.is_empty(), "seed {seed}: {reports:?}");
        let (_, found, _) = opened(&disk, SMALL);
        let positions: Vec<u64> = found.iter().map(|one| one.position).collect();
        let first = positions.first().copied().unwrap_or(1);
        let last = positions.last().copied().unwrap_or(0);
        // Records after the last sync may be missing.
        assert!((first..=synced).all(|one| positions.contains(&one)), "seed {seed}");
        assert!(positions.is_sorted(), "seed {seed}: {positions:?}");
        assert!(found.iter().all(|one| *one == kept(one.position)), "seed {seed}");
        assert!(last >= synced, "seed {seed}: {last} of {synced}");
        assert!(synced <= position || first <= position + 1, "seed {seed}: a gap at {first}");
    }
}

/// This test runs its own program again, with a folder in the environment, as the process to kill.
#[test]
fn a_killed_process_loses_no_written_record() {
    const FOLDER: &str = "INTERLOCK_NODE_KILLED";
    if let Ok(path) = std::env::var(FOLDER) {
        let disk = Folder::new(path);
        let _lock = lock(&disk).unwrap();
        let (mut ring, found, _) = opened(&disk, Limits { file: 5000, all: 20_000 });
        let mut checkpoints = Checkpoints::open(disk, THREE).unwrap();
        let last = found.last().map_or(0, |one| one.position);
        for position in last + 1.. {
            add(&mut ring, position);
            ring.write().unwrap();
            if position % 64 == 0 {
                checkpoints.save(at(position), &vec![position as u8; 3000]).unwrap();
                ring.saved(position, 0).unwrap();
            }
            println!("written {position}");
            std::io::stdout().flush().unwrap();
        }
    }
    let path = std::env::temp_dir().join(format!("interlock-node-killed-{}", std::process::id()));
    let mut random = fastrand::Rng::with_seed(1);
    let mut last = 0;
    for _ in 0..20 {
        let program = std::env::current_exe().unwrap();
        let test = "a_killed_process_loses_no_written_record";
        let mut command = Command::new(program);
        command.args([test, "--exact", "--nocapture"]).env(FOLDER, &path);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut told = child.stdout.take().unwrap();
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        let enough = random.usize(100..20_000);
        while text.len() < enough {
            let count = told.read(&mut buffer).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&buffer[..count]);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        told.read_to_end(&mut text).unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let number = |line: &str| line.split("written ").nth(1)?.parse::<u64>().ok();
        last = whole.lines().filter_map(number).next_back().unwrap_or(last);
        let disk = Folder::new(&path);
        let (_, found, _) = opened(&disk, Limits { file: 5000, all: 20_000 });
        let there = found.last().map_or(0, |one| one.position);
        assert!(there >= last, "{there} of {last}");
        assert!(found.iter().all(|one| *one == kept(one.position)));
        let mut reports = Vec::new();
        let newest =
            Checkpoints::open(disk, THREE).unwrap().newest(u64::MAX, &mut reports).unwrap();
        let position = newest.as_ref().map_or(0, |newest| newest.point.place.mark.position);
        // One record may be missing: the process was killed between the ring and the checkpoint.
        assert!(reports.is_empty() && position + 128 >= last, "{position} of {last}: {reports:?}");
        assert!(found.first().is_none_or(|one| one.position <= position + 1));
    }
    std::fs::remove_dir_all(&path).unwrap();
}
