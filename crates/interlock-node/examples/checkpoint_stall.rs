//! Measures how long a checkpoint blocks a node's loop during writes of random rows:
//! `cargo run --release -p interlock-node --example checkpoint_stall [ROWS]`. Times are CPU time of
//! the loop's thread, which other programs do not change, and the longest also as it passed.

use std::time::{Duration, Instant};

use interlock_log::apply::Whole;
use interlock_log::checkpoint::{Checkpoint, Place};
use interlock_log::rows::{Rows, Settings, When};
use interlock_log::state::Rules;

/// A duration: CPU time of this thread, and time that passed.
type Took = (Duration, Duration);

/// Returns the CPU time of this thread.
fn of_thread() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is a valid place for the result.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(done, 0);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn timed<T>(what: impl FnOnce() -> T) -> (T, Took) {
    let (began, since) = (of_thread(), Instant::now());
    let done = what();
    (done, (of_thread() - began, since.elapsed()))
}

fn write(rows: &mut Rows, line: &str, reading: u64) -> Took {
    let words: Vec<_> = line.split(' ').collect();
    let (time, mut reply) = (reading >> 16, Vec::new());
    let place = |existing| Some(reading).filter(|at| *at > existing);
    let when = When {
        time,
        reading,
        lineage: 0,
        put_back: false,
        writer: None,
        late: false,
        lost: false,
        sent: None,
        place: &place,
    };
    let (done, took) = timed(|| rows.run(&words, &when, &mut reply));
    assert!(done.is_ok(), "{line}: {done:?}");
    took
}

fn main() {
    let count: u64 = std::env::args().nth(1).map_or(1_000_000, |text| text.parse().unwrap());
    let rules = Rules::parse("gateway: str[16], unread: U32; last, sum; 60000 ms").unwrap();
    let (name, dc) = ("t".to_owned(), "main".to_owned());
    let (capacity, tombstones) = (count, 1000);
    let settings =
        Settings { name, dc, rules, capacity, centres: 1, tombstones, key_size: 16, ttl: 0 };
    let mut whole = Whole::default();
    whole.machine = Some(Rows::new(settings));
    let mut reading = 1_700_000_000_000 << 16;
    let rows: &mut Rows = whole.machine.as_mut().unwrap();
    for number in 0..count {
        reading += 1;
        write(rows, &format!("HSET t:user{number} gateway gateway-a unread 3"), reading);
    }
    let (mut random, mut before) = (fastrand::Rng::with_seed(1), Vec::new());
    for _ in 0..100_000 {
        reading += 1;
        let line = format!("HINCRBY t:user{} unread 1", random.u64(..count));
        before.push(write(rows, &line, reading));
    }
    let (later, image) = timed(|| Checkpoint::later(Place::default(), &whole));
    let thread = std::thread::spawn(move || {
        let began = Instant::now();
        (later(), began.elapsed())
    });
    let (rows, mut beside) = (whole.machine.as_mut().unwrap(), Vec::new());
    while !thread.is_finished() || beside.len() < 1000 {
        reading += 1;
        let line = format!("HINCRBY t:user{} unread 1", random.u64(..count));
        beside.push(write(rows, &line, reading));
    }
    let (bytes, took) = thread.join().unwrap();
    let show = |what: &str, times: &mut Vec<Took>| {
        times.sort_unstable();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].0;
        let passed = times.iter().map(|(_, passed)| *passed).max().unwrap_or_default();
        println!(
            "{what}: {} writes, median {:?}, 99.9 % {:?}, longest {:?} ({passed:?} passed)",
            times.len(),
            at(0.5),
            at(0.999),
            at(1.0)
        );
    };
    let (cpu, passed) = image;
    println!(
        "{count} rows: the loop is blocked for {cpu:?} ({passed:?} passed); {} bytes in {took:?}",
        bytes.len()
    );
    show("before", &mut before);
    show("beside", &mut beside);
    let began = Instant::now();
    let found = Checkpoint::<Rows>::decode(&bytes).expect("it is whole");
    println!("read again in {:?}", began.elapsed());
    assert_eq!(found.state.machine.unwrap().store().rows(), count);
}
