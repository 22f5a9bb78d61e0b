//! Measures what appending and syncing costs here: `cargo run --release -p interlock-journal
//! --example cost [folder]`. One thread, records of 100 bytes, batches of several sizes under each
//! durability; then several threads that commit at once; then what a sync costs without a journal.
//!
//! The figures are of the machine and of the moment: they say something only beside each other.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use interlock_journal::storage::disk::Disk;
use interlock_journal::storage::{File, Fill, Storage};
use interlock_journal::{
    open, Durability, Entry, Journal, JournalSettings, Record, Repair, Replay,
};

const ROUND: Duration = Duration::from_millis(1500);

struct Count(u64);

impl Replay for Count {
    fn snapshot(&mut self, _: u32, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
    fn call(&mut self, record: &Record<'_>) -> Result<(), String> {
        self.0 += record.arguments().count() as u64;
        Ok(())
    }
}

fn main() {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("interlock-cost-{}", std::process::id()));
    syncs(&folder);
    println!("durability  threads  batch  records/s  µs/commit  p50  p99");
    for fill in [Fill::Written, Fill::Reserved] {
        println!("{fill:?} zeroes");
        for batch in [1, 16, 100, 1000] {
            round(&folder, fill, Durability::Always, 1, batch);
        }
    }
    for threads in [2, 8] {
        for batch in [1, 16] {
            round(&folder, Fill::Written, Durability::Always, threads, batch);
        }
    }
    for batch in [1, 16, 100] {
        round(&folder, Fill::Written, Durability::EverySecond, 1, batch);
    }
    recovery(&folder);
    let _ = std::fs::remove_dir_all(&folder);
}

fn fresh(folder: &Path, fill: Fill) -> Journal<Disk> {
    let _ = std::fs::remove_dir_all(folder);
    let settings = JournalSettings { fill, ..JournalSettings::default() };
    let disk = Disk::open(folder).expect("a folder that can be written");
    open(disk, settings, Repair::Refuse, &mut Count(0)).expect("a new journal").0
}

/// Measures what one block of 4 KiB costs, written over zeroes and at the end of a file.
fn syncs(folder: &Path) {
    let disk = Disk::open(folder).expect("a folder that can be written");
    for (what, length, fill) in [
        ("over written zeroes", 8 << 20, Fill::Written),
        ("over reserved room", 8 << 20, Fill::Reserved),
        ("at the end of the file", 0, Fill::Reserved),
    ] {
        let file = disk.create("sync", length, fill).expect("room");
        let mut took = Vec::new();
        for n in 0..1000 {
            let began = Instant::now();
            file.write(n * 4096, &[7; 4096]).expect("room");
            file.sync().expect("a disk");
            took.push(began.elapsed());
        }
        took.sort();
        println!("write and fdatasync of 4 KiB {what}: {}", quantiles(&took));
    }
}

fn round(folder: &Path, fill: Fill, durability: Durability, threads: u32, batch: u32) {
    let journal = fresh(folder, fill);
    let done = std::sync::atomic::AtomicBool::new(false);
    let began = Instant::now();
    let mut took: Vec<Duration> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut ticked = Instant::now();
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                if journal.wants_segment() {
                    journal.prepare().expect("room");
                }
                if ticked.elapsed() > Duration::from_secs(1) {
                    ticked = Instant::now();
                    journal.tick().expect("a disk");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let work = |queue: u32| {
            let journal = &journal;
            move || {
                let (mut took, payload) = (Vec::new(), [9; 100]);
                while began.elapsed() < ROUND {
                    let began = Instant::now();
                    let mut last = 0;
                    for n in 0..batch {
                        let entry = Entry { queue, time: u64::from(n), function: 1 };
                        let args: [&[u8]; 4] = [b"consumer", b"17", &payload, b"key"];
                        last = journal.append(entry, args).expect("room");
                    }
                    journal.commit(last, durability).expect("a disk");
                    took.push(began.elapsed());
                }
                took
            }
        };
        let workers: Vec<_> = (0..threads).map(|n| scope.spawn(work(n))).collect();
        let took =
            workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        took
    });
    let seconds = ROUND.as_secs_f64();
    took.sort();
    let commits = took.len() as f64;
    println!(
        "{durability:?}  {threads:>3}  {batch:>5}  {:>9.0}  {:>8.1}  {}",
        commits * f64::from(batch) / seconds,
        seconds * 1e6 / commits * f64::from(threads),
        quantiles(&took)
    );
}

fn quantiles(sorted: &[Duration]) -> String {
    let at = |share: usize| sorted[sorted.len() * share / 100].as_secs_f64() * 1e6;
    format!("p50 {:.1} µs, p99 {:.1} µs", at(50), at(99))
}

/// Measures how long it takes to read a journal of about 1 GB, without what the calls cost.
fn recovery(folder: &Path) {
    let journal = fresh(folder, Fill::Reserved);
    let payload = [9; 100];
    while journal.bytes() < 1 << 30 {
        let mut last = 0;
        for n in 0..1000 {
            let entry = Entry { queue: 1, time: n, function: 1 };
            let args: [&[u8]; 4] = [b"consumer", b"17", &payload, b"key"];
            last = journal.append(entry, args).expect("room");
        }
        journal.commit(last, Durability::None).expect("a disk");
    }
    journal.close().expect("a disk");
    drop(journal);
    let disk = Disk::open(folder).expect("a folder that can be written");
    let mut count = Count(0);
    let opened =
        open(disk, JournalSettings::default(), Repair::Refuse, &mut count).expect("a journal");
    println!("{}", opened.1);
}
