//! Publishes as fast as the server lets it: what it gets done in a second, and what that costs it.

use std::error::Error;
use std::io;

use crate::net::{self, Poll};
use crate::options::Options;
use crate::process;
use crate::publisher::Publisher;
use crate::report::{Faults, Line};
use crate::subscriber::{Part, Subscriber};
use crate::wire::{Deliveries, Requests, Topics};

pub struct Load {
    poll: Poll,
    publishers: Vec<Publisher>,
    subscribers: Vec<Subscriber>,
    buffer: Vec<u8>,
    pipeline: usize,
    window: usize,
    /// ms.
    sleep: i32,
    delivered: u64,
}

/// The counts and the processor time at one moment.
struct Mark {
    at: u64,
    published: u64,
    delivered: u64,
    server: u64,
    client: u64,
}

pub fn run(options: &Options) -> Result<String, Box<dyn Error>> {
    let mut load = Load::new(options)?;
    load.run_until(net::now() + options.warm.as_nanos() as u64)?;
    let before = load.mark(options.pid)?;
    load.run_until(before.at + options.seconds.as_nanos() as u64)?;
    let after = load.mark(options.pid)?;
    let faults = load.drain()?;
    let published = (after.published - before.published) as f64;
    let delivered = (after.delivered - before.delivered) as f64;
    let elapsed = (after.at - before.at) as f64;
    let line = Line::default()
        .with("seconds", elapsed / 1e9)
        .with("published", published)
        .with("delivered", delivered)
        .with("server_cpu_seconds", (after.server - before.server) as f64 / 1e9)
        .with("client_cpu_seconds", (after.client - before.client) as f64 / 1e9)
        .faults(faults);
    Ok(line.finish())
}

impl Load {
    pub fn new(options: &Options) -> io::Result<Self> {
        let mut load = Load {
            poll: Poll::new()?,
            publishers: Vec::new(),
            subscribers: Vec::new(),
            buffer: vec![0; BUFFER],
            pipeline: options.pipeline,
            window: options.window,
            sleep: i32::from(!options.spin),
            delivered: 0,
        };
        let topics = match options.patterns {
            0 => Topics::One("load".into()),
            patterns if options.ends => Topics::NewBefore(patterns),
            patterns => Topics::New(patterns),
        };
        let (word, names, count) = match options.patterns {
            0 => ("SUBSCRIBE", vec!["load".to_owned()], options.subscribers),
            patterns => ("PSUBSCRIBE", (0..patterns).map(|one| topics.pattern(one)).collect(), 1),
        };
        for _ in 0..count {
            let stream = net::dial(options.port)?;
            let deliveries = Deliveries::new(topics.clone());
            let subscriber =
                Subscriber::new(stream, word, &names, deliveries, options.publishers, Part::All)?;
            subscriber.watch(&load.poll, options.publishers + load.subscribers.len())?;
            load.subscribers.push(subscriber);
        }
        for number in 0..options.publishers {
            let requests = Requests::new(topics.clone());
            let publisher = Publisher::new(options.port, number, requests, count)?;
            publisher.watch(&load.poll, number)?;
            load.publishers.push(publisher);
        }
        Ok(load)
    }

    /// ns of the monotonic clock.
    fn run_until(&mut self, end: u64) -> io::Result<()> {
        while net::now() < end {
            self.publish()?;
            self.read(self.sleep)?;
        }
        Ok(())
    }

    fn publish(&mut self) -> io::Result<()> {
        let mut room = usize::MAX;
        if self.window > 0 {
            let slowest = self.subscribers.iter().map(|one| one.received).min().unwrap_or(0);
            let sent: u64 = self.publishers.iter().map(|publisher| publisher.sent).sum();
            room = self.window - (sent - slowest) as usize;
        }
        for publisher in &mut self.publishers {
            if publisher.unanswered() == 0 && room >= self.pipeline {
                (0..self.pipeline).for_each(|_| publisher.put(0));
                room -= self.pipeline;
            }
            publisher.flush()?;
        }
        Ok(())
    }

    /// Waits up to this number of ms, and reads what has arrived: how many connections had
    /// something.
    fn read(&mut self, timeout: i32) -> io::Result<usize> {
        let count = self.poll.wait(timeout)?;
        for index in 0..count {
            let token = self.poll.token(index);
            if let Some(publisher) = self.publishers.get_mut(token) {
                publisher.read(&mut self.buffer)?;
            } else {
                let subscriber = &mut self.subscribers[token - self.publishers.len()];
                let before = subscriber.received;
                subscriber.read(&mut self.buffer, |_| ())?;
                self.delivered += subscriber.received - before;
            }
        }
        Ok(count)
    }

    /// Stops publishing, and waits for pending answers.
    fn drain(&mut self) -> io::Result<Faults> {
        let mut end = net::now() + PATIENCE;
        while net::now() < end && !self.is_through()? {
            if self.read(10)? > 0 {
                end = net::now() + PATIENCE;
            }
        }
        let mut faults = Faults::default();
        for subscriber in &self.subscribers {
            let more = subscriber.settle(self.publishers.iter().map(|publisher| publisher.sent));
            faults.lost += more.lost;
            faults.misordered += more.misordered;
        }
        let unanswered: usize = self.publishers.iter().map(Publisher::unanswered).sum();
        faults.lost += unanswered as u64;
        Ok(faults)
    }

    fn is_through(&mut self) -> io::Result<bool> {
        let mut sent = 0;
        let mut waits = false;
        for publisher in &mut self.publishers {
            waits |= !publisher.flush()? || publisher.unanswered() > 0;
            sent += publisher.sent;
        }
        Ok(!waits && self.subscribers.iter().all(|subscriber| subscriber.received >= sent))
    }

    fn mark(&self, pid: u32) -> io::Result<Mark> {
        Ok(Mark {
            at: net::now(),
            published: self.publishers.iter().map(|publisher| publisher.answered).sum(),
            delivered: self.delivered,
            server: process::cpu(pid)?,
            client: net::used(),
        })
    }
}

const BUFFER: usize = 256 << 10;
/// ns without a byte until what has not come is lost.
const PATIENCE: u64 = 3_000_000_000;
