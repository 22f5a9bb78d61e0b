//! Measures what storing costs here: `cargo run --release -p interlock-stores --example cost [folder]`.
//! One thread, messages of 64 bytes and of 1 KiB in batches of 100, under each fsync policy, to one topic
//! and to many; then a spool, and reading it all again.
//!
//! The figures are of the machine and of the moment: they say something only beside each other.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use interlock_journal::storage::disk::Disk;
use interlock_stores::calendar::Zone;
use interlock_stores::disk::folder::Folder;
use interlock_stores::file::{FileStore, Fsync, Reader, Settings};
use interlock_stores::spool::{self, Durability, Spool};
use interlock_stores::{Message, Position, Template};

const ROUND: Duration = Duration::from_millis(1500);
const BATCH: usize = 100;
const NOW: u64 = 1_795_435_199_000_000;

fn main() {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("interlock-cost-{}", std::process::id()));
    println!("bytes  topics  fsync        messages/s  MB/s");
    for bytes in [64, 1024] {
        for (fsync, name) in
            [(Fsync::Never, "no"), (Fsync::EverySecond, "everysec"), (Fsync::Always, "always")]
        {
            for topics in [1, 100] {
                let rate = store(&folder, fsync, bytes, topics);
                let megabytes = rate * bytes as f64 / 1e6;
                println!("{bytes:5}  {topics:6}  {name:8}  {rate:13.0}  {megabytes:.0}");
            }
        }
        let (rate, read) = spooled(&folder, bytes);
        println!("{bytes:5}  spool, written {rate:.0}/s, read again {read:.0}/s");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

fn store(folder: &Path, fsync: Fsync, bytes: usize, topics: usize) -> f64 {
    let _ = std::fs::remove_dir_all(folder);
    let template = Template::parse("[topic]/[date].log", "", "", Zone::Utc).expect("a template");
    let settings = Settings { fsync, descriptors: 512, ..Settings::new("cost", template.clone()) };
    let disk = Folder::new(folder);
    let (mut store, _) = FileStore::open(disk.clone(), settings, NOW).expect("a new store");
    let names: Vec<Vec<u8>> = (0..topics).map(|n| format!("topic.{n}").into_bytes()).collect();
    let payload = vec![b'x'; bytes];
    let (began, mut number, mut ticked) = (Instant::now(), 0, Instant::now());
    while began.elapsed() < ROUND {
        for _ in 0..BATCH {
            number += 1;
            let topic = &names[number as usize % topics];
            let time = NOW + began.elapsed().as_micros() as u64;
            let message = Message { topic, payload: &payload, time, origin: 1, number };
            store.append(&message).expect("it is short");
        }
        store.commit().expect("a disk with room");
        if ticked.elapsed() > Duration::from_secs(1) {
            ticked = Instant::now();
            store.tick(NOW + began.elapsed().as_micros() as u64).expect("a disk that works");
        }
    }
    let rate = number as f64 / began.elapsed().as_secs_f64();
    if topics == 1 && fsync == Fsync::Never {
        let mut forward = Reader::new(disk, template, "cost", &names[0]).forward(Position::FIRST);
        let (began, mut read) = (Instant::now(), 0);
        while began.elapsed() < ROUND && forward.find().expect("a disk that works").is_some() {
            read += 1;
        }
        println!("{bytes:5}  read again {:.0}/s", f64::from(read) / began.elapsed().as_secs_f64());
    }
    rate
}

fn spooled(folder: &Path, bytes: usize) -> (f64, f64) {
    let _ = std::fs::remove_dir_all(folder);
    let disk = Disk::open(folder).expect("a folder that can be written");
    let settings = spool::Settings::new(8 << 30);
    let (mut spool, _) = Spool::open(disk, settings, NOW, 1).expect("a new spool");
    let payload = vec![b'x'; bytes];
    let (began, mut number) = (Instant::now(), 0u32);
    while began.elapsed() < ROUND {
        for _ in 0..BATCH {
            number += 1;
            let message =
                Message { topic: b"topic", payload: &payload, time: NOW, origin: 0, number: 0 };
            spool.append(&message).expect("a disk with room");
        }
        spool.commit(Durability::EverySecond).expect("a disk with room");
    }
    let rate = f64::from(number) / began.elapsed().as_secs_f64();
    let (mut cursor, mut read, began) = (spool.cursor(), 0, Instant::now());
    loop {
        let some = spool.read(&mut cursor, 1 << 18).expect("a disk that works");
        if some.is_empty() {
            break;
        }
        read += some.len();
    }
    (rate, read as f64 / began.elapsed().as_secs_f64())
}
