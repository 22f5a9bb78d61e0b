//! Threads of stores, and what each does once a second.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::retry::{Failed, Trouble};
use super::sink::Sink;
use super::store::{Host, Surroundings};
use crate::system::signals::BlockedSignals;

/// Starts a named thread; if it panics, the hub is notified.
pub fn begin(
    name: String,
    host: Arc<dyn Host>,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    // Signals are for the thread that started the hub.
    let _signals = BlockedSignals::block();
    Builder::new().name(name.replace(' ', "-")).spawn(move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            host.broke(format!("{name} has ended because of a bug in the hub: {text}"));
        }
    })
}

/// The upkeep of a thread's sink: each second what falls due, and pieces of what can wait.
pub struct Upkeep {
    ticked: Instant,
    /// The moment of the next piece; none until the next tick if there is nothing left to do.
    due: Option<Instant>,
    trouble: Option<Trouble>,
}

impl Upkeep {
    pub fn new(now: Instant) -> Upkeep {
        Upkeep { ticked: now, due: None, trouble: None }
    }

    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    pub fn is_late(&self, now: Instant) -> bool {
        now.duration_since(self.ticked) >= TICK
    }

    /// Does what is due at `now`. A failure is counted, and logged unless the thread cannot write:
    /// that was logged already.
    pub fn run(&mut self, sink: &mut dyn Sink, around: &Surroundings, now: Instant, writes: bool) {
        let time = around.host.now();
        let mut failed = None;
        let ticked = self.is_late(now);
        if ticked {
            self.ticked = now;
            failed = sink.tick(time).err();
            self.due.get_or_insert(now);
        }
        if self.due.is_some_and(|moment| moment <= now) {
            self.due = match sink.upkeep(time) {
                Ok(true) => Some(now),
                Ok(false) => None,
                Err(error) => {
                    failed.get_or_insert(error);
                    Some(now + LATER)
                }
            };
        }
        if let Some(error) = failed {
            let text = error.to_string();
            let Failed { is_new, is_said, .. } = Trouble::failed(&mut self.trouble, &text, now);
            around.figures(|figures| {
                figures.errors.fetch_add(u64::from(is_new), Relaxed);
            });
            if is_said && writes {
                around.say(true, &text);
            }
        } else if ticked {
            self.trouble = None;
        }
    }
}

/// Between two ticks of a sink.
pub const TICK: Duration = Duration::from_secs(1);
/// After upkeep that failed.
const LATER: Duration = Duration::from_secs(10);
