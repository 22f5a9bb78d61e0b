//! The state that all queues of an engine share, and the context of a call.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use hashbrown::HashMap;
use interlock_core::queue::types::rules::{Rules, RULES};
use interlock_core::queue::types::Time;
use parking_lot::{Mutex, RwLock};

use crate::queue::declare::Durability;
use crate::queue::events::Watched;
use crate::queue::reclaim::Idle;
use crate::queue::workers::Workers;
use crate::queue::Queue;
use crate::values::args;
use crate::values::args::{Args, Refused};
use crate::waiting::waiters::{Served, Ticket};
use crate::wire::codes::Code;
use crate::wire::records::Recorded;

/// The settings that an engine is made with.
#[derive(Clone)]
pub struct EngineSettings {
    /// Bytes that all queues may take before puts are refused with `OOM`; 0: no bound.
    /// `Engine::set_memory` changes it.
    pub memory: u64,
    /// Durability of a queue that does not declare it.
    pub durability: Durability,
    /// The text that `il1_version` answers behind the wire's version.
    pub version: String,
    pub journal: Option<Arc<dyn Journal>>,
    /// The versions of the rules that it knows, the last of them in force.
    pub rules: &'static [Rules],
}

impl Default for EngineSettings {
    fn default() -> Self {
        EngineSettings {
            memory: 0,
            durability: Durability::None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            journal: None,
            rules: RULES,
        }
    }
}

/// Stores what was done to durable queues.
///
/// It is called, under the queue's lock, for each call that changed something. `Engine::replay` with the
/// same calls in the same order, by the same rules, makes the same state: ids, tokens, kept replies. Calls that wait are
/// recorded when they are answered; [`Recorded`] lists the few things that are recorded beside calls.
pub trait Journal: Send + Sync {
    fn record(
        &self,
        queue: &[u8],
        durability: Durability,
        now: Time,
        recorded: Recorded,
        args: &[&[u8]],
    );

    /// Returns whether something was recorded of a queue, since it was last `forgotten`.
    fn knows(&self, _queue: &[u8]) -> bool {
        true
    }

    /// A call was answered again, with the reply to one that was recorded: that must be as safe before
    /// this answer leaves, for the first one may still be on its way to the disk.
    fn repeated(&self, _durability: Durability) {}

    /// A call was answered from the state of a queue as it is in memory, where the last records may still
    /// be on their way to the disk: they must be there before this answer leaves. Where nothing can be
    /// recorded any more it is answered all the same.
    fn shown(&self, _durability: Durability) {}

    /// Returns whether a call to a durable queue can be recorded, which is asked before it is made;
    /// `growing`: it makes the queue larger, and its arguments take this many bytes. The text gives
    /// the reason.
    fn accepts(&self, _growing: Option<u64>) -> Result<(), String> {
        Ok(())
    }
}

pub type Cell = Arc<Mutex<Queue>>;

/// The memory that queues of some names may take together, beside the bound on all.
#[derive(Debug, Default)]
pub struct Account {
    /// Bytes; 0: no bound.
    pub most: u64,
    used: AtomicU64,
}

impl Account {
    pub fn new(most: u64) -> Self {
        Account { most, used: AtomicU64::new(0) }
    }

    /// Bytes of its queues, about.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Relaxed, as the sum of all queues is. It wraps to what it should be.
    pub fn add(&self, more: u64) {
        self.used.fetch_add(more, Ordering::Relaxed);
    }
}

/// The accounts in which a queue of this name counts.
pub type Accounts = Box<dyn Fn(&[u8]) -> Vec<Arc<Account>> + Send + Sync>;

pub struct Shared {
    pub settings: EngineSettings,
    pub accounts: RwLock<Option<Accounts>>,
    /// Things kept beside the queues, by their names. Their locks are taken behind those of queues.
    pub watched: Watched,
    pub workers: Mutex<Workers>,
    /// Queues to be looked at, and when the first of them.
    pub idle: Mutex<Idle>,
    pub first_idle: AtomicU64,
    /// Puts refused for want of memory, and queues that went unasked.
    pub refused: AtomicU64,
    pub reclaimed: AtomicU64,
    /// The bound of `used` that holds now; 0: none.
    pub memory: AtomicU64,
    /// Bytes of all queues, about.
    pub used: AtomicU64,
    /// The queues that ask to be ticked, by the time of each.
    pub alarms: Mutex<BTreeSet<(Time, Box<[u8]>)>>,
    /// The first of them, for those who only look, or `Time::MAX`.
    pub first_alarm: AtomicU64,
    /// The queues at which calls are parked, by ticket.
    pub tickets: Mutex<HashMap<Ticket, Cell, std::hash::RandomState>>,
}

impl Shared {
    pub fn new(settings: EngineSettings) -> Self {
        let (accounts, idle, used, alarms, tickets) = Default::default();
        let [refused, reclaimed] = Default::default();
        let (watched, workers) = Default::default();
        Shared {
            memory: AtomicU64::new(settings.memory),
            first_idle: AtomicU64::new(Time::MAX),
            first_alarm: AtomicU64::new(Time::MAX),
            settings,
            accounts,
            watched,
            workers,
            idle,
            refused,
            reclaimed,
            used,
            alarms,
            tickets,
        }
    }

    pub fn accounts_of(&self, name: &[u8]) -> Vec<Arc<Account>> {
        self.accounts.read().as_ref().map_or_else(Vec::new, |accounts| accounts(name))
    }

    /// Counts bytes outside the queues: more or, wrapped, less.
    pub fn count_beside(&self, accounts: &[Arc<Account>], more: u64) {
        self.used.fetch_add(more, Ordering::Relaxed);
        accounts.iter().for_each(|account| account.add(more));
    }

    /// Updates the bytes that a queue takes.
    pub fn count(&self, queue: &mut Queue, weight: u64) {
        // Relaxed: a sum, by which nothing else is ordered. It wraps to what it should be.
        let more = weight.wrapping_sub(queue.counted);
        self.used.fetch_add(more, Ordering::Relaxed);
        queue.accounts.iter().for_each(|account| account.add(more));
        queue.counted = weight;
    }
}

/// The context that a call is given beside its arguments.
pub struct Context<'a> {
    pub now: Time,
    /// The caller, if it may be answered later; `None`: it is answered at once, whatever its WAIT.
    pub caller: Option<Ticket>,
    pub served: &'a mut Vec<Served>,
    pub shared: &'a Shared,
    pub replays: bool,
    /// The account whose bound holds beside that on all queues.
    pub payer: Option<&'a Arc<Account>>,
}

impl Context<'_> {
    /// Bytes that may still be taken.
    pub fn free(&self) -> u64 {
        self.free_for(self.payer.map(|payer| &**payer))
    }

    /// Like `free`, for a call made for another user.
    pub fn free_for(&self, payer: Option<&Account>) -> u64 {
        let own = payer.filter(|payer| payer.most > 0 && !self.replays);
        let own = own.map_or(u64::MAX, |payer| payer.most.saturating_sub(payer.used()));
        own.min(self.free_of_all())
    }

    /// Returns the refusal of a call that needed this many more bytes.
    pub fn out_of_memory(&self, bytes: u64, called: &str) -> Refused {
        self.out_of_memory_for(self.payer.map(|payer| &**payer), bytes, called)
    }

    pub fn out_of_memory_for(&self, payer: Option<&Account>, bytes: u64, called: &str) -> Refused {
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
        match payer.filter(|_| bytes <= self.free_of_all()) {
            Some(Account { most, .. }) => {
                let text =
                    format_args!("the queues that this user may call take all of its {most} bytes");
                Refused::new(Code::OutOfMemory, called, text)
            }
            // As Redis words it.
            None => {
                let oom = Code::OutOfMemory;
                Refused(format!("{oom} command not allowed when used memory > 'maxmemory'."))
            }
        }
    }

    pub fn free_of_all(&self) -> u64 {
        match self.shared.memory.load(Ordering::Relaxed) {
            0 => u64::MAX,
            // Relaxed: puts of other threads at this moment may exceed the limit slightly.
            most if !self.replays => most.saturating_sub(self.shared.used.load(Ordering::Relaxed)),
            _ => u64::MAX,
        }
    }

    /// Reports a repeated reply to the journal.
    pub fn repeated(&self, queue: &Queue) {
        if let Some(journal) = &self.shared.settings.journal {
            if queue.is_durable() && !self.replays {
                journal.repeated(queue.declared.durability);
            }
        }
    }

    /// Reports to the journal a reply that shows the state of a queue.
    pub fn shown(&self, queue: &Queue) {
        if let Some(journal) = &self.shared.settings.journal {
            if queue.is_durable() && !self.replays {
                journal.shown(queue.declared.durability);
            }
        }
    }

    /// Tells whether a put that waited for room can be recorded.
    pub fn accepts<A: Args + ?Sized>(&self, queue: &Queue, args: &A) -> Result<(), String> {
        match &self.shared.settings.journal {
            Some(journal) if queue.is_durable() && !self.replays => {
                journal.accepts(Some(args::recorded(args)))
            }
            _ => Ok(()),
        }
    }
}
