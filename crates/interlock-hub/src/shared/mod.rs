//! The state that all workers share, and the state of one worker, both without sockets.
//!
//! A module imports only modules above it in this table; this one is below them all.
//!
//! | module | responsibility |
//! |---|---|
//! | `pause` | CLIENT PAUSE: requests that wait |
//! | [`settings`] | settings, at the start and changed at run time |
//! | [`events`] | log lines and questions for the controller |
//! | [`queues`] | the keyed queues |
//! | [`mailbox`] | messages between workers |

pub mod events;
pub mod mailbox;
mod pause;
pub mod queues;
pub mod settings;

use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use hashbrown::HashMap;
use interlock_engine::Served;
use parking_lot::{Mutex, RwLock};
use ring::rand::{SecureRandom, SystemRandom};
use std::hash::RandomState;

use crate::access::denials::Denials;
use crate::access::registry::{Card, Registry};
use crate::resp::parse::Ranges;
use crate::shared::events::{Answer, Asker, Events, Level};
use crate::shared::mailbox::{Mail, Mailbox, Peer, Post};
use crate::shared::pause::Pause;
use crate::shared::queues::Queues;
use crate::shared::settings::{Live, Settings};
use crate::stores::reading::Readings;
use crate::stores::{Host, Offers, StoreSettings, Stores};
use crate::system::time::Time;
use crate::tables::keeper;
use crate::tables::served::Tables;
use crate::tables::writes;
use crate::tables::writes::Batches;
use crate::topics::chunk::{Builder, Chunk};
use crate::topics::directory::{Directory, Subscribers};
use crate::topics::relays::Relays;
use crate::topics::survey::{Survey, Surveys};
use crate::watch::counters::{add, Counters};
use crate::watch::heartbeat::Beats;
use crate::watch::statistics::{Statistics, Tallies};
use crate::watch::tracing::SlowEntries;

pub struct Shared {
    /// As the hub was started; `live` is what has changed since.
    pub settings: Settings,
    live: RwLock<Arc<Live>>,
    pub events: Events,
    pub directory: Directory,
    pub queues: Queues,
    pub stores: Stores,
    pub readings: Readings,
    pub relays: Relays,
    /// The hub as its stores see it.
    pub host: OnceLock<Arc<dyn Host>>,
    /// The hub as keepers of its tables see it.
    pub post: Arc<dyn keeper::Host>,
    /// The hub as writers of its tables see it.
    pub written: Arc<dyn writes::Host>,
    pub registry: Registry,
    pub surveys: Surveys,
    pub mailboxes: Arc<[Mailbox]>,
    pub beats: Beats,
    pub counters: Counters,
    pub started: Time,
    /// Tells this run of the hub from others: 40 digits.
    pub run_id: String,
    pub slow_log: SlowEntries,
    pub denials: Denials,
    pub statistics: Statistics,
    pub pause: Pause,
    /// Workers with a connection that monitors.
    monitored: AtomicU64,
    /// A bit for each worker that has ended by a fault of its own.
    broken: AtomicU64,
    /// `Live::clients_memory`, for who looks at every turn.
    clients_memory: AtomicUsize,
    /// Bytes that each worker's connections hold.
    held: Vec<AtomicIsize>,
    /// Connections taken and not yet closed.
    connected: AtomicUsize,
    /// Number of connections by address.
    by_address: Mutex<HashMap<String, usize, RandomState>>,
    /// Workers that have answered what had arrived when the hub began to drain.
    drained: AtomicUsize,
    /// The sequencer: held while a turn's chunks go to every mailbox that wants them, one's own
    /// included. So all workers see all turns in one order.
    order: Mutex<()>,
}

/// The reason why a connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    Full,
    Address,
}

/// The state that one worker has for itself.
pub struct Local {
    pub worker: usize,
    pub live: Arc<Live>,
    pub subscribers: Subscribers,
    /// Slots of connections that are shown all commands.
    pub monitors: Vec<u32>,
    pub chunk: Builder,
    /// This turn's messages for the stores; `None` without stores.
    pub offers: Option<Box<Offers>>,
    /// The writes of this turn that others do.
    pub writes: Batches,
    /// Senders, each with the id of a connection that no longer brings its messages. Other
    /// connections may follow once the turn is handed on.
    pub released: Vec<(u128, u64)>,
    /// Answers of queues, to be sent once the turn is committed.
    pub served: Vec<Served>,
    /// The connections whose replies wait for that, where the hub has a journal.
    pub callers: Vec<u64>,
    /// Room that the next request with many arguments may use.
    pub ranges: Ranges,
    /// Counted here, and told once a turn: workers that count every request in one place spend more
    /// on that than on the request.
    pub commands: u64,
    pub tallies: Tallies,
    /// The time at which the command before this one ended, if nothing came between: each look at
    /// the clock costs.
    pub looked: Option<Time>,
    /// The time until which it does not wait for writers of rows, for it has in vain.
    pub barred: Time,
    /// Replies that were errors.
    pub errors: u64,
    pub published: u64,
    pub delivered: u64,
    pub dropped: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Bytes that its connections hold: what their cards say, together.
    pub held: isize,
}

/// The state that a command may touch beside its own connection.
pub struct Core<'a> {
    pub shared: &'a Shared,
    pub local: &'a mut Local,
    pub now: Time,
    /// Reads the clock, for work that takes long within a turn.
    pub clock: fn() -> Time,
}

impl Shared {
    pub fn new(settings: Settings, mailboxes: Vec<Mailbox>, now: Time) -> std::io::Result<Self> {
        let queues = Queues::new(settings.live.queues_memory, settings.clock.clone());
        Shared::with_queues(settings, queues, mailboxes, now)
    }

    pub fn with_queues(
        mut settings: Settings,
        queues: Queues,
        mailboxes: Vec<Mailbox>,
        now: Time,
    ) -> std::io::Result<Self> {
        let events = Events::new()?;
        events.set_repeats(settings.live.log_repeats);
        queues.engine.set_accounts(settings.live.users.accounts());
        let live = RwLock::new(Arc::new(settings.live.clone()));
        // Tables no longer served must be closed.
        settings.live.tables = Tables::default();
        let mailboxes: Arc<[Mailbox]> = mailboxes.into();
        Ok(Shared {
            live,
            clients_memory: AtomicUsize::new(settings.live.clients_memory),
            queues,
            settings,
            events,
            directory: Directory::default(),
            stores: Stores::default(),
            readings: Readings::default(),
            relays: Relays::default(),
            host: OnceLock::new(),
            post: Arc::new(Post(mailboxes.clone())),
            written: Arc::new(Post(mailboxes.clone())),
            registry: Registry::default(),
            surveys: Surveys::default(),
            beats: Beats::new(mailboxes.len()),
            held: mailboxes.iter().map(|_| AtomicIsize::new(0)).collect(),
            mailboxes,
            counters: Counters::default(),
            started: now,
            run_id: run_id(),
            slow_log: SlowEntries::default(),
            denials: Denials::default(),
            statistics: Statistics::default(),
            pause: Pause::default(),
            monitored: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            connected: AtomicUsize::new(0),
            by_address: Mutex::default(),
            drained: AtomicUsize::new(0),
            order: Mutex::new(()),
        })
    }

    pub fn live(&self) -> Arc<Live> {
        self.live.read().clone()
    }

    /// From now on there are these stores; `apply` tells the workers of them.
    ///
    /// # Errors
    ///
    /// Returns an error if no thread can be created; nothing has changed then.
    pub fn apply_stores(self: &Arc<Self>, declared: Vec<StoreSettings>) -> std::io::Result<()> {
        let host = self.host.get_or_init(|| Arc::new(Beside(Arc::downgrade(self))));
        self.stores.apply(declared, host)
    }

    /// Applies new settings. Clients that may no longer be connected or subscribed are
    /// disconnected.
    pub fn apply(&self, live: Live) {
        add(&self.counters.configurations_applied, 1);
        let live = Arc::new(live);
        self.queues.engine.set_memory(live.queues_memory);
        self.events.set_repeats(live.log_repeats);
        self.clients_memory.store(live.clients_memory, Relaxed);
        let mut current = self.live.write();
        if !current.users.are(&live.users) {
            self.queues.engine.set_accounts(live.users.accounts());
        }
        *current = live.clone();
        // Under the lock, so that the last one is the last one everywhere.
        for worker in 0..self.mailboxes.len() {
            self.send(worker, Mail::Live(live.clone()));
        }
        drop(current);
        self.bound_clients();
    }

    /// Sends a beat to each worker; returns of each whether it has answered the one before. At first, yes.
    pub fn pulse(&self) -> Vec<bool> {
        let beat = |worker| {
            let alive = self.beats.next(worker);
            if alive {
                self.send(worker, Mail::Beat);
            }
            alive
        };
        (0..self.mailboxes.len()).map(beat).collect()
    }

    /// Sends what the controller says to a question.
    pub fn answer(&self, asker: Asker, answer: Answer) {
        self.send(asker.worker, Mail::Answer(asker.token, answer));
    }

    /// Puts chunks in their place among those of all workers.
    pub fn sequence(&self, from: usize, chunks: Vec<Arc<Chunk>>) {
        let mut wake = 0u64;
        {
            let _order = self.order.lock();
            // Mail for a broken worker would pile up.
            let broken = self.broken.load(Ordering::Acquire);
            for chunk in chunks {
                for worker in bits(chunk.workers & !broken) {
                    if self.mailboxes[worker].put(Mail::Chunk(chunk.clone())) {
                        wake |= 1 << worker;
                    }
                }
            }
        }
        // Its own mailbox is looked into before this worker sleeps.
        for worker in bits(wake & !(1 << from)) {
            self.mailboxes[worker].wake();
        }
    }

    /// The worker's thread has ended though the hub has not: nobody is dealt to it any more, and the
    /// controller hears of it.
    pub fn worker_broke(&self, worker: usize, text: &str) {
        self.broken.fetch_or(1 << worker, Ordering::AcqRel);
        self.surveys.broke(worker).iter().for_each(|survey| self.end_survey(survey));
        self.events
            .broken(format!("worker {worker} has ended because of a bug in the hub: {text}"));
        // Callers that wait for all workers must not wait for this one.
        self.drained();
    }

    /// Asks all workers.
    pub fn begin_survey(&self, survey: &Arc<Survey>) {
        self.surveys.begin(survey);
        for worker in 0..self.mailboxes.len() {
            if self.is_broken(worker) {
                self.tell_survey(survey, worker, Vec::new());
            } else {
                self.send(worker, Mail::Survey(survey.clone()));
            }
        }
    }

    /// Adds what a worker knows.
    pub fn tell_survey(&self, survey: &Survey, worker: usize, known: Vec<(usize, Arc<Card>)>) {
        if survey.tell(worker, known) {
            self.end_survey(survey);
        }
    }

    /// All have told: who asked is woken.
    fn end_survey(&self, survey: &Survey) {
        let answer = Mail::Answer(survey.asker.token, Answer::Turn);
        self.send(survey.asker.worker, answer);
    }

    pub fn is_broken(&self, worker: usize) -> bool {
        self.broken.load(Relaxed) >> worker & 1 == 1
    }

    /// The first worker from this one on that serves; `None`: none does any more.
    pub fn serving(&self, from: usize) -> Option<usize> {
        let count = self.mailboxes.len();
        (0..count).map(|step| (from + step) % count).find(|&worker| !self.is_broken(worker))
    }

    pub fn is_monitored(&self) -> bool {
        self.monitored() != 0
    }

    /// A bit for each worker with a connection that monitors.
    pub fn monitored(&self) -> u64 {
        self.monitored.load(Relaxed)
    }

    pub fn monitor(&self, worker: usize, monitors: bool) {
        if monitors {
            self.monitored.fetch_or(1 << worker, Relaxed);
        } else {
            self.monitored.fetch_and(!(1 << worker), Relaxed);
        }
    }

    /// Takes a slot for a connection, or returns why it is rejected.
    pub fn arrive(&self, peer: &Peer) -> Result<(), Rejection> {
        let live = self.live();
        if self.connected.load(Relaxed) >= live.maxclients {
            add(&self.counters.rejected_connections, 1);
            return Err(Rejection::Full);
        }
        if peer.is_tcp {
            let mut by_address = self.by_address.lock();
            let count = by_address.entry_ref(peer.host()).or_default();
            if live.max_per_address > 0 && *count >= live.max_per_address {
                add(&self.counters.rejected_connections_address, 1);
                return Err(Rejection::Address);
            }
            *count += 1;
        }
        self.connected.fetch_add(1, Relaxed);
        Ok(())
    }

    pub fn left(&self, peer: &Peer) {
        self.connected.fetch_sub(1, Relaxed);
        if peer.is_tcp {
            let mut by_address = self.by_address.lock();
            if let Some(count) = by_address.get_mut(peer.host()) {
                *count -= 1;
                if *count == 0 {
                    by_address.remove(peer.host());
                }
            }
        }
    }

    /// Adds to the bytes held by a worker's connections. If all together exceed the limit, those
    /// that hold most are disconnected.
    pub fn clients_hold(&self, worker: usize, bytes: isize) {
        let told = &self.held[worker];
        if told.load(Relaxed) == bytes {
            return;
        }
        told.store(bytes, Relaxed);
        self.bound_clients();
    }

    /// Bytes that all connections hold.
    pub fn clients_bytes(&self) -> usize {
        // Relaxed: a sum of what each was a moment ago.
        self.held.iter().map(|held| held.load(Relaxed)).sum::<isize>().max(0) as usize
    }

    pub fn bound_clients(&self) {
        let most = self.clients_memory.load(Relaxed);
        if most == 0 || self.clients_bytes() <= most {
            return;
        }
        // Without those whose end is on its way.
        let mut cards = self.registry.all();
        let mut held: usize = cards.iter().map(|card| card.holds()).sum();
        cards.retain(|card| !card.no_evict.load(Relaxed));
        cards.sort_by_cached_key(|card| std::cmp::Reverse(card.holds()));
        for card in cards {
            if held <= most {
                return;
            }
            // Another worker may have come upon it as well.
            if card.killed.swap(true, Relaxed) {
                continue;
            }
            let own = card.holds();
            held = held.saturating_sub(own);
            add(&self.counters.evicted_clients, 1);
            let text = format!(
                "disconnected: it held {own} bytes, the most of all clients, which together were over \
                 limits.clients, {most}: {}",
                card.who()
            );
            self.events.log(Level::Warning, text);
            self.send(card.worker, Mail::Kill(card));
        }
    }

    pub fn connected(&self) -> usize {
        self.connected.load(Relaxed)
    }

    /// One worker has answered what had arrived; the last one lets all of them close.
    pub fn drained(&self) {
        // Acquire and release: the last one's word comes behind what each has sequenced.
        if self.drained.fetch_add(1, Ordering::AcqRel) + 1 == self.mailboxes.len() {
            for worker in 0..self.mailboxes.len() {
                self.send(worker, Mail::Finish);
            }
        }
    }

    /// Requests that CLIENT PAUSE held up are done.
    pub fn go_on(&self, paused: Vec<(usize, u64)>) {
        for (worker, token) in paused {
            self.send(worker, Mail::Answer(token, Answer::Turn));
        }
    }

    pub fn send(&self, worker: usize, mail: Mail) {
        if self.mailboxes[worker].put(mail) {
            self.mailboxes[worker].wake();
        }
    }
}

/// The hub as its stores see it, which it outlives or not.
struct Beside(Weak<Shared>);

impl Host for Beside {
    fn log(&self, warning: bool, text: String) {
        if let Some(shared) = self.0.upgrade() {
            shared.events.log(if warning { Level::Warning } else { Level::Info }, text);
        }
    }

    fn progressed(&self, workers: u64) {
        if let Some(shared) = self.0.upgrade() {
            bits(workers).for_each(|worker| shared.send(worker, Mail::Progress));
        }
    }

    fn written(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.readings.written();
        }
    }

    fn answer(&self, worker: usize, token: u64, reply: Vec<u8>) {
        if let Some(shared) = self.0.upgrade() {
            shared.send(worker, Mail::Answer(token, Answer::Reply(reply)));
        }
    }

    fn sends_as(&self, origin: u128) {
        if let Some(shared) = self.0.upgrade() {
            shared.relays.sends_as(origin);
        }
    }

    fn broke(&self, text: String) {
        if let Some(shared) = self.0.upgrade() {
            shared.events.broken(text);
        }
    }

    fn now(&self) -> u64 {
        self.0.upgrade().map_or(0, |shared| shared.queues.wall())
    }

    fn is_time_stable(&self) -> bool {
        self.0.upgrade().is_some_and(|shared| shared.queues.clock().read_wall().is_stable)
    }
}

impl Core<'_> {
    /// A reply was an error; `text` begins with its kind.
    pub fn count_error(&mut self, text: &[u8]) {
        self.local.errors += 1;
        add(&self.shared.counters.total_error_replies, 1);
        self.shared.statistics.error(text);
    }
}

impl Local {
    pub fn new(worker: usize, live: Arc<Live>) -> Self {
        let (subscribers, monitors, chunk) = Default::default();
        let (served, callers, ranges, released) = Default::default();
        let (commands, published, delivered, dropped) = Default::default();
        let (tallies, looked, errors) = Default::default();
        let (received_bytes, sent_bytes, writes) = Default::default();
        Local {
            worker,
            live,
            subscribers,
            monitors,
            chunk,
            offers: None,
            writes,
            released,
            served,
            callers,
            ranges,
            commands,
            tallies,
            looked,
            barred: 0,
            errors,
            published,
            delivered,
            dropped,
            received_bytes,
            sent_bytes,
            held: 0,
        }
    }

    /// Tells its counts.
    pub fn count(&mut self, shared: &Shared, now: Time) {
        let counters = &shared.counters;
        for (count, counter) in [
            (&mut self.commands, &counters.total_commands_processed),
            (&mut self.published, &counters.messages_published),
            (&mut self.delivered, &counters.messages_delivered),
            (&mut self.dropped, &counters.messages_dropped),
            (&mut self.received_bytes, &counters.total_net_input_bytes),
            (&mut self.sent_bytes, &counters.total_net_output_bytes),
        ] {
            if *count > 0 {
                add(counter, std::mem::take(count));
            }
        }
        shared.statistics.tell(&mut self.tallies);
        shared.statistics.sample(now, counters);
    }
}

fn run_id() -> String {
    let random = SystemRandom::new();
    let mut bytes = [0u8; 20];
    // Without it the number is a poor one, and nothing else fails.
    let _ = random.fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(next)
    })
}
