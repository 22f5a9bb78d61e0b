//! Publishes at a fixed rate, whatever the server does: how long a message takes to a subscriber.
//!
//! A message's time begins when it was due, not when it was sent. Were it the latter, a server
//! that stalls would also stall what is to catch it, and the stall would count once (coordinated
//! omission).

use std::error::Error;
use std::io;

use crate::net::{self, Poll, Timer};
use crate::options::Options;
use crate::process;
use crate::publisher::Publisher;
use crate::report::{Faults, Line};
use crate::subscriber::{Part, Subscriber};
use crate::took::Took;
use crate::wire::{Deliveries, Requests, Topics};

pub fn run(options: &Options) -> Result<String, Box<dyn Error>> {
    let topics = Topics::One("load".into());
    let mut poll = Poll::new()?;
    let mut subscribers = Vec::new();
    for index in 0..options.subscribers {
        let stream = net::dial(options.port)?;
        let deliveries = Deliveries::new(topics.clone());
        let names = ["load".to_owned()];
        let subscriber = Subscriber::new(stream, "SUBSCRIBE", &names, deliveries, 1, Part::All)?;
        subscriber.watch(&poll, index)?;
        subscribers.push(subscriber);
    }
    let receivers = subscribers.len();
    let requests = Requests::new(topics);
    let mut publisher = Publisher::new(options.port, 0, requests, receivers)?;
    publisher.watch(&poll, PUBLISHER)?;
    let timer = Timer::new()?;
    poll.add(timer.fd(), TIMER)?;

    let gap = 1_000_000_000 / options.rate;
    let first = net::now() + gap;
    let counted = first + options.warm.as_nanos() as u64;
    let end = counted + options.seconds.as_nanos() as u64;
    let mut took =
        Took::new(counted, (options.seconds.as_nanos() as u64 / gap) as usize * receivers);
    let mut buffer = vec![0; BUFFER];
    let mut used = None;
    let mut due = first;
    loop {
        let now = net::now();
        if used.is_none() && now >= counted {
            used = Some((now, process::cpu(options.pid)?, net::used()));
        }
        while due <= now && due < end {
            publisher.put(due);
            due += gap;
        }
        publisher.flush()?;
        if due >= end {
            break;
        }
        if !options.spin {
            timer.set(due)?;
        }
        let timeout = if options.spin { 0 } else { 100 };
        read(&mut poll, timeout, &mut publisher, &mut subscribers, &mut buffer, &mut took)?;
    }
    let (at, server, client) = used.ok_or("nothing was measured: seconds is 0")?;
    let elapsed = (net::now() - at) as f64 / 1e9;
    let server = (process::cpu(options.pid)? - server) as f64 / 1e9;
    let client = (net::used() - client) as f64 / 1e9;

    let patience = net::now() + PATIENCE;
    let is_there = |one: &Subscriber, sent| one.received >= sent;
    while net::now() < patience
        && (publisher.unanswered() > 0
            || !subscribers.iter().all(|one| is_there(one, publisher.sent)))
    {
        publisher.flush()?;
        read(&mut poll, 0, &mut publisher, &mut subscribers, &mut buffer, &mut took)?;
    }
    let mut faults = Faults { lost: publisher.unanswered() as u64, misordered: 0 };
    for subscriber in &subscribers {
        let more = subscriber.settle(std::iter::once(publisher.sent));
        faults.lost += more.lost;
        faults.misordered += more.misordered;
    }
    let delivered = took.count() as f64;
    took.sort();
    let line = Line::default()
        .with("seconds", elapsed)
        .with("delivered", delivered)
        .with("p50_us", took.part(0.5)?)
        .with("p99_us", took.part(0.99)?)
        .with("p999_us", took.part(0.999)?)
        .with("longest_us", took.part(1.0)?)
        .with("server_cpu_seconds", server)
        .with("client_cpu_seconds", client)
        .faults(faults);
    Ok(line.finish())
}

fn read(
    poll: &mut Poll,
    timeout: i32,
    publisher: &mut Publisher,
    subscribers: &mut [Subscriber],
    buffer: &mut [u8],
    took: &mut Took,
) -> io::Result<()> {
    for index in 0..poll.wait(timeout)? {
        match poll.token(index) {
            TIMER => {}
            PUBLISHER => publisher.read(buffer)?,
            token => {
                let mut now = 0;
                subscribers[token].read(buffer, |stamp| {
                    // Once a read, as soon as it has answered.
                    if now == 0 {
                        now = net::now();
                    }
                    took.note(stamp.due, now);
                })?;
            }
        }
    }
    Ok(())
}

const PUBLISHER: usize = usize::MAX;
const TIMER: usize = usize::MAX - 1;
const BUFFER: usize = 256 << 10;
/// ns in which the last deliveries must come.
const PATIENCE: u64 = 3_000_000_000;
