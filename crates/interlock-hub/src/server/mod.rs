//! Start, drain, stop.
//!
//! | module | responsibility |
//! |---|---|
//! | `stop` | ends a thread that sleeps between two looks |
//! | `clock_thread` | the thread that watches the wall clock |
//! | `journal_thread` | the thread that keeps the journal |

mod clock_thread;
mod journal_thread;
mod stop;

use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use interlock_engine::durable::Repair;

use crate::command::info;
use crate::net::acceptor;
use crate::net::listeners::{Listening, SocketFile};
use crate::net::reactor::worker::Worker;
use crate::server::clock_thread::watch;
use crate::server::journal_thread::keep;
use crate::server::stop::Stop;
use crate::shared::events::Level;
use crate::shared::mailbox::{Mail, Mailbox};
use crate::shared::queues::Queues;
use crate::shared::settings::Settings;
use crate::shared::Shared;
use crate::system::signals::BlockedSignals;
use crate::system::time::now;

/// A hub that listens and serves until it is stopped or dropped.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<String>,
    unix: Option<SocketFile>,
    /// Ends the accept thread.
    stop: Arc<Mailbox>,
    accept: Option<JoinHandle<()>>,
    /// Threads of the journal and of the clock.
    journal: Option<(Arc<Stop>, JoinHandle<()>)>,
    clock: Option<(Arc<Stop>, JoinHandle<()>)>,
    workers: Vec<JoinHandle<()>>,
    running: Arc<Running>,
}

/// The number of workers that have not ended.
struct Running {
    count: Mutex<usize>,
    ended: Condvar,
}

impl Server {
    /// Binds and starts. An error names the address and the reason.
    pub fn start(mut settings: Settings) -> io::Result<Server> {
        let mut listening = Listening::open(&mut settings)?;
        let count = settings.workers();
        let mailboxes: io::Result<Vec<_>> = (0..count).map(|_| Mailbox::new()).collect();
        let (queues, found) = queues_of(&settings)?;
        let shared = Arc::new(Shared::with_queues(settings, queues, mailboxes?, now())?);
        if let Some(found) = found {
            shared.events.log(Level::Info, found);
        }

        let workers: io::Result<Vec<_>> =
            (0..count).map(|worker| Worker::new(shared.clone(), worker)).collect();
        let running = Arc::new(Running { count: Mutex::new(count), ended: Condvar::new() });
        let (addresses, stop) = (listening.addresses.clone(), Arc::new(Mailbox::new()?));
        let (accept, journal, clock, workers) = (None, None, None, workers?);
        let (unix, none) = (None, Vec::new());
        let mut server = Server {
            shared,
            addresses,
            unix,
            stop,
            accept,
            journal,
            clock,
            workers: none,
            running,
        };
        server.shared.apply_stores(server.shared.settings.stores.clone())?;
        // Signals are for the thread that started the hub.
        let signals = BlockedSignals::block();
        for (index, worker) in workers.into_iter().enumerate() {
            let (running, shared) = (server.running.clone(), server.shared.clone());
            let body = move || {
                contained(&shared, index, || worker.run());
                *running.count.lock() -= 1;
                running.ended.notify_all();
            };
            server.workers.push(spawn(format!("hub-worker-{index}"), body)?);
        }
        if let Some(durable) = server.shared.queues.durable.clone() {
            let (shared, stop) = (server.shared.clone(), Arc::new(Stop::default()));
            let stops = stop.clone();
            let thread = spawn("hub-journal".into(), move || keep(&shared, &durable, &stops))?;
            server.journal = Some((stop, thread));
        }
        let (shared, stop) = (server.shared.clone(), Arc::new(Stop::default()));
        let stops = stop.clone();
        let thread = spawn("hub-clock".into(), move || watch(&shared, &stops))?;
        server.clock = Some((stop, thread));
        let (shared, stop) = (server.shared.clone(), server.stop.clone());
        let (listeners, unix) = listening.take();
        let body = move || acceptor::accept(&shared, &stop, &listeners);
        server.accept = Some(spawn("hub-accept".into(), body)?);
        drop(signals);
        server.unix = unix;
        Ok(server)
    }

    /// `host:port`, `tls:host:port` or `unix:PATH`, with the port that was really bound.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Returns what outlives the threads: figures and events.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub fn info(&self) -> Vec<(&'static str, String)> {
        info::flat(&self.shared)
    }

    /// Stops accepting connections, answers what has arrived, sends what is owed for up to
    /// `patience`, then closes. Returns the number of connections that were cut while owed
    /// something, or that would not close.
    pub fn stop(&mut self, patience: Duration) -> u64 {
        let until = Instant::now().checked_add(patience);
        if let Some(accept) = self.accept.take() {
            self.stop.wake();
            let _ = accept.join();
            self.unix = None;
            self.tell(|| Mail::Drain);
        }
        {
            let mut count = self.running.count.lock();
            while *count > 0 {
                let timed_out = match until {
                    Some(until) => self.running.ended.wait_until(&mut count, until).timed_out(),
                    None => {
                        self.running.ended.wait(&mut count);
                        false
                    }
                };
                if timed_out {
                    break;
                }
            }
        }
        self.tell(|| Mail::Stop);
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
        // Last: what the workers have answered is recorded.
        for (stop, thread) in [self.journal.take(), self.clock.take()].into_iter().flatten() {
            stop.stop();
            let _ = thread.join();
        }
        self.shared.readings.stop();
        // Their time is their own: what workers have taken is to be written.
        let until = Instant::now().checked_add(patience);
        let until = until.unwrap_or_else(|| Instant::now() + LONGEST_DRAIN);
        for (name, left) in self.shared.stores.stop(until) {
            let text = format!("store {name}: {left} messages were not written: its disk hangs");
            self.shared.events.log(Level::Warning, text);
        }
        self.shared.counters.connections_cut.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn tell(&self, mail: impl Fn() -> Mail) {
        for worker in 0..self.shared.mailboxes.len() {
            self.shared.send(worker, mail());
        }
    }
}

/// The queues, as they are in the journal if there is one; and what was found there.
fn queues_of(settings: &Settings) -> io::Result<(Queues, Option<String>)> {
    let (memory, clock) = (settings.live.queues_memory, settings.clock.clone());
    let Some(folder) = &settings.journal else { return Ok((Queues::new(memory, clock), None)) };
    let repair = if settings.repair { Repair::SetAside } else { Repair::Refuse };
    let opened = Queues::open(memory, clock, folder, settings.durability, repair);
    opened.map(|(queues, found)| (queues, Some(found))).map_err(io::Error::other)
}

/// For stores without a deadline.
const LONGEST_DRAIN: Duration = Duration::from_secs(366 * 86_400);

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

/// Runs a worker. If it panics, its connections are closed with it; the other workers continue, and
/// the hub's owner is notified.
fn contained(shared: &Shared, worker: usize, run: impl FnOnce()) {
    // Unwind-safe: shared state is changed in steps that each leave it valid.
    let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or(
        "a panic without a \
                                                                         message",
    );
    shared.worker_broke(worker, text);
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(body)
}

#[cfg(test)]
mod tests {
    use crate::server::*;
    use crate::shared::events::Event;

    #[test]
    fn a_worker_that_panics_is_reported_and_gets_no_more_connections_or_messages() {
        let mailboxes = (0..3).map(|_| Mailbox::new().unwrap()).collect();
        let shared = Shared::new(Settings::default(), mailboxes, 0).unwrap();
        contained(&shared, 1, || {});
        assert_eq!(shared.serving(1), Some(1), "who ends as it should has not broken");
        contained(&shared, 1, || panic!("no {}", "luck"));
        let events = shared.events.take(true).events;
        let told =
            |event: &Event| matches!(event, Event::Broken { text } if text.ends_with("no luck"));
        assert!(events.len() == 1 && told(&events[0]), "{events:?}");
        assert_eq!([0, 1, 2].map(|from| shared.serving(from)), [Some(0), Some(2), Some(2)]);
        let interest = crate::topics::directory::Interest { receivers: 3, workers: 0b111 };
        let mut builder = crate::topics::chunk::Builder::default();
        builder.add(crate::topics::directory::SubscriptionKind::Topic, b"t", b"t", b"x", interest);
        shared.sequence(0, builder.take());
        let waiting = shared.mailboxes.iter().map(|mailbox| mailbox.take().len());
        assert_eq!(waiting.collect::<Vec<_>>(), [1, 0, 1]);
        contained(&shared, 0, || panic!());
        contained(&shared, 2, || panic!());
        assert_eq!(shared.serving(0), None);
    }
}
