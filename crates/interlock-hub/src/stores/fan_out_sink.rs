//! Sinks of several: each of them, or the first that works.

use std::time::{Duration, Instant};

use interlock_stores::file::Counters;
use interlock_stores::StoreError;

use super::load::{Left, Load};
use super::queue::End;
use super::sink::Sink;
use super::store::Surroundings;

/// A sink with the name of its store.
pub type Named = (String, Box<dyn Sink>);

/// Each of its sinks gets everything.
pub struct Multiple {
    sinks: Vec<Named>,
    /// The part of the load that each sink has not written yet.
    left: Vec<Left>,
    begun: bool,
}

/// The first of its sinks that works gets everything; what one has begun and cannot end goes to the next.
pub struct Priority {
    sinks: Vec<Named>,
    /// The sink that got the last.
    current: usize,
    /// The moment from which on the first is tried again.
    back: Instant,
    pause: Duration,
    around: Surroundings,
}

impl Multiple {
    pub fn new(sinks: Vec<Named>) -> Multiple {
        Multiple { sinks, left: Vec::new(), begun: false }
    }
}

impl Sink for Multiple {
    fn write(&mut self, load: &Load, left: &mut Left) -> Result<(), StoreError> {
        if !std::mem::replace(&mut self.begun, true) {
            self.left = vec![left.clone(); self.sinks.len()];
        }
        let mut failed = None;
        for ((_, sink), left) in self.sinks.iter_mut().zip(&mut self.left) {
            if left.count(load) > 0 {
                if let Err(error) = sink.write(load, left) {
                    failed.get_or_insert(error);
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        self.begun = false;
        left.all_done();
        Ok(())
    }

    fn withdraw(&mut self, load: &Load, left: &mut Left) {
        if !std::mem::take(&mut self.begun) {
            return;
        }
        left.all_done();
        for ((_, sink), mut of_this) in self.sinks.iter_mut().zip(std::mem::take(&mut self.left)) {
            if of_this.count(load) > 0 {
                sink.withdraw(load, &mut of_this);
            }
            left.with(&of_this);
        }
    }

    fn tick(&mut self, now: u64) -> Result<(), StoreError> {
        each(&mut self.sinks, |sink| sink.tick(now))
    }

    fn upkeep(&mut self, now: u64) -> Result<bool, StoreError> {
        upkeep(&mut self.sinks, now)
    }

    fn rotate(&mut self) -> Result<(), StoreError> {
        each(&mut self.sinks, |sink| sink.rotate())
    }

    fn waiting(&self) -> u64 {
        self.sinks.iter().map(|(_, sink)| sink.waiting()).sum()
    }

    fn end(&mut self, end: End) {
        self.sinks.iter_mut().for_each(|(_, sink)| sink.end(end));
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        close(self.sinks)
    }

    fn counters(&self) -> Counters {
        counters(&self.sinks)
    }
}

impl Priority {
    pub fn new(sinks: Vec<Named>, around: Surroundings) -> Priority {
        let now = Instant::now();
        Priority { sinks, current: 0, back: now, pause: FIRST_PAUSE, around }
    }

    /// The sinks in the order in which they are tried.
    fn order(&self, now: Instant) -> Vec<usize> {
        let first = if now >= self.back { 0 } else { self.current };
        let mut order: Vec<usize> = (first..self.sinks.len()).collect();
        order.extend(0..first);
        order
    }

    /// A sink has taken all; `tried` says whether the first of all was tried before it.
    fn took(&mut self, place: usize, tried: bool, error: Option<&StoreError>) {
        if place == 0 {
            self.pause = FIRST_PAUSE;
        } else if tried {
            self.back = Instant::now() + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        if place == self.current {
            return;
        }
        let (from, to) = (&self.sinks[self.current].0, &self.sinks[place].0);
        match error {
            Some(error) if place > self.current => {
                self.around.say(true, &format!("{to} takes the place of {from}: {error}"));
            }
            _ => self.around.say(false, &format!("{to} takes messages again, in place of {from}")),
        }
        self.current = place;
    }
}

impl Sink for Priority {
    fn write(&mut self, load: &Load, left: &mut Left) -> Result<(), StoreError> {
        let mut failed = None;
        let order = self.order(Instant::now());
        let tried = order[0] == 0;
        for place in order {
            let sink = &mut self.sinks[place].1;
            match sink.write(load, left) {
                Ok(()) => {
                    self.took(place, tried, failed.as_ref());
                    return Ok(());
                }
                Err(error) => {
                    sink.withdraw(load, left);
                    failed.get_or_insert(error);
                }
            }
        }
        Err(failed.expect("there is a sink"))
    }

    fn withdraw(&mut self, _load: &Load, _left: &mut Left) {}

    fn tick(&mut self, now: u64) -> Result<(), StoreError> {
        each(&mut self.sinks, |sink| sink.tick(now))
    }

    fn upkeep(&mut self, now: u64) -> Result<bool, StoreError> {
        upkeep(&mut self.sinks, now)
    }

    fn rotate(&mut self) -> Result<(), StoreError> {
        each(&mut self.sinks, |sink| sink.rotate())
    }

    fn waiting(&self) -> u64 {
        self.sinks.iter().map(|(_, sink)| sink.waiting()).sum()
    }

    fn end(&mut self, end: End) {
        self.sinks.iter_mut().for_each(|(_, sink)| sink.end(end));
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        close(self.sinks)
    }

    fn counters(&self) -> Counters {
        counters(&self.sinks)
    }
}

/// The first error; nothing keeps the others from their turn.
fn each(
    sinks: &mut [Named],
    mut work: impl FnMut(&mut Box<dyn Sink>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut done = Ok(());
    for (_, sink) in sinks {
        let now = work(sink);
        done = done.and(now);
    }
    done
}

fn upkeep(sinks: &mut [Named], now: u64) -> Result<bool, StoreError> {
    let mut more = false;
    each(sinks, |sink| sink.upkeep(now).map(|there_is| more |= there_is))?;
    Ok(more)
}

fn close(sinks: Vec<Named>) -> Result<(), StoreError> {
    let mut done = Ok(());
    for (_, sink) in sinks {
        let now = sink.close();
        done = done.and(now);
    }
    done
}

fn counters(sinks: &[Named]) -> Counters {
    sinks.iter().map(|(_, sink)| sink.counters()).fold(Counters::default(), Counters::and)
}

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
