//! Measures how long a checkpoint blocks a node's loop during writes of random rows:
//! `cargo run --release -p interlock-node --example checkpoint_stall [ROWS]`.

use std::time::{Duration, Instant};

use interlock_log::apply::Whole;
use interlock_log::checkpoint::{Checkpoint, Place};
use interlock_log::rows::{Rows, Settings, When};
use interlock_log::state::Rules;

fn write(rows: &mut Rows, line: &str, reading: u64) -> Duration {
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
        sent: None,
        place: &place,
    };
    let began = Instant::now();
    let done = rows.run(&words, &when, &mut reply);
    assert!(done.is_ok(), "{line}: {done:?}");
    began.elapsed()
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
    let began = Instant::now();
    let later = Checkpoint::later(Place::default(), &whole);
    let image = began.elapsed();
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
    let show = |what: &str, times: &mut Vec<Duration>| {
        times.sort_unstable();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        println!(
            "{what}: {} writes, median {:?}, 99.9 % {:?}, longest {:?}",
            times.len(),
            at(0.5),
            at(0.999),
            at(1.0)
        );
    };
    println!("{count} rows: the loop stands for {image:?}; {} bytes in {took:?}", bytes.len());
    show("before", &mut before);
    show("beside", &mut beside);
    let began = Instant::now();
    let found = Checkpoint::<Rows>::decode(&bytes).expect("it is whole");
    println!("read again in {:?}", began.elapsed());
    assert_eq!(found.state.machine.unwrap().store().rows(), count);
}
