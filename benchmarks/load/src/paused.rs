//! One of 64 topics has a subscriber that reads nothing; the others are served meanwhile.
//!
//! Messages are published to all topics in turn, so a server that keeps whole batches because of one
//! line in them holds 64 times the pending output. At the end the paused subscriber reads, and must
//! find all of it.

use std::error::Error;
use std::ops::Range;

use crate::net::{self, Poll};
use crate::options::Options;
use crate::process;
use crate::publisher::Publisher;
use crate::report::{Faults, Line};
use crate::subscriber::{Part, Subscriber};
use crate::wire::{turn_name, Deliveries, Requests, Topics};

pub fn run(options: &Options) -> Result<String, Box<dyn Error>> {
    let mut poll = Poll::new()?;
    let topics = Topics::Turn(TOPICS);
    let subscribe = |stream, topics: Range<usize>, part| {
        let deliveries = Deliveries::new(Topics::Turn(TOPICS));
        let names: Vec<_> = topics.map(turn_name).collect();
        Subscriber::new(stream, "SUBSCRIBE", &names, deliveries, 1, part)
    };
    let narrow = net::dial_narrow(options.port, NARROW)?;
    let mut paused = subscribe(narrow, 0..1, Part::Each(TOPICS as u64))?;
    let others = net::dial(options.port)?;
    let mut served = subscribe(others, 1..TOPICS, Part::AllBut(TOPICS as u64))?;
    served.watch(&poll, SERVED)?;
    let mut publisher = Publisher::new(options.port, 0, Requests::new(topics), 1)?;
    publisher.watch(&poll, PUBLISHER)?;

    let mut buffer = vec![0; BUFFER];
    let length = Deliveries::new(Topics::Turn(TOPICS)).length;
    let rounds = options.owed.div_ceil(length) as u64;
    let wanted = rounds * TOPICS as u64;
    let before = process::resident(options.pid)?;
    let used = process::cpu(options.pid)?;
    let start = net::now();
    let mut patience = start + PATIENCE;
    loop {
        if publisher.unanswered() == 0 && publisher.sent < wanted {
            (0..PIPELINE).for_each(|_| publisher.put(0));
        }
        publisher.flush()?;
        let count = poll.wait(10)?;
        for index in 0..count {
            match poll.token(index) {
                PUBLISHER => publisher.read(&mut buffer)?,
                _ => served.read(&mut buffer, |_| ())?,
            }
        }
        let is_through = publisher.sent >= wanted && publisher.unanswered() == 0;
        if is_through && served.received >= served.of(publisher.sent) {
            break;
        }
        let now = net::now();
        if count > 0 {
            patience = now + PATIENCE;
        } else if now > patience {
            break;
        }
    }
    let seconds = (net::now() - start) as f64 / 1e9;
    let used = (process::cpu(options.pid)? - used) as f64 / 1e9;
    let resident = process::resident(options.pid)?;

    let owed = paused.of(publisher.sent);
    let mut late = Poll::new()?;
    paused.watch(&late, 0)?;
    while paused.received < owed && late.wait((PATIENCE / 1_000_000) as i32)? > 0 {
        paused.read(&mut buffer, |_| ())?;
    }
    let mut faults = Faults { lost: publisher.unanswered() as u64, misordered: 0 };
    for subscriber in [&served, &paused] {
        let more = subscriber.settle(std::iter::once(publisher.sent));
        faults.lost += more.lost;
        faults.misordered += more.misordered;
    }
    let line = Line::default()
        .with("seconds", seconds)
        .with("delivered", publisher.sent as f64)
        .with("server_cpu_seconds", used)
        .with("owed_bytes", (owed * length as u64) as f64)
        .with("before_bytes", before as f64)
        .with("resident_bytes", resident as f64)
        .with("more_bytes", resident as f64 - before as f64)
        .faults(faults);
    Ok(line.finish())
}

const TOPICS: usize = 64;
const PIPELINE: usize = 64;
const PUBLISHER: usize = 0;
const SERVED: usize = 1;
/// Bytes that the kernel takes in for who does not read; it doubles them.
const NARROW: i32 = 4 << 10;
const BUFFER: usize = 256 << 10;
/// ns without a byte until what has not come is lost.
const PATIENCE: u64 = 3_000_000_000;
