//! A connection without its socket: bytes and time in, bytes and effects out.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::command::{self, Call, Command, Waiting};
use crate::events::{Answer, Level};
use crate::registry::Card;
use crate::resp::parse::{Limits, Parsed, Parser};
use crate::resp::write::Writer;
use crate::shared::{add, Core};
use crate::topics::{Kind, Name};
use crate::tracing;
use crate::users::{User, Users};

#[derive(Default)]
struct Requests {
    parser: Parser,
    /// An unfinished request, from its first byte on, and what came behind it.
    stored: Vec<u8>,
    /// How far `stored` is done with.
    at: usize,
    /// A complete request that waits for `Step::Sync`: its length.
    ready: Option<usize>,
}

pub struct Session {
    requests: Requests,
    pub state: State,
}

/// What commands may change of their connection.
pub struct State {
    pub card: Arc<Card>,
    pub slot: u32,
    pub resp3: bool,
    pub silent: Silent,
    /// When it is slow, it would rather miss messages than be closed.
    pub drops: bool,
    pub closing: bool,
    /// It is shown the commands of all.
    pub monitors: bool,
    /// `None`: it must say first who it is.
    pub user: Option<Arc<User>>,
    /// By a password; not for what everybody is.
    pub logged_in: bool,
    /// What the controller was asked: nothing is read until it has answered.
    pub waiting: Option<Box<Waiting>>,
    /// Answer of a PUBLISH to which the client itself is subscribed: its own copy comes first.
    deferred: Option<i64>,
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

/// Why a session stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Everything it was given is done.
    Idle,
    /// What was published so far must reach this worker's subscribers; then it goes on.
    Sync,
    /// The controller was asked something: it goes on with `answered`.
    Wait,
    /// Nothing more is read. What is owed is sent first.
    Close,
    /// At once.
    Cut,
}

impl Session {
    pub fn new(card: Arc<Card>, slot: u32, users: &Users) -> Self {
        let (resp3, silent, drops, closing) = Default::default();
        let (deferred, subscriptions, waiting) = Default::default();
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
            waiting,
            deferred,
            subscriptions,
            subscribed: 0,
        };
        state.become_user(users.anonymous().cloned(), false);
        Session { requests: Requests::default(), state }
    }

    /// Goes on with what it has and `fresh[*at..]`, and writes replies. After `Step::Sync` it wants
    /// to be called again with the same `fresh`.
    pub fn run(
        &mut self,
        fresh: &[u8],
        at: &mut usize,
        core: &mut Core<'_>,
        out: &mut Vec<u8>,
    ) -> Step {
        let Session { requests, state } = self;
        if let Some(receivers) = state.deferred.take() {
            if !state.is_silent() {
                Writer { out, resp3: state.resp3 }.integer(receivers);
            }
            state.silence_moves_on();
        }
        let mut stored = std::mem::take(&mut requests.stored);
        let from_stored = !stored.is_empty();
        if from_stored {
            stored.extend_from_slice(&fresh[*at..]);
            *at = fresh.len();
        }
        let (bytes, mut done) = if from_stored { (&stored[..], requests.at) } else { (fresh, *at) };
        let bulk = core.local.live.frame_limit;
        let step = loop {
            // An answer may have led to another question.
            if state.waiting.is_some() {
                break Step::Wait;
            }
            let limits = Limits { bulk, strict: state.user.is_none() };
            let step = requests.next(&bytes[done..], &limits, state, core, out);
            match step {
                Ok((used, None)) => done += used,
                Ok((used, Some(step))) => {
                    done += used;
                    break step;
                }
                Err(()) => break Step::Idle,
            }
        };
        if step == Step::Close || step == Step::Cut {
            state.closing = true;
            return step;
        }
        if !from_stored {
            *at = done;
            if step != Step::Sync && done < fresh.len() {
                // Exactly as long as needed: who trickles half a request keeps no more than it sent.
                requests.stored = fresh[done..].to_vec();
                requests.at = 0;
                *at = fresh.len();
            }
        } else if step == Step::Sync || done < stored.len() {
            requests.at = done;
            if step != Step::Sync && done > 0 {
                stored.drain(..done);
                requests.at = 0;
                stored.shrink_to(stored.len() * 2);
            }
            requests.stored = stored;
        }
        let unread = requests.stored.len() - requests.at.min(requests.stored.len());
        // A request that waits to be done is still the parser's to hold.
        if requests.ready.is_none() {
            requests.parser.shrink();
        }
        // What the parser holds of it counts too: of many short arguments that is more than they are.
        let held = unread + requests.parser.held();
        let most = core.local.live.query_limit;
        if held > if state.user.is_none() { most.min(STRANGERS_QUERY) } else { most } {
            add(&core.shared.counters.client_query_buffer_limit_disconnections, 1);
            state.closing = true;
            return Step::Cut;
        }
        state.card.unread.store(unread, Relaxed);
        step
    }

    /// The controller's answer. Then `run` goes on.
    pub fn answered(&mut self, answer: Answer, core: &mut Core<'_>, out: &mut Vec<u8>) {
        let state = &mut self.state;
        let Some(waiting) = state.waiting.take() else { return };
        let before = out.len();
        let resp3 = state.resp3;
        waiting.answered(answer, state, core, Writer { out, resp3 });
        if state.waiting.is_some() {
            // It had to ask again.
            return;
        }
        if state.is_silent() {
            out.truncate(before);
        }
        state.silence_moves_on();
    }

    /// There are other users now. False: it may no longer be connected, or not as it is.
    #[must_use]
    pub fn keeps_its_place(&mut self, users: &Users) -> bool {
        let state = &mut self.state;
        let Some(user) = &state.user else {
            state.become_user(users.anonymous().cloned(), false);
            return true;
        };
        let user = users.named(user.name.as_bytes()).filter(|user| state.logged_in || user.open);
        let Some(user) = user.cloned() else { return false };
        let may = |kind, name: &[u8]| match kind {
            Kind::Pattern => user.subscribe.hold_all_of(name),
            Kind::Topic | Kind::Shard | Kind::Trace => user.subscribe.hold(name),
        };
        let calls = [
            (Kind::Topic, "subscribe"),
            (Kind::Pattern, "psubscribe"),
            (Kind::Shard, "ssubscribe"),
        ];
        let keeps = calls.into_iter().all(|(kind, command)| {
            let names = state.names(kind);
            (names.is_empty() || user.may_call(command)) && names.iter().all(|name| may(kind, name))
        }) && (!state.monitors || user.may_call("monitor"));
        state.become_user(Some(user), state.logged_in);
        keeps
    }

    /// Gives up what others know of it. Called once, at the end of the connection.
    pub fn close(&mut self, core: &mut Core<'_>) {
        for kind in [Kind::Topic, Kind::Pattern, Kind::Shard] {
            for name in self.state.names(kind) {
                self.state.unsubscribe(kind, &name, core);
            }
        }
        self.state.stop_monitoring(core);
        core.shared.registry.remove(self.state.card.id);
    }
}

impl Requests {
    /// One request: how many bytes it was, and why to stop behind it, if so. `Err`: it is incomplete.
    fn next(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        state: &mut State,
        core: &mut Core<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Step>), ()> {
        let used = match self.ready.take() {
            Some(used) => used,
            None => match self.parser.parse(bytes, limits) {
                Ok(Parsed::Request(used)) => used,
                Ok(Parsed::Incomplete) => return Err(()),
                Err(refusal) => {
                    add(&core.shared.counters.protocol_errors, 1);
                    let text = format!("ERR Protocol error: {refusal}");
                    // A refusal is Latin-1: the one byte in it that is the client's goes back as it was.
                    let text: Vec<u8> = text.chars().map(|c| c as u8).collect();
                    if !state.is_silent() {
                        Writer { out, resp3: state.resp3 }.error(&text);
                    }
                    return Ok((0, Some(Step::Close)));
                }
            },
        };
        let arguments = self.parser.arguments(bytes);
        if arguments.is_empty() {
            return Ok((used, None));
        }
        let command = command::find(arguments);
        if command.is_err() && command::is_http(&arguments[0]) {
            add(&core.shared.counters.http_disconnections, 1);
            let text = format!("disconnected: it speaks HTTP: {}", state.card.who());
            core.shared.events.log(Level::Warning, text);
            return Ok((used, Some(Step::Cut)));
        }
        // Who subscribes now must not receive what was published before.
        let reaches_subscribers = command.is_ok_and(|command| command.changes_deliveries);
        if reaches_subscribers && !core.local.chunk.is_empty() {
            self.ready = Some(used);
            return Ok((0, Some(Step::Sync)));
        }
        let before = out.len();
        let pushes = state.execute(command, arguments, core, out);
        if state.deferred.is_some() {
            return Ok((used, Some(Step::Sync)));
        }
        if state.waiting.is_some() {
            return Ok((used, Some(Step::Wait)));
        }
        if state.is_silent() && !pushes {
            out.truncate(before);
        }
        state.silence_moves_on();
        let step = if state.closing {
            Some(Step::Close)
        } else if core.local.chunk.size > TURN_BYTES
            || core.local.chunk.copies > TURN_COPIES
            || out.len() > TURN_BYTES
        {
            Some(Step::Sync)
        } else {
            None
        };
        Ok((used, step))
    }
}

impl State {
    /// Whether the command's replies come although CLIENT REPLY is off.
    fn execute(
        &mut self,
        command: Result<&'static Command, command::Unknown>,
        arguments: crate::resp::parse::Arguments<'_>,
        core: &mut Core<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        core.local.commands += 1;
        let resp3 = self.resp3;
        let mut reply = Writer { out, resp3 };
        let refusal = match command {
            Err(unknown) => Some(unknown.text(arguments)),
            Ok(command) => command.refusal(arguments, self, core),
        };
        if let Some(text) = refusal {
            add(&core.shared.counters.total_error_replies, 1);
            reply.error(&text);
            return false;
        }
        let Ok(command) = command else { return false };
        self.card.command.store(command.index(), Relaxed);
        if core.shared.is_monitored() && !command.has_flag("admin") {
            let line = tracing::monitored(&self.card, command, arguments);
            core.local.chunk.add_trace(&line, core.shared.monitored());
        }
        let slow = core.local.live.slow_log;
        let Some(threshold) = slow
            .threshold
            .filter(|_| command.timed || core.shared.directory.pattern_count() > PATTERNS_UNTIMED)
        else {
            (command.handler)(&mut Call { state: self, core, arguments, reply, command });
            return command.pushes;
        };
        let before = (core.clock)();
        (command.handler)(&mut Call { state: self, core, arguments, reply, command });
        let took = (core.clock)().saturating_sub(before);
        if took >= threshold && slow.length > 0 {
            core.shared.slow_log.add(&self.card, command, arguments, took, slow.length);
        }
        command.pushes
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

    /// It gets what it did not ask for at that moment.
    pub fn is_pushed_to(&self) -> bool {
        self.is_subscribed() || self.monitors
    }

    /// Topics and patterns count together, shard topics apart, as Redis counts them.
    pub fn count(&self, kind: Kind) -> usize {
        let Some(sets) = &self.subscriptions else { return 0 };
        match kind {
            Kind::Shard => sets[2].len(),
            _ => sets[0].len() + sets[1].len(),
        }
    }

    pub fn names(&self, kind: Kind) -> Vec<Name> {
        let Some(sets) = &self.subscriptions else { return Vec::new() };
        let mut numbered: Vec<(&Name, &u64)> = sets[kind as usize].iter().collect();
        numbered.sort_unstable_by_key(|&(_, number)| number);
        numbered.into_iter().map(|(name, _)| name.clone()).collect()
    }

    pub fn subscribe(&mut self, kind: Kind, name: &[u8], core: &mut Core<'_>) {
        let set = &mut self.subscriptions.get_or_insert_default()[kind as usize];
        if set.contains_key(name) {
            return;
        }
        let name = core.local.subscribers.add(kind, name, self.slot);
        self.subscribed += 1;
        set.insert(name.clone(), self.subscribed);
        core.shared.directory.join(kind, &name, core.local.worker);
        self.card.subscriptions[kind as usize].fetch_add(1, Relaxed);
    }

    pub fn unsubscribe(&mut self, kind: Kind, name: &[u8], core: &mut Core<'_>) {
        let Some(sets) = &mut self.subscriptions else { return };
        let Some((name, _)) = sets[kind as usize].remove_entry(name) else { return };
        if sets.iter().all(HashMap::is_empty) {
            self.subscriptions = None;
        }
        let last = core.local.subscribers.remove(kind, &name, self.slot);
        core.shared.directory.leave(kind, &name, core.local.worker, last);
        self.card.subscriptions[kind as usize].fetch_sub(1, Relaxed);
    }

    /// Answers a publish; behind the client's own copy, where it gets one.
    pub fn answer_publish(&mut self, receivers: i64, reply: &mut Writer<'_>) {
        if self.is_subscribed() {
            self.deferred = Some(receivers);
        } else {
            reply.integer(receivers);
        }
    }

    fn is_silent(&self) -> bool {
        matches!(self.silent, Silent::This | Silent::Off)
    }

    fn silence_moves_on(&mut self) {
        self.silent = match self.silent {
            Silent::Next => Silent::This,
            Silent::This => Silent::No,
            other => other,
        };
    }
}

/// Published in one turn, encoded and in copies to send: then it goes out before more is read. So
/// many bytes of replies, too, are a reason to look whether the client is owed too much.
const TURN_BYTES: usize = 1 << 20;
const TURN_COPIES: u64 = 1 << 16;
/// Up to so many, comparing a topic with them takes less than two looks at the clock are worth.
const PATTERNS_UNTIMED: usize = 32;
/// Of an unfinished request of who has not said who it is: more than the strict parser takes for one.
const STRANGERS_QUERY: usize = 256 << 10;
