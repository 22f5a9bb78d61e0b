//! The measuring itself: a journal is for Linux.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

use interlock_engine::durable::{Durable, Repair};
use interlock_engine::{Durability, Engine, EngineSettings, Function, Outcome};
use interlock_journal::storage::disk::Disk;

const START: u64 = 1_000_000_000_000_000;

fn start(folder: &Path) -> (Arc<Durable>, Engine) {
    let durable = Arc::new(Durable::new());
    let journal: Arc<dyn interlock_engine::Journal> = durable.clone();
    let durability = Durability::EverySecond;
    let settings =
        EngineSettings { durability, journal: Some(journal), ..EngineSettings::default() };
    let engine = Engine::new(settings);
    let disk = Disk::open(folder).expect("a folder that can be written");
    let report =
        durable.open(&engine, disk, Default::default(), Repair::Refuse).expect("a journal");
    println!("{report}");
    (durable, engine)
}

fn call(engine: &Engine, function: Function, args: &[&[u8]], now: u64) {
    let (mut out, mut served) = (Vec::new(), Vec::new());
    let key = Some(&b"il:{q}"[..]);
    let outcome = engine.call(function, key, args, now, None, &mut out, &mut served);
    assert_eq!(outcome, Outcome::Done);
}

/// The longest of calls one after the other until it is done, ms.
fn longest_call(engine: &Engine, done: &AtomicBool) -> f64 {
    let mut longest = 0f64;
    while !done.load(Ordering::Relaxed) {
        let began = Instant::now();
        call(engine, Function::Stats, &[], START);
        longest = longest.max(began.elapsed().as_secs_f64() * 1e3);
    }
    longest
}

pub fn run() {
    let mut args = std::env::args_os().skip(1);
    let count: u64 = args.next().map_or(1_000_000, |count| {
        count.to_str().and_then(|count| count.parse().ok()).expect("a number of messages")
    });
    let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("interlock-restart-{}", std::process::id()));
    let (durable, engine) = start(&folder);
    let began = Instant::now();
    for n in 0..count {
        let keys = [n % 100_000, n * 7 % 100_000].map(|key| format!("key:{key}"));
        let [a, b] = keys.each_ref().map(String::as_bytes);
        let args: [&[u8]; 9] = [b"", b"0", b"0", &[9; 100], b"2", b"0", b"0", a, b];
        call(&engine, Function::Put, &args, START + n);
        if n % 100 == 99 {
            durable.commit().expect("a disk");
        }
    }
    durable.commit().expect("a disk");
    println!("{count} puts, 100 a commit: {:.3} s", began.elapsed().as_secs_f64());
    durable.journal().expect("open").tick().expect("a disk");
    drop((durable, engine));

    println!("from records:");
    let (durable, engine) = start(&folder);
    for _ in 0..3 {
        // New each time, as for a snapshot.
        let mut state = Vec::new();
        let done = AtomicBool::new(false);
        let began = Instant::now();
        let waited = std::thread::scope(|scope| {
            let longest = scope.spawn(|| longest_call(&engine, &done));
            engine.dump(b"q", &mut state, || ()).expect("a durable queue");
            done.store(true, Ordering::Relaxed);
            longest.join().expect("it does not panic")
        });
        let took = began.elapsed().as_secs_f64() * 1e3;
        let bytes = state.len();
        println!("a dump of {bytes} bytes in {took:.1} ms; a call meanwhile took {waited:.1} ms");
    }
    let began = Instant::now();
    let made = durable.snapshot(&engine).expect("a disk");
    let took = began.elapsed().as_secs_f64();
    println!(
        "a snapshot in {took:.3} s: {}, {} bytes, {} files removed",
        made.name,
        made.bytes,
        made.removed.len()
    );
    drop((durable, engine));

    println!("from a snapshot:");
    drop(start(&folder));
    std::fs::remove_dir_all(folder).expect("what was written can be removed");
}
