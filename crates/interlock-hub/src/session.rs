//! A connection without its socket: bytes and time in, bytes and effects out.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use crate::access::registry::{Card, Part};
use crate::access::users::{topic_places, Users};
use crate::catalog::{self, Action, Command, Unknown};
use crate::command::pending::Pending;
use crate::command::state::{Relaying, State};
use crate::command::transaction::{self, Taken, Transaction};
use crate::command::{self, follows, Call};
use crate::resp::parse::{Arguments, Copied, Limits, Parsed, Parser, ProtocolError};
use crate::resp::write::Writer;
use crate::shared::events::{Answer, Level};
use crate::shared::queues::ticket;
use crate::shared::Core;
use crate::tables::writes::Reply;
use crate::topics::directory::SubscriptionKind;
use crate::watch::counters::add;
use crate::watch::statistics::SAMPLED;
use crate::watch::tracing;

#[derive(Default)]
struct Requests {
    parser: Parser,
    /// An unfinished request, from its first byte on, and what came behind it.
    stored: Vec<u8>,
    /// The place up to which `stored` is done with.
    at: usize,
    /// A complete request that waits for `Step::Sync` or for room: its length, and whether it was begun before.
    ready: Option<(usize, bool)>,
}

pub struct Session {
    requests: Requests,
    pub state: State,
}

/// The reason why a session stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Everything it was given is done.
    Idle,
    /// Messages published so far must reach this worker's subscribers before it continues.
    Sync,
    /// The controller was asked, or a queue has nothing yet: `answered` resumes it.
    Wait,
    /// Read nothing more, send what is owed, then close.
    Close,
    /// At once.
    Cut,
}

impl Session {
    pub fn new(card: Arc<Card>, slot: u32, users: &Users) -> Self {
        let state = State::new(card, slot, users);
        Session { requests: Requests::default(), state }
    }

    /// Processes the stored input and `fresh[*at..]`, and writes replies. After `Step::Sync` it must be
    /// called again with the same `fresh`.
    pub fn run(
        &mut self,
        fresh: &[u8],
        at: &mut usize,
        core: &mut Core<'_>,
        out: &mut Vec<u8>,
    ) -> Step {
        let Session { requests, state } = self;
        core.local.looked = None;
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
            if state.pending.is_some() {
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
        let given = state.line.as_ref().map_or(0, |line| line.bytes());
        // A request that waits to be done is still the parser's to hold.
        if requests.ready.is_none() {
            requests.parser.shrink(&mut core.local.ranges);
        }
        // The parser's memory counts too: many short arguments take more than their bytes.
        let queued = state.transaction.as_ref().map_or(0, |transaction| transaction.bytes());
        let held = unread + requests.parser.held();
        let most = core.local.live.query_limit;
        if held > if state.user.is_none() { most.min(STRANGERS_QUERY) } else { most } {
            add(&core.shared.counters.client_query_buffer_limit_disconnections, 1);
            state.closing = true;
            return Step::Cut;
        }
        state.card.unread.store(unread, Relaxed);
        core.local.held += state.card.hold(Part::Asked, held + given + queued);
        step
    }

    /// Passes on the answer that the connection waited for; `run` then continues.
    pub fn answered(&mut self, answer: Answer, core: &mut Core<'_>, out: &mut Vec<u8>) {
        let state = &mut self.state;
        let Some(pending) = state.pending.take() else { return };
        if matches!(*pending, Pending::Pause | Pending::Room | Pending::Writes { .. }) {
            // The request itself comes now.
            return;
        }
        let before = out.len();
        let resp3 = state.resp3;
        command::answered(*pending, answer, state, core, Writer { out, resp3 });
        if state.pending.is_some() {
            // It had to send another request.
            return;
        }
        if state.is_silent() {
            out.truncate(before);
        }
        state.silence_moves_on();
    }

    /// The reply to a write. It goes out with `catch_up`.
    pub fn written(&mut self, number: u64, reply: Reply, core: &mut Core<'_>) {
        let Some(line) = &mut self.state.line else { return };
        if reply.first() == Some(&b'-') {
            core.count_error(&reply[1..]);
        }
        line.answered(number, reply);
    }

    /// Writes the replies to writes whose turn has come. Returns whether to continue with `run`,
    /// which may have waited for them.
    pub fn catch_up(&mut self, out: &mut Vec<u8>) -> bool {
        let state = &mut self.state;
        let Some(line) = &mut state.line else { return false };
        line.go_out(out);
        let (is_empty, has_room) = (line.is_empty(), line.has_room());
        if is_empty {
            state.next_write = line.next();
            state.line = None;
        }
        match state.pending.as_deref() {
            Some(Pending::Writes { all }) if is_empty || (has_room && !all) => {
                state.pending = None;
                true
            }
            pending => pending.is_none(),
        }
    }

    /// Writes that wait will have no other reply than this.
    pub fn give_up_writes(&mut self, reply: &[u8]) {
        if let Some(line) = &mut self.state.line {
            line.give_up(reply);
        }
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
            SubscriptionKind::Pattern => user.subscribe.hold_all_of(name),
            SubscriptionKind::Topic | SubscriptionKind::Shard | SubscriptionKind::Trace => {
                user.subscribe.hold(name)
            }
        };
        let calls = [
            (SubscriptionKind::Topic, "subscribe"),
            (SubscriptionKind::Pattern, "psubscribe"),
            (SubscriptionKind::Shard, "ssubscribe"),
        ];
        let keeps = calls.into_iter().all(|(kind, command)| {
            let names = state.names(kind);
            (names.is_empty() || user.may_call(command)) && names.iter().all(|name| may(kind, name))
        }) && (!state.monitors || user.may_call("monitor"));
        // It continues to read only if it may still subscribe.
        let keeps = keeps
            && match state.pending.as_deref() {
                Some(Pending::Reading { topics }) => {
                    topics.iter().all(|topic| user.subscribe.hold(topic))
                }
                _ => true,
            };
        state.become_user(Some(user), state.logged_in);
        keeps
    }

    /// Somebody else must hear of its end: who holds a message for it, or looks for some.
    pub fn waits_for_others(&self) -> bool {
        matches!(
            self.state.pending.as_deref(),
            Some(Pending::Queue | Pending::Reading { .. } | Pending::Relay | Pending::Kept { .. })
        )
    }

    pub fn waits_for_queue(&self) -> bool {
        matches!(self.state.pending.as_deref(), Some(Pending::Queue))
    }

    pub fn waits_for_keeper(&self) -> bool {
        matches!(self.state.pending.as_deref(), Some(Pending::Kept { .. }))
    }

    /// Returns whether it resumes soon, when others have done its writes.
    pub fn waits_for_writes(&self) -> bool {
        matches!(self.state.pending.as_deref(), Some(Pending::Kept { .. } | Pending::Writes { .. }))
    }

    /// Its keeper need not answer.
    pub fn forget_kept(&self) {
        if let Some(Pending::Kept { keeper, number }) = self.state.pending.as_deref() {
            keeper.forget(*number);
        }
    }

    /// Releases what other parts know of it. Called once, at the end of the connection.
    pub fn close(&mut self, core: &mut Core<'_>) {
        for kind in [SubscriptionKind::Topic, SubscriptionKind::Pattern, SubscriptionKind::Shard] {
            for name in self.state.names(kind) {
                self.state.unsubscribe(kind, &name, core);
            }
        }
        self.state.stop_monitoring(core);
        command::topics::relay::close(&mut self.state, core);
        if self.waits_for_queue() {
            core.shared.queues.engine.forget(ticket(core.local.worker, self.state.card.token));
        }
        if matches!(self.state.pending.as_deref(), Some(Pending::Pause)) {
            core.shared.pause.forget(core.local.worker, self.state.card.token);
        }
        if matches!(self.state.pending.as_deref(), Some(Pending::Reading { .. })) {
            core.shared.readings.forget(core.local.worker, self.state.card.token);
        }
        self.forget_kept();
        core.shared.registry.remove(self.state.card.id);
        core.local.held -= self.state.card.holds() as isize;
    }
}

impl Requests {
    fn parse(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        core: &mut Core<'_>,
    ) -> Result<Parsed, ProtocolError> {
        self.parser.borrow(&mut core.local.ranges);
        self.parser.parse(bytes, limits)
    }

    /// One request: how many bytes it was, and why to stop behind it, if so. `Err`: it is incomplete.
    fn next(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        state: &mut State,
        core: &mut Core<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Step>), ()> {
        if let Some(call) = state.transaction.as_mut().and_then(|transaction| transaction.pop()) {
            let made = make(call.0.arguments(), false, state, core, out);
            let Some(transaction) = &mut state.transaction else { return Ok((0, None)) };
            return match made {
                Made::Not { step, .. } => {
                    transaction.put_back(call);
                    Ok((0, Some(step)))
                }
                Made::Yes(step) => {
                    if transaction.is_over() {
                        state.transaction = None;
                    }
                    Ok((0, step))
                }
            };
        }
        let (used, resumed) = match self.ready.take() {
            Some(ready) => ready,
            None => match self.parse(bytes, limits, core) {
                Ok(Parsed::Request(used)) => (used, false),
                Ok(Parsed::Incomplete) => return Err(()),
                Err(_) if state.line.is_some() => {
                    // Found again, when it can be said.
                    return Ok((0, Some(state.wait_for_writes(true))));
                }
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
        match make(arguments, resumed, state, core, out) {
            Made::Not { step, resumed } => {
                self.ready = Some((used, resumed));
                Ok((0, Some(step)))
            }
            Made::Yes(step) => Ok((used, step)),
        }
    }
}

impl State {
    /// Does what comes next when the writes before it are answered.
    fn wait_for_writes(&mut self, all: bool) -> Step {
        self.pending = Some(Box::new(Pending::Writes { all }));
        Step::Wait
    }

    /// Executes a command; returns whether its replies come although CLIENT REPLY is off. `resumed`: it was
    /// begun before, waited for room, and has been shown to who monitors.
    fn execute(
        &mut self,
        command: Result<&'static Command, Unknown>,
        arguments: Arguments<'_>,
        resumed: bool,
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
            core.count_error(&text);
            if let Ok(command) = command {
                core.local.tallies.of(command).rejected += 1;
                if command.action == Action::Relay {
                    self.relaying = self.relaying.map(Relaying::refused);
                }
            }
            reply.error(&text);
            return false;
        }
        let Ok(command) = command else { return false };
        self.card.command.store(command.index(), Relaxed);
        if core.shared.is_monitored() && !command.has_flag("admin") && !resumed {
            let line = tracing::monitored(&self.card, command, arguments);
            core.local.chunk.add_trace(&line, core.shared.monitored());
        }
        let slow = core.local.live.slow_log;
        let threshold = slow
            .threshold
            .filter(|_| command.timed || core.shared.directory.pattern_count() > PATTERNS_UNTIMED);
        let stands_for = match core.local.tallies.samples() {
            _ if threshold.is_some() => 1,
            true => SAMPLED,
            false => 0,
        };
        let errors = core.local.errors;
        let before = match core.local.looked.take() {
            Some(looked) if stands_for > 0 => looked,
            _ if stands_for > 0 => (core.clock)(),
            _ => 0,
        };
        command::handler(command.action)(&mut Call {
            state: self,
            core,
            arguments,
            reply,
            command,
        });
        if matches!(self.pending.as_deref(), Some(Pending::Room)) {
            return false;
        }
        let mut took = 0;
        if stands_for > 0 {
            let after = (core.clock)();
            took = after.saturating_sub(before);
            core.local.looked = Some(after);
        }
        let failed = core.local.errors - errors;
        let tally = core.local.tallies.of(command);
        tally.calls += 1;
        tally.took += took * stands_for;
        tally.failed += failed.min(1);
        if threshold.is_some_and(|threshold| took >= threshold) && slow.length > 0 {
            core.shared.slow_log.add(&self.card, command, arguments, took, slow.length);
        }
        command.pushes
    }
}

/// The outcome of a request.
enum Made {
    /// It is done later; `resumed`: it had begun.
    Not { step: Step, resumed: bool },
    /// It is done; the reason to stop after it, if there is one.
    Yes(Option<Step>),
}

/// Runs one command, if it can run now.
fn make(
    arguments: Arguments<'_>,
    resumed: bool,
    state: &mut State,
    core: &mut Core<'_>,
    out: &mut Vec<u8>,
) -> Made {
    let command = catalog::find(arguments);
    let runs = state.transaction.as_ref().is_some_and(|transaction| transaction.runs());
    if let Some(line) = &state.line {
        let tables = &core.local.live.tables;
        let follows = command.is_ok_and(|command| follows(line, command, arguments, tables));
        // A group of messages is not split.
        if !follows || (line.is_full() && !runs) {
            return Made::Not { step: state.wait_for_writes(!follows), resumed };
        }
    }
    let before = out.len();
    let taken =
        if runs { Taken::No } else { transaction::take(command, arguments, state, core, out) };
    let lowered = match command {
        Ok(command) if core.shared.settings.ignore_case_topics => {
            let places = topic_places(command, arguments);
            (!places.is_empty()).then(|| arguments.lowered(places))
        }
        _ => None,
    };
    let arguments = lowered.as_ref().map_or(arguments, Copied::arguments);
    if command.is_err() && command::is_http(&arguments[0]) {
        add(&core.shared.counters.http_disconnections, 1);
        let text = format!("disconnected: it speaks HTTP: {}", state.card.who());
        core.shared.events.log(Level::Warning, text);
        return Made::Yes(Some(Step::Cut));
    }
    if taken == Taken::No
        && command.is_ok_and(|command| core.shared.pause.holds(command))
        && core.shared.pause.wait(core.local.worker, state.card.token)
    {
        state.pending = Some(Box::new(Pending::Pause));
        return Made::Not { step: Step::Wait, resumed };
    }
    // A new subscriber must not receive messages published earlier.
    let reaches_subscribers = command.is_ok_and(|command| command.changes_deliveries);
    if taken == Taken::No && reaches_subscribers && !core.local.chunk.is_empty() {
        return Made::Not { step: Step::Sync, resumed };
    }
    let pushes = match taken {
        Taken::Runs => return Made::Yes(None),
        Taken::Answered => false,
        Taken::No => state.execute(command, arguments, resumed, core, out),
    };
    if state.deferred.is_some() {
        return Made::Yes(Some(Step::Sync));
    }
    if let Some(pending) = &state.pending {
        if matches!(**pending, Pending::Room) {
            // Counted when it is done.
            core.local.commands -= 1;
            return Made::Not { step: Step::Wait, resumed: true };
        }
        return Made::Yes(Some(Step::Wait));
    }
    if state.is_silent() && !pushes {
        out.truncate(before);
    }
    if let Some(line) = state.line.as_mut().filter(|_| out.len() > before) {
        // Refused, as those before it may be.
        line.say(out.split_off(before));
    }
    // One EXEC is one call.
    let is_within = |one: &Transaction| one.runs() && !one.is_over();
    if !state.transaction.as_deref().is_some_and(is_within) {
        state.silence_moves_on();
    }
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
    Made::Yes(step)
}

/// Bytes published in one turn, as encoded and as copies to send, after which they are sent before
/// more is read. The same number of bytes in replies triggers a check whether the client is owed
/// too much.
const TURN_BYTES: usize = 1 << 20;
const TURN_COPIES: u64 = 1 << 16;
/// With up to this many patterns, comparing a topic with all of them is cheaper than reading the
/// clock twice.
const PATTERNS_UNTIMED: usize = 32;
/// Limit for an unfinished request of a client that is not authenticated: more than the strict
/// parser takes for one.
const STRANGERS_QUERY: usize = 256 << 10;
