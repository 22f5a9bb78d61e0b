//! A process that is killed in the midst of its work, on the real disk, from several threads.
//!
//! The child is this program once more. It says each record on its standard output once a commit has
//! confirmed it; the parent kills it after some lines and looks for all that was said.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use fastrand::Rng;
use interlock_journal::storage::disk::Disk;
use interlock_journal::storage::Fill;
use interlock_journal::{Durability, JournalSettings, Repair};

use crate::number;
use crate::queues::{append, reopen, Queues};

const FOLDER: &str = "INTERLOCK_JOURNAL_FOLDER";
const THREADS: u64 = 3;

fn settings() -> JournalSettings {
    JournalSettings {
        segment: 16 << 10,
        fill: Fill::Written,
        longest: 9_999,
        ..JournalSettings::default()
    }
}

/// Not a test of its own: what the child does.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let disk = Disk::open(Path::new(&folder)).unwrap();
    let (journal, _, queues) = reopen(disk, settings(), Repair::Refuse).unwrap();
    let queues = Mutex::new(queues);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (journal, queues) = (&journal, &queues);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(thread);
                loop {
                    let mut said = String::new();
                    let mut last = 0;
                    for _ in 0..rng.u8(1..9) {
                        let value = rng.u64(..).to_string().repeat(rng.usize(1..9));
                        let queue = rng.u32(0..5);
                        let mut queues = queues.lock().unwrap();
                        last = append(journal, &mut queues, queue, value.as_bytes()).unwrap();
                        said += &format!("said {last} {queue} {value}\n");
                    }
                    journal.commit(last, Durability::Always).unwrap();
                    // One write: lines of two threads do not mix.
                    std::io::stdout().write_all(said.as_bytes()).unwrap();
                }
            });
        }
        scope.spawn(|| loop {
            journal.prepare().unwrap();
            {
                // It may append a mark, and whichever appends knows the next number before.
                let _nobody = queues.lock().unwrap();
                journal.tick().unwrap();
            }
            let mut snapshot = journal.snapshot().unwrap();
            for queue in 0..5 {
                let queues = queues.lock().unwrap();
                if queues.told.contains_key(&queue) {
                    let (last, state) = (journal.last(), queues.state(queue));
                    drop(queues);
                    snapshot.queue(queue, last, &state).unwrap();
                }
            }
            snapshot.finish().unwrap();
        });
    });
}

#[test]
fn records_a_killed_process_confirmed_exist() {
    let mut rng = Rng::with_seed(number("INTERLOCK_SEED", 1));
    let mut said: Vec<(u64, u32, String)> = Vec::new();
    let mut folder = None;
    let (mut torn, mut covered) = (0, 0);
    for kill in 0..number("INTERLOCK_KILLS", 40) {
        // A new journal now and then, or snapshots grow and grow.
        if kill % 8 == 0 {
            said.clear();
            let name = format!("interlock-kills-{}-{kill}", std::process::id());
            if let Some(old) = folder.replace(std::env::temp_dir().join(name)) {
                std::fs::remove_dir_all(old).unwrap();
            }
        }
        let folder = folder.as_ref().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kills::child", "--nocapture"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut left = rng.u32(1..400);
        let mut keep = |line: String| {
            let mut words = line.strip_prefix("said ")?.split(' ');
            let sequence = words.next()?.parse().ok()?;
            said.push((sequence, words.next()?.parse().ok()?, words.next()?.to_owned()));
            Some(())
        };
        for line in lines.by_ref() {
            left -= u32::from(keep(line).is_some());
            if left == 0 {
                break;
            }
        }
        child.kill().unwrap();
        // What it said before it was killed counts too, but for a last line, which may be cut.
        let rest: Vec<String> = lines.collect();
        let whole = rest.len().saturating_sub(1);
        for line in rest.into_iter().take(whole) {
            keep(line);
        }
        child.wait().unwrap();

        let disk = Disk::open(folder).unwrap();
        let (journal, report, found) = reopen(disk, settings(), Repair::Refuse).unwrap();
        torn += u64::from(report.torn.is_some());
        covered += u64::from(report.snapshot.is_some());
        check(&found, &said, &report.to_string());
        drop(journal);
    }
    std::fs::remove_dir_all(folder.unwrap()).unwrap();
    println!("{torn} torn tails, {covered} snapshots");
    assert!(covered > 0);
}

fn check(found: &Queues, said: &[(u64, u32, String)], report: &str) {
    let mut all: Vec<u64> = Vec::new();
    for told in found.told.values() {
        assert!(told.windows(2).all(|two| two[0].0 < two[1].0), "out of order: {report}");
        all.extend(told.iter().map(|(sequence, _)| *sequence));
    }
    all.sort_unstable();
    assert!(all.windows(2).all(|two| two[0] < two[1]), "twice: {report}");
    for (sequence, queue, value) in said {
        let told = &found.told[queue];
        let at = told.binary_search_by_key(sequence, |(sequence, _)| *sequence);
        let at = at.unwrap_or_else(|_| panic!("{sequence} is lost: {report}"));
        assert_eq!(told[at].1, value.as_bytes(), "{report}");
    }
}
