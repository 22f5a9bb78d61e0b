//! The functions of the wire, `il1_put` and the rest, over the scheduler of `interlock-core`: bytes
//! and time in, replies out. No sockets, no Python, no threads, no clock: the caller passes the time.
//!
//! | module | responsibility |
//! |---|---|
//! | [`values`] | arguments, replies, texts |
//! | `wire` | generated from the declaration: functions, options, limits, records |
//! | `queue` | a queue and its declaration, consumers, results and events; all queues of an engine |
//! | `calls` | the functions |
//! | [`waiting`] | calls that wait, and leases that the engine renews |
//! | `durable` | the journal of calls; Linux only |
//!
//! ```
//! use interlock_engine::{Engine, Function, Outcome, EngineSettings};
//!
//! let engine = Engine::new(EngineSettings::default());
//! let (mut out, mut served) = (Vec::new(), Vec::new());
//! let put = ["me", "0", "0", "hello", "1", "0", "0", "room:7"];
//! let (now, key) = (1_700_000_000_000_000, Some(&b"il:{mail}"[..]));
//! let outcome = engine.call(Function::Put, key, &put[..], now, None, &mut out, &mut served);
//! assert_eq!(outcome, Outcome::Done);
//! assert_eq!(out, b"*2\r\n$16\r\n1700000000000000\r\n$1\r\n0\r\n");
//!
//! // With a ticket, a lease waits until there is something.
//! let lease = ["me", "0", "5000000", "1", "1000000", "any"];
//! let keep = engine.call(Function::Lease, key, &lease[..], now, Some(7), &mut out, &mut served);
//! assert_eq!(keep, Outcome::Done);
//! let wait = engine.call(Function::Lease, key, &lease[..], now, Some(7), &mut out, &mut served);
//! assert_eq!(wait, Outcome::Parked);
//! assert!(engine.next_due().is_some());
//! engine.call(Function::Put, key, &["", "0", "0", "more", "0", "0", "0"][..], now, None, &mut out, &mut served);
//! assert_eq!(served[0].ticket, 7);
//! ```
//!
//! # For callers
//!
//! - A reply is RESP, the same in RESP2 and RESP3: it is appended to `out`, and nothing is appended by a
//!   call that was refused or parked. [`Outcome::Refused`] has the text of the error, for
//!   [`values::reply::error`]. [`values::reply::parse`] takes a reply apart.
//! - Arguments are whatever implements [`Args`]: slices of slices do.
//! - A call with a `WAIT` and a ticket may be [`Outcome::Parked`]. It is answered by a later call of
//!   anybody's, or by [`Engine::tick`]: its ticket and its whole reply (an error too) are pushed to
//!   `served`, which the caller must look at after every call and every tick. A ticket is used for one
//!   parked call. [`Engine::forget`] drops it; a ticket whose call was sent again under another is never served.
//! - Whoever parks calls keeps the time: [`Engine::next_due`] says when to `tick` next; any call may change it.
//! - Any thread may call. Each queue has a lock of its own; [`Engine::hold`] takes it once for several
//!   calls. `served` is filled under that lock and is best looked at without it.
//! - `now` may be a little older than that of another thread's call: a queue's time does not fall.
//! - Rights attach to [`Function::class_of`]; patterns are matched with [`queue_name`].

mod calls;
#[cfg(target_os = "linux")]
pub mod durable;
mod queue;
pub mod values;
pub mod waiting;
mod wire;

use std::sync::{atomic::Ordering, Arc};

use interlock_core::queue::types::rules::Rules;
use interlock_core::queue::types::Time;
use parking_lot::{ArcMutexGuard, Mutex, RawMutex, RwLock};

pub use queue::declare::Durability;
pub use queue::shared::{Account, Accounts, EngineSettings, Journal};
pub use values::args::{Args, Refused};
pub use waiting::waiters::{Served, Ticket};
pub use wire::functions::{Class, Function};
pub use wire::records::Recorded;

use queue::drop::Gone;
use queue::names::Names;
use queue::shared::{Cell, Context, Shared};
use queue::Queue;
use values::args::{refuse, Read, Reader};
use wire::codes::Code;
use wire::limits::{LISTED, MAX_KEYS, MAX_LISTED, MAX_NAME};

/// The wire's version.
pub const WIRE: &str = "1";

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply was appended.
    Done,
    /// Nothing was changed, except by due events.
    Refused(Refused),
    /// It is answered later, under its ticket.
    Parked,
}

/// The figures of a queue that `il1_stats` returns.
pub type Figures = Vec<(&'static str, u64)>;

/// The name of a queue, and its figures.
pub type Told = (Box<[u8]>, Figures);

/// Queues by name, and the functions on them.
pub struct Engine {
    queues: RwLock<Names>,
    /// The remains of queues that were dropped, kept for a while. Locked behind `queues`.
    gone: Mutex<Gone>,
    shared: Shared,
}

/// A queue that is held for several calls.
pub struct Held<'a> {
    engine: &'a Engine,
    cell: Cell,
    queue: ArcMutexGuard<RawMutex, Queue>,
    /// The account whose bound of memory holds for what is called.
    payer: Option<&'a Arc<Account>>,
}

impl Engine {
    pub fn new(settings: EngineSettings) -> Self {
        Engine { queues: RwLock::default(), gone: Mutex::default(), shared: Shared::new(settings) }
    }

    /// Makes one call. `key` is the call's key, if it has one.
    #[allow(clippy::too_many_arguments)]
    pub fn call<A: Args + ?Sized>(
        &self,
        function: Function,
        key: Option<&[u8]>,
        args: &A,
        now: Time,
        caller: Option<Ticket>,
        out: &mut Vec<u8>,
        served: &mut Vec<Served>,
    ) -> Outcome {
        self.call_for(None, function, key, args, now, caller, out, served)
    }

    /// Like `call`, for a user whose memory is limited.
    #[allow(clippy::too_many_arguments)]
    pub fn call_for<A: Args + ?Sized>(
        &self,
        payer: Option<&Arc<Account>>,
        function: Function,
        key: Option<&[u8]>,
        args: &A,
        now: Time,
        caller: Option<Ticket>,
        out: &mut Vec<u8>,
        served: &mut Vec<Served>,
    ) -> Outcome {
        if !function.takes_queue() {
            return self.without_queue(function, key, args, out);
        }
        // Relaxed: who is a moment late finds it at the next call.
        if self.shared.first_idle.load(Ordering::Relaxed) <= now {
            self.sweep(now);
        }
        match self.hold(function, key) {
            Ok(held) => Held { payer, ..held }.call(function, args, now, caller, out, served),
            Err(refused) => Outcome::Refused(refused),
        }
    }

    fn without_queue<A: Args + ?Sized>(
        &self,
        function: Function,
        key: Option<&[u8]>,
        args: &A,
        out: &mut Vec<u8>,
    ) -> Outcome {
        if key.is_some() {
            let refused = Refused::new(Code::BadArgument, function.name(), "takes no key");
            return Outcome::Refused(refused);
        }
        if function == Function::Queues {
            if let Err(refused) = self.tell_names(args, |_| true, out) {
                return Outcome::Refused(refused);
            }
        } else if let Err(refused) = values::args::Reader::new(function.name(), args).end() {
            return Outcome::Refused(refused);
        } else {
            let settings = &self.shared.settings;
            let keys = format!("keys={MAX_KEYS}");
            let mut told: Vec<&[u8]> = vec![
                WIRE.as_bytes(),
                settings.version.as_bytes(),
                keys.as_bytes(),
                b"parks",
                b"queues",
                b"queues-cursor",
                b"events",
                b"ordered",
                b"larger",
                b"front",
            ];
            if settings.journal.is_some() {
                told.push(b"journal");
            }
            values::reply::texts(out, &told);
        }
        Outcome::Done
    }

    /// Returns the number of queues.
    pub fn count(&self) -> usize {
        self.queues.read().len()
    }

    /// The figures of `il1_stats` for up to `most` queues, by their names, and the number of
    /// queues. The selection does not change while the queues exist.
    pub fn figures(&self, most: usize) -> (Vec<Told>, usize) {
        let (cells, count) = {
            let queues = self.queues.read();
            let first = queues.behind(0).take(most);
            let cells: Vec<_> = first
                .filter_map(|(_, name)| Some((Box::from(name), queues.get(name)?.clone())))
                .collect();
            (cells, queues.len())
        };
        let figures = |(name, cell): (Box<[u8]>, Cell)| {
            let mut queue = cell.lock();
            (!queue.is_dropped()).then(|| (name, queue.figures()))
        };
        (cells.into_iter().filter_map(figures).collect(), count)
    }

    /// The names of all queues, sorted.
    pub fn names(&self) -> Vec<Box<[u8]>> {
        let mut names: Vec<_> = self.queues.read().behind(0).map(|(_, name)| name.into()).collect();
        names.sort();
        names
    }

    /// `il1_queues`: the names that `shown` lets through: all, sorted, or from a cursor on as many as one
    /// call looks at.
    pub fn tell_names<A: Args + ?Sized>(
        &self,
        args: &A,
        shown: impl Fn(&[u8]) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let mut from = values::args::Reader::new(Function::Queues.name(), args);
        let queues = self.queues.read();
        if !from.more() {
            if queues.len() > MAX_LISTED {
                let text = format_args!("there are more than {MAX_LISTED} queues; give a cursor");
                return refuse(Code::TooBig, from.called, text);
            }
            let mut names: Vec<&[u8]> = queues.behind(0).map(|(_, name)| name).collect();
            names.retain(|name| shown(name));
            names.sort_unstable();
            values::reply::texts(out, &names);
            return Ok(());
        }
        let cursor = calls::read::cursor(&mut from)?;
        from.end()?;
        let mut page = queues.behind(cursor);
        let mut told = calls::read::Strings::default();
        let mut last = 0;
        for (number, name) in page.by_ref().take(LISTED) {
            last = number;
            if shown(name) {
                told.text(name);
            }
        }
        told.end_behind(if page.next().is_some() { last } else { 0 }, out);
        Ok(())
    }

    /// Holds the queue of this key for some calls; it is created if missing, unless `function` only
    /// reads. (Which is also named in the refusal of a key that is not a queue's.) A caller that
    /// holds one queue must not call for another.
    pub fn hold(&self, function: Function, key: Option<&[u8]>) -> Result<Held<'_>, Refused> {
        let Some(name) = key.and_then(any_name) else {
            let text = "takes one key, il:{name}, without other braces";
            return refuse(Code::BadArgument, function.name(), text);
        };
        if name.len() > MAX_NAME {
            let text = format_args!("the name has {} bytes; at most {MAX_NAME}", name.len());
            return refuse(Code::BadArgument, function.name(), text);
        }
        let makes = function.class() != Class::Read && !function.is_ephemeral();
        let cell = match makes {
            true => self.cell(name),
            false => self.queues.read().get(name).cloned().unwrap_or_else(|| self.nobodys(name)),
        };
        let queue = cell.lock_arc();
        if queue.is_dropped() && makes {
            drop(queue);
            let (cell, queue) = self.taken_up(name);
            return Ok(Held { engine: self, cell, queue, payer: None });
        }
        Ok(Held { engine: self, cell, queue, payer: None })
    }

    fn fresh(&self, name: &[u8]) -> Cell {
        let settings = &self.shared.settings;
        let mut queue = Queue::new(name, settings.durability);
        queue.scheduler.set_rules(Rules::last_of(settings.rules));
        Arc::new(Mutex::new(queue))
    }

    fn cell(&self, name: &[u8]) -> Cell {
        if let Some(cell) = self.queues.read().get(name) {
            return cell.clone();
        }
        self.queues.write().get_or_make(name, || match self.gone.lock().remove(name) {
            Some(cell) => cell,
            None => {
                let cell = self.fresh(name);
                let mut queue = cell.lock();
                queue.accounts = self.shared.accounts_of(name);
                queue.look_for_watch(&self.shared);
                drop(queue);
                cell
            }
        })
    }

    /// Returns the time at which `tick` is next worth calling; `None`: nobody waits.
    pub fn next_due(&self) -> Option<Time> {
        // Relaxed: a caller that parks a call asks afterwards, and others learn of it as soon as
        // they look.
        Some(self.shared.first_alarm.load(Ordering::Relaxed)).filter(|&time| time != Time::MAX)
    }

    /// Applies what is due where somebody waits, and answers whose wait is over.
    pub fn tick(&self, now: Time, served: &mut Vec<Served>) {
        let due: Vec<Box<[u8]>> = {
            let alarms = self.shared.alarms.lock();
            alarms
                .iter()
                .take_while(|(time, _)| *time <= now)
                .map(|(_, name)| name.clone())
                .collect()
        };
        for name in due {
            // It may have been dropped meanwhile.
            let Some(cell) = self.queues.read().get(&name).cloned() else { continue };
            let queue = cell.lock_arc();
            let mut held = Held { engine: self, cell, queue, payer: None };
            held.within(now, None, served, |queue, cx| queue.tick(cx));
        }
    }

    /// Drops a parked call whose client no longer waits. Returns whether it was parked.
    pub fn forget(&self, ticket: Ticket) -> bool {
        let Some(cell) = self.shared.tickets.lock().remove(&ticket) else { return false };
        let mut queue = cell.lock_arc();
        let now = queue.scheduler.last_time();
        let order = queue.waiting.of_ticket(ticket);
        if let Some(order) = order {
            queue.waiting.remove(order);
            queue.restless = queue.waiting.wait_for_room();
        }
        self.settle_down(&mut queue, &cell, now);
        self.after(&mut queue);
        order.is_some()
    }

    /// Answers this call as if its wait were over. False: it does not wait.
    pub fn give_up(&self, ticket: Ticket, now: Time, served: &mut Vec<Served>) -> bool {
        let Some(cell) = self.shared.tickets.lock().get(&ticket).cloned() else { return false };
        let queue = cell.lock_arc();
        let waits = queue.waiting.of_ticket(ticket).is_some();
        let mut held = Held { engine: self, cell, queue, payer: None };
        held.within(now, None, served, |queue, cx| {
            queue.tick(cx);
            if let Some(order) = queue.waiting.of_ticket(ticket) {
                queue.end_wait(order, cx);
            }
        });
        waits
    }

    /// Lets a queue go that a call has left dropped or blank, or notes that it may be idle.
    #[inline]
    fn settle_down(&self, queue: &mut Queue, cell: &Cell, now: Time) {
        if queue.is_dropped() {
            self.let_go(queue, cell, now, false);
        } else if queue.is_blank() && queue.waiting.is_empty() {
            self.let_blank_go(queue, cell, now, false);
        } else {
            self.note_idle(queue);
        }
    }

    /// Notes what has to be known of a queue outside its lock.
    fn after(&self, queue: &mut Queue) {
        queue.called();
        let weight = queue.total_weight();
        if weight != queue.counted {
            self.shared.count(queue, weight);
        }
        let alarm = waiting::waiters::serve::alarm_of(queue);
        if alarm != queue.alarm {
            let mut alarms = self.shared.alarms.lock();
            alarms.remove(&(queue.alarm, queue.name.clone()));
            if alarm != Time::MAX {
                alarms.insert((alarm, queue.name.clone()));
            }
            let first = alarms.first().map_or(Time::MAX, |(time, _)| *time);
            self.shared.first_alarm.store(first, Ordering::Relaxed);
            queue.alarm = alarm;
        }
    }

    /// The versions of the rules that it knows, the last of them in force.
    pub fn rules(&self) -> &'static [Rules] {
        self.shared.settings.rules
    }

    /// Returns the number of calls that wait.
    pub fn parked(&self) -> usize {
        self.shared.tickets.lock().len()
    }

    /// Limits the bytes of all queues; 0: no limit.
    pub fn set_memory(&self, bytes: u64) {
        self.shared.memory.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of all queues, about.
    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// Calls refused since the start for want of memory, and queues that were given back unasked.
    pub fn refused_and_reclaimed(&self) -> (u64, u64) {
        let Shared { refused, reclaimed, .. } = &self.shared;
        (refused.load(Ordering::Relaxed), reclaimed.load(Ordering::Relaxed))
    }

    /// From now on queues count in the accounts that `accounts` names, which have nothing yet.
    pub fn set_accounts(&self, accounts: Option<Accounts>) {
        *self.shared.accounts.write() = accounts;
        self.shared.watched.set_accounts(&self.shared);
        self.shared.workers.lock().set_accounts(&self.shared);
        let mut cells: Vec<(Box<[u8]>, Cell)> = self.queues.read().all().collect();
        cells.extend(self.gone.lock().cells());
        for (name, cell) in cells {
            let mut queue = cell.lock_arc();
            queue.accounts.iter().for_each(|one| one.add(0u64.wrapping_sub(queue.counted)));
            queue.accounts = self.shared.accounts_of(&name);
            queue.accounts.iter().for_each(|one| one.add(queue.counted));
        }
    }
}

impl Held<'_> {
    /// Makes one call on this queue.
    pub fn call<A: Args + ?Sized>(
        &mut self,
        function: Function,
        args: &A,
        now: Time,
        caller: Option<Ticket>,
        out: &mut Vec<u8>,
        served: &mut Vec<Served>,
    ) -> Outcome {
        if let Err(refused) = self.can_be_recorded(function, args) {
            return Outcome::Refused(refused);
        }
        let from = out.len();
        // No journal has what it returns.
        let is_others = matches!(function, Function::Workers | Function::Ask);
        let ran = self.within(now, caller, served, |queue, cx| {
            let ran = queue.run(function, args, cx, out);
            // The others record what they answer.
            if !matches!(function.class(), Class::Produce | Class::Consume) && !is_others {
                cx.shown(queue);
            }
            ran
        });
        ran.unwrap_or_else(|refused| {
            out.truncate(from);
            Outcome::Refused(refused)
        })
    }

    /// Refuses a call that cannot be recorded: it must not be done.
    fn can_be_recorded<A: Args + ?Sized>(
        &self,
        function: Function,
        args: &A,
    ) -> Result<(), Refused> {
        let journal = &self.engine.shared.settings.journal;
        let Some(journal) = journal.as_ref().filter(|_| self.queue.is_durable()) else {
            return Ok(());
        };
        // A read also records the due events that it applies.
        if function.only_reads() || function.is_ephemeral() {
            return Ok(());
        }
        let growing = function.grows().then(|| values::args::recorded(args));
        journal.accepts(growing).or_else(|why| refuse(Code::CannotStore, function.name(), why))
    }

    fn within<R>(
        &mut self,
        now: Time,
        caller: Option<Ticket>,
        served: &mut Vec<Served>,
        call: impl FnOnce(&mut Queue, &mut Context<'_>) -> R,
    ) -> R {
        let from = served.len();
        let shared = &self.engine.shared;
        let mut cx = Context { now, caller, served, shared, replays: false, payer: self.payer };
        let result = call(&mut self.queue, &mut cx);
        if self.queue.scheduler.has_noted() {
            self.queue.log_events(shared);
        }
        if served.len() > from {
            let mut tickets = shared.tickets.lock();
            served[from..].iter().for_each(|served| drop(tickets.remove(&served.ticket)));
        }
        if let Some(ticket) =
            caller.filter(|&ticket| self.queue.waiting.of_ticket(ticket).is_some())
        {
            shared.tickets.lock().insert(ticket, self.cell.clone());
        }
        self.engine.settle_down(&mut self.queue, &self.cell, now);
        self.engine.after(&mut self.queue);
        result
    }
}

impl Queue {
    fn run<A: Args + ?Sized>(
        &mut self,
        function: Function,
        args: &A,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Read<Outcome> {
        let outcome = match function {
            Function::Put | Function::Lease | Function::Settle | Function::Next => {
                self.numbered(function, args, cx, out)?
            }
            Function::Result
            | Function::Join
            | Function::Stats
            | Function::Peek
            | Function::Scan
            | Function::Paused
            | Function::DeadLetters
            | Function::Hot
            | Function::Limits
            | Function::Explain
            | Function::Roots
            | Function::Blocked => return self.read(function, args, cx, out),
            Function::Extend
            | Function::Configure
            | Function::Cancel
            | Function::Revoke
            | Function::Retry
            | Function::Skip
            | Function::Bury
            | Function::Requeue
            | Function::Discard
            | Function::Forget
            | Function::Purge
            | Function::Restore
            | Function::Drop
            | Function::Pause
            | Function::Resume
            | Function::Seal
            | Function::Reopen => {
                self.operate(function, args, cx, out)?;
                Outcome::Done
            }
            Function::Events | Function::Announce | Function::Workers | Function::Ask => {
                let mut from = Reader::new(function.name(), args);
                match function {
                    Function::Events => self.events(&mut from, cx, out),
                    Function::Announce => self.announce(&mut from, cx, out),
                    Function::Workers => self.workers(&mut from, cx, out),
                    _ => self.ask(&mut from, cx, out),
                }?;
                return Ok(Outcome::Done);
            }
            Function::Version | Function::Queues => unreachable!("they are of no queue"),
        };
        if !self.waiting.is_empty() {
            self.serve(cx);
        }
        Ok(outcome)
    }
}

/// The name in the key of a queue, `il:{name}`; `None` if the key is not a queue's.
pub fn queue_name(key: &[u8]) -> Option<&[u8]> {
    any_name(key).filter(|name| name.len() <= MAX_NAME)
}

fn any_name(key: &[u8]) -> Option<&[u8]> {
    let name = key.strip_prefix(b"il:{")?.strip_suffix(b"}")?;
    // All bytes, without a stop: so several are compared at once.
    let braces = name.iter().fold(false, |found, byte| found | matches!(byte, b'{' | b'}'));
    (!braces && !name.is_empty()).then_some(name)
}
