//! The state of a connection that commands may change.

use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use hashbrown::HashMap;
use interlock_journal::copy::Copy;
use std::hash::RandomState;

use crate::access::registry::{Card, Part};
use crate::access::users::{User, Users};
use crate::command::pending::Pending;
use crate::command::transaction::Transaction;
use crate::resp::write::Writer;
use crate::shared::Core;
use crate::tables::reply_order::Line;
use crate::topics::directory::{weight, Name, SubscriptionKind};
use crate::topics::relays::{Relays, Way};

pub struct State {
    pub card: Arc<Card>,
    pub slot: u32,
    pub resp3: bool,
    pub silent: Silent,
    /// True if the client, when it is slow, would rather miss messages than be closed.
    pub drops: bool,
    pub closing: bool,
    /// True after MONITOR: the commands of all clients are sent to it.
    pub monitors: bool,
    /// `None`: it must say first who it is.
    pub user: Option<Arc<User>>,
    /// True if it logged in with a password; false for the default user.
    pub logged_in: bool,
    /// The call that is not answered yet: nothing more is read until it is.
    pub pending: Option<Box<Pending>>,
    /// The calls behind MULTI, if it has come.
    pub transaction: Option<Box<Transaction>>,
    /// Unanswered writes, if any.
    pub line: Option<Box<Line>>,
    /// The number of the first write of the next line.
    pub next_write: u64,
    /// The copy of the journal that BACKUP reads: its files stay open until it ends, though the
    /// journal may no longer need them.
    pub backup: Option<Box<Copy<File>>>,
    /// Set if it relays messages of another hub.
    pub relaying: Option<Relaying>,
    /// Answer of a PUBLISH to which the client itself is subscribed: its own copy comes first.
    pub deferred: Option<i64>,
    /// Each with its number, for they are given up in the order in which they were taken.
    subscriptions: Option<Box<[HashMap<Name, u64, RandomState>; 3]>>,
    subscribed: u64,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Silent {
    #[default]
    No,
    /// SKIP was this command: the next is silent.
    Next,
    This,
    Off,
}

/// The sender whose messages a connection brings.
#[derive(Clone, Copy, Debug)]
pub struct Relaying {
    pub sender: u128,
    /// A message was refused: none behind it is taken.
    pub is_refused: bool,
    /// The origin of the last message, and the way on which it came.
    last: Option<(u128, Way)>,
}

impl Relaying {
    pub fn of(sender: u128) -> Self {
        Relaying { sender, is_refused: false, last: None }
    }

    pub fn refused(self) -> Self {
        Relaying { is_refused: true, ..self }
    }

    /// Returns the way of an origin; it is mostly that of the message before.
    pub fn way(&mut self, origin: u128, relays: &Relays) -> Way {
        match self.last {
            Some((last, way)) if last == origin => way,
            _ => {
                let way = relays.way(self.sender, origin);
                self.last = Some((origin, way));
                way
            }
        }
    }
}

impl State {
    pub fn new(card: Arc<Card>, slot: u32, users: &Users) -> Self {
        let (resp3, silent, drops, closing) = Default::default();
        let (deferred, subscriptions, pending, backup, relaying, line, next_write) =
            Default::default();
        let mut state = State {
            card,
            slot,
            resp3,
            silent,
            drops,
            closing,
            monitors: false,
            user: None,
            logged_in: false,
            pending,
            transaction: None,
            line,
            next_write,
            backup,
            relaying,
            deferred,
            subscriptions,
            subscribed: 0,
        };
        state.become_user(users.anonymous().cloned(), false);
        state
    }

    pub fn monitor(&mut self, core: &mut Core<'_>) {
        if !self.monitors {
            self.monitors = true;
            core.local.monitors.push(self.slot);
            core.shared.monitor(core.local.worker, true);
        }
    }

    pub fn stop_monitoring(&mut self, core: &mut Core<'_>) {
        if std::mem::take(&mut self.monitors) {
            core.local.monitors.retain(|&slot| slot != self.slot);
            core.shared.monitor(core.local.worker, !core.local.monitors.is_empty());
        }
    }

    pub fn become_user(&mut self, user: Option<Arc<User>>, logged_in: bool) {
        self.card.user.lock().clone_from(&user);
        self.user = user;
        self.logged_in = logged_in;
    }

    pub fn is_subscribed(&self) -> bool {
        self.subscriptions.is_some()
    }

    /// Returns whether it is sent data that is not a reply.
    pub fn is_pushed_to(&self) -> bool {
        self.is_subscribed() || self.monitors
    }

    /// Topics and patterns count together, shard topics apart, as Redis counts them.
    pub fn count(&self, kind: SubscriptionKind) -> usize {
        let Some(sets) = &self.subscriptions else { return 0 };
        match kind {
            SubscriptionKind::Shard => sets[2].len(),
            _ => sets[0].len() + sets[1].len(),
        }
    }

    pub fn names(&self, kind: SubscriptionKind) -> Vec<Name> {
        let Some(sets) = &self.subscriptions else { return Vec::new() };
        let mut numbered: Vec<(&Name, &u64)> = sets[kind as usize].iter().collect();
        numbered.sort_unstable_by_key(|&(_, number)| number);
        numbered.into_iter().map(|(name, _)| name.clone()).collect()
    }

    pub fn subscribe(&mut self, kind: SubscriptionKind, name: &[u8], core: &mut Core<'_>) {
        let set = &mut self.subscriptions.get_or_insert_default()[kind as usize];
        if set.contains_key(name) {
            return;
        }
        let name = core.local.subscribers.add(kind, name, self.slot);
        self.subscribed += 1;
        set.insert(name.clone(), self.subscribed);
        core.shared.directory.join(kind, &name, core.local.worker);
        self.weigh(core, self.card.held(Part::Subscribed) + weight(kind, &name));
        self.card.subscriptions[kind as usize].fetch_add(1, Relaxed);
    }

    pub fn unsubscribe(&mut self, kind: SubscriptionKind, name: &[u8], core: &mut Core<'_>) {
        let Some(sets) = &mut self.subscriptions else { return };
        let Some((name, _)) = sets[kind as usize].remove_entry(name) else { return };
        if sets.iter().all(HashMap::is_empty) {
            self.subscriptions = None;
        }
        let last = core.local.subscribers.remove(kind, &name, self.slot);
        core.shared.directory.leave(kind, &name, core.local.worker, last);
        self.weigh(core, self.card.held(Part::Subscribed) - weight(kind, &name));
        self.card.subscriptions[kind as usize].fetch_sub(1, Relaxed);
    }

    /// Reports the bytes of its subscriptions.
    fn weigh(&self, core: &mut Core<'_>, bytes: usize) {
        core.local.held += self.card.hold(Part::Subscribed, bytes);
    }

    /// Returns why it may not subscribe to these as well.
    pub fn too_many<'a>(
        &self,
        kind: SubscriptionKind,
        names: impl Iterator<Item = &'a [u8]>,
        most: usize,
    ) -> Option<String> {
        if most == 0 {
            return None;
        }
        let set = self.subscriptions.as_ref().map(|sets| &sets[kind as usize]);
        let new = names.filter(|name| set.is_none_or(|set| !set.contains_key(*name)));
        let more: usize = new.map(|name| weight(kind, name)).sum();
        let bytes = self.card.held(Part::Subscribed) + more;
        (more > 0 && bytes > most).then(|| {
            format!(
                "ERR the subscriptions of this client would take {bytes} bytes; \
                 limits.pubsub.subscriptions allows {most}"
            )
        })
    }

    /// Answers a publish; behind the client's own copy, where it gets one.
    pub fn answer_publish(&mut self, receivers: i64, reply: &mut Writer<'_>) {
        if self.is_subscribed() {
            self.deferred = Some(receivers);
        } else {
            reply.integer(receivers);
        }
    }

    pub fn is_silent(&self) -> bool {
        matches!(self.silent, Silent::This | Silent::Off)
    }

    pub fn silence_moves_on(&mut self) {
        self.silent = match self.silent {
            Silent::Next => Silent::This,
            Silent::This => Silent::No,
            other => other,
        };
    }
}
